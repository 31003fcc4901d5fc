/* SPDX-License-Identifier: Apache-2.0 */
/* The embedded store's names of services and types: what is swept, and what is not. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server/query/query.h"
#include "server/store/store.h"

#include "profile_fixture.h"
#include "store_fixture.h"

#define HOUR 3600000ULL
#define DAY (24 * HOUR)
#define T0 (480000 * HOUR) /* 2024 */

/* Adds a sample of the service to a profile. */
static void add_service(struct profile *p, const char *service, u64 time_ms)
{
	struct profile_label label = {string(p, "service.name"), string(p, service)};
	struct profile_thread t = {};
	u32 thread, leaf = frame(p, "main", "/bin/app", 0x1000, FRAME_NATIVE, 0, 7);

	cr_assert_eq(profile_add_resource(p, &label, 1, &t.resource), 0);
	cr_assert_eq(profile_add_thread(p, &t, &thread), 0);
	sample(p, time_ms * 1000000, thread, &leaf, 1, 1);
}

/* Writes a sample of each service PREFIX0, PREFIX1, … in one batch. */
static void write_services(struct store *s, const char *prefix, u32 n, u64 time_ms)
{
	_cleanup_profile_ struct profile *p = profile_create();
	char name[64];

	cr_assert_eq(profile_add_type(p, "cpu", "nanoseconds"), 0);
	for (u32 i = 0; i < n; i++) {
		snprintf(name, sizeof(name), "%s%u", prefix, i);
		add_service(p, name, time_ms);
	}
	write_profile(s, p, NULL);
}

static void maintain(struct store *s, u64 now_ms)
{
	struct diag d = {};

	cr_assert_eq(store_maintain(s, now_ms, &d), 0, "%s", d.text);
}

static u64 names_in(struct store *s)
{
	struct store_stats st;

	cr_assert_eq(store_get_stats(s, &st, NULL), 0);
	return st.names;
}

/* The number of samples that the store has under the name of a service. */
static u64 samples_of(struct store *s, const char *service)
{
	const struct store_filter f = {.to_ms = 1ULL << 42, .service = service};
	_cleanup_store_rows_ struct store_rows rows = {};
	u64 n = 0;

	cr_assert_eq(store_scan(s, &f, STORE_BY_SERVICE | STORE_BY_STACK, 0, &rows, NULL), 0);
	for (size_t i = 0; i < rows.rows.n; i++) {
		cr_assert_str_eq(strtab_get(&rows.names, rows.rows.data[i].service), service);
		n += rows.rows.data[i].count;
	}
	return n;
}

Test(store_names, names_without_a_block_are_swept)
{
	const struct store_options o = {.max_age_s = DAY / 1000};
	char *dir = scratch_dir();
	_cleanup_store_ struct store *s = open_store(dir, &o);

	/* More than one sweep takes at once. */
	write_services(s, "old", 12000, T0);
	write_services(s, "new", 3, T0 + 2 * DAY);
	cr_assert_eq(names_in(s), 12000 + 3 + 1);
	for (u64 i = 0; i < 3; i++)
		maintain(s, T0 + 2 * DAY);
	cr_assert_eq(names_in(s), 3 + 1);
	cr_assert_eq(samples_of(s, "new2"), 1);
	cr_assert_eq(samples_of(s, "old2"), 0);
	/* A name that comes back is a new name. */
	write_services(s, "old", 3, T0 + 2 * DAY);
	cr_assert_eq(samples_of(s, "old2"), 1);
	store_close(take_ptr(s));
	s = open_store(dir, &o);
	cr_assert_eq(names_in(s), 6 + 1);
	cr_assert_eq(samples_of(s, "old2"), 1);
	cr_assert_eq(samples_of(s, "new0"), 1);
	store_close(take_ptr(s));
	remove_store_dir(dir);
}

/* ---- rows of dictionaries ---- */

#define MANY 45000 /* more than a sweep reads at once */

/* Writes a sample with a stack of its own for each function PREFIX0, PREFIX1, … */
static void write_stacks(struct store *s, const char *prefix, u64 time_ms)
{
	_cleanup_profile_ struct profile *p = profile_create();
	struct profile_thread t = {};
	char name[64];
	u32 thread;

	cr_assert_eq(profile_add_type(p, "cpu", "nanoseconds"), 0);
	cr_assert_eq(profile_add_thread(p, &t, &thread), 0);
	for (u32 i = 0; i < MANY; i++) {
		u32 leaf;

		snprintf(name, sizeof(name), "%s%u", prefix, i);
		leaf = frame(p, name, "/bin/app", 0x1000 + i, FRAME_NATIVE, 0, 7);
		sample(p, time_ms * 1000000, thread, &leaf, 1, 1);
	}
	write_profile(s, p, NULL);
}

Test(store_names, rows_without_a_block_are_swept)
{
	const struct store_options o = {.max_age_s = DAY / 1000};
	char *dir = scratch_dir();
	_cleanup_store_ struct store *s = open_store(dir, &o);
	_cleanup_query_ struct query q = {.to_ms = T0 + 3 * DAY};
	_cleanup_profile_ struct profile *p = NULL;
	struct store_stats st;

	write_stacks(s, "old", T0);
	write_stacks(s, "new", T0 + 2 * DAY);
	maintain(s, T0 + 2 * DAY);
	cr_assert_eq(store_get_stats(s, &st, NULL), 0);
	cr_assert_eq(st.stacks, MANY);
	cr_assert_eq(st.frames, MANY);
	cr_assert_eq(st.functions, MANY);
	cr_assert_eq(query_profile(s, &q, 0, &p, NULL), 0);
	cr_assert_eq(p->functions.n, MANY);
	for (size_t i = 0; i < p->functions.n; i++)
		cr_assert(!strncmp(profile_string(p, p->functions.data[i].name), "new", 3));
	store_close(take_ptr(s));
	remove_store_dir(dir);
}

/* ---- at the same moment ---- */

#define WRITERS 3
#define ROUNDS 60

struct churn {
	struct store *s;
	u32 writer;
	atomic_uint *rounds; /* of all writers */
};

/* A sample from far ago, which maintenance evicts, and one from now, both of one service. */
static void *write_both(void *arg)
{
	const struct churn *c = arg;
	char prefix[32];

	for (u32 i = 0; i < ROUNDS; i++) {
		snprintf(prefix, sizeof(prefix), "w%u-r%u-", c->writer, i / 2);
		write_services(c->s, prefix, 4, i % 2 ? T0 + 2 * DAY : T0);
		atomic_fetch_add(c->rounds, 1);
		usleep(1000 * (i % 8)); /* sometimes the sample from far ago is gone by then */
	}
	return NULL;
}

static void *sweep_on(void *arg)
{
	const struct churn *c = arg;

	while (atomic_load(c->rounds) < WRITERS * ROUNDS)
		maintain(c->s, T0 + 2 * DAY);
	return NULL;
}

Test(store_names, a_name_that_a_writer_uses_is_not_swept)
{
	const struct store_options o = {.max_age_s = DAY / 1000};
	char *dir = scratch_dir();
	_cleanup_store_ struct store *s = open_store(dir, &o);
	struct churn c[WRITERS + 1];
	pthread_t threads[WRITERS + 1];
	atomic_uint rounds = 0;

	for (u32 i = 0; i <= WRITERS; i++) {
		c[i] = (struct churn){s, i, &rounds};
		cr_assert_eq(pthread_create(&threads[i], NULL, i < WRITERS ? write_both : sweep_on,
					    &c[i]),
			     0);
	}
	for (u32 i = 0; i <= WRITERS; i++)
		pthread_join(threads[i], NULL);
	maintain(s, T0 + 2 * DAY);
	for (int reopened = 0; reopened < 2; reopened++) {
		for (u32 w = 0; w < WRITERS; w++)
			for (u32 r = 0; r < ROUNDS / 2; r++) {
				char service[48];

				snprintf(service, sizeof(service), "w%u-r%u-3", w, r);
				cr_assert_eq(samples_of(s, service), 1, "%s", service);
			}
		cr_assert_eq(names_in(s), WRITERS * ROUNDS / 2 * 4 + 1);
		store_close(take_ptr(s));
		s = open_store(dir, &o);
	}
	store_close(take_ptr(s));
	remove_store_dir(dir);
}

#define BUILD "0123456789abcdef"

/* Writes samples of `n` addresses of a binary without symbols. */
static void write_addresses(struct store *s, u32 first, u32 n, u64 time_ms)
{
	_cleanup_profile_ struct profile *p = profile_create();
	struct profile_mapping m = {.path = string(p, "/bin/app"), .build_id = string(p, BUILD)};
	struct profile_frame f = {.function = PROFILE_NONE, .kind = FRAME_NATIVE};
	struct profile_thread t = {};
	u32 thread;

	cr_assert_eq(profile_add_type(p, "cpu", "nanoseconds"), 0);
	cr_assert_eq(profile_add_thread(p, &t, &thread), 0);
	cr_assert_eq(profile_add_mapping(p, &m, &f.mapping), 0);
	for (u32 i = first; i < first + n; i++) {
		u32 leaf;

		f.address = 0x1000 + i % MANY;
		cr_assert_eq(profile_add_frame(p, &f, &leaf), 0);
		sample(p, time_ms * 1000000, thread, &leaf, 1, 1);
	}
	write_profile(s, p, NULL);
}

static int name_address(void *userdata, u64 address, struct profile *into, u32 *ret_frames,
			size_t max)
{
	u32 *asked = userdata;
	char text[64];

	++*asked;
	snprintf(text, sizeof(text), "fn_%llx", address);
	ret_frames[0] = frame(into, text, NULL, 0, FRAME_NATIVE, 0, 1);
	return max ? 1 : 0;
}

static _Thread_local bool gives_way;

/* A mutex is not fair: without a pause the sweeper takes it again before a writer does. */
int __real_pthread_mutex_unlock(pthread_mutex_t *m);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *m);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *m)
{
	int r = __real_pthread_mutex_unlock(m);

	if (gives_way)
		usleep(3000);
	return r;
}

static void *sweep_once(void *arg)
{
	const struct churn *c = arg;

	gives_way = true;
	maintain(c->s, T0 + 2 * DAY);
	atomic_store(c->rounds, 1);
	return NULL;
}

Test(store_names, names_of_a_frame_that_a_writer_uses_are_not_swept)
{
	const struct store_options o = {.max_age_s = DAY / 1000};
	char *dir = scratch_dir();
	_cleanup_store_ struct store *s = open_store(dir, &o);
	_cleanup_query_ struct query q = {.to_ms = T0 + 3 * DAY};
	_cleanup_profile_ struct profile *p = NULL;
	atomic_uint done = 0;
	struct churn c = {s, 0, &done};
	u32 asked = 0, nameless = 0;
	u64 before;
	struct store_stats st;
	pthread_t sweeper;

	write_addresses(s, 0, MANY, T0);
	cr_assert_eq(store_name_frames(s, BUILD, name_address, &asked, NULL), 0);
	cr_assert_eq(asked, MANY);
	cr_assert_eq(store_get_stats(s, &st, NULL), 0);
	before = st.frames;
	cr_assert_eq(pthread_create(&sweeper, NULL, sweep_once, &c), 0);
	/* Once the first frames are swept, the last ones are used again. */
	do
		cr_assert_eq(store_get_stats(s, &st, NULL), 0);
	while (st.frames >= before && !atomic_load(&done));
	for (u32 i = 1; i <= 20; i++)
		write_addresses(s, MANY - i * 50, 50, T0 + 2 * DAY);
	pthread_join(sweeper, NULL);
	/* A frame that was swept before it came again has no name; one that was not has all. */
	store_close(take_ptr(s));
	s = open_store(dir, &o);
	cr_assert_eq(query_profile(s, &q, 0, &p, NULL), 0);
	for (size_t i = 0; i < p->frames.n; i++)
		nameless += p->frames.data[i].function == PROFILE_NONE;
	asked = 0;
	cr_assert_eq(store_name_frames(s, BUILD, name_address, &asked, NULL), 0);
	cr_assert_eq(nameless, asked, "%u, %u", nameless, asked);
	cr_assert_eq(store_get_stats(s, &st, NULL), 0);
	cr_assert_eq(st.damaged, 0, "%llu", st.damaged);
	store_close(take_ptr(s));
	remove_store_dir(dir);
}

/* ---- kill -9 ---- */

#define KILLS 12

static void *maintain_for_ever(void *arg)
{
	for (;;)
		maintain(arg, T0 + 2 * DAY);
	return NULL;
}

/* Writes services from number `from` on while a thread sweeps; tells each that is stored. */
static void write_until_killed(const char *dir, u32 from, int told)
{
	const struct store_options o = {.max_age_s = DAY / 1000};
	struct store *s = open_store(dir, &o);
	pthread_t sweeper;
	char prefix[16];

	if (pthread_create(&sweeper, NULL, maintain_for_ever, s) != 0)
		_exit(1);
	for (u32 i = from;; i++) {
		snprintf(prefix, sizeof(prefix), "k%u-", i);
		write_services(s, prefix, 3, T0);
		usleep(1000 * (i % 4));
		write_services(s, prefix, 3, T0 + 2 * DAY);
		if (write(told, &i, sizeof(i)) != sizeof(i))
			_exit(1);
	}
}

/* Returns the number after the last one that was told. */
static u32 write_and_kill(const char *dir, u32 from, u32 after_us)
{
	u32 i = 0, next = from;
	int told[2];
	pid_t pid;

	cr_assert_eq(pipe(told), 0);
	pid = fork();
	cr_assert(pid >= 0);
	if (!pid) {
		close(told[0]);
		write_until_killed(dir, from, told[1]);
	}
	close(told[1]);
	/* Not before it writes. */
	if (read(told[0], &i, sizeof(i)) == sizeof(i))
		next = i + 1;
	usleep(after_us);
	cr_assert_eq(kill(pid, SIGKILL), 0);
	cr_assert_eq(waitpid(pid, NULL, 0), pid);
	while (read(told[0], &i, sizeof(i)) == sizeof(i))
		next = i + 1;
	close(told[0]);
	cr_assert_gt(next, from);
	return next;
}

/* The batches before `end` are stored. Each name that is left has samples. */
static void assert_whole(const char *dir, const bool *stored, u32 end)
{
	const struct store_options o = {.max_age_s = DAY / 1000};
	const struct store_filter all = {.to_ms = 1ULL << 42};
	_cleanup_store_ struct store *s = open_store(dir, &o);
	_cleanup_store_rows_ struct store_rows rows = {};
	char service[32];

	maintain(s, T0 + 2 * DAY);
	for (u32 i = 0; i < end; i++) {
		snprintf(service, sizeof(service), "k%u-2", i);
		cr_assert(samples_of(s, service) == 1 || !stored[i], "%s", service);
	}
	cr_assert_eq(store_scan(s, &all, STORE_BY_SERVICE | STORE_BY_STACK, 0, &rows, NULL), 0);
	cr_assert_eq(names_in(s), rows.rows.n + 1);
	for (size_t i = 0; i < rows.rows.n; i++)
		cr_assert_eq(*strtab_get(&rows.names, rows.rows.data[i].service), 'k');
}

Test(store_names, a_kill_loses_no_name)
{
	char *dir = scratch_dir();
	bool stored[100000] = {};
	u32 end = 0;

	for (u32 k = 0; k < KILLS; k++) {
		u32 from = end;

		end = write_and_kill(dir, from, 1000 + k * 3700);
		cr_assert_lt(end, ARRAY_SIZE(stored) - 1);
		memset(stored + from, true, end - from);
		/* The batch that the kill cut short may be stored or not. */
		end++;
		assert_whole(dir, stored, end);
	}
	remove_store_dir(dir);
}
