/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names the BEAM's frames.
 *
 *	ranges[active] → Range → beam_code_header → ErtsCodeInfo → {module, function, arity}
 *						 └ BeamCodeLineTab → {file, line}
 *	atom: erts_atom_table → segment → struct atom → text
 *
 * The structs are in beam_ranges.c, beam_code.h, code_ix.h, index.h and atom.h of
 * erts/emulator/beam.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "agent/runtime/beam/beam.h"
#include "base/cleanup.h"
#include "base/text.h"

/* IndexTable */
#define TABLE_LIMIT 112 /* int: the number of entries that the table can have */
#define TABLE_SEGMENTS 120
#define SEGMENT_SHIFT 10
#define SEGMENT_MASK 1023
/* struct atom */
#define ATOM_LENGTH 24
#define ATOM_NAME 32
/* ErlHeapBits: the header, the size in bits, the bytes */
#define BITS_BYTES 16
/* beam_code_header */
#define HEADER_LINES 72
/* ErtsCodeInfo */
#define INFO_MFA 16
/* BeamCodeLineTab */
#define LINES_FILES 0
#define LINES_SIZE 8
#define LINES_LOCATIONS 16
#define LINES_FUNCTIONS 24
#define MAX_FUNCTION_LINES 65536
#define LINE_MASK 0xffffff
#define FILE_SHIFT 24
/* Terms (erl_term.h). A literal's pointer has the bit 4, too. */
#define TERM_NIL 0x3bULL
#define TERM_LIST 1
#define TERM_POINTER 7ULL
#define SMALL_TAG 15
#define SMALL_SHIFT 4
#define MAX_FILE 512

static int read_word(const struct beam_memory *m, u64 avma, u64 *ret)
{
	return runtime_read(m->memory, avma, ret, sizeof(*ret));
}

/* ---- atoms ---- */

int beam_atom(const struct beam_memory *m, bool boxed_names, u64 index, char *ret)
{
	u64 table = m->bias + m->l->atom_table, at;
	s16 length;
	int r;

	if (index > BEAM_ATOM_MASK)
		return -EINVAL;
	r = read_word(m, table + TABLE_SEGMENTS, &at);
	if (r == 0)
		r = read_word(m, at + 8 * (index >> SEGMENT_SHIFT), &at);
	if (r == 0)
		r = read_word(m, at + 8 * (index & SEGMENT_MASK), &at);
	if (r == 0)
		r = runtime_read(m->memory, at + ATOM_LENGTH, &length, sizeof(length));
	if (r == 0)
		r = read_word(m, at + ATOM_NAME, &at);
	if (r < 0)
		return r;
	if (length < 0 || length >= BEAM_MAX_ATOM || !at)
		return -EINVAL;
	if (boxed_names)
		at = (at & ~TERM_POINTER) + BITS_BYTES;
	r = runtime_read(m->memory, at, ret, (size_t)length);
	if (r == 0)
		ret[length] = 0;
	return r;
}

static int keep_text(struct runtime_names *names, const char *text, const char **ret)
{
	size_t n = strlen(text) + 1;
	char *copy = arena_alloc(names->arena, n);

	if (!copy)
		return -ENOMEM;
	memcpy(copy, text, n);
	*ret = copy;
	return 0;
}

/* Keeps MODULE:FUNCTION/ARITY, or only the first atom without a function. */
static int keep_function(const struct beam_memory *m, u64 module, const u64 *function, u64 arity,
			 struct runtime_names *names)
{
	_cleanup_str_ struct str text = {};
	char atom[BEAM_MAX_ATOM];
	int r = beam_atom(m, m->l->layout->boxed_names, module, atom);

	if (r < 0)
		return r;
	text_append_clean(&text, atom, 0);
	if (function) {
		r = beam_atom(m, m->l->layout->boxed_names, *function, atom);
		if (r < 0)
			return r;
		str_putc(&text, ':');
		text_append_clean(&text, atom, 0);
		str_printf(&text, "/%u", (u32)(arity & 0xff));
	}
	if (text.failed)
		return -ENOMEM;
	return keep_text(names, str_get(&text), &names->frames[0].function);
}

/* ---- modules and functions ---- */

int beam_modules(const struct beam_memory *m, u64 ranges, u64 *ret_at, u32 *ret_n)
{
	u64 index = m->l->bare ? m->l->layout->code_index : m->l->code_index, words[2];
	bool failed = false;
	/* As long as a bare binary's index is not known, any copy of the ranges will do. */
	u32 active = index ? runtime_u32(m->memory, m->bias + index, &failed) : 0;

	if (failed || active > 2 ||
	    runtime_read(m->memory, m->bias + ranges + 32ULL * active, words, sizeof(words)) < 0 ||
	    !words[0] || !words[1] || words[1] > BEAM_MAX_RANGES)
		return -EAGAIN;
	*ret_at = words[0];
	*ret_n = (u32)words[1];
	return 0;
}

int beam_find_module(const struct beam_memory *m, u64 avma, struct beam_module *ret)
{
	struct beam_module module;
	u64 at;
	u32 low = 0, high;
	int r = beam_modules(m, m->l->layout->ranges, &at, &high);

	if (r < 0)
		return r;
	while (low < high) {
		u32 mid = low + (high - low) / 2;

		r = runtime_read(m->memory, at + 16ULL * mid, &module, sizeof(module));
		if (r < 0)
			return r;
		if (avma < module.start) {
			high = mid;
		} else if (avma >= module.end) {
			low = mid + 1;
		} else {
			*ret = module;
			return 0;
		}
	}
	return -ENOENT;
}

/*
 * The index of the last of n rising addresses that is at most avma. They are at `at`, and the
 * address after the last is the end. -ENOENT: there is none.
 */
static int search(const struct beam_memory *m, u64 at, u64 n, u64 avma, u64 *ret)
{
	u64 low = 0, high = n, pair[2];

	while (low < high) {
		u64 mid = low + (high - low) / 2;
		int r = runtime_read(m->memory, at + 8 * mid, pair, sizeof(pair));

		if (r < 0)
			return r;
		if (avma < pair[0]) {
			high = mid;
		} else if (avma >= pair[1]) {
			low = mid + 1;
		} else {
			*ret = mid;
			return 0;
		}
	}
	return -ENOENT;
}

/* ---- lines ---- */

/* Keeps a list of characters, which is the name of a file. */
static int keep_file(const struct beam_memory *m, u64 list, struct runtime_names *names)
{
	_cleanup_str_ struct str text = {};
	char file[MAX_FILE];
	u32 n = 0;

	while (list != TERM_NIL && n < MAX_FILE - 4) {
		u64 cell[2];
		u64 c;

		if ((list & 3) != TERM_LIST ||
		    runtime_read(m->memory, list & ~TERM_POINTER, cell, sizeof(cell)) < 0 ||
		    (cell[0] & 15) != SMALL_TAG)
			return 0;
		c = cell[0] >> SMALL_SHIFT;
		if (c < 0x80) {
			file[n++] = (char)c;
		} else if (c < 0x800) {
			file[n++] = (char)(0xc0 | c >> 6);
			file[n++] = (char)(0x80 | (c & 63));
		} else {
			file[n++] = '?';
		}
		list = cell[1];
	}
	file[n] = 0;
	text_append_clean(&text, file, 0);
	if (text.failed)
		return -ENOMEM;
	return keep_text(names, str_get(&text), &names->frames[0].file);
}

/* Adds file and line of an address in the module's function `index`, if the module has lines. */
static int find_line(const struct beam_memory *m, u64 header, u64 index, u64 avma,
		     struct runtime_names *names)
{
	u64 lines, rows[2], first, size, locations, files, file, i;
	u32 location = 0;

	if (read_word(m, header + HEADER_LINES, &lines) < 0 || !lines ||
	    runtime_read(m->memory, lines + LINES_FUNCTIONS + 8 * index, rows, sizeof(rows)) < 0 ||
	    rows[1] < rows[0] || (rows[1] - rows[0]) / 8 > MAX_FUNCTION_LINES ||
	    search(m, rows[0], (rows[1] - rows[0]) / 8, avma, &i) < 0)
		return 0;
	if (read_word(m, lines + LINES_FUNCTIONS, &first) < 0 ||
	    read_word(m, lines + LINES_SIZE, &size) < 0 ||
	    read_word(m, lines + LINES_LOCATIONS, &locations) < 0 ||
	    read_word(m, lines + LINES_FILES, &files) < 0 || rows[0] < first)
		return 0;
	size = (u32)size == 2 ? 2 : 4;
	i += (rows[0] - first) / 8;
	if (runtime_read(m->memory, locations + size * i, &location, size) < 0 || !location ||
	    read_word(m, files + 8ULL * (location >> FILE_SHIFT), &file) < 0)
		return 0;
	names->frames[0].line = location & LINE_MASK;
	return keep_file(m, file, names);
}

/* ---- frames ---- */

static bool cookie_matches(const struct beam_memory *m, u64 avma, u64 where)
{
	u64 code[2] = {};

	/* The walker makes a cookie of zeros where it cannot read. */
	return runtime_read(m->memory, avma - 8, code, sizeof(code)) == 0 &&
	       beam_cookie(code[0], code[1]) == (where & 0xffffffff);
}

static int name_code(const struct beam_memory *m, u64 avma, u64 where, struct runtime_names *ret)
{
	struct beam_module module;
	u64 n, index, info, mfa[BEAM_MFA_WORDS], function;
	u32 functions = m->l->layout->functions;
	int r;

	if (!cookie_matches(m, avma, where))
		return -ESTALE;
	r = beam_find_module(m, avma, &module);
	if (r == 0)
		r = read_word(m, module.start, &n);
	if (r == 0 && n > BEAM_MAX_FUNCTIONS)
		r = -EINVAL;
	if (r == 0)
		r = search(m, module.start + functions, n, avma, &index);
	if (r == 0)
		r = read_word(m, module.start + functions + 8 * index, &info);
	if (r == 0)
		r = runtime_read(m->memory, info + INFO_MFA, mfa, sizeof(mfa));
	if (r < 0)
		return r;
	if (!beam_is_atom(mfa[0]) || !beam_is_atom(mfa[1]))
		return -ESTALE;
	function = mfa[1] >> BEAM_ATOM_SHIFT;
	r = keep_function(m, mfa[0] >> BEAM_ATOM_SHIFT, &function, mfa[2], ret);
	if (r == 0)
		r = find_line(m, module.start, index, avma, ret);
	if (r < 0)
		return r;
	return cookie_matches(m, avma, where) ? 0 : -ESTALE;
}

int beam_name(const struct beam_memory *m, u64 address, u64 where, struct runtime_names *ret)
{
	u64 first = address & BEAM_ATOM_MASK;
	u64 second = address >> BEAM_ATOM_BITS & BEAM_ATOM_MASK;
	int r;

	if (!m->l->layout->known)
		return -ESTALE;
	ret->frames[0] = (struct runtime_frame){};
	switch (where >> BEAM_FRAME_SHIFT) {
	case BEAM_CODE:
		r = name_code(m, address, where, ret);
		break;
	case BEAM_FUNCTION:
	case BEAM_INITIAL:
		r = keep_function(m, first, &second, where & 0xff, ret);
		break;
	case BEAM_REGISTERED:
		r = keep_function(m, first, NULL, 0, ret);
		break;
	default:
		return -EINVAL;
	}
	if (r == 0)
		ret->n = 1;
	return r;
}
