/* SPDX-License-Identifier: Apache-2.0 */
/* Spends its time in code that the kernel maps: clock_gettime and gettimeofday. */
#include "truth.h"

#include <sys/time.h>
#include <time.h>

NOINLINE void clocks(int n)
{
	TRUTH();
	struct timespec ts;

	for (int i = 0; i < n; i++)
		clock_gettime(CLOCK_MONOTONIC, &ts);
}

NOINLINE void days(int n)
{
	TRUTH();
	struct timeval tv;

	for (int i = 0; i < n; i++)
		gettimeofday(&tv, NULL);
}

int main(int argc, char **argv)
{
	truth_init(argc, argv);
	TRUTH();
	while (truth_running()) {
		clocks((int)truth_about(30000));
		days((int)truth_about(30000));
	}
	truth_finish();
	return 0;
}
