/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads samples. For a block that lies in the range as a whole, the block's sums by stack or by
 * series are enough. Rows are read only from the blocks at the ends of the range, or when both
 * stack and series matter.
 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "server/store/sort.h"
#include "server/store/sqlite/scan.h"

#define MAX_RESULT_ROWS (16u << 20)

/* ---- the list of blocks ---- */

static bool may_have(const struct sq_entry *e, const struct store_filter *f, u32 service, u32 type)
{
	return e->first_ms < f->to_ms && e->last_ms >= f->from_ms &&
	       (!f->service || e->service == service) && (!f->type || e->type == type);
}

static int collect_entries(struct sq_view *v, const struct store_filter *f)
{
	struct sq *s = v->s;
	u32 service = 0, type = 0;

	v->names = sq_names_get(s->names);
	if ((f->service && !sq_names_find(s->names, f->service, &service)) ||
	    (f->type && !sq_names_find(s->names, f->type, &type)))
		return 0;
	vec_foreach (&s->entries, e)
		if (may_have(e, f, service, type) && vec_push(&v->entries, *e) < 0)
			return -ENOMEM;
	return 0;
}

/* Under list_lock. The first read takes the snapshot. */
static int begin_snapshot(struct sq *s, struct sq_conn *c, u64 *ret_naming,
			  struct diag *reterr_diag)
{
	if (sq_run(c, SQL_BEGIN) < 0 || sq_run(c, SQL_PIN) < 0)
		return sq_error(c, "cannot read", reterr_diag);
	*ret_naming = s->naming;
	return 0;
}

int sq_snapshot(struct sq *s, struct sq_conn *c, u64 *ret_naming, struct diag *reterr_diag)
{
	int r;

	pthread_rwlock_rdlock(&s->list_lock);
	r = begin_snapshot(s, c, ret_naming, reterr_diag);
	pthread_rwlock_unlock(&s->list_lock);
	return r;
}

int sq_view_open(struct sq *s, const struct store_filter *f, struct diag *reterr_diag,
		 struct sq_view *ret)
{
	struct sq_view v = {.s = s};
	int r = sq_reader_get(s, reterr_diag, &v.c);

	if (r < 0)
		return r;
	pthread_rwlock_rdlock(&s->list_lock);
	r = begin_snapshot(s, v.c, &v.naming, reterr_diag);
	if (r == 0)
		r = collect_entries(&v, f);
	pthread_rwlock_unlock(&s->list_lock);
	if (r < 0)
		sq_view_close(&v);
	else
		*ret = v;
	return r;
}

void sq_view_close(struct sq_view *v)
{
	if (!v->c)
		return;
	sq_run(v->c, SQL_COMMIT);
	sq_reader_put(v->s, v->c);
	vec_deinit(&v->entries);
	sq_names_put(v->names);
	v->c = NULL;
}

/* Steps a statement to the row of block n, with no search if the statement is at the row before. */
static int step_to_block(struct sq_conn *c, enum sq_statement which, s64 n)
{
	sqlite3_stmt *st = c->statements[which];

	if (st && sqlite3_stmt_busy(st) && sqlite3_column_int64(st, 0) < n &&
	    sqlite3_step(st) == SQLITE_ROW && sqlite3_column_int64(st, 0) == n)
		return SQLITE_ROW;
	st = sq_get(c, which);
	if (!st)
		return SQLITE_ERROR;
	sqlite3_bind_int64(st, 1, n);
	return sqlite3_step(st);
}

int sq_read_part(struct sq *s, struct sq_conn *c, s64 n, enum sq_part part, const u8 **ret,
		 size_t *ret_n)
{
	static const enum sq_statement which[] = {SQL_GET_BLOCK_SERIES, SQL_GET_BLOCK_STACKS,
						  SQL_GET_BLOCK_BODY};
	int r = step_to_block(c, which[part], n);
	sqlite3_stmt *st = c->statements[which[part]];

	if (r == SQLITE_ROW && sqlite3_column_int64(st, 0) == n) {
		const u8 *data = sqlite3_column_blob(st, 2);
		size_t size = (size_t)sqlite3_column_bytes(st, 2);

		if (data && sq_part_sum(n, data, size) == (u64)sqlite3_column_int64(st, 1)) {
			*ret = data;
			*ret_n = size;
			return 0;
		}
		r = sqlite3_errcode(c->db) == SQLITE_NOMEM ? -ENOMEM : -EBADMSG;
	} else {
		/* The list has the block and the table has not: the tree of pages is damaged. */
		r = r == SQLITE_DONE || r == SQLITE_ROW ? -EBADMSG
							: sq_error(c, "cannot read", NULL);
	}
	if (sq_is_damage(r))
		sq_note_damaged_block(s, n);
	return r;
}

int sq_open_block(struct sq *s, struct sq_conn *c, s64 n, struct block_cursor *ret)
{
	const u8 *part[3];
	size_t size[3];
	int r = 0;

	for (u32 i = 0; i < 3 && r == 0; i++)
		r = sq_read_part(s, c, n, i, &part[i], &size[i]);
	if (r == 0)
		r = block_open(c->zstd, part[0], size[0], part[1], size[1], part[2], size[2], ret);
	return r;
}

/* ---- sums ---- */

struct sum_key {
	u32 step, series, stack;
	u32 group; /* index in scanning.groups */
};
_Static_assert(sizeof(struct sum_key) == 16, "no padding, or it would be compared");

/* Service and type of rows: numbers of names, later ids in store_rows.names; 0 if not asked for. */
struct sum_group {
	u32 service, type;
};

struct sum_row {
	struct sum_key key;
	u64 count;
	s64 value;
};

struct scanning {
	struct sq_view *view;
	const struct store_filter *f;
	u32 by;
	u64 step_ms;
	/* number → 1 when the filter has its id, 2 when not; absent: not looked up yet */
	struct map stacks, series;
	struct block_sums sums; /* of the current block */
	vec(struct sum_row) rows;
	bool has_places;   /* place_of() tells all keys apart */
	struct map places; /* if so: place_of() → position in rows */
	size_t last;	   /* position of the row that was added to last */
	size_t compact_at;
	u64 resolution_ms;
	bool one_type; /* all blocks have the same */
	vec(struct sum_group) groups;
	struct map group_ids; /* service << 32 | type → index in groups */
	u32 group;	      /* of the current block */
	bool damaged;
};

static bool same_key(const struct sum_key *a, const struct sum_key *b)
{
	return memcmp(a, b, sizeof(*a)) == 0;
}

/* Sorts the rows and adds up those with the same key. */
static int compact_rows(struct scanning *c)
{
	_cleanup_free_ struct sort_key *keys = reallocarray(NULL, c->rows.n + 1, sizeof(*keys));
	_cleanup_free_ struct sum_row *sorted = NULL;
	size_t n = 0;
	int r;

	if (!keys)
		return -ENOMEM;
	for (size_t i = 0; i < c->rows.n; i++) {
		const struct sum_key *k = &c->rows.data[i].key;

		keys[i] = (struct sort_key){.a = (u64)k->group << 32 | k->step,
					    .b = (u64)k->series << 32 | k->stack,
					    .index = (u32)i};
	}
	r = sort_keys(keys, c->rows.n);
	sorted = reallocarray(NULL, c->rows.n + 1, sizeof(*sorted));
	if (r < 0 || !sorted)
		return -ENOMEM;
	for (size_t i = 0; i < c->rows.n; i++) {
		const struct sum_row *row = &c->rows.data[keys[i].index];

		if (n && same_key(&sorted[n - 1].key, &row->key)) {
			sorted[n - 1].count += row->count;
			sorted[n - 1].value = block_add_clamped(sorted[n - 1].value, row->value);
		} else {
			sorted[n++] = *row;
		}
	}
	if (n)
		memcpy(c->rows.data, sorted, n * sizeof(*sorted));
	c->rows.n = n;
	if (n > MAX_RESULT_ROWS)
		return -E2BIG;
	c->compact_at = MAX(n * 2, (size_t)1 << 20);
	return 0;
}

/*
 * Half of a key. Nearly all questions group either by stack, service and type, or by series and
 * step, and have 0 for the other two members of the key.
 */
static u64 place_of(const struct sum_key *k)
{
	return (u64)(k->series | k->group) << 32 | (k->step | k->stack);
}

static bool has_places(u32 by)
{
	return !(by & (STORE_BY_SERIES | STORE_BY_TIME)) ||
	       !(by & (STORE_BY_STACK | STORE_BY_SERVICE | STORE_BY_TYPE));
}

/* Whether c->rows has this key; sets c->last to its row. */
static bool find_row(struct scanning *c, const struct sum_key *k)
{
	size_t end = c->by & STORE_BY_STACK ? MIN(c->last + 2, c->rows.n) : 0;
	u64 *at;

	/*
	 * A block has a stack's rows side by side, and its stacks in the order in which the block
	 * before had most of them.
	 */
	for (size_t i = c->last; i < end; i++)
		if (same_key(&c->rows.data[i].key, k)) {
			c->last = i;
			return true;
		}
	at = c->has_places ? map_get(&c->places, place_of(k)) : NULL;
	if (at)
		c->last = *at;
	return at != NULL;
}

static int add_sum(struct scanning *c, struct sum_key k, u64 count, s64 value)
{
	int r = 0;

	if (find_row(c, &k)) {
		struct sum_row *row = &c->rows.data[c->last];

		row->count += count;
		row->value = block_add_clamped(row->value, value);
		return 0;
	}
	if (c->rows.n >= c->compact_at) {
		r = compact_rows(c);
		map_clear(&c->places);
	}
	c->last = c->rows.n;
	if (r == 0 && c->has_places)
		r = map_put(&c->places, place_of(&k), c->last);
	return r < 0 ? r : vec_push(&c->rows, (struct sum_row){k, count, value});
}

/* ---- the filter ---- */

/*
 * Looks up the ids of a block's numbers rather than the numbers of the filter's ids: loading a row
 * detects damage, while an index that has lost an entry goes unnoticed. A row that cannot be read
 * does not match, and the answer is marked as damaged.
 */
static int look_up_id(struct scanning *c, bool stack, u32 number, u64 *ret)
{
	struct sq *s = c->view->s;
	const u64 *ids = stack ? c->f->stacks : c->f->series;
	size_t n = stack ? c->f->n_stacks : c->f->n_series;
	u64 id;
	int r;

	pthread_mutex_lock(&s->cache_lock);
	r = sq_cache_trim(s, c->view->naming);
	if (r == 0)
		r = stack ? sq_stack_id(s, c->view->c, number, &id)
			  : sq_series_id(s, c->view->c, number, &id);
	pthread_mutex_unlock(&s->cache_lock);
	*ret = 2;
	if (sq_is_damage(r) || r == -ENOENT)
		c->damaged = true;
	else if (r < 0)
		return r;
	else if (store_has_id(ids, n, id))
		*ret = 1;
	return map_put(stack ? &c->stacks : &c->series, number, *ret);
}

static int is_in_filter(struct scanning *c, bool stack, u32 number)
{
	u64 *known = map_get(stack ? &c->stacks : &c->series, number), found;
	int r;

	if (known)
		return *known == 1;
	r = look_up_id(c, stack, number, &found);
	return r < 0 ? r : found == 1;
}

/* Returns 1 if the filter accepts the number, 0 if not, negative on failure. */
static inline int filter_accepts(struct scanning *c, bool stack, u32 number)
{
	return (stack ? c->f->stacks : c->f->series) ? is_in_filter(c, stack, number) : 1;
}

static u32 step_of(const struct scanning *c, u64 time_ms)
{
	return c->by & STORE_BY_TIME ? (u32)((time_ms - c->f->from_ms) / c->step_ms) : 0;
}

static struct sum_key key_of(const struct scanning *c, u32 series, u32 stack, u64 time_ms)
{
	return (struct sum_key){.step = step_of(c, time_ms),
				.series = c->by & STORE_BY_SERIES ? series : 0,
				.stack = c->by & STORE_BY_STACK ? stack : 0,
				.group = c->group};
}

static int scan_sums(struct scanning *c, const struct sq_entry *e, enum sq_part part)
{
	const u8 *data;
	size_t n;
	int r = sq_read_part(c->view->s, c->view->c, e->n, part, &data, &n);

	if (r == 0)
		r = part == SQ_PART_STACKS ? block_read_stacks(c->view->c->zstd, data, n, &c->sums)
					   : block_read_series(c->view->c->zstd, data, n, &c->sums);
	if (r < 0)
		return r;
	vec_foreach (&c->sums.sums, s) {
		r = filter_accepts(c, part == SQ_PART_STACKS, s->number);
		if (r < 0)
			return r;
		if (!r)
			continue;
		r = add_sum(c, key_of(c, s->number, s->number, e->first_ms), s->count, s->value);
		if (r < 0)
			return r;
	}
	return 0;
}

static int add_block_row(struct scanning *c, const struct sq_entry *e, const struct block_row *row)
{
	u64 time_ms = e->hour * BLOCK_HOUR_MS + row->time_ms;
	int r;

	if (time_ms < c->f->from_ms || time_ms >= c->f->to_ms)
		return 0;
	r = filter_accepts(c, true, row->stack);
	if (r > 0)
		r = filter_accepts(c, false, row->series);
	if (r <= 0)
		return r;
	return add_sum(c, key_of(c, row->series, row->stack, time_ms), row->count, row->value);
}

/* Checks the sums of the parts first, so that damage cannot surface half-way through the rows. */
static int scan_rows(struct scanning *c, const struct sq_entry *e)
{
	struct block_cursor cursor;
	int r = sq_open_block(c->view->s, c->view->c, e->n, &cursor);

	if (r < 0)
		return r;
	while ((r = block_next(&cursor)) > 0) {
		r = add_block_row(c, e, &cursor.row);
		if (r < 0)
			break;
	}
	block_close(&cursor);
	return r;
}

/* Sets c->group to that of a block. */
static int find_group(struct scanning *c, const struct sq_entry *e)
{
	struct sum_group g = {.service = c->by & STORE_BY_SERVICE ? e->service : 0,
			      .type = c->by & STORE_BY_TYPE ? e->type : 0};
	u64 key = (u64)g.service << 32 | g.type, *at = map_get(&c->group_ids, key);
	int r;

	if (at) {
		c->group = (u32)*at;
		return 0;
	}
	r = vec_push(&c->groups, g);
	c->group = (u32)c->groups.n - 1;
	return r < 0 ? r : map_put(&c->group_ids, key, c->group);
}

static int scan_block(struct scanning *c, const struct sq_entry *e)
{
	const struct store_filter *f = c->f;
	bool by_series = (c->by & STORE_BY_SERIES) || f->series;
	bool by_stack = (c->by & STORE_BY_STACK) || f->stacks;
	bool whole = e->first_ms >= f->from_ms && e->last_ms < f->to_ms;
	int r = find_group(c, e);

	if (r < 0)
		return r;
	if (whole && c->by & STORE_BY_TIME)
		whole = step_of(c, e->first_ms) == step_of(c, e->last_ms);
	if (c->by & STORE_COUNTS && !by_series && !by_stack && (whole || c->one_type))
		r = add_sum(c, key_of(c, 0, 0, e->first_ms), e->samples, 0);
	else if (!whole || (by_series && by_stack))
		r = scan_rows(c, e);
	else
		r = scan_sums(c, e, by_stack ? SQ_PART_STACKS : SQ_PART_SERIES);
	if (sq_is_damage(r)) {
		sq_note_damaged_block(c->view->s, e->n);
		c->damaged = true;
		return 0;
	}
	c->resolution_ms = MAX(c->resolution_ms, e->resolution);
	return r;
}

/* ---- from numbers to ids ---- */

/*
 * Continues at row *at while the cache has room, up to SQ_LOCKED_ROWS rows, so that others get the
 * lock. A stack that cannot be loaded stays, with id 0: its samples were measured.
 */
static int rows_to_ids(struct scanning *c, size_t *at, struct store_rows *ret)
{
	struct sq *s = c->view->s;
	size_t end = MIN(*at + SQ_LOCKED_ROWS, c->rows.n);
	struct store_row row;
	int r = 0;

	for (size_t first = *at; *at < end && (*at == first || !sq_cache_is_full(s)); ++*at) {
		const struct sum_row *e = &c->rows.data[*at];

		row = (struct store_row){.count = e->count,
					 .value = e->value,
					 .service = c->groups.data[e->key.group].service,
					 .type = c->groups.data[e->key.group].type};
		if (c->by & STORE_BY_TIME)
			row.time_ms = c->f->from_ms + e->key.step * c->step_ms;
		if (c->by & STORE_BY_STACK)
			r = sq_stack_id(s, c->view->c, e->key.stack, &row.stack);
		if (sq_is_damage(r) || r == -ENOENT)
			c->damaged = true;
		else if (r < 0)
			return r;
		r = 0;
		if (c->by & STORE_BY_SERIES)
			r = sq_series_id(s, c->view->c, e->key.series, &row.series);
		if (sq_is_damage(r) || r == -ENOENT)
			c->damaged = true;
		else if (r < 0)
			return r;
		if (vec_push(&ret->rows, row) < 0)
			return -ENOMEM;
	}
	return 0;
}

static int name_number(const struct sq_names *n, struct strtab *into, u32 *number)
{
	size_t size;
	const char *text = sq_names_text(n, *number, &size);

	return strtab_add(into, text, size, number);
}

/* Turns the numbers of names into ids in ret->names. */
static int name_groups(struct scanning *c, struct store_rows *ret)
{
	struct sq *s = c->view->s;
	int r = strtab_init(&ret->names);

	pthread_rwlock_rdlock(&s->list_lock);
	vec_foreach (&c->groups, e) {
		if (r == 0)
			r = name_number(c->view->names, &ret->names, &e->service);
		if (r == 0)
			r = name_number(c->view->names, &ret->names, &e->type);
	}
	pthread_rwlock_unlock(&s->list_lock);
	return r;
}

static int scan_blocks(struct scanning *c, struct store_rows *ret)
{
	struct sq *s = c->view->s;
	int r = 0;

	for (size_t i = 0; i < c->view->entries.n && r == 0; i++) {
		r = quota_check(NULL);
		if (r == 0)
			r = scan_block(c, &c->view->entries.data[i]);
	}
	if (r == 0)
		r = compact_rows(c);
	if (r == 0 && c->by & (STORE_BY_SERVICE | STORE_BY_TYPE))
		r = name_groups(c, ret);
	for (size_t i = 0; i < c->rows.n && r == 0;) {
		r = quota_check(NULL);
		if (r < 0)
			break;
		pthread_mutex_lock(&s->cache_lock);
		r = sq_cache_trim(s, c->view->naming);
		if (r == 0)
			r = rows_to_ids(c, &i, ret);
		pthread_mutex_unlock(&s->cache_lock);
	}
	/* In the order of numbers the stacks are loaded fastest. */
	if (r == 0 && ret->rows.n && c->by & (STORE_BY_TIME | STORE_BY_SERIES))
		qsort(ret->rows.data, ret->rows.n, sizeof(*ret->rows.data), store_compare_rows);
	ret->resolution_ms = c->resolution_ms;
	/* A damaged file that was moved aside may have had samples from before the move. */
	ret->damaged = c->damaged || c->f->from_ms < s->damaged_ms;
	return r;
}

static bool have_one_type(const struct sq_view *v)
{
	for (size_t i = 1; i < v->entries.n; i++)
		if (v->entries.data[i].type != v->entries.data[0].type)
			return false;
	return true;
}

int sq_scan(struct store *base, const struct store_filter *f, u32 by, u64 step_ms,
	    struct store_rows *ret, struct diag *reterr_diag)
{
	_cleanup_sq_view_ struct sq_view view = {};
	struct scanning c = {
		.view = &view, .f = f, .by = by, .step_ms = step_ms, .has_places = has_places(by)};
	struct store_rows rows = {};
	int r;

	if (f->from_ms >= f->to_ms ||
	    (by & STORE_BY_TIME && (!step_ms || (f->to_ms - f->from_ms) / step_ms > UINT32_MAX)))
		return diag_set(reterr_diag, -EINVAL, "the range or the step is empty");
	r = sq_view_open(sq_of(base), f, reterr_diag, &view);
	if (r < 0)
		return r;
	c.compact_at = 1 << 20;
	c.one_type = have_one_type(&view);
	r = scan_blocks(&c, &rows);
	map_deinit(&c.stacks);
	map_deinit(&c.series);
	map_deinit(&c.places);
	map_deinit(&c.group_ids);
	vec_deinit(&c.groups);
	vec_deinit(&c.rows);
	block_sums_deinit(&c.sums);
	if (r == 0) {
		*ret = rows;
		return 0;
	}
	store_rows_deinit(&rows);
	return diag_set(reterr_diag, r, "cannot read: %s",
			r == -E2BIG
				? "too much for one answer, take a smaller range or a longer step"
				: strerror(-r));
}

/* ---- series ---- */

struct found {
	struct sq_view *view;
	struct map known; /* series << 32 | type → position */
	vec(struct store_found_series) list;
	vec(u32) numbers;
	bool damaged;
};

static int note_series(struct found *f, const struct sq_entry *e, const struct block_sum *s)
{
	u64 base = e->hour * BLOCK_HOUR_MS, key = (u64)s->number << 32 | e->type;
	u64 *at = map_get(&f->known, key);
	struct store_found_series found = {
		.first_ms = base + s->first_ms, .last_ms = base + s->last_ms, .type = e->type};

	if (at) {
		struct store_found_series *known = &f->list.data[*at];

		known->first_ms = MIN(known->first_ms, found.first_ms);
		known->last_ms = MAX(known->last_ms, found.last_ms);
		return 0;
	}
	if (map_put(&f->known, key, f->list.n) < 0 || vec_push(&f->list, found) < 0)
		return -ENOMEM;
	return vec_push(&f->numbers, s->number);
}

static int find_in_block(struct found *f, const struct store_filter *filter,
			 const struct sq_entry *e)
{
	_cleanup_block_sums_ struct block_sums sums = {};
	u64 base = e->hour * BLOCK_HOUR_MS;
	const u8 *data;
	size_t n;
	int r = sq_read_part(f->view->s, f->view->c, e->n, SQ_PART_SERIES, &data, &n);

	if (r == 0)
		r = block_read_series(f->view->c->zstd, data, n, &sums);
	f->damaged |= sq_is_damage(r);
	if (r < 0)
		return sq_is_damage(r) ? 0 : r;
	vec_foreach (&sums.sums, s) {
		if (base + s->last_ms < filter->from_ms || base + s->first_ms >= filter->to_ms)
			continue;
		r = note_series(f, e, s);
		if (r < 0)
			return r;
	}
	return 0;
}

/* Turns e->type from the number of a name into a string id. */
static int add_type(const struct sq_view *v, struct store_found_series *e, struct profile *into)
{
	int r;

	pthread_rwlock_rdlock(&v->s->list_lock);
	r = name_number(v->names, &into->strings, &e->type);
	pthread_rwlock_unlock(&v->s->list_lock);
	return r;
}

static int add_labels(struct found *f, struct store_series_set *ret)
{
	int r;

	for (size_t i = 0; i < f->list.n; i++) {
		struct store_found_series e = f->list.data[i];

		r = sq_series_resource(f->view->c, f->numbers.data[i], ret->profile, &e.id,
				       &e.resource);
		if (sq_is_damage(r) || r == -ENOENT) {
			sq_note_damaged_row(f->view->s);
			f->damaged = true;
			continue;
		}
		if (r == 0)
			r = add_type(f->view, &e, ret->profile);
		if (r == 0)
			r = vec_push(&ret->series, e);
		if (r < 0)
			return r;
	}
	return 0;
}

int sq_find_series(struct store *base, const struct store_filter *f, struct store_series_set *ret,
		   struct diag *reterr_diag)
{
	_cleanup_sq_view_ struct sq_view view = {};
	struct found found = {.view = &view};
	struct store_series_set set = {};
	int r = sq_view_open(sq_of(base), f, reterr_diag, &view);

	if (r < 0)
		return r;
	for (size_t i = 0; i < view.entries.n && r == 0; i++)
		r = find_in_block(&found, f, &view.entries.data[i]);
	set.profile = profile_create();
	if (r == 0)
		r = set.profile ? add_labels(&found, &set) : -ENOMEM;
	set.damaged = found.damaged || f->from_ms < view.s->damaged_ms;
	map_deinit(&found.known);
	vec_deinit(&found.list);
	vec_deinit(&found.numbers);
	if (r == 0) {
		*ret = set;
		return 0;
	}
	store_series_set_deinit(&set);
	return diag_set(reterr_diag, r, "cannot read: %s", strerror(-r));
}
