/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bodies that are small when they are sent: everything that the server takes, under a quota. The
 * first byte chooses the endpoint and the encoding, the second the memory, the third how often the
 * rest is repeated; then the rest is compressed. So an input of a few bytes becomes a bomb of up to
 * 16 MiB. Whatever it is, the heap grows by no more than the quota has, as the sanitizer counts it,
 * and the pool has all of it back.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/quota.h"
#include "compress/compress.h"
#include "server/ingest/ingest.h"
#include "server/store/private.h"

#define MAX_BYTES (16u << 20)
#define OTHER_BYTES (2u << 20) /* of libraries, which are not charged: the state of zlib */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Of the sanitizer; NULL without one. */
size_t __sanitizer_get_current_allocated_bytes(void) __attribute__((weak));
int __sanitizer_install_malloc_and_free_hooks(void (*on_malloc)(const volatile void *, size_t),
					      void (*on_free)(const volatile void *))
	__attribute__((weak));

static size_t heap_peak;

static void note_malloc(const volatile void *p, size_t n)
{
	size_t now = __sanitizer_get_current_allocated_bytes();

	heap_peak = MAX(heap_peak, now);
}

static void note_free(const volatile void *p)
{
}

static int write_nothing(struct store *s, const struct store_batch *b, const u8 token[16],
			 struct diag *reterr_diag)
{
	return 0;
}

static int write_no_spans(struct store *s, const struct spans *spans, const u8 token[16],
			  struct diag *reterr_diag)
{
	return 0;
}

/* Sends the body to the endpoint. */
static void send(struct ingest *i, u8 way, const struct str *body)
{
	static const char *const formats[] = {"folded", "pprof", "speedscope", "perf-script",
					      "jfr"};
	const u8 *data = (const u8 *)str_get(body);
	const char *encoding = way & 0x80 ? "gzip" : NULL; /* or packed by itself */
	struct ingest_file f = {.encoding = encoding, .format = formats[way % ARRAY_SIZE(formats)]};
	_cleanup_profile_ struct profile *p = NULL;
	_cleanup_str_ struct str answer = {};
	struct diag d = {};
	bool json = way & 0x40;

	switch (way & 7) {
	case 0:
		(void)ingest_otlp_profiles(i, data, body->n, encoding, NULL, json, &answer, &d);
		break;
	case 1:
		(void)ingest_otlp_traces(i, data, body->n, encoding, NULL, json, &answer, &d);
		break;
	case 2:
		(void)ingest_push(i, data, body->n, encoding, NULL, json, &d);
		break;
	case 3:
		(void)ingest_zipkin(i, data, body->n, encoding, NULL, &d);
		break;
	case 4:
		(void)ingest_read(i, data, body->n, &f, &p, &d);
		break;
	default:
		(void)ingest_file(i, data, body->n, &f, &d);
	}
}

static void send_under_quota(struct ingest *i, u8 way, u64 limit, const struct str *body)
{
	struct quota_pool pool = {.limit_bytes = limit};
	struct quota q = {.limits = {.pool = &pool, .bytes = limit}};
	size_t before = 0;

	if (__sanitizer_get_current_allocated_bytes)
		before = heap_peak = __sanitizer_get_current_allocated_bytes();
	quota_begin(&q);
	send(i, way, body);
	quota_end(&q);
	if (heap_peak - before > limit + OTHER_BYTES) {
		fprintf(stderr, "%zu bytes of heap, %llu allowed\n", heap_peak - before,
			(unsigned long long)limit);
		abort();
	}
	if (atomic_load(&pool.used))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct store_ops ops = {.write = write_nothing, .write_spans = write_no_spans};
	static const struct ingest_options o = {.max_request_bytes = MAX_BYTES};
	static bool hooked;
	_cleanup_str_ struct str plain = {}, packed = {};
	_cleanup_ingest_ struct ingest *i = NULL;
	struct store store = {.ops = &ops};
	u64 limit;
	size_t n;

	if (size < 4 || ingest_create(&store, &o, &i) < 0)
		return 0;
	if (!hooked && __sanitizer_install_malloc_and_free_hooks)
		(void)__sanitizer_install_malloc_and_free_hooks(note_malloc, note_free);
	if (!hooked)
		quota_start();
	hooked = true;
	limit = 64ULL << 10 << data[1] % 10;
	n = MIN((size_t)1 << data[2] % 24, MAX_BYTES / (size - 3));
	for (size_t k = 0; k < n; k++)
		(void)str_append(&plain, data + 3, size - 3);
	if (!plain.failed && gzip_deflate(plain.data, plain.n, &packed) == 0)
		send_under_quota(i, data[0], limit, &packed);
	return 0;
}
