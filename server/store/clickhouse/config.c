/* SPDX-License-Identifier: Apache-2.0 */
/*
 * clickhouse://USER:PASSWORD@HOST:PORT,HOST:PORT/DATABASE?cluster=NAME&...
 *
 * Errors never quote the URL, because the URL contains the password.
 */
#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "server/store/clickhouse/clickhouse.h"

#define MAX_PASSWORD 4096

static int take_text(char **at, const char *text, size_t n)
{
	char *copy = strndup(text, n);

	if (!copy)
		return -ENOMEM;
	free(*at);
	*at = copy;
	return 0;
}

/* Decodes %41 to A. Refuses NUL and line ends: a line end would end an HTTP header. */
static int take_decoded(char **at, const char *text, size_t n, struct diag *reterr_diag)
{
	int length = 0;
	char *plain = curl_easy_unescape(NULL, text, (int)n, &length);
	int r = plain ? take_text(at, plain, (size_t)length) : -ENOMEM;

	if (r == 0 && (strlen(*at) != (size_t)length || strpbrk(*at, "\r\n")))
		r = diag_set(reterr_diag, -EINVAL, "clickhouse://...: it contains a line break");
	curl_free(plain);
	return r;
}

static int read_password(struct ch_config *c, const char *path, struct diag *reterr_diag)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	char text[MAX_PASSWORD] = "";
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

	if (n < 0)
		return diag_set(reterr_diag, -errno, "cannot read the password file %s: %s", path,
				strerror(errno));
	if (n == sizeof(text) - 1)
		return diag_set(reterr_diag, -EINVAL, "%s is too long for a password", path);
	return take_text(&c->password, text, strcspn(text, "\r\n"));
}

static int add_host(struct ch_config *c, const char *host, size_t n, struct diag *reterr_diag)
{
	_cleanup_str_ struct str url = {};
	const char *bracket = memchr(host, ']', n);
	const char *port =
		bracket ? memchr(bracket, ':', n - (size_t)(bracket - host)) : memchr(host, ':', n);

	if (!n || c->n_hosts == CH_MAX_HOSTS)
		return diag_set(reterr_diag, -EINVAL, "clickhouse://...: needs 1 to %d hosts",
				CH_MAX_HOSTS);
	for (size_t i = 0; i < n; i++)
		if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:[]",
			    host[i]))
			return diag_set(reterr_diag, -EINVAL,
					"clickhouse://...: not of the form "
					"USER:PASSWORD@HOST:PORT/DATABASE");
	str_printf(&url, "%s://%.*s%s/", c->tls ? "https" : "http", (int)n, host,
		   port	    ? ""
		   : c->tls ? ":8443"
			    : ":8123");
	if (url.failed)
		return -ENOMEM;
	return take_text(&c->hosts[c->n_hosts++], str_get(&url), url.n);
}

static int take_number(const char *name, const char *value, u64 max, u64 unit, u64 *ret,
		       struct diag *reterr_diag)
{
	u64 v;

	if (str_to_u64(value, 10, &v) < 0 || v > max)
		return diag_set(reterr_diag, -EINVAL, "clickhouse://...?%s= is a number up to %llu",
				name, max);
	*ret = v * unit;
	return 0;
}

static int take_option(void *arg, const char *name, const char *value, struct diag *reterr_diag)
{
	struct ch_config *c = arg;
	const struct {
		const char *name;
		bool *flag;
	} flags[] = {
		{"tls", &c->tls}, {"compress", &c->compress}, {"first-replica", &c->first_replica}};
	u64 flag = 0;
	int r;

	if (!strcmp(name, "cluster"))
		return take_text(&c->cluster, value, strlen(value));
	if (!strcmp(name, "ca"))
		return take_text(&c->ca, value, strlen(value));
	if (!strcmp(name, "password-file"))
		return read_password(c, value, reterr_diag);
	if (!strcmp(name, "timeout"))
		return take_number(name, value, 3600, 1000, &c->timeout_ms, reterr_diag);
	if (!strcmp(name, "retry"))
		return take_number(name, value, 3600, 1000, &c->retry_ms, reterr_diag);
	if (!strcmp(name, "grace"))
		return take_number(name, value, 86400, 1000, &c->grace_ms, reterr_diag);
	for (size_t i = 0; i < ARRAY_SIZE(flags); i++) {
		if (strcmp(name, flags[i].name) != 0)
			continue;
		r = take_number(name, value, 1, 1, &flag, reterr_diag);
		if (r == 0)
			*flags[i].flag = flag;
		return r;
	}
	return diag_set(reterr_diag, -EINVAL,
			"clickhouse://...: unknown option '%.40s'; there are cluster, "
			"first-replica, tls, ca, password-file, compress, timeout, retry, grace",
			name);
}

typedef int take_option_fn(void *arg, const char *name, const char *value,
			   struct diag *reterr_diag);

/* Calls a function with each option of "NAME=VALUE&...", decoded, until one fails. */
static int each_option(const char *text, take_option_fn *take, void *arg, struct diag *reterr_diag)
{
	int r = 0;

	while (*text && r == 0) {
		size_t n = strcspn(text, "&"), name_n = strcspn(text, "=&");
		char *name = NULL, *value = NULL;

		r = take_decoded(&name, text, name_n, reterr_diag);
		if (r == 0)
			r = take_decoded(&value, text + MIN(name_n + 1, n), n - MIN(name_n + 1, n),
					 reterr_diag);
		if (r == 0)
			r = take(arg, name, value, reterr_diag);
		free(name);
		free(value);
		text += n + (text[n] == '&');
	}
	return r;
}

static int take_user(struct ch_config *c, const char *text, size_t n, struct diag *reterr_diag)
{
	const char *colon = memchr(text, ':', n);
	size_t user_n = colon ? (size_t)(colon - text) : n;
	int r = take_decoded(&c->user, text, user_n, reterr_diag);

	if (r == 0 && colon)
		r = take_decoded(&c->password, colon + 1, n - user_n - 1, reterr_diag);
	return r;
}

static int take_hosts(struct ch_config *c, const char *text, size_t n, struct diag *reterr_diag)
{
	int r = 0;

	for (const char *end = text + n; r == 0;) {
		const char *comma = memchr(text, ',', (size_t)(end - text));

		r = add_host(c, text, (size_t)((comma ? comma : end) - text), reterr_diag);
		if (!comma)
			break;
		text = comma + 1;
	}
	return r;
}

static int check_name(const char *name, const char *what, struct diag *reterr_diag)
{
	static const char known[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";

	if (!*name || strspn(name, known) != strlen(name) || strlen(name) > 64)
		return diag_set(
			reterr_diag, -EINVAL,
			"clickhouse://...: the name of the %s may have letters, digits and _ only",
			what);
	return 0;
}

/* Between processes on one machine gzip costs more time than it saves. */
static int set_defaults(struct ch_config *c, bool on_loopback)
{
	c->compress = !on_loopback;
	c->timeout_ms = 60000;
	c->retry_ms = 4000;
	c->grace_ms = 600000;
	c->user = strdup("default");
	c->password = strdup("");
	c->database = strdup("culprit");
	return c->user && c->password && c->database ? 0 : -ENOMEM;
}

int ch_config_parse(const char *where, struct ch_config *ret, struct diag *reterr_diag)
{
	size_t n = strcspn(where, "?"), authority_n = strcspn(where, "/?"), user_n = 0;
	struct ch_config c = {};
	int r;

	for (size_t i = 0; i < authority_n; i++)
		if (where[i] == '@')
			user_n = i + 1;
	r = set_defaults(&c, str_starts(where + user_n, "127.") ||
				     str_starts(where + user_n, "localhost") ||
				     str_starts(where + user_n, "[::1]"));
	if (r == 0 && user_n)
		r = take_user(&c, where, user_n - 1, reterr_diag);
	if (r == 0 && authority_n + 1 < n)
		r = take_decoded(&c.database, where + authority_n + 1, n - authority_n - 1,
				 reterr_diag);
	if (r == 0 && where[n])
		r = each_option(where + n + 1, take_option, &c, reterr_diag);
	if (r == 0)
		r = take_hosts(&c, where + user_n, authority_n - user_n, reterr_diag);
	if (r == 0)
		r = check_name(c.database, "database", reterr_diag);
	if (r == 0 && c.cluster)
		r = check_name(c.cluster, "cluster", reterr_diag);
	if (r == 0)
		*ret = c;
	else
		ch_config_deinit(&c);
	return r;
}

struct files {
	void (*file)(void *arg, const char *path);
	void *arg;
};

static int tell_file(void *arg, const char *name, const char *value, struct diag *reterr_diag)
{
	const struct files *f = arg;

	(void)reterr_diag;
	if (!strcmp(name, "ca") || !strcmp(name, "password-file"))
		f->file(f->arg, value);
	return 0;
}

void ch_each_file(const char *where, void (*file)(void *arg, const char *path), void *arg)
{
	struct files f = {.file = file, .arg = arg};
	size_t n = strcspn(where, "?");
	struct diag d = {};

	/* ch_config_parse() says what is wrong with an option. */
	if (where[n])
		(void)each_option(where + n + 1, tell_file, &f, &d);
}

void ch_config_deinit(struct ch_config *c)
{
	for (size_t i = 0; i < c->n_hosts; i++)
		free(c->hosts[i]);
	free(c->user);
	free(c->password);
	free(c->database);
	free(c->cluster);
	free(c->ca);
	*c = (struct ch_config){};
}
