/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of store_tool. store_batches.c describes the content of a batch. */
#pragma once

#include "base/cleanup.h"
#include "server/store/store.h"

#define HOUR_MS 3600000ULL
#define DAY_MS (24 * HOUR_MS)
#define T0 (480000 * HOUR_MS)
#define STEP_MS 120000ULL
#define DAYS_AFTER_MS (8 * HOUR_MS) /* age from which times are rounded to days */
#define SPANS 30
#define SERVICES 3 /* one per thread of a batch; two of the three are equal */

/* Options of the command line; store_tool.c describes them. */
struct store_tool_options {
	u64 die, max_mb, age_h, damaged, maintain, whole_from, spans;
};
extern struct store_tool_options options;
extern const char *const services[SERVICES];

/* ---- store_batches.c ---- */

u64 begin_of(u32 k);
struct profile *make_batch(u32 k);
void make_spans(u32 k, struct spans *s);
/* Returns the link to the i-th span of trace k + 1. */
struct profile_link link_of(u32 k, u32 i);

/* ---- store_judge.c ---- */

/* Returns the exit status: 1 when data is wrong; prints what is wrong to stdout. */
int verify(struct store *s, u32 written);
