/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * Frames of language runtimes: what user space tells the walkers, and what they send.
 *
 * A runtime has one walker in BPF (bpf/unwind/NAME.h). It is called when a walk stands in a mapping
 * that is marked with its id: the text of the interpreter, or memory that holds its JIT's code. It
 * finds what it needs in two entries that user space has learned: one for each binary of the
 * runtime, shared by all processes, and one for each process.
 *
 * A runtime frame is two words of a stack:
 *
 *	FRAME_RUNTIME | runtime << 56 | address		of the code object, in the process
 *	where						what the runtime's user half makes of it:
 *							a position in the code, and a cookie that
 *							tells whether the object is still the same
 *
 * Address 0 says that the next frame, a native one, is the interpreter's own: the loop that ran the
 * frames before it. It is shown with --runtime-frames only.
 */
#pragma once

#include <linux/types.h>

#define FRAME_RUNTIME (3ULL << 62)
#define FRAME_RUNTIME_SHIFT 56
#define FRAME_RUNTIME_ADDRESS ((1ULL << FRAME_RUNTIME_SHIFT) - 1)

enum runtime_id {
	RUNTIME_NONE,
#define RUNTIME(id, ...) RUNTIME_##id,
#include "abi/tbl/runtime.tbl"
#undef RUNTIME
	RUNTIME_N
};

/*
 * What a walker knows of a binary: offsets, addresses as svma. Each runtime overlays a struct of
 * its own on `room`, declared in abi/runtime_NAME.h with a static assertion of its size.
 */
struct runtime_binary {
	__u64 room[64];
};
#define RUNTIME_MAX_BINARIES 256

#define RUNTIME_MAX_RESERVED 4

/* And of a process: addresses as avma. */
struct runtime_process {
	__u64 start_stack; /* which image, as in struct process_entry */
	__u64 bias;	   /* avma - svma of the binary */
	__u32 binary;	   /* index of its struct runtime_binary */
	__u32 pad;
	/*
	 * Memory that its JIT has reserved: parts become executable without that the kernel tells
	 * anybody (mprotect). An address in here that is in no known mapping is the JIT's.
	 */
	struct {
		__u64 start, end;
	} reserved[RUNTIME_MAX_RESERVED];
	__u64 room[13];
};

struct runtime_key {
	__u32 pid;
	__u32 runtime; /* enum runtime_id */
};

/* What a walker keeps from call to call within one sample; zero at its beginning. */
struct runtime_walk {
	__u64 room[16];
};

/* What a walker returns, besides WALK_GO (the registers are the caller's now) and stop reasons. */
#define RUNTIME_NATIVE (-2) /* walk the frame at pc by its binary's rows now */
#define RUNTIME_AGAIN (-3)  /* frames were pushed, there are more: call again */
