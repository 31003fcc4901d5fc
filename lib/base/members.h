/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Members of a JSON object (Jansson's) that a user has written: each with a sentence if it is
 * wrong. A member that is missing or null leaves *ret as it is. All return 0, or -EINVAL and a
 * diag.
 */
#pragma once

#include "base/diag.h"
#include "base/types.h"

struct json_t;

/* Refuses members that are not among these; `what`: "a task". Also -ENOMEM. */
int members_check(struct json_t *object, const char *const *members, size_t n, const char *what,
		  struct diag *reterr_diag);
/* A text without control characters, of less than `room` bytes. */
int members_text(struct json_t *o, const char *name, char *ret, size_t room,
		 struct diag *reterr_diag);
/* 0 to max. -ENOENT: it is missing. */
int members_number(struct json_t *o, const char *name, double max, double *ret,
		   struct diag *reterr_diag);
/* Whole numbers; the latter up to 2^31. */
int members_u64(struct json_t *o, const char *name, u64 max, u64 *ret, struct diag *reterr_diag);
int members_u32(struct json_t *o, const char *name, u32 *ret, struct diag *reterr_diag);
int members_flag(struct json_t *o, const char *name, bool *ret, struct diag *reterr_diag);
