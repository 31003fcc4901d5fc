/* SPDX-License-Identifier: Apache-2.0 */
/* Tasks of runtimes that schedule for themselves: finds the runtime of a process that has them. */
#include <errno.h>
#include <string.h>

#include "abi/sample.h"
#include "agent/runtime/internal.h"
#include "base/log.h"

/* xorshift64* (Vigna 2016). */
u64 runtime_random(u64 *state)
{
	u64 x = *state ? *state : 1;

	x ^= x >> 12;
	x ^= x << 25;
	x ^= x >> 27;
	*state = x;
	return (x * 0x2545f4914f6cdd1dULL) >> 1;
}

static void learn(struct known_binary *k, const struct procman_binary *b)
{
	int e = k->native->tasks->learn(b->elf, &k->tasks);

	k->tasks_asked = true;
	if (e < 0)
		log_debug("%s: its waiting tasks are not seen: %s", b->path, strerror(-e));
}

/* Where the tasks of a process are. */
struct found {
	const struct procman_mapping *mapping;
	const struct known_binary *binary;
	const struct runtime_task_ops *ops;
	const void *learned; /* NULL: not known yet */
};

static bool find_native(struct known_binary *k, const struct procman_mapping *m, struct found *ret)
{
	const struct runtime_task_ops *ops = k->native ? k->native->tasks : NULL;

	if (!ops)
		return false;
	if (!k->tasks_asked)
		learn(k, m->binary);
	*ret = (struct found){m, k, ops, k->tasks};
	return k->tasks;
}

/* The learner may not have learned the binary yet; if it has failed, nothing is learned. */
static bool find_walked(const struct known_binary *k, const struct procman_mapping *m,
			struct found *ret)
{
	const struct runtime_ops *ops = k->claimed ? runtime_table[k->claimed].ops : NULL;

	if (!ops || !ops->tasks || (!k->runtime && !k->learning))
		return false;
	*ret = (struct found){m, k, ops->tasks, k->runtime ? k->learned : NULL};
	return true;
}

/* Finds the first mapping of a binary whose tasks can be read. */
static bool find_tasks(struct runtimes *r, const struct procman_process *p, struct found *ret)
{
	for (u32 i = 0; i < p->n; i++) {
		const struct procman_mapping *m = &p->mappings[i];
		struct known_binary *k = m->binary->elf ? runtimes_binary(r, m->binary) : NULL;

		if (k && (find_native(k, m, ret) || find_walked(k, m, ret)))
			return true;
	}
	return false;
}

bool runtimes_have_tasks(struct runtimes *r, const struct procman_process *p, enum task *ret_kind)
{
	struct found f;

	if (!find_tasks(r, p, &f))
		return false;
	*ret_kind = f.ops->kind;
	return true;
}

int runtimes_scan(struct runtimes *r, const struct procman_process *p, struct runtime_scan *s)
{
	struct runtime_target t = {.memory.pid = p->pid, .process = p};
	struct attached *a;
	struct found f;

	if (!find_tasks(r, p, &f))
		return -ENOENT;
	t.elf = f.mapping->binary->elf;
	t.bias = f.mapping->bias;
	if (f.binary->native)
		return f.ops->scan(&t, f.learned, NULL, NULL, s);
	a = f.learned ? runtimes_attached(r, p->image, f.binary->runtime) : NULL;
	if (!a || !a->done || a->binary != f.binary)
		return -EAGAIN;
	return f.ops->scan(&t, f.learned, &a->process, &a->tasks, s);
}

void runtimes_drop_tasks(struct attached *a, u32 runtime)
{
	const struct runtime_task_ops *ops = runtime_table[runtime].ops->tasks;

	if (ops && ops->drop)
		ops->drop(a->tasks);
	a->tasks = NULL;
}

bool runtimes_task_is_own(struct runtimes *r, const struct procman_process *p, const u64 *words,
			  u32 n)
{
	struct found f;

	if (!find_tasks(r, p, &f) || !f.ops->is_own)
		return false;
	for (u32 i = 0; i < n; i++)
		if (words[i] & WORD_RAW || words[i] >> WORD_SVMA_BITS != f.binary->file_id ||
		    !f.ops->is_own(f.learned, words[i] & WORD_SVMA_MASK))
			return false;
	return true;
}
