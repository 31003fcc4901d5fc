/* SPDX-License-Identifier: Apache-2.0 */
/* Times as people write them: 100ms, 1.5s, 2m, 1h, 7d. */
#pragma once

#include "base/types.h"

/*
 * Seconds of a whole text: a number of 0 or more, and ns, us, ms, s, m, h or d. Without a unit it
 * is in seconds if `bare`; otherwise only 0 is a time. -EINVAL: it is none.
 */
int duration_parse(const char *text, bool bare, double *ret_s);
