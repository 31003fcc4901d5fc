/* SPDX-License-Identifier: Apache-2.0 */
#include "server/ingest/multipart.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define MAX_BOUNDARY 70 /* RFC 2046, 5.1.1 */
#define MAX_PARTS 64

bool multipart_is(const char *content_type)
{
	return content_type && !strncasecmp(content_type, "multipart/form-data", 19);
}

/* "--BOUNDARY", with its length. */
static int delimiter(const char *content_type, char ret[MAX_BOUNDARY + 3], size_t *ret_n)
{
	const char *s = strcasestr(content_type, "boundary=");
	size_t n;

	if (!s)
		return -EBADMSG;
	s += 9;
	if (*s == '"') {
		s++;
		n = strcspn(s, "\"");
	} else {
		n = strcspn(s, "; \t");
	}
	if (!n || n > MAX_BOUNDARY)
		return -EBADMSG;
	memcpy(ret, "--", 2);
	memcpy(ret + 2, s, n);
	ret[n + 2] = '\0';
	*ret_n = n + 2;
	return 0;
}

/* Whether the header of a part, up to its empty line, has this name. */
static bool is_named(const u8 *head, size_t n, const char *name)
{
	char want[64];
	const u8 *at;
	int want_n = snprintf(want, sizeof(want), "name=\"%s\"", name);

	if (want_n < 0 || (size_t)want_n >= sizeof(want))
		return false;
	at = memmem(head, n, want, (size_t)want_n);
	/* name= must not be the end of filename=. */
	return at && (at == head || at[-1] == ' ' || at[-1] == ';');
}

int multipart_find(const char *content_type, const u8 *data, size_t n, const char *name,
		   const u8 **ret_data, size_t *ret_n)
{
	char mark[MAX_BOUNDARY + 3];
	const u8 *end = data + n, *at;
	size_t mark_n;
	int r = delimiter(content_type, mark, &mark_n);

	if (r < 0)
		return r;
	at = memmem(data, n, mark, mark_n);
	for (int part = 0; at && part < MAX_PARTS; part++) {
		const u8 *head = at + mark_n, *body, *next;

		if (end - head >= 2 && !memcmp(head, "--", 2))
			return -ENOENT;
		body = memmem(head, (size_t)(end - head), "\r\n\r\n", 4);
		if (!body)
			return -EBADMSG;
		body += 4;
		next = memmem(body, (size_t)(end - body), mark, mark_n);
		if (!next || next - body < 2 || next[-2] != '\r' || next[-1] != '\n')
			return -EBADMSG;
		if (is_named(head, (size_t)(body - head), name)) {
			*ret_data = body;
			*ret_n = (size_t)(next - 2 - body);
			return 0;
		}
		at = next;
	}
	return at ? -E2BIG : -EBADMSG;
}
