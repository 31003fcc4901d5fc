/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the store: what an engine implements, and what engines share (ids, labels of series, order
 * and filters of spans).
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "base/log.h"
#include "base/quota.h"
#include "base/types.h"
#include "profile/profile.h"
#include "server/store/store.h"

#define STORE_SERVICE_LABEL "service.name"
#define STORE_THREAD_LABEL "thread.name"
/* In a series, with the two above; further labels of a resource are left out. */
#define STORE_MAX_LABELS PROFILE_MAX_LABELS

#define STORE_MAX_TIERS 8

/* struct store_options with its defaults filled in. */
struct store_limits {
	u64 max_bytes, max_age_s, cache_bytes, span_bytes;
	struct store_tier tiers[STORE_MAX_TIERS + 1]; /* the last ends the list */
};

/*
 * An engine. The functions of store.h only call the members of the same names, from `close` on;
 * store.h describes them.
 */
struct store_ops {
	const char *scheme; /* of its URLs: "sqlite", "clickhouse" */
	/* As store_each_file(); NULL: the URL names none. */
	void (*each_file)(const char *where, void (*file)(void *arg, const char *path), void *arg);
	bool where_is_a_path; /* the part after the scheme is the directory with the files */
	int (*open)(const char *where, const struct store_limits *l, struct diag *reterr_diag,
		    struct store **ret);
	void (*close)(struct store *s);
	int (*write)(struct store *s, const struct store_batch *b, const u8 token[16],
		     struct diag *reterr_diag);
	/* NULL: `write` each. */
	void (*write_all)(struct store *s, struct store_request *list, size_t n);
	int (*find_series)(struct store *s, const struct store_filter *f,
			   struct store_series_set *ret, struct diag *reterr_diag);
	int (*scan)(struct store *s, const struct store_filter *f, u32 by, u64 step_ms,
		    struct store_rows *ret, struct diag *reterr_diag);
	int (*load_stacks)(struct store *s, const u64 *ids, size_t n, struct profile *into,
			   u32 *ret_stacks, struct diag *reterr_diag);
	int (*find_stacks)(struct store *s, const char *service,
			   bool (*accept)(void *userdata, const char *name), void *userdata,
			   struct store_ids *ret, struct diag *reterr_diag);
	int (*name_frames)(struct store *s, const char *build_id,
			   int (*name)(void *userdata, u64 address, struct profile *into,
				       u32 *ret_frames, size_t max),
			   void *userdata, struct diag *reterr_diag);
	int (*unname_frames)(struct store *s, const char *build_id, struct diag *reterr_diag);
	int (*write_spans)(struct store *s, const struct spans *spans, const u8 token[16],
			   struct diag *reterr_diag);
	int (*find_spans)(struct store *s, const struct store_span_filter *f, struct spans *ret,
			  struct diag *reterr_diag);
	int (*find_links)(struct store *s, const struct store_link_filter *f,
			  struct store_links *ret, struct diag *reterr_diag);
	int (*maintain)(struct store *s, u64 now_ms, struct diag *reterr_diag);
	int (*get_stats)(struct store *s, struct store_stats *ret, struct diag *reterr_diag);
	/* NULL for a store that only one server uses. */
	int (*share_reports)(struct store *s, const struct store_reports *reports,
			     struct diag *reterr_diag);
	int (*find_reports)(struct store *s, u64 since_ms, struct store_reports *ret,
			    struct diag *reterr_diag);
	int (*note_symbols)(struct store *s, const struct store_symbol *list, size_t n,
			    struct diag *reterr_diag);
	int (*find_symbols)(struct store *s, u64 *rows, struct store_symbols *ret,
			    struct diag *reterr_diag);
	int (*write_symbol_part)(struct store *s, u64 file, u32 part, const void *data, size_t n,
				 struct diag *reterr_diag);
	int (*read_symbol_part)(struct store *s, u64 file, u32 part,
				void (*take)(void *userdata, const void *data, size_t n),
				void *userdata, struct diag *reterr_diag);
	/* NULL for a database server, which has its own. */
	int (*backup)(const char *where, const char *to, const struct store_progress *progress,
		      struct diag *reterr_diag);
	int (*restore)(const char *from, const char *where, const struct store_progress *progress,
		       struct diag *reterr_diag);
};

/* ---- what people must learn of a store (watch.c) ---- */

enum store_eviction {
	STORE_EVICT_AGE,
	STORE_EVICT_SIZE,
	STORE_EVICT_SPANS_AGE,
	STORE_EVICT_SPANS_SIZE,
	STORE_EVICT_SPANS_THINNED,
	STORE_EVICT_N,
};

/* What was deleted since the last line in the log. */
struct store_evicted {
	u64 rows, first_ms, last_ms;
	struct log_site told;
};

struct store_watch {
	pthread_mutex_t lock;
	atomic_bool fails; /* the last write was refused because of: */
	char failing[300];
	u64 refused, refused_told, refused_before;
	struct log_site refusal_told;
	struct store_evicted evicted[STORE_EVICT_N];
	u64 evicted_to_ms, spans_evicted_to_ms; /* for size */
	u64 evictions[STORE_EVICT_N];		/* since the opening */
};

/* First member of every engine's own struct. */
struct store {
	const struct store_ops *ops;
	struct store_watch watch; /* of store_open() */
};

/* The result of a write; `why` if it failed. Negative errno that requests cause do not count. */
void store_note_write(struct store *s, int r, const char *why);
/* Rows, or spans, that an engine deletes. */
void store_note_evicted(struct store *s, enum store_eviction why, u64 rows, u64 first_ms,
			u64 last_ms);
void store_tell_evictions(struct store *s);
void store_watch_stats(struct store *s, struct store_stats *ret);

extern const struct store_ops store_sqlite, store_clickhouse;

/* The resolution of samples of this age; 1 = times as they came. */
u64 store_resolution_ms(const struct store_limits *l, u64 age_ms);

/* ---- ids and labels (batch.c) ---- */

/* The contents that ids are hashes of, with strings by hash_bytes(). No padding. */
struct store_function_key {
	u64 name, system_name, file;
	u64 start_line;
};

struct store_frame_key {
	u64 path, build_id; /* 0 = no mapping */
	u64 address;	    /* 0 unless store_frame_has_address() */
	u64 function;	    /* id, or 0 */
	u32 line, column;
	u32 kind, flags;
};

struct store_label {
	const char *name, *value; /* borrowed */
};

/* A hash that can be an id and a key of a struct map. */
u64 store_id(const void *data, size_t n);
u64 store_function_id(const struct store_function_key *k);
u64 store_frame_id(const struct store_frame_key *k);
u64 store_stack_id(const u64 *frames, size_t n);
/* Whether the frame's id includes the address: see batch.c. */
bool store_frame_has_address(const struct profile_frame *f);

/* The labels of a series, sorted by name; returns how many. */
size_t store_series_labels(const struct profile *p, const struct store_series *s,
			   struct store_label ret[STORE_MAX_LABELS]);
u64 store_series_id(const struct store_label *labels, size_t n);

/* ---- stacks ---- */

/* The find_stacks of an engine that cannot do better: reads all stacks and compares names. */
int store_match_stacks(struct store *s, const char *service,
		       bool (*accept)(void *userdata, const char *name), void *userdata,
		       struct store_ids *ret, struct diag *reterr_diag);
/*
 * Copies stacks from one profile into another. stacks: ids in `from`, which become ids in `into`;
 * PROFILE_NONE stays.
 */
int store_copy_stacks(const struct profile *from, struct profile *into, u32 *stacks, size_t n);

/* Ids of `into` plus 1, by id of `from`; 0 = not copied yet. */
struct store_copied {
	u32 *data; /* owned */
	size_t n, cap;
};

/* The same in several steps, between which `from` may grow. */
struct store_copy {
	struct profile *into; /* borrowed */
	/* Set by store_copy_more(). */
	const struct profile *from; /* borrowed during the call */
	struct store_copied mappings, functions, frames, stacks;
	vec(u32) scratch;
};

int store_copy_more(struct store_copy *c, const struct profile *from, u32 *stacks, size_t n);
/* Call it before `from` becomes another profile. */
void store_copy_deinit(struct store_copy *c);
#define _cleanup_store_copy_ __attribute__((cleanup(store_copy_deinit)))

/* ---- spans and links (spans.c) ---- */

/*
 * Sorts by trace, span, type, series, stack and time, and adds up links that are equal in all of
 * these.
 */
void store_links_order(struct store_links *l);
/* Sorts by trace, start and span, and removes duplicates. */
void store_spans_order(struct spans *s);
bool store_span_matches(const struct store_span_filter *f, const struct spans *s,
			const struct span *e);
/* traces: sorted; NULL accepts any. So for ids. */
bool store_has_trace(const u8 (*traces)[16], size_t n, const u8 trace_id[16]);
bool store_has_id(const u64 *ids, size_t n, u64 id);
/* Removes the spans from `first` on that do not match, and their attributes. */
void store_spans_filter(struct spans *s, size_t first, size_t first_attribute,
			const struct store_span_filter *f);
/* Keeps the slowest `limit` spans, slowest first. */
int store_spans_slowest(struct spans *s, size_t limit);
/* Sets the text of an error of find_spans; returns r. why: what the engine said, or empty. */
int store_spans_failed(int r, const struct diag *why, struct diag *reterr_diag);
/*
 * Ends find_spans: moves what an engine found to *ret, in order or the slowest `limit`. With r < 0
 * it frees them and reports the error.
 */
int store_spans_answer(int r, struct spans *taken, size_t limit, const struct diag *why,
		       struct spans *ret, struct diag *reterr_diag);
