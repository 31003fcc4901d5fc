/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/sampler/sampler.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "abi/runtime.h"
#include "agent/probe/probe.h"
#include "agent/sampler/event.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/vec.h"
#include "oncpu.skel.h"
#include "proc/proc.h"

#define DEFAULT_EVENT "cpu-clock"
/* Most processes at a time that `record -- CMD` follows. */
#define MAX_FOLLOWED 16384

struct sampler {
	struct oncpu_bpf *skel;
	struct ring_buffer *ring;
	struct bpf_link **links; /* owned */
	int *events;		 /* owned; closed with their links */
	u32 n_events;
	struct bpf_link *follow_links[2];
	bool loop; /* programs that use bpf_loop(), else bounded loops */
	u64 hz;
	const char *event;
	char event_name[64];
	struct sampler_copy *copies; /* owned; by CPU: what it sent of a copy so far */
	u32 n_copies;
	struct sampler_ops ops;
	void *arg;
	const u8 *scratch; /* mapped: struct scratch of bpf/unwind/native.h by CPU */
	u64 started_ns, stopped_ns;
	struct sampler_stats before; /* when counting began anew */
};

CULPRIT_PRINTF(2, 0)
/* What libbpf says, the verifier's log among it, is for whoever asked for debug output. */
static int libbpf_say(enum libbpf_print_level level, const char *fmt, va_list ap)
{
	if (level == LIBBPF_DEBUG || !log_enabled(LOG_LEVEL_DEBUG))
		return 0;
	return vfprintf(stderr, fmt, ap);
}

u64 sampler_pac_mask(void)
{
#ifdef __aarch64__
	/* XPACLRI is a hint: a processor without it leaves x30 alone. */
	u64 stripped = (1ULL << 55) - 1;
	register u64 x30 asm("x30") = stripped;

	asm volatile("hint #7" : "+r"(x30));
	return (x30 ^ stripped) | 0xffULL << 56;
#else
	return 0;
#endif
}

static u64 ring_bytes(const struct sampler_options *o, int n_cpus)
{
	/* A quarter second of samples with new stacks of a KiB, and room for stack copies. */
	u64 want = o->ring_bytes ? o->ring_bytes : (u64)n_cpus * o->hz / 4 * 1024 + (6 << 20);
	u64 bytes = 1 << 22;

	while (bytes < want && bytes < 1ULL << 28)
		bytes *= 2;
	return bytes;
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

/* Room for four times the processes that there are. */
static u32 process_entries(void)
{
	u32 want = 4 * count_processes(), n = 8192;

	while (n < want && n < 1 << 18)
		n *= 2;
	return n;
}

/* The program that walks frames of a runtime and native ones; RUNTIME_NONE: those alone. */
static struct bpf_program *walker(const struct sampler *s, u32 runtime, bool loop)
{
	switch (runtime) {
#define RUNTIME(id, name, ...)                                                                     \
	case RUNTIME_##id:                                                                         \
		return loop ? s->skel->progs.walk_##name : s->skel->progs.step_##name;
#include "abi/tbl/runtime.tbl"
#undef RUNTIME
	default:
		return loop ? s->skel->progs.walk_native : s->skel->progs.step_native;
	}
}

/* OBI makes and fills it (its devdocs); what has another shape is none of its own. */
static bool use_obi(struct sampler *s)
{
	_cleanup_close_ int fd = bpf_obj_get(CONTEXT_OBI_MAP);
	struct bpf_map *map = s->skel->maps.obi_spans;
	struct bpf_map_info info = {};
	u32 n = sizeof(info);

	if (fd < 0 || bpf_obj_get_info_by_fd(fd, &info, &n) < 0 ||
	    info.type != BPF_MAP_TYPE_LRU_HASH || info.key_size != bpf_map__key_size(map) ||
	    info.value_size != bpf_map__value_size(map))
		return false;
	log_debug("spans of OBI: %s", CONTEXT_OBI_MAP);
	return bpf_map__reuse_fd(map, fd) == 0;
}

static void configure(struct sampler *s, const struct sampler_options *o,
		      const struct probe_features *f)
{
	struct sampler_config *c = (struct sampler_config *)&s->skel->rodata->config;
	int n_cpus = libbpf_num_possible_cpus();
	u64 bytes = ring_bytes(o, MAX(n_cpus, 1));

	s->loop = f->bpf_loop;
	c->has_task_btf = f->task_pt_regs && f->current_task_btf;
	c->thread_size = getpagesize() > 16384 ? (u32)getpagesize() : 16384;
	c->kernel_stacks = o->kernel_stacks;
	c->user_stacks = o->user_stacks;
	c->filter_pids = o->n_pids > 0 || o->follow_forks;
	c->filter_comms = o->n_comms > 0;
	c->filter_uids = o->n_uids > 0;
	c->filter_cgroups = o->n_cgroups;
	c->follow_forks = o->follow_forks;
	c->defer_per_tick = (u32)MAX(o->hz / 10 + 10, 40ULL);
	c->ring_bytes = (u32)bytes;
	c->has_obi = use_obi(s);
	sampler_set_contexts(s, 0);
	c->pac_mask = sampler_pac_mask();
	s->skel->bss->epoch = clock_ns(CLOCK_MONOTONIC);
	for (u32 i = 0; i < RUNTIME_N; i++) {
		bpf_program__set_autoload(walker(s, i, true), s->loop);
		bpf_program__set_autoload(walker(s, i, false), !s->loop);
	}
	bpf_program__set_autoload(s->skel->progs.follow_fork, o->follow_forks);
	bpf_program__set_autoload(s->skel->progs.follow_exit, o->follow_forks);
	bpf_map__set_max_entries(s->skel->maps.scratch, s->n_copies);
	bpf_map__set_max_entries(s->skel->maps.processes, process_entries());
	bpf_map__set_max_entries(s->skel->maps.filter_pids,
				 o->follow_forks ? MAX_FOLLOWED : MAX(o->n_pids, 1u));
	bpf_map__set_max_entries(s->skel->maps.ring, (u32)bytes);
}

/* A cgroup's folder on the cgroup v2 tree, wherever that is mounted. */
static int open_cgroup(const char *path, struct diag *reterr_diag)
{
	static const char *const roots[] = {"", "/sys/fs/cgroup", "/sys/fs/cgroup/unified"};

	for (size_t i = 0; i < ARRAY_SIZE(roots); i++) {
		_cleanup_free_ char *full = NULL;
		_cleanup_free_ char *procs = NULL;
		int fd;

		if (asprintf(&full, "%s%s%s", roots[i], path[0] == '/' || !i ? "" : "/", path) <
			    0 ||
		    asprintf(&procs, "%s/cgroup.controllers", full) < 0)
			return -ENOMEM;
		if (access(procs, F_OK) < 0)
			continue;
		fd = open(full, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (fd >= 0)
			return fd;
	}
	return diag_set(reterr_diag, -ENOENT,
			"no cgroup '%s' on the cgroup v2 tree; systemd-cgls shows what there is",
			path);
}

static int fill_filters(struct sampler *s, const struct sampler_options *o,
			struct diag *reterr_diag)
{
	u32 one = 1;
	int r = 0;

	if (o->n_comms > SAMPLER_MAX_FILTERS || o->n_uids > SAMPLER_MAX_FILTERS ||
	    o->n_cgroups > SAMPLER_MAX_FILTERS)
		return diag_set(reterr_diag, -E2BIG,
				"at most %d each of --comm, --uid and --cgroup",
				SAMPLER_MAX_FILTERS);
	for (u32 i = 0; i < o->n_pids && r == 0; i++)
		r = sampler_add_pid(s, o->pids[i]);
	for (u32 i = 0; i < o->n_comms && r == 0; i++) {
		char key[SAMPLE_COMM_BYTES] = {};

		strncpy(key, o->comms[i], sizeof(key) - 1);
		r = bpf_map__update_elem(s->skel->maps.filter_comms, key, sizeof(key), &one,
					 sizeof(one), BPF_ANY);
	}
	for (u32 i = 0; i < o->n_uids && r == 0; i++)
		r = bpf_map__update_elem(s->skel->maps.filter_uids, &o->uids[i], sizeof(u32), &one,
					 sizeof(one), BPF_ANY);
	for (u32 i = 0; i < o->n_cgroups && r == 0; i++) {
		_cleanup_close_ int fd = open_cgroup(o->cgroups[i], reterr_diag);

		if (fd < 0)
			return fd;
		r = bpf_map__update_elem(s->skel->maps.filter_cgroups, &i, sizeof(i), &fd,
					 sizeof(fd), BPF_ANY);
	}
	return r < 0 ? diag_set(reterr_diag, r, "cannot fill the filters: %s", strerror(-r)) : 0;
}

static void take_copy(struct sampler *s, const struct record_copy *c)
{
	struct sampler_copy *p;

	if (c->cpu >= s->n_copies)
		return;
	p = &s->copies[c->cpu];
	if (!p->data)
		p->data = malloc((size_t)SAMPLE_MAX_COPIES * SAMPLE_COPY_BYTES);
	if (!p->data)
		return;
	if (c->index == 0)
		p->n = 0;
	if (p->n >= SAMPLE_MAX_COPIES)
		return;
	memcpy(p->data + (size_t)p->n * SAMPLE_COPY_BYTES, c->data, SAMPLE_COPY_BYTES);
	p->addresses[p->n++] = c->address;
}

static void take_deferred(struct sampler *s, const struct record_deferred *d)
{
	static const struct sampler_copy none = {};

	if (d->sample.cpu < s->n_copies && d->n_copies) {
		s->ops.deferred(s->arg, d, &s->copies[d->sample.cpu]);
		s->copies[d->sample.cpu].n = 0;
	} else {
		s->ops.deferred(s->arg, d, &none);
	}
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
		if (n >= sizeof(struct record_sample))
			s->ops.sample(s->arg, data);
		break;
	case RECORD_STACK:
		if (n >= sizeof(*head) && n >= sizeof(*head) + head->n * sizeof(u64))
			s->ops.stack(s->arg, head, (const u64 *)(head + 1));
		break;
	case RECORD_COPY:
		if (n >= sizeof(struct record_copy))
			take_copy(s, data);
		break;
	case RECORD_DEFERRED:
		if (n >= sizeof(struct record_deferred))
			take_deferred(s, data);
		break;
	case RECORD_ATTRIBUTES:
		if (n >= sizeof(*attributes) && n >= sizeof(*attributes) + attributes->n)
			s->ops.attributes(s->arg, attributes, (const u8 *)(attributes + 1));
		break;
	default:
		log_debug("ring: unknown record type %u", head->type);
	}
	return 0;
}

static size_t scratch_bytes(const struct sampler *s)
{
	return (size_t)s->n_copies * bpf_map__value_size(s->skel->maps.scratch);
}

/* Programs jump to each other through this map. */
static int join_programs(struct sampler *s, struct diag *reterr_diag)
{
	for (u32 i = 0; i <= RUNTIME_N; i++) {
		int fd = bpf_program__fd(i < RUNTIME_N ? walker(s, i, s->loop)
						       : s->skel->progs.finish);
		int r = bpf_map__update_elem(s->skel->maps.walkers, &i, sizeof(i), &fd, sizeof(fd),
					     BPF_ANY);

		if (r < 0)
			return diag_set(reterr_diag, r, "cannot join the BPF programs: %s",
					strerror(-r));
	}
	return 0;
}

static int load(struct sampler *s, struct diag *reterr_diag)
{
	int r = oncpu_bpf__load(s->skel);
	void *scratch;

	if (r == -EPERM)
		return diag_set(
			reterr_diag, r,
			"no permission to load BPF programs: run as root, or with CAP_BPF and "
			"CAP_PERFMON; `culprit doctor` tells more");
	if (r < 0)
		return diag_set(
			reterr_diag, r,
			"the kernel refused the BPF programs (%s); `culprit doctor` tells more",
			strerror(-r));
	scratch = mmap(NULL, scratch_bytes(s), PROT_READ, MAP_SHARED,
		       bpf_map__fd(s->skel->maps.scratch), 0);
	if (scratch == MAP_FAILED)
		return diag_set(reterr_diag, -errno, "cannot map the counters: %s",
				strerror(errno));
	s->scratch = scratch;
	return join_programs(s, reterr_diag);
}

int sampler_create(const struct sampler_options *o, const struct sampler_ops *ops, void *arg,
		   struct diag *reterr_diag, struct sampler **ret)
{
	struct sampler *s = calloc(1, sizeof(*s));
	int n_cpus = libbpf_num_possible_cpus();
	struct perf_event_attr attr = {};
	struct probe_features features;
	int r;

	if (!s)
		return -ENOMEM;
	libbpf_set_print(libbpf_say);
	r = event_by_name(o->event ? o->event : DEFAULT_EVENT, &attr, reterr_diag);
	if (r == 0)
		r = probe_features(&features, reterr_diag);
	if (r < 0)
		goto fail;
	r = -ENOMEM;
	s->ops = *ops;
	s->arg = arg;
	s->hz = o->hz;
	snprintf(s->event_name, sizeof(s->event_name), "%s", o->event ? o->event : DEFAULT_EVENT);
	s->n_copies = n_cpus > 0 ? (u32)n_cpus : 1;
	s->copies = calloc(s->n_copies, sizeof(*s->copies));
	s->skel = s->copies ? oncpu_bpf__open() : NULL;
	if (!s->skel)
		goto fail;
	configure(s, o, &features);
	r = load(s, reterr_diag);
	if (r == 0)
		r = fill_filters(s, o, reterr_diag);
	if (r < 0)
		goto fail;
	s->ring = ring_buffer__new(bpf_map__fd(s->skel->maps.ring), take_record, s, NULL);
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
	ring_buffer__free(s->ring);
	if (s->scratch)
		munmap((void *)s->scratch, scratch_bytes(s));
	oncpu_bpf__destroy(s->skel);
	for (u32 i = 0; s->copies && i < s->n_copies; i++)
		free(s->copies[i].data);
	free(s->copies);
	free(s);
}

int sampler_arena_fd(const struct sampler *s)
{
	return bpf_map__fd(s->skel->maps.arena);
}

int sampler_processes_fd(const struct sampler *s)
{
	return bpf_map__fd(s->skel->maps.processes);
}

void sampler_runtime_fds(const struct sampler *s, int *ret_binaries, int *ret_processes)
{
	*ret_binaries = bpf_map__fd(s->skel->maps.runtime_binaries);
	*ret_processes = bpf_map__fd(s->skel->maps.runtime_processes);
}

int sampler_contexts_fd(const struct sampler *s)
{
	return bpf_map__fd(s->skel->maps.context_processes);
}

void sampler_set_contexts(struct sampler *s, u32 n)
{
	s->skel->bss->context_n = n + s->skel->rodata->config.has_obi;
}

int sampler_add_pid(struct sampler *s, u32 pid)
{
	u64 one = 1;

	return bpf_map__update_elem(s->skel->maps.filter_pids, &pid, sizeof(pid), &one, sizeof(one),
				    BPF_ANY);
}

void sampler_new_epoch(struct sampler *s)
{
	s->skel->bss->epoch = clock_ns(CLOCK_MONOTONIC);
}

int sampler_start(struct sampler *s, struct diag *reterr_diag)
{
	int r;

	if (bpf_program__autoload(s->skel->progs.follow_fork)) {
		s->follow_links[0] = bpf_program__attach(s->skel->progs.follow_fork);
		s->follow_links[1] = bpf_program__attach(s->skel->progs.follow_exit);
		if (!s->follow_links[0] || !s->follow_links[1])
			return diag_set(reterr_diag, -errno, "cannot follow forks: %s",
					strerror(errno));
	}
	r = event_open_all(s->event_name, s->hz, &s->events, &s->n_events, reterr_diag);
	if (r == -ENOENT) {
		log_warn("this machine's hardware has no event '%s', sampling by %s instead",
			 s->event_name, DEFAULT_EVENT);
		if (reterr_diag)
			*reterr_diag = (struct diag){};
		snprintf(s->event_name, sizeof(s->event_name), "%s", DEFAULT_EVENT);
		r = event_open_all(s->event_name, s->hz, &s->events, &s->n_events, reterr_diag);
	}
	if (r < 0)
		return r;
	s->links = calloc(s->n_events, sizeof(*s->links));
	if (!s->links)
		return -ENOMEM;
	s->started_ns = clock_ns(CLOCK_MONOTONIC);
	for (u32 i = 0; i < s->n_events; i++) {
		s->links[i] = bpf_program__attach_perf_event(s->skel->progs.oncpu, s->events[i]);
		if (s->links[i])
			continue;
		return diag_set(reterr_diag, -errno, "cannot attach to the perf event: %s",
				strerror(errno));
	}
	return 0;
}

void sampler_pause(struct sampler *s, bool pause)
{
	for (u32 i = 0; i < s->n_events; i++)
		(void)ioctl(s->events[i], pause ? PERF_EVENT_IOC_DISABLE : PERF_EVENT_IOC_ENABLE,
			    0);
}

void sampler_stop(struct sampler *s)
{
	if (s->started_ns && !s->stopped_ns)
		s->stopped_ns = clock_ns(CLOCK_MONOTONIC);
	for (u32 i = 0; i < s->n_events; i++) {
		if (s->links && s->links[i])
			bpf_link__destroy(s->links[i]); /* closes the event */
		else
			close(s->events[i]);
	}
	s->n_events = 0;
	free(s->links);
	free(s->events);
	s->links = NULL;
	s->events = NULL;
	for (size_t i = 0; i < ARRAY_SIZE(s->follow_links); i++) {
		bpf_link__destroy(s->follow_links[i]);
		s->follow_links[i] = NULL;
	}
}

int sampler_fd(const struct sampler *s)
{
	return ring_buffer__epoll_fd(s->ring);
}

int sampler_drain(struct sampler *s)
{
	return ring_buffer__consume(s->ring);
}

/* Memory of a map as the kernel accounts it. */
static u64 map_bytes(const struct bpf_map *map)
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

/* Of all CPUs, since the programs were loaded. */
static u64 read_counter(const struct sampler *s, enum counter counter)
{
	u32 stride = bpf_map__value_size(s->skel->maps.scratch);
	u64 sum = 0;

	for (u32 cpu = 0; cpu < s->n_copies; cpu++)
		sum += ((const u64 *)(s->scratch + (size_t)cpu * stride))[counter];
	return sum;
}

u64 sampler_counter(const struct sampler *s, enum counter counter)
{
	return read_counter(s, counter) - s->before.counters[counter];
}

static void read_stats(struct sampler *s, struct sampler_stats *ret)
{
	struct bpf_prog_info info = {};
	struct sampler_stats st = {.cpus = s->n_copies, .event = s->event_name};
	u32 info_n = sizeof(info);
	struct bpf_map *map;

	for (u32 i = 0; i < COUNTER_N; i++)
		st.counters[i] = read_counter(s, (enum counter)i);
	bpf_object__for_each_map(map, s->skel->obj) st.map_bytes += map_bytes(map);
	st.mapped_bytes = scratch_bytes(s) + 2 * bpf_map__max_entries(s->skel->maps.ring);
	/* The entry's time is that of all programs that it jumps to, too. */
	if (bpf_obj_get_info_by_fd(bpf_program__fd(s->skel->progs.oncpu), &info, &info_n) == 0) {
		st.bpf_ns = info.run_time_ns;
		st.bpf_runs = info.run_cnt;
	}
	if (s->started_ns)
		st.elapsed_ns =
			(s->stopped_ns ? s->stopped_ns : clock_ns(CLOCK_MONOTONIC)) - s->started_ns;
	*ret = st;
}

void sampler_stats(struct sampler *s, struct sampler_stats *ret)
{
	read_stats(s, ret);
	for (u32 i = 0; i < COUNTER_N; i++)
		ret->counters[i] -= s->before.counters[i];
	ret->bpf_ns -= s->before.bpf_ns;
	ret->bpf_runs -= s->before.bpf_runs;
}

void sampler_count_from_now(struct sampler *s)
{
	read_stats(s, &s->before);
	s->started_ns = clock_ns(CLOCK_MONOTONIC);
}
