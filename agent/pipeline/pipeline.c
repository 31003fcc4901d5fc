/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/pipeline/pipeline.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#include "agent/pipeline/batch.h"
#include "agent/pipeline/deferred.h"
#include "agent/pipeline/jitfile.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/vocab.h"

#define DEFAULT_TABLE_BYTES (256ULL << 20)
/* Mappings of all processes take at most one part in MAPPINGS_SHARE of the memory limit. */
#define MAPPINGS_SHARE 16
/* The interval at which the ring is read if nothing is urgent; doubled at low rates. */
#define PERIOD_MS 50
#define LOW_HZ 25
/* Side-band events are handled within a tenth of the sampling interval. */
#define GAP_SHARE 10
#define GAP_MAX_NS 5000000ULL
/*
 * Before the start, binaries are learned and loaded for at most this long; longer if only a few
 * processes are recorded: that takes time where the CPUs are busy, and is finished soon elsewhere.
 */
#define PREPARE_MAX_NS 1000000000ULL
#define PREPARE_SOME_MAX_NS 5000000000ULL
#define WARM_STEP_NS 50000000ULL
#define WARM_MAX_NS 500000000ULL

/*
 * How long to wait for parked walks at the end of a period, which becomes longer, and at the end of
 * the recording. A page is built in 50 ms if a CPU is free.
 */
#define TAKE_MAX_NS 500000000ULL
#define STOP_MAX_NS 2000000000ULL

/*
 * Records how long the ring was not read because of `what`, which began at begin_ns. Returns the
 * time.
 */
static u64 note_stall(struct pipeline *p, u64 begin_ns, const char *what)
{
	u64 now = clock_ns(CLOCK_MONOTONIC);

	if (now - begin_ns > p->stall_ns) {
		p->stall_ns = now - begin_ns;
		p->stall_what = what;
	}
	return now;
}

/* ---- stacks ---- */

/*
 * Names runtime frames while their process lives. Returns the number of words. Sets *unnamed if
 * there was no room for a name.
 */
static u32 name_frames(struct pipeline *p, u32 pid, const u64 *frames, u32 n, u64 *ret,
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
		r = runtimes_name(p->runtimes, proc, word, frames[i], &id);
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
		n = name_frames(p, head->pid, frames, n, p->scratch, &unnamed);
		frames = p->scratch;
	}
	if (batch_add_stack(p->batch, p->procman, head->id, frames, n, head->stop, kernel) < 0)
		log_warn_rarely("out of memory: stacks are shown as lost");
	if (unnamed)
		mark_unread(p->batch, head->id);
	note_stall(p, begin, "names");
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

static struct procman_process *process_of(struct pipeline *p, u32 pid, u64 time_ns)
{
	struct procman_process *proc = procman_find_at(p->procman, pid, time_ns);

	if (!proc) {
		/* It was forked while the ring was being read: its event has arrived by now. */
		procman_drain(p->procman);
		proc = procman_find_at(p->procman, pid, time_ns);
	}
	return proc;
}

/*
 * Opens the files that describe generated code; a process may write them after the first sample in
 * that code.
 */
static void hold_jit_files(struct pipeline *p, const struct procman_process *proc)
{
	for (u32 i = 0; i < JITFILE_N; i++) {
		struct map *held = &p->batch->jit_files[i];
		const u64 *fd = map_get(held, proc->image);

		if (!fd || ((s64)*fd < 0 && pipeline_sum(p->batch).samples % 16 == 0))
			map_put(held, proc->image, (u64)(s64)jitfile_open(i, proc));
	}
}

static void see_process(struct pipeline *p, u32 pid, const struct procman_process *proc)
{
	/* The key changes with the image and its mappings: a runtime may be loaded long after the
	 * start. */
	u64 what = proc ? hash_u64(proc->image ^ hash_u64(proc->mappings_id)) | 1 : 1;
	u64 *seen = map_get(&p->batch->pids, pid);

	if (seen && *seen == what)
		return;
	if (proc && p->process_seen && !p->process_seen(p->arg, proc, p->runtimes))
		what = 0;
	map_put(&p->batch->pids, pid, what);
	if (proc)
		contexts_see(p->contexts, proc);
}

/*
 * Takes what was learned about runtimes: attaches their processes, and reports those processes
 * again.
 */
static bool take_runtimes(struct pipeline *p, bool retry)
{
	bool learned = runtimes_take(p->runtimes, false);

	if (learned)
		map_foreach (&p->batch->pids, slot)
			slot->value = 0;
	if (learned || retry)
		runtimes_retry(p->runtimes, p->procman);
	return learned || retry;
}

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

static void count_sample(struct pipeline *p, const struct record_sample *s, u32 stop)
{
	struct pipeline_entry e = {.key = {.pid = s->pid,
					   .tid = s->tid,
					   .kernel_stack = s->kernel_stack,
					   .user_stack = s->user_stack,
					   .context = s->context,
					   .source = s->source},
				   .count = 1,
				   .value = s->value,
				   .first_ns = s->time_ns};
	const struct procman_process *proc = process_of(p, s->pid, s->time_ns);
	const struct pipeline_stack *user =
		s->user_stack ? pipeline_stack(p->batch, s->user_stack) : NULL;
	struct pipeline_counts *counts = &p->batch->counts[s->source];
	const char *name;
	bool partial, event_partial;
	u32 index = 0;

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
	e.key.image = proc ? proc->image : 0;
	if (batch_count(p->batch, &e, &index) < 0) {
		drop_sample(p, s->source);
		return;
	}
	counts->samples++;
	see_process(p, s->pid, proc);
	if (s->user_stack)
		count_stop(counts, user, stop);
	if (user && user->raw && proc)
		hold_jit_files(p, proc);
	if (p->keep_times && !batch_is_full(p->batch) &&
	    vec_push(&p->batch->events, (struct pipeline_event){s->time_ns, s->value, index}) < 0)
		log_warn("out of memory: a sample's time is lost");
}

/* Whether the batch contains the stacks and attributes of the sample. */
static bool has_all(const struct pipeline_batch *b, const struct record_sample *s)
{
	return (!s->kernel_stack || pipeline_stack(b, s->kernel_stack)) &&
	       (!s->user_stack || pipeline_stack(b, s->user_stack)) &&
	       (!s->context.attributes || batch_has_attributes(b, s->pid, s->context.attributes)) &&
	       (!s->event_attributes || batch_has_attributes(b, s->pid, s->event_attributes));
}

/*
 * A sample from the old epoch goes to the batch that holds its stacks. Returns the previous
 * p->batch.
 */
static struct pipeline_batch *choose_batch(struct pipeline *p, const struct record_sample *s)
{
	struct pipeline_batch *now = p->batch;

	if (p->before && !has_all(now, s) && has_all(p->before, s))
		p->batch = p->before;
	return now;
}

static void on_sample(void *arg, const struct record_sample *s)
{
	struct pipeline *p = arg;
	struct pipeline_batch *now = choose_batch(p, s);

	count_sample(p, s, STOP_STACK_LOST);
	p->batch = now;
}

/* ---- deferred walks ---- */

/* Limit on copies of stacks of parked walks. Above it walks end where a page is missing. */
#define PARKED_MAX_BYTES (32ULL << 20)

static void count_walk(struct pipeline *p, const struct deferred_walk *walk)
{
	struct record_sample sample = walk->record->sample;
	const struct pipeline_stack *prefix = pipeline_stack(p->batch, sample.user_stack);
	bool unread = walk->unread || (prefix && prefix->unread);
	u64 id = deferred_stack_id(walk);

	p->batch->counts[sample.source].deferred++;
	if (batch_add_stack(p->batch, p->procman, id, walk->frames, walk->n, walk->stop, false) < 0)
		log_warn_rarely("out of memory: stacks are shown as lost");
	if (unread)
		mark_unread(p->batch, id);
	sample.user_stack = id;
	count_sample(p, &sample, walk->stop);
}

/*
 * A deferred sample from the old epoch is finished in the new batch, and its stacks are copied
 * there. Stacks with runtime frames are not, because their names belong to the old batch.
 */
static void copy_to_new_batch(struct pipeline *p, u64 id)
{
	const struct pipeline_stack *s = NULL;
	const u64 *frames;

	if (p->before && id && !pipeline_stack(p->batch, id))
		s = pipeline_stack(p->before, id);
	if (!s)
		return;
	frames = &p->before->frames.data[s->first];
	for (u32 i = 0; i < s->n && !s->kernel; i++)
		if (frames[i] >= WORD_RUNTIME)
			return;
	if (batch_add_stack(p->batch, p->procman, id, frames, s->n, s->stop, s->kernel) < 0)
		log_warn_rarely("out of memory: stacks are shown as lost");
}

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

	copy_to_new_batch(p, d->sample.kernel_stack);
	copy_to_new_batch(p, d->sample.user_stack);
	if (p->before && (batch_copy_attributes(p->batch, p->before, d->sample.pid,
						d->sample.context.attributes) < 0 ||
			  batch_copy_attributes(p->batch, p->before, d->sample.pid,
						d->sample.event_attributes) < 0))
		log_warn("out of memory: samples lack their attributes");
	prefix = pipeline_stack(p->batch, d->sample.user_stack);
	if (prefix) {
		/* Without frames there may be no array, which memcpy() must not be given. */
		if (prefix->n)
			memcpy(p->scratch, &p->batch->frames.data[prefix->first],
			       prefix->n * sizeof(u64));
		walk.n = prefix->n;
		if (!deferred_finish(p, &walk)) {
			parked = deferred_park(p, &walk);
			if (!parked)
				deferred_give_up(p, &walk);
		}
	}
	if (!parked)
		count_walk(p, &walk);
	note_stall(p, begin, "walks");
}

/* ---- processes ---- */

/*
 * The host cannot finish a walk with runtime frames, or one that switches to a goroutine's stack,
 * which was not copied. Each page that is not loaded would cost the first sample that needs it, so
 * the code of such processes is loaded in advance.
 */
static void load_ahead(void *arg, const struct procman_process *proc)
{
	struct pipeline *p = arg;

	if (!procman_can_be_sampled(proc) || !runtimes_in_process(p->runtimes, proc))
		return;
	for (u32 i = 0; i < proc->n; i++)
		if (proc->mappings[i].binary->elf && proc->mappings[i].binary->file_id)
			(void)tables_load_binary(p->tables, proc->mappings[i].binary);
}

/* The most generations of processes that a command can start between two checks. */
#define MAX_ANCESTORS 64

/*
 * Whether samples of the process are recorded: with a filter by pid, the code of other processes is
 * not loaded.
 */
static bool is_sampled(void *arg, const struct procman_process *proc)
{
	const struct procman_process *at = proc;
	struct pipeline *p = arg;

	if (!p->only_some)
		return true;
	for (u32 i = 0; at && i < MAX_ANCESTORS; i++) {
		if (map_get(&p->sampled, at->pid))
			return at == proc || map_put(&p->sampled, proc->pid, 1) == 0;
		at = p->follow && at->ppid ? procman_find(p->procman, at->ppid) : NULL;
	}
	return false;
}

static void forget_sampled(void *arg, const struct procman_process *proc)
{
	struct pipeline *p = arg;

	/* Not if another process has the pid by now. */
	if (p->follow && procman_known(p->procman, proc->pid) == proc)
		map_del(&p->sampled, proc->pid, NULL);
}

static void on_cpus_changed(void *arg, const u32 *cpus, u32 n)
{
	struct pipeline *p = arg;

	sampler_follow_cpus(p->sampler, cpus, n);
}

/* The order of listeners matters: BPF gets the mappings of a new image first. */
static int listen_to_processes(struct pipeline *p)
{
	static const struct procman_listener own = {
		.process_changed = load_ahead,
		.process_gone = forget_sampled,
		.cpus_changed = on_cpus_changed,
	};
	int r = procman_listen(p->procman, &tables_listener, p->tables);

	if (r == 0)
		r = procman_listen(p->procman, &runtimes_listener, p->runtimes);
	if (r == 0)
		r = procman_listen(p->procman, &contexts_listener, p->contexts);
	return r < 0 ? r : procman_listen(p->procman, &own, p);
}

/* ---- the loop ---- */

/*
 * Raises the thread's priority. Until a new process is known and the rows of its code are loaded,
 * its samples carry copies of its stack, whose number is limited. On an overloaded machine that
 * could take many milliseconds; the work itself takes microseconds. Without the privilege the
 * priority is unchanged.
 */
static void set_urgent(struct pipeline *p, bool urgent)
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

int pipeline_create(const struct pipeline_options *o, struct diag *reterr_diag,
		    struct pipeline **ret)
{
	static const struct sampler_ops sampler_ops = {
		.stack = on_stack,
		.sample = on_sample,
		.deferred = on_deferred,
		.attributes = on_attributes,
		.exec = on_exec,
	};
	_cleanup_pipeline_ struct pipeline *p = calloc(1, sizeof(*p));
	/* Wakes for each new mapping, whose event has at least 96 bytes: until the event is
	 * handled, samples in new code are walked with old rows. Does not wake for each new or
	 * ended thread: 40 bytes. */
	struct procman_options po = {
		.wakeup_bytes = 88, .execs_told = true, .is_wanted = is_sampled, .arg = p};
	struct sampler_options so = o->sampler;
	struct tables_options to = {.budget_bytes = o->memory_limit_bytes ? o->memory_limit_bytes
									  : DEFAULT_TABLE_BYTES,
				    .max_section = o->max_section,
				    .budget = o->budget};
	struct runtimes_options ro = {.unmark = unmark, .arg = p, .budget = o->budget};
	struct contexts_options co = {.told = on_context_told, .said = on_process_said, .arg = p};
	int r;

	if (!p)
		return -ENOMEM;
	p->keep_times = o->keep_times;
	p->parked_max = budget_limit(o->budget) ? MIN(PARKED_MAX_BYTES, budget_limit(o->budget) / 8)
						: PARKED_MAX_BYTES;
	p->batch_max = budget_limit(o->budget) / 8;
	p->process_seen = o->process_seen;
	p->process_said = o->process_said;
	p->arg = o->arg;
	p->follow = o->sampler.follow_forks;
	p->only_some = o->sampler.n_pids > 0;
	p->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (p->epoll_fd < 0)
		return -errno;
	for (u32 i = 0; i < o->sampler.n_pids; i++)
		if (map_put(&p->sampled, o->sampler.pids[i], 1) < 0)
			return -ENOMEM;
	so.limit_bytes = budget_limit(o->budget);
	r = sampler_create(&so, &sampler_ops, p, reterr_diag, &p->sampler);
	if (r < 0)
		return r;
	p->batch = batch_new(p);
	if (!p->batch)
		return -ENOMEM;
	to.arena_fd = sampler_arena_fd(p->sampler);
	to.processes_fd = sampler_processes_fd(p->sampler);
	to.runtime_of = runtime_of;
	to.arg = p;
	sampler_runtime_fds(p->sampler, &ro.binaries_fd, &ro.processes_fd);
	co.processes_fd = sampler_contexts_fd(p->sampler);
	r = contexts_create(&co, &p->contexts);
	if (r < 0)
		return r;
	r = runtimes_create(&ro, &p->runtimes);
	if (r < 0)
		return r;
	r = tables_create(&to, &p->tables);
	if (r < 0)
		return diag_set(reterr_diag, r, "cannot create the maps of the unwind tables: %s",
				strerror(-r));
	tables_set_tight(p->tables, o->tight_memory);
	po.max_all_mappings =
		budget_limit(o->budget) / MAPPINGS_SHARE / sizeof(struct procman_mapping);
	po.ring_bytes = sampler_sizes(p->sampler)->event_ring_bytes;
	r = procman_create(&po, &p->procman);
	if (r == 0)
		r = listen_to_processes(p);
	if (r < 0)
		return diag_set(reterr_diag, r, "cannot follow processes by perf events: %s",
				strerror(-r));
	r = watch_fd(p, procman_fd(p->procman));
	if (r == 0)
		r = watch_fd(p, sampler_fd(p->sampler));
	if (r == 0)
		r = watch_fd(p, tables_fd(p->tables));
	if (r == 0)
		r = watch_fd(p, runtimes_fd(p->runtimes));
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
	set_urgent(p, true);
	deferred_drop_parked(p);
	pipeline_give_back(p, p->batch);
	procman_destroy(p->procman);
	tables_destroy(p->tables);
	runtimes_destroy(p->runtimes);
	contexts_destroy(p->contexts);
	sampler_destroy(p->sampler);
	map_deinit(&p->sampled);
	if (p->epoll_fd >= 0)
		close(p->epoll_fd);
	set_urgent(p, false);
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
	deferred_finish_parked(p, TAKE_MAX_NS, count_walk);
	/* Samples that arrived while pages were loaded. */
	p->closing = true;
	(void)sampler_drain(p->sampler);
	p->closing = false;
	sampler_new_epoch(p->sampler);
	b->answers = runtimes_take_answers(p->runtimes);
	p->batch = fresh;
	p->before = b;
	(void)sampler_drain(p->sampler);
	p->before = NULL;
	b->ended_ns = fresh->started_ns;
	for (u32 i = 0; i < b->n_sources; i++) {
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

static u64 count_deferred(const struct pipeline *p)
{
	u64 n = 0;

	for (u32 i = 0; i < p->batch->n_sources; i++)
		n += sampler_counter(p->sampler, i, COUNTER_DEFERRED) +
		     sampler_counter(p->sampler, i, COUNTER_DEFER_LIMIT);
	return n;
}

/*
 * At the start nothing is loaded, and all running code is needed at once: on a busy machine more
 * than copies of stacks can cover. So the first samples only tell which code to load, until hardly
 * any is deferred, or for WARM_MAX_NS. Then counting begins.
 */
static int warm_up(struct pipeline *p)
{
	u64 begin = clock_ns(CLOCK_MONOTONIC), now = begin, step = begin;
	u64 samples = 0, deferred = 0;
	int r = 0;

	while (r == 0 && now - begin < WARM_MAX_NS) {
		r = pipeline_poll(p, PERIOD_MS);
		now = clock_ns(CLOCK_MONOTONIC);
		if (now - step < WARM_STEP_NS)
			continue;
		if (step > begin &&
		    (count_deferred(p) - deferred) * 50 <= pipeline_sum(p->batch).samples - samples)
			break;
		step = now;
		samples = pipeline_sum(p->batch).samples;
		deferred = count_deferred(p);
	}
	/* Drop parked walks. Drain twice: samples that arrive during the first drain, which takes
	 * longer on a busy machine, still count. */
	for (int i = 0; i < 2; i++) {
		deferred_drop_parked(p);
		pipeline_give_back(p, pipeline_take(p));
	}
	sampler_count_from_now(p->sampler);
	memset(p->lost, 0, sizeof(p->lost));
	return r;
}

/*
 * Learns and loads what runs before the first sample, so that stacks are complete from the start.
 */
static void load_running_code(struct pipeline *p)
{
	u64 begin = clock_ns(CLOCK_MONOTONIC), now = begin;
	u64 max = p->only_some ? PREPARE_SOME_MAX_NS : PREPARE_MAX_NS;
	struct pollfd fds[] = {
		{.fd = runtimes_fd(p->runtimes), .events = POLLIN},
		{.fd = tables_fd(p->tables), .events = POLLIN},
	};

	tables_hurry(p->tables, true);
	for (; now - begin < max; now = clock_ns(CLOCK_MONOTONIC)) {
		(void)take_runtimes(p, false);
		tables_take(p->tables, false);
		if (!runtimes_busy(p->runtimes) && !tables_busy(p->tables))
			break;
		(void)poll(fds, ARRAY_SIZE(fds), (int)((max - (now - begin)) / 1000000));
	}
	tables_hurry(p->tables, false);
}

int pipeline_start(struct pipeline *p, struct diag *reterr_diag)
{
	int r = procman_scan(p->procman);

	if (r < 0)
		return diag_set(reterr_diag, r, "cannot read /proc: %s", strerror(-r));
	load_running_code(p);
	p->stall_ns = 0;
	p->stall_what = "nothing";
	set_urgent(p, true);
	r = sampler_start(p->sampler, reterr_diag);
	if (r == 0 && !p->follow)
		r = warm_up(p);
	return r;
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
	set_urgent(p, true);
}

static int drain_all(struct pipeline *p)
{
	u64 now = clock_ns(CLOCK_MONOTONIC);
	int r = procman_drain(p->procman);

	if (r < 0)
		return r;
	now = note_stall(p, now, "processes");
	if (take_runtimes(p, now >= p->retry_ns)) {
		p->retry_ns = now + PERIOD_MS * 1000000ULL;
		now = note_stall(p, now, "runtimes");
	}
	contexts_retry(p->contexts, p->procman);
	now = note_stall(p, now, "contexts");
	if (tables_take(p->tables, false)) {
		deferred_retry(p, count_walk);
		note_stall(p, now, "tables");
	}
	r = sampler_drain(p->sampler);
	/* Write the tables of images that became known, before the reader waits. */
	if (r >= 0 && p->has_execs)
		r = procman_drain(p->procman);
	p->has_execs = false;
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

/* Milliseconds until the next poll of a process's context, rounded up; at most max_ms. */
static int until_look_ms(const struct pipeline *p, int max_ms)
{
	u64 due = contexts_due_ns(p->contexts);
	u64 left = due > p->drained_ns ? due - p->drained_ns : 0;

	return (int)MIN((left + 999999) / 1000000, (u64)max_ms);
}

int pipeline_poll(struct pipeline *p, int timeout_ms)
{
	int period_ms = sampler_hz(p->sampler) <= LOW_HZ ? 2 * PERIOD_MS : PERIOD_MS;
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
}

void pipeline_stop(struct pipeline *p)
{
	sampler_stop(p->sampler);
	drain_all(p);
	deferred_finish_parked(p, STOP_MAX_NS, count_walk);
	set_urgent(p, false);
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
	s.counts.lost = 0;
	for (u32 i = 0; i < p->batch->n_sources; i++) {
		s.sampler.sources[i].counters[COUNTER_NO_ROOM] = p->no_room[i];
		s.sampler.all.counters[COUNTER_NO_ROOM] += p->no_room[i];
		s.counts.lost += count_lost(p, i) + p->no_room[i];
	}
	*ret = s;
}
