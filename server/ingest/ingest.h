/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ingest: turns OTLP, Pyroscope's two protocols, JFR, and every file format that lib/format
 * reads into profiles, and writes them to the store.
 *
 * All functions may be called from any thread. They return 0 once the data is stored, then the
 * diag may have a warning for the client; -EAGAIN if the client should retry; other negative errno
 * with a diag for the client. Input is borrowed for the call.
 */
#pragma once

#include "base/clockwatch.h"
#include "base/diag.h"
#include "base/str.h"
#include "base/types.h"
#include "profile/profile.h"
#include "server/ingest/agents.h"
#include "server/policies/policies.h"
#include "server/store/store.h"
#include "server/tasks/tasks.h"

struct ingest;

/* Limits of cardinality (limits.c); 0 = the default. */
struct ingest_limits {
	u64 services;	 /* active ones; 10,000 */
	u64 series;	 /* active ones of a service; 50,000 */
	u64 labels;	 /* of a series; 64 */
	u64 label_bytes; /* of a name or value; 2,048 */
	u64 stacks;	 /* different ones of a profile; 250,000 */
};

/* What a limit was reached of. */
enum ingest_limit {
	INGEST_LIMIT_SERVICES,
	INGEST_LIMIT_SERIES,
	INGEST_LIMIT_LABELS,
	INGEST_LIMIT_STACKS,
	INGEST_LIMITS,
};

/* "services" */
const char *ingest_limit_name(enum ingest_limit limit);

struct ingest_options {
	size_t max_request_bytes; /* decompressed; 0 = 64 MiB */
	/*
	 * Refuses samples and spans that are older, or further ahead of the clock. Without a clock:
	 * none.
	 */
	struct clock_watch *clock; /* borrowed */
	u64 max_age_ms, max_ahead_ms;
	struct ingest_limits limits;
	struct tasks *tasks;	   /* borrowed: see the spans of each request; or NULL */
	struct policies *policies; /* the same */
	/* Called for each profile after it was written, in the thread of the request; or NULL. */
	void (*written)(void *userdata, const struct profile *p);
	void *userdata;
};

/* Why samples and spans are refused that could be stored. */
enum ingest_reason { INGEST_OLD, INGEST_FUTURE, INGEST_NEGATIVE, INGEST_REASON_N };
/* "future" */
const char *ingest_reason(enum ingest_reason r);

struct ingest_stats {
	u64 requests, refused, profiles, samples, bytes, spans;
	/* A profile is refused as a whole. */
	u64 refused_samples[INGEST_REASON_N], refused_spans[INGEST_REASON_N];
	bool clock_doubted;
	u64 limited[INGEST_LIMITS]; /* samples, or labels, beyond a limit */
};

int ingest_create(struct store *s, const struct ingest_options *o, struct ingest **ret);
void ingest_destroy(struct ingest *i);
DEFINE_CLEANUP(ingest, struct ingest *, ingest_destroy)
#define _cleanup_ingest_ _cleanup_(ingest)

/*
 * encoding: "gzip", "zstd", "identity" or NULL. host: the only host.name that the sender may write,
 * here and below; "" or NULL: any. Appends the response that the protocol
 * requires.
 */
int ingest_otlp_profiles(struct ingest *i, const u8 *data, size_t n, const char *encoding,
			 const char *host, bool json, struct str *ret_response,
			 struct diag *reterr_diag);
int ingest_otlp_traces(struct ingest *i, const u8 *data, size_t n, const char *encoding,
		       const char *host, bool json, struct str *ret_response,
		       struct diag *reterr_diag);
/* Zipkin's JSON; the response is empty. */
int ingest_zipkin(struct ingest *i, const u8 *data, size_t n, const char *encoding,
		  const char *host, struct diag *reterr_diag);

/* What SkyWalking's agents send (skywalking.c). */
enum ingest_skywalking_what {
	INGEST_SKYWALKING_SEGMENTS,	/* each message is a SegmentObject */
	INGEST_SKYWALKING_SEGMENT_LIST, /* a SegmentCollection */
	INGEST_SKYWALKING_SNAPSHOTS,	/* each is a ThreadSnapshot */
};
struct ingest_skywalking_task {
	char service[256];
	u64 period_ns;
};
/* A segment that has snapshots, once its trace is known. Strings are borrowed. */
struct ingest_skywalking_kept {
	const char *task, *instance;  /* instance: of the service, its agent's name */
	const u8 *trace_id, *span_id; /* of the segment's first span */
	u64 samples;
};
struct ingest_skywalking {
	enum ingest_skywalking_what what;
	/* The next message, borrowed, and its encoding (above); false: there is none. */
	bool (*next)(void *userdata, const u8 **ret, size_t *ret_n, const char **ret_encoding);
	/* Sets *ret to what is known of the task; or NULL. */
	void (*find_task)(void *userdata, const char *id, struct ingest_skywalking_task *ret);
	/* Is told of each segment that was kept, when it or more of it was stored; or NULL. */
	void (*kept)(void *userdata, const struct ingest_skywalking_kept *k);
	void *userdata;
	const char *host;
};
/* Writes all messages together. n: their bytes. */
int ingest_skywalking(struct ingest *i, const struct ingest_skywalking *q, size_t n,
		      struct diag *reterr_diag);

/*
 * A file of any known format, compressed or not. The members provide what the file does not
 * contain; strings are borrowed.
 */
struct ingest_file {
	const char *format;	     /* NULL = detected by content */
	const char *encoding, *host; /* of the request, as above */
	const char *labels;	     /* "name=value,...", added to the resources of all threads */
	const char *name;	     /* first part of the type, or NULL */
	u64 from_ms, to_ms;	     /* time of a file that has none; 0 = now */
	u64 *ret_samples;	     /* how many were stored; or NULL */
};
int ingest_file(struct ingest *i, const u8 *data, size_t n, const struct ingest_file *f,
		struct diag *reterr_diag);
/* Reads the file as a profile (owned by the caller) and does not store it. */
int ingest_read(struct ingest *i, const u8 *data, size_t n, const struct ingest_file *f,
		struct profile **ret, struct diag *reterr_diag);

/* The parameters of a POST to Pyroscope's /ingest; NULL where missing. */
struct ingest_pyroscope {
	const char *name; /* "app.cpu{env=prod,host=a}" */
	const char *from, *until, *format, *sample_rate, *units, *spy;
	const char *content_type, *encoding, *host;
};
int ingest_pyroscope(struct ingest *i, const u8 *data, size_t n, const struct ingest_pyroscope *p,
		     struct diag *reterr_diag);
/* push.v1.PusherService/Push; the response is an empty message. */
int ingest_push(struct ingest *i, const u8 *data, size_t n, const char *encoding, const char *host,
		bool json, struct diag *reterr_diag);
/*
 * Decodes a body ("gzip", "zstd", "identity" or NULL) within the size limit of a request: *ret_data
 * points to `data` or into *own.
 */
int ingest_decode(struct ingest *i, const u8 *data, size_t n, const char *encoding, struct str *own,
		  const u8 **ret_data, size_t *ret_n, struct diag *reterr_diag);
/* Counters since the start. */
void ingest_stats(struct ingest *i, struct ingest_stats *ret);
/*
 * Exchanges reports of agents with the other servers of the store; to be called every few seconds
 * by one thread. Does nothing for a store that only one server uses.
 */
int ingest_share_agents(struct ingest *i, u64 now_ms, struct diag *reterr_diag);
/* agents_list() of the agents that sent profiles here, or to another server of the store. */
int ingest_agents(struct ingest *i, u64 from_ms, u64 to_ms, struct agent_state **ret,
		  size_t *ret_n);
