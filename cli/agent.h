/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `agent` and `up` have in common: the always-on recording, where its profiles go, and that
 * SIGHUP makes it read its configuration again.
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

/* All that an agent is told; strings stay as long as the program. */
struct agent_config {
	struct agent_arguments args;
	struct session_arguments what;
	const struct export_options *local; /* borrowed: one exporter more, or NULL */
	/* The same once more, as it is now written; 0, or not after a line said what is wrong. */
	int (*read_again)(void *userdata, struct agent_config *ret);
	void *userdata;
};

struct agent {
	struct agent_config config;
	struct session session;
	struct identities *identities;
	struct exporters *exporters;
	struct run *run;
	struct budget budget; /* --memory-limit */

	/* cli/reload.c: a change that is being prepared, by a thread of its own. */
	struct agent_config next_config;
	struct session next; /* empty when sampling stays as it is */
	pthread_t thread;
	bool preparing;	    /* the thread is to be joined */
	bool prepared;	    /* atomic: it is done */
	int error;	    /* its exit status */
	struct session old; /* until nothing of it is in use */
	u64 n_reloads, n_refused;
};

/*
 * Checks everything and loads it; nothing is sampled yet. An exit status; not 0 after a line that
 * says what to do.
 */
int agent_init(const struct agent_config *c, struct agent *ret);
/* Until a signal ends it. An exit status. */
int agent_run(struct agent *a);
void agent_deinit(struct agent *a);
/* For struct server_options and the agent's own /metrics; userdata: struct agent. */
void agent_metrics(void *agent, struct str *out);

/* ---- of each other's files ---- */

/* Exit statuses, after a line. */
int agent_open_session(struct agent *a, const struct agent_config *c, struct session *ret);
/* Makes the exporters, or has them replaced. */
int agent_open_exporters(struct agent *a, const struct agent_config *c);
int agent_set_labels(struct agent *a, const struct agent_config *c);
struct run_change agent_run_change(const struct agent_config *c);
/* For struct run_options: looks for SIGHUP, and for what was prepared. */
void agent_each(void *agent);
/* Waits for a change that is being prepared, and drops it. */
void agent_stop_reload(struct agent *a);
