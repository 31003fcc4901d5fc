/* SPDX-License-Identifier: Apache-2.0 */
#include "server/client/client.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/map.h"
#include "base/text.h"
#include "elf/elf.h"
#include "http/http.h"
#include "symbol/debugfile.h"

#define MAX_ANSWER_BYTES (64u << 20)
#define MAX_REASON_BYTES 160
#define CONNECT_MS 10000L
#define SILENCE_S 60L

struct client {
	struct client_options o; /* strings are borrowed */
	CURL *easy;		 /* owned */
	struct curl_slist *headers, *upload_headers, *json_headers;
	struct http_answer answer;
	char error[CURL_ERROR_SIZE];
	struct map done; /* keys: for each sent file, the hash of its build-id and best section */
	struct client_stats stats;
};

/* An upload in progress. */
struct sending {
	const struct elf_file *f;
	u64 at;
};

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

static int set_headers(struct client *c)
{
	int r = http_client_bearer(&c->headers, c->o.token);

	if (r == 0)
		r = http_client_bearer(&c->upload_headers, c->o.token);
	if (r == 0)
		r = http_client_bearer(&c->json_headers, c->o.token);
	if (r == 0)
		r = http_client_header(&c->json_headers, "Content-Type", "application/json");
	return r < 0 ? r
		     : http_client_header(&c->upload_headers, "Content-Type",
					  "application/octet-stream");
}

static int open_handle(struct client *c)
{
	struct http_client_options client = {
		.connect_ms = CONNECT_MS,
		.ca = c->o.ca,
		.error = c->error,
		.answer = &c->answer,
	};
	int r = http_client_open(&client, &c->easy);

	if (r < 0)
		return r;
	if (curl_easy_setopt(c->easy, CURLOPT_LOW_SPEED_LIMIT, 1L) != CURLE_OK ||
	    curl_easy_setopt(c->easy, CURLOPT_LOW_SPEED_TIME, SILENCE_S) != CURLE_OK)
		return -EINVAL;
	return 0;
}

int client_create(const struct client_options *o, struct diag *reterr_diag, struct client **ret)
{
	struct client *c = calloc(1, sizeof(*c));
	int r;

	if (!c)
		return diag_set(reterr_diag, -ENOMEM, "out of memory");
	c->o = *o;
	c->answer.max_bytes = MAX_ANSWER_BYTES;
	r = set_headers(c);
	if (r == 0)
		r = open_handle(c);
	if (r < 0) {
		client_destroy(c);
		return diag_set(reterr_diag, r, "cannot prepare a connection");
	}
	*ret = c;
	return 0;
}

void client_destroy(struct client *c)
{
	if (!c)
		return;
	curl_easy_cleanup(c->easy);
	curl_slist_free_all(c->headers);
	curl_slist_free_all(c->upload_headers);
	curl_slist_free_all(c->json_headers);
	str_deinit(&c->answer.text);
	map_deinit(&c->done);
	free(c);
}

struct client_stats client_stats(const struct client *c)
{
	return c->stats;
}

/* ---- requests ---- */

/* Sets the server's error from the message in the JSON, or from the text. Returns -EIO. */
static int answer_error(const struct client *c, long status, struct diag *reterr_diag)
{
	const char *answer = str_get(&c->answer.text), *text;
	json_t *json = json_loadb(answer, c->answer.text.n, 0, NULL);

	text = json_string_value(json_object_get(json, "message"));
	if (!text)
		text = answer;
	diag_set(reterr_diag, -EIO, "%s answered: %.*s (HTTP %ld)", c->o.server,
		 (int)MIN(strcspn(text, "\r\n"), (size_t)MAX_REASON_BYTES), text, status);
	json_decref(json);
	return -EIO;
}

static int transfer_error(const struct client *c, CURLcode code, struct diag *reterr_diag)
{
	const char *text = http_client_error(c->error, code);

	if (code == CURLE_COULDNT_CONNECT || code == CURLE_COULDNT_RESOLVE_HOST)
		return diag_set(reterr_diag, -EIO,
				"cannot reach %s: %s; give the server's URL with --server",
				c->o.server, text);
	return diag_set(reterr_diag, -EIO, "%s: %s", c->o.server, text);
}

/* Performs the request that the handle's other options describe: the HTTP status, or an errno. */
static long perform(struct client *c, const char *path, bool ok, struct diag *reterr_diag)
{
	_cleanup_str_ struct str url = {};
	size_t n = strlen(c->o.server);
	long status = 0;
	CURLcode code;

	while (n && c->o.server[n - 1] == '/')
		n--;
	str_printf(&url, "%.*s%s%s", (int)n, c->o.server, c->o.prefix ? c->o.prefix : "/api/v1",
		   path);
	str_clear(&c->answer.text);
	c->error[0] = '\0';
	ok = ok && !url.failed && curl_easy_setopt(c->easy, CURLOPT_URL, str_get(&url)) == CURLE_OK;
	code = ok ? curl_easy_perform(c->easy) : CURLE_OUT_OF_MEMORY;
	curl_easy_getinfo(c->easy, CURLINFO_RESPONSE_CODE, &status);
	/*
	 * A server that refuses an upload may close the connection before it has read all of it.
	 * Its answer still counts.
	 */
	if (status >= 200 && (code == CURLE_OK || status >= 400))
		return status;
	return transfer_error(c, code, reterr_diag);
}

#define SET(option, value) ok = ok && curl_easy_setopt(c->easy, option, value) == CURLE_OK

/* POSTs the file `f`, or GETs if it is NULL. Returns the HTTP status, or a negative errno. */
static long request(struct client *c, const char *path, const struct elf_file *f,
		    struct diag *reterr_diag)
{
	struct sending s = {.f = f};
	bool ok = true;

	SET(CURLOPT_CUSTOMREQUEST, NULL);
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
	return perform(c, path, ok, reterr_diag);
}

static long send_json(struct client *c, const char *method, const char *path, const char *json,
		      struct diag *reterr_diag)
{
	bool ok = true;

	SET(CURLOPT_POST, 1L);
	SET(CURLOPT_POSTFIELDS, json ? json : "");
	SET(CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)(json ? strlen(json) : 0));
	SET(CURLOPT_CUSTOMREQUEST, method);
	SET(CURLOPT_HTTPHEADER, c->json_headers);
	return perform(c, path, ok, reterr_diag);
}
#undef SET

static int take_answer(struct client *c, long status, struct diag *reterr_diag, struct str *ret)
{
	if (status < 0)
		return (int)status;
	if (status != 200)
		return answer_error(c, status, reterr_diag);
	if (str_append(ret, c->answer.text.data, c->answer.text.n) < 0)
		return diag_set(reterr_diag, -ENOMEM, "out of memory");
	return 0;
}

int client_get(struct client *c, const char *path, struct diag *reterr_diag, struct str *ret)
{
	return take_answer(c, request(c, path, NULL, reterr_diag), reterr_diag, ret);
}

int client_send(struct client *c, const char *method, const char *path, const char *json,
		struct diag *reterr_diag, struct str *ret)
{
	return take_answer(c, send_json(c, method, path, json, reterr_diag), reterr_diag, ret);
}

/* ---- what to send ---- */

static bool has_section(struct elf_file *f, const char *section)
{
	struct elf_section s;

	return elf_file_section(f, section, &s, NULL) == 0 && s.type != SHT_NOBITS && s.size;
}

static const char *best_of(struct elf_file *f)
{
	static const char *const sources[] = {".debug_info", ".gopclntab", ".data.rel.ro.gopclntab",
					      ".symtab", ".gnu_debugdata"};

	for (size_t i = 0; i < ARRAY_SIZE(sources); i++)
		if (has_section(f, sources[i]))
			return sources[i];
	return NULL;
}

/* Returns 1 if the server has symbols at least as good as those of the section `best`. */
static int is_known(struct client *c, const char *id, const char *best, struct diag *reterr_diag)
{
	char path[2 * ELF_MAX_BUILD_ID + 16];
	const char *there;
	json_t *answer;
	long status;
	int known;

	if (c->o.force)
		return 0;
	snprintf(path, sizeof(path), "/symbols/%s", id);
	status = request(c, path, NULL, reterr_diag);
	if (status < 0)
		return (int)status;
	if (status == 404)
		return 0;
	if (status != 200)
		return answer_error(c, status, reterr_diag);
	answer = json_loadb(str_get(&c->answer.text), c->answer.text.n, 0, NULL);
	there = json_string_value(json_object_get(answer, "has"));
	known = there && (!strcmp(there, ".debug_info") || !strcmp(there, best));
	json_decref(answer);
	return known;
}

/* Processes share libraries, and a directory may hold a program both with and without symbols. */
static bool was_sent(struct client *c, const char *id, const char *best)
{
	u64 key = hash_bytes(id, strlen(id)) ^ (best ? hash_bytes(best, strlen(best)) : 0);

	if (map_get(&c->done, key >> 1))
		return true;
	(void)map_put(&c->done, key >> 1, 1);
	return false;
}

static int send_elf(struct client *c, struct elf_file *f, const char *path,
		    struct diag *reterr_diag)
{
	char id[2 * ELF_MAX_BUILD_ID + 1], where[2 * ELF_MAX_BUILD_ID + 32];
	const char *best = best_of(f);
	long status;
	int r;

	text_hex(f->build_id, f->build_id_n, id);
	if (was_sent(c, id, best))
		return 0;
	r = is_known(c, id, best ? best : "", reterr_diag);
	if (r) {
		c->stats.known += r > 0;
		c->stats.failed += r < 0;
		return MIN(r, 0);
	}
	snprintf(where, sizeof(where), "/symbols/%s%s", id, c->o.replace ? "?replace=1" : "");
	status = request(c, where, f, reterr_diag);
	if (status != 200) {
		c->stats.failed++;
		return status < 0 ? (int)status : answer_error(c, status, reterr_diag);
	}
	c->stats.sent++;
	c->stats.bytes += f->size;
	c->o.sent(id, path, f->size);
	return 0;
}

/* Sends the binary or its debug file, and before it the dwz file to which that file refers. */
static int send_best(struct client *c, struct elf_file *f, const char *path,
		     struct diag *reterr_diag)
{
	const struct debugfile_place place = {.root_fd = -1, .path = path};
	_cleanup_elf_file_ struct elf_file *debug = NULL, *alt = NULL;
	_cleanup_free_ char *debug_path = NULL;
	struct elf_file *best = f;
	int r = 0;

	if (!has_section(f, ".debug_info") && debugfile_find(f, &place, &debug, &debug_path) == 0 &&
	    debug)
		best = debug;
	if (!best_of(best)) {
		c->stats.useless++;
		return diag_set(reterr_diag, -ENODATA,
				"%s is stripped, and its debug file is not on this machine", path);
	}
	if (debugfile_alt(best, &place, debug ? debug_path : path, &alt) == 0)
		r = send_elf(c, alt, "(shared by dwz)", reterr_diag);
	return r < 0 ? r : send_elf(c, best, debug ? debug_path : path, reterr_diag);
}

int client_push(struct client *c, int fd, const char *path, struct diag *reterr_diag)
{
	_cleanup_elf_file_ struct elf_file *f = NULL;
	int r = elf_file_open(fd, NULL, &f);

	if (r == 0 && f->build_id_n)
		return send_best(c, f, path, reterr_diag);
	c->stats.useless++;
	return r < 0 ? diag_set(reterr_diag, -ENODATA, "%s: not an ELF file of x86-64 or arm64",
				path)
		     : diag_set(reterr_diag, -ENODATA,
				"%s has no build-id: link it with --build-id", path);
}
