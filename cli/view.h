/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The options that select frames and set how a profile looks; all commands that write profiles
 * share them.
 */
#pragma once

#include "abi/vocab.h"
#include "cli/options.h"
#include "format/format.h"

struct view_arguments {
	bool threads, pids, annotate, kernel_only, user_only, no_inline, icicle;
	const char *title, *roots;
	u8 drop_kinds[FRAME_KIND_N]; /* storage that view_apply() points to */
};

/* For groups whose base is a struct view_arguments: display options, and filters. */
extern const struct option view_look_options[], view_filter_options[];

/*
 * Fills `o`, whose drop_kinds points into `a`. -EINVAL after it printed an error, when the options
 * contradict each other.
 */
int view_apply(struct view_arguments *a, const char *command, struct profile_write_options *o);

/*
 * Reads the files into one profile and selects its value type `type` (NULL: the file's default). 0,
 * or -1 after it printed an error.
 */
int view_read(const char *command, char *const *paths, int n, const char *format, const char *type,
	      struct profile **ret);
/*
 * The format of an output file, as profile_write_check(). A file that is there is not replaced
 * without `force`: -EEXIST.
 */
int view_check_output(const char *path, const char *format, bool force,
		      const struct profile_format **ret, struct diag *reterr_diag);
