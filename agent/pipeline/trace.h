/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stacks for the programs of a script, which know them by id (abi/trace.h). Nothing is counted.
 * Walks that the host finishes have two ids: the one that the script knows, and that of the whole
 * stack, by which equal stacks are found.
 */
#pragma once

#include "agent/pipeline/internal.h"

/* Nothing without options.sampler.traces. */
int pipeline_trace_create(struct pipeline *p, const struct pipeline_options *o);
void pipeline_trace_destroy(struct pipeline *p);
/* A user stack has arrived. */
void trace_see(struct pipeline *p, const struct record_stack *head);
/* The host has finished a walk: s->user_stack is the id of the whole stack. */
void trace_take(struct pipeline *p, const struct record_sample *s);
