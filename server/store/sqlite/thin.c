/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Thinning: decides which traces of an hour stay when there are too many. These stay:
 *
 *	- traces with an error in any span;
 *	- slow traces: those with an entry span that took longer than 95 % of the entry spans of its
 *	  endpoint in the hour;
 *	- a share of the others: each time a quarter of those left, but never fewer than about
 *	  MIN_KEPT of an endpoint.
 *
 * The trace id alone decides whether a trace is in the share: the first bits of the id's hash are
 * zero. So a trace stays or goes with all its spans, in every service and every store, and each
 * share is a subset of the previous one. A span in the share stands for 1 << weight spans, so that
 * percentiles and counts stay right.
 *
 * An hour is thinned in one transaction.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/map.h"
#include "server/store/sqlite/spans.h"

#define BITS_A_TIME 2 /* bits of the hash per thinning: a quarter stays */
#define MIN_KEPT 32
#define SLOW_SHARE 20 /* one in so many is slow */
#define LEVEL_MERGED 3

struct root {
	u64 endpoint; /* hash of service and endpoint */
	u64 trace;    /* hash of the trace id */
	u64 duration_ns;
	u64 stands_for;
};

struct thinning {
	struct sq_spans *p;
	u32 hour, thinned;
	struct diag *diag;
	struct sq_span_list spans, links;
	vec(struct root) roots; /* by endpoint, then duration */
	struct map stay;	/* trace → weight */
	struct map go; /* traces; the coarsest share decides about a trace in neither map */
	u64 dropped;
};

static u64 trace_hash(const u8 trace_id[16])
{
	/* The two largest keys are not allowed in a map. */
	return hash_bytes(trace_id, 16) >> 1;
}

static bool has_zeros(u64 trace, u32 bits)
{
	return !bits || trace >> (63 - bits) == 0;
}

/* ---- reading the hour ---- */

static int note_spans(struct thinning *t, struct spans *s)
{
	int r = 0;

	vec_foreach (&s->spans, e) {
		const char *names[] = {spans_string(s, e->service), spans_string(s, e->endpoint)};
		struct root root = {.trace = trace_hash(e->trace_id),
				    .duration_ns = e->duration_ns,
				    .stands_for = 1ULL << e->weight};

		if (e->status == SPAN_ERROR)
			r = map_put(&t->stay, root.trace, 0);
		root.endpoint = hash_bytes(names[0], strlen(names[0])) * 31 +
				hash_bytes(names[1], strlen(names[1]));
		if (r == 0 && e->flags & SPAN_ROOT)
			r = vec_push(&t->roots, root);
		if (r < 0)
			return r;
	}
	return 0;
}

static int compare_roots(const void *a, const void *b)
{
	const struct root *x = a, *y = b;

	if (x->endpoint != y->endpoint)
		return x->endpoint < y->endpoint ? -1 : 1;
	return x->duration_ns < y->duration_ns ? -1 : x->duration_ns > y->duration_ns;
}

static int list_hour(struct thinning *t)
{
	u64 from = t->hour * BLOCK_HOUR_MS, to = from + BLOCK_HOUR_MS;
	int r = sq_list_span_blocks(t->p->writer, SQ_KIND_SPANS, from, to, &t->spans, t->diag);

	if (r == 0)
		r = sq_list_span_blocks(t->p->writer, SQ_KIND_LINKS, from, to, &t->links, t->diag);
	return r;
}

static int read_hour(struct thinning *t)
{
	int r = list_hour(t);

	for (size_t i = 0; i < t->spans.list.n && r == 0; i++) {
		_cleanup_spans_ struct spans s = {};

		r = spans_init(&s);
		if (r == 0)
			r = sq_read_spans(t->p->writer, t->spans.list.data[i].n, SQ_ROOTS | SQ_REST,
					  NULL, 0, &s);
		if (r == 0)
			r = note_spans(t, &s);
	}
	if (t->roots.n)
		qsort(t->roots.data, t->roots.n, sizeof(*t->roots.data), compare_roots);
	return r;
}

/* ---- choosing traces ---- */

/* A trace may stay for several reasons, of which the one with the smallest weight counts. */
static int keep_trace(struct thinning *t, u64 trace, u32 weight)
{
	u64 *known = map_get(&t->stay, trace);

	return known && *known <= weight ? 0 : map_put(&t->stay, trace, weight);
}

static int choose_of_endpoint(struct thinning *t, const struct root *roots, size_t n)
{
	u64 all = 0, below = 0;
	u32 bits = 0;
	int r = 0;

	for (size_t i = 0; i < n; i++)
		all += roots[i].stands_for;
	while (bits < t->thinned * BITS_A_TIME && all >> (bits + 1) >= MIN_KEPT)
		bits++;
	for (size_t i = 0; i < n && r == 0; i++) {
		below += roots[i].stands_for;
		if (below > all - all / SLOW_SHARE && roots[i].stands_for == 1)
			r = keep_trace(t, roots[i].trace, 0);
		else if (has_zeros(roots[i].trace, bits))
			r = keep_trace(t, roots[i].trace, bits);
		else
			r = map_put(&t->go, roots[i].trace, 1);
	}
	return r;
}

static int choose_traces(struct thinning *t)
{
	size_t to;
	int r = 0;

	for (size_t from = 0; from < t->roots.n && r == 0; from = to) {
		for (to = from + 1; to < t->roots.n; to++)
			if (t->roots.data[to].endpoint != t->roots.data[from].endpoint)
				break;
		r = choose_of_endpoint(t, t->roots.data + from, to - from);
	}
	return r;
}

/* Whether a trace stays, and its weight. If it has no entry span in this hour, its id decides. */
static bool trace_stays(const struct thinning *t, const u8 trace_id[16], u8 *weight)
{
	u64 trace = trace_hash(trace_id), *known = map_get(&t->stay, trace);

	if (known) {
		*weight = (u8)MAX(*known, (u64)*weight * (*known > 0));
		return true;
	}
	if (map_get(&t->go, trace) || !has_zeros(trace, t->thinned * BITS_A_TIME))
		return false;
	*weight = (u8)(t->thinned * BITS_A_TIME);
	return true;
}

/* ---- writing the rest ---- */

static int thin_spans(struct thinning *t, s64 n)
{
	_cleanup_spans_ struct spans s = {};
	_cleanup_free_ u32 *order = NULL;
	size_t kept = 0;
	int r = spans_init(&s);

	if (r == 0)
		r = sq_read_spans(t->p->writer, n, SQ_ROOTS | SQ_REST, NULL, 0, &s);
	for (size_t i = 0; i < s.spans.n && r == 0; i++) {
		struct span e = s.spans.data[i];

		if (trace_stays(t, e.trace_id, &e.weight))
			s.spans.data[kept++] = e;
	}
	t->dropped += s.spans.n - kept;
	s.spans.n = kept;
	store_spans_order(&s);
	if (r == 0)
		r = sq_make_order(s.spans.n, &order);
	if (r == 0 && kept)
		r = sq_put_spans(t->p, &s, order, s.spans.n, t->hour, t->thinned, LEVEL_MERGED,
				 t->diag);
	return r;
}

static int thin_links(struct thinning *t, s64 n)
{
	_cleanup_store_links_ struct store_links l = {};
	_cleanup_free_ u32 *order = NULL;
	size_t kept = 0;
	u8 weight = 0;
	int r = store_links_init(&l);

	if (r == 0)
		r = sq_read_links(t->p->writer, n, NULL, 0, &l);
	for (size_t i = 0; i < l.links.n && r == 0; i++)
		if (trace_stays(t, l.links.data[i].link.trace_id, &weight))
			l.links.data[kept++] = l.links.data[i];
	l.links.n = kept;
	if (r == 0)
		r = sq_make_order(kept, &order);
	if (r == 0 && kept)
		r = sq_put_links(t->p, &l, order, kept, t->hour, t->thinned, LEVEL_MERGED, t->diag);
	return r;
}

static int write_hour(struct thinning *t)
{
	int r = 0;

	for (size_t i = 0; i < t->spans.list.n && r == 0; i++) {
		if (t->spans.list.data[i].hour != t->hour)
			continue;
		r = thin_spans(t, t->spans.list.data[i].n);
		if (r == 0)
			r = sq_remove_span_block(t->p, t->spans.list.data[i].n, t->diag);
	}
	for (size_t i = 0; i < t->links.list.n && r == 0; i++) {
		if (t->links.list.data[i].hour != t->hour)
			continue;
		r = thin_links(t, t->links.list.data[i].n);
		if (r == 0)
			r = sq_remove_span_block(t->p, t->links.list.data[i].n, t->diag);
	}
	return r;
}

int sq_thin_hour(struct sq_spans *p, u32 hour, u32 thinned, struct diag *reterr_diag)
{
	struct thinning t = {.p = p, .hour = hour, .thinned = thinned, .diag = reterr_diag};
	int r = sq_spans_begin(p, reterr_diag);

	if (r == 0)
		r = read_hour(&t);
	if (r == 0)
		r = choose_traces(&t);
	if (r == 0)
		r = write_hour(&t);
	r = sq_spans_end(p, r, reterr_diag);
	if (r == 0) {
		p->evicted += t.dropped;
		store_note_evicted(&p->s->base, STORE_EVICT_SPANS_THINNED, t.dropped,
				   hour * BLOCK_HOUR_MS, (hour + 1ULL) * BLOCK_HOUR_MS - 1);
	}
	sq_span_list_deinit(&t.spans);
	sq_span_list_deinit(&t.links);
	vec_deinit(&t.roots);
	map_deinit(&t.stay);
	map_deinit(&t.go);
	return r;
}
