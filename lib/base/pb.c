/* SPDX-License-Identifier: Apache-2.0 */
#include "base/pb.h"

#include <errno.h>
#include <stdlib.h>

#include "base/buf.h"

#define MAX_DEPTH 100

enum wire_type { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

static void *arena_alloc_cb(void *arena, size_t n)
{
	return arena_alloc(arena, n);
}

static void arena_free_cb(void *arena, void *p)
{
}

ProtobufCAllocator pb_allocator(struct arena *a)
{
	return (ProtobufCAllocator){arena_alloc_cb, arena_free_cb, a};
}

/* Moves past a field. *ret_part is its content if it has a length, else empty. */
static bool skip_field(struct buf *b, u64 *ret_key, struct buf *ret_part)
{
	struct buf at = *b, part = {};
	u64 key, n;
	bool ok;

	if (!buf_uleb(&at, &key) || !(key >> 3))
		return false;
	switch (key & 7) {
	case WIRE_VARINT:
		ok = buf_uleb(&at, &n);
		break;
	case WIRE_64:
		ok = buf_skip(&at, 8);
		break;
	case WIRE_BYTES:
		ok = buf_uleb(&at, &n) && buf_take(&at, n, &part);
		break;
	case WIRE_32:
		ok = buf_skip(&at, 4);
		break;
	default:
		ok = false;
	}
	if (!ok)
		return false;
	*b = at;
	*ret_key = key;
	*ret_part = part;
	return true;
}

static bool has_length(const ProtobufCFieldDescriptor *f)
{
	return f->type == PROTOBUF_C_TYPE_STRING || f->type == PROTOBUF_C_TYPE_BYTES ||
	       f->type == PROTOBUF_C_TYPE_MESSAGE;
}

/*
 * Finds what protobuf-c, which says only that it failed, cannot read: the offset of the innermost
 * field that is cut off or of another type. False: all fields can be read.
 */
static bool find_damage(const ProtobufCMessageDescriptor *d, struct buf b, u32 depth,
			u64 *ret_offset)
{
	while (buf_left(&b)) {
		const ProtobufCFieldDescriptor *f;
		u64 key = 0, offset = buf_offset(&b);
		struct buf part;
		bool ok = skip_field(&b, &key, &part);

		f = ok && key >> 3 <= UINT32_MAX
			    ? protobuf_c_message_descriptor_get_field(d, (unsigned int)(key >> 3))
			    : NULL;
		if (!ok || (f && has_length(f) && (key & 7) != WIRE_BYTES)) {
			*ret_offset = offset;
			return true;
		}
		if (f && f->type == PROTOBUF_C_TYPE_MESSAGE && depth < MAX_DEPTH &&
		    find_damage(f->descriptor, part, depth + 1, ret_offset))
			return true;
	}
	return false;
}

int pb_unpack(const ProtobufCMessageDescriptor *d, const char *what, const u8 *data, size_t n,
	      struct arena *a, ProtobufCMessage **ret, struct diag *reterr_diag)
{
	ProtobufCAllocator allocator = pb_allocator(a);
	ProtobufCMessage *m = protobuf_c_message_unpack(d, &allocator, n, data);
	u64 offset;

	if (m) {
		*ret = m;
		return 0;
	}
	if (find_damage(d, buf_of(data, n), 0, &offset))
		return diag_set_at(reterr_diag, -EBADMSG, offset,
				   "not %s in protocol buffers: damaged", what);
	return diag_set(reterr_diag, -E2BIG, "%s that needs more than %llu bytes of memory", what,
			a->limit);
}

int pb_pack(const ProtobufCMessage *m, struct str *out)
{
	size_t n = protobuf_c_message_get_packed_size(m);
	u8 *packed;
	int r;

	if (!n)
		return 0;
	packed = malloc(n);
	if (!packed)
		return -ENOMEM;
	r = str_append(out, packed, protobuf_c_message_pack(m, packed));
	free(packed);
	return r;
}
