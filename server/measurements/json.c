/* SPDX-License-Identifier: Apache-2.0 */
/* Measurements as JSON: for the API, and for files (doc/format/measurement.md). */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "profile/span.h"
#include "server/measurements/internal.h"
#include "trace/trace.h"

#define VERSION 1

/* ---- writing ---- */

static void put_spec(struct json_writer *w, const struct measurement_spec *s)
{
	json_put_exact(w, "service", s->service);
	json_put_exact(w, "function", s->function);
	json_put_exact(w, "file", s->file);
	json_put_u64(w, "duration_ms", s->duration_ms);
	json_put_u64(w, "slow_ns", s->slow_ns);
	json_put_double(w, "budget_percent", s->budget_percent);
}

static void put_counts(struct json_writer *w, const struct control_measurement *g)
{
	json_put_u64(w, "processes", g->processes);
	json_put_bool(w, "others", g->others);
	json_put_u64(w, "measured_ms", g->measured_ms);
	json_put_u64(w, "slow_ns", g->slow_ns);
	json_put_u64(w, "calls", g->calls);
	json_put_u64(w, "returned", g->returned);
	json_put_u64(w, "total_ns", g->total_ns);
	json_put_u64(w, "longest_ns", g->longest_ns);
	json_put_u64(w, "slow", g->slow);
	json_put_u64(w, "lost", g->lost);
	json_put_double(w, "thinned", g->thinned);
	json_put_double(w, "cost_percent", g->cost_percent);
}

static void put_agent(struct json_writer *w, const struct measurement_agent *a, bool file)
{
	json_open_object(w, NULL);
	json_put_text(w, "host", a->host);
	json_put_text(w, "host_id", a->host_id);
	json_put_u64(w, "asked", a->asked_ms);
	json_put_text(w, "state", control_state_name(a->got.state));
	json_put_text(w, "reason", a->got.reason);
	put_counts(w, &a->got);
	if (file) {
		json_put_u64(w, "started", a->started_ms);
		json_open_array(w, "buckets");
		for (u32 b = 0; b < a->got.n_buckets; b++)
			json_put_u64(w, NULL, a->got.buckets[b]);
		json_close(w);
	}
	json_close(w);
}

static void put_stack(struct json_writer *w, const char *stack)
{
	json_open_array(w, "stack");
	while (*stack) {
		char name[CONTROL_STACK_BYTES];
		size_t n = strcspn(stack, "\n");

		memcpy(name, stack, n);
		name[n] = '\0';
		json_put_text(w, NULL, name);
		stack += n + (stack[n] == '\n');
	}
	json_close(w);
}

static void put_trace(struct json_writer *w, const struct control_call *c)
{
	char id[33];

	if (!c->has_trace) {
		json_put_null(w, "trace_id");
		json_put_null(w, "span_id");
		return;
	}
	text_hex(c->trace_id, sizeof(c->trace_id), id);
	json_put_text(w, "trace_id", id);
	text_hex(c->span_id, sizeof(c->span_id), id);
	json_put_text(w, "span_id", id);
}

static void put_call(struct json_writer *w, const struct measurement_call *m)
{
	const struct control_call *c = &m->call;

	json_open_object(w, NULL);
	json_put_text(w, "host", m->host);
	json_put_u64(w, "end_ns", c->end_ns);
	json_put_u64(w, "ns", c->ns);
	json_put_u64(w, "pid", c->pid);
	json_put_u64(w, "tid", c->tid);
	json_put_text(w, "comm", c->comm);
	put_trace(w, c);
	json_open_array(w, "arguments");
	for (u32 k = 0; k < c->n_arguments; k++) {
		json_open_object(w, NULL);
		json_put_text(w, "name", c->arguments[k].name);
		json_put_text(w, "value", c->arguments[k].value);
		json_close(w);
	}
	json_close(w);
	json_put_text(w, "result", c->result);
	put_stack(w, c->stack);
	json_close(w);
}

static void put_calls(struct json_writer *w, const struct measurement_info *i)
{
	json_open_array(w, "slow_calls");
	vec_foreach (&i->calls, c)
		put_call(w, c);
	json_close(w);
}

static void put_latency(struct json_writer *w, const struct measurement_sum *s)
{
	json_open_object(w, "latency");
	json_put_u64(w, "p50_ns", s->p50_ns);
	json_put_u64(w, "p95_ns", s->p95_ns);
	json_put_u64(w, "p99_ns", s->p99_ns);
	json_put_u64(w, "max_ns", s->max_ns);
	json_close(w);
}

static void put_histogram(struct json_writer *w, const struct measurement_sum *s)
{
	json_open_array(w, "histogram");
	for (u32 b = 1; b + 1 < CONTROL_MAX_BUCKETS; b++) {
		if (!s->buckets[b])
			continue;
		json_open_object(w, NULL);
		json_put_u64(w, "from_ns", trace_hist_low(b, CONTROL_HIST_BITS));
		json_put_u64(w, "to_ns", trace_hist_low(b + 1, CONTROL_HIST_BITS));
		json_put_u64(w, "calls", s->buckets[b]);
		json_close(w);
	}
	json_close(w);
}

static void put_head(struct json_writer *w, const struct measurement_info *i)
{
	json_put_text(w, "id", i->id);
	json_open_object(w, "spec");
	put_spec(w, &i->spec);
	json_close(w);
	json_put_u64(w, "created", i->created_ms);
	json_put_u64(w, "stopped", i->stopped_ms);
	json_put_text(w, "by", i->by);
	json_put_u64(w, "told", i->told);
}

static void put_sum(struct json_writer *w, const struct measurement_sum *s)
{
	json_put_u64(w, "hosts", s->hosts);
	json_put_u64(w, "processes", s->processes);
	json_put_bool(w, "others", s->others);
	json_put_u64(w, "slow_ns", s->slow_ns);
	json_put_u64(w, "calls", s->calls);
	json_put_u64(w, "returned", s->returned);
	json_put_u64(w, "total_ns", s->total_ns);
	json_put_u64(w, "slow", s->slow);
	json_put_u64(w, "lost", s->lost);
	json_put_double(w, "calls_per_second", s->calls_per_second);
	json_put_double(w, "thinned", s->thinned);
	json_put_double(w, "cost_percent", s->cost_percent);
	put_latency(w, s);
}

void measurement_put(struct json_writer *w, const struct measurement_info *i, bool full)
{
	struct measurement_sum s;

	measurement_sum(i, &s);
	put_head(w, i);
	json_put_text(w, "state", measurement_state_name(measurement_state(i, clock_epoch_ms())));
	put_sum(w, &s);
	if (!full)
		return;
	put_histogram(w, &s);
	json_open_array(w, "agents");
	vec_foreach (&i->agents, a)
		if (a->got.state != CONTROL_STATE_ABSENT || i->agents.n == 1)
			put_agent(w, a, false);
	json_close(w);
	put_calls(w, i);
}

void measurement_put_file(struct json_writer *w, const struct measurement_info *i)
{
	json_put_u64(w, "version", VERSION);
	put_head(w, i);
	json_open_array(w, "agents");
	vec_foreach (&i->agents, a)
		put_agent(w, a, true);
	json_close(w);
	put_calls(w, i);
}

/* ---- reading ---- */

static u64 number_of(const json_t *o, const char *name)
{
	json_int_t n = json_integer_value(json_object_get(o, name));

	return n > 0 ? (u64)n : 0;
}

static const char *text_of(const json_t *o, const char *name)
{
	const char *text = json_string_value(json_object_get(o, name));

	return text ? text : "";
}

#define COPY_TEXT(to, o, name) snprintf(to, sizeof(to), "%s", text_of(o, name))

static enum control_state state_of(const json_t *o)
{
	u32 s = 0;

	while (s < CONTROL_STATE_N &&
	       strcmp(control_state_name((enum control_state)s), text_of(o, "state")) != 0)
		s++;
	/* The server was away meanwhile: the agent tells whether it still measures. */
	return s < CONTROL_STATE_N ? (enum control_state)s : CONTROL_STATE_ENDED;
}

static void read_agent(const json_t *o, struct measurement_agent *ret)
{
	struct control_measurement *g = &ret->got;
	const json_t *buckets = json_object_get(o, "buckets"), *b;
	size_t k;

	*ret = (struct measurement_agent){.started_ms = number_of(o, "started"),
					  .asked_ms = number_of(o, "asked")};
	COPY_TEXT(ret->host, o, "host");
	COPY_TEXT(ret->host_id, o, "host_id");
	COPY_TEXT(g->reason, o, "reason");
	g->state = state_of(o);
	g->processes = (u32)number_of(o, "processes");
	g->others = json_is_true(json_object_get(o, "others"));
	g->measured_ms = number_of(o, "measured_ms");
	g->slow_ns = number_of(o, "slow_ns");
	g->calls = number_of(o, "calls");
	g->returned = number_of(o, "returned");
	g->total_ns = number_of(o, "total_ns");
	g->longest_ns = number_of(o, "longest_ns");
	g->slow = number_of(o, "slow");
	g->lost = number_of(o, "lost");
	g->thinned = json_number_value(json_object_get(o, "thinned"));
	g->cost_percent = json_number_value(json_object_get(o, "cost_percent"));
	json_array_foreach(buckets, k, b)
	{
		if (k < CONTROL_MAX_BUCKETS) {
			g->buckets[k] = (u64)MAX(json_integer_value(b), 0);
			g->n_buckets = (u32)k + 1;
		}
	}
}

static void read_call(const json_t *o, struct measurement_call *ret)
{
	const json_t *arguments = json_object_get(o, "arguments");
	const json_t *stack = json_object_get(o, "stack"), *e;
	struct control_call *c = &ret->call;
	size_t k, used = 0;

	*ret = (struct measurement_call){.call.end_ns = number_of(o, "end_ns"),
					 .call.ns = number_of(o, "ns"),
					 .call.pid = (u32)number_of(o, "pid"),
					 .call.tid = (u32)number_of(o, "tid")};
	COPY_TEXT(ret->host, o, "host");
	COPY_TEXT(c->comm, o, "comm");
	COPY_TEXT(c->result, o, "result");
	c->has_trace = span_parse_id(text_of(o, "trace_id"), c->trace_id, sizeof(c->trace_id)) &&
		       span_parse_id(text_of(o, "span_id"), c->span_id, sizeof(c->span_id));
	json_array_foreach(arguments, k, e)
	{
		if (k == CONTROL_MAX_ARGUMENTS)
			break;
		COPY_TEXT(c->arguments[k].name, e, "name");
		COPY_TEXT(c->arguments[k].value, e, "value");
		c->n_arguments = (u32)k + 1;
	}
	json_array_foreach(stack, k, e)
	{
		const char *name = json_string_value(e);
		size_t n = name ? strlen(name) : 0;

		if (!name || used + n + 2 > sizeof(c->stack))
			break;
		if (used)
			c->stack[used++] = '\n';
		memcpy(c->stack + used, name, n);
		used += n;
	}
}

static int read_lists(const json_t *o, struct measurement_info *i)
{
	const json_t *agents = json_object_get(o, "agents");
	const json_t *calls = json_object_get(o, "slow_calls"), *e;
	size_t k;

	json_array_foreach(agents, k, e)
	{
		struct measurement_agent a;

		read_agent(e, &a);
		if (k < MEASUREMENT_MAX_AGENTS && vec_push(&i->agents, a) < 0)
			return -ENOMEM;
	}
	json_array_foreach(calls, k, e)
	{
		struct measurement_call c;

		read_call(e, &c);
		if (k < MEASUREMENT_MAX_CALLS && vec_push(&i->calls, c) < 0)
			return -ENOMEM;
	}
	return 0;
}

int measurement_read(const json_t *o, struct measurement_info *ret, struct diag *reterr_diag)
{
	struct measurement_info i = {.created_ms = number_of(o, "created"),
				     .stopped_ms = number_of(o, "stopped"),
				     .told = number_of(o, "told")};
	int r;

	if (number_of(o, "version") != VERSION)
		return diag_set(reterr_diag, -EBADMSG,
				"it has version %llu of the format, and not %d",
				number_of(o, "version"), VERSION);
	r = measurement_spec_read(json_object_get(o, "spec"), &i.spec, reterr_diag);
	if (r == 0)
		r = measurement_spec_check(&i.spec, reterr_diag);
	COPY_TEXT(i.id, o, "id");
	COPY_TEXT(i.by, o, "by");
	if (r == 0)
		r = read_lists(o, &i);
	if (r < 0)
		measurement_info_deinit(&i);
	else
		*ret = i;
	return r;
}
