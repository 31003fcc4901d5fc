/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What Grafana and Pyroscope's tools ask besides the querier: the older HTTP API (/pyroscope/render
 * and its relatives), whether the server is ready, versions, flags. Services that this server does
 * not have are refused as the Connect protocol says (api.c).
 */
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/vocab.h"
#include "server/api/querier.h"

#define REQUEST_BYTES (16ULL << 20)

/* ---- parameters ---- */

/*
 * "TYPE{labels}", as a type and a selector. The type may be the value of __name__, too, but then
 * it is no more than a name, which several types may have.
 */
static int read_query(struct api_call *c, const char *name, struct arena *a, char **ret_type,
		      char **ret_selector)
{
	const char *text = net_parameter(c->r, name);
	size_t n = text ? strcspn(text, "{") : 0;

	if (!text || !*text)
		return diag_set(&c->d, -EINVAL, "\"%s\" is required", name);
	if (!n)
		return diag_set(&c->d, -EINVAL, "\"%s\" must begin with the profile type", name);
	*ret_type = querier_text(a, text, n);
	*ret_selector = querier_text(a, text + n, strlen(text + n));
	return *ret_type && *ret_selector ? 0 : -ENOMEM;
}

static int read_time(struct api_call *c, const char *name, int64_t *ret)
{
	const char *text = net_parameter(c->r, name);
	u64 now = clock_epoch_ms(), ms = now;

	if (text && *text && api_time(text, now, &ms) < 0)
		return diag_set(&c->d, -EINVAL,
				"%s: a time is now, now-1h, or seconds or milliseconds since 1970",
				name);
	*ret = (s64)ms;
	return 0;
}

struct names {
	const char *query, *from, *until;
};

static int read_selection(struct api_call *c, const struct names *names, struct arena *a,
			  Pyroscope__SelectMergeStacktracesRequest *ret)
{
	u64 nodes = 0;
	int r = read_query(c, names->query, a, &ret->profile_typeid, &ret->label_selector);

	if (r == 0)
		r = read_time(c, names->from, &ret->start);
	if (r == 0)
		r = read_time(c, names->until, &ret->end);
	if (r == 0)
		r = api_number(c, "max-nodes", 0, QUERIER_MAX_NODES, &nodes);
	if (r == 0)
		r = api_number(c, "maxNodes", 0, QUERIER_MAX_NODES, &nodes);
	ret->max_nodes = (s64)nodes;
	return r;
}

/* ---- answers ---- */

static void put_levels(struct json_writer *w, Pyroscope__Level *const *levels, size_t n)
{
	json_open_array(w, "levels");
	for (size_t i = 0; i < n; i++) {
		json_open_array(w, NULL);
		for (size_t k = 0; k < levels[i]->n_values; k++)
			json_put_s64(w, NULL, levels[i]->values[k]);
		json_close(w);
	}
	json_close(w);
}

static void put_flamebearer(struct json_writer *w, const Pyroscope__FlameGraph *g)
{
	json_open_object(w, "flamebearer");
	json_open_array(w, "names");
	for (size_t i = 0; i < g->n_names; i++)
		json_put_exact(w, NULL, g->names[i]);
	json_close(w);
	put_levels(w, g->levels, g->n_levels);
	json_put_s64(w, "numTicks", g->total);
	json_put_s64(w, "maxSelf", g->max_self);
	json_close(w);
}

/* Pyroscope's units: clients divide the "samples" of CPU time by the rate. */
static void put_metadata(struct json_writer *w, const char *type, const char *format)
{
	struct store_type t;
	enum sample_type row;
	const char *units;
	u64 rate = 100;

	if (store_type_parse(type, &t) < 0)
		(void)store_type_parse("", &t);
	row = store_type_find(&t);
	units = t.unit;
	if (row == SAMPLE_TYPE_SAMPLES || row == SAMPLE_TYPE_ALLOC_OBJECTS ||
	    row == SAMPLE_TYPE_INUSE_OBJECTS || row == SAMPLE_TYPE_GOROUTINE)
		units = "objects";
	if (vocab_sample_type(row)->is_cpu) {
		units = vocab_sample_type(SAMPLE_TYPE_SAMPLES)->name;
		rate = vocab_per_second(t.unit);
	}
	json_open_object(w, "metadata");
	json_put_text(w, "format", format);
	json_put_text(w, "spyName", "");
	json_put_u64(w, "sampleRate", rate);
	json_put_text(w, "units", units);
	json_put_text(w, "name", t.name);
	json_close(w);
}

/* Values per step from the step that holds `start` on; steps without samples have 0. */
static int put_timeline(struct json_writer *w, const char *key, const Pyroscope__Series *s,
			s64 start, s64 end, s64 step)
{
	s64 first = start / step, n = end / step - first;
	_cleanup_free_ double *values = NULL;

	if (n < 0)
		n = 0;
	values = calloc((size_t)n + 1, sizeof(*values));
	if (!values)
		return -ENOMEM;
	for (size_t i = 0; s && i < s->n_points; i++) {
		s64 at = s->points[i]->timestamp / step - first;

		if (at >= 0 && at < n)
			values[at] = s->points[i]->value;
	}
	json_open_object(w, key);
	json_put_s64(w, "startTime", first * step / 1000);
	json_open_array(w, "samples");
	for (s64 i = 0; i < n; i++)
		json_put_u64(w, NULL, values[i] > 0 ? (u64)values[i] : 0);
	json_close(w);
	json_put_s64(w, "durationDelta", step / 1000);
	json_put_null(w, "watermarks");
	json_close(w);
	return 0;
}

/* The step of a timeline: about 1,500 of them in the range, at least 15 s, a round number. */
static s64 timeline_step(s64 start, s64 end)
{
	static const struct {
		s64 below_ms, step_s;
	} table[] = {
		{17500, 15},	      {25000, 20},	     {45000, 30},	{90000, 60},
		{210000, 120},	      {450000, 300},	     {750000, 600},	{1050000, 900},
		{1500000, 1200},      {2700000, 1800},	     {5400000, 3600},	{9000000, 7200},
		{16200000, 10800},    {32400000, 21600},     {86400000, 43200}, {604800000, 86400},
		{1814400000, 604800}, {3628799999, 2592000},
	};
	s64 each = (end - start) / 1500;

	for (size_t i = 0; i < ARRAY_SIZE(table); i++)
		if (each <= table[i].below_ms)
			return table[i].step_s * 1000;
	return 31536000000;
}

static int put_timelines(struct api_call *c, const Pyroscope__SelectMergeStacktracesRequest *in,
			 struct arena *a)
{
	Pyroscope__SelectSeriesResponse all = PYROSCOPE__SELECT_SERIES_RESPONSE__INIT;
	Pyroscope__SelectSeriesRequest q = PYROSCOPE__SELECT_SERIES_REQUEST__INIT;
	const char *aggregation = net_parameter(c->r, "aggregation");
	char *label = (char *)net_parameter(c->r, "groupBy");
	s64 step = timeline_step(in->start, in->end);
	int r;

	q.profile_typeid = in->profile_typeid;
	q.label_selector = in->label_selector;
	q.start = in->start;
	q.end = in->end;
	q.step = (double)step / 1000;
	q.n_group_by = label && *label ? 1 : 0;
	q.group_by = &label;
	if (aggregation && !strcmp(aggregation, "avg"))
		q.aggregation = QUERIER_AVERAGE;
	r = querier_series_of(c, &q, a, &all);
	if (r == 0)
		r = put_timeline(&c->json, "timeline", all.n_series == 1 ? all.series[0] : NULL,
				 in->start, in->end, step);
	if (r == 0 && !q.n_group_by)
		json_put_null(&c->json, "groups");
	if (r < 0 || !q.n_group_by)
		return r;
	json_open_object(&c->json, "groups");
	for (size_t i = 0; i < all.n_series && r == 0; i++)
		r = put_timeline(&c->json,
				 all.series[i]->n_labels ? all.series[i]->labels[0]->value : "*",
				 all.series[i], in->start, in->end, step);
	json_close(&c->json);
	return r;
}

static int render(struct api_call *c)
{
	static const struct names names = {"query", "from", "until"};
	Pyroscope__SelectMergeStacktracesRequest in =
		PYROSCOPE__SELECT_MERGE_STACKTRACES_REQUEST__INIT;
	Pyroscope__FlameGraph graph = PYROSCOPE__FLAME_GRAPH__INIT;
	_cleanup_arena_ struct arena a = ARENA_INIT(QUERIER_ANSWER_BYTES);
	const char *format = net_parameter(c->r, "format");
	int r = read_selection(c, &names, &a, &in);

	if (r == 0 && format && !strcmp(format, "dot")) {
		c->ret->content_type = "text/plain; charset=utf-8";
		return querier_dot_of(c, &in, c->out);
	}
	if (r == 0)
		r = querier_graph_of(c, &in, &a, &graph);
	if (r < 0)
		return r;
	json_open_object(&c->json, NULL);
	json_put_u64(&c->json, "version", 1);
	put_flamebearer(&c->json, &graph);
	put_metadata(&c->json, in.profile_typeid, "single");
	r = put_timelines(c, &in, &a);
	json_put_null(&c->json, "heatmap");
	json_close(&c->json);
	return r;
}

static int render_diff(struct api_call *c)
{
	static const struct names left_names = {"leftQuery", "leftFrom", "leftUntil"};
	static const struct names right_names = {"rightQuery", "rightFrom", "rightUntil"};
	Pyroscope__SelectMergeStacktracesRequest
		left = PYROSCOPE__SELECT_MERGE_STACKTRACES_REQUEST__INIT,
		right = PYROSCOPE__SELECT_MERGE_STACKTRACES_REQUEST__INIT;
	Pyroscope__FlameGraphDiff diff = PYROSCOPE__FLAME_GRAPH_DIFF__INIT;
	Pyroscope__FlameGraph graph = PYROSCOPE__FLAME_GRAPH__INIT;
	Pyroscope__DiffRequest in = PYROSCOPE__DIFF_REQUEST__INIT;
	_cleanup_arena_ struct arena a = ARENA_INIT(QUERIER_ANSWER_BYTES);
	int r = read_selection(c, &left_names, &a, &left);

	if (r == 0)
		r = read_selection(c, &right_names, &a, &right);
	if (r == 0 && strcmp(left.profile_typeid, right.profile_typeid) != 0)
		r = diag_set(&c->d, -EINVAL, "profile types must match");
	in.left = &left;
	in.right = &right;
	if (r == 0)
		r = querier_diff_of(c, &in, &a, &diff);
	if (r < 0)
		return r;
	graph.names = diff.names;
	graph.n_names = diff.n_names;
	graph.levels = diff.levels;
	graph.n_levels = diff.n_levels;
	graph.total = diff.total;
	graph.max_self = diff.max_self;
	json_open_object(&c->json, NULL);
	json_put_u64(&c->json, "version", 1);
	put_flamebearer(&c->json, &graph);
	put_metadata(&c->json, left.profile_typeid, "double");
	json_put_null(&c->json, "timeline");
	json_put_null(&c->json, "groups");
	json_put_null(&c->json, "heatmap");
	json_put_s64(&c->json, "leftTicks", diff.leftticks);
	json_put_s64(&c->json, "rightTicks", diff.rightticks);
	json_close(&c->json);
	return 0;
}

/* The values of a label over all times; __name__ stands for the types. */
static int label_values(struct api_call *c)
{
	__attribute__((cleanup(query_sets_deinit))) struct query_sets sets = {};
	const char *label = net_parameter(c->r, "label");
	struct query q = {.to_ms = 1ULL << 53};
	int r;

	if (!label || !*label)
		return diag_set(&c->d, -EINVAL, "label parameter is required");
	if (!strcmp(label, "__name__"))
		label = query_derived_labels[0];
	r = query_label_sets(c->a->o.store, &q, &label, 1, &sets, &c->d);
	if (r < 0)
		return r;
	json_open_array(&c->json, NULL);
	for (size_t i = 0; i < sets.sets.n; i++)
		if (*sets.sets.data[i])
			json_put_exact(&c->json, NULL, sets.sets.data[i]);
	json_close(&c->json);
	return 0;
}

/* ---- the server ---- */

static int ready(struct api_call *c)
{
	c->ret->content_type = "text/plain; charset=utf-8";
	str_puts(c->out, "ready\n");
	return 0;
}

static int build_info(struct api_call *c)
{
	static const char *const unknown[] = {"revision", "branch", "buildUser", "buildDate",
					      "goVersion"};

	json_open_object(&c->json, NULL);
	json_put_text(&c->json, "status", "success");
	json_open_object(&c->json, "data");
	json_put_text(&c->json, "version", "culprit " CULPRIT_VERSION);
	for (size_t i = 0; i < ARRAY_SIZE(unknown); i++)
		json_put_text(&c->json, unknown[i], "");
	json_close(&c->json);
	json_close(&c->json);
	return 0;
}

/* The version of the querier's protocol; Pyroscope has no other. */
static int version(struct api_call *c)
{
	Pyroscope__VersionResponse out = PYROSCOPE__VERSION_RESPONSE__INIT;
	_cleanup_arena_ struct arena a = ARENA_INIT(REQUEST_BYTES);
	void *in;
	int r = querier_request(c, &pyroscope__version_request__descriptor, &a, &in);

	out.querierapi = 1;
	return r < 0 ? r : querier_answer(c, &out.base);
}

static int feature_flags(struct api_call *c)
{
	static const struct {
		const char *name, *text;
		bool enabled;
	} flags[] = {
		{"v2StorageLayer", "SelectHeatmap, exemplars, selectors of profiles and spans",
		 true},
		{"pyroscopeRuler", "recording rules", false},
		{"pyroscopeRulerFunctions", "recording rules of functions", false},
		{"utf8LabelNames", "names of labels with dots", false},
	};
	Pyroscope__GetFeatureFlagsResponse out = PYROSCOPE__GET_FEATURE_FLAGS_RESPONSE__INIT;
	Pyroscope__FeatureFlag each[ARRAY_SIZE(flags)], *list[ARRAY_SIZE(flags)];
	_cleanup_arena_ struct arena a = ARENA_INIT(REQUEST_BYTES);
	void *in;
	int r = querier_request(c, &pyroscope__get_feature_flags_request__descriptor, &a, &in);

	for (size_t i = 0; i < ARRAY_SIZE(flags); i++) {
		pyroscope__feature_flag__init(&each[i]);
		each[i].name = (char *)flags[i].name;
		each[i].description = (char *)flags[i].text;
		each[i].enabled = flags[i].enabled;
		list[i] = &each[i];
	}
	out.n_feature_flags = ARRAY_SIZE(flags);
	out.feature_flags = list;
	return r < 0 ? r : querier_answer(c, &out.base);
}

#define GET(path, fn)                                                                              \
	{                                                                                          \
		"GET", path, NET_ROLE_READ, API_STYLE_CONNECT, fn                                  \
	}
#define POST(path, fn)                                                                             \
	{                                                                                          \
		"POST", path, NET_ROLE_READ, API_STYLE_CONNECT, fn                                 \
	}
const struct api_route api_pyroscope_routes[] = {
	GET("/pyroscope/render", render),
	GET("/pyroscope/render-diff", render_diff),
	GET("/pyroscope/label-values", label_values),
	/* As servers before Pyroscope 1.0 had them. */
	GET("/render", render),
	GET("/render-diff", render_diff),
	GET("/label-values", label_values),
	{"GET", "/ready", NET_ROLE_NONE, API_STYLE_CONNECT, ready},
	GET("/api/v1/status/buildinfo", build_info),
	POST("/version.v1.Version/Version", version),
	POST("/capabilities.v1.FeatureFlagsService/GetFeatureFlags", feature_flags),
	{},
};
