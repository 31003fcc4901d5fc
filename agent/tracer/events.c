/* SPDX-License-Identifier: Apache-2.0 */
/* Perf events and timers of points: hardware, software, profile, watchpoint, interval. */
#include <dirent.h>
#include <errno.h>
#include <linux/hw_breakpoint.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/tracer/attach.h"
#include "base/closest.h"
#include "base/str.h"
#include "proc/proc.h"

#define MIN_PROFILE_NS 10000

static const struct event {
	const char *provider, *name, *alias;
	u32 type;
	u64 config, period;
} events[] = {
	{"hardware", "cpu-cycles", "cycles", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES, 1000000},
	{"hardware", "instructions", "", PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS, 1000000},
	{"hardware", "cache-references", "", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CACHE_REFERENCES,
	 1000000},
	{"hardware", "cache-misses", "", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CACHE_MISSES, 1000000},
	{"hardware", "branch-instructions", "branches", PERF_TYPE_HARDWARE,
	 PERF_COUNT_HW_BRANCH_INSTRUCTIONS, 100000},
	{"hardware", "branch-misses", "", PERF_TYPE_HARDWARE, PERF_COUNT_HW_BRANCH_MISSES, 100000},
	{"hardware", "bus-cycles", "", PERF_TYPE_HARDWARE, PERF_COUNT_HW_BUS_CYCLES, 100000},
	{"hardware", "frontend-stalls", "", PERF_TYPE_HARDWARE,
	 PERF_COUNT_HW_STALLED_CYCLES_FRONTEND, 1000000},
	{"hardware", "backend-stalls", "", PERF_TYPE_HARDWARE, PERF_COUNT_HW_STALLED_CYCLES_BACKEND,
	 1000000},
	{"hardware", "ref-cycles", "", PERF_TYPE_HARDWARE, PERF_COUNT_HW_REF_CPU_CYCLES, 1000000},
	{"software", "cpu-clock", "cpu", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_CLOCK, 1000000},
	{"software", "task-clock", "", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_TASK_CLOCK, 1000000},
	{"software", "page-faults", "faults", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS, 100},
	{"software", "context-switches", "cs", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CONTEXT_SWITCHES,
	 1000},
	{"software", "cpu-migrations", "", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_MIGRATIONS, 1},
	{"software", "minor-faults", "", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS_MIN, 100},
	{"software", "major-faults", "", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS_MAJ, 1},
	{"software", "alignment-faults", "", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_ALIGNMENT_FAULTS, 1},
	{"software", "emulation-faults", "", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_EMULATION_FAULTS, 1},
	{"software", "dummy", "", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_DUMMY, 1},
	{"software", "bpf-output", "", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_BPF_OUTPUT, 1},
};

int tracer_events_each(int (*fn)(void *arg, const char *provider, const char *name), void *arg)
{
	int r = 0;

	for (size_t i = 0; i < ARRAY_SIZE(events) && r == 0; i++) {
		r = fn(arg, events[i].provider, events[i].name);
		if (r == 0 && events[i].alias[0])
			r = fn(arg, events[i].provider, events[i].alias);
	}
	return r;
}

static int parse_count(const char *text, u64 *ret, struct diag *d)
{
	u64 n = 0;

	if (trace_number(text, &n) < 0 || n == 0)
		return diag_set(d, -EINVAL, "'%s' is not a number above 0", text);
	*ret = n;
	return 0;
}

static int named_event(const struct trace_point *p, struct perf_event_attr *ret, struct diag *d)
{
	const char *names[ARRAY_SIZE(events)];
	_cleanup_str_ struct str like = {};
	size_t n = 0;
	u64 period;
	int r;

	for (size_t i = 0; i < ARRAY_SIZE(events); i++) {
		const struct event *e = &events[i];

		if (strcmp(e->provider, p->provider) != 0)
			continue;
		names[n++] = e->name;
		if (strcmp(e->name, p->parts[0]) != 0 && strcmp(e->alias, p->parts[0]) != 0)
			continue;
		period = e->period;
		r = p->n_parts > 1 && p->parts[1][0] ? parse_count(p->parts[1], &period, d) : 0;
		*ret = (struct perf_event_attr){
			.type = e->type, .config = e->config, .sample_period = period};
		return r;
	}
	(void)closest_append(&like, p->parts[0], names, n, 150);
	return diag_set(d, -ENOENT, "no %s event '%s'; there are %s", p->provider, p->parts[0],
			str_get(&like));
}

/* Nanoseconds of a unit; 0: it is none, or hz. */
static u64 unit_ns(const char *unit)
{
	static const struct {
		const char *unit;
		u64 ns;
	} units[] = {{"s", 1000000000}, {"ms", 1000000}, {"us", 1000}, {"ns", 1}};

	for (size_t i = 0; i < ARRAY_SIZE(units); i++)
		if (strcmp(unit, units[i].unit) == 0)
			return units[i].ns;
	return 0;
}

/* "1s", "100ms" */
static int parse_duration(const char *text, u64 *ret, struct diag *d)
{
	size_t digits = strspn(text, "0123456789");
	u64 unit = unit_ns(text + digits), n;
	char number[24];

	snprintf(number, sizeof(number), "%.*s", (int)MIN(digits, sizeof(number) - 1), text);
	if (strcmp(text + digits, "hz") == 0 && str_to_u64(number, 10, &n) == 0 && n)
		*ret = 1000000000 / n;
	else if (unit && str_to_u64(number, 10, &n) == 0 && n && n < ~0ULL / unit)
		*ret = n * unit;
	else
		return diag_set(d, -EINVAL, "'%s' is not a time such as 1s or 100ms", text);
	return 0;
}

int tracer_period_ns(const struct trace_point *p, u64 *ret, struct diag *d)
{
	u64 n = 0, unit;
	int r;

	if (p->n_parts == 1)
		return parse_duration(p->parts[0], ret, d);
	if (p->n_parts != 2)
		return diag_set(d, -EINVAL, "%s takes a unit and a number, as %s:s:1", p->provider,
				p->provider);
	r = parse_count(p->parts[1], &n, d);
	if (r < 0)
		return r;
	unit = unit_ns(p->parts[0]);
	if (strcmp(p->parts[0], "hz") == 0 && n && n <= 1000000000)
		*ret = 1000000000 / n;
	else if (unit && n < ~0ULL / unit)
		*ret = n * unit;
	else
		return diag_set(d, -EINVAL, "'%s' is not a unit of %s: hz, s, ms, us", p->parts[0],
				p->provider);
	return 0;
}

static int profile_event(const struct trace_point *p, struct perf_event_attr *ret, struct diag *d)
{
	struct perf_event_attr attr = {.type = PERF_TYPE_SOFTWARE,
				       .config = PERF_COUNT_SW_CPU_CLOCK};
	u64 ns = 0, hz = 0;
	int r = tracer_period_ns(p, &ns, d);

	if (r < 0)
		return r;
	if (ns < MIN_PROFILE_NS)
		return diag_set(d, -EINVAL,
				"a period below 10 us is refused: it takes all of a CPU");
	if (p->n_parts == 2 && strcmp(p->parts[0], "hz") == 0) {
		r = parse_count(p->parts[1], &hz, d);
		attr.freq = 1;
		attr.sample_freq = hz;
	} else {
		attr.sample_period = ns;
	}
	if (r == 0)
		*ret = attr;
	return r;
}

/* watchpoint:ADDRESS:BYTES:MODE */
static int watchpoint_event(const struct tracer_machine *m, const struct trace_point *p,
			    struct perf_event_attr *ret, struct diag *d)
{
	u64 address, bytes;
	u32 mode = 0;

	if (p->n_parts != 3 || str_to_u64(p->parts[0], 0, &address) < 0 ||
	    str_to_u64(p->parts[1], 0, &bytes) < 0)
		return diag_set(d, -EINVAL,
				"a watchpoint is watchpoint:ADDRESS:BYTES:MODE, as in "
				"watchpoint:0x5581f0a0:8:w");
	if (bytes != 1 && bytes != 2 && bytes != 4 && bytes != 8)
		return diag_set(d, -EINVAL, "a watchpoint watches 1, 2, 4 or 8 bytes");
	for (const char *c = p->parts[2]; *c; c++) {
		u32 bit = *c == 'r'   ? HW_BREAKPOINT_R
			  : *c == 'w' ? HW_BREAKPOINT_W
			  : *c == 'x' ? HW_BREAKPOINT_X
				      : 0;

		if (!bit || mode & bit)
			return diag_set(d, -EINVAL,
					"the mode of a watchpoint is of r, w, x, each "
					"once");
		mode |= bit;
	}
	/* A hardware breakpoint that reads also writes: x86 has no other. */
	if (mode == HW_BREAKPOINT_R || (mode & HW_BREAKPOINT_X && mode != HW_BREAKPOINT_X))
		return diag_set(d, -EINVAL, "the mode of a watchpoint is w, rw or x");
	if (!m->pid && address < 1ULL << 63)
		return diag_set(d, -EINVAL, "a watchpoint needs the process: -p PID or -c COMMAND");
	*ret = (struct perf_event_attr){.type = PERF_TYPE_BREAKPOINT,
					.bp_addr = address,
					.bp_len = mode == HW_BREAKPOINT_X ? sizeof(long) : bytes,
					.bp_type = mode,
					.sample_period = 1};
	return 0;
}

/* ---- opening ---- */

struct opening {
	struct perf_event_attr *attr;
	int *fds;
	u32 n, max;
	int pid;
	int error;
};

static int open_on(struct opening *o, int pid, int cpu)
{
	long fd;

	if (o->n == o->max)
		return -E2BIG;
	o->attr->size = sizeof(*o->attr);
	o->attr->disabled = 1;
	fd = syscall(SYS_perf_event_open, o->attr, pid, cpu, -1, PERF_FLAG_FD_CLOEXEC);
	if (fd < 0)
		return -errno;
	o->fds[o->n++] = (int)fd;
	return 0;
}

static int open_on_cpu(void *arg, u32 cpu)
{
	struct opening *o = arg;

	return open_on(o, o->pid, (int)cpu);
}

/* All threads of the process, and those that they start. */
static int open_on_threads(struct opening *o)
{
	char path[64];
	struct dirent *e;
	DIR *tasks;
	u64 tid;
	int r = 0;

	snprintf(path, sizeof(path), "/proc/%d/task", o->pid);
	tasks = opendir(path);
	if (!tasks)
		return -ESRCH;
	o->attr->inherit = 1;
	while (r == 0 && (e = readdir(tasks)))
		if (str_to_u64(e->d_name, 10, &tid) == 0) {
			r = open_on(o, (int)tid, -1);
			if (r == -ESRCH) /* it has ended */
				r = 0;
		}
	closedir(tasks);
	return r < 0 ? r : o->n ? 0 : -ESRCH;
}

int tracer_open_events(const struct tracer_machine *m, const struct trace_point *p, int *ret_fds,
		       u32 max, u32 *ret_n, struct diag *d)
{
	struct perf_event_attr attr = {};
	struct opening o = {
		.attr = &attr, .fds = ret_fds, .max = max, .pid = m->pid ? (int)m->pid : -1};
	int r;

	if (strcmp(p->provider, "profile") == 0)
		r = profile_event(p, &attr, d);
	else if (strcmp(p->provider, "watchpoint") == 0)
		r = watchpoint_event(m, p, &attr, d);
	else
		r = named_event(p, &attr, d);
	if (r < 0)
		return r;
	r = m->pid ? open_on_threads(&o) : proc_cpus_online(open_on_cpu, &o);
	*ret_n = o.n;
	if (r == -ENOENT || r == -EOPNOTSUPP)
		return diag_set(d, -ENOTSUP, "this machine has no event '%s'", p->text);
	return r < 0 ? diag_set(d, r, "cannot open '%s': %s", p->text, strerror(-r)) : 0;
}

static int unknown_event(const char *name, struct diag *d)
{
	const char *names[2 * ARRAY_SIZE(events)];
	_cleanup_str_ struct str like = {};
	size_t n = 0;

	for (size_t i = 0; i < ARRAY_SIZE(events); i++) {
		names[n++] = events[i].name;
		if (events[i].alias[0])
			names[n++] = events[i].alias;
	}
	(void)closest_append(&like, name, names, n, 100);
	return diag_set(d, -ENOENT,
			"no event '%s'; there are %s, and tracepoints, such as "
			"sched:sched_switch",
			name, str_get(&like));
}

int tracer_event_attr(const char *name, struct perf_event_attr *ret, struct diag *reterr_diag)
{
	const char *colon = strchr(name, ':');
	char category[128];
	u64 id = 0;
	int r;

	for (size_t i = 0; i < ARRAY_SIZE(events); i++) {
		const struct event *e = &events[i];
		const char *bare = name;

		if (colon && str_starts(name, e->provider) && colon == name + strlen(e->provider))
			bare = colon + 1;
		if (strcmp(e->name, bare) != 0 && (!*bare || strcmp(e->alias, bare) != 0))
			continue;
		*ret = (struct perf_event_attr){.type = e->type, .config = e->config};
		return 0;
	}
	if (str_starts(name, "tracepoint:")) {
		name = colon + 1;
		colon = strchr(name, ':');
	}
	if (!colon || (size_t)(colon - name) >= sizeof(category))
		return unknown_event(name, reterr_diag);
	snprintf(category, sizeof(category), "%.*s", (int)(colon - name), name);
	r = tracer_event_id(category, colon + 1, &id, reterr_diag);
	if (r == 0)
		*ret = (struct perf_event_attr){.type = PERF_TYPE_TRACEPOINT, .config = id};
	return r;
}
