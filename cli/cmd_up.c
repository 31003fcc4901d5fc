/* SPDX-License-Identifier: Apache-2.0 */
/*
 * culprit up: agent, server and page for this machine. This process is the agent's; the server is a
 * process without privileges (up_process.h).
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/agent.h"
#include "base/cleanup.h"
#include "base/privilege.h"
#include "base/str.h"
#include "cli/cli.h"
#include "cli/commands.h"
#include "cli/exporting.h"
#include "cli/sampling.h"
#include "cli/serving.h"
#include "cli/signals.h"
#include "cli/up_process.h"

#define SPOOL_BYTES (64ULL << 20)
#define RETRY_MS 200

struct up {
	struct export_options local;  /* to `server` */
	struct agent_options options; /* but for `what` and `local` */
	struct sampling_arguments sampling;
	struct serving_arguments serving, given; /* given: before defaults were filled in */
	int argc;
	char **argv;
	const char *user_name;
	struct up_process *server;
	u16 port;
	pthread_mutex_t lock; /* of `agent`, which the server asks for metrics */
	struct agent *agent;
};

static const struct option user_options[] = {
	OPTION_STRING("user", 0, "NAME", struct up, user_name,
		      "user of the server's process (default: culprit, or one that is nobody)"),
	{},
};

/* The default data directory: the system service's for root, else in the user's state directory. */
static int default_dir(struct str *ret)
{
	const char *xdg = getenv("XDG_STATE_HOME"), *home = getenv("HOME");

	if (geteuid() == 0)
		return str_puts(ret, "/var/lib/culprit");
	if (xdg && xdg[0] == '/')
		return str_printf(ret, "%s/culprit", xdg);
	if (home && home[0] == '/')
		return str_printf(ret, "%s/.local/state/culprit", home);
	return -ENOENT;
}

static int give_profiles(void *arg, const u8 *data, size_t n, struct diag *reterr_diag)
{
	struct up *u = arg;

	return up_process_give(u->server, data, n, reterr_diag);
}

static int ask_server(void *arg, const u8 *data, size_t n, struct str *ret,
		      struct diag *reterr_diag)
{
	struct up *u = arg;

	return up_process_ask(u->server, data, n, ret, reterr_diag);
}

static void metrics(void *arg, struct str *out)
{
	struct up *u = arg;

	pthread_mutex_lock(&u->lock);
	if (u->agent)
		agent_metrics(u->agent, out);
	pthread_mutex_unlock(&u->lock);
}

/* Sets the agent that the server shows metrics of; NULL: none. */
static void show_agent(struct up *u, struct agent *agent)
{
	pthread_mutex_lock(&u->lock);
	u->agent = agent;
	pthread_mutex_unlock(&u->lock);
}

static void print_url(const struct up *u)
{
	printf("culprit shows this machine at http%s://%s:%u/\n"
	       "Open this address: the first page says what is wrong now, and links to the line.\n",
	       u->serving.cert ? "s" : "", "127.0.0.1", u->port);
	fflush(stdout);
}

/* Same return values as options_parse(). */
static int parse(struct up *u, int *ret_first)
{
	const struct option_group groups[] = {
		{"Store", serving_store_options, &u->serving},
		{"Symbols", serving_symbol_options, &u->serving},
		{"Listening", serving_listen_options, &u->serving},
		{"Access", serving_access_options, &u->serving},
		{"Cost of CPU time", serving_cost_options, &u->serving},
		{"Sampling", sampling_options, &u->sampling},
		{"Export", exporting_options, &u->options},
		{"User", user_options, u},
		{}};
	const struct option_usage usage = {
		.command = "up",
		.operands = "",
		.summary = "Samples this machine continuously, stores the profiles, and serves a "
			   "page that shows them.\nSIGTERM or SIGINT ends it; SIGHUP reloads its "
			   "configuration.",
		.groups = groups,
		.configurable = true,
		.examples =
			"  culprit up                              then open the address that it prints\n"
			"  culprit up --data-dir /var/lib/culprit",
	};

	return options_parse(&usage, u->argc, u->argv, ret_first);
}

static struct agent_options options_of(struct up *u, const struct export_options *local)
{
	sampling_apply(&u->sampling);
	u->options.what = u->sampling.what;
	u->options.local = local;
	return u->options;
}

/* For agent_control. */
static int reload(void *userdata, struct agent_options *ret)
{
	const struct up *now = userdata;
	struct up u = {.serving = {SERVING_DEFAULTS}, .argc = now->argc, .argv = now->argv};
	int first;

	if (!signals_reload_wanted())
		return 0;
	if (parse(&u, &first))
		return -EINVAL;
	up_process_reload(now->server);
	serving_changed(&now->given, &u.serving);
	u.sampling.what.parsers = now->sampling.what.parsers;
	*ret = options_of(&u, &now->local);
	return 1;
}

static int run_agent(struct up *u)
{
	const struct agent_control control = {signals_ended, reload, u};
	struct agent_options options = options_of(u, &u->local);
	struct diag diag = {};
	struct agent *agent;
	int e = agent_create(&options, &diag, &agent);

	if (e < 0)
		return cli_fail(e, &diag);
	show_agent(u, agent);
	print_url(u);
	e = agent_run(agent, &control, &diag);
	show_agent(u, NULL);
	agent_destroy(agent);
	return e < 0 ? cli_error(1, "%s", diag.text) : 0;
}

/* Only root can become another user. *ret_user is NULL without one. */
static int find_user(const struct up *u, struct privilege_user *own,
		     const struct privilege_user **ret_user, struct diag *reterr_diag)
{
	int r;

	*ret_user = NULL;
	if (geteuid() != 0)
		return u->user_name ? diag_set(reterr_diag, -EPERM,
					       "--user: only root can become "
					       "another user")
				    : 0;
	r = privilege_find_user(u->user_name, own, reterr_diag);
	*ret_user = r < 0 ? NULL : own;
	return r;
}

/* What needs root and no more than once, then the server, and then only what the agent needs. */
static int start_server(struct up *u, struct server_options *so, const struct privilege_user *user,
			struct diag *reterr_diag)
{
	const struct up_process_options o = {.serving = &u->serving,
					     .server = so,
					     .user = user,
					     .metrics = metrics,
					     .userdata = u};
	int r = server_bind(so, reterr_diag);

	if (r == 0 && user)
		r = server_give_directories(so, user->uid, user->gid, reterr_diag);
	if (r == 0)
		r = up_process_start(&o, reterr_diag, &u->server);
	if (r < 0)
		return r;
	r = parsers_start(reterr_diag, &u->sampling.what.parsers);
	u->port = net_port_of(so->sockets[SERVER_API]);
	if (r == 0)
		r = privilege_keep(agent_capabilities(u->sampling.what.attach_java) |
					   up_capabilities(),
				   reterr_diag);
	if (r == 0)
		r = up_process_keep(u->server, reterr_diag);
	if (r < 0)
		up_process_stop(u->server);
	return r;
}

static int run(struct up *u)
{
	const struct privilege_user *user;
	_cleanup_str_ struct str own = {};
	struct privilege_user found;
	struct server_options so = {};
	struct diag diag = {};
	int e = serving_options(&u->serving, "up", &own, &so);

	if (e)
		return e;
	e = find_user(u, &found, &user, &diag);
	if (e == 0)
		e = start_server(u, &so, user, &diag);
	if (e < 0) {
		parsers_stop(u->sampling.what.parsers);
		return cli_error(1, "%s", diag.text[0] ? diag.text : strerror(-e));
	}
	/* The server refuses larger requests, whoever sends them. */
	u->local.max_bytes = MIN(u->serving.max_request_mib, (u64)4) << 20;
	/* The agent ends first: its last profiles go to the server. */
	e = run_agent(u);
	parsers_stop(u->sampling.what.parsers);
	up_process_stop(u->server);
	return e;
}

int cmd_up(int argc, char **argv)
{
	struct up u = {
		.local = {.url = "local:",
			  .give = give_profiles,
			  .ask = ask_server,
			  .userdata = &u,
			  .spool_bytes = SPOOL_BYTES,
			  .retry_ms = RETRY_MS},
		.serving = {SERVING_DEFAULTS},
		.argc = argc,
		.argv = argv,
		.lock = PTHREAD_MUTEX_INITIALIZER,
	};
	_cleanup_str_ struct str dir = {};
	int first, e = parse(&u, &first);

	if (e)
		return e < 0 ? 2 : 0;
	if (first < argc)
		return cli_error(2, "up: unexpected argument '%s'; see culprit up --help",
				 argv[first]);
	u.given = u.serving;
	if (!u.serving.data_dir && !u.serving.store) {
		if (default_dir(&dir) < 0)
			return cli_error(
				2, "up: no data directory (HOME is not set); give --data-dir DIR");
		u.serving.data_dir = str_get(&dir);
	}
	signals_catch_end();
	signals_catch_reload();
	return run(&u);
}
