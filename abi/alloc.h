/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * What the programs that probe allocators (bpf/prog/alloc.bpf.c) and user space share.
 *
 * A call of an allocator is drawn or not when it begins. The calls are divided into strata by the
 * place of the call: return address, stack pointer and process. Each stratum has a threshold of
 * bytes: a call for `n` bytes is drawn with the probability min(1, n / threshold), and stands for
 * 1 / that. The threshold depends on earlier calls only.
 */
#pragma once

#include <linux/types.h>

/* Where the arguments and the result of a function are. */
enum alloc_function {
	ALLOC_MALLOC,	/* (bytes) → address */
	ALLOC_CALLOC,	/* (n, bytes) → address */
	ALLOC_REALLOC,	/* (address, bytes) → address */
	ALLOC_MEMALIGN, /* (alignment, bytes) → address */
	ALLOC_POSIX,	/* (where to store the address, alignment, bytes) → 0 */
	ALLOC_FREE,	/* (address) */
	ALLOC_FUNCTIONS
};

/* A bit of a probe's cookie, beside the function: the kernel steps the first instruction. */
#define ALLOC_COOKIE_STEPPED 0x100

/* Functions of an allocator that call others of its functions. */
#define ALLOC_MAX_INNER 24
struct alloc_range {
	__u64 start, end; /* avma */
};

/* A process that is probed; the key is the thread group id. */
struct alloc_process {
	__u32 open;   /* calls count */
	__u32 window; /* number of the window; 0: it is probed all the time */
	__u32 walks;  /* of a stratum in an epoch, above which it is thinned; 0: any */
	__u32 n_inner;
	/* A call from these is a part of the call that is counted already. */
	struct alloc_range inner[ALLOC_MAX_INNER];
};
_Static_assert(sizeof(struct alloc_process) == 16 + 16 * ALLOC_MAX_INNER, "alloc_process");

#define ALLOC_EPOCH_SHIFT 30 /* log2 of nanoseconds */

struct alloc_object {
	__u64 id; /* never 0 */
};

struct alloc_object_key {
	__u64 address;
	__u32 pid;
	__u32 pad;
};

/* A thread of a process that is probed; the key is what bpf_get_current_pid_tgid() returns. */
struct alloc_thread {
	/* Since the entry was made, also while calls do not count: probes that were hit at the
	 * begin and at the end of calls, and the time of walks. */
	__u64 calls[2]; /* whose first instruction is emulated, and stepped */
	__u64 returns, walk_ns;
	/* In a window, at the first call and at the last: time on a CPU, and time that the thread
	 * waited for one. */
	__u64 cpu_ns[2], delay_ns[2];
	/* The call under way that was drawn, or that may free an object that was. sp 0: none. */
	__u64 sp;
	__u64 bytes;
	__u64 stands_for; /* calls; 0: it was not drawn */
	__u64 where;	  /* ALLOC_POSIX: as passed */
	__u64 old;	  /* ALLOC_REALLOC: as passed */
	__u64 old_id;	  /* of the object there; 0: it was not sampled */
	__u64 id;	  /* of the object that it returned */
	__u64 result;
	__u32 window;
	__u32 function;
};
_Static_assert(sizeof(struct alloc_thread) == 136, "alloc_thread");

static inline int alloc_keeps(__u64 id, __u64 keep)
{
	return !(id >> 1 & ((1ULL << keep) - 1));
}

/* The most objects that are followed at a time. */
#define ALLOC_MAX_OBJECTS 32768
#define ALLOC_MAX_KEEP 24
#define ALLOC_MAX_PROCESSES 1024
#define ALLOC_MAX_THREADS 16384
#define ALLOC_MAX_STRATA 16384
