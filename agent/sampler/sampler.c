/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/sampler/sampler.h"
#include "agent/sampler/filters.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <time.h>
#include <unistd.h>

#include "abi/runtime.h"
#include "agent/probe/probe.h"
#include "agent/sampler/copies.h"
#include "agent/sampler/filters.h"
#include "agent/sampler/sleepers.h"
#include "agent/sampler/source.h"
#include "agent/sampler/walkers.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/vec.h"
#include "follow.skel.h"
#include "proc/proc.h"

/* The rate that a source without a rate is assumed to have; above it, records are lost. */
#define ASSUMED_HZ 1000
/* The most processes that `record -- CMD` follows at a time. */
#define MAX_FOLLOWED 16384
/* The time of a CPU to which sampler_config.budget_ns applies. */
#define BUDGET_WINDOW_NS 1e7
#define MIN_THREADS 8192U
/* Events of a script come in bursts; half of the ring bounds them, too. */
#define TRACE_DEFER_PER_TICK 1000
#define UNENDED_AT_ONCE 64
/* Threads of armed processes that are followed at a time. */
#define ARMED_THREADS 16384
/* Room for processes, and for runtimes in processes, where entries are allocated on demand. */
#define PROCESSES_ON_DEMAND (1u << 16)
#define RUNTIMES_ON_DEMAND (1u << 14)

struct sampler {
	struct source sources[SAMPLER_MAX_SOURCES];
	u32 n_sources;		   /* open sources; the first one owns the shared maps */
	struct follow_bpf *follow; /* owned */
	bool follow_forks;
	struct ring_buffer *ring;
	struct sampler_control *control; /* mapped */
	struct bpf_link *follow_links[3];
	bool has_obi; /* another program publishes spans in a map of its own */
	bool loop;    /* programs use bpf_loop(), else bounded loops */
	struct copies copies;
	struct sleepers *sleepers; /* owned; NULL: no source tells of threads that sleep */
	struct walkers *walkers;   /* owned; NULL: all walkers have been loaded at once */
	struct budget *memory;	   /* borrowed, or NULL */
	u32 n_cpus;		   /* number of possible CPUs */
	struct sizes sizes;
	struct sampler_ops ops;
	void *arg;
	u64 started_ns, stopped_ns;
	struct sampler_stats before; /* values when counting began again */
};

CULPRIT_PRINTF(2, 0)
/* Messages of libbpf, including the verifier's log, are debug output. */
static int print_libbpf(enum libbpf_print_level level, const char *fmt, va_list ap)
{
	if (level == LIBBPF_DEBUG || !log_enabled(LOG_LEVEL_DEBUG))
		return 0;
	return vfprintf(stderr, fmt, ap);
}

const struct sampler_source *sampler_source(const struct sampler *s, u32 i)
{
	return i < s->n_sources ? &s->sources[i].about : NULL;
}

static u64 hz_of(const struct source *s)
{
	return s->about.hz ? s->about.hz : ASSUMED_HZ;
}

const struct sizes *sampler_sizes(const struct sampler *s)
{
	return &s->sizes;
}

u64 sampler_hz(const struct sampler *s)
{
	u64 hz = 1;

	for (u32 i = 0; i < s->n_sources; i++)
		hz = MAX(hz, hz_of(&s->sources[i]));
	return hz;
}

static int count_one(void *arg, u32 pid)
{
	(void)pid;
	++*(u32 *)arg;
	return 0;
}

static u32 count_processes(void)
{
	u32 n = 0;

	proc_list(count_one, &n);
	return n;
}

/* As many as there can be, or four times as many as there are. */
static u32 process_entries(bool on_demand)
{
	u32 want = on_demand ? PROCESSES_ON_DEMAND : 4 * count_processes(), n = 8192;

	while (n < want && n < 1 << 18)
		n *= 2;
	return n;
}

/* The map that all sources share: that of the first source. */
static struct bpf_map *shared_map(const struct sampler *s, const char *name)
{
	return bpf_object__find_map_by_name(s->sources[0].object, name);
}

static int shared_fd(const struct sampler *s, const char *name)
{
	return bpf_map__fd(shared_map(s, name));
}

/* OBI creates and fills this map (its devdocs). A map of another shape is not OBI's. */
static bool use_obi(struct sampler *s)
{
	_cleanup_close_ int fd = bpf_obj_get(CONTEXT_OBI_MAP);
	struct bpf_map *map = shared_map(s, "obi_spans");
	struct bpf_map_info info = {};
	u32 n = sizeof(info);

	if (fd < 0 || bpf_obj_get_info_by_fd(fd, &info, &n) < 0 ||
	    info.type != BPF_MAP_TYPE_LRU_HASH || info.key_size != bpf_map__key_size(map) ||
	    info.value_size != bpf_map__value_size(map))
		return false;
	log_debug("spans of OBI: %s", CONTEXT_OBI_MAP);
	return bpf_map__reuse_fd(map, fd) == 0;
}

static bool follows_threads(const struct sampler *s)
{
	for (u32 i = 0; i < s->n_sources; i++)
		if (s->sources[i].row->value == SOURCE_VALUE_DURATION)
			return true;
	return false;
}

/* Threads whose time is followed; for twice as many as there are now. */
static void size_threads(struct sampler *s)
{
	struct bpf_map *threads = shared_map(s, "threads");
	struct sysinfo now = {};

	if (!threads || !follows_threads(s) || sysinfo(&now) < 0)
		return;
	bpf_map__set_max_entries(threads, MAX(2U * now.procs, MIN_THREADS));
	bpf_map__set_max_entries(shared_map(s, "thread_ids"), MAX(2U * now.procs, MIN_THREADS));
}

/* Only the source that follows armed processes has this map. */
static void size_armed(struct sampler *s)
{
	for (u32 i = 0; i < s->n_sources; i++) {
		struct bpf_map *threads =
			bpf_object__find_map_by_name(s->sources[i].object, "armed_threads");

		if (!threads)
			continue;
		bpf_map__set_max_entries(threads, ARMED_THREADS);
		bpf_map__set_max_entries(
			bpf_object__find_map_by_name(s->sources[i].object, "thread_ids"),
			ARMED_THREADS);
	}
}

/* Before sizes are chosen: how many processes the maps that all sources share have room for. */
static void size_process_maps(struct sampler *s, const struct sampler_options *o,
			      const struct probe_features *f)
{
	struct bpf_map *processes = shared_map(s, "processes");
	struct bpf_map *runtimes = shared_map(s, "runtime_processes");
	struct bpf_map *locks = shared_map(s, "runtime_locks");

	bpf_map__set_max_entries(processes, process_entries(f->hash_on_demand));
	size_threads(s);
	size_armed(s);
	bpf_map__set_max_entries(shared_map(s, "filter_pids"),
				 o->follow_forks ? MAX_FOLLOWED : MAX(o->n_pids, 1u));
	if (!f->hash_on_demand)
		return;
	bpf_map__set_map_flags(processes, BPF_F_NO_PREALLOC);
	bpf_map__set_map_flags(runtimes, BPF_F_NO_PREALLOC);
	bpf_map__set_max_entries(runtimes, RUNTIMES_ON_DEMAND);
	bpf_map__set_map_flags(locks, BPF_F_NO_PREALLOC);
	bpf_map__set_max_entries(locks, RUNTIMES_ON_DEMAND);
}

static void size_rings(struct sampler *s)
{
	struct bpf_map *walks = shared_map(s, "known_walks");

	bpf_map__set_max_entries(shared_map(s, "row_caches"), s->n_cpus);
	bpf_map__set_max_entries(walks, s->n_cpus * bpf_map__max_entries(walks));
	bpf_map__set_max_entries(shared_map(s, "ring"), (u32)s->sizes.ring_bytes);
}

/* Whether the samples of the source are of the whole time of threads. */
static bool is_whole(const struct source *s, const struct sampler_options *o)
{
	return o->whole_time &&
	       (s->row->value == SOURCE_VALUE_TIME || s->row->value == SOURCE_VALUE_DURATION);
}

static void configure_source(struct sampler *s, u32 source, const struct sampler_options *o,
			     const struct probe_features *f)
{
	struct source *from = &s->sources[source];
	struct bpf_map *states = bpf_object__find_map_by_name(from->object, "scratch");
	struct sampler_config *c = from->config;
	bool walks = (!o->traces || o->user_stacks) && !o->late_walkers;

	*c = (struct sampler_config){
		.has_task_btf = f->task_pt_regs && f->current_task_btf,
		.thread_size = getpagesize() > 16384 ? (u32)getpagesize() : 16384,
		.kernel_stacks = o->kernel_stacks,
		.user_stacks = o->user_stacks,
		.filter_pids = o->n_pids > 0 || o->follow_forks,
		.filter_comms = o->n_comms > 0,
		.filter_uids = o->n_uids > 0,
		.filter_cgroups = o->n_cgroups,
		.defer_per_tick =
			o->traces ? TRACE_DEFER_PER_TICK : (u32)MAX(hz_of(from) / 10 + 10, 40ULL),
		.ring_bytes = (u32)s->sizes.ring_bytes,
		.has_obi = s->has_obi,
		.source = source,
		.skip_kthreads = is_whole(from, o) || from->row->filter == SOURCE_FILTER_KTHREADS,
		.whole_time = is_whole(from, o),
		.wakers = from->wakers,
		.has_threads = follows_threads(s),
		.has_prev_state = from->has_prev_state,
		.n_fields = from->n_fields,
		.budget_ns = (u64)((o->budget > 0 ? o->budget : SAMPLER_DEFAULT_BUDGET) *
				   BUDGET_WINDOW_NS / 100),
		.pac_mask = sampler_pac_mask(),
		.period = from->about.period,
		.page_shift = (u32)__builtin_ctz((u32)getpagesize()),
		.block = from->block,
		.own_state = s->n_cpus * bpf_map__max_entries(states),
	};
	memcpy(c->code, from->code, sizeof(c->code));
	for (u32 i = 0; i < from->n_fields; i++)
		c->fields[i] = from->fields[i].where;
	source_choose_programs(from, walks, walks && !o->late_runtimes, s->loop);
	/* For each CPU, as many as the source's programs declare, and `own_state`. */
	from->n_states = c->own_state + (from->row->ops->tell != NULL);
	from->state_bytes = bpf_map__value_size(states);
	bpf_map__set_max_entries(states, from->n_states);
}

static void take_deferred(struct sampler *s, const struct record_deferred *d)
{
	static const struct sampler_copy none = {};
	struct sampler_copy *copy =
		copies_get(&s->copies, d->sample.source, d->level, d->sample.cpu);

	if (copy && d->n_copies) {
		s->ops.deferred(s->arg, d, copy);
		copies_drop(&s->copies, copy);
	} else {
		s->ops.deferred(s->arg, d, &none);
	}
}

/* Passes a thread that sleeps on as a sample of which BPF has walked no frame. */
static void take_asleep(struct sampler *s, const struct record_deferred *d)
{
	struct record_stack empty = {.type = RECORD_STACK, .stop = (u16)d->stop, .id = 1};
	struct record_deferred now = *d;
	struct sampler_copy copy;

	sleepers_copy(d, &copy);
	s->ops.stack(s->arg, &empty, NULL);
	now.sample.user_stack = empty.id;
	s->ops.deferred(s->arg, &now, &copy);
}

/* Whether the record's source exists: a damaged one would be used as an index. */
static bool has_source(const struct sampler *s, const struct record_sample *sample)
{
	return sample->source < s->n_sources;
}

/* Attributes of an event get their names here; agent/context knows those of a thread. */
static void take_attributes(struct sampler *s, const struct record_attributes *head,
			    const u8 *bytes)
{
	struct record_attributes named = *head;
	u8 text[FIELDS_MAX_BYTES];
	const struct source *from;

	if (head->form != ATTRIBUTES_FIELDS) {
		s->ops.attributes(s->arg, head, bytes);
		return;
	}
	if (head->source >= s->n_sources)
		return;
	from = &s->sources[head->source];
	named.form = ATTRIBUTES_NAMED;
	if (from->row->ops->attributes)
		named.n = from->row->ops->attributes(from, bytes, head->n, text);
	else
		named.n = fields_to_named(from->fields, from->n_fields, bytes, head->n, text);
	s->ops.attributes(s->arg, &named, text);
}

/* Passes a wake-up on as one of which no stack was walked. */
static void take_waker(struct sampler *s, const struct record_waker *w)
{
	struct record_sample sample = {
		.type = RECORD_SAMPLE,
		.wait = SAMPLE_WAKES,
		.time_ns = w->woken_ns,
		.pid = w->pid,
		.tid = w->tid,
		.woken_tid = w->woken_tid,
		.woken_ns = w->woken_ns,
	};

	memcpy(sample.comm, w->comm, sizeof(sample.comm));
	s->ops.sample(s->arg, &sample);
}

static int take_record(void *arg, void *data, size_t n)
{
	struct sampler *s = arg;
	const struct record_stack *head = data;
	const struct record_attributes *attributes = data;

	if (n < sizeof(u64))
		return 0;
	switch (head->type) {
	case RECORD_SAMPLE:
		if (n >= sizeof(struct record_sample) && has_source(s, data))
			s->ops.sample(s->arg, data);
		break;
	case RECORD_STACK:
		if (n >= sizeof(*head) && n >= sizeof(*head) + head->n * sizeof(u64))
			s->ops.stack(s->arg, head, (const u64 *)(head + 1));
		break;
	case RECORD_COPY:
		if (n >= sizeof(struct record_copy))
			copies_take(&s->copies, data);
		break;
	case RECORD_DEFERRED:
		if (n >= sizeof(struct record_deferred) && has_source(s, data))
			take_deferred(s, data);
		break;
	case RECORD_ASLEEP:
		if (n >= sizeof(struct record_deferred) && has_source(s, data))
			take_asleep(s, data);
		break;
	case RECORD_ATTRIBUTES:
		if (n >= sizeof(*attributes) && n >= sizeof(*attributes) + attributes->n)
			take_attributes(s, attributes, (const u8 *)(attributes + 1));
		break;
	case RECORD_LATER:
		if (n >= sizeof(struct record_later))
			s->ops.later(s->arg, data);
		break;
	case RECORD_INTERVAL:
		if (n >= sizeof(struct record_interval) && s->ops.interval)
			s->ops.interval(s->arg, data);
		break;
	case RECORD_PAGES:
	case RECORD_MOVED:
	case RECORD_FREED:
		s->ops.memory(s->arg, data, n);
		break;
	case RECORD_WAKER:
		if (n >= sizeof(struct record_waker))
			take_waker(s, data);
		break;
	case RECORD_EXEC:
		if (n >= sizeof(struct record_exec))
			s->ops.exec(s->arg, data);
		break;
	default:
		log_debug("ring: unknown record type %u", head->type);
	}
	return 0;
}

/* Enters the programs in the map through which they jump to each other. */
static int join_programs(struct sampler *s, struct source *from, struct diag *reterr_diag)
{
	struct bpf_map *walkers = bpf_object__find_map_by_name(from->object, "walkers");

	for (u32 i = 0; i <= RUNTIME_N; i++) {
		const struct bpf_program *p =
			i < RUNTIME_N ? source_walker(from, i, s->loop)
				      : bpf_object__find_program_by_name(from->object, "finish");
		int fd = bpf_program__fd(p), r;

		if (!bpf_program__autoload(p))
			continue; /* nothing is walked without user stacks, or it comes later */
		r = bpf_map__update_elem(walkers, &i, sizeof(i), &fd, sizeof(fd), BPF_ANY);

		if (r < 0)
			return diag_set(reterr_diag, r, "cannot join the BPF programs: %s",
					strerror(-r));
	}
	return 0;
}

static int load_failed(int r, struct diag *reterr_diag)
{
	if (r == -EPERM)
		return diag_set(
			reterr_diag, r,
			"no permission to load BPF programs: run as root, or with CAP_BPF and "
			"CAP_PERFMON; `culprit doctor` tells more");
	if (r == -ENOMEM)
		return diag_set(reterr_diag, r, "not enough memory for the BPF programs and maps");
	return diag_set(reterr_diag, r,
			"this kernel's verifier refuses the BPF programs (%s): install the "
			"kernel's latest update, or boot a newer kernel",
			strerror(-r));
}

static int map_memory(int fd, size_t bytes, int protection, void *ret, struct diag *reterr_diag)
{
	void *at = mmap(NULL, bytes, protection, MAP_SHARED, fd, 0);

	if (at == MAP_FAILED)
		return diag_set(reterr_diag, -errno, "cannot map a BPF map: %s", strerror(errno));
	*(void **)ret = at;
	return 0;
}

static size_t states_bytes(const struct source *s)
{
	return (size_t)s->n_states * s->state_bytes;
}

static int load_source(struct sampler *s, u32 i, struct diag *reterr_diag)
{
	struct source *from = &s->sources[i];
	int r = i ? source_share_maps(s->sources[0].object, from->object) : 0;

	struct sleepers_options sleepers = {
		.config = *from->config,
		.first = s->sources[0].object,
		.memory = s->memory,
	};

	if (r == 0)
		r = from->row->ops->load(from);
	if (r < 0)
		return load_failed(r, reterr_diag);
	if (from->row->ops->tells_sleepers) {
		r = sleepers_create(&sleepers, &s->sleepers);
		if (r < 0)
			return r;
	}
	from->config = NULL; /* read-only from now on */
	r = map_memory(bpf_object__find_map_fd_by_name(from->object, "scratch"), states_bytes(from),
		       PROT_READ, &from->states, reterr_diag);
	return r < 0 ? r : join_programs(s, from, reterr_diag);
}

static int load_follow(struct sampler *s, struct diag *reterr_diag)
{
	int r;

	s->follow = follow_bpf__open();
	if (!s->follow)
		return -ENOMEM;
	r = source_share_maps(s->sources[0].object, s->follow->obj);
	if (r == 0)
		r = follow_bpf__load(s->follow);
	return r < 0 ? load_failed(r, reterr_diag) : 0;
}

static int open_sources(struct sampler *s, const struct sampler_options *o,
			struct diag *reterr_diag)
{
	if (!o->n_events || o->n_events > SAMPLER_MAX_SOURCES)
		return diag_set(reterr_diag, -EINVAL, "1 to %d events can be sampled at a time",
				SAMPLER_MAX_SOURCES);
	for (u32 i = 0; i < o->n_events; i++) {
		struct source *from = &s->sources[i];
		int r = source_find(&o->events[i], from, reterr_diag);

		if (r == 0 && !o->requests && !o->traces && !from->row->help[0])
			r = diag_set(reterr_diag, -EINVAL, "'%s' is the agent's own",
				     from->row->name);
		if (r == 0)
			r = from->row->ops->open(from);
		if (r < 0)
			return r;
		if (is_whole(from, o))
			source_set_type(from, SAMPLE_TYPE_WALL);
		from->wakers = o->wakers;
		s->n_sources++;
	}
	return 0;
}

/* What there will be, for sizes_choose(). */
static void add_needs(const struct sampler *s, struct sizes_input *in)
{
	for (u32 i = 0; i < s->n_sources; i++) {
		struct bpf_map *map;

		in->hz += hz_of(&s->sources[i]);
		bpf_object__for_each_map(map, s->sources[i].object)
		{
			bool shared = source_shares_map(map);

			if (i && shared)
				continue;
			if (bpf_map__type(map) == BPF_MAP_TYPE_PERCPU_ARRAY || !shared ||
			    strcmp(bpf_map__name(map), "row_caches") == 0 ||
			    strcmp(bpf_map__name(map), "known_walks") == 0)
				in->cpu_bytes += source_map_needs(map);
			else
				in->shared_bytes += source_map_needs(map);
		}
	}
	/* The first chunk of the arena. */
	in->shared_bytes += (u64)LINES_PER_CHUNK * UNWIND_LINE_BYTES;
}

static int choose_sizes(struct sampler *s, const struct sampler_options *o,
			struct diag *reterr_diag)
{
	struct sizes_input in = {
		.cpus = s->n_cpus, .ring_bytes = o->ring_bytes, .limit_bytes = o->limit_bytes};

	add_needs(s, &in);
	return sizes_choose(&in, &s->sizes, reterr_diag);
}

static int start_walkers(struct sampler *s, bool native)
{
	const struct walkers_options o = {.sources = s->sources,
					  .n_sources = s->n_sources,
					  .memory = s->memory,
					  .loop = s->loop};
	int r = walkers_create(&o, &s->walkers);

	if (r == 0 && native)
		walkers_want(s->walkers, RUNTIME_NONE);
	return r;
}

static int load_sources(struct sampler *s, const struct sampler_options *o,
			struct diag *reterr_diag)
{
	struct probe_features features;
	int r = probe_features(&features, reterr_diag);

	if (r < 0)
		return r;
	s->loop = features.bpf_loop;
	s->has_obi = use_obi(s);
	size_process_maps(s, o, &features);
	r = choose_sizes(s, o, reterr_diag);
	size_rings(s);
	s->copies.max = s->sizes.copies;
	for (u32 i = 0; i < s->n_sources && r == 0; i++) {
		configure_source(s, i, o, &features);
		r = load_source(s, i, reterr_diag);
	}
	if (r == 0)
		r = map_memory(shared_fd(s, "control"), sizeof(*s->control), PROT_READ | PROT_WRITE,
			       &s->control, reterr_diag);
	if (r < 0)
		return r;
	if ((o->late_walkers || o->late_runtimes) && o->user_stacks) {
		r = start_walkers(s, o->late_walkers);
		if (r < 0)
			return r;
	}
	sampler_new_epoch(s);
	s->control->context_n = s->has_obi;
	s->control->no_hurry = o->requests;
	s->follow_forks = o->follow_forks;
	return load_follow(s, reterr_diag);
}

int sampler_create(const struct sampler_options *o, const struct sampler_ops *ops, void *arg,
		   struct diag *reterr_diag, struct sampler **ret)
{
	struct sampler *s = calloc(1, sizeof(*s));
	int n_cpus = libbpf_num_possible_cpus();
	int r;

	if (!s)
		return -ENOMEM;
	libbpf_set_print(print_libbpf);
	s->ops = *ops;
	s->memory = o->memory;
	s->arg = arg;
	s->n_cpus = n_cpus > 0 ? (u32)n_cpus : 1;
	r = open_sources(s, o, reterr_diag);
	if (r < 0)
		goto fail;
	r = copies_init(&s->copies, s->n_sources, s->n_cpus);
	if (r == 0)
		r = load_sources(s, o, reterr_diag);
	if (r == 0)
		r = filters_fill(s->sources[0].object, o, reterr_diag);
	if (r < 0)
		goto fail;
	s->ring = ring_buffer__new(shared_fd(s, "ring"), take_record, s, NULL);
	if (!s->ring) {
		r = diag_set(reterr_diag, -errno, "cannot map the ring buffer: %s",
			     strerror(errno));
		goto fail;
	}
	*ret = s;
	return 0;
fail:
	sampler_destroy(s);
	return r;
}

void sampler_destroy(struct sampler *s)
{
	if (!s)
		return;
	sampler_stop(s);
	sleepers_destroy(s->sleepers); /* its thread uses the first source's maps */
	walkers_destroy(s->walkers);   /* likewise those of all sources */
	ring_buffer__free(s->ring);
	if (s->control)
		munmap(s->control, sizeof(*s->control));
	follow_bpf__destroy(s->follow);
	for (u32 i = 0; i < s->n_sources; i++) {
		struct source *from = &s->sources[i];

		if (from->states)
			munmap((void *)from->states, states_bytes(from));
		from->row->ops->destroy(from);
	}
	copies_deinit(&s->copies);
	free(s);
}

int sampler_arena_fd(const struct sampler *s)
{
	return shared_fd(s, "arena");
}

int sampler_processes_fd(const struct sampler *s)
{
	return shared_fd(s, "processes");
}

void sampler_runtime_fds(const struct sampler *s, int *ret_binaries, int *ret_processes,
			 int *ret_locks)
{
	*ret_binaries = shared_fd(s, "runtime_binaries");
	*ret_processes = shared_fd(s, "runtime_processes");
	*ret_locks = shared_fd(s, "runtime_locks");
}

int sampler_contexts_fd(const struct sampler *s)
{
	return shared_fd(s, "context_processes");
}

void sampler_set_contexts(struct sampler *s, u32 n)
{
	s->control->context_n = n + s->has_obi;
}

int sampler_add_pid(struct sampler *s, u32 pid)
{
	return filters_add_pid(s->sources[0].object, pid);
}

int sampler_choose_pid(struct sampler *s, u32 pid, enum filter_pid how)
{
	return filters_choose_pid(s->sources[0].object, pid, how);
}

void sampler_drop_pid(struct sampler *s, u32 pid)
{
	filters_drop_pid(s->sources[0].object, pid);
}

int sampler_arm(struct sampler *s, u32 pid, const struct armed_process *a)
{
	return bpf_map_update_elem(shared_fd(s, "armed"), &pid, a, BPF_ANY) < 0 ? -errno : 0;
}

void sampler_disarm(struct sampler *s, u32 pid)
{
	(void)bpf_map_delete_elem(shared_fd(s, "armed"), &pid);
}

int sampler_armed_thread(struct sampler *s, u32 tid, struct armed_thread *ret)
{
	for (u32 i = 0; i < s->n_sources; i++) {
		int fd = bpf_object__find_map_fd_by_name(s->sources[i].object, "armed_threads");

		if (fd >= 0)
			return bpf_map_lookup_elem(fd, &tid, ret) < 0 ? -errno : 0;
	}
	return -ENOENT;
}

u64 sampler_set_hz(struct sampler *s, u64 hz)
{
	u64 max = source_max_rate();

	hz = max ? MIN(hz, max) : hz;
	if (hz && hz != s->sources[0].about.hz)
		source_set_hz(&s->sources[0], hz);
	return s->sources[0].about.hz;
}

void sampler_follow_pages(struct sampler *s, u64 seed, u64 below)
{
	s->control->resident_seed = seed;
	s->control->resident_below = below;
}

int sampler_alloc(const struct sampler *s, struct alloc_programs *ret)
{
	for (u32 i = 0; i < s->n_sources; i++)
		if (strcmp(s->sources[i].about.event, SAMPLER_ALLOC) == 0)
			return source_alloc_programs(&s->sources[i], ret);
	return -ENOENT;
}

int sampler_trace(const struct sampler *s, u32 type, struct sampler_trace *ret)
{
	for (u32 i = 0; i < s->n_sources; i++) {
		const struct source *from = &s->sources[i];
		int slots = bpf_object__find_map_fd_by_name(from->object, "trace_slots");

		if (slots < 0 || bpf_program__type(from->entry) != (enum bpf_prog_type)type)
			continue;
		*ret = (struct sampler_trace){.slots_fd = slots,
					      .stacks_fd = shared_fd(s, "trace_stacks")};
		return 0;
	}
	return -ENOENT;
}

void sampler_follow_objects(struct sampler *s, u32 keep)
{
	s->control->alloc_keep = keep;
}

void sampler_new_epoch(struct sampler *s)
{
	s->control->epoch = clock_ns(CLOCK_MONOTONIC);
}

static int start_follow(struct sampler *s, struct diag *reterr_diag)
{
	struct bpf_program *const programs[] = {
		s->follow->progs.follow_exec,
		s->follow->progs.follow_fork,
		s->follow->progs.follow_exit,
	};
	size_t n = s->follow_forks ? ARRAY_SIZE(programs) : 1;

	for (size_t i = 0; i < n; i++) {
		s->follow_links[i] = bpf_program__attach(programs[i]);
		if (!s->follow_links[i])
			return diag_set(reterr_diag, -errno, "cannot follow processes: %s",
					strerror(errno));
	}
	return 0;
}

int sampler_start(struct sampler *s, struct diag *reterr_diag)
{
	int r = start_follow(s, reterr_diag);

	s->started_ns = clock_ns(CLOCK_MONOTONIC);
	for (u32 i = 0; i < s->n_sources && r == 0; i++) {
		r = s->sources[i].row->ops->start(&s->sources[i], reterr_diag);
		s->sources[i].is_started = r == 0;
	}
	s->control->began_ns = clock_ns(CLOCK_MONOTONIC);
	return r;
}

void sampler_follow_cpus(struct sampler *s, const u32 *cpus, u32 n)
{
	sources_follow_cpus(s->sources, s->n_sources, cpus, n);
}

void sampler_pause(struct sampler *s, bool pause)
{
	/* What threads do meanwhile is not counted. */
	if (s->started_ns)
		s->control->began_ns = pause ? 0 : clock_ns(CLOCK_MONOTONIC);
	for (u32 i = 0; i < s->n_sources; i++)
		source_pause(&s->sources[i], pause);
}

/* The programs write a byte for each record, so that the ring is emptied before it is full. */
static void tell_unended(struct sampler *s, struct source *from)
{
	_cleanup_close_ int fd = from->row->ops->tell(from);
	char written[UNENDED_AT_ONCE];
	ssize_t n = fd;

	while (n >= 0 || errno == EAGAIN || errno == EINTR) {
		(void)sampler_drain(s);
		n = read(fd, written, sizeof(written));
		if (n == 0)
			return;
	}
	log_warn_rarely("waits that have not ended are missing: %s",
			strerror(fd < 0 ? -fd : errno));
}

void sampler_tell_unended(struct sampler *s)
{
	for (u32 i = 0; i < s->n_sources; i++)
		if (s->sources[i].is_started && s->sources[i].row->ops->tell)
			tell_unended(s, &s->sources[i]);
}

void sampler_stop(struct sampler *s)
{
	if (s->started_ns && !s->stopped_ns) {
		s->stopped_ns = clock_ns(CLOCK_MONOTONIC);
		s->control->ended_ns = s->stopped_ns;
		for (u32 i = 0; i < s->n_sources; i++)
			if (s->sources[i].row->ops->tell)
				tell_unended(s, &s->sources[i]);
	}
	for (u32 i = 0; i < s->n_sources; i++) {
		s->sources[i].is_started = false;
		source_stop(&s->sources[i]);
	}
	for (size_t i = 0; i < ARRAY_SIZE(s->follow_links); i++) {
		bpf_link__destroy(s->follow_links[i]);
		s->follow_links[i] = NULL;
	}
}

int sampler_walk_sleeper(struct sampler *s, const struct record_deferred *d,
			 const struct sleeper_walk **ret)
{
	return s->sleepers ? sleepers_walk(s->sleepers, d, ret) : -ENOTSUP;
}

void sampler_want_walker(struct sampler *s, u32 runtime)
{
	if (s->sleepers)
		sleepers_want(s->sleepers, runtime);
	if (s->walkers)
		walkers_want(s->walkers, runtime);
}

u32 sampler_take_walkers(struct sampler *s)
{
	return (s->sleepers ? sleepers_take(s->sleepers) : 0) +
	       (s->walkers ? walkers_take(s->walkers) : 0);
}

int sampler_walkers_fd(const struct sampler *s)
{
	int fd = s->walkers ? walkers_fd(s->walkers) : -1;

	return fd < 0 && s->sleepers ? sleepers_fd(s->sleepers) : fd;
}

int sampler_fd(const struct sampler *s)
{
	return ring_buffer__epoll_fd(s->ring);
}

int sampler_drain(struct sampler *s)
{
	return ring_buffer__consume(s->ring);
}

/* The sum over all CPUs, since the programs were loaded. */
static u64 read_counter(const struct source *s, enum counter counter)
{
	u64 sum = 0;

	for (u32 i = 0; i < s->n_states; i++)
		sum += ((const u64 *)(s->states + (size_t)i * s->state_bytes))[counter];
	return sum;
}

u64 sampler_counter(const struct sampler *s, u32 source, enum counter counter)
{
	return read_counter(&s->sources[source], counter) -
	       s->before.sources[source].counters[counter];
}

u64 sampler_limit(const struct sampler *s, u32 source)
{
	const struct source *from = &s->sources[source];
	u64 most = 0;

	for (u32 i = 0; i < from->n_states; i++) {
		const u64 *limit =
			(const u64 *)(from->states + (size_t)i * from->state_bytes) + COUNTER_N;

		if (limit[1] == s->control->epoch)
			most = MAX(most, limit[0]);
	}
	return most;
}

static void read_source(const struct source *s, struct sampler_source_stats *ret)
{
	struct bpf_prog_info info = {};
	u32 n = sizeof(info);

	for (u32 i = 0; i < COUNTER_N; i++)
		ret->counters[i] = read_counter(s, (enum counter)i);
	/* The time of the entry program includes the programs that it jumps to. */
	if (bpf_obj_get_info_by_fd(bpf_program__fd(s->entry), &info, &n) == 0) {
		ret->bpf_ns = info.run_time_ns;
		ret->bpf_runs = info.run_cnt;
	}
}

static void read_stats(const struct sampler *s, struct sampler_stats *ret)
{
	*ret = (struct sampler_stats){.cpus = s->n_cpus, .n_sources = s->n_sources};
	ret->mapped_bytes = 2 * s->sizes.ring_bytes;
	ret->fixed_bytes = s->sizes.fixed_bytes;
	ret->copies_lost = s->copies.n_given_up;
	for (u32 i = 0; i < s->n_sources; i++) {
		struct bpf_map *map;

		read_source(&s->sources[i], &ret->sources[i]);
		ret->sources[i].limit = sampler_limit(s, i);
		ret->mapped_bytes += states_bytes(&s->sources[i]);
		bpf_object__for_each_map(map, s->sources[i].object)
		{
			if (i == 0 || !source_shares_map(map))
				ret->map_bytes += source_map_bytes(map);
		}
	}
	if (s->started_ns)
		ret->elapsed_ns =
			(s->stopped_ns ? s->stopped_ns : clock_ns(CLOCK_MONOTONIC)) - s->started_ns;
}

void sampler_stats(struct sampler *s, struct sampler_stats *ret)
{
	read_stats(s, ret);
	for (u32 i = 0; i < s->n_sources; i++) {
		struct sampler_source_stats *at = &ret->sources[i], *before = &s->before.sources[i];

		for (u32 c = 0; c < COUNTER_N; c++) {
			at->counters[c] -= before->counters[c];
			ret->all.counters[c] += at->counters[c];
		}
		at->bpf_ns -= before->bpf_ns;
		at->bpf_runs -= before->bpf_runs;
		ret->all.bpf_ns += at->bpf_ns;
		ret->all.bpf_runs += at->bpf_runs;
	}
}

void sampler_count_from_now(struct sampler *s)
{
	read_stats(s, &s->before);
	s->started_ns = clock_ns(CLOCK_MONOTONIC);
}
