/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Late symbols: keeps debug files by build-id, fetches missing files, and names frames.
 *
 * A file comes by an upload or from a debuginfod server. The file must be an ELF file of its
 * build-id with names of functions. The server keeps it as
 * DIR/usr/lib/debug/.build-id/XX/YYYY.debug, where lib/symbol searches with DIR as its root. So a
 * debug file finds the dwz file that it shares with others, and no other file of this machine,
 * whatever paths the debug file has.
 *
 * If several servers use the store, the store has the files, and the directory is a cache of them
 * (shared.c).
 *
 * One thread takes one file at a time, when the file is new or when frames arrived that the file
 * may name, and gives the names to store_name_frames(). Files may be hostile: lib/elf and
 * lib/symbol bound what they read, and a budget bounds the time for each file.
 */
#pragma once

#include "base/cleanup.h"
#include "base/diag.h"
#include "base/str.h"
#include "base/types.h"
#include "elf/elf.h"
#include "profile/profile.h"
#include "server/store/store.h"

struct symstore;

struct symstore_options {
	struct store *store;	     /* borrowed */
	const char *dir;	     /* created if missing */
	u64 max_bytes;		     /* of all files; 0 = 4 GiB. A single file may have a quarter */
	const char *debuginfod_urls; /* separated by commas or spaces; NULL: none */
};

#define SYMSTORE_ID_BYTES (2 * ELF_MAX_BUILD_ID + 1)

struct symstore_file {
	char build_id[SYMSTORE_ID_BYTES]; /* lower-case hex */
	char path[256];			  /* of the binary, from frames; "" = not seen yet */
	u64 bytes;			  /* 0 = there is no file */
	u64 stored_ms;			  /* since the epoch */
	const char *has;		  /* its best source of names: ".debug_info"; static */
	u64 named;			  /* frames, since the server started */
	bool waiting;			  /* the entry waits for a fetch, or for naming */
	char note[256]; /* why the file is missing or not used, what is damaged in it, or "" */
};

struct symstore_list {
	vec(struct symstore_file) files;
	u64 bytes, max_bytes;
};

int symstore_create(const struct symstore_options *o, struct diag *reterr_diag,
		    struct symstore **ret);
/* Stops the threads, at the next frame. */
void symstore_destroy(struct symstore *s);
DEFINE_CLEANUP(symstore, struct symstore *, symstore_destroy)
#define _cleanup_symstore_ _cleanup_(symstore)

/*
 * Asks for names of the unnamed frames of a profile that is now in the store. Every function from
 * here on is thread-safe.
 */
void symstore_note(struct symstore *s, const struct profile *p);
/* All files, stored and missing, sorted by build-id. */
int symstore_files(struct symstore *s, struct symstore_list *ret);
/* -ENOENT when there is no such file. */
int symstore_file(struct symstore *s, const char *build_id, struct symstore_file *ret);

/* Who changes files, for the other servers; strings are borrowed, or NULL. */
struct symstore_who {
	const char *token, *peer;
};

/* Removes a file and the names that it gave to frames. -ENOENT: there is no such file. */
int symstore_remove(struct symstore *s, const char *build_id, const struct symstore_who *who,
		    struct diag *reterr_diag);

struct symstore_stats {
	u64 files, bytes, named; /* named: frames, since the server started */
};

void symstore_stats(struct symstore *s, struct symstore_stats *ret);
u64 symstore_max_file(const struct symstore *s);

/* ---- receiving a file in parts (upload.c) ---- */

struct symstore_upload;

/*
 * -EINVAL: not a build-id. -EAGAIN: too many at once. replace: the file takes the place of any
 * other, and its names the place of names that frames have from it.
 */
int symstore_upload_begin(struct symstore *s, const char *build_id, const char *encoding,
			  bool replace, struct diag *reterr_diag, struct symstore_upload **ret);
void symstore_upload_set_who(struct symstore_upload *u, const struct symstore_who *who);
/* symstore_upload_end() reports an error. */
void symstore_upload_part(struct symstore_upload *u, const void *data, size_t n);
/*
 * Checks the file and keeps it. 1: kept; 0: the stored file is as good or better. -ENOTSUP: another
 * architecture; -EFBIG: too large; -EINVAL: any other fault of the file.
 */
int symstore_upload_end(struct symstore_upload *u, struct diag *reterr_diag);
void symstore_upload_free(struct symstore_upload *u);
DEFINE_CLEANUP(symstore_upload, struct symstore_upload *, symstore_upload_free)
#define _cleanup_symstore_upload_ _cleanup_(symstore_upload)

/* ---- binaries without names (missing.c) ---- */

struct symstore_nameless {
	const char *build_id, *path; /* in symstore_missing.strings */
	u64 samples;		     /* with an unnamed frame of the binary */
};

struct symstore_missing {
	struct profile *strings;		/* owned */
	vec(struct symstore_nameless) binaries; /* by samples, most first */
};

/* Binaries with unnamed frames in samples of this range of times. */
int symstore_missing(struct store *s, u64 from_ms, u64 to_ms, struct symstore_missing *ret,
		     struct diag *reterr_diag);
void symstore_missing_deinit(struct symstore_missing *m);
