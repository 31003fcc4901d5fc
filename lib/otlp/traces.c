/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads OTLP traces. The message is unpacked into an arena with a limit. Spans (profile/span.h)
 * have bounds of their own and count against the same limit.
 *
 * The flags of a span say whether it is an entry of its service, if the sender is new enough to set
 * them. Otherwise a span is an entry if it has no parent or serves a request.
 */
#include <errno.h>
#include <string.h>

#include "otlp/otlp.h"
#include "otlp/otlp_private.h"
#include "otlp/otlp_traces_service.pb-c.h"

#define FLAG_KNOWS_REMOTE 0x100
#define FLAG_IS_REMOTE 0x200

struct traces {
	struct spans *out;
	struct otlp_rejected *rejected;
	struct arena *arena;
	struct str scratch;
	u32 resource, service;
};

/* The text of a value, for a label. Borrowed, or in the scratch. */
static const char *text_of(struct traces *t, const Otlp__AnyValue *v)
{
	if (v && v->value_case == OTLP__ANY_VALUE__VALUE_STRING_VALUE)
		return v->string_value;
	str_clear(&t->scratch);
	if (v)
		otlp_any_text(v, &t->scratch);
	return str_get(&t->scratch);
}

/* ---- resources ---- */

static int take_resource(struct traces *t, const Otlp__Resource *in)
{
	struct profile *p = t->out->profile;
	struct profile_label labels[PROFILE_MAX_LABELS];
	const char *service, *executable;
	size_t n = 0;
	int r = 0;

	for (size_t i = 0; in && i < in->n_attributes && n < ARRAY_SIZE(labels) - 1; i++) {
		const Otlp__KeyValue *kv = in->attributes[i];

		if (!*kv->key)
			continue;
		r = spans_add_text(t->out, kv->key, &labels[n].name);
		if (r == 0)
			r = spans_add_text(t->out, text_of(t, kv->value), &labels[n].value);
		if (r < 0)
			return r;
		n++;
	}
	r = profile_add_resource(p, labels, n, &t->resource);
	if (r < 0)
		return r;
	service = profile_label(p, t->resource, "service.name");
	executable = profile_label(p, t->resource, OTLP_EXECUTABLE);
	if (!service)
		service = executable ? executable : "unknown_service";
	return spans_add_text(t->out, service, &t->service);
}

/* ---- spans ---- */

static bool is_root(const Otlp__Span *in, const struct span *e)
{
	if (!span_has_parent(e))
		return true;
	if (in->flags & FLAG_KNOWS_REMOTE)
		return in->flags & FLAG_IS_REMOTE;
	return e->kind == SPAN_KIND_SERVER || e->kind == SPAN_KIND_CONSUMER;
}

static bool take_id(const ProtobufCBinaryData *in, u8 *out, size_t n)
{
	if (in->len != n)
		return false;
	memcpy(out, in->data, n);
	return true;
}

static int check(const Otlp__Span *in, struct span *e, struct diag *reterr_diag)
{
	if (!take_id(&in->trace_id, e->trace_id, sizeof(e->trace_id)))
		return diag_set(reterr_diag, -EBADMSG, "a trace id has %zu bytes and not 16",
				in->trace_id.len);
	if (!take_id(&in->span_id, e->span_id, sizeof(e->span_id)))
		return diag_set(reterr_diag, -EBADMSG, "a span id has %zu bytes and not 8",
				in->span_id.len);
	if (in->parent_span_id.len &&
	    !take_id(&in->parent_span_id, e->parent_id, sizeof(e->parent_id)))
		return diag_set(reterr_diag, -EBADMSG, "a parent's span id has %zu bytes and not 8",
				in->parent_span_id.len);
	e->start_ns = in->start_time_unix_nano;
	/* The clock was set back while the span ran. */
	if (in->end_time_unix_nano > in->start_time_unix_nano)
		e->duration_ns = in->end_time_unix_nano - in->start_time_unix_nano;
	return span_check(e, reterr_diag);
}

static int take_attributes(struct traces *t, const Otlp__Span *in, struct span *e)
{
	int r = 0;

	for (size_t i = 0; i < in->n_attributes && r == 0; i++) {
		const Otlp__KeyValue *kv = in->attributes[i];
		const Otlp__AnyValue *v = kv->value;

		if (!strcmp(kv->key, OTLP_THREAD_ID) && v &&
		    v->value_case == OTLP__ANY_VALUE__VALUE_INT_VALUE && v->int_value > 0 &&
		    v->int_value <= UINT32_MAX)
			e->tid = (u32)v->int_value;
		else
			r = spans_add_attribute(t->out, e, kv->key, text_of(t, v));
	}
	return r;
}

static void put_value(const Otlp__AnyValue *v, struct str *out)
{
	if (v && v->value_case == OTLP__ANY_VALUE__VALUE_STRING_VALUE)
		str_puts(out, v->string_value);
	else if (v)
		otlp_any_text(v, out);
}

/* "exception ValueError: bad coupon", or "retry attempt=2, after=30". */
static void event_text(const Otlp__Event *in, struct str *out)
{
	static const char *const first[] = {"exception.type", "exception.message"};
	const char *separator = " ";

	str_puts(out, in->name);
	for (size_t i = 0; i < ARRAY_SIZE(first); i++)
		for (size_t k = 0; k < in->n_attributes; k++)
			if (!strcmp(in->attributes[k]->key, first[i])) {
				str_puts(out, separator);
				put_value(in->attributes[k]->value, out);
				separator = ": ";
			}
	separator = strcmp(separator, " ") != 0 ? ", " : separator;
	for (size_t k = 0; k < in->n_attributes && out->n < SPAN_MAX_TEXT; k++) {
		const Otlp__KeyValue *kv = in->attributes[k];

		/* Of an exception the rest is its stack trace. */
		if (str_starts(kv->key, "exception."))
			continue;
		str_printf(out, "%s%s=", separator, kv->key);
		put_value(kv->value, out);
		separator = ", ";
	}
}

/* Of more events than there is room for, the last tells how many. */
static int take_events(struct traces *t, const Otlp__Span *in, struct span *e)
{
	size_t n = in->n_events, most = n > SPAN_MAX_EVENTS ? SPAN_MAX_EVENTS - 1 : n;
	int r = 0;

	for (size_t i = 0; i < n && i <= most && r == 0; i++) {
		const Otlp__Event *event = in->events[i];
		u64 at_ns = event->time_unix_nano;

		str_clear(&t->scratch);
		if (i == most)
			str_printf(&t->scratch, "%zu further events", n - most);
		else
			event_text(event, &t->scratch);
		r = t->scratch.failed
			    ? -ENOMEM
			    : spans_add_event(t->out, e,
					      at_ns > e->start_ns ? at_ns - e->start_ns : 0,
					      str_get(&t->scratch));
	}
	return r;
}

static int take_span(struct traces *t, const Otlp__Span *in)
{
	struct span e = {.resource = t->resource, .service = t->service};
	struct diag why = {};
	int r = check(in, &e, &why);

	if (r < 0) {
		if (!t->rejected->n++)
			t->rejected->why = why;
		return 0;
	}
	e.kind = in->kind > 0 && in->kind < SPAN_KIND_N ? (u8)in->kind : SPAN_KIND_NONE;
	if (in->status && in->status->code > 0 && in->status->code < SPAN_STATUS_N)
		e.status = (u8)in->status->code;
	r = spans_add_text(t->out, in->name, &e.name);
	if (r == 0 && in->status)
		r = spans_add_text(t->out, in->status->message, &e.message);
	if (r == 0)
		r = take_attributes(t, in, &e);
	if (r == 0)
		r = take_events(t, in, &e);
	if (r == 0 && is_root(in, &e)) {
		e.flags |= SPAN_ROOT;
		r = spans_set_endpoint(t->out, &e);
	}
	return r < 0 ? r : vec_push(&t->out->spans, e);
}

static u64 bytes_of(const struct spans *s)
{
	return s->profile->strings.n_bytes + s->spans.n * sizeof(struct span) +
	       s->attributes.n * sizeof(struct profile_label);
}

static int take_all(struct traces *t, const Otlp__ExportTraceServiceRequest *in)
{
	int r = 0;

	for (size_t i = 0; i < in->n_resource_spans && r == 0; i++) {
		const Otlp__ResourceSpans *rs = in->resource_spans[i];

		r = take_resource(t, rs->resource);
		for (size_t j = 0; j < rs->n_scope_spans && r == 0; j++)
			for (size_t k = 0; k < rs->scope_spans[j]->n_spans && r == 0; k++) {
				r = take_span(t, rs->scope_spans[j]->spans[k]);
				if (r == 0 && t->arena->used + bytes_of(t->out) > t->arena->limit)
					r = -E2BIG;
			}
	}
	return r;
}

static int decode(const Otlp__ExportTraceServiceRequest *in, struct arena *arena,
		  struct spans *into, struct otlp_rejected *ret_rejected, struct diag *reterr_diag)
{
	struct otlp_rejected rejected = {};
	struct traces t = {.out = into, .rejected = &rejected, .arena = arena};
	int r = take_all(&t, in);

	str_deinit(&t.scratch);
	if (r < 0)
		return diag_set(reterr_diag, r, "cannot read the request: %s", strerror(-r));
	*ret_rejected = rejected;
	return 0;
}

int otlp_traces_decode(const u8 *data, size_t n, size_t max_bytes, struct spans *into,
		       struct otlp_rejected *ret_rejected, struct diag *reterr_diag)
{
	_cleanup_arena_ struct arena arena = ARENA_INIT(max_bytes);
	ProtobufCMessage *in = NULL;
	int r = pb_unpack(&otlp__export_trace_service_request__descriptor, "an OTLP traces request",
			  data, n, &arena, &in, reterr_diag);

	if (r < 0)
		return r;
	return decode((const Otlp__ExportTraceServiceRequest *)in, &arena, into, ret_rejected,
		      reterr_diag);
}

int otlp_traces_decode_json(const char *data, size_t n, size_t max_bytes, struct spans *into,
			    struct otlp_rejected *ret_rejected, struct diag *reterr_diag)
{
	_cleanup_arena_ struct arena arena = ARENA_INIT(max_bytes);
	ProtobufCMessage *in = NULL;
	int r = pbjson_read(&otlp_json, &otlp__export_trace_service_request__descriptor, data, n,
			    &arena, &in, reterr_diag);

	if (r < 0)
		return r;
	return decode((const Otlp__ExportTraceServiceRequest *)in, &arena, into, ret_rejected,
		      reterr_diag);
}
