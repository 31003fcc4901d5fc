/* SPDX-License-Identifier: Apache-2.0 */
/* culprit agent: records always, and sends a profile every few seconds. */
#include <errno.h>
#include <string.h>

#include "cli/agent.h"
#include "cli/cli.h"
#include "cli/commands.h"
#include "server/net/net.h"

struct listen_arguments {
	const char *metrics;
};

#define A struct listen_arguments
static const struct option listen_options[] = {
	OPTION_STRING("metrics", 0, "HOST:PORT", A, metrics,
		      "answer /metrics there, for Prometheus; loopback only"),
	{},
};
#undef A

static void answer(void *userdata, const struct net_request *r, struct net_response *ret)
{
	bool metrics = !strcmp(r->path, "/metrics"), health = !strcmp(r->path, "/healthz");

	ret->status = metrics || health ? 200 : 404;
	ret->content_type = "text/plain; version=0.0.4; charset=utf-8";
	if (metrics)
		agent_metrics(userdata, &ret->body);
	else
		str_puts(&ret->body, health ? "ok\n" : "there is /metrics and /healthz\n");
}

static int serve_metrics(const char *address, struct agent *a, struct net_listener **ret)
{
	struct net_options o = {.address = address, .handler = answer, .userdata = a};
	struct diag diag = {};
	int r;

	if (!address)
		return 0;
	r = net_listen(&o, &diag, ret);
	return r < 0 ? cli_error(1, "--metrics %s: %s", address,
				 diag.text[0] ? diag.text : strerror(-r))
		     : 0;
}

int cmd_agent(int argc, char **argv)
{
	struct session_arguments what = {};
	struct listen_arguments listen = {};
	struct agent_arguments args = {};
	const struct option_group groups[] = {{"Where to", agent_options, &args},
					      {"What to sample", session_options, &what},
					      {"Itself", listen_options, &listen},
					      {}};
	const struct option_usage usage = {
		.command = "agent",
		.operands = "",
		.summary = "Records all the time and sends a profile every few seconds, until it "
			   "is ended.\nSamples at 20 Hz unless --frequency says otherwise.",
		.groups = groups,
		.configurable = true,
	};
	struct net_listener *metrics = NULL;
	struct agent agent = {};
	int first, e = options_parse(&usage, argc, argv, &first);

	if (e)
		return e < 0 ? 2 : 0;
	if (first < argc)
		return cli_error(2, "agent takes no '%s'; culprit agent --help", argv[first]);
	session_catch_signals();
	e = agent_init(&args, &what, NULL, &agent);
	if (e)
		return e;
	e = serve_metrics(listen.metrics, &agent, &metrics);
	if (e == 0)
		e = agent_run(&agent);
	if (metrics)
		net_close(metrics, 500);
	agent_deinit(&agent);
	return e;
}
