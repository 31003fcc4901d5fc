/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the files of Pyroscope's API: querier.c, querier_graph.c (stacks), querier_cut.c,
 * querier_dot.c, querier_series.c (over time), pyroscope.c (the older HTTP API) and
 * pyroscope_settings.c.
 */
#pragma once

#include "format/pyroscope.pb-c.h"
#include "server/api/internal.h"

#define QUERIER_DEFAULT_NODES 8192
#define QUERIER_MAX_NODES (1 << 20)
#define QUERIER_MAX_LABELS 64
#define QUERIER_AVERAGE                                                                            \
	PYROSCOPE__TIME_SERIES_AGGREGATION_TYPE__TIME_SERIES_AGGREGATION_TYPE_AVERAGE
#define QUERIER_ANSWER_BYTES (1ULL << 30)
/* Pyroscope's name of removed nodes. Clients look for it. */
#define QUERIER_OTHER "other"

/* Decodes the request's message into the arena; `ret` points to a pointer to the message. */
int querier_request(struct api_call *c, const ProtobufCMessageDescriptor *d, struct arena *a,
		    void *ret);
int querier_answer(struct api_call *c, const ProtobufCMessage *m);
int querier_query(struct api_call *c, const char *type, const char *selector, s64 start, s64 end,
		  struct query *q);
/* A copy in the arena, or NULL. */
char *querier_text(struct arena *a, const char *s, size_t n);
/*
 * Pairs of these names and of values that are each ended by a NUL, without empty values. Dots in
 * names become underscores.
 */
int querier_pairs(struct arena *a, char *const *names, size_t n, const char *values,
		  Pyroscope__LabelPair ***ret, size_t *ret_n);
/* Sets q->call_site to the names of the selector. */
int querier_call_site(const Pyroscope__StackTraceSelector *s, struct arena *a, struct query *q);

/* Answers that other calls contain. All that they point to is in the arena. */
int querier_series_of(struct api_call *c, const Pyroscope__SelectSeriesRequest *in, struct arena *a,
		      Pyroscope__SelectSeriesResponse *ret);
int querier_graph_of(struct api_call *c, const Pyroscope__SelectMergeStacktracesRequest *in,
		     struct arena *a, Pyroscope__FlameGraph *ret);
int querier_diff_of(struct api_call *c, const Pyroscope__DiffRequest *in, struct arena *a,
		    Pyroscope__FlameGraphDiff *ret);
/* The call graph in Graphviz' language; `asked` nodes, 0 = 100. Nothing for an empty tree. */
int querier_dot_of(struct api_call *c, const Pyroscope__SelectMergeStacktracesRequest *in,
		   struct str *out);
/* Appends the same for a tree (querier_dot.c). */
int querier_dot(const struct profile_tree *t, size_t max, const char *unit, struct str *out);

/*
 * Leaves the `max` largest nodes of the profile's call tree: a frame QUERIER_OTHER replaces the
 * rest of each stack (querier_cut.c).
 */
int querier_cut(struct profile *p, size_t max);

/* The id of what a series had at one time, as a UUID: what Pyroscope calls a profile. */
#define QUERIER_ID_BYTES 37
void querier_format_id(const struct query_moment *m, char ret[QUERIER_ID_BYTES]);
bool querier_parse_id(const char *text, struct query_moment *ret);

api_fn querier_stacktraces, querier_span_profile, querier_profile, querier_diff;
api_fn querier_series, querier_heatmap;
