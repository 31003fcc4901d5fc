/* SPDX-License-Identifier: Apache-2.0 */
/*
 * OTLP profiles, opentelemetry-proto 1.10 and later (package opentelemetry.proto.profiles.
 * v1development); layouts before 1.10 put other fields in the same places and are not read.
 * Field numbers: proto/otlp_*.proto.
 */
#pragma once

#include "base/diag.h"
#include "base/str.h"
#include "base/types.h"
#include "base/vec.h"
#include "profile/profile.h"
#include "profile/span.h"

/*
 * An ExportProfilesServiceRequest of a profile: a ResourceProfiles per resource, a Profile per
 * value type in it; samples with times as timestamps. Follows the rules that profcheck checks.
 * `profile_id`: 16 bytes, the base of those of the profiles.
 */
int otlp_profiles_encode(const struct profile *p, const u8 profile_id[16], struct str *out,
			 struct diag *reterr_diag);

/*
 * The id that Elastic's receiver gives a stack of such a request (collector-contrib's
 * elasticsearchexporter): what its traces refer to stacks by.
 */
int otlp_stack_id(const struct profile *p, u32 stack, u8 ret[16]);

/* The profiles of a request; those with equal types are merged into one. */
struct otlp_profiles {
	vec(struct profile *) profiles; /* owned */
	u64 rejected; /* of the request's profiles, with the reason of the first: */
	struct diag why;
};

/*
 * Decodes a request; `max_bytes` bounds the memory. -EBADMSG and a diag: these bytes are no
 * request.
 */
int otlp_profiles_decode(const u8 *data, size_t n, size_t max_bytes, struct otlp_profiles *ret,
			 struct diag *reterr_diag);
/* The same for OTLP's JSON. */
int otlp_profiles_decode_json(const char *data, size_t n, size_t max_bytes,
			      struct otlp_profiles *ret, struct diag *reterr_diag);
void otlp_profiles_deinit(struct otlp_profiles *p);

/* An attribute that a process publishes about itself (OTEP 4719), as text. */
struct otlp_said {
	enum otlp_said_of {
		OTLP_SAID_PROCESS,
		OTLP_SAID_RESOURCE,
		/* A name of what its threads say, in the order of their numbers (OTEP 4947). */
		OTLP_SAID_KEY,
	} of;
	const char *name, *value;
};
#define OTLP_THREADLOCAL "threadlocal." /* how threads say what they do: told as OTLP_SAID_KEY */
/*
 * `max_bytes` as above. Calls fn for each that has a name, those of the resource last; not 0: stop,
 * and return this.
 */
int otlp_process_context_decode(const u8 *data, size_t n, size_t max_bytes,
				int (*fn)(void *arg, const struct otlp_said *s), void *arg);

/*
 * An ExportTraceServiceRequest (opentelemetry-proto 1.x), brought to spans, which the caller has
 * initialised: what is wrong with one rejects that one. Values that are not text become text.
 */
struct otlp_rejected {
	u64 n;
	struct diag why; /* of the first */
};
int otlp_traces_decode(const u8 *data, size_t n, size_t max_bytes, struct spans *into,
		       struct otlp_rejected *ret_rejected, struct diag *reterr_diag);
int otlp_traces_decode_json(const char *data, size_t n, size_t max_bytes, struct spans *into,
			    struct otlp_rejected *ret_rejected, struct diag *reterr_diag);

/* An ExportProfilesServiceResponse, or Trace's, which is the same; message may be NULL. */
int otlp_profiles_response(u64 rejected, const char *message, struct str *out);
/* Reads one: how many profiles were not taken, and the message, which may be there without any. */
int otlp_profiles_read_response(const u8 *data, size_t n, u64 *ret_rejected,
				struct diag *ret_message);
