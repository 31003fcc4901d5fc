/* SPDX-License-Identifier: Apache-2.0 */
/* culprit up: agent, server and page in one process; what this machine does, kept and shown. */
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
	struct serving_arguments serving, told; /* told: as it was written */
	int argc;
	char **argv;
	struct server *server;
	struct agent agent;
};

/* Where it is kept when nobody says: as the system's service, or in the user's state directory. */
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
	printf("culprit shows what this machine does at http%s://%s:%u/\n",
	       u->serving.cert ? "s" : "", "127.0.0.1", server_port(u->server, SERVER_API));
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

/* As options_parse(). */
static int parse(struct up *u, int *ret_first)
{
	const struct option_group groups[] = {
		{"Store", serving_store_options, &u->serving},
		{"Symbols that come late", serving_symbol_options, &u->serving},
		{"Where it listens", serving_listen_options, &u->serving},
		{"Who may", serving_access_options, &u->serving},
		{"What CPU time costs", serving_cost_options, &u->serving},
		{"What to sample", session_options, &u->config.what},
		{"Where else to", agent_options, &u->config.args},
		{}};
	const struct option_usage usage = {
		.command = "up",
		.operands = "",
		.summary = "Records all the time, keeps what it saw, and shows it on a page.\n"
			   "Samples at 20 Hz unless --frequency says otherwise. SIGHUP makes it "
			   "read its configuration again.",
		.groups = groups,
		.configurable = true,
	};

	return options_parse(&usage, u->argc, u->argv, ret_first);
}

static int read_again(void *userdata, struct agent_config *ret)
{
	const struct up *now = userdata;
	struct up u = {.serving = {SERVING_DEFAULTS}, .argc = now->argc, .argv = now->argv};
	int first;

	if (parse(&u, &first))
		return 2;
	server_reload(now->server);
	ret->args = u.config.args;
	ret->what = u.config.what;
	return serving_changed(&now->told, &u.serving);
}

int cmd_up(int argc, char **argv)
{
	struct up u = {
		.local = {.url = "memory:", .take = take_profile, .userdata = &u},
		.serving = {SERVING_DEFAULTS},
		.config = {.local = &u.local, .read_again = read_again, .userdata = &u},
		.argc = argc,
		.argv = argv,
	};
	_cleanup_str_ struct str dir = {};
	int first, e = parse(&u, &first);

	if (e)
		return e < 0 ? 2 : 0;
	if (first < argc)
		return cli_error(2, "up takes no '%s'; culprit up --help", argv[first]);
	u.told = u.serving;
	if (!u.serving.data_dir && !u.serving.store) {
		if (default_dir(&dir) < 0)
			return cli_error(2, "up: where to keep it? give --data-dir DIR");
		u.serving.data_dir = str_get(&dir);
	}
	session_catch_signals();
	e = run(&u);
	/* First what sends, then what keeps. */
	agent_deinit(&u.agent);
	if (u.server)
		server_stop(u.server, DRAIN_MS);
	return e;
}
