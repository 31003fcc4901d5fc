/* SPDX-License-Identifier: Apache-2.0 */
/*
 * With LD_PRELOAD, a program publishes one span for its whole life, with ATTRIBUTES attributes of
 * 20 bytes; with NOTHING set it has the library but publishes no span.
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
