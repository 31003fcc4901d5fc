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

/* Returns the mapping of the first binary whose tasks are known; NULL: there is none. */
static const struct procman_mapping *find_tasks(struct runtimes *r, const struct procman_process *p,
						const struct known_binary **ret)
{
	for (u32 i = 0; i < p->n; i++) {
		const struct procman_mapping *m = &p->mappings[i];
		struct known_binary *k = m->binary->elf ? runtimes_binary(r, m->binary) : NULL;

		if (!k || !k->native || !k->native->tasks)
			continue;
		if (!k->tasks_asked)
			learn(k, m->binary);
		*ret = k;
		if (k->tasks)
			return m;
	}
	return NULL;
}

bool runtimes_have_tasks(struct runtimes *r, const struct procman_process *p)
{
	const struct known_binary *k;

	return find_tasks(r, p, &k);
}

int runtimes_scan(struct runtimes *r, const struct procman_process *p, struct runtime_scan *s)
{
	const struct known_binary *k;
	const struct procman_mapping *m = find_tasks(r, p, &k);
	struct runtime_target t = {.memory.pid = p->pid, .process = p};

	if (!m)
		return -ENOENT;
	t.elf = m->binary->elf;
	t.bias = m->bias;
	return k->native->tasks->scan(&t, k->tasks, s);
}

bool runtimes_task_is_own(struct runtimes *r, const struct procman_process *p, const u64 *words,
			  u32 n)
{
	const struct known_binary *k;
	const struct procman_mapping *m = find_tasks(r, p, &k);

	for (u32 i = 0; m && i < n; i++)
		if (words[i] & WORD_RAW || words[i] >> WORD_SVMA_BITS != k->file_id ||
		    !k->native->tasks->is_own(k->tasks, words[i] & WORD_SVMA_MASK))
			return false;
	return m;
}
