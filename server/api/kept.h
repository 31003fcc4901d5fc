/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The samples of kept requests: those of one trace, or of the requests of a task.
 *
 * Samples of culprit's agents have the time that they stand for, which is added up. SkyWalking's
 * agents send snapshots of a segment, whose part that belongs to a span is found by its times. Both
 * are samples of the type request:wall; those of snapshots have a twin of the type
 * request:sequence, with the snapshot's number plus 1. Snapshots may be stored under a trace of
 * their segment's own, under the segment's trace, or under both (server/ingest/skywalking.c): here
 * each is taken once.
 *
 * What woke a thread is no call of the request: stacks end at the wait, and the waker is a property
 * of the sample, as the owner of the lock is.
 */
#pragma once

#include "server/analyze/analyze.h"
#include "server/api/internal.h"
#include "server/tasks/tasks.h"

#define KEPT_NO_SEQUENCE (~0u)

/* Groups of requests that are compared. */
enum kept_group { KEPT_SLOW, KEPT_CONTROL, KEPT_GROUPS };
extern const char *const kept_group_names[KEPT_GROUPS];

/* A request whose samples are wanted; or a whole trace. */
struct kept_asked {
	u8 trace_id[16], span_id[8];
	bool whole; /* all of the trace, the span does not matter */
	enum kept_group group;
	u32 trace;   /* index in kept.traces */
	u32 span;    /* in kept.set; PROFILE_NONE: it is not there */
	u64 samples; /* that were found of it */
};

struct kept_sample {
	u32 trace, link; /* indexes in kept.traces, kept.links */
	u32 request;	 /* in kept.asked; PROFILE_NONE: none of them, or one decides by time */
	u32 stack;	 /* in kept.stacks; PROFILE_NONE: lost */
	u32 sequence;	 /* of a snapshot; or KEPT_NO_SEQUENCE */
	u32 owner;	 /* who had the lock, in kept.who; 0: nobody that is known */
	u32 waker;	 /* who ended the wait, likewise */
	bool own;	 /* stored under a trace of the segment's own */
};

struct kept_segment {
	u8 span_id[8]; /* of its first span */
	u32 span;      /* that span, or PROFILE_NONE */
};

struct kept_series {
	u64 key;	    /* of the thread */
	const char *thread; /* its name; borrowed */
	u32 owner, waker;   /* in kept.who: thread id, \n and name; or a name; 0: none */
	bool of_task;
};

struct kept {
	struct store *store;
	/* To be set before kept_load(). */
	vec(struct kept_asked) asked;
	const char *task;	     /* the only one whose samples are taken; NULL: all; borrowed */
	const char *service;	     /* the only one whose spans are loaded, or NULL; borrowed */
	char type[STORE_TYPE_BYTES]; /* "": request:wall; then what it was */
	u64 from_ms, to_ms;	     /* of samples */
	bool children;		     /* with what the spans below the asked ones did */
	/*
	 * Samples belong to the request of their span's service (trace_set_request()), so that each
	 * sample is of one request only. Else to the asked span and those below it.
	 */
	bool by_request;

	/* The rest is set by kept_load(). */
	u8 (*traces)[16]; /* owned; sorted, without duplicates */
	size_t n_traces;
	struct trace_set set;
	struct map by_span; /* of by_request: span → index in `asked` */
	vec(struct kept_segment) segments;
	struct map by_segment; /* hash of a segment's first span → segment */
	struct store_links links;
	struct store_series_set series;
	struct map by_series;		 /* half of a series' id → its position */
	struct kept_series *of_series;	 /* owned; by position */
	struct map threads;		 /* hash of host and thread id → position */
	struct profile *stacks;		 /* owned */
	struct strtab who;		 /* owners and wakers; the first is "" */
	vec(struct kept_sample) samples; /* by trace, span, thread and time */
	bool damaged;
};

/* Takes kept.asked and the options. -ENOENT: a trace without spans and samples, and whole. */
int kept_load(struct api_call *c, struct kept *k);
/* Whether samples with these labels were taken for the task. */
bool kept_is_of_task(const struct profile *p, u32 resource, const char *task);
void kept_deinit(struct kept *k);
#define _cleanup_kept_ __attribute__((cleanup(kept_deinit)))
const struct store_link *kept_link(const struct kept *k, const struct kept_sample *s);
/* The segment of a snapshot, index in kept.segments. */
u32 kept_segment_of(const struct kept *k, const struct kept_sample *s);

/* ---- calls (kept_calls.c) ---- */

struct kept_blamed {
	u32 snapshot;	  /* of the thread */
	u32 owner, waker; /* in kept.who; 0: none */
};

/* What one thread did for a request. */
struct kept_thread {
	u32 request;		      /* in kept.asked */
	u64 key;		      /* of a thread of culprit's; 0 = of snapshots */
	u32 segment;		      /* in kept.segments; KEPT_NO_SEQUENCE: of none */
	const char *service, *thread; /* borrowed */
	struct analyze_snapshots snapshots;
	u64 first_ns, last_ns;
	vec(struct kept_blamed) blamed;
};

struct kept_calls {
	struct kept *k;
	bool by_line;
	struct map frames;		 /* hash of a frame's texts → its number */
	vec(u32) frame_of;		 /* a frame of each number */
	vec(struct kept_thread) threads; /* by request */
	struct map by_key;		 /* hash of request and thread → index */
	u32 *numbers;			 /* owned; by frame of the profile */
};

int kept_calls_make(struct api_call *c, struct kept *k, bool by_line, struct kept_calls *ret);
void kept_calls_deinit(struct kept_calls *s);
#define _cleanup_kept_calls_ __attribute__((cleanup(kept_calls_deinit)))
/* Estimates how long the calls of a thread took. */
int kept_calls_estimate(struct kept_calls *s, const struct kept_thread *t, bool compatible,
			struct analyze_calls *ret);
/* Adds a thread to a column; all of one request must be added one after another. */
int kept_calls_merge_thread(struct api_call *c, struct kept_calls *s, const struct kept_thread *t,
			    bool compatible, u32 column, struct analyze_merged *ret);
/* Columns of kept_calls_merge(): the group, and for SkyWalking's estimate KEPT_GROUPS more. */
#define KEPT_COLUMNS (2 * KEPT_GROUPS)
_Static_assert(KEPT_COLUMNS <= ANALYZE_COLUMNS, "columns");
/*
 * All threads as one tree, each estimated by itself. SkyWalking's estimate is made of snapshots
 * only.
 */
int kept_calls_merge(struct api_call *c, struct kept_calls *s, struct analyze_merged *ret);
/* Puts the members function, kind, file and line of a frame's number. */
void kept_calls_put_frame(struct json_writer *w, const struct kept_calls *s, u32 number);
/*
 * Puts the members total_ns, self_ns, count, owner and waker. blame: 0 at first; it goes on from
 * call to call and column to column.
 */
void kept_calls_put_call(struct json_writer *w, const struct kept_calls *s,
			 const struct analyze_merged *m, u32 call, u32 column, size_t *blame);
/* Puts the array "rows" of a merged tree. */
void kept_calls_put_merged(struct json_writer *w, const struct kept_calls *s,
			   const struct analyze_merged *m);

/* ---- the requests of a task (kept_list.c) ---- */

struct kept_list {
	struct task_info task;
	vec(u32) of;	    /* indexes in task.requests, newest first */
	u64 from_ms, to_ms; /* of these, with a margin for clocks that differ */
	bool of_trace;	    /* the parameter trace is there */
};

/*
 * Reads the task of the path, and the parameters trace and endpoint. Takes the newest requests, at
 * most `limit`. -ENOENT.
 */
int kept_list_read(struct api_call *c, u64 limit, struct kept_list *ret);
void kept_list_deinit(struct kept_list *l);
#define _cleanup_kept_list_ __attribute__((cleanup(kept_list_deinit)))
const struct task_request *kept_list_at(const struct kept_list *l, size_t k);
enum kept_group kept_group_of(const struct task_request *q);
/* Whether an agent says that it has sent what there is of the request. */
bool kept_is_delivered(const struct task_request *q);
/* Puts the array of the endpoints that the task's requests have, with their numbers by group. */
void kept_list_put_endpoints(struct json_writer *w, const struct kept_list *l);

/* ---- time by state (kept_ledger.c) ---- */

#define KEPT_MAX_STATES 64

/* The time of each request by state, from the samples that agents sent of it. */
struct kept_ledger {
	struct strtab states; /* the first is "" */
	struct map series;    /* id → id of its state; only those of the task */
	struct trace_set set;
	u64 (*ns)[KEPT_MAX_STATES];	 /* owned; by request of the list and state */
	bool by_span;			 /* of one trace */
	u64 (*of_span)[KEPT_MAX_STATES]; /* owned; by span and state; NULL unless by_span */
	bool damaged;
};
int kept_ledger_fill(struct api_call *c, const struct kept_list *l, struct kept_ledger *ret);
void kept_ledger_deinit(struct kept_ledger *l);
#define _cleanup_kept_ledger_ __attribute__((cleanup(kept_ledger_deinit)))
size_t kept_ledger_n_states(const struct kept_ledger *l);

/* ---- all requests of a task (kept_views.c) ---- */

api_fn kept_view_analysis, kept_view_difference, kept_view_times;
