/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/context/channel.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/map.h"
#include "base/thread.h"
#include "base/vec.h"
#include "proc/proc.h"

#define ROUND_NS 20000000ULL
#define MESSAGES_A_ROUND 10
#define LAST_ROUNDS 25
/* The receiver reads the count as a signed number. */
#define MAX_COUNT 32767
#define MAX_WAITING 65536 /* reports of one process */
#define MAX_HOST_ID 1012  /* the receiver reads 1024 bytes */

enum message_type { MESSAGE_CORRELATION = 1, MESSAGE_REGISTRATION = 2 };
#define MESSAGE_MINOR 1

struct correlation {
	u16 type, minor;
	struct context_report report;
	u16 count;
} __attribute__((packed));
_Static_assert(sizeof(struct correlation) == 46, "the protocol's");

struct waiting {
	struct context_report report;
	u64 count;
};

struct channel {
	u32 pid;
	char path[CONTEXT_MAX_SOCKET];
	int fd;		 /* owned; -1: nobody receives */
	bool registered; /* the registration was sent through this fd */
	vec(struct waiting) waiting;
	size_t first;	  /* index of the first report that is not sent yet */
	struct map index; /* hash of a report → index in `waiting` */
	u64 dropped;
};

struct channels {
	pthread_mutex_t lock; /* of all fields below */
	pthread_cond_t wake;
	pthread_t thread;
	bool started, ending;
	bool refused;	   /* a warning about a socket without permission was logged */
	struct map by_pid; /* struct channel *, owned */
	u32 delay_ms;
	char host_id[MAX_HOST_ID + 1];
};

/* ---- the socket ---- */

/*
 * Opens the socket only if it belongs to the process's own user: a process cannot make culprit
 * write to a socket of another user.
 */
static int open_socket(u32 pid, const char *path)
{
	_cleanup_close_ int at = proc_open_in_root(pid, path, O_PATH), fd = -1;
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	struct proc_status status;
	struct stat st;

	if (at < 0)
		return at;
	if (fstat(at, &st) < 0 || !S_ISSOCK(st.st_mode))
		return -ENOTSOCK;
	if (proc_status_read(pid, &status) < 0 || st.st_uid != status.uid)
		return -EPERM;
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	/* The path may be longer than sun_path. */
	snprintf(a.sun_path, sizeof(a.sun_path), "/proc/self/fd/%d", at);
	if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0)
		return -errno;
	return take_fd(&fd);
}

static void close_socket(struct channel *c)
{
	if (c->fd >= 0)
		close(c->fd);
	c->fd = -1;
	c->registered = false;
}

/* ---- sending ---- */

/* True: the message was sent. A permanent error closes the socket. */
static bool send_message(struct channel *c, const void *message, size_t n)
{
	if (send(c->fd, message, n, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)n)
		return true;
	if (errno != EAGAIN && errno != EINTR && errno != ENOBUFS)
		close_socket(c);
	return false;
}

static bool send_registration(const struct channels *s, struct channel *c)
{
	u32 n = (u32)strlen(s->host_id);
	u8 message[12 + MAX_HOST_ID];
	u16 type = MESSAGE_REGISTRATION, minor = MESSAGE_MINOR;

	memcpy(message, &type, 2);
	memcpy(message + 2, &minor, 2);
	memcpy(message + 4, &s->delay_ms, 4);
	memcpy(message + 8, &n, 4);
	memcpy(message + 12, s->host_id, n);
	c->registered = send_message(c, message, 12 + n);
	return c->registered;
}

static bool send_some(struct channel *c, struct waiting *w)
{
	struct correlation m = {MESSAGE_CORRELATION, MESSAGE_MINOR, w->report,
				(u16)MIN(w->count, (u64)MAX_COUNT)};

	if (!send_message(c, &m, sizeof(m)))
		return false;
	w->count -= m.count;
	return true;
}

static void forget_sent(struct channel *c)
{
	if (c->first < c->waiting.n)
		return;
	vec_clear(&c->waiting);
	map_clear(&c->index);
	c->first = 0;
}

/* Sends the messages of one round. True: reports are left. */
static bool send_round(const struct channels *s, struct channel *c)
{
	int left = MESSAGES_A_ROUND;

	if (c->fd < 0)
		return false;
	if (!c->registered && (--left, !send_registration(s, c)))
		return c->fd >= 0;
	while (left-- && c->first < c->waiting.n) {
		struct waiting *w = &c->waiting.data[c->first];

		if (!send_some(c, w))
			break;
		c->first += !w->count;
	}
	forget_sent(c);
	return c->fd >= 0 && c->first < c->waiting.n;
}

static bool send_all(struct channels *s)
{
	bool left = false;

	map_foreach (&s->by_pid, slot)
		left |= send_round(s, (struct channel *)slot->value);
	return left;
}

static void *send_loop(void *arg)
{
	struct channels *s = arg;
	int last = LAST_ROUNDS;

	pthread_mutex_lock(&s->lock);
	while (!s->ending || last) {
		bool left = send_all(s);

		if (s->ending && (!left || !--last))
			break;
		if (left) {
			struct timespec t = {0, (long)ROUND_NS};

			/* New reports do not end this sleep: the receiver would not be faster. */
			pthread_mutex_unlock(&s->lock);
			nanosleep(&t, NULL);
			pthread_mutex_lock(&s->lock);
		} else if (!s->ending) {
			pthread_cond_wait(&s->wake, &s->lock);
		}
	}
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

/* ---- called by other threads ---- */

static void channel_free(struct channel *c)
{
	if (c->dropped)
		log_debug("pid %u: %llu samples could not be reported to it", c->pid, c->dropped);
	close_socket(c);
	vec_deinit(&c->waiting);
	map_deinit(&c->index);
	free(c);
}

int channels_create(u32 delay_ms, const char *host_id, struct channels **ret)
{
	struct channels *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return -ENOMEM;
	thread_sync_init(&s->lock, &s->wake);
	s->delay_ms = delay_ms;
	snprintf(s->host_id, sizeof(s->host_id), "%s", host_id);
	r = thread_start(&s->thread, "correlation", send_loop, s);
	s->started = r == 0;
	if (r < 0) {
		channels_destroy(s);
		return r;
	}
	*ret = s;
	return 0;
}

void channels_destroy(struct channels *s)
{
	if (!s)
		return;
	pthread_mutex_lock(&s->lock);
	s->ending = true;
	pthread_cond_broadcast(&s->wake);
	pthread_mutex_unlock(&s->lock);
	if (s->started)
		pthread_join(s->thread, NULL);
	map_foreach (&s->by_pid, slot)
		channel_free((struct channel *)slot->value);
	map_deinit(&s->by_pid);
	pthread_cond_destroy(&s->wake);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

static struct channel *get_channel(struct channels *s, u32 pid)
{
	const u64 *known = map_get(&s->by_pid, pid);
	struct channel *c;

	if (known)
		return (struct channel *)*known;
	c = calloc(1, sizeof(*c));
	if (!c || map_put(&s->by_pid, pid, (u64)c) < 0) {
		free(c);
		return NULL;
	}
	c->pid = pid;
	c->fd = -1;
	return c;
}

static void open_channel(struct channels *s, u32 pid, const char *path)
{
	struct channel *c = get_channel(s, pid);

	if (!c || (c->fd >= 0 && !strcmp(c->path, path)))
		return;
	close_socket(c);
	snprintf(c->path, sizeof(c->path), "%s", path);
	c->fd = open_socket(pid, path);
	if (c->fd < 0) {
		log_debug("pid %u: its socket %s: %s", pid, path, strerror(-c->fd));
		if (c->fd == -EACCES && !s->refused)
			log_warn("pid %u: cannot report which of its traces were sampled: its "
				 "socket is another user's, which takes CAP_DAC_OVERRIDE",
				 pid);
		s->refused |= c->fd == -EACCES;
		c->fd = -1;
		return;
	}
	pthread_cond_signal(&s->wake);
}

void channels_open(struct channels *s, u32 pid, const char *path)
{
	pthread_mutex_lock(&s->lock);
	open_channel(s, pid, path);
	pthread_mutex_unlock(&s->lock);
}

void channels_close(struct channels *s, u32 pid)
{
	u64 v;

	pthread_mutex_lock(&s->lock);
	if (map_del(&s->by_pid, pid, &v))
		channel_free((struct channel *)v);
	pthread_mutex_unlock(&s->lock);
}

void channels_late(struct channels *s, u32 ms)
{
	pthread_mutex_lock(&s->lock);
	if (ms > s->delay_ms) {
		s->delay_ms = ms + ms / 2;
		map_foreach (&s->by_pid, slot)
			((struct channel *)slot->value)->registered = false;
		pthread_cond_signal(&s->wake);
	}
	pthread_mutex_unlock(&s->lock);
}

static void add_report(struct channel *c, const struct context_report *r, u64 count)
{
	u64 key = hash_bytes(r, sizeof(*r)) >> 1;
	const u64 *at = map_get(&c->index, key);

	if (at && *at >= c->first && !memcmp(&c->waiting.data[*at].report, r, sizeof(*r))) {
		c->waiting.data[*at].count += count;
		return;
	}
	if (c->fd < 0 || c->waiting.n - c->first >= MAX_WAITING ||
	    vec_push(&c->waiting, (struct waiting){*r, count}) < 0) {
		c->dropped += count;
		return;
	}
	(void)map_put(&c->index, key, c->waiting.n - 1);
}

void channels_report(struct channels *s, u32 pid, const struct context_report *r, u64 count)
{
	const u64 *known;

	pthread_mutex_lock(&s->lock);
	known = map_get(&s->by_pid, pid);
	if (known && count)
		add_report((struct channel *)*known, r, count);
	pthread_cond_signal(&s->wake);
	pthread_mutex_unlock(&s->lock);
}
