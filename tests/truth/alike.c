/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stacks that are alike: one return address or another in two places, and saved frame pointers that
 * change, at stack pointers that do not. Only certain pairs of callers occur with each function at
 * the top, so that a stack put together from two is none of the program's.
 */
#include "truth.h"

#define WAYS 4
#define ALL_WAYS(X) X(0) X(1) X(2) X(3)
#define ALL_TURNS(X)                                                                               \
	X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15)

static volatile long turn; /* 0 to WAYS * WAYS - 1 */

#define TOP(i)                                                                                     \
	NOINLINE void top_##i(void)                                                                \
	{                                                                                          \
		TRUTH();                                                                           \
		spin(3000 + i);                                                                    \
	}
#define TOP_NAME(i) top_##i,
ALL_TURNS(TOP)
static void (*const tops[WAYS * WAYS])(void) = {ALL_TURNS(TOP_NAME)};

NOINLINE void between(int n)
{
	TRUTH();
	if (n)
		between(n - 1);
	else
		tops[turn]();
	turn += 0; /* no tail call */
}

#define UPPER(i)                                                                                   \
	NOINLINE void upper_##i(void)                                                              \
	{                                                                                          \
		TRUTH();                                                                           \
		between(3);                                                                        \
		turn += 0;                                                                         \
	}
#define UPPER_NAME(i) upper_##i,
ALL_WAYS(UPPER)
static void (*const uppers[WAYS])(void) = {ALL_WAYS(UPPER_NAME)};

NOINLINE void middle(int n)
{
	TRUTH();
	if (n)
		middle(n - 1);
	else
		uppers[turn % WAYS]();
	turn += 0;
}

/* Two frames whose sizes change and have the same sum: only saved frame pointers tell. */
NOINLINE void second(long part)
{
	TRUTH();
	volatile char *room = __builtin_alloca(64 * (unsigned long)(WAYS - part));

	room[0] = 1;
	middle(5);
	room[0] = 0;
}

NOINLINE void first(long part)
{
	TRUTH();
	volatile char *room = __builtin_alloca(64 * (unsigned long)(1 + part));

	room[0] = 1;
	second(part);
	room[0] = 0;
}

#define LOWER(i)                                                                                   \
	NOINLINE void lower_##i(void)                                                              \
	{                                                                                          \
		TRUTH();                                                                           \
		first(turn / 2 % WAYS);                                                            \
		turn += 0;                                                                         \
	}
#define LOWER_NAME(i) lower_##i,
ALL_WAYS(LOWER)
static void (*const lowers[WAYS])(void) = {ALL_WAYS(LOWER_NAME)};

int main(int argc, char **argv)
{
	unsigned long state = 1;

	truth_init(argc, argv);
	TRUTH();
	while (truth_running()) {
		state = state * 6364136223846793005UL + 1442695040888963407UL;
		turn = (long)(state >> 60);
		lowers[turn / WAYS]();
	}
	truth_finish();
	return 0;
}
