/* SPDX-License-Identifier: Apache-2.0 */
/* The two libraries of unmapper.c: -DFRAME=bytes and -DNAME=the inner function's name. */
#include "truth.h"

void swap_entry(void (*callback)(long n));

NOINLINE static void NAME(void (*callback)(long n), long n)
{
	TRUTH();
	volatile char frame[FRAME];

	frame[0] = 1;
	callback(n + frame[0]);
}

void swap_entry(void (*callback)(long n))
{
	TRUTH();
	NAME(callback, 100000);
}
