/* SPDX-License-Identifier: Apache-2.0 */
/* Times to wake up at, in a heap: the next one is known at once. One thread. */
#pragma once

#include "base/vec.h"

struct net_timer {
	u64 at_ms;
	size_t place; /* in the heap, from 1; 0 = not set */
};

struct net_timers {
	vec(struct net_timer *) heap;
};

/* Sets or moves the timer. Moving never fails. */
int net_timer_set(struct net_timers *h, struct net_timer *t, u64 at_ms);
void net_timer_clear(struct net_timers *h, struct net_timer *t);
/* The timer that is due next, or NULL. */
struct net_timer *net_timer_first(const struct net_timers *h);
