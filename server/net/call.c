/* SPDX-License-Identifier: Apache-2.0 */
/* A request on its way through the pool, and what is counted, logged and told of it. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "server/net/internal.h"

#define HALF_CLOSED_MS 1000

bool net_notice_is_due(struct net_notice *n, u32 *ret_more)
{
	u64 now = net_now_ms() / 1000 + 1, last = atomic_load(&n->second);

	if (last == now || !atomic_compare_exchange_strong(&n->second, &last, now)) {
		atomic_fetch_add(&n->held_back, 1);
		return false;
	}
	*ret_more = atomic_exchange(&n->held_back, 0);
	return true;
}

static void notice(struct net_listener *l, struct net_notice *n, const char *what, const char *peer,
		   const char *text)
{
	char more[64] = "";
	u32 held_back;

	if (!net_notice_is_due(n, &held_back))
		return;
	if (held_back)
		snprintf(more, sizeof(more), " (and %u before)", held_back);
	log_warn("%s: %s of %s %s%s", l->name, what, peer ? peer : "a client", text, more);
}

void net_note_end(struct net_listener *l, enum net_end why, const char *peer)
{
	static const char *const texts[] = {
#define X(id, name, text) [NET_END_##id] = (text),
		NET_ENDS(X)
#undef X
	};

	atomic_fetch_add(&l->counters.ended[why], 1);
	if (why != NET_END_IDLE)
		notice(l, &l->notices[why], "connection", peer, texts[why]);
}

void net_note_stop(struct net_listener *l, enum net_stop why, const char *peer)
{
	static const char *const texts[] = {
#define X(id, name, text) [NET_STOP_##id] = (text),
		NET_STOPS(X)
#undef X
	};

	atomic_fetch_add(&l->counters.stopped[why], 1);
	notice(l, &l->stop_notices[why], "a request", peer, texts[why]);
}

void net_note_bad_token(struct net_listener *l, const char *peer)
{
	atomic_fetch_add(&l->counters.bad_tokens, 1);
	notice(l, &l->token_notice, "a request", peer, "refused: its token is not in --token-file");
}

/* ---- handlers ---- */

void net_call_init(struct net_call *c, struct net_session *s)
{
	c->l = s->l;
	c->session = s;
	c->loop = s->loop;
	c->job.peer = net_peer_ref(s->l->net, s->peer);
	c->began_ms = net_now_ms();
	c->request.peer = s->peer->name;
	c->run = net_call_run;
	atomic_fetch_add(&s->l->counters.requests, 1);
	s->calls++;
}

bool net_call_identify(struct net_call *c, const char *authorization)
{
	c->sender = c->l->tokens ? net_tokens_sender(c->l->tokens, authorization)
				 : (struct net_sender){.role = NET_ROLE_ADMIN};
	c->request.role = c->sender.role;
	c->request.token_name = c->sender.name;
	c->request.host = c->sender.host;
	return c->sender.role != NET_ROLE_NONE;
}

void net_call_deinit(struct net_call *c)
{
	net_peer_put(c->l->net, c->job.peer);
	str_deinit(&c->response.body);
	quota_pool_release(c->l->o.limits.pool, c->held);
}

static bool is_gone(void *userdata)
{
	const struct net_call *c = userdata;

	return atomic_load(&c->gone) > 0;
}

/* r: of quota_check(). */
static void note_quota(struct net_call *c, int r)
{
	if (r == -EDQUOT)
		net_note_stop(c->l, NET_STOP_MEMORY, c->request.peer);
	else if (r == -ENOMEM)
		net_note_stop(c->l, NET_STOP_ALL_MEMORY, c->request.peer);
	else if (r == -ETIMEDOUT)
		net_note_stop(c->l, NET_STOP_TIME, c->request.peer);
}

void net_call_run(struct net_call *c)
{
	u64 cpu_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID), now = net_now_ms(), left_ns;
	const struct net_options *o = &c->l->o;
	struct quota q = {.limits = c->l->o.limits, .gone = is_gone, .userdata = c};

	if (c->deadline_ms) {
		left_ns = c->deadline_ms > now ? (c->deadline_ms - now) * 1000000 : 1;
		if (!q.limits.time_ns || q.limits.time_ns > left_ns)
			q.limits.time_ns = left_ns;
	}
	quota_begin(&q);
	(c->request.grpc && o->grpc_handler ? o->grpc_handler
					    : o->handler)(o->userdata, &c->request, &c->response);
	if (c->pack)
		c->pack(c);
	c->held = c->response.body.cap;
	quota_pool_hold(q.limits.pool, c->held);
	quota_end(&q);
	note_quota(c, q.why);
	c->cpu_ns += clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu_ns;
}

/*
 * Whether nobody waits for the answer of a call that was queued. A client that has only closed its
 * side may wait, but not for long.
 */
static bool is_too_late(struct net_call *c)
{
	u64 now = net_now_ms();
	int gone = atomic_load(&c->gone);

	if (c->deadline_ms && c->deadline_ms <= now)
		c->response.status = NET_GRPC_DEADLINE_EXCEEDED;
	else if (gone > 1 || (gone && !c->is_part && now - c->queued_ms > HALF_CLOSED_MS))
		c->response.status = c->request.grpc ? NET_GRPC_UNAVAILABLE : 503;
	else
		return false;
	return true;
}

static void run_job(struct pool_job *j)
{
	struct net_call *c = container_of(j, struct net_call, job);

	if (!is_too_late(c))
		c->run(c);
}

static void job_done(struct pool_job *j)
{
	net_loop_done(container_of(j, struct net_call, job));
}

int net_submit(struct net *n, enum pool_class class, struct net_call *c)
{
	int r;

	c->job.run = run_job;
	c->job.done = job_done;
	net_loop_working(c->loop, 1);
	r = pool_submit(n->pool, class, &c->job);
	if (r < 0)
		net_loop_working(c->loop, -1);
	return r;
}

int net_call_submit(struct net_call *c, enum pool_class class)
{
	int r;

	c->working = true;
	c->queued_ms = net_now_ms();
	r = c->l->net->submit(c->l->net, class, c);
	if (r < 0) {
		c->working = false;
		net_note_stop(c->l, NET_STOP_QUEUE, c->request.peer);
	}
	return r;
}

/* The HTTP status that says the same as a status of gRPC, for counters. */
static int http_status(int grpc)
{
	switch (grpc) {
	case NET_GRPC_OK:
		return 200;
	case NET_GRPC_UNAVAILABLE:
	case NET_GRPC_INTERNAL:
	case NET_GRPC_UNKNOWN:
	case NET_GRPC_DEADLINE_EXCEEDED:
		return 500;
	default:
		return 400;
	}
}

void net_call_log(const struct net_call *c, int status, u64 bytes)
{
	int class = (c->request.grpc && status < 100 ? http_status(status) : status) / 100;

	atomic_fetch_add(&c->l->counters.answers[MIN((u32) class, 5u)], 1);
	if (c->l->net->log)
		net_log_put(c->l->net->log, c, status, bytes);
}
