/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Spans of distributed traces, as a request contains them and as a store returns them. A profile
 * that holds nothing else has their texts and resources. Everything is bounded: longer texts are
 * cut, and further attributes are left out.
 */
#pragma once

#include "base/diag.h"
#include "base/types.h"
#include "base/vec.h"
#include "profile/profile.h"

#define SPAN_MAX_EVENTS 8
#define SPAN_MAX_ATTRIBUTES (32 + SPAN_MAX_EVENTS)
#define SPAN_MAX_TEXT 256 /* of one name or value, in bytes */
/*
 * Events of a span stand behind its attributes, under this name, which no sender's attribute has:
 * "NANOSECONDS TEXT", the time since the span's start.
 */
#define SPAN_EVENT "culprit.event"

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
	/* An entry span of a service: its caller, if any, is another service. */
	SPAN_ROOT = 1,
};

struct span {
	u8 trace_id[16], span_id[8];
	u8 parent_id[8]; /* zeros: none */
	u64 start_ns, duration_ns;
	u32 service, name;	/* string ids */
	u32 endpoint;		/* of an entry span: the request's endpoint; else 0 */
	u32 message;		/* string id: message of the status */
	u32 resource;		/* of the profile; service.name among its labels */
	u32 first, n;		/* in attributes */
	u32 tid;		/* 0 = not said */
	u8 kind, status, flags; /* of the enums above */
	/*
	 * The span stands for 1 << weight spans, because the store keeps a share of similar ones.
	 */
	u8 weight;
};

struct spans {
	struct profile *profile; /* owned: strings, labels, resources */
	vec(struct span) spans;
	vec(struct profile_label) attributes;
	bool damaged; /* a store could not read everything that the query selects */
};

int spans_init(struct spans *s);
void spans_deinit(struct spans *s);
#define _cleanup_spans_ __attribute__((cleanup(spans_deinit)))

const char *spans_string(const struct spans *s, u32 id);
/* Adds a text, cut to SPAN_MAX_TEXT between characters. */
int spans_add_text(struct spans *s, const char *text, u32 *ret_id);
/* Adds an attribute of the span that is pushed next. Attributes above the limit are left out. */
int spans_add_attribute(struct spans *s, struct span *to, const char *name, const char *value);
/* Adds an event, behind all attributes. Events above the limit are left out. */
int spans_add_event(struct spans *s, struct span *to, u64 ns, const char *text);
/* An attribute's value, or NULL. Borrowed. */
const char *spans_attribute(const struct spans *s, const struct span *e, const char *name);
/*
 * Sets e->endpoint of an entry span: method and route of an HTTP request, service and method of a
 * remote call, else the name of the span.
 */
int spans_set_endpoint(struct spans *s, struct span *e);
/*
 * Checks that ids are not all zeros and times are between 1970 and 2109. -EBADMSG and a diag
 * otherwise.
 */
int span_check(const struct span *e, struct diag *reterr_diag);
bool span_has_parent(const struct span *e);
/* "server", "error" */
const char *span_kind_name(u8 kind);
const char *span_status_name(u8 status);
/* Parses exactly 2 * n hex digits. */
bool span_parse_id(const char *text, u8 *ret, size_t n);
