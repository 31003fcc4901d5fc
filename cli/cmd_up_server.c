/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server's process of `culprit up`, which the agent's starts (up_process.h). It gets everything
 * from there: the sockets at which it listens, its options, the user that it becomes. It gives its
 * privileges away before it reads a byte of a store, a file or a client.
 *
 * It ends when the agent's process says so or has ended. Signals that a terminal or systemd sends
 * to all processes are the agent's: its last profiles are still to come.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/message.h"
#include "base/privilege.h"
#include "cli/cli.h"
#include "cli/commands.h"
#include "cli/up_process.h"
#include "otlp/otlp.h"

#define DRAIN_MS 4000
#define GIVE_UP_S 9
#define MAX_CALL_BYTES (64u << 20)

struct up_server {
	struct serving_arguments arguments;
	struct server_options options;
	struct str text;      /* of `arguments` */
	struct str directory; /* of `options` */
	struct up_start start;
	struct server *server;
	pthread_mutex_t lock; /* of questions */
};

/* ---- questions ---- */

/* Passes on each descriptor that comes before the answer, which is in `ret`. */
static int read_answer_locked(struct str *ret, api_mapped_fn *fn, void *arg, int *ret_pass)
{
	bool accepted = false;

	for (;;) {
		_cleanup_close_ int pass = -1;
		struct up_answer a;
		u32 kind;
		int r = message_receive(UP_QUESTIONS_FD, UP_MAX_TEXT, &kind, ret, &pass);

		if (r < 0)
			return r;
		if (kind == UP_FILE && fn && pass >= 0) {
			if (!accepted)
				accepted = fn(arg, take_fd(&pass)) == 1;
			continue;
		}
		if (kind != UP_ANSWER || ret->n < sizeof(a))
			return -EPROTO;
		memcpy(&a, ret->data, sizeof(a));
		if (ret_pass)
			*ret_pass = take_fd(&pass);
		return a.error < 0 ? a.error : accepted;
	}
}

static int ask(struct up_server *u, enum up_message kind, const void *data, size_t n,
	       struct str *ret, api_mapped_fn *fn, void *arg, int *ret_pass)
{
	int r;

	pthread_mutex_lock(&u->lock);
	r = message_send(UP_QUESTIONS_FD, kind, data, n, -1);
	if (r == 0)
		r = read_answer_locked(ret, fn, arg, ret_pass);
	pthread_mutex_unlock(&u->lock);
	return r;
}

static void ask_metrics(void *arg, struct str *out)
{
	_cleanup_str_ struct str answer = {};

	if (ask(arg, UP_METRICS, NULL, 0, &answer, NULL, NULL, NULL) >= 0)
		str_append(out, answer.data + sizeof(struct up_answer),
			   answer.n - sizeof(struct up_answer));
}

static int ask_file(void *arg, const char *path)
{
	_cleanup_str_ struct str answer = {};
	struct up_server *u = arg;
	int fd = -1, r;

	for (u32 i = 0; i < UP_FILE_N; i++) {
		const char *known = up_file_path(&u->arguments, (enum up_file)i);

		if (!known || strcmp(known, path) != 0)
			continue;
		r = ask(u, UP_OPEN, &i, sizeof(i), &answer, NULL, NULL, &fd);
		return r < 0 ? r : fd >= 0 ? fd : -EIO;
	}
	return -EACCES;
}

static int ask_mapped(void *arg, const char *path, api_mapped_fn *fn, void *fn_arg)
{
	_cleanup_str_ struct str answer = {};

	return ask(arg, UP_MAPPED, path, strlen(path), &answer, fn, fn_arg, NULL) == 1 ? 0
										       : -ENOENT;
}

/* ---- calls ---- */

static int say(int error, const char *text, size_t n)
{
	_cleanup_str_ struct str all = {};
	struct up_answer a = {error};

	str_append(&all, &a, sizeof(a));
	str_append(&all, text, n);
	return all.failed ? -ENOMEM : message_send(UP_CALLS_FD, UP_ANSWER, all.data, all.n, -1);
}

static int store_profiles(struct up_server *u, const struct str *request, struct diag *reterr_diag)
{
	_cleanup_str_ struct str response = {};
	struct diag why = {};
	u64 rejected = 0;
	int r = ingest_otlp_profiles(server_ingest(u->server), (const u8 *)str_get(request),
				     request->n, NULL, NULL, false, &response, reterr_diag);

	if (r < 0)
		return r;
	r = otlp_profiles_read_response((const u8 *)str_get(&response), response.n, &rejected,
					&why);
	return r == 0 && rejected ? diag_set(reterr_diag, -EINVAL, "%s", why.text) : r;
}

static void serve_calls(struct up_server *u)
{
	_cleanup_str_ struct str data = {}, answer = {};
	u32 kind;

	while (message_receive(UP_CALLS_FD, MAX_CALL_BYTES, &kind, &data, NULL) == 0) {
		struct diag d = {};
		int r = 0;

		if (kind == UP_STOP)
			return;
		str_clear(&answer);
		if (kind == UP_PROFILES)
			r = store_profiles(u, &data, &d);
		else if (kind == UP_SYNC)
			r = server_sync(u->server, (const u8 *)str_get(&data), data.n, &answer, &d);
		else if (kind == UP_RELOAD)
			server_reload(u->server);
		if (r < 0 ? say(r, d.text, strlen(d.text)) < 0
			  : say(0, str_get(&answer), answer.n) < 0)
			return;
	}
}

/* ---- its start ---- */

/* Returns when the agent has said everything that is needed. */
static int listen_to_agent(struct up_server *u)
{
	for (;;) {
		_cleanup_close_ int pass = -1;
		u32 kind, which;
		int r = message_receive(UP_CALLS_FD, UP_MAX_TEXT, &kind, &u->text, &pass);

		if (r < 0)
			return r;
		if (kind == UP_SOCKET && u->text.n == sizeof(which) && pass >= 0) {
			memcpy(&which, u->text.data, sizeof(which));
			if (which < SERVER_N)
				u->options.sockets[which] = take_fd(&pass);
			continue;
		}
		if (kind != UP_START || u->text.n < sizeof(u->start))
			return -EPROTO;
		memcpy(&u->start, u->text.data, sizeof(u->start));
		return serving_read(u->text.data + sizeof(u->start), u->text.n - sizeof(u->start),
				    &u->arguments);
	}
}

static int start(struct up_server *u, struct diag *reterr_diag)
{
	struct privilege_user user = {.uid = u->start.uid, .gid = u->start.gid};
	int r;

	memcpy(user.name, u->start.name, sizeof(user.name));
	if (u->start.is_verbose)
		log_set_level(LOG_LEVEL_DEBUG);
	r = privilege_drop(u->start.has_user ? &user : NULL, reterr_diag);
	if (r < 0)
		return r;
	if (serving_options(&u->arguments, "up", &u->directory, &u->options))
		return -EINVAL;
	u->options.metrics = ask_metrics;
	u->options.find_mapped = ask_mapped;
	u->options.userdata = u;
	net_set_open(ask_file, u);
	r = server_confine(&u->options, false, reterr_diag);
	return r < 0 ? r : server_start(&u->options, reterr_diag, &u->server);
}

static bool was_started_by_up(void)
{
	struct stat a, b;

	return fstat(UP_CALLS_FD, &a) == 0 && S_ISSOCK(a.st_mode) &&
	       fstat(UP_QUESTIONS_FD, &b) == 0 && S_ISSOCK(b.st_mode);
}

int cmd_up_server(int argc, char **argv)
{
	static const int ignored[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};
	struct up_server u = {.arguments = {SERVING_DEFAULTS}, .lock = PTHREAD_MUTEX_INITIALIZER};
	struct diag d = {};
	int r;

	(void)argc;
	(void)argv;
	if (!was_started_by_up())
		return cli_error(2, "up-server is a part of culprit up, which starts it");
	for (size_t i = 0; i < ARRAY_SIZE(ignored); i++)
		signal(ignored[i], SIG_IGN);
	r = listen_to_agent(&u);
	if (r == 0)
		r = start(&u, &d);
	if (r < 0 || say(0, "", 0) < 0) {
		(void)say(r, d.text, strlen(d.text));
		return 1;
	}
	serve_calls(&u);
	/* What is acknowledged is stored: an alarm that ends a slow query loses nothing. */
	signal(SIGALRM, SIG_DFL);
	alarm(GIVE_UP_S);
	server_stop(u.server, DRAIN_MS);
	return 0;
}
