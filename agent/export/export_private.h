/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of agent/export. */
#pragma once

#include <pthread.h>

#include "agent/export/export.h"
#include "agent/export/spool.h"

#define QUEUE_MAX 16

struct destination;
struct http;

enum export_outcome {
	EXPORT_SENT,
	EXPORT_RETRY,	/* may succeed later */
	EXPORT_REFUSED, /* will never succeed */
};

struct export_result {
	enum export_outcome outcome;
	u32 retry_after_ms; /* requested by the destination, or 0 */
	/* profiles that the destination rejected, of a request that was sent */
	u64 rejected;
	bool unknown; /* the destination does not know this call */
	struct diag error;
};

struct export_ops {
	const char *scheme;
	/* Checks the options and creates d->private. */
	int (*open)(struct destination *d, struct diag *reterr_diag);
	void (*close)(struct destination *d);
	/* Either: exports a profile at once. */
	int (*take)(struct destination *d, const struct profile *p, struct diag *reterr_diag);
	/* Or: encodes a request; send() sends it, in another thread. */
	int (*encode)(struct destination *d, const struct profile *p, struct str *out,
		      struct diag *reterr_diag);
	void (*send)(struct destination *d, const u8 *data, size_t n, struct export_result *ret);
	/* Asks a question (struct export_asking); SENT: the answer was appended. Or NULL. */
	void (*ask)(struct destination *d, const u8 *data, size_t n, struct str *answer,
		    struct export_result *ret);
	size_t max_bytes; /* of a request; larger ones are split; 0: no limit */
	bool gzip;	  /* requests are compressed */
	bool by_resource; /* a request has the samples of one resource; encode() gets only those */
};

extern const struct export_ops export_otlp_grpc, export_otlp_http, export_pyroscope, export_ingest,
	export_file, export_local;

struct destination {
	const struct export_ops *ops;
	struct export_options o; /* its strings are owned */
	const char *rest;	 /* of the URL, after the scheme */
	void *private;		 /* belongs to ops */
	struct exporters *all;

	pthread_t thread; /* sends the requests */
	bool started;
	pthread_mutex_t lock; /* of all fields below */
	pthread_cond_t wake;
	struct spool spool;
	struct spool_item *in_flight; /* being sent, or NULL */
	struct export_stats stats;
	u64 unreported_lost; /* samples dropped that no profile has reported yet */
	bool failing;	     /* the last attempt failed */
	bool inherited;	     /* its spool was moved to another in exporters_replace() */
};

struct exporters {
	/* Protects the next two. Only exporters_replace() changes them, while the threads below are
	 * stopped. */
	pthread_rwlock_t list;
	struct destination *destinations; /* owned */
	size_t n;
	pthread_t thread;
	bool started;
	pthread_mutex_t lock; /* of all fields below */
	pthread_cond_t wake;
	struct profile *queue[QUEUE_MAX]; /* owned; a ring */
	size_t first, n_queued;
	bool encoding; /* a profile that was taken from the queue is being encoded */
	bool stopping;
	bool retiring; /* threads end, but leave waiting requests to their successors */
	/* when stopping: for everything; when retiring: for requests being sent */
	u64 deadline_ms;
};

/* ---- exporters.c, called by replace.c ---- */

/* Checks and copies the options. *d is zeroed before; the caller must close it in any case. */
int export_open(struct exporters *e, const struct export_options *o, struct destination *d,
		struct diag *reterr_diag);
/* Opens the destination's spool. Call it after export_open(). */
int export_open_spool(struct destination *d, struct diag *reterr_diag);
/* Starts the destination's sender; none is needed if it takes profiles at once. */
int export_start(struct destination *d);
/* Starts the thread that encodes the profiles of the queue. */
int export_start_encoder(struct exporters *e);
/* Drops the oldest items of the spool above its limit. */
void export_keep_bound(struct destination *d);
void export_close(struct destination *d);

/* True: the sender must end now and abandon its request. */
bool export_must_stop(const struct destination *d);
/* Counts dropped profiles and samples by reason; the next profile reports the samples as lost. */
void export_count_drop(struct destination *d, enum export_drop why, u64 profiles, u64 samples);

/* ---- export_pyroscope.c ---- */

/* The resource of a sample; 0: it has none. */
u32 export_resource_of(const struct profile *p, size_t sample);
/* The profile with the samples of one resource only; `samples` is memory for them. */
struct profile export_select_resource(const struct profile *p, u32 resource, u8 *samples);
/* service.name → service_name: all versions accept letters, digits and '_'. */
void export_clean_label(char *name);

/* ---- ask.c ---- */

/*
 * Asks the destination, and returns the interval in ms until the next question. For the
 * destination's thread, without its lock.
 */
u64 export_ask(struct destination *d);

/* ---- http.c: one connection to one destination ---- */

struct http_options {
	const char *path;     /* appended to the path of the URL */
	const char *ask_path; /* the same, for http_ask() */
	const char *default_port;
	const char *content_type;
	const char *content_encoding; /* or NULL */
	bool grpc;
};

/* Fails if the URL is invalid or a file is missing; the diag says which. */
int http_open(struct destination *d, const struct http_options *o, struct diag *reterr_diag,
	      struct http **ret);
/* As export_ops.close, of a destination that http_open() has opened. */
void http_close(struct destination *d);
/*
 * Sends a request and sets *ret by the HTTP status. If that is EXPORT_SENT, the caller checks the
 * body (http_answer()), and for gRPC its status (http_grpc_result()).
 */
void http_post(struct http *h, const u8 *data, size_t n, struct export_result *ret);
/* The same, with a query behind the URL. */
void http_post_query(struct http *h, const char *query, const u8 *data, size_t n,
		     struct export_result *ret);
/* The same for a question, which gets less time. */
void http_ask(struct http *h, const u8 *data, size_t n, struct export_result *ret);
/* The body of the last response, borrowed until the next request. */
const struct str *http_answer(const struct http *h);
/* Fills *ret from the trailers. */
void http_grpc_result(struct http *h, struct export_result *ret);
