/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by querier.c and querier_graph.c, which has the calls that return stacks. */
#pragma once

#include "format/pyroscope.pb-c.h"
#include "server/api/internal.h"

#define QUERIER_DEFAULT_NODES 8192
#define QUERIER_ANSWER_BYTES (1ULL << 30)

/* Decodes the request's message into the arena; `ret` points to a pointer to the message. */
int querier_request(struct api_call *c, const ProtobufCMessageDescriptor *d, struct arena *a,
		    void *ret);
int querier_answer(struct api_call *c, const ProtobufCMessage *m);
int querier_query(struct api_call *c, const char *type, const char *selector, s64 start, s64 end,
		  struct query *q);

api_fn querier_stacktraces, querier_profile, querier_diff;
