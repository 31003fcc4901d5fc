/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prints every unwind row of an ELF file as `PC CFA FP RA`, and totals to standard error. To test
 * the packed format, too, it packs each page and reads the rows from the packed lines.
 *
 *	dump-rows [-c] ELF [DEBUG-FILE]	-c: derives rows from instructions that CFI does not cover
 *
 *	CFA	none stop unsupported signal+N fpchain goN+N+N,N rN+N *(rN+N)+N plt+N/N
 *	FP	s (same) c+N (saved at cfa + N) f+N (saved at fp + N)
 *	RA	c+N rN
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "elf/elf.h"
#include "unwind/unwind.h"

static void print_rule(unsigned long long pc, const struct unwind_rule *r)
{
	printf("%llx ", pc);
	switch (r->cfa_op) {
	case UNWIND_CFA_NONE:
		puts("none - -");
		return;
	case UNWIND_CFA_STOP:
		puts("stop - -");
		return;
	case UNWIND_CFA_UNSUPPORTED:
		puts("unsupported - -");
		return;
	case UNWIND_CFA_SIGNAL:
		printf("signal%+d - -\n", r->cfa_off);
		return;
	case UNWIND_CFA_FP:
		puts("fpchain - -");
		return;
	case UNWIND_CFA_GO:
		printf("go%u%+d%+d,%d - -\n", r->cfa_reg, r->cfa_off, r->cfa_add, r->fp_off);
		return;
	case UNWIND_CFA_REG:
		printf("r%u%+d", r->cfa_reg, r->cfa_off);
		break;
	case UNWIND_CFA_DEREF:
		printf("*(r%u%+d)%+d", r->cfa_reg, r->cfa_off, r->cfa_add);
		break;
	case UNWIND_CFA_PLT:
		printf("plt%+d/%d", r->cfa_off, r->cfa_add);
		break;
	default:
		printf("?%u", r->cfa_op);
	}
	if (r->fp_op == UNWIND_FP_SAME)
		printf(" s");
	else
		printf(" %c%+d", r->fp_op == UNWIND_FP_CFA ? 'c' : 'f', r->fp_off);
	if (r->ra_op == UNWIND_RA_CFA)
		printf(" c%+d\n", r->ra_off);
	else
		printf(" r%d\n", r->ra_off);
}

/* Checks the index lines and returns row i of a packed page. */
static int unpack(const u8 *lines, u32 n_rows, u32 i, u32 *ret_row)
{
	u32 blocks = (n_rows + UNWIND_ROWS_PER_BLOCK - 1) / UNWIND_ROWS_PER_BLOCK;
	u32 index =
		blocks > 1 ? (blocks + UNWIND_BLOCKS_PER_INDEX - 1) / UNWIND_BLOCKS_PER_INDEX : 0;
	u32 block = i / UNWIND_ROWS_PER_BLOCK, first;
	const u8 *body = lines + (size_t)index * UNWIND_LINE_BYTES;
	u16 key;

	memcpy(ret_row, body + (size_t)i * 4, 4);
	if (!index)
		return 0;
	memcpy(&first, body + (size_t)block * UNWIND_LINE_BYTES, 4);
	memcpy(&key, lines + (size_t)block * 2, 2);
	return key == first >> 16 ? 0 : -1;
}

static int dump_page(struct unwind_source *s, u64 page, u64 *rows_total)
{
	static u32 rows[UNWIND_PAGE_BYTES];
	static u8 lines[UNWIND_PAGE_BYTES * 8];
	const struct unwind_rule *rules;
	u32 n, n_rules;

	if (unwind_source_rows(s, page, rows, &n) < 0 || !n || rows[0] >> 16 ||
	    unwind_page_n_lines(n) * (u64)UNWIND_LINE_BYTES > sizeof(lines))
		return -1;
	unwind_page_pack(rows, n, lines);
	rules = unwind_source_rules(s, &n_rules);
	for (u32 i = 0; i < n; i++) {
		u32 row;

		if (unpack(lines, n, i, &row) < 0 || (u16)row >= n_rules ||
		    (i && row >> 16 <= rows[i - 1] >> 16))
			return -1;
		print_rule((page << UNWIND_PAGE_SHIFT) + (row >> 16), &rules[(u16)row]);
	}
	*rows_total += n;
	return 0;
}

int main(int argc, char **argv)
{
	_cleanup_elf_file_ struct elf_file *f = NULL, *debug = NULL;
	const struct unwind_source_info *info;
	struct unwind_source *s;
	struct diag d = {};
	bool code = argc > 1 && !strcmp(argv[1], "-c");
	u64 rows = 0;

	argc -= code;
	argv += code;
	if (argc < 2 || elf_file_open(open(argv[1], O_RDONLY | O_CLOEXEC), &d, &f) < 0 ||
	    (argc > 2 && elf_file_open(open(argv[2], O_RDONLY | O_CLOEXEC), &d, &debug) < 0) ||
	    (code ? unwind_source_create(f, &s) : unwind_source_create_without_code(f, &s)) < 0 ||
	    (debug && unwind_source_add_debug_file(s, debug) < 0)) {
		fprintf(stderr, "usage: dump-rows [-c] ELF [DEBUG-FILE]: %s\n", d.text);
		return 1;
	}
	info = unwind_source_info(s);
	for (u64 p = 0; p < info->n_pages; p++) {
		if (dump_page(s, info->first_page + p, &rows) < 0) {
			fprintf(stderr, "page %llu is wrong\n", info->first_page + p);
			return 2;
		}
	}
	fprintf(stderr, "%s: %llu rows, %llu fdes, %u pages\n", info->from, rows, info->n_fdes,
		info->n_pages);
	unwind_source_destroy(s);
	return 0;
}
