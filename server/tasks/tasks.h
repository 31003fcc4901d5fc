/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tasks on the server (doc/design/0019-kept-requests.md): each profiles some requests of a service.
 * The server looks at the spans as they arrive, decides which requests a task keeps, tells the
 * agents when they ask (lib/control), and notes what became of each request.
 *
 * The entry spans of the task's service are counted, each once: those of other endpoints, those
 * below every threshold, those that a budget refused, and those that are kept, by reason. A request
 * that two tasks want is kept for each.
 *
 * - A threshold is a number of ns, or a percentile of the endpoint: of its requests in the last 5
 *   to 10 minutes, as far as this server saw them since its start. The estimate is the upper bound
 *   of the percentile's class in a histogram whose classes are at most 1/16 wide of their value; it
 *   is used once it has 2 / (1 - percentile) requests.
 * - The control group is a random sample of the requests that no threshold keeps: all of a minute
 *   have the same probability. The probability is the task's share, or less if the minute before
 *   had too many requests for the budget of a minute.
 *
 * A task of another kind than `requests` profiles whole processes, with the profiler of
 * SkyWalking's agents, and looks at no span (server/api/skywalking_profiles.c). An agent may begin
 * in the task's first minute; the task ends two minutes after its duration at the latest.
 *
 * Each task has a file in the data directory. It is replaced before tasks_see_spans() returns if a
 * decision was made, and before tasks_sync() returns if an outcome was reported; else every few
 * seconds while counts change. All functions may be called from any thread.
 */
#pragma once

#include "base/cleanup.h"
#include "base/diag.h"
#include "base/json.h"
#include "base/map.h"
#include "base/str.h"
#include "base/types.h"
#include "base/vec.h"
#include "control/control.h"
#include "profile/span.h"

#define TASKS_MAX 256 /* in all; the one that ended first makes room */
#define TASKS_MAX_LIVE CONTROL_MAX_TASKS
#define TASKS_MAX_REQUESTS 1000 /* the newest that a task remembers */
#define TASKS_MAX_ENDPOINTS 256 /* of a task by name; the rest are one */
#define TASKS_MAX_AGENTS 1024	/* of a task */
#define TASKS_MAX_LOG 200	/* the newest lines of a task's log */
#define TASKS_KEEP_MS 300000	/* agents hear of a decision for so long */
#define TASKS_NOBODY_MS 30000	/* then nobody had the request */
#define TASKS_AWAY_MS 15000	/* an agent is away after so long without a question */
#define TASKS_LINGER_MS 60000	/* a task's last requests end so long after it at most */
/* Agents of SkyWalking ask every 20 s unless told. */
#define TASKS_SKYWALKING "skywalking" /* the host_id of these agents */
#define TASKS_SKYWALKING_AWAY_MS 60000
#define TASKS_BEGIN_MS 60000  /* of other kinds: so long an agent may begin, */
#define TASKS_UPLOAD_MS 60000 /* and so long it takes to deliver */

/* What is counted of the entry spans of a task's service, each span in one of them but `spans`. */
#define TASK_COUNTS(X)                                                                             \
	X(SPANS, "spans", "spans of the service, of any kind")                                     \
	X(REPEATED, "repeated", "entry spans that were sent again")                                \
	X(OUTSIDE, "outside", "requests that began before the task or after its end")              \
	X(OTHER, "other", "requests to other endpoints")                                           \
	X(BELOW, "below", "requests below every threshold, and not in the control group")          \
	X(BUDGET, "budget", "requests that a budget had no room for")                              \
	X(WANTED, "wanted", "requests that were to be kept")
enum task_count {
#define X(id, name, help) TASK_COUNT_##id,
	TASK_COUNTS(X)
#undef X
		TASK_COUNT_N
};

/* What became of a request: the agents' outcomes (lib/control), and before and without them. */
enum task_outcome {
	TASK_OUTCOME_WAITING = CONTROL_OUTCOME_N,
	TASK_OUTCOME_NOBODY, /* no agent had anything of it */
	TASK_OUTCOME_N,
};

#define TASK_STATES(X)                                                                             \
	X(QUEUED, "queued", "waits for its start")                                                 \
	X(RUNNING, "running", "looks at requests")                                                 \
	X(ENDED, "ended", "has reached its end, or its number of requests")                        \
	X(CANCELLED, "cancelled", "was cancelled")
enum task_state {
#define X(id, name, help) TASK_STATE_##id,
	TASK_STATES(X)
#undef X
		TASK_STATE_N
};

/* Why a task has no data, or not all of it. */
#define TASK_WHYS(X)                                                                               \
	X(QUEUED, "not_started")                                                                   \
	X(NO_AGENT, "no_agent")                                                                    \
	X(AWAY, "agent_away")                                                                      \
	X(NO_PROCESS, "no_process")                                                                \
	X(NO_CONTEXT, "no_context")                                                                \
	X(REFUSED, "refused")                                                                      \
	X(NO_SPAN, "no_span")                                                                      \
	X(NO_ENDPOINT, "no_endpoint")                                                              \
	X(OUTSIDE, "outside")                                                                      \
	X(LEARNING, "learning")                                                                    \
	X(BELOW, "below_threshold")                                                                \
	X(BUDGET, "budget_spent")                                                                  \
	X(DROPPED, "dropped")                                                                      \
	X(LOST, "lost")                                                                            \
	X(NOBODY, "nobody")
enum task_why {
#define X(id, name) TASK_WHY_##id,
	TASK_WHYS(X)
#undef X
		TASK_WHY_N
};

const char *task_count_name(enum task_count c);
const char *task_state_name(enum task_state s);
const char *task_why_name(enum task_why w);
const char *task_outcome_name(u32 o);

#define TASK_KINDS(X)                                                                              \
	X(REQUESTS, "requests", "keeps requests")                                                  \
	X(PPROF, "pprof", "profiles Go programs by pprof")                                         \
	X(ASYNC_PROFILER, "async-profiler", "profiles JVMs by async-profiler")
enum task_kind {
#define X(id, name, help) TASK_KIND_##id,
	TASK_KINDS(X)
#undef X
		TASK_KIND_N
};
const char *task_kind_name(enum task_kind k);

/* What a user asks for. */
struct task_spec {
	enum task_kind kind;
	char events[64]; /* "cpu,alloc": what is recorded; "" of requests */
	char service[CONTROL_TEXT_BYTES];
	/* "": all; with * for any characters; or "~" and a regular expression for all of it. */
	char endpoint[CONTROL_TEXT_BYTES];
	u64 start_ms;	 /* since the epoch; 0: at once */
	u64 duration_ms; /* 0: until it is cancelled */
	/* Which requests are kept; with none of the three: all. */
	bool has_min;
	u64 min_ns;	   /* those that take at least so long */
	double percentile; /* 99: those slower than 99 % of their endpoint; 0: none */
	bool errors;	   /* those that end with an error */
	double control;	   /* the share of the others that is kept for comparison, 0 to 1 */
	u32 period_us, floor_us;
	bool on_cpu, off_cpu;
	/* Budgets, 0: none. The control group has as much again. */
	u32 max_requests, max_per_agent, max_per_minute; /* the last: of an endpoint */
};
/* The values of what a user leaves out. */
extern const struct task_spec task_defaults;

struct regex; /* lib/regex */

/* Why a policy (server/policies) added a task. */
struct task_cause {
	char policy[CONTROL_ID_BYTES]; /* "": a user added the task */
	char cause[16], unit[24];      /* of enum policy_cause */
	double value, threshold;
	u64 at_ms;
	char host[CONTROL_TEXT_BYTES], comm[16]; /* of a process or machine; "" */
	u32 pid;
	char endpoint[CONTROL_TEXT_BYTES];
	char text[512]; /* all of it, as a sentence */
};

struct task_log {
	u64 at_ms;
	char host[64]; /* of an agent; "": the server */
	char text[192];
};

/* An agent as a task knows it. */
struct task_agent {
	char host[CONTROL_TEXT_BYTES], host_id[CONTROL_TEXT_BYTES];
	u64 asked_ms; /* when it last asked */
	enum control_state state;
	char reason[CONTROL_TEXT_BYTES];
	u32 processes, publishing;
	u64 samples, events, lost, evicted; /* since the agent armed the task */
	u64 kept;			    /* requests, wholly or partly */
};

struct task_endpoint {
	char name[CONTROL_TEXT_BYTES];
	bool matches;
	u64 requests, wanted;
	u64 slowest_ns;
	u64 threshold_ns;		  /* by the percentile; 0: not known */
	u64 learnt;			  /* requests that it is estimated from */
	u64 minute;			  /* since the epoch: what the next four are of */
	u32 in_minute, control_in_minute; /* that are kept */
	u64 ordinary;			  /* requests that the control group is chosen from */
	double share;			  /* of these, that is chosen */
};

/* A request that was to be kept. */
struct task_request {
	u64 number; /* grows over all tasks: the cursor of agents */
	u8 trace_id[16], span_id[8];
	u64 start_ns, duration_ns;
	u64 decided_ms, done_ms; /* the latter 0 while WAITING */
	u64 samples;
	u32 endpoint;	   /* in task_info.endpoints */
	u32 agent;	   /* in task_info.agents, or ~0 */
	u8 status, reason; /* enum span_status, enum control_reason */
	u8 outcome;	   /* of CONTROL_OUTCOMES or enum task_outcome */
	u8 pad[5];
};

struct task_info {
	char id[CONTROL_ID_BYTES];
	u32 revision;
	struct task_spec spec;
	u64 created_ms, start_ms, end_ms; /* end 0: none yet */
	u64 cancelled_ms;
	char by[64]; /* the name of the token that it was created with, or "" */
	struct task_cause cause;
	u64 counts[TASK_COUNT_N];
	u64 reasons[CONTROL_REASON_N];
	u64 outcomes[TASK_OUTCOME_N], control_outcomes[TASK_OUTCOME_N]; /* the latter: among them */
	enum task_state said; /* the state that the log told last */
	u64 slowest_ns;	      /* of the matching requests */
	vec(struct task_log) log;
	vec(struct task_agent) agents;
	vec(struct task_endpoint) endpoints;
	vec(struct task_request) requests; /* oldest first */
};

struct task_list {
	vec(struct task_info) list; /* newest first */
};
void task_info_deinit(struct task_info *t);
void task_list_deinit(struct task_list *l);
#define _cleanup_task_info_ __attribute__((cleanup(task_info_deinit)))
#define _cleanup_task_list_ __attribute__((cleanup(task_list_deinit)))

struct tasks;

/*
 * Reads the tasks of a directory. NULL: they are kept in memory only. A file that cannot be read is
 * left alone, and logged.
 */
int tasks_create(const char *directory, struct diag *reterr_diag, struct tasks **ret);
void tasks_destroy(struct tasks *t);
DEFINE_CLEANUP(tasks, struct tasks *, tasks_destroy)
#define _cleanup_tasks_ _cleanup_(tasks)

/* Whether the event is among those of the task. */
bool task_has_event(const struct task_spec *s, const char *name);
/* -EINVAL and a diag. Fills in what is left out. */
int task_spec_check(struct task_spec *s, struct diag *reterr_diag);
/* `by`: the name of a token, or "". -EINVAL; -E2BIG: too many tasks; or the file's error. */
int tasks_add(struct tasks *t, const struct task_spec *s, const char *by,
	      char ret_id[CONTROL_ID_BYTES], struct diag *reterr_diag);
/* The same because of a policy; NULL: of none. */
int tasks_add_for(struct tasks *t, const struct task_spec *s, const char *by,
		  const struct task_cause *cause, char ret_id[CONTROL_ID_BYTES],
		  struct diag *reterr_diag);
/* -ENOENT. A task that has ended stays as it is. */
int tasks_cancel(struct tasks *t, const char *id, const char *by, struct diag *reterr_diag);
/* With its file. -ENOENT. */
int tasks_delete(struct tasks *t, const char *id, struct diag *reterr_diag);
/* Copies; in the list without agents, endpoints, requests and logs. -ENOENT; -ENOMEM. */
int tasks_list(struct tasks *t, struct task_list *ret);
int tasks_get(struct tasks *t, const char *id, struct task_info *ret, struct diag *reterr_diag);
enum task_state task_state(const struct task_info *t, u64 now_ms);

struct task_glance {
	enum task_state state;
	char silent[CONTROL_TEXT_BYTES]; /* an agent whose processes publish no context, or "" */
};
/* False: there is no such task. */
bool tasks_glance(struct tasks *t, const char *id, struct task_glance *ret);

struct task_reason {
	enum task_why why;
	char text[512];
};
struct task_reasons {
	vec(struct task_reason) list;
};
/* Why there is no data, or not all; the most important first. -ENOMEM, -ENOENT. */
int tasks_why(struct tasks *t, const char *id, struct task_reasons *ret);

/* Decides about the requests whose spans have arrived, stored or not. */
void tasks_see_spans(struct tasks *t, const struct spans *s);
/* Answers an agent. */
int tasks_sync(struct tasks *t, const struct control_request *q, struct control_response *ret,
	       struct diag *reterr_diag);
/* As tasks_sync(), without an answer, and without waiting for a file. */
void tasks_note(struct tasks *t, const struct control_request *q);
/* To be called every few seconds: what nobody had, the end of tasks, and the files. */
void tasks_tick(struct tasks *t);
/*
 * Puts the members of a task into an open object, as the API shows them and as files have them.
 * `full`: with its log, its agents and its endpoints.
 */
void task_put(struct json_writer *w, const struct task_info *t, bool full);
/* The members of a request. */
void task_put_request(struct json_writer *w, const struct task_info *t,
		      const struct task_request *q);
/* Reads what a user asks for from an object; -EINVAL for a member that it does not know. */
int task_spec_read(struct json_t *object, struct task_spec *ret, struct diag *reterr_diag);
/* The same, as task_put() has put it. */
void task_spec_put(struct json_writer *w, const char *key, const struct task_spec *s);
void task_cause_put(struct json_writer *w, const char *key, const struct task_cause *c);
void task_cause_read(const struct json_t *object, struct task_cause *ret);

/* The distribution of durations: classes of 1/16 of their value, from 1 us on. */
#define TASK_CLASSES 800
u32 task_class_of(u64 ns);
u64 task_class_end(u32 c);

/* Spans that arrived lately, to know them again: for some minutes, and as long as there is room. */
struct task_seen {
	struct map now, before; /* hashes of ids, of this and the last window of time */
	u64 until_ms;
};
/* Whether the span was seen; notes that it was. */
bool task_was_seen(struct task_seen *t, const struct span *s, u64 now_ms);
void task_seen_deinit(struct task_seen *t);
/*
 * Whether an endpoint is the one of a pattern as in task_spec; x is the pattern's expression, or
 * NULL. -ENOMEM. To be called within QUOTA_PAUSED.
 */
int task_pattern_match(const char *pattern, struct regex *x, const char *endpoint);
/* Appends in Prometheus' text format. */
void tasks_metrics(struct tasks *t, struct str *out);
