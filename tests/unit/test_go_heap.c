/* SPDX-License-Identifier: Apache-2.0 */
/* The memory profile of a Go program, in memory of this process, which changes while it is read. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "agent/runtime/go/heap.h"

#define MAX_SITES 8
#define MAX_STACK 40
#define GOEXIT 0x9000

ssize_t __real_process_vm_readv(pid_t pid, const struct iovec *local, unsigned long n,
				const struct iovec *remote, unsigned long n_remote,
				unsigned long flags);
ssize_t __wrap_process_vm_readv(pid_t pid, const struct iovec *local, unsigned long n,
				const struct iovec *remote, unsigned long n_remote,
				unsigned long flags);

enum { ACTIVE, FUTURE };

struct counts {
	u64 allocs, frees, alloc_bytes, free_bytes;
};

struct bucket { /* as runtime.bucket, with room for a stack */
	u64 next, allnext, typ, hash, size, nstk;
	u64 rest[MAX_STACK + 16];
};

static struct program {
	u64 others[2], head;
	s64 rate;
	u32 cycle;
	struct bucket *buckets; /* owned */
	struct go_heap_known known;
	void (*on_read)(u32 n); /* before the n-th read */
	u32 n_reads;
} p;

/* What was told. */
static struct told {
	u32 n, n_torn;
	struct runtime_site sites[MAX_SITES];
	u64 calls[MAX_SITES][MAX_STACK];
} told;

ssize_t __wrap_process_vm_readv(pid_t pid, const struct iovec *local, unsigned long n,
				const struct iovec *remote, unsigned long n_remote,
				unsigned long flags)
{
	if (p.on_read)
		p.on_read(p.n_reads);
	p.n_reads++;
	return __real_process_vm_readv(pid, local, n, remote, n_remote, flags);
}

/* Written out once more, from stkbucket() of Go 1.26. */
static u64 hash_of(const u64 *stack, u64 n, u64 size)
{
	u64 h = 0;

	for (u64 i = 0; i < n; i++) {
		h += stack[i];
		h += h << 10;
		h ^= h >> 6;
	}
	h += size;
	h += h << 10;
	h ^= h >> 6;
	h += h << 3;
	h ^= h >> 11;
	return h;
}

static struct counts *counts_of(u32 i, u32 which)
{
	return (struct counts *)(p.buckets[i].rest + p.buckets[i].nstk) + which;
}

static void set_counts(u32 i, u32 which, u64 allocs, u64 frees)
{
	u64 size = p.buckets[i].size;

	*counts_of(i, which) = (struct counts){allocs, frees, allocs * size, frees * size};
}

/* A site that is the head of the list; its stack is of return addresses. */
static void add_site(u32 i, u64 size, const u64 *stack, u64 n)
{
	struct bucket *b = &p.buckets[i];

	*b = (struct bucket){.allnext = p.head, .typ = 1, .size = size, .nstk = n};
	memcpy(b->rest, stack, n * sizeof(*stack));
	b->hash = hash_of(stack, n, size);
	p.head = (u64)b;
	for (u64 k = 0; k < n; k++)
		if (!map_get(&p.known.calls, stack[k] - 1))
			cr_assert_eq(map_put(&p.known.calls, stack[k] - 1, 0), 0);
}

static const u64 one[] = {0x1001, GOEXIT + 1}, two[] = {0x2001, 0x1001, GOEXIT + 1};

static void begin(void)
{
	p = (struct program){.rate = 4096, .cycle = 7 << 1 | 1};
	p.known.at = (struct go_heap){
		.lists = {(u64)&p.head},
		.n_lists = 1,
		.rate = (u64)&p.rate,
		.cycle = (u64)&p.cycle,
		.is_shifted = true,
		.has_bytes = true,
		.goexit = {GOEXIT, GOEXIT + 16},
	};
	p.buckets = calloc(MAX_SITES, sizeof(*p.buckets));
	add_site(0, 64, one, 2);
	add_site(1, 32, two, 3);
	set_counts(0, ACTIVE, 10, 4);
	set_counts(1, ACTIVE, 3, 3);
}

static void end(void)
{
	free(p.buckets);
	map_deinit(&p.known.calls);
	vec_deinit(&p.known.inlined);
}

static void on_site(void *arg, const struct runtime_heap_look *l, const struct runtime_site *s)
{
	(void)arg;
	cr_assert(told.n < l->n_sites && s->n_calls <= MAX_STACK);
	memcpy(told.calls[told.n], s->calls, s->n_calls * sizeof(*s->calls));
	told.sites[told.n] = *s;
	told.sites[told.n].calls = told.calls[told.n];
	told.n++;
}

static int look_until(u64 until_ns)
{
	struct runtime_target t = {.memory.pid = (u32)getpid()};
	struct runtime_heap_look l = {.until_ns = until_ns, .site = on_site};
	int r;

	told = (struct told){};
	r = go_heap_ops.look(&t, &p.known, &l);
	told.n_torn = l.n_torn;
	cr_assert(r < 0 || told.n == l.n_sites);
	return r;
}

static int look(void)
{
	return look_until(~0ULL);
}

static const struct runtime_site *site(u32 i)
{
	for (u32 k = 0; k < told.n; k++)
		if (told.sites[k].key == (u64)&p.buckets[i])
			return &told.sites[k];
	return NULL;
}

static void assert_counts(u32 i, u64 allocs, u64 frees)
{
	const struct runtime_site *s = site(i);
	u64 size = p.buckets[i].size;

	cr_assert_not_null(s, "%u", i);
	cr_assert(s->allocs == allocs && s->frees == frees, "%u: %llu %llu", i, s->allocs,
		  s->frees);
	cr_assert(s->alloc_bytes == allocs * size && s->free_bytes == frees * size);
}

Test(go_heap, what_a_finished_cycle_has_is_added, .init = begin, .fini = end)
{
	/* 7 % 3 is 1: of the other two the frees are not known yet. */
	set_counts(0, FUTURE + 0, 100, 0);
	set_counts(0, FUTURE + 1, 5, 1);
	set_counts(0, FUTURE + 2, 200, 0);
	cr_assert_eq(look(), 0);
	assert_counts(0, 15, 5);
	assert_counts(1, 3, 3);
	p.known.at.is_shifted = false;
	p.cycle = 9;
	cr_assert_eq(look(), 0);
	assert_counts(0, 110, 4);
}

Test(go_heap, before_the_first_cycle_ends_all_is_told, .init = begin, .fini = end)
{
	set_counts(0, ACTIVE, 0, 0);
	set_counts(1, ACTIVE, 0, 0);
	set_counts(0, FUTURE + 0, 2, 0);
	set_counts(0, FUTURE + 2, 3, 1);
	cr_assert_eq(look(), 0);
	cr_assert_eq(told.n, 1);
	assert_counts(0, 5, 1);
}

Test(go_heap, bytes_follow_from_the_size_since_1_27, .init = begin, .fini = end)
{
	u64 *words = p.buckets[0].rest + p.buckets[0].nstk;
	const u64 counts[8] = {10, 4, 100, 0, 5, 1, 200, 0}; /* active, future[3] */

	memcpy(words, counts, sizeof(counts));
	memset(p.buckets[1].rest + 3, 0, 64);
	p.known.at.has_bytes = false;
	cr_assert_eq(look(), 0);
	cr_assert_eq(told.n, 1);
	assert_counts(0, 15, 5);
}

Test(go_heap, inlined_functions_are_told_by_the_innermost, .init = begin, .fini = end)
{
	/* The call at 0x3000 is in code that was inlined at 0x3010, and that at 0x3020. */
	const u64 stack[] = {0x3001, 0x3011, 0x3021, 0x3001, 0x3021, 0x3021, 0x2001, GOEXIT + 1};
	const u64 want[] = {0x3000, 0x3000, 0x3020, 0x2000, GOEXIT};

	cr_assert_eq(vec_push(&p.known.inlined, 0x3010), 0);
	cr_assert_eq(vec_push(&p.known.inlined, 0x3020), 0);
	cr_assert_eq(map_put(&p.known.calls, 0x3000, 0 << 8 | 2), 0);
	add_site(2, 16, stack, ARRAY_SIZE(stack));
	set_counts(2, ACTIVE, 1, 0);
	cr_assert_eq(look(), 0);
	cr_assert_eq(site(2)->n_calls, ARRAY_SIZE(want));
	cr_assert_arr_eq(site(2)->calls, want, sizeof(want));
}

Test(go_heap, a_stack_without_its_root_is_cut, .init = begin, .fini = end)
{
	u64 stack[32];

	for (u32 i = 0; i < 32; i++)
		stack[i] = 0x4001;
	add_site(2, 16, stack, 32);
	set_counts(2, ACTIVE, 1, 0);
	stack[31] = GOEXIT + 1;
	add_site(3, 16, stack, 32);
	set_counts(3, ACTIVE, 1, 0);
	cr_assert_eq(look(), 0);
	cr_assert(site(2)->is_cut && !site(3)->is_cut && !site(0)->is_cut);
}

Test(go_heap, what_is_half_written_is_left_out, .init = begin, .fini = end)
{
	counts_of(0, ACTIVE)->alloc_bytes -= 64;
	cr_assert_eq(look(), 0);
	cr_assert(told.n_torn == 1 && told.n == 1 && site(1));
	counts_of(0, ACTIVE)->alloc_bytes += 64;
	counts_of(1, ACTIVE)->frees = 4;
	cr_assert_eq(look(), 0);
	cr_assert(told.n_torn == 1 && told.n == 1 && site(0));
}

Test(go_heap, of_several_lists_the_one_of_allocations_is_read, .init = begin, .fini = end)
{
	p.buckets[7] = p.buckets[0];
	p.buckets[7].typ = 3;
	p.others[0] = (u64)&p.buckets[7];
	p.others[1] = 0x123456789;
	p.known.at.lists[0] = (u64)&p.others[0];
	p.known.at.lists[1] = (u64)&p.others[1];
	p.known.at.lists[2] = (u64)&p.head;
	p.known.at.n_lists = 3;
	cr_assert_eq(look(), 0);
	cr_assert_eq(told.n, 2);
	p.head = 0;
	cr_assert_eq(look(), 0);
	cr_assert_eq(told.n, 0);
}

Test(go_heap, a_program_without_a_profile, .init = begin, .fini = end)
{
	p.rate = 0;
	cr_assert_eq(look(), -ENODATA);
	p.rate = -1;
	cr_assert_eq(look(), -ENODATA);
	p.rate = 1;
	p.head = 0;
	cr_assert_eq(look(), 0, "nothing was sampled yet");
	cr_assert_eq(told.n, 0);
}

Test(go_heap, what_is_no_list_is_refused, .init = begin, .fini = end)
{
	p.buckets[0].hash ^= 1;
	cr_assert_eq(look(), -EINVAL);
	p.buckets[0].hash ^= 1;
	p.buckets[0].allnext = (u64)&p.buckets[1];
	cr_assert_eq(look(), -EINVAL, "a ring");
	p.buckets[0].allnext = 8;
	cr_assert_eq(look(), -EFAULT);
	p.buckets[0].allnext = (u64)&p.buckets[1] + 4;
	cr_assert_eq(look(), -EINVAL);
	p.buckets[0].allnext = ~7ULL;
	cr_assert_eq(look(), -EFAULT);
	p.buckets[0].allnext = 0;
	p.buckets[0].nstk = 2000;
	cr_assert_eq(look(), -EINVAL);
	p.buckets[0].nstk = 2;
	cr_assert_eq(look_until(1), -ETIME);
	cr_assert_eq(look(), 0);
}

/* Buckets that are far from each other: each is in a window of its own. */
Test(go_heap, more_memory_than_is_read, .init = begin, .fini = end)
{
	const size_t far = 128 << 10, n = 200;
	u8 *room = calloc(n, far);
	struct bucket *before = p.buckets;

	for (size_t i = 0; i < n; i++) {
		p.buckets = (struct bucket *)(room + i * far);
		add_site(0, 64, one, 2);
	}
	p.buckets = before;
	cr_assert_eq(look(), -E2BIG);
	free(room);
}

static void set_cycle_at_8(u32 n)
{
	if (n == 8)
		p.cycle = 8 << 1;
}

Test(go_heap, a_cycle_that_ends_meanwhile, .init = begin, .fini = end)
{
	set_counts(0, FUTURE + 2, 7, 0);
	p.on_read = set_cycle_at_8;
	cr_assert_eq(look(), 0);
	cr_assert(p.n_reads > 8);
	assert_counts(0, 17, 4);
}

static void always_next_cycle(u32 n)
{
	p.cycle = n << 1;
}

Test(go_heap, cycles_that_end_all_the_time, .init = begin, .fini = end)
{
	p.on_read = always_next_cycle;
	cr_assert_eq(look(), -EAGAIN);
}

/* The runtime adds the cycle to `active` when part of the memory has been read. */
static void flush_now(u32 n)
{
	if (n != 4)
		return;
	set_counts(0, ACTIVE, 15, 5);
	set_counts(0, FUTURE + 1, 0, 0);
}

/* `active` has it, and the future has it still; later the future is empty. */
static void flush_slowly(u32 n)
{
	if (n == 4)
		set_counts(0, FUTURE + 1, 0, 0);
}

Test(go_heap, a_flush_meanwhile, .init = begin, .fini = end)
{
	set_counts(0, FUTURE + 1, 5, 1);
	p.on_read = flush_now;
	cr_assert_eq(look(), 0);
	assert_counts(0, 15, 5);
	/* Halfway, it would have counted twice. */
	p.n_reads = 0;
	set_counts(0, FUTURE + 1, 5, 1);
	p.on_read = flush_slowly;
	cr_assert_eq(look(), 0);
	assert_counts(0, 15, 5);
}

static u32 reads_of_a_walk;

/* The second walk finds the cycle in `active` and in the future, the third one finds it once. */
static void flush_during_the_second(u32 n)
{
	if (n == 1 + reads_of_a_walk + 2)
		set_counts(0, ACTIVE, 15, 5);
	if (n == 1 + 2 * reads_of_a_walk + 2)
		set_counts(0, FUTURE + 1, 0, 0);
}

Test(go_heap, a_flush_that_takes_long, .init = begin, .fini = end)
{
	/* The rate, then walks: the cycle, the head, windows, the cycle. */
	set_counts(0, FUTURE + 1, 5, 1);
	cr_assert_eq(look(), 0);
	reads_of_a_walk = (p.n_reads - 1) / 2;
	assert_counts(0, 15, 5);
	p.n_reads = 0;
	p.on_read = flush_during_the_second;
	cr_assert_eq(look(), 0);
	cr_assert_eq(p.n_reads, 1 + 4 * reads_of_a_walk);
	assert_counts(0, 15, 5);
}

static void add_meanwhile(u32 n)
{
	if (n == 5)
		add_site(2, 16, one, 2);
}

Test(go_heap, a_new_site_meanwhile, .init = begin, .fini = end)
{
	p.on_read = add_meanwhile;
	cr_assert_eq(look(), 0);
	cr_assert_eq(told.n, 2, "nothing of it is published");
}
