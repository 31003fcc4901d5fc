/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * The data of Ruby's walker (bpf/unwind/ruby.h), laid over `room` in the structs of abi/runtime.h.
 *
 * A Ruby thread or fiber has an execution context, whose control frames form an array that grows
 * downwards. Each call of rb_vm_exec() runs a segment of the array, which ends with a frame that
 * has the flag FINISH. The environment of a frame is on Ruby's stack, or, after it was captured, in
 * the heap:
 *
 *	control frame {pc, sp, iseq, self, ep, …}	iseq 0: a method in C
 *	ep[-2] method entry or cref   ep[-1] outer environment | 3   ep[0] type and flags
 *
 * The offsets below are those of Ruby 2.7 to 3.4 (vm_core.h, method.h, internal/imemo.h).
 */
#pragma once

#include "abi/runtime.h"
#include "abi/runtime_common.h"

/* rb_execution_context_t */
#define RUBY_CONTEXT_STACK 0
#define RUBY_CONTEXT_STACK_WORDS 8
#define RUBY_CONTEXT_FRAME 16

/* rb_control_frame_t, in words */
#define RUBY_FRAME_PC 0
#define RUBY_FRAME_ISEQ 2
#define RUBY_FRAME_EP 4
#define RUBY_FRAME_WORDS 8 /* of the largest frame */

/* Flags of a frame, in ep[0] */
#define RUBY_FLAG_LOCAL 0x2ULL
#define RUBY_FLAG_FINISH 0x20ULL
#define RUBY_TYPE_MASK 0x7fff0001ULL
#define RUBY_TYPE_TOP 0x44440001ULL
#define RUBY_TYPE_CFUNC 0x55550001ULL

/* Internal objects: the first word has the kind T_IMEMO, and above it the kind of imemo. */
#define RUBY_KIND_MASK 0x1fULL
#define RUBY_KIND_IMEMO 0x1aULL
#define RUBY_IMEMO_SHIFT 12
#define RUBY_IMEMO_MASK 15ULL
#define RUBY_IMEMO_SVAR 2
#define RUBY_IMEMO_METHOD 6
#define RUBY_IMEMO_ISEQ 7
#define RUBY_SVAR_METHOD 8  /* of its method entry or cref */
#define RUBY_METHOD_BODY 16 /* rb_callable_method_entry_t → rb_method_definition_t */

#define RUBY_ISEQ_BODY 16
/* struct rb_iseq_constant_body, in words */
#define RUBY_BODY_KIND 0 /* lower half: enum rb_iseq_type */
#define RUBY_BODY_SIZE 0 /* upper half: number of words of the code */
#define RUBY_BODY_CODE 1
#define RUBY_BODY_OPTIONAL 3 /* upper half: number of optional parameters */
#define RUBY_BODY_OPTIONAL_TABLE 6
#define RUBY_BODY_PATH 8
#define RUBY_BODY_LABEL 10
#define RUBY_BODY_FIRST_LINE 11 /* lower half */
#define RUBY_BODY_WORDS 12

#define RUBY_CODE_RESCUE 4
#define RUBY_CODE_ENSURE 5

#define RUBY_MAX_RANGES 8

struct ruby_binary {
	struct runtime_range execs[RUBY_MAX_RANGES]; /* rb_vm_exec() */
	/* vm_exec_core(), which rb_vm_exec() calls; none if it is inlined */
	struct runtime_range cores[RUBY_MAX_RANGES];
	/* Functions that push the frame of a method in C and call the method. */
	struct runtime_range callers[RUBY_MAX_RANGES];
	__u32 n_execs, n_cores, n_callers;
	__u32 frame_bytes;    /* of a control frame */
	__u32 frame_jit;      /* word of a control frame: jit_return; 0: there is none */
	__u32 thread_context; /* thread → execution context; 0: the process's chain leads to it */
	__u32 owners;	      /* names of methods contain the class, so method entries are sent */
};
_Static_assert(sizeof(struct ruby_binary) <= sizeof(((struct runtime_binary *)0)->room),
	       "ruby_binary");

struct ruby_process {
	struct runtime_chain thread; /* to the thread's execution context, or to its rb_thread_t */
	__u64 pad[9];
};
_Static_assert(sizeof(struct ruby_process) == sizeof(((struct runtime_process *)0)->room),
	       "ruby_process");

/*
 * A frame's two words. Objects are aligned to 8 bytes and below 2^48:
 *
 *	55 in C  54…45 cookie  44…0 the iseq / 8; for a method in C: the caller's
 *	63…45 position in the code, in words, or RUBY_NO_POSITION   44…0 method entry / 8
 */
#define RUBY_ADDRESS_BITS 45
#define RUBY_ADDRESS_MASK ((1ULL << RUBY_ADDRESS_BITS) - 1)
#define RUBY_COOKIE_MASK 1023ULL
#define RUBY_IN_C (1ULL << 55)
#define RUBY_NO_POSITION ((1ULL << 19) - 1)

/* From an iseq's code, path, label, and size; `method` is the definition of a method in C. */
static inline __attribute__((always_inline)) __u64 ruby_cookie(const __u64 *body, __u64 method)
{
	__u64 h = body[RUBY_BODY_CODE] * 0x9fb21c651e98df25ULL;

	h = ((h ^ (h >> 29)) + body[RUBY_BODY_PATH]) * 0x9fb21c651e98df25ULL;
	h = ((h ^ (h >> 29)) + body[RUBY_BODY_LABEL]) * 0x9fb21c651e98df25ULL;
	h = ((h ^ (h >> 29)) + body[RUBY_BODY_SIZE]) * 0x9fb21c651e98df25ULL;
	h = ((h ^ (h >> 29)) + method) * 0x9fb21c651e98df25ULL;
	return h >> 54;
}
