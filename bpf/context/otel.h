/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * OpenTelemetry's thread context (OTEP 4947): a thread-local pointer to a record. The thread is
 * stopped while it is read, so the writer's order of stores is all the care that is needed.
 */
#pragma once

static __always_inline bool otel_take(struct scratch *s, const void *record)
{
	struct sample_context *c = &s->out.sample.context;
	struct context_otel_record r;

	if (!record || bpf_probe_read_user(&r, sizeof(r), record) < 0 || r.valid != 1)
		return false;
	attributes_numbered(s, record + sizeof(r), r.n_attributes);
	__builtin_memcpy(c->trace_id, r.trace_id, sizeof(c->trace_id));
	__builtin_memcpy(&c->span_id, r.span_id, sizeof(c->span_id));
	c->flags = r.flags;
	return c->trace_id[0] || c->trace_id[1];
}

static __always_inline bool otel_context(struct scratch *s, const struct context_process *p)
{
	__u64 slot = context_tls(s, p, CONTEXT_OTEL);

	return slot && otel_take(s, (const void *)context_word(slot));
}
