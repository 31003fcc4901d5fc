/* SPDX-License-Identifier: Apache-2.0 */
/* Reads what SkyWalking's agents send (skywalking.h). Messages are unpacked into an arena. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "base/arena.h"
#include "base/pb.h"
#include "base/text.h"
#include "format/skywalking.h"
#include "format/skywalking.pb-c.h"

#define MAX_TIME_MS (1LL << 42) /* that of the store */

enum { TYPE_ENTRY, TYPE_EXIT, TYPE_LOCAL };
enum { LAYER_MQ = 4 };
enum { REF_CROSS_PROCESS, REF_CROSS_THREAD };

/* ---- ids ---- */

/* What a hash is for: ids of one kind are not those of another, though their texts are equal. */
enum { SEED_TRACE, SEED_OWN_TRACE, SEED_SPAN };

static void hash_text(const char *text, u64 seed, u8 ret[16])
{
	XXH128_canonical_t c;

	XXH128_canonicalFromHash(&c, XXH3_128bits_withSeed(text, strlen(text), seed));
	memcpy(ret, c.digest, 16);
	ret[15] |= !ret[15]; /* an id is not all zeros */
}

void skywalking_trace_id(const char *text, u8 ret[16])
{
	static const u8 none[16];

	if (!span_parse_id(text, ret, 16) || !memcmp(ret, none, 16))
		hash_text(text, SEED_TRACE, ret);
}

void skywalking_own_trace_id(const char *segment, u8 ret[16])
{
	hash_text(segment, SEED_OWN_TRACE, ret);
}

void skywalking_span_id(const char *segment, s32 span, u8 ret[8])
{
	u8 all[16];

	hash_text(segment, (u64)SEED_SPAN << 32 | (u32)span, all);
	memcpy(ret, all + 8, 8);
}

/* ---- segments ---- */

struct reading {
	struct spans *out;
	struct skywalking_segments *segments;
	const Skywalking__SegmentObject *in;
	u8 trace_id[16];
	u32 resource, service, instance;
	bool hex; /* the trace id is its text */
};

static bool add_label(struct spans *s, const char *name, const char *value,
		      struct profile_label *ret, int *r)
{
	if (*r == 0 && *value) {
		*r = spans_add_text(s, name, &ret->name);
		if (*r == 0)
			*r = spans_add_text(s, value, &ret->value);
		return *r == 0;
	}
	return false;
}

static int take_resource(struct reading *t)
{
	const char *service = *t->in->service ? t->in->service : "unknown_service";
	struct profile_label l[3];
	size_t n = 0;
	int r = 0;

	n += add_label(t->out, "service.name", service, &l[n], &r);
	n += add_label(t->out, "service.instance.id", t->in->service_instance, &l[n], &r);
	n += add_label(t->out, "telemetry.sdk.name", "skywalking", &l[n], &r);
	if (r == 0)
		r = spans_add_text(t->out, service, &t->service);
	if (r == 0)
		r = spans_add_text(t->out, t->in->service_instance, &t->instance);
	return r < 0 ? r : profile_add_resource(t->out->profile, l, n, &t->resource);
}

static u8 kind_of(const Skywalking__SpanObject *in)
{
	bool mq = in->span_layer == LAYER_MQ;

	if (in->span_type == TYPE_ENTRY)
		return mq ? SPAN_KIND_CONSUMER : SPAN_KIND_SERVER;
	if (in->span_type == TYPE_EXIT)
		return mq ? SPAN_KIND_PRODUCER : SPAN_KIND_CLIENT;
	return SPAN_KIND_INTERNAL;
}

static int check_span(const struct reading *t, const Skywalking__SpanObject *in, struct span *e,
		      struct diag *ret_why)
{
	const Skywalking__SegmentReference *ref = in->n_refs ? in->refs[0] : NULL;

	if (in->start_time < 0 || in->start_time >= MAX_TIME_MS || in->end_time >= MAX_TIME_MS)
		return diag_set(ret_why, -EBADMSG, "a span is of a time before 1970 or after 2109");
	memcpy(e->trace_id, t->trace_id, sizeof(e->trace_id));
	skywalking_span_id(t->in->trace_segment_id, in->span_id, e->span_id);
	if (in->parent_span_id >= 0)
		skywalking_span_id(t->in->trace_segment_id, in->parent_span_id, e->parent_id);
	else if (ref)
		skywalking_span_id(ref->parent_trace_segment_id, ref->parent_span_id, e->parent_id);
	e->start_ns = (u64)in->start_time * 1000000;
	if (in->end_time > in->start_time)
		e->duration_ns = (u64)(in->end_time - in->start_time) * 1000000;
	if (!span_has_parent(e) || (ref && ref->ref_type == REF_CROSS_PROCESS))
		e->flags |= SPAN_ROOT;
	return span_check(e, ret_why);
}

/* The message of the error that the agent logged to the span. */
static const char *message_of(const Skywalking__SpanObject *in)
{
	for (size_t i = 0; i < in->n_logs; i++)
		for (size_t k = 0; k < in->logs[i]->n_data; k++)
			if (!strcmp(in->logs[i]->data[k]->key, "message"))
				return in->logs[i]->data[k]->value;
	return "";
}

static int take_attributes(struct reading *t, const Skywalking__SpanObject *in, struct span *e)
{
	char span[16], component[16];
	int r;

	snprintf(span, sizeof(span), "%d", in->span_id);
	snprintf(component, sizeof(component), "%d", in->component_id);
	r = spans_add_attribute(t->out, e, SKYWALKING_SEGMENT, t->in->trace_segment_id);
	if (r == 0)
		r = spans_add_attribute(t->out, e, SKYWALKING_SPAN, span);
	if (r == 0 && !t->hex)
		r = spans_add_attribute(t->out, e, SKYWALKING_TRACE, t->in->trace_id);
	if (r == 0 && in->component_id)
		r = spans_add_attribute(t->out, e, "skywalking.component", component);
	if (r == 0 && *in->peer)
		r = spans_add_attribute(t->out, e, "server.address", in->peer);
	for (size_t i = 0; i < in->n_tags && r == 0; i++)
		r = spans_add_attribute(t->out, e, in->tags[i]->key, in->tags[i]->value);
	return r;
}

static int take_span(struct reading *t, const Skywalking__SpanObject *in)
{
	struct span e = {.resource = t->resource, .service = t->service, .kind = kind_of(in)};
	struct diag why = {};
	int r = check_span(t, in, &e, &why);

	if (r < 0) {
		if (!t->segments->refused++)
			t->segments->why = why;
		return 0;
	}
	e.status = in->is_error ? SPAN_ERROR : SPAN_UNSET;
	r = spans_add_text(t->out, in->operation_name, &e.name);
	if (r == 0 && in->is_error)
		r = spans_add_text(t->out, message_of(in), &e.message);
	if (r == 0)
		r = take_attributes(t, in, &e);
	/* Tasks are for SkyWalking's endpoints, which are names of spans. */
	if (r == 0 && e.flags & SPAN_ROOT)
		e.endpoint = e.name;
	return r < 0 ? r : vec_push(&t->out->spans, e);
}

static int take_segment(const Skywalking__SegmentObject *in, size_t max_bytes, struct spans *into,
			struct skywalking_segments *ret)
{
	struct reading t = {.out = into, .segments = ret, .in = in};
	struct skywalking_segment s = {};
	int r = take_resource(&t);

	skywalking_trace_id(in->trace_id, t.trace_id);
	t.hex = span_parse_id(in->trace_id, s.own_trace_id, 16);
	for (size_t i = 0; i < in->n_spans && r == 0; i++) {
		r = take_span(&t, in->spans[i]);
		if (r == 0 && into->profile->strings.n_bytes > max_bytes)
			r = -E2BIG;
	}
	if (r < 0)
		return r;
	memcpy(s.trace_id, t.trace_id, sizeof(s.trace_id));
	skywalking_own_trace_id(in->trace_segment_id, s.own_trace_id);
	skywalking_span_id(in->trace_segment_id, 0, s.span_id);
	s.service = t.service;
	s.instance = t.instance;
	return vec_push(&ret->list, s);
}

static int check_segment(const Skywalking__SegmentObject *in, struct diag *reterr_diag)
{
	return *in->trace_segment_id && *in->trace_id
		       ? 0
		       : diag_set(reterr_diag, -EBADMSG, "a segment has no id, or no trace id");
}

int skywalking_read_segment(const u8 *data, size_t n, size_t max_bytes, struct spans *into,
			    struct skywalking_segments *ret, struct diag *reterr_diag)
{
	_cleanup_arena_ struct arena arena = ARENA_INIT(max_bytes);
	const Skywalking__SegmentObject *in;
	ProtobufCMessage *m = NULL;
	int r = pb_unpack(&skywalking__segment_object__descriptor, "a segment of SkyWalking", data,
			  n, &arena, &m, reterr_diag);

	if (r < 0)
		return r;
	in = (const Skywalking__SegmentObject *)m;
	r = check_segment(in, reterr_diag);
	return r < 0 ? r : take_segment(in, max_bytes, into, ret);
}

int skywalking_read_segments(const u8 *data, size_t n, size_t max_bytes, struct spans *into,
			     struct skywalking_segments *ret, struct diag *reterr_diag)
{
	_cleanup_arena_ struct arena arena = ARENA_INIT(max_bytes);
	const Skywalking__SegmentCollection *in;
	ProtobufCMessage *m = NULL;
	int r = pb_unpack(&skywalking__segment_collection__descriptor, "segments of SkyWalking",
			  data, n, &arena, &m, reterr_diag);

	in = (const Skywalking__SegmentCollection *)m;
	for (size_t i = 0; r == 0 && i < in->n_segments; i++) {
		r = check_segment(in->segments[i], reterr_diag);
		if (r == 0)
			r = take_segment(in->segments[i], max_bytes, into, ret);
	}
	return r;
}

/* ---- snapshots ---- */

/* Splits "NAME:LINE", also with a space before the line. Returns the bytes of the name. */
static size_t split_line(const char *text, u32 *ret_line)
{
	const char *colon = strrchr(text, ':'), *digits;
	u64 line = 0;

	*ret_line = 0;
	if (!colon || colon == text)
		return strlen(text);
	digits = colon + 1 + (colon[1] == ' ');
	/* Java's agent writes -1 for a line that it does not know, and -2 for native methods. */
	if (strcmp(digits, "-1") != 0 && strcmp(digits, "-2") != 0 && strcmp(digits, "None") != 0 &&
	    (str_to_u64(digits, 10, &line) < 0 || line > INT32_MAX))
		return strlen(text);
	*ret_line = (u32)line;
	return (size_t)(colon - text);
}

/* The bytes of the file in Python's "/srv/cart.py.add" or "<string>.add"; 0: it has none. */
static size_t python_file(const char *name, size_t n)
{
	const char *py = memmem(name, n, ".py.", 4), *next;
	const char *end = *name == '<' ? memmem(name, n, ">.", 2) : NULL;

	while (py && (next = memmem(py + 1, n - (size_t)(py + 1 - name), ".py.", 4)))
		py = next;
	if (py)
		return (size_t)(py - name) + 3;
	return end ? (size_t)(end - name) + 1 : 0;
}

int skywalking_add_frame(struct profile *p, const char *text, u32 *ret_frame)
{
	struct profile_frame frame = {.mapping = PROFILE_NONE};
	struct profile_function f = {};
	size_t n = split_line(text, &frame.line), file = python_file(text, n);
	const char *name = file ? text + file + 1 : text;
	int r = profile_add_string(p, name, n - (size_t)(name - text), &f.name);

	if (r == 0 && file)
		r = profile_add_string(p, text, file, &f.file);
	f.system_name = f.name;
	if (r == 0)
		r = profile_add_function(p, &f, &frame.function);
	frame.kind = file ? FRAME_PYTHON : FRAME_JAVA;
	return r < 0 ? r : profile_add_frame(p, &frame, ret_frame);
}

static int add_stack(struct profile *p, const Skywalking__ThreadStack *in, u32 *ret,
		     struct diag *reterr_diag)
{
	u32 frames[SKYWALKING_MAX_FRAMES];
	size_t n = in ? in->n_code_signatures : 0;
	int r = 0;

	if (n > SKYWALKING_MAX_FRAMES)
		return diag_set(reterr_diag, -EBADMSG, "a snapshot has %zu frames", n);
	for (size_t i = 0; i < n && r == 0; i++)
		r = skywalking_add_frame(p, in->code_signatures[n - 1 - i], &frames[i]);
	return r < 0 ? r : profile_add_stack(p, frames, n, ret);
}

int skywalking_read_snapshot(const u8 *data, size_t n, size_t max_bytes, struct profile *into,
			     struct skywalking_snapshot *ret, struct diag *reterr_diag)
{
	_cleanup_arena_ struct arena arena = ARENA_INIT(max_bytes);
	const Skywalking__ThreadSnapshot *in;
	struct skywalking_snapshot s = {};
	ProtobufCMessage *m = NULL;
	int r = pb_unpack(&skywalking__thread_snapshot__descriptor, "a snapshot of SkyWalking",
			  data, n, &arena, &m, reterr_diag);

	if (r < 0)
		return r;
	in = (const Skywalking__ThreadSnapshot *)m;
	if (!*in->trace_segment_id)
		return diag_set(reterr_diag, -EBADMSG, "a snapshot names no segment");
	if (in->time <= 0 || in->time >= MAX_TIME_MS || in->sequence < 0)
		return diag_set(reterr_diag, -EBADMSG,
				"a snapshot has the time %lld ms and the number %d",
				(long long)in->time, in->sequence);
	snprintf(s.task, sizeof(s.task), "%s", in->task_id);
	skywalking_own_trace_id(in->trace_segment_id, s.own_trace_id);
	skywalking_span_id(in->trace_segment_id, 0, s.span_id);
	s.time_ns = (u64)in->time * 1000000;
	s.sequence = (u32)in->sequence;
	r = add_stack(into, in->stack, &s.stack, reterr_diag);
	if (r == 0)
		*ret = s;
	return r;
}
