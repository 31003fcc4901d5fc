/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The embedded engine: opening, transactions, and the list of blocks. doc/design/0006-store.md
 * gives the reasons for its design, doc/format/block.md describes the format.
 */
#include "server/store/sqlite/sqlite.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/str.h"
#include "server/store/sqlite/maintain.h"
#include "server/store/sqlite/repair.h"
#include "server/store/sqlite/spans.h"

#define SCHEMA_VERSION 2
#define APPLICATION_ID 0x63756c70 /* "culp" */

#define STATE_TABLE                                                                                \
	"CREATE TABLE state(k INTEGER PRIMARY KEY, next BLOB NOT NULL, blocks INTEGER NOT NULL,"   \
	" sum INTEGER NOT NULL);"

const char sq_schema[] =
	"PRAGMA application_id=1668639856;"
	"CREATE TABLE names(n INTEGER PRIMARY KEY, name BLOB NOT NULL, sum INTEGER NOT NULL);"
	"CREATE TABLE series(n INTEGER PRIMARY KEY, id INTEGER NOT NULL, labels BLOB NOT NULL);"
	"CREATE INDEX series_id ON series(id);"
	"CREATE TABLE mappings(n INTEGER PRIMARY KEY, id INTEGER NOT NULL, path BLOB NOT NULL,"
	" build_id BLOB NOT NULL);"
	"CREATE INDEX mappings_id ON mappings(id);"
	"CREATE TABLE functions(n INTEGER PRIMARY KEY, id INTEGER NOT NULL, name BLOB NOT NULL,"
	" system_name BLOB, file BLOB NOT NULL, start_line INTEGER NOT NULL);"
	"CREATE INDEX functions_id ON functions(id);"
	/* named: the frames that replace this one since late symbols. */
	"CREATE TABLE frames(n INTEGER PRIMARY KEY, id INTEGER NOT NULL, kind INTEGER NOT NULL,"
	" flags INTEGER NOT NULL, mapping INTEGER NOT NULL, address INTEGER NOT NULL,"
	" function INTEGER NOT NULL, line INTEGER NOT NULL, col INTEGER NOT NULL, named BLOB);"
	"CREATE INDEX frames_id ON frames(id);"
	"CREATE TABLE stacks(n INTEGER PRIMARY KEY, id INTEGER NOT NULL, frames BLOB NOT NULL);"
	"CREATE INDEX stacks_id ON stacks(id);"
	"CREATE TABLE blocks(n INTEGER PRIMARY KEY, service INTEGER NOT NULL, type INTEGER NOT NULL,"
	" hour INTEGER NOT NULL, level INTEGER NOT NULL, resolution INTEGER NOT NULL,"
	" first INTEGER NOT NULL, last INTEGER NOT NULL, rows INTEGER NOT NULL,"
	" samples INTEGER NOT NULL, sum INTEGER NOT NULL, series_sum INTEGER NOT NULL,"
	" stacks_sum INTEGER NOT NULL, body_sum INTEGER NOT NULL, series BLOB NOT NULL,"
	" stacks BLOB NOT NULL, body BLOB NOT NULL);"
	"CREATE TABLE tokens(token BLOB PRIMARY KEY, ms INTEGER NOT NULL) WITHOUT ROWID;"
	/* One row: the next number of each table, and the sum of the sums of all blocks. */
	STATE_TABLE "PRAGMA user_version=2;";

const char *const sq_table_names[SQ_TABLES] = {"series", "mappings", "functions",
					       "frames", "stacks",   "blocks"};

void sq_change_deinit(struct sq_change *c)
{
	vec_deinit(&c->added);
	vec_deinit(&c->removed);
}

/* ---- transactions ---- */

/* Called after a rollback or a sweep, when the map may have ids of rows that do not exist. */
void sq_forget_ids(struct sq *s)
{
	for (size_t i = 0; i < SQ_TABLES; i++) {
		map_clear(&s->ids[i]);
		s->complete[i] = false;
	}
}

/* Empties the map once it has used its share of memory. */
static void bound_ids(struct sq *s)
{
	u64 bytes = 0;

	for (size_t i = 0; i < SQ_TABLES; i++)
		bytes += s->ids[i].cap * sizeof(struct map_slot);
	if (bytes <= s->limits.cache_bytes / 2)
		return;
	for (size_t i = 0; i < SQ_TABLES; i++)
		map_deinit(&s->ids[i]);
	sq_forget_ids(s);
}

int sq_begin(struct sq *s, struct diag *reterr_diag)
{
	bound_ids(s);
	return sq_run(s->writer, SQL_BEGIN_WRITE) < 0
		       ? sq_error(s->writer, "cannot begin to write", reterr_diag)
		       : 0;
}

static void rollback(struct sq *s)
{
	sq_reset_all(s->writer);
	/* ROLLBACK fails if SQLite has already rolled back. */
	sq_run(s->writer, SQL_ROLLBACK);
	sq_forget_ids(s);
}

static int compare_n(const void *a, const void *b)
{
	s64 x = *(const s64 *)a, y = *(const s64 *)b;

	return x < y ? -1 : x > y;
}

static void apply_change(struct sq *s, struct sq_change *c)
{
	size_t kept = 0;

	for (size_t i = 0; c->removed.n && i < s->entries.n; i++)
		if (!bsearch(&s->entries.data[i].n, c->removed.data, c->removed.n, sizeof(s64),
			     compare_n))
			s->entries.data[kept++] = s->entries.data[i];
	if (c->removed.n)
		s->entries.n = kept;
	vec_foreach (&c->added, e)
		s->entries.data[s->entries.n++] = *e;
	s->naming += c->names;
}

static u64 state_sum(const s64 *next, u64 blocks)
{
	return hash_bytes(next, SQ_TABLES * sizeof(*next)) ^ hash_u64(blocks);
}

int sq_put_state(struct sq_conn *c, const s64 next[SQ_TABLES], u64 blocks)
{
	sqlite3_stmt *st = sq_get(c, SQL_SET_STATE);

	if (!st)
		return -EIO;
	sqlite3_bind_blob(st, 1, next, SQ_TABLES * sizeof(*next), SQLITE_STATIC);
	sqlite3_bind_int64(st, 2, (s64)blocks);
	sqlite3_bind_int64(st, 3, (s64)state_sum(next, blocks));
	return sqlite3_step(st) == SQLITE_DONE ? 0 : -EIO;
}

/* Returns the sum of all blocks after the change. */
static u64 changed_sum(const struct sq *s, struct sq_change *c)
{
	u64 sum = s->blocks_sum;

	vec_foreach (&c->added, e)
		sum += sq_entry_sum(e);
	for (size_t i = 0; c->removed.n && i < s->entries.n; i++)
		if (bsearch(&s->entries.data[i].n, c->removed.data, c->removed.n, sizeof(s64),
			    compare_n))
			sum -= sq_entry_sum(&s->entries.data[i]);
	return sum;
}

static int commit(struct sq *s, struct sq_change *c, struct diag *reterr_diag)
{
	u64 sum;
	int r;

	if (c->removed.n)
		qsort(c->removed.data, c->removed.n, sizeof(s64), compare_n);
	sum = changed_sum(s, c);
	pthread_rwlock_wrlock(&s->list_lock);
	r = vec_reserve(&s->entries, s->entries.n + c->added.n);
	if (r == 0 &&
	    (sq_put_state(s->writer, s->next, sum) < 0 || sq_run(s->writer, SQL_COMMIT) < 0))
		r = sq_error(s->writer, "cannot write", reterr_diag);
	if (r == 0) {
		apply_change(s, c);
		s->blocks_sum = sum;
	}
	pthread_rwlock_unlock(&s->list_lock);
	sq_reset_all(s->writer);
	if (r < 0)
		rollback(s);
	else if ((u64)s->wal_pages * SQ_PAGE > MIN(s->limits.max_bytes / 16, 64ULL << 20))
		sq_checkpoint(s);
	return r;
}

int sq_end(struct sq *s, int r, struct sq_change *c, struct diag *reterr_diag)
{
	if (r == 0)
		return commit(s, c, reterr_diag);
	rollback(s);
	return r;
}

static int on_wal(void *arg, sqlite3 *db, const char *name, int pages)
{
	((struct sq *)arg)->wal_pages = pages;
	return SQLITE_OK;
}

/* ---- opening ---- */

/* Only the speed of late symbols depends on this index, so creating it may fail. */
static void index_nameless(struct sq *s)
{
	(void)sqlite3_exec(s->writer->db,
			   "CREATE INDEX IF NOT EXISTS frames_nameless ON frames(mapping,kind) "
			   "WHERE function=0 AND named IS NULL",
			   NULL, NULL, NULL);
}

static int create_schema(struct sq *s, struct diag *reterr_diag)
{
	sqlite3 *db = s->writer->db;

	if (sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL) == SQLITE_OK &&
	    sqlite3_exec(db, sq_schema, NULL, NULL, NULL) == SQLITE_OK &&
	    sqlite3_exec(db, "COMMIT", NULL, NULL, NULL) == SQLITE_OK)
		return 0;
	return sq_error(s->writer, s->path, reterr_diag);
}

u64 sq_name_sum(u32 n, const void *name, size_t size)
{
	return hash_bytes(name, size) ^ hash_u64(n);
}

/* Adds a name for a number that a block refers to and the table of names has lost. */
static int name_damaged(struct sq *s, u32 number)
{
	char text[48];

	if (map_get(&s->names->ids, number))
		return 0;
	snprintf(text, sizeof(text), "[damaged name %u]", number);
	return sq_names_set(s->names, number, text, strlen(text));
}

/* Number 0 is "", which is not in the table. */
static int load_names(struct sq *s, struct diag *reterr_diag)
{
	sqlite3_stmt *st;
	int r, res = 0;

	if (sqlite3_prepare_v2(s->writer->db, "SELECT n,name,sum FROM names ORDER BY n", -1, &st,
			       NULL) != SQLITE_OK)
		return sq_error(s->writer, s->path, reterr_diag);
	while ((r = sqlite3_step(st)) == SQLITE_ROW && res == 0) {
		s64 n = sqlite3_column_int64(st, 0);
		const void *name = sqlite3_column_blob(st, 1);
		size_t size = (size_t)sqlite3_column_bytes(st, 1);

		name = name ? name : "";
		if (n < 1 || n > UINT32_MAX ||
		    sq_name_sum((u32)n, name, size) != (u64)sqlite3_column_int64(st, 2)) {
			res = -EBADMSG;
			break;
		}
		res = sq_names_set(s->names, (u32)n, name, size);
	}
	sqlite3_finalize(st);
	if (res < 0)
		return diag_set(reterr_diag, res, "names of services: %s", strerror(-res));
	return r == SQLITE_DONE ? 0 : sq_error(s->writer, s->path, reterr_diag);
}

struct sq_entry sq_entry_of(sqlite3_stmt *st)
{
	return (struct sq_entry){
		.n = sqlite3_column_int64(st, 0),
		.service = (u32)sqlite3_column_int64(st, 1),
		.type = (u32)sqlite3_column_int64(st, 2),
		.hour = (u32)sqlite3_column_int64(st, 3),
		.level = (u32)sqlite3_column_int64(st, 4),
		.resolution = (u64)sqlite3_column_int64(st, 5),
		.first_ms = (u64)sqlite3_column_int64(st, 6),
		.last_ms = (u64)sqlite3_column_int64(st, 7),
		.rows = (u64)sqlite3_column_int64(st, 8),
		.samples = (u64)sqlite3_column_int64(st, 9),
		.bytes = (u64)sqlite3_column_int64(st, 11),
	};
}

static int load_entries(struct sq *s, struct diag *reterr_diag)
{
	sqlite3_stmt *st = sq_get(s->writer, SQL_NEXT_BLOCKS);
	int r;

	if (!st)
		return sq_error(s->writer, s->path, reterr_diag);
	sqlite3_bind_int64(st, 1, 0);
	s->blocks_sum = 0;
	while ((r = sqlite3_step(st)) == SQLITE_ROW) {
		struct sq_entry e = sq_entry_of(st);

		if (sq_entry_sum(&e) != (u64)sqlite3_column_int64(st, 10) ||
		    (s->entries.n && s->entries.data[s->entries.n - 1].n >= e.n))
			return diag_set(reterr_diag, -EBADMSG, "the list of blocks is damaged");
		if (vec_push(&s->entries, e) < 0)
			return diag_set(reterr_diag, -ENOMEM, "out of memory");
		s->blocks_sum += sq_entry_sum(&e);
		if (name_damaged(s, e.service) < 0 || name_damaged(s, e.type) < 0)
			return diag_set(reterr_diag, -ENOMEM, "out of memory");
	}
	s->names_saved = s->names->next;
	s->names_to_sweep = true;
	return r == SQLITE_DONE ? 0 : sq_error(s->writer, s->path, reterr_diag);
}

/* No number is given twice, because a block may refer to a row that was lost. */
static int load_state(struct sq *s, struct diag *reterr_diag)
{
	sqlite3_stmt *st = NULL;
	s64 next[SQ_TABLES] = {};
	u64 blocks = 0;
	bool whole;
	int r;

	if (sqlite3_prepare_v2(s->writer->db, "SELECT next,blocks,sum FROM state WHERE k=0", -1,
			       &st, NULL) != SQLITE_OK)
		return sq_error(s->writer, s->path, reterr_diag);
	r = sqlite3_step(st);
	whole = r == SQLITE_DONE && !s->entries.n;
	if (r == SQLITE_ROW && sqlite3_column_bytes(st, 0) == sizeof(next)) {
		memcpy(next, sqlite3_column_blob(st, 0), sizeof(next));
		blocks = (u64)sqlite3_column_int64(st, 1);
		whole = state_sum(next, blocks) == (u64)sqlite3_column_int64(st, 2) &&
			blocks == s->blocks_sum;
	}
	r = r == SQLITE_ROW || r == SQLITE_DONE ? 0 : sq_error(s->writer, s->path, reterr_diag);
	sqlite3_finalize(st);
	for (size_t i = 0; i < SQ_TABLES; i++)
		s->next[i] = MAX(s->next[i], next[i]);
	if (r == 0 && !whole)
		r = diag_set(reterr_diag, -EBADMSG, "the list of blocks has lost some");
	return r;
}

static int load_numbers(struct sq *s, struct diag *reterr_diag)
{
	for (size_t i = 0; i < SQ_TABLES; i++) {
		char text[64];
		s64 max = 0;

		snprintf(text, sizeof(text), "SELECT max(n) FROM %s", sq_table_names[i]);
		if (sq_number(s->writer, text, &max) < 0)
			return sq_error(s->writer, s->path, reterr_diag);
		s->next[i] = max + 1;
		s->complete[i] = max == 0;
	}
	return 0;
}

static void name_sum(sqlite3_context *c, int n, sqlite3_value **args)
{
	const void *name = sqlite3_value_blob(args[1]);

	sqlite3_result_int64(c,
			     (s64)sq_name_sum((u32)sqlite3_value_int64(args[0]), name ? name : "",
					      (size_t)sqlite3_value_bytes(args[1])));
}

/* Version 1 had no sums of names and no state. */
static int update_schema(struct sq *s, struct diag *reterr_diag)
{
	sqlite3 *db = s->writer->db;
	int r;

	if (sqlite3_create_function(db, "name_sum", 2, SQLITE_UTF8, NULL, name_sum, NULL, NULL) ||
	    sqlite3_exec(db,
			 "BEGIN IMMEDIATE;" STATE_TABLE
			 "ALTER TABLE names ADD COLUMN sum INTEGER NOT NULL DEFAULT 0;"
			 "DELETE FROM names WHERE n=0; UPDATE names SET sum=name_sum(n,name)",
			 NULL, NULL, NULL))
		return sq_error(s->writer, s->path, reterr_diag);
	r = load_numbers(s, reterr_diag);
	if (r == 0)
		r = load_entries(s, reterr_diag);
	if (r == 0 && (sq_put_state(s->writer, s->next, s->blocks_sum) < 0 ||
		       sqlite3_exec(db, "PRAGMA user_version=2; COMMIT", NULL, NULL, NULL)))
		r = sq_error(s->writer, s->path, reterr_diag);
	return r;
}

static int check_schema(struct sq *s, struct diag *reterr_diag)
{
	s64 version = 0, application = 0, n_tables = 0;

	if (sq_number(s->writer, "PRAGMA user_version", &version) < 0 ||
	    sq_number(s->writer, "PRAGMA application_id", &application) < 0 ||
	    sq_number(s->writer, "SELECT count(*) FROM sqlite_schema", &n_tables) < 0)
		return sq_error(s->writer, s->path, reterr_diag);
	if (!n_tables)
		return create_schema(s, reterr_diag);
	if (application != APPLICATION_ID)
		return diag_set(reterr_diag, -EINVAL,
				"%s is a database of something else: choose another directory",
				s->path);
	if (version < SCHEMA_VERSION) {
		int r = sq_keep_version(s, version, reterr_diag);

		return r < 0 ? r : update_schema(s, reterr_diag);
	}
	if (version > SCHEMA_VERSION)
		return diag_set(reterr_diag, -EINVAL,
				"%s was written by a newer culprit (version %lld)", s->path,
				(long long)version);
	return 0;
}

static int lock_directory(struct sq *s, struct diag *reterr_diag)
{
	_cleanup_str_ struct str path = {};

	if (mkdir(s->dir, 0700) < 0 && errno != EEXIST)
		return diag_set(reterr_diag, -errno, "cannot create %s: %s", s->dir,
				strerror(errno));
	str_printf(&path, "%s/lock", s->dir);
	s->lock_fd = open(str_get(&path), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (s->lock_fd < 0)
		return diag_set(reterr_diag, -errno, "cannot write in %s: %s", s->dir,
				strerror(errno));
	if (flock(s->lock_fd, LOCK_EX | LOCK_NB) < 0)
		return diag_set(reterr_diag, -EBUSY, "%s is in use by another culprit", s->dir);
	return 0;
}

/* In a larger file, opening checks only the small tables. */
#define MAX_CHECKED_BYTES (256ULL << 20)

/*
 * Rows that are written into a damaged page are lost, so opening checks for damage before the first
 * write. For reads, blocks and rows have checksums of their own.
 */
static int check_pages(struct sq *s, struct diag *reterr_diag)
{
	static const char *const small[] = {
		"PRAGMA quick_check(names)", "PRAGMA quick_check(series)",
		"PRAGMA quick_check(mappings)", "PRAGMA quick_check(tokens)",
		"PRAGMA quick_check(state)"};
	static const char *const all[] = {"PRAGMA quick_check(1)"};
	bool large = sq_bytes(s) > MAX_CHECKED_BYTES;
	size_t n = large ? ARRAY_SIZE(small) : ARRAY_SIZE(all);

	for (size_t i = 0; i < n; i++) {
		if (!sq_pages_are_whole(s->writer, large ? small[i] : all[i]))
			return diag_set(reterr_diag, -EBADMSG, "some of its pages are damaged");
	}
	return 0;
}

static int load_all(struct sq *s, struct diag *reterr_diag)
{
	int r = load_numbers(s, reterr_diag);

	vec_clear(&s->entries);
	sq_names_put(s->names);
	s->names = sq_names_create();
	if (r == 0 && !s->names)
		r = diag_set(reterr_diag, -ENOMEM, "out of memory");
	if (r == 0)
		r = load_names(s, reterr_diag);
	if (r == 0)
		r = load_entries(s, reterr_diag);
	return r < 0 ? r : load_state(s, reterr_diag);
}

int sq_open_file(struct sq *s, struct diag *reterr_diag)
{
	int r = sq_connect(s->path, true, reterr_diag, &s->writer);

	if (r == 0 && sqlite3_exec(s->writer->db,
				   "PRAGMA page_size=4096; PRAGMA auto_vacuum=INCREMENTAL;"
				   "PRAGMA journal_mode=WAL",
				   NULL, NULL, NULL) != SQLITE_OK)
		r = sq_error(s->writer, s->path, reterr_diag);
	if (r == 0)
		r = check_schema(s, reterr_diag);
	if (r == 0)
		index_nameless(s);
	if (r == 0)
		r = check_pages(s, reterr_diag);
	if (r == 0)
		r = load_all(s, reterr_diag);
	if (r == 0)
		sqlite3_wal_hook(s->writer->db, on_wal, s);
	return r;
}

static void close_one(struct sq_conn *c, bool keep_log)
{
	if (c && keep_log)
		sqlite3_db_config(c->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
	sq_disconnect(c);
}

void sq_close_file(struct sq *s, bool keep_log)
{
	close_one(s->writer, keep_log);
	s->writer = NULL;
	pthread_mutex_lock(&s->pool_lock);
	while (s->pool) {
		struct sq_conn *c = s->pool;

		s->pool = c->next;
		close_one(c, keep_log);
	}
	s->n_pool = 0;
	s->generation++;
	pthread_mutex_unlock(&s->pool_lock);
}

static void sq_close(struct store *base)
{
	struct sq *s = sq_of(base);

	sq_close_file(s, false);
	sq_spans_close(s);
	for (size_t i = 0; i < SQ_TABLES; i++)
		map_deinit(&s->ids[i]);
	sq_cache_deinit(&s->cache);
	map_deinit(&s->damaged);
	vec_deinit(&s->entries);
	sq_names_put(s->names);
	cleanup_close(&s->lock_fd);
	pthread_mutex_destroy(&s->write_lock);
	pthread_mutex_destroy(&s->cache_lock);
	pthread_mutex_destroy(&s->pool_lock);
	pthread_rwlock_destroy(&s->list_lock);
	pthread_mutex_destroy(&s->maintain_lock);
	free(s->dir);
	free(s->path);
	free(s);
}

static struct sq *create_store(const char *where, const struct store_limits *l)
{
	struct sq *s = calloc(1, sizeof(*s));
	_cleanup_str_ struct str path = {};

	if (!s)
		return NULL;
	s->base.ops = &store_sqlite;
	s->lock_fd = -1;
	pthread_mutex_init(&s->write_lock, NULL);
	pthread_mutex_init(&s->cache_lock, NULL);
	pthread_mutex_init(&s->pool_lock, NULL);
	pthread_rwlock_init(&s->list_lock, NULL);
	pthread_mutex_init(&s->maintain_lock, NULL);
	s->limits = *l;
	str_printf(&path, "%s/%s", where, SQ_FILE);
	s->dir = strdup(where);
	s->path = strdup(str_get(&path));
	s->names = sq_names_create();
	if (!s->dir || !s->path || !s->names) {
		sq_close(&s->base);
		return NULL;
	}
	return s;
}

/* The lock file says that there was a database, and the database is empty. */
static bool was_emptied(const struct sq *s)
{
	struct stat lock, file;

	return fstat(s->lock_fd, &lock) == 0 && lock.st_size && stat(s->path, &file) == 0 &&
	       !file.st_size;
}

/* Repairs any damage: returns a store that accepts batches, or an I/O error. */
static int open_or_repair(struct sq *s, struct diag *reterr_diag)
{
	struct diag why = {};
	enum sq_log log;
	int r = sq_finish_repair(s, reterr_diag);

	if (r < 0)
		return r;
	log = sq_check_log(s->path);
	if (was_emptied(s))
		r = diag_set(&why, -EBADMSG, "it is empty");
	else if (log == SQ_LOG_WHOLE)
		r = sq_open_file(s, &why);
	else
		r = diag_set(&why, -EBADMSG, "its log has lost transactions");
	if (sq_is_damage(r)) {
		sq_close_file(s, true);
		r = sq_repair_closed(s, log, why.text, reterr_diag);
		why = (struct diag){};
		if (r == 0)
			r = sq_open_file(s, &why);
	}
	return r < 0 && why.text[0] ? diag_set(reterr_diag, r, "%s", why.text) : r;
}

static int sq_open(const char *where, const struct store_limits *l, struct diag *reterr_diag,
		   struct store **ret)
{
	struct sq *s = create_store(where, l);
	int r;

	if (!s)
		return diag_set(reterr_diag, -ENOMEM, "out of memory");
	r = lock_directory(s, reterr_diag);
	if (r == 0)
		r = open_or_repair(s, reterr_diag);
	if (r == 0)
		r = sq_spans_open(s, reterr_diag);
	if (r < 0) {
		sq_close(&s->base);
		return diag_set(reterr_diag, r, "%s: %s", where, strerror(-r));
	}
	/* was_emptied() recognises an emptied database by this byte. */
	if (pwrite(s->lock_fd, "1", 1, 0) != 1)
		log_debug("%s/lock cannot be written: %s", s->dir, strerror(errno));
	*ret = &s->base;
	return 0;
}

/* ---- damage ---- */

void sq_note_damaged_block(struct sq *s, s64 n)
{
	QUOTA_PAUSED;

	pthread_mutex_lock(&s->pool_lock);
	map_put(&s->damaged, (u64)n, 1);
	pthread_mutex_unlock(&s->pool_lock);
}

void sq_note_damaged_row(struct sq *s)
{
	pthread_mutex_lock(&s->pool_lock);
	s->damaged_rows++;
	pthread_mutex_unlock(&s->pool_lock);
	s->broken = true;
}

/* ---- figures ---- */

static u64 count_rows(struct sq_conn *c, const char *table)
{
	char text[64];
	s64 n = 0;

	snprintf(text, sizeof(text), "SELECT count(*) FROM %s", table);
	return sq_number(c, text, &n) < 0 ? 0 : (u64)n;
}

static int sq_get_stats(struct store *base, struct store_stats *ret, struct diag *reterr_diag)
{
	struct sq *s = sq_of(base);
	struct store_stats st = {};
	struct sq_conn *c;
	int r = sq_reader_get(s, reterr_diag, &c);

	if (r < 0)
		return r;
	st.series = count_rows(c, "series");
	st.functions = count_rows(c, "functions");
	st.frames = count_rows(c, "frames");
	st.stacks = count_rows(c, "stacks");
	sq_reader_put(s, c);
	pthread_rwlock_rdlock(&s->list_lock);
	vec_foreach (&s->entries, e) {
		st.rows += e->rows;
		st.samples += e->samples;
		if (!st.first_ms || e->first_ms < st.first_ms)
			st.first_ms = e->first_ms;
		st.last_ms = MAX(st.last_ms, e->last_ms);
	}
	st.names = s->names->numbers.n - 1;
	pthread_rwlock_unlock(&s->list_lock);
	pthread_mutex_lock(&s->pool_lock);
	st.damaged = s->damaged.n + s->damaged_rows + s->damaged_files;
	st.evicted_rows = s->evicted_rows;
	pthread_mutex_unlock(&s->pool_lock);
	st.bytes = sq_bytes(s);
	sq_spans_stats(s, &st);
	snprintf(st.where, sizeof(st.where), "sqlite:%s", s->path);
	*ret = st;
	return 0;
}

const struct store_ops store_sqlite = {
	.scheme = "sqlite",
	.where_is_a_path = true,
	.open = sq_open,
	.close = sq_close,
	.write = sq_write,
	.find_series = sq_find_series,
	.scan = sq_scan,
	.load_stacks = sq_load_stacks,
	.find_stacks = store_match_stacks,
	.name_frames = sq_name_frames,
	.unname_frames = sq_unname_frames,
	.write_spans = sq_write_spans,
	.find_spans = sq_find_spans,
	.find_links = sq_find_links,
	.maintain = sq_maintain,
	.get_stats = sq_get_stats,
	.backup = sq_backup,
	.restore = sq_restore,
};
