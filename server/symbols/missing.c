/* SPDX-License-Identifier: Apache-2.0 */
/* Finds binaries with unnamed frames, and counts their samples. */
#include <errno.h>
#include <string.h>

#include "server/symbols/internal.h"

struct counting {
	struct profile *p; /* borrowed */
	struct map seen;   /* mapping → index of the last stack that it was counted for, plus 1 */
	struct map counts; /* mapping → samples */
};

static int count_stack(struct counting *l, u32 stack, u64 index, u64 samples)
{
	const struct profile_stack *st = &l->p->stacks.data[stack];
	int r = 0;

	for (u32 i = 0; i < st->n && r == 0; i++) {
		const struct profile_frame *f =
			&l->p->frames.data[l->p->stack_frames.data[st->first + i]];
		u64 *known;

		if (f->function != PROFILE_NONE || f->mapping == PROFILE_NONE ||
		    f->kind != FRAME_NATIVE || f->flags)
			continue;
		known = map_get(&l->seen, f->mapping);
		if (known && *known == index + 1)
			continue; /* counted for this stack */
		r = map_put(&l->seen, f->mapping, index + 1);
		known = map_get(&l->counts, f->mapping);
		if (r == 0)
			r = map_put(&l->counts, f->mapping, (known ? *known : 0) + samples);
	}
	return r;
}

static int compare(const void *a, const void *b)
{
	const struct symstore_nameless *x = a, *y = b;

	if (x->samples != y->samples)
		return x->samples > y->samples ? -1 : 1;
	return strcmp(x->path, y->path);
}

static int take_counts(struct counting *l, struct symstore_missing *ret)
{
	map_foreach (&l->counts, slot) {
		const struct profile_mapping *m = &l->p->mappings.data[slot->key];
		struct symstore_nameless n = {.build_id = profile_string(l->p, m->build_id),
					      .path = profile_string(l->p, m->path),
					      .samples = slot->value};

		if (vec_push(&ret->binaries, n) < 0)
			return -ENOMEM;
	}
	if (ret->binaries.n)
		qsort(ret->binaries.data, ret->binaries.n, sizeof(*ret->binaries.data), compare);
	return 0;
}

static int count_rows(struct store *s, const struct store_rows *rows, struct counting *l,
		      struct diag *reterr_diag)
{
	size_t n = rows->rows.n;
	_cleanup_free_ u64 *ids = calloc(n + 1, sizeof(*ids));
	_cleanup_free_ u32 *stacks = calloc(n + 1, sizeof(*stacks));
	int r = ids && stacks ? 0 : -ENOMEM;

	for (size_t i = 0; r == 0 && i < n; i++)
		ids[i] = rows->rows.data[i].stack;
	if (r == 0)
		r = store_load_stacks(s, ids, n, l->p, stacks, reterr_diag);
	for (size_t i = 0; r == 0 && i < n; i++)
		if (stacks[i] != PROFILE_NONE)
			r = count_stack(l, stacks[i], i, rows->rows.data[i].count);
	return r;
}

int symstore_missing(struct store *s, u64 from_ms, u64 to_ms, struct symstore_missing *ret,
		     struct diag *reterr_diag)
{
	const struct store_filter f = {.from_ms = from_ms, .to_ms = to_ms};
	struct symstore_missing m = {.strings = profile_create()};
	struct counting l = {.p = m.strings};
	struct store_rows rows = {};
	int r = l.p ? 0 : -ENOMEM;

	if (r == 0)
		r = store_scan(s, &f, STORE_BY_STACK, 0, &rows, reterr_diag);
	if (r == 0)
		r = count_rows(s, &rows, &l, reterr_diag);
	if (r == 0)
		r = take_counts(&l, &m);
	store_rows_deinit(&rows);
	map_deinit(&l.seen);
	map_deinit(&l.counts);
	if (r < 0) {
		symstore_missing_deinit(&m);
		return diag_set(reterr_diag, r, "%s", strerror(-r));
	}
	*ret = m;
	return 0;
}

void symstore_missing_deinit(struct symstore_missing *m)
{
	profile_destroy(m->strings);
	vec_deinit(&m->binaries);
	*m = (struct symstore_missing){};
}
