/* SPDX-License-Identifier: Apache-2.0 */
/* Tasks, which profile some requests of a service, and the requests that they kept. */
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "base/vocab.h"
#include "server/api/internal.h"

#define PATH "/api/v1/tasks"
#define DEFAULT_LIMIT 100
#define MAX_STATES 64
#define MARGIN_MS 60000 /* around a request, for clocks that differ */

/* The task's id in the path: the component behind PATH. */
static void path_id(const struct api_call *c, char ret[CONTROL_ID_BYTES])
{
	const char *id = c->r->path + strlen(PATH "/");

	snprintf(ret, CONTROL_ID_BYTES, "%.*s", (int)strcspn(id, "/"), id);
}

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

	path_id(c, id);
	return put_task(c, id);
}

static int add(struct api_call *c)
{
	_cleanup_str_ struct str own = {};
	char id[CONTROL_ID_BYTES];
	struct task_spec spec;
	json_t *object = NULL;
	const u8 *data;
	size_t n;
	int r = api_body(c, &own, &data, &n);

	if (r == 0)
		r = json_read((const char *)data, n, JSON_REJECT_DUPLICATES, &object, &c->d);
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

	path_id(c, id);
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

	path_id(c, id);
	r = tasks_delete(c->a->o.tasks, id, &c->d);
	if (r < 0)
		return r;
	api_audit(c, "task-deleted", id);
	json_open_object(&c->json, NULL);
	json_close(&c->json);
	return 0;
}

/* ---- kept requests ---- */

/* The time of each request by state, from the samples that agents sent of it. */
struct ledger {
	struct strtab states;
	struct map series; /* id → id of its state; only those of the task */
	struct trace_set set;
	u64 (*ns)[MAX_STATES];	    /* owned; by request and state */
	bool by_span;		    /* of one trace */
	u64 (*of_span)[MAX_STATES]; /* owned; by span and state; NULL unless by_span */
};

static void ledger_deinit(struct ledger *l)
{
	strtab_deinit(&l->states);
	map_deinit(&l->series);
	trace_set_deinit(&l->set);
	free(l->ns);
	free(l->of_span);
}
#define _cleanup_ledger_ __attribute__((cleanup(ledger_deinit)))

/* The requests of the answer, newest first, and the range of their times. */
struct answered {
	const struct task_info *t;
	size_t n;
	u64 from_ms, to_ms;
};

static const struct task_request *request_at(const struct answered *a, size_t k)
{
	return &a->t->requests.data[a->t->requests.n - 1 - k];
}

static bool is_time(const char *type)
{
	struct store_type parts;

	return store_type_parse(type, &parts) == 0 &&
	       store_type_find(&parts) == SAMPLE_TYPE_REQUEST_TIME;
}

static const char *label_of(const struct profile *p, u32 resource, const char *name)
{
	const struct profile_resource *r = &p->resources.data[resource];

	for (u32 k = 0; k < r->n; k++) {
		const struct profile_label *l = &p->labels.data[r->first + k];

		if (!strcmp(profile_string(p, l->name), name))
			return profile_string(p, l->value);
	}
	return "";
}

static int find_series(struct api_call *c, const struct answered *a, struct ledger *l)
{
	const struct store_filter f = {
		.from_ms = a->from_ms, .to_ms = a->to_ms, .service = a->t->spec.service};
	struct store_series_set set = {};
	int r = store_find_series(c->a->o.store, &f, &set, &c->d);

	for (size_t k = 0; r == 0 && k < set.series.n; k++) {
		const struct store_found_series *e = &set.series.data[k];
		const char *state = label_of(set.profile, e->resource, "state");
		u32 id;

		if (!is_time(profile_string(set.profile, e->type)) || !*state ||
		    strcmp(label_of(set.profile, e->resource, "task"), a->t->id) != 0)
			continue;
		r = strtab_add(&l->states, state, strlen(state), &id);
		if (r == 0 && id < MAX_STATES)
			r = map_put(&l->series, e->id, id);
	}
	store_series_set_deinit(&set);
	return r;
}

static int compare_ids(const void *a, const void *b)
{
	return memcmp(a, b, 16);
}

static int add_links(struct ledger *l, const struct answered *a, const struct store_links *links)
{
	const struct trace_set *set = &l->set;
	struct map by_span = {};
	int r = 0;

	for (size_t k = 0; k < a->n && r == 0; k++) {
		u32 span =
			trace_set_span(set, request_at(a, k)->trace_id, request_at(a, k)->span_id);

		if (span != PROFILE_NONE)
			r = map_put(&by_span, span, k);
	}
	for (size_t k = 0; k < links->links.n && r == 0; k++) {
		const struct store_link *e = &links->links.data[k];
		const u64 *state = map_get(&l->series, e->series), *request;
		u32 span;

		if (!state || !is_time(profile_string(links->profile, e->type)) || e->value < 0)
			continue;
		span = l->by_span ? trace_set_span(set, e->link.trace_id, e->link.span_id)
				  : PROFILE_NONE;
		if (span != PROFILE_NONE)
			l->of_span[span][*state] += (u64)e->value;
		request = map_get(&by_span,
				  trace_set_request(set, &e->link,
						    profile_string(links->profile, e->service)));
		if (request)
			l->ns[*request][*state] += (u64)e->value;
	}
	map_deinit(&by_span);
	return r;
}

static int fill_ledger(struct api_call *c, const struct answered *a, struct ledger *l)
{
	_cleanup_store_links_ struct store_links links = {};
	_cleanup_free_ u8(*ids)[16] = calloc(a->n + 1, sizeof(*ids));
	struct store_link_filter f = {
		.from_ms = a->from_ms, .to_ms = a->to_ms, .service = a->t->spec.service};
	size_t n = 0;
	int r;

	l->ns = calloc(a->n + 1, sizeof(*l->ns));
	if (!ids || !l->ns || strtab_init(&l->states) < 0)
		return -ENOMEM;
	r = a->n ? find_series(c, a, l) : 0;
	if (r < 0 || !l->series.n)
		return r;
	for (size_t k = 0; k < a->n; k++)
		memcpy(ids[k], request_at(a, k)->trace_id, 16);
	qsort(ids, a->n, sizeof(*ids), compare_ids);
	for (size_t k = 0; k < a->n; k++)
		if (!n || memcmp(ids[n - 1], ids[k], 16) != 0)
			memmove(ids[n++], ids[k], 16);
	f.traces = (const u8(*)[16])ids;
	f.n_traces = n;
	r = store_find_links(c->a->o.store, &f, &links, &c->d);
	if (r == 0)
		r = trace_set_load(c->a->o.store, (const u8(*)[16])ids, n, f.service, &l->set,
				   &c->d);
	if (r == 0 && l->by_span)
		l->of_span = calloc(l->set.spans.spans.n + 1, sizeof(*l->of_span));
	if (r == 0 && l->by_span && !l->of_span)
		r = -ENOMEM;
	return r < 0 ? r : add_links(l, a, &links);
}

static void put_states(struct json_writer *w, const struct ledger *l, const u64 ns[MAX_STATES])
{
	json_open_object(w, "states");
	for (u32 s = 1; s < MIN(l->states.n, (size_t)MAX_STATES); s++)
		if (ns[s])
			json_put_scaled(w, strtab_get(&l->states, s), ns[s], 6);
	json_close(w);
}

/* The spans of one trace that took time of their own. */
static void put_spans(struct json_writer *w, const struct ledger *l)
{
	json_open_array(w, "spans");
	for (size_t k = 0; l->of_span && k < l->set.spans.spans.n; k++) {
		char id[17];
		bool any = false;

		for (u32 s = 1; s < MAX_STATES; s++)
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

static struct answered answered_of(const struct task_info *t, u64 limit)
{
	struct answered a = {.t = t, .n = MIN((u64)t->requests.n, limit), .from_ms = ~0ULL};

	for (size_t k = 0; k < a.n; k++) {
		const struct task_request *q = request_at(&a, k);

		a.from_ms = MIN(a.from_ms, q->start_ns / 1000000);
		a.to_ms = MAX(a.to_ms, (q->start_ns + q->duration_ns) / 1000000);
	}
	if (a.n) {
		a.from_ms -= MIN(a.from_ms, (u64)MARGIN_MS);
		a.to_ms += MARGIN_MS;
	}
	return a;
}

/* Leaves only the requests of the trace in the parameter, if it is there. ret: whether it is. */
static int choose_trace(struct api_call *c, struct task_info *t, bool *ret)
{
	const char *text = net_parameter(c->r, "trace");
	u8 id[16];
	size_t n = 0;

	*ret = text && *text;
	if (!*ret)
		return 0;
	if (!span_parse_id(text, id, sizeof(id)))
		return diag_set(&c->d, -EINVAL, "trace: a trace id has 32 hex digits");
	vec_foreach (&t->requests, q)
		if (!memcmp(q->trace_id, id, sizeof(id)))
			t->requests.data[n++] = *q;
	t->requests.n = n;
	return n ? 0
		 : diag_set(&c->d, -ENOENT,
			    "the task has no request of this trace, or not any more");
}

static int requests(struct api_call *c)
{
	_cleanup_task_info_ struct task_info t = {};
	_cleanup_ledger_ struct ledger l = {};
	char id[CONTROL_ID_BYTES];
	u64 limit = DEFAULT_LIMIT;
	struct answered a;
	int r = api_number(c, "limit", 1, TASKS_MAX_REQUESTS, &limit);

	path_id(c, id);
	if (r == 0)
		r = tasks_get(c->a->o.tasks, id, &t, &c->d);
	if (r == 0)
		r = choose_trace(c, &t, &l.by_span);
	if (r < 0)
		return r;
	a = answered_of(&t, limit);
	r = fill_ledger(c, &a, &l);
	if (r < 0)
		return r;
	json_open_object(&c->json, NULL);
	json_put_text(&c->json, "task", t.id);
	json_put_u64(&c->json, "from", a.n ? a.from_ms : 0);
	json_put_u64(&c->json, "to", a.to_ms);
	json_open_array(&c->json, "requests");
	for (size_t k = 0; k < a.n; k++) {
		json_open_object(&c->json, NULL);
		task_put_request(&c->json, &t, request_at(&a, k));
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
	{},
};
