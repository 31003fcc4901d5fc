/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From requests to keep to profiles. Capture's thread gathers what belongs to requests; another
 * thread finds the names of their stacks, which may take seconds, and passes the profiles on. One
 * such job goes on at a time.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "agent/capture/job.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "base/vocab.h"

#define AT_ONCE 256
#define DECIDE_NS 500000000ULL
/* A request that ends in the future, by another clock, is not waited for longer. */
#define FUTURE_NS 5000000000ULL
/* Tells the types of the profiles from others of their names. */
#define GROUP "request"

static void job_destroy(struct job *j)
{
	if (!j)
		return;
	vec_foreach (&j->parts, part)
		vec_deinit(&part->events);
	vec_deinit(&j->parts);
	vec_deinit(&j->wishes);
	vec_deinit(&j->results);
	vec_deinit(&j->processes);
	profile_destroy(j->wall);
	profile_destroy(j->time);
	free(j);
}

/* Under the lock of capture: moves the wishes that are due to the job. */
static int take_wishes(struct recorder *r, struct job *j, u64 now)
{
	struct capture *c = r->capture;
	size_t left = 0;
	int e = 0;

	for (size_t i = 0; i < c->wishes.n; i++) {
		const struct capture_wish *w = &c->wishes.data[i];
		u64 end = history_monotonic(&r->history, w->keep.end_ns);
		bool is_due = now >= end + CAPTURE_SETTLE_NS || now >= w->asked_ns + FUTURE_NS;

		if (is_due && j->wishes.n < AT_ONCE && e == 0) {
			e = vec_push(&j->wishes, *w);
			if (e == 0)
				continue;
		}
		c->wishes.data[left++] = *w;
	}
	c->wishes.n = left;
	return e;
}

static int init_profile(struct profile *p, const struct recorder *r, enum sample_type type)
{
	const struct vocab_sample_type *row = vocab_sample_type(type);
	int e = profile_add_table_type(p, type);

	if (e == 0)
		e = profile_add_string(p, GROUP, strlen(GROUP), &p->period_name);
	if (e == 0)
		e = profile_add_string(p, row->unit, strlen(row->unit), &p->period_unit);
	p->period = r->hz ? (s64)(1000000000 / r->hz) : 0;
	return e;
}

static void fill_head(struct profile *p, const struct job *j)
{
	u64 begin = ~0ULL, end = 0;

	for (size_t i = 0; i < j->wishes.n; i++) {
		begin = MIN(begin, j->wishes.data[i].keep.start_ns);
		end = MAX(end, j->wishes.data[i].keep.end_ns);
	}
	p->time_ns = begin;
	p->duration_ns = end > begin ? end - begin : 0;
	profile_derive_quality(p);
	p->quality.lost = j->lost;
	p->quality.measured = true;
}

static void give(const struct job *j, struct profile **p)
{
	const struct capture_options *o = &j->r->capture->options;

	if (!(*p)->n_samples)
		return;
	fill_head(*p, j);
	o->take(o->arg, take_ptr(*p));
}

/* Names the stacks, and passes the profiles on. */
static void *work_on_job(void *arg)
{
	struct job *j = arg;
	/* The thread inherits the raised priority of the one that reads. */
	(void)setpriority(PRIO_PROCESS, (id_t)gettid(), 0);
	vec_foreach (&j->parts, part) {
		const struct control_keep *k = &j->wishes.data[part->wish].keep;
		const struct context_label labels[] = {
			{LABEL_TASK, k->task},
			{LABEL_KEPT, control_reason_name(k->reason)},
		};
		int e = symbolizer_add(j->r->symbolizer, part->batch, part->events.data,
				       part->events.n, labels, ARRAY_SIZE(labels), j->wall);

		if (e < 0)
			log_warn_rarely("a kept request lacks stacks: %s", strerror(-e));
	}
	give(j, &j->wall);
	give(j, &j->time);
	__atomic_store_n(&j->done, true, __ATOMIC_RELEASE);
	return NULL;
}

static int begin_job(struct recorder *r, struct job *j)
{
	int e;

	j->r = r;
	j->lost = r->lost - r->lost_before;
	j->wall = profile_create();
	j->time = profile_create();
	e = j->wall && j->time ? init_profile(j->wall, r, SAMPLE_TYPE_REQUEST_WALL) : -ENOMEM;
	if (e == 0)
		e = init_profile(j->time, r, SAMPLE_TYPE_REQUEST_TIME);
	for (size_t i = 0; i < j->wishes.n && e == 0; i++)
		e = vec_push(&j->results, (struct control_kept){.outcome = CONTROL_OUTCOME_N});
	for (u32 i = 0; i < j->wishes.n && e == 0; i++) {
		e = gather(r, j, i);
		if (e == -ESRCH) {
			j->results.data[i].outcome = CONTROL_OUTCOME_N;
			e = 0;
		}
	}
	r->job = j;
	return e < 0 ? e : thread_start(&j->thread, "keeper", work_on_job, j);
}

static void tell_results(struct recorder *r, const struct job *j)
{
	pthread_mutex_lock(&r->capture->lock);
	for (size_t i = 0; i < j->results.n; i++)
		if (j->results.data[i].outcome < CONTROL_OUTCOME_N && !j->wishes.data[i].until_ns)
			capture_decided(r->capture, &j->wishes.data[i], j->results.data[i].outcome,
					j->results.data[i].samples);
	pthread_mutex_unlock(&r->capture->lock);
}

/* The job's thread has ended. */
static void end_job(struct recorder *r)
{
	struct job *j = r->job;

	pthread_join(j->thread, NULL);
	tell_results(r, j);
	vec_foreach (&r->history.batches, b)
		b->is_used = false;
	r->lost_before = r->lost;
	r->job = NULL;
	job_destroy(j);
}

void decide_end(struct recorder *r)
{
	if (r->job)
		end_job(r);
}

bool decide(struct recorder *r)
{
	u64 now = clock_ns(CLOCK_MONOTONIC);
	struct job *j;
	int e;

	if (r->job && !__atomic_load_n(&r->job->done, __ATOMIC_ACQUIRE))
		return false;
	if (r->job)
		end_job(r);
	if (now < r->decide_ns)
		return false;
	r->decide_ns = now + DECIDE_NS;
	j = calloc(1, sizeof(*j));
	if (!j)
		return false;
	e = long_look(r, now, &j->wishes);
	pthread_mutex_lock(&r->capture->lock);
	if (e == 0)
		e = take_wishes(r, j, now);
	pthread_mutex_unlock(&r->capture->lock);
	if (!j->wishes.n) {
		job_destroy(j);
		return false;
	}
	if (e == 0)
		e = recorder_take(r);
	if (e == 0)
		e = begin_job(r, j);
	if (e < 0) {
		log_warn("requests are not kept: %s", strerror(-e));
		r->job = NULL;
		job_destroy(j);
	}
	return true;
}
