/* SPDX-License-Identifier: Apache-2.0 */
/* Order and filters of spans and links, for both engines. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "server/store/private.h"
#include "server/store/span_block.h"

static int compare_links(const void *a, const void *b)
{
	return link_compare(a, b);
}

void store_links_order(struct store_links *l)
{
	size_t n = 0;

	if (l->links.n)
		qsort(l->links.data, l->links.n, sizeof(*l->links.data), compare_links);
	for (size_t i = 0; i < l->links.n; i++) {
		const struct store_link *e = &l->links.data[i];
		struct store_link *last = n ? &l->links.data[n - 1] : NULL;

		if (!last || link_compare(last, e) != 0) {
			l->links.data[n++] = *e;
			continue;
		}
		last->count += e->count;
		if (__builtin_add_overflow(last->value, e->value, &last->value))
			last->value = e->value < 0 ? INT64_MIN : INT64_MAX;
	}
	l->links.n = n;
}

static int compare_spans(const void *a, const void *b)
{
	return span_compare(a, b);
}

void store_spans_order(struct spans *s)
{
	size_t n = 0;

	if (s->spans.n)
		qsort(s->spans.data, s->spans.n, sizeof(*s->spans.data), compare_spans);
	for (size_t i = 0; i < s->spans.n; i++)
		if (!n || span_compare(&s->spans.data[n - 1], &s->spans.data[i]) != 0)
			s->spans.data[n++] = s->spans.data[i];
	s->spans.n = n;
}

static int compare_traces(const void *a, const void *b)
{
	return memcmp(a, b, 16);
}

bool store_has_trace(const u8 (*traces)[16], size_t n, const u8 trace_id[16])
{
	return !traces || (n && bsearch(trace_id, traces, n, 16, compare_traces));
}

bool store_span_matches(const struct store_span_filter *f, const struct spans *s,
			const struct span *e)
{
	u64 ms = e->start_ns / 1000000;

	if (ms < f->from_ms || ms >= f->to_ms || e->duration_ns < f->min_ns ||
	    (f->max_ns && e->duration_ns > f->max_ns))
		return false;
	if ((f->roots || f->endpoint) && !(e->flags & SPAN_ROOT))
		return false;
	if (f->statuses && !(f->statuses >> e->status & 1))
		return false;
	if (f->service && strcmp(spans_string(s, e->service), f->service) != 0)
		return false;
	if (f->endpoint && strcmp(spans_string(s, e->endpoint), f->endpoint) != 0)
		return false;
	return store_has_share(e->trace_id, f->share_bits) &&
	       store_has_trace(f->traces, f->n_traces, e->trace_id);
}

void store_spans_filter(struct spans *s, size_t first, size_t first_attribute,
			const struct store_span_filter *f)
{
	size_t n = first, at = first_attribute;

	for (size_t i = first; i < s->spans.n; i++) {
		struct span e = s->spans.data[i];

		if (!store_span_matches(f, s, &e))
			continue;
		if (e.n)
			memmove(s->attributes.data + at, s->attributes.data + e.first,
				e.n * sizeof(*s->attributes.data));
		e.first = (u32)at;
		at += e.n;
		s->spans.data[n++] = e;
	}
	s->spans.n = n;
	s->attributes.n = at;
}

static int compare_durations(const void *a, const void *b)
{
	const struct span *x = a, *y = b;

	if (x->duration_ns != y->duration_ns)
		return x->duration_ns > y->duration_ns ? -1 : 1;
	return span_compare(x, y);
}

int store_spans_slowest(struct spans *s, size_t limit)
{
	vec(struct profile_label) attributes = {};
	size_t n = 0;

	if (s->spans.n)
		qsort(s->spans.data, s->spans.n, sizeof(*s->spans.data), compare_durations);
	for (size_t i = 0; i < s->spans.n && n < limit; i++) {
		struct span e = s->spans.data[i];

		if (n && span_compare(&s->spans.data[n - 1], &e) == 0)
			continue;
		if (vec_reserve(&attributes, attributes.n + e.n) < 0) {
			vec_deinit(&attributes);
			return -ENOMEM;
		}
		if (e.n)
			memcpy(attributes.data + attributes.n, s->attributes.data + e.first,
			       e.n * sizeof(*attributes.data));
		e.first = (u32)attributes.n;
		attributes.n += e.n;
		s->spans.data[n++] = e;
	}
	s->spans.n = n;
	vec_deinit(&s->attributes);
	memcpy(&s->attributes, &attributes, sizeof(attributes));
	return 0;
}

static int compare_ids(const void *a, const void *b)
{
	u64 x = *(const u64 *)a, y = *(const u64 *)b;

	return x < y ? -1 : x > y;
}

bool store_has_id(const u64 *ids, size_t n, u64 id)
{
	return !ids || (n && bsearch(&id, ids, n, sizeof(id), compare_ids));
}

int store_spans_failed(int r, const struct diag *why, struct diag *reterr_diag)
{
	if (r == -E2BIG)
		return diag_set(reterr_diag, r,
				"too many spans for one answer: choose a shorter range");
	return diag_set(reterr_diag, r, "cannot read spans: %s",
			why->text[0] ? why->text : strerror(-r));
}

int store_spans_answer(int r, struct spans *taken, size_t limit, const struct diag *why,
		       struct spans *ret, struct diag *reterr_diag)
{
	if (r == 0 && limit)
		r = store_spans_slowest(taken, limit);
	else if (r == 0)
		store_spans_order(taken);
	if (r == 0) {
		*ret = *taken;
		return 0;
	}
	spans_deinit(taken);
	return store_spans_failed(r, why, reterr_diag);
}
