/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A folder of files that only save work: each can be missing, damaged or deleted at any time.
 *
 * Nobody but the user of this process may write to the folder or to a file that is read: both must
 * belong to the user, and neither group nor others may write. Nobody but root and the user may
 * replace a folder above. A folder where this does not hold is refused, a file where it does not
 * hold is not there. A file is written under a temporary name and renamed, so that a reader has the
 * old file or the new one, whole; there is no fsync(), so after a loss of power a file can have any
 * content, which the checksum of its format finds.
 *
 * Several processes may use a folder at a time; in one process one thread per struct cachedir.
 */
#pragma once

#include "base/cleanup.h"
#include "base/types.h"

#define CACHEDIR_NAME_BYTES 240 /* of a file's name, with its suffix and a NUL */

struct cachedir;

struct cachedir_options {
	const char *path;   /* absolute; created, with mode 0700, if it does not exist */
	const char *suffix; /* of all names: ".sym"; static text */
	/* Above either, the least recently used files are deleted. 0: no limit. */
	u64 max_bytes;
	u32 max_files;
};

/* -EPERM: others may write to it; -ENOMEM, or the error of a system call. */
int cachedir_open(const struct cachedir_options *o, struct cachedir **ret);
void cachedir_close(struct cachedir *c);
DEFINE_CLEANUP(cachedir, struct cachedir *, cachedir_close)
#define _cleanup_cachedir_ _cleanup_(cachedir)

/*
 * Opens the file of a name, which has no suffix here, for reading, and marks it as used. Returns
 * its descriptor. -ENOENT: there is none that may be trusted.
 */
int cachedir_find(struct cachedir *c, const char *name, u64 *ret_size);

/* A file that is being written. */
struct cachedir_new {
	int fd; /* owned, for reading and writing */
	char temporary[CACHEDIR_NAME_BYTES + 16];
};
int cachedir_begin(struct cachedir *c, const char *name, struct cachedir_new *ret);
/* Gives the file its name. Afterwards, and after a failure, only the descriptor is left of it. */
int cachedir_commit(struct cachedir *c, const char *name, struct cachedir_new *f);
/* Deletes the file and closes the descriptor. Accepts a file without a descriptor. */
void cachedir_abandon(struct cachedir *c, struct cachedir_new *f);
/* Writes a whole file. */
int cachedir_write(struct cachedir *c, const char *name, const void *data, size_t n);
/*
 * The bytes and number of the files with a suffix in a folder. -ENOENT: there is none; -EPERM, as
 * above.
 */
int cachedir_usage(const char *path, const char *suffix, u64 *ret_bytes, u32 *ret_files);
/* Deletes the least recently used files above the limits now; else it is done now and then. */
void cachedir_keep_bound(struct cachedir *c);
