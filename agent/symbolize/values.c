/* SPDX-License-Identifier: Apache-2.0 */
/* The sample types of a profile, and which values an entry of a batch has of them. */
#include <string.h>

#include "agent/symbolize/making.h"
#include "base/vocab.h"

int making_text(struct profile *p, const char *text, u32 *ret)
{
	return profile_add_string(p, text, strlen(text), ret);
}

/* The types of a memory profile, in the order of Go's own; two for each enum heap_part. */
static const enum sample_type heap_types[] = {
	SAMPLE_TYPE_ALLOC_OBJECTS,
	SAMPLE_TYPE_ALLOC_SPACE,
	SAMPLE_TYPE_INUSE_OBJECTS,
	SAMPLE_TYPE_INUSE_SPACE,
};
static const u32 heap_first[] = {[HEAP_ALLOCATED] = 0, [HEAP_LIVE] = 2};

/* Those of a profile of allocations that has all of them, after the number of samples. */
static const enum sample_type alloc_types[] = {
	SAMPLE_TYPE_ALLOC_SPACE,   SAMPLE_TYPE_ALLOC_OBJECTS, SAMPLE_TYPE_INUSE_SPACE,
	SAMPLE_TYPE_INUSE_OBJECTS, SAMPLE_TYPE_UNFREED_SPACE,
};
_Static_assert(MAKING_VALUES == 1 + ARRAY_SIZE(alloc_types), "MAKING_VALUES");

static bool is_heap(const struct making *m)
{
	return strcmp(m->batch->sources[m->source].event, SAMPLER_HEAP) == 0;
}

/* Where the source's first value is among alloc_types; -1: it is not. */
static int alloc_column(const struct making *m)
{
	const struct sampler_source *source = &m->batch->sources[m->source];

	if (!m->s->options.one_profile || strcmp(source->event, SAMPLER_ALLOC) != 0)
		return -1;
	for (size_t i = 0; i < ARRAY_SIZE(alloc_types); i++)
		if (source->type == alloc_types[i])
			return (int)i;
	return -1;
}

void making_values(const struct making *m, const struct pipeline_key *key, s64 count, s64 value,
		   s64 bytes, s64 ret[MAKING_VALUES])
{
	int column = alloc_column(m);
	size_t first = column < 0 ? 1 : 1 + (size_t)column;

	if (is_heap(m))
		first = heap_first[key->object.port == HEAP_ALLOCATED ? HEAP_ALLOCATED : HEAP_LIVE];
	memset(ret, 0, MAKING_VALUES * sizeof(*ret));
	/* Sampled objects count once, not again where they live. */
	if (!is_heap(m) && column <= 0)
		ret[0] = count;
	ret[first] = value;
	if (first + 1 < MAKING_VALUES)
		ret[first + 1] = bytes;
}

static int add_table_types(struct profile *p, const enum sample_type *types, size_t n)
{
	int r = 0;

	for (size_t i = 0; i < n && r == 0; i++)
		r = profile_add_table_type(p, types[i]);
	return r;
}

static int add_heap_types(struct profile *p)
{
	int r = add_table_types(p, heap_types, ARRAY_SIZE(heap_types));

	/* As in Go's profiles. */
	if (r == 0)
		r = making_text(p, "space", &p->period_name);
	if (r == 0)
		r = making_text(p, vocab_unit(UNIT_BYTES), &p->period_unit);
	p->default_type = ARRAY_SIZE(heap_types) - 1;
	return r;
}

int making_types(struct making *m)
{
	const struct sampler_source *source = &m->batch->sources[m->source];
	const struct vocab_sample_type *type = vocab_sample_type(source->type);
	struct profile *p = m->profile;
	bool all = alloc_column(m) >= 0;
	int r;

	if (is_heap(m))
		return add_heap_types(p);
	r = profile_add_table_type(p, SAMPLE_TYPE_SAMPLES);
	if (r == 0 && all)
		r = add_table_types(p, alloc_types, ARRAY_SIZE(alloc_types));
	if (r == 0 && !all)
		r = profile_add_type(p, source->type_name, type->unit);
	if (r == 0 && !all && source->bytes_type)
		r = profile_add_table_type(p, source->bytes_type);
	if (r == 0)
		r = making_text(p, source->type_name, &p->period_name);
	if (r == 0)
		r = making_text(p, type->unit, &p->period_unit);
	p->period = (s64)source->period;
	/* Samples of a clock have equal weights, so their number is the default; other samples
	 * vary. */
	p->default_type = !type->is_cpu;
	return r;
}
