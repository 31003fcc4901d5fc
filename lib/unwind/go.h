/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to lib/unwind: rows of Go functions out of .gopclntab. doc/design/0002-go-rows.md says
 * why its pcsp tables and not frame pointers.
 */
#pragma once

#include "unwind/unwind.h"

struct unwind_source;
struct go_table;

/* -ENOENT when the file is not a Go program. */
int go_table_create(struct elf_file *elf, u64 exec_lo, u64 exec_hi, struct go_table **ret);
void go_table_destroy(struct go_table *g);
/* The functions' addresses. */
void go_table_range(const struct go_table *g, u64 *ret_lo, u64 *ret_hi);
u32 go_table_n(const struct go_table *g);
/* Rows for [lo, hi), which lies in the table's range and in one page. */
void go_table_fill(struct unwind_source *s, u64 lo, u64 hi);
