/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The service, container and pod of processes that a script sees, for as long as it runs: a process
 * that has ended keeps what was known of it.
 */
#pragma once

#include "base/str.h"
#include "trace/trace.h"

struct tracer_owners;

/* -ENOMEM */
int tracer_owners_create(struct tracer_owners **ret);
void tracer_owners_destroy(struct tracer_owners *o);
/*
 * Appends the name; nothing if the process has no such owner. `comm` is the process's name at the
 * event, which is its service if it had ended before anything else was known; "": what was known
 * in the last call for this pid. False: out of memory, or too many processes.
 */
bool tracer_owners_name(struct tracer_owners *o, enum trace_owner what, u32 pid, const char *comm,
			struct str *out);
/* The first pid that this was called with whose owner has the same name. */
u32 tracer_owners_id(struct tracer_owners *o, enum trace_owner what, u32 pid, const char *comm);
