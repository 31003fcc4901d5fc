/* SPDX-License-Identifier: Apache-2.0 */
/* LD_PRELOAD: the program works for one span all the time. */
#include "culprit_context.h"

__attribute__((constructor)) static void begin(void)
{
	static const uint8_t trace[16] = {1, 2, 3}, span[8] = {4, 5, 6};

	(void)culprit_context_enter(trace, span, 1);
}
