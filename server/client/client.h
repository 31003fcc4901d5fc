/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client of the server's API: asks, changes, and uploads the symbols of binaries. For a binary
 * without debug information it sends the debug file, if a package installed one, and before it the
 * dwz file that debug files share. A client has one libcurl handle and belongs to one thread.
 *
 * Functions that return int return 0 or a negative errno, and set the text of `reterr_diag`.
 */
#pragma once

#include "base/diag.h"
#include "base/str.h"
#include "base/types.h"

struct client;

struct client_options {
	const char *server; /* http://HOST:PORT */
	const char *token;  /* NULL: none */
	const char *ca;	    /* PEM file; NULL: the system's CAs */
	const char *prefix; /* of all paths; NULL: /api/v1 */
	bool force;	    /* also send files that the server has */
	bool replace;	    /* files replace those on the server, and the names that those gave */
	/* Called after each file that was sent. */
	void (*sent)(const char *build_id, const char *path, u64 bytes);
};

struct client_stats {
	u64 sent, bytes;
	u64 known;   /* files that the server already had */
	u64 useless; /* files without symbols or without a build-id */
	u64 failed;
};

/* Strings are borrowed until client_destroy(). */
int client_create(const struct client_options *o, struct diag *reterr_diag, struct client **ret);
void client_destroy(struct client *c);
/* GETs a path below the prefix and appends the body of the answer. -EIO if it is not 200. */
int client_get(struct client *c, const char *path, struct diag *reterr_diag, struct str *ret);
/* The same with another method, and with JSON as body; `json` NULL: none. */
int client_send(struct client *c, const char *method, const char *path, const char *json,
		struct diag *reterr_diag, struct str *ret);
/*
 * Sends the file that has a binary's symbols, unless the server has it or this client has sent it.
 * `fd` is taken; `path` is the path of the binary, used to find its debug file and in messages.
 * -ENODATA: the file has no symbols, or no build-id, or is not an ELF file.
 */
int client_push(struct client *c, int fd, const char *path, struct diag *reterr_diag);
struct client_stats client_stats(const struct client *c);
