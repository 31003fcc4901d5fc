/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The options that `agent` and `up` share besides those of sampling: destinations, what is exported
 * and when. For a group whose base is a struct agent_options.
 */
#pragma once

#include "cli/options.h"

extern const struct option exporting_options[];
