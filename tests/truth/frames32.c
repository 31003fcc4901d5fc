/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frames32 MS, for the benchmark: stacks of exactly 32 user frames, including _start and two of the
 * C library.
 */
#include "truth.h"

/* _start, __libc_start_main, __libc_start_call_main, main, 27 of these, spin: 32. */
NOINLINE void down(int n)
{
	TRUTH();
	volatile char frame[100];

	frame[0] = 0;
	if (n)
		down(n - 1 + frame[0]);
	else
		spin(400000);
}

int main(int argc, char **argv)
{
	truth_init(argc, argv);
	TRUTH();
	while (truth_running())
		down(26);
	truth_finish();
	return 0;
}
