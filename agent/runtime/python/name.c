/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the name of a code object in a live process, and the line of a position in it. All of this
 * is memory of the process: sizes are bounded, and the words that form the cookie must equal those
 * that the walker saw, or the memory holds another object.
 *
 * Line tables (Objects/lnotab_notes.txt, Objects/locations.md in CPython's sources):
 *
 *	to 3.9	co_lnotab	pairs: bytes of code, signed lines
 *	3.10	co_linetable	pairs: bytes of code, signed lines for these; -128: none
 *	3.11 on	co_linetable	entries of one byte 1cccclll (kind, units of code - 1) and more
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/runtime/python/python.h"

#define MAX_TEXT 1024 /* characters */
#define MAX_TABLE (1u << 20)
#define STR_HEAD 64

/* ---- lines ---- */

u32 python_line_of_lnotab(const u8 *table, size_t n, u32 first, s64 at)
{
	s64 line = first, code = 0;

	for (size_t i = 0; i + 1 < n; i += 2) {
		code += table[i];
		if (code > at)
			break;
		line += (s8)table[i + 1];
	}
	return line > 0 && line <= INT32_MAX ? (u32)line : 0;
}

u32 python_line_of_linetable_310(const u8 *table, size_t n, u32 first, s64 at)
{
	s64 line = first, code = 0;

	if (at < 0)
		return first;
	for (size_t i = 0; i + 1 < n; i += 2) {
		s8 by = (s8)table[i + 1];

		if (by != -128)
			line += by;
		code += table[i];
		if (code > at)
			return by != -128 && line > 0 && line <= INT32_MAX ? (u32)line : 0;
	}
	return 0;
}

/* Groups of six bits, lowest group first; 0x40: another group follows. */
static bool read_varint(struct buf *b, u64 *ret)
{
	u64 v = 0;
	u8 byte;

	for (u32 shift = 0; shift < 36; shift += 6) {
		if (!buf_u8(b, &byte))
			return false;
		v |= (u64)(byte & 0x3f) << shift;
		if (!(byte & 0x40)) {
			*ret = v;
			return true;
		}
	}
	return false;
}

#define LOCATION_NONE 15
#define LOCATION_LONG 14
#define LOCATION_NO_COLUMNS 13
#define LOCATION_ONE_LINE 10

u32 python_line_of_locations(const u8 *table, size_t n, u32 first, s64 at)
{
	struct buf b = buf_of(table, n);
	s64 line = first, code = 0;
	u64 by;
	u8 head;

	if (at < 0)
		return first;
	while (buf_u8(&b, &head)) {
		u32 kind = head >> 3 & 15;

		if (!(head & 0x80))
			return 0; /* not the start of an entry */
		if (kind == LOCATION_LONG || kind == LOCATION_NO_COLUMNS) {
			if (!read_varint(&b, &by))
				return 0;
			line += by & 1 ? -(s64)(by >> 1) : (s64)(by >> 1);
		} else if (kind >= LOCATION_ONE_LINE && kind != LOCATION_NONE) {
			line += kind - LOCATION_ONE_LINE;
		}
		code += 2 * ((head & 7) + 1);
		if (code > at)
			return kind != LOCATION_NONE && line > 0 && line <= INT32_MAX ? (u32)line
										      : 0;
		while (buf_left(&b) && !(*b.pos & 0x80))
			(void)buf_skip(&b, 1);
	}
	return 0;
}

/* ---- strings ---- */

static u8 *put_utf8(u8 *to, u32 c)
{
	if (c < 0x80) {
		/* A control character would break formats that are written as lines. */
		*to++ = c < 0x20 || c == 0x7f ? '?' : (u8)c;
	} else if (c < 0x800) {
		*to++ = (u8)(0xc0 | c >> 6);
		*to++ = (u8)(0x80 | (c & 0x3f));
	} else if (c < 0x10000) {
		if (c >= 0xd800 && c < 0xe000)
			c = 0xfffd;
		*to++ = (u8)(0xe0 | c >> 12);
		*to++ = (u8)(0x80 | (c >> 6 & 0x3f));
		*to++ = (u8)(0x80 | (c & 0x3f));
	} else {
		if (c > 0x10ffff)
			return put_utf8(to, 0xfffd);
		*to++ = (u8)(0xf0 | c >> 18);
		*to++ = (u8)(0x80 | (c >> 12 & 0x3f));
		*to++ = (u8)(0x80 | (c >> 6 & 0x3f));
		*to++ = (u8)(0x80 | (c & 0x3f));
	}
	return to;
}

static u32 char_at(const u8 *data, u32 i, u32 width)
{
	u32 c = 0;

	memcpy(&c, data + (size_t)i * width, width);
	return c;
}

/* Copies a str as UTF-8 into the arena; a long one is cut. */
static int read_text(const struct runtime_memory *m, const struct python_objects *o, u64 at,
		     struct arena *arena, const char **ret)
{
	u8 head[STR_HEAD + 8], data[MAX_TEXT * 4];
	u32 state, kind, flags;
	u64 length;
	u8 *text, *to;

	if (o->str_length > STR_HEAD || o->str_state > STR_HEAD)
		return -EINVAL;
	if (runtime_read(m, at, head, MAX(o->str_length + 8, o->str_state + 4)) < 0)
		return -EFAULT;
	memcpy(&length, head + o->str_length, sizeof(length));
	memcpy(&state, head + o->str_state, sizeof(state));
	kind = state >> o->str_kind_shift & 7;
	flags = state >> (o->str_kind_shift + 3) & 3; /* compact, ascii */
	if ((kind != 1 && kind != 2 && kind != 4) || !(flags & 1) || length > 1 << 24)
		return -EINVAL;
	length = MIN(length, (u64)MAX_TEXT);
	if (length && runtime_read(m, at + (flags & 2 ? o->str_ascii : o->str_compact), data,
				   length * kind) < 0)
		return -EFAULT;
	text = to = arena_alloc(arena, length * 4 + 1);
	if (!text)
		return -ENOMEM;
	for (u32 i = 0; i < length; i++)
		to = put_utf8(to, char_at(data, i, kind));
	*to = 0;
	*ret = (const char *)text;
	return 0;
}

/* ---- code objects ---- */

static int read_line(const struct runtime_memory *m, const struct python_learned *l, u64 table,
		     u32 first, s32 at, u32 *ret_line)
{
	_cleanup_free_ u8 *bytes = NULL;
	u64 n;

	if (runtime_read(m, table + l->objects.bytes_size, &n, sizeof(n)) < 0)
		return -EFAULT;
	if (n > MAX_TABLE)
		return -EINVAL;
	bytes = malloc(n + 1);
	if (!bytes)
		return -ENOMEM;
	if (n && runtime_read(m, table + l->objects.bytes_data, bytes, n) < 0)
		return -EFAULT;
	if (l->version < 0x030a)
		*ret_line = python_line_of_lnotab(bytes, n, first, at);
	else if (l->version == 0x030a) /* f_lasti counts instructions */
		*ret_line = python_line_of_linetable_310(bytes, n, first, 2LL * at);
	else
		*ret_line = python_line_of_locations(bytes, n, first, at);
	return 0;
}

int python_name(const struct runtime_memory *m, const struct python_learned *l, u64 address,
		u64 where, struct runtime_names *ret)
{
	const struct python_binary *b = &l->bpf;
	const struct python_objects *o = &l->objects;
	u64 code[PYTHON_CODE_BYTES / 8] = {}, text[3];
	struct runtime_frame f = {};
	int r;

	if (runtime_read(m, address, code, b->code_read) < 0)
		return -EFAULT;
	if ((u32)(where >> 32) !=
	    (u32)python_cookie(code[b->code_id[0] / 8], code[b->code_id[1] / 8],
			       code[b->code_id[2] / 8], code[b->code_id[3] / 8]))
		return -ESTALE;
	memcpy(&text[0], (u8 *)code + o->code_name, 8);
	memcpy(&text[1], (u8 *)code + o->code_filename, 8);
	memcpy(&text[2], (u8 *)code + o->code_lines, 8);
	memcpy(&f.start_line, (u8 *)code + o->code_firstlineno, 4);
	r = read_text(m, o, text[0], ret->arena, &f.function);
	if (r < 0)
		return r;
	if (read_text(m, o, text[1], ret->arena, &f.file) < 0)
		f.file = NULL;
	if (f.start_line > INT32_MAX)
		f.start_line = 0;
	if (read_line(m, l, text[2], f.start_line, (s32)where, &f.line) < 0)
		f.line = 0;
	ret->n = 1;
	ret->frames[0] = f;
	return 0;
}
