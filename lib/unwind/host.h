/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The unwinder on the host. It takes the steps of walk/walk.h, as BPF does, over memory and tables
 * of the caller. It finishes the stacks that BPF could not finish; tests and fuzzers run it, too.
 */
#pragma once

#include "abi/sample.h"
#include "base/types.h"

#include <stdbool.h>

enum unwind_host_runtime {
	UNWIND_HOST_NATIVE, /* the frame is native */
	UNWIND_HOST_STOP,   /* only the runtime's walker can find the caller: STOP_RUNTIME */
	/* Rows or frame pointers find the caller; *ret_note replaces all such frames in a row. */
	UNWIND_HOST_NOTE,
};

struct unwind_host {
	/* Returns the 64 bytes of an arena line, or NULL. */
	const void *(*line)(void *arg, u32 line);
	/* Reads n bytes of the process's memory at avma. Returns 0 or a negative errno. */
	int (*read)(void *arg, void *to, size_t n, u64 avma);
	/* Loads the unwind page for pc. 0: it is loaded; negative: give up. May be NULL. */
	int (*missing)(void *arg, u64 pc);
	/* Decides about the frame at pc, for which BPF would call a runtime's walker. May be
	 * NULL. */
	enum unwind_host_runtime (*runtime)(void *arg, u32 runtime, u64 pc, u64 *ret_note);
	void *arg;
	u64 pac_mask;
};

/*
 * Walks from *regs on and appends frames, leaf first, to the *n frames in `frames`, up to `max` in
 * all. Returns the stop reason; *regs is then where the walk stopped. After STOP_NO_MAPPING, whose
 * frame is not appended, the walk can be continued with other mappings.
 */
enum stop_reason unwind_host_walk(const struct unwind_host *host, struct walk_regs *regs, u32 slice,
				  u32 n_mappings, u64 *frames, u32 max, u32 *n);
/* Whether the host may get further than a walk of BPF that has ended so after n frames. */
bool unwind_host_can_help(int stop, u32 n);
/* Returns the address at which a walk with these registers looks for a row. */
u64 unwind_host_pc(const struct walk_regs *regs);
/* Returns the frame for an address that is in no mapping. */
u64 unwind_host_raw_frame(const struct walk_regs *regs);

/* Returns the id that BPF gives to a user stack with these frames and this stop reason. */
u64 unwind_host_stack_id(const u64 *frames, u32 n, u32 stop);
