/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "base/map.h"
#include "base/quota.h"
#include "format/format.h"
#include "server/ingest/ingest.h"

/* Threads by a hash of their ids → when they were seen first, ns since the epoch. */
struct thread_times {
	struct map now, before; /* of this window and of the one before */
	u64 until_ns;		/* the end of this window */
};

/* The active series and services. */
struct limiter {
	pthread_mutex_t lock;	/* of all but the counts */
	struct map now, before; /* series of this window and of the one before → service */
	struct map services;	/* → number of its series in both */
	u64 until_ns;		/* the end of this window */
	struct thread_times threads;
	atomic_ullong counts[INGEST_LIMITS];
};

void limiter_init(struct limiter *l);
void limiter_deinit(struct limiter *l);

/* Segments of SkyWalking that were seen lately (skywalking.c). */
struct ingest_segments;
int ingest_segments_create(struct ingest_segments **ret);
void ingest_segments_destroy(struct ingest_segments *s);

struct ingest {
	struct store *store; /* borrowed */
	struct ingest_options o;
	struct agents *agents;		  /* owned */
	struct ingest_segments *segments; /* owned */
	struct limiter limiter;
	u64 server;    /* a random number */
	u64 learnt_ms; /* when the reports of other servers were last read */
	atomic_ullong requests, refused, profiles, samples, bytes, spans;
	atomic_ullong refused_samples[INGEST_REASON_N], refused_spans[INGEST_REASON_N];
};

/* The memory that a decoded request may take, whatever its size. */
static inline u64 ingest_decoded_bytes(const struct ingest *i)
{
	return 4ULL * i->o.max_request_bytes;
}

/* `name`, `token`: see store_batch_init() and store_write(). */
int ingest_write(struct ingest *i, const struct profile *p, const char *name, const u8 *token,
		 struct diag *reterr_diag);
/*
 * Makes everything of this host; -EACCES for what says that it is of another. NULL, "": any.
 * (host.c)
 */
int ingest_set_host(struct profile *p, const char *host, struct diag *reterr_diag);
int ingest_set_span_host(struct spans *s, const char *host, struct diag *reterr_diag);
/* -ERANGE: samples from outside of the window; -EINVAL: negative values. (window.c) */
int ingest_check_batch(struct ingest *i, const struct store_batch *b, struct diag *reterr_diag);
/* Removes spans from outside of the window. Returns -ERANGE, and why, if there were any. */
int ingest_drop_spans(struct ingest *i, struct spans *s, u64 *ret_dropped, struct diag *ret_why);
/* Writes spans; nothing if there are none. `token`: see store_write(). (traces.c) */
int ingest_write_spans(struct ingest *i, struct spans *spans, const u8 *token, const char *host,
		       struct diag *reterr_diag);
/* Counts a request of n bytes with the result r. Returns r. */
int ingest_done(struct ingest *i, size_t n, int r);
/* A partial success in OTLP's JSON; `what` is "Spans". */
void ingest_json_response(const char *what, u64 rejected, const char *message, struct str *out);

/* Labels that are added to a profile before it is stored. */
struct ingest_labels {
	vec(struct profile_label) labels; /* string ids of the profile */
};
/* Does nothing for a client's internal label, whose name begins with "__". */
int ingest_label_add(struct ingest_labels *l, struct profile *p, const char *name, size_t name_n,
		     const char *value, size_t value_n);
#define _cleanup_labels_ __attribute__((cleanup(ingest_labels_deinit)))
void ingest_labels_deinit(struct ingest_labels *l);
/* "name=value,..."; values may be quoted. */
int ingest_labels_parse(struct ingest_labels *l, struct profile *p, const char *text, size_t n,
			struct diag *reterr_diag);
/*
 * Adds the labels to all resources of the profile, and service.name where it is missing: the name
 * of the process. Samples without a thread get one. Then it applies the limits of cardinality;
 * ret_warning gets what they changed, or stays empty.
 */
int ingest_complete(struct ingest *i, struct profile *p, const struct ingest_labels *l,
		    struct diag *ret_warning);
/* Hands a warning over to the client, if a profile was stored. Returns r. */
int ingest_warn(int r, const struct diag *warning, struct diag *ret);

/* Gives threads that live long their ids as labels. (threads.c) */
int ingest_tell_threads_apart(struct ingest *i, struct profile *p);

/* ---- limits.c ---- */

/* Cuts and leaves out labels; adds to *count how many. */
int ingest_limit_labels(struct ingest *i, struct profile *p, struct profile_label *labels,
			size_t *n, u64 *count);
/* Applies the limits to a complete profile. n_labels: how many labels were cut before. */
int ingest_limit(struct ingest *i, struct profile *p, u64 n_labels, struct diag *ret_warning);
/*
 * Groups the types of a pprof file from one of Pyroscope's clients; config: the file's
 * sample_type_config, or NULL. (pyroscope_types.c)
 */
int ingest_name_groups(struct profile *p, const char *spy, const struct json_t *config);
void ingest_set_time(struct profile *p, u64 from_ms, u64 to_ms);
/*
 * Parses a time such as "1700000000", in s, ms, us or ns depending on its magnitude; 0 if the text
 * is not a time.
 */
u64 ingest_time_ms(const char *text);
/* The store's token for these bytes: the store ignores a second batch with the same token. */
void ingest_token(const void *data, size_t n, const char *more, u64 number, u8 ret[16]);
