/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to lib/unwind: the FDEs of one section by address.
 *
 * The linker's own sorted table (.eh_frame_hdr) is used in place if every entry agrees with the
 * section; otherwise the section is scanned, and 16 bytes are kept for each FDE. Starts rise
 * strictly, and empty ranges are left out. Where ranges overlap, an FDE reaches up to the start of
 * the next, as the binary search of libgcc sees it.
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
	const u8 *
		hdr_table; /* borrowed; pairs of s32 relative to hdr_svma: start, FDE. NULL: refs */
	u64 hdr_svma;
	vec(struct fde_ref) refs;
	u32 n;
};

/* x->cfi is set by the caller; hdr may be empty. Only FDEs that start in [lo, hi), svma, count.
 * -ENOMEM only. */
int fde_index_build(struct fde_index *x, struct buf hdr, u64 hdr_svma, u64 lo, u64 hi);
void fde_index_deinit(struct fde_index *x);
/* The svma at which FDE i starts. */
u64 fde_index_start(const struct fde_index *x, u32 i);
/* The last FDE with start <= svma, or 0. */
u32 fde_index_find(const struct fde_index *x, u64 svma);
/* Parses FDE i, whose end is cut at the start of the next. -EINVAL or -ENOTSUP, as cfi_fde_at(). */
int fde_index_get(struct fde_index *x, u32 i, struct cfi_fde *ret);
