/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the messages, which are foreign. What is longer than the limits of control.h is cut. An
 * entry is left out, and the rest is read, when it cannot mean what its sender meant: an id or the
 * name of a service that would be cut, a span without an id, a value that only a newer peer knows.
 */
#include "control/control.h"

#include <ctype.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/pb.h"
#include "base/text.h"
#include "control/control.pb-c.h"

/* Of the largest lists with the longest texts four times. */
#define ARENA_BYTES (8u << 20)
#define MIN_PERIOD_US 1000

/* Cuts between two characters. */
static void take_text(const char *s, char *ret, size_t size)
{
	size_t n = strlen(s);

	if (n >= size)
		for (n = size - 1; n && ((u8)s[n] & 0xc0) == 0x80;)
			n--;
	memcpy(ret, s, n);
	memset(ret + n, 0, size - n);
	text_clean(ret);
}

/* Ids become labels, and parts of lines of logs. */
static bool take_id(const char *s, char *ret)
{
	size_t n = strnlen(s, CONTROL_ID_BYTES);

	if (!n || n == CONTROL_ID_BYTES)
		return false;
	for (size_t i = 0; i < n; i++)
		if (!isalnum((u8)s[i]) && !strchr("-_.:", s[i]))
			return false;
	memset(ret, 0, CONTROL_ID_BYTES);
	memcpy(ret, s, n);
	return true;
}

/* An id of a trace or span; zeros are none. */
static bool take_bytes(const ProtobufCBinaryData *b, u8 *ret, size_t n)
{
	u8 any = 0;

	if (b->len != n)
		return false;
	for (size_t i = 0; i < n; i++)
		any |= b->data[i];
	memcpy(ret, b->data, n);
	return any;
}

/* A value on the wire is one more than ours; 0 is none. */
static bool take_value(int wire, u32 n, u32 *ret)
{
	if (wire < 1 || (u32)wire > n)
		return false;
	*ret = (u32)wire - 1;
	return true;
}

static int unpack(const ProtobufCMessageDescriptor *d, const char *what, const u8 *data, size_t n,
		  struct arena *a, ProtobufCMessage **ret, struct diag *reterr_diag)
{
	int r;

	if (n > CONTROL_MAX_BYTES)
		return diag_set(reterr_diag, -EBADMSG, "%s of more than %u bytes", what,
				CONTROL_MAX_BYTES);
	r = pb_unpack(d, what, data, n, a, ret, reterr_diag);
	/* Nobody who keeps to the limits needs so much memory. */
	return r == -E2BIG ? -EBADMSG : r;
}

/* ---- from the agent ---- */

static bool take_report(const Culprit__Control__V1__TaskReport *in, struct control_task_report *ret)
{
	u32 state = 0;

	*ret = (struct control_task_report){.revision = in->revision,
					    .processes = in->processes,
					    .publishing = in->publishing,
					    .samples = in->samples,
					    .events = in->events,
					    .lost = in->lost,
					    .evicted = in->evicted};
	if (!take_id(in->id, ret->id) || !take_value((int)in->state, CONTROL_STATE_N, &state))
		return false;
	ret->state = (enum control_state)state;
	take_text(in->reason, ret->reason, sizeof(ret->reason));
	return true;
}

static bool take_kept(const Culprit__Control__V1__Kept *in, struct control_kept *ret)
{
	u32 outcome = 0;

	*ret = (struct control_kept){.samples = in->samples};
	if (!take_id(in->task, ret->task) ||
	    !take_bytes(&in->trace_id, ret->trace_id, sizeof(ret->trace_id)) ||
	    !take_bytes(&in->span_id, ret->span_id, sizeof(ret->span_id)) ||
	    !take_value((int)in->outcome, CONTROL_OUTCOME_N, &outcome))
		return false;
	ret->outcome = (enum control_outcome)outcome;
	return true;
}

/* Unset what no culprit sends: NaN, and what is out of the limits. */
static void take_settings(const Culprit__Control__V1__Settings *in, struct control_settings *ret)
{
	if (!in)
		return;
	if (in->hz <= CONTROL_MAX_HZ)
		ret->hz = in->hz;
	if (in->budget_percent >= CONTROL_MIN_BUDGET && in->budget_percent <= 100)
		ret->budget_percent = in->budget_percent;
	if (in->off_cpu <= 2)
		ret->off_cpu = (u8)in->off_cpu;
}

static bool take_measured(const Culprit__Control__V1__Measured *in, struct control_measured *ret)
{
	*ret = (struct control_measured){
		.at_ms = in->at_ms, .value = in->value, .over = in->over, .pid = in->pid};
	if (!(in->value >= 0 && in->value < 1e15) || strlen(in->service) >= sizeof(ret->service))
		return false;
	take_text(in->comm, ret->comm, sizeof(ret->comm));
	take_text(in->service, ret->service, sizeof(ret->service));
	return true;
}

static bool take_watched(const Culprit__Control__V1__Watched *in, struct control_watched *ret)
{
	*ret = (struct control_watched){.processes = in->processes, .windows = in->windows};
	if (!take_id(in->id, ret->id))
		return false;
	if (in->last && !take_measured(in->last, &ret->last))
		ret->last = (struct control_measured){};
	for (size_t i = 0; i < in->n_fired && ret->n_fired < CONTROL_MAX_FIRED; i++)
		if (take_measured(in->fired[i], &ret->fired[ret->n_fired]) &&
		    *ret->fired[ret->n_fired].service)
			ret->n_fired++;
	return true;
}

static int take_all_watched(const Culprit__Control__V1__SyncRequest *in,
			    struct control_request *ret)
{
	for (size_t i = 0; i < in->n_watched && ret->watched.n < CONTROL_MAX_WATCHES; i++) {
		struct control_watched w;

		if (take_watched(in->watched[i], &w) && vec_push(&ret->watched, w) < 0)
			return -ENOMEM;
	}
	return 0;
}

static bool is_sum(double v, double max)
{
	return v >= 0 && v <= max; /* not NaN */
}

/* Numbers of JSON, also if many are added up. */
#define MAX_COUNT (1ULL << 53)

static bool are_counts(const struct control_measurement *m)
{
	const u64 counts[] = {m->longest_ns, m->measured_ms, m->slow_ns, m->calls,
			      m->returned,   m->total_ns,    m->slow,	 m->lost};

	for (size_t i = 0; i < ARRAY_SIZE(counts); i++)
		if (counts[i] > MAX_COUNT)
			return false;
	for (u32 b = 0; b < m->n_buckets; b++)
		if (m->buckets[b] > MAX_COUNT)
			return false;
	return true;
}

static bool take_measurement(const Culprit__Control__V1__Measurement *in,
			     struct control_measurement *ret)
{
	u32 state = 0;

	*ret = (struct control_measurement){.processes = in->processes,
					    .others = in->others,
					    .measured_ms = in->measured_ms,
					    .slow_ns = in->slow_ns,
					    .calls = in->calls,
					    .returned = in->returned,
					    .total_ns = in->total_ns,
					    .longest_ns = in->longest_ns,
					    .slow = in->slow,
					    .lost = in->lost,
					    .thinned = in->thinned,
					    .cost_percent = in->cost_percent};
	if (!take_id(in->id, ret->id) || !take_value((int)in->state, CONTROL_STATE_N, &state) ||
	    !is_sum(in->thinned, 1) || !is_sum(in->cost_percent, 1e6))
		return false;
	ret->state = (enum control_state)state;
	take_text(in->reason, ret->reason, sizeof(ret->reason));
	ret->n_buckets = (u32)MIN(in->n_buckets, (size_t)CONTROL_MAX_BUCKETS);
	if (ret->n_buckets)
		memcpy(ret->buckets, in->buckets, ret->n_buckets * sizeof(*ret->buckets));
	return are_counts(ret);
}

/* A stack has a line for each frame, and each is a text of its own. */
static void take_stack(const char *s, char ret[CONTROL_STACK_BYTES])
{
	size_t used = 0;

	while (*s && used + 1 < CONTROL_STACK_BYTES) {
		size_t n = strcspn(s, "\n");
		char line[CONTROL_TEXT_BYTES];

		snprintf(line, sizeof(line), "%.*s", (int)MIN(n, sizeof(line)), s);
		take_text(line, ret + used, CONTROL_STACK_BYTES - used);
		used += strlen(ret + used);
		s += n;
		if (*s == '\n' && *++s && used + 1 < CONTROL_STACK_BYTES)
			ret[used++] = '\n';
	}
	memset(ret + used, 0, CONTROL_STACK_BYTES - used);
}

static bool take_call(const Culprit__Control__V1__Call *in, struct control_call *ret)
{
	*ret = (struct control_call){
		.end_ns = in->end_ns, .ns = in->ns, .pid = in->pid, .tid = in->tid};
	if (!take_id(in->measure, ret->measure) || in->ns > in->end_ns || in->end_ns > INT64_MAX)
		return false;
	ret->has_trace = take_bytes(&in->trace_id, ret->trace_id, sizeof(ret->trace_id)) &&
			 take_bytes(&in->span_id, ret->span_id, sizeof(ret->span_id));
	take_text(in->comm, ret->comm, sizeof(ret->comm));
	take_text(in->result, ret->result, sizeof(ret->result));
	take_stack(in->stack, ret->stack);
	for (size_t i = 0; i < in->n_arguments && ret->n_arguments < CONTROL_MAX_ARGUMENTS; i++) {
		struct control_argument *a = &ret->arguments[ret->n_arguments++];

		take_text(in->arguments[i]->name, a->name, sizeof(a->name));
		take_text(in->arguments[i]->value, a->value, sizeof(a->value));
	}
	return true;
}

static int take_measured_functions(const Culprit__Control__V1__SyncRequest *in,
				   struct control_request *ret)
{
	for (size_t i = 0; i < in->n_measured && ret->measured.n < CONTROL_MAX_MEASURES; i++) {
		struct control_measurement m;

		if (take_measurement(in->measured[i], &m) && vec_push(&ret->measured, m) < 0)
			return -ENOMEM;
	}
	for (size_t i = 0; i < in->n_calls && ret->calls.n < CONTROL_MAX_CALLS; i++) {
		struct control_call c;

		if (take_call(in->calls[i], &c) && vec_push(&ret->calls, c) < 0)
			return -ENOMEM;
	}
	return 0;
}

static int take_request(const Culprit__Control__V1__SyncRequest *in, struct control_request *ret)
{
	take_text(in->host, ret->host, sizeof(ret->host));
	take_text(in->host_id, ret->host_id, sizeof(ret->host_id));
	take_text(in->version, ret->version, sizeof(ret->version));
	ret->started_ms = in->started_ms;
	ret->cursor = in->cursor;
	for (size_t i = 0; i < in->n_tasks && ret->tasks.n < CONTROL_MAX_TASKS; i++) {
		struct control_task_report t;

		if (take_report(in->tasks[i], &t) && vec_push(&ret->tasks, t) < 0)
			return -ENOMEM;
	}
	for (size_t i = 0; i < in->n_kept && ret->kept.n < CONTROL_MAX_KEEPS; i++) {
		struct control_kept k;

		if (take_kept(in->kept[i], &k) && vec_push(&ret->kept, k) < 0)
			return -ENOMEM;
	}
	take_settings(in->settings, &ret->settings);
	ret->takes_settings = in->takes_settings;
	take_text(in->settings_reason, ret->settings_reason, sizeof(ret->settings_reason));
	if (take_all_watched(in, ret) < 0)
		return -ENOMEM;
	return take_measured_functions(in, ret);
}

int control_request_decode(const u8 *data, size_t n, struct control_request *ret,
			   struct diag *reterr_diag)
{
	_cleanup_arena_ struct arena a = ARENA_INIT(ARENA_BYTES);
	struct control_request out = {};
	ProtobufCMessage *m;
	int r = unpack(&culprit__control__v1__sync_request__descriptor, "an agent's SyncRequest",
		       data, n, &a, &m, reterr_diag);

	if (r < 0)
		return r;
	r = take_request((const Culprit__Control__V1__SyncRequest *)m, &out);
	if (r < 0) {
		control_request_deinit(&out);
		return diag_set(reterr_diag, r, "out of memory");
	}
	*ret = out;
	return 0;
}

/* ---- from the server ---- */

static bool take_task(const Culprit__Control__V1__Task *in, struct control_task *ret)
{
	*ret = (struct control_task){.revision = in->revision,
				     .start_ms = in->start_ms,
				     .end_ms = in->end_ms,
				     .period_us = MAX(in->period_us, (u32)MIN_PERIOD_US),
				     .floor_us = in->floor_us,
				     .on_cpu = in->on_cpu,
				     .off_cpu = in->off_cpu};
	if (!take_id(in->id, ret->id) || strlen(in->service) >= sizeof(ret->service))
		return false;
	take_text(in->service, ret->service, sizeof(ret->service));
	return *ret->service;
}

static bool take_keep(const Culprit__Control__V1__Keep *in, struct control_keep *ret)
{
	u32 reason = 0;

	*ret = (struct control_keep){.start_ns = in->start_ns, .end_ns = in->end_ns};
	if (!take_id(in->task, ret->task) || in->start_ns > in->end_ns ||
	    !take_bytes(&in->trace_id, ret->trace_id, sizeof(ret->trace_id)) ||
	    !take_bytes(&in->span_id, ret->span_id, sizeof(ret->span_id)) ||
	    !take_value((int)in->reason, CONTROL_REASON_N, &reason))
		return false;
	ret->reason = (enum control_reason)reason;
	return true;
}

static bool take_watch(const Culprit__Control__V1__Watch *in, struct control_watch *ret)
{
	u32 quantity = 0;

	*ret = (struct control_watch){.threshold = in->threshold,
				      .window_ms = in->window_ms,
				      .count = in->count,
				      .of = in->of};
	if (!take_id(in->id, ret->id) || strlen(in->service) >= sizeof(ret->service) ||
	    !take_value((int)in->quantity, CONTROL_QUANTITY_N, &quantity) ||
	    !(in->threshold > 0 && in->threshold < 1e15) || in->window_ms < CONTROL_MIN_WINDOW_MS ||
	    !in->count || in->count > in->of || in->of > CONTROL_MAX_WINDOWS)
		return false;
	ret->quantity = (enum control_quantity)quantity;
	take_text(in->service, ret->service, sizeof(ret->service));
	return *ret->service;
}

static bool take_measure(const Culprit__Control__V1__Measure *in, struct control_measure *ret)
{
	*ret = (struct control_measure){.duration_ms = in->duration_ms,
					.slow_ns = in->slow_ns,
					.budget_percent = in->budget_percent};
	if (!take_id(in->id, ret->id) || strlen(in->service) >= sizeof(ret->service) ||
	    strlen(in->function) >= sizeof(ret->function) ||
	    strlen(in->file) >= sizeof(ret->file) || in->duration_ms < CONTROL_MIN_MEASURE_MS ||
	    in->duration_ms > CONTROL_MAX_MEASURE_MS ||
	    !(in->budget_percent > 0 && in->budget_percent <= CONTROL_MAX_BUDGET))
		return false;
	take_text(in->service, ret->service, sizeof(ret->service));
	take_text(in->function, ret->function, sizeof(ret->function));
	take_text(in->file, ret->file, sizeof(ret->file));
	/* A name that cleaning changes is none of a symbol or file. */
	return *ret->service && control_is_function(ret->function) &&
	       !strcmp(ret->function, in->function) && !strcmp(ret->file, in->file);
}

static int take_response(const Culprit__Control__V1__SyncResponse *in, struct control_response *ret)
{
	ret->cursor = in->cursor;
	ret->next_ms = in->next_ms;
	for (size_t i = 0; i < in->n_tasks && ret->tasks.n < CONTROL_MAX_TASKS; i++) {
		struct control_task t;

		if (take_task(in->tasks[i], &t) && vec_push(&ret->tasks, t) < 0)
			return -ENOMEM;
	}
	for (size_t i = 0; i < in->n_keeps && ret->keeps.n < CONTROL_MAX_KEEPS; i++) {
		struct control_keep k;

		if (take_keep(in->keeps[i], &k) && vec_push(&ret->keeps, k) < 0)
			return -ENOMEM;
	}
	for (size_t i = 0; i < in->n_watches && ret->watches.n < CONTROL_MAX_WATCHES; i++) {
		struct control_watch w;

		if (take_watch(in->watches[i], &w) && vec_push(&ret->watches, w) < 0)
			return -ENOMEM;
	}
	for (size_t i = 0; i < in->n_measures && ret->measures.n < CONTROL_MAX_MEASURES; i++) {
		struct control_measure m;

		if (take_measure(in->measures[i], &m) && vec_push(&ret->measures, m) < 0)
			return -ENOMEM;
	}
	take_settings(in->settings, &ret->settings);
	return 0;
}

int control_response_decode(const u8 *data, size_t n, struct control_response *ret,
			    struct diag *reterr_diag)
{
	_cleanup_arena_ struct arena a = ARENA_INIT(ARENA_BYTES);
	struct control_response out = {};
	ProtobufCMessage *m;
	int r = unpack(&culprit__control__v1__sync_response__descriptor, "a server's SyncResponse",
		       data, n, &a, &m, reterr_diag);

	if (r < 0)
		return r;
	r = take_response((const Culprit__Control__V1__SyncResponse *)m, &out);
	if (r < 0) {
		control_response_deinit(&out);
		return diag_set(reterr_diag, r, "out of memory");
	}
	*ret = out;
	return 0;
}
