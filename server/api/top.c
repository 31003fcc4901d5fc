/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of /api/v1/top: functions with self and total, and between which bounds these are. */
#include <stdlib.h>
#include <string.h>

#include "base/vocab.h"
#include "profile/table.h"
#include "server/api/internal.h"
#include "server/query/query.h"

/*
 * By how much a sum may be wrong beside what chance does: of allocations in windows, how far probes
 * have slowed the program down is known to within this factor (agent/pipeline/alloc_count.c).
 */
#define SLOWED 1.25

/* Allocations say how exact they are by an attribute (doc/design/0021-allocations.md). */
int api_exactness(struct api_call *c, const struct query *q, const char *type,
		  struct api_exactness *ret)
{
	static const char *const names[] = {"estimate"};
	static const enum sample_type drawn[] = {SAMPLE_TYPE_ALLOC_SPACE, SAMPLE_TYPE_ALLOC_OBJECTS,
						 SAMPLE_TYPE_UNFREED_SPACE};
	struct api_exactness e = {.factor = 1};
	struct query_sets sets = {};
	int r = 0;

	for (size_t i = 0; i < ARRAY_SIZE(drawn); i++)
		e.is_drawn |= !strcmp(type, vocab_sample_type(drawn[i])->name);
	if (e.is_drawn)
		r = query_label_sets(c->a->o.store, q, names, 1, &sets, &c->d);
	vec_foreach (&sets.sets, set) {
		bool bound = !strcmp(*set, "at least");

		e.no_maximum |= bound;
		if (bound || !strcmp(*set, "windows"))
			e.factor = SLOWED;
	}
	query_sets_deinit(&sets);
	if (r == 0)
		*ret = e;
	return r;
}

static void put_sum_interval(struct json_writer *w, const char *low, const char *high, s64 sum,
			     double variance, const struct api_exactness *e)
{
	const double z = 1.959964;

	if (!e->is_drawn || sum <= 0 || !(variance > 0))
		return;
	json_put_fixed(w, low, profile_sum_bound((double)sum, variance, -z) / e->factor, 0);
	if (!e->no_maximum)
		json_put_fixed(w, high, profile_sum_bound((double)sum, variance, z) * e->factor, 0);
}

static void put_row(struct json_writer *w, const struct profile_table *t,
		    const struct profile_row *row, const struct api_exactness *e, u64 samples)
{
	double low = 0, high = 0, share = t->total ? (double)row->self / (double)t->total : 0;

	json_open_object(w, NULL);
	json_put_text(w, "name", strtab_get(&t->strings, row->name));
	json_put_text(w, "object", strtab_get(&t->strings, row->object));
	json_put_text(w, "kind", row->kind < FRAME_KIND_N ? vocab_frame_kind(row->kind)->name : "");
	json_put_s64(w, "self", row->self);
	json_put_s64(w, "total", row->total);
	/* The 95 % interval of the share of self. */
	if (!e->is_drawn && profile_share_interval(share, samples, &low, &high)) {
		json_put_fixed(w, "self_share_low", low, 6);
		json_put_fixed(w, "self_share_high", high, 6);
	}
	put_sum_interval(w, "self_low", "self_high", row->self, row->self_variance, e);
	put_sum_interval(w, "total_low", "total_high", row->total, row->total_variance, e);
	json_close(w);
}

static const char *const columns[] = {"name", "object", "self", "total"};
enum { BY_NAME, BY_OBJECT, BY_SELF, BY_TOTAL };

int api_rows_list(struct api_call *c, struct api_list *ret)
{
	*ret = (struct api_list){.limit = 100, .max = 100000};
	return api_list(c, columns, ARRAY_SIZE(columns), "-self", ret);
}

struct sorting {
	const struct profile_table *t;
	const struct api_list *part;
};

static int compare_rows(const void *a, const void *b, void *arg)
{
	const struct sorting *s = arg;
	const struct profile_row *x = a, *y = b;
	const char *names[] = {strtab_get(&s->t->strings, x->name),
			       strtab_get(&s->t->strings, y->name)};
	const char *objects[] = {strtab_get(&s->t->strings, x->object),
				 strtab_get(&s->t->strings, y->object)};
	int order = 0;

	switch (s->part->column) {
	case BY_NAME:
		order = api_list_compare_text(s->part, names[0], names[1]);
		break;
	case BY_OBJECT:
		order = api_list_compare_text(s->part, objects[0], objects[1]);
		break;
	case BY_SELF:
		order = api_list_compare(s->part, (double)x->self, (double)y->self);
		break;
	default:
		order = api_list_compare(s->part, (double)x->total, (double)y->total);
	}
	if (!order && x->total != y->total)
		order = x->total > y->total ? -1 : 1;
	if (!order)
		order = strcmp(names[0], names[1]);
	if (!order)
		order = strcmp(objects[0], objects[1]);
	return order ? order : (int)x->kind - (int)y->kind;
}

void api_choose_rows(struct profile_table *t, const struct api_list *part)
{
	struct sorting s = {t, part};
	size_t n = 0;

	for (size_t i = 0; i < t->rows.n; i++) {
		const struct profile_row *row = &t->rows.data[i];

		if (api_list_finds(part, strtab_get(&t->strings, row->name)) ||
		    api_list_finds(part, strtab_get(&t->strings, row->object)))
			t->rows.data[n++] = *row;
	}
	t->rows.n = n;
	if (n)
		qsort_r(t->rows.data, n, sizeof(*t->rows.data), compare_rows, &s);
}

int api_put_rows(struct api_call *c, const struct query *q, const struct profile *p,
		 const struct profile_table *t, const struct api_list *part)
{
	const char *type = p->n_types ? profile_string(p, p->types[p->default_type].name) : "";
	struct api_exactness e;
	int r = api_exactness(c, q, type, &e);

	if (r < 0)
		return r;
	json_open_array(&c->json, "rows");
	for (size_t i = part->offset; i < t->rows.n && i - part->offset < part->limit; i++)
		put_row(&c->json, t, &t->rows.data[i], &e, profile_sample_count(p));
	json_close(&c->json);
	return 0;
}
