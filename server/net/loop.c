/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sockets of a listener: a few threads with epoll, each with connections of its own.
 *
 *	loop thread	accepts, shakes hands, reads, feeds sessions, writes; owns its connections,
 *			their sessions and calls
 *	worker		runs the handler of a complete call (pool.h), then gives it back: `done`
 *
 * A connection that is idle costs memory, and no time: its loop wakes for bytes, for calls that are
 * done and for the timer that is next.
 *
 * A TLS handshake takes a quarter of a millisecond of CPU time. Connections that shake hands wait
 * in an epoll of their own, and a turn of the loop serves few of them, so that others do not wait
 * for a fleet that connects at once.
 *
 * Places: a listener has max_connections, one client half of them, and the limit of open files
 * bounds all listeners together. A connection that has not sent an authorized request keeps its
 * place for FIRST_MS at most, and gives it up to a newer one when no place is left, the oldest
 * first.
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

#include "base/thread.h"
#include "server/net/internal.h"
#include "server/net/timers.h"

#define FIRST_MS 10000
#define GRPC_IDLE_MS (15 * 60000ULL)
#define READ_BYTES (32u << 10)
#define KEEP_OUT_BYTES 1024 /* of an idle connection */
#define READS_AT_ONCE 16    /* then other connections have their turn */
#define ACCEPTS_AT_ONCE 64
#define HANDSHAKES_AT_ONCE 8
#define ACCEPT_AGAIN_MS 100
#define LOOK_FOR_OWN 64 /* connections, for one of the same client */

struct net_conn {
	TAILQ_ENTRY(net_conn) all, strangers;
	struct net_loop *loop;
	struct net_peer *peer;
	int fd;
	u32 events;			     /* that epoll waits for */
	gnutls_session_t tls;		     /* or NULL */
	struct net_credentials *credentials; /* its own reference */
	bool handshaking, tls_again, closing, hung_up, shut, spoke, known;
	bool waits_apart; /* in the loop's epoll for handshakes */
	bool is_stranger; /* under the lock of the listener: it is in that list */
	struct net_session *session;
	struct str out; /* from `out_at` on: not sent yet */
	size_t out_at;
	u64 progress_ms; /* when bytes were last read or written */
	u64 born_ms;
	struct net_timer timer;
};

struct net_loop {
	struct net_listener *l;
	gnutls_priority_t priority;
	int epoll, event;
	int handshakes; /* epoll of connections that shake hands, which is in `epoll` */
	pthread_t thread;
	bool has_thread, drains;
	pthread_mutex_t lock; /* of `done` */
	struct net_call *done, **done_last;
	atomic_bool draining, stopping;
	atomic_int at_work; /* calls that are with workers, or done */
	struct net_timers timers;
	u64 accept_ms; /* when to accept again; 0 = now */
	struct net_conn_list conns;
};

void net_loop_working(struct net_loop *o, int calls)
{
	atomic_fetch_add(&o->at_work, calls);
}

static void wake_loop(struct net_loop *o)
{
	u64 one = 1;

	if (write(o->event, &one, sizeof(one)) < 0)
		log_debug("net: cannot wake the loop: %s", strerror(errno));
}

void net_loop_done(struct net_call *c)
{
	struct net_loop *o = c->loop;

	c->done_next = NULL;
	pthread_mutex_lock(&o->lock);
	*o->done_last = c;
	o->done_last = &c->done_next;
	wake_loop(o);
	pthread_mutex_unlock(&o->lock);
}

/* ---- connections ---- */

/* It is trusted now, or at its end. */
static void forget_stranger(struct net_conn *c)
{
	struct net_listener *l = c->loop->l;

	pthread_mutex_lock(&l->lock);
	if (c->is_stranger)
		TAILQ_REMOVE(&l->strangers, c, strangers);
	c->is_stranger = false;
	pthread_mutex_unlock(&l->lock);
}

static void conn_destroy(struct net_conn *c)
{
	struct net_loop *o = c->loop;

	TAILQ_REMOVE(&o->conns, c, all);
	forget_stranger(c);
	net_timer_clear(&o->timers, &c->timer);
	atomic_fetch_sub(&o->l->counters.open, 1);
	atomic_fetch_sub(&o->l->net->open, 1);
	atomic_fetch_sub(&c->peer->open, 1);
	if (c->session)
		c->session->ops->destroy(c->session);
	if (c->tls)
		gnutls_deinit(c->tls);
	net_credentials_put(c->credentials);
	close(c->fd);
	str_deinit(&c->out);
	net_peer_put(o->l->net, c->peer);
	free(c);
}

/* Why the connection has to end at this time, and when that is; 0 = it need not. */
static u64 conn_end(const struct net_conn *c, enum net_end *ret_why)
{
	const struct net_listener *l = c->loop->l;
	const struct net_session *s = c->session;
	u64 patience = 2000ULL * l->o.timeout_s, first = MIN(patience, (u64)FIRST_MS);
	u64 end = s->ops->deadline(s);

	*ret_why = NET_END_SLOW;
	if (c->closing || c->out_at < c->out.n)
		end = end ? MIN(end, c->progress_ms + patience) : c->progress_ms + patience;
	if (!s->calls && !s->trusted && (!end || MAX(c->born_ms, s->rest_ms) + first <= end)) {
		*ret_why = NET_END_NO_REQUEST;
		end = MAX(c->born_ms, s->rest_ms) + first;
	}
	if (end || s->calls)
		return end;
	*ret_why = NET_END_IDLE;
	return MAX(c->progress_ms, s->rest_ms) +
	       (s->grpc ? GRPC_IDLE_MS : 1000ULL * l->o.timeout_s);
}

static void set_events(struct net_conn *c, struct epoll_event *e)
{
	struct net_loop *o = c->loop;
	int how = EPOLL_CTL_MOD;

	if (c->waits_apart && !c->handshaking) {
		(void)epoll_ctl(o->handshakes, EPOLL_CTL_DEL, c->fd, NULL);
		c->waits_apart = false;
		how = EPOLL_CTL_ADD;
	} else if (e->events == c->events) {
		return;
	}
	if (epoll_ctl(c->waits_apart ? o->handshakes : o->epoll, how, c->fd, e) == 0)
		c->events = e->events;
}

/* What epoll has to wait for, and until when. */
static void conn_wait(struct net_conn *c)
{
	struct epoll_event e = {.data.ptr = c};
	enum net_end why;
	u64 end = conn_end(c, &why);

	if (c->handshaking)
		e.events = gnutls_record_get_direction(c->tls) == 1 ? EPOLLOUT : EPOLLIN;
	else
		e.events = (c->session->ops->wants(c->session) && !c->closing ? EPOLLIN : 0) |
			   (c->out_at < c->out.n ? EPOLLOUT : 0) | (c->hung_up ? 0 : EPOLLRDHUP);
	set_events(c, &e);
	/* No memory for a new timer: the connection had its timer from its begin. */
	(void)net_timer_set(&c->loop->timers, &c->timer, end ? end : ~0ULL);
	if (c->session->trusted && !c->known) {
		c->known = true;
		forget_stranger(c);
	}
}

/* The number of bytes, 0 at the end, -EAGAIN, or another error. */
static ssize_t conn_read(struct net_conn *c, void *buf, size_t n)
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

static ssize_t conn_write(struct net_conn *c, const void *buf, size_t n)
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

/* All is sent and no more will be: whether the connection has to stay for what the client sends. */
static bool linger(struct net_conn *c)
{
	if (!c->session->lingers || c->closing)
		return false;
	if (!c->shut) {
		c->shut = true;
		if (c->tls)
			(void)gnutls_bye(c->tls, GNUTLS_SHUT_WR);
		shutdown(c->fd, SHUT_WR);
	}
	return true;
}

/* Sends what can be sent; negative: the connection has ended. */
static int send_pending(struct net_conn *c)
{
	struct net_session *s = c->session;

	/* The client speaks first: it may be one that has to be told of its error in plain text. */
	while (c->spoke && !c->shut) {
		ssize_t n;

		if (c->out_at == c->out.n) {
			str_clear(&c->out);
			c->out_at = 0;
			if (s->ops->send(s, &c->out) < 0)
				return -EIO;
			if (!c->out.n)
				break;
		}
		n = conn_write(c, c->out.data + c->out_at, c->out.n - c->out_at);
		if (n == -EAGAIN)
			return 0;
		if (n < 0)
			return -EIO;
		c->out_at += (size_t)n;
		c->progress_ms = net_now_ms();
		atomic_fetch_add(&c->loop->l->counters.sent, (unsigned long long)n);
	}
	if (c->out.cap > KEEP_OUT_BYTES) {
		str_deinit(&c->out);
		c->out = (struct str){};
	}
	return (c->closing || s->ops->ended(s)) && !linger(c) ? -ESHUTDOWN : 0;
}

/* Says in plain text what the client got wrong; it may show that. */
static void say(struct net_conn *c, const char *text)
{
	char answer[512];
	int n = snprintf(answer, sizeof(answer),
			 "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: "
			 "%zu\r\nConnection: close\r\n\r\n%s",
			 strlen(text), text);

	(void)!send(c->fd, answer, (size_t)n, MSG_NOSIGNAL);
	/* Unread bytes would make the kernel reset the connection, and drop the answer. */
	shutdown(c->fd, SHUT_WR);
	(void)!recv(c->fd, NULL, 1u << 20, MSG_TRUNC | MSG_DONTWAIT);
	net_note_end(c->loop->l, NET_END_PROTOCOL, c->peer->name);
}

static int handshake(struct net_conn *c)
{
	struct net_listener *l = c->loop->l;
	unsigned int status = ~0u;
	char first = 0x16;
	int one = 1, r;

	if (recv(c->fd, &first, 1, MSG_PEEK) == 1 && first >= 'A' && first <= 'Z') {
		say(c, "this port speaks TLS: use https\n");
		return -EPROTO;
	}
	r = gnutls_handshake(c->tls);
	if (r == GNUTLS_E_AGAIN || r == GNUTLS_E_INTERRUPTED ||
	    (r < 0 && !gnutls_error_is_fatal(r)))
		return -EAGAIN;
	if (r < 0) {
		net_note_end(l, NET_END_TLS, c->peer->name);
		return -EIO;
	}
	c->session->certified = l->client_ca &&
				gnutls_certificate_verify_peers2(c->tls, &status) == 0 &&
				status == 0;
	c->handshaking = false;
	/*
	 * Nothing answers the client's last message. A client with Nagle's algorithm waits for its
	 * acknowledgement, which the kernel delays by 40 ms, before it sends its request.
	 */
	setsockopt(c->fd, IPPROTO_TCP, TCP_QUICKACK, &one, sizeof(one));
	if (!l->client_ca || c->session->certified || !l->o.grpc)
		return 0; /* HTTP tells the client with an answer */
	atomic_fetch_add(&l->counters.unauthorized, 1);
	return -EACCES;
}

static bool is_tls(const u8 *data, size_t n)
{
	return n >= 3 && data[0] == 0x16 && data[1] == 3;
}

/* What the session could not read. */
static int refuse_input(struct net_conn *c, const u8 *data, size_t n)
{
	struct net_listener *l = c->loop->l;

	c->closing = true;
	if (c->shut)
		return 0;
	atomic_fetch_add(&l->counters.broken, 1);
	if (c->session->trusted || c->tls) {
		net_note_end(l, NET_END_PROTOCOL, c->peer->name);
		return 0;
	}
	if (l->o.grpc && n && data[0] >= 'A' && data[0] <= 'Z')
		say(c, "this port speaks gRPC over HTTP/2; OTLP over HTTP has a port of its own "
		       "(--otlp-http)\n");
	else
		net_note_end(l, NET_END_PROTOCOL, c->peer->name);
	return l->o.grpc ? -EPROTO : 0;
}

/* HTTP/2 begins with a request line that no HTTP/1 client sends. */
static bool is_http2(const u8 *data, size_t n)
{
	static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

	return n >= 6 && !memcmp(data, preface, MIN(n, sizeof(preface) - 1));
}

/* Goes on with gRPC on an HTTP port. */
static int switch_to_grpc(struct net_conn *c)
{
	bool certified = c->session->certified;
	struct net_session *s = NULL;
	int r;

	if (c->loop->l->client_ca && !certified) {
		atomic_fetch_add(&c->loop->l->counters.unauthorized, 1);
		return -EACCES;
	}
	r = grpc_session_create(c->loop->l, c->peer, &s);
	if (r < 0)
		return r;
	c->session->ops->destroy(c->session);
	c->session = s;
	s->certified = certified;
	s->loop = c->loop;
	s->conn = c;
	return 0;
}

static int receive(struct net_conn *c)
{
	u8 buf[READ_BYTES];

	for (int i = 0; i < READS_AT_ONCE && c->session->ops->wants(c->session) && !c->closing;
	     i++) {
		ssize_t n = conn_read(c, buf, sizeof(buf));

		if (n == -EAGAIN || n == -EINTR)
			return 0;
		if (n <= 0)
			return -EIO;
		c->progress_ms = net_now_ms();
		atomic_fetch_add(&c->loop->l->counters.received, (unsigned long long)n);
		if (!c->spoke && !c->tls && is_tls(buf, (size_t)n)) {
			say(c, "this port does not speak TLS: use http\n");
			return -EPROTO;
		}
		if (!c->spoke && c->loop->l->o.grpc_handler && is_http2(buf, (size_t)n) &&
		    switch_to_grpc(c) < 0)
			return -EPROTO;
		c->spoke = true;
		if (c->session->ops->receive(c->session, buf, (size_t)n) < 0)
			return refuse_input(c, buf, (size_t)n);
	}
	return 0;
}

/* After anything that has happened to the connection; it may be gone afterwards. */
static void conn_continue(struct net_conn *c, int r)
{
	if (r == 0)
		r = send_pending(c);
	if (r < 0 && r != -EAGAIN)
		conn_destroy(c);
	else
		conn_wait(c);
}

static void conn_event(struct net_conn *c, u32 events)
{
	int r;

	if (events & (EPOLLERR | EPOLLHUP)) {
		conn_destroy(c);
		return;
	}
	r = c->handshaking ? handshake(c) : 0;
	if (r == 0)
		r = receive(c);
	if (r == 0 && events & EPOLLRDHUP && !c->hung_up) {
		c->hung_up = true;
		c->session->ops->hangup(c->session);
	}
	conn_continue(c, r);
}

/* ---- new connections ---- */

static int start_tls(struct net_conn *c)
{
	/* A browser that could speak both gets HTTP/1.1: by HTTP/2 there is only gRPC. */
	static const gnutls_datum_t names[] = {{(u8 *)"http/1.1", 8}, {(u8 *)"h2", 2}};
	struct net_listener *l = c->loop->l;
	int r = gnutls_init(&c->tls, GNUTLS_SERVER | GNUTLS_NONBLOCK | GNUTLS_NO_SIGNAL);

	if (r == 0)
		r = gnutls_priority_set(c->tls, c->loop->priority);
	if (r == 0)
		c->credentials = net_credentials_give(l, c->tls);
	if (r == 0 && !c->credentials)
		return -EIO;
	if (r == 0)
		r = gnutls_alpn_set_protocols(c->tls, &names[l->o.grpc], l->o.grpc_handler ? 2 : 1,
					      GNUTLS_ALPN_SERVER_PRECEDENCE);
	if (r < 0)
		return -EIO;
	if (l->client_ca)
		gnutls_certificate_server_set_request(c->tls, l->o.grpc ? GNUTLS_CERT_REQUIRE
									: GNUTLS_CERT_REQUEST);
	gnutls_transport_set_int(c->tls, c->fd);
	c->handshaking = true;
	return 0;
}

static int start_session(struct net_conn *c)
{
	struct net_listener *l = c->loop->l;
	int r = (l->o.grpc ? grpc_session_create : http_session_create)(l, c->peer, &c->session);

	if (r < 0)
		return r;
	c->session->loop = c->loop;
	c->session->conn = c;
	return l->tls ? start_tls(c) : 0;
}

static int start_waiting(struct net_conn *c, struct epoll_event *e)
{
	c->waits_apart = c->handshaking;
	return epoll_ctl(c->waits_apart ? c->loop->handshakes : c->loop->epoll, EPOLL_CTL_ADD,
			 c->fd, e);
}

static void conn_create(struct net_loop *o, int fd, struct net_peer *peer)
{
	struct net_conn *c = calloc(1, sizeof(*c));
	struct epoll_event e = {.events = EPOLLIN | EPOLLRDHUP, .data.ptr = c};
	int one = 1;

	if (!c) {
		net_peer_put(o->l->net, peer);
		close(fd);
		return;
	}
	*c = (struct net_conn){.loop = o,
			       .peer = peer,
			       .fd = fd,
			       .events = e.events,
			       .born_ms = net_now_ms(),
			       .is_stranger = true};
	c->progress_ms = c->born_ms;
	TAILQ_INSERT_TAIL(&o->conns, c, all);
	pthread_mutex_lock(&o->l->lock);
	TAILQ_INSERT_TAIL(&o->l->strangers, c, strangers);
	pthread_mutex_unlock(&o->l->lock);
	atomic_fetch_add(&o->l->counters.open, 1);
	atomic_fetch_add(&o->l->counters.connections, 1);
	atomic_fetch_add(&o->l->net->open, 1);
	atomic_fetch_add(&peer->open, 1);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	if (start_session(c) < 0 || net_timer_set(&o->timers, &c->timer, ~0ULL) < 0 ||
	    start_waiting(c, &e) < 0)
		conn_destroy(c);
	else
		conn_continue(c, c->handshaking ? -EAGAIN : 0);
}

/*
 * Shuts the oldest connection without an authorized request down; its loop closes it then. peer:
 * only one of this client.
 */
static bool evict(struct net_listener *l, const struct net_peer *peer)
{
	char name[64];
	struct net_conn *c;
	u32 seen = 0;

	pthread_mutex_lock(&l->lock);
	TAILQ_FOREACH(c, &l->strangers, strangers)
	{
		if (!peer || c->peer == peer || ++seen >= LOOK_FOR_OWN)
			break;
	}
	if (c && peer && c->peer != peer)
		c = NULL;
	if (c) {
		TAILQ_REMOVE(&l->strangers, c, strangers);
		c->is_stranger = false;
		memcpy(name, c->peer->name, sizeof(name));
		shutdown(c->fd, SHUT_RDWR);
	}
	pthread_mutex_unlock(&l->lock);
	if (c)
		net_note_end(l, NET_END_EVICTED, name);
	return c != NULL;
}

/* Whether there is a place for one more connection of this client, maybe after an eviction. */
static bool has_place(struct net_listener *l, const struct net_peer *peer, enum net_end *ret_why)
{
	u32 share = MAX(l->o.max_connections / 2, 1u);

	*ret_why = NET_END_SHARE;
	if (atomic_load(&peer->open) >= share && !evict(l, peer))
		return false;
	*ret_why = NET_END_FULL;
	if (atomic_load(&l->counters.open) >= l->o.max_connections && !evict(l, NULL))
		return false;
	*ret_why = NET_END_FILES;
	return atomic_load(&l->net->open) < l->net->max_open || evict(l, NULL);
}

static void admit(struct net_loop *o, int fd, const struct sockaddr *a)
{
	struct net_peer *peer = net_peer_get(o->l->net, a);
	enum net_end why;

	if (peer && has_place(o->l, peer, &why)) {
		conn_create(o, fd, peer);
		return;
	}
	if (peer)
		net_note_end(o->l, why, peer->name);
	net_peer_put(o->l->net, peer);
	close(fd);
}

static void accept_some(struct net_loop *o)
{
	struct epoll_event none = {.data.ptr = o};

	for (int i = 0; i < ACCEPTS_AT_ONCE; i++) {
		struct sockaddr_storage peer = {};
		socklen_t n = sizeof(peer);
		int fd = accept4(o->l->fd, (struct sockaddr *)&peer, &n,
				 SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd >= 0) {
			admit(o, fd, (struct sockaddr *)&peer);
			continue;
		}
		if (errno == ECONNABORTED)
			continue;
		if (errno != EMFILE && errno != ENFILE && errno != ENOMEM && errno != ENOBUFS)
			return;
		/* The connection waits in the kernel's queue. */
		net_note_end(o->l, NET_END_FILES, NULL);
		(void)evict(o->l, NULL);
		(void)epoll_ctl(o->epoll, EPOLL_CTL_DEL, o->l->fd, &none);
		o->accept_ms = net_now_ms() + ACCEPT_AGAIN_MS;
		return;
	}
}

/* EPOLLEXCLUSIVE: a new connection wakes one loop, or a few, not all. */
static int wait_for_connections(struct net_loop *o)
{
	struct epoll_event accepting = {.events = EPOLLIN | EPOLLEXCLUSIVE, .data.ptr = o};

	o->accept_ms = 0;
	return epoll_ctl(o->epoll, EPOLL_CTL_ADD, o->l->fd, &accepting) < 0 ? -errno : 0;
}

/* ---- the loop ---- */

static void take_done(struct net_loop *o)
{
	struct net_call *c, *next;

	pthread_mutex_lock(&o->lock);
	c = o->done;
	o->done = NULL;
	o->done_last = &o->done;
	pthread_mutex_unlock(&o->lock);
	for (; c; c = next) {
		struct net_session *s = c->session;

		next = c->done_next;
		c->working = false;
		c->done(c);
		atomic_fetch_sub(&o->at_work, 1);
		if (s)
			conn_continue(s->conn, 0);
	}
}

static void end_overdue(struct net_conn *c, u64 now)
{
	struct net_listener *l = c->loop->l;
	enum net_end why;
	u64 end;

	c->session->ops->expire(c->session, now);
	end = conn_end(c, &why);
	if (!end || end > now) {
		conn_continue(c, c->handshaking ? -EAGAIN : 0);
		return;
	}
	if (!c->shut) {
		if (why != NET_END_IDLE)
			atomic_fetch_add(&l->counters.timed_out, 1);
		net_note_end(l, why, c->peer->name);
		/* A client of gRPC that is told opens another connection for its next call. */
		c->session->ops->drain(c->session);
		if (!c->handshaking)
			(void)send_pending(c);
	}
	conn_destroy(c);
}

static void run_timers(struct net_loop *o)
{
	u64 now = net_now_ms();
	struct net_timer *t;

	while ((t = net_timer_first(&o->timers)) && t->at_ms <= now)
		end_overdue(container_of(t, struct net_conn, timer), now);
	if (o->accept_ms && o->accept_ms <= now && wait_for_connections(o) < 0)
		o->accept_ms = now + ACCEPT_AGAIN_MS;
}

static int next_wait_ms(const struct net_loop *o)
{
	const struct net_timer *t = net_timer_first(&o->timers);
	u64 at = MIN(t ? t->at_ms : ~0ULL, o->accept_ms ? o->accept_ms : ~0ULL), now = net_now_ms();

	if (at == ~0ULL)
		return -1;
	return at > now ? (int)MIN(at - now, (u64)3600000) : 0;
}

static void begin_draining(struct net_loop *o)
{
	struct net_conn *c, *next;

	(void)epoll_ctl(o->epoll, EPOLL_CTL_DEL, o->l->fd, NULL);
	o->drains = true;
	o->accept_ms = 0;
	for (c = TAILQ_FIRST(&o->conns); c; c = next) {
		next = TAILQ_NEXT(c, all);
		if (!c->spoke) {
			conn_destroy(c);
			continue;
		}
		c->session->ops->drain(c->session);
		conn_continue(c, 0);
	}
}

static void shake_some(struct net_loop *o)
{
	struct epoll_event events[HANDSHAKES_AT_ONCE];
	int n = epoll_wait(o->handshakes, events, ARRAY_SIZE(events), 0);

	for (int i = 0; i < n; i++)
		conn_event(events[i].data.ptr, events[i].events);
}

static void *run_loop(void *arg)
{
	struct net_loop *o = arg;
	struct epoll_event events[64];
	u64 count;

	while (!atomic_load(&o->stopping)) {
		int n = epoll_wait(o->epoll, events, ARRAY_SIZE(events), next_wait_ms(o));
		bool new = false, shaking = false;

		for (int i = 0; i < n; i++) {
			if (events[i].data.ptr == o)
				new = true;
			else if (events[i].data.ptr == &o->event)
				(void)!read(o->event, &count, sizeof(count));
			else if (events[i].data.ptr == &o->handshakes)
				shaking = true;
			else
				conn_event(events[i].data.ptr, events[i].events);
		}
		if (new && !o->drains && !o->accept_ms)
			accept_some(o);
		if (shaking)
			shake_some(o);
		if (atomic_load(&o->draining) && !o->drains)
			begin_draining(o);
		take_done(o);
		run_timers(o);
	}
	return NULL;
}

/* ---- start and stop ---- */

static int start_loop(struct net_listener *l, struct net_loop *o)
{
	struct epoll_event waking = {.events = EPOLLIN, .data.ptr = &o->event};
	struct epoll_event shaking = {.events = EPOLLIN, .data.ptr = &o->handshakes};
	int r;

	o->l = l;
	o->done_last = &o->done;
	TAILQ_INIT(&o->conns);
	pthread_mutex_init(&o->lock, NULL);
	o->epoll = epoll_create1(EPOLL_CLOEXEC);
	o->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	o->handshakes = epoll_create1(EPOLL_CLOEXEC);
	if (o->epoll < 0 || o->event < 0 || o->handshakes < 0 ||
	    epoll_ctl(o->epoll, EPOLL_CTL_ADD, o->event, &waking) < 0 ||
	    epoll_ctl(o->epoll, EPOLL_CTL_ADD, o->handshakes, &shaking) < 0)
		return -errno;
	if (l->tls && gnutls_priority_init(&o->priority, NET_TLS_PRIORITY, NULL) < 0)
		return -EINVAL;
	r = wait_for_connections(o);
	if (r == 0)
		r = thread_start(&o->thread, l->o.grpc ? "grpc-loop" : "http-loop", run_loop, o);
	o->has_thread = r == 0;
	return r;
}

int net_loops_start(struct net_listener *l, struct diag *reterr_diag)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	int r = 0;

	while (r == 0 && l->n_loops < MAX(1, MIN(cpus, NET_MAX_LOOPS))) {
		struct net_loop *o = calloc(1, sizeof(*o));

		if (!o)
			r = -ENOMEM;
		else
			r = start_loop(l, l->loops[l->n_loops++] = o);
	}
	if (r < 0) {
		net_loops_stop(l, 0);
		return diag_set(reterr_diag, r, "%s: cannot start: %s", l->o.address, strerror(-r));
	}
	return 0;
}

void net_loops_drain(struct net_listener *l)
{
	if (l->fd >= 0)
		shutdown(l->fd, SHUT_RD); /* from now on connecting is refused */
	for (u32 i = 0; i < l->n_loops; i++) {
		atomic_store(&l->loops[i]->draining, true);
		wake_loop(l->loops[i]);
	}
}

static void loop_destroy(struct net_loop *o)
{
	const struct timespec tick = {.tv_nsec = 5000000};

	atomic_store(&o->stopping, true);
	if (o->has_thread) {
		wake_loop(o);
		pthread_join(o->thread, NULL);
	}
	while (!TAILQ_EMPTY(&o->conns))
		conn_destroy(TAILQ_FIRST(&o->conns));
	/* Handlers that still run have lost their clients, and end at their next look. */
	for (take_done(o); atomic_load(&o->at_work); take_done(o))
		nanosleep(&tick, NULL);
	if (o->epoll >= 0)
		close(o->epoll);
	if (o->event >= 0)
		close(o->event);
	if (o->handshakes >= 0)
		close(o->handshakes);
	if (o->priority)
		gnutls_priority_deinit(o->priority);
	vec_deinit(&o->timers.heap);
	pthread_mutex_destroy(&o->lock);
	free(o);
}

void net_loops_stop(struct net_listener *l, u32 timeout_ms)
{
	u64 until = net_now_ms() + timeout_ms;
	const struct timespec tick = {.tv_nsec = 10000000};

	net_loops_drain(l);
	while (atomic_load(&l->counters.open) && net_now_ms() < until)
		nanosleep(&tick, NULL);
	while (l->n_loops)
		loop_destroy(l->loops[--l->n_loops]);
}
