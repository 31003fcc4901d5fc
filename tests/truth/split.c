/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Three functions that share the CPU time 70 : 20 : 10. After each call the program reads the
 * thread's CPU clock, and calls the function that is furthest behind its share. Calls differ in
 * length, so that the program does not run in step with the sampling clock.
 */
#include "truth.h"

#define N 3

static void burn(long n)
{
	unsigned long x = 88172645463325252UL + n;

	for (long i = 0; i < n; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		__asm__ volatile("" : "+r"(x));
	}
}

#define SPINNER(name)                                                                              \
	NOINLINE void name(long n)                                                                 \
	{                                                                                          \
		TRUTH();                                                                           \
		burn(n);                                                                           \
	}
SPINNER(spin_70)
SPINNER(spin_20)
SPINNER(spin_10)

int main(int argc, char **argv)
{
	void (*const fn[N])(long) = {spin_70, spin_20, spin_10};
	const char *const name[N] = {"spin_70", "spin_20", "spin_10"};
	const double share[N] = {0.7, 0.2, 0.1};
	long long used[N] = {0}, total = 0;

	truth_init(argc, argv);
	TRUTH();
	while (truth_running()) {
		double most = -1e18;
		int k = 0;

		for (int i = 0; i < N; i++) {
			double behind = share[i] * total - used[i];

			if (behind > most) {
				most = behind;
				k = i;
			}
		}
		long long t = truth_cpu_ns();

		fn[k](truth_about(300000));
		t = truth_cpu_ns() - t;
		used[k] += t;
		total += t;
	}
	for (int i = 0; i < N; i++)
		truth_note(name[i], used[i]);
	truth_finish();
	return 0;
}
