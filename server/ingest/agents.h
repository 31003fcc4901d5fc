/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agents that send here, by host: what each said of itself last (agent/run/about.h), in memory
 * only; one that still runs says it again within seconds. Thread-safe.
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
};

int agents_create(struct agents **ret);
void agents_destroy(struct agents *a);
DEFINE_CLEANUP(agents, struct agents *, agents_destroy)
/* What the profile says of its agent, if anything. */
void agents_see(struct agents *a, const struct profile *p, u64 now_ms);
/* Sorted by host; *ret is the caller's to free. */
int agents_list(struct agents *a, struct agent_state **ret, size_t *ret_n);
