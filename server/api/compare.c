/* SPDX-License-Identifier: Apache-2.0 */
/* Slow requests beside others, per request (compare.h). */
#include "server/api/compare.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/vocab.h"

void api_comparison_deinit(struct api_comparison *s)
{
	free(s->requests);
	free(s->samples);
	analyze_slow_deinit(&s->out);
	profile_tree_destroy(s->tree);
}

/* ---- the trees ---- */

/* Builds the tree of a cohort's samples, per request, from the profile with all stacks. */
static int cohort_tree(struct api_comparison *s, enum analyze_cohort cohort, double weight,
		       const struct profile_tree_options *o, struct profile_tree **ret)
{
	struct profile *p = s->stacks;
	_cleanup_free_ double *values = calloc(p->stacks.n + 1, sizeof(*values));
	int r = values ? 0 : -ENOMEM;

	p->n_samples = 0;
	for (size_t i = 0; i < s->n_samples && r == 0; i++) {
		const struct analyze_sample *e = &s->samples[i];
		const struct analyze_request *q = &s->requests[e->request];

		if (q->cohort == cohort)
			values[e->stack] += (double)e->value * q->weight / weight;
	}
	for (u32 i = 0; i < p->stacks.n && r == 0; i++) {
		s64 value = llround(values[i]);

		/*
		 * With a time, because profile_add_sample() looks up samples without a time by
		 * their stack.
		 */
		if (value)
			r = profile_add_sample(p, 1, PROFILE_NONE, i, &value);
	}
	return r < 0 ? r : profile_tree_build(p, o, ret);
}

int api_comparison_tree(struct api_call *c, struct api_comparison *s)
{
	_cleanup_profile_tree_ struct profile_tree *slow = NULL, *middle = NULL, *all = NULL;
	struct profile_tree_options o = {.no_process = true};
	u64 max = 2000;
	int r = api_tree_options(c, &o);

	o.no_process = true;
	if (r == 0)
		r = api_number(c, "max_nodes", 1, API_MAX_NODES, &max);
	if (r == 0)
		r = profile_add_type(s->stacks, "value", vocab_unit(UNIT_COUNT));
	if (r == 0)
		r = cohort_tree(s, ANALYZE_MIDDLE, s->out.middle.weight, &o, &middle);
	if (r == 0)
		r = cohort_tree(s, ANALYZE_SLOW, s->out.slow.weight, &o, &slow);
	if (r == 0)
		r = profile_tree_diff(middle, slow, &all);
	return r < 0 ? r : api_tree_prune(all, max, &s->tree);
}

/* ---- the answer ---- */

static void put_group(struct json_writer *w, const char *name, const struct analyze_group *g)
{
	json_open_object(w, name);
	json_put_u64(w, "requests", g->requests);
	json_put_u64(w, "sampled", g->sampled);
	json_put_fixed(w, "stand_for", g->weight, 0);
	json_put_fixed(w, "from_ms", (double)g->from_ns / 1e6, 6);
	json_put_fixed(w, "to_ms", (double)g->to_ns / 1e6, 6);
	json_put_fixed(w, "mean_ms", g->mean_ns / 1e6, 6);
	json_put_fixed(w, "value", g->value, 1);
	json_close(w);
}

static void put_row(struct json_writer *w, const struct analyze_slow *s,
		    const struct analyze_row *e)
{
	json_open_object(w, NULL);
	json_put_text(w, "name", strtab_get(&s->strings, e->name));
	json_put_text(w, "object", strtab_get(&s->strings, e->object));
	if (e->file)
		json_put_text(w, "file", strtab_get(&s->strings, e->file));
	if (e->line)
		json_put_u64(w, "line", e->line);
	json_put_text(w, "kind", e->kind < FRAME_KIND_N ? vocab_frame_kind(e->kind)->name : "");
	json_put_fixed(w, "effect", e->effect, 1);
	/* One request says nothing of how much others differ. */
	if (s->slow.requests > 1 && s->middle.requests > 1) {
		json_put_fixed(w, "low", e->low, 1);
		json_put_fixed(w, "high", e->high, 1);
	}
	json_put_fixed(w, "slow", e->slow, 1);
	json_put_fixed(w, "middle", e->middle, 1);
	json_put_fixed(w, "slow_self", e->slow_self, 1);
	json_put_fixed(w, "middle_self", e->middle_self, 1);
	json_put_fixed(w, "slow_running", e->slow_running, 6);
	json_put_fixed(w, "middle_running", e->middle_running, 6);
	json_put_bool(w, "explained", e->explained);
	json_close(w);
}

void api_comparison_put(struct json_writer *w, const struct api_comparison *s, u64 limit)
{
	put_group(w, "slow", &s->out.slow);
	put_group(w, "middle", &s->out.middle);
	json_open_array(w, "rows");
	for (size_t i = 0; i < s->out.rows.n && i < limit; i++)
		put_row(w, &s->out, &s->out.rows.data[i]);
	json_close(w);
	api_put_tree(w, s->tree);
}
