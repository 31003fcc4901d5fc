/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Short names for the kernel's fixed-width types, so that structs from abi/ mean the same on both
 * sides, and the handful of helpers that everything uses.
 */
#pragma once

#include <linux/types.h>
#include <stdbool.h>
#include <stddef.h>

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s8 s8;
typedef __s16 s16;
typedef __s32 s32;
typedef __s64 s64;

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define MIN(a, b)                                                                                  \
	({                                                                                         \
		__typeof__(a) min_a_ = (a);                                                        \
		__typeof__(b) min_b_ = (b);                                                        \
		min_a_ < min_b_ ? min_a_ : min_b_;                                                 \
	})
#define MAX(a, b)                                                                                  \
	({                                                                                         \
		__typeof__(a) max_a_ = (a);                                                        \
		__typeof__(b) max_b_ = (b);                                                        \
		max_a_ > max_b_ ? max_a_ : max_b_;                                                 \
	})
#define container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))
#define CULPRIT_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
