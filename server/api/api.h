/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the server answers to: the page, its JSON API (doc/api/openapi.json), ingest by OTLP and
 * Pyroscope's ways, Pyroscope's query API, /metrics and /healthz.
 */
#pragma once

#include "server/ingest/ingest.h"
#include "server/net/net.h"
#include "server/store/store.h"
#include "server/symbols/symbols.h"

struct api;

/* What an hour of one CPU core's work costs; see doc/server.md. */
struct api_cost {
	const char *currency; /* borrowed */
	double core_hour;     /* money */
	double watts;	      /* of a core that works */
	double pue;	      /* of the data centre: what it takes for each watt */
	double grams;	      /* of CO2 for a kWh */
};

struct api_options {
	struct store *store; /* borrowed, as ingest */
	struct ingest *ingest;
	struct symstore *symbols; /* or NULL: this server keeps none */
	struct api_cost cost;
	/* Further lines for /metrics, of the agent under `culprit up`; or NULL. */
	void (*metrics)(void *userdata, struct str *out);
	void *userdata;
};

int api_create(const struct api_options *o, struct api **ret);
void api_destroy(struct api *a);
DEFINE_CLEANUP(api, struct api *, api_destroy)
#define _cleanup_api_ _cleanup_(api)
/* For net_options.handler; userdata is the api. */
void api_http(void *api, const struct net_request *r, struct net_response *ret);
/* For net_options.sink: the body of an upload of symbols goes to disk. */
bool api_sink(void *api, const struct net_request *r, struct net_sink *ret);
void api_grpc(void *api, const struct net_request *r, struct net_response *ret);
