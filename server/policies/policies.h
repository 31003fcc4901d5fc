/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Policies: each adds a task (server/tasks) when something has gone wrong for so long, and says why
 * it did or did not.
 *
 *	agents ─ CPU, threads, load of each window, measured there (agent/watch) ┐
 *	spans ── error rate and latency of each window, counted here ────────────┴→ judge → a task
 *
 * - A window is over the threshold if its value is at least that. A policy fires after `count` of
 *   the last `of` windows of one process, machine or endpoint, the last of them among these.
 * - Windows of endpoints are those in which the spans arrive: a decision waits for nobody. Spans of
 *   requests that ended more than POLICY_LATE_MS before are left out, because agents have dropped
 *   what they knew of these; so are spans that come again. A window with fewer requests than
 *   `min_requests` is not over the threshold.
 * - Then nothing is added if: a task was added for the same service and endpoint within
 *   `silence_ms`, or still runs; the policy has added `max_per_day` tasks within a day; or there is
 *   no room for another task.
 *
 * Each policy has a file in the data directory, written as those of tasks. All functions may be
 * called from any thread.
 */
#pragma once

#include "base/cleanup.h"
#include "base/diag.h"
#include "base/json.h"
#include "base/str.h"
#include "base/types.h"
#include "base/vec.h"
#include "control/control.h"
#include "profile/span.h"
#include "server/tasks/tasks.h"

#define POLICIES_MAX CONTROL_MAX_WATCHES
#define POLICY_MAX_FIRED 100 /* the newest that a policy remembers; max_per_day at most */
#define POLICY_MAX_SEEN 256  /* agents or endpoints of a policy */
#define POLICY_MAX_LOG 200
#define POLICY_LATE_MS 60000
#define POLICY_DAY_MS 86400000ULL

/* The first are those of enum control_quantity, in its order: agents measure them. */
#define POLICY_CAUSES(X)                                                                           \
	X(CPU, "cpu", "% of a CPU")                                                                \
	X(THREADS, "threads", "threads")                                                           \
	X(LOAD, "load", "for each CPU")                                                            \
	X(ERRORS, "errors", "% of requests")                                                       \
	X(LATENCY, "latency", "ms")
enum policy_cause {
#define X(id, name, unit) POLICY_CAUSE_##id,
	POLICY_CAUSES(X)
#undef X
		POLICY_CAUSE_N
};

/* What a policy made of a window, or of a firing. */
#define POLICY_VERDICTS(X)                                                                         \
	X(NOTHING, "nothing", "has not measured yet")                                              \
	X(NO_PROCESS, "no_process", "sees no process of the service")                              \
	X(FEW, "few_requests", "too few requests to judge")                                        \
	X(BELOW, "below", "below the threshold")                                                   \
	X(OVER, "over", "reached the threshold, in too few windows so far")                        \
	X(LATE, "late", "fired, but more than a minute ago when the server heard of it")           \
	X(SILENCE, "silence", "fired, but added a task too short a time ago")                      \
	X(RUNNING, "running", "fired, but its last task still runs")                               \
	X(BUDGET, "budget", "fired, but has added enough tasks for a day")                         \
	X(REFUSED, "refused", "fired, but no task could be added")                                 \
	X(FIRED, "fired", "fired, and added a task")
enum policy_verdict {
#define X(id, name, help) POLICY_VERDICT_##id,
	POLICY_VERDICTS(X)
#undef X
		POLICY_VERDICT_N
};

const char *policy_cause_name(enum policy_cause c);
const char *policy_verdict_name(enum policy_verdict v);

/* What a user asks for. */
struct policy_spec {
	char service[CONTROL_TEXT_BYTES]; /* service.name, exact; "*": any */
	enum policy_cause cause;
	double threshold;		   /* in the cause's unit */
	char endpoint[CONTROL_TEXT_BYTES]; /* of ERRORS and LATENCY, as in task_spec */
	double percentile;		   /* of LATENCY; 0: the mean */
	u32 min_requests;		   /* of ERRORS and LATENCY, in a window */
	u64 window_ms;
	u32 count, of;
	u64 silence_ms;
	u32 max_per_day;       /* tasks; 0: no limit */
	struct task_spec task; /* without service, endpoint and start */
};
extern const struct policy_spec policy_defaults;

/* A firing that added a task. */
struct policy_firing {
	char task[CONTROL_ID_BYTES];
	char service[CONTROL_TEXT_BYTES];
	struct task_cause cause;
	bool silent_told; /* the log says that its processes publish no context */
};

/* An agent, or an endpoint, as the policy knows it. */
struct policy_seen {
	char host[CONTROL_TEXT_BYTES]; /* "": an endpoint */
	char service[CONTROL_TEXT_BYTES], endpoint[CONTROL_TEXT_BYTES];
	u64 at_ms; /* the end of the last window; 0: none yet */
	double value;
	u32 over; /* of the last windows */
	u64 windows;
	u32 processes, requests;
	u32 pid;
	char comm[16];
	enum policy_verdict verdict, said; /* the latter: in the log */
	u64 said_ms, fired_ms;		   /* the last firing that was taken in */
};

struct policy_info {
	char id[CONTROL_ID_BYTES];
	struct policy_spec spec;
	u64 created_ms;
	char by[64];
	u64 verdicts[POLICY_VERDICT_N];	 /* windows and firings */
	u64 late;			 /* spans that were left out because they came too late */
	vec(struct policy_firing) fired; /* oldest first */
	vec(struct policy_seen) seen;
	vec(struct task_log) log;
};
struct policy_list {
	vec(struct policy_info) list; /* newest first */
};
void policy_info_deinit(struct policy_info *i);
void policy_list_deinit(struct policy_list *l);
#define _cleanup_policy_info_ __attribute__((cleanup(policy_info_deinit)))
#define _cleanup_policy_list_ __attribute__((cleanup(policy_list_deinit)))

struct policies;

/* Reads the policies of a directory; NULL: in memory only. `tasks` is borrowed. */
int policies_create(const char *directory, struct tasks *tasks, struct diag *reterr_diag,
		    struct policies **ret);
void policies_destroy(struct policies *p);
DEFINE_CLEANUP(policies, struct policies *, policies_destroy)
#define _cleanup_policies_ _cleanup_(policies)

/* -EINVAL and a diag. Fills in what is left out. */
int policy_spec_check(struct policy_spec *s, struct diag *reterr_diag);
/* -EINVAL for a member that it does not know. */
int policy_spec_read(struct json_t *object, struct policy_spec *ret, struct diag *reterr_diag);
/* `by`: the name of a token, or "". -EINVAL; -E2BIG: too many policies; or the file's error. */
int policies_add(struct policies *p, const struct policy_spec *s, const char *by,
		 char ret_id[CONTROL_ID_BYTES], struct diag *reterr_diag);
/* With its file. Its tasks stay. -ENOENT. */
int policies_delete(struct policies *p, const char *id, struct diag *reterr_diag);
/* Copies; the list without what was seen and the log. */
int policies_list(struct policies *p, struct policy_list *ret);
int policies_get(struct policies *p, const char *id, struct policy_info *ret,
		 struct diag *reterr_diag);
/* Puts the members into an open object. `full`: with what was seen and the log. */
void policy_put(struct json_writer *w, const struct policy_info *i, bool full);

/* Counts the entry spans of endpoints. */
void policies_see_spans(struct policies *p, const struct spans *s);
/* Takes what an agent has measured, and adds what it is to measure to its answer. -ENOMEM. */
int policies_sync(struct policies *p, const struct control_request *q,
		  struct control_response *ret);
/* To be called every few seconds: windows that are over, and the files. */
void policies_tick(struct policies *p);
/* Appends in Prometheus' text format. */
void policies_metrics(struct policies *p, struct str *out);
