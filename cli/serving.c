/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/serving.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "cli/cli.h"

#define A struct serving_arguments
const struct option serving_store_options[] = {
	OPTION_STRING("data-dir", 0, "DIR", A, data_dir,
		      "directory of the embedded store; created if missing"),
	OPTION_STRING("store", 0, "URL", A, store,
		      "store: sqlite://DIR or clickhouse://USER:PASSWORD@HOST:PORT/DATABASE"),
	OPTION_U64("max-size", 0, "MIB", A, max_size_mib, 16, 1u << 30,
		   "delete the oldest profiles above this size (default 10240)"),
	OPTION_U64("max-age", 0, "HOURS", A, max_age_h, 1, 24 * 36500,
		   "delete profiles older than this, and refuse them (default 720)"),
	OPTION_U64("max-ahead", 0, "MINUTES", A, max_ahead_min, 0, 24 * 60 * 365,
		   "refuse samples and spans from further in the future (default 60)"),
	OPTION_U64("spans-max-size", 0, "MIB", A, spans_mib, 4, 1u << 30,
		   "spans with their samples: thin out, then delete old ones (default 1024)"),
	OPTION_U64("max-services", 0, "N", A, max_services, 1, 1u << 20,
		   "active services; further ones are \"(other services)\" (default 10000)"),
	OPTION_U64("max-series", 0, "N", A, max_series, 1, 1u << 22,
		   "active series of a service; further: \"(other series)\" (default 50000)"),
	OPTION_U64("max-labels", 0, "N", A, max_labels, 4, 120,
		   "labels of a series; the rest is left out (default 64)"),
	OPTION_U64("max-label-bytes", 0, "BYTES", A, max_label_bytes, 64, 65536,
		   "cut names and values of labels at this length (default 2048)"),
	OPTION_U64("max-stacks", 0, "N", A, max_stacks, 1, 1u << 24,
		   "stacks of a profile; lighter ones are \"[other stacks]\" (default 250000)"),
	{},
};

const struct option serving_symbol_options[] = {
	OPTION_STRING("symbols-dir", 0, "DIR", A, symbols_dir,
		      "debug files by build-id (default: symbols in the store's directory)"),
	OPTION_U64("symbols-max-size", 0, "MIB", A, symbols_mib, 16, 1u << 20,
		   "delete the oldest above this size; one file: a quarter (default 4096)"),
	OPTION_STRING("debuginfod-urls", 0, "URL,...", A, debuginfod_urls,
		      "fetch missing debug files from these servers (default: none)"),
	{},
};

const struct option serving_listen_options[] = {
	OPTION_STRING("listen", 0, "ADDRESS", A, listen,
		      "address of API and page (default 127.0.0.1:7788); port 0: any free port"),
	OPTION_STRING("otlp-grpc", 0, "ADDRESS", A, otlp_grpc,
		      "address of OTLP over gRPC (default 127.0.0.1:4317), or off"),
	OPTION_STRING("otlp-grpc-old", 0, "ADDRESS", A, otlp_grpc_old,
		      "a second one, the port of older agents (default 127.0.0.1:11000)"),
	OPTION_STRING("otlp-http", 0, "ADDRESS", A, otlp_http,
		      "address of OTLP over HTTP (default 127.0.0.1:4318)"),
	OPTION_STRING("listen-skywalking", 0, "ADDRESS", A, skywalking,
		      "another one for gRPC, as 127.0.0.1:11800, the port of SkyWalking's agents"),
	{},
};

const struct option serving_access_options[] = {
	OPTION_STRING("tls-cert", 0, "FILE", A, cert, "server certificate chain (PEM)"),
	OPTION_STRING("tls-key", 0, "FILE", A, key, "private key of the server certificate (PEM)"),
	OPTION_STRING("tls-ca", 0, "FILE", A, ca, "require client certificates of this CA (PEM)"),
	OPTION_STRING("token-file", 0, "FILE", A, tokens,
		      "require tokens, listed here in lines \"read|write|admin TOKEN [RIGHT...]\""),
	OPTION_STRING("audit-log", 0, "FILE", A, audit_log,
		      "log who changed symbols (default: audit.log in the store's directory)"),
	OPTION_STRING("source-roots", 0, "DIR:...", A, source_roots,
		      "show source and machine code of files below these directories only "
		      "(default: all of / but /tmp, /var, /mnt, /media and system folders)"),
	OPTION_STRING("source-links", 0, "PREFIX=URL...", A, source_links,
		      "link source files below a prefix to a repository; the URLs, separated by "
		      "spaces, have {path}, {version} (label service.version), {line}"),
	OPTION_STRING("trace-links", 0, "NAME=URL...", A, trace_links,
		      "link each trace to other tools, separated by spaces: "
		      "\"Jaeger=https://jaeger.example/trace/{trace}\"; {span}: the chosen span"),
	OPTION_FLAG("allow-clear-text", 0, A, clear_text,
		    "take tokens without TLS from other machines, as behind a proxy"),
	OPTION_U64("max-request", 0, "MIB", A, max_request_mib, 1, 1024,
		   "largest request, before and after decompression (default 64)"),
	OPTION_U64("request-memory", 0, "MIB", A, request_mib, 64, 1u << 20,
		   "memory of all requests; one request: half of it (default 512)"),
	OPTION_SECONDS("query-timeout", 0, A, query_timeout_s, 1, 3600,
		       "end a request that takes longer (default 30)"),
	OPTION_SECONDS("query-cpu", 0, A, query_cpu_s, 1, 3600,
		       "end a request that takes more CPU time (default 4)"),
	OPTION_U64("max-connections", 0, "N", A, connections, 1, 1000000,
		   "connections to each address; one client: half of them (default 20000)"),
	OPTION_SECONDS("timeout", 0, A, timeout_s, 1, 3600,
		       "close a connection that is idle for this long (default 30)"),
	OPTION_STRING("access-log", 0, "FILE", A, access_log,
		      "write a line of JSON per request; - for standard output; SIGHUP reopens it"),
	{},
};

const struct option serving_cost_options[] = {
	OPTION_STRING("currency", 0, "NAME", A, currency, "currency of prices (default USD)"),
	OPTION_F64("core-hour-price", 0, "PRICE", A, core_hour, 0, 1e6,
		   "price of one CPU core for an hour (default 0.04)"),
	OPTION_F64("core-watts", 0, "WATTS", A, watts, 0, 1000,
		   "power of a busy core (default 3.5)"),
	OPTION_F64("pue", 0, "FACTOR", A, pue, 1, 10,
		   "power usage effectiveness of the data centre (default 1.5)"),
	OPTION_F64("co2-per-kwh", 0, "GRAMS", A, grams, 0, 10000,
		   "carbon intensity of the power (default 450)"),
	{},
};
#undef A

/* The defaults are in the store's directory, if the store has one. */
static void set_places(const struct serving_arguments *a, struct str *own,
		       struct server_options *ret)
{
	const char *dir = store_directory(ret->store), *end = "";
	size_t second;

	ret->symbols.dir = a->symbols_dir;
	ret->audit_log = a->audit_log;
	if (!dir)
		return;
	str_printf(own, "%s/symbols", dir);
	second = own->n + 1;
	str_append(own, end, 1);
	str_printf(own, "%s/audit.log", dir);
	if (!a->symbols_dir)
		ret->symbols.dir = str_get(own);
	if (!a->audit_log && !own->failed)
		ret->audit_log = str_get(own) + second;
}

int serving_options(const struct serving_arguments *a, const char *command, struct str *own,
		    struct server_options *ret)
{
	struct diag d = {};

	if (!a->data_dir == !a->store)
		return cli_error(2, "%s: give either --data-dir or --store", command);
	ret->store = a->store ? a->store : a->data_dir;
	ret->store_options.max_bytes = a->max_size_mib << 20;
	ret->store_options.max_age_s = a->max_age_h * 3600;
	ret->store_options.span_bytes = a->spans_mib << 20;
	ret->api = a->listen;
	ret->otlp_grpc = a->otlp_grpc;
	ret->otlp_grpc_old = a->otlp_grpc_old;
	ret->otlp_http = a->otlp_http;
	ret->skywalking = a->skywalking;
	ret->tls = (struct net_tls){a->cert, a->key, a->ca};
	ret->tokens = a->tokens;
	ret->clear_text = a->clear_text;
	ret->access_log = a->access_log;
	ret->max_connections = (u32)a->connections;
	ret->timeout_s = (u32)a->timeout_s;
	ret->cost = (struct api_cost){.currency = a->currency ? a->currency : "USD",
				      .core_hour = a->core_hour,
				      .watts = a->watts,
				      .pue = a->pue,
				      .grams = a->grams};
	ret->source_roots = a->source_roots;
	ret->source_links = a->source_links;
	ret->trace_links = a->trace_links;
	if (api_check_links(API_SOURCE_LINKS, a->source_links, &d) < 0)
		return cli_error(2, "%s: --source-links: %s", command, d.text);
	if (api_check_links(API_TRACE_LINKS, a->trace_links, &d) < 0)
		return cli_error(2, "%s: --trace-links: %s", command, d.text);
	ret->max_body = a->max_request_mib << 20;
	ret->request_bytes = (a->request_mib ? a->request_mib : 512) << 20;
	ret->query_timeout_s = a->query_timeout_s ? a->query_timeout_s : 30;
	ret->query_cpu_s = a->query_cpu_s ? a->query_cpu_s : 4;
	ret->ingest.max_request_bytes = a->max_request_mib << 20;
	ret->ingest.max_ahead_ms = a->max_ahead_min * 60000;
	ret->ingest.limits = (struct ingest_limits){.services = a->max_services,
						    .series = a->max_series,
						    .labels = a->max_labels,
						    .label_bytes = a->max_label_bytes,
						    .stacks = a->max_stacks};
	ret->symbols = (struct symstore_options){.max_bytes = a->symbols_mib << 20,
						 .debuginfod_urls = a->debuginfod_urls};
	set_places(a, own, ret);
	if (a->debuginfod_urls && !ret->symbols.dir)
		return cli_error(
			2,
			"%s: --debuginfod-urls requires --symbols-dir, which keeps the fetched files",
			command);
	return 0;
}

static const struct option *const tables[] = {serving_store_options, serving_symbol_options,
					      serving_listen_options, serving_access_options,
					      serving_cost_options};

static bool same_value(const struct option *o, const struct serving_arguments *a,
		       const struct serving_arguments *b)
{
	const void *x = (const char *)a + o->offset, *y = (const char *)b + o->offset;
	const char *s = *(const char *const *)x, *t = *(const char *const *)y;

	if (o->type == OPTION_TYPE_FLAG)
		return *(const bool *)x == *(const bool *)y;
	if (o->type == OPTION_TYPE_U64 || o->type == OPTION_TYPE_F64)
		return *(const u64 *)x == *(const u64 *)y;
	return s && t ? !strcmp(s, t) : s == t;
}

void serving_changed(const struct serving_arguments *before, const struct serving_arguments *now)
{
	for (size_t i = 0; i < ARRAY_SIZE(tables); i++)
		for (const struct option *o = tables[i]; o->name; o++)
			if (!same_value(o, before, now))
				log_warn("--%s keeps its value until a restart", o->name);
}

/* ---- from one process to another ---- */

static void write_value(const struct option *o, const void *at, struct str *out)
{
	switch (o->type) {
	case OPTION_TYPE_FLAG:
		str_printf(out, "%s=%d", o->name, *(const bool *)at);
		break;
	case OPTION_TYPE_U64:
		str_printf(out, "%s=%llu", o->name, *(const u64 *)at);
		break;
	case OPTION_TYPE_F64:
		str_printf(out, "%s=%a", o->name, *(const double *)at);
		break;
	default:
		if (!*(const char *const *)at)
			return;
		str_printf(out, "%s=%s", o->name, *(const char *const *)at);
	}
	str_putc(out, '\0');
}

void serving_write(const struct serving_arguments *a, struct str *out)
{
	for (size_t i = 0; i < ARRAY_SIZE(tables); i++)
		for (const struct option *o = tables[i]; o->name; o++)
			write_value(o, (const char *)a + o->offset, out);
}

static const struct option *find(const char *name, size_t n)
{
	for (size_t i = 0; i < ARRAY_SIZE(tables); i++)
		for (const struct option *o = tables[i]; o->name; o++)
			if (strlen(o->name) == n && !memcmp(o->name, name, n))
				return o;
	return NULL;
}

static void read_value(const struct option *o, char *text, void *at)
{
	switch (o->type) {
	case OPTION_TYPE_FLAG:
		*(bool *)at = *text == '1';
		break;
	case OPTION_TYPE_U64:
		*(u64 *)at = strtoull(text, NULL, 10);
		break;
	case OPTION_TYPE_F64:
		*(double *)at = strtod(text, NULL);
		break;
	default:
		*(const char **)at = text;
	}
}

int serving_read(char *text, size_t n, struct serving_arguments *ret)
{
	for (char *at = text, *end = text + n; at < end; at += strlen(at) + 1) {
		char *equals = strchr(at, '=');
		const struct option *o = equals ? find(at, (size_t)(equals - at)) : NULL;

		if (!o)
			return -EINVAL;
		read_value(o, equals + 1, (char *)ret + o->offset);
	}
	return 0;
}
