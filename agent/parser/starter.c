/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The starter: a process without rights and with one thread, which forks parsers and ends them. It
 * ends when the agent has ended. Signals that a terminal or systemd sends to all processes are the
 * agent's, which may still have files to parse.
 */
#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/parser/internal.h"
#include "agent/parser/parser.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/message.h"
#include "base/privilege.h"
#include "base/vec.h"
#include "sandbox/sandbox.h"

/* Those of most threads come later, the reader of the ring comes first. */
#define NICE (-10)

struct starter {
	int control;
	int no_user; /* why it is still root: a negative errno, or 0 */
	vec(pid_t) parsers;
};

/* ---- the parser's side of the fork ---- */

static void be_parser(int socket, const struct parser_start *s)
{
	const struct rlimit memory = {s->max_bytes, s->max_bytes};
	struct sandbox_options walls = {.computes = true};
	struct diag d = {};

	(void)prctl(PR_SET_NAME, "parser");
	if (s->verbose)
		log_set_level(LOG_LEVEL_DEBUG);
	if (s->max_bytes)
		(void)setrlimit(RLIMIT_DATA, &memory);
	/* As the agent: large blocks, such as sections, go back to the system. */
	mallopt(M_MMAP_THRESHOLD, 256 << 10);
	mallopt(M_TRIM_THRESHOLD, 1 << 20);
	if (sandbox_enter(&walls, &d) < 0)
		log_warn("files of programs are parsed with fewer walls: %s", d.text);
	parser_serve(socket);
}

/* ---- the starter ---- */

static pid_t start_one(struct starter *st, int socket, const struct parser_start *s)
{
	pid_t pid;

	if (vec_reserve(&st->parsers, st->parsers.n + 1) < 0)
		return -ENOMEM;
	pid = fork();
	if (pid < 0)
		return -errno;
	if (pid == 0) {
		/* Not at the start, where the agent may have nothing but an error to say. */
		if (st->no_user)
			log_warn("files of programs are parsed as root, without capabilities, "
				 "because culprit may not change its user: %s",
				 strerror(-st->no_user));
		close(st->control);
		be_parser(socket, s);
		_exit(0);
	}
	st->no_user = 0; /* it is said */
	(void)vec_push(&st->parsers, pid);
	return pid;
}

static struct parser_ended end_one(struct starter *st, pid_t pid)
{
	struct parser_ended e = {.status = -1};
	struct rusage u;

	for (size_t i = 0; i < st->parsers.n; i++) {
		if (st->parsers.data[i] != pid)
			continue;
		(void)kill(pid, SIGKILL);
		if (wait4(pid, &e.status, 0, &u) == pid)
			e.cpu_ns = ((u64)u.ru_utime.tv_sec + (u64)u.ru_stime.tv_sec) * 1000000000 +
				   ((u64)u.ru_utime.tv_usec + (u64)u.ru_stime.tv_usec) * 1000;
		st->parsers.data[i] = st->parsers.data[--st->parsers.n];
		break;
	}
	return e;
}

static int serve_one(struct starter *st)
{
	_cleanup_str_ struct str data = {};
	_cleanup_close_ int socket = -1;
	struct parser_started started;
	struct parser_ended ended;
	struct parser_start start;
	u32 kind;
	s32 pid;
	int r = message_receive(st->control, sizeof(start), &kind, &data, &socket);

	if (r < 0)
		return r;
	if (kind == PARSER_START && data.n == sizeof(start) && socket >= 0) {
		memcpy(&start, data.data, sizeof(start));
		started.pid = start_one(st, socket, &start);
		return message_send(st->control, PARSER_ANSWER, &started, sizeof(started), -1);
	}
	if (kind != PARSER_END || data.n != sizeof(pid))
		return -EPROTO;
	memcpy(&pid, data.data, sizeof(pid));
	ended = end_one(st, pid);
	return message_send(st->control, PARSER_ANSWER, &ended, sizeof(ended), -1);
}

static void serve(struct starter *st)
{
	while (serve_one(st) == 0)
		;
	while (st->parsers.n)
		(void)end_one(st, st->parsers.data[0]);
	vec_deinit(&st->parsers);
}

void parsers_serve(int control)
{
	struct starter st = {.control = control};

	serve(&st);
}

/*
 * Where root cannot become another user, as in a container without CAP_SETUID, it stays root but
 * has no capabilities; without the agent's it is the user that it was.
 */
static int drop(struct starter *st, struct diag *reterr_diag)
{
	struct privilege_user u;

	if (geteuid() != 0)
		return privilege_drop(NULL, reterr_diag);
	st->no_user = privilege_find_user(NULL, &u, reterr_diag);
	if (st->no_user == 0)
		st->no_user = privilege_drop(&u, reterr_diag);
	return st->no_user ? privilege_drop(NULL, reterr_diag) : 0;
}

int parsers_main(void)
{
	static const int ignored[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE};
	struct starter st = {.control = SANDBOX_FIRST_FD};
	struct rlimit files;
	struct diag d = {};
	struct stat control;

	if (fstat(st.control, &control) < 0 || !S_ISSOCK(control.st_mode))
		return -EINVAL;
	(void)prctl(PR_SET_NAME, "parsers");
	for (size_t i = 0; i < ARRAY_SIZE(ignored); i++)
		signal(ignored[i], SIG_IGN);
	(void)setpriority(PRIO_PROCESS, 0, NICE);
	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &files);
	}
	if (drop(&st, &d) < 0) {
		log_err("files of programs cannot be parsed: %s", d.text);
		return 1;
	}
	/* What the start took; it waits from now on, and so do the pages that its forks share. */
	memory_give_back();
	serve(&st);
	return 0;
}
