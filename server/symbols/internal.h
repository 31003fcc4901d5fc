/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of server/symbols share. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "base/map.h"
#include "server/symbols/symbols.h"

#define SYMSTORE_DEFAULT_BYTES (4ULL << 30)
#define SYMSTORE_MAX_UPLOADS 4

/* A build-id of which something is known. */
struct symstore_entry {
	struct symstore_file file;
	u32 rank;		     /* of file.has */
	char alt[SYMSTORE_ID_BYTES]; /* the dwz file that it needs, or "" */
	bool wanted;		     /* frames may be there to be named */
	bool naming, fetching;	     /* a thread is at it */
	u32 version;		     /* counts the files that it had */
	u64 next_ms;		     /* monotonic: not before */
	u64 used_ms;		     /* since the epoch: last used, or seen in frames */
	u32 failures;		     /* of fetching, in a row */
	/* Addresses that the file has no name for. */
	struct map nameless;
};

struct symstore {
	struct symstore_options o; /* strings are owned */
	int dir_fd;		   /* owned */
	pthread_t threads[2];
	u32 n_threads;
	atomic_bool stopping;
	atomic_uint uploads, names; /* at work; given to files that come in */
	pthread_mutex_t lock;	    /* of what follows, and of the files in the directory */
	pthread_cond_t wake;
	struct map by_id; /* hash of the build-id → struct symstore_entry *, owned */
	u64 bytes;	  /* of files that are here */
	u32 n_files;	  /* these */
	u64 n_nameless;	  /* addresses in all entries' maps */
	u64 named;	  /* frames */
};

/* ---- check.c: what a file is worth ---- */

struct symstore_kind {
	const char *has;	     /* static */
	u32 rank;		     /* more is better */
	char alt[SYMSTORE_ID_BYTES]; /* build-id of the dwz file that it needs, or "" */
};

/* The file must be of this build-id, whole, and have names. */
int symstore_check(int fd, const char *build_id, u64 max_bytes, struct symstore_kind *ret,
		   struct diag *reterr_diag);
/* Lower-case hex of 2 to ELF_MAX_BUILD_ID bytes. */
bool symstore_is_build_id(const char *text);
/* usr/lib/debug/.build-id/XX/YYYY.debug */
void symstore_path(const char *build_id, char ret[256]);

/* ---- symbols.c; the first three under the lock ---- */

/* NULL when nothing is known of it. */
struct symstore_entry *symstore_find(struct symstore *s, const char *build_id);
/* Puts a map in the place of the entry's; all of them together are bounded. */
void symstore_set_nameless(struct symstore *s, struct symstore_entry *e, struct map *take);
/* Frames without names are there. */
void symstore_want(struct symstore *s, const char *build_id, const char *path);

/* Moves a checked file to its place. As symstore_upload_end(). */
int symstore_keep(struct symstore *s, const char *build_id, const char *from, int fd,
		  const struct symstore_kind *k, struct diag *reterr_diag);

/* ---- work.c ---- */

int symstore_start(struct symstore *s);

/* ---- fetch.c: a debuginfod client ---- */

/* -ENOENT: nobody has it. On the thread for that. */
int symstore_fetch(struct symstore *s, const char *build_id, struct diag *reterr_diag);
