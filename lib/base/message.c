/* SPDX-License-Identifier: Apache-2.0 */
#include "base/message.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

#include "base/cleanup.h"

#define CHUNK_BYTES (64u << 10)

struct header {
	u32 kind, n;
};

static int send_all(int fd, const u8 *data, size_t n)
{
	while (n) {
		ssize_t w = send(fd, data, n, MSG_NOSIGNAL);

		if (w < 0 && errno == EINTR)
			continue;
		if (w < 0)
			return -errno;
		data += w;
		n -= (size_t)w;
	}
	return 0;
}

int message_send(int fd, u32 kind, const void *data, size_t n, int pass)
{
	const struct header h = {kind, (u32)n};
	struct iovec iov = {(void *)(uintptr_t)&h, sizeof(h)};
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = {};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
	ssize_t w;
	int r;

	if (n > UINT32_MAX)
		return -EMSGSIZE;
	if (pass >= 0) {
		m.msg_control = control.bytes;
		m.msg_controllen = sizeof(control.bytes);
		*CMSG_FIRSTHDR(&m) = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)),
						      .cmsg_level = SOL_SOCKET,
						      .cmsg_type = SCM_RIGHTS};
		memcpy(CMSG_DATA(CMSG_FIRSTHDR(&m)), &pass, sizeof(int));
	}
	do
		w = sendmsg(fd, &m, MSG_NOSIGNAL);
	while (w < 0 && errno == EINTR);
	if (w < 0)
		return -errno;
	r = send_all(fd, (const u8 *)&h + w, sizeof(h) - (size_t)w);
	return r < 0 ? r : send_all(fd, data, n);
}

/* The first bytes of a message, with its descriptor. */
static int receive_start(int fd, void *to, size_t n, size_t *ret_n, int *ret_pass)
{
	struct iovec iov = {to, n};
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = {};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
	struct cmsghdr *c;
	ssize_t got;

	/* Without this buffer the kernel drops what is passed. */
	if (ret_pass) {
		m.msg_control = control.bytes;
		m.msg_controllen = sizeof(control.bytes);
	}

	do
		got = recvmsg(fd, &m, MSG_CMSG_CLOEXEC);
	while (got < 0 && errno == EINTR);
	if (got <= 0)
		return got < 0 && errno != ECONNRESET ? -errno : -EPIPE;
	c = ret_pass ? CMSG_FIRSTHDR(&m) : NULL;
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS &&
	    c->cmsg_len == CMSG_LEN(sizeof(int)))
		memcpy(ret_pass, CMSG_DATA(c), sizeof(int));
	*ret_n = (size_t)got;
	return 0;
}

static int receive_all(int fd, void *to, size_t n)
{
	u8 *at = to;

	while (n) {
		ssize_t got = recv(fd, at, n, 0);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return got < 0 && errno != ECONNRESET ? -errno : -EPIPE;
		at += got;
		n -= (size_t)got;
	}
	return 0;
}

/* Memory grows with what arrives, not with what the header says. */
static int receive_data(int fd, size_t n, struct str *ret)
{
	_cleanup_free_ u8 *chunk = malloc(MIN(n, (size_t)CHUNK_BYTES) + 1);
	int r = chunk ? 0 : -ENOMEM;

	while (n && r == 0) {
		size_t part = MIN(n, (size_t)CHUNK_BYTES);

		r = receive_all(fd, chunk, part);
		if (r == 0)
			r = str_append(ret, chunk, part);
		n -= part;
	}
	return r;
}

int message_receive(int fd, size_t max, u32 *ret_kind, struct str *ret_data, int *ret_pass)
{
	_cleanup_close_ int pass = -1;
	struct header h;
	size_t got = 0;
	int r = receive_start(fd, &h, sizeof(h), &got, ret_pass ? &pass : NULL);

	if (r == 0)
		r = receive_all(fd, (u8 *)&h + got, sizeof(h) - got);
	if (r < 0)
		return r;
	if (h.n > max)
		return -EMSGSIZE;
	str_clear(ret_data);
	r = receive_data(fd, h.n, ret_data);
	if (r < 0)
		return r;
	*ret_kind = h.kind;
	if (ret_pass)
		*ret_pass = take_fd(&pass);
	return 0;
}
