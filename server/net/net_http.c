/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTP/1.1 on libmicrohttpd, with a thread per connection: a slow client or query delays only
 * itself.
 *
 * Bounds for every client:
 *	header		64 KiB
 *	body		max_body, or the sink's limit; a common budget for all bodies in memory
 *	time		a request must be complete after twice the timeout; one that goes to a sink
 *			may take longer, at SLOWEST_BYTES_PER_MS. A watchdog shuts other connections
 *			down, even if single bytes still arrive
 *	role		known before the body is read; without a valid token only headers are read
 */
#include <arpa/inet.h>
#include <errno.h>
#include <gnutls/abstract.h>
#include <gnutls/gnutls.h>
#include <microhttpd.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/thread.h"
#include "compress/compress.h"
#include "server/net/internal.h"

#define WATCH_EVERY_MS 250
#define STACK_BYTES (1u << 20)
#define MIN_GZIP_BYTES 1400
#define SLOWEST_BYTES_PER_MS 16 /* of a client that reads its answer, or fills a sink */

/* An open connection. */
struct conn {
	struct conn *next, **to_this;
	int fd;
	u64 deadline_ms;		     /* 0 = none */
	struct net_credentials *credentials; /* its own reference, or NULL */
};

struct net_http {
	struct MHD_Daemon *daemon;
	struct net_listener *l;
	pthread_t watchdog;
	pthread_mutex_t lock; /* of the list and the deadlines in it */
	pthread_cond_t wake;
	struct conn *conns;
	atomic_bool stopping;
	atomic_uint running; /* requests whose answer is not sent yet */
};

/* A request, from its header to its completion; owned by its connection. */
struct http_request {
	struct net_http *h;
	struct MHD_Connection *connection;
	struct str body;
	size_t charged; /* bytes taken from the budget for bodies */
	u64 dropped;	/* bytes read and thrown away */
	struct net_sink sink;
	u64 sunk; /* bytes that went into the sink */
	u64 started_ms;
	struct net_sender sender;
	bool has_sink, too_large, no_memory, answered;
	char peer[64];
};

/* ---- deadlines ---- */

static void set_deadline(struct net_http *h, struct MHD_Connection *connection, u64 after_ms)
{
	const union MHD_ConnectionInfo *i =
		MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
	struct conn *c = i ? i->socket_context : NULL;

	if (!c)
		return;
	pthread_mutex_lock(&h->lock);
	c->deadline_ms = after_ms ? net_now_ms() + after_ms : 0;
	pthread_mutex_unlock(&h->lock);
}

static void *watch_deadlines(void *arg)
{
	struct net_http *h = arg;

	pthread_mutex_lock(&h->lock);
	while (!atomic_load(&h->stopping)) {
		u64 now = net_now_ms();

		for (struct conn *c = h->conns; c; c = c->next) {
			if (!c->deadline_ms || c->deadline_ms > now)
				continue;
			/* The connection's thread sees its end and closes it. */
			shutdown(c->fd, SHUT_RDWR);
			c->deadline_ms = 0;
			atomic_fetch_add(&h->l->counters.timed_out, 1);
		}
		(void)thread_wait(&h->wake, &h->lock, WATCH_EVERY_MS * 1000000ULL);
	}
	pthread_mutex_unlock(&h->lock);
	return NULL;
}

/* Before the handshake: sets the listener's current credentials. */
static struct net_credentials *begin_tls(struct net_listener *l, struct MHD_Connection *c)
{
	const union MHD_ConnectionInfo *i =
		MHD_get_connection_info(c, MHD_CONNECTION_INFO_GNUTLS_SESSION);

	if (!i || !i->tls_session)
		return NULL;
	if (l->client_ca)
		gnutls_certificate_server_set_request((gnutls_session_t)i->tls_session,
						      GNUTLS_CERT_REQUEST);
	return net_credentials_give(l, i->tls_session);
}

static void on_connection(void *userdata, struct MHD_Connection *connection, void **context,
			  enum MHD_ConnectionNotificationCode code)
{
	struct net_http *h = userdata;
	const union MHD_ConnectionInfo *i;
	struct conn *c = *context;

	if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
		if (!c)
			return;
		pthread_mutex_lock(&h->lock);
		*c->to_this = c->next;
		if (c->next)
			c->next->to_this = c->to_this;
		pthread_mutex_unlock(&h->lock);
		atomic_fetch_sub(&h->l->counters.open, 1);
		net_credentials_put(c->credentials);
		free(c);
		return;
	}
	i = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
	c = i ? calloc(1, sizeof(*c)) : NULL;
	if (!c)
		return;
	c->fd = i->connect_fd;
	if (h->l->tls)
		c->credentials = begin_tls(h->l, connection);
	c->deadline_ms = net_now_ms() + 2000ULL * h->l->o.timeout_s;
	pthread_mutex_lock(&h->lock);
	c->next = h->conns;
	c->to_this = &h->conns;
	if (c->next)
		c->next->to_this = &c->next;
	h->conns = c;
	pthread_mutex_unlock(&h->lock);
	atomic_fetch_add(&h->l->counters.open, 1);
	atomic_fetch_add(&h->l->counters.connections, 1);
	*context = c;
}

static void on_completed(void *userdata, struct MHD_Connection *connection, void **con_cls,
			 enum MHD_RequestTerminationCode code)
{
	struct net_http *h = userdata;
	struct http_request *q = *con_cls;

	set_deadline(h, connection, 2000ULL * h->l->o.timeout_s);
	if (!q)
		return;
	if (code != MHD_REQUEST_TERMINATED_COMPLETED_OK)
		atomic_fetch_add(&h->l->counters.broken, 1);
	net_buffer_give(h->l, q->charged);
	if (q->has_sink && q->sink.end)
		q->sink.end(q->sink.userdata);
	str_deinit(&q->body);
	free(q);
	*con_cls = NULL;
	atomic_fetch_sub(&h->running, 1);
}

/* ---- answers ---- */

struct streamer {
	struct net_http *h;
	int (*stream)(void *userdata, struct str *out);
	void (*stream_end)(void *userdata);
	void *userdata;
	struct str pending;
	size_t at; /* in pending */
};

static ssize_t stream_read(void *arg, uint64_t pos, char *buf, size_t max)
{
	struct streamer *s = arg;
	size_t n;
	int r;

	while (s->at == s->pending.n) {
		str_clear(&s->pending);
		s->at = 0;
		if (atomic_load(&s->h->stopping))
			return MHD_CONTENT_READER_END_OF_STREAM;
		r = s->stream(s->userdata, &s->pending);
		if (r < 0 || s->pending.failed)
			return MHD_CONTENT_READER_END_WITH_ERROR;
		if (r > 0 && !s->pending.n)
			return MHD_CONTENT_READER_END_OF_STREAM;
	}
	n = MIN(max, s->pending.n - s->at);
	memcpy(buf, s->pending.data + s->at, n);
	s->at += n;
	return (ssize_t)n;
}

static void stream_free(void *arg)
{
	struct streamer *s = arg;

	if (s->stream_end)
		s->stream_end(s->userdata);
	str_deinit(&s->pending);
	free(s);
}

static struct MHD_Response *make_stream(struct net_http *h, struct net_response *a)
{
	struct streamer *s = calloc(1, sizeof(*s));
	struct MHD_Response *response;

	if (!s)
		return NULL;
	*s = (struct streamer){.h = h,
			       .stream = a->stream,
			       .stream_end = a->stream_end,
			       .userdata = a->stream_userdata};
	response = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 16 << 10, stream_read, s,
						     stream_free);
	if (!response)
		stream_free(s);
	return response;
}

static bool accepts_gzip(struct MHD_Connection *connection)
{
	const char *v = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Accept-Encoding");

	return v && strstr(v, "gzip") && !strstr(v, "gzip;q=0");
}

static bool worth_gzip(const struct net_response *a)
{
	if (a->body.n < MIN_GZIP_BYTES || gzip_is((const u8 *)a->body.data, a->body.n))
		return false;
	for (u32 i = 0; i < a->n_headers; i++)
		if (!strcasecmp(a->headers[i].name, "Content-Encoding"))
			return false;
	return true;
}

/* Moves the body out of the answer. */
static struct MHD_Response *make_body(struct net_response *a, bool *ret_gzip, size_t *ret_n,
				      bool gzip)
{
	struct str packed = {};
	struct MHD_Response *response;

	if (gzip && worth_gzip(a)) {
		if (gzip_deflate(a->body.data, a->body.n, &packed) == 0) {
			str_deinit(&a->body);
			a->body = packed;
			*ret_gzip = true;
		} else {
			str_deinit(&packed);
		}
	}
	*ret_n = a->body.n;
	if (!a->body.n)
		return MHD_create_response_from_buffer(0, (void *)"", MHD_RESPMEM_PERSISTENT);
	response = MHD_create_response_from_buffer(a->body.n, a->body.data, MHD_RESPMEM_MUST_FREE);
	if (response)
		a->body = (struct str){};
	return response;
}

static enum MHD_Result send_answer(struct http_request *q, struct net_response *a)
{
	struct MHD_Response *response;
	enum MHD_Result ok;
	bool gzip = false;
	size_t n = 0;

	if (a->body.failed) {
		str_deinit(&a->body);
		a->body = (struct str){};
		a->status = 500;
		a->stream = NULL;
	}
	response = a->stream ? make_stream(q->h, a)
			     : make_body(a, &gzip, &n, accepts_gzip(q->connection));
	str_deinit(&a->body);
	if (!response)
		return MHD_NO;
	MHD_add_response_header(response, "Content-Type",
				a->content_type ? a->content_type : "text/plain; charset=utf-8");
	MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
	if (gzip)
		MHD_add_response_header(response, "Content-Encoding", "gzip");
	for (u32 i = 0; i < a->n_headers; i++)
		MHD_add_response_header(response, a->headers[i].name, a->headers[i].value);
	q->answered = true;
	set_deadline(q->h, q->connection,
		     a->stream ? 0 : 2000ULL * q->h->l->o.timeout_s + n / SLOWEST_BYTES_PER_MS);
	ok = MHD_queue_response(q->connection, (unsigned int)a->status, response);
	MHD_destroy_response(response);
	return ok;
}

static enum MHD_Result refuse(struct http_request *q, int status, const char *text)
{
	struct net_response a = {.status = status};

	str_printf(&a.body, "%s\n", text);
	if (status == 401)
		a.headers[a.n_headers++] =
			(__typeof__(a.headers[0])){"WWW-Authenticate", "Bearer realm=\"culprit\""};
	if (status == 503)
		a.headers[a.n_headers++] = (__typeof__(a.headers[0])){"Retry-After", "1"};
	return send_answer(q, &a);
}

/* ---- requests ---- */

static const char *get_header(struct MHD_Connection *c, const char *name)
{
	return MHD_lookup_connection_value(c, MHD_HEADER_KIND, name);
}

/* Whether the client has a valid certificate of the CA. */
static bool has_certificate(struct MHD_Connection *c)
{
	const union MHD_ConnectionInfo *i =
		MHD_get_connection_info(c, MHD_CONNECTION_INFO_GNUTLS_SESSION);
	unsigned int status = ~0u;

	return i && i->tls_session &&
	       gnutls_certificate_verify_peers2((gnutls_session_t)i->tls_session, &status) == 0 &&
	       status == 0;
}

static bool is_from_foreign_page(struct net_listener *l, struct MHD_Connection *c, const char *path,
				 const char *method)
{
	const struct net_origin o = {
		.method = method,
		.path = path,
		.host = get_header(c, "Host"),
		.origin = get_header(c, "Origin"),
		.site = get_header(c, "Sec-Fetch-Site"),
		.mode = get_header(c, "Sec-Fetch-Mode"),
	};

	return net_is_foreign(&o, !l->tokens && !l->client_ca);
}

static u64 max_body(const struct http_request *q)
{
	return q->has_sink ? q->sink.max_body : q->h->l->o.max_body;
}

static enum MHD_Result check_size(struct http_request *q)
{
	const char *length = get_header(q->connection, "Content-Length");
	u64 n;

	if (length && (str_to_u64(length, 10, &n) < 0 || n > max_body(q))) {
		atomic_fetch_add(&q->h->l->counters.too_large, 1);
		return refuse(q, 413, "the body is larger than this server accepts");
	}
	return MHD_YES;
}

/* These need no token and have no data: the page itself asks for a token. No body is allowed. */
static bool is_public(struct MHD_Connection *c, const char *path)
{
	const char *length = get_header(c, "Content-Length");

	return (!strcmp(path, "/") || !strcmp(path, "/healthz")) &&
	       (!length || !strcmp(length, "0")) && !get_header(c, "Transfer-Encoding");
}

struct nth {
	const char *name, *value;
	size_t left;
};

static enum MHD_Result nth_value(void *arg, enum MHD_ValueKind kind, const char *name,
				 const char *value)
{
	struct nth *n = arg;

	if (strcasecmp(name, n->name) != 0 || n->left-- > 0)
		return MHD_YES;
	n->value = value ? value : "";
	return MHD_NO;
}

static const char *http_lookup(const struct net_request *r, bool is_header, const char *name,
			       size_t i)
{
	struct http_request *q = r->private;
	enum MHD_ValueKind kind = is_header ? MHD_HEADER_KIND : MHD_GET_ARGUMENT_KIND;
	struct nth n = {.name = name, .left = i};

	MHD_get_connection_values(q->connection, kind, nth_value, &n);
	return n.value;
}

static struct net_request request_of(struct http_request *q, const char *path, const char *method)
{
	return (struct net_request){
		.method = strcmp(method, "HEAD") != 0 ? method : "GET",
		.path = path,
		.body = (const u8 *)str_get(&q->body),
		.n_body = q->body.n,
		.content_type = get_header(q->connection, "Content-Type"),
		.content_encoding = get_header(q->connection, "Content-Encoding"),
		.role = q->sender.role,
		.token_name = q->sender.name,
		.host = q->sender.host,
		.peer = q->peer,
		.sink = q->has_sink ? q->sink.userdata : NULL,
		.lookup = http_lookup,
		.private = q,
	};
}

static void open_sink(struct http_request *q, const char *path, const char *method)
{
	const struct net_options *o = &q->h->l->o;
	struct net_request r = request_of(q, path, method);

	q->started_ms = net_now_ms();
	q->has_sink = o->sink && o->sink(o->userdata, &r, &q->sink);
}

/* After the header: decides about the request before its body is read. */
static enum MHD_Result begin_request(struct net_http *h, struct MHD_Connection *c, const char *path,
				     const char *method, void **con_cls)
{
	struct http_request *q = calloc(1, sizeof(*q));
	const union MHD_ConnectionInfo *i;
	struct net_listener *l = h->l;

	if (!q)
		return MHD_NO;
	q->h = h;
	q->connection = c;
	*con_cls = q;
	atomic_fetch_add(&h->running, 1);
	atomic_fetch_add(&l->counters.requests, 1);
	i = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
	snprintf(q->peer, sizeof(q->peer), "?");
	if (i && i->client_addr)
		net_peer_name(i->client_addr, q->peer);
	if (l->client_ca && !has_certificate(c)) {
		atomic_fetch_add(&l->counters.unauthorized, 1);
		return refuse(q, 403, "this server requires a client certificate");
	}
	q->sender = net_sender_of(l, get_header(c, "Authorization"));
	if (is_from_foreign_page(l, c, path, method)) {
		atomic_fetch_add(&l->counters.unauthorized, 1);
		return refuse(q, 403, "pages of other sites may not use this server");
	}
	if (q->sender.role == NET_ROLE_NONE && !is_public(c, path)) {
		atomic_fetch_add(&l->counters.unauthorized, 1);
		return refuse(q, 401, "this server requires a token: Authorization: Bearer TOKEN");
	}
	open_sink(q, path, method);
	return check_size(q);
}

static enum MHD_Result sink_part(struct http_request *q, const char *data, size_t n)
{
	u64 until = q->started_ms + 2000ULL * q->h->l->o.timeout_s;
	u64 now = net_now_ms();

	if (q->sunk + n > q->sink.max_body) {
		q->too_large = true;
		atomic_fetch_add(&q->h->l->counters.too_large, 1);
		return MHD_YES;
	}
	q->sunk += n;
	until += q->sunk / SLOWEST_BYTES_PER_MS;
	set_deadline(q->h, q->connection, until > now ? until - now : 1);
	q->sink.part(q->sink.userdata, data, n);
	return MHD_YES;
}

/*
 * A part of the body. The rest of a body that is too large is read and dropped, up to a limit, so
 * that the client gets the answer.
 */
static enum MHD_Result take_part(struct http_request *q, const char *data, size_t n)
{
	struct net_listener *l = q->h->l;

	if (q->too_large || q->no_memory) {
		q->dropped += n;
		return q->dropped > l->o.max_body ? MHD_NO : MHD_YES;
	}
	if (q->has_sink)
		return sink_part(q, data, n);
	if (q->body.n + n > l->o.max_body) {
		q->too_large = true;
		atomic_fetch_add(&l->counters.too_large, 1);
	} else if (!net_buffer_take(l, n)) {
		q->no_memory = true;
	} else {
		q->charged += n;
		if (str_append(&q->body, data, n) == 0)
			return MHD_YES;
		q->no_memory = true;
	}
	net_buffer_give(l, q->charged);
	q->charged = 0;
	str_deinit(&q->body);
	q->body = (struct str){};
	return MHD_YES;
}

static enum MHD_Result finish_request(struct http_request *q, const char *path, const char *method)
{
	struct net_listener *l = q->h->l;
	struct net_response a = {.status = 200};
	struct net_request r = request_of(q, path, method);

	if (q->too_large)
		return refuse(q, 413, "the body is larger than this server accepts");
	if (q->no_memory)
		return refuse(q, 503, "too many large requests at once");
	set_deadline(q->h, q->connection, 0);
	l->o.handler(l->o.userdata, &r, &a);
	return send_answer(q, &a);
}

static enum MHD_Result on_request(void *userdata, struct MHD_Connection *connection,
				  const char *url, const char *method, const char *version,
				  const char *data, size_t *n, void **con_cls)
{
	struct http_request *q = *con_cls;

	if (!q)
		return begin_request(userdata, connection, url, method, con_cls);
	if (*n == 0)
		return q->answered ? MHD_YES : finish_request(q, url, method);
	if (take_part(q, data, *n) != MHD_YES)
		return MHD_NO;
	*n = 0;
	return MHD_YES;
}

static void CULPRIT_PRINTF(2, 0) on_log(void *userdata, const char *fmt, va_list ap)
{
	char line[256];

	if (!log_enabled(LOG_LEVEL_DEBUG))
		return;
	vsnprintf(line, sizeof(line), fmt, ap);
	line[strcspn(line, "\n")] = '\0';
	log_debug("http: %s", line);
}

/* ---- start and stop ---- */

/*
 * The daemon needs credentials of its own; begin_tls() replaces these credentials in every session.
 */
static int no_certificate(gnutls_session_t session, const gnutls_datum_t *ca, int n_ca,
			  const gnutls_pk_algorithm_t *algorithms, int n_algorithms,
			  gnutls_pcert_st **chain, unsigned int *n_chain, gnutls_privkey_t *key)
{
	return -1;
}

static struct MHD_Daemon *start_daemon(struct net_http *h)
{
	struct net_listener *l = h->l;
	unsigned int flags = MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_THREAD_PER_CONNECTION |
			     MHD_USE_POLL | MHD_USE_ITC | MHD_USE_ERROR_LOG;
	const struct MHD_OptionItem tls[] = {
		{MHD_OPTION_HTTPS_CERT_CALLBACK, 0, (void *)no_certificate},
		{MHD_OPTION_HTTPS_PRIORITIES, 0, (void *)NET_TLS_PRIORITY},
		{MHD_OPTION_END, 0, NULL},
	};
	const struct MHD_OptionItem none = {MHD_OPTION_END, 0, NULL};

	if (l->tls)
		flags |= MHD_USE_TLS;
	return MHD_start_daemon(
		flags, l->port, NULL, NULL, on_request, h, MHD_OPTION_EXTERNAL_LOGGER, on_log, h,
		MHD_OPTION_LISTEN_SOCKET, l->fd, MHD_OPTION_CONNECTION_LIMIT, l->o.max_connections,
		MHD_OPTION_CONNECTION_TIMEOUT, l->o.timeout_s, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
		(size_t)NET_MAX_HEADER_BYTES, MHD_OPTION_THREAD_STACK_SIZE, (size_t)STACK_BYTES,
		MHD_OPTION_NOTIFY_CONNECTION, on_connection, h, MHD_OPTION_NOTIFY_COMPLETED,
		on_completed, h, MHD_OPTION_ARRAY, l->tls ? tls : &none, MHD_OPTION_END);
}

int net_http_start(struct net_listener *l, struct diag *reterr_diag)
{
	struct net_http *h = calloc(1, sizeof(*h));
	int r;

	if (!h)
		return -ENOMEM;
	h->l = l;
	thread_sync_init(&h->lock, &h->wake);
	r = thread_start(&h->watchdog, "http-watchdog", watch_deadlines, h);
	if (r < 0) {
		free(h);
		return r;
	}
	l->http = h;
	h->daemon = start_daemon(h);
	if (!h->daemon) {
		net_http_stop(l, 0);
		return diag_set(reterr_diag, -EIO, "%s: cannot start the HTTP server",
				l->o.address);
	}
	l->fd = -1; /* the daemon owns it */
	return 0;
}

void net_http_stop(struct net_listener *l, u32 timeout_ms)
{
	struct net_http *h = l->http;
	u64 until = net_now_ms() + timeout_ms;
	const struct timespec tick = {.tv_nsec = 10000000};
	int fd = -1;

	if (h->daemon)
		fd = MHD_quiesce_daemon(h->daemon);
	if (fd >= 0)
		close(fd);
	atomic_store(&h->stopping, true);
	while (atomic_load(&h->running) && net_now_ms() < until)
		nanosleep(&tick, NULL);
	pthread_mutex_lock(&h->lock);
	pthread_cond_signal(&h->wake);
	pthread_mutex_unlock(&h->lock);
	pthread_join(h->watchdog, NULL);
	if (h->daemon)
		MHD_stop_daemon(h->daemon);
	pthread_mutex_destroy(&h->lock);
	pthread_cond_destroy(&h->wake);
	free(h);
	l->http = NULL;
}
