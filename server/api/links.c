/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Links to other tools, of two options: "NAME=URL ...", separated by spaces, each of an http(s)
 * server.
 *
 *	--source-links	of source files to their repository, in GitHub, GitLab, gitea or another:
 *			NAME is a prefix of the file's path as debug information has it, and the
 *			longest prefix decides. In the URL are {path}, {version} and {line}: the
 *			version is the label service.version of the samples; the page fills in
 *			{line}.
 *	--trace-links	of traces: NAME is the tool's. In the URL are {trace} and {span}, which the
 *			page fills in.
 */
#include <errno.h>
#include <string.h>

#include "server/api/internal.h"

#define MAX_URL_BYTES 512

static const char *const needed[] = {
	[API_SOURCE_LINKS] = "{path}",
	[API_TRACE_LINKS] = "{trace}",
};

struct link {
	const char *name, *url; /* not terminated */
	size_t n_name, n_url;
};

/* The next link from *at on; one without "=" has no URL. False: there are no more. */
static bool next(const char **at, struct link *ret)
{
	const char *from = *at + strspn(*at, " "), *equals;
	size_t n = strcspn(from, " ");

	*at = from + n;
	equals = memchr(from, '=', n);
	*ret = (struct link){.name = from, .n_name = equals ? (size_t)(equals - from) : n};
	if (equals) {
		ret->url = equals + 1;
		ret->n_url = n - ret->n_name - 1;
	}
	return n;
}

static bool has(const struct link *l, const char *part)
{
	return l->n_url && memmem(l->url, l->n_url, part, strlen(part));
}

/* An address of the web, without characters that must be encoded. */
static bool is_url(const struct link *l)
{
	if (!has(l, "://") || l->n_url > MAX_URL_BYTES ||
	    (strncmp(l->url, "https://", 8) != 0 && strncmp(l->url, "http://", 7) != 0))
		return false;
	for (size_t i = 0; i < l->n_url; i++)
		if ((u8)l->url[i] <= ' ' || strchr("\"<>\\^`|\x7f", l->url[i]))
			return false;
	return true;
}

int api_check_links(enum api_links which, const char *list, struct diag *reterr_diag)
{
	struct link l;

	while (list && next(&list, &l))
		if (!is_url(&l) || !has(&l, needed[which]) ||
		    (which == API_TRACE_LINKS && !l.n_name))
			return diag_set(reterr_diag, -EINVAL,
					"each link is NAME=URL; a URL is of http or https, has %s, "
					"at most %d bytes, and other special characters as %%XX; "
					"'%.*s' is not such a link",
					needed[which], MAX_URL_BYTES,
					(int)MIN((size_t)(list - l.name), (size_t)80), l.name);
	return 0;
}

void api_put_trace_links(struct json_writer *w, const char *list)
{
	struct link l;

	json_open_array(w, "links");
	while (list && next(&list, &l)) {
		_cleanup_str_ struct str name = {}, url = {};

		str_printf(&name, "%.*s", (int)l.n_name, l.name);
		str_printf(&url, "%.*s", (int)l.n_url, l.url);
		json_open_object(w, NULL);
		json_put_text(w, "name", str_get(&name));
		json_put_text(w, "url", str_get(&url));
		json_close(w);
	}
	json_close(w);
}

/* Percent-encodes what a component of a URL may not have; slashes of paths stay. */
static void encode(struct str *out, const char *text)
{
	for (; *text; text++)
		if ((*text >= 'a' && *text <= 'z') || (*text >= 'A' && *text <= 'Z') ||
		    (*text >= '0' && *text <= '9') || strchr("-._~/+@", *text))
			str_putc(out, *text);
		else
			str_printf(out, "%%%02X", (u8)*text);
}

/* Whether a component would lead elsewhere in the URL. */
static bool climbs(const char *path)
{
	return strstr(path, "../") || str_ends(path, "..") || *path == '/';
}

bool api_source_link(const char *links, const char *file, const char *version, struct str *out)
{
	struct link l, best = {};

	while (links && next(&links, &l))
		if (!strncmp(file, l.name, l.n_name) && (!best.url || l.n_name > best.n_name))
			best = l;
	if (!best.url || climbs(file + best.n_name) || climbs(version) ||
	    (!*version && has(&best, "{version}")))
		return false;
	for (size_t i = 0; i < best.n_url;) {
		if (!strncmp(best.url + i, "{path}", 6)) {
			encode(out, file + best.n_name);
			i += 6;
		} else if (!strncmp(best.url + i, "{version}", 9)) {
			encode(out, version);
			i += 9;
		} else {
			str_putc(out, best.url[i++]);
		}
	}
	return true;
}
