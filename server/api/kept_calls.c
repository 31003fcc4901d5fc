/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long the calls of kept requests took (kept.h), by the estimates of server/analyze: thread by
 * thread, and all threads, processes and requests as one tree.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/vocab.h"
#include "format/skywalking.h"
#include "server/api/kept.h"

#define PERIOD_NS 10000000 /* the shortest that SkyWalking's agents know */

void kept_calls_deinit(struct kept_calls *s)
{
	vec_foreach (&s->threads, t) {
		analyze_snapshots_deinit(&t->snapshots);
		vec_deinit(&t->blamed);
	}
	vec_deinit(&s->threads);
	vec_deinit(&s->frame_of);
	map_deinit(&s->frames);
	map_deinit(&s->by_key);
	free(s->numbers);
}

/* ---- frames ---- */

/* The number of a frame, the same for all that are shown alike. */
static int number_of(struct kept_calls *s, u32 frame, u32 *ret)
{
	const struct profile *p = s->k->stacks;
	const struct profile_frame *f = &p->frames.data[frame];
	_cleanup_str_ struct str name = {}, text = {};
	const char *file = f->function == PROFILE_NONE
				   ? ""
				   : profile_string(p, p->functions.data[f->function].file);
	u64 key, *known;
	int r;

	str_printf(&text, "%s\n%s\n%u\n%u", profile_frame_name(p, frame, &name), file,
		   s->by_line ? f->line : 0, f->kind);
	if (text.failed)
		return -ENOMEM;
	key = hash_bytes(str_get(&text), text.n) >> 1;
	known = map_get(&s->frames, key);
	if (known) {
		*ret = (u32)*known;
		return 0;
	}
	*ret = (u32)s->frame_of.n;
	r = map_put(&s->frames, key, s->frame_of.n);
	return r < 0 ? r : vec_push(&s->frame_of, frame);
}

static int put_stack(struct kept_calls *s, u32 stack, struct kept_thread *t,
		     struct analyze_snapshot *e)
{
	const struct profile *p = s->k->stacks;
	const struct profile_stack *of = &p->stacks.data[stack];
	int r = 0;

	e->first = (u32)t->snapshots.frames.n;
	e->n = of->n;
	for (u32 i = 0; i < of->n && r == 0; i++) {
		u32 frame = p->stack_frames.data[of->first + of->n - 1 - i];

		if (s->numbers[frame] == PROFILE_NONE)
			r = number_of(s, frame, &s->numbers[frame]);
		if (r == 0)
			r = vec_push(&t->snapshots.frames, s->numbers[frame]);
	}
	return r;
}

/* ---- threads ---- */

static void name_thread(const struct kept *k, const struct kept_sample *e, struct kept_thread *t)
{
	const u64 *at = map_get(&k->by_series, kept_link(k, e)->series >> 1);
	const struct kept_segment *of = NULL;

	t->service = profile_string(k->links.profile, kept_link(k, e)->service);
	if (t->segment == KEPT_NO_SEQUENCE) {
		t->thread = at ? k->of_series[*at].thread : "";
		return;
	}
	of = &k->segments.data[t->segment];
	t->thread = "";
	if (of->span != PROFILE_NONE) {
		const struct span *span = &k->set.spans.spans.data[of->span];

		t->thread = spans_string(&k->set.spans, span->name);
		t->service = spans_string(&k->set.spans, span->service);
	}
}

/* The thread of a sample, an index. */
static int thread_of(struct kept_calls *s, const struct kept_sample *e, u32 *ret)
{
	const struct kept *k = s->k;
	bool snapshot = e->sequence != KEPT_NO_SEQUENCE;
	const u64 *at = map_get(&k->by_series, kept_link(k, e)->series >> 1), *known;
	struct kept_thread new = {.request = e->request,
				  .key = snapshot ? 0
					 : at	  ? k->of_series[*at].key
						  : kept_link(k, e)->series | 1,
				  .segment = snapshot ? kept_segment_of(k, e) : KEPT_NO_SEQUENCE};
	struct {
		u64 key;
		u32 request, segment;
	} both = {new.key, new.request, new.segment};
	u64 key = hash_bytes(&both, sizeof(both)) >> 1;
	int r;

	known = map_get(&s->by_key, key);
	if (known) {
		*ret = (u32)*known;
		return 0;
	}
	name_thread(k, e, &new);
	*ret = (u32)s->threads.n;
	r = map_put(&s->by_key, key, s->threads.n);
	return r < 0 ? r : vec_push(&s->threads, new);
}

static int add_sample(struct kept_calls *s, const struct kept_sample *e)
{
	const struct store_link *l = kept_link(s->k, e);
	struct analyze_snapshot shot = {
		.sequence = e->sequence, .time_ns = l->time_ms * 1000000, .value = l->value};
	struct kept_thread *t;
	u32 thread;
	int r = thread_of(s, e, &thread);

	if (r < 0)
		return r;
	t = &s->threads.data[thread];
	t->first_ns = t->snapshots.list.n ? MIN(t->first_ns, shot.time_ns) : shot.time_ns;
	t->last_ns = MAX(t->last_ns, shot.time_ns);
	r = put_stack(s, e->stack, t, &shot);
	if (r == 0 && (e->owner || e->waker))
		r = vec_push(&t->blamed, (struct kept_blamed){.snapshot = (u32)t->snapshots.list.n,
							      .owner = e->owner,
							      .waker = e->waker});
	return r < 0 ? r : vec_push(&t->snapshots.list, shot);
}

struct at_time {
	u64 time_ns;
	u32 at;
};

static int compare_times(const void *a, const void *b)
{
	const struct at_time *x = a, *y = b;

	if (x->time_ns != y->time_ns)
		return x->time_ns < y->time_ns ? -1 : 1;
	return x->at < y->at ? -1 : x->at > y->at;
}

/* Samples have no numbers, and a thread's are in the order of spans: counts them by their times. */
static int number_samples(struct kept_thread *t)
{
	size_t n = t->snapshots.list.n;
	_cleanup_free_ struct at_time *order = calloc(n + 1, sizeof(*order));

	if (!order)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++)
		order[i] = (struct at_time){t->snapshots.list.data[i].time_ns, (u32)i};
	qsort(order, n, sizeof(*order), compare_times);
	for (size_t i = 0; i < n; i++)
		t->snapshots.list.data[order[i].at].sequence = (u32)i;
	return 0;
}

int kept_calls_make(struct api_call *c, struct kept *k, bool by_line, struct kept_calls *ret)
{
	struct kept_calls *s = ret;
	int r = 0;

	s->k = k;
	s->by_line = by_line;
	s->numbers = malloc((k->stacks->frames.n + 1) * sizeof(*s->numbers));
	if (!s->numbers)
		return -ENOMEM;
	memset(s->numbers, 0xff, (k->stacks->frames.n + 1) * sizeof(*s->numbers));
	vec_foreach (&k->samples, e) {
		r = quota_check(&c->d);
		if (r == 0 && e->stack != PROFILE_NONE)
			r = add_sample(s, e);
		if (r < 0)
			return r;
	}
	vec_foreach (&s->threads, t)
		if (t->segment == KEPT_NO_SEQUENCE && r == 0)
			r = number_samples(t);
	return r;
}

/* ---- estimates ---- */

static struct analyze_range range_of(const struct span *e)
{
	return (struct analyze_range){0, e->start_ns, e->start_ns + e->duration_ns};
}

/* The part of the span that is not its children's in the same segment. */
static int own_ranges(const struct kept *k, u32 span, const char *segment,
		      struct analyze_ranges *ret)
{
	const struct spans *s = &k->set.spans;
	const struct span *of = &s->spans.data[span];
	const struct analyze_range all = range_of(of);
	struct analyze_ranges children = {};
	int r = 0;

	for (size_t i = 0; i < s->spans.n && r == 0; i++) {
		const struct span *e = &s->spans.data[i];
		const char *its;

		if (memcmp(e->trace_id, of->trace_id, 16) != 0 ||
		    memcmp(e->parent_id, of->span_id, 8) != 0)
			continue;
		its = spans_attribute(s, e, SKYWALKING_SEGMENT);
		if (its && !strcmp(its, segment))
			r = vec_push(&children.list, range_of(e));
	}
	if (r == 0)
		r = analyze_without(&all, children.list.data, children.list.n, ret);
	vec_deinit(&children.list);
	return r;
}

/* Which times of the segment were asked for; none: it does not belong to the span. */
static int asked_ranges(const struct kept *k, const struct kept_thread *t,
			const struct analyze_range *extent, struct analyze_ranges *ret)
{
	const struct kept_segment *s = &k->segments.data[t->segment];
	const struct kept_asked *q = &k->asked.data[t->request];
	const struct spans *spans = &k->set.spans;
	const char *segment = NULL;
	u8 first[8] = {};

	if (q->whole)
		return vec_push(&ret->list, *extent);
	segment = spans_attribute(spans, &spans->spans.data[q->span], SKYWALKING_SEGMENT);
	if (segment)
		skywalking_span_id(segment, 0, first);
	if (segment && !memcmp(first, s->span_id, sizeof(first)))
		return k->children ? vec_push(&ret->list, range_of(&spans->spans.data[q->span]))
				   : own_ranges(k, q->span, segment, ret);
	if (k->children && s->span != PROFILE_NONE && trace_set_is_below(&k->set, s->span, q->span))
		return vec_push(&ret->list, *extent);
	return 0;
}

int kept_calls_estimate(struct kept_calls *s, const struct kept_thread *t, bool compatible,
			struct analyze_calls *ret)
{
	const struct kept *k = s->k;
	struct analyze_range extent = {0, t->first_ns, t->last_ns};
	struct analyze_ranges ranges = {};
	u64 gap;
	int r;

	if (t->segment == KEPT_NO_SEQUENCE)
		return compatible ? analyze_skywalking(&t->snapshots, &extent, 1,
						       ANALYZE_SKYWALKING_MAX, ret)
				  : analyze_sum(&t->snapshots, ret);
	if (k->segments.data[t->segment].span != PROFILE_NONE)
		extent = range_of(&k->set.spans.spans.data[k->segments.data[t->segment].span]);
	r = asked_ranges(k, t, &extent, &ranges);
	if (r == 0)
		r = analyze_usual_gap(&t->snapshots, &gap);
	if (r == 0 && ranges.list.n && compatible)
		r = analyze_skywalking(&t->snapshots, ranges.list.data, ranges.list.n,
				       ANALYZE_SKYWALKING_MAX, ret);
	else if (r == 0 && ranges.list.n)
		r = analyze_unbiased(&t->snapshots, &extent, 1, ranges.list.data, ranges.list.n,
				     2 * MAX(gap, (u64)PERIOD_NS), ret);
	vec_deinit(&ranges.list);
	return r;
}

/* ---- all threads as one ---- */

static int compare_threads(const void *a, const void *b, void *arg)
{
	const struct kept_thread *all = arg;
	u32 x = *(const u32 *)a, y = *(const u32 *)b;

	if (all[x].request != all[y].request)
		return all[x].request < all[y].request ? -1 : 1;
	return x < y ? -1 : x > y;
}

int kept_calls_merge_thread(struct api_call *c, struct kept_calls *s, const struct kept_thread *t,
			    bool compatible, u32 column, struct analyze_merged *ret)
{
	_cleanup_calls_ struct analyze_calls calls = {};
	int r = quota_check(&c->d);

	if (r == 0)
		r = kept_calls_estimate(s, t, compatible, &calls);
	if (r == 0)
		r = analyze_merge(ret, &calls, column, t->request);
	ret->found = MAX(ret->found, calls.found);
	/* Snapshots have none, and of samples all estimates have all calls. */
	vec_foreach (&t->blamed, b) {
		const struct analyze_snapshot *e = &t->snapshots.list.data[b->snapshot];
		const u32 *frames = t->snapshots.frames.data + e->first;

		if (r == 0 && b->owner)
			r = analyze_add_blame(ret, frames, e->n, column, ANALYZE_OWNER, b->owner,
					      e->value);
		if (r == 0 && b->waker)
			r = analyze_add_blame(ret, frames, e->n, column, ANALYZE_WAKER, b->waker,
					      e->value);
	}
	if (r == 0 && (ret->calls.n > API_MAX_NODES || ret->blames.n > API_MAX_NODES))
		r = -E2BIG;
	return r;
}

int kept_calls_merge(struct api_call *c, struct kept_calls *s, struct analyze_merged *ret)
{
	_cleanup_free_ u32 *order = calloc(s->threads.n + 1, sizeof(*order));
	int r = order ? 0 : -ENOMEM;

	for (u32 i = 0; i < s->threads.n && r == 0; i++)
		order[i] = i;
	if (r == 0 && s->threads.n)
		qsort_r(order, s->threads.n, sizeof(*order), compare_threads, s->threads.data);
	for (u32 i = 0; i < s->threads.n && r == 0; i++) {
		const struct kept_thread *t = &s->threads.data[order[i]];
		u32 group = s->k->asked.data[t->request].group;

		r = kept_calls_merge_thread(c, s, t, false, group, ret);
		if (r == 0 && t->segment != KEPT_NO_SEQUENCE)
			r = kept_calls_merge_thread(c, s, t, true, KEPT_GROUPS + group, ret);
	}
	analyze_sort_blames(ret);
	return r;
}

/* ---- the answer ---- */

void kept_calls_put_frame(struct json_writer *w, const struct kept_calls *s, u32 number)
{
	const struct profile *p = s->k->stacks;
	_cleanup_str_ struct str scratch = {};
	const struct profile_frame *f;

	if (number == ANALYZE_NOT_SAMPLED) {
		json_put_text(w, "function", "[not sampled]");
		json_put_text(w, "kind", vocab_frame_kind(FRAME_NOTE)->name);
		return;
	}
	f = &p->frames.data[s->frame_of.data[number]];
	json_put_text(w, "function", profile_frame_name(p, s->frame_of.data[number], &scratch));
	json_put_text(w, "kind", vocab_frame_kind(f->kind)->name);
	if (f->function != PROFILE_NONE && p->functions.data[f->function].file)
		json_put_text(w, "file", profile_string(p, p->functions.data[f->function].file));
	if (s->by_line && f->line)
		json_put_u64(w, "line", f->line);
}

static void put_sums(struct json_writer *w, const struct analyze_sums *s)
{
	json_put_s64(w, "total_ns", s->total_ns);
	json_put_s64(w, "self_ns", s->self_ns);
	json_put_u64(w, "count", s->count);
}

static void put_blame(struct json_writer *w, const struct kept_calls *s,
		      const struct analyze_blame *b)
{
	const char *who = strtab_get(&s->k->who, b->who), *name = strchr(who, '\n');
	char id[32];

	json_open_object(w, b->whom == ANALYZE_OWNER ? "owner" : "waker");
	if (name) {
		snprintf(id, sizeof(id), "%.*s", (int)(name - who), who);
		json_put_text(w, "thread", id);
		json_put_text(w, "name", name + 1);
	} else {
		json_put_text(w, "name", who);
	}
	json_put_s64(w, "ns", b->ns);
	json_put_u64(w, "others", b->others);
	json_close(w);
}

void kept_calls_put_call(struct json_writer *w, const struct kept_calls *s,
			 const struct analyze_merged *m, u32 call, u32 column, size_t *blame)
{
	put_sums(w, &m->calls.data[call].of[column]);
	for (; *blame < m->blames.n; (*blame)++) {
		const struct analyze_blame *b = &m->blames.data[*blame];

		if (b->call != call || b->column != column)
			break;
		put_blame(w, s, b);
	}
}

void kept_calls_put_merged(struct json_writer *w, const struct kept_calls *s,
			   const struct analyze_merged *m)
{
	size_t blame = 0;

	json_open_array(w, "rows");
	for (u32 i = 0; i < m->calls.n; i++) {
		const struct analyze_merged_call *row = &m->calls.data[i];

		json_open_object(w, NULL);
		json_put_u64(w, "id", i + 1);
		json_put_u64(w, "parent", row->parent);
		kept_calls_put_frame(w, s, row->frame);
		for (u32 g = 0; g < KEPT_GROUPS; g++) {
			const struct analyze_sums *theirs = &row->of[KEPT_GROUPS + g];

			if (!row->of[g].last && !theirs->last)
				continue;
			json_open_object(w, kept_group_names[g]);
			kept_calls_put_call(w, s, m, i, g, &blame);
			json_put_u64(w, "requests", row->of[g].requests);
			if (theirs->last) {
				json_open_object(w, "skywalking");
				put_sums(w, theirs);
				json_close(w);
			}
			json_close(w);
		}
		json_close(w);
	}
	json_close(w);
}
