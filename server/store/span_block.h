/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Spans, and samples with the span that they were taken in, as the SQLite engine keeps them: blocks
 * of one hour that need nothing beside themselves, so that one is dropped by deleting a row.
 *
 * A part is a table of columns, sorted by trace: trace ids once each, then a column for each
 * member, then the texts and resources that the others refer to. Numbers are LEB128; each column
 * has its length before it; the whole is zstd-compressed.
 */
#pragma once

#include "base/types.h"
#include "base/vec.h"
#include "profile/span.h"
#include "server/store/store.h"

#define SPAN_BLOCK_ROWS 65536u

/* order: positions in s->spans, by trace. level: zstd's. */
int span_part_encode(const struct spans *s, const u32 *order, size_t n, int level, struct str *ret);
/* All spans of a part: appended to `into`. -EBADMSG for what is no part. */
int span_part_decode(const u8 *data, size_t n, struct spans *into);

/* The same of samples: by trace, span, type, stack and time. */
int link_part_encode(const struct store_links *l, const u32 *order, size_t n, int level,
		     struct str *ret);
int link_part_decode(const u8 *data, size_t n, struct store_links *into);

/* By trace id, then start, then span id, then kind. */
int span_compare(const struct span *a, const struct span *b);
int link_compare(const struct store_link *a, const struct store_link *b);

/* ---- which traces a block may have ---- */

/* Bits of a Bloom filter, ten for each of n traces. */
struct span_filter {
	u8 *bits; /* owned */
	size_t n; /* bytes */
};
int span_filter_init(struct span_filter *f, size_t n_traces);
void span_filter_add(struct span_filter *f, const u8 trace_id[16]);
bool span_filter_has(const u8 *bits, size_t n, const u8 trace_id[16]);
void span_filter_deinit(struct span_filter *f);
