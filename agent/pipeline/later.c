/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/pipeline/later.h"

#include "agent/pipeline/batch.h"
#include "base/log.h"

/* Requests of all disks at once; what is above keeps the values 0. */
#define MAX_EXPECTED 65536

/* A value of p->expected: the entry, and above it the number of the event, or 0. */
static u64 pack(u32 entry, s64 event)
{
	return (u64)(event + 1) << 32 | entry;
}

static void add_to(struct pipeline_batch *b, u64 packed, s64 value, s64 bytes)
{
	struct pipeline_entry *e = &b->entries.data[(u32)packed];

	e->value += value;
	e->bytes += bytes;
	if (packed >> 32) {
		b->events.data[(packed >> 32) - 1].value += value;
		b->events.data[(packed >> 32) - 1].bytes += bytes;
	}
}

void later_expect(struct pipeline *p, u64 id, u32 entry, s64 event)
{
	struct map *expected = &p->expected[p->batch == p->before];
	u64 value = 0, bytes = 0;

	if (map_del(&p->early_values, id, &value)) {
		map_del(&p->early_bytes, id, &bytes);
		add_to(p->batch, pack(entry, event), (s64)value, (s64)bytes);
	} else if (expected->n >= MAX_EXPECTED || map_put(expected, id, pack(entry, event)) < 0) {
		log_warn_rarely("too many requests at once: some have no time");
	}
}

void later_add(struct pipeline *p, const struct record_later *l)
{
	u64 packed;

	if (map_del(&p->expected[0], l->id, &packed))
		add_to(p->batch, packed, l->value, l->bytes);
	else if (p->before && map_del(&p->expected[1], l->id, &packed))
		add_to(p->before, packed, l->value, l->bytes);
	else if (p->early_values.n < MAX_EXPECTED &&
		 map_put(&p->early_values, l->id, (u64)l->value) == 0)
		(void)map_put(&p->early_bytes, l->id, (u64)l->bytes);
}

void later_begin(struct pipeline *p)
{
	struct map old = p->expected[0];

	p->expected[0] = p->expected[1];
	p->expected[1] = old;
	/* Their samples were lost. */
	map_clear(&p->early_values);
	map_clear(&p->early_bytes);
}

void later_move(struct pipeline *p)
{
	map_foreach (&p->expected[1], slot) {
		struct pipeline_entry *old = &p->before->entries.data[(u32)slot->value], e = *old;
		u32 index, source = old->key.source;

		/* Its event would have to move, too, and others would get another number. */
		if (slot->value >> 32)
			continue;
		e.count = 1;
		e.value = 0;
		e.bytes = 0;
		if (batch_copy_entry(p->batch, p->procman, p->before, &e, &index) < 0 ||
		    map_put(&p->expected[0], slot->key, pack(index, -1)) < 0)
			continue;
		old->count--;
		p->before->counts[source].samples--;
		p->batch->counts[source].samples++;
	}
	map_clear(&p->expected[1]);
}

void later_deinit(struct pipeline *p)
{
	map_deinit(&p->expected[0]);
	map_deinit(&p->expected[1]);
	map_deinit(&p->early_values);
	map_deinit(&p->early_bytes);
}
