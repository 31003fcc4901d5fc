/* SPDX-License-Identifier: Apache-2.0 */
/* The HTTP endpoints that receive data. server/ingest does the work. */
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "server/api/internal.h"

typedef int otlp_fn(struct ingest *i, const u8 *data, size_t n, const char *encoding,
		    const char *host, bool json, struct str *ret_response,
		    struct diag *reterr_diag);

static int otlp(struct api_call *c, otlp_fn *fn)
{
	bool json = api_is_json(c->r->content_type);

	if (!json && !api_is_protobuf(c->r->content_type))
		return diag_set(&c->d, -ENOTSUP,
				"OTLP is application/x-protobuf or application/json");
	c->ret->content_type = json ? "application/json" : "application/x-protobuf";
	return fn(c->a->o.ingest, c->r->body, c->r->n_body, c->r->content_encoding, c->r->host,
		  json, c->out, &c->d);
}

static int otlp_profiles(struct api_call *c)
{
	return otlp(c, ingest_otlp_profiles);
}

static int otlp_traces(struct api_call *c)
{
	return otlp(c, ingest_otlp_traces);
}

static int otlp_other(struct api_call *c)
{
	return diag_set(&c->d, -ENOSYS,
			"this server takes OTLP profiles and traces, at /v1development/profiles "
			"and /v1/traces");
}

static int zipkin(struct api_call *c)
{
	int r;

	if (!api_is_json(c->r->content_type))
		return diag_set(&c->d, -ENOTSUP, "Zipkin's spans are application/json here");
	r = ingest_zipkin(c->a->o.ingest, c->r->body, c->r->n_body, c->r->content_encoding,
			  c->r->host, &c->d);
	c->ret->content_type = "text/plain; charset=utf-8";
	if (r == 0)
		c->ret->status = 202; /* Zipkin answers with an empty body */
	return r;
}

/* Tells the sender of data that was stored that a limit of cardinality has changed it. */
static int warn(struct api_call *c, int r)
{
	if (r == 0 && c->d.text[0])
		api_put_header(c->ret, "Culprit-Warning",
			       "beyond a limit of this server; its log and /metrics "
			       "(culprit_ingest_limited_total) tell of what");
	return r;
}

static int pyroscope_ingest(struct api_call *c)
{
	const struct ingest_pyroscope p = {
		.name = net_parameter(c->r, "name"),
		.from = net_parameter(c->r, "from"),
		.until = net_parameter(c->r, "until"),
		.format = net_parameter(c->r, "format"),
		.sample_rate = net_parameter(c->r, "sampleRate"),
		.units = net_parameter(c->r, "units"),
		.spy = net_parameter(c->r, "spyName"),
		.content_type = c->r->content_type,
		.encoding = c->r->content_encoding,
		.host = c->r->host,
	};

	c->ret->content_type = "text/plain; charset=utf-8";
	return warn(c, ingest_pyroscope(c->a->o.ingest, c->r->body, c->r->n_body, &p, &c->d));
}

/* The answer to a request that was done and returns nothing: an empty object. */
static void put_empty(struct api_call *c)
{
	json_open_object(&c->json, NULL);
	json_close(&c->json);
}

static int push(struct api_call *c)
{
	bool json = api_is_json(c->r->content_type);
	int r;

	if (!json && !api_is_protobuf(c->r->content_type))
		return diag_set(&c->d, -EMEDIUMTYPE, "application/proto or application/json");
	r = ingest_push(c->a->o.ingest, c->r->body, c->r->n_body, c->r->content_encoding,
			c->r->host, json, &c->d);
	c->ret->content_type = json ? "application/json" : "application/proto";
	if (r == 0 && json)
		put_empty(c);
	return warn(c, r);
}

static int upload_time(struct api_call *c, const char *name, u64 *ms)
{
	const char *text = net_parameter(c->r, name);

	if (!text || api_time(text, clock_epoch_ms(), ms) == 0)
		return 0;
	return diag_set(&c->d, -EINVAL, "%s: not a time", name);
}

static int upload(struct api_call *c)
{
	struct ingest_file f = {
		.format = net_parameter(c->r, "format"),
		.labels = net_parameter(c->r, "labels"),
		.name = net_parameter(c->r, "name"),
		.encoding = c->r->content_encoding,
		.host = c->r->host,
	};
	int r = upload_time(c, "from", &f.from_ms);

	if (r == 0)
		r = upload_time(c, "to", &f.to_ms);
	if (r == 0)
		r = ingest_file(c->a->o.ingest, c->r->body, c->r->n_body, &f, &c->d);
	if (r == 0)
		put_empty(c);
	return warn(c, r);
}

#define W NET_ROLE_WRITE
const struct api_route api_input_routes[] = {
	{"POST", "/v1development/profiles", W, API_STYLE_OTLP, otlp_profiles},
	{"POST", "/v1/traces", W, API_STYLE_OTLP, otlp_traces},
	{"POST", "/api/v2/spans", W, API_STYLE_JSON, zipkin},
	{"POST", "/v1/metrics", W, API_STYLE_OTLP, otlp_other},
	{"POST", "/v1/logs", W, API_STYLE_OTLP, otlp_other},
	{"POST", "/ingest", W, API_STYLE_JSON, pyroscope_ingest},
	{"POST", "/pyroscope/ingest", W, API_STYLE_JSON, pyroscope_ingest},
	{"POST", "/push.v1.PusherService/Push", W, API_STYLE_CONNECT, push},
	{"POST", "/api/v1/upload", W, API_STYLE_JSON, upload},
	{},
};
