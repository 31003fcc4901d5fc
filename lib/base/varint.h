/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers of variable length: LEB128, and zigzag LEB128 for signed ones. */
#pragma once

#include "base/buf.h"
#include "base/str.h"
#include "base/types.h"

static inline void varint_put(struct str *out, u64 v)
{
	u8 bytes[10];
	size_t n = 0;

	for (; v >= 0x80; v >>= 7)
		bytes[n++] = (u8)(v | 0x80);
	bytes[n++] = (u8)v;
	str_append(out, bytes, n);
}

static inline void varint_put_signed(struct str *out, s64 v)
{
	varint_put(out, (u64)v << 1 ^ (u64)(v >> 63));
}

/* As buf_uleb(), faster for numbers of one byte. */
static inline bool varint_get(struct buf *b, u64 *ret)
{
	if (b->pos < b->end && *b->pos < 0x80) {
		*ret = *b->pos++;
		return true;
	}
	return buf_uleb(b, ret);
}

/* A larger number is a failure. */
static inline bool varint_get_u32(struct buf *b, u32 *ret)
{
	u64 v;

	if (!varint_get(b, &v) || v > 0xffffffff)
		return false;
	*ret = (u32)v;
	return true;
}

static inline bool varint_get_signed(struct buf *b, s64 *ret)
{
	u64 v;

	if (!varint_get(b, &v))
		return false;
	*ret = (s64)(v >> 1 ^ -(v & 1));
	return true;
}
