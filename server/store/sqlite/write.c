/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes a batch in one transaction: the rows of its dictionaries that are new, then a small block
 * for each service, type and hour.
 *
 * Only the frames of new stacks are looked up, and only the functions of new frames. In the long
 * run no stack is new, and a batch costs one lookup per stack.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/varint.h"
#include "server/store/sort.h"
#include "server/store/sqlite/maintain.h"
#include "server/store/sqlite/spans.h"

#define LEVEL_NEW 1 /* of zstd; low, because new blocks are merged soon */

/*
 * A damaged page can make SQLite report a full disk when there is room (sq_is_no_page()). After
 * this many successive errors the store counts as damaged; after fewer, the disk may have been full
 * for a moment.
 */
#define MAX_NO_PAGES 3

struct adding {
	struct sq *s;
	const struct store_batch *b;
	struct diag *diag;
};

static void bind_string(sqlite3_stmt *st, int at, const struct profile *p, u32 id)
{
	sqlite3_bind_blob(st, at, strtab_get(&p->strings, id), (int)p->strings.lengths[id],
			  SQLITE_STATIC);
}

static int step_done(struct adding *a, sqlite3_stmt *st, const char *what)
{
	int r = sqlite3_step(st) == SQLITE_DONE ? 0 : sq_error(a->s->writer, what, a->diag);

	sqlite3_reset(st);
	return r;
}

/* Searches the database. Returns 1 and ret_n, or 0 when there is no whole row. */
static int find_whole_row(struct adding *a, enum sq_table table, enum sq_statement find, u64 id,
			  s64 *ret_n)
{
	struct sq *s = a->s;
	sqlite3_stmt *st = sq_get(s->writer, find);
	int step = SQLITE_ERROR, r = -ENOENT;
	s64 n = 0;

	if (!st)
		return sq_error(s->writer, "cannot read", a->diag);
	sqlite3_bind_int64(st, 1, (s64)id);
	/* A damaged row does not count: a new row keeps the new samples readable. */
	while (r != 0 && (step = sqlite3_step(st)) == SQLITE_ROW) {
		n = sqlite3_column_int64(st, 0);
		r = sq_check_row(s, table, n, id);
		if (r < 0 && r != -ENOENT && !sq_is_damage(r))
			return r;
	}
	if (r != 0 && step != SQLITE_DONE)
		return sq_error(s->writer, "cannot read", a->diag);
	sqlite3_reset(st);
	*ret_n = n;
	return r == 0;
}

/* Returns 1 and the number of the row with this id, 0 when the id is new, negative on failure. */
static int find_number(struct adding *a, enum sq_table table, enum sq_statement find, u64 id,
		       s64 *ret_n)
{
	struct sq *s = a->s;
	u64 *known = map_get(&s->ids[table], id);
	int r;

	if (known) {
		*ret_n = (s64)*known;
		sq_mark(s, table, *known);
		return 1;
	}
	if (s->complete[table])
		return 0;
	r = find_whole_row(a, table, find, id, ret_n);
	if (r <= 0)
		return r;
	sq_mark(s, table, (u64)*ret_n);
	return map_put(&s->ids[table], id, (u64)*ret_n) < 0 ? -ENOMEM : 1;
}

/* Gives a new id the next number of the table. */
static int take_number(struct adding *a, enum sq_table table, u64 id, s64 *ret_n)
{
	*ret_n = a->s->next[table]++;
	if (map_put(&a->s->ids[table], id, (u64)*ret_n) < 0)
		return diag_set(a->diag, -ENOMEM, "out of memory");
	return 0;
}

static int add_mapping(struct adding *a, u32 mapping, s64 *ret_n)
{
	const struct profile *p = a->b->profile;
	const struct profile_mapping *m = &p->mappings.data[mapping];
	u64 parts[] = {
		hash_bytes(strtab_get(&p->strings, m->path), p->strings.lengths[m->path]),
		hash_bytes(strtab_get(&p->strings, m->build_id), p->strings.lengths[m->build_id]),
	};
	u64 id = store_id(parts, sizeof(parts));
	sqlite3_stmt *st;
	int r = find_number(a, SQ_MAPPINGS, SQL_FIND_MAPPING, id, ret_n);

	if (r)
		return MIN(r, 0);
	r = take_number(a, SQ_MAPPINGS, id, ret_n);
	st = sq_get(a->s->writer, SQL_ADD_MAPPING);
	if (r < 0 || !st)
		return r < 0 ? r : sq_error(a->s->writer, "cannot write", a->diag);
	sqlite3_bind_int64(st, 1, *ret_n);
	bind_string(st, 2, p, m->path);
	bind_string(st, 3, p, m->build_id);
	sqlite3_bind_int64(st, 4, (s64)id);
	return step_done(a, st, "cannot write a mapping");
}

static int add_function(struct adding *a, u32 function, s64 *ret_n)
{
	const struct profile *p = a->b->profile;
	const struct profile_function *f = &p->functions.data[function];
	sqlite3_stmt *st;
	int r = find_number(a, SQ_FUNCTIONS, SQL_FIND_FUNCTION, a->b->functions[function], ret_n);

	if (r)
		return MIN(r, 0);
	r = take_number(a, SQ_FUNCTIONS, a->b->functions[function], ret_n);
	st = sq_get(a->s->writer, SQL_ADD_FUNCTION);
	if (r < 0 || !st)
		return r < 0 ? r : sq_error(a->s->writer, "cannot write", a->diag);
	sqlite3_bind_int64(st, 1, *ret_n);
	sqlite3_bind_int64(st, 2, (s64)a->b->functions[function]);
	bind_string(st, 3, p, f->name);
	if (f->system_name == f->name)
		sqlite3_bind_null(st, 4);
	else
		bind_string(st, 4, p, f->system_name);
	bind_string(st, 5, p, f->file);
	sqlite3_bind_int64(st, 6, f->start_line);
	return step_done(a, st, "cannot write a function");
}

static int add_frame(struct adding *a, u32 frame, s64 *ret_n)
{
	const struct profile_frame *f = &a->b->profile->frames.data[frame];
	s64 mapping = 0, function = 0; /* 0 = none: numbers begin with 1 */
	sqlite3_stmt *st;
	int r = find_number(a, SQ_FRAMES, SQL_FIND_FRAME, a->b->frames[frame], ret_n);

	if (r)
		return r < 0 ? r : sq_mark_named(a->s, *ret_n, a->diag);
	if (f->mapping != PROFILE_NONE)
		r = add_mapping(a, f->mapping, &mapping);
	if (r == 0 && f->function != PROFILE_NONE)
		r = add_function(a, f->function, &function);
	if (r == 0)
		r = take_number(a, SQ_FRAMES, a->b->frames[frame], ret_n);
	st = sq_get(a->s->writer, SQL_ADD_FRAME);
	if (r < 0 || !st)
		return r < 0 ? r : sq_error(a->s->writer, "cannot write", a->diag);
	sqlite3_bind_int64(st, 1, *ret_n);
	sqlite3_bind_int64(st, 2, (s64)a->b->frames[frame]);
	sqlite3_bind_int64(st, 3, f->kind);
	sqlite3_bind_int64(st, 4, f->flags);
	sqlite3_bind_int64(st, 5, mapping);
	sqlite3_bind_int64(st, 6, store_frame_has_address(f) ? (s64)f->address : 0);
	sqlite3_bind_int64(st, 7, function);
	sqlite3_bind_int64(st, 8, f->line);
	sqlite3_bind_int64(st, 9, f->column);
	return step_done(a, st, "cannot write a frame");
}

int sq_add_frame(struct sq *s, const struct store_batch *b, u32 frame, s64 *ret_n,
		 struct diag *reterr_diag)
{
	struct adding a = {.s = s, .b = b, .diag = reterr_diag};

	return add_frame(&a, frame, ret_n);
}

static int add_stack(struct adding *a, u32 stack, s64 *ret_n)
{
	const struct profile *p = a->b->profile;
	const struct profile_stack *e = &p->stacks.data[stack];
	_cleanup_str_ struct str frames = {};
	sqlite3_stmt *st;
	s64 n = 0;
	int r = find_number(a, SQ_STACKS, SQL_FIND_STACK, a->b->stacks[stack], ret_n);

	if (r)
		return MIN(r, 0);
	for (u32 i = 0; i < e->n && r == 0; i++) {
		r = add_frame(a, p->stack_frames.data[e->first + i], &n);
		varint_put(&frames, (u64)n);
	}
	if (r == 0)
		r = frames.failed ? -ENOMEM : take_number(a, SQ_STACKS, a->b->stacks[stack], ret_n);
	st = sq_get(a->s->writer, SQL_ADD_STACK);
	if (r < 0 || !st)
		return r < 0 ? r : sq_error(a->s->writer, "cannot write", a->diag);
	sqlite3_bind_int64(st, 1, *ret_n);
	sqlite3_bind_int64(st, 2, (s64)a->b->stacks[stack]);
	sqlite3_bind_blob(st, 3, str_get(&frames), (int)frames.n, SQLITE_STATIC);
	return step_done(a, st, "cannot write a stack");
}

static int add_series(struct adding *a, u32 at, s64 *ret_n)
{
	const struct store_series *e = &a->b->series.data[at];
	struct store_label labels[STORE_MAX_LABELS];
	_cleanup_str_ struct str text = {};
	sqlite3_stmt *st;
	size_t n;
	int r = find_number(a, SQ_SERIES, SQL_FIND_SERIES, e->id, ret_n);

	if (r)
		return MIN(r, 0);
	n = store_series_labels(a->b->profile, e, labels);
	for (size_t i = 0; i < n; i++) {
		str_append(&text, labels[i].name, strlen(labels[i].name) + 1);
		str_append(&text, labels[i].value, strlen(labels[i].value) + 1);
	}
	r = text.failed ? -ENOMEM : take_number(a, SQ_SERIES, e->id, ret_n);
	st = sq_get(a->s->writer, SQL_ADD_SERIES);
	if (r < 0 || !st)
		return r < 0 ? r : sq_error(a->s->writer, "cannot write", a->diag);
	sqlite3_bind_int64(st, 1, *ret_n);
	sqlite3_bind_int64(st, 2, (s64)e->id);
	sqlite3_bind_blob(st, 3, str_get(&text), (int)text.n, SQLITE_STATIC);
	return step_done(a, st, "cannot write a series");
}

/* ---- names of services and types ---- */

static int number_of_name(struct adding *a, const char *name, u32 *ret)
{
	int r;

	pthread_rwlock_wrlock(&a->s->list_lock);
	r = sq_names_add(a->s->names, name, strlen(name), ret);
	pthread_rwlock_unlock(&a->s->list_lock);
	return r < 0 ? diag_set(a->diag, r, "%s", strerror(-r)) : 0;
}

static int save_names(struct adding *a, u32 *ret_saved)
{
	struct sq *s = a->s;
	const struct sq_names *n = s->names;
	int r = 0;

	for (size_t i = n->numbers.n; i-- && n->numbers.data[i] >= s->names_saved && r == 0;) {
		sqlite3_stmt *st = sq_get(s->writer, SQL_ADD_NAME);
		const char *name = strtab_get(&n->texts, (u32)i);
		u32 number = n->numbers.data[i];

		if (!st)
			return sq_error(s->writer, "cannot write", a->diag);
		sqlite3_bind_int64(st, 1, number);
		sqlite3_bind_blob(st, 2, name, (int)n->texts.lengths[i], SQLITE_STATIC);
		sqlite3_bind_int64(st, 3, (s64)sq_name_sum(number, name, n->texts.lengths[i]));
		r = step_done(a, st, "cannot write a name");
	}
	*ret_saved = n->next;
	return r;
}

/* ---- blocks ---- */

u64 sq_part_sum(s64 n, const void *data, size_t size)
{
	return hash_bytes(data, size) ^ hash_u64((u64)n);
}

u64 sq_entry_sum(const struct sq_entry *e)
{
	u64 parts[] = {(u64)e->n,     e->service,  e->type,    e->hour, e->level,
		       e->resolution, e->first_ms, e->last_ms, e->rows, e->samples};

	return hash_bytes(parts, sizeof(parts));
}

static void bind_part(sqlite3_stmt *st, int sum_at, int at, s64 n, const struct str *part)
{
	sqlite3_bind_int64(st, sum_at, (s64)sq_part_sum(n, part->data, part->n));
	sqlite3_bind_blob(st, at, part->data, (int)part->n, SQLITE_STATIC);
}

int sq_add_block(struct sq *s, const struct sq_entry *e, const struct block_parts *p,
		 struct sq_change *c, struct diag *reterr_diag)
{
	sqlite3_stmt *st = sq_get(s->writer, SQL_ADD_BLOCK);
	struct sq_entry full = *e;
	u64 base = e->hour * BLOCK_HOUR_MS;

	if (!st)
		return sq_error(s->writer, "cannot write", reterr_diag);
	full.n = s->next[SQ_BLOCKS]++;
	full.first_ms = base + p->first_ms;
	full.last_ms = base + p->last_ms;
	full.rows = p->rows;
	full.samples = p->samples;
	full.bytes = p->series.n + p->stacks.n + p->body.n;
	sqlite3_bind_int64(st, 1, full.n);
	sqlite3_bind_int64(st, 2, full.service);
	sqlite3_bind_int64(st, 3, full.type);
	sqlite3_bind_int64(st, 4, full.hour);
	sqlite3_bind_int64(st, 5, full.level);
	sqlite3_bind_int64(st, 6, (s64)full.resolution);
	sqlite3_bind_int64(st, 7, (s64)full.first_ms);
	sqlite3_bind_int64(st, 8, (s64)full.last_ms);
	sqlite3_bind_int64(st, 9, (s64)full.rows);
	sqlite3_bind_int64(st, 10, (s64)full.samples);
	sqlite3_bind_int64(st, 11, (s64)sq_entry_sum(&full));
	bind_part(st, 12, 15, full.n, &p->series);
	bind_part(st, 13, 16, full.n, &p->stacks);
	bind_part(st, 14, 17, full.n, &p->body);
	if (sqlite3_step(st) != SQLITE_DONE)
		return sq_error(s->writer, "cannot write a block", reterr_diag);
	sqlite3_reset(st);
	return vec_push(&c->added, full);
}

/* Encodes samples [from, to). stacks, series: numbers, indexed as in the batch. */
static int encode_group(struct ZSTD_CCtx_s *zstd, const struct store_batch *b, size_t from,
			size_t to, const u32 *stacks, const u32 *series, struct block_parts *ret)
{
	size_t n = to - from;
	_cleanup_free_ struct sort_key *keys = reallocarray(NULL, n, sizeof(*keys));
	_cleanup_free_ struct block_row *rows = reallocarray(NULL, n, sizeof(*rows));
	int r;

	if (!keys || !rows)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		const struct store_sample *e = &b->samples.data[from + i];

		keys[i] = (struct sort_key){
			.b = (u64)stacks[e->stack] << 32 | series[e->series],
			.c = (u32)(e->time_ms % BLOCK_HOUR_MS),
			.index = (u32)(from + i),
		};
	}
	r = sort_keys(keys, n);
	if (r < 0)
		return r;
	for (size_t i = 0; i < n; i++) {
		const struct store_sample *e = &b->samples.data[keys[i].index];

		rows[i] = (struct block_row){.stack = (u32)(keys[i].b >> 32),
					     .series = (u32)keys[i].b,
					     .time_ms = keys[i].c,
					     .count = e->count,
					     .value = e->value};
	}
	return block_encode(zstd, rows, n, LEVEL_NEW, ret);
}

static u32 service_of(const struct store_batch *b, const struct store_sample *s)
{
	return b->series.data[s->series].service;
}

static size_t group_end(const struct store_batch *b, size_t from)
{
	const struct store_sample *first = &b->samples.data[from];
	size_t to = from;

	while (to < b->samples.n && to - from < BLOCK_MAX_ROWS) {
		const struct store_sample *s = &b->samples.data[to];

		if (service_of(b, s) != service_of(b, first) || s->type != first->type ||
		    s->time_ms / BLOCK_HOUR_MS != first->time_ms / BLOCK_HOUR_MS)
			break;
		to++;
	}
	return to;
}

static int add_blocks(struct adding *a, const u32 *stacks, const u32 *series, struct sq_change *c)
{
	const struct store_batch *b = a->b;
	size_t to;
	int r = 0;

	for (size_t from = 0; from < b->samples.n && r == 0; from = to) {
		const struct store_sample *first = &b->samples.data[from];
		_cleanup_block_parts_ struct block_parts parts = {};
		struct sq_entry e = {.hour = (u32)(first->time_ms / BLOCK_HOUR_MS),
				     .resolution = 1};

		to = group_end(b, from);
		r = quota_check(a->diag);
		if (r == 0)
			r = number_of_name(a, profile_string(b->profile, service_of(b, first)),
					   &e.service);
		if (r == 0)
			r = number_of_name(a, b->types[first->type], &e.type);
		if (r == 0)
			r = encode_group(a->s->writer->compressor, b, from, to, stacks, series,
					 &parts);
		if (r == 0)
			r = sq_add_block(a->s, &e, &parts, c, a->diag);
	}
	return r;
}

static int add_dictionaries(struct adding *a, u32 *stacks, u32 *series)
{
	const struct store_batch *b = a->b;
	s64 n;
	int r = 0;

	for (size_t i = 0; i < b->samples.n && r == 0; i++) {
		const struct store_sample *e = &b->samples.data[i];

		r = quota_check(a->diag);
		if (r == 0 && !stacks[e->stack]) {
			r = add_stack(a, e->stack, &n);
			stacks[e->stack] = (u32)n;
		}
		if (r == 0 && !series[e->series]) {
			r = add_series(a, e->series, &n);
			series[e->series] = (u32)n;
		}
	}
	return r;
}

/* Writes a batch in a transaction. Returns 1 when the token is known; then nothing was written. */
static int write_batch(struct adding *a, const u8 *token, struct sq_change *c, u32 *ret_names)
{
	const struct store_batch *b = a->b;
	_cleanup_free_ u32 *stacks = calloc(b->profile->stacks.n + 1, sizeof(*stacks));
	_cleanup_free_ u32 *series = calloc(b->series.n + 1, sizeof(*series));
	int r = stacks && series ? 0 : -ENOMEM;

	if (r == 0 && token)
		r = sq_take_token(a->s->writer, token, a->diag);
	if (r == 0)
		r = add_dictionaries(a, stacks, series);
	if (r == 0)
		r = add_blocks(a, stacks, series, c);
	if (r == 0)
		r = save_names(a, ret_names);
	return r;
}

static int write_transaction(struct adding *a, const u8 *token)
{
	_cleanup_sq_change_ struct sq_change c = {};
	struct sq *s = a->s;
	u32 names = 0;
	int r = sq_begin(s, a->diag);

	if (r < 0)
		return r;
	r = write_batch(a, token, &c, &names);
	if (r == 1) /* `ids` did not change: sq_end() would empty it */
		sq_run(s->writer, SQL_ROLLBACK);
	else
		r = sq_end(s, r, &c, a->diag);
	if (r == 0)
		s->names_saved = names;
	s->no_pages = r == -ENOSPC && sq_is_no_page(s) ? s->no_pages + 1 : 0;
	return s->no_pages >= MAX_NO_PAGES ? -EBADMSG : MIN(r, 0);
}

int sq_write(struct store *base, const struct store_batch *b, const u8 token[16],
	     struct diag *reterr_diag)
{
	struct diag why = {};
	struct adding a = {.s = sq_of(base), .b = b, .diag = &why};
	int r;

	if (!b->samples.n && !token)
		return 0;
	r = sq_make_room(a.s, &why);
	if (r == 0)
		r = sq_write_links(a.s, &b->links, token, &why);
	if (r == 0) {
		pthread_mutex_lock(&a.s->write_lock);
		r = write_transaction(&a, token);
		pthread_mutex_unlock(&a.s->write_lock);
	}
	/* The store is damaged, not the batch: the sender may repeat the batch after the repair. */
	if (sq_is_damage(r)) {
		a.s->broken = true;
		return diag_set(reterr_diag, -EAGAIN,
				"the store is damaged and will be repaired: send it again later");
	}
	return r < 0 ? diag_set(reterr_diag, r, "cannot store: %s",
				why.text[0] ? why.text : strerror(-r))
		     : 0;
}
