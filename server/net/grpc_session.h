/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One HTTP/2 connection that carries unary gRPC calls, without its socket: bytes in, bytes out.
 * Belongs to one thread; only the call that it handed out may be worked on by another.
 */
#pragma once

#include "base/vec.h"
#include "server/net/internal.h"

struct grpc_session;

struct grpc_header {
	char *name, *value; /* owned */
};

struct grpc_call {
	struct grpc_session *session;	   /* NULL once the stream or the connection is gone */
	struct grpc_call *next, **to_this; /* in the session */
	struct grpc_call *queue_next;	   /* the socket layer's */
	struct net_listener *l;
	s32 id;
	char *path; /* owned; NULL until it was sent */
	vec(struct grpc_header) headers;
	size_t header_bytes;
	struct str body; /* as received: with the frame's five bytes */
	size_t charged;
	u64 deadline_ms; /* for the whole request; 0 = it is here */
	enum net_role role;
	bool post, answered, working;
	bool refused; /* answered before the request was whole */
	char peer[64];
	/* The answer. */
	struct net_response response;
	struct str framed;
	size_t sent;
};

struct grpc_session_ops {
	/* A whole call: ends in grpc_session_answer(), now or later. */
	void (*call)(void *userdata, struct grpc_call *c);
	void *userdata;
};

int grpc_session_create(struct net_listener *l, const char *peer,
			const struct grpc_session_ops *ops, struct grpc_session **ret);
/* Calls at work live on, without a session, until they are answered. */
void grpc_session_destroy(struct grpc_session *s);
/* Negative: close the connection (what is left to be sent says why). */
int grpc_session_receive(struct grpc_session *s, const u8 *data, size_t n);
/* Appends what is to be sent, at most about 64 KiB. */
int grpc_session_send(struct grpc_session *s, struct str *out);
/* Neither side has anything more to say. */
bool grpc_session_ended(const struct grpc_session *s);
/* Whether the client speaks HTTP/2 at all. */
bool grpc_session_greeted(const struct grpc_session *s);
/* Takes no more calls. */
void grpc_session_drain(struct grpc_session *s);
size_t grpc_session_calls(const struct grpc_session *s);
/* Ends calls whose request takes too long. */
void grpc_session_expire(struct grpc_session *s, u64 now_ms);

/* Runs the listener's handler; on any thread. */
void grpc_call_run(struct grpc_call *c);
/* Sends c->response; frees the call when its stream is gone. */
void grpc_session_answer(struct grpc_call *c);
