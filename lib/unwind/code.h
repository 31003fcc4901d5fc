/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to lib/unwind: rows for code without unwind information, computed from its instructions.
 */
#pragma once

#include "unwind/unwind.h"

struct unwind_source;
struct code_layer;

/* Accepts NULL. */
void code_layer_destroy(struct code_layer *c);
/* Adds rows for [lo, hi) (svma), which is in one page and which no table describes. */
void code_layer_fill(struct unwind_source *s, u64 lo, u64 hi);
/* Frees what is cached for the gaps of one page. Accepts NULL. */
void code_layer_end_page(struct code_layer *c);
