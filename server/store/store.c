/* SPDX-License-Identifier: Apache-2.0 */
#include "server/store/store.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "server/store/private.h"

/* The engines: a new one is a file and a line here. */
static const struct store_ops *const engines[] = {&store_sqlite, &store_clickhouse, NULL};

int store_open(const char *url, const struct store_options *o, struct diag *reterr_diag,
	       struct store **ret)
{
	const char *colon = strstr(url, "://");
	size_t n = colon ? (size_t)(colon - url) : 0;

	for (size_t i = 0; engines[i]; i++)
		if (colon ? strlen(engines[i]->scheme) == n && !memcmp(engines[i]->scheme, url, n)
			  : i == 0)
			return engines[i]->open(colon ? colon + 3 : url, o, reterr_diag, ret);
	return diag_set(reterr_diag, -EINVAL, "no store is called '%.*s'", (int)n, url);
}

void store_close(struct store *s)
{
	s->ops->close(s);
}

/* ---- stacks by the names in them ---- */

struct matching {
	const struct profile *profile;
	bool (*accept)(void *userdata, const char *name);
	void *userdata;
	u8 *known; /* owned; by frame: 0 = not asked yet, 1 = no, 2 = yes */
};

static bool matches(struct matching *m, u32 stack)
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
		r = s->ops->load_stacks(s, ids, rows->rows.n, p, stacks, reterr_diag);
	if (r < 0)
		return r;
	m->profile = p;
	m->known = calloc(p->frames.n + 1, 1);
	for (size_t i = 0; m->known && r == 0 && i < rows->rows.n; i++)
		if (stacks[i] != PROFILE_NONE && matches(m, stacks[i]))
			r = vec_push(&ret->ids, ids[i]);
	r = m->known ? r : -ENOMEM;
	free(m->known);
	return r;
}

int store_find_stacks(struct store *s, const char *service,
		      bool (*accept)(void *userdata, const char *name), void *userdata,
		      struct store_ids *ret, struct diag *reterr_diag)
{
	struct store_filter f = {.to_ms = 1ULL << 62, .service = service};
	struct matching m = {.accept = accept, .userdata = userdata};
	struct store_rows rows = {};
	struct store_ids ids = {};
	int r = s->ops->scan(s, &f, STORE_BY_STACK, 0, &rows, reterr_diag);

	if (r == 0)
		r = keep_matching(s, &rows, &m, &ids, reterr_diag);
	store_rows_deinit(&rows);
	if (r == 0)
		*ret = ids;
	else
		vec_deinit(&ids.ids);
	return r < 0 ? diag_set(reterr_diag, r, "cannot look for stacks: %s", strerror(-r)) : 0;
}

void store_rows_deinit(struct store_rows *r)
{
	vec_deinit(&r->rows);
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
