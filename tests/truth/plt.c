/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of tiny functions in a library, so that much of the time goes to the stubs of the PLT. */
#include "truth.h"

long lib_leaf_a(long x);
long lib_leaf_b(long x);
long lib_nested(long x);

NOINLINE long calls(long n)
{
	TRUTH();
	long x = n;

	truth_knows("lib_leaf_a");
	truth_knows("lib_leaf_b");
	for (long i = 0; i < n; i++)
		x = lib_leaf_b(lib_leaf_a(x));
	return x;
}

NOINLINE long nested(long n)
{
	TRUTH();
	long x = n;
	struct truth_node *here = truth_enter("lib_nested");

	truth_knows("lib_leaf_a");
	truth_leave(&here);
	for (long i = 0; i < n; i++)
		x = lib_nested(x);
	return x;
}

int main(int argc, char **argv)
{
	truth_init(argc, argv);
	TRUTH();
	while (truth_running()) {
		calls(200000);
		nested(100000);
	}
	truth_finish();
	return 0;
}
