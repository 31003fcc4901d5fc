/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The page, its scripts, and the flame graph in it. They have no secrets, so they need no token:
 * when the API requires a token, the page asks the user. The page loads nothing but its scripts
 * and answers of the API.
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
static int put_plain(const struct live_file *f, struct str *out)
{
	_cleanup_free_ u8 *plain = malloc(f->plain_n);
	z_stream z = {
		.next_in = (Bytef *)f->gzip,
		.avail_in = (uInt)f->n,
		.next_out = plain,
		.avail_out = (uInt)f->plain_n,
	};
	int r;

	if (!plain || inflateInit2(&z, 16 + MAX_WBITS) != Z_OK)
		return -ENOMEM;
	r = inflate(&z, Z_FINISH);
	inflateEnd(&z);
	if (r != Z_STREAM_END || z.total_out != f->plain_n)
		return -EBADMSG;
	str_append(out, plain, f->plain_n);
	return 0;
}

static bool accepts_gzip(const struct net_request *r)
{
	const char *v = net_header(r, "Accept-Encoding");

	return v && strstr(v, "gzip") && !strstr(v, "gzip;q=0");
}

bool api_put_lost_page(struct api_call *c)
{
	static const char html[] =
		"<!DOCTYPE html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\">"
		"<meta name=\"viewport\" content=\"width=device-width\">"
		"<meta name=\"color-scheme\" content=\"light dark\">"
		"<title>Page not found – culprit</title></head>\n"
		"<body><h1>Page not found</h1>\n"
		"<p>This server has no page at this address. <a href=\"/\">Open culprit</a></p>"
		"</body>\n</html>\n";
	const char *accept = net_header(c->r, "Accept");

	if (strcmp(c->r->method, "GET") != 0 || str_starts(c->r->path, "/api/") || !accept ||
	    !strstr(accept, "text/html"))
		return false;
	c->ret->status = 404;
	c->ret->content_type = "text/html; charset=utf-8";
	api_put_header(c->ret, "Cache-Control", "no-store");
	api_put_header(c->ret, "Content-Security-Policy", "default-src 'none'");
	str_append(c->out, html, sizeof(html) - 1);
	return true;
}

static int put_file(struct api_call *c, const struct live_file *f, const char *type,
		    const char *cached)
{
	const char *known = net_header(c->r, "If-None-Match");

	c->ret->content_type = type;
	api_put_header(c->ret, "ETag", f->etag);
	api_put_header(c->ret, "Cache-Control", cached);
	api_put_header(c->ret, "Vary", "Accept-Encoding");
	if (known && strstr(known, f->etag)) {
		c->ret->status = 304;
		return 0;
	}
	if (!accepts_gzip(c->r))
		return put_plain(f, c->out);
	api_put_header(c->ret, "Content-Encoding", "gzip");
	str_append(c->out, f->gzip, f->n);
	return 0;
}

static int page(struct api_call *c)
{
	api_put_header(c->ret, "Content-Security-Policy", live_page_csp);
	api_put_header(c->ret, "Referrer-Policy", "no-referrer");
	return put_file(c, &live_files[0], "text/html; charset=utf-8", "no-cache");
}

static int script(struct api_call *c)
{
	const char *name = strrchr(c->r->path, '/') + 1;

	for (size_t i = 1; i < live_files_n; i++)
		if (!strcmp(live_files[i].name, name))
			return put_file(c, &live_files[i], "text/javascript; charset=utf-8",
					"public, max-age=31536000, immutable");
	return diag_set(&c->d, -ENOENT, "no such script: reload the page");
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
	{"GET", "/ui/{name}", NET_ROLE_NONE, API_STYLE_JSON, script},
	{"GET", "/api/v1/payload", NET_ROLE_READ, API_STYLE_JSON, payload},
	{},
};
