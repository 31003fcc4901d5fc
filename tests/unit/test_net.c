/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a listener refuses and counts: addresses, files of tokens and of TLS, hosts, and requests
 * over HTTP. tests/server/test_net.py tests the bounds from outside; here are their edges, their
 * texts and their counters.
 */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "dir_fixture.h"
#include "server/net/internal.h"
#include "server/net/timers.h"

#define WAIT_MS 60000
#define MAX_BODY 1000

static char dir[] = "/tmp/test-net-XXXXXX";
static struct net_listener *listener;
static struct diag diag;

static void begin(void)
{
	cr_assert(mkdtemp(dir));
}

static void end(void)
{
	net_close(listener, WAIT_MS);
	cr_assert_eq(remove_dir(dir), 0);
}

TestSuite(net, .init = begin, .fini = end);

/* Writes a file, and returns its path. */
static const char *file_of(const char *name, const void *text, size_t n)
{
	static char paths[4][64];
	static u32 used;
	char *path = paths[used++ % ARRAY_SIZE(paths)];
	FILE *f;

	snprintf(path, sizeof(paths[0]), "%s/%s", dir, name);
	f = fopen(path, "we");
	cr_assert(f);
	cr_assert_eq(fwrite(text, 1, n, f), n);
	cr_assert_eq(fclose(f), 0);
	cr_assert_eq(chmod(path, 0600), 0);
	return path;
}

static void expect_text(const char *end)
{
	size_t n = strlen(diag.text), n_end = strlen(end);

	cr_expect(n >= n_end && !strcmp(diag.text + n - n_end, end), "%s", diag.text);
}

/* ---- tokens ---- */

#define TOKEN "0123456789abcdef" /* the shortest */

static struct net_tokens *tokens_of(const char *text)
{
	struct net_tokens *t = NULL;

	diag = (struct diag){};
	if (net_tokens_create(file_of("tokens", text, strlen(text)), &diag, &t) < 0)
		return NULL;
	return t;
}

static void expect_token_error(const char *text, const char *error)
{
	cr_expect_null(tokens_of(text));
	expect_text(error);
	cr_expect_null(strstr(diag.text, "0123456789"), "%s", diag.text);
}

#define RIGHTS "behind the token there may be name=NAME, and of a writer host=HOST and symbols=no"

Test(net, errors_of_token_files_name_the_line)
{
	expect_token_error("", "/tokens: has no token");
	expect_token_error("# only\n \t\r\n#comments", "/tokens: has no token");
	expect_token_error("read " TOKEN "\n\nreads " TOKEN "\n",
			   "/tokens:3: a line must be: read|write|admin TOKEN");
	expect_token_error("admin", "/tokens:1: a line must be: read|write|admin TOKEN");
	expect_token_error("\nadmin 0123456789abcde",
			   "/tokens:2: a token must have 16 to 1024 characters and no spaces");
	expect_token_error("admin " TOKEN " " TOKEN, "/tokens:1: " RIGHTS);
	expect_token_error("read " TOKEN " host=a", "/tokens:1: " RIGHTS);
	expect_token_error("admin " TOKEN " symbols=no", "/tokens:1: " RIGHTS);
	expect_token_error("write " TOKEN " symbols=yes", "/tokens:1: " RIGHTS);
	expect_token_error("write " TOKEN " name=", "/tokens:1: " RIGHTS);
}

Test(net, rights_of_tokens)
{
	struct net_tokens *t = tokens_of("write " TOKEN "1 name=web\thost=web-3 symbols=no\r\n"
					 "admin " TOKEN "2 name=ann\n"
					 "write " TOKEN "3\n"
					 "read " TOKEN "3 name=both\n");
	struct net_sender s;

	cr_assert(t, "%s", diag.text);
	s = net_tokens_sender(t, "Bearer " TOKEN "1");
	cr_expect_eq(s.role, NET_ROLE_WRITE);
	cr_expect_str_eq(s.name, "web");
	cr_expect_str_eq(s.host, "web-3");
	s = net_tokens_sender(t, "Bearer " TOKEN "2");
	cr_expect_eq(s.role, NET_ROLE_ADMIN);
	cr_expect_str_eq(s.name, "ann");
	cr_expect_str_eq(s.host, "");
	s = net_tokens_sender(t, "Bearer " TOKEN "3");
	cr_expect_eq(s.role, NET_ROLE_READ | NET_ROLE_WRITE | NET_ROLE_SYMBOLS);
	cr_expect_str_eq(s.name, "both");
	s = net_tokens_sender(t, "Bearer " TOKEN "4");
	cr_expect_eq(s.role, NET_ROLE_NONE);
	cr_expect_str_eq(s.name, "");
	net_tokens_destroy(t);
}

Test(net, the_longest_token)
{
	char line[1100] = "read ", header[1100] = "Bearer ";
	struct net_tokens *t;

	memset(line + 5, 'x', 1025);
	cr_expect_null(tokens_of(line));
	expect_text("16 to 1024 characters and no spaces");
	line[5 + 1024] = '\0';
	t = tokens_of(line);
	cr_assert(t);
	memset(header + 7, 'x', 1024);
	cr_expect_eq(net_tokens_sender(t, header).role, NET_ROLE_READ);
	header[7 + 1024] = 'x';
	cr_expect_eq(net_tokens_sender(t, header).role, NET_ROLE_NONE);
	net_tokens_destroy(t);
}

Test(net, files_that_are_no_tokens)
{
	const size_t n = (1 << 20) + 8192;
	struct net_tokens *t = NULL;
	char *spaces = malloc(n);

	cr_assert(spaces);
	memset(spaces, ' ', n);
	cr_expect_eq(net_tokens_create(file_of("tokens", spaces, n), &diag, &t), -EFBIG);
	free(spaces);
	expect_text("/tokens: too large for tokens");
	diag = (struct diag){};
	cr_expect_eq(net_tokens_create("/no/such/file", &diag, &t), -ENOENT);
	expect_text("/no/such/file: cannot read the tokens: No such file or directory");
	cr_expect_null(t);
}

Test(net, lines_of_a_token_file)
{
	struct net_tokens *t = tokens_of("\t read \t" TOKEN " \r\n# " TOKEN "0\nwrite " TOKEN
					 "\nadmin " TOKEN "1");

	cr_assert(t);
	cr_expect_eq(net_tokens_sender(t, "bearer " TOKEN).role,
		     NET_ROLE_READ | NET_ROLE_WRITE | NET_ROLE_SYMBOLS);
	cr_expect_eq(net_tokens_sender(t, "Bearer " TOKEN "0").role, NET_ROLE_NONE, "a comment");
	cr_expect_eq(net_tokens_sender(t, "Bearer " TOKEN "1").role, NET_ROLE_ADMIN);
	cr_expect_eq(net_tokens_sender(t, NULL).role, NET_ROLE_NONE);
	/* Passwords without and with a user; a text without a colon has no password. */
	cr_expect_eq(net_tokens_sender(t, "Basic OjAxMjM0NTY3ODlhYmNkZWYx").role, NET_ROLE_ADMIN);
	cr_expect_eq(net_tokens_sender(t, "basic dXNlcjowMTIzNDU2Nzg5YWJjZGVmMQ==").role,
		     NET_ROLE_ADMIN);
	cr_expect_eq(net_tokens_sender(t, "Basic MDEyMzQ1Njc4OWFiY2RlZjE=").role, NET_ROLE_NONE);
	net_tokens_destroy(t);
}

Test(net, tokens_that_all_users_can_read_are_warned_of, .init = cr_redirect_stderr)
{
	struct net_tokens *t = NULL;
	const char *path;
	char text[256];

	path = file_of("tokens", "read " TOKEN, 5 + strlen(TOKEN));
	cr_assert_eq(chmod(path, 0604), 0);
	cr_assert_eq(net_tokens_create(path, &diag, &t), 0);
	net_tokens_destroy(t);
	fflush(stderr);
	snprintf(text, sizeof(text),
		 "culprit: warning: %s: every user of this machine can read or change the tokens; "
		 "chmod 600\n",
		 path);
	cr_assert_stderr_eq_str(text);
}

/* ---- addresses ---- */

static struct {
	atomic_int running, error;
} waits;

/* A question that ends only because nobody wants its answer. */
static void wait_for_nobody(void)
{
	const struct timespec tick = {.tv_nsec = 5000000};
	u64 until = net_now_ms() + WAIT_MS;
	int r = 0;

	atomic_fetch_add(&waits.running, 1);
	while (r == 0 && net_now_ms() < until) {
		(void)nanosleep(&tick, NULL);
		r = quota_check(NULL);
	}
	atomic_store(&waits.error, r);
	atomic_fetch_sub(&waits.running, 1);
}

static void echo(void *userdata, const struct net_request *r, struct net_response *ret)
{
	const struct timespec long_time = {.tv_sec = 3, .tv_nsec = 500000000};

	(void)userdata;
	if (!strcmp(r->path, "/slow"))
		(void)nanosleep(&long_time, NULL);
	if (!strcmp(r->path, "/wait"))
		wait_for_nobody();
	str_printf(&ret->body, "%s %s %zu\n", r->method, r->path, r->n_body);
}

static int listen_on(struct net_options o)
{
	o.handler = echo;
	o.max_body = MAX_BODY;
	diag = (struct diag){};
	return net_listen(&o, &diag, &listener);
}

static void expect_listens(const char *address)
{
	cr_assert_eq(listen_on((struct net_options){.address = address}), 0, "%s: %s", address,
		     diag.text);
	cr_expect_neq(net_port(listener), 0);
	net_close(listener, WAIT_MS);
	listener = NULL;
}

Test(net, addresses)
{
	static const char *const wrong[] = {"127.0.0.1", "localhost:", "127.0.0.1:65536", "[::1",
					    "[127.0.0.1:0"};

	expect_listens("0");
	expect_listens(":0");
	expect_listens("localhost:0");
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		cr_expect_eq(listen_on((struct net_options){.address = wrong[i]}), -EINVAL);
		expect_text(": an address is HOST:PORT");
	}
	cr_expect_eq(listen_on((struct net_options){.address = "0.0.0.0:0"}), -EACCES);
	cr_expect_str_eq(diag.text, "0.0.0.0:0: other machines can connect to this address: it "
				    "needs --token-file or --tls-ca");
}

Test(net, tokens_in_clear_text)
{
	struct net_options o = {.address = "0.0.0.0:0",
				.tokens = file_of("tokens", "read " TOKEN, 5 + strlen(TOKEN))};

	cr_expect_eq(listen_on(o), -EACCES);
	cr_expect(strstr(diag.text, "--allow-clear-text"), "%s", diag.text);
	o.clear_text = true;
	cr_expect_eq(listen_on(o), 0, "%s", diag.text);
}

Test(net, pages_of_other_sites)
{
	static const struct {
		struct net_origin o;
		bool local, open; /* foreign with and without other proof of the client */
	} cases[] = {
		{{"GET", "/a", "x.example"}, true, false},
		{{"GET", "/a", "localhost"}, false, false},
		{{"GET", "/a", NULL}, false, false},
		{{"POST", "/a", "x.example", "https://x.example"}, true, false},
		{{"POST", "/a", "x.example:1", "https://x.example"}, true, true},
		{{"POST", "/a", "localhost", "http://x.example"}, true, true},
		{{"POST", "/a", "localhost", "null"}, true, true},
		{{"POST", "/a", NULL, "http://localhost"}, true, true},
		/* A proxy has changed Host. */
		{{"POST", "/a", "localhost", "https://x.example", "same-origin"}, false, false},
		{{"GET", "/a", "localhost", NULL, "none"}, false, false},
		{{"GET", "/a", "localhost", NULL, "cross-site"}, true, true},
		{{"GET", "/a", "localhost", NULL, "same-site"}, true, true},
		{{"GET", "/a", "localhost", NULL, "cross-site", "navigate"}, true, true},
		{{"GET", "/", "localhost", NULL, "cross-site", "navigate"}, false, false},
		{{"GET", "/", "localhost", NULL, "cross-site", "no-cors"}, true, true},
		{{"POST", "/", "localhost", "null", "cross-site", "navigate"}, true, true},
		{{"GET", "/", "x.example", NULL, "cross-site", "navigate"}, true, false},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		cr_expect_eq(net_is_foreign(&cases[i].o, true), cases[i].local, "%zu", i);
		cr_expect_eq(net_is_foreign(&cases[i].o, false), cases[i].open, "%zu", i);
	}
}

Test(net, names_of_this_machine)
{
	static const char *const own[] = {"localhost",	    "LOCALHOST:80", "app.localhost:80",
					  "127.9.9.9:7788", "[::1]",	    "[::1]:80"},
				 *const foreign[] = {"",
						     "localhost.example",
						     "notlocalhost",
						     "128.0.0.1",
						     "127.0.0.1.example",
						     "[::1",
						     "[::2]:80",
						     "[localhost]",
						     "::1",
						     "10.0.0.1:127"};
	char host[100] = "";

	for (size_t i = 0; i < ARRAY_SIZE(own); i++)
		cr_expect(net_host_is_local(own[i]), "%s", own[i]);
	for (size_t i = 0; i < ARRAY_SIZE(foreign); i++)
		cr_expect_not(net_host_is_local(foreign[i]), "%s", foreign[i]);
	memset(host, 'a', 90);
	cr_expect_not(net_host_is_local(host));
	host[0] = '[';
	host[80] = ']';
	cr_expect_not(net_host_is_local(host));
}

/* ---- TLS ---- */

static void expect_tls_error(struct net_tls tls, int r, const char *text)
{
	cr_expect_eq(listen_on((struct net_options){.address = "127.0.0.1:0", .tls = &tls}), r);
	expect_text(text);
	cr_expect_null(listener);
}

Test(net, files_of_tls_that_do_not_work)
{
	const char *junk = file_of("junk", "junk", 4), *empty = file_of("empty", "", 0);
	const size_t n = (1 << 20) + 8192;
	char *large = calloc(1, n);
	const char *path;
	char text[200];

	cr_assert(large);
	path = file_of("large", large, n);
	free(large);
	expect_tls_error((struct net_tls){.cert = junk}, -EINVAL,
			 "TLS needs both a certificate and its key (--tls-cert, --tls-key)");
	expect_tls_error((struct net_tls){.key = junk}, -EINVAL, "(--tls-cert, --tls-key)");
	expect_tls_error((struct net_tls){.client_ca = junk}, -EINVAL, "(--tls-cert, --tls-key)");
	expect_tls_error((struct net_tls){.cert = empty, .key = junk}, -EINVAL,
			 "/empty: the file is empty");
	expect_tls_error((struct net_tls){.cert = junk, .key = path}, -EFBIG,
			 "/large: too large for PEM");
	expect_tls_error((struct net_tls){.cert = junk, .key = junk, .client_ca = "/no/such"},
			 -ENOENT, "/no/such: cannot read: No such file or directory");
	expect_tls_error((struct net_tls){.cert = junk, .key = junk}, -EINVAL, "");
	snprintf(text, sizeof(text), "certificate %s and key %s: ", junk, junk);
	cr_expect_eq(strncmp(diag.text, text, strlen(text)), 0, "%s", diag.text);
	expect_listens("127.0.0.1:0");
}

/* ---- requests ---- */

static int connected(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET,
				.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
				.sin_port = htons(net_port(listener))};
	const struct timeval wait = {.tv_sec = WAIT_MS / 1000};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	cr_assert_geq(fd, 0);
	cr_assert_eq(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait)), 0);
	cr_assert_eq(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	return fd;
}

static void put(int fd, const char *text, size_t n)
{
	cr_assert_eq(send(fd, text, n, MSG_NOSIGNAL), (ssize_t)n);
}

/* What the server answers until it closes the connection, which it is asked to do. */
static const char *answer_of(int fd)
{
	static char all[4096];
	size_t n = 0;
	ssize_t r;

	while ((r = recv(fd, all + n, sizeof(all) - 1 - n, 0)) > 0)
		n += (size_t)r;
	cr_assert_eq(r, 0, "no end of the answer");
	close(fd);
	all[n] = '\0';
	return all;
}

/* `head` without its end: "GET / HTTP/1.1\r\nX: y\r\n". */
static int asked(const char *head, size_t n_body)
{
	char text[2 * MAX_BODY + 512];
	int fd = connected();
	int n = snprintf(text, sizeof(text), "%sConnection: close\r\n\r\n", head);

	memset(text + n, 'x', n_body);
	put(fd, text, (size_t)n + n_body);
	return fd;
}

static void expect_answer(int fd, const char *status, const char *body)
{
	const char *all = answer_of(fd), *at = strstr(all, "\r\n\r\n");

	cr_assert(at, "%s", all);
	cr_expect_eq(strncmp(all, "HTTP/1.1 ", 9), 0);
	cr_expect_eq(strncmp(all + 9, status, strlen(status)), 0, "%s", all);
	cr_expect_str_eq(at + 4, body);
}

static void begin_listener(struct net_options o)
{
	o.address = "127.0.0.1:0";
	cr_assert_eq(listen_on(o), 0, "%s", diag.text);
}

static struct net_stats stats(void)
{
	struct net_stats s;

	net_stats(listener, &s);
	return s;
}

#define OWN_PAGE "Host: localhost\r\n"

Test(net, bodies_up_to_the_limit)
{
	begin_listener((struct net_options){});
	expect_answer(asked("POST /a HTTP/1.1\r\n" OWN_PAGE "Content-Length: 1000\r\n", 1000),
		      "200", "POST /a 1000\n");
	expect_answer(asked("POST /a HTTP/1.1\r\n" OWN_PAGE "Content-Length: 1001\r\n", 0), "413",
		      "the body is larger than this server accepts\n");
	cr_expect(strstr(answer_of(asked("HEAD /a HTTP/1.1\r\n" OWN_PAGE, 0)),
			 "\r\nContent-Length: 9\r\n"),
		  "as for GET");
	cr_expect_eq(stats().too_large, 1);
	cr_expect_eq(stats().requests, 3);
	cr_expect_eq(stats().connections, 3);
	cr_expect_eq(atomic_load(&listener->buffered), 0);
}

static void wait_until_buffered(u64 n)
{
	const struct timespec tick = {.tv_nsec = 5000000};
	u64 until = net_now_ms() + WAIT_MS;

	while (atomic_load(&listener->buffered) != n) {
		cr_assert_lt(net_now_ms(), until);
		(void)nanosleep(&tick, NULL);
	}
}

Test(net, all_bodies_together_have_a_limit)
{
	const char *head = "POST /a HTTP/1.1\r\n" OWN_PAGE "Content-Length: 1000\r\n";
	const char *all;
	int fds[4];

	begin_listener((struct net_options){});
	for (u32 i = 0; i < ARRAY_SIZE(fds); i++)
		fds[i] = asked(head, 999);
	wait_until_buffered(4 * 999);
	all = answer_of(asked(head, 1000));
	cr_expect_eq(strncmp(all, "HTTP/1.1 503", 12), 0, "%s", all);
	cr_expect(strstr(all, "\r\nRetry-After: 1\r\n"));
	cr_expect(strstr(all, "\r\n\r\ntoo many large requests at once\n"));
	for (u32 i = 0; i < ARRAY_SIZE(fds); i++) {
		put(fds[i], "x", 1);
		expect_answer(fds[i], "200", "POST /a 1000\n");
	}
	wait_until_buffered(0);
	expect_answer(asked(head, 1000), "200", "POST /a 1000\n");
}

Test(net, requests_of_foreign_pages)
{
	begin_listener((struct net_options){});
	expect_answer(asked("GET /a HTTP/1.1\r\nHost: example.org\r\n", 0), "403",
		      "pages of other sites may not use this server\n");
	expect_answer(asked("GET /a HTTP/1.1\r\n" OWN_PAGE "Origin: http://example.org\r\n", 0),
		      "403", "pages of other sites may not use this server\n");
	expect_answer(asked("GET /a HTTP/1.1\r\n" OWN_PAGE "Origin: http://localhost\r\n", 0),
		      "200", "GET /a 0\n");
	cr_expect_eq(stats().unauthorized, 2);
}

Test(net, requests_without_a_token)
{
	const char *all;

	begin_listener((struct net_options){
		.tokens = file_of("tokens", "read " TOKEN, 5 + strlen(TOKEN))});
	all = answer_of(asked("GET /a HTTP/1.1\r\nHost: example.org\r\n", 0));
	cr_expect_eq(strncmp(all, "HTTP/1.1 401", 12), 0, "%s", all);
	cr_expect(strstr(all, "\r\nWWW-Authenticate: Bearer realm=\"culprit\"\r\n"));
	cr_expect(strstr(all, "\r\n\r\nthis server requires a token: Authorization: Bearer TOKEN"));
	expect_answer(asked("GET /healthz HTTP/1.1\r\nHost: example.org\r\n", 0), "200",
		      "GET /healthz 0\n");
	all = answer_of(
		asked("POST /healthz HTTP/1.1\r\nHost: example.org\r\nContent-Length: 1\r\n", 0));
	cr_expect_eq(strncmp(all, "HTTP/1.1 401", 12), 0, "a body needs a token, too");
	expect_answer(asked("GET /a HTTP/1.1\r\nHost: example.org\r\n"
			    "Authorization: Bearer " TOKEN "\r\n",
			    0),
		      "200", "GET /a 0\n");
	cr_expect_eq(stats().unauthorized, 2);
}

static struct {
	u64 bytes;
	atomic_uint ends;
} sunk;

static void sink_part(void *userdata, const void *data, size_t n)
{
	(void)userdata;
	(void)data;
	sunk.bytes += n;
}

static void sink_end(void *userdata)
{
	(void)userdata;
	atomic_fetch_add(&sunk.ends, 1);
}

static bool open_sink(void *userdata, const struct net_request *r, struct net_sink *ret)
{
	(void)userdata;
	*ret = (struct net_sink){.part = sink_part,
				 .end = sink_end,
				 .max_body = !strcmp(r->path, "/sink") ? 1500 : 1 << 20};
	return !strcmp(r->path, "/sink") || !strcmp(r->path, "/large");
}

Test(net, a_sink_has_its_own_limit_and_one_end)
{
	const struct timespec tick = {.tv_nsec = 5000000};
	u64 until;
	int fd;

	begin_listener((struct net_options){.sink = open_sink});
	expect_answer(asked("POST /sink HTTP/1.1\r\n" OWN_PAGE "Content-Length: 1500\r\n", 1500),
		      "200", "POST /sink 0\n");
	expect_answer(asked("POST /sink HTTP/1.1\r\n" OWN_PAGE "Content-Length: 1501\r\n", 0),
		      "413", "the body is larger than this server accepts\n");
	expect_answer(asked("POST /a HTTP/1.1\r\n" OWN_PAGE "Content-Length: 1001\r\n", 0), "413",
		      "the body is larger than this server accepts\n");
	cr_expect_eq(sunk.bytes, 1500);
	fd = asked("POST /sink HTTP/1.1\r\n" OWN_PAGE "Content-Length: 1500\r\n", 100);
	close(fd);
	until = net_now_ms() + WAIT_MS;
	while (atomic_load(&sunk.ends) < 3 && net_now_ms() < until)
		(void)nanosleep(&tick, NULL);
	net_close(listener, WAIT_MS);
	listener = NULL;
	cr_expect_eq(atomic_load(&sunk.ends), 3);
}

/* The client closes its side at once: what it has sent arrives as a whole all the same. */
Test(net, an_upload_of_a_client_that_half_closes_is_whole)
{
	const struct timespec pause = {.tv_sec = 1, .tv_nsec = 100000000};
	const size_t n = 300000;
	char *body = calloc(1, n);
	int fd;

	cr_assert(body);
	begin_listener((struct net_options){.sink = open_sink});
	fd = asked("POST /large HTTP/1.1\r\n" OWN_PAGE "Content-Length: 300000\r\n", 0);
	(void)nanosleep(&pause, NULL);
	put(fd, body, n);
	cr_assert_eq(shutdown(fd, SHUT_WR), 0);
	expect_answer(fd, "200", "POST /large 0\n");
	cr_expect_eq(sunk.bytes, n);
	free(body);
}

/* The time of a request ends where the handler's begins. */
Test(net, slow_clients_are_counted_and_slow_handlers_are_not)
{
	const struct timespec tick = {.tv_nsec = 100000000};
	int slow, patient;
	u64 until;

	begin_listener((struct net_options){.timeout_s = 1});
	patient = asked("GET /slow HTTP/1.1\r\n" OWN_PAGE, 0);
	slow = connected();
	until = net_now_ms() + WAIT_MS;
	while (send(slow, "X", 1, MSG_NOSIGNAL) == 1 && net_now_ms() < until)
		(void)nanosleep(&tick, NULL);
	cr_expect_lt(net_now_ms(), until);
	close(slow);
	cr_expect_eq(stats().timed_out, 1);
	expect_answer(patient, "200", "GET /slow 0\n");
	cr_expect_eq(stats().timed_out, 1);
}

static void wait_until_running(int n)
{
	const struct timespec tick = {.tv_nsec = 5000000};
	u64 until = net_now_ms() + WAIT_MS;

	while (atomic_load(&waits.running) != n) {
		cr_assert_lt(net_now_ms(), until, "%d run", atomic_load(&waits.running));
		(void)nanosleep(&tick, NULL);
	}
}

Test(net, a_handler_ends_when_its_client_has_gone)
{
	int fd;

	begin_listener((struct net_options){});
	fd = asked("GET /wait HTTP/1.1\r\n" OWN_PAGE, 0);
	wait_until_running(1);
	close(fd);
	wait_until_running(0);
	cr_expect_eq(atomic_load(&waits.error), -ECANCELED);
}

Test(net, a_handler_has_the_time_of_its_quota)
{
	begin_listener((struct net_options){.limits = {.time_ns = 50000000}});
	expect_answer(asked("GET /wait HTTP/1.1\r\n" OWN_PAGE, 0), "200", "GET /wait 0\n");
	cr_expect_eq(atomic_load(&waits.error), -ETIMEDOUT);
}

Test(net, closing_a_listener_ends_handlers)
{
	int fd;
	u64 begin;

	begin_listener((struct net_options){});
	fd = asked("GET /wait HTTP/1.1\r\n" OWN_PAGE, 0);
	wait_until_running(1);
	begin = net_now_ms();
	net_close(listener, 100);
	listener = NULL;
	cr_expect_lt(net_now_ms() - begin, WAIT_MS / 2);
	cr_expect_eq(atomic_load(&waits.error), -ECANCELED);
	close(fd);
}

/* A frame of HTTP/2: length, type, flags, stream. */
static void put_frame(int fd, u8 type, u8 flags, u8 stream, const void *payload, u8 n)
{
	u8 frame[9 + 255] = {0, 0, n, type, flags, 0, 0, 0, stream};

	memcpy(frame + 9, payload, n);
	put(fd, (const char *)frame, 9u + n);
}

/* Calls /wait with this grpc-timeout, in a stream of number 1. */
static int called(const char *timeout)
{
	const char *const headers[][2] = {{":method", "POST"},
					  {":scheme", "http"},
					  {":path", "/wait"},
					  {":authority", "localhost"},
					  {"content-type", "application/grpc"},
					  {"grpc-timeout", timeout}};
	const char *preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
	u8 block[250];
	u8 n = 0;
	int fd = connected();

	for (u32 i = 0; i < ARRAY_SIZE(headers); i++)
		for (u32 k = 0; k < 2; k++) {
			size_t length = strlen(headers[i][k]);

			if (!k)
				block[n++] = 0; /* HPACK: a literal that is not indexed */
			block[n++] = (u8)length;
			memcpy(block + n, headers[i][k], length);
			n = (u8)(n + length);
		}
	put(fd, preface, strlen(preface));
	put_frame(fd, 4, 0, 0, "", 0);
	put_frame(fd, 1, 4, 1, block, n);	 /* HEADERS, END_HEADERS */
	put_frame(fd, 0, 1, 1, "\0\0\0\0\0", 5); /* DATA, END_STREAM */
	return fd;
}

Test(net, a_call_has_the_time_of_its_grpc_timeout)
{
	u64 begin = net_now_ms();
	int fd;

	begin_listener((struct net_options){.grpc = true});
	fd = called("200m");
	wait_until_running(1);
	wait_until_running(0);
	cr_expect_eq(atomic_load(&waits.error), -ETIMEDOUT);
	cr_expect_lt(net_now_ms() - begin, WAIT_MS / 2);
	close(fd);
}

Test(net, a_call_ends_with_its_stream)
{
	int fd;

	begin_listener((struct net_options){.grpc = true});
	fd = called("1H");
	wait_until_running(1);
	put_frame(fd, 3, 0, 1, "\0\0\0\x08", 4); /* RST_STREAM, CANCEL */
	wait_until_running(0);
	cr_expect_eq(atomic_load(&waits.error), -ECANCELED);
	close(fd);
}

/* One client's questions wait for half of the threads; those of another go past them. */
Test(net, one_client_does_not_take_all_threads)
{
	struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f000002)},
			   server = {.sin_family = AF_INET,
				     .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	const char *text = "GET /a HTTP/1.1\r\n" OWN_PAGE "Connection: close\r\n\r\n";
	struct pool_stats s;
	int fds[40], other;

	begin_listener((struct net_options){});
	for (u32 i = 0; i < ARRAY_SIZE(fds); i++)
		fds[i] = asked("GET /wait HTTP/1.1\r\n" OWN_PAGE, 0);
	wait_until_running(4);
	other = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	server.sin_port = htons(net_port(listener));
	cr_assert_eq(bind(other, (struct sockaddr *)&own, sizeof(own)), 0);
	cr_assert_eq(connect(other, (struct sockaddr *)&server, sizeof(server)), 0);
	put(other, text, strlen(text));
	expect_answer(other, "200", "GET /a 0\n");
	cr_expect_eq(atomic_load(&waits.running), 4);
	pool_stats(listener->net->pool, POOL_READ, &s);
	cr_expect_geq(s.queued, 30);
	for (u32 i = 0; i < ARRAY_SIZE(fds); i++)
		close(fds[i]);
	wait_until_running(0);
}

/* ---- timers ---- */

Test(net, timers_come_in_order_after_moves_and_removals)
{
	struct net_timer timers[500] = {};
	struct net_timers heap = {};
	struct net_timer *t;
	u64 last = 0, n = 0;
	u32 random = 1;

	for (u32 round = 0; round < 4000; round++) {
		random = random * 1664525 + 1013904223;
		t = &timers[(random >> 16) % ARRAY_SIZE(timers)];
		if (random % 3)
			cr_assert_eq(net_timer_set(&heap, t, (random >> 8) % 1000), 0);
		else
			net_timer_clear(&heap, t);
	}
	for (u32 i = 0; i < ARRAY_SIZE(timers); i++)
		n += timers[i].place != 0;
	cr_assert_eq(heap.heap.n, n);
	for (; (t = net_timer_first(&heap)); n--) {
		cr_assert_geq(t->at_ms, last);
		last = t->at_ms;
		net_timer_clear(&heap, t);
		cr_assert_eq(t->place, 0);
	}
	cr_expect_eq(n, 0);
	vec_deinit(&heap.heap);
}
