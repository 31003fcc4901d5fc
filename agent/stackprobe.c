/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gala-gopher's flame graph probe: a recording as long as its configuration says `running`.
 *
 *	requests (any thread) ─→ config ─→ the thread of stackprobe_run(): a recording, when one
 *	is wanted ─→ its symbolizing thread: parts by type ─→ files and the upload
 *
 * A request that changes what is sampled ends the recording, and waits until the next one has
 * begun; another list of processes, other files and another upload take effect while it goes on.
 *
 * Locks: `requests` is held by one request at a time; `lock` guards the configuration, `files` the
 * files and the upload. None is taken while a later one of these three is held.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "agent/internal.h"
#include "agent/probe/probe.h"
#include "agent/stackprobe/stackprobe.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"

#define MEMORY_LIMIT_MB 384
#define PERIOD_S 20.0
#define SPOOL_BYTES (16ULL << 20)
#define DRAIN_MS 2000
/* Above this share of the memory limit a profile is dropped unless the queue is empty. */
#define SHORT_PERCENT 90
#define IDLE_NS 100000000ULL
#define START_MAX_NS 60000000000ULL
/* Processes move to other cgroups, and their containers get names, without an event. */
#define CHOOSE_NS 2000000000ULL
#define ALLOC_EVENT "alloc"
#define TIMES (1u << STACKPROBE_OFFCPU | 1u << STACKPROBE_LOCK | 1u << STACKPROBE_WALL)

struct stackprobe {
	struct stackprobe_options options;
	struct budget budget;
	u32 lacks;		       /* bits of types that cannot be recorded here */
	struct identities *identities; /* owned, like the next three */
	struct stackprobe_matcher *matcher;
	struct recording *recording; /* NULL: none, like the next */
	struct run *run;
	u32 types;     /* of the recording */
	u64 recorded;  /* what `wanted` was when it began */
	u64 chosen;    /* what `snoopers` was when processes were chosen */
	u64 choose_ns; /* when they are chosen again */
	u32 period_ms; /* of the run */

	pthread_mutex_t requests;
	pthread_mutex_t lock; /* of the next members */
	pthread_cond_t changed;
	struct stackprobe_config config;
	u64 wanted;	     /* counts what recordings must follow */
	u64 snoopers;	     /* counts lists of processes */
	u64 told;	     /* the last `wanted` that has begun, or could not */
	int error;	     /* of that one */
	struct diag failure; /* likewise */
	bool over;	     /* nothing is recorded any more */

	pthread_mutex_t files; /* of the next members */
	struct stackprobe_output *output;
	struct exporters *exporters; /* owned; NULL: no upload */
};

/* ---- what can be recorded ---- */

static bool has_event(const char *name)
{
	const char *event, *help;

	for (size_t i = 0; (event = sampler_event_at(i, &help)); i++)
		if (!strcmp(event, name))
			return true;
	return false;
}

/* Bits of types that this build or kernel does not have. */
static u32 lacking_types(void)
{
	u32 lacks = 0;

	if (probe_waits() < 0)
		lacks |= TIMES;
	if (!has_event(SAMPLER_FAULTS))
		lacks |= 1u << STACKPROBE_MEM;
	if (!has_event(SAMPLER_BLOCK_IO))
		lacks |= 1u << STACKPROBE_IO;
	if (!has_event(ALLOC_EVENT))
		lacks |= 1u << STACKPROBE_MEM_GLIBC;
	return lacks;
}

static void events_of_types(u32 types, struct str *ret)
{
	static const struct {
		u32 types;
		const char *event;
	} events[] = {
		{1u << STACKPROBE_ONCPU | 1u << STACKPROBE_WALL, SAMPLER_DEFAULT_EVENT},
		{TIMES, SAMPLER_WAITS},
		{1u << STACKPROBE_MEM, SAMPLER_FAULTS},
		{1u << STACKPROBE_IO, SAMPLER_BLOCK_IO},
		{1u << STACKPROBE_MEM_GLIBC, ALLOC_EVENT},
	};

	for (size_t i = 0; i < ARRAY_SIZE(events); i++)
		if (types & events[i].types)
			str_printf(ret, "%s%s", ret->n ? "," : "", events[i].event);
}

/* ---- a recording ---- */

static enum pipeline_choice choose(void *arg, const struct procman_process *p)
{
	struct stackprobe *s = arg;
	enum pipeline_choice c;

	pthread_mutex_lock(&s->lock);
	c = stackprobe_matcher_choose(s->matcher, s->config.snoopers, p);
	pthread_mutex_unlock(&s->lock);
	return c;
}

/* Under the lock. Pictures are due on a multiple of the period. */
static u32 period_of(const struct stackprobe *s)
{
	double most = s->options.period_s > 0 ? s->options.period_s : PERIOD_S;
	double svg = (double)s->config.params.value[STACKPROBE_SVG_PERIOD];
	u32 parts = (u32)(svg / most);

	parts += parts * most < svg;
	return (u32)(svg * 1000 / MAX(parts, 1u));
}

static void take_part(struct stackprobe *s, const struct profile *p, enum stackprobe_type t)
{
	struct profile *part;
	int r = stackprobe_part(p, t, &part);

	if (r < 0)
		log_warn("samples of %s are lost: %s", stackprobe_type_name(t), strerror(-r));
	if (!part)
		return;
	pthread_mutex_lock(&s->files);
	stackprobe_output_add(s->output, t, part, time(NULL));
	if (s->exporters && part->n_samples)
		(void)exporters_send(s->exporters, take_ptr(part),
				     budget_is_over(&s->budget, SHORT_PERCENT));
	pthread_mutex_unlock(&s->files);
	profile_destroy(part);
}

/* Called by the symbolizing thread. */
static void take_profile(void *arg, struct profile *p)
{
	struct stackprobe *s = arg;
	u32 period_ms;
	bool native;

	pthread_mutex_lock(&s->lock);
	native = s->config.params.value[STACKPROBE_NATIVE_STACK];
	period_ms = period_of(s);
	pthread_mutex_unlock(&s->lock);
	if (!native && stackprobe_hide_jvm(p) < 0)
		log_warn("out of memory: frames of the JVM are shown");
	for (u32 t = 0; t < STACKPROBE_N; t++)
		if (s->types & 1u << t)
			take_part(s, p, t);
	profile_destroy(p);
	pthread_mutex_lock(&s->files);
	for (u32 t = 0; t < STACKPROBE_N; t++)
		if (s->types & 1u << t)
			stackprobe_output_tick(s->output, t, time(NULL), period_ms / 1000 + 1);
	pthread_mutex_unlock(&s->files);
}

static void tell(struct stackprobe *s, int error, const struct diag *d)
{
	pthread_mutex_lock(&s->lock);
	s->told = s->recorded;
	s->error = error;
	s->failure = d ? *d : (struct diag){};
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->lock);
}

/* Called between two reads, and first when sampling has begun. */
static void follow(void *arg)
{
	struct stackprobe *s = arg;
	u64 now = clock_ns(CLOCK_MONOTONIC), snoopers;
	bool is_told, again;
	u32 period_ms;

	pthread_mutex_lock(&s->lock);
	is_told = s->told == s->recorded;
	snoopers = s->snoopers;
	again = snoopers != s->chosen ||
		(now >= s->choose_ns && stackprobe_snoopers_want_cgroups(s->config.snoopers));
	period_ms = period_of(s);
	pthread_mutex_unlock(&s->lock);
	if (again) {
		pipeline_choose_again(s->recording->pipeline);
		s->chosen = snoopers;
		s->choose_ns = now + CHOOSE_NS;
	}
	if (period_ms != s->period_ms)
		run_change(s->run,
			   &(struct run_change){.period_ms = period_ms,
						.memory_limit_bytes = budget_limit(&s->budget)});
	s->period_ms = period_ms;
	if (!is_told)
		tell(s, 0, NULL);
}

static bool is_over(void *arg)
{
	struct stackprobe *s = arg;
	bool over;

	pthread_mutex_lock(&s->lock);
	over = s->wanted != s->recorded;
	pthread_mutex_unlock(&s->lock);
	return over;
}

static void close_recording(struct stackprobe *s)
{
	run_destroy(s->run);
	s->run = NULL;
	recording_destroy(s->recording);
	s->recording = NULL;
}

static int open_recording(struct stackprobe *s, const char *events, u64 clock_ns,
			  struct diag *reterr_diag)
{
	struct recording_limits l = agent_recording_limits(budget_limit(&s->budget), &s->budget);
	const struct recording_options o = {
		.parsers = s->options.parsers,
		.events = events,
		.whole_time = s->types & 1u << STACKPROBE_WALL,
		.clock_ns = clock_ns,
		.choose = choose,
		.choose_arg = s,
		.cache_dir = s->options.cache_dir,
		.debuginfod_urls = s->options.debuginfod_urls,
	};
	struct run_options ro = {
		.identities = s->identities,
		.period_ms = s->period_ms,
		.budget = &s->budget,
		.take = take_profile,
		.each = follow,
		.is_over = is_over,
		.arg = s,
	};
	int r = recording_open(&o, &l, s->identities, reterr_diag, &s->recording);

	if (r < 0)
		return r;
	ro.pipeline = s->recording->pipeline;
	ro.symbolizer = s->recording->symbolizer;
	r = run_create(&ro, &s->run);
	return r < 0 ? diag_set(reterr_diag, r, "cannot start a thread: %s", strerror(-r)) : 0;
}

/* What the files of all types of the recording have in common. */
static void each_type(struct stackprobe *s,
		      void (*fn)(struct stackprobe_output *o, enum stackprobe_type t, time_t now))
{
	time_t now = time(NULL);

	pthread_mutex_lock(&s->files);
	for (u32 t = 0; t < STACKPROBE_N; t++)
		if (s->types & 1u << t)
			fn(s->output, t, now);
	pthread_mutex_unlock(&s->files);
}

static void record(struct stackprobe *s, u64 clock_ns, bool (*ended)(void))
{
	_cleanup_str_ struct str events = {};
	struct diag d = {};
	int r;

	events_of_types(s->types, &events);
	r = events.failed ? -ENOMEM : open_recording(s, str_get(&events), clock_ns, &d);
	if (r == 0) {
		each_type(s, stackprobe_output_begin);
		r = run_loop(s->run, ended, &d);
		each_type(s, stackprobe_output_end);
	}
	if (r < 0) {
		log_err("%s is not recorded: %s", STACKPROBE_NAME,
			d.text[0] ? d.text : strerror(-r));
		pthread_mutex_lock(&s->lock);
		if (s->wanted == s->recorded)
			s->config.state = STACKPROBE_STOPPED;
		pthread_mutex_unlock(&s->lock);
		tell(s, r, &d);
	}
	close_recording(s);
}

void stackprobe_run(struct stackprobe *s, bool (*ended)(void))
{
	while (!ended()) {
		u64 clock_ns;

		pthread_mutex_lock(&s->lock);
		if (s->wanted == s->told) {
			(void)thread_wait(&s->changed, &s->lock, IDLE_NS);
			pthread_mutex_unlock(&s->lock);
			continue;
		}
		s->recorded = s->wanted;
		s->chosen = s->snoopers;
		s->types = s->config.state == STACKPROBE_RUNNING ? s->config.types : 0;
		s->period_ms = period_of(s);
		clock_ns = (u64)s->config.params.value[STACKPROBE_SAMPLE_PERIOD] * 1000000;
		pthread_mutex_unlock(&s->lock);
		if (s->types)
			record(s, clock_ns, ended);
		else
			tell(s, 0, NULL);
	}
	pthread_mutex_lock(&s->lock);
	s->over = true;
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->lock);
}

/* ---- files and upload ---- */

/* Under `files`. gala-gopher uploads nowhere, silently, if the address has no port. */
static void open_upload(struct stackprobe *s, const struct stackprobe_config *c)
{
	const char *server = c->params.pyroscope_server;
	_cleanup_str_ struct str url = {};
	struct diag d = {};
	struct export_options o = {.spool_bytes = SPOOL_BYTES};

	if (c->state != STACKPROBE_RUNNING || !strchr(server, ':')) {
		if (s->exporters)
			exporters_destroy(s->exporters, DRAIN_MS);
		s->exporters = NULL;
		return;
	}
	str_printf(&url, "%s%s", strstr(server, "://") ? "" : "pyroscope://", server);
	o.url = str_get(&url);
	if ((s->exporters ? exporters_replace(s->exporters, &o, 1, &d)
			  : exporters_create(&o, 1, &d, &s->exporters)) < 0)
		log_warn("nothing is sent to pyroscope_server: %s", d.text);
}

static void change_files(struct stackprobe *s, const struct stackprobe_config *c)
{
	pthread_mutex_lock(&s->files);
	stackprobe_output_change(s->output, &c->params);
	open_upload(s, c);
	pthread_mutex_unlock(&s->files);
}

/* ---- requests ---- */

/* Whether a recording of one of them serves the other. */
static bool same_recording(const struct stackprobe_config *a, const struct stackprobe_config *b)
{
	bool runs = a->state == STACKPROBE_RUNNING;

	if (runs != (b->state == STACKPROBE_RUNNING))
		return false;
	return !runs || (a->types == b->types && a->params.value[STACKPROBE_SAMPLE_PERIOD] ==
							 b->params.value[STACKPROBE_SAMPLE_PERIOD]);
}

/* Borrowed: only requests replace its snoopers. */
static struct stackprobe_config get_config(struct stackprobe *s)
{
	struct stackprobe_config c;

	pthread_mutex_lock(&s->lock);
	c = s->config;
	pthread_mutex_unlock(&s->lock);
	return c;
}

/* Under the lock. */
static void set_config(struct stackprobe *s, const struct stackprobe_config *c)
{
	s->wanted += !same_recording(&s->config, c);
	s->snoopers += s->config.snoopers != c->snoopers;
	s->config = *c;
}

/* Waits until the recording is what the configuration says. */
static int wait_recorded(struct stackprobe *s, struct diag *reterr_diag)
{
	u64 until = clock_ns(CLOCK_MONOTONIC) + START_MAX_NS, now, wanted;
	int r = 0;

	pthread_mutex_lock(&s->lock);
	wanted = s->wanted;
	while (s->told != wanted && !s->over && (now = clock_ns(CLOCK_MONOTONIC)) < until)
		(void)thread_wait(&s->changed, &s->lock, until - now);
	if (s->told != wanted)
		r = diag_set(reterr_diag, -ETIMEDOUT,
			     s->over ? "culprit ends" : "it takes too long");
	else if (s->error < 0)
		r = diag_set(reterr_diag, s->error, "%s", s->failure.text);
	pthread_mutex_unlock(&s->lock);
	return r;
}

/* `next` belongs to the probe if this succeeds. */
static int apply(struct stackprobe *s, struct stackprobe_config *next, struct diag *reterr_diag)
{
	bool runs = next->state == STACKPROBE_RUNNING;
	struct stackprobe_config before = get_config(s);
	struct diag why = {};

	/* The last profiles of a recording go where its others went. */
	if (runs)
		change_files(s, next);
	pthread_mutex_lock(&s->lock);
	set_config(s, next);
	pthread_mutex_unlock(&s->lock);
	if (wait_recorded(s, &why) == 0) {
		if (!runs)
			change_files(s, next);
		stackprobe_config_drop(&before, next);
		return 0;
	}
	pthread_mutex_lock(&s->lock);
	set_config(s, &before);
	pthread_mutex_unlock(&s->lock);
	(void)wait_recorded(s, NULL);
	change_files(s, &before);
	stackprobe_config_drop(next, &before);
	return diag_set(reterr_diag, -EINVAL, "failed to start probe: %s", why.text);
}

int stackprobe_put(struct stackprobe *s, const char *json, size_t n, struct diag *reterr_diag)
{
	char message[STACKPROBE_MESSAGE_BYTES];
	struct stackprobe_config before, next;
	int r;

	pthread_mutex_lock(&s->requests);
	before = get_config(s);
	r = stackprobe_config_put(&before, json, n, s->lacks, &next, message);
	if (r < 0)
		(void)diag_set(reterr_diag, r, "%s", message);
	else
		r = apply(s, &next, reterr_diag);
	pthread_mutex_unlock(&s->requests);
	return r;
}

int stackprobe_delete(struct stackprobe *s, struct diag *reterr_diag)
{
	struct stackprobe_config next;
	int r;

	stackprobe_config_init(&next);
	pthread_mutex_lock(&s->requests);
	r = apply(s, &next, reterr_diag);
	pthread_mutex_unlock(&s->requests);
	return r;
}

void stackprobe_get(struct stackprobe *s, struct str *out)
{
	pthread_mutex_lock(&s->lock);
	stackprobe_config_print(&s->config, out);
	pthread_mutex_unlock(&s->lock);
}

/* ---- life ---- */

int stackprobe_create(const struct stackprobe_options *o, struct diag *reterr_diag,
		      struct stackprobe **ret)
{
	struct stackprobe *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return diag_set(reterr_diag, -ENOMEM, "out of memory");
	s->options = *o;
	budget_init(&s->budget, (o->memory_limit_mb ? o->memory_limit_mb : MEMORY_LIMIT_MB) << 20);
	pthread_mutex_init(&s->requests, NULL);
	pthread_mutex_init(&s->files, NULL);
	thread_sync_init(&s->lock, &s->changed);
	stackprobe_config_init(&s->config);
	agent_tune_malloc();
	r = probe_require(reterr_diag);
	if (r == 0) {
		s->lacks = lacking_types();
		r = identities_create(&s->identities);
	}
	if (r == 0)
		r = identities_set_root(s->identities, o->host_root);
	if (r == 0)
		r = stackprobe_matcher_create(s->identities, &s->matcher);
	if (r == 0)
		r = stackprobe_output_create(&s->config.params, o->canonical, &s->output);
	if (r < 0) {
		stackprobe_destroy(s);
		return diag_set(reterr_diag, r, "%s", strerror(-r));
	}
	*ret = s;
	return 0;
}

void stackprobe_destroy(struct stackprobe *s)
{
	if (!s)
		return;
	close_recording(s);
	if (s->exporters)
		exporters_destroy(s->exporters, DRAIN_MS);
	stackprobe_output_destroy(s->output);
	stackprobe_matcher_destroy(s->matcher);
	identities_destroy(s->identities);
	stackprobe_config_deinit(&s->config);
	pthread_cond_destroy(&s->changed);
	pthread_mutex_destroy(&s->lock);
	pthread_mutex_destroy(&s->files);
	pthread_mutex_destroy(&s->requests);
	budget_deinit(&s->budget);
	free(s);
}
