/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One libcurl handle for one destination, which keeps its connection if possible. After a failure
 * the next request uses a new connection: the server of the old one may be shutting down while
 * others at the same address could accept it. gRPC is HTTP/2 with trailers: negotiated by ALPN with
 * TLS, else HTTP/2 from the first byte.
 *
 * A failure is reported as one line, which says what to do if that is known. It never contains
 * headers.
 */
#include <ctype.h>
#include <errno.h>
#include <gnutls/gnutls.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/export/export_private.h"
#include "agent/export/grpc_status.pb-c.h"
#include "base/arena.h"
#include "base/pb.h"
#include "base/text.h"
#include "http/http.h"

#define MAX_ANSWER_BYTES ((size_t)1 << 20)
#define MAX_CONNECT_MS 5000
#define ASK_MS 3000 /* profiles wait meanwhile */
#define STATUS_ARENA_BYTES (1 << 20)
#define NO_STATUS (-1)

struct http {
	struct destination *d;
	struct http_options o;
	CURL *easy;		    /* owned */
	struct curl_slist *headers; /* owned */
	char *url, *ask_url;	    /* owned by curl */
	char curl_error[CURL_ERROR_SIZE];
	bool failed; /* the last request failed */
	struct http_answer answer;
	int grpc_status; /* or NO_STATUS */
	struct str grpc_message, grpc_details;
};

/* ---- callbacks ---- */

/* Returns the value of the header without surrounding spaces; NULL: it is another header. */
static const char *header_value(const char *line, size_t n, const char *name, size_t *ret_n)
{
	size_t name_n = strlen(name);
	const char *end = line + n;

	if (n <= name_n || strncasecmp(line, name, name_n) != 0 || line[name_n] != ':')
		return NULL;
	line += name_n + 1;
	while (line < end && isspace((u8)*line))
		line++;
	while (end > line && isspace((u8)end[-1]))
		end--;
	*ret_n = (size_t)(end - line);
	return line;
}

/* Called for each header and for gRPC's trailers. */
static size_t on_header(char *line, size_t size, size_t items, void *arg)
{
	struct http *h = arg;
	size_t n = size * items, value_n;
	const char *v = header_value(line, n, "grpc-status", &value_n);

	if (v) {
		char text[8] = "";
		u64 status;

		if (value_n < sizeof(text))
			memcpy(text, v, value_n);
		h->grpc_status = str_to_u64(text, 10, &status) == 0 ? (int)status : NO_STATUS;
	}
	v = header_value(line, n, "grpc-message", &value_n);
	if (v) {
		str_clear(&h->grpc_message);
		str_append(&h->grpc_message, v, value_n);
	}
	v = header_value(line, n, "grpc-status-details-bin", &value_n);
	if (v) {
		str_clear(&h->grpc_details);
		str_append(&h->grpc_details, v, value_n);
	}
	return n;
}

static int on_progress(void *arg, curl_off_t dltotal, curl_off_t dlnow, curl_off_t ultotal,
		       curl_off_t ulnow)
{
	const struct http *h = arg;

	return export_must_stop(h->d);
}

/* ---- opening ---- */

static int check_file(const char *path, const char *what, struct diag *reterr_diag)
{
	if (path && access(path, R_OK) < 0)
		return diag_set(reterr_diag, -errno, "cannot read the %s %s: %s", what, path,
				strerror(errno));
	return 0;
}

/* Builds scheme://HOST:PORT[/PATH], followed by `rest`. */
static int make_url(struct http *h, const char *rest, struct diag *reterr_diag, char **ret)
{
	const struct destination *d = h->d;
	_cleanup_str_ struct str text = {}, path = {};
	CURLU *u = curl_url();
	char *part = NULL;
	int r = -EINVAL;

	str_printf(&text, "%s:%s", d->o.tls ? "https" : "http", d->rest);
	if (!u || text.failed) {
		curl_url_cleanup(u);
		return -ENOMEM;
	}
	if (strncmp(d->rest, "//", 2) != 0 || curl_url_set(u, CURLUPART_URL, str_get(&text), 0)) {
		diag_set(reterr_diag, r, "%s: not of the form %s://HOST:PORT", d->o.url,
			 d->ops->scheme);
	} else if (curl_url_get(u, CURLUPART_USER, &part, 0) == CURLUE_OK ||
		   curl_url_get(u, CURLUPART_QUERY, &part, 0) == CURLUE_OK) {
		diag_set(
			reterr_diag, r,
			"%s://...: the URL must not contain a user or a query; give a token separately",
			d->ops->scheme);
	} else {
		if (curl_url_get(u, CURLUPART_PORT, &part, 0) != CURLUE_OK)
			curl_url_set(u, CURLUPART_PORT, h->o.default_port, 0);
		curl_free(part);
		part = NULL;
		curl_url_get(u, CURLUPART_PATH, &part, 0);
		str_puts(&path, part ? part : "");
		if (str_ends(str_get(&path), "/"))
			path.data[--path.n] = 0;
		str_puts(&path, rest);
		r = curl_url_set(u, CURLUPART_PATH, str_get(&path), 0) ||
				    curl_url_get(u, CURLUPART_URL, ret, 0)
			    ? -ENOMEM
			    : 0;
	}
	curl_free(part);
	curl_url_cleanup(u);
	return r;
}

/* "name=value,..." */
static int add_user_headers(struct http *h, const char *text, struct diag *reterr_diag)
{
	int r = 0;

	while (text && *text && r == 0) {
		size_t n = strcspn(text, ","), name_n = strcspn(text, "=");
		char name[128], value[4096];

		if (name_n >= n || !name_n || name_n >= sizeof(name) ||
		    n - name_n - 1 >= sizeof(value) || memchr(text, '\n', n) ||
		    memchr(text, '\r', n))
			return diag_set(reterr_diag, -EINVAL,
					"headers are not of the form NAME=VALUE,...");
		memcpy(name, text, name_n);
		name[name_n] = 0;
		memcpy(value, text + name_n + 1, n - name_n - 1);
		value[n - name_n - 1] = 0;
		r = http_client_header(&h->headers, name, value);
		text += n + (text[n] == ',');
	}
	return r;
}

/* NAME:PASSWORD, as HTTP's basic authentication has it. */
static int add_basic(struct http *h, const char *user)
{
	_cleanup_str_ struct str value = {};
	int r;

	str_puts(&value, "Basic ");
	text_append_base64(&value, (const u8 *)user, strlen(user));
	r = value.failed ? -ENOMEM
			 : http_client_header(&h->headers, "Authorization", str_get(&value));
	if (value.data)
		explicit_bzero(value.data, value.n);
	return r;
}

static int make_headers(struct http *h, struct diag *reterr_diag)
{
	const struct export_options *o = &h->d->o;
	int r = http_client_header(&h->headers, "Content-Type", h->o.content_type);

	/* Do not wait for "100 Continue". */
	if (r == 0)
		r = http_client_header(&h->headers, "Expect", NULL);
	if (r == 0 && h->o.grpc)
		r = http_client_header(&h->headers, "TE", "trailers");
	if (r == 0 && h->o.content_encoding)
		r = http_client_header(&h->headers,
				       h->o.grpc ? "grpc-encoding" : "Content-Encoding",
				       h->o.content_encoding);
	if (o->token && strpbrk(o->token, "\r\n"))
		return diag_set(reterr_diag, -EINVAL, "the token has a line break in it");
	if (r == 0)
		r = http_client_bearer(&h->headers, o->token);
	if (r == 0 && o->user)
		r = add_basic(h, o->user);
	return r < 0 ? r : add_user_headers(h, o->headers, reterr_diag);
}

static long timeout_of(const struct http *h)
{
	return (long)MIN(h->d->o.timeout_s, 3600u) * 1000;
}

static int open_handle(struct http *h)
{
	const struct export_options *o = &h->d->o;
	long timeout_ms = timeout_of(h);
	long version = !h->o.grpc ? CURL_HTTP_VERSION_1_1
		       : o->tls	  ? CURL_HTTP_VERSION_2TLS
				  : CURL_HTTP_VERSION_2_PRIOR_KNOWLEDGE;
	struct http_client_options client = {
		.connect_ms = MIN(timeout_ms, (long)MAX_CONNECT_MS),
		.ca = o->ca,
		.cert = o->cert,
		.key = o->key,
		.error = h->curl_error,
		.answer = &h->answer,
	};
	int r = http_client_open(&client, &h->easy);
	bool ok = true;

	if (r < 0)
		return r;
#define SET(option, value) ok = ok && curl_easy_setopt(h->easy, option, value) == CURLE_OK
	SET(CURLOPT_HTTPHEADER, h->headers);
	SET(CURLOPT_HTTP_VERSION, version);
	SET(CURLOPT_HEADERFUNCTION, on_header);
	SET(CURLOPT_HEADERDATA, h);
	SET(CURLOPT_NOPROGRESS, 0L);
	SET(CURLOPT_XFERINFOFUNCTION, on_progress);
	SET(CURLOPT_XFERINFODATA, h);
	SET(CURLOPT_POST, 1L);
	SET(CURLOPT_MAXCONNECTS, 1L);
	/* libcurl 7.88 fails every request but the first on a connection that began as HTTP/2
	 * (CURLE_HTTP2), except with TLS. */
	if (version == CURL_HTTP_VERSION_2_PRIOR_KNOWLEDGE)
		SET(CURLOPT_FORBID_REUSE, 1L);
#undef SET
	return ok ? 0 : -EINVAL;
}

/*
 * Checked now and not at the next connection, so that a reload with bad files keeps the good ones.
 */
static int check_pair(const struct export_options *o, struct diag *reterr_diag)
{
	const char *key = o->key ? o->key : o->cert;
	gnutls_certificate_credentials_t c;
	int r;

	if (!o->tls || !o->cert)
		return 0;
	if (gnutls_certificate_allocate_credentials(&c) < 0)
		return -ENOMEM;
	r = gnutls_certificate_set_x509_key_file(c, o->cert, key, GNUTLS_X509_FMT_PEM);
	gnutls_certificate_free_credentials(c);
	return r < 0 ? diag_set(reterr_diag, -EINVAL, "certificate %s and key %s: %s", o->cert, key,
				gnutls_strerror(r))
		     : 0;
}

static void free_http(struct http *h)
{
	if (!h)
		return;
	curl_easy_cleanup(h->easy);
	curl_slist_free_all(h->headers);
	curl_free(h->url);
	curl_free(h->ask_url);
	str_deinit(&h->answer.text);
	str_deinit(&h->grpc_message);
	str_deinit(&h->grpc_details);
	free(h);
}

int http_open(struct destination *d, const struct http_options *o, struct diag *reterr_diag,
	      struct http **ret)
{
	struct http *h = calloc(1, sizeof(*h));
	int r;

	if (!h)
		return -ENOMEM;
	h->d = d;
	h->o = *o;
	h->answer.max_bytes = MAX_ANSWER_BYTES;
	r = check_file(d->o.ca, "CA file", reterr_diag);
	if (r == 0)
		r = check_file(d->o.cert, "certificate", reterr_diag);
	if (r == 0)
		r = check_file(d->o.key, "key", reterr_diag);
	if (r == 0)
		r = check_pair(&d->o, reterr_diag);
	if (r == 0)
		r = make_url(h, o->path, reterr_diag, &h->url);
	if (r == 0 && o->ask_path)
		r = make_url(h, o->ask_path, reterr_diag, &h->ask_url);
	if (r == 0)
		r = make_headers(h, reterr_diag);
	if (r == 0)
		r = open_handle(h);
	if (r < 0) {
		free_http(h);
		return diag_set(reterr_diag, r, "cannot export to %s: %s", d->o.url, strerror(-r));
	}
	*ret = h;
	return 0;
}

void http_close(struct destination *d)
{
	free_http(d->private);
	d->private = NULL;
}

/* ---- one request ---- */

static void set_curl_error(const struct http *h, CURLcode code, struct export_result *ret)
{
	const char *text = http_client_error(h->curl_error, code);

	ret->outcome = EXPORT_RETRY;
	switch (code) {
	case CURLE_PEER_FAILED_VERIFICATION:
	case CURLE_SSL_CACERT_BADFILE:
		diag_set(&ret->error, -EIO,
			 "its certificate is not trusted (%s): give the file of its CA, or turn "
			 "TLS off",
			 text);
		break;
	case CURLE_SSL_CERTPROBLEM:
		diag_set(&ret->error, -EIO, "our certificate or its key cannot be used: %s", text);
		break;
	case CURLE_SSL_CONNECT_ERROR:
		diag_set(&ret->error, -EIO,
			 "TLS failed (%s): if the destination does not use TLS, turn TLS off",
			 text);
		break;
	case CURLE_ABORTED_BY_CALLBACK:
		diag_set(&ret->error, -EIO, "given up because the agent ends");
		break;
	default:
		diag_set(&ret->error, -EIO, "%s", text);
		break;
	}
}

static const char *hint_of_scheme(const struct http *h)
{
	return str_starts(h->d->ops->scheme, "otlp")
		       ? " (a Collector takes profiles with --feature-gates=service.profilesSupport)"
		       : "";
}

static void set_status(struct http *h, long status, struct export_result *ret)
{
	curl_off_t after = 0;

	if (status == 200) {
		ret->outcome = EXPORT_SENT;
		return;
	}
	ret->outcome = status == 408 || status == 429 || (status >= 502 && status <= 504)
			       ? EXPORT_RETRY
			       : EXPORT_REFUSED;
	if (curl_easy_getinfo(h->easy, CURLINFO_RETRY_AFTER, &after) == CURLE_OK && after > 0)
		ret->retry_after_ms = (u32)MIN(after, (curl_off_t)3600) * 1000;
	ret->unknown = status == 404 || status == 405 || status == 501;
	diag_set(&ret->error, -EIO, "answers HTTP %ld%s", status,
		 status == 404 ? hint_of_scheme(h) : "");
}

static void post(struct http *h, const char *url, long timeout_ms, const u8 *data, size_t n,
		 struct export_result *ret)
{
	long status = 0;
	CURLcode code;

	str_clear(&h->answer.text);
	str_clear(&h->grpc_message);
	str_clear(&h->grpc_details);
	h->grpc_status = NO_STATUS;
	h->curl_error[0] = 0;
	*ret = (struct export_result){};
	curl_easy_setopt(h->easy, CURLOPT_TIMEOUT_MS, timeout_ms);
	curl_easy_setopt(h->easy, CURLOPT_POSTFIELDS, data);
	curl_easy_setopt(h->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)n);
	curl_easy_setopt(h->easy, CURLOPT_FRESH_CONNECT, h->failed ? 1L : 0L);
	/* It copies the URL, and must not send this to the URL of another request. */
	code = curl_easy_setopt(h->easy, CURLOPT_URL, url);
	if (code == CURLE_OK)
		code = curl_easy_perform(h->easy);
	if (code == CURLE_OK) {
		curl_easy_getinfo(h->easy, CURLINFO_RESPONSE_CODE, &status);
		set_status(h, status, ret);
	} else {
		set_curl_error(h, code, ret);
	}
	h->failed = ret->outcome != EXPORT_SENT;
}

void http_post(struct http *h, const u8 *data, size_t n, struct export_result *ret)
{
	post(h, h->url, timeout_of(h), data, n, ret);
}

void http_post_query(struct http *h, const char *query, const u8 *data, size_t n,
		     struct export_result *ret)
{
	_cleanup_str_ struct str url = {};

	str_printf(&url, "%s?%s", h->url, query);
	if (url.failed) {
		*ret = (struct export_result){.outcome = EXPORT_RETRY};
		diag_set(&ret->error, -ENOMEM, "out of memory");
		return;
	}
	post(h, str_get(&url), timeout_of(h), data, n, ret);
}

void http_ask(struct http *h, const u8 *data, size_t n, struct export_result *ret)
{
	post(h, h->ask_url, MIN(timeout_of(h), (long)ASK_MS), data, n, ret);
	if (ret->outcome == EXPORT_SENT && h->o.grpc)
		http_grpc_result(h, ret);
	/* There is nothing wrong with the connection. */
	if (ret->unknown)
		h->failed = false;
}

const struct str *http_answer(const struct http *h)
{
	return &h->answer.text;
}

/* ---- gRPC ---- */

enum {
	GRPC_OK = 0,
	GRPC_CANCELLED = 1,
	GRPC_DEADLINE_EXCEEDED = 4,
	GRPC_RESOURCE_EXHAUSTED = 8,
	GRPC_ABORTED = 10,
	GRPC_OUT_OF_RANGE = 11,
	GRPC_UNIMPLEMENTED = 12,
	GRPC_UNAVAILABLE = 14,
	GRPC_DATA_LOSS = 15,
};

static u32 retry_delay_ms(const Grpc__RetryInfo *info)
{
	s64 ms;

	if (!info || !info->retry_delay)
		return 0;
	ms = MIN(MAX((s64)info->retry_delay->seconds, 0LL), 3600LL) * 1000 +
	     MAX(info->retry_delay->nanos, 0) / 1000000;
	return (u32)MAX(ms, 1LL);
}

/* Returns the delay in ms that a RetryInfo requests, at least 1; 0: there is none. */
static u32 find_retry_info(struct http *h)
{
	_cleanup_arena_ struct arena arena = ARENA_INIT(STATUS_ARENA_BYTES);
	ProtobufCAllocator allocator = pb_allocator(&arena);
	gnutls_datum_t in, out = {};
	const Grpc__Status *s;
	u32 ms = 0;

	/* gRPC omits the padding. */
	while (h->grpc_details.n % 4 && !str_ends(str_get(&h->grpc_details), "==="))
		str_putc(&h->grpc_details, '=');
	in.data = (u8 *)h->grpc_details.data;
	in.size = (unsigned int)h->grpc_details.n;
	if (!in.size || gnutls_base64_decode2(&in, &out) < 0)
		return 0;
	s = grpc__status__unpack(&allocator, out.size, out.data);
	for (size_t i = 0; s && i < s->n_details && !ms; i++)
		if (str_ends(s->details[i]->type_url, "/google.rpc.RetryInfo"))
			ms = retry_delay_ms(grpc__retry_info__unpack(
				&allocator, s->details[i]->value.len, s->details[i]->value.data));
	gnutls_free(out.data);
	return ms;
}

/* %41 → A */
static void decode_percent(const char *s, struct str *out)
{
	for (; *s; s++) {
		unsigned int c;

		if (*s == '%' && isxdigit((u8)s[1]) && isxdigit((u8)s[2]) &&
		    sscanf(s + 1, "%2x", &c) == 1 && c >= ' ') {
			str_putc(out, (char)c);
			s += 2;
		} else {
			str_putc(out, *s);
		}
	}
}

void http_grpc_result(struct http *h, struct export_result *ret)
{
	_cleanup_str_ struct str message = {};

	if (h->grpc_status == GRPC_OK)
		return;
	h->failed = true;
	*ret = (struct export_result){.outcome = EXPORT_REFUSED,
				      .unknown = h->grpc_status == GRPC_UNIMPLEMENTED};
	decode_percent(str_get(&h->grpc_message), &message);
	switch (h->grpc_status) {
	case NO_STATUS:
	case GRPC_CANCELLED:
	case GRPC_DEADLINE_EXCEEDED:
	case GRPC_ABORTED:
	case GRPC_OUT_OF_RANGE:
	case GRPC_UNAVAILABLE:
	case GRPC_DATA_LOSS:
		ret->outcome = EXPORT_RETRY;
		ret->retry_after_ms = find_retry_info(h);
		break;
	case GRPC_RESOURCE_EXHAUSTED:
		/* Too large or too many requests: the status does not say which. Retry only if the
		 * server asks for it. */
		ret->retry_after_ms = find_retry_info(h);
		if (ret->retry_after_ms)
			ret->outcome = EXPORT_RETRY;
		break;
	default:
		break;
	}
	if (h->grpc_status == NO_STATUS)
		diag_set(&ret->error, -EIO, "answers without a gRPC status");
	else
		diag_set(&ret->error, -EIO, "answers gRPC status %d: %s%s", h->grpc_status,
			 str_get(&message),
			 h->grpc_status == GRPC_UNIMPLEMENTED ? hint_of_scheme(h) : "");
}
