/* SPDX-License-Identifier: Apache-2.0 */
/* Answers agents: notes what they report, and tells them tasks and the requests to keep. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/quota.h"
#include "server/tasks/internal.h"

#define ASK_MS 2000	 /* while there are tasks */
#define ASK_IDLE_MS 5000 /* else */

u64 task_agent_key(const char *host, const char *host_id)
{
	u8 text[2 * CONTROL_TEXT_BYTES] = {};

	snprintf((char *)text, CONTROL_TEXT_BYTES, "%s", host);
	snprintf((char *)text + CONTROL_TEXT_BYTES, CONTROL_TEXT_BYTES, "%s", host_id);
	return hash_bytes(text, sizeof(text)) >> 1; /* not one of the table's own */
}

/*
 * The position of an agent that sees no process of the service, and has delivered nothing: of many
 * agents, these are the first to be forgotten. Or ~0.
 */
static u32 find_idle_agent(const struct task_info *i)
{
	for (u32 k = 0; k < i->agents.n; k++)
		if (i->agents.data[k].state == CONTROL_STATE_ABSENT && !i->agents.data[k].kept)
			return k;
	return ~0u;
}

static u32 add_agent(struct task_entry *e, const struct task_agent *new)
{
	struct task_info *i = &e->info;
	u32 at;

	if (i->agents.n < TASKS_MAX_AGENTS)
		return vec_push(&i->agents, *new) < 0 ? ~0u : (u32)i->agents.n - 1;
	at = find_idle_agent(i);
	if (at == ~0u)
		return at;
	(void)map_del(&e->agents,
		      task_agent_key(i->agents.data[at].host, i->agents.data[at].host_id), NULL);
	i->agents.data[at] = *new;
	return at;
}

u32 task_agent_index(struct task_entry *e, const char *host, const char *host_id)
{
	u64 key = task_agent_key(host, host_id);
	const u64 *known = map_get(&e->agents, key);
	struct task_agent new = {.state = CONTROL_STATE_QUEUED};
	u32 at;

	if (known)
		return (u32)*known;
	snprintf(new.host, sizeof(new.host), "%s", host);
	snprintf(new.host_id, sizeof(new.host_id), "%s", host_id);
	at = map_put(&e->agents, key, 0) < 0 ? ~0u : add_agent(e, &new);
	if (at == ~0u)
		(void)map_del(&e->agents, key, NULL);
	else
		*map_get(&e->agents, key) = at;
	return at;
}

/* What an agent's state is, as the end of a sentence. */
static const char *state_text(enum control_state s)
{
	static const char *const texts[] = {
#define X(id, name, help) help,
		CONTROL_STATES(X)
#undef X
	};

	return s < CONTROL_STATE_N ? texts[s] : "";
}

static void note_report(struct task_entry *e, const struct control_request *q,
			const struct control_task_report *r, u64 now_ms)
{
	bool is_new = !map_get(&e->agents, task_agent_key(q->host, q->host_id));
	struct task_agent *a;
	u32 at;

	if (r->state >= CONTROL_STATE_N)
		return;
	at = task_agent_index(e, q->host, q->host_id);
	if (at == ~0u)
		return;
	a = &e->info.agents.data[at];
	/* Most agents of a fleet see nothing of the service: that is no line of the log. */
	if (is_new ? r->state != CONTROL_STATE_ABSENT
		   : a->state != r->state || strcmp(a->reason, r->reason) != 0)
		task_log(e, now_ms, q->host, "%s%s%.100s", state_text(r->state),
			 r->reason[0] ? ": " : "", r->reason);
	a->asked_ms = now_ms;
	a->state = r->state;
	snprintf(a->reason, sizeof(a->reason), "%s", r->reason);
	a->processes = r->processes;
	a->publishing = r->publishing;
	a->samples = r->samples;
	a->events = r->events;
	a->lost = r->lost;
	a->evicted = r->evicted;
	e->changed = true;
}

static struct task_request *find_request(struct task_info *i, const u8 trace[16], const u8 span[8])
{
	for (size_t k = i->requests.n; k; k--) {
		struct task_request *q = &i->requests.data[k - 1];

		if (!memcmp(q->span_id, span, sizeof(q->span_id)) &&
		    !memcmp(q->trace_id, trace, sizeof(q->trace_id)))
			return q;
	}
	return NULL;
}

static bool is_kept(u8 outcome)
{
	return outcome == CONTROL_OUTCOME_KEPT || outcome == CONTROL_OUTCOME_PARTLY;
}

static void note_outcome(struct tasks *t, struct task_entry *e, const struct control_request *from,
			 const struct control_kept *k, u64 now_ms)
{
	struct task_request *q = find_request(&e->info, k->trace_id, k->span_id);
	bool had = q && is_kept(q->outcome);
	u32 at;

	if (!q || k->outcome >= CONTROL_OUTCOME_N || !task_settle(t, e, q, (u8)k->outcome, now_ms))
		return;
	at = task_agent_index(e, from->host, from->host_id);
	q->agent = at;
	q->samples = k->samples;
	if (at != ~0u && is_kept(q->outcome) && !had)
		e->info.agents.data[at].kept++;
	task_update_state(e, now_ms);
}

static void note_question(struct tasks *t, const struct control_request *q, u64 now_ms)
{
	t->questions++;
	t->asked_ms = now_ms;
	(void)map_put(&t->askers, task_agent_key(q->host, q->host_id), now_ms);
	vec_foreach (&q->tasks, r) {
		struct task_entry *e = tasks_find(t, r->id);

		if (e)
			note_report(e, q, r, now_ms);
	}
	vec_foreach (&q->kept, k) {
		struct task_entry *e = tasks_find(t, k->task);

		if (e)
			note_outcome(t, e, q, k, now_ms);
	}
}

/* ---- the answer ---- */

static int tell_task(const struct task_info *i, struct control_response *ret)
{
	struct control_task out = {
		.revision = i->revision,
		.start_ms = i->start_ms,
		.end_ms = i->end_ms,
		.period_us = i->spec.period_us,
		.floor_us = i->spec.floor_us,
		.on_cpu = i->spec.on_cpu,
		.off_cpu = i->spec.off_cpu,
	};

	memcpy(out.id, i->id, sizeof(out.id));
	memcpy(out.service, i->spec.service, sizeof(out.service));
	return vec_push(&ret->tasks, out);
}

/* Those that are not over come first: there is room for all of them. */
static int tell_tasks(struct tasks *t, u64 now_ms, struct control_response *ret)
{
	int r = 0;

	for (int over = 0; over < 2 && r == 0; over++)
		vec_foreach (&t->list, e) {
			const struct task_info *i = &(*e)->info;
			bool is_over = i->end_ms && now_ms >= i->end_ms;

			if (r < 0 || ret->tasks.n == CONTROL_MAX_TASKS || is_over != over ||
			    i->spec.kind != TASK_KIND_REQUESTS ||
			    (is_over && !task_lingers(i, now_ms)))
				continue;
			r = tell_task(i, ret);
		}
	return r;
}

struct candidate {
	u64 number;
	const struct task_info *task;
	const struct task_request *request;
};

struct candidates {
	vec(struct candidate) list;
};

static int compare_candidates(const void *a, const void *b)
{
	const struct candidate *x = a, *y = b;

	return x->number < y->number ? -1 : x->number > y->number;
}

static bool wants_more_of(const struct task_entry *e, u64 agent_key)
{
	const u64 *at = map_get(&e->agents, agent_key);
	u32 max = e->info.spec.max_per_agent;

	return !max || !at || e->info.agents.data[*at].kept < max;
}

static int find_candidates(struct tasks *t, u64 after, u64 agent_key, u64 now_ms,
			   struct candidates *ret)
{
	int r = 0;

	vec_foreach (&t->list, e) {
		const struct task_info *i = &(*e)->info;

		if (!wants_more_of(*e, agent_key))
			continue;
		for (size_t k = i->requests.n; k && r == 0; k--) {
			const struct task_request *q = &i->requests.data[k - 1];

			if (q->number <= after || now_ms >= q->decided_ms + TASKS_KEEP_MS)
				break;
			if (!is_kept(q->outcome))
				r = vec_push(&ret->list, (struct candidate){q->number, i, q});
		}
	}
	if (ret->list.n)
		qsort(ret->list.data, ret->list.n, sizeof(*ret->list.data), compare_candidates);
	return r;
}

static int tell_keep(const struct candidate *c, struct control_response *ret)
{
	const struct task_request *q = c->request;
	struct control_keep out = {
		.start_ns = q->start_ns,
		.end_ns = q->start_ns + q->duration_ns,
		.reason = (enum control_reason)q->reason,
	};

	memcpy(out.task, c->task->id, sizeof(out.task));
	memcpy(out.trace_id, q->trace_id, sizeof(out.trace_id));
	memcpy(out.span_id, q->span_id, sizeof(out.span_id));
	return vec_push(&ret->keeps, out);
}

/* A cursor that this server never gave is none. */
static int tell_keeps(struct tasks *t, const struct control_request *q, u64 now_ms,
		      struct control_response *ret)
{
	struct candidates all = {};
	int r = find_candidates(t, q->cursor <= t->number ? q->cursor : 0,
				task_agent_key(q->host, q->host_id), now_ms, &all);

	ret->cursor = t->number;
	for (size_t k = 0; k < all.list.n && r == 0; k++) {
		if (k == CONTROL_MAX_KEEPS) {
			ret->cursor = all.list.data[k - 1].number;
			break;
		}
		r = tell_keep(&all.list.data[k], ret);
	}
	vec_deinit(&all.list);
	return r;
}

void tasks_note(struct tasks *t, const struct control_request *q)
{
	QUOTA_PAUSED;
	u64 now = clock_epoch_ms();

	pthread_mutex_lock(&t->lock);
	note_question(t, q, now);
	pthread_mutex_unlock(&t->lock);
}

int tasks_sync(struct tasks *t, const struct control_request *q, struct control_response *ret,
	       struct diag *reterr_diag)
{
	struct control_response out = {.next_ms = ASK_IDLE_MS};
	u64 now = clock_epoch_ms();
	int r;

	if (!q->host[0] && !q->host_id[0])
		return diag_set(reterr_diag, -EINVAL, "an agent that asks for tasks needs a host");
	pthread_mutex_lock(&t->lock);
	{
		QUOTA_PAUSED; /* the list belongs to all requests */
		note_question(t, q, now);
	}
	r = tell_tasks(t, now, &out);
	if (r == 0)
		r = tell_keeps(t, q, now, &out);
	pthread_mutex_unlock(&t->lock);
	if (out.tasks.n)
		out.next_ms = ASK_MS;
	(void)task_files_save(t, NULL);
	if (r < 0) {
		vec_deinit(&out.tasks);
		vec_deinit(&out.keeps);
		return diag_set(reterr_diag, r, "no memory for tasks");
	}
	*ret = out;
	return 0;
}
