/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the route of a request, checks the role of the sender, calls the handler, and writes errors
 * in the format of the protocol. The other files have the tables of routes.
 */
#include "server/api/api.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "server/api/internal.h"

int api_create(const struct api_options *o, struct api **ret)
{
	struct api *a = calloc(1, sizeof(*a));

	if (!a || api_load_document(&a->document) < 0) {
		free(a);
		return -ENOMEM;
	}
	a->o = *o;
	pthread_mutex_init(&a->audit_lock, NULL);
	pthread_mutex_init(&a->settings_lock, NULL);
	pthread_mutex_init(&a->notes_lock, NULL);
	a->started_ms = clock_epoch_ms();
	*ret = a;
	return 0;
}

void api_destroy(struct api *a)
{
	if (!a)
		return;
	pthread_mutex_destroy(&a->audit_lock);
	pthread_mutex_destroy(&a->settings_lock);
	pthread_mutex_destroy(&a->notes_lock);
	json_decref(a->document);
	free(a);
}

bool api_is_json(const char *content_type)
{
	return content_type && (!strncasecmp(content_type, "application/json", 16) ||
				!strncasecmp(content_type, "application/connect+json", 24));
}

bool api_is_protobuf(const char *content_type)
{
	return content_type && (!strncasecmp(content_type, "application/x-protobuf", 22) ||
				!strncasecmp(content_type, "application/protobuf", 20) ||
				!strncasecmp(content_type, "application/proto", 17));
}

int api_body(struct api_call *c, struct str *own, const u8 **ret_data, size_t *ret_n)
{
	return ingest_decode(c->a->o.ingest, c->r->body, c->r->n_body, c->r->content_encoding, own,
			     ret_data, ret_n, &c->d);
}

int api_json_body(struct api_call *c, struct json_t **ret)
{
	_cleanup_str_ struct str own = {};
	const u8 *data;
	size_t n;
	int r = api_body(c, &own, &data, &n);

	*ret = NULL;
	return r < 0 ? r : json_read((const char *)data, n, JSON_REJECT_DUPLICATES, ret, &c->d);
}

void api_path_id(const struct api_call *c, const char *path, char ret[CONTROL_ID_BYTES])
{
	const char *id = c->r->path + strlen(path) + 1;

	snprintf(ret, CONTROL_ID_BYTES, "%.*s", (int)strcspn(id, "/"), id);
}

/* ---- errors ---- */

struct error {
	int error, status, grpc;
	const char *code; /* Connect's */
};

static const struct error errors[] = {
	{-EINVAL, 400, NET_GRPC_INVALID_ARGUMENT, "invalid_argument"},
	{-EBADMSG, 400, NET_GRPC_INVALID_ARGUMENT, "invalid_argument"},
	{-ERANGE, 400, NET_GRPC_INVALID_ARGUMENT, "invalid_argument"},
	{-EACCES, 403, NET_GRPC_PERMISSION_DENIED, "permission_denied"},
	{-ENOENT, 404, NET_GRPC_NOT_FOUND, "not_found"},
	{-EEXIST, 409, NET_GRPC_INVALID_ARGUMENT, "already_exists"},
	{-EFBIG, 413, NET_GRPC_RESOURCE_EXHAUSTED, "resource_exhausted"},
	{-E2BIG, 413, NET_GRPC_RESOURCE_EXHAUSTED, "resource_exhausted"},
	{-ENOTSUP, 415, NET_GRPC_UNIMPLEMENTED, "unimplemented"},
	{-EMEDIUMTYPE, 415, NET_GRPC_UNIMPLEMENTED, "unimplemented"},
	{-ENOSYS, 501, NET_GRPC_UNIMPLEMENTED, "unimplemented"},
	{-EAGAIN, 503, NET_GRPC_UNAVAILABLE, "unavailable"},
	{-EDQUOT, 413, NET_GRPC_RESOURCE_EXHAUSTED, "resource_exhausted"},
	{-ENOMEM, 503, NET_GRPC_UNAVAILABLE, "unavailable"},
	{-ENOSPC, 503, NET_GRPC_UNAVAILABLE, "unavailable"},
	{-ETIMEDOUT, 504, NET_GRPC_DEADLINE_EXCEEDED, "deadline_exceeded"},
	{-ECANCELED, 499, NET_GRPC_CANCELLED, "canceled"},
	{0, 500, NET_GRPC_INTERNAL, "internal"},
};

static const struct error *error_of(int r)
{
	const struct error *e = errors;

	while (e->error && e->error != r)
		e++;
	return e;
}

int api_grpc_status(int r)
{
	return error_of(r)->grpc;
}

int api_reason(int r, bool writes, struct diag *d)
{
	const char *less = writes ? "send less in one request" : "ask for less (a shorter range)";
	struct diag why = {};
	int refused = quota_why(&why);

	if (!refused)
		return r;
	d->text[0] = '\0';
	if (refused == -EDQUOT)
		return diag_set(d, refused, "%s; %s or raise --request-memory", why.text, less);
	if (refused == -ETIMEDOUT)
		return diag_set(d, refused, "%s; %s or raise --query-timeout and --query-cpu",
				why.text, less);
	return diag_set(d, refused, "%s", why.text);
}

/* A google.rpc.Status, which OTLP requires: field 1 is the code, field 2 the message. */
static void put_status(struct str *out, int code, const char *text)
{
	size_t n = strnlen(text, 127);

	str_putc(out, 0x08);
	str_putc(out, (char)code);
	str_putc(out, 0x12);
	str_putc(out, (char)n);
	str_append(out, text, n);
}

static void put_error(struct api_call *c, enum api_style style, int r)
{
	const struct error *e = error_of(r);
	const char *text = c->d.text[0] ? c->d.text : strerror(-r);
	struct str *out = c->out;
	QUOTA_PAUSED; /* nothing may be left of it */

	str_deinit(out);
	c->ret->status = e->status;
	c->ret->content_type = "application/json";
	c->ret->n_headers = 0;
	if (e->status == 503) {
		c->ret->headers[0].name = "Retry-After";
		c->ret->headers[0].value = "1";
		c->ret->n_headers = 1;
	}
	if (style == API_STYLE_OTLP && !api_is_json(c->r->content_type)) {
		c->ret->content_type = "application/x-protobuf";
		put_status(out, e->grpc, text);
		return;
	}
	if (style == API_STYLE_CONNECT && e->status == 413)
		c->ret->status = 429;
	/* Connect has 415 for types of messages, and 501 for encodings. */
	if (style == API_STYLE_CONNECT && r == -ENOTSUP)
		c->ret->status = 501;
	c->json = (struct json_writer){.out = out};
	json_open_object(&c->json, NULL);
	json_put_text(&c->json, "code", e->code);
	json_put_text(&c->json, "message", text);
	json_close(&c->json);
}

/* ---- routes ---- */

static const struct api_route *const tables[] = {
	api_page_routes,	api_view_routes,	   api_agent_routes,   api_source_routes,
	api_assembly_routes,	api_querier_routes,	   api_input_routes,   api_symbol_routes,
	api_trace_routes,	api_slow_routes,	   api_lane_routes,    api_cost_routes,
	api_pyroscope_routes,	api_settings_routes,	   api_task_routes,    api_policy_routes,
	api_measurement_routes, api_agent_settings_routes, api_control_routes, api_analysis_routes,
	api_growth_routes,	api_endpoint_routes,	   api_note_routes,    api_moment_routes,
	api_overview_routes};

static bool path_is(const char *route, const char *path)
{
	const char *open = strchr(route, '{');
	size_t n = open ? (size_t)(open - route) : 0, any;

	if (!open)
		return !strcmp(route, path);
	if (strncmp(route, path, n) != 0)
		return false;
	any = strcspn(path + n, "/");
	return any && !strcmp(strchr(open, '}') + 1, path + n + any);
}

/*
 * "/package.v1.Service/Method": a procedure of the Connect protocol. The service has a dot and
 * begins with a capital letter, as has the method.
 */
static bool is_procedure(const struct net_request *r)
{
	const char *method = strrchr(r->path, '/');
	size_t n = method > r->path ? (size_t)(method - r->path - 1) : 0;
	const char *dot = n ? memrchr(r->path + 1, '.', n) : NULL;

	return dot && !strcmp(r->method, "POST") && !memchr(r->path + 1, '/', n) && dot[1] >= 'A' &&
	       dot[1] <= 'Z' && method[1] >= 'A' && method[1] <= 'Z';
}

static const struct api_route *find_route(const struct net_request *r, bool *ret_other_method)
{
	*ret_other_method = false;
	for (size_t t = 0; t < ARRAY_SIZE(tables); t++)
		for (const struct api_route *route = tables[t]; route->path; route++) {
			if (!path_is(route->path, r->path))
				continue;
			if (!strcmp(route->method, r->method))
				return route;
			*ret_other_method = true;
		}
	return NULL;
}

static int call(struct api_call *c, const struct api_route *route)
{
	int e;

	if ((c->r->role & route->role) != route->role)
		return diag_set(&c->d, -EACCES, "this token may not do that");
	e = api_check_parameters(c, route);
	return e < 0 ? e : route->fn(c);
}

bool api_writes(void *userdata, const struct net_request *r)
{
	bool other;
	const struct api_route *route = find_route(r, &other);

	if (r->grpc)
		return !route || route->role & NET_ROLE_WRITE;
	return (route && route->role & NET_ROLE_WRITE) ||
	       (api_is_grpc(r->content_type) && str_starts(r->path, "/opentelemetry."));
}

/* Whether both are procedures of one service: "/package.v1.Service/Method". */
static bool is_same_service(const char *route, const char *path)
{
	size_t n = (size_t)(strrchr(route, '/') - route) + 1;

	return memchr(route, '.', n) && !strncmp(route, path, n);
}

bool api_is_connect(const char *path)
{
	for (size_t t = 0; t < ARRAY_SIZE(tables); t++)
		for (const struct api_route *route = tables[t]; route->path; route++)
			if (route->style == API_STYLE_CONNECT && is_same_service(route->path, path))
				return true;
	return false;
}

void api_connect(struct api *a, const struct net_request *r, struct net_response *ret)
{
	struct net_request proto = *r;
	struct api_call c = {.a = a, .r = &proto, .ret = ret, .out = &ret->body};
	const struct api_route *route;
	bool other;
	int e;

	proto.content_type = "application/proto";
	route = find_route(r, &other);
	if (route && route->style == API_STYLE_CONNECT)
		e = call(&c, route);
	else
		e = diag_set(&c.d, -ENOSYS, "this server does not have %.80s: %s", r->path,
			     api_elsewhere(r->path));
	if (e == 0 && ret->body.failed)
		e = -ENOMEM;
	if (e < 0)
		e = api_reason(e, route && route->role == NET_ROLE_WRITE, &c.d);
	ret->status = e < 0 ? api_grpc_status(e) : NET_GRPC_OK;
	if (e < 0)
		snprintf(ret->message, sizeof(ret->message), "%s",
			 c.d.text[0] ? c.d.text : strerror(-e));
}

void api_http(void *userdata, const struct net_request *r, struct net_response *ret)
{
	struct api_call c = {
		.a = userdata, .r = r, .ret = ret, .out = &ret->body, .json = {.out = &ret->body}};
	const struct api_route *route;
	bool other;
	int e;

	route = find_route(r, &other);
	ret->status = 200;
	ret->content_type = "application/json";
	if (!strcmp(r->method, "POST") && api_is_grpc(r->content_type)) {
		api_grpc_by_http(&c);
	} else if (!route && !other && is_procedure(r)) {
		(void)diag_set(&c.d, -ENOSYS, "this server does not have %.80s: %s", r->path,
			       api_elsewhere(r->path));
		put_error(&c, API_STYLE_CONNECT, -ENOSYS);
	} else if (!route && (other || !api_put_lost_page(&c))) {
		(void)diag_set(&c.d, -ENOENT, "%s%s",
			       other ? "this path does not accept this method"
				     : "this server does not have this path: ",
			       other ? "" : api_elsewhere(r->path));
		put_error(&c, API_STYLE_JSON, -ENOENT);
		ret->status = other ? 405 : 404;
	} else if (route) {
		e = call(&c, route);
		if (e == 0 && ret->body.failed)
			e = -ENOMEM;
		if (e < 0)
			put_error(&c, route->style,
				  api_reason(e, route->role == NET_ROLE_WRITE, &c.d));
		/* Data of a time that is not kept, as Pyroscope refuses it. */
		if (e == -ERANGE && route->role == NET_ROLE_WRITE && route->style == API_STYLE_JSON)
			ret->status = 422;
	}
	atomic_fetch_add(&c.a->answers[MIN((u32)ret->status / 100, 5u)], 1);
}
