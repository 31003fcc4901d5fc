/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "server/ingest/ingest.h"

/* What a byte of a request may take in memory until it is stored: that of pprof_read.c. */
#define INGEST_MEMORY_PER_BYTE 16
#define INGEST_OTLP_MEMORY_PER_BYTE 4 /* a limit for one request, whatever its size */

struct ingest {
	struct store *store; /* borrowed */
	struct ingest_options o;
	struct agents *agents; /* owned */
	atomic_ullong in_use;  /* bytes that requests at work may need */
	atomic_ullong requests, refused, profiles, samples, bytes, spans;
};

/* Memory for a request of n bytes, given back by its guard; -EAGAIN when others have it all. */
struct ingest_charge {
	struct ingest *i;
	u64 bytes;
};
int ingest_charge(struct ingest *i, u64 bytes, struct ingest_charge *ret, struct diag *reterr_diag);
void ingest_charge_end(struct ingest_charge *c);
#define _cleanup_charge_ __attribute__((cleanup(ingest_charge_end)))

/* `name`, `token`: see store_batch_init() and store_write(). */
int ingest_write(struct ingest *i, const struct profile *p, const char *name, const u8 *token,
		 struct diag *reterr_diag);
/* Counts a request of n bytes and how it ended: r, which is returned. */
int ingest_done(struct ingest *i, size_t n, int r);
/* A partial success in OTLP's JSON; `what` is "Spans". */
void ingest_json_response(const char *what, u64 rejected, const char *message, struct str *out);

/* What of a profile is made complete before it is stored. */
struct ingest_labels {
	vec(struct profile_label) labels; /* string ids of the profile */
};
int ingest_label_add(struct ingest_labels *l, struct profile *p, const char *name, size_t name_n,
		     const char *value, size_t value_n);
#define _cleanup_labels_ __attribute__((cleanup(ingest_labels_deinit)))
void ingest_labels_deinit(struct ingest_labels *l);
/* "name=value,..."; values may be quoted. */
int ingest_labels_parse(struct ingest_labels *l, struct profile *p, const char *text, size_t n,
			struct diag *reterr_diag);
/*
 * Adds the labels to all resources of the profile, and service.name where it is missing: what the
 * process is called. Samples without a thread get one.
 */
int ingest_complete(struct profile *p, const struct ingest_labels *l);
void ingest_set_time(struct profile *p, u64 from_ms, u64 to_ms);
/* "1700000000", in s, ms, us or ns by its size; 0 when it is nothing of these. */
u64 ingest_time_ms(const char *text);
/* The store's token for these bytes: what is sent again is not stored again. */
void ingest_token(const void *data, size_t n, const char *more, u64 number, u8 ret[16]);
