/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A recording: from options to pipeline and symbolizer. The options are texts as users write them;
 * the lists in them are split here.
 */
#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "agent/internal.h"
#include "agent/probe/probe.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"

#define FOLLOW_NS 1000000000ULL
/* Between two dumps of a JVM in a recording that makes one profile. */
#define FLIGHT_PERIOD_MS 10000

/* A comma-separated list, split in place. */
struct list {
	char *text; /* owned */
	vec(const char *) items;
};

/* What to sample, and the memory that the options of the sampler point to. */
struct selection {
	struct list events, pids, comms, cgroups, uids;
	struct sampler_event event[SAMPLER_MAX_SOURCES];
	u32 *pid, *uid; /* owned */
};

static void list_deinit(struct list *l)
{
	free(l->text);
	vec_deinit(&l->items);
}

static int list_init(struct list *l, const char *text)
{
	char *save, *item;

	if (!text)
		return 0;
	l->text = strdup(text);
	if (!l->text)
		return -ENOMEM;
	for (item = strtok_r(l->text, ",", &save); item; item = strtok_r(NULL, ",", &save))
		if (vec_push(&l->items, item) < 0)
			return -ENOMEM;
	return 0;
}

static void selection_deinit(struct selection *s)
{
	list_deinit(&s->events);
	list_deinit(&s->pids);
	list_deinit(&s->comms);
	list_deinit(&s->cgroups);
	list_deinit(&s->uids);
	free(s->pid);
	free(s->uid);
}
#define _cleanup_selection_ __attribute__((cleanup(selection_deinit)))

static int parse_pids(const struct list *l, struct diag *reterr_diag, u32 *ret)
{
	for (size_t i = 0; i < l->items.n; i++) {
		char path[32];
		u64 pid;

		if (str_to_u64(l->items.data[i], 10, &pid) < 0 || !pid || pid > 0x7fffffff)
			return diag_set(reterr_diag, -EINVAL, "'%s' is not a process id",
					l->items.data[i]);
		snprintf(path, sizeof(path), "/proc/%llu", pid);
		if (access(path, F_OK) < 0)
			return diag_set(reterr_diag, -ESRCH, "there is no process %llu", pid);
		ret[i] = (u32)pid;
	}
	return 0;
}

static int parse_uids(const struct list *l, struct diag *reterr_diag, u32 *ret)
{
	for (size_t i = 0; i < l->items.n; i++) {
		const struct passwd *pw = getpwnam(l->items.data[i]);
		u64 uid;

		if (pw)
			uid = pw->pw_uid;
		else if (str_to_u64(l->items.data[i], 10, &uid) < 0 || uid > ~0u)
			return diag_set(reterr_diag, -EINVAL, "there is no user '%s'",
					l->items.data[i]);
		ret[i] = (u32)uid;
	}
	return 0;
}

static const char *events_of(const struct recording_options *o)
{
	if (o->wall)
		return SAMPLER_DEFAULT_EVENT "," SAMPLER_WAITS;
	if (o->off_cpu)
		return SAMPLER_WAITS;
	if (o->faults)
		return SAMPLER_FAULTS;
	if (o->block_io)
		return SAMPLER_BLOCK_IO;
	if (o->resident && !o->events)
		return SAMPLER_RESIDENT;
	if (o->heap && !o->events)
		return SAMPLER_HEAP;
	if (o->alloc && !o->events)
		return SAMPLER_ALLOC;
	return o->events ? o->events : SAMPLER_DEFAULT_EVENT;
}

static int choose_events(struct selection *s, const struct recording_options *o, u64 clock_hz,
			 struct diag *reterr_diag)
{
	bool has_waits = false, has_memory = false, has_heap = false;

	if (s->events.items.n > SAMPLER_MAX_SOURCES)
		return diag_set(reterr_diag, -EINVAL, "at most %d events at a time",
				SAMPLER_MAX_SOURCES);
	for (size_t i = 0; i < s->events.items.n; i++) {
		s->event[i] =
			(struct sampler_event){.name = s->events.items.data[i],
					       .hz = o->hz,
					       .clock_hz = clock_hz ? clock_hz : SAMPLER_DEFAULT_HZ,
					       .period = o->period,
					       .clock_ns = o->clock_ns};
		has_waits |= strcmp(s->event[i].name, SAMPLER_WAITS) == 0;
		has_heap |= strcmp(s->event[i].name, SAMPLER_HEAP) == 0;
		has_memory |= has_heap || strcmp(s->event[i].name, SAMPLER_RESIDENT) == 0 ||
			      strcmp(s->event[i].name, SAMPLER_ALLOC) == 0;
	}
	if (has_memory && o->last_s > 0)
		return diag_set(reterr_diag, -EINVAL,
				"memory is that of one moment, the end: leave --last out");
	if (has_heap && s->events.items.n == 1 &&
	    (s->comms.items.n || s->cgroups.items.n || s->uids.items.n))
		return diag_set(
			reterr_diag, -EINVAL,
			"--heap alone samples no threads, whose filters could be asked: choose "
			"processes by --pid");
	if (o->wakers && !has_waits)
		return diag_set(reterr_diag, -EINVAL,
				"--wakers tells who ends waits: add --off-cpu or --wall");
	return 0;
}

/* Of the options that say what to record, one may be given. */
static int check_what(const struct recording_options *o, struct diag *reterr_diag)
{
	const char *no_rate = o->faults	       ? "--faults"
			      : o->block_io    ? "--block-io"
			      : o->resident    ? "--resident"
			      : o->alloc       ? "--alloc"
			      : o->attach_java ? "--attach-java"
					       : NULL;

	if (o->kernel_only && o->user_only)
		return diag_set(reterr_diag, -EINVAL,
				"--kernel-only and --user-only exclude each other");
	if (o->off_cpu + o->wall + o->faults + o->block_io + o->resident + o->heap + o->alloc +
		    o->attach_java + (o->events != NULL) >
	    1)
		return diag_set(reterr_diag, -EINVAL,
				"--event, --off-cpu, --wall, --faults, --block-io, --resident, "
				"--heap, --alloc and --attach-java exclude each other");
	if (o->off_cpu && o->hz)
		return diag_set(reterr_diag, -EINVAL,
				"--off-cpu follows each wait and has no rate: leave -F out");
	if (o->attach_java && (o->hz || o->period || o->last_s > 0))
		return diag_set(reterr_diag, -EINVAL,
				"with --attach-java JVMs sample their allocations: leave -F, -c "
				"and --last out");
	if (no_rate && o->hz)
		return diag_set(reterr_diag, -EINVAL,
				"%s has no rate: leave -F out, or take one of N with -c N",
				no_rate);
	if (o->heap && o->hz)
		return diag_set(reterr_diag, -EINVAL, "--heap is read, not sampled: leave -F out");
	return 0;
}

/* Fills `ret`, which points into `s`. */
static int select_samples(struct selection *s, const struct recording_options *o, u64 clock_hz,
			  struct diag *reterr_diag, struct sampler_options *ret)
{
	int r = check_what(o, reterr_diag);

	if (r < 0)
		return r;
	if (list_init(&s->events, events_of(o)) < 0 || list_init(&s->pids, o->pids) < 0 ||
	    list_init(&s->comms, o->comms) < 0 || list_init(&s->cgroups, o->cgroups) < 0 ||
	    list_init(&s->uids, o->uids) < 0)
		return -ENOMEM;
	s->pid = calloc(s->pids.items.n + 1, sizeof(*s->pid)); /* and `follow` */
	s->uid = calloc(s->uids.items.n + 1, sizeof(*s->uid));
	if (!s->pid || !s->uid)
		return -ENOMEM;
	if (!o->trace)
		r = choose_events(s, o, clock_hz, reterr_diag);
	if (r == 0)
		r = parse_pids(&s->pids, reterr_diag, s->pid);
	if (r == 0)
		r = parse_uids(&s->uids, reterr_diag, s->uid);
	if (r < 0)
		return r;
	*ret = (struct sampler_options){
		.events = s->event,
		.n_events = o->trace ? recording_trace_events(o, s->event) : (u32)s->events.items.n,
		.traces = o->trace != 0,
		.late_walkers = o->trace != 0 && !o->all_walkers,
		.late_runtimes = !o->trace,
		.kernel_stacks = !o->user_only,
		.user_stacks = !o->kernel_only,
		.whole_time = o->wall || o->whole_time,
		.wakers = o->wakers,
		.budget = o->budget,
		.pids = s->pid,
		.n_pids = (u32)s->pids.items.n,
		.follow_forks = o->follow != 0,
		.comms = s->comms.items.data,
		.n_comms = (u32)s->comms.items.n,
		.cgroups = s->cgroups.items.data,
		.n_cgroups = (u32)s->cgroups.items.n,
		.uids = s->uid,
		.n_uids = (u32)s->uids.items.n,
	};
	if (o->follow)
		s->pid[ret->n_pids++] = o->follow;
	return 0;
}

/* procman keeps a file descriptor for each binary that it knows. */
static void raise_file_limit(void)
{
	struct rlimit r;

	if (getrlimit(RLIMIT_NOFILE, &r) == 0 && r.rlim_cur < r.rlim_max) {
		r.rlim_cur = r.rlim_max;
		setrlimit(RLIMIT_NOFILE, &r);
	}
}

/* A folder of the cache, owned by the caller; NULL if there is no cache. */
static int below_cache(const struct recording_options *o, const char *name,
		       struct diag *reterr_diag, char **ret)
{
	if (o->cache_dir && o->cache_dir[0] != '/')
		return diag_set(reterr_diag, -EINVAL,
				"--cache-dir '%s': give an absolute path, or none", o->cache_dir);
	if (o->cache_dir && asprintf(ret, "%s/%s", o->cache_dir, name) < 0) {
		*ret = NULL;
		return -ENOMEM;
	}
	return 0;
}

static int start_pipeline(const struct recording_options *o, const struct recording_limits *l,
			  struct identities *identities, struct diag *reterr_diag,
			  struct pipeline **ret)
{
	_cleanup_selection_ struct selection s = {};
	_cleanup_free_ char *cache_dir = NULL;
	struct pipeline_options po = {
		.parsers = o->parsers,
		.keep_times = o->keep_times || o->last_s > 0,
		.task_ids = !l->no_task_ids,
		.memory_limit_bytes = l->tables_bytes ? l->tables_bytes : o->memory_limit_mb << 20,
		.max_section = l->max_section,
		.budget = l->budget,
		.tight_memory = l->tight_memory,
		.choose = o->choose,
		.choose_arg = o->choose_arg,
		.jvm_seen = l->flights ? flights_see : NULL,
		.jvm_flag = ATTACH_FLAG,
		.jvm_arg = l->flights,
	};
	int r = select_samples(&s, o, l->clock_hz, reterr_diag, &po.sampler);

	if (r == 0)
		r = below_cache(o, "unwind", reterr_diag, &cache_dir);
	po.cache_dir = cache_dir;
	if (r == 0)
		r = probe_require(reterr_diag);
	if (r < 0)
		return r;
	raise_file_limit();
	if (identities)
		run_connect_pipeline(identities, &po);
	return pipeline_create(&po, reterr_diag, ret);
}

static int start_symbolizer(const struct recording_options *o, const struct recording_limits *l,
			    struct identities *identities, struct diag *reterr_diag,
			    struct symbolizer **ret)
{
	_cleanup_free_ char *cache_dir = NULL;
	struct symbolizer_options so = {
		.inlines = !o->no_inline,
		.runtime_frames = o->runtime_frames,
		.no_times = !o->keep_times,
		.one_profile = o->alloc,
		.leave_self = o->leave_self,
		.leave_files = l->leave_files,
		.max_section = l->max_section,
		.budget = l->budget,
		.debuginfod_urls = o->debuginfod_urls,
	};
	int r = below_cache(o, "symbols", reterr_diag, &cache_dir);

	if (r < 0)
		return r;
	so.cache_dir = cache_dir;
	if (identities)
		run_connect_symbolizer(identities, &so);
	r = symbolizer_create(&so, ret);
	return r < 0 ? diag_set(reterr_diag, r, "cannot prepare symbols: %s", strerror(-r)) : 0;
}

int recording_open(const struct recording_options *o, const struct recording_limits *l,
		   struct identities *identities, struct diag *reterr_diag, struct recording **ret)
{
	struct recording *rec = calloc(1, sizeof(*rec));
	int r = rec ? start_pipeline(o, l, identities, reterr_diag, &rec->pipeline) : -ENOMEM;

	if (r == 0)
		r = recent_create(rec->pipeline, (u64)(o->last_s * 1e9), &rec->recent);
	if (r == 0)
		r = start_symbolizer(o, l, identities, reterr_diag, &rec->symbolizer);
	if (r < 0) {
		recording_destroy(rec);
		return diag_set(reterr_diag, r, "%s",
				r == -ENOMEM ? "out of memory" : strerror(-r));
	}
	if (o->trace)
		rec->names = profile_create();
	if (o->trace && !rec->names) {
		recording_destroy(rec);
		return -ENOMEM;
	}
	rec->whole_time = o->wall;
	rec->alloc = o->alloc;
	*ret = rec;
	return 0;
}

int recording_create(const struct recording_options *o, struct diag *reterr_diag,
		     struct recording **ret)
{
	_cleanup_identities_ struct identities *identities = NULL;
	_cleanup_flights_ struct flights *flights = NULL;
	int r = o->identify ? identities_create(&identities) : 0;

	if (r == 0 && identities)
		r = identities_set_root(identities, o->host_root);
	if (r == 0 && o->attach_java)
		r = flights_create(&(struct flights_options){.parsers = o->parsers,
							     .identities = identities,
							     .period_ms = FLIGHT_PERIOD_MS},
				   &flights);
	if (r < 0)
		return diag_set(reterr_diag, r, "%s", strerror(-r));
	r = recording_open(o, &(struct recording_limits){.flights = flights}, identities,
			   reterr_diag, ret);
	if (r == 0) {
		(*ret)->identities = take_ptr(identities);
		(*ret)->flights = take_ptr(flights);
	}
	return r;
}

void recording_destroy(struct recording *r)
{
	if (!r)
		return;
	symbolizer_destroy(r->symbolizer);
	recent_destroy(r->recent);
	pipeline_destroy(r->pipeline);
	profile_destroy(r->names);
	map_deinit(&r->named);
	flights_destroy(r->flights);
	identities_destroy(r->identities);
	free(r);
}

int recording_start(struct recording *r, struct diag *reterr_diag)
{
	int e = pipeline_start(r->pipeline, reterr_diag);

	return e < 0 ? diag_set(reterr_diag, e, "%s", strerror(-e)) : 0;
}

static void follow_identities(struct recording *r)
{
	u64 now = clock_ns(CLOCK_MONOTONIC);

	if (!r->identities || now < r->follow_ns)
		return;
	identities_follow(r->identities);
	r->follow_ns = now + FOLLOW_NS;
}

int recording_poll(struct recording *r, int timeout_ms)
{
	int e = pipeline_poll(r->pipeline, timeout_ms);

	recent_follow(r->recent);
	follow_identities(r);
	return e;
}

void recording_stop(struct recording *r)
{
	pipeline_stop(r->pipeline);
	flights_finish(r->flights);
}

/*
 * Adds what the first source has in a batch to *sum, which is NULL before the first batch; and what
 * the others have, if all have one type.
 */
static int add_batch(struct recording *r, const struct pipeline_batch *b, struct profile **sum)
{
	struct profile *profiles[SAMPLER_MAX_SOURCES] = {};
	struct diag diag = {};
	int e = symbolizer_profiles(r->symbolizer, b, recent_begin_ns(r->recent), profiles);
	u64 duration_ns;

	if (e == 0 && *sum)
		e = profile_merge(*sum, profiles[0], &diag);
	else if (e == 0)
		*sum = take_ptr(profiles[0]);
	/* All sources recorded at the same time. */
	duration_ns = *sum ? (*sum)->duration_ns : 0;
	for (u32 i = 1; i < SAMPLER_MAX_SOURCES && e == 0 && (r->whole_time || r->alloc); i++)
		if (profiles[i])
			e = profile_merge(*sum, profiles[i], &diag);
	if (*sum)
		(*sum)->duration_ns = duration_ns;
	for (u32 i = 0; i < SAMPLER_MAX_SOURCES; i++)
		profile_destroy(profiles[i]);
	return e;
}

int recording_profile(struct recording *r, struct profile **ret)
{
	_cleanup_profile_ struct profile *sum = NULL;
	const struct pipeline_batch *b;
	int e = recent_take(r->recent);

	for (size_t i = 0; e == 0 && !r->flights && (b = recent_batch(r->recent, i)); i++)
		e = add_batch(r, b, &sum);
	recent_clear(r->recent);
	if (e == 0 && r->flights)
		return flights_profile(r->flights, ret);
	if (e == 0)
		*ret = take_ptr(sum);
	return e;
}

void recording_discard(struct recording *r)
{
	(void)recent_take(r->recent);
	recent_clear(r->recent);
}

void recording_stats(struct recording *r, struct pipeline_stats *ret)
{
	pipeline_stats(r->pipeline, ret);
	recent_add_counts(r->recent, ret);
}

bool recording_flight_stats(const struct recording *r, struct flights_stats *ret)
{
	if (r->flights)
		flights_get_stats(r->flights, ret);
	return r->flights;
}

void recording_symbol_stats(const struct recording *r, struct symbolizer_stats *ret)
{
	symbolizer_stats(r->symbolizer, ret);
}

void recording_heap_say(struct recording *r,
			void (*say)(void *arg, u32 pid, const char *comm, const char *text),
			void *arg)
{
	pipeline_heap_say(r->pipeline, say, arg);
}

const struct sampler_source *recording_source(const struct recording *r, u32 i)
{
	return pipeline_source(r->pipeline, i);
}
