/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of frames: finds stacks by name, and adds late symbols.
 *
 * A frame that was written as binary and address keeps its row; the table `names` lists the frames
 * that replace it. Those frames are sent first, so that a reader sees all names of a frame or none.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "base/text.h"
#include "base/varint.h"
#include "server/store/clickhouse/clickhouse.h"
#include "server/store/clickhouse/load.h"

#define FRAMES_AT_ONCE 4096
#define MAX_CHAIN 64
#define UNNAME_TRIES 600 /* of 100 ms */

/* ---- finding stacks by name ---- */

struct finding {
	struct ch *s;
	const char *service;
	struct ch_loading l;
	struct ch_reals reals; /* scratch */
	struct ids {
		vec(u64) list;
	} frames;
	struct diag *diag;
};

static void finding_deinit(struct finding *f)
{
	profile_destroy(f->l.into);
	ch_loading_deinit(&f->l);
	vec_deinit(&f->reals.frames);
	vec_deinit(&f->frames.list);
}

static int read_ids(const struct str *answer, struct map *ret)
{
	struct buf b = buf_of(str_get(answer), answer->n);
	int r = 0;
	u64 id;

	while (buf_left(&b) && r == 0)
		r = buf_u64(&b, &id) && ch_is_id(id) ? map_put(ret, id, PROFILE_NONE) : -EBADMSG;
	return r;
}

static int select_ids(struct finding *f, const char *select, const char *and_in, struct map *ret)
{
	_cleanup_str_ struct str sql = {}, answer = {};
	int r;

	str_printf(&sql, "SELECT DISTINCT %s WHERE 1", select);
	if (f->service) {
		str_puts(&sql, " AND service = ");
		ch_sql_string(&sql, f->service);
	}
	if (and_in) {
		str_printf(&sql, " AND %s IN (", and_in);
		ch_sql_ids(&sql, f->frames.list.data, f->frames.list.n);
		str_putc(&sql, ')');
	}
	str_puts(&sql, " FORMAT RowBinary");
	r = sql.failed ? -ENOMEM : ch_select(f->s, str_get(&sql), &answer, f->diag);
	return r < 0 ? r : read_ids(&answer, ret);
}

/* Collects the frames whose name, possibly from late symbols, the callback accepts. */
static int accept_frames(struct finding *f, bool (*accept)(void *userdata, const char *name),
			 void *userdata)
{
	_cleanup_str_ struct str scratch = {};
	int r = 0;

	map_foreach (&f->l.frames, it) {
		bool wanted = false;

		vec_clear(&f->reals.frames);
		r = ch_push_frame(&f->l, it->key, &f->reals);
		if (r == -ENOENT)
			continue;
		for (size_t i = 0; i < f->reals.frames.n && r == 0 && !wanted; i++)
			wanted = accept(
				userdata,
				profile_frame_name(f->l.into, f->reals.frames.data[i], &scratch));
		if (r == 0 && wanted)
			r = vec_push(&f->frames.list, it->key);
		if (r < 0)
			return r;
	}
	return 0;
}

static int compare_ids(const void *a, const void *b)
{
	u64 x = *(const u64 *)a, y = *(const u64 *)b;

	return x < y ? -1 : x > y;
}

static int take_ids(const struct map *m, struct store_ids *ret)
{
	struct store_ids ids = {};

	if (vec_reserve(&ids.ids, m->n) < 0)
		return -ENOMEM;
	map_foreach (m, it)
		ids.ids.data[ids.ids.n++] = it->key;
	if (ids.ids.n)
		qsort(ids.ids.data, ids.ids.n, sizeof(u64), compare_ids);
	*ret = ids;
	return 0;
}

int ch_find_stacks(struct store *base, const char *service,
		   bool (*accept)(void *userdata, const char *name), void *userdata,
		   struct store_ids *ret, struct diag *reterr_diag)
{
	__attribute__((cleanup(finding_deinit))) struct finding f = {
		.s = ch_of(base), .service = service, .diag = reterr_diag};
	struct map stacks = {};
	int r;

	f.l.into = profile_create();
	r = f.l.into ? select_ids(&f, "arrayJoin(frames) AS f FROM stacks", NULL, &f.l.frames)
		     : -ENOMEM;
	if (r == 0)
		r = ch_load_frames(f.s, &f.l, reterr_diag);
	if (r == 0)
		r = accept_frames(&f, accept, userdata);
	if (r == 0 && f.frames.list.n)
		r = select_ids(&f, "id FROM stacks ARRAY JOIN frames AS f", "f", &stacks);
	if (r == 0)
		r = take_ids(&stacks, ret);
	map_deinit(&stacks);
	if (r == -EBADMSG)
		return ch_damaged_answer(reterr_diag);
	return r == -ENOMEM ? diag_set(reterr_diag, r, "out of memory") : r;
}

/* ---- late symbols ---- */

struct nameless {
	u64 id, address;
	u32 mapping; /* in the profile */
	u8 flags;
	u32 first, n_real; /* the range in naming.real */
};

struct naming {
	struct ch *s;
	const char *build_id;
	int (*name)(void *userdata, u64 address, struct profile *into, u32 *ret_frames, size_t max);
	void *userdata;
	struct diag *diag;
	/* The frames that were read last. */
	vec(struct nameless) frames;
	vec(u32) real;		 /* in the profile */
	struct profile *profile; /* owned */
};

static void naming_deinit(struct naming *g)
{
	vec_deinit(&g->frames);
	vec_deinit(&g->real);
	profile_destroy(g->profile);
}

static int take_nameless(struct naming *g, struct buf *b)
{
	struct profile_mapping m = {};
	struct nameless f = {};
	const char *path;
	size_t n;
	int r;

	if (!buf_u64(b, &f.id) || !buf_u8(b, &f.flags) || !ch_get_string(b, &path, &n) ||
	    !buf_u64(b, &f.address))
		return -EBADMSG;
	r = profile_add_string(g->profile, path, n, &m.path);
	if (r == 0)
		r = profile_add_string(g->profile, g->build_id, strlen(g->build_id), &m.build_id);
	if (r == 0)
		r = profile_add_mapping(g->profile, &m, &f.mapping);
	return r < 0 ? r : vec_push(&g->frames, f);
}

/* Reads the next frames without a name. Begins a new profile. */
static int read_some(struct naming *g, u64 after)
{
	_cleanup_str_ struct str sql = {}, answer = {};
	struct buf b;
	int r;

	profile_destroy(g->profile);
	vec_clear(&g->frames);
	vec_clear(&g->real);
	g->profile = profile_create();
	r = g->profile ? profile_add_type(g->profile, "names", vocab_unit(UNIT_COUNT)) : -ENOMEM;
	str_printf(&sql,
		   "SELECT DISTINCT id, flags, toString(path), address FROM frames WHERE id > %llu "
		   "AND kind = %u AND flags = 0 AND function = 0 AND build_id = ",
		   after, FRAME_NATIVE);
	ch_sql_string(&sql, g->build_id);
	str_printf(&sql,
		   " AND id GLOBAL NOT IN (SELECT frame FROM names) ORDER BY id LIMIT %u FORMAT "
		   "RowBinary",
		   FRAMES_AT_ONCE);
	if (r == 0)
		r = sql.failed ? -ENOMEM : ch_select(g->s, str_get(&sql), &answer, g->diag);
	b = buf_of(str_get(&answer), answer.n);
	while (r == 0 && buf_left(&b))
		r = take_nameless(g, &b);
	return r;
}

/* Binary and address are those of the nameless frame, whatever the callback has set. */
static int add_real_frame(struct naming *g, const struct nameless *f, u32 named, bool last)
{
	struct profile_frame real;
	u32 id;
	int r;

	if (named >= g->profile->frames.n)
		return -EINVAL;
	real = g->profile->frames.data[named];
	real.mapping = f->mapping;
	real.address = f->address;
	real.kind = FRAME_NATIVE;
	real.flags = last ? f->flags : PROFILE_FRAME_INLINED;
	r = profile_add_frame(g->profile, &real, &id);
	return r < 0 ? r : vec_push(&g->real, id);
}

static int name_some(struct naming *g)
{
	u32 frames[MAX_CHAIN];
	int n, r = 0;

	vec_foreach (&g->frames, f) {
		n = g->name(g->userdata, f->address, g->profile, frames, MAX_CHAIN);
		if (n < 0)
			return n;
		f->first = (u32)g->real.n;
		f->n_real = (u32)MIN(n, MAX_CHAIN);
		for (u32 i = 0; i < f->n_real && r == 0; i++)
			r = add_real_frame(g, f, frames[i], i + 1 == f->n_real);
		if (r < 0)
			return r;
	}
	return 0;
}

/*
 * Names that were taken away may come again. Old servers compare INSERTs by `again`, modern servers
 * by their token only.
 */
static int send_names(struct naming *g)
{
	_cleanup_store_batch_ struct store_batch b = {};
	_cleanup_str_ struct str rows = {};
	u8 token[16];
	char text[33];
	int r = store_batch_init(&b, g->profile, NULL, g->diag);

	if (r == 0 && getrandom(token, sizeof(token), 0) != sizeof(token))
		return diag_set(g->diag, -EIO, "no random numbers");
	text_hex(token, sizeof(token), text);
	if (r == 0)
		r = ch_send_frames(g->s, &b, g->diag);
	if (r < 0)
		return r;
	vec_foreach (&g->frames, f) {
		if (!f->n_real)
			continue;
		ch_put_u64(&rows, f->id);
		varint_put(&rows, f->n_real);
		for (u32 i = 0; i < f->n_real; i++)
			ch_put_u64(&rows, b.frames[g->real.data[f->first + i]]);
	}
	return ch_run(g->s,
		      &(struct ch_request){.sql = "INSERT INTO names (frame, frames) FORMAT "
						  "RowBinary",
					   .rows = &rows,
					   .token = g->s->modern ? text : NULL,
					   .again = true},
		      NULL, g->diag);
}

int ch_name_frames(struct store *base, const char *build_id,
		   int (*name)(void *userdata, u64 address, struct profile *into, u32 *ret_frames,
			       size_t max),
		   void *userdata, struct diag *reterr_diag)
{
	struct diag d = {};
	__attribute__((cleanup(naming_deinit))) struct naming g = {.s = ch_of(base),
								   .build_id = build_id,
								   .name = name,
								   .userdata = userdata,
								   .diag = &d};
	u64 after = 0;
	int r = *build_id ? 0 : -EINVAL;

	while (r == 0) {
		r = read_some(&g, after);
		if (r < 0 || !g.frames.n)
			break;
		after = g.frames.data[g.frames.n - 1].id;
		r = name_some(&g);
		if (r == 0 && g.real.n)
			r = send_names(&g);
	}
	return r < 0 ? diag_set(reterr_diag, r, "cannot name frames: %s",
				d.text[0] ? d.text : strerror(-r))
		     : 0;
}

/* ---- taking names away ---- */

int ch_list_ids(struct ch *s, const char *sql, struct str *ret, size_t *ret_n,
		struct diag *reterr_diag)
{
	_cleanup_str_ struct str answer = {};
	int r = ch_select(s, sql, &answer, reterr_diag);
	struct buf b = buf_of(str_get(&answer), answer.n);
	size_t n = 0;
	u64 id;

	for (; r == 0 && buf_left(&b); n++)
		r = buf_u64(&b, &id) ? str_printf(ret, "%s%llu", n ? "," : "", id) : -EBADMSG;
	*ret_n = n;
	return r;
}

/* Lists some frames of the binary that have names. */
static int list_named(struct ch *s, const char *build_id, struct str *ret, size_t *ret_n,
		      struct diag *reterr_diag)
{
	_cleanup_str_ struct str sql = {};

	str_puts(&sql, "SELECT DISTINCT id FROM frames WHERE build_id = ");
	ch_sql_string(&sql, build_id);
	str_printf(&sql, " AND id GLOBAL IN (SELECT frame FROM names) LIMIT %u FORMAT RowBinary",
		   FRAMES_AT_ONCE);
	return sql.failed ? -ENOMEM : ch_list_ids(s, str_get(&sql), ret, ret_n, reterr_diag);
}

/*
 * Every node has all rows, and deletes them in the background: waits until this node has done so.
 */
static int wait_for_deletion(struct ch *s, struct diag *reterr_diag)
{
	const struct timespec pause = {.tv_nsec = 100000000};

	for (u32 i = 0; i < UNNAME_TRIES; i++) {
		bool busy;
		int r = ch_is_deleting(s, "names", &busy, reterr_diag);

		if (r < 0 || !busy)
			return r;
		nanosleep(&pause, NULL);
	}
	return -ETIMEDOUT;
}

int ch_unname_frames(struct store *base, const char *build_id, struct diag *reterr_diag)
{
	struct ch *s = ch_of(base);
	struct diag d = {};
	size_t n = 1;
	int r = 0;

	while (r == 0 && n) {
		_cleanup_str_ struct str ids = {}, sql = {};

		r = list_named(s, build_id, &ids, &n, &d);
		if (r < 0 || !n)
			break;
		str_printf(&sql, "ALTER TABLE names DELETE WHERE frame IN (%s)", str_get(&ids));
		r = sql.failed ? -ENOMEM : ch_select(s, str_get(&sql), NULL, &d);
		if (r == 0)
			r = wait_for_deletion(s, &d);
	}
	pthread_mutex_lock(&s->cache_lock);
	ch_cache_deinit(&s->cache);
	pthread_mutex_unlock(&s->cache_lock);
	return r < 0 ? diag_set(reterr_diag, r, "cannot take names away: %s",
				d.text[0] ? d.text : strerror(-r))
		     : 0;
}
