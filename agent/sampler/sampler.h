/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The user half of bpf/prog: loads the programs of each source (abi/tbl/source.tbl) that is asked
 * for, attaches them to its events, and turns the ring's records into calls. What the programs know
 * of processes and what they send is shared by all sources; states of samples, counters and rates
 * are each source's own. Belongs to one thread.
 */
#pragma once

#include "abi/sample.h"
#include "agent/sampler/sizes.h"
#include "base/diag.h"
#include "base/types.h"

#define SAMPLER_DEFAULT_HZ 99
#define SAMPLER_MAX_HZ 10000
/*
 * The default for events of the kernel, such as page faults. They come in bursts: the kernel adapts
 * the period to the rate, and at a clock's rate one sample would stand for 100,000 of them.
 */
#define SAMPLER_EVENTS_HZ 997
#define SAMPLER_DEFAULT_EVENT "cpu-clock"

struct sampler;

/* An event to sample. */
struct sampler_event {
	const char *name; /* as in abi/tbl/source.tbl; borrowed for the call */
	u64 hz;		  /* samples a second on each CPU; 0: clock_hz, or SAMPLER_EVENTS_HZ */
	u64 clock_hz;	  /* the default for clocks and counters of the PMU */
	u64 period;	  /* 0, or one sample after so many events, whatever hz says */
};

/* What a source gives: its samples name it by its place in the sampler's list. */
struct sampler_source {
	char event[64];	       /* the name that was asked for */
	enum sample_type type; /* of its values */
	char type_name[64];    /* the type's name; of events without a type of their own, theirs */
	u64 hz;		       /* 0: it has no rate */
	u64 period;	       /* what one sample stands for; 0: it varies */
};

struct sampler_options {
	const struct sampler_event *events;
	u32 n_events; /* at most SAMPLER_MAX_SOURCES */
	bool kernel_stacks;
	bool user_stacks;
	const u32 *pids; /* borrowed for the call, as all of these */
	u32 n_pids;
	bool follow_forks;
	const char *const *comms;
	u32 n_comms;
	const char *const *cgroups; /* paths below the cgroup v2 mount, or absolute */
	u32 n_cgroups;
	const u32 *uids;
	u32 n_uids;
	u64 ring_bytes;	 /* 0 = by the rate and the number of CPUs */
	u64 limit_bytes; /* of the process's memory, see sizes.h; 0: none */
};

/* Stack memory that came with a deferred sample: pages, in no order that matters. */
struct sampler_copy {
	u32 n;
	u64 addresses[SAMPLE_MAX_COPIES];
	u8 *data; /* n pages of SAMPLE_COPY_BYTES; borrowed for the call */
};

struct sampler_ops {
	/* A stack that later samples name; frames leaf first, borrowed for the call. */
	void (*stack)(void *arg, const struct record_stack *head, const u64 *frames);
	void (*sample)(void *arg, const struct record_sample *s);
	/* The stack d->sample.user_stack is the part that was walked already. */
	void (*deferred)(void *arg, const struct record_deferred *d,
			 const struct sampler_copy *copy);
	/* A set of attributes that later samples name; bytes as `head` says. */
	void (*attributes)(void *arg, const struct record_attributes *head, const u8 *bytes);
	/* A process runs another program now; side-band events of the exec were written before. */
	void (*exec)(void *arg, const struct record_exec *e);
};

struct sampler_source_stats {
	u64 counters[COUNTER_N];
	u64 bpf_ns, bpf_runs; /* of its programs, when kernel.bpf_stats_enabled is 1 */
};

struct sampler_stats {
	struct sampler_source_stats sources[SAMPLER_MAX_SOURCES];
	struct sampler_source_stats all; /* their sum */
	u32 n_sources;
	u64 map_bytes;	  /* of all maps but the arena's chunks */
	u64 mapped_bytes; /* of these, as they count in what is resident: the ring twice */
	u64 fixed_bytes;  /* struct sizes: the process's memory that never shrinks */
	u64 copies_lost;  /* copies of stacks that were dropped before their end came */
	u32 cpus;
	u64 elapsed_ns; /* since sampler_start() */
};

/* Loads; nothing runs yet. */
int sampler_create(const struct sampler_options *o, const struct sampler_ops *ops, void *arg,
		   struct diag *reterr_diag, struct sampler **ret);
void sampler_destroy(struct sampler *s);
/* What was allocated; valid as long as the sampler. */
const struct sizes *sampler_sizes(const struct sampler *s);
/* The i-th source; NULL behind the last. Valid as long as the sampler. */
const struct sampler_source *sampler_source(const struct sampler *s, u32 i);
/* The highest rate of its sources; of those that have none, what is assumed. */
u64 sampler_hz(const struct sampler *s);
/* The name of the i-th event that can be asked for, and what it is; NULL behind the last. */
const char *sampler_event_at(size_t i, const char **ret_help);
int sampler_arena_fd(const struct sampler *s);
int sampler_processes_fd(const struct sampler *s);
/* Those of struct runtimes_options. */
void sampler_runtime_fds(const struct sampler *s, int *ret_binaries, int *ret_processes);
/* That of struct contexts_options; and how many processes are in it. */
int sampler_contexts_fd(const struct sampler *s);
void sampler_set_contexts(struct sampler *s, u32 n);
/* Adds a process to the filter after creation, for `record -- CMD`. */
int sampler_add_pid(struct sampler *s, u32 pid);
/* The caller has forgotten the stacks: all that come again are sent again. */
void sampler_new_epoch(struct sampler *s);
/* These `n` CPUs are online now: events follow. */
void sampler_follow_cpus(struct sampler *s, const u32 *cpus, u32 n);
/* Opens the events: samples come from now on. */
int sampler_start(struct sampler *s, struct diag *reterr_diag);
/* No more samples; what is in the ring can still be read. */
void sampler_pause(struct sampler *s, bool pause);
void sampler_stop(struct sampler *s);
/* Bits that pointer authentication puts into user code pointers here; 0 on x86. */
u64 sampler_pac_mask(void);
/* Readable when records wait in a hurry; otherwise read on a timer. */
int sampler_fd(const struct sampler *s);
/* Handles all records that are in the ring; how many, or negative. */
int sampler_drain(struct sampler *s);
/* One source's since the start, or the last sampler_count_from_now(). Reads memory only. */
u64 sampler_counter(const struct sampler *s, u32 source, enum counter counter);
/* The same of all; expensive: several system calls for each map. */
void sampler_stats(struct sampler *s, struct sampler_stats *ret);
void sampler_count_from_now(struct sampler *s);
