/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A store at work on data that is made the same every time:
 *
 *	bench-store URL [ROWS [THREADS]]	writes ROWS rows (10,000,000) and asks
 *	bench-store URL ask			asks only
 *
 * Services of 100 pods each, minute by minute; of the 30,000 stacks of a service (24 frames deep,
 * 4,000 functions) a pod has 800 in a minute, the first far more often than the last (Zipf, s = 1).
 * A request has one minute of ten pods of one service. 1,600,000 rows are 20 minutes of a service;
 * a second service begins after 2 hours of the first.
 */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "server/query/query.h"
#include "server/store/store.h"

#define MINUTE 60000ULL
#define PODS 100
#define PODS_OF_REQUEST 10
#define STACKS 30000
#define STACKS_OF_MINUTE 800
#define DEPTH 24
#define FUNCTIONS 4000
#define MINUTES 120
#define ROWS_OF_REQUEST ((u64)PODS_OF_REQUEST * STACKS_OF_MINUTE)
#define RUNS 7

static u64 t0;

static u64 next(u64 *x)
{
	*x = *x * 6364136223846793005 + 1442695040888963407;
	return *x >> 11;
}

static u32 text(struct profile *p, const char *s)
{
	u32 id = 0;

	profile_add_string(p, s, strlen(s), &id);
	return id;
}

/* ---- the data ---- */

static u32 add_frame(struct profile *p, u32 mapping, u32 service, u64 k)
{
	struct profile_frame f = {.mapping = mapping, .kind = FRAME_NATIVE, .address = k * 16};
	struct profile_function fn = {};
	char name[96];
	u32 id = 0;

	snprintf(name, sizeof(name), "company::service_%u::module_%llu::function_%llu", service,
		 k % 61, k);
	fn.name = fn.system_name = text(p, name);
	snprintf(name, sizeof(name), "/build/service_%u/module_%llu.cc", service, k % 61);
	fn.file = text(p, name);
	profile_add_function(p, &fn, &f.function);
	f.line = (u32)(k % 1000);
	profile_add_frame(p, &f, &id);
	return id;
}

/* What a request has already, plus 1. */
struct made {
	u32 frames[FUNCTIONS], stacks[STACKS];
};

/* Stacks share what is near the root. */
static u32 add_stack(struct profile *p, struct made *made, u32 mapping, u32 service, u32 n)
{
	u32 frames[DEPTH], id = 0;

	if (made->stacks[n])
		return made->stacks[n] - 1;

	for (u32 i = 0; i < DEPTH; i++) {
		u64 x = service + 1000003ULL * (n >> (i < 12 ? i : 12)) + i;

		next(&x);
		x = next(&x) % FUNCTIONS;
		if (!made->frames[x])
			made->frames[x] = add_frame(p, mapping, service, x) + 1;
		frames[i] = made->frames[x] - 1;
	}
	profile_add_stack(p, frames, DEPTH, &id);
	made->stacks[n] = id + 1;
	return id;
}

static u32 add_pod(struct profile *p, u32 service, u32 pod)
{
	struct profile_thread t = {};
	char name[2][32];
	u32 id = 0;

	snprintf(name[0], 32, "service-%u", service);
	snprintf(name[1], 32, "pod-%u-%u", service, pod);
	struct profile_label labels[] = {
		{text(p, "service.name"), text(p, name[0])},
		{text(p, "k8s.pod.name"), text(p, name[1])},
		{text(p, "k8s.namespace.name"), text(p, "default")},
	};
	profile_add_resource(p, labels, 3, &t.resource);
	t.comm = labels[0].value;
	profile_add_thread(p, &t, &id);
	return id;
}

/* Which of the stacks, by the inverse of Zipf's sum. */
static u32 draw(u64 *x)
{
	double u = (double)(next(x) & 0xffffffff) / 4294967296.0;

	return (u32)(exp(u * log(STACKS + 1.0)) - 1) % STACKS;
}

static struct profile *make_request(u64 k)
{
	const u32 of_minute = PODS / PODS_OF_REQUEST;
	u64 minute = k / of_minute % MINUTES, x = k + 1;
	u32 service = (u32)(k / of_minute / MINUTES),
	    first = (u32)(k % of_minute) * PODS_OF_REQUEST;
	_cleanup_free_ struct made *made = calloc(1, sizeof(*made));
	struct profile *p = profile_create();
	struct profile_mapping m = {};
	u32 mapping = 0;

	profile_add_type(p, "cpu", "nanoseconds");
	p->period_name = text(p, "cpu");
	p->period_unit = text(p, "nanoseconds");
	p->period = 50000000;
	m.path = text(p, "/usr/bin/service");
	m.build_id = text(p, "0123456789abcdef0123456789abcdef01234567");
	profile_add_mapping(p, &m, &mapping);
	for (u32 pod = 0; pod < PODS_OF_REQUEST; pod++) {
		u32 thread = add_pod(p, service, first + pod);
		u64 at = (t0 + minute * MINUTE + (first + pod) * 600) * 1000000;

		for (u32 i = 0; i < STACKS_OF_MINUTE; i++) {
			s64 value = (s64)(1 + next(&x) % 3) * p->period;

			profile_add_sample(p, at, thread,
					   add_stack(p, made, mapping, service, draw(&x)), &value);
		}
	}
	return p;
}

/* ---- writing ---- */

struct work {
	struct store *s;
	u64 n;
	_Atomic u64 next, rows, ns;
};

static void *write_requests(void *arg)
{
	struct work *w = arg;

	for (u64 k; (k = w->next++) < w->n;) {
		_cleanup_profile_ struct profile *p = make_request(k);
		_cleanup_store_batch_ struct store_batch b = {};
		u64 begin = clock_ns(CLOCK_MONOTONIC);
		struct diag d = {};
		u8 token[16] = {};

		memcpy(token, &k, sizeof(k));
		if (store_batch_init(&b, p, NULL, &d) < 0 ||
		    w->s->ops->write(w->s, &b, token, &d) < 0) {
			fprintf(stderr, "%s\n", d.text);
			exit(1);
		}
		w->ns += clock_ns(CLOCK_MONOTONIC) - begin;
		w->rows += b.samples.n;
	}
	return NULL;
}

static void write_all(struct store *s, u64 rows, u32 n_threads)
{
	struct work w = {.s = s, .n = (rows + ROWS_OF_REQUEST - 1) / ROWS_OF_REQUEST};
	pthread_t threads[64];
	double seconds;

	for (u32 i = 0; i < n_threads; i++)
		pthread_create(&threads[i], NULL, write_requests, &w);
	for (u32 i = 0; i < n_threads; i++)
		pthread_join(threads[i], NULL);
	seconds = (double)w.ns / 1e9 / n_threads;
	printf("rows %llu\nrequests %llu\nwriters %u\ningest_rows_per_s %.0f\nms_per_request %.1f\n",
	       w.rows, w.n, n_threads, (double)w.rows / seconds, (double)w.ns / 1e6 / (double)w.n);
	fflush(stdout);
}

/* ---- asking ---- */

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static void ask(struct store *s, const char *what, const char *selector, const char *stacks,
		u64 minutes, u64 step_ms)
{
	double ms[RUNS];
	size_t n = 0;

	for (u32 i = 0; i < RUNS; i++) {
		_cleanup_query_ struct query q = {.from_ms = t0, .to_ms = t0 + minutes * MINUTE};
		u64 begin = clock_ns(CLOCK_MONOTONIC);
		struct diag d = {};
		int r = query_parse_selector(&q, selector, &d);

		q.stacks = stacks ? strdup(stacks) : NULL;
		if (r == 0 && step_ms) {
			struct query_lines l = {};

			r = query_series(s, &q, step_ms, NULL, 0, &l, &d);
			n = r == 0 && l.lines.n ? l.lines.data[0].points.n : 0;
			query_lines_deinit(&l);
		} else if (r == 0) {
			_cleanup_profile_ struct profile *p = NULL;

			r = query_profile(s, &q, 200000, &p, &d);
			n = r == 0 ? p->n_samples : 0;
		}
		if (r < 0) {
			fprintf(stderr, "%s: %s\n", what, d.text);
			exit(1);
		}
		ms[i] = (double)(clock_ns(CLOCK_MONOTONIC) - begin) / 1e6;
	}
	qsort(ms + 1, RUNS - 1, sizeof(*ms), compare);
	printf("%s_ms first %.1f best %.1f median %.1f rows %zu\n", what, ms[0], ms[1],
	       ms[1 + (RUNS - 1) / 2], n);
	fflush(stdout);
}

static void ask_all(struct store *s)
{
	struct store_stats st = {};
	struct diag d = {};

	if (s->ops->stats(s, &st, &d) < 0)
		fprintf(stderr, "%s\n", d.text);
	printf("stored_rows %llu\nstacks %llu\nframes %llu\nbytes %llu\nbytes_per_row %.2f\n",
	       st.rows, st.stacks, st.frames, st.bytes,
	       (double)st.bytes / (double)(st.rows ? st.rows : 1));
	ask(s, "flamegraph_2h", "{service.name=\"service-0\"}", NULL, 120, 0);
	ask(s, "flamegraph_10min", "{service.name=\"service-0\"}", NULL, 10, 0);
	ask(s, "flamegraph_pod_10min", "{service.name=\"service-0\", k8s.pod.name=\"pod-0-7\"}",
	    NULL, 10, 0);
	ask(s, "function_over_time", "{service.name=\"service-0\"}",
	    "fn=\"company::service_0::module_5::function_371\"", 120, 60000);
	ask(s, "service_over_time", "{service.name=\"service-0\"}", NULL, 120, 60000);
}

int main(int argc, char **argv)
{
	u64 now = clock_ns(CLOCK_REALTIME) / 1000000;
	struct store *s = NULL;
	struct diag d = {};

	if (argc < 2 || argc > 4) {
		fprintf(stderr, "usage: bench-store URL [ROWS [THREADS] | ask]\n");
		return 2;
	}
	/* Since midnight of yesterday: of one day, and not yet rounded. */
	t0 = (now / 86400000 - 1) * 86400000 + 12 * 60 * MINUTE;
	if (store_open(argv[1], NULL, &d, &s) < 0) {
		fprintf(stderr, "%s\n", d.text);
		return 1;
	}
	if (argc < 3 || strcmp(argv[2], "ask") != 0)
		write_all(s, argc > 2 ? strtoull(argv[2], NULL, 10) : 10000000,
			  argc > 3 ? (u32)MIN(strtoul(argv[3], NULL, 10), 64UL) : 1);
	s->ops->maintain(s, now, &d);
	ask_all(s);
	store_close(s);
	return 0;
}
