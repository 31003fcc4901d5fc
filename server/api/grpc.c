/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gRPC: OTLP's services, those of SkyWalking (skywalking.c), the one that culprit's agents ask for
 * tasks, those of Pyroscope, whose messages are those of Connect, the standard services of health
 * and reflection, and for everything else a status that says where to go.
 *
 * And on the HTTP port grpc-web, which pages and proxies speak, and gRPC over HTTP/1.1, as Go's
 * clients of Connect do it without TLS (profilecli): the same services but for SkyWalking's. Both
 * sides send a message in gRPC's frame (a byte, and four of length), the server then the trailers:
 * in a frame with the bit 0x80, or behind the last chunk of the body. All is base64 with
 * "grpc-web-text".
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "server/api/internal.h"

#define PROFILES "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export"
#define TRACES "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
#define HEALTH "/grpc.health.v1.Health/"
#define REFLECTION "/grpc.reflection."
#define REFLECTION_V1 REFLECTION "v1.ServerReflection/ServerReflectionInfo"
#define REFLECTION_V1ALPHA REFLECTION "v1alpha.ServerReflection/ServerReflectionInfo"
#define GRPC "application/grpc" /* with what may follow */
#define WEB GRPC "-web"
#define FRAME_BYTES 5
#define TRAILERS 0x80

static int refuse(struct net_response *ret, int status, const char *text)
{
	ret->status = status;
	snprintf(ret->message, sizeof(ret->message), "%s", text);
	return 0;
}

/* ---- health: grpc.health.v1; field 1 of the request is the name of a service ---- */

static bool is_service(const u8 *name, size_t n)
{
	static const char *const paths[] = {PROFILES, TRACES,	     CONTROL_GRPC_PATH,
					    HEALTH,   REFLECTION_V1, REFLECTION_V1ALPHA};
	char path[256];

	if (n < sizeof(path) - 2 && !memchr(name, '/', n) && !memchr(name, '\0', n)) {
		snprintf(path, sizeof(path), "/%.*s/", (int)n, (const char *)name);
		if (n && api_is_connect(path))
			return true;
	}
	for (size_t i = 0; i < ARRAY_SIZE(paths); i++)
		if ((size_t)(strrchr(paths[i], '/') - paths[i]) == n + 1 &&
		    !memcmp(paths[i] + 1, name, n))
			return true;
	return !n;
}

static int health(struct api *a, const struct net_request *r, struct net_response *ret)
{
	static const char serving[] = {0x08, 1}, not_serving[] = {0x08, 2};
	bool named = r->n_body >= 2 && r->body[0] == 0x0a && r->body[1] == r->n_body - 2;
	struct store_stats s = {};

	if (strcmp(r->path, HEALTH "Check") != 0)
		return refuse(ret, NET_GRPC_UNIMPLEMENTED, "of health this server has Check");
	if (r->content_encoding || (r->n_body && !named))
		return refuse(ret, NET_GRPC_INVALID_ARGUMENT, "not a HealthCheckRequest");
	if (named && !is_service(r->body + 2, r->n_body - 2))
		return refuse(ret, NET_GRPC_NOT_FOUND, "this server has no such service");
	return str_append(&ret->body,
			  store_get_stats(a->o.store, &s, NULL) < 0 ? not_serving : serving,
			  sizeof(serving));
}

/* ---- reflection ---- */

/* A client of reflection waits for the answer to each message before it ends its side. */
enum net_stream api_grpc_streams(void *userdata, const struct net_request *r)
{
	return str_starts(r->path, REFLECTION) ? NET_STREAM_ANSWERS
					       : api_skywalking_stream(r->path);
}

static int reflect(const struct net_request *r, struct net_response *ret)
{
	struct diag d = {};
	int e;

	if (strcmp(r->path, REFLECTION_V1) != 0 && strcmp(r->path, REFLECTION_V1ALPHA) != 0)
		return refuse(ret, NET_GRPC_UNIMPLEMENTED,
			      "of reflection this server has ServerReflectionInfo, v1 and v1alpha");
	e = api_reflection(r, &ret->body, &d);
	return e < 0 ? refuse(ret, api_grpc_status(e), d.text[0] ? d.text : strerror(-e)) : 0;
}

/* ---- OTLP, and agents that ask ---- */

static const char *where_else(const char *path)
{
	if (str_starts(path, "/opentelemetry.proto.collector.profiles."))
		return "this server takes the version v1development of OTLP's profiles";
	if (str_starts(path, "/opentelemetry.") || !strchr(path, '.'))
		return "this server takes OTLP profiles and traces";
	return "by gRPC this server takes OTLP profiles and traces, what SkyWalking's agents send, and "
	       "Pyroscope's queries and pushes; other formats go to its HTTP port";
}

static int export(struct api *a, const struct net_request *r, struct net_response *ret)
{
	bool traces = !strcmp(r->path, TRACES), sync = !strcmp(r->path, CONTROL_GRPC_PATH);
	struct diag d = {};
	int e;

	if (!traces && !sync && strcmp(r->path, PROFILES) != 0)
		return refuse(ret, NET_GRPC_UNIMPLEMENTED, where_else(r->path));
	if (!(r->role & NET_ROLE_WRITE))
		return refuse(ret, NET_GRPC_PERMISSION_DENIED, "this token may not write");
	if (sync)
		e = api_sync_request(a, r, &ret->body, &d);
	else
		e = (traces ? ingest_otlp_traces : ingest_otlp_profiles)(
			a->o.ingest, r->body, r->n_body, r->content_encoding, r->host, false,
			&ret->body, &d);
	if (e == 0 && ret->body.failed)
		e = -ENOMEM;
	if (e == 0)
		return 0;
	e = api_reason(e, true, &d);
	return refuse(ret, api_grpc_status(e), d.text[0] ? d.text : strerror(-e));
}

static int skywalking(struct api *a, const struct net_request *r, struct net_response *ret)
{
	struct diag d = {};
	int e = api_skywalking(a, r, ret, &d);

	return e < 0 ? refuse(ret, api_grpc_status(e), d.text[0] ? d.text : strerror(-e)) : 0;
}

static int call_connect(struct api *a, const struct net_request *r, struct net_response *ret)
{
	api_connect(a, r, ret);
	return 0;
}

static void call_grpc(struct api *a, const struct net_request *r, struct net_response *ret)
{
	int e;

	ret->status = NET_GRPC_OK;
	if (str_starts(r->path, HEALTH))
		e = health(a, r, ret);
	else if (str_starts(r->path, REFLECTION))
		e = reflect(r, ret);
	else if (api_is_skywalking(r->path))
		e = skywalking(a, r, ret);
	else if (api_is_connect(r->path))
		e = call_connect(a, r, ret);
	else
		e = export(a, r, ret);
	if (e < 0 || ret->body.failed)
		(void)refuse(ret, NET_GRPC_UNAVAILABLE, "out of memory");
	if (ret->status != NET_GRPC_OK)
		str_clear(&ret->body);
}

/* "application/grpc+json": messages are in another code than that of protocol buffers. */
static bool is_other_code(const char *content_type)
{
	const char *plus = content_type ? strchr(content_type, '+') : NULL;

	return plus && strncasecmp(plus, "+proto", 6) != 0;
}

static int refuse_code(struct net_response *ret)
{
	return refuse(ret, NET_GRPC_UNIMPLEMENTED, "messages of gRPC are protocol buffers here");
}

void api_grpc(void *userdata, const struct net_request *r, struct net_response *ret)
{
	struct api *a = userdata;

	if (is_other_code(r->content_type))
		(void)refuse_code(ret);
	else
		call_grpc(a, r, ret);
	atomic_fetch_add(&a->answers[ret->status == NET_GRPC_OK ? 2 : 4], 1);
}

/* ---- by HTTP/1.1 ---- */

bool api_is_grpc(const char *content_type)
{
	return content_type && !strncasecmp(content_type, GRPC, strlen(GRPC));
}

static bool is_web(const char *content_type)
{
	return content_type && !strncasecmp(content_type, WEB, strlen(WEB));
}

static bool is_text(const char *content_type)
{
	return !strncasecmp(content_type, WEB "-text", strlen(WEB "-text"));
}

/* Clients may encode each part of the body by itself, so that padding stands in the middle, too. */
static int decode_text(const u8 *text, size_t n, struct str *out, struct diag *reterr_diag)
{
	u32 value = 0, bits = 0;

	for (size_t i = 0; i < n; i++) {
		int v = text_base64_digit((char)text[i]);

		if (text[i] == '=') {
			bits = 0;
			continue;
		}
		if (v < 0)
			return diag_set_at(reterr_diag, -EINVAL, i, "not base64");
		value = value << 6 | (u32)v;
		bits += 6;
		if (bits >= 8) {
			bits -= 8;
			str_putc(out, (char)(value >> bits));
		}
	}
	return out->failed ? -ENOMEM : 0;
}

/* Finds the message of the request. `own` holds a decoded body. */
static int unframe(struct api_call *c, struct net_request *to, struct str *own)
{
	const u8 *b = c->r->body;
	size_t n = c->r->n_body;
	u32 length;

	if (is_web(c->r->content_type) && is_text(c->r->content_type)) {
		int r = decode_text(b, n, own, &c->d);

		if (r < 0)
			return r;
		b = (const u8 *)str_get(own);
		n = own->n;
	}
	length = n < FRAME_BYTES ? 0 : (u32)b[1] << 24 | (u32)b[2] << 16 | (u32)b[3] << 8 | b[4];
	if (n < FRAME_BYTES || b[0] > 1 || length != n - FRAME_BYTES)
		return diag_set(&c->d, -EINVAL, "the body is not one gRPC message in its frame");
	to->body = b + FRAME_BYTES;
	to->n_body = length;
	to->content_encoding = b[0] ? net_header(c->r, "grpc-encoding") : NULL;
	return b[0] && !to->content_encoding
		       ? diag_set(&c->d, -EINVAL, "missing grpc-encoding header")
		       : 0;
}

static void put_frame(struct str *out, u8 flags, const struct str *body)
{
	const u8 head[FRAME_BYTES] = {flags, (u8)(body->n >> 24), (u8)(body->n >> 16),
				      (u8)(body->n >> 8), (u8)body->n};

	str_append(out, head, sizeof(head));
	str_append(out, str_get(body), body->n);
}

/* The status as trailers, the message percent-encoded as in a header. */
static void put_status(struct str *out, int status, const char *message)
{
	str_printf(out, "grpc-status:%d\r\n", status);
	if (*message)
		str_puts(out, "grpc-message:");
	for (const char *s = message; *s; s++)
		if (*s >= ' ' && *s <= '~' && *s != '%')
			str_putc(out, *s);
		else
			str_printf(out, "%%%02X", (u8)*s);
	str_puts(out, *message ? "\r\n" : "");
}

static void put_web(struct api_call *c, struct str *framed, const struct str *trailers)
{
	bool text = is_text(c->r->content_type);

	put_frame(framed, TRAILERS, trailers);
	c->ret->content_type = text ? WEB "-text+proto" : WEB "+proto";
	if (text)
		text_append_base64(c->out, (const u8 *)str_get(framed), framed->n);
	else
		str_append(c->out, str_get(framed), framed->n);
}

/* One chunk, and the trailers behind the empty chunk that ends the body. */
static void put_chunked(struct api_call *c, const struct str *framed, const struct str *trailers)
{
	c->ret->content_type = GRPC "+proto";
	c->ret->chunked = true;
	api_put_header(c->ret, "Trailer", "grpc-status, grpc-message");
	if (framed->n) {
		str_printf(c->out, "%zx\r\n", framed->n);
		str_append(c->out, str_get(framed), framed->n);
		str_puts(c->out, "\r\n");
	}
	str_puts(c->out, "0\r\n");
	str_append(c->out, str_get(trailers), trailers->n);
	str_puts(c->out, "\r\n");
}

void api_grpc_by_http(struct api_call *c)
{
	_cleanup_str_ struct str own = {}, framed = {}, trailers = {};
	struct net_response answer = {};
	struct net_request r = *c->r;
	int e = unframe(c, &r, &own);

	if (e < 0)
		(void)refuse(&answer, api_grpc_status(e), c->d.text[0] ? c->d.text : strerror(-e));
	else if (is_other_code(r.content_type))
		(void)refuse_code(&answer);
	else if (str_starts(r.path, "/opentelemetry.") || str_starts(r.path, "/grpc."))
		call_grpc(c->a, &r, &answer);
	else
		api_connect(c->a, &r, &answer);
	if (answer.body.failed)
		(void)refuse(&answer, NET_GRPC_UNAVAILABLE, "out of memory");
	if (answer.status == NET_GRPC_OK)
		put_frame(&framed, 0, &answer.body);
	put_status(&trailers, answer.status, answer.message);
	str_deinit(&answer.body);
	c->ret->status = 200;
	if (is_web(c->r->content_type))
		put_web(c, &framed, &trailers);
	else
		put_chunked(c, &framed, &trailers);
	c->out->failed |= framed.failed || trailers.failed;
}
