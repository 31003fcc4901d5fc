/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The always-on agent: records, and makes a profile of each period. Two threads: the caller's reads
 * the ring, another symbolizes. If symbolization overruns, the current period is extended: nothing
 * queues up, and nothing is lost.
 */
#pragma once

#include "agent/identity/identity.h"
#include "agent/pipeline/pipeline.h"
#include "agent/symbolize/symbolize.h"
#include "base/budget.h"
#include "base/diag.h"
#include "base/str.h"
#include "base/types.h"
#include "profile/profile.h"

struct run;

struct run_options {
	/* Borrowed, not started yet. Both must be connected to `identities`: see below. */
	struct pipeline *pipeline;
	struct symbolizer *symbolizer;
	struct identities *identities;
	u32 period_ms;
	/* Samples only this percentage of intervals of interval_s, chosen at random. 0: all. */
	u32 probabilistic_percent, interval_s;
	double cpu_share; /* the budget of pace.h; 0: none */
	/* The memory of the whole process. What can be rebuilt is freed before its limit is
	 * reached. */
	struct budget *budget;
	/* Takes ownership of a profile; called by the symbolizing thread. */
	void (*take)(void *arg, struct profile *p);
	/* Called by the caller's thread between two reads; may call run_change(). May be NULL. */
	void (*each)(void *arg);
	/* Ends run_loop(), too, when it is true; asked as `ended`. May be NULL. */
	bool (*is_over)(void *arg);
	void *arg;
};

/* Options that can change while it runs. */
struct run_change {
	u32 period_ms;
	u32 probabilistic_percent, interval_s;
	double cpu_share;
	u64 memory_limit_bytes;
	/* NULL: unchanged. Else a pipeline that is already recording, and its symbolizer: its
	 * samples so far are dropped, because the old pipeline, which is stopped now, has them
	 * too. */
	struct pipeline *pipeline;
	struct symbolizer *symbolizer;
};

/* Sets the options through which samples get resources. */
void run_connect_pipeline(struct identities *i, struct pipeline_options *p);
void run_connect_symbolizer(struct identities *i, struct symbolizer_options *s);
/*
 * Starts the symbolizing thread. The parts in the options are borrowed until run_destroy().
 * -ENOMEM, or an error of starting the thread.
 */
int run_create(const struct run_options *o, struct run **ret);
/* Runs until ended() returns true, which is called about every 100 ms; then exports the rest. */
int run_loop(struct run *r, bool (*ended)(void), struct diag *reterr_diag);
/* Changes options while run_loop() runs. In the thread of run_loop(). */
void run_change(struct run *r, const struct run_change *c);
/* True once the pipeline before the last run_change() and its symbolizer are no longer used. */
bool run_has_changed(struct run *r);
void run_destroy(struct run *r);
DEFINE_CLEANUP(run, struct run *, run_destroy)
#define _cleanup_run_ _cleanup_(run)
/* Writes the agent's counters for Prometheus. Any thread. */
void run_metrics(struct run *r, struct str *out);
