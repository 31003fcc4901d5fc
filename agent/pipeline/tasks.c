/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/pipeline/tasks.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "agent/pipeline/processes.h"
#include "agent/pipeline/records.h"
#include "base/clock.h"
#include "base/vocab.h"

/* The period, if so many processes or fewer are looked at; longer in proportion if more are. */
#define PERIOD_NS 50000000ULL
#define PERIOD_PROCESSES 16
/* How many tasks a look draws at least and at most, whatever the budget. */
#define MIN_DRAWN 8
#define MAX_DRAWN 4096
/* What a task costs, until that is known; and the weight of the last look in what is known. */
#define TASK_NS 5000
#define COST_WEIGHT 8
/* If tasks cannot be read yet, or at the moment: when to look again, and how many times. */
#define BUSY_NS 5000000ULL
#define BUSY_MAX 400
/* A look ends after this long. */
#define LOOK_MAX_NS 20000000ULL

struct tasked { /* an image of a process that has tasks */
	u64 image;
	u32 pid;
	enum task kind;
	bool passes;	      /* the filters: of those other than by pid, only BPF knows */
	u64 begin_ns, end_ns; /* the period */
	u64 look_ns;	      /* the moment in it, or in the next one */
	u32 n_busy;	      /* looks since the last one that read tasks */
	bool half;	      /* a look at this period has read some, and goes on */
};

struct tasks {
	u32 source; /* index of the source of waits */
	bool ids;
	bool paused;
	bool all;      /* no filter but that by pid */
	u64 budget_ns; /* in PERIOD_NS */
	u64 task_ns;   /* what a task costs */
	u64 random;
	struct map processes; /* image → struct tasked *, owned */
	struct tasks_stats stats;
	u8 stack[RUNTIME_TASK_BYTES];
};

static struct tasks *tasks_new(const struct pipeline_options *o, u32 source)
{
	double percent = o->sampler.budget > 0 ? o->sampler.budget : SAMPLER_DEFAULT_BUDGET;
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	struct tasks *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	t->source = source;
	t->ids = o->task_ids;
	t->all = !o->sampler.n_comms && !o->sampler.n_cgroups && !o->sampler.n_uids;
	t->budget_ns = (u64)(percent / 100 * (double)(PERIOD_NS * (u64)MAX(cpus, 1L)));
	t->task_ns = TASK_NS;
	if (getrandom(&t->random, sizeof(t->random), GRND_NONBLOCK) != sizeof(t->random))
		t->random = clock_ns(CLOCK_MONOTONIC);
	return t;
}

int pipeline_tasks_create(struct pipeline *p, const struct pipeline_options *o)
{
	const struct sampler_source *source;

	for (u32 i = 0; o->sampler.user_stacks && (source = sampler_source(p->sampler, i)); i++) {
		if (strcmp(source->event, SAMPLER_WAITS) != 0)
			continue;
		p->tasks = tasks_new(o, i);
		return p->tasks ? 0 : -ENOMEM;
	}
	return 0;
}

void pipeline_tasks_destroy(struct pipeline *p)
{
	struct tasks *t = p->tasks;

	if (!t)
		return;
	map_foreach (&t->processes, slot)
		free((struct tasked *)slot->value);
	map_deinit(&t->processes);
	free(t);
	p->tasks = NULL;
}

/* ---- periods ---- */

/* Begins a period at begin_ns. */
static void begin_period(struct tasks *t, struct tasked *d, u64 begin_ns)
{
	u64 period = PERIOD_NS * (1 + t->processes.n / PERIOD_PROCESSES);

	d->begin_ns = begin_ns;
	d->end_ns = begin_ns + period;
	d->look_ns = begin_ns + runtime_random(&t->random) % period;
	d->half = false;
}

static void process_changed(void *arg, const struct procman_process *proc)
{
	struct pipeline *p = arg;
	struct tasks *t = p->tasks;
	enum task kind;
	struct tasked *d;

	if (!t || map_get(&t->processes, proc->image) || !procman_can_be_sampled(proc) ||
	    !runtimes_have_tasks(p->runtimes, proc, &kind))
		return;
	d = calloc(1, sizeof(*d));
	if (!d || map_put(&t->processes, proc->image, (u64)d) < 0) {
		free(d);
		return;
	}
	d->image = proc->image;
	d->pid = proc->pid;
	d->kind = kind;
	d->passes = t->all;
	begin_period(t, d, clock_ns(CLOCK_MONOTONIC));
}

static void forget(struct pipeline *p, u64 image)
{
	u64 v;

	if (p->tasks && map_del(&p->tasks->processes, image, &v))
		free((struct tasked *)v);
}

static void process_exec(void *arg, const struct procman_process *proc, u64 before)
{
	(void)proc;
	forget(arg, before);
}

static void process_ended(void *arg, const struct procman_process *proc)
{
	forget(arg, proc->image);
}

const struct procman_listener tasks_listener = {
	.process_changed = process_changed,
	.process_exec = process_exec,
	.process_ended = process_ended,
	.process_gone = process_ended,
};

/* ---- looks ---- */

struct look {
	struct pipeline *pipeline;
	const struct procman_process *process;
	enum task kind;
	u64 now_ns;
	u64 stands_ns; /* the time that the look stands for */
};

static void on_task(void *arg, const struct runtime_scan *s, const struct runtime_task *task)
{
	const struct look *l = arg;
	const struct vocab_task *kind = vocab_task(l->kind);
	struct tasks *t = l->pipeline->tasks;
	struct record_deferred d = {
		.sample =
			{
				.type = RECORD_DEFERRED,
				.source = (u16)t->source,
				.time_ns = l->now_ns,
				.pid = l->process->pid,
				.value = (s64)(l->stands_ns * s->n_tasks / s->n_drawn),
				.wait = kind->wait,
				.object = {.kind = WAIT_OBJECT_TASK,
					   .port = (u16)l->kind,
					   .address = {t->ids ? task->id : 0}},
			},
		.regs = {.pc = task->pc, .sp = task->sp, .fp = task->fp},
		.stop = STOP_NOT_LOADED,
	};
	struct sampler_copy copy = {.n = task->n / SAMPLE_COPY_BYTES, .data = (u8 *)task->stack};

	memcpy(d.sample.comm, kind->name, MIN(strlen(kind->name), sizeof(d.sample.comm) - 1));
	for (u32 i = 0; i < copy.n; i++)
		copy.addresses[i] = task->low + (u64)i * SAMPLE_COPY_BYTES;
	t->stats.waiting++;
	if (task->n_words)
		records_count_frames(l->pipeline, &d.sample, task->words, task->n_words,
				     task->stop);
	else
		records_walk(l->pipeline, &d, &copy);
}
_Static_assert(RUNTIME_TASK_PAGE == SAMPLE_COPY_BYTES, "pages of copies");
_Static_assert(RUNTIME_TASK_BYTES <= SAMPLE_STACK_COPIES * SAMPLE_COPY_BYTES, "room for copies");

/* How many tasks of a process are drawn: depends on what was before only. */
static u32 choose_max(const struct tasks *t)
{
	u64 n = t->budget_ns / MIN(t->processes.n, (size_t)PERIOD_PROCESSES) / t->task_ns;

	return (u32)MIN(MAX(n, (u64)MIN_DRAWN), (u64)MAX_DRAWN);
}

/* False: the process has no tasks that can be read. */
static bool look_at(struct pipeline *p, struct tasked *d, u64 now)
{
	struct tasks *t = p->tasks;
	struct look l = {.pipeline = p,
			 .process = procman_find(p->procman, d->pid),
			 .kind = d->kind,
			 .now_ns = now};
	struct runtime_scan s = {
		.max = choose_max(t),
		.until_ns = now + LOOK_MAX_NS,
		.random = &t->random,
		.stack = t->stack,
		.task = on_task,
		.arg = &l,
	};
	u64 end = d->end_ns, period = end - d->begin_ns, took;
	int r = -ESRCH;

	/* A half-done look goes on for the period that it began with. */
	if (now >= end && !d->half)
		end += (now - end) / period * period + period;
	l.stands_ns = end - d->begin_ns;
	if (l.process && l.process->image == d->image && l.process->alive)
		r = runtimes_scan(p->runtimes, l.process, &s);
	if ((r == -EBUSY || r == -EAGAIN) && d->n_busy < BUSY_MAX) {
		/* The period goes on: the later look stands for all of it. */
		took = clock_ns(CLOCK_MONOTONIC) - now;
		t->stats.ns += took;
		d->n_busy++;
		d->look_ns = now + MAX(BUSY_NS, 3 * took);
		d->half |= s.n_drawn > 0;
		if (d->half)
			d->end_ns = end;
		return true;
	}
	d->n_busy = r < 0 ? d->n_busy : 0;
	begin_period(t, d, end);
	took = clock_ns(CLOCK_MONOTONIC) - now;
	t->stats.failed += r < 0 && r != -EAGAIN && r != -ENOTSUP;
	t->stats.drawn += s.n_drawn;
	t->stats.unread += s.n_unread;
	t->stats.ns += took;
	if (s.n_drawn)
		t->task_ns += (took / s.n_drawn) / COST_WEIGHT - t->task_ns / COST_WEIGHT;
	t->task_ns = MAX(t->task_ns, 100ULL);
	if (s.n_drawn)
		t->stats.kinds |= 1u << d->kind;
	return r != -ENOTSUP;
}

void tasks_look(struct pipeline *p)
{
	struct tasks *t = p->tasks;
	u64 now = clock_ns(CLOCK_MONOTONIC), without = 0;

	if (!t || t->paused)
		return;
	map_foreach (&t->processes, slot) {
		struct tasked *d = (struct tasked *)slot->value;

		if (d->look_ns > now)
			continue;
		if (!d->passes) {
			begin_period(t, d, now);
			continue;
		}
		if (!look_at(p, d, now))
			without = d->image;
		now = clock_ns(CLOCK_MONOTONIC);
	}
	/* Another one of the same moment is forgotten in its next period. */
	if (without)
		forget(p, without);
}

u64 tasks_due_ns(const struct pipeline *p)
{
	u64 due = ~0ULL;

	if (p->tasks && !p->tasks->paused)
		map_foreach (&p->tasks->processes, slot)
			due = MIN(due, ((const struct tasked *)slot->value)->look_ns);
	return due;
}

void tasks_begin(struct pipeline *p)
{
	u64 now = clock_ns(CLOCK_MONOTONIC);

	if (p->tasks)
		map_foreach (&p->tasks->processes, slot)
			begin_period(p->tasks, (struct tasked *)slot->value, now);
}

void tasks_pause(struct pipeline *p, bool pause)
{
	if (!p->tasks || p->tasks->paused == pause)
		return;
	p->tasks->paused = pause;
	tasks_begin(p);
}

void tasks_see(struct pipeline *p, const struct procman_process *proc)
{
	const u64 *d;

	if (!p->tasks || p->tasks->all || !proc)
		return;
	d = map_get(&p->tasks->processes, proc->image);
	if (d)
		((struct tasked *)*d)->passes = true;
}

bool tasks_is_own(struct pipeline *p, const struct deferred_walk *walk)
{
	const struct record_sample *s = &walk->record->sample;
	const struct procman_process *proc;

	if (s->object.kind != WAIT_OBJECT_TASK || walk->stop != STOP_COMPLETE)
		return false;
	proc = procman_find_at(p->procman, s->pid, s->time_ns);
	return proc && runtimes_task_is_own(p->runtimes, proc, walk->frames, walk->n);
}

void tasks_get_stats(const struct pipeline *p, struct tasks_stats *ret)
{
	*ret = (struct tasks_stats){};
	if (!p->tasks)
		return;
	*ret = p->tasks->stats;
	ret->processes = p->tasks->processes.n;
}

#define COUNTER(member, help) STAT_COUNTER(struct tasks_stats, member, help)
const struct stat_field tasks_stat_fields[] = {
	STAT_GAUGE(struct tasks_stats, processes,
		   "Processes whose tasks (goroutines, virtual threads) are looked at."),
	COUNTER(drawn, "Tasks that were looked at."),
	COUNTER(waiting, "Tasks that waited then."),
	COUNTER(unread, "Tasks that changed while they were read, or that were not readable."),
	COUNTER(failed, "Looks at processes whose tasks were not readable."),
	COUNTER(ns, "Nanoseconds that looking at tasks has taken."),
	{},
};
