/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which of a source's events become samples: one of `period` on average, drawn at random. It stands
 * for all since the one before, so that the sum of the events is right to within a period, and each
 * stack's share on average. The period follows the time that the CPU's walks take; config.period
 * fixes it. The numbers depend on earlier events only, never on the one that they decide about.
 */
#pragma once

#include "bpf/lib/scratch.h"

struct drawing {	  /* of a CPU */
	__u64 stands_for; /* the event that was drawn last */
	__u64 passed;	  /* events since then */
	__u64 left;	  /* events until the next; 0: not drawn yet */
	__u64 period;	  /* mean of `left` */
	__u64 window_ns;  /* when the current window of the budget began */
	__u64 spent_ns;	  /* on walks in this window */
	__u64 saved_ns;	  /* of the budget of earlier windows */
};

#define DRAWING_WINDOW_NS 10000000
/* A CPU has less than a million faults or requests a second: then these are 1000 walks. */
#define DRAWING_PERIOD_MAX 1024

/* How many windows' budget may be saved for a later one. */
#ifndef DRAWING_SAVED_WINDOWS
#define DRAWING_SAVED_WINDOWS 0
#endif

static __always_inline void drawing_save(struct drawing *d, __u64 windows)
{
	__u64 max = DRAWING_SAVED_WINDOWS * config.budget_ns;

	if (windows > DRAWING_SAVED_WINDOWS + 1)
		windows = DRAWING_SAVED_WINDOWS + 1;
	d->saved_ns += windows * config.budget_ns;
	d->saved_ns -= d->spent_ns < d->saved_ns ? d->spent_ns : d->saved_ns;
	if (d->saved_ns > max)
		d->saved_ns = max;
}

/* A window that has kept within half of the budget halves the period. */
static __always_inline void drawing_window(struct drawing *d)
{
	__u64 now = bpf_ktime_get_ns(), windows = (now - d->window_ns) / DRAWING_WINDOW_NS;

	if (!windows)
		return;
	if (d->spent_ns * 2 < config.budget_ns * windows && d->period > 1)
		d->period /= 2;
	if (DRAWING_SAVED_WINDOWS)
		drawing_save(d, windows);
	d->spent_ns = 0;
	d->window_ns = now;
}

static __always_inline __u64 drawing_distance(struct drawing *d)
{
	if (config.period)
		return config.period;
	if (!d->period)
		d->period = 1;
	return bpf_get_prandom_u32() % (2 * d->period - 1) + 1;
}

/* Whether the event becomes a sample; it stands for d->stands_for. */
static __always_inline bool drawing_next(struct drawing *d)
{
	drawing_window(d);
	if (!d->left)
		d->left = drawing_distance(d);
	d->passed++;
	if (--d->left)
		return false;
	d->stands_for = d->passed;
	d->passed = 0;
	return true;
}

/* The walk of an event that was drawn is over. */
static __always_inline void drawing_spent(struct drawing *d, struct scratch *s)
{
	__u64 now = bpf_ktime_get_ns();

	note_limit(s, d->period);
	d->spent_ns += now - s->out.sample.time_ns;
	if (d->spent_ns <= config.budget_ns + d->saved_ns)
		return;
	d->saved_ns = 0;
	if (d->period < DRAWING_PERIOD_MAX)
		d->period = d->period ? 2 * d->period : 1;
	d->spent_ns = 0;
	d->window_ns = now;
}
