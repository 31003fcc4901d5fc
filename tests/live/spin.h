/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that spin until a moment and measure their CPU time. */
#pragma once

#include <time.h>

#define MS 1000000L
#define NS 1000000000L

static inline long now(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return t.tv_sec * NS + t.tv_nsec;
}

/*
 * Spins until `end` of CLOCK_MONOTONIC. Returns the CPU time that it used. Inlined, so that samples
 * are in the caller.
 */
static inline __attribute__((always_inline)) long spin_until(long end)
{
	long begin = now(CLOCK_THREAD_CPUTIME_ID);

	while (now(CLOCK_MONOTONIC) < end)
		;
	return now(CLOCK_THREAD_CPUTIME_ID) - begin;
}

/* Defines a function that spins. `statement` must differ, or a linker could fold two functions. */
#define SPINNER(name, statement)                                                                   \
	__attribute__((noinline)) static long name(long end)                                       \
	{                                                                                          \
		long used = spin_until(end);                                                       \
                                                                                                   \
		statement;                                                                         \
		return used;                                                                       \
	}
