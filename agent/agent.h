/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent. `record` and `top` use a recording; `agent` and `up` use the always-on agent, which is
 * a recording that exports a profile of each period, serves metrics and can be reloaded.
 *
 *	struct recording	pipeline and symbolizer; one thread polls it and takes profiles
 *	struct agent		a recording, its destinations, the identities of processes
 *
 * Both are owned by their creator, and one thread may call their functions, except where noted.
 * Functions that return int return 0 or a negative errno. Those with a `reterr_diag` also set its
 * text. -EINVAL means that an option is wrong.
 */
#pragma once

#include "agent/attach/attach.h"
#include "agent/export/export.h"
#include "agent/parser/parser.h"
#include "agent/pipeline/pipeline.h"
#include "agent/symbolize/symbolize.h"
#include "agent/tracer/tracer.h"
#include "base/diag.h"
#include "base/str.h"
#include "base/types.h"
#include "profile/profile.h"

/* The default rate of the always-on agent; a recording's is SAMPLER_DEFAULT_HZ. */
#define AGENT_DEFAULT_HZ 19

/* ---- a recording ---- */

/* What to sample, and what profiles show. Lists are comma-separated; NULL: no restriction. */
struct recording_options {
	struct parsers *parsers; /* borrowed until the end; parsers_start() */
	const char *events;	 /* as in sampler_event.name; NULL: SAMPLER_DEFAULT_EVENT */
	bool off_cpu;		 /* waits, instead of `events` */
	bool wall;		 /* the whole time of each thread, instead of `events` */
	bool wakers;		 /* also who ended each wait */
	bool block_io;		 /* requests to disks, instead of `events` */
	bool faults;		 /* page faults with their memory, instead of `events` */
	bool resident;		 /* resident memory; with an agent beside `events` */
	bool heap;		 /* memory profiles of runtimes; with an agent beside `events` */
	bool alloc;		 /* allocations; likewise */
	/* What Java programs allocate, by their JVMs (agent/attach); likewise */
	bool attach_java;
	/* Nothing is sampled: bits 1 << enum bpf_prog_type, for recording_trace(). */
	u64 trace;
	/* With trace: walkers of all runtimes are loaded first, not only of those that run. */
	bool all_walkers;
	bool trace_links; /* with trace: the programs are those of linked uprobes */
	u64 hz;		  /* samples per second on each CPU; 0: the event's default */
	u64 period;	  /* events per sample, instead of a rate; 0: none */
	double budget;	  /* as sampler_options.budget */
	const char *pids, *comms;
	const char *cgroups; /* paths below the cgroup v2 mount, or absolute */
	const char *uids;    /* users, by name or number */
	u32 follow;	     /* a process to sample with its children, besides `pids`; or 0 */
	/* As in struct pipeline_options, instead of all these. */
	enum pipeline_choice (*choose)(void *arg, const struct procman_process *p);
	void *choose_arg;
	u64 clock_ns;	 /* time between samples of a clock, instead of `hz`; 0: none */
	bool whole_time; /* with `events`: clocks and waits are of the whole time, as with `wall` */
	bool kernel_only, user_only;
	bool no_inline, runtime_frames, leave_self; /* see symbolizer_options */
	bool keep_times;			    /* profiles contain the time of each sample */
	/* Profiles tell whose each process is (agent/identity); the agent's always do. */
	bool identify;
	const char *host_root; /* with it: where the host's / is mounted; NULL: it is / */
	double last_s;	       /* profiles contain only the last seconds before their end; 0: all */
	u64 memory_limit_mb;   /* limit of the unwind tables; 0: 256 */
	/* Absolute; symbols and unwind rows are kept below it. NULL: nowhere. */
	const char *cache_dir;
	const char *debuginfod_urls; /* or NULL */
};

struct recording;

/*
 * Checks the options and what the machine allows, and loads the BPF programs; sampling has not
 * started. The options are borrowed for the call. Raises the limit of open files of this process.
 * -ESRCH: a process of `pids` does not exist.
 */
int recording_create(const struct recording_options *o, struct diag *reterr_diag,
		     struct recording **ret);
void recording_destroy(struct recording *r);
/* Returns when sampling has begun: up to half a second later. */
int recording_start(struct recording *r, struct diag *reterr_diag);
/* Handles the events that have arrived, and waits for more, at most timeout_ms. */
int recording_poll(struct recording *r, int timeout_ms);
/* Ends sampling. What was recorded remains. */
void recording_stop(struct recording *r);
/*
 * A symbolized profile of the first event, of what was recorded since the start or the last call of
 * this function or of recording_discard(). Owned by the caller. -ENOMEM.
 */
int recording_profile(struct recording *r, struct profile **ret);
/* Drops what recording_profile() would return now. */
void recording_discard(struct recording *r);
/* Counts of what recording_profile() would return now, and of the parts since the start. */
void recording_stats(struct recording *r, struct pipeline_stats *ret);
/* False: there was no attach_java. */
bool recording_flight_stats(const struct recording *r, struct flights_stats *ret);
void recording_symbol_stats(const struct recording *r, struct symbolizer_stats *ret);
/* As pipeline_heap_say(). */
void recording_heap_say(struct recording *r,
			void (*say)(void *arg, u32 pid, const char *comm, const char *text),
			void *arg);

/* With options.trace: stacks for the programs of a script, which have them by id (abi/trace.h). */

/* Where programs of this type (enum bpf_prog_type) ask for stacks. -ENOENT: not in `trace`. */
int recording_trace(const struct recording *r, u32 type, struct sampler_trace *ret);
/* The present id of a stack, as pipeline_trace_id(): equal stacks of a process have equal ones. */
u64 recording_stack_id(struct recording *r, u64 id);
/*
 * Names stacks; pid: of the process, 0 for kernel stacks. ret: ids of stacks of
 * recording_names(), each with its leaf first. A stack that was lost has a note as its only frame.
 * Many at once are named faster. -ENOMEM.
 */
struct recording_stack {
	u64 id;
	u32 pid;
};
int recording_name_stacks(struct recording *r, const struct recording_stack *stacks, size_t n,
			  u32 *ret);
/* Stacks that were not taken because another walk was under way, or were lost on the way. */
u64 recording_lost_stacks(struct recording *r);
/* The names so far; borrowed. */
const struct profile *recording_names(const struct recording *r);

/* The i-th event; NULL after the last one. Borrowed until recording_destroy(). */
const struct sampler_source *recording_source(const struct recording *r, u32 i);

/* ---- a script ---- */

/* A script (agent/trace) with the recording that takes its stacks. Functions are as those there. */
struct tracing;

int tracing_create(const struct tracer_session_options *o, struct diag *reterr_diag,
		   struct tracing **ret);
int tracing_start(struct tracing *t, struct diag *reterr_diag);
u32 tracing_probes(const struct tracing *t);
int tracing_poll(struct tracing *t, int wait_ms);
void tracing_signal(struct tracing *t, int number);
int tracing_end(struct tracing *t);
/* As tracer_session_profile_map() and tracer_session_profile(). */
int tracing_profile_check(const struct tracing *t, struct diag *reterr_diag);
int tracing_profile(struct tracing *t, struct profile **ret, struct diag *reterr_diag);
void tracing_losses(const struct tracing *t, u64 ret[TRACE_LOSS_N]);
/* Borrowed. */
struct tracer_session *tracing_session(struct tracing *t);
/* Names a stack of a record: *ret_stack is one of the profile's, which is borrowed. NULL: none. */
const struct profile *tracing_stack(struct tracing *t, u64 id, u32 pid, u32 *ret_stack);
void tracing_destroy(struct tracing *t);

/* ---- the always-on agent ---- */

/* Strings are borrowed until agent_destroy(), also those of options that a reload replaced. */
struct agent_options {
	/* memory_limit_mb limits the whole process (0: 384); keep_times and last_s are ignored. */
	struct recording_options what;
	bool no_off_cpu; /* without `events`: no waits beside the CPU time */
	/* Destinations; there must be one. */
	const char *collector;		    /* HOST:PORT for OTLP over gRPC, or NULL */
	const char *exports;		    /* URLs as in export_options, comma-separated */
	const struct export_options *local; /* one more, with options of its own; or NULL */
	/* For the first two, as in export_options. */
	bool disable_tls;
	const char *ca, *cert, *key, *token_file, *user_file, *headers;
	const char *roots;     /* of files: as profile_roots_parse(); NULL: none */
	const char *spool_dir; /* each destination has a directory in it; NULL: spool in memory */
	u64 spool_mb;	       /* limit of each spool; 0: 64 */
	bool no_symbols;       /* as symbolizer_options.leave_files */
	bool no_tasks;	       /* destinations are not asked for tasks */
	/* What destinations set about sampling is not done, or at most at this rate (0: 200). */
	bool no_remote_settings;
	u64 max_remote_hz;
	const char *labels;    /* attributes of all data: NAME=VALUE,...; or NULL */
	const char *host_root; /* where the host's / is mounted; NULL: it is / */
	double period_s;       /* time that a profile covers; 0: 5 */
	/* Only this percentage of intervals is sampled, chosen at random; 0: all. */
	u64 probabilistic_threshold, probabilistic_interval_s; /* 0: 60 s */
	/* What the agent may take of all CPUs; its rate falls before that. 0: no limit. */
	double cpu_budget_percent;
};

/* What agent_run() asks its caller, in the caller's thread, about every 100 ms. */
struct agent_control {
	bool (*ended)(void);
	/*
	 * Whether to reload: 0: no; 1: yes, with the options in `ret`; negative: yes, but the new
	 * options are wrong, and the function has printed why. Not called during a reload.
	 */
	int (*reload)(void *userdata, struct agent_options *ret);
	void *userdata;
};

/* What agent_create() and all later calls need of root: bits for privilege_keep(). */
u64 agent_capabilities(bool attach_java);

struct agent;

/*
 * Checks the options, opens the destinations, starts their threads and loads the BPF programs;
 * sampling has not started. Also sets malloc() up for a process that runs for long.
 */
int agent_create(const struct agent_options *o, struct diag *reterr_diag, struct agent **ret);
/*
 * Samples until control->ended(), then exports what is left. A reload that fails is logged, and the
 * old options stay in effect.
 */
int agent_run(struct agent *a, const struct agent_control *control, struct diag *reterr_diag);
/* Destinations get 5 s to accept what is left for them. */
void agent_destroy(struct agent *a);
/* Appends the agent's metrics as Prometheus text. Any thread. */
void agent_metrics(struct agent *a, struct str *out);

/* ---- gala-gopher's flame graph probe ---- */

/* doc/stackprobe.md. Strings are borrowed until stackprobe_destroy(). */
struct stackprobe_options {
	struct parsers *parsers; /* borrowed until the end; parsers_start() */
	u64 memory_limit_mb;	 /* of the whole process; 0: 384 */
	const char *cache_dir;	 /* as in recording_options, like the next */
	const char *debuginfod_urls;
	const char *host_root; /* where the host's / is mounted; NULL: it is / */
	double period_s;       /* at most so long until new samples are in files; 0: 20 */
	bool canonical;	       /* folded files as culprit writes them */
};

struct stackprobe;

/* Nothing is recorded until a request says so. Also sets malloc() up, as agent_create(). */
int stackprobe_create(const struct stackprobe_options *o, struct diag *reterr_diag,
		      struct stackprobe **ret);
void stackprobe_destroy(struct stackprobe *s);
/* Records as requests say, until ended(), which is called about every 100 ms. */
void stackprobe_run(struct stackprobe *s, bool (*ended)(void));
/*
 * Requests, from any thread. They return when what they say is done: stackprobe_run() must be
 * running, or be called by another thread. -EINVAL: the request is wrong, or its recording cannot
 * start, nothing has changed, and the diag has gala-gopher's sentence; -ENOMEM.
 */
int stackprobe_put(struct stackprobe *s, const char *json, size_t n, struct diag *reterr_diag);
int stackprobe_delete(struct stackprobe *s, struct diag *reterr_diag);
void stackprobe_get(struct stackprobe *s, struct str *out);
