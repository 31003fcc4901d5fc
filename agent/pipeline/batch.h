/* SPDX-License-Identifier: Apache-2.0 */
/* Adds samples and stacks to a batch. Reading a batch needs only pipeline.h. */
#pragma once

#include "agent/pipeline/internal.h"

/* Whether there is no room for a new stack or entry. */
bool batch_is_full(const struct pipeline_batch *b);
/* An empty batch that starts now; NULL: out of memory. pipeline_give_back() frees it. */
struct pipeline_batch *batch_new(const struct pipeline *p);
/*
 * Adds a stack, unless its id is known. References the binaries of its frames. 0, -ENOMEM, -E2BIG,
 * -ENOBUFS: the batch is full.
 */
int batch_add_stack(struct pipeline_batch *b, struct procman *procman, u64 id, const u64 *frames,
		    u32 n, u32 stop, bool kernel);
/*
 * Copies a stack to another batch, unless that has it or the other does not. Stacks with runtime
 * frames stay, because their names belong to the old batch. 0, or as batch_add_stack().
 */
int batch_copy_stack(struct pipeline_batch *to, struct procman *procman,
		     const struct pipeline_batch *from, u64 id);
/* Adds a set of thread attributes, unless its id is known. `partial`: some were omitted. */
int batch_add_attributes(struct pipeline_batch *b, u32 pid, u64 id,
			 const struct context_label *labels, u32 n, bool partial);
/* Whether the batch contains the set. */
bool batch_has_attributes(const struct pipeline_batch *b, u32 pid, u64 id);
/* Copies the set to another batch. */
int batch_copy_attributes(struct pipeline_batch *to, const struct pipeline_batch *from, u32 pid,
			  u64 id);
/* Returns the index of the set. *ret_partial: the set is incomplete, or missing. */
u32 batch_attributes(const struct pipeline_batch *b, u32 pid, u64 id, bool *ret_partial);
/* Adds e->count and the values to the entry with the same key, and returns its index. */
int batch_count(struct pipeline_batch *b, const struct pipeline_entry *e, u32 *ret_index);
/* Adds a waker, unless it is there. Returns its number, as in pipeline_key.waker; 0: no memory. */
u32 batch_add_waker(struct pipeline_batch *b, const struct pipeline_waker *w);
/* Adds a set of one attribute of a process's event, and returns its index; 0: out of memory. */
u32 batch_attribute(struct pipeline_batch *b, u32 pid, const char *name, const char *value);
/*
 * Adds what a process has at the end of a period: the entry with its event, as of e->first_ns, and
 * its stack to the counts of its source. False: there is no room, which is counted for `sampled`,
 * the source that the entry comes from.
 */
bool batch_count_state(struct pipeline *p, struct pipeline_entry *e, const char *comm, u32 sampled);
/* Adds an entry of another batch with what it refers to. As batch_count() and batch_add_stack(). */
int batch_copy_entry(struct pipeline_batch *to, struct procman *procman,
		     const struct pipeline_batch *from, const struct pipeline_entry *e,
		     u32 *ret_index);
