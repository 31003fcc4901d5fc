/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client of the server's symbol API: one libcurl handle. For a binary without debug information
 * push_file() sends its debug file, if a package installed one; a dwz file that several debug files
 * share goes first. One thread.
 */
#pragma once

#include "base/map.h"
#include "base/str.h"
#include "base/types.h"

struct push_client;

struct push_options {
	const char *server; /* http://HOST:PORT */
	const char *token;  /* or NULL */
	const char *ca;	    /* PEM file; NULL: the system's CAs */
	bool force;	    /* also send files that the server has */
};

/* Functions that return int return an exit status; not 0 after they printed an error. */
int push_client_create(const struct push_options *o, struct push_client **ret);
void push_client_destroy(struct push_client *c);

/* GETs a path below /api/v1/symbols and appends the body of the answer. */
int push_get(struct push_client *c, const char *path, struct str *ret);
/*
 * Sends the file that has a binary's symbols. `fd` is taken; `path` is the file's path, used to
 * find its debug file and in messages. `chosen`: the user named this file, so that it is an error
 * if it has no symbols.
 */
int push_file(struct push_client *c, int fd, const char *path, bool chosen);

struct push_stats {
	u64 sent, bytes, known, useless, failed;
};

struct push_stats push_stats(const struct push_client *c);
