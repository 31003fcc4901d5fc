/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cost of publishing for programs: ns per call of libculprit-context, the median of rounds.
 * Prints lines of a name and a number, for tests/bench/run.
 */
#include <stdio.h>
#include <stdlib.h>

#include "bench.h"
#include "context/culprit_context.h"

#define ROUNDS 31
#define CALLS 200000

static const uint8_t trace[16] = {1, 2, 3}, span[8] = {4, 5, 6};
static int key;

static void enter_leave(void)
{
	culprit_context_enter(trace, span, 1);
	culprit_context_leave();
}

static void enter_again(void)
{
	culprit_context_enter(trace, span, 1);
}

static void enter_attribute_leave(void)
{
	culprit_context_enter(trace, span, 1);
	culprit_context_attribute(key, "/checkout/{id}", 14);
	culprit_context_leave();
}

static int by_size(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static void measure(const char *what, void (*call)(void))
{
	double ns[ROUNDS];

	for (int round = 0; round < ROUNDS; round++) {
		double begin = seconds(CLOCK_THREAD_CPUTIME_ID);

		for (int i = 0; i < CALLS; i++)
			call();
		ns[round] = (seconds(CLOCK_THREAD_CPUTIME_ID) - begin) / CALLS * 1e9;
	}
	qsort(ns, ROUNDS, sizeof(ns[0]), by_size);
	printf("%s\t%.2f\n", what, ns[ROUNDS / 2]);
}

int main(void)
{
	key = culprit_context_key("http.route");
	measure("enter, leave", enter_leave);
	measure("enter", enter_again);
	measure("enter, an attribute, leave", enter_attribute_leave);
	return 0;
}
