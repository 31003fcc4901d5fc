/* SPDX-License-Identifier: Apache-2.0 */
/* Memory profiles that runtimes keep: finds the runtime of a process that has one. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "agent/runtime/internal.h"
#include "base/log.h"

static void learn(struct known_binary *k, const struct procman_binary *b)
{
	int e = k->native->heap->learn(b->elf, &k->heap);

	k->heap_asked = true;
	if (e < 0)
		log_debug("%s: its memory profile is not read: %s", b->path, strerror(-e));
}

int runtimes_heap(struct runtimes *r, const struct procman_process *p, struct runtime_heap_look *l)
{
	int e = -ENOENT;

	for (u32 i = 0; i < p->n; i++) {
		const struct procman_mapping *m = &p->mappings[i];
		struct known_binary *k = m->binary->elf ? runtimes_binary(r, m->binary) : NULL;
		struct runtime_target t = {
			.memory.pid = p->pid, .process = p, .elf = m->binary->elf, .bias = m->bias};

		if (!k || !k->native || !k->native->heap)
			continue;
		if (!k->heap_asked)
			learn(k, m->binary);
		if (k->heap)
			return k->native->heap->look(&t, k->heap, l);
		e = -ENOTSUP;
	}
	return e;
}

bool runtimes_heap_say(struct runtimes *r, const struct procman_process *p, int result,
		       const struct runtime_heap_look *l, char *ret, size_t n)
{
	struct runtime_identity id;

	if (!runtimes_identify(r, p, &id))
		return false;
	switch (result) {
	case 0:
		snprintf(ret, n, "%s: memory profile of %u sites, one sample per %llu bytes",
			 id.name, l->n_sites, l->rate);
		break;
	case -ENODATA:
		snprintf(
			ret, n,
			"%s: no memory profile: the program does not use runtime.MemProfile, which "
			"net/http/pprof and runtime/pprof do, or has set MemProfileRate to 0",
			id.name);
		break;
	case -ENOENT:
		snprintf(ret, n, "%s: keeps no memory profile that can be read from outside",
			 id.name);
		break;
	case -ENOTSUP:
		snprintf(ret, n, "%s: no memory profile: it is not known where this build keeps it",
			 id.name);
		break;
	case -E2BIG:
		snprintf(ret, n, "%s: its memory profile is too large to be read", id.name);
		break;
	case -EAGAIN:
		snprintf(ret, n, "%s: its memory profile changed whenever it was read", id.name);
		break;
	default:
		snprintf(ret, n, "%s: its memory profile could not be read: %s", id.name,
			 strerror(-result));
		break;
	}
	return true;
}
