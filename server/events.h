/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What happened to a server that its operator should know, for /api/v1/health and the page: each
 * event with its number since the start of the server and the time of the last. The numbers come
 * from counters that /metrics has, too; their growth between two looks gives the time. Any thread.
 */
#pragma once

#include <pthread.h>

#include "base/json.h"
#include "base/types.h"

#define SERVER_EVENTS(X)                                                                           \
	X(TOKENS, "wrong_tokens", "requests refused: their tokens are not in --token-file")        \
	X(CONNECTIONS, "connections_refused",                                                      \
	  "connections refused: no place, or no file, was left (--max-connections, ulimit -n)")    \
	X(EVICTED, "connections_evicted",                                                          \
	  "connections without an authorized request closed for newer ones")                       \
	X(HANDSHAKES, "handshakes_failed", "connections whose TLS handshake failed")               \
	X(QUEUE, "queue_full", "requests refused: too many waited")                                \
	X(MEMORY, "memory", "requests stopped: they needed more than --request-memory")            \
	X(TIME, "time", "requests stopped: they took longer than --query-timeout or --query-cpu")  \
	X(WRITES, "writes_refused", "writes refused: the store could not be written")              \
	X(SAMPLES, "samples_refused", "rows of samples refused for their times or values")         \
	X(SPANS, "spans_refused", "spans refused for their times")                                 \
	X(LIMITED, "limited", "samples and labels beyond a limit of cardinality")                  \
	X(OLD_ROWS, "old_rows_deleted", "rows of samples deleted: older than --max-age")           \
	X(ROWS, "rows_deleted", "rows of samples deleted: the store had reached --max-size")       \
	X(OLD_SPANS, "old_spans_deleted", "spans deleted: older than --max-age")                   \
	X(SPAN_ROWS, "spans_deleted", "spans deleted: spans had reached --spans-max-size")         \
	X(CLOCK, "clock_steps", "steps of the clock of the server's machine")
enum server_event {
#define X(id, name, text) SERVER_EVENT_##id,
	SERVER_EVENTS(X)
#undef X
		SERVER_N_EVENTS
};

struct server_events {
	pthread_mutex_t lock;
	struct {
		u64 count, last_ms;
	} of[SERVER_N_EVENTS];
};

/* counts: the counters' values at this time. */
void server_events_look(struct server_events *e, const u64 counts[SERVER_N_EVENTS], u64 now_ms);
/* Elements of an open array: those that have happened. */
void server_events_put(struct server_events *e, struct json_writer *w);
