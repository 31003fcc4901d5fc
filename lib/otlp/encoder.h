/* SPDX-License-Identifier: Apache-2.0 */
/* The dictionary of a request that is being written; encode_dictionary.c explains how it works. */
#pragma once

#include "base/arena.h"
#include "base/map.h"
#include "base/str.h"
#include "base/vec.h"
#include "otlp/otlp_private.h"

/* A failed allocation sets `failed`, which callers check once per step. */
struct otlp_dict {
	const struct profile *p;
	struct arena arena; /* also holds the messages that are being built */
	struct strtab strings, mappings, locations, functions, attributes, stacks, links;
	u64 *limits; /* owned; indexed by mapping: first address after it */
	/* Indexed by id in the profile: id in the table + 1; owned. */
	u32 *stack_ids, *function_ids, *mapping_ids;
	struct strtab places; /* the frames of each location: arrays of u32 */
	vec(s32) place_ids;   /* indexed by id in places: id of the location */
	vec(s32) location_indices;
	struct str text;
	bool failed;
};

/* p and arena are set. */
int otlp_dict_init(struct otlp_dict *d);
void otlp_dict_deinit(struct otlp_dict *d);
/* Zeroed memory in the arena; NULL if there is none left. */
void *otlp_dict_alloc(struct otlp_dict *d, size_t n, size_t size);
/* The clean form of a text, in the arena. */
char *otlp_dict_copy(struct otlp_dict *d, const char *s);
/* The index in the string table of a text, or of a string of the profile. */
s32 otlp_dict_text(struct otlp_dict *d, const char *s);
s32 otlp_dict_string(struct otlp_dict *d, u32 id);
/* The id of a message in a table. */
u32 otlp_dict_intern(struct otlp_dict *d, struct strtab *table, const ProtobufCMessage *m);
/* The index of an attribute whose value is a text, or a number. */
s32 otlp_dict_attribute(struct otlp_dict *d, const char *key, const char *value);
s32 otlp_dict_number(struct otlp_dict *d, const char *key, s64 value);
/* The index of a stack, or of a link, of the profile. */
u32 otlp_dict_stack(struct otlp_dict *d, u32 id);
u32 otlp_dict_link(struct otlp_dict *d, u32 id);
/* All tables, borrowed. */
void otlp_dict_write(struct otlp_dict *d, Otlp__PackedDictionary *out);
