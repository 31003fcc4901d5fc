/* SPDX-License-Identifier: Apache-2.0 */
/* Arguments of system calls as people read them, and the parts of a session. */
#pragma once

#include "agent/syscalls/syscalls.h"
#include "base/vec.h"

/* An argument that is printed. */
struct syscalls_argument {
	const struct syscalls_call *call;
	const struct syscalls_piece *piece; /* its memory; NULL: it has none, or it was not read */
	u32 i;
};

/* The type of an argument, by its name in syscalls.tbl. */
struct syscalls_type {
	const char *name;
	void (*print)(const struct syscalls_argument *a, struct str *out);
	struct syscalls_plan_piece piece; /* kind SYSCALLS_NOTHING: it has no memory */
};

/* `name` has n bytes. NULL: there is none. */
const struct syscalls_type *syscalls_type_find(const char *name, size_t n);

/* Text in quotes as C writes it; `more`: dots follow it. */
void syscalls_quote(const u8 *bytes, size_t n, bool more, struct str *out);

/* ---- the statistics (summary.c) ---- */

struct syscalls_row {
	u32 pid; /* 0: all processes */
	u32 slot;
	char comm[16];
	struct syscalls_stats stats;
};
struct syscalls_rows {
	vec(struct syscalls_row) v;
};

/* Sorts the rows by time, and prints them as a table; or as JSON, an object a line. */
void syscalls_print_rows(struct syscalls_rows *rows, bool json, struct str *out);
/* Adds what one CPU has counted. */
void syscalls_add_stats(struct syscalls_stats *to, const struct syscalls_stats *from);
