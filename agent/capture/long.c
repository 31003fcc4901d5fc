/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests that go on for longer than the history reaches back. What was recorded of such a request
 * would be dropped before its end, when the server asks for it. So it is kept early, in pieces that
 * follow each other; at its end, what comes after the last piece is left to keep.
 *
 * A look examines what is about half a window old and was not examined before. A request that has
 * events there, and in the last sixth of the window too, goes on, and all that follows is kept. One
 * that only waits all the time in between cannot be told from a thread that waits for its next
 * request, and is not kept early.
 */
#include <errno.h>
#include <string.h>

#include "agent/capture/internal.h"

#define MAX_LONG 256
#define LOOKS_PER_WINDOW 6

/* A request in a part of the history. */
struct seen {
	u64 trace_id[2], span_id;
	u64 first_ns;
	char service[CONTROL_TEXT_BYTES];
};

struct look {
	struct recorder *r;
	u64 recent_ns, from_ns, until_ns;
	struct map recent; /* hashes of traces that go on → 1 */
	vec(struct seen) seen;
	bool is_extending; /* towards the begin of what was seen */
};

static int note_recent(struct look *l, const u64 trace_id[2])
{
	return trace_id[0] || trace_id[1] ? map_put(&l->recent, trace_hash(trace_id), 1) : 0;
}

static int find_recent(struct look *l)
{
	const struct history *h = &l->r->history;
	int e = 0;

	vec_foreach (&l->r->longs.of, q)
		if (e == 0 && !q->is_over)
			e = note_recent(l, q->trace_id);
	for (size_t i = history_find(h, l->recent_ns); i < h->n && e == 0; i++)
		e = note_recent(l, history_interval(h, i)->trace_id);
	for (size_t k = 0; k < h->batches.n; k++) {
		const struct pipeline_batch *b = h->batches.data[k].b;

		for (size_t i = 0; b->ended_ns >= l->recent_ns && i < b->events.n && e == 0; i++)
			if (b->events.data[i].time_ns >= l->recent_ns)
				e = note_recent(l, b->entries.data[b->events.data[i].entry]
							   .key.context.trace_id);
	}
	return e;
}

/* Whether an event is in the part that is examined, of a trace that goes on. */
static bool is_of_interest(const struct look *l, u64 time_ns, const u64 trace_id[2])
{
	return time_ns >= l->from_ns && time_ns < l->until_ns && (trace_id[0] || trace_id[1]) &&
	       map_get(&l->recent, trace_hash(trace_id));
}

/* Such an event. */
static int note_event(struct look *l, u64 time_ns, const u64 trace_id[2], u64 span_id,
		      const struct armed *a)
{
	struct seen s = {.span_id = span_id, .first_ns = time_ns};

	if (!a)
		return 0;
	vec_foreach (&l->seen, known)
		if (same_trace(known->trace_id, trace_id) && !strcmp(known->service, a->service)) {
			if (time_ns < known->first_ns)
				known->span_id = span_id;
			known->first_ns = MIN(known->first_ns, time_ns);
			return 0;
		}
	if (l->is_extending || l->seen.n >= MAX_LONG)
		return 0;
	memcpy(s.trace_id, trace_id, sizeof(s.trace_id));
	memcpy(s.service, a->service, sizeof(s.service));
	return vec_push(&l->seen, s);
}

/* Goes through what happened from l->from_ns to l->until_ns. */
static int find_seen(struct look *l)
{
	const struct history *h = &l->r->history;
	int e = 0;

	for (size_t i = history_find(h, l->from_ns); i < h->n && e == 0; i++) {
		const struct record_interval *at = history_interval(h, i);

		if (is_of_interest(l, at->left_ns, at->trace_id))
			e = note_event(l, at->left_ns, at->trace_id, at->span_id,
				       recorder_process(l->r, at->pad));
	}
	for (size_t k = 0; k < h->batches.n; k++) {
		const struct pipeline_batch *b = h->batches.data[k].b;

		for (size_t i = 0; i < b->events.n && e == 0; i++) {
			const struct pipeline_event *at = &b->events.data[i];
			const struct pipeline_key *key = &b->entries.data[at->entry].key;

			if (is_of_interest(l, at->time_ns, key->context.trace_id))
				e = note_event(l, at->time_ns, key->context.trace_id,
					       key->context.span_id,
					       recorder_process_of(l->r, key->image));
		}
	}
	return e;
}

struct long_request *long_find(struct recorder *r, const struct capture_wish *w)
{
	vec_foreach (&r->longs.of, q)
		if (q->server == w->server && !strcmp(q->task, w->keep.task) &&
		    !memcmp(q->trace_id, w->keep.trace_id, sizeof(q->trace_id)))
			return q;
	return NULL;
}

/* Wishes the next piece of a request for a task, and notes the request if it is new. */
static int wish_piece(struct look *l, const struct seen *s, const struct capture_task *t,
		      capture_wishes *to)
{
	const struct history *h = &l->r->history;
	struct capture_wish w = {.server = t->server, .until_ns = l->until_ns};
	struct long_request *known, fresh = {.server = t->server, .until_ns = s->first_ns};
	int e = 0;

	memcpy(w.keep.task, t->asked.id, sizeof(w.keep.task));
	memcpy(w.service, s->service, sizeof(w.service));
	memcpy(w.keep.trace_id, s->trace_id, sizeof(w.keep.trace_id));
	memcpy(w.keep.span_id, &s->span_id, sizeof(w.keep.span_id));
	w.keep.reason = CONTROL_REASON_LONG;
	known = long_find(l->r, &w);
	if (!known) {
		if (l->r->longs.of.n >= MAX_LONG)
			return 0;
		fresh.first_ns = s->first_ns;
		memcpy(fresh.task, t->asked.id, sizeof(fresh.task));
		memcpy(fresh.trace_id, s->trace_id, sizeof(fresh.trace_id));
		e = vec_push(&l->r->longs.of, fresh);
		known = e == 0 ? &l->r->longs.of.data[l->r->longs.of.n - 1] : NULL;
	}
	if (!known)
		return e;
	known->seen_ns = l->until_ns;
	w.from_ns = known->until_ns;
	w.keep.start_ns = history_realtime(h, w.from_ns);
	w.keep.end_ns = history_realtime(h, w.until_ns);
	return vec_push(to, w);
}

static int wish_pieces(struct look *l, capture_wishes *to)
{
	struct capture *c = l->r->capture;
	int e = 0;

	pthread_mutex_lock(&c->lock);
	vec_foreach (&l->seen, s)
		for (size_t i = 0; i < c->tasks.list.n && e == 0; i++) {
			const struct capture_task *t = &c->tasks.list.data[i];

			if (t->report.state == CONTROL_STATE_ARMED &&
			    !strcmp(t->asked.service, s->service))
				e = wish_piece(l, s, t, to);
		}
	pthread_mutex_unlock(&c->lock);
	return e;
}

/* What came before the part that is examined belongs to the first piece. */
static int find_begin(struct look *l)
{
	u64 from = l->from_ns, until = l->until_ns;
	int e;

	if (!l->seen.n)
		return 0;
	l->is_extending = true;
	l->from_ns = 0;
	l->until_ns = from;
	e = find_seen(l);
	l->from_ns = from;
	l->until_ns = until;
	return e;
}

/* Those whose end nobody can ask for any more. */
static void forget_old(struct recorder *r, u64 now)
{
	size_t left = 0;

	for (size_t i = 0; i < r->longs.of.n; i++)
		if (r->longs.of.data[i].seen_ns + 2 * r->history.window_ns > now)
			r->longs.of.data[left++] = r->longs.of.data[i];
	r->longs.of.n = left;
}

int long_look(struct recorder *r, u64 now, capture_wishes *to)
{
	u64 window = r->history.window_ns;
	struct look l = {
		.r = r,
		.recent_ns = now - window / LOOKS_PER_WINDOW,
		.from_ns = r->longs.examined_ns,
		.until_ns = now - window / 2,
	};
	int e;

	if (now < r->longs.look_ns || l.until_ns <= r->history.began_ns)
		return 0;
	r->longs.look_ns = now + window / LOOKS_PER_WINDOW;
	forget_old(r, now);
	e = recorder_take(r);
	if (e == 0)
		e = find_recent(&l);
	if (e == 0)
		e = find_seen(&l);
	if (e == 0)
		e = find_begin(&l);
	if (e == 0)
		e = wish_pieces(&l, to);
	r->longs.examined_ns = l.until_ns;
	map_deinit(&l.recent);
	vec_deinit(&l.seen);
	return e;
}

void long_kept(struct recorder *r, const struct capture_wish *w, u64 until_ns,
	       const struct control_kept *result)
{
	struct long_request *q = long_find(r, w);

	if (!q)
		return;
	q->is_over = !w->until_ns;
	q->until_ns = MAX(q->until_ns, until_ns);
	q->samples += result->samples;
	q->is_partly |= result->outcome != CONTROL_OUTCOME_KEPT;
}
