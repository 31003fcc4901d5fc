/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gRPC over HTTP/2, as in its protocol document: a POST of application/grpc whose body is five
 * bytes (compressed or not, length) and one message. The answer is a message and then trailers with
 * the status; for an error, trailers alone.
 *
 * nghttp2 checks the HTTP/2 protocol. This file bounds headers, bodies (each, and those of all
 * connections together), concurrent calls, and time.
 */
#include "server/net/grpc_session.h"

#include <errno.h>
#include <nghttp2/nghttp2.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define MAX_CALLS 64
#define MAX_HEADER_BYTES (16u << 10)
#define WINDOW_BYTES (1 << 20)
#define SEND_BYTES (64u << 10)
#define FRAME_BYTES 5

struct grpc_session {
	nghttp2_session *h2;
	struct net_listener *l;
	struct grpc_session_ops ops;
	struct grpc_call *calls;
	size_t n_calls;
	bool greeted; /* the client's first SETTINGS came */
	char peer[64];
};

/* ---- calls ---- */

static void call_free(struct grpc_call *c)
{
	net_buffer_give(c->l, c->charged);
	vec_foreach (&c->headers, h) {
		free(h->name);
		free(h->value);
	}
	vec_deinit(&c->headers);
	free(c->path);
	str_deinit(&c->body);
	str_deinit(&c->framed);
	str_deinit(&c->response.body);
	free(c);
}

static struct grpc_call *call_create(struct grpc_session *s, s32 id)
{
	struct grpc_call *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->session = s;
	c->l = s->l;
	c->id = id;
	c->deadline_ms = net_now_ms() + 2000ULL * s->l->o.timeout_s;
	memcpy(c->peer, s->peer, sizeof(c->peer));
	c->next = s->calls;
	c->to_this = &s->calls;
	if (c->next)
		c->next->to_this = &c->next;
	s->calls = c;
	s->n_calls++;
	return c;
}

/* Takes the call out of the session, and frees it unless its handler runs. */
static void call_detach(struct grpc_call *c)
{
	*c->to_this = c->next;
	if (c->next)
		c->next->to_this = c->to_this;
	c->session->n_calls--;
	c->session = NULL;
	if (!c->working)
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
	c->response.status = status;
	snprintf(c->response.message, sizeof(c->response.message), "%s", message);
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

void grpc_call_run(struct grpc_call *c)
{
	struct net_request r = {
		.method = "POST",
		.path = c->path,
		.content_type = call_header(c, "content-type", 0),
		.role = c->sender.role,
		.token_name = c->sender.name,
		.host = c->sender.host,
		.peer = c->peer,
		.grpc = true,
		.lookup = grpc_lookup,
		.private = c,
	};

	if (unframe(c, &r))
		c->l->o.handler(c->l->o.userdata, &r, &c->response);
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

static ssize_t read_answer(nghttp2_session *h2, int32_t id, uint8_t *buf, size_t max,
			   uint32_t *flags, nghttp2_data_source *source, void *userdata)
{
	struct grpc_call *c = source->ptr;
	size_t n = MIN(max, c->framed.n - c->sent);
	nghttp2_nv trailer = make_header("grpc-status", "0");

	memcpy(buf, c->framed.data + c->sent, n);
	c->sent += n;
	if (c->sent == c->framed.n) {
		*flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
		if (nghttp2_submit_trailer(h2, id, &trailer, 1) != 0)
			return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
	}
	return (ssize_t)n;
}

static int frame_answer(struct grpc_call *c)
{
	u32 n = (u32)c->response.body.n;
	const u8 head[FRAME_BYTES] = {0, (u8)(n >> 24), (u8)(n >> 16), (u8)(n >> 8), (u8)n};

	if (str_append(&c->framed, head, sizeof(head)) < 0 ||
	    str_append(&c->framed, str_get(&c->response.body), n) < 0)
		return -ENOMEM;
	return 0;
}

static void submit_answer(struct grpc_call *c)
{
	nghttp2_data_provider data = {.source.ptr = c, .read_callback = read_answer};
	char status[16], message[768];
	nghttp2_nv nv[5] = {make_header(":status", "200"),
			    make_header("content-type", "application/grpc"),
			    make_header("grpc-accept-encoding", "identity,gzip,zstd")};

	if (c->response.status == NET_GRPC_OK && frame_answer(c) == 0) {
		nghttp2_submit_response(c->session->h2, c->id, nv, 3, &data);
		return;
	}
	if (c->response.status == NET_GRPC_OK)
		set_error(c, NET_GRPC_UNAVAILABLE, "out of memory");
	snprintf(status, sizeof(status), "%d", c->response.status);
	encode_message(c->response.message, message, sizeof(message));
	nv[3] = make_header("grpc-status", status);
	nv[4] = make_header("grpc-message", message);
	nghttp2_submit_response(c->session->h2, c->id, nv, 5, NULL);
}

void grpc_session_answer(struct grpc_call *c)
{
	c->working = false;
	if (!c->session) {
		call_free(c);
		return;
	}
	if (c->answered)
		return;
	c->answered = true;
	net_buffer_give(c->l, c->charged);
	c->charged = 0;
	str_deinit(&c->body);
	c->body = (struct str){};
	submit_answer(c);
}

/* Answers before the request is complete, and drops the rest of the request. */
static void refuse(struct grpc_call *c, int status, const char *message)
{
	set_error(c, status, message);
	c->deadline_ms = 0;
	c->refused = true;
	grpc_session_answer(c);
}

/* A request that is not gRPC gets an HTTP status. */
static void refuse_http(struct grpc_call *c, const char *status)
{
	nghttp2_nv nv[] = {make_header(":status", status)};

	c->answered = true;
	c->deadline_ms = 0;
	c->refused = true;
	nghttp2_submit_response(c->session->h2, c->id, nv, 1, NULL);
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
	atomic_fetch_add(&s->l->counters.requests, 1);
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
		atomic_fetch_add(&c->l->counters.too_large, 1);
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
	const char *type = call_header(c, "content-type", 0);

	if (!c->path || !c->post || !type || strncasecmp(type, "application/grpc", 16) != 0) {
		refuse_http(c, c->post ? "415" : "405");
		return;
	}
	c->sender = net_sender_of(c->l, call_header(c, "authorization", 0));
	if (c->sender.role == NET_ROLE_NONE) {
		atomic_fetch_add(&c->l->counters.unauthorized, 1);
		refuse(c, NET_GRPC_UNAUTHENTICATED,
		       "this server wants a token: authorization: Bearer TOKEN");
	}
}

static int on_data(nghttp2_session *h2, uint8_t flags, int32_t id, const uint8_t *data, size_t n,
		   void *userdata)
{
	struct grpc_call *c = call_of(h2, id);

	if (!c || c->answered)
		return 0;
	if (c->body.n + n > c->l->o.max_body + FRAME_BYTES) {
		atomic_fetch_add(&c->l->counters.too_large, 1);
		refuse(c, NET_GRPC_RESOURCE_EXHAUSTED,
		       "the message is larger than this server "
		       "takes");
	} else if (!net_buffer_take(c->l, n)) {
		refuse(c, NET_GRPC_UNAVAILABLE, "too many large requests at once");
	} else {
		c->charged += n;
		if (str_append(&c->body, data, n) < 0)
			refuse(c, NET_GRPC_UNAVAILABLE, "out of memory");
	}
	return 0;
}

static int on_frame(nghttp2_session *h2, const nghttp2_frame *f, void *userdata)
{
	struct grpc_session *s = userdata;
	struct grpc_call *c;

	s->greeted |= f->hd.type == NGHTTP2_SETTINGS;
	if (f->hd.type != NGHTTP2_HEADERS && f->hd.type != NGHTTP2_DATA)
		return 0;
	c = call_of(h2, f->hd.stream_id);
	if (!c)
		return 0;
	if (f->hd.type == NGHTTP2_HEADERS && f->headers.cat == NGHTTP2_HCAT_REQUEST)
		headers_complete(c);
	if (!(f->hd.flags & NGHTTP2_FLAG_END_STREAM) || c->answered || c->working)
		return 0;
	c->deadline_ms = 0;
	c->working = true;
	s->ops.call(s->ops.userdata, c);
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
		atomic_fetch_add(&c->l->counters.broken, 1);
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
		r = nghttp2_session_server_new2(&s->h2, cb, s, option);
	}
	nghttp2_option_del(option);
	nghttp2_session_callbacks_del(cb);
	return r == 0 ? 0 : -ENOMEM;
}

int grpc_session_create(struct net_listener *l, const char *peer,
			const struct grpc_session_ops *ops, struct grpc_session **ret)
{
	const nghttp2_settings_entry settings[] = {
		{NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, MAX_CALLS},
		{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, WINDOW_BYTES},
		{NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, MAX_HEADER_BYTES},
	};
	struct grpc_session *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->l = l;
	s->ops = *ops;
	snprintf(s->peer, sizeof(s->peer), "%s", peer);
	if (create_h2(s) < 0 ||
	    nghttp2_submit_settings(s->h2, NGHTTP2_FLAG_NONE, settings, ARRAY_SIZE(settings)) ||
	    nghttp2_session_set_local_window_size(s->h2, NGHTTP2_FLAG_NONE, 0, 4 * WINDOW_BYTES)) {
		grpc_session_destroy(s);
		return -ENOMEM;
	}
	*ret = s;
	return 0;
}

void grpc_session_destroy(struct grpc_session *s)
{
	if (!s)
		return;
	while (s->calls)
		call_detach(s->calls);
	nghttp2_session_del(s->h2);
	free(s);
}

int grpc_session_receive(struct grpc_session *s, const u8 *data, size_t n)
{
	ssize_t r = nghttp2_session_mem_recv(s->h2, data, n);

	return r < 0 || (size_t)r != n ? -EBADMSG : 0;
}

int grpc_session_send(struct grpc_session *s, struct str *out)
{
	while (out->n < SEND_BYTES) {
		const u8 *data;
		ssize_t n = nghttp2_session_mem_send(s->h2, &data);

		if (n < 0)
			return -EBADMSG;
		if (n == 0)
			return 0;
		if (str_append(out, data, (size_t)n) < 0)
			return -ENOMEM;
	}
	return 0;
}

bool grpc_session_ended(const struct grpc_session *s)
{
	return !nghttp2_session_want_read(s->h2) && !nghttp2_session_want_write(s->h2);
}

void grpc_session_drain(struct grpc_session *s)
{
	nghttp2_submit_goaway(s->h2, NGHTTP2_FLAG_NONE,
			      nghttp2_session_get_last_proc_stream_id(s->h2), NGHTTP2_NO_ERROR,
			      NULL, 0);
}

bool grpc_session_greeted(const struct grpc_session *s)
{
	return s->greeted;
}

size_t grpc_session_calls(const struct grpc_session *s)
{
	return s->n_calls;
}

void grpc_session_expire(struct grpc_session *s, u64 now_ms)
{
	for (struct grpc_call *c = s->calls; c; c = c->next) {
		if (!c->deadline_ms || c->deadline_ms > now_ms || c->answered)
			continue;
		atomic_fetch_add(&c->l->counters.timed_out, 1);
		refuse(c, NET_GRPC_DEADLINE_EXCEEDED, "the request took too long to arrive");
	}
}
