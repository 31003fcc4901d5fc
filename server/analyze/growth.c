/* SPDX-License-Identifier: Apache-2.0 */
/*
 * analyze_growth(): slopes by instance and site, and their sums.
 *
 * An instance that lived in n of N buckets has the weight n / N: the sum over instances is what the
 * service gained per second, without warm-ups and without what was freed by ends of processes. All
 * sites of an instance have the same times, so least squares, which is linear in the values, makes
 * the slopes of sites add up to that of their sum; a median of slopes would not.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "profile/table.h"
#include "server/analyze/analyze.h"

/* However much residuals depend on one another, a curve that rises all the time is growth. */
#define FEWEST_POINTS 4.0
/* A fall by more than so many standard deviations of the noise is one. */
#define NOISE 5.0
#define SMALL 1e-3

void analyze_growth_deinit(struct analyze_growth *g)
{
	free(g->sites);
	*g = (struct analyze_growth){};
}

/* ---- one series ---- */

/* The 99.95 % quantile of Student's t distribution. */
static double far_t(double v)
{
	static const double z = 3.290527, few[] = {636.6, 31.6, 12.92, 8.61, 6.869, 5.959};
	double z3 = z * z * z, z5 = z3 * z * z, z7 = z5 * z * z;

	if (v < 7)
		return few[v < 2 ? 0 : (u32)v - 1];
	return z + (z3 + z) / (4 * v) + (5 * z5 + 16 * z3 + 3 * z) / (96 * v * v) +
	       (3 * z7 + 19 * z5 + 17 * z3 - 15 * z) / (384 * v * v * v);
}

static void set_interval(struct analyze_rate *r)
{
	double spread = sqrt(r->variance);

	r->low = r->slope - analyze_t(r->degrees) * spread;
	r->high = r->slope + analyze_t(r->degrees) * spread;
	r->sure = r->slope - far_t(r->degrees) * spread;
}

/* Of a mean of what was drawn. */
static void set_sum_interval(struct analyze_rate *r)
{
	set_interval(r);
	if (r->slope <= 0 || r->variance <= 0)
		return;
	r->low = profile_sum_bound(r->slope, r->variance, -analyze_t(r->degrees));
	r->high = profile_sum_bound(r->slope, r->variance, analyze_t(r->degrees));
	r->sure = profile_sum_bound(r->slope, r->variance, -far_t(r->degrees));
}

/*
 * How many independent residuals n residuals are worth, by the correlation of neighbours. A few
 * residuals show less correlation than there is (Kendall 1954), for which it is corrected.
 */
static double effective(const double *residuals, size_t n)
{
	double sum = 0, next = 0, r;

	for (size_t i = 0; i < n; i++) {
		sum += residuals[i] * residuals[i];
		if (i)
			next += residuals[i] * residuals[i - 1];
	}
	if (sum <= 0)
		return (double)n;
	r = next / sum;
	r += (1 + 4 * r) / (double)n;
	r = MIN(MAX(r, 0), 0.99);
	return MAX((double)n * (1 - r) / (1 + r), FEWEST_POINTS);
}

bool analyze_slope(const double *times, const double *values, size_t n, struct analyze_rate *ret)
{
	double t = 0, v = 0, tt = 0, tv = 0, squares = 0, worth;
	double *residuals;

	if (n < ANALYZE_GROWTH_POINTS)
		return false;
	for (size_t i = 0; i < n; i++) {
		t += times[i] / (double)n;
		v += values[i] / (double)n;
	}
	for (size_t i = 0; i < n; i++) {
		tt += (times[i] - t) * (times[i] - t);
		tv += (times[i] - t) * (values[i] - v);
	}
	residuals = calloc(n, sizeof(*residuals));
	if (tt <= 0 || !residuals) {
		free(residuals);
		return false;
	}
	*ret = (struct analyze_rate){.slope = tv / tt};
	for (size_t i = 0; i < n; i++) {
		residuals[i] = values[i] - v - ret->slope * (times[i] - t);
		squares += residuals[i] * residuals[i];
	}
	worth = effective(residuals, n);
	free(residuals);
	ret->degrees = worth - 2;
	/* Of the variance of a residual n / worth remains, of the number of points worth / n. */
	ret->variance = squares / ret->degrees / tt;
	set_interval(ret);
	return true;
}

bool analyze_mean(const double *rates, size_t n, u64 samples, struct analyze_rate *ret)
{
	double mean = 0, squares = 0, worth, *residuals;

	if (n < ANALYZE_GROWTH_POINTS)
		return false;
	residuals = calloc(n, sizeof(*residuals));
	if (!residuals)
		return false;
	for (size_t i = 0; i < n; i++)
		mean += rates[i] / (double)n;
	for (size_t i = 0; i < n; i++) {
		residuals[i] = rates[i] - mean;
		squares += residuals[i] * residuals[i];
	}
	worth = effective(residuals, n);
	free(residuals);
	*ret = (struct analyze_rate){.slope = mean, .degrees = worth - 1};
	ret->variance = squares / (double)n / ret->degrees;
	if (samples && mean * mean / (double)samples > ret->variance) {
		ret->variance = mean * mean / (double)samples;
		ret->degrees = (double)n - 1;
	}
	set_sum_interval(ret);
	return true;
}

/* ---- instances ---- */

/* The buckets of an instance that count; and the sum of its sites in each. */
struct counted {
	u32 n;
	u32 *buckets;
	double *sum;
	double weight;
};

struct growing {
	const struct analyze_growing *g;
	struct analyze_growth *out;
	struct counted *instances;
	double *times, *values; /* of the series at hand */
	double *terms;		/* by site: the denominator of Welch and Satterthwaite */
	double all_terms;
	u64 *steps, *rises; /* by site, and of all */
	u64 samples;
};

static void growing_deinit(struct growing *w)
{
	for (u32 i = 0; w->instances && i < w->g->n_instances; i++) {
		free(w->instances[i].buckets);
		free(w->instances[i].sum);
	}
	free(w->instances);
	free(w->times);
	free(w->values);
	free(w->terms);
	free(w->steps);
	free(w->rises);
}

static int count_buckets(struct growing *w)
{
	const struct analyze_growing *g = w->g;
	_cleanup_free_ u8 *covered = calloc(g->n_buckets + 1, 1);
	double n_covered = 0;

	if (!covered)
		return -ENOMEM;
	for (u32 i = 0; i < g->n_instances; i++) {
		struct counted *c = &w->instances[i];

		c->buckets = calloc(g->n_buckets + 1, sizeof(*c->buckets));
		c->sum = calloc(g->n_buckets + 1, sizeof(*c->sum));
		if (!c->buckets || !c->sum)
			return -ENOMEM;
		for (u32 b = g->instances[i].first; b < g->n_buckets; b++)
			if (g->instances[i].whole[b])
				c->buckets[c->n++] = b;
		w->out->points = MAX(w->out->points, c->n);
		if (c->n < ANALYZE_GROWTH_POINTS)
			continue;
		w->out->used++;
		for (u32 b = g->instances[i].begin; b < g->instances[i].end; b++)
			covered[b] = 1;
	}
	for (u32 b = 0; b < g->n_buckets; b++)
		n_covered += covered[b];
	for (u32 i = 0; i < g->n_instances; i++)
		if (w->instances[i].n >= ANALYZE_GROWTH_POINTS)
			w->instances[i].weight =
				(g->instances[i].end - g->instances[i].begin) / n_covered;
	return 0;
}

static int compare_doubles(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *values, size_t n)
{
	qsort(values, n, sizeof(*values), compare_doubles);
	return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

/*
 * Whether a series never falls from its maximum by more than noise, and rises by more. Noise is
 * that of the steps between neighbours: of a sawtooth most steps are alike, so that its falls are
 * none.
 */
static bool only_rises(const double *values, size_t n, double rise, double *scratch)
{
	double most = values[0], fall = 0, noise, middle;

	for (size_t i = 1; i < n; i++) {
		scratch[i - 1] = values[i] - values[i - 1];
		most = MAX(most, values[i]);
		fall = MAX(fall, most - values[i]);
	}
	middle = median(scratch, n - 1);
	for (size_t i = 0; i + 1 < n; i++)
		scratch[i] = fabs(scratch[i] - middle);
	/* A step is the difference of two values, each with the noise. */
	noise = 1.4826 / M_SQRT2 * median(scratch, n - 1);
	return fall <= NOISE * noise + SMALL * most && rise > NOISE * noise;
}

/* ---- sums over instances ---- */

static void add_rate(struct analyze_site *s, double *terms, const struct analyze_rate *r,
		     double weight)
{
	double variance = r->variance * weight * weight;

	s->rate.slope += r->slope * weight;
	s->rate.variance += variance;
	*terms += variance * variance / r->degrees;
}

/* Adds a series of an instance to a site, or to the sum of all. */
static bool add_series(struct growing *w, const struct counted *c, const double *by_bucket,
		       u64 samples, struct analyze_site *s, u32 at, double *terms)
{
	const struct analyze_growing *g = w->g;
	struct analyze_rate r;
	bool any = false;

	for (u32 k = 0; k < c->n; k++) {
		w->times[k] = c->buckets[k] * g->step_s;
		w->values[k] = by_bucket[c->buckets[k]] / (g->over_time ? g->step_s : 1);
		any |= w->values[k] != 0;
		w->rises[at] += k && w->values[k] > w->values[k - 1];
	}
	w->steps[at] += c->n - 1;
	if (!any)
		return true;
	if (g->over_time ? !analyze_mean(w->values, c->n, samples, &r)
			 : !analyze_slope(w->times, w->values, c->n, &r))
		return false;
	add_rate(s, terms, &r, c->weight);
	if (!g->over_time) {
		double rise = r.slope * (w->times[c->n - 1] - w->times[0]);

		/* The times are not needed any more. */
		s->only_grows &= only_rises(w->values, c->n, rise, w->times);
	}
	return true;
}

static void add_ends(struct growing *w, u32 instance, const double *values, struct analyze_site *s)
{
	const struct counted *c = &w->instances[instance];

	s->first += values[c->buckets[0]];
	s->last += values[c->buckets[c->n - 1]];
}

static int add_cells(struct growing *w)
{
	const struct analyze_growing *g = w->g;

	for (size_t i = 0; i < g->n_cells; i++) {
		const struct analyze_cell *e = &g->cells[i];
		struct counted *c = &w->instances[e->instance];
		struct analyze_site *s = &w->out->sites[e->site];

		if (c->weight <= 0)
			continue;
		for (u32 k = 0; k < c->n; k++)
			c->sum[c->buckets[k]] += e->values[c->buckets[k]];
		if (!add_series(w, c, e->values, g->samples ? g->samples[e->site] : 0, s, e->site,
				&w->terms[e->site]))
			return -ENOMEM;
		add_ends(w, e->instance, e->values, s);
	}
	return 0;
}

static void finish(struct growing *w, struct analyze_site *s, u32 at, double terms)
{
	struct analyze_rate *r = &s->rate;

	r->degrees = terms > 0 ? r->variance * r->variance / terms : 1e6;
	if (w->g->over_time)
		set_sum_interval(r);
	else
		set_interval(r);
	s->grew = w->steps[at] ? (double)w->rises[at] / (double)w->steps[at] : 0;
	s->only_grows &= r->low > 0 && !w->g->over_time;
	s->sure = r->sure > 0 || s->only_grows;
}

static int compare_sites(const void *a, const void *b)
{
	const struct analyze_site *x = a, *y = b;
	double p = MAX(x->rate.sure, 0), q = MAX(y->rate.sure, 0);

	if (p != q)
		return p > q ? -1 : 1;
	if (x->rate.low != y->rate.low)
		return x->rate.low > y->rate.low ? -1 : 1;
	return x->site < y->site ? -1 : x->site > y->site;
}

static int add_up(struct growing *w)
{
	const struct analyze_growing *g = w->g;
	struct analyze_growth *out = w->out;
	int r = add_cells(w);

	for (u32 i = 0; i < g->n_instances && r == 0; i++) {
		if (w->instances[i].weight <= 0)
			continue;
		if (!add_series(w, &w->instances[i], w->instances[i].sum, w->samples, &out->all,
				g->n_sites, &w->all_terms))
			r = -ENOMEM;
		add_ends(w, i, w->instances[i].sum, &out->all);
	}
	for (u32 i = 0; i < g->n_sites && r == 0; i++)
		finish(w, &out->sites[i], i, w->terms[i]);
	finish(w, &out->all, g->n_sites, w->all_terms);
	out->n_sites = g->n_sites;
	if (out->n_sites)
		qsort(out->sites, out->n_sites, sizeof(*out->sites), compare_sites);
	return r;
}

int analyze_growth(const struct analyze_growing *g, struct analyze_growth *ret)
{
	struct analyze_growth out = {.all = {.only_grows = true}};
	__attribute__((cleanup(growing_deinit))) struct growing w = {.g = g, .out = &out};
	size_t n = (size_t)g->n_sites + 1;
	int r;

	out.sites = calloc(n, sizeof(*out.sites));
	w.instances = calloc(g->n_instances + 1, sizeof(*w.instances));
	w.times = calloc(g->n_buckets + 1, sizeof(*w.times));
	w.values = calloc(g->n_buckets + 1, sizeof(*w.values));
	w.terms = calloc(n, sizeof(*w.terms));
	w.steps = calloc(n, sizeof(*w.steps));
	w.rises = calloc(n, sizeof(*w.rises));
	r = out.sites && w.instances && w.times && w.values && w.terms && w.steps && w.rises
		    ? count_buckets(&w)
		    : -ENOMEM;
	for (u32 i = 0; i < g->n_sites && r == 0; i++) {
		out.sites[i] = (struct analyze_site){.site = i, .only_grows = true};
		w.samples += g->samples ? g->samples[i] : 0;
	}
	if (r == 0 && out.used)
		r = add_up(&w);
	if (r < 0) {
		analyze_growth_deinit(&out);
		return r;
	}
	*ret = out;
	return 0;
}
