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
