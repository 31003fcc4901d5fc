/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server: store, ingest, API and listeners. `culprit server` and `culprit up` start it with the
 * same call. One thread may call these functions, except where noted.
 */
#pragma once

#include "server/api/api.h"
#include "server/ingest/ingest.h"
#include "server/net/net.h"
#include "server/store/store.h"
#include "server/symbols/symbols.h"

#define SERVER_NOWHERE "off" /* as an address: do not listen */

struct server_options {
	const char *store; /* URL, or a directory for the embedded store */
	struct store_options store_options;
	/*
	 * Addresses. NULL = the default port on loopback; if another program uses that port, the
	 * server only logs a warning. Listening at `api`, and at every address that is not NULL,
	 * must succeed.
	 */
	const char *api, *otlp_grpc, *otlp_grpc_old, *otlp_http;
	struct net_tls tls; /* all NULL = no TLS; for all listeners */
	const char *tokens;
	bool clear_text;		/* as in net_options */
	const char *access_log;		/* as in net_create() */
	u32 max_connections, timeout_s; /* as in net_options */
	struct ingest_options ingest;	/* `written` is set by the server */
	/*
	 * Memory of all requests together, of which one may take half; the time that a request may
	 * take on the clock and on a CPU. 0 = no limit.
	 */
	u64 request_bytes, query_timeout_s, query_cpu_s;
	size_t max_body;
	/* Symbols. `dir` NULL: none. `store` is set by the server. */
	struct symstore_options symbols;
	/* See api_options. */
	struct api_cost cost;
	const char *source_roots, *audit_log;
	void (*metrics)(void *userdata, struct str *out);
	void *userdata;
};

struct server;

/* Strings are borrowed until server_stop(). On failure *ret is untouched and nothing runs. */
int server_start(const struct server_options *o, struct diag *reterr_diag, struct server **ret);
/*
 * Reads the certificates again, and opens the access log again. If they are not usable it logs a
 * warning, and the old ones stay in effect.
 */
void server_reload(struct server *s);
/* Refuses new requests, waits for those in progress up to the timeout, and closes the store. */
void server_stop(struct server *s, u32 timeout_ms);
/* Borrowed until server_stop(). Any thread. */
struct store *server_store(struct server *s);
struct ingest *server_ingest(struct server *s);

enum server_port { SERVER_API, SERVER_OTLP_GRPC, SERVER_OTLP_GRPC_OLD, SERVER_OTLP_HTTP, SERVER_N };
/* The port of a listener; 0 if it does not listen. */
u16 server_port(const struct server *s, enum server_port which);
