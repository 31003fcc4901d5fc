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

int control_request_encode(const struct control_request *r, struct str *out)
{
	_cleanup_arena_ struct arena a = ARENA_INIT(ARENA_BYTES);
	Culprit__Control__V1__SyncRequest m = CULPRIT__CONTROL__V1__SYNC_REQUEST__INIT;

	if (r->tasks.n > CONTROL_MAX_TASKS || r->kept.n > CONTROL_MAX_KEEPS)
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
	if (!m.tasks || !m.kept)
		return -ENOMEM;
	for (size_t i = 0; i < m.n_tasks; i++)
		put_report(&r->tasks.data[i], m.tasks[i]);
	for (size_t i = 0; i < m.n_kept; i++)
		put_kept(&r->kept.data[i], m.kept[i]);
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

int control_response_encode(const struct control_response *r, struct str *out)
{
	_cleanup_arena_ struct arena a = ARENA_INIT(ARENA_BYTES);
	Culprit__Control__V1__SyncResponse m = CULPRIT__CONTROL__V1__SYNC_RESPONSE__INIT;

	if (r->tasks.n > CONTROL_MAX_TASKS || r->keeps.n > CONTROL_MAX_KEEPS)
		return -E2BIG;
	m.cursor = r->cursor;
	m.next_ms = r->next_ms;
	m.n_tasks = r->tasks.n;
	m.tasks = (void *)list(&a, m.n_tasks, sizeof(**m.tasks));
	m.n_keeps = r->keeps.n;
	m.keeps = (void *)list(&a, m.n_keeps, sizeof(**m.keeps));
	if (!m.tasks || !m.keeps)
		return -ENOMEM;
	for (size_t i = 0; i < m.n_tasks; i++)
		put_task(&r->tasks.data[i], m.tasks[i]);
	for (size_t i = 0; i < m.n_keeps; i++)
		put_keep(&r->keeps.data[i], m.keeps[i]);
	return pack(&m.base, out);
}
