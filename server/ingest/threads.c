/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which threads the store tells apart: those that live long. A thread that is seen again after
 * LONG_NS gets the labels thread.id and process.pid, so that it has a lane of its own, and so that
 * the id of a lock's owner has a name; a process whose memory is recorded gets process.pid. Threads
 * and processes that live for a moment, of which a build has thousands, stay one series for each
 * name. Nor has a service of many series ids: they would crowd out other labels (limits.c).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/vocab.h"
#include "server/ingest/internal.h"

#define LONG_NS 30000000000ULL
#define WINDOW_NS 600000000000ULL
#define MAX_THREADS 65536 /* in a window; 2 MB */

static u64 thread_key(const struct profile *p, const struct profile_thread *t)
{
	const char *host = profile_label(p, t->resource, "host.name");
	u64 ids[3] = {t->pid, t->tid, host ? hash_bytes(host, strlen(host)) : 0};

	return hash_bytes(ids, sizeof(ids)) >> 1;
}

static void begin_window(struct thread_times *x, u64 now_ns)
{
	map_deinit(&x->before);
	if (now_ns < x->until_ns + WINDOW_NS)
		x->before = x->now;
	else
		map_deinit(&x->now);
	x->now = (struct map){};
	x->until_ns = now_ns + WINDOW_NS;
}

/* Under the lock. Whether the thread was there LONG_NS before this time. */
static bool lives_long(struct thread_times *x, u64 key, u64 time_ns)
{
	const u64 *seen = map_get(&x->now, key);
	u64 first_ns = time_ns;

	if (seen)
		return *seen + LONG_NS <= time_ns;
	seen = map_get(&x->before, key);
	if (seen)
		first_ns = *seen;
	if (x->now.n < MAX_THREADS)
		/* Without memory the thread has no id. */
		(void)map_put(&x->now, key, first_ns);
	return first_ns + LONG_NS <= time_ns;
}

/* Values of whole processes: the memory of one that was replaced is not that of the other. */
static bool has_states(const struct profile *p)
{
	for (u32 t = 0; t < p->n_types; t++)
		if (vocab_sample_type(profile_table_type(p, t))->adds == SAMPLE_ADDS_AT_MOMENT)
			return true;
	return false;
}

static bool is_told_apart(struct ingest *i, const struct profile *p, const struct profile_thread *t)
{
	const char *service = profile_label(p, t->resource, "service.name");
	const u64 *n;
	bool is;

	if (!t->pid || (!t->tid && !has_states(p)) || !p->time_ns)
		return false;
	service = service ? service : "";
	pthread_mutex_lock(&i->limiter.lock);
	if (clock_ns(CLOCK_MONOTONIC) >= i->limiter.threads.until_ns)
		begin_window(&i->limiter.threads, clock_ns(CLOCK_MONOTONIC));
	n = map_get(&i->limiter.services, hash_bytes(service, strlen(service)) >> 1);
	is = lives_long(&i->limiter.threads, thread_key(p, t), p->time_ns) &&
	     (!n || *n < i->o.limits.series / 4);
	pthread_mutex_unlock(&i->limiter.lock);
	return is;
}

static int add_number(struct profile *p, const char *name, u32 number, struct profile_label *ret)
{
	char text[16];
	int r = profile_add_string(p, name, strlen(name), &ret->name);

	snprintf(text, sizeof(text), "%u", number);
	return r < 0 ? r : profile_add_string(p, text, strlen(text), &ret->value);
}

static int add_ids(struct profile *p, struct profile_thread *t)
{
	const struct profile_resource *old = &p->resources.data[t->attributes];
	struct profile_label labels[PROFILE_MAX_LABELS];
	u32 n = old->n, id = 0;
	int r;

	if (n + 2 > PROFILE_MAX_LABELS)
		return 0;
	if (n)
		memcpy(labels, p->labels.data + old->first, n * sizeof(*labels));
	r = add_number(p, "process.pid", t->pid, &labels[n++]);
	if (r == 0 && t->tid)
		r = add_number(p, "thread.id", t->tid, &labels[n++]);
	if (r == 0)
		r = profile_add_resource(p, labels, n, &id);
	if (r == 0)
		t->attributes = id;
	return r;
}

int ingest_tell_threads_apart(struct ingest *i, struct profile *p)
{
	int r = 0;

	for (size_t k = 0; k < p->threads.n && r == 0; k++)
		if (is_told_apart(i, p, &p->threads.data[k]))
			r = add_ids(p, &p->threads.data[k]);
	return r;
}
