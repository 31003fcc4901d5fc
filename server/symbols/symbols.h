/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Late symbols: debug files by build-id, and the threads that get them and name frames by them.
 *
 * A file comes by upload or from debuginfod servers, is looked at (an ELF file of that build-id
 * that has names for code) and lies from then on at DIR/usr/lib/debug/.build-id/XX/YYYY.debug,
 * where lib/symbol looks for debug files when DIR is its root: so a file finds the dwz file that it
 * shares with others, and nothing else of this machine, whatever paths are in it.
 *
 * One thread takes one file at a time, when it is new or when frames without names came in that it
 * may name, and hands the names to the store (store_name_frames()). Files are hostile: reading is
 * bounded by lib/elf and lib/symbol, time by a budget for each file.
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
	struct store *store; /* borrowed */
	const char *dir;     /* made if it is not there */
	u64 max_bytes;	     /* all files, the oldest goes; 0 = 4 GiB. One file: a quarter */
	const char *debuginfod_urls; /* separated by commas or spaces; NULL: nobody is asked */
};

#define SYMSTORE_ID_BYTES (2 * ELF_MAX_BUILD_ID + 1)

struct symstore_file {
	char build_id[SYMSTORE_ID_BYTES]; /* lower-case hex */
	char path[256];			  /* of the binary, as frames have it; "" = not seen yet */
	u64 bytes;			  /* 0 = the file is not here */
	u64 stored_ms;			  /* since the epoch */
	const char *has;		  /* the best source in it: ".debug_info"; static */
	u64 named;			  /* frames, since the server runs */
	bool waiting;			  /* its turn is still to come */
	char note[256];			  /* why it is not here or not used; "" = nothing to say */
};

struct symstore_list {
	vec(struct symstore_file) files;
	u64 bytes, max_bytes;
};

int symstore_create(const struct symstore_options *o, struct diag *reterr_diag,
		    struct symstore **ret);
/* Ends what it is at, at the next frame. */
void symstore_destroy(struct symstore *s);
DEFINE_CLEANUP(symstore, struct symstore *, symstore_destroy)
#define _cleanup_symstore_ _cleanup_(symstore)

/* This was written to the store: frames without names are looked for in a moment. Thread-safe, as
 * all below. */
void symstore_note(struct symstore *s, const struct profile *p);
/* Of all files that are here, and those that would be useful; in the order of their ids. */
int symstore_files(struct symstore *s, struct symstore_list *ret);
/* -ENOENT when it is not here. */
int symstore_file(struct symstore *s, const char *build_id, struct symstore_file *ret);

struct symstore_stats {
	u64 files, bytes, named; /* named: frames, since the server runs */
};

void symstore_stats(struct symstore *s, struct symstore_stats *ret);
u64 symstore_max_file(const struct symstore *s);

/* ---- a file that comes in, in parts (upload.c) ---- */

struct symstore_upload;

/* -EINVAL: not a build-id. -EAGAIN: too many at once. */
int symstore_upload_begin(struct symstore *s, const char *build_id, const char *encoding,
			  struct diag *reterr_diag, struct symstore_upload **ret);
/* A failure is remembered until the end. */
void symstore_upload_part(struct symstore_upload *u, const void *data, size_t n);
/*
 * Checks and keeps it. 1: it is kept; 0: what is here already has more names; -ENOTSUP: of another
 * machine, -EFBIG: too large, -EINVAL: anything else that is wrong with it.
 */
int symstore_upload_end(struct symstore_upload *u, struct diag *reterr_diag);
void symstore_upload_free(struct symstore_upload *u);
DEFINE_CLEANUP(symstore_upload, struct symstore_upload *, symstore_upload_free)
#define _cleanup_symstore_upload_ _cleanup_(symstore_upload)

/* ---- what has no names (missing.c) ---- */

struct symstore_nameless {
	const char *build_id, *path; /* of the answer's own strings */
	u64 samples;		     /* whose stacks have such a frame */
};

struct symstore_missing {
	struct profile *strings;		/* owned */
	vec(struct symstore_nameless) binaries; /* by samples, most first */
};

/* Binaries whose frames have no names, in that time. */
int symstore_missing(struct store *s, u64 from_ms, u64 to_ms, struct symstore_missing *ret,
		     struct diag *reterr_diag);
void symstore_missing_deinit(struct symstore_missing *m);
