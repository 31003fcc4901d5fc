/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to lib/unwind: the FDEs of one section by address.
 *
 * Either the linker's own sorted table (.eh_frame_hdr) is used where it lies, when every entry of
 * it was checked against the section, or the section is scanned and 16 bytes are kept per FDE.
 * Starts are strictly rising and empty ranges left out; where ranges overlap, an FDE reaches up to
 * the next one's start, as the binary search of libgcc sees it.
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
	const u8 *hdr_table; /* borrowed; pairs of s32 from hdr_svma: start, FDE. NULL: refs */
	u64 hdr_svma;
	vec(struct fde_ref) refs;
	u32 n;
};

/* cfi is set. hdr may be empty. Only FDEs that start in [lo, hi) count. 0 or -ENOMEM. */
int fde_index_build(struct fde_index *x, struct buf hdr, u64 hdr_svma, u64 lo, u64 hi);
void fde_index_deinit(struct fde_index *x);
u64 fde_index_start(const struct fde_index *x, u32 i);
/* The last FDE with start <= svma, or 0. */
u32 fde_index_find(const struct fde_index *x, u64 svma);
/* Parses number i; its end is cut at the next one's start. */
int fde_index_get(struct fde_index *x, u32 i, struct cfi_fde *ret);
