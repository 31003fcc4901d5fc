/* SPDX-License-Identifier: Apache-2.0 */
/* Profiles, statistics and waits for the tests of agent/export. */
#pragma once

#include "agent/export/export_private.h"
#include "base/clock.h"
#include "profile_fixture.h"

#define WAIT_NS 60000000000ULL

/* Makes a profile with `samples` samples in one stack, and `lost` lost samples. */
static inline struct profile *counted_profile(u64 samples, u64 lost)
{
	struct profile *p = profile_create();
	u32 main_;

	cr_assert(p);
	cr_assert_eq(profile_add_type(p, "samples", "count"), 0);
	main_ = frame(p, "main", "/usr/bin/app", 0x2000, FRAME_NATIVE, 0, 40);
	sample(p, 0, thread(p, "app", "app", 10, 10), &main_, 1, (s64)samples);
	p->time_ns = 1700000000000000000;
	p->duration_ns = 1000000000;
	p->quality = (struct profile_quality){.samples = samples, .lost = lost, .measured = true};
	return p;
}

static inline struct exporters *start_exporters(const struct export_options *o, size_t n)
{
	struct exporters *e = NULL;
	struct diag d = {};

	cr_assert_eq(exporters_create(o, n, &d, &e), 0, "%s", d.text);
	return e;
}

static inline struct export_stats stats_of(struct exporters *e, size_t destination)
{
	struct export_stats s[8];

	cr_assert_lt(destination, exporters_stats(e, s, ARRAY_SIZE(s)));
	return s[destination];
}

/* Waits for a condition, which may use `s`, the statistics of the first destination. */
#define wait_until(e, s, condition)                                                                \
	do {                                                                                       \
		u64 end_ = clock_ns(CLOCK_MONOTONIC) + WAIT_NS;                                    \
		while (s = stats_of(e, 0), !(condition)) {                                         \
			cr_assert_lt(clock_ns(CLOCK_MONOTONIC), end_, "still not: %s",             \
				     #condition);                                                  \
			nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);                   \
		}                                                                                  \
	} while (0)

/* Asserts that all drops have this reason. */
static inline void assert_dropped(const struct export_stats *s, enum export_drop why, u64 profiles,
				  u64 samples)
{
	cr_assert_eq(s->dropped, profiles, "%llu dropped", s->dropped);
	cr_assert_eq(s->dropped_by[why], profiles);
	cr_assert_eq(s->dropped_samples, samples, "%llu samples dropped", s->dropped_samples);
}
