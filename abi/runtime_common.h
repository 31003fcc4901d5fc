/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Parts of the data of several walkers (abi/runtime.h). */
#pragma once

#include <linux/types.h>

struct runtime_range {
	__u64 start, end; /* svma, unless its owner says avma; the end is exclusive */
};

static inline __attribute__((always_inline)) int runtime_in(const struct runtime_range *r, __u64 at)
{
	return at >= r->start && at < r->end;
}

/* Whether the address is in one of n ranges; `max`, a constant for the verifier, is at least n. */
static inline __attribute__((always_inline)) int runtime_in_any(const struct runtime_range *ranges,
								__u32 n, __u32 max, __u64 at)
{
	for (__u64 i = 0; i < max; i++) {
		if (i >= n)
			break;
		if (runtime_in(&ranges[i], at))
			return 1;
	}
	return 0;
}

/* Start with p = the thread pointer; n times p = *(p + off) gives the result. n == 0: no chain. */
#define RUNTIME_MAX_CHAIN 3
struct runtime_chain {
	__u32 n;
	__u32 pad;
	__s64 off[RUNTIME_MAX_CHAIN];
};
