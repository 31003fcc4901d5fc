/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that jump to the next one, instead of a call, and then are not on the stack. */
#include "truth.h"

NOINLINE long tail_end(long n)
{
	TRUTH();
	spin(n);
	return n;
}

NOINLINE long tail_middle(long n)
{
	struct truth_node *was = truth_enter("tail_middle");

	spin(n / 2);
	truth_back(was);
	return tail_end(n + 1); /* the shadow stack is the caller's here, like the real one */
}

NOINLINE long tail_first(long n)
{
	struct truth_node *was = truth_enter("tail_first");

	spin(n / 3);
	truth_back(was);
	return tail_middle(n + 1);
}

NOINLINE long caller(long n)
{
	TRUTH();
	long r = tail_first(n);

	__asm__ volatile("" : "+r"(r));
	return r;
}

int main(int argc, char **argv)
{
	truth_init(argc, argv);
	TRUTH();
	while (truth_running())
		caller(300000);
	truth_finish();
	return 0;
}
