/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps what the agent takes of the machine within a budget, by the rate of its clock.
 *
 * The cost is the CPU time of the agent's threads and of its parser, and the run time of its BPF
 * programs, as a share of all CPUs, smoothed over half a minute; the first half a minute, in which
 * programs are loaded and files are read, does not count. The kernel measures BPF programs for a
 * second now and then only, because that makes each run of each program of the machine dearer. A
 * sample stands for the time since the one before it, so that values stay right at any rate, and
 * each profile tells its rate.
 */
#pragma once

#include "base/types.h"

struct pace {
	double share;	/* the budget: of all CPUs, 0..1; 0: none */
	u64 asked_hz;	/* the rate without a budget; 0: there is no clock whose rate can change */
	u64 hz;		/* the rate now */
	double spent;	/* the smoothed cost */
	u64 changes;	/* of the rate */
	u64 changed_ns; /* when it was changed last */
	u64 begin_ns;	/* when costs begin to count */
	u64 at_ns;	/* the last look; 0: there was none */
	u64 cpu_ns;	/* the CPU time then */
	int bpf_fd;	/* open while the kernel measures BPF programs, else -1 */
	u64 bpf_at_ns;	/* when measuring began */
	u64 bpf_ns;	/* the run time then */
	u64 next_ns;	/* when to measure again */
	double bpf;	/* the cost of BPF programs at bpf_hz */
	u64 bpf_hz;	/* 0: not measured yet */
};

/* There is no budget yet: set `share`. */
void pace_init(struct pace *p);
void pace_deinit(struct pace *p);
/* Another pipeline runs, or its rate was set: begins anew from this rate. */
void pace_begin(struct pace *p, u64 asked_hz);
/* Whether to call pace_look(): once a second. */
bool pace_is_due(const struct pace *p, u64 now_ns);
/*
 * cpu_ns: CPU time of the agent's processes so far; bpf_ns: run time of its programs so far, as the
 * kernel tells it. Sets p->hz to the rate that is right now.
 */
void pace_look(struct pace *p, u64 now_ns, u64 cpu_ns, u64 bpf_ns, u32 cpus);
/* The rate after one at which the cost is `spent`; the same unless the cost is far off. */
u64 pace_choose(double share, double spent, u64 asked_hz, u64 hz);
