/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"

bool buf_uleb(struct buf *b, u64 *ret_value)
{
	const u8 *p = b->pos;
	u64 v = 0;

	for (unsigned int shift = 0; p < b->end; shift += 7) {
		u8 byte = *p++;

		if (shift >= 64 ? (byte & 0x7f) != 0 : shift == 63 && (byte & 0x7e))
			return false;
		if (shift < 64)
			v |= (u64)(byte & 0x7f) << shift;
		if (!(byte & 0x80)) {
			b->pos = p;
			*ret_value = v;
			return true;
		}
		if (shift > 70)
			return false;
	}
	return false;
}

bool buf_sleb(struct buf *b, s64 *ret_value)
{
	const u8 *p = b->pos;
	u64 v = 0;

	for (unsigned int shift = 0; p < b->end && shift < 70; shift += 7) {
		u8 byte = *p++;

		if (shift < 64)
			v |= (u64)(byte & 0x7f) << shift;
		if (!(byte & 0x80)) {
			if (shift + 7 < 64 && (byte & 0x40))
				v |= ~0ULL << (shift + 7);
			b->pos = p;
			*ret_value = (s64)v;
			return true;
		}
	}
	return false;
}

bool buf_cstr(struct buf *b, const char **ret_text)
{
	const u8 *nul = buf_left(b) ? memchr(b->pos, 0, buf_left(b)) : NULL;

	if (!nul)
		return false;
	*ret_text = (const char *)b->pos;
	b->pos = nul + 1;
	return true;
}
