/* SPDX-License-Identifier: Apache-2.0 */
/* Every engine of the store (store_fixture.h chooses), and queries over it. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/quota.h"
#include "base/str.h"
#include "server/query/query.h"
#include "server/store/block.h"
#include "server/store/store.h"

#include "profile_fixture.h"
#include "store_fixture.h"

#define HOUR 3600000ULL
#define T0 (480000 * HOUR) /* 2024 */
#define CPU "process_cpu:cpu:nanoseconds:cpu:nanoseconds"

static struct profile *cpu_profile(void)
{
	struct profile *p = profile_create();

	cr_assert_eq(profile_add_type(p, "cpu", "nanoseconds"), 0);
	p->period_name = string(p, "cpu");
	p->period_unit = string(p, "nanoseconds");
	p->period = 50000000;
	return p;
}

/* Adds a thread of a service on a host. */
static u32 thread_of(struct profile *p, const char *service, const char *host, const char *name)
{
	struct profile_label labels[] = {{string(p, "service.name"), string(p, service)},
					 {string(p, "host.name"), string(p, host)}};
	struct profile_thread t = {.pid = 1, .tid = 1, .comm = string(p, "comm")};
	u32 id;

	t.thread_name = string(p, name);
	cr_assert_eq(profile_add_resource(p, labels, 2, &t.resource), 0);
	cr_assert_eq(profile_add_thread(p, &t, &id), 0);
	return id;
}

/* Adds a sample. path: names, leaf first, separated by spaces. */
static void add(struct profile *p, u64 time_ms, u32 t, const char *path, s64 samples)
{
	char text[256], *at = text, *word;
	u32 frames[16];
	size_t n = 0;

	snprintf(text, sizeof(text), "%s", path);
	while ((word = strsep(&at, " ")))
		frames[n++] = frame(p, word, "/bin/app", 0x1000, FRAME_NATIVE, 0, 7);
	sample(p, time_ms * 1000000, t, frames, n, samples * 50000000);
}

/* Writes samples of the service shop on two hosts, and of cart. */
static void fill(struct store *s)
{
	_cleanup_profile_ struct profile *p = cpu_profile();
	u32 a = thread_of(p, "shop", "web-1", "main"), b = thread_of(p, "shop", "web-2", "io");
	u32 c = thread_of(p, "cart", "web-1", "main");

	add(p, T0 + 1000, a, "parse handle main", 3);
	add(p, T0 + 2000, a, "parse handle main", 1);
	add(p, T0 + 2000, b, "parse main", 5);
	add(p, T0 + HOUR + 10, b, "json_encode render handle main", 2);
	add(p, T0 + 1500, c, "wait main", 7);
	write_profile(s, p, NULL);
}

static struct query asked(const char *selector, u64 from, u64 to)
{
	struct query q = {.from_ms = from, .to_ms = to};
	struct diag d = {};

	cr_assert_eq(query_parse_selector(&q, selector, &d), 0, "%s", d.text);
	return q;
}

static void assert_answer(struct store *s, struct query *q, size_t max, const char *want)
{
	_cleanup_profile_ struct profile *p = NULL;
	struct diag d = {};

	cr_assert_eq(query_profile(s, q, max, &p, &d), 0, "%s", d.text);
	assert_folded(p, NULL, want);
}

static void assert_query(struct store *s, const char *selector, const char *stacks, u64 from,
			 u64 to, const char *want)
{
	_cleanup_query_ struct query q = asked(selector, from, to);

	q.stacks = stacks ? strdup(stacks) : NULL;
	assert_answer(s, &q, 0, want);
}

static void assert_all(struct store *s)
{
	assert_query(s, "{}", NULL, T0, T0 + 2 * HOUR,
		     "cart;main;wait 350000000\n"
		     "shop;main;handle;parse 200000000\n"
		     "shop;main;handle;render;json_encode 100000000\n"
		     "shop;main;parse 250000000\n");
}

#define READER_BYTES (2ULL << 20) /* SQLite's for a connection, see sq_reader_get() */

/* Asks with so little memory. Returns 0, or what the quota says. */
static int ask_with(struct store *s, struct query *q, u64 bytes)
{
	struct quota quota = {.limits.bytes = bytes};
	struct profile *p = NULL;
	struct diag d = {};
	int r, why;

	quota_begin(&quota);
	r = query_profile(s, q, 0, &p, &d);
	why = quota_why(NULL);
	profile_destroy(p);
	quota_end(&quota);
	cr_assert(r == 0 || why == -EDQUOT, "%d, %d: %s", r, why, d.text);
	return r;
}

Test(store, too_little_memory_for_a_request_harms_no_other)
{
	char *dir = scratch_dir();
	struct store *s = open_store(dir, NULL);
	struct store_stats st;
	const u64 base = is_embedded() ? READER_BYTES : 0, steps = base ? 64 : 8;
	u32 refused = 0;

	fill(s);
	for (u64 bytes = 64; bytes < 1 << 20; bytes += bytes / steps + 8) {
		_cleanup_query_ struct query q = asked("{}", T0 + 1, T0 + 2 * HOUR);

		if (bytes % 5 == 0) { /* with an empty cache */
			store_close(s);
			s = open_store(dir, NULL);
		}
		q.by_series = bytes % 2;
		q.stacks = bytes % 3 ? NULL : strdup("fn=\"handle\"");
		refused += ask_with(s, &q, base + bytes) < 0;
	}
	cr_assert_gt(refused, 20);
	assert_all(s);
	cr_assert_eq(store_get_stats(s, &st, NULL), 0);
	cr_assert_eq(st.damaged, 0);
	store_close(s);
	remove_store_dir(dir);
}

Test(store, batches_survive_reopening)
{
	char *dir = scratch_dir();
	struct store *s = open_store(dir, NULL);
	struct store_stats st;

	fill(s);
	assert_all(s);
	store_close(s);
	s = open_store(dir, NULL);
	assert_all(s);
	cr_assert_eq(store_get_stats(s, &st, NULL), 0);
	cr_assert_eq(st.rows, 5);
	cr_assert_eq(st.samples, 18);
	cr_assert_eq(st.series, 3);
	cr_assert_eq(st.stacks, 4);
	cr_assert_eq(st.functions, 6);
	cr_assert_eq(st.first_ms, T0 + 1000);
	cr_assert_eq(st.last_ms, T0 + HOUR + 10);
	cr_assert_eq(st.damaged, 0);
	store_close(s);
	remove_store_dir(dir);
}

Test(store, ranges_labels_and_predicates_select_samples)
{
	char *dir = scratch_dir();
	_cleanup_store_ struct store *s = open_store(dir, NULL);

	fill(s);
	assert_query(s, "{service_name=\"shop\"}", NULL, T0 + 1000, T0 + 2000,
		     "shop;main;handle;parse 150000000\n");
	assert_query(s, CPU "{service.name=\"shop\", host.name=~\"web-[12]\"}", NULL, T0 + 2000,
		     T0 + 2001, "shop;main;handle;parse 50000000\nshop;main;parse 250000000\n");
	assert_query(s, "{host_name=\"web-2\"}", NULL, T0, T0 + HOUR,
		     "shop;main;parse 250000000\n");
	assert_query(s, "{host.name!=\"web-2\"}", NULL, T0, T0 + HOUR,
		     "cart;main;wait 350000000\nshop;main;handle;parse 200000000\n");
	assert_query(s, "{host.name!~\"web.*\"}", NULL, T0, T0 + HOUR, "");
	assert_query(s, "{nothing=\"\"}", "fn=\"parse\" under fn=\"handle\"", T0, T0 + 2 * HOUR,
		     "shop;main;handle;parse 200000000\n");
	assert_query(s, "{}", "fn~\"json.*\" or fn=\"wait\" and not fn=\"handle\"", T0,
		     T0 + 2 * HOUR,
		     "cart;main;wait 350000000\n"
		     "shop;main;handle;render;json_encode 100000000\n");
	assert_query(s, "memory:inuse_space:bytes:space:bytes{}", NULL, T0, T0 + HOUR, "");
	store_close(take_ptr(s));
	remove_store_dir(dir);
}

Test(store, scans_by_series)
{
	char *dir = scratch_dir();
	_cleanup_store_ struct store *s = open_store(dir, NULL);
	_cleanup_query_ struct query q = asked("{service.name=\"shop\"}", T0, T0 + HOUR);
	_cleanup_profile_ struct profile *p = NULL;

	fill(s);
	q.by_series = true;
	cr_assert_eq(query_profile(s, &q, 0, &p, NULL), 0);
	cr_assert_eq(p->threads.n, 2);
	cr_assert_eq(p->quality.samples, 9);
	for (size_t i = 0; i < p->threads.n; i++) {
		const char *name = profile_string(p, p->threads.data[i].thread_name);

		cr_assert_str_eq(profile_label(p, p->threads.data[i].resource, "host.name"),
				 strcmp(name, "main") ? "web-2" : "web-1");
		cr_assert_str_eq(profile_string(p, p->threads.data[i].comm), "shop");
	}
	store_close(take_ptr(s));
	remove_store_dir(dir);
}

/* Attributes of threads become labels of series, but cannot replace labels of the resource. */
Test(store, attributes_of_threads_select_series)
{
	char *dir = scratch_dir();
	_cleanup_store_ struct store *s = open_store(dir, NULL);
	struct profile *p = cpu_profile();
	static const char *const routes[] = {"/pay", "/cart"};

	for (u32 i = 0; i < 2; i++) {
		struct profile_label labels[] = {
			{string(p, "http.route"), string(p, routes[i])},
			{string(p, "service.name"), string(p, "another")},
			{string(p, "host.name"), string(p, "another")},
			{string(p, "thread.name"), string(p, "another")},
		};
		u32 id = thread_of(p, "shop", "web-1", "main");
		struct profile_thread t = p->threads.data[id];

		cr_assert_eq(profile_add_resource(p, labels, 4, &t.attributes), 0);
		cr_assert_eq(profile_add_thread(p, &t, &id), 0);
		add(p, T0, id, i ? "parse main" : "sign main", 1 + i);
	}
	write_profile(s, p, (const u8[16]){7});
	assert_query(s, "{http_route=\"/pay\"}", NULL, T0, T0 + HOUR, "shop;main;sign 50000000\n");
	assert_query(s, "{http_route!=\"/pay\", host.name=\"web-1\", thread.name=\"main\"}", NULL,
		     T0, T0 + HOUR, "shop;main;parse 100000000\n");
	assert_query(s, "{host.name=\"another\"}", NULL, T0, T0 + HOUR, "");
	profile_destroy(p);
	store_close(take_ptr(s));
	remove_store_dir(dir);
}

Test(store, queries_report_truncation)
{
	char *dir = scratch_dir();
	_cleanup_store_ struct store *s = open_store(dir, NULL);
	_cleanup_query_ struct query q = asked("{}", T0, T0 + 2 * HOUR);

	fill(s);
	assert_answer(s, &q, 2,
		      "cart;main;wait 350000000\n"
		      "shop;[2 lighter stacks] 300000000\n"
		      "shop;main;parse 250000000\n");
	store_close(take_ptr(s));
	remove_store_dir(dir);
}

Test(store, a_token_is_written_once)
{
	char *dir = scratch_dir();
	struct store *s = open_store(dir, NULL);
	_cleanup_profile_ struct profile *p = cpu_profile();
	const u8 token[16] = "abcdefghijklmno", other[16] = "bbcdefghijklmno";
	u32 a = thread_of(p, "shop", "web-1", "main");

	add(p, T0, a, "f", 1);
	write_profile(s, p, token);
	write_profile(s, p, token);
	store_close(s);
	s = open_store(dir, NULL);
	write_profile(s, p, token);
	assert_query(s, "{}", NULL, T0, T0 + 1, "shop;f 50000000\n");
	write_profile(s, p, other);
	assert_query(s, "{}", NULL, T0, T0 + 1, "shop;f 100000000\n");
	store_close(s);
	remove_store_dir(dir);
}

Test(store, scans_by_time)
{
	char *dir = scratch_dir();
	_cleanup_store_ struct store *s = open_store(dir, NULL);
	_cleanup_query_ struct query q = asked("{}", T0, T0 + 2 * HOUR);
	struct query_lines l;

	fill(s);
	cr_assert_eq(query_series(s, &q, 1000, (const char *[]){"service_name"}, 1, &l, NULL), 0);
	cr_assert_eq(l.lines.n, 2);
	cr_assert_str_eq(l.lines.data[0].labels, "shop");
	cr_assert_eq(l.lines.data[0].points.n, 3);
	cr_assert_eq(l.lines.data[0].points.data[1].time_ms, T0 + 2000);
	cr_assert_eq(l.lines.data[0].points.data[1].count, 6);
	cr_assert_eq(l.lines.data[0].points.data[1].value, 300000000);
	cr_assert_eq(l.lines.data[0].points.data[2].time_ms, T0 + HOUR);
	query_lines_deinit(&l);
	q.stacks = strdup("fn=\"handle\"");
	cr_assert_eq(query_series(s, &q, HOUR, NULL, 0, &l, NULL), 0);
	cr_assert_eq(l.lines.n, 1);
	cr_assert_eq(l.lines.data[0].points.n, 2);
	cr_assert_eq(l.lines.data[0].points.data[0].count, 4);
	cr_assert_eq(l.lines.data[0].points.data[1].count, 2);
	query_lines_deinit(&l);
	cr_assert_eq(query_series(s, &q, 1, NULL, 0, &l, NULL), -EINVAL);
	store_close(take_ptr(s));
	remove_store_dir(dir);
}

static void assert_names(struct query_names *n, size_t count, const char *const *names)
{
	cr_assert_eq(n->names.n, count);
	for (size_t i = 0; i < count; i++)
		cr_assert_str_eq(n->names.data[i].name, names[i]);
	query_names_deinit(n);
}

Test(store, lists_labels_and_types)
{
	char *dir = scratch_dir();
	_cleanup_store_ struct store *s = open_store(dir, NULL);
	_cleanup_query_ struct query q = asked("{}", T0, T0 + 2 * HOUR);
	struct query_names n;

	fill(s);
	cr_assert_eq(query_label_names(s, &q, &n, NULL), 0);
	cr_assert_eq(n.names.data[0].n_series, 3);
	assert_names(&n, 3, (const char *[]){"host.name", "service.name", "thread.name"});
	cr_assert_eq(query_label_values(s, &q, "service_name", &n, NULL), 0);
	cr_assert_eq(n.names.data[1].n_series, 2);
	cr_assert_eq(n.names.data[1].last_ms, T0 + HOUR + 10);
	assert_names(&n, 2, (const char *[]){"cart", "shop"});
	cr_assert_eq(query_types(s, &q, &n, NULL), 0);
	assert_names(&n, 1, (const char *[]){CPU});
	store_close(take_ptr(s));
	remove_store_dir(dir);
}

static bool is_handle(void *userdata, const char *name)
{
	return !strcmp(name, "handle");
}

Test(store, stacks_are_found_by_name)
{
	char *dir = scratch_dir();
	_cleanup_store_ struct store *s = open_store(dir, NULL);
	struct store_ids ids;

	fill(s);
	cr_assert_eq(store_find_stacks(s, "shop", is_handle, NULL, &ids, NULL), 0);
	cr_assert_eq(ids.ids.n, 2);
	cr_assert_lt(ids.ids.data[0], ids.ids.data[1]);
	vec_deinit(&ids.ids);
	cr_assert_eq(store_find_stacks(s, "cart", is_handle, NULL, &ids, NULL), 0);
	cr_assert_eq(ids.ids.n, 0);
	vec_deinit(&ids.ids);
	store_close(take_ptr(s));
	remove_store_dir(dir);
}

Test(store, refuses_profiles_that_cannot_be_stored)
{
	_cleanup_profile_ struct profile *p = cpu_profile();
	_cleanup_store_batch_ struct store_batch b = {};
	struct diag d = {};

	add(p, 0, thread_of(p, "a", "b", "c"), "f", 1);
	cr_assert_eq(store_batch_init(&b, p, NULL, &d), -EINVAL);
	cr_assert(strstr(d.text, "time"), "%s", d.text);
	p->time_ns = 1ULL << 63;
	cr_assert_eq(store_batch_init(&b, p, NULL, &d), -EINVAL);
	p->time_ns = T0 * 1000000;
	cr_assert_eq(store_batch_init(&b, p, "colon:in:name", &d), 0);
	cr_assert_str_eq(b.types[0], "colon_in_name:cpu:nanoseconds:cpu:nanoseconds");
	cr_assert_eq(b.samples.n, 1);
	cr_assert_eq(b.samples.data[0].time_ms, T0);
}

/* Two groups have a type of this name. */
Test(store, the_period_tells_the_group_of_a_type)
{
	static const struct {
		const char *period, *type;
	} rows[] = {
		{"wall", "wall:wall:nanoseconds:wall:nanoseconds"},
		{"request", "request:wall:nanoseconds:request:nanoseconds"},
		{"cpu", "wall:wall:nanoseconds:cpu:nanoseconds"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		_cleanup_profile_ struct profile *p = profile_create();
		_cleanup_store_batch_ struct store_batch b = {};
		struct diag d = {};

		cr_assert_eq(profile_add_type(p, "wall", "nanoseconds"), 0);
		p->period_name = string(p, rows[i].period);
		p->period_unit = string(p, "nanoseconds");
		p->time_ns = T0 * 1000000;
		add(p, 0, thread_of(p, "a", "b", "c"), "f", 1);
		cr_assert_eq(store_batch_init(&b, p, NULL, &d), 0, "%s", d.text);
		cr_assert_str_eq(b.types[0], rows[i].type);
	}
}

Test(store, urls_choose_the_engine)
{
	struct store *s;
	struct diag d = {};

	cr_assert_str_eq(store_directory("/var/lib/culprit"), "/var/lib/culprit");
	cr_assert_str_eq(store_directory("sqlite:///var/lib/culprit"), "/var/lib/culprit");
	cr_assert_null(store_directory("clickhouse://host/database"));
	cr_assert_null(store_directory("mysql:///var/lib"));
	cr_assert_eq(store_open("mysql://user:secret@host", NULL, &d, &s), -EINVAL);
	cr_assert_not_null(strstr(d.text, "mysql://"), "%s", d.text);
	cr_assert_null(strstr(d.text, "secret"), "%s", d.text);
}

Test(store, a_directory_has_one_process)
{
	char *dir = scratch_dir();
	_cleanup_store_ struct store *s = open_store(dir, NULL);
	struct store *again = NULL;
	struct diag d = {};

	if (!is_embedded())
		cr_skip("of the embedded store");

	cr_assert_eq(store_open(dir, NULL, &d, &again), -EBUSY);
	cr_assert(strstr(d.text, "in use"), "%s", d.text);
	store_close(take_ptr(s));
	remove_store_dir(dir);
}

/* ---- maintenance ---- */

#define DAY (24 * HOUR)

static u64 count_of(struct store *s, u64 *ret_resolution)
{
	const struct store_filter f = {.to_ms = 1ULL << 42};
	struct store_rows rows;
	struct diag d = {};
	u64 count = 0;

	cr_assert_eq(store_scan(s, &f, STORE_BY_STACK, 0, &rows, &d), 0, "%s", d.text);
	vec_foreach (&rows.rows, e)
		count += e->count;
	if (ret_resolution)
		*ret_resolution = rows.resolution_ms;
	store_rows_deinit(&rows);
	return count;
}

static void maintain(struct store *s, u64 now_ms)
{
	struct diag d = {};

	cr_assert_eq(store_maintain(s, now_ms, &d), 0, "%s", d.text);
}

/* Checks after each step of maintenance that every sample is there once. */
static u64 maintain_until(struct store *s, u64 now_ms, u64 resolution)
{
	u64 is = 0;

	for (int i = 0; i < 200 && is != resolution; i++) {
		maintain(s, now_ms);
		cr_assert_eq(count_of(s, &is), 18);
		now_ms += 1000;
	}
	cr_assert_eq(is, resolution);
	return now_ms;
}

static void assert_times(struct store *s, u64 unit, size_t n)
{
	const struct store_filter f = {.to_ms = T0 + DAY};
	struct store_rows rows;
	struct diag d = {};

	cr_assert_eq(store_scan(s, &f, STORE_BY_TIME | STORE_BY_STACK | STORE_BY_SERIES, 1000,
				&rows, &d),
		     0, "%s", d.text);
	cr_assert_eq(rows.rows.n, n);
	vec_foreach (&rows.rows, e)
		cr_assert_eq(e->time_ms % unit, 0);
	store_rows_deinit(&rows);
}

Test(store, old_times_are_rounded)
{
	static const struct store_tier tiers[] = {{DAY / 1000, 60000}, {7 * DAY / 1000, HOUR}, {}};
	const struct store_options o = {.tiers = tiers, .max_age_s = 400 * DAY / 1000};
	char *dir = scratch_dir();
	_cleanup_store_ struct store *s = open_store(dir, &o);
	u64 now;

	fill(s);
	maintain(s, T0 + 2 * HOUR);
	assert_all(s);
	now = maintain_until(s, T0 + 3 * DAY, 60000);
	assert_times(s, 60000, 4);
	assert_all(s);
	/* A late sample is not lost. */
	fill(s);
	cr_assert_eq(count_of(s, NULL), 36);
	store_close(take_ptr(s));
	remove_store_dir(dir);
	dir = scratch_dir();
	s = open_store(dir, &o);
	fill(s);
	maintain_until(s, now, 60000);
	maintain_until(s, T0 + 9 * DAY, HOUR);
	assert_times(s, HOUR, 4);
	assert_all(s);
	store_close(take_ptr(s));
	remove_store_dir(dir);
}

/* Writes a state every ten seconds; every second state has two stacks. */
static void write_states(struct store *s)
{
	for (u64 i = 0; i < 12; i++) {
		_cleanup_profile_ struct profile *p = profile_create();
		u32 t = thread_of(p, "shop", "web-1", "main");
		u32 cache = frame(p, "cache", "/bin/app", 0x1000, FRAME_NATIVE, 0, 7);
		u32 burst = frame(p, "burst", "/bin/app", 0x1000, FRAME_NATIVE, 0, 7);

		cr_assert_eq(profile_add_type(p, "inuse_space", "bytes"), 0);
		sample(p, (T0 + i * 10000) * 1000000, t, &cache, 1, 600);
		if (i % 2)
			sample(p, (T0 + i * 10000) * 1000000, t, &burst, 1, 100);
		write_profile(s, p, NULL);
	}
}

static void assert_mean(struct store *s, u64 step_ms, u64 n_points)
{
	_cleanup_query_ struct query q = asked("{}", T0, T0 + HOUR);
	struct query_lines l;

	cr_assert_eq(query_series(s, &q, step_ms, NULL, 0, &l, NULL), 0);
	cr_assert_eq(l.lines.n, 1);
	cr_assert_eq(l.lines.data[0].points.n, n_points);
	vec_foreach (&l.lines.data[0].points, e)
		cr_assert_eq(e->value, 650);
	query_lines_deinit(&l);
}

Test(store, states_have_a_mean_after_times_are_rounded)
{
	static const struct store_tier tiers[] = {{DAY / 1000, HOUR}, {}};
	const struct store_options o = {.tiers = tiers};
	char *dir = scratch_dir();
	_cleanup_store_ struct store *s = open_store(dir, &o);
	u64 resolution = 0;

	write_states(s);
	assert_mean(s, 60000, 2);
	assert_mean(s, HOUR, 1);
	for (u64 i = 0; i < 200 && resolution != HOUR; i++) {
		maintain(s, T0 + 3 * DAY + i * 1000);
		cr_assert_eq(count_of(s, &resolution), 18);
	}
	cr_assert_eq(resolution, HOUR);
	assert_mean(s, 60000, 1);
	store_close(take_ptr(s));
	remove_store_dir(dir);
}

Test(store, samples_beyond_max_age_are_evicted)
{
	const struct store_options o = {.max_age_s = 5 * DAY / 1000};
	char *dir = scratch_dir();
	_cleanup_store_ struct store *s = open_store(dir, &o);
	struct store_stats st;

	fill(s);
	maintain(s, T0 + 4 * DAY);
	cr_assert_eq(count_of(s, NULL), 18);
	maintain(s, T0 + 7 * DAY);
	cr_assert_eq(count_of(s, NULL), 0);
	cr_assert_eq(store_get_stats(s, &st, NULL), 0);
	/* Four if two rows had been rounded into one. */
	cr_assert(st.evicted_rows >= 4 && st.evicted_rows <= 5, "%llu", st.evicted_rows);
	store_close(take_ptr(s));
	remove_store_dir(dir);
}

/* Writes a day of samples that do not compress. */
static void write_day(struct store *s, u64 day, u32 n)
{
	_cleanup_profile_ struct profile *p = cpu_profile();
	u32 t = thread_of(p, "shop", "web-1", "main");
	u64 x = day + 1;

	for (u32 i = 0; i < n; i++) {
		char name[16];

		x = x * 6364136223846793005 + 1442695040888963407;
		snprintf(name, sizeof(name), "f%u", i % 200);
		add(p, T0 + day * DAY + (x >> 40) % DAY, t, name, 1 + (s64)(x >> 50));
	}
	write_profile(s, p, NULL);
}

static u64 bytes_of(struct store *s)
{
	struct store_stats st;

	cr_assert_eq(store_get_stats(s, &st, NULL), 0);
	return st.bytes;
}

static size_t stacks_in(struct store *s, const struct store_filter *f)
{
	struct store_rows rows;
	size_t n;

	cr_assert_eq(store_scan(s, f, STORE_BY_STACK, 0, &rows, NULL), 0);
	n = rows.rows.n;
	store_rows_deinit(&rows);
	return n;
}

Test(store, the_oldest_samples_are_evicted_at_max_bytes)
{
	struct store_options o = {.max_age_s = 400 * DAY / 1000};
	const struct store_filter first = {.from_ms = T0, .to_ms = T0 + DAY};
	const struct store_filter last = {.from_ms = T0 + 4 * DAY, .to_ms = T0 + 5 * DAY};
	char *dir = scratch_dir();
	_cleanup_store_ struct store *s = open_store(dir, &o);

	for (u64 day = 0; day < 5; day++)
		write_day(s, day, 20000);
	for (u64 i = 0; i < 20; i++)
		maintain(s, T0 + 5 * DAY + i * 1000);
	store_close(take_ptr(s));
	s = open_store(dir, &o);
	o.max_bytes = bytes_of(s) / 2;
	store_close(take_ptr(s));
	s = open_store(dir, &o);
	for (u64 i = 0; i < 100 && stacks_in(s, &first); i++)
		maintain(s, T0 + 5 * DAY + i * 1000);
	cr_assert_eq(stacks_in(s, &first), 0);
	cr_assert_eq(stacks_in(s, &last), 200);
	store_close(take_ptr(s));
	remove_store_dir(dir);
}
