/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Everything that comes in, brought to one form and written: OTLP, Pyroscope's two ways, any file
 * that lib/profile reads, JFR, and profiles handed over in memory by `culprit up`.
 */
#pragma once

#include "base/diag.h"
#include "base/str.h"
#include "base/types.h"
#include "profile/profile.h"
#include "server/ingest/agents.h"
#include "server/store/store.h"

struct ingest;

struct ingest_options {
	size_t max_request_bytes; /* decompressed; 0 = 64 MiB */
	size_t max_memory_bytes;  /* all requests together; 0 = 256 MiB: -EAGAIN beyond it */
	/* Told of each profile once it is written; or NULL. On the thread that brought it. */
	void (*written)(void *userdata, const struct profile *p);
	void *userdata;
};

struct ingest_stats {
	u64 requests, refused, profiles, samples, bytes, spans;
};

int ingest_create(struct store *s, const struct ingest_options *o, struct ingest **ret);
void ingest_destroy(struct ingest *i);
DEFINE_CLEANUP(ingest, struct ingest *, ingest_destroy)
#define _cleanup_ingest_ _cleanup_(ingest)

/* Of an agent in this process, with what it says of itself. Thread-safe, as all below. */
int ingest_profile(struct ingest *i, const struct profile *p, struct diag *reterr_diag);
/* encoding: "gzip", "zstd", "identity" or NULL. Writes the response that the protocol wants. */
int ingest_otlp_profiles(struct ingest *i, const u8 *data, size_t n, const char *encoding,
			 bool json, struct str *ret_response, struct diag *reterr_diag);
int ingest_otlp_traces(struct ingest *i, const u8 *data, size_t n, const char *encoding, bool json,
		       struct str *ret_response, struct diag *reterr_diag);
/* Zipkin's JSON; nothing is answered. */
int ingest_zipkin(struct ingest *i, const u8 *data, size_t n, const char *encoding,
		  struct diag *reterr_diag);
/*
 * A file of any known format, compressed or not. What it does not say itself is said here; all
 * strings are borrowed.
 */
struct ingest_file {
	const char *format;   /* NULL = told by content */
	const char *encoding; /* of the request's body, as above */
	const char *labels;   /* "name=value,...": added to the resource of all its threads */
	const char *name;     /* first part of the type, or NULL */
	u64 from_ms, to_ms;   /* its time if it has none of its own; 0 = now */
};
int ingest_file(struct ingest *i, const u8 *data, size_t n, const struct ingest_file *f,
		struct diag *reterr_diag);
/* The same file as a profile, and not stored. */
int ingest_read(struct ingest *i, const u8 *data, size_t n, const struct ingest_file *f,
		struct profile **ret, struct diag *reterr_diag);

/* The parameters of a POST to Pyroscope's /ingest; NULL where there are none. */
struct ingest_pyroscope {
	const char *name; /* "app.cpu{env=prod,host=a}" */
	const char *from, *until, *format, *sample_rate, *units;
	const char *content_type, *encoding;
};
int ingest_pyroscope(struct ingest *i, const u8 *data, size_t n, const struct ingest_pyroscope *p,
		     struct diag *reterr_diag);
/* push.v1.PusherService/Push; the answer is an empty message. */
int ingest_push(struct ingest *i, const u8 *data, size_t n, const char *encoding, bool json,
		struct diag *reterr_diag);
/*
 * The body as it was before it was encoded ("gzip", "zstd", "identity" or NULL), within the limit
 * of a request: *ret_data points to `data` or into *own.
 */
int ingest_decode(struct ingest *i, const u8 *data, size_t n, const char *encoding, struct str *own,
		  const u8 **ret_data, size_t *ret_n, struct diag *reterr_diag);
void ingest_stats(struct ingest *i, struct ingest_stats *ret);
/* agents_list() of those that sent here. */
int ingest_agents(struct ingest *i, u64 from_ms, u64 to_ms, struct agent_state **ret,
		  size_t *ret_n);
