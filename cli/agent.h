/* SPDX-License-Identifier: Apache-2.0 */
/* What `agent` and `up` have in common: the always-on recording, and where its profiles go. */
#pragma once

#include "agent/export/export.h"
#include "agent/run/run.h"
#include "cli/options.h"
#include "cli/session.h"

struct agent_arguments {
	const char *collector; /* HOST:PORT */
	const char *exports;   /* URLs, comma-separated */
	bool disable_tls, no_symbols;
	const char *ca, *cert, *key, *token_file, *headers;
	const char *spool_dir;
	u64 spool_mb;
	double period_s;
	u64 probabilistic_threshold, probabilistic_interval_s;
};

extern const struct option agent_options[];

struct agent {
	struct session session;
	struct identities *identities;
	struct exporters *exporters;
	struct run *run;
	char *token;
};

/*
 * Checks everything and loads it; nothing is sampled yet. `local` (or NULL) is one exporter more.
 * An exit status; not 0 after a line that says what to do.
 */
int agent_init(const struct agent_arguments *a, const struct session_arguments *what,
	       const struct export_options *local, struct agent *ret);
/* Until a signal ends it. An exit status. */
int agent_run(struct agent *a);
void agent_deinit(struct agent *a);
/* For struct server_options and the agent's own /metrics; userdata: struct agent. */
void agent_metrics(void *agent, struct str *out);
