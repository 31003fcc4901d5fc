/* SPDX-License-Identifier: Apache-2.0 */
/* Two functions with different frame sizes that call each other, to an exact depth. */
#include "truth.h"

#define DEPTH 301

void even(int n, long a, long b, long c, long d, long e, long f, long g);

NOINLINE void odd(int n, long a, long b)
{
	TRUTH();
	volatile long frame[9];

	frame[n % 9] = a;
	if (n)
		even(n - 1, b, a, n, frame[n % 9], b + 1, a + 1, n + 1);
	else
		spin(500000);
}

NOINLINE void even(int n, long a, long b, long c, long d, long e, long f, long g)
{
	TRUTH();
	volatile long frame[30];

	frame[n % 30] = c + d + e + f + g;
	odd(n - 1, frame[n % 30], b);
}

int main(int argc, char **argv)
{
	truth_init(argc, argv);
	TRUTH();
	while (truth_running())
		even(DEPTH, 1, 2, 3, 4, 5, 6, 7);
	truth_finish();
	return 0;
}
