/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Late symbols. A frame that was written as binary and address keeps its row and its id. The column
 * `named` of the row gets the numbers of the frames that replace it: the rows that an agent with
 * symbols would have written. Stacks and samples do not change; loading a stack yields the names.
 *
 * Frames are read in groups. Their names are looked up without a lock and written in one
 * transaction. After an interruption the next call names the remaining frames. If a frame was swept
 * meanwhile, its update finds no row.
 */
#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/varint.h"
#include "server/store/sqlite/sqlite.h"

#define FRAMES_AT_ONCE 4096
#define MAX_CHAIN 64

struct build_mapping {
	s64 n;
	char *path; /* owned */
};

struct nameless {
	s64 n;
	u64 id, address;
	u32 first, n_real; /* the range in naming.real */
};

struct naming {
	struct sq *s;
	const char *build_id;
	int (*name)(void *userdata, u64 address, struct profile *into, u32 *ret_frames, size_t max);
	void *userdata;
	struct diag *diag;
	vec(struct build_mapping) mappings;
	/* The frames that were read last. */
	vec(struct nameless) frames;
	vec(u32) real;		 /* in the profile */
	struct profile *profile; /* owned */
};

static void naming_deinit(struct naming *g)
{
	vec_foreach (&g->mappings, m)
		free(m->path);
	vec_deinit(&g->mappings);
	vec_deinit(&g->frames);
	vec_deinit(&g->real);
	profile_destroy(g->profile);
}

static int read_mappings(struct naming *g, struct sq_conn *c)
{
	sqlite3_stmt *st = sq_get(c, SQL_BUILD_MAPPINGS);
	int r;

	if (!st)
		return sq_error(c, "cannot read", g->diag);
	sqlite3_bind_blob(st, 1, g->build_id, (int)strlen(g->build_id), SQLITE_STATIC);
	while ((r = sqlite3_step(st)) == SQLITE_ROW) {
		const char *path = sqlite3_column_blob(st, 1);
		struct build_mapping m = {
			.n = sqlite3_column_int64(st, 0),
			.path = strndup(path ? path : "", (size_t)sqlite3_column_bytes(st, 1)),
		};

		if (!m.path || vec_push(&g->mappings, m) < 0) {
			free(m.path);
			return -ENOMEM;
		}
	}
	return r == SQLITE_DONE ? 0 : sq_error(c, "cannot read", g->diag);
}

static int read_frames(struct naming *g, struct sq_conn *c, s64 mapping, s64 after)
{
	sqlite3_stmt *st = sq_get(c, SQL_NAMELESS_FRAMES);
	int r;

	if (!st)
		return sq_error(c, "cannot read", g->diag);
	sqlite3_bind_int64(st, 1, mapping);
	sqlite3_bind_int64(st, 2, FRAME_NATIVE);
	sqlite3_bind_int64(st, 3, after);
	sqlite3_bind_int64(st, 4, FRAMES_AT_ONCE);
	vec_clear(&g->frames);
	while ((r = sqlite3_step(st)) == SQLITE_ROW) {
		struct nameless f = {
			.n = sqlite3_column_int64(st, 0),
			.id = (u64)sqlite3_column_int64(st, 1),
			.address = (u64)sqlite3_column_int64(st, 2),
		};

		if (vec_push(&g->frames, f) < 0)
			return -ENOMEM;
	}
	return r == SQLITE_DONE ? 0 : sq_error(c, "cannot read", g->diag);
}

/* Puts the reader back at once: looking up names takes long, and must not hold a snapshot. */
static int read_some(struct naming *g, s64 mapping, s64 after)
{
	struct sq_conn *c;
	int r = sq_reader_get(g->s, g->diag, &c);

	if (r < 0)
		return r;
	r = mapping ? read_frames(g, c, mapping, after) : read_mappings(g, c);
	sq_reader_put(g->s, c);
	return r;
}

/* ---- looking names up ---- */

static int reset_profile(struct naming *g, const char *path, u32 *ret_mapping)
{
	struct profile_mapping m = {};
	int r;

	profile_destroy(g->profile);
	vec_clear(&g->real);
	g->profile = profile_create();
	if (!g->profile)
		return -ENOMEM;
	r = profile_add_type(g->profile, "names", vocab_unit(UNIT_COUNT));
	if (r == 0)
		r = profile_add_string(g->profile, path, strlen(path), &m.path);
	if (r == 0)
		r = profile_add_string(g->profile, g->build_id, strlen(g->build_id), &m.build_id);
	return r < 0 ? r : profile_add_mapping(g->profile, &m, ret_mapping);
}

/* Binary and address are those of the nameless frame, whatever the callback has set. */
static int add_real_frame(struct naming *g, u32 mapping, const struct nameless *f, u32 named,
			  bool last)
{
	struct profile_frame real;
	u32 id;
	int r;

	if (named >= g->profile->frames.n)
		return -EINVAL;
	real = g->profile->frames.data[named];
	real.mapping = mapping;
	real.address = f->address;
	real.kind = FRAME_NATIVE;
	real.flags = last ? 0 : PROFILE_FRAME_INLINED;
	r = profile_add_frame(g->profile, &real, &id);
	return r < 0 ? r : vec_push(&g->real, id);
}

static int name_some(struct naming *g, u32 mapping)
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
			r = add_real_frame(g, mapping, f, frames[i], i + 1 == f->n_real);
		if (r < 0)
			return r;
	}
	return 0;
}

/* ---- writing ---- */

static int write_frame(struct naming *g, const struct store_batch *b, const struct nameless *f)
{
	_cleanup_str_ struct str list = {}, named = {};
	sqlite3_stmt *st;
	u64 sum;
	s64 n;
	int r = 0;

	for (u32 i = 0; i < f->n_real && r == 0; i++) {
		r = sq_add_frame(g->s, b, g->real.data[f->first + i], &n, g->diag);
		varint_put(&list, (u64)n);
	}
	sum = sq_named_sum(f->id, list.data, list.n);
	str_append(&named, &sum, sizeof(sum));
	str_append(&named, list.data, list.n);
	if (r < 0 || list.failed || named.failed)
		return r < 0 ? r : -ENOMEM;
	st = sq_get(g->s->writer, SQL_NAME_FRAME);
	if (!st)
		return sq_error(g->s->writer, "cannot write", g->diag);
	sqlite3_bind_blob(st, 1, named.data, (int)named.n, SQLITE_STATIC);
	sqlite3_bind_int64(st, 2, f->n);
	sqlite3_bind_int64(st, 3, (s64)f->id);
	if (sqlite3_step(st) != SQLITE_DONE)
		return sq_error(g->s->writer, "cannot write names", g->diag);
	sqlite3_reset(st);
	return 0;
}

static int write_names(struct naming *g)
{
	_cleanup_store_batch_ struct store_batch b = {};
	_cleanup_sq_change_ struct sq_change change = {.names = true};
	int r = store_batch_init(&b, g->profile, NULL, g->diag);

	if (r < 0)
		return r;
	pthread_mutex_lock(&g->s->write_lock);
	r = sq_begin(g->s, g->diag);
	if (r == 0) {
		vec_foreach (&g->frames, f)
			if (f->n_real && r == 0)
				r = write_frame(g, &b, f);
		r = sq_end(g->s, r, &change, g->diag);
	}
	pthread_mutex_unlock(&g->s->write_lock);
	return r;
}

static int name_mapping(struct naming *g, const struct build_mapping *m)
{
	s64 after = 0;
	u32 mapping;
	int r;

	do {
		r = read_some(g, m->n, after);
		if (r == 0 && g->frames.n)
			r = reset_profile(g, m->path, &mapping);
		if (r == 0)
			r = name_some(g, mapping);
		if (r == 0 && g->real.n)
			r = write_names(g);
		if (r == 0 && g->frames.n)
			after = g->frames.data[g->frames.n - 1].n;
	} while (r == 0 && g->frames.n == FRAMES_AT_ONCE);
	return r;
}

int sq_name_frames(struct store *base, const char *build_id,
		   int (*name)(void *userdata, u64 address, struct profile *into, u32 *ret_frames,
			       size_t max),
		   void *userdata, struct diag *reterr_diag)
{
	__attribute__((cleanup(naming_deinit))) struct naming g = {.s = sq_of(base),
								   .build_id = build_id,
								   .name = name,
								   .userdata = userdata,
								   .diag = reterr_diag};
	int r = *build_id ? read_some(&g, 0, 0) : -EINVAL;

	for (size_t i = 0; i < g.mappings.n && r == 0; i++)
		r = name_mapping(&g, &g.mappings.data[i]);
	return r < 0 ? diag_set(reterr_diag, r, "cannot name frames: %s", strerror(-r)) : 0;
}

/* Collection sweeps the frames that stood for them. */
int sq_unname_frames(struct store *base, const char *build_id, struct diag *reterr_diag)
{
	_cleanup_sq_change_ struct sq_change change = {.names = true};
	struct sq *s = sq_of(base);
	sqlite3_stmt *st;
	int r;

	pthread_mutex_lock(&s->write_lock);
	r = sq_begin(s, reterr_diag);
	if (r == 0) {
		st = sq_get(s->writer, SQL_UNNAME_FRAMES);
		if (st)
			sqlite3_bind_blob(st, 1, build_id, (int)strlen(build_id), SQLITE_STATIC);
		if (!st || sqlite3_step(st) != SQLITE_DONE)
			r = sq_error(s->writer, "cannot take names away", reterr_diag);
		if (st)
			sqlite3_reset(st);
		r = sq_end(s, r, &change, reterr_diag);
	}
	pthread_mutex_unlock(&s->write_lock);
	return r;
}
