/* SPDX-License-Identifier: Apache-2.0 */
/* Growth of series whose slope is known, with noise of a fixed seed. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "profile_fixture.h"
#include "server/analyze/analyze.h"

#define N 60
#define STEP_S 10
#define MB 1e6

static u64 seed = 1;

static double uniform(void)
{
	return (double)(hash_u64(seed += 0x9e3779b97f4a7c15ULL) >> 11) / (double)(1ULL << 53);
}

/* Of a normal distribution. */
static double noise(void)
{
	return sqrt(-2 * log(uniform() + 1e-300)) * cos(2 * M_PI * uniform());
}

static struct analyze_rate slope_of(double (*value)(double x), u32 n)
{
	double times[N], values[N];
	struct analyze_rate r = {};

	for (u32 i = 0; i < n; i++) {
		times[i] = i * STEP_S;
		values[i] = value((double)i / n);
	}
	cr_assert(analyze_slope(times, values, n, &r));
	return r;
}

static double line(double x)
{
	return 5 * MB + x * N * STEP_S * 1000;
}

static double step_up(double x)
{
	return x < 0.4 ? 10 * MB : 60 * MB;
}

static double early_step(double x)
{
	return x < 0.1 ? 0 : MB;
}

static double sawtooth(double x)
{
	return 50 * MB * fmod(x * 7.3, 1);
}

static double leak_in_sawtooth(double x)
{
	return sawtooth(x) + 60 * MB * x;
}

static double constant(double x)
{
	return 3 * MB + 0 * x;
}

static double faster_and_faster(double x)
{
	return MB * x * x;
}

static double cache_that_fills(double x)
{
	return 100 * MB * (1 - exp(-x / 0.08));
}

Test(growth, exact_line)
{
	struct analyze_rate r = slope_of(line, N);

	cr_assert_float_eq(r.slope, 1000, 1e-6);
	cr_assert_float_eq(r.low, 1000, 1e-3);
	cr_assert_float_eq(r.high, 1000, 1e-3);
}

/* None of these is a leak, so the interval has 0. */
Test(growth, what_does_not_go_on)
{
	double (*const values[])(double) = {step_up, early_step, sawtooth, constant,
					    cache_that_fills};

	for (size_t i = 0; i < ARRAY_SIZE(values); i++) {
		struct analyze_rate r = slope_of(values[i], N);

		cr_assert(r.low <= 0 && r.high >= 0, "%zu: %f %f %f", i, r.low, r.slope, r.high);
	}
}

Test(growth, what_goes_on)
{
	struct analyze_rate r = slope_of(leak_in_sawtooth, N);

	cr_assert(r.low > 0 && r.low < 60 * MB / (N * STEP_S) && r.high > 60 * MB / (N * STEP_S),
		  "%f %f %f", r.low, r.slope, r.high);
	r = slope_of(faster_and_faster, N);
	cr_assert(r.low > 0, "%f %f %f", r.low, r.slope, r.high);
}

Test(growth, too_few_points)
{
	double times[N] = {}, values[N] = {};
	struct analyze_rate r;

	for (u32 i = 0; i < N; i++)
		times[i] = i;
	cr_assert(!analyze_slope(times, values, ANALYZE_GROWTH_POINTS - 1, &r));
	cr_assert(analyze_slope(times, values, ANALYZE_GROWTH_POINTS, &r));
	cr_assert(!analyze_mean(values, ANALYZE_GROWTH_POINTS - 1, 0, &r));
}

/* The share of simulated series whose interval has the true slope. */
static double coverage(u32 n, double correlation)
{
	const u32 runs = 4000;
	double times[N], values[N], truth = 0.3;
	u32 hits = 0;

	for (u32 k = 0; k < runs; k++) {
		struct analyze_rate r;
		double e = noise();

		for (u32 i = 0; i < n; i++) {
			e = correlation * e + sqrt(1 - correlation * correlation) * noise();
			times[i] = i * STEP_S;
			values[i] = 100 + truth * times[i] + 50 * e;
		}
		cr_assert(analyze_slope(times, values, n, &r));
		hits += r.low <= truth && truth <= r.high;
	}
	return (double)hits / runs;
}

Test(growth, coverage_of_the_interval)
{
	const struct {
		u32 n;
		double correlation, low, high;
	} cases[] = {{60, 0, 0.945, 0.985}, {20, 0, 0.945, 0.99},  {8, 0, 0.94, 1},
		     {60, 0.5, 0.93, 0.99}, {60, 0.8, 0.91, 0.99}, {20, 0.5, 0.90, 0.99}};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		double c = coverage(cases[i].n, cases[i].correlation);

		cr_log_info("n %u, correlation %.1f: %.3f", cases[i].n, cases[i].correlation, c);
		cr_assert(c >= cases[i].low && c <= cases[i].high, "n %u, correlation %.1f: %.3f",
			  cases[i].n, cases[i].correlation, c);
	}
}

Test(growth, coverage_of_a_mean)
{
	const u32 runs = 4000;
	u32 hits = 0;

	for (u32 k = 0; k < runs; k++) {
		struct analyze_rate r;
		double rates[30];

		for (u32 i = 0; i < ARRAY_SIZE(rates); i++)
			rates[i] = 100 + 40 * noise();
		cr_assert(analyze_mean(rates, ARRAY_SIZE(rates), 0, &r));
		hits += r.low <= 100 && 100 <= r.high;
	}
	cr_assert(hits > 0.94 * runs && hits < 0.985 * runs, "%u of %u", hits, runs);
}

/* Rates that are all alike are not exact: each stands for few samples. */
Test(growth, a_mean_of_few_samples)
{
	struct analyze_rate r;
	double rates[20];

	for (u32 i = 0; i < ARRAY_SIZE(rates); i++)
		rates[i] = 100;
	cr_assert(analyze_mean(rates, ARRAY_SIZE(rates), 16, &r));
	cr_assert(r.low < 60 && r.low > 40 && r.high > 150 && r.high < 170, "%f %f", r.low, r.high);
}

/* 1 kB/s, of which one object a second is seen with a probability of 1 %: 6 in ten minutes. */
Test(growth, coverage_of_a_rare_leak)
{
	const u32 runs = 4000;
	u32 hits = 0, unseen = 0;

	for (u32 k = 0; k < runs; k++) {
		double rates[60] = {};
		struct analyze_rate r;
		u64 seen = 0;

		for (u32 i = 0; i < ARRAY_SIZE(rates); i++)
			for (u32 second = 0; second < 10; second++)
				if (uniform() < 0.01) {
					rates[i] += 1000 / 0.01 / 10;
					seen++;
				}
		cr_assert(analyze_mean(rates, ARRAY_SIZE(rates), seen, &r));
		hits += seen && r.low <= 1000 && 1000 <= r.high;
		unseen += !seen;
	}
	cr_assert(hits > 0.93 * runs && hits < 0.99 * runs, "%u of %u", hits, runs);
	cr_assert(unseen < 0.01 * runs, "%u", unseen);
}

/* ---- sites and instances ---- */

struct made {
	struct analyze_growing g;
	struct analyze_instance instances[8];
	u8 whole[8][N];
	double values[64][N];
	struct analyze_cell cells[64];
};

static void made_init(struct made *m, u32 n_instances, u32 n_sites)
{
	*m = (struct made){.g = {.step_s = STEP_S,
				 .n_buckets = N,
				 .n_instances = n_instances,
				 .n_sites = n_sites,
				 .n_cells = (size_t)n_instances * n_sites}};
	m->g.instances = m->instances;
	m->g.cells = m->cells;
	for (u32 i = 0; i < n_instances; i++) {
		m->instances[i].whole = m->whole[i];
		m->instances[i].end = N;
		memset(m->whole[i], 1, N);
		for (u32 s = 0; s < n_sites; s++)
			m->cells[i * n_sites + s] =
				(struct analyze_cell){i, s, m->values[i * n_sites + s]};
	}
}

static double *values_of(struct made *m, u32 instance, u32 site)
{
	return m->values[instance * m->g.n_sites + site];
}

static struct analyze_growth analyze(const struct made *m)
{
	struct analyze_growth out = {};

	cr_assert_eq(analyze_growth(&m->g, &out), 0);
	return out;
}

/* 1 kB/s beside sites whose memory goes up and down by megabytes. */
Test(growth, a_small_leak_beside_noise_comes_first)
{
	u32 unsure = 0;

	for (u32 run = 0; run < 100; run++) {
		struct made m;
		struct analyze_growth out;

		made_init(&m, 1, 40);
		for (u32 b = 0; b < N; b++) {
			values_of(&m, 0, 17)[b] = 1000.0 * b * STEP_S + 4096 * uniform();
			for (u32 s = 0; s < 40; s++)
				if (s != 17)
					values_of(&m, 0, s)[b] = 200 * MB + 20 * MB * noise();
		}
		out = analyze(&m);
		cr_assert_eq(out.sites[0].site, 17, "run %u", run);
		cr_assert(out.sites[0].only_grows);
		cr_assert_float_eq(out.sites[0].rate.slope, 1000, 20);
		cr_assert(out.sites[0].rate.low > 950 && out.sites[0].rate.high < 1050);
		for (u32 s = 0; s < 40; s++)
			cr_assert(!out.sites[s].only_grows || !s);
		unsure += !out.sites[1].sure;
		analyze_growth_deinit(&out);
	}
	/* One in 2,000 is sure by chance, and there are 3,900. */
	cr_assert(unsure >= 94, "%u", unsure);
}

Test(growth, slopes_of_sites_add_up)
{
	struct made m;
	struct analyze_growth out;
	double sum = 0;

	made_init(&m, 2, 10);
	memset(m.whole[1], 0, 25);
	m.instances[1].begin = 25;
	m.instances[1].first = 31;
	for (u32 i = 0; i < 2; i++)
		for (u32 s = 0; s < 10; s++)
			for (u32 b = 0; b < N; b++)
				values_of(&m, i, s)[b] = MB * (double)s * b + MB * noise();
	out = analyze(&m);
	for (u32 s = 0; s < 10; s++)
		sum += out.sites[s].rate.slope;
	cr_assert_float_eq(sum, out.all.rate.slope, 1e-6 * sum);
	analyze_growth_deinit(&out);
}

/* A process that is replaced again and again holds more each time until it ends: no leak. */
Test(growth, a_restart_is_no_growth)
{
	struct made m;
	struct analyze_growth out;

	made_init(&m, 3, 1);
	for (u32 i = 0; i < 3; i++) {
		memset(m.whole[i], 0, N);
		memset(m.whole[i] + (size_t)20 * i, 1, 20);
		/* What it takes to start; then nothing. */
		m.instances[i].begin = 20 * i;
		m.instances[i].end = 20 * i + 20;
		m.instances[i].first = 20 * i + 5;
		for (u32 b = 0; b < 20; b++)
			values_of(&m, i, 0)[20 * i + b] = MIN(b, 5U) * 10 * MB * (i + 1) + noise();
	}
	out = analyze(&m);
	cr_assert_eq(out.used, 3);
	cr_assert(out.all.rate.low <= 0 && out.all.rate.high >= 0 && fabs(out.all.rate.slope) < 1,
		  "%f", out.all.rate.slope);
	analyze_growth_deinit(&out);
}

/* Each of four that follow one another leaks 2 kB/s; together the service leaks 2 kB/s. */
Test(growth, slopes_of_processes_that_follow_one_another)
{
	struct made m;
	struct analyze_growth out;

	made_init(&m, 4, 1);
	for (u32 i = 0; i < 4; i++) {
		memset(m.whole[i], 0, N);
		memset(m.whole[i] + (size_t)15 * i, 1, 15);
		m.instances[i].begin = 15 * i;
		m.instances[i].end = 15 * i + 15;
		/* Warm-ups do not count as time without growth. */
		m.instances[i].first = 15 * i + 4;
		for (u32 b = 0; b < 15; b++)
			values_of(&m, i, 0)[15 * i + b] = 2000.0 * STEP_S * b;
	}
	out = analyze(&m);
	cr_assert_float_eq(out.all.rate.slope, 2000, 1e-6);
	analyze_growth_deinit(&out);
	/* All at the same time: 8 kB/s. */
	for (u32 i = 0; i < 4; i++) {
		memset(m.whole[i], 1, N);
		m.instances[i] = (struct analyze_instance){.end = N, .whole = m.whole[i]};
		for (u32 b = 0; b < N; b++)
			values_of(&m, i, 0)[b] = 2000.0 * STEP_S * b;
	}
	out = analyze(&m);
	cr_assert_float_eq(out.all.rate.slope, 8000, 1e-6);
	analyze_growth_deinit(&out);
}

Test(growth, only_grows)
{
	struct made m;
	struct analyze_growth out;
	double grew[5] = {};
	bool only[5];

	made_init(&m, 1, 5);
	for (u32 b = 0; b < N; b++) {
		double x = (double)b / N;

		values_of(&m, 0, 0)[b] = line(x);
		values_of(&m, 0, 1)[b] = leak_in_sawtooth(x);
		values_of(&m, 0, 2)[b] = step_up(x);
		values_of(&m, 0, 3)[b] = line(x) + 20000 * noise();
		values_of(&m, 0, 4)[b] = constant(x);
	}
	out = analyze(&m);
	for (u32 i = 0; i < 5; i++) {
		only[out.sites[i].site] = out.sites[i].only_grows;
		grew[out.sites[i].site] = out.sites[i].grew;
	}
	cr_assert(only[0] && !only[1] && !only[2] && only[3] && !only[4]);
	cr_assert(grew[0] == 1 && grew[2] < 0.02 && grew[4] == 0);
	analyze_growth_deinit(&out);
}

Test(growth, not_enough_data)
{
	struct made m;
	struct analyze_growth out;

	made_init(&m, 2, 1);
	memset(m.whole[0], 0, N);
	memset(m.whole[0], 1, 5);
	memset(m.whole[1], 0, N);
	memset(m.whole[1], 1, 7);
	out = analyze(&m);
	cr_assert(out.used == 0 && out.points == 7 && out.n_sites == 0);
	analyze_growth_deinit(&out);
}

Test(growth, rates_of_what_adds_up)
{
	struct made m;
	struct analyze_growth out;
	u64 samples[2] = {100, 100000};

	made_init(&m, 1, 2);
	m.g.over_time = true;
	m.g.samples = samples;
	for (u32 b = 0; b < N; b++) {
		values_of(&m, 0, 0)[b] = STEP_S * 500;
		values_of(&m, 0, 1)[b] = STEP_S * (300 + 50 * noise());
	}
	out = analyze(&m);
	cr_assert_eq(out.sites[0].site, 0);
	cr_assert_float_eq(out.sites[0].rate.slope, 500, 1e-6);
	/* 100 samples are right to 2 / sqrt(100). */
	cr_assert_float_eq(out.sites[0].rate.low, 400, 6);
	cr_assert_float_eq(out.sites[1].rate.slope, 300, 20);
	cr_assert(!out.sites[0].only_grows);
	analyze_growth_deinit(&out);
}

/* ---- the frame that allocates ---- */

static const char *own(const u32 *frames, size_t n, struct profile *p)
{
	static struct str scratch;
	u32 stack, at;

	cr_assert_eq(profile_add_stack(p, frames, n, &stack), 0);
	at = analyze_own_frame(p, stack);
	return at == PROFILE_NONE ? "" : profile_frame_name(p, frames[at], &scratch);
}

Test(growth, own_frame)
{
	_cleanup_profile_ struct profile *p = profile_create();
	u32 note;
	const u32 c[] = {frame(p, "do_anonymous_page", "[kernel]", 1, FRAME_KERNEL, 0, 0),
			 frame(p, "__memset_avx2", "/lib/libc.so.6", 2, FRAME_NATIVE, 0, 0),
			 frame(p, "je_malloc", "/bin/shop", 3, FRAME_NATIVE, 0, 0),
			 frame(p, "cache_put", "/bin/shop", 4, FRAME_NATIVE, 0, 41),
			 frame(p, "main", "/bin/shop", 5, FRAME_NATIVE, 0, 9)};
	const u32 python[] = {
		frame(p, "_PyObject_Malloc", "/usr/bin/python3.11", 1, FRAME_NATIVE, 0, 0),
		frame(p, "handle", "/app/shop.py", 2, FRAME_PYTHON, 0, 7),
		frame(p, "_PyEval_EvalFrame", "/usr/bin/python3.11", 3, FRAME_NATIVE, 0, 0)};
	const u32 only_libc[] = {c[0], c[1]};

	cr_assert_str_eq(own(c, 5, p), "cache_put");
	cr_assert_str_eq(own(python, 3, p), "handle");
	/* An interpreter without functions of a program is itself the program. */
	cr_assert_str_eq(own(python, 1, p), "_PyObject_Malloc");
	cr_assert_str_eq(own(only_libc, 2, p), "__memset_avx2");
	cr_assert_eq(profile_add_note(p, "[unknown]", &note), 0);
	cr_assert_str_eq(own(&note, 1, p), "[unknown]");
	cr_assert_str_eq(own(NULL, 0, p), "");
}
