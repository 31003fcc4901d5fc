/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reload of the always-on agent. A thread prepares everything that can fail while sampling
 * continues; after an error the old options stay in effect.
 *
 *	agent_control.reload() ─→ new options ─→ thread: a second recording, if the sampling
 *	options changed; new exporters; the second recording starts ─→ the reader switches to it
 *
 * The same happens when a server has set something else (agent/settings.c), with the own options.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "agent/internal.h"
#include "base/log.h"
#include "base/thread.h"

/* Whether a recording with one of these options serves the other, too. */
static bool same_recording(const struct agent_options *x, const struct agent_options *y)
{
	const struct recording_options *a = &x->what, *b = &y->what;

	return a->hz == b->hz && a->period == b->period && a->budget == b->budget &&
	       str_same(a->events, b->events) && a->off_cpu == b->off_cpu && a->wall == b->wall &&
	       a->resident == b->resident && a->attach_java == b->attach_java &&
	       x->no_off_cpu == y->no_off_cpu && str_same(a->pids, b->pids) &&
	       str_same(a->comms, b->comms) && str_same(a->cgroups, b->cgroups) &&
	       str_same(a->uids, b->uids) && a->memory_limit_mb == b->memory_limit_mb &&
	       a->kernel_only == b->kernel_only && a->user_only == b->user_only &&
	       a->no_inline == b->no_inline && a->runtime_frames == b->runtime_frames &&
	       str_same(a->cache_dir, b->cache_dir) && x->no_symbols == y->no_symbols;
}

static int prepare_exporters(struct agent *a)
{
	int r = agent_set_labels(a, &a->next_options, &a->diag);

	if (r == 0)
		r = agent_open_exporters(a, &a->next_options, &a->diag);
	return r;
}

static int prepare_reload(struct agent *a)
{
	const struct agent_options *o = &a->next_options;
	int r = 0;

	if (!same_recording(o, &a->options))
		r = agent_open_recording(a, o, &a->diag, &a->next);
	if (r == 0 && !a->by_server)
		r = prepare_exporters(a);
	if (r == 0 && a->next) {
		r = recording_start(a->next, &a->diag);
		/* These exporters could be opened before. */
		if (r < 0 && !a->by_server)
			(void)agent_open_exporters(a, &a->options, NULL);
	}
	if (r < 0 && !a->by_server)
		(void)agent_set_labels(a, &a->options, NULL);
	return r;
}

static void *prepare_thread(void *arg)
{
	struct agent *a = arg;

	/* The thread inherits the raised priority of the reader thread and does not need it. */
	(void)setpriority(PRIO_PROCESS, (id_t)gettid(), 0);
	a->error = prepare_reload(a);
	__atomic_store_n(&a->prepared, true, __ATOMIC_RELEASE);
	return NULL;
}

static void refuse_reload(struct agent *a)
{
	__atomic_add_fetch(&a->n_refused, 1, __ATOMIC_RELAXED);
	log_warn("reload refused; the previous configuration stays in effect");
}

static void begin_reload(struct agent *a)
{
	int r;

	a->next_own = (struct agent_options){};
	r = a->control.reload(a->control.userdata, &a->next_own);
	a->by_server = r == 0 && agent_has_new_settings(a);
	if (a->by_server)
		a->next_own = a->own;
	if (r > 0 || a->by_server) {
		a->next_options = agent_with_settings(a, &a->next_own);
		a->prepared = false;
		a->diag = (struct diag){};
		r = thread_start(&a->thread, "reload", prepare_thread, a);
		a->preparing = r == 0;
	}
	if (r < 0)
		refuse_reload(a);
}

static void apply_reload(struct agent *a)
{
	struct run_change c = agent_run_change(&a->next_options);

	if (a->next) {
		c.pipeline = a->next->pipeline;
		c.symbolizer = a->next->symbolizer;
		a->old = a->recording;
		a->recording = a->next;
		a->next = NULL;
		if (a->flights)
			flights_reselect(a->flights);
	}
	if (a->flights)
		flights_set_period(a->flights, c.period_ms);
	run_change(a->run, &c);
	a->options = a->next_options;
	a->own = a->next_own;
	agent_tell_settings(a);
	if (a->by_server) {
		log_info("settings of a server: %llu Hz, %s waits%s%s",
			 a->options.what.hz ? a->options.what.hz : (u64)AGENT_DEFAULT_HZ,
			 a->options.no_off_cpu ? "without" : "with", *a->set_reason ? "; " : "",
			 a->set_reason);
		return;
	}
	__atomic_add_fetch(&a->n_reloads, 1, __ATOMIC_RELAXED);
	log_info("configuration reloaded");
}

static void discard_next(struct agent *a)
{
	recording_destroy(a->next);
	a->next = NULL;
}

static void end_reload(struct agent *a)
{
	pthread_join(a->thread, NULL);
	a->preparing = false;
	if (a->error == 0) {
		apply_reload(a);
		return;
	}
	log_err("%s", a->diag.text);
	discard_next(a);
	if (a->by_server) {
		log_warn("the settings of a server are not done");
		snprintf(a->set_reason, sizeof(a->set_reason), "%s", a->diag.text);
		agent_tell_settings(a);
		return;
	}
	refuse_reload(a);
}

void agent_follow_reload(void *agent)
{
	struct agent *a = agent;

	if (a->old && run_has_changed(a->run)) {
		recording_destroy(a->old);
		a->old = NULL;
	}
	if (a->preparing && __atomic_load_n(&a->prepared, __ATOMIC_ACQUIRE))
		end_reload(a);
	if (!a->preparing && !a->old)
		begin_reload(a);
}

void agent_stop_reload(struct agent *a)
{
	if (!a->preparing)
		return;
	pthread_join(a->thread, NULL);
	a->preparing = false;
	discard_next(a);
}
