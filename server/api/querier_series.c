/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Queries of Pyroscope over time: sums, averages, heat maps. A step is named by its end: the sample
 * of 10:00:03 belongs to the step of 15 s that ends at 10:00:15, as Pyroscope has it.
 *
 * What Pyroscope calls a profile is here what one series has at one time (struct query_moment). An
 * average is the mean over these, and a heat map counts them, or spans, by their values. Of states,
 * such as live memory, each state is one profile.
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "server/api/querier.h"

#define Y_BUCKETS 20 /* of a heat map, as Pyroscope has */

/* ---- ids ---- */

static void put_u64(u64 v, u8 ret[8])
{
	for (u32 i = 0; i < 8; i++)
		ret[i] = (u8)(v >> (56 - 8 * i));
}

static u64 get_u64(const u8 *b)
{
	u64 v = 0;

	for (u32 i = 0; i < 8; i++)
		v = v << 8 | b[i];
	return v;
}

/* A UUID has hyphens behind these hex digits. */
static bool is_before_hyphen(u32 digits)
{
	return digits == 8 || digits == 12 || digits == 16 || digits == 20;
}

void querier_format_id(const struct query_moment *m, char ret[QUERIER_ID_BYTES])
{
	char hex[33];
	u8 bytes[16];

	put_u64(m->series, bytes);
	put_u64(m->time_ms, bytes + 8);
	text_hex(bytes, sizeof(bytes), hex);
	for (u32 i = 0; i < 32; i++) {
		if (is_before_hyphen(i))
			*ret++ = '-';
		*ret++ = hex[i];
	}
	*ret = '\0';
}

bool querier_parse_id(const char *text, struct query_moment *ret)
{
	char hex[33];
	u8 bytes[16];
	u32 n = 0;

	for (; *text && n < 32; text++)
		if (*text != '-' || !is_before_hyphen(n))
			hex[n++] = *text;
	hex[n] = '\0';
	if (*text || !text_unhex(hex, sizeof(bytes), bytes))
		return false;
	*ret = (struct query_moment){get_u64(bytes), get_u64(bytes + 8)};
	return true;
}

/* ---- steps ---- */

struct steps {
	s64 start, step; /* ms; steps end at start, start + step, ... */
};

static int set_steps(struct api_call *c, s64 start, double step, struct steps *ret)
{
	if (!(step >= 0.001) || step > 1e9)
		return diag_set(&c->d, -EINVAL, "step: seconds, 0.001 to 1,000,000,000");
	/* Far beyond all times that the store has. */
	start = MAX(0, MIN(start, 1LL << 53));
	*ret = (struct steps){.start = start, .step = MAX(1, (s64)(step * 1000))};
	return 0;
}

/* The end of the step that a time belongs to. */
static s64 step_of(const struct steps *s, u64 time_ms)
{
	s64 after = (s64)time_ms - s->start;

	return after <= 0 ? s->start : s->start + (after + s->step - 1) / s->step * s->step;
}

/* The first step reaches back before the start of the range. */
static void set_first_step(const struct steps *s, struct query *q)
{
	q->from_ms = s->start + 1 > s->step ? (u64)(s->start + 1 - s->step) : 0;
}

/* ---- exemplars ---- */

struct exemplars {
	const struct query_points *points; /* borrowed */
	char *const *group_by;
	size_t n_group_by;
	Pyroscope__ExemplarType type;
	struct map series; /* id → index in points->set */
};

static int exemplars_init(struct exemplars *e)
{
	const struct store_series_set *set = &e->points->set;
	int r = 0;

	for (size_t i = 0; i < set->series.n && r == 0; i++)
		r = map_put(&e->series, set->series.data[i].id, i);
	return r;
}

/* "service_name" is the name that clients know "service.name" by. */
static bool is_grouped_by(const struct exemplars *e, const char *name)
{
	for (size_t i = 0; i < e->n_group_by; i++) {
		const char *a = e->group_by[i], *b = name;

		while (*a && (*a == *b || (*a == '_' && *b == '.'))) {
			a++;
			b++;
		}
		if (!*a && !*b)
			return true;
	}
	return false;
}

/* In the order of Pyroscope's exemplars: type and service, then the others by name. */
static size_t derived_labels(const struct exemplars *e, const struct store_found_series *s,
			     char **names, struct str *values)
{
	static const char *const order[QUERY_N_DERIVED_LABELS] = {
		"__profile_type__", QUERY_PRIVATE_SERVICE, "__name__",
		"__period_type__",  "__period_unit__",	   "__type__",
		"__unit__"};
	const struct profile *set = e->points->set.profile;
	const char *type = profile_string(set, s->type);
	struct store_type t;
	size_t n = 0;

	if (store_type_parse(type, &t) < 0)
		return 0;
	for (size_t i = 0; i < ARRAY_SIZE(order); i++) {
		const char *value = query_type_label(&t, type, order[i]);

		if (!value)
			value = profile_label(set, s->resource, "service.name");
		if (!value || is_grouped_by(e, order[i]))
			continue;
		names[n++] = (char *)order[i];
		str_append(values, value, strlen(value) + 1);
	}
	return n;
}

/* The labels of the series that the answer's own series does not have. */
static int exemplar_labels(const struct exemplars *e, u64 series, struct arena *a,
			   Pyroscope__Exemplar *ret)
{
	const struct profile *set = e->points->set.profile;
	const u64 *at = map_get(&e->series, series);
	_cleanup_str_ struct str values = {};
	char *names[PROFILE_MAX_LABELS + QUERY_N_DERIVED_LABELS];
	const struct store_found_series *s;
	const struct profile_resource *r;
	size_t n;

	if (!at)
		return 0;
	s = &e->points->set.series.data[*at];
	n = derived_labels(e, s, names, &values);
	r = &set->resources.data[s->resource];
	for (u32 i = 0; i < r->n && n < ARRAY_SIZE(names); i++) {
		const struct profile_label *l = &set->labels.data[r->first + i];
		const char *name = profile_string(set, l->name);
		const char *value = profile_string(set, l->value);

		if (is_grouped_by(e, name))
			continue;
		names[n++] = (char *)name;
		str_append(&values, value, strlen(value) + 1);
	}
	if (values.failed)
		return -ENOMEM;
	return querier_pairs(a, names, n, str_get(&values), &ret->labels, &ret->n_labels);
}

static int make_exemplar(const struct exemplars *e, const struct query_point_of *p, struct arena *a,
			 Pyroscope__Exemplar **ret)
{
	Pyroscope__Exemplar *x = arena_alloc(a, sizeof(*x));
	const struct profile_link *l = &p->link;
	static const struct profile_link none;
	char id[QUERIER_ID_BYTES];

	if (!x)
		return -ENOMEM;
	pyroscope__exemplar__init(x);
	x->timestamp = (s64)p->at.time_ms;
	x->value = p->value;
	if (e->type == PYROSCOPE__EXEMPLAR_TYPE__EXEMPLAR_TYPE_SPAN) {
		text_hex(l->span_id, sizeof(l->span_id), id);
		x->span_id = querier_text(a, id, strlen(id));
		text_hex(l->trace_id, sizeof(l->trace_id), id);
		if (memcmp(l->trace_id, none.trace_id, sizeof(l->trace_id)) != 0)
			x->trace_id = querier_text(a, id, strlen(id));
	} else {
		querier_format_id(&p->at, id);
		x->profile_id = querier_text(a, id, strlen(id));
	}
	if (!x->span_id || !x->profile_id || !x->trace_id)
		return -ENOMEM;
	*ret = x;
	return exemplar_labels(e, p->at.series, a, x);
}

/* ---- series ---- */

static int make_point(struct arena *a, Pyroscope__Series *s, s64 time, double value)
{
	Pyroscope__Point *p = arena_alloc(a, sizeof(*p));

	if (!p)
		return -ENOMEM;
	pyroscope__point__init(p);
	p->value = value;
	p->timestamp = time;
	s->points[s->n_points++] = p;
	return 0;
}

static int make_series(struct arena *a, const Pyroscope__SelectSeriesRequest *in,
		       const char *values, size_t n_points, Pyroscope__Series **ret)
{
	Pyroscope__Series *s = arena_alloc(a, sizeof(*s));

	if (!s)
		return -ENOMEM;
	pyroscope__series__init(s);
	s->points = arena_calloc(a, n_points + 1, sizeof(*s->points));
	*ret = s;
	return s->points ? querier_pairs(a, in->group_by, in->n_group_by, values, &s->labels,
					 &s->n_labels)
			 : -ENOMEM;
}

/* Sums, or for states the sums of their means; by total, the largest first. */
static int make_sums(struct api_call *c, const Pyroscope__SelectSeriesRequest *in,
		     const struct query *q, struct steps *steps, struct arena *a,
		     struct query_lines *l, Pyroscope__SelectSeriesResponse *ret)
{
	int r = query_series(c->a->o.store, q, (u64)steps->step, (const char *const *)in->group_by,
			     in->n_group_by, l, &c->d);

	if (r < 0)
		return r;
	/* Steps grow at their ends when the samples are coarser. */
	steps->start += (s64)l->step_ms - steps->step;
	steps->step = (s64)l->step_ms;
	ret->series = arena_calloc(a, l->lines.n + 1, sizeof(*ret->series));
	if (!ret->series)
		return -ENOMEM;
	for (size_t i = 0; i < l->lines.n && r == 0; i++) {
		const struct query_line *e = &l->lines.data[i];
		Pyroscope__Series *s = NULL;

		r = make_series(a, in, e->labels, e->points.n, &s);
		for (size_t k = 0; k < e->points.n && r == 0; k++)
			r = make_point(a, s, (s64)(e->points.data[k].time_ms + l->step_ms - 1),
				       (double)e->points.data[k].value);
		ret->series[ret->n_series++] = s;
	}
	return r;
}

/* A line of averages, with the sum and the number of the profiles of its last step. */
struct mean {
	Pyroscope__Series *series;
	double sum, count, total;
};

static int add_to_mean(struct mean *m, const struct query_point_of *p, s64 step, struct arena *a)
{
	Pyroscope__Series *s = m->series;
	int r = 0;

	if (!s->n_points || s->points[s->n_points - 1]->timestamp != step) {
		m->sum = m->count = 0;
		r = make_point(a, s, step, 0);
	}
	if (r < 0)
		return r;
	m->sum += (double)p->value * (double)p->states;
	m->count += (double)p->states;
	s->points[s->n_points - 1]->value = m->sum / m->count;
	return 0;
}

static int compare_means(const void *a, const void *b)
{
	const struct mean *x = a, *y = b;

	return x->total > y->total ? -1 : x->total < y->total;
}

/* by_line has the series of each line of the points. */
static int make_averages(const Pyroscope__SelectSeriesRequest *in, const struct steps *steps,
			 const struct query_points *p, struct arena *a,
			 Pyroscope__SelectSeriesResponse *ret, Pyroscope__Series **by_line)
{
	struct mean *means = arena_calloc(a, p->lines.n + 1, sizeof(*means));
	size_t *n = arena_calloc(a, p->lines.n + 1, sizeof(*n));
	int r = 0;

	ret->series = arena_calloc(a, p->lines.n + 1, sizeof(*ret->series));
	if (!means || !n || !ret->series)
		return -ENOMEM;
	for (size_t i = 0; i < p->points.n; i++)
		n[p->points.data[i].line]++;
	for (size_t i = 0; i < p->lines.n && r == 0; i++) {
		r = make_series(a, in, p->lines.data[i], n[i], &means[i].series);
		by_line[i] = means[i].series;
	}
	for (size_t i = 0; i < p->points.n && r == 0; i++) {
		const struct query_point_of *e = &p->points.data[i];

		r = add_to_mean(&means[e->line], e, step_of(steps, e->at.time_ms), a);
	}
	for (size_t i = 0; i < p->lines.n && r == 0; i++)
		for (size_t k = 0; k < means[i].series->n_points; k++)
			means[i].total += means[i].series->points[k]->value;
	qsort(means, p->lines.n, sizeof(*means), compare_means);
	for (size_t i = 0; i < p->lines.n && r == 0; i++)
		if (means[i].series->n_points)
			ret->series[ret->n_series++] = means[i].series;
	return r;
}

static size_t labels_bytes(const char *values, size_t n)
{
	const char *end = values;

	for (size_t i = 0; i < n; i++)
		end += strlen(end) + 1;
	return (size_t)(end - values) + 1;
}

/* Finds the series with the labels of each line of the points. */
static int match_lines(const struct query_lines *l, const struct query_points *p, size_t n_names,
		       const Pyroscope__SelectSeriesResponse *all, Pyroscope__Series **by_line)
{
	__attribute__((cleanup(strtab_deinit))) struct strtab seen = {};
	int r = strtab_init(&seen);
	u32 id;

	/* An id is the index of the line, + 1. */
	for (size_t i = 0; i < l->lines.n && r == 0; i++)
		r = strtab_add(&seen, l->lines.data[i].labels,
			       labels_bytes(l->lines.data[i].labels, n_names), &id);
	for (size_t i = 0; i < p->lines.n && r == 0; i++) {
		r = strtab_add(&seen, p->lines.data[i], labels_bytes(p->lines.data[i], n_names),
			       &id);
		by_line[i] = r == 0 && id && id <= all->n_series ? all->series[id - 1] : NULL;
	}
	return r;
}

/* Gives each point the largest profile of its step as an exemplar. Points are by time. */
static int add_exemplars(const struct exemplars *e, const struct steps *steps, struct arena *a,
			 Pyroscope__Series **by_line)
{
	const struct query_points *p = e->points;
	size_t *at = arena_calloc(a, p->lines.n + 1, sizeof(*at));
	int r = at ? 0 : -ENOMEM;

	for (size_t i = 0; i < p->points.n && r == 0; i++) {
		const struct query_point_of *x = &p->points.data[i];
		Pyroscope__Series *s = by_line[x->line];
		s64 step = step_of(steps, x->at.time_ms);
		Pyroscope__Point *to;

		while (s && at[x->line] < s->n_points && s->points[at[x->line]]->timestamp < step)
			at[x->line]++;
		if (!s || at[x->line] == s->n_points)
			continue;
		to = s->points[at[x->line]];
		if (to->n_exemplars && to->exemplars[0]->value >= x->value)
			continue;
		if (!to->exemplars)
			to->exemplars = arena_calloc(a, 1, sizeof(*to->exemplars));
		if (!to->exemplars)
			return -ENOMEM;
		to->n_exemplars = 1;
		r = make_exemplar(e, x, a, &to->exemplars[0]);
	}
	return r;
}

static bool has_exemplars(Pyroscope__ExemplarType type)
{
	return type == PYROSCOPE__EXEMPLAR_TYPE__EXEMPLAR_TYPE_INDIVIDUAL ||
	       type == PYROSCOPE__EXEMPLAR_TYPE__EXEMPLAR_TYPE_SPAN;
}

static int fill_series(struct api_call *c, const Pyroscope__SelectSeriesRequest *in,
		       const struct query *q, struct steps *steps, struct arena *a,
		       Pyroscope__SelectSeriesResponse *ret)
{
	__attribute__((cleanup(query_points_deinit))) struct query_points p = {};
	__attribute__((cleanup(query_lines_deinit))) struct query_lines l = {};
	struct exemplars e = {.points = &p,
			      .group_by = in->group_by,
			      .n_group_by = in->n_group_by,
			      .type = in->exemplar_type};
	bool mean = in->aggregation == QUERIER_AVERAGE;
	bool of_spans = in->exemplar_type == PYROSCOPE__EXEMPLAR_TYPE__EXEMPLAR_TYPE_SPAN;
	Pyroscope__Series **by_line;
	int r = 0;

	if (mean && of_spans)
		return diag_set(&c->d, -EINVAL, "averages have no exemplars of spans");
	if (mean || has_exemplars(in->exemplar_type))
		r = query_points(c->a->o.store, q, of_spans, (const char *const *)in->group_by,
				 in->n_group_by, &p, &c->d);
	by_line = arena_calloc(a, p.lines.n + 1, sizeof(*by_line));
	if (r == 0 && !by_line)
		r = -ENOMEM;
	if (r == 0 && mean) {
		r = make_averages(in, steps, &p, a, ret, by_line);
	} else if (r == 0) {
		r = make_sums(c, in, q, steps, a, &l, ret);
		if (r == 0)
			r = match_lines(&l, &p, in->n_group_by, ret, by_line);
	}
	if (r == 0 && has_exemplars(in->exemplar_type)) {
		r = exemplars_init(&e);
		if (r == 0)
			r = add_exemplars(&e, steps, a, by_line);
	}
	map_deinit(&e.series);
	return r;
}

int querier_series_of(struct api_call *c, const Pyroscope__SelectSeriesRequest *in, struct arena *a,
		      Pyroscope__SelectSeriesResponse *ret)
{
	_cleanup_query_ struct query q = {};
	struct steps steps = {.step = 1};
	int r = set_steps(c, in->start, in->step, &steps);

	if (r == 0 && in->n_group_by > QUERIER_MAX_LABELS)
		r = diag_set(&c->d, -EINVAL, "at most %d labels", QUERIER_MAX_LABELS);
	if (r == 0)
		r = querier_query(c, in->profile_typeid, in->label_selector, in->start, in->end,
				  &q);
	if (r == 0)
		r = querier_call_site(in->stack_trace_selector, a, &q);
	if (r < 0)
		return r;
	/* Samples after the last step that ends in the range belong to the next one. */
	if (in->start > 0 && in->end > in->start)
		q.to_ms = (u64)(in->end - (in->end - in->start) % steps.step) + 1;
	set_first_step(&steps, &q);
	r = fill_series(c, in, &q, &steps, a, ret);
	if (r == 0 && in->limit > 0)
		ret->n_series = MIN(ret->n_series, (size_t)in->limit);
	return r;
}

int querier_series(struct api_call *c)
{
	Pyroscope__SelectSeriesResponse out = PYROSCOPE__SELECT_SERIES_RESPONSE__INIT;
	_cleanup_arena_ struct arena a = ARENA_INIT(QUERIER_ANSWER_BYTES);
	Pyroscope__SelectSeriesRequest *in = NULL;
	int r = querier_request(c, &pyroscope__select_series_request__descriptor, &a, &in);

	if (r == 0)
		r = querier_series_of(c, in, &a, &out);
	return r < 0 ? r : querier_answer(c, &out.base);
}

/* ---- heat maps ---- */

struct heat {
	const struct query_points *points;
	const struct exemplars *exemplars; /* NULL: none are asked for */
	struct steps steps;
	struct arena *a;
	s64 y_min[Y_BUCKETS + 1]; /* the last is the largest value */
};

/* Buckets of equal height from the least to the largest value of all series. */
static void set_buckets(struct heat *h)
{
	const struct query_points *p = h->points;
	s64 least = p->points.data[0].value, most = 0;
	double height;

	for (size_t i = 0; i < p->points.n; i++) {
		least = MIN(least, p->points.data[i].value);
		most = MAX(most, p->points.data[i].value);
	}
	if (least == most && most < INT64_MAX)
		most++;
	height = ((double)most - (double)least) / Y_BUCKETS;
	for (u32 i = 0; i < Y_BUCKETS; i++)
		h->y_min[i] = least + (s64)((double)i * height);
	h->y_min[Y_BUCKETS] = most;
}

static u32 bucket_of(const struct heat *h, s64 value)
{
	u32 i = 0;

	while (i + 1 < Y_BUCKETS && value >= h->y_min[i + 1])
		i++;
	return i;
}

static int new_slot(const struct heat *h, s64 step, Pyroscope__HeatmapSeries *s)
{
	Pyroscope__HeatmapSlot *slot = arena_alloc(h->a, sizeof(*slot));

	if (!slot)
		return -ENOMEM;
	pyroscope__heatmap_slot__init(slot);
	slot->timestamp = step;
	slot->y_min = arena_calloc(h->a, Y_BUCKETS, sizeof(*slot->y_min));
	slot->counts = arena_calloc(h->a, Y_BUCKETS, sizeof(*slot->counts));
	slot->exemplars = arena_calloc(h->a, Y_BUCKETS, sizeof(*slot->exemplars));
	if (!slot->y_min || !slot->counts || !slot->exemplars)
		return -ENOMEM;
	slot->n_y_min = slot->n_counts = Y_BUCKETS;
	for (u32 i = 0; i < Y_BUCKETS; i++)
		slot->y_min[i] = (double)h->y_min[i];
	s->slots[s->n_slots++] = slot;
	return 0;
}

/* Counts a point. Until the end, an exemplar is at the index of its bucket. */
static int count_point(const struct heat *h, const struct query_point_of *p,
		       Pyroscope__HeatmapSeries *s)
{
	s64 step = step_of(&h->steps, p->at.time_ms);
	u32 y = bucket_of(h, p->value);
	Pyroscope__HeatmapSlot *slot;
	int r = 0;

	if (!s->n_slots || s->slots[s->n_slots - 1]->timestamp != step)
		r = new_slot(h, step, s);
	if (r < 0)
		return r;
	slot = s->slots[s->n_slots - 1];
	slot->counts[y] += (s32)MIN(p->states, (u64)INT32_MAX - (u64)slot->counts[y]);
	if (h->exemplars && (!slot->exemplars[y] || slot->exemplars[y]->value < p->value))
		r = make_exemplar(h->exemplars, p, h->a, &slot->exemplars[y]);
	return r;
}

static void pack_exemplars(Pyroscope__HeatmapSeries *s)
{
	for (size_t i = 0; i < s->n_slots; i++)
		for (u32 y = 0; y < Y_BUCKETS; y++)
			if (s->slots[i]->exemplars[y])
				s->slots[i]->exemplars[s->slots[i]->n_exemplars++] =
					s->slots[i]->exemplars[y];
}

struct warm {
	Pyroscope__HeatmapSeries *series;
	const char *labels;
	size_t n_labels;
	u64 points;
};

static int compare_labels(const void *a, const void *b)
{
	const struct warm *x = a, *y = b;
	const char *p = x->labels, *q = y->labels;
	int r = 0;

	for (size_t i = 0; i < x->n_labels && r == 0; i++) {
		r = strcmp(p, q);
		p += strlen(p) + 1;
		q += strlen(q) + 1;
	}
	return r;
}

static int compare_points(const void *a, const void *b)
{
	const struct warm *x = a, *y = b;

	if (x->points != y->points)
		return x->points > y->points ? -1 : 1;
	return compare_labels(a, b);
}

/* Makes a series for each line that has points. */
static int fill_heat(struct heat *h, const Pyroscope__SelectHeatmapRequest *in, struct warm *lines,
		     Pyroscope__SelectHeatmapResponse *ret)
{
	const struct query_points *p = h->points;
	int r = 0;

	set_buckets(h);
	for (size_t i = 0; i < p->points.n; i++)
		lines[p->points.data[i].line].points++;
	for (size_t i = 0; i < p->lines.n && r == 0; i++) {
		Pyroscope__HeatmapSeries *s = arena_alloc(h->a, sizeof(*s));

		if (!s)
			return -ENOMEM;
		pyroscope__heatmap_series__init(s);
		s->slots = arena_calloc(h->a, lines[i].points + 1, sizeof(*s->slots));
		if (!s->slots)
			return -ENOMEM;
		lines[i].series = s;
		lines[i].labels = p->lines.data[i];
		lines[i].n_labels = in->n_group_by;
		r = querier_pairs(h->a, in->group_by, in->n_group_by, p->lines.data[i], &s->labels,
				  &s->n_labels);
	}
	for (size_t i = 0; i < p->points.n && r == 0; i++)
		r = count_point(h, &p->points.data[i], lines[p->points.data[i].line].series);
	qsort(lines, p->lines.n, sizeof(*lines),
	      in->limit > 0 && (size_t)in->limit < p->lines.n ? compare_points : compare_labels);
	for (size_t i = 0; i < p->lines.n && r == 0; i++) {
		if (!lines[i].points || (in->limit > 0 && ret->n_series >= (size_t)in->limit))
			continue;
		pack_exemplars(lines[i].series);
		ret->series[ret->n_series++] = lines[i].series;
	}
	return r;
}

static int check_heatmap(struct api_call *c, const Pyroscope__SelectHeatmapRequest *in,
			 bool *ret_spans)
{
	bool spans = in->query_type == PYROSCOPE__HEATMAP_QUERY_TYPE__HEATMAP_QUERY_TYPE_SPAN;

	if (!spans &&
	    in->query_type != PYROSCOPE__HEATMAP_QUERY_TYPE__HEATMAP_QUERY_TYPE_INDIVIDUAL)
		return diag_set(
			&c->d, -EINVAL,
			"queryType: HEATMAP_QUERY_TYPE_INDIVIDUAL or HEATMAP_QUERY_TYPE_SPAN");
	if (has_exemplars(in->exemplar_type) &&
	    spans != (in->exemplar_type == PYROSCOPE__EXEMPLAR_TYPE__EXEMPLAR_TYPE_SPAN))
		return diag_set(&c->d, -EINVAL, "exemplars are of the kind that the map counts");
	if (in->start <= 0 || in->start >= in->end)
		return diag_set(&c->d, -EINVAL, "start must be before end");
	if (in->limit < 0 || in->n_group_by > QUERIER_MAX_LABELS)
		return diag_set(&c->d, -EINVAL, "limit: not negative; groupBy: at most %d labels",
				QUERIER_MAX_LABELS);
	*ret_spans = spans;
	return 0;
}

int querier_heatmap(struct api_call *c)
{
	Pyroscope__SelectHeatmapResponse out = PYROSCOPE__SELECT_HEATMAP_RESPONSE__INIT;
	__attribute__((cleanup(query_points_deinit))) struct query_points p = {};
	_cleanup_arena_ struct arena a = ARENA_INIT(QUERIER_ANSWER_BYTES);
	Pyroscope__SelectHeatmapRequest *in = NULL;
	struct exemplars e = {.points = &p};
	struct heat h = {.points = &p, .a = &a};
	_cleanup_query_ struct query q = {};
	struct warm *lines;
	bool spans = false;
	int r = querier_request(c, &pyroscope__select_heatmap_request__descriptor, &a, &in);

	if (r == 0)
		r = set_steps(c, in->start, in->step, &h.steps);
	if (r == 0)
		r = check_heatmap(c, in, &spans);
	if (r == 0)
		r = querier_query(c, in->profile_typeid, in->label_selector, in->start, in->end,
				  &q);
	if (r < 0)
		return r;
	set_first_step(&h.steps, &q);
	r = query_points(c->a->o.store, &q, spans, (const char *const *)in->group_by,
			 in->n_group_by, &p, &c->d);
	if (r < 0)
		return r;
	e.group_by = in->group_by;
	e.n_group_by = in->n_group_by;
	e.type = in->exemplar_type;
	if (has_exemplars(in->exemplar_type))
		h.exemplars = &e;
	lines = arena_calloc(&a, p.lines.n + 1, sizeof(*lines));
	out.series = arena_calloc(&a, p.lines.n + 1, sizeof(*out.series));
	r = lines && out.series ? exemplars_init(&e) : -ENOMEM;
	if (r == 0 && p.points.n)
		r = fill_heat(&h, in, lines, &out);
	map_deinit(&e.series);
	return r < 0 ? r : querier_answer(c, &out.base);
}
