/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The time that walks of waits may take on a CPU. Waits below a threshold are not all walked: above
 * the budget of a window the threshold doubles, which halves the rate of waits that are longer; at
 * most once in RAISE_NS, because the waits that a burst ends are walked whatever the threshold is
 * now. Each window within half of the budget halves it. The threshold depends on earlier waits
 * only, never on the one that it decides about.
 */
#pragma once

#include "bpf/lib/scratch.h"

#define WINDOW_NS 10000000
#define RAISE_NS 1000000
#define THRESHOLD_MIN_NS 1000
#define THRESHOLD_MAX_NS 100000000

struct walk_budget {
	__u64 threshold_ns;
	__u64 window_ns; /* when the current window began */
	__u64 raised_ns; /* when the threshold was raised last */
	__u64 spent_ns;	 /* on walks in this window */
};

/* A walk of the sample in `s` is over. */
static __always_inline void budget_adjust(struct walk_budget *b, struct scratch *s)
{
	__u64 now = bpf_ktime_get_ns();

	note_limit(s, b->threshold_ns);
	b->spent_ns += now - s->out.sample.time_ns;
	if (b->spent_ns <= config.budget_ns || now - b->raised_ns < RAISE_NS)
		return;
	b->raised_ns = now;
	b->threshold_ns = b->threshold_ns ? 2 * b->threshold_ns : THRESHOLD_MIN_NS;
	if (b->threshold_ns > THRESHOLD_MAX_NS)
		b->threshold_ns = THRESHOLD_MAX_NS;
	b->spent_ns = 0;
	b->window_ns = now;
}

static __always_inline void budget_window(struct walk_budget *b, __u64 now)
{
	__u64 windows = (now - b->window_ns) / WINDOW_NS;

	if (!windows)
		return;
	if (b->spent_ns * 2 < config.budget_ns * windows)
		b->threshold_ns >>= windows < 32 ? windows : 32;
	if (b->threshold_ns < THRESHOLD_MIN_NS)
		b->threshold_ns = 0;
	b->spent_ns = 0;
	b->window_ns = now;
}
