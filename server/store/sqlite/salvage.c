/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies what is whole of a damaged database into a new one, table by table and row by row. A row
 * of a dictionary is whole when its id is the hash of its content; blocks and names have sums. So
 * nothing wrong is copied, whatever SQLite reads from damaged pages. Rows keep their numbers,
 * because blocks refer to rows by number; a number to which a block may refer is not reused.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "base/varint.h"
#include "server/store/sqlite/repair.h"

#define MAX_NUMBER (1LL << 40)

struct mapping_hashes {
	u64 path, build_id;
};

struct salvage {
	struct sq_conn *from, *to;
	/* Copied rows, by number. */
	struct map mappings; /* → position + 1 in: */
	vec(struct mapping_hashes) mapping_list;
	struct map functions, frames; /* → id */
	s64 next[SQ_TABLES];
	u64 blocks_sum, lost;
};

/* How a table is copied. */
struct table {
	const char *name, *columns;
	bool (*is_whole)(struct salvage *v, sqlite3_stmt *st);
	enum sq_table which; /* SQ_TABLES: `next` has no element for this table */
};

static u64 column_u64(sqlite3_stmt *st, int at)
{
	return (u64)sqlite3_column_int64(st, at);
}

/* Keeps the number from being given again: a lost block may have referred to it. */
static void reserve_number(struct salvage *v, enum sq_table table, u64 n)
{
	if (n < MAX_NUMBER)
		v->next[table] = MAX(v->next[table], (s64)n + 1);
}

static bool name_is_whole(struct salvage *v, sqlite3_stmt *st)
{
	const void *name = sqlite3_column_blob(st, 1);

	return sq_name_sum((u32)column_u64(st, 0), name ? name : "",
			   (size_t)sqlite3_column_bytes(st, 1)) == column_u64(st, 2);
}

static bool series_is_whole(struct salvage *v, sqlite3_stmt *st)
{
	struct store_label labels[STORE_MAX_LABELS];
	const u8 *text = sqlite3_column_blob(st, 2);
	struct buf b = buf_of(text, text ? (size_t)sqlite3_column_bytes(st, 2) : 0);
	size_t n = 0;

	while (buf_left(&b)) {
		if (n >= STORE_MAX_LABELS || !buf_cstr(&b, &labels[n].name) ||
		    !buf_cstr(&b, &labels[n].value))
			return false;
		n++;
	}
	return store_series_id(labels, n) == column_u64(st, 1) &&
	       sq_number_is_right(v->from, SQL_INDEX_SERIES, column_u64(st, 1),
				  (s64)column_u64(st, 0));
}

static bool mapping_is_whole(struct salvage *v, sqlite3_stmt *st)
{
	struct mapping_hashes m = {sq_hash_column(st, 2), sq_hash_column(st, 3)};

	return store_id(&m, sizeof(m)) == column_u64(st, 1) && vec_push(&v->mapping_list, m) == 0 &&
	       map_put(&v->mappings, column_u64(st, 0), v->mapping_list.n) == 0;
}

static bool function_is_whole(struct salvage *v, sqlite3_stmt *st)
{
	struct store_function_key k = {
		.name = sq_hash_column(st, 2),
		.system_name =
			sq_hash_column(st, sqlite3_column_type(st, 3) == SQLITE_NULL ? 2 : 3),
		.file = sq_hash_column(st, 4),
		.start_line = column_u64(st, 5),
	};

	return store_function_id(&k) == column_u64(st, 1) &&
	       map_put(&v->functions, column_u64(st, 0), column_u64(st, 1)) == 0;
}

static bool frame_is_whole(struct salvage *v, sqlite3_stmt *st)
{
	struct store_frame_key k = {
		.kind = (u32)column_u64(st, 2),
		.flags = (u32)column_u64(st, 3),
		.address = column_u64(st, 5),
		.line = (u32)column_u64(st, 7),
		.column = (u32)column_u64(st, 8),
	};
	u64 *mapping = map_get(&v->mappings, column_u64(st, 4));
	u64 *function = map_get(&v->functions, column_u64(st, 6));

	reserve_number(v, SQ_MAPPINGS, column_u64(st, 4));
	reserve_number(v, SQ_FUNCTIONS, column_u64(st, 6));
	if (mapping) {
		k.path = v->mapping_list.data[*mapping - 1].path;
		k.build_id = v->mapping_list.data[*mapping - 1].build_id;
	}
	k.function = function ? *function : 0;
	return store_frame_id(&k) == column_u64(st, 1) &&
	       map_put(&v->frames, column_u64(st, 0), column_u64(st, 1)) == 0;
}

static bool stack_is_whole(struct salvage *v, sqlite3_stmt *st)
{
	const u8 *data = sqlite3_column_blob(st, 2);
	struct buf b = buf_of(data, data ? (size_t)sqlite3_column_bytes(st, 2) : 0);
	vec(u64) ids = {};
	bool whole = true;
	u64 n;

	while (whole && buf_left(&b)) {
		u64 *id = varint_get(&b, &n) && n < MAX_NUMBER ? map_get(&v->frames, n) : NULL;

		whole = id && vec_push(&ids, *id) == 0;
		if (id)
			reserve_number(v, SQ_FRAMES, n);
	}
	whole = whole && store_stack_id(ids.data, ids.n) == column_u64(st, 1) &&
		sq_number_is_right(v->from, SQL_INDEX_STACK, column_u64(st, 1),
				   (s64)column_u64(st, 0));
	vec_deinit(&ids);
	return whole;
}

static bool part_is_whole(sqlite3_stmt *st, int sum_at, int at)
{
	const void *data = sqlite3_column_blob(st, at);

	return data && sq_part_sum((s64)column_u64(st, 0), data,
				   (size_t)sqlite3_column_bytes(st, at)) == column_u64(st, sum_at);
}

static void reserve_numbers(struct salvage *v, enum sq_table table, sqlite3_stmt *st, int at)
{
	_cleanup_block_sums_ struct block_sums sums = {};
	const u8 *data = sqlite3_column_blob(st, at);
	size_t n = (size_t)sqlite3_column_bytes(st, at);

	if ((table == SQ_STACKS ? block_read_stacks(NULL, data, n, &sums)
				: block_read_series(NULL, data, n, &sums)) == 0 &&
	    sums.sums.n)
		reserve_number(v, table, sums.sums.data[sums.sums.n - 1].number);
}

static bool block_is_whole(struct salvage *v, sqlite3_stmt *st)
{
	struct sq_entry e = sq_entry_of(st);

	if (sq_entry_sum(&e) != column_u64(st, 10) || !part_is_whole(st, 11, 14) ||
	    !part_is_whole(st, 12, 15) || !part_is_whole(st, 13, 16))
		return false;
	reserve_numbers(v, SQ_SERIES, st, 14);
	reserve_numbers(v, SQ_STACKS, st, 15);
	v->blocks_sum += sq_entry_sum(&e);
	return true;
}

static const struct table tables[] = {
	{"names", "n,name,sum", name_is_whole, SQ_TABLES},
	{"series", "n,id,labels", series_is_whole, SQ_SERIES},
	{"mappings", "n,id,path,build_id", mapping_is_whole, SQ_MAPPINGS},
	{"functions", "n,id,name,system_name,file,start_line", function_is_whole, SQ_FUNCTIONS},
	{"frames", "n,id,kind,flags,mapping,address,function,line,col,named", frame_is_whole,
	 SQ_FRAMES},
	{"stacks", "n,id,frames", stack_is_whole, SQ_STACKS},
	{"blocks",
	 "n,service,type,hour,level,resolution,first,last,rows,samples,sum,series_sum,stacks_sum,"
	 "body_sum,series,stacks,body",
	 block_is_whole, SQ_BLOCKS},
};

/* ---- copying ---- */

static bool can_read_at(sqlite3_stmt *st, s64 n)
{
	int r;

	sqlite3_reset(st);
	sqlite3_bind_int64(st, 1, n);
	r = sqlite3_step(st);
	return r == SQLITE_ROW || r == SQLITE_DONE;
}

/* Returns the first number past a damaged page: SQLite can read the rows of other pages. */
static s64 next_readable(sqlite3_stmt *st, s64 at)
{
	s64 step = 1, bad = at;

	while (at + step < MAX_NUMBER && !can_read_at(st, at + step)) {
		bad = at + step;
		step *= 2;
	}
	step = MIN(at + step, MAX_NUMBER);
	while (bad + 1 < step) {
		s64 middle = bad + (step - bad) / 2;

		if (can_read_at(st, middle))
			step = middle;
		else
			bad = middle;
	}
	return step;
}

static int put_row(struct sq_conn *c, sqlite3_stmt *to, sqlite3_stmt *from,
		   struct diag *reterr_diag)
{
	int n = sqlite3_column_count(from);

	sqlite3_reset(to);
	for (int i = 0; i < n; i++)
		sqlite3_bind_value(to, i + 1, sqlite3_column_value(from, i));
	return sqlite3_step(to) == SQLITE_DONE ? 0
					       : sq_error(c, "cannot write the copy", reterr_diag);
}

static int copy_rows(struct salvage *v, const struct table *t, sqlite3_stmt *from, sqlite3_stmt *to,
		     struct diag *reterr_diag)
{
	s64 at = 0, n;
	int r = 0, step = SQLITE_ROW;

	while (r == 0 && at < MAX_NUMBER && step != SQLITE_DONE) {
		sqlite3_reset(from);
		sqlite3_bind_int64(from, 1, at);
		while (r == 0 && (step = sqlite3_step(from)) == SQLITE_ROW) {
			n = sqlite3_column_int64(from, 0);
			/* Numbers go backward if a damaged tree refers to a page twice. */
			if (n < at || n >= MAX_NUMBER || !t->is_whole(v, from)) {
				v->lost++;
				if (n >= at && n < MAX_NUMBER && t->which < SQ_TABLES)
					reserve_number(v, t->which, (u64)n);
				at = n >= at && n < MAX_NUMBER ? n + 1 : at;
				continue;
			}
			at = n + 1;
			r = put_row(v->to, to, from, reterr_diag);
			if (t->which < SQ_TABLES)
				reserve_number(v, t->which, (u64)n);
		}
		if (r < 0 || step == SQLITE_DONE)
			break;
		v->lost++;
		at = next_readable(from, at);
	}
	return r;
}

static int copy_table(struct salvage *v, const struct table *t, struct diag *reterr_diag)
{
	_cleanup_str_ struct str select = {}, insert = {};
	sqlite3_stmt *from = NULL, *to = NULL;
	int r = 0;

	str_printf(&select, "SELECT %s FROM %s WHERE n>=? ORDER BY n", t->columns, t->name);
	str_printf(&insert, "INSERT OR IGNORE INTO %s(%s) VALUES(?", t->name, t->columns);
	for (const char *c = t->columns; *c; c++)
		if (*c == ',')
			str_puts(&insert, ",?");
	str_puts(&insert, ")");
	/* If the schema has lost the table, all its rows are lost. */
	if (sqlite3_prepare_v2(v->from->db, str_get(&select), -1, &from, NULL) != SQLITE_OK)
		v->lost++;
	else if (sqlite3_prepare_v2(v->to->db, str_get(&insert), -1, &to, NULL) != SQLITE_OK)
		r = sq_error(v->to, "cannot write the copy", reterr_diag);
	else
		r = copy_rows(v, t, from, to, reterr_diag);
	sqlite3_finalize(from);
	sqlite3_finalize(to);
	return r;
}

/* Reads from both ends of the table, each up to the first damaged page. */
int sq_copy_tokens(struct sq_conn *from, struct sq_conn *to, struct diag *reterr_diag)
{
	static const char *const selects[] = {"SELECT token,ms FROM tokens",
					      "SELECT token,ms FROM tokens ORDER BY token DESC"};
	sqlite3_stmt *get = NULL, *put = NULL;
	int r = 0, lost = 0;

	if (sqlite3_prepare_v2(to->db, "INSERT OR IGNORE INTO tokens VALUES(?,?)", -1, &put,
			       NULL) != SQLITE_OK)
		return sq_error(to, "cannot write the copy", reterr_diag);
	for (size_t i = 0; i < ARRAY_SIZE(selects) && r == 0; i++) {
		int step = SQLITE_ERROR;

		if (sqlite3_prepare_v2(from->db, selects[i], -1, &get, NULL) == SQLITE_OK)
			while (r == 0 && (step = sqlite3_step(get)) == SQLITE_ROW)
				r = put_row(to, put, get, reterr_diag);
		sqlite3_finalize(get);
		if (step == SQLITE_DONE)
			break;
		lost++;
	}
	sqlite3_finalize(put);
	return r < 0 ? r : lost;
}

static int put_names_in_memory(struct salvage *v, const struct sq *s, struct diag *reterr_diag)
{
	int r = 0;

	for (u32 i = 1; i < s->names->numbers.n && r == 0; i++) {
		sqlite3_stmt *st = NULL;
		u32 number = s->names->numbers.data[i];
		const char *name = strtab_get(&s->names->texts, i);
		size_t n = s->names->texts.lengths[i];

		if (number >= s->names_saved)
			continue;

		sqlite3_prepare_v2(v->to->db, "INSERT OR REPLACE INTO names VALUES(?,?,?)", -1, &st,
				   NULL);
		sqlite3_bind_int64(st, 1, number);
		sqlite3_bind_blob(st, 2, name, (int)n, SQLITE_STATIC);
		sqlite3_bind_int64(st, 3, (s64)sq_name_sum(number, name, n));
		if (sqlite3_step(st) != SQLITE_DONE)
			r = sq_error(v->to, "cannot write the copy", reterr_diag);
		sqlite3_finalize(st);
	}
	return r;
}

static int copy_tables(struct salvage *v, const struct sq *s, bool names, struct diag *reterr_diag)
{
	int r = 0;

	for (size_t i = 0; i < ARRAY_SIZE(tables) && r == 0; i++)
		r = copy_table(v, &tables[i], reterr_diag);
	if (r == 0)
		r = sq_copy_tokens(v->from, v->to, reterr_diag);
	if (r > 0) {
		v->lost += (u64)r;
		r = 0;
	}
	if (r == 0 && names)
		r = put_names_in_memory(v, s, reterr_diag);
	for (size_t i = 0; i < SQ_TABLES; i++)
		reserve_number(v, i, (u64)MAX(s->next[i], 1) - 1);
	if (r == 0)
		r = sq_put_state(v->to, v->next, v->blocks_sum);
	return r < 0 ? diag_set(reterr_diag, r, "cannot write the copy") : 0;
}

static int open_both(struct salvage *v, const struct sq *s, const char *to,
		     struct diag *reterr_diag)
{
	int r = sq_connect_damaged(s->path, reterr_diag, &v->from);

	if (r < 0)
		return r;
	r = sq_connect(to, true, reterr_diag, &v->to);
	if (r == 0 && (sqlite3_exec(v->to->db,
				    "PRAGMA page_size=4096; PRAGMA auto_vacuum=INCREMENTAL;"
				    "PRAGMA journal_mode=OFF; PRAGMA synchronous=FULL; BEGIN",
				    NULL, NULL, NULL) != SQLITE_OK ||
		       sqlite3_exec(v->to->db, sq_schema, NULL, NULL, NULL) != SQLITE_OK))
		r = sq_error(v->to, to, reterr_diag);
	/* This fails if the first page is damaged; then nothing can be read. */
	if (r == 0 && sqlite3_exec(v->from->db, "BEGIN; SELECT count(*) FROM sqlite_schema", NULL,
				   NULL, NULL) != SQLITE_OK)
		r = sq_error(v->from, s->path, reterr_diag);
	return r;
}

int sq_salvage(struct sq *s, const char *to, bool names, u64 *ret_lost, struct diag *reterr_diag)
{
	struct salvage v = {};
	int r = open_both(&v, s, to, reterr_diag);

	if (r == 0)
		r = copy_tables(&v, s, names, reterr_diag);
	if (r == 0 && sqlite3_exec(v.to->db, "COMMIT", NULL, NULL, NULL) != SQLITE_OK)
		r = sq_error(v.to, to, reterr_diag);
	sq_disconnect(v.from);
	sq_disconnect(v.to);
	map_deinit(&v.mappings);
	map_deinit(&v.functions);
	map_deinit(&v.frames);
	vec_deinit(&v.mapping_list);
	if (r == 0)
		*ret_lost = v.lost;
	return r;
}
