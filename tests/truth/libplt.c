/* SPDX-License-Identifier: Apache-2.0 */
/* The library of plt.c. */
long lib_leaf_a(long x);
long lib_leaf_b(long x);
long lib_nested(long x);

long lib_leaf_a(long x)
{
	return x * 3 + 1;
}

long lib_leaf_b(long x)
{
	return x ^ x >> 3;
}

long lib_nested(long x)
{
	return lib_leaf_a(x) + lib_leaf_a(x + 1);
}
