/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server: store, ingest, API and listeners. `culprit server` and `culprit up` start it with the
 * same call. One thread may call these functions, except where noted.
 */
#pragma once

#include "sandbox/sandbox.h"
#include "server/api/api.h"
#include "server/ingest/ingest.h"
#include "server/net/net.h"
#include "server/store/store.h"
#include "server/symbols/symbols.h"

#define SERVER_NOWHERE "off" /* as an address: do not listen */

enum server_port {
	SERVER_API,
	SERVER_OTLP_GRPC,
	SERVER_OTLP_GRPC_OLD,
	SERVER_OTLP_HTTP,
	SERVER_SKYWALKING,
	SERVER_N
};

struct server_options {
	const char *store; /* URL, or a directory for the embedded store */
	struct store_options store_options;
	/*
	 * Addresses. NULL = the default port on loopback; if another program uses that port, the
	 * server only logs a warning. Listening at `api`, and at every address that is not NULL,
	 * must succeed. `skywalking` has no default.
	 */
	const char *api, *otlp_grpc, *otlp_grpc_old, *otlp_http, *skywalking;
	/* Of server_bind(), owned by the server once it is started; 0 = does not listen. */
	int sockets[SERVER_N];
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
	const char *source_roots, *source_links, *trace_links, *audit_log;
	void (*metrics)(void *userdata, struct str *out);
	int (*find_mapped)(void *userdata, const char *path, api_mapped_fn *fn, void *arg);
	void *userdata;
};

struct server;

/* Opens the sockets at the addresses, and sets o->sockets. */
int server_bind(struct server_options *o, struct diag *reterr_diag);
/*
 * Shuts this process in behind the walls of lib/sandbox, before server_start() and with one
 * thread. It can use the store, its symbols and the sockets, read the folders where source files
 * and programs are, and connect to others only if the store or symbols are there. `secrets`: it can
 * also read the folders of certificates and tokens; else net_set_open() opens these files.
 */
int server_confine(const struct server_options *o, bool secrets, struct diag *reterr_diag);
/* Gives the directories of the store and of symbols to a user: see sandbox_give_directory(). */
int server_give_directories(const struct server_options *o, uid_t uid, gid_t gid,
			    struct diag *reterr_diag);
/*
 * Strings are borrowed until server_stop(). Needs the sockets. On failure *ret is untouched and
 * nothing runs.
 */
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

/* Answers an agent of this machine: api_sync() of any host. Any thread. */
int server_sync(struct server *s, const u8 *data, size_t n, struct str *ret,
		struct diag *reterr_diag);

/* The port of a listener; 0 if it does not listen. */
u16 server_port(const struct server *s, enum server_port which);
