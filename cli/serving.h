/* SPDX-License-Identifier: Apache-2.0 */
/* The options that `server` and `up` share: the store, the addresses, access. */
#pragma once

#include "base/str.h"
#include "cli/options.h"
#include "server/server.h"

struct serving_arguments {
	const char *data_dir, *store, *listen, *otlp_grpc, *otlp_grpc_old, *otlp_http, *skywalking;
	const char *cert, *key, *ca, *tokens, *access_log;
	const char *symbols_dir, *debuginfod_urls, *currency, *audit_log;
	const char *source_roots, *source_links, *trace_links;
	bool clear_text;
	double core_hour, watts, pue, grams; /* see SERVING_DEFAULTS */
	u64 max_size_mib, max_age_h, max_ahead_min, spans_mib, symbols_mib, max_request_mib,
		connections, timeout_s, request_mib, query_timeout_s, query_cpu_s;
	u64 max_services, max_series, max_labels, max_label_bytes, max_stacks;
};

/* Defaults that are not 0, for an initializer. */
#define SERVING_DEFAULTS                                                                           \
	.max_ahead_min = 60, .core_hour = 0.04, .watts = 3.5, .pue = 1.5, .grams = 450

extern const struct option serving_store_options[], serving_symbol_options[],
	serving_listen_options[], serving_access_options[], serving_cost_options[];

/*
 * Checks the arguments and fills in `ret`, whose strings are borrowed from `a` and `own`. Returns
 * an exit status; not 0 after it printed an error.
 */
int serving_options(const struct serving_arguments *a, const char *command, struct str *own,
		    struct server_options *ret);
/* Logs a warning for each option that differs and takes effect only after a restart. */
void serving_changed(const struct serving_arguments *before, const struct serving_arguments *now);
/*
 * Appends the arguments for serving_read() in another process, as NAME=VALUE, each ended by a NUL.
 */
void serving_write(const struct serving_arguments *a, struct str *out);
/*
 * `text` is n bytes, ended by a NUL; strings of `ret` are borrowed from it. -EINVAL: not such text.
 */
int serving_read(char *text, size_t n, struct serving_arguments *ret);
