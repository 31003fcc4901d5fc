/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The always-on agent: records, and every period makes a profile of what was recorded and gives it
 * away. Two threads: the caller's reads the ring, another names. A period that is not named yet
 * when the next ends makes that one longer; nothing queues up, and nothing is lost.
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
	/* All borrowed; not started yet. The two know the identities: see below. */
	struct pipeline *pipeline;
	struct symbolizer *symbolizer;
	struct identities *identities;
	u32 period_ms;
	/*
	 * Of intervals of this length only so many of 100 are sampled, chosen by chance. 0 = all.
	 */
	u32 probabilistic_percent, interval_s;
	/* Of all that the process has. What can be made again goes before its limit is reached. */
	struct budget *budget;
	/* Takes a profile; in the other thread. */
	void (*take)(void *arg, struct profile *p);
	/* In the caller's thread, between two reads; may call run_change(). NULL is fine. */
	void (*each)(void *arg);
	void *arg;
};

/* What can be another while it runs. */
struct run_change {
	u32 period_ms;
	u32 probabilistic_percent, interval_s;
	u64 memory_limit_bytes;
	/*
	 * NULL: as before. Else one that counts already, and its symbolizer: what it has counted so
	 * far is dropped, as the one before had it too, which is stopped now.
	 */
	struct pipeline *pipeline;
	struct symbolizer *symbolizer;
};

/* What the options of the two must say, for samples to have resources. */
void run_connect_pipeline(struct identities *i, struct pipeline_options *p);
void run_connect_symbolizer(struct identities *i, struct symbolizer_options *s);
int run_create(const struct run_options *o, struct run **ret);
/* Until ended() says so, which is asked every 100 ms or so; what was recorded is given away. */
int run_loop(struct run *r, bool (*ended)(void), struct diag *reterr_diag);
void run_change(struct run *r, const struct run_change *c);
/* The pipeline before the last run_change() is not used any more, nor its symbolizer. */
bool run_has_changed(struct run *r);
void run_destroy(struct run *r);
DEFINE_CLEANUP(run, struct run *, run_destroy)
#define _cleanup_run_ _cleanup_(run)
/* What it did so far, as lines for Prometheus. Any thread. */
void run_metrics(struct run *r, struct str *out);
