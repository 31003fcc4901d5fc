/* SPDX-License-Identifier: Apache-2.0 */
/*
 * File formats of profiles: a table with one entry a format (format.c), a file for each reader and
 * writer. A reader takes any bytes; what it refuses, the diag explains.
 */
#pragma once

#include "profile/profile.h"
#include "profile/tree.h"

struct profile_write_options {
	struct profile_tree_options tree;
	bool annotate;		    /* folded: _[i] and _[j] as well */
	bool gala;		    /* folded: as gala-gopher writes it (doc/stackprobe.md) */
	const char *title;	    /* NULL: the profile's own */
	const struct profile *base; /* a diff against it, for formats that can; or NULL */
	bool icicle;		    /* svg: the root on top */
	bool normalize;		    /* the base is scaled to the same total */
	/* pprof: what a sample type is called, by its name; NULL: its name */
	const char *(*type_name)(const char *name);
};

struct profile_format {
	const char *name;    /* --format */
	const char *endings; /* space-separated: ".pb.gz .pprof" */
	const char *help;
	/* NULL when it cannot. The reader gets the whole file, decompressed if it was gzip. */
	int (*read)(const u8 *data, size_t n, struct profile **ret, struct diag *reterr_diag);
	int (*write)(const struct profile *p, const struct profile_write_options *o,
		     struct str *out, struct diag *reterr_diag);
	/* Likelihood 0..100 that the bytes are of this format; NULL when it cannot read. */
	int (*probe)(const u8 *data, size_t n);
};

/*
 * What the page of ui/ draws, without the page around it: the body of doc/format/html.md, as it is
 * or as a zlib stream. Appended to `out`.
 */
int profile_write_payload(const struct profile *p, const struct profile_write_options *o, bool zlib,
			  struct str *out, struct diag *reterr_diag);

const struct profile_format *profile_format_by_name(const char *name);
const struct profile_format *profile_format_by_path(const char *path);
/* The i-th of the table, NULL behind the last. */
const struct profile_format *profile_format_at(size_t i);
/*
 * Reads a file ("-" = standard input) of any known format, told by content, at most 4 GiB. After 0
 * the diag may tell what was left out.
 */
int profile_read_file(const char *path, const char *format, struct profile **ret,
		      struct diag *reterr_diag);
/*
 * The same of bytes, compressed with gzip or zstd or not, at most `limit` of them decompressed.
 * `name` stands before what is said in the diag.
 */
int profile_read_bytes(const char *name, const u8 *data, size_t n, const char *format, u64 limit,
		       struct profile **ret, struct diag *reterr_diag);
/*
 * What a JVM has allocated, from a recording of its Flight Recorder, in bytes and objects. All such
 * profiles have the same types, of which one or two are not empty: profile_drop_empty_types().
 */
struct profile_flight {
	u64 after_ns; /* only chunks that begin after it; since the epoch */
	bool by_tlab; /* by allocation buffers, as before JDK 16, and not by samples */
	/*
	 * Threads (osThreadId) of which there was no sample before: the JVM gives the first sample
	 * of each the weight of all that it has allocated since it began, maybe long before the
	 * recording. These samples get no bytes. Borrowed.
	 */
	const u32 *tids;
	size_t n_tids;
};
/* *ret_last_ns: the begin of the recording's last chunk. */
int profile_read_flight(const u8 *data, size_t n, const struct profile_flight *only,
			struct profile **ret, u64 *ret_last_ns, struct diag *reterr_diag);
/*
 * Writes atomically: a temporary file beside the target, then rename; a device or "-" directly.
 * profile_write_check() says beforehand whether it could, and is what a recorder calls first.
 */
int profile_write_check(const char *path, const char *format, const struct profile_format **ret,
			struct diag *reterr_diag);
int profile_write_file(const struct profile *p, const char *path, const struct profile_format *f,
		       const struct profile_write_options *o, struct diag *reterr_diag);
