/* SPDX-License-Identifier: Apache-2.0 */
/* The callbacks of struct trace_names that need no recording. `arg` is a struct tracer_names. */
#pragma once

#include "base/str.h"
#include "base/types.h"
#include "trace/trace.h"

struct btf;
struct profile;
struct tracer_names;

/* `btf` is borrowed. -ENOMEM */
int tracer_names_create(const struct btf *btf, struct tracer_names **ret);
void tracer_names_destroy(struct tracer_names *n);

/* Stacks are named by this from now on; borrowed. */
struct tracer_walk;
void tracer_names_set_walk(struct tracer_names *n, const struct tracer_walk *w);
const struct profile *tracer_name_stack(void *arg, u64 id, u32 pid, u32 *ret_stack);
u64 tracer_stack_id(void *arg, u64 id);
void tracer_want_stack(void *arg, u64 id, u32 pid);
bool tracer_name_kernel(void *arg, u64 address, struct str *out);
/* The function of a process that runs. */
bool tracer_name_user(void *arg, u64 address, u32 pid, struct str *out);
/* Its path, with the mount point. */
bool tracer_name_cgroup(void *arg, u64 id, struct str *out);
/* As in struct trace_names. */
bool tracer_name_owner(void *arg, enum trace_owner what, u32 pid, const char *comm,
		       struct str *out);
u32 tracer_owner_id(void *arg, enum trace_owner what, u32 pid, const char *comm);
bool tracer_name_enumerator(void *arg, u32 type, u64 value, struct str *out);
bool tracer_name_system_call(void *arg, u64 number, struct str *out);
