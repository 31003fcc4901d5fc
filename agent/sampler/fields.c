/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/sampler/fields.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/str.h"

/* A line of a format file: "field:TYPE NAME[N]; offset:8; size:4; signed:0;". */
struct line {
	const char *declaration;
	size_t n; /* bytes of the declaration */
	const char *name;
	size_t n_name;
	bool is_array;
	unsigned int offset, size, is_signed;
};

/* BPF programs find a pointer in place of these first bytes, the event's head. */
#define RECORD_HEAD 8

#define UNREADABLE "[not readable]"

/* Splits off the name: the last word, possibly followed by the length of an array. */
static void split_declaration(struct line *l)
{
	const char *end = l->declaration + l->n;
	const char *bracket = memchr(l->declaration, '[', l->n);

	/* "__data_loc char[] name": the brackets belong to the type. */
	if (bracket && end[-1] == ']')
		end = bracket;
	l->is_array = bracket;
	l->name = end;
	while (l->name > l->declaration && (isalnum((u8)l->name[-1]) || l->name[-1] == '_'))
		l->name--;
	l->n_name = (size_t)(end - l->name);
}

/* Finds the next field. False: there are no more. */
static bool next_line(const char **at, struct line *ret)
{
	const char *begin, *end;
	struct line l = {};

	while ((begin = strstr(*at, "field:"))) {
		begin += strlen("field:");
		end = strchr(begin, ';');
		if (!end)
			return false;
		*at = end;
		if (sscanf(end, "; offset:%u; size:%u; signed:%u", &l.offset, &l.size,
			   &l.is_signed) != 3)
			continue;
		l.declaration = begin;
		l.n = (size_t)(end - begin);
		split_declaration(&l);
		if (l.offset < RECORD_HEAD || l.n_name == 0 || l.n_name >= FIELD_MAX_NAME)
			continue;
		*ret = l;
		return true;
	}
	return false;
}

static bool has_type(const struct line *l, const char *type)
{
	return l->n > strlen(type) && strncmp(l->declaration, type, strlen(type)) == 0;
}

static bool is_character(const struct line *l)
{
	return has_type(l, "char") || has_type(l, "const char") || has_type(l, "__data_loc char") ||
	       has_type(l, "__rel_loc char");
}

static int classify_field(const struct line *l, bool is_syscall, struct source_field *f)
{
	bool pointer = memchr(l->declaration, '*', l->n);

	f->where.offset = (u16)l->offset;
	f->where.size = (u16)l->size;
	f->is_signed = l->is_signed;
	f->is_address = pointer;
	if (pointer || l->is_array) {
		if (is_character(l)) {
			f->where.kind = pointer && is_syscall	    ? FIELD_TEXT_OF_USER
					: pointer		    ? FIELD_TEXT_OF_KERNEL
					: has_type(l, "__data_loc") ? FIELD_TEXT_AT
					: has_type(l, "__rel_loc")  ? FIELD_TEXT_BEHIND
								    : FIELD_TEXT;
			return 0;
		}
		if (!pointer || l->is_array)
			return -ENOTSUP;
	}
	if (l->size != 1 && l->size != 2 && l->size != 4 && l->size != 8)
		return -ENOTSUP;
	f->where.kind = FIELD_NUMBER;
	/* All arguments of system calls have 8 bytes; an int may be negative. */
	if (is_syscall && has_type(l, "int ")) {
		f->where.size = 4;
		f->is_signed = true;
	}
	return 0;
}

static int refuse_field(const char *format, const char *name, struct diag *reterr_diag)
{
	_cleanup_str_ struct str names = {};
	struct line l;

	while (next_line(&format, &l))
		str_printf(&names, "%s%.*s", names.n ? ", " : "", (int)l.n_name, l.name);
	return diag_set(reterr_diag, -ENOENT, "the event has no field '%s'; it has %s", name,
			names.n ? str_get(&names) : "none");
}

int field_find(const char *format, const char *name, bool is_syscall, struct source_field *ret,
	       struct diag *reterr_diag)
{
	const char *at = format;
	struct line l;

	while (next_line(&at, &l)) {
		struct source_field f = {};

		if (strlen(name) != l.n_name || memcmp(name, l.name, l.n_name) != 0)
			continue;
		memcpy(f.name, l.name, l.n_name);
		if (classify_field(&l, is_syscall, &f) < 0)
			return diag_set(reterr_diag, -ENOTSUP,
					"field '%s' is neither a number nor a text, but: %.*s",
					name, (int)l.n, l.declaration);
		*ret = f;
		return 0;
	}
	return refuse_field(format, name, reterr_diag);
}

/* Writes a number as text. Returns the number of characters. */
static u32 number_text(const struct source_field *f, const u8 *bytes, char ret[32])
{
	u64 value = 0;
	u32 unused = 64 - 8 * f->where.size;

	memcpy(&value, bytes, f->where.size);
	if (f->is_address)
		return (u32)snprintf(ret, 32, "0x%llx", (unsigned long long)value);
	if (f->is_signed)
		return (u32)snprintf(ret, 32, "%lld", (long long)(value << unused) >> unused);
	return (u32)snprintf(ret, 32, "%llu", (unsigned long long)value);
}

/* Returns the end. */
static u8 *put_named(u8 *to, const char *name, size_t n_name, const void *text, u8 length)
{
	*to++ = (u8)n_name;
	*to++ = length;
	memcpy(to, name, n_name);
	to += n_name;
	length &= ~ATTRIBUTE_CUT;
	if (length)
		memcpy(to, text, length);
	return to + length;
}

u16 fields_add_named(u8 ret[FIELDS_MAX_BYTES], u16 n, const char *name, const char *value)
{
	size_t n_name = strnlen(name, ATTRIBUTE_MAX_NAME);
	size_t n_value = strnlen(value, ATTRIBUTE_MAX_TEXT);

	if (n + 2 + n_name + n_value > FIELDS_MAX_BYTES)
		return n;
	return (u16)(put_named(ret + n, name, n_name, value, (u8)n_value) - ret);
}

u16 fields_to_named(const struct source_field *fields, u32 n_fields, const u8 *bytes, u32 n,
		    u8 ret[FIELDS_MAX_BYTES])
{
	struct buf b = buf_of(bytes, n), text;
	u8 index, length, *to = ret;

	for (u32 i = 0; i < SAMPLER_MAX_FIELDS; i++) {
		const struct source_field *f;
		char number[32], name[ATTRIBUTE_MAX_NAME + 1];
		int n_name;

		if (!buf_u8(&b, &index) || !buf_u8(&b, &length) || index >= n_fields ||
		    !buf_take(&b, length & ~ATTRIBUTE_CUT, &text))
			break;
		f = &fields[index];
		if (length == ATTRIBUTE_CUT) {
			length = sizeof(UNREADABLE) - 1;
			text = buf_of(UNREADABLE, length);
		} else if (f->where.kind == FIELD_NUMBER) {
			if (buf_left(&text) != f->where.size)
				break;
			length = (u8)number_text(f, text.pos, number);
			text = buf_of(number, length);
		}
		n_name = snprintf(name, sizeof(name), FIELD_PREFIX "%s", f->name);
		to = put_named(to, name, (size_t)n_name, text.pos, length);
	}
	return (u16)(to - ret);
}
