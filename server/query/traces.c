/* SPDX-License-Identifier: Apache-2.0 */
#include "server/query/traces.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/vocab.h"
#include "server/query/plan.h"

#define MAX_DEPTH 10000 /* of a tree, because parents may form a cycle */

/* ---- ids ---- */

void trace_ids_deinit(struct trace_ids *t)
{
	free(t->ids);
	*t = (struct trace_ids){};
}

static int compare_ids(const void *a, const void *b)
{
	return memcmp(a, b, 16);
}

static int sort_ids(u8 (*ids)[16], size_t n, struct trace_ids *ret)
{
	size_t kept = 0;

	if (!ids)
		return -ENOMEM;
	if (n)
		qsort(ids, n, 16, compare_ids);
	for (size_t i = 0; i < n; i++)
		if (!kept || memcmp(ids[kept - 1], ids[i], 16) != 0)
			memmove(ids[kept++], ids[i], 16);
	*ret = (struct trace_ids){ids, kept};
	return 0;
}

int trace_ids_of_spans(const struct spans *s, struct trace_ids *ret)
{
	u8(*ids)[16] = reallocarray(NULL, s->spans.n + 1, 16);

	for (size_t i = 0; ids && i < s->spans.n; i++)
		memcpy(ids[i], s->spans.data[i].trace_id, 16);
	return sort_ids(ids, s->spans.n, ret);
}

int trace_ids_of_links(const struct store_links *l, struct trace_ids *ret)
{
	u8(*ids)[16] = reallocarray(NULL, l->links.n + 1, 16);

	for (size_t i = 0; ids && i < l->links.n; i++)
		memcpy(ids[i], l->links.data[i].link.trace_id, 16);
	return sort_ids(ids, l->links.n, ret);
}

u32 trace_ids_sample(struct trace_ids *t, size_t max, u32 bits)
{
	while (t->n > max && bits < 63) {
		size_t kept = 0;

		bits++;
		for (size_t i = 0; i < t->n; i++)
			if (store_has_share(t->ids[i], bits))
				memmove(t->ids[kept++], t->ids[i], 16);
		t->n = kept;
	}
	return bits;
}

/* ---- samples ---- */

int link_rows_add(struct store_rows *rows, u64 key, const struct store_link *l)
{
	return vec_push(&rows->rows, (struct store_row){.stack = l->stack,
							.series = l->series,
							.time_ms = key,
							.count = l->count,
							.value = l->value});
}

void link_rows_merge(struct store_rows *rows, const char *type)
{
	struct store_row *data = rows->rows.data;
	size_t n = 0;

	if (rows->rows.n)
		qsort(data, rows->rows.n, sizeof(*data), store_compare_rows);
	for (size_t i = 0; i < rows->rows.n; i++) {
		if (n && store_compare_rows(&data[n - 1], &data[i]) == 0) {
			data[n - 1].count += data[i].count;
			data[n - 1].value += data[i].value;
		} else {
			data[n++] = data[i];
		}
	}
	rows->rows.n = n;
	if (store_type_is_state(type))
		plan_take_means(rows, NULL);
}

/* ---- trees ---- */

static u64 key_of(const u8 trace_id[16], const u8 span_id[8])
{
	u8 both[24];

	memcpy(both, trace_id, 16);
	memcpy(both + 16, span_id, 8);
	return hash_bytes(both, sizeof(both)) >> 1; /* a map cannot have the two largest keys */
}

u32 trace_set_span(const struct trace_set *t, const u8 trace_id[16], const u8 span_id[8])
{
	u64 *at = map_get(&t->by_id, key_of(trace_id, span_id));
	const struct span *e = at ? &t->spans.spans.data[*at] : NULL;

	return e && !memcmp(e->trace_id, trace_id, 16) && !memcmp(e->span_id, span_id, 8)
		       ? (u32)*at
		       : PROFILE_NONE;
}

u32 trace_set_parent(const struct trace_set *t, u32 span)
{
	const struct span *e = &t->spans.spans.data[span];

	return span_has_parent(e) ? trace_set_span(t, e->trace_id, e->parent_id) : PROFILE_NONE;
}

bool trace_set_is_below(const struct trace_set *t, u32 span, u32 other)
{
	for (u32 depth = 0; span != PROFILE_NONE && depth < MAX_DEPTH; depth++) {
		if (span == other)
			return true;
		span = trace_set_parent(t, span);
	}
	return false;
}

/* The entry span of a service, if the trace has just one. at: any span of the trace. */
static u32 only_request(const struct trace_set *t, u32 at, const char *service)
{
	const struct span *spans = t->spans.spans.data, *of = &spans[at];
	u32 found = PROFILE_NONE;

	while (at && !memcmp(spans[at - 1].trace_id, of->trace_id, 16))
		at--;
	for (; at < t->spans.spans.n && !memcmp(spans[at].trace_id, of->trace_id, 16); at++) {
		if (!(spans[at].flags & SPAN_ROOT) ||
		    strcmp(spans_string(&t->spans, spans[at].service), service) != 0)
			continue;
		if (found != PROFILE_NONE)
			return PROFILE_NONE;
		found = at;
	}
	return found;
}

static u32 find_request(const struct trace_set *t, u32 span)
{
	const struct span *spans = t->spans.spans.data;
	u32 at = span;

	for (u32 depth = 0; depth < MAX_DEPTH; depth++) {
		u32 parent;

		if (spans[at].flags & SPAN_ROOT)
			return at;
		parent = trace_set_parent(t, at);
		/* The parent belongs to another service: a span in between was not sent. */
		if (parent == PROFILE_NONE || spans[parent].service != spans[at].service)
			break;
		at = parent;
	}
	return only_request(t, span, spans_string(&t->spans, spans[span].service));
}

static u32 first_of_trace(const struct trace_set *t, const u8 trace_id[16])
{
	size_t low = 0, high = t->spans.spans.n;

	while (low < high) {
		size_t mid = (low + high) / 2;

		if (memcmp(t->spans.spans.data[mid].trace_id, trace_id, 16) < 0)
			low = mid + 1;
		else
			high = mid;
	}
	return low < t->spans.spans.n && !memcmp(t->spans.spans.data[low].trace_id, trace_id, 16)
		       ? (u32)low
		       : PROFILE_NONE;
}

u32 trace_set_request(const struct trace_set *t, const struct profile_link *l, const char *service)
{
	u32 span = trace_set_span(t, l->trace_id, l->span_id);

	if (span != PROFILE_NONE)
		return t->request_of[span];
	span = first_of_trace(t, l->trace_id);
	return span == PROFILE_NONE ? PROFILE_NONE : only_request(t, span, service);
}

int trace_set_load(struct store *s, const u8 (*ids)[16], size_t n, const char *service,
		   struct trace_set *ret, struct diag *reterr_diag)
{
	static const u8 none[1][16];
	const struct store_span_filter f = {.to_ms = 1ULL << 62,
					    .service = service,
					    .traces = ids && n ? ids : none,
					    .n_traces = n};
	struct trace_set t = {};
	int r = store_find_spans(s, &f, &t.spans, reterr_diag);

	if (r < 0)
		return r;
	t.request_of = reallocarray(NULL, t.spans.spans.n + 1, sizeof(*t.request_of));
	r = t.request_of ? 0 : -ENOMEM;
	for (size_t i = 0; i < t.spans.spans.n && r == 0; i++) {
		const struct span *e = &t.spans.spans.data[i];

		u64 key = key_of(e->trace_id, e->span_id), *other = map_get(&t.by_id, key);

		/*
		 * In Zipkin a client and a server span may have one id: its children are the
		 * server's.
		 */
		if (!other || !(t.spans.spans.data[*other].flags & SPAN_ROOT))
			r = map_put(&t.by_id, key, i);
	}
	for (size_t i = 0; i < t.spans.spans.n && r == 0; i++)
		t.request_of[i] = find_request(&t, (u32)i);
	if (r == 0)
		*ret = t;
	else
		trace_set_deinit(&t);
	return r < 0 ? diag_set(reterr_diag, r, "out of memory") : 0;
}

void trace_set_deinit(struct trace_set *t)
{
	spans_deinit(&t->spans);
	free(t->request_of);
	map_deinit(&t->by_id);
	*t = (struct trace_set){};
}

/* ---- what samples waited for ---- */

/* Adds the series of a type, by id. */
static int add_waits(struct store *s, const struct query *q, struct map *waits,
		     struct diag *reterr_diag)
{
	_cleanup_plan_ struct plan plan = {};
	int r = plan_init(&plan, s, q, PLAN_SERIES, reterr_diag);

	for (size_t i = 0; i < plan.series.n && r == 0; i++) {
		const char *name = plan_label(&plan, &plan.series.data[i], PROFILE_WAIT);

		r = map_put(waits, plan.series.data[i].id, vocab_wait_by_name(name, strlen(name)));
	}
	return r;
}

int query_link_waits(struct store *s, const struct store_links *l, u8 *ret,
		     struct diag *reterr_diag)
{
	__attribute__((cleanup(map_deinit))) struct map waits = {}, asked = {};
	struct query q = {.from_ms = ~0ULL};
	int r = 0;

	vec_foreach (&l->links, e) {
		q.from_ms = MIN(q.from_ms, e->time_ms);
		q.to_ms = MAX(q.to_ms, e->time_ms + 1);
	}
	for (size_t i = 0; i < l->links.n && r == 0; i++) {
		const struct store_link *e = &l->links.data[i];
		const u64 *wait;

		q.type = (char *)profile_string(l->profile, e->type);
		ret[i] = store_type_cpu_seconds(q.type) > 0 ? WAIT_RUNNING : WAIT_NONE;
		if (!store_type_has_waits(q.type))
			continue;
		if (!map_get(&asked, e->type)) {
			r = add_waits(s, &q, &waits, reterr_diag);
			if (r == 0)
				r = map_put(&asked, e->type, 1);
		}
		wait = map_get(&waits, e->series);
		ret[i] = wait && *wait != WAIT_NONE ? (u8)*wait : WAIT_OTHER;
	}
	return r;
}
