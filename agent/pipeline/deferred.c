/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/pipeline/deferred.h"
#include "agent/pipeline/records.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "unwind/host.h"

/* The interval at which the rings are read while walks wait. */
#define READ_NS 10000000
/* How much longer a period or the recording becomes at most for walkers that are being loaded. */
#define WALKERS_MAX_NS 4000000000ULL

struct context {
	struct pipeline *pipeline;
	struct deferred_walk *walk;
	bool past_end; /* a read was past the end of the copied stack */
	bool waits;    /* the missing page is being loaded */
};

static const void *line_at(void *arg, u32 number)
{
	struct context *c = arg;

	return tables_line(c->pipeline->tables, number);
}

/* Returns the copied page, or NULL. */
static const u8 *find_copy(const struct sampler_copy *copy, u64 page)
{
	/* Copied pages are usually adjacent. */
	u64 guess = copy->n ? (page - copy->addresses[0]) / SAMPLE_COPY_BYTES : 0;

	if (guess < copy->n && copy->addresses[guess] == page)
		return copy->data + guess * SAMPLE_COPY_BYTES;
	for (u32 i = 0; i < copy->n; i++)
		if (copy->addresses[i] == page)
			return copy->data + (size_t)i * SAMPLE_COPY_BYTES;
	return NULL;
}

static int read_copy(void *arg, void *to, size_t n, u64 avma)
{
	struct context *c = arg;
	u8 *out = to;

	while (n) {
		u64 offset = avma & (SAMPLE_COPY_BYTES - 1);
		size_t part = MIN(n, (size_t)(SAMPLE_COPY_BYTES - offset));
		const u8 *page = find_copy(c->walk->copy, avma - offset);

		if (!page) {
			c->past_end |= c->walk->copy->n && avma > c->walk->copy->addresses[0];
			return -EFAULT;
		}
		memcpy(out, page + offset, part);
		out += part;
		avma += part;
		n -= part;
	}
	return 0;
}

static int load_page(void *arg, u64 pc)
{
	struct context *c = arg;
	struct procman_binary *b;
	u64 svma;
	u32 id = tables_slice_file(c->pipeline->tables, c->walk->slice, pc, &svma);
	int r;

	b = id ? procman_binary_of_id(c->pipeline->procman, id) : NULL;
	r = b ? tables_load_page(c->pipeline->tables, b, svma) : -ENOENT;
	/* Do not wait for a page that was loaded and is missing again. */
	c->waits = r == -EALREADY || (r == -EINPROGRESS && c->walk->asked != pc);
	c->walk->asked = pc;
	return r;
}

/*
 * Returns the process whose mappings the sample refers to: its own, unless it has called exec
 * since. A child that had not called exec yet ran with its parent's mappings, which are known
 * unless the parent has called exec since.
 */
static struct procman_process *find_process(struct pipeline *p, const struct record_sample *s)
{
	struct procman_process *proc = procman_find_at(p->procman, s->pid, s->time_ns);

	if (!proc || proc->image_ns <= s->time_ns)
		return proc;
	proc = procman_find_at(p->procman, proc->ppid, s->time_ns);
	return proc && proc->image_ns <= s->time_ns ? proc : NULL;
}

/*
 * A frame in a runtime's mapping. If the process has exited or called exec, trust the mapping's
 * mark.
 */
static enum unwind_host_runtime ask_runtime(void *arg, u32 runtime, u64 pc, u64 *ret_note)
{
	struct context *c = arg;
	const struct procman_process *proc = find_process(c->pipeline, &c->walk->record->sample);

	if (proc && !runtimes_cover(c->pipeline->runtimes, proc, runtime, pc))
		return UNWIND_HOST_NATIVE;
	if (runtimes_note(c->pipeline->runtimes, runtime, ret_note) < 0)
		return UNWIND_HOST_STOP;
	c->walk->unread = true;
	return UNWIND_HOST_NOTE;
}

static enum stop_reason walk_on(struct context *c)
{
	struct deferred_walk *walk = c->walk;
	struct unwind_host host = {
		.line = line_at,
		.read = read_copy,
		.missing = load_page,
		.runtime = ask_runtime,
		.arg = c,
		.pac_mask = sampler_pac_mask(),
	};
	struct tables *t = c->pipeline->tables;
	const struct procman_process *proc;
	u32 slice, n_mappings;

	if (!walk->slice) {
		proc = find_process(c->pipeline, &walk->record->sample);
		if (!proc)
			return STOP_UNKNOWN_PROCESS;
		if (tables_slice_get(t, proc, &walk->slice) < 0)
			return STOP_NOT_LOADED;
	}
	slice = tables_slice_line(walk->slice, &n_mappings);
	return unwind_host_walk(&host, &walk->regs, slice, n_mappings, walk->frames,
				SAMPLE_MAX_FRAMES, &walk->n);
}

void deferred_drop(struct pipeline *p, struct deferred_walk *walk)
{
	tables_slice_put(p->tables, walk->slice);
	walk->slice = NULL;
}

/*
 * The code may have been mapped, or the process forked, just before the sample: reads the events
 * and mappings again.
 */
static void refresh_process(struct context *c, enum stop_reason stop)
{
	struct procman *pm = c->pipeline->procman;
	struct procman_process *proc;

	procman_drain(pm);
	if (stop != STOP_NO_MAPPING)
		return;
	proc = find_process(c->pipeline, &c->walk->record->sample);
	if (proc && procman_refresh(pm, proc) > 0)
		procman_drain(pm);
}

/*
 * BPF takes a process for another's image as long as its start_stack is not the one that we know:
 * none yet, or an early one that /proc told during an exec. The sample knows. Or the map of
 * processes was full when the process came.
 */
static void check_image(struct pipeline *p, const struct record_deferred *d)
{
	struct procman_process *proc;

	if (d->stop != STOP_UNKNOWN_PROCESS)
		return;
	proc = procman_find_at(p->procman, d->sample.pid, d->sample.time_ns);
	if (!proc || proc->image_ns > d->sample.time_ns)
		return;
	if (proc->start_stack == d->sample.start_stack && proc->alive)
		(void)tables_retry_process(p->tables, proc);
	procman_learn_image(p->procman, proc, d->sample.start_stack);
}

/* Prepares the first step of a walk. */
static void begin_walk(struct pipeline *p, struct deferred_walk *walk)
{
	/* Except for a missing page, BPF failed because of what was known before the last
	 * events. */
	if (walk->record->stop != STOP_NOT_LOADED)
		procman_drain(p->procman);
	check_image(p, walk->record);
	walk->regs = walk->record->regs;
	walk->n_before = walk->n;
	walk->begun = true;
}

/* Walks from the start again, with the current mappings. */
static enum stop_reason walk_again(struct context *c, enum stop_reason stop)
{
	struct deferred_walk *walk = c->walk;

	refresh_process(c, stop);
	deferred_drop(c->pipeline, walk);
	walk->again = true;
	walk->unread = false;
	walk->regs = walk->record->regs;
	walk->n = walk->n_before;
	return walk_on(c);
}

/* True: walk->stop is set. False: it needs a page. */
static bool finish_on_host(struct pipeline *p, struct deferred_walk *walk)
{
	struct context c = {.pipeline = p, .walk = walk};
	enum stop_reason stop;

	if (!walk->begun)
		begin_walk(p, walk);
	stop = walk_on(&c);
	if (!walk->again && (stop == STOP_NO_MAPPING || stop == STOP_UNKNOWN_PROCESS))
		stop = walk_again(&c, stop);
	if (stop == STOP_NOT_LOADED && c.waits)
		return false;
	if (stop == STOP_NO_MAPPING && walk->n < SAMPLE_MAX_FRAMES)
		walk->frames[walk->n++] = unwind_host_raw_frame(&walk->regs);
	if (stop == STOP_BAD_READ && c.past_end)
		stop = STOP_COPY_END;
	walk->stop = stop;
	return true;
}

/* Whether the thread sleeps and has frames of a runtime, which the host does not read. */
static bool wants_walker(struct pipeline *p, const struct deferred_walk *walk)
{
	const struct procman_process *proc;

	if (walk->record->sample.type != RECORD_ASLEEP)
		return false;
	if (walk->unread || walk->stop == STOP_RUNTIME)
		return true;
	proc = walk->stop == STOP_COMPLETE ? NULL : find_process(p, &walk->record->sample);
	return proc && runtimes_in_process(p->runtimes, proc);
}

/*
 * Lets BPF walk the stack of a thread that sleeps. What the host has walked remains if BPF gets
 * less far, or the thread has woken. False: it needs a page or a walker that is being loaded.
 */
static bool finish_in_bpf(struct pipeline *p, struct deferred_walk *walk)
{
	struct context c = {.pipeline = p, .walk = walk};
	const struct record_sample *sample = &walk->record->sample;
	const struct sleeper_walk *found;
	int r = sampler_walk_sleeper(p->sampler, walk->record, &found), stop;

	if (r == -EINPROGRESS)
		return false;
	if (r < 0)
		return true;
	stop = (int)found->stop;
	if (stop == STOP_NOT_LOADED && walk->slice) {
		(void)load_page(&c, unwind_host_pc(&found->regs));
		return !c.waits;
	}
	if (unwind_host_can_help(stop, found->n))
		return true;
	walk->unread = false;
	walk->n = records_name_frames(p, sample->pid, found->frames, found->n, walk->frames,
				      &walk->unread);
	walk->stop = (u32)stop;
	return true;
}

bool deferred_finish(struct pipeline *p, struct deferred_walk *walk)
{
	if (!walk->walked && !finish_on_host(p, walk))
		return false;
	walk->walked = true;
	if (wants_walker(p, walk) && !finish_in_bpf(p, walk))
		return false;
	deferred_drop(p, walk);
	return true;
}

u64 deferred_stack_id(const struct deferred_walk *walk)
{
	return unwind_host_stack_id(walk->frames, walk->n, walk->stop);
}

/* ---- parked walks ---- */

struct parked {
	struct parked *next;
	struct record_deferred record;
	struct sampler_copy copy;
	struct deferred_walk walk;
	u64 bytes;
	u64 frames[SAMPLE_MAX_FRAMES];
	u8 data[];
};

bool deferred_park(struct pipeline *p, const struct deferred_walk *walk)
{
	/* What BPF walks has its memory. */
	u32 pages = walk->walked ? 0 : walk->copy->n;
	size_t n = (size_t)pages * SAMPLE_COPY_BYTES;
	struct parked *w;

	if (p->closing || p->parked_bytes + sizeof(*w) + n > p->parked_max)
		return false;
	w = malloc(sizeof(*w) + n);
	if (!w)
		return false;
	w->record = *walk->record;
	w->copy = *walk->copy;
	w->copy.n = pages;
	w->walk = *walk;
	w->bytes = sizeof(*w) + n;
	if (n)
		memcpy(w->data, walk->copy->data, n);
	memcpy(w->frames, walk->frames, walk->n * sizeof(u64));
	w->copy.data = w->data;
	w->walk.record = &w->record;
	w->walk.copy = &w->copy;
	w->walk.frames = w->frames;
	w->next = p->parked;
	p->parked = w;
	p->parked_bytes += w->bytes;
	return true;
}

static void give_up_walk(struct pipeline *p, struct deferred_walk *walk)
{
	if (!walk->walked)
		walk->stop = STOP_NOT_LOADED;
	deferred_drop(p, walk);
}

/*
 * Continues all parked walks. With `give_up`, those that still need a page end at their current
 * frame.
 */
static void retry_parked(struct pipeline *p, bool give_up, deferred_done *done)
{
	struct parked **at = &p->parked, *w;

	while ((w = *at)) {
		if (!deferred_finish(p, &w->walk)) {
			if (!give_up) {
				at = &w->next;
				continue;
			}
			give_up_walk(p, &w->walk);
		}
		done(p, &w->walk);
		*at = w->next;
		p->parked_bytes -= w->bytes;
		free(w);
	}
}

void deferred_drop_parked(struct pipeline *p)
{
	struct parked *w;

	while ((w = p->parked)) {
		p->parked = w->next;
		deferred_drop(p, &w->walk);
		free(w);
	}
	p->parked_bytes = 0;
}

void deferred_retry(struct pipeline *p, deferred_done *done)
{
	retry_parked(p, false, done);
}

void deferred_give_up(struct pipeline *p, struct deferred_walk *walk)
{
	p->given_up++;
	give_up_walk(p, walk);
}

/* Waits until pages or walkers are loaded, at most READ_NS. False: none is being loaded. */
static bool wait_for_loads(struct pipeline *p)
{
	struct pollfd fds[] = {
		{.fd = tables_fd(p->tables), .events = POLLIN},
		{.fd = sampler_walkers_fd(p->sampler), .events = POLLIN},
	};

	if (!tables_busy(p->tables) && fds[1].fd < 0)
		return false;
	if (poll(fds, ARRAY_SIZE(fds), READ_NS / 1000000) > 0) {
		(void)tables_take(p->tables, false);
		(void)sampler_take_walkers(p->sampler);
	}
	return true;
}

/* A walker is worth more time: it is loaded once, and many walks wait for it. */
static bool has_time(const struct pipeline *p, u64 until)
{
	u64 now = clock_ns(CLOCK_MONOTONIC);

	return now < until || (now < until + WALKERS_MAX_NS && sampler_walkers_fd(p->sampler) >= 0);
}

void deferred_finish_parked(struct pipeline *p, u64 max_ns, deferred_done *done)
{
	u64 until = clock_ns(CLOCK_MONOTONIC) + max_ns;

	while (p->parked && has_time(p, until) && wait_for_loads(p)) {
		retry_parked(p, false, done);
		/* Side-band events first, so that a process is known before its samples. */
		(void)procman_drain(p->procman);
		(void)sampler_drain(p->sampler);
	}
	retry_parked(p, true, done);
}
