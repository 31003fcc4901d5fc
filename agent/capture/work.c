/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Capture's thread: follows the tasks. The recording lives from the begin of the first task that is
 * armed until the window is over after the end of the last: so long a server may ask for requests.
 */
#include <stdio.h>
#include <string.h>

#include "agent/capture/internal.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"

#define POLL_MS 100
#define LOOK_NS 500000000ULL
/* After a failure to begin. */
#define RETRY_NS 30000000000ULL
#define MAX_HZ 1000

/* What the thread knows besides struct capture. */
struct work {
	struct capture *c;
	struct recorder *recorder; /* owned; NULL: nothing is armed */
	vec(struct control_task) active;
	u64 look_ns;  /* when tasks are looked at again */
	u64 idle_ns;  /* since when no task is active; 0: some is */
	u64 retry_ns; /* when the recording may begin again after a failure */
	char error[CONTROL_TEXT_BYTES];
};

static bool is_active(const struct control_task *t, u64 now_ms)
{
	return t->start_ms <= now_ms && (!t->end_ms || now_ms < t->end_ms);
}

static void count_task(struct work *w, struct capture_task *t, u64 now)
{
	struct control_task_report *r = &t->report, all = {};

	recorder_count(w->recorder, t->asked.service, &all);
	if (!t->armed_ns) {
		t->armed_ns = now;
		t->samples_before = all.samples;
		t->events_before = all.events;
		t->lost_before = all.lost;
		t->evicted_before = all.evicted;
	}
	r->processes = all.processes;
	r->publishing = all.publishing;
	r->samples = all.samples - t->samples_before;
	r->events = all.events - t->events_before;
	r->lost = all.lost - t->lost_before;
	r->evicted = all.evicted - t->evicted_before;
	r->state = !r->processes    ? CONTROL_STATE_ABSENT
		   : !r->publishing ? CONTROL_STATE_SILENT
				    : CONTROL_STATE_ARMED;
}

/* Under the lock. */
static void describe_task(struct work *w, struct capture_task *t, u64 now, u64 now_ms)
{
	t->report.reason[0] = '\0';
	if (now_ms < t->asked.start_ms) {
		t->report.state = CONTROL_STATE_QUEUED;
	} else if (!is_active(&t->asked, now_ms)) {
		t->report.state = CONTROL_STATE_ENDED;
	} else if (w->recorder) {
		count_task(w, t, now);
	} else {
		t->armed_ns = 0;
		t->report.state = w->error[0] ? CONTROL_STATE_REFUSED : CONTROL_STATE_ABSENT;
		memcpy(t->report.reason, w->error, sizeof(t->report.reason));
	}
}

static void look_at_tasks(struct work *w, u64 now)
{
	u64 now_ms = clock_epoch_ms();

	vec_clear(&w->active);
	pthread_mutex_lock(&w->c->lock);
	vec_foreach (&w->c->tasks.list, t)
		if (is_active(&t->asked, now_ms))
			(void)vec_push(&w->active, t->asked);
	vec_foreach (&w->c->tasks.list, t)
		describe_task(w, t, now, now_ms);
	pthread_mutex_unlock(&w->c->lock);
}

static u64 wanted_hz(const struct work *w)
{
	u64 hz = 1;

	for (size_t i = 0; i < w->active.n; i++)
		if (w->active.data[i].on_cpu && w->active.data[i].period_us)
			hz = MAX(hz, 1000000ULL / w->active.data[i].period_us);
	return MIN(hz, (u64)MAX_HZ);
}

static void begin(struct work *w, u64 now)
{
	struct diag diag = {};
	int r;

	if (now < w->retry_ns)
		return;
	r = recorder_create(w->c, wanted_hz(w), &diag, &w->recorder);
	w->error[0] = '\0';
	if (r == 0)
		return;
	if (!diag.text[0])
		(void)diag_set(&diag, r, "%s", strerror(-r));
	snprintf(w->error, sizeof(w->error), "%s", diag.text);
	log_warn("requests are not recorded: %s", w->error);
	w->retry_ns = now + RETRY_NS;
}

static void end(struct work *w)
{
	recorder_destroy(w->recorder);
	w->recorder = NULL;
	pthread_mutex_lock(&w->c->lock);
	vec_foreach (&w->c->tasks.list, t)
		t->armed_ns = 0;
	w->c->counters.armed = w->c->counters.bytes = 0;
	w->c->counters.hz = w->c->counters.floor_ns = 0;
	pthread_mutex_unlock(&w->c->lock);
}

static void follow_tasks(struct work *w, u64 now)
{
	look_at_tasks(w, now);
	w->look_ns = now + LOOK_NS;
	if (w->active.n) {
		w->idle_ns = 0;
		if (!w->recorder)
			begin(w, now);
	} else if (!w->idle_ns) {
		w->idle_ns = now;
	}
	if (w->recorder)
		recorder_follow(w->recorder, w->active.data, w->active.n, wanted_hz(w));
	if (w->recorder && !w->active.n && now - w->idle_ns > w->c->options.window_ns)
		end(w);
}

/* Nothing is recorded: whoever asks for a request is told nothing. */
static void drop_wishes(struct work *w)
{
	if (!w->recorder)
		vec_clear(&w->c->wishes);
}

/* Under the lock, until a task begins or comes. */
static void wait_for_tasks(struct work *w)
{
	struct capture *c = w->c;
	u64 now_ms = clock_epoch_ms(), next_ms = 60000;

	vec_foreach (&c->tasks.list, t)
		if (t->report.state != CONTROL_STATE_ENDED)
			next_ms =
				MIN(next_ms, t->asked.start_ms > now_ms ? t->asked.start_ms - now_ms
									: LOOK_NS / 1000000);
	if (!c->ending)
		(void)thread_wait(&c->wake, &c->lock, next_ms * 1000000);
}

void *capture_work(void *capture)
{
	struct work w = {.c = capture};
	bool ending = false;

	while (!ending) {
		u64 now = clock_ns(CLOCK_MONOTONIC);

		if (now >= w.look_ns || !w.recorder)
			follow_tasks(&w, now);
		if (w.recorder) {
			(void)recorder_poll(w.recorder, POLL_MS);
			(void)decide(w.recorder);
		}
		pthread_mutex_lock(&w.c->lock);
		drop_wishes(&w);
		if (!w.recorder)
			wait_for_tasks(&w);
		ending = w.c->ending;
		pthread_mutex_unlock(&w.c->lock);
	}
	recorder_destroy(w.recorder);
	vec_deinit(&w.active);
	return NULL;
}
