/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes the messages. Those of protobuf-c point to the texts and ids of ours; they lie in an arena
 * with room for the longest lists.
 */
#include "control/control.h"

#include <errno.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/pb.h"
#include "control/control.pb-c.h"

#define ARENA_BYTES (4u << 20)

/* protobuf-c's messages have no const; packing one changes nothing. */
static char *text(const char *s)
{
	return (char *)(uintptr_t)s;
}

static ProtobufCBinaryData bytes(const u8 *data, size_t n)
{
	return (ProtobufCBinaryData){.len = n, .data = (u8 *)(uintptr_t)data};
}

/* An array of n pointers to n messages, which are zeroed; NULL: out of memory. */
static void **list(struct arena *a, size_t n, size_t size)
{
	void **all = arena_calloc(a, n, sizeof(*all));
	u8 *one = arena_calloc(a, n, size);

	if (!all || !one)
		return NULL;
	for (size_t i = 0; i < n; i++)
		all[i] = one + i * size;
	return all;
}

static int pack(const ProtobufCMessage *m, struct str *out)
{
	if (protobuf_c_message_get_packed_size(m) > CONTROL_MAX_BYTES)
		return -E2BIG;
	return pb_pack(m, out);
}

/* ---- from the agent ---- */

static void put_report(const struct control_task_report *t, Culprit__Control__V1__TaskReport *out)
{
	*out = (Culprit__Control__V1__TaskReport)CULPRIT__CONTROL__V1__TASK_REPORT__INIT;
	out->id = text(t->id);
	out->revision = t->revision;
	/* 0 is for what is not known. */
	out->state = (Culprit__Control__V1__State)(t->state + 1);
	out->reason = text(t->reason);
	out->processes = t->processes;
	out->publishing = t->publishing;
	out->samples = t->samples;
	out->events = t->events;
	out->lost = t->lost;
	out->evicted = t->evicted;
}

static void put_kept(const struct control_kept *k, Culprit__Control__V1__Kept *out)
{
	*out = (Culprit__Control__V1__Kept)CULPRIT__CONTROL__V1__KEPT__INIT;
	out->task = text(k->task);
	out->trace_id = bytes(k->trace_id, sizeof(k->trace_id));
	out->span_id = bytes(k->span_id, sizeof(k->span_id));
	out->outcome = (Culprit__Control__V1__Outcome)(k->outcome + 1);
	out->samples = k->samples;
}

static void put_settings(const struct control_settings *s, Culprit__Control__V1__Settings *out)
{
	*out = (Culprit__Control__V1__Settings)CULPRIT__CONTROL__V1__SETTINGS__INIT;
	out->hz = s->hz;
	out->budget_percent = s->budget_percent;
	out->off_cpu = s->off_cpu;
}

static void put_measured(const struct control_measured *m, Culprit__Control__V1__Measured *out)
{
	*out = (Culprit__Control__V1__Measured)CULPRIT__CONTROL__V1__MEASURED__INIT;
	out->at_ms = m->at_ms;
	out->value = m->value;
	out->over = m->over;
	out->pid = m->pid;
	out->comm = text(m->comm);
	out->service = text(m->service);
}

static int put_watched(struct arena *a, const struct control_watched *w,
		       Culprit__Control__V1__Watched *out)
{
	*out = (Culprit__Control__V1__Watched)CULPRIT__CONTROL__V1__WATCHED__INIT;
	out->id = text(w->id);
	out->processes = w->processes;
	out->windows = w->windows;
	out->last = arena_calloc(a, 1, sizeof(*out->last));
	out->n_fired = MIN(w->n_fired, (u32)CONTROL_MAX_FIRED);
	out->fired = (void *)list(a, out->n_fired, sizeof(**out->fired));
	if (!out->last || !out->fired)
		return -ENOMEM;
	put_measured(&w->last, out->last);
	for (size_t i = 0; i < out->n_fired; i++)
		put_measured(&w->fired[i], out->fired[i]);
	return 0;
}

static void put_measurement(const struct control_measurement *m,
			    Culprit__Control__V1__Measurement *out)
{
	*out = (Culprit__Control__V1__Measurement)CULPRIT__CONTROL__V1__MEASUREMENT__INIT;
	out->id = text(m->id);
	out->state = (Culprit__Control__V1__State)(m->state + 1);
	out->reason = text(m->reason);
	out->processes = m->processes;
	out->others = m->others;
	out->measured_ms = m->measured_ms;
	out->slow_ns = m->slow_ns;
	out->calls = m->calls;
	out->returned = m->returned;
	out->total_ns = m->total_ns;
	out->longest_ns = m->longest_ns;
	out->slow = m->slow;
	out->lost = m->lost;
	out->thinned = m->thinned;
	out->cost_percent = m->cost_percent;
	out->n_buckets = MIN(m->n_buckets, (u32)CONTROL_MAX_BUCKETS);
	out->buckets = (uint64_t *)(uintptr_t)m->buckets;
}

static int put_call(struct arena *a, const struct control_call *c, Culprit__Control__V1__Call *out)
{
	*out = (Culprit__Control__V1__Call)CULPRIT__CONTROL__V1__CALL__INIT;
	out->measure = text(c->measure);
	out->end_ns = c->end_ns;
	out->ns = c->ns;
	out->pid = c->pid;
	out->tid = c->tid;
	out->comm = text(c->comm);
	if (c->has_trace) {
		out->trace_id = bytes(c->trace_id, sizeof(c->trace_id));
		out->span_id = bytes(c->span_id, sizeof(c->span_id));
	}
	out->result = text(c->result);
	out->stack = text(c->stack);
	out->n_arguments = MIN(c->n_arguments, (u32)CONTROL_MAX_ARGUMENTS);
	out->arguments = (void *)list(a, out->n_arguments, sizeof(**out->arguments));
	if (!out->arguments)
		return -ENOMEM;
	for (size_t i = 0; i < out->n_arguments; i++) {
		*out->arguments[i] =
			(Culprit__Control__V1__Argument)CULPRIT__CONTROL__V1__ARGUMENT__INIT;
		out->arguments[i]->name = text(c->arguments[i].name);
		out->arguments[i]->value = text(c->arguments[i].value);
	}
	return 0;
}

static int put_measured_functions(struct arena *a, const struct control_request *r,
				  Culprit__Control__V1__SyncRequest *m)
{
	int e = 0;

	m->n_measured = r->measured.n;
	m->measured = (void *)list(a, m->n_measured, sizeof(**m->measured));
	m->n_calls = r->calls.n;
	m->calls = (void *)list(a, m->n_calls, sizeof(**m->calls));
	if (!m->measured || !m->calls)
		return -ENOMEM;
	for (size_t i = 0; i < m->n_measured; i++)
		put_measurement(&r->measured.data[i], m->measured[i]);
	for (size_t i = 0; i < m->n_calls && e == 0; i++)
		e = put_call(a, &r->calls.data[i], m->calls[i]);
	return e;
}

int control_request_encode(const struct control_request *r, struct str *out)
{
	_cleanup_arena_ struct arena a = ARENA_INIT(ARENA_BYTES);
	Culprit__Control__V1__SyncRequest m = CULPRIT__CONTROL__V1__SYNC_REQUEST__INIT;
	Culprit__Control__V1__Settings settings;

	if (r->tasks.n > CONTROL_MAX_TASKS || r->kept.n > CONTROL_MAX_KEEPS ||
	    r->watched.n > CONTROL_MAX_WATCHES || r->measured.n > CONTROL_MAX_MEASURES ||
	    r->calls.n > CONTROL_MAX_CALLS)
		return -E2BIG;
	m.host = text(r->host);
	m.host_id = text(r->host_id);
	m.version = text(r->version);
	m.started_ms = r->started_ms;
	m.cursor = r->cursor;
	m.n_tasks = r->tasks.n;
	m.tasks = (void *)list(&a, m.n_tasks, sizeof(**m.tasks));
	m.n_kept = r->kept.n;
	m.kept = (void *)list(&a, m.n_kept, sizeof(**m.kept));
	m.n_watched = r->watched.n;
	m.watched = (void *)list(&a, m.n_watched, sizeof(**m.watched));
	if (!m.tasks || !m.kept || !m.watched)
		return -ENOMEM;
	put_settings(&r->settings, &settings);
	m.settings = &settings;
	m.takes_settings = r->takes_settings;
	m.settings_reason = text(r->settings_reason);
	for (size_t i = 0; i < m.n_watched; i++)
		if (put_watched(&a, &r->watched.data[i], m.watched[i]) < 0)
			return -ENOMEM;
	for (size_t i = 0; i < m.n_tasks; i++)
		put_report(&r->tasks.data[i], m.tasks[i]);
	for (size_t i = 0; i < m.n_kept; i++)
		put_kept(&r->kept.data[i], m.kept[i]);
	if (put_measured_functions(&a, r, &m) < 0)
		return -ENOMEM;
	return pack(&m.base, out);
}

/* ---- from the server ---- */

static void put_task(const struct control_task *t, Culprit__Control__V1__Task *out)
{
	*out = (Culprit__Control__V1__Task)CULPRIT__CONTROL__V1__TASK__INIT;
	out->id = text(t->id);
	out->revision = t->revision;
	out->service = text(t->service);
	out->start_ms = t->start_ms;
	out->end_ms = t->end_ms;
	out->period_us = t->period_us;
	out->floor_us = t->floor_us;
	out->on_cpu = t->on_cpu;
	out->off_cpu = t->off_cpu;
}

static void put_keep(const struct control_keep *k, Culprit__Control__V1__Keep *out)
{
	*out = (Culprit__Control__V1__Keep)CULPRIT__CONTROL__V1__KEEP__INIT;
	out->task = text(k->task);
	out->trace_id = bytes(k->trace_id, sizeof(k->trace_id));
	out->span_id = bytes(k->span_id, sizeof(k->span_id));
	out->start_ns = k->start_ns;
	out->end_ns = k->end_ns;
	out->reason = (Culprit__Control__V1__Reason)(k->reason + 1);
}

static void put_watch(const struct control_watch *w, Culprit__Control__V1__Watch *out)
{
	*out = (Culprit__Control__V1__Watch)CULPRIT__CONTROL__V1__WATCH__INIT;
	out->id = text(w->id);
	out->service = text(w->service);
	out->quantity = (Culprit__Control__V1__Quantity)(w->quantity + 1);
	out->threshold = w->threshold;
	out->window_ms = w->window_ms;
	out->count = w->count;
	out->of = w->of;
}

static void put_measure(const struct control_measure *m, Culprit__Control__V1__Measure *out)
{
	*out = (Culprit__Control__V1__Measure)CULPRIT__CONTROL__V1__MEASURE__INIT;
	out->id = text(m->id);
	out->service = text(m->service);
	out->function = text(m->function);
	out->file = text(m->file);
	out->duration_ms = m->duration_ms;
	out->slow_ns = m->slow_ns;
	out->budget_percent = m->budget_percent;
}

int control_response_encode(const struct control_response *r, struct str *out)
{
	_cleanup_arena_ struct arena a = ARENA_INIT(ARENA_BYTES);
	Culprit__Control__V1__SyncResponse m = CULPRIT__CONTROL__V1__SYNC_RESPONSE__INIT;
	Culprit__Control__V1__Settings settings;

	if (r->tasks.n > CONTROL_MAX_TASKS || r->keeps.n > CONTROL_MAX_KEEPS ||
	    r->watches.n > CONTROL_MAX_WATCHES || r->measures.n > CONTROL_MAX_MEASURES)
		return -E2BIG;
	m.cursor = r->cursor;
	m.next_ms = r->next_ms;
	m.n_tasks = r->tasks.n;
	m.tasks = (void *)list(&a, m.n_tasks, sizeof(**m.tasks));
	m.n_keeps = r->keeps.n;
	m.keeps = (void *)list(&a, m.n_keeps, sizeof(**m.keeps));
	m.n_watches = r->watches.n;
	m.watches = (void *)list(&a, m.n_watches, sizeof(**m.watches));
	m.n_measures = r->measures.n;
	m.measures = (void *)list(&a, m.n_measures, sizeof(**m.measures));
	if (!m.tasks || !m.keeps || !m.watches || !m.measures)
		return -ENOMEM;
	put_settings(&r->settings, &settings);
	m.settings = &settings;
	for (size_t i = 0; i < m.n_watches; i++)
		put_watch(&r->watches.data[i], m.watches[i]);
	for (size_t i = 0; i < m.n_tasks; i++)
		put_task(&r->tasks.data[i], m.tasks[i]);
	for (size_t i = 0; i < m.n_keeps; i++)
		put_keep(&r->keeps.data[i], m.keeps[i]);
	for (size_t i = 0; i < m.n_measures; i++)
		put_measure(&r->measures.data[i], m.measures[i]);
	return pack(&m.base, out);
}
