/* SPDX-License-Identifier: Apache-2.0 */
/* Questions about series that do not concern stacks: which labels they have, how many samples. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "server/query/plan.h"
#include "server/query/query.h"

void query_sets_deinit(struct query_sets *s)
{
	vec_foreach (&s->names, e)
		free(*e);
	vec_foreach (&s->sets, e)
		free(*e);
	vec_deinit(&s->names);
	vec_deinit(&s->sets);
	*s = (struct query_sets){};
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static int add_name(struct query_sets *s, const char *name)
{
	char *own = strdup(name);
	int r = own ? vec_push(&s->names, own) : -ENOMEM;

	if (r < 0)
		free(own);
	return r;
}

/* The names of all labels of the plan's series, sorted. */
static int all_names(const struct plan *p, struct query_sets *s)
{
	__attribute__((cleanup(strtab_deinit))) struct strtab seen = {};
	const struct profile *set = p->set.profile;
	int r = strtab_init(&seen);

	for (size_t i = 0; i < p->series.n && r == 0; i++) {
		const struct profile_resource *e = &set->resources.data[p->series.data[i].resource];

		for (u32 k = 0; k < e->n && r == 0; k++) {
			const char *name = profile_string(set, set->labels.data[e->first + k].name);
			size_t before = seen.n;
			u32 id;

			r = strtab_add(&seen, name, strlen(name), &id);
			if (r == 0 && seen.n > before)
				r = add_name(s, name);
		}
	}
	for (size_t i = 0; i < QUERY_N_DERIVED_LABELS && p->series.n && r == 0; i++)
		r = add_name(s, query_derived_labels[i]);
	if (s->names.n)
		qsort(s->names.data, s->names.n, sizeof(char *), compare_names);
	return r;
}

static int given_names(const char *const *names, size_t n, struct query_sets *s)
{
	int r = 0;

	for (size_t i = 0; i < n && r == 0; i++)
		r = add_name(s, names[i]);
	return r;
}

static int compare_sets(const void *a, const void *b, void *n)
{
	const char *x = *(char *const *)a, *y = *(char *const *)b;
	int r = 0;

	for (size_t i = 0; i < *(const size_t *)n && r == 0; i++) {
		r = strcmp(x, y);
		x += strlen(x) + 1;
		y += strlen(y) + 1;
	}
	return r;
}

static int add_set(const struct plan *p, const struct store_found_series *e, struct strtab *seen,
		   struct query_sets *s)
{
	_cleanup_str_ struct str key = {};
	size_t before = seen->n;
	char *own;
	u32 id;
	int r;

	for (size_t i = 0; i < s->names.n; i++) {
		const char *value = plan_label(p, e, s->names.data[i]);

		str_append(&key, value, strlen(value) + 1);
	}
	/* A non-empty key: "" always has an id. */
	str_putc(&key, '.');
	r = key.failed ? -ENOMEM : strtab_add(seen, key.data, key.n, &id);
	if (r < 0 || seen->n == before)
		return r;
	own = malloc(key.n);
	if (!own)
		return -ENOMEM;
	memcpy(own, key.data, key.n);
	r = vec_push(&s->sets, own);
	if (r < 0)
		free(own);
	return r;
}

int query_label_sets(struct store *s, const struct query *q, const char *const *names, size_t n,
		     struct query_sets *ret, struct diag *reterr_diag)
{
	__attribute__((cleanup(query_sets_deinit))) struct query_sets out = {};
	__attribute__((cleanup(strtab_deinit))) struct strtab seen = {};
	_cleanup_plan_ struct plan p = {};
	int r = plan_init(&p, s, q, PLAN_SERIES, reterr_diag);

	if (r == 0)
		r = strtab_init(&seen);
	if (r == 0)
		r = n ? given_names(names, n, &out) : all_names(&p, &out);
	for (size_t i = 0; i < p.series.n && r == 0; i++)
		r = add_set(&p, &p.series.data[i], &seen, &out);
	if (r < 0)
		return diag_set(reterr_diag, r, "cannot answer: %s", strerror(-r));
	if (out.sets.n)
		qsort_r(out.sets.data, out.sets.n, sizeof(char *), compare_sets, &out.names.n);
	*ret = out;
	out = (struct query_sets){};
	return 0;
}

int query_count(struct store *s, const struct query *q, u64 *ret_samples, struct diag *reterr_diag)
{
	__attribute__((cleanup(map_deinit))) struct map seen = {};
	_cleanup_plan_ struct plan p = {};
	u64 samples = 0;
	int r = plan_init(&p, s, q, PLAN_SERIES, reterr_diag);

	for (size_t i = 0; i < p.series.n && r == 0; i++) {
		_cleanup_store_rows_ struct store_rows rows = {};
		struct store_filter f = plan_filter(&p, q);

		if (map_get(&seen, p.series.data[i].type))
			continue;
		f.type = profile_string(p.set.profile, p.series.data[i].type);
		r = map_put(&seen, p.series.data[i].type, 1);
		if (r == 0)
			r = store_scan(s, &f, 0, 0, &rows, reterr_diag);
		if (r == 0 && rows.rows.n)
			samples += rows.rows.data[0].count;
	}
	if (r < 0)
		return diag_set(reterr_diag, r, "cannot answer: %s", strerror(-r));
	*ret_samples = samples;
	return 0;
}
