/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client of the server's symbols: one libcurl handle, and which file to send for a binary. For a
 * binary without debug information its debug file is looked for where packages put them; the dwz
 * file that it shares with others goes first.
 */
#pragma once

#include "base/map.h"
#include "base/str.h"
#include "base/types.h"

struct push_client;

struct push_options {
	const char *server; /* http://HOST:PORT */
	const char *token;  /* or NULL */
	const char *ca;	    /* PEM; NULL: the system's */
	bool force;	    /* also what the server has already */
};

/* Exit statuses; not 0 after a line to the user. */
int push_client_create(const struct push_options *o, struct push_client **ret);
void push_client_destroy(struct push_client *c);

/* GET of a path below /api/v1/symbols. 0 and the answer's body. */
int push_get(struct push_client *c, const char *path, struct str *ret);
/*
 * Sends what names a binary. `fd` is taken; `path` is where it is, for its debug file and messages.
 * `chosen`: the user named it, so that a file that is nothing to send is an error.
 */
int push_file(struct push_client *c, int fd, const char *path, bool chosen);

struct push_stats {
	u64 sent, bytes, known, useless, failed;
};

struct push_stats push_stats(const struct push_client *c);
