/* SPDX-License-Identifier: Apache-2.0 */
/*
 * culprit server: stores the profiles of many machines and answers queries, until SIGTERM or
 * SIGINT.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/privilege.h"
#include "cli/cli.h"
#include "cli/commands.h"
#include "cli/serving.h"

#define DRAIN_MS 6000 /* leaves time for the store on a busy machine */
#define GIVE_UP_S 10

struct server_arguments {
	struct serving_arguments serving;
	bool verbose, allow_root;
};

static const struct option user_options[] = {
	OPTION_FLAG("allow-root", 0, struct server_arguments, allow_root,
		    "run as root, too, which the server never needs"),
	{},
};

static const struct option other_options[] = {
	OPTION_FLAG("verbose", 'v', struct server_arguments, verbose,
		    "log debug messages to standard error"),
	{},
};

static int wait_for_signal(const sigset_t *set)
{
	int sig;

	return sigwait(set, &sig) == 0 ? sig : -1;
}

static void print_ports(const struct server *s)
{
	static const char *const names[SERVER_N] = {"api", "otlp-grpc", "otlp-grpc-old",
						    "otlp-http", "skywalking"};

	for (int i = 0; i < SERVER_N; i++)
		if (server_port(s, (enum server_port)i))
			printf("%s %u\n", names[i], server_port(s, (enum server_port)i));
	printf("ready\n");
	fflush(stdout);
}

/* Root's capabilities are of no use here, whoever allowed root. */
static int start(struct server_options *o, struct server **ret, struct diag *reterr_diag)
{
	int r = server_bind(o, reterr_diag);

	if (r == 0)
		r = privilege_keep(0, reterr_diag);
	if (r == 0)
		r = server_confine(o, true, reterr_diag);
	return r < 0 ? r : server_start(o, reterr_diag, ret);
}

static int run(struct server_options *o)
{
	struct server *s = NULL;
	struct diag d = {};
	sigset_t set;
	int r;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	/* Before any thread starts, so that all of them inherit the mask. */
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	r = start(o, &s, &d);
	if (r < 0)
		return cli_error(1, "server: %s", d.text[0] ? d.text : strerror(-r));
	print_ports(s);
	while (wait_for_signal(&set) == SIGHUP)
		server_reload(s); /* the token file needs no signal: the server watches it */
	log_info("finishing requests in progress, at most %d s", GIVE_UP_S);
	/* Acknowledged data is stored already: an alarm that ends a slow query loses nothing. */
	alarm(GIVE_UP_S);
	server_stop(s, DRAIN_MS);
	return 0;
}

int cmd_server(int argc, char **argv)
{
	struct server_arguments a = {.serving = {SERVING_DEFAULTS}};
	const struct option_group groups[] = {
		{"Store", serving_store_options, &a.serving},
		{"Symbols", serving_symbol_options, &a.serving},
		{"Listening", serving_listen_options, &a.serving},
		{"Access", serving_access_options, &a.serving},
		{"Cost of CPU time", serving_cost_options, &a.serving},
		{"User", user_options, &a},
		{"Logging", other_options, &a},
		{}};
	const struct option_usage usage = {
		.command = "server",
		.operands = "",
		.summary = "Stores the profiles and spans that agents and other clients send, and "
			   "answers queries about them.",
		.groups = groups,
		.footer =
			"Prints the ports and `ready`, then serves until SIGTERM. Addresses other "
			"than loopback require\n--token-file or --tls-ca.\n\nculprit server backup "
			"and culprit server restore copy the store: see their --help.",
		.configurable = true,
	};
	struct server_options o = {};
	_cleanup_str_ struct str own = {};
	int first, r;

	if (argc > 1 && !strcmp(argv[1], "backup"))
		return cmd_server_backup(argc - 1, argv + 1);
	if (argc > 1 && !strcmp(argv[1], "restore"))
		return cmd_server_restore(argc - 1, argv + 1);
	r = options_parse(&usage, argc, argv, &first);
	if (r != 0)
		return r < 0 ? 2 : 0;
	if (first < argc)
		return cli_error(2, "server: unexpected argument '%s'; see culprit server --help",
				 argv[first]);
	r = serving_options(&a.serving, "server", &own, &o);
	if (r)
		return r;
	if (geteuid() == 0 && !a.allow_root)
		return cli_error(2, "server: not as root: start it as a user of its own, as "
				    "packaging/culprit-server.service does, or give --allow-root");
	if (a.verbose)
		log_set_level(LOG_LEVEL_DEBUG);
	return run(&o);
}
