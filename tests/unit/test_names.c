/* SPDX-License-Identifier: Apache-2.0 */
/* Late symbols in a store: frames that were written as binary and address get names. */
#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/str.h"
#include "server/query/query.h"
#include "server/store/store.h"

#include "profile_fixture.h"
#include "store_fixture.h"

#define HOUR 3600000ULL
#define T0 (480000 * HOUR) /* 2024 */
#define BUILD "0123456789abcdef"
#define OTHER "fedcba9876543210"
#define NOWHERE 0xdead0 /* an address without a symbol */

static struct profile *cpu_profile(void)
{
	struct profile *p = profile_create();

	cr_assert_eq(profile_add_type(p, "cpu", "nanoseconds"), 0);
	p->period_name = string(p, "cpu");
	p->period_unit = string(p, "nanoseconds");
	p->period = 1;
	return p;
}

static u32 raw(struct profile *p, const char *build_id, u64 address, u8 kind)
{
	struct profile_mapping m = {.path = string(p, "/opt/app"), .build_id = string(p, build_id)};
	struct profile_frame f = {.address = address, .function = PROFILE_NONE, .kind = kind};
	u32 id;

	cr_assert_eq(profile_add_mapping(p, &m, &f.mapping), 0);
	cr_assert_eq(profile_add_frame(p, &f, &id), 0);
	return id;
}

static void add_raw(struct profile *p, u64 time_ms, const char *build_id, u64 address)
{
	u32 frames[] = {raw(p, build_id, address, FRAME_NATIVE),
			frame(p, "main", NULL, 0x10, FRAME_NATIVE, 0, 0)};

	sample(p, time_ms * 1000000, thread(p, "app", "t", 1, 1), frames, 2, 1);
}

static void write_addresses(struct store *s, u64 time_ms, u64 first, size_t n)
{
	_cleanup_profile_ struct profile *p = cpu_profile();

	for (size_t i = 0; i < n; i++)
		add_raw(p, time_ms, BUILD, first + i * 0x10);
	write_profile(s, p, NULL);
}

/* Names an address fn_ADDRESS, with tiny() inlined into it. */
struct symbols_of_test {
	u32 asked;
	u32 kill_after; /* 0 = never */
	const char *prefix;
};

static int name(void *userdata, u64 address, struct profile *into, u32 *ret_frames, size_t max)
{
	struct symbols_of_test *t = userdata;
	char text[64];

	t->asked++;
	if (t->kill_after && t->asked > t->kill_after)
		kill(getpid(), SIGKILL);
	if (address == NOWHERE)
		return 0;
	snprintf(text, sizeof(text), "%s_%llx", t->prefix ? t->prefix : "fn", address);
	ret_frames[0] = frame(into, "tiny", NULL, 0, FRAME_NATIVE, PROFILE_FRAME_INLINED, 7);
	ret_frames[1] = frame(into, text, NULL, 0, FRAME_NATIVE, 0, 12);
	return max < 2 ? -EINVAL : 2;
}

static u32 name_all(struct store *s, const char *build_id)
{
	struct symbols_of_test t = {};
	struct diag d = {};

	cr_assert_eq(store_name_frames(s, build_id, name, &t, &d), 0, "%s", d.text);
	return t.asked;
}

static struct profile *answer(struct store *s)
{
	_cleanup_query_ struct query q = {.from_ms = T0, .to_ms = T0 + 1000 * HOUR};
	struct profile *p = NULL;
	struct diag d = {};

	cr_assert_eq(query_parse_selector(&q, "{}", &d), 0);
	cr_assert_eq(query_profile(s, &q, 1000000, &p, &d), 0, "%s", d.text);
	return p;
}

static void assert_answer(struct store *s, const char *want)
{
	_cleanup_profile_ struct profile *p = answer(s);

	assert_folded(p, NULL, want);
}

/* Returns how many stacks have names. Each must have all of its names or none. */
static size_t count_named(struct store *s, size_t *ret_stacks)
{
	_cleanup_profile_ struct profile *p = answer(s);
	_cleanup_str_ struct str scratch = {};
	size_t named = 0;
	bool ok = true;

	for (size_t i = 0; i < p->n_samples; i++) {
		const struct profile_stack *st = &p->stacks.data[profile_sample(p, i)->stack];
		const u32 *frames = p->stack_frames.data + st->first;

		if (st->n == 2) {
			ok &= str_starts(profile_frame_name(p, frames[0], &scratch), "app+0x");
			continue;
		}
		ok &= st->n == 3 && !strcmp(profile_frame_name(p, frames[0], &scratch), "tiny");
		ok &= p->frames.data[frames[0]].flags & PROFILE_FRAME_INLINED;
		ok &= str_starts(profile_frame_name(p, frames[1], &scratch), "fn_");
		ok &= !strcmp(profile_frame_name(p, frames[2], &scratch), "main");
		named++;
	}
	cr_assert(ok);
	*ret_stacks = p->n_samples;
	return named;
}

Test(names, frames_get_late_names)
{
	char *dir = scratch_dir();
	struct store *s = open_store(dir, NULL);
	_cleanup_profile_ struct profile *p = cpu_profile();
	static const char want[] = "app;main;app+0x2000 1\n"
				   "app;main;app+0xdead0 1\n"
				   "app;main;fn_1000;tiny 2\n";

	add_raw(p, T0, BUILD, 0x1000);
	add_raw(p, T0 + HOUR, BUILD, 0x1000);
	add_raw(p, T0, BUILD, NOWHERE);
	add_raw(p, T0, OTHER, 0x2000);
	write_profile(s, p, NULL);
	assert_answer(s, "app;main;app+0x1000 2\napp;main;app+0x2000 1\napp;main;app+0xdead0 1\n");
	cr_assert_eq(name_all(s, "0000"), 0, "no frame is of that build-id");
	cr_assert_eq(name_all(s, BUILD), 2);
	assert_answer(s, want);
	/* A second call does not ask for frames that have names. */
	cr_assert_eq(name_all(s, BUILD), 1);
	assert_answer(s, want);
	store_close(s);
	s = open_store(dir, NULL);
	assert_answer(s, want);
	/* A later batch with a known address and a new one. */
	write_addresses(s, T0 + 2 * HOUR, 0x1000, 2);
	assert_answer(s, "app;main;app+0x1010 1\napp;main;app+0x2000 1\n"
			 "app;main;app+0xdead0 1\napp;main;fn_1000;tiny 3\n");
	cr_assert_eq(name_all(s, BUILD), 2);
	assert_answer(s, "app;main;app+0x2000 1\napp;main;app+0xdead0 1\n"
			 "app;main;fn_1000;tiny 3\napp;main;fn_1010;tiny 1\n");
	store_close(s);
	remove_store_dir(dir);
}

Test(names, names_are_taken_away_and_replaced)
{
	char *dir = scratch_dir();
	struct store *s = open_store(dir, NULL);
	_cleanup_profile_ struct profile *p = cpu_profile();
	struct symbols_of_test right = {.prefix = "right"}, other = {.prefix = "other"};
	static const char none[] = "app;main;app+0x1000 1\napp;main;other_2000;tiny 1\n";
	struct diag d = {};

	add_raw(p, T0, BUILD, 0x1000);
	add_raw(p, T0, OTHER, 0x2000);
	write_profile(s, p, NULL);
	cr_assert_eq(name_all(s, BUILD), 1);
	cr_assert_eq(store_name_frames(s, OTHER, name, &other, &d), 0, "%s", d.text);
	assert_answer(s, "app;main;fn_1000;tiny 1\napp;main;other_2000;tiny 1\n");
	cr_assert_eq(store_unname_frames(s, "0000", &d), 0, "%s", d.text);
	assert_answer(s, "app;main;fn_1000;tiny 1\napp;main;other_2000;tiny 1\n");
	cr_assert_eq(store_unname_frames(s, BUILD, &d), 0, "%s", d.text);
	assert_answer(s, none);
	store_close(s);
	s = open_store(dir, NULL);
	assert_answer(s, none);
	/* The second time the names are those of the first. */
	for (int i = 0; i < 2; i++) {
		cr_assert_eq(store_name_frames(s, BUILD, name, &right, &d), 0, "%s", d.text);
		assert_answer(s, "app;main;other_2000;tiny 1\napp;main;right_1000;tiny 1\n");
		cr_assert_eq(store_unname_frames(s, BUILD, &d), 0, "%s", d.text);
		assert_answer(s, none);
	}
	store_close(s);
	remove_store_dir(dir);
}

static bool is_late(void *userdata, const char *text)
{
	return !strcmp(text, userdata);
}

static size_t found(struct store *s, const char *text)
{
	struct store_ids ids = {};
	size_t n;

	cr_assert_eq(store_find_stacks(s, NULL, is_late, (void *)text, &ids, NULL), 0);
	n = ids.ids.n;
	vec_deinit(&ids.ids);
	return n;
}

Test(names, late_names_equal_those_of_a_named_frame)
{
	char *dir = scratch_dir();
	_cleanup_store_ struct store *s = open_store(dir, NULL);
	_cleanup_profile_ struct profile *p = NULL;
	_cleanup_query_ struct query q = {.from_ms = T0, .to_ms = T0 + HOUR};
	const struct profile_stack *st;
	const struct profile_frame *f;

	write_addresses(s, T0, 0x1000, 1);
	cr_assert_eq(found(s, "fn_1000"), 0);
	cr_assert_eq(found(s, "app+0x1000"), 1);
	name_all(s, BUILD);
	cr_assert_eq(found(s, "fn_1000"), 1);
	cr_assert_eq(found(s, "tiny"), 1);
	cr_assert_eq(found(s, "app+0x1000"), 0);
	q.stacks = strdup("fn=\"tiny\" under fn=\"fn_1000\"");
	cr_assert_eq(query_profile(s, &q, 0, &p, NULL), 0);
	cr_assert_eq(p->n_samples, 1);
	st = &p->stacks.data[profile_sample(p, 0)->stack];
	f = &p->frames.data[p->stack_frames.data[st->first]];
	cr_assert_eq(f->line, 7);
	cr_assert_eq(f->address, 0x1000);
	cr_assert_eq(f->kind, FRAME_NATIVE);
	cr_assert_str_eq(profile_string(p, p->mappings.data[f->mapping].path), "/opt/app");
	cr_assert_str_eq(profile_string(p, p->mappings.data[f->mapping].build_id), BUILD);
	store_close(take_ptr(s));
	remove_store_dir(dir);
}

static u32 ended_by(pid_t pid)
{
	int status;

	cr_assert_eq(waitpid(pid, &status, 0), pid);
	return WIFSIGNALED(status) ? (u32)WTERMSIG(status) : 0;
}

Test(names, naming_continues_after_a_kill, .timeout = 100)
{
	char *dir = scratch_dir();
	const size_t n = 10000;
	size_t stacks, named;
	struct store *s = open_store(dir, NULL);
	pid_t pid;

	write_addresses(s, T0, 0x100000, n);
	store_close(s);
	pid = fork();
	if (!pid) {
		struct symbols_of_test t = {.kill_after = 9000};

		s = open_store(dir, NULL);
		store_name_frames(s, BUILD, name, &t, NULL);
		_exit(0);
	}
	cr_assert_eq(ended_by(pid), SIGKILL);
	s = open_store(dir, NULL);
	named = count_named(s, &stacks);
	cr_assert_eq(stacks, n);
	cr_assert(named > 0 && named < n, "%zu of %zu", named, n);
	cr_assert_eq(name_all(s, BUILD), n - named);
	cr_assert_eq(count_named(s, &stacks), n);
	cr_assert_eq(stacks, n);
	store_close(s);
	remove_store_dir(dir);
}

Test(names, killed_at_any_moment, .timeout = 400)
{
	char *dir = scratch_dir();
	const size_t n = 200;
	u32 killed = 0;

	for (u32 round = 0; round < 16; round++) {
		struct store *s = open_store(dir, NULL);
		size_t stacks, named, before = n * round;
		pid_t pid;

		write_addresses(s, T0 + round, 0x100000 + n * round * 0x10, n);
		store_close(s);
		pid = fork();
		if (!pid) {
			s = open_store(dir, NULL);
			name_all(s, BUILD);
			_exit(0);
		}
		usleep(round * 1000);
		kill(pid, SIGKILL);
		killed += ended_by(pid) == SIGKILL;
		s = open_store(dir, NULL);
		named = count_named(s, &stacks);
		cr_assert_eq(stacks, before + n);
		cr_assert(named == before || named == before + n, "round %u: %zu of %zu", round,
			  named, stacks);
		name_all(s, BUILD);
		cr_assert_eq(count_named(s, &stacks), before + n);
		store_close(s);
	}
	cr_assert_geq(killed, 3, "%u", killed);
	remove_store_dir(dir);
}

struct reader {
	struct store *s;
	size_t n;
	atomic_bool stop;
	u32 answers, torn;
};

static void *read_all(void *arg)
{
	struct reader *r = arg;
	size_t stacks;

	while (!atomic_load(&r->stop)) {
		size_t named = count_named(r->s, &stacks);

		r->answers++;
		r->torn += named != 0 && named != r->n;
	}
	return NULL;
}

Test(names, snapshots_have_old_or_new_names, .timeout = 100)
{
	char *dir = scratch_dir();
	_cleanup_store_ struct store *s = open_store(dir, NULL);
	struct reader readers[3];
	pthread_t threads[3];
	size_t stacks;

	write_addresses(s, T0, 0x100000, 2000);
	for (u32 i = 0; i < 3; i++) {
		readers[i] = (struct reader){.s = s, .n = 2000};
		cr_assert_eq(pthread_create(&threads[i], NULL, read_all, &readers[i]), 0);
	}
	name_all(s, BUILD);
	/* Rows that were read from an old snapshot meanwhile must not stay in the cache. */
	cr_assert_eq(count_named(s, &stacks), 2000);
	for (u32 i = 0; i < 3; i++) {
		atomic_store(&readers[i].stop, true);
		pthread_join(threads[i], NULL);
		cr_assert_eq(readers[i].torn, 0);
	}
	cr_assert_eq(count_named(s, &stacks), 2000);
	store_close(take_ptr(s));
	remove_store_dir(dir);
}

static struct store_stats stats(struct store *s)
{
	struct store_stats st;

	cr_assert_eq(store_get_stats(s, &st, NULL), 0);
	return st;
}

Test(names, names_are_swept_with_their_frames, .timeout = 100)
{
	char *dir = scratch_dir();
	_cleanup_store_ struct store *s = open_store(dir, NULL);
	u64 now = T0 + 800 * HOUR; /* max_age is 30 days */
	struct store_stats before, after;
	size_t stacks;

	if (!is_embedded())
		cr_skip("of the embedded store");
	for (u32 i = 0; i < 4; i++)
		write_addresses(s, T0 + i * 1000, 0x100000, 2000);
	write_addresses(s, now - 2 * HOUR, 0x900000, 3);
	name_all(s, BUILD);
	before = stats(s);
	cr_assert_eq(before.functions, 1 + 1 + 2003); /* main, tiny, fn_... */
	cr_assert_eq(before.frames, 1 + 2003 * 3);
	for (u32 i = 0; i < 3; i++)
		cr_assert_eq(store_maintain(s, now, NULL), 0);
	after = stats(s);
	cr_assert_eq(after.evicted_rows, 8000);
	cr_assert_eq(after.frames, 1 + 3 * 3);
	cr_assert_eq(after.functions, 1 + 1 + 3);
	cr_assert_eq(after.damaged, 0);
	cr_assert_eq(count_named(s, &stacks), 3);
	cr_assert_eq(stacks, 3);
	/* Frames that were removed and then written again are named again. */
	write_addresses(s, now - HOUR, 0x100000, 1);
	cr_assert_eq(count_named(s, &stacks), 3);
	cr_assert_eq(name_all(s, BUILD), 1);
	cr_assert_eq(count_named(s, &stacks), 4);
	store_close(take_ptr(s));
	remove_store_dir(dir);
}

Test(names, a_damaged_list_of_names_is_reported_and_ignored)
{
	char *dir = scratch_dir();
	_cleanup_str_ struct str path = {};
	struct store *s = open_store(dir, NULL);
	sqlite3 *db;

	if (!is_embedded())
		cr_skip("of the embedded store");
	write_addresses(s, T0, 0x1000, 2);
	name_all(s, BUILD);
	store_close(s);
	str_printf(&path, "%s/profiles.db", dir);
	cr_assert_eq(sqlite3_open(str_get(&path), &db), SQLITE_OK);
	/* Give a frame the list of another frame, as a flipped bit could. */
	cr_assert_eq(sqlite3_exec(db,
				  "UPDATE frames SET named=(SELECT named FROM frames WHERE "
				  "address=4112 AND named IS NOT NULL) WHERE address=4096 AND "
				  "named IS NOT NULL",
				  NULL, NULL, NULL),
		     SQLITE_OK);
	cr_assert_eq(sqlite3_changes(db), 1);
	sqlite3_close(db);
	s = open_store(dir, NULL);
	assert_answer(s, "app;main;app+0x1000 1\napp;main;fn_1010;tiny 1\n");
	cr_assert_eq(stats(s).damaged, 1);
	store_close(s);
	remove_store_dir(dir);
}

static int fail(void *userdata, u64 address, struct profile *into, u32 *ret_frames, size_t max)
{
	return -ETIME;
}

Test(names, names_native_frames_with_a_build_id_only_and_stops_at_errors)
{
	char *dir = scratch_dir();
	_cleanup_store_ struct store *s = open_store(dir, NULL);
	_cleanup_profile_ struct profile *p = cpu_profile();
	u32 kernel = raw(p, BUILD, 0xffffffff81000010, FRAME_KERNEL);
	struct profile_frame offset;
	struct diag d = {};
	u32 id;

	add_raw(p, T0, "", 0x1000);
	offset = p->frames.data[raw(p, BUILD, 0x1000, FRAME_NATIVE)];
	offset.flags = PROFILE_FRAME_OFFSET;
	cr_assert_eq(profile_add_frame(p, &offset, &id), 0);
	sample(p, T0 * 1000000, thread(p, "app", "t", 1, 1), &id, 1, 1);
	sample(p, T0 * 1000000, thread(p, "app", "t", 1, 1), &kernel, 1, 1);
	write_profile(s, p, NULL);
	cr_assert_eq(name_all(s, BUILD), 0);
	cr_assert_eq(store_name_frames(s, "", name, NULL, &d), -EINVAL);
	write_addresses(s, T0, 0x2000, 1);
	cr_assert_eq(store_name_frames(s, BUILD, fail, NULL, &d), -ETIME);
	assert_answer(s, "app;app+0x1000 1\napp;app+0xffffffff81000010_[k] 1\n"
			 "app;main;app+0x1000 1\n"
			 "app;main;app+0x2000 1\n");
	store_close(take_ptr(s));
	remove_store_dir(dir);
}
