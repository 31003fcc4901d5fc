/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/tracer/attach.h"

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/probe/probe.h"
#include "agent/tracer/cost.h"
#include "base/cleanup.h"
#include "base/io.h"

#define MAX_EVENTS 4096 /* of one probe: CPUs, or threads of a process */

/* What all functions here work on. */
struct attaching {
	struct tracer_machine *m;
	struct tracer_loaded *l;
	struct tracer_attached *a;
	/* What is being attached. */
	int program;
	u32 probe, n_probes, n_stepped;
};

static const struct trace_compiled *probe_of(const struct attaching *t, u32 probe)
{
	return &t->l->program->probes.data[probe];
}

static bool has_provider(const struct trace_compiled *c, const char *name)
{
	return strcmp(c->point->provider, name) == 0;
}

static bool is_return(const struct trace_compiled *c)
{
	return has_provider(c, "kretprobe") ||
	       (has_provider(c, "uretprobe") && !c->point->is_return_insn);
}

static int keep(struct attaching *t, int fd)
{
	int r = vec_push(&t->a->places, (struct tracer_place_of){fd, t->program, t->probe,
								 t->n_probes, t->n_stepped});

	if (r < 0)
		close(fd);
	t->n_probes = t->n_stepped = 0;
	return r;
}

/* Takes the event, also on failure. */
static int attach_event(struct attaching *t, int event, int program, u32 probe)
{
	LIBBPF_OPTS(bpf_link_create_opts, o, .perf_event.bpf_cookie = probe);
	int link, r = keep(t, event);

	if (r < 0)
		return r;
	if (t->m->target.has_cookie) {
		link = bpf_link_create(program, event, BPF_PERF_EVENT, &o);
		if (link < 0)
			return -errno;
		r = keep(t, link);
	} else {
		r = ioctl(event, PERF_EVENT_IOC_SET_BPF, program) < 0 ? -errno : 0;
	}
	if (r < 0)
		return r;
	return ioctl(event, PERF_EVENT_IOC_ENABLE, 0) < 0 ? -errno : 0;
}

static int load(struct attaching *t, u32 probe, u32 attach_type, u32 btf_id, int btf_fd,
		struct diag *d)
{
	const struct trace_compiled *c = probe_of(t, probe);
	struct tracer_loaded_program want = {.code = c->code,
					     .type = c->type,
					     .attach_type = attach_type,
					     .btf_id = btf_id,
					     .btf_fd = btf_fd};

	t->program = tracer_load(t->l, want, c->name, d);
	t->probe = probe;
	t->n_probes = 1;
	t->n_stepped = 0;
	return t->program;
}

static int open_event(struct perf_event_attr *attr, int pid, int cpu)
{
	long fd;

	attr->size = sizeof(*attr);
	fd = syscall(SYS_perf_event_open, attr, pid, cpu, -1, PERF_FLAG_FD_CLOEXEC);
	return fd < 0 ? -errno : (int)fd;
}

static int failed(const struct trace_compiled *c, int error, struct diag *d)
{
	/* So says the kernel's kprobes (check_kprobe_address_safe()). */
	if (error == -EILSEQ)
		return diag_set(d, error, "no instruction begins at %s", c->name);
	return diag_set(d, error, "cannot attach to %s: %s", c->name, strerror(-error));
}

static int attach_tracepoint(struct attaching *t, u32 probe, struct diag *d)
{
	const struct trace_compiled *c = probe_of(t, probe);
	struct perf_event_attr attr = {.type = PERF_TYPE_TRACEPOINT, .sample_period = 1};
	int program = load(t, probe, 0, 0, 0, d), event, r;
	u64 id;

	if (program < 0)
		return program;
	r = tracer_event_id(c->point->parts[0], c->point->parts[1], &id, d);
	if (r < 0)
		return r;
	attr.config = id;
	event = open_event(&attr, -1, 0);
	r = event < 0 ? event : attach_event(t, event, program, probe);
	return r < 0 ? failed(c, r, d) : 0;
}

/* ---- functions of the kernel and of programs ---- */

/* Reads "PREFIXnumber" from a file. */
static int read_number(const char *path, const char *prefix, u32 *ret)
{
	_cleanup_str_ struct str text = {};
	int r = io_read(path, 4096, &text);

	if (r < 0)
		return r;
	if (!str_starts(str_get(&text), prefix))
		return -EINVAL;
	return sscanf(str_get(&text) + strlen(prefix), "%u", ret) == 1 ? 0 : -EINVAL;
}

/* `pmu` is "kprobe" or "uprobe". */
static int probe_attr(const char *pmu, bool returns, struct perf_event_attr *ret)
{
	char path[96];
	u32 type, bit = 0;
	int r;

	snprintf(path, sizeof(path), "/sys/bus/event_source/devices/%s/type", pmu);
	r = read_number(path, "", &type);
	if (r < 0)
		return r;
	snprintf(path, sizeof(path), "/sys/bus/event_source/devices/%s/format/retprobe", pmu);
	if (returns && read_number(path, "config:", &bit) < 0)
		return -ENOTSUP;
	*ret = (struct perf_event_attr){.type = type, .config = returns ? 1ULL << bit : 0};
	return 0;
}

static int no_kprobes(struct diag *d)
{
	return diag_set(d, -ENOTSUP,
			"this kernel has no kprobes (CONFIG_KPROBES): use tracepoints, fentry, or "
			"another kernel");
}

/* "do_sys_open+16" */
static u64 split_offset(const char *text, char *ret_name, size_t n)
{
	const char *plus = strchr(text, '+');
	u64 offset = 0;

	snprintf(ret_name, n, "%.*s", (int)(plus ? plus - text : (long)strlen(text)), text);
	if (plus)
		(void)str_to_u64(plus + 1, 0, &offset);
	return offset;
}

static int attach_kprobe(struct attaching *t, u32 probe, struct diag *d)
{
	const struct trace_compiled *c = probe_of(t, probe);
	const char *function = c->point->parts[c->point->n_parts - 1];
	int program = load(t, probe, 0, 0, 0, d), event, r;
	struct perf_event_attr attr;
	char name[256];

	if (program < 0)
		return program;
	if (probe_attr("kprobe", is_return(c), &attr) < 0)
		return no_kprobes(d);
	attr.probe_offset = split_offset(function, name, sizeof(name));
	attr.kprobe_func = (u64)name;
	event = open_event(&attr, -1, 0);
	r = event < 0 ? event : attach_event(t, event, program, probe);
	return r < 0 ? failed(c, r, d) : 0;
}

/* One link for all probes of a list; they share a program. */
static int attach_kprobes(struct attaching *t, const u32 *probes, u32 n, struct diag *d)
{
	_cleanup_free_ const char **names = calloc(n, sizeof(*names));
	_cleanup_free_ u64 *cookies = calloc(n, sizeof(*cookies));
	LIBBPF_OPTS(bpf_link_create_opts, o);
	int link, program = load(t, probes[0], BPF_TRACE_KPROBE_MULTI, 0, 0, d);

	if (program < 0)
		return program;
	if (!names || !cookies)
		return -ENOMEM;
	for (u32 i = 0; i < n; i++) {
		const struct trace_point *p = probe_of(t, probes[i])->point;

		names[i] = p->parts[p->n_parts - 1];
		cookies[i] = probes[i];
	}
	o.kprobe_multi.flags = is_return(probe_of(t, probes[0])) ? BPF_F_KPROBE_MULTI_RETURN : 0;
	o.kprobe_multi.cnt = n;
	o.kprobe_multi.syms = names;
	o.kprobe_multi.cookies = cookies;
	t->n_probes = n;
	link = bpf_link_create(program, 0, BPF_TRACE_KPROBE_MULTI, &o);
	return link < 0 ? -errno : keep(t, link);
}

/* How many of the instructions at these offsets the kernel steps. */
static u32 count_stepped(const char *path, const u64 *offsets, u32 n)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	u32 stepped = 0;

	for (u32 i = 0; fd >= 0 && i < n; i++) {
		u8 code[4] = {};

		(void)!pread(fd, code, sizeof(code), (off_t)offsets[i]);
		stepped += !tracer_is_emulated(code);
	}
	return stepped;
}

static int attach_uprobe(struct attaching *t, u32 probe, struct diag *d)
{
	const struct trace_compiled *c = probe_of(t, probe);
	struct perf_event_attr attr;
	struct tracer_place place;
	int program, event, r = tracer_find_place(t->m, c->point, &place, d);

	if (r < 0)
		return r;
	program = load(t, probe, 0, 0, 0, d);
	if (program < 0)
		return program;
	if (probe_attr("uprobe", is_return(c), &attr) < 0)
		return diag_set(d, -ENOTSUP, "this kernel has no uprobes (CONFIG_UPROBE_EVENTS)");
	/* PERF_UPROBE_REF_CTR_OFFSET_SHIFT of kernel/events/core.c; since Linux 4.20 */
	if (place.semaphore >> 32)
		return diag_set(d, -ENOTSUP, "the semaphore of %s is behind 4 GiB", c->name);
	t->n_stepped = count_stepped(place.path, &place.foff, 1);
	attr.config |= place.semaphore << 32;
	attr.uprobe_path = (u64)place.path;
	attr.probe_offset = place.foff;
	event = open_event(&attr, t->m->pid ? (int)t->m->pid : -1, t->m->pid ? -1 : 0);
	r = event < 0 ? event : attach_event(t, event, program, probe);
	return r < 0 ? failed(c, r, d) : 0;
}

/* All points of the list are in one file, and share a program. */
static int attach_uprobes(struct attaching *t, const u32 *probes, u32 n, struct diag *d)
{
	_cleanup_free_ u64 *offsets = calloc(n, sizeof(u64)), *cookies = calloc(n, sizeof(u64)),
			   *semaphores = calloc(n, sizeof(u64));
	struct probe_uprobes u = {.offsets = offsets,
				  .reference_counters = semaphores,
				  .cookies = cookies,
				  .n = n,
				  .pid = t->m->pid,
				  .attach_type = PROBE_UPROBE_MULTI,
				  .returns = is_return(probe_of(t, probes[0]))};
	struct tracer_place place;
	int r;

	if (!offsets || !cookies || !semaphores)
		return -ENOMEM;
	for (u32 i = 0; i < n; i++) {
		r = tracer_find_place(t->m, probe_of(t, probes[i])->point, &place, d);
		if (r < 0)
			return r;
		u.program = load(t, probes[i], PROBE_UPROBE_MULTI, 0, 0, d);
		if (u.program < 0)
			return u.program;
		offsets[i] = place.foff;
		cookies[i] = probes[i];
		semaphores[i] = place.semaphore;
		u.path = place.path;
	}
	t->n_probes = n;
	t->n_stepped = count_stepped(u.path, offsets, n);
	r = probe_link_uprobes(&u);
	return r < 0 ? r : keep(t, r);
}

/* ---- by BTF ---- */

static int btf_id_of(struct attaching *t, const struct trace_compiled *c, const char *name,
		     u32 kind, u32 *ret, struct diag *d)
{
	s32 id = t->m->btf ? btf__find_by_name_kind(t->m->btf, name, kind) : -ENOENT;

	if (id <= 0)
		return diag_set(d, -ENOENT, "the kernel's BTF does not describe %s", c->name);
	*ret = (u32)id;
	return 0;
}

static int open_by_name(struct attaching *t, u32 probe, const char *name, int program,
			struct diag *d)
{
	int link = bpf_raw_tracepoint_open(name, program), r;

	r = link < 0 ? -errno : keep(t, link);
	return r < 0 ? failed(probe_of(t, probe), r, d) : 0;
}

static int attach_raw(struct attaching *t, u32 probe, struct diag *d)
{
	const struct trace_compiled *c = probe_of(t, probe);
	const char *name = c->point->parts[c->point->n_parts - 1];
	char type[128];
	u32 id = 0;
	int program, r = 0;

	if (c->type == BPF_PROG_TYPE_TRACING) {
		snprintf(type, sizeof(type), "btf_trace_%s", name);
		r = btf_id_of(t, c, type, BTF_KIND_TYPEDEF, &id, d);
	}
	if (r < 0)
		return r;
	program = load(t, probe, id ? BPF_TRACE_RAW_TP : 0, id, 0, d);
	return program < 0 ? program : open_by_name(t, probe, id ? NULL : name, program, d);
}

static int attach_fentry(struct attaching *t, u32 probe, struct diag *d)
{
	const struct trace_compiled *c = probe_of(t, probe);
	bool returns = has_provider(c, "fexit") || has_provider(c, "kretfunc");
	u32 id = 0;
	int program, r;

	r = btf_id_of(t, c, c->point->parts[c->point->n_parts - 1], BTF_KIND_FUNC, &id, d);
	if (r < 0)
		return r;
	program = load(t, probe, returns ? BPF_TRACE_FEXIT : BPF_TRACE_FENTRY, id, 0, d);
	return program < 0 ? program : open_by_name(t, probe, NULL, program, d);
}

static int attach_iterator(struct attaching *t, u32 probe, struct diag *d)
{
	const struct trace_compiled *c = probe_of(t, probe);
	char function[128];
	int program, link, r;
	u32 id = 0;

	snprintf(function, sizeof(function), "bpf_iter_%s", c->point->parts[0]);
	r = btf_id_of(t, c, function, BTF_KIND_FUNC, &id, d);
	if (r < 0)
		return r;
	program = load(t, probe, BPF_TRACE_ITER, id, 0, d);
	if (program < 0)
		return program;
	link = bpf_link_create(program, 0, BPF_TRACE_ITER, NULL);
	r = link < 0 ? -errno : keep(t, link);
	if (r == 0)
		r = vec_push(&t->a->iterators, link);
	return r < 0 ? failed(c, r, d) : 0;
}

/* ---- events, and what user space runs ---- */

static int attach_events(struct attaching *t, u32 probe, struct diag *d)
{
	const struct trace_compiled *c = probe_of(t, probe);
	_cleanup_free_ int *events = calloc(MAX_EVENTS, sizeof(*events));
	int program = load(t, probe, 0, 0, 0, d), r;
	u32 n = 0;

	if (program < 0)
		return program;
	if (!events)
		return -ENOMEM;
	r = tracer_open_events(t->m, c->point, events, MAX_EVENTS, &n, d);
	for (u32 i = 0; i < n; i++) {
		if (r == 0)
			r = attach_event(t, events[i], program, probe);
		else
			close(events[i]);
	}
	return r < 0 ? failed(c, r, d) : 0;
}

static int signal_number(const char *name)
{
	static const struct {
		const char *name;
		int number;
	} signals[] = {{"SIGUSR1", SIGUSR1}, {"SIGUSR2", SIGUSR2}, {"SIGHUP", SIGHUP}};

	for (size_t i = 0; name && i < ARRAY_SIZE(signals); i++)
		if (strcmp(name, signals[i].name) == 0)
			return signals[i].number;
	return -EINVAL;
}

/* BEGIN, END, interval, self */
static int load_own(struct attaching *t, u32 probe, struct diag *d)
{
	const struct trace_compiled *c = probe_of(t, probe);
	struct tracer_run run = {.probe = probe};
	int r;

	run.program = load(t, probe, 0, 0, 0, d);
	if (run.program < 0)
		return run.program;
	if (has_provider(c, "BEGIN"))
		return vec_push(&t->a->begins, run);
	if (has_provider(c, "END"))
		return vec_push(&t->a->ends, run);
	if (has_provider(c, "self")) {
		r = signal_number(c->point->n_parts == 2 ? c->point->parts[1] : NULL);
		if (r < 0)
			return diag_set(d, r,
					"self has the probes self:signal:SIGUSR1, SIGUSR2 "
					"and SIGHUP");
		return vec_push(&t->a->signals, (struct tracer_signal){r, run});
	}
	r = tracer_period_ns(c->point, &run.period_ns, d);
	return r < 0 ? r : vec_push(&t->a->timers, run);
}

/* ---- all ---- */

static const struct provider {
	const char *name;
	int (*attach)(struct attaching *t, u32 probe, struct diag *d);
} providers[] = {
	{"BEGIN", load_own},
	{"END", load_own},
	{"self", load_own},
	{"interval", load_own},
	{"tracepoint", attach_tracepoint},
	{"rawtracepoint", attach_raw},
	{"kprobe", attach_kprobe},
	{"kretprobe", attach_kprobe},
	{"fentry", attach_fentry},
	{"fexit", attach_fentry},
	{"kfunc", attach_fentry},
	{"kretfunc", attach_fentry},
	{"uprobe", attach_uprobe},
	{"uretprobe", attach_uprobe},
	{"usdt", attach_uprobe},
	{"profile", attach_events},
	{"hardware", attach_events},
	{"software", attach_events},
	{"watchpoint", attach_events},
	{"iter", attach_iterator},
};

static int attach_one(struct attaching *t, u32 probe, struct diag *d)
{
	const struct trace_compiled *c = probe_of(t, probe);

	for (size_t i = 0; i < ARRAY_SIZE(providers); i++)
		if (has_provider(c, providers[i].name))
			return providers[i].attach(t, probe, d);
	return diag_set(d, -ENOTSUP, "probes of the kind '%s' are not supported",
			c->point->provider);
}

/* The action of a point: the last one that begins at its place or before. */
static size_t action_of(const struct attaching *t, u32 probe)
{
	const struct trace_at *at = &probe_of(t, probe)->point->at;
	size_t action = 0;

	for (size_t i = 0; i < t->a->script->probes.n; i++) {
		const struct trace_at *begin = &t->a->script->probes.data[i].at;

		if (begin->line < at->line ||
		    (begin->line == at->line && begin->column <= at->column))
			action = i;
	}
	return action;
}

static bool is_missing(const struct attaching *t, u32 probe)
{
	vec_foreach (&t->a->missing, p)
		if (*p == probe)
			return true;
	return false;
}

/*
 * Whether the action has another point. Kernels differ in the functions that they have, and a glob
 * stands for more than can be probed.
 */
static bool has_sibling(const struct attaching *t, u32 probe)
{
	size_t action = action_of(t, probe);

	for (u32 i = 0; i < t->l->program->probes.n; i++)
		if (i != probe && action_of(t, i) == action && !is_missing(t, i))
			return true;
	return false;
}

/* With the place in the script at the beginning, unless the script is not to blame. */
static int error_at(const struct attaching *t, u32 probe, int error, const struct diag *why,
		    struct diag *reterr_diag)
{
	const struct trace_at *at = &probe_of(t, probe)->point->at;
	const char *text = why->text[0] ? why->text : strerror(-error);

	if (!t->a->tells_places || error == -ENOMEM || error == -EPERM)
		return diag_set(reterr_diag, error, "%s", text);
	return diag_set(reterr_diag, error, "%u:%u: %s", at->line, at->column, text);
}

/* A missing probe is a line, if its action has another, or if the script wants that. */
static int attach_or_miss(struct attaching *t, u32 probe, struct diag *reterr_diag)
{
	struct diag d = {};
	int r = attach_one(t, probe, &d);

	if (r >= 0)
		return 0;
	if (r == -ENOMEM || r == -EPERM ||
	    (!t->l->program->missing_probes_warn && !has_sibling(t, probe)))
		return error_at(t, probe, r, &d, reterr_diag);
	fprintf(stderr, "culprit: %s\n", d.text[0] ? d.text : strerror(-r));
	return vec_push(&t->a->missing, probe);
}

/* Whether one link can hold both. */
static bool is_alike(const struct attaching *t, u32 a, u32 b)
{
	const struct trace_compiled *x = probe_of(t, a), *y = probe_of(t, b);

	if (x->code != y->code || strcmp(x->point->provider, y->point->provider) != 0)
		return false;
	if (strncmp(x->point->provider, "k", 1) == 0)
		return !strchr(y->point->parts[y->point->n_parts - 1], '+');
	return strcmp(x->point->parts[0], y->point->parts[0]) == 0;
}

typedef int attach_many_fn(struct attaching *t, const u32 *probes, u32 n, struct diag *d);

/* The function that attaches many probes like this one at once; NULL: there is none. */
static attach_many_fn *many_of(const struct attaching *t, u32 probe)
{
	const struct trace_compiled *c = probe_of(t, probe);

	if (c->type != BPF_PROG_TYPE_KPROBE || !t->m->target.has_cookie)
		return NULL;
	/* The programs of a prog array have one attach type, which is none unless it is this. */
	if (t->l->program->codes.data[c->code].second)
		return t->l->walk && t->l->walk->links_uprobes ? attach_uprobes : NULL;
	if (has_provider(c, "kprobe") || has_provider(c, "kretprobe"))
		return t->m->has_kprobe_multi &&
				       !strchr(c->point->parts[c->point->n_parts - 1], '+')
			       ? attach_kprobes
			       : NULL;
	return t->m->has_uprobe_multi ? attach_uprobes : NULL;
}

/* Attaches a probe and all after it that are like it. Sets *ret_n to their number. */
static int attach_run(struct attaching *t, u32 first, u32 *ret_n, struct diag *d)
{
	attach_many_fn *many = many_of(t, first);
	u32 end = first + 1, n = (u32)t->l->program->probes.n;
	_cleanup_free_ u32 *list = NULL;
	struct diag ignored = {};
	int r = -ENOTSUP;

	while (many && end < n && is_alike(t, first, end))
		end++;
	*ret_n = end - first;
	if (*ret_n > 1 || (many == attach_uprobes && t->m->links_uprobes)) {
		list = calloc(*ret_n, sizeof(*list));
		for (u32 i = 0; list && i < *ret_n; i++)
			list[i] = first + i;
		r = list ? many(t, list, *ret_n, &ignored) : -ENOMEM;
	}
	if (r >= 0)
		return 0;
	/* One by one, so that the one that cannot be attached is named. */
	for (u32 i = first; i < end; i++) {
		r = attach_or_miss(t, i, d);
		if (r < 0)
			return r;
	}
	return 0;
}

static bool is_own(const struct trace_compiled *c)
{
	return has_provider(c, "BEGIN") || has_provider(c, "END") || has_provider(c, "self") ||
	       has_provider(c, "interval");
}

int tracer_attach_own(struct tracer_machine *m, struct tracer_loaded *l, struct tracer_attached *a,
		      struct diag *reterr_diag)
{
	struct attaching t = {.m = m, .l = l, .a = a};
	int r = 0;

	for (u32 i = 0; i < l->program->probes.n && r >= 0; i++) {
		struct diag d = {};

		if (is_own(probe_of(&t, i)))
			r = attach_one(&t, i, &d);
		if (r < 0)
			return error_at(&t, i, r, &d, reterr_diag);
	}
	return 0;
}

int tracer_attach(struct tracer_machine *m, struct tracer_loaded *l, struct tracer_attached *a,
		  struct diag *reterr_diag)
{
	struct attaching t = {.m = m, .l = l, .a = a};
	u32 n, probes = (u32)l->program->probes.n;
	int r = 0;

	for (u32 i = 0; i < probes && r == 0; i += n) {
		n = 1;
		if (!is_own(probe_of(&t, i)))
			r = attach_run(&t, i, &n, reterr_diag);
	}
	if (r == 0 && probes && a->missing.n == probes)
		r = diag_set(reterr_diag, -ENOENT, "no probe of the script could be attached");
	return r;
}

void tracer_detach(struct tracer_attached *a)
{
	while (a->places.n) {
		int fd = a->places.data[--a->places.n].fd;

		if (fd >= 0)
			close(fd);
	}
	vec_clear(&a->iterators);
}

void tracer_detach_program(struct tracer_attached *a, int program)
{
	for (size_t i = a->places.n; i-- > 0;) {
		struct tracer_place_of *p = &a->places.data[i];

		if (p->program != program || p->fd < 0)
			continue;
		close(p->fd);
		p->fd = p->program = -1;
	}
}

bool tracer_attached_only_iterators(const struct tracer_attached *a, const struct trace_program *p)
{
	vec_foreach (&p->probes, c)
		if (!has_provider(c, "iter") && !has_provider(c, "BEGIN") &&
		    !has_provider(c, "END"))
			return false;
	return a->iterators.n > 0;
}

void tracer_attached_deinit(struct tracer_attached *a)
{
	tracer_detach(a);
	vec_deinit(&a->places);
	vec_deinit(&a->begins);
	vec_deinit(&a->ends);
	vec_deinit(&a->timers);
	vec_deinit(&a->signals);
	vec_deinit(&a->iterators);
	vec_deinit(&a->missing);
}
