/* SPDX-License-Identifier: Apache-2.0 */
/* What probes cost on this machine, with the programs that run at them. */
#pragma once

#include "agent/alloc/alloc.h"

struct alloc_costs {
	u64 emulated_ns; /* a probe at a function's begin whose first instruction is emulated */
	u64 stepped_ns;	 /* or stepped */
	u64 return_ns;	 /* a probe at the return of a call */
};

/*
 * Probes functions of this process, and calls them: 10 ms. 0 or a negative errno: this kernel or
 * this process cannot do it.
 */
int alloc_calibrate(const struct alloc_programs *p, struct alloc_costs *ret);
