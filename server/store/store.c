/* SPDX-License-Identifier: Apache-2.0 */
#include "server/store/store.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "server/store/private.h"

/* A new engine is a folder and an entry here. The first serves URLs without a scheme. */
static const struct store_ops *const engines[] = {&store_sqlite, &store_clickhouse};

/* The engine of a URL and what follows the scheme; NULL when there is none. */
static const struct store_ops *find_engine(const char *url, const char **ret_where)
{
	const char *colon = strstr(url, "://");
	size_t n = colon ? (size_t)(colon - url) : 0;

	*ret_where = colon ? colon + 3 : url;
	if (!colon)
		return engines[0];
	for (size_t i = 0; i < ARRAY_SIZE(engines); i++)
		if (strlen(engines[i]->scheme) == n && !memcmp(engines[i]->scheme, url, n))
			return engines[i];
	return NULL;
}

static u64 value_or(u64 value, u64 otherwise)
{
	return value ? value : otherwise;
}

static struct store_limits limits_of(const struct store_options *o)
{
	static const struct store_tier default_tiers[] = {
		{86400, 10000}, {14 * 86400, 3600000}, {90 * 86400, 86400000}, {}};
	const struct store_options none = {};
	const struct store_tier *t;
	struct store_limits l;

	o = o ? o : &none;
	t = o->tiers ? o->tiers : default_tiers;
	l = (struct store_limits){.max_bytes = value_or(o->max_bytes, 10ULL << 30),
				  .max_age_s = value_or(o->max_age_s, 30 * 86400),
				  .cache_bytes = value_or(o->cache_bytes, 64 << 20),
				  .span_bytes = value_or(o->span_bytes, 1ULL << 30)};
	for (size_t i = 0; i < STORE_MAX_TIERS && t[i].resolution_ms; i++)
		l.tiers[i] = t[i];
	return l;
}

u64 store_max_age_s(const struct store_options *o)
{
	return limits_of(o).max_age_s;
}

u64 store_resolution_ms(const struct store_limits *l, u64 age_ms)
{
	u64 resolution = 1;

	for (const struct store_tier *t = l->tiers; t->resolution_ms; t++)
		if (age_ms >= t->age_s * 1000)
			resolution = MAX(resolution, t->resolution_ms);
	return resolution;
}

/* ---- what callers use ---- */

int store_open(const char *url, const struct store_options *o, struct diag *reterr_diag,
	       struct store **ret)
{
	struct store_limits limits = limits_of(o);
	const char *where;
	const struct store_ops *e = find_engine(url, &where);
	int r;

	/* Leave out the rest of the URL, which may have a password. */
	if (!e)
		return diag_set(reterr_diag, -EINVAL,
				"unknown store '%.*s': use sqlite://DIR or clickhouse://HOST",
				(int)(where - url), url);
	r = e->open(where, &limits, reterr_diag, ret);
	if (r == 0)
		pthread_mutex_init(&(*ret)->watch.lock, NULL);
	return r;
}

const char *store_directory(const char *url)
{
	const char *where;
	const struct store_ops *e = find_engine(url, &where);

	return e && e->where_is_a_path ? where : NULL;
}

void store_each_file(const char *url, void (*file)(void *arg, const char *path), void *arg)
{
	const char *where;
	const struct store_ops *e = find_engine(url, &where);

	if (e && e->each_file)
		e->each_file(where, file, arg);
}

static int find_copier(const char *url, const struct store_ops **ret, const char **ret_where,
		       struct diag *reterr_diag)
{
	*ret = find_engine(url, ret_where);
	if (!*ret || !(*ret)->backup)
		return diag_set(reterr_diag, -ENOTSUP,
				"only a store in a directory can be copied: of ClickHouse, use "
				"BACKUP DATABASE and RESTORE DATABASE");
	return 0;
}

int store_backup(const char *url, const char *to, const struct store_progress *progress,
		 struct diag *reterr_diag)
{
	const struct store_ops *e;
	const char *where;
	int r = find_copier(url, &e, &where, reterr_diag);

	return r < 0 ? r : e->backup(where, to, progress, reterr_diag);
}

int store_restore(const char *from, const char *url, const struct store_progress *progress,
		  struct diag *reterr_diag)
{
	const struct store_ops *e;
	const char *where;
	int r = find_copier(url, &e, &where, reterr_diag);

	return r < 0 ? r : e->restore(from, where, progress, reterr_diag);
}

void store_close(struct store *s)
{
	pthread_mutex_destroy(&s->watch.lock);
	s->ops->close(s);
}

/* anything: whether there was something to write. */
static int end_write(struct store *s, bool anything, int r, const struct diag *why,
		     struct diag *reterr_diag)
{
	const char *text = why->text[0] || r >= 0 ? why->text : strerror(-r);

	if (anything)
		store_note_write(s, r, text);
	return r < 0 ? diag_set(reterr_diag, r, "%s", text) : r;
}

int store_write(struct store *s, const struct store_batch *b, const u8 token[16],
		struct diag *reterr_diag)
{
	QUOTA_PAUSED; /* the engine shares with other requests what it allocates */
	struct diag why = {};

	return end_write(s, b->samples.n > 0, s->ops->write(s, b, token, &why), &why, reterr_diag);
}

void store_write_all(struct store *s, struct store_request *list, size_t n)
{
	QUOTA_PAUSED;

	if (s->ops->write_all)
		s->ops->write_all(s, list, n);
	for (size_t i = 0; i < n; i++) {
		struct store_request *e = &list[i];
		struct diag why = e->diag;

		if (!s->ops->write_all)
			e->r = s->ops->write(s, e->batch, e->token, &why);
		e->r = end_write(s, e->batch->samples.n > 0, e->r, &why, &e->diag);
	}
}

int store_find_series(struct store *s, const struct store_filter *f, struct store_series_set *ret,
		      struct diag *reterr_diag)
{
	return s->ops->find_series(s, f, ret, reterr_diag);
}

int store_scan(struct store *s, const struct store_filter *f, u32 by, u64 step_ms,
	       struct store_rows *ret, struct diag *reterr_diag)
{
	return s->ops->scan(s, f, by, step_ms, ret, reterr_diag);
}

int store_load_stacks(struct store *s, const u64 *ids, size_t n, struct profile *into,
		      u32 *ret_stacks, struct diag *reterr_diag)
{
	return s->ops->load_stacks(s, ids, n, into, ret_stacks, reterr_diag);
}

int store_find_stacks(struct store *s, const char *service,
		      bool (*accept)(void *userdata, const char *name), void *userdata,
		      struct store_ids *ret, struct diag *reterr_diag)
{
	return s->ops->find_stacks(s, service, accept, userdata, ret, reterr_diag);
}

int store_name_frames(struct store *s, const char *build_id,
		      int (*name)(void *userdata, u64 address, struct profile *into,
				  u32 *ret_frames, size_t max),
		      void *userdata, struct diag *reterr_diag)
{
	QUOTA_PAUSED;

	return s->ops->name_frames(s, build_id, name, userdata, reterr_diag);
}

int store_unname_frames(struct store *s, const char *build_id, struct diag *reterr_diag)
{
	return s->ops->unname_frames(s, build_id, reterr_diag);
}

int store_write_spans(struct store *s, const struct spans *spans, const u8 token[16],
		      struct diag *reterr_diag)
{
	QUOTA_PAUSED;
	struct diag why = {};

	return end_write(s, spans->spans.n > 0, s->ops->write_spans(s, spans, token, &why), &why,
			 reterr_diag);
}

int store_find_spans(struct store *s, const struct store_span_filter *f, struct spans *ret,
		     struct diag *reterr_diag)
{
	return s->ops->find_spans(s, f, ret, reterr_diag);
}

int store_find_links(struct store *s, const struct store_link_filter *f, struct store_links *ret,
		     struct diag *reterr_diag)
{
	return s->ops->find_links(s, f, ret, reterr_diag);
}

int store_maintain(struct store *s, u64 now_ms, struct diag *reterr_diag)
{
	int r = s->ops->maintain(s, now_ms, reterr_diag);

	store_tell_evictions(s);
	return r;
}

int store_get_stats(struct store *s, struct store_stats *ret, struct diag *reterr_diag)
{
	int r = s->ops->get_stats(s, ret, reterr_diag);

	if (r == 0)
		store_watch_stats(s, ret);
	return r;
}

/* ---- what servers share ---- */

bool store_is_shared(const struct store *s)
{
	return s->ops->share_reports;
}

int store_share_reports(struct store *s, const struct store_reports *reports,
			struct diag *reterr_diag)
{
	return s->ops->share_reports(s, reports, reterr_diag);
}

int store_find_reports(struct store *s, u64 since_ms, struct store_reports *ret,
		       struct diag *reterr_diag)
{
	return s->ops->find_reports(s, since_ms, ret, reterr_diag);
}

int store_note_symbols(struct store *s, const struct store_symbol *list, size_t n,
		       struct diag *reterr_diag)
{
	return s->ops->note_symbols(s, list, n, reterr_diag);
}

int store_find_symbols(struct store *s, u64 *rows, struct store_symbols *ret,
		       struct diag *reterr_diag)
{
	return s->ops->find_symbols(s, rows, ret, reterr_diag);
}

int store_write_symbol_part(struct store *s, u64 file, u32 part, const void *data, size_t n,
			    struct diag *reterr_diag)
{
	return s->ops->write_symbol_part(s, file, part, data, n, reterr_diag);
}

int store_read_symbol_part(struct store *s, u64 file, u32 part,
			   void (*take)(void *userdata, const void *data, size_t n), void *userdata,
			   struct diag *reterr_diag)
{
	return s->ops->read_symbol_part(s, file, part, take, userdata, reterr_diag);
}

int store_reports_init(struct store_reports *r, u64 server)
{
	*r = (struct store_reports){.profile = profile_create(), .server = server};
	return r->profile ? 0 : -ENOMEM;
}

void store_reports_deinit(struct store_reports *r)
{
	profile_destroy(r->profile);
	vec_deinit(&r->list);
	*r = (struct store_reports){};
}

/* ---- stacks by the names in them ---- */

struct matching {
	const struct profile *profile;
	bool (*accept)(void *userdata, const char *name);
	void *userdata;
	u8 *known; /* owned; accept()'s answer by frame: 0 = not asked yet, 1 = no, 2 = yes */
};

static bool stack_matches(struct matching *m, u32 stack)
{
	const struct profile_stack *s = &m->profile->stacks.data[stack];

	for (u32 i = 0; i < s->n; i++) {
		u32 frame = m->profile->stack_frames.data[s->first + i];

		if (!m->known[frame]) {
			_cleanup_str_ struct str scratch = {};
			const char *name = profile_frame_name(m->profile, frame, &scratch);

			m->known[frame] = m->accept(m->userdata, name) ? 2 : 1;
		}
		if (m->known[frame] == 2)
			return true;
	}
	return false;
}

static int compare_ids(const void *a, const void *b)
{
	u64 x = *(const u64 *)a, y = *(const u64 *)b;

	return x < y ? -1 : x > y;
}

static int keep_matching(struct store *s, const struct store_rows *rows, struct matching *m,
			 struct store_ids *ret, struct diag *reterr_diag)
{
	_cleanup_profile_ struct profile *p = profile_create();
	_cleanup_free_ u64 *ids = calloc(rows->rows.n + 1, sizeof(*ids));
	_cleanup_free_ u32 *stacks = calloc(rows->rows.n + 1, sizeof(*stacks));
	int r = p && ids && stacks ? 0 : -ENOMEM;

	for (size_t i = 0; r == 0 && i < rows->rows.n; i++)
		ids[i] = rows->rows.data[i].stack;
	if (r == 0)
		r = store_load_stacks(s, ids, rows->rows.n, p, stacks, reterr_diag);
	if (r < 0)
		return r;
	m->profile = p;
	m->known = calloc(p->frames.n + 1, 1);
	for (size_t i = 0; m->known && r == 0 && i < rows->rows.n; i++)
		if (stacks[i] != PROFILE_NONE && stack_matches(m, stacks[i]))
			r = vec_push(&ret->ids, ids[i]);
	r = m->known ? r : -ENOMEM;
	if (r == 0 && ret->ids.n)
		qsort(ret->ids.data, ret->ids.n, sizeof(*ret->ids.data), compare_ids);
	free(m->known);
	return r;
}

int store_match_stacks(struct store *s, const char *service,
		       bool (*accept)(void *userdata, const char *name), void *userdata,
		       struct store_ids *ret, struct diag *reterr_diag)
{
	struct store_filter f = {.to_ms = 1ULL << 62, .service = service};
	struct matching m = {.accept = accept, .userdata = userdata};
	struct store_rows rows = {};
	struct store_ids ids = {};
	int r = store_scan(s, &f, STORE_BY_STACK, 0, &rows, reterr_diag);

	if (r == 0)
		r = keep_matching(s, &rows, &m, &ids, reterr_diag);
	store_rows_deinit(&rows);
	if (r == 0)
		*ret = ids;
	else
		vec_deinit(&ids.ids);
	return r < 0 ? diag_set(reterr_diag, r, "cannot search stacks: %s", strerror(-r)) : 0;
}

void store_rows_deinit(struct store_rows *r)
{
	vec_deinit(&r->rows);
	strtab_deinit(&r->names);
}

void store_series_set_deinit(struct store_series_set *s)
{
	profile_destroy(s->profile);
	vec_deinit(&s->series);
}

int store_links_init(struct store_links *l)
{
	*l = (struct store_links){.profile = profile_create()};
	return l->profile ? 0 : -ENOMEM;
}

void store_links_deinit(struct store_links *l)
{
	profile_destroy(l->profile);
	vec_deinit(&l->links);
	*l = (struct store_links){};
}

int store_compare_rows(const void *a, const void *b)
{
	const struct store_row *x = a, *y = b;

	if (x->time_ms != y->time_ms)
		return x->time_ms < y->time_ms ? -1 : 1;
	if (x->series != y->series)
		return x->series < y->series ? -1 : 1;
	if (x->stack != y->stack)
		return x->stack < y->stack ? -1 : 1;
	if (x->service != y->service)
		return x->service < y->service ? -1 : 1;
	return x->type < y->type ? -1 : x->type > y->type;
}
