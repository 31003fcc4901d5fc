/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rules for OTLP profiles in opentelemetry-proto and in sig-profiling's profcheck, and rules
 * that both only recommend: the dictionary has no entry twice and no entry without a reference, and
 * no two samples have one identity. otlp_rules() returns the violated rule, or NULL.
 */
#pragma once

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/map.h"
#include "base/pb.h"
#include "otlp/otlp_private.h"

struct otlp_uses {
	const Otlp__ProfilesDictionary *d;
	u8 *mappings, *locations, *functions, *strings, *attributes, *stacks;
};

#define RULE(x)                                                                                    \
	do {                                                                                       \
		if (!(x))                                                                          \
			return #x;                                                                 \
	} while (0)
#define RULES(x)                                                                                   \
	do {                                                                                       \
		const char *wrong_ = (x);                                                          \
		if (wrong_)                                                                        \
			return wrong_;                                                             \
	} while (0)

static inline const char *use(u8 *used, s64 index, size_t n)
{
	RULE(index >= 0 && (size_t)index < n);
	used[index] = 1;
	return NULL;
}

static inline const char *use_attributes(struct otlp_uses *u, const s32 *indices, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		RULES(use(u->attributes, indices[i], u->d->n_attribute_table));
		RULE(indices[i] != 0);
		for (size_t j = 0; j < i; j++)
			RULE(u->d->attribute_table[indices[i]]->key_strindex !=
			     u->d->attribute_table[indices[j]]->key_strindex);
	}
	return NULL;
}

static inline const char *use_value_type(struct otlp_uses *u, const Otlp__ValueType *t)
{
	if (!t)
		return NULL;
	RULES(use(u->strings, t->type_strindex, u->d->n_string_table));
	return use(u->strings, t->unit_strindex, u->d->n_string_table);
}

/* Rules for a table: entry 0 is zero, no entry is there twice. Compares packed entries. */
static inline const char *table_rules(ProtobufCMessage *const *table, size_t n)
{
	struct strtab seen;
	const char *wrong = NULL;

	RULE(n > 0);
	RULE(strtab_init(&seen) == 0);
	for (size_t i = 0; i < n && !wrong; i++) {
		size_t size = protobuf_c_message_get_packed_size(table[i]);
		u8 *bytes = malloc(size + 1);
		u32 id = 0;

		protobuf_c_message_pack(table[i], bytes);
		if (strtab_add(&seen, (const char *)bytes, size, &id) < 0 || id != i)
			wrong = i ? "an entry is there twice" : "entry 0 is not the zero value";
		free(bytes);
	}
	strtab_deinit(&seen);
	return wrong;
}

static inline const char *string_rules(const Otlp__ProfilesDictionary *d)
{
	struct strtab seen;
	const char *wrong = NULL;

	RULE(d->n_string_table > 0);
	RULE(strtab_init(&seen) == 0);
	for (size_t i = 0; i < d->n_string_table && !wrong; i++) {
		u32 id = 0;

		if (strtab_add(&seen, d->string_table[i], strlen(d->string_table[i]), &id) < 0 ||
		    id != i)
			wrong = "a string is there twice, or string 0 is not empty";
	}
	strtab_deinit(&seen);
	return wrong;
}

static inline const char *mapping_rules(struct otlp_uses *u)
{
	const Otlp__ProfilesDictionary *d = u->d;

	RULES(table_rules((ProtobufCMessage **)d->mapping_table, d->n_mapping_table));
	for (size_t i = 0; i < d->n_mapping_table; i++) {
		const Otlp__Mapping *m = d->mapping_table[i];

		RULE((!m->memory_start && !m->memory_limit) || m->memory_start < m->memory_limit);
		RULES(use(u->strings, m->filename_strindex, d->n_string_table));
		RULES(use_attributes(u, m->attribute_indices, m->n_attribute_indices));
	}
	return NULL;
}

static inline const char *location_rules(struct otlp_uses *u)
{
	const Otlp__ProfilesDictionary *d = u->d;

	RULES(table_rules((ProtobufCMessage **)d->location_table, d->n_location_table));
	for (size_t i = 0; i < d->n_location_table; i++) {
		const Otlp__Location *l = d->location_table[i];
		bool typed = false;

		RULES(use(u->mappings, l->mapping_index, d->n_mapping_table));
		RULES(use_attributes(u, l->attribute_indices, l->n_attribute_indices));
		for (size_t k = 0; k < l->n_attribute_indices; k++)
			typed |= !strcmp(d->string_table[d->attribute_table[l->attribute_indices[k]]
								 ->key_strindex],
					 "profile.frame.type");
		RULE(typed || i == 0);
		if (l->mapping_index)
			RULE(l->address <= d->mapping_table[l->mapping_index]->memory_limit);
		for (size_t k = 0; k < l->n_lines; k++) {
			RULES(use(u->functions, l->lines[k]->function_index, d->n_function_table));
			RULE(l->lines[k]->line >= 0 && l->lines[k]->column >= 0);
		}
	}
	return NULL;
}

static inline const char *function_rules(struct otlp_uses *u)
{
	const Otlp__ProfilesDictionary *d = u->d;

	RULES(table_rules((ProtobufCMessage **)d->function_table, d->n_function_table));
	for (size_t i = 0; i < d->n_function_table; i++) {
		const Otlp__Function *f = d->function_table[i];

		RULES(use(u->strings, f->name_strindex, d->n_string_table));
		RULES(use(u->strings, f->system_name_strindex, d->n_string_table));
		RULES(use(u->strings, f->filename_strindex, d->n_string_table));
		RULE(f->start_line >= 0);
	}
	return NULL;
}

static inline const char *dictionary_rules(struct otlp_uses *u)
{
	const Otlp__ProfilesDictionary *d = u->d;

	RULES(string_rules(d));
	RULES(mapping_rules(u));
	RULES(location_rules(u));
	RULES(function_rules(u));
	RULES(table_rules((ProtobufCMessage **)d->link_table, d->n_link_table));
	for (size_t i = 1; i < d->n_link_table; i++)
		RULE(d->link_table[i]->trace_id.len == 16 && d->link_table[i]->span_id.len == 8);
	RULES(table_rules((ProtobufCMessage **)d->attribute_table, d->n_attribute_table));
	for (size_t i = 0; i < d->n_attribute_table; i++) {
		RULES(use(u->strings, d->attribute_table[i]->key_strindex, d->n_string_table));
		RULE(i == 0 || d->attribute_table[i]->key_strindex);
		RULES(use(u->strings, d->attribute_table[i]->unit_strindex, d->n_string_table));
	}
	RULES(table_rules((ProtobufCMessage **)d->stack_table, d->n_stack_table));
	for (size_t i = 0; i < d->n_stack_table; i++)
		for (size_t k = 0; k < d->stack_table[i]->n_location_indices; k++)
			RULES(use(u->locations, d->stack_table[i]->location_indices[k],
				  d->n_location_table));
	return NULL;
}

static inline const char *sample_rules(struct otlp_uses *u, const Otlp__Profile *p,
				       const Otlp__Sample *s)
{
	const Otlp__Sample *first = p->samples[0];

	RULES(use(u->stacks, s->stack_index, u->d->n_stack_table));
	RULES(use_attributes(u, s->attribute_indices, s->n_attribute_indices));
	RULE(s->link_index >= 0 && (size_t)s->link_index < u->d->n_link_table);
	RULE(s->n_values || s->n_timestamps_unix_nano);
	RULE(!s->n_values || !s->n_timestamps_unix_nano ||
	     s->n_values == s->n_timestamps_unix_nano);
	RULE(s->n_timestamps_unix_nano || s->n_values == 1);
	RULE(!s->n_values == !first->n_values);
	RULE(!s->n_timestamps_unix_nano == !first->n_timestamps_unix_nano);
	for (size_t i = 0; i < s->n_timestamps_unix_nano; i++)
		RULE(s->timestamps_unix_nano[i] >= p->time_unix_nano &&
		     s->timestamps_unix_nano[i] - p->time_unix_nano < p->duration_nano);
	return NULL;
}

/* Packs a sample without its values and timestamps. */
static inline size_t identity(const Otlp__Sample *s, u8 *bytes)
{
	Otlp__Sample id = *s;

	id.n_values = id.n_timestamps_unix_nano = 0;
	return otlp__sample__pack(&id, bytes);
}

static inline const char *profile_rules(struct otlp_uses *u, const Otlp__Profile *p)
{
	struct strtab seen;
	bool twice = false;

	RULES(use_attributes(u, p->attribute_indices, p->n_attribute_indices));
	RULE(p->sample_type != NULL);
	RULES(use_value_type(u, p->sample_type));
	RULES(use_value_type(u, p->period_type));
	RULE(!p->profile_id.len || p->profile_id.len == 16);
	for (size_t i = 0; i < p->n_samples; i++)
		RULES(sample_rules(u, p, p->samples[i]));
	RULE(strtab_init(&seen) == 0);
	for (size_t i = 0; i < p->n_samples; i++) {
		u8 bytes[256];
		u32 id = 0;

		/* Samples that culprit writes have at most two attributes. */
		if (p->samples[i]->n_attribute_indices > 8)
			continue;
		strtab_add(&seen, (const char *)bytes, identity(p->samples[i], bytes), &id);
		/* Id 0 is "", also an identity: that of the empty stack without attributes. */
		twice |= id != 0 && seen.n - 1 != id;
	}
	strtab_deinit(&seen);
	RULE(!twice);
	return NULL;
}

static inline const char *request_rules(struct otlp_uses *u,
					const Otlp__ExportProfilesServiceRequest *in)
{
	RULE(in->n_resource_profiles > 0);
	for (size_t i = 0; i < in->n_resource_profiles; i++) {
		const Otlp__ResourceProfiles *rp = in->resource_profiles[i];

		RULE(rp->n_scope_profiles > 0);
		for (size_t k = 0; rp->resource && k < rp->resource->n_attributes; k++) {
			RULE(*rp->resource->attributes[k]->key);
			RULE(!rp->resource->attributes[k]->key_strindex);
			for (size_t l = 0; l < k; l++)
				RULE(strcmp(rp->resource->attributes[k]->key,
					    rp->resource->attributes[l]->key));
		}
		for (size_t k = 0; k < rp->n_scope_profiles; k++) {
			RULE(rp->scope_profiles[k]->n_profiles > 0);
			for (size_t l = 0; l < rp->scope_profiles[k]->n_profiles; l++)
				RULES(profile_rules(u, rp->scope_profiles[k]->profiles[l]));
		}
	}
	return dictionary_rules(u);
}

static inline const char *no_orphans(const u8 *used, size_t n)
{
	for (size_t i = 1; i < n; i++)
		if (!used[i])
			return "an entry of the dictionary that nothing refers to";
	return NULL;
}

static inline const char *otlp_rules(const u8 *data, size_t n)
{
	_cleanup_arena_ struct arena arena = ARENA_INIT(1ULL << 30);
	ProtobufCAllocator allocator = pb_allocator(&arena);
	const Otlp__ExportProfilesServiceRequest *in =
		otlp__export_profiles_service_request__unpack(&allocator, n, data);
	const Otlp__ProfilesDictionary *d;
	struct otlp_uses u;

	RULE(in != NULL);
	d = in->dictionary;
	RULE(d != NULL);
	u = (struct otlp_uses){
		.d = d,
		.mappings = arena_calloc(&arena, d->n_mapping_table, 1),
		.locations = arena_calloc(&arena, d->n_location_table, 1),
		.functions = arena_calloc(&arena, d->n_function_table, 1),
		.strings = arena_calloc(&arena, d->n_string_table, 1),
		.attributes = arena_calloc(&arena, d->n_attribute_table, 1),
		.stacks = arena_calloc(&arena, d->n_stack_table, 1),
	};
	RULES(request_rules(&u, in));
	RULES(no_orphans(u.mappings, d->n_mapping_table));
	RULES(no_orphans(u.locations, d->n_location_table));
	RULES(no_orphans(u.functions, d->n_function_table));
	RULES(no_orphans(u.strings, d->n_string_table));
	RULES(no_orphans(u.attributes, d->n_attribute_table));
	return no_orphans(u.stacks, d->n_stack_table);
}
#undef RULE
#undef RULES
