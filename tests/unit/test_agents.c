/* SPDX-License-Identifier: Apache-2.0 */
/* What agents report about themselves, and the server's answers about ranges of time. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "base/vocab.h"
#include "server/ingest/agents.h"

#define T0 1700000000000ULL

static void see(struct agents *a, const char *const (*labels)[2], u32 n, u64 now_ms)
{
	_cleanup_profile_ struct profile *p = profile_create();
	struct profile_label said[PROFILE_MAX_LABELS];

	cr_assert(p && n <= ARRAY_SIZE(said));
	for (u32 i = 0; i < n; i++) {
		const char *name = labels[i][0], *value = labels[i][1];

		cr_assert_eq(profile_add_string(p, name, strlen(name), &said[i].name), 0);
		cr_assert_eq(profile_add_string(p, value, strlen(value), &said[i].value), 0);
	}
	cr_assert_eq(profile_add_resource(p, said, n, &p->agent), 0);
	agents_see(a, p, now_ms);
}

static void say_dropped(struct agents *a, u64 now_ms, u64 started_ms, u64 samples, u64 lost,
			u64 dropped)
{
	char text[4][32];
	const char *const labels[][2] = {{"host.name", "h"},
					 {"culprit.agent.version", "1"},
					 {"culprit.agent.started", text[0]},
					 {"culprit.agent.samples", text[1]},
					 {"culprit.agent.lost.ring", text[2]},
					 {"culprit.agent.dropped_samples", text[3]}};

	snprintf(text[0], sizeof(text[0]), "%llu", started_ms);
	snprintf(text[1], sizeof(text[1]), "%llu", samples);
	snprintf(text[2], sizeof(text[2]), "%llu", lost);
	snprintf(text[3], sizeof(text[3]), "%llu", dropped);
	see(a, labels, ARRAY_SIZE(labels), now_ms);
}

static void say(struct agents *a, u64 now_ms, u64 started_ms, u64 samples, u64 lost)
{
	say_dropped(a, now_ms, started_ms, samples, lost, 0);
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
	say(a, T0 + 1000, T0, 100, 1);
	say(a, T0 + 2000, T0, 200, 1);
	say(a, T0 + 3000, T0, 300, 51);
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
	say(a, T0 + 10000, T0 + 5000, 7, 2);
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
	struct agent_state s;

	cr_assert_eq(agents_create(&a), 0);
	see(a, labels, ARRAY_SIZE(labels), 2000);
	s = only(a, 0, 3000);
	cr_assert_eq(s.range.lost, 7);
	cr_assert_eq(s.n_counters, ARRAY_SIZE(expected));
	for (u32 i = 0; i < ARRAY_SIZE(expected); i++) {
		cr_expect_str_eq(s.counters[i].name, expected[i].name);
		cr_expect_eq(s.counters[i].loss, expected[i].loss);
		cr_expect_eq(s.counters[i].count, expected[i].count);
	}
}

/* Each row of the tables is taken, with its name and count. */
Test(agents, every_row_of_the_tables)
{
	_cleanup_(agents) struct agents *a = NULL;
	char names[COUNTER_N + EXPORT_DROP_N][64], counts[COUNTER_N + EXPORT_DROP_N][8];
	const char *labels[COUNTER_N + EXPORT_DROP_N + 1][2] = {{"culprit.agent.version", "1"}};
	struct agent_state s;
	u32 n = 0;

	for (u32 i = 0; i < COUNTER_N + EXPORT_DROP_N; i++) {
		const struct vocab_counter *c = vocab_counter(i);

		if (i < COUNTER_N)
			snprintf(names[i], sizeof(names[i]), "culprit.agent.%s.%s",
				 vocab_counter_loss(c->loss), c->name);
		else
			snprintf(names[i], sizeof(names[i]), "culprit.agent.dropped.%s",
				 vocab_export_drop(i - COUNTER_N)->name);
		snprintf(counts[i], sizeof(counts[i]), "%u", 100 + i);
		labels[i + 1][0] = names[i];
		labels[i + 1][1] = counts[i];
	}
	cr_assert_eq(agents_create(&a), 0);
	see(a, labels, ARRAY_SIZE(labels), 2000);
	s = only(a, 0, 3000);
	cr_expect_eq(s.n_counters, COUNTER_N);
	for (u32 i = 0; i < s.n_counters; i++) {
		enum counter c = vocab_find_counter(s.counters[i].name);

		cr_assert_lt(c, COUNTER_N, "%s", s.counters[i].name);
		cr_expect_eq(s.counters[i].loss, vocab_counter(c)->loss);
		cr_expect_eq(s.counters[i].count, 100 + c);
		n++;
	}
	cr_expect_eq(s.n_drops, EXPORT_DROP_N);
	for (u32 i = 0; i < s.n_drops; i++) {
		enum export_drop d = vocab_find_export_drop(s.drops[i].reason);

		cr_assert_lt(d, EXPORT_DROP_N, "%s", s.drops[i].reason);
		cr_expect_eq(s.drops[i].profiles, 100 + COUNTER_N + d);
		n++;
	}
	cr_expect_eq(n, COUNTER_N + EXPORT_DROP_N);
}

Test(agents, sources)
{
	static const char *const labels[][2] = {{"culprit.agent.version", "1"},
						{"culprit.agent.rate.cpu-clock", "19"},
						{"culprit.agent.period.page-faults:u", "100"},
						{"culprit.agent.period.sched:sched_switch", "1"},
						{"culprit.agent.rated.x", "1"}};
	static const struct agent_source expected[] = {
		{"page-faults:u", 0, 100}, {"sched:sched_switch", 0, 1}, {"cpu-clock", 19, 0}};
	_cleanup_(agents) struct agents *a = NULL;
	struct agent_state s;

	cr_assert_eq(agents_create(&a), 0);
	see(a, labels, ARRAY_SIZE(labels), 2000);
	s = only(a, 0, 3000);
	cr_assert_eq(s.n_sources, ARRAY_SIZE(expected));
	for (u32 i = 0; i < s.n_sources; i++) {
		cr_expect_str_eq(s.sources[i].event, expected[i].event);
		cr_expect_eq(s.sources[i].hz, expected[i].hz);
		cr_expect_eq(s.sources[i].period, expected[i].period);
	}
}

/* Samples in profiles that never came here count in the range in which they were dropped. */
Test(agents, drops_of_a_range)
{
	_cleanup_(agents) struct agents *a = NULL;
	struct agent_state s;

	cr_assert_eq(agents_create(&a), 0);
	say_dropped(a, T0 + 1000, T0, 100, 1, 0);
	say_dropped(a, T0 + 2000, T0, 200, 1, 70);
	say_dropped(a, T0 + 3000, T0, 300, 1, 70);
	cr_expect_eq(only(a, T0, T0 + 1000).range.dropped, 0);
	cr_expect_eq(only(a, T0 + 1000, T0 + 2000).range.dropped, 70);
	cr_expect_eq(only(a, T0 + 2000, T0 + 3000).range.dropped, 0);
	expect(a, T0, T0 + 3000, 300, 1);
	/* After a restart the agent counts from 0. */
	say_dropped(a, T0 + 10000, T0 + 5000, 400, 1, 5);
	s = only(a, T0, T0 + 10000);
	cr_expect_eq(s.range.dropped, 75);
	cr_expect_eq(s.dropped, 5);
}

/* A week of reports, one every 5 s: few are kept, and answers are for nearly the asked range. */
Test(agents, points_grow_rare)
{
	_cleanup_(agents) struct agents *a = NULL;
	u64 now = T0, samples = 0, ages[] = {60, 300, 3600, 86400, 500000};

	cr_assert_eq(agents_create(&a), 0);
	for (; now < T0 + 604800 * 1000ULL; now += 5000)
		say(a, now + 5000, T0, samples += 5, 0);
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

static void say_host(struct agents *a, u32 host, u64 now_ms)
{
	char name[16];

	snprintf(name, sizeof(name), "h%u", host);
	see(a, (const char *const[][2]){{"host.name", name}, {"culprit.agent.version", "1"}}, 2,
	    now_ms);
}

/* Each host has one entry; above the limit the one that was silent for longest goes. */
Test(agents, many_hosts)
{
	_cleanup_(agents) struct agents *a = NULL;
	_cleanup_free_ struct agent_state *all = NULL;
	size_t n;

	cr_assert_eq(agents_create(&a), 0);
	for (u32 round = 0; round < 2; round++)
		for (u32 i = 0; i < AGENTS_MAX; i++)
			say_host(a, i, T0 + round * 100000 + (i == 7 ? 0 : 1 + i));
	say_host(a, AGENTS_MAX, T0 + 300000);
	say_host(a, 3, T0 + 300001);
	cr_assert_eq(agents_list(a, T0, T0 + 1, &all, &n), 0);
	cr_assert_eq(n, AGENTS_MAX);
	for (size_t i = 0; i < n; i++) {
		cr_assert_str_neq(all[i].host, "h7");
		cr_assert(i == 0 || strcmp(all[i - 1].host, all[i].host) < 0);
		if (!strcmp(all[i].host, "h3"))
			cr_assert_eq(all[i].seen_ms, T0 + 300001);
	}
}
