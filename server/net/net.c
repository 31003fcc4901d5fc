/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What all listeners share: addresses, and access control.
 *
 * 1. Beyond loopback no listener runs without tokens or client certificates, and none takes tokens
 *    in clear text unless told.
 * 2. Without both, on loopback, every client is an admin: any local user.
 * 3. With a client CA and no tokens, a client with a certificate of that CA is an admin.
 * 4. A request that a web page of another site could have made is refused (origin.c).
 */
#include "server/net/net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "server/net/internal.h"

#define DEFAULT_CONNECTIONS 20000
#define BACKLOG 4096
#define OTHER_FILES 256 /* store, symbols, epoll, and connections of the server itself */

u64 net_now_ms(void)
{
	return clock_ns(CLOCK_MONOTONIC) / 1000000;
}

bool net_buffer_take(struct net_listener *l, size_t n)
{
	if (atomic_fetch_add(&l->buffered, n) + n <= 4 * l->o.max_body)
		return true;
	atomic_fetch_sub(&l->buffered, n);
	return false;
}

void net_buffer_give(struct net_listener *l, size_t n)
{
	atomic_fetch_sub(&l->buffered, n);
}

void net_peer_name(const struct sockaddr *a, char ret[64])
{
	if (a->sa_family == AF_INET)
		inet_ntop(AF_INET, &((const struct sockaddr_in *)a)->sin_addr, ret, 64);
	else if (a->sa_family == AF_INET6)
		inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)a)->sin6_addr, ret, 64);
	else
		snprintf(ret, 64, "?");
}

bool net_host_is_local(const char *host)
{
	char name[64];
	size_t n;
	u8 v6[16];
	u32 v4;

	if (*host == '[') {
		n = strcspn(host + 1, "]");
		if (n >= sizeof(name) || !host[n + 1])
			return false;
		memcpy(name, host + 1, n);
		name[n] = '\0';
		return inet_pton(AF_INET6, name, v6) == 1 &&
		       IN6_IS_ADDR_LOOPBACK((const struct in6_addr *)v6);
	}
	n = strcspn(host, ":");
	if (n >= sizeof(name))
		return false;
	memcpy(name, host, n);
	name[n] = '\0';
	if (!strcasecmp(name, "localhost") || (n > 10 && !strcasecmp(name + n - 10, ".localhost")))
		return true;
	return inet_pton(AF_INET, name, &v4) == 1 && (ntohl(v4) >> 24) == 127;
}

/* ---- the socket ---- */

static bool is_loopback(const struct sockaddr *a)
{
	if (a->sa_family == AF_INET)
		return ntohl(((const struct sockaddr_in *)a)->sin_addr.s_addr) >> 24 == 127;
	return a->sa_family == AF_INET6 &&
	       IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)a)->sin6_addr);
}

/* "HOST:PORT", "[V6]:PORT", ":PORT" and "PORT" (loopback). */
static int split_address(const char *address, char host[256], char port[16],
			 struct diag *reterr_diag)
{
	const char *colon = strrchr(address, ':'), *end = colon;
	u64 number;

	if (colon && *address == '[') {
		address++;
		end = colon - 1;
		if (end < address || *end != ']')
			colon = NULL;
	}
	if (!colon || colon == address) {
		snprintf(host, 256, "127.0.0.1");
	} else if (end - address < 256) {
		memcpy(host, address, (size_t)(end - address));
		host[end - address] = '\0';
	}
	if (str_to_u64(colon ? colon + 1 : address, 10, &number) < 0 || number > 65535 ||
	    (colon && end - address >= 256))
		return diag_set(reterr_diag, -EINVAL, "%s: an address is HOST:PORT", address);
	snprintf(port, 16, "%u", (u32)number);
	return 0;
}

static int open_socket(struct net_listener *l, const struct addrinfo *a, struct diag *reterr_diag)
{
	int one = 1;

	if (!is_loopback(a->ai_addr) && !l->o.tokens && !l->client_ca)
		return diag_set(
			reterr_diag, -EACCES,
			"%s: other machines can connect to this address: it needs --token-file "
			"or --tls-ca",
			l->o.address);
	if (!is_loopback(a->ai_addr) && !l->tls && !l->o.clear_text)
		return diag_set(
			reterr_diag, -EACCES,
			"%s: tokens would cross the network in clear text: give --tls-cert and "
			"--tls-key, or --allow-clear-text if something else encrypts",
			l->o.address);
	l->fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (l->fd < 0)
		return diag_set(reterr_diag, -errno, "%s: no socket: %s", l->o.address,
				strerror(errno));
	setsockopt(l->fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(l->fd, a->ai_addr, a->ai_addrlen) < 0 || listen(l->fd, BACKLOG) < 0)
		return diag_set(reterr_diag, -errno, "%s: cannot listen: %s%s", l->o.address,
				strerror(errno),
				errno == EADDRINUSE ? ": another program does; give another port, "
						      "or 0 for any that is free"
						    : "");
	return 0;
}

static int bind_address(struct net_listener *l, struct diag *reterr_diag)
{
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
				       .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
	struct addrinfo *found = NULL;
	char host[256], port[16];
	int r = split_address(l->o.address, host, port, reterr_diag);

	if (r < 0)
		return r;
	r = getaddrinfo(host, port, &hints, &found);
	if (r != 0)
		return diag_set(reterr_diag, -EINVAL, "%s: %s", l->o.address, gai_strerror(r));
	r = open_socket(l, found, reterr_diag);
	freeaddrinfo(found);
	return r;
}

int net_bind(const struct net_options *o, struct diag *reterr_diag, int *ret_fd)
{
	struct net_listener l = {.o = *o,
				 .fd = -1,
				 .tls = o->tls && o->tls->cert,
				 .client_ca = o->tls && o->tls->client_ca};
	int r = bind_address(&l, reterr_diag);

	if (r < 0)
		cleanup_close(&l.fd);
	else
		*ret_fd = l.fd;
	return r;
}

u16 net_port_of(int fd)
{
	struct sockaddr_storage own = {};
	socklen_t n = sizeof(own);

	if (getsockname(fd, (struct sockaddr *)&own, &n) < 0)
		return 0;
	return ntohs(own.ss_family == AF_INET ? ((struct sockaddr_in *)&own)->sin_port
					      : ((struct sockaddr_in6 *)&own)->sin6_port);
}

static int copy_path(const char *path, char **ret)
{
	*ret = path ? strdup(path) : NULL;
	return path && !*ret ? -ENOMEM : 0;
}

static int read_tls(struct net_listener *l, const struct net_tls *tls, struct diag *reterr_diag)
{
	int r;

	if (!tls || (!tls->cert && !tls->key && !tls->client_ca))
		return 0;
	if (!tls->cert || !tls->key)
		return diag_set(reterr_diag, -EINVAL,
				"TLS needs both a certificate and its key (--tls-cert, --tls-key)");
	r = copy_path(tls->cert, &l->cert);
	if (r == 0)
		r = copy_path(tls->key, &l->key);
	if (r == 0)
		r = copy_path(tls->client_ca, &l->ca);
	l->tls = true;
	l->client_ca = tls->client_ca != NULL;
	return r < 0 ? r : net_credentials_load(l, reterr_diag);
}

int net_reload(struct net_listener *l, struct diag *reterr_diag)
{
	return l->tls ? net_credentials_load(l, reterr_diag) : 0;
}

/* ---- what listeners share ---- */

/* As many as it may. */
static u32 raise_files(void)
{
	struct rlimit r = {};

	if (getrlimit(RLIMIT_NOFILE, &r) < 0)
		return 1024;
	if (r.rlim_cur < r.rlim_max) {
		struct rlimit most = {r.rlim_max, r.rlim_max};

		if (setrlimit(RLIMIT_NOFILE, &most) == 0)
			r.rlim_cur = r.rlim_max;
	}
	return (u32)MIN(r.rlim_cur, (rlim_t)1 << 30);
}

int net_create(const char *access_log, struct diag *reterr_diag, struct net **ret)
{
	struct net *n = calloc(1, sizeof(*n));
	u32 files = raise_files();
	int r;

	if (!n)
		return -ENOMEM;
	pthread_mutex_init(&n->lock, NULL);
	n->submit = net_submit;
	n->max_open = files > 2 * OTHER_FILES ? files - OTHER_FILES : MAX(files / 2, 1u);
	r = pool_create(&n->pool);
	if (r == 0 && access_log)
		r = net_log_open(access_log, reterr_diag, &n->log);
	if (r < 0) {
		net_destroy(n);
		return r;
	}
	*ret = n;
	return 0;
}

void net_destroy(struct net *n)
{
	if (!n)
		return;
	pool_destroy(n->pool);
	net_log_close(n->log);
	pthread_mutex_destroy(&n->lock);
	free(n);
}

int net_reopen(struct net *n, struct diag *reterr_diag)
{
	return net_log_reopen(n->log, reterr_diag);
}

/* Replaces the first entry `old` of the list by `new`. */
static int list_listener(struct net *n, const struct net_listener *old, struct net_listener *new)
{
	u32 i;

	pthread_mutex_lock(&n->lock);
	for (i = 0; i < NET_MAX_LISTENERS && n->listeners[i] != old; i++)
		;
	if (i < NET_MAX_LISTENERS)
		n->listeners[i] = new;
	pthread_mutex_unlock(&n->lock);
	return i < NET_MAX_LISTENERS ? 0 : -ENOSPC;
}

static int join_net(struct net_listener *l, struct diag *reterr_diag)
{
	int r = 0;

	l->net = l->o.net;
	if (!l->net) {
		r = net_create(NULL, reterr_diag, &l->net);
		l->owns_net = r == 0;
	}
	if (r == 0)
		r = list_listener(l->net, NULL, l);
	if (r == 0 && l->o.net && l->o.max_connections > l->net->max_open) {
		/* Nobody asked for the default. */
		if (l->o.max_connections != DEFAULT_CONNECTIONS &&
		    !atomic_exchange(&l->net->told, true))
			log_info("the limit of open files (ulimit -Hn) allows %u connections, "
				 "fewer than --max-connections %u",
				 l->net->max_open, l->o.max_connections);
		l->o.max_connections = l->net->max_open;
	}
	return r;
}

/* ---- listeners ---- */

static void listener_free(struct net_listener *l)
{
	if (l->net)
		list_listener(l->net, l, NULL);
	if (l->owns_net)
		net_destroy(l->net);
	if (l->fd >= 0)
		close(l->fd);
	net_credentials_put(l->credentials);
	pthread_mutex_destroy(&l->lock);
	free(l->cert);
	free(l->key);
	free(l->ca);
	net_tokens_destroy(l->tokens);
	free(l);
}

int net_listen(const struct net_options *o, struct diag *reterr_diag, struct net_listener **ret)
{
	struct net_listener *l = calloc(1, sizeof(*l));
	int r = 0;

	if (!l)
		return -ENOMEM;
	l->fd = -1;
	pthread_mutex_init(&l->lock, NULL);
	TAILQ_INIT(&l->strangers);
	l->o = *o;
	l->name = o->name ? o->name : o->grpc ? "grpc" : "http";
	l->o.max_body = o->max_body ? o->max_body : 64u << 20;
	l->o.max_connections = o->max_connections ? o->max_connections : DEFAULT_CONNECTIONS;
	l->o.timeout_s = o->timeout_s ? o->timeout_s : 30;
	if (o->tokens)
		r = net_tokens_create(o->tokens, reterr_diag, &l->tokens);
	if (r == 0)
		r = read_tls(l, o->tls, reterr_diag);
	if (r == 0 && o->socket)
		l->fd = o->socket;
	else if (r == 0)
		r = bind_address(l, reterr_diag);
	l->port = r == 0 ? net_port_of(l->fd) : 0;
	if (r == 0)
		r = join_net(l, reterr_diag);
	if (r == 0)
		r = net_loops_start(l, reterr_diag);
	if (r < 0) {
		listener_free(l);
		return r;
	}
	*ret = l;
	return 0;
}

u16 net_port(const struct net_listener *l)
{
	return l->port;
}

void net_close(struct net_listener *l, u32 timeout_ms)
{
	if (!l)
		return;
	net_loops_stop(l, timeout_ms);
	listener_free(l);
}

void net_drain(struct net_listener *l)
{
	if (l)
		net_loops_drain(l);
}

void net_stats(const struct net_listener *l, struct net_stats *ret)
{
	const struct net_counters *c = &l->counters;

	*ret = (struct net_stats){
		.connections = atomic_load(&c->connections),
		.open = atomic_load(&c->open),
		.requests = atomic_load(&c->requests),
		.unauthorized = atomic_load(&c->unauthorized),
		.too_large = atomic_load(&c->too_large),
		.timed_out = atomic_load(&c->timed_out),
		.broken = atomic_load(&c->broken),
	};
}
