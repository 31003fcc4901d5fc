/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For the writers of formats, beyond profile.h: samples without their times, and the levels above
 * the frames.
 */
#pragma once

#include "base/str.h"
#include "profile/profile.h"
#include "profile/tree.h"

/* ---- samples without their times: one group per thread, stack and link (profile.c) ---- */

struct profile_group {
	u32 thread; /* or PROFILE_NONE */
	u32 stack;
	u32 link; /* 0 = none, or links are not kept apart */
};

struct profile_groups {
	vec(struct profile_group) group;
	vec(s64) value;	      /* of group g and type t: value.data[g * n_types + t] */
	vec(double) variance; /* of group g and type p->default_type; NAN: unknown */
	u32 n_types;
};

int profile_groups_build(const struct profile *p, bool by_link, struct profile_groups *ret);
void profile_groups_deinit(struct profile_groups *g);
#define _cleanup_groups_ __attribute__((cleanup(profile_groups_deinit)))

/*
 * For formats that show each thread once. (*ret)[thread] is the first thread that differs only in
 * the attributes of its work. The caller frees *ret.
 */
int profile_same_threads(const struct profile *p, u32 **ret);

/* ---- the levels above the frames (head.c) ---- */

/* The names of pod, container, process and thread of a sample, as the options require. */
struct profile_head {
	struct str name[4]; /* owned */
	u16 level[4];	    /* enum profile_level */
	size_t n;	    /* of both */
};
void profile_head_set(struct profile_head *h, const struct profile *p, u32 thread,
		      const struct profile_tree_options *o);
void profile_head_deinit(struct profile_head *h);
#define _cleanup_head_ __attribute__((cleanup(profile_head_deinit)))

/* The suffix of folded text: _[k] always, _[i] and _[j] with `annotate`, else "". */
const char *profile_frame_suffix(const struct profile_frame *f, bool annotate);
/* Whether profile_wait() of any thread is one. */
bool profile_has_waits(const struct profile *p);
/* What the leaf above all frames of a sample of this thread says; WAIT_NONE: there is none. */
enum wait profile_wait_leaf(const struct profile *p, u32 thread,
			    const struct profile_tree_options *o);
/* Whether the options leave this frame out. */
bool profile_frame_dropped(const struct profile_frame *f, const struct profile_tree_options *o);
