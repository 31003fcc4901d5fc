/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stacks that are alike: the same sizes of frames, the same saved registers, and one return address
 * or another in two places that change all the time. Only certain pairs of them occur with each
 * function at the top, so that a stack put together from two is none of the program's.
 */
#include "truth.h"

#define WAYS 4

static volatile long turn; /* 0 to WAYS * WAYS - 1 */

#define TOP(i)                                                                                     \
	NOINLINE void top_##i(void)                                                                \
	{                                                                                          \
		TRUTH();                                                                           \
		spin(3000 + i);                                                                    \
	}
TOP(0)
TOP(1) TOP(2) TOP(3) TOP(4) TOP(5) TOP(6) TOP(7) TOP(8) TOP(9) TOP(10) TOP(11) TOP(12) TOP(13)
	TOP(14) TOP(15)

		static void (*const tops[WAYS * WAYS])(void) = {
			top_0, top_1, top_2,  top_3,  top_4,  top_5,  top_6,  top_7,
			top_8, top_9, top_10, top_11, top_12, top_13, top_14, top_15,
};

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
UPPER(0)
UPPER(1) UPPER(2) UPPER(3)

	static void (*const uppers[WAYS])(void) = {upper_0, upper_1, upper_2, upper_3};

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
LOWER(0)
LOWER(1) LOWER(2) LOWER(3)

	static void (*const lowers[WAYS])(void) = {lower_0, lower_1, lower_2, lower_3};

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
