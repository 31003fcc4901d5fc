/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unwind rows of Go's functions, made from .gopclntab. doc/design/0002-go-rows.md says why the rows
 * come from its pcsp tables and not from frame pointers.
 */
#pragma once

#include "abi/unwind.h"
#include "base/types.h"
#include "elf/elf.h"

struct go_table;

/* Receives a row that holds from pc (svma) on. pcs rise within one call of go_table_fill(). */
typedef void go_row_fn(void *arg, u64 pc, const struct unwind_rule *rule);

/*
 * Opens the table of a file. `elf` is borrowed until go_table_destroy(). Fails as
 * pclntab_open_with_text(); -ENOENT: the file is not a Go program.
 */
int go_table_create(struct elf_file *elf, struct go_table **ret);
void go_table_destroy(struct go_table *g);
/* Returns the range of svmas that contains all functions. */
void go_table_range(const struct go_table *g, u64 *ret_lo, u64 *ret_hi);
/* The number of functions. */
u32 go_table_n(const struct go_table *g);
/*
 * Passes the rows of [lo, hi), which is inside the table's range, to `row`. Each entry that is read
 * from a pcsp table takes 1 from *budget; at 0 the rest of a function gets UNWIND_CFA_NONE.
 */
void go_table_fill(const struct go_table *g, u64 lo, u64 hi, u64 *budget, go_row_fn *row,
		   void *arg);
