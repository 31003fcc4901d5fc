/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of agent/ itself. */
#pragma once

#include <pthread.h>

#include "agent/agent.h"
#include "agent/capture/capture.h"
#include "agent/client/client.h"
#include "agent/recent.h"
#include "agent/run/run.h"
#include "agent/watch/watch.h"
#include "base/budget.h"
#include "profile/tree.h"

#define AGENT_MAX_EXPORTS 16
/* Besides those of `exports`: the collector and `local`. */
#define AGENT_MAX_DESTINATIONS (AGENT_MAX_EXPORTS + 2)

struct recording {
	struct pipeline *pipeline;     /* owned, as the next */
	struct recent *recent;	       /* what recording_profile() has to show */
	struct symbolizer *symbolizer; /* owned */
	struct identities *identities; /* owned, or NULL: the agent's, or there are none */
	struct flights *flights;       /* likewise */
	u64 follow_ns;		       /* when they look again (identities_follow()) */
	/* With options.trace (recording_trace.c): */
	struct profile *names; /* owned: stacks with their names */
	struct map named;      /* stack of the batch and its image → stack of `names` */
	bool whole_time;       /* all sources make one profile */
	bool alloc;	       /* likewise, with the types of all */
};

/* How the always-on agent differs from a recording by itself. 0 and NULL: it does not. */
struct recording_limits {
	u64 clock_hz;	  /* default rate of clocks and counters of the PMU */
	u64 tables_bytes; /* of unwind tables, instead of memory_limit_mb */
	u64 max_section;  /* see pipeline_options, as for the next two */
	bool tight_memory;
	struct budget *budget;	 /* borrowed */
	bool leave_files;	 /* see symbolizer_options */
	struct flights *flights; /* borrowed; NULL: JVMs are not asked */
	/* Tasks have no ids in profiles: each would be a series of the store. */
	bool no_task_ids;
};

/* As recording_create(). `identities` (or NULL; borrowed) give samples their resources. */
int recording_open(const struct recording_options *o, const struct recording_limits *l,
		   struct identities *identities, struct diag *reterr_diag, struct recording **ret);

/*
 * Two threads: the one that calls agent_run(), and `thread`, which prepares a reload. The latter
 * reads `options` and writes `next`, `error` and `diag` while `preparing`.
 */
struct agent {
	struct agent_options options;	     /* in effect */
	struct agent_options own;	     /* before what a server has set */
	struct control_settings set;	     /* by a server: in effect, or refused */
	char set_reason[CONTROL_TEXT_BYTES]; /* why they are not in effect as they were set */
	struct agent_control control;
	struct recording *recording;   /* owned, as the next six */
	struct identities *identities; /* thread-safe, as the next three */
	struct exporters *exporters;
	struct flights *flights;     /* atomic; NULL until options ask for it */
	struct control_client *asks; /* the destinations for tasks */
	struct capture *capture;
	struct watch *watch;
	struct measures *measures;
	struct run *run;
	struct budget budget; /* the memory limit of the process */

	/* agent/reload.c */
	struct agent_options next_options, next_own;
	struct recording *next; /* owned; NULL: sampling does not change */
	struct recording *old;	/* owned; destroyed once the run no longer uses it */
	pthread_t thread;
	bool by_server; /* not the configuration: what a server set has changed */
	bool preparing; /* the thread runs, or is to be joined */
	bool prepared;	/* atomic: the thread is done */
	int error;	/* of the thread */
	struct diag diag;
	u64 n_reloads, n_refused; /* atomic: /metrics reads them */
};

/* The events for options.trace; returns their number. */
u32 recording_trace_events(const struct recording_options *o,
			   struct sampler_event ret[SAMPLER_MAX_SOURCES]);

/* For a process that runs for long: large blocks and what is free go back to the system. */
void agent_tune_malloc(void);
/* The limits of a recording whose process has this memory limit, and a budget. */
struct recording_limits agent_recording_limits(u64 limit, struct budget *budget);
/* The limit of the whole process. */
u64 agent_memory_limit(const struct agent_options *o);
/* Opens the recording that the options describe. Any thread; so are the next two. */
int agent_open_recording(struct agent *a, const struct agent_options *o, struct diag *reterr_diag,
			 struct recording **ret);
/* Opens the destinations, or replaces those that are open. After an error nothing has changed. */
int agent_open_exporters(struct agent *a, const struct agent_options *o, struct diag *reterr_diag);
/* Sets the attributes of all exported data, and the host that asks for tasks. */
int agent_set_labels(struct agent *a, const struct agent_options *o, struct diag *reterr_diag);
/* The options that agent/run can change while it runs. */
struct run_change agent_run_change(const struct agent_options *o);

/* ---- settings.c: what a server sets ---- */

/* What servers have set now is not what the agent has looked at. */
bool agent_has_new_settings(const struct agent *a);
/* The options with what a server has set, as far as they allow it; notes why not. */
struct agent_options agent_with_settings(struct agent *a, const struct agent_options *own);
/* Tells servers what is in effect. */
void agent_tell_settings(struct agent *a);

/* For run_options.each: asks for a reload, starts it, and applies one that is prepared. */
void agent_follow_reload(void *agent);
/* Waits for a reload that is being prepared, and discards it. */
void agent_stop_reload(struct agent *a);
