/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Spans of programs that publish no spans themselves, as OpenTelemetry's eBPF instrumentation (OBI)
 * sees them. OBI has a map of its own, by thread. User space puts OBI's map in the place of
 * obi_spans if OBI runs.
 */
#pragma once

struct obi_span {
	__u64 trace_id[2];
	__u64 span_id;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, __u64);
	__type(value, struct obi_span);
} obi_spans SEC(".maps");

static __always_inline bool obi_context(struct scratch *s)
{
	struct sample_context *c = &s->out.sample.context;
	__u64 thread = bpf_get_current_pid_tgid();
	const struct obi_span *span = bpf_map_lookup_elem(&obi_spans, &thread);

	if (!span)
		return false;
	c->trace_id[0] = span->trace_id[0];
	c->trace_id[1] = span->trace_id[1];
	c->span_id = span->span_id;
	return c->trace_id[0] || c->trace_id[1];
}
