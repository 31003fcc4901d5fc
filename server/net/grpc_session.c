/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gRPC over HTTP/2, as in its protocol document: a POST of application/grpc whose body is five
 * bytes (compressed or not, length) and one message. The answer is a message and then trailers with
 * the status; for an error, trailers alone.
 *
 * Of a stream (enum net_stream) the body may have any number of messages. Of one that answers each,
 * the next message is looked at once the answer to the one before is sent. Of one that collects, a
 * worker gets all messages that have arrived, and the client may send a window's worth meanwhile;
 * one that talks does the same, and may answer them.
 *
 * nghttp2 checks the HTTP/2 protocol. This file bounds headers, bodies (each, and those of all
 * connections together), concurrent calls, and time.
 */
#include <errno.h>
#include <nghttp2/nghttp2.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/vec.h"
#include "server/net/internal.h"

#define MAX_CALLS 64
#define MAX_HEADER_BYTES (16u << 10)
#define WINDOW_BYTES (1 << 20)
#define SEND_BYTES (64u << 10)
#define FRAME_BYTES NET_FRAME_BYTES
#define STREAM_BYTES (64u << 10) /* of messages that wait, in one call that answers each */
#define COLLECT_BYTES (4u << 20) /* of one message of a call that collects */

struct grpc_call;

struct grpc_session {
	struct net_session base;
	nghttp2_session *h2;
	struct grpc_call *calls;
	bool draining;
};

struct grpc_header {
	char *name, *value; /* owned */
};

struct grpc_call {
	struct net_call base;
	struct grpc_call *next, **to_this; /* in the session */
	s32 id;
	char *path; /* owned; NULL until it was received */
	vec(struct grpc_header) headers;
	size_t header_bytes;
	struct str body; /* as received, with the five bytes before the message */
	size_t charged;	 /* bytes taken from the budget for bodies */
	u64 complete_ms; /* when the request must be complete; 0 = it is complete */
	bool post, answered;
	bool refused; /* answered before the request was complete */
	/* The answer; of a stream, the answer to one message. */
	struct str framed;
	size_t sent;
	u64 answer_bytes; /* of all messages */
	/* A stream: `body` is the message that a worker has. */
	enum net_stream stream;
	bool ended, begun; /* ended: the client sends no more; begun: headers were sent */
	struct str in;	   /* messages that wait */
	size_t unread;	   /* bytes of them that the client's window does not have back */
	struct net_talk talk;
};

static void next_message(struct grpc_call *c);

/* Whether a worker gets all messages that have arrived. */
static bool collects(const struct grpc_call *c)
{
	return c->stream == NET_STREAM_COLLECTS || c->stream == NET_STREAM_TALKS;
}

static struct grpc_session *session_of(struct net_session *s)
{
	return container_of(s, struct grpc_session, base);
}

/* ---- calls ---- */

static void call_free(struct grpc_call *c)
{
	net_buffer_give(c->base.l, c->charged);
	if (c->talk.state)
		c->talk.end(c->talk.state);
	vec_foreach (&c->headers, h) {
		free(h->name);
		free(h->value);
	}
	vec_deinit(&c->headers);
	free(c->path);
	str_deinit(&c->in);
	str_deinit(&c->body);
	str_deinit(&c->framed);
	net_call_deinit(&c->base);
	free(c);
}

static u64 patience_ms(const struct grpc_call *c)
{
	return 2000ULL * c->base.l->o.timeout_s;
}

static struct grpc_call *call_create(struct grpc_session *s, s32 id)
{
	struct grpc_call *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	net_call_init(&c->base, &s->base);
	c->id = id;
	c->complete_ms = c->base.began_ms + patience_ms(c);
	c->next = s->calls;
	c->to_this = &s->calls;
	if (c->next)
		c->next->to_this = &c->next;
	s->calls = c;
	return c;
}

/* Takes the call out of the session, and frees it unless its handler runs. */
static void call_detach(struct grpc_call *c)
{
	struct net_session *s = c->base.session;

	*c->to_this = c->next;
	if (c->next)
		c->next->to_this = c->to_this;
	s->calls--;
	s->rest_ms = net_now_ms();
	c->base.session = NULL;
	atomic_store(&c->base.gone, 2);
	if (!c->base.working)
		call_free(c);
}

static const char *call_header(const struct grpc_call *c, const char *name, size_t i)
{
	for (size_t k = 0; k < c->headers.n; k++)
		if (!strcasecmp(c->headers.data[k].name, name) && i-- == 0)
			return c->headers.data[k].value;
	return NULL;
}

static const char *grpc_lookup(const struct net_request *r, bool header, const char *name, size_t i)
{
	return header ? call_header(r->private, name, i) : NULL;
}

static void set_error(struct grpc_call *c, int status, const char *message)
{
	c->base.response.status = status;
	snprintf(c->base.response.message, sizeof(c->base.response.message), "%s", message);
}

/* Finds the message in its frame; false: the response has the error. */
static bool unframe(struct grpc_call *c, struct net_request *r)
{
	const u8 *b = (const u8 *)str_get(&c->body);
	u32 n;

	if (c->body.n < FRAME_BYTES || b[0] > 1) {
		set_error(c, NET_GRPC_INVALID_ARGUMENT, "not a gRPC message");
		return false;
	}
	n = (u32)b[1] << 24 | (u32)b[2] << 16 | (u32)b[3] << 8 | b[4];
	if (n != c->body.n - FRAME_BYTES) {
		set_error(c, NET_GRPC_INVALID_ARGUMENT,
			  "the body is not one message of the length in its header");
		return false;
	}
	if (b[0]) {
		r->content_encoding = call_header(c, "grpc-encoding", 0);
		if (!r->content_encoding) {
			set_error(c, NET_GRPC_INVALID_ARGUMENT, "missing grpc-encoding header");
			return false;
		}
		if (strcasecmp(r->content_encoding, "gzip") != 0 &&
		    strcasecmp(r->content_encoding, "zstd") != 0 &&
		    strcasecmp(r->content_encoding, "identity") != 0) {
			set_error(c, NET_GRPC_UNIMPLEMENTED,
				  "grpc-encoding: identity, gzip or zstd");
			return false;
		}
	}
	r->body = b + FRAME_BYTES;
	r->n_body = n;
	return true;
}

static void run_call(struct net_call *base)
{
	struct grpc_call *c = container_of(base, struct grpc_call, base);

	if (collects(c)) {
		base->request.framed = true;
		base->request.talk = c->stream == NET_STREAM_TALKS ? &c->talk : NULL;
		base->request.body = (const u8 *)str_get(&c->body);
		base->request.n_body = c->body.n;
	} else if (!unframe(c, &base->request)) {
		return;
	}
	net_call_run(base);
}

/* The milliseconds of a grpc-timeout ("500m"), or 0. */
static u64 timeout_ms(const char *s)
{
	static const struct {
		char unit;
		u64 us;
	} units[] = {{'H', 3600000000}, {'M', 60000000}, {'S', 1000000}, {'m', 1000}, {'u', 1}};
	u64 n = 0;
	size_t digits = s ? strspn(s, "0123456789") : 0;

	if (!digits || digits > 8 || strlen(s) != digits + 1)
		return 0;
	for (size_t i = 0; i < digits; i++)
		n = n * 10 + (u64)(s[i] - '0');
	for (size_t i = 0; i < ARRAY_SIZE(units); i++)
		if (units[i].unit == s[digits])
			return MAX(n * units[i].us / 1000, 1ULL);
	return s[digits] == 'n' ? MAX(n / 1000000, 1ULL) : 0;
}

/* ---- answers ---- */

static nghttp2_nv make_header(const char *name, const char *value)
{
	return (nghttp2_nv){.name = (u8 *)name,
			    .value = (u8 *)value,
			    .namelen = strlen(name),
			    .valuelen = strlen(value)};
}

/* grpc-message is percent-encoded. */
static void encode_message(const char *s, char *ret, size_t cap)
{
	size_t n = 0;

	for (; *s && n + 4 < cap; s++) {
		if (*s >= ' ' && *s <= '~' && *s != '%')
			ret[n++] = *s;
		else
			n += (size_t)snprintf(ret + n, cap - n, "%%%02X", (u8)*s);
	}
	ret[n] = '\0';
}

/* The last headers, after the last message. */
static int submit_trailers(nghttp2_session *h2, const struct grpc_call *c)
{
	char status[16], message[768];
	nghttp2_nv nv[2];

	snprintf(status, sizeof(status), "%d", c->base.response.status);
	encode_message(c->base.response.message, message, sizeof(message));
	nv[0] = make_header("grpc-status", status);
	nv[1] = make_header("grpc-message", message);
	return nghttp2_submit_trailer(h2, c->id, nv, *message ? 2 : 1);
}

static ssize_t read_answer(nghttp2_session *h2, int32_t id, uint8_t *buf, size_t max,
			   uint32_t *flags, nghttp2_data_source *source, void *userdata)
{
	struct grpc_call *c = source->ptr;
	size_t n = MIN(max, c->framed.n - c->sent);

	memcpy(buf, str_get(&c->framed) + c->sent, n);
	c->sent += n;
	if (!n && !c->answered) {
		next_message(c);
		if (!c->answered)
			return NGHTTP2_ERR_DEFERRED;
	}
	if (c->answered && c->sent == c->framed.n) {
		*flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
		if (submit_trailers(h2, c) != 0)
			return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
	}
	return (ssize_t)n;
}

/* The frame of a message, or an error instead. */
static void frame_answer(struct grpc_call *c)
{
	u32 n = (u32)c->base.response.body.n;
	const u8 head[FRAME_BYTES] = {0, (u8)(n >> 24), (u8)(n >> 16), (u8)(n >> 8), (u8)n};

	if (str_append(&c->framed, head, sizeof(head)) < 0 ||
	    str_append(&c->framed, str_get(&c->base.response.body), n) < 0)
		set_error(c, NET_GRPC_UNAVAILABLE, "out of memory");
	else
		c->answer_bytes += c->framed.n;
}

static void submit_answer(struct grpc_call *c)
{
	nghttp2_session *h2 = session_of(c->base.session)->h2;
	nghttp2_data_provider data = {.source.ptr = c, .read_callback = read_answer};
	char status[16], message[768];
	nghttp2_nv nv[5] = {make_header(":status", "200"),
			    make_header("content-type", "application/grpc"),
			    make_header("grpc-accept-encoding", "identity,gzip,zstd")};

	if (c->begun) {
		/* It fails within read_answer(), which goes on by itself. */
		(void)nghttp2_session_resume_data(h2, c->id);
		return;
	}
	if (c->base.response.status == NET_GRPC_OK) {
		c->begun = true;
		nghttp2_submit_response(h2, c->id, nv, 3, &data);
		return;
	}
	snprintf(status, sizeof(status), "%d", c->base.response.status);
	encode_message(c->base.response.message, message, sizeof(message));
	nv[3] = make_header("grpc-status", status);
	nv[4] = make_header("grpc-message", message);
	nghttp2_submit_response(h2, c->id, nv, 5, NULL);
}

/* The last answer of a call, or its only one. */
static void answer(struct grpc_call *c)
{
	if ((c->stream == NET_STREAM_NONE || c->stream == NET_STREAM_COLLECTS) &&
	    c->base.response.status == NET_GRPC_OK)
		frame_answer(c);
	c->answered = true;
	c->refused |= c->stream && !c->ended;
	c->complete_ms = 0;
	net_buffer_give(c->base.l, c->charged);
	c->charged = 0;
	str_deinit(&c->body);
	c->body = (struct str){};
	submit_answer(c);
	net_call_log(&c->base, c->base.response.status, c->answer_bytes);
}

/* The answer to messages of a stream, or the error that ends the stream. */
static void answer_message(struct grpc_call *c)
{
	bool answers = c->stream == NET_STREAM_ANSWERS || c->base.response.answers;

	if (answers && c->base.response.status == NET_GRPC_OK)
		frame_answer(c);
	if (c->base.response.status != NET_GRPC_OK) {
		str_clear(&c->framed);
		answer(c);
		return;
	}
	net_buffer_give(c->base.l, c->body.n);
	c->charged -= c->body.n;
	str_deinit(&c->body);
	c->body = (struct str){};
	str_deinit(&c->base.response.body);
	c->base.response = (struct net_response){};
	c->complete_ms = net_now_ms() + patience_ms(c);
	if (answers)
		submit_answer(c);
	else
		next_message(c);
}

static void call_done(struct net_call *base)
{
	struct grpc_call *c = container_of(base, struct grpc_call, base);

	if (!base->session) {
		net_call_log(base, 499, 0);
		call_free(c);
	} else if (c->stream && !c->answered) {
		answer_message(c);
	} else if (!c->answered) {
		answer(c);
	}
}

/* Answers before the request is complete, and drops the rest of the request. */
static void refuse(struct grpc_call *c, int status, const char *message)
{
	/* A stream has no place for an error in the middle of a message. */
	if (c->base.working || c->sent < c->framed.n) {
		c->answered = true;
		c->complete_ms = 0;
		nghttp2_submit_rst_stream(session_of(c->base.session)->h2, NGHTTP2_FLAG_NONE, c->id,
					  NGHTTP2_ENHANCE_YOUR_CALM);
		if (!c->base.working)
			net_call_log(&c->base, status, c->answer_bytes);
		return;
	}
	set_error(c, status, message);
	c->refused = true;
	answer(c);
}

/* A request that is not gRPC gets an HTTP status. */
static void refuse_http(struct grpc_call *c, int status)
{
	nghttp2_nv nv[] = {make_header(":status", status == 415 ? "415" : "405")};

	c->answered = true;
	c->complete_ms = 0;
	c->refused = true;
	nghttp2_submit_response(session_of(c->base.session)->h2, c->id, nv, 1, NULL);
	net_call_log(&c->base, status, 0);
}

/* ---- work ---- */

static void begin_work(struct grpc_call *c)
{
	const struct net_options *o = &c->base.l->o;
	bool writes = !o->writes || o->writes(o->userdata, &c->base.request);

	c->complete_ms = 0;
	c->base.run = run_call;
	c->base.done = call_done;
	if (net_call_submit(&c->base, writes ? POOL_WRITE : POOL_READ) < 0)
		refuse(c, NET_GRPC_UNAVAILABLE, "too many requests wait for this server");
}

/* Moves messages that wait to the worker's; false: none is complete. */
static bool take_messages(struct grpc_call *c)
{
	const u8 *b = (const u8 *)str_get(&c->in);
	size_t n = net_whole_messages(b, c->in.n, collects(c));

	if (!n)
		return false;
	if (str_append(&c->body, b, n) < 0) {
		refuse(c, NET_GRPC_UNAVAILABLE, "out of memory");
		return true;
	}
	memmove(c->in.data, c->in.data + n, c->in.n - n);
	c->in.n -= n;
	c->base.request.content_encoding = NULL;
	begin_work(c);
	return true;
}

/* Lets the client send as much again as a worker, or nobody yet, has taken. */
static void give_window(struct grpc_call *c)
{
	nghttp2_session_consume(session_of(c->base.session)->h2, c->id, c->unread);
	c->unread = 0;
}

static void end_stream(struct grpc_call *c)
{
	if (c->stream != NET_STREAM_TALKS || c->talk.ended) {
		answer(c);
		return;
	}
	c->talk.ended = true;
	begin_work(c);
}

/* Goes on with a stream, unless a message is at work, or its answer on the way. */
static void next_message(struct grpc_call *c)
{
	if (c->answered || c->base.working || c->sent < c->framed.n)
		return;
	give_window(c);
	str_clear(&c->framed);
	c->sent = 0;
	quota_pool_release(c->base.l->o.limits.pool, c->base.held);
	c->base.held = 0;
	if (session_of(c->base.session)->draining)
		refuse(c, NET_GRPC_UNAVAILABLE, "this server stops");
	else if (!take_messages(c) && c->ended && c->in.n)
		refuse(c, NET_GRPC_INVALID_ARGUMENT, "the last message is not complete");
	else if (!c->answered && !c->base.working && c->ended)
		end_stream(c);
}

/* ---- requests ---- */

static struct grpc_call *call_of(nghttp2_session *h2, s32 id)
{
	return nghttp2_session_get_stream_user_data(h2, id);
}

static int on_begin_headers(nghttp2_session *h2, const nghttp2_frame *f, void *userdata)
{
	struct grpc_session *s = userdata;
	struct grpc_call *c;

	if (f->hd.type != NGHTTP2_HEADERS || f->headers.cat != NGHTTP2_HCAT_REQUEST)
		return 0;
	c = call_create(s, f->hd.stream_id);
	if (!c)
		return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
	nghttp2_session_set_stream_user_data(h2, f->hd.stream_id, c);
	return 0;
}

static int add_header(struct grpc_call *c, const u8 *name, size_t name_n, const u8 *value,
		      size_t value_n)
{
	struct grpc_header h = {strndup((const char *)name, name_n),
				strndup((const char *)value, value_n)};

	if (!h.name || !h.value || vec_push(&c->headers, h) < 0) {
		free(h.name);
		free(h.value);
		return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
	}
	return 0;
}

static int on_header(nghttp2_session *h2, const nghttp2_frame *f, const uint8_t *name,
		     size_t name_n, const uint8_t *value, size_t value_n, uint8_t flags,
		     void *userdata)
{
	struct grpc_call *c = call_of(h2, f->hd.stream_id);

	if (!c || c->answered)
		return 0;
	c->header_bytes += name_n + value_n + 32;
	if (c->header_bytes > MAX_HEADER_BYTES) {
		atomic_fetch_add(&c->base.l->counters.too_large, 1);
		return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
	}
	if (name_n == 7 && !memcmp(name, ":method", 7)) {
		c->post = value_n == 4 && !memcmp(value, "POST", 4);
	} else if (name_n == 5 && !memcmp(name, ":path", 5)) {
		free(c->path);
		c->path = strndup((const char *)value, value_n);
		return c->path ? 0 : NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
	} else if (name_n && *name != ':') {
		return add_header(c, name, name_n, value, value_n);
	}
	return 0;
}

static void headers_complete(struct grpc_call *c)
{
	const char *type = call_header(c, "content-type", 0), *authorization, *skywalking;
	const struct net_options *o = &c->base.l->o;
	struct net_request *r = &c->base.request;
	char bearer[1024];
	u64 timeout;
	bool known;

	r->method = c->post ? "POST" : "?";
	r->path = c->path;
	r->content_type = type;
	r->grpc = true;
	r->lookup = grpc_lookup;
	r->private = c;
	if (!c->path || !c->post || !type || strncasecmp(type, "application/grpc", 16) != 0) {
		refuse_http(c, c->post ? 415 : 405);
		return;
	}
	authorization = call_header(c, "authorization", 0);
	skywalking = authorization ? NULL : call_header(c, "authentication", 0);
	/* SkyWalking's agents send a token by itself. */
	if (skywalking && snprintf(bearer, sizeof(bearer), "Bearer %s", skywalking) > 0)
		authorization = bearer;
	/* A probe of health has no token, as for /healthz. */
	known = net_call_identify(&c->base, authorization);
	if (!known && !str_starts(c->path, "/grpc.health.v1.Health/")) {
		if (authorization)
			net_note_bad_token(c->base.l, r->peer);
		atomic_fetch_add(&c->base.l->counters.unauthorized, 1);
		refuse(c, NET_GRPC_UNAUTHENTICATED,
		       "this server wants a token: authorization: Bearer TOKEN");
		return;
	}
	c->base.session->trusted |= known;
	timeout = timeout_ms(call_header(c, "grpc-timeout", 0));
	c->base.deadline_ms = timeout ? c->base.began_ms + timeout : 0;
	c->stream = o->streams ? o->streams(o->userdata, r) : NET_STREAM_NONE;
}

/* Bytes of a message, and of others that wait. */
static size_t max_waiting(const struct grpc_call *c)
{
	size_t max = c->base.l->o.max_body;

	if (c->stream == NET_STREAM_ANSWERS)
		return MIN(max, (size_t)STREAM_BYTES);
	return collects(c) ? MIN(max, (size_t)COLLECT_BYTES) + WINDOW_BYTES : max;
}

static int on_data(nghttp2_session *h2, uint8_t flags, int32_t id, const uint8_t *data, size_t n,
		   void *userdata)
{
	struct grpc_call *c = call_of(h2, id);
	size_t limit;
	struct str *to;

	if (!c || c->answered || !collects(c))
		nghttp2_session_consume(h2, id, n);
	if (!c || c->answered)
		return 0;
	to = c->stream ? &c->in : &c->body;
	limit = FRAME_BYTES + max_waiting(c);
	c->unread += collects(c) ? n : 0;
	c->base.received += n;
	if (to->n + n > limit) {
		atomic_fetch_add(&c->base.l->counters.too_large, 1);
		refuse(c, NET_GRPC_RESOURCE_EXHAUSTED,
		       "the message is larger than this server "
		       "takes");
	} else if (!net_buffer_take(c->base.l, n)) {
		refuse(c, NET_GRPC_UNAVAILABLE, "too many large requests at once");
	} else {
		c->charged += n;
		if (str_append(to, data, n) < 0)
			refuse(c, NET_GRPC_UNAVAILABLE, "out of memory");
		else if (c->stream)
			next_message(c);
	}
	return 0;
}

static int on_frame(nghttp2_session *h2, const nghttp2_frame *f, void *userdata)
{
	struct grpc_call *c;

	if (f->hd.type != NGHTTP2_HEADERS && f->hd.type != NGHTTP2_DATA)
		return 0;
	c = call_of(h2, f->hd.stream_id);
	if (!c)
		return 0;
	if (f->hd.type == NGHTTP2_HEADERS && f->headers.cat == NGHTTP2_HCAT_REQUEST)
		headers_complete(c);
	if (!(f->hd.flags & NGHTTP2_FLAG_END_STREAM))
		return 0;
	c->ended = true;
	if (c->stream)
		next_message(c);
	else if (!c->answered && !c->base.working)
		begin_work(c);
	return 0;
}

/*
 * Asks the client to stop sending, after the answer: an earlier request would overtake the answer.
 */
static int on_frame_sent(nghttp2_session *h2, const nghttp2_frame *f, void *userdata)
{
	struct grpc_call *c = call_of(h2, f->hd.stream_id);

	if (f->hd.type == NGHTTP2_HEADERS && f->hd.flags & NGHTTP2_FLAG_END_STREAM && c &&
	    c->refused)
		nghttp2_submit_rst_stream(h2, NGHTTP2_FLAG_NONE, c->id, NGHTTP2_NO_ERROR);
	return 0;
}

static int on_stream_close(nghttp2_session *h2, int32_t id, uint32_t code, void *userdata)
{
	struct grpc_call *c = call_of(h2, id);

	if (!c)
		return 0;
	if (!c->answered)
		atomic_fetch_add(&c->base.l->counters.broken, 1);
	nghttp2_session_consume_connection(h2, c->unread);
	nghttp2_session_set_stream_user_data(h2, id, NULL);
	call_detach(c);
	return 0;
}

/* ---- the session ---- */

static int create_h2(struct grpc_session *s)
{
	nghttp2_session_callbacks *cb;
	nghttp2_option *option = NULL;
	int r;

	if (nghttp2_session_callbacks_new(&cb) != 0)
		return -ENOMEM;
	nghttp2_session_callbacks_set_on_begin_headers_callback(cb, on_begin_headers);
	nghttp2_session_callbacks_set_on_header_callback(cb, on_header);
	nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, on_data);
	nghttp2_session_callbacks_set_on_frame_recv_callback(cb, on_frame);
	nghttp2_session_callbacks_set_on_frame_send_callback(cb, on_frame_sent);
	nghttp2_session_callbacks_set_on_stream_close_callback(cb, on_stream_close);
	r = nghttp2_option_new(&option);
	if (r == 0) {
		nghttp2_option_set_max_settings(option, 32);
		nghttp2_option_set_max_outbound_ack(option, 100);
		nghttp2_option_set_max_deflate_dynamic_table_size(option, 4096);
		nghttp2_option_set_no_closed_streams(option, 1);
		nghttp2_option_set_no_auto_window_update(option, 1);
		r = nghttp2_session_server_new2(&s->h2, cb, s, option);
	}
	nghttp2_option_del(option);
	nghttp2_session_callbacks_del(cb);
	return r == 0 ? 0 : -ENOMEM;
}

static void grpc_destroy(struct net_session *base)
{
	struct grpc_session *s = session_of(base);

	while (s->calls)
		call_detach(s->calls);
	nghttp2_session_del(s->h2);
	free(s);
}

static int grpc_receive(struct net_session *base, const u8 *data, size_t n)
{
	ssize_t r = nghttp2_session_mem_recv(session_of(base)->h2, data, n);

	return r < 0 || (size_t)r != n ? -EBADMSG : 0;
}

static int grpc_send(struct net_session *base, struct str *out)
{
	while (out->n < SEND_BYTES) {
		const u8 *data;
		ssize_t n = nghttp2_session_mem_send(session_of(base)->h2, &data);

		if (n < 0)
			return -EBADMSG;
		if (n == 0)
			return 0;
		if (str_append(out, data, (size_t)n) < 0)
			return -ENOMEM;
	}
	return 0;
}

static bool grpc_ended(const struct net_session *base)
{
	nghttp2_session *h2 = container_of(base, struct grpc_session, base)->h2;

	return !nghttp2_session_want_read(h2) && !nghttp2_session_want_write(h2);
}

static bool grpc_wants(const struct net_session *base)
{
	return true;
}

static u64 grpc_deadline(const struct net_session *base)
{
	const struct grpc_session *s = container_of(base, struct grpc_session, base);
	u64 first = 0;

	for (const struct grpc_call *c = s->calls; c; c = c->next)
		if (c->complete_ms && (!first || c->complete_ms < first))
			first = c->complete_ms;
	return first;
}

static void grpc_expire(struct net_session *base, u64 now_ms)
{
	for (struct grpc_call *c = session_of(base)->calls; c; c = c->next) {
		if (!c->complete_ms || c->complete_ms > now_ms || c->answered)
			continue;
		atomic_fetch_add(&base->l->counters.timed_out, 1);
		refuse(c, NET_GRPC_DEADLINE_EXCEEDED, "the request took too long to arrive");
	}
}

static void grpc_drain(struct net_session *base)
{
	struct grpc_session *s = session_of(base);

	if (!s->draining)
		nghttp2_submit_goaway(s->h2, NGHTTP2_FLAG_NONE,
				      nghttp2_session_get_last_proc_stream_id(s->h2),
				      NGHTTP2_NO_ERROR, NULL, 0);
	s->draining = true;
	for (struct grpc_call *c = s->calls; c; c = c->next)
		if (c->stream)
			next_message(c);
}

static void grpc_hangup(struct net_session *base)
{
	for (struct grpc_call *c = session_of(base)->calls; c; c = c->next)
		atomic_store(&c->base.gone, 1);
}

int grpc_session_create(struct net_listener *l, struct net_peer *peer, struct net_session **ret)
{
	static const struct net_session_ops ops = {
		.destroy = grpc_destroy,
		.receive = grpc_receive,
		.send = grpc_send,
		.ended = grpc_ended,
		.wants = grpc_wants,
		.deadline = grpc_deadline,
		.expire = grpc_expire,
		.drain = grpc_drain,
		.hangup = grpc_hangup,
	};
	const nghttp2_settings_entry settings[] = {
		{NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, MAX_CALLS},
		{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, WINDOW_BYTES},
		{NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, MAX_HEADER_BYTES},
	};
	struct grpc_session *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->base = (struct net_session){.ops = &ops, .l = l, .peer = peer, .grpc = true};
	if (create_h2(s) < 0 ||
	    nghttp2_submit_settings(s->h2, NGHTTP2_FLAG_NONE, settings, ARRAY_SIZE(settings)) ||
	    nghttp2_session_set_local_window_size(s->h2, NGHTTP2_FLAG_NONE, 0, 4 * WINDOW_BYTES)) {
		grpc_destroy(&s->base);
		return -ENOMEM;
	}
	*ret = &s->base;
	return 0;
}
