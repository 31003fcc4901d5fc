/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that realign the stack for wide vectors, also together with alloca. */
#include "truth.h"

typedef long vec __attribute__((vector_size(64)));

static volatile long sink;

NOINLINE void aligned_leaf(vec *v)
{
	TRUTH();
	vec local __attribute__((aligned(128))) = *v;

	__asm__ volatile("" ::"r"(&local) : "memory");
	spin(300000);
	sink = local[0];
}

NOINLINE void aligned_args(long a, long b, long c, long d, long e, long f, long g, long h)
{
	TRUTH();
	vec v __attribute__((aligned(64))) = {a, b, c, d, e, f, g, h};

	__asm__ volatile("" ::"r"(&v) : "memory");
	aligned_leaf(&v);
	sink = v[1];
}

NOINLINE void aligned_alloca(int n, long a, long b, long c, long d, long e, long f, long g)
{
	TRUTH();
	vec v __attribute__((aligned(256))) = {a, b, c, d, e, f, g, n};
	char *p = __builtin_alloca(n);

	p[0] = 1;
	__asm__ volatile("" ::"r"(&v), "r"(p) : "memory");
	aligned_args(v[0], v[1], v[2], v[3], v[4], v[5], v[6], p[0]);
	sink = v[2];
}

int main(int argc, char **argv)
{
	int n = 1;

	truth_init(argc, argv);
	TRUTH();
	while (truth_running()) {
		aligned_alloca(n, 1, 2, 3, 4, 5, 6, 7);
		n = n * 7 % 1009 + 1;
	}
	truth_finish();
	return 0;
}
