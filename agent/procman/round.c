/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/procman/round.h"

#include <errno.h>

/* A larger buffer, which an event storm needed, is freed. */
#define KEEP_BYTES (1u << 20)

void round_deinit(struct round *b)
{
	vec_foreach (&b->rings, ring)
		ring_close(ring);
	vec_deinit(&b->rings);
	vec_deinit(&b->bytes);
	vec_deinit(&b->events);
	b->next = 0;
}

static int by_time(const void *a, const void *b)
{
	const struct event_ref *x = a, *y = b;

	if (x->time_ns != y->time_ns)
		return x->time_ns < y->time_ns ? -1 : 1;
	/* Within a ring the order is that of arrival; between rings it does not matter. */
	return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* Drops the events that were returned, and moves the others to the front. */
static void round_compact(struct round *b)
{
	size_t left = b->events.n - b->next, n_bytes = 0;

	if (left == 0) {
		vec_clear(&b->events);
		vec_clear(&b->bytes);
		if (b->bytes.cap > KEEP_BYTES)
			vec_deinit(&b->bytes);
		if (b->events.cap > KEEP_BYTES / sizeof(struct event_ref))
			vec_deinit(&b->events);
		b->next = 0;
		return;
	}
	if (b->next < left)
		return;
	memmove(b->events.data, b->events.data + b->next, left * sizeof(*b->events.data));
	b->events.n = left;
	b->next = 0;
	/* Offsets are ordered within each ring only: bytes are dropped when all events were
	 * returned. */
	vec_foreach (&b->events, e)
		n_bytes = MAX(n_bytes, (size_t)e->offset + e->n);
	b->bytes.n = n_bytes;
}

/* Indexes the records in bytes[from …]. False: one of them is damaged. */
static bool round_index(struct round *b, size_t from, u32 ring)
{
	size_t pos = from, n;
	u64 time_ns;

	while (pos < b->bytes.n) {
		if (!sideband_next(b->bytes.data, b->bytes.n, &pos, &n, &time_ns))
			return false;
		if (vec_push(&b->events, (struct event_ref){time_ns, pos - n, (u32)n, ring}) < 0)
			return false;
	}
	return true;
}

int round_fill(struct round *b, u64 *lost, u64 *damaged)
{
	size_t before;
	int r;

	round_compact(b);
	before = b->events.n;
	for (size_t i = 0; i < b->rings.n; i++) {
		size_t from = b->bytes.n;

		r = ring_take(&b->rings.data[i], &b->bytes, lost);
		if (r == -ENOMEM)
			return r;
		if (r < 0 || !round_index(b, from, (u32)i))
			++*damaged;
	}
	if (b->events.n != before)
		qsort(b->events.data + b->next, b->events.n - b->next, sizeof(*b->events.data),
		      by_time);
	return 0;
}

bool round_next(struct round *b, u64 until_ns, struct event_ref *ret_event, const u8 **ret_bytes)
{
	const struct event_ref *e;

	if (!round_pending(b) || b->events.data[b->next].time_ns > until_ns)
		return false;
	e = &b->events.data[b->next++];
	*ret_event = *e;
	*ret_bytes = b->bytes.data + e->offset;
	return true;
}
