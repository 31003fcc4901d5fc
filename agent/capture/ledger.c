/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/capture/ledger.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

/* The pieces of a thread while they are found. */
struct finding {
	struct ledger *l;
	const struct ledger_request *q;
	const struct ledger_thread *t;
	bool is_first, is_last; /* of the request's threads, by when they had its trace */
	size_t next_point;
};

void ledger_deinit(struct ledger *l)
{
	vec_deinit(&l->pieces);
}

/* Appends a piece if a part of it is in the request. */
static int add_piece(struct finding *f, u64 start, u64 end, u64 span_id, u32 state)
{
	struct ledger_piece p = {
		.span_id = span_id,
		.start_ns = MAX(start, f->q->start_ns),
		.end_ns = MIN(end, f->q->end_ns),
		.pid = f->t->pid,
		.tid = f->t->tid,
		.state = state,
	};

	return p.start_ns < p.end_ns ? vec_push(&f->l->pieces, p) : 0;
}

static bool is_within(u64 ns, u64 begin, u64 end)
{
	return begin < ns && ns < end;
}

/* The thread ran from one moment at which its span is known to the next. */
static int add_run(struct finding *f, const struct ledger_point *a, const struct ledger_point *b)
{
	const struct ledger_request *q = f->q;
	bool before = same_trace(q->trace_id, a->trace_id),
	     after = same_trace(q->trace_id, b->trace_id);
	u64 from = a->time_ns, to = b->time_ns, middle = from + (to - from) / 2;
	int r = 0;

	if (from >= to || (!before && !after))
		return 0;
	if (!before && f->is_first && is_within(q->start_ns, from, to))
		return add_piece(f, q->start_ns, to, b->span_id, WAIT_RUNNING);
	if (!after && f->is_last && is_within(q->end_ns, from, to))
		return add_piece(f, from, q->end_ns, a->span_id, WAIT_RUNNING);
	if (before && after && a->span_id == b->span_id)
		return add_piece(f, from, to, a->span_id, WAIT_RUNNING);
	if (before)
		r = add_piece(f, from, middle, a->span_id, WAIT_RUNNING);
	if (r == 0 && after)
		r = add_piece(f, middle, to, b->span_id, WAIT_RUNNING);
	return r;
}

/* A run, cut at the points within it. */
static int add_runs(struct finding *f, struct ledger_point a, const struct ledger_point *end)
{
	int r = 0;

	while (f->next_point < f->t->n_points && r == 0) {
		const struct ledger_point *p = &f->t->points[f->next_point];

		if (p->time_ns >= end->time_ns)
			break;
		f->next_point++;
		if (p->time_ns <= a.time_ns)
			continue;
		r = add_run(f, &a, p);
		a = *p;
	}
	return r < 0 ? r : add_run(f, &a, end);
}

static struct ledger_point point_of(const struct record_interval *i, u64 time_ns)
{
	return (struct ledger_point){time_ns, {i->trace_id[0], i->trace_id[1]}, i->span_id};
}

/* Whether nothing is missing between two intervals of a thread, but those without a span. */
static bool follows(const struct record_interval *before, const struct record_interval *i)
{
	return i->number == before->number + 1 && i->ran_ns >= before->now_ns;
}

static int add_interval(struct finding *f, const struct record_interval *before,
			const struct record_interval *i)
{
	struct ledger_point begin = {.time_ns = i->ran_ns}, end = point_of(i, i->left_ns);
	int r = 0;

	/* Between them the thread ran for no span, or nobody knows. */
	if (before && follows(before, i) && i->ran_ns == before->now_ns)
		begin = point_of(before, before->now_ns);
	if (i->ran_ns)
		r = add_runs(f, begin, &end);
	if (r < 0 || !same_trace(f->q->trace_id, i->trace_id))
		return r;
	r = add_piece(f, i->left_ns, i->woken_ns, i->span_id, i->wait);
	return r < 0 ? r : add_piece(f, i->woken_ns, i->now_ns, i->span_id, WAIT_RUNNABLE);
}

/* What it has done since the last interval: it ran, until it left its CPU if it has. */
static int add_rest(struct finding *f)
{
	const struct armed_thread *now = f->t->now;
	const struct record_interval *last = &f->t->intervals[f->t->n_intervals - 1];
	struct ledger_point begin = point_of(last, last->now_ns), end = {};

	if (!now || now->number != last->number || now->ran_ns != last->now_ns)
		return 0;
	end.time_ns = now->running ? ~0ULL : now->left_ns;
	/* Where the run goes on beyond the request, that is where the request's span has ended. */
	if (end.time_ns > f->q->end_ns && !f->is_last)
		end.time_ns = f->q->end_ns;
	return add_runs(f, begin, &end);
}

static int add_thread(struct finding *f)
{
	const struct ledger_thread *t = f->t;
	int r = 0;

	for (size_t i = 0; i < t->n_intervals && r == 0; i++)
		r = add_interval(f, i ? &t->intervals[i - 1] : NULL, &t->intervals[i]);
	if (r == 0 && t->n_intervals)
		r = add_rest(f);
	/* A thread that has run all the time has samples only. */
	if (r == 0 && !t->n_intervals && t->n_points) {
		struct ledger_point begin = {.time_ns = f->q->start_ns - 1},
				    end = {.time_ns = f->q->end_ns + 1};

		if (t->now && t->now->running && t->now->ran_ns && t->now->ran_ns <= f->q->start_ns)
			r = add_runs(f, begin, &end);
	}
	return r;
}

/* ---- the request as a whole ---- */

/* When the thread had the trace first and last; false: never. */
static bool evidence(const struct ledger_request *q, const struct ledger_thread *t, u64 *ret_first,
		     u64 *ret_last)
{
	u64 first = ~0ULL, last = 0;

	for (size_t i = 0; i < t->n_intervals; i++)
		if (same_trace(q->trace_id, t->intervals[i].trace_id)) {
			first = MIN(first, t->intervals[i].left_ns);
			last = MAX(last, t->intervals[i].now_ns);
		}
	for (size_t i = 0; i < t->n_points; i++)
		if (same_trace(q->trace_id, t->points[i].trace_id)) {
			first = MIN(first, t->points[i].time_ns);
			last = MAX(last, t->points[i].time_ns);
		}
	*ret_first = first;
	*ret_last = last;
	return last;
}

static int by_start(const void *pa, const void *pb)
{
	const struct ledger_piece *a = pa, *b = pb;

	return (a->start_ns > b->start_ns) - (a->start_ns < b->start_ns);
}

/* Appends what is between the pieces from `first` on. */
static int add_unknown(struct ledger *l, const struct ledger_request *q,
		       const struct ledger_thread *of, size_t first)
{
	size_t n = l->pieces.n - first;
	_cleanup_free_ struct ledger_piece *sorted = calloc(n + 1, sizeof(*sorted));
	const struct ledger_thread nobody = {};
	struct finding f = {.l = l, .q = q, .t = of ? of : &nobody};
	u64 at = q->start_ns;
	int r = 0;

	if (!sorted)
		return -ENOMEM;
	if (n)
		memcpy(sorted, &l->pieces.data[first], n * sizeof(*sorted));
	qsort(sorted, n, sizeof(*sorted), by_start);
	for (size_t i = 0; i < n && r == 0; i++) {
		r = add_piece(&f, at, sorted[i].start_ns, q->span_id, CAPTURE_UNKNOWN);
		at = MAX(at, sorted[i].end_ns);
	}
	return r < 0 ? r : add_piece(&f, at, q->end_ns, q->span_id, CAPTURE_UNKNOWN);
}

int ledger_add(struct ledger *l, const struct ledger_request *q,
	       const struct ledger_thread *threads, size_t n)
{
	const struct ledger_thread *first = NULL, *last = NULL;
	u64 first_ns = ~0ULL, last_ns = 0, from, to;
	size_t before = l->pieces.n;
	int r = 0;

	for (size_t i = 0; i < n; i++) {
		if (!evidence(q, &threads[i], &from, &to))
			continue;
		if (from < first_ns) {
			first_ns = from;
			first = &threads[i];
		}
		if (to >= last_ns) {
			last_ns = to;
			last = &threads[i];
		}
	}
	for (size_t i = 0; i < n && r == 0; i++) {
		struct finding f = {
			.l = l,
			.q = q,
			.t = &threads[i],
			.is_first = first == &threads[i],
			.is_last = last == &threads[i],
		};

		if (evidence(q, &threads[i], &from, &to))
			r = add_thread(&f);
	}
	return r < 0 ? r : add_unknown(l, q, first, before);
}
