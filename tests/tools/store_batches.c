/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The number of a batch determines its content. Batch K covers the two minutes that begin 2 K + 1
 * minutes after T0, so that some batches lie in two hours, or in two days. It has three series of
 * two services and two types. In each series the first sample has the stack batch_K_begin and the
 * last batch_K_end; the stacks between are shared by all batches. The store writes and loses whole
 * blocks. The samples of a batch with one type, one service and one hour are a unit, which always
 * lies in one block. So the two stacks tell which units the store has, and thereby every sum.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/tools/store_tool.h"

#define DEPTH 12

const char *const services[SERVICES] = {"service-0", "service-0", "service-1"};

static u32 add_text(struct profile *p, const char *s)
{
	u32 id = 0;

	profile_add_string(p, s, strlen(s), &id);
	return id;
}

static u32 add_frame(struct profile *p, const char *name, u32 line)
{
	struct profile_frame f = {.kind = FRAME_NATIVE, .line = line, .address = 0x1000 + line};
	struct profile_function fn = {.name = add_text(p, name), .start_line = line / 2};
	struct profile_mapping m = {.path = add_text(p, "/usr/bin/app"),
				    .build_id = add_text(p, "0123456789abcdef")};
	u32 id = 0;

	fn.system_name = line % 3 ? fn.name : add_text(p, "_Z6system");
	fn.file = add_text(p, "src/app.c");
	profile_add_function(p, &fn, &f.function);
	profile_add_mapping(p, &m, &f.mapping);
	profile_add_frame(p, &f, &id);
	return id;
}

struct profile_link link_of(u32 k, u32 i)
{
	struct profile_link l = {.trace_id = {1}};
	u64 trace = hash_u64(k + 1);

	memcpy(l.trace_id + 1, &k, sizeof(k));
	memcpy(l.trace_id + 8, &trace, sizeof(trace));
	l.span_id[0] = (u8)(i + 1);
	memcpy(l.span_id + 1, &k, sizeof(k));
	return l;
}

static void add_sample(struct profile *p, u32 thread, u64 time_ms, const char *leaf, s64 value,
		       u32 link)
{
	s64 values[] = {value, value * 10000000};
	u32 frames[DEPTH], stack = 0;
	char name[32];

	frames[0] = add_frame(p, leaf, (u32)value);
	for (u32 i = 1; i < DEPTH; i++) {
		u32 which = (u32)(hash_bytes(leaf, strlen(leaf)) * i >> 20) % 400;

		snprintf(name, sizeof(name), "caller_%u", which);
		frames[i] = add_frame(p, name, which);
	}
	profile_add_stack(p, frames, DEPTH, &stack);
	profile_add_linked_sample(p, time_ms * 1000000, thread, stack, link, values);
}

static u32 add_thread(struct profile *p, u32 i)
{
	char host[32];
	struct profile_label labels[2] = {{add_text(p, "service.name"), add_text(p, services[i])}};
	struct profile_thread t = {.comm = add_text(p, services[i])};
	u32 id = 0;

	snprintf(host, sizeof(host), "host-%u", i);
	labels[1] = (struct profile_label){add_text(p, "host.name"), add_text(p, host)};
	profile_add_resource(p, labels, 2, &t.resource);
	profile_add_thread(p, &t, &id);
	return id;
}

u64 begin_of(u32 k)
{
	return T0 + STEP_MS / 2 + k * STEP_MS;
}

/* Some batches are larger than SQLite's page cache. */
static u32 pool_of(u32 k)
{
	return k % 40 == 7 ? 1000 : 40;
}

struct profile *make_batch(u32 k)
{
	struct profile *p = profile_create();
	u32 threads[SERVICES], n = pool_of(k);
	char begin[32], end[32], name[32];

	profile_add_type(p, "samples", "count");
	profile_add_type(p, "cpu", "nanoseconds");
	p->period_name = add_text(p, "cpu");
	p->period_unit = add_text(p, "nanoseconds");
	p->period = 10000000;
	snprintf(begin, sizeof(begin), "batch_%u_begin", k);
	snprintf(end, sizeof(end), "batch_%u_end", k);
	for (u32 i = 0; i < SERVICES; i++) {
		threads[i] = add_thread(p, i);
		add_sample(p, threads[i], begin_of(k), begin, 1 + k % 1000, 0);
		add_sample(p, threads[i], begin_of(k) + STEP_MS - 1, end, 1 + k % 999, 0);
	}
	for (u32 i = 0; i < n; i++) {
		struct profile_link l = link_of(k, i % SPANS);
		u32 link = 0;

		if (options.spans && i % SERVICES == 0)
			profile_add_link(p, &l, &link);
		snprintf(name, sizeof(name), "pool_%u", (i * 7 + k * 3) % 3000);
		add_sample(p, threads[i % SERVICES], begin_of(k) + i * (STEP_MS / n), name,
			   1 + (k * 7 + i * 13) % 50, link);
	}
	return p;
}

void make_spans(u32 k, struct spans *s)
{
	struct profile_label l = {};

	if (spans_init(s) < 0)
		exit(6);
	for (u32 i = 0; i < SPANS; i++) {
		struct profile_link link = link_of(k, i), parent = link_of(k, 0);
		struct span e = {.start_ns = (begin_of(k) + i) * 1000000,
				 .duration_ns = (SPANS - i) * 1000000ULL,
				 .kind = i ? SPAN_KIND_INTERNAL : SPAN_KIND_SERVER,
				 .flags = i ? 0 : SPAN_ROOT};

		memcpy(e.trace_id, link.trace_id, 16);
		memcpy(e.span_id, link.span_id, 8);
		if (i)
			memcpy(e.parent_id, parent.span_id, 8);
		spans_add_text(s, services[0], &e.service);
		spans_add_text(s, i ? "step" : "request", &e.name);
		spans_add_text(s, "service.name", &l.name);
		l.value = e.service;
		profile_add_resource(s->profile, &l, 1, &e.resource);
		spans_add_attribute(s, &e, "batch", i % 2 ? "odd" : "even");
		spans_set_endpoint(s, &e);
		if (i)
			e.endpoint = 0;
		if (vec_push(&s->spans, e) < 0)
			exit(6);
	}
}
