/* SPDX-License-Identifier: Apache-2.0 */
/* The call tree of a profile: what a flame graph shows, and the comparison of two. */
#pragma once

#include "profile/profile.h"

/* What stands above the frames besides the process's name. */
enum profile_root {
	/* [Pod]NAME, of the label k8s.pod.name, else k8s.pod.uid */
	PROFILE_ROOT_POD = 1,
	/*
	 * [Con]NAME, of the label k8s.container.name, else container.name, else 12 digits of
	 * container.id
	 */
	PROFILE_ROOT_CONTAINER = 2,
	PROFILE_ROOT_PROCESS = 4, /* [PID]comm instead of comm */
};
#define PROFILE_PREFIX_POD "[Pod]"
#define PROFILE_PREFIX_CONTAINER "[Con]"
#define PROFILE_PREFIX_PID "[%u]"

/*
 * Parses "pod,container,process" or a part of it, in any order, into bits of enum profile_root.
 * -EINVAL and a diag.
 */
int profile_roots_parse(const char *list, u32 *ret, struct diag *reterr_diag);

struct profile_tree_options {
	u32 roots;	      /* of enum profile_root */
	bool threads;	      /* thread name below the process */
	bool pids;	      /* comm-PID */
	bool inverted;	      /* leaf to root */
	bool no_process;      /* no comm level at all */
	bool by_line;	      /* frames of one function on different lines stay apart */
	bool waits;	      /* what a thread waited for is a leaf such as [lock] */
	bool no_inline;	      /* inlined frames are left out: their function is the caller */
	bool leaves;	      /* profile_tree.leaves, too */
	const u8 *drop_kinds; /* bool by enum frame_kind, or NULL */
};

/*
 * Nodes are in pre-order: a node's descendants follow it directly, `n_below` of them; children of
 * one parent are sorted by name. Node 0 is the root "all". A user function and a kernel function
 * of one name are two nodes.
 */
struct profile_node {
	u32 name; /* string id in the tree's own strings */
	u32 parent;
	u32 n_below;
	/*
	 * A frame of the node; PROFILE_NONE for the levels above the frames. In a diff a frame of
	 * `after`; PROFILE_NONE if only `before` has the node.
	 */
	u32 frame;
	s64 self;
	s64 total;
	s64 base_self; /* diff: the other side */
	s64 base_total;
	u32 line;  /* with by_line, else 0 */
	u8 kind;   /* enum frame_kind; FRAME_KIND_N above the frames */
	u8 flags;  /* enum profile_frame_flags that all frames of the node have */
	u16 level; /* enum profile_level */
};

enum profile_level {
	PROFILE_LEVEL_ROOT,
	PROFILE_LEVEL_POD,
	PROFILE_LEVEL_CONTAINER,
	PROFILE_LEVEL_PROCESS,
	PROFILE_LEVEL_THREAD,
	PROFILE_LEVEL_FRAME,
};

struct profile_tree {
	struct strtab strings;
	vec(struct profile_node) nodes;
	u32 depth;
	bool has_base;
	struct map leaves; /* stack << 32 | thread → node where its samples are */
};

static inline u64 profile_leaf_key(u32 stack, u32 thread)
{
	return (u64)stack << 32 | thread;
}

/* Builds the tree of value type p->default_type. */
int profile_tree_build(const struct profile *p, const struct profile_tree_options *o,
		       struct profile_tree **ret);
/* The union of both trees: self and total are `after`, base_self and base_total `before`. */
int profile_tree_diff(const struct profile_tree *before, const struct profile_tree *after,
		      struct profile_tree **ret);
void profile_tree_destroy(struct profile_tree *t);
DEFINE_CLEANUP(profile_tree, struct profile_tree *, profile_tree_destroy)
#define _cleanup_profile_tree_ _cleanup_(profile_tree)
