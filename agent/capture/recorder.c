/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The recording while tasks are armed: a pipeline of its own, so that the always-on recording is
 * the same with and without it. Which service a process is of, its identity tells
 * (agent/identity), which is found out for each process once; later also what it publishes, once
 * the always-on recording has sampled it. Children that have not called exec are of the service of
 * their parent.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/capture/internal.h"
#include "base/clock.h"
#include "base/log.h"

#define MAX_PROCESSES 256 /* of a service that are looked at */
#define MAX_ARMED 1024
#define MAX_LOOKED_AT 65536
#define BATCH_NS 5000000000ULL
/* Room is given back a batch at a time. */
#define BATCHES_AT_LEAST 8
/* Compilers and shells are gone by then, and need not be looked at. */
#define SHORT_LIFE_NS 250000000ULL
/* How long a process is known after it has ended. */
#define KNOWN_NS 10000000000ULL /* and the history's window */
/* Requests are many and short, and their events are small. */
#define RING_BYTES (8ULL << 20)

enum { SOURCE_CLOCK, SOURCE_WAITS }; /* of the pipeline */

/* ---- processes ---- */

const struct armed *recorder_process(const struct recorder *r, u32 serial)
{
	for (size_t i = 0; i < r->armed.n; i++)
		if (r->armed.data[i].serial == serial)
			return &r->armed.data[i];
	return NULL;
}

const struct armed *recorder_process_of(const struct recorder *r, u64 image)
{
	for (size_t i = 0; i < r->armed.n; i++)
		if (r->armed.data[i].image == image)
			return &r->armed.data[i];
	return NULL;
}

static struct armed *armed_of_pid(const struct recorder *r, u32 pid)
{
	const u64 *at = map_get(&r->by_pid, pid);

	return at ? &r->armed.data[*at] : NULL;
}

static int index_armed(struct recorder *r)
{
	int e = 0;

	map_clear(&r->by_pid);
	for (size_t i = 0; i < r->armed.n && e == 0; i++)
		if (!r->armed.data[i].ended_ns)
			e = map_put(&r->by_pid, r->armed.data[i].pid, i);
	return e;
}

static struct service *service_of(struct recorder *r, const char *name)
{
	vec_foreach (&r->services, s)
		if (!strcmp(s->name, name))
			return s;
	return NULL;
}

static struct service *add_service(struct recorder *r, const char *name)
{
	struct service *known = service_of(r, name), fresh = {};

	if (known)
		return known;
	snprintf(fresh.name, sizeof(fresh.name), "%s", name);
	return vec_push(&r->services, fresh) < 0 ? NULL : &r->services.data[r->services.n - 1];
}

static bool same_values(const struct armed_process *a, const struct armed_process *b)
{
	return a->floor_ns == b->floor_ns && a->ticks == b->ticks && a->flags == b->flags;
}

/* Arms a process, or changes what an armed one is asked for. */
static void arm(struct recorder *r, const struct procman_process *proc, const char *service,
		const struct armed_process *values)
{
	struct armed *known = armed_of_pid(r, proc->pid), fresh = {};
	struct armed_process v = *values;
	int e;

	if (known && known->image == proc->image && same_values(&known->values, values))
		return;
	if (known && known->image != proc->image)
		return; /* has called exec, which is noticed soon */
	v.armed_ns = known ? known->values.armed_ns : clock_ns(CLOCK_MONOTONIC);
	if (!known && r->by_pid.n >= MAX_ARMED)
		return;
	e = pipeline_arm(r->pipeline, proc->pid, &v);
	if (e < 0) {
		if (e != -ESRCH)
			log_warn_rarely("process %u is not armed: %s", proc->pid, strerror(-e));
		return;
	}
	if (known) {
		known->values = v;
		return;
	}
	fresh = (struct armed){
		.serial = ++r->last_serial,
		.pid = proc->pid,
		.image = proc->image,
		.start_ticks = proc->start_ticks,
		.values = v,
	};
	snprintf(fresh.service, sizeof(fresh.service), "%s", service);
	memcpy(fresh.comm, proc->comm, sizeof(fresh.comm));
	if (!add_service(r, service) || vec_push(&r->armed, fresh) < 0 || index_armed(r) < 0) {
		log_warn("out of memory: process %u is not armed", proc->pid);
		pipeline_disarm(r->pipeline, proc->pid);
		return;
	}
	log_debug("process %u (%s) of %s is armed", proc->pid, proc->comm, service);
}

static void disarm(struct recorder *r, struct armed *a, u64 now)
{
	a->ended_ns = now;
	pipeline_disarm(r->pipeline, a->pid);
}

/* What the tasks of a service ask for together; false: no task is of the service. */
static bool values_of(const struct recorder *r, const struct control_task *tasks, size_t n,
		      const char *service, struct armed_process *ret)
{
	u64 period_us = 0, floor_us = ~0ULL;
	bool any = false;

	*ret = (struct armed_process){};
	for (size_t i = 0; i < n; i++) {
		const struct control_task *t = &tasks[i];

		if (strcmp(t->service, service) != 0)
			continue;
		any = true;
		ret->flags |= (t->on_cpu ? ARMED_ON_CPU : 0) | (t->off_cpu ? ARMED_OFF_CPU : 0);
		if (t->on_cpu && (!period_us || t->period_us < period_us))
			period_us = t->period_us;
		if (t->off_cpu)
			floor_us = MIN(floor_us, (u64)t->floor_us);
	}
	ret->floor_ns = floor_us == ~0ULL ? ~0ULL : floor_us * 1000;
	period_us = MAX(period_us, 1000ULL);
	ret->ticks = (u32)MAX((period_us * r->hz + 500000) / 1000000, 1ULL);
	return any;
}

static void arm_service(struct recorder *r, const struct control_task *tasks, size_t n,
			const char *service)
{
	struct identity_process found[MAX_PROCESSES];
	struct procman *pm = pipeline_procman(r->pipeline);
	struct armed_process values;
	size_t n_found =
		identities_find(r->capture->options.identities, service, found, ARRAY_SIZE(found));

	(void)values_of(r, tasks, n, service, &values);
	for (size_t i = 0; i < n_found; i++) {
		const struct procman_process *proc = procman_find(pm, found[i].pid);

		if (proc && proc->alive && proc->start_ticks == found[i].start_ticks)
			arm(r, proc, service, &values);
	}
}

struct children {
	struct recorder *r;
	const struct control_task *tasks;
	size_t n;
};

/* Finds out who a process is, once. It may not have been sampled yet. */
static int look_at(void *arg, struct procman_process *proc)
{
	struct recorder *r = arg;

	if (!procman_can_be_sampled(proc) || proc->image_ns + SHORT_LIFE_NS > r->looked_ns ||
	    map_get(&r->looked_at, proc->image))
		return 0;
	if (r->looked_at.n >= MAX_LOOKED_AT)
		map_clear(&r->looked_at);
	if (pipeline_see(r->pipeline, proc))
		(void)map_put(&r->looked_at, proc->image, 1);
	return 0;
}

/* A child that has not called exec runs what its parent runs. */
static int arm_child(void *arg, struct procman_process *proc)
{
	const struct children *c = arg;
	struct armed *parent = proc->ppid ? armed_of_pid(c->r, proc->ppid) : NULL;
	struct armed_process values;
	char service[CONTROL_TEXT_BYTES];

	/* Of those that were there before nobody knows whether they have called exec. */
	if (!parent || !proc->alive || proc->start_ns < c->r->history.began_ns ||
	    proc->image_ns > proc->start_ns || armed_of_pid(c->r, proc->pid) ||
	    !values_of(c->r, c->tasks, c->n, parent->service, &values))
		return 0;
	memcpy(service, parent->service, sizeof(service));
	arm(c->r, proc, service, &values);
	return 0;
}

/* Disarms what has ended, called exec, or is asked for by no task any more. */
static void disarm_others(struct recorder *r, const struct control_task *tasks, size_t n, u64 now)
{
	struct procman *pm = pipeline_procman(r->pipeline);
	struct armed_process values;
	size_t left = 0;

	vec_foreach (&r->armed, a) {
		const struct procman_process *proc = a->ended_ns ? NULL : procman_known(pm, a->pid);

		if (!a->ended_ns && (!proc || !proc->alive || proc->image != a->image ||
				     !values_of(r, tasks, n, a->service, &values)))
			disarm(r, a, now);
	}
	for (size_t i = 0; i < r->armed.n; i++)
		if (!r->armed.data[i].ended_ns ||
		    r->armed.data[i].ended_ns + r->history.window_ns + KNOWN_NS > now)
			r->armed.data[left++] = r->armed.data[i];
	r->armed.n = left;
	(void)index_armed(r);
}

/* Notes who the process is while it lives, for profiles that are made when it is gone. */
static void see_process(struct recorder *r, struct armed *a)
{
	u32 resource;

	a->publishes = pipeline_publishes(r->pipeline, a->image);
	if (identities_resource(r->capture->options.identities, a->image, a->comm, r->resources,
				&resource) == 0)
		a->resource = resource;
}

void recorder_follow(struct recorder *r, const struct control_task *tasks, size_t n, u64 hz)
{
	struct children children = {r, tasks, n};
	u64 now = clock_ns(CLOCK_MONOTONIC);

	if (n)
		r->hz = pipeline_set_hz(r->pipeline, hz);
	disarm_others(r, tasks, n, now);
	r->looked_ns = now;
	if (n)
		(void)procman_each(pipeline_procman(r->pipeline), look_at, r);
	for (size_t i = 0; i < n; i++)
		arm_service(r, tasks, n, tasks[i].service);
	(void)procman_each(pipeline_procman(r->pipeline), arm_child, &children);
	pipeline_see_armed(r->pipeline);
	vec_foreach (&r->armed, a)
		if (!a->ended_ns)
			see_process(r, a);
	history_note_clock(&r->history, now);
}

void recorder_count(const struct recorder *r, const char *service, struct control_task_report *ret)
{
	for (size_t i = 0; i < r->armed.n; i++) {
		const struct armed *a = &r->armed.data[i];

		if (a->ended_ns || strcmp(a->service, service) != 0)
			continue;
		ret->processes++;
		ret->publishing += a->publishes;
	}
	for (size_t i = 0; i < r->services.n; i++)
		if (!strcmp(r->services.data[i].name, service)) {
			ret->samples = r->services.data[i].samples;
			ret->events = r->services.data[i].events;
		}
	/* Whose they were nobody knows. */
	ret->lost = r->lost;
	ret->evicted = r->history.evicted;
}

/* ---- the pipeline ---- */

/* The process that had the id then: what it did before exec may be read when it is another one. */
static const struct armed *armed_then(const struct recorder *r, u32 pid, u64 time_ns)
{
	const struct armed *now = armed_of_pid(r, pid);

	if (now && now->values.armed_ns <= time_ns)
		return now;
	for (size_t i = r->armed.n; i-- > 0;) {
		const struct armed *a = &r->armed.data[i];

		if (a->pid == pid && a->values.armed_ns <= time_ns && time_ns <= a->ended_ns)
			return a;
	}
	return NULL;
}

static void on_interval(void *arg, const struct record_interval *i)
{
	struct recorder *r = arg;
	const struct armed *a = armed_then(r, i->pid, i->left_ns);
	struct record_interval kept = *i;
	struct service *s = a ? service_of(r, a->service) : NULL;

	/* Times that do not follow each other would be negative ones in a ledger. */
	if (!s || i->left_ns > i->woken_ns || i->woken_ns > i->now_ns || i->ran_ns > i->left_ns)
		return;
	s->events++;
	kept.pad = a->serial;
	history_push(&r->history, &kept);
}

static bool process_seen(void *arg, const struct procman_process *p, struct runtimes *runtimes)
{
	const struct recorder *r = arg;

	return identities_see(r->capture->options.identities, p, runtimes);
}

static void process_said(void *arg, const struct procman_process *p,
			 const struct context_label *labels, u32 n)
{
	const struct recorder *r = arg;

	identities_say(r->capture->options.identities, p, labels, n);
}

static int start_pipeline(struct recorder *r, u64 hz, struct diag *reterr_diag)
{
	const struct capture_options *o = &r->capture->options;
	struct sampler_event events[] = {
		{.name = SAMPLER_REQUEST_CLOCK, .hz = hz, .clock_hz = hz},
		{.name = SAMPLER_REQUEST_WAITS},
	};
	struct pipeline_options po = {
		.sampler = {.events = events,
			    .n_events = ARRAY_SIZE(events),
			    .kernel_stacks = true,
			    .user_stacks = true,
			    .requests = true,
			    .budget = o->budget_percent,
			    .ring_bytes = RING_BYTES},
		.parsers = o->parsers,
		.memory_limit_bytes = o->tables_bytes,
		.budget = o->budget,
		.max_section = o->max_section,
		.keep_times = true,
		.interval = on_interval,
		.process_seen = process_seen,
		.process_said = process_said,
		.arg = r,
	};
	_cleanup_free_ char *cache_dir = NULL;
	int e;

	if (o->cache_dir && asprintf(&cache_dir, "%s/unwind", o->cache_dir) < 0)
		return -ENOMEM;
	po.cache_dir = cache_dir;
	e = pipeline_create(&po, reterr_diag, &r->pipeline);
	return e < 0 ? e : pipeline_start(r->pipeline, reterr_diag);
}

static int start_symbolizer(struct recorder *r)
{
	const struct capture_options *o = &r->capture->options;
	_cleanup_free_ char *cache_dir = NULL;
	struct symbolizer_options so = {
		.inlines = !o->no_inline,
		.waker_labels = true,
		.leave_files = o->no_symbols,
		.debuginfod_urls = o->debuginfod_urls,
		.max_section = o->max_section,
		.budget = o->budget,
		.resource = decide_resource,
		.arg = r,
	};

	if (o->cache_dir && asprintf(&cache_dir, "%s/symbols", o->cache_dir) < 0)
		return -ENOMEM;
	so.cache_dir = cache_dir;
	return symbolizer_create(&so, &r->symbolizer);
}

/* The memory of BPF's maps, as far as it is not resident. */
static void count_maps(struct recorder *r)
{
	struct pipeline_stats stats;

	pipeline_stats(r->pipeline, &stats);
	r->map_bytes = (s64)stats.sampler.map_bytes - (s64)stats.sampler.mapped_bytes;
	budget_add_others(r->capture->options.budget, r->map_bytes);
}

int recorder_create(struct capture *c, u64 hz, struct diag *reterr_diag, struct recorder **ret)
{
	struct recorder *r = calloc(1, sizeof(*r));
	int e = r ? 0 : -ENOMEM;

	if (e < 0)
		return e;
	r->capture = c;
	r->hz = hz;
	r->resources = profile_create();
	e = r->resources ? history_init(&r->history, c->options.max_bytes, c->options.window_ns)
			 : -ENOMEM;
	if (e == 0)
		e = start_pipeline(r, hz, reterr_diag);
	/* Last: so the names of the kernel include those of the programs above. */
	if (e == 0)
		e = start_symbolizer(r);
	if (e < 0) {
		recorder_destroy(r);
		return e;
	}
	r->hz = pipeline_set_hz(r->pipeline, hz);
	count_maps(r);
	r->history.began_ns = clock_ns(CLOCK_MONOTONIC);
	*ret = r;
	return 0;
}

void recorder_destroy(struct recorder *r)
{
	if (!r)
		return;
	decide_end(r);
	budget_add_others(r->capture->options.budget, -r->map_bytes);
	if (r->pipeline) {
		pipeline_stop(r->pipeline);
		history_deinit(&r->history, r->pipeline);
	}
	pipeline_destroy(r->pipeline);
	symbolizer_destroy(r->symbolizer);
	profile_destroy(r->resources);
	vec_deinit(&r->longs.of);
	vec_deinit(&r->armed);
	vec_deinit(&r->services);
	map_deinit(&r->by_pid);
	map_deinit(&r->looked_at);
	free(r);
}

static void count_samples(struct recorder *r, const struct pipeline_batch *b)
{
	for (size_t i = 0; i < b->entries.n; i++) {
		const struct pipeline_entry *e = &b->entries.data[i];
		const struct armed *a = recorder_process_of(r, e->key.image);
		struct service *s = a ? service_of(r, a->service) : NULL;

		if (s)
			s->samples += e->count;
	}
	r->lost_samples += pipeline_sum(b).lost;
	r->lost = r->lost_samples + pipeline_lost_intervals(r->pipeline);
	r->floor_ns = b->sources[SOURCE_WAITS].period;
}

int recorder_take(struct recorder *r)
{
	u64 now = clock_ns(CLOCK_MONOTONIC);
	int e = history_take(&r->history, r->pipeline);

	r->take_ns = now + BATCH_NS;
	if (e == 0)
		count_samples(r, r->history.batches.data[r->history.batches.n - 1].b);
	return e;
}

/* Publishes the counters. */
static void tell_counters(struct recorder *r)
{
	struct capture *c = r->capture;
	u64 samples = 0, events = 0;

	vec_foreach (&r->services, s) {
		samples += s->samples;
		events += s->events;
	}
	pthread_mutex_lock(&c->lock);
	c->counters.armed = r->by_pid.n;
	c->counters.bytes = history_bytes(&r->history);
	c->counters.hz = r->hz;
	c->counters.floor_ns = r->floor_ns;
	c->counters.samples = samples;
	c->counters.intervals = events;
	c->counters.lost = r->lost;
	c->counters.evicted = r->history.evicted;
	pthread_mutex_unlock(&c->lock);
}

int recorder_poll(struct recorder *r, int timeout_ms)
{
	int e = pipeline_poll(r->pipeline, timeout_ms);
	u64 now = clock_ns(CLOCK_MONOTONIC);

	if (e < 0)
		log_warn_rarely("requests: reading events failed: %s", strerror(-e));
	if (now >= r->take_ns ||
	    pipeline_bytes(r->pipeline) > r->history.max_batch_bytes / BATCHES_AT_LEAST) {
		if (recorder_take(r) < 0)
			log_warn_rarely("out of memory: requests lose samples");
		tell_counters(r);
	}
	history_trim(&r->history, r->pipeline, now);
	return e;
}
