/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inserts and removes the probes of a process in a thread of its own, because the kernel takes its
 * time. To remove probes it takes the breakpoints out at once, and then waits until no CPU can be
 * in a program of theirs: 20 to 45 ms (uprobe_unregister_sync()). To insert some it waits for a
 * grace period of RCU first: 8 ms, more on a busy machine. If the thread that opens and closes
 * windows waited for that, the window of another process would stay open as long, and slow the
 * process down.
 *
 * At most one work of an image is under way. The thread collects what was done by works_done().
 */
#include <errno.h>
#include <stdlib.h>

#include "agent/alloc/internal.h"
#include "base/clock.h"
#include "base/thread.h"

#define MAX_WORKS 16

static void remove_all(struct work *w)
{
	vec_foreach (&w->items, item)
		alloc_detach(&item->probes);
}

static void insert_all(struct work *w)
{
	vec_foreach (&w->items, item) {
		if (w->result == 0)
			w->result = alloc_attach(&w->a->programs, w->pid, item->fd, item->sites,
						 &item->probes);
	}
	if (w->result < 0)
		remove_all(w);
}

void work_destroy(struct work *w)
{
	remove_all(w);
	vec_deinit(&w->items);
	free(w);
}

static void *run(void *arg)
{
	struct work *w = arg;
	struct allocs *a = w->a;
	u64 begin = clock_ns(CLOCK_MONOTONIC), took;
	u64 *longest = w->inserts ? &a->stats.attach_ns : &a->stats.detach_ns;

	if (w->inserts)
		insert_all(w);
	else
		remove_all(w);
	took = clock_ns(CLOCK_MONOTONIC) - begin;
	pthread_mutex_lock(&a->lock);
	*longest = MAX(*longest, took);
	w->next = a->done;
	a->done = w;
	a->n_works--;
	pthread_cond_broadcast(&a->wake);
	pthread_mutex_unlock(&a->lock);
	return NULL;
}

/* Does it now if there are too many threads already. */
static void start(struct allocs *a, struct work *w)
{
	pthread_t thread;
	bool full;

	pthread_mutex_lock(&a->lock);
	full = a->n_works >= MAX_WORKS;
	a->n_works++;
	pthread_mutex_unlock(&a->lock);
	if (!full && thread_start(&thread, "probes", run, w) == 0)
		pthread_detach(thread);
	else
		(void)run(w);
}

static struct work *work_new(struct allocs *a, const struct probed *p, bool inserts)
{
	struct work *w = calloc(1, sizeof(*w));

	if (!w || vec_reserve(&w->items, p->parts.n) < 0) {
		free(w);
		return NULL;
	}
	w->a = a;
	w->image = p->image;
	w->pid = p->pid;
	w->inserts = inserts;
	return w;
}

int probes_insert(struct allocs *a, struct probed *p)
{
	struct work *w = work_new(a, p, true);

	if (!w)
		return -ENOMEM;
	for (size_t i = 0; i < p->parts.n; i++) {
		const struct part *part = &p->parts.data[i];

		if (part->probes.session < 0 && !part->probes.links.n)
			(void)vec_push(&w->items, (struct work_item){i, part->fd, part->sites,
								     ALLOC_PROBES_NONE});
	}
	p->is_busy = true;
	start(a, w);
	return 0;
}

void probes_remove(struct allocs *a, struct probed *p)
{
	struct work *w = work_new(a, p, false);

	for (size_t i = 0; i < p->parts.n; i++) {
		struct part *part = &p->parts.data[i];

		if (w)
			(void)vec_push(&w->items, (struct work_item){i, -1, NULL, part->probes});
		else
			alloc_detach(&part->probes);
		part->probes = ALLOC_PROBES_NONE;
	}
	if (!w)
		return;
	p->is_busy = true;
	start(a, w);
}

struct work *works_done(struct allocs *a)
{
	struct work *w;

	pthread_mutex_lock(&a->lock);
	w = a->done;
	if (w)
		a->done = w->next;
	pthread_mutex_unlock(&a->lock);
	return w;
}

void works_end(struct allocs *a)
{
	struct work *w;

	pthread_mutex_lock(&a->lock);
	while (a->n_works)
		(void)thread_wait(&a->wake, &a->lock, 1000000000ULL);
	pthread_mutex_unlock(&a->lock);
	while ((w = works_done(a)))
		work_destroy(w);
}
