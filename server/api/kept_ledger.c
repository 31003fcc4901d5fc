/* SPDX-License-Identifier: Apache-2.0 */
/* The time of kept requests by state (kept.h). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "server/api/kept.h"

void kept_ledger_deinit(struct kept_ledger *l)
{
	strtab_deinit(&l->states);
	map_deinit(&l->series);
	trace_set_deinit(&l->set);
	free(l->ns);
	free(l->of_span);
}

size_t kept_ledger_n_states(const struct kept_ledger *l)
{
	return MIN(l->states.n, (size_t)KEPT_MAX_STATES);
}

static bool is_time(const char *type)
{
	struct store_type parts;

	return store_type_parse(type, &parts) == 0 &&
	       store_type_find(&parts) == SAMPLE_TYPE_REQUEST_TIME;
}

static int find_series(struct api_call *c, const struct kept_list *a, struct kept_ledger *l)
{
	const struct store_filter f = {
		.from_ms = a->from_ms, .to_ms = a->to_ms, .service = a->task.spec.service};
	struct store_series_set set = {};
	int r = store_find_series(c->a->o.store, &f, &set, &c->d);

	for (size_t k = 0; r == 0 && k < set.series.n; k++) {
		const struct store_found_series *e = &set.series.data[k];
		const char *state = profile_label(set.profile, e->resource, "state");
		u32 id;

		if (!is_time(profile_string(set.profile, e->type)) || !state || !*state ||
		    !kept_is_of_task(set.profile, e->resource, a->task.id))
			continue;
		r = strtab_add(&l->states, state, strlen(state), &id);
		if (r == 0 && id < KEPT_MAX_STATES)
			r = map_put(&l->series, e->id, id);
	}
	l->damaged |= set.damaged;
	store_series_set_deinit(&set);
	return r;
}

static int add_links(struct kept_ledger *l, const struct kept_list *a,
		     const struct store_links *links)
{
	const struct trace_set *set = &l->set;
	struct map by_span = {};
	int r = 0;

	for (size_t k = 0; k < a->of.n && r == 0; k++) {
		const struct task_request *q = kept_list_at(a, k);
		u32 span = trace_set_span(set, q->trace_id, q->span_id);

		if (span != PROFILE_NONE)
			r = map_put(&by_span, span, k);
	}
	for (size_t k = 0; k < links->links.n && r == 0; k++) {
		const struct store_link *e = &links->links.data[k];
		const u64 *state = map_get(&l->series, e->series), *request;
		u32 span;

		if (!state || !is_time(profile_string(links->profile, e->type)) || e->value < 0)
			continue;
		span = l->by_span ? trace_set_span(set, e->link.trace_id, e->link.span_id)
				  : PROFILE_NONE;
		if (span != PROFILE_NONE)
			l->of_span[span][*state] += (u64)e->value;
		request = map_get(&by_span,
				  trace_set_request(set, &e->link,
						    profile_string(links->profile, e->service)));
		if (request)
			l->ns[*request][*state] += (u64)e->value;
	}
	map_deinit(&by_span);
	return r;
}

static int compare_ids(const void *a, const void *b)
{
	return memcmp(a, b, 16);
}

int kept_ledger_fill(struct api_call *c, const struct kept_list *a, struct kept_ledger *l)
{
	_cleanup_store_links_ struct store_links links = {};
	_cleanup_free_ u8(*ids)[16] = calloc(a->of.n + 1, sizeof(*ids));
	struct store_link_filter f = {
		.from_ms = a->from_ms, .to_ms = a->to_ms, .service = a->task.spec.service};
	size_t n = 0;
	int r;

	l->ns = calloc(a->of.n + 1, sizeof(*l->ns));
	if (!ids || !l->ns || strtab_init(&l->states) < 0)
		return -ENOMEM;
	r = a->of.n ? find_series(c, a, l) : 0;
	if (r < 0 || !l->series.n)
		return r;
	for (size_t k = 0; k < a->of.n; k++)
		memcpy(ids[k], kept_list_at(a, k)->trace_id, 16);
	qsort(ids, a->of.n, sizeof(*ids), compare_ids);
	for (size_t k = 0; k < a->of.n; k++)
		if (!n || memcmp(ids[n - 1], ids[k], 16) != 0)
			memmove(ids[n++], ids[k], 16);
	f.traces = (const u8(*)[16])ids;
	f.n_traces = n;
	r = store_find_links(c->a->o.store, &f, &links, &c->d);
	if (r == 0)
		r = trace_set_load(c->a->o.store, (const u8(*)[16])ids, n, f.service, &l->set,
				   &c->d);
	if (r == 0 && l->by_span)
		l->of_span = calloc(l->set.spans.spans.n + 1, sizeof(*l->of_span));
	if (r == 0 && l->by_span && !l->of_span)
		r = -ENOMEM;
	l->damaged |= links.damaged || l->set.spans.damaged;
	return r < 0 ? r : add_links(l, a, &links);
}
