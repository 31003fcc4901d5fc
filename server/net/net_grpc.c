/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sockets of gRPC: one thread with epoll for all connections, and a few workers for calls.
 *
 *	loop thread	accepts, reads, feeds sessions, writes; owns connections, sessions and calls
 *	worker		takes a complete call off the queue, runs its handler, puts it on `done`
 *
 * A call whose handler runs when its connection closes lives on without it (grpc_session.h).
 */
#include <errno.h>
#include <gnutls/gnutls.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include "base/log.h"
#include "base/thread.h"
#include "server/net/grpc_session.h"

#define WORKERS 4
#define TICK_MS 250
#define IDLE_MS (15 * 60000ULL)
#define READ_BYTES (32u << 10)
#define READS_AT_ONCE 16 /* then other connections have their turn */

struct conn {
	struct conn *next, **to_this;
	struct net_grpc *g;
	int fd;
	gnutls_session_t tls;		     /* or NULL */
	struct net_credentials *credentials; /* its own reference */
	bool handshaking, wants_out, tls_again, closing;
	struct grpc_session *session;
	struct str out; /* from `out_at` on: not sent yet */
	size_t out_at;
	u64 progress_ms; /* when bytes were last read or written */
	u64 born_ms;
};

struct call_list {
	struct grpc_call *first, **last;
};

struct net_grpc {
	struct net_listener *l;
	gnutls_priority_t priority;
	int epoll, event;
	pthread_t thread, workers[WORKERS];
	u32 n_workers;
	bool has_thread;
	pthread_mutex_t lock; /* of both lists */
	pthread_cond_t wake;
	struct call_list todo, done;
	atomic_bool draining, stopping;
	atomic_uint at_work; /* calls between the lists */
	struct conn *conns;
	u32 n_conns;
};

static void list_push(struct call_list *l, struct grpc_call *c)
{
	c->queue_next = NULL;
	*l->last = c;
	l->last = &c->queue_next;
}

static struct grpc_call *list_pop(struct call_list *l)
{
	struct grpc_call *c = l->first;

	if (!c)
		return NULL;
	l->first = c->queue_next;
	if (!l->first)
		l->last = &l->first;
	return c;
}

static void wake_loop(struct net_grpc *g)
{
	u64 one = 1;

	if (write(g->event, &one, sizeof(one)) < 0)
		log_debug("grpc: cannot wake the loop: %s", strerror(errno));
}

/* ---- workers ---- */

static void *run_calls(void *arg)
{
	struct net_grpc *g = arg;

	pthread_mutex_lock(&g->lock);
	for (;;) {
		struct grpc_call *c = list_pop(&g->todo);

		if (!c && atomic_load(&g->stopping))
			break;
		if (!c) {
			pthread_cond_wait(&g->wake, &g->lock);
			continue;
		}
		pthread_mutex_unlock(&g->lock);
		grpc_call_run(c);
		pthread_mutex_lock(&g->lock);
		list_push(&g->done, c);
		wake_loop(g);
	}
	pthread_mutex_unlock(&g->lock);
	return NULL;
}

static void on_call(void *userdata, struct grpc_call *call)
{
	struct conn *c = userdata;
	struct net_grpc *g = c->g;

	atomic_fetch_add(&g->at_work, 1);
	pthread_mutex_lock(&g->lock);
	list_push(&g->todo, call);
	pthread_cond_signal(&g->wake);
	pthread_mutex_unlock(&g->lock);
}

static void answer_done(struct net_grpc *g)
{
	struct grpc_call *c;

	do {
		pthread_mutex_lock(&g->lock);
		c = list_pop(&g->done);
		pthread_mutex_unlock(&g->lock);
		if (!c)
			return;
		grpc_session_answer(c);
		atomic_fetch_sub(&g->at_work, 1);
	} while (c);
}

/* ---- connections ---- */

static void conn_destroy(struct conn *c)
{
	*c->to_this = c->next;
	if (c->next)
		c->next->to_this = c->to_this;
	c->g->n_conns--;
	atomic_fetch_sub(&c->g->l->counters.open, 1);
	grpc_session_destroy(c->session);
	if (c->tls)
		gnutls_deinit(c->tls);
	net_credentials_put(c->credentials);
	close(c->fd);
	str_deinit(&c->out);
	free(c);
}

static void set_wants_out(struct conn *c, bool out)
{
	struct epoll_event e = {.events = EPOLLIN | (out ? EPOLLOUT : 0), .data.ptr = c};

	if (c->wants_out != out && epoll_ctl(c->g->epoll, EPOLL_CTL_MOD, c->fd, &e) == 0)
		c->wants_out = out;
}

/* The number of bytes, 0 at the end, -EAGAIN, or another error. */
static ssize_t conn_read(struct conn *c, void *buf, size_t n)
{
	ssize_t r;

	if (!c->tls) {
		r = recv(c->fd, buf, n, 0);
		return r < 0 ? -errno : r;
	}
	r = gnutls_record_recv(c->tls, buf, n);
	if (r == GNUTLS_E_AGAIN || r == GNUTLS_E_INTERRUPTED)
		return -EAGAIN;
	return r < 0 ? -EIO : r;
}

static ssize_t conn_write(struct conn *c, const void *buf, size_t n)
{
	ssize_t r;

	if (!c->tls) {
		r = send(c->fd, buf, n, MSG_NOSIGNAL);
		return r < 0 ? -errno : r;
	}
	/* Repeats a send that was interrupted, as gnutls_record_send(3) asks. */
	r = c->tls_again ? gnutls_record_send(c->tls, NULL, 0)
			 : gnutls_record_send(c->tls, buf, MIN(n, (size_t)16384));
	c->tls_again = r == GNUTLS_E_AGAIN || r == GNUTLS_E_INTERRUPTED;
	if (c->tls_again)
		return -EAGAIN;
	return r < 0 ? -EIO : r;
}

/* Sends what can be sent; negative: the connection has ended. */
static int send_pending(struct conn *c)
{
	for (;;) {
		ssize_t n;

		if (c->out_at == c->out.n) {
			str_clear(&c->out);
			c->out_at = 0;
			if (grpc_session_send(c->session, &c->out) < 0)
				return -EIO;
			if (!c->out.n)
				break;
		}
		n = conn_write(c, c->out.data + c->out_at, c->out.n - c->out_at);
		if (n == -EAGAIN) {
			set_wants_out(c, true);
			return 0;
		}
		if (n < 0)
			return -EIO;
		c->out_at += (size_t)n;
		c->progress_ms = net_now_ms();
	}
	set_wants_out(c, false);
	return c->closing || grpc_session_ended(c->session) ? -ESHUTDOWN : 0;
}

static int handshake(struct conn *c)
{
	unsigned int status = ~0u;
	int r = gnutls_handshake(c->tls);

	if (r == GNUTLS_E_AGAIN || r == GNUTLS_E_INTERRUPTED) {
		set_wants_out(c, gnutls_record_get_direction(c->tls) == 1);
		return -EAGAIN;
	}
	if (r < 0)
		return gnutls_error_is_fatal(r) ? -EIO : -EAGAIN;
	if (c->g->l->client_ca &&
	    (gnutls_certificate_verify_peers2(c->tls, &status) < 0 || status != 0)) {
		atomic_fetch_add(&c->g->l->counters.unauthorized, 1);
		return -EACCES;
	}
	c->handshaking = false;
	set_wants_out(c, false);
	return 0;
}

static int receive(struct conn *c)
{
	u8 buf[READ_BYTES];

	for (int i = 0; i < READS_AT_ONCE || (c->tls && gnutls_record_check_pending(c->tls)); i++) {
		ssize_t n = conn_read(c, buf, sizeof(buf));

		if (n == -EAGAIN || n == -EINTR)
			return 0;
		if (n <= 0)
			return -EIO;
		c->progress_ms = net_now_ms();
		if (grpc_session_receive(c->session, buf, (size_t)n) < 0) {
			c->closing = true;
			atomic_fetch_add(&c->g->l->counters.broken, 1);
			return 0;
		}
	}
	return 0;
}

static void conn_event(struct conn *c)
{
	int r = c->handshaking ? handshake(c) : 0;

	if (r == 0)
		r = receive(c);
	if (r == 0)
		r = send_pending(c);
	if (r < 0 && r != -EAGAIN)
		conn_destroy(c);
}

static int start_tls(struct conn *c)
{
	const gnutls_datum_t h2 = {(u8 *)"h2", 2};
	int r = gnutls_init(&c->tls, GNUTLS_SERVER | GNUTLS_NONBLOCK | GNUTLS_NO_SIGNAL);

	if (r == 0)
		r = gnutls_priority_set(c->tls, c->g->priority);
	if (r == 0)
		c->credentials = net_credentials_give(c->g->l, c->tls);
	if (r == 0 && !c->credentials)
		return -EIO;
	if (r == 0)
		r = gnutls_alpn_set_protocols(c->tls, &h2, 1, 0);
	if (r < 0)
		return -EIO;
	if (c->g->l->client_ca)
		gnutls_certificate_server_set_request(c->tls, GNUTLS_CERT_REQUIRE);
	gnutls_transport_set_int(c->tls, c->fd);
	c->handshaking = true;
	return 0;
}

static void conn_create(struct net_grpc *g, int fd, const struct sockaddr *peer)
{
	struct conn *c = calloc(1, sizeof(*c));
	struct grpc_session_ops ops = {on_call, c};
	struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
	char name[64];
	int one = 1;

	if (!c) {
		close(fd);
		return;
	}
	*c = (struct conn){.g = g, .fd = fd, .born_ms = net_now_ms(), .next = g->conns};
	c->progress_ms = c->born_ms;
	c->to_this = &g->conns;
	if (c->next)
		c->next->to_this = &c->next;
	g->conns = c;
	g->n_conns++;
	atomic_fetch_add(&g->l->counters.open, 1);
	atomic_fetch_add(&g->l->counters.connections, 1);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	net_peer_name(peer, name);
	if (grpc_session_create(g->l, name, &ops, &c->session) < 0 ||
	    (g->l->tls && start_tls(c) < 0) || epoll_ctl(g->epoll, EPOLL_CTL_ADD, fd, &e) < 0) {
		conn_destroy(c);
		return;
	}
	if (!c->handshaking && send_pending(c) < 0)
		conn_destroy(c);
}

static void accept_all(struct net_grpc *g)
{
	for (;;) {
		struct sockaddr_storage peer = {};
		socklen_t n = sizeof(peer);
		int fd = accept4(g->l->fd, (struct sockaddr *)&peer, &n,
				 SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd < 0)
			return;
		if (g->n_conns >= g->l->o.max_connections)
			close(fd);
		else
			conn_create(g, fd, (struct sockaddr *)&peer);
	}
}

/* ---- the loop ---- */

/* Whether the handshake takes too long, or nothing is read or written for too long. */
static bool is_overdue(const struct conn *c, u64 now)
{
	u64 timeout = 2000ULL * c->g->l->o.timeout_s;
	bool busy = c->handshaking || c->closing || c->out.n > c->out_at;

	if ((c->handshaking || !grpc_session_greeted(c->session)) && now - c->born_ms > timeout)
		return true;
	return now - c->progress_ms > (busy ? timeout : IDLE_MS) && !grpc_session_calls(c->session);
}

static void check_connections(struct net_grpc *g)
{
	struct conn *next;
	u64 now = net_now_ms();

	for (struct conn *c = g->conns; c; c = next) {
		next = c->next;
		grpc_session_expire(c->session, now);
		if (is_overdue(c, now)) {
			atomic_fetch_add(&g->l->counters.timed_out, 1);
			conn_destroy(c);
		} else if (!c->handshaking && send_pending(c) < 0) {
			conn_destroy(c);
		}
	}
}

static void begin_draining(struct net_grpc *g)
{
	struct conn *next;

	epoll_ctl(g->epoll, EPOLL_CTL_DEL, g->l->fd, NULL);
	close(g->l->fd);
	g->l->fd = -1;
	for (struct conn *c = g->conns; c; c = next) {
		next = c->next;
		if (c->handshaking) {
			conn_destroy(c);
			continue;
		}
		grpc_session_drain(c->session);
		if (send_pending(c) < 0)
			conn_destroy(c);
	}
}

static void *run_loop(void *arg)
{
	struct net_grpc *g = arg;
	struct epoll_event events[64];
	u64 checked_ms = net_now_ms(), count;
	bool draining = false;

	while (!atomic_load(&g->stopping)) {
		int n = epoll_wait(g->epoll, events, ARRAY_SIZE(events), TICK_MS);

		for (int i = 0; i < n; i++) {
			if (events[i].data.ptr == g)
				accept_all(g);
			else if (events[i].data.ptr == &g->event)
				(void)!read(g->event, &count, sizeof(count));
			else
				conn_event(events[i].data.ptr);
		}
		if (atomic_load(&g->draining) && !draining) {
			begin_draining(g);
			draining = true;
		}
		answer_done(g);
		if (n > 0 || net_now_ms() - checked_ms >= TICK_MS) {
			check_connections(g);
			checked_ms = net_now_ms();
		}
	}
	return NULL;
}

/* ---- start and stop ---- */

static int start_threads(struct net_grpc *g)
{
	struct epoll_event accepting = {.events = EPOLLIN, .data.ptr = g};
	struct epoll_event waking = {.events = EPOLLIN, .data.ptr = &g->event};

	g->epoll = epoll_create1(EPOLL_CLOEXEC);
	g->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (g->epoll < 0 || g->event < 0 ||
	    epoll_ctl(g->epoll, EPOLL_CTL_ADD, g->l->fd, &accepting) < 0 ||
	    epoll_ctl(g->epoll, EPOLL_CTL_ADD, g->event, &waking) < 0)
		return -errno;
	for (; g->n_workers < WORKERS; g->n_workers++)
		if (thread_start(&g->workers[g->n_workers], "grpc-worker", run_calls, g) < 0)
			return -EAGAIN;
	g->has_thread = thread_start(&g->thread, "grpc-loop", run_loop, g) == 0;
	return g->has_thread ? 0 : -EAGAIN;
}

int net_grpc_start(struct net_listener *l, struct diag *reterr_diag)
{
	struct net_grpc *g = calloc(1, sizeof(*g));
	int r;

	if (!g)
		return -ENOMEM;
	g->l = l;
	g->epoll = g->event = -1;
	g->todo.last = &g->todo.first;
	g->done.last = &g->done.first;
	thread_sync_init(&g->lock, &g->wake);
	l->grpc = g;
	r = l->tls && gnutls_priority_init(&g->priority, NET_TLS_PRIORITY, NULL) < 0
		    ? -EINVAL
		    : start_threads(g);
	if (r < 0) {
		net_grpc_stop(l, 0);
		return diag_set(reterr_diag, r, "%s: cannot start: %s", l->o.address, strerror(-r));
	}
	return 0;
}

void net_grpc_stop(struct net_listener *l, u32 timeout_ms)
{
	struct net_grpc *g = l->grpc;
	u64 until = net_now_ms() + timeout_ms;
	const struct timespec tick = {.tv_nsec = 10000000};

	atomic_store(&g->draining, true);
	if (g->has_thread)
		wake_loop(g);
	while (g->has_thread && atomic_load(&g->at_work) && net_now_ms() < until)
		nanosleep(&tick, NULL);
	/* Let the loop send the last answers. */
	for (int i = 0; g->has_thread && i < 5; i++)
		nanosleep(&tick, NULL);
	atomic_store(&g->stopping, true);
	pthread_mutex_lock(&g->lock);
	pthread_cond_broadcast(&g->wake);
	pthread_mutex_unlock(&g->lock);
	if (g->has_thread) {
		wake_loop(g);
		pthread_join(g->thread, NULL);
	}
	for (u32 i = 0; i < g->n_workers; i++)
		pthread_join(g->workers[i], NULL);
	while (g->conns)
		conn_destroy(g->conns);
	answer_done(g);
	if (g->epoll >= 0)
		close(g->epoll);
	if (g->event >= 0)
		close(g->event);
	if (g->priority)
		gnutls_priority_deinit(g->priority);
	pthread_mutex_destroy(&g->lock);
	pthread_cond_destroy(&g->wake);
	free(g);
	l->grpc = NULL;
}
