/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where an agent's profiles go: any number of exporters (export_NAME.c, one table entry each),
 * fed by a thread of their own through a bounded queue, so that no socket is touched by who reads
 * the ring. What a destination does not take now is spooled, within bounds, and sent in order when
 * it answers again; what is dropped is counted, by reason, and said in the next profile's quality.
 */
#pragma once

#include "base/cleanup.h"
#include "base/diag.h"
#include "base/str.h"
#include "base/types.h"
#include "profile/profile.h"

struct export_options {
	const char *
		url; /* "otlp://HOST:PORT" (gRPC), "otlp+http://", "pyroscope://", "file:PATTERN" */
	bool tls;
	const char *ca, *cert, *key; /* PEM files, or NULL */
	const char *token;	     /* or NULL; never logged */
	const char *headers;	     /* "name=value,..." or NULL */
	const char *spool_dir;	     /* NULL: in memory only */
	u64 spool_bytes;	     /* 0 = 64 MiB */
	u32 timeout_s;		     /* 0 = 10 */
	/* For scheme "memory": takes the profile at once. */
	int (*take)(void *userdata, const struct profile *p, struct diag *reterr_diag);
	void *userdata;
};

struct export_stats {
	const char *url;
	u64 sent, sent_bytes, retried, spooled_bytes;
	u64 dropped; /* profiles given up */
	u64 dropped_samples;
	char last_error[256];
};

struct exporters;

int exporters_create(const struct export_options *o, size_t n, struct diag *reterr_diag,
		     struct exporters **ret);
/* Takes the profile. */
int exporters_send(struct exporters *e, struct profile *p);
/* Sends what is left, at most timeout_ms, then ends. */
void exporters_destroy(struct exporters *e, u32 timeout_ms);
size_t exporters_stats(struct exporters *e, struct export_stats *ret, size_t max);
