/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The header of an HTTP/1 request (RFC 9112), read strictly: what two readers could understand
 * differently is refused, because a proxy in front of the server may be the other reader.
 */
#pragma once

#include "base/types.h"
#include "base/vec.h"

#define HTTP_MAX_HEAD_BYTES (64u << 10)
#define HTTP_MAX_FIELDS 256

struct http_field {
	const char *name, *value; /* in http_head.bytes */
};

struct http_head {
	char *bytes;		   /* owned: the header, cut into strings */
	char *target;		   /* owned: path and query as sent, for the access log */
	const char *method, *path; /* path: decoded */
	vec(struct http_field) fields;
	vec(struct http_field) parameters; /* of the query, decoded */
	u64 length;			   /* of the body, unless it is chunked */
	bool chunked, has_length, close, expects_continue, is_1_1;
};

/*
 * Reads the header at the start of data. Returns its bytes with its end, 0 when its end is missing,
 * or negative: *ret_status is the answer and *ret_why the reason. `from`: an earlier call has seen
 * so many of these bytes. The caller deinits *ret in all cases; it must be zeroed before.
 */
ssize_t http_head_read(const char *data, size_t n, size_t from, struct http_head *ret,
		       int *ret_status, const char **ret_why);
void http_head_deinit(struct http_head *h);
/* The i-th field of that name, or NULL. */
const char *http_head_field(const struct http_head *h, const char *name, size_t i);
/* The same of parameters; without a name: the name of the i-th parameter. */
const char *http_head_parameter(const struct http_head *h, const char *name, size_t i);

/* Reads a body in chunks as it comes. Zeroed = its begin. */
struct http_chunks {
	enum {
		HTTP_CHUNK_SIZE,
		HTTP_CHUNK_DATA,
		HTTP_CHUNK_END, /* the line end after the data */
		HTTP_CHUNK_TRAILER,
		HTTP_CHUNK_OVER
	} state;
	u64 left;	/* of the chunk's data */
	u32 line_bytes; /* of the size's line or the trailer */
};

/*
 * Reads on; returns how many bytes it took, which is fewer than n only when it needs more of a
 * line, or the body is over. *ret_data, *ret_n: data among the bytes that it took, maybe none. -1:
 * not chunks.
 */
ssize_t http_chunks_read(struct http_chunks *c, const char *data, size_t n, const char **ret_data,
			 size_t *ret_n);
