/* SPDX-License-Identifier: Apache-2.0 */
/* Names that somebody may have meant, for an error that says what there is. */
#pragma once

#include "base/str.h"

/*
 * Appends names as "from, to, type", those most like `wanted` first, as long as they and " and N
 * more" take max_bytes at most. -ENOMEM.
 */
int closest_append(struct str *out, const char *wanted, const char *const *names, size_t n,
		   size_t max_bytes);
/* The name that was probably meant: it differs in few characters. Or NULL. */
const char *closest_name(const char *wanted, const char *const *names, size_t n);
