/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * Frames of language runtimes: what user space tells the walkers, and what the walkers send.
 *
 * Each runtime has one walker in BPF (bpf/unwind/NAME.h). The walker runs when a walk reaches a
 * mapping that is marked with the runtime's id: the text of the interpreter, or memory with JIT
 * code. User space provides two kinds of entries: one for each binary of the runtime, shared by all
 * processes, and one for each process.
 *
 * A runtime frame is two words of a stack:
 *
 *	WORD_RUNTIME | runtime << 56 | address		of the code object, in the process
 *	where						for user space's part of the runtime:
 *							a position in the code, and a cookie that
 *							tells whether the object at the address is
 *							still the same
 *
 * Address 0 marks the next frame, a native frame, as the interpreter loop that ran the frames
 * before the mark. Outputs show that native frame only with --runtime-frames.
 */
#pragma once

#include <linux/types.h>

#define WORD_RUNTIME (3ULL << 62)
#define WORD_RUNTIME_SHIFT 56
#define WORD_RUNTIME_ADDRESS ((1ULL << WORD_RUNTIME_SHIFT) - 1)

enum runtime_id {
	RUNTIME_NONE,
#define RUNTIME(id, ...) RUNTIME_##id,
#include "abi/tbl/runtime.tbl"
#undef RUNTIME
	RUNTIME_N
};

/*
 * Data about a binary for the walker: offsets, and addresses as svma. Each runtime overlays its own
 * struct on `room`; abi/runtime_NAME.h declares the struct and asserts its size.
 */
struct runtime_binary {
	__u64 room[64];
};
#define RUNTIME_MAX_BINARIES 256

#define RUNTIME_MAX_RESERVED 4

/* Data about a process for the walker: addresses as avma. */
struct runtime_process {
	__u64 image;  /* process_entry.image of the process */
	__u64 bias;   /* avma - svma of the binary */
	__u32 binary; /* index of its struct runtime_binary */
	__u32 pad;
	/*
	 * Memory that the JIT has reserved. mprotect() makes parts of this memory executable
	 * without an event from the kernel: an address in this memory that is in no known mapping
	 * belongs to the JIT.
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

/* State of a walker between calls for one sample; zero at the start of the sample. */
struct runtime_walk {
	__u64 room[16];
};

/* Results of a walker, besides stop reasons and WALK_GO (the registers are now the caller's). */
#define RUNTIME_NATIVE (-2) /* unwind the frame at pc by the rows of its binary */
#define RUNTIME_AGAIN (-3)  /* the walker has pushed frames and more follow: call it again */
