/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A gRPC connection without a socket: the input arrives in pieces. The length of a call's message
 * decides whether the call is answered at once, later, or after the connection has closed.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "server/net/grpc_session.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct run {
	vec(struct grpc_call *) later;
};

static void on_call(void *userdata, struct grpc_call *c)
{
	struct run *r = userdata;

	grpc_call_run(c);
	if (c->body.n % 3 && vec_push(&r->later, c) == 0)
		return;
	grpc_session_answer(c);
}

static void handler(void *userdata, const struct net_request *r, struct net_response *ret)
{
	(void)net_header(r, "user-agent");
	(void)net_parameter(r, "x");
	str_append(&ret->body, r->body, r->n_body);
	ret->status = r->n_body % 2 ? NET_GRPC_OK : NET_GRPC_INVALID_ARGUMENT;
	memcpy(ret->message, "not % fine\n", 12);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct net_listener l = {
		.o = {.max_body = 4096, .timeout_s = 30, .handler = handler, .address = "fuzz"}};
	struct run r = {};
	struct grpc_session_ops ops = {on_call, &r};
	struct grpc_session *s = NULL;
	struct str out = {};
	size_t piece = size ? data[0] % 64 + 1 : 1;
	int e = 0;

	if (grpc_session_create(&l, "127.0.0.1", &ops, &s) < 0)
		return 0;
	for (size_t at = size ? 1 : 0; at < size && e == 0; at += piece) {
		e = grpc_session_receive(s, data + at, MIN(piece, size - at));
		str_clear(&out);
		(void)grpc_session_send(s, &out);
		if (r.later.n > 2)
			grpc_session_answer(r.later.data[--r.later.n]);
	}
	grpc_session_expire(s, net_now_ms() + 1000000);
	grpc_session_drain(s);
	(void)grpc_session_send(s, &out);
	grpc_session_destroy(s);
	while (r.later.n)
		grpc_session_answer(r.later.data[--r.later.n]);
	/* The budget for bodies must be free again. */
	if (atomic_load(&l.buffered))
		abort();
	vec_deinit(&r.later);
	str_deinit(&out);
	return 0;
}
