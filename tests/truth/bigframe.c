/* SPDX-License-Identifier: Apache-2.0 */
/* Frames of 100 KiB and 1 MiB, and frames whose size is only known at run time. */
#include "truth.h"

#include <string.h>

static volatile char sink;

NOINLINE void leaf(char *p)
{
	TRUTH();
	*p = 1;
	spin(300000);
}

NOINLINE void frame_100k(void)
{
	TRUTH();
	char frame[100 << 10];

	frame[0] = 1;
	leaf(&frame[sizeof(frame) - 1]);
	sink = frame[0];
}

NOINLINE void frame_1m(void)
{
	TRUTH();
	char frame[1 << 20];

	frame[0] = 1;
	leaf(&frame[sizeof(frame) - 1]);
	frame_100k();
	sink = frame[0];
}

NOINLINE void frame_sized(int n)
{
	TRUTH();
	char *frame = __builtin_alloca(n);

	memset(frame, n, n);
	leaf(frame);
	for (int i = 0; i < 3; i++) {
		char *more = __builtin_alloca(n + 100 * i);

		more[0] = 1;
		frame_100k();
	}
	sink = frame[n / 2];
}

int main(int argc, char **argv)
{
	int n = 1;

	truth_init(argc, argv);
	TRUTH();
	while (truth_running()) {
		frame_1m();
		frame_sized(n);
		n = n * 7 % 10007 + 1;
	}
	truth_finish();
	return 0;
}
