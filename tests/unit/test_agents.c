/* SPDX-License-Identifier: Apache-2.0 */
/* What agents report about themselves, and the server's answers about ranges of time. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "server/ingest/agents.h"

#define T0 1700000000000ULL

static void say(struct agents *a, const char *host, u64 now_ms, u64 started_ms, u64 samples,
		u64 lost)
{
	_cleanup_profile_ struct profile *p = profile_create();
	char text[5][32];
	const char *names[] = {"host.name", "culprit.agent.version", "culprit.agent.started",
			       "culprit.agent.samples", "culprit.agent.lost.ring"};
	struct profile_label labels[5];

	snprintf(text[0], sizeof(text[0]), "%s", host);
	snprintf(text[1], sizeof(text[1]), "1");
	snprintf(text[2], sizeof(text[2]), "%llu", started_ms);
	snprintf(text[3], sizeof(text[3]), "%llu", samples);
	snprintf(text[4], sizeof(text[4]), "%llu", lost);
	cr_assert(p);
	for (u32 i = 0; i < 5; i++) {
		cr_assert_eq(profile_add_string(p, names[i], strlen(names[i]), &labels[i].name), 0);
		cr_assert_eq(profile_add_string(p, text[i], strlen(text[i]), &labels[i].value), 0);
	}
	cr_assert_eq(profile_add_resource(p, labels, 5, &p->agent), 0);
	agents_see(a, p, now_ms);
}

static struct agent_state only(struct agents *a, u64 from_ms, u64 to_ms)
{
	_cleanup_free_ struct agent_state *all = NULL;
	size_t n;

	cr_assert_eq(agents_list(a, from_ms, to_ms, &all, &n), 0);
	cr_assert_eq(n, 1);
	return all[0];
}

static void expect(struct agents *a, u64 from_ms, u64 to_ms, u64 samples, u64 lost)
{
	struct agent_state s = only(a, from_ms, to_ms);

	cr_assert_eq(s.range.samples, samples, "%llu samples", s.range.samples);
	cr_assert_eq(s.range.lost, lost, "%llu lost", s.range.lost);
	cr_assert_leq(s.range.from_ms, from_ms < T0 ? T0 : from_ms);
}

Test(agents, counts_of_a_range)
{
	_cleanup_(agents) struct agents *a = NULL;
	struct agent_state s;

	cr_assert_eq(agents_create(&a), 0);
	say(a, "h", T0 + 1000, T0, 100, 1);
	say(a, "h", T0 + 2000, T0, 200, 1);
	say(a, "h", T0 + 3000, T0, 300, 51);
	expect(a, T0, T0 + 1000, 100, 1);
	expect(a, T0 + 1000, T0 + 2000, 100, 0);
	expect(a, T0 + 2000, T0 + 9000, 100, 50);
	expect(a, 0, T0 + 9000, 300, 51);
	/* A range between two points extends to both points. */
	expect(a, T0 + 1500, T0 + 2500, 200, 50);
	s = only(a, T0 + 1500, T0 + 2500);
	cr_assert(s.range.from_ms == T0 + 1000 && s.range.to_ms == T0 + 3000);
	/* Ranges before the agent's first report and after its last. */
	s = only(a, T0 - 5000, T0 - 1000);
	cr_assert_eq(s.range.from_ms, s.range.to_ms);
	s = only(a, T0 + 4000, T0 + 5000);
	cr_assert_eq(s.range.from_ms, s.range.to_ms);
	/* After a restart the agent counts from 0. */
	say(a, "h", T0 + 10000, T0 + 5000, 7, 2);
	expect(a, T0 + 3000, T0 + 10000, 7, 2);
	expect(a, T0, T0 + 10000, 307, 53);
}

/* Each counter has its loss; only lost samples are losses of a range. Labels are sorted by name. */
Test(agents, counters)
{
	static const char *const labels[][2] = {{"culprit.agent.version", "1"},
						{"culprit.agent.started", "1000"},
						{"culprit.agent.samples", "100"},
						{"culprit.agent.lost.nested", "3"},
						{"culprit.agent.lost.newer", "4"},
						{"culprit.agent.incomplete.lost_stack", "50"},
						{"culprit.agent.counted.frames", "9000"},
						{"culprit.agent.lostly.x", "1"},
						{"culprit.agent.lost.odd", "x"}};
	static const struct agent_counter expected[] = {
		{"frames", COUNTER_LOSS_NONE, 9000},
		{"lost_stack", COUNTER_LOSS_STACK, 50},
		{"nested", COUNTER_LOSS_SAMPLE, 3},
		{"newer", COUNTER_LOSS_SAMPLE, 4},
	};
	_cleanup_(agents) struct agents *a = NULL;
	_cleanup_profile_ struct profile *p = profile_create();
	struct profile_label said[ARRAY_SIZE(labels)];
	struct agent_state s;

	for (u32 i = 0; i < ARRAY_SIZE(labels); i++) {
		const char *name = labels[i][0], *value = labels[i][1];

		cr_assert_eq(profile_add_string(p, name, strlen(name), &said[i].name), 0);
		cr_assert_eq(profile_add_string(p, value, strlen(value), &said[i].value), 0);
	}
	cr_assert_eq(profile_add_resource(p, said, ARRAY_SIZE(labels), &p->agent), 0);
	cr_assert_eq(agents_create(&a), 0);
	agents_see(a, p, 2000);
	s = only(a, 0, 3000);
	cr_assert_eq(s.range.lost, 7);
	cr_assert_eq(s.n_counters, ARRAY_SIZE(expected));
	for (u32 i = 0; i < ARRAY_SIZE(expected); i++) {
		cr_expect_str_eq(s.counters[i].name, expected[i].name);
		cr_expect_eq(s.counters[i].loss, expected[i].loss);
		cr_expect_eq(s.counters[i].count, expected[i].count);
	}
}

/* A week of reports, one every 5 s: few are kept, and answers are for nearly the asked range. */
Test(agents, points_grow_rare)
{
	_cleanup_(agents) struct agents *a = NULL;
	u64 now = T0, samples = 0, ages[] = {60, 300, 3600, 86400, 500000};

	cr_assert_eq(agents_create(&a), 0);
	for (; now < T0 + 604800 * 1000ULL; now += 5000)
		say(a, "h", now + 5000, T0, samples += 5, 0);
	for (u32 i = 0; i < ARRAY_SIZE(ages); i++) {
		u64 from = now - ages[i] * 1000, to = from + 30000;
		struct agent_state s = only(a, from, to);

		cr_assert(s.range.from_ms <= from && s.range.to_ms >= to);
		/* One sample a millisecond, and at each end a sixteenth of the age. */
		cr_assert_eq(s.range.samples * 1000, s.range.to_ms - s.range.from_ms);
		cr_assert_leq(s.range.to_ms - s.range.from_ms, 40000 + 2 * ages[i] * 1000 / 16,
			      "%llu ms of an age of %llu s", s.range.to_ms - s.range.from_ms,
			      ages[i]);
	}
}
