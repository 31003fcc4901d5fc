/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent's side. One thread, the keeper, waits for the server's questions. The end of that
 * socket tells it that the server has ended; it then starts the next one, at first after a second
 * and more rarely while servers do not live long.
 *
 * `lock` belongs to the call that is under way. An answer that came too late is read before the
 * next call, so that answers keep their order.
 */
#include "cli/up_process.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/message.h"
#include "base/thread.h"

#define ANSWER_MS 5000
#define STOP_MS 10000
#define FIRST_WAIT_S 1
#define MAX_WAIT_S 60
#define LONG_LIFE_S 60 /* who lived so long may be started again at once */
#define MAX_ANSWER_BYTES (sizeof(struct up_answer) + CONTROL_MAX_BYTES)

struct up_process {
	struct up_process_options o;
	pthread_t keeper;
	bool has_keeper;
	int questions; /* owned; the keeper's */
	pthread_mutex_t lock;
	pthread_cond_t ended; /* of the keeper */
	/* Under the lock: */
	int calls;    /* owned; -1: there is no server now */
	pid_t pid;    /* 0: none */
	bool is_owed; /* an answer to an earlier call is to come */
	bool stopping, keeper_ended;
};

u64 up_capabilities(void)
{
	/* It becomes another user, loses the rest, and may have to be killed. */
	return 1ULL << CAP_SETUID | 1ULL << CAP_SETGID | 1ULL << CAP_SETPCAP | 1ULL << CAP_KILL;
}

const char *up_file_path(const struct serving_arguments *a, enum up_file which)
{
	const char *const paths[UP_FILE_N] = {[UP_FILE_CERT] = a->cert,
					      [UP_FILE_KEY] = a->key,
					      [UP_FILE_CA] = a->ca,
					      [UP_FILE_TOKENS] = a->tokens};

	return which < UP_FILE_N ? paths[which] : NULL;
}

/* ---- calls ---- */

/* The text is the server's: it goes into a line of the log. */
static void take_text(struct diag *d, int error, const char *text, size_t n)
{
	char line[sizeof(d->text)];
	size_t i;

	for (i = 0; i < n && i < sizeof(line) - 1 && text[i]; i++)
		line[i] = text[i] < ' ' || text[i] == 127 ? '?' : text[i];
	line[i] = '\0';
	(void)diag_set(d, error, "%s", i ? line : strerror(-error));
}

/*
 * -ETIMEDOUT: nothing has come in time; -EPIPE: nothing will come. Appends the text of an answer
 * without an error to `ret`; NULL: drops it.
 */
static int read_answer(int fd, int timeout_ms, struct str *ret, struct diag *reterr_diag)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	_cleanup_str_ struct str text = {};
	struct up_answer a;
	u32 kind;

	if (poll(&p, 1, timeout_ms) <= 0)
		return -ETIMEDOUT;
	if (message_receive(fd, MAX_ANSWER_BYTES, &kind, &text, NULL) < 0 || kind != UP_ANSWER ||
	    text.n < sizeof(a))
		return -EPIPE;
	memcpy(&a, text.data, sizeof(a));
	if (a.error >= 0)
		return ret ? str_append(ret, text.data + sizeof(a), text.n - sizeof(a)) : 0;
	take_text(reterr_diag, a.error, text.data + sizeof(a), text.n - sizeof(a));
	return a.error == -EPIPE || a.error == -ETIMEDOUT ? -EIO : a.error;
}

/* The keeper learns of the end by the other socket. */
static int give_up_locked(struct up_process *p, struct diag *reterr_diag)
{
	(void)shutdown(p->calls, SHUT_RDWR);
	close(p->calls);
	p->calls = -1;
	return diag_set(reterr_diag, -EAGAIN, "the server's process has ended");
}

static int wait_locked(struct up_process *p, struct str *ret, struct diag *reterr_diag)
{
	int r = read_answer(p->calls, ANSWER_MS, ret, reterr_diag);

	p->is_owed = r == -ETIMEDOUT;
	if (r == -ETIMEDOUT)
		return diag_set(reterr_diag, -EAGAIN, "the server's process does not answer");
	return r == -EPIPE ? give_up_locked(p, reterr_diag) : r;
}

static int call_locked(struct up_process *p, enum up_message kind, const void *data, size_t n,
		       struct str *ret, struct diag *reterr_diag)
{
	struct diag late = {};

	if (p->calls < 0)
		return diag_set(reterr_diag, -EAGAIN, "the server's process is not there");
	if (p->is_owed)
		(void)wait_locked(p, NULL, &late);
	if (p->is_owed || p->calls < 0)
		return diag_set(reterr_diag, -EAGAIN, "%s", late.text);
	if (message_send(p->calls, kind, data, n, -1) < 0)
		return give_up_locked(p, reterr_diag);
	return wait_locked(p, ret, reterr_diag);
}

static int call(struct up_process *p, enum up_message kind, const void *data, size_t n,
		struct str *ret, struct diag *reterr_diag)
{
	int r;

	pthread_mutex_lock(&p->lock);
	r = call_locked(p, kind, data, n, ret, reterr_diag);
	pthread_mutex_unlock(&p->lock);
	return r;
}

int up_process_give(struct up_process *p, const u8 *data, size_t n, struct diag *reterr_diag)
{
	return call(p, UP_PROFILES, data, n, NULL, reterr_diag);
}

int up_process_ask(struct up_process *p, const u8 *data, size_t n, struct str *ret,
		   struct diag *reterr_diag)
{
	return call(p, UP_SYNC, data, n, ret, reterr_diag);
}

void up_process_reload(struct up_process *p)
{
	struct diag d = {};

	if (call(p, UP_RELOAD, NULL, 0, NULL, &d) < 0)
		log_warn("certificates are not read again: %s", d.text);
}

/* ---- a new server ---- */

static int make_sockets(int ret_calls[2], int ret_questions[2])
{
	const struct timeval patience = {.tv_sec = ANSWER_MS / 1000};

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ret_calls) < 0)
		return -errno;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ret_questions) < 0)
		return -errno;
	/* A server that stops in a message stops neither the agent's calls nor its answers. */
	setsockopt(ret_calls[0], SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	setsockopt(ret_calls[0], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	setsockopt(ret_questions[0], SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	return 0;
}

static int send_start(const struct up_process *p, int calls)
{
	struct up_start start = {.has_user = p->o.user, .is_verbose = log_enabled(LOG_LEVEL_DEBUG)};
	_cleanup_str_ struct str text = {};
	int r = 0;

	if (p->o.user) {
		start.uid = p->o.user->uid;
		start.gid = p->o.user->gid;
		memcpy(start.name, p->o.user->name, sizeof(start.name));
	}
	for (u32 i = 0; i < SERVER_N && r == 0; i++)
		if (p->o.server->sockets[i])
			r = message_send(calls, UP_SOCKET, &i, sizeof(i), p->o.server->sockets[i]);
	str_append(&text, &start, sizeof(start));
	serving_write(p->o.serving, &text);
	if (text.failed)
		return -ENOMEM;
	return r < 0 ? r : message_send(calls, UP_START, text.data, text.n, -1);
}

static void set_server(struct up_process *p, int calls, pid_t pid)
{
	pthread_mutex_lock(&p->lock);
	cleanup_close(&p->calls);
	p->calls = calls;
	p->pid = pid;
	p->is_owed = false;
	pthread_mutex_unlock(&p->lock);
}

/* Waits for the end of a server that has closed its sockets. Returns its status. */
static int reap(struct up_process *p)
{
	u64 until = clock_ns(CLOCK_MONOTONIC) + STOP_MS * 1000000ULL;
	struct timespec wait = {.tv_nsec = 10000000};
	int status = 0;

	if (!p->pid)
		return 0;
	while (waitpid(p->pid, &status, WNOHANG) == 0) {
		if (clock_ns(CLOCK_MONOTONIC) > until)
			kill(p->pid, SIGKILL);
		nanosleep(&wait, NULL);
	}
	set_server(p, -1, 0);
	return status;
}

/* ---- questions ---- */

static int answer(int fd, int error, const struct str *text, int pass)
{
	_cleanup_str_ struct str all = {};
	struct up_answer a = {error};

	str_append(&all, &a, sizeof(a));
	if (text && text->n)
		str_append(&all, text->data, text->n);
	return all.failed ? -ENOMEM : message_send(fd, UP_ANSWER, all.data, all.n, pass);
}

static int answer_open(struct up_process *p, const struct str *question)
{
	_cleanup_close_ int fd = -1;
	const char *path = NULL;
	u32 which;

	if (question->n == sizeof(which)) {
		memcpy(&which, question->data, sizeof(which));
		path = up_file_path(p->o.serving, (enum up_file)which);
	}
	if (path)
		fd = open(path, O_RDONLY | O_CLOEXEC);
	return answer(p->questions, fd >= 0 ? 0 : path ? -errno : -EINVAL, NULL, fd);
}

static int pass_mapped(void *arg, int fd)
{
	struct up_process *p = arg;
	int r = message_send(p->questions, UP_FILE, NULL, 0, fd);

	close(fd);
	return r < 0 ? 1 : 0; /* ends the search */
}

static int answer_question(struct up_process *p, u32 kind, const struct str *question)
{
	_cleanup_str_ struct str text = {};

	switch (kind) {
	case UP_METRICS:
		p->o.metrics(p->o.userdata, &text);
		return answer(p->questions, 0, &text, -1);
	case UP_OPEN:
		return answer_open(p, question);
	case UP_MAPPED:
		(void)api_find_mapped(str_get(question), pass_mapped, p);
		return answer(p->questions, 0, NULL, -1);
	default:
		return -EPROTO;
	}
}

/* -EPIPE: the server has closed its socket; another error: it says what it should not. */
static int answer_next(struct up_process *p)
{
	_cleanup_str_ struct str question = {};
	u32 kind;
	int r = message_receive(p->questions, PATH_MAX, &kind, &question, NULL);

	return r < 0 ? r : answer_question(p, kind, &question);
}

/* It answers once it serves, and has questions before. A store that it repairs may take long. */
static int await_start(struct up_process *p, int calls, struct diag *reterr_diag)
{
	struct pollfd fds[2] = {{.fd = calls, .events = POLLIN},
				{.fd = p->questions, .events = POLLIN}};
	int r = 0;

	for (;;) {
		if (poll(fds, 2, -1) < 0 && errno != EINTR)
			return -errno;
		if (fds[0].revents)
			return read_answer(calls, 0, NULL, reterr_diag);
		if (fds[1].revents)
			r = answer_next(p);
		if (r < 0)
			return r;
	}
}

static int start_server(struct up_process *p, struct diag *reterr_diag)
{
	static char command[] = "up-server";
	int calls[2] = {-1, -1}, questions[2] = {-1, -1}, r = make_sockets(calls, questions);
	_cleanup_close_ int our_calls = calls[0];
	const int theirs[] = {calls[1], questions[1]};
	pid_t pid = 0;

	cleanup_close(&p->questions);
	p->questions = questions[0];
	if (r == 0)
		r = sandbox_spawn(command, theirs, ARRAY_SIZE(theirs), &pid);
	cleanup_close(&calls[1]);
	cleanup_close(&questions[1]);
	if (r < 0)
		return diag_set(reterr_diag, r, "cannot start the server's process: %s",
				strerror(-r));
	set_server(p, -1, pid);
	r = send_start(p, our_calls);
	if (r == 0)
		r = await_start(p, our_calls, reterr_diag);
	if (r == 0)
		set_server(p, take_fd(&our_calls), pid);
	return r < 0 ? diag_set(reterr_diag, r, "the server's process has ended at its start") : 0;
}

/* ---- the keeper ---- */

static bool is_stopping(struct up_process *p, u32 wait_s)
{
	bool stopping;

	pthread_mutex_lock(&p->lock);
	if (wait_s && !p->stopping)
		(void)thread_wait(&p->ended, &p->lock, wait_s * 1000000000ULL);
	stopping = p->stopping;
	pthread_mutex_unlock(&p->lock);
	return stopping;
}

static void log_end(int status, u32 wait_s)
{
	if (WIFSIGNALED(status))
		log_err("the server's process was ended by signal %d (%s); starting it again in %u "
			"s, profiles are kept meanwhile",
			WTERMSIG(status), strsignal(WTERMSIG(status)), wait_s);
	else
		log_err("the server's process ended with status %d; starting it again in %u s, "
			"profiles are kept meanwhile",
			WEXITSTATUS(status), wait_s);
}

static void *keep(void *arg)
{
	struct up_process *p = arg;
	u32 wait_s = FIRST_WAIT_S;

	while (!is_stopping(p, 0)) {
		u64 begun = clock_ns(CLOCK_MONOTONIC);
		struct diag d = {};
		int status;

		while (answer_next(p) == 0)
			;
		/* It may have broken the rules, and live. */
		cleanup_close(&p->questions);
		p->questions = -1;
		status = reap(p);
		if (clock_ns(CLOCK_MONOTONIC) - begun > LONG_LIFE_S * 1000000000ULL)
			wait_s = FIRST_WAIT_S;
		if (is_stopping(p, 0))
			break;
		log_end(status, wait_s);
		while (!is_stopping(p, wait_s)) {
			wait_s = MIN(2 * wait_s, (u32)MAX_WAIT_S);
			if (start_server(p, &d) == 0)
				break;
			log_err("%s; trying again in %u s", d.text, wait_s);
			(void)reap(p);
		}
	}
	pthread_mutex_lock(&p->lock);
	p->keeper_ended = true;
	pthread_cond_broadcast(&p->ended);
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

/* ---- life ---- */

static void up_process_destroy(struct up_process *p)
{
	cleanup_close(&p->questions);
	cleanup_close(&p->calls);
	pthread_mutex_destroy(&p->lock);
	pthread_cond_destroy(&p->ended);
	free(p);
}

int up_process_start(const struct up_process_options *o, struct diag *reterr_diag,
		     struct up_process **ret)
{
	struct up_process *p = calloc(1, sizeof(*p));
	int r;

	if (!p)
		return diag_set(reterr_diag, -ENOMEM, "out of memory");
	p->o = *o;
	p->questions = p->calls = -1;
	thread_sync_init(&p->lock, &p->ended);
	r = start_server(p, reterr_diag);
	if (r < 0) {
		(void)reap(p);
		up_process_destroy(p);
		return r;
	}
	*ret = p;
	return 0;
}

int up_process_keep(struct up_process *p, struct diag *reterr_diag)
{
	int r = thread_start(&p->keeper, "keeper", keep, p);

	p->has_keeper = r == 0;
	return r < 0 ? diag_set(reterr_diag, r, "cannot start a thread: %s", strerror(-r)) : 0;
}

static void close_listeners(const struct server_options *o)
{
	for (u32 i = 0; i < SERVER_N; i++)
		if (o->sockets[i])
			close(o->sockets[i]);
}

static void stop_keeper(struct up_process *p)
{
	u64 until = clock_ns(CLOCK_MONOTONIC) + STOP_MS * 1000000ULL, now;

	pthread_mutex_lock(&p->lock);
	while (!p->keeper_ended && (now = clock_ns(CLOCK_MONOTONIC)) < until)
		(void)thread_wait(&p->ended, &p->lock, until - now);
	if (!p->keeper_ended && p->pid)
		kill(p->pid, SIGKILL);
	pthread_mutex_unlock(&p->lock);
	pthread_join(p->keeper, NULL);
}

void up_process_stop(struct up_process *p)
{
	close_listeners(p->o.server);
	pthread_mutex_lock(&p->lock);
	p->stopping = true;
	if (p->calls >= 0)
		(void)message_send(p->calls, UP_STOP, NULL, 0, -1);
	else if (p->pid)
		kill(p->pid, SIGKILL); /* it has not begun to serve */
	pthread_cond_broadcast(&p->ended);
	pthread_mutex_unlock(&p->lock);
	if (p->has_keeper)
		stop_keeper(p);
	else
		(void)reap(p);
	up_process_destroy(p);
}
