/* SPDX-License-Identifier: Apache-2.0 */
#include "base/budget.h"

#include <fcntl.h>
#include <malloc.h>
#include <stdio.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/thread.h"

#define WAIT_NS 2000000000ULL
#define TRIM_NS 200000000ULL /* malloc_trim() takes some ms */

void budget_init(struct budget *b, u64 limit_bytes)
{
	*b = (struct budget){.limit_bytes = limit_bytes};
	thread_sync_init(&b->lock, &b->freed);
	b->statm = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
}

void budget_deinit(struct budget *b)
{
	cleanup_close(&b->statm);
	pthread_cond_destroy(&b->freed);
	pthread_mutex_destroy(&b->lock);
}

void budget_set_limit(struct budget *b, u64 bytes)
{
	__atomic_store_n(&b->limit_bytes, bytes, __ATOMIC_RELAXED);
}

void budget_set_outside(struct budget *b, s64 bytes)
{
	__atomic_store_n(&b->outside, bytes, __ATOMIC_RELAXED);
}

void budget_add_others(struct budget *b, s64 bytes)
{
	if (b)
		__atomic_fetch_add(&b->others, bytes, __ATOMIC_RELAXED);
}

u64 budget_limit(const struct budget *b)
{
	return b ? __atomic_load_n(&b->limit_bytes, __ATOMIC_RELAXED) : 0;
}

u64 budget_used(const struct budget *b)
{
	unsigned long long size, resident;
	char text[128];
	ssize_t n = pread(b->statm, text, sizeof(text) - 1, 0);
	s64 used;

	text[MAX(n, (ssize_t)0)] = '\0';
	if (sscanf(text, "%llu %llu", &size, &resident) != 2)
		return 0;
	used = (s64)(resident * (u64)sysconf(_SC_PAGESIZE)) +
	       __atomic_load_n(&b->outside, __ATOMIC_RELAXED) +
	       __atomic_load_n(&b->others, __ATOMIC_RELAXED);
	return (u64)MAX(used, (s64)0);
}

bool budget_is_over(const struct budget *b, u32 percent)
{
	u64 limit = budget_limit(b);

	return limit && budget_used(b) > limit / 100 * percent;
}

/*
 * The caller holds the lock. Memory that is both reserved and already allocated counts twice. An
 * eighth of the limit is left for small allocations, which reserve nothing.
 */
static bool has_room(const struct budget *b, u64 bytes)
{
	u64 limit = budget_limit(b);

	return budget_used(b) + b->reserved + bytes <= limit - limit / 8;
}

bool budget_begin(struct budget *b, u64 bytes)
{
	u64 now = clock_ns(CLOCK_MONOTONIC), end = now + WAIT_NS;
	bool room;

	if (!budget_limit(b))
		return true;
	pthread_mutex_lock(&b->lock);
	room = has_room(b, bytes);
	if (!room && now - b->trimmed_ns > TRIM_NS) {
		/* malloc() may hold freed memory that the system does not have back. */
		(void)malloc_trim(0);
		b->trimmed_ns = clock_ns(CLOCK_MONOTONIC);
		room = has_room(b, bytes);
	}
	for (; !room && b->reserved && now < end; now = clock_ns(CLOCK_MONOTONIC)) {
		(void)thread_wait(&b->freed, &b->lock, end - now);
		room = has_room(b, bytes);
	}
	if (room)
		b->reserved += bytes;
	pthread_mutex_unlock(&b->lock);
	return room;
}

void budget_end(struct budget *b, u64 bytes)
{
	if (!b)
		return;
	pthread_mutex_lock(&b->lock);
	/* budget_begin() reserves nothing while there is no limit. */
	b->reserved -= MIN(bytes, b->reserved);
	pthread_cond_broadcast(&b->freed);
	pthread_mutex_unlock(&b->lock);
}
