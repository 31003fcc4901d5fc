/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's side of the starter. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/parser/internal.h"
#include "agent/parser/parser.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "base/message.h"
#include "sandbox/sandbox.h"

#define ANSWER_S 10

struct parsers {
	pthread_mutex_t lock; /* of the socket */
	int control;	      /* owned; -1: the starter is gone */
	pid_t pid;
};

int parsers_adopt(int control, pid_t pid, struct parsers **ret)
{
	const struct timeval patience = {.tv_sec = ANSWER_S};
	struct parsers *p = calloc(1, sizeof(*p));

	if (!p)
		return -ENOMEM;
	setsockopt(control, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	setsockopt(control, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	pthread_mutex_init(&p->lock, NULL);
	p->control = control;
	p->pid = pid;
	*ret = p;
	return 0;
}

int parsers_start(struct diag *reterr_diag, struct parsers **ret)
{
	static char command[] = "parsers";
	int ends[2], r;
	pid_t pid = 0;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
		return diag_set(reterr_diag, -errno, "cannot make sockets: %s", strerror(errno));
	r = sandbox_spawn(command, &ends[1], 1, &pid);
	close(ends[1]);
	if (r == 0)
		r = parsers_adopt(ends[0], pid, ret);
	if (r < 0) {
		close(ends[0]);
		if (pid)
			(void)waitpid(pid, NULL, 0);
		return diag_set(reterr_diag, r,
				"cannot start the process that parses files of programs: %s",
				strerror(-r));
	}
	return 0;
}

void parsers_stop(struct parsers *p)
{
	if (!p)
		return;
	cleanup_close(&p->control);
	(void)waitpid(p->pid, NULL, 0);
	pthread_mutex_destroy(&p->lock);
	free(p);
}

static int ask_locked(struct parsers *p, u32 kind, const void *data, size_t n, int pass, void *ret,
		      size_t ret_n)
{
	_cleanup_str_ struct str answer = {};
	u32 answer_kind;
	int r = p->control < 0 ? -EPIPE : message_send(p->control, kind, data, n, pass);

	if (r == 0)
		r = message_receive(p->control, ret_n, &answer_kind, &answer, NULL);
	if (r == 0 && answer.n == ret_n) {
		memcpy(ret, answer.data, ret_n);
		return 0;
	}
	if (p->control >= 0) {
		log_err("the process that starts parsers of files is gone: code of files that are "
			"new from now on has no unwind rows until culprit is started again");
		close(p->control);
		p->control = -1;
	}
	return -ESRCH;
}

static int ask(struct parsers *p, u32 kind, const void *data, size_t n, int pass, void *ret,
	       size_t ret_n)
{
	int r;

	pthread_mutex_lock(&p->lock);
	r = ask_locked(p, kind, data, n, pass, ret, ret_n);
	pthread_mutex_unlock(&p->lock);
	return r;
}

pid_t parsers_begin_one(struct parsers *p, int socket, u64 max_bytes)
{
	const struct parser_start start = {.max_bytes = max_bytes,
					   .verbose = log_enabled(LOG_LEVEL_DEBUG)};
	struct parser_started started;
	int r = ask(p, PARSER_START, &start, sizeof(start), socket, &started, sizeof(started));

	return r < 0 ? r : started.pid;
}

int parsers_end_one(struct parsers *p, pid_t pid, u64 *cpu_ns)
{
	struct parser_ended ended;
	s32 which = pid;

	if (ask(p, PARSER_END, &which, sizeof(which), -1, &ended, sizeof(ended)) < 0)
		return -1;
	*cpu_ns += ended.cpu_ns;
	return ended.status;
}
