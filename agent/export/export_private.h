/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of agent/export share. */
#pragma once

#include <pthread.h>

#include "agent/export/export.h"
#include "agent/export/spool.h"

#define QUEUE_MAX 16

struct destination;
struct http;

enum export_outcome {
	EXPORT_SENT,
	EXPORT_RETRY,	/* not now */
	EXPORT_REFUSED, /* never */
};

struct export_result {
	enum export_outcome outcome;
	u32 retry_after_ms; /* what the destination asked for, or 0 */
	u64 rejected;	    /* sent, but so many of its profiles were not taken */
	struct diag error;
};

struct export_ops {
	const char *scheme;
	/* Checks the options and makes d->private. */
	int (*open)(struct destination *d, struct diag *reterr_diag);
	void (*close)(struct destination *d);
	/* Either: takes a profile at once. */
	int (*take)(struct destination *d, const struct profile *p, struct diag *reterr_diag);
	/* Or: makes the bytes to send, and sends them, on another thread. */
	int (*encode)(struct destination *d, const struct profile *p, struct str *out,
		      struct diag *reterr_diag);
	void (*send)(struct destination *d, const u8 *data, size_t n, struct export_result *ret);
	size_t max_bytes; /* of encode()'s; more is split; 0 = no limit */
	bool gzip;	  /* what is sent is compressed */
};

extern const struct export_ops export_otlp_grpc, export_otlp_http, export_pyroscope, export_file,
	export_memory;

struct destination {
	const struct export_ops *ops;
	struct export_options o; /* its strings are owned */
	const char *rest;	 /* of the URL, behind the scheme */
	void *private;		 /* of ops */
	struct exporters *all;

	pthread_t thread; /* the sender's */
	bool started;
	pthread_mutex_t lock; /* what follows */
	pthread_cond_t wake;
	struct spool spool;
	struct spool_item *in_flight; /* the sender's, or NULL */
	struct export_stats stats;
	u64 unsaid_lost; /* samples dropped that no profile has told yet */
	bool failing;	 /* the last attempt */
	bool inherited;	 /* by another, in exporters_replace() */
};

struct exporters {
	/* Of the next two; they change in exporters_replace() only, while no thread below runs. */
	pthread_rwlock_t list;
	struct destination *destinations; /* owned */
	size_t n;
	pthread_t thread;
	bool started;
	pthread_mutex_t lock; /* what follows */
	pthread_cond_t wake;
	struct profile *queue[QUEUE_MAX]; /* owned; a ring */
	size_t first, n_queued;
	bool encoding; /* one that is out of the queue */
	bool stopping;
	bool retiring;	 /* threads end and leave what waits, for others */
	u64 deadline_ms; /* of everything, once stopping; of what is sent, when retiring */
};

/* ---- exporters.c, for replace.c ---- */

/* Checks the options, which are copied. d is zeroed, and to be closed in any case. */
int export_open(struct exporters *e, const struct export_options *o, struct destination *d,
		struct diag *reterr_diag);
int export_open_spool(struct destination *d, struct diag *reterr_diag);
int export_start(struct destination *d);
int export_start_encoder(struct exporters *e);
void export_keep_bound(struct destination *d);
void export_close(struct destination *d);

/* True when the sender must end now: what waits for a socket gives up. */
bool export_must_stop(const struct destination *d);
void export_count_drop(struct destination *d, enum export_drop why, u64 profiles, u64 samples);

/* ---- http.c: one connection to one destination ---- */

struct http_options {
	const char *path; /* put behind the URL's */
	const char *default_port;
	const char *content_type;
	const char *content_encoding; /* or NULL */
	bool grpc;
};

/* Tells a URL that is wrong, and files that are not there. */
int http_open(struct destination *d, const struct http_options *o, struct diag *reterr_diag,
	      struct http **ret);
void http_close(struct http *h);
/*
 * Fills *ret unless it is EXPORT_SENT by HTTP's status; then the body of the answer, and for gRPC
 * its status too, are looked at by http_answer() and http_grpc().
 */
void http_post(struct http *h, const u8 *data, size_t n, struct export_result *ret);
const struct str *http_answer(const struct http *h);
/* What the trailers say, into *ret. */
void http_grpc_result(struct http *h, struct export_result *ret);
