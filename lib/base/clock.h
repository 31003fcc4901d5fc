/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/types.h"

#include <time.h>

/* Nanoseconds of CLOCK_MONOTONIC, CLOCK_REALTIME … */
static inline u64 clock_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (u64)t.tv_sec * 1000000000 + (u64)t.tv_nsec;
}

/* Milliseconds since the epoch. */
static inline u64 clock_epoch_ms(void)
{
	return clock_ns(CLOCK_REALTIME) / 1000000;
}
