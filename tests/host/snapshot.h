/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A recorded walk: a thread's registers, the memory that the walk read, and the frames that it
 * found. tests/tools/record_walk writes snapshots, tests/unit/test_walks.c walks them again. The
 * text, a line for each item, all numbers but NUMBER, FILE and offsets in hexadecimal:
 *
 *	walk VERSION ARCHITECTURE	first
 *	again COMMAND			records this snapshot anew
 *	runtime NAME DESCRIPTION	a row of abi/tbl/runtime.tbl
 *	layout HASH			of the structs in the next two, see snapshot_layout()
 *	process BYTES			struct runtime_process, in several lines
 *	binary BYTES			struct runtime_binary, in several lines
 *	regs PC SP FP TLS
 *	r NUMBER REGISTER		by DWARF number
 *	mapping START END BIAS FILE rows|fp runtime|- PATH	FILE has unwind rows or none
 *	row FILE SVMA CFA REG OFF ADD RA OFF FP OFF BX		the rule for one address
 *	memory ADDRESS BYTES		in several lines
 *	frame native FILE SVMA		leaf first
 *	frame raw AVMA
 *	frame runtime ADDRESS WHERE
 *	stop TEXT			last
 *
 * What follows a # is for people. An address without a row has no unwind information.
 */
#pragma once

#include <stdio.h>

#include "base/cleanup.h"
#include "base/diag.h"
#include "base/map.h"
#include "base/str.h"
#include "base/vec.h"
#include "base/vocab.h"
#include "unwind/unwind.h"

#include "tests/host/walkers.h"

#define SNAPSHOT_VERSION 1
#define SNAPSHOT_ARCHITECTURE (UNWIND_REG_FP == 6 ? "x86-64" : "arm64")
#define SNAPSHOT_MAX_CALLS 100000

struct snapshot_mapping {
	u64 start, end, bias;
	u32 file;
	bool rows, runtime, used;
	const char *path; /* borrowed; of a snapshot that was read: NULL */
};

struct snapshot_row {
	u32 file;
	u64 svma;
	struct unwind_rule rule;
};

struct snapshot_range {
	u64 start, n;
	u8 *bytes; /* owned */
};

struct snapshot_line {
	u8 bytes[UNWIND_LINE_BYTES];
};

struct snapshot {
	u32 runtime;
	struct runtime_process process;
	struct runtime_binary binary;
	struct walk_regs regs;
	vec(struct snapshot_mapping) mappings; /* sorted */
	vec(struct snapshot_row) rows;	       /* sorted by file and svma */
	vec(struct snapshot_range) ranges;     /* sorted, not adjacent */
	u64 frames[SAMPLE_MAX_FRAMES];
	u32 n_frames, stop;
	/* The unwind tables; line 0 is unused, the mappings begin at line 1. */
	vec(struct snapshot_line) arena;
};

static const char *const snapshot_cfa[] = {"none", "stop",   "unsupported", "reg", "deref",
					   "plt",  "signal", "fp",	    "go"};
static const char *const snapshot_ra[] = {"cfa", "reg"};
static const char *const snapshot_fp[] = {"same", "cfa", "reg"};
_Static_assert(UNWIND_CFA_NONE == 0 && UNWIND_CFA_REG == 3 && UNWIND_CFA_GO == 8 &&
		       UNWIND_RA_REG == 1 && UNWIND_FP_REG == 2,
	       "snapshot_cfa, snapshot_ra, snapshot_fp");

/* Appends a file's text without comments and white space. */
static int snapshot_read_code(const char *path, struct str *out)
{
	_cleanup_fclose_ FILE *f = fopen(path, "re");
	bool comment = false;
	int c, last = 0;

	if (!f)
		return -errno;
	for (; (c = getc(f)) != EOF; last = c) {
		if (!comment && last == '/' && c == '*') {
			comment = true;
			out->n--; /* the slash */
			c = 0;
		} else if (comment && last == '*' && c == '/') {
			comment = false;
			c = 0;
		} else if (!comment && c > ' ') {
			(void)str_putc(out, (char)c);
		}
	}
	return out->failed ? -ENOMEM : 0;
}

/*
 * A hash of the declarations that say what the bytes of the two structs mean: abi/runtime.h,
 * abi/runtime_common.h and abi/runtime_NAME.h below `top`, the source tree.
 */
static int snapshot_layout(const char *top, const char *runtime, u64 *ret)
{
	_cleanup_str_ struct str code = {};
	char path[4096];
	int r;

	snprintf(path, sizeof(path), "%s/abi/runtime.h", top);
	r = snapshot_read_code(path, &code);
	snprintf(path, sizeof(path), "%s/abi/runtime_common.h", top);
	if (r == 0)
		r = snapshot_read_code(path, &code);
	snprintf(path, sizeof(path), "%s/abi/runtime_%s.h", top, runtime);
	if (r == 0)
		r = snapshot_read_code(path, &code);
	if (r == 0)
		*ret = hash_bytes(code.data, code.n);
	return r;
}

/* ---- the unwind tables ---- */

/* Adds n lines; returns the number of the first. */
static u32 snapshot_add_lines(struct snapshot *s, size_t n)
{
	u32 first = (u32)s->arena.n;

	for (size_t i = 0; i < n; i++)
		if (s->arena.n >= LINES_PER_CHUNK ||
		    vec_push(&s->arena, (struct snapshot_line){}) < 0)
			abort();
	return first;
}

static u32 snapshot_add_bytes(struct snapshot *s, const void *bytes, size_t n)
{
	u32 first = snapshot_add_lines(s, (n + UNWIND_LINE_BYTES - 1) / UNWIND_LINE_BYTES);

	memcpy(&s->arena.data[first], bytes, n);
	return first;
}

/* Adds the page that begins with row i; returns the number of rows in it. */
static size_t snapshot_add_page(struct snapshot *s, size_t i, struct unwind_page *ret)
{
	const struct snapshot_row *first = &s->rows.data[i], *row = first;
	u64 page = first->svma >> UNWIND_PAGE_SHIFT;
	_cleanup_free_ u32 *rows = calloc(2 * (s->rows.n - i) + 1, sizeof(*rows));
	u32 n = 1, n_lines, line;

	if (!rows)
		abort();
	for (; row < s->rows.data + s->rows.n && row->file == first->file &&
	       row->svma >> UNWIND_PAGE_SHIFT == page;
	     row++) {
		u32 off = row->svma & (UNWIND_PAGE_BYTES - 1);

		n -= rows[n - 1] >> 16 == off; /* where the row before ends */
		rows[n++] = off << 16 | ((u32)(row - s->rows.data) + 1);
		if (off + 1 < UNWIND_PAGE_BYTES)
			rows[n++] = (off + 1) << 16;
	}
	n_lines = unwind_page_n_lines(n);
	line = snapshot_add_lines(s, n_lines);
	unwind_page_pack(rows, n, &s->arena.data[line]);
	*ret = (struct unwind_page){.line = line, .n_rows = (u16)n};
	return (size_t)(row - first);
}

/* Adds the tables of a file; returns the line of its struct unwind_binary. */
static u32 snapshot_add_binary(struct snapshot *s, u32 file, u32 rules)
{
	struct unwind_binary b = {.file_id = file, .rules = rules, .n_rules = (u32)s->rows.n + 1};
	size_t i = 0, end;

	while (i < s->rows.n && s->rows.data[i].file < file)
		i++;
	for (end = i; end < s->rows.n && s->rows.data[end].file == file;)
		end++;
	if (i < end) {
		u64 last = s->rows.data[end - 1].svma >> UNWIND_PAGE_SHIFT;

		b.first_page = s->rows.data[i].svma >> UNWIND_PAGE_SHIFT;
		b.n_pages = (u32)(last - b.first_page + 1);
		b.dir = snapshot_add_lines(s, b.n_pages / 8 + 1);
	}
	while (i < end) {
		u64 page = (s->rows.data[i].svma >> UNWIND_PAGE_SHIFT) - b.first_page;
		struct unwind_page p;

		i += snapshot_add_page(s, i, &p);
		memcpy(s->arena.data[b.dir + page / 8].bytes + page % 8 * sizeof(p), &p, sizeof(p));
	}
	return snapshot_add_bytes(s, &b, sizeof(b));
}

/* Makes the unwind tables of the mappings and rows, as abi/unwind.h says. */
static void snapshot_make_tables(struct snapshot *s)
{
	vec(struct unwind_mapping) slice = {};
	vec(struct unwind_rule) all = {};
	u32 rules;

	vec_clear(&s->arena);
	snapshot_add_lines(s, 1 + (s->mappings.n + 1) / UNWIND_MAPPINGS_PER_LINE);
	if (vec_push(&all, (struct unwind_rule){}) < 0)
		abort();
	vec_foreach (&s->rows, row)
		if (vec_push(&all, row->rule) < 0)
			abort();
	rules = snapshot_add_bytes(s, all.data, all.n * sizeof(*all.data));
	vec_foreach (&s->mappings, m) {
		struct unwind_mapping to = {
			.start = m->start, .end = m->end, .bias = m->bias, .file = m->file << 8};

		if (m->rows)
			to.binary = snapshot_add_binary(s, m->file, rules);
		else
			to.file |= UNWIND_MAPPING_FP;
		if (m->runtime)
			to.file |= s->runtime << UNWIND_MAPPING_RUNTIME_SHIFT;
		if (vec_push(&slice, to) < 0)
			abort();
	}
	if (slice.n)
		memcpy(&s->arena.data[1], slice.data, slice.n * sizeof(*slice.data));
	vec_deinit(&slice);
	vec_deinit(&all);
}

/* ---- a walk ---- */

/*
 * Walks the stack; `look` is called after each step. The frames are host_scratch.user.frames,
 * host_scratch.walk.n words of them. Returns a stop reason, or STOP_N if the walk does not end.
 */
static u32 snapshot_walk(const struct snapshot *s, void (*look)(const struct walk *w))
{
	struct scratch *to;

	host_process = s->process;
	host_binary = s->binary;
	host_arena = (const u8(*)[UNWIND_LINE_BYTES])s->arena.data;
	host_n_lines = (u32)s->arena.n;
	memset(&host_row_cache, 0, sizeof(host_row_cache));
	memset(host_buffers, 0, sizeof(host_buffers));
	to = host_begin(s->runtime, &s->regs);
	to->walk.mappings_id = 1;
	to->walk.slice = 1;
	to->walk.n_mappings = (u32)s->mappings.n;
	for (u32 i = 0; i < SNAPSHOT_MAX_CALLS; i++) {
		bool more = walk_one(to, &host_row_cache, s->runtime);

		if (!more && to->stop == (__u32)WALK_SWITCH)
			more = native_switch();
		if (look)
			look(&to->walk);
		if (!more)
			return to->stop;
	}
	return STOP_N;
}
