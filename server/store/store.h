/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store: where the server keeps profiles and spans. Callers use the functions below; an engine
 * (server/store/sqlite, server/store/clickhouse) does the work. Every engine keeps the same logical
 * tables:
 *
 *	series		id → labels of the resource, among them service.name and thread.name
 *	functions	id → name, system name, file, start line
 *	frames		id → kind, flags, binary (path, build-id), address, function, line, column;
 *			once symbols have arrived, also the frames that stand for it
 *	stacks		id → frames, leaf first
 *	samples		(service, type, time, series, stack) → count, value
 *	spans		by trace (profile/span.h)
 *	links		samples that were taken within a span, by trace
 *
 * An id is a 64-bit hash of content (XXH3) and never 0. Two servers give the same content the same
 * id, so writing it twice is harmless and no engine needs a counter. Samples refer to stacks by id
 * and do not change when symbols arrive late.
 *
 * A sample that was taken within a span is stored twice: in `samples` and in `links`. Queries by
 * time read only the former, queries by trace only the latter. Spans and links have a size limit of
 * their own.
 *
 * Times are in ms since the epoch. Times of older samples are rounded down to the resolution in
 * struct store_options.
 *
 * All functions may be called by several threads at once, except where one says otherwise. They
 * return 0 or a negative errno, set *reterr_diag then, and leave ret_x arguments as they were.
 */
#pragma once

#include "base/cleanup.h"
#include "base/diag.h"
#include "base/map.h"
#include "base/types.h"
#include "base/vec.h"
#include "base/vocab.h"
#include "profile/profile.h"
#include "profile/span.h"

struct store;

/*
 * Room for the name of a value type. Names follow Pyroscope:
 * NAME:SAMPLE_TYPE:SAMPLE_UNIT:PERIOD_TYPE:PERIOD_UNIT, as in
 * "process_cpu:cpu:nanoseconds:cpu:nanoseconds".
 */
#define STORE_TYPE_BYTES 128

/*
 * The parts of such a name; a missing part is "". Parts point into `text`: do not copy the struct.
 */
struct store_type {
	char text[STORE_TYPE_BYTES];
	const char *profile, *name, *unit, *period, *period_unit;
};

/* -EINVAL if the name is too long. */
int store_type_parse(const char *type, struct store_type *ret);
/* The type's row in abi/tbl/sample_type.tbl, SAMPLE_TYPE_N if it has none. */
enum sample_type store_type_find(const struct store_type *t);
/* The unit of the type's values in seconds; 0 if they are not CPU time. */
double store_type_cpu_seconds(const char *type);
/* Whether series of this type have the label "wait". */
bool store_type_has_waits(const char *type);
/* Whether values are states, such as live memory, which do not add up over time. */
bool store_type_is_state(const char *type);
/*
 * Whether a query without a type prefers this type, which has so many samples in the range, over
 * the other ("" = none yet): CPU time over other values, values over numbers of samples, and among
 * equals the type with most samples.
 */
bool store_type_is_better(const char *type, u64 count, const char *than, u64 than_count);

struct store_tier {
	u64 age_s;	   /* times of samples older than this ... */
	u64 resolution_ms; /* ... are rounded to a multiple of this; 0 ends the list */
};

struct store_options {
	u64 max_bytes;	 /* disk space without spans; the oldest samples go first; 0 = 10 GiB */
	u64 max_age_s;	 /* 0 = 30 days */
	u64 cache_bytes; /* memory; 0 = 64 MiB */
	u64 span_bytes;	 /* disk space of spans and links; 0 = 1 GiB */
	/* By age. NULL: 10 s after a day, 1 h after two weeks, 1 d after 90 days. */
	const struct store_tier *tiers;
};

/* The age at which samples are deleted; `o` may be NULL. */
u64 store_max_age_s(const struct store_options *o);

/* Samples to be stored: store_batch_init() makes them from a profile. */
struct store_sample {
	u32 type;   /* index into store_batch.types */
	u32 series; /* index into store_batch.series */
	u32 stack;  /* id in the profile */
	u32 count;  /* samples behind the value; 1 for a state, such as live memory */
	u64 time_ms;
	s64 value;
};

struct store_series {
	u64 id;
	u32 service;	 /* service.name: a string id in the profile, of "" when there is none */
	u32 resource;	 /* resource id in the profile */
	u32 thread_name; /* string id */
	u32 attributes;	 /* the thread's: labels whose names the resource does not have */
};

/* A sample and the span that it was taken in. */
struct store_link {
	struct profile_link link;
	u32 service, type; /* string ids in store_links.profile */
	u64 series, stack;
	u64 time_ms, count;
	s64 value;
};

struct store_links {
	struct profile *profile;      /* owned; has strings only */
	vec(struct store_link) links; /* sorted by trace, span, type, series, stack, time */
	bool damaged;
};

struct store_batch {
	const struct profile *profile; /* borrowed */
	/* Content ids, indexed by the profile's own ids; owned. */
	u64 *functions, *frames, *stacks;
	vec(struct store_series) series;
	char types[PROFILE_MAX_TYPES][STORE_TYPE_BYTES];
	u32 n_types;
	/* Sorted by service, type, hour, stack, series, time; no two have all of these alike. */
	vec(struct store_sample) samples;
	struct store_links links; /* samples within spans, in addition to `samples` */
};

/*
 * `name` is the first part of the types' names ("process_cpu"); NULL derives it from what the
 * profile measures. Samples without a time get the profile's. -EINVAL for a profile that cannot be
 * stored.
 */
int store_batch_init(struct store_batch *b, const struct profile *p, const char *name,
		     struct diag *reterr_diag);
void store_batch_deinit(struct store_batch *b);
#define _cleanup_store_batch_ __attribute__((cleanup(store_batch_deinit)))

/* Selects samples that meet all conditions. Strings and arrays are borrowed. */
struct store_filter {
	u64 from_ms, to_ms;  /* half-open */
	const char *type;    /* NULL = any */
	const char *service; /* NULL = any */
	const u64 *series;   /* sorted ids, NULL = all */
	size_t n_series;
	const u64 *stacks; /* sorted ids, NULL = all */
	size_t n_stacks;
};

/* Flags: what a scan groups samples by, and what it is asked for. */
enum store_by {
	STORE_BY_STACK = 1,
	STORE_BY_SERIES = 2,
	STORE_BY_TIME = 4, /* in steps of step_ms, the first begins at from_ms */
	STORE_BY_SERVICE = 8,
	STORE_BY_TYPE = 16,
	/*
	 * With STORE_BY_TYPE: only to compare types by count. Values and resolution_ms may be 0,
	 * and if there is one type its count may be that of more than the range.
	 */
	STORE_COUNTS = 32,
};

struct store_row {
	u64 stack, series; /* ids; 0 when rows are not grouped by it */
	u32 service, type; /* ids in store_rows.names; 0 when rows are not grouped by it */
	u64 time_ms;	   /* start of the step */
	u64 count;
	s64 value;
};

struct store_rows {
	vec(struct store_row) rows; /* sorted by time and series; not by stack, service or type */
	struct strtab names;	    /* of services and types, if rows are grouped by these */
	u64 resolution_ms;	    /* the coarsest among the samples: finer steps mean nothing */
	bool damaged; /* some samples could not be read; store_get_stats() counts damage */
};

struct store_ids {
	vec(u64) ids;
};

/* A series that has samples in the filter's range. */
struct store_found_series {
	u64 id;
	u64 first_ms, last_ms;
	u32 resource; /* in store_series_set.profile; thread.name is among its labels */
	u32 type;     /* string id in that profile */
};

struct store_series_set {
	struct profile *profile; /* owned; has labels and strings only */
	vec(struct store_found_series) series;
	bool damaged; /* some could not be read */
};

/* ---- spans ---- */

#define STORE_MAX_SPANS (1u << 20) /* in one answer */
#define STORE_MAX_LINKS (4u << 20)

/*
 * The hash by which a query takes a share of all traces: ClickHouse's intHash64() of the id's last
 * 8 bytes. It must differ from the hash by which the SQLite engine thins traces out, because that
 * hash is small for every remaining trace.
 */
static inline u64 store_trace_share(const u8 trace_id[16])
{
	u64 x;

	memcpy(&x, trace_id + 8, sizeof(x));
	x ^= 0x4cf2d2baae6da887ULL;
	x = (x ^ x >> 33) * 0xff51afd7ed558ccdULL;
	x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53ULL;
	return x ^ x >> 33;
}

/* Whether a trace is in the share of 1 / 2^bits. */
static inline bool store_has_share(const u8 trace_id[16], u32 bits)
{
	return !bits || store_trace_share(trace_id) >> (64 - bits) == 0;
}

/* Selects spans that meet all conditions. Strings and arrays are borrowed. */
struct store_span_filter {
	u64 from_ms, to_ms;	/* start of the span; half-open */
	const char *service;	/* NULL = any */
	const char *endpoint;	/* NULL = any; only entry spans of services have one */
	u64 min_ns, max_ns;	/* duration, both inclusive; max 0 = no bound */
	bool roots;		/* only entry spans of services */
	u8 statuses;		/* bits: 1 << enum span_status; 0 = any */
	const u8 (*traces)[16]; /* sorted, NULL = all */
	size_t n_traces;
	u32 share_bits; /* only traces in the share of store_has_share() */
	size_t limit;	/* keep this many spans, slowest first; 0 = all, by trace and start */
};

struct store_link_filter {
	u64 from_ms, to_ms;
	const char *type, *service; /* NULL = any */
	const u8 (*traces)[16];	    /* sorted, NULL = all */
	size_t n_traces;
	const u64 *stacks; /* sorted, NULL = all */
	size_t n_stacks;
};

struct store_stats {
	u64 bytes;	   /* on disk, without spans */
	u64 rows, samples; /* stored now */
	u64 first_ms, last_ms;
	u64 series, functions, frames, stacks;
	u64 names;	  /* of services and types; 0 if the engine has no table of them */
	u64 damaged;	  /* blocks, rows and files that could not be read */
	u64 evicted_rows; /* dropped for age or size since the store was opened */
	u64 spans, span_samples, span_bytes;
	u64 evicted_spans; /* dropped for age or size, or by thinning, since the opening */
	/* For size, since the opening: the newest time from which something was dropped; or 0. */
	u64 evicted_to_ms, spans_evicted_to_ms;
	u64 refused_writes; /* since the opening */
	char failing[300];  /* "disk full: ..." from a refused write until the next success */
	char where[256];    /* "sqlite:/var/lib/culprit/profiles.db" */
};

/*
 * Opens the store at SCHEME://WHERE, or the embedded one in a directory when there is no scheme.
 * Creates what is missing and updates older schemas. `o` may be NULL.
 */
int store_open(const char *url, const struct store_options *o, struct diag *reterr_diag,
	       struct store **ret);
void store_close(struct store *s);
DEFINE_CLEANUP(store, struct store *, store_close)
#define _cleanup_store_ _cleanup_(store)
/* The local directory of the store at this URL, a part of `url`; NULL for one that has none. */
const char *store_directory(const char *url);
/* Calls `file` with the path of each file that the URL names: a password, a certificate. */
void store_each_file(const char *url, void (*file)(void *arg, const char *path), void *arg);

/*
 * Writes the whole batch or nothing. After 0 the batch survives kill -9. A batch with the `token`
 * of a recently written batch is not written again; NULL: no token.
 */
int store_write(struct store *s, const struct store_batch *b, const u8 token[16],
		struct diag *reterr_diag);
struct store_request {
	const struct store_batch *batch; /* borrowed, as `token` */
	const u8 *token;		 /* 16 bytes, or NULL */
	int r;				 /* the result of store_write(); */
	struct diag diag;		 /* if negative */
};

/* store_write() of each, but an engine may write them together. */
void store_write_all(struct store *s, struct store_request *list, size_t n);
/*
 * Series with samples in the filter's range, type and service. Ignores the filter's series and
 * stacks.
 */
int store_find_series(struct store *s, const struct store_filter *f, struct store_series_set *ret,
		      struct diag *reterr_diag);
/* Sums of the samples, grouped by flags of enum store_by. step_ms: for STORE_BY_TIME. */
int store_scan(struct store *s, const struct store_filter *f, u32 by, u64 step_ms,
	       struct store_rows *ret, struct diag *reterr_diag);
/*
 * Adds stacks to a profile; ret_stacks[i] is PROFILE_NONE for an id that the store does not have.
 */
int store_load_stacks(struct store *s, const u64 *ids, size_t n, struct profile *into,
		      u32 *ret_stacks, struct diag *reterr_diag);
/*
 * Sorted ids of the stacks with a frame whose function name, or displayed BINARY+ADDRESS, the
 * callback accepts. `service` NULL = of any.
 */
int store_find_stacks(struct store *s, const char *service,
		      bool (*accept)(void *userdata, const char *name), void *userdata,
		      struct store_ids *ret, struct diag *reterr_diag);
/*
 * Late symbols. Calls `name` for each native frame of the binary that has no name yet and no flags,
 * with the frame's address (an svma). The callback may add the frames that stand for the frame to
 * `into`, leaf first, and returns their number; 0 leaves the frame without a name, a negative value
 * ends the call. The engine sets binary, address and kind of the added frames to those of the
 * original frame, and marks all but the last as inlined.
 */
int store_name_frames(struct store *s, const char *build_id,
		      int (*name)(void *userdata, u64 address, struct profile *into,
				  u32 *ret_frames, size_t max),
		      void *userdata, struct diag *reterr_diag);
/* Takes away the names that store_name_frames() gave to the frames of the binary. */
int store_unname_frames(struct store *s, const char *build_id, struct diag *reterr_diag);

/* As store_write(). */
int store_write_spans(struct store *s, const struct spans *spans, const u8 token[16],
		      struct diag *reterr_diag);
/* Returns a span once even if it was written twice. -E2BIG past STORE_MAX_SPANS. */
int store_find_spans(struct store *s, const struct store_span_filter *f, struct spans *ret,
		     struct diag *reterr_diag);
/* -E2BIG past STORE_MAX_LINKS. */
int store_find_links(struct store *s, const struct store_link_filter *f, struct store_links *ret,
		     struct diag *reterr_diag);

/*
 * Merges, rounds and evicts. Ages count from now_ms; with a time that is too late samples are lost
 * (base/clockwatch.h). One thread calls this every few seconds.
 */
int store_maintain(struct store *s, u64 now_ms, struct diag *reterr_diag);
int store_get_stats(struct store *s, struct store_stats *ret, struct diag *reterr_diag);

/* Since the opening; what was deleted by this server. `old`: for their age. */
struct store_events {
	u64 refused_writes;
	u64 old_rows, rows, old_spans, spans;
};
/* Asks nobody, and takes no time. */
void store_count_events(struct store *s, struct store_events *ret);

/* ---- what the servers of a store share ---- */

struct store_report {
	u32 resource;  /* of the profile: the labels that the agent sent (ingest/agents.h) */
	u64 seen_ms;   /* when it sent them */
	u64 newest_ms; /* the time of its newest sample */
};

struct store_reports {
	struct profile *profile; /* owned */
	vec(struct store_report) list;
	u64 server; /* a number of the server that shares or asks */
};

int store_reports_init(struct store_reports *r, u64 server);
void store_reports_deinit(struct store_reports *r);
#define _cleanup_store_reports_ __attribute__((cleanup(store_reports_deinit)))
/* Whether several servers can use the store. */
bool store_is_shared(const struct store *s);
/* Tells other servers of reports that this server received. */
int store_share_reports(struct store *s, const struct store_reports *reports,
			struct diag *reterr_diag);
/* Adds the last report of each host to other servers, unless it is older. */
int store_find_reports(struct store *s, u64 since_ms, struct store_reports *ret,
		       struct diag *reterr_diag);

/* ---- symbol files that servers share (server/symbols/shared.c) ---- */

enum store_symbol_state {
	STORE_SYMBOL_ADDED = 1,
	STORE_SYMBOL_REPLACED, /* as ADDED, and the names that earlier files gave are wrong */
	STORE_SYMBOL_REMOVED,  /* with its names */
	STORE_SYMBOL_EVICTED,  /* to make room; its names stay */
};

/* What became of the file of a build-id. The newest of a build-id counts. */
struct store_symbol {
	char build_id[136]; /* hex */
	u64 changed_ms;	    /* since the epoch; later than all before of this build-id */
	u64 file;	    /* a random number, an id of store.h; 0: the store has no file */
	enum store_symbol_state state;
	u64 bytes;
	char source[32];	  /* symstore_file.has */
	u64 used_ms;		  /* when a server used the file last, about */
	char token[64], peer[64]; /* who changed it; "" = a server itself */
};

struct store_symbols {
	vec(struct store_symbol) list;
};

/* The content of a file is cut into parts of this size, but the last one. */
#define STORE_SYMBOL_PART (8u << 20)

/* Only for a store that is shared. Adds what became of files. */
int store_note_symbols(struct store *s, const struct store_symbol *list, size_t n,
		       struct diag *reterr_diag);
/*
 * Returns 1 and what became last of each build-id's file; 0: nothing was added since the call that
 * set *rows. ~0 before the first call.
 */
int store_find_symbols(struct store *s, u64 *rows, struct store_symbols *ret,
		       struct diag *reterr_diag);
int store_write_symbol_part(struct store *s, u64 file, u32 part, const void *data, size_t n,
			    struct diag *reterr_diag);
/* -ENOENT: the store does not have the part. */
int store_read_symbol_part(struct store *s, u64 file, u32 part,
			   void (*take)(void *userdata, const void *data, size_t n), void *userdata,
			   struct diag *reterr_diag);

/* Called while files are copied; NULL, or no function: not called. */
struct store_progress {
	void (*fn)(void *userdata, const char *file, u64 done, u64 all);
	void *userdata;
};

/*
 * Copies a store of a directory, which a server may be writing to, into a new directory; with
 * everything else in its directory, but not symbols that are kept elsewhere. Nothing is left after
 * a failure.
 */
int store_backup(const char *url, const char *to, const struct store_progress *progress,
		 struct diag *reterr_diag);
/* Makes a store of the copy, in a directory that is empty or missing. */
int store_restore(const char *from, const char *url, const struct store_progress *progress,
		  struct diag *reterr_diag);

void store_rows_deinit(struct store_rows *r);
/* Compares two struct store_row for qsort(): by time, series, stack, service, type. */
int store_compare_rows(const void *a, const void *b);
#define _cleanup_store_rows_ __attribute__((cleanup(store_rows_deinit)))
void store_series_set_deinit(struct store_series_set *s);
int store_links_init(struct store_links *l);
void store_links_deinit(struct store_links *l);
#define _cleanup_store_links_ __attribute__((cleanup(store_links_deinit)))
