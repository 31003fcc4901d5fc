/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "agent/pipeline/pipeline.h"
#include "profile/profile.h"

/* Reports the sampled stacks of each trace to the processes that ask for them. */
void correlate(const struct pipeline_batch *b, const struct profile *p, struct contexts *to);
