/* SPDX-License-Identifier: Apache-2.0 */
/* culprit agent: samples continuously and exports a profile every few seconds. */
#include <errno.h>
#include <string.h>

#include "agent/agent.h"
#include "base/log.h"
#include "base/privilege.h"
#include "base/str.h"
#include "cli/cli.h"
#include "cli/commands.h"
#include "cli/exporting.h"
#include "cli/sampling.h"
#include "cli/signals.h"
#include "server/net/net.h"

struct own_arguments {
	const char *metrics;
	double cpu_budget_percent;
};

#define A struct own_arguments
static const struct option own_options[] = {
	OPTION_F64("cpu-budget", 0, "PERCENT", A, cpu_budget_percent, 0.01, 100,
		   "share of the machine's CPU time that the agent may take, with its BPF "
		   "programs; it samples at a lower rate before it takes more (default: no limit)"),
	OPTION_STRING("metrics", 0, "HOST:PORT", A, metrics,
		      "serve Prometheus metrics on this address, at /metrics (loopback only)"),
	{},
};
#undef A

static void answer_request(void *userdata, const struct net_request *r, struct net_response *ret)
{
	bool metrics = !strcmp(r->path, "/metrics"), health = !strcmp(r->path, "/healthz");

	ret->status = metrics || health ? 200 : 404;
	ret->content_type = "text/plain; version=0.0.4; charset=utf-8";
	if (metrics)
		agent_metrics(userdata, &ret->body);
	else
		str_puts(&ret->body,
			 health ? "ok\n" : "not found: the paths are /metrics and /healthz\n");
}

static int serve_metrics(const char *address, struct agent *a, struct net_listener **ret)
{
	struct net_options o = {.address = address, .handler = answer_request, .userdata = a};
	struct diag diag = {};
	int r;

	if (!address)
		return 0;
	r = net_listen(&o, &diag, ret);
	return r < 0 ? cli_error(1, "--metrics %s: %s", address,
				 diag.text[0] ? diag.text : strerror(-r))
		     : 0;
}

struct cli {
	struct agent_options options; /* but for `what` */
	struct sampling_arguments sampling;
	struct own_arguments own;
	int argc;
	char **argv;
};

/* Same return values as options_parse(). */
static int parse(struct cli *c, int *ret_first)
{
	const struct option_group groups[] = {{"Export", exporting_options, &c->options},
					      {"Sampling", sampling_options, &c->sampling},
					      {"The agent itself", own_options, &c->own},
					      {}};
	const struct option_usage usage = {
		.command = "agent",
		.operands = "",
		.summary = "Samples this machine continuously and exports a profile every few "
			   "seconds.\nSIGTERM or SIGINT ends it; SIGHUP reloads its configuration.",
		.groups = groups,
		.configurable = true,
		.examples = "  culprit agent --export otlp://collector:4317\n"
			    "  culprit agent --config /etc/culprit/agent.conf",
	};

	return options_parse(&usage, c->argc, c->argv, ret_first);
}

static struct agent_options options_of(struct cli *c)
{
	sampling_apply(&c->sampling);
	c->options.what = c->sampling.what;
	c->options.cpu_budget_percent = c->own.cpu_budget_percent;
	return c->options;
}

/* For agent_control. */
static int reload(void *userdata, struct agent_options *ret)
{
	const struct cli *now = userdata;
	struct cli c = {.argc = now->argc, .argv = now->argv};
	int first;

	if (!signals_reload_wanted())
		return 0;
	if (parse(&c, &first))
		return -EINVAL;
	if (!str_same(c.own.metrics, now->own.metrics))
		log_warn("--metrics stays %s until a restart",
			 now->own.metrics ? now->own.metrics : "off");
	c.sampling.what.parsers = now->sampling.what.parsers;
	*ret = options_of(&c);
	return 1;
}

static int run(struct cli *c, struct agent *agent)
{
	const struct agent_control control = {signals_ended, reload, c};
	struct net_listener *metrics = NULL;
	struct diag diag = {};
	int e = serve_metrics(c->own.metrics, agent, &metrics);

	if (e == 0 && agent_run(agent, &control, &diag) < 0)
		e = cli_error(1, "%s", diag.text);
	if (metrics)
		net_close(metrics, 500);
	return e;
}

int cmd_agent(int argc, char **argv)
{
	struct cli c = {.argc = argc, .argv = argv};
	struct agent_options options;
	struct parsers *parsers = NULL;
	struct agent *agent;
	struct diag diag = {};
	int first, e = parse(&c, &first);

	if (e)
		return e < 0 ? 2 : 0;
	if (first < argc)
		return cli_error(2, "agent: unexpected argument '%s'; see culprit agent --help",
				 argv[first]);
	signals_catch_end();
	signals_catch_reload();
	e = parsers_start(&diag, &parsers);
	if (e == 0)
		e = privilege_keep(agent_capabilities(c.sampling.what.attach_java), &diag);
	if (e == 0) {
		c.sampling.what.parsers = parsers;
		options = options_of(&c);
		e = agent_create(&options, &diag, &agent);
	}
	if (e == 0) {
		e = run(&c, agent);
		agent_destroy(agent);
	} else {
		e = cli_fail(e, &diag);
	}
	parsers_stop(parsers);
	return e;
}
