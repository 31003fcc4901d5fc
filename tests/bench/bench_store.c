/* SPDX-License-Identifier: Apache-2.0 */
/*
 *	bench_store URL [ROWS]
 *	bench_store URL 0 MINUTES [RUNS [QUESTION]]
 *		only queries a store that was written before: each question, or the one of this
 *		number (from 0), warm so many times
 *
 * A store under the load of an hour of work: the time to write rows, their size, and the time of
 * queries. URL as in --store: a directory for SQLite, clickhouse://…; the store must be empty.
 * Prints one JSON object per line.
 *
 * The data: 100 pods of the service "shop" for two hours. In each minute of each pod 1,200 samples
 * fall on stacks by a Zipf distribution (s = 1) over 32,874 stacks, 24 frames deep over 8,000
 * functions, deeper frames of fewer functions as calls are; what fell on one stack is one row. So
 * about 800 rows a minute and pod, 1.5 samples each. When ROWS is less there are fewer minutes.
 * Each minute of a pod is one batch, as it comes from an agent.
 *
 * Times of writing are those of store_batch_init(), write() and maintain(), in one thread, without
 * the time to make the data. The time of a query includes all work up to the profile or the
 * numbers. Warm is the median of RUNS (5); cold is with the store reopened and its files dropped
 * from the page cache (SQLite only).
 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "server/query/query.h"
#include "server/store/store.h"
#include "tests/bench/bench.h"

#define T0 (480000ULL * 3600000)
#define MINUTE_MS 60000ULL
#define PODS 100
#define SAMPLES 1200
#define STACKS 32874
#define DEPTH 24
#define FUNCTIONS 8000
#define MAX_RUNS 1000
#define SERVICE "{service_name=\"shop\"}"

static void say(const char *what, double value, const char *unit, const char *how, double must,
		double aim)
{
	printf("{\"what\": \"store: %s\", \"value\": %.6g, \"unit\": \"%s\", \"how\": \"%s\"", what,
	       value, unit, how);
	if (must > 0)
		printf(", \"must\": %g, \"aim\": %g", must, aim);
	puts("}");
	fflush(stdout);
}

static void die_of(const char *what, const struct diag *d)
{
	fprintf(stderr, "bench_store: %s: %s\n", what, d->text);
	exit(1);
}

/* ---- data ---- */

static u32 zipf[STACKS + 1]; /* samples of 2^32 that fall on a stack below i */

static void make_zipf(void)
{
	double sum = 0, at = 0;

	for (u32 i = 0; i < STACKS; i++)
		sum += 1.0 / (i + 1);
	for (u32 i = 0; i < STACKS; i++) {
		zipf[i] = (u32)(at / sum * 4294967295.0);
		at += 1.0 / (i + 1);
	}
	zipf[STACKS] = ~0u;
}

static u32 draw(void)
{
	u32 v = (u32)(roll() >> 32), low = 0, high = STACKS;

	while (high - low > 1) {
		u32 middle = low + (high - low) / 2;

		if (zipf[middle] <= v)
			low = middle;
		else
			high = middle;
	}
	return low;
}

static u32 add_text(struct profile *p, const char *s)
{
	u32 id = 0;

	profile_add_string(p, s, strlen(s), &id);
	return id;
}

static u32 add_frame(struct profile *p, u32 function)
{
	struct profile_frame f = {.kind = FRAME_NATIVE,
				  .address = 0x400000 + function * 64ULL,
				  .line = 10 + function % 900};
	struct profile_function fn = {.start_line = function % 900};
	struct profile_mapping m = {.build_id = add_text(p, "8f14e45fceea167a5a36dedd4bea2543")};
	char text[96];
	u32 id = 0;

	snprintf(text, sizeof(text), "/usr/lib/shop/libpart%u.so", function % 20);
	m.path = add_text(p, text);
	snprintf(text, sizeof(text), "shop::part%u::Service<Item%u>::handle_request_%u",
		 function % 20, function % 300, function);
	fn.name = add_text(p, text);
	fn.system_name = fn.name;
	snprintf(text, sizeof(text), "src/part%u/service_%u.cc", function % 20, function % 300);
	fn.file = add_text(p, text);
	profile_add_function(p, &fn, &f.function);
	profile_add_mapping(p, &m, &f.mapping);
	profile_add_frame(p, &f, &id);
	return id;
}

static u32 add_stack(struct profile *p, u32 n)
{
	u32 frames[DEPTH], stack = 0;
	u64 h = n + 1;

	/* Rootward there are fewer: 8,000 at the leaf, some at the root. */
	for (u32 i = 0; i < DEPTH; i++) {
		u32 of = (u32)(FUNCTIONS * pow(0.72, i)) + 2;

		h = hash_u64(i ? n / (1u << i / 2) * 64ULL + i : h);
		frames[i] = add_frame(p, (u32)(h % of));
	}
	profile_add_stack(p, frames, DEPTH, &stack);
	return stack;
}

static struct profile *make_batch(u32 pod, u32 minute)
{
	struct profile *p = profile_create();
	static u32 count[STACKS];
	struct profile_label labels[2];
	struct profile_thread t = {};
	char name[32];
	u32 thread = 0;

	snprintf(name, sizeof(name), "shop-%u", pod);
	labels[0] = (struct profile_label){add_text(p, "service.name"), add_text(p, "shop")};
	labels[1] = (struct profile_label){add_text(p, "k8s.pod.name"), add_text(p, name)};
	profile_add_resource(p, labels, 2, &t.resource);
	t.comm = labels[0].value;
	profile_add_thread(p, &t, &thread);
	profile_add_type(p, "cpu", "nanoseconds");
	p->period_name = add_text(p, "cpu");
	p->period_unit = add_text(p, "nanoseconds");
	p->period = 50000000;
	memset(count, 0, sizeof(count));
	for (u32 i = 0; i < SAMPLES; i++)
		count[draw()]++;
	for (u32 i = 0; i < STACKS; i++) {
		s64 value = count[i] * p->period;

		if (value)
			profile_add_sample(p, (T0 + minute * MINUTE_MS) * 1000000, thread,
					   add_stack(p, i), &value);
	}
	return p;
}

/* ---- writing ---- */

struct cost {
	double wall, cpu;
};

static void begin(struct cost *c)
{
	c->wall -= seconds(CLOCK_MONOTONIC);
	c->cpu -= seconds(CLOCK_THREAD_CPUTIME_ID);
}

static void end(struct cost *c)
{
	c->wall += seconds(CLOCK_MONOTONIC);
	c->cpu += seconds(CLOCK_THREAD_CPUTIME_ID);
}

static void write_one(struct store *s, u32 pod, u32 minute, struct cost *c, u64 *rows)
{
	_cleanup_profile_ struct profile *p = make_batch(pod, minute);
	_cleanup_store_batch_ struct store_batch b = {};
	u8 token[16] = {};
	struct diag d = {};

	memcpy(token, &pod, 4);
	memcpy(token + 4, &minute, 4);
	begin(c);
	if (store_batch_init(&b, p, NULL, &d) < 0 || store_write(s, &b, token, &d) < 0)
		die_of("write", &d);
	end(c);
	*rows += b.samples.n;
}

static void maintain(struct store *s, u64 now_ms, struct cost *c)
{
	struct diag d = {};

	begin(c);
	if (store_maintain(s, now_ms, &d) < 0)
		die_of("maintain", &d);
	end(c);
}

/* Until nothing is merged any more. */
static void settle(struct store *s, u64 now_ms, struct cost *c)
{
	for (double last = 1; last > 0.05;) {
		struct cost once = {};

		maintain(s, now_ms, &once);
		last = once.cpu;
		c->wall += once.wall;
		c->cpu += once.cpu;
	}
}

static u32 write_all(struct store *s, u64 want)
{
	struct cost writing = {}, keeping = {};
	struct store_stats st = {};
	struct diag d = {};
	u64 rows = 0;
	u32 minute = 0;
	double samples;

	for (; rows < want; minute++) {
		for (u32 pod = 0; pod < PODS; pod++)
			write_one(s, pod, minute, &writing, &rows);
		maintain(s, T0 + minute * MINUTE_MS, &keeping);
	}
	settle(s, T0 + minute * MINUTE_MS + 2 * 3600000, &keeping);
	if (store_get_stats(s, &st, &d) < 0)
		die_of("stats", &d);
	samples = (double)minute * PODS * SAMPLES;
	say("rows written", (double)rows, "", "100 pods, Zipf over 32,874 stacks of 24 frames", 0,
	    0);
	say("ingest", (double)rows / writing.wall / 1e6, "M rows/s", "one thread, wall time", 0, 0);
	say("ingest, of CPU", (double)rows / writing.cpu / 1e6, "M rows/s", "a core", 0, 0);
	say("ingest with merging, of CPU", 2 * (double)rows / (writing.cpu + keeping.cpu) / 1e6,
	    "M rows/s", "two cores", 1, 3);
	say("bytes a row", (double)st.bytes / (double)st.rows, "B",
	    "dictionaries and free pages too", 0, 0);
	say("disk of a busy core's day at 20 Hz", 1.728e6 * (double)st.bytes / samples / 1e6, "MB",
	    "dictionaries and free pages too", 0, 0);
	return minute;
}

/* ---- questions ---- */

struct question {
	const char *what;
	const char *selector, *stacks;
	u64 from_minute, minutes; /* 0 = all */
	u64 step_ms;		  /* by time; 0 = a profile */
	double must, aim;
};

static const struct question questions[] = {
	{"flame graph of a service, all", SERVICE, NULL, 0, 0, 0, 100, 30},
	{"flame graph of a service, 10 minutes", SERVICE, NULL, 50, 10, 0, 0, 0},
	{"flame graph of a pod, 10 minutes", "{service_name=\"shop\",k8s_pod_name=\"shop-7\"}",
	 NULL, 50, 10, 0, 0, 0},
	{"flame graph of stacks with a function, all", SERVICE, "fn~\".*handle_request_77\"", 0, 0,
	 0, 0, 0},
	{"a service by minute", SERVICE, NULL, 0, 0, MINUTE_MS, 0, 0},
	{"a function by minute", SERVICE, "fn~\".*handle_request_77\"", 0, 0, MINUTE_MS, 0, 0},
};

/* Milliseconds; what of it was CPU is added to *cpu. */
static double ask(struct store *s, const struct question *q, u32 minutes, double *cpu)
{
	_cleanup_query_ struct query query = {};
	struct query_lines lines = {};
	struct profile *p = NULL;
	struct diag d = {};
	double start = seconds(CLOCK_MONOTONIC), worked = seconds(CLOCK_THREAD_CPUTIME_ID);
	int r;

	query.from_ms = T0 + (q->minutes ? q->from_minute % minutes : 0) * MINUTE_MS;
	query.to_ms =
		q->minutes ? query.from_ms + q->minutes * MINUTE_MS : T0 + minutes * MINUTE_MS;
	query.stacks = q->stacks ? strdup(q->stacks) : NULL;
	r = query_parse_selector(&query, q->selector, &d);
	if (r == 0)
		r = q->step_ms ? query_series(s, &query, q->step_ms, NULL, 0, &lines, &d)
			       : query_profile(s, &query, 0, &p, &d);
	if (r < 0)
		die_of(q->what, &d);
	if (q->step_ms)
		query_lines_deinit(&lines);
	profile_destroy(p);
	*cpu += (seconds(CLOCK_THREAD_CPUTIME_ID) - worked) * 1000;
	return (seconds(CLOCK_MONOTONIC) - start) * 1000;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static struct store *open_or_die(const char *url)
{
	struct store *s = NULL;
	struct diag d = {};

	if (store_open(url, NULL, &d, &s) < 0)
		die_of(url, &d);
	return s;
}

static void drop_from_cache(const char *url)
{
	_cleanup_str_ struct str path = {};
	_cleanup_close_ int fd = -1;

	str_printf(&path, "%s/profiles.db", url);
	fd = open(str_get(&path), O_RDONLY | O_CLOEXEC);
	if (fd >= 0 && fsync(fd) == 0)
		posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
}

static void ask_often(const char *url, const struct question *q, u32 minutes, u32 runs)
{
	double ms[MAX_RUNS], cold, cpu = 0, cold_cpu = 0;
	char what[128], how[128];
	struct store *s;

	drop_from_cache(url);
	s = open_or_die(url);
	cold = ask(s, q, minutes, &cold_cpu);
	for (u32 k = 0; k < runs; k++)
		ms[k] = ask(s, q, minutes, &cpu);
	store_close(s);
	qsort(ms, runs, sizeof(*ms), compare);
	snprintf(how, sizeof(how), "warm, median of %u; CPU %.1f ms", runs, cpu / runs);
	say(q->what, ms[runs / 2], "ms", how, q->must, q->aim);
	snprintf(what, sizeof(what), "%s, cold", q->what);
	snprintf(how, sizeof(how), "opened anew, not in the page cache; CPU %.1f ms", cold_cpu);
	say(what, cold, "ms", how, 0, 0);
}

int main(int argc, char **argv)
{
	u64 rows = argc > 2 ? strtoull(argv[2], NULL, 10) : 10000000;
	u32 runs = argc > 4 ? (u32)strtoul(argv[4], NULL, 10) : 5;
	size_t only = argc > 5 ? strtoul(argv[5], NULL, 10) : SIZE_MAX;
	struct store *s;
	u32 minutes;

	if (argc < 2 || !runs || runs > MAX_RUNS) {
		fprintf(stderr, "usage: bench_store URL [ROWS [MINUTES [RUNS [QUESTION]]]]\n");
		return 2;
	}
	make_zipf();
	minutes = argc > 3 ? (u32)strtoul(argv[3], NULL, 10) : 120;
	if (rows) {
		s = open_or_die(argv[1]);
		minutes = write_all(s, rows);
		store_close(s);
	}
	for (size_t i = 0; i < ARRAY_SIZE(questions); i++)
		if (only == SIZE_MAX || only == i)
			ask_often(argv[1], &questions[i], minutes, runs);
	return 0;
}
