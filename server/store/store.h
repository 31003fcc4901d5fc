/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the server keeps profiles: one vtable, two engines (sqlite/, clickhouse/), the same
 * logical tables in both:
 *
 *	series		id → labels: of the resource (one of them is service.name), and
 *			"thread.name"
 *	functions	id → name, system name, file, start line
 *	frames		id → kind, flags, binary (path, build-id), address, function, line, column;
 *			or, when symbols came late, the frames that it really is
 *	stacks		id → frames, leaf first
 *	samples		(service, type, time, series, stack) → count, value
 *
 * Ids are 64-bit hashes of content, with separators (XXH3), never 0: equal everywhere, so what is
 * written twice or by two servers is one, and engines need no counter. Samples refer to stacks by
 * id and never change when symbols arrive late.
 *
 * Beside them lie spans (profile/span.h) and a second copy of the samples that were taken in a
 * span, found by span. Queries by time never read these, queries by span read nothing else. They
 * have a size limit of their own.
 *
 * Times are ms since the epoch. As samples grow older their times are rounded down: to the
 * resolution of struct store_options.
 *
 * A store may be used by several threads at once.
 */
#pragma once

#include "base/cleanup.h"
#include "base/diag.h"
#include "base/types.h"
#include "base/vec.h"
#include "profile/profile.h"
#include "profile/span.h"

struct store;

/* What a value type is called: as Pyroscope does,
 * NAME:SAMPLE_TYPE:SAMPLE_UNIT:PERIOD_TYPE:PERIOD_UNIT,
 * "process_cpu:cpu:nanoseconds:cpu:nanoseconds". */
#define STORE_TYPE_BYTES 128

struct store_tier {
	u64 age_s;	   /* samples older than this ... */
	u64 resolution_ms; /* ... have times rounded to this; 0 ends the list */
};

struct store_options {
	u64 max_bytes;	 /* of disk, all told: the oldest goes first; 0 = 10 GiB */
	u64 max_age_s;	 /* 0 = 30 days */
	u64 cache_bytes; /* of memory; 0 = 64 MiB */
	u64 span_bytes;	 /* of disk, for spans and their samples; 0 = 1 GiB */
	const struct store_tier
		*tiers; /* NULL: 10 s after a day, 1 h after two weeks, 1 d after 90 days */
};

/* What arrived in one request: made by store_batch_init(), the same for all engines. */
struct store_sample {
	u32 type;   /* index into store_batch.types */
	u32 series; /* index into store_batch.series */
	u32 stack;  /* id in the profile */
	u32 count;  /* samples behind the value */
	u64 time_ms;
	s64 value;
};

struct store_series {
	u64 id;
	u32 service;	 /* string id in the profile: service.name, "" when there is none */
	u32 resource;	 /* of the profile */
	u32 thread_name; /* string id */
	u32 attributes;	 /* of the profile's threads: labels, too, where the resource has no such */
};

/* A sample and the span it was taken in. */
struct store_link {
	struct profile_link link;
	u32 service, type; /* string ids in store_links.profile */
	u64 series, stack;
	u64 time_ms, count;
	s64 value;
};

struct store_links {
	struct profile *profile;      /* owned: strings only */
	vec(struct store_link) links; /* by trace, span, type, series, stack, time */
	bool damaged;
};

struct store_batch {
	const struct profile *profile; /* borrowed */
	/* Ids by the profile's own ids; owned. */
	u64 *functions, *frames, *stacks;
	vec(struct store_series) series;
	char types[PROFILE_MAX_TYPES][STORE_TYPE_BYTES];
	u32 n_types;
	/* Sorted by service, type, hour, stack, series, time; one of each. */
	vec(struct store_sample) samples;
	struct store_links links; /* of the samples that have one; they are in `samples`, too */
};

/*
 * `name` is the first part of the type ("process_cpu"); NULL: by what is measured. Samples without
 * a time get the profile's. -EINVAL and a diag for a profile that cannot be stored.
 */
int store_batch_init(struct store_batch *b, const struct profile *p, const char *name,
		     struct diag *reterr_diag);
void store_batch_deinit(struct store_batch *b);
#define _cleanup_store_batch_ __attribute__((cleanup(store_batch_deinit)))

/* Which samples: all conditions hold. Strings and arrays are borrowed. */
struct store_filter {
	u64 from_ms, to_ms;  /* half-open */
	const char *type;    /* NULL = of any type */
	const char *service; /* NULL = of any service */
	const u64 *series;   /* sorted ids, NULL = all */
	size_t n_series;
	const u64 *stacks; /* sorted ids, NULL = all */
	size_t n_stacks;
};

enum store_by { /* flags */
		STORE_BY_STACK = 1,
		STORE_BY_SERIES = 2,
		STORE_BY_TIME = 4, /* in steps of step_ms from from_ms on */
};

struct store_row {
	u64 stack, series; /* ids, 0 when it is not grouped by */
	u64 time_ms;	   /* start of the step */
	u64 count;
	s64 value;
};

struct store_rows {
	vec(struct store_row) rows; /* sorted by time, series, stack */
	u64 resolution_ms;	    /* the coarsest that samples had: steps below it mean nothing */
	bool damaged;		    /* part of what was asked for could not be read: see stats */
};

struct store_ids {
	vec(u64) ids;
};

/* A known series within a time range. */
struct store_found_series {
	u64 id;
	u64 first_ms, last_ms;
	u32 resource; /* in store_series_set.profile, "thread.name" among its labels */
	u32 type;     /* string id of the type */
};

struct store_series_set {
	struct profile *profile; /* owned: labels and strings only */
	vec(struct store_found_series) series;
	bool damaged; /* there may be more: see stats */
};

/* ---- spans ---- */

#define STORE_MAX_SPANS (1u << 20) /* of one answer */
#define STORE_MAX_LINKS (4u << 20)

/*
 * By this a question takes a share of the traces. Not the hash by which they are thinned: of those
 * that are left, it would take all. It is ClickHouse's intHash64() of the id's last 8 bytes.
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

static inline bool store_has_share(const u8 trace_id[16], u32 bits)
{
	return !bits || store_trace_share(trace_id) >> (64 - bits) == 0;
}

/* Which spans: all conditions hold. Strings and arrays are borrowed. */
struct store_span_filter {
	u64 from_ms, to_ms;	/* when they began; half-open */
	const char *service;	/* NULL = of any */
	const char *endpoint;	/* NULL = any; else only entries of services have one */
	u64 min_ns, max_ns;	/* duration, both inclusive; max 0 = no bound */
	bool roots;		/* only entries of services */
	u8 statuses;		/* bits: 1 << enum span_status; 0 = any */
	const u8 (*traces)[16]; /* sorted, NULL = all */
	size_t n_traces;
	u32 share_bits; /* only traces of which store_trace_share() begins with so many zeros */
	size_t limit;	/* of these the slowest, slowest first; 0 = all, by trace and start */
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
	u64 bytes;	   /* on disk */
	u64 rows, samples; /* stored, since it was opened and before */
	u64 first_ms, last_ms;
	u64 series, functions, frames, stacks;
	u64 damaged;	  /* blocks that could not be read */
	u64 evicted_rows; /* dropped by size or age since it was opened */
	u64 spans, span_samples, span_bytes;
	u64 evicted_spans; /* by size, age, or as a share of those like them is kept */
	char where[256];   /* "sqlite:/var/lib/culprit/profiles.db" */
};

struct store_ops {
	const char *scheme; /* "sqlite", "clickhouse": before :// in --store */
	/* Creates what is not there, brings older schemas up to date. */
	int (*open)(const char *where, const struct store_options *o, struct diag *reterr_diag,
		    struct store **ret);
	void (*close)(struct store *s);
	/*
	 * When it returns 0 the batch survives kill -9. `token` (or NULL) makes it idempotent: what
	 * was written with the same token lately is not written again. All or nothing.
	 */
	int (*write)(struct store *s, const struct store_batch *b, const u8 token[16],
		     struct diag *reterr_diag);
	/* What of the filter's range, type and service is there; series and stacks are ignored. */
	int (*find_series)(struct store *s, const struct store_filter *f,
			   struct store_series_set *ret, struct diag *reterr_diag);
	int (*scan)(struct store *s, const struct store_filter *f, u32 by, u64 step_ms,
		    struct store_rows *ret, struct diag *reterr_diag);
	/* Adds the stacks to a profile; ret_stacks[i] is PROFILE_NONE for what is not known. */
	int (*load_stacks)(struct store *s, const u64 *ids, size_t n, struct profile *into,
			   u32 *ret_stacks, struct diag *reterr_diag);
	/*
	 * Stacks with a frame whose function's name (or binary+address, as it is shown) the
	 * callback accepts; sorted. `service` NULL = all.
	 */
	int (*find_stacks)(struct store *s, const char *service,
			   bool (*accept)(void *userdata, const char *name), void *userdata,
			   struct store_ids *ret, struct diag *reterr_diag);
	/*
	 * Late symbols: for each native frame of the binary that has no name yet and no flags
	 * (the address is svma), `name` may add its frames to the profile given to it, leaf first,
	 * and returns how many, 0 for none; negative ends it. Binary, address and kind of these are
	 * the frame's own, and all but the last are inlined, whatever `name` says.
	 */
	int (*name_frames)(struct store *s, const char *build_id,
			   int (*name)(void *userdata, u64 address, struct profile *into,
				       u32 *ret_frames, size_t max),
			   void *userdata, struct diag *reterr_diag);
	/* As write(). */
	int (*write_spans)(struct store *s, const struct spans *spans, const u8 token[16],
			   struct diag *reterr_diag);
	/* A span that came twice is one. -E2BIG past STORE_MAX_SPANS. */
	int (*find_spans)(struct store *s, const struct store_span_filter *f, struct spans *ret,
			  struct diag *reterr_diag);
	int (*find_links)(struct store *s, const struct store_link_filter *f,
			  struct store_links *ret, struct diag *reterr_diag);
	/* Compaction, rounding, retention: called every few seconds by one thread. */
	int (*maintain)(struct store *s, u64 now_ms, struct diag *reterr_diag);
	int (*stats)(struct store *s, struct store_stats *ret, struct diag *reterr_diag);
};

/* First member of every engine's own struct. */
struct store {
	const struct store_ops *ops;
};

/* By scheme; without one it is a directory for SQLite. */
int store_open(const char *url, const struct store_options *o, struct diag *reterr_diag,
	       struct store **ret);
void store_close(struct store *s);
DEFINE_CLEANUP(store, struct store *, store_close)
#define _cleanup_store_ _cleanup_(store)

void store_rows_deinit(struct store_rows *r);
void store_series_set_deinit(struct store_series_set *s);
int store_links_init(struct store_links *l);
void store_links_deinit(struct store_links *l);
#define _cleanup_store_links_ __attribute__((cleanup(store_links_deinit)))
