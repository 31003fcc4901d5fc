/* SPDX-License-Identifier: Apache-2.0 */
/* What regex.c needs of RE2, a C++ library, as functions in C that throw no exception. */
#pragma once

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct re2_code;

/* 0; -EINVAL, and `ret_why` is RE2's sentence; -ENOMEM. Code and caches stay below max_bytes. */
int re2_compile(const char *pattern, size_t max_bytes, char *ret_why, size_t n_why,
		struct re2_code **ret);
void re2_free(struct re2_code *c);
/* The number of instructions. */
size_t re2_size(const struct re2_code *c);
/* Whether n bytes match, all of them (`whole`) or a part: 1 or 0; -ENOMEM. Thread-safe. */
int re2_match(const struct re2_code *c, const char *text, size_t n, int whole);

#ifdef __cplusplus
}
#endif
