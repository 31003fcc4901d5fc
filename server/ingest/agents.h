/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The last report of each agent (agent/run/about.h), by host; in memory, because a running agent
 * repeats its report within seconds. Servers of one store share them through it. All functions may
 * be called from any thread.
 *
 * An agent's counters start at its own start. To report losses of a time range, this module keeps
 * counts at points in time, which are farther apart the older they are. An answer therefore covers
 * a slightly wider range than requested, and contains that range.
 */
#pragma once

#include "abi/vocab.h"
#include "base/cleanup.h"
#include "base/types.h"
#include "profile/profile.h"
#include "server/store/store.h"

#define AGENTS_MAX_SOURCES 16
#define AGENTS_MAX 10000 /* above this, the agent silent for longest is dropped */

struct agents;

struct agent_counter {
	char name[48];
	enum counter_loss loss;
	u64 count;
};

/* Profiles that the agent's exporter dropped, so that they never came here. */
struct agent_drop {
	char reason[48];
	u64 profiles;
};

struct agent_source {
	char event[64];
	u64 hz;	    /* samples a second on each CPU; 0: it has no rate */
	u64 period; /* without a rate: events per sample */
};

struct agent_state {
	char host[256], id[64], version[64], kernel[128], arch[32], error[256];
	u64 started_ms, seen_ms;
	u64 newest_ms; /* by the agent's clock: its newest sample in the profile seen last */
	u64 cpu_ns, memory, processes, samples, truncated;
	u64 dropped; /* samples in dropped profiles; they are among `samples` */
	double cpu; /* CPUs, between the last two reports; between start and report for the first */
	struct agent_counter counters[2 * COUNTER_N]; /* later versions may have more */
	u32 n_counters;
	struct agent_drop drops[2 * EXPORT_DROP_N];
	u32 n_drops;
	struct agent_source sources[AGENTS_MAX_SOURCES];
	u32 n_sources;
	/* Counts in the requested range; from = to: unknown. */
	struct {
		u64 from_ms, to_ms, samples, lost, dropped;
	} range;
};

/* -ENOMEM. */
int agents_create(struct agents **ret);
void agents_destroy(struct agents *a);
DEFINE_CLEANUP(agents, struct agents *, agents_destroy)
/* Takes the report out of a profile's labels, if there is one. */
void agents_see(struct agents *a, const struct profile *p, u64 now_ms);
/*
 * What servers of one store tell each other. agents_take_reports() moves out the reports that
 * came here and are due: one of each agent in AGENTS_SHARE_MS; it begins to collect them when it
 * is first called. agents_learn() takes reports that came to other servers.
 */
#define AGENTS_SHARE_MS 30000
int agents_take_reports(struct agents *a, u64 server, struct store_reports *ret);
void agents_learn(struct agents *a, const struct store_reports *reports);
/* All agents, sorted by host; the caller frees *ret. -ENOMEM. */
int agents_list(struct agents *a, u64 from_ms, u64 to_ms, struct agent_state **ret, size_t *ret_n);
