/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/exporting.h"

#include "agent/agent.h"

#define A struct agent_options
const struct option exporting_options[] = {
	OPTION_STRING("collection-agent", 0, "HOST:PORT", A, collector,
		      "send OTLP profiles to this collector over gRPC"),
	OPTION_STRING("export", 0, "URL,...", A, exports,
		      "more destinations: otlp://HOST:PORT, otlp+http://HOST:PORT,\n"
		      "pyroscope://HOST:PORT, pyroscope+ingest://HOST:PORT (the older API, for\n"
		      "Pyroscope before 1.0), file:PATTERN (expanded by strftime; the extension\n"
		      "selects the format, as in culprit record)"),
	OPTION_FLAG("disable-tls", 0, A, disable_tls, "connect to destinations without TLS"),
	OPTION_STRING("export-ca", 0, "FILE", A, ca,
		      "verify the destinations' certificates against this CA (PEM)"),
	OPTION_STRING("export-cert", 0, "FILE", A, cert, "client certificate for mutual TLS (PEM)"),
	OPTION_STRING("export-key", 0, "FILE", A, key, "private key of the client certificate"),
	OPTION_STRING("export-token-file", 0, "FILE", A, token_file,
		      "send the token in this file as Authorization: Bearer"),
	OPTION_STRING("export-user-file", 0, "FILE", A, user_file,
		      "send NAME:PASSWORD in this file as Authorization: Basic"),
	OPTION_STRING("export-headers", 0, "NAME=VALUE,...", A, headers,
		      "additional request headers"),
	OPTION_STRING("roots", 0, "NAME,...", A, roots,
		      "file: destinations: put these above each stack: pod ([Pod]NAME),\n"
		      "container ([Con]NAME), process ([PID]NAME)"),
	OPTION_FLAG("no-symbols", 0, A, no_symbols,
		    "send native frames as build-id and address, for a server that has the\n"
		    "symbols (culprit symbols push); kernel and runtime frames keep names"),
	OPTION_FLAG("no-tasks", 0, A, no_tasks,
		    "do not ask destinations that are culprit servers for tasks, which profile\n"
		    "slow requests of a service in detail"),
	OPTION_FLAG(
		"no-remote-settings", 0, A, no_remote_settings,
		"do not let destinations that are culprit servers set the rate, the budget, or\n"
		"whether waits are sampled (culprit ctl agent)"),
	OPTION_U64("max-remote-frequency", 0, "HZ", A, max_remote_hz, 1, 1000,
		   "let them set at most this rate (default 200)"),
	OPTION_STRING("labels", 0, "NAME=VALUE,...", A, labels,
		      "add these attributes to all exported data"),
	OPTION_STRING("host-root", 0, "DIR", A, host_root,
		      "look for the state files of container engines below DIR instead of /"),
	OPTION_FLAG("no-off-cpu", 0, A, no_off_cpu,
		    "sample no waits beside the CPU time (default without -e: both)"),
	OPTION_TIME("period", 0, A, period_s, 1, 3600, "time that one profile covers (default 5)"),
	OPTION_STRING("spool-dir", 0, "DIR", A, spool_dir,
		      "keep unsent profiles in this directory (default: in memory)"),
	OPTION_U64("spool-limit", 0, "MB", A, spool_mb, 1, 1 << 20,
		   "size limit of the spool of each destination (default 64)"),
	OPTION_U64("probabilistic-threshold", 0, "PERCENT", A, probabilistic_threshold, 1, 100,
		   "sample only this share of the intervals, chosen at random"),
	OPTION_SECONDS("probabilistic-interval", 0, A, probabilistic_interval_s, 1, 86400,
		       "length of such an interval (default 60)"),
	{},
};
#undef A
