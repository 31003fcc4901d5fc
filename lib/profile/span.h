/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Spans of distributed traces, as a request brings them and as a store gives them back. Texts and
 * resources lie in a profile that holds nothing else. All is bounded: what is longer is cut, what
 * is more is left out.
 */
#pragma once

#include "base/diag.h"
#include "base/types.h"
#include "base/vec.h"
#include "profile/profile.h"

#define SPAN_MAX_ATTRIBUTES 32
#define SPAN_MAX_TEXT 256 /* of one name or value, in bytes */

/* As OTLP numbers them. */
enum span_kind {
	SPAN_KIND_NONE,
	SPAN_KIND_INTERNAL,
	SPAN_KIND_SERVER,
	SPAN_KIND_CLIENT,
	SPAN_KIND_PRODUCER,
	SPAN_KIND_CONSUMER,
	SPAN_KIND_N,
};

enum span_status { SPAN_UNSET, SPAN_OK, SPAN_ERROR, SPAN_STATUS_N };

enum span_flags {
	/* A service's entry: what called it, if anything, runs somewhere else. */
	SPAN_ROOT = 1,
};

struct span {
	u8 trace_id[16], span_id[8];
	u8 parent_id[8]; /* zeros: none */
	u64 start_ns, duration_ns;
	u32 service, name;	/* string ids */
	u32 endpoint;		/* of a root: what it was asked for; else 0 */
	u32 message;		/* string id: what the status says */
	u32 resource;		/* of the profile; service.name among its labels */
	u32 first, n;		/* in attributes */
	u32 tid;		/* 0 = not said */
	u8 kind, status, flags; /* of the enums above */
	/* It stands for 1 << weight spans, as a share of those like it is kept. */
	u8 weight;
};

struct spans {
	struct profile *profile; /* owned: strings, labels, resources */
	vec(struct span) spans;
	vec(struct profile_label) attributes;
	bool damaged; /* a store could not read all that was asked for */
};

int spans_init(struct spans *s);
void spans_deinit(struct spans *s);
#define _cleanup_spans_ __attribute__((cleanup(spans_deinit)))

const char *spans_string(const struct spans *s, u32 id);
/* The text, cut to SPAN_MAX_TEXT between characters. */
int spans_add_text(struct spans *s, const char *text, u32 *ret_id);
/* For the span that is pushed next; what is too much is left out. */
int spans_add_attribute(struct spans *s, struct span *to, const char *name, const char *value);
/* An attribute's value, or NULL. Borrowed. */
const char *spans_attribute(const struct spans *s, const struct span *e, const char *name);
/*
 * What a service's entry is asked for: the route of an HTTP request with its method, service and
 * method of a remote call, else its name. Sets e->endpoint.
 */
int spans_set_endpoint(struct spans *s, struct span *e);
/* Ids are not all zeros and times are between 1970 and 2109; else a diag says what is wrong. */
int span_check(const struct span *e, struct diag *reterr_diag);
bool span_has_parent(const struct span *e);
/* "server", "error" */
const char *span_kind_name(u8 kind);
const char *span_status_name(u8 status);
/* n bytes of hex digits, and nothing behind them. */
bool span_parse_id(const char *text, u8 *ret, size_t n);
