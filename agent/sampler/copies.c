/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/sampler/copies.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int copies_init(struct copies *c, u32 n_sources, u32 n_cpus)
{
	struct sampler_copy *all =
		calloc((size_t)n_sources * SAMPLE_MAX_LEVELS * n_cpus, sizeof(*all));

	if (!all)
		return -ENOMEM;
	*c = (struct copies){.all = all, .n_sources = n_sources, .n_cpus = n_cpus, .max = n_cpus};
	return 0;
}

/* Makes room. */
static void give_up(struct copies *c)
{
	for (u32 i = 0; i < c->n_sources * SAMPLE_MAX_LEVELS * c->n_cpus; i++)
		if (c->all[i].data) {
			free(c->all[i].data);
			c->all[i] = (struct sampler_copy){};
		}
	c->n_given_up += c->n;
	c->n = 0;
}

void copies_deinit(struct copies *c)
{
	give_up(c);
	free(c->spare);
	free(c->all);
	*c = (struct copies){};
}

struct sampler_copy *copies_get(struct copies *c, u32 source, u32 level, u32 cpu)
{
	if (source >= c->n_sources || level >= SAMPLE_MAX_LEVELS || cpu >= c->n_cpus)
		return NULL;
	return &c->all[(source * SAMPLE_MAX_LEVELS + level) * c->n_cpus + cpu];
}

void copies_take(struct copies *c, const struct record_copy *record)
{
	struct sampler_copy *p = copies_get(c, record->source, record->level, record->cpu);

	if (!p)
		return;
	if (!p->data && c->n >= c->max)
		give_up(c);
	if (!p->data) {
		p->data =
			c->spare ? c->spare : malloc((size_t)SAMPLE_MAX_COPIES * SAMPLE_COPY_BYTES);
		c->spare = NULL;
		c->n += p->data != NULL;
	}
	if (!p->data)
		return;
	if (record->index == 0)
		p->n = 0;
	if (p->n >= SAMPLE_MAX_COPIES)
		return;
	memcpy(p->data + (size_t)p->n * SAMPLE_COPY_BYTES, record->data, SAMPLE_COPY_BYTES);
	p->addresses[p->n++] = record->address;
}

void copies_drop(struct copies *c, struct sampler_copy *copy)
{
	c->n -= copy->data != NULL;
	if (c->spare)
		free(copy->data);
	else
		c->spare = copy->data;
	*copy = (struct sampler_copy){};
}
