/* SPDX-License-Identifier: Apache-2.0 */
/* Traces: looking for them, and one as a waterfall with the samples of its spans. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "server/api/internal.h"

#define DEFAULT_LIMIT 50
#define MAX_LIMIT 1000

static void put_hex(struct str *out, const char *name, const u8 *id, size_t n)
{
	str_printf(out, "\"%s\":\"", name);
	for (size_t i = 0; i < n; i++)
		str_printf(out, "%02x", id[i]);
	str_putc(out, '"');
}

static void put_ms(struct str *out, const char *name, u64 ns)
{
	str_printf(out, "\"%s\":%llu.%06llu", name, ns / 1000000, ns % 1000000);
}

/* What search and waterfall say of a span. */
static void put_span(struct str *out, const struct spans *s, const struct span *e)
{
	put_hex(out, "span_id", e->span_id, sizeof(e->span_id));
	if (span_has_parent(e)) {
		str_putc(out, ',');
		put_hex(out, "parent_id", e->parent_id, sizeof(e->parent_id));
	}
	str_putc(out, ',');
	api_put_text(out, "service", spans_string(s, e->service));
	str_putc(out, ',');
	api_put_text(out, "name", spans_string(s, e->name));
	if (e->flags & SPAN_ROOT) {
		str_putc(out, ',');
		api_put_text(out, "endpoint", spans_string(s, e->endpoint));
	}
	str_printf(out, ",\"kind\":\"%s\",\"status\":\"%s\",", span_kind_name(e->kind),
		   span_status_name(e->status));
	if (e->message) {
		api_put_text(out, "message", spans_string(s, e->message));
		str_putc(out, ',');
	}
	put_ms(out, "start_ms", e->start_ns);
	str_putc(out, ',');
	put_ms(out, "duration_ms", e->duration_ns);
	str_printf(out, ",\"stands_for\":%llu", 1ULL << e->weight);
}

/* ---- samples of spans ---- */

/* The type that was asked for, else that of most samples. "" when there are none. */
static const char *choose_type(struct api_call *c, const struct store_links *l)
{
	const char *asked = net_parameter(c->r, "type");
	u64 most = 0, *counts;
	u32 type = 0;

	if (asked && *asked)
		return asked;
	counts = calloc(l->profile->strings.n + 1, sizeof(*counts));
	for (size_t i = 0; counts && i < l->links.n; i++) {
		const struct store_link *e = &l->links.data[i];

		counts[e->type] += e->count;
		/* Of two measures of the same samples the later is time. */
		if (counts[e->type] >= most) {
			most = counts[e->type];
			type = e->type;
		}
	}
	free(counts);
	return profile_string(l->profile, type);
}

struct own {
	u64 count;
	s64 value;
};

/* By span, and behind the last what is of spans that are not here. */
static void add_links(const struct trace_set *t, const struct store_links *l, const char *type,
		      struct own *own)
{
	for (size_t i = 0; i < l->links.n; i++) {
		const struct store_link *e = &l->links.data[i];
		u32 span = trace_set_span(t, e->link.trace_id, e->link.span_id);

		if (strcmp(profile_string(l->profile, e->type), type) != 0)
			continue;
		own[span == PROFILE_NONE ? t->spans.spans.n : span].count += e->count;
		own[span == PROFILE_NONE ? t->spans.spans.n : span].value += e->value;
	}
}

/* ---- one trace ---- */

static void put_attributes(struct str *out, const struct spans *s, const struct span *e)
{
	str_puts(out, ",\"attributes\":{");
	for (u32 i = 0; i < e->n; i++) {
		const struct profile_label *l = &s->attributes.data[e->first + i];

		str_puts(out, i ? "," : "");
		api_put_text(out, spans_string(s, l->name), spans_string(s, l->value));
	}
	str_putc(out, '}');
}

static void put_waterfall(struct api_call *c, const struct trace_set *t, const struct own *own)
{
	const struct spans *s = &t->spans;

	str_puts(c->out, ",\"spans\":[");
	for (size_t i = 0; i < s->spans.n; i++) {
		const struct span *e = &s->spans.data[i];

		str_puts(c->out, i ? ",{" : "{");
		put_span(c->out, s, e);
		str_printf(c->out, ",\"root\":%s,\"samples\":%llu,\"value\":%lld",
			   e->flags & SPAN_ROOT ? "true" : "false", own[i].count, own[i].value);
		if (e->tid)
			str_printf(c->out, ",\"tid\":%u", e->tid);
		put_attributes(c->out, s, e);
		str_putc(c->out, '}');
	}
	str_printf(c->out, "],\"other\":{\"samples\":%llu,\"value\":%lld},\"damaged\":%s}",
		   own[s->spans.n].count, own[s->spans.n].value, s->damaged ? "true" : "false");
}

static int trace(struct api_call *c)
{
	_cleanup_store_links_ struct store_links l = {};
	_cleanup_trace_set_ struct trace_set t = {};
	_cleanup_free_ struct own *own = NULL;
	struct store *s = c->a->o.store;
	struct store_link_filter f = {.to_ms = 1ULL << 62, .n_traces = 1};
	const char *type;
	u8 id[1][16];
	int r;

	if (!span_parse_id(strrchr(c->r->path, '/') + 1, id[0], 16))
		return diag_set(&c->d, -EINVAL, "a trace id has 32 hex digits");
	f.traces = id;
	r = trace_set_load(s, id, 1, &t, &c->d);
	if (r == 0)
		r = s->ops->find_links(s, &f, &l, &c->d);
	if (r == 0 && !t.spans.spans.n && !l.links.n)
		r = diag_set(&c->d, -ENOENT, "there is no such trace, or not any more");
	own = calloc(t.spans.spans.n + 1, sizeof(*own));
	if (r == 0 && !own)
		r = -ENOMEM;
	if (r < 0)
		return r;
	type = choose_type(c, &l);
	add_links(&t, &l, type, own);
	str_putc(c->out, '{');
	put_hex(c->out, "trace_id", id[0], 16);
	str_putc(c->out, ',');
	api_put_text(c->out, "type", type);
	put_waterfall(c, &t, own);
	return 0;
}

/* ---- looking for some ---- */

static int read_status(struct api_call *c, struct store_span_filter *f)
{
	const char *text = net_parameter(c->r, "status");

	if (!text || !*text)
		return 0;
	for (u8 i = 0; i < SPAN_STATUS_N; i++)
		if (!strcmp(text, span_status_name(i)))
			f->statuses = (u8)(1 << i);
	return f->statuses ? 0 : diag_set(&c->d, -EINVAL, "status: unset, ok or error");
}

static const char *text_parameter(struct api_call *c, const char *name)
{
	const char *text = net_parameter(c->r, name);

	return text && *text ? text : NULL;
}

int api_span_filter(struct api_call *c, struct store_span_filter *f)
{
	_cleanup_query_ struct query q = {};
	u64 min_ms = 0, max_ms = 0;
	int r = api_query(c, "", &q);

	if (r == 0)
		r = api_number(c, "min_ms", 0, 1ULL << 40, &min_ms);
	if (r == 0)
		r = api_number(c, "max_ms", 0, 1ULL << 40, &max_ms);
	if (r == 0)
		r = read_status(c, f);
	f->from_ms = q.from_ms;
	f->to_ms = q.to_ms;
	f->service = text_parameter(c, "service");
	f->endpoint = text_parameter(c, "endpoint");
	f->min_ns = min_ms * 1000000;
	f->max_ns = max_ms * 1000000;
	f->roots = true;
	return r;
}

/* Samples of each span's trace, in all services. */
static int samples_of_traces(struct api_call *c, const struct spans *s, struct own *own,
			     char type[STORE_TYPE_BYTES])
{
	_cleanup_store_links_ struct store_links l = {};
	_cleanup_trace_ids_ struct trace_ids ids = {};
	struct store_link_filter f = {.to_ms = 1ULL << 62};
	int r = trace_ids_of_spans(s, &ids);

	f.traces = ids.ids;
	f.n_traces = ids.n;
	if (r == 0)
		r = c->a->o.store->ops->find_links(c->a->o.store, &f, &l, &c->d);
	if (r < 0)
		return r;
	snprintf(type, STORE_TYPE_BYTES, "%s", choose_type(c, &l));
	for (size_t k = 0; k < l.links.n; k++) {
		const struct store_link *e = &l.links.data[k];

		if (strcmp(profile_string(l.profile, e->type), type) != 0)
			continue;
		for (size_t i = 0; i < s->spans.n; i++)
			if (!memcmp(s->spans.data[i].trace_id, e->link.trace_id, 16)) {
				own[i].count += e->count;
				own[i].value += e->value;
			}
	}
	return 0;
}

static int traces(struct api_call *c)
{
	struct store_span_filter f = {};
	_cleanup_spans_ struct spans s = {};
	_cleanup_free_ struct own *own = NULL;
	char type[STORE_TYPE_BYTES] = "";
	u64 limit = DEFAULT_LIMIT;
	int r = api_number(c, "limit", 1, MAX_LIMIT, &limit);

	if (r == 0)
		r = api_span_filter(c, &f);
	f.limit = limit;
	if (r == 0)
		r = c->a->o.store->ops->find_spans(c->a->o.store, &f, &s, &c->d);
	own = calloc(s.spans.n + 1, sizeof(*own));
	if (r == 0 && !own)
		r = -ENOMEM;
	if (r == 0)
		r = samples_of_traces(c, &s, own, type);
	if (r < 0)
		return r;
	str_printf(c->out, "{\"from\":%llu,\"to\":%llu,", f.from_ms, f.to_ms);
	api_put_text(c->out, "type", type);
	str_puts(c->out, ",\"traces\":[");
	for (size_t i = 0; i < s.spans.n; i++) {
		str_puts(c->out, i ? ",{" : "{");
		put_hex(c->out, "trace_id", s.spans.data[i].trace_id, 16);
		str_putc(c->out, ',');
		put_span(c->out, &s, &s.spans.data[i]);
		str_printf(c->out, ",\"trace_samples\":%llu,\"trace_value\":%lld}", own[i].count,
			   own[i].value);
	}
	str_printf(c->out, "],\"damaged\":%s}", s.damaged ? "true" : "false");
	return 0;
}

#define R NET_ROLE_READ
const struct api_route api_trace_routes[] = {
	{"GET", "/api/v1/traces", R, API_STYLE_JSON, traces},
	{"GET", "/api/v1/traces/{trace_id}", R, API_STYLE_JSON, trace},
	{},
};
