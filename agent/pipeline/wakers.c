/* SPDX-License-Identifier: Apache-2.0 */
/*
 * BPF sends a wake-up before the wait that it ends, because the woken thread runs only then. The
 * last wake-up of each thread is kept until the thread's next one: it is also what let the thread
 * run on, and so what the waits that the thread ends meanwhile were waiting for.
 */
#include "agent/pipeline/wakers.h"

#include <string.h>

#include "agent/pipeline/batch.h"
#include "agent/pipeline/processes.h"
#include "base/log.h"

#define MAX_WAKINGS 65536 /* threads */
#define MAX_CHAIN 4

static u64 image_of(struct pipeline *p, u32 pid, u64 time_ns)
{
	const struct procman_process *proc = pid ? processes_find_at(p, pid, time_ns) : NULL;

	return proc ? proc->image : 0;
}

void wakers_note(struct pipeline *p, const struct record_sample *s)
{
	struct waking w = {
		.woken_ns = s->woken_ns,
		.waker = {.pid = s->pid,
			  .tid = s->tid,
			  .kernel_stack = s->kernel_stack,
			  .user_stack = s->user_stack,
			  .image = image_of(p, s->pid, s->time_ns)},
	};
	const u64 *at = map_get(&p->waking_index, s->woken_tid);

	memcpy(w.waker.comm, s->comm, sizeof(w.waker.comm));
	if (at) {
		p->wakings.data[*at] = w;
		return;
	}
	if (p->wakings.n >= MAX_WAKINGS) {
		map_clear(&p->waking_index);
		vec_clear(&p->wakings);
	}
	if (vec_push(&p->wakings, w) < 0 ||
	    map_put(&p->waking_index, s->woken_tid, p->wakings.n - 1) < 0)
		log_warn_rarely("out of memory: it is unknown who woke a thread");
}

static const struct waking *last_waking(const struct pipeline *p, u32 tid)
{
	const u64 *at = map_get(&p->waking_index, tid);

	return at ? &p->wakings.data[*at] : NULL;
}

/* `since_ns`: when the wait began that the waking ended. */
static u32 add_chain(struct pipeline *p, const struct waking *waking, u64 since_ns, u32 depth)
{
	struct pipeline_waker w = waking->waker;
	const struct waking *before = w.tid ? last_waking(p, w.tid) : NULL;

	/* Of requests only who ended the wait is told. */
	if (before && depth < MAX_CHAIN && !p->requests && before->woken_ns > since_ns &&
	    before->woken_ns < waking->woken_ns)
		w.next = add_chain(p, before, since_ns, depth + 1);
	return batch_add_waker(p->batch, &w);
}

u32 wakers_join(struct pipeline *p, const struct record_sample *s)
{
	const struct waking *waking = s->woken_ns ? last_waking(p, s->tid) : NULL;

	if (!waking || waking->woken_ns != s->woken_ns)
		return 0;
	return add_chain(p, waking, s->woken_ns - MIN((u64)s->value, s->woken_ns), 1);
}

void wakers_deinit(struct pipeline *p)
{
	map_deinit(&p->waking_index);
	vec_deinit(&p->wakings);
}
