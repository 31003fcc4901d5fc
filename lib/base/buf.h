/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bounded reading of foreign bytes. A buf is a window on memory that it does not own. Every buf_x()
 * checks the bounds first; on failure it returns false, does not advance, and leaves `ret_x`
 * untouched. Byte order is little-endian unless `swap` is set.
 *
 * A part of a buf counts its offset from where the whole begins, so that a parser can say at which
 * place of its input it failed: diag_set_at(d, -EBADMSG, buf_offset(&b), "a string is cut off").
 */
#pragma once

#include "base/types.h"

#include <string.h>

struct buf {
	const u8 *pos; /* borrowed */
	const u8 *end;
	const u8 *start; /* of the whole, from where offsets count */
	bool swap;
};

static inline struct buf buf_of(const void *data, size_t n)
{
	return (struct buf){.pos = data, .end = (const u8 *)data + n, .start = data};
}

static inline size_t buf_left(const struct buf *b)
{
	return (size_t)(b->end - b->pos);
}

/* Of the next byte, in the whole that this is a part of. */
static inline u64 buf_offset(const struct buf *b)
{
	return (u64)(b->pos - b->start);
}

static inline bool buf_skip(struct buf *b, u64 n)
{
	if (n > buf_left(b))
		return false;
	b->pos += n;
	return true;
}

/* Moves past the next n bytes and returns them as a buf of their own. */
static inline bool buf_take(struct buf *b, u64 n, struct buf *ret_part)
{
	if (n > buf_left(b))
		return false;
	*ret_part =
		(struct buf){.pos = b->pos, .end = b->pos + n, .start = b->start, .swap = b->swap};
	b->pos += n;
	return true;
}

#define DEFINE_BUF_READ(bits, swapped)                                                             \
	static inline bool buf_u##bits(struct buf *b, u##bits *ret_value)                          \
	{                                                                                          \
		u##bits v;                                                                         \
		if (buf_left(b) < sizeof(v))                                                       \
			return false;                                                              \
		memcpy(&v, b->pos, sizeof(v));                                                     \
		b->pos += sizeof(v);                                                               \
		*ret_value = b->swap ? (u##bits)swapped(v) : v;                                    \
		return true;                                                                       \
	}
DEFINE_BUF_READ(8, )
DEFINE_BUF_READ(16, __builtin_bswap16)
DEFINE_BUF_READ(32, __builtin_bswap32)
DEFINE_BUF_READ(64, __builtin_bswap64)
#undef DEFINE_BUF_READ

/* Reads LEB128. Fails if the value has more than 64 bits or does not end in the window. */
bool buf_uleb(struct buf *b, u64 *ret_value);
bool buf_sleb(struct buf *b, s64 *ret_value);
/* Reads a NUL-terminated string inside the window, and its NUL. The string is borrowed. */
bool buf_cstr(struct buf *b, const char **ret_text);
