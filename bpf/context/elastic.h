/* SPDX-License-Identifier: GPL-2.0-only */
/* Elastic's universal profiling integration, version 1: a thread-local pointer to a record. */
#pragma once

static __always_inline bool elastic_context(struct scratch *s, const struct context_process *p)
{
	__u64 slot = context_tls(s, p, CONTEXT_ELASTIC), at = slot ? context_word(slot) : 0;
	struct sample_context *c = &s->out.sample.context;
	struct context_elastic_record r;

	if (!at || bpf_probe_read_user(&r, sizeof(r), (const void *)at) < 0 || !r.valid ||
	    !r.present)
		return false;
	__builtin_memcpy(c->trace_id, r.trace_id, sizeof(c->trace_id));
	__builtin_memcpy(&c->span_id, r.span_id, sizeof(c->span_id));
	__builtin_memcpy(&c->root_id, r.root_id, sizeof(c->root_id));
	c->flags = r.flags;
	return c->trace_id[0] || c->trace_id[1];
}
