/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions that servers want measured (struct control_measure in lib/control): a thread finds the
 * processes of the service that map the binary, measures the function there (agent/measure), and
 * keeps counts, histogram and slow calls until the server has them. Slow calls with their stacks
 * become profiles of the type function:latency besides. Without a measure the thread sleeps, and
 * nothing is loaded.
 *
 * - A measurement ends after its time by this machine's clock, whether the server answers or not,
 *   when the server no longer lists it, and with the agent.
 * - A binary that one process runs is measured in this process only. What several run is measured
 *   in all processes that run it, also of other services: `others` tells so.
 * - Without a threshold every call is told at first; if calls then come more often than can be
 *   told, the slowest hundredth of those seen so far becomes the threshold.
 *
 * `server` tells destinations apart, as in agent/capture. Functions may be called from any thread,
 * and return soon.
 */
#pragma once

#include "agent/identity/identity.h"
#include "base/cleanup.h"
#include "base/diag.h"
#include "base/types.h"
#include "control/control.h"
#include "profile/profile.h"

#define MEASURES_MAX_SERVERS 18
#define MEASURES_MAX_ACTIVE 8	 /* at a time; others are refused */
#define MEASURES_MAX_BINARIES 4	 /* of one measurement */
#define MEASURES_MAX_PENDING 256 /* slow calls that the server does not have yet; then dropped */

struct measures;

struct measures_options {
	struct identities *identities; /* borrowed until measures_destroy() */
	/* Takes ownership of a profile; called by the thread. NULL: none is made. */
	void (*take)(void *arg, struct profile *p);
	void *arg;
};

/* -ENOMEM, or an error of starting the thread. */
int measures_create(const struct measures_options *o, struct diag *reterr_diag,
		    struct measures **ret);
void measures_destroy(struct measures *m);
DEFINE_CLEANUP(measures, struct measures *, measures_destroy)
#define _cleanup_measures_ _cleanup_(measures)

/* These are all measures of the server from now on: others end. -ENOMEM. */
int measures_set(struct measures *m, u32 server, const struct control_measure *all, size_t n);
/*
 * Appends what was measured for the server to ret->measured, and to ret->calls slow calls, oldest
 * first, until measures_answered() says that the server has them. -ENOMEM.
 */
int measures_report(struct measures *m, u32 server, struct control_request *ret);
/* The server has what the last measures_report() told. */
void measures_answered(struct measures *m, u32 server);
