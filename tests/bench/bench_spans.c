/* SPDX-License-Identifier: Apache-2.0 */
/*
 *	bench_spans URL [TRACES]
 *
 * Spans in a store, with samples in them: the time to write them, their size, and the time of
 * queries. URL as in --store; the store must be empty. Prints one JSON object per line.
 *
 * The data: an hour of requests to 5 services in a row (each called by the one before), 20
 * endpoints, 2 spans beside the entry in each service, so 15 spans a trace; 3 attributes a span;
 * ids at random. Requests take 20 to 60 ms, one in a hundred 500 ms. A sample for each 50 ms of a
 * request, at least one, in one of its spans, on one of 2,000 stacks of 20 frames. 200 traces are
 * a batch of spans, and one of samples.
 *
 * `plain`, for comparison with blocks, is a table of SQLite with the same spans as rows, in the
 * same batches, with the two indexes that the queries need (trace; service, endpoint, start).
 */
#include <math.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "server/query/query.h"
#include "server/store/store.h"
#include "tests/bench/bench.h"

#define T0 (480000ULL * 3600000)
#define BATCH 200u
#define SERVICES 5u
#define ENDPOINTS 20u
#define STACKS 2000u
#define DEPTH 20u
#define RUNS 5

static void say(const char *what, double value, const char *unit, const char *how)
{
	printf("{\"what\": \"spans: %s\", \"value\": %.6g, \"unit\": \"%s\", \"how\": \"%s\"}\n",
	       what, value, unit, how);
	fflush(stdout);
}

static void die_of(const char *what, const struct diag *d)
{
	fprintf(stderr, "bench_spans: %s: %s\n", what, d->text);
	exit(1);
}

/* ---- data ---- */

static u32 text(struct profile *p, const char *s)
{
	u32 id = 0;

	profile_add_string(p, s, strlen(s), &id);
	return id;
}

static u32 stack_of(struct profile *p, u32 n)
{
	u32 frames[DEPTH], stack = 0;
	char name[64];

	for (u32 i = 0; i < DEPTH; i++) {
		struct profile_frame f = {.kind = FRAME_NATIVE, .mapping = PROFILE_NONE};
		struct profile_function fn = {};

		snprintf(name, sizeof(name), "shop::Service%llu::call",
			 hash_u64(n / (1 + i * i) * 64ULL + i) % (i ? 400 : 2000));
		fn.name = fn.system_name = text(p, name);
		profile_add_function(p, &fn, &f.function);
		profile_add_frame(p, &f, &frames[i]);
	}
	profile_add_stack(p, frames, DEPTH, &stack);
	return stack;
}

static void add_span(struct spans *s, u32 service, u32 kind, u64 trace[2], u64 parent, u64 *ret_id,
		     u64 start_ns, u64 ns, u32 endpoint)
{
	struct span e = {.start_ns = start_ns, .duration_ns = ns, .kind = (u8)kind};
	struct profile_label l;
	char name[64];

	*ret_id = roll();
	memcpy(e.trace_id, trace, 16);
	memcpy(e.span_id, ret_id, 8);
	memcpy(e.parent_id, &parent, 8);
	snprintf(name, sizeof(name), "service-%u", service);
	spans_add_text(s, name, &e.service);
	l = (struct profile_label){text(s->profile, "service.name"), e.service};
	profile_add_resource(s->profile, &l, 1, &e.resource);
	snprintf(name, sizeof(name), kind == SPAN_KIND_SERVER ? "GET /endpoint/%u" : "step %u",
		 endpoint);
	spans_add_text(s, name, &e.name);
	spans_add_attribute(s, &e, "http.request.method", "GET");
	snprintf(name, sizeof(name), "/endpoint/%u", endpoint);
	spans_add_attribute(s, &e, kind == SPAN_KIND_SERVER ? "http.route" : "code.function", name);
	snprintf(name, sizeof(name), "user-%llu", roll() % 10000);
	spans_add_attribute(s, &e, "enduser.id", name);
	if (kind == SPAN_KIND_SERVER) {
		e.flags = SPAN_ROOT;
		spans_set_endpoint(s, &e);
	}
	if (vec_push(&s->spans, e) < 0)
		exit(1);
}

static void add_sample(struct profile *p, u32 thread, const u64 trace[2], u64 span, u64 time_ns)
{
	struct profile_link l;
	s64 value = 50000000;
	u32 link = 0;

	memcpy(l.trace_id, trace, 16);
	memcpy(l.span_id, &span, 8);
	profile_add_link(p, &l, &link);
	profile_add_linked_sample(p, time_ns, thread, stack_of(p, (u32)(roll() % STACKS)), link,
				  &value);
}

static void make_trace(struct spans *s, struct profile *p, const u32 *threads, u64 at_ns)
{
	u64 ns = roll() % 100 ? 20000000 + roll() % 40000000 : 500000000;
	u64 trace[2] = {roll(), roll()}, parent = 0;

	for (u32 k = 0; k < SERVICES; k++) {
		u64 entry, step, call, start = at_ns + k * 1000000 + roll() % 1000000;
		u64 took = ns - k * 3000000;

		add_span(s, k, SPAN_KIND_SERVER, trace, parent, &entry, start, took,
			 (u32)(roll() % ENDPOINTS));
		add_span(s, k, SPAN_KIND_INTERNAL, trace, entry, &step, start + 200000, took / 4,
			 (u32)(roll() % 7));
		add_span(s, k, SPAN_KIND_CLIENT, trace, entry, &call, start + 900000, took / 2,
			 (u32)(roll() % 7));
		for (u64 t = 0; t <= took / SERVICES; t += 50000000)
			add_sample(p, threads[k], trace, roll() % 3 ? entry : step, start + t);
		parent = call;
	}
}

static struct profile *make_profile(u32 threads[SERVICES])
{
	struct profile *p = profile_create();
	char name[64];

	profile_add_type(p, "cpu", "nanoseconds");
	p->period_name = text(p, "cpu");
	p->period_unit = text(p, "nanoseconds");
	p->period = 50000000;
	for (u32 k = 0; k < SERVICES; k++) {
		struct profile_thread t = {};
		struct profile_label l = {.name = text(p, "service.name")};

		snprintf(name, sizeof(name), "service-%u", k);
		t.comm = l.value = text(p, name);
		profile_add_resource(p, &l, 1, &t.resource);
		profile_add_thread(p, &t, &threads[k]);
	}
	return p;
}

/* ---- as plain rows ---- */

static sqlite3 *open_plain(const char *dir)
{
	_cleanup_str_ struct str path = {};
	sqlite3 *db = NULL;

	str_printf(&path, "%s.plain", dir);
	if (sqlite3_open(str_get(&path), &db) != SQLITE_OK ||
	    sqlite3_exec(
		    db,
		    "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;"
		    "CREATE TABLE texts(n INTEGER PRIMARY KEY, t TEXT UNIQUE);"
		    "CREATE TABLE spans(trace BLOB, span BLOB, parent BLOB, start INTEGER,"
		    " duration INTEGER, service INTEGER, name INTEGER, endpoint INTEGER,"
		    " flags INTEGER, attributes BLOB);"
		    "CREATE INDEX by_trace ON spans(trace);"
		    "CREATE INDEX by_endpoint ON spans(service,endpoint,start) WHERE endpoint>0;",
		    NULL, NULL, NULL) != SQLITE_OK)
		exit(1);
	return db;
}

static void write_plain(sqlite3 *db, const struct spans *s)
{
	sqlite3_stmt *st = NULL;

	sqlite3_exec(db, "BEGIN", NULL, NULL, NULL);
	sqlite3_prepare_v2(db, "INSERT INTO spans VALUES(?,?,?,?,?,?,?,?,?,?)", -1, &st, NULL);
	for (size_t i = 0; i < s->spans.n; i++) {
		const struct span *e = &s->spans.data[i];
		u32 attributes[2 * SPAN_MAX_ATTRIBUTES];

		/* Numbers of texts, as if they were looked up at no cost. */
		for (u32 k = 0; k < e->n; k++) {
			attributes[2 * k] = s->attributes.data[e->first + k].name;
			attributes[2 * k + 1] = s->attributes.data[e->first + k].value;
		}
		sqlite3_reset(st);
		sqlite3_bind_blob(st, 1, e->trace_id, 16, SQLITE_STATIC);
		sqlite3_bind_blob(st, 2, e->span_id, 8, SQLITE_STATIC);
		sqlite3_bind_blob(st, 3, e->parent_id, 8, SQLITE_STATIC);
		sqlite3_bind_int64(st, 4, (s64)e->start_ns);
		sqlite3_bind_int64(st, 5, (s64)e->duration_ns);
		sqlite3_bind_int64(st, 6, e->service);
		sqlite3_bind_int64(st, 7, e->name);
		sqlite3_bind_int64(st, 8, e->endpoint);
		sqlite3_bind_int64(st, 9, e->kind | e->flags << 4);
		sqlite3_bind_blob(st, 10, attributes, (int)(e->n * 8), SQLITE_STATIC);
		if (sqlite3_step(st) != SQLITE_DONE)
			exit(1);
	}
	sqlite3_finalize(st);
	sqlite3_exec(db, "COMMIT", NULL, NULL, NULL);
}

static void end_plain(const char *dir, sqlite3 *db, double took, u64 spans)
{
	_cleanup_str_ struct str path = {};
	struct stat st = {};

	sqlite3_close(db);
	str_printf(&path, "%s.plain", dir);
	if (stat(str_get(&path), &st) == 0) {
		say("plain rows: ingest", (double)spans / took / 1e3, "k spans/s", "a core");
		say("plain rows: bytes a span", (double)st.st_size / (double)spans, "B", "");
	}
}

/* ---- writing ---- */

struct written {
	u64 spans, samples;
	double spans_s, samples_s, plain_s;
	u8 trace[16];
};

static void write_batch(struct store *s, sqlite3 *plain, u64 at_ms, u64 step_ms, struct written *w)
{
	u32 threads[SERVICES];
	_cleanup_profile_ struct profile *p = make_profile(threads);
	_cleanup_store_batch_ struct store_batch b = {};
	_cleanup_spans_ struct spans spans = {};
	struct diag d = {};
	u8 token[16];
	double start;

	if (spans_init(&spans) < 0)
		exit(1);
	for (u32 i = 0; i < BATCH; i++)
		make_trace(&spans, p, threads, (at_ms + i * step_ms / BATCH) * 1000000);
	memcpy(token, &at_ms, 8);
	memcpy(token + 8, "spansbat", 8);
	memcpy(w->trace, spans.spans.data[0].trace_id, 16);
	w->spans += spans.spans.n;
	start = seconds(CLOCK_THREAD_CPUTIME_ID);
	if (store_write_spans(s, &spans, token, &d) < 0)
		die_of("write", &d);
	w->spans_s += seconds(CLOCK_THREAD_CPUTIME_ID) - start;
	start = seconds(CLOCK_THREAD_CPUTIME_ID);
	if (store_batch_init(&b, p, NULL, &d) < 0 || store_write(s, &b, token, &d) < 0)
		die_of("write", &d);
	w->samples_s += seconds(CLOCK_THREAD_CPUTIME_ID) - start;
	w->samples += b.samples.n;
	start = seconds(CLOCK_THREAD_CPUTIME_ID);
	if (plain)
		write_plain(plain, &spans);
	w->plain_s += seconds(CLOCK_THREAD_CPUTIME_ID) - start;
}

static double maintain(struct store *s, u64 now_ms)
{
	double start = seconds(CLOCK_THREAD_CPUTIME_ID);
	struct diag d = {};

	if (store_maintain(s, now_ms, &d) < 0)
		die_of("maintain", &d);
	return seconds(CLOCK_THREAD_CPUTIME_ID) - start;
}

static void write_all(const char *url, struct store *s, u32 traces, struct written *w)
{
	sqlite3 *plain = strstr(url, "://") ? NULL : open_plain(url);
	u32 batches = traces / BATCH;
	u64 step_ms = 3600000 / MAX(batches, 1u);
	struct store_stats st = {};
	double kept = 0;

	for (u32 i = 0; i < batches; i++) {
		write_batch(s, plain, T0 + i * step_ms, step_ms, w);
		if (i % 20 == 19)
			kept += maintain(s, T0 + i * step_ms);
	}
	for (u32 i = 0; i < 5; i++)
		kept += maintain(s, T0 + 2 * 3600000);
	store_get_stats(s, &st, NULL);
	say("spans written", (double)w->spans, "", "15 a trace, 3 attributes");
	say("ingest", (double)w->spans / w->spans_s / 1e3, "k spans/s", "a core");
	say("samples with spans, ingest", (double)w->samples / w->samples_s / 1e3, "k rows/s",
	    "a core, both places");
	say("merging", kept, "s of CPU", "all of it");
	if (st.span_bytes)
		say("bytes a span", (double)st.span_bytes / (double)st.spans, "B",
		    "with their samples");
	say("samples of spans", (double)st.span_samples, "", "");
	if (plain)
		end_plain(url, plain, w->plain_s, w->spans);
}

/* ---- questions ---- */

enum asked { ASK_SLOWEST, ASK_TRACE, ASK_ENDPOINT, ASK_ENDPOINTS, ASKED };

static const char *const names[ASKED] = {"the 50 slowest of an endpoint, an hour",
					 "a trace by its id", "flame graph of an endpoint, an hour",
					 "all endpoints, an hour"};

/* Milliseconds; what of it was CPU is added to *cpu. */
static double ask(struct store *s, enum asked what, const struct written *w, double *cpu)
{
	double worked = seconds(CLOCK_THREAD_CPUTIME_ID);
	double start = seconds(CLOCK_MONOTONIC);
	_cleanup_query_requests_ struct query_requests all = {};
	_cleanup_profile_ struct profile *p = NULL;
	_cleanup_query_ struct query q = {.from_ms = T0, .to_ms = T0 + 3600000};
	_cleanup_trace_set_ struct trace_set t = {};
	_cleanup_spans_ struct spans found = {};
	struct store_span_filter f = {.from_ms = T0, .to_ms = T0 + 3600000, .roots = true};
	struct diag d = {};
	int r = 0;

	switch (what) {
	case ASK_SLOWEST:
		f.endpoint = "GET /endpoint/7";
		f.service = "service-2";
		f.limit = 50;
		r = store_find_spans(s, &f, &found, &d);
		break;
	case ASK_TRACE:
		r = trace_set_load(s, &w->trace, 1, NULL, &t, &d);
		break;
	case ASK_ENDPOINT:
		q.spans.of = QUERY_OF_REQUESTS;
		q.spans.service = strdup("service-2");
		q.spans.endpoint = strdup("GET /endpoint/7");
		r = query_profile(s, &q, 0, &p, &d);
		break;
	default:
		r = query_requests(s, &q, &f, &all, &d);
	}
	if (r < 0)
		die_of(names[what], &d);
	*cpu += (seconds(CLOCK_THREAD_CPUTIME_ID) - worked) * 1000;
	return (seconds(CLOCK_MONOTONIC) - start) * 1000;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

int main(int argc, char **argv)
{
	struct written w = {};
	struct store *s = NULL;
	struct diag d = {};

	if (argc < 2) {
		fprintf(stderr, "usage: bench_spans URL [TRACES]\n");
		return 2;
	}
	if (store_open(argv[1], NULL, &d, &s) < 0)
		die_of(argv[1], &d);
	write_all(argv[1], s, argc > 2 ? (u32)strtoul(argv[2], NULL, 10) : 40000, &w);
	for (enum asked what = 0; what < ASKED; what++) {
		double ms[RUNS], cpu = 0;
		char how[64];

		for (u32 k = 0; k < RUNS; k++)
			ms[k] = ask(s, what, &w, &cpu);
		qsort(ms, RUNS, sizeof(*ms), compare);
		snprintf(how, sizeof(how), "warm, median of 5; CPU %.1f ms", cpu / RUNS);
		say(names[what], ms[RUNS / 2], "ms", how);
	}
	store_close(s);
	return 0;
}
