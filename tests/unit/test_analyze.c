/* SPDX-License-Identifier: Apache-2.0 */
/* Slow against fast, over synthetic requests with known causes. */
#include <criterion/criterion.h>
#include <errno.h>
#include <math.h>

#include "base/cleanup.h"
#include "profile_fixture.h"
#include "server/analyze/analyze.h"

#define MS 1000000

static const struct analyze_shares usual = {.slow = 0.95, .middle_from = 0.25, .middle_to = 0.75};

/* A synthetic set of requests and their samples. */
struct made {
	struct profile *p;
	vec(struct analyze_request) requests;
	vec(struct analyze_sample) samples;
	u64 random;
};

static void made_deinit(struct made *m)
{
	profile_destroy(m->p);
	vec_deinit(&m->requests);
	vec_deinit(&m->samples);
}
#define _cleanup_made_ __attribute__((cleanup(made_deinit)))

/* 0..1, the same in each run. */
static double noise(struct made *m)
{
	return (double)(hash_u64(m->random += 0x9e3779b97f4a7c15ULL) >> 11) / (double)(1ULL << 53);
}

static void add_request(struct made *m, double ms, enum analyze_cohort cohort)
{
	if (!m->p)
		m->p = profile_create();
	cr_assert_eq(vec_push(&m->requests, (struct analyze_request){(u64)(ms * MS), 1, cohort}),
		     0);
}

/* Adds time to the request that was added last. path: leaf first, separated by spaces. */
static void add_time(struct made *m, const char *path, double ms)
{
	struct analyze_sample e = {.request = (u32)m->requests.n - 1, .value = (s64)(ms * MS)};
	char text[128], *at = text, *word;
	u32 frames[16];
	size_t n = 0;

	snprintf(text, sizeof(text), "%s", path);
	while ((word = strsep(&at, " ")))
		frames[n++] = frame(m->p, word, "/bin/app", 0x1000, FRAME_NATIVE, 0, 7);
	cr_assert_eq(profile_add_stack(m->p, frames, n, &e.stack), 0);
	cr_assert_eq(vec_push(&m->samples, e), 0);
}

static struct analyze_slow analyze(const struct made *m)
{
	struct analyze_slow out = {};

	cr_assert_eq(analyze_slow(m->p, m->requests.data, m->requests.n, m->samples.data,
				  m->samples.n, &out),
		     0);
	return out;
}

static const struct analyze_row *row_of(const struct analyze_slow *s, const char *name)
{
	for (size_t i = 0; i < s->rows.n; i++)
		if (!strcmp(strtab_get(&s->strings, s->rows.data[i].name), name))
			return &s->rows.data[i];
	cr_assert_fail("no %s", name);
	return NULL;
}

static void assert_first(const struct analyze_slow *s, size_t at, const char *name)
{
	cr_assert_lt(at, s->rows.n);
	cr_expect_str_eq(strtab_get(&s->strings, s->rows.data[at].name), name);
}

/*
 * One request in a hundred backtracks for 400 ms, the others parse for some 20; all of them wait
 * for other things up to 30 ms more.
 */
static void make_backtracking(struct made *m, u32 n)
{
	for (u32 i = 0; i < n; i++) {
		double parse = 15 + 10 * noise(m), wait = 30 * noise(m);
		bool bad = i % 100 == 37;
		double match = bad ? 300 + 200 * noise(m) : 0;

		add_request(m, parse + wait + match, ANALYZE_OTHER);
		add_time(m, "read_json parse handle main", parse / 2);
		add_time(m, "to_object parse handle main", parse / 2);
		if (noise(m) < 0.3)
			add_time(m, "collect main", 5);
		if (bad) {
			add_time(m, "try_group match_here regex_match check_mail handle main",
				 match * 0.7);
			add_time(m, "match_here regex_match check_mail handle main", match * 0.3);
		}
	}
}

Test(analyze, the_path_that_only_slow_requests_take_is_first)
{
	_cleanup_made_ struct made m = {};
	struct analyze_slow s;
	const struct analyze_row *e;

	make_backtracking(&m, 4000);
	cr_assert_eq(analyze_cohorts(m.requests.data, m.requests.n, &usual, NULL), 0);
	s = analyze(&m);
	/* 5 % of 4000 requests are slow, 40 of these backtrack; half of all are in the middle. */
	cr_assert_eq(s.slow.requests, 200);
	cr_assert_lt(labs((long)s.middle.requests - 2000), 5);
	/* The entry of the slow path, then its callees. main() has the effect, too. */
	assert_first(&s, 0, "check_mail");
	assert_first(&s, 1, "regex_match");
	assert_first(&s, 2, "match_here");
	assert_first(&s, 3, "try_group");
	cr_assert(row_of(&s, "main")->explained);
	cr_assert(row_of(&s, "handle")->explained);
	/* 40 of 200 slow requests take 400 ms in it: 80 ms in the mean. */
	e = row_of(&s, "check_mail");
	cr_expect_float_eq(e->effect, 80.0 * MS, 5.0 * MS, "%g", e->effect);
	cr_expect(e->low > 55.0 * MS && e->low < e->effect && e->high < 105.0 * MS);
	cr_expect_float_eq(e->slow_running, 0.2, 1e-9);
	cr_expect_eq(e->middle_running, 0);
	cr_expect_eq(e->slow_self, 0);
	e = row_of(&s, "match_here");
	cr_expect_float_eq(e->slow_self / e->slow, 0.3, 0.01);
	/* A function that all requests share has no effect beyond chance and duration. */
	e = row_of(&s, "collect");
	cr_expect(e->low < 0 && e->high > 0, "%g %g", e->low, e->high);
	analyze_slow_deinit(&s);
}

Test(analyze, a_path_is_before_what_it_calls_that_is_called_elsewhere_too)
{
	_cleanup_made_ struct made m = {};
	struct analyze_slow s;

	make_backtracking(&m, 4000);
	cr_assert_eq(analyze_cohorts(m.requests.data, m.requests.n, &usual, NULL), 0);
	/* 1 % of the time of all matches. */
	add_request(&m, 400, ANALYZE_SLOW);
	add_time(&m, "match_here regex_match route handle main", 160);
	s = analyze(&m);
	cr_assert_gt(row_of(&s, "regex_match")->effect, row_of(&s, "check_mail")->effect);
	assert_first(&s, 0, "check_mail");
	assert_first(&s, 1, "regex_match");
	assert_first(&s, 2, "match_here");
	analyze_slow_deinit(&s);
	/* Now it takes as much as all other matches, so the slow path begins here. */
	add_request(&m, 400, ANALYZE_SLOW);
	add_time(&m, "match_here regex_match route handle main", 16000);
	s = analyze(&m);
	assert_first(&s, 0, "regex_match");
	analyze_slow_deinit(&s);
}

Test(analyze, one_function_that_is_slower_is_first_though_all_call_it)
{
	_cleanup_made_ struct made m = {};
	struct analyze_slow s;

	for (u32 i = 0; i < 400; i++) {
		bool slow = i % 10 == 0;

		add_request(&m, slow ? 100 : 20, slow ? ANALYZE_SLOW : ANALYZE_MIDDLE);
		add_time(&m, "parse handle main", 10 + noise(&m));
		add_time(&m, "lookup query handle main", (slow ? 80 : 1) + noise(&m));
	}
	s = analyze(&m);
	/* Callers have the same effect, but also a large cost in middle requests. */
	assert_first(&s, 0, "query");
	assert_first(&s, 1, "lookup");
	cr_assert(row_of(&s, "handle")->explained);
	analyze_slow_deinit(&s);
}

Test(analyze, a_function_counts_once_in_a_stack)
{
	_cleanup_made_ struct made m = {};
	struct analyze_slow s;

	for (u32 i = 0; i < 20; i++) {
		add_request(&m, 10, i < 10 ? ANALYZE_SLOW : ANALYZE_MIDDLE);
		add_time(&m, "walk walk walk main", i < 10 ? 50 : 10);
	}
	s = analyze(&m);
	cr_expect_float_eq(row_of(&s, "walk")->slow, 50.0 * MS, 1);
	cr_expect_float_eq(row_of(&s, "walk")->effect, 40.0 * MS, 1);
	cr_expect_float_eq(row_of(&s, "walk")->low, 40.0 * MS, 1);
	cr_expect_float_eq(s.slow.value, 50.0 * MS, 1);
	analyze_slow_deinit(&s);
}

/* Requests without samples count as 0, and the answer says how many have samples. */
Test(analyze, requests_without_samples_are_told_apart)
{
	_cleanup_made_ struct made m = {};
	struct analyze_slow s;

	for (u32 i = 0; i < 30; i++) {
		add_request(&m, 10, (enum analyze_cohort)(i % 3));
		if (i % 3 == ANALYZE_SLOW || i < 9) {
			add_time(&m, "read main", 6);
			add_time(&m, "write main", 4);
		}
	}
	s = analyze(&m);
	cr_expect_eq(s.slow.requests, 10);
	cr_expect_eq(s.slow.sampled, 10);
	cr_expect_eq(s.middle.requests, 10);
	cr_expect_eq(s.middle.sampled, 3, "%llu", s.middle.sampled);
	cr_expect_float_eq(s.middle.value, 3.0 * MS, 1);
	analyze_slow_deinit(&s);
}

/* 95 % of a thousand intervals contain the true effect, within 5 sigma (0.69 % each). */
Test(analyze, intervals_hold_the_truth_as_often_as_they_say)
{
	u32 held = 0, n = 1000;
	u64 random = 1;

	for (u32 round = 0; round < n; round++) {
		_cleanup_made_ struct made m = {.random = random};
		const struct analyze_row *e;
		struct analyze_slow s;

		for (u32 i = 0; i < 60; i++) {
			bool slow = i < 20;

			add_request(&m, 1, slow ? ANALYZE_SLOW : ANALYZE_MIDDLE);
			/* Means of 30 ms and 12 ms; a quarter of the requests has no time here. */
			if (noise(&m) < 0.75)
				add_time(&m, "work main", (slow ? 40 : 16) * 2 * noise(&m));
		}
		s = analyze(&m);
		e = row_of(&s, "work");
		held += e->low <= 18.0 * MS && e->high >= 18.0 * MS;
		analyze_slow_deinit(&s);
		random = m.random;
	}
	cr_assert(held > n * 0.915 && held < n * 0.985, "%u of %u", held, n);
}

Test(analyze, what_stands_for_more_counts_for_more)
{
	_cleanup_made_ struct made all = {}, thinned = {};
	struct analyze_slow a, b;

	for (u32 i = 0; i < 400; i++) {
		double ms = i % 4 < 2 ? 10 : 30;
		bool slow = i < 20;

		add_request(&all, slow ? 100 : 20, slow ? ANALYZE_SLOW : ANALYZE_MIDDLE);
		add_time(&all, "work main", slow ? 90 : ms);
		if (!slow && i % 4 != 0 && i % 4 != 2)
			continue; /* of two equal requests one stays */
		add_request(&thinned, slow ? 100 : 20, slow ? ANALYZE_SLOW : ANALYZE_MIDDLE);
		thinned.requests.data[thinned.requests.n - 1].weight = slow ? 1 : 2;
		add_time(&thinned, "work main", slow ? 90 : ms);
	}
	a = analyze(&all);
	b = analyze(&thinned);
	cr_expect_float_eq(row_of(&a, "work")->effect, row_of(&b, "work")->effect, 1);
	cr_expect_float_eq(a.middle.weight, b.middle.weight, 1e-9);
	/* The interval of the thinned requests is wider. */
	cr_expect_lt(row_of(&b, "work")->low, row_of(&a, "work")->low);
	analyze_slow_deinit(&a);
	analyze_slow_deinit(&b);
}

Test(analyze, cohorts_are_by_weight_and_never_of_equals)
{
	_cleanup_made_ struct made m = {};
	struct diag d = {};

	for (u32 i = 0; i < 100; i++)
		add_request(&m, 10, ANALYZE_OTHER);
	cr_assert_eq(analyze_cohorts(m.requests.data, m.requests.n, &usual, &d), -ENODATA);
	cr_assert(strstr(d.text, "0 are slow"), "%s", d.text);
	cr_assert_eq(analyze_cohorts(NULL, 0, &usual, &d), -ENODATA);
	/*
	 * Three requests of weight 1 are slower than 97 of weight 100: not above the 95th
	 * percentile of 9703, but above the 99.9th.
	 */
	for (u32 i = 0; i < 97; i++)
		m.requests.data[i].weight = 100;
	for (u32 i = 97; i < 100; i++)
		m.requests.data[i].duration_ns = 50 * MS;
	cr_assert_eq(analyze_cohorts(m.requests.data, m.requests.n, &usual, &d), 0);
	cr_assert_eq(m.requests.data[0].cohort, ANALYZE_MIDDLE);
	cr_assert_eq(m.requests.data[99].cohort, ANALYZE_SLOW);
}

Test(analyze, quantiles_of_students_t)
{
	static const struct {
		double degrees, t;
	} known[] = {{1, 12.706}, {2, 4.303}, {5, 2.571}, {10, 2.228}, {30, 2.042}, {1e6, 1.960}};

	for (size_t i = 0; i < ARRAY_SIZE(known); i++)
		cr_expect_float_eq(analyze_t(known[i].degrees), known[i].t, 0.004, "%g: %g",
				   known[i].degrees, analyze_t(known[i].degrees));
}

Test(analyze, the_line_with_the_most_time_in_slow_requests)
{
	_cleanup_made_ struct made m = {};
	struct analyze_slow s;

	m.p = profile_create();
	for (u32 i = 0; i < 4; i++) {
		bool slow = i < 2;

		add_request(&m, 10, slow ? ANALYZE_SLOW : ANALYZE_MIDDLE);
		for (u32 line = 40; line < 42; line++) {
			u32 id = frame(m.p, "work", "/bin/app", 0x1000 + line, FRAME_NATIVE, 0,
				       line);
			struct analyze_sample e = {i, 0, slow == (line == 41) ? 9 : 2};

			cr_assert_eq(profile_add_stack(m.p, &id, 1, &e.stack), 0);
			cr_assert_eq(vec_push(&m.samples, e), 0);
		}
	}
	s = analyze(&m);
	cr_assert_eq(row_of(&s, "work")->line, 41);
	analyze_slow_deinit(&s);
}
