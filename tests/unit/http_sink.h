/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An HTTP/1.1 server on a loopback port, in a thread of the test. It keeps each request and answers
 * by a script; after the end of the script it answers with an empty 200. It accepts one request per
 * connection.
 */
#pragma once

#include <arpa/inet.h>
#include <assert.h>
#include <criterion/criterion.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/str.h"
#include "base/thread.h"

#define SINK_MAX_REQUESTS 64

struct sink_answer {
	int status;
	const char *header; /* "Name: value\r\n", or NULL */
	const void *body;
	size_t n;
	/* Does not read the request's body and does not answer until sink_stop(). */
	bool hang;
};

struct sink_request {
	struct str head, body;
	u64 at_ns; /* CLOCK_MONOTONIC, when the whole body had arrived */
};

struct sink {
	int fd, stop[2];
	u16 port;
	pthread_t thread;
	bool started;
	pthread_mutex_t lock; /* protects the members below */
	pthread_cond_t wake;
	struct sink_answer answers[SINK_MAX_REQUESTS];
	size_t n_answers, n;
	struct sink_request requests[SINK_MAX_REQUESTS];
};

/* Binds a port; the kernel refuses connections until sink_start(). */
static inline void sink_init(struct sink *s)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t n = sizeof(a);

	*s = (struct sink){.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
	thread_sync_init(&s->lock, &s->wake);
	cr_assert_eq(pipe(s->stop), 0);
	cr_assert_geq(s->fd, 0);
	cr_assert_eq(bind(s->fd, (struct sockaddr *)&a, sizeof(a)), 0);
	cr_assert_eq(getsockname(s->fd, (struct sockaddr *)&a, &n), 0);
	s->port = ntohs(a.sin_port);
}

static inline void sink_script(struct sink *s, struct sink_answer answer)
{
	cr_assert_lt(s->n_answers, SINK_MAX_REQUESTS);
	s->answers[s->n_answers++] = answer;
}

/* Returns false at the end of the connection or of the test. */
static inline bool sink_read(struct sink *s, int fd, struct str *into)
{
	struct pollfd p[] = {{.fd = fd, .events = POLLIN}, {.fd = s->stop[0], .events = POLLIN}};
	char data[65536];
	ssize_t n;

	if (poll(p, 2, -1) < 0 || p[1].revents)
		return false;
	n = read(fd, data, sizeof(data));
	return n > 0 && str_append(into, data, (size_t)n) == 0;
}

/* Returns the value of a header, "" if absent; valid until the next call. */
static inline const char *sink_header(const struct sink_request *r, const char *name)
{
	static __thread char value[512];
	const char *line = str_get(&r->head);

	value[0] = 0;
	while ((line = strstr(line, "\r\n"))) {
		line += 2;
		if (strncasecmp(line, name, strlen(name)) == 0 && line[strlen(name)] == ':') {
			snprintf(value, sizeof(value), "%s", line + strlen(name) + 2);
			value[strcspn(value, "\r")] = 0;
			break;
		}
	}
	return value;
}

static inline bool sink_read_request(struct sink *s, int fd, struct sink_request *r, bool no_body)
{
	const char *end;
	size_t head, n;

	while (!(end = strstr(str_get(&r->head), "\r\n\r\n")))
		if (!sink_read(s, fd, &r->head))
			return false;
	head = (size_t)(end - str_get(&r->head)) + 4;
	str_append(&r->body, str_get(&r->head) + head, r->head.n - head);
	r->head.data[r->head.n = head] = 0;
	n = strtoul(sink_header(r, "Content-Length"), NULL, 10);
	while (!no_body && r->body.n < n)
		if (!sink_read(s, fd, &r->body))
			return false;
	r->at_ns = clock_ns(CLOCK_MONOTONIC);
	return true;
}

static inline void sink_serve(struct sink *s, int fd)
{
	static const struct sink_answer ok = {.status = 200};
	struct sink_request r = {};
	struct sink_answer a;
	_cleanup_str_ struct str text = {};
	bool complete;

	pthread_mutex_lock(&s->lock);
	a = s->n < s->n_answers ? s->answers[s->n] : ok;
	pthread_mutex_unlock(&s->lock);
	complete = sink_read_request(s, fd, &r, a.hang);
	pthread_mutex_lock(&s->lock);
	/* Not cr_assert(), which must not longjmp in this thread. */
	assert(s->n < SINK_MAX_REQUESTS);
	s->requests[s->n++] = r;
	pthread_cond_broadcast(&s->wake);
	pthread_mutex_unlock(&s->lock);
	while (a.hang && sink_read(s, fd, &text))
		str_clear(&text);
	if (!complete || a.hang)
		return;
	str_printf(&text,
		   "HTTP/1.1 %d Whatever\r\nConnection: close\r\nContent-Length: %zu\r\n%s\r\n",
		   a.status, a.n, a.header ? a.header : "");
	str_append(&text, a.body, a.n);
	(void)io_write_all(fd, str_get(&text), text.n);
}

static inline void *sink_thread(void *arg)
{
	struct sink *s = arg;

	for (;;) {
		struct pollfd p[] = {{.fd = s->fd, .events = POLLIN},
				     {.fd = s->stop[0], .events = POLLIN}};
		int fd;

		if (poll(p, 2, -1) < 0 || p[1].revents)
			return NULL;
		fd = accept(s->fd, NULL, NULL);
		if (fd >= 0) {
			sink_serve(s, fd);
			close(fd);
		}
	}
}

static inline void sink_start(struct sink *s)
{
	cr_assert_eq(listen(s->fd, 16), 0);
	cr_assert_eq(thread_start(&s->thread, "sink", sink_thread, s), 0);
	s->started = true;
}

/* Waits until n requests have come. */
static inline void sink_wait(struct sink *s, size_t n)
{
	pthread_mutex_lock(&s->lock);
	while (s->n < n)
		cr_assert(thread_wait(&s->wake, &s->lock, 60000000000ULL),
			  "%zu of %zu requests came", s->n, n);
	pthread_mutex_unlock(&s->lock);
}

static inline void sink_stop(struct sink *s)
{
	if (s->started) {
		cr_assert_eq(write(s->stop[1], "", 1), 1);
		pthread_join(s->thread, NULL);
	}
	close(s->fd);
	close(s->stop[0]);
	close(s->stop[1]);
	for (size_t i = 0; i < s->n; i++) {
		str_deinit(&s->requests[i].head);
		str_deinit(&s->requests[i].body);
	}
	pthread_mutex_destroy(&s->lock);
	pthread_cond_destroy(&s->wake);
}
