/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A debuginfod client: asks each server in turn for URL/buildid/HEX/debuginfo and passes the answer
 * on as an upload. libdebuginfod does not fit: it takes its servers and its cache from the
 * environment of the process, and in that environment the agent of `culprit up` has other servers;
 * it keeps files beyond the limit of this server; and it writes a file to disk before the caller
 * knows that the file is too large.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "http/http.h"
#include "server/symbols/internal.h"

#define CONNECT_MS 10000L
#define SILENCE_S 30L /* of less than SILENCE_BYTES a second, as in libdebuginfod */
#define SILENCE_BYTES 1024L
#define TOTAL_S 1800L
#define MAX_REDIRECTS 5

struct fetching {
	struct symstore *s;
	struct symstore_upload *u; /* owned */
	CURL *easy;		   /* owned */
	char url[1024];
	char error[CURL_ERROR_SIZE];
};

static size_t on_body(char *data, size_t size, size_t n, void *arg)
{
	struct fetching *f = arg;
	long status = 0;

	/* The body of an error is not the file. */
	curl_easy_getinfo(f->easy, CURLINFO_RESPONSE_CODE, &status);
	if (status == 200)
		symstore_upload_part(f->u, data, size * n);
	return size * n;
}

static int on_progress(void *arg, curl_off_t dltotal, curl_off_t dlnow, curl_off_t ultotal,
		       curl_off_t ulnow)
{
	const struct fetching *f = arg;

	return atomic_load(&f->s->stopping) || (u64)dlnow > symstore_max_file(f->s);
}

static int open_handle(struct fetching *f)
{
	struct http_client_options client = {
		.connect_ms = CONNECT_MS,
		.error = f->error,
		.body = on_body,
		.arg = f,
	};
	int r = http_client_open(&client, &f->easy);
	bool ok = true;

	if (r < 0)
		return r;
#define SET(option, value) ok = ok && curl_easy_setopt(f->easy, option, value) == CURLE_OK
	SET(CURLOPT_URL, f->url);
	SET(CURLOPT_LOW_SPEED_LIMIT, SILENCE_BYTES);
	SET(CURLOPT_LOW_SPEED_TIME, SILENCE_S);
	SET(CURLOPT_TIMEOUT, TOTAL_S);
	SET(CURLOPT_MAXFILESIZE_LARGE, (curl_off_t)symstore_max_file(f->s));
	SET(CURLOPT_NOPROGRESS, 0L);
	SET(CURLOPT_XFERINFOFUNCTION, on_progress);
	SET(CURLOPT_XFERINFODATA, f);
#undef SET
	return ok ? 0 : -EINVAL;
}

/* How many characters of a URL say which server it is: its scheme, host and port. */
static size_t server_part(const char *url)
{
	const char *host = strstr(url, "://");

	return host ? (size_t)(host - url) + 3 + strcspn(host + 3, "/?#") : 0;
}

/*
 * 1: f->url is now where a redirection leads, on the same server. Another server might be any
 * machine that this one can reach.
 */
static int follow(struct fetching *f, struct diag *reterr_diag)
{
	size_t n = server_part(f->url);
	char *to = NULL;

	curl_easy_getinfo(f->easy, CURLINFO_REDIRECT_URL, &to);
	if (!to)
		return 0;
	if (strlen(to) >= sizeof(f->url) || !n || server_part(to) != n ||
	    strncasecmp(to, f->url, n) != 0)
		return diag_set(reterr_diag, -EIO,
				"%.100s redirects to another server, %.*s: if it may, name that "
				"server in --debuginfod-urls",
				f->url, (int)MIN(server_part(to), (size_t)60), to);
	snprintf(f->url, sizeof(f->url), "%s", to);
	return curl_easy_setopt(f->easy, CURLOPT_URL, f->url) == CURLE_OK ? 1 : -EINVAL;
}

static int transfer(struct fetching *f, struct diag *reterr_diag)
{
	long status = 0;
	CURLcode c;
	int more = 0;

	for (u32 i = 0; i <= MAX_REDIRECTS; i++) {
		c = curl_easy_perform(f->easy);
		more = c == CURLE_OK ? follow(f, reterr_diag) : 0;
		if (more <= 0)
			break;
	}
	if (more < 0)
		return more;
	curl_easy_getinfo(f->easy, CURLINFO_RESPONSE_CODE, &status);
	if (atomic_load(&f->s->stopping))
		return -ECANCELED;
	if (c == CURLE_FILESIZE_EXCEEDED || c == CURLE_ABORTED_BY_CALLBACK)
		return diag_set(reterr_diag, -ENOENT, "%s: the file is larger than %llu MiB",
				f->url, symstore_max_file(f->s) >> 20);
	if (c != CURLE_OK)
		return diag_set(reterr_diag, -EIO, "%s: %s", f->url,
				http_client_error(f->error, c));
	if (status == 404)
		return diag_set(reterr_diag, -ENOENT, "debuginfod servers do not have it");
	if (status != 200)
		return diag_set(reterr_diag, -EIO, "%s: HTTP %ld", f->url, status);
	return symstore_upload_end(f->u, reterr_diag);
}

static int fetch_from(struct symstore *s, const char *url, size_t n, const char *build_id,
		      struct diag *reterr_diag)
{
	struct fetching f = {.s = s};
	int r;

	while (n && url[n - 1] == '/')
		n--;
	if (n + strlen(build_id) + 64 > sizeof(f.url))
		return diag_set(reterr_diag, -EINVAL, "a debuginfod URL is too long");
	snprintf(f.url, sizeof(f.url), "%.*s/buildid/%s/debuginfo", (int)n, url, build_id);
	r = symstore_upload_begin(s, build_id, NULL, false, reterr_diag, &f.u);
	if (r < 0)
		return r;
	r = open_handle(&f);
	if (r == 0)
		r = transfer(&f, reterr_diag);
	curl_easy_cleanup(f.easy);
	symstore_upload_free(f.u);
	return r;
}

int symstore_fetch(struct symstore *s, const char *build_id, struct diag *reterr_diag)
{
	const char *url = s->o.debuginfod_urls;
	int r = -ENOENT, worst = -ENOENT;

	while (url && *url) {
		struct diag d = {};
		size_t n;

		url += strspn(url, " ,");
		n = strcspn(url, " ,");
		if (!n)
			break;
		r = fetch_from(s, url, n, build_id, &d);
		if (r >= 0 || r == -ECANCELED)
			return r;
		/*
		 * Prefer the error of a server that did not answer, because that server may have
		 * the file.
		 */
		if (worst == -ENOENT) {
			worst = r;
			*reterr_diag = d;
		}
		url += n;
	}
	return worst;
}
