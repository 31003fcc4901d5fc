/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agents that send here, by host: what each said of itself last (agent/run/about.h), in memory
 * only; one that still runs says it again within seconds. Thread-safe.
 *
 * An agent counts from its start on. So that losses can be told of a range of time, counts are kept
 * at points of it, which are rarer the older they are: what is asked for is answered of a somewhat
 * wider range, and the answer says of which.
 */
#pragma once

#include "base/cleanup.h"
#include "base/types.h"
#include "profile/profile.h"

#define AGENTS_MAX 10000 /* the one that was silent longest goes first */

struct agents;

struct agent_loss {
	char name[48];
	u64 count;
};

struct agent_state {
	char host[256], id[64], version[64], kernel[128], arch[32], error[256];
	u64 started_ms, seen_ms;
	u64 hz, cpu_ns, memory, processes, samples, truncated;
	double cpu; /* CPUs, between what it said last and before; since its start at first */
	struct agent_loss lost[8];
	u32 n_lost;
	/* Of the range that was asked for; from = to: nothing is known of it. */
	struct {
		u64 from_ms, to_ms, samples, lost;
	} range;
};

int agents_create(struct agents **ret);
void agents_destroy(struct agents *a);
DEFINE_CLEANUP(agents, struct agents *, agents_destroy)
/* What the profile says of its agent, if anything. */
void agents_see(struct agents *a, const struct profile *p, u64 now_ms);
/* Sorted by host; *ret is the caller's to free. */
int agents_list(struct agents *a, u64 from_ms, u64 to_ms, struct agent_state **ret, size_t *ret_n);
