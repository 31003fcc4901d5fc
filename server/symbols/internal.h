/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of server/symbols. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "base/map.h"
#include "server/symbols/symbols.h"

#define SYMSTORE_DEFAULT_BYTES (4ULL << 30)
#define SYMSTORE_MAX_UPLOADS 4

/* A build-id that has a file or unnamed frames. */
struct symstore_entry {
	struct symstore_file file;
	u32 rank;		     /* symstore_kind.rank of file.has */
	char alt[SYMSTORE_ID_BYTES]; /* build-id of the dwz file that the file needs, or "" */
	bool wanted;		     /* the store may have frames to be named */
	bool unname;		     /* take the names given so far away first */
	bool naming, fetching;	     /* a thread names frames with the file, or fetches it */
	u32 version;		     /* number of files that the entry has had */
	u64 next_ms;		     /* monotonic; no work on the entry before this time */
	u64 used_ms;	  /* since the epoch: when the file was last used or frames needed it */
	u32 failures;	  /* of fetching, in a row */
	char damage[128]; /* what is wrong in the file, once names were read from it */
	/* Addresses for which the file has no name. */
	struct map nameless;
};

struct symstore {
	struct symstore_options o; /* strings are owned */
	int dir_fd;		   /* owned */
	pthread_t threads[2];
	u32 n_threads;
	atomic_bool stopping;
	atomic_uint uploads;  /* uploads in progress */
	atomic_uint names;    /* number of names given to files in incoming/ */
	pthread_mutex_t lock; /* of the members below and the files in the directory */
	pthread_cond_t wake;
	struct map by_id; /* hash of the build-id → struct symstore_entry *, owned */
	u64 bytes;	  /* of all files */
	u32 n_files;
	u64 n_nameless; /* in the maps of all entries */
	u64 named;	/* frames */
};

/* ---- check.c ---- */

struct symstore_kind {
	const char *has;	     /* static */
	u32 rank;		     /* more is better */
	char alt[SYMSTORE_ID_BYTES]; /* build-id of the dwz file that the file needs, or "" */
};

/* Refuses a file that does not have this build-id, is cut off, or has no names. */
int symstore_check(int fd, const char *build_id, u64 max_bytes, struct symstore_kind *ret,
		   struct diag *reterr_diag);
/* Tells whether the text is lower-case hex of 2 to ELF_MAX_BUILD_ID bytes. */
bool symstore_is_build_id(const char *text);
/* usr/lib/debug/.build-id/XX/YYYY.debug */
void symstore_path(const char *build_id, char ret[256]);

/* ---- symbols.c; the first three under the lock ---- */

/* Returns NULL when there is no entry. */
struct symstore_entry *symstore_find(struct symstore *s, const char *build_id);
/* Replaces the entry's map; drops the new one if all maps together get too large. */
void symstore_set_nameless(struct symstore *s, struct symstore_entry *e, struct map *take);
/* Notes that the store has unnamed frames of the binary. */
void symstore_want(struct symstore *s, const char *build_id, const char *path);

/*
 * Moves a checked file to its place. Returns the same as symstore_upload_end(). replace: even if
 * the file there is better, and the names from that file go.
 */
int symstore_keep(struct symstore *s, const char *build_id, const char *from, int fd,
		  const struct symstore_kind *k, bool replace, struct diag *reterr_diag);

/* ---- work.c ---- */

int symstore_start(struct symstore *s);

/* ---- fetch.c: a debuginfod client ---- */

/* Runs on the fetcher's thread. -ENOENT: no server has the file. */
int symstore_fetch(struct symstore *s, const char *build_id, struct diag *reterr_diag);
