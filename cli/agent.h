/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The always-on recording that `agent` and `up` share: its options, its destinations, /metrics, and
 * the reload on SIGHUP.
 */
#pragma once

#include <pthread.h>

#include "agent/export/export.h"
#include "agent/run/run.h"
#include "cli/options.h"
#include "cli/session.h"

struct agent_arguments {
	const char *collector; /* HOST:PORT */
	const char *exports;   /* URLs, comma-separated */
	bool disable_tls, no_symbols;
	const char *ca, *cert, *key, *token_file, *headers;
	const char *labels; /* NAME=VALUE,... */
	const char *host_root;
	const char *spool_dir;
	u64 spool_mb;
	double period_s;
	u64 probabilistic_threshold, probabilistic_interval_s;
};

extern const struct option agent_options[];

/* The agent's configuration. Strings live until the program ends. */
struct agent_config {
	struct agent_arguments args;
	struct session_arguments what;
	const struct export_options *local; /* borrowed: an additional exporter, or NULL */
	/*
	 * Parses the command line, environment and file again. 0, or an exit status after it
	 * printed an error.
	 */
	int (*reread)(void *userdata, struct agent_config *ret);
	void *userdata;
};

struct agent {
	struct agent_config config;
	struct session session;
	struct identities *identities;
	struct exporters *exporters;
	struct run *run;
	struct budget budget; /* --memory-limit */

	/* cli/reload.c: a reload, which a thread of its own prepares. */
	struct agent_config next_config;
	struct session next; /* empty when sampling does not change */
	pthread_t thread;
	bool preparing;	    /* the thread runs, or is to be joined */
	bool prepared;	    /* atomic: the thread is done */
	int error;	    /* the thread's exit status */
	struct session old; /* freed once the run no longer uses it */
	u64 n_reloads, n_refused;
};

/*
 * Checks the configuration and loads the BPF programs; sampling has not started. Returns an exit
 * status; not 0 after it printed an error.
 */
int agent_init(const struct agent_config *c, struct agent *ret);
/* Runs until a signal ends the session. Returns an exit status. */
int agent_run(struct agent *a);
void agent_deinit(struct agent *a);
/*
 * Appends Prometheus text. `agent` is a struct agent *; the type is that of server_options.metrics.
 */
void agent_metrics(void *agent, struct str *out);

/* ---- between cli/agent.c and cli/reload.c ---- */

/* These return an exit status; not 0 after they printed an error. */
int agent_open_session(struct agent *a, const struct agent_config *c, struct session *ret);
/* Creates the exporters, or replaces the destinations of those that exist. */
int agent_open_exporters(struct agent *a, const struct agent_config *c);
int agent_set_labels(struct agent *a, const struct agent_config *c);
struct run_change agent_run_change(const struct agent_config *c);
/* For run_options.each: starts a reload after SIGHUP and applies one that is prepared. */
void agent_each(void *agent);
/* Waits for a reload that is being prepared, and discards it. */
void agent_stop_reload(struct agent *a);
