/* SPDX-License-Identifier: GPL-2.0-only */
/* Polar Signals' custom labels, version 1: a thread-local pointer to a set of texts. */
#pragma once

#include "bpf/context/label.h"

#define POLAR_MAX_LABELS 16

struct polar_set {
	__u64 at, n; /* its capacity does not matter */
};

struct polar_label {
	__u64 key_n, key, value_n, value;
};

static __always_inline bool polar_context(struct scratch *s, const struct context_process *p)
{
	const struct sample_context *c = &s->out.sample.context;
	__u64 slot = context_tls(s, p, CONTEXT_POLAR), at = slot ? context_word(slot) : 0, n;
	struct polar_label l;
	struct polar_set set;

	if (!at || bpf_probe_read_user(&set, sizeof(set), (const void *)at) < 0)
		return false;
	n = set.n < POLAR_MAX_LABELS ? set.n : POLAR_MAX_LABELS;
	/* From the last on: of two of one name the first counts. */
	for (__u32 i = 0; i < POLAR_MAX_LABELS && i < n; i++) {
		at = set.at + (n - 1 - i) * sizeof(l);
		if (bpf_probe_read_user(&l, sizeof(l), (const void *)at) < 0)
			return false;
		if (l.key)
			label_take(l.key, l.key_n, l.value, l.value_n);
	}
	return c->trace_id[0] || c->trace_id[1] || c->span_id;
}
