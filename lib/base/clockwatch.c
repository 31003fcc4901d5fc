/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clockwatch.h"

#include <stdlib.h>

#include "base/clock.h"

struct clock_pair clock_pair_now(void)
{
	return (struct clock_pair){.wall_ms = (s64)clock_epoch_ms(),
				   .boot_ms = (s64)(clock_ns(CLOCK_BOOTTIME) / 1000000)};
}

void clock_watch_init(struct clock_watch *w, struct clock_pair now, u64 expected_ms)
{
	*w = (struct clock_watch){.trusted = now};
	pthread_mutex_init(&w->lock, NULL);
	if (expected_ms)
		w->trusted.wall_ms = (s64)expected_ms;
}

void clock_watch_deinit(struct clock_watch *w)
{
	pthread_mutex_destroy(&w->lock);
}

/* How far the wall clock is from the time that progress since `from` makes likely. */
static s64 distance(struct clock_pair from, struct clock_pair now)
{
	return (now.wall_ms - from.wall_ms) - (now.boot_ms - from.boot_ms);
}

enum clock_event clock_watch_look(struct clock_watch *w, struct clock_pair now)
{
	enum clock_event e = CLOCK_NOTHING;
	bool doubted = w->doubted;

	pthread_mutex_lock(&w->lock);
	if (llabs(distance(w->trusted, now)) <= CLOCK_WATCH_TOLERANCE_MS) {
		w->doubted = false;
		e = doubted ? CLOCK_BACK : CLOCK_NOTHING;
	} else if (!doubted || llabs(distance(w->stepped, now)) > CLOCK_WATCH_TOLERANCE_MS) {
		w->doubted = true;
		w->stepped = now;
		e = CLOCK_STEPPED;
	} else if (now.boot_ms - w->stepped.boot_ms >= CLOCK_WATCH_HOLD_MS) {
		w->doubted = false;
		e = CLOCK_HELD;
	}
	if (!w->doubted)
		w->trusted = now;
	pthread_mutex_unlock(&w->lock);
	return e;
}

void clock_watch_times(struct clock_watch *w, struct clock_pair now, struct clock_times *ret)
{
	s64 off, expected;

	pthread_mutex_lock(&w->lock);
	off = distance(w->trusted, now);
	pthread_mutex_unlock(&w->lock);
	if (llabs(off) <= CLOCK_WATCH_TOLERANCE_MS)
		off = 0;
	expected = MAX(now.wall_ms - off, 0LL);
	*ret = (struct clock_times){.early_ms = (u64)MIN(now.wall_ms, expected),
				    .late_ms = (u64)MAX(now.wall_ms, expected),
				    .expected_ms = (u64)expected};
}

bool clock_watch_doubts(struct clock_watch *w, struct clock_pair now)
{
	struct clock_times t;

	clock_watch_times(w, now, &t);
	return t.early_ms != t.late_ms;
}
