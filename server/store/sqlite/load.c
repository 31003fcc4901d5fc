/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loads rows of dictionaries by number. Loaded rows are interned in the profile of a cache, from
 * which they are copied into the caller's.
 *
 * Every id is the hash of the row's content, so a row that the disk has changed is found when it is
 * loaded. Such a row counts as missing, and so does every row that refers to it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/varint.h"
#include "server/store/sqlite/scan.h"

#define MAX_DEPTH 65536

struct loading {
	struct sq *s;
	struct sq_conn *c;
	struct sq_cache *cache;
};

void sq_cache_deinit(struct sq_cache *c)
{
	profile_destroy(c->profile);
	map_deinit(&c->functions);
	vec_deinit(&c->function_ids);
	map_deinit(&c->frames);
	vec_deinit(&c->frame_list);
	vec_deinit(&c->reals);
	map_deinit(&c->stacks);
	vec_deinit(&c->stack_list);
	map_deinit(&c->stack_ids);
	map_deinit(&c->series);
	vec_deinit(&c->scratch.ids);
	vec_deinit(&c->scratch.reals);
	vec_deinit(&c->scratch.numbers);
	*c = (struct sq_cache){.emptied = c->emptied + 1};
}

bool sq_cache_is_full(const struct sq *s)
{
	const struct sq_cache *c = &s->cache;
	const struct profile *p = c->profile;
	u64 bytes = p->strings.n_bytes + p->strings.n * 16 + p->functions.n * 36 +
		    p->frames.n * 64 + p->stacks.n * 44 + p->stack_frames.n * 4 +
		    (c->functions.cap + c->frames.cap + c->stacks.cap + c->stack_ids.cap +
		     c->series.cap) *
			    sizeof(struct map_slot);

	return bytes > s->limits.cache_bytes / 2;
}

int sq_cache_trim(struct sq *s, u64 naming)
{
	struct sq_cache *c = &s->cache;
	QUOTA_PAUSED;

	if (c->profile && (c->naming != naming || sq_cache_is_full(s)))
		sq_cache_deinit(c);
	if (!c->profile)
		c->profile = profile_create();
	c->naming = naming;
	return c->profile ? 0 : -ENOMEM;
}

/* Steps a statement to row n of a dictionary. -ENOENT: no such row. -EBADMSG: damage. */
static int get_row(struct sq_conn *c, enum sq_statement which, s64 n, sqlite3_stmt **ret)
{
	sqlite3_stmt *st = sq_get(c, which);
	int r;

	if (!st)
		return sq_error(c, "cannot read", NULL);
	sqlite3_bind_int64(st, 1, n);
	r = sqlite3_step(st);
	if (r == SQLITE_DONE)
		return -ENOENT;
	if (r != SQLITE_ROW)
		return sq_error(c, "cannot read", NULL);
	*ret = st;
	return 0;
}

bool sq_number_is_right(struct sq_conn *c, enum sq_statement index, u64 id, s64 n)
{
	sqlite3_stmt *st = sq_get(c, index);
	bool others = false;

	if (!st)
		return true;
	sqlite3_bind_int64(st, 1, (s64)id);
	while (sqlite3_step(st) == SQLITE_ROW) {
		if (sqlite3_column_int64(st, 0) == n)
			return true;
		others = true;
	}
	/* An index without any entry for the id may have lost the entry: accept the row. */
	return !others;
}

static int add_column(struct profile *p, sqlite3_stmt *st, int at, u32 *ret)
{
	const void *data = sqlite3_column_blob(st, at);

	return profile_add_string(p, data ? data : "", (size_t)sqlite3_column_bytes(st, at), ret);
}

static int add_function(struct loading *l, s64 n, u64 id, sqlite3_stmt *st, bool mangled, u32 *ret)
{
	struct profile *p = l->cache->profile;
	struct profile_function f = {.start_line = (u32)sqlite3_column_int64(st, 4)};
	int r = add_column(p, st, 1, &f.name);

	if (r == 0)
		r = add_column(p, st, mangled ? 2 : 1, &f.system_name);
	if (r == 0)
		r = add_column(p, st, 3, &f.file);
	if (r == 0)
		r = profile_add_function(p, &f, ret);
	if (r == 0 && *ret == l->cache->function_ids.n)
		r = vec_push(&l->cache->function_ids, id);
	return r < 0 ? r : map_put(&l->cache->functions, (u64)n, *ret);
}

/* ret_id: the function's id in the store. ret: its id in the cache's profile. */
static int load_function(struct loading *l, s64 n, u64 *ret_id, u32 *ret)
{
	u64 *known = map_get(&l->cache->functions, (u64)n);
	struct store_function_key k;
	sqlite3_stmt *st;
	bool mangled;
	int r;

	if (known) {
		*ret = (u32)*known;
		*ret_id = l->cache->function_ids.data[*known];
		return 0;
	}
	r = get_row(l->c, SQL_GET_FUNCTION, n, &st);
	if (r < 0)
		return r;
	mangled = sqlite3_column_type(st, 2) != SQLITE_NULL;
	k = (struct store_function_key){
		.name = sq_hash_column(st, 1),
		.system_name = sq_hash_column(st, mangled ? 2 : 1),
		.file = sq_hash_column(st, 3),
		.start_line = (u64)sqlite3_column_int64(st, 4),
	};
	*ret_id = (u64)sqlite3_column_int64(st, 0);
	if (store_function_id(&k) != *ret_id)
		return -EBADMSG;
	return add_function(l, n, *ret_id, st, mangled, ret);
}

static int load_mapping(struct loading *l, s64 n, struct store_frame_key *k, u32 *ret)
{
	struct profile_mapping m = {};
	sqlite3_stmt *st;
	int r = get_row(l->c, SQL_GET_MAPPING, n, &st);

	if (r < 0)
		return r;
	k->path = sq_hash_column(st, 0);
	k->build_id = sq_hash_column(st, 1);
	r = add_column(l->cache->profile, st, 0, &m.path);
	if (r == 0)
		r = add_column(l->cache->profile, st, 1, &m.build_id);
	return r < 0 ? r : profile_add_mapping(l->cache->profile, &m, ret);
}

/* Loads a frame without its late symbols. A missing function or mapping is damage. */
static int load_plain_frame(struct loading *l, s64 n, u64 *ret_id, u32 *ret, struct str *ret_named)
{
	struct profile_frame f = {.mapping = PROFILE_NONE, .function = PROFILE_NONE};
	struct store_frame_key k = {};
	s64 mapping, function;
	sqlite3_stmt *st;
	int r = get_row(l->c, SQL_GET_FRAME, n, &st);

	if (r < 0)
		return r;
	*ret_id = (u64)sqlite3_column_int64(st, 0);
	k.kind = (u32)sqlite3_column_int64(st, 1);
	k.flags = (u32)sqlite3_column_int64(st, 2);
	mapping = sqlite3_column_int64(st, 3);
	k.address = (u64)sqlite3_column_int64(st, 4);
	function = sqlite3_column_int64(st, 5);
	k.line = (u32)sqlite3_column_int64(st, 6);
	k.column = (u32)sqlite3_column_int64(st, 7);
	if (ret_named && sqlite3_column_bytes(st, 8))
		r = str_append(ret_named, sqlite3_column_blob(st, 8),
			       (size_t)sqlite3_column_bytes(st, 8));
	if (r == 0 && mapping)
		r = load_mapping(l, mapping, &k, &f.mapping);
	if (r == 0 && function)
		r = load_function(l, function, &k.function, &f.function);
	if (r < 0)
		return r == -ENOENT ? -EBADMSG : r;
	if (store_frame_id(&k) != *ret_id || k.kind >= FRAME_KIND_N)
		return -EBADMSG;
	f.address = k.address;
	f.line = k.line;
	f.column = k.column;
	f.kind = (u8)k.kind;
	f.flags = (u8)k.flags;
	return profile_add_frame(l->cache->profile, &f, ret);
}

u64 sq_named_sum(u64 id, const void *list, size_t size)
{
	return hash_bytes(list, size) ^ hash_u64(id);
}

static int load_named(struct loading *l, u64 of, const struct str *named)
{
	struct buf b = buf_of(named->data, named->n);
	u64 n, id, sum;
	u32 frame;
	int r = 0;

	if (!buf_u64(&b, &sum) || sum != sq_named_sum(of, b.pos, buf_left(&b)))
		return -EBADMSG;
	while (buf_left(&b) && r == 0) {
		if (!varint_get(&b, &n))
			return -EBADMSG;
		r = load_plain_frame(l, (s64)n, &id, &frame, NULL);
		if (r == 0)
			r = vec_push(&l->cache->reals, frame);
	}
	return r;
}

static int load_frame(struct loading *l, s64 n, const struct sq_frame **ret)
{
	struct sq_cache *c = l->cache;
	u64 *known = map_get(&c->frames, (u64)n);
	struct sq_frame f = {.first = (u32)c->reals.n};
	_cleanup_str_ struct str named = {};
	u32 plain;
	int r = 0;

	if (known) {
		*ret = &c->frame_list.data[*known];
		return 0;
	}
	r = load_plain_frame(l, n, &f.id, &plain, &named);
	if (r == 0 && named.n) {
		r = load_named(l, f.id, &named);
		if (sq_is_damage(r) || r == -ENOENT) {
			c->reals.n = f.first; /* keep the frame, without its names */
			sq_note_damaged_row(l->s);
			r = 0;
		}
	}
	if (r == 0 && c->reals.n == f.first)
		r = vec_push(&c->reals, plain);
	f.n = (u32)c->reals.n - f.first;
	if (r == 0)
		r = map_put(&c->frames, (u64)n, c->frame_list.n);
	if (r == 0)
		r = vec_push(&c->frame_list, f);
	if (r == 0)
		*ret = &c->frame_list.data[c->frame_list.n - 1];
	return r;
}

static int read_numbers(const u8 *data, size_t size, struct sq_stack_frames *f)
{
	struct buf b = buf_of(data, size);
	u64 n;

	vec_clear(&f->numbers);
	while (buf_left(&b)) {
		if (f->numbers.n >= MAX_DEPTH || !varint_get(&b, &n))
			return -EBADMSG;
		if (vec_push(&f->numbers, n) < 0)
			return -ENOMEM;
	}
	return 0;
}

static int load_frames(struct loading *l, struct sq_stack_frames *f)
{
	const struct sq_frame *frame = NULL;
	int r = 0;

	vec_clear(&f->ids);
	vec_clear(&f->reals);
	vec_foreach (&f->numbers, n) {
		r = load_frame(l, (s64)*n, &frame);
		if (r == 0)
			r = vec_push(&f->ids, frame->id);
		for (u32 i = 0; r == 0 && i < frame->n; i++)
			r = vec_push(&f->reals, l->cache->reals.data[frame->first + i]);
		if (r < 0)
			break;
	}
	return r == -ENOENT ? -EBADMSG : r;
}

/*
 * Whether the cache has the stack of this id or, if by_number, number; sets c->last_stack. Mostly
 * it is the one behind the last one, because stacks are loaded and looked up in the order of their
 * numbers.
 */
static bool find_stack(struct sq_cache *c, bool by_number, u64 key)
{
	size_t next = c->last_stack + 1;
	u64 *known;

	if (next < c->stack_list.n) {
		const struct sq_stack *s = &c->stack_list.data[next];

		if ((by_number ? s->n : s->id) == key) {
			c->last_stack = next;
			return true;
		}
	}
	known = map_get(by_number ? &c->stacks : &c->stack_ids, key);
	if (known)
		c->last_stack = *known;
	return known != NULL;
}

/* ret: the stack's position in the cache. */
static int load_stack(struct loading *l, s64 n, size_t *ret)
{
	struct sq_cache *c = l->cache;
	struct sq_stack_frames *f = &c->scratch;
	struct sq_stack e = {.n = (u64)n};
	sqlite3_stmt *st;
	int r;

	if (find_stack(c, true, (u64)n)) {
		*ret = c->last_stack;
		return 0;
	}
	r = get_row(l->c, SQL_GET_STACK, n, &st);
	if (r < 0)
		return r;
	e.id = (u64)sqlite3_column_int64(st, 0);
	r = read_numbers(sqlite3_column_blob(st, 1), (size_t)sqlite3_column_bytes(st, 1), f);
	if (r == 0)
		r = load_frames(l, f);
	if (r == 0 && (store_stack_id(f->ids.data, f->ids.n) != e.id ||
		       !sq_number_is_right(l->c, SQL_INDEX_STACK, e.id, n)))
		r = -EBADMSG;
	if (r == 0)
		r = profile_add_stack(c->profile, f->reals.data, f->reals.n, &e.stack);
	if (r == 0)
		r = map_put(&c->stacks, (u64)n, c->stack_list.n);
	if (r == 0)
		r = map_put(&c->stack_ids, e.id, c->stack_list.n);
	if (r == 0)
		r = vec_push(&c->stack_list, e);
	if (r == 0)
		*ret = c->last_stack = c->stack_list.n - 1;
	else if (sq_is_damage(r))
		sq_note_damaged_row(l->s);
	return r;
}

int sq_stack_id(struct sq *s, struct sq_conn *c, u32 n, u64 *ret)
{
	struct loading l = {s, c, &s->cache};
	QUOTA_PAUSED;
	size_t at;
	int r = load_stack(&l, n, &at);

	if (r == 0)
		*ret = s->cache.stack_list.data[at].id;
	return r;
}

/* ---- series ---- */

/* Splits names and values, each of which ends in NUL, and checks that their hash is the id. */
static int read_labels(const u8 *data, size_t size, u64 id, struct store_label *ret, size_t *ret_n)
{
	struct buf b = buf_of(data, size);
	size_t n = 0;

	while (buf_left(&b)) {
		if (n >= STORE_MAX_LABELS || !buf_cstr(&b, &ret[n].name) ||
		    !buf_cstr(&b, &ret[n].value))
			return -EBADMSG;
		n++;
	}
	if (store_series_id(ret, n) != id)
		return -EBADMSG;
	*ret_n = n;
	return 0;
}

static int get_labels(struct sq_conn *c, u32 n, u64 *ret_id, struct store_label *ret, size_t *ret_n)
{
	sqlite3_stmt *st;
	int r = get_row(c, SQL_GET_SERIES, n, &st);

	if (r < 0)
		return r;
	*ret_id = (u64)sqlite3_column_int64(st, 0);
	if (!sq_number_is_right(c, SQL_INDEX_SERIES, *ret_id, n))
		return -EBADMSG;
	return read_labels(sqlite3_column_blob(st, 1), (size_t)sqlite3_column_bytes(st, 1), *ret_id,
			   ret, ret_n);
}

int sq_series_resource(struct sq_conn *c, u32 n, struct profile *into, u64 *ret_id,
		       u32 *ret_resource)
{
	struct store_label labels[STORE_MAX_LABELS];
	struct profile_label ids[STORE_MAX_LABELS];
	size_t n_labels;
	int r = get_labels(c, n, ret_id, labels, &n_labels);

	for (size_t i = 0; r == 0 && i < n_labels; i++) {
		r = profile_add_string(into, labels[i].name, strlen(labels[i].name), &ids[i].name);
		if (r == 0)
			r = profile_add_string(into, labels[i].value, strlen(labels[i].value),
					       &ids[i].value);
	}
	return r < 0 ? r : profile_add_resource(into, ids, n_labels, ret_resource);
}

int sq_series_id(struct sq *s, struct sq_conn *c, u32 n, u64 *ret)
{
	struct store_label labels[STORE_MAX_LABELS];
	u64 *known = map_get(&s->cache.series, n), id;
	QUOTA_PAUSED;
	size_t n_labels;
	int r = 0;

	if (known) {
		*ret = *known;
		return 0;
	}
	r = get_labels(c, n, &id, labels, &n_labels);
	if (r == 0)
		r = map_put(&s->cache.series, n, id);
	if (r == 0)
		*ret = id;
	else if (sq_is_damage(r))
		sq_note_damaged_row(s);
	return r;
}

/* ---- for writers ---- */

static int check_mapping(struct loading *l, s64 n, u64 id)
{
	struct store_frame_key k = {};
	u32 mapping;
	int r = load_mapping(l, n, &k, &mapping);
	u64 parts[] = {k.path, k.build_id};

	return r == 0 && store_id(parts, sizeof(parts)) != id ? -EBADMSG : r;
}

static int check_row(struct loading *l, enum sq_table table, s64 n, u64 id)
{
	const struct sq_frame *frame;
	u64 found;
	size_t at;
	u32 function;

	switch (table) {
	case SQ_SERIES:
		return sq_series_id(l->s, l->c, (u32)n, &found);
	case SQ_MAPPINGS:
		return check_mapping(l, n, id);
	case SQ_FUNCTIONS:
		return load_function(l, n, &found, &function);
	case SQ_FRAMES:
		return load_frame(l, n, &frame);
	case SQ_STACKS:
		return load_stack(l, n, &at);
	default:
		return 0;
	}
}

int sq_check_row(struct sq *s, enum sq_table table, s64 n, u64 id)
{
	struct loading l = {.s = s, .c = s->writer, .cache = &s->cache};
	int r;

	pthread_mutex_lock(&s->cache_lock);
	r = sq_cache_trim(s, s->naming);
	if (r == 0)
		r = check_row(&l, table, n, id);
	pthread_mutex_unlock(&s->cache_lock);
	if (sq_is_damage(r))
		s->broken = true;
	return r;
}

/* ---- into a profile ---- */

/* -ENOENT when there is no such stack. */
static int load_stack_by_id(struct loading *l, u64 id, size_t *ret)
{
	QUOTA_PAUSED;
	sqlite3_stmt *st;
	int r;

	if (find_stack(l->cache, false, id)) {
		*ret = l->cache->last_stack;
		return 0;
	}
	r = get_row(l->c, SQL_FIND_STACK, (s64)id, &st);
	return r < 0 ? r : load_stack(l, sqlite3_column_int64(st, 0), ret);
}

/* The stacks of an answer on their way from the cache. */
struct answering {
	struct loading l;
	struct store_copy copy;
	u64 emptied; /* sq_cache.emptied at the last step */
};

/*
 * Copies stacks while the cache has room, up to SQ_LOCKED_ROWS of them, so that others get the
 * lock. Returns how many.
 */
static int copy_stacks(struct answering *a, const u64 *ids, size_t n, u32 *ret_stacks)
{
	const struct sq_cache *cache = a->l.cache;
	size_t at, i = 0;
	int r = 0;

	if (a->emptied != cache->emptied)
		store_copy_deinit(&a->copy);
	a->emptied = cache->emptied;
	for (; i < MIN(n, (size_t)SQ_LOCKED_ROWS) && (!i || !sq_cache_is_full(a->l.s)); i++) {
		r = load_stack_by_id(&a->l, ids[i], &at);
		ret_stacks[i] = r == 0 ? cache->stack_list.data[at].stack : PROFILE_NONE;
		if (r < 0 && r != -ENOENT && !sq_is_damage(r))
			return r;
	}
	r = store_copy_more(&a->copy, cache->profile, ret_stacks, i);
	return r < 0 ? r : (int)i;
}

int sq_load_stacks(struct store *base, const u64 *ids, size_t n, struct profile *into,
		   u32 *ret_stacks, struct diag *reterr_diag)
{
	struct sq *s = sq_of(base);
	struct answering a = {.l = {.s = s, .cache = &s->cache}, .copy = {.into = into}};
	u64 naming = 0;
	int r = sq_reader_get(s, reterr_diag, &a.l.c);

	if (r < 0)
		return r;
	/* In one transaction all frames of the answer have the same names, and reads are faster. */
	r = sq_snapshot(s, a.l.c, &naming, reterr_diag);
	for (size_t i = 0; i < n && r >= 0; i += (size_t)MAX(r, 0)) {
		r = quota_check(NULL);
		if (r < 0)
			break;
		pthread_mutex_lock(&s->cache_lock);
		r = sq_cache_trim(s, naming);
		if (r == 0)
			r = copy_stacks(&a, ids + i, n - i, ret_stacks + i);
		pthread_mutex_unlock(&s->cache_lock);
	}
	store_copy_deinit(&a.copy);
	sq_run(a.l.c, SQL_COMMIT);
	sq_reader_put(s, a.l.c);
	return r < 0 ? diag_set(reterr_diag, r, "cannot load stacks: %s", strerror(-r)) : 0;
}
