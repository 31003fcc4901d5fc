/* SPDX-License-Identifier: Apache-2.0 */
/* Tasks as JSON: for the API, and with the same members in files. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "server/tasks/internal.h"

void task_spec_put(struct json_writer *w, const char *key, const struct task_spec *s)
{
	json_open_object(w, key);
	/* Servers that know one kind only refuse these members. */
	if (s->kind != TASK_KIND_REQUESTS) {
		json_put_text(w, "kind", task_kind_name(s->kind));
		json_put_text(w, "events", s->events);
	}
	json_put_exact(w, "service", s->service);
	json_put_exact(w, "endpoint", s->endpoint);
	json_put_u64(w, "start", s->start_ms);
	json_put_u64(w, "duration_ms", s->duration_ms);
	if (s->has_min)
		json_put_scaled(w, "min_ms", s->min_ns, 6);
	else
		json_put_null(w, "min_ms");
	if (s->percentile > 0)
		json_put_double(w, "percentile", s->percentile);
	else
		json_put_null(w, "percentile");
	json_put_bool(w, "errors", s->errors);
	json_put_double(w, "control", s->control);
	json_put_u64(w, "period_us", s->period_us);
	json_put_u64(w, "floor_us", s->floor_us);
	json_put_bool(w, "running", s->on_cpu);
	json_put_bool(w, "waiting", s->off_cpu);
	json_put_u64(w, "max_requests", s->max_requests);
	json_put_u64(w, "max_per_agent", s->max_per_agent);
	json_put_u64(w, "max_per_minute", s->max_per_minute);
	json_close(w);
}

void task_cause_put(struct json_writer *w, const char *key, const struct task_cause *c)
{
	if (!c->policy[0]) {
		json_put_null(w, key);
		return;
	}
	json_open_object(w, key);
	json_put_text(w, "policy", c->policy);
	json_put_text(w, "cause", c->cause);
	json_put_text(w, "unit", c->unit);
	json_put_double(w, "value", c->value);
	json_put_double(w, "threshold", c->threshold);
	json_put_u64(w, "at", c->at_ms);
	json_put_text(w, "host", c->host);
	json_put_u64(w, "pid", c->pid);
	json_put_text(w, "comm", c->comm);
	json_put_exact(w, "endpoint", c->endpoint);
	json_put_text(w, "text", c->text);
	json_close(w);
}

static void copy_text(const json_t *o, const char *name, char *ret, size_t n)
{
	const char *text = json_string_value(json_object_get(o, name));

	snprintf(ret, n, "%s", text ? text : "");
}

void task_cause_read(const json_t *o, struct task_cause *ret)
{
	*ret = (struct task_cause){
		.value = json_number_value(json_object_get(o, "value")),
		.threshold = json_number_value(json_object_get(o, "threshold")),
		.at_ms = (u64)json_integer_value(json_object_get(o, "at")),
		.pid = (u32)json_integer_value(json_object_get(o, "pid")),
	};
	copy_text(o, "policy", ret->policy, sizeof(ret->policy));
	copy_text(o, "cause", ret->cause, sizeof(ret->cause));
	copy_text(o, "unit", ret->unit, sizeof(ret->unit));
	copy_text(o, "host", ret->host, sizeof(ret->host));
	copy_text(o, "comm", ret->comm, sizeof(ret->comm));
	copy_text(o, "endpoint", ret->endpoint, sizeof(ret->endpoint));
	copy_text(o, "text", ret->text, sizeof(ret->text));
}

static void put_outcomes(struct json_writer *w, const char *key, const u64 n[TASK_OUTCOME_N])
{
	json_open_object(w, key);
	for (u32 k = 0; k < TASK_OUTCOME_N; k++)
		json_put_u64(w, task_outcome_name(k), n[k]);
	json_close(w);
}

static void put_counts(struct json_writer *w, const struct task_info *t)
{
	json_open_object(w, "counts");
	for (u32 k = 0; k < TASK_COUNT_N; k++)
		json_put_u64(w, task_count_name(k), t->counts[k]);
	json_close(w);
	json_open_object(w, "reasons");
	for (u32 k = 0; k < CONTROL_REASON_N; k++)
		json_put_u64(w, control_reason_name(k), t->reasons[k]);
	json_close(w);
	put_outcomes(w, "outcomes", t->outcomes);
	put_outcomes(w, "control_outcomes", t->control_outcomes);
	json_put_scaled(w, "slowest_ms", t->slowest_ns, 6);
}

static void put_agents(struct json_writer *w, const struct task_info *t)
{
	json_open_array(w, "agents");
	vec_foreach (&t->agents, a) {
		json_open_object(w, NULL);
		json_put_text(w, "host", a->host);
		json_put_text(w, "host_id", a->host_id);
		json_put_u64(w, "asked", a->asked_ms);
		json_put_text(w, "state", control_state_name(a->state));
		json_put_text(w, "reason", a->reason);
		json_put_u64(w, "processes", a->processes);
		json_put_u64(w, "publishing", a->publishing);
		json_put_u64(w, "samples", a->samples);
		json_put_u64(w, "events", a->events);
		json_put_u64(w, "lost", a->lost);
		json_put_u64(w, "evicted", a->evicted);
		json_put_u64(w, "kept", a->kept);
		json_close(w);
	}
	json_close(w);
}

static void put_endpoints(struct json_writer *w, const struct task_info *t)
{
	json_open_array(w, "endpoints");
	vec_foreach (&t->endpoints, p) {
		json_open_object(w, NULL);
		json_put_exact(w, "endpoint", p->name);
		json_put_bool(w, "matches", p->matches);
		json_put_u64(w, "requests", p->requests);
		json_put_u64(w, "wanted", p->wanted);
		json_put_scaled(w, "slowest_ms", p->slowest_ns, 6);
		if (p->threshold_ns)
			json_put_scaled(w, "threshold_ms", p->threshold_ns, 6);
		else
			json_put_null(w, "threshold_ms");
		json_close(w);
	}
	json_close(w);
}

static void put_log(struct json_writer *w, const struct task_info *t)
{
	json_open_array(w, "log");
	vec_foreach (&t->log, l) {
		json_open_object(w, NULL);
		json_put_u64(w, "at", l->at_ms);
		json_put_text(w, "host", l->host);
		json_put_text(w, "text", l->text);
		json_close(w);
	}
	json_close(w);
}

void task_put(struct json_writer *w, const struct task_info *t, bool full)
{
	json_put_text(w, "id", t->id);
	json_put_u64(w, "revision", t->revision);
	json_put_text(w, "state", task_state_name(task_state(t, clock_epoch_ms())));
	task_spec_put(w, "spec", &t->spec);
	json_put_u64(w, "created", t->created_ms);
	json_put_text(w, "by", t->by);
	task_cause_put(w, "cause", &t->cause);
	json_put_u64(w, "start", t->start_ms);
	json_put_u64(w, "end", t->end_ms);
	json_put_u64(w, "cancelled", t->cancelled_ms);
	put_counts(w, t);
	if (full) {
		put_agents(w, t);
		put_endpoints(w, t);
		put_log(w, t);
	}
}

void task_put_request(struct json_writer *w, const struct task_info *t,
		      const struct task_request *q)
{
	char trace[33], span[17];

	text_hex(q->trace_id, sizeof(q->trace_id), trace);
	text_hex(q->span_id, sizeof(q->span_id), span);
	json_put_u64(w, "number", q->number);
	json_put_text(w, "trace_id", trace);
	json_put_text(w, "span_id", span);
	json_put_exact(w, "endpoint",
		       q->endpoint < t->endpoints.n ? t->endpoints.data[q->endpoint].name : "");
	json_put_scaled(w, "start_ms", q->start_ns, 6);
	json_put_scaled(w, "duration_ms", q->duration_ns, 6);
	json_put_text(w, "status", span_status_name(q->status));
	json_put_text(w, "reason", control_reason_name(q->reason));
	json_put_text(w, "outcome", task_outcome_name(q->outcome));
	/* Before the outcome it is only likely that this agent has it. */
	json_put_text(w, "host",
		      q->outcome < CONTROL_OUTCOME_N && q->agent < t->agents.n
			      ? t->agents.data[q->agent].host
			      : "");
	json_put_u64(w, "samples", q->samples);
	json_put_u64(w, "decided", q->decided_ms);
	json_put_u64(w, "done", q->done_ms);
}
