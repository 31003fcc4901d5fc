/* SPDX-License-Identifier: Apache-2.0 */
/* The options that say what to sample; all commands that sample share them. */
#pragma once

#include "agent/agent.h"
#include "cli/options.h"

struct sampling_arguments {
	struct recording_options what;
	bool verbose;
};

/* For a group whose base is a struct sampling_arguments. */
extern const struct option sampling_options[];

/*
 * Completes `what` from the environment, and sets the log level. Strings are borrowed until the
 * program ends.
 */
void sampling_apply(struct sampling_arguments *a);
/* Where the cache is if --cache-dir does not say it. NULL: there is no place for it. */
const char *sampling_cache_dir(void);
