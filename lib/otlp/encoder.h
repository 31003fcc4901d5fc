/* SPDX-License-Identifier: Apache-2.0 */
/* The dictionary of the OTLP profiles that are written: encode_dictionary.c has the idea. */
#pragma once

#include "base/arena.h"
#include "base/map.h"
#include "base/str.h"
#include "base/vec.h"
#include "otlp/otlp_private.h"

/* Allocations that fail are remembered in `failed`, which is looked at once per step. */
struct otlp_dict {
	const struct profile *p;
	struct arena arena; /* the messages at hand, too */
	struct strtab strings, mappings, locations, functions, attributes, stacks, links;
	u64 *limits; /* owned; by mapping: first address behind it */
	/* By id in the profile: id in the table + 1; owned. */
	u32 *stack_ids, *function_ids, *mapping_ids;
	struct strtab places; /* what frames a location is made of: arrays of u32 */
	vec(s32) place_ids;   /* by id in places: of the location */
	vec(s32) location_indices;
	struct str text;
	bool failed;
};

/* p and arena are set. */
int otlp_dict_init(struct otlp_dict *d);
void otlp_dict_deinit(struct otlp_dict *d);
/* Zeroed, in the arena; NULL when there is no memory. */
void *otlp_dict_alloc(struct otlp_dict *d, size_t n, size_t size);
/* The clean form of a text, in the arena. */
char *otlp_dict_copy(struct otlp_dict *d, const char *s);
/* The index of a text, of a string of the profile. */
s32 otlp_dict_text(struct otlp_dict *d, const char *s);
s32 otlp_dict_string(struct otlp_dict *d, u32 id);
/* The id of a message in a table. */
u32 otlp_dict_intern(struct otlp_dict *d, struct strtab *table, const ProtobufCMessage *m);
/* The index of an attribute whose value is a text, a number. */
s32 otlp_dict_attribute(struct otlp_dict *d, const char *key, const char *value);
s32 otlp_dict_number(struct otlp_dict *d, const char *key, s64 value);
/* The index of a stack, a link of the profile. */
u32 otlp_dict_stack(struct otlp_dict *d, u32 id);
u32 otlp_dict_link(struct otlp_dict *d, u32 id);
/* All tables, borrowed. */
void otlp_dict_write(struct otlp_dict *d, Otlp__PackedDictionary *out);
