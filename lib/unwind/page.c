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

u32 *unwind_page_body(void *lines, u32 n_rows)
{
	u32 index = n_index_lines(n_blocks(n_rows));

	return (u32 *)((u8 *)lines + (size_t)index * UNWIND_LINE_BYTES);
}

void unwind_page_finish(void *page, u32 n_rows)
{
	u32 blocks = n_blocks(n_rows), lines = n_index_lines(blocks);
	u32 *rows = unwind_page_body(page, n_rows);
	u8 *out = page;

	memset(out, 0xff, (size_t)lines * UNWIND_LINE_BYTES);
	memset(rows + n_rows, 0xff, (blocks * UNWIND_ROWS_PER_BLOCK - n_rows) * sizeof(*rows));
	for (u32 i = 0; lines && i < blocks; i++) {
		u16 first = (u16)(rows[i * UNWIND_ROWS_PER_BLOCK] >> 16);

		memcpy(out + i * sizeof(first), &first, sizeof(first));
	}
}

void unwind_page_pack(const u32 *rows, u32 n_rows, void *ret_lines)
{
	memcpy(unwind_page_body(ret_lines, n_rows), rows, n_rows * sizeof(*rows));
	unwind_page_finish(ret_lines, n_rows);
}
_Static_assert(UNWIND_ROW_PAD == 0xffffffffu, "memset above");
_Static_assert(UNWIND_BLOCKS_PER_INDEX * sizeof(u16) == UNWIND_LINE_BYTES, "index line");
_Static_assert(UNWIND_ROWS_PER_BLOCK * sizeof(u32) == UNWIND_LINE_BYTES, "block line");
