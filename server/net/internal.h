/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of this folder share. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>

#include "base/log.h"
#include "server/net/net.h"
#include "server/net/pool.h"

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

/* ---- files that only the server's owner may read (files.c) ---- */

/* As open(2) with O_RDONLY: see net_set_open(). */
int net_open_secret(const char *path);

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

/* Reasons for which a connection is refused or ended, with the text of the log. */
#define NET_ENDS(X)                                                                                \
	X(FULL, "full", "refused: all places are taken (--max-connections)")                       \
	X(SHARE, "share", "refused: its address holds its share of all places")                    \
	X(FILES, "files", "refused: this process may open no more files (ulimit -n)")              \
	X(EVICTED, "evicted", "closed for a newer one: it had sent no authorized request")         \
	X(NO_REQUEST, "no_request", "closed: it sent no authorized request in time")               \
	X(SLOW, "slow", "closed: a request or its answer took too long")                           \
	X(IDLE, "idle", "closed: it was idle")                                                     \
	X(PROTOCOL, "protocol", "closed: it does not speak the protocol of this port")             \
	X(TLS, "tls", "closed: the TLS handshake failed")
enum net_end {
#define X(id, name, text) NET_END_##id,
	NET_ENDS(X)
#undef X
		NET_N_ENDS
};

/* Why a request is refused or stopped that was allowed and could be read. */
#define NET_STOPS(X)                                                                               \
	X(QUEUE, "queue", "refused: too many requests wait")                                       \
	X(MEMORY, "memory", "stopped: it needed more than half of --request-memory")               \
	X(ALL_MEMORY, "all_memory", "stopped: all requests together took --request-memory")        \
	X(TIME, "time", "stopped: it took longer than --query-timeout or --query-cpu")
enum net_stop {
#define X(id, name, text) NET_STOP_##id,
	NET_STOPS(X)
#undef X
		NET_N_STOPS
};

struct net_counters {
	atomic_ullong connections, open, requests, unauthorized, too_large, timed_out, broken;
	atomic_ullong received, sent;	    /* bytes */
	atomic_ullong ended[NET_N_ENDS];    /* connections by reason */
	atomic_ullong answers[6];	    /* requests by class of their HTTP status */
	atomic_ullong stopped[NET_N_STOPS]; /* requests by reason */
	atomic_ullong bad_tokens;
};

/* Lets a line through once a second, and counts what it holds back. Any thread. */
struct net_notice {
	atomic_ullong second;
	atomic_uint held_back;
};

/* Whether the line is due; *ret_more: how many were held back since the last one. */
bool net_notice_is_due(struct net_notice *n, u32 *ret_more);

struct net_loop;
struct net_call;
TAILQ_HEAD(net_conn_list, net_conn);

/* Loops of one listener: TLS handshakes and large answers use several cores. */
#define NET_MAX_LOOPS 4
#define NET_MAX_LISTENERS 8

struct net_log;

struct net {
	struct net_pool *pool; /* owned */
	/* Gives a call to the pool; tests of sessions have none. */
	int (*submit)(struct net *n, enum pool_class class, struct net_call *c);
	struct net_log *log;  /* owned; NULL = none */
	pthread_mutex_t lock; /* of the members below */
	struct net_peer *peers[1024];
	struct net_listener *listeners[NET_MAX_LISTENERS];
	u32 max_open;	  /* connections of all listeners: the limit of open files allows no more */
	atomic_uint open; /* of all listeners */
	atomic_bool told; /* the log has a line about max_open */
};

struct net_listener {
	const char *name;	   /* static */
	struct net_options o;	   /* with defaults; strings are valid during net_listen() only */
	struct net_tokens *tokens; /* owned; NULL = none */
	bool tls, client_ca;
	char *cert, *key, *ca;		     /* owned: paths of the PEM files */
	pthread_mutex_t lock;		     /* of the next two */
	struct net_conn_list strangers;	     /* not trusted yet, the oldest first */
	struct net_credentials *credentials; /* a reference; NULL without TLS */
	int fd;				     /* owned until the listener runs */
	u16 port;
	atomic_ullong buffered; /* bytes of bodies in memory */
	struct net_counters counters;
	struct net_notice notices[NET_N_ENDS], stop_notices[NET_N_STOPS], token_notice;
	struct net *net; /* borrowed, or owned: */
	bool owns_net;
	struct net_loop *loops[NET_MAX_LOOPS];
	u32 n_loops;
};

/* Takes bytes from the budget for bodies; false: fewer bytes are left. */
bool net_buffer_take(struct net_listener *l, size_t n);
void net_buffer_give(struct net_listener *l, size_t n);
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

/* Counts and logs. `peer` may be NULL. */
void net_note_end(struct net_listener *l, enum net_end why, const char *peer);
void net_note_stop(struct net_listener *l, enum net_stop why, const char *peer);
void net_note_bad_token(struct net_listener *l, const char *peer);

/* ---- clients (peers.c) ---- */

/*
 * A reference to the client with this address, or NULL: no memory. All IPv6 addresses of a /64 are
 * one client, whose name is the first of them.
 */
struct net_peer *net_peer_get(struct net *n, const struct sockaddr *a);
struct net_peer *net_peer_ref(struct net *n, struct net_peer *p);
void net_peer_put(struct net *n, struct net_peer *p);

/* ---- a request and its answer (call.c) ---- */

struct net_session;

/*
 * The session owns it, except while `working`: then it lives on without its session, when the
 * connection or the stream ends, until the loop takes it back from the worker.
 */
struct net_call {
	struct pool_job job;
	struct net_listener *l;
	struct net_loop *loop;	     /* of the session */
	struct net_session *session; /* NULL once the connection or the stream is gone */
	struct net_request request;
	struct net_sender sender; /* of the request, whose strings are here */
	struct net_response response;
	/* 1: the client has closed its side, and may not wait any more; 2: it is lost. */
	atomic_int gone;
	bool working;
	bool is_part; /* run() takes a part of the request, which must not be left out */
	u64 queued_ms;
	u64 received;		   /* bytes of the body as sent, for the log */
	u64 began_ms, deadline_ms; /* monotonic; deadline: the client's, 0 = none */
	u64 cpu_ns;
	size_t held;	      /* bytes of the answer, in the pool of the quotas */
	const char *log_path; /* path and query for the log; NULL: request.path */
	struct net_call *done_next;
	void (*run)(struct net_call *c);  /* in a worker, unless the client is lost */
	void (*pack)(struct net_call *c); /* compresses the answer, under the quota; or NULL */
	/* After run(). On the loop; frees the call if its session is NULL. */
	void (*done)(struct net_call *c);
};

/*
 * Gives a complete call to a worker, which gives the call to done(). -EBUSY: too many are queued.
 * The caller sets run, done and what run() needs.
 */
int net_call_submit(struct net_call *c, enum pool_class class);
/* For net.submit. */
int net_submit(struct net *n, enum pool_class class, struct net_call *c);
/* A call of the session. Holds its client. */
void net_call_init(struct net_call *c, struct net_session *s);
/* Sets the sender, by the request's Authorization header or NULL. Returns whether it has a role. */
bool net_call_identify(struct net_call *c, const char *authorization);
void net_call_deinit(struct net_call *c);
/* Runs the listener's handler, in this thread. */
void net_call_run(struct net_call *c);
/* Counts the answer and writes its line of the access log. status: HTTP's, or gRPC's. */
void net_call_log(const struct net_call *c, int status, u64 bytes);

int net_log_open(const char *path, struct diag *reterr_diag, struct net_log **ret);
int net_log_reopen(struct net_log *g, struct diag *reterr_diag);
void net_log_close(struct net_log *g);
void net_log_put(struct net_log *g, const struct net_call *c, int status, u64 bytes);

/* ---- a connection without its socket (http_session.c, grpc_session.c) ---- */

struct net_session_ops {
	void (*destroy)(struct net_session *s);
	/* Negative: close the connection after sending the rest, which tells the client why. */
	int (*receive)(struct net_session *s, const u8 *data, size_t n);
	/* Appends what is to be sent next, about 64 KiB at most. */
	int (*send)(struct net_session *s, struct str *out);
	/* Whether both sides are done. */
	bool (*ended)(const struct net_session *s);
	/* Whether it takes more bytes now. */
	bool (*wants)(const struct net_session *s);
	/*
	 * When the client must have sent or taken what it is sending or taking now; 0 = nothing is
	 * on its way.
	 */
	u64 (*deadline)(const struct net_session *s);
	/* Ends those of several requests that are overdue. */
	void (*expire)(struct net_session *s, u64 now_ms);
	/* Accepts no more requests. */
	void (*drain)(struct net_session *s);
	/* The client has closed its side. */
	void (*hangup)(struct net_session *s);
};

struct net_session {
	const struct net_session_ops *ops;
	struct net_listener *l;
	struct net_peer *peer; /* borrowed from the connection */
	struct net_loop *loop;
	void *conn; /* the loop's */
	bool grpc;
	bool certified; /* TLS: the client has a certificate of the CA */
	bool trusted;	/* it has sent an authorized request */
	bool lingers;	/* after the end it drops what the client still sends */
	u32 calls;	/* requests whose answers are not sent yet */
	u64 rest_ms;	/* when the last answer was sent */
};

/* gRPC's frames (grpc_frame.c): a byte that says whether it is compressed, and four of length. */
#define NET_FRAME_BYTES 5
/* The bytes of the first whole message in the data, or of all of them. */
size_t net_whole_messages(const u8 *data, size_t n, bool all);

int http_session_create(struct net_listener *l, struct net_peer *peer, struct net_session **ret);
int grpc_session_create(struct net_listener *l, struct net_peer *peer, struct net_session **ret);

/* ---- sockets (loop.c) ---- */

/* Takes the call back when its handler has run. Any thread. */
void net_loop_done(struct net_call *c);
/* Counts calls that are with workers. Any thread. */
void net_loop_working(struct net_loop *o, int calls);

int net_loops_start(struct net_listener *l, struct diag *reterr_diag);
/* Accepts no more connections and no more requests. */
void net_loops_drain(struct net_listener *l);
/* Waits for running requests, then ends all. */
void net_loops_stop(struct net_listener *l, u32 timeout_ms);

u64 net_now_ms(void); /* monotonic */
