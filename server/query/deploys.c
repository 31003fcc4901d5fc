/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "server/query/query.h"

#define STEPS 200
#define AWAY (STEPS / 10) /* steps without a version before it comes back */
#define MAX_DEPLOYS 1000

void query_deploys_deinit(struct query_deploys *d)
{
	vec_foreach (&d->list, e) {
		free(e->service);
		free(e->version);
		free(e->before);
	}
	vec_deinit(&d->list);
}

/* Samples of a version of a service in a step. */
struct cell {
	const char *service, *version; /* borrowed from the lines */
	u64 step, count, time_ms;
};

typedef vec(struct cell) cells;

static int compare_cells(const void *a, const void *b)
{
	const struct cell *x = a, *y = b;
	int order = strcmp(x->service, y->service);

	if (order)
		return order;
	if (x->step != y->step)
		return x->step < y->step ? -1 : 1;
	return strcmp(x->version, y->version);
}

static int collect(const struct query_lines *l, u64 from_ms, cells *ret)
{
	int r = 0;

	vec_foreach (&l->lines, line) {
		const char *service = line->labels, *version = service + strlen(service) + 1;

		for (size_t i = 0; *version && i < line->points.n && r == 0; i++) {
			const struct query_point *p = &line->points.data[i];

			struct cell e = {.service = service,
					 .version = version,
					 .count = p->count,
					 .time_ms = p->time_ms};

			e.step = (MAX(p->time_ms, from_ms) - from_ms) / l->step_ms;
			r = p->count ? vec_push(ret, e) : 0;
		}
	}
	if (ret->n)
		qsort(ret->data, ret->n, sizeof(*ret->data), compare_cells);
	return r;
}

/* Whether the version is new in this step: never seen before in the range, or not for long. */
static int note_version(struct map *last, const struct cell *c, bool *ret_new)
{
	u64 key = (hash_bytes(c->service, strlen(c->service)) * 31 +
		   hash_bytes(c->version, strlen(c->version))) >>
		  1;
	u64 *seen = map_get(last, key);

	*ret_new = !seen || c->step - *seen > AWAY;
	return map_put(last, key, c->step);
}

/* The version with the most samples in the last step before that of cell `at`; NULL: none. */
static const struct cell *before(const cells *c, size_t first, size_t at)
{
	const struct cell *best = NULL;

	for (size_t i = at; i-- > first;) {
		const struct cell *e = &c->data[i];

		if (e->step == c->data[at].step)
			continue;
		if (best && e->step != best->step)
			break;
		if (!best || e->count >= best->count)
			best = e;
	}
	return best;
}

static int add(struct query_deploys *d, const struct cell *c, const struct cell *old)
{
	struct query_deploy e = {.service = strdup(c->service),
				 .version = strdup(c->version),
				 .before = strdup(old->version),
				 .time_ms = c->time_ms};

	if (e.service && e.version && e.before && vec_push(&d->list, e) == 0)
		return 0;
	free(e.service);
	free(e.version);
	free(e.before);
	return -ENOMEM;
}

static int compare_deploys(const void *a, const void *b)
{
	const struct query_deploy *x = a, *y = b;
	int order = strcmp(x->service, y->service);

	if (x->time_ms != y->time_ms)
		return x->time_ms < y->time_ms ? -1 : 1;
	return order ? order : strcmp(x->version, y->version);
}

static int find(const cells *c, struct query_deploys *d)
{
	struct map last = {};
	size_t first = 0;
	int r = 0;

	for (size_t i = 0; i < c->n && r == 0 && d->list.n < MAX_DEPLOYS; i++) {
		const struct cell *old;
		bool is_new;

		if (i && strcmp(c->data[i].service, c->data[i - 1].service) != 0)
			first = i;
		r = note_version(&last, &c->data[i], &is_new);
		old = is_new && r == 0 ? before(c, first, i) : NULL;
		/* A service that was away is no change. */
		if (old && strcmp(old->version, c->data[i].version) != 0)
			r = add(d, &c->data[i], old);
	}
	map_deinit(&last);
	if (d->list.n)
		qsort(d->list.data, d->list.n, sizeof(*d->list.data), compare_deploys);
	return r;
}

int query_deploys(struct store *s, const struct query *q, struct query_deploys *ret,
		  struct diag *reterr_diag)
{
	static const char *const by[] = {"service.name", "service.version"};
	__attribute__((cleanup(query_lines_deinit))) struct query_lines l = {};
	struct query_deploys d = {};
	cells c = {};
	u64 step = MAX((q->to_ms - q->from_ms + STEPS - 1) / STEPS, 1ULL);
	int r = query_series(s, q, step, by, ARRAY_SIZE(by), &l, reterr_diag);

	if (r < 0)
		return r;
	d.step_ms = l.step_ms;
	d.damaged = l.damaged;
	r = collect(&l, q->from_ms, &c);
	if (r == 0)
		r = find(&c, &d);
	vec_deinit(&c);
	if (r < 0)
		query_deploys_deinit(&d);
	else
		*ret = d;
	return r;
}
