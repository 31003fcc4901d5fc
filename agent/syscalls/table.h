/* SPDX-License-Identifier: Apache-2.0 */
/* What is known of each call, by its slot. */
#pragma once

#include "agent/syscalls/internal.h"

struct syscalls_entry {
	u32 groups;
	u32 n; /* of arguments */
	const struct syscalls_type *types[6];
	s8 pieces[6]; /* index of the argument's memory in the record; -1: none */
	struct syscalls_plan plan;
};

struct syscalls_table {
	struct syscalls_entry entries[SYSCALLS_MAX];
};
