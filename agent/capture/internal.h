/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of agent/capture. */
#pragma once

#include <pthread.h>

#include "agent/capture/capture.h"
#include "agent/capture/ledger.h"
#include "agent/pipeline/pipeline.h"
#include "agent/symbolize/symbolize.h"
#include "base/map.h"
#include "base/vec.h"

/* A task of a server, and what was done about it. */
struct capture_task {
	struct control_task asked;
	u32 server;
	struct control_task_report report;
	/* The counters of its service when the task was armed; 0 armed_ns: it is not. */
	u64 armed_ns, samples_before, events_before, lost_before, evicted_before;
};

/* A request to keep, until its profile is made. */
struct capture_wish {
	struct control_keep keep;
	u32 server;
	u64 asked_ns; /* CLOCK_MONOTONIC, as all here */
	/* A piece of a request that goes on, instead of keep's times; until_ns 0: it is none. */
	u64 from_ns, until_ns;
	char service[CONTROL_TEXT_BYTES];
};

typedef vec(struct capture_wish) capture_wishes;

#define CAPTURE_MAX_FORMER 64

struct capture_tasks {
	vec(struct capture_task) list;
};

/* Counters for /metrics, since the start. */
struct capture_counters {
	u64 armed; /* processes, now */
	u64 bytes; /* of samples and intervals, now */
	u64 samples, intervals, lost, evicted;
	u64 kept, partly, gone; /* requests by outcome */
	u64 floor_ns;		/* to which the budget has raised the floor lately; 0: it has not */
	u64 hz;			/* of the clock; 0: nothing is armed */
};

struct recorder;

struct capture {
	struct capture_options options;
	char *cache_dir, *debuginfod_urls; /* owned */
	pthread_t thread;
	bool started;

	pthread_mutex_t lock; /* of all fields below */
	pthread_cond_t wake;
	bool ending;
	struct capture_tasks tasks;
	struct capture_task former[CAPTURE_MAX_FORMER]; /* the last that have ended */
	u32 n_former;
	capture_wishes wishes;
	vec(struct control_kept) kept[CAPTURE_MAX_SERVERS]; /* not answered yet */
	struct map asked; /* hash of a wish → when it was asked (CLOCK_MONOTONIC, ms) */
	struct capture_counters counters;
};

/* The body of capture's thread. */
void *capture_work(void *capture);
/* Tells what became of a request. Under the lock. */
void capture_decided(struct capture *c, const struct capture_wish *w, enum control_outcome outcome,
		     u64 samples);

static inline u64 trace_hash(const u64 trace_id[2])
{
	return hash_u64(trace_id[0] ^ hash_u64(trace_id[1]));
}

/* ---- history.c: the last minute ---- */

struct history_batch {
	struct pipeline_batch *b; /* owned */
	u64 bytes;
	bool is_used; /* by a profile that is being made */
};

/* The realtime clock at a moment of the monotonic one. */
struct history_clock {
	u64 monotonic_ns;
	s64 offset_ns;
};

struct history {
	struct record_interval *ring; /* owned; `pad` is the serial number of its process */
	size_t cap, first, n;
	vec(struct history_batch) batches; /* oldest first */
	vec(struct history_clock) clocks;  /* oldest first */
	u64 window_ns;			   /* what is older is dropped */
	u64 began_ns;			   /* CLOCK_MONOTONIC: nothing before was recorded */
	u64 intervals_from_ns;		   /* intervals that ended before are dropped */
	u64 samples_from_ns;
	u64 max_batch_bytes;
	struct map
		dropped[2]; /* hashes of traces that had something dropped; the older half second */
	u64 evicted;	    /* samples and intervals that were dropped for lack of room */
};

/* -ENOMEM. */
int history_init(struct history *h, u64 max_bytes, u64 window_ns);
void history_deinit(struct history *h, struct pipeline *p);
void history_push(struct history *h, const struct record_interval *i);
/* Takes the pipeline's batch. -ENOMEM. */
int history_take(struct history *h, struct pipeline *p);
/* Drops batches that are too old or too many. */
void history_trim(struct history *h, struct pipeline *p, u64 now);
u64 history_bytes(const struct history *h);
/* Notes the realtime clock; call it every second or so. */
void history_note_clock(struct history *h, u64 now);
/* Converts times since the epoch to CLOCK_MONOTONIC and back. */
u64 history_monotonic(const struct history *h, u64 realtime_ns);
u64 history_realtime(const struct history *h, u64 monotonic_ns);
/* The i-th interval, oldest first. */
static inline const struct record_interval *history_interval(const struct history *h, size_t i)
{
	return &h->ring[(h->first + i) % h->cap];
}
/* The first interval that ended at that time or later, as far as they are in order. */
size_t history_find(const struct history *h, u64 now_ns);
bool history_has_dropped(const struct history *h, const u64 trace_id[2]);

/* ---- recorder.c: the recording while tasks are armed ---- */

/* A process that is armed, or was within the last minute. */
struct armed {
	u32 serial; /* from 1 */
	u32 pid;
	u64 image, start_ticks;
	u64 ended_ns; /* 0: it is armed */
	bool publishes;
	char service[CONTROL_TEXT_BYTES], comm[16];
	struct armed_process values;
	u32 resource; /* in recorder.resources */
};

/* What was seen of a service since the recording began. */
struct service {
	char name[CONTROL_TEXT_BYTES];
	u64 samples, events;
};

struct job;

/* A request that is kept piece by piece for a task. */
struct long_request {
	char task[CONTROL_ID_BYTES];
	u32 server;
	u64 trace_id[2];
	u64 first_ns, until_ns; /* kept so far; until_ns is first_ns before the first piece */
	u64 seen_ns;
	u64 samples; /* of its pieces */
	bool is_partly;
	bool is_over; /* the server has asked for the request, which has ended */
};

struct longs {
	vec(struct long_request) of;
	u64 examined_ns; /* the history before was examined */
	u64 look_ns;	 /* when the next look is due */
};

struct recorder {
	struct capture *capture;   /* borrowed */
	struct pipeline *pipeline; /* owned, as the next two */
	struct symbolizer *symbolizer;
	struct profile *resources; /* only its resources are used */
	struct history history;
	struct longs longs;
	vec(struct armed) armed;
	vec(struct service) services;
	struct map by_pid;    /* pid → index of `armed`; of those that are armed */
	struct map looked_at; /* images → 1 */
	u64 looked_ns;
	u32 last_serial;
	u64 hz;
	u64 lost, lost_samples; /* so far: samples and intervals; samples alone */
	u64 floor_ns;		/* to which the budget has raised the floor in the last batch */
	u64 take_ns, decide_ns; /* when these are due */
	u64 lost_before;	/* as told with the last profile */
	s64 map_bytes;		/* counted in the budget */
	struct job *job;	/* owned: being named, or done; NULL: none */
};

/* Loads the programs and starts. The diag says what failed. */
int recorder_create(struct capture *c, u64 hz, struct diag *reterr_diag, struct recorder **ret);
void recorder_destroy(struct recorder *r);
/*
 * Arms processes of services with these values and disarms others; `tasks` are those that are to be
 * armed now.
 */
void recorder_follow(struct recorder *r, const struct control_task *tasks, size_t n, u64 hz);
/* Reads what has arrived, for at most timeout_ms. */
int recorder_poll(struct recorder *r, int timeout_ms);
void recorder_count(const struct recorder *r, const char *service, struct control_task_report *ret);
/* Takes what was recorded so far into the history. -ENOMEM. */
int recorder_take(struct recorder *r);
const struct armed *recorder_process(const struct recorder *r, u32 serial);
const struct armed *recorder_process_of(const struct recorder *r, u64 image);

/* ---- long.c: requests that are longer than the history ---- */

/* If a look is due: appends wishes for pieces of requests that go on. */
int long_look(struct recorder *r, u64 now, capture_wishes *to);
/* What is kept of the wish's request; NULL: nothing. Borrowed until the next look. */
struct long_request *long_find(struct recorder *r, const struct capture_wish *w);
/* The piece was gathered, up to until_ns; or what came after the last, at the request's end. */
void long_kept(struct recorder *r, const struct capture_wish *w, u64 until_ns,
	       const struct control_kept *result);

/* ---- decide.c: from wishes to profiles ---- */

/* Makes profiles of the requests whose events have arrived. True: something was done. */
bool decide(struct recorder *r);
/* As symbolizer_options.resource; `arg` is the recorder. For the thread that makes a profile. */
int decide_resource(void *arg, const struct pipeline_entry *e, struct profile *p, u32 *ret);
/* Waits for the profiles that are being made, and frees what they use. */
void decide_end(struct recorder *r);
