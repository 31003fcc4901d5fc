/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of the decoder; decode.c explains how it works. */
#pragma once

#include "base/vec.h"
#include "otlp/otlp.h"
#include "otlp/otlp_private.h"

#define OTLP_MAX_GROUPS 64	 /* distinct value types of one request */
#define OTLP_MAX_TYPE_BYTES 256	 /* of the name of one */
#define OTLP_MAX_NAME_BYTES 4096 /* of processes and threads: the rest is cut off */
#define OTLP_OLD_LAYOUT " (a sender older than opentelemetry-proto 1.10?)"

struct otlp_location {
	u32 first, n; /* in group.location_frames; n = 0: not copied yet */
};

struct otlp_group {
	struct profile *p; /* owned */
	const char *type, *unit, *period_type, *period_unit;
	s64 period;
	u64 time_ns, end_ns;
	bool times_differ; /* of its profiles; if set, every sample gets a time */
	s64 left;	   /* what values may still add up to */
	/* Indexed as the dictionary: id in p + 1, 0 = not copied yet; owned. */
	u32 *strings, *mappings, *functions, *stacks;
	u8 *kinds; /* of mappings: enum frame_kind + 1 */
	struct otlp_location *locations;
	vec(u32) location_frames;
	const Otlp__Resource *resource; /* the last one, */
	u32 resource_id;		/* and what it is in p */
};

enum otlp_verdict { OTLP_VERDICT_NONE, OTLP_VERDICT_GOOD, OTLP_VERDICT_BAD };

struct otlp_decoder {
	const Otlp__ExportProfilesServiceRequest *in;
	const Otlp__ProfilesDictionary *d;
	struct arena *arena;
	struct otlp_profiles *out;
	struct diag *diag; /* of the current profile */
	vec(struct otlp_group) groups;
	size_t group_bytes; /* memory of the tables of a group */
	u64 used_bytes;	    /* without what the group at hand has in its profile */
	/*
	 * Indexed as the dictionary: enum otlp_verdict; in the arena. An entry is checked once,
	 * however often it is named.
	 */
	u8 *mapping_verdicts, *location_verdicts, *stack_verdicts;
	vec(u32) frames;
	/* Of the resource at hand. */
	const Otlp__Resource *resource;
	u32 pid;
	const char *comm;
};

/* ---- decode_check.c ---- */

/* NULL if there is no such string. */
const char *otlp_string_at(const struct otlp_decoder *d, s64 index);
/* NULL if there is no such attribute. */
const Otlp__KeyValueAndUnit *otlp_attribute_at(const struct otlp_decoder *d, s32 index);
/*
 * The text of the attribute with this key; "" if it is missing or not text. Borrowed from the
 * dictionary.
 */
const char *otlp_find_text(const struct otlp_decoder *d, const s32 *indices, size_t n,
			   const char *key);
bool otlp_find_number(const struct otlp_decoder *d, const s32 *indices, size_t n, const char *key,
		      u64 *ret);
int otlp_check_value_type(struct otlp_decoder *d, const Otlp__ValueType *t);
/* The whole profile; what values of the group may still add up to after it. */
int otlp_check_profile(struct otlp_decoder *d, const struct otlp_group *g, const Otlp__Profile *in,
		       s64 *ret_left);

/* ---- decode_code.c ---- */

int otlp_add_text(struct profile *p, const char *s, u32 *ret_id);
/* Cuts texts that a sample may repeat, because a short request could name them often. */
int otlp_add_name(struct profile *p, const char *s, u32 *ret_id);
u32 otlp_u32(s64 v);
u64 otlp_group_bytes(const struct otlp_group *g);
int otlp_check_memory(struct otlp_decoder *d, const struct otlp_group *g, u64 more);
/* The index is checked. */
int otlp_take_stack(struct otlp_decoder *d, struct otlp_group *g, s32 index, u32 *ret_id);
