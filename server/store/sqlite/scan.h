/* SPDX-License-Identifier: Apache-2.0 */
/* Reads blocks of samples. */
#pragma once

#include "server/store/sqlite/sqlite.h"

/* A reader's transaction, and the blocks of its snapshot that a filter may select. */
struct sq_view {
	struct sq *s;
	struct sq_conn *c;
	struct sq_names *names; /* a reference */
	u64 naming;
	vec(struct sq_entry) entries;
};

int sq_view_open(struct sq *s, const struct store_filter *f, struct diag *reterr_diag,
		 struct sq_view *ret);
void sq_view_close(struct sq_view *v);
#define _cleanup_sq_view_ __attribute__((cleanup(sq_view_close)))

/* Begins a reader's transaction. ret_naming: sq.naming as of its snapshot. */
int sq_snapshot(struct sq *s, struct sq_conn *c, u64 *ret_naming, struct diag *reterr_diag);

enum sq_part { SQ_PART_SERIES, SQ_PART_STACKS, SQ_PART_BODY };
/* The bytes are borrowed until the same part is read again. Notes a damaged block: -EBADMSG. */
int sq_read_part(struct sq *s, struct sq_conn *c, s64 n, enum sq_part part, const u8 **ret,
		 size_t *ret_n);
int sq_open_block(struct sq *s, struct sq_conn *c, s64 n, struct block_cursor *ret);
