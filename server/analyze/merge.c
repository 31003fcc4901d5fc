/* SPDX-License-Identifier: Apache-2.0 */
/* Trees of calls added up (analyze.h). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "server/analyze/analyze.h"

void analyze_merged_deinit(struct analyze_merged *m)
{
	vec_deinit(&m->calls);
	vec_deinit(&m->blames);
	map_deinit(&m->by_frame);
	map_deinit(&m->by_whom);
}

static u64 key_of(u32 parent, u32 frame)
{
	return (u64)parent << 32 | frame;
}

/* parent: index + 1, as the result. */
static int call_of(struct analyze_merged *m, u32 parent, u32 frame, u32 *ret)
{
	const u64 *known = map_get(&m->by_frame, key_of(parent, frame));
	int r;

	if (known) {
		*ret = (u32)*known + 1;
		return 0;
	}
	if (m->calls.n >= ~0U - 2)
		return -E2BIG;
	r = map_put(&m->by_frame, key_of(parent, frame), m->calls.n);
	if (r == 0)
		r = vec_push(&m->calls,
			     (struct analyze_merged_call){.parent = parent, .frame = frame});
	if (r == 0)
		*ret = (u32)m->calls.n;
	return r;
}

int analyze_merge(struct analyze_merged *m, const struct analyze_calls *c, u32 column, u32 request)
{
	/* By row: index + 1 in m->calls. */
	_cleanup_free_ u32 *at = calloc(c->rows.n + 1, sizeof(*at));
	size_t first = 0;
	int r = at ? 0 : -ENOMEM;

	for (size_t i = 0; i < c->rows.n && r == 0; i++) {
		const struct analyze_call *row = &c->rows.data[i];
		struct analyze_sums *s;

		if (row->id == 1)
			first = i;
		r = call_of(m, row->parent ? at[first + row->parent - 1] : 0, row->frame, &at[i]);
		if (r < 0)
			break;
		s = &m->calls.data[at[i] - 1].of[column];
		s->count += row->count;
		s->total_ns += row->total_ns;
		s->self_ns += row->self_ns;
		s->requests += s->last != request + 1;
		s->last = request + 1;
	}
	return r;
}

/* ---- who had the lock, who woke ---- */

struct blamed {
	u32 call, who, column, whom;
};

int analyze_add_blame(struct analyze_merged *m, const u32 *frames, size_t n, u32 column,
		      enum analyze_whom whom, u32 who, s64 ns)
{
	u32 call = 0;
	int r = 0;

	for (size_t i = 0; i < n && r == 0; i++) {
		const u64 *at = map_get(&m->by_frame, key_of(call, frames[i])), *known;
		struct blamed b = {.who = who, .column = column, .whom = whom};
		u64 key;

		if (!at)
			return -ENOENT;
		call = (u32)*at + 1;
		b.call = call - 1;
		key = hash_bytes(&b, sizeof(b)) >> 1; /* a map cannot have the two largest keys */
		known = map_get(&m->by_whom, key);
		if (known) {
			m->blames.data[*known].ns += ns;
			continue;
		}
		r = map_put(&m->by_whom, key, m->blames.n);
		if (r == 0)
			r = vec_push(&m->blames, (struct analyze_blame){.call = b.call,
									.who = who,
									.whom = (u8)whom,
									.column = (u8)column,
									.ns = ns});
	}
	return r;
}

static bool same_column(const struct analyze_blame *x, const struct analyze_blame *y)
{
	return x->call == y->call && x->column == y->column && x->whom == y->whom;
}

static int compare_blames(const void *a, const void *b)
{
	const struct analyze_blame *x = a, *y = b;

	if (x->call != y->call)
		return x->call < y->call ? -1 : 1;
	if (x->column != y->column)
		return x->column < y->column ? -1 : 1;
	if (x->whom != y->whom)
		return x->whom < y->whom ? -1 : 1;
	if (x->ns != y->ns)
		return x->ns > y->ns ? -1 : 1;
	return x->who < y->who ? -1 : x->who > y->who;
}

void analyze_sort_blames(struct analyze_merged *m)
{
	struct analyze_blame *all = m->blames.data;
	size_t n = 0;

	if (m->blames.n)
		qsort(all, m->blames.n, sizeof(*all), compare_blames);
	for (size_t i = 0; i < m->blames.n; i++)
		if (n && same_column(&all[n - 1], &all[i]))
			all[n - 1].others++;
		else
			all[n++] = all[i];
	m->blames.n = n;
	/* Positions have changed. */
	map_clear(&m->by_whom);
}
