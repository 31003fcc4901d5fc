/* SPDX-License-Identifier: Apache-2.0 */
/* Virtual threads that wait, from the memory of a JVM. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "base/clock.h"
#include "virtual_image.h"

#define MAX_TASKS 4096

struct seen {
	u32 n, n_words, stop;
	u64 ids[MAX_TASKS];
	u64 words[64]; /* of the last one */
	double sum;    /* of what they stand for */
};

struct jvm {
	struct virtual_image image;
	void *state;
	u64 random;
	u8 stack[RUNTIME_TASK_BYTES];
	struct seen seen;
};

static struct jvm j; /* of the current test; large */
/* What happens before a read of the other process, counted from 1. */
static u32 n_reads;
static void (*before_read)(u32 n);

ssize_t __real_process_vm_readv(pid_t pid, const struct iovec *local, unsigned long n_local,
				const struct iovec *remote, unsigned long n_remote,
				unsigned long flags);
ssize_t __wrap_process_vm_readv(pid_t pid, const struct iovec *local, unsigned long n_local,
				const struct iovec *remote, unsigned long n_remote,
				unsigned long flags);

ssize_t __wrap_process_vm_readv(pid_t pid, const struct iovec *local, unsigned long n_local,
				const struct iovec *remote, unsigned long n_remote,
				unsigned long flags)
{
	n_reads++;
	if (before_read)
		before_read(n_reads);
	return __real_process_vm_readv(pid, local, n_local, remote, n_remote, flags);
}

static void jvm_init(bool narrow, bool compact)
{
	if (j.state)
		hotspot_tasks.drop(j.state);
	memset(&j, 0, sizeof(j));
	j.random = 1;
	cr_assert(vi_build(&j.image, narrow, compact), "the place of the image is taken");
}

static void on_task(void *arg, const struct runtime_scan *s, const struct runtime_task *task)
{
	struct seen *seen = arg;

	cr_assert_lt(seen->n, MAX_TASKS);
	seen->ids[seen->n++] = task->id;
	seen->sum += (double)s->n_tasks / s->n_drawn;
	seen->n_words = task->n_words;
	seen->stop = task->stop;
	memcpy(seen->words, task->words, MIN(task->n_words * sizeof(u64), sizeof(seen->words)));
}

static int scan(u32 max, struct runtime_scan *ret)
{
	struct runtime_target t = vi_target(&j.image);

	memset(&j.seen, 0, sizeof(j.seen));
	*ret = (struct runtime_scan){
		.max = max,
		.until_ns = clock_ns(CLOCK_MONOTONIC) + 10000000000ULL,
		.random = &j.random,
		.stack = j.stack,
		.task = on_task,
		.arg = &j.seen,
	};
	return hotspot_tasks.scan(&t, &j.image.vm, &j.image.walker, &j.state, ret);
}

static bool has_seen(u64 id)
{
	for (u32 i = 0; i < j.seen.n; i++)
		if (j.seen.ids[i] == id)
			return true;
	return false;
}

/* A chunk: a compiled frame, an interpreted one, and a compiled one that called it. */
static u64 mixed_chunk(u64 parent)
{
	u64 words[64] = {};
	u32 sp = 4, end, n;

	n = vi_compiled(words, sp, vi_pc(0x20));
	n = vi_interpreted(words, n, 5, 3, &end);
	words[n - 1] = vi_pc(0x30);
	n = end + VI_FRAME_WORDS;
	return vi_chunk(&j.image, words, n, sp, parent);
}

static u64 tracked(u32 bins)
{
	return vi_set(&j.image, vi_static(&j.image, JC_TRACKING, JF_TRACKED), bins);
}

static void cr_word(u32 i, u32 kind, u64 place, u32 position, u32 cookie)
{
	cr_expect_eq(j.seen.words[i], WORD_RUNTIME | (u64)RUNTIME_HOTSPOT << WORD_RUNTIME_SHIFT |
					      (VIRTUAL_IMAGE + place));
	cr_expect_eq(j.seen.words[i + 1] >> HOTSPOT_KIND_SHIFT, kind);
	cr_expect_eq(j.seen.words[i + 1] >> 32 & HOTSPOT_NO_POSITION, position);
	cr_expect(!cookie || (u32)j.seen.words[i + 1] == cookie);
}

Test(virtual, frames_in_each_layout)
{
	static const struct {
		bool narrow, compact;
	} layouts[] = {{true, false}, {false, false}, {true, true}};

	for (size_t i = 0; i < ARRAY_SIZE(layouts); i++) {
		struct runtime_scan s;

		jvm_init(layouts[i].narrow, layouts[i].compact);
		vi_add(&j.image, tracked(16), 3,
		       vi_thread(&j.image, 42, VI_PARKED, mixed_chunk(0)));
		cr_assert_eq(scan(100, &s), 0, "layout %zu", i);
		cr_assert_eq(j.seen.n, 1, "layout %zu: %u", i, s.n_unread);
		cr_expect_eq(j.seen.ids[0], 42);
		cr_expect_eq(j.seen.stop, STOP_COMPLETE);
		cr_assert_eq(j.seen.n_words, 6);
		cr_word(0, HOTSPOT_COMPILED, VI_CODE + 8, 0x20, VI_COMPILE_ID);
		cr_word(2, HOTSPOT_INTERPRETED, VI_METHOD, 5, 0);
		cr_word(4, HOTSPOT_COMPILED, VI_CODE + 8, 0x30, VI_COMPILE_ID);
	}
}

Test(virtual, who_waits)
{
	struct runtime_scan s;
	u64 table, shared, weak, registry, per_task;

	jvm_init(true, false);
	table = tracked(16);
	vi_add(&j.image, table, 0, vi_thread(&j.image, 1, VI_PARKED, mixed_chunk(0)));
	vi_add(&j.image, table, 0, vi_thread(&j.image, 2, VI_RUNNING, mixed_chunk(0)));
	vi_add(&j.image, table, 0, vi_thread(&j.image, 3, 7 | VI_SUSPENDED, mixed_chunk(0)));
	vi_add(&j.image, table, 15, vi_thread(&j.image, 4, VI_PARKED, mixed_chunk(0)));
	/* Two executors of different kinds, and a reference that was cleared. */
	registry = vi_set(&j.image, vi_static(&j.image, JC_CONTAINERS, JF_REGISTRY), 8);
	per_task = vi_object(&j.image, JC_PER_TASK, 64);
	shared = vi_object(&j.image, JC_SHARED, 64);
	for (u32 i = 0; i < 3; i++) {
		weak = vi_object(&j.image, JC_REFERENCE, 64);
		vi_reference(&j.image, weak + j.image.fields[JF_REFERENT],
			     i == 0   ? per_task
			     : i == 1 ? shared
				      : 0);
		vi_add(&j.image, registry, i % 2, weak);
	}
	vi_add(&j.image, vi_set(&j.image, per_task + j.image.fields[JF_PER_TASK], 4), 1,
	       vi_thread(&j.image, 5, VI_PARKED, mixed_chunk(0)));
	vi_add(&j.image, vi_set(&j.image, shared + j.image.fields[JF_SHARED], 4), 2,
	       vi_thread(&j.image, 6, VI_PARKED, mixed_chunk(0)));
	cr_assert_eq(scan(100, &s), 0);
	cr_expect_eq(j.seen.n, 5);
	cr_expect_eq(s.n_unread, 0);
	cr_expect(!has_seen(2));
	for (u64 id = 1; id <= 6; id++)
		cr_expect(id == 2 || has_seen(id), "%llu", id);
	cr_expect_float_eq(j.seen.sum, 5, 1e-9);
}

Test(virtual, no_thread_has_started)
{
	struct runtime_scan s;

	jvm_init(true, false);
	cr_expect_eq(scan(100, &s), 0);
	cr_expect_eq(s.n_drawn, 0);
	/* Classes are loaded later, at the head of the list. */
	jvm_init(true, false);
	vi_u64(VI_LOADER + 8, VIRTUAL_IMAGE + vi_class(JC_NODE));
	cr_expect_eq(scan(100, &s), 0);
	cr_expect_eq(s.n_drawn, 0);
	vi_add(&j.image, tracked(2), 0, vi_thread(&j.image, 1, VI_PARKED, mixed_chunk(0)));
	vi_u64(vi_class(JC_MAP) + VO_CLASS_NEXT, VIRTUAL_IMAGE + vi_class(JC_NODE));
	vi_u64(VI_LOADER + 8, VIRTUAL_IMAGE + vi_class(0));
	cr_expect_eq(scan(100, &s), 0);
	cr_expect_eq(j.seen.n, 1);
}

/* The sum that drawn threads stand for is right on average, and each has the same chance. */
Test(virtual, draws)
{
	const u32 n = 600, looks = 400, max = 30;
	double sum = 0;
	u32 drawn = 0, low = 0;
	u64 table;

	jvm_init(true, false);
	table = tracked(1024);
	for (u32 i = 0; i < n; i++) /* some bins have two */
		vi_add(&j.image, table, i * 7 % 521,
		       vi_thread(&j.image, i, VI_PARKED, mixed_chunk(0)));
	for (u32 i = 0; i < looks; i++) {
		struct runtime_scan s;

		cr_assert_eq(scan(max, &s), 0);
		cr_assert_eq(s.n_drawn, max);
		sum += j.seen.sum;
		for (u32 k = 0; k < j.seen.n; k++) {
			drawn++;
			low += j.seen.ids[k] < n / 2;
		}
	}
	cr_expect_float_eq(sum / looks, n, n * 0.02);
	cr_expect_float_eq((double)low / drawn, 0.5, 0.03);
}

/* ---- stacks ---- */

static void one_thread(u64 chunk)
{
	vi_add(&j.image, tracked(2), 1, vi_thread(&j.image, 9, VI_PARKED, chunk));
}

Test(virtual, frames_in_several_chunks)
{
	struct runtime_scan s;

	jvm_init(true, false);
	one_thread(mixed_chunk(mixed_chunk(0)));
	cr_assert_eq(scan(100, &s), 0);
	cr_expect_eq(j.seen.n_words, 12);
	cr_expect_eq(j.seen.stop, STOP_COMPLETE);
	cr_word(10, HOTSPOT_COMPILED, VI_CODE + 8, 0x30, VI_COMPILE_ID);
}

Test(virtual, a_deoptimised_method_and_a_stub)
{
	u64 words[32] = {};
	struct runtime_scan s;

	jvm_init(true, false);
	vi_compiled(words, 4, VIRTUAL_IMAGE + VI_STUB + 8 + VO_BLOB_START + 0x10);
	vi_compiled(words, 10, vi_pc(0xf0));
	words[12] = vi_pc(0x44); /* where it was, at 16 bytes in its frame */
	one_thread(vi_chunk(&j.image, words, 16, 4, 0));
	cr_assert_eq(scan(100, &s), 0);
	cr_assert_eq(j.seen.n_words, 4);
	cr_word(0, HOTSPOT_STUB, VI_STUB + 8, 0x10, 0);
	cr_word(2, HOTSPOT_COMPILED, VI_CODE + 8, 0x44, VI_COMPILE_ID);
}

Test(virtual, deep_stacks)
{
	static u64 words[9000];
	struct runtime_scan s;
	u32 sp = 4;

	jvm_init(false, false);
	while (sp + VI_FRAME_WORDS <= 8990)
		sp = vi_compiled(words, sp, vi_pc(0x20));
	one_thread(vi_chunk(&j.image, words, sp, 4, 0));
	cr_assert_eq(scan(100, &s), 0);
	cr_expect_eq(j.seen.n, 1);
	cr_expect_eq(j.seen.stop, STOP_TOO_DEEP);
	cr_expect_eq(j.seen.n_words, SAMPLE_MAX_FRAMES);

	/* Frames so large that the copy ends first. */
	jvm_init(false, false);
	vi_u32(VI_CODE + 8 + VO_BLOB_FRAME, 4000);
	memset(words, 0, sizeof(words));
	words[3] = words[4003] = vi_pc(0x20);
	one_thread(vi_chunk(&j.image, words, 8990, 4, 0));
	cr_assert_eq(scan(100, &s), 0);
	cr_assert_eq(j.seen.n, 0, "the pc of the third frame is 0");
	words[8003] = vi_pc(0x20);
	jvm_init(false, false);
	vi_u32(VI_CODE + 8 + VO_BLOB_FRAME, 4000);
	words[3] = words[4003] = vi_pc(0x20);
	one_thread(vi_chunk(&j.image, words, 8990, 4, vi_chunk(&j.image, words, 4004, 4, 0)));
	cr_assert_eq(scan(100, &s), 0);
}

/* What is damaged is left out, and counted. */
Test(virtual, damaged)
{
	for (u32 kind = 0; kind < 9; kind++) {
		struct runtime_scan s;
		u64 chunk, words;

		jvm_init(true, false);
		chunk = mixed_chunk(0);
		words = chunk + VO_CHUNK_BYTES;
		one_thread(chunk);
		switch (kind) {
		case 0: /* no code there */
			vi_u64(words + 8 * 3, VIRTUAL_IMAGE + 0x100);
			break;
		case 1: /* the link leads backwards, past the chunk, and far away */
		case 2:
		case 3:
			vi_u64(words + 8 * 8, (u64[]){~0ULL, 40, 1ULL << 60}[kind - 1]);
			break;
		case 4: /* the Method is not readable */
			vi_u64(words + 8 * (10 + 10 - 3), 8);
			break;
		case 5: /* the caller is below */
			vi_u64(words + 8 * (10 + 10 - 1), (u64)-20);
			break;
		case 6:
			vi_u32(chunk + j.image.fields[JF_BOTTOM], 1000);
			break;
		case 7:
			vi_u32(chunk + j.image.fields[JF_SP], 1);
			break;
		default: /* the chunk is its own parent */
			vi_reference(&j.image, chunk + j.image.fields[JF_PARENT], chunk);
		}
		cr_expect_eq(scan(100, &s), 0);
		cr_expect_eq(j.seen.n, kind == 8, "kind %u", kind);
		cr_expect_eq(s.n_unread, kind != 8, "kind %u", kind);
	}
}

Test(virtual, refused)
{
	static const char *const flags[] = {"UseZGC", "UseShenandoahGC"};
	struct runtime_scan s;

	for (u32 i = 0; i < 2; i++) {
		struct runtime_target t;
		const char *why;

		jvm_init(true, false);
		vi_flag(3, flags[i], true);
		cr_expect_eq(scan(100, &s), -ENOTSUP);
		cr_expect_eq(scan(100, &s), -ENOTSUP);
		t = vi_target(&j.image);
		why = hotspot_virtual_missing(&j.image.vm, &t);
		cr_expect(why && strstr(why, "moves objects"), "%s", why);
	}
	jvm_init(true, false);
	j.image.elf.machine = EM_AARCH64;
	cr_expect_eq(scan(100, &s), -ENOTSUP);
	jvm_init(true, false);
	j.image.vm.fields[HF_CLASS_FIELDS] = 0; /* before 21 */
	cr_expect_eq(scan(100, &s), -ENOTSUP);
}

/* ---- changes while it is read ---- */

static u32 change_at;
static u64 change_place;
static u32 change_to;

static void change(u32 n)
{
	if (n == change_at)
		vi_u32(change_place, change_to);
}

/* Reads of a look at one thread without changes. */
static u32 count_reads(void)
{
	struct runtime_scan s;

	before_read = NULL;
	cr_assert_eq(scan(100, &s), 0);
	n_reads = 0;
	cr_assert_eq(scan(100, &s), 0);
	cr_assert_eq(j.seen.n, 1);
	return n_reads;
}

/* The thread goes on before any of the reads: then it is not seen, or was seen just before. */
Test(virtual, it_goes_on)
{
	u32 n = 1, unread = 0;

	for (change_at = 1; change_at <= n; change_at++) {
		struct runtime_scan s;
		u64 thread;

		jvm_init(true, false);
		thread = vi_thread(&j.image, 9, VI_PARKED, mixed_chunk(0));
		vi_add(&j.image, tracked(2), 1, thread);
		n = count_reads();
		change_place = thread + j.image.fields[JF_STATE];
		change_to = VI_RUNNING;
		n_reads = 0;
		before_read = change;
		cr_assert_eq(scan(100, &s), 0);
		before_read = NULL;
		unread += s.n_unread;
		/* The last reads are of the chunk and the collector. */
		cr_expect(j.seen.n == 0 || change_at + 8 > n, "before read %u of %u", change_at, n);
	}
	cr_expect_gt(unread, 5);
}

/* The collector runs before any of the reads: the look ends, and goes on in the next call. */
Test(virtual, the_collector_runs)
{
	u32 n = 1, busy = 0;

	for (change_at = 1; change_at <= n; change_at++) {
		struct runtime_scan s;
		int r;

		jvm_init(true, false);
		one_thread(mixed_chunk(0));
		n = count_reads();
		change_place = VI_COLLECTOR + 20;
		change_to = 77;
		n_reads = 0;
		before_read = change;
		r = scan(100, &s);
		before_read = NULL;
		cr_expect(r == 0 || r == -EBUSY);
		cr_expect_eq(j.seen.n, r == 0);
		busy += r == -EBUSY;
		if (r == -EBUSY) {
			cr_expect_eq(scan(100, &s), 0);
			cr_expect_eq(j.seen.n, 1);
		}
	}
	cr_expect_gt(busy, 5);
	vi_u32(VI_COLLECTOR + 16, 1);
	struct runtime_scan s;
	cr_expect_eq(scan(100, &s), -EBUSY);
}
