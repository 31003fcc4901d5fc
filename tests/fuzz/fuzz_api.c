/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Questions: a line with method and path, a line with the content type, lines "name=value" of
 * parameters, an empty line, the body. The store is a real one, with a little in it.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/api/api.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MAX_LINES 32
struct question {
	char *line[MAX_LINES];
	size_t n;
};

static char directory[] = "/tmp/fuzz-api.XXXXXX";

static void remove_directory(void)
{
	DIR *d = opendir(directory);
	struct dirent *e;

	while (d && (e = readdir(d)))
		(void)unlinkat(dirfd(d), e->d_name, 0);
	if (d)
		closedir(d);
	(void)rmdir(directory);
}

static struct api *make_api(void)
{
	static const char text[] = "shop;main;work 7\nshop;main;idle 3\ncart;main;[unknown] 1\n";
	const struct ingest_file f = {.labels = "env=prod"};
	struct api_options o = {};
	struct diag d = {};
	struct api *a = NULL;

	if (!mkdtemp(directory) || store_open(directory, &(struct store_options){}, &d, &o.store) ||
	    ingest_create(o.store, NULL, &o.ingest) || api_create(&o, &a) ||
	    ingest_file(o.ingest, (const u8 *)text, sizeof(text) - 1, &f, &d)) {
		fprintf(stderr, "no store: %s\n", d.text);
		abort();
	}
	atexit(remove_directory);
	return a;
}

static const char *lookup(const struct net_request *r, bool header, const char *name, size_t i)
{
	struct question *q = r->private;
	size_t n = strlen(name);

	for (size_t k = 2; k < q->n && !header; k++)
		if (!strncmp(q->line[k], name, n) && q->line[k][n] == '=' && i-- == 0)
			return q->line[k] + n + 1;
	return NULL;
}

/* The rest behind the empty line, or NULL. */
static const uint8_t *split(struct question *q, const uint8_t *at, const uint8_t *end)
{
	while (at < end && q->n < MAX_LINES) {
		const uint8_t *eol = memchr(at, '\n', (size_t)(end - at));

		if (!eol)
			return NULL;
		if (eol == at)
			return eol + 1;
		q->line[q->n] = strndup((const char *)at, (size_t)(eol - at));
		if (!q->line[q->n++])
			return NULL;
		at = eol + 1;
	}
	return NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct api *api;
	struct question q = {};
	const uint8_t *body = split(&q, data, data + size);
	char *path = body && q.n >= 2 ? strchr(q.line[0], ' ') : NULL;
	struct net_response ret = {};

	if (!api)
		api = make_api();
	if (path) {
		struct net_request r = {.method = q.line[0],
					.path = path + 1,
					.body = body,
					.n_body = size - (size_t)(body - data),
					.content_type = q.line[1],
					.role = NET_ROLE_READ, /* the store stays as it is */
					.peer = "127.0.0.1",
					.lookup = lookup,
					.private = &q};

		*path = '\0';
		api_http(api, &r, &ret);
		if (ret.status < 200 || ret.status > 599 || (ret.status >= 400 && !ret.body.n))
			abort();
	}
	str_deinit(&ret.body);
	for (size_t i = 0; i < q.n; i++)
		free(q.line[i]);
	return 0;
}
