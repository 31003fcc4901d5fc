/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks a profile before anything of it is kept: every index that its samples lead to must be in
 * range, and the sum of its values must not overflow. Each entry of the dictionary is checked once.
 */
#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "otlp/decoder.h"

/* ---- attributes ---- */

/* NULL if there is no such string. */
const char *otlp_string_at(const struct otlp_decoder *d, s64 index)
{
	/* An unset index (0) is valid even if its table is missing. */
	if (index == 0 && !d->d->n_string_table)
		return "";
	return index >= 0 && (u64)index < d->d->n_string_table ? d->d->string_table[index] : NULL;
}

const Otlp__KeyValueAndUnit *otlp_attribute_at(const struct otlp_decoder *d, s32 index)
{
	return index >= 0 && (size_t)index < d->d->n_attribute_table ? d->d->attribute_table[index]
								     : NULL;
}

/*
 * The text of the attribute with this key; "" if it is missing or not text. Borrowed from the
 * dictionary.
 */
const char *otlp_find_text(const struct otlp_decoder *d, const s32 *indices, size_t n,
			   const char *key)
{
	for (size_t i = 0; i < n; i++) {
		const Otlp__KeyValueAndUnit *a = otlp_attribute_at(d, indices[i]);
		const char *k = a ? otlp_string_at(d, a->key_strindex) : NULL, *v = NULL;

		if (!k || strcmp(k, key) || !a->value)
			continue;
		if (a->value->value_case == OTLP__ANY_VALUE__VALUE_STRING_VALUE)
			v = a->value->string_value;
		else if (a->value->value_case == OTLP__ANY_VALUE__VALUE_STRING_VALUE_STRINDEX)
			v = otlp_string_at(d, a->value->string_value_strindex);
		return v ? v : "";
	}
	return "";
}

bool otlp_find_number(const struct otlp_decoder *d, const s32 *indices, size_t n, const char *key,
		      u64 *ret)
{
	for (size_t i = 0; i < n; i++) {
		const Otlp__KeyValueAndUnit *a = otlp_attribute_at(d, indices[i]);
		const char *k = a ? otlp_string_at(d, a->key_strindex) : NULL;

		if (!k || strcmp(k, key) || !a->value ||
		    a->value->value_case != OTLP__ANY_VALUE__VALUE_INT_VALUE ||
		    a->value->int_value < 0)
			continue;
		*ret = (u64)a->value->int_value;
		return true;
	}
	return false;
}

/* ---- looking at a profile before it is taken ---- */

static int check_index(struct otlp_decoder *d, const char *what, s64 index, size_t n)
{
	if (index == 0 || (index > 0 && (u64)index < n))
		return 0;
	return diag_set(d->diag, -EBADMSG, "there is no %s %lld; there are %zu" OTLP_OLD_LAYOUT,
			what, (long long)index, n);
}

static int check_indices(struct otlp_decoder *d, const char *what, const s32 *indices,
			 size_t n_indices, size_t n)
{
	int r = 0;

	for (size_t i = 0; i < n_indices && r == 0; i++)
		r = check_index(d, what, indices[i], n);
	return r;
}

static int check_attributes(struct otlp_decoder *d, const s32 *indices, size_t n)
{
	int r = check_indices(d, "attribute", indices, n, d->d->n_attribute_table);

	for (size_t i = 0; i < n && r == 0; i++) {
		const Otlp__KeyValueAndUnit *a = otlp_attribute_at(d, indices[i]);

		if (a)
			r = check_index(d, "string", a->key_strindex, d->d->n_string_table);
	}
	return r;
}

static int check_function(struct otlp_decoder *d, s64 index)
{
	const Otlp__Function *f;
	int r = check_index(d, "function", index, d->d->n_function_table);

	if (r < 0 || !index)
		return r;
	f = d->d->function_table[index];
	r = check_index(d, "string", f->name_strindex, d->d->n_string_table);
	if (r == 0)
		r = check_index(d, "string", f->system_name_strindex, d->d->n_string_table);
	if (r == 0)
		r = check_index(d, "string", f->filename_strindex, d->d->n_string_table);
	return r;
}

typedef int check_fn(struct otlp_decoder *d, u32 index);

static int check_once(struct otlp_decoder *d, u8 *verdicts, const char *what, u32 index,
		      check_fn *check)
{
	int r;

	if (verdicts[index] == OTLP_VERDICT_GOOD)
		return 0;
	if (verdicts[index] == OTLP_VERDICT_BAD)
		return diag_set(d->diag, -EBADMSG, "%s %u is wrong in itself", what, index);
	r = check(d, index);
	verdicts[index] = r < 0 ? OTLP_VERDICT_BAD : OTLP_VERDICT_GOOD;
	return r;
}

static int check_mapping(struct otlp_decoder *d, u32 index)
{
	const Otlp__Mapping *m = d->d->mapping_table[index];
	int r = check_index(d, "string", m->filename_strindex, d->d->n_string_table);

	return r < 0 ? r : check_attributes(d, m->attribute_indices, m->n_attribute_indices);
}

static int check_location(struct otlp_decoder *d, u32 index)
{
	const Otlp__Location *l = d->d->location_table[index];
	int r = check_index(d, "mapping", l->mapping_index, d->d->n_mapping_table);

	if (r == 0)
		r = check_attributes(d, l->attribute_indices, l->n_attribute_indices);
	if (r == 0 && l->mapping_index)
		r = check_once(d, d->mapping_verdicts, "mapping", (u32)l->mapping_index,
			       check_mapping);
	for (size_t i = 0; i < l->n_lines && r == 0; i++)
		r = check_function(d, l->lines[i]->function_index);
	return r;
}

static int check_stack(struct otlp_decoder *d, u32 index)
{
	const Otlp__Stack *s = d->d->stack_table[index];
	int r = check_indices(d, "location", s->location_indices, s->n_location_indices,
			      d->d->n_location_table);

	for (size_t i = 0; i < s->n_location_indices && r == 0; i++)
		if ((size_t)s->location_indices[i] < d->d->n_location_table)
			r = check_once(d, d->location_verdicts, "location",
				       (u32)s->location_indices[i], check_location);
	return r;
}

/* The id is optional. */
static int check_link(struct otlp_decoder *d, s64 index)
{
	const Otlp__Link *l;
	int r = check_index(d, "link", index, d->d->n_link_table);

	if (r < 0 || !index)
		return r;
	l = d->d->link_table[index];
	if ((l->trace_id.len && l->trace_id.len != sizeof((struct profile_link){}.trace_id)) ||
	    (l->span_id.len && l->span_id.len != sizeof((struct profile_link){}.span_id)))
		return diag_set(d->diag, -EBADMSG,
				"link %lld has ids of %zu and %zu bytes instead of 16 and 8",
				(long long)index, l->trace_id.len, l->span_id.len);
	return 0;
}

static int check_values(struct otlp_decoder *d, const Otlp__Sample *s, u64 *left)
{
	size_t n = s->n_values, times = s->n_timestamps_unix_nano;
	u64 sum = 0;

	if (!n && !times)
		return diag_set(d->diag, -EBADMSG,
				"a sample has neither values nor times" OTLP_OLD_LAYOUT);
	if (n && times && n != times)
		return diag_set(d->diag, -EBADMSG, "a sample has %zu values for %zu times", n,
				times);
	if (!times && n > 1)
		return diag_set(d->diag, -EBADMSG, "a sample has %zu values and no times", n);
	for (size_t i = 0; i < n; i++) {
		u64 abs = s->values[i] < 0 ? -(u64)s->values[i] : (u64)s->values[i];

		if (__builtin_add_overflow(sum, abs, &sum))
			sum = UINT64_MAX;
	}
	if (!n)
		sum = times;
	if (sum > *left)
		return diag_set(d->diag, -ERANGE, "values add up to more than 63 bits");
	*left -= sum;
	return 0;
}

int otlp_check_value_type(struct otlp_decoder *d, const Otlp__ValueType *t)
{
	int r = t ? check_index(d, "string", t->type_strindex, d->d->n_string_table) : 0;

	return t && r == 0 ? check_index(d, "string", t->unit_strindex, d->d->n_string_table) : r;
}

int otlp_check_profile(struct otlp_decoder *d, const struct otlp_group *g, const Otlp__Profile *in,
		       s64 *ret_left)
{
	u64 left = (u64)g->left;
	int r = check_attributes(d, in->attribute_indices, in->n_attribute_indices);

	for (size_t i = 0; i < in->n_samples && r == 0; i++) {
		const Otlp__Sample *s = in->samples[i];

		r = check_values(d, s, &left);
		if (r == 0)
			r = check_attributes(d, s->attribute_indices, s->n_attribute_indices);
		if (r == 0)
			r = check_link(d, s->link_index);
		if (r == 0)
			r = check_index(d, "stack", s->stack_index, d->d->n_stack_table);
		if (r == 0 && (size_t)s->stack_index < d->d->n_stack_table)
			r = check_once(d, d->stack_verdicts, "stack", (u32)s->stack_index,
				       check_stack);
	}
	if (r == 0)
		*ret_left = (s64)left;
	return r;
}
