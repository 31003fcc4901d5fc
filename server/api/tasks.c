/* SPDX-License-Identifier: Apache-2.0 */
/* Tasks, which profile some requests of a service, and the requests that they kept. */
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "base/vocab.h"
#include "server/api/kept.h"

#define PATH "/api/v1/tasks"
#define DEFAULT_LIMIT 100

static int put_why(struct api_call *c, const char *id)
{
	struct task_reasons why = {};
	int r = tasks_why(c->a->o.tasks, id, &why);

	if (r < 0 && r != -ENOENT)
		return r;
	json_open_array(&c->json, "why");
	vec_foreach (&why.list, e) {
		json_open_object(&c->json, NULL);
		json_put_text(&c->json, "reason", task_why_name(e->why));
		json_put_text(&c->json, "text", e->text);
		json_close(&c->json);
	}
	json_close(&c->json);
	vec_deinit(&why.list);
	return 0;
}

static int put_task(struct api_call *c, const char *id)
{
	_cleanup_task_info_ struct task_info t = {};
	int r = tasks_get(c->a->o.tasks, id, &t, &c->d);

	if (r < 0)
		return r;
	json_open_object(&c->json, NULL);
	task_put(&c->json, &t, true);
	r = put_why(c, id);
	json_close(&c->json);
	return r;
}

static int list(struct api_call *c)
{
	_cleanup_task_list_ struct task_list all = {};
	int r = tasks_list(c->a->o.tasks, &all);

	if (r < 0)
		return r;
	json_open_object(&c->json, NULL);
	json_open_array(&c->json, "tasks");
	for (size_t i = 0; i < all.list.n && r == 0; i++) {
		json_open_object(&c->json, NULL);
		task_put(&c->json, &all.list.data[i], false);
		r = put_why(c, all.list.data[i].id);
		json_close(&c->json);
	}
	json_close(&c->json);
	json_close(&c->json);
	return r;
}

static int show(struct api_call *c)
{
	char id[CONTROL_ID_BYTES];

	api_path_id(c, PATH, id);
	return put_task(c, id);
}

static int add(struct api_call *c)
{
	char id[CONTROL_ID_BYTES];
	struct task_spec spec;
	json_t *object;
	int r = api_json_body(c, &object);

	if (r == 0)
		r = task_spec_read(object, &spec, &c->d);
	if (r == 0)
		r = tasks_add(c->a->o.tasks, &spec, c->r->token_name, id, &c->d);
	json_decref(object);
	if (r < 0)
		return r;
	api_audit(c, "task-added", id);
	return put_task(c, id);
}

static int cancel(struct api_call *c)
{
	char id[CONTROL_ID_BYTES];
	int r;

	api_path_id(c, PATH, id);
	r = tasks_cancel(c->a->o.tasks, id, c->r->token_name, &c->d);
	if (r < 0)
		return r;
	api_audit(c, "task-cancelled", id);
	return put_task(c, id);
}

static int delete (struct api_call *c)
{
	char id[CONTROL_ID_BYTES];
	int r;

	api_path_id(c, PATH, id);
	r = tasks_delete(c->a->o.tasks, id, &c->d);
	if (r < 0)
		return r;
	api_audit(c, "task-deleted", id);
	json_open_object(&c->json, NULL);
	json_close(&c->json);
	return 0;
}

/* ---- kept requests ---- */

static void put_states(struct json_writer *w, const struct kept_ledger *l,
		       const u64 ns[KEPT_MAX_STATES])
{
	json_open_object(w, "states");
	for (u32 s = 1; s < kept_ledger_n_states(l); s++)
		if (ns[s])
			json_put_scaled(w, strtab_get(&l->states, s), ns[s], 6);
	json_close(w);
}

/* The spans of one trace that took time of their own. */
static void put_spans(struct json_writer *w, const struct kept_ledger *l)
{
	json_open_array(w, "spans");
	for (size_t k = 0; l->of_span && k < l->set.spans.spans.n; k++) {
		char id[17];
		bool any = false;

		for (u32 s = 1; s < KEPT_MAX_STATES; s++)
			any |= l->of_span[k][s] != 0;
		if (!any)
			continue;
		json_open_object(w, NULL);
		text_hex(l->set.spans.spans.data[k].span_id, 8, id);
		json_put_text(w, "span_id", id);
		put_states(w, l, l->of_span[k]);
		json_close(w);
	}
	json_close(w);
}

static int requests(struct api_call *c)
{
	_cleanup_kept_list_ struct kept_list list = {};
	_cleanup_kept_ledger_ struct kept_ledger l = {};
	u64 limit = DEFAULT_LIMIT;
	int r = api_number(c, "limit", 1, TASKS_MAX_REQUESTS, &limit);

	if (r == 0)
		r = kept_list_read(c, limit, &list);
	l.by_span = list.of_trace;
	if (r == 0)
		r = kept_ledger_fill(c, &list, &l);
	if (r < 0)
		return r;
	json_open_object(&c->json, NULL);
	json_put_text(&c->json, "task", list.task.id);
	json_put_u64(&c->json, "from", list.from_ms);
	json_put_u64(&c->json, "to", list.to_ms);
	json_open_array(&c->json, "requests");
	for (size_t k = 0; k < list.of.n; k++) {
		json_open_object(&c->json, NULL);
		task_put_request(&c->json, &list.task, kept_list_at(&list, k));
		put_states(&c->json, &l, l.ns[k]);
		json_close(&c->json);
	}
	json_close(&c->json);
	if (l.by_span)
		put_spans(&c->json, &l);
	json_close(&c->json);
	return 0;
}

#define R NET_ROLE_READ
#define ADMIN NET_ROLE_ADMIN
const struct api_route api_task_routes[] = {
	{"GET", "/api/v1/tasks", R, API_STYLE_JSON, list},
	{"POST", "/api/v1/tasks", ADMIN, API_STYLE_JSON, add},
	{"GET", "/api/v1/tasks/{id}", R, API_STYLE_JSON, show},
	{"DELETE", "/api/v1/tasks/{id}", ADMIN, API_STYLE_JSON, delete},
	{"POST", "/api/v1/tasks/{id}/cancel", ADMIN, API_STYLE_JSON, cancel},
	{"GET", "/api/v1/tasks/{id}/requests", R, API_STYLE_JSON, requests},
	{"GET", "/api/v1/tasks/{id}/analysis", R, API_STYLE_JSON, kept_view_analysis},
	{"GET", "/api/v1/tasks/{id}/difference", R, API_STYLE_JSON, kept_view_difference},
	{"GET", "/api/v1/tasks/{id}/times", R, API_STYLE_JSON, kept_view_times},
	{},
};
