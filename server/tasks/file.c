/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files of tasks: DIRECTORY/task-ID.json, an object with the members that the API shows, the
 * version of the format, and the requests as rows of REQUEST_COLUMNS. A member that is missing is
 * zero, and one that is unknown is skipped.
 *
 * save_lock is held while a file is written. Whoever waits for it while another thread writes finds
 * its own change written, or writes it together with those of others.
 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"
#include "base/text.h"
#include "server/tasks/internal.h"

#define VERSION 1
#define MAX_FILE_BYTES (8u << 20)
#define SAVE_MS 2000 /* between two writes that nobody waits for */
#define PREFIX "task-"
#define SUFFIX ".json"

enum {
	COLUMN_NUMBER,
	COLUMN_TRACE,
	COLUMN_SPAN,
	COLUMN_START_NS,
	COLUMN_DURATION_NS,
	COLUMN_DECIDED_MS,
	COLUMN_DONE_MS,
	COLUMN_SAMPLES,
	COLUMN_ENDPOINT, /* its position in "endpoints" */
	COLUMN_AGENT,	 /* its position in "agents", or -1 */
	COLUMN_STATUS,
	COLUMN_REASON,
	COLUMN_OUTCOME,
	REQUEST_COLUMNS
};

/* ---- writing ---- */

static void put_row(struct json_writer *w, const struct task_request *q)
{
	char trace[33], span[17];

	text_hex(q->trace_id, sizeof(q->trace_id), trace);
	text_hex(q->span_id, sizeof(q->span_id), span);
	json_open_array(w, NULL);
	json_put_u64(w, NULL, q->number);
	json_put_text(w, NULL, trace);
	json_put_text(w, NULL, span);
	json_put_u64(w, NULL, q->start_ns);
	json_put_u64(w, NULL, q->duration_ns);
	json_put_u64(w, NULL, q->decided_ms);
	json_put_u64(w, NULL, q->done_ms);
	json_put_u64(w, NULL, q->samples);
	json_put_u64(w, NULL, q->endpoint);
	json_put_s64(w, NULL, q->agent == ~0u ? -1 : (s64)q->agent);
	json_put_text(w, NULL, span_status_name(q->status));
	json_put_text(w, NULL, control_reason_name(q->reason));
	json_put_text(w, NULL, task_outcome_name(q->outcome));
	json_close(w);
}

static void write_task(const struct task_info *i, struct str *out)
{
	struct json_writer w = {.out = out};

	json_open_object(&w, NULL);
	json_put_u64(&w, "version", VERSION);
	task_put(&w, i, true);
	json_put_text(&w, "said", task_state_name(i->said));
	json_open_array(&w, "requests");
	vec_foreach (&i->requests, q)
		put_row(&w, q);
	json_close(&w);
	json_close(&w);
	str_putc(out, '\n');
}

static int path_of(const struct tasks *t, const char *id, struct str *ret)
{
	str_printf(ret, "%s/" PREFIX "%s" SUFFIX, t->directory, id);
	return ret->failed ? -ENOMEM : 0;
}

void task_file_remove(const struct tasks *t, const char *id)
{
	_cleanup_str_ struct str path = {};

	if (t->directory && path_of(t, id, &path) == 0 && unlink(str_get(&path)) < 0 &&
	    errno != ENOENT)
		log_warn("%s: cannot remove the file of a task: %s", str_get(&path),
			 strerror(errno));
}

/* The next task whose file is behind, as text. False: there is none. */
static bool next_behind(struct tasks *t, u64 round, u64 now_ms, char ret_id[CONTROL_ID_BYTES],
			struct str *ret)
{
	struct task_entry *found = NULL;

	pthread_mutex_lock(&t->lock);
	for (size_t k = 0; k < t->list.n && !found; k++) {
		struct task_entry *e = t->list.data[k];

		if (e->round != round && (e->changed || e->urgent) &&
		    (e->urgent || now_ms >= e->saved_ms + SAVE_MS || now_ms < e->saved_ms))
			found = e;
	}
	if (found) {
		write_task(&found->info, ret);
		memcpy(ret_id, found->info.id, CONTROL_ID_BYTES);
		found->changed = found->urgent = false;
		found->saved_ms = now_ms;
		found->round = round;
	}
	pthread_mutex_unlock(&t->lock);
	return found;
}

static void mark_behind(struct tasks *t, const char *id)
{
	struct task_entry *e;

	pthread_mutex_lock(&t->lock);
	e = tasks_find(t, id);
	if (e)
		e->changed = e->urgent = true;
	pthread_mutex_unlock(&t->lock);
}

int task_files_save(struct tasks *t, struct diag *reterr_diag)
{
	_cleanup_str_ struct str text = {};
	char id[CONTROL_ID_BYTES];
	int r = 0;
	u64 round;

	if (!t->directory)
		return 0;
	pthread_mutex_lock(&t->save_lock);
	round = ++t->round;
	while (next_behind(t, round, clock_epoch_ms(), id, &text)) {
		_cleanup_str_ struct str path = {};
		int e = text.failed ? -ENOMEM : path_of(t, id, &path);

		if (e == 0)
			e = io_replace(str_get(&path), text.data, text.n);
		if (e < 0) {
			mark_behind(t, id);
			r = diag_set(reterr_diag, e, "cannot write the file of a task: %s",
				     strerror(-e));
			if (!reterr_diag)
				log_warn("%s: cannot write the file of a task: %s; the server "
					 "tries again",
					 str_get(&path), strerror(-e));
		}
		str_deinit(&text);
	}
	pthread_mutex_unlock(&t->save_lock);
	return r;
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

static u64 ns_of(const json_t *o, const char *name)
{
	double ms = json_number_value(json_object_get(o, name));

	return ms > 0 && ms < 1e13 ? (u64)llround(ms * 1e6) : 0;
}

#define COPY_TEXT(to, o, name) snprintf(to, sizeof(to), "%s", text_of(o, name))

/* The position of a name among n, or n. */
static u32 find_name(const char *text, const char *(*name)(u32), u32 n)
{
	u32 k = 0;

	while (k < n && strcmp(name(k), text) != 0)
		k++;
	return k;
}

static const char *status_name(u32 k)
{
	return span_status_name((u8)k);
}

static const char *reason_name(u32 k)
{
	return control_reason_name((enum control_reason)k);
}

static const char *agent_state_name(u32 k)
{
	return control_state_name((enum control_state)k);
}

static const char *state_name(u32 k)
{
	return task_state_name((enum task_state)k);
}

static void read_counts(const json_t *o, struct task_info *i)
{
	const json_t *counts = json_object_get(o, "counts"), *outcomes, *control;

	for (u32 k = 0; k < TASK_COUNT_N; k++)
		i->counts[k] = number_of(counts, task_count_name(k));
	for (u32 k = 0; k < CONTROL_REASON_N; k++)
		i->reasons[k] = number_of(json_object_get(o, "reasons"), reason_name(k));
	outcomes = json_object_get(o, "outcomes");
	control = json_object_get(o, "control_outcomes");
	for (u32 k = 0; k < TASK_OUTCOME_N; k++) {
		i->outcomes[k] = number_of(outcomes, task_outcome_name(k));
		i->control_outcomes[k] = number_of(control, task_outcome_name(k));
	}
	i->slowest_ns = ns_of(o, "slowest_ms");
}

static int read_agents(const json_t *o, struct task_entry *e)
{
	const json_t *list = json_object_get(o, "agents"), *a;
	size_t k;

	json_array_foreach(list, k, a)
	{
		u32 at = task_agent_index(e, text_of(a, "host"), text_of(a, "host_id"));
		struct task_agent *to;

		/* Requests refer to agents by their position. */
		if (at != k)
			return -EBADMSG;
		to = &e->info.agents.data[at];
		to->asked_ms = number_of(a, "asked");
		to->state = find_name(text_of(a, "state"), agent_state_name, CONTROL_STATE_N);
		if (to->state == CONTROL_STATE_N)
			return -EBADMSG;
		COPY_TEXT(to->reason, a, "reason");
		to->processes = (u32)number_of(a, "processes");
		to->publishing = (u32)number_of(a, "publishing");
		to->samples = number_of(a, "samples");
		to->events = number_of(a, "events");
		to->lost = number_of(a, "lost");
		to->evicted = number_of(a, "evicted");
		to->kept = number_of(a, "kept");
	}
	return 0;
}

static int read_endpoints(const json_t *o, struct task_entry *e)
{
	const json_t *list = json_object_get(o, "endpoints"), *p;
	size_t k;

	json_array_foreach(list, k, p)
	{
		struct task_endpoint new = {
			.matches = json_is_true(json_object_get(p, "matches")),
			.requests = number_of(p, "requests"),
			.wanted = number_of(p, "wanted"),
			.slowest_ns = ns_of(p, "slowest_ms"),
		};
		u32 id;

		COPY_TEXT(new.name, p, "endpoint");
		if (k == TASKS_MAX_ENDPOINTS + 2)
			return -EBADMSG;
		if (strtab_add(&e->names, new.name, strlen(new.name), &id) < 0 ||
		    vec_push(&e->info.endpoints, new) < 0 || vec_push(&e->windows, NULL) < 0)
			return -ENOMEM;
		if (id != k + 1)
			return -EBADMSG;
	}
	return 0;
}

static int read_log(const json_t *o, struct task_info *i)
{
	const json_t *list = json_object_get(o, "log"), *l;
	size_t k;

	json_array_foreach(list, k, l)
	{
		struct task_log line = {.at_ms = number_of(l, "at")};

		COPY_TEXT(line.host, l, "host");
		COPY_TEXT(line.text, l, "text");
		if (k < TASKS_MAX_LOG && vec_push(&i->log, line) < 0)
			return -ENOMEM;
	}
	return 0;
}

static u64 cell_number(const json_t *row, u32 column)
{
	json_int_t n = json_integer_value(json_array_get(row, column));

	return n > 0 ? (u64)n : 0;
}

static const char *cell_text(const json_t *row, u32 column)
{
	const char *text = json_string_value(json_array_get(row, column));

	return text ? text : "";
}

static int read_row(const json_t *row, const struct task_info *i, struct task_request *ret)
{
	json_int_t agent = json_integer_value(json_array_get(row, COLUMN_AGENT));
	struct task_request q = {
		.number = cell_number(row, COLUMN_NUMBER),
		.start_ns = cell_number(row, COLUMN_START_NS),
		.duration_ns = cell_number(row, COLUMN_DURATION_NS),
		.decided_ms = cell_number(row, COLUMN_DECIDED_MS),
		.done_ms = cell_number(row, COLUMN_DONE_MS),
		.samples = cell_number(row, COLUMN_SAMPLES),
		.endpoint = (u32)cell_number(row, COLUMN_ENDPOINT),
		.agent = agent >= 0 && (u64)agent < i->agents.n ? (u32)agent : ~0u,
	};

	q.status = (u8)find_name(cell_text(row, COLUMN_STATUS), status_name, SPAN_STATUS_N);
	q.reason = (u8)find_name(cell_text(row, COLUMN_REASON), reason_name, CONTROL_REASON_N);
	q.outcome =
		(u8)find_name(cell_text(row, COLUMN_OUTCOME), task_outcome_name, TASK_OUTCOME_N);
	if (q.status == SPAN_STATUS_N || q.reason == CONTROL_REASON_N ||
	    q.outcome == TASK_OUTCOME_N || q.endpoint >= i->endpoints.n ||
	    !span_parse_id(cell_text(row, COLUMN_TRACE), q.trace_id, sizeof(q.trace_id)) ||
	    !span_parse_id(cell_text(row, COLUMN_SPAN), q.span_id, sizeof(q.span_id)))
		return -EBADMSG;
	*ret = q;
	return 0;
}

static int read_requests(const json_t *o, struct task_info *i)
{
	const json_t *list = json_object_get(o, "requests"), *row;
	size_t k;

	json_array_foreach(list, k, row)
	{
		struct task_request q;
		int r = k < TASKS_MAX_REQUESTS ? read_row(row, i, &q) : -EBADMSG;

		if (r == 0)
			r = vec_push(&i->requests, q);
		if (r < 0)
			return r;
	}
	return 0;
}

static int read_task(json_t *o, const char *id, struct task_entry *e, struct diag *d)
{
	struct task_info *i = &e->info;
	int r;

	if (number_of(o, "version") != VERSION)
		return diag_set(d, -EBADMSG, "it has version %llu of the format, and not %d",
				number_of(o, "version"), VERSION);
	r = task_spec_read(json_object_get(o, "spec"), &i->spec, d);
	if (r == 0)
		r = task_spec_check(&i->spec, d);
	if (r == 0 && i->spec.endpoint[0] == '~')
		r = regex_create(i->spec.endpoint + 1, true, d, &e->regex);
	if (r < 0)
		return r;
	snprintf(i->id, sizeof(i->id), "%s", id);
	i->revision = (u32)number_of(o, "revision");
	i->created_ms = number_of(o, "created");
	COPY_TEXT(i->by, o, "by");
	task_cause_read(json_object_get(o, "cause"), &i->cause);
	i->start_ms = number_of(o, "start");
	i->end_ms = number_of(o, "end");
	i->cancelled_ms = number_of(o, "cancelled");
	i->said = find_name(text_of(o, "said"), state_name, TASK_STATE_N);
	read_counts(o, i);
	r = read_agents(o, e);
	if (r == 0)
		r = read_endpoints(o, e);
	if (r == 0)
		r = read_log(o, i);
	if (r == 0)
		r = read_requests(o, i);
	return r;
}

static int load_file(void *arg, const char *id)
{
	struct tasks *t = arg;
	_cleanup_task_entry_ struct task_entry *e = NULL;
	_cleanup_str_ struct str path = {}, text = {};
	struct diag d = {};
	json_t *o = NULL;
	int r;

	if (t->list.n >= TASKS_MAX)
		return 0;
	r = path_of(t, id, &path);
	if (r == 0)
		r = io_read(str_get(&path), MAX_FILE_BYTES, &text);
	if (r == 0)
		r = json_read(str_get(&text), text.n, 0, &o, &d);
	if (r == 0)
		r = task_entry_create(&e);
	if (r == 0)
		r = read_task(o, id, e, &d);
	json_decref(o);
	if (r == 0 && e->info.requests.n)
		t->number = MAX(t->number, e->info.requests.data[e->info.requests.n - 1].number);
	if (r == 0)
		r = vec_push(&t->list, e);
	if (r == 0)
		e = NULL;
	else if (r != -ENOMEM)
		log_warn("%s: %s; this task is left out", str_get(&path),
			 d.text[0]	 ? d.text
			 : r == -EBADMSG ? "damaged"
					 : strerror(-r));
	return r == -ENOMEM ? r : 0;
}

static int compare_entries(const void *a, const void *b)
{
	const struct task_info *x = &(*(struct task_entry *const *)a)->info,
			       *y = &(*(struct task_entry *const *)b)->info;

	if (x->created_ms != y->created_ms)
		return x->created_ms < y->created_ms ? -1 : 1;
	return strcmp(x->id, y->id);
}

int task_files_load(struct tasks *t, struct diag *reterr_diag)
{
	int r = io_each_id(t->directory, PREFIX, SUFFIX, CONTROL_ID_BYTES - 1, load_file, t,
			   reterr_diag);

	if (t->list.n)
		qsort(t->list.data, t->list.n, sizeof(*t->list.data), compare_entries);
	return r;
}
