/* SPDX-License-Identifier: Apache-2.0 */
/*
 * OTLP traces, binary or JSON; Zipkin's JSON when the first byte is '['. Accepted spans must be
 * within their bounds, and must be the same after they were written to a block and read back.
 */
#include "format/zipkin.h"
#include "fuzz_profile.h"
#include "otlp/otlp.h"
#include "server/store/private.h"
#include "server/store/span_block.h"

#define FUZZ_MAX_BYTES ((size_t)32 << 20)

static void check_bounds(const struct spans *s)
{
	for (size_t i = 0; i < s->spans.n; i++) {
		const struct span *e = &s->spans.data[i];

		MUST(span_check(e, NULL) == 0);
		MUST(e->n <= SPAN_MAX_ATTRIBUTES && e->first + e->n <= s->attributes.n);
		MUST(strlen(spans_string(s, e->name)) <= SPAN_MAX_TEXT);
		MUST(e->kind < SPAN_KIND_N && e->status < SPAN_STATUS_N);
		MUST(!(e->flags & SPAN_ROOT) == !e->endpoint || !*spans_string(s, e->endpoint));
	}
}

static void check_same(const struct spans *a, const struct spans *b)
{
	MUST(a->spans.n == b->spans.n);
	for (size_t i = 0; i < a->spans.n; i++) {
		const struct span *x = &a->spans.data[i], *y = &b->spans.data[i];

		MUST(span_compare(x, y) == 0 && x->duration_ns == y->duration_ns);
		MUST(x->kind == y->kind && x->status == y->status && x->flags == y->flags);
		MUST(!memcmp(x->parent_id, y->parent_id, 8) && x->n == y->n && x->tid == y->tid);
		MUST(!strcmp(spans_string(a, x->endpoint), spans_string(b, y->endpoint)));
		for (u32 k = 0; k < x->n; k++)
			MUST(!strcmp(spans_string(a, a->attributes.data[x->first + k].value),
				     spans_string(b, b->attributes.data[y->first + k].value)));
	}
}

static void check_block(struct spans *s)
{
	_cleanup_spans_ struct spans back = {};
	_cleanup_str_ struct str part = {};
	u32 *order;

	store_spans_order(s);
	order = calloc(s->spans.n + 1, sizeof(*order));
	MUST(order && spans_init(&back) == 0);
	for (size_t i = 0; i < s->spans.n; i++)
		order[i] = (u32)i;
	MUST(span_part_encode(s, order, s->spans.n, 1, &part) == 0);
	MUST(span_part_decode((const u8 *)part.data, part.n, &back) == 0);
	check_same(s, &back);
	free(order);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_spans_ struct spans s = {};
	struct otlp_rejected rejected = {};
	int r;

	MUST(spans_init(&s) == 0);
	if (size && *data == '{')
		r = otlp_traces_decode_json((const char *)data, size, FUZZ_MAX_BYTES, &s, &rejected,
					    NULL);
	else if (size && *data == '[')
		r = zipkin_read((const char *)data, size, FUZZ_MAX_BYTES, &s, NULL);
	else
		r = otlp_traces_decode(data, size, FUZZ_MAX_BYTES, &s, &rejected, NULL);
	if (r == 0) {
		check_bounds(&s);
		check_block(&s);
	}
	return 0;
}
