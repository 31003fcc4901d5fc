/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server, put together: store, ingest, API, and who listens where. `culprit server` and
 * `culprit up` start it with the same call.
 */
#pragma once

#include "server/api/api.h"
#include "server/ingest/ingest.h"
#include "server/net/net.h"
#include "server/store/store.h"
#include "server/symbols/symbols.h"

#define SERVER_NOWHERE "off" /* as an address: does not listen */

struct server_options {
	const char *store; /* URL, or a directory for the embedded store */
	struct store_options store_options;
	/*
	 * Addresses. NULL = the usual port on loopback, and if that is taken by somebody else a
	 * warning; what was asked for by name must work. `api` must in any case.
	 */
	const char *api, *otlp_grpc, *otlp_grpc_old, *otlp_http;
	struct net_tls tls; /* all NULL = none; of all listeners */
	const char *tokens;
	u32 max_connections, timeout_s; /* as in net_options */
	struct ingest_options ingest;	/* `written` is the server's own */
	size_t max_body;
	/* Late symbols. `dir` NULL: none. `store` is set by the server. */
	struct symstore_options symbols;
	/* See api_options. */
	struct api_cost cost;
	void (*metrics)(void *userdata, struct str *out);
	void *userdata;
};

struct server;

int server_start(const struct server_options *o, struct diag *reterr_diag, struct server **ret);
/* Reads certificates again; what cannot be used is told, and those before stay. */
void server_reload(struct server *s);
/* Takes nothing new, ends what is at work within the time, closes the store. */
void server_stop(struct server *s, u32 timeout_ms);
struct store *server_store(struct server *s);
struct ingest *server_ingest(struct server *s);

enum server_port { SERVER_API, SERVER_OTLP_GRPC, SERVER_OTLP_GRPC_OLD, SERVER_OTLP_HTTP, SERVER_N };
/* 0 when it does not listen there. */
u16 server_port(const struct server *s, enum server_port which);
