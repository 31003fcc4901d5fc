/* SPDX-License-Identifier: Apache-2.0 */
#include "server/net/http_head.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#include "base/str.h"
#include "base/text.h"

#define MAX_LINE_BYTES 4096 /* of a chunk's size with extensions, and all trailers */

struct refusal {
	int *status;
	const char **why;
};

static int refuse(struct refusal *f, int status, const char *why)
{
	*f->status = status;
	*f->why = why;
	return -EBADMSG;
}

/* Whether there is a control character other than a tab. */
static bool has_control(const char *s, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (((u8)s[i] < ' ' && s[i] != '\t') || s[i] == 0x7f)
			return true;
	return false;
}

/* RFC 9110, 5.6.2 */
static bool is_token(const char *s)
{
	if (!*s)
		return false;
	for (; *s; s++)
		if (!((*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z') ||
		      (*s >= '0' && *s <= '9') || strchr("!#$%&'*+-.^_`|~", *s)))
			return false;
	return true;
}

/* In place. False: a bad escape, or a NUL. */
static bool decode(char *s, bool plus_is_space)
{
	char *to = s;

	for (; *s; s++) {
		char c = *s;

		if (c == '%') {
			int high = text_hex_digit(s[1]), low = high < 0 ? -1 : text_hex_digit(s[2]);

			if (low < 0 || !(high << 4 | low))
				return false;
			c = (char)(high << 4 | low);
			s += 2;
		} else if (c == '+' && plus_is_space) {
			c = ' ';
		}
		*to++ = c;
	}
	*to = '\0';
	return true;
}

static int read_query(struct http_head *h, char *query, struct refusal *f)
{
	char *save = NULL;

	for (char *p = strtok_r(query, "&", &save); p; p = strtok_r(NULL, "&", &save)) {
		char *equals = strchr(p, '=');
		struct http_field v = {p, equals ? equals + 1 : ""};

		if (equals)
			*equals = '\0';
		if (!decode(p, true) || (equals && !decode(equals + 1, true)))
			return refuse(f, 400, "bad escape in the query");
		if (vec_push(&h->parameters, v) < 0)
			return refuse(f, 503, "out of memory");
	}
	return 0;
}

/* "/path?query", or with "http://host" before it. */
static int read_target(struct http_head *h, char *target, struct refusal *f)
{
	char *query;

	for (const char *s = target; *s; s++)
		if ((u8)*s <= ' ' || *s == 0x7f)
			return refuse(f, 400, "control character in the target");
	if (!strncasecmp(target, "http://", 7) || !strncasecmp(target, "https://", 8)) {
		target = strchr(strchr(target, ':') + 3, '/');
		if (!target)
			return refuse(f, 400, "no path in the target");
	}
	if (*target != '/')
		return refuse(f, 400, "a target begins with /");
	h->target = strdup(target);
	if (!h->target)
		return refuse(f, 503, "out of memory");
	query = strchr(target, '?');
	if (query)
		*query++ = '\0';
	h->path = target;
	if (!decode(target, false))
		return refuse(f, 400, "bad escape in the path");
	return query ? read_query(h, query, f) : 0;
}

static int read_request_line(struct http_head *h, char *line, struct refusal *f)
{
	char *target = strchr(line, ' '), *version = target ? strchr(target + 1, ' ') : NULL;

	if (!version)
		return refuse(f, 400, "a request begins with METHOD TARGET HTTP/1.1");
	*target++ = '\0';
	*version++ = '\0';
	h->method = line;
	if (!is_token(line))
		return refuse(f, 400, "not a method");
	if (!strcmp(version, "HTTP/2.0"))
		return refuse(f, 505, "this port speaks HTTP/1.1; gRPC has a port of its own");
	h->is_1_1 = !strcmp(version, "HTTP/1.1");
	if (!h->is_1_1 && strcmp(version, "HTTP/1.0") != 0)
		return refuse(f, strncmp(version, "HTTP/", 5) != 0 ? 400 : 505,
			      "this server speaks HTTP/1.1");
	return read_target(h, target, f);
}

static int read_field(struct http_head *h, char *line, struct refusal *f)
{
	char *colon = strchr(line, ':'), *value, *end;

	if (!colon)
		return refuse(f, 400, "a header field without a colon");
	*colon = '\0';
	if (!is_token(line))
		return refuse(f, 400, "bad name of a header field");
	value = colon + 1 + strspn(colon + 1, " \t");
	end = value + strlen(value);
	while (end > value && (end[-1] == ' ' || end[-1] == '\t'))
		*--end = '\0';
	if (has_control(value, strlen(value)))
		return refuse(f, 400, "control character in a header field");
	if (h->fields.n >= HTTP_MAX_FIELDS)
		return refuse(f, 431, "too many header fields");
	if (vec_push(&h->fields, (struct http_field){line, value}) < 0)
		return refuse(f, 503, "out of memory");
	return 0;
}

/* What the fields say of the body and the connection. */
static int read_framing(struct http_head *h, struct refusal *f)
{
	const char *length = http_head_field(h, "Content-Length", 0);
	const char *encoding = http_head_field(h, "Transfer-Encoding", 0);
	const char *connection = http_head_field(h, "Connection", 0);
	const char *expect = http_head_field(h, "Expect", 0);

	if (http_head_field(h, "Host", 1) || (h->is_1_1 && !http_head_field(h, "Host", 0)))
		return refuse(f, 400, "a request has exactly one Host");
	if (http_head_field(h, "Content-Length", 1) || (length && encoding))
		return refuse(f, 400, "two lengths of one body");
	if (length && (strspn(length, "0123456789") != strlen(length) ||
		       str_to_u64(length, 10, &h->length) < 0))
		return refuse(f,
			      *length && strspn(length, "0123456789") == strlen(length) ? 413 : 400,
			      "bad Content-Length");
	if (encoding && (!h->is_1_1 || http_head_field(h, "Transfer-Encoding", 1)))
		return refuse(f, 400, "bad Transfer-Encoding");
	if (encoding && strcasecmp(encoding, "chunked") != 0)
		return refuse(f, 501, "Transfer-Encoding: chunked is the only one");
	if (expect && strcasecmp(expect, "100-continue") != 0)
		return refuse(f, 417, "Expect: 100-continue is the only one");
	h->has_length = length != NULL;
	h->chunked = encoding != NULL;
	h->expects_continue = expect && h->is_1_1;
	h->close = !h->is_1_1 || (connection && strcasestr(connection, "close"));
	return 0;
}

/*
 * The header's end, after its empty line; 0: not there yet. A line feed without a carriage return
 * before it, and the reverse, and a NUL are bad. from: where an earlier look has ended.
 */
static ssize_t find_end(const char *data, size_t n, size_t from, struct refusal *f)
{
	for (size_t i = from ? from - 1 : 0; i < n; i++) {
		if (data[i] == '\0')
			return refuse(f, 400, "a NUL in the header");
		if ((data[i] == '\n' && (!i || data[i - 1] != '\r')) ||
		    (data[i] == '\r' && i + 1 < n && data[i + 1] != '\n'))
			return refuse(f, 400, "a line of the header does not end with CR LF");
		if (data[i] == '\n' && i >= 3 && data[i - 2] == '\n')
			return (ssize_t)i + 1;
	}
	return 0;
}

ssize_t http_head_read(const char *data, size_t n, size_t from, struct http_head *ret,
		       int *ret_status, const char **ret_why)
{
	struct refusal f = {ret_status, ret_why};
	/* RFC 9112, 2.2: an empty line before the request is ignored. */
	size_t skip = n >= 2 && data[0] == '\r' && data[1] == '\n' ? 2 : 0;
	ssize_t end = find_end(data + skip, MIN(n - skip, (size_t)HTTP_MAX_HEAD_BYTES),
			       from > skip ? from - skip : 0, &f);
	char *line, *next;
	int r = 0;

	if (end == 0 && n - skip >= HTTP_MAX_HEAD_BYTES)
		return refuse(&f, 431, "the header is larger than 64 KiB");
	if (end <= 0)
		return end;
	/* Without the last two line ends, so that each line but the last has one. */
	ret->bytes = strndup(data + skip, (size_t)end - 4);
	if (!ret->bytes)
		return refuse(&f, 503, "out of memory");
	for (line = ret->bytes; line && r == 0; line = next) {
		next = strstr(line, "\r\n");
		if (next) {
			*next = '\0';
			next += 2;
		}
		r = line == ret->bytes ? read_request_line(ret, line, &f)
				       : read_field(ret, line, &f);
	}
	if (r == 0)
		r = read_framing(ret, &f);
	return r < 0 ? r : end + (ssize_t)skip;
}

void http_head_deinit(struct http_head *h)
{
	vec_deinit(&h->fields);
	vec_deinit(&h->parameters);
	free(h->bytes);
	free(h->target);
}

static const char *find(const struct http_field *v, size_t n, const char *name, size_t i)
{
	for (; n; n--, v++)
		if (!strcasecmp(v->name, name) && i-- == 0)
			return v->value;
	return NULL;
}

const char *http_head_field(const struct http_head *h, const char *name, size_t i)
{
	return find(h->fields.data, h->fields.n, name, i);
}

const char *http_head_parameter(const struct http_head *h, const char *name, size_t i)
{
	if (!name)
		return i < h->parameters.n ? h->parameters.data[i].name : NULL;
	return find(h->parameters.data, h->parameters.n, name, i);
}

/* ---- chunks ---- */

/* A line with its CR LF, or NULL: its end is missing. */
static const char *end_of_line(const char *data, size_t n)
{
	const char *end = memchr(data, '\n', n);

	return end ? end + 1 : NULL;
}

/* The size, and extensions: what follows a semicolon, which may have whitespace before it. */
static int read_size(struct http_chunks *c, const char *line, size_t n)
{
	size_t i = 0, end = n - 2;

	c->left = 0;
	for (; text_hex_digit(line[i]) >= 0; i++) {
		if (c->left >> 60)
			return -1;
		c->left = c->left << 4 | (u64)text_hex_digit(line[i]);
	}
	if (!i || (i < end && line[i + strspn(line + i, " \t")] != ';') ||
	    has_control(line + i, end - i))
		return -1;
	c->state = c->left ? HTTP_CHUNK_DATA : HTTP_CHUNK_TRAILER;
	c->line_bytes = 0;
	return 0;
}

static int read_line(struct http_chunks *c, const char *line, size_t n)
{
	if (n < 2 || line[n - 2] != '\r')
		return -1;
	if (c->state == HTTP_CHUNK_SIZE)
		return read_size(c, line, n);
	if (c->state == HTTP_CHUNK_END) {
		c->state = HTTP_CHUNK_SIZE;
		return n == 2 ? 0 : -1;
	}
	c->line_bytes += (u32)n;
	if (n == 2)
		c->state = HTTP_CHUNK_OVER;
	return c->line_bytes > MAX_LINE_BYTES ? -1 : 0;
}

ssize_t http_chunks_read(struct http_chunks *c, const char *data, size_t n, const char **ret_data,
			 size_t *ret_n)
{
	const char *at = data, *end = data + n;

	*ret_data = NULL;
	*ret_n = 0;
	while (at < end && c->state != HTTP_CHUNK_OVER) {
		const char *next;

		if (c->state == HTTP_CHUNK_DATA) {
			*ret_data = at;
			*ret_n = (size_t)MIN((u64)(end - at), c->left);
			c->left -= *ret_n;
			if (!c->left)
				c->state = HTTP_CHUNK_END;
			return at + *ret_n - data;
		}
		next = end_of_line(at, (size_t)(end - at));
		if (!next)
			return end - at > MAX_LINE_BYTES ? -1 : at - data;
		if (next - at > MAX_LINE_BYTES || read_line(c, at, (size_t)(next - at)) < 0)
			return -1;
		at = next;
	}
	return at - data;
}
