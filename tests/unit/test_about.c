/* SPDX-License-Identifier: Apache-2.0 */
/* What the agent reports about itself. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "agent/run/about.h"
#include "base/vocab.h"

static const char *label(const struct profile *p, const char *loss, const char *name)
{
	char full[96];

	snprintf(full, sizeof(full), "culprit.agent.%s.%s", loss, name);
	return profile_label(p, p->agent, full);
}

/* The report has every counter of the table, under the name of its loss. */
Test(about, every_counter_is_in_it)
{
	_cleanup_identities_ struct identities *identities = NULL;
	_cleanup_profile_ struct profile *p = profile_create();
	struct pipeline_stats stats = {};
	static const struct sampler_source sources[] = {
		{.event = "cpu-clock", .hz = 19, .period = 52631578},
		{.event = "page-faults:u", .period = 100},
		{.event = "sched:sched_switch", .period = 1},
	};
	struct about a = {
		.samples = 7, .sources = sources, .n_sources = 3, .stats = &stats, .error = "e"};

	cr_assert_eq(identities_create(&identities), 0);
	a.identities = identities;
	for (u32 i = 0; i < COUNTER_N; i++)
		stats.sampler.all.counters[i] = 1000 + i;
	stats.sampler.all.counters[COUNTER_NESTED] = 0;
	cr_assert_eq(about_add(&a, p), 0);
	cr_expect_str_eq(profile_label(p, p->agent, "culprit.agent.samples"), "7");
	cr_expect_str_eq(profile_label(p, p->agent, "culprit.agent.error"), "e");
	cr_expect_str_eq(label(p, "rate", "cpu-clock"), "19");
	cr_expect_str_eq(label(p, "period", "page-faults:u"), "100");
	cr_expect_str_eq(label(p, "period", "sched:sched_switch"), "1");
	cr_expect_null(label(p, "period", "cpu-clock"), "it has a rate");
	for (u32 i = 0; i < COUNTER_N; i++) {
		const struct vocab_counter *c = vocab_counter(i);
		const char *value = label(p, vocab_counter_loss(c->loss), c->name);
		char expected[16];

		snprintf(expected, sizeof(expected), "%u", 1000 + i);
		if (i == COUNTER_NESTED)
			cr_expect_null(value, "%s counted nothing", c->name);
		else
			cr_expect(value && !strcmp(value, expected), "%s: %s", c->name, value);
	}
	cr_expect(label(p, "lost", "no_room"));
	cr_expect(label(p, "incomplete", "kernel_stack_failed"));
	cr_expect(label(p, "counted", "frames"));
}
