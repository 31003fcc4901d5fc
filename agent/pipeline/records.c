/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/pipeline/records.h"

#include <string.h>

#include "agent/pipeline/alloc.h"
#include "agent/pipeline/batch.h"
#include "agent/pipeline/heap.h"
#include "agent/pipeline/later.h"
#include "agent/pipeline/processes.h"
#include "agent/pipeline/resident.h"
#include "agent/pipeline/tasks.h"
#include "agent/pipeline/trace.h"
#include "agent/pipeline/wakers.h"
#include "base/clock.h"
#include "base/log.h"
#include "unwind/host.h"

/* ---- stacks ---- */

u32 records_name_frames(struct pipeline *p, u32 pid, const u64 *frames, u32 n, u64 *ret,
			bool *unnamed)
{
	struct procman_process *proc = NULL;
	u32 n_ret = 0, id;
	int r;

	for (u32 i = 0; i < n; i++) {
		u64 word = frames[i];

		if (word < WORD_RUNTIME) {
			ret[n_ret++] = word;
			continue;
		}
		if (++i >= n)
			break;
		if (!(word & WORD_RUNTIME_ADDRESS)) {
			ret[n_ret++] = WORD_RUNTIME;
			continue;
		}
		proc = proc ? proc : procman_find(p->procman, pid);
		r = runtimes_name(p->runtimes, proc, &frames[i - 1], n - i + 1, &id);
		*unnamed |= r != 0;
		if (r >= 0)
			ret[n_ret++] = (word & ~WORD_RUNTIME_ADDRESS) | id;
	}
	return n_ret;
}

static void mark_unread(struct pipeline_batch *b, u64 id)
{
	const u64 *at = map_get(&b->stack_index, id);

	if (at)
		b->stacks.data[*at].unread = true;
}

static void on_stack(void *arg, const struct record_stack *head, const u64 *frames)
{
	struct pipeline *p = arg;
	bool kernel = head->flags & RECORD_KERNEL, unnamed = false;
	u64 begin = clock_ns(CLOCK_MONOTONIC);
	u32 n = head->n;

	if (!kernel && !map_get(&p->batch->stack_index, head->id)) {
		n = records_name_frames(p, head->pid, frames, n, p->scratch, &unnamed);
		frames = p->scratch;
	}
	if (batch_add_stack(p->batch, p->procman, head->id, frames, n, head->stop, kernel) < 0)
		log_warn_rarely("out of memory: stacks are shown as lost");
	if (unnamed)
		mark_unread(p->batch, head->id);
	if (!kernel)
		trace_see(p, head);
	pipeline_note_stall(p, begin, "names");
}

static void on_attributes(void *arg, const struct record_attributes *head, const u8 *bytes)
{
	struct pipeline *p = arg;
	const struct procman_process *proc = procman_find(p->procman, head->pid);
	struct context_label labels[CONTEXT_MAX_ATTRIBUTES];
	bool partial = true;
	u32 n = 0;

	if (batch_has_attributes(p->batch, head->pid, head->id))
		return;
	if (proc)
		n = contexts_attributes(p->contexts, proc, head, bytes, labels, &partial);
	if (batch_add_attributes(p->batch, head->pid, head->id, labels, n, partial) < 0)
		log_warn("out of memory: samples lack their attributes");
}

static void on_exec(void *arg, const struct record_exec *e)
{
	struct pipeline *p = arg;
	const struct procman_process *proc = procman_known(p->procman, e->pid);

	if (!proc || proc->start_stack)
		procman_drain(p->procman);
	procman_learn_exec(p->procman, e->pid, e->time_ns, e->start_stack, e->exec_id);
	p->has_execs = true;
}

/* ---- samples ---- */

/* Counts how the walk of a user stack ended. */
static void count_stop(struct pipeline_counts *c, const struct pipeline_stack *user, u32 stop)
{
	stop = user ? user->stop : stop;
	c->user_samples++;
	c->stops[stop < STOP_N ? stop : STOP_STACK_LOST]++;
	c->truncated += stop != STOP_COMPLETE;
	c->unread += stop == STOP_COMPLETE && user && user->unread;
}

/* The previous period is not symbolized yet, and this batch has reached its limit. */
static void drop_sample(struct pipeline *p, u32 source)
{
	p->batch->counts[source].lost++;
	p->no_room[source]++;
	log_warn_rarely("samples are lost: one period has reached its memory limit");
}

static void count_part(struct pipeline *p, const struct record_sample *s, u32 stop, u32 wait,
		       s64 value, u32 waker, u64 holds)
{
	struct pipeline_entry e = {
		.key = {.pid = s->pid,
			.tid = s->tid,
			.kernel_stack = s->kernel_stack,
			.user_stack = s->user_stack,
			.context = s->context,
			.source = s->source,
			.wait = wait,
			.waker = waker,
			.object = wait == s->wait ? s->object : (struct wait_object){},
			.holds = holds},
		.count = 1,
		.value = value,
		.bytes = s->bytes,
		.first_ns = s->time_ns};
	const struct procman_process *proc = processes_find_at(p, s->pid, s->time_ns);
	const struct pipeline_stack *user =
		s->user_stack ? pipeline_stack(p->batch, s->user_stack) : NULL;
	struct pipeline_counts *counts = &p->batch->counts[s->source];
	const char *name;
	bool partial, event_partial;
	u32 index = 0;
	s64 event = -1;

	e.key.context.attributes =
		batch_attributes(p->batch, s->pid, s->context.attributes, &partial);
	e.key.event_attributes =
		batch_attributes(p->batch, s->pid, s->event_attributes, &event_partial);
	counts->attributes_left_out += partial || event_partial;
	memcpy(e.key.thread_name, s->comm, strnlen(s->comm, sizeof(s->comm) - 1));
	/* The process's name; the thread's if the process has called exec since, or is unknown. */
	name = proc && proc->comm[0] && proc->image_ns <= s->time_ns ? proc->comm
								     : e.key.thread_name;
	memcpy(e.key.comm, name, strnlen(name, sizeof(e.key.comm) - 1));
	e.key.image = proc ? procman_image_at(proc, s->time_ns) : 0;
	if (batch_count(p->batch, &e, &index) < 0) {
		drop_sample(p, s->source);
		return;
	}
	counts->samples++;
	/* Before an exec there is nothing to be found out about the program that it begins. */
	if (!proc || e.key.image == proc->image)
		processes_see(p, s->pid, proc);
	tasks_see(p, proc);
	heap_see(p, proc);
	if (s->user_stack)
		count_stop(counts, user, stop);
	if (user && user->raw && proc)
		processes_hold_jit_files(p, proc);
	if (p->keep_times && !batch_is_full(p->batch)) {
		event = (s64)p->batch->events.n;
		if (vec_push(&p->batch->events,
			     (struct pipeline_event){s->time_ns, value, s->bytes, index}) < 0) {
			log_warn("out of memory: a sample's time is lost");
			event = -1;
		}
	}
	if (s->later)
		later_expect(p, s->later, index, event);
}

/* Counts a time of which others waited for the thread's lock in the part `held`. */
static void count_parts(struct pipeline *p, const struct record_sample *s, u32 stop, u32 wait,
			s64 value, s64 held, u32 waker)
{
	held = MIN(MAX(held, 0), value);
	if (held)
		count_part(p, s, stop, wait, held, waker, s->holds);
	if (!held || held < value)
		count_part(p, s, stop, wait, value - held, waker, 0);
}

/* Who ended the wait of a sample that has just arrived. */
static u32 find_waker(struct pipeline *p, const struct record_sample *s)
{
	return s->value && s->wait != SAMPLE_WAKES ? wakers_join(p, s) : 0;
}

/* Its pages or its object are counted at the end of the period. */
static void take_memory(struct pipeline *p, const struct record_sample *s, u32 stop)
{
	const struct pipeline_stack *user =
		s->user_stack ? pipeline_stack(p->batch, s->user_stack) : NULL;

	if (s->user_stack)
		count_stop(&p->batch->counts[s->source], user, stop);
	if (s->object.kind == WAIT_OBJECT_PAGES)
		resident_take(p, s);
	else
		alloc_take(p, s);
}

/*
 * Counts a sample. A wait has two parts: until what it waited for happened, and then until it ran.
 */
static void count_sample(struct pipeline *p, const struct record_sample *s, u32 stop, u32 waker)
{
	if (s->object.kind == WAIT_OBJECT_PAGES || s->object.kind == WAIT_OBJECT_ALLOC) {
		take_memory(p, s, stop);
		return;
	}
	if (p->traced) {
		trace_take(p, s);
		return;
	}
	if (s->wait == SAMPLE_WAKES) {
		wakers_note(p, s);
		return;
	}
	if (s->value || !s->queued)
		count_parts(p, s, stop, s->wait, s->value, s->held_value, waker);
	if (s->queued)
		count_parts(p, s, stop, WAIT_RUNNABLE, s->queued, s->held_queued, 0);
}

/* Whether the batch contains the stacks and attributes of the sample. */
static bool has_all(const struct pipeline_batch *b, const struct record_sample *s)
{
	return (!s->kernel_stack || pipeline_stack(b, s->kernel_stack)) &&
	       (!s->user_stack || pipeline_stack(b, s->user_stack)) &&
	       (!s->context.attributes || batch_has_attributes(b, s->pid, s->context.attributes)) &&
	       (!s->event_attributes || batch_has_attributes(b, s->pid, s->event_attributes));
}

/* Copies what the sample refers to from the old batch into the new one. */
static void copy_to_new_batch(struct pipeline *p, const struct record_sample *s)
{
	if (batch_copy_stack(p->batch, p->procman, p->before, s->kernel_stack) < 0 ||
	    batch_copy_stack(p->batch, p->procman, p->before, s->user_stack) < 0)
		log_warn_rarely("out of memory: stacks are shown as lost");
	if (batch_copy_attributes(p->batch, p->before, s->pid, s->context.attributes) < 0 ||
	    batch_copy_attributes(p->batch, p->before, s->pid, s->event_attributes) < 0)
		log_warn("out of memory: samples lack their attributes");
}

/*
 * A sample from the old epoch goes to the batch that holds its stacks. If BPF sent one of them in
 * the old epoch just before the change, each batch holds a part: then to the new batch. Returns the
 * previous p->batch.
 */
static struct pipeline_batch *choose_batch(struct pipeline *p, const struct record_sample *s)
{
	struct pipeline_batch *now = p->batch;

	if (!p->before || has_all(now, s))
		return now;
	if (has_all(p->before, s))
		p->batch = p->before;
	else
		copy_to_new_batch(p, s);
	return now;
}

static void on_sample(void *arg, const struct record_sample *s)
{
	struct pipeline *p = arg;
	struct pipeline_batch *now = choose_batch(p, s);

	count_sample(p, s, STOP_STACK_LOST, find_waker(p, s));
	p->batch = now;
}

static void on_later(void *arg, const struct record_later *l)
{
	later_add(arg, l);
}

static void on_memory(void *arg, const void *record, size_t n)
{
	const struct record_pages *pages = record;
	const struct record_moved *moved = record;
	const struct record_freed *freed = record;

	if (pages->type == RECORD_PAGES && n >= sizeof(*pages))
		resident_pages(arg, pages);
	else if (moved->type == RECORD_MOVED && n >= sizeof(*moved))
		resident_moved(arg, moved);
	else if (freed->type == RECORD_FREED && n >= sizeof(*freed))
		alloc_freed(arg, freed);
}

static void on_interval(void *arg, const struct record_interval *i)
{
	const struct pipeline *p = arg;

	if (p->interval)
		p->interval(p->arg, i);
}

/* ---- deferred walks ---- */

void records_count_walk(struct pipeline *p, const struct deferred_walk *walk)
{
	struct record_sample sample = walk->record->sample;
	const struct pipeline_stack *prefix = pipeline_stack(p->batch, sample.user_stack);
	bool unread = walk->unread || (prefix && prefix->unread);
	u64 id = deferred_stack_id(walk);

	if (tasks_is_own(p, walk))
		return;
	p->batch->counts[sample.source].deferred++;
	if (batch_add_stack(p->batch, p->procman, id, walk->frames, walk->n, walk->stop, false) < 0)
		log_warn_rarely("out of memory: stacks are shown as lost");
	if (unread)
		mark_unread(p->batch, id);
	sample.user_stack = id;
	count_sample(p, &sample, walk->stop, walk->waker);
}

/* Returns whether the walk is parked. */
static bool walk_or_park(struct pipeline *p, struct deferred_walk *walk)
{
	if (deferred_finish(p, walk))
		return false;
	if (deferred_park(p, walk))
		return true;
	deferred_give_up(p, walk);
	return false;
}

void records_walk(struct pipeline *p, const struct record_deferred *d,
		  const struct sampler_copy *copy)
{
	struct deferred_walk walk = {.record = d, .copy = copy, .frames = p->scratch};

	walk.waker = find_waker(p, &d->sample);
	if (!walk_or_park(p, &walk))
		records_count_walk(p, &walk);
}

void records_count_frames(struct pipeline *p, const struct record_sample *s, const u64 *words,
			  u32 n, u32 stop)
{
	struct record_sample sample = *s;
	bool unnamed = false;

	n = records_name_frames(p, s->pid, words, n, p->scratch, &unnamed);
	/* Ids of names are of one process, so that the stack's id is, too. */
	sample.user_stack = unwind_host_stack_id(p->scratch, n, stop);
	if (batch_add_stack(p->batch, p->procman, sample.user_stack, p->scratch, n, stop, false) <
	    0)
		log_warn_rarely("out of memory: stacks are shown as lost");
	if (unnamed)
		mark_unread(p->batch, sample.user_stack);
	count_sample(p, &sample, stop, find_waker(p, &sample));
}

/* A deferred sample is finished in the new batch, even if it is from the old epoch. */
static void on_deferred(void *arg, const struct record_deferred *d, const struct sampler_copy *copy)
{
	struct pipeline *p = arg;
	u64 begin = clock_ns(CLOCK_MONOTONIC);
	const struct pipeline_stack *prefix;
	struct deferred_walk walk = {
		.record = d,
		.copy = copy,
		.frames = p->scratch,
		.stop = STOP_STACK_LOST,
	};
	bool parked = false;

	if (d->sample.object.kind == WAIT_OBJECT_PAGES)
		resident_expect(p, &d->sample);
	if (d->sample.object.kind == WAIT_OBJECT_ALLOC)
		alloc_expect(p, &d->sample);
	if (p->before)
		copy_to_new_batch(p, &d->sample);
	/* A parked walk is counted in the batch in which it arrived. */
	walk.waker = find_waker(p, &d->sample);
	prefix = pipeline_stack(p->batch, d->sample.user_stack);
	if (prefix) {
		/* Without frames there may be no array, which memcpy() must not be given. */
		if (prefix->n)
			memcpy(p->scratch, &p->batch->frames.data[prefix->first],
			       prefix->n * sizeof(u64));
		walk.n = prefix->n;
		parked = walk_or_park(p, &walk);
	}
	if (!parked)
		records_count_walk(p, &walk);
	pipeline_note_stall(p, begin, "walks");
}

const struct sampler_ops records_ops = {
	.stack = on_stack,
	.sample = on_sample,
	.deferred = on_deferred,
	.attributes = on_attributes,
	.exec = on_exec,
	.later = on_later,
	.interval = on_interval,
	.memory = on_memory,
};
