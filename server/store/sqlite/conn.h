/* SPDX-License-Identifier: Apache-2.0 */
/* Connections to SQLite: prepared statements, errors, and the pool of readers. */
#pragma once

#include <sqlite3.h>

#include "base/diag.h"
#include "base/types.h"

struct sq;

/* The row itself must have the id: after damage an index may point at another row. */
#define SQ_BY_ID(table)                                                                            \
	"SELECT t.n FROM " table " AS i CROSS JOIN " table " AS t ON t.n=i.n "                     \
	"WHERE i.id=?1 AND +t.id=?1"

/* SQ(NAME, text): a connection prepares a statement at its first use. */
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
	SQ(DEL_NAME, "DELETE FROM names WHERE n=?")                                                \
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
	/* Scans read blocks by ascending n: the next row is mostly the next block. */             \
	SQ(GET_BLOCK_SERIES, "SELECT n,series_sum,series FROM blocks WHERE n>=? ORDER BY n")       \
	SQ(GET_BLOCK_STACKS, "SELECT n,stacks_sum,stacks FROM blocks WHERE n>=? ORDER BY n")       \
	SQ(GET_BLOCK_BODY, "SELECT n,body_sum,body FROM blocks WHERE n>=? ORDER BY n")             \
	SQ(BUILD_MAPPINGS, "SELECT n,path FROM mappings WHERE build_id=?")                         \
	/* The WHERE of the index frames_nameless. */                                              \
	SQ(NAMELESS_FRAMES, "SELECT n,id,address FROM frames WHERE mapping=? AND kind=? "          \
			    "AND function=0 AND named IS NULL AND flags=0 AND n>? "                \
			    "ORDER BY n LIMIT ?")                                                  \
	SQ(NAME_FRAME, "UPDATE frames SET named=? WHERE n=? AND id=? AND named IS NULL")           \
	SQ(NAMED_OF_FRAME, "SELECT named FROM frames WHERE n=?")                                   \
	SQ(UNNAME_FRAMES, "UPDATE frames SET named=NULL WHERE named IS NOT NULL "                  \
			  "AND mapping IN (SELECT n FROM mappings WHERE build_id=?)")              \
	/* in spans.db */                                                                          \
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

/* One thread at a time uses a connection. */
struct sq_conn {
	sqlite3 *db;
	sqlite3_stmt *statements[SQL_N];
	struct sq_conn *next;		/* the next connection in the pool */
	u32 generation;			/* sq.generation when the connection was opened */
	bool full;			/* the last error was SQLITE_FULL */
	struct ZSTD_DCtx_s *zstd;	/* owned; decompresses blocks */
	struct ZSTD_CCtx_s *compressor; /* owned; of blocks */
};

int sq_connect(const char *path, bool writer, struct diag *reterr_diag, struct sq_conn **ret);
/* For reading what is left: a wrong schema or size is no error, and the file is not modified. */
int sq_connect_damaged(const char *path, struct diag *reterr_diag, struct sq_conn **ret);
void sq_disconnect(struct sq_conn *c);
/* Resets a statement and returns it, ready to bind. NULL when SQLite cannot prepare it. */
sqlite3_stmt *sq_get(struct sq_conn *c, enum sq_statement which);
/* Runs a statement without parameters and ignores the row that the statement may return. */
int sq_run(struct sq_conn *c, enum sq_statement which);
/* Resets all statements. A statement at a row holds a snapshot, so that the log cannot shrink. */
void sq_reset_all(struct sq_conn *c);
/* Returns SQLite's last error as a negative errno, and its text. -EBADMSG: the file is damaged. */
int sq_error(struct sq_conn *c, const char *what, struct diag *reterr_diag);
static inline bool sq_is_damage(int r)
{
	return r == -EBADMSG;
}

/* The first column of the first row of a query; -EIO when there is none. */
int sq_number(struct sq_conn *c, const char *text, s64 *ret);
/* Runs `check`, a PRAGMA quick_check. False: the check found damaged pages. */
bool sq_pages_are_whole(struct sq_conn *c, const char *check);
/* Returns hash_bytes() of a column of the current row. */
u64 sq_hash_column(sqlite3_stmt *st, int at);
/*
 * Adds a token; the caller is in a transaction. Returns 1 when the token is known, 0 when it was
 * added, negative on failure. See store_write().
 */
int sq_take_token(struct sq_conn *c, const u8 token[16], struct diag *reterr_diag);

/*
 * Writes the log into the file, and empties the log unless a reader needs it. Waits for readers
 * only for a moment, because the caller keeps writers out and a backup reads for long.
 */
void sq_truncate_log(struct sq_conn *c);

/* Takes a connection for reading from the pool, or opens one. */
int sq_reader_get(struct sq *s, struct diag *reterr_diag, struct sq_conn **ret);
void sq_reader_put(struct sq *s, struct sq_conn *c);
