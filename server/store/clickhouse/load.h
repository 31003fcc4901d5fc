/* SPDX-License-Identifier: Apache-2.0 */
/* Turns answers about stacks, frames and functions into a profile. */
#pragma once

#include "server/store/clickhouse/clickhouse.h"

struct ch_list {
	size_t first; /* the list is a range of ch_loading.ids */
	u32 n;
};

struct ch_frame {
	struct profile_frame frame; /* ch_push_frame() fills in the function */
	u64 function;		    /* id, or 0 */
};

struct ch_reals {
	vec(u32) frames; /* ids in the profile */
};

/* The keys of all maps are ids; value PROFILE_NONE: not loaded yet. */
struct ch_loading {
	struct profile *into;	  /* borrowed */
	struct map stacks, named; /* → position in: */
	vec(struct ch_list) lists;
	vec(u64) ids;
	struct map frames; /* → position in: */
	vec(struct ch_frame) frame_list;
	struct map functions; /* → function of the profile */
};

void ch_loading_deinit(struct ch_loading *l);
#define _cleanup_ch_loading_ __attribute__((cleanup(ch_loading_deinit)))

/* These parse an answer. They return 0, -EBADMSG or -ENOMEM. */
int ch_read_lists(struct ch_loading *l, const struct str *answer, struct map *by_id,
		  struct map *wanted);
int ch_read_frames(struct ch_loading *l, const struct str *answer);
int ch_read_functions(struct ch_loading *l, const struct str *answer);

int ch_load_functions(struct ch *s, struct ch_loading *l, struct diag *reterr_diag);
int ch_load_frames(struct ch *s, struct ch_loading *l, struct diag *reterr_diag);
/* Appends the frame, or its replacements from late symbols. -ENOENT: the frame is missing. */
int ch_push_frame(struct ch_loading *l, u64 id, struct ch_reals *out);
int ch_add_stack(struct ch_loading *l, u64 id, struct ch_reals *scratch, u32 *ret);
