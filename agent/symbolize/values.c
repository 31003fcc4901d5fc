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
static const enum sample_type heap_types[MAKING_VALUES] = {
	SAMPLE_TYPE_ALLOC_OBJECTS,
	SAMPLE_TYPE_ALLOC_SPACE,
	SAMPLE_TYPE_INUSE_OBJECTS,
	SAMPLE_TYPE_INUSE_SPACE,
};
static const u32 heap_first[] = {[HEAP_ALLOCATED] = 0, [HEAP_LIVE] = 2};

static bool is_heap(const struct making *m)
{
	return m->batch->sources[m->source].type == SAMPLE_TYPE_INUSE_SPACE;
}

void making_values(const struct making *m, const struct pipeline_key *key, s64 count, s64 value,
		   s64 bytes, s64 ret[MAKING_VALUES])
{
	u32 first = is_heap(m) ? heap_first[key->object.port == HEAP_ALLOCATED ? HEAP_ALLOCATED
									       : HEAP_LIVE]
			       : 1;

	memset(ret, 0, MAKING_VALUES * sizeof(*ret));
	if (!is_heap(m))
		ret[0] = count;
	ret[first] = value;
	ret[first + 1] = bytes;
}

static int add_heap_types(struct profile *p)
{
	int r = 0;

	for (u32 i = 0; i < MAKING_VALUES && r == 0; i++)
		r = profile_add_table_type(p, heap_types[i]);
	/* As in Go's profiles. */
	if (r == 0)
		r = making_text(p, "space", &p->period_name);
	if (r == 0)
		r = making_text(p, vocab_unit(UNIT_BYTES), &p->period_unit);
	p->default_type = MAKING_VALUES - 1;
	return r;
}

int making_types(struct making *m)
{
	const struct sampler_source *source = &m->batch->sources[m->source];
	const struct vocab_sample_type *type = vocab_sample_type(source->type);
	struct profile *p = m->profile;
	int r;

	if (is_heap(m))
		return add_heap_types(p);
	r = profile_add_table_type(p, SAMPLE_TYPE_SAMPLES);
	if (r == 0)
		r = profile_add_type(p, source->type_name, type->unit);
	if (r == 0 && source->bytes_type)
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
