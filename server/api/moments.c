/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GET /api/v1/traces/ID/samples: what each thread of a trace ran, sample by sample in the order of
 * time, for a chronological flame chart. Samples that came too late to be stored by their span are
 * not among them; of more than MAX_SAMPLES the last are left out, and their number is told.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/vocab.h"
#include "server/api/internal.h"

#define MAX_SAMPLES 50000

struct moment {
	const struct store_link *link; /* borrowed */
	u32 series;		       /* index in the set; PROFILE_NONE: not there any more */
	u32 stack;		       /* in the profile; PROFILE_NONE: not there any more */
};

struct moments {
	struct store_links links;
	struct store_series_set series;
	struct map by_series; /* half of a series' id → its index */
	struct profile *stacks;
	vec(struct moment) list; /* by thread and time */
	u64 left_out;
	char type[STORE_TYPE_BYTES];
};

static void moments_deinit(struct moments *m)
{
	store_links_deinit(&m->links);
	store_series_set_deinit(&m->series);
	map_deinit(&m->by_series);
	profile_destroy(m->stacks);
	vec_deinit(&m->list);
}

static int compare_times(const void *a, const void *b)
{
	const struct store_link *x = ((const struct moment *)a)->link,
				*y = ((const struct moment *)b)->link;

	if (x->time_ms != y->time_ms)
		return x->time_ms < y->time_ms ? -1 : 1;
	return x < y ? -1 : x > y;
}

static int compare_threads(const void *a, const void *b)
{
	const struct moment *x = a, *y = b;

	if (x->series != y->series)
		return x->series < y->series ? -1 : 1;
	return compare_times(a, b);
}

static int take(struct moments *m)
{
	int r = 0;

	for (size_t i = 0; i < m->links.links.n && r == 0; i++) {
		const struct store_link *l = &m->links.links.data[i];

		if (!strcmp(profile_string(m->links.profile, l->type), m->type))
			r = vec_push(&m->list, (struct moment){l, PROFILE_NONE, PROFILE_NONE});
	}
	if (m->list.n)
		qsort(m->list.data, m->list.n, sizeof(*m->list.data), compare_times);
	m->left_out = m->list.n > MAX_SAMPLES ? m->list.n - MAX_SAMPLES : 0;
	m->list.n -= m->left_out;
	return r;
}

static int load_series(struct api_call *c, struct moments *m)
{
	struct store_filter f = {.type = m->type};
	int r;

	if (!m->list.n)
		return 0;
	f.from_ms = m->list.data[0].link->time_ms;
	f.to_ms = m->list.data[m->list.n - 1].link->time_ms + 1;
	r = store_find_series(c->a->o.store, &f, &m->series, &c->d);
	for (size_t i = 0; i < m->series.series.n && r == 0; i++)
		r = map_put(&m->by_series, m->series.series.data[i].id >> 1, i);
	vec_foreach (&m->list, e) {
		const u64 *at = map_get(&m->by_series, e->link->series >> 1);

		e->series = at ? (u32)*at : PROFILE_NONE;
	}
	return r;
}

static int load_stacks(struct api_call *c, struct moments *m)
{
	size_t n = m->list.n;
	_cleanup_free_ u64 *ids = calloc(n + 1, sizeof(*ids));
	_cleanup_free_ u32 *stacks = calloc(n + 1, sizeof(*stacks));
	int r;

	m->stacks = profile_create();
	if (!ids || !stacks || !m->stacks)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++)
		ids[i] = m->list.data[i].link->stack;
	r = store_load_stacks(c->a->o.store, ids, n, m->stacks, stacks, &c->d);
	for (size_t i = 0; i < n && r == 0; i++)
		m->list.data[i].stack = stacks[i];
	return r;
}

/* ---- the answer ---- */

static void put_frames(struct json_writer *w, const struct profile *p)
{
	_cleanup_str_ struct str scratch = {};

	json_open_array(w, "frames");
	for (u32 i = 0; i < p->frames.n; i++) {
		const struct profile_frame *f = &p->frames.data[i];

		json_open_array(w, NULL);
		json_put_text(w, NULL, profile_frame_name(p, i, &scratch));
		json_put_text(w, NULL,
			      f->kind < FRAME_KIND_N ? vocab_frame_kind(f->kind)->name : "");
		json_put_text(w, NULL,
			      f->function < p->functions.n
				      ? profile_string(p, p->functions.data[f->function].file)
				      : "");
		json_put_u64(w, NULL, f->line);
		json_close(w);
	}
	json_close(w);
	json_open_array(w, "stacks");
	vec_foreach (&p->stacks, s) {
		json_open_array(w, NULL);
		for (u32 i = s->n; i--;) /* root first */
			json_put_u64(w, NULL, p->stack_frames.data[s->first + i]);
		json_close(w);
	}
	json_close(w);
}

static void put_label(struct json_writer *w, const char *key, const struct moments *m, u32 series,
		      const char *label)
{
	const char *value = NULL;

	if (series != PROFILE_NONE)
		value = profile_label(m->series.profile, m->series.series.data[series].resource,
				      label);
	json_put_text(w, key, value ? value : "");
}

static void put_threads(struct json_writer *w, const struct moments *m)
{
	json_open_array(w, "threads");
	for (size_t i = 0; i < m->list.n;) {
		u32 series = m->list.data[i].series;

		json_open_object(w, NULL);
		put_label(w, "service", m, series, "service.name");
		put_label(w, "thread", m, series, "thread.name");
		put_label(w, "thread_id", m, series, "thread.id");
		json_open_array(w, "samples");
		for (; i < m->list.n && m->list.data[i].series == series; i++) {
			const struct moment *e = &m->list.data[i];

			json_open_array(w, NULL);
			json_put_u64(w, NULL, e->link->time_ms);
			json_put_s64(w, NULL, e->link->value);
			json_put_u64(w, NULL, e->link->count);
			json_put_s64(w, NULL, e->stack == PROFILE_NONE ? -1 : (s64)e->stack);
			json_close(w);
		}
		json_close(w);
		json_close(w);
	}
	json_close(w);
}

static int samples(struct api_call *c)
{
	__attribute__((cleanup(moments_deinit))) struct moments m = {};
	const char *asked = net_parameter(c->r, "type"), *id = strrchr(c->r->path, '/');
	struct store_link_filter f = {.to_ms = 1ULL << 62, .n_traces = 1};
	u8 trace[1][16];
	char text[33] = "";
	int r;

	/* The path is …/ID/samples. */
	if (id - c->r->path > 32)
		memcpy(text, id - 32, 32);
	if (!span_parse_id(text, trace[0], 16) || id[-33] != '/')
		return diag_set(&c->d, -EINVAL, "a trace id has 32 hex digits");
	f.traces = trace;
	r = store_find_links(c->a->o.store, &f, &m.links, &c->d);
	if (r < 0)
		return r;
	if (asked && *asked)
		snprintf(m.type, sizeof(m.type), "%s", asked);
	else
		query_choose_type(&m.links, m.type);
	r = take(&m);
	if (r == 0)
		r = load_series(c, &m);
	if (r == 0)
		r = load_stacks(c, &m);
	if (r < 0)
		return r;
	if (m.list.n)
		qsort(m.list.data, m.list.n, sizeof(*m.list.data), compare_threads);
	json_open_object(&c->json, NULL);
	json_put_text(&c->json, "trace_id", text);
	json_put_text(&c->json, "type", m.type);
	put_frames(&c->json, m.stacks);
	put_threads(&c->json, &m);
	json_put_u64(&c->json, "left_out", m.left_out);
	json_put_bool(&c->json, "damaged", m.links.damaged || m.series.damaged);
	json_close(&c->json);
	return 0;
}

const struct api_route api_moment_routes[] = {
	{"GET", "/api/v1/traces/{trace_id}/samples", NET_ROLE_READ, API_STYLE_JSON, samples},
	{},
};
