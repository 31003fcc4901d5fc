/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Walks that wait for a page of a file: how long they wait, what the pipeline does meanwhile, and
 * how the walks end. Tables, processes and the sampler are fakes; the linker replaces NAME by
 * __wrap_NAME.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <unistd.h>

#include "agent/pipeline/deferred.h"
#include "base/clock.h"
#include "unwind/host.h"

#define MS 1000000ULL

static struct {
	int fd;		       /* becomes readable when a page has arrived */
	bool busy, has_come;   /* whether the loader is busy; whether the page has arrived */
	u32 n_drained, n_done; /* how often the ring was read; finished walks */
	u32 come_after;	       /* the page arrives after this many reads of the ring */
	u32 last_stop, last_n;
	bool sleeps; /* the host meets a frame of a runtime that it cannot read */
	int walk;    /* what BPF's walk returns */
	u32 n_walks; /* of BPF */
} fake;

static struct sleeper_walk found = {.stop = STOP_COMPLETE, .n = 2, .frames = {0x222, 0x333}};

static struct procman_process process = {.pid = 1, .start_ns = 1, .image_ns = 1, .alive = true};
static struct procman_binary binary = {.file_id = 1};

int __wrap_tables_fd(const struct tables *t);
bool __wrap_tables_busy(const struct tables *t);
u32 __wrap_tables_take(struct tables *t, bool wait);
int __wrap_tables_slice_get(struct tables *t, const struct procman_process *p, struct slice **ret);
void __wrap_tables_slice_put(struct tables *t, struct slice *s);
u32 __wrap_tables_slice_line(const struct slice *s, u32 *ret_n);
u32 __wrap_tables_slice_file(const struct tables *t, const struct slice *s, u64 avma,
			     u64 *ret_svma);
int __wrap_tables_load_page(struct tables *t, struct procman_binary *b, u64 svma);
struct procman_binary *__wrap_procman_binary_of_id(const struct procman *pm, u32 file_id);
struct procman_process *__wrap_procman_find_at(struct procman *pm, u32 pid, u64 time_ns);
int __wrap_procman_drain(struct procman *pm);
int __wrap_sampler_drain(struct sampler *s);
u32 __wrap_sampler_take_walkers(struct sampler *s);
int __wrap_sampler_walkers_fd(const struct sampler *s);
int __wrap_sampler_walk_sleeper(struct sampler *s, const struct record_deferred *d,
				const struct sleeper_walk **ret);
enum stop_reason __wrap_unwind_host_walk(const struct unwind_host *host, struct walk_regs *regs,
					 u32 slice, u32 n_mappings, u64 *frames, u32 max, u32 *n);

int __wrap_tables_fd(const struct tables *t)
{
	(void)t;
	return fake.fd;
}

bool __wrap_tables_busy(const struct tables *t)
{
	(void)t;
	return fake.busy;
}

u32 __wrap_tables_take(struct tables *t, bool wait)
{
	(void)t;
	(void)wait;
	return 0;
}

int __wrap_tables_slice_get(struct tables *t, const struct procman_process *p, struct slice **ret)
{
	(void)t;
	(void)p;
	*ret = (struct slice *)&fake;
	return 0;
}

void __wrap_tables_slice_put(struct tables *t, struct slice *s)
{
	(void)t;
	(void)s;
}

u32 __wrap_tables_slice_line(const struct slice *s, u32 *ret_n)
{
	(void)s;
	*ret_n = 1;
	return 1;
}

u32 __wrap_tables_slice_file(const struct tables *t, const struct slice *s, u64 avma, u64 *ret_svma)
{
	(void)t;
	(void)s;
	*ret_svma = avma;
	return 1;
}

int __wrap_tables_load_page(struct tables *t, struct procman_binary *b, u64 svma)
{
	(void)t;
	(void)b;
	(void)svma;
	return -EALREADY;
}

struct procman_binary *__wrap_procman_binary_of_id(const struct procman *pm, u32 file_id)
{
	(void)pm;
	(void)file_id;
	return &binary;
}

struct procman_process *__wrap_procman_find_at(struct procman *pm, u32 pid, u64 time_ns)
{
	(void)pm;
	(void)pid;
	(void)time_ns;
	return &process;
}

int __wrap_procman_drain(struct procman *pm)
{
	(void)pm;
	return 0;
}

int __wrap_sampler_drain(struct sampler *s)
{
	(void)s;
	fake.n_drained++;
	fake.has_come |= fake.come_after && fake.n_drained >= fake.come_after;
	return 0;
}

u32 __wrap_sampler_take_walkers(struct sampler *s)
{
	(void)s;
	return 0;
}

int __wrap_sampler_walkers_fd(const struct sampler *s)
{
	(void)s;
	return -1;
}

int __wrap_sampler_walk_sleeper(struct sampler *s, const struct record_deferred *d,
				const struct sleeper_walk **ret)
{
	(void)s;
	cr_expect_eq(d->sample.type, RECORD_ASLEEP);
	fake.n_walks++;
	if (fake.walk == 0)
		*ret = &found;
	return fake.walk;
}

enum stop_reason __wrap_unwind_host_walk(const struct unwind_host *host, struct walk_regs *regs,
					 u32 slice, u32 n_mappings, u64 *frames, u32 max, u32 *n)
{
	(void)regs;
	(void)slice;
	(void)n_mappings;
	(void)max;
	if (fake.sleeps) {
		frames[(*n)++] = 0x111;
		return STOP_RUNTIME;
	}
	if (fake.has_come)
		return STOP_COMPLETE;
	cr_assert_eq(host->missing(host->arg, 0x1000), -EALREADY);
	return STOP_NOT_LOADED;
}

static void on_done(struct pipeline *p, const struct deferred_walk *walk)
{
	(void)p;
	fake.n_done++;
	fake.last_stop = walk->stop;
	fake.last_n = walk->n;
}

/* Makes a pipeline with one walk that waits for a page. */
static struct pipeline *begin(void)
{
	static struct pipeline p;
	static struct record_deferred record = {.sample = {.pid = 1, .time_ns = 2},
						.stop = STOP_NOT_LOADED};
	static struct sampler_copy copy;
	struct deferred_walk walk = {.record = &record, .copy = &copy, .frames = p.scratch};
	int fds[2];

	cr_assert_eq(pipe(fds), 0);
	fake.fd = fds[0];
	fake.busy = true;
	p.parked_max = 1 << 20;
	cr_assert(!deferred_finish(&p, &walk));
	cr_assert(deferred_park(&p, &walk));
	return &p;
}

Test(deferred, the_ring_is_read_while_a_page_does_not_come)
{
	struct pipeline *p = begin();
	u64 at = clock_ns(CLOCK_MONOTONIC);

	deferred_finish_parked(p, 200 * MS, on_done);
	at = clock_ns(CLOCK_MONOTONIC) - at;
	cr_expect_geq(at, 200 * MS);
	cr_expect_geq(fake.n_drained, 2);
	cr_expect_eq(fake.n_done, 1);
	cr_expect_eq(fake.last_stop, STOP_NOT_LOADED);
	cr_expect_null(p->parked);
	cr_expect_eq(p->parked_bytes, 0);
}

Test(deferred, a_page_that_comes_ends_the_wait)
{
	struct pipeline *p = begin();
	u64 at = clock_ns(CLOCK_MONOTONIC);

	fake.come_after = 3;
	deferred_finish_parked(p, 60000 * MS, on_done);
	cr_expect_lt(clock_ns(CLOCK_MONOTONIC) - at, 30000 * MS);
	cr_expect_eq(fake.n_done, 1);
	cr_expect_eq(fake.last_stop, STOP_COMPLETE);
	cr_expect_null(p->parked);
}

Test(deferred, nothing_is_waited_for_when_nothing_is_loaded)
{
	struct pipeline *p = begin();

	fake.busy = false;
	deferred_finish_parked(p, 60000 * MS, on_done);
	cr_expect_eq(fake.n_drained, 0);
	cr_expect_eq(fake.last_stop, STOP_NOT_LOADED);
}

Test(deferred, one_that_has_no_room_is_given_up_at_once_and_counted)
{
	struct pipeline *p = begin();
	struct record_deferred record = {.sample = {.pid = 1, .time_ns = 2},
					 .stop = STOP_NOT_LOADED};
	struct sampler_copy copy = {};
	struct deferred_walk walk = {.record = &record, .copy = &copy, .frames = p->scratch};

	cr_assert(!deferred_finish(p, &walk));
	p->parked_max = p->parked_bytes;
	cr_assert(!deferred_park(p, &walk));
	deferred_give_up(p, &walk);
	cr_expect_eq(walk.stop, STOP_NOT_LOADED);
	cr_expect_eq(p->given_up, 1);
	cr_expect_eq(fake.n_drained, 0);
	deferred_drop_parked(p);
}

/* ---- threads that sleep ---- */

static struct pipeline sleeping;

/* A walk in which the host meets a frame that only BPF reads, of a thread that sleeps or not. */
static struct deferred_walk walk_of(enum record_type type)
{
	static struct record_deferred record;
	static struct sampler_copy copy;

	record = (struct record_deferred){.sample = {.type = (u16)type, .pid = 1, .time_ns = 2},
					  .stop = STOP_NOT_LOADED};
	fake.sleeps = true;
	sleeping.parked_max = 1 << 20;
	return (struct deferred_walk){.record = &record, .copy = &copy, .frames = sleeping.scratch};
}

Test(deferred, bpf_walks_the_stack_of_a_thread_that_sleeps)
{
	struct deferred_walk walk = walk_of(RECORD_ASLEEP);

	cr_assert(deferred_finish(&sleeping, &walk));
	cr_expect_eq(walk.stop, STOP_COMPLETE);
	cr_expect_eq(walk.n, 2);
	cr_expect_eq(walk.frames[0], 0x222);
	cr_expect_eq(walk.frames[1], 0x333);
	cr_expect_not(walk.unread);
}

Test(deferred, bpf_does_not_walk_the_stack_of_a_thread_that_runs)
{
	struct deferred_walk walk = walk_of(RECORD_DEFERRED);

	cr_assert(deferred_finish(&sleeping, &walk));
	cr_expect_eq(walk.stop, STOP_RUNTIME);
	cr_expect_eq(fake.n_walks, 0);
}

Test(deferred, what_the_host_has_walked_of_a_thread_that_woke_remains)
{
	struct deferred_walk walk = walk_of(RECORD_ASLEEP);

	fake.walk = -ESRCH;
	cr_assert(deferred_finish(&sleeping, &walk));
	cr_expect_eq(walk.stop, STOP_RUNTIME);
	cr_expect_eq(walk.n, 1);
	cr_expect_eq(walk.frames[0], 0x111);
}

Test(deferred, what_the_host_has_walked_remains_where_bpf_goes_astray)
{
	struct deferred_walk walk = walk_of(RECORD_ASLEEP);

	found.stop = STOP_BAD_READ;
	cr_assert(deferred_finish(&sleeping, &walk));
	cr_expect_eq(walk.stop, STOP_RUNTIME);
	cr_expect_eq(walk.frames[0], 0x111);
}

Test(deferred, a_sleeper_waits_for_its_walker)
{
	struct deferred_walk walk = walk_of(RECORD_ASLEEP);

	fake.walk = -EINPROGRESS;
	cr_assert(!deferred_finish(&sleeping, &walk));
	cr_assert(deferred_park(&sleeping, &walk));
	deferred_retry(&sleeping, on_done);
	cr_expect_eq(fake.n_done, 0);
	fake.walk = 0;
	deferred_retry(&sleeping, on_done);
	cr_expect_eq(fake.n_done, 1);
	cr_expect_eq(fake.last_stop, STOP_COMPLETE);
	cr_expect_eq(fake.last_n, 2);
	cr_expect_eq(fake.n_walks, 3);
	cr_expect_null(sleeping.parked);
}

Test(deferred, a_walker_that_does_not_come_leaves_what_the_host_has_walked)
{
	struct deferred_walk walk = walk_of(RECORD_ASLEEP);

	fake.walk = -EINPROGRESS;
	cr_assert(!deferred_finish(&sleeping, &walk));
	cr_assert(deferred_park(&sleeping, &walk));
	deferred_finish_parked(&sleeping, 0, on_done);
	cr_expect_eq(fake.n_done, 1);
	cr_expect_eq(fake.last_stop, STOP_RUNTIME);
	cr_expect_eq(fake.last_n, 1);
}
