/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What Java programs allocate, as their JVM tells it: culprit asks each JVM to start its Flight
 * Recorder, fetches what was recorded at the end of each period, and has it stopped at the end.
 * Only where --attach-java asks for it, because it makes another program do something.
 *
 *	pipeline ── flights_see() ─→ thread ─→ JVM: jcmd JFR.start, JFR.dump, JFR.stop
 *	                               ←── dump, a file in its /tmp, unlinked at once
 *	                               ─→ parser (agent/parser) ─→ profile ─→ take()
 *
 * Invariants:
 * 1. A process gets SIGQUIT, which starts the JVM's listener, only if it is the program that was
 *    seen, its runtime is HotSpot, it handles the signal, and DisableAttachMechanism is off.
 * 2. The recording is named ATTACH_RECORDING, and no other is stopped.
 * 3. What was started is stopped, unless the agent is killed; then the next one stops it.
 * 4. A process, which may be hostile, costs bounded time and memory, and is asked no more after the
 *    first wrong answer.
 */
#pragma once

#include "agent/identity/identity.h"
#include "agent/parser/parser.h"
#include "agent/procman/procman.h"
#include "base/cleanup.h"
#include "base/diag.h"
#include "base/stat.h"
#include "base/types.h"
#include "profile/profile.h"

#define ATTACH_RECORDING "culprit"
/* The option of a JVM whose avma flights_see() gets. */
#define ATTACH_FLAG "DisableAttachMechanism"

struct flights;

struct flights_options {
	struct parsers *parsers;       /* borrowed, like the next */
	struct identities *identities; /* NULL: samples have no resources */
	u32 period_ms;
	/* Takes ownership of a profile; called by the thread. NULL: flights_profile() has all. */
	void (*take)(void *arg, struct profile *p);
	void *arg;
};

struct flights_stats {
	u64 running; /* JVMs that are recorded now */
	u64 refused; /* JVMs that are not recorded, since the start, as the next */
	u64 dumps, failed, bytes;
	u64 lost_ends; /* JVMs that ended and did not write what they had last */
	u64 waited_ns; /* for answers of JVMs */
	u64 parser_ns;
};
extern const struct stat_field flights_stat_fields[];

/* Starts the thread. -ENOMEM, or an error of starting it. */
int flights_create(const struct flights_options *o, struct flights **ret);
/* Also finishes. NULL is fine. */
void flights_destroy(struct flights *f);
DEFINE_CLEANUP(flights, struct flights *, flights_destroy)
#define _cleanup_flights_ _cleanup_(flights)
/* pipeline_options.jvm_seen(), with the flights as arg: records the JVM from now on. */
void flights_see(void *flights, const struct procman_process *p, u64 flag_avma);
/* Stops all recordings, in the thread; those of JVMs that are seen again start again. */
void flights_reselect(struct flights *f);
/* The period from now on. */
void flights_set_period(struct flights *f, u32 period_ms);
/* Fetches what is left, and stops all recordings. Nothing is recorded from here on. */
void flights_finish(struct flights *f);
/* Without options.take: what was recorded since the last call; owned by the caller. -ENOMEM. */
int flights_profile(struct flights *f, struct profile **ret);
/* Any thread. */
void flights_get_stats(struct flights *f, struct flights_stats *ret);

/*
 * Passes to `line` whether the process would be recorded; nothing if it is no JVM. Asks the process
 * nothing.
 */
void attach_describe(struct runtimes *r, const struct procman_process *p,
		     void (*line)(void *arg, const char *text), void *arg);
