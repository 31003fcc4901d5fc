/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations shared by the files of server/api. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "base/arena.h"
#include "base/json.h"
#include "base/text.h"
#include "format/format.h"
#include "server/api/api.h"
#include "server/query/query.h"

#define API_MAX_STACKS 200000
#define API_MAX_NODES 1000000

struct api {
	struct api_options o;
	pthread_mutex_t audit_lock;    /* of the file */
	pthread_mutex_t settings_lock; /* of the file */
	pthread_mutex_t notes_lock;    /* of the file */
	u64 started_ms;
	struct json_t *document;  /* owned: doc/api/openapi.json */
	atomic_ullong answers[6]; /* indexed by the first digit of the status */
	atomic_ullong query_us, queries;
	atomic_ullong uploading; /* bytes of profiles that SkyWalking's agents send now */
};

/* A request in progress; one thread. */
struct api_call {
	struct api *a;
	const struct net_request *r;
	struct net_response *ret;
	struct str *out;	 /* ret->body */
	struct json_writer json; /* writes to out */
	struct diag d;
};

/* Returns 0, or a negative errno that becomes a status with d as its text. */
typedef int api_fn(struct api_call *c);

/* The format of error responses. */
enum api_style { API_STYLE_JSON, API_STYLE_CONNECT, API_STYLE_OTLP };

struct api_route {
	const char *method, *path; /* "/x/{y}", "/x/{y}/z": {y} is any component */
	enum net_role role;
	enum api_style style;
	api_fn *fn;
};

/* Tables of routes, each ended by one without a path. */
extern const struct api_route api_page_routes[];	   /* page.c: the page and its payload */
extern const struct api_route api_agent_routes[];	   /* agents.c */
extern const struct api_route api_source_routes[];	   /* source.c */
extern const struct api_route api_assembly_routes[];	   /* assembly.c */
extern const struct api_route api_view_routes[];	   /* views.c: JSON */
extern const struct api_route api_querier_routes[];	   /* querier.c: Pyroscope's queries */
extern const struct api_route api_pyroscope_routes[];	   /* pyroscope.c: its older API */
extern const struct api_route api_settings_routes[];	   /* pyroscope_settings.c */
extern const struct api_route api_input_routes[];	   /* input.c: ingest */
extern const struct api_route api_control_routes[];	   /* control.c: agents ask for tasks */
extern const struct api_route api_symbol_routes[];	   /* symbols.c: debug files */
extern const struct api_route api_cost_routes[];	   /* cost.c */
extern const struct api_route api_growth_routes[];	   /* growth.c */
extern const struct api_route api_overview_routes[];	   /* overview.c */
extern const struct api_route api_lane_routes[];	   /* lanes.c */
extern const struct api_route api_slow_routes[];	   /* slow.c */
extern const struct api_route api_trace_routes[];	   /* traces.c: spans */
extern const struct api_route api_moment_routes[];	   /* moments.c */
extern const struct api_route api_note_routes[];	   /* notes.c */
extern const struct api_route api_endpoint_routes[];	   /* endpoints.c */
extern const struct api_route api_analysis_routes[];	   /* analysis.c */
extern const struct api_route api_task_routes[];	   /* tasks.c */
extern const struct api_route api_measurement_routes[];	   /* measurements.c */
extern const struct api_route api_policy_routes[];	   /* policies.c */
extern const struct api_route api_agent_settings_routes[]; /* settings.c */

/* Notes in the audit log that the sender did something to an object (audit.c). */
void api_audit(struct api_call *c, const char *action, const char *object);

/* ---- the document of the routes (document.c) ---- */

int api_load_document(struct json_t **ret);
/* -EINVAL if the request has a parameter that the document does not have for the route. */
int api_check_parameters(struct api_call *c, const struct api_route *route);

/* ---- gRPC (grpc.c) ---- */

int api_grpc_status(int r);
/* Appends the answer to a message of reflection (reflection.c). */
int api_reflection(const struct net_request *r, struct str *out, struct diag *reterr_diag);
/* The services that SkyWalking's agents call (skywalking.c). */
bool api_is_skywalking(const char *path);
enum net_stream api_skywalking_stream(const char *path);
int api_skywalking(struct api *a, const struct net_request *r, struct net_response *ret,
		   struct diag *reterr_diag);
/* Their profile tasks (skywalking_tasks.c). */
int api_skywalking_commands(struct api *a, const u8 *data, size_t n, struct str *out,
			    struct diag *reterr_diag);
int api_skywalking_finished(struct api *a, const u8 *data, size_t n, struct diag *reterr_diag);
void api_skywalking_find_task(struct api *a, const char *id, struct ingest_skywalking_task *ret);
void api_skywalking_kept(struct api *a, const struct ingest_skywalking_kept *k);
/* gRPC, or grpc-web. */
bool api_is_grpc(const char *content_type);
/* Answers a call of either by HTTP/1.1. */
void api_grpc_by_http(struct api_call *c);
/* Whether the path is one of a service of Connect procedures: "/package.v1.Service/…" (api.c). */
bool api_is_connect(const char *path);
/* The arguments of a command; texts are borrowed. */
struct api_skywalking_arguments {
	struct {
		const char *key, *value;
		char number[24];
	} list[9];
	size_t n;
};
void api_skywalking_put_text(struct api_skywalking_arguments *a, const char *key,
			     const char *value);
void api_skywalking_put_number(struct api_skywalking_arguments *a, const char *key, u64 value);
/* Appends the answer that consists of this command. */
int api_skywalking_command(const struct api_skywalking_arguments *a, const char *name,
			   struct str *out);
/* The agent's name in tasks. */
void api_skywalking_host(const char *instance, char ret[CONTROL_TEXT_BYTES]);
/* Tells a task what an agent does about it. */
int api_skywalking_report(struct api *a, const char *instance, const struct task_info *t,
			  enum control_state state, const char *reason, u64 samples);
/* The same of an agent that has failed, without waiting for the task's file. */
void api_skywalking_broke_off(struct api *a, const char *instance, const struct task_info *t,
			      const char *reason);
/* Their tasks of whole processes (skywalking_profiles.c). */
int api_skywalking_profile_commands(struct api *a, enum task_kind kind, const u8 *data, size_t n,
				    struct str *out, struct diag *reterr_diag);
/* A request of a call that brings a profile. */
int api_skywalking_upload(struct api *a, enum task_kind kind, const struct net_request *r,
			  struct net_response *ret, struct diag *reterr_diag);
/* A unary call of a Connect procedure by its messages: the status is gRPC's (api.c). */
void api_connect(struct api *a, const struct net_request *r, struct net_response *ret);

/* For a path without a route: where this server does what the path asks for. */
const char *api_elsewhere(const char *path);

/*
 * Why a request failed: the refusal of its quota, which code in between may have taken for another
 * error, or `r`. `d` gets the sentence.
 */
int api_reason(int r, bool writes, struct diag *d);

/* Puts the names of what stands for others in an answer: bits of enum profile_limited. */
void api_put_limited(struct json_writer *w, u32 limited);

struct api_exactness {	 /* of the sums that a query selects */
	bool is_drawn;	 /* samples stand for different numbers of others */
	double factor;	 /* by which they may be wrong, beside what chance does */
	bool no_maximum; /* some of them are lower bounds */
};

/* `type`: the name of the sample type. */
int api_exactness(struct api_call *c, const struct query *q, const char *type,
		  struct api_exactness *ret);
/* The rows of /api/v1/top: which are asked for, and then sorts and searches all of them (top.c). */
struct profile_table;
struct api_list;
int api_rows_list(struct api_call *c, struct api_list *ret);
void api_choose_rows(struct profile_table *t, const struct api_list *part);
/* Writes a part of them as "rows". */
int api_put_rows(struct api_call *c, const struct query *q, const struct profile *p,
		 const struct profile_table *t, const struct api_list *part);
/*
 * Puts an object into an open array if the memory of the service surely grows (growth.c). Takes q,
 * which selects the service and a type whose values are states.
 */
int api_put_growth_finding(struct api_call *c, struct query *q, const char *service);
bool api_is_json(const char *content_type);
bool api_is_protobuf(const char *content_type);
/* A page with a link home for a browser at a wrong address; false: the client wants JSON. */
bool api_put_lost_page(struct api_call *c);
/* Adds a header of the answer; both are static strings. */
void api_put_header(struct net_response *ret, const char *name, const char *value);
/* The decompressed body. It points into the request or into *own. */
int api_body(struct api_call *c, struct str *own, const u8 **ret_data, size_t *ret_n);
/* The body as JSON. Free *ret with json_decref(), also after a failure. */
int api_json_body(struct api_call *c, struct json_t **ret);
/* The component of the request's path behind `path`, which the request's begins with. */
void api_path_id(const struct api_call *c, const char *path, char ret[CONTROL_ID_BYTES]);

/* api_sync() of a request that was compressed perhaps (control.c). */
int api_sync_request(struct api *a, const struct net_request *r, struct str *out,
		     struct diag *reterr_diag);

/* ---- parameters (parameters.c) ---- */

/* Parses "now", "now-15m", "1700000000" (s), "1700000000000" (ms), RFC 3339. -EINVAL. */
int api_time(const char *text, u64 now_ms, u64 *ret_ms);
/*
 * Reads the parameters query, type, stacks, from, to, with `prefix` before each name; from and to
 * have defaults.
 */
int api_query(struct api_call *c, const char *prefix, struct query *q);
/* Reads the parameter group_by of profiles: the label whose values are the first level. */
int api_group(struct api_call *c, struct query *q);
int api_number(struct api_call *c, const char *name, u64 min, u64 max, u64 *value);
int api_flag(struct api_call *c, const char *name, bool *value);
/* One of two words, the first if the parameter is not there. */
int api_choice(struct api_call *c, const char *name, const char *first, const char *second,
	       bool *ret_second);
/* Reads the selection of requests: service, endpoint, min_ms, max_ms, status. */
int api_requests(struct api_call *c, const char *prefix, struct query *q);
/*
 * The same for profiles, with the parameters trace, span and children besides. A service alone
 * selects samples and not requests.
 */
int api_spans(struct api_call *c, const char *prefix, struct query *q);
int api_tree_options(struct api_call *c, struct profile_tree_options *o);

/*
 * Appends the address of a source file at a version ("": not known) in its repository; {line} stays
 * (links.c). false: there is none.
 */
bool api_source_link(const char *links, const char *file, const char *version, struct str *out);
/* Puts the array "links" of links from a trace (links.c). */
void api_put_trace_links(struct json_writer *w, const char *list);

/* ---- lists (list.c) ---- */

struct api_list {
	u64 limit, max; /* set before: the limit of a request without one, and the largest */
	u64 offset;
	size_t column; /* in the order of the columns */
	bool descending;
	const char *search; /* borrowed; "": all */
};
/* Reads order, search, limit and offset. `order`: that of a request without one. */
int api_list(struct api_call *c, const char *const *columns, size_t n, const char *order,
	     struct api_list *list);
/* Whether the text has what is searched for; ASCII letters match in both cases. */
bool api_list_finds(const struct api_list *l, const char *text);
int api_list_compare(const struct api_list *l, double a, double b);
int api_list_compare_text(const struct api_list *l, const char *a, const char *b);

/* ---- files that profiles name (public.c) ---- */

/*
 * Opens a file that every user may read, below one of these directories (separated by colons; NULL:
 * those of api_shows_folder()). -EACCES, -ENOENT; -EPERM: elsewhere; -EINVAL: not a regular file.
 */
int api_open_public(const char *path, const char *roots, int *ret_fd);
/* A sentence for the user that describes -EACCES, -EPERM or -ENOENT. */
const char *api_not_public(int r);

/* Puts the members "kinds", "names" and "nodes", the nodes as columns (views.c). */
void api_put_tree(struct json_writer *w, const struct profile_tree *t);

/* ---- trees (prune.c) ---- */

/*
 * Keeps at most `max` nodes, those with the largest totals (in a diff on either side) and their
 * ancestors. The removed children of a node become one child named api_other.
 */
extern const char api_other[];
int api_tree_prune(const struct profile_tree *t, size_t max, struct profile_tree **ret);
