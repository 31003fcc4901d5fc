/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/sampler/sleepers.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "abi/runtime.h"
#include "agent/probe/probe.h"
#include "agent/sampler/source.h"
#include "base/budget.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/worker.h"
#include "sleeper.skel.h"

/* Programs: those of a walk by enum runtime_id, then those at its begin and end. */
enum { PROGRAM_BEGIN = RUNTIME_N, PROGRAM_END, PROGRAM_N };

/* A walk ends after this many programs, whatever they say: bpf/prog/walk.h allows 32 jumps. */
#define MAX_RUNS 40
/* What loading takes for a moment: the object, and the kernel's BTF. */
#define LOAD_BYTES (12ULL << 20)
#define PAUSE_MS 500

enum load_state {
	LOAD_NOT,
	LOAD_ASKED,
	LOAD_DONE,
	LOAD_FAILED,
};

/* Descriptors, owned; -1: not loaded. */
struct loaded {
	int fds[PROGRAM_N];
	int state_fd, walk_fd; /* of the maps that all walkers share; walk_native loads them */
};

/* The job of the thread that loads: a walker; with walk_native also the programs for all walks. */
struct load {
	struct worker_job base;
	u32 runtime;
	int error;
	double ms;
	struct loaded loaded; /* by this job */
};

struct sleepers {
	struct sleepers_options options;
	struct worker *worker; /* owned; NULL until a walker is needed */
	enum load_state states[RUNTIME_N];
	struct loaded loaded;
	struct sleeper_walk *walk; /* mapped */
	u32 wanted;		   /* bits by enum runtime_id */
};

static const char *const names[PROGRAM_N] = {
	[RUNTIME_NONE] = "walk_native",
#define RUNTIME(id, name, ...) [RUNTIME_##id] = "walk_" #name,
#include "abi/tbl/runtime.tbl"
#undef RUNTIME
	[PROGRAM_BEGIN] = "begin",
	[PROGRAM_END] = "end",
};

/* Whether loading the walker `runtime` loads program i. */
static bool is_of(u32 i, u32 runtime)
{
	return i == runtime || (runtime == RUNTIME_NONE && i >= RUNTIME_N);
}

static void loaded_init(struct loaded *l)
{
	for (u32 i = 0; i < PROGRAM_N; i++)
		l->fds[i] = -1;
	l->state_fd = l->walk_fd = -1;
}

static void loaded_deinit(struct loaded *l)
{
	for (u32 i = 0; i < PROGRAM_N; i++)
		if (l->fds[i] >= 0)
			close(l->fds[i]);
	if (l->state_fd >= 0)
		close(l->state_fd);
	if (l->walk_fd >= 0)
		close(l->walk_fd);
}

/* ---- the thread that loads ---- */

/* Chooses programs and maps. One walk at a time: maps that others have per CPU need one entry. */
static int prepare(struct sleepers *s, struct sleeper_bpf *b, u32 runtime)
{
	struct bpf_map *map;
	int r = source_share_maps(s->options.first, b->obj);

	for (u32 i = 0; i < PROGRAM_N; i++)
		bpf_program__set_autoload(bpf_object__find_program_by_name(b->obj, names[i]),
					  is_of(i, runtime));
	bpf_object__for_each_map(map, b->obj)
	{
		if (r == 0 && bpf_map__type(map) == BPF_MAP_TYPE_PERCPU_ARRAY)
			r = bpf_map__set_type(map, BPF_MAP_TYPE_ARRAY);
	}
	if (r == 0 && s->loaded.walk_fd >= 0) {
		r = bpf_map__reuse_fd(b->maps.scratch, s->loaded.state_fd);
		if (r == 0)
			r = bpf_map__reuse_fd(b->maps.bss, s->loaded.walk_fd);
	}
	memcpy((void *)&b->rodata->config, &s->options.config, sizeof(s->options.config));
	return r;
}

static int keep(int fd)
{
	int r = fcntl(fd, F_DUPFD_CLOEXEC, 0);

	return r < 0 ? -errno : r;
}

/* Keeps the descriptors: the object itself takes megabytes. */
static int keep_programs(struct load *job, const struct sleeper_bpf *b)
{
	int r = 0;

	for (u32 i = 0; i < PROGRAM_N && r >= 0; i++)
		if (is_of(i, job->runtime))
			r = job->loaded.fds[i] = keep(bpf_program__fd(
				bpf_object__find_program_by_name(b->obj, names[i])));
	if (r >= 0 && job->runtime == RUNTIME_NONE)
		r = job->loaded.state_fd = keep(bpf_map__fd(b->maps.scratch));
	if (r >= 0 && job->runtime == RUNTIME_NONE)
		r = job->loaded.walk_fd = keep(bpf_map__fd(b->maps.bss));
	return r < 0 ? r : 0;
}

static int load(struct sleepers *s, struct load *job)
{
	int r = job->runtime == RUNTIME_NONE ? probe_sleepers() : 0;
	struct sleeper_bpf *b;

	if (r < 0)
		return r;
	b = sleeper_bpf__open();
	if (!b)
		return -ENOMEM;
	r = prepare(s, b, job->runtime);
	if (r == 0)
		r = sleeper_bpf__load(b);
	if (r == 0)
		r = keep_programs(job, b);
	sleeper_bpf__destroy(b);
	return r;
}

static int load_in_budget(struct sleepers *s, struct load *job)
{
	const struct timespec pause = {.tv_nsec = PAUSE_MS * 1000000L};
	int r;

	if (!budget_begin(s->options.memory, LOAD_BYTES)) {
		/* The owner asks again at once, so wait a little. */
		(void)nanosleep(&pause, NULL);
		return -ENOBUFS;
	}
	r = load(s, job);
	budget_end(s->options.memory, LOAD_BYTES);
	return r;
}

static void run_job(void *arg, struct worker_job *base)
{
	struct load *job = container_of(base, struct load, base);
	u64 begin = clock_ns(CLOCK_MONOTONIC);

	job->error = load_in_budget(arg, job);
	job->ms = (double)(clock_ns(CLOCK_MONOTONIC) - begin) / 1e6;
}

static void free_job(struct load *job)
{
	loaded_deinit(&job->loaded);
	free(job);
}

static void drop_job(void *arg, struct worker_job *base, bool ran)
{
	(void)arg;
	(void)ran;
	free_job(container_of(base, struct load, base));
}

/* ---- the sampler's thread ---- */

int sleepers_create(const struct sleepers_options *o, struct sleepers **ret)
{
	struct sleepers *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->options = *o;
	loaded_init(&s->loaded);
	*ret = s;
	return 0;
}

void sleepers_destroy(struct sleepers *s)
{
	if (!s)
		return;
	worker_destroy(s->worker);
	if (s->walk)
		munmap(s->walk, sizeof(*s->walk));
	loaded_deinit(&s->loaded);
	free(s);
}

/* Whether the thread sleeps where it had these registers. */
static bool sleeps_at(const struct record_sample *s, const struct walk_regs *regs)
{
	_cleanup_fclose_ FILE *f = NULL;
	unsigned long long sp, pc;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%u/task/%u/syscall", s->pid, s->tid);
	f = fopen(path, "re");
	/* proc_pid_syscall(5): after a system call's number six arguments; after -1 none. */
	return f &&
	       (fscanf(f, "-1 %llx %llx", &sp, &pc) == 2 ||
		fscanf(f, "%*d %*x %*x %*x %*x %*x %*x %llx %llx", &sp, &pc) == 2) &&
	       sp == regs->sp && pc == regs->pc;
}

void sleepers_copy(const struct record_deferred *d, struct sampler_copy *ret)
{
	static u8 memory[SAMPLE_STACK_COPIES * SAMPLE_COPY_BYTES];
	const u64 page = d->regs.sp & ~(u64)(SAMPLE_COPY_BYTES - 1);

	*ret = (struct sampler_copy){.data = memory};
	/* Only memory of the stack that the thread still has. */
	for (; ret->n < SAMPLE_STACK_COPIES; ret->n++) {
		u64 at = page + (u64)ret->n * SAMPLE_COPY_BYTES;
		struct iovec to = {memory + (size_t)ret->n * SAMPLE_COPY_BYTES, SAMPLE_COPY_BYTES};
		struct iovec from = {(void *)at, SAMPLE_COPY_BYTES};

		if (process_vm_readv((pid_t)d->sample.pid, &to, 1, &from, 1, 0) !=
		    SAMPLE_COPY_BYTES)
			break;
		ret->addresses[ret->n] = at;
	}
	if (!sleeps_at(&d->sample, &d->regs))
		ret->n = 0;
}

static int ask(struct sleepers *s, u32 runtime)
{
	/* Above most threads, because walks wait; below the reader. */
	const struct worker_options o = {
		.name = "walkers", .nice = -10, .run = run_job, .drop = drop_job, .arg = s};
	struct load *job;
	int r;

	if (s->states[runtime] != LOAD_NOT)
		return s->states[runtime] == LOAD_FAILED ? -ENOTSUP : -EINPROGRESS;
	r = s->worker ? 0 : worker_create(&o, &s->worker);
	job = r < 0 ? NULL : calloc(1, sizeof(*job));
	if (!job)
		return -ENOMEM;
	job->runtime = runtime;
	loaded_init(&job->loaded);
	s->states[runtime] = LOAD_ASKED;
	worker_ask(s->worker, &job->base, 0);
	return -EINPROGRESS;
}

/* Walkers share the maps of walk_native, so that one is loaded first. */
static void ask_wanted(struct sleepers *s)
{
	for (u32 i = 1; i < RUNTIME_N; i++)
		if (s->wanted & 1u << i)
			(void)ask(s, i);
}

void sleepers_want(struct sleepers *s, u32 runtime)
{
	s->wanted |= 1u << runtime;
	(void)ask(s, RUNTIME_NONE);
	if (s->states[RUNTIME_NONE] == LOAD_DONE)
		ask_wanted(s);
}

/* Takes what a job has loaded; no other job runs that could need it meanwhile. */
static int take(struct sleepers *s, struct load *job)
{
	if (job->error < 0)
		return job->error;
	for (u32 i = 0; i < PROGRAM_N; i++)
		if (is_of(i, job->runtime)) {
			s->loaded.fds[i] = job->loaded.fds[i];
			job->loaded.fds[i] = -1;
		}
	if (job->runtime != RUNTIME_NONE)
		return 0;
	s->loaded.state_fd = job->loaded.state_fd;
	s->loaded.walk_fd = job->loaded.walk_fd;
	job->loaded.state_fd = job->loaded.walk_fd = -1;
	s->walk = mmap(NULL, sizeof(*s->walk), PROT_READ | PROT_WRITE, MAP_SHARED,
		       s->loaded.walk_fd, 0);
	if (s->walk == MAP_FAILED) {
		s->walk = NULL;
		return -errno;
	}
	return 0;
}

u32 sleepers_take(struct sleepers *s)
{
	struct worker_job *base;
	u32 n = 0;

	while (s->worker && (base = worker_take(s->worker, false))) {
		struct load *job = container_of(base, struct load, base);
		int r = take(s, job);

		if (r < 0)
			log_debug("walker of sleeping threads %s: %s", names[job->runtime],
				  strerror(-r));
		else
			log_debug("walker of sleeping threads %s: loaded in %.0f ms",
				  names[job->runtime], job->ms);
		s->states[job->runtime] = r == -ENOBUFS ? LOAD_NOT
					  : r < 0	? LOAD_FAILED
							: LOAD_DONE;
		if (r == 0 && job->runtime == RUNTIME_NONE)
			ask_wanted(s);
		free_job(job);
		n++;
	}
	return n;
}

int sleepers_fd(const struct sleepers *s)
{
	return s->worker && worker_busy(s->worker) ? worker_fd(s->worker) : -1;
}

static int run(const struct sleepers *s, u32 program)
{
	LIBBPF_OPTS(bpf_test_run_opts, opts);

	return bpf_prog_test_run_opts(s->loaded.fds[program], &opts);
}

static int walk(struct sleepers *s)
{
	struct sleeper_walk *w = s->walk;
	int r = run(s, PROGRAM_BEGIN);

	for (u32 i = 0; r == 0 && !w->woke && w->next < RUNTIME_N; i++) {
		u32 next = w->next;

		if (i == MAX_RUNS)
			return -ELOOP;
		if (s->states[next] != LOAD_DONE)
			return ask(s, next);
		r = run(s, next);
	}
	if (r == 0 && !w->woke)
		r = run(s, PROGRAM_END);
	if (r < 0)
		return r;
	return w->woke ? -ESRCH : 0;
}

int sleepers_walk(struct sleepers *s, const struct record_deferred *d,
		  const struct sleeper_walk **ret)
{
	int r;

	if (s->states[RUNTIME_NONE] != LOAD_DONE)
		return ask(s, RUNTIME_NONE);
	s->walk->regs = d->regs;
	s->walk->start_time = d->start_time;
	s->walk->switches = d->switches;
	s->walk->start_stack = d->sample.start_stack;
	s->walk->pid = d->sample.pid;
	s->walk->tid = d->sample.tid;
	r = walk(s);
	if (r == 0)
		*ret = s->walk;
	return r;
}
