/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/push.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "cli/cli.h"
#include "elf/elf.h"
#include "http/http.h"
#include "symbol/debugfile.h"

#define MAX_ANSWER_BYTES (64u << 20)
#define CONNECT_MS 10000L
#define SILENCE_S 60L

struct push_client {
	struct push_options o; /* strings are borrowed */
	CURL *easy;	       /* owned */
	struct curl_slist *headers, *upload_headers;
	struct str answer;
	char error[CURL_ERROR_SIZE];
	struct map done; /* keys: hashes of build-id and best section of files sent */
	struct push_stats stats;
};

struct sending {
	const struct elf_file *f;
	u64 at;
};

static size_t on_answer(char *data, size_t size, size_t n, void *arg)
{
	struct push_client *c = arg;

	if (c->answer.n + size * n > MAX_ANSWER_BYTES)
		return 0;
	return str_append(&c->answer, data, size * n) < 0 ? 0 : size * n;
}

static size_t on_read(char *buf, size_t size, size_t n, void *arg)
{
	struct sending *s = arg;
	u64 left = s->f->size - s->at;
	ssize_t got;

	do
		got = pread(s->f->fd, buf, MIN((u64)size * n, left), (off_t)s->at);
	while (got < 0 && errno == EINTR);
	if (got < 0)
		return CURL_READFUNC_ABORT;
	s->at += (u64)got;
	return (size_t)got;
}

static int set_headers(struct push_client *c)
{
	_cleanup_str_ struct str bearer = {};
	int r = 0;

	if (c->o.token) {
		str_printf(&bearer, "Bearer %s", c->o.token);
		r = http_client_header(&c->headers, "Authorization", str_get(&bearer));
		if (r == 0)
			r = http_client_header(&c->upload_headers, "Authorization",
					       str_get(&bearer));
	}
	return r < 0 ? r
		     : http_client_header(&c->upload_headers, "Content-Type",
					  "application/octet-stream");
}

static int open_handle(struct push_client *c)
{
	struct http_client_options client = {
		.connect_ms = CONNECT_MS,
		.ca = c->o.ca,
		.error = c->error,
		.body = on_answer,
		.arg = c,
	};
	int r = http_client_open(&client, &c->easy);

	if (r < 0)
		return r;
	if (curl_easy_setopt(c->easy, CURLOPT_LOW_SPEED_LIMIT, 1L) != CURLE_OK ||
	    curl_easy_setopt(c->easy, CURLOPT_LOW_SPEED_TIME, SILENCE_S) != CURLE_OK)
		return -EINVAL;
	return 0;
}

int push_client_create(const struct push_options *o, struct push_client **ret)
{
	struct push_client *c = calloc(1, sizeof(*c));

	if (!c)
		return cli_error(1, "out of memory");
	c->o = *o;
	if (set_headers(c) < 0 || open_handle(c) < 0) {
		push_client_destroy(c);
		return cli_error(1, "symbols: cannot prepare a connection");
	}
	*ret = c;
	return 0;
}

void push_client_destroy(struct push_client *c)
{
	if (!c)
		return;
	curl_easy_cleanup(c->easy);
	curl_slist_free_all(c->headers);
	curl_slist_free_all(c->upload_headers);
	str_deinit(&c->answer);
	map_deinit(&c->done);
	free(c);
}

struct push_stats push_stats(const struct push_client *c)
{
	return c->stats;
}

/* ---- requests ---- */

/* The server's error: the message of its JSON, or its text. */
static const char *reason(const struct push_client *c, json_t **ret_owner)
{
	const char *text;

	*ret_owner = json_loadb(str_get(&c->answer), c->answer.n, 0, NULL);
	text = json_string_value(json_object_get(*ret_owner, "message"));
	return text ? text : str_get(&c->answer);
}

static int report_failure(struct push_client *c, CURLcode code, long status)
{
	json_t *owner = NULL;
	const char *text;

	if (code == CURLE_COULDNT_CONNECT || code == CURLE_COULDNT_RESOLVE_HOST)
		return cli_error(
			1, "symbols: cannot reach %s: %s; give the server's URL with --server",
			c->o.server, http_client_error(c->error, code));
	if (code != CURLE_OK && !status)
		return cli_error(1, "symbols: %s: %s", c->o.server,
				 http_client_error(c->error, code));
	text = reason(c, &owner);
	(void)cli_error(1, "symbols: %s answered: %.*s (HTTP %ld)", c->o.server,
			(int)MIN(strcspn(text, "\r\n"), (size_t)400), text, status);
	json_decref(owner);
	return 1;
}

/*
 * POSTs the file `f`, or GETs if it is NULL. Returns the HTTP status, or 0 after it printed an
 * error.
 */
static long request(struct push_client *c, const char *path, const struct elf_file *f)
{
	_cleanup_str_ struct str url = {};
	struct sending s = {.f = f};
	size_t n = strlen(c->o.server);
	long status = 0;
	bool ok = true;
	CURLcode code;

	while (n && c->o.server[n - 1] == '/')
		n--;
	str_printf(&url, "%.*s/api/v1/symbols%s", (int)n, c->o.server, path);
	str_clear(&c->answer);
	c->error[0] = '\0';
#define SET(option, value) ok = ok && curl_easy_setopt(c->easy, option, value) == CURLE_OK
	SET(CURLOPT_URL, str_get(&url));
	if (f) {
		SET(CURLOPT_POST, 1L);
		SET(CURLOPT_POSTFIELDS, NULL);
		SET(CURLOPT_READFUNCTION, on_read);
		SET(CURLOPT_READDATA, &s);
		SET(CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)f->size);
	} else {
		SET(CURLOPT_HTTPGET, 1L);
	}
	SET(CURLOPT_HTTPHEADER, f ? c->upload_headers : c->headers);
#undef SET
	code = ok && !url.failed ? curl_easy_perform(c->easy) : CURLE_OUT_OF_MEMORY;
	curl_easy_getinfo(c->easy, CURLINFO_RESPONSE_CODE, &status);
	/*
	 * A server that refuses an upload may close the connection before it read all: its answer
	 * counts.
	 */
	if (status >= 200 && (code == CURLE_OK || status >= 400))
		return status;
	report_failure(c, code, 0);
	return 0;
}

int push_get(struct push_client *c, const char *path, struct str *ret)
{
	long status = request(c, path, NULL);

	if (status != 200)
		return status ? report_failure(c, CURLE_OK, status) : 1;
	str_append(ret, c->answer.data, c->answer.n);
	return 0;
}

/* ---- what to send ---- */

static bool has(struct elf_file *f, const char *section)
{
	struct elf_section s;

	return elf_file_section(f, section, &s, NULL) == 0 && s.type != SHT_NOBITS && s.size;
}

static const char *best_of(struct elf_file *f)
{
	static const char *const sources[] = {".debug_info", ".gopclntab", ".data.rel.ro.gopclntab",
					      ".symtab", ".gnu_debugdata"};

	for (size_t i = 0; i < ARRAY_SIZE(sources); i++)
		if (has(f, sources[i]))
			return sources[i];
	return NULL;
}

/* Returns 1 if the server has symbols that are as good. */
static int is_known(struct push_client *c, const char *id, const char *best)
{
	char path[2 * ELF_MAX_BUILD_ID + 2];
	const char *there;
	json_t *answer;
	long status;
	int known;

	if (c->o.force)
		return 0;
	snprintf(path, sizeof(path), "/%s", id);
	status = request(c, path, NULL);
	if (status == 404)
		return 0;
	if (status != 200)
		return status ? -report_failure(c, CURLE_OK, status) : -1;
	answer = json_loadb(str_get(&c->answer), c->answer.n, 0, NULL);
	there = json_string_value(json_object_get(answer, "has"));
	known = there && (!strcmp(there, ".debug_info") || !strcmp(there, best));
	json_decref(answer);
	return known;
}

/* Processes share libraries, and a directory may hold a program both with and without symbols. */
static bool was_sent(struct push_client *c, const char *id, const char *best)
{
	u64 key = hash_bytes(id, strlen(id)) ^ (best ? hash_bytes(best, strlen(best)) : 0);

	if (map_get(&c->done, key >> 1))
		return true;
	(void)map_put(&c->done, key >> 1, 1);
	return false;
}

static int send_elf(struct push_client *c, struct elf_file *f, const char *path)
{
	char id[2 * ELF_MAX_BUILD_ID + 1], where[2 * ELF_MAX_BUILD_ID + 2];
	const char *best = best_of(f);
	long status;
	int r;

	text_hex(f->build_id, f->build_id_n, id);
	if (was_sent(c, id, best))
		return 0;
	r = is_known(c, id, best ? best : "");
	if (r) {
		c->stats.known += r > 0;
		c->stats.failed += r < 0;
		return r < 0;
	}
	snprintf(where, sizeof(where), "/%s", id);
	status = request(c, where, f);
	if (status != 200) {
		c->stats.failed++;
		return status ? report_failure(c, CURLE_OK, status) : 1;
	}
	c->stats.sent++;
	c->stats.bytes += f->size;
	printf("%s %s (%.1f MiB)\n", id, path, (double)f->size / (1 << 20));
	return 0;
}

/* Sends the file itself, or its debug file; before it, the dwz file that it refers to. */
static int send_best(struct push_client *c, struct elf_file *f, const char *path, bool chosen)
{
	const struct debugfile_place place = {.root_fd = -1, .path = path};
	_cleanup_elf_file_ struct elf_file *debug = NULL, *alt = NULL;
	_cleanup_free_ char *debug_path = NULL;
	struct elf_file *best = f;
	int r = 0;

	if (!has(f, ".debug_info") && debugfile_find(f, &place, &debug, &debug_path) == 0 && debug)
		best = debug;
	if (!best_of(best)) {
		c->stats.useless++;
		return chosen ? cli_error(1,
					  "symbols: %s is stripped, and its debug file is not "
					  "on this machine",
					  path)
			      : 0;
	}
	if (debugfile_alt(best, &place, debug ? debug_path : path, &alt) == 0)
		r = send_elf(c, alt, "(shared by dwz)");
	return r ? r : send_elf(c, best, debug ? debug_path : path);
}

int push_file(struct push_client *c, int fd, const char *path, bool chosen)
{
	_cleanup_elf_file_ struct elf_file *f = NULL;
	struct diag d = {};
	int r = elf_file_open(fd, &d, &f);

	if (r < 0 || !f->build_id_n) {
		c->stats.useless++;
		if (!chosen)
			return 0;
		return r < 0 ? cli_error(1, "symbols: %s: not an ELF file of x86-64 or arm64", path)
			     : cli_error(1, "symbols: %s has no build-id: link it with --build-id",
					 path);
	}
	return send_best(c, f, path, chosen);
}
