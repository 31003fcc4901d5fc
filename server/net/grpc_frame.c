/* SPDX-License-Identifier: Apache-2.0 */
/* gRPC's frames: a byte that says whether the message is compressed, four of its length. */
#include "server/net/internal.h"

/* The bytes of the frame that begins the data; 0: it is not complete. */
static size_t frame_bytes(const u8 *b, size_t n)
{
	size_t message;

	if (n < NET_FRAME_BYTES)
		return 0;
	message = (size_t)b[1] << 24 | (size_t)b[2] << 16 | (size_t)b[3] << 8 | b[4];
	return n - NET_FRAME_BYTES < message ? 0 : NET_FRAME_BYTES + message;
}

size_t net_whole_messages(const u8 *data, size_t n, bool all)
{
	size_t at = 0, frame;

	do {
		frame = frame_bytes(data + at, n - at);
		at += frame;
	} while (all && frame);
	return at;
}

bool net_next_message(const struct net_request *r, size_t *at, const u8 **ret, size_t *ret_n,
		      const char **ret_encoding)
{
	const u8 *b = r->body + *at;
	size_t n = frame_bytes(b, r->n_body - *at);

	if (!n)
		return false;
	*ret = b + NET_FRAME_BYTES;
	*ret_n = n - NET_FRAME_BYTES;
	*ret_encoding = b[0] ? net_header(r, "grpc-encoding") : NULL;
	if (b[0] && !*ret_encoding)
		*ret_encoding = "missing";
	*at += n;
	return true;
}
