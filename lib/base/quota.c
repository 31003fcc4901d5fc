/* SPDX-License-Identifier: Apache-2.0 */
#include "base/quota.h"

#include <errno.h>
#include <jansson.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

#define STEP_BYTES (256u << 10)	  /* taken from the pool at once */
#define MMAP_BYTES (256u << 10)	  /* malloc() gives these back to the system when they are freed */
#define LOOSE_BYTES (64ULL << 20) /* smaller ones that malloc() may keep */
#define CLOCK_CALLS 16u		  /* quota_check() reads the clock once in so many calls */
#define LOOK_NS 50000000ULL	  /* and looks at the CPU time and at `gone` so often */
#define MIB(bytes) ((bytes) >> 20)
#define SECONDS(ns) ((double)(ns) / 1e9)

static _Thread_local struct quota *current;  /* charged; NULL also while it is paused */
static _Thread_local struct quota *watching; /* of quota_check() */
static atomic_ullong loose;		     /* freed since the last malloc_trim() */

/* ---- pool ---- */

static bool pool_take(struct quota_pool *p, u64 n)
{
	if (atomic_fetch_add(&p->used, n) + n <= p->limit_bytes || !p->limit_bytes)
		return true;
	atomic_fetch_sub(&p->used, n);
	return false;
}

void quota_pool_hold(struct quota_pool *p, size_t n)
{
	if (p)
		atomic_fetch_add(&p->used, n);
}

static void pool_give(struct quota_pool *p, u64 n)
{
	if (p)
		atomic_fetch_sub(&p->used, n);
}

/* ---- memory that malloc() keeps ---- */

static void note_freed(u64 n)
{
	if (n && atomic_fetch_add(&loose, n) + n > LOOSE_BYTES)
		quota_trim();
}

void quota_trim(void)
{
	if (atomic_exchange(&loose, 0))
		(void)malloc_trim(0);
}

void quota_pool_release(struct quota_pool *p, size_t n)
{
	pool_give(p, n);
	note_freed(n);
}

/* ---- memory ---- */

static bool refuse(struct quota *q, int why)
{
	if (!q->why)
		q->why = why;
	if (why == -ENOMEM)
		atomic_fetch_add(&q->limits.pool->refused, 1);
	return false;
}

/* Takes from the pool what `used` with n more bytes lacks. */
static bool reserve(struct quota *q, u64 used)
{
	u64 lack = used - q->reserved, step = MAX(lack, STEP_BYTES);

	if (!q->limits.pool)
		return true;
	if (!pool_take(q->limits.pool, step)) {
		step = lack;
		if (!pool_take(q->limits.pool, step))
			return refuse(q, -ENOMEM);
	}
	q->reserved += step;
	return true;
}

static bool take(struct quota *q, size_t n)
{
	u64 used;

	if (__builtin_add_overflow(q->used, n, &used) ||
	    (q->limits.bytes && used > q->limits.bytes))
		return refuse(q, -EDQUOT);
	if (used > q->reserved && !reserve(q, used))
		return false;
	q->used = used;
	if (used > q->peak)
		q->peak = used;
	return true;
}

static void give(struct quota *q, size_t n)
{
	u64 spare;

	q->used -= MIN(q->used, (u64)n);
	spare = q->reserved - MIN(q->reserved, q->used);
	if (spare <= 4 * STEP_BYTES)
		return;
	spare -= STEP_BYTES;
	q->reserved -= spare;
	pool_give(q->limits.pool, spare);
	if (n < MMAP_BYTES)
		note_freed(spare);
}

bool quota_take(size_t n)
{
	return !current || take(current, n);
}

void quota_give(size_t n)
{
	if (current)
		give(current, n);
}

/* ---- begin and end ---- */

void quota_begin(struct quota *q)
{
	q->used = q->peak = q->reserved = 0;
	q->calls = 0;
	q->why = 0;
	q->began_ns = q->looked_ns = clock_ns(CLOCK_MONOTONIC);
	q->began_cpu_ns = q->limits.cpu_ns ? clock_ns(CLOCK_THREAD_CPUTIME_ID) : 0;
	q->outer = watching;
	current = watching = q;
}

void quota_end(struct quota *q)
{
	current = watching = q->outer;
	pool_give(q->limits.pool, q->reserved);
	note_freed(q->reserved);
	q->used = q->reserved = 0;
}

struct quota *quota_pause(void)
{
	struct quota *q = current;

	current = NULL;
	return q;
}

void quota_resume(struct quota *q)
{
	current = q;
}

void quota_start(void)
{
	json_set_alloc_funcs(malloc, free);
	/* When it is not set, malloc() raises it to what was freed last, up to 32 MiB. */
	(void)mallopt(M_MMAP_THRESHOLD, MMAP_BYTES);
}

/* ---- why not ---- */

static int explain(const struct quota *q, struct diag *d)
{
	const struct quota_limits *l = &q->limits;

	switch (q->why) {
	case -EDQUOT:
		return diag_set(d, q->why, "the request needs more than %llu MiB of memory",
				MIB(l->bytes));
	case -ENOMEM:
		return diag_set(d, q->why,
				"the memory for all requests, %llu MiB, is used up; retry later",
				MIB(l->pool->limit_bytes));
	case -ETIMEDOUT:
		return diag_set(d, q->why, "the request takes more than %g s, or %g s of CPU time",
				SECONDS(l->time_ns), SECONDS(l->cpu_ns));
	case -ECANCELED:
		return diag_set(d, q->why, "the client has gone");
	default:
		return q->why;
	}
}

static void look(struct quota *q)
{
	u64 now = clock_ns(CLOCK_MONOTONIC);

	if (q->limits.time_ns && now - q->began_ns > q->limits.time_ns)
		q->why = -ETIMEDOUT;
	if (q->why || now - q->looked_ns < LOOK_NS)
		return;
	q->looked_ns = now;
	if (q->limits.cpu_ns &&
	    clock_ns(CLOCK_THREAD_CPUTIME_ID) - q->began_cpu_ns > q->limits.cpu_ns)
		q->why = -ETIMEDOUT;
	else if (q->gone && q->gone(q->userdata))
		q->why = -ECANCELED;
}

int quota_check(struct diag *reterr_diag)
{
	struct quota *q = watching;

	if (!q)
		return 0;
	if (!q->why && q->calls++ % CLOCK_CALLS == 0)
		look(q);
	return q->why ? explain(q, reterr_diag) : 0;
}

int quota_why(struct diag *reterr_diag)
{
	return watching && watching->why ? explain(watching, reterr_diag) : 0;
}

/* ---- the allocator: the linker makes __wrap_x of a call of x, and __real_x is libc's ---- */

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void __real_free(void *p);
/* Visible, because a program that links them may use a shared library that calls malloc(). */
#pragma GCC visibility push(default)
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_reallocarray(void *p, size_t n, size_t size);
char *__wrap_strdup(const char *s);
char *__wrap_strndup(const char *s, size_t n);
void __wrap_free(void *p);
#pragma GCC visibility pop

static void *no_room(void)
{
	errno = ENOMEM;
	return NULL;
}

/* malloc() may return more than was asked for and charged; `p` is NULL if it failed. */
static void *settle(struct quota *q, void *p, size_t charged)
{
	size_t n = malloc_usable_size(p);

	if (n > charged)
		(void)take(q, n - charged); /* a few bytes; the next take() is refused */
	else
		give(q, charged - n);
	return p;
}

void *__wrap_malloc(size_t n)
{
	if (__builtin_expect(!current, 1))
		return __real_malloc(n);
	return take(current, n) ? settle(current, __real_malloc(n), n) : no_room();
}

void *__wrap_calloc(size_t n, size_t size)
{
	size_t bytes;

	if (__builtin_expect(!current, 1))
		return __real_calloc(n, size);
	if (__builtin_mul_overflow(n, size, &bytes) || !take(current, bytes))
		return no_room();
	return settle(current, __real_calloc(n, size), bytes);
}

void *__wrap_realloc(void *p, size_t n)
{
	struct quota *q = current;
	size_t old, more;
	void *moved;

	if (__builtin_expect(!q, 1))
		return __real_realloc(p, n);
	old = malloc_usable_size(p);
	more = n > old ? n - old : 0;
	if (!take(q, more))
		return no_room();
	moved = __real_realloc(p, n);
	if (!moved && n) {
		give(q, more);
		return NULL;
	}
	return settle(q, moved, old + more);
}

void *__wrap_reallocarray(void *p, size_t n, size_t size)
{
	size_t bytes;

	return __builtin_mul_overflow(n, size, &bytes) ? no_room() : __wrap_realloc(p, bytes);
}

char *__wrap_strndup(const char *s, size_t n)
{
	size_t len = strnlen(s, n);
	char *copy = __wrap_malloc(len + 1);

	if (!copy)
		return NULL;
	memcpy(copy, s, len);
	copy[len] = '\0';
	return copy;
}

char *__wrap_strdup(const char *s)
{
	return __wrap_strndup(s, strlen(s));
}

void __wrap_free(void *p)
{
	if (__builtin_expect(current != NULL, 0))
		give(current, malloc_usable_size(p));
	__real_free(p);
}
