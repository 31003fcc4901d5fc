/* SPDX-License-Identifier: Apache-2.0 */
/* Private to lib/unwind: rows of code without unwind information, read from the code itself. */
#pragma once

#include "unwind/unwind.h"

struct unwind_source;
struct code_layer;

/* NULL is fine. */
void code_layer_destroy(struct code_layer *c);
/* Adds rows for [lo, hi), svma, which is in one page and which no table covers. */
void code_layer_fill(struct unwind_source *s, u64 lo, u64 hi);
/* Frees what was kept for the gaps of one page. NULL is fine. */
void code_layer_end_page(struct code_layer *c);
