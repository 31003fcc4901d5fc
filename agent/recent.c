/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/recent.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

/* More batches drop old events sooner, and BPF sends each stack again for each batch. */
#define BATCHES_PER_WINDOW 8

struct recent {
	struct pipeline *pipeline;
	u64 window_ns;
	vec(struct pipeline_batch *) batches; /* owned, oldest first */
};

int recent_create(struct pipeline *p, u64 window_ns, struct recent **ret)
{
	struct recent *r = calloc(1, sizeof(*r));

	if (!r)
		return -ENOMEM;
	r->pipeline = p;
	r->window_ns = window_ns;
	*ret = r;
	return 0;
}

void recent_clear(struct recent *r)
{
	vec_foreach (&r->batches, b)
		pipeline_give_back(r->pipeline, *b);
	vec_clear(&r->batches);
}

void recent_destroy(struct recent *r)
{
	if (!r)
		return;
	recent_clear(r);
	vec_deinit(&r->batches);
	free(r);
}

static void drop_old(struct recent *r)
{
	u64 begin = recent_begin_ns(r);
	size_t n = 0;

	while (n < r->batches.n && r->batches.data[n]->ended_ns <= begin)
		pipeline_give_back(r->pipeline, r->batches.data[n++]);
	r->batches.n -= n;
	memmove(r->batches.data, r->batches.data + n, r->batches.n * sizeof(*r->batches.data));
}

int recent_take(struct recent *r)
{
	struct pipeline_batch *b;
	int e = vec_reserve(&r->batches, r->batches.n + 1);

	if (e < 0)
		return e;
	b = pipeline_take(r->pipeline);
	if (!b)
		return -ENOMEM;
	(void)vec_push(&r->batches, b);
	drop_old(r);
	return 0;
}

void recent_follow(struct recent *r)
{
	u64 age = clock_ns(CLOCK_MONOTONIC) - pipeline_batch_began_ns(r->pipeline);

	/* Without memory the batch becomes longer. */
	if (r->window_ns && age >= r->window_ns / BATCHES_PER_WINDOW)
		(void)recent_take(r);
}

const struct pipeline_batch *recent_batch(const struct recent *r, size_t i)
{
	return i < r->batches.n ? r->batches.data[i] : NULL;
}

u64 recent_begin_ns(const struct recent *r)
{
	u64 end = r->batches.n ? r->batches.data[r->batches.n - 1]->ended_ns : 0;

	return r->window_ns && end > r->window_ns ? end - r->window_ns : 0;
}

void recent_add_counts(const struct recent *r, struct pipeline_stats *stats)
{
	u64 lost = stats->counts.lost; /* counted since the start already */
	struct map pids = {};

	for (size_t i = 0; i < r->batches.n; i++) {
		struct pipeline_counts c = pipeline_sum(r->batches.data[i]);

		pipeline_add_counts(&stats->counts, &c);
		map_foreach (&r->batches.data[i]->pids, slot)
			(void)map_put(&pids, slot->key, 1);
	}
	stats->counts.lost = lost;
	stats->processes = MAX(stats->processes, pids.n);
	map_deinit(&pids);
}
