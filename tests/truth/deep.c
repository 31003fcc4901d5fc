/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Call chains of 1 to 500 distinct functions with frames of many sizes. Each function passes more
 * arguments than registers hold, so that the stack pointer moves within functions too.
 */
#include "truth.h"

typedef void level_fn(int depth, long a, long b, long c, long d, long e, long f, long g);

#define DECLARE(n) level_fn level_##n;
#define LEVEL(n, next)                                                                             \
	NOINLINE void level_##n(int depth, long a, long b, long c, long d, long e, long f, long g) \
	{                                                                                          \
		TRUTH();                                                                           \
		volatile char frame[1 + (n)*37 % 271];                                             \
                                                                                                   \
		frame[0] = (char)a;                                                                \
		if (depth == (n))                                                                  \
			spin(400000);                                                              \
		else                                                                               \
			next(depth, b, c, d, e, f, g, a + frame[0]);                               \
		__asm__ volatile("" ::: "memory");                                                 \
	}

#define TEN(M, x) M(x##0) M(x##1) M(x##2) M(x##3) M(x##4) M(x##5) M(x##6) M(x##7) M(x##8) M(x##9)
#define HUNDRED(M, x)                                                                              \
	TEN(M, x##0)                                                                               \
	TEN(M, x##1)                                                                               \
	TEN(M, x##2)                                                                               \
	TEN(M, x##3) TEN(M, x##4) TEN(M, x##5) TEN(M, x##6) TEN(M, x##7) TEN(M, x##8) TEN(M, x##9)

/* Numbers begin with a 1 so that none is octal: levels 1001 to 1500. */
HUNDRED(DECLARE, 10)
HUNDRED(DECLARE, 11)
HUNDRED(DECLARE, 12)
HUNDRED(DECLARE, 13)
HUNDRED(DECLARE, 14)
DECLARE(1500)
DECLARE(1501)

#define TEN_LEVELS(x, next)                                                                        \
	LEVEL(x##0, level_##x##1)                                                                  \
	LEVEL(x##1, level_##x##2)                                                                  \
	LEVEL(x##2, level_##x##3)                                                                  \
	LEVEL(x##3, level_##x##4)                                                                  \
	LEVEL(x##4, level_##x##5)                                                                  \
	LEVEL(x##5, level_##x##6)                                                                  \
	LEVEL(x##6, level_##x##7)                                                                  \
	LEVEL(x##7, level_##x##8)                                                                  \
	LEVEL(x##8, level_##x##9)                                                                  \
	LEVEL(x##9, level_##next##0)
#define HUNDRED_LEVELS(x, next)                                                                    \
	TEN_LEVELS(x##0, x##1)                                                                     \
	TEN_LEVELS(x##1, x##2)                                                                     \
	TEN_LEVELS(x##2, x##3)                                                                     \
	TEN_LEVELS(x##3, x##4)                                                                     \
	TEN_LEVELS(x##4, x##5)                                                                     \
	TEN_LEVELS(x##5, x##6)                                                                     \
	TEN_LEVELS(x##6, x##7)                                                                     \
	TEN_LEVELS(x##7, x##8)                                                                     \
	TEN_LEVELS(x##8, x##9)                                                                     \
	TEN_LEVELS(x##9, next##0)
HUNDRED_LEVELS(10, 11)
HUNDRED_LEVELS(11, 12)
HUNDRED_LEVELS(12, 13)
HUNDRED_LEVELS(13, 14)
HUNDRED_LEVELS(14, 15)
LEVEL(1500, level_1501)

NOINLINE void level_1501(int depth, long a, long b, long c, long d, long e, long f, long g)
{
	__builtin_trap();
}

int main(int argc, char **argv)
{
	static const int depths[] = {1, 2, 7, 30, 31, 32, 33, 64, 127, 128, 200, 256, 400, 500};
	unsigned i = 0;

	truth_init(argc, argv);
	TRUTH();
	while (truth_running())
		level_1001(1000 + depths[i++ % (sizeof(depths) / sizeof(*depths))], 1, 2, 3, 4, 5,
			   6, 7);
	truth_finish();
	return 0;
}
