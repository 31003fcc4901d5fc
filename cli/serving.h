/* SPDX-License-Identifier: Apache-2.0 */
/* What `server` and `up` have in common: where profiles are kept, and who may ask for them. */
#pragma once

#include "base/str.h"
#include "cli/options.h"
#include "server/server.h"

struct serving_arguments {
	const char *data_dir, *store, *listen, *otlp_grpc, *otlp_grpc_old, *otlp_http;
	const char *cert, *key, *ca, *tokens;
	const char *symbols_dir, *debuginfod_urls, *currency;
	double core_hour, watts, pue, grams; /* see SERVING_DEFAULTS */
	u64 max_size_mib, max_age_h, spans_mib, symbols_mib, max_request_mib, connections,
		timeout_s;
};

/* For an initializer: what is not 0 when nothing is said. */
#define SERVING_DEFAULTS .core_hour = 0.04, .watts = 3.5, .pue = 1.5, .grams = 450

extern const struct option serving_store_options[], serving_symbol_options[],
	serving_listen_options[], serving_access_options[], serving_cost_options[];

/*
 * Checks, and fills in what the arguments say; strings are borrowed from `a`, and from `own`. An
 * exit status; not 0 after a line to the user.
 */
int serving_options(const struct serving_arguments *a, const char *command, struct str *own,
		    struct server_options *ret);
/*
 * What is asked for now and can only be at the next start is told, a line each. 0, for all that
 * reads its configuration again.
 */
int serving_changed(const struct serving_arguments *before, const struct serving_arguments *now);
