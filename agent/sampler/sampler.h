/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The user half of bpf/prog: loads the programs of each requested source (abi/tbl/source.tbl),
 * attaches them to its events, and passes the records of the ring to callbacks. All sources share
 * the maps with knowledge about processes, and the ring; sample states, counters and rates belong
 * to one source. One thread calls all functions.
 */
#pragma once

#include "abi/sample.h"
#include "agent/alloc/alloc.h"
#include "agent/sampler/sizes.h"
#include "base/budget.h"
#include "base/diag.h"
#include "base/types.h"

#define SAMPLER_DEFAULT_HZ 99
#define SAMPLER_MAX_HZ 10000
/*
 * The default for events of the kernel, such as page faults. They come in bursts, and the kernel
 * adapts the period to the rate: at a clock's rate one sample would stand for 100,000 events.
 */
#define SAMPLER_EVENTS_HZ 997
/* Percent of the machine's CPU time. */
#define SAMPLER_DEFAULT_BUDGET 0.5
#define SAMPLER_DEFAULT_EVENT "cpu-clock"
#define SAMPLER_WAITS "off-cpu"
#define SAMPLER_FAULTS "fault-bytes"
#define SAMPLER_BLOCK_IO "block-io"
#define SAMPLER_RESIDENT "resident"
#define SAMPLER_HEAP "heap"
#define SAMPLER_ALLOC "alloc"
/* Stacks for the programs of a script, by program type. */
#define SAMPLER_TRACE_KPROBE "trace-kprobe"
#define SAMPLER_TRACE_UPROBE "trace-uprobe" /* of uprobes that are linked */
#define SAMPLER_TRACE_TRACEPOINT "trace-tracepoint"
#define SAMPLER_TRACE_RAW "trace-raw"
#define SAMPLER_TRACE_PERF "trace-perf"
/* The two events of a recording of armed processes, in this order: see sampler_arm(). */
#define SAMPLER_REQUEST_CLOCK "request-clock"
#define SAMPLER_REQUEST_WAITS "request-waits"

struct sampler;

/* An event to sample. */
struct sampler_event {
	const char *name; /* as in abi/tbl/source.tbl; borrowed for the call */
	u64 hz;		  /* samples a second on each CPU; 0: clock_hz, or SAMPLER_EVENTS_HZ */
	u64 clock_hz;	  /* the default for clocks and counters of the PMU */
	u64 period;	  /* 0, or one sample per this many events, regardless of hz */
	u64 clock_ns;	  /* of a clock: 0, or the time between samples, regardless of hz */
};

/* An open source. Its samples contain its index. */
struct sampler_source {
	char event[64];	       /* the requested name */
	enum sample_type type; /* of its values */
	/* of the second values; SAMPLE_TYPE_SAMPLES: there are none */
	enum sample_type bytes_type;
	/* name of the type; for events without a type of their own, derived from the event */
	char type_name[64];
	u64 hz; /* 0: it has no rate */
	/* Events or ns per sample; 0: it varies, within a budget. In a batch, the most then. */
	u64 period;
};

struct sampler_options {
	const struct sampler_event *events;
	u32 n_events; /* at most SAMPLER_MAX_SOURCES */
	bool kernel_stacks;
	bool user_stacks;
	/* The samples of a clock stand for all that their threads run, those of off-cpu for all
	 * that they wait. Other events are as without it. */
	bool whole_time;
	bool wakers;   /* off-cpu tells who ended each wait */
	bool requests; /* the events are those of armed processes, which are none at first */
	bool traces;   /* the events are those of struct sampler_trace: nothing is sampled */
	/* The walker of native frames is loaded in the background, and those of runtimes are when
	 * sampler_want_walker() asks for them. */
	bool late_walkers;
	/* Those of runtimes alone are: the kernel takes three times as long for them as for the
	 * rest, and a machine has few runtimes. */
	bool late_runtimes;
	double budget;	 /* percent of CPU time for sources with a budget; 0: the default */
	const u32 *pids; /* borrowed for the call, like all below */
	u32 n_pids;
	bool follow_forks;
	const char *const *comms;
	u32 n_comms;
	const char *const *cgroups; /* paths below the cgroup v2 mount, or absolute */
	u32 n_cgroups;
	const u32 *uids;
	u32 n_uids;
	u64 ring_bytes;	       /* 0: chosen by the rate and the number of CPUs */
	u64 limit_bytes;       /* of the process's memory, see sizes.h; 0: none */
	struct budget *memory; /* of the process; borrowed until sampler_destroy(), or NULL */
};

/* The stack memory of a deferred sample: pages in any order. */
struct sampler_copy {
	u32 n;
	u64 addresses[SAMPLE_MAX_COPIES];
	u8 *data; /* n pages of SAMPLE_COPY_BYTES; borrowed for the call */
};

struct sampler_ops {
	/* A stack that later samples refer to; frames leaf first, borrowed for the call. */
	void (*stack)(void *arg, const struct record_stack *head, const u64 *frames);
	void (*sample)(void *arg, const struct record_sample *s);
	/* The stack d->sample.user_stack is the part that BPF has walked; nothing of a thread that
	 * sleeps, which d->sample.type tells. */
	void (*deferred)(void *arg, const struct record_deferred *d,
			 const struct sampler_copy *copy);
	/* A set of attributes that later samples refer to; `head` describes the bytes. */
	void (*attributes)(void *arg, const struct record_attributes *head, const u8 *bytes);
	/* A process runs another program now; side-band events of the exec were written before. */
	void (*exec)(void *arg, const struct record_exec *e);
	/* The values of a sample that came, or will come, without them. */
	void (*later)(void *arg, const struct record_later *l);
	/* What a thread of an armed process did. */
	void (*interval)(void *arg, const struct record_interval *i);
	/* What happened to pages or objects: n bytes of a struct record_pages, record_moved or
	 * record_freed. */
	void (*memory)(void *arg, const void *record, size_t n);
};

struct sampler_source_stats {
	u64 counters[COUNTER_N];
	u64 limit;	      /* sampler_limit() */
	u64 bpf_ns, bpf_runs; /* of its programs, if kernel.bpf_stats_enabled is 1 */
};

struct sampler_stats {
	struct sampler_source_stats sources[SAMPLER_MAX_SOURCES];
	struct sampler_source_stats all; /* sum of all sources */
	u32 n_sources;
	u64 map_bytes;	  /* of all maps but the arena's chunks */
	u64 mapped_bytes; /* the part that counts as resident: the ring counts twice */
	u64 fixed_bytes;  /* struct sizes: the process's memory that never shrinks */
	u64 copies_lost;  /* copies of stacks that were dropped before their end came */
	u32 cpus;
	u64 elapsed_ns; /* since sampler_start() */
};

/* Loads the programs; no samples are taken yet. */
int sampler_create(const struct sampler_options *o, const struct sampler_ops *ops, void *arg,
		   struct diag *reterr_diag, struct sampler **ret);
void sampler_destroy(struct sampler *s);
/* What was allocated; valid as long as the sampler. */
const struct sizes *sampler_sizes(const struct sampler *s);
/* The i-th source; NULL after the last one. Valid until sampler_destroy(). */
const struct sampler_source *sampler_source(const struct sampler *s, u32 i);
/* The highest rate of all sources; sources without a rate count with an assumed one. */
u64 sampler_hz(const struct sampler *s);
/* The name and description of the i-th event that can be requested; NULL after the last one. */
const char *sampler_event_at(size_t i, const char **ret_help);
/* The maps for struct tables_options. */
int sampler_arena_fd(const struct sampler *s);
int sampler_processes_fd(const struct sampler *s);
/* The maps for struct runtimes_options. */
void sampler_runtime_fds(const struct sampler *s, int *ret_binaries, int *ret_processes,
			 int *ret_locks);
/* The map for struct contexts_options; the second function sets how many processes are in it. */
int sampler_contexts_fd(const struct sampler *s);
void sampler_set_contexts(struct sampler *s, u32 n);
/* Opens the directory of a cgroup on the cgroup v2 tree; a negative errno with a diag. */
int sampler_open_cgroup(const char *path, struct diag *reterr_diag);
/* Adds a process to the filter after creation, for `record -- CMD`. */
int sampler_add_pid(struct sampler *s, u32 pid);
/*
 * With options.follow_forks: chooses a process while events are sampled, and drops it, which need
 * not be chosen. -E2BIG: too many are.
 */
int sampler_choose_pid(struct sampler *s, u32 pid, enum filter_pid how);
void sampler_drop_pid(struct sampler *s, u32 pid);
/*
 * With options.requests: threads of this process are followed from now on while they carry a span.
 * The process must be known by its image, and publish spans. -E2BIG: too many processes are armed.
 */
int sampler_arm(struct sampler *s, u32 pid, const struct armed_process *a);
void sampler_disarm(struct sampler *s, u32 pid);
/* What a thread of an armed process does at the moment. -ENOENT: not known. */
int sampler_armed_thread(struct sampler *s, u32 tid, struct armed_thread *ret);
/*
 * Changes the rate of the first source, a clock; the kernel may allow less. The rate that it has.
 */
u64 sampler_set_hz(struct sampler *s, u64 hz);
/* The caller has forgotten all stacks: BPF sends each of them again. */
void sampler_new_epoch(struct sampler *s);
/* These `n` CPUs are online now: opens and closes events accordingly. */
void sampler_follow_cpus(struct sampler *s, const u32 *cpus, u32 n);
/* Opens the events: sampling starts. */
int sampler_start(struct sampler *s, struct diag *reterr_diag);
/* The programs and maps of the source "alloc", which it does not attach. -ENOENT: it is not there. */
int sampler_alloc(const struct sampler *s, struct alloc_programs *ret);
/*
 * Where the programs of a script ask for the stacks of their events (abi/trace.h). Descriptors are
 * borrowed. One of the sources SAMPLER_TRACE_… must be open.
 */
struct sampler_trace {
	int slots_fd;  /* prog array for programs of this type; TRACE_SLOTS entries */
	int stacks_fd; /* array of struct trace_stacks; the same for all types */
};
/* `type`: enum bpf_prog_type. -ENOENT: its source is not open. */
int sampler_trace(const struct sampler *s, u32 type, struct sampler_trace *ret);
/* From now on the source "alloc" follows one of 2^keep sampled objects: alloc_keeps(). */
void sampler_follow_objects(struct sampler *s, u32 keep);
/* From now on the source "resident" follows pages with a resident_hash() below this. */
void sampler_follow_pages(struct sampler *s, u64 seed, u64 below);
/* Pauses or continues sampling. Records in the ring can still be read. */
void sampler_pause(struct sampler *s, bool pause);
/* Lets sources send what has been going on for long, as if it were over. */
void sampler_tell_unended(struct sampler *s);
/*
 * Walks the stack of a thread that sleeps, with the frames of runtimes; `d` is a record of type
 * RECORD_ASLEEP. 0: *ret is valid until the next call. -EINPROGRESS: a walker is being loaded, ask
 * again when sampler_take_walkers() has taken some. -ESRCH: the thread has woken. Other errors:
 * this kernel cannot do it.
 */
int sampler_walk_sleeper(struct sampler *s, const struct record_deferred *d,
			 const struct sleeper_walk **ret);
/* Processes have this runtime: loads its walkers in the background, unless they are loaded. */
void sampler_want_walker(struct sampler *s, u32 runtime);
/* Makes use of walkers that have been loaded since the last call. Returns their number. */
u32 sampler_take_walkers(struct sampler *s);
/* Readable when sampler_take_walkers() has some; -1: none is being loaded. */
int sampler_walkers_fd(const struct sampler *s);
/* Closes the events. Records in the ring can still be read. */
void sampler_stop(struct sampler *s);
/* The bits of user code pointers that pointer authentication uses on this machine; 0 on x86. */
u64 sampler_pac_mask(void);
/* Readable when urgent records wait; others are read on a timer. */
int sampler_fd(const struct sampler *s);
/* Handles all records in the ring. Returns their number, or a negative errno. */
int sampler_drain(struct sampler *s);
/*
 * A counter of one source since the start or the last sampler_count_from_now(). Cheap: reads memory
 * only.
 */
u64 sampler_counter(const struct sampler *s, u32 source, enum counter counter);
/*
 * How far the budget has limited a source since the last sampler_new_epoch(): waits that were
 * shorter than so many ns have shared samples, or one of so many events is a sample. 0: it has not.
 */
u64 sampler_limit(const struct sampler *s, u32 source);
/* sampler_stats() is expensive: several system calls per map. */
void sampler_stats(struct sampler *s, struct sampler_stats *ret);
/* Counters and times start at 0 again. */
void sampler_count_from_now(struct sampler *s);
