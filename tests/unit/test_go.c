/* SPDX-License-Identifier: Apache-2.0 */
/* Goroutines that wait, in memory of this process. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/runtime/runtime.h"
#include "runtime/go/go.h"

#define N 100
#define WORDS 24
#define PAGE RUNTIME_TASK_PAGE
#define WAITING 4ULL
#define RUNNING 2ULL
#define DEAD 6ULL

extern const struct runtime_task_ops go_tasks;

/* As in Go 1.22. */
enum { LOW, HIGH, M = 6, SP, PC, BP = 13, STATUS = 18, ID };

struct program {
	u64 slice[3];
	u64 pointers[N];
	u64 g[N][WORDS];
	u8 *stacks; /* owned: a page of each */
	u32 seen[N];
	double weight;
	u8 copy[RUNTIME_TASK_BYTES];
};

static struct program *make(void)
{
	struct program *p = calloc(1, sizeof(*p));

	p->stacks = aligned_alloc(PAGE, N * PAGE);
	memset(p->stacks, 0, N * PAGE);
	p->slice[0] = (u64)p->pointers;
	p->slice[1] = p->slice[2] = N;
	for (u32 i = 0; i < N; i++) {
		u64 low = (u64)p->stacks + (u64)i * PAGE;

		p->pointers[i] = (u64)p->g[i];
		p->g[i][LOW] = low;
		p->g[i][HIGH] = low + PAGE;
		p->g[i][SP] = low + 1024 + 8ULL * i;
		p->g[i][PC] = 0x401000 + i;
		p->g[i][BP] = low + 2048;
		p->g[i][STATUS] = WAITING;
		p->g[i][ID] = i + 1;
		p->stacks[i * PAGE + 1024 + 8 * i] = (u8)i;
	}
	return p;
}

static void done(struct program *p)
{
	free(p->stacks);
	free(p);
}

static void on_task(void *arg, const struct runtime_scan *s, const struct runtime_task *task)
{
	struct program *p = arg;
	u64 i = task->id - 1;

	cr_assert_lt(i, N);
	cr_assert_eq(task->pc, p->g[i][PC]);
	cr_assert_eq(task->sp, p->g[i][SP]);
	cr_assert_eq(task->fp, p->g[i][BP]);
	cr_assert_eq(task->low, p->g[i][LOW]);
	cr_assert_eq(task->n, PAGE);
	cr_assert_eq(task->stack[task->sp - task->low], (u8)i);
	p->seen[i]++;
	p->weight += (double)s->n_tasks / s->n_drawn;
}

static int look(struct program *p, u32 max, u64 seed, struct runtime_scan *ret)
{
	const struct runtime_target t = {.memory.pid = (u32)getpid()};
	const struct go_goroutines known = {.allgs = (u64)p->slice, .g_id = ID * 8, .g_bp = BP * 8};

	*ret = (struct runtime_scan){.max = max,
				     .until_ns = ~0ULL,
				     .random = &seed,
				     .stack = p->copy,
				     .task = on_task,
				     .arg = p};
	return go_tasks.scan(&t, &known, NULL, NULL, ret);
}

Test(go, those_that_wait_are_told_once)
{
	struct program *p = make();
	struct runtime_scan s;

	p->g[1][STATUS] = RUNNING;
	p->g[2][STATUS] = DEAD;
	p->g[2][LOW] = p->g[2][HIGH] = p->g[2][SP] = 0;
	p->g[3][M] = 0xc000;
	p->g[4][STATUS] = WAITING | 0x1000; /* the collector looks at it */
	p->g[5][STATUS] |= 1ULL << 32;	    /* stackLock */
	cr_assert_eq(look(p, N, 1, &s), 0);
	cr_assert_eq(s.n_tasks, N);
	cr_assert_eq(s.n_drawn, N);
	cr_assert_eq(s.n_unread, 0);
	for (u32 i = 0; i < N; i++)
		cr_expect_eq(p->seen[i], i == 1 || i == 2 || i == 3 ? 0 : 1, "%u: %u", i,
			     p->seen[i]);
	done(p);
}

Test(go, those_drawn_stand_for_all_with_the_same_chance)
{
	enum { LOOKS = 30000, DRAWN = 7 };
	struct program *p = make();
	struct runtime_scan s;
	u64 seed = 1;

	for (u32 i = 0; i < LOOKS; i++) {
		cr_assert_eq(look(p, DRAWN, runtime_random(&seed), &s), 0);
		cr_assert_eq(s.n_drawn, DRAWN);
	}
	/* 2100 of each; the standard deviation is 44. */
	for (u32 i = 0; i < N; i++)
		cr_expect(abs((int)p->seen[i] - 2100) < 220, "%u: %u", i, p->seen[i]);
	cr_expect_float_eq(p->weight / LOOKS, N, 1e-6);
	done(p);
}

Test(go, damage_is_counted)
{
	struct program *p = make();
	struct runtime_scan s;

	p->pointers[0] = 0;
	p->pointers[1] = 0x1000;
	p->pointers[2] += 4;
	p->g[3][SP] = p->g[3][HIGH];
	p->g[4][SP] = p->g[4][LOW] - 8;
	p->g[5][SP]++;
	p->g[6][PC] = 0;
	p->g[7][HIGH] = p->g[7][LOW] + (2ULL << 30);
	p->g[8][LOW] = 0x1000; /* not mapped */
	p->g[8][HIGH] = 0x2000;
	p->g[8][SP] = 0x1800;
	cr_assert_eq(look(p, N, 1, &s), 0);
	cr_assert_eq(s.n_unread, 9);
	for (u32 i = 0; i < N; i++)
		cr_expect_eq(p->seen[i], i < 9 ? 0 : 1, "%u", i);
	done(p);
}

Test(go, a_look_ends_in_time)
{
	struct program *p = make();
	const struct runtime_target t = {.memory.pid = (u32)getpid()};
	const struct go_goroutines known = {.allgs = (u64)p->slice, .g_id = ID * 8, .g_bp = BP * 8};
	u64 seed = 1;
	struct runtime_scan s = {
		.max = N, .random = &seed, .stack = p->copy, .task = on_task, .arg = p};

	cr_assert_eq(go_tasks.scan(&t, &known, NULL, NULL, &s), 0);
	cr_assert_eq(s.n_unread, N);
	done(p);
}

Test(go, a_slice_that_is_none_is_refused)
{
	static const u64 bad[][3] = {{0x1004, 1, 1}, {0x1000, 2, 1}, {0x1000, 1U << 25, 1U << 25}};
	struct program *p = make();
	struct runtime_scan s;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		memcpy(p->slice, bad[i], sizeof(p->slice));
		cr_expect_eq(look(p, N, 1, &s), -EINVAL);
	}
	memset(p->slice, 0, sizeof(p->slice));
	cr_expect_eq(look(p, N, 1, &s), 0);
	cr_expect_eq(s.n_tasks, 0);
	done(p);
}
