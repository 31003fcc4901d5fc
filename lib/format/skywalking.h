/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What SkyWalking's agents send: segments, which are the spans of one trace in one thread, and
 * snapshots of the stack of a thread while it works on a segment.
 *
 * SkyWalking's ids are texts of any length. Here a trace id of 32 hex digits is what it says, and
 * any other becomes the hash of its text; the hash of a segment's id and a position in the segment
 * is a span's id. A snapshot names its segment only, not the trace: until the segment arrives,
 * which is when the request has ended, its samples are of a trace of the segment's own.
 */
#pragma once

#include "base/diag.h"
#include "base/types.h"
#include "base/vec.h"
#include "profile/profile.h"
#include "profile/span.h"

/* Attributes of spans. */
#define SKYWALKING_TRACE "skywalking.trace_id" /* the text, if it is not the trace id in hex */
#define SKYWALKING_SEGMENT "skywalking.segment"
#define SKYWALKING_SPAN "skywalking.span" /* its position in the segment */

#define SKYWALKING_MAX_FRAMES 2048

void skywalking_trace_id(const char *text, u8 ret[16]);
/* The trace that snapshots of the segment are of until it arrives. */
void skywalking_own_trace_id(const char *segment, u8 ret[16]);
void skywalking_span_id(const char *segment, s32 span, u8 ret[8]);

/* What the spans of a segment do not say by themselves. */
struct skywalking_segment {
	u8 trace_id[16], own_trace_id[16];
	u8 span_id[8];	       /* of its first span, which snapshots are of */
	u32 service, instance; /* string ids in the spans' profile */
};
struct skywalking_segments {
	vec(struct skywalking_segment) list;
	u64 refused;	 /* spans that are not valid, */
	struct diag why; /* and what is wrong with the first */
};

/*
 * Adds the spans of a SegmentObject, or of a SegmentCollection, to spans that the caller has
 * initialised. -EBADMSG and a diag for bytes that are damaged; -E2BIG.
 */
int skywalking_read_segment(const u8 *data, size_t n, size_t max_bytes, struct spans *into,
			    struct skywalking_segments *ret, struct diag *reterr_diag);
int skywalking_read_segments(const u8 *data, size_t n, size_t max_bytes, struct spans *into,
			     struct skywalking_segments *ret, struct diag *reterr_diag);

struct skywalking_snapshot {
	char task[128];
	u8 own_trace_id[16], span_id[8]; /* of its segment */
	u64 time_ns;
	u32 sequence; /* of the snapshots of the segment, also of those that the agent lost */
	u32 stack;    /* in the profile; of no frames: the thread had ended */
};

/*
 * Adds the stack of a ThreadSnapshot to the profile. -EBADMSG and a diag for one that is damaged or
 * has no segment, a time or sequence out of range, or more than SKYWALKING_MAX_FRAMES frames.
 */
int skywalking_read_snapshot(const u8 *data, size_t n, size_t max_bytes, struct profile *into,
			     struct skywalking_snapshot *ret, struct diag *reterr_diag);

/*
 * Adds the frame that a text of a snapshot names: "org.shop.Cart.add:12", or as the agent for
 * Python writes it, "/srv/cart.py.add: 12".
 */
int skywalking_add_frame(struct profile *p, const char *text, u32 *ret_frame);
