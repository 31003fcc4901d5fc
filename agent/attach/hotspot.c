/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The attach protocol of HotSpot (attachListener_posix.cpp; up to JDK 17 attachListener_linux.cpp):
 *
 *	culprit                         JVM
 *	.attach_pidN in /tmp
 *	SIGQUIT               ─→        sees the file, makes the socket /tmp/.java_pidN, listens
 *	connect, "1\0jcmd\0…" ─→        SO_PEERCRED: root, or its own user and group
 *	                      ←─        "0\n", text, end
 *
 * N is the pid in the JVM's own PID namespace, /tmp that of its mount namespace. Without the file
 * the JVM prints its threads to its output on SIGQUIT; so it does with DisableAttachMechanism. A
 * process that does not handle the signal is ended by it. With -Xrs the JVM does not handle it.
 *
 * /tmp is open to all, so the socket's file is opened first, its type and owner are checked, and
 * the peer must be the JVM.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "agent/attach/internal.h"
#include "agent/runtime/runtime.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "proc/proc.h"

#define CAUGHT(signal) (1ULL << ((signal)-1))
/* How long the JVM has for its listener; it handles the signal at once unless it is stopped. */
#define LISTEN_MS 5000
#define FIRST_POLL_MS 10
#define LAST_POLL_MS 200
/* A trigger that is older was left behind. */
#define STALE_S 60
#define UNKNOWN "Unknown diagnostic command"

/* ---- the process ---- */

static bool is_on_fuse(u32 pid, int fd)
{
	struct statx st;
	char type[64];

	return statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &st) < 0 ||
	       (proc_device_type(pid, st.stx_dev_major, st.stx_dev_minor, type, sizeof(type)) &&
		(!strcmp(type, "fuse") || str_starts(type, "fuse.")));
}

/* -ESRCH: it is not the program that was seen, or has ended. */
static int check_program(const struct jvm *j)
{
	struct proc_stat stat;
	int r = proc_stat_read(j->pid, &stat);

	if (r == 0 && (stat.start_stack != j->start_stack ||
		       (j->start_ticks && stat.start_ticks != j->start_ticks)))
		return -ESRCH;
	return r;
}

int jvm_open(struct jvm *ret, struct diag *reterr_diag)
{
	struct jvm j = *ret;
	struct proc_status status;
	int r;

	/* First, so that what is read after it is of the process that it stands for. */
	j.pidfd = (int)syscall(SYS_pidfd_open, j.pid, 0);
	j.tmp = -1;
	if (j.pidfd < 0)
		return diag_set(reterr_diag, -errno, "pidfd_open: %s", strerror(errno));
	r = check_program(&j);
	if (r == 0)
		r = proc_status_read(j.pid, &status);
	if (r == 0) {
		j.ns_pid = status.ns_pid;
		j.uid = status.uid;
		j.tmp = proc_open_in_root(j.pid, "/tmp", O_PATH | O_DIRECTORY);
		r = j.tmp < 0 ? j.tmp : 0;
	}
	if (r == 0 && is_on_fuse(j.pid, j.tmp))
		r = -EIO;
	if (r < 0) {
		jvm_close(&j);
		return diag_set(reterr_diag, r, "its /tmp cannot be opened: %s", strerror(-r));
	}
	*ret = j;
	return 0;
}

void jvm_close(struct jvm *j)
{
	cleanup_close(&j->tmp);
	cleanup_close(&j->pidfd);
	j->tmp = j->pidfd = -1;
}

bool jvm_has_ended(const struct jvm *j)
{
	struct pollfd p = {.fd = j->pidfd, .events = POLLIN};

	return poll(&p, 1, 0) > 0;
}

int jvm_may_ask(const struct jvm *j, struct diag *reterr_diag)
{
	const struct runtime_memory memory = {j->pid};
	struct proc_status status;
	u8 disabled = 1;
	int r = check_program(j);

	if (r == 0)
		r = proc_status_read(j->pid, &status);
	if (r < 0 || jvm_has_ended(j))
		return diag_set(reterr_diag, -ESRCH, "it has ended");
	if (!(status.caught & CAUGHT(SIGQUIT)))
		return diag_set(reterr_diag, -EAGAIN,
				"it does not handle SIGQUIT: it is starting, or runs with -Xrs");
	/* Its options are read before it handles signals. */
	if (!j->flag_avma || runtime_read(&memory, j->flag_avma, &disabled, 1) < 0)
		return diag_set(reterr_diag, -EACCES,
				"whether it runs with -XX:+" ATTACH_FLAG " cannot be read");
	return disabled ? diag_set(reterr_diag, -EACCES, "it runs with -XX:+" ATTACH_FLAG) : 0;
}

/* ---- the socket ---- */

u64 jvm_now_ms(void)
{
	return clock_ns(CLOCK_MONOTONIC) / 1000000;
}

static u64 left_ms(const struct jvm *j, u64 until_ms)
{
	u64 latest = j->latest_ms ? __atomic_load_n(j->latest_ms, __ATOMIC_RELAXED) : until_ms;
	u64 end = MIN(until_ms, latest), now = jvm_now_ms();

	return now < end ? end - now : 0;
}

static void sleep_ms(u64 ms)
{
	(void)poll(NULL, 0, (int)ms);
}

/* The file of the socket, O_PATH. -ENOENT: there is none. */
static int open_socket_file(const struct jvm *j, struct diag *reterr_diag)
{
	_cleanup_close_ int at = -1;
	struct stat st;
	char name[32];

	snprintf(name, sizeof(name), ".java_pid%u", j->ns_pid);
	at = openat(j->tmp, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (at < 0)
		return -errno;
	if (fstat(at, &st) < 0)
		return -errno;
	if (!S_ISSOCK(st.st_mode) || st.st_uid != j->uid)
		return diag_set(reterr_diag, -EPERM, "/tmp/%s is not a socket of its user", name);
	return take_fd(&at);
}

/* The listener is the process itself, as the kernel tells it. */
static bool is_peer(int fd, const struct jvm *j)
{
	struct ucred peer;
	socklen_t n = sizeof(peer);

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) == 0 && (u32)peer.pid == j->pid &&
	       !jvm_has_ended(j);
}

/* -ENOENT: nobody listens. */
static int connect_once(const struct jvm *j, struct diag *reterr_diag)
{
	_cleanup_close_ int at = open_socket_file(j, reterr_diag), fd = -1;
	struct sockaddr_un a = {.sun_family = AF_UNIX};

	if (at < 0)
		return at;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	snprintf(a.sun_path, sizeof(a.sun_path), "/proc/self/fd/%d", at);
	if (fd < 0)
		return -errno;
	if (connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0)
		return errno == ECONNREFUSED ? -ENOENT : -errno;
	if (!is_peer(fd, j))
		return diag_set(reterr_diag, -EPERM, "another process listens at its socket");
	return take_fd(&fd);
}

/* EAGAIN: others wait for the listener, too. */
static int connect_until(const struct jvm *j, u64 until_ms, struct diag *reterr_diag)
{
	int fd;

	while ((fd = connect_once(j, reterr_diag)) == -EAGAIN && left_ms(j, until_ms))
		sleep_ms(FIRST_POLL_MS);
	return fd == -EAGAIN ? -ETIMEDOUT : fd;
}

/* ---- the listener ---- */

/* Somebody else's is left alone as long as it may be in use. */
static void remove_stale(int dir, const char *name)
{
	struct stat st;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	    (u64)st.st_mtim.tv_sec + STALE_S < clock_ns(CLOCK_REALTIME) / 1000000000)
		(void)unlinkat(dir, name, 0);
}

/* -EEXIST: somebody else attaches at this moment. */
static int make_trigger(const struct jvm *j, int dir, const char *name)
{
	_cleanup_close_ int fd = -1;

	remove_stale(dir, name);
	fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	/* JDK 8 wants its own user's; later ones take root's, too. */
	(void)!fchown(fd, j->uid, (gid_t)-1);
	return 0;
}

/* The JVM looks in its working directory, too, for a /tmp that is read-only. */
static int open_cwd(const struct jvm *j)
{
	char path[32];
	int fd;

	snprintf(path, sizeof(path), "/proc/%u/cwd", j->pid);
	fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fd >= 0 && is_on_fuse(j->pid, fd)) {
		close(fd);
		return -EIO;
	}
	return fd < 0 ? -errno : fd;
}

static int await_listener(const struct jvm *j, u64 until_ms, struct diag *reterr_diag)
{
	u64 pause = FIRST_POLL_MS;
	int fd;

	for (;;) {
		fd = connect_once(j, reterr_diag);
		if (fd != -ENOENT && fd != -EAGAIN)
			return fd;
		if (!left_ms(j, until_ms) || jvm_has_ended(j))
			return diag_set(reterr_diag, -ETIMEDOUT,
					"its attach listener has not started in time");
		sleep_ms(pause);
		pause = MIN(pause * 2, (u64)LAST_POLL_MS);
	}
}

static int signal_listener(const struct jvm *j, struct diag *reterr_diag)
{
	int r = jvm_may_ask(j, reterr_diag);

	if (r == 0 && syscall(SYS_pidfd_send_signal, j->pidfd, SIGQUIT, NULL, 0) < 0)
		r = diag_set(reterr_diag, -errno, "it cannot be sent SIGQUIT: %s", strerror(errno));
	return r;
}

static int start_listener(const struct jvm *j, u64 until_ms, struct diag *reterr_diag)
{
	_cleanup_close_ int cwd = -1;
	int dir = j->tmp, r, fd;
	char name[32];

	snprintf(name, sizeof(name), ".attach_pid%u", j->ns_pid);
	r = make_trigger(j, dir, name);
	if (r < 0 && r != -EEXIST) {
		dir = cwd = open_cwd(j);
		r = cwd < 0 ? cwd : make_trigger(j, dir, name);
	}
	if (r == -EEXIST)
		return await_listener(j, until_ms, reterr_diag);
	if (r < 0)
		return diag_set(reterr_diag, r, "a file in its /tmp cannot be made: %s",
				strerror(-r));
	r = signal_listener(j, reterr_diag);
	fd = r < 0 ? r : await_listener(j, MIN(until_ms, jvm_now_ms() + LISTEN_MS), reterr_diag);
	(void)unlinkat(dir, name, 0);
	return fd;
}

/* ---- commands ---- */

/* In slices, because another thread may lower the limit meanwhile. */
static int wait_for(const struct jvm *j, int fd, short what, u64 until_ms)
{
	struct pollfd p = {.fd = fd, .events = what};
	u64 left;

	while ((left = left_ms(j, until_ms))) {
		int r = poll(&p, 1, (int)MIN(left, (u64)LAST_POLL_MS));

		if (r > 0)
			return 0;
		if (r < 0 && errno != EINTR)
			return -errno;
	}
	return -ETIMEDOUT;
}

static int send_all(const struct jvm *j, int fd, const struct str *request, u64 until_ms)
{
	size_t at = 0;

	while (at < request->n) {
		ssize_t n =
			send(fd, request->data + at, request->n - at, MSG_NOSIGNAL | MSG_DONTWAIT);
		int r = 0;

		if (n > 0)
			at += (size_t)n;
		else if (errno == EAGAIN || errno == EINTR)
			r = wait_for(j, fd, POLLOUT, until_ms);
		else
			return -errno;
		if (r < 0)
			return r;
	}
	return 0;
}

static int receive_all(const struct jvm *j, int fd, u64 until_ms, struct str *ret)
{
	char some[4096];

	for (;;) {
		ssize_t n = recv(fd, some, sizeof(some), MSG_DONTWAIT);
		int r = 0;

		if (n == 0)
			return 0;
		if (n > 0)
			r = ret->n + (size_t)n > JVM_MAX_ANSWER ? -EMSGSIZE
								: str_append(ret, some, (size_t)n);
		else if (errno != EAGAIN && errno != EINTR)
			return -errno;
		if (r == 0)
			r = wait_for(j, fd, POLLIN, until_ms);
		if (r < 0)
			return r;
	}
}

/* Version 1 of the protocol, which all releases speak: five strings. */
static int make_request(const char *command, struct str *ret)
{
	static const char begin[] = "1\0jcmd", end[] = "\0";

	str_append(ret, begin, sizeof(begin));
	str_append(ret, command, strlen(command) + 1);
	str_append(ret, end, sizeof(end));
	return ret->failed ? -ENOMEM : 0;
}

static int take_answer(const struct str *answer, struct str *ret_text, struct diag *reterr_diag)
{
	char what[160];
	size_t text;
	s32 code;

	if (answer_parse(str_get(answer), answer->n, &code, &text) < 0)
		return diag_set(reterr_diag, -EPROTO, "its answer is not that of a JVM");
	if (code) {
		answer_line(answer->data + text, what, sizeof(what));
		/* A JVM that is starting does not know those of its recorder yet. */
		return diag_set(reterr_diag, strstr(what, UNKNOWN) ? -EAGAIN : -EPROTO,
				"it answers %d: %s", code, what);
	}
	return str_append(ret_text, answer->data + text, answer->n - text);
}

int jvm_ask(struct jvm *j, const char *command, u32 timeout_ms, struct str *ret_text,
	    struct diag *reterr_diag)
{
	_cleanup_str_ struct str request = {}, answer = {};
	u64 until = jvm_now_ms() + timeout_ms;
	_cleanup_close_ int fd = -1;
	int r = make_request(command, &request);

	if (r < 0)
		return r;
	fd = connect_until(j, until, reterr_diag);
	if (fd == -ENOENT)
		fd = start_listener(j, until, reterr_diag);
	r = fd < 0 ? fd : send_all(j, fd, &request, until);
	if (r == 0)
		r = receive_all(j, fd, until, &answer);
	if (r < 0)
		return diag_set(reterr_diag, r, "%s",
				r == -EMSGSIZE ? "its answer does not end" : strerror(-r));
	return take_answer(&answer, ret_text, reterr_diag);
}
