/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A growable byte string. `data` is NUL-terminated whenever it is not NULL; `n` does not count the
 * NUL. A failed append sets `failed` and leaves the content unchanged, so that a writer may append
 * many times and check once at the end. Appends return 0 or -ENOMEM. No lock.
 */
#pragma once

#include "base/types.h"

#include <stdarg.h>

struct str {
	char *data; /* owned */
	size_t n;
	size_t cap;
	bool failed;
};

void str_deinit(struct str *s);
/* Empties the string and keeps its memory. */
void str_clear(struct str *s);
int str_append(struct str *s, const void *bytes, size_t n);
int str_puts(struct str *s, const char *text);
int str_putc(struct str *s, char c);
int str_printf(struct str *s, const char *fmt, ...) CULPRIT_PRINTF(2, 3);
int str_vprintf(struct str *s, const char *fmt, va_list ap) CULPRIT_PRINTF(2, 0);
/* The content as a C string, never NULL; borrowed until the string changes. */
const char *str_get(const struct str *s);

static inline void cleanup_str(struct str *s)
{
	str_deinit(s);
}
#define _cleanup_str_ _cleanup_(str)

bool str_starts(const char *s, const char *prefix);
bool str_ends(const char *s, const char *suffix);
/* Equal texts, or both NULL. */
bool str_same(const char *a, const char *b);
/* Parses a whole string as an unsigned number (base 0 as strtoull). 0, -EINVAL or -ERANGE. */
int str_to_u64(const char *s, int base, u64 *ret);
