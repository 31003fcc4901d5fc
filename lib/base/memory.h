/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gives back to the system what a process holds and does not use: what malloc() keeps of freed
 * blocks, and pages of code and constants that only the start has touched. What is needed again is
 * a page fault of a microsecond: from the page cache, or of an empty page. Any thread; it takes
 * milliseconds.
 */
#pragma once

#include "base/types.h"

void memory_give_back(void);

/* What malloc() holds: blocks in use, and freed ones that it keeps. */
struct memory_heap {
	u64 used_bytes, free_bytes;
};
struct memory_heap memory_heap(void);
