/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of server/api share. */
#pragma once

#include <stdatomic.h>

#include "base/arena.h"
#include "base/text.h"
#include "server/api/api.h"
#include "server/query/query.h"

#define API_MAX_STACKS 200000
#define API_MAX_NODES 1000000

struct api {
	struct api_options o;
	u64 started_ms;
	atomic_ullong answers[6]; /* by the first digit of the status */
	atomic_ullong query_us, queries;
};

/* A request at work. */
struct api_call {
	struct api *a;
	const struct net_request *r;
	struct net_response *ret;
	struct str *out; /* ret->body */
	struct diag d;
};

/* 0, or a negative errno that becomes a status, with d as its text. */
typedef int api_fn(struct api_call *c);

/* How errors are written. */
enum api_style { API_STYLE_JSON, API_STYLE_CONNECT, API_STYLE_OTLP };

struct api_route {
	const char *method, *path; /* "/x/{y}": whatever is in the last place */
	enum net_role role;
	enum api_style style;
	api_fn *fn;
};

/* Tables of routes, each ended by one without a path. */
extern const struct api_route api_page_routes[];     /* page.c: the page, and its picture */
extern const struct api_route api_agent_routes[];    /* agents.c */
extern const struct api_route api_source_routes[];   /* source.c */
extern const struct api_route api_assembly_routes[]; /* assembly.c */
extern const struct api_route api_view_routes[];     /* views.c: JSON */
extern const struct api_route api_querier_routes[];  /* querier.c: Pyroscope's queries */
extern const struct api_route api_input_routes[];    /* input.c: what comes in */
extern const struct api_route api_symbol_routes[];   /* symbols.c: debug files */
extern const struct api_route api_cost_routes[];     /* cost.c */
extern const struct api_route api_slow_routes[];     /* slow.c */
extern const struct api_route api_trace_routes[];    /* traces.c: spans */

/* "name":"value" */
void api_put_text(struct str *out, const char *name, const char *value);
bool api_is_json(const char *content_type);
/* What of the body is JSON or protocol buffers, before it was compressed. */
int api_body(struct api_call *c, struct str *own, const u8 **ret_data, size_t *ret_n);

/* ---- parameters (parameters.c) ---- */

/* "now", "now-15m", "1700000000" (s), "1700000000000" (ms), RFC 3339 in UTC. */
int api_time(const char *text, u64 now_ms, u64 *ret_ms);
/* query, type, stacks, from, to; with `prefix` before each name; from and to have defaults. */
int api_query(struct api_call *c, const char *prefix, struct query *q);
/* group_by, for profiles: the label whose values are the first level. */
int api_group(struct api_call *c, struct query *q);
int api_number(struct api_call *c, const char *name, u64 min, u64 max, u64 *value);
int api_flag(struct api_call *c, const char *name, bool *value);
/* Which requests: service, endpoint, min_ms, max_ms, status. */
int api_requests(struct api_call *c, const char *prefix, struct query *q);
/* The same for profiles, or trace, span, children; a service alone is one of its samples. */
int api_spans(struct api_call *c, const char *prefix, struct query *q);
int api_tree_options(struct api_call *c, struct profile_tree_options *o);

/* ---- files that profiles name (public.c) ---- */

/* Opens what any user may open. -EACCES, -ENOENT; -EINVAL: it is no file. */
int api_open_public(const char *path, int *ret_fd);
/* A sentence, of the first two. */
const char *api_not_public(int r);

/* Gets the file, which is its own; 1: it is the one, and nothing more is looked for. */
typedef int api_mapped_fn(void *arg, int fd);
/*
 * The files of this name that processes have mapped and every user of theirs may open (mapped.c),
 * each once, until fn takes one; -ENOENT: it took none.
 */
int api_find_mapped(const char *path, api_mapped_fn *fn, void *arg);

/* "kinds", "names" and "nodes": columns (views.c). */
void api_put_tree(struct str *out, const struct profile_tree *t);

/* ---- trees (prune.c) ---- */

/*
 * Keeps the nodes of largest total (in a diff of either side), at most `max`, and what leads to
 * them; what was left out of a node's children is one child of it, named api_other.
 */
extern const char api_other[];
int api_tree_prune(const struct profile_tree *t, size_t max, struct profile_tree **ret);
