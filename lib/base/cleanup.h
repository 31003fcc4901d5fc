/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scope guards: a variable declared with _cleanup_x_ is released when its scope ends, unless
 * ownership was handed over with take_ptr() or take_fd().
 */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Declares cleanup_NAME(), which calls FUNC on a non-NULL pointer of TYPE. */
#define DEFINE_CLEANUP(name, type, func)                                                           \
	static inline void cleanup_##name(type *p)                                                 \
	{                                                                                          \
		if (*p)                                                                            \
			func(*p);                                                                  \
	}
#define _cleanup_(name) __attribute__((cleanup(cleanup_##name)))

static inline void cleanup_free(void *p)
{
	free(*(void **)p);
}

static inline void cleanup_close(int *fd)
{
	if (*fd >= 0)
		close(*fd);
}

static inline void cleanup_fclose(FILE **f)
{
	if (*f)
		fclose(*f);
}

#define _cleanup_free_ _cleanup_(free)
#define _cleanup_close_ _cleanup_(close)
#define _cleanup_fclose_ _cleanup_(fclose)

/* Hands the pointer to the caller and disarms the guard. */
#define take_ptr(p)                                                                                \
	({                                                                                         \
		__typeof__(p) take_p_ = (p);                                                       \
		(p) = NULL;                                                                        \
		take_p_;                                                                           \
	})

static inline int take_fd(int *fd)
{
	int r = *fd;

	*fd = -1;
	return r;
}
