/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the profiles of sources to those of types. With `wall` clock and waits are recorded as the
 * whole time of threads, and the other types of time are parts of it.
 */
#include <errno.h>
#include <string.h>

#include "agent/stackprobe/stackprobe.h"
#include "base/vocab.h"

#define JVM "libjvm.so"
#define JVM_NOTE "[JVM]"

enum part { ALL, RUNNING, WAITING, LOCKS };

/* For each type, in the order in which they are looked for: what a source's profile has. */
static const struct rule {
	enum stackprobe_type type;
	enum sample_type from, to;
	enum part part;
} rules[] = {
	{STACKPROBE_ONCPU, SAMPLE_TYPE_CPU, SAMPLE_TYPE_CPU, ALL},
	{STACKPROBE_ONCPU, SAMPLE_TYPE_WALL, SAMPLE_TYPE_CPU, RUNNING},
	{STACKPROBE_OFFCPU, SAMPLE_TYPE_OFF_CPU, SAMPLE_TYPE_OFF_CPU, ALL},
	{STACKPROBE_OFFCPU, SAMPLE_TYPE_WALL, SAMPLE_TYPE_OFF_CPU, WAITING},
	{STACKPROBE_LOCK, SAMPLE_TYPE_OFF_CPU, SAMPLE_TYPE_MUTEX_DELAY, LOCKS},
	{STACKPROBE_LOCK, SAMPLE_TYPE_WALL, SAMPLE_TYPE_MUTEX_DELAY, LOCKS},
	{STACKPROBE_MEM, SAMPLE_TYPE_FAULT_BYTES, SAMPLE_TYPE_FAULT_BYTES, ALL},
	{STACKPROBE_MEM_GLIBC, SAMPLE_TYPE_INUSE_SPACE, SAMPLE_TYPE_INUSE_SPACE, ALL},
	{STACKPROBE_MEM_GLIBC, SAMPLE_TYPE_ALLOC_SPACE, SAMPLE_TYPE_ALLOC_SPACE, ALL},
	{STACKPROBE_IO, SAMPLE_TYPE_BLOCK_IO_TIME, SAMPLE_TYPE_BLOCK_IO_TIME, ALL},
	{STACKPROBE_WALL, SAMPLE_TYPE_WALL, SAMPLE_TYPE_WALL, ALL},
};

static bool is_in_part(void *arg, const struct profile *p, const struct profile_sample *s)
{
	enum wait wait = profile_wait(p, s->thread);

	switch (*(const enum part *)arg) {
	case RUNNING:
		return wait == WAIT_RUNNING;
	case WAITING:
		return wait != WAIT_RUNNING;
	case LOCKS:
		return wait == WAIT_LOCK;
	default:
		return true;
	}
}

static const struct rule *rule_of(const struct profile *p, enum stackprobe_type t)
{
	for (size_t i = 0; i < ARRAY_SIZE(rules); i++)
		if (rules[i].type == t && profile_find_type(p, rules[i].from) != PROFILE_NONE)
			return &rules[i];
	return NULL;
}

static int set_type(struct profile *p, u32 index, enum sample_type type)
{
	const char *name = vocab_sample_type(type)->name;

	return profile_add_string(p, name, strlen(name), &p->types[index].name);
}

int stackprobe_part(const struct profile *p, enum stackprobe_type t, struct profile **ret)
{
	_cleanup_profile_ struct profile *part = NULL;
	const struct rule *rule = rule_of(p, t);
	enum part which;
	u32 index;
	int r;

	*ret = NULL;
	if (!rule)
		return 0;
	part = profile_create();
	which = rule->part;
	r = part ? profile_merge_some(part, p, is_in_part, &which, NULL) : -ENOMEM;
	if (r < 0)
		return r;
	index = profile_find_type(p, rule->from);
	part->default_type = index;
	if (rule->to != rule->from)
		r = set_type(part, index, rule->to);
	if (r == 0 && which != ALL)
		profile_derive_quality(part);
	if (r == 0)
		*ret = take_ptr(part);
	return r;
}

static bool is_jvm(const struct profile *p, u32 frame)
{
	u32 mapping = p->frames.data[frame].mapping;

	return mapping != PROFILE_NONE &&
	       !strcmp(profile_basename(profile_string(p, p->mappings.data[mapping].path)), JVM);
}

int stackprobe_hide_jvm(struct profile *p)
{
	u32 note = PROFILE_NONE;
	int r = 0;

	for (size_t i = 0; i < p->stacks.n && r == 0; i++) {
		struct profile_stack *s = &p->stacks.data[i];
		u32 *ids = p->stack_frames.data + s->first, n = 0;

		for (u32 j = 0; j < s->n && r == 0; j++) {
			if (!is_jvm(p, ids[j])) {
				ids[n++] = ids[j];
				continue;
			}
			if (note == PROFILE_NONE)
				r = profile_add_note(p, JVM_NOTE, &note);
			if (!n || ids[n - 1] != note)
				ids[n++] = note;
		}
		s->n = n;
	}
	return r;
}
