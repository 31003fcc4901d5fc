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
	u32 last_stop;
} fake;

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

enum stop_reason __wrap_unwind_host_walk(const struct unwind_host *host, struct walk_regs *regs,
					 u32 slice, u32 n_mappings, u64 *frames, u32 max, u32 *n)
{
	(void)regs;
	(void)slice;
	(void)n_mappings;
	(void)frames;
	(void)max;
	(void)n;
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
