/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The page, and the flame graph in it. The page is one file without secrets, so it needs no token:
 * when the API requires a token, the page asks the user. It loads nothing but answers of the API.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "server/api/internal.h"
#include "server/api/live_page.h"

/* Stacks of a flame graph that a browser draws at once. One frame replaces the lighter stacks. */
#define PAYLOAD_STACKS 100000

void api_put_header(struct net_response *ret, const char *name, const char *value)
{
	if (ret->n_headers < ARRAY_SIZE(ret->headers)) {
		ret->headers[ret->n_headers].name = name;
		ret->headers[ret->n_headers++].value = value;
	}
}

/* For the few clients that do not accept gzip. */
static int put_plain(struct str *out)
{
	_cleanup_free_ u8 *plain = malloc(live_page_plain_n);
	z_stream z = {
		.next_in = (Bytef *)live_page,
		.avail_in = (uInt)live_page_n,
		.next_out = plain,
		.avail_out = (uInt)live_page_plain_n,
	};
	int r;

	if (!plain || inflateInit2(&z, 16 + MAX_WBITS) != Z_OK)
		return -ENOMEM;
	r = inflate(&z, Z_FINISH);
	inflateEnd(&z);
	if (r != Z_STREAM_END || z.total_out != live_page_plain_n)
		return -EBADMSG;
	str_append(out, plain, live_page_plain_n);
	return 0;
}

static bool accepts_gzip(const struct net_request *r)
{
	const char *v = net_header(r, "Accept-Encoding");

	return v && strstr(v, "gzip") && !strstr(v, "gzip;q=0");
}

static int page(struct api_call *c)
{
	const char *known = net_header(c->r, "If-None-Match");

	c->ret->content_type = "text/html; charset=utf-8";
	api_put_header(c->ret, "ETag", live_page_etag);
	api_put_header(c->ret, "Cache-Control", "no-cache");
	api_put_header(c->ret, "Vary", "Accept-Encoding");
	api_put_header(c->ret, "Content-Security-Policy", live_page_csp);
	api_put_header(c->ret, "Referrer-Policy", "no-referrer");
	if (known && strstr(known, live_page_etag)) {
		c->ret->status = 304;
		return 0;
	}
	if (!accepts_gzip(c->r))
		return put_plain(c->out);
	api_put_header(c->ret, "Content-Encoding", "gzip");
	str_append(c->out, live_page, live_page_n);
	return 0;
}

/* The data that the page draws, in the format of doc/format/html.md. */
static int payload(struct api_call *c)
{
	_cleanup_profile_ struct profile *p = NULL;
	struct profile_write_options o = {};
	u64 max_stacks = PAYLOAD_STACKS;
	_cleanup_query_ struct query q = {};
	int r = api_tree_options(c, &o.tree);

	if (r == 0)
		r = api_query(c, "", &q);
	if (r == 0)
		r = api_spans(c, "", &q);
	if (r == 0)
		r = api_group(c, &q);
	if (r == 0)
		r = api_number(c, "max_stacks", 1, API_MAX_STACKS * 10, &max_stacks);
	if (r == 0)
		r = query_profile(c->a->o.store, &q, max_stacks, &p, &c->d);
	if (r < 0)
		return r;
	c->ret->content_type = "application/x-culprit";
	api_put_header(c->ret, "Cache-Control", "no-store");
	/* Not compressed here: server/net compresses it for clients that accept that. */
	return profile_write_payload(p, &o, false, c->out, &c->d);
}

const struct api_route api_page_routes[] = {
	{"GET", "/", NET_ROLE_NONE, API_STYLE_JSON, page},
	{"GET", "/api/v1/payload", NET_ROLE_READ, API_STYLE_JSON, payload},
	{},
};
