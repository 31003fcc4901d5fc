/* SPDX-License-Identifier: Apache-2.0 */
#include "http/http.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"

/* curl_easy_init() does this, too, but not safely in several threads at once. */
static void init_curl(void)
{
	curl_global_init(CURL_GLOBAL_DEFAULT);
}

static size_t collect_answer(char *data, size_t size, size_t n, void *arg)
{
	struct http_answer *a = arg;

	a->too_large = a->text.n + size * n > a->max_bytes;
	return a->too_large || str_append(&a->text, data, size * n) < 0 ? 0 : size * n;
}

int http_client_open(const struct http_client_options *o, CURL **ret)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	bool ok = true;
	CURL *easy;

	pthread_once(&once, init_curl);
	easy = curl_easy_init();
	if (!easy)
		return -ENOMEM;
#define SET(option, value) ok = ok && curl_easy_setopt(easy, option, value) == CURLE_OK
	SET(CURLOPT_NOSIGNAL, 1L);
	SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	SET(CURLOPT_CONNECTTIMEOUT_MS, o->connect_ms);
	SET(CURLOPT_PROTOCOLS_STR, "http,https");
	SET(CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
	SET(CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
	SET(CURLOPT_USERAGENT, "culprit/" CULPRIT_VERSION);
	SET(CURLOPT_ERRORBUFFER, o->error);
	SET(CURLOPT_WRITEFUNCTION, o->answer ? collect_answer : o->body);
	SET(CURLOPT_WRITEDATA, o->answer ? o->answer : o->arg);
	if (o->ca)
		SET(CURLOPT_CAINFO, o->ca);
	if (o->cert)
		SET(CURLOPT_SSLCERT, o->cert);
	if (o->key)
		SET(CURLOPT_SSLKEY, o->key);
#undef SET
	if (!ok) {
		curl_easy_cleanup(easy);
		return -EINVAL;
	}
	*ret = easy;
	return 0;
}

int http_client_header(struct curl_slist **list, const char *name, const char *value)
{
	_cleanup_str_ struct str line = {};
	struct curl_slist *more;

	/* libcurl's syntax: "Name;" is a header without a value, "Name:" leaves it out. */
	if (value && *value)
		str_printf(&line, "%s: %s", name, value);
	else
		str_printf(&line, "%s%c", name, value ? ';' : ':');
	more = line.failed ? NULL : curl_slist_append(*list, str_get(&line));
	if (!more)
		return -ENOMEM;
	*list = more;
	return 0;
}

int http_client_bearer(struct curl_slist **list, const char *token)
{
	_cleanup_str_ struct str value = {};

	if (!token)
		return 0;
	str_printf(&value, "Bearer %s", token);
	return value.failed ? -ENOMEM : http_client_header(list, "Authorization", str_get(&value));
}

int http_client_token(const char *path, struct diag *reterr_diag, char **ret)
{
	_cleanup_fclose_ FILE *f = fopen(path, "re");
	_cleanup_free_ char *line = NULL;
	size_t cap = 0;

	if (!f)
		return diag_set(reterr_diag, -errno, "cannot read a token from %s: %s", path,
				strerror(errno));
	if (getline(&line, &cap, f) < 0 || !strcspn(line, " \t\r\n"))
		return diag_set(reterr_diag, -ENODATA, "cannot read a token from %s: it is empty",
				path);
	line[strcspn(line, " \t\r\n")] = '\0';
	*ret = take_ptr(line);
	return 0;
}

const char *http_client_error(const char *error, CURLcode code)
{
	return error[0] ? error : curl_easy_strerror(code);
}
