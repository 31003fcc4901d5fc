/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/pipeline/pipeline.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#include "agent/pipeline/alloc.h"
#include "agent/pipeline/armed.h"
#include "agent/pipeline/batch.h"
#include "agent/pipeline/deferred.h"
#include "agent/pipeline/heap.h"
#include "agent/pipeline/later.h"
#include "agent/pipeline/processes.h"
#include "agent/pipeline/records.h"
#include "agent/pipeline/resident.h"
#include "agent/pipeline/tasks.h"
#include "agent/pipeline/trace.h"
#include "agent/pipeline/wakers.h"
#include "base/clock.h"
#include "base/vocab.h"

#define DEFAULT_TABLE_BYTES (256ULL << 20)
/* Mappings of all processes take at most one part in MAPPINGS_SHARE of the memory limit. */
#define MAPPINGS_SHARE 16
/* At rates up to this one the ring is read half as often. */
#define LOW_HZ 25
/* Side-band events are handled within a tenth of the sampling interval. */
#define GAP_SHARE 10
#define GAP_MAX_NS 5000000ULL
#define TELL_NS 5000000000ULL
/* Limit on copies of stacks of parked walks. Above it walks end where a page is missing. */
#define PARKED_MAX_BYTES (32ULL << 20)

/* Limit on the stacks of a script; further ones are lost. */
#define TRACE_MAX_BYTES (512ULL << 20)

/*
 * How long to wait for parked walks at the end of a period, which becomes longer, and at the end of
 * the recording. A page is built in 50 ms if a CPU is free.
 */
#define TAKE_MAX_NS 500000000ULL
#define STOP_MAX_NS 2000000000ULL

/* A look at least so often, in parts of the time so far. */
#define LOOK_SHARE 10
#define LOOK_MIN_NS 50000000ULL
#define LOOK_MAX_NS 1000000000ULL

u64 pipeline_next_look_ns(u64 began_ns, u64 look_ns, u64 parts)
{
	u64 gap = MIN(MAX((look_ns - began_ns) / LOOK_SHARE, LOOK_MIN_NS), LOOK_MAX_NS);
	u64 end_ns = clock_ns(CLOCK_MONOTONIC);

	return end_ns + MAX(gap, (end_ns - look_ns) * parts);
}

u64 pipeline_note_stall(struct pipeline *p, u64 begin_ns, const char *what)
{
	u64 now = clock_ns(CLOCK_MONOTONIC);

	if (now - begin_ns > p->stall_ns) {
		p->stall_ns = now - begin_ns;
		p->stall_what = what;
	}
	return now;
}

void pipeline_set_urgent(struct pipeline *p, bool urgent)
{
	if (urgent)
		p->nice = getpriority(PRIO_PROCESS, 0);
	(void)setpriority(PRIO_PROCESS, 0, urgent ? -20 : p->nice);
}

static u32 runtime_of(void *arg, const struct procman_process *proc,
		      const struct procman_mapping *m)
{
	struct pipeline *p = arg;

	return runtimes_of_mapping(p->runtimes, proc, m);
}

static void unmark(void *arg, u32 file_id)
{
	struct pipeline *p = arg;

	tables_unmark(p->tables, file_id);
}

static void on_context_told(void *arg, const struct procman_process *proc, u32 index, u32 n)
{
	struct pipeline *p = arg;

	tables_set_context(p->tables, proc, index);
	sampler_set_contexts(p->sampler, n);
	armed_told(p, proc, index);
}

static void on_process_said(void *arg, const struct procman_process *proc,
			    const struct context_label *labels, u32 n)
{
	struct pipeline *p = arg;

	if (p->process_said)
		p->process_said(p->arg, proc, labels, n);
}

static int watch_fd(struct pipeline *p, int fd)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.fd = fd};

	return epoll_ctl(p->epoll_fd, EPOLL_CTL_ADD, fd, &ev) < 0 ? -errno : 0;
}

static int watch_parts(struct pipeline *p)
{
	int r = watch_fd(p, procman_fd(p->procman));

	if (r == 0)
		r = watch_fd(p, sampler_fd(p->sampler));
	if (r == 0)
		r = watch_fd(p, tables_fd(p->tables));
	return r < 0 ? r : watch_fd(p, runtimes_fd(p->runtimes));
}

static int take_options(struct pipeline *p, const struct pipeline_options *o)
{
	u64 limit = budget_limit(o->budget);

	p->keep_times = o->keep_times;
	p->walks = o->sampler.user_stacks;
	p->parked_max = limit ? MIN(PARKED_MAX_BYTES, limit / 8) : PARKED_MAX_BYTES;
	p->batch_max = limit / 8;
	/* Stacks of a script stay until its end. */
	if (o->sampler.traces && !p->batch_max)
		p->batch_max = TRACE_MAX_BYTES;
	p->process_seen = o->process_seen;
	p->process_said = o->process_said;
	p->jvm_seen = o->jvm_seen;
	p->jvm_flag = o->jvm_flag;
	p->jvm_arg = o->jvm_arg;
	p->interval = o->interval;
	p->arg = o->arg;
	p->requests = o->sampler.requests;
	p->choose = o->choose;
	p->choose_arg = o->choose_arg;
	p->follow = o->sampler.follow_forks && !p->choose;
	p->only_some = o->sampler.n_pids > 0 || p->requests || p->choose;
	for (u32 i = 0; i < o->sampler.n_pids; i++)
		if (map_put(&p->sampled, o->sampler.pids[i], 1) < 0)
			return -ENOMEM;
	return 0;
}

static int create_sampler(struct pipeline *p, const struct pipeline_options *o,
			  struct diag *reterr_diag)
{
	struct sampler_options so = o->sampler;
	int r;

	so.follow_forks |= o->choose != NULL;
	so.limit_bytes = budget_limit(o->budget);
	so.memory = o->budget;
	r = sampler_create(&so, &records_ops, p, reterr_diag, &p->sampler);
	if (r < 0)
		return r;
	p->batch = batch_new(p);
	return p->batch ? 0 : -ENOMEM;
}

/* Creates the parts that tell BPF about processes. */
static int create_parts(struct pipeline *p, const struct pipeline_options *o,
			struct diag *reterr_diag)
{
	struct contexts_options co = {.processes_fd = sampler_contexts_fd(p->sampler),
				      .told = on_context_told,
				      .said = on_process_said,
				      .arg = p};
	struct runtimes_options ro = {.unmark = unmark, .arg = p, .budget = o->budget};
	struct tables_options to = {.parsers = o->parsers,
				    .arena_fd = sampler_arena_fd(p->sampler),
				    .processes_fd = sampler_processes_fd(p->sampler),
				    .budget_bytes = o->memory_limit_bytes ? o->memory_limit_bytes
									  : DEFAULT_TABLE_BYTES,
				    .max_section = o->max_section,
				    .budget = o->budget,
				    .cache_dir = o->cache_dir,
				    .runtime_of = runtime_of,
				    .arg = p};
	int r = contexts_create(&co, &p->contexts);

	sampler_runtime_fds(p->sampler, &ro.binaries_fd, &ro.processes_fd, &ro.locks_fd);
	if (r == 0)
		r = runtimes_create(&ro, &p->runtimes);
	if (r < 0)
		return r;
	r = tables_create(&to, &p->tables);
	if (r < 0)
		return diag_set(reterr_diag, r, "cannot create the maps of the unwind tables: %s",
				strerror(-r));
	tables_set_tight(p->tables, o->tight_memory);
	return 0;
}

static int create_procman(struct pipeline *p, const struct pipeline_options *o,
			  struct diag *reterr_diag)
{
	/* Wakes for each new mapping, whose event has at least 96 bytes: until the event is
	 * handled, samples in new code are walked with old rows. Does not wake for each new or
	 * ended thread: 40 bytes. */
	struct procman_options po = {
		.wakeup_bytes = 88,
		.polled = p->requests,
		.execs_told = true,
		.is_wanted = processes_include,
		.arg = p,
		.max_all_mappings =
			budget_limit(o->budget) / MAPPINGS_SHARE / sizeof(struct procman_mapping),
		.ring_bytes = sampler_sizes(p->sampler)->event_ring_bytes,
	};
	int r;

	/* Most of the machine's processes are of no concern, and none is urgent. */
	if (p->requests)
		po.wakeup_bytes = po.ring_bytes / 2;
	r = procman_create(&po, &p->procman);
	if (r == 0)
		r = processes_listen(p);
	if (r < 0)
		return diag_set(reterr_diag, r, "cannot follow processes by perf events: %s",
				strerror(-r));
	return 0;
}

int pipeline_create(const struct pipeline_options *o, struct diag *reterr_diag,
		    struct pipeline **ret)
{
	_cleanup_pipeline_ struct pipeline *p = calloc(1, sizeof(*p));
	int r;

	if (!p)
		return -ENOMEM;
	p->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (p->epoll_fd < 0)
		return -errno;
	r = take_options(p, o);
	if (r == 0)
		r = create_sampler(p, o, reterr_diag);
	if (r == 0)
		r = create_parts(p, o, reterr_diag);
	if (r == 0)
		r = pipeline_tasks_create(p, o);
	if (r == 0)
		r = pipeline_resident_create(p, o);
	if (r == 0)
		r = pipeline_heap_create(p, o);
	if (r == 0)
		r = pipeline_alloc_create(p, o, reterr_diag);
	if (r == 0)
		r = pipeline_trace_create(p, o);
	if (r == 0)
		r = create_procman(p, o, reterr_diag);
	if (r == 0)
		r = watch_parts(p);
	if (r < 0)
		return r;
	*ret = take_ptr(p);
	return 0;
}

void pipeline_destroy(struct pipeline *p)
{
	if (!p)
		return;
	/* Freeing takes a third of a second of CPU while the user waits; at low priority it took 12
	 * seconds. */
	pipeline_set_urgent(p, true);
	deferred_drop_parked(p);
	wakers_deinit(p);
	pipeline_tasks_destroy(p);
	pipeline_resident_destroy(p);
	pipeline_heap_destroy(p);
	pipeline_alloc_destroy(p);
	pipeline_trace_destroy(p);
	pipeline_give_back(p, p->batch);
	procman_destroy(p->procman);
	tables_destroy(p->tables);
	runtimes_destroy(p->runtimes);
	contexts_destroy(p->contexts);
	sampler_destroy(p->sampler);
	map_deinit(&p->sampled);
	map_deinit(&p->publishing);
	later_deinit(p);
	if (p->epoll_fd >= 0)
		close(p->epoll_fd);
	pipeline_set_urgent(p, false);
	free(p);
}

/* Counts the samples of a source that are in no profile, since the start. */
static u64 count_lost(const struct pipeline *p, u32 source)
{
	u64 n = 0;

	for (u32 i = 0; i < COUNTER_N; i++)
		if (vocab_counter(i)->loss == COUNTER_LOSS_SAMPLE)
			n += sampler_counter(p->sampler, source, (enum counter)i);
	return n;
}

struct pipeline_batch *pipeline_take(struct pipeline *p)
{
	struct pipeline_batch *fresh = batch_new(p), *b = p->batch;

	if (!fresh)
		return NULL;
	/* Samples in the ring refer to stacks sent before them. In the new epoch BPF sends all
	 * stacks again. */
	(void)sampler_drain(p->sampler);
	deferred_finish_parked(p, TAKE_MAX_NS, records_count_walk);
	/*
	 * Samples that arrived while pages were loaded. What counts memory reads the ring, too: a
	 * walk that was parked there would be counted in the new batch, which lacks its wakers.
	 */
	p->closing = true;
	(void)sampler_drain(p->sampler);
	resident_count(p, fresh->started_ns);
	heap_count(p, fresh->started_ns);
	alloc_count(p, fresh->started_ns);
	p->closing = false;
	for (u32 i = 0; i < b->n_sampled; i++)
		b->sources[i].period = MAX(b->sources[i].period, sampler_limit(p->sampler, i));
	sampler_new_epoch(p->sampler);
	b->answers = runtimes_take_answers(p->runtimes);
	p->batch = fresh;
	p->before = b;
	later_begin(p);
	(void)sampler_drain(p->sampler);
	later_move(p);
	p->before = NULL;
	b->ended_ns = fresh->started_ns;
	/* The time that the last samples take to be walked is not of the recording. */
	if (p->stopped_ns)
		b->ended_ns = MAX(b->started_ns + 1, MIN(b->ended_ns, p->stopped_ns));
	for (u32 i = 0; i < b->n_sampled; i++) {
		u64 lost = count_lost(p, i);

		b->counts[i].lost += lost - p->lost[i];
		p->lost[i] = lost;
	}
	return b;
}

u64 pipeline_batch_began_ns(const struct pipeline *p)
{
	return p->batch->started_ns;
}

const struct sampler_source *pipeline_source(const struct pipeline *p, u32 i)
{
	return sampler_source(p->sampler, i);
}

struct contexts *pipeline_contexts(struct pipeline *p)
{
	return p->contexts;
}

void pipeline_adopt(struct pipeline *p)
{
	pipeline_set_urgent(p, true);
}

static int drain_all(struct pipeline *p)
{
	u64 now = clock_ns(CLOCK_MONOTONIC);
	int r = procman_drain(p->procman);

	if (r < 0)
		return r;
	now = pipeline_note_stall(p, now, "processes");
	if (processes_take_runtimes(p, now >= p->retry_ns)) {
		p->retry_ns = now + PERIOD_MS * 1000000ULL;
		now = pipeline_note_stall(p, now, "runtimes");
	}
	contexts_retry(p->contexts, p->procman);
	now = pipeline_note_stall(p, now, "contexts");
	if (tables_take(p->tables, false) + sampler_take_walkers(p->sampler)) {
		deferred_retry(p, records_count_walk);
		pipeline_note_stall(p, now, "tables");
	}
	if (now >= p->tell_ns) {
		sampler_tell_unended(p->sampler);
		p->tell_ns = now + TELL_NS;
		pipeline_note_stall(p, now, "sleepers");
	}
	tasks_look(p);
	r = sampler_drain(p->sampler);
	/* Write the tables of images that became known, before the reader waits. */
	if (r >= 0 && p->has_execs)
		r = procman_drain(p->procman);
	p->has_execs = false;
	resident_tick(p);
	heap_tick(p);
	alloc_tick(p);
	return r;
}

/*
 * An exec is a dozen events in two milliseconds. The first one is handled at once, so that the
 * process is known; the others together. Waking for each took most of the CPU time of recording at
 * 20 Hz on a busy host.
 */
static void wait_between_drains(const struct pipeline *p)
{
	u64 gap = MIN(1000000000ULL / sampler_hz(p->sampler) / GAP_SHARE, GAP_MAX_NS);
	u64 until = p->drained_ns + gap;
	struct timespec t = {(time_t)(until / 1000000000), (long)(until % 1000000000)};

	if (clock_ns(CLOCK_MONOTONIC) < until)
		(void)clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}

/* Milliseconds until a process's context or tasks are read again, rounded up; at most max_ms. */
static int until_look_ms(const struct pipeline *p, int max_ms)
{
	u64 due = MIN(contexts_due_ns(p->contexts), tasks_due_ns(p));
	u64 left = due > p->drained_ns ? due - p->drained_ns : 0;

	return (int)MIN((left + 999999) / 1000000, (u64)max_ms);
}

int pipeline_poll(struct pipeline *p, int timeout_ms)
{
	int period_ms = p->requests || sampler_hz(p->sampler) <= LOW_HZ ? 2 * PERIOD_MS : PERIOD_MS;
	struct epoll_event events[4];
	int r, n;

	r = drain_all(p);
	p->drained_ns = clock_ns(CLOCK_MONOTONIC);
	if (r < 0)
		return r;
	n = epoll_wait(p->epoll_fd, events, 4, until_look_ms(p, MIN(timeout_ms, period_ms)));
	if (n < 0)
		return errno == EINTR ? 0 : -errno;
	if (n)
		wait_between_drains(p);
	return 0;
}

u32 pipeline_trim(struct pipeline *p, u64 idle_ns, bool is_short)
{
	if (is_short)
		runtimes_trim(p->runtimes);
	return tables_trim(p->tables, idle_ns);
}

void pipeline_pause(struct pipeline *p, bool pause)
{
	sampler_pause(p->sampler, pause);
	tasks_pause(p, pause);
}

void pipeline_stop(struct pipeline *p)
{
	/* So that nothing passes between the last fault and the look at what is resident. */
	if (p->resident)
		deferred_finish_parked(p, STOP_MAX_NS, records_count_walk);
	alloc_stop(p);
	sampler_stop(p->sampler);
	p->stopped_ns = clock_ns(CLOCK_MONOTONIC);
	if (p->resident)
		drain_all(p);
	resident_stop(p);
	heap_stop(p);
	/* Those that are due, and late. */
	tasks_look(p);
	tasks_pause(p, true);
	drain_all(p);
	deferred_finish_parked(p, STOP_MAX_NS, records_count_walk);
	pipeline_set_urgent(p, false);
}

void pipeline_stats(struct pipeline *p, struct pipeline_stats *ret)
{
	struct pipeline_stats s = {
		.counts = pipeline_sum(p->batch),
		.processes = p->batch->pids.n,
		.stall_ns = p->stall_ns,
		.stall_what = p->stall_what,
		.given_up = p->given_up,
	};

	sampler_stats(p->sampler, &s.sampler);
	tables_stats(p->tables, &s.tables);
	procman_get_stats(p->procman, &s.procman);
	runtimes_get_stats(p->runtimes, &s.runtimes);
	contexts_get_stats(p->contexts, &s.contexts);
	tasks_get_stats(p, &s.tasks);
	resident_get_stats(p, &s.resident);
	heap_get_stats(p, &s.heap);
	alloc_get_stats(p, &s.alloc);
	s.counts.lost = 0;
	for (u32 i = 0; i < p->batch->n_sampled; i++) {
		s.sampler.sources[i].counters[COUNTER_NO_ROOM] = p->no_room[i];
		s.sampler.all.counters[COUNTER_NO_ROOM] += p->no_room[i];
		s.counts.lost += count_lost(p, i) + p->no_room[i];
	}
	*ret = s;
}
