/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the SQLite engine. One file, DIR/profiles.db, in WAL mode; the schema is in sqlite.c.
 *
 * Everything has a dense number (n) beside its id, and only numbers are in blocks: they take a byte
 * or two where an id takes eight. Numbers are not used twice while the store is open.
 *
 * Who holds what:
 *	maintain_lock	removing blocks and what nobody refers to
 *	write_lock	the writer's connection, `ids`, `next`; all transactions that change
 *			anything
 *	list_lock	`entries`, `names`, `naming`: taken for writing around COMMIT, for reading
 *			around the start of a reader's transaction, so that a reader's list of
 *			blocks is exactly what is in its snapshot
 *	cache_lock	`cache`
 *	pool_lock	the readers that nobody uses, `damaged`
 *
 * Locks are taken in this order; list_lock and those below it are never held while waiting for
 * write_lock.
 */
#pragma once

#include <pthread.h>
#include <sqlite3.h>

#include "base/map.h"
#include "base/str.h"
#include "server/store/block.h"
#include "server/store/private.h"
#include "server/store/store.h"

#define SQ_FILE "profiles.db"
#define SQ_MAX_READERS 8
#define SQ_PAGE 4096

enum sq_table { SQ_SERIES, SQ_MAPPINGS, SQ_FUNCTIONS, SQ_FRAMES, SQ_STACKS, SQ_BLOCKS, SQ_TABLES };

/* An index may lie after damage: the row must have the id. */
#define SQ_BY_ID(table)                                                                            \
	"SELECT t.n FROM " table " AS i CROSS JOIN " table " AS t ON t.n=i.n "                     \
	"WHERE i.id=?1 AND +t.id=?1"

/* Statements, each prepared once a connection. SQ(NAME, text) */
#define SQ_STATEMENTS(SQ)                                                                          \
	SQ(BEGIN, "BEGIN")                                                                         \
	SQ(BEGIN_WRITE, "BEGIN IMMEDIATE")                                                         \
	SQ(COMMIT, "COMMIT")                                                                       \
	SQ(ROLLBACK, "ROLLBACK")                                                                   \
	SQ(PIN, "SELECT 1 FROM sqlite_schema LIMIT 1")                                             \
	SQ(FIND_SERIES, SQ_BY_ID("series"))                                                        \
	SQ(FIND_MAPPING, SQ_BY_ID("mappings"))                                                     \
	SQ(FIND_FUNCTION, SQ_BY_ID("functions"))                                                   \
	SQ(FIND_FRAME, SQ_BY_ID("frames"))                                                         \
	SQ(FIND_STACK, SQ_BY_ID("stacks"))                                                         \
	SQ(ADD_NAME, "INSERT INTO names(n,name,sum) VALUES(?,?,?)")                                \
	SQ(ADD_SERIES, "INSERT INTO series(n,id,labels) VALUES(?,?,?)")                            \
	SQ(ADD_MAPPING, "INSERT INTO mappings(n,path,build_id,id) VALUES(?,?,?,?)")                \
	SQ(ADD_FUNCTION, "INSERT INTO functions(n,id,name,system_name,file,start_line) "           \
			 "VALUES(?,?,?,?,?,?)")                                                    \
	SQ(ADD_FRAME, "INSERT INTO frames(n,id,kind,flags,mapping,address,function,line,col) "     \
		      "VALUES(?,?,?,?,?,?,?,?,?)")                                                 \
	SQ(ADD_STACK, "INSERT INTO stacks(n,id,frames) VALUES(?,?,?)")                             \
	SQ(ADD_BLOCK, "INSERT INTO blocks(n,service,type,hour,level,resolution,first,last,rows,"   \
		      "samples,sum,series_sum,stacks_sum,body_sum,series,stacks,body) "            \
		      "VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)")                                 \
	SQ(DEL_BLOCK, "DELETE FROM blocks WHERE n=?")                                              \
	SQ(SET_STATE, "INSERT OR REPLACE INTO state(k,next,blocks,sum) VALUES(0,?,?,?)")           \
	SQ(INDEX_SERIES, "SELECT n FROM series WHERE id=?")                                        \
	SQ(INDEX_STACK, "SELECT n FROM stacks WHERE id=?")                                         \
	SQ(FIND_TOKEN, "SELECT 1 FROM tokens WHERE token=?")                                       \
	SQ(ADD_TOKEN, "INSERT INTO tokens(token,ms) VALUES(?,?)")                                  \
	SQ(DEL_TOKENS, "DELETE FROM tokens WHERE ms<?")                                            \
	SQ(GET_SERIES, "SELECT id,labels FROM series WHERE n=?")                                   \
	SQ(GET_MAPPING, "SELECT path,build_id FROM mappings WHERE n=?")                            \
	SQ(GET_FUNCTION, "SELECT id,name,system_name,file,start_line FROM functions WHERE n=?")    \
	SQ(GET_FRAME, "SELECT id,kind,flags,mapping,address,function,line,col,named FROM frames "  \
		      "WHERE n=?")                                                                 \
	SQ(GET_STACK, "SELECT id,frames FROM stacks WHERE n=?")                                    \
	SQ(GET_BLOCK_SERIES, "SELECT series_sum,series FROM blocks WHERE n=?")                     \
	SQ(GET_BLOCK_STACKS, "SELECT stacks_sum,stacks FROM blocks WHERE n=?")                     \
	SQ(GET_BLOCK_BODY, "SELECT body_sum,body FROM blocks WHERE n=?")                           \
	SQ(BUILD_MAPPINGS, "SELECT n,path FROM mappings WHERE build_id=?")                         \
	/* In the words of the index frames_nameless. */                                           \
	SQ(NAMELESS_FRAMES, "SELECT n,id,address FROM frames WHERE mapping=? AND kind=? "          \
			    "AND function=0 AND named IS NULL AND flags=0 AND n>? "                \
			    "ORDER BY n LIMIT ?")                                                  \
	SQ(NAME_FRAME, "UPDATE frames SET named=? WHERE n=? AND id=? AND named IS NULL")           \
	/* Of spans.db. */                                                                         \
	SQ(ADD_SPAN_BLOCK, "INSERT INTO span_blocks(kind,hour,thinned,first,last,rows,bytes,sum,"  \
			   "filter,a,b) VALUES(?,?,?,?,?,?,?,?,?,?,?)")                            \
	SQ(DEL_SPAN_BLOCK, "DELETE FROM span_blocks WHERE n=?")                                    \
	SQ(GET_SPAN_BLOCK, "SELECT kind,hour,thinned,first,last,rows,bytes,sum,filter,a,b "        \
			   "FROM span_blocks WHERE n=?")                                           \
	SQ(LIST_SPAN_BLOCKS, "SELECT n,kind,hour,thinned,first,last,rows,bytes FROM span_blocks "  \
			     "WHERE kind=? AND first<? AND last>=? ORDER BY hour,n")               \
	SQ(NEXT_BLOCKS, "SELECT n,service,type,hour,level,resolution,first,last,rows,samples,sum," \
			"length(series)+length(stacks)+length(body) FROM blocks WHERE n>=? "       \
			"ORDER BY n")

enum sq_statement {
#define SQ_ENUM(name, text) SQL_##name,
	SQ_STATEMENTS(SQ_ENUM)
#undef SQ_ENUM
		SQL_N,
};

struct sq_conn {
	sqlite3 *db;
	sqlite3_stmt *statements[SQL_N];
	struct sq_conn *next; /* in the pool */
	u32 generation;	      /* of the file that it has open */
	bool full;	      /* the last error was SQLITE_FULL */
};

/* What is known of a block without reading it. */
struct sq_entry {
	s64 n;
	u32 service, type; /* of names */
	u32 hour, level;
	u64 resolution; /* ms; 1 = as they came */
	u64 first_ms, last_ms;
	u64 rows, samples;
	u64 bytes;
};

/* What a transaction does to the list. */
struct sq_change {
	vec(struct sq_entry) added;
	vec(s64) removed;
	bool names; /* frames get the names that they have from now on */
};

void sq_change_deinit(struct sq_change *c);
#define _cleanup_sq_change_ __attribute__((cleanup(sq_change_deinit)))

/* A frame that was loaded: the one of the profile that it is, or those that it was named. */
struct sq_frame {
	u64 id;
	u32 first, n; /* of sq_cache.reals */
};

struct sq_stack {
	u64 id;
	u32 stack; /* in the profile */
};

/* Stacks as they were loaded, interned in one profile. */
struct sq_cache {
	struct profile *profile; /* owned */
	struct map functions;	 /* n → id in the profile */
	vec(u64) function_ids;	 /* by id in the profile */
	struct map frames;	 /* n → position in: */
	vec(struct sq_frame) frame_list;
	vec(u32) reals;	   /* frames of the profile */
	struct map stacks; /* n → position in: */
	vec(struct sq_stack) stack_list;
	struct map stack_ids; /* id → position */
	struct map series;    /* n → id */
	u64 naming;	      /* of the snapshot that all of it was read in: see struct sq */
};

/* Of rows with a number below the limit: which are still referred to. */
struct sq_marks {
	u8 *bits; /* owned; NULL = nobody collects */
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
	struct map ids[SQ_TABLES]; /* id → n of what is in the database, or in the transaction */
	bool complete[SQ_TABLES];  /* ids has all there is */
	s64 next[SQ_TABLES];
	u32 names_saved;
	u64 blocks_sum; /* of all entries, as in the table `state` */
	int wal_pages;
	u32 no_pages; /* writes in a row: see sq_is_no_page() */
	struct sq_marks marks[SQ_TABLES];
	u64 evicted_since_gc; /* rows; of the thread that maintains */

	pthread_rwlock_t list_lock;
	vec(struct sq_entry) entries;
	u64 naming;	     /* how often frames were named: snapshots before and after differ */
	struct strtab names; /* of services and types; their id is their n */

	pthread_mutex_t cache_lock;
	struct sq_cache cache;

	pthread_mutex_t pool_lock;
	struct sq_conn *pool;
	u32 n_pool;
	struct map damaged;  /* blocks by n */
	u64 damaged_rows;    /* of dictionaries */
	u32 generation;	     /* of the file; it is another after a repair */
	u64 damaged_files;   /* that were moved aside, and */
	u64 damaged_ms;	     /* when the last one was: what is older may be missing */
	_Atomic bool broken; /* pages or rows are damaged: maintain() repairs it */
	u64 evicted_rows;

	struct sq_spans *spans; /* spans.h; owned */
};

static inline struct sq *sq_of(struct store *s)
{
	return container_of(s, struct sq, base);
}

/* ---- conn.c: connections, statements, errors ---- */

int sq_connect(const char *path, bool writer, struct diag *reterr_diag, struct sq_conn **ret);
void sq_disconnect(struct sq_conn *c);
/* Ready to bind; NULL when it cannot be prepared (sq_error() tells why). */
sqlite3_stmt *sq_get(struct sq_conn *c, enum sq_statement which);
/* Runs one without rows. */
int sq_run(struct sq_conn *c, enum sq_statement which);
/* SQLite's last error as a negative errno, with its text. -EBADMSG is damage. */
int sq_error(struct sq_conn *c, const char *what, struct diag *reterr_diag);
static inline bool sq_is_damage(int r)
{
	return r == -EBADMSG;
}

/* The first column of the first row; 0 or -EIO. */
int sq_number(struct sq_conn *c, const char *text, s64 *ret);

int sq_reader_get(struct sq *s, struct diag *reterr_diag, struct sq_conn **ret);
void sq_reader_put(struct sq *s, struct sq_conn *c);
void sq_note_damage(struct sq *s, s64 block);
/* Of a dictionary, or of SQLite's own: the store is to be repaired. */
void sq_note_damaged_row(struct sq *s);

/* ---- sqlite.c ---- */

/* Under write_lock. */
int sq_begin(struct sq *s, struct diag *reterr_diag);
int sq_commit(struct sq *s, struct sq_change *c, struct diag *reterr_diag);
void sq_rollback(struct sq *s);
void sq_forget_ids(struct sq *s);
extern const char *const sq_table_names[SQ_TABLES];
extern const char sq_schema[];
/* Opens what is there, or creates it. close: keep_log leaves all as it is on disk. */
int sq_open_file(struct sq *s, struct diag *reterr_diag);
void sq_close_file(struct sq *s, bool keep_log);
struct sq_entry sq_entry_of(sqlite3_stmt *next_blocks);
u64 sq_name_sum(u32 n, const void *name, size_t size);
/* The one row of `state`. */
int sq_put_state(struct sq_conn *c, const s64 next[SQ_TABLES], u64 blocks);
u64 sq_entry_sum(const struct sq_entry *e);
u64 sq_part_sum(s64 n, const void *data, size_t size);

/* ---- write.c ---- */

int sq_write(struct store *base, const struct store_batch *b, const u8 token[16],
	     struct diag *reterr_diag);
/* In a transaction: the number of a frame of the batch's profile, which is added if it is new. */
int sq_add_frame(struct sq *s, const struct store_batch *b, u32 frame, s64 *ret_n,
		 struct diag *reterr_diag);
/* Adds to the transaction and to the change. e: service, type, hour, level, resolution. */
int sq_add_block(struct sq *s, const struct sq_entry *e, const struct block_parts *p,
		 struct sq_change *c, struct diag *reterr_diag);

/* ---- load.c: the dictionaries ---- */

int sq_load_stacks(struct store *base, const u64 *ids, size_t n, struct profile *into,
		   u32 *ret_stacks, struct diag *reterr_diag);
/* The id of a stack or series: -ENOENT, or -EBADMSG for damage. Under cache_lock. */
int sq_stack_id(struct sq *s, struct sq_conn *c, u32 n, u64 *ret);
int sq_series_id(struct sq *s, struct sq_conn *c, u32 n, u64 *ret);
/* Whether the index (SQL_INDEX_*) agrees on a row's number, which is in no hash. */
bool sq_number_is_right(struct sq_conn *c, enum sq_statement index, u64 id, s64 n);
/* Under write_lock: whether a row is what its id says. -EBADMSG: not, and it will be repaired. */
int sq_check_row(struct sq *s, enum sq_table table, s64 n, u64 id);
/* Reads the labels of a series; -ENOENT, or -EBADMSG for damage. */
int sq_series_resource(struct sq_conn *c, u32 n, struct profile *into, u64 *ret_id,
		       u32 *ret_resource);
int sq_cache_trim(struct sq *s, u64 naming);
void sq_cache_deinit(struct sq_cache *c);
/* What stands in `named`: a sum over the frame's id and the list, and the list of numbers. */
u64 sq_named_sum(u64 id, const void *list, size_t size);

/* ---- name.c ---- */

int sq_name_frames(struct store *base, const char *build_id,
		   int (*name)(void *userdata, u64 address, struct profile *into, u32 *ret_frames,
			       size_t max),
		   void *userdata, struct diag *reterr_diag);

/* ---- scan.c ---- */

/* A reader's transaction and the blocks in it that a filter may want. */
struct sq_view {
	struct sq *s;
	struct sq_conn *c;
	u64 naming;
	vec(struct sq_entry) entries;
};

/* A reader's transaction; ret_naming says which names it sees. */
int sq_snapshot(struct sq *s, struct sq_conn *c, u64 *ret_naming, struct diag *reterr_diag);

int sq_view_open(struct sq *s, const struct store_filter *f, struct diag *reterr_diag,
		 struct sq_view *ret);
void sq_view_close(struct sq_view *v);
#define _cleanup_sq_view_ __attribute__((cleanup(sq_view_close)))

enum sq_part { SQ_PART_SERIES, SQ_PART_STACKS, SQ_PART_BODY };
/* Borrowed until the same part is read again. -EBADMSG for damage, which is noted. */
int sq_read_part(struct sq *s, struct sq_conn *c, s64 n, enum sq_part part, const u8 **ret,
		 size_t *ret_n);
int sq_open_block(struct sq *s, struct sq_conn *c, s64 n, struct block_cursor *ret);
int sq_scan(struct store *base, const struct store_filter *f, u32 by, u64 step_ms,
	    struct store_rows *ret, struct diag *reterr_diag);
int sq_find_series(struct store *base, const struct store_filter *f, struct store_series_set *ret,
		   struct diag *reterr_diag);

/* ---- maintain.c ---- */

int sq_maintain(struct store *base, u64 now_ms, struct diag *reterr_diag);
/* The part of it that makes the files smaller, now. */
int sq_make_smaller(struct sq *s, struct diag *reterr_diag);

/* ---- collect.c ---- */

int sq_collect_dictionaries(struct sq *s, struct diag *reterr_diag);
/* Under write_lock: a row is referred to by what is being written. */
void sq_mark(struct sq *s, enum sq_table table, u64 n);
bool sq_marks_active(const struct sq *s);

/* ---- room.c: bytes on disk ---- */

/* Of a database with its log. */
u64 sq_files_bytes(const char *database);
/* Of all files of the store. */
u64 sq_bytes(const struct sq *s);
/* Whether something has to go before more comes. */
bool sq_is_large(const struct sq *s);
/* Under write_lock: what is in the log goes into the file, as far as readers allow. */
void sq_checkpoint(struct sq *s);
/* Whether the file system has what the next transactions and a checkpoint may take. */
bool sq_has_room(const struct sq *s);
/* Before a batch is written: makes room, or -ENOSPC. */
int sq_make_room(struct sq *s, struct diag *reterr_diag);
/* Under write_lock, after SQLite found no space: a damaged page may refer to one that is beyond all
 * that there can be, which SQLite calls a full disk. */
bool sq_is_no_page(const struct sq *s);

/* ---- log.c: whether the write-ahead log has all that was committed ---- */

enum sq_log {
	SQ_LOG_WHOLE,
	SQ_LOG_SHORT, /* its end is missing */
	SQ_LOG_STALE, /* so much that the file without it is newer, and whole */
	SQ_LOG_MIXED, /* neither is */
};

enum sq_log sq_check_log(const char *path);

/* ---- repair.c ---- */

/* Before opening: ends a repair that was interrupted, and looks for what was moved aside. */
int sq_finish_repair(struct sq *s, struct diag *reterr_diag);
/* Of a store that is not open: what can be read is copied, the damaged file kept. */
int sq_repair_closed(struct sq *s, enum sq_log log, const char *why, struct diag *reterr_diag);
/* Of one that is: by the thread that maintains. */
int sq_repair(struct sq *s, struct diag *reterr_diag);

/* ---- salvage.c ---- */

/* Copies what is whole of the database at s->path into a new one. names: those in memory, too. */
int sq_salvage(struct sq *s, const char *to, bool names, u64 *ret_lost, struct diag *reterr_diag);
/* What was written lately, of a damaged file: 0, how often it was cut off, or an error. */
int sq_copy_tokens(struct sq_conn *from, struct sq_conn *to, struct diag *reterr_diag);
