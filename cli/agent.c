/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/agent.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "cli/cli.h"

#define AGENT_HZ 20
#define MAX_EXPORTS 16
#define DRAIN_MS 5000

#define A struct agent_arguments
const struct option agent_options[] = {
	OPTION_STRING("collection-agent", 0, "HOST:PORT", A, collector,
		      "send OTLP profiles there by gRPC"),
	OPTION_STRING("export", 0, "URL,...", A, exports,
		      "or there: otlp://HOST:PORT, otlp+http://HOST:PORT, pyroscope://HOST:PORT,\n"
		      "file:PATTERN with strftime's % and an ending as of record"),
	OPTION_FLAG("disable-tls", 0, A, disable_tls, "send without encryption"),
	OPTION_STRING("export-ca", 0, "FILE", A, ca,
		      "trust receivers whose certificate is of this CA"),
	OPTION_STRING("export-cert", 0, "FILE", A, cert, "show receivers this certificate"),
	OPTION_STRING("export-key", 0, "FILE", A, key, "its key"),
	OPTION_STRING("export-token-file", 0, "FILE", A, token_file,
		      "send the token in it, as Authorization: Bearer"),
	OPTION_STRING("export-headers", 0, "NAME=VALUE,...", A, headers, "send these, too"),
	OPTION_FLAG("no-symbols", 0, A, no_symbols,
		    "send code of files as build-id and address: the server has the names\n"
		    "(culprit symbols push); the kernel's and runtimes' are still sent"),
	OPTION_F64("period", 0, "SECONDS", A, period_s, 1, 3600,
		   "a profile covers so much time (default 5)"),
	OPTION_STRING("spool-dir", 0, "DIR", A, spool_dir,
		      "keep there what cannot be sent yet (default: memory)"),
	OPTION_U64("spool-limit", 0, "MB", A, spool_mb, 1, 1 << 20,
		   "and so much of it (default 64)"),
	OPTION_U64("probabilistic-threshold", 0, "PERCENT", A, probabilistic_threshold, 1, 100,
		   "sample only so many of 100 intervals, chosen by chance"),
	OPTION_U64("probabilistic-interval", 0, "SECONDS", A, probabilistic_interval_s, 1, 86400,
		   "of this length (default 60)"),
	{},
};
#undef A

static int create_exporters(const struct agent_arguments *a, const struct export_options *local,
			    struct agent *agent)
{
	struct export_options all[MAX_EXPORTS + 2];
	_cleanup_free_ char *urls = strdup(a->exports ? a->exports : ""), *collector = NULL;
	const struct export_options common = {
		.tls = !a->disable_tls,
		.ca = a->ca,
		.cert = a->cert,
		.key = a->key,
		.token = agent->token,
		.headers = a->headers,
		.spool_dir = a->spool_dir,
		.spool_bytes = a->spool_mb << 20,
	};
	struct diag diag = {};
	char *save = NULL;
	size_t n = 0;
	int r;

	if (!urls || (a->collector && asprintf(&collector, "otlp://%s", a->collector) < 0))
		return cli_error(1, "out of memory");
	if (local)
		all[n++] = *local;
	if (collector) {
		all[n] = common;
		all[n++].url = collector;
	}
	for (char *url = strtok_r(urls, ",", &save); url; url = strtok_r(NULL, ",", &save)) {
		if (n == MAX_EXPORTS)
			return cli_error(2, "--export: more than %d places", MAX_EXPORTS);
		all[n] = common;
		all[n++].url = url;
	}
	if (!n)
		return cli_error(2, "agent: where to? give --collection-agent or --export");
	r = exporters_create(all, n, &diag, &agent->exporters);
	return r < 0 ? cli_error(r == -EINVAL ? 2 : 1, "%s",
				 diag.text[0] ? diag.text : strerror(-r))
		     : 0;
}

static void send_profile(void *arg, struct profile *p)
{
	struct agent *a = arg;

	(void)exporters_send(a->exporters, p);
}

static int init(const struct agent_arguments *a, const struct session_arguments *what,
		const struct export_options *local, struct agent *agent)
{
	struct session_arguments sa = *what;
	struct run_options ro = {
		.period_ms = (u32)(a->period_s * 1000),
		.probabilistic_percent = (u32)a->probabilistic_threshold,
		.interval_s = a->probabilistic_interval_s ? (u32)a->probabilistic_interval_s : 60,
		.take = send_profile,
		.arg = agent,
	};
	int r = a->token_file ? cli_read_token(a->token_file, &agent->token) : 0;

	if (r == 0)
		r = create_exporters(a, local, agent);
	if (r)
		return r;
	if (identities_create(&agent->identities) < 0)
		return cli_error(1, "out of memory");
	sa.hz = sa.hz ? sa.hz : AGENT_HZ;
	sa.leave_files = a->no_symbols;
	r = session_init(&sa, 0, true, agent->identities, &agent->session);
	if (r)
		return r;
	ro.pipeline = agent->session.pipeline;
	ro.symbolizer = agent->session.symbolizer;
	ro.identities = agent->identities;
	r = run_create(&ro, &agent->run);
	return r < 0 ? cli_error(1, "cannot start a thread: %s", strerror(-r)) : 0;
}

int agent_init(const struct agent_arguments *a, const struct session_arguments *what,
	       const struct export_options *local, struct agent *ret)
{
	int r;

	*ret = (struct agent){};
	r = init(a, what, local, ret);
	if (r)
		agent_deinit(ret);
	return r;
}

int agent_run(struct agent *a)
{
	struct diag diag = {};
	int r = run_loop(a->run, session_ended, &diag);

	return r < 0 ? cli_error(1, "%s", diag.text[0] ? diag.text : strerror(-r)) : 0;
}

void agent_deinit(struct agent *a)
{
	run_destroy(a->run);
	if (a->exporters)
		exporters_destroy(a->exporters, DRAIN_MS);
	session_deinit(&a->session);
	identities_destroy(a->identities);
	free(a->token);
	*a = (struct agent){};
}

/* ---- /metrics ---- */

static void put_label(struct str *out, const char *value)
{
	for (; *value; value++) {
		if (*value == '\\' || *value == '"')
			str_putc(out, '\\');
		str_putc(out, *value == '\n' ? ' ' : *value);
	}
}

static void export_metric(struct str *out, const struct export_stats *st, size_t n,
			  const char *name, const char *help, size_t offset)
{
	str_printf(out, "# HELP culprit_export_%s %s\n# TYPE culprit_export_%s %s\n", name, help,
		   name, str_ends(name, "_total") ? "counter" : "gauge");
	for (size_t i = 0; i < n; i++) {
		str_printf(out, "culprit_export_%s{to=\"", name);
		put_label(out, st[i].url);
		str_printf(out, "\"} %llu\n", *(const u64 *)((const char *)&st[i] + offset));
	}
}

void agent_metrics(void *agent, struct str *out)
{
	struct agent *a = agent;
	struct export_stats st[MAX_EXPORTS + 2];
	size_t n = MIN(exporters_stats(a->exporters, st, ARRAY_SIZE(st)), ARRAY_SIZE(st));

	run_metrics(a->run, out);
#define METRIC(name, member, help)                                                                 \
	export_metric(out, st, n, name, help, offsetof(struct export_stats, member))
	METRIC("profiles_total", sent, "Profiles that arrived.");
	METRIC("bytes_total", sent_bytes, "Bytes of them.");
	METRIC("retries_total", retried, "Attempts that had to be repeated.");
	METRIC("spooled_bytes", spooled_bytes, "What waits to be sent.");
	METRIC("dropped_profiles_total", dropped, "Profiles given up.");
	METRIC("dropped_samples_total", dropped_samples, "Samples in them.");
#undef METRIC
}
