/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Labels by which the agent describes itself in its profiles:
 *
 *	host.name, host.id, host.arch, os.version	of the host; the version is the kernel's
 *	culprit.agent.version
 *	culprit.agent.started		ms since the epoch
 *	culprit.agent.rate.EVENT	of each source with a rate: samples a second on each CPU
 *	culprit.agent.period.EVENT	of each other source: events per sample, or ns below which
 *					waits share samples
 *	culprit.agent.cpu		ns of CPU time since it started
 *	culprit.agent.memory		bytes resident
 *	culprit.agent.processes		number of known processes
 *	culprit.agent.samples		recorded since it started
 *	culprit.agent.truncated		of these, with a stack not walked to its end
 *	culprit.agent.LOSS.NAME		each counter of abi/tbl/counter.tbl since it started,
 *					below the name of its loss, if it is not 0:
 *					culprit.agent.lost.nested
 *	culprit.agent.error		the last error, if there was one
 *
 * agent/export adds what it dropped since the start and the destination therefore lacks:
 *
 *	culprit.agent.dropped.REASON	profiles, by reason of abi/tbl/export_drop.tbl, if not 0
 *	culprit.agent.dropped_samples	the samples in them, if not 0
 *
 * Readers: server/ingest/agents.c, server/api/agents.c.
 */
#pragma once

#include "agent/identity/identity.h"
#include "agent/pipeline/pipeline.h"
#include "profile/profile.h"

struct about {
	u64 started_ms, memory;
	u64 samples, truncated;
	const struct sampler_source *sources;
	u32 n_sources;
	struct identities *identities;
	const struct pipeline_stats *stats;
	const char *error; /* or NULL */
};

/* Adds the labels to the profile, as its agent. -ENOMEM. */
int about_add(const struct about *a, struct profile *p);
