/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What belongs to a request: the ledger, which is complete when its last events have arrived, and
 * the events to be shown.
 *
 * A sample on a CPU stands for an equal part of the time that its thread ran for its span; a wait
 * for its own time, and some short ones for the other short ones, too.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/capture/job.h"
#include "base/clock.h"
#include "base/vocab.h"

/* The clock of a span's times may be that much beside ours. */
#define SLACK_NS 2000000ULL
#define MAX_THREADS 256
#define LABEL_STATE "state"
#define STATE_UNKNOWN "unknown"

/* A request while what belongs to it is gathered. */
struct gathering {
	struct recorder *r;
	struct job *job;
	u32 wish;
	const char *service;
	struct ledger_request q;	   /* CLOCK_MONOTONIC */
	u64 begin_ns;			   /* of the request, if q begins after its pieces */
	u64 from_ns, until_ns;		   /* samples of this time are its own */
	const struct long_request *pieces; /* that were kept before; NULL: none */
	struct {
		u32 serial, pid, tid;
		bool is_closed; /* an interval reaches beyond the request */
		struct armed_thread now;
		bool has_now;
		char name[SAMPLE_COMM_BYTES];
		vec(struct record_interval) intervals;
		vec(struct ledger_point) points;
	} threads[MAX_THREADS];
	u32 n_threads;
	struct ledger ledger;
	u64 armed_ns; /* when the last of its processes was armed */
	u64 samples;
};

/* Pieces follow each other exactly; begin and end of a request are told by another clock. */
static void set_times(struct gathering *g, const struct capture_wish *w)
{
	const struct history *h = &g->r->history;

	g->pieces = long_find(g->r, w);
	if (w->until_ns) {
		g->q.start_ns = g->from_ns = w->from_ns;
		g->q.end_ns = w->until_ns;
		g->until_ns = w->until_ns - 1;
		g->begin_ns = g->pieces ? g->pieces->first_ns : w->from_ns;
		return;
	}
	g->q.start_ns = g->begin_ns = history_monotonic(h, w->keep.start_ns);
	g->q.end_ns = history_monotonic(h, w->keep.end_ns);
	g->from_ns = g->q.start_ns - SLACK_NS;
	g->until_ns = g->q.end_ns + SLACK_NS;
	if (g->pieces && g->pieces->until_ns > g->from_ns) {
		g->q.start_ns = MAX(g->q.start_ns, g->pieces->until_ns);
		g->from_ns = g->pieces->until_ns;
	}
}

static struct gathering *gathering_create(struct recorder *r, struct job *job, u32 wish)
{
	struct gathering *g = calloc(1, sizeof(*g));
	const struct control_keep *k = &job->wishes.data[wish].keep;

	if (!g)
		return NULL;
	g->r = r;
	g->job = job;
	g->wish = wish;
	g->service = job->wishes.data[wish].service;
	memcpy(g->q.trace_id, k->trace_id, sizeof(g->q.trace_id));
	memcpy(&g->q.span_id, k->span_id, sizeof(g->q.span_id));
	set_times(g, &job->wishes.data[wish]);
	return g;
}

static void gathering_destroy(struct gathering *g)
{
	for (u32 i = 0; i < g->n_threads; i++) {
		vec_deinit(&g->threads[i].intervals);
		vec_deinit(&g->threads[i].points);
	}
	ledger_deinit(&g->ledger);
	free(g);
}

/* ---- threads ---- */

static u32 find_thread(const struct gathering *g, u32 tid)
{
	u32 i = 0;

	while (i < g->n_threads && g->threads[i].tid != tid)
		i++;
	return i;
}

/* A thread of the task's service has worked for the request. */
static void note_thread(struct gathering *g, u32 tid, const struct armed *a)
{
	u32 i = find_thread(g, tid);

	if (!a || strcmp(a->service, g->service) != 0)
		return;
	g->armed_ns = MAX(g->armed_ns, a->values.armed_ns);
	if (i < g->n_threads || i == MAX_THREADS)
		return;
	g->threads[i].serial = a->serial;
	g->threads[i].pid = a->pid;
	g->threads[i].tid = tid;
	memcpy(g->threads[i].name, a->comm, sizeof(g->threads[i].name));
	g->n_threads++;
}

static void find_threads_of_intervals(struct gathering *g)
{
	const struct history *h = &g->r->history;

	for (size_t i = history_find(h, g->q.start_ns); i < h->n; i++) {
		const struct record_interval *at = history_interval(h, i);

		if (at->now_ns > g->until_ns)
			break;
		if (same_trace(g->q.trace_id, at->trace_id))
			note_thread(g, at->tid, recorder_process(g->r, at->pad));
	}
}

static bool overlaps(const struct gathering *g, const struct pipeline_batch *b)
{
	return b->started_ns <= g->until_ns && b->ended_ns >= g->from_ns;
}

static bool is_near(const struct gathering *g, u64 time_ns)
{
	return time_ns >= g->from_ns && time_ns <= g->until_ns;
}

/* Names come with samples only. */
static void find_threads_of_samples(struct gathering *g)
{
	const struct history *h = &g->r->history;

	for (size_t k = 0; k < h->batches.n; k++) {
		const struct pipeline_batch *b = h->batches.data[k].b;

		for (size_t i = 0; overlaps(g, b) && i < b->events.n; i++) {
			const struct pipeline_key *key =
				&b->entries.data[b->events.data[i].entry].key;
			u32 at;

			if (!is_near(g, b->events.data[i].time_ns) ||
			    !same_trace(g->q.trace_id, key->context.trace_id))
				continue;
			note_thread(g, key->tid, recorder_process_of(g->r, key->image));
			at = find_thread(g, key->tid);
			if (at < g->n_threads)
				memcpy(g->threads[at].name, key->thread_name,
				       sizeof(g->threads[at].name));
		}
	}
}

static bool all_closed(const struct gathering *g)
{
	for (u32 i = 0; i < g->n_threads; i++)
		if (!g->threads[i].is_closed)
			return false;
	return true;
}

/* Copies the intervals of its threads, up to the first that reaches beyond the request. */
static int take_intervals(struct gathering *g)
{
	const struct history *h = &g->r->history;
	int e = 0;

	for (size_t i = history_find(h, g->q.start_ns); i < h->n && e == 0 && !all_closed(g); i++) {
		const struct record_interval *at = history_interval(h, i);
		u32 of = find_thread(g, at->tid);

		if (of == g->n_threads || g->threads[of].is_closed)
			continue;
		e = vec_push(&g->threads[of].intervals, *at);
		g->threads[of].is_closed = at->left_ns >= g->q.end_ns;
	}
	for (u32 i = 0; i < g->n_threads && e == 0; i++)
		g->threads[i].has_now = !g->threads[i].is_closed &&
					pipeline_armed_thread(g->r->pipeline, g->threads[i].tid,
							      &g->threads[i].now) == 0;
	return e;
}

/*
 * A piece ends before a wait that goes on: what was waited for is told at its end. It does so while
 * that leaves time to keep what came after.
 */
static void end_before_waits(struct gathering *g)
{
	const struct history *h = &g->r->history;
	u64 at_least = clock_ns(CLOCK_MONOTONIC) - h->window_ns + h->window_ns / 6;

	for (u32 i = 0; i < g->n_threads; i++) {
		const struct armed_thread *now = &g->threads[i].now;

		if (g->threads[i].has_now && !now->running && now->left_ns < g->q.end_ns)
			g->q.end_ns = MIN(g->q.end_ns, MAX(now->left_ns, at_least));
	}
	g->q.end_ns = MAX(g->q.end_ns, g->q.start_ns);
	g->until_ns = g->q.end_ns - 1;
}

/* ---- samples ---- */

static int by_time(const void *pa, const void *pb)
{
	const struct ledger_point *a = pa, *b = pb;

	return (a->time_ns > b->time_ns) - (a->time_ns < b->time_ns);
}

static bool is_on_cpu(const struct pipeline_key *key)
{
	return key->wait == WAIT_NONE;
}

static int take_points_of(struct gathering *g, const struct pipeline_batch *b)
{
	int e = 0;

	for (size_t i = 0; i < b->events.n && e == 0; i++) {
		const struct pipeline_event *at = &b->events.data[i];
		const struct pipeline_key *key = &b->entries.data[at->entry].key;
		struct ledger_point p = {.time_ns = at->time_ns, .span_id = key->context.span_id};
		u32 of;

		if (!is_near(g, at->time_ns) || !is_on_cpu(key))
			continue;
		of = find_thread(g, key->tid);
		memcpy(p.trace_id, key->context.trace_id, sizeof(p.trace_id));
		if (of < g->n_threads)
			e = vec_push(&g->threads[of].points, p);
	}
	return e;
}

static int take_points(struct gathering *g)
{
	const struct history *h = &g->r->history;
	int e = 0;

	for (size_t k = 0; k < h->batches.n && e == 0; k++)
		if (overlaps(g, h->batches.data[k].b))
			e = take_points_of(g, h->batches.data[k].b);
	for (u32 i = 0; i < g->n_threads; i++)
		if (g->threads[i].points.n)
			qsort(g->threads[i].points.data, g->threads[i].points.n,
			      sizeof(*g->threads[i].points.data), by_time);
	return e;
}

static int make_ledger(struct gathering *g)
{
	_cleanup_free_ struct ledger_thread *t = calloc(g->n_threads + 1, sizeof(*t));

	if (!t)
		return -ENOMEM;
	for (u32 i = 0; i < g->n_threads; i++)
		t[i] = (struct ledger_thread){
			.pid = g->threads[i].pid,
			.tid = g->threads[i].tid,
			.intervals = g->threads[i].intervals.data,
			.n_intervals = g->threads[i].intervals.n,
			.points = g->threads[i].points.data,
			.n_points = g->threads[i].points.n,
			.now = g->threads[i].has_now ? &g->threads[i].now : NULL,
		};
	return ledger_add(&g->ledger, &g->q, t, g->n_threads);
}

/*
 * What the samples of a thread for a span share: of those on a CPU the time that the thread ran for
 * it, of waits that stand for others the time of all waits but those that stand for themselves.
 */
struct share {
	u64 weight, time_ns;
};

static u64 share_key(u32 tid, u64 span_id, bool on_cpu)
{
	return hash_u64(span_id ^ hash_u64((u64)on_cpu << 32 | tid));
}

struct shares {
	struct map index; /* of `all` */
	vec(struct share) all;
};

static struct share *share_of(struct shares *s, u32 tid, u64 span_id, bool on_cpu)
{
	u64 key = share_key(tid, span_id, on_cpu), *at = map_get(&s->index, key);

	if (at)
		return &s->all.data[*at];
	if (vec_push(&s->all, (struct share){}) < 0 || map_put(&s->index, key, s->all.n - 1) < 0)
		return NULL;
	return &s->all.data[s->all.n - 1];
}

static int sum_times(struct gathering *g, struct shares *s)
{
	for (size_t i = 0; i < g->ledger.pieces.n; i++) {
		const struct ledger_piece *p = &g->ledger.pieces.data[i];
		struct share *of;

		if (p->state == CAPTURE_UNKNOWN)
			continue;
		of = share_of(s, p->tid, p->span_id, p->state == WAIT_RUNNING);
		if (!of)
			return -ENOMEM;
		of->time_ns += p->end_ns - p->start_ns;
	}
	return 0;
}

/*
 * Whether an event of a batch belongs to the request. Its time comes first, because events are next
 * to each other in memory, and entries are not.
 */
static bool belongs(const struct gathering *g, const struct pipeline_batch *b,
		    const struct pipeline_event *at)
{
	const struct pipeline_key *key = &b->entries.data[at->entry].key;
	u32 of;

	if (!is_near(g, at->time_ns) || !same_trace(g->q.trace_id, key->context.trace_id))
		return false;
	of = find_thread(g, key->tid);
	return of < g->n_threads && g->threads[of].pid == key->pid;
}

/* The last interval of a thread that had ended by then; NULL: it is not known. */
static const struct record_interval *interval_before(const struct gathering *g, u32 tid,
						     u64 time_ns)
{
	u32 of = find_thread(g, tid);
	size_t lo = 0, hi = of < g->n_threads ? g->threads[of].intervals.n : 0;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (g->threads[of].intervals.data[mid].now_ns <= time_ns)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo ? &g->threads[of].intervals.data[lo - 1] : NULL;
}

/* Whether a wait stands for more than itself: bpf/lib/line.h. */
static bool stands_for_others(const struct gathering *g, const struct pipeline_key *key,
			      const struct pipeline_event *at)
{
	const struct record_interval *i = interval_before(g, key->tid, at->time_ns);
	bool is_queued = key->wait == WAIT_RUNNABLE;

	return i &&
	       (u64)at->value != (is_queued ? i->now_ns - i->woken_ns : i->woken_ns - i->left_ns);
}

/* How much of what its kind shares a sample gets; 0: it stands for itself. */
static u64 weight_of(const struct gathering *g, const struct pipeline_key *key,
		     const struct pipeline_event *at)
{
	if (is_on_cpu(key))
		return 1;
	return stands_for_others(g, key, at) ? (u64)MAX(at->value, 0) : 0;
}

static int count_samples(struct gathering *g, struct shares *s)
{
	const struct history *h = &g->r->history;

	for (size_t k = 0; k < h->batches.n; k++) {
		const struct pipeline_batch *b = h->batches.data[k].b;

		for (size_t i = 0; overlaps(g, b) && i < b->events.n; i++) {
			const struct pipeline_event *at = &b->events.data[i];
			const struct pipeline_key *key = &b->entries.data[at->entry].key;
			struct share *of;
			u64 weight;

			if (!belongs(g, b, at))
				continue;
			of = share_of(s, key->tid, key->context.span_id, is_on_cpu(key));
			if (!of)
				return -ENOMEM;
			weight = weight_of(g, key, at);
			of->weight += weight;
			if (!weight)
				of->time_ns -= MIN(of->time_ns, (u64)MAX(at->value, 0));
		}
	}
	return 0;
}

/* The part of a sample; later ones get what does not divide. */
static s64 next_share(struct share *of, u64 weight)
{
	u64 part =
		of->weight ? (u64)((double)of->time_ns * (double)weight / (double)of->weight) : 0;

	part = MIN(part, of->time_ns);
	of->time_ns -= part;
	of->weight -= MIN(weight, of->weight);
	return (s64)part;
}

static int take_events_of(struct gathering *g, struct history_batch *from, struct shares *s)
{
	const struct pipeline_batch *b = from->b;
	struct part part = {.batch = b, .wish = g->wish};
	int e = 0;

	for (size_t i = 0; i < b->events.n && e == 0; i++) {
		const struct pipeline_event *at = &b->events.data[i];
		const struct pipeline_key *key = &b->entries.data[at->entry].key;
		struct symbolizer_event shown = {
			.entry = at->entry,
			.time_ns = history_realtime(&g->r->history, at->time_ns),
			.value = MIN(at->value, (s64)(g->q.end_ns - g->begin_ns)),
		};
		u64 weight;

		if (!belongs(g, b, at))
			continue;
		weight = weight_of(g, key, at);
		if (weight) {
			struct share *of =
				share_of(s, key->tid, key->context.span_id, is_on_cpu(key));

			if (!of)
				return -ENOMEM;
			shown.value = next_share(of, weight);
		}
		e = vec_push(&part.events, shown);
		g->samples++;
	}
	if (e == 0 && part.events.n)
		e = vec_push(&g->job->parts, part);
	else
		vec_deinit(&part.events);
	from->is_used |= e == 0 && part.events.n;
	return e;
}

static int take_events(struct gathering *g)
{
	struct history *h = &g->r->history;
	struct shares s = {};
	int e = sum_times(g, &s);

	if (e == 0)
		e = count_samples(g, &s);
	for (size_t k = 0; k < h->batches.n && e == 0; k++)
		if (overlaps(g, h->batches.data[k].b))
			e = take_events_of(g, &h->batches.data[k], &s);
	map_deinit(&s.index);
	vec_deinit(&s.all);
	return e;
}

/* ---- the profiles ---- */

static int add_text(struct profile *p, const char *text, u32 *ret)
{
	return profile_add_string(p, text, strlen(text), ret);
}

static int add_label(struct profile *p, const char *name, const char *value,
		     struct profile_label *labels, u32 *n)
{
	int e = add_text(p, name, &labels[*n].name);

	return e < 0 ? e : add_text(p, value, &labels[(*n)++].value);
}

static int copy_resource(const struct profile *from, u32 id, struct profile *to, u32 *ret)
{
	const struct profile_resource *r = &from->resources.data[id];
	struct profile_label labels[PROFILE_MAX_LABELS];
	u32 n = 0;
	int e = 0;

	for (u32 i = 0; i < r->n && n < PROFILE_MAX_LABELS && e == 0; i++) {
		const struct profile_label *l = &from->labels.data[r->first + i];

		e = add_label(to, profile_string(from, l->name), profile_string(from, l->value),
			      labels, &n);
	}
	return e < 0 ? e : profile_add_resource(to, labels, n, ret);
}

static struct told_process *told_process(struct job *j, u64 image)
{
	vec_foreach (&j->processes, p)
		if (p->image == image)
			return p;
	return NULL;
}

static int tell_process(struct gathering *g, const struct armed *a, struct told_process **ret)
{
	struct told_process p = {.image = a->image};
	struct job *j = g->job;
	int e = 0;

	*ret = told_process(j, a->image);
	if (*ret)
		return 0;
	e = copy_resource(g->r->resources, a->resource, j->wall, &p.in_wall);
	if (e == 0)
		e = copy_resource(g->r->resources, a->resource, j->time, &p.in_time);
	if (e == 0)
		e = vec_push(&j->processes, p);
	if (e == 0)
		*ret = &j->processes.data[j->processes.n - 1];
	return e;
}

int decide_resource(void *arg, const struct pipeline_entry *e, struct profile *p, u32 *ret)
{
	const struct recorder *r = arg;
	const struct told_process *of = told_process(r->job, e->key.image);

	*ret = !of ? 0 : p == r->job->wall ? of->in_wall : of->in_time;
	return 0;
}

static const char *state_name(u32 state)
{
	return state == CAPTURE_UNKNOWN ? STATE_UNKNOWN : vocab_wait(state)->name;
}

/* The thread with the labels of a state. */
static int add_thread(struct gathering *g, const struct ledger_piece *of, const char *name,
		      const struct armed *a, u32 resource, u32 *ret)
{
	const struct control_keep *k = &g->job->wishes.data[g->wish].keep;
	struct profile_thread t = {.pid = of->pid, .tid = of->tid, .resource = resource};
	struct profile_label labels[3];
	struct profile *p = g->job->time;
	u32 n = 0;
	int e = add_label(p, LABEL_STATE, state_name(of->state), labels, &n);

	if (e == 0)
		e = add_label(p, LABEL_TASK, k->task, labels, &n);
	if (e == 0)
		e = add_label(p, LABEL_KEPT, control_reason_name(k->reason), labels, &n);
	if (e == 0)
		e = profile_add_resource(p, labels, n, &t.attributes);
	if (e == 0)
		e = add_text(p, a->comm, &t.comm);
	if (e == 0)
		e = add_text(p, name, &t.thread_name);
	return e < 0 ? e : profile_add_thread(p, &t, ret);
}

static bool same_sum(const struct ledger_piece *a, const struct ledger_piece *b)
{
	return a->tid == b->tid && a->span_id == b->span_id && a->state == b->state;
}

/* The time that a thread was in a state for a span. */
static int add_state(struct gathering *g, size_t first)
{
	const struct ledger_piece *of = &g->ledger.pieces.data[first];
	u32 at = find_thread(g, of->tid);
	struct profile_link link = {};
	const struct armed *a;
	struct told_process *told;
	u32 thread = 0, stack = 0, link_id = 0;
	s64 sum = 0;
	int e;

	/* What is unknown has the first thread's id. */
	at = at < g->n_threads ? at : 0;
	a = recorder_process(g->r, g->threads[at].serial);
	if (!a)
		return 0;
	for (size_t i = first; i < g->ledger.pieces.n; i++)
		if (same_sum(&g->ledger.pieces.data[i], of))
			sum += (s64)(g->ledger.pieces.data[i].end_ns -
				     g->ledger.pieces.data[i].start_ns);
	e = tell_process(g, a, &told);
	if (e == 0)
		e = add_thread(g, of, g->threads[at].name, a, told->in_time, &thread);
	memcpy(link.trace_id, g->q.trace_id, sizeof(link.trace_id));
	memcpy(link.span_id, &of->span_id, sizeof(link.span_id));
	if (e == 0)
		e = profile_add_link(g->job->time, &link, &link_id);
	if (e == 0)
		e = profile_add_stack(g->job->time, NULL, 0, &stack);
	return e < 0 ? e
		     : profile_add_linked_sample(g->job->time,
						 history_realtime(&g->r->history, of->start_ns),
						 thread, stack, link_id, &sum);
}

static int add_ledger(struct gathering *g)
{
	int e = 0;

	for (size_t i = 0; i < g->ledger.pieces.n && e == 0; i++) {
		bool is_first = true;

		for (size_t k = 0; k < i && is_first; k++)
			is_first = !same_sum(&g->ledger.pieces.data[k], &g->ledger.pieces.data[i]);
		if (is_first)
			e = add_state(g, i);
	}
	return e;
}

/* What becomes of the request; false: nothing was seen of it here. */
static bool outcome_of(const struct gathering *g, enum control_outcome *ret)
{
	const struct history *h = &g->r->history;
	u64 from = MAX(h->intervals_from_ns, h->samples_from_ns);
	bool is_rest = g->pieces && g->pieces->samples;

	if (!g->n_threads && is_rest) {
		*ret = g->pieces->is_partly ? CONTROL_OUTCOME_PARTLY : CONTROL_OUTCOME_KEPT;
		return true;
	}
	if (!g->n_threads) {
		*ret = CONTROL_OUTCOME_EVICTED;
		return history_has_dropped(h, g->q.trace_id);
	}
	from = MAX(from, g->armed_ns);
	*ret = g->q.start_ns < from || (is_rest && g->pieces->is_partly) ? CONTROL_OUTCOME_PARTLY
									 : CONTROL_OUTCOME_KEPT;
	return true;
}

/*
 * Whether the request is a part of another one that the same task keeps now, as where a service
 * calls itself: then it is in that one's profile.
 */
static bool is_part(const struct job *j, u32 wish)
{
	const struct control_keep *k = &j->wishes.data[wish].keep;

	for (u32 i = 0; i < j->wishes.n; i++) {
		const struct control_keep *other = &j->wishes.data[i].keep;
		bool are_pieces =
			k->reason == CONTROL_REASON_LONG || other->reason == CONTROL_REASON_LONG;
		bool same = other->start_ns == k->start_ns && other->end_ns == k->end_ns;

		if (i != wish && !are_pieces &&
		    j->wishes.data[i].server == j->wishes.data[wish].server &&
		    !strcmp(other->task, k->task) &&
		    !memcmp(other->trace_id, k->trace_id, sizeof(k->trace_id)) &&
		    other->start_ns <= k->start_ns && other->end_ns >= k->end_ns &&
		    (!same || i < wish))
			return true;
	}
	return false;
}

int gather(struct recorder *r, struct job *j, u32 wish)
{
	struct gathering *g = gathering_create(r, j, wish);
	const struct capture_wish *w = &j->wishes.data[wish];
	struct control_kept *result = &j->results.data[wish];
	struct told_process *told;
	int e = g ? 0 : -ENOMEM;

	if (e < 0)
		return e;
	if (g->q.end_ns > g->q.start_ns) {
		find_threads_of_intervals(g);
		find_threads_of_samples(g);
	}
	if (!outcome_of(g, &result->outcome)) {
		gathering_destroy(g);
		return -ESRCH;
	}
	if (g->n_threads && !is_part(j, wish)) {
		e = take_intervals(g);
		if (w->until_ns)
			end_before_waits(g);
		if (e == 0)
			e = take_points(g);
		if (e == 0)
			e = make_ledger(g);
		for (u32 i = 0; i < g->n_threads && e == 0; i++) {
			const struct armed *a = recorder_process(r, g->threads[i].serial);

			e = a ? tell_process(g, a, &told) : 0;
		}
		if (e == 0)
			e = take_events(g);
		if (e == 0)
			e = add_ledger(g);
	}
	result->samples = g->samples;
	long_kept(r, w, g->until_ns + 1, result);
	if (!w->until_ns && g->pieces)
		result->samples = g->pieces->samples;
	gathering_destroy(g);
	return e;
}
