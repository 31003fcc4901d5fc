/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests that a web page made, and whether it was this server's own page.
 *
 * A browser sends Sec-Fetch-Site with each request to a trustworthy origin (https, or loopback),
 * and Origin with each that may change something; other clients send neither. A page of another
 * site can make a browser send a request with the user's certificate, or from the user's machine to
 * its loopback. It cannot read the answer, but the request may store data or take much CPU time. A
 * link from another site to the page itself is allowed.
 *
 * Source: https://www.w3.org/TR/fetch-metadata/
 */
#include <string.h>
#include <strings.h>

#include "server/net/internal.h"

static bool is_link_to_page(const struct net_origin *o)
{
	return !strcmp(o->method, "GET") && !strcmp(o->path, "/") && o->mode &&
	       !strcasecmp(o->mode, "navigate");
}

bool net_is_foreign(const struct net_origin *o, bool needs_local_host)
{
	const char *origin_host;

	if (needs_local_host && o->host && !net_host_is_local(o->host))
		return true;
	/* A proxy may change Host, and so the comparison below; the browser knows better. */
	if (o->site)
		return strcasecmp(o->site, "same-origin") != 0 &&
		       strcasecmp(o->site, "none") != 0 && !is_link_to_page(o);
	if (!o->origin)
		return false;
	origin_host = strstr(o->origin, "://");
	return !o->host || !origin_host || strcasecmp(origin_host + 3, o->host) != 0;
}
