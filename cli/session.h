/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The options that say what to sample, and the pipeline and symbolizer that all recording commands
 * start.
 */
#pragma once

#include "agent/pipeline/pipeline.h"
#include "agent/run/run.h"
#include "agent/symbolize/symbolize.h"
#include "cli/options.h"

/* The default of --frequency in `agent` and `up`; `record` and `top` use SAMPLER_DEFAULT_HZ. */
#define AGENT_DEFAULT_HZ 19

struct session_arguments {
	u64 hz, clock_hz;			   /* 0: the default; clock_hz is not an option */
	const char *events;			   /* comma-separated, like the next line */
	u64 period;				   /* events per sample; 0: by frequency */
	const char *pids, *comms, *cgroups, *uids; /* comma-separated */
	u64 memory_limit_mb;
	struct budget *budget; /* not an option: the process's budget, or NULL */
	bool tight_memory;
	u64 tables_bytes, max_section; /* not options; 0: memory_limit_mb counts for tables */
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
 * Checks the arguments and what the machine allows, then loads the BPF programs. `follow` is a
 * process to profile with its children, or 0. `identities` is NULL or gives samples their
 * resources. Returns an exit status; not 0 after it printed an error.
 */
int session_init(const struct session_arguments *a, u32 follow, bool keep_times,
		 struct identities *identities, struct session *ret);
void session_deinit(struct session *s);
/* A symbolized profile of the first event, of what was recorded since the start or the last call.
 * Negative errno. */
int session_profile(struct session *s, struct profile **ret);
/* Whether both describe the same recording. */
bool session_same(const struct session_arguments *a, const struct session_arguments *b);
/* After this, session_ended() is true once SIGINT or SIGTERM came; SIGPIPE is ignored. */
void session_catch_signals(void);
bool session_ended(void);
/* After this, SIGHUP sets a flag; session_reload_wanted() returns the flag and clears it. */
void session_catch_reload(void);
bool session_reload_wanted(void);
