/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Policies as JSON: for the API, and with the same members in files, DIRECTORY/policy-ID.json. What
 * was measured is not in files: windows begin again after a restart. The lock is held while a file
 * is written; that is rare.
 */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"
#include "base/text.h"
#include "server/policies/internal.h"

#define VERSION 1
#define MAX_FILE_BYTES (4u << 20)
#define PREFIX "policy-"
#define SUFFIX ".json"

/* ---- writing ---- */

static void put_spec(struct json_writer *w, const struct policy_spec *s)
{
	json_open_object(w, "spec");
	json_put_exact(w, "service", s->service);
	json_put_text(w, "cause", policy_cause_name(s->cause));
	json_put_double(w, "threshold", s->threshold);
	json_put_exact(w, "endpoint", s->endpoint);
	if (s->percentile > 0)
		json_put_double(w, "percentile", s->percentile);
	else
		json_put_null(w, "percentile");
	json_put_u64(w, "min_requests", s->min_requests);
	json_put_u64(w, "window_ms", s->window_ms);
	json_put_u64(w, "count", s->count);
	json_put_u64(w, "of", s->of);
	json_put_u64(w, "silence_ms", s->silence_ms);
	json_put_u64(w, "max_per_day", s->max_per_day);
	task_spec_put(w, "task", &s->task);
	json_close(w);
}

static void put_fired(struct json_writer *w, const struct policy_info *i)
{
	json_open_array(w, "fired");
	vec_foreach (&i->fired, f) {
		json_open_object(w, NULL);
		json_put_text(w, "task", f->task);
		json_put_exact(w, "service", f->service);
		task_cause_put(w, "cause", &f->cause);
		json_put_bool(w, "silent", f->silent_told);
		json_close(w);
	}
	json_close(w);
}

static void put_seen(struct json_writer *w, const struct policy_info *i)
{
	json_open_array(w, "seen");
	vec_foreach (&i->seen, s) {
		json_open_object(w, NULL);
		json_put_text(w, "host", s->host);
		json_put_exact(w, "service", s->service);
		json_put_exact(w, "endpoint", s->endpoint);
		json_put_u64(w, "at", s->at_ms);
		json_put_double(w, "value", s->value);
		json_put_u64(w, "over", s->over);
		json_put_u64(w, "windows", s->windows);
		json_put_u64(w, "processes", s->processes);
		json_put_u64(w, "requests", s->requests);
		json_put_u64(w, "pid", s->pid);
		json_put_text(w, "comm", s->comm);
		json_put_text(w, "verdict", policy_verdict_name(s->verdict));
		json_close(w);
	}
	json_close(w);
}

static void put_log(struct json_writer *w, const struct policy_info *i)
{
	json_open_array(w, "log");
	vec_foreach (&i->log, l) {
		json_open_object(w, NULL);
		json_put_u64(w, "at", l->at_ms);
		json_put_text(w, "host", l->host);
		json_put_text(w, "text", l->text);
		json_close(w);
	}
	json_close(w);
}

static void put_policy(struct json_writer *w, const struct policy_info *i)
{
	json_put_text(w, "id", i->id);
	put_spec(w, &i->spec);
	json_put_u64(w, "created", i->created_ms);
	json_put_text(w, "by", i->by);
	json_open_object(w, "verdicts");
	for (u32 v = POLICY_VERDICT_NOTHING + 1; v < POLICY_VERDICT_N; v++)
		json_put_u64(w, policy_verdict_name(v), i->verdicts[v]);
	json_close(w);
	json_put_u64(w, "late_spans", i->late);
	put_fired(w, i);
}

void policy_put(struct json_writer *w, const struct policy_info *i, bool full)
{
	put_policy(w, i);
	if (full) {
		put_seen(w, i);
		put_log(w, i);
	}
}

static int path_of(const struct policies *p, const char *id, struct str *ret)
{
	str_printf(ret, "%s/" PREFIX "%s" SUFFIX, p->directory, id);
	return ret->failed ? -ENOMEM : 0;
}

int policy_file_save(const struct policies *p, struct policy_entry *e, struct diag *reterr_diag)
{
	_cleanup_str_ struct str text = {}, path = {};
	struct json_writer w = {.out = &text};
	int r;

	e->changed = false;
	e->saved_ms = clock_epoch_ms();
	if (!p->directory)
		return 0;
	json_open_object(&w, NULL);
	json_put_u64(&w, "version", VERSION);
	put_policy(&w, &e->info);
	put_log(&w, &e->info);
	json_close(&w);
	str_putc(&text, '\n');
	r = text.failed ? -ENOMEM : path_of(p, e->info.id, &path);
	if (r == 0)
		r = io_replace(str_get(&path), text.data, text.n);
	if (r == 0)
		return 0;
	e->changed = true;
	if (!reterr_diag)
		log_warn("%s: cannot write the file of a policy: %s; the server tries again",
			 str_get(&path), strerror(-r));
	return diag_set(reterr_diag, r, "cannot write the file of a policy: %s", strerror(-r));
}

void policy_file_remove(const struct policies *p, const char *id)
{
	_cleanup_str_ struct str path = {};

	if (p->directory && path_of(p, id, &path) == 0 && unlink(str_get(&path)) < 0 &&
	    errno != ENOENT)
		log_warn("%s: cannot remove the file of a policy: %s", str_get(&path),
			 strerror(errno));
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

static int read_fired(const json_t *o, struct policy_info *i)
{
	const json_t *list = json_object_get(o, "fired"), *f;
	size_t k;

	json_array_foreach(list, k, f)
	{
		struct policy_firing new = {.silent_told =
						    json_is_true(json_object_get(f, "silent"))};

		COPY_TEXT(new.task, f, "task");
		COPY_TEXT(new.service, f, "service");
		task_cause_read(json_object_get(f, "cause"), &new.cause);
		if (k < POLICY_MAX_FIRED && vec_push(&i->fired, new) < 0)
			return -ENOMEM;
	}
	return 0;
}

static int read_log(const json_t *o, struct policy_info *i)
{
	const json_t *list = json_object_get(o, "log"), *l;
	size_t k;

	json_array_foreach(list, k, l)
	{
		struct task_log line = {.at_ms = number_of(l, "at")};

		COPY_TEXT(line.host, l, "host");
		COPY_TEXT(line.text, l, "text");
		if (k < POLICY_MAX_LOG && vec_push(&i->log, line) < 0)
			return -ENOMEM;
	}
	return 0;
}

static int read_policy(json_t *o, const char *id, struct policy_entry *e, struct diag *d)
{
	struct policy_info *i = &e->info;
	int r;

	if (number_of(o, "version") != VERSION)
		return diag_set(d, -EBADMSG, "it has version %llu of the format, and not %d",
				number_of(o, "version"), VERSION);
	r = policy_spec_read(json_object_get(o, "spec"), &i->spec, d);
	if (r == 0)
		r = policy_spec_check(&i->spec, d);
	if (r == 0 && i->spec.endpoint[0] == '~')
		r = regex_create(i->spec.endpoint + 1, true, d, &e->regex);
	if (r < 0)
		return r;
	snprintf(i->id, sizeof(i->id), "%s", id);
	i->created_ms = number_of(o, "created");
	COPY_TEXT(i->by, o, "by");
	i->late = number_of(o, "late_spans");
	for (u32 v = POLICY_VERDICT_NOTHING + 1; v < POLICY_VERDICT_N; v++)
		i->verdicts[v] = number_of(json_object_get(o, "verdicts"), policy_verdict_name(v));
	r = read_fired(o, i);
	return r < 0 ? r : read_log(o, i);
}

static int load_file(void *arg, const char *id)
{
	struct policies *p = arg;
	_cleanup_str_ struct str path = {}, text = {};
	struct policy_entry *e = NULL;
	struct diag d = {};
	json_t *o = NULL;
	int r;

	if (p->list.n >= POLICIES_MAX)
		return 0;
	r = path_of(p, id, &path);
	if (r == 0)
		r = io_read(str_get(&path), MAX_FILE_BYTES, &text);
	if (r == 0)
		r = json_read(str_get(&text), text.n, 0, &o, &d);
	if (r == 0)
		r = policy_entry_create(&e);
	if (r == 0)
		r = read_policy(o, id, e, &d);
	json_decref(o);
	if (r == 0)
		r = vec_push(&p->list, e);
	if (r < 0)
		policy_entry_destroy(p, e);
	if (r < 0 && r != -ENOMEM)
		log_warn("%s: %s; this policy is left out", str_get(&path),
			 d.text[0] ? d.text : strerror(-r));
	return r == -ENOMEM ? r : 0;
}

static int compare_entries(const void *a, const void *b)
{
	const struct policy_info *x = &(*(struct policy_entry *const *)a)->info,
				 *y = &(*(struct policy_entry *const *)b)->info;

	if (x->created_ms != y->created_ms)
		return x->created_ms < y->created_ms ? -1 : 1;
	return strcmp(x->id, y->id);
}

int policy_files_load(struct policies *p, struct diag *reterr_diag)
{
	int r = io_each_id(p->directory, PREFIX, SUFFIX, CONTROL_ID_BYTES - 1, load_file, p,
			   reterr_diag);

	if (p->list.n)
		qsort(p->list.data, p->list.n, sizeof(*p->list.data), compare_entries);
	return r;
}
