/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goroutines that wait. runtime.allgs points to all of them; a goroutine that no thread runs has
 * its registers in g.sched, and its stack does not change until it is woken. Fields of runtime.g
 * (src/runtime/runtime2.go):
 *
 *	0 stack.lo   8 stack.hi   48 m   56 sched.sp   64 sched.pc   bp sched.bp
 *	goid - 8 atomicstatus u32   goid
 *
 * g is read before and after its stack: if one of these has changed, it did not wait all the time.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/runtime/runtime.h"
#include "base/clock.h"
#include "runtime/go/go.h"

#define G_MAX_BYTES 256
#define TASKS_MAX (1u << 24)
#define STACK_MAX (1ULL << 30) /* Go's own limit */
#define STATUS_WAITING 4
#define STATUS_SCAN 0x1000 /* the collector looks at its stack */
#define CLOCK_EACH 8	   /* tasks between two looks at the clock */

extern const struct runtime_task_ops go_tasks;

/* Compared as bytes. */
struct goroutine {
	u64 low, high, m, sp, pc, bp, id, status;
};

static int learn(struct elf_file *elf, void **ret)
{
	struct go_goroutines *g = calloc(1, sizeof(*g));
	int r = g ? go_goroutines_find(elf, g) : -ENOMEM;

	if (r == 0 && (g->g_id + 8u > G_MAX_BYTES || g->g_bp + 8u > G_MAX_BYTES)) {
		go_goroutines_deinit(g);
		r = -ENOTSUP;
	}
	if (r < 0)
		free(g);
	else
		*ret = g;
	return r;
}

static void forget(void *learned)
{
	struct go_goroutines *g = learned;

	go_goroutines_deinit(g);
	free(g);
}

static u64 word_at(const u8 *bytes, u32 offset)
{
	u64 v;

	memcpy(&v, bytes + offset, sizeof(v));
	return v;
}

static int read_goroutine(const struct runtime_target *t, const struct go_goroutines *known, u64 at,
			  struct goroutine *ret)
{
	u8 g[G_MAX_BYTES];
	int r = runtime_read(&t->memory, at, g, MAX(known->g_id, known->g_bp) + 8u);

	if (r < 0)
		return r;
	*ret = (struct goroutine){
		.low = word_at(g, 0),
		.high = word_at(g, 8),
		.m = word_at(g, 48),
		.sp = word_at(g, 56),
		.pc = word_at(g, 64),
		.bp = word_at(g, known->g_bp),
		.id = word_at(g, known->g_id),
		.status = (u32)word_at(g, known->g_id - 8u) & ~STATUS_SCAN,
	};
	return 0;
}

static bool is_plausible(const struct goroutine *g)
{
	return g->low < g->high && g->high - g->low <= STACK_MAX && g->sp >= g->low &&
	       g->sp < g->high && g->sp % 8 == 0 && g->pc;
}

/* Returns the number of bytes, or a negative errno. */
static int copy_stack(const struct runtime_target *t, const struct goroutine *g, u64 low, u8 *to)
{
	const u64 page = RUNTIME_TASK_PAGE;
	u64 high = (g->high + page - 1) & ~(page - 1);
	u32 n = (u32)MIN(high - low, (u64)RUNTIME_TASK_BYTES);
	int r = runtime_read(&t->memory, low, to, n);

	return r < 0 ? r : (int)n;
}

/* 1: it does not wait. */
static int look_at(const struct runtime_target *t, const struct go_goroutines *known, u64 at,
		   struct runtime_scan *s)
{
	struct goroutine g, after;
	struct runtime_task task = {.stack = s->stack};
	int r = at && at % 8 == 0 ? read_goroutine(t, known, at, &g) : -EINVAL;

	if (r < 0)
		return r;
	if (g.status != STATUS_WAITING || g.m)
		return 1;
	if (!is_plausible(&g))
		return -EINVAL;
	task.low = g.sp & ~(RUNTIME_TASK_PAGE - 1ULL);
	r = copy_stack(t, &g, task.low, s->stack);
	if (r < 0)
		return r;
	task.n = (u32)r;
	r = read_goroutine(t, known, at, &after);
	if (r < 0)
		return r;
	if (memcmp(&g, &after, sizeof(g)) != 0)
		return -EAGAIN;
	task.id = g.id;
	task.pc = g.pc;
	task.sp = g.sp;
	task.fp = g.bp;
	s->task(s->arg, s, &task);
	return 0;
}

static int scan(const struct runtime_target *t, const void *learned,
		const struct runtime_process *process, void **state, struct runtime_scan *s)
{
	const struct go_goroutines *known = learned;
	u64 slice[3], at;
	int r;

	(void)process;
	(void)state;
	r = runtime_read(&t->memory, t->bias + known->allgs, slice, sizeof(slice));

	if (r < 0)
		return r;
	if (slice[1] > slice[2] || slice[1] > TASKS_MAX || slice[0] % 8)
		return -EINVAL;
	s->n_tasks = (u32)slice[1];
	s->n_drawn = MIN(s->max, s->n_tasks);
	for (u32 i = 0; i < s->n_drawn; i++) {
		/* One of each n_tasks / n_drawn that are neighbours: all, if there is room. */
		u64 draw = runtime_random(s->random) % s->n_tasks;
		u64 index = ((u64)i * s->n_tasks + draw) / s->n_drawn;

		if (i % CLOCK_EACH == 0 && clock_ns(CLOCK_MONOTONIC) > s->until_ns) {
			s->n_unread += s->n_drawn - i;
			break;
		}
		r = runtime_read(&t->memory, slice[0] + index * 8, &at, sizeof(at));
		if (r == 0)
			r = look_at(t, known, at, s);
		if (r == -ESRCH)
			return r;
		s->n_unread += r < 0;
	}
	return 0;
}

static bool is_own(const void *learned, u64 svma)
{
	return go_goroutines_is_runtime(learned, svma);
}

const struct runtime_task_ops go_tasks = {
	.kind = TASK_GOROUTINE,
	.learn = learn,
	.forget = forget,
	.scan = scan,
	.is_own = is_own,
};
