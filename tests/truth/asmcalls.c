/* SPDX-License-Identifier: Apache-2.0 */
/* Spends its time in assembly functions of the C library. */
#include "truth.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static char a[1 << 14], b[1 << 14];
static volatile size_t sink;
static volatile double fsink = 2.5;

NOINLINE void copies(int n)
{
	TRUTH();
	for (int i = 0; i < n; i++) {
		memcpy(a, b, 1 + (i * 37) % sizeof(a));
		__asm__ volatile("" ::: "memory");
	}
}

NOINLINE void lengths(int n)
{
	TRUTH();
	for (int i = 0; i < n; i++) {
		sink = strlen(a + i % 1000);
		__asm__ volatile("" ::: "memory");
	}
}

NOINLINE void compares(int n)
{
	TRUTH();
	for (int i = 0; i < n; i++) {
		sink = strcmp(a, b) + memcmp(a, b, sizeof(a));
		__asm__ volatile("" ::: "memory");
	}
}

NOINLINE void sets(int n)
{
	TRUTH();
	for (int i = 0; i < n; i++) {
		memset(b, i & 1 ? 'x' : 'y', sizeof(b) - 1);
		sink = (size_t)memchr(b, 'z', sizeof(b));
		__asm__ volatile("" ::: "memory");
	}
}

NOINLINE void powers(int n)
{
	TRUTH();
	for (int i = 0; i < n; i++)
		fsink = pow(fsink, 1.0001) + exp(-fsink);
}

static int by_value(const void *x, const void *y)
{
	return *(const int *)x - *(const int *)y;
}

/* The library calls back: the program has frames on both sides of a foreign one. */
NOINLINE void sorts(int n)
{
	TRUTH();
	static int v[4096];

	truth_knows("by_value");
	for (int i = 0; i < n; i++) {
		for (int k = 0; k < 4096; k++)
			v[k] = k * 7919 % 4093;
		qsort(v, 4096, sizeof(*v), by_value);
	}
}

int main(int argc, char **argv)
{
	truth_init(argc, argv);
	TRUTH();
	memset(a, 'x', sizeof(a) - 1);
	while (truth_running()) {
		copies((int)truth_about(2000));
		lengths((int)truth_about(1000));
		sets((int)truth_about(1000));
		memcpy(b, a, sizeof(a));
		compares((int)truth_about(1000));
		powers((int)truth_about(10000));
		sorts((int)truth_about(4));
	}
	truth_finish();
	return 0;
}
