/* SPDX-License-Identifier: Apache-2.0 */
/* Compares the answers of a store with the batches that were written to it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "tests/tools/store_tool.h"

static const char *const types[] = {"process_cpu:samples:count:cpu:nanoseconds",
				    "process_cpu:cpu:nanoseconds:cpu:nanoseconds"};

/* ---- what the store should have ---- */

/* A row that was written. Units are counted from the first batch. */
struct want {
	u64 series, stack, time_ms;
	s64 value;
	u32 unit, count;
	bool marker;
};

struct cell {
	s64 value, low, high; /* the store's sum, and its bounds */
	u64 count;
};

struct verdict {
	struct store *s;
	u32 written, first; /* numbers of batches */
	vec(struct want) wants;
	u8 *units;	     /* 1 = the store has the unit */
	struct map texts;    /* stack id → hash of the shown stack */
	struct map labels;   /* series id → hash of the series' labels */
	struct map cells_at; /* → position + 1 in */
	vec(struct cell) cells;
	struct map seen; /* the store's stacks, each of which is once in `stacks` */
	vec(u64) stacks;
	u64 lost;    /* rows with an unknown stack or series */
	u64 missing; /* units that the store should have */
	u64 present;
	u32 wrong;
	bool told;
};

#define N_PARTS 2		/* hours */
#define UNITS (2 * 2 * N_PARTS) /* of a batch: types * services * hours */

static u32 unit_of(u32 k, u32 type, const char *service, u64 time_ms)
{
	u32 part = time_ms / HOUR_MS != begin_of(k) / HOUR_MS;

	return k * UNITS + type * 4 + (!strcmp(service, "service-1")) * 2 + part;
}

static void complain(struct verdict *v, const char *what, u64 a, s64 b, s64 c)
{
	if (v->wrong++ < 10)
		printf("wrong: %s %llx: %lld, %lld\n", what, a, b, c);
}

static void mix(u64 *h, const void *data, size_t n)
{
	u64 both[] = {*h, hash_bytes(data, n)};

	*h = hash_bytes(both, sizeof(both));
}

static void mix_text(u64 *h, const struct profile *p, u32 id)
{
	const char *text = profile_string(p, id);

	mix(h, text, strlen(text) + 1);
}

/* Hashes what a user sees of a stack. */
static u64 hash_stack(const struct profile *p, u32 stack)
{
	const struct profile_stack *s = &p->stacks.data[stack];
	u64 h = s->n;

	for (u32 i = 0; i < s->n; i++) {
		struct profile_frame f = p->frames.data[p->stack_frames.data[s->first + i]];
		struct profile_function fn = {};
		struct profile_mapping m = {};

		if (f.function != PROFILE_NONE)
			fn = p->functions.data[f.function];
		if (f.mapping != PROFILE_NONE)
			m = p->mappings.data[f.mapping];
		mix_text(&h, p, fn.name);
		mix_text(&h, p, fn.system_name);
		mix_text(&h, p, fn.file);
		mix_text(&h, p, m.path);
		mix_text(&h, p, m.build_id);
		f.function = fn.start_line;
		f.mapping = 0;
		mix(&h, &f, sizeof(f));
	}
	return h;
}

static u64 hash_labels(const struct profile *p, u32 resource)
{
	const struct profile_resource *r = &p->resources.data[resource];
	u64 h = r->n;

	for (u32 i = 0; i < r->n; i++) {
		const struct profile_label *l = &p->labels.data[r->first + i];
		const char *name = profile_string(p, l->name), *value = profile_string(p, l->value);

		mix(&h, name, strlen(name) + 1);
		mix(&h, value, strlen(value) + 1);
	}
	return h;
}

static bool is_marker(const struct profile *p, u32 stack)
{
	u32 leaf = p->stack_frames.data[p->stacks.data[stack].first];
	u32 name = p->functions.data[p->frames.data[leaf].function].name;

	return !strncmp(profile_string(p, name), "batch_", 6);
}

static void want_batch(struct verdict *v, u32 k)
{
	_cleanup_profile_ struct profile *p = make_batch(k);
	_cleanup_store_batch_ struct store_batch b = {};
	struct diag d = {};

	if (store_batch_init(&b, p, NULL, &d) < 0)
		exit(6);
	for (size_t i = 0; i < p->stacks.n; i++)
		if (!map_get(&v->texts, b.stacks[i]))
			map_put(&v->texts, b.stacks[i], hash_stack(p, (u32)i) >> 2);
	vec_foreach (&b.series, s)
		map_put(&v->labels, s->id, hash_labels(p, s->resource));
	vec_foreach (&b.samples, s) {
		const struct store_series *e = &b.series.data[s->series];
		struct want w = {.series = e->id,
				 .stack = b.stacks[s->stack],
				 .time_ms = s->time_ms,
				 .value = s->value,
				 .count = s->count,
				 .marker = is_marker(p, s->stack)};

		w.unit = unit_of(k, s->type, profile_string(p, e->service), s->time_ms) -
			 v->first * UNITS;
		if (vec_push(&v->wants, w) < 0)
			exit(6);
	}
}

/* ---- what the store has ---- */

/* A query: one type and one service, by stack and perhaps by series and time. */
struct asking {
	u32 type;
	const char *service;
	bool rows;
	u64 from_ms, to_ms, step_ms;
};

static u64 key_of(const struct asking *a, u64 series, u64 stack, u64 time_ms)
{
	u64 key[] = {a->rows ? series : 0, stack,
		     a->rows ? (time_ms - a->from_ms) / a->step_ms : 0};

	return hash_bytes(key, sizeof(key)) >> 2;
}

static bool is_asked(const struct verdict *v, const struct asking *a, const struct want *w)
{
	return w->unit % UNITS / 2 == a->type * 2 + !strcmp(a->service, "service-1") &&
	       w->time_ms >= a->from_ms && w->time_ms < a->to_ms;
}

static struct cell *cell_of(struct verdict *v, u64 key, bool create)
{
	u64 *at = map_get(&v->cells_at, key);

	if (!at && !create)
		return NULL;
	if (!at) {
		if (vec_push(&v->cells, (struct cell){}) < 0 ||
		    map_put(&v->cells_at, key, v->cells.n) < 0)
			exit(6);
		return &v->cells.data[v->cells.n - 1];
	}
	return &v->cells.data[*at - 1];
}

static u64 read_cells(struct verdict *v, const struct asking *a)
{
	struct store_filter f = {.from_ms = a->from_ms,
				 .to_ms = a->to_ms,
				 .type = types[a->type],
				 .service = a->service};
	u32 by = STORE_BY_STACK | (a->rows ? STORE_BY_SERIES | STORE_BY_TIME : 0);
	struct store_rows rows = {};
	struct diag d = {};
	u64 lost = 0;

	map_clear(&v->cells_at);
	vec_clear(&v->cells);
	if (store_scan(v->s, &f, by, a->step_ms, &rows, &d) < 0) {
		complain(v, d.text, 0, 0, 0);
		return 0;
	}
	v->told |= rows.damaged;
	vec_foreach (&rows.rows, r) {
		struct cell *c;

		if (!r->stack || (a->rows && !r->series)) {
			lost++;
			continue;
		}
		c = cell_of(v, key_of(a, r->series, r->stack, r->time_ms), true);
		c->value += r->value;
		c->count += r->count;
		if (!map_get(&v->seen, r->stack) &&
		    (map_put(&v->seen, r->stack, 1) < 0 || vec_push(&v->stacks, r->stack) < 0))
			exit(6);
	}
	store_rows_deinit(&rows);
	v->lost += lost;
	return lost;
}

/* Notes which units the store has, by their marker stacks. judge() then expects all their rows. */
static void find_units(struct verdict *v, const struct asking *a)
{
	vec_foreach (&v->wants, w) {
		struct cell *c;

		if (!w->marker || !is_asked(v, a, w))
			continue;
		c = cell_of(v, key_of(a, w->series, w->stack, w->time_ms), false);
		v->units[w->unit] = c != NULL;
		if (c && !c->value)
			complain(v, "a value of nothing, batch", w->unit / UNITS + v->first, 0, 0);
	}
}

static void judge(struct verdict *v, const struct asking *a)
{
	u64 lost;

	lost = read_cells(v, a);
	find_units(v, a);
	vec_foreach (&v->wants, w) {
		struct cell *c;

		if (!is_asked(v, a, w) || (!v->units[w->unit] && !lost))
			continue;
		c = cell_of(v, key_of(a, w->series, w->stack, w->time_ms), lost > 0);
		if (!c) {
			complain(v, "nothing of batch", w->unit / UNITS + v->first, w->value, 0);
			continue;
		}
		c->high += w->value;
		c->low += lost ? 0 : w->value;
		/* Counts are the same for both types. */
		if (!lost)
			c->count -= w->count;
	}
	vec_foreach (&v->cells, c)
		if (c->value > c->high || c->value < c->low || (!lost && c->count))
			complain(v, lost ? "sum, with lost rows" : "sum", a->type, c->value,
				 c->high);
}

/* Returns the time from which on samples have times rounded to hours or less. */
static u64 days_end(const struct verdict *v)
{
	u64 now = begin_of(v->written);

	return (now - MIN(now - T0, DAYS_AFTER_MS)) / DAY_MS * DAY_MS;
}

/* Whether the store must have the batch: acknowledged, and with a rounded time within the age. */
static bool required(const struct verdict *v, u32 k)
{
	u64 time_ms = begin_of(k), age = options.age_h * HOUR_MS;

	time_ms -= time_ms % (time_ms < days_end(v) ? DAY_MS : HOUR_MS);
	return k < v->written && (!age || time_ms + age >= begin_of(v->written)) && !options.max_mb;
}

static void judge_units(struct verdict *v)
{
	u8 *expected = calloc((v->written + 1 - v->first) * UNITS, 1);
	u32 in_flight = 0, of = 0;

	vec_foreach (&v->wants, w)
		expected[w->unit] = 1;
	for (u32 u = 0; u < (v->written + 1 - v->first) * UNITS; u++) {
		u32 k = u / UNITS + v->first;

		v->present += v->units[u];
		if (expected[u] && !v->units[u] && required(v, k)) {
			v->missing++;
			if (k >= options.whole_from)
				complain(v, "nothing of what came after the damage", k, 0, 0);
		}
		if (expected[u] && k == v->written) {
			in_flight += v->units[u];
			of++;
		}
	}
	if (in_flight && in_flight != of && !options.damaged)
		complain(v, "half of the batch in flight", v->written, in_flight, of);
	free(expected);
}

static void judge_series(struct verdict *v)
{
	struct store_filter all = {.to_ms = 1ULL << 60};
	struct store_series_set set = {};
	struct diag d = {};

	if (store_find_series(v->s, &all, &set, &d) < 0) {
		complain(v, d.text, 0, 0, 0);
		return;
	}
	vec_foreach (&set.series, e) {
		u64 *h = map_get(&v->labels, e->id);

		if (!h || *h != hash_labels(set.profile, e->resource))
			complain(v, "labels of series", e->id, 0, 0);
	}
	store_series_set_deinit(&set);
}

/* Checks that stacks look as they did when they were written. */
static void judge_stacks(struct verdict *v)
{
	_cleanup_profile_ struct profile *p = profile_create();
	_cleanup_free_ u32 *stacks = calloc(v->stacks.n + 1, sizeof(u32));
	struct diag d = {};

	if (store_load_stacks(v->s, v->stacks.data, v->stacks.n, p, stacks, &d) < 0) {
		complain(v, d.text, 0, 0, 0);
		return;
	}
	for (size_t i = 0; i < v->stacks.n; i++) {
		u64 *h = map_get(&v->texts, v->stacks.data[i]);

		if (stacks[i] == PROFILE_NONE)
			v->lost++;
		else if (!h || *h != hash_stack(p, stacks[i]) >> 2)
			complain(v, "stack", v->stacks.data[i], 0, 0);
	}
}

/* ---- spans ---- */

struct tally {
	u64 spans, rows;
	s64 value;
};

static u32 batch_of(const u8 trace_id[16])
{
	u32 k;

	memcpy(&k, trace_id + 1, sizeof(k));
	return k;
}

static void tally_wanted(u32 k, struct tally *ret)
{
	_cleanup_profile_ struct profile *p = make_batch(k);
	_cleanup_store_batch_ struct store_batch b = {};

	if (store_batch_init(&b, p, NULL, NULL) < 0)
		exit(6);
	*ret = (struct tally){.spans = SPANS, .rows = b.links.links.n};
	vec_foreach (&b.links.links, e)
		ret->value += e->value;
}

/* Whether the batch is from before the damage and has lost spans or rows. */
static bool is_lost(struct verdict *v, u32 k, const struct tally *f, const struct tally *want)
{
	if (!options.damaged || k >= options.whole_from || f->spans > want->spans ||
	    f->rows > want->rows || (f->rows == want->rows && f->value != want->value))
		return false;
	v->lost += f->spans < want->spans || f->rows < want->rows;
	return true;
}

/* Checks that the store has the spans and links of a batch once, and all of them or none. */
static void judge_spans(struct verdict *v)
{
	const struct store_span_filter all = {.to_ms = 1ULL << 41};
	const struct store_link_filter every = {.to_ms = 1ULL << 41};
	struct tally *found = calloc(v->written + 1, sizeof(*found));
	_cleanup_store_links_ struct store_links l = {};
	_cleanup_spans_ struct spans s = {};
	u64 age = (options.age_h ? options.age_h : 100000) * HOUR_MS;

	if (!found || store_find_spans(v->s, &all, &s, NULL) < 0 ||
	    store_find_links(v->s, &every, &l, NULL) < 0)
		exit(7);
	vec_foreach (&s.spans, e) {
		u32 k = batch_of(e->trace_id);
		struct profile_link is = link_of(k, e->span_id[0] - 1u);

		if (k > v->written || memcmp(is.trace_id, e->trace_id, 16) != 0 ||
		    e->start_ns != (begin_of(k) + e->span_id[0] - 1u) * 1000000 ||
		    strcmp(spans_attribute(&s, e, "batch"), e->span_id[0] % 2 ? "even" : "odd"))
			complain(v, "span", k, e->span_id[0], 0);
		else
			found[k].spans++;
	}
	vec_foreach (&l.links, e) {
		u32 k = batch_of(e->link.trace_id);

		if (k > v->written) {
			complain(v, "link", k, 0, 0);
			continue;
		}
		found[k].rows++;
		found[k].value += e->value;
	}
	for (u32 k = 0; k <= v->written; k++) {
		bool must =
			k < v->written && begin_of(k) + age > begin_of(v->written) + 3 * HOUR_MS;
		struct tally *f = &found[k], want;

		if (!must && !f->spans && !f->rows)
			continue;
		tally_wanted(k, &want);
		if (is_lost(v, k, f, &want))
			continue;
		/* An old batch that lies in two hours may have lost the first hour. */
		if (!must && k < v->written && f->spans <= want.spans && f->rows <= want.rows)
			continue;
		if ((must || f->spans) && f->spans != want.spans)
			complain(v, "spans of batch", k, (s64)f->spans, (s64)want.spans);
		if ((must || f->rows) && (f->rows != want.rows || f->value != want.value))
			complain(v, "samples of spans of batch", k, f->value, want.value);
	}
	free(found);
}

static int judge_all(struct verdict *v)
{
	u64 days = days_end(v);
	struct store_stats st = {};
	struct diag d = {};

	if (store_get_stats(v->s, &st, &d) < 0)
		return 7;
	if (st.rows && st.first_ms > T0)
		v->first = (u32)((st.first_ms - T0) / DAY_MS * (DAY_MS / STEP_MS));
	v->first -= MIN(v->first, 1u);
	for (u32 k = 0; k < v->first; k++)
		v->missing += required(v, k) ? UNITS : 0;
	v->units = calloc((v->written + 1 - v->first) * UNITS, 1);
	for (u32 k = v->first; k <= v->written; k++)
		want_batch(v, k);
	for (u32 i = 0; i < 4; i++) {
		struct asking a = {.type = i / 2, .service = services[i % 2 * 2]};

		/* Times of older samples may be rounded to days. */
		a.rows = true;
		a.from_ms = T0;
		a.to_ms = days;
		a.step_ms = DAY_MS;
		if (days > T0)
			judge(v, &a);
		a.from_ms = days;
		a.to_ms = 1ULL << 41;
		a.step_ms = HOUR_MS;
		judge(v, &a);
		/* Blocks store the sums by stack beside the rows: check both. */
		a.rows = false;
		a.from_ms = 0;
		judge(v, &a);
	}
	judge_units(v);
	judge_series(v);
	judge_stacks(v);
	if (options.spans)
		judge_spans(v);
	if (store_get_stats(v->s, &st, &d) < 0)
		return 7;
	v->told |= st.damaged > 0;
	printf("present %llu missing %llu lost %llu damaged %llu rows %llu bytes %llu first %llu\n",
	       v->present, v->missing, v->lost, st.damaged, st.rows, st.bytes,
	       st.rows ? (st.first_ms - T0) / HOUR_MS : 0);
	if ((v->missing || v->lost) && !(options.damaged && v->told))
		complain(v, "something is gone, and nobody said so", v->told, (s64)v->missing,
			 (s64)v->lost);
	if (v->told && !options.damaged)
		complain(v, "damage is told where there is none", 0, (s64)st.damaged, 0);
	return v->wrong ? 1 : 0;
}

int verify(struct store *s, u32 written)
{
	struct verdict v = {.s = s, .written = written};
	int r = judge_all(&v);

	free(v.units);
	map_deinit(&v.texts);
	map_deinit(&v.labels);
	map_deinit(&v.cells_at);
	map_deinit(&v.seen);
	vec_deinit(&v.cells);
	vec_deinit(&v.stacks);
	vec_deinit(&v.wants);
	return r;
}
