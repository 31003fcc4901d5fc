/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An HTTP/2 connection with unary gRPC calls, without its socket: bytes in, bytes out. A session
 * belongs to one thread. Another thread may use only a call that the session has handed out.
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
	struct grpc_call *queue_next;	   /* for the socket layer */
	struct net_listener *l;
	s32 id;
	char *path; /* owned; NULL until it was received */
	vec(struct grpc_header) headers;
	size_t header_bytes;
	struct str body; /* as received, with the five bytes before the message */
	size_t charged;	 /* bytes taken from the budget for bodies */
	u64 deadline_ms; /* when the request must be complete; 0 = it is complete */
	struct net_sender sender;
	bool post, answered, working;
	bool refused; /* answered before the request was complete */
	char peer[64];
	/* The answer. */
	struct net_response response;
	struct str framed;
	size_t sent;
};

struct grpc_session_ops {
	/* Gets a complete call; grpc_session_answer() must follow, now or later. */
	void (*call)(void *userdata, struct grpc_call *c);
	void *userdata;
};

int grpc_session_create(struct net_listener *l, const char *peer,
			const struct grpc_session_ops *ops, struct grpc_session **ret);
/* Calls that were handed out live on without a session until they are answered. */
void grpc_session_destroy(struct grpc_session *s);
/* Negative: close the connection after sending the rest, which tells the client why. */
int grpc_session_receive(struct grpc_session *s, const u8 *data, size_t n);
/* Appends what is to be sent next, about 64 KiB at most. */
int grpc_session_send(struct grpc_session *s, struct str *out);
/* Whether both sides are done. */
bool grpc_session_ended(const struct grpc_session *s);
/* Whether the client's first SETTINGS came. */
bool grpc_session_greeted(const struct grpc_session *s);
/* Accepts no more calls. */
void grpc_session_drain(struct grpc_session *s);
size_t grpc_session_calls(const struct grpc_session *s);
/* Ends calls whose requests are not complete in time. */
void grpc_session_expire(struct grpc_session *s, u64 now_ms);

/* Runs the listener's handler. On any thread. */
void grpc_call_run(struct grpc_call *c);
/* Sends c->response; frees the call when its stream is gone. */
void grpc_session_answer(struct grpc_call *c);
