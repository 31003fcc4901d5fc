/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests to the API. The input is a line with method and path, a line with the content type,
 * lines "name=value" of parameters, an empty line, and the body. The store is a real one with a few
 * samples and spans. Each request is made with too little memory first: what that leaves unfinished
 * must not harm the store or the next request.
 */
#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
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

/* Adds spans of 1 to 40 ms, the last ones slow, and for each span a sample with its span id. */
static int add_spans(struct store *s)
{
	_cleanup_profile_ struct profile *p = profile_create();
	_cleanup_store_batch_ struct store_batch b = {};
	_cleanup_spans_ struct spans spans = {};
	struct profile_label l = {};
	struct profile_thread t = {};
	u32 thread = 0, frame = 0, stack = 0;
	struct profile_frame f = {.kind = FRAME_NATIVE,
				  .address = 7,
				  .mapping = PROFILE_NONE,
				  .function = PROFILE_NONE};
	int r = p ? spans_init(&spans) : -ENOMEM;

	if (r < 0 || profile_add_type(p, "cpu", "nanoseconds") < 0 ||
	    profile_add_string(p, "shop", 4, &t.comm) < 0 || profile_add_thread(p, &t, &thread) < 0)
		return -ENOMEM;
	if (profile_add_frame(p, &f, &frame) < 0 || profile_add_stack(p, &frame, 1, &stack) < 0)
		return -ENOMEM;
	for (u32 i = 1; i <= 40 && r == 0; i++) {
		struct span e = {.trace_id = {[15] = (u8)i},
				 .span_id = {[7] = 1},
				 .start_ns = clock_epoch_ms() * 1000000 - i * 1000000,
				 .duration_ns = (i > 37 ? 100 : i) * 1000000ULL,
				 .kind = SPAN_KIND_SERVER,
				 .flags = SPAN_ROOT};
		struct profile_link link = {.trace_id = {[15] = (u8)i}, .span_id = {[7] = 1}};
		s64 value = i * 1000000;
		u32 id = 0;

		r = spans_add_text(&spans, "shop", &e.service);
		l.value = e.service;
		if (r == 0)
			r = spans_add_text(&spans, "service.name", &l.name);
		if (r == 0)
			r = profile_add_resource(spans.profile, &l, 1, &e.resource);
		if (r == 0)
			r = spans_add_text(&spans, "/buy", &e.name);
		e.endpoint = e.name;
		if (r == 0)
			r = vec_push(&spans.spans, e);
		if (r == 0)
			r = profile_add_link(p, &link, &id);
		if (r == 0)
			r = profile_add_linked_sample(p, e.start_ns, thread, stack, id, &value);
	}
	if (r == 0)
		r = store_write_spans(s, &spans, NULL, NULL);
	if (r == 0)
		r = store_batch_init(&b, p, NULL, NULL);
	return r < 0 ? r : store_write(s, &b, NULL, NULL);
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
	    ingest_file(o.ingest, (const u8 *)text, sizeof(text) - 1, &f, &d) ||
	    add_spans(o.store) < 0) {
		fprintf(stderr, "no store: %s\n", d.text);
		abort();
	}
	atexit(remove_directory);
	return a;
}

static const char *lookup(const struct net_request *r, bool header, const char *name, size_t i)
{
	struct question *q = r->private;
	static char first[64];
	size_t n = name ? strlen(name) : 0;

	if (!name && i + 2 >= q->n)
		return NULL;
	if (!name) {
		snprintf(first, sizeof(first), "%.*s", (int)strcspn(q->line[i + 2], "="),
			 q->line[i + 2]);
		return first;
	}
	for (size_t k = 2; k < q->n && !header; k++)
		if (!strncmp(q->line[k], name, n) && q->line[k][n] == '=' && i-- == 0)
			return q->line[k] + n + 1;
	return NULL;
}

/* Returns what follows the empty line, or NULL. */
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

#define READER_BYTES (2ULL << 20) /* SQLite's for a connection, see sq_reader_get() */

static void ask_with_little(struct api *api, const struct net_request *r, u64 limit)
{
	struct quota q = {.limits.bytes = limit};
	struct net_response ret = {};

	quota_begin(&q);
	api_http(api, r, &ret);
	quota_end(&q);
	str_deinit(&ret.body);
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
					.role = NET_ROLE_READ, /* changes nothing */
					.peer = "127.0.0.1",
					.lookup = lookup,
					.private = &q};

		*path = '\0';
		for (u64 limit = 256 + size; limit < 4u << 20; limit *= 2)
			ask_with_little(api, &r, READER_BYTES + limit);
		api_http(api, &r, &ret);
		if (ret.status < 200 || ret.status > 599 || (ret.status >= 400 && !ret.body.n))
			abort();
	}
	str_deinit(&ret.body);
	for (size_t i = 0; i < q.n; i++)
		free(q.line[i]);
	return 0;
}
