/* SPDX-License-Identifier: Apache-2.0 */
/* Chains of functions of which the compiler keeps only the outermost. */
#include "truth.h"

static INLINED void in_d(long n)
{
	TRUTH_INLINED();
	spin(n);
}

static INLINED void in_c(long n)
{
	TRUTH_INLINED();
	in_d(n + 1);
}

static INLINED void in_b(long n)
{
	TRUTH_INLINED();
	for (int i = 0; i < 2; i++)
		in_c(n + i);
}

NOINLINE void outer(long n)
{
	TRUTH();
	in_b(n);
	in_d(n / 2);
}

/* Inlined code that uses the CPU itself, so that the leaf has an inline chain of its own. */
static INLINED unsigned long mix(unsigned long x)
{
	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	__asm__ volatile("" : "+r"(x));
	return x;
}

static INLINED unsigned long mix_twice(unsigned long x)
{
	return mix(mix(x) + 1);
}

NOINLINE unsigned long mixer(long n)
{
	TRUTH();
	unsigned long x = n;

	struct truth_node *here = truth_enter_inlined("mix_twice");

	struct truth_node *inner = truth_enter_inlined("mix");

	truth_leave(&inner);
	truth_leave(&here);
	for (long i = 0; i < n; i++)
		x = mix_twice(x);
	return x;
}

int main(int argc, char **argv)
{
	truth_init(argc, argv);
	TRUTH();
	while (truth_running()) {
		outer(200000);
		mixer(200000);
	}
	truth_finish();
	return 0;
}
