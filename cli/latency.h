/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the scripts of culprit latency (cli/latency/) have measured, and how it is shown. A script
 * fills these maps, which arrive as lines of JSON; all times are nanoseconds:
 *
 *	@wait[GROUP] = hist(ns, 3), @time[GROUP] = stats(ns), @most[GROUP] = max(ns)
 *	@by[PID, COMM] = stats(ns), @longest[PID, COMM] = max(ns)
 *	@began[…] = when one began that has not ended
 */
#pragma once

#include "base/str.h"
#include "base/types.h"
#include "base/vec.h"

/* Each power of two has 1 << LATENCY_BITS buckets. */
#define LATENCY_BITS 3

struct latency_bucket {
	u64 low_ns, high_ns; /* both are in it */
	u64 count;
};

struct latency_group {
	char *name; /* owned; a process: its comm */
	u32 pid;    /* of a process */
	u64 count, total_ns, most_ns;
	vec(struct latency_bucket) buckets; /* of groups, from short to long */
};

typedef vec(struct latency_group) latency_groups;

struct latency {
	latency_groups groups, processes; /* by total time, largest first */
	u64 open, oldest_ns;		  /* have not ended; how long ago the first of them began */
	u64 lost;			  /* events that could not be counted */
	bool has_devices;		  /* groups begin with MAJOR,MINOR */
};

void latency_deinit(struct latency *l);
/*
 * Reads what a script printed. end_ns: when the measurement ended, by nsecs; what began later is
 * not open. -EINVAL: this is not what such a script prints; -ENOMEM.
 */
int latency_read(struct latency *l, const char *lines, u64 end_ns);
/* The time that `per_mille` of the group's events did not exceed, to 1/16 of it. 0: no events. */
u64 latency_quantile(const struct latency_group *g, u32 per_mille);
/* Appends histograms, percentiles and the `top` processes. */
void latency_text(const struct latency *l, u32 top, struct str *out);
void latency_json(const struct latency *l, const char *kind, u64 seconds, struct str *out);
