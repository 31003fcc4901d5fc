/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Searches requests, and returns a trace as a waterfall with the samples of its spans.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "base/vocab.h"
#include "server/api/internal.h"

#define DEFAULT_LIMIT 50
#define MAX_LIMIT 1000

static void put_hex(struct json_writer *w, const char *key, const u8 *id, size_t n)
{
	char text[2 * 16 + 1];

	text_hex(id, n, text);
	json_put_text(w, key, text);
}

/* Puts nanoseconds as milliseconds. */
static void put_ms(struct json_writer *w, const char *key, u64 ns)
{
	json_put_scaled(w, key, ns, 6);
}

/* The members of a span that both the list of traces and a trace have. */
static void put_span(struct json_writer *w, const struct spans *s, const struct span *e)
{
	put_hex(w, "span_id", e->span_id, sizeof(e->span_id));
	if (span_has_parent(e))
		put_hex(w, "parent_id", e->parent_id, sizeof(e->parent_id));
	json_put_text(w, "service", spans_string(s, e->service));
	json_put_text(w, "name", spans_string(s, e->name));
	if (e->flags & SPAN_ROOT)
		json_put_text(w, "endpoint", spans_string(s, e->endpoint));
	json_put_text(w, "kind", span_kind_name(e->kind));
	json_put_text(w, "status", span_status_name(e->status));
	if (e->message)
		json_put_text(w, "message", spans_string(s, e->message));
	put_ms(w, "start_ms", e->start_ns);
	put_ms(w, "duration_ms", e->duration_ns);
	json_put_u64(w, "stands_for", 1ULL << e->weight);
}

/* ---- samples of spans ---- */

/* The type of the request, else the one of query_choose_type(). */
static void choose_type(struct api_call *c, const struct store_links *l, char ret[STORE_TYPE_BYTES])
{
	const char *asked = net_parameter(c->r, "type");

	if (asked && *asked)
		snprintf(ret, STORE_TYPE_BYTES, "%s", asked);
	else
		query_choose_type(l, ret);
}

struct own {
	u64 count;
	s64 value;
};

/* Nanoseconds by enum wait, of the samples of a span. */
struct spent {
	double ns[WAIT_N];
};

/* By span, and behind the last what is of spans that are not here; as add_links(). */
static int add_spent(struct api_call *c, const struct trace_set *t, const struct store_links *l,
		     struct spent *spent)
{
	_cleanup_free_ u8 *waits = calloc(l->links.n + 1, 1);
	int r = waits ? query_link_waits(c->a->o.store, l, waits, &c->d) : -ENOMEM;

	for (size_t i = 0; i < l->links.n && r == 0; i++) {
		const struct store_link *e = &l->links.data[i];
		u32 span = trace_set_span(t, e->link.trace_id, e->link.span_id);
		double seconds = store_type_cpu_seconds(profile_string(l->profile, e->type));

		if (waits[i] != WAIT_NONE)
			spent[span == PROFILE_NONE ? t->spans.spans.n : span].ns[waits[i]] +=
				(double)e->value * (seconds > 0 ? 1e9 * seconds : 1);
	}
	return r;
}

static void put_spent(struct json_writer *w, const struct spent *s)
{
	json_open_object(w, "states_ms");
	for (u32 i = 0; i < WAIT_N; i++)
		if (s->ns[i] > 0)
			json_put_fixed(w, vocab_wait(i)->name, s->ns[i] / 1e6, 6);
	json_close(w);
}

static void put_own(struct json_writer *w, const struct own *own)
{
	json_put_u64(w, "samples", own->count);
	json_put_s64(w, "value", own->value);
}

static bool has_samples(const struct own *own, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (own[i].count)
			return true;
	return false;
}

/* Adds rows whose keys are positions in `own`. */
static void add_rows(struct store_rows *rows, const char *type, struct own *own)
{
	link_rows_merge(rows, type);
	vec_foreach (&rows->rows, row) {
		own[row->time_ms].count += row->count;
		own[row->time_ms].value += row->value;
	}
}

/* By span, and behind the last what is of spans that are not here. */
static int add_links(const struct trace_set *t, const struct store_links *l, const char *type,
		     struct own *own)
{
	_cleanup_store_rows_ struct store_rows rows = {};
	int r = 0;

	for (size_t i = 0; i < l->links.n && r == 0; i++) {
		const struct store_link *e = &l->links.data[i];
		u32 span = trace_set_span(t, e->link.trace_id, e->link.span_id);

		if (!strcmp(profile_string(l->profile, e->type), type))
			r = link_rows_add(&rows, span == PROFILE_NONE ? t->spans.spans.n : span, e);
	}
	add_rows(&rows, type, own);
	return r;
}

/* ---- one trace ---- */

static void put_attributes(struct json_writer *w, const struct spans *s, const struct span *e)
{
	json_open_object(w, "attributes");
	for (u32 i = 0; i < e->n; i++) {
		const struct profile_label *l = &s->attributes.data[e->first + i];

		if (strcmp(spans_string(s, l->name), SPAN_EVENT) != 0)
			json_put_text(w, spans_string(s, l->name), spans_string(s, l->value));
	}
	json_close(w);
}

static void put_events(struct json_writer *w, const struct spans *s, const struct span *e)
{
	json_open_array(w, "events");
	for (u32 i = 0; i < e->n; i++) {
		const struct profile_label *l = &s->attributes.data[e->first + i];
		char *text;
		u64 ns;

		if (strcmp(spans_string(s, l->name), SPAN_EVENT) != 0)
			continue;
		ns = strtoull(spans_string(s, l->value), &text, 10);
		json_open_object(w, NULL);
		put_ms(w, "at_ms", ns);
		json_put_text(w, "text", text + (*text == ' '));
		json_close(w);
	}
	json_close(w);
}

static void put_waterfall(struct json_writer *w, const struct trace_set *t, const struct own *own,
			  const struct spent *spent)
{
	const struct spans *s = &t->spans;

	json_open_array(w, "spans");
	for (size_t i = 0; i < s->spans.n; i++) {
		const struct span *e = &s->spans.data[i];

		json_open_object(w, NULL);
		put_span(w, s, e);
		json_put_bool(w, "root", e->flags & SPAN_ROOT);
		put_own(w, &own[i]);
		put_spent(w, &spent[i]);
		if (e->tid)
			json_put_u64(w, "tid", e->tid);
		put_attributes(w, s, e);
		put_events(w, s, e);
		json_close(w);
	}
	json_close(w);
	json_open_object(w, "other");
	put_own(w, &own[s->spans.n]);
	put_spent(w, &spent[s->spans.n]);
	json_close(w);
	json_put_bool(w, "damaged", s->damaged);
}

static int trace(struct api_call *c)
{
	_cleanup_store_links_ struct store_links l = {};
	_cleanup_trace_set_ struct trace_set t = {};
	_cleanup_free_ struct own *own = NULL;
	_cleanup_free_ struct spent *spent = NULL;
	struct store *s = c->a->o.store;
	struct store_link_filter f = {.to_ms = 1ULL << 62, .n_traces = 1};
	char type[STORE_TYPE_BYTES];
	u8 id[1][16];
	int r;

	if (!span_parse_id(strrchr(c->r->path, '/') + 1, id[0], 16))
		return diag_set(&c->d, -EINVAL, "a trace id has 32 hex digits");
	f.traces = id;
	r = trace_set_load(s, id, 1, NULL, &t, &c->d);
	if (r == 0)
		r = store_find_links(s, &f, &l, &c->d);
	if (r == 0 && !t.spans.spans.n && !l.links.n)
		r = diag_set(&c->d, -ENOENT, "there is no such trace, or not any more");
	own = calloc(t.spans.spans.n + 1, sizeof(*own));
	spent = calloc(t.spans.spans.n + 1, sizeof(*spent));
	if (r == 0 && (!own || !spent))
		r = -ENOMEM;
	if (r < 0)
		return r;
	choose_type(c, &l, type);
	r = add_links(&t, &l, type, own);
	if (r == 0)
		r = add_spent(c, &t, &l, spent);
	if (r == 0 && *type && !has_samples(own, t.spans.spans.n + 1))
		r = query_check_type(s, &(struct query){.to_ms = f.to_ms, .type = type}, &c->d);
	if (r < 0)
		return r;
	json_open_object(&c->json, NULL);
	put_hex(&c->json, "trace_id", id[0], 16);
	json_put_text(&c->json, "type", type);
	api_put_trace_links(&c->json, c->a->o.trace_links);
	put_waterfall(&c->json, &t, own, spent);
	json_close(&c->json);
	return 0;
}

/* ---- looking for some ---- */

static const char *const columns[] = {"duration_ms", "endpoint", "service", "status",
				      "start_ms",    "samples",	 "value"};
enum { BY_DURATION, BY_ENDPOINT, BY_SERVICE, BY_STATUS, BY_START, BY_SAMPLES, BY_VALUE };

struct found {
	const struct span *span; /* in `spans` of the list */
	struct own own;
};

struct found_list {
	struct api_list part;
	const struct spans *spans; /* borrowed */
	vec(struct found) list;
	char type[STORE_TYPE_BYTES];
	bool is_all; /* whether all requests were looked at, so that their number is known */
	u32 bits;    /* of a share of 1 / 2^bits of the traces */
	bool damaged;
};

static void found_deinit(struct found_list *l)
{
	vec_deinit(&l->list);
}

static size_t find_id(const struct trace_ids *t, const u8 id[16])
{
	size_t low = 0, high = t->n;

	while (low < high) {
		size_t mid = (low + high) / 2;

		if (memcmp(t->ids[mid], id, 16) < 0)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

/* Adds up the samples of each trace, in all services. */
static int sums_of_traces(const struct store_links *l, const struct trace_ids *ids,
			  const char *type, struct own *own)
{
	_cleanup_store_rows_ struct store_rows rows = {};
	int r = 0;

	for (size_t k = 0; k < l->links.n && r == 0; k++) {
		const struct store_link *e = &l->links.data[k];
		size_t at = find_id(ids, e->link.trace_id);

		if (at < ids->n && !memcmp(ids->ids[at], e->link.trace_id, 16) &&
		    !strcmp(profile_string(l->profile, e->type), type))
			r = link_rows_add(&rows, at, e);
	}
	add_rows(&rows, type, own);
	return r;
}

/* Lists these spans with the samples of their traces. */
static int list_spans(struct api_call *c, const struct spans *s, struct found_list *ret)
{
	_cleanup_store_links_ struct store_links l = {};
	_cleanup_trace_ids_ struct trace_ids ids = {};
	struct store_link_filter f = {.to_ms = 1ULL << 62};
	_cleanup_free_ struct own *own = NULL;
	int r = trace_ids_of_spans(s, &ids);

	f.traces = ids.ids;
	f.n_traces = ids.n;
	if (r == 0)
		r = store_find_links(c->a->o.store, &f, &l, &c->d);
	if (r < 0)
		return r;
	choose_type(c, &l, ret->type);
	own = calloc(ids.n + 1, sizeof(*own));
	r = own ? sums_of_traces(&l, &ids, ret->type, own) : -ENOMEM;
	for (size_t i = 0; i < s->spans.n && r == 0; i++) {
		const struct span *e = &s->spans.data[i];

		r = vec_push(&ret->list, (struct found){e, own[find_id(&ids, e->trace_id)]});
	}
	ret->spans = s;
	ret->damaged = s->damaged;
	return r;
}

/* Lists requests; with a predicate those that ran such a stack, with its samples in the request. */
static int list_requests(struct api_call *c, const struct query *q, struct query_requests *all,
			 struct spans *own, struct found_list *ret)
{
	const struct store_span_filter f = query_span_filter(q);
	int r = query_requests(c->a->o.store, q, &f, all, &c->d);

	ret->is_all = true;
	ret->bits = all->bits;
	ret->spans = &all->set.spans;
	if (r < 0)
		return r;
	snprintf(ret->type, sizeof(ret->type), "%s", all->type);
	for (size_t i = 0; i < all->requests.n && r == 0; i++) {
		const struct request *e = &all->requests.data[i];
		const struct span *span = &all->set.spans.spans.data[e->span];

		if (!q->stacks)
			r = vec_push(&own->spans, *span);
		else if (e->count)
			r = vec_push(&ret->list, (struct found){span, {e->count, e->value}});
	}
	if (r == 0 && !q->stacks)
		r = list_spans(c, own, ret);
	ret->spans = &all->set.spans;
	ret->damaged = all->damaged;
	return r;
}

static void search(struct found_list *l)
{
	size_t n = 0;

	for (size_t i = 0; i < l->list.n; i++) {
		const struct span *e = l->list.data[i].span;
		_cleanup_str_ struct str both = {};

		str_printf(&both, "%s %s", spans_string(l->spans, e->service),
			   spans_string(l->spans, e->endpoint));
		if (api_list_finds(&l->part, str_get(&both)))
			l->list.data[n++] = l->list.data[i];
	}
	l->list.n = n;
}

static int compare_found(const void *a, const void *b, void *arg)
{
	const struct found_list *l = arg;
	const struct found *x = a, *y = b;
	const struct span *s = x->span, *t = y->span;
	const double pairs[][2] = {
		[BY_DURATION] = {(double)s->duration_ns, (double)t->duration_ns},
		[BY_START] = {(double)s->start_ns, (double)t->start_ns},
		[BY_SAMPLES] = {(double)x->own.count, (double)y->own.count},
		[BY_VALUE] = {(double)x->own.value, (double)y->own.value},
	};
	size_t column = l->part.column;
	const u32 texts[][2] = {[BY_ENDPOINT] = {s->endpoint, t->endpoint},
				[BY_SERVICE] = {s->service, t->service}};
	int order;

	if (column == BY_STATUS)
		order = api_list_compare(&l->part, s->status, t->status);
	else if (column == BY_ENDPOINT || column == BY_SERVICE)
		order = api_list_compare_text(&l->part, spans_string(l->spans, texts[column][0]),
					      spans_string(l->spans, texts[column][1]));
	else
		order = api_list_compare(&l->part, pairs[column][0], pairs[column][1]);
	if (!order && s->duration_ns != t->duration_ns)
		order = s->duration_ns > t->duration_ns ? -1 : 1;
	if (!order)
		order = memcmp(s->trace_id, t->trace_id, 16);
	return order ? order : memcmp(s->span_id, t->span_id, 8);
}

static void put_traces(struct json_writer *w, const struct query *q, const struct found_list *l)
{
	json_open_object(w, NULL);
	json_put_u64(w, "from", q->from_ms);
	json_put_u64(w, "to", q->to_ms);
	json_put_text(w, "type", l->type);
	if (l->is_all) {
		json_put_u64(w, "matching", l->list.n);
		json_put_u64(w, "share_of", 1ULL << l->bits);
	}
	json_open_array(w, "traces");
	for (size_t i = l->part.offset; i < l->list.n && i - l->part.offset < l->part.limit; i++) {
		const struct found *e = &l->list.data[i];

		json_open_object(w, NULL);
		put_hex(w, "trace_id", e->span->trace_id, 16);
		put_span(w, l->spans, e->span);
		put_own(w, &e->own);
		json_close(w);
	}
	json_close(w);
	json_put_bool(w, "damaged", l->damaged);
	json_close(w);
}

static bool has_found_samples(const struct found_list *l)
{
	for (size_t i = 0; i < l->list.n; i++)
		if (l->list.data[i].own.count)
			return true;
	return false;
}

/* The store finds the slowest requests among any number; other orders need all requests. */
static bool is_slowest_first(const struct found_list *l, const struct query *q)
{
	return l->part.column == BY_DURATION && l->part.descending && !*l->part.search &&
	       !q->stacks && l->part.offset + l->part.limit <= MAX_LIMIT;
}

static int traces(struct api_call *c)
{
	__attribute__((cleanup(found_deinit))) struct found_list l = {
		.part = {.limit = DEFAULT_LIMIT, .max = MAX_LIMIT}};
	_cleanup_query_requests_ struct query_requests all = {};
	_cleanup_query_ struct query q = {};
	_cleanup_spans_ struct spans s = {};
	struct store_span_filter f;
	int r = api_list(c, columns, ARRAY_SIZE(columns), "-duration_ms", &l.part);

	if (r == 0)
		r = api_query(c, "", &q);
	if (r == 0)
		r = api_requests(c, "", &q);
	if (r < 0)
		return r;
	if (is_slowest_first(&l, &q)) {
		f = query_span_filter(&q);
		f.limit = l.part.offset + l.part.limit;
		r = store_find_spans(c->a->o.store, &f, &s, &c->d);
		if (r == 0)
			r = list_spans(c, &s, &l);
	} else {
		r = list_requests(c, &q, &all, &s, &l);
	}
	if (r == 0 && !q.stacks && !has_found_samples(&l))
		r = query_check_type(c->a->o.store, &q, &c->d);
	if (r < 0)
		return r;
	search(&l);
	if (l.list.n)
		qsort_r(l.list.data, l.list.n, sizeof(*l.list.data), compare_found, &l);
	put_traces(&c->json, &q, &l);
	return 0;
}

#define R NET_ROLE_READ
const struct api_route api_trace_routes[] = {
	{"GET", "/api/v1/traces", R, API_STYLE_JSON, traces},
	{"GET", "/api/v1/traces/{trace_id}", R, API_STYLE_JSON, trace},
	{},
};
