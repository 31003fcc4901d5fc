/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where an agent's profiles go: any number of exporters (export_NAME.c, one table entry each),
 * fed by a thread of their own through a bounded queue, so that no socket is touched by who reads
 * the ring. What a destination does not take now is spooled, within bounds, and sent in order when
 * it answers again; what is dropped is counted, by reason, and said in the next profile's quality.
 */
#pragma once

#include "abi/vocab.h"
#include "base/cleanup.h"
#include "base/diag.h"
#include "base/str.h"
#include "base/types.h"
#include "profile/profile.h"

struct export_options {
	/*
	 * "otlp://HOST:PORT" (gRPC, port 4317), "otlp+http://HOST:PORT" (4318),
	 * "pyroscope://HOST:PORT" (4040), "file:PATTERN" (strftime's, local time; the format is
	 * told by the ending), "memory:".
	 */
	const char *url;
	const char *ca, *cert, *key; /* PEM files, or NULL */
	const char *token;	     /* or NULL; never logged */
	const char *headers;	     /* "name=value,..." or NULL; never logged */
	const char *spool_dir;	     /* NULL: in memory only */
	u64 spool_bytes;	     /* 0 = 64 MiB */
	u32 timeout_s;		     /* 0 = 10 */
	u32 retry_ms;		     /* the first wait, doubled up to 30 times it; 0 = 1000 */
	u32 keep_files;		     /* file: of the pattern; the oldest go; 0 = 1000 */
	bool tls;
	/* For scheme "memory": takes the profile at once. -EAGAIN: asked again soon. */
	int (*take)(void *userdata, const struct profile *p, struct diag *reterr_diag);
	void *userdata;
};

struct export_stats {
	char url[256];
	u64 queued; /* profiles, of all destinations together */
	u64 sent, sent_bytes, retried, spooled, spooled_bytes;
	u64 dropped; /* profiles given up, in all */
	u64 dropped_samples;
	u64 dropped_by[EXPORT_DROP_N];
	char last_error[256]; /* "" when the last attempt worked */
};

struct exporters;

int exporters_create(const struct export_options *o, size_t n, struct diag *reterr_diag,
		     struct exporters **ret);
/*
 * From now on these destinations. One of the same URL goes on with what waits and what was counted;
 * of others what waits is dropped, or stays in its spool_dir. What is sent just now gets two
 * seconds. An error: nothing has changed. Beside exporters_send() and exporters_stats().
 */
int exporters_replace(struct exporters *e, const struct export_options *o, size_t n,
		      struct diag *reterr_diag);
/*
 * Takes the profile, always. -ENOBUFS: the queue is full, or not empty and memory is short; it is
 * dropped and counted.
 */
int exporters_send(struct exporters *e, struct profile *p, bool memory_is_short);
/* Sends what is left, at most timeout_ms, then ends. What is left then stays in a spool_dir. */
void exporters_destroy(struct exporters *e, u32 timeout_ms);
/* How many there are; fills at most `max`. */
size_t exporters_stats(struct exporters *e, struct export_stats *ret, size_t max);
