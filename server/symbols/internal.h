/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of server/symbols. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "base/map.h"
#include "server/symbols/symbols.h"

#define SYMSTORE_DEFAULT_BYTES (4ULL << 30)
#define SYMSTORE_MAX_UPLOADS 4
#define SYMSTORE_MAX_FILES 4096

/* What the store says of the file of a build-id (shared.c). */
struct symstore_shared {
	u64 changed_ms; /* 0 = nothing */
	u64 file;	/* its number; 0 = the store has no file */
	u64 bytes, used_ms;
	const char *has; /* static */
	u32 rank;
	bool unnamed; /* names from earlier files are wrong */
};

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
	u64 used_ms;  /* since the epoch: when the file was last used or frames needed it */
	u32 failures; /* of fetching, in a row */
	struct symstore_shared shared;
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
	u64 n_nameless;		   /* in the maps of all entries */
	u64 named;		   /* frames */
	bool is_shared;		   /* several servers use the store; constant */
	bool synced;		   /* the store has told of its files */
	bool old_shared;	   /* the fetcher's: files of before are in the store */
	pthread_mutex_t sync_lock; /* of n_rows; taken before `lock` */
	u64 n_rows;		   /* for store_find_symbols() */
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
/* Returns the rank of a source of names, 0 for an unknown one; *ret_has is its static name. */
u32 symstore_rank(const char *source, const char **ret_has);
/* Tells whether the text is lower-case hex of 2 to ELF_MAX_BUILD_ID bytes. */
bool symstore_is_build_id(const char *text);
/* usr/lib/debug/.build-id/XX/YYYY.debug */
void symstore_path(const char *build_id, char ret[256]);

/* ---- symbols.c; all but the last two under the lock ---- */

/* Returns NULL when there is no entry. */
struct symstore_entry *symstore_find(struct symstore *s, const char *build_id);
/* Adds the entry if there is none; NULL without memory. */
struct symstore_entry *symstore_entry_of(struct symstore *s, const char *build_id);
/* Removes the entry's file. */
void symstore_drop_file(struct symstore *s, struct symstore_entry *e);
/* Replaces the entry's map; drops the new one if all maps together get too large. */
void symstore_set_nameless(struct symstore *s, struct symstore_entry *e, struct map *take);
/* Notes that the store has unnamed frames of the binary. */
void symstore_want(struct symstore *s, const char *build_id, const char *path);

/* Sets the mtime of a file to the time of its row. */
void symstore_stamp(int fd, u64 changed_ms);
/*
 * Moves a checked file to its place. Returns the same as symstore_upload_end(). replace: even if
 * the file there is better, and the names from that file go. shared: what the store says of the
 * file, which then takes the place of any other; or NULL.
 */
int symstore_keep(struct symstore *s, const char *build_id, const char *from, int fd,
		  const struct symstore_kind *k, bool replace, const struct symstore_shared *shared,
		  struct diag *reterr_diag);

/* ---- upload.c ---- */

/* As symstore_upload_end(), for a file that came from the store. */
int symstore_upload_end_fetched(struct symstore_upload *u, const struct symstore_shared *from,
				struct diag *reterr_diag);

/* ---- shared.c; without the lock ---- */

/* Learns what became of files at other servers. 0 at once if no other server uses the store. */
int symstore_sync(struct symstore *s, struct diag *reterr_diag);
/*
 * Gives a checked file to the store. 1: *ret is what the store says of the file now; 0: the file
 * that the store has is as good or better.
 */
int symstore_share(struct symstore *s, const char *build_id, int fd, const struct symstore_kind *k,
		   bool replace, const struct symstore_who *who, struct symstore_shared *ret,
		   struct diag *reterr_diag);
/* Tells the store that the file is removed. -ENOENT: neither store nor directory has a file. */
int symstore_share_removal(struct symstore *s, const char *build_id, const struct symstore_who *who,
			   struct diag *reterr_diag);
/* Fetches the file from the store. Runs on the fetcher's thread. */
int symstore_fetch_shared(struct symstore *s, const char *build_id, struct diag *reterr_diag);
/* Learns of other servers, and tells the store of files that this server uses. The fetcher's. */
int symstore_keep_shared(struct symstore *s, struct diag *reterr_diag);

/* ---- work.c ---- */

int symstore_start(struct symstore *s);

/* ---- fetch.c: a debuginfod client ---- */

/* Runs on the fetcher's thread. -ENOENT: no server has the file. */
int symstore_fetch(struct symstore *s, const char *build_id, struct diag *reterr_diag);
