/* SPDX-License-Identifier: GPL-2.0-only */
/* Polar Signals' custom labels, version 1: a thread-local pointer to a set of texts. */
#pragma once

#include "bpf/context/label.h"

struct polar_set {
	__u64 at, n; /* without the capacity */
};

/* Words of a label: length and address of the name, length and address of the value. */
#define POLAR_LABEL_WORDS 4
_Static_assert(LABEL_MAX *POLAR_LABEL_WORDS <= WINDOW_WORDS, "LABEL_MAX");

static __always_inline bool polar_context(struct scratch *s, const struct context_process *p)
{
	const struct sample_context *c = &s->out.sample.context;
	__u64 slot = context_tls(s, p, CONTEXT_POLAR), at = slot ? context_word(slot) : 0;
	struct polar_set set;
	__u32 n;

	if (!at || bpf_probe_read_user(&set, sizeof(set), (const void *)at) < 0)
		return false;
	n = set.n < LABEL_MAX ? (__u32)set.n : LABEL_MAX;
	if (!n || !context_words(s, n * POLAR_LABEL_WORDS, set.at))
		return false;
	s->gathered.n_fixed = 0;
	/*
	 * From the last label to the first: if two labels have the same name, the first one counts.
	 */
	labels_take((n - 1) * POLAR_LABEL_WORDS + 1, n, -POLAR_LABEL_WORDS, 2);
	return c->trace_id[0] || c->trace_id[1] || c->span_id;
}
