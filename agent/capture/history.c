/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The last minute: intervals in a ring of fixed size, samples in the batches of the pipeline that
 * they came with, because the names of runtimes' frames and open files belong to a batch. What is
 * dropped for lack of room is counted, and its traces are remembered for a while, so that whoever
 * asks for them later is told.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/capture/internal.h"
#include "base/clock.h"

/* Of the room, the part that is for intervals. */
#define INTERVALS_SHARE 2
/* Traces that are remembered as dropped are twice as many at most. */
#define MAX_DROPPED 65536
#define MAX_CLOCKS 128
/* A step of the clock, or that much drift, makes a new point. */
#define CLOCK_NOISE_NS 1000

int history_init(struct history *h, u64 max_bytes, u64 window_ns)
{
	u64 bytes = max_bytes ? max_bytes : CAPTURE_DEFAULT_BYTES;

	h->cap = MAX(bytes / INTERVALS_SHARE / sizeof(*h->ring), 1024ULL);
	h->max_batch_bytes = bytes - bytes / INTERVALS_SHARE;
	h->ring = calloc(h->cap, sizeof(*h->ring));
	h->window_ns = window_ns;
	h->began_ns = clock_ns(CLOCK_MONOTONIC);
	return h->ring ? 0 : -ENOMEM;
}

void history_deinit(struct history *h, struct pipeline *p)
{
	vec_foreach (&h->batches, b)
		pipeline_give_back(p, b->b);
	vec_deinit(&h->batches);
	vec_deinit(&h->clocks);
	map_deinit(&h->dropped[0]);
	map_deinit(&h->dropped[1]);
	free(h->ring);
}

static void note_dropped(struct history *h, const u64 trace_id[2])
{
	if (!trace_id[0] && !trace_id[1])
		return;
	if (h->dropped[0].n >= MAX_DROPPED) {
		map_deinit(&h->dropped[1]);
		h->dropped[1] = h->dropped[0];
		h->dropped[0] = (struct map){};
	}
	(void)map_put(&h->dropped[0], trace_hash(trace_id), 1);
}

bool history_has_dropped(const struct history *h, const u64 trace_id[2])
{
	u64 hash = trace_hash(trace_id);

	return map_get(&h->dropped[0], hash) || map_get(&h->dropped[1], hash);
}

/* ---- intervals ---- */

void history_push(struct history *h, const struct record_interval *i)
{
	if (h->n == h->cap) {
		const struct record_interval *old = history_interval(h, 0);

		h->intervals_from_ns = MAX(h->intervals_from_ns, old->now_ns);
		h->evicted += i->now_ns - MIN(i->now_ns, old->now_ns) < h->window_ns;
		note_dropped(h, old->trace_id);
		h->first = (h->first + 1) % h->cap;
		h->n--;
	}
	h->ring[(h->first + h->n++) % h->cap] = *i;
}

size_t history_find(const struct history *h, u64 now_ns)
{
	size_t low = 0, high = h->n;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (history_interval(h, middle)->now_ns < now_ns)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* ---- samples ---- */

int history_take(struct history *h, struct pipeline *p)
{
	int r = vec_reserve(&h->batches, h->batches.n + 1);
	struct pipeline_batch *b = r == 0 ? pipeline_take(p) : NULL;

	if (!b)
		return -ENOMEM;
	(void)vec_push(&h->batches,
		       (struct history_batch){.b = b, .bytes = pipeline_batch_bytes(b)});
	return 0;
}

static u64 batch_bytes(const struct history *h)
{
	u64 n = 0;

	for (size_t i = 0; i < h->batches.n; i++)
		n += h->batches.data[i].bytes;
	return n;
}

u64 history_bytes(const struct history *h)
{
	return batch_bytes(h) + h->n * sizeof(*h->ring);
}

static void drop_batch(struct history *h, struct pipeline *p, bool is_old)
{
	struct pipeline_batch *b = h->batches.data[0].b;

	h->samples_from_ns = b->ended_ns;
	for (size_t i = 0; i < b->entries.n; i++)
		note_dropped(h, b->entries.data[i].key.context.trace_id);
	h->evicted += is_old ? 0 : b->events.n;
	pipeline_give_back(p, b);
	h->batches.n--;
	memmove(h->batches.data, h->batches.data + 1, h->batches.n * sizeof(*h->batches.data));
}

void history_trim(struct history *h, struct pipeline *p, u64 now)
{
	while (h->batches.n && !h->batches.data[0].is_used) {
		bool is_old = h->batches.data[0].b->ended_ns + h->window_ns < now;

		if (!is_old && batch_bytes(h) <= h->max_batch_bytes)
			break;
		drop_batch(h, p, is_old);
	}
}

/* ---- clocks ---- */

static s64 read_offset(u64 *ret_monotonic)
{
	u64 before = clock_ns(CLOCK_MONOTONIC), realtime = clock_ns(CLOCK_REALTIME),
	    after = clock_ns(CLOCK_MONOTONIC);

	*ret_monotonic = before + (after - before) / 2;
	return (s64)(realtime - *ret_monotonic);
}

void history_note_clock(struct history *h, u64 now)
{
	u64 best = ~0ULL;
	struct history_clock c = {};

	/* The least time between the readings tells the offset best. */
	for (int i = 0; i < 3; i++) {
		u64 begin = clock_ns(CLOCK_MONOTONIC), at;
		s64 offset = read_offset(&at);
		u64 took = clock_ns(CLOCK_MONOTONIC) - begin;

		if (took < best)
			c = (struct history_clock){at, offset};
		best = MIN(best, took);
	}
	if (h->clocks.n) {
		s64 change = c.offset_ns - h->clocks.data[h->clocks.n - 1].offset_ns;

		if (change < CLOCK_NOISE_NS && change > -CLOCK_NOISE_NS)
			return;
	}
	while (h->clocks.n >= MAX_CLOCKS ||
	       (h->clocks.n > 1 && h->clocks.data[1].monotonic_ns + 2 * h->window_ns < now)) {
		h->clocks.n--;
		memmove(h->clocks.data, h->clocks.data + 1, h->clocks.n * sizeof(*h->clocks.data));
	}
	(void)vec_push(&h->clocks, c);
}

u64 history_realtime(const struct history *h, u64 monotonic_ns)
{
	s64 offset = h->clocks.n ? h->clocks.data[0].offset_ns : 0;

	for (size_t i = 1; i < h->clocks.n && h->clocks.data[i].monotonic_ns <= monotonic_ns; i++)
		offset = h->clocks.data[i].offset_ns;
	return monotonic_ns + (u64)offset;
}

u64 history_monotonic(const struct history *h, u64 realtime_ns)
{
	s64 offset = h->clocks.n ? h->clocks.data[0].offset_ns : 0;

	for (size_t i = 1; i < h->clocks.n; i++)
		if (h->clocks.data[i].monotonic_ns + (u64)h->clocks.data[i].offset_ns <=
		    realtime_ns)
			offset = h->clocks.data[i].offset_ns;
	return realtime_ns - (u64)offset;
}
