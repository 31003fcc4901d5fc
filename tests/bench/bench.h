/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the benchmarks: random numbers that are the same in each run, and clocks. */
#pragma once

#include <time.h>

#include "base/types.h"

static u64 dice = 20240101;

static inline u64 roll(void)
{
	dice ^= dice << 13;
	dice ^= dice >> 7;
	dice ^= dice << 17;
	return dice;
}

static inline double seconds(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}
