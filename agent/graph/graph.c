/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The text of the function_graph tracer with the options that tracefs.c sets:
 *
 *	 0)    cat-123     |               |  vfs_read() {
 *	 0)    cat-123     |   1.057 us    |    rw_verify_area();
 *	 0)    cat-123     |   9.892 us    |  }
 *	CPU:0 [LOST 12 EVENTS]
 *
 * A call is kept on the stack of its thread until its "}", because lines of CPUs are mixed and
 * threads migrate. Newer kernels write arguments into the parentheses and values behind them.
 */
#include "agent/graph/graph.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct graph_thread {
	u32 depth;
	u32 outside; /* begun calls that are not in `call`: beyond the limits, or without root */
	u32 call[GRAPH_MAX_DEPTH];
};

int graph_init(struct graph *g, const char *function)
{
	*g = (struct graph){.function = function};
	return strtab_init(&g->names) < 0 || vec_push(&g->calls, (struct graph_call){}) < 0
		       ? -ENOMEM
		       : 0;
}

void graph_deinit(struct graph *g)
{
	strtab_deinit(&g->names);
	vec_deinit(&g->calls);
	map_deinit(&g->by_path);
	map_deinit(&g->by_thread);
	vec_foreach (&g->threads, t)
		free(*t);
	vec_deinit(&g->threads);
}

/* ---- calls ---- */

static int find_thread(struct graph *g, u64 key, struct graph_thread **ret)
{
	u64 *known = map_get(&g->by_thread, key);
	struct graph_thread *t;

	if (known) {
		*ret = g->threads.data[*known];
		return 0;
	}
	*ret = NULL;
	if (g->threads.n >= GRAPH_MAX_THREADS)
		return 0;
	t = calloc(1, sizeof(*t));
	if (!t || vec_push(&g->threads, t) < 0) {
		free(t);
		return -ENOMEM;
	}
	*ret = t;
	return map_put(&g->by_thread, key, g->threads.n - 1);
}

/* The call of this name below `parent`; 0: there are too many. */
static int find_call(struct graph *g, u32 parent, const char *name, size_t n, u32 *ret)
{
	u32 id;
	int r = strtab_add(&g->names, name, n, &id);
	u64 *known, path = (u64)parent << 32 | id;

	if (r < 0)
		return -ENOMEM;
	known = map_get(&g->by_path, path);
	if (known || g->calls.n >= GRAPH_MAX_CALLS) {
		*ret = known ? (u32)*known : 0;
		return 0;
	}
	*ret = (u32)g->calls.n;
	r = vec_push(&g->calls, (struct graph_call){.name = id,
						    .parent = parent,
						    .sibling = g->calls.data[parent].first_child});
	if (r < 0)
		return r;
	g->calls.data[parent].first_child = *ret;
	return map_put(&g->by_path, path, *ret);
}

static void add_time(struct graph *g, u32 call, u64 ns)
{
	struct graph_call *c = &g->calls.data[call];

	c->count++;
	c->total_ns += ns;
	if (c->parent)
		g->calls.data[c->parent].callees_ns += ns;
}

/* Behind lost events, a call may begin whose callers are not known. */
static bool is_root(const struct graph *g, const char *name, size_t n)
{
	return strlen(g->function) == n && memcmp(g->function, name, n) == 0;
}

static int begin(struct graph *g, struct graph_thread *t, const char *name, size_t n)
{
	u32 call = 0;
	int r = 0;

	if (!t->outside && t->depth < GRAPH_MAX_DEPTH && (t->depth || is_root(g, name, n)))
		r = find_call(g, t->depth ? t->call[t->depth - 1] : 0, name, n, &call);
	if (r < 0)
		return r;
	if (call)
		t->call[t->depth++] = call;
	else
		t->outside++;
	return 0;
}

static void end(struct graph *g, struct graph_thread *t, u64 ns)
{
	if (t->outside || !t->depth) {
		t->outside -= t->outside > 0;
		g->left_out++;
		return;
	}
	add_time(g, t->call[--t->depth], ns);
}

/* A lost event may have been the begin or the end of any call. */
static void forget_threads(struct graph *g)
{
	vec_foreach (&g->threads, t) {
		g->left_out += (*t)->depth + (*t)->outside;
		(*t)->depth = (*t)->outside = 0;
	}
}

void graph_finish(struct graph *g)
{
	forget_threads(g);
}

/* ---- lines ---- */

/* "1.057 us", "+ 10.5 us": nanoseconds. */
static u64 duration(const char *text)
{
	char *rest;
	double us;

	text += strcspn(text, "0123456789|");
	us = strtod(text, &rest);
	return rest != text && us > 0 && us < 1e12 ? (u64)(us * 1000 + 0.5) : 0;
}

/*
 * The number of the thread in "  comm-123  |", of which comm may contain anything. *ret_rest is
 * behind the bar. Idle threads of all CPUs are 0.
 */
static bool take_thread(const char *text, u32 cpu, u64 *ret, const char **ret_rest)
{
	for (const char *bar = strchr(text, '|'); bar; bar = strchr(bar + 1, '|')) {
		const char *last = bar, *first;

		while (last > text && last[-1] == ' ')
			last--;
		for (first = last; first > text && isdigit((u8)first[-1]);)
			first--;
		if (first == last || first == text || first[-1] != '-' || last - first > 10)
			continue;
		*ret = strtoul(first, NULL, 10);
		*ret = *ret ? *ret : 1ULL << 32 | cpu;
		*ret_rest = bar + 1;
		return true;
	}
	return false;
}

/* `text` is the column of the function, `time` that of the duration. */
static int function(struct graph *g, struct graph_thread *t, const char *text, const char *time)
{
	size_t n = strcspn(text, "(");
	const char *close = strrchr(text, ')');
	int r;

	if (text[0] == '}') {
		end(g, t, duration(time));
		return 0;
	}
	/* Comments, arrows of interrupts. */
	if (!n || !text[n] || text[0] == '/' || text[0] == '<' || text[0] == '=')
		return 0;
	r = begin(g, t, text, n);
	if (r == 0 && !strchr(close ? close : text, '{') && strchr(text, ';'))
		end(g, t, duration(time));
	return r;
}

static int read_line(struct graph *g, const char *line)
{
	const char *time, *bar;
	struct graph_thread *t;
	unsigned long long lost;
	u64 key;
	u32 cpu;
	int used = 0, r;

	if (sscanf(line, "CPU:%u [LOST %llu EVENTS]", &cpu, &lost) == 2) {
		g->lost += lost;
		forget_threads(g);
		return 0;
	}
	if (sscanf(line, " %u)%n", &cpu, &used) != 1 || !used ||
	    !take_thread(line + used, cpu, &key, &time))
		return 0;
	bar = strchr(time, '|');
	if (!bar)
		return 0;
	r = find_thread(g, key, &t);
	if (r < 0 || !t) {
		g->left_out += r == 0;
		return r;
	}
	bar++;
	return function(g, t, bar + strspn(bar, " "), time);
}

int graph_feed(struct graph *g, const char *text, size_t n)
{
	int r = 0;

	for (size_t i = 0; i < n && r == 0; i++) {
		if (text[i] != '\n') {
			if (g->line_n + 1 < sizeof(g->line))
				g->line[g->line_n++] = text[i] ? text[i] : ' ';
			continue;
		}
		g->line[g->line_n] = '\0';
		r = read_line(g, g->line);
		g->line_n = 0;
	}
	return r;
}
