/* SPDX-License-Identifier: Apache-2.0 */
#include "format/zipkin.h"

#include <errno.h>
#include <jansson.h>
#include <string.h>

#include "base/json.h"
#include "base/str.h"

#define MAX_US (1ULL << 52)

struct zipkin {
	struct spans *out;
	struct diag *diag;
	size_t index; /* of the span at hand */
};

static int wrong(struct zipkin *z, const char *what)
{
	return diag_set(z->diag, -EBADMSG, "Zipkin: span %zu %s", z->index, what);
}

/* ---- members ---- */

/* "" when it is not there or no text. */
static const char *text_of(json_t *in, const char *name)
{
	const char *s = json_string_value(json_object_get(in, name));

	return s ? s : "";
}

/* Hex digits; fewer than there may be stand at the end. */
static bool read_id(const char *text, u8 *ret, size_t n)
{
	size_t length = strlen(text), bytes = length / 2;

	if (!length || length % 2 || bytes > n)
		return false;
	memset(ret, 0, n);
	return span_parse_id(text, ret + n - bytes, bytes);
}

static int read_us(struct zipkin *z, json_t *in, const char *name, u64 *ret_ns)
{
	json_t *v = json_object_get(in, name);

	*ret_ns = 0;
	if (!v || json_is_null(v))
		return 0;
	if (!json_is_integer(v) || json_integer_value(v) < 0 || (u64)json_integer_value(v) > MAX_US)
		return wrong(z, "has a time that is no number of microseconds");
	*ret_ns = (u64)json_integer_value(v) * 1000;
	return 0;
}

static u8 read_kind(json_t *in)
{
	static const struct {
		const char *name;
		u8 kind;
	} kinds[] = {{"CLIENT", SPAN_KIND_CLIENT},
		     {"SERVER", SPAN_KIND_SERVER},
		     {"PRODUCER", SPAN_KIND_PRODUCER},
		     {"CONSUMER", SPAN_KIND_CONSUMER}};
	const char *text = text_of(in, "kind");

	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
		if (!strcmp(text, kinds[i].name))
			return kinds[i].kind;
	return SPAN_KIND_INTERNAL;
}

static int read_tags(struct zipkin *z, json_t *in, struct span *e)
{
	json_t *tags = json_object_get(in, "tags"), *value;
	const char *name;
	int r = 0;

	json_object_foreach(tags, name, value)
	{
		if (r < 0 || !json_is_string(value))
			continue;
		/* An empty one is an error, too. */
		if (!strcmp(name, "error")) {
			e->status = SPAN_ERROR;
			r = spans_add_text(z->out, json_string_value(value), &e->message);
		} else {
			r = spans_add_attribute(z->out, e, name, json_string_value(value));
		}
	}
	return r;
}

static int read_service(struct zipkin *z, json_t *in, struct span *e)
{
	const char *name = text_of(json_object_get(in, "localEndpoint"), "serviceName");
	struct profile_label l;
	int r = spans_add_text(z->out, *name ? name : "unknown_service", &e->service);

	l.value = e->service;
	if (r == 0)
		r = spans_add_text(z->out, "service.name", &l.name);
	return r < 0 ? r : profile_add_resource(z->out->profile, &l, 1, &e->resource);
}

/* ---- spans ---- */

static int check(struct zipkin *z, json_t *in, struct span *e)
{
	const char *parent = text_of(in, "parentId");
	struct diag why = {};
	int r;

	if (!json_is_object(in))
		return wrong(z, "is not an object");
	if (!read_id(text_of(in, "traceId"), e->trace_id, sizeof(e->trace_id)))
		return wrong(z, "has no traceId of 16 or 32 hex digits");
	if (!read_id(text_of(in, "id"), e->span_id, sizeof(e->span_id)))
		return wrong(z, "has no id of 16 hex digits");
	if (*parent && !read_id(parent, e->parent_id, sizeof(e->parent_id)))
		return wrong(z, "has a parentId that is not 16 hex digits");
	r = read_us(z, in, "timestamp", &e->start_ns);
	if (r == 0)
		r = read_us(z, in, "duration", &e->duration_ns);
	if (r == 0 && span_check(e, &why) < 0)
		r = diag_set(z->diag, -EBADMSG, "Zipkin: span %zu: %s", z->index, why.text);
	return r;
}

static int take_span(struct zipkin *z, json_t *in)
{
	struct span e = {};
	int r = check(z, in, &e);

	if (r < 0)
		return r;
	e.kind = read_kind(in);
	r = read_service(z, in, &e);
	if (r == 0)
		r = spans_add_text(z->out, text_of(in, "name"), &e.name);
	if (r == 0)
		r = read_tags(z, in, &e);
	if (r == 0 &&
	    (!span_has_parent(&e) || e.kind == SPAN_KIND_SERVER || e.kind == SPAN_KIND_CONSUMER)) {
		e.flags = SPAN_ROOT;
		r = spans_set_endpoint(z->out, &e);
	}
	return r < 0 ? r : vec_push(&z->out->spans, e);
}

int zipkin_read(const char *data, size_t n, size_t max_bytes, struct spans *into,
		struct diag *reterr_diag)
{
	struct zipkin z = {.out = into, .diag = reterr_diag};
	json_t *root = NULL;
	int r;

	if (json_tree_bytes(data, n) > max_bytes)
		return diag_set(reterr_diag, -E2BIG,
				"the request needs more than %zu bytes of memory", max_bytes);
	r = json_read(data, n, JSON_REJECT_DUPLICATES, &root, reterr_diag);
	if (r < 0)
		return r;
	if (!json_is_array(root))
		r = diag_set(reterr_diag, -EBADMSG, "Zipkin: not a list of spans");
	for (; r == 0 && z.index < json_array_size(root); z.index++)
		r = take_span(&z, json_array_get(root, z.index));
	json_decref(root);
	return r < 0 ? diag_set(reterr_diag, r, "cannot read the request: %s", strerror(-r)) : 0;
}
