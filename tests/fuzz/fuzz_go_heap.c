/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Go: the memory profile of a process. Its memory is this process's own, so that wild pointers lead
 * to readable memory, too.
 *
 *	byte 0	bits: 0 the cycle is shifted, 2 and 3 two more words may head the list, 4 sites
 *		count no bytes
 *	rest	the memory: the head of the list, the rate, the cycle, the other heads. A word
 *		0xfffeNNNN in it is the address of its byte NNNN, a word 0xfffdNNNN the hash of
 *		a bucket, whose fourth word this is
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/runtime/go/heap.h"
#include "base/clock.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MAX_IMAGE 65536
#define CALLS 64 /* addresses whose inlined calls are known */
#define HEADER_WORDS 6

static void on_site(void *arg, const struct runtime_heap_look *l, const struct runtime_site *s)
{
	u32 *seen = arg;
	u64 sum = 0;

	if (++*seen > l->n_sites || !s->allocs || s->frees > s->allocs ||
	    s->free_bytes > s->alloc_bytes || s->n_calls > 1024)
		abort();
	for (u32 i = 0; i < s->n_calls; i++)
		sum ^= s->calls[i];
	__asm__ volatile("" : : "r"(sum));
}

/* As stkbucket() makes it of the bucket whose fourth word is `at`, if it is within the image. */
static u64 hash_of(const u64 *words, size_t n, size_t at)
{
	u64 n_stack = at + 2 < n ? words[at + 2] : 0, h = 0;
	u64 first = at + HEADER_WORDS - 3;

	for (u64 i = 0; n_stack <= 1024 && first + n_stack <= n && i <= n_stack; i++) {
		h += i < n_stack ? words[first + i] : words[at + 1];
		h += h << 10;
		h ^= h >> 6;
	}
	h += h << 3;
	return h ^ h >> 11;
}

static void make_pointers(u64 *words, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (words[i] >> 16 == 0xfffe)
			words[i] = (u64)((u8 *)words + (words[i] & 0xffff) % (n * 8));
	for (size_t i = 0; i < n; i++)
		if (words[i] >> 16 == 0xfffd)
			words[i] = hash_of(words, n, i);
}

static int know_calls(struct go_heap_known *known)
{
	int r = 0;

	for (u64 i = 0; i < CALLS && r == 0; i++) {
		r = map_put(&known->calls, i, known->inlined.n << 8 | i % 3);
		for (u64 k = 0; k < i % 3 && r == 0; k++)
			r = vec_push(&known->inlined, (i + k + 1) % CALLS);
	}
	return r;
}

static void fuzz(const uint8_t *data, u64 *words, size_t n)
{
	struct runtime_target t = {.memory.pid = (u32)getpid()};
	struct go_heap_known known = {
		.at = {.lists = {(u64)words, (u64)(words + 3), (u64)(words + 4)},
		       .n_lists = 1 + (data[0] >> 2 & 1) + (data[0] >> 3 & 1),
		       .rate = (u64)(words + 1),
		       .cycle = (u64)(words + 2),
		       .is_shifted = data[0] & 1,
		       .has_bytes = !(data[0] & 16),
		       .goexit = {8, 9}}};
	u32 seen = 0;
	struct runtime_heap_look l = {
		.until_ns = clock_ns(CLOCK_MONOTONIC) + 100000000, .site = on_site, .arg = &seen};

	make_pointers(words, n);
	if (know_calls(&known) == 0 && go_heap_ops.look(&t, &known, &l) == 0 && seen != l.n_sites)
		abort();
	map_deinit(&known.calls);
	vec_deinit(&known.inlined);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t n = size < 1 + 5 * 8 ? 0 : MIN(size - 1, (size_t)MAX_IMAGE) / 8;
	u64 *words = n ? aligned_alloc(8, n * 8) : NULL;

	if (words) {
		memcpy(words, data + 1, n * 8);
		fuzz(data, words, n);
	}
	free(words);
	return 0;
}
