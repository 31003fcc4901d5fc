/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * The data of CPython's walker (bpf/unwind/python.h), laid over `room` in the structs of
 * abi/runtime.h.
 *
 * A call of the interpreter's loop runs a segment of the list of frames. The walker finds the
 * segment as follows:
 *
 *	ONE	3.6 to 3.10	thread state → frame; one frame for each call of the loop
 *	ENTRY	3.11		thread state → cframe, which is in the loop's own stack frame
 *				→ frame; the segment ends after the frame with is_entry
 *	SHIM	3.12		as ENTRY, but the segment ends before a frame that only marks
 *				the end
 *	LIST	3.13 on		thread state → frame; the segment ends before such a mark, which
 *				is in the loop's own stack frame
 *	TAIL	3.14 on		like LIST, in builds with tail calls
 *
 * If the process has several interpreters, a thread may have a state in each interpreter that the
 * thread runs. If a call of the loop does not belong to the current state, the walker tries all
 * other states.
 */
#pragma once

#include "abi/runtime.h"
#include "abi/runtime_common.h"

enum python_shape {
	PYTHON_NONE,
	PYTHON_ONE,
	PYTHON_ENTRY,
	PYTHON_SHIM,
	PYTHON_LIST,
	PYTHON_TAIL,
};

#define PYTHON_MAX_RANGES 8
#define PYTHON_CODE_BYTES 256 /* bytes of a code object that the walker reads */
#define PYTHON_FRAME_BYTES 128

struct python_binary {
	__u32 shape; /* enum python_shape */
	__u32 n_loops;
	struct runtime_range loops[PYTHON_MAX_RANGES]; /* the interpreter's loop */
	/*
	 * ONE only: parts of the loop before the loop links its frame into the list and after the
	 * loop unlinks the frame. For the other shapes addresses decide.
	 */
	struct runtime_range unlinked[PYTHON_MAX_RANGES];
	__u32 n_unlinked;
	__u32 stack_bytes; /* most bytes from sp to the end of the loop's stack frame */
	/* Offsets in bytes. */
	__u32 thread_frame;    /* thread state → frame, or cframe */
	__u32 cframe_frame;    /* ENTRY and SHIM */
	__u32 cframe_previous; /* ENTRY and SHIM */
	/* Offsets in a frame; all are below frame_read, which is < PYTHON_FRAME_BYTES. */
	__u32 frame_read;
	__u32 frame_code;
	__u32 frame_previous;
	__u32 frame_where; /* f_lasti, prev_instr or instr_ptr */
	__u32 frame_owner; /* a byte: is_entry (ENTRY), owner (SHIM, LIST, TAIL) */
	__u32 frame_tlbc;  /* free-threaded builds from 3.14 on: index of the thread's copy; or 0 */
	__u32 first_mark;  /* SHIM, LIST, TAIL: least owner of a frame that only marks an end */
	__u32 code_bytes;  /* in a code object: where the bytecode begins; not for ONE */
	/* Offsets in a code object; all are below code_read, which is < PYTHON_CODE_BYTES. */
	__u32 code_read;
	__u32 code_tlbc;  /* the array of copies, with frame_tlbc */
	__u32 code_id[4]; /* aligned words from which the walker makes the cookie */
	/*
	 * How to reach the thread states of all interpreters: the svma of the pointer to the first
	 * interpreter (0: unknown), and the offsets of the next pointers.
	 */
	__u32 interpreter_next;
	__u64 interpreters;
	__u32 interpreter_threads;
	__u32 thread_next;
	__u32 thread_id;    /* LIST: the system's thread id */
	__u32 frame_locals; /* ONE: of the locals, to which the loop's stack frame points */
};
_Static_assert(sizeof(struct python_binary) <= sizeof(((struct runtime_binary *)0)->room),
	       "python_binary");

struct python_process {
	struct runtime_chain current; /* the running thread state; NULL: no GIL held */
	struct runtime_chain bound;   /* the thread state that belongs to the thread */
	__u64 pad[5];
};
_Static_assert(sizeof(struct python_process) == sizeof(((struct runtime_process *)0)->room),
	       "python_process");

/*
 * The second word of a frame is cookie << 32 | signed bytes from the beginning of the bytecode
 * (before 3.11: f_lasti, unchanged).
 */
static inline __attribute__((always_inline)) __u32 python_cookie(__u64 a, __u64 b, __u64 c, __u64 d)
{
	__u64 h = a * 0x9fb21c651e98df25ULL;

	h = ((h ^ (h >> 29)) + b) * 0x9fb21c651e98df25ULL;
	h = ((h ^ (h >> 29)) + c) * 0x9fb21c651e98df25ULL;
	h = ((h ^ (h >> 29)) + d) * 0x9fb21c651e98df25ULL;
	return (__u32)(h >> 32);
}
