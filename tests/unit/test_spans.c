/* SPDX-License-Identifier: Apache-2.0 */
/* Spans and links in every engine of the store (store_fixture.h chooses). */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "profile_fixture.h"
#include "server/query/query.h"
#include "server/store/block.h"
#include "server/store/span_block.h"
#include "span_fixture.h"
#include "store_fixture.h"

#define HOUR 3600000ULL
#define T0 (480000 * HOUR) /* 2024 */

static void write_spans(struct store *s, const struct spans *spans, const u8 *token)
{
	struct diag d = {};

	cr_assert_eq(store_write_spans(s, spans, token, &d), 0, "%s", d.text);
}

static void maintain(struct store *s, u64 now_ms)
{
	struct diag d = {};

	cr_assert_eq(store_maintain(s, now_ms, &d), 0, "%s", d.text);
}

/* Writes two traces: a shop's request that calls the cart, and a slow one that failed. */
static void fill(struct store *s)
{
	_cleanup_spans_ struct spans spans = {};

	cr_assert_eq(spans_init(&spans), 0);
	add_span(&spans, (struct span_of){"shop", "GET /buy", "/buy", 1, 10, 0, T0 + 100, 50,
					  SPAN_KIND_SERVER, SPAN_OK});
	add_span(&spans, (struct span_of){"shop", "call cart", NULL, 1, 11, 10, T0 + 110, 30,
					  SPAN_KIND_CLIENT, 0});
	add_span(&spans, (struct span_of){"cart", "POST /add", "/add", 1, 12, 11, T0 + 115, 20,
					  SPAN_KIND_SERVER, 0});
	add_span(&spans, (struct span_of){"shop", "GET /buy", "/buy", 2, 20, 0, T0 + HOUR + 5, 900,
					  SPAN_KIND_SERVER, SPAN_ERROR});
	write_spans(s, &spans, NULL);
}

/* want: "SERVICE NAME ENDPOINT MS;" for each span. */
static void assert_spans(struct store *s, struct store_span_filter f, const char *want)
{
	_cleanup_spans_ struct spans got = {};
	_cleanup_str_ struct str text = {};
	struct diag d = {};

	if (!f.to_ms)
		f.to_ms = T0 + 100 * HOUR;
	cr_assert_eq(store_find_spans(s, &f, &got, &d), 0, "%s", d.text);
	cr_assert(!got.damaged);
	vec_foreach (&got.spans, e)
		str_printf(&text, "%s %s %s %llu;", spans_string(&got, e->service),
			   spans_string(&got, e->name), spans_string(&got, e->endpoint),
			   e->duration_ns / 1000000);
	cr_assert_str_eq(str_get(&text), want);
}

static void assert_filters(struct store *s)
{
	u8 first[1][16];

	id_of(1, first[0], 16);
	assert_spans(s, (struct store_span_filter){.traces = first, .n_traces = 1},
		     "shop GET /buy /buy 50;shop call cart  30;cart POST /add /add 20;");
	assert_spans(s, (struct store_span_filter){.roots = true, .limit = 2},
		     "shop GET /buy /buy 900;shop GET /buy /buy 50;");
	assert_spans(s, (struct store_span_filter){.service = "cart"}, "cart POST /add /add 20;");
	assert_spans(s, (struct store_span_filter){.endpoint = "/add"}, "cart POST /add /add 20;");
	assert_spans(s, (struct store_span_filter){.statuses = 1 << SPAN_ERROR},
		     "shop GET /buy /buy 900;");
	assert_spans(s, (struct store_span_filter){.min_ns = 30000005, .max_ns = 50000005},
		     "shop GET /buy /buy 50;shop call cart  30;");
	assert_spans(s, (struct store_span_filter){.to_ms = T0 + 110}, "shop GET /buy /buy 50;");
	assert_spans(s, (struct store_span_filter){.from_ms = T0 + HOUR + 6}, "");
}

Test(spans, filters_select_spans)
{
	char *dir = scratch_dir();
	struct store *s = open_store(dir, NULL);
	struct store_stats st = {};

	fill(s);
	assert_filters(s);
	/* The answers are the same after a merge and after reopening. */
	fill(s);
	maintain(s, T0 + 3 * HOUR);
	assert_filters(s);
	store_close(s);
	s = open_store(dir, NULL);
	assert_filters(s);
	if (is_embedded()) {
		cr_assert_eq(store_get_stats(s, &st, NULL), 0);
		cr_assert_eq(st.spans, 4, "%llu", (unsigned long long)st.spans);
	}
	/* Now all spans are older than max_age. */
	maintain(s, T0 + 40 * 24 * HOUR);
	assert_spans(s, (struct store_span_filter){}, "");
	store_close(s);
	remove_store_dir(dir);
}

Test(spans, spans_keep_all_members)
{
	_cleanup_spans_ struct spans spans = {}, got = {};
	const struct store_span_filter f = {.to_ms = T0 + HOUR};
	char *dir = scratch_dir();
	struct store *s = open_store(dir, NULL);
	const struct span *e;
	u8 parent[8];

	cr_assert_eq(spans_init(&spans), 0);
	add_span(&spans, (struct span_of){"shop", "GET /buy", "/buy", 1, 10, 77, T0 + 100, 50,
					  SPAN_KIND_SERVER, SPAN_ERROR});
	spans.spans.data[0].tid = 4711;
	cr_assert_eq(spans_add_text(&spans, "it broke", &spans.spans.data[0].message), 0);
	cr_assert_eq(spans_add_attribute(&spans, &spans.spans.data[0], "user", "é"), 0);
	write_spans(s, &spans, NULL);
	cr_assert_eq(store_find_spans(s, &f, &got, NULL), 0);
	cr_assert_eq(got.spans.n, 1);
	e = got.spans.data;
	id_of(77, parent, 8);
	cr_assert_arr_eq(e->parent_id, parent, 8);
	cr_assert_eq(e->start_ns, (T0 + 100) * 1000000 + 7);
	cr_assert_eq(e->duration_ns, 50000005);
	cr_assert_eq(e->kind, SPAN_KIND_SERVER);
	cr_assert_eq(e->status, SPAN_ERROR);
	cr_assert_eq(e->flags, SPAN_ROOT);
	cr_assert_eq(e->tid, 4711);
	cr_assert_eq(e->weight, 0);
	cr_assert_str_eq(spans_string(&got, e->message), "it broke");
	cr_assert_str_eq(spans_attribute(&got, e, "user"), "é");
	cr_assert_str_eq(spans_attribute(&got, e, "http.route"), "/buy");
	cr_assert_str_eq(profile_label(got.profile, e->resource, "service.name"), "shop");
	store_close(s);
	remove_store_dir(dir);
}

Test(spans, a_token_is_written_once)
{
	_cleanup_spans_ struct spans spans = {};
	char *dir = scratch_dir();
	struct store *s = open_store(dir, NULL);
	const u8 token[16] = "once and for all";
	struct store_stats st = {};

	cr_assert_eq(spans_init(&spans), 0);
	add_span(&spans, (struct span_of){"shop", "a", NULL, 1, 10, 0, T0 + 100, 50, 0, 0});
	write_spans(s, &spans, token);
	write_spans(s, &spans, token);
	cr_assert_eq(store_get_stats(s, &st, NULL), 0);
	cr_assert_eq(st.spans, 1);
	store_close(s);
	remove_store_dir(dir);
}

Test(spans, a_share_has_whole_traces)
{
	_cleanup_spans_ struct spans spans = {}, got = {};
	const struct store_span_filter f = {.to_ms = T0 + HOUR, .share_bits = 3};
	char *dir = scratch_dir();
	struct store *s = open_store(dir, NULL);
	u32 want = 0;

	cr_assert_eq(spans_init(&spans), 0);
	for (u64 i = 1; i <= 800; i++) {
		add_span(&spans,
			 (struct span_of){"shop", "a", NULL, hash_u64(i), i, 0, T0 + i, 50, 0, 0});
		want += store_has_share(spans.spans.data[i - 1].trace_id, 3);
	}
	write_spans(s, &spans, NULL);
	cr_assert_eq(store_find_spans(s, &f, &got, NULL), 0);
	cr_assert_eq(got.spans.n, want);
	/* The share is an eighth, within 5 sigma. */
	cr_assert(want > 53 && want < 147, "%u", want);
	vec_foreach (&got.spans, e)
		cr_assert(store_has_share(e->trace_id, 3));
	store_close(s);
	remove_store_dir(dir);
}

/* ---- links ---- */

static u32 linked_to(struct profile *p, u64 trace, u64 span)
{
	struct profile_link l;
	u32 id;

	id_of(trace, l.trace_id, 16);
	id_of(span, l.span_id, 8);
	cr_assert_eq(profile_add_link(p, &l, &id), 0);
	return id;
}

static void add_linked(struct profile *p, u64 time_ms, const char *name, u32 link, s64 value)
{
	u32 of = frame(p, name, "/bin/app", 0x1000, FRAME_NATIVE, 0, 7), stack;
	u32 t = thread(p, "shop", "main", 1, 1);

	cr_assert_eq(profile_add_stack(p, &of, 1, &stack), 0);
	cr_assert_eq(profile_add_linked_sample(p, time_ms * 1000000, t, stack, link, &value), 0);
}

/* want: "TRACE SPAN FRAME VALUE;" for each link. */
static void assert_links(struct store *s, struct store_link_filter f, const char *want)
{
	_cleanup_store_links_ struct store_links got = {};
	_cleanup_profile_ struct profile *p = profile_create();
	_cleanup_str_ struct str text = {}, scratch = {};
	struct diag d = {};

	if (!f.to_ms)
		f.to_ms = T0 + 100 * HOUR;
	cr_assert_eq(store_find_links(s, &f, &got, &d), 0, "%s", d.text);
	vec_foreach (&got.links, e) {
		u32 stack;

		cr_assert_eq(store_load_stacks(s, &e->stack, 1, p, &stack, &d), 0, "%s", d.text);
		cr_assert_neq(stack, PROFILE_NONE);
		str_printf(&text, "%u %u %s %lld;", e->link.trace_id[15], e->link.span_id[7],
			   profile_frame_name(p, p->stack_frames.data[p->stacks.data[stack].first],
					      &scratch),
			   e->value);
	}
	cr_assert_str_eq(str_get(&text), want);
}

Test(spans, links_are_found_by_trace)
{
	_cleanup_profile_ struct profile *p = profile_create();
	_cleanup_spans_ struct spans spans = {};
	char *dir = scratch_dir();
	struct store *s = open_store(dir, NULL);
	const u8 token[16] = "once and for all";
	struct store_rows rows = {};
	u8 first[1][16];

	cr_assert_eq(profile_add_type(p, "cpu", "nanoseconds"), 0);
	add_linked(p, T0 + 5, "parse", linked_to(p, 1, 10), 3);
	add_linked(p, T0 + 6, "parse", linked_to(p, 1, 11), 4);
	add_linked(p, T0 + 7, "match", linked_to(p, 2, 20), 50);
	add_linked(p, T0 + 8, "match", 0, 1000);
	/* The spans and the links of a token are two batches. */
	cr_assert_eq(spans_init(&spans), 0);
	add_span(&spans, (struct span_of){"shop", "a", NULL, 1, 10, 0, T0 + 4, 50, 0, 0});
	write_spans(s, &spans, token);
	write_profile(s, p, token);
	write_profile(s, p, token);
	assert_spans(s, (struct store_span_filter){}, "shop a a 50;");
	id_of(1, first[0], 16);
	for (u32 i = 0; i < 2; i++) {
		assert_links(s, (struct store_link_filter){},
			     "1 10 parse 3;1 11 parse 4;2 20 match 50;");
		assert_links(s, (struct store_link_filter){.traces = first, .n_traces = 1},
			     "1 10 parse 3;1 11 parse 4;");
		assert_links(s, (struct store_link_filter){.from_ms = T0 + 7}, "2 20 match 50;");
		assert_links(s, (struct store_link_filter){.service = "cart"}, "");
		/* Samples with spans count once among all samples. */
		cr_assert_eq(store_scan(s,
					&(struct store_filter){.from_ms = T0, .to_ms = T0 + HOUR},
					0, 0, &rows, NULL),
			     0);
		cr_assert_eq(rows.rows.n, 1);
		cr_assert_eq(rows.rows.data[0].value, 1057);
		store_rows_deinit(&rows);
		maintain(s, T0 + 3 * HOUR);
	}
	store_close(s);
	remove_store_dir(dir);
}

/* ---- size ---- */

#define N_TRACES 20000u

static u64 noise(u64 i)
{
	return hash_u64(i * 0x9e3779b97f4a7c15ULL);
}

/* Writes requests of 10 to 20 ms; one in 200 takes 400 ms, one in 500 fails. */
static void fill_hour(struct store *s, u64 hour_ms)
{
	_cleanup_spans_ struct spans spans = {};

	cr_assert_eq(spans_init(&spans), 0);
	for (u64 i = 1; i <= N_TRACES; i++) {
		u64 trace = noise(hour_ms + i), ms = i % 200 ? 10 + noise(i) % 10 : 400;
		u8 status = i % 500 == 1 ? SPAN_ERROR : SPAN_OK;

		add_span(&spans, (struct span_of){"shop", "GET /buy", "/buy", trace, trace * 2, 0,
						  hour_ms + i * 100, ms, SPAN_KIND_SERVER, status});
		add_span(&spans,
			 (struct span_of){"shop", "query", NULL, trace, trace * 2 + 1, trace * 2,
					  hour_ms + i * 100 + 1, ms - 5, SPAN_KIND_CLIENT, 0});
	}
	write_spans(s, &spans, NULL);
}

struct kept {
	u64 spans, slow, failed, stand_for, children;
};

static struct kept count_kept(struct store *s, u64 hour_ms)
{
	_cleanup_spans_ struct spans got = {};
	const struct store_span_filter f = {.from_ms = hour_ms, .to_ms = hour_ms + HOUR};
	struct kept k = {};

	cr_assert_eq(store_find_spans(s, &f, &got, NULL), 0);
	k.spans = got.spans.n;
	vec_foreach (&got.spans, e) {
		bool root = e->flags & SPAN_ROOT;

		k.children += !root;
		k.slow += root && e->duration_ns > 300000000;
		k.failed += root && e->status == SPAN_ERROR;
		k.stand_for += root ? 1ULL << e->weight : 0;
	}
	return k;
}

/*
 * With more traces than a query reads, it takes a share that stands for all; so does thinning, with
 * a share of its own. The bound is 5 sigma, most of which comes from traces that stand for 64, of
 * which the query takes every second to fourth.
 */
static void assert_share_stands_for_all(struct store *s, u64 hours)
{
	_cleanup_query_requests_ struct query_requests all = {};
	const struct store_span_filter f = {
		.from_ms = T0, .to_ms = T0 + hours * HOUR, .roots = true};
	const struct query q = {.from_ms = f.from_ms, .to_ms = f.to_ms};
	double want = 0, got = 0;

	for (u64 h = 0; h < hours; h++)
		want += (double)count_kept(s, T0 + h * HOUR).stand_for;
	cr_assert_eq(query_requests(s, &q, &f, &all, NULL), 0);
	cr_assert_leq(all.requests.n, QUERY_MAX_TRACES);
	vec_foreach (&all.requests, e)
		got += e->stands_for;
	cr_assert(got > want - 20000 && got < want + 20000, "%g of %g", got, want);
	cr_assert_gt(want, 3 * N_TRACES);
}

Test(spans, thinning_keeps_slow_and_failed_traces)
{
	const struct store_options o = {.span_bytes = 4 << 20};
	char *dir = scratch_dir();
	struct store *s = open_store(dir, &o);
	struct store_stats st = {};
	struct kept k;

	if (!is_embedded())
		cr_skip_test("other engines drop whole days");
	for (u64 h = 0; h < 6; h++) {
		fill_hour(s, T0 + h * HOUR);
		maintain(s, T0 + (h + 1) * HOUR + 600000);
		cr_assert_eq(store_get_stats(s, &st, NULL), 0);
		cr_assert_leq(st.span_bytes, o.span_bytes, "%llu",
			      (unsigned long long)st.span_bytes);
	}
	cr_assert_gt(st.evicted_spans, 0);
	k = count_kept(s, T0 + 5 * HOUR);
	cr_assert_eq(k.spans, 2 * N_TRACES, "the newest hour is whole");
	for (u64 h = 0; h < 5; h++) {
		k = count_kept(s, T0 + h * HOUR);
		if (!k.spans)
			continue; /* the oldest hours are evicted as a whole */
		cr_assert_eq(k.slow, N_TRACES / 200, "hour %u: %u slow", (u32)h, (u32)k.slow);
		cr_assert_eq(k.failed, N_TRACES / 500, "hour %u: %u failed", (u32)h, (u32)k.failed);
		/*
		 * Traces are whole, and those that stay stand for all. Hashes choose them, so the
		 * bound is 5 sigma, with sigma = 64 * sqrt(20000 / 64).
		 */
		cr_assert_eq(k.children * 2, k.spans);
		cr_assert(k.stand_for > N_TRACES - 5700 && k.stand_for < N_TRACES + 5700, "%u",
			  (u32)k.stand_for);
	}
	assert_share_stands_for_all(s, 6);
	k = count_kept(s, T0 + 2 * HOUR);
	cr_assert(k.spans > 0 && k.spans < N_TRACES, "%u", (u32)k.spans);
	store_close(s);
	remove_store_dir(dir);
}

/* ---- damage ---- */

Test(spans, repair_keeps_whole_blocks)
{
	_cleanup_str_ struct str path = {};
	char *dir = scratch_dir();
	struct store *s = open_store(dir, NULL);
	struct store_stats st = {};
	struct stat file;
	int fd;

	if (!is_embedded())
		cr_skip_test("it has no file of ours");
	fill(s);
	for (u64 h = 0; h < 3; h++)
		fill_hour(s, T0 + (10 + h) * HOUR);
	maintain(s, T0 + 20 * HOUR);
	store_close(s);
	str_printf(&path, "%s/spans.db", dir);
	fd = open(str_get(&path), O_RDWR | O_CLOEXEC);
	cr_assert_geq(fd, 0);
	cr_assert_eq(fstat(fd, &file), 0);
	/* Damage the middle of a large block. */
	for (off_t at = file.st_size / 2; at < file.st_size / 2 + 20000; at += 512)
		cr_assert_eq(pwrite(fd, "damaged!", 8, at), 8);
	close(fd);
	s = open_store(dir, NULL);
	assert_spans(s, (struct store_span_filter){.service = "cart"}, "cart POST /add /add 20;");
	{
		_cleanup_spans_ struct spans got = {};
		const struct store_span_filter f = {.from_ms = T0 + 9 * HOUR,
						    .to_ms = T0 + 20 * HOUR};

		cr_assert_eq(store_find_spans(s, &f, &got, NULL), 0);
		cr_assert_eq(store_get_stats(s, &st, NULL), 0);
		cr_assert_gt(st.damaged, 0, "it is told");
		cr_assert_geq(got.spans.n, 2 * N_TRACES, "%zu", got.spans.n);
		cr_assert_lt(got.spans.n, 6 * N_TRACES);
	}
	store_close(s);
	remove_store_dir(dir);
}
