/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * An action of a tracing program (lib/trace) that is under way, and the stacks and span of its
 * event. The action has two halves: the program of the probe, and what runs once stacks and span
 * are known.
 *
 *	first half ─→ bpf/prog/trace.h: walk_native ─→ walk_python ⇄ … ─→ finish ─→ second half
 *
 * All these are joined by tail calls through one prog array per program type: slot 0 begins the
 * walk, slot `next` is the second half.
 *
 * An array has TRACE_LEVELS of these for each CPU; index: CPU * TRACE_LEVELS + level.
 *
 *	first half   takes a level: for each level of the CPU, adds 1 to `users` (atomically;
 *		     old kernels cannot fetch), and owns the level if `users` is 1 then, else adds
 *		     -1. If a level has its `owner` already, the event is lost as nested. Sets
 *		     `owner`, `next` and `wants`, and jumps to slot 0. If that fails: releases the
 *		     level
 *	bpf/prog     walks, sets what is wanted, and jumps to slot `next`
 *	second half  finds the level of its CPU that has its `owner`, and releases it at the end:
 *		     owner 0, then adds -1 to `users`
 *
 * A task may be preempted in an action, and an interrupt's action may come on top of a task's: one
 * value per CPU would give an event the stacks of another.
 */
#pragma once

#include <linux/types.h>

#define TRACE_LEVELS 4 /* actions that can be under way on a CPU at once */

#define TRACE_WANTS_KERNEL 1
#define TRACE_WANTS_USER 2
#define TRACE_AFTER_CALL 4 /* the probe is at a return: its pc is a return address */
#define TRACE_WANTS_SPAN 8

struct trace_stacks {
	__u64 users;
	__u64 owner; /* bpf_get_current_task() + enum bpf_prog_type of the program; 0: none */
	/*
	 * Ids of stacks; 0: none. `user` is as in record_sample, or a random number if the host
	 * finishes the walk: then the record_deferred has it in sample.value.
	 */
	__u64 kernel, user;
	/* What the thread works for; bytes in W3C's order. All zero: nothing that is known. */
	__u64 trace_id[2], span_id;
	__u32 next; /* slot of the second half */
	__u32 wants;
};
_Static_assert(sizeof(struct trace_stacks) == 64, "trace_stacks");

/* Slots of the prog array: the walk, and second halves. */
#define TRACE_SLOTS 16384
