/* SPDX-License-Identifier: Apache-2.0 */
/* Packs the rows of a page as abi/unwind.h draws it: [index lines] block lines. */
#include <string.h>

#include "base/types.h"
#include "unwind/unwind.h"

static u32 n_blocks(u32 n_rows)
{
	return (n_rows + UNWIND_ROWS_PER_BLOCK - 1) / UNWIND_ROWS_PER_BLOCK;
}

static u32 n_index_lines(u32 blocks)
{
	return blocks > 1 ? (blocks + UNWIND_BLOCKS_PER_INDEX - 1) / UNWIND_BLOCKS_PER_INDEX : 0;
}

u32 unwind_page_n_lines(u32 n_rows)
{
	return n_blocks(n_rows) + n_index_lines(n_blocks(n_rows));
}

void unwind_page_pack(const u32 *rows, u32 n_rows, void *ret_lines)
{
	u32 blocks = n_blocks(n_rows), lines = n_index_lines(blocks);
	u8 *out = ret_lines;
	u8 *body = out + (size_t)lines * UNWIND_LINE_BYTES;

	memset(out, 0xff, (size_t)(lines + blocks) * UNWIND_LINE_BYTES);
	memcpy(body, rows, n_rows * sizeof(*rows));
	for (u32 i = 0; lines && i < blocks; i++) {
		u16 first = (u16)(rows[i * UNWIND_ROWS_PER_BLOCK] >> 16);

		memcpy(out + i * sizeof(first), &first, sizeof(first));
	}
}
_Static_assert(UNWIND_ROW_PAD == 0xffffffffu, "memset above");
_Static_assert(UNWIND_BLOCKS_PER_INDEX * sizeof(u16) == UNWIND_LINE_BYTES, "index line");
_Static_assert(UNWIND_ROWS_PER_BLOCK * sizeof(u32) == UNWIND_LINE_BYTES, "block line");
