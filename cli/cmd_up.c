/* SPDX-License-Identifier: Apache-2.0 */
/* culprit up: agent, server and page in one process, for this machine. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "cli/agent.h"
#include "cli/cli.h"
#include "cli/commands.h"
#include "cli/serving.h"

#define DRAIN_MS 4000

struct up {
	struct export_options local;
	struct agent_config config;
	struct serving_arguments serving, given; /* given: before defaults were filled in */
	int argc;
	char **argv;
	struct server *server;
	struct agent agent;
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

static int take_profile(void *arg, const struct profile *p, struct diag *reterr_diag)
{
	struct up *u = arg;

	return ingest_profile(server_ingest(u->server), p, reterr_diag);
}

static void metrics(void *arg, struct str *out)
{
	struct up *u = arg;

	if (u->agent.run)
		agent_metrics(&u->agent, out);
}

static void print_url(const struct up *u)
{
	printf("culprit shows this machine at http%s://%s:%u/\n", u->serving.cert ? "s" : "",
	       "127.0.0.1", server_port(u->server, SERVER_API));
	fflush(stdout);
}

static int run(struct up *u)
{
	struct server_options so = {.metrics = metrics, .userdata = u};
	_cleanup_str_ struct str own = {};
	struct diag diag = {};
	int e = serving_options(&u->serving, "up", &own, &so);

	if (e)
		return e;
	e = server_start(&so, &diag, &u->server);
	if (e < 0)
		return cli_error(1, "%s", diag.text[0] ? diag.text : strerror(-e));
	e = agent_init(&u->config, &u->agent);
	if (e)
		return e;
	print_url(u);
	return agent_run(&u->agent);
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
		{"Sampling", session_options, &u->config.what},
		{"Export", agent_options, &u->config.args},
		{}};
	const struct option_usage usage = {
		.command = "up",
		.operands = "",
		.summary = "Samples this machine continuously, stores the profiles, and serves a "
			   "page that shows them.\nSIGTERM or SIGINT ends it; SIGHUP reloads its "
			   "configuration.",
		.groups = groups,
		.configurable = true,
	};

	return options_parse(&usage, u->argc, u->argv, ret_first);
}

static int reread(void *userdata, struct agent_config *ret)
{
	const struct up *now = userdata;
	struct up u = {.serving = {SERVING_DEFAULTS}, .argc = now->argc, .argv = now->argv};
	int first;

	if (parse(&u, &first))
		return 2;
	server_reload(now->server);
	ret->args = u.config.args;
	ret->what = u.config.what;
	return serving_changed(&now->given, &u.serving);
}

int cmd_up(int argc, char **argv)
{
	struct up u = {
		.local = {.url = "memory:", .take = take_profile, .userdata = &u},
		.serving = {SERVING_DEFAULTS},
		.config = {.local = &u.local, .reread = reread, .userdata = &u},
		.argc = argc,
		.argv = argv,
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
	session_catch_signals();
	e = run(&u);
	/* The agent first: its last profiles go to the server. */
	agent_deinit(&u.agent);
	if (u.server)
		server_stop(u.server, DRAIN_MS);
	return e;
}
