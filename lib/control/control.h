/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a server and its agents tell each other (doc/design/0019-kept-requests.md). The agent asks,
 * over the connection on which it sends its profiles: a SyncRequest with what it does and did, and
 * the server answers with the tasks that concern it and the requests to keep. Both sides believe
 * nothing of what the other says: every text and list has a limit here, and decoding cuts there.
 *
 * Times are since the epoch.
 */
#pragma once

#include "base/diag.h"
#include "base/str.h"
#include "base/types.h"
#include "base/vec.h"

#define CONTROL_GRPC_PATH "/culprit.control.v1.Control/Sync"
#define CONTROL_MAX_TASKS 64	     /* that concern one agent at a time */
#define CONTROL_MAX_KEEPS 4096	     /* in one message; the rest comes with the next */
#define CONTROL_MAX_BYTES (1u << 20) /* of a message */
#define CONTROL_ID_BYTES 32
#define CONTROL_TEXT_BYTES 256
#define CONTROL_MAX_WATCHES 64 /* policies that agents measure for */
#define CONTROL_MAX_FIRED 8    /* services of a watch that one message tells of */
#define CONTROL_MAX_WINDOWS 60 /* of control_watch.of */
#define CONTROL_MIN_WINDOW_MS 1000
#define CONTROL_MAX_MEASURES 64 /* functions that a server wants measured */
#define CONTROL_MAX_CALLS 64	/* slow calls in one message; the rest comes with the next */
#define CONTROL_MAX_ARGUMENTS 6 /* of a call */
#define CONTROL_VALUE_BYTES 64	/* of an argument's name, or its value */
#define CONTROL_STACK_BYTES 2048
#define CONTROL_HIST_BITS 2	/* buckets of latencies are trace_hist_bucket(ns, 2) */
#define CONTROL_MAX_BUCKETS 256 /* there are 249 */
#define CONTROL_MIN_MEASURE_MS 1000
#define CONTROL_MAX_MEASURE_MS 600000

/* Why a request is kept. */
#define CONTROL_REASONS(X)                                                                         \
	X(SLOW, "slow", "took at least the task's threshold")                                      \
	X(ERROR, "error", "ended with an error")                                                   \
	X(PERCENTILE, "percentile", "took longer than most requests to its endpoint lately")       \
	X(LONG, "long", "was kept before its end, because it had taken very long")                 \
	X(CONTROL, "control", "was chosen at random, for comparison")
enum control_reason {
#define X(id, name, help) CONTROL_REASON_##id,
	CONTROL_REASONS(X)
#undef X
		CONTROL_REASON_N
};

/* What an agent does about a task. */
#define CONTROL_STATES(X)                                                                          \
	X(QUEUED, "queued", "waits for its start")                                                 \
	X(ARMED, "armed", "samples the service's processes")                                       \
	X(ABSENT, "absent", "sees no process of the service")                                      \
	X(SILENT, "silent", "the service's processes publish no trace context")                    \
	X(REFUSED, "refused", "cannot do it, for the reason told")                                 \
	X(ENDED, "ended", "has stopped")
enum control_state {
#define X(id, name, help) CONTROL_STATE_##id,
	CONTROL_STATES(X)
#undef X
		CONTROL_STATE_N
};

/* What became of a request to keep. Agents that saw nothing of it are silent. */
#define CONTROL_OUTCOMES(X)                                                                        \
	X(KEPT, "kept", "all that was recorded of it")                                             \
	X(PARTLY, "partly", "its beginning was dropped before the decision came")                  \
	X(EVICTED, "evicted", "everything was dropped before the decision came")
enum control_outcome {
#define X(id, name, help) CONTROL_OUTCOME_##id,
	CONTROL_OUTCOMES(X)
#undef X
		CONTROL_OUTCOME_N
};

/* What an agent measures for a policy. */
#define CONTROL_QUANTITIES(X)                                                                      \
	X(CPU, "cpu", "CPU time of a process within the window, in % of one CPU")                  \
	X(THREADS, "threads", "threads of a process")                                              \
	X(LOAD, "load", "the machine's load, an average of one minute, for each CPU")
enum control_quantity {
#define X(id, name, help) CONTROL_QUANTITY_##id,
	CONTROL_QUANTITIES(X)
#undef X
		CONTROL_QUANTITY_N
};

const char *control_reason_name(enum control_reason r);
const char *control_state_name(enum control_state s);
const char *control_outcome_name(enum control_outcome o);
const char *control_quantity_name(enum control_quantity q);

/* What an agent has to know of a task: the server decides which requests are kept. */
struct control_task {
	char id[CONTROL_ID_BYTES];
	u32 revision;			  /* grows with each change of the task */
	char service[CONTROL_TEXT_BYTES]; /* service.name, exact */
	u64 start_ms, end_ms;		  /* end 0: until it is cancelled */
	u32 period_us;			  /* of samples on the CPU, at least 1,000 */
	u32 floor_us;			  /* waits at least this long all have stacks */
	bool on_cpu, off_cpu;
};

struct control_keep {
	char task[CONTROL_ID_BYTES];
	u8 trace_id[16], span_id[8]; /* of the request's entry span */
	u64 start_ns, end_ns;
	enum control_reason reason;
};

struct control_task_report {
	char id[CONTROL_ID_BYTES];
	u32 revision;
	enum control_state state;
	char reason[CONTROL_TEXT_BYTES]; /* of REFUSED; or "" */
	u32 processes, publishing;	 /* of the service; those that publish contexts */
	u64 samples, events; /* since it was armed: samples, and all intervals of threads */
	u64 lost, evicted;   /* of these: lost on the way, and dropped before a decision came */
};

struct control_kept {
	char task[CONTROL_ID_BYTES];
	u8 trace_id[16], span_id[8];
	enum control_outcome outcome;
	u64 samples;
};

/*
 * What a policy of the server wants to hear of: each window, the quantity of each process of the
 * service is compared with the threshold. A process that has reached the threshold in `count` of
 * the last `of` windows fires, and begins again with none.
 */
struct control_watch {
	char id[CONTROL_ID_BYTES];	  /* of the policy */
	char service[CONTROL_TEXT_BYTES]; /* service.name, exact; "*": any */
	enum control_quantity quantity;
	double threshold;
	u32 window_ms;
	u32 count, of; /* 1 <= count <= of <= CONTROL_MAX_WINDOWS */
};

/* A process that was measured. */
struct control_measured {
	u64 at_ms; /* the end of the window; 0: none yet */
	double value;
	u32 over; /* of the last `of` windows, those in which it reached the threshold */
	u32 pid;
	char comm[16];
	char service[CONTROL_TEXT_BYTES];
};

/* What the agent has seen for a watch. */
struct control_watched {
	char id[CONTROL_ID_BYTES];
	u32 processes;		      /* that it looks at */
	u64 windows;		      /* since it began */
	struct control_measured last; /* the process with the highest value in the last window */
	/* Those that have fired since the last request that was answered: one of each service. */
	u32 n_fired;
	struct control_measured fired[CONTROL_MAX_FIRED];
};

/* A function that agents measure (agent/measure) in the processes of a service. */
struct control_measure {
	char id[CONTROL_ID_BYTES];
	char service[CONTROL_TEXT_BYTES];  /* service.name, exact; "*": any */
	char function[CONTROL_TEXT_BYTES]; /* a symbol, exact; no pattern */
	/* The binary: a path as the process sees it, or its last part; "": the executable;
	 * "[kernel]": a function of the kernel. */
	char file[CONTROL_TEXT_BYTES];
	u32 duration_ms;       /* from when the agent begins */
	u64 slow_ns;	       /* 0: the agent chooses it by the calls that it sees */
	double budget_percent; /* of a CPU, for the probes */
};
#define CONTROL_KERNEL "[kernel]"

/* What an agent has measured so far. Sums are those of all its processes and binaries. */
struct control_measurement {
	char id[CONTROL_ID_BYTES];
	enum control_state state;	 /* QUEUED: begins; ARMED, ABSENT, REFUSED, ENDED */
	char reason[CONTROL_TEXT_BYTES]; /* of REFUSED, or what is worth knowing; or "" */
	u32 processes;			 /* of the service, that run the binary */
	bool others;	 /* the counts are of other services' processes, too, that run the binary */
	u64 measured_ms; /* since when; the counts are of this time */
	u64 slow_ns;	 /* in force; 0: every call is told */
	u64 calls, returned, total_ns, longest_ns, slow, lost; /* as struct measure_counts */
	double thinned, cost_percent; /* likewise: the first is the share of measured_ms */
	u32 n_buckets;		      /* without the empty ones at the end */
	u64 buckets[CONTROL_MAX_BUCKETS];
};

struct control_argument {
	char name[CONTROL_VALUE_BYTES], value[CONTROL_VALUE_BYTES];
};

/* A slow call of a measurement. */
struct control_call {
	char measure[CONTROL_ID_BYTES];
	u64 end_ns; /* since the epoch */
	u64 ns;
	u32 pid, tid;
	char comm[16];
	bool has_trace;
	u8 trace_id[16], span_id[8];
	u32 n_arguments;
	struct control_argument arguments[CONTROL_MAX_ARGUMENTS];
	char result[CONTROL_VALUE_BYTES];
	char stack[CONTROL_STACK_BYTES]; /* names by line, the function's caller first; or "" */
};

/* How an agent samples always; 0: as it is, or unknown. */
struct control_settings {
	u32 hz;		       /* samples per second on each CPU */
	double budget_percent; /* of the machine's CPU time, for stacks of waits */
	u8 off_cpu;	       /* 1: waits are sampled; 2: they are not */
};
/* Limits of what a server may set. */
#define CONTROL_MAX_HZ 1000
#define CONTROL_MIN_BUDGET 0.01
#define CONTROL_MAX_BUDGET 10.0

/* From the agent. */
struct control_request {
	char host[CONTROL_TEXT_BYTES], host_id[CONTROL_TEXT_BYTES], version[64];
	u64 started_ms; /* tells runs of the agent apart */
	u64 cursor;	/* of the last response that was taken in; 0: of none */
	vec(struct control_task_report) tasks;
	vec(struct control_kept) kept; /* since the last request that was answered */
	vec(struct control_watched) watched;
	/* In force; hz 0: an agent that does not tell. */
	struct control_settings settings;
	bool takes_settings;			  /* it does what servers set */
	char settings_reason[CONTROL_TEXT_BYTES]; /* why these are not as the server set them */
	vec(struct control_measurement) measured;
	vec(struct control_call) calls; /* since the last request that was answered */
};

/* From the server. */
struct control_response {
	u64 cursor;
	u32 next_ms;			   /* ask again after so long */
	vec(struct control_task) tasks;	   /* all of them: an agent drops others */
	vec(struct control_keep) keeps;	   /* since the request's cursor */
	vec(struct control_watch) watches; /* all of them: an agent drops others */
	struct control_settings settings;
	vec(struct control_measure) measures; /* all of them: an agent ends others */
};

/* Whether it names one function: a star is part of a name of Go only, "main.(*T).f". */
bool control_is_function(const char *name);

void control_request_deinit(struct control_request *r);
void control_response_deinit(struct control_response *r);
#define _cleanup_control_request_ __attribute__((cleanup(control_request_deinit)))
#define _cleanup_control_response_ __attribute__((cleanup(control_response_deinit)))

/* Append the message. -ENOMEM; -E2BIG: a list is longer than its limit. */
int control_request_encode(const struct control_request *r, struct str *out);
int control_response_encode(const struct control_response *r, struct str *out);
/*
 * -EBADMSG and a diag: not such a message. *ret is to be deinitialised after success only. Entries
 * with an odd id (letters, digits, and "-_.:" are allowed) or with values of a newer peer are left
 * out. Texts are clean (base/text.h).
 */
int control_request_decode(const u8 *data, size_t n, struct control_request *ret,
			   struct diag *reterr_diag);
int control_response_decode(const u8 *data, size_t n, struct control_response *ret,
			    struct diag *reterr_diag);
