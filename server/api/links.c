/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Links from source files to their repository: --source-links "PREFIX=URL ...", where PREFIX begins
 * the path of a file as debug information has it, and URL is of GitHub, GitLab, gitea or another
 * http(s) server, with {path}, {version} and {line} in it. The longest prefix decides. {version} is
 * the label service.version of the samples; the page fills in {line}.
 */
#include <errno.h>
#include <string.h>

#include "server/api/internal.h"

#define MAX_LINKS_BYTES 16384

/* The next "PREFIX=URL" from *at on. false: there are no more. */
static bool next(const char **at, const char **ret_prefix, size_t *ret_n_prefix,
		 const char **ret_url, size_t *ret_n_url)
{
	const char *from = *at + strspn(*at, " "), *equals;
	size_t n = strcspn(from, " ");

	*at = from + n;
	equals = memchr(from, '=', n);
	*ret_prefix = from;
	*ret_n_prefix = equals ? (size_t)(equals - from) : n;
	*ret_url = equals ? equals + 1 : from + n;
	*ret_n_url = n - *ret_n_prefix - (equals ? 1 : 0);
	return n;
}

static bool has(const char *text, size_t n, const char *part)
{
	return memmem(text, n, part, strlen(part));
}

int api_check_links(const char *links, struct diag *reterr_diag)
{
	const char *prefix, *url;
	size_t n_prefix, n_url;

	if (!links)
		return 0;
	if (strlen(links) > MAX_LINKS_BYTES)
		return diag_set(reterr_diag, -EINVAL, "source-links: at most %d bytes",
				MAX_LINKS_BYTES);
	while (next(&links, &prefix, &n_prefix, &url, &n_url)) {
		if ((strncmp(url, "https://", 8) != 0 && strncmp(url, "http://", 7) != 0) ||
		    !has(url, n_url, "{path}"))
			return diag_set(reterr_diag, -EINVAL,
					"source-links: PREFIX=URL with an http:// or https:// URL "
					"that has {path}, not '%.*s'",
					(int)MIN(n_prefix + 1 + n_url, (size_t)80), prefix);
		for (size_t i = 0; i < n_url; i++)
			if ((u8)url[i] <= ' ' || strchr("\"<>\\^`|\x7f", url[i]))
				return diag_set(reterr_diag, -EINVAL,
						"source-links: a URL has a character that must be "
						"encoded (%%XX)");
	}
	return 0;
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
	const char *prefix, *url, *best = NULL;
	size_t n_prefix, n_url, best_prefix = 0, best_n = 0;

	while (links && next(&links, &prefix, &n_prefix, &url, &n_url))
		if (!strncmp(file, prefix, n_prefix) && (!best || n_prefix > best_prefix)) {
			best = url;
			best_n = n_url;
			best_prefix = n_prefix;
		}
	if (!best || climbs(file + best_prefix) || climbs(version) ||
	    (!*version && has(best, best_n, "{version}")))
		return false;
	for (size_t i = 0; i < best_n;) {
		if (!strncmp(best + i, "{path}", 6)) {
			encode(out, file + best_prefix);
			i += 6;
		} else if (!strncmp(best + i, "{version}", 9)) {
			encode(out, version);
			i += 9;
		} else {
			str_putc(out, best[i++]);
		}
	}
	return true;
}
