/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An HTTP/1.1 connection without its socket: one request after the other.
 *
 *	HEAD ──► BODY ──► WORK ──► ANSWER ──► HEAD, or LINGER
 *	  │       ▲ └─────► WORK (a part of the body goes to a sink)
 *	  └───────┴──────────────────► ANSWER (refused)
 *
 * Nothing is read during WORK and ANSWER: a client that sends requests ahead waits.
 *
 * Bounds for every client:
 *	header		64 KiB
 *	body		max_body, or the sink's limit; a common budget for all bodies in memory
 *	time		a request must be complete after twice the timeout; one that goes to a sink
 *			may take longer, at SLOWEST_BYTES_PER_MS
 *	role		known before the body is read; without a valid token only headers are read
 */
#include <errno.h>
#include <string.h>
#include <strings.h>

#include "compress/compress.h"
#include "server/net/http_head.h"
#include "server/net/internal.h"

#define MIN_GZIP_BYTES 1400
#define SLOWEST_BYTES_PER_MS 16 /* of a client that reads its answer, or fills a sink */
#define SEND_BYTES (64u << 10)
#define FREE_IN_BYTES 4096 /* what a connection may hold of a header without the budget */
#define LINGER_MS 5000

enum state { HEAD, BODY, WORK, ANSWER, LINGER, OVER };

/* A request, from its header to the end of its answer. */
struct http_call {
	struct net_call base;
	struct http_head head;
	struct http_chunks chunks;
	struct str body;
	size_t charged; /* bytes taken from the budget for bodies */
	struct net_sink sink;
	bool has_sink;
	struct str part; /* of the body, for the sink */
	bool gzip;	 /* the answer's body was compressed */
	size_t sent;	 /* of the answer's body */
};

struct http_session {
	struct net_session base;
	enum state state;
	struct http_call *q;
	struct str in; /* from in_at on: not used yet */
	size_t in_at, seen, charged;
	struct str out; /* the header of the answer */
	u64 began_ms;	/* of the request's first byte; 0 = not yet */
	u64 deadline_ms;
	u64 dropped;
	bool close, draining;
};

static struct http_session *session_of(struct net_session *s)
{
	return container_of(s, struct http_session, base);
}

static struct http_call *call_of(struct net_call *c)
{
	return container_of(c, struct http_call, base);
}

static u64 patience_ms(const struct http_session *s)
{
	return 2000ULL * s->base.l->o.timeout_s;
}

static void call_free(struct http_call *q)
{
	net_buffer_give(q->base.l, q->charged);
	if (q->has_sink && q->sink.end)
		q->sink.end(q->sink.userdata);
	str_deinit(&q->body);
	str_deinit(&q->part);
	http_head_deinit(&q->head);
	net_call_deinit(&q->base);
	free(q);
}

/* ---- answers ---- */

static const char *reason_of(int status)
{
	static const struct {
		int status;
		const char *reason;
	} reasons[] = {{200, "OK"},
		       {202, "Accepted"},
		       {204, "No Content"},
		       {304, "Not Modified"},
		       {400, "Bad Request"},
		       {401, "Unauthorized"},
		       {403, "Forbidden"},
		       {404, "Not Found"},
		       {405, "Method Not Allowed"},
		       {413, "Content Too Large"},
		       {415, "Unsupported Media Type"},
		       {417, "Expectation Failed"},
		       {422, "Unprocessable Content"},
		       {429, "Too Many Requests"},
		       {431, "Request Header Fields Too Large"},
		       {500, "Internal Server Error"},
		       {501, "Not Implemented"},
		       {503, "Service Unavailable"},
		       {504, "Gateway Timeout"},
		       {505, "HTTP Version Not Supported"}};

	for (size_t i = 0; i < ARRAY_SIZE(reasons); i++)
		if (reasons[i].status == status)
			return reasons[i].reason;
	return "Status";
}

static void put_date(struct str *out)
{
	time_t now = time(NULL);
	char text[64];
	struct tm tm;

	gmtime_r(&now, &tm);
	strftime(text, sizeof(text), "%a, %d %b %Y %H:%M:%S GMT", &tm);
	str_printf(out, "Date: %s\r\n", text);
}

static void put_head(struct http_session *s, const struct http_call *q)
{
	const struct net_response *a = &q->base.response;
	struct str *out = &s->out;

	str_printf(out, "HTTP/1.1 %d %s\r\n", a->status, reason_of(a->status));
	put_date(out);
	str_printf(out, "Content-Type: %s\r\nX-Content-Type-Options: nosniff\r\n",
		   a->content_type ? a->content_type : "text/plain; charset=utf-8");
	/* Pages of other sites may not show or load what is here. */
	str_puts(out, "X-Frame-Options: DENY\r\nCross-Origin-Resource-Policy: same-origin\r\n");
	if (a->chunked)
		str_puts(out, "Transfer-Encoding: chunked\r\n");
	else if (a->status != 304 && a->status != 204)
		str_printf(out, "Content-Length: %zu\r\n", a->body.n);
	if (q->gzip)
		str_puts(out, "Content-Encoding: gzip\r\n");
	for (u32 i = 0; i < a->n_headers; i++)
		str_printf(out, "%s: %s\r\n", a->headers[i].name, a->headers[i].value);
	if (s->close)
		str_puts(out, "Connection: close\r\n");
	str_puts(out, "\r\n");
}

/* Whether the client may still send a part of this request. */
static bool is_incomplete(const struct http_session *s)
{
	return s->state == HEAD || s->state == BODY;
}

static void answer(struct http_session *s, struct http_call *q)
{
	struct net_response *a = &q->base.response;
	const char *method = q->head.method;
	bool cut = is_incomplete(s) && (!method || q->head.length || q->head.chunked);

	if (a->body.failed) {
		str_deinit(&a->body);
		a->body = (struct str){};
		a->status = 500;
		a->chunked = false;
	}
	/* What the client still sends of the request must not be taken for the next one. */
	s->base.lingers |= cut;
	s->close |= cut || q->head.close || s->draining;
	put_head(s, q);
	net_call_log(&q->base, a->status, a->body.n);
	if ((method && !strcmp(method, "HEAD")) || a->status == 304 || a->status == 204)
		str_clear(&a->body);
	s->state = ANSWER;
	s->deadline_ms = net_now_ms() + patience_ms(s) + a->body.n / SLOWEST_BYTES_PER_MS;
}

static void refuse(struct http_session *s, struct http_call *q, int status, const char *text)
{
	struct net_response *a = &q->base.response;

	a->status = status;
	str_printf(&a->body, "%s\n", text);
	if (status == 401)
		a->headers[a->n_headers++] =
			(__typeof__(a->headers[0])){"WWW-Authenticate", "Bearer realm=\"culprit\""};
	if (status == 503)
		a->headers[a->n_headers++] = (__typeof__(a->headers[0])){"Retry-After", "1"};
	answer(s, q);
}

static bool worth_gzip(const struct net_response *a)
{
	if (a->chunked || a->body.n < MIN_GZIP_BYTES ||
	    gzip_is((const u8 *)a->body.data, a->body.n))
		return false;
	for (u32 i = 0; i < a->n_headers; i++)
		if (!strcasecmp(a->headers[i].name, "Content-Encoding"))
			return false;
	return true;
}

static void pack(struct net_call *c)
{
	struct http_call *q = call_of(c);
	const char *accepts = http_head_field(&q->head, "Accept-Encoding", 0);
	struct net_response *a = &q->base.response;
	struct str packed = {};

	if (!accepts || !strstr(accepts, "gzip") || strstr(accepts, "gzip;q=0") || !worth_gzip(a))
		return;
	if (gzip_deflate(a->body.data, a->body.n, &packed) < 0) {
		str_deinit(&packed);
		return;
	}
	str_deinit(&a->body);
	a->body = packed;
	q->gzip = true;
}

/* ---- handlers ---- */

static void handler_done(struct net_call *c)
{
	struct http_call *q = call_of(c);

	net_buffer_give(c->l, q->charged);
	q->charged = 0;
	str_deinit(&q->body);
	q->body = (struct str){};
	if (c->session) {
		answer(session_of(c->session), q);
		return;
	}
	net_call_log(c, 499, 0);
	call_free(q);
}

static const char *lookup(const struct net_request *r, bool header, const char *name, size_t i)
{
	const struct http_call *q = r->private;

	return header ? http_head_field(&q->head, name, i) : http_head_parameter(&q->head, name, i);
}

/* "/ready" is what probes of Pyroscope ask. */
static bool is_probe(const char *path)
{
	return !strcmp(path, "/healthz") || !strcmp(path, "/ready");
}

/* Answered at once by the loop: it says whether the server lives, whatever the workers do. */
static bool is_health(const struct http_call *q)
{
	return is_probe(q->head.path) && !q->body.n;
}

static void begin_work(struct http_session *s, struct http_call *q)
{
	const struct net_options *o = &s->base.l->o;
	struct net_call *c = &q->base;
	bool writes = q->has_sink || (o->writes && o->writes(o->userdata, &c->request));

	c->response.status = 200;
	c->request.body = (const u8 *)str_get(&q->body);
	c->request.n_body = q->body.n;
	c->request.sink = q->has_sink ? q->sink.userdata : NULL;
	c->is_part = false;
	c->run = net_call_run;
	c->pack = pack;
	c->done = handler_done;
	s->state = WORK;
	s->deadline_ms = 0;
	if (is_health(q)) {
		net_call_run(c);
		answer(s, q);
	} else if (net_call_submit(c, writes ? POOL_WRITE : POOL_READ) < 0) {
		refuse(s, q, 503, "too many requests wait for this server");
	}
}

/* ---- the header ---- */

static bool is_from_foreign_page(const struct net_listener *l, const struct http_head *h)
{
	const struct net_origin o = {
		.method = h->method,
		.path = h->path,
		.host = http_head_field(h, "Host", 0),
		.origin = http_head_field(h, "Origin", 0),
		.site = http_head_field(h, "Sec-Fetch-Site", 0),
		.mode = http_head_field(h, "Sec-Fetch-Mode", 0),
	};

	return net_is_foreign(&o, !l->tokens && !l->client_ca);
}

/*
 * These need no token and have no data: the page itself, which its scripts draw, asks for a token.
 * No body is allowed.
 */
static bool is_public(const struct http_head *h)
{
	return (!strcmp(h->path, "/") || str_starts(h->path, "/ui/") || is_probe(h->path)) &&
	       !h->length && !h->chunked;
}

/* 0, or the status and the text of a refusal. */
static int check_access(struct http_session *s, struct http_call *q, const char **ret_why)
{
	const char *authorization = http_head_field(&q->head, "Authorization", 0);
	struct net_listener *l = s->base.l;

	if (l->client_ca && !s->base.certified) {
		*ret_why = "this server requires a client certificate";
		return 403;
	}
	(void)net_call_identify(&q->base, authorization);
	if (is_from_foreign_page(l, &q->head)) {
		*ret_why = "pages of other sites may not use this server";
		return 403;
	}
	if (q->base.request.role != NET_ROLE_NONE) {
		s->base.trusted = true;
		return 0;
	}
	if (authorization)
		net_note_bad_token(l, s->base.peer->name);
	*ret_why = "this server requires a token: Authorization: Bearer TOKEN";
	return is_public(&q->head) ? 0 : 401;
}

static void set_request(struct http_call *q)
{
	struct net_request *r = &q->base.request;

	r->method = strcmp(q->head.method, "HEAD") != 0 ? q->head.method : "GET";
	r->path = q->head.path;
	r->content_type = http_head_field(&q->head, "Content-Type", 0);
	r->content_encoding = http_head_field(&q->head, "Content-Encoding", 0);
	r->lookup = lookup;
	r->private = q;
	q->base.log_path = q->head.target;
}

static u64 max_body(const struct http_call *q)
{
	return q->has_sink ? q->sink.max_body : q->base.l->o.max_body;
}

static void refuse_size(struct http_session *s, struct http_call *q)
{
	atomic_fetch_add(&s->base.l->counters.too_large, 1);
	refuse(s, q, 413, "the body is larger than this server accepts");
}

/* After the header: decides about the request before its body is read. */
static void begin_request(struct http_session *s, struct http_call *q)
{
	const struct net_options *o = &s->base.l->o;
	const char *why = NULL;
	int status;

	set_request(q);
	status = check_access(s, q, &why);
	if (status) {
		atomic_fetch_add(&s->base.l->counters.unauthorized, 1);
		refuse(s, q, status, why);
		return;
	}
	q->has_sink = o->sink && o->sink(o->userdata, &q->base.request, &q->sink);
	if (q->head.length > max_body(q)) {
		refuse_size(s, q);
		return;
	}
	s->state = BODY;
	if (q->head.expects_continue && s->in_at == s->in.n)
		str_puts(&s->out, "HTTP/1.1 100 Continue\r\n\r\n");
}

/* False: more bytes are needed. */
static bool read_head(struct http_session *s)
{
	struct http_call *q;
	const char *why = NULL;
	int status = 400;
	ssize_t n;

	if (s->in_at == s->in.n)
		return false;
	if (!s->began_ms) {
		s->began_ms = net_now_ms();
		s->deadline_ms = s->began_ms + patience_ms(s);
	}
	q = calloc(1, sizeof(*q));
	if (!q)
		return false;
	n = http_head_read(s->in.data + s->in_at, s->in.n - s->in_at, s->seen, &q->head, &status,
			   &why);
	s->seen = s->in.n - s->in_at;
	if (n == 0) {
		free(q);
		return false;
	}
	s->q = q;
	net_call_init(&q->base, &s->base);
	s->seen = 0;
	if (n < 0) {
		q->head.method = NULL;
		atomic_fetch_add(&s->base.l->counters.broken, 1);
		refuse(s, q, status, why);
	} else {
		s->in_at += (size_t)n;
		begin_request(s, q);
	}
	return true;
}

/* ---- the body ---- */

static void run_sink(struct net_call *c)
{
	struct http_call *q = call_of(c);

	q->sink.part(q->sink.userdata, q->part.data, q->part.n);
}

static void sink_done(struct net_call *c)
{
	struct http_call *q = call_of(c);

	str_clear(&q->part);
	if (!c->session) {
		net_call_log(c, 499, 0);
		call_free(q);
		return;
	}
	session_of(c->session)->state = BODY;
}

static void fill_sink(struct http_session *s, struct http_call *q, const char *data, size_t n)
{
	s->deadline_ms = s->began_ms + patience_ms(s) + q->base.received / SLOWEST_BYTES_PER_MS;
	q->base.is_part = true;
	q->base.run = run_sink;
	q->base.done = sink_done;
	if (str_append(&q->part, data, n) < 0 || net_call_submit(&q->base, POOL_WRITE) < 0)
		refuse(s, q, 503, "too many requests wait for this server");
	else
		s->state = WORK;
}

static void take_part(struct http_session *s, struct http_call *q, const char *data, size_t n)
{
	struct net_listener *l = s->base.l;

	q->base.received += n;
	if (q->base.received > max_body(q)) {
		refuse_size(s, q);
	} else if (q->has_sink) {
		fill_sink(s, q, data, n);
	} else if (!net_buffer_take(l, n)) {
		refuse(s, q, 503, "too many large requests at once");
	} else {
		q->charged += n;
		if (str_append(&q->body, data, n) < 0)
			refuse(s, q, 503, "out of memory");
	}
}

/* False: more bytes are needed. */
static bool read_body(struct http_session *s)
{
	struct http_call *q = s->q;
	const char *data = str_get(&s->in) + s->in_at;
	size_t n = s->in.n - s->in_at;
	ssize_t took;

	if (!q->head.chunked) {
		took = (ssize_t)MIN((u64)n, q->head.length - q->base.received);
		n = (size_t)took;
	} else {
		took = http_chunks_read(&q->chunks, data, n, &data, &n);
	}
	if (took < 0) {
		atomic_fetch_add(&s->base.l->counters.broken, 1);
		refuse(s, q, 400, "the body is not in chunks");
		return true;
	}
	s->in_at += (size_t)took;
	if (n)
		take_part(s, q, data, n);
	if (s->state != BODY)
		return true;
	if (q->head.chunked ? q->chunks.state == HTTP_CHUNK_OVER
			    : q->base.received == q->head.length) {
		begin_work(s, q);
		return true;
	}
	return took > 0;
}

static void progress(struct http_session *s)
{
	while ((s->state == HEAD && !s->close && read_head(s)) ||
	       (s->state == BODY && read_body(s)))
		;
	if (s->in_at == s->in.n) {
		str_deinit(&s->in);
		s->in = (struct str){};
	} else if (s->in_at) {
		memmove(s->in.data, s->in.data + s->in_at, s->in.n - s->in_at);
		s->in.n -= s->in_at;
	}
	s->in_at = 0;
}

/* ---- the session ---- */

/* Charges the bytes that wait to the budget for bodies. */
static bool charge_input(struct http_session *s)
{
	size_t n = s->in.n > FREE_IN_BYTES ? s->in.n : 0;

	if (n > s->charged && !net_buffer_take(s->base.l, n - s->charged))
		return false;
	if (n < s->charged)
		net_buffer_give(s->base.l, s->charged - n);
	s->charged = n;
	return true;
}

static int http_receive(struct net_session *base, const u8 *data, size_t n)
{
	struct http_session *s = session_of(base);

	if (s->state == LINGER) {
		s->dropped += n;
		return s->dropped > s->base.l->o.max_body ? -EFBIG : 0;
	}
	if (str_append(&s->in, data, n) < 0)
		return -ENOMEM;
	progress(s);
	return charge_input(s) ? 0 : -ENOMEM;
}

static void finish_answer(struct http_session *s)
{
	call_free(take_ptr(s->q));
	s->base.calls--;
	s->base.rest_ms = net_now_ms();
	s->began_ms = s->deadline_ms = 0;
	s->state = HEAD;
	if (s->close) {
		s->state = s->base.lingers ? LINGER : OVER;
		s->deadline_ms = s->base.rest_ms + LINGER_MS;
	}
}

static int http_send(struct net_session *base, struct str *out)
{
	struct http_session *s = session_of(base);
	struct http_call *q = s->q;
	size_t n;

	progress(s); /* with what came during the work */
	q = s->q;
	if (s->out.n) {
		if (s->out.failed || str_append(out, s->out.data, s->out.n) < 0)
			return -ENOMEM;
		str_deinit(&s->out);
		s->out = (struct str){};
	}
	if (s->state != ANSWER)
		return 0;
	n = MIN(q->base.response.body.n - q->sent, (size_t)SEND_BYTES);
	if (n && str_append(out, q->base.response.body.data + q->sent, n) < 0)
		return -ENOMEM;
	q->sent += n;
	if (q->sent == q->base.response.body.n)
		finish_answer(s);
	return 0;
}

static bool http_ended(const struct net_session *base)
{
	const struct http_session *s = container_of(base, struct http_session, base);

	return s->state == OVER || s->state == LINGER || (s->draining && !s->q);
}

static bool http_wants(const struct net_session *base)
{
	const struct http_session *s = container_of(base, struct http_session, base);

	return s->state == HEAD || s->state == BODY || s->state == LINGER;
}

static u64 http_deadline(const struct net_session *base)
{
	return container_of(base, struct http_session, base)->deadline_ms;
}

/* Its only request ends with the connection. */
static void http_expire(struct net_session *base, u64 now_ms)
{
}

static void http_drain(struct net_session *base)
{
	session_of(base)->draining = true;
}

static void http_hangup(struct net_session *base)
{
	struct http_session *s = session_of(base);

	if (s->q)
		atomic_store(&s->q->base.gone, 1);
}

static void http_destroy(struct net_session *base)
{
	struct http_session *s = session_of(base);
	struct http_call *q = s->q;

	if (q)
		atomic_fetch_add(&base->l->counters.broken, 1);
	if (q && s->state == WORK) {
		q->base.session = NULL; /* lives on until its worker is done */
		atomic_store(&q->base.gone, 2);
	} else if (q) {
		call_free(q);
	}
	net_buffer_give(base->l, s->charged);
	str_deinit(&s->in);
	str_deinit(&s->out);
	free(s);
}

int http_session_create(struct net_listener *l, struct net_peer *peer, struct net_session **ret)
{
	static const struct net_session_ops ops = {
		.destroy = http_destroy,
		.receive = http_receive,
		.send = http_send,
		.ended = http_ended,
		.wants = http_wants,
		.deadline = http_deadline,
		.expire = http_expire,
		.drain = http_drain,
		.hangup = http_hangup,
	};
	struct http_session *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->base = (struct net_session){.ops = &ops, .l = l, .peer = peer};
	*ret = &s->base;
	return 0;
}
