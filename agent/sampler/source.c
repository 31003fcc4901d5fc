/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/sampler/source.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "abi/runtime.h"
#include "agent/probe/probe.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "base/vocab.h"

/* Declares a source with several rows several times, which C allows. */
#define SOURCE(id, name, program, ...) extern const struct source_ops source_##program;
#include "abi/tbl/source.tbl"
#undef SOURCE

static const struct source_row rows[] = {
#define SOURCE(id, name, program, type, value, filter, perf_type, perf_config, help)               \
	{name,                                                                                     \
	 &source_##program,                                                                        \
	 SAMPLE_TYPE_##type,                                                                       \
	 SOURCE_VALUE_##value,                                                                     \
	 SOURCE_FILTER_##filter,                                                                   \
	 perf_type,                                                                                \
	 perf_config,                                                                              \
	 help},
#include "abi/tbl/source.tbl"
#undef SOURCE
};

const char *sampler_event_at(size_t i, const char **ret_help)
{
	for (size_t k = 0; k <= i && i < ARRAY_SIZE(rows); k++)
		i += !rows[k].help[0];
	if (i >= ARRAY_SIZE(rows))
		return NULL;
	*ret_help = rows[i].help;
	return rows[i].name;
}

/* "sched:sched_switch" → "sched_sched_switch": lists of profile types are separated by colons. */
static void name_type(struct sampler_source *a)
{
	snprintf(a->type_name, sizeof(a->type_name), "%s", a->event);
	for (char *c = a->type_name; *c; c++)
		if (*c == ':' || *c == '-')
			*c = '_';
}

/* The requested rate, or the default of the event. */
static u64 rate_of(const struct sampler_event *e, const struct source_row *row)
{
	bool bursts = row->value == SOURCE_VALUE_PERIOD && row->perf_type == PERF_TYPE_SOFTWARE;

	if (e->hz)
		return e->hz;
	return bursts ? SAMPLER_EVENTS_HZ : e->clock_hz;
}

/* Sets whether it samples at a rate, after a number of events, or each event. */
static int set_rate(const struct sampler_event *e, struct source *s, struct diag *reterr_diag)
{
	struct sampler_source *a = &s->about;

	switch (s->row->value) {
	case SOURCE_VALUE_TIME:
		if (e->period)
			return diag_set(reterr_diag, -EINVAL,
					"'%s' is sampled by time; give a rate (-F) instead of a "
					"count",
					e->name);
		s->has_exact_period = e->clock_ns != 0;
		a->hz = e->clock_ns ? MAX(1000000000 / e->clock_ns, 1ULL) : rate_of(e, s->row);
		a->period = e->clock_ns ? e->clock_ns
					: vocab_per_second(vocab_sample_type(s->row->type)->unit) /
						  a->hz;
		return 0;
	case SOURCE_VALUE_PERIOD:
		a->period = e->period;
		a->hz = e->period ? 0 : rate_of(e, s->row);
		return 0;
	case SOURCE_VALUE_SHARE:
		a->period = e->period;
		return 0;
	case SOURCE_VALUE_DURATION:
		if (e->period)
			return diag_set(reterr_diag, -EINVAL, "'%s' has no count: leave -c out",
					e->name);
		return 0;
	case SOURCE_VALUE_STATE:
		if (e->period)
			return diag_set(reterr_diag, -EINVAL,
					"'%s' is read, not sampled: leave -c out", e->name);
		return 0;
	default:
		if (e->period > 1)
			return diag_set(reterr_diag, -EINVAL,
					"each '%s' is a sample; -c cannot be more than 1", e->name);
		a->period = 1;
		return 0;
	}
}

/* "rwbs/bytes": fields of the event that become attributes of its samples. */
static int add_fields(struct source *s, const char *names, struct diag *reterr_diag)
{
	char name[64];
	int r = 0;

	if (*names && !s->row->ops->field)
		return diag_set(reterr_diag, -EINVAL, "'%s' has no fields; tracepoints have some",
				s->about.event);
	while (*names++ == '/' && r == 0) {
		size_t n = strcspn(names, "/");

		if (s->n_fields == SAMPLER_MAX_FIELDS)
			return diag_set(reterr_diag, -E2BIG, "at most %d fields of an event",
					SAMPLER_MAX_FIELDS);
		snprintf(name, sizeof(name), "%.*s", (int)n, names);
		r = s->row->ops->field(s, name, &s->fields[s->n_fields], reterr_diag);
		s->n_fields++;
		names += n;
	}
	return r;
}

void source_set_type(struct source *s, enum sample_type type)
{
	s->about.type = type;
	snprintf(s->about.type_name, sizeof(s->about.type_name), "%s",
		 vocab_sample_type(type)->name);
}

int source_find(const struct sampler_event *e, struct source *ret, struct diag *reterr_diag)
{
	size_t n_name = strcspn(e->name, "/");

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct source s = {.row = &rows[i], .perf_config = rows[i].perf_config};
		int r;

		snprintf(s.about.event, sizeof(s.about.event), "%.*s", (int)n_name, e->name);
		if (rows[i].ops->parse)
			r = rows[i].ops->parse(s.about.event, &s, reterr_diag);
		else
			r = strcmp(s.about.event, s.row->name) == 0 ? 0 : -ENOENT;
		if (r == -ENOENT)
			continue;
		if (r < 0)
			return r;
		source_set_type(&s, rows[i].type);
		if (rows[i].type == SAMPLE_TYPE_RAW_EVENTS)
			name_type(&s.about);
		r = set_rate(e, &s, reterr_diag);
		if (r == 0)
			r = add_fields(&s, e->name + n_name, reterr_diag);
		if (r == 0)
			*ret = s;
		return r;
	}
	return diag_set(reterr_diag, -EINVAL,
			"no event '%s'; there are cpu-clock, page-faults, context-switches, "
			"cycles, instructions, cache-misses, branch-misses, rHEX, tracepoints as "
			"CATEGORY:NAME and more: see `culprit record --help`",
			e->name);
}

int source_attach(struct source *s, int cpu, int fd, struct bpf_link *link)
{
	struct source_event e = {cpu, fd, link};

	return vec_push(&s->events, e);
}

u64 sampler_pac_mask(void)
{
#ifdef __aarch64__
	/* XPACLRI is a hint: a processor without it leaves x30 unchanged. */
	u64 stripped = (1ULL << 55) - 1;
	register u64 x30 asm("x30") = stripped;

	asm volatile("hint #7" : "+r"(x30));
	return (x30 ^ stripped) | 0xffULL << 56;
#else
	return 0;
#endif
}

struct bpf_program *source_walker(const struct source *s, u32 runtime, bool loop)
{
	static const char *const names[RUNTIME_N][2] = {
		[RUNTIME_NONE] = {"step_native", "walk_native"},
#define RUNTIME(id, name, ...) [RUNTIME_##id] = {"step_" #name, "walk_" #name},
#include "abi/tbl/runtime.tbl"
#undef RUNTIME
	};

	return bpf_object__find_program_by_name(s->object, names[runtime][loop]);
}

void source_choose_programs(const struct source *s, bool native, bool runtimes, bool loop)
{
	struct bpf_program *p;

	for (u32 i = 0; i < RUNTIME_N; i++) {
		bool now = i == RUNTIME_NONE ? native : runtimes;

		bpf_program__set_autoload(source_walker(s, i, true), now && loop);
		bpf_program__set_autoload(source_walker(s, i, false), now && !loop);
	}
	if (source_samples(s))
		return;
	bpf_object__for_each_program(p, s->object) bpf_program__set_autoload(p, false);
}

bool source_is_kprobe(const struct source *s)
{
	return bpf_program__type(s->entry) == BPF_PROG_TYPE_KPROBE;
}

/* The main program runs when a thread goes on; the name of that function differs by kernel. */
static struct bpf_link *attach_follower(const struct source *s, struct bpf_program *program)
{
	char name[64];

	if (program != s->entry || !source_is_kprobe(s))
		return bpf_program__attach(program);
	errno = ENOENT;
	return probe_resumed_function(name, sizeof(name)) < 0
		       ? NULL
		       : bpf_program__attach_kprobe(program, false, name);
}

int source_follow_scheduler(struct source *s, const char *const *names, size_t n,
			    struct diag *reterr_diag)
{
	for (size_t i = 0; i < n; i++) {
		struct bpf_program *p = bpf_object__find_program_by_name(s->object, names[i]);
		struct bpf_link *link = attach_follower(s, p);
		int r;

		if (!link)
			return diag_set(reterr_diag, -errno,
					"cannot follow the scheduler (%s): %s; waits need kprobes "
					"(CONFIG_KPROBES) or a newer kernel",
					bpf_program__section_name(p), strerror(errno));
		r = source_attach(s, -1, -1, link);
		if (r < 0) {
			bpf_link__destroy(link);
			return r;
		}
	}
	return 0;
}

#define CODE_DISTANCE (2ULL << 30)

/* Without these addresses, what a machine sends to itself seems to come by an interrupt. */
void source_find_code(struct source *s)
{
	struct probe_function f[] = {
		{.name = "__irqentry_text_start"},
		{.name = "__irqentry_text_end"},
		{.name = "process_backlog"},
		{.name = "__local_bh_enable_ip"},
		{.name = "_stext"},
		{.name = "_etext"},
	};
	int r = probe_functions(f, ARRAY_SIZE(f));

	if (r < 0)
		log_debug("kernel symbols: %s", strerror(-r));
	s->code[CODE_INTERRUPT][0] = f[0].start;
	s->code[CODE_INTERRUPT][1] = f[1].start;
	/* Modules and the code of BPF programs are within 2 GiB of the kernel's own. */
	if (f[4].start && f[5].start) {
		s->code[CODE_ANY][0] = f[4].start - MIN(f[4].start, CODE_DISTANCE);
		s->code[CODE_ANY][1] = f[5].start + MIN(~0ULL - f[5].start, CODE_DISTANCE);
	}
	for (u32 i = 0; i < 2; i++) {
		s->code[CODE_BACKLOG + i][0] = f[2 + i].start;
		s->code[CODE_BACKLOG + i][1] = f[2 + i].end;
	}
}

void source_set_hz(struct source *s, u64 hz)
{
	u64 period = 1000000000 / hz;

	s->about.hz = hz;
	s->about.period = period;
	/* The kernel has made a period of the rate when it opened the clock. */
	vec_foreach (&s->events, e)
		if (e->fd >= 0)
			(void)ioctl(e->fd, PERF_EVENT_IOC_PERIOD, &period);
}

void source_pause(struct source *s, bool pause)
{
	struct diag diag = {};

	if (s->row->ops->never_pauses)
		return;
	s->is_paused = pause;
	vec_foreach (&s->events, e)
		if (e->fd >= 0)
			(void)ioctl(e->fd, pause ? PERF_EVENT_IOC_DISABLE : PERF_EVENT_IOC_ENABLE,
				    0);
	/* A source without a perf event cannot be disabled; it is detached, and attached again
	 * later. */
	if (pause && s->events.n && s->events.data[0].fd < 0)
		source_stop(s);
	else if (!pause && s->is_started && !s->events.n && s->row->ops->start(s, &diag) < 0)
		log_warn("'%s' is not sampled any more: %s", s->about.event, diag.text);
}

void source_stop(struct source *s)
{
	vec_foreach (&s->events, e)
		bpf_link__destroy(e->link); /* closes the event */
	vec_deinit(&s->events);
}

/* Returns a flag for each possible CPU: some source has an event on it. NULL: out of memory. */
static u8 *sampled_cpus(const struct source *sources, u32 n_sources, int n_cpus)
{
	u8 *sampled = calloc((size_t)MAX(n_cpus, 1), 1);

	for (u32 i = 0; sampled && i < n_sources; i++)
		for (size_t e = 0; e < sources[i].events.n; e++) {
			int cpu = sources[i].events.data[e].cpu;

			if (cpu >= 0 && cpu < n_cpus)
				sampled[cpu] = 1;
		}
	return sampled;
}

void sources_follow_cpus(struct source *sources, u32 n_sources, const u32 *cpus, u32 n)
{
	int n_cpus = libbpf_num_possible_cpus();
	_cleanup_free_ u8 *before = sampled_cpus(sources, n_sources, n_cpus), *after = NULL;

	for (u32 i = 0; i < n_sources; i++)
		if (sources[i].is_started && sources[i].row->ops->follow_cpus)
			sources[i].row->ops->follow_cpus(&sources[i], cpus, n);
	after = sampled_cpus(sources, n_sources, n_cpus);
	for (int cpu = 0; before && after && cpu < n_cpus; cpu++) {
		if (before[cpu] && !after[cpu])
			log_info("CPU %d went offline; samples of it end", cpu);
		if (!before[cpu] && after[cpu])
			log_info("CPU %d is online; sampling it", cpu);
	}
}

bool source_shares_map(const struct bpf_map *map)
{
	switch (bpf_map__type(map)) {
	case BPF_MAP_TYPE_PROG_ARRAY:
	case BPF_MAP_TYPE_PERCPU_ARRAY:
		return false;
	default:
		return !bpf_map__is_internal(map) && strcmp(bpf_map__name(map), "scratch") != 0;
	}
}

int source_share_maps(const struct bpf_object *first, struct bpf_object *object)
{
	struct bpf_map *map;

	bpf_object__for_each_map(map, object)
	{
		/* A map that the first source does not have belongs to this one alone. */
		const struct bpf_map *shared =
			source_shares_map(map)
				? bpf_object__find_map_by_name(first, bpf_map__name(map))
				: NULL;
		int r = shared ? bpf_map__reuse_fd(map, bpf_map__fd(shared)) : 0;

		if (r < 0)
			return r;
	}
	return 0;
}

static u64 round8(u64 n)
{
	return (n + 7) & ~7ULL;
}

u64 source_map_needs(const struct bpf_map *map)
{
	u64 n = bpf_map__max_entries(map), value = round8(bpf_map__value_size(map));

	switch (bpf_map__type(map)) {
	case BPF_MAP_TYPE_HASH:
		/* An entry's head has 48 bytes, a bucket 16; there are up to twice as many. */
		if (bpf_map__map_flags(map) & BPF_F_NO_PREALLOC)
			return n * 32;
		return n * (48 + round8(bpf_map__key_size(map)) + value + 32);
	case BPF_MAP_TYPE_RINGBUF:
		return 0;
	default:
		return n * value;
	}
}

u64 source_map_bytes(const struct bpf_map *map)
{
	_cleanup_fclose_ FILE *f = NULL;
	unsigned long long bytes = 0;
	char path[64], line[128];

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", bpf_map__fd(map));
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "memlock: %llu", &bytes) == 1)
			break;
	return bytes;
}
