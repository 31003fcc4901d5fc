/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a parser of files answers the agent. The input:
 *
 *	u8	rules that the agent has before
 *	u8	n: bytes of the answer's message, which follow
 *	…	then the rows as u32, and in the last half of the rest the rules
 *
 * The agent believes no rows but such as a walk can follow: a walk over them ends, as one in BPF
 * does, and reads no line beyond the page and no rule beyond the rules.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../unit/parser_fixture.h"
#include "unwind/host.h"
#include "unwind/unwind.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define PAGE 7
#define MAX_KNOWN 8
/* Numbers of lines. */
#define MAPPING 1
#define BINARY 2
#define DIRECTORY 3
#define ROWS 4
#define MAX_PAGE_LINES (UNWIND_PAGE_BYTES / UNWIND_ROWS_PER_BLOCK * 2)
#define RULES (ROWS + MAX_PAGE_LINES)
#define N_LINES (RULES + (UNWIND_MAX_RULES + MAX_KNOWN) / UNWIND_RULES_PER_LINE + 1)

static u8 lines[N_LINES][UNWIND_LINE_BYTES] __attribute__((aligned(UNWIND_LINE_BYTES)));
static u32 n_lines, n_rules;

static const void *line_of(void *arg, u32 line)
{
	(void)arg;
	/* A walk looks at rules only by rows, and at rows only of the page. */
	if (line >= RULES ? line - RULES > n_rules / UNWIND_RULES_PER_LINE : line >= ROWS + n_lines)
		abort();
	return lines[line];
}

/* Stacks that look different each time. */
static int read_memory(void *arg, void *to, size_t n, u64 avma)
{
	u8 *at = to;

	(void)arg;
	for (size_t i = 0; i < n; i++)
		at[i] = i == 1 ? PAGE << (UNWIND_PAGE_SHIFT - 8) | (avma >> 3 & 0x3f)
			: i    ? 0
			       : (u8)(avma >> 2);
	return 0;
}

static void walk(const struct parser_page *p, const struct unwind_rule *known, u32 n_known)
{
	const struct unwind_host host = {.line = line_of, .read = read_memory};
	const u64 start = (u64)PAGE << UNWIND_PAGE_SHIFT;
	static u64 frames[SAMPLE_MAX_FRAMES];

	n_lines = unwind_page_n_lines(p->n_rows);
	n_rules = n_known + p->n_rules;
	unwind_page_pack(p->rows, p->n_rows, lines[ROWS]);
	memcpy(lines[RULES], known, n_known * sizeof(*known));
	memcpy(lines[RULES] + n_known * sizeof(*known), p->rules, p->n_rules * sizeof(*known));
	*(struct unwind_mapping *)lines[MAPPING] = (struct unwind_mapping){
		.start = start, .end = start + UNWIND_PAGE_BYTES, .binary = BINARY, .file = 1 << 8};
	*(struct unwind_binary *)lines[BINARY] = (struct unwind_binary){.first_page = PAGE,
									.n_pages = 1,
									.dir = DIRECTORY,
									.rules = RULES,
									.n_rules = n_rules,
									.file_id = 1};
	*(struct unwind_page *)lines[DIRECTORY] =
		(struct unwind_page){.line = ROWS, .n_rows = (u16)p->n_rows};
	for (u32 i = 0; i < p->n_rows && i < 64; i++) {
		struct walk_regs regs = {.pc = start + (p->rows[i] >> 16),
					 .sp = 0x7000 + i,
					 .fp = 0x7100,
					 .exact = 1,
					 .full = i & 1};
		u32 n = 0;

		if (unwind_host_walk(&host, &regs, MAPPING, 1, frames, SAMPLE_MAX_FRAMES, &n) >=
			    STOP_N ||
		    n > SAMPLE_MAX_FRAMES)
			abort();
	}
}

static void write_rows(struct parser_rows *to, const uint8_t *data, size_t size)
{
	size_t half = size / 2 / sizeof(u32) * sizeof(u32);

	memcpy(to->rows, data, MIN(half, sizeof(to->rows)));
	memcpy(to->rules, data + half, MIN(size - half, sizeof(to->rules)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct unwind_rule known[MAX_KNOWN];
	struct fake_parser f;
	struct parser_page p;
	u32 n_known;
	u8 n;

	if (size < 2 || size - 2 < data[1])
		return 0;
	n_known = data[0] % (MAX_KNOWN + 1);
	n = data[1];
	fake_init(&f, 1000);
	fake_open(&f, known, n_known);
	write_rows(f.shared, data + 2 + n, size - 2 - n);
	if (write(f.socket, data + 2, n) != n)
		abort();
	(void)shutdown(f.socket, SHUT_WR);
	fake_expect_end(&f);
	if (parser_build(f.parser, 1, PAGE, n_known, &p) == 0)
		walk(&p, known, n_known);
	fake_deinit(&f);
	return 0;
}
