/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When a process is probed. A process begins as one that is probed all the time, with a credit of
 * time that probes may take. The budget fills the credit, each call takes from it; when it is used
 * up, the process is probed in windows:
 *
 *	      credit used up                 the next opens after a random time
 *	ALWAYS ────────────→ NOT ──→ WINDOW ──→ NOT ──→ WINDOW …
 *	   ↑                          │ the calls fit into the budget
 *	   └──────────────────────────┘
 *
 * Calls count from the moment when all probes are there until before the first is removed, so that
 * a window has sharp ends; what probes take before and after counts for the budget only. A window
 * is short where calls take a large part of the time, because its threads are slow all that time:
 * 5 ms at 30 %, a second at 2 %.
 */
#include <bpf/bpf.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "agent/alloc/internal.h"
#include "base/clock.h"
#include "base/log.h"

/* Time of the budget that may be saved, and with which a process begins. */
#define CREDIT_MAX_S 0.5
#define TICK_MAX_NS 200000000ULL
#define TICK_MIN_NS 10000000ULL
/* Of the time left until the credit is used up, the next tick is after this part. */
#define TICK_SHARE 2
#define WINDOW_MIN_NS 5e6
#define WINDOW_MAX_NS 1e9
#define WINDOW_SHARE 0.3
/* Between two windows. */
#define GAP_MAX_NS 30e9
/* The first window of a process, of whose calls little is known. */
#define WINDOW_FIRST_NS 5000000ULL
/* A process whose calls take less than this part of its budget is probed all the time again. */
#define ALWAYS_SHARE 0.6
#define WALKS_MAX 64U
#define WALKS_MIN 4U
/* Without processes. */
#define IDLE_NS 60000000000ULL
/*
 * How exactly the cost of a probe is known. It was measured in a loop, with everything in caches;
 * on a busy machine, or if a hypervisor takes time from its CPUs, it is up to twice that.
 */
#define COST_LOW 0.75
#define COST_HIGH 2.0

/* ---- counters ---- */

/* Reads the entries of all threads. */
static int read_threads(struct allocs *a)
{
	u32 n = ALLOC_MAX_THREADS;
	u64 batch;
	int r;

	if (vec_reserve(&a->thread_keys, n) < 0 || vec_reserve(&a->threads, n) < 0)
		return -ENOMEM;
	r = bpf_map_lookup_batch(a->programs.threads, NULL, &batch, a->thread_keys.data,
				 a->threads.data, &n, NULL);
	a->thread_keys.n = a->threads.n = r == 0 || errno == ENOENT ? n : 0;
	return 0;
}

static u64 traps_ns(const struct allocs *a, const struct alloc_thread *t)
{
	return t->calls[0] * a->costs.emulated_ns + t->calls[1] * a->costs.stepped_ns +
	       t->returns * a->costs.return_ns;
}

static u64 cost_ns(const struct allocs *a, u32 pid)
{
	u64 sum = 0;

	for (size_t i = 0; i < a->threads.n; i++)
		if (a->thread_keys.data[i] >> 32 == pid)
			sum += traps_ns(a, &a->threads.data[i]) + a->threads.data[i].walk_ns;
	return sum;
}

/* Time of all CPUs that the process has used; 0: it has ended. */
static u64 cpu_ns(u32 pid)
{
	clockid_t clock;

	return clock_getcpuclockid((pid_t)pid, &clock) == 0 ? clock_ns(clock) : 0;
}

static double random_part(struct allocs *a)
{
	a->random = a->random * 6364136223846793005ULL + 1442695040888963407ULL;
	return (double)(a->random >> 32) / 4294967296.0;
}

/* ---- probes ---- */

static void set_process(struct allocs *a, const struct probed *p, bool open)
{
	struct alloc_process entry = {
		.open = open,
		.window = p->state == PROBED_ALWAYS ? 0 : p->window,
		.walks = a->programs.all ? 0 : p->walks,
	};

	vec_foreach (&p->parts, part)
		for (u32 i = 0; i < part->sites->n; i++) {
			const struct alloc_site *s = &part->sites->site[i];
			u64 start = s->svma + part->bias;

			if (s->function != ALLOC_FREE && entry.n_inner < ALLOC_MAX_INNER)
				entry.inner[entry.n_inner++] =
					(struct alloc_range){start, start + s->size};
		}
	if (bpf_map_update_elem(a->programs.processes, &p->pid, &entry, BPF_ANY) < 0)
		log_warn_rarely("allocations of a process are not recorded: %s", strerror(errno));
}

static void note_longest(struct allocs *a, u64 *longest, u64 begin_ns)
{
	u64 took = clock_ns(CLOCK_MONOTONIC) - begin_ns;

	pthread_mutex_lock(&a->lock);
	*longest = MAX(*longest, took);
	pthread_mutex_unlock(&a->lock);
}

static int insert_probes(struct allocs *a, struct probed *p)
{
	u64 begin = clock_ns(CLOCK_MONOTONIC);
	int r = 0;

	vec_foreach (&p->parts, part)
		if (r == 0 && part->probes.session < 0 && !part->probes.links.n)
			r = alloc_attach(&a->programs, p->pid, part->fd, part->sites,
					 &part->probes);
	note_longest(a, &a->stats.attach_ns, begin);
	return r;
}

static void remove_probes(struct allocs *a, struct probed *p)
{
	u64 begin = clock_ns(CLOCK_MONOTONIC);

	vec_foreach (&p->parts, part)
		alloc_detach(&part->probes);
	note_longest(a, &a->stats.detach_ns, begin);
}

static void give_up(struct allocs *a, struct probed *p, int error)
{
	if (error != -ESRCH)
		log_warn("allocations of process %u are not recorded: %s", p->pid,
			 strerror(-error));
	remove_probes(a, p);
	p->failed = true;
	p->state = PROBED_NOT;
	pthread_mutex_lock(&a->lock);
	a->stats.failed++;
	pthread_mutex_unlock(&a->lock);
}

/* ---- reports ---- */

static void send_report(struct allocs *a, struct alloc_report *r)
{
	int e;

	pthread_mutex_lock(&a->lock);
	e = vec_push(&a->reports, *r);
	a->stats.windows += r->number > 0;
	pthread_mutex_unlock(&a->lock);
	if (e < 0)
		alloc_report_deinit(r);
}

static void count_continuous(struct allocs *a, int change)
{
	pthread_mutex_lock(&a->lock);
	a->stats.continuous += (u64)(s64)change;
	pthread_mutex_unlock(&a->lock);
}

/* ---- probed all the time ---- */

static void open_always(struct allocs *a, struct probed *p)
{
	int r;

	p->state = PROBED_ALWAYS;
	p->begin_ns = p->ticked_ns = clock_ns(CLOCK_MONOTONIC);
	p->cpu_ns = cpu_ns(p->pid);
	set_process(a, p, true);
	r = insert_probes(a, p);
	if (r < 0) {
		give_up(a, p, r);
		return;
	}
	a->tick_ns = MIN(a->tick_ns, p->begin_ns + TICK_MIN_NS);
	count_continuous(a, 1);
}

static void end_always(struct allocs *a, struct probed *p)
{
	u64 now = clock_ns(CLOCK_MONOTONIC);
	struct alloc_report r = {.image = p->image,
				 .pid = p->pid,
				 .begin_ns = p->begin_ns,
				 .end_ns = now,
				 .stands_ns = now - p->begin_ns};

	set_process(a, p, false);
	remove_probes(a, p);
	p->state = PROBED_NOT;
	p->stands_ns = now;
	p->due_ns = now + WINDOW_FIRST_NS;
	count_continuous(a, -1);
	send_report(a, &r);
}

/* Of the walks of a stratum: fewer if they take more than half of the budget. */
static void set_walks(struct allocs *a, struct probed *p, double walks, double allowed)
{
	u32 before = p->walks;

	if (walks > allowed / 2)
		p->walks = MAX(p->walks / 2, WALKS_MIN);
	else if (walks < allowed / 8)
		p->walks = MIN(p->walks * 2, WALKS_MAX);
	if (p->walks != before && p->state == PROBED_ALWAYS)
		set_process(a, p, true);
}

static u64 walks_ns(const struct allocs *a, u32 pid)
{
	u64 sum = 0;

	for (size_t i = 0; i < a->threads.n; i++)
		if (a->thread_keys.data[i] >> 32 == pid)
			sum += a->threads.data[i].walk_ns;
	return sum;
}

/*
 * What the process may spend on probes, in CPUs. Processes that do hardly anything share the
 * machine's budget.
 */
static double allowance(const struct allocs *a, const struct probed *p)
{
	return a->budget * MAX(p->cpu, a->least_cpu);
}

/* Measures how much of the CPUs the process has used since the last time. */
static double tick_cpu(struct probed *p, u64 now)
{
	u64 cpu = cpu_ns(p->pid);
	double passed = (double)(now - p->ticked_ns);

	if (passed <= 0)
		return 0;
	p->cpu = cpu > p->cpu_ns ? (double)(cpu - p->cpu_ns) / passed : 0;
	p->cpu_ns = cpu;
	p->ticked_ns = now;
	return passed;
}

/* Returns when the credit may be used up. */
static u64 tick_always(struct allocs *a, struct probed *p)
{
	u64 now = clock_ns(CLOCK_MONOTONIC), cost = cost_ns(a, p->pid);
	/* Less: the entry of a thread was evicted. */
	u64 spent = cost > p->cost_ns ? cost - p->cost_ns : 0;
	double passed = tick_cpu(p, now), allowed = allowance(a, p) * passed;

	if (passed <= 0)
		return now + TICK_MIN_NS;
	p->cost_ns = cost;
	p->credit_ns = MIN(p->credit_ns + allowed - (double)spent,
			   a->budget * CREDIT_MAX_S * 1e9 * MAX(p->cpu, 1.0));
	set_walks(a, p, (double)walks_ns(a, p->pid) / (double)(now - p->begin_ns), allowance(a, p));
	if (p->credit_ns < 0 && !a->programs.all) {
		p->share = p->costs = (double)spent / passed;
		end_always(a, p);
		return p->due_ns;
	}
	if ((double)spent <= allowed)
		return now + TICK_MAX_NS;
	passed = p->credit_ns / ((double)spent / passed) / TICK_SHARE;
	return now + (u64)MIN(MAX(passed, (double)TICK_MIN_NS), (double)TICK_MAX_NS);
}

/* ---- windows ---- */

/* So that the counters of its threads begin at 0. No call is under way that counts. */
static void forget_threads(struct allocs *a, u32 pid)
{
	if (read_threads(a) < 0)
		return;
	for (size_t i = 0; i < a->threads.n; i++)
		if (a->thread_keys.data[i] >> 32 == pid)
			(void)bpf_map_delete_elem(a->programs.threads, &a->thread_keys.data[i]);
}

static void open_window(struct allocs *a, struct probed *p)
{
	double length;
	int r;

	(void)tick_cpu(p, clock_ns(CLOCK_MONOTONIC));
	p->window = ++a->windows ? a->windows : ++a->windows;
	p->state = PROBED_WINDOW;
	p->probed_ns = clock_ns(CLOCK_MONOTONIC);
	set_process(a, p, false);
	r = insert_probes(a, p);
	if (r < 0) {
		give_up(a, p, r);
		return;
	}
	forget_threads(a, p->pid);
	length = p->share > 0 ? WINDOW_MIN_NS * pow(WINDOW_SHARE / p->share, 2) : WINDOW_MAX_NS;
	length = MIN(MAX(length, WINDOW_MIN_NS), WINDOW_MAX_NS);
	set_process(a, p, true);
	p->begin_ns = clock_ns(CLOCK_MONOTONIC);
	p->due_ns = p->begin_ns + (u64)length;
}

/*
 * For each nanosecond that a thread has on a CPU, it waits so much longer if it is preempted: what
 * probes take of its time is more than what they take on the CPU.
 */
static double stretch(const struct alloc_thread *t)
{
	u64 cpu = t->cpu_ns[1] - t->cpu_ns[0], delay = t->delay_ns[1] - t->delay_ns[0];

	return (s64)cpu > 0 && (s64)delay > 0 ? 1 + (double)delay / (double)cpu : 1;
}

/* Fills the report's threads. Returns what probes have taken of the one that they took most of. */
static u64 report_threads(struct allocs *a, const struct probed *p, struct alloc_report *r,
			  u64 *ret_all)
{
	u64 most = 0;

	*ret_all = 0;
	for (size_t i = 0; i < a->threads.n; i++) {
		const struct alloc_thread *t = &a->threads.data[i];
		struct alloc_thread_cost c = {
			.tid = (u32)a->thread_keys.data[i],
			.traps_ns = (u64)((double)traps_ns(a, t) * stretch(t)),
			.walks_ns = t->walk_ns, /* by the clock */
		};

		if (a->thread_keys.data[i] >> 32 != p->pid)
			continue;
		if (vec_push(&r->threads, c) < 0)
			log_warn_rarely("out of memory: allocations seem to be fewer");
		most = MAX(most, c.traps_ns + c.walks_ns);
		*ret_all += c.traps_ns + c.walks_ns;
	}
	return most;
}

/* The time until the next window, so that all windows keep the budget. */
static double gap_ns(struct allocs *a, const struct probed *p, double probed)
{
	double mean = probed * p->costs / allowance(a, p) - probed;

	return MIN(MAX(mean, 0) * (0.5 + random_part(a)), GAP_MAX_NS);
}

static void close_window(struct allocs *a, struct probed *p)
{
	struct alloc_report r = {.image = p->image,
				 .pid = p->pid,
				 .number = p->window,
				 .begin_ns = p->begin_ns,
				 .low = COST_LOW,
				 .high = COST_HIGH};
	u64 most, all, now;
	double length;

	set_process(a, p, false);
	r.end_ns = clock_ns(CLOCK_MONOTONIC);
	if (read_threads(a) < 0)
		a->threads.n = 0;
	most = report_threads(a, p, &r, &all);
	remove_probes(a, p);
	now = clock_ns(CLOCK_MONOTONIC);
	r.stands_ns = now - p->stands_ns;
	p->stands_ns = now;
	length = (double)(r.end_ns - r.begin_ns);
	p->share = (double)most / length;
	p->costs = (double)all / length;
	set_walks(a, p, (double)walks_ns(a, p->pid) / length, p->costs);
	p->state = PROBED_NOT;
	send_report(a, &r);
	if (p->costs < ALWAYS_SHARE * allowance(a, p)) {
		p->credit_ns = a->budget * 1e9;
		forget_threads(a, p->pid);
		p->cost_ns = 0;
		open_always(a, p);
		if (p->state == PROBED_ALWAYS)
			send_report(a, &(struct alloc_report){.image = p->image,
							      .pid = p->pid,
							      .always = true,
							      .begin_ns = p->begin_ns});
		return;
	}
	p->due_ns = now + (u64)gap_ns(a, p, (double)(now - p->probed_ns));
}

/* ---- processes ---- */

static struct probed *find(const struct allocs *a, u64 image)
{
	const u64 *p = map_get(&a->processes, image);

	return p ? (struct probed *)*p : NULL;
}

static void count_processes(struct allocs *a)
{
	pthread_mutex_lock(&a->lock);
	a->stats.processes = a->processes.n;
	pthread_mutex_unlock(&a->lock);
	a->least_cpu = MIN((double)a->cpus / (double)MAX(a->processes.n, (size_t)1), 1.0);
}

void windows_add(struct allocs *a, u64 image, u32 pid, struct part *part)
{
	struct probed *p = find(a, image);
	int r;

	if (!p) {
		p = calloc(1, sizeof(*p));
		if (!p || map_put(&a->processes, image, (u64)p) < 0) {
			free(p);
			return;
		}
		p->image = image;
		p->pid = pid;
		p->walks = WALKS_MAX;
		p->credit_ns = a->budget * CREDIT_MAX_S * 1e9;
		count_processes(a);
	}
	if (p->failed || vec_push(&p->parts, *part) < 0)
		return;
	*part = (struct part){.fd = -1, .probes = ALLOC_PROBES_NONE};
	if (p->parts.n == 1) {
		forget_threads(a, pid);
		open_always(a, p);
		return;
	}
	if (p->state == PROBED_NOT)
		return;
	set_process(a, p, true);
	r = insert_probes(a, p);
	if (r < 0)
		log_warn("an allocator of process %u is not probed: %s", pid, strerror(-r));
}

void windows_remove(struct allocs *a, u64 image)
{
	struct probed *p = find(a, image);

	if (!p)
		return;
	if (p->state == PROBED_ALWAYS)
		count_continuous(a, -1);
	remove_probes(a, p);
	(void)bpf_map_delete_elem(a->programs.processes, &p->pid);
	(void)map_del(&a->processes, image, NULL);
	probed_destroy(a, p);
	count_processes(a);
}

void windows_close(struct allocs *a, bool all)
{
	map_foreach (&a->processes, slot) {
		struct probed *p = (struct probed *)slot->value;

		if (p->state == PROBED_WINDOW)
			close_window(a, p);
		if (!all)
			continue;
		if (p->state == PROBED_ALWAYS) {
			set_process(a, p, false);
			remove_probes(a, p);
			count_continuous(a, -1);
		}
		p->state = PROBED_NOT;
		p->failed = true;
	}
}

static u64 run_process(struct allocs *a, struct probed *p, u64 now, bool tick)
{
	if (p->failed)
		return ~0ULL;
	switch (p->state) {
	case PROBED_ALWAYS:
		return tick ? tick_always(a, p) : a->tick_ns;
	case PROBED_WINDOW:
		if (now >= p->due_ns)
			close_window(a, p);
		break;
	case PROBED_NOT:
		if (now >= p->due_ns)
			open_window(a, p);
		break;
	}
	return p->state == PROBED_ALWAYS ? a->tick_ns : p->due_ns;
}

u64 windows_run(struct allocs *a)
{
	u64 now = clock_ns(CLOCK_MONOTONIC), due = ~0ULL, ticks = now + TICK_MAX_NS;
	bool tick = now >= a->tick_ns;

	if (tick && read_threads(a) < 0)
		tick = false;
	if (tick)
		a->tick_ns = ticks;
	map_foreach (&a->processes, slot) {
		struct probed *p = (struct probed *)slot->value;
		bool always = p->state == PROBED_ALWAYS;
		u64 next = run_process(a, p, clock_ns(CLOCK_MONOTONIC), tick && always);

		if (tick && always)
			ticks = MIN(ticks, next);
		due = MIN(due, next);
	}
	if (tick)
		a->tick_ns = ticks;
	due = MIN(due, a->tick_ns);
	return a->processes.n ? MIN(due, now + TICK_MAX_NS) : now + IDLE_NS;
}
