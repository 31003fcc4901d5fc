/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an event costs the thread that hits it, by kind of probe, on this machine: measured with
 * scripts whose action is empty.
 */
#pragma once

#include "base/types.h"

enum tracer_kind {
	TRACER_TRACEPOINT,
	TRACER_RAWTRACEPOINT,
	TRACER_KPROBE,
	TRACER_KRETPROBE,
	TRACER_FENTRY,
	TRACER_FEXIT,
	TRACER_UPROBE, /* also USDT probes */
	TRACER_URETPROBE,
	TRACER_SOFTWARE, /* also all other events of perf */
	TRACER_KIND_N	 /* run by user space */
};

struct tracer_cost {
	u64 ns; /* of one event; 0: refused */
	/*
	 * Likewise, if the kernel emulates the first instruction of the function, such as a push,
	 * instead of stepping it. 0: not known, or the kind has no such difference.
	 */
	u64 least_ns;
	char refused[200]; /* why this kernel has no such probe; else "" */
};

const char *tracer_kind_name(enum tracer_kind kind);
/* `provider` is that of a resolved point, such as "usdt". */
enum tracer_kind tracer_kind_of(const char *provider);
/* Whether the kernel emulates the instruction at a uprobe, whose first bytes are these. */
bool tracer_is_emulated(const u8 code[4]);
/* What the kinds cost about, if they have not been measured. */
void tracer_costs_guess(struct tracer_cost ret[TRACER_KIND_N]);
/*
 * Reads what was measured with the running kernel; cache_dir may be NULL. -ENOENT: not measured.
 */
int tracer_costs_read(const char *cache_dir, struct tracer_cost ret[TRACER_KIND_N]);
/* Measures, which takes up to a second, and keeps the result below cache_dir, unless it is NULL. */
void tracer_costs_measure(const char *cache_dir, struct tracer_cost ret[TRACER_KIND_N]);
