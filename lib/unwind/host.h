/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The unwinder on the host: the steps of abi/walk.h, which BPF runs, over memory and tables that
 * the caller has. It finishes stacks that BPF could not, and tests and fuzzers run it.
 */
#pragma once

#include "abi/sample.h"
#include "base/types.h"

#include <stdbool.h>

enum unwind_host_runtime {
	UNWIND_HOST_NATIVE, /* the frame is native */
	UNWIND_HOST_STOP,   /* only the walker knows the caller: STOP_RUNTIME */
	UNWIND_HOST_NOTE,   /* rows or frame pointers lead to the caller, and *ret_note stands for
			       this frame, or for several of them in a row */
};

struct unwind_host {
	/* The 64 bytes of an arena line, or NULL. */
	const void *(*line)(void *arg, u32 line);
	/* Reads n bytes of the process's memory at avma. 0, or a negative errno. */
	int (*read)(void *arg, void *to, size_t n, u64 avma);
	/* Loads the unwind page for pc. 0: it is there; negative: give up. May be NULL. */
	int (*missing)(void *arg, u64 pc);
	/*
	 * How to treat the frame at pc, for which BPF would call a runtime's walker. May be NULL.
	 */
	enum unwind_host_runtime (*runtime)(void *arg, u32 runtime, u64 pc, u64 *ret_note);
	void *arg;
	u64 pac_mask;
};

/*
 * Walks from *regs on and appends frames, leaf first, to the *n that `frames` has, up to `max` in
 * all. Returns the stop reason and leaves *regs where the walk stopped. After STOP_NO_MAPPING,
 * whose frame is not appended, the walk can be continued with other mappings.
 */
enum stop_reason unwind_host_walk(const struct unwind_host *host, struct walk_regs *regs, u32 slice,
				  u32 n_mappings, u64 *frames, u32 max, u32 *n);
/* The frame for an address that is in no mapping. */
u64 unwind_host_raw_frame(const struct walk_regs *regs);

/* The id that BPF gives to a user stack with these frames and this stop reason. */
u64 unwind_host_stack_id(const u64 *frames, u32 n, u32 stop);
