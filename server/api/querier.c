/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pyroscope's query API (querier.v1.QuerierService) over the Connect protocol: unary POSTs whose
 * body is the message, as protocol buffers or JSON, or GETs with the message in a parameter.
 * Grafana's data source for Pyroscope works with it unchanged.
 *
 * Label names of Pyroscope have no dots, so answers have underscores instead. Labels that begin
 * with "__" are not stored but derived from the type. A request for something that this server
 * cannot do fails with "unimplemented".
 */
#include <errno.h>
#include <string.h>

#include "base/pb.h"
#include "base/pbjson.h"
#include "server/api/internal.h"
#include "server/api/querier.h"

#define REQUEST_BYTES (16ULL << 20)
#define MAX_TIME_MS (1ULL << 53)
#define MAX_MATCHERS 64
#define TYPE_LABEL "__profile_type__"
#define NAME_LABEL "__name__"

/* ---- requests and answers ---- */

static bool is_get(const struct api_call *c)
{
	return !strcmp(c->r->method, "GET");
}

static bool parameter_is(const struct api_call *c, const char *name, const char *value)
{
	const char *text = net_parameter(c->r, name);

	return text && !strcmp(text, value);
}

static bool is_json(const struct api_call *c)
{
	return is_get(c) ? parameter_is(c, "encoding", "json") : api_is_json(c->r->content_type);
}

/* The message in the parameters of a GET, as Connect sends calls without side effects. */
static int get_message(struct api_call *c, struct arena *a, struct str *own, const u8 **ret_data,
		       size_t *ret_n)
{
	const char *text = net_parameter(c->r, "message");
	ProtobufCBinaryData bytes = {};
	size_t n = text ? strlen(text) : 0;

	if (!text || (!is_json(c) && !parameter_is(c, "encoding", "proto")))
		return diag_set(&c->d, -EINVAL, "GET has encoding=json or proto, and message=...");
	bytes.data = (u8 *)text;
	bytes.len = n;
	if (parameter_is(c, "base64", "1")) {
		bytes.data = arena_alloc(a, n + 1);
		bytes.len = 0;
		if (!bytes.data)
			return -ENOMEM;
		if (!pbjson_base64(text, n, &bytes))
			return diag_set(&c->d, -EINVAL, "message is not base64");
	}
	return ingest_decode(c->a->o.ingest, bytes.data, bytes.len,
			     net_parameter(c->r, "compression"), own, ret_data, ret_n, &c->d);
}

int querier_request(struct api_call *c, const ProtobufCMessageDescriptor *d, struct arena *a,
		    void *ret)
{
	_cleanup_str_ struct str own = {};
	const u8 *data = NULL;
	size_t n = 0;
	int r = is_get(c) ? get_message(c, a, &own, &data, &n) : api_body(c, &own, &data, &n);

	if (r < 0)
		return r;
	if (is_json(c))
		return pbjson_read(&pbjson_plain, d, (const char *)data, n, a, ret, &c->d);
	if (!is_get(c) &&
	    (!c->r->content_type || strncasecmp(c->r->content_type, "application/proto", 17) != 0))
		return diag_set(&c->d, -EMEDIUMTYPE, "application/proto or application/json");
	return pb_unpack(d, d->short_name, data, n, a, ret, &c->d);
}

int querier_answer(struct api_call *c, const ProtobufCMessage *m)
{
	if (is_json(c)) {
		c->ret->content_type = "application/json";
		pbjson_write(m, c->out);
		return 0;
	}
	c->ret->content_type = "application/proto";
	return pb_pack(m, c->out);
}

char *querier_text(struct arena *a, const char *s, size_t n)
{
	char *to = arena_alloc(a, n + 1);

	if (to) {
		memcpy(to, s, n);
		to[n] = '\0';
	}
	return to;
}

/* "service.name" as "service_name". */
static char *name_for_clients(struct arena *a, const char *name)
{
	char *to = querier_text(a, name, strlen(name));

	for (char *p = to; p && *p; p++)
		if (*p == '.')
			*p = '_';
	return to;
}

/* Sets the range of the query: all times if the request has none. */
static int set_range(struct api_call *c, struct query *q, s64 start, s64 end)
{
	if (start > 0 && end > 0 && start > end)
		return diag_set(&c->d, -EINVAL, "start is after end");
	q->from_ms = start > 0 ? (u64)start : 0;
	q->to_ms = end > 0 ? (u64)end : MAX_TIME_MS;
	/* Pyroscope's range includes its end, and struct query's does not. */
	q->to_ms = MIN(q->to_ms, MAX_TIME_MS) + 1;
	if (q->from_ms >= q->to_ms)
		q->from_ms = q->to_ms - 1;
	return 0;
}

static int set_type(struct query *q, const char *type)
{
	if (!*type)
		return 0;
	free(q->type);
	q->type = strdup(type);
	return q->type ? 0 : -ENOMEM;
}

/* A type has five parts. Older clients of Pyroscope add a sixth, which says no more. */
static int check_type(struct api_call *c, struct query *q)
{
	char *sixth = NULL;
	u32 parts = 1;

	for (char *p = q->type; p && *p; p++)
		if (*p == ':' && ++parts == 6)
			sixth = p;
	if (parts != 5 && parts != 6)
		return diag_set(&c->d, -EINVAL,
				"which profile type? profileTypeID is NAME:TYPE:UNIT:PERIOD_TYPE:"
				"PERIOD_UNIT");
	if (sixth)
		*sixth = '\0';
	return 0;
}

static int add_matcher(struct query *q, const char *label, const char *value)
{
	struct query_matcher m = {.label = strdup(label), .value = strdup(value)};
	int r = m.label && m.value ? vec_push(&q->matchers, m) : -ENOMEM;

	if (r < 0) {
		free(m.label);
		free(m.value);
	}
	return r;
}

/*
 * Adds the conditions of a selector. A word before the brace is a type if it has all parts of one,
 * and the name of a profile otherwise.
 */
static int add_selector(struct api_call *c, struct query *q, const char *text)
{
	_cleanup_free_ char *type = take_ptr(q->type);
	int r = *text ? query_parse_selector(q, text, &c->d) : 0;

	if (r == 0 && q->type && !strchr(q->type, ':')) {
		r = add_matcher(q, NAME_LABEL, q->type);
		free(q->type);
		q->type = NULL;
	}
	vec_foreach (&q->matchers, m)
		if (r == 0 && !q->type && m->match == QUERY_EQUAL && !strcmp(m->label, TYPE_LABEL))
			r = set_type(q, m->value);
	return r == 0 && type ? set_type(q, type) : r;
}

int querier_query(struct api_call *c, const char *type, const char *selector, s64 start, s64 end,
		  struct query *q)
{
	int r = set_range(c, q, start, end);

	if (r == 0)
		r = add_selector(c, q, selector);
	if (r == 0)
		r = set_type(q, type);
	return r < 0 ? r : check_type(c, q);
}

/* ---- what there is ---- */

static const char *next_part(struct arena *a, const char **at)
{
	size_t n = strcspn(*at, ":");
	const char *part = querier_text(a, *at, n);

	*at += n + ((*at)[n] == ':');
	return part;
}

static int profile_types(struct api_call *c)
{
	__attribute__((cleanup(query_names_deinit))) struct query_names names = {};
	_cleanup_arena_ struct arena a = ARENA_INIT(REQUEST_BYTES);
	Pyroscope__ProfileTypesResponse out = PYROSCOPE__PROFILE_TYPES_RESPONSE__INIT;
	Pyroscope__ProfileTypesRequest *in = NULL;
	_cleanup_query_ struct query q = {};
	int r = querier_request(c, &pyroscope__profile_types_request__descriptor, &a, &in);

	if (r == 0)
		r = set_range(c, &q, in->start, in->end);
	if (r == 0)
		r = query_types(c->a->o.store, &q, &names, &c->d);
	if (r < 0)
		return r;
	out.profile_types = arena_calloc(&a, names.names.n + 1, sizeof(*out.profile_types));
	for (size_t i = 0; out.profile_types && i < names.names.n; i++) {
		Pyroscope__ProfileType *t = arena_alloc(&a, sizeof(*t));
		const char *at = names.names.data[i].name;

		if (!t)
			return -ENOMEM;
		pyroscope__profile_type__init(t);
		t->id = names.names.data[i].name;
		t->name = (char *)next_part(&a, &at);
		t->sample_type = (char *)next_part(&a, &at);
		t->sample_unit = (char *)next_part(&a, &at);
		t->period_type = (char *)next_part(&a, &at);
		t->period_unit = (char *)next_part(&a, &at);
		out.profile_types[out.n_profile_types++] = t;
	}
	return out.profile_types ? querier_answer(c, &out.base) : -ENOMEM;
}

/* Sorts the names and keeps each once. They are in an arena. */
struct name_set {
	vec(char *) names;
};

static int add_name(struct name_set *s, struct arena *a, const char *name)
{
	char *own = name_for_clients(a, name);

	return own ? vec_push(&s->names, own) : -ENOMEM;
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static int answer_names(struct api_call *c, struct name_set *s)
{
	Pyroscope__NamesResponse out = PYROSCOPE__NAMES_RESPONSE__INIT;
	size_t n = 0;

	if (s->names.n)
		qsort(s->names.data, s->names.n, sizeof(char *), compare_names);
	for (size_t i = 0; i < s->names.n; i++)
		if (!n || strcmp(s->names.data[n - 1], s->names.data[i]) != 0)
			s->names.data[n++] = s->names.data[i];
	out.names = s->names.data;
	out.n_names = n;
	return querier_answer(c, &out.base);
}

/* Series must meet all of the selectors. */
static int select_all(struct api_call *c, char *const *matchers, size_t n, s64 start, s64 end,
		      struct query *q)
{
	int r = set_range(c, q, start, end);

	if (n > MAX_MATCHERS)
		return diag_set(&c->d, -EINVAL, "at most %d matchers", MAX_MATCHERS);
	for (size_t i = 0; i < n && r == 0; i++)
		r = add_selector(c, q, matchers[i]);
	return r;
}

static int label_names(struct api_call *c)
{
	__attribute__((cleanup(query_names_deinit))) struct query_names names = {};
	_cleanup_arena_ struct arena a = ARENA_INIT(REQUEST_BYTES);
	Pyroscope__LabelNamesRequest *in = NULL;
	_cleanup_query_ struct query q = {};
	struct name_set all = {};
	int r = querier_request(c, &pyroscope__label_names_request__descriptor, &a, &in);

	if (r == 0)
		r = select_all(c, in->matchers, in->n_matchers, in->start, in->end, &q);
	if (r == 0)
		r = query_label_names(c->a->o.store, &q, &names, &c->d);
	for (size_t i = 0; i < names.names.n && r == 0; i++)
		r = add_name(&all, &a, names.names.data[i].name);
	for (size_t i = 0; i < QUERY_N_DERIVED_LABELS && names.names.n && r == 0; i++)
		r = add_name(&all, &a, query_derived_labels[i]);
	if (r == 0)
		r = answer_names(c, &all);
	vec_deinit(&all.names);
	return r;
}

/* Values are shown unchanged: their dots stay. */
static int label_values(struct api_call *c)
{
	__attribute__((cleanup(query_sets_deinit))) struct query_sets sets = {};
	Pyroscope__NamesResponse out = PYROSCOPE__NAMES_RESPONSE__INIT;
	_cleanup_arena_ struct arena a = ARENA_INIT(REQUEST_BYTES);
	Pyroscope__LabelValuesRequest *in = NULL;
	_cleanup_query_ struct query q = {};
	const char *name;
	int r = querier_request(c, &pyroscope__label_values_request__descriptor, &a, &in);

	if (r == 0 && !*in->name)
		r = diag_set(&c->d, -EINVAL, "which label? name is empty");
	if (r == 0)
		r = select_all(c, in->matchers, in->n_matchers, in->start, in->end, &q);
	if (r < 0)
		return r;
	name = in->name;
	r = query_label_sets(c->a->o.store, &q, &name, 1, &sets, &c->d);
	if (r < 0)
		return r;
	out.names = sets.sets.data;
	out.n_names = sets.sets.n;
	/* Series without the label have "", which is the first. */
	if (out.n_names && !*out.names[0]) {
		out.names++;
		out.n_names--;
	}
	return querier_answer(c, &out.base);
}

int querier_pairs(struct arena *a, char *const *names, size_t n, const char *values,
		  Pyroscope__LabelPair ***ret, size_t *ret_n)
{
	Pyroscope__LabelPair **pairs = arena_calloc(a, n + 1, sizeof(*pairs));
	size_t n_pairs = 0;

	if (!pairs)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++, values += strlen(values) + 1) {
		Pyroscope__LabelPair *p;

		if (!*values)
			continue;
		p = arena_alloc(a, sizeof(*p));
		if (!p)
			return -ENOMEM;
		pyroscope__label_pair__init(p);
		p->name = name_for_clients(a, names[i]);
		p->value = querier_text(a, values, strlen(values));
		if (!p->name || !p->value)
			return -ENOMEM;
		pairs[n_pairs++] = p;
	}
	*ret = pairs;
	*ret_n = n_pairs;
	return 0;
}

static int answer_sets(struct api_call *c, const struct query_sets *sets, struct arena *a)
{
	Pyroscope__SeriesResponse out = PYROSCOPE__SERIES_RESPONSE__INIT;
	int r = 0;

	out.labels_set = arena_calloc(a, sets->sets.n + 1, sizeof(*out.labels_set));
	for (size_t i = 0; out.labels_set && i < sets->sets.n && r == 0; i++) {
		Pyroscope__Labels *e = arena_alloc(a, sizeof(*e));

		if (!e)
			return -ENOMEM;
		pyroscope__labels__init(e);
		r = querier_pairs(a, sets->names.data, sets->names.n, sets->sets.data[i],
				  &e->labels, &e->n_labels);
		if (e->n_labels)
			out.labels_set[out.n_labels_set++] = e;
	}
	if (r == 0)
		r = out.labels_set ? querier_answer(c, &out.base) : -ENOMEM;
	return r;
}

static int series(struct api_call *c)
{
	__attribute__((cleanup(query_sets_deinit))) struct query_sets sets = {};
	_cleanup_arena_ struct arena a = ARENA_INIT(QUERIER_ANSWER_BYTES);
	Pyroscope__SeriesRequest *in = NULL;
	_cleanup_query_ struct query q = {};
	int r = querier_request(c, &pyroscope__series_request__descriptor, &a, &in);

	if (r == 0 && in->n_label_names > QUERIER_MAX_LABELS)
		r = diag_set(&c->d, -EINVAL, "at most %d labels", QUERIER_MAX_LABELS);
	if (r == 0)
		r = select_all(c, in->matchers, in->n_matchers, in->start, in->end, &q);
	/* Pyroscope sorts the labels of each series, whatever the order that is asked for. */
	if (r == 0 && in->n_label_names)
		qsort(in->label_names, in->n_label_names, sizeof(char *), compare_names);
	if (r == 0)
		r = query_label_sets(c->a->o.store, &q, (const char *const *)in->label_names,
				     in->n_label_names, &sets, &c->d);
	return r < 0 ? r : answer_sets(c, &sets, &a);
}

/* ---- the server itself ---- */

static int profile_stats(struct api_call *c)
{
	Pyroscope__GetProfileStatsResponse out = PYROSCOPE__GET_PROFILE_STATS_RESPONSE__INIT;
	_cleanup_arena_ struct arena a = ARENA_INIT(REQUEST_BYTES);
	struct store_stats s = {};
	void *in;
	int r = querier_request(c, &pyroscope__get_profile_stats_request__descriptor, &a, &in);

	if (r == 0)
		r = store_get_stats(c->a->o.store, &s, &c->d);
	out.data_ingested = s.rows > 0;
	out.oldest_profile_time = (s64)s.first_ms;
	out.newest_profile_time = (s64)s.last_ms;
	return r < 0 ? r : querier_answer(c, &out.base);
}

/* Answers the fields that Grafana shows: how much data there is in the range. */
static int analyze_query(struct api_call *c)
{
	Pyroscope__AnalyzeQueryResponse out = PYROSCOPE__ANALYZE_QUERY_RESPONSE__INIT;
	Pyroscope__QueryImpact impact = PYROSCOPE__QUERY_IMPACT__INIT;
	Pyroscope__QueryScope scope = PYROSCOPE__QUERY_SCOPE__INIT, *scopes[] = {&scope};
	__attribute__((cleanup(query_names_deinit))) struct query_names types = {};
	_cleanup_arena_ struct arena a = ARENA_INIT(REQUEST_BYTES);
	Pyroscope__AnalyzeQueryRequest *in = NULL;
	_cleanup_query_ struct query q = {};
	struct store_stats s = {};
	u64 samples = 0;
	int r = querier_request(c, &pyroscope__analyze_query_request__descriptor, &a, &in);

	if (r == 0)
		r = set_range(c, &q, in->start, in->end);
	if (r == 0)
		r = add_selector(c, &q, in->query);
	if (r == 0)
		r = query_types(c->a->o.store, &q, &types, &c->d);
	if (r == 0)
		r = query_count(c->a->o.store, &q, &samples, &c->d);
	if (r == 0)
		r = store_get_stats(c->a->o.store, &s, &c->d);
	if (r < 0)
		return r;
	for (size_t i = 0; i < types.names.n; i++)
		scope.series_count += types.names.data[i].n_series;
	scope.component_type = (char *)"Store";
	scope.component_count = 1;
	impact.total_queried_series = scope.series_count;
	scope.sample_count = samples;
	/* The store does not keep sizes by series: the share of the samples is an estimate. */
	if (s.samples)
		impact.total_bytes_in_time_range =
			(u64)((double)s.bytes * (double)samples / (double)s.samples);
	out.query_scopes = scopes;
	out.n_query_scopes = 1;
	out.query_impact = &impact;
	return querier_answer(c, &out.base);
}

#define ROUTE(method, fn)                                                                          \
	{"POST", "/querier.v1.QuerierService/" method, NET_ROLE_READ, API_STYLE_CONNECT, fn},      \
	{                                                                                          \
		"GET", "/querier.v1.QuerierService/" method, NET_ROLE_READ, API_STYLE_CONNECT, fn  \
	}
const struct api_route api_querier_routes[] = {
	ROUTE("ProfileTypes", profile_types),
	ROUTE("LabelNames", label_names),
	ROUTE("LabelValues", label_values),
	ROUTE("Series", series),
	ROUTE("SelectMergeStacktraces", querier_stacktraces),
	ROUTE("SelectMergeProfile", querier_profile),
	ROUTE("SelectSeries", querier_series),
	ROUTE("Diff", querier_diff),
	ROUTE("GetProfileStats", profile_stats),
	ROUTE("AnalyzeQuery", analyze_query),
	ROUTE("SelectMergeSpanProfile", querier_span_profile),
	ROUTE("SelectHeatmap", querier_heatmap),
	{},
};
