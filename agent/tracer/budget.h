/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CPU budget of a script. Each second, the time of its programs, which the kernel accounts, and
 * the cost of the events themselves (agent/tracer/cost.h) are taken from a credit, which grows by
 * the budget up to that of CREDIT_S seconds, so that bursts are allowed. When the credit is used
 * up, the program that costs most is detached with all its probes, until the others fit.
 *
 * A probe is detached and not thinned out: a script that saw only some events would print counts
 * and latencies that are wrong, and would not say so.
 */
#pragma once

#include "agent/tracer/attach.h"
#include "agent/tracer/cost.h"
#include "base/vec.h"

#define TRACER_CREDIT_S 5

struct tracer_spent {
	u64 ns, runs; /* as the kernel counts, at the last look */
};

struct tracer_budget {
	double percent; /* of one CPU; 0: no limit */
	double credit_ns;
	u64 looked_ns; /* CLOCK_MONOTONIC */
	int stats;     /* owned: the kernel accounts while it is open; -1: it cannot */
	vec(struct tracer_spent) spent; /* by program of struct tracer_loaded */
	struct tracer_cost costs[TRACER_KIND_N];
};

/* A program that was detached. */
struct tracer_overrun {
	u32 probe;	/* one of its probes */
	u32 n_probes;	/* how many it has */
	double percent; /* of one CPU that it took in the last second */
	double budget;	/* likewise, of all */
};

/* Before the probes are attached. `cache_dir`: of measured costs, or NULL. */
void tracer_budget_init(struct tracer_budget *b, double percent, const char *cache_dir);
void tracer_budget_deinit(struct tracer_budget *b);
/*
 * Looks once a second. True: a program was too expensive and has been detached; call again, there
 * may be others.
 */
bool tracer_budget_exceeded(struct tracer_budget *b, const struct tracer_loaded *l,
			    struct tracer_attached *a, struct tracer_overrun *ret);
