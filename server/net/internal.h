/* SPDX-License-Identifier: Apache-2.0 */
/* What net.c, tls.c, tokens.c, net_http.c and net_grpc.c share. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>

#include "server/net/net.h"

#define NET_MAX_HEADER_BYTES (64u << 10)
#define NET_TLS_PRIORITY "NORMAL:-VERS-TLS1.0:-VERS-TLS1.1"

/* ---- tokens (tokens.c) ---- */

/* Thread-safe. Keeps hashes of tokens only, and never prints a token. */
struct net_tokens;

int net_tokens_create(const char *path, struct diag *reterr_diag, struct net_tokens **ret);
void net_tokens_destroy(struct net_tokens *t);

#define NET_TOKEN_NAME_BYTES 64
#define NET_HOST_BYTES 256

/* What a token says of its sender. */
struct net_sender {
	enum net_role role;
	char name[NET_TOKEN_NAME_BYTES], host[NET_HOST_BYTES]; /* see net_request */
};

/* The sender of an Authorization header ("Bearer TOKEN", "Basic USER:TOKEN"), or NULL. */
struct net_sender net_tokens_sender(struct net_tokens *t, const char *authorization);

/* ---- certificates (tls.c) ---- */

struct net_listener;
struct net_credentials;

/*
 * Reads the listener's files, for new connections. On an error, which names the file, nothing
 * changes.
 */
int net_credentials_load(struct net_listener *l, struct diag *reterr_diag);
/*
 * Gives a new gnutls_session_t the listener's credentials. The caller puts them when the session
 * has ended. NULL: failed.
 */
struct net_credentials *net_credentials_give(struct net_listener *l, void *session);
void net_credentials_put(struct net_credentials *c);

/* ---- all listeners ---- */

struct net_counters {
	atomic_ullong connections, open, requests, unauthorized, too_large, timed_out, broken;
};

struct net_http;
struct net_grpc;

struct net_listener {
	struct net_options o;	   /* with defaults; strings are valid during net_listen() only */
	struct net_tokens *tokens; /* owned; NULL = none */
	bool tls, client_ca;
	char *cert, *key, *ca;		     /* owned: paths of the PEM files */
	pthread_mutex_t lock;		     /* of `credentials` */
	struct net_credentials *credentials; /* a reference; NULL without TLS */
	int fd;				     /* owned until the listener runs */
	u16 port;
	atomic_ullong buffered; /* bytes of bodies in memory */
	struct net_counters counters;
	struct net_http *http;
	struct net_grpc *grpc;
};

/* Takes bytes from the budget for bodies; false: fewer bytes are left. */
bool net_buffer_take(struct net_listener *l, size_t n);
void net_buffer_give(struct net_listener *l, size_t n);
/* The sender of a request with this Authorization header, or NULL. */
struct net_sender net_sender_of(struct net_listener *l, const char *authorization);
void net_peer_name(const struct sockaddr *a, char ret[64]);
/* Whether a Host header names this machine. Pages of other sites have other names: see net.c. */
bool net_host_is_local(const char *host);

/* What the headers of a request say of the web page that made it; NULL = missing (origin.c). */
struct net_origin {
	const char *method, *path, *host;
	const char *origin, *site, *mode; /* Origin, Sec-Fetch-Site, Sec-Fetch-Mode */
};

/*
 * Whether a page of another site may have made the request. needs_local_host: the server knows its
 * clients by their being on this machine, so that Host must name this machine (DNS rebinding).
 */
bool net_is_foreign(const struct net_origin *o, bool needs_local_host);

int net_http_start(struct net_listener *l, struct diag *reterr_diag);
void net_http_stop(struct net_listener *l, u32 timeout_ms);
int net_grpc_start(struct net_listener *l, struct diag *reterr_diag);
void net_grpc_stop(struct net_listener *l, u32 timeout_ms);

u64 net_now_ms(void); /* monotonic */
