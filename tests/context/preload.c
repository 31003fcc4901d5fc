/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LD_PRELOAD: the program works for one span all the time, with that many ATTRIBUTES of 20 bytes;
 * with NOTHING it could say so, and does not.
 */
#include "culprit_context.h"

#ifndef ATTRIBUTES
#define ATTRIBUTES 0
#endif

__attribute__((constructor)) static void begin(void)
{
	static const uint8_t trace[16] = {1, 2, 3}, span[8] = {4, 5, 6};

#ifdef NOTHING
	return;
#endif
	culprit_context_enter(trace, span, 1);
	for (int i = 0; i < ATTRIBUTES; i++)
		(void)culprit_context_attribute(culprit_context_key("http.route"),
						"/checkout/{product}", 18);
}
