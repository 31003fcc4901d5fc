/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a human must read when a file, an option or a query is wrong: the place and one line that
 * says what to do. Functions that take one fill it on failure only; NULL means nobody reads it.
 */
#pragma once

#include "base/types.h"

struct diag {
	char text[256];
};

/* Fills the diag (the first error wins) and returns `error`, so that a parser can return it. */
int diag_set(struct diag *d, int error, const char *fmt, ...) CULPRIT_PRINTF(3, 4);
