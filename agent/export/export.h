/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Exporters: the destinations of an agent's profiles (export_NAME.c, one table entry each). A
 * thread of their own feeds them through a bounded queue, so that the thread that reads the ring
 * never uses a socket. Requests that a destination does not accept now wait in a spool with a limit
 * and are sent in order when the destination answers again. Drops are counted by reason and
 * reported in the quality of the next profile.
 */
#pragma once

#include "abi/vocab.h"
#include "base/cleanup.h"
#include "base/diag.h"
#include "base/str.h"
#include "base/types.h"
#include "profile/profile.h"

/* What came of a question (struct export_asking). */
struct export_answer {
	const u8 *data; /* NULL: there is no answer */
	size_t n;
	const char *error;  /* without an answer: why */
	u32 retry_after_ms; /* requested by the destination, or 0 */
	bool unknown;	    /* the destination knows no such questions */
	bool broken_off;    /* it is not the destination's fault: the thread ends */
};

/*
 * Questions to a destination, over the connection that carries the profiles and between them.
 * Destinations that cannot be asked (files, Pyroscope) are left alone. Both functions are called by
 * the destination's thread, in turn.
 */
struct export_asking {
	/* Appends a question. Negative errno: there is none now, and later perhaps. */
	int (*question)(void *userdata, const char *url, struct str *out);
	/* Called for each question. Returns after how many ms the next one is due. */
	u32 (*answer)(void *userdata, const char *url, const struct export_answer *a);
	void *userdata;
};

struct export_options {
	/*
	 * "otlp://HOST:PORT" (gRPC, port 4317), "otlp+http://HOST:PORT" (4318),
	 * "pyroscope://HOST:PORT" (4040), "pyroscope+ingest://HOST:PORT" (4040), "file:PATTERN"
	 * (strftime, local time; the extension selects the format), "local:".
	 */
	const char *url;
	const char *ca, *cert, *key; /* PEM files, or NULL */
	const char *token;	     /* or NULL; never logged */
	const char *user;	     /* NAME:PASSWORD, or NULL; never logged; not with a token */
	const char *headers;	     /* "name=value,..." or NULL; never logged */
	const char *spool_dir;	     /* NULL: the spool is in memory only */
	u64 spool_bytes;	     /* 0 = 64 MiB */
	u32 timeout_s;		     /* 0 = 10 */
	u32 retry_ms;		     /* first delay, doubled up to 30 times it; 0 = 1000 */
	size_t max_bytes;	     /* of a request; 0: what receivers of this kind accept */
	u32 keep_files;		     /* file: keep this many of the pattern; 0 = 1000 */
	u32 roots;		     /* file: of enum profile_root */
	bool tls;
	/* For "local:": passes an OTLP request on, in the sender's thread. -EAGAIN: try again. */
	int (*give)(void *userdata, const u8 *data, size_t n, struct diag *reterr_diag);
	/* For "local:": asks a question and appends the answer; as `give`. Or NULL. */
	int (*ask)(void *userdata, const u8 *data, size_t n, struct str *ret,
		   struct diag *reterr_diag);
	void *userdata;
	const struct export_asking *asking; /* borrowed until the end; NULL: no questions */
};

struct export_stats {
	char url[256];
	u64 queued; /* profiles in the queue, which all destinations share */
	u64 sent, sent_bytes, retried, spooled, spooled_bytes;
	u64 dropped; /* profiles dropped, for all reasons */
	u64 dropped_samples;
	u64 dropped_by[EXPORT_DROP_N];
	char last_error[256]; /* "" if the last attempt succeeded */
};

struct exporters;

/*
 * Starts the threads. Strings are copied. -EINVAL and a diag for a bad URL or option, another
 * negative errno for files and spools that cannot be opened.
 */
int exporters_create(const struct export_options *o, size_t n, struct diag *reterr_diag,
		     struct exporters **ret);
/*
 * Replaces the destinations. A destination whose URL stays keeps its spool and counters. For
 * others, requests in progress get two seconds; requests that wait are dropped, or stay in their
 * spool_dir. After an error nothing has changed. May run in parallel with exporters_send() and
 * exporters_stats().
 */
int exporters_replace(struct exporters *e, const struct export_options *o, size_t n,
		      struct diag *reterr_diag);
/*
 * Queues the profile, and owns it in any case. -ENOBUFS: the profile was dropped and counted,
 * because the queue is full, or because it is not empty and memory is short.
 */
int exporters_send(struct exporters *e, struct profile *p, bool memory_is_short);
/*
 * Sends the remaining profiles for at most timeout_ms, then ends the threads. Profiles left after
 * that stay in a spool_dir, or are dropped.
 */
void exporters_destroy(struct exporters *e, u32 timeout_ms);
/* Returns the number of destinations and fills at most `max` entries. Any thread. */
size_t exporters_stats(struct exporters *e, struct export_stats *ret, size_t max);
