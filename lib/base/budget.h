/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a process may have of memory in all, and room for what takes much of it for a while: whoever
 * is about to read a file of some MiB asks before, waits until others are done when both would be
 * too much, and does without when there is no room. Any thread. NULL, or without a limit: there is
 * always room.
 */
#pragma once

#include <pthread.h>

#include "base/types.h"

struct budget {
	u64 limit_bytes; /* atomic; 0: none */
	s64 outside;	 /* atomic: memory that is the process's and not resident in it */
	int statm;	 /* owned: /proc/self/statm */
	pthread_mutex_t lock;
	pthread_cond_t freed;
	u64 reserved;	/* under the lock, as the next */
	u64 trimmed_ns; /* when what was freed was given back last */
};

void budget_init(struct budget *b, u64 limit_bytes);
void budget_deinit(struct budget *b);
void budget_set_limit(struct budget *b, u64 bytes);
void budget_set_outside(struct budget *b, s64 bytes);
u64 budget_limit(const struct budget *b);
/* What is resident, and what is outside. */
u64 budget_used(const struct budget *b);
/* Is more than so many of 100 of the limit in use? */
bool budget_is_over(const struct budget *b, u32 percent);
/*
 * Room for so much more, until budget_end() of the same. Waits for what others have begun, at most
 * some seconds. False: there is none.
 */
bool budget_begin(struct budget *b, u64 bytes);
void budget_end(struct budget *b, u64 bytes);
