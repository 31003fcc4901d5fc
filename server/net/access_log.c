/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The access log: one JSON object per line and request; doc/server.md has its members. A line is
 * one write(2), so that lines of several threads and of a rotation do not mix.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "server/net/internal.h"

struct net_log {
	char *path;	       /* owned; NULL = standard output */
	pthread_rwlock_t lock; /* of `fd` */
	int fd;
};

static int open_file(const char *path, struct diag *reterr_diag)
{
	int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0640);

	return fd < 0 ? diag_set(reterr_diag, -errno, "--access-log %s: cannot open: %s", path,
				 strerror(errno))
		      : fd;
}

int net_log_open(const char *path, struct diag *reterr_diag, struct net_log **ret)
{
	struct net_log *g = calloc(1, sizeof(*g));
	int r = 0;

	if (!g)
		return -ENOMEM;
	pthread_rwlock_init(&g->lock, NULL);
	g->fd = STDOUT_FILENO;
	if (strcmp(path, "-") != 0) {
		g->path = strdup(path);
		r = g->fd = g->path ? open_file(path, reterr_diag) : -ENOMEM;
	}
	if (r < 0) {
		net_log_close(g);
		return r;
	}
	*ret = g;
	return 0;
}

int net_log_reopen(struct net_log *g, struct diag *reterr_diag)
{
	int fd, old;

	if (!g || !g->path)
		return 0;
	fd = open_file(g->path, reterr_diag);
	if (fd < 0)
		return fd;
	pthread_rwlock_wrlock(&g->lock);
	old = g->fd;
	g->fd = fd;
	pthread_rwlock_unlock(&g->lock);
	close(old);
	return 0;
}

void net_log_close(struct net_log *g)
{
	if (!g)
		return;
	if (g->path && g->fd >= 0)
		close(g->fd);
	pthread_rwlock_destroy(&g->lock);
	free(g->path);
	free(g);
}

static const char *role_name(enum net_role role)
{
	switch ((u32)role & (NET_ROLE_READ | NET_ROLE_WRITE)) {
	case NET_ROLE_NONE:
		return "none";
	case NET_ROLE_READ:
		return "read";
	case NET_ROLE_WRITE:
		return "write";
	default:
		return role == NET_ROLE_ADMIN ? "admin" : "read+write";
	}
}

/* "2026-01-02T03:04:05.678Z" */
static void put_time(struct json_writer *w)
{
	u64 ms = clock_epoch_ms();
	time_t s = (time_t)(ms / 1000);
	char day[32], text[48];
	struct tm tm;

	gmtime_r(&s, &tm);
	strftime(day, sizeof(day), "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(text, sizeof(text), "%s.%03uZ", day, (u32)(ms % 1000));
	json_put_text(w, "time", text);
}

/* Parameters that a client may have put a secret into, though this server takes none there. */
static bool is_secret(const char *name, size_t n)
{
	static const char *const words[] = {"token", "password", "secret", "key", "auth"};
	_cleanup_str_ struct str own = {};

	str_append(&own, name, n);
	for (size_t i = 0; i < ARRAY_SIZE(words); i++)
		if (strcasestr(str_get(&own), words[i]))
			return true;
	return own.failed;
}

static void put_path(struct json_writer *w, const char *target)
{
	_cleanup_str_ struct str text = {};
	const char *at = strchr(target, '?');
	size_t n, name_n;

	at = at ? at + 1 : target + strlen(target);
	str_append(&text, target, (size_t)(at - target));
	for (; *at; at += n) {
		n = strcspn(at, "&");
		name_n = strcspn(at, "=&");
		if (name_n < n && is_secret(at, name_n))
			str_printf(&text, "%.*s=***", (int)name_n, at);
		else
			str_append(&text, at, n);
		if (at[n])
			str_putc(&text, at[n++]);
	}
	json_put_exact(w, "path", str_get(&text));
}

void net_log_put(struct net_log *g, const struct net_call *c, int status, u64 bytes)
{
	_cleanup_str_ struct str line = {};
	struct json_writer w = {.out = &line};
	const struct net_request *r = &c->request;

	json_open_object(&w, NULL);
	put_time(&w);
	json_put_text(&w, "listener", c->l->name);
	json_put_text(&w, "peer", r->peer);
	json_put_text(&w, "role", role_name(r->role));
	json_put_text(&w, "token", c->sender.name);
	json_put_text(&w, "method", r->method ? r->method : "?");
	put_path(&w, c->log_path ? c->log_path : r->path ? r->path : "?");
	json_put_s64(&w, "status", status);
	json_put_u64(&w, "received", c->received);
	json_put_u64(&w, "sent", bytes);
	json_put_u64(&w, "ms", net_now_ms() - c->began_ms);
	json_put_scaled(&w, "cpu_ms", c->cpu_ns / 1000, 3);
	json_close(&w);
	str_putc(&line, '\n');
	if (line.failed)
		return;
	pthread_rwlock_rdlock(&g->lock);
	if (write(g->fd, line.data, line.n) < 0)
		log_warn_rarely("access log: cannot write: %s", strerror(errno));
	pthread_rwlock_unlock(&g->lock);
}
