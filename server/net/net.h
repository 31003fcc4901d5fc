/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTP/1.1 (libmicrohttpd) and gRPC over HTTP/2 (nghttp2), both with TLS (GnuTLS) or without. A
 * request is whole when its handler gets it; handlers run on the server's threads, several at once.
 *
 * Nothing listens beyond loopback without a token or client certificates: net_listen() refuses.
 */
#pragma once

#include "base/cleanup.h"
#include "base/diag.h"
#include "base/str.h"
#include "base/types.h"

/* A set: admins may all. */
enum net_role { NET_ROLE_NONE = 0, NET_ROLE_READ = 1, NET_ROLE_WRITE = 2, NET_ROLE_ADMIN = 7 };

struct net_request {
	const char *method, *path; /* path: decoded, without the query */
	const u8 *body;		   /* as sent: see content_encoding */
	size_t n_body;
	const char *content_type, *content_encoding; /* or NULL */
	enum net_role role;
	const char *peer; /* "127.0.0.1" */
	bool grpc;	  /* `body` is the message without its frame; status is gRPC's */
	void *sink;	  /* net_sink.userdata when the body went there, and is not here */
	/* The i-th query parameter (or header) of that name, or NULL. Borrowed. */
	const char *(*lookup)(const struct net_request *r, bool header, const char *name, size_t i);
	void *private;
};

/* A query parameter or a header; NULL when it is not there. Borrowed. */
static inline const char *net_parameter(const struct net_request *r, const char *name)
{
	return r->lookup(r, false, name, 0);
}

static inline const char *net_header(const struct net_request *r, const char *name)
{
	return r->lookup(r, true, name, 0);
}

/* What a gRPC handler puts into net_response.status. */
enum net_grpc_status {
	NET_GRPC_OK = 0,
	NET_GRPC_UNKNOWN = 2,
	NET_GRPC_INVALID_ARGUMENT = 3,
	NET_GRPC_DEADLINE_EXCEEDED = 4,
	NET_GRPC_NOT_FOUND = 5,
	NET_GRPC_PERMISSION_DENIED = 7,
	NET_GRPC_RESOURCE_EXHAUSTED = 8,
	NET_GRPC_UNIMPLEMENTED = 12,
	NET_GRPC_INTERNAL = 13,
	NET_GRPC_UNAVAILABLE = 14,
	NET_GRPC_UNAUTHENTICATED = 16,
};

struct net_response {
	int status;		  /* HTTP's, or for gRPC its own */
	const char *content_type; /* static */
	char message[256];	  /* gRPC: of the status */
	struct str body;
	struct {
		const char *name, *value; /* static strings */
	} headers[8];
	u32 n_headers;
	/*
	 * For answers without an end: called again and again until it returns > 0 (done) or < 0
	 * (broken off); waits itself, at most a second. NULL = body is all.
	 */
	int (*stream)(void *userdata, struct str *out);
	void (*stream_end)(void *userdata);
	void *stream_userdata;
};

/* Where the body of a request goes that is too large for memory. */
struct net_sink {
	/* The next bytes, in order; when it fails it is told the request's handler by itself. */
	void (*part)(void *userdata, const void *data, size_t n);
	/* Once, when the request is over: answered, or broken off anywhere. */
	void (*end)(void *userdata);
	void *userdata;
	u64 max_body;
};

typedef void net_handler(void *userdata, const struct net_request *r, struct net_response *ret);

struct net_tls {
	const char *cert, *key; /* PEM files */
	const char *client_ca;	/* clients must show a certificate of this */
};

struct net_options {
	const char *address; /* "127.0.0.1:7788", "[::]:4317"; port 0 = any free one */
	bool grpc;
	const struct net_tls *tls; /* or NULL */
	const char *tokens; /* file of lines "ROLE TOKEN", or NULL; read again when it changes */
	size_t max_body;    /* bytes as sent; 0 = 64 MiB; all requests together: four times that */
	u32 max_connections, timeout_s; /* 0 = 256, 30 */
	net_handler *handler;
	/*
	 * Asked when a request's header is here and its sender is known: true when its body goes
	 * to *ret. NULL = all bodies go to memory. HTTP only.
	 */
	bool (*sink)(void *userdata, const struct net_request *r, struct net_sink *ret);
	void *userdata;
};

struct net_stats {
	u64 connections, open, requests;
	u64 unauthorized, too_large, timed_out, broken; /* answered or cut off for that */
};

struct net_listener;

int net_listen(const struct net_options *o, struct diag *reterr_diag, struct net_listener **ret);
/*
 * Reads its certificate, key and client CA again, for connections that come: those that are there
 * keep theirs. An error: all stay with what they have.
 */
int net_reload(struct net_listener *l, struct diag *reterr_diag);
u16 net_port(const struct net_listener *l);
/* Takes no more connections, lets those that are there end, at most timeout_ms. */
void net_close(struct net_listener *l, u32 timeout_ms);
void net_stats(const struct net_listener *l, struct net_stats *ret);
