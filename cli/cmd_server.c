/* SPDX-License-Identifier: Apache-2.0 */
/* culprit server: keeps profiles of many machines and answers questions, until SIGTERM or ^C. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "cli/cli.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "server/server.h"

#define DRAIN_MS 8000
#define GIVE_UP_S 10

struct server_arguments {
	const char *data_dir, *store, *listen, *otlp_grpc, *otlp_grpc_old, *otlp_http;
	const char *cert, *key, *ca, *tokens;
	u64 max_size_mib, max_age_h, max_request_mib, connections, timeout_s;
	bool verbose;
};

#define A struct server_arguments
static const struct option store_arguments[] = {
	OPTION_STRING("data-dir", 0, "DIR", A, data_dir,
		      "the embedded store's directory; made if it is not there"),
	OPTION_STRING("store", 0, "URL", A, store,
		      "another store: sqlite://DIR, clickhouse://HOST..."),
	OPTION_U64("max-size", 0, "MIB", A, max_size_mib, 16, 1u << 30,
		   "the oldest goes when the store is larger (10240)"),
	OPTION_U64("max-age", 0, "HOURS", A, max_age_h, 1, 24 * 36500,
		   "the oldest goes when it is older (720)"),
	{},
};

static const struct option listen_arguments[] = {
	OPTION_STRING("listen", 0, "ADDRESS", A, listen,
		      "API and page (127.0.0.1:7788); port 0 is any free one"),
	OPTION_STRING("otlp-grpc", 0, "ADDRESS", A, otlp_grpc,
		      "OTLP by gRPC (127.0.0.1:4317); off: not at all"),
	OPTION_STRING("otlp-grpc-old", 0, "ADDRESS", A, otlp_grpc_old,
		      "a second one, where older agents look (127.0.0.1:11000)"),
	OPTION_STRING("otlp-http", 0, "ADDRESS", A, otlp_http, "OTLP by HTTP (127.0.0.1:4318)"),
	{},
};

static const struct option access_arguments[] = {
	OPTION_STRING("tls-cert", 0, "FILE", A, cert, "certificate chain, PEM"),
	OPTION_STRING("tls-key", 0, "FILE", A, key, "its key, PEM"),
	OPTION_STRING("tls-ca", 0, "FILE", A, ca,
		      "clients must show a certificate of this CA, PEM"),
	OPTION_STRING("token-file", 0, "FILE", A, tokens,
		      "clients must send a token: lines \"read|write|admin TOKEN\""),
	OPTION_U64("max-request", 0, "MIB", A, max_request_mib, 1, 1024,
		   "largest request, before and after decompression (64)"),
	OPTION_U64("max-connections", 0, "N", A, connections, 1, 100000,
		   "at one time, for each address (256)"),
	OPTION_U64("timeout", 0, "SECONDS", A, timeout_s, 1, 3600,
		   "of a connection on which nothing moves (30)"),
	OPTION_FLAG("verbose", 'v', A, verbose, "say more on standard error"),
	{},
};
#undef A

static int wait_for_signal(const sigset_t *set)
{
	int sig;

	return sigwait(set, &sig) == 0 ? sig : -1;
}

static void print_ports(const struct server *s)
{
	static const char *const names[SERVER_N] = {"api", "otlp-grpc", "otlp-grpc-old",
						    "otlp-http"};

	for (int i = 0; i < SERVER_N; i++)
		if (server_port(s, (enum server_port)i))
			printf("%s %u\n", names[i], server_port(s, (enum server_port)i));
	printf("ready\n");
	fflush(stdout);
}

static int run(const struct server_options *o)
{
	struct server *s = NULL;
	struct diag d = {};
	sigset_t set;
	int r;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	/* Before there are threads, so that they all have it blocked. */
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	r = server_start(o, &d, &s);
	if (r < 0)
		return cli_error(1, "server: %s", d.text[0] ? d.text : strerror(-r));
	print_ports(s);
	while (wait_for_signal(&set) == SIGHUP)
		; /* nothing to read again: tokens are looked at by themselves */
	log_info("ending what is at work, within %d s", GIVE_UP_S);
	/* What was acknowledged is stored: nothing is lost when a query does not end in time. */
	alarm(GIVE_UP_S);
	server_stop(s, DRAIN_MS);
	return 0;
}

int cmd_server(int argc, char **argv)
{
	struct server_arguments a = {};
	const struct option_group groups[] = {{"Store", store_arguments, &a},
					      {"Where it listens", listen_arguments, &a},
					      {"Who may", access_arguments, &a},
					      {}};
	const struct option_usage usage = {
		.command = "server",
		.operands = "",
		.summary = "Keeps profiles that agents and other clients send, and answers "
			   "questions about them.",
		.groups = groups,
		.footer = "Prints the ports and `ready`, then serves until SIGTERM. Beyond "
			  "loopback it listens only\nwith --token-file or --tls-ca.",
	};
	struct server_options o = {};
	int first, r = options_parse(&usage, argc, argv, &first);

	if (r != 0)
		return r < 0 ? 2 : 0;
	if (first < argc)
		return cli_error(2, "server: unexpected '%s'", argv[first]);
	if (!a.data_dir == !a.store)
		return cli_error(2, "server: needs --data-dir or --store, one of them");
	if (a.verbose)
		log_set_level(LOG_LEVEL_DEBUG);
	o.store = a.store ? a.store : a.data_dir;
	o.store_options.max_bytes = a.max_size_mib << 20;
	o.store_options.max_age_s = a.max_age_h * 3600;
	o.api = a.listen;
	o.otlp_grpc = a.otlp_grpc;
	o.otlp_grpc_old = a.otlp_grpc_old;
	o.otlp_http = a.otlp_http;
	o.tls = (struct net_tls){a.cert, a.key, a.ca};
	o.tokens = a.tokens;
	o.max_connections = (u32)a.connections;
	o.timeout_s = (u32)a.timeout_s;
	o.max_body = a.max_request_mib << 20;
	o.ingest.max_request_bytes = a.max_request_mib << 20;
	return run(&o);
}
