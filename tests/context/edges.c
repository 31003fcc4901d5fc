/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records of spans where memory ends, and across pages: `edges SECONDS LOG`. A reader that reads
 * more than there is finds nothing behind. See spans.c.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "culprit_context.h"
#include "work.h"

#define RECORD 28
#define PAGE 65536 /* of any machine */

extern _Thread_local uint8_t *otel_thread_ctx_v1;

WORK(0, 2000)
WORK(1, 2000)
WORK(2, 2000)
WORK(3, 2000)

static void (*const work[])(void) = {work_0, work_1, work_2, work_3};

/* n bytes of attributes, the last says which work it is. */
static void attributes(uint8_t *at, int n, int which)
{
	int route = culprit_context_key("http.route"), filler = culprit_context_key("filler");

	for (n -= 8; n >= 2;) {
		int m = n - 2 < 255 ? n - 2 : 255;

		at[0] = (uint8_t)filler;
		at[1] = (uint8_t)m;
		memset(at + 2, 'x', (size_t)m);
		at += m + 2;
		n -= m + 2;
	}
	at[0] = (uint8_t)route;
	at[1] = 6;
	memcpy(at + 2, "/pay/", 5);
	at[7] = (uint8_t)('0' + which);
}

int main(int argc, char **argv)
{
	/* With 104 and more a second read may follow; 612 is the most. */
	static const int sizes[] = {8, 28, 100, 104, 106, 232, 300, 612};
	uint8_t *memory =
		mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t end = now_us() + (uint64_t)(strtod(argv[1], NULL) * 1e6);
	FILE *log = fopen(argv[2], "w");

	if (argc < 3 || memory == MAP_FAILED || !log || munmap(memory + 2 * PAGE, PAGE) < 0)
		return 1;
	(void)culprit_context_key("http.route");
	(void)culprit_context_key("filler");
	if (culprit_context_process(NULL, NULL, 0) < 0)
		return 1;
	for (uint32_t i = 0; now_us() < end; i++) {
		int n = sizes[i / 4 % 8], which = (int)(i % 4);
		/* The last bytes that there are, or some before and some behind the start of a
		 * page. */
		uint8_t *r = memory + (i & 64 ? 2 * PAGE - RECORD - n : PAGE - 1 - (int)(i % 60));

		if (getrandom(r, 24, 0) != 24)
			return 1;
		r[24] = 1;
		r[25] = 1;
		memcpy(r + 26, &(uint16_t){(uint16_t)n}, 2);
		attributes(r + RECORD, n, which);
		__atomic_signal_fence(__ATOMIC_SEQ_CST);
		otel_thread_ctx_v1 = r;
		work[which]();
		otel_thread_ctx_v1 = NULL;
		for (int k = 0; k < 24; k++)
			fprintf(log, "%s%02x", k == 16 ? " " : "", r[k]);
		fprintf(log, " %d %d\n", which, (int)getpid());
	}
	fclose(log);
	return 0;
}
