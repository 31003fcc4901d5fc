/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * What BPF needs to know about the locks of a process's runtime, to tell who has one
 * (bpf/unwind/NAME_lock.h). In a map of its own: a process may not show its locks yet when its
 * frames can be walked, or ever.
 */
#pragma once

#include "abi/runtime_common.h"

/* Data about a process; the key is struct runtime_key. Addresses are avma. */
struct runtime_lock {
	__u64 image; /* process_entry.image of the process */
	__u64 room[8];
};

#define PYTHON_COND_BYTES 48 /* of glibc's pthread_cond_t */

struct python_lock {
	/*
	 * The GIL of the main interpreter, and offsets in it: the thread state that had it last,
	 * whether it is taken (4 bytes), and its condition variable.
	 */
	__u64 gil;
	__u32 gil_holder;
	__u32 gil_locked;
	__u32 gil_cond;
	/* Offsets in a thread state: the thread's id (0: none), and its pthread_self(). */
	__u32 thread_native;
	__u32 thread_id;
	__u32 pad;
};
_Static_assert(sizeof(struct python_lock) <= sizeof(((struct runtime_lock *)0)->room),
	       "python_lock");

struct hotspot_lock {
	struct runtime_chain thread; /* to the thread's JavaThread */
	__u64 threads;		     /* avma of the pointer to the list of threads; 0: none (8) */
	__u16 list_length;	     /* offsets in the list */
	__u16 list_threads;
	/*
	 * Offsets in JavaThread of the monitor for which it waits, of its OSThread and of its
	 * stack's highest address and size; in OSThread of the thread's id; in ObjectMonitor of the
	 * owner.
	 */
	__u16 thread_pending;
	__u16 thread_os;
	__u16 stack_base; /* 0: not known, like the next one */
	__u16 stack_size;
	__u16 os_id;
	__u16 monitor_owner;
	__u16 owner_id; /* in JavaThread: by what monitors know it; 0: by its address */
	__u16 pad[3];
};
_Static_assert(sizeof(struct hotspot_lock) <= sizeof(((struct runtime_lock *)0)->room),
	       "hotspot_lock");
