/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which times of a thread become samples. A time of at least a threshold always does. Shorter times
 * are laid end to end, and points are drawn on that line, one per threshold on average: a time on
 * which a point falls becomes a sample that stands for what is between it and the point before. So
 * each stack's share is right on average, each thread's sum is right to within a threshold, and
 * long times are never missing.
 */
#pragma once

#include "bpf/lib/scratch.h"

/* A random number from 1 to n. */
static __always_inline __u64 line_draw(__u64 n)
{
	return bpf_get_prandom_u32() % n + 1;
}

#define LINE_MAX_POINTS 4 /* on one time */

/* The time for which `ns`, shorter than the threshold, stands; 0: no point falls on it. */
static __always_inline __u64 line_share(struct thread_line *l, __u64 ns, __u64 threshold)
{
	__u64 stands_for = 0;

	if (!l->point_ns || l->point_ns > 2 * threshold)
		l->point_ns = line_draw(2 * threshold);
	for (int i = 0; i < LINE_MAX_POINTS && ns >= l->point_ns; i++) {
		stands_for += l->rest_ns + l->point_ns;
		ns -= l->point_ns;
		l->rest_ns = 0;
		l->point_ns = line_draw(2 * threshold);
	}
	l->rest_ns += ns;
	l->point_ns = l->point_ns > ns ? l->point_ns - ns : 1;
	return stands_for;
}

/* The time for which `ns` stands in a sample; 0: it is in none. */
static __always_inline __u64 line_choose(struct thread_line *l, __u64 ns, __u64 threshold)
{
	return ns >= threshold ? ns : line_share(l, ns, threshold);
}
