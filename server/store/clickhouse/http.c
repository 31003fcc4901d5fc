/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests to ClickHouse: credentials, settings, the meaning of errors, and retries.
 *
 * User and password go into headers. Error texts quote ClickHouse's message and never the request.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "compress/compress.h"
#include "http/http.h"
#include "server/store/clickhouse/clickhouse.h"

#define MAX_ANSWER_BYTES ((size_t)1 << 30)
#define MAX_ERROR_BYTES 200
#define MIN_COMPRESS_BYTES 1024
#define CONNECT_MS 3000
#define FIRST_PAUSE_MS 50
#define LAST_PAUSE_MS 1000
#define MAX_DELAY_S 5  /* queries leave out a replica that is further behind */
#define AVOID_MS 30000 /* how long queries leave out a host that failed */

/* Numbers of ClickHouse's transient errors. */
static const u32 transient_errors[] = {
	32,  /* unexpected end of data from another server */
	159, /* timeout exceeded */
	164, /* read only, while a replica has no keeper */
	202, /* too many simultaneous queries */
	203, /* no free connection */
	209, /* socket timeout */
	210, /* network error */
	225, /* no ZooKeeper */
	241, /* memory limit */
	242, /* table is read only, as above */
	252, /* too many parts */
	279, /* all connection tries failed */
	285, /* too few live replicas */
	286, /* unsatisfied quorum */
	319, /* unknown status of insert */
	425, /* system error */
	999, /* keeper */
};

struct ch_conn {
	CURL *easy;		    /* owned */
	struct curl_slist *headers; /* owned */
	struct http_answer answer;
	char error[CURL_ERROR_SIZE];
	struct ch_conn *next; /* the next idle connection */
};

/* ---- connections ---- */

static void conn_free(struct ch_conn *c)
{
	curl_easy_cleanup(c->easy);
	curl_slist_free_all(c->headers);
	str_deinit(&c->answer.text);
	free(c);
}

static int conn_open(const struct ch_config *config, struct ch_conn *c)
{
	struct http_client_options client = {
		.connect_ms = CONNECT_MS,
		.ca = config->ca,
		.error = c->error,
		.answer = &c->answer,
	};
	int r = http_client_open(&client, &c->easy);
	bool ok = true;

	if (r < 0)
		return r;
#define SET(option, value) ok = ok && curl_easy_setopt(c->easy, option, value) == CURLE_OK
	SET(CURLOPT_PROXY, "");
	SET(CURLOPT_POST, 1L);
	if (config->compress)
		SET(CURLOPT_ACCEPT_ENCODING, "gzip");
#undef SET
	return ok ? 0 : -EINVAL;
}

static int conn_headers(const struct ch_config *config, bool gzip, struct ch_conn *c)
{
	int r = http_client_header(&c->headers, "X-ClickHouse-User", config->user);

	if (r == 0)
		r = http_client_header(&c->headers, "X-ClickHouse-Key", config->password);
	if (r == 0)
		r = http_client_header(&c->headers, "Content-Type", "application/octet-stream");
	if (r == 0 && gzip)
		r = http_client_header(&c->headers, "Content-Encoding", "gzip");
	/* Do not wait for "100 Continue". */
	if (r == 0)
		r = http_client_header(&c->headers, "Expect", NULL);
	return r;
}

static struct ch_conn *conn_get(struct ch *s)
{
	struct ch_conn *c;

	pthread_mutex_lock(&s->conn_lock);
	c = s->idle;
	if (c)
		s->idle = c->next;
	pthread_mutex_unlock(&s->conn_lock);
	if (c)
		return c;
	c = calloc(1, sizeof(*c));
	if (!c)
		return NULL;
	c->answer.max_bytes = MAX_ANSWER_BYTES;
	if (conn_open(&s->config, c) < 0) {
		conn_free(c);
		return NULL;
	}
	return c;
}

static void conn_put(struct ch *s, struct ch_conn *c)
{
	str_deinit(&c->answer.text);
	pthread_mutex_lock(&s->conn_lock);
	c->next = s->idle;
	s->idle = c;
	pthread_mutex_unlock(&s->conn_lock);
}

void ch_disconnect(struct ch *s)
{
	while (s->idle) {
		struct ch_conn *c = s->idle;

		s->idle = c->next;
		conn_free(c);
	}
}

/* ---- errors ---- */

static bool is_transient(u32 code)
{
	for (size_t i = 0; i < ARRAY_SIZE(transient_errors); i++)
		if (transient_errors[i] == code)
			return true;
	return false;
}

/* The text is "Code: 60, e.displayText() = DB::Exception: TEXT, ..." or "Code: 60. DB::...". */
static u32 error_code(const char *text)
{
	u32 code = 0;

	return sscanf(text, "Code: %9u", &code) == 1 ? code : 0;
}

static void error_text(const char *answer, struct str *out)
{
	const char *text = strstr(answer, "DB::Exception: ");
	const char *end;

	text = text ? text + strlen("DB::Exception: ") : answer;
	end = strstr(text, ", e.what()");
	for (size_t i = 0; text[i] && text + i != end && i < MAX_ERROR_BYTES; i++)
		str_putc(out, (u8)text[i] < ' ' ? ' ' : text[i]);
}

static int answer_error(const struct ch *s, const struct ch_conn *c, long status,
			struct diag *reterr_diag)
{
	const char *answer = str_get(&c->answer.text);
	u32 code = error_code(answer);
	_cleanup_str_ struct str text = {};
	int r = -EIO;

	error_text(answer, &text);
	if (status == 401 || status == 403 || code == 192 || code == 193 || code == 194 ||
	    code == 516)
		return diag_set(reterr_diag, -EACCES,
				"%s refuses user '%s': check user and password", s->where,
				s->config.user);
	if (code == 60 || code == 81 || code == 218 || code == 497)
		r = -ENOENT; /* no such table or database, or none that this user may see */
	else if (code == 243)
		r = -ENOSPC;
	else if (is_transient(code) || status == 429 || (status >= 502 && status <= 504))
		r = -EAGAIN;
	return diag_set(reterr_diag, r, "%s answers HTTP %ld, error %u: %s", s->where, status, code,
			str_get(&text));
}

static int transfer_error(const struct ch *s, const struct ch_conn *c, CURLcode code,
			  struct diag *reterr_diag)
{
	const char *text = http_client_error(c->error, code);

	if (c->answer.too_large)
		return diag_set(reterr_diag, -E2BIG, "%s: the answer is larger than 1 GiB",
				s->where);
	if (code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE)
		return diag_set(reterr_diag, -EIO,
				"%s: its certificate is not trusted (%s): give the file of its CA "
				"with ca=FILE",
				s->where, text);
	return diag_set(reterr_diag, -EAGAIN, "%s: %s", s->where, text);
}

/* ---- requests ---- */

static void add_parameter(CURL *easy, struct str *url, const char *name, const char *value)
{
	char *text = curl_easy_escape(easy, value, 0);

	if (!text)
		url->failed = true;
	else
		str_printf(url, "&%s=%s", name, text);
	curl_free(text);
}

/* Whether any replica may answer. */
static bool reads_anywhere(const struct ch *s, const struct ch_request *q)
{
	return q->any_replica && s->config.cluster && !s->config.first_replica;
}

static int make_url(const struct ch *s, CURL *easy, const char *host, const struct ch_request *q,
		    struct str *url)
{
	/* ClickHouse buffers the answer, so that the HTTP status covers every error. */
	str_printf(url, "%s?wait_end_of_query=1", host);
	if (!q->no_database)
		add_parameter(easy, url, "database", s->config.database);
	if (s->config.compress)
		str_puts(url, "&enable_http_compression=1");
	/*
	 * Every server writes to the first replica of a shard, and looks for what others have
	 * written there; other replicas have it a moment later.
	 */
	if (s->config.cluster && reads_anywhere(s, q))
		str_printf(url,
			   "&load_balancing=random&max_replica_delay_for_distributed_queries=%u",
			   MAX_DELAY_S);
	else if (s->config.cluster)
		str_puts(url, "&load_balancing=in_order&prefer_localhost_replica=0"
			      "&insert_distributed_sync=1");
	if (q->rows) {
		add_parameter(easy, url, "query", q->sql);
		/* One block: ClickHouse writes all of it or nothing. */
		str_printf(url, "&max_insert_block_size=100000000&insert_deduplicate=%d",
			   !q->again);
		if (s->modern)
			str_puts(url, "&async_insert=0");
	} else {
		/* Lists of ids are long. */
		str_puts(url, "&max_query_size=1000000000&max_ast_elements=100000000"
			      "&max_expanded_ast_elements=100000000");
	}
	if (q->token)
		add_parameter(easy, url, "insert_deduplication_token", q->token);
	if (q->settings)
		str_puts(url, q->settings);
	return url->failed ? -ENOMEM : 0;
}

static int run_once(struct ch *s, struct ch_conn *c, const char *host, const struct ch_request *q,
		    const struct str *body, bool gzip, struct diag *reterr_diag)
{
	_cleanup_str_ struct str url = {};
	CURLcode code;
	long status = 0;
	int r = make_url(s, c->easy, host, q, &url);

	if (r == 0) {
		curl_slist_free_all(c->headers);
		c->headers = NULL;
		r = conn_headers(&s->config, gzip, c);
	}
	if (r < 0)
		return r;
	str_clear(&c->answer.text);
	c->answer.too_large = false;
	c->error[0] = 0;
	curl_easy_setopt(c->easy, CURLOPT_URL, str_get(&url));
	curl_easy_setopt(c->easy, CURLOPT_TIMEOUT_MS,
			 (long)(q->timeout_ms ? q->timeout_ms : s->config.timeout_ms));
	curl_easy_setopt(c->easy, CURLOPT_HTTPHEADER, c->headers);
	curl_easy_setopt(c->easy, CURLOPT_POSTFIELDS, str_get(body));
	curl_easy_setopt(c->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)body->n);
	/* On a reused connection libcurl would repeat an unanswered request by itself. */
	curl_easy_setopt(c->easy, CURLOPT_FRESH_CONNECT, q->once ? 1L : 0L);
	code = curl_easy_perform(c->easy);
	if (code != CURLE_OK)
		return transfer_error(s, c, code, reterr_diag);
	curl_easy_getinfo(c->easy, CURLINFO_RESPONSE_CODE, &status);
	return status == 200 ? 0 : answer_error(s, c, status, reterr_diag);
}

static void pause_ms(u64 ms)
{
	struct timespec t = {.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000};

	nanosleep(&t, NULL);
}

/*
 * The host to begin with: the last one that answered; for a query that any replica may answer, the
 * hosts in turn, without those that failed.
 */
static size_t first_host(struct ch *s, const struct ch_request *q)
{
	u64 now = clock_ns(CLOCK_MONOTONIC) / 1000000;
	size_t host;

	pthread_mutex_lock(&s->conn_lock);
	host = s->host;
	for (size_t i = 0; reads_anywhere(s, q) && i < s->config.n_hosts; i++) {
		size_t next = s->next_host++ % s->config.n_hosts;

		if (s->avoid_until_ms[next] > now)
			continue;
		host = next;
		break;
	}
	pthread_mutex_unlock(&s->conn_lock);
	return host;
}

static void note_host(struct ch *s, const struct ch_request *q, size_t host, bool failed)
{
	pthread_mutex_lock(&s->conn_lock);
	s->avoid_until_ms[host] = failed ? clock_ns(CLOCK_MONOTONIC) / 1000000 + AVOID_MS : 0;
	if (!failed && !reads_anywhere(s, q))
		s->host = host;
	pthread_mutex_unlock(&s->conn_lock);
}

/* Tries the hosts in turn with growing pauses. */
static int try_hosts(struct ch *s, struct ch_conn *c, const struct ch_request *q,
		     const struct str *body, bool gzip, struct diag *reterr_diag)
{
	u64 end = clock_ns(CLOCK_MONOTONIC) + s->config.retry_ms * 1000000;
	u64 wait_ms = FIRST_PAUSE_MS;
	size_t host = first_host(s, q), tries = 0;
	int r;

	for (;;) {
		r = run_once(s, c, s->config.hosts[host], q, body, gzip, reterr_diag);
		note_host(s, q, host, r == -EAGAIN);
		if (r != -EAGAIN || q->once)
			break;
		host = (host + 1) % s->config.n_hosts;
		if (++tries % s->config.n_hosts)
			continue;
		if (clock_ns(CLOCK_MONOTONIC) + wait_ms * 1000000 >= end)
			break;
		pause_ms(wait_ms);
		wait_ms = MIN(wait_ms * 2, (u64)LAST_PAUSE_MS);
	}
	return r;
}

int ch_run(struct ch *s, const struct ch_request *q, struct str *ret, struct diag *reterr_diag)
{
	_cleanup_str_ struct str packed = {}, sql = {};
	const struct str *body = q->rows;
	struct ch_conn *c;
	bool gzip;
	int r = 0;

	if (!body) {
		str_puts(&sql, q->sql);
		body = &sql;
	}
	gzip = s->config.compress && body->n >= MIN_COMPRESS_BYTES;
	if (gzip) {
		r = gzip_deflate(str_get(body), body->n, &packed);
		body = &packed;
	}
	if (r < 0 || (q->rows && q->rows->failed) || sql.failed)
		return diag_set(reterr_diag, -ENOMEM, "out of memory");
	c = conn_get(s);
	if (!c)
		return diag_set(reterr_diag, -ENOMEM, "out of memory");
	r = try_hosts(s, c, q, body, gzip, reterr_diag);
	/* An administrator may be changing the database: senders keep the batch and retry. */
	if (s->opened && (r == -EACCES || r == -ENOENT))
		r = -EAGAIN;
	if (r == 0 && ret) {
		str_deinit(ret);
		*ret = c->answer.text;
		c->answer.text = (struct str){};
	}
	conn_put(s, c);
	return r;
}

int ch_select(struct ch *s, const char *sql, struct str *ret, struct diag *reterr_diag)
{
	return ch_run(s, &(struct ch_request){.sql = sql}, ret, reterr_diag);
}

int ch_select_anywhere(struct ch *s, const char *sql, struct str *ret, struct diag *reterr_diag)
{
	return ch_run(s, &(struct ch_request){.sql = sql, .any_replica = true}, ret, reterr_diag);
}
