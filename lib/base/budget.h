/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory limit of the whole process, and reservations for large temporary uses: a thread that
 * is about to read a file of several MiB reserves the memory first, waits while other reservations
 * leave no room, and gives up if there is still none. All functions may be called from any thread.
 * With NULL, or without a limit, there is always room.
 */
#pragma once

#include <pthread.h>

#include "base/types.h"

struct budget {
	u64 limit_bytes; /* atomic; 0: none */
	s64 outside;	 /* atomic: memory of the process that is not resident (BPF maps) */
	s64 others;	 /* atomic: memory of processes that work for this one */
	int statm;	 /* owned: /proc/self/statm */
	pthread_mutex_t lock;
	pthread_cond_t freed;
	u64 reserved;	/* under the lock, like the next member */
	u64 trimmed_ns; /* time of the last malloc_trim() */
};

/* limit_bytes 0: no limit. */
void budget_init(struct budget *b, u64 limit_bytes);
void budget_deinit(struct budget *b);
void budget_set_limit(struct budget *b, u64 bytes);
/* Sets the memory that counts beside the resident memory. */
void budget_set_outside(struct budget *b, s64 bytes);
/* Counts more or less memory of processes that work for this one. NULL is fine. */
void budget_add_others(struct budget *b, s64 bytes);
u64 budget_limit(const struct budget *b);
/* Bytes in use: resident memory plus that of budget_set_outside() and budget_add_others(). */
u64 budget_used(const struct budget *b);
/* Whether more than this percentage of the limit is in use. */
bool budget_is_over(const struct budget *b, u32 percent);
/*
 * Reserves memory until budget_end() with the same number of bytes. Waits some seconds at most for
 * other reservations to end. Returns false if there is no room.
 */
bool budget_begin(struct budget *b, u64 bytes);
void budget_end(struct budget *b, u64 bytes);
