/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the SQLite engine. Samples lie in one file, DIR/profiles.db, in WAL mode (the schema is in
 * sqlite.c, doc/format/block.md describes blocks); spans lie in another (spans.h).
 *
 * Every row has a dense number (n) beside its id. Blocks and rows refer to numbers only, which take
 * a byte or two where an id takes eight. While the store is open no number is given twice.
 *
 * Locks. A thread that holds a lock may take the locks below it, never one above:
 *
 *	maintain_lock	removal of blocks and of unreferenced rows
 *	write_lock	the writer's connection, `ids`, `next`, and every transaction that changes
 *			something
 *	list_lock	`entries`, `names`, `naming`. Held for writing around COMMIT, and for
 *			reading around the start of a reader's transaction, so that a reader copies
 *			the list of blocks of its own snapshot
 *	cache_lock	`cache`
 *	pool_lock	the idle readers, `damaged` and the counters below it
 */
#pragma once

#include <pthread.h>

#include "base/map.h"
#include "base/str.h"
#include "server/store/block.h"
#include "server/store/private.h"
#include "server/store/sqlite/conn.h"
#include "server/store/sqlite/load.h"
#include "server/store/sqlite/names.h"

#define SQ_FILE "profiles.db"
#define SQ_MAX_READERS 8 /* idle connections in the pool */
#define SQ_PAGE 4096
#define SQ_READER_BYTES (2u << 20) /* of a reader's page cache */
#define SQ_LOCKED_ROWS 16384	   /* that a reader looks up under cache_lock at once */

/* A block in the list: its row without its parts. */
struct sq_entry {
	s64 n;
	u32 service, type; /* numbers of names */
	u32 hour, level;   /* level: how often its rows were merged */
	u64 resolution;	   /* ms; 1 = times are not rounded */
	u64 first_ms, last_ms;
	u64 rows, samples;
	u64 bytes;
};

/* What a transaction changes in the list. */
struct sq_change {
	vec(struct sq_entry) added;
	vec(s64) removed;
	bool names; /* the transaction names frames */
};

void sq_change_deinit(struct sq_change *c);
#define _cleanup_sq_change_ __attribute__((cleanup(sq_change_deinit)))

/* One bit for each row with a number below the limit: set when a row or block refers to it. */
struct sq_marks {
	u8 *bits; /* owned; NULL = no collection is under way */
	s64 limit;
};

struct sq {
	struct store base;
	char *dir, *path; /* owned */
	int lock_fd;
	struct store_limits limits;

	pthread_mutex_t maintain_lock;
	pthread_mutex_t write_lock;
	struct sq_conn *writer;
	struct map ids[SQ_TABLES]; /* id → n, of rows in the database or in the transaction */
	bool complete[SQ_TABLES];  /* `ids` has all rows */
	s64 next[SQ_TABLES];	   /* the number of the next row */
	u32 names_saved;	   /* `names` below this number are in the database */
	u64 blocks_sum; /* the sum of sq_entry_sum() of all entries, as in the table `state` */
	int wal_pages;	/* pages in the log */
	u32 no_pages;	/* successive writes for which sq_is_no_page() was true */
	struct sq_marks marks[SQ_TABLES];
	u64 evicted_since_gc; /* rows; under maintain_lock */
	bool names_to_sweep;  /* some names may have no block; under maintain_lock */

	pthread_rwlock_t list_lock;
	vec(struct sq_entry) entries;
	u64 naming;		/* transactions that named frames so far: tells snapshots apart */
	struct sq_names *names; /* owned; of services and types */

	pthread_mutex_t cache_lock;
	struct sq_cache cache;

	pthread_mutex_t pool_lock;
	struct sq_conn *pool;
	u32 n_pool;
	struct map damaged;  /* damaged blocks, by n */
	u64 damaged_rows;    /* damaged rows of dictionaries */
	u32 generation;	     /* counts the files: a repair replaces the file */
	u64 damaged_files;   /* files that repairs moved aside */
	u64 damaged_ms;	     /* when the last file was moved aside: older samples may be missing */
	_Atomic bool broken; /* pages or rows are damaged: sq_maintain() repairs the store */
	u64 evicted_rows;

	struct sq_spans *spans; /* owned; spans.h */
};

static inline struct sq *sq_of(struct store *s)
{
	return container_of(s, struct sq, base);
}

/* ---- sqlite.c: the file, transactions ---- */

extern const char *const sq_table_names[SQ_TABLES];
extern const char sq_schema[];

/* Opens the file, or creates it. */
int sq_open_file(struct sq *s, struct diag *reterr_diag);
/* keep_log: closes without a checkpoint, so that the files stay as they are. */
void sq_close_file(struct sq *s, bool keep_log);

/* Under write_lock. */
int sq_begin(struct sq *s, struct diag *reterr_diag);
/* Commits if r is 0, else rolls back. Returns r, or the error of the commit, which rolls back. */
int sq_end(struct sq *s, int r, struct sq_change *c, struct diag *reterr_diag);
/* Empties `ids`. */
void sq_forget_ids(struct sq *s);

/* Reads the current row of SQL_NEXT_BLOCKS. */
struct sq_entry sq_entry_of(sqlite3_stmt *st);
/* Writes the one row of `state`. */
int sq_put_state(struct sq_conn *c, const s64 next[SQ_TABLES], u64 blocks);
/* Checksums of a row in `names`, of an entry, and of a part of block n. */
u64 sq_name_sum(u32 n, const void *name, size_t size);
u64 sq_entry_sum(const struct sq_entry *e);
u64 sq_part_sum(s64 n, const void *data, size_t size);

/* Notes that a block cannot be read; merging leaves it alone from then on. */
void sq_note_damaged_block(struct sq *s, s64 n);
/* Notes a damaged row of a dictionary, or a damaged page: the store will be repaired. */
void sq_note_damaged_row(struct sq *s);

/* ---- write.c: the caller is in a transaction ---- */

/* Returns the number of a frame of the batch's profile. Adds the frame if it is new. */
int sq_add_frame(struct sq *s, const struct store_batch *b, u32 frame, s64 *ret_n,
		 struct diag *reterr_diag);
/* Adds a block to the database and to the change. e: service, type, hour, level, resolution. */
int sq_add_block(struct sq *s, const struct sq_entry *e, const struct block_parts *p,
		 struct sq_change *c, struct diag *reterr_diag);

/* ---- backup.c ---- */

/* Copies the database that the connection reads to a new file, and syncs it. */
int sq_copy_database(struct sq_conn *from, const char *to, const struct store_progress *progress,
		     struct diag *reterr_diag);
/* Before a file of an older version is updated: copies it to profiles.db.version-N. */
int sq_keep_version(struct sq *s, s64 version, struct diag *reterr_diag);
int sq_backup(const char *where, const char *to, const struct store_progress *progress,
	      struct diag *reterr_diag);
int sq_restore(const char *from, const char *where, const struct store_progress *progress,
	       struct diag *reterr_diag);

/* ---- operations of the engine ---- */

int sq_write(struct store *base, const struct store_batch *b, const u8 token[16],
	     struct diag *reterr_diag);
int sq_load_stacks(struct store *base, const u64 *ids, size_t n, struct profile *into,
		   u32 *ret_stacks, struct diag *reterr_diag);
int sq_name_frames(struct store *base, const char *build_id,
		   int (*name)(void *userdata, u64 address, struct profile *into, u32 *ret_frames,
			       size_t max),
		   void *userdata, struct diag *reterr_diag);
int sq_unname_frames(struct store *base, const char *build_id, struct diag *reterr_diag);
int sq_scan(struct store *base, const struct store_filter *f, u32 by, u64 step_ms,
	    struct store_rows *ret, struct diag *reterr_diag);
int sq_find_series(struct store *base, const struct store_filter *f, struct store_series_set *ret,
		   struct diag *reterr_diag);
int sq_maintain(struct store *base, u64 now_ms, struct diag *reterr_diag);
