/* SPDX-License-Identifier: Apache-2.0 */
/*
 * culprit trace --graph: what a function of the kernel calls, as a tree of call paths with counts
 * and times, or as a flame graph.
 */
#include "cli/trace_graph.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "abi/vocab.h"
#include "agent/graph/graph.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "base/text.h"
#include "base/vocab.h"
#include "cli/cli.h"
#include "cli/signals.h"
#include "format/format.h"
#include "profile/profile.h"

#define POLL_MS 100
/* Paths with less than this part of the root's time are left out of the tree. */
#define SMALL 200

/* ---- tree ---- */

static void put_time(u64 ns)
{
	_cleanup_str_ struct str text = {};

	text_append_value(&text, (s64)MIN(ns, ~0ULL >> 1), vocab_unit(UNIT_NANOSECONDS));
	printf("%12s", str_get(&text));
}

static u64 self_ns(const struct graph_call *c)
{
	return c->total_ns > c->callees_ns ? c->total_ns - c->callees_ns : 0;
}

/* The callee with the most time below `limit_ns`, or of the same time and a larger id. */
static u32 next_callee(const struct graph *g, u32 caller, u64 limit_ns, u32 after)
{
	u32 best = 0;

	for (u32 i = g->calls.data[caller].first_child; i; i = g->calls.data[i].sibling) {
		u64 ns = g->calls.data[i].total_ns;

		if (ns > limit_ns || (ns == limit_ns && i <= after))
			continue;
		if (!best || ns > g->calls.data[best].total_ns ||
		    (ns == g->calls.data[best].total_ns && i < best))
			best = i;
	}
	return best;
}

static u32 put_callees(const struct graph *g, u32 caller, u32 depth, u64 least_ns)
{
	u32 hidden = 0, i = next_callee(g, caller, ~0ULL, 0);

	for (; i; i = next_callee(g, caller, g->calls.data[i].total_ns, i)) {
		const struct graph_call *c = &g->calls.data[i];

		if (!c->count || c->total_ns < least_ns) {
			hidden++;
			continue;
		}
		printf("%10llu", c->count);
		put_time(c->total_ns);
		put_time(c->total_ns / c->count);
		put_time(self_ns(c));
		printf("  %*s%s\n", (int)(2 * depth), "", strtab_get(&g->names, c->name));
		hidden += put_callees(g, i, depth + 1, least_ns);
	}
	return hidden;
}

static u64 all_ns(const struct graph *g)
{
	u64 ns = 0;

	for (u32 i = g->calls.data[0].first_child; i; i = g->calls.data[i].sibling)
		ns += g->calls.data[i].total_ns;
	return ns;
}

static void put_tree(const struct graph *g)
{
	u32 hidden;

	printf("%10s%12s%12s%12s  function\n", "calls", "total", "average", "self");
	hidden = put_callees(g, 0, 0, all_ns(g) / SMALL);
	if (hidden)
		printf("%u callees with less than %g %% of the time are not shown.\n", hidden,
		       100.0 / SMALL);
}

/* ---- flame graph ---- */

static int add_frame(struct profile *p, const char *name, u32 *ret)
{
	struct profile_function f = {};
	struct profile_frame frame = {.mapping = PROFILE_NONE, .kind = FRAME_KERNEL};
	int r = profile_add_string(p, name, strlen(name), &f.name);

	f.system_name = f.name;
	if (r == 0)
		r = profile_add_function(p, &f, &frame.function);
	return r < 0 ? r : profile_add_frame(p, &frame, ret);
}

static int add_path(struct profile *p, const struct graph *g, u32 call)
{
	s64 ns = (s64)self_ns(&g->calls.data[call]);
	u32 frames[GRAPH_MAX_DEPTH], n = 0, stack;
	int r = 0;

	for (u32 i = call; i && r == 0 && n < GRAPH_MAX_DEPTH; i = g->calls.data[i].parent)
		r = add_frame(p, strtab_get(&g->names, g->calls.data[i].name), &frames[n++]);
	if (r == 0)
		r = profile_add_stack(p, frames, n, &stack);
	return r < 0 ? r : profile_add_sample(p, 0, PROFILE_NONE, stack, &ns);
}

static int write_profile(const struct graph *g, const struct trace_graph_options *o,
			 const struct profile_format *format, struct diag *d)
{
	const struct profile_write_options w = {.title = o->function};
	_cleanup_profile_ struct profile *p = profile_create();
	int r = p ? profile_add_table_type(p, SAMPLE_TYPE_WALL) : -ENOMEM;

	for (u32 i = 1; i < g->calls.n && r == 0; i++)
		if (self_ns(&g->calls.data[i]))
			r = add_path(p, g, i);
	if (r == 0)
		profile_derive_quality(p);
	return r < 0 ? diag_set(d, r, "%s", strerror(-r))
		     : profile_write_file(p, o->output, format, &w, d);
}

/* ---- running ---- */

static int measure(struct graph_tracing *t, u64 seconds)
{
	u64 end = seconds ? clock_ns(CLOCK_MONOTONIC) + seconds * 1000000000ULL : ~0ULL;
	int r = 0;

	while (r == 0 && !signals_ended() && clock_ns(CLOCK_MONOTONIC) < end)
		r = graph_poll(t, POLL_MS);
	graph_stop(t);
	return r;
}

static int show(const struct graph *g, const struct trace_graph_options *o,
		const struct profile_format *format)
{
	struct diag d = {};

	if (!g->calls.data[0].first_child)
		return cli_error(1, "%s was not called", o->function);
	if (!format)
		put_tree(g);
	else if (write_profile(g, o, format, &d) < 0)
		return cli_error(1, "%s", d.text);
	if (g->lost)
		fprintf(stderr, "culprit: the kernel dropped %llu events: counts are too small\n",
			g->lost);
	if (g->left_out)
		fprintf(stderr,
			"culprit: %llu calls are left out: they began before or ended after the "
			"measurement, or beside lost events\n",
			g->left_out);
	return 0;
}

int trace_graph(const struct trace_graph_options *o)
{
	const struct profile_format *format = NULL;
	struct graph_tracing *t;
	struct diag d = {};
	int e;

	if (o->output && profile_write_check(o->output, NULL, &format, &d) < 0)
		return cli_error(2, "%s", d.text);
	signals_catch_end();
	if (graph_start(o->function, o->pid, &d, &t) < 0)
		return cli_error(1, "%s", d.text);
	fprintf(stderr, "Tracing %s; Ctrl-C ends\n", o->function);
	e = measure(t, o->seconds) < 0 ? cli_error(1, "%s", strerror(ENOMEM))
				       : show(graph_of(t), o, format);
	graph_destroy(t);
	return e;
}
