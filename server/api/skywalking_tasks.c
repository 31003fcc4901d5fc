/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tasks for SkyWalking's agents. An agent runs one task at a time, and forgets one that it cannot
 * run at once: so it gets the oldest task of its service that it can run, and the next one when
 * that has ended. It decides by itself which requests it profiles, and begins when a request has
 * taken the task's threshold.
 *
 * To a task it is an agent like any other (tasks_sync()): armed, queued, or refused with a reason.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/pb.h"
#include "format/skywalking.pb-c.h"
#include "server/api/internal.h"

/* What agents accept; they drop a task that is beyond. */
#define MIN_PERIOD_MS 10
#define MAX_MINUTES 15
#define MAX_REQUESTS 9
#define MINUTE_MS 60000ULL

/* What an agent can do of a task. */
struct order {
	u64 start_ms, minutes, threshold_ms, period_ms, requests;
	char clamped[160]; /* what the agent cannot do as the task says, or "" */
};

/* Why agents of SkyWalking cannot run the task, or NULL. */
static const char *obstacle(const struct task_info *t)
{
	const char *e = t->spec.endpoint;

	if (!*e || *e == '~' || strchr(e, '*'))
		return "SkyWalking's agents need the whole name of one endpoint";
	if (!t->spec.has_min && t->spec.percentile > 0)
		return "SkyWalking's agents need a threshold in ms, and know no percentiles";
	return NULL;
}

static void order_of(const struct task_info *t, u64 now_ms, struct order *ret)
{
	const struct task_spec *s = &t->spec;
	u64 start = MAX(t->start_ms, now_ms);
	u64 wanted = s->max_per_agent ? s->max_per_agent : s->max_requests;
	u64 minutes = t->end_ms > start ? (t->end_ms - start + MINUTE_MS - 1) / MINUTE_MS : 1;
	struct order o = {
		.start_ms = start,
		.minutes = MIN(t->end_ms ? minutes : ~0ULL, (u64)MAX_MINUTES),
		.threshold_ms = s->has_min ? MIN(s->min_ns / 1000000, (u64)INT32_MAX) : 0,
		.period_ms = MAX(s->period_us / 1000, (u32)MIN_PERIOD_MS),
		.requests = wanted ? MIN(wanted, (u64)MAX_REQUESTS) : MAX_REQUESTS,
	};
	_cleanup_str_ struct str text = {};

	if (!t->end_ms || minutes > MAX_MINUTES)
		str_printf(&text, ", 15 minutes");
	if (s->period_us < MIN_PERIOD_MS * 1000)
		str_printf(&text, ", a period of 10 ms");
	if (!wanted || wanted > MAX_REQUESTS)
		str_printf(&text, ", 9 requests");
	if (text.n)
		snprintf(o.clamped, sizeof(o.clamped), "at most%s", str_get(&text) + 1);
	*ret = o;
}

/* ---- the command ---- */

void api_skywalking_put_text(struct api_skywalking_arguments *a, const char *key, const char *value)
{
	a->list[a->n].key = key;
	a->list[a->n++].value = value;
}

void api_skywalking_put_number(struct api_skywalking_arguments *a, const char *key, u64 value)
{
	snprintf(a->list[a->n].number, sizeof(a->list[0].number), "%llu", value);
	api_skywalking_put_text(a, key, a->list[a->n].number);
}

int api_skywalking_command(const struct api_skywalking_arguments *a, const char *name,
			   struct str *out)
{
	Skywalking__KeyStringValuePair pair[ARRAY_SIZE(a->list)], *list[ARRAY_SIZE(a->list)];
	Skywalking__Command command = SKYWALKING__COMMAND__INIT, *one = &command;
	Skywalking__Commands all = SKYWALKING__COMMANDS__INIT;

	for (size_t i = 0; i < a->n; i++) {
		skywalking__key_string_value_pair__init(&pair[i]);
		pair[i].key = (char *)a->list[i].key;
		pair[i].value = (char *)a->list[i].value;
		list[i] = &pair[i];
	}
	command.command = (char *)name;
	command.n_args = a->n;
	command.args = list;
	all.n_commands = 1;
	all.commands = &one;
	return pb_pack(&all.base, out);
}

static int put_command(const struct task_info *t, const struct order *o, struct str *out)
{
	struct api_skywalking_arguments a = {};

	api_skywalking_put_text(&a, "SerialNumber", t->id);
	api_skywalking_put_text(&a, "TaskId", t->id);
	api_skywalking_put_text(&a, "EndpointName", t->spec.endpoint);
	api_skywalking_put_number(&a, "Duration", o->minutes);
	api_skywalking_put_number(&a, "MinDurationThreshold", o->threshold_ms);
	api_skywalking_put_number(&a, "DumpPeriod", o->period_ms);
	api_skywalking_put_number(&a, "MaxSamplingCount", o->requests);
	api_skywalking_put_number(&a, "StartTime", o->start_ms);
	api_skywalking_put_number(&a, "CreateTime", t->created_ms);
	return api_skywalking_command(&a, "ProfileTaskQuery", out);
}

/* ---- the agent as the tasks see it ---- */

void api_skywalking_host(const char *instance, char ret[CONTROL_TEXT_BYTES])
{
	snprintf(ret, CONTROL_TEXT_BYTES, "%.200s", *instance ? instance : "SkyWalking's agent");
}

/* Reports for an agent. What it is told to keep is nothing to it: it chooses by itself. */
static int tell(struct api *a, const char *instance, struct control_request *q, bool at_once)
{
	_cleanup_control_response_ struct control_response none = {};

	api_skywalking_host(instance, q->host);
	snprintf(q->host_id, sizeof(q->host_id), TASKS_SKYWALKING);
	snprintf(q->version, sizeof(q->version), "SkyWalking");
	if (!at_once)
		return tasks_sync(a->o.tasks, q, &none, NULL);
	tasks_note(a->o.tasks, q);
	return 0;
}

static int report(struct api *a, const char *instance, const struct task_info *t,
		  struct control_task_report r, const char *reason, bool at_once)
{
	_cleanup_control_request_ struct control_request q = {};
	int e;

	memcpy(r.id, t->id, sizeof(r.id));
	snprintf(r.reason, sizeof(r.reason), "%s", reason);
	r.revision = t->revision;
	r.processes = r.publishing = 1;
	e = vec_push(&q.tasks, r);
	return e < 0 ? e : tell(a, instance, &q, at_once);
}

int api_skywalking_report(struct api *a, const char *instance, const struct task_info *t,
			  enum control_state state, const char *reason, u64 samples)
{
	return report(a, instance, t,
		      (struct control_task_report){.state = state, .samples = samples}, reason,
		      false);
}

void api_skywalking_broke_off(struct api *a, const char *instance, const struct task_info *t,
			      const char *reason)
{
	(void)report(a, instance, t, (struct control_task_report){.state = CONTROL_STATE_REFUSED},
		     reason, true);
}

void api_skywalking_kept(struct api *a, const struct ingest_skywalking_kept *k)
{
	_cleanup_control_request_ struct control_request q = {};
	struct control_kept kept = {.outcome = CONTROL_OUTCOME_KEPT, .samples = k->samples};

	if (!a->o.tasks || strlen(k->task) >= sizeof(kept.task))
		return;
	snprintf(kept.task, sizeof(kept.task), "%s", k->task);
	memcpy(kept.trace_id, k->trace_id, sizeof(kept.trace_id));
	memcpy(kept.span_id, k->span_id, sizeof(kept.span_id));
	if (vec_push(&q.kept, kept) == 0)
		(void)tell(a, k->instance, &q, false);
}

static bool is_of(const struct task_info *t, const char *service, u64 now_ms)
{
	enum task_state s = task_state(t, now_ms);

	return t->spec.kind == TASK_KIND_REQUESTS && !strcmp(t->spec.service, service) &&
	       (s == TASK_STATE_QUEUED || s == TASK_STATE_RUNNING);
}

/* The tasks of a service, oldest first: the first that agents can run is theirs. */
static int give_task(struct api *a, const Skywalking__ProfileTaskCommandQuery *q, struct str *out)
{
	_cleanup_task_list_ struct task_list all = {};
	u64 now = clock_epoch_ms();
	const struct task_info *given = NULL;
	int r = tasks_list(a->o.tasks, &all);

	for (size_t i = all.list.n; i && r == 0; i--) {
		const struct task_info *t = &all.list.data[i - 1];
		const char *why = obstacle(t);
		struct order o;

		if (!is_of(t, q->service, now))
			continue;
		if (why || given) {
			r = api_skywalking_report(
				a, q->service_instance, t,
				why ? CONTROL_STATE_REFUSED : CONTROL_STATE_QUEUED,
				why ? why : "SkyWalking's agents run one task at a time", 0);
			continue;
		}
		given = t;
		order_of(t, now, &o);
		r = api_skywalking_report(a, q->service_instance, t, CONTROL_STATE_ARMED, o.clamped,
					  0);
		if (r < 0 ||
		    (q->last_command_time > 0 && t->created_ms <= (u64)q->last_command_time))
			continue;
		log_info("task %s: given to SkyWalking's agent %.60s of %.60s%s%s", t->id,
			 q->service_instance, q->service, o.clamped[0] ? ", " : "", o.clamped);
		r = put_command(t, &o, out);
	}
	return r;
}

int api_skywalking_commands(struct api *a, const u8 *data, size_t n, struct str *out,
			    struct diag *reterr_diag)
{
	_cleanup_arena_ struct arena arena = ARENA_INIT(1u << 20);
	ProtobufCMessage *m = NULL;
	int r = pb_unpack(&skywalking__profile_task_command_query__descriptor,
			  "a question for profile tasks", data, n, &arena, &m, reterr_diag);

	return r < 0 || !a->o.tasks
		       ? r
		       : give_task(a, (const Skywalking__ProfileTaskCommandQuery *)m, out);
}

int api_skywalking_finished(struct api *a, const u8 *data, size_t n, struct diag *reterr_diag)
{
	_cleanup_arena_ struct arena arena = ARENA_INIT(1u << 20);
	const Skywalking__ProfileTaskFinishReport *q;
	_cleanup_task_info_ struct task_info t = {};
	ProtobufCMessage *m = NULL;
	int r = pb_unpack(&skywalking__profile_task_finish_report__descriptor,
			  "the end of a profile task", data, n, &arena, &m, reterr_diag);

	if (r < 0 || !a->o.tasks)
		return r;
	q = (const Skywalking__ProfileTaskFinishReport *)m;
	/* It may have been deleted meanwhile. */
	r = tasks_get(a->o.tasks, q->task_id, &t, NULL);
	return r < 0 ? 0
		     : api_skywalking_report(a, q->service_instance, &t, CONTROL_STATE_ENDED, "",
					     0);
}

void api_skywalking_find_task(struct api *a, const char *id, struct ingest_skywalking_task *ret)
{
	_cleanup_task_info_ struct task_info t = {};
	struct order o;

	if (!a->o.tasks || tasks_get(a->o.tasks, id, &t, NULL) < 0)
		return;
	order_of(&t, clock_epoch_ms(), &o);
	snprintf(ret->service, sizeof(ret->service), "%s", t.spec.service);
	ret->period_ns = o.period_ms * 1000000;
}
