/* SPDX-License-Identifier: Apache-2.0 */
/* The library of late.c; TRUTH() is the program's. */
#include "truth.h"

void late_entry(void (*callback)(long n));

NOINLINE static void late_inner(void (*callback)(long n), long n)
{
	TRUTH();
	volatile char frame[3000];

	frame[0] = 1;
	callback(n + frame[0]);
}

void late_entry(void (*callback)(long n))
{
	TRUTH();
	late_inner(callback, 300000);
}
