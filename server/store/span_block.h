/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parts of the blocks of spans and links of the SQLite engine (doc/format/block.md). A part
 * contains everything that its rows refer to, so that deleting one row evicts a block.
 */
#pragma once

#include "base/types.h"
#include "base/vec.h"
#include "profile/span.h"
#include "server/store/store.h"

#define SPAN_BLOCK_ROWS 65536u

/* order: positions in s->spans, by span_compare(). level: zstd's. */
int span_part_encode(const struct spans *s, const u32 *order, size_t n, int level, struct str *ret);
/* Appends all spans of a part. -EBADMSG for damage, after some may have been appended. */
int span_part_decode(const u8 *data, size_t n, struct spans *into);

/* As the span functions, for links. order: by link_compare(). */
int link_part_encode(const struct store_links *l, const u32 *order, size_t n, int level,
		     struct str *ret);
int link_part_decode(const u8 *data, size_t n, struct store_links *into);

/* By trace id, start, span id and kind; and by trace, span, type, series, stack and time. */
int span_compare(const struct span *a, const struct span *b);
int link_compare(const struct store_link *a, const struct store_link *b);

/* ---- the filter of a block ---- */

/* A Bloom filter of trace ids, with ten bits for each row. */
struct span_filter {
	u8 *bits; /* owned */
	size_t n; /* bytes */
};
int span_filter_init(struct span_filter *f, size_t n_traces);
void span_filter_add(struct span_filter *f, const u8 trace_id[16]);
/* May return true for a trace that was not added, but never false for a trace that was added. */
bool span_filter_has(const u8 *bits, size_t n, const u8 trace_id[16]);
void span_filter_deinit(struct span_filter *f);
