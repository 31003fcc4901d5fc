/* SPDX-License-Identifier: Apache-2.0 */
#include "server/analyze/analyze.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"

#define MAX_EXPLAINED 512 /* number of rows with the largest effects that are compared pairwise */
#define NEARLY_ALL 0.9
#define RARER 0.5

void analyze_slow_deinit(struct analyze_slow *s)
{
	strtab_deinit(&s->strings);
	vec_deinit(&s->rows);
}

/* ---- cohorts ---- */

static int compare_durations(const void *a, const void *b)
{
	const struct analyze_request *const *x = a, *const *y = b;

	return (*x)->duration_ns < (*y)->duration_ns ? -1 : (*x)->duration_ns > (*y)->duration_ns;
}

static u64 percentile(struct analyze_request *const *sorted, size_t n, double share)
{
	double all = 0, below = 0;

	for (size_t i = 0; i < n; i++)
		all += sorted[i]->weight;
	for (size_t i = 0; i < n; i++) {
		below += sorted[i]->weight;
		if (below >= all * share)
			return sorted[i]->duration_ns;
	}
	return n ? sorted[n - 1]->duration_ns : 0;
}

int analyze_cohorts(struct analyze_request *requests, size_t n, const struct analyze_shares *shares,
		    struct diag *reterr_diag)
{
	_cleanup_free_ struct analyze_request **sorted =
		calloc(n + 1, sizeof(struct analyze_request *));
	size_t count[3] = {};
	u64 slow, from, to;

	if (!sorted)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++)
		sorted[i] = &requests[i];
	if (n)
		qsort(sorted, n, sizeof(*sorted), compare_durations);
	slow = percentile(sorted, n, shares->slow);
	from = percentile(sorted, n, shares->middle_from);
	to = percentile(sorted, n, shares->middle_to);
	for (size_t i = 0; i < n; i++) {
		u64 ns = requests[i].duration_ns;

		requests[i].cohort = ns > slow && ns > to     ? ANALYZE_SLOW
				     : ns >= from && ns <= to ? ANALYZE_MIDDLE
							      : ANALYZE_OTHER;
		count[requests[i].cohort]++;
	}
	if (count[ANALYZE_SLOW] < 2 || count[ANALYZE_MIDDLE] < 2)
		return diag_set(reterr_diag, -ENODATA,
				"%zu requests, of which %zu are slow and %zu typical. Choose a "
				"longer range or a lower percentile.",
				n, count[ANALYZE_SLOW], count[ANALYZE_MIDDLE]);
	return 0;
}

/* ---- figures ---- */

double analyze_t(double v)
{
	static const double z = 1.959964, few[] = {12.706, 4.303, 3.182, 2.776};
	double z3 = z * z * z, z5 = z3 * z * z, z7 = z5 * z * z;

	/* Cornish-Fisher expansion: within 0.1 % from 5 degrees of freedom on. */
	if (v < 5)
		return few[v < 2 ? 0 : (u32)v - 1];
	return z + (z3 + z) / (4 * v) + (5 * z5 + 16 * z3 + 3 * z) / (96 * v * v) +
	       (3 * z7 + 19 * z5 + 17 * z3 - 15 * z) / (384 * v * v * v);
}

/* Sums over the requests of one cohort; requests without the function only add to the weight. */
struct moments {
	double sum;	       /* of weight * value */
	double cross, squares; /* of weight² * value, of (weight * value)² */
	double weight_running;
	double self;
};

struct totals {
	double weight, weight_squares;
	u64 n;
};

struct function {
	struct moments of[3]; /* by cohort */
	double depth, depth_weight;
	s64 at_line; /* the time of its row's line */
	/* The current request. */
	u32 request;
	s64 total, self;
};

struct slow {
	const struct profile *p;
	const struct analyze_request *requests;
	const struct analyze_sample *samples;
	size_t n_samples;
	struct analyze_slow *out;
	struct totals totals[3];
	u32 *frame_rows; /* owned; indexed by frame: row + 1 */
	struct map rows; /* name << 32 | object, apart for the kernel → row */
	vec(struct function) functions;
	struct map lines; /* row << 32 | line → time in slow requests */
	vec(u32) at_hand; /* functions in the current request */
	struct str scratch;
};

static void slow_deinit(struct slow *s)
{
	free(s->frame_rows);
	map_deinit(&s->rows);
	map_deinit(&s->lines);
	vec_deinit(&s->functions);
	vec_deinit(&s->at_hand);
	str_deinit(&s->scratch);
}

static const char *object_of(const struct profile *p, const struct profile_frame *f)
{
	const char *path = f->mapping < p->mappings.n
				   ? profile_string(p, p->mappings.data[f->mapping].path)
				   : "";
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static const char *file_of(const struct profile *p, const struct profile_frame *f)
{
	return f->function < p->functions.n ? profile_string(p, p->functions.data[f->function].file)
					    : "";
}

static int row_of_frame(struct slow *s, u32 id, u32 *ret)
{
	const struct profile_frame *f = &s->p->frames.data[id];
	const char *name, *object = object_of(s->p, f), *file = file_of(s->p, f);
	struct analyze_row row = {.kind = f->kind};
	u64 key, *known;
	int r;

	if (s->frame_rows[id]) {
		*ret = s->frame_rows[id] - 1;
		return 0;
	}
	name = profile_frame_name(s->p, id, &s->scratch);
	r = strtab_add(&s->out->strings, name, strlen(name), &row.name);
	if (r == 0)
		r = strtab_add(&s->out->strings, object, strlen(object), &row.object);
	if (r == 0)
		r = strtab_add(&s->out->strings, file, strlen(file), &row.file);
	if (r < 0)
		return r;
	key = ((u64)row.name << 32 | row.object) << 1 >> 1 | (u64)(f->kind == FRAME_KERNEL) << 63;
	if (key >= MAP_GONE_KEY)
		return -E2BIG;
	known = map_get(&s->rows, key);
	if (!known) {
		if (map_put(&s->rows, key, s->out->rows.n) < 0 ||
		    vec_push(&s->out->rows, row) < 0 ||
		    vec_push(&s->functions, (struct function){.request = PROFILE_NONE}) < 0)
			return -ENOMEM;
		*ret = (u32)s->out->rows.n - 1;
	} else {
		*ret = (u32)*known;
	}
	s->frame_rows[id] = *ret + 1;
	return 0;
}

/* Adds the current request's value of each function to the sums. */
static void close_request(struct slow *s, u32 request)
{
	const struct analyze_request *q = &s->requests[request];

	vec_foreach (&s->at_hand, at) {
		struct function *f = &s->functions.data[*at];
		struct moments *m = &f->of[q->cohort];

		m->sum += q->weight * (double)f->total;
		m->cross += q->weight * q->weight * (double)f->total;
		m->squares += q->weight * q->weight * (double)f->total * (double)f->total;
		m->weight_running += q->weight;
		m->self += q->weight * (double)f->self;
		f->request = PROFILE_NONE;
	}
	vec_clear(&s->at_hand);
}

/* A row has the file that its function was first seen in, and that file's lines. */
static int add_line(struct slow *s, u32 at, u32 frame, s64 value)
{
	const struct profile_frame *f = &s->p->frames.data[frame];
	struct analyze_row *row = &s->out->rows.data[at];
	u64 key = (u64)at << 32 | f->line, *known = map_get(&s->lines, key);
	s64 sum = value + (known ? (s64)*known : 0);
	int r;

	if (!f->line || strcmp(file_of(s->p, f), strtab_get(&s->out->strings, row->file)) != 0)
		return 0;
	r = map_put(&s->lines, key, (u64)sum);
	if (r == 0 && (!row->line || sum > s->functions.data[at].at_line)) {
		row->line = f->line;
		s->functions.data[at].at_line = sum;
	}
	return r;
}

static int add_sample(struct slow *s, const struct analyze_sample *e)
{
	const struct profile_stack *stack = &s->p->stacks.data[e->stack];
	bool slow = s->requests[e->request].cohort == ANALYZE_SLOW;

	for (u32 i = 0; i < stack->n; i++) {
		struct function *f;
		bool again = false;
		u32 row = 0;
		int r = row_of_frame(s, s->p->stack_frames.data[stack->first + i], &row);

		if (r < 0)
			return r;
		/* A recursive function counts once per stack. */
		for (u32 k = 0; k < i && !again; k++)
			again = s->frame_rows[s->p->stack_frames.data[stack->first + k]] == row + 1;
		f = &s->functions.data[row];
		if (f->request != e->request) {
			f->request = e->request;
			f->total = f->self = 0;
			if (vec_push(&s->at_hand, row) < 0)
				return -ENOMEM;
		}
		f->self += i ? 0 : e->value;
		if (again)
			continue;
		f->total += e->value;
		if (!slow)
			continue;
		f->depth += (double)(stack->n - i) * (double)e->value;
		f->depth_weight += (double)e->value;
		r = add_line(s, row, s->p->stack_frames.data[stack->first + i], e->value);
		if (r < 0)
			return r;
	}
	return 0;
}

static int add_samples(struct slow *s)
{
	int r = 0;

	for (size_t i = 0; i < s->n_samples && r == 0; i++) {
		const struct analyze_sample *e = &s->samples[i];

		if (s->requests[e->request].cohort == ANALYZE_OTHER)
			continue;
		r = add_sample(s, e);
		if (r == 0 && (i + 1 == s->n_samples || s->samples[i + 1].request != e->request))
			close_request(s, e->request);
	}
	return r;
}

/* The variance of the mean and its degrees of freedom. */
static double mean_variance(const struct moments *m, const struct totals *t, double *ret_degrees)
{
	double mean = m->sum / t->weight, n = t->weight * t->weight / t->weight_squares;
	/*
	 * The sum of (weight * (value - mean))² over all requests, including those without the
	 * function.
	 */
	double squares = m->squares - 2 * mean * m->cross + mean * mean * t->weight_squares;

	*ret_degrees = n > 2 ? n - 1 : 1;
	if (squares < 0)
		squares = 0;
	return squares / (t->weight * t->weight) * (n > 1 ? n / (n - 1) : 1);
}

static void fill_row(const struct slow *s, u32 at)
{
	const struct function *f = &s->functions.data[at];
	const struct moments *a = &f->of[ANALYZE_SLOW], *b = &f->of[ANALYZE_MIDDLE];
	const struct totals *ta = &s->totals[ANALYZE_SLOW], *tb = &s->totals[ANALYZE_MIDDLE];
	struct analyze_row *row = &s->out->rows.data[at];
	double na = 1, nb = 1, va = mean_variance(a, ta, &na), vb = mean_variance(b, tb, &nb);
	double sum = va + vb, spread, degrees;

	row->slow = a->sum / ta->weight;
	row->middle = b->sum / tb->weight;
	row->slow_self = a->self / ta->weight;
	row->middle_self = b->self / tb->weight;
	row->slow_running = a->weight_running / ta->weight;
	row->middle_running = b->weight_running / tb->weight;
	row->depth = f->depth_weight != 0 ? f->depth / f->depth_weight : 0;
	row->effect = row->rank = row->slow - row->middle;
	/* Welch and Satterthwaite. */
	degrees = sum > 0 ? sum * sum / (va * va / na + vb * vb / nb) : 1;
	spread = analyze_t(degrees) * sqrt(sum);
	row->low = row->effect - spread;
	row->high = row->effect + spread;
}

static void add_totals(struct slow *s, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const struct analyze_request *q = &s->requests[i];
		struct totals *t = &s->totals[q->cohort];
		struct analyze_group *g =
			q->cohort == ANALYZE_SLOW ? &s->out->slow : &s->out->middle;

		t->weight += q->weight;
		t->weight_squares += q->weight * q->weight;
		t->n++;
		if (q->cohort == ANALYZE_OTHER)
			continue;
		if (!g->requests++ || q->duration_ns < g->from_ns)
			g->from_ns = q->duration_ns;
		g->to_ns = MAX(g->to_ns, q->duration_ns);
		g->weight += q->weight;
		/* The running mean. */
		g->mean_ns += ((double)q->duration_ns - g->mean_ns) * q->weight / g->weight;
	}
	for (size_t i = 0; i < s->n_samples; i++) {
		const struct analyze_request *q = &s->requests[s->samples[i].request];
		double value = (double)s->samples[i].value * q->weight;
		struct analyze_group *g =
			q->cohort == ANALYZE_SLOW ? &s->out->slow : &s->out->middle;

		if (q->cohort == ANALYZE_OTHER)
			continue;
		g->value += value / s->totals[q->cohort].weight;
		g->sampled += !i || s->samples[i - 1].request != s->samples[i].request;
	}
}

static int compute_totals(struct slow *s, size_t n)
{
	/* First the sums of weights, by which values are divided. */
	for (size_t i = 0; i < n; i++)
		if (!(s->requests[i].weight > 0))
			return -EINVAL;
	add_totals(s, n);
	return 0;
}

/* ---- what is explained by what it calls ---- */

struct ranked {
	u32 *order; /* owned; rows by effect, descending */
	u32 *place; /* owned; indexed by row: position + 1 in `order`; 0 = not compared */
	size_t n;
	double *below; /* owned; n * n: effect that a row shares with one below it */
};

static void ranked_deinit(struct ranked *k)
{
	free(k->order);
	free(k->place);
	free(k->below);
}

static int compare_effects(const void *a, const void *b, void *arg)
{
	const struct analyze_row *rows = arg, *x = &rows[*(const u32 *)a],
				 *y = &rows[*(const u32 *)b];

	return x->effect > y->effect ? -1 : x->effect < y->effect;
}

static int rank_all(struct slow *s, struct ranked *k)
{
	size_t n = s->out->rows.n;

	k->order = calloc(n + 1, sizeof(*k->order));
	k->place = calloc(n + 1, sizeof(*k->place));
	if (!k->order || !k->place)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++)
		k->order[i] = (u32)i;
	if (n)
		qsort_r(k->order, n, sizeof(*k->order), compare_effects, s->out->rows.data);
	for (k->n = 0; k->n < n && k->n < MAX_EXPLAINED; k->n++) {
		if (s->out->rows.data[k->order[k->n]].effect <= 0)
			break;
		k->place[k->order[k->n]] = (u32)k->n + 1;
	}
	k->below = calloc(k->n * k->n + 1, sizeof(*k->below));
	return k->below ? 0 : -ENOMEM;
}

/* Adds a stack's part of the mean difference for each pair of caller and callee in it. */
static void add_stack(struct slow *s, struct ranked *k, u32 stack, double effect)
{
	const struct profile_stack *e = &s->p->stacks.data[stack];
	const u32 *frames = s->p->stack_frames.data + e->first;
	u32 places[128], n = 0;

	/* Leaf first, each row once: rows before are callees. */
	for (u32 i = 0; i < e->n && n < ARRAY_SIZE(places); i++) {
		u32 row = s->frame_rows[frames[i]], place = row ? k->place[row - 1] : 0;
		bool again = false;

		for (u32 j = 0; j < n && !again; j++)
			again = places[j] == place;
		if (place && !again)
			places[n++] = place;
	}
	for (u32 upper = 1; upper < n; upper++)
		for (u32 lower = 0; lower < upper; lower++)
			k->below[(places[upper] - 1) * k->n + places[lower] - 1] += effect;
}

static double rarity(const struct analyze_row *r)
{
	return r->slow > 0 ? r->middle / r->slow : 1;
}

/*
 * Whether `lower`'s excess in slow requests is nearly all of the excess of its caller `upper`, and
 * of its size.
 */
static bool is_part(const struct slow *s, const struct ranked *k, size_t upper, size_t lower)
{
	const struct analyze_row *u = &s->out->rows.data[k->order[upper]],
				 *l = &s->out->rows.data[k->order[lower]];

	return upper != lower && !u->explained && u->effect >= NEARLY_ALL * l->effect &&
	       k->below[upper * k->n + lower] >= NEARLY_ALL * l->effect;
}

/* Ranks callees of a code path not before the path. */
static void rank_parts(struct slow *s, const struct ranked *k)
{
	for (size_t lower = 0; lower < k->n; lower++) {
		struct analyze_row *l = &s->out->rows.data[k->order[lower]];

		for (size_t upper = 0; upper < k->n; upper++)
			if (is_part(s, k, upper, lower))
				l->rank = MIN(l->rank, s->out->rows.data[k->order[upper]].effect);
	}
}

static int explain(struct slow *s)
{
	__attribute__((cleanup(ranked_deinit))) struct ranked k = {};
	int r = rank_all(s, &k);

	for (size_t i = 0; i < s->n_samples && r == 0; i++) {
		const struct analyze_sample *e = &s->samples[i];
		const struct analyze_request *q = &s->requests[e->request];
		double value = (double)e->value * q->weight / s->totals[q->cohort].weight;

		if (q->cohort != ANALYZE_OTHER)
			add_stack(s, &k, e->stack, q->cohort == ANALYZE_SLOW ? value : -value);
	}
	for (size_t i = 0; i < k.n && r == 0; i++) {
		struct analyze_row *upper = &s->out->rows.data[k.order[i]];

		for (size_t j = 0; j < k.n && !upper->explained; j++) {
			const struct analyze_row *lower = &s->out->rows.data[k.order[j]];

			upper->explained = i != j &&
					   k.below[i * k.n + j] >= NEARLY_ALL * upper->effect &&
					   rarity(lower) < RARER * rarity(upper);
		}
	}
	if (r == 0)
		rank_parts(s, &k);
	return r;
}

/* ---- all of it ---- */

static int compare_rows(const void *a, const void *b)
{
	const struct analyze_row *x = a, *y = b;

	if (x->explained != y->explained)
		return x->explained - y->explained;
	/* All rows of a path have the same rank, except for rounding. */
	if (fabs(x->rank - y->rank) > 1e-9 * (fabs(x->rank) + fabs(y->rank)))
		return x->rank > y->rank ? -1 : 1;
	if (x->depth != y->depth)
		return x->depth < y->depth ? -1 : 1;
	return x->name < y->name ? -1 : x->name > y->name;
}

static int compute(struct slow *s, size_t n_requests)
{
	int r = compute_totals(s, n_requests);

	if (r == 0)
		r = add_samples(s);
	for (u32 i = 0; i < s->out->rows.n && r == 0; i++)
		fill_row(s, i);
	if (r == 0)
		r = explain(s);
	if (r == 0 && s->out->rows.n)
		qsort(s->out->rows.data, s->out->rows.n, sizeof(*s->out->rows.data), compare_rows);
	return r;
}

int analyze_slow(const struct profile *p, const struct analyze_request *requests, size_t n_requests,
		 const struct analyze_sample *samples, size_t n_samples, struct analyze_slow *ret)
{
	struct analyze_slow out = {};
	struct slow s = {.p = p,
			 .requests = requests,
			 .samples = samples,
			 .n_samples = n_samples,
			 .out = &out};
	int r = strtab_init(&out.strings);

	s.frame_rows = calloc(p->frames.n + 1, sizeof(*s.frame_rows));
	if (r == 0 && !s.frame_rows)
		r = -ENOMEM;
	if (r == 0)
		r = compute(&s, n_requests);
	slow_deinit(&s);
	if (r == 0)
		*ret = out;
	else
		analyze_slow_deinit(&out);
	return r;
}
