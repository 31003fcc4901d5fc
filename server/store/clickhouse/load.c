/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loads stacks by id, with one query each for stacks, names, frames and functions, and caches them.
 *
 * Until ClickHouse merges parts, a query may return a row several times, always with the same
 * content, because the id is the hash of the content.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "server/store/clickhouse/clickhouse.h"
#include "server/store/clickhouse/load.h"

#define CACHE_NS (600 * 1000000000ULL)

void ch_loading_deinit(struct ch_loading *l)
{
	map_deinit(&l->stacks);
	map_deinit(&l->frames);
	map_deinit(&l->named);
	map_deinit(&l->functions);
	vec_deinit(&l->ids);
	vec_deinit(&l->lists);
	vec_deinit(&l->frame_list);
}

/* ---- lists of ids: the frames of stacks, and of named frames ---- */

/* Adds the ids of the list to `wanted`: the next query asks for them. */
static int take_list(struct ch_loading *l, struct buf *b, struct map *by_id, struct map *wanted)
{
	struct ch_list e = {.first = l->ids.n};
	size_t n;
	u64 id;
	int r = 0;

	if (!buf_u64(b, &id) || !ch_is_id(id) || !ch_get_count(b, sizeof(id), &n) ||
	    n > CH_MAX_DEPTH)
		return -EBADMSG;
	e.n = (u32)n;
	for (size_t i = 0; i < n && r == 0; i++) {
		u64 part = 0;

		buf_u64(b, &part);
		r = ch_is_id(part) ? vec_push(&l->ids, part) : -EBADMSG;
		if (r == 0 && !map_get(wanted, part))
			r = map_put(wanted, part, PROFILE_NONE);
	}
	if (r < 0)
		return r;
	if (map_get(by_id, id)) {
		l->ids.n = e.first;
		return 0;
	}
	r = map_put(by_id, id, l->lists.n);
	return r < 0 ? r : vec_push(&l->lists, e);
}

int ch_read_lists(struct ch_loading *l, const struct str *answer, struct map *by_id,
		  struct map *wanted)
{
	struct buf b = buf_of(str_get(answer), answer->n);
	int r = 0;

	while (buf_left(&b) && r == 0)
		r = take_list(l, &b, by_id, wanted);
	return r;
}

/* ---- functions and frames ---- */

static int take_function(struct ch_loading *l, struct buf *b)
{
	struct profile_function f = {};
	u32 at;
	u64 id;
	int r = buf_u64(b, &id) && ch_is_id(id) ? 0 : -EBADMSG;

	if (r == 0)
		r = ch_get_text(b, l->into, &f.name);
	if (r == 0)
		r = ch_get_text(b, l->into, &f.system_name);
	if (r == 0)
		r = ch_get_text(b, l->into, &f.file);
	if (r == 0 && !buf_u32(b, &f.start_line))
		r = -EBADMSG;
	if (r == 0)
		r = profile_add_function(l->into, &f, &at);
	return r < 0 ? r : map_put(&l->functions, id, at);
}

int ch_read_functions(struct ch_loading *l, const struct str *answer)
{
	struct buf b = buf_of(str_get(answer), answer->n);
	int r = 0;

	while (buf_left(&b) && r == 0)
		r = take_function(l, &b);
	return r;
}

static int take_mapping(struct ch_loading *l, struct buf *b, u32 *ret)
{
	struct profile_mapping m = {};
	int r = ch_get_text(b, l->into, &m.path);

	if (r == 0)
		r = ch_get_text(b, l->into, &m.build_id);
	*ret = PROFILE_NONE;
	if (r == 0 && (m.path || m.build_id))
		r = profile_add_mapping(l->into, &m, ret);
	return r;
}

/* The frame keeps the id of its function until functions are loaded. */
static int take_frame(struct ch_loading *l, struct buf *b)
{
	struct ch_frame f = {.frame.function = PROFILE_NONE};
	u64 id;
	int r;

	if (!buf_u64(b, &id) || !ch_is_id(id) || !buf_u8(b, &f.frame.kind) ||
	    !buf_u8(b, &f.frame.flags) || f.frame.kind >= FRAME_KIND_N)
		return -EBADMSG;
	r = take_mapping(l, b, &f.frame.mapping);
	if (r < 0)
		return r;
	if (!buf_u64(b, &f.frame.address) || !buf_u64(b, &f.function) ||
	    !buf_u32(b, &f.frame.line) || !buf_u32(b, &f.frame.column))
		return -EBADMSG;
	if (f.function && !ch_is_id(f.function))
		return -EBADMSG;
	if (f.function && !map_get(&l->functions, f.function))
		r = map_put(&l->functions, f.function, PROFILE_NONE);
	if (r == 0)
		r = map_put(&l->frames, id, l->frame_list.n);
	return r < 0 ? r : vec_push(&l->frame_list, f);
}

int ch_read_frames(struct ch_loading *l, const struct str *answer)
{
	struct buf b = buf_of(str_get(answer), answer->n);
	int r = 0;

	while (buf_left(&b) && r == 0)
		r = take_frame(l, &b);
	return r;
}

/* ---- queries ---- */

static void put_keys(struct str *sql, const struct map *m)
{
	const char *separator = "";

	map_foreach (m, it) {
		str_printf(sql, "%s%llu", separator, it->key);
		separator = ",";
	}
}

/* `select` ... IN (keys of m) */
static int select_rows(struct ch *s, const char *select, const struct map *m, struct str *ret,
		       struct diag *reterr_diag)
{
	_cleanup_str_ struct str sql = {};

	str_clear(ret);
	if (!m->n)
		return 0;
	str_printf(&sql, "%s IN (", select);
	put_keys(&sql, m);
	str_puts(&sql, ") FORMAT RowBinary");
	return sql.failed ? -ENOMEM : ch_select(s, str_get(&sql), ret, reterr_diag);
}

int ch_load_functions(struct ch *s, struct ch_loading *l, struct diag *reterr_diag)
{
	_cleanup_str_ struct str answer = {};
	int r = select_rows(
		s, "SELECT id, name, system_name, file, start_line FROM functions WHERE id",
		&l->functions, &answer, reterr_diag);

	return r < 0 ? r : ch_read_functions(l, &answer);
}

/* Loads the frames in l->frames, their replacements from late symbols, and all their functions. */
int ch_load_frames(struct ch *s, struct ch_loading *l, struct diag *reterr_diag)
{
	_cleanup_str_ struct str answer = {};
	struct map more = {};
	int r = select_rows(s, "SELECT frame, frames FROM names WHERE frame", &l->frames, &answer,
			    reterr_diag);

	if (r == 0)
		r = ch_read_lists(l, &answer, &l->named, &more);
	map_foreach (&more, it)
		if (r == 0 && !map_get(&l->frames, it->key))
			r = map_put(&l->frames, it->key, PROFILE_NONE);
	map_deinit(&more);
	if (r == 0)
		r = select_rows(
			s,
			"SELECT id, kind, flags, toString(path), toString(build_id), address, "
			"function, line, col FROM frames WHERE id",
			&l->frames, &answer, reterr_diag);
	if (r == 0)
		r = ch_read_frames(l, &answer);
	return r < 0 ? r : ch_load_functions(s, l, reterr_diag);
}

/* ---- into the profile ---- */

/* Adds a frame without its late symbols. -ENOENT: the frame is missing. */
static int add_plain_frame(struct ch_loading *l, u64 id, u32 *ret)
{
	u64 *at = map_get(&l->frames, id), *function;
	struct ch_frame *f;

	if (!at || *at == PROFILE_NONE)
		return -ENOENT;
	f = &l->frame_list.data[*at];
	function = f->function ? map_get(&l->functions, f->function) : NULL;
	if (f->function && (!function || *function == PROFILE_NONE))
		return -ENOENT;
	f->frame.function = function ? (u32)*function : PROFILE_NONE;
	return profile_add_frame(l->into, &f->frame, ret);
}

int ch_push_frame(struct ch_loading *l, u64 id, struct ch_reals *out)
{
	u64 *named = map_get(&l->named, id);
	const struct ch_list *list = named ? &l->lists.data[*named] : NULL;
	size_t before = out->frames.n;
	u32 frame;
	int r = 0;

	for (u32 i = 0; list && i < list->n && r == 0; i++) {
		r = add_plain_frame(l, l->ids.data[list->first + i], &frame);
		if (r == 0)
			r = vec_push(&out->frames, frame);
	}
	if (r == 0 && out->frames.n > before)
		return 0;
	/* A replacement is missing: add the frame without names. */
	out->frames.n = before;
	r = add_plain_frame(l, id, &frame);
	return r < 0 ? r : vec_push(&out->frames, frame);
}

/* -ENOENT when a frame is missing. */
int ch_add_stack(struct ch_loading *l, u64 id, struct ch_reals *scratch, u32 *ret)
{
	u64 *at = map_get(&l->stacks, id);
	const struct ch_list *list;
	int r = at ? 0 : -ENOENT;

	vec_clear(&scratch->frames);
	if (r < 0)
		return r;
	list = &l->lists.data[*at];
	for (u32 i = 0; i < list->n && r == 0; i++)
		r = ch_push_frame(l, l->ids.data[list->first + i], scratch);
	return r < 0 ? r : profile_add_stack(l->into, scratch->frames.data, scratch->frames.n, ret);
}

static int select_stacks(struct ch *s, struct ch_loading *l, const u64 *ids, size_t n,
			 struct diag *reterr_diag)
{
	_cleanup_str_ struct str sql = {}, answer = {};
	int r;

	str_puts(&sql, "SELECT id, frames FROM stacks WHERE id IN (");
	ch_sql_ids(&sql, ids, n);
	str_puts(&sql, ") FORMAT RowBinary");
	r = sql.failed ? -ENOMEM : ch_select(s, str_get(&sql), &answer, reterr_diag);
	return r < 0 ? r : ch_read_lists(l, &answer, &l->stacks, &l->frames);
}

/* ---- the cache ---- */

void ch_cache_deinit(struct ch_cache *c)
{
	profile_destroy(c->profile);
	map_deinit(&c->stacks);
	*c = (struct ch_cache){};
}

/*
 * Empties the cache if it is too large, if names arrived since the cache was loaded, or if it is
 * old: another server may have replaced names by as many others.
 */
static int prepare_cache(struct ch *s, struct diag *d)
{
	_cleanup_str_ struct str answer = {};
	struct ch_cache *c = &s->cache;
	const struct profile *p = c->profile;
	u64 names = 0, bytes = 0;
	struct buf b;
	int r = ch_select(s, "SELECT toUInt64(count()) FROM names FORMAT RowBinary", &answer, d);

	b = buf_of(str_get(&answer), answer.n);
	if (r == 0 && !buf_u64(&b, &names))
		r = -EBADMSG;
	if (r < 0)
		return r;
	if (p)
		bytes = p->strings.n_bytes + p->strings.n * 16 + p->functions.n * 36 +
			p->frames.n * 64 + p->stacks.n * 36 + p->stack_frames.n * 4 +
			c->stacks.cap * sizeof(struct map_slot);
	if (bytes > s->limits.cache_bytes / 2 || names != c->names ||
	    clock_ns(CLOCK_MONOTONIC) - c->created_ns > CACHE_NS)
		ch_cache_deinit(c);
	c->names = names;
	if (!c->profile) {
		c->profile = profile_create();
		c->created_ns = clock_ns(CLOCK_MONOTONIC);
	}
	return c->profile ? 0 : -ENOMEM;
}

static int load_missing(struct ch *s, const u64 *ids, size_t n, struct diag *d)
{
	_cleanup_ch_loading_ struct ch_loading l = {.into = s->cache.profile};
	struct ch_reals reals = {};
	int r = select_stacks(s, &l, ids, n, d);

	if (r == 0)
		r = ch_load_frames(s, &l, d);
	for (size_t i = 0; i < n && r == 0; i++) {
		u32 stack;

		r = ch_add_stack(&l, ids[i], &reals, &stack);
		if (r == 0)
			r = map_put(&s->cache.stacks, ids[i], stack);
		else if (r == -ENOENT)
			r = 0;
	}
	vec_deinit(&reals.frames);
	return r;
}

static int load_stacks(struct ch *s, const u64 *ids, size_t n, struct profile *into,
		       u32 *ret_stacks, struct diag *d)
{
	_cleanup_free_ u64 *missing = calloc(n + 1, sizeof(*missing));
	size_t n_missing = 0;
	int r = missing ? prepare_cache(s, d) : -ENOMEM;

	/* An id that cannot be a key of a map belongs to no stack. */
	for (size_t i = 0; i < n && r == 0; i++)
		if (ch_is_id(ids[i]) && !map_get(&s->cache.stacks, ids[i]))
			missing[n_missing++] = ids[i];
	if (r == 0 && n_missing)
		r = load_missing(s, missing, n_missing, d);
	for (size_t i = 0; i < n && r == 0; i++) {
		u64 *at = ch_is_id(ids[i]) ? map_get(&s->cache.stacks, ids[i]) : NULL;

		ret_stacks[i] = at ? (u32)*at : PROFILE_NONE;
	}
	return r < 0 ? r : store_copy_stacks(s->cache.profile, into, ret_stacks, n);
}

int ch_load_stacks(struct store *base, const u64 *ids, size_t n, struct profile *into,
		   u32 *ret_stacks, struct diag *reterr_diag)
{
	struct ch *s = ch_of(base);
	struct diag d = {};
	int r;

	if (!n)
		return 0;
	pthread_mutex_lock(&s->cache_lock);
	r = load_stacks(s, ids, n, into, ret_stacks, &d);
	pthread_mutex_unlock(&s->cache_lock);
	if (r == -EBADMSG)
		return ch_damaged_answer(reterr_diag);
	return r < 0 ? diag_set(reterr_diag, r, "cannot load stacks: %s",
				d.text[0] ? d.text : strerror(-r))
		     : 0;
}
