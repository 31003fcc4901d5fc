/* SPDX-License-Identifier: Apache-2.0 */
/* culprit up: agent, server and page in one process, for this machine. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/agent.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "cli/cli.h"
#include "cli/commands.h"
#include "cli/exporting.h"
#include "cli/sampling.h"
#include "cli/serving.h"
#include "cli/signals.h"

#define DRAIN_MS 4000

struct up {
	struct export_options local;  /* to `server` */
	struct agent_options options; /* but for `what` and `local` */
	struct sampling_arguments sampling;
	struct serving_arguments serving, given; /* given: before defaults were filled in */
	int argc;
	char **argv;
	struct server *server;
	pthread_mutex_t lock; /* of `agent`, which threads of the server ask for metrics */
	struct agent *agent;
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
	printf("culprit shows this machine at http%s://%s:%u/\n", u->serving.cert ? "s" : "",
	       "127.0.0.1", server_port(u->server, SERVER_API));
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
	server_reload(now->server);
	serving_changed(&now->given, &u.serving);
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
	/* The agent ends first: its last profiles go to the server. */
	e = run_agent(u);
	server_stop(u->server, DRAIN_MS);
	return e;
}

int cmd_up(int argc, char **argv)
{
	struct up u = {
		.local = {.url = "memory:", .take = take_profile, .userdata = &u},
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
