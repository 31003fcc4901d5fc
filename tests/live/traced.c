/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program with known calls, for tests/live/test_trace.py. "traced N": calls work(i, -i, "text i")
 * N times, of which every fourth returns -1; passes the USDT probes demo:step (i, -i, &text, 77) N
 * times and, if its semaphore is set, demo:quiet (i); naps NAPS times for NAP_US each; writes to
 * `watched` N times. Then it says on standard error what it did: "work N quiet N naps N ns N".
 * "traced N wait" prints "ready PID ADDRESS" (of `watched`) first, and waits for a line.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define NAPS 20
#define NAP_US 3000

/* A note as <sys/sdt.h> makes it, with arguments in registers, memory and as a constant. */
#define NOTE(name, semaphore, arguments)                                                           \
	"990:	nop\n"                                                                               \
	".pushsection .note.stapsdt,\"\",\"note\"\n"                                               \
	".balign 4\n"                                                                              \
	".4byte 992f-991f, 994f-993f, 3\n"                                                         \
	"991:	.asciz \"stapsdt\"\n"                                                                \
	"992:	.balign 4\n"                                                                         \
	"993:	.8byte 990b\n"                                                                       \
	".8byte _.stapsdt.base\n"                                                                  \
	".8byte " semaphore "\n"                                                                   \
	".asciz \"demo\"\n"                                                                        \
	".asciz \"" name "\"\n"                                                                    \
	".asciz \"" arguments "\"\n"                                                               \
	"994:	.balign 4\n"                                                                         \
	".popsection\n"

asm(".pushsection .stapsdt.base,\"a\",\"progbits\"\n_.stapsdt.base: .space 1\n.popsection\n");

volatile unsigned short demo_quiet_semaphore __attribute__((section(".probes")));
volatile uint64_t watched;
static unsigned long n_quiet;

__attribute__((noipa)) long work(int a, long b, const char *text)
{
	return a % 4 ? b + (long)strlen(text) : -1;
}

__attribute__((noipa)) static void pass(int i)
{
	char text[32];
	const char *at = text;

	snprintf(text, sizeof(text), "step %d", i);
	asm volatile(NOTE("step", "0", "-4@%0 -8@%1 8@%2 4@$77")
		     :
		     : "r"(i), "m"(*(long[]){-i}), "r"(at)
		     : "memory");
	if (demo_quiet_semaphore) {
		asm volatile(NOTE("quiet", "demo_quiet_semaphore", "-4@%0") : : "r"(i) : "memory");
		n_quiet++;
	}
}

__attribute__((noipa)) static uint64_t nap(unsigned us)
{
	struct timespec a, b, t = {0, us * 1000L};

	clock_gettime(CLOCK_MONOTONIC, &a);
	nanosleep(&t, NULL);
	clock_gettime(CLOCK_MONOTONIC, &b);
	return (uint64_t)(b.tv_sec - a.tv_sec) * 1000000000 + (uint64_t)(b.tv_nsec - a.tv_nsec);
}

int main(int argc, char **argv)
{
	int n = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 0;
	uint64_t ns = 0;
	char text[32];

	if (argc > 2) {
		printf("ready %d %p\n", getpid(), (void *)&watched);
		fflush(stdout);
		if (getchar() == EOF)
			return 1;
	}
	for (int i = 0; i < n; i++) {
		snprintf(text, sizeof(text), "text %d", i);
		(void)work(i, -(long)i, text);
		pass(i);
		watched = (uint64_t)i;
	}
	for (int i = 0; i < NAPS; i++)
		ns += nap(NAP_US);
	fprintf(stderr, "work %d quiet %lu naps %d ns %llu\n", n, n_quiet, NAPS,
		(unsigned long long)ns);
	return 3;
}
