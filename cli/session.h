/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `record` and `top` have in common: the options that say what to sample, and the machinery
 * that they start.
 */
#pragma once

#include "agent/pipeline/pipeline.h"
#include "agent/run/run.h"
#include "agent/symbolize/symbolize.h"
#include "cli/options.h"

struct session_arguments {
	u64 hz;
	const char *events; /* comma-separated, as the next line */
	u64 period; /* events per sample; 0: by frequency */
	const char *pids, *comms, *cgroups, *uids; /* comma-separated */
	u64 memory_limit_mb;
	struct budget *budget; /* no option: of the process, or NULL */
	bool tight_memory;
	u64 tables_bytes,
		max_section; /* no options, as the line above; 0: the limit is that of the tables */
	bool kernel_only, user_only, no_inline, runtime_frames;
	bool verbose;
	bool leave_files; /* see symbolizer_options */
};

extern const struct option session_options[];

struct session {
	struct pipeline *pipeline;
	struct symbolizer *symbolizer;
};

/*
 * Checks the arguments and what the machine allows, then loads everything. `follow` is a process
 * to profile with its children, or 0. With identities (or NULL) samples have resources. An exit
 * status; not 0 after a line that says what to do.
 */
int session_init(const struct session_arguments *a, u32 follow, bool keep_times,
		 struct identities *identities, struct session *ret);
void session_deinit(struct session *s);
/* What was recorded of the first event since the start or the last call, with names. Negative errno. */
int session_profile(struct session *s, struct profile **ret);
/* Do they ask for the same recording? */
bool session_same(const struct session_arguments *a, const struct session_arguments *b);
/* SIGINT and SIGTERM end the session, which this tells; SIGPIPE is ignored. */
void session_catch_signals(void);
bool session_ended(void);
/* From now on SIGHUP does not end it; session_reload_wanted() is true once for some of them. */
void session_catch_reload(void);
bool session_reload_wanted(void);
