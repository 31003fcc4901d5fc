/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to lib/unwind: the FDEs of one section, sorted by address.
 *
 * If every entry of the linker's sorted table (.eh_frame_hdr) agrees with the section, that table
 * is used in place. Otherwise the section is scanned, at 16 bytes of memory per FDE. Starts rise
 * strictly, and FDEs with an empty range are omitted. Where ranges overlap, an FDE ends at the
 * start of the next, as in libgcc's binary search.
 */
#pragma once

#include "base/vec.h"
#include "dwarf/cfi.h"

struct fde_ref {
	u64 start;
	u32 offset;
	u32 pad;
};

struct fde_index {
	struct cfi_table cfi;
	/* Borrowed: pairs of s32 relative to hdr_svma: start, FDE. NULL: `refs` is used. */
	const u8 *hdr_table;
	u64 hdr_svma;
	vec(struct fde_ref) refs;
	u32 n;
};

/*
 * The caller has set x->cfi; `hdr` may be empty. Only FDEs that start in [lo, hi) (svma) are
 * indexed. Fails with -ENOMEM only.
 */
int fde_index_build(struct fde_index *x, struct buf hdr, u64 hdr_svma, u64 lo, u64 hi);
void fde_index_deinit(struct fde_index *x);
/* Returns the svma at which FDE i starts. */
u64 fde_index_start(const struct fde_index *x, u32 i);
/* Returns the last FDE with start <= svma, or 0. */
u32 fde_index_find(const struct fde_index *x, u64 svma);
/*
 * Parses FDE i and cuts its end at the start of the next. Fails as cfi_fde_at(): -EINVAL, -ENOTSUP.
 */
int fde_index_get(struct fde_index *x, u32 i, struct cfi_fde *ret);
