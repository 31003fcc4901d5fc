/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTP/1.1 and gRPC over HTTP/2 (nghttp2), with TLS (GnuTLS) or without. A handler gets complete
 * requests only. All listeners share one pool of threads, which runs the handlers
 * (doc/design/0011-connections.md).
 *
 * net_listen() refuses an address beyond loopback without tokens or client certificates, and tokens
 * without TLS there unless told.
 */
#pragma once

#include "base/cleanup.h"
#include "base/diag.h"
#include "base/quota.h"
#include "base/str.h"
#include "base/types.h"

/* A set of bits: an admin may do everything. SYMBOLS: a writer that may upload symbols. */
enum net_role {
	NET_ROLE_NONE = 0,
	NET_ROLE_READ = 1,
	NET_ROLE_WRITE = 2,
	NET_ROLE_SYMBOLS = 4,
	NET_ROLE_ADMIN = 15
};

struct net_request {
	const char *method, *path; /* path: decoded, without the query */
	const u8 *body;		   /* as sent: see content_encoding */
	size_t n_body;
	const char *content_type, *content_encoding; /* or NULL */
	enum net_role role;
	const char *token_name; /* "" = it has none */
	const char *host;	/* the only host.name that the sender may write; "" = any */
	const char *peer;	/* "127.0.0.1" */
	bool grpc;		/* `body` is the message without its frame; status is gRPC's */
	bool framed; /* a stream that collects: `body` is whole messages in their frames */
	struct net_talk *talk; /* NET_STREAM_TALKS, else NULL */
	void *sink; /* net_sink.userdata when the body went into the sink; `body` is empty then */
	/*
	 * The i-th query parameter (or header) of that name, or NULL. Borrowed. Without a name: the
	 * name of the i-th query parameter.
	 */
	const char *(*lookup)(const struct net_request *r, bool header, const char *name, size_t i);
	void *private;
};

/* The first query parameter (or header) of that name, or NULL. Borrowed. */
static inline const char *net_parameter(const struct net_request *r, const char *name)
{
	return r->lookup(r, false, name, 0);
}

/* The name of the i-th query parameter, or NULL. */
static inline const char *net_parameter_name(const struct net_request *r, size_t i)
{
	return r->lookup(r, false, NULL, i);
}

static inline const char *net_header(const struct net_request *r, const char *name)
{
	return r->lookup(r, true, name, 0);
}

/* What a gRPC handler puts into net_response.status. */
enum net_grpc_status {
	NET_GRPC_OK = 0,
	NET_GRPC_CANCELLED = 1,
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
	int status;		  /* HTTP's, or enum net_grpc_status */
	const char *content_type; /* static */
	char message[256];	  /* gRPC: text of the status */
	struct str body;
	bool chunked; /* HTTP: the body is in the chunked coding, maybe with trailers */
	struct {
		const char *name, *value; /* static strings */
	} headers[8];
	u32 n_headers;
	bool answers; /* NET_STREAM_TALKS: `body` is a message to the client, also an empty one */
};

/* A call of NET_STREAM_TALKS, over all requests that its handler gets. */
struct net_talk {
	bool ended;		  /* the client sends no more: the last request, without messages */
	void *state;		  /* the handler's own, */
	void (*end)(void *state); /* freed by this when the call is over, in any thread */
};

/* The messages of a gRPC call, and the answers to them. */
enum net_stream {
	NET_STREAM_NONE, /* one message, one answer */
	/*
	 * The handler answers each message as it comes, one after the other.
	 */
	NET_STREAM_ANSWERS,
	/*
	 * The client sends any number of messages, and then waits for an empty one. The handler
	 * gets those that have arrived together in one request (net_next_message()).
	 */
	NET_STREAM_COLLECTS,
	/*
	 * As COLLECTS, but the handler may answer what has arrived with a message, and is called
	 * once more when the client has ended. What it remembers between is in net_request.talk.
	 */
	NET_STREAM_TALKS,
};

/*
 * Finds the next message of a framed body, from *at on, which begins as 0; false: there is none. A
 * compressed one has the encoding of the header grpc-encoding, as *ret_encoding; else it is NULL.
 */
bool net_next_message(const struct net_request *r, size_t *at, const u8 **ret, size_t *ret_n,
		      const char **ret_encoding);

/* Receives the body of a request that is too large for memory. One call at a time. */
struct net_sink {
	/* The next bytes, in order. The sink itself reports an error to the request's handler. */
	void (*part)(void *userdata, const void *data, size_t n);
	/* Called once, when the request was answered or broken off. */
	void (*end)(void *userdata);
	void *userdata;
	u64 max_body;
};

typedef void net_handler(void *userdata, const struct net_request *r, struct net_response *ret);

struct net_tls {
	const char *cert, *key; /* PEM files */
	const char *client_ca;	/* clients must have a certificate of this CA */
};

/* What listeners share: the threads of handlers, the access log, and the counts of each client. */
struct net;

/*
 * access_log: a file that gets a line per request, "-" for standard output, or NULL. Raises the
 * limit of open files of this process as far as it may.
 */
int net_create(const char *access_log, struct diag *reterr_diag, struct net **ret);
/* After its listeners. Waits for handlers that still run. */
void net_destroy(struct net *n);
/* Opens the access log again, after a rotation. */
int net_reopen(struct net *n, struct diag *reterr_diag);
/* Appends the counters of all listeners in Prometheus' text format. Any thread. */
void net_metrics(struct net *n, struct str *out);

/* Sums over all listeners, since their start. */
struct net_events {
	u64 wrong_tokens;
	u64 refused, evicted, handshakes; /* connections; handshakes of TLS that failed */
	u64 queue, memory, time;	  /* requests refused or stopped, by the limit */
};
void net_count_events(struct net *n, struct net_events *ret);

struct net_options {
	struct net *net;     /* borrowed; NULL = one for this listener alone */
	const char *name;    /* static: in metrics and the access log; NULL = "http" or "grpc" */
	const char *address; /* "127.0.0.1:7788", "[::]:4317"; port 0 = any free one */
	int socket;	     /* of net_bind(), owned by the listener; 0 = bind `address` */
	bool grpc;
	const struct net_tls *tls; /* or NULL */
	bool clear_text;	   /* tokens without TLS beyond loopback are allowed */
	const char *tokens;	   /* see tokens.c; or NULL; read again when it changes */
	size_t max_body; /* bytes as sent; 0 = 64 MiB. All requests together: four times that */
	u32 max_connections, timeout_s; /* 0 = 20000, 30 */
	net_handler *handler;
	/*
	 * Of an HTTP listener: the handler of gRPC calls, for clients that begin a connection with
	 * HTTP/2. NULL = such a connection is refused.
	 */
	net_handler *grpc_handler;
	/*
	 * Whether the request writes: writes and questions do not wait for each other. NULL = HTTP
	 * requests are questions, gRPC calls are writes.
	 */
	bool (*writes)(void *userdata, const struct net_request *r);
	/* gRPC: what a call is; an error ends it. NULL = NET_STREAM_NONE. Must not block. */
	enum net_stream (*streams)(void *userdata, const struct net_request *r);
	/* Of each request, while its handler runs; the pool holds the answer until it is sent. */
	struct quota_limits limits;
	/*
	 * Called after a request's header, once the role of its sender is known: true when the body
	 * goes to *ret. NULL = all bodies go to memory. HTTP only. Must not block.
	 */
	bool (*sink)(void *userdata, const struct net_request *r, struct net_sink *ret);
	void *userdata;
};

struct net_stats {
	u64 connections, open, requests;
	u64 unauthorized, too_large, timed_out, broken; /* requests and connections with this end */
};

struct net_listener;

/*
 * Opens a file of certificates, keys or tokens for reading: a descriptor, or a negative errno. Set
 * it before net_listen(); NULL: open(2).
 */
typedef int net_open_file(void *userdata, const char *path);
void net_set_open(net_open_file *fn, void *userdata);

/* A socket that listens at `address`, by the rules of net_listen(): for net_options.socket. */
int net_bind(const struct net_options *o, struct diag *reterr_diag, int *ret_fd);
/* The port at which a socket listens. */
u16 net_port_of(int fd);
int net_listen(const struct net_options *o, struct diag *reterr_diag, struct net_listener **ret);
/*
 * Reads certificate, key and client CA again, for new connections; open connections keep theirs. On
 * an error nothing changes.
 */
int net_reload(struct net_listener *l, struct diag *reterr_diag);
u16 net_port(const struct net_listener *l);
/* Accepts no more connections and requests; net_close() must follow. NULL is fine. */
void net_drain(struct net_listener *l);
/* Accepts no more connections and waits for running requests, for timeout_ms at most. */
void net_close(struct net_listener *l, u32 timeout_ms);
void net_stats(const struct net_listener *l, struct net_stats *ret);
