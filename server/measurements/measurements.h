/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measurements of functions on the server (doc/design/0029-measure.md): a user asks for one, agents
 * hear of it when they ask (lib/control), measure the function in the processes of the service for
 * some seconds, and report counts, a histogram of latencies and slow calls. Here the reports of all
 * hosts are joined.
 *
 * - Each agent measures for the duration from when it has begun, which is up to
 *   MEASUREMENT_BEGIN_MS after the user has asked.
 * - Counts are those of the agent's last report. An agent that was restarted does not begin again:
 *   what it had reported stays.
 * - Of the slow calls the slowest are kept.
 *
 * Each measurement has a file in the data directory. It is replaced every few seconds while reports
 * arrive. All functions may be called from any thread.
 */
#pragma once

#include "base/cleanup.h"
#include "base/diag.h"
#include "base/json.h"
#include "base/str.h"
#include "base/types.h"
#include "base/vec.h"
#include "control/control.h"

#define MEASUREMENTS_MAX 64	    /* in all; the oldest that has ended makes room */
#define MEASUREMENTS_PER_SERVICE 16 /* at work at a time */
#define MEASUREMENT_MAX_AGENTS 256
#define MEASUREMENT_MAX_CALLS 100
#define MEASUREMENT_BEGIN_MS 15000
#define MEASUREMENT_MIN_BUDGET 0.01

/* What a user asks for. */
struct measurement_spec {
	char service[CONTROL_TEXT_BYTES];  /* service.name, exact; "*": any */
	char function[CONTROL_TEXT_BYTES]; /* as in control_measure */
	char file[CONTROL_TEXT_BYTES];	   /* likewise */
	u64 duration_ms;
	u64 slow_ns;	       /* 0: agents choose */
	double budget_percent; /* of a CPU, on each host */
};
extern const struct measurement_spec measurement_defaults;

#define MEASUREMENT_STATES(X)                                                                      \
	X(RUNNING, "running", "agents measure, or begin")                                          \
	X(ENDED, "ended", "has reached its end")                                                   \
	X(STOPPED, "stopped", "was stopped")
enum measurement_state {
#define X(id, name, help) MEASUREMENT_STATE_##id,
	MEASUREMENT_STATES(X)
#undef X
		MEASUREMENT_STATE_N
};
const char *measurement_state_name(enum measurement_state s);

struct measurement_agent {
	char host[CONTROL_TEXT_BYTES], host_id[CONTROL_TEXT_BYTES];
	u64 started_ms; /* the run of the agent; 0: it was before a restart of the server */
	u64 asked_ms;	/* when it last reported */
	struct control_measurement got;
};

struct measurement_call {
	char host[CONTROL_TEXT_BYTES];
	struct control_call call;
};

struct measurement_info {
	char id[CONTROL_ID_BYTES];
	struct measurement_spec spec;
	u64 created_ms, stopped_ms;	      /* the latter 0: it was not */
	char by[64];			      /* the name of the token, or "" */
	vec(struct measurement_agent) agents; /* those that see no process are left out first */
	vec(struct measurement_call) calls;   /* slowest first */
	u64 told;			      /* slow calls that agents have told */
};
struct measurement_list {
	vec(struct measurement_info) list; /* newest first */
};
void measurement_info_deinit(struct measurement_info *i);
void measurement_list_deinit(struct measurement_list *l);
#define _cleanup_measurement_info_ __attribute__((cleanup(measurement_info_deinit)))
#define _cleanup_measurement_list_ __attribute__((cleanup(measurement_list_deinit)))

/* The reports of all agents as one. */
struct measurement_sum {
	u32 hosts, processes; /* that were measured */
	bool others;	      /* some counts have calls of other services */
	u64 calls, returned, total_ns, slow, lost;
	double calls_per_second;
	double thinned, cost_percent; /* of the agent where it is least; where it is most */
	u64 slow_ns;		      /* the lowest threshold in force */
	u64 buckets[CONTROL_MAX_BUCKETS];
	/* Of calls that have returned: within a bucket, which is 1/4 wide at most. 0: no calls. */
	u64 p50_ns, p95_ns, p99_ns, max_ns;
};
void measurement_sum(const struct measurement_info *i, struct measurement_sum *ret);
enum measurement_state measurement_state(const struct measurement_info *i, u64 now_ms);

struct measurements;

/* Reads those of a directory; NULL: in memory only. A file that is damaged is left alone. */
int measurements_create(const char *directory, struct diag *reterr_diag, struct measurements **ret);
void measurements_destroy(struct measurements *m);
DEFINE_CLEANUP(measurements, struct measurements *, measurements_destroy)
#define _cleanup_measurements_ _cleanup_(measurements)

/* -EINVAL and a diag. */
int measurement_spec_check(const struct measurement_spec *s, struct diag *reterr_diag);
/* -EINVAL for a member that it does not know. */
int measurement_spec_read(struct json_t *object, struct measurement_spec *ret,
			  struct diag *reterr_diag);
/* `by`: the name of a token, or "". -EINVAL; -E2BIG: too many; or the file's error. */
int measurements_add(struct measurements *m, const struct measurement_spec *s, const char *by,
		     char ret_id[CONTROL_ID_BYTES], struct diag *reterr_diag);
/* -ENOENT. One that has ended stays as it is. */
int measurements_stop(struct measurements *m, const char *id, struct diag *reterr_diag);
/* With its file. -ENOENT. */
int measurements_delete(struct measurements *m, const char *id, struct diag *reterr_diag);
/* Copies. Those of the list have the slowest call only. */
int measurements_list(struct measurements *m, struct measurement_list *ret);
int measurements_get(struct measurements *m, const char *id, struct measurement_info *ret,
		     struct diag *reterr_diag);
/* Puts the members into an open object. `full`: with histogram, agents and slow calls. */
void measurement_put(struct json_writer *w, const struct measurement_info *i, bool full);

/* Takes what an agent has measured, and adds what it is to measure to its answer. -ENOMEM. */
int measurements_sync(struct measurements *m, const struct control_request *q,
		      struct control_response *ret);
/* To be called every few seconds: the files. */
void measurements_tick(struct measurements *m);
