/* SPDX-License-Identifier: Apache-2.0 */
/* The list of measurements, and what agents report. */
#include "server/measurements/measurements.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/quota.h"
#include "server/measurements/internal.h"
#include "trace/trace.h"

#define SAVE_MS 5000
/* Agents ask so often while a measurement is at work. */
#define ASK_MS 1000

_Static_assert(CONTROL_HIST_BITS == 2, "trace_hist_buckets(2) is 249");

const char *measurement_state_name(enum measurement_state s)
{
	static const char *const names[] = {
#define X(id, name, help) name,
		MEASUREMENT_STATES(X)
#undef X
	};

	return s < MEASUREMENT_STATE_N ? names[s] : "";
}

/* ---- one measurement ---- */

void measurement_info_deinit(struct measurement_info *i)
{
	vec_deinit(&i->agents);
	vec_deinit(&i->calls);
	*i = (struct measurement_info){};
}

void measurement_list_deinit(struct measurement_list *l)
{
	vec_foreach (&l->list, i)
		measurement_info_deinit(i);
	vec_deinit(&l->list);
}

void measurement_entry_destroy(struct measurement_entry *e)
{
	if (!e)
		return;
	measurement_info_deinit(&e->info);
	free(e);
}

/* Agents that have begun last end so long after it was asked for. */
static u64 end_of(const struct measurement_info *i)
{
	return i->created_ms + i->spec.duration_ms + MEASUREMENT_BEGIN_MS;
}

/* Whether each agent that has begun is done, after the time in which one could begin. */
static bool all_ended(const struct measurement_info *i, u64 now_ms)
{
	bool any = false;

	if (now_ms < i->created_ms + i->spec.duration_ms)
		return false;
	vec_foreach (&i->agents, a) {
		if (a->got.state == CONTROL_STATE_ARMED || a->got.state == CONTROL_STATE_QUEUED)
			return false;
		any |= a->got.state != CONTROL_STATE_ABSENT;
	}
	return any;
}

enum measurement_state measurement_state(const struct measurement_info *i, u64 now_ms)
{
	if (i->stopped_ms)
		return MEASUREMENT_STATE_STOPPED;
	return now_ms >= end_of(i) || all_ended(i, now_ms) ? MEASUREMENT_STATE_ENDED
							   : MEASUREMENT_STATE_RUNNING;
}

static int copy_info(const struct measurement_info *from, bool full, struct measurement_info *ret)
{
	struct measurement_info to = *from;
	size_t n_calls = full ? from->calls.n : MIN(from->calls.n, (size_t)1);
	int r;

	memset(&to.agents, 0, sizeof(to.agents));
	memset(&to.calls, 0, sizeof(to.calls));
	r = vec_reserve(&to.agents, from->agents.n);
	if (r == 0)
		r = vec_reserve(&to.calls, n_calls);
	if (r < 0) {
		measurement_info_deinit(&to);
		return r;
	}
	vec_foreach (&from->agents, a)
		(void)vec_push(&to.agents, *a); /* there is room */
	for (size_t k = 0; k < n_calls; k++)
		(void)vec_push(&to.calls, from->calls.data[k]);
	*ret = to;
	return 0;
}

/* ---- the sum of all agents ---- */

/* The value below which this share of the calls is: calls of a bucket are spread over it evenly. */
static u64 percentile(const struct measurement_sum *s, u64 n, double share)
{
	double rank = share * (double)n, seen = 0;

	for (u32 b = 0; b + 1 < CONTROL_MAX_BUCKETS; b++) {
		double here = (double)s->buckets[b];
		u64 low, high;

		if (here > 0 && seen + here >= rank) {
			low = trace_hist_low(b, CONTROL_HIST_BITS);
			high = trace_hist_low(b + 1, CONTROL_HIST_BITS);
			return low + (u64)((rank - seen) / here * (double)(high - low));
		}
		seen += here;
	}
	return 0;
}

static void add_agent_to(struct measurement_sum *s, const struct control_measurement *g)
{
	if (!g->measured_ms)
		return;
	s->hosts++;
	s->processes += g->processes;
	s->others |= g->others;
	s->calls += g->calls;
	s->returned += g->returned;
	s->total_ns += g->total_ns;
	s->slow += g->slow;
	s->max_ns = MAX(s->max_ns, g->longest_ns);
	s->lost += g->lost;
	s->calls_per_second +=
		1e3 * (double)g->calls / ((double)g->measured_ms * MAX(g->thinned, 1e-6));
	s->thinned = MIN(s->thinned, g->thinned);
	s->cost_percent = MAX(s->cost_percent, g->cost_percent);
	s->slow_ns = s->hosts == 1 ? g->slow_ns : MIN(s->slow_ns, g->slow_ns);
	for (u32 b = 0; b < g->n_buckets; b++)
		s->buckets[b] += g->buckets[b];
}

void measurement_sum(const struct measurement_info *i, struct measurement_sum *ret)
{
	u64 n = 0;

	*ret = (struct measurement_sum){.thinned = 1};
	vec_foreach (&i->agents, a)
		add_agent_to(ret, &a->got);
	for (u32 b = 0; b < CONTROL_MAX_BUCKETS; b++)
		n += ret->buckets[b];
	if (!n)
		return;
	ret->p50_ns = MIN(percentile(ret, n, 0.5), ret->max_ns);
	ret->p95_ns = MIN(percentile(ret, n, 0.95), ret->max_ns);
	ret->p99_ns = MIN(percentile(ret, n, 0.99), ret->max_ns);
}

/* ---- all measurements ---- */

int measurements_create(const char *directory, struct diag *reterr_diag, struct measurements **ret)
{
	_cleanup_measurements_ struct measurements *m = calloc(1, sizeof(*m));
	int r = 0;

	if (!m)
		return -ENOMEM;
	pthread_mutex_init(&m->lock, NULL);
	m->directory = directory ? strdup(directory) : NULL;
	if (directory && !m->directory)
		return -ENOMEM;
	if (directory)
		r = measurement_files_load(m, reterr_diag);
	if (r == 0)
		*ret = take_ptr(m);
	return r;
}

void measurements_destroy(struct measurements *m)
{
	if (!m)
		return;
	vec_foreach (&m->list, e) {
		if ((*e)->changed)
			(void)measurement_file_save(m, *e, NULL);
		measurement_entry_destroy(*e);
	}
	vec_deinit(&m->list);
	free(m->directory);
	pthread_mutex_destroy(&m->lock);
	free(m);
}

static struct measurement_entry *find(struct measurements *m, const char *id)
{
	vec_foreach (&m->list, e)
		if (!strcmp((*e)->info.id, id))
			return *e;
	return NULL;
}

static bool is_running(const struct measurement_entry *e, u64 now_ms)
{
	return measurement_state(&e->info, now_ms) == MEASUREMENT_STATE_RUNNING;
}

static void remove_at(struct measurements *m, size_t at)
{
	measurement_file_remove(m, m->list.data[at]->info.id);
	measurement_entry_destroy(m->list.data[at]);
	m->list.n--;
	memmove(m->list.data + at, m->list.data + at + 1, (m->list.n - at) * sizeof(*m->list.data));
}

static int make_room(struct measurements *m, const struct measurement_spec *s, u64 now_ms,
		     struct diag *reterr_diag)
{
	u32 same = 0;

	vec_foreach (&m->list, e)
		same += is_running(*e, now_ms) && !strcmp((*e)->info.spec.service, s->service);
	if (same >= MEASUREMENTS_PER_SERVICE)
		return diag_set(reterr_diag, -E2BIG,
				"%d functions of this service are measured now, which is the most: "
				"stop one, or wait",
				MEASUREMENTS_PER_SERVICE);
	for (size_t k = 0; m->list.n >= MEASUREMENTS_MAX && k < m->list.n; k++)
		if (!is_running(m->list.data[k], now_ms))
			remove_at(m, k--);
	if (m->list.n >= MEASUREMENTS_MAX)
		return diag_set(reterr_diag, -E2BIG,
				"%d functions are measured now, which is the most: stop one, or "
				"wait",
				MEASUREMENTS_MAX);
	return 0;
}

static struct measurement_entry *new_entry(struct measurements *m, const struct measurement_spec *s,
					   const char *by, u64 now_ms)
{
	struct measurement_entry *e = calloc(1, sizeof(*e));
	u32 random;

	if (!e)
		return NULL;
	e->info.spec = *s;
	e->info.created_ms = now_ms;
	snprintf(e->info.by, sizeof(e->info.by), "%s", by);
	do {
		if (getrandom(&random, sizeof(random), 0) != sizeof(random))
			random = (u32)clock_ns(CLOCK_MONOTONIC);
		snprintf(e->info.id, sizeof(e->info.id), "%08x", random);
	} while (find(m, e->info.id));
	return e;
}

static int add(struct measurements *m, const struct measurement_spec *s, const char *by,
	       char ret_id[CONTROL_ID_BYTES], struct diag *reterr_diag)
{
	u64 now = clock_epoch_ms();
	struct measurement_entry *e;
	int r = make_room(m, s, now, reterr_diag);

	if (r < 0)
		return r;
	e = new_entry(m, s, by, now);
	r = e ? measurement_file_save(m, e, reterr_diag) : -ENOMEM;
	if (r == 0 && vec_push(&m->list, e) < 0) {
		measurement_file_remove(m, e->info.id);
		r = -ENOMEM;
	}
	if (r == 0)
		memcpy(ret_id, e->info.id, CONTROL_ID_BYTES);
	else
		measurement_entry_destroy(e);
	return r;
}

int measurements_add(struct measurements *m, const struct measurement_spec *s, const char *by,
		     char ret_id[CONTROL_ID_BYTES], struct diag *reterr_diag)
{
	QUOTA_PAUSED; /* the list belongs to all requests */
	int r = measurement_spec_check(s, reterr_diag);

	if (r < 0)
		return r;
	pthread_mutex_lock(&m->lock);
	r = add(m, s, by, ret_id, reterr_diag);
	pthread_mutex_unlock(&m->lock);
	return r;
}

static int no_such(const char *id, struct diag *reterr_diag)
{
	return diag_set(reterr_diag, -ENOENT, "there is no measurement %.40s", id);
}

int measurements_stop(struct measurements *m, const char *id, struct diag *reterr_diag)
{
	QUOTA_PAUSED;
	u64 now = clock_epoch_ms();
	struct measurement_entry *e;
	int r = 0;

	pthread_mutex_lock(&m->lock);
	e = find(m, id);
	if (!e) {
		r = no_such(id, reterr_diag);
	} else if (is_running(e, now)) {
		e->info.stopped_ms = now;
		r = measurement_file_save(m, e, reterr_diag);
	}
	pthread_mutex_unlock(&m->lock);
	return r;
}

int measurements_delete(struct measurements *m, const char *id, struct diag *reterr_diag)
{
	QUOTA_PAUSED;
	int r = -ENOENT;

	pthread_mutex_lock(&m->lock);
	for (size_t k = 0; k < m->list.n && r < 0; k++)
		if (!strcmp(m->list.data[k]->info.id, id)) {
			remove_at(m, k);
			r = 0;
		}
	pthread_mutex_unlock(&m->lock);
	return r < 0 ? no_such(id, reterr_diag) : 0;
}

int measurements_list(struct measurements *m, struct measurement_list *ret)
{
	struct measurement_list out = {};
	int r = 0;

	pthread_mutex_lock(&m->lock);
	for (size_t k = m->list.n; k && r == 0; k--) {
		struct measurement_info i;

		r = copy_info(&m->list.data[k - 1]->info, false, &i);
		if (r == 0 && (r = vec_push(&out.list, i)) < 0)
			measurement_info_deinit(&i);
	}
	pthread_mutex_unlock(&m->lock);
	if (r < 0)
		measurement_list_deinit(&out);
	else
		*ret = out;
	return r;
}

int measurements_get(struct measurements *m, const char *id, struct measurement_info *ret,
		     struct diag *reterr_diag)
{
	struct measurement_entry *e;
	int r;

	pthread_mutex_lock(&m->lock);
	e = find(m, id);
	r = e ? copy_info(&e->info, true, ret) : no_such(id, reterr_diag);
	pthread_mutex_unlock(&m->lock);
	return r;
}

/* ---- what agents report ---- */

static bool is_agent(const struct measurement_agent *a, const struct control_request *q)
{
	return !strcmp(a->host, q->host) && !strcmp(a->host_id, q->host_id);
}

static struct measurement_agent *find_agent(struct measurement_info *i,
					    const struct control_request *q)
{
	vec_foreach (&i->agents, a)
		if (is_agent(a, q))
			return a;
	return NULL;
}

/* One that sees no process makes room. NULL: there is none, or no memory. */
static struct measurement_agent *new_agent(struct measurement_info *i,
					   const struct control_request *q)
{
	struct measurement_agent new = {.started_ms = q->started_ms}, *at = NULL;

	memcpy(new.host, q->host, sizeof(new.host));
	memcpy(new.host_id, q->host_id, sizeof(new.host_id));
	if (i->agents.n < MEASUREMENT_MAX_AGENTS)
		return vec_push(&i->agents, new) < 0 ? NULL : &i->agents.data[i->agents.n - 1];
	vec_foreach (&i->agents, a)
		if (a->got.state == CONTROL_STATE_ABSENT)
			at = a;
	if (at)
		*at = new;
	return at;
}

/* What the agent counted in an earlier run is what there will be of it. */
static bool was_restarted(struct measurement_agent *a, const struct control_request *q)
{
	if (a->started_ms == q->started_ms)
		return false;
	if (a->got.state == CONTROL_STATE_ARMED || a->got.state == CONTROL_STATE_QUEUED) {
		a->got.state = CONTROL_STATE_ENDED;
		snprintf(a->got.reason, sizeof(a->got.reason),
			 "the agent was restarted before the end");
	}
	return a->got.measured_ms != 0;
}

static void note_report(struct measurement_entry *e, const struct control_request *q,
			const struct control_measurement *got, u64 now_ms)
{
	struct measurement_agent *a = find_agent(&e->info, q);

	if (!a)
		a = new_agent(&e->info, q);
	if (!a || was_restarted(a, q))
		return;
	a->started_ms = q->started_ms;
	a->asked_ms = now_ms;
	a->got = *got;
	e->changed = true;
}

/* An agent tells again what it has told, until it knows that it was heard. */
static bool is_known(const struct measurement_info *i, const struct control_request *q,
		     const struct control_call *c)
{
	vec_foreach (&i->calls, k)
		if (k->call.end_ns == c->end_ns && k->call.tid == c->tid && k->call.ns == c->ns &&
		    !strcmp(k->host, q->host))
			return true;
	return false;
}

static void note_call(struct measurement_entry *e, const struct control_request *q,
		      const struct control_call *c)
{
	struct measurement_info *i = &e->info;
	struct measurement_call new = {.call = *c};
	size_t at = i->calls.n;

	if (is_known(i, q, c))
		return;
	i->told++;
	memcpy(new.host, q->host, sizeof(new.host));
	while (at && i->calls.data[at - 1].call.ns < c->ns)
		at--;
	if (at >= MEASUREMENT_MAX_CALLS)
		return;
	if (i->calls.n == MEASUREMENT_MAX_CALLS)
		i->calls.n--;
	if (vec_push(&i->calls, new) < 0)
		return;
	memmove(i->calls.data + at + 1, i->calls.data + at,
		(i->calls.n - 1 - at) * sizeof(*i->calls.data));
	i->calls.data[at] = new;
	e->changed = true;
}

static void note_question(struct measurements *m, const struct control_request *q, u64 now_ms)
{
	vec_foreach (&q->measured, got) {
		struct measurement_entry *e = find(m, got->id);

		if (e && !e->info.stopped_ms)
			note_report(e, q, got, now_ms);
	}
	vec_foreach (&q->calls, c) {
		struct measurement_entry *e = find(m, c->measure);

		if (e && find_agent(&e->info, q))
			note_call(e, q, c);
	}
}

static int tell_measure(const struct measurement_info *i, struct control_response *ret)
{
	struct control_measure c = {
		.duration_ms = (u32)i->spec.duration_ms,
		.slow_ns = i->spec.slow_ns,
		.budget_percent = i->spec.budget_percent,
	};

	memcpy(c.id, i->id, sizeof(c.id));
	memcpy(c.service, i->spec.service, sizeof(c.service));
	memcpy(c.function, i->spec.function, sizeof(c.function));
	memcpy(c.file, i->spec.file, sizeof(c.file));
	return vec_push(&ret->measures, c);
}

/* An agent that was restarted does not begin again. */
static bool wants(struct measurement_info *i, const struct control_request *q)
{
	struct measurement_agent *a = find_agent(i, q);

	return !a || !was_restarted(a, q);
}

int measurements_sync(struct measurements *m, const struct control_request *q,
		      struct control_response *ret)
{
	u64 now = clock_epoch_ms();
	int r = 0;

	pthread_mutex_lock(&m->lock);
	{
		QUOTA_PAUSED; /* the list belongs to all requests */
		note_question(m, q, now);
	}
	vec_foreach (&m->list, e)
		if (r == 0 && !(*e)->info.stopped_ms && now < end_of(&(*e)->info) &&
		    wants(&(*e)->info, q))
			r = tell_measure(&(*e)->info, ret);
	pthread_mutex_unlock(&m->lock);
	if (ret->measures.n)
		ret->next_ms = MIN(ret->next_ms, (u32)ASK_MS);
	return r;
}

void measurements_tick(struct measurements *m)
{
	QUOTA_PAUSED;
	u64 now = clock_epoch_ms();

	pthread_mutex_lock(&m->lock);
	vec_foreach (&m->list, e)
		if ((*e)->changed && (now >= (*e)->saved_ms + SAVE_MS || now < (*e)->saved_ms))
			(void)measurement_file_save(m, *e, NULL);
	pthread_mutex_unlock(&m->lock);
}
