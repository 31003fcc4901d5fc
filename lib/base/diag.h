/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An error message for people: the place and one line that says what is wrong with a file, an
 * option or a query. Functions fill a diag only on failure; they accept NULL.
 */
#pragma once

#include "base/types.h"

struct diag {
	char text[256];
};

/* Sets the text unless an earlier error has set it. Returns `error`. */
int diag_set(struct diag *d, int error, const char *fmt, ...) CULPRIT_PRINTF(3, 4);
/*
 * The same for damage at an offset in the bytes that a parser was given; the caller, who knows what
 * file or request they are of, puts its name before the text.
 */
int diag_set_at(struct diag *d, int error, u64 offset, const char *fmt, ...) CULPRIT_PRINTF(4, 5);
