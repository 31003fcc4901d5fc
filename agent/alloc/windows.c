/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When a process is probed. A process begins as one that is probed all the time, with a credit of
 * time that probes may take. The budget fills the credit, each call takes from it; when it is used
 * up, the process is probed in windows:
 *
 *	      credit used up                 the next opens after a random time
 *	ALWAYS ────────────→ NOT ──→ WINDOW ──→ NOT ──→ WINDOW …
 *	   ↑                          │ calls have long fitted into the budget
 *	   └──────────────────────────┘
 *
 * Calls count from the moment when all probes are there until before the first is removed, so that
 * a window has sharp ends; what probes take before and after counts for the budget only.
 *
 * How long a window is, and how long the time before it, must not depend on what the program does
 * in it: a window that ends, or is followed by others, because a burst of calls was in it would
 * show bursts too seldom or too often. So both follow from means over many windows, and from
 * chance. A window is short where calls take a large part of the time, because threads are slow all
 * that time: 5 ms at 30 %, 100 ms at 7 %.
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
#include "proc/proc.h"

/* Time of the budget that may be saved, and with which a process begins. */
#define CREDIT_MAX_S 0.5
#define TICK_MAX_NS 200000000ULL
#define TICK_MIN_NS 10000000ULL
/* Of the time left until the credit is used up, the next tick is after this part. */
#define TICK_SHARE 2
#define WINDOW_MIN_NS 5e6
#define WINDOW_MAX_NS 1e8
#define WINDOW_SHARE 0.3
/* Between two windows; while there have been few, of which little is known, for each of them. */
#define GAP_MAX_NS 30e9
#define GAP_FIRST_NS 1e9
/* How much later the next window opens if the probes of the last one are not removed yet. */
#define BUSY_NS 5000000ULL
/* By how much a window becomes longer if probes take its time, and how often to look. */
#define STALL_MAX_NS 100000000ULL
#define STALL_STEP_NS 2000000ULL
/*
 * Not where probes take most of the time anyway: it would never be long enough. After so many
 * windows that is known.
 */
#define STALL_SHARE 0.6
#define STALL_WINDOWS 3.5
/* The first window of a process, of whose calls little is known. */
#define WINDOW_FIRST_NS 5000000ULL
/* A process whose calls take less than this part of its budget is probed all the time again, after
 * so many windows. */
#define ALWAYS_SHARE 0.6
#define ALWAYS_WINDOWS 16
/* Windows that means are of, about. */
#define MEANS_WINDOWS 32.0
/* The largest debt, in time of the budget. It doubles the time until the next window. */
#define CREDIT_BACK_S 10.0
/* A full credit makes it so much shorter. */
#define CREDIT_FULL 8.0
/*
 * A process that uses little gets more than its own budget, up to this part of a budget of a whole
 * CPU: this multiple of its own always, so that it is not slowed down by much, and more if other
 * processes leave some of the machine's budget.
 */
#define POOR_PART 0.2
#define POOR_MULTIPLE 3.0
#define SHARING_NS 1000000000ULL
#define WALKS_MAX 64U
#define WALKS_MIN 4U
/* Threads of a process whose times are kept. */
#define MAX_TIMES 256
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

static void give_up(struct allocs *a, struct probed *p, int error)
{
	if (error != -ESRCH)
		log_warn("allocations of process %u are not recorded: %s", p->pid,
			 strerror(-error));
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
	r = probes_insert(a, p);
	if (r < 0) {
		give_up(a, p, r);
		return;
	}
	count_continuous(a, 1);
	a->tick_ns = MIN(a->tick_ns, p->begin_ns + TICK_MIN_NS);
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
	probes_remove(a, p);
	p->state = PROBED_NOT;
	p->closed_ns = p->cost_ns;
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

/* ---- the budget ---- */

/* What the process may spend on probes if the level of the machine is so high, in CPUs. */
static double allowed_at(const struct allocs *a, const struct probed *p, double level)
{
	double own = a->budget * p->cpu, poor = MAX(POOR_MULTIPLE * own, level);

	return MAX(own, MIN(poor, POOR_PART * a->budget));
}

/* What all processes spend then. */
static double spent_at(const struct allocs *a, double level)
{
	double sum = 0;

	map_foreach (&a->processes, slot) {
		const struct probed *p = (const struct probed *)slot->value;

		sum += p->failed ? 0 : MIN(p->need, allowed_at(a, p, level));
	}
	return sum;
}

/* What some processes leave of the machine's budget is for those that need more than their own. */
static void share_budget(struct allocs *a, u64 now)
{
	double low = 0, high = a->budget;

	if (now < a->shared_ns + SHARING_NS)
		return;
	a->shared_ns = now;
	for (int i = 0; i < 20; i++) {
		double level = i ? (low + high) / 2 : high;

		if (spent_at(a, level) <= a->budget * (double)a->cpus)
			low = level;
		else
			high = level;
	}
	map_foreach (&a->processes, slot) {
		struct probed *p = (struct probed *)slot->value;

		p->allowance = allowed_at(a, p, low);
	}
}

static double allowance(const struct allocs *a, const struct probed *p)
{
	return MAX(p->allowance, allowed_at(a, p, 0));
}

static double credit_max_ns(const struct allocs *a, const struct probed *p)
{
	return a->budget * CREDIT_MAX_S * 1e9 * MAX(p->cpu, 1.0);
}

/* Counts what probes have taken in a time. */
static void pay(const struct allocs *a, struct probed *p, double passed_ns, double spent_ns)
{
	double allowed = allowance(a, p);

	p->credit_ns = p->credit_ns + allowed * passed_ns - spent_ns;
	p->credit_ns = MIN(p->credit_ns, credit_max_ns(a, p));
	p->credit_ns = MAX(p->credit_ns, -allowed * CREDIT_BACK_S * 1e9);
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

static void means_add(struct probed *p, const struct window_means *w)
{
	struct window_means *m = &p->means;
	double keep = 1 - 1 / MEANS_WINDOWS;

	m->windows = m->windows * keep + w->windows;
	m->open_ns = m->open_ns * keep + w->open_ns;
	m->costs_ns = m->costs_ns * keep + w->costs_ns;
	m->most_ns = m->most_ns * keep + w->most_ns;
	m->spent_ns = m->spent_ns * keep + w->spent_ns;
	p->need = m->costs_ns / m->open_ns;
}

/* What is known before the first window, from the time in which it was probed all the time. */
static void means_begin(struct probed *p, double cost_ns, double passed_ns)
{
	double costs = MIN(cost_ns / passed_ns, 1.0) * (double)WINDOW_FIRST_NS;

	p->means = (struct window_means){};
	means_add(p, &(struct window_means){1, (double)WINDOW_FIRST_NS, costs, costs, costs});
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
	p->need += ((double)spent / passed - p->need) * MIN(passed / 1e9, 1.0);
	pay(a, p, passed, (double)spent);
	set_walks(a, p, (double)walks_ns(a, p->pid) / (double)(now - p->begin_ns), allowance(a, p));
	if (p->credit_ns < 0 && !a->programs.all && !p->is_busy) {
		means_begin(p, (double)spent, passed);
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

static double window_ns(const struct probed *p)
{
	double share = p->means.most_ns / p->means.open_ns;
	double length = share > 0 ? WINDOW_MIN_NS * pow(WINDOW_SHARE / share, 2) : WINDOW_MAX_NS;

	length = MIN(length, WINDOW_MIN_NS * p->means.windows * p->means.windows);
	return MIN(MAX(length, WINDOW_MIN_NS), WINDOW_MAX_NS);
}

static void open_window(struct allocs *a, struct probed *p)
{
	int r;

	p->window = ++a->windows ? a->windows : ++a->windows;
	p->state = PROBED_OPENING;
	p->due_ns = ~0ULL;
	set_process(a, p, false);
	r = probes_insert(a, p);
	if (r < 0)
		give_up(a, p, r);
}

/* All probes are there. */
static void begin_window(struct allocs *a, struct probed *p)
{
	u64 cost = read_threads(a) == 0 ? cost_ns(a, p->pid) : 0;

	p->outside_ns = cost > p->closed_ns ? cost - p->closed_ns : 0;
	forget_threads(a, p->pid);
	p->state = PROBED_WINDOW;
	set_process(a, p, true);
	p->begin_ns = clock_ns(CLOCK_MONOTONIC);
	p->wanted_ns = (u64)window_ns(p);
	p->due_ns = p->begin_ns + p->wanted_ns;
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

static struct thread_time *time_of(struct probed *p, u32 tid)
{
	vec_foreach (&p->times, t)
		if (t->tid == tid)
			return t;
	if (p->times.n == MAX_TIMES)
		vec_clear(&p->times);
	return vec_push(&p->times, (struct thread_time){.tid = tid}) == 0
		       ? &p->times.data[p->times.n - 1]
		       : NULL;
}

/*
 * The same of the time since the thread's last window. In a short window a thread may have been on
 * a CPU only once: what it waited for that, before its first call and after its last one, no call
 * has seen.
 */
static double stretch_between(struct probed *p, u32 tid)
{
	struct thread_time *last = time_of(p, tid), now = {.tid = tid}, since;

	if (!last || proc_schedstat_read(p->pid, tid, &now.cpu_ns, &now.delay_ns) < 0)
		return 1;
	since = (struct thread_time){.cpu_ns = now.cpu_ns - last->cpu_ns,
				     .delay_ns = now.delay_ns - last->delay_ns};
	*last = now;
	return (s64)since.cpu_ns > 0 && (s64)since.delay_ns > 0
		       ? 1 + (double)since.delay_ns / (double)since.cpu_ns
		       : 1;
}

static u64 stretched_ns(const struct allocs *a, const struct alloc_thread *t)
{
	return (u64)((double)traps_ns(a, t) * stretch(t));
}

/* Of a thread's time. */
static u64 taken_ns(const struct allocs *a, const struct alloc_thread *t)
{
	return stretched_ns(a, t) + t->walk_ns;
}

/*
 * A window stays open for longer by the time that probes have taken from the busiest thread. Else
 * what follows a burst of calls would hardly ever be seen: a window that opens before the burst
 * would end in it.
 */
static bool goes_on(struct allocs *a, struct probed *p, u64 now)
{
	u64 passed = now - p->begin_ns, most = 0, left;

	if (passed >= p->wanted_ns + STALL_MAX_NS || p->means.windows < STALL_WINDOWS ||
	    p->means.most_ns > STALL_SHARE * p->means.open_ns || read_threads(a) < 0)
		return false;
	for (size_t i = 0; i < a->threads.n; i++)
		if (a->thread_keys.data[i] >> 32 == p->pid)
			most = MAX(most, taken_ns(a, &a->threads.data[i]));
	left = passed > most ? passed - most : 0;
	if (left * 10 >= p->wanted_ns * 9)
		return false;
	p->due_ns = now + MAX(p->wanted_ns - left, STALL_STEP_NS);
	return true;
}

/* Fills the report's threads. Returns what probes have taken of the one that they took most of. */
static u64 report_threads(struct allocs *a, struct probed *p, struct alloc_report *r)
{
	u64 most = 0;

	for (size_t i = 0; i < a->threads.n; i++) {
		const struct alloc_thread *t = &a->threads.data[i];
		struct alloc_thread_cost c = {
			.tid = (u32)a->thread_keys.data[i],
			.walks_ns = t->walk_ns, /* by the clock */
		};
		double between;

		if (a->thread_keys.data[i] >> 32 != p->pid)
			continue;
		between = stretch_between(p, c.tid);
		c.traps_ns = (u64)((double)traps_ns(a, t) * MAX(stretch(t), between));
		if (vec_push(&r->threads, c) < 0)
			log_warn_rarely("out of memory: allocations seem to be fewer");
		most = MAX(most, c.traps_ns + c.walks_ns);
	}
	return most;
}

/* The time until the next window, so that all windows keep the budget. */
static double gap_ns(struct allocs *a, const struct probed *p)
{
	const struct window_means *m = &p->means;
	double allowed = allowance(a, p), mean, back;

	if (allowed <= 0)
		return GAP_MAX_NS;
	mean = MAX(m->spent_ns / allowed - m->open_ns, 0) / m->windows;
	back = p->credit_ns > 0 ? pow(CREDIT_FULL, -p->credit_ns / credit_max_ns(a, p))
				: exp2(-p->credit_ns / (allowed * CREDIT_BACK_S * 1e9));
	mean = MIN(mean * back, GAP_FIRST_NS * m->windows);
	return MIN(mean * (0.5 + random_part(a)), GAP_MAX_NS);
}

static bool fits(const struct allocs *a, const struct probed *p)
{
	return p->means.windows >= ALWAYS_WINDOWS * 0.75 && p->credit_ns > 0 &&
	       p->need < ALWAYS_SHARE * allowance(a, p);
}

static void return_to_always(struct allocs *a, struct probed *p)
{
	forget_threads(a, p->pid);
	p->cost_ns = 0;
	open_always(a, p);
	if (p->state == PROBED_ALWAYS)
		send_report(a, &(struct alloc_report){.image = p->image,
						      .pid = p->pid,
						      .always = true,
						      .begin_ns = p->begin_ns});
}

static void close_window(struct allocs *a, struct probed *p)
{
	struct alloc_report r = {.image = p->image,
				 .pid = p->pid,
				 .number = p->window,
				 .begin_ns = p->begin_ns,
				 .low = COST_LOW,
				 .high = COST_HIGH};
	double length, costs, spent;
	u64 most;

	set_process(a, p, false);
	r.end_ns = clock_ns(CLOCK_MONOTONIC);
	if (read_threads(a) < 0)
		a->threads.n = 0;
	most = report_threads(a, p, &r);
	length = (double)(r.end_ns - r.begin_ns);
	p->closed_ns = cost_ns(a, p->pid);
	costs = (double)p->closed_ns;
	spent = costs + (double)p->outside_ns;
	set_walks(a, p, (double)walks_ns(a, p->pid) / length, costs / length);
	probes_remove(a, p);
	r.stands_ns = r.end_ns - p->stands_ns;
	p->stands_ns = r.end_ns;
	p->state = PROBED_NOT;
	send_report(a, &r);
	means_add(p, &(struct window_means){1, length, costs, (double)most, spent});
	pay(a, p, tick_cpu(p, p->stands_ns), spent);
	share_budget(a, p->stands_ns);
	p->due_ns = clock_ns(CLOCK_MONOTONIC) + (u64)gap_ns(a, p);
	log_debug("process %u: probes take %.4f CPUs in windows, %.5f are allowed, %.1f ms are "
		  "left",
		  p->pid, p->need, allowance(a, p), p->credit_ns / 1e6);
}

static void open_next(struct allocs *a, struct probed *p)
{
	if (p->is_busy)
		p->due_ns = clock_ns(CLOCK_MONOTONIC) + BUSY_NS;
	else if (fits(a, p))
		return_to_always(a, p);
	else
		open_window(a, p);
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
	a->shared_ns = 0;
}

void windows_add(struct allocs *a, u64 image, u32 pid, struct part *part)
{
	struct probed *p = find(a, image);

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
		p->allowance = POOR_PART * a->budget;
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
	if (p->state != PROBED_ALWAYS)
		return;
	set_process(a, p, true);
	if (!p->is_busy && probes_insert(a, p) < 0)
		log_warn_rarely("out of memory: an allocator of a process is not probed");
}

static void destroy(struct allocs *a, struct probed *p)
{
	(void)map_del(&a->processes, p->image, NULL);
	probed_destroy(a, p);
	count_processes(a);
}

/* Its probes are removed, now or when they are inserted. */
static void end(struct allocs *a, struct probed *p)
{
	if (p->state == PROBED_ALWAYS)
		count_continuous(a, -1);
	p->state = PROBED_NOT;
	p->failed = true;
	if (!p->is_busy)
		probes_remove(a, p);
}

void windows_remove(struct allocs *a, u64 image)
{
	struct probed *p = find(a, image);

	if (!p || p->is_gone)
		return;
	(void)bpf_map_delete_elem(a->programs.processes, &p->pid);
	end(a, p);
	p->is_gone = true;
}

static u32 n_probed(const struct probed *p)
{
	u32 n = 0;

	vec_foreach (&p->parts, part)
		n += part->probes.session >= 0 || part->probes.links.n;
	return n;
}

static void take_inserted(struct allocs *a, struct probed *p, struct work *w)
{
	vec_foreach (&w->items, item) {
		p->parts.data[item->part].probes = item->probes;
		item->probes = ALLOC_PROBES_NONE;
	}
	if (p->failed) {
		probes_remove(a, p);
		return;
	}
	if (w->result < 0 && !n_probed(p)) {
		if (p->state == PROBED_ALWAYS)
			count_continuous(a, -1);
		set_process(a, p, false);
		give_up(a, p, w->result);
		return;
	}
	if (w->result < 0)
		log_warn("an allocator of process %u is not probed: %s", p->pid,
			 strerror(-w->result));
	if (p->state == PROBED_OPENING)
		begin_window(a, p);
	else if (w->result == 0 && n_probed(p) < p->parts.n)
		(void)probes_insert(a, p);
}

void windows_take_works(struct allocs *a)
{
	struct work *w;

	while ((w = works_done(a))) {
		struct probed *p = find(a, w->image);

		if (p) {
			p->is_busy = false;
			if (w->inserts)
				take_inserted(a, p, w);
			if (p->is_gone && !p->is_busy)
				destroy(a, p);
		}
		work_destroy(w);
	}
}

void windows_close(struct allocs *a, bool all)
{
	map_foreach (&a->processes, slot) {
		struct probed *p = (struct probed *)slot->value;

		if (p->state == PROBED_WINDOW)
			close_window(a, p);
		if (!all || p->failed)
			continue;
		set_process(a, p, false);
		end(a, p);
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
		if (now >= p->due_ns && !goes_on(a, p, now))
			close_window(a, p);
		break;
	case PROBED_OPENING:
		break;
	case PROBED_NOT:
		if (now >= p->due_ns)
			open_next(a, p);
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
	share_budget(a, now);
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
