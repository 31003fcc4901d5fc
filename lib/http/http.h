/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The common part of culprit's HTTP clients, on libcurl. A client is a libcurl handle. Its owner
 * sets the other options (URL, method, timeouts) and performs the requests.
 */
#pragma once

#include <curl/curl.h>

#include "base/diag.h"
#include "base/str.h"
#include "base/types.h"

/* Collects the body of an answer. The owner of the client clears it before each request. */
struct http_answer {
	struct str text; /* owned by whoever owns the struct */
	size_t max_bytes;
	bool too_large; /* longer than max_bytes: the transfer ended with an error */
};

struct http_client_options {
	long connect_ms;
	/* PEM files, or NULL: the system's CAs, no client certificate. Copied. */
	const char *ca, *cert, *key;
	char *error; /* CURL_ERROR_SIZE bytes, valid as long as the handle */
	/* Takes the body of an answer, valid as long as the handle; NULL: body() takes it. */
	struct http_answer *answer;
	/* Takes a part of the answer; returns the bytes taken, fewer than size * n to stop. */
	size_t (*body)(char *data, size_t size, size_t n, void *arg);
	void *arg;
};

/*
 * Opens a client for http and https only, redirects included, with HTTP/1.1 and TLS 1.2 or newer.
 * Any thread. -ENOMEM, or -EINVAL if libcurl refuses an option. Close it with curl_easy_cleanup().
 */
int http_client_open(const struct http_client_options *o, CURL **ret);
/* Adds a header to a list. An empty value is sent as such; NULL: libcurl leaves this header out. */
int http_client_header(struct curl_slist **list, const char *name, const char *value);
/* Adds the header that shows a token; none if `token` is NULL. Returns 0 or -ENOMEM. */
int http_client_bearer(struct curl_slist **list, const char *token);
/*
 * Reads a token, the first word of a file (owned by the caller). Any thread. -ENODATA if the file
 * is empty.
 */
int http_client_token(const char *path, struct diag *reterr_diag, char **ret);
/* Describes the error of the last request. Borrowed from `error`, or static. */
const char *http_client_error(const char *error, CURLcode code);
