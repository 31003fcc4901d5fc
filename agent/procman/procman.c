/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of processes, and the order of steps.
 *
 *	alive ──exit──→ exited (a list, exit_linger_ms) ──→ gone
 *	  ↑───exec by another thread, or threads left──┘
 *
 * Nothing is announced while events are handled: process_touch() marks a changed process, and the
 * end of the batch settles and announces each process once.
 */
#include <errno.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>

#include "abi/unwind.h"
#include "agent/procman/internal.h"
#include "base/log.h"

#define NEVER (~0ULL)
#define MS 1000000ULL
#define CPUS_NS (2000 * MS)
#define RESCAN_MIN_NS (500 * MS)
#define RESCAN_COST_FACTOR 10
/*
 * Reading 10,000 processes takes more than half a second, during which the sample ring would not be
 * read. A rescan therefore runs in slices, one per drain, half of the time.
 */
#define RESCAN_SLICE_NS (2 * MS)
/* During an event storm, announce changes after this many rounds. */
#define ROUNDS_MAX 16
#define CPUS_MAX (1u << 16)

static struct process *table_get(const struct procman *pm, u32 pid)
{
	u64 *v = map_get(&pm->by_pid, pid);

	return v ? (struct process *)(uintptr_t)*v : NULL;
}

/* ---- exit ---- */

static void list_exited(struct procman *pm, struct process *p)
{
	if (p->exited)
		return;
	p->exited = true;
	p->exited_next = NULL;
	if (pm->exited_last)
		pm->exited_last->exited_next = p;
	else
		pm->exited_first = p;
	pm->exited_last = p;
}

static void process_exit(struct procman *pm, struct process *p, u64 time_ns)
{
	if (!p->pub.alive)
		return;
	p->pub.alive = false;
	p->pub.exit_ns = time_ns;
	p->gone_due_ns = now_ns() + pm->options.exit_linger_ms * MS;
	list_exited(pm, p);
	process_touch(pm, p);
}

/*
 * The leader has exited, but another thread of the process runs. The process may still be in the
 * list of exited processes; expire_exited() checks that.
 */
static void process_revive(struct procman *pm, struct process *p)
{
	p->pub.alive = true;
	p->pub.ended = p->told_ended = false;
	p->pub.exit_ns = 0;
	process_touch(pm, p);
}

/* Checks in /proc whether a process whose leader has exited still runs. */
static bool process_runs_on(struct procman *pm, struct process *p)
{
	if (!p->threads || p->replaced || process_read(pm, p) < 0)
		return false;
	process_revive(pm, p);
	return true;
}

static void table_remove(struct procman *pm, struct process *p)
{
	struct process *at = table_get(pm, p->pub.pid);

	if (at == p) {
		if (p->pub.older)
			map_put(&pm->by_pid, p->pub.pid, (u64)(uintptr_t)p->pub.older);
		else
			map_del(&pm->by_pid, p->pub.pid, NULL);
	}
	for (; at; at = at->pub.older ? process_of(at->pub.older) : NULL)
		if (at->pub.older == &p->pub)
			at->pub.older = p->pub.older;
}

static void process_gone(struct procman *pm, struct process *p)
{
	/* It is still in the table, so that the callback can see whether another process has the
	 * pid. */
	tell_gone(pm, p);
	table_remove(pm, p);
	for (size_t i = 0; p->young && i < pm->young.n; i++)
		if (pm->young.data[i] == p)
			pm->young.data[i--] = pm->young.data[--pm->young.n];
	process_destroy(pm, p);
}

/*
 * The list is ordered by exit time, except for a process that was revived and exited again, which
 * may be removed late.
 */
static void expire_exited(struct procman *pm, u64 now)
{
	struct process *p;

	while ((p = pm->exited_first) && (p->pub.alive || p->gone_due_ns <= now)) {
		pm->exited_first = p->exited_next;
		if (!pm->exited_first)
			pm->exited_last = NULL;
		p->exited = false;
		if (p->pub.alive || process_runs_on(pm, p))
			continue;
		/* Announce its changes first. */
		if (p->dirty)
			list_exited(pm, p);
		else
			process_gone(pm, p);
	}
}

/* ---- the table ---- */

/* Enters a new process in place of an earlier one with the same pid. */
static int table_add(struct procman *pm, struct process *p, u64 time_ns)
{
	struct process *old = table_get(pm, p->pub.pid);

	if (map_put(&pm->by_pid, p->pub.pid, (u64)(uintptr_t)p) < 0)
		return -ENOMEM;
	if (old) {
		process_exit(pm, old, time_ns);
		old->replaced = true;
		/* Its end is announced before the new process. */
		process_touch(pm, old);
		p->pub.older = &old->pub;
	}
	return 0;
}

static struct process *process_add(struct procman *pm, u32 pid, u64 time_ns)
{
	struct process *p = process_create(pm, pid);

	if (!p)
		return NULL;
	p->pub.start_ns = p->pub.image_ns = time_ns;
	if (table_add(pm, p, time_ns) < 0) {
		pm->stats.out_of_memory++;
		process_destroy(pm, p);
		return NULL;
	}
	process_touch(pm, p);
	return p;
}

/* Creates a process from /proc only. -ESRCH: there is none. */
static int process_add_read(struct procman *pm, u32 pid, struct process **ret)
{
	struct process *p = process_create(pm, pid);
	size_t n_dirty = pm->dirty.n;
	int r;

	if (!p)
		return -ENOMEM;
	r = process_read(pm, p);
	if (r == 0)
		r = table_add(pm, p, p->read_ns);
	if (r < 0) {
		/* process_read() has marked only this process. */
		pm->dirty.n = n_dirty;
		process_destroy(pm, p);
		return r;
	}
	process_touch(pm, p);
	*ret = p;
	return 0;
}

/* ---- records ---- */

static bool is_old_news(const struct process *p, const struct sideband *r)
{
	return r->time_ns < p->read_ns;
}

/* Returns the process of an event, even if its fork was not seen. */
static struct process *process_of_event(struct procman *pm, const struct sideband *r)
{
	struct process *p = table_get(pm, r->pid);

	if (p)
		return p;
	p = process_add(pm, r->pid, r->time_ns);
	if (p)
		p->wants_maps = true;
	return p;
}

static void record_fork(struct procman *pm, const struct sideband *r)
{
	struct process *old = table_get(pm, r->pid), *parent = table_get(pm, r->ppid), *p;

	if (r->pid == r->ppid) {
		if (old)
			old->threads = true;
		return;
	}
	pm->stats.forks++;
	/* It was found in /proc before its event was read, or events are slightly out of order. */
	if (old && (is_old_news(old, r) || r->time_ns < old->pub.start_ns))
		return;
	p = process_add(pm, r->pid, r->time_ns);
	if (!p)
		return;
	p->pub.ppid = r->ppid;
	if (parent)
		process_inherit(pm, p, parent);
	else
		p->wants_maps = true;
}

static void record_comm(struct procman *pm, const struct sideband *r)
{
	struct process *p;

	if (r->pid != r->tid)
		return;
	p = process_of_event(pm, r);
	if (!p || is_old_news(p, r))
		return;
	if (!r->exec) {
		process_set_comm(pm, p, r->name);
		return;
	}
	pm->stats.execs++;
	/* The leader has exited, and another thread took its pid by an exec. */
	if (!p->pub.alive)
		process_revive(pm, p);
	process_exec(pm, p, r);
}

static void record_mmap(struct procman *pm, const struct sideband *r)
{
	struct process *p = process_of_event(pm, r);

	if (p && !is_old_news(p, r))
		process_map(pm, p, r);
}

static void record_exit(struct procman *pm, const struct sideband *r)
{
	struct process *p = table_get(pm, r->pid);

	if (!p || is_old_news(p, r))
		return;
	if (r->pid == r->tid) {
		pm->stats.exits++;
		p->leader_exited = true;
	}
	/* Threads may outlive their leader; process_settle() finds out whether this was the last
	 * one. */
	if (p->leader_exited && p->pub.alive)
		process_exit(pm, p, r->time_ns);
	else if (!p->pub.alive)
		p->pub.exit_ns = r->time_ns;
}

void procman_handle(struct procman *pm, const struct sideband *r, struct ring *ring)
{
	if (r->type == SIDEBAND_LOST) {
		u64 before = pm->stats.events_lost;

		ring_note_lost(ring, r->lost, &pm->stats.events_lost);
		if (pm->stats.events_lost != before)
			pm->rescan_due_ns = 0;
		return;
	}
	/* The idle task, and processes outside of this PID namespace. */
	if (r->pid == 0 || r->pid == UINT32_MAX)
		return;
	switch (r->type) {
	case SIDEBAND_FORK:
		record_fork(pm, r);
		break;
	case SIDEBAND_COMM:
		record_comm(pm, r);
		break;
	case SIDEBAND_MMAP:
		record_mmap(pm, r);
		break;
	case SIDEBAND_EXIT:
		record_exit(pm, r);
		break;
	default:
		break;
	}
}

/* ---- reading all of /proc ---- */

static void rescan_pid(struct procman *pm, u32 pid)
{
	struct process *p = table_get(pm, pid);

	/* An exec may have been missed, and one that leaves start_stack as it was is not seen. */
	if (p && p->pub.exec_id) {
		p->pub.exec_id = 0;
		process_touch(pm, p);
	}
	if (p && (p->pub.alive ? process_read(pm, p) != -ESRCH : process_runs_on(pm, p)))
		p->seen = pm->next_seen;
	else if (process_add_read(pm, pid, &p) == 0)
		p->seen = pm->next_seen;
}

static int list_pid(void *arg, u32 pid)
{
	struct procman *pm = arg;

	return vec_push(&pm->rescan_pids, pid);
}

/*
 * Lost events were mostly about new processes: unknown pids come first, then known ones from the
 * highest pid down.
 */
static void put_newest_first(struct procman *pm)
{
	u32 *pids = pm->rescan_pids.data;
	size_t n = pm->rescan_pids.n, n_new = 0;

	for (size_t i = 0; i < n / 2; i++) {
		u32 pid = pids[i];

		pids[i] = pids[n - 1 - i];
		pids[n - 1 - i] = pid;
	}
	for (size_t i = 0; i < n; i++) {
		u32 pid = pids[i];

		if (table_get(pm, pid))
			continue;
		pids[i] = pids[n_new];
		pids[n_new++] = pid;
	}
}

static int rescan_begin(struct procman *pm)
{
	int r;

	vec_clear(&pm->rescan_pids);
	pm->rescan_next = 0;
	pm->rescan_begin_ns = now_ns();
	pm->rescan_cpu_ns = cpu_now_ns();
	r = proc_list(list_pid, pm);
	if (r < 0) {
		vec_clear(&pm->rescan_pids);
		return r;
	}
	put_newest_first(pm);
	pm->rescan_cpu_ns = cpu_now_ns() - pm->rescan_cpu_ns;
	pm->next_seen++;
	/* Events lost from here on need another rescan. */
	pm->rescan_due_ns = NEVER;
	return 0;
}

static bool rescan_running(const struct procman *pm)
{
	return pm->rescan_pids.n > 0;
}

static void rescan_end(struct procman *pm)
{
	map_foreach (&pm->by_pid, slot) {
		struct process *p = (struct process *)(uintptr_t)slot->value;

		if (p->pub.alive && p->seen != pm->next_seen &&
		    p->pub.start_ns < pm->rescan_begin_ns)
			process_exit(pm, p, pm->rescan_begin_ns);
	}
	vec_deinit(&pm->rescan_pids);
	pm->rescan_not_before_ns =
		now_ns() + MAX(RESCAN_MIN_NS, pm->rescan_cpu_ns * RESCAN_COST_FACTOR);
}

/* Continues the rescan for max_ns of CPU time. */
static void rescan_some(struct procman *pm, u64 max_ns)
{
	u64 begin = cpu_now_ns(), spent = 0;

	while (pm->rescan_next < pm->rescan_pids.n && spent < max_ns) {
		rescan_pid(pm, pm->rescan_pids.data[pm->rescan_next++]);
		pm->stats.rescanned++;
		spent = cpu_now_ns() - begin;
	}
	pm->rescan_cpu_ns += spent;
	if (pm->rescan_next == pm->rescan_pids.n)
		rescan_end(pm);
}

/* ---- time ---- */

static void timer_set(struct procman *pm, u64 at_ns)
{
	struct itimerspec t = {};

	/* 0 would stop the timer. */
	at_ns = MAX(at_ns, 1ULL);
	if (at_ns == pm->timer_ns || pm->options.polled)
		return;
	pm->timer_ns = at_ns;
	if (at_ns != NEVER) {
		t.it_value.tv_sec = (time_t)(at_ns / 1000000000ULL);
		t.it_value.tv_nsec = (long)(at_ns % 1000000000ULL);
	}
	timerfd_settime(pm->timer_fd, TFD_TIMER_ABSTIME, &t, NULL);
}

void procman_due_now(struct procman *pm)
{
	timer_set(pm, 1);
}

static void timer_update(struct procman *pm)
{
	u64 at = binaries_due_ns(&pm->binaries, pm->options.binary_linger_ms * MS);

	if (pm->exited_first)
		at = MIN(at, pm->exited_first->gone_due_ns);
	if (rescan_running(pm))
		at = MIN(at, pm->rescan_slice_due_ns);
	else if (pm->rescan_due_ns != NEVER)
		at = MIN(at, MAX(pm->rescan_due_ns, pm->rescan_not_before_ns));
	if (!pm->options.no_events)
		at = MIN(at, pm->cpus_due_ns);
	vec_foreach (&pm->young, p)
		at = MIN(at, (*p)->young_due_ns);
	vec_foreach (&pm->dirty, p)
		at = MIN(at, (*p)->announce_due_ns);
	timer_set(pm, at);
}

static void grow_young(struct procman *pm, u64 now)
{
	for (size_t i = 0; i < pm->young.n; i++) {
		struct process *p = pm->young.data[i];

		if (now < p->young_due_ns)
			continue;
		process_grown(pm, p);
		if (p->pub.alive && ++p->n_looks < ARRAY_SIZE(exec_looks_ns)) {
			p->young_due_ns = p->pub.image_ns + exec_looks_ns[p->n_looks];
			continue;
		}
		p->young = false;
		pm->young.data[i--] = pm->young.data[--pm->young.n];
	}
}

/* ---- the public functions ---- */

static u64 handle_events(struct procman *pm, u64 until_ns)
{
	struct event_ref e;
	const u8 *bytes;
	u64 n = 0;

	while (round_next(&pm->round, until_ns, &e, &bytes)) {
		struct sideband r;

		n++;
		if (sideband_parse(bytes, e.n, &r) < 0)
			pm->stats.events_damaged++;
		else
			procman_handle(pm, &r, &pm->round.rings.data[e.ring]);
	}
	pm->stats.events += n;
	return n;
}

int procman_drain(struct procman *pm)
{
	u64 n = 0, now;
	u64 expirations;

	if (now_ns() >= pm->timer_ns) {
		if (read(pm->timer_fd, &expirations, sizeof(expirations)) < 0 && errno != EAGAIN)
			return -errno;
		pm->timer_ns = NEVER;
	}
	for (int round = 1; round <= ROUNDS_MAX; round++) {
		u64 begin = now_ns(), lost = pm->stats.events_lost, bad = pm->stats.events_damaged;
		int r = round_fill(&pm->round, &pm->stats.events_lost, &pm->stats.events_damaged);

		if (r < 0)
			pm->stats.out_of_memory++;
		if (pm->stats.events_lost != lost || pm->stats.events_damaged != bad)
			pm->rescan_due_ns = 0;
		if (!round_pending(&pm->round))
			break;
		n += handle_events(pm, round == ROUNDS_MAX ? NEVER : begin);
	}
	now = now_ns();
	grow_young(pm, now);
	if (now >= pm->cpus_due_ns && !pm->options.no_events) {
		cpus_update(pm);
		pm->cpus_due_ns = now + CPUS_NS;
	}
	if (!rescan_running(pm) && pm->rescan_due_ns <= now && pm->rescan_not_before_ns <= now) {
		pm->stats.rescans++;
		(void)rescan_begin(pm);
	}
	if (rescan_running(pm) && pm->rescan_slice_due_ns <= now) {
		rescan_some(pm, RESCAN_SLICE_NS);
		pm->rescan_slice_due_ns = now_ns() + RESCAN_SLICE_NS;
	}
	tell_changes(pm);
	expire_exited(pm, now);
	binaries_expire(&pm->binaries,
			now > pm->options.binary_linger_ms * MS
				? now - pm->options.binary_linger_ms * MS
				: 0,
			tell_binary_gone, pm);
	timer_update(pm);
	return (int)MIN(n, (u64)INT32_MAX);
}

int procman_scan(struct procman *pm)
{
	int r = rescan_begin(pm);

	if (r < 0)
		return r;
	rescan_some(pm, NEVER);
	tell_changes(pm);
	timer_update(pm);
	return 0;
}

int procman_fd(const struct procman *pm)
{
	return pm->epoll_fd;
}

struct procman_process *procman_find(struct procman *pm, u32 pid)
{
	struct process *p = table_get(pm, pid), *fresh;

	if (p && (p->pub.alive || process_runs_on(pm, p)))
		return &p->pub;
	if (pid && process_add_read(pm, pid, &fresh) == 0) {
		procman_due_now(pm);
		return &fresh->pub;
	}
	return p ? &p->pub : NULL;
}

struct procman_process *procman_known(const struct procman *pm, u32 pid)
{
	struct process *p = table_get(pm, pid);

	return p ? &p->pub : NULL;
}

struct procman_process *procman_find_at(struct procman *pm, u32 pid, u64 time_ns)
{
	struct process *p = table_get(pm, pid);

	for (; p; p = p->pub.older ? process_of(p->pub.older) : NULL)
		if (p->pub.start_ns <= time_ns && (p->pub.alive || time_ns <= p->pub.exit_ns))
			return &p->pub;
	return procman_find(pm, pid);
}

int procman_each(struct procman *pm, int (*fn)(void *arg, struct procman_process *p), void *arg)
{
	map_foreach (&pm->by_pid, slot) {
		struct process *p = (struct process *)(uintptr_t)slot->value;

		for (; p; p = p->pub.older ? process_of(p->pub.older) : NULL) {
			int r = fn(arg, &p->pub);

			if (r != 0)
				return r;
		}
	}
	return 0;
}

struct procman_binary *procman_binary_of_id(const struct procman *pm, u32 file_id)
{
	u64 *v = map_get(&pm->binaries.by_id, file_id);

	return v ? &((struct binary *)(uintptr_t)*v)->pub : NULL;
}

void procman_get_stats(const struct procman *pm, struct procman_stats *ret)
{
	*ret = pm->stats;
	ret->bytes = pm->stats.processes * sizeof(struct process) +
		     pm->stats.mappings * sizeof(struct procman_mapping);
	for (const struct binary *b = pm->binaries.all; b; b = b->all_next)
		ret->bytes += sizeof(*b) + (b->pub.elf ? elf_file_memory(b->pub.elf) : 0);
}

#define COUNTER(member, help) STAT_COUNTER(struct procman_stats, member, help)
#define GAUGE(member, help) STAT_GAUGE(struct procman_stats, member, help)
const struct stat_field procman_stat_fields[] = {
	GAUGE(processes, "Known processes, including exited ones that linger."),
	GAUGE(mappings, "Known executable mappings; shared ones count once."),
	GAUGE(binaries, "Mapped files and other mapped code."),
	GAUGE(cpus, "CPUs whose process events are read."),
	COUNTER(events, "Process events read."),
	COUNTER(events_lost, "Process events that the kernel dropped because a ring was full."),
	COUNTER(events_damaged, "Process events that could not be parsed."),
	COUNTER(rescans,
		"Times that all processes were read again because of lost events or a new CPU."),
	COUNTER(rescanned, "Processes read by these rescans, and at the start."),
	COUNTER(refreshes, "Times that one process was read again."),
	COUNTER(forks, "Processes forked."),
	COUNTER(execs, "Programs started."),
	COUNTER(exits, "Processes ended."),
	COUNTER(opened, "Mapped files opened."),
	COUNTER(open_failed, "Failed attempts to open mapped files."),
	COUNTER(mappings_dropped, "Mappings omitted because a process has too many."),
	GAUGE(bytes, "Memory of processes, mappings and open files, approximately."),
	COUNTER(file_ids, "Ids given to files."),
	COUNTER(file_ids_out, "Files without an id because all ids were in use."),
	COUNTER(out_of_memory, "Times that data of a process was omitted for lack of memory."),
	COUNTER(read_failed, "Processes whose files in /proc could not be read."),
	{},
};
#undef COUNTER
#undef GAUGE

static u32 or_default(u32 v, u32 default_value)
{
	return v ? v : default_value;
}

static int procman_init(struct procman *pm, const struct procman_options *o)
{
	struct epoll_event ev = {.events = EPOLLIN};
	int r;

	pm->options = (struct procman_options){
		.ring_bytes = or_default(o->ring_bytes, 256u << 10),
		.wakeup_bytes = or_default(o->wakeup_bytes, 1),
		.exit_linger_ms = or_default(o->exit_linger_ms, 5000),
		.binary_linger_ms = or_default(o->binary_linger_ms, 10000),
		.max_mappings = or_default(o->max_mappings, 1u << 18),
		.max_all_mappings = o->max_all_mappings,
		.no_events = o->no_events,
		.polled = o->polled,
		.execs_told = o->execs_told,
		.is_wanted = o->is_wanted,
		.arg = o->arg,
	};
	pm->rescan_due_ns = pm->timer_ns = NEVER;
	pm->cpus_due_ns = now_ns() + CPUS_NS;
	pm->next_set_id = 1;
	/* Another procman starts above all of these, which take less than one per nanosecond. */
	pm->next_image = now_ns();
	binaries_init(&pm->binaries, UNWIND_MAX_FILES, &pm->stats);
	pm->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (pm->epoll_fd < 0)
		return -errno;
	pm->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (pm->timer_fd < 0)
		return -errno;
	if (epoll_ctl(pm->epoll_fd, EPOLL_CTL_ADD, pm->timer_fd, &ev) < 0)
		return -errno;
	if (o->no_events)
		return 0;
	r = cpus_update(pm);
	pm->rescan_due_ns = NEVER;
	if (r == 0 && !pm->round.rings.n)
		r = -ENODEV;
	return r;
}

int procman_create(const struct procman_options *options, struct procman **ret)
{
	_cleanup_procman_ struct procman *pm = calloc(1, sizeof(*pm));
	int r;

	if (!pm)
		return -ENOMEM;
	pm->epoll_fd = pm->timer_fd = -1;
	r = procman_init(pm, options);
	if (r < 0)
		return r;
	*ret = take_ptr(pm);
	return 0;
}

void procman_destroy(struct procman *pm)
{
	if (!pm)
		return;
	map_foreach (&pm->by_pid, slot) {
		struct process *p = (struct process *)(uintptr_t)slot->value, *next;

		for (; p; p = next) {
			next = p->pub.older ? process_of(p->pub.older) : NULL;
			tell_gone(pm, p);
			process_destroy(pm, p);
		}
	}
	binaries_deinit(&pm->binaries, tell_binary_gone, pm);
	round_deinit(&pm->round);
	map_deinit(&pm->by_pid);
	vec_deinit(&pm->dirty);
	vec_deinit(&pm->young);
	vec_deinit(&pm->rescan_pids);
	if (pm->timer_fd >= 0)
		close(pm->timer_fd);
	if (pm->epoll_fd >= 0)
		close(pm->epoll_fd);
	free(pm);
}
