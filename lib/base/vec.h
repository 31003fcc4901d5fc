/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A growable array of any type:
 *
 *	vec(struct row) rows = {};
 *	if (vec_push(&rows, row) < 0) return -ENOMEM;
 *	vec_foreach(&rows, r) use(r);
 *	vec_deinit(&rows);
 *
 * `data` may be NULL while `n` is 0. Growth is by half again; elements move when it grows, so a
 * pointer into a vec is borrowed until the next push.
 */
#pragma once

#include "base/types.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define vec(type)                                                                                  \
	struct {                                                                                   \
		type *data;                                                                        \
		size_t n;                                                                          \
		size_t cap;                                                                        \
	}

/* Makes room for at least `want` elements of `size` bytes; 0 or -ENOMEM. */
static inline int vec_grow_(void **data, size_t *cap, size_t want, size_t size)
{
	size_t new_cap = *cap + *cap / 2 + 8;
	void *p;

	if (want <= *cap)
		return 0;
	if (new_cap < want)
		new_cap = want;
	p = reallocarray(*data, new_cap, size);
	if (!p)
		return -ENOMEM;
	*data = p;
	*cap = new_cap;
	return 0;
}

#define vec_reserve(v, want)                                                                       \
	({                                                                                         \
		void *vec_p_ = (v)->data;                                                          \
		int vec_r_ = vec_grow_(&vec_p_, &(v)->cap, (want), sizeof(*(v)->data));            \
		(v)->data = vec_p_;                                                                \
		vec_r_;                                                                            \
	})
/* 0 or -ENOMEM, in which case nothing changed. */
#define vec_push(v, ...)                                                                           \
	({                                                                                         \
		int vec_push_r_ = vec_reserve((v), (v)->n + 1);                                    \
		if (vec_push_r_ == 0)                                                              \
			(v)->data[(v)->n++] = (__VA_ARGS__);                                       \
		vec_push_r_;                                                                       \
	})
#define vec_foreach(v, it)                                                                         \
	for (__typeof__(&*(v)->data) it = (v)->data, it##_end_ = it ? it + (v)->n : it;            \
	     it != it##_end_; it++)
#define vec_clear(v) ((void)((v)->n = 0))
#define vec_deinit(v)                                                                              \
	do {                                                                                       \
		free((v)->data);                                                                   \
		(v)->data = NULL;                                                                  \
		(v)->n = (v)->cap = 0;                                                             \
	} while (0)
