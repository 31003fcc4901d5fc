/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reload on SIGHUP. A thread prepares everything that can fail while sampling continues; after an
 * error the old configuration stays in effect.
 *
 *	SIGHUP ─→ parse ─→ thread: a second recording, if the sampling options changed; new
 *	     exporters; the second recording starts ─→ the reader thread switches to it
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/log.h"
#include "base/thread.h"
#include "cli/agent.h"
#include "cli/cli.h"

static int prepare(struct agent *a)
{
	const struct agent_config *c = &a->next_config;
	bool other = !session_same(&c->what, &a->config.what) ||
		     c->args.no_symbols != a->config.args.no_symbols;
	struct diag diag = {};
	int r = other ? agent_open_session(a, c, &a->next) : 0;

	if (r == 0)
		r = agent_set_labels(a, c);
	if (r == 0)
		r = agent_open_exporters(a, c);
	if (r == 0 && other && pipeline_start(a->next.pipeline, &diag) < 0) {
		r = cli_error(1, "%s", diag.text[0] ? diag.text : "cannot start sampling");
		/* These exporters could be opened before. */
		(void)agent_open_exporters(a, &a->config);
	}
	if (r)
		(void)agent_set_labels(a, &a->config);
	return r;
}

static void *prepare_thread(void *arg)
{
	struct agent *a = arg;

	/* The thread inherits the raised priority of the reader thread and does not need it. */
	(void)setpriority(PRIO_PROCESS, (id_t)gettid(), 0);
	a->error = prepare(a);
	__atomic_store_n(&a->prepared, true, __ATOMIC_RELEASE);
	return NULL;
}

static void refuse(struct agent *a)
{
	a->n_refused++;
	log_warn("reload refused; the previous configuration stays in effect");
}

static void begin(struct agent *a)
{
	struct agent_config c = {.local = a->config.local,
				 .reread = a->config.reread,
				 .userdata = a->config.userdata};
	int r = c.reread ? c.reread(c.userdata, &c) : 0;

	if (r) {
		refuse(a);
		return;
	}
	a->next_config = c;
	a->prepared = false;
	r = thread_start(&a->thread, "reload", prepare_thread, a);
	a->preparing = r == 0;
	if (r < 0)
		refuse(a);
}

static void change(struct agent *a)
{
	struct run_change c = agent_run_change(&a->next_config);

	if (a->next.pipeline) {
		c.pipeline = a->next.pipeline;
		c.symbolizer = a->next.symbolizer;
		a->old = a->session;
		a->session = a->next;
		a->next = (struct session){};
	}
	run_change(a->run, &c);
	a->config = a->next_config;
	a->n_reloads++;
	log_info("configuration reloaded");
}

static void finish(struct agent *a)
{
	pthread_join(a->thread, NULL);
	a->preparing = false;
	if (a->error == 0) {
		change(a);
		return;
	}
	session_deinit(&a->next);
	refuse(a);
}

void agent_each(void *agent)
{
	struct agent *a = agent;

	if (a->old.pipeline && run_has_changed(a->run))
		session_deinit(&a->old);
	if (a->preparing && __atomic_load_n(&a->prepared, __ATOMIC_ACQUIRE))
		finish(a);
	if (!a->preparing && !a->old.pipeline && session_reload_wanted())
		begin(a);
}

void agent_stop_reload(struct agent *a)
{
	if (!a->preparing)
		return;
	pthread_join(a->thread, NULL);
	a->preparing = false;
	session_deinit(&a->next);
}
