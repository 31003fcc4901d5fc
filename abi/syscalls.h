/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * System calls as bpf/prog/syscalls.bpf.c tells them: a record for each call, signal and end of a
 * thread, or statistics of calls by number.
 */
#pragma once

#include <linux/types.h>

/* Numbers of calls; two more that stand for calls without a name here. */
#define SYSCALLS_MAX 512
#define SYSCALLS_UNKNOWN 510 /* a number of another table, such as x32's, or of no call */
#define SYSCALLS_COMPAT 511  /* a call of a 32-bit program, or by int 0x80 */

/* ---- what is copied of a call's memory ---- */

#define SYSCALLS_PIECES 3u
#define SYSCALLS_PIECE_BYTES 256u
#define SYSCALLS_ARGV 8 /* words of a command */
#define SYSCALLS_ARGV_BYTES 32

enum syscalls_piece_kind {
	SYSCALLS_NOTHING,
	SYSCALLS_STRING, /* up to its NUL */
	SYSCALLS_MEMORY, /* `unit` bytes for each element */
	SYSCALLS_ARGV_STRINGS,
	SYSCALLS_IOVEC, /* SYSCALLS_IOVEC_N iovecs, then the first bytes of the first buffer */
	SYSCALLS_MSGHDR /* struct msghdr, its first iovec, and the first bytes of that */
};

/* How many elements there are. */
enum syscalls_count {
	SYSCALLS_ONE,
	SYSCALLS_BY_NEXT,    /* the next argument */
	SYSCALLS_BY_POINTED, /* the u32 that the next argument points to, at the end of the call */
	SYSCALLS_BY_RESULT
};

/* A piece of memory: where, and what. */
struct syscalls_plan_piece {
	__u8 kind; /* enum syscalls_piece_kind */
	__u8 argument;
	__u8 at_end; /* read when the call ends, if it has not failed */
	__u8 count;  /* enum syscalls_count */
	__u16 unit;  /* bytes */
	__u16 max;   /* bytes, below SYSCALLS_PIECE_BYTES */
};

/* An array by number of call. */
struct syscalls_plan {
	__u32 wanted;
	__u32 n;
	struct syscalls_plan_piece pieces[SYSCALLS_PIECES];
};
_Static_assert(sizeof(struct syscalls_plan) == 32, "syscalls_plan");

struct syscalls_piece {
	__s32 n; /* bytes that were copied; negative: the memory cannot be read, or was not */
	__u8 bytes[SYSCALLS_PIECE_BYTES];
};

#define SYSCALLS_IOVEC_N 4u
#define SYSCALLS_DATA 32 /* bytes of a buffer */

/* ---- records ---- */

enum syscalls_record_type {
	SYSCALLS_CALL,
	SYSCALLS_SIGNAL, /* is delivered: args are its number, its code, and its sender's pid */
	SYSCALLS_EXIT	 /* a thread ends: args[0] is its exit code as wait() has it */
};

#define SYSCALLS_IN_CALL 1
#define SYSCALLS_AT_EXEC 2   /* the thread is not followed until it executes a program */
#define SYSCALLS_NO_BEGIN 4  /* its call, if it is in one, began before it was followed */
#define SYSCALLS_NO_END 8    /* the thread has ended in the call, or is still in it */
#define SYSCALLS_EXECUTED 16 /* the call has replaced the program */

/* A thread that is followed, with the call that it is in; also the record that tells it. */
struct syscalls_call {
	__u32 type; /* enum syscalls_record_type */
	__u32 flags;
	__u32 pid, tid;
	__u64 begin_ns, end_ns; /* CLOCK_MONOTONIC; begin_ns is 0 until the entry is complete */
	__s64 result;
	__s64 nr;   /* as the kernel has it */
	__u32 slot; /* in tables: the number, SYSCALLS_UNKNOWN or SYSCALLS_COMPAT */
	__u32 n;    /* pieces that the record has */
	__u64 args[6];
	char comm[16];
	struct syscalls_piece pieces[SYSCALLS_PIECES];
};
#define SYSCALLS_HEAD_BYTES offsetof(struct syscalls_call, pieces)
_Static_assert(sizeof(struct syscalls_call) == 120 + 3 * 260 + 4, "syscalls_call");

/* ---- statistics ---- */

/*
 * Buckets of durations: four for each doubling, from 64 ns on. Bucket 0 also has what is shorter,
 * the last one what is longer than 2^38 ns.
 */
#define SYSCALLS_FIRST_BIT 6
#define SYSCALLS_BUCKETS 128

struct syscalls_stats {
	__u64 calls, errors;
	__u64 total_ns, min_ns, max_ns; /* min_ns: 0: there was no call yet */
	__u64 buckets[SYSCALLS_BUCKETS];
};

struct syscalls_key {
	__u32 pid, slot;
};

static inline __attribute__((always_inline)) __u32 syscalls_bucket(__u64 ns)
{
	__u64 v = ns;
	__u32 bit = 0, b;

	for (__u32 step = 32; step; step >>= 1)
		if (v >> step) {
			v >>= step;
			bit += step;
		}
	if (bit < SYSCALLS_FIRST_BIT)
		return 0;
	b = (bit - SYSCALLS_FIRST_BIT) * 4 + (__u32)(ns >> (bit - 2) & 3);
	return b < SYSCALLS_BUCKETS ? b : SYSCALLS_BUCKETS - 1;
}

/* ---- the programs' settings ---- */

struct syscalls_config {
	__u32 own_pid; /* culprit's, which is never followed */
	__u8 all;      /* every thread is followed; else those of the map */
	__u8 summary;  /* statistics; else records */
	__u8 by_process;
	__u8 errors;	 /* only calls that failed */
	__u64 slower_ns; /* only calls that took at least this long */
};

enum syscalls_lost {
	SYSCALLS_LOST_RECORD,  /* the ring was full */
	SYSCALLS_LOST_THREAD,  /* the map of threads was full: its calls are missing */
	SYSCALLS_LOST_PROCESS, /* calls that are in the totals and in no process */
	SYSCALLS_LOST_N
};
