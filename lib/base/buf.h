/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bounded reading of foreign bytes. A buf is a window on memory that it does not own. Every buf_x()
 * checks the bounds first; on failure it returns false, does not advance, and leaves `ret_x`
 * untouched. Byte order is little-endian unless `swap` is set.
 */
#pragma once

#include "base/types.h"

#include <string.h>

struct buf {
	const u8 *pos; /* borrowed */
	const u8 *end;
	bool swap;
};

static inline struct buf buf_of(const void *data, size_t n)
{
	return (struct buf){.pos = data, .end = (const u8 *)data + n};
}

static inline size_t buf_left(const struct buf *b)
{
	return (size_t)(b->end - b->pos);
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
	*ret_part = (struct buf){.pos = b->pos, .end = b->pos + n, .swap = b->swap};
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
