/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection without a socket: the input arrives in pieces. The length of a request's body
 * decides whether the request is answered at once, later, or after the connection has closed.
 */
#pragma once

#include <arpa/inet.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/vec.h"
#include "server/net/internal.h"

struct fuzz_net {
	struct net net;
	vec(struct net_call *) later;
};

/* Looks at a request, and answers with its body. */
static void fuzz_echo(const struct net_request *r, struct net_response *ret)
{
	(void)net_header(r, "user-agent");
	(void)net_parameter(r, "x");
	str_append(&ret->body, r->body, r->n_body);
}

static void fuzz_answer(struct net_call *c)
{
	if (atomic_load(&c->gone) < 2)
		c->run(c);
	c->working = false;
	c->done(c);
}

static int fuzz_submit(struct net *n, enum pool_class class, struct net_call *c)
{
	struct fuzz_net *f = container_of(n, struct fuzz_net, net);

	(void)class;
	if (f->later.n > 8)
		return -EBUSY;
	return vec_push(&f->later, c);
}

/* Ends requests that were not kept for later, and some of those that were. */
static void fuzz_work(struct fuzz_net *f, size_t keep)
{
	while (f->later.n > keep ||
	       (f->later.n && f->later.data[f->later.n - 1]->received % 3 == 0))
		fuzz_answer(f->later.data[--f->later.n]);
}

static void fuzz_session(const uint8_t *data, size_t size, struct net_listener *l,
			 int (*create)(struct net_listener *, struct net_peer *,
				       struct net_session **))
{
	const struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = 0x0100007f};
	struct fuzz_net f = {.net = {.lock = PTHREAD_MUTEX_INITIALIZER, .submit = fuzz_submit}};
	struct net_peer *peer = net_peer_get(&f.net, (const struct sockaddr *)&a);
	size_t piece = size ? data[0] % 64 + 1 : 1;
	struct net_session *s = NULL;
	struct str out = {};
	int e = 0;

	l->net = &f.net;
	if (!peer || create(l, peer, &s) < 0) {
		l->net = NULL;
		return;
	}
	for (size_t at = size ? 1 : 0; at < size && e == 0; at += piece) {
		if (s->ops->wants(s))
			e = s->ops->receive(s, data + at, MIN(piece, size - at));
		do {
			fuzz_work(&f, 2);
			str_clear(&out);
			(void)s->ops->send(s, &out);
		} while (out.n);
	}
	s->ops->expire(s, net_now_ms() + 1000000);
	(void)s->ops->deadline(s);
	s->ops->hangup(s);
	s->ops->drain(s);
	(void)s->ops->send(s, &out);
	(void)s->ops->ended(s);
	s->ops->destroy(s);
	fuzz_work(&f, 0);
	/* The budget for bodies must be free again, and nobody may hold the client. */
	if (atomic_load(&l->buffered) || peer->refs != 1)
		abort();
	net_peer_put(&f.net, peer);
	l->net = NULL;
	vec_deinit(&f.later);
	str_deinit(&out);
}
