/* SPDX-License-Identifier: Apache-2.0 */
/* The line of each function in which most of its time is spent, over all stacks of a profile. */
#pragma once

#include "profile/profile.h"

struct profile_hot_line {
	u32 line;  /* 0 = no sample has a line of the function */
	s64 value; /* of samples with that line in their stack, each counted once */
	s64 total; /* the same of the function, also of frames without a line */
};

/* A function is a name in a source file: copies of it in several binaries are one. */
struct profile_hot_lines {
	struct map functions; /* string id of the name << 32 | of the file → index of `rows` */
	vec(struct profile_hot_line) rows;
};

/* By value type p->default_type. Empty if frames have one line a function (quality.one_line). */
int profile_hot_lines_build(const struct profile *p, struct profile_hot_lines *ret);
void profile_hot_lines_deinit(struct profile_hot_lines *h);
/* The row of a frame's function; NULL without function or source file. */
const struct profile_hot_line *profile_hot_lines_of(const struct profile_hot_lines *h,
						    const struct profile *p, u32 frame);
