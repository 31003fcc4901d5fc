/* SPDX-License-Identifier: Apache-2.0 */
/* GET /api/v1/lanes: what each thread did, column by column. */
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/vocab.h"
#include "server/api/internal.h"

#define DEFAULT_COLUMNS 200
#define DEFAULT_LANES 40

static void put_state(struct json_writer *w, const struct query_lanes *l,
		      const struct query_lane *e, enum wait wait)
{
	json_open_object(w, NULL);
	json_put_text(w, "wait", vocab_wait(wait)->name);
	json_put_s64(w, "sum", e->sums[wait]);
	json_open_array(w, "values");
	for (size_t k = 0; k < l->n_columns; k++)
		json_put_s64(w, NULL, e->columns[wait][k]);
	json_close(w);
	json_close(w);
}

static void put_lane(struct json_writer *w, const struct query_lanes *l, const struct query_lane *e)
{
	json_open_object(w, NULL);
	json_put_text(w, "service", e->service);
	json_put_text(w, "thread", e->thread);
	json_put_text(w, "id", e->id);
	json_put_text(w, "process", e->process);
	json_open_array(w, "states");
	for (u32 i = 0; i < WAIT_N; i++)
		if (e->columns[i])
			put_state(w, l, e, i);
	json_close(w);
	json_open_array(w, "until");
	for (size_t k = 0; k < l->n_columns; k++)
		json_put_u64(w, NULL, e->until[k]);
	json_close(w);
	json_close(w);
}

static int lanes(struct api_call *c)
{
	__attribute__((cleanup(query_lanes_deinit))) struct query_lanes l = {};
	const char *find = net_parameter(c->r, "find");
	u64 column_ms = 0, limit = DEFAULT_LANES;
	_cleanup_query_ struct query q = {};
	int r = api_query(c, "", &q);

	if (r == 0)
		r = api_number(c, "column", 1, 366ULL * 86400000, &column_ms);
	if (r == 0)
		r = api_number(c, "limit", 1, 500, &limit);
	if (r == 0 && !column_ms)
		column_ms = (q.to_ms - q.from_ms + DEFAULT_COLUMNS - 1) / DEFAULT_COLUMNS;
	if (r == 0)
		r = query_lanes(c->a->o.store, &q, column_ms, find, limit, &l, &c->d);
	if (r < 0)
		return r;
	json_open_object(&c->json, NULL);
	json_put_u64(&c->json, "from", q.from_ms);
	json_put_u64(&c->json, "to", q.to_ms);
	json_put_u64(&c->json, "column", l.column_ms);
	json_put_u64(&c->json, "columns", l.n_columns);
	json_put_u64(&c->json, "threads", l.n_threads);
	json_put_u64(&c->json, "found", l.n_found);
	json_put_bool(&c->json, "damaged", l.damaged);
	api_put_limited(&c->json, l.limited);
	json_open_array(&c->json, "lanes");
	vec_foreach (&l.lanes, e)
		put_lane(&c->json, &l, e);
	json_close(&c->json);
	json_close(&c->json);
	return 0;
}

const struct api_route api_lane_routes[] = {
	{"GET", "/api/v1/lanes", NET_ROLE_READ, API_STYLE_JSON, lanes},
	{},
};
