/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that work for a known time: WORK(0, 2000) defines work_0(). */
#pragma once

#include <stdint.h>
#include <time.h>

static volatile uint64_t sink;

static uint64_t now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static __attribute__((noinline)) void burn(uint64_t us)
{
	for (uint64_t end = now_us() + us; now_us() < end;)
		for (int i = 0; i < 200; i++)
			sink += (uint64_t)i * i;
}

#define WORK(n, us)                                                                                \
	static __attribute__((noinline)) void work_##n(void)                                       \
	{                                                                                          \
		burn(us);                                                                          \
		sink++;                                                                            \
	}
