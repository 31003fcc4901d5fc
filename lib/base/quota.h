/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the work of one thread may take, from quota_begin() to quota_end(): memory, time, and the
 * patience of whoever waits for its answer.
 *
 * Programs that link this library have its malloc(), calloc(), realloc(), reallocarray(), strdup(),
 * strndup() and free() in place of libc's (meson.build: -Wl,--wrap). They charge what they return
 * to the quota of their thread, and return NULL when the quota, or the pool that it shares with the
 * quotas of other threads, has no room. Without a quota they do as libc does, after one test of a
 * thread-local variable. Memory of other libraries is not charged, unless they allocate with a
 * function that they are given: quota_start() gives it to Jansson.
 *
 * Memory that another thread frees stays charged until quota_end(), which gives the pool everything
 * back. Memory from before quota_begin() that is freed under the quota lowers `used`, at most to 0.
 *
 * The first refusal stays: from then on quota_check() and quota_why() return it.
 */
#pragma once

#include <stdatomic.h>

#include "base/diag.h"
#include "base/types.h"

/* Shared by threads; zeroed but for `limit_bytes`. */
struct quota_pool {
	u64 limit_bytes; /* 0 = none */
	atomic_ullong used;
	atomic_ullong refused; /* quotas that found it full */
};

struct quota_limits {
	struct quota_pool *pool; /* borrowed; or NULL */
	u64 bytes;		 /* 0 = no limit, like the next members */
	u64 time_ns;		 /* on the clock, from quota_begin() on */
	u64 cpu_ns;		 /* of the thread's CPU time */
};

struct quota {
	struct quota_limits limits;
	/* Whether nobody waits for the answer, or NULL; called every 100 ms at most. */
	bool (*gone)(void *userdata);
	void *userdata;
	/* Set by the functions below. */
	u64 used, peak, reserved; /* bytes; `reserved` are those taken from the pool */
	u64 began_ns, began_cpu_ns, looked_ns;
	u32 calls; /* of quota_check() */
	int why;   /* the first refusal */
	struct quota *outer;
};

/* Makes it the quota of this thread, in place of the outer one if there is any. */
void quota_begin(struct quota *q);
/* Gives the pool everything back; the thread has the outer quota again, or none. */
void quota_end(struct quota *q);

/* Charges memory that is not from malloc(). False: no room. True without a quota. */
bool quota_take(size_t n);
void quota_give(size_t n);

/*
 * For loops: call it every 1000 short steps, or each long one, and return its error. 0, or
 *	-EDQUOT		the memory of the quota was not enough
 *	-ENOMEM		the memory of the pool was not enough
 *	-ETIMEDOUT	the time is over
 *	-ECANCELED	nobody waits for the answer
 * and then the diag has a sentence for people.
 */
int quota_check(struct diag *reterr_diag);
/* The refusal that quota_check() or an allocation met, or 0; looks at no clock. */
int quota_why(struct diag *reterr_diag);

/*
 * Between the two no memory is charged or refused: for memory that outlives the request and has a
 * limit of its own, as a cache has. quota_check() goes on.
 */
struct quota *quota_pause(void);
void quota_resume(struct quota *q);
static inline void cleanup_quota_pause(struct quota **q)
{
	quota_resume(*q);
}
/* For the rest of the scope. */
#define QUOTA_PAUSED                                                                               \
	__attribute__((cleanup(cleanup_quota_pause), unused)) struct quota *quota_paused_ =        \
		quota_pause()

/* Takes memory from the pool, even more than it has, for what outlives a quota: an answer. */
void quota_pool_hold(struct quota_pool *p, size_t n);
void quota_pool_release(struct quota_pool *p, size_t n);

/* Once, at the start of a program that uses quotas: charges what Jansson allocates too. */
void quota_start(void);
/*
 * Gives the system the memory back that was freed under quotas. The functions above do it when that
 * is much; call this every few seconds for the rest.
 */
void quota_trim(void);
