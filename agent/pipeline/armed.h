/* SPDX-License-Identifier: Apache-2.0 */
/* Processes whose requests are recorded: the public functions are in pipeline.h. */
#pragma once

#include "agent/pipeline/internal.h"

/* The process uses this index of the map of publishers; 0: it publishes no spans. */
void armed_told(struct pipeline *p, const struct procman_process *proc, u32 index);
/* The process is gone. */
void armed_gone(struct pipeline *p, const struct procman_process *proc);
