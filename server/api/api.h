/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server's HTTP and gRPC requests: the page, its JSON API (doc/api/openapi.json), ingest by
 * OTLP and Pyroscope's protocols, Pyroscope's query API, /metrics and /healthz. Handlers may run in
 * any number of threads.
 */
#pragma once

#include "base/json.h"
#include "server/ingest/ingest.h"
#include "server/measurements/measurements.h"
#include "server/net/net.h"
#include "server/policies/policies.h"
#include "server/settings/settings.h"
#include "server/store/store.h"
#include "server/symbols/symbols.h"
#include "server/tasks/tasks.h"

struct api;

/* The cost of an hour of a CPU core; see doc/server.md. */
struct api_cost {
	const char *currency; /* borrowed */
	double core_hour;     /* money */
	double watts;	      /* power of a busy core */
	double pue;	      /* power usage effectiveness of the data centre */
	double grams;	      /* grams of CO2 per kWh */
};

/* Takes ownership of fd. Returns 1 to accept the file and end the search. */
typedef int api_mapped_fn(void *arg, int fd);
/*
 * Calls fn for each file of this name that a process has mapped and that every user in the
 * process's root may read (mapped.c), once per file, until fn accepts one. -ENOENT: it accepted
 * none.
 */
int api_find_mapped(const char *path, api_mapped_fn *fn, void *arg);

/*
 * Whether files at or below this path are shown without source_roots: not those in folders of the
 * system's state, and in those where users and daemons leave files that they did not mean to show.
 */
bool api_shows_folder(const char *path);

/* Options that link to other tools (links.c). */
enum api_links {
	API_SOURCE_LINKS,
	API_TRACE_LINKS,
};
/* -EINVAL: one of the links is wrong. A list may be NULL. */
int api_check_links(enum api_links which, const char *list, struct diag *reterr_diag);

struct api_options {
	struct store *store; /* borrowed, like ingest */
	struct ingest *ingest;
	struct symstore *symbols;	   /* borrowed; NULL: this server stores no symbols */
	struct tasks *tasks;		   /* borrowed */
	struct policies *policies;	   /* borrowed */
	struct measurements *measurements; /* borrowed */
	struct settings *agent_settings;   /* borrowed */
	struct api_cost cost;
	const char *audit_log;	  /* borrowed: path of a file that is appended to; NULL: none */
	const char *settings;	  /* borrowed: path of a file; NULL: clients cannot keep settings */
	const char *notes;	  /* borrowed: path of a file; NULL: nothing of notes.c is kept */
	const char *source_links; /* borrowed: see links.c; or NULL */
	const char *source_roots; /* borrowed: see api_open_public(); or NULL */
	const char *trace_links;  /* borrowed: see links.c; or NULL */
	/* Appends the agent's metrics under `culprit up`; or NULL. */
	void (*metrics)(void *userdata, struct str *out);
	/* Appends what happened to this server to an open array (server/events.h); or NULL. */
	void (*events)(void *userdata, struct json_writer *w);
	/* Does what api_find_mapped() does, for a server that may not; NULL: nothing is found. */
	int (*find_mapped)(void *userdata, const char *path, api_mapped_fn *fn, void *arg);
	void *userdata;
};

/* -ENOMEM. */
int api_create(const struct api_options *o, struct api **ret);
void api_destroy(struct api *a);
DEFINE_CLEANUP(api, struct api *, api_destroy)
#define _cleanup_api_ _cleanup_(api)
/*
 * Answers an agent's SyncRequest (lib/control); appends the SyncResponse. `host`: the only one for
 * which the sender may ask; "": any. -EBADMSG, -EACCES, or the errors of tasks_sync(). Any thread.
 */
int api_sync(struct api *a, const u8 *data, size_t n, const char *host, struct str *out,
	     struct diag *reterr_diag);
/* For net_options.handler of HTTP listeners; `api` is a struct api *. */
void api_http(void *api, const struct net_request *r, struct net_response *ret);
/* For net_options.writes. */
bool api_writes(void *api, const struct net_request *r);
/* For net_options.sink: writes the body of an upload of symbols to disk. */
bool api_sink(void *api, const struct net_request *r, struct net_sink *ret);
/* For net_options.handler of gRPC listeners. */
void api_grpc(void *api, const struct net_request *r, struct net_response *ret);
/* For net_options.streams. */
enum net_stream api_grpc_streams(void *api, const struct net_request *r);
