/* SPDX-License-Identifier: Apache-2.0 */
/* What servers ask for, and what they are told: all under one lock that is held briefly. */
#include "agent/capture/capture.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/capture/internal.h"
#include "base/clock.h"
#include "base/metrics.h"
#include "base/thread.h"

/* Undecided and unreported requests of all servers; beyond, the oldest reports are dropped. */
#define MAX_WISHES (2 * CONTROL_MAX_KEEPS)
#define MAX_KEPT (2 * CONTROL_MAX_KEEPS)
/* A request that is asked for again within this time is the same wish. */
#define ASKED_MS (10 * 60000ULL)

static int copy_text(const char *text, char **ret)
{
	*ret = text ? strdup(text) : NULL;
	return text && !*ret ? -ENOMEM : 0;
}

int capture_create(const struct capture_options *o, struct diag *reterr_diag, struct capture **ret)
{
	_cleanup_capture_ struct capture *c = calloc(1, sizeof(*c));
	int r;

	if (!c)
		return -ENOMEM;
	thread_sync_init(&c->lock, &c->wake);
	c->options = *o;
	c->options.window_ns = o->window_ns ? o->window_ns : CAPTURE_WINDOW_NS;
	r = copy_text(o->cache_dir, &c->cache_dir);
	if (r == 0)
		r = copy_text(o->debuginfod_urls, &c->debuginfod_urls);
	if (r < 0)
		return r;
	c->options.cache_dir = c->cache_dir;
	c->options.debuginfod_urls = c->debuginfod_urls;
	r = thread_start(&c->thread, "capture", capture_work, c);
	if (r < 0)
		return diag_set(reterr_diag, r, "cannot start a thread: %s", strerror(-r));
	c->started = true;
	*ret = take_ptr(c);
	return 0;
}

void capture_destroy(struct capture *c)
{
	if (!c)
		return;
	if (c->started) {
		pthread_mutex_lock(&c->lock);
		c->ending = true;
		pthread_cond_broadcast(&c->wake);
		pthread_mutex_unlock(&c->lock);
		pthread_join(c->thread, NULL);
	}
	vec_deinit(&c->tasks.list);
	vec_deinit(&c->wishes);
	for (u32 i = 0; i < CAPTURE_MAX_SERVERS; i++)
		vec_deinit(&c->kept[i]);
	map_deinit(&c->asked);
	free(c->cache_dir);
	free(c->debuginfod_urls);
	pthread_cond_destroy(&c->wake);
	pthread_mutex_destroy(&c->lock);
	free(c);
}

/* ---- tasks ---- */

static struct capture_task *find_task(struct capture *c, u32 server, const char *id)
{
	vec_foreach (&c->tasks.list, t)
		if (t->server == server && !strcmp(t->asked.id, id))
			return t;
	return NULL;
}

/* Requests that a task has met may be decided about when it is over. */
static struct capture_task *find_former(struct capture *c, u32 server, const char *id)
{
	for (u32 i = 0; i < MIN(c->n_former, (u32)CAPTURE_MAX_FORMER); i++)
		if (c->former[i].server == server && !strcmp(c->former[i].asked.id, id))
			return &c->former[i];
	return NULL;
}

static void add_task(struct capture *c, u32 server, const struct control_task *asked)
{
	struct capture_task t = {.asked = *asked, .server = server};

	memcpy(t.report.id, asked->id, sizeof(t.report.id));
	t.report.revision = asked->revision;
	t.report.state = CONTROL_STATE_QUEUED;
	(void)vec_push(&c->tasks.list, t); /* there is room */
}

/* Under the lock. Drops the server's tasks that are not among `n`. */
static void drop_others(struct capture *c, u32 server, const struct control_task *tasks, size_t n)
{
	size_t left = 0;

	for (size_t i = 0; i < c->tasks.list.n; i++) {
		const struct capture_task *t = &c->tasks.list.data[i];
		bool stays = t->server != server;

		for (size_t k = 0; k < n && !stays; k++)
			stays = !strcmp(tasks[k].id, t->asked.id);
		if (stays)
			c->tasks.list.data[left++] = *t;
		else
			c->former[c->n_former++ % CAPTURE_MAX_FORMER] = *t;
	}
	c->tasks.list.n = left;
}

int capture_set_tasks(struct capture *c, u32 server, const struct control_task *tasks, size_t n)
{
	int r;

	if (server >= CAPTURE_MAX_SERVERS)
		return -EINVAL;
	n = MIN(n, (size_t)CONTROL_MAX_TASKS);
	pthread_mutex_lock(&c->lock);
	r = vec_reserve(&c->tasks.list, c->tasks.list.n + n);
	if (r == 0) {
		drop_others(c, server, tasks, n);
		for (size_t i = 0; i < n; i++) {
			struct capture_task *known = find_task(c, server, tasks[i].id);

			if (!known) {
				add_task(c, server, &tasks[i]);
				continue;
			}
			known->asked = tasks[i];
			known->report.revision = tasks[i].revision;
		}
		pthread_cond_broadcast(&c->wake);
	}
	pthread_mutex_unlock(&c->lock);
	return r;
}

void capture_forget_server(struct capture *c, u32 server)
{
	if (server >= CAPTURE_MAX_SERVERS)
		return;
	(void)capture_set_tasks(c, server, NULL, 0);
	pthread_mutex_lock(&c->lock);
	vec_clear(&c->kept[server]);
	pthread_mutex_unlock(&c->lock);
}

/* ---- requests ---- */

void capture_decided(struct capture *c, const struct capture_wish *w, enum control_outcome outcome,
		     u64 samples)
{
	struct control_kept k = {.outcome = outcome, .samples = samples};
	size_t n = c->kept[w->server].n;

	memcpy(k.task, w->keep.task, sizeof(k.task));
	memcpy(k.trace_id, w->keep.trace_id, sizeof(k.trace_id));
	memcpy(k.span_id, w->keep.span_id, sizeof(k.span_id));
	c->counters.kept += outcome == CONTROL_OUTCOME_KEPT;
	c->counters.partly += outcome == CONTROL_OUTCOME_PARTLY;
	c->counters.gone += outcome == CONTROL_OUTCOME_EVICTED;
	/* A server that is away for long learns of the last ones. */
	if (n >= MAX_KEPT) {
		c->kept[w->server].n--;
		memmove(c->kept[w->server].data, c->kept[w->server].data + 1,
			(n - 1) * sizeof(*c->kept[w->server].data));
	}
	(void)vec_push(&c->kept[w->server], k);
}

static u64 wish_hash(u32 server, const struct control_keep *k)
{
	u64 h = hash_bytes(k->task, strnlen(k->task, sizeof(k->task)));

	h = hash_u64(h ^ server ^ hash_bytes(k->trace_id, sizeof(k->trace_id)));
	return hash_u64(h ^ hash_bytes(k->span_id, sizeof(k->span_id)));
}

/* Under the lock. */
static bool was_asked(struct capture *c, u64 hash, u64 now_ms)
{
	const u64 *at = map_get(&c->asked, hash);

	if (at && now_ms - *at < ASKED_MS)
		return true;
	if (c->asked.n >= 4 * MAX_WISHES)
		map_clear(&c->asked);
	(void)map_put(&c->asked, hash, now_ms);
	return false;
}

int capture_keep(struct capture *c, u32 server, const struct control_keep *keeps, size_t n)
{
	u64 now = clock_ns(CLOCK_MONOTONIC);
	int r = 0;

	if (server >= CAPTURE_MAX_SERVERS)
		return -EINVAL;
	pthread_mutex_lock(&c->lock);
	for (size_t i = 0; i < n && r == 0; i++) {
		const struct capture_task *t = find_task(c, server, keeps[i].task);
		struct capture_wish w = {.keep = keeps[i], .server = server, .asked_ns = now};

		t = t ? t : find_former(c, server, keeps[i].task);
		if (!t)
			continue;
		memcpy(w.service, t->asked.service, sizeof(w.service));
		/* Room first: a request that is noted as asked for is not taken again. */
		r = c->wishes.n < MAX_WISHES ? vec_reserve(&c->wishes, c->wishes.n + 1) : -ENOMEM;
		if (r == 0 && !was_asked(c, wish_hash(server, &keeps[i]), now / 1000000))
			r = vec_push(&c->wishes, w);
	}
	pthread_cond_broadcast(&c->wake);
	pthread_mutex_unlock(&c->lock);
	return r;
}

int capture_report(struct capture *c, u32 server, struct control_request *ret)
{
	int r = 0;

	if (server >= CAPTURE_MAX_SERVERS)
		return -EINVAL;
	pthread_mutex_lock(&c->lock);
	vec_foreach (&c->tasks.list, t)
		if (t->server == server && r == 0)
			r = vec_push(&ret->tasks, t->report);
	for (size_t i = 0; i < c->kept[server].n && i < CONTROL_MAX_KEEPS && r == 0; i++)
		r = vec_push(&ret->kept, c->kept[server].data[i]);
	pthread_mutex_unlock(&c->lock);
	return r;
}

void capture_answered(struct capture *c, u32 server, size_t n)
{
	if (server >= CAPTURE_MAX_SERVERS)
		return;
	pthread_mutex_lock(&c->lock);
	n = MIN(n, c->kept[server].n);
	c->kept[server].n -= n;
	if (n)
		memmove(c->kept[server].data, c->kept[server].data + n,
			c->kept[server].n * sizeof(*c->kept[server].data));
	pthread_mutex_unlock(&c->lock);
}

/* ---- /metrics ---- */

void capture_metrics(struct capture *c, struct str *out)
{
	struct capture_counters n;
	u64 tasks, wishes;

	pthread_mutex_lock(&c->lock);
	tasks = c->tasks.list.n;
	wishes = c->wishes.n;
	n = c->counters;
	pthread_mutex_unlock(&c->lock);
#define METRIC(name, help, value)                                                                  \
	metrics_single(out, "culprit_agent_capture_" name, help, (double)(value))
	METRIC("tasks", "Tasks that servers have given.", tasks);
	METRIC("undecided", "Requests to keep whose profile is not made yet.", wishes);
	METRIC("processes", "Processes that are armed.", n.armed);
	METRIC("hertz", "Rate at which threads with a span are sampled; 0: nothing is armed.",
	       n.hz);
	METRIC("floor_seconds",
	       "Shortest wait with a stack, to which the budget has raised it; 0: it has not.",
	       (double)n.floor_ns / 1e9);
	METRIC("bytes", "Memory of samples and intervals.", n.bytes);
	METRIC("samples_total", "Samples of threads with a span.", n.samples);
	METRIC("intervals_total", "Intervals of threads with a span.", n.intervals);
	METRIC("lost_total", "Samples and intervals that were lost on the way.", n.lost);
	METRIC("evicted_total", "Samples and intervals that had no room until a minute had passed.",
	       n.evicted);
	METRIC("kept_total", "Requests of which all was kept.", n.kept);
	METRIC("partly_total", "Requests whose beginning was dropped before the decision.",
	       n.partly);
	METRIC("gone_total", "Requests that were dropped before the decision.", n.gone);
#undef METRIC
}
