/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of store_tool share; store_batches.c says what a batch holds. */
#pragma once

#include "base/cleanup.h"
#include "server/store/store.h"

#define HOUR_MS 3600000ULL
#define DAY_MS (24 * HOUR_MS)
#define T0 (480000 * HOUR_MS)
#define STEP_MS 120000ULL
#define DAYS_AFTER_MS (8 * HOUR_MS) /* age from which times are rounded to days */
#define SPANS 30
#define SERVICES 3 /* of threads: two are of one */

/* Of the command line: store_tool.c. */
struct store_tool_options {
	u64 die, max_mb, age_h, damaged, maintain, whole_from, spans;
};
extern struct store_tool_options options;
extern const char *const services[SERVICES];

/* ---- store_batches.c ---- */

u64 begin_of(u32 k);
struct profile *make_batch(u32 k);
void make_spans(u32 k, struct spans *s);
/* Trace k + 1, its i-th span. */
struct profile_link link_of(u32 k, u32 i);

/* ---- store_judge.c ---- */

/* The exit status: 1 when something is wrong, which is told on stdout. */
int verify(struct store *s, u32 written);
