/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The unwinder on the host: the steps of abi/walk.h, which are the ones that run in BPF, over
 * whatever memory and tables the caller has. Finishes stacks that BPF could not, and is what tests
 * and fuzzers run.
 */
#pragma once

#include "abi/sample.h"
#include "base/types.h"

#include <stdbool.h>

enum unwind_host_runtime {
	UNWIND_HOST_NATIVE, /* no */
	UNWIND_HOST_STOP,   /* yes, and without it nobody knows the caller: STOP_RUNTIME */
	UNWIND_HOST_NOTE,   /* yes; rows or frame pointers lead to the caller, and *ret_note stands
			       for such frames, one for several that follow each other */
};

struct unwind_host {
	/* The 64 bytes of an arena line, or NULL. */
	const void *(*line)(void *arg, u32 line);
	/* n bytes of the process's memory at avma; 0 or negative. */
	int (*read)(void *arg, void *to, size_t n, u64 avma);
	/* Loads the unwind page for pc: 0 when it is there, negative to give up. May be NULL. */
	int (*missing)(void *arg, u64 pc);
	/* Is pc where a runtime's walker would take over, which only BPF can do? May be NULL. */
	enum unwind_host_runtime (*runtime)(void *arg, u32 runtime, u64 pc, u64 *ret_note);
	void *arg;
	u64 pac_mask;
};

/*
 * Walks from *regs on: frames leaf first behind the *n that are there already, at most `max` in
 * all. The stop reason; *regs are where it stopped. After STOP_NO_MAPPING (whose frame is not
 * there) the walk can be continued with other mappings.
 */
enum stop_reason unwind_host_walk(const struct unwind_host *host, struct walk_regs *regs, u32 slice,
				  u32 n_mappings, u64 *frames, u32 max, u32 *n);
/* The frame of an address that is in no mapping. */
u64 unwind_host_raw_frame(const struct walk_regs *regs);

/* The id that BPF gives to a user stack of these frames and this end. */
u64 unwind_host_stack_id(const u64 *frames, u32 n, u32 stop);
