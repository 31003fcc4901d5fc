/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `edges SECONDS LOG`: records of spans at the end of mapped memory, and across pages, so that a
 * reader that reads too much fails. Half of the time the records are the program's own; then they
 * are the library's, in threads whose thread-local storage lies across pages. See spans.c.
 */
#include <pthread.h>
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
#define MAX_BYTES 612
#define PAGE 65536 /* the largest page of any machine */

extern _Thread_local uint8_t *otel_thread_ctx_v1;

WORK(0, 2000)
WORK(1, 2000)
WORK(2, 2000)
WORK(3, 2000)

static void (*const work[])(void) = {work_0, work_1, work_2, work_3};

/* Writes n bytes of attributes; the last byte is the number of the work. */
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

/* From 104 bytes on a reader may need a second read; 612 is the most. */
static const int sizes[] = {8, 28, 100, 104, 106, 232, 300, 612};
static FILE *spans_log;

static void say(const uint8_t *ids, int which)
{
	for (int k = 0; k < 24; k++)
		fprintf(spans_log, "%s%02x", k == 16 ? " " : "", ids[k]);
	fprintf(spans_log, " %d %d\n", which, (int)gettid());
}

static void by_hand(uint8_t *memory, uint64_t end)
{
	for (uint32_t i = 0; now_us() < end; i++) {
		int n = sizes[i / 4 % 8], which = (int)(i % 4);
		/* The record is at the end of mapped memory, or crosses the start of a page. */
		uint8_t *r = memory + (i & 64 ? 2 * PAGE - RECORD - n : PAGE - 1 - (int)(i % 60));

		if (getrandom(r, 24, 0) != 24)
			exit(1);
		r[24] = 1;
		r[25] = 1;
		memcpy(r + 26, &(uint16_t){(uint16_t)n}, 2);
		attributes(r + RECORD, n, which);
		__atomic_signal_fence(__ATOMIC_SEQ_CST);
		otel_thread_ctx_v1 = r;
		work[which]();
		otel_thread_ctx_v1 = NULL;
		say(r, which);
	}
}

static void *by_the_library(void *arg)
{
	uint64_t end = now_us() + *(uint64_t *)arg;
	uint8_t ids[24], bytes[MAX_BYTES];

	for (uint32_t i = 0; now_us() < end; i++) {
		int n = sizes[i / 4 % 8], which = (int)(i % 4);

		if (getrandom(ids, sizeof(ids), 0) != sizeof(ids))
			exit(1);
		attributes(bytes, n, which);
		culprit_context_enter(ids, ids + 16, 1);
		for (int at = 0; at < n; at += 2 + bytes[at + 1])
			if (culprit_context_attribute(bytes[at], (char *)bytes + at + 2,
						      bytes[at + 1]) < 0)
				exit(1);
		work[which]();
		culprit_context_leave();
		say(ids, which);
	}
	return NULL;
}

static void *where(void *arg)
{
	*(uintptr_t *)arg = (uintptr_t)&otel_thread_ctx_v1;
	return NULL;
}

/* Runs a thread on this stack, which determines the place of the thread's storage. */
static void on_stack(uint8_t *stack, void *(*run)(void *), void *arg)
{
	pthread_attr_t a;
	pthread_t t;

	if (pthread_attr_init(&a) != 0 || pthread_attr_setstack(&a, stack, 4 * PAGE) != 0 ||
	    pthread_create(&t, &a, run, arg) != 0 || pthread_join(t, NULL) != 0)
		exit(1);
	pthread_attr_destroy(&a);
}

/* Runs threads with all placements of the storage that cross a page's end. */
static void across_pages(uint64_t us)
{
	uint8_t *stack =
		mmap(NULL, 5 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t each = us / 4;
	uintptr_t at = 0;
	int n = 0;

	if (stack == MAP_FAILED)
		exit(1);
	for (int shift = 0; shift < 4096; shift += 64) {
		on_stack(stack + shift, where, &at);
		if ((at & 4095) + 160 <= 4096)
			continue;
		on_stack(stack + shift, by_the_library, &each);
		n++;
	}
	if (n < 2 || n > 4)
		exit(1);
}

int main(int argc, char **argv)
{
	uint8_t *memory =
		mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t us = argc < 3 ? 0 : (uint64_t)(strtod(argv[1], NULL) * 1e6);

	spans_log = argc < 3 ? NULL : fopen(argv[2], "w");
	if (memory == MAP_FAILED || !spans_log || munmap(memory + 2 * PAGE, PAGE) < 0)
		return 1;
	(void)culprit_context_key("http.route");
	(void)culprit_context_key("filler");
	if (culprit_context_process(NULL, NULL, 0) < 0)
		return 1;
	by_hand(memory, now_us() + us / 2);
	across_pages(us / 2);
	fclose(spans_log);
	return 0;
}
