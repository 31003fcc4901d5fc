/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From records of the ring to batches: which batch a sample is counted in when the epoch changes,
 * what becomes of parked walks at the end of a period, whose losses are whose, and what is known of
 * a process that calls exec.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/pipeline/processes.h"
#include "agent/pipeline/records.h"
#include "pipeline_fixture.h"

static bool on_seen(void *arg, const struct procman_process *proc, struct runtimes *r)
{
	(void)arg;
	(void)r;
	cr_expect_eq(proc, &process);
	fake.n_seen++;
	return !fake.refuses_to_see;
}

/* ---- records ---- */

static void begin(void)
{
	int fds[2];

	process = (struct procman_process){.pid = PID,
					   .ppid = 1,
					   .image = 100,
					   .start_ns = 1,
					   .image_ns = 1,
					   .alive = true,
					   .comm = "app"};
	cr_assert_eq(pipe(fds), 0);
	cr_assert_eq(write(fds[1], "x", 1), 1);
	fake.page_fd = fds[0];
	p.parked_max = 1 << 20;
	p.process_seen = on_seen;
	p.batch = batch_new(&p);
	cr_assert(p.batch);
}

static void end(void)
{
	deferred_drop_parked(&p);
	pipeline_give_back(&p, p.batch);
	map_deinit(&p.sampled);
}

TestSuite(pipeline, .init = begin, .fini = end);

static void send_stack_of(u64 id, const u64 *frames, u32 n, u32 stop, u32 flags)
{
	struct record_stack head = {.type = RECORD_STACK,
				    .flags = (u16)flags,
				    .n = (u16)n,
				    .stop = (u16)stop,
				    .id = id,
				    .pid = PID};

	records_ops.stack(&p, &head, frames);
}

static void send_stack(u64 id)
{
	send_stack_of(id, &(u64){FRAME(id)}, 1, STOP_COMPLETE, 0);
}

static void send_kernel_stack(u64 id)
{
	send_stack_of(id, &(u64){KERNEL_FRAME + id}, 1, 0, RECORD_KERNEL);
}

static void send_attributes(u64 id, const char *value)
{
	struct record_attributes head = {.type = RECORD_ATTRIBUTES, .pid = PID, .id = id};

	records_ops.attributes(&p, &head, (const u8 *)value);
}

static struct record_sample sample_of(u64 user_stack)
{
	return (struct record_sample){.type = RECORD_SAMPLE,
				      .pid = PID,
				      .tid = PID,
				      .time_ns = 50,
				      .user_stack = user_stack,
				      .value = 1,
				      .comm = "thread"};
}

static void send_record(struct record_sample s)
{
	records_ops.sample(&p, &s);
}

static void send_sample(u64 user_stack)
{
	send_record(sample_of(user_stack));
}

/* The walk up to `user_stack` is for the host to finish. */
static void send_deferred_of(struct record_sample s)
{
	struct record_deferred d = {.sample = s, .stop = STOP_NOT_LOADED};
	static const struct sampler_copy none;

	d.sample.type = RECORD_DEFERRED;
	records_ops.deferred(&p, &d, &none);
}

static void send_deferred(u64 user_stack)
{
	send_deferred_of(sample_of(user_stack));
}

static struct pipeline_batch *take(void)
{
	struct pipeline_batch *b;

	fake.n_drains = 0;
	b = pipeline_take(&p);
	cr_assert(b);
	cr_assert_neq(b, p.batch);
	memset(fake.arrives, 0, sizeof(fake.arrives));
	return b;
}

/* The samples of a user stack in a batch. */
static u64 samples_of(const struct pipeline_batch *b, u64 user_stack)
{
	u64 n = 0;

	for (size_t i = 0; i < b->entries.n; i++)
		if (b->entries.data[i].key.user_stack == user_stack)
			n += b->entries.data[i].count;
	return n;
}

/* Expects that a batch has one entry, and that its user stack has these frames. */
static const struct pipeline_entry *expect_frames(const struct pipeline_batch *b, u32 n,
						  const u64 *frames)
{
	const struct pipeline_stack *s;

	cr_assert_eq(b->entries.n, 1);
	s = pipeline_stack(b, b->entries.data[0].key.user_stack);
	cr_assert(s);
	cr_assert_eq(s->n, n);
	for (u32 i = 0; i < n; i++)
		cr_expect_eq(b->frames.data[s->first + i], frames[i]);
	return &b->entries.data[0];
}

/* ---- epochs ---- */

static void old_and_new_samples(void)
{
	send_sample(1); /* its stack was sent in the old epoch */
	send_stack(2);
	send_sample(2);
}

Test(pipeline, a_late_sample_is_counted_where_its_stack_is)
{
	struct pipeline_batch *b;

	send_stack(1);
	send_sample(1);
	fake.arrives[AFTER_EPOCH] = old_and_new_samples;
	b = take();
	cr_expect_eq(fake.n_drains_before_epoch, AFTER_EPOCH);
	cr_expect_eq(fake.n_drains, N_DRAINS);
	cr_expect_eq(samples_of(b, 1), 2);
	cr_expect_eq(samples_of(b, 2), 0);
	cr_expect_eq(samples_of(p.batch, 1), 0);
	cr_expect_eq(samples_of(p.batch, 2), 1);
	cr_expect_eq(pipeline_sum(b).samples, 2);
	cr_expect_eq(pipeline_sum(p.batch).samples, 1);
	cr_expect_eq(pipeline_sum(b).stops[STOP_STACK_LOST], 0);
	pipeline_give_back(&p, b);
	/* Only during pipeline_take() is there a previous batch. */
	send_sample(1);
	cr_expect_eq(pipeline_sum(p.batch).stops[STOP_STACK_LOST], 1);
}

static void stack_again(void)
{
	send_stack(1);
	send_sample(1);
}

Test(pipeline, a_stack_that_was_sent_again_counts_in_the_new_batch)
{
	struct pipeline_batch *b;

	send_stack(1);
	send_sample(1);
	fake.arrives[AFTER_EPOCH] = stack_again;
	b = take();
	cr_expect_eq(samples_of(b, 1), 1);
	cr_expect_eq(samples_of(p.batch, 1), 1);
	pipeline_give_back(&p, b);
}

static void late_with_kernel_stack(void)
{
	struct record_sample s = sample_of(0);

	s.kernel_stack = 3;
	send_record(s);
}

static void late_with_attributes(void)
{
	struct record_sample s = sample_of(0);

	s.context.attributes = 4;
	send_record(s);
	s.context.attributes = 0;
	s.event_attributes = 4;
	send_record(s);
}

Test(pipeline, each_part_of_a_late_sample_decides)
{
	struct pipeline_batch *b;

	send_kernel_stack(3);
	fake.arrives[AFTER_EPOCH] = late_with_kernel_stack;
	b = take();
	cr_assert_eq(b->entries.n, 1);
	cr_expect_eq(b->entries.data[0].key.kernel_stack, 3);
	cr_expect_eq(p.batch->entries.n, 0);
	pipeline_give_back(&p, b);

	send_attributes(4, "eve");
	fake.arrives[AFTER_EPOCH] = late_with_attributes;
	b = take();
	cr_assert_eq(b->entries.n, 2);
	cr_expect_neq(b->entries.data[0].key.context.attributes, 0);
	cr_expect_neq(b->entries.data[1].key.event_attributes, 0);
	cr_expect_eq(pipeline_sum(b).attributes_left_out, 0);
	cr_expect_eq(p.batch->entries.n, 0);
	pipeline_give_back(&p, b);
}

static void late_with_a_stack_of_each_batch(void)
{
	struct record_sample s = sample_of(2);

	send_stack(2);
	s.kernel_stack = 3;
	s.context.attributes = 4;
	send_record(s);
}

/* BPF began the sample in the old epoch, after the ring was read for the last time in it. */
Test(pipeline, a_late_sample_with_a_stack_in_each_batch_has_both)
{
	struct pipeline_batch *b;
	struct pipeline_entry *e;

	send_kernel_stack(3);
	send_attributes(4, "eve");
	fake.arrives[AFTER_EPOCH] = late_with_a_stack_of_each_batch;
	b = take();
	cr_expect_eq(b->entries.n, 0);
	pipeline_give_back(&p, b);
	cr_assert_eq(p.batch->entries.n, 1);
	e = &p.batch->entries.data[0];
	cr_expect(pipeline_stack(p.batch, e->key.user_stack));
	cr_expect(pipeline_stack(p.batch, e->key.kernel_stack));
	cr_expect_neq(e->key.context.attributes, 0);
	cr_expect_eq(pipeline_sum(p.batch).attributes_left_out, 0);
}

static void sample_of_stack_1(void)
{
	send_sample(1);
}

Test(pipeline, the_period_ends_when_the_next_begins)
{
	u64 began = pipeline_batch_began_ns(&p);
	struct pipeline_batch *b;

	send_stack(1);
	fake.arrives[AT_END] = sample_of_stack_1;
	fake.arrives[WHILE_CLOSING] = sample_of_stack_1;
	b = take();
	cr_expect_eq(samples_of(b, 1), 2);
	cr_expect_eq(b->started_ns, began);
	cr_expect_eq(b->ended_ns, pipeline_batch_began_ns(&p));
	cr_expect_geq(b->ended_ns, b->started_ns);
	pipeline_give_back(&p, b);
}

/* ---- walks that the host finishes ---- */

static void late_deferred(void)
{
	struct record_sample s = sample_of(1);

	s.kernel_stack = 3;
	s.context.attributes = 4;
	s.event_attributes = 5;
	send_deferred_of(s);
}

Test(pipeline, a_late_walk_takes_its_stacks_into_the_new_batch)
{
	const struct pipeline_entry *e;
	struct context_label labels[CONTEXT_MAX_ATTRIBUTES];
	struct pipeline_batch *b;

	send_stack(1);
	send_kernel_stack(3);
	send_attributes(4, "eve");
	send_attributes(5, "adam");
	fake.arrives[AFTER_EPOCH] = late_deferred;
	b = take();
	cr_expect_eq(b->entries.n, 0);
	pipeline_give_back(&p, b);
	e = expect_frames(p.batch, 2, (u64[]){FRAME(1), FRAME_OF_HOST});
	cr_assert(pipeline_stack(p.batch, e->key.kernel_stack));
	cr_expect(pipeline_stack(p.batch, e->key.kernel_stack)->kernel);
	cr_assert_eq(pipeline_attributes(p.batch, (u32)e->key.context.attributes, labels), 1);
	cr_expect_str_eq(labels[0].value, "eve");
	cr_assert_eq(pipeline_attributes(p.batch, (u32)e->key.event_attributes, labels), 1);
	cr_expect_str_eq(labels[0].value, "adam");
	cr_expect_eq(pipeline_sum(p.batch).deferred, 1);
	cr_expect_eq(pipeline_sum(p.batch).truncated, 0);
}

#define RUNTIME_FRAME (WORD_RUNTIME | 1ULL << WORD_RUNTIME_SHIFT | 0x5000)

static void deferred_after_stack_1(void)
{
	send_deferred(1);
}

/* Their names are in the old batch. */
Test(pipeline, a_late_walk_after_frames_of_a_runtime_is_lost)
{
	struct pipeline_batch *b;

	send_stack_of(1, (u64[]){RUNTIME_FRAME, 7}, 2, STOP_COMPLETE, 0);
	fake.arrives[AFTER_EPOCH] = deferred_after_stack_1;
	b = take();
	pipeline_give_back(&p, b);
	cr_expect_eq(pipeline_sum(p.batch).deferred, 1);
	cr_expect_eq(pipeline_sum(p.batch).stops[STOP_STACK_LOST], 1);
	cr_expect_eq(pipeline_sum(p.batch).samples, 1);
}

static void park_a_walk(void)
{
	fake.page_is_missing = true;
	send_stack(1);
	send_deferred(1);
	cr_assert(p.parked);
	cr_assert_eq(p.batch->entries.n, 0, "it waits");
}

Test(pipeline, a_parked_walk_is_finished_in_its_period)
{
	struct pipeline_batch *b;

	park_a_walk();
	fake.loader_is_busy = fake.page_comes = true;
	b = take();
	cr_expect_null(p.parked);
	expect_frames(b, 2, (u64[]){FRAME(1), FRAME_OF_HOST});
	cr_expect_eq(pipeline_sum(b).deferred, 1);
	cr_expect_eq(pipeline_sum(b).stops[STOP_COMPLETE], 1);
	cr_expect_eq(pipeline_sum(b).truncated, 0);
	cr_expect_eq(p.batch->entries.n, 0);
	cr_expect_eq(p.given_up, 0);
	pipeline_give_back(&p, b);
}

/* The thread `tid` wakes the test's thread. */
static void send_wakeup(u32 tid, u64 woken_ns)
{
	struct record_sample s = sample_of(0);

	s.tid = tid;
	s.value = 0;
	s.wait = SAMPLE_WAKES;
	s.woken_tid = PID;
	s.woken_ns = woken_ns;
	send_record(s);
}

Test(pipeline, a_parked_walk_has_the_waker_of_its_own_wait)
{
	struct record_sample s = sample_of(1);
	struct pipeline_batch *b;

	fake.page_is_missing = true;
	send_stack(1);
	send_wakeup(7, 40);
	s.wait = WAIT_LOCK;
	s.woken_ns = 40;
	send_deferred_of(s);
	cr_assert(p.parked);
	send_wakeup(8, 60);
	fake.loader_is_busy = fake.page_comes = true;
	b = take();
	cr_assert_eq(b->entries.n, 1);
	cr_assert_eq(b->entries.data[0].key.waker, 1);
	cr_expect_eq(b->wakers.data[0].tid, 7);
	pipeline_give_back(&p, b);
}

Test(pipeline, a_parked_walk_whose_page_does_not_come_ends_with_its_period)
{
	struct pipeline_batch *b;

	park_a_walk();
	b = take();
	cr_expect_null(p.parked);
	cr_expect_eq(p.parked_bytes, 0);
	expect_frames(b, 1, (u64[]){FRAME(1)});
	cr_expect_eq(pipeline_sum(b).deferred, 1);
	cr_expect_eq(pipeline_sum(b).stops[STOP_NOT_LOADED], 1);
	cr_expect_eq(pipeline_sum(b).truncated, 1);
	cr_expect_eq(p.batch->entries.n, 0);
	pipeline_give_back(&p, b);
}

Test(pipeline, no_walk_is_parked_while_the_batch_closes)
{
	struct pipeline_batch *b;

	send_stack(1);
	fake.page_is_missing = true;
	fake.arrives[WHILE_CLOSING] = deferred_after_stack_1;
	b = take();
	cr_expect_null(p.parked);
	cr_expect_eq(p.given_up, 1);
	cr_expect_eq(samples_of(p.batch, 1), 0);
	cr_expect_eq(pipeline_sum(b).stops[STOP_NOT_LOADED], 1);
	pipeline_give_back(&p, b);
	send_stack(1);
	send_deferred(1);
	cr_expect(p.parked, "in the next period walks are parked again");
}

Test(pipeline, walks_above_the_limit_are_given_up)
{
	struct pipeline_stats stats;

	park_a_walk();
	p.parked_max = p.parked_bytes;
	send_deferred(1);
	cr_expect_eq(pipeline_sum(p.batch).stops[STOP_NOT_LOADED], 1);
	pipeline_stats(&p, &stats);
	cr_expect_eq(stats.given_up, 1);
}

/* ---- values and losses ---- */

Test(pipeline, a_batch_says_how_far_the_budget_has_limited_it)
{
	struct pipeline_batch *b;

	fake.limits[1] = 32000;
	b = take();
	cr_expect_eq(b->sources[0].period, 0);
	cr_expect_eq(b->sources[1].period, 32000);
	pipeline_give_back(&p, b);
	fake.limits[1] = 0;
	b = take();
	cr_expect_eq(b->sources[1].period, 0);
	pipeline_give_back(&p, b);
}

Test(pipeline, values_add_up_for_each_source)
{
	struct record_sample s = sample_of(1);
	struct pipeline_batch *b;

	send_stack(1);
	s.value = 7;
	send_record(s);
	s.value = -2;
	send_record(s);
	s.source = 1;
	s.value = 4096;
	send_record(s);
	send_deferred_of(s);
	b = take();
	cr_assert_eq(b->entries.n, 3);
	for (u32 i = 0; i < 3; i++) {
		cr_expect_eq(b->entries.data[i].key.source, i > 0);
		cr_expect_eq(b->entries.data[i].count, i ? 1 : 2);
		cr_expect_eq(b->entries.data[i].value, i ? 4096 : 5);
	}
	cr_expect_str_eq(b->sources[b->entries.data[1].key.source].event, "page-faults");
	for (u32 i = 0; i < 2; i++)
		cr_expect_eq(b->counts[i].samples, 2);
	cr_expect_eq(b->counts[0].deferred, 0);
	cr_expect_eq(b->counts[1].deferred, 1);
	pipeline_give_back(&p, b);
}

static void lose_one(void)
{
	fake.counters[1][COUNTER_LOST_SAMPLE]++;
}

Test(pipeline, each_batch_has_the_losses_of_its_period_and_source)
{
	struct pipeline_batch *b;

	fake.counters[0][COUNTER_NESTED] = 3;
	fake.counters[1][COUNTER_LOST_SAMPLE] = 5;
	fake.counters[1][COUNTER_LOST_STACK] = 100; /* of these samples only the stack is lost */
	b = take();
	cr_expect_eq(b->counts[0].lost, 3);
	cr_expect_eq(b->counts[1].lost, 5);
	pipeline_give_back(&p, b);
	/* Those that are counted while the ring is read are not forgotten. */
	fake.counters[1][COUNTER_NESTED] = 2;
	fake.arrives[AFTER_EPOCH] = lose_one;
	b = take();
	cr_expect_eq(b->counts[0].lost, 0);
	cr_expect_eq(b->counts[1].lost, 3);
	pipeline_give_back(&p, b);
	b = take();
	cr_expect_eq(pipeline_sum(b).lost, 0);
	pipeline_give_back(&p, b);
}

Test(pipeline, a_full_batch_loses_samples_of_new_stacks_only)
{
	struct record_sample s = sample_of(1);
	struct pipeline_stats stats;
	struct pipeline_batch *b;

	send_stack(1);
	send_record(s);
	p.batch->max_bytes = 1;
	send_record(s);
	s.source = 1;
	s.tid++;
	send_record(s);
	fake.counters[0][COUNTER_LOST_SAMPLE] = 10;
	b = take();
	cr_expect_eq(b->counts[0].samples, 2);
	cr_expect_eq(b->counts[0].lost, 10);
	cr_expect_eq(b->counts[1].samples, 0);
	cr_expect_eq(b->counts[1].lost, 1);
	pipeline_give_back(&p, b);
	cr_expect_eq(pipeline_sum(p.batch).lost, 0);
	pipeline_stats(&p, &stats);
	cr_expect_eq(stats.counts.lost, 11, "since the start");
	cr_expect_eq(stats.sampler.sources[1].counters[COUNTER_NO_ROOM], 1);
	cr_expect_eq(stats.sampler.all.counters[COUNTER_NO_ROOM], 1);
}

Test(pipeline, a_sample_without_its_stack_is_counted_as_such)
{
	send_sample(1);
	cr_expect_eq(pipeline_sum(p.batch).samples, 1);
	cr_expect_eq(pipeline_sum(p.batch).user_samples, 1);
	cr_expect_eq(pipeline_sum(p.batch).stops[STOP_STACK_LOST], 1);
	cr_expect_eq(pipeline_sum(p.batch).truncated, 1);
	send_sample(0);
	cr_expect_eq(pipeline_sum(p.batch).user_samples, 1, "a kernel thread has no user stack");
}

/* ---- frames of runtimes ---- */

Test(pipeline, frames_of_a_runtime_are_named_once)
{
	static const u64 frames[] = {FRAME(5), RUNTIME_FRAME, 7, RUNTIME_FRAME + 1,
				     8,	       WORD_RUNTIME,  0, FRAME(6)};
	const u64 runtime = WORD_RUNTIME | 1ULL << WORD_RUNTIME_SHIFT;

	send_stack_of(1, frames, ARRAY_SIZE(frames), STOP_COMPLETE, 0);
	send_stack_of(1, frames, ARRAY_SIZE(frames), STOP_COMPLETE, 0);
	cr_expect_eq(fake.n_named, 2);
	send_sample(1);
	expect_frames(p.batch, 5, (u64[]){FRAME(5), runtime, runtime | 1, WORD_RUNTIME, FRAME(6)});
	cr_expect_eq(pipeline_sum(p.batch).unread, 0);
	/* An address of the kernel looks like such a frame. */
	send_stack_of(2, frames, ARRAY_SIZE(frames), 0, RECORD_KERNEL);
	cr_expect_eq(fake.n_named, 2);
}

Test(pipeline, a_stack_without_room_for_its_names_is_unread)
{
	fake.no_room_for_names = true;
	send_stack_of(1, (u64[]){RUNTIME_FRAME, 7}, 2, STOP_COMPLETE, 0);
	send_sample(1);
	cr_expect_eq(pipeline_sum(p.batch).unread, 1);
	cr_expect_eq(pipeline_sum(p.batch).truncated, 0);
	/* Also when the host finishes the walk. */
	send_deferred(1);
	cr_expect_eq(pipeline_sum(p.batch).unread, 2);
}

/* ---- processes ---- */

static void send_exec(u64 time_ns)
{
	struct record_exec e = {.type = RECORD_EXEC,
				.pid = PID,
				.time_ns = time_ns,
				.start_stack = 0x7ffd0000,
				.exec_id = 33};

	records_ops.exec(&p, &e);
}

Test(pipeline, an_exec_makes_another_image)
{
	const struct pipeline_entry *e;

	send_stack(1);
	send_sample(1);
	process.start_stack = 0x7ffe0000;
	send_exec(60);
	cr_expect_eq(fake.learned_exec_id, 33);
	cr_expect_eq(fake.n_event_drains, 1, "the events of the exec come first");
	cr_expect(p.has_execs);
	memcpy(process.comm, "new", 4);
	send_sample(1); /* at 50: the name is not that of the new program */
	send_record((struct record_sample){.pid = PID, .time_ns = 70, .comm = "thread"});
	cr_assert_eq(p.batch->entries.n, 3);
	e = p.batch->entries.data;
	cr_expect_eq(e[0].key.image, 100);
	cr_expect_str_eq(e[0].key.comm, "app");
	cr_expect_str_eq(e[0].key.thread_name, "thread");
	cr_expect_str_eq(e[1].key.comm, "thread");
	cr_expect_eq(e[2].key.image, 101);
	cr_expect_str_eq(e[2].key.comm, "new");
}

Test(pipeline, a_process_whose_fork_is_pending_is_found)
{
	fake.is_fork_pending = true;
	send_sample(0);
	cr_expect_eq(fake.n_event_drains, 1);
	cr_assert_eq(p.batch->entries.n, 1);
	cr_expect_eq(p.batch->entries.data[0].key.image, 100);
}

Test(pipeline, an_unknown_process_has_no_image)
{
	struct record_sample s = sample_of(0);

	s.pid = 77;
	send_record(s);
	cr_assert_eq(p.batch->entries.n, 1);
	cr_expect_eq(p.batch->entries.data[0].key.image, 0);
	cr_expect_str_eq(p.batch->entries.data[0].key.comm, "thread");
	cr_expect_eq(fake.n_seen, 0);
}

Test(pipeline, a_process_is_reported_once_for_each_image_and_batch)
{
	send_sample(0);
	send_sample(0);
	cr_expect_eq(fake.n_seen, 1);
	cr_expect_eq(fake.n_contexts_seen, 1);
	process.mappings_id++;
	send_sample(0);
	cr_expect_eq(fake.n_seen, 2);
	process.image++;
	send_sample(0);
	cr_expect_eq(fake.n_seen, 3);
	pipeline_give_back(&p, take());
	send_sample(0);
	cr_expect_eq(fake.n_seen, 4);
	process.image++;
	fake.refuses_to_see = true;
	send_sample(0);
	send_sample(0);
	cr_expect_eq(fake.n_seen, 6, "until it is taken");
}

static void send_raw_stack(u64 id)
{
	send_stack_of(id, &(u64){WORD_RAW | id}, 1, STOP_COMPLETE, 0);
}

Test(pipeline, files_of_generated_code_belong_to_the_image)
{
	struct pipeline_batch *b;
	const u64 *first, *second;
	int fd;

	send_stack(1);
	send_sample(1);
	cr_expect_eq(fake.n_jit_opens, 0, "all of its code is in files");
	send_raw_stack(2);
	send_sample(2);
	send_sample(2);
	cr_expect_eq(fake.n_jit_opens, JITFILE_N, "once");
	process.image++;
	send_sample(2);
	cr_expect_eq(fake.n_jit_opens, 2 * JITFILE_N);
	b = take();
	first = map_get(&b->jit_files[JITFILE_MAP], 100);
	second = map_get(&b->jit_files[JITFILE_MAP], 101);
	cr_assert(first && second);
	cr_expect_neq(*first, *second);
	cr_expect_eq(p.batch->jit_files[JITFILE_MAP].n, 0);
	fd = (int)*first;
	cr_expect_geq(fcntl(fd, F_GETFD), 0);
	pipeline_give_back(&p, b);
	cr_expect_eq(fcntl(fd, F_GETFD), -1, "closed with its batch");
}

Test(pipeline, files_of_generated_code_may_come_later)
{
	const u64 *fd;

	fake.jit_fd = -ENOENT;
	send_raw_stack(2);
	for (u32 i = 0; i < 15; i++)
		send_sample(2);
	cr_expect_eq(fake.n_jit_opens, JITFILE_N, "not at each sample");
	fake.jit_fd = 0;
	send_sample(2);
	cr_expect_eq(fake.n_jit_opens, 2 * JITFILE_N);
	fd = map_get(&p.batch->jit_files[JITFILE_MAP], 100);
	cr_assert(fd);
	cr_expect_geq((int)*fd, 0);
}

Test(pipeline, a_filter_by_pid_includes_descendants_of_a_command_only)
{
	const struct procman_process child = {.pid = 11, .ppid = PID};

	cr_expect(processes_include(&p, &child), "no filter");
	p.only_some = true;
	cr_expect_not(processes_include(&p, &child));
	cr_assert_eq(map_put(&p.sampled, PID, 1), 0);
	cr_expect(processes_include(&p, &process));
	cr_expect_not(processes_include(&p, &child));
	p.follow = true;
	cr_expect(processes_include(&p, &child));
	cr_expect(map_get(&p.sampled, 11), "its children are found, even when the parent is gone");
}

/* ---- samples whose values come later ---- */

#define REQUEST 77

static struct record_sample request_of(u64 user_stack)
{
	struct record_sample s = sample_of(user_stack);

	s.value = 0;
	s.later = REQUEST;
	return s;
}

static void send_values(void)
{
	records_ops.later(&p, &(struct record_later){
				      .type = RECORD_LATER, .id = REQUEST, .value = 5, .bytes = 6});
}

static void expect_values(const struct pipeline_batch *b, u64 count, s64 value, s64 bytes)
{
	cr_assert_eq(b->entries.n, 1);
	cr_expect_eq(b->entries.data[0].count, count);
	cr_expect_eq(b->entries.data[0].value, value);
	cr_expect_eq(b->entries.data[0].bytes, bytes);
}

Test(pipeline, values_come_after_their_sample)
{
	send_stack(1);
	send_record(request_of(1));
	send_record(request_of(1));
	expect_values(p.batch, 2, 0, 0);
	send_values();
	expect_values(p.batch, 2, 5, 6);
}

Test(pipeline, values_come_before_a_walk_that_was_parked)
{
	struct pipeline_batch *b;

	fake.page_is_missing = true;
	send_stack(1);
	send_deferred_of(request_of(1));
	cr_assert(p.parked);
	send_values();
	fake.loader_is_busy = fake.page_comes = true;
	b = take();
	expect_values(b, 1, 5, 6);
	pipeline_give_back(&p, b);
}

Test(pipeline, values_are_in_the_times_of_their_samples)
{
	p.keep_times = true;
	send_stack(1);
	send_record(request_of(1));
	send_values();
	cr_assert_eq(p.batch->events.n, 1);
	cr_expect_eq(p.batch->events.data[0].value, 5);
	cr_expect_eq(p.batch->events.data[0].bytes, 6);
}

/* The request counts where it ends, with its stack and attributes. */
Test(pipeline, values_of_a_request_that_outlives_its_batch)
{
	struct record_sample s = request_of(1);
	struct pipeline_batch *b;

	s.event_attributes = 4;
	send_stack(1);
	send_attributes(4, "value");
	send_record(s);
	b = take();
	expect_values(b, 0, 0, 0);
	cr_expect_eq(pipeline_sum(b).samples, 0);
	pipeline_give_back(&p, b);
	send_values();
	expect_values(p.batch, 1, 5, 6);
	cr_expect_eq(pipeline_sum(p.batch).samples, 1);
	expect_frames(p.batch, 1, (u64[]){FRAME(1)});
	cr_expect_neq(p.batch->entries.data[0].key.event_attributes, 0);
}

Test(pipeline, values_that_come_while_the_batch_changes)
{
	struct pipeline_batch *b;

	send_stack(1);
	send_record(request_of(1));
	fake.arrives[AFTER_EPOCH] = send_values;
	b = take();
	expect_values(b, 1, 5, 6);
	cr_expect_eq(p.batch->entries.n, 0);
	pipeline_give_back(&p, b);
}

/* A sample was lost: its values wait for it until the batch ends. */
Test(pipeline, values_without_a_sample)
{
	send_values();
	cr_expect_eq(p.batch->entries.n, 0);
	pipeline_give_back(&p, take());
	send_stack(1);
	send_record(request_of(1));
	expect_values(p.batch, 1, 0, 0);
}
