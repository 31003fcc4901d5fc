/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the ClickHouse engine: SQL over ClickHouse's HTTP interface, rows as RowBinary. The schema
 * is in schema.c. Any number of culprit servers may use one database at once: nothing is
 * locked there, everything that is written twice is one.
 *
 * Two dialects: servers that know insert_deduplication_token (22.2 and later) are "modern", older
 * ones (18.16 on) get no codecs and other ways not to write twice.
 *
 * Samples lie in partitions (day, resolution, run). What arrives is of resolution 1 and run 0. A
 * day's samples are rounded by writing them again, into a partition of the coarser resolution and
 * of a run that nobody else uses; what a partition is at is in the table `partitions`, where rows
 * are only added and a partition's state only grows (enum ch_state). So every reader sees a day
 * either as it was or as it became, whoever dies meanwhile.
 */
#pragma once

#include <pthread.h>

#include "base/buf.h"
#include "base/map.h"
#include "base/str.h"
#include "server/store/private.h"
#include "server/store/store.h"

#define CH_MAX_HOSTS 16
#define CH_HOUR_MS 3600000ULL
#define CH_MAX_DEPTH 65536
#define CH_ALWAYS 999912 /* a month that never is old */
#define CH_RAW 1	 /* the resolution of what was not rounded, in ms */

struct ch_config {
	char *hosts[CH_MAX_HOSTS]; /* owned: "http://HOST:PORT/" */
	size_t n_hosts;
	char *user, *password;	       /* owned; password is never printed */
	char *database, *cluster, *ca; /* owned; cluster NULL = one node */
	bool tls, compress;
	u64 timeout_ms, retry_ms, grace_ms;
};

/* The dictionaries whose rows are sent once a month. */
enum ch_table { CH_SERIES, CH_FUNCTIONS, CH_FRAMES, CH_STACKS, CH_TABLES };

/* In the order of a partition's life. */
enum ch_state {
	CH_MAKING = 1, /* not seen yet */
	CH_OPEN,       /* also what is not in the table */
	CH_CLOSING,    /* nobody writes into it any more */
	CH_SUPERSEDED, /* not seen any more */
	CH_GONE,
};

struct ch_partition {
	u32 day; /* 20241231 */
	u32 resolution, run;
	u8 state;
	u64 at_ms; /* when it came into that state */
};

struct ch_partitions {
	vec(struct ch_partition) list;
};

/* A day that this server is writing anew. */
struct ch_rounding {
	struct ch_partition from, to; /* to.run = 0: none */
	u64 next_hour;		      /* what is before it is written */
	bool written;
};

/* Stacks as they were loaded, interned in one profile. */
struct ch_cache {
	struct profile *profile; /* owned */
	struct map stacks;	 /* id → id in the profile */
	u64 names;		 /* how many names had come late */
};

struct ch_conn; /* http.c */

struct ch {
	struct store base;
	struct ch_config config;
	char where[256];
	bool modern, opened;
	struct store_limits limits;

	pthread_mutex_t conn_lock;
	struct ch_conn *idle;
	size_t host; /* the one that answered last */

	pthread_mutex_t sent_lock;
	struct map sent[CH_TABLES]; /* id → the month in which the server was told */

	pthread_mutex_t write_lock; /* writes of one token, one after the other */
	pthread_cond_t write_done;
	vec(u64) writing;

	pthread_mutex_t cache_lock;
	struct ch_cache cache;

	struct ch_rounding rounding; /* of the thread that maintains */

	pthread_mutex_t state_lock;
	struct ch_partitions partitions;
	u64 partitions_ms; /* monotonic, when they were read; 0 = never */
	u64 evicted_rows, evicted_spans;
	struct store_stats stats; /* as last counted */
	u64 stats_until_ns;
};

static inline struct ch *ch_of(struct store *s)
{
	return container_of(s, struct ch, base);
}

/* ---- http.c ---- */

struct ch_request {
	const char *sql;
	const struct str *rows; /* RowBinary for an INSERT, or NULL */
	const char *settings;	/* "&name=value...", or NULL */
	const char *token;	/* of an INSERT, where the server knows tokens; or NULL */
	u64 timeout_ms;		/* 0 = as configured */
	bool once;		/* not tried again */
	bool no_database;	/* the configured one may not be there yet */
};

/* "clickhouse://" taken off; fills the config from URL and environment. */
int ch_config_parse(const char *where, struct ch_config *ret, struct diag *reterr_diag);
void ch_config_deinit(struct ch_config *c);
/*
 * The answer is in ret (or NULL). Tried again, on the next host, for config.retry_ms when
 * there is no answer or one that says to come again: then -EAGAIN in the end. While it is opened
 * -ENOENT for what is not there, -EACCES when the user is not let in, later -EAGAIN; -ENOSPC; -EIO
 * for any other refusal.
 */
int ch_run(struct ch *s, const struct ch_request *q, struct str *ret, struct diag *reterr_diag);
int ch_select(struct ch *s, const char *sql, struct str *ret, struct diag *reterr_diag);
void ch_disconnect(struct ch *s);

/* ---- rows.c: RowBinary and literals ---- */

void ch_put_u8(struct str *s, u8 v);
void ch_put_u32(struct str *s, u32 v);
void ch_put_u64(struct str *s, u64 v);
void ch_put_string(struct str *s, const char *text, size_t n);
bool ch_get_string(struct buf *b, const char **ret, size_t *ret_n);
/* An array's length, when so many elements of at least that size can be there. */
bool ch_get_count(struct buf *b, size_t element, size_t *ret_n);
/* 'text', quoted. */
void ch_sql_string(struct str *s, const char *text);
/* 1,2,3 */
void ch_sql_ids(struct str *s, const u64 *ids, size_t n);
int ch_damaged_answer(struct diag *reterr_diag);

/* ---- schema.c ---- */

int ch_schema(struct ch *s, struct diag *reterr_diag);
/* "_local" for what ALTER and DROP are about in a cluster, else "". */
const char *ch_local(const struct ch *s);
/* " ON CLUSTER `name`" or "". Borrowed until the next call with the same str. */
const char *ch_on_cluster(const struct ch *s, struct str *scratch);

/* ---- write.c ---- */

int ch_write(struct store *base, const struct store_batch *b, const u8 token[16],
	     struct diag *reterr_diag);
/* All frames and functions of the batch, for good: of names that came late. */
int ch_send_frames(struct ch *s, const struct store_batch *b, struct diag *reterr_diag);
u32 ch_day_of(u64 time_ms);
u64 ch_day_begin_ms(u32 day);

/* ---- spans.c ---- */

int ch_write_spans(struct store *base, const struct spans *s, const u8 token[16],
		   struct diag *reterr_diag);
int ch_write_links(struct ch *s, const struct store_links *l, const u8 token[16],
		   struct diag *reterr_diag);
/* Answers: 0, or an error and the diag. */
int ch_read_spans(const struct str *answer, struct spans *into, struct diag *reterr_diag);
int ch_read_links(const struct str *answer, struct store_links *into, struct diag *reterr_diag);
int ch_find_spans(struct store *base, const struct store_span_filter *f, struct spans *ret,
		  struct diag *reterr_diag);
int ch_find_links(struct store *base, const struct store_link_filter *f, struct store_links *ret,
		  struct diag *reterr_diag);

struct ch_span_day {
	u32 day;
	u64 bytes, spans;
};

/* By day: what is too old, or too much, goes. */
int ch_drop_span_days(struct ch *s, struct ch_span_day *days, size_t n, u64 now_ms,
		      struct diag *reterr_diag);

/* ---- scan.c ---- */

/* " FROM samples WHERE ..."; ids: with those of the filter. */
int ch_put_where(struct ch *s, const struct store_filter *f, bool ids, struct str *sql,
		 struct diag *reterr_diag);
/* Answers: 0, or an error and the diag. */
int ch_read_rows(const struct str *answer, const struct store_filter *f, u32 by, u64 step_ms,
		 struct store_rows *ret, struct diag *reterr_diag);
int ch_read_series(const struct str *answer, struct store_series_set *ret,
		   struct diag *reterr_diag);
int ch_read_labels(const struct str *answer, struct profile *into, struct map *ret,
		   struct diag *reterr_diag);

int ch_scan(struct store *base, const struct store_filter *f, u32 by, u64 step_ms,
	    struct store_rows *ret, struct diag *reterr_diag);
int ch_find_series(struct store *base, const struct store_filter *f, struct store_series_set *ret,
		   struct diag *reterr_diag);

/* ---- load.c ---- */

void ch_cache_deinit(struct ch_cache *c);

int ch_load_stacks(struct store *base, const u64 *ids, size_t n, struct profile *into,
		   u32 *ret_stacks, struct diag *reterr_diag);

/* ---- names.c ---- */

int ch_find_stacks(struct store *base, const char *service,
		   bool (*accept)(void *userdata, const char *name), void *userdata,
		   struct store_ids *ret, struct diag *reterr_diag);
int ch_name_frames(struct store *base, const char *build_id,
		   int (*name)(void *userdata, u64 address, struct profile *into, u32 *ret_frames,
			       size_t max),
		   void *userdata, struct diag *reterr_diag);

/* ---- partitions.c ---- */

/* What is known of partitions, read again after half a minute or when `fresh`. */
int ch_partitions_get(struct ch *s, bool fresh, struct ch_partitions *ret,
		      struct diag *reterr_diag);
void ch_partitions_deinit(struct ch_partitions *p);
#define _cleanup_ch_partitions_ __attribute__((cleanup(ch_partitions_deinit)))
int ch_read_partitions(const struct str *answer, struct ch_partitions *ret,
		       struct diag *reterr_diag);
bool ch_is_hidden(const struct ch_partitions *p, const struct ch_partition *e);
/* The first day from this one on that takes samples. */
u32 ch_open_day(const struct ch_partitions *p, u32 day);
/* The next question reads them again. */
void ch_partitions_forget(struct ch *s);

/* ---- maintain.c ---- */

/* On disk, of all tables; in a cluster of one replica of each shard. */
int ch_bytes(struct ch *s, u64 *ret, struct diag *reterr_diag);
int ch_maintain(struct store *base, u64 now_ms, struct diag *reterr_diag);

/* ---- round.c ---- */

/* One step on the way of one day to where its age says it should be. parts: what there is. */
int ch_round(struct ch *s, const struct ch_partitions *known, const struct ch_partitions *parts,
	     u64 now_ms, struct diag *reterr_diag);
int ch_set_states(struct ch *s, const struct ch_partition *p, size_t n, struct diag *reterr_diag);
