/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/agent.h"

#include <ctype.h>
#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/metrics.h"
#include "base/vocab.h"
#include "cli/cli.h"
#include "http/http.h"

/* The default of --frequency in `agent` and `up` is AGENT_DEFAULT_HZ, in cli/session.h. */
#define MAX_EXPORTS 16
#define DRAIN_MS 5000
#define PERIOD_MS 5000
#define MEMORY_LIMIT_MB 384
#define SPOOL_MB 64
/* Above this share of --memory-limit a profile is dropped unless the export queue is empty. */
#define SHORT_PERCENT 90
#define TIGHT_BYTES (256ULL << 20)
#define INTERVAL_S 60

#define A struct agent_arguments
const struct option agent_options[] = {
	OPTION_STRING("collection-agent", 0, "HOST:PORT", A, collector,
		      "send OTLP profiles to this collector over gRPC"),
	OPTION_STRING("export", 0, "URL,...", A, exports,
		      "more destinations: otlp://HOST:PORT, otlp+http://HOST:PORT,\n"
		      "pyroscope://HOST:PORT, file:PATTERN (expanded by strftime; the extension\n"
		      "selects the format, as in culprit record)"),
	OPTION_FLAG("disable-tls", 0, A, disable_tls, "connect to destinations without TLS"),
	OPTION_STRING("export-ca", 0, "FILE", A, ca,
		      "verify the destinations' certificates against this CA (PEM)"),
	OPTION_STRING("export-cert", 0, "FILE", A, cert, "client certificate for mutual TLS (PEM)"),
	OPTION_STRING("export-key", 0, "FILE", A, key, "private key of the client certificate"),
	OPTION_STRING("export-token-file", 0, "FILE", A, token_file,
		      "send the token in this file as Authorization: Bearer"),
	OPTION_STRING("export-headers", 0, "NAME=VALUE,...", A, headers,
		      "additional request headers"),
	OPTION_FLAG("no-symbols", 0, A, no_symbols,
		    "send native frames as build-id and address, for a server that has the\n"
		    "symbols (culprit symbols push); kernel and runtime frames keep names"),
	OPTION_STRING("labels", 0, "NAME=VALUE,...", A, labels,
		      "add these attributes to all exported data"),
	OPTION_STRING("host-root", 0, "DIR", A, host_root,
		      "look for the state files of container engines below DIR instead of /"),
	OPTION_F64("period", 0, "SECONDS", A, period_s, 1, 3600,
		   "time that one profile covers (default 5)"),
	OPTION_STRING("spool-dir", 0, "DIR", A, spool_dir,
		      "keep unsent profiles in this directory (default: in memory)"),
	OPTION_U64("spool-limit", 0, "MB", A, spool_mb, 1, 1 << 20,
		   "size limit of the spool of each destination (default 64)"),
	OPTION_U64("probabilistic-threshold", 0, "PERCENT", A, probabilistic_threshold, 1, 100,
		   "sample only this share of the intervals, chosen at random"),
	OPTION_U64("probabilistic-interval", 0, "SECONDS", A, probabilistic_interval_s, 1, 86400,
		   "length of such an interval (default 60)"),
	{},
};
#undef A

/* Each destination has a spool directory of its own below `dir`, named after its URL. */
static int spool_dir_of(const char *dir, const char *url, char **ret)
{
	char *name;

	if (mkdir(dir, 0700) < 0 && errno != EEXIST)
		return cli_error(1, "cannot create the spool directory %s: %s", dir,
				 strerror(errno));
	if (asprintf(ret, "%s/%s", dir, url) < 0)
		return cli_error(1, "out of memory");
	for (name = *ret + strlen(dir) + 1; *name; name++)
		if (!isalnum((u8)*name) && !strchr(".-_", *name))
			*name = '_';
	return 0;
}

static u64 memory_limit(const struct agent_config *c)
{
	return (c->what.memory_limit_mb ? c->what.memory_limit_mb : MEMORY_LIMIT_MB) << 20;
}

/* The destinations, and the strings that export_options borrows. */
struct places {
	struct export_options all[MAX_EXPORTS + 2];
	size_t n;
	char *urls, *collector, *token, *spools[MAX_EXPORTS + 2]; /* owned */
	u64 memory_bytes; /* limit of all spools that are kept in memory together */
};

static void places_deinit(struct places *p)
{
	for (size_t i = 0; i < p->n; i++)
		free(p->spools[i]);
	free(p->urls);
	free(p->collector);
	if (p->token)
		explicit_bzero(p->token, strlen(p->token));
	free(p->token);
}

static int add_place(struct places *p, const struct agent_arguments *a, const char *url)
{
	size_t i = p->n;

	if (i > MAX_EXPORTS)
		return cli_error(2, "--export: more than %d destinations", MAX_EXPORTS);
	p->all[i] = (struct export_options){
		.url = url,
		.tls = !a->disable_tls,
		.ca = a->ca,
		.cert = a->cert,
		.key = a->key,
		.token = p->token,
		.headers = a->headers,
		.spool_bytes = (a->spool_mb ? a->spool_mb : SPOOL_MB) << 20,
	};
	p->n++;
	if (a->spool_dir && spool_dir_of(a->spool_dir, url, &p->spools[i]))
		return 1;
	p->all[i].spool_dir = p->spools[i];
	return 0;
}

/* Places without a directory share the memory that may be spooled. */
static void share_memory(struct places *p)
{
	u64 n = 0;

	for (size_t i = 0; i < p->n; i++)
		n += !p->spools[i];
	for (size_t i = 0; i < p->n; i++)
		if (!p->spools[i])
			p->all[i].spool_bytes = MIN(p->all[i].spool_bytes, p->memory_bytes / n);
}

static int list_places(const struct agent_config *c, struct places *p)
{
	const struct agent_arguments *a = &c->args;
	char *save = NULL;
	struct diag diag = {};
	int r = a->token_file ? http_client_token(a->token_file, &diag, &p->token) : 0;

	if (r < 0)
		return cli_error(1, "%s", diag.text);
	p->urls = strdup(a->exports ? a->exports : "");
	if (!p->urls || (a->collector && asprintf(&p->collector, "otlp://%s", a->collector) < 0))
		return cli_error(1, "out of memory");
	if (c->local)
		p->all[p->n++] = *c->local;
	if (p->collector)
		r = add_place(p, a, p->collector);
	for (char *url = strtok_r(p->urls, ",", &save); url && r == 0;
	     url = strtok_r(NULL, ",", &save))
		r = add_place(p, a, url);
	if (r == 0 && !p->n)
		r = cli_error(2, "agent: no destination; give --collection-agent or --export");
	return r;
}

int agent_open_exporters(struct agent *a, const struct agent_config *c)
{
	struct places p = {.memory_bytes = memory_limit(c) / 8};
	struct diag diag = {};
	int e = list_places(c, &p), r = 0;

	share_memory(&p);
	if (e == 0)
		r = a->exporters ? exporters_replace(a->exporters, p.all, p.n, &diag)
				 : exporters_create(p.all, p.n, &diag, &a->exporters);
	if (r < 0)
		e = cli_fail(r, &diag);
	places_deinit(&p);
	return e;
}

int agent_set_labels(struct agent *a, const struct agent_config *c)
{
	const char *labels = c->args.labels ? c->args.labels : "";
	_cleanup_free_ char *all = NULL;
	int r;

	/* Receivers extrapolate by multiplying with 100 / PERCENT. */
	if (c->args.probabilistic_threshold &&
	    asprintf(&all, "culprit.probabilistic.percent=%llu,%s", c->args.probabilistic_threshold,
		     labels) < 0)
		return cli_error(1, "out of memory");
	r = identities_set_labels(a->identities, all ? all : labels);
	if (r == -EINVAL || r == -E2BIG)
		return cli_error(2, "--labels takes NAME=VALUE,..., not '%s'", labels);
	if (r == 0)
		r = identities_set_root(a->identities, c->args.host_root);
	return r < 0 ? cli_error(1, "out of memory") : 0;
}

int agent_open_session(struct agent *a, const struct agent_config *c, struct session *ret)
{
	struct session_arguments sa = c->what;

	sa.clock_hz = AGENT_DEFAULT_HZ;
	sa.leave_files = c->args.no_symbols;
	sa.tables_bytes = memory_limit(c) / 4;
	/* The limit for one file and for each of its debug files; several may be open at once. */
	sa.max_section = memory_limit(c) / (memory_limit(c) < TIGHT_BYTES ? 12 : 4);
	sa.tight_memory = memory_limit(c) < TIGHT_BYTES;
	sa.budget = &a->budget;
	return session_init(&sa, 0, true, a->identities, ret);
}

struct run_change agent_run_change(const struct agent_config *c)
{
	const struct agent_arguments *a = &c->args;

	return (struct run_change){
		.period_ms = a->period_s > 0 ? (u32)(a->period_s * 1000) : PERIOD_MS,
		.probabilistic_percent = (u32)a->probabilistic_threshold,
		.interval_s =
			a->probabilistic_interval_s ? (u32)a->probabilistic_interval_s : INTERVAL_S,
		.memory_limit_bytes = memory_limit(c),
	};
}

static void send_profile(void *arg, struct profile *p)
{
	struct agent *a = arg;

	(void)exporters_send(a->exporters, p, budget_is_over(&a->budget, SHORT_PERCENT));
}

static int init(struct agent *a)
{
	struct run_change rc = agent_run_change(&a->config);
	struct run_options ro = {
		.period_ms = rc.period_ms,
		.probabilistic_percent = rc.probabilistic_percent,
		.interval_s = rc.interval_s,
		.budget = &a->budget,
		.take = send_profile,
		.each = agent_each,
		.arg = a,
	};
	int r = agent_open_exporters(a, &a->config);

	if (r)
		return r;
	if (identities_create(&a->identities) < 0)
		return cli_error(1, "out of memory");
	r = agent_set_labels(a, &a->config);
	if (r == 0)
		r = agent_open_session(a, &a->config, &a->session);
	if (r)
		return r;
	ro.pipeline = a->session.pipeline;
	ro.symbolizer = a->session.symbolizer;
	ro.identities = a->identities;
	r = run_create(&ro, &a->run);
	return r < 0 ? cli_error(1, "cannot start a thread: %s", strerror(-r)) : 0;
}

int agent_init(const struct agent_config *c, struct agent *ret)
{
	int r;

	*ret = (struct agent){.config = *c};
	budget_init(&ret->budget, memory_limit(c));
	/*
	 * Large blocks, such as ELF sections, are mapped, so that free() returns them to the
	 * system.
	 */
	mallopt(M_MMAP_THRESHOLD, 256 << 10);
	mallopt(M_TRIM_THRESHOLD, 1 << 20);
	/* malloc() arenas keep their memory: two threads that allocate share them. */
	mallopt(M_ARENA_MAX, 2);
	session_catch_reload();
	r = init(ret);
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
	agent_stop_reload(a);
	run_destroy(a->run);
	if (a->exporters)
		exporters_destroy(a->exporters, DRAIN_MS);
	session_deinit(&a->old);
	session_deinit(&a->session);
	identities_destroy(a->identities);
	budget_deinit(&a->budget);
	*a = (struct agent){};
}

/* ---- /metrics ---- */

static void export_metric(struct str *out, const struct export_stats *st, size_t n,
			  const char *name, const char *help, size_t offset)
{
	metrics_family(out, name, help);
	for (size_t i = 0; i < n; i++)
		metrics_sample(out, name, METRICS_LABELS({"url", st[i].url}),
			       (double)*(const u64 *)((const char *)&st[i] + offset));
}

/* The help of a family is one text: it explains all reasons. */
static void drop_metric(struct str *out, const struct export_stats *st, size_t n)
{
	static const char name[] = "culprit_export_dropped_total";
	_cleanup_str_ struct str help = {};

	str_puts(&help, "Profiles dropped, by reason");
	for (u32 k = 0; k < EXPORT_DROP_N; k++)
		str_printf(&help, "; %s: %s", vocab_export_drop(k)->name,
			   vocab_export_drop(k)->help);
	metrics_family(out, name, str_get(&help));
	for (size_t i = 0; i < n; i++)
		for (u32 k = 0; k < EXPORT_DROP_N; k++)
			metrics_sample(out, name,
				       METRICS_LABELS({"url", st[i].url},
						      {"reason", vocab_export_drop(k)->name}),
				       (double)st[i].dropped_by[k]);
}

void agent_metrics(void *agent, struct str *out)
{
	struct agent *a = agent;
	struct export_stats st[MAX_EXPORTS + 2];
	size_t n = MIN(exporters_stats(a->exporters, st, ARRAY_SIZE(st)), ARRAY_SIZE(st));

	run_metrics(a->run, out);
	metrics_single(out, "culprit_agent_reloads_total", "Configuration reloads.", a->n_reloads);
	metrics_single(out, "culprit_agent_reloads_refused_total",
		       "Configuration reloads refused because of an error.", a->n_refused);
#define METRIC(name, member, help)                                                                 \
	export_metric(out, st, n, "culprit_export_" name, help,                                    \
		      offsetof(struct export_stats, member))
	METRIC("profiles_total", sent, "Profiles that the destination accepted.");
	METRIC("bytes_total", sent_bytes, "Bytes of the accepted profiles.");
	METRIC("retries_total", retried, "Failed attempts that were repeated.");
	METRIC("spooled_bytes", spooled_bytes, "Bytes that wait in the spool.");
	METRIC("dropped_profiles_total", dropped, "Profiles dropped.");
	METRIC("dropped_samples_total", dropped_samples, "Samples in the dropped profiles.");
#undef METRIC
	drop_metric(out, st, n);
}
