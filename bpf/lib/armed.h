/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Processes whose requests are recorded, so that they can be kept after they have ended
 * (doc/design/0019-kept-requests.md). User space adds and removes entries; whether an entry is of
 * the program that the process runs now follows from the map `processes`, as for any sample.
 */
#pragma once

#include "bpf/lib/scratch.h"

#define ARMED_MAX 1024

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, ARMED_MAX);
	__type(key, __u32);
	__type(value, struct armed_process);
} armed SEC(".maps");

static __always_inline const struct armed_process *armed_get(__u32 tgid)
{
	return tgid ? bpf_map_lookup_elem(&armed, &tgid) : NULL;
}

/* Whether the thread of the sample works for a span, which context_read() has found. */
static __always_inline bool has_span(const struct scratch *s)
{
	const struct sample_context *c = &s->out.sample.context;

	return c->trace_id[0] || c->trace_id[1];
}
