/* SPDX-License-Identifier: Apache-2.0 */
/* Samples of a batch that a profile does not have, and the counts of the rest. */
#include <errno.h>
#include <stdlib.h>

#include "agent/symbolize/making.h"

static void count_entry(struct pipeline_counts *c, const struct pipeline_batch *b,
			const struct pipeline_entry *e)
{
	const struct pipeline_stack *user = pipeline_stack(b, e->key.user_stack);
	u32 stop;

	c->samples += e->count;
	if (!e->key.user_stack)
		return;
	stop = user && user->stop < STOP_N ? user->stop : STOP_STACK_LOST;
	c->user_samples += e->count;
	c->stops[stop] += e->count;
	c->truncated += stop == STOP_COMPLETE ? 0 : e->count;
	c->unread += stop == STOP_COMPLETE && user->unread ? e->count : 0;
}

int making_leave_out_events(struct making *m)
{
	const struct pipeline_batch *b = m->batch;

	m->own = calloc(b->entries.n + 1, sizeof(*m->own));
	if (!m->own)
		return -ENOMEM;
	m->entries = m->own;
	m->counts = (struct pipeline_counts){.lost = m->counts.lost};
	for (size_t i = 0; i < b->entries.n; i++)
		m->own[i].key = b->entries.data[i].key;
	for (size_t i = 0; i < b->events.n; i++) {
		const struct pipeline_event *e = &b->events.data[i];
		struct pipeline_entry *of = &m->own[e->entry];

		if (e->time_ns < m->from_ns)
			continue;
		of->first_ns = of->count ? MIN(of->first_ns, e->time_ns) : e->time_ns;
		of->count += 1 + e->more;
		of->value += e->value;
		of->bytes += e->bytes;
	}
	for (size_t i = 0; i < b->entries.n; i++)
		if (m->own[i].key.source == m->source)
			count_entry(&m->counts, b, &m->own[i]);
	return 0;
}

int making_leave_out_self(struct making *m)
{
	struct pipeline_counts self = {};

	if (!m->batch->own.n)
		return 0;
	if (!m->own) {
		m->own = calloc(m->n_entries + 1, sizeof(*m->own));
		if (!m->own)
			return -ENOMEM;
		for (size_t i = 0; i < m->n_entries; i++)
			m->own[i] = m->entries[i];
		m->entries = m->own;
	}
	for (size_t i = 0; i < m->n_entries; i++) {
		struct pipeline_entry *e = &m->own[i];

		if (e->key.source != m->source || !making_is_self(m, e))
			continue;
		count_entry(&self, m->batch, e);
		e->count = 0;
	}
	m->profile->quality.self = self.samples;
	pipeline_subtract_counts(&m->counts, &self);
	pipeline_add_counts(&m->s->stats.self, &self);
	m->s->stats.self_processes = MAX(m->s->stats.self_processes, m->batch->own.n);
	return 0;
}
