/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the ClickHouse engine: SQL over ClickHouse's HTTP interface, rows in RowBinary. The schema
 * is in schema.c. Any number of culprit servers may use one database at once. There are no locks in
 * the database; a row that two servers write counts once.
 *
 * ClickHouse servers that know insert_deduplication_token (22.2 and later) are "modern". Older ones
 * (from 18.16 on) get tables without codecs. group.c writes requests in groups, each request once.
 *
 * Samples lie in partitions (day, resolution, run). New samples have resolution 1 and run 0. To
 * round a day, a server writes its samples again, into a partition of the coarser resolution and
 * with a run number of its own (round.c). The table `partitions` has the state of each partition;
 * its rows are only added, and a partition's state only grows (enum ch_state). So every reader sees
 * a day either before or after its rounding, even if the server dies half-way.
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
#define CH_SPAN_MARKER "255" /* the kind of a marker in `spans` */
#define CH_RAW 1	     /* the resolution of samples that were not rounded, in ms */
/* The time of a sample. The projections (schema.c) have its smallest and largest by this text. */
#define CH_TIME_MS "toUInt64(hour) * 3600000 + at"

struct ch_config {
	char *hosts[CH_MAX_HOSTS]; /* owned: "http://HOST:PORT/" */
	size_t n_hosts;
	char *user, *password;	       /* owned; the password is never printed */
	char *database, *cluster, *ca; /* owned; cluster NULL = one node */
	bool tls, compress, first_replica;
	u64 timeout_ms, retry_ms, grace_ms;
};

/* Dictionaries. A server sends each row once a month. */
enum ch_table { CH_SERIES, CH_FUNCTIONS, CH_FRAMES, CH_STACKS, CH_TABLES };

/* In the order of a partition's life. */
enum ch_state {
	CH_MAKING = 1, /* a server is writing the partition, which is not visible yet */
	CH_OPEN,       /* visible; the state of every partition without a row in the table, too */
	CH_CLOSING,    /* visible, and closed for new samples */
	CH_SUPERSEDED, /* not visible any more */
	CH_GONE,       /* dropped */
};

struct ch_partition {
	u32 day; /* 20241231 */
	u32 resolution, run;
	u8 state;
	u64 at_ms; /* when the partition entered the state */
};

struct ch_partitions {
	vec(struct ch_partition) list;
};

/* The day that this server is rounding. */
struct ch_rounding {
	struct ch_partition from, to; /* to.run 0: no day */
	u64 next_hour;		      /* the hours before this one were written */
	bool written;
};

/* Loaded stacks, interned in one profile. */
struct ch_cache {
	struct profile *profile; /* owned */
	struct map stacks;	 /* id → id in the profile */
	u64 names;		 /* rows of the table `names` when the stacks were loaded */
	u64 created_ns;		 /* monotonic */
};

struct ch;

/* Tables to which the rows of a request are written once. */
enum ch_once { CH_SAMPLES, CH_LINKS, CH_SPANS, CH_ONCE };

/* A thread that writes; on its stack. */
struct ch_writer {
	pthread_cond_t wake;
	size_t waiting, left; /* members in the queue, and those that are not written yet */
	bool leads;
};

/* A batch or the spans of a request, which are being written; its writer's. */
struct ch_member {
	const struct store_batch *batch; /* borrowed; or */
	const struct spans *spans;	 /* borrowed */
	const u8 *key; /* 16 bytes that are the same when it comes again; or NULL */
	u64 token;     /* hash of the key */
	u64 newest_ms; /* its newest sample or span */
	u32 day;
	bool fresh;	      /* cannot have been written before */
	bool stored[CH_ONCE]; /* these tables have its rows */
	size_t bytes;	      /* about the size of its rows */
	int r;		      /* the result; `diag` has a text if negative */
	struct diag diag;
	/* group.c's: */
	struct ch_member *next;
	struct ch_writer *writer;
};

/* Requests that wait to be written together. */
struct ch_queue {
	enum ch_once table; /* the last one that `write` writes */
	int (*write)(struct ch *s, struct ch_member *const *m, size_t n, struct diag *reterr_diag);
	pthread_mutex_t lock;
	struct ch_member *first, **last;
	size_t writers;	     /* with members that wait */
	size_t bytes;	     /* of members that wait or are being written */
	size_t last_writers; /* in the last group */
	bool has_leader;
	u64 began_ns, joined_ns; /* the last group's begin, the last writer's arrival */
	struct map writing;	 /* tokens of current writes: one thread at a time writes a token */
	pthread_cond_t token_done;
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
	size_t host;			  /* index in config.hosts of the last host that answered */
	size_t next_host;		  /* of a query that any replica may answer */
	u64 avoid_until_ms[CH_MAX_HOSTS]; /* monotonic */

	pthread_mutex_t sent_lock;
	struct map sent[CH_TABLES]; /* id → the month in which it was last sent */

	struct ch_queue profiles, spans;

	pthread_mutex_t cache_lock;
	struct ch_cache cache;

	/* The maintainer's: */
	struct ch_rounding rounding;
	u64 symbols, symbols_until_ns; /* rows of the table `symbols`; when to look again */
	u64 names_until_ns;	       /* when to look for names that are not needed any more */
	u32 names_month;	       /* the month to which late symbols were copied */

	pthread_mutex_t state_lock;
	struct ch_partitions partitions;
	u64 partitions_ms; /* when `partitions` was read, monotonic; 0 = never */
	u64 evicted_rows, evicted_spans;
	struct store_stats stats; /* the result of the last count */
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
	const char *token;	/* the token of an INSERT on a modern server, or NULL */
	u64 timeout_ms;		/* 0 = the configured timeout */
	bool once;		/* do not retry */
	bool again;		/* write the rows of an INSERT even if an equal one was written */
	bool any_replica;	/* a query whose answer may be some seconds behind */
	bool no_database;	/* send no database name: the database may not exist yet */
};

/* where: the URL after "clickhouse://". */
int ch_config_parse(const char *where, struct ch_config *ret, struct diag *reterr_diag);
void ch_config_deinit(struct ch_config *c);
/* store_each_file() */
void ch_each_file(const char *where, void (*file)(void *arg, const char *path), void *arg);
/*
 * Runs a statement; ret (may be NULL) gets the answer. If no answer or a transient error comes, it
 * tries the next host, for config.retry_ms in total, and then fails with -EAGAIN. Other errors:
 * -ENOSPC; -ENOENT (no such table or database) and -EACCES (user refused) while the store
 * is being opened, -EAGAIN instead of both later; -EIO for any other error.
 */
int ch_run(struct ch *s, const struct ch_request *q, struct str *ret, struct diag *reterr_diag);
int ch_select(struct ch *s, const char *sql, struct str *ret, struct diag *reterr_diag);
/* Any replica may answer: for queries that read much. In a cluster they miss the newest rows. */
int ch_select_anywhere(struct ch *s, const char *sql, struct str *ret, struct diag *reterr_diag);
void ch_disconnect(struct ch *s);

/* ---- rows.c: RowBinary and literals ---- */

void ch_put_u8(struct str *s, u8 v);
void ch_put_u32(struct str *s, u32 v);
void ch_put_u64(struct str *s, u64 v);
void ch_put_string(struct str *s, const char *text, size_t n);
/* Writes a string of a profile. */
void ch_put_text(struct str *s, const struct profile *p, u32 id);
/* The string is borrowed from the buffer. */
bool ch_get_string(struct buf *b, const char **ret, size_t *ret_n);
/* Reads the length of an array whose elements take at least `element` bytes each. */
bool ch_get_count(struct buf *b, size_t element, size_t *ret_n);
/* Reads a string into a profile. Returns 0, -EBADMSG or -ENOMEM. */
int ch_get_text(struct buf *b, struct profile *into, u32 *ret);
/* Reads labels: an array of names, then an array of as many values. */
int ch_get_labels(struct buf *b, struct profile *into, struct profile_label *labels, size_t max,
		  size_t *ret_n);
/* An id must be a valid key of struct map: not 0 and not one of the two largest numbers. */
static inline bool ch_is_id(u64 id)
{
	return id - 1 < MAP_GONE_KEY - 1;
}
/* Writes 'text' with escapes. */
void ch_sql_string(struct str *s, const char *text);
/* Writes 1,2,3. */
void ch_sql_ids(struct str *s, const u64 *ids, size_t n);
/* -EIO: ClickHouse's answer cannot be parsed. */
int ch_damaged_answer(struct diag *reterr_diag);

/* ---- schema.c ---- */

int ch_schema(struct ch *s, struct diag *reterr_diag);
/* The suffix of tables in ALTER and DROP: "_local" in a cluster, else "". */
const char *ch_local(const struct ch *s);
/* " ON CLUSTER `name`" or "". Borrowed until the next call with the same str. */
const char *ch_on_cluster(const struct ch *s, struct str *scratch);

/* ---- group.c ---- */

/* How the rows of requests get into a table, and are found there. */
struct ch_insert {
	enum ch_once table;
	const char *sql;
	/* Appends all rows of a request and its marker. slot: the value of the column `batch`. */
	void (*put_rows)(const struct ch_member *m, u64 slot, struct str *rows);
	/* Appends a query for the tokens of those requests that have a marker. */
	void (*put_find)(struct ch_member *const *m, size_t n, struct str *sql);
};

void ch_queue_init(struct ch_queue *q, enum ch_once table,
		   int (*write)(struct ch *s, struct ch_member *const *m, size_t n,
				struct diag *reterr_diag));
void ch_queue_deinit(struct ch_queue *q);
/* Writes members together with those of other writers; returns after that. Sets their results. */
void ch_write_grouped(struct ch *s, struct ch_queue *q, struct ch_member *m, size_t n);
/* Sets `stored` of the requests that the table has. */
int ch_find_stored(struct ch *s, const struct ch_insert *t, struct ch_member *const *m, size_t n,
		   struct diag *reterr_diag);
/* Writes the requests that are not stored yet, in one INSERT. */
int ch_insert_group(struct ch *s, const struct ch_insert *t, struct ch_member *const *m, size_t n,
		    struct diag *reterr_diag);

/* ---- write.c ---- */

int ch_write(struct store *base, const struct store_batch *b, const u8 token[16],
	     struct diag *reterr_diag);
void ch_write_all(struct store *base, struct store_request *list, size_t n);
/* The `write` of the queue `profiles`. */
int ch_write_profiles(struct ch *s, struct ch_member *const *m, size_t n, struct diag *reterr_diag);
/* For late symbols: sends all frames and functions of the batch, which are in no stack. */
int ch_send_frames(struct ch *s, const struct store_batch *b, struct diag *reterr_diag);
/* Days are numbers like 20241231, in UTC. */
u32 ch_day_of(u64 time_ms);
u64 ch_day_begin_ms(u32 day);

/* ---- spans.c ---- */

int ch_write_spans(struct store *base, const struct spans *s, const u8 token[16],
		   struct diag *reterr_diag);
/* The `write` of the queue `spans`. */
int ch_write_span_group(struct ch *s, struct ch_member *const *m, size_t n,
			struct diag *reterr_diag);
/* Writes the links of the requests. */
int ch_write_links(struct ch *s, struct ch_member *const *m, size_t n, struct diag *reterr_diag);
/* These parse an answer. They return 0, or a negative errno and the diag. */
int ch_read_spans(const struct str *answer, struct spans *into, struct diag *reterr_diag);
int ch_read_links(const struct str *answer, struct store_links *into, struct diag *reterr_diag);
int ch_find_spans(struct store *base, const struct store_span_filter *f, struct spans *ret,
		  struct diag *reterr_diag);
int ch_find_links(struct store *base, const struct store_link_filter *f, struct store_links *ret,
		  struct diag *reterr_diag);

struct ch_span_day {
	u32 day;
	u64 bytes;
};

/* Drops days that are too old, and then the oldest until the rest fits. days: sorted. */
int ch_drop_span_days(struct ch *s, struct ch_span_day *days, size_t n, u64 now_ms,
		      struct diag *reterr_diag);

/* ---- scan.c ---- */

/* Appends " FROM samples WHERE ...". ids: also selects the filter's series and stacks. */
int ch_put_where(struct ch *s, const struct store_filter *f, bool ids, struct str *sql,
		 struct diag *reterr_diag);
/* These parse an answer. They return 0, or a negative errno and the diag. */
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
int ch_unname_frames(struct store *base, const char *build_id, struct diag *reterr_diag);

/* Appends the ids that a query returns, with commas. */
int ch_list_ids(struct ch *s, const char *sql, struct str *ret, size_t *ret_n,
		struct diag *reterr_diag);

/* ---- retain.c ---- */

/* Copies those rows of frames or functions to a month that it lacks. */
int ch_copy_to_month(struct ch *s, enum ch_table t, u32 month, const char *where,
		     struct diag *reterr_diag);
/* Drops late symbols that name nothing any more, and keeps the others. */
int ch_retain_names(struct ch *s, struct diag *reterr_diag);

/* ---- agents.c ---- */

int ch_share_reports(struct store *base, const struct store_reports *reports,
		     struct diag *reterr_diag);
int ch_find_reports(struct store *base, u64 since_ms, struct store_reports *ret,
		    struct diag *reterr_diag);
/* Parses an answer. Returns 0, or a negative errno and the diag. */
int ch_read_reports(const struct str *answer, struct store_reports *ret, struct diag *reterr_diag);

/* ---- symbols.c ---- */

int ch_note_symbols(struct store *base, const struct store_symbol *list, size_t n,
		    struct diag *reterr_diag);
int ch_find_symbols(struct store *base, u64 *rows, struct store_symbols *ret,
		    struct diag *reterr_diag);
/* Parses an answer. Returns 0, or a negative errno and the diag. */
int ch_read_symbols(const struct str *answer, struct store_symbols *ret, struct diag *reterr_diag);
int ch_write_symbol_part(struct store *base, u64 file, u32 part, const void *data, size_t n,
			 struct diag *reterr_diag);
int ch_read_symbol_part(struct store *base, u64 file, u32 part,
			void (*take)(void *userdata, const void *data, size_t n), void *userdata,
			struct diag *reterr_diag);
/* Drops the content of files that are not used any more. */
int ch_drop_symbols(struct ch *s, struct diag *reterr_diag);

/* ---- partitions.c ---- */

/* Copies the table `partitions`, which is read again every half minute, or if `fresh`. */
int ch_partitions_get(struct ch *s, bool fresh, struct ch_partitions *ret,
		      struct diag *reterr_diag);
void ch_partitions_deinit(struct ch_partitions *p);
#define _cleanup_ch_partitions_ __attribute__((cleanup(ch_partitions_deinit)))
int ch_read_partitions(const struct str *answer, struct ch_partitions *ret,
		       struct diag *reterr_diag);
/* Whether queries leave the partition out. */
bool ch_is_hidden(const struct ch_partitions *p, const struct ch_partition *e);
/* Returns NULL if the partition has no row in the table. */
const struct ch_partition *ch_find_partition(const struct ch_partitions *p, u32 day, u32 resolution,
					     u32 run);
/* Returns `day` or the first later day that is open for samples. */
u32 ch_open_day(const struct ch_partitions *p, u32 day);
/* Makes the next ch_partitions_get() read the table. */
void ch_partitions_forget(struct ch *s);

/* ---- maintain.c ---- */

/* Appends system.parts with a WHERE clause; in a cluster, of one replica per shard. */
void ch_put_parts(const struct ch *s, struct str *sql);
/* Returns the bytes on disk of all tables; in a cluster, of one replica per shard. */
int ch_bytes(struct ch *s, u64 *ret, struct diag *reterr_diag);
/*
 * Whether this node may lack rows of a table of which every node has all rows: what the table does
 * not name is not to be dropped then.
 */
int ch_is_behind(struct ch *s, const char *table, bool *ret, struct diag *reterr_diag);
/* Whether this node is deleting rows of a table in the background. */
int ch_is_deleting(struct ch *s, const char *table, bool *ret, struct diag *reterr_diag);
/* Counts the rows of "TABLE WHERE CONDITION". */
int ch_count(struct ch *s, const char *from, u64 *ret, struct diag *reterr_diag);
int ch_maintain(struct store *base, u64 now_ms, struct diag *reterr_diag);

/* ---- round.c ---- */

/* Takes one step of rounding a day. known: the table `partitions`; parts: existing partitions. */
int ch_round(struct ch *s, const struct ch_partitions *known, const struct ch_partitions *parts,
	     u64 now_ms, struct diag *reterr_diag);
int ch_set_states(struct ch *s, const struct ch_partition *p, size_t n, struct diag *reterr_diag);
