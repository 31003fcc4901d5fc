/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Notices steps of the wall clock, so that a wrong time deletes nothing. A wall clock should
 * progress as CLOCK_BOOTTIME does. While it does not, there are two possible times: the one that
 * was trusted before the step, plus the time since, and the one that the clock shows. Ages count
 * from the earlier one; data with times up to the later one is not from the future.
 *
 * The clock is trusted again when it returns to the time that was expected, or when it has held for
 * CLOCK_WATCH_HOLD_MS since the step. Any thread.
 */
#pragma once

#include <pthread.h>

#include "base/types.h"

#define CLOCK_WATCH_TOLERANCE_MS (10 * 60000LL)
#define CLOCK_WATCH_HOLD_MS (3600000LL)

/* A time of the wall clock and one of CLOCK_BOOTTIME at the same moment, in ms. */
struct clock_pair {
	s64 wall_ms, boot_ms;
};

struct clock_watch {
	pthread_mutex_t lock;
	struct clock_pair trusted;
	struct clock_pair stepped; /* the first look after the step */
	bool doubted;
};

struct clock_times {
	u64 early_ms, late_ms; /* equal while the clock is trusted */
	u64 expected_ms;       /* the trusted time; keep it for the next start */
};

enum clock_event {
	CLOCK_NOTHING,
	CLOCK_STEPPED,
	CLOCK_BACK, /* it shows the expected time again */
	CLOCK_HELD, /* it has held since the step, and its time is trusted now */
};

/* expected_ms: the time that the clock should show, from an earlier run; 0 trusts the clock. */
void clock_watch_init(struct clock_watch *w, struct clock_pair now, u64 expected_ms);
void clock_watch_deinit(struct clock_watch *w);
/* Decides whether to trust the clock; one thread calls this every few seconds. */
enum clock_event clock_watch_look(struct clock_watch *w, struct clock_pair now);
void clock_watch_times(struct clock_watch *w, struct clock_pair now, struct clock_times *ret);
bool clock_watch_doubts(struct clock_watch *w, struct clock_pair now);
/* What the clocks of this machine show. */
struct clock_pair clock_pair_now(void);
