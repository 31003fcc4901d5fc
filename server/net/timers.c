/* SPDX-License-Identifier: Apache-2.0 */
#include "server/net/timers.h"

static void put(struct net_timers *h, size_t place, struct net_timer *t)
{
	h->heap.data[place - 1] = t;
	t->place = place;
}

/* Moves the timer up or down to where it belongs; its place is free to be overwritten. */
static void settle(struct net_timers *h, struct net_timer *t)
{
	struct net_timer **heap = h->heap.data;
	size_t at = t->place, child;

	for (; at > 1 && heap[at / 2 - 1]->at_ms > t->at_ms; at /= 2)
		put(h, at, heap[at / 2 - 1]);
	for (; (child = 2 * at) <= h->heap.n; at = child) {
		if (child < h->heap.n && heap[child]->at_ms < heap[child - 1]->at_ms)
			child++;
		if (heap[child - 1]->at_ms >= t->at_ms)
			break;
		put(h, at, heap[child - 1]);
	}
	put(h, at, t);
}

int net_timer_set(struct net_timers *h, struct net_timer *t, u64 at_ms)
{
	if (!t->place) {
		if (vec_push(&h->heap, t) < 0)
			return -ENOMEM;
		t->place = h->heap.n;
	}
	t->at_ms = at_ms;
	settle(h, t);
	return 0;
}

void net_timer_clear(struct net_timers *h, struct net_timer *t)
{
	struct net_timer *last;
	size_t place = t->place;

	if (!place)
		return;
	t->place = 0;
	last = h->heap.data[--h->heap.n];
	if (last == t)
		return;
	last->place = place;
	settle(h, last);
}

struct net_timer *net_timer_first(const struct net_timers *h)
{
	return h->heap.n ? h->heap.data[0] : NULL;
}
