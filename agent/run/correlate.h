/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "agent/pipeline/pipeline.h"
#include "profile/profile.h"

/* Tells the processes that want to know which stacks were seen for which of their traces. */
void correlate(const struct pipeline_batch *b, const struct profile *p, struct contexts *to);
