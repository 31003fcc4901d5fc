/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pyroscope's query API (querier.v1.QuerierService) over the Connect protocol: unary POSTs whose
 * body is the message, as protocol buffers or JSON. Grafana's data source for Pyroscope works with
 * it unchanged.
 *
 * Label names of Pyroscope have no dots, so answers have underscores instead. Labels that begin
 * with "__" are not stored but derived from the type. A request for something that this server
 * cannot do fails with "unimplemented".
 */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/pb.h"
#include "base/pbjson.h"
#include "server/api/internal.h"
#include "server/api/querier.h"

#define REQUEST_BYTES (16ULL << 20)
#define ANSWER_BYTES QUERIER_ANSWER_BYTES
#define MAX_TIME_MS (1ULL << 53)
#define MAX_MATCHERS 64
#define TYPE_LABEL "__profile_type__"

/* ---- requests and answers ---- */

int querier_request(struct api_call *c, const ProtobufCMessageDescriptor *d, struct arena *a,
		    void *ret)
{
	_cleanup_str_ struct str own = {};
	const u8 *data = NULL;
	size_t n = 0;
	int r = api_body(c, &own, &data, &n);

	if (r < 0)
		return r;
	if (api_is_json(c->r->content_type))
		return pbjson_read(&pbjson_plain, d, (const char *)data, n, a, ret, &c->d);
	if (!c->r->content_type || strncasecmp(c->r->content_type, "application/proto", 17) != 0)
		return diag_set(&c->d, -ENOTSUP, "application/proto or application/json");
	return pb_unpack(d, d->short_name, data, n, a, ret, &c->d);
}

int querier_answer(struct api_call *c, const ProtobufCMessage *m)
{
	if (api_is_json(c->r->content_type)) {
		c->ret->content_type = "application/json";
		pbjson_write(m, c->out);
		return 0;
	}
	c->ret->content_type = "application/proto";
	return pb_pack(m, c->out);
}

static char *copy_text(struct arena *a, const char *s, size_t n)
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
	char *to = copy_text(a, name, strlen(name));

	for (char *p = to; p && *p; p++)
		if (*p == '.')
			*p = '_';
	return to;
}

/* Sets the range of the query: all times if the request has none. */
static void set_range(struct query *q, s64 start, s64 end)
{
	q->from_ms = start > 0 ? (u64)start : 0;
	q->to_ms = end > 0 ? (u64)end : MAX_TIME_MS;
	/* Pyroscope's range includes its end, and struct query's does not. */
	q->to_ms = MIN(q->to_ms, MAX_TIME_MS) + 1;
	if (q->from_ms >= q->to_ms)
		q->from_ms = q->to_ms - 1;
}

static int set_type(struct query *q, const char *type)
{
	if (!*type)
		return 0;
	free(q->type);
	q->type = strdup(type);
	return q->type ? 0 : -ENOMEM;
}

/* Turns matchers of the type label into the type of the query. */
static int take_type_matchers(struct api_call *c, struct query *q)
{
	size_t n = 0;
	int r = 0;

	vec_foreach (&q->matchers, m) {
		if (strcmp(m->label, TYPE_LABEL) != 0) {
			q->matchers.data[n++] = *m;
			continue;
		}
		if (r == 0 && m->match != QUERY_EQUAL)
			r = diag_set(&c->d, -EINVAL, TYPE_LABEL " can only be matched by =");
		if (r == 0)
			r = set_type(q, m->value);
		free(m->label);
		free(m->value);
	}
	q->matchers.n = n;
	return r;
}

static int add_selector(struct api_call *c, struct query *q, const char *text)
{
	int r;

	if (!*text || !strcmp(text, "{}"))
		return 0;
	r = query_parse_selector(q, text, &c->d);
	return r < 0 ? r : take_type_matchers(c, q);
}

int querier_query(struct api_call *c, const char *type, const char *selector, s64 start, s64 end,
		  struct query *q)
{
	int r;

	set_range(q, start, end);
	r = add_selector(c, q, selector);
	if (r == 0)
		r = set_type(q, type);
	if (r == 0 && !q->type)
		r = diag_set(&c->d, -EINVAL, "which profile type? profileTypeID is empty");
	return r;
}

/* ---- what there is ---- */

static const char *next_part(struct arena *a, const char **at)
{
	size_t n = strcspn(*at, ":");
	const char *part = copy_text(a, *at, n);

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

	if (r < 0)
		return r;
	set_range(&q, in->start, in->end);
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

/* Merges the names of several selectors: sorted, each once. */
struct name_set {
	vec(char *) names; /* in the arena */
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
	int r;

	if (s->names.n)
		qsort(s->names.data, s->names.n, sizeof(char *), compare_names);
	for (size_t i = 0; i < s->names.n; i++)
		if (!n || strcmp(s->names.data[n - 1], s->names.data[i]) != 0)
			s->names.data[n++] = s->names.data[i];
	out.names = s->names.data;
	out.n_names = n;
	r = querier_answer(c, &out.base);
	vec_deinit(&s->names);
	return r;
}

static bool is_type_label(const char *name)
{
	return !strcmp(name, TYPE_LABEL) || !strcmp(name, "__name__") ||
	       !strcmp(name, "__type__") || !strcmp(name, "__unit__") ||
	       !strcmp(name, "__period_type__") || !strcmp(name, "__period_unit__");
}

/* The part of a type's id that is the value of the label. */
static const char *type_label(struct arena *a, const char *type, const char *name)
{
	static const char *const parts[] = {"__name__", "__type__", "__unit__", "__period_type__",
					    "__period_unit__"};

	if (!strcmp(name, TYPE_LABEL))
		return type;
	for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
		const char *part = next_part(a, &type);

		if (!strcmp(parts[i], name))
			return part;
	}
	return "";
}

/* Values are shown unchanged: their dots stay. */
static int add_values(struct api_call *c, const struct query *q, const char *label, struct arena *a,
		      struct name_set *ret)
{
	__attribute__((cleanup(query_names_deinit))) struct query_names names = {};
	bool of_type = is_type_label(label);
	int r = of_type ? query_types(c->a->o.store, q, &names, &c->d)
			: query_label_values(c->a->o.store, q, label, &names, &c->d);

	for (size_t i = 0; i < names.names.n && r == 0; i++) {
		const char *name = names.names.data[i].name;
		char *own;

		if (of_type && q->type && strcmp(q->type, name) != 0)
			continue;
		name = of_type ? type_label(a, name, label) : name;
		own = name ? copy_text(a, name, strlen(name)) : NULL;
		r = own ? vec_push(&ret->names, own) : -ENOMEM;
	}
	return r;
}

static int add_label_names(struct api_call *c, const struct query *q, struct arena *a,
			   struct name_set *ret)
{
	static const char *const always[] = {TYPE_LABEL, "__name__",	    "__type__",
					     "__unit__", "__period_type__", "__period_unit__"};
	__attribute__((cleanup(query_names_deinit))) struct query_names names = {};
	int r = query_label_names(c->a->o.store, q, &names, &c->d);

	for (size_t i = 0; i < names.names.n && r == 0; i++)
		r = add_name(ret, a, names.names.data[i].name);
	for (size_t i = 0; i < ARRAY_SIZE(always) && r == 0 && names.names.n; i++)
		r = add_name(ret, a, always[i]);
	return r;
}

/*
 * Lists label names, or the values of a label, for each selector, or for all series if there is
 * none.
 */
static int collect(struct api_call *c, char *const *matchers, size_t n, s64 start, s64 end,
		   const char *label, struct arena *a, struct name_set *ret)
{
	int r = 0;

	if (n > MAX_MATCHERS)
		return diag_set(&c->d, -EINVAL, "at most %d matchers", MAX_MATCHERS);
	for (size_t i = 0; i < MAX(n, (size_t)1) && r == 0; i++) {
		_cleanup_query_ struct query q = {};

		set_range(&q, start, end);
		r = n ? add_selector(c, &q, matchers[i]) : 0;
		if (r == 0 && label)
			r = add_values(c, &q, label, a, ret);
		else if (r == 0)
			r = add_label_names(c, &q, a, ret);
	}
	if (r < 0)
		vec_deinit(&ret->names);
	return r;
}

static int label_names(struct api_call *c)
{
	_cleanup_arena_ struct arena a = ARENA_INIT(REQUEST_BYTES);
	Pyroscope__LabelNamesRequest *in = NULL;
	struct name_set names = {};
	int r = querier_request(c, &pyroscope__label_names_request__descriptor, &a, &in);

	if (r == 0)
		r = collect(c, in->matchers, in->n_matchers, in->start, in->end, NULL, &a, &names);
	return r < 0 ? r : answer_names(c, &names);
}

static int label_values(struct api_call *c)
{
	_cleanup_arena_ struct arena a = ARENA_INIT(REQUEST_BYTES);
	Pyroscope__LabelValuesRequest *in = NULL;
	struct name_set names = {};
	int r = querier_request(c, &pyroscope__label_values_request__descriptor, &a, &in);

	if (r == 0 && !*in->name)
		r = diag_set(&c->d, -EINVAL, "which label? name is empty");
	if (r == 0)
		r = collect(c, in->matchers, in->n_matchers, in->start, in->end, in->name, &a,
			    &names);
	return r < 0 ? r : answer_names(c, &names);
}

/* ---- series ---- */

/* Pairs of name and value, in the order of the request, without labels that have no value. */
static int make_pairs(struct arena *a, char *const *names, size_t n, const char *values,
		      const char *type, Pyroscope__LabelPair ***ret, size_t *ret_n)
{
	Pyroscope__LabelPair **pairs = arena_calloc(a, n + 1, sizeof(*pairs));
	size_t n_pairs = 0;

	if (!pairs)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		bool of_type = is_type_label(names[i]);
		const char *value = of_type ? type_label(a, type, names[i]) : values;
		Pyroscope__LabelPair *p;

		if (!of_type)
			values += strlen(values) + 1;
		if (!value || !*value)
			continue;
		p = arena_alloc(a, sizeof(*p));
		if (!p)
			return -ENOMEM;
		pyroscope__label_pair__init(p);
		p->name = name_for_clients(a, names[i]);
		p->value = copy_text(a, value, strlen(value));
		if (!p->name || !p->value)
			return -ENOMEM;
		pairs[n_pairs++] = p;
	}
	*ret = pairs;
	*ret_n = n_pairs;
	return 0;
}

/* Selects the labels that are stored, which are those that the store can group by. */
static size_t stored_only(char *const *names, size_t n, const char **ret)
{
	size_t k = 0;

	for (size_t i = 0; i < n; i++)
		if (!is_type_label(names[i]))
			ret[k++] = names[i];
	return k;
}

#define MAX_LABELS 64
struct series_out {
	struct arena *a;
	vec(Pyroscope__Labels *) list;
};

static int add_series(struct api_call *c, struct query *q, char *const *names, size_t n,
		      struct series_out *out)
{
	__attribute__((cleanup(query_lines_deinit))) struct query_lines l = {};
	const char *group_by[MAX_LABELS];
	size_t n_group = stored_only(names, n, group_by);
	int r = query_series(c->a->o.store, q, q->to_ms - q->from_ms, group_by, n_group, &l, &c->d);

	for (size_t i = 0; i < l.lines.n && r == 0; i++) {
		Pyroscope__Labels *set = arena_alloc(out->a, sizeof(*set));

		if (!set)
			return -ENOMEM;
		pyroscope__labels__init(set);
		if (!l.lines.data[i].points.n)
			continue;
		r = make_pairs(out->a, names, n, l.lines.data[i].labels, q->type, &set->labels,
			       &set->n_labels);
		if (r == 0)
			r = vec_push(&out->list, set);
	}
	return r;
}

/* Adds the series of one selector, for each type that it has. */
static int series_of(struct api_call *c, struct query *q, char *const *names, size_t n,
		     struct series_out *out)
{
	__attribute__((cleanup(query_names_deinit))) struct query_names types = {};
	struct name_set all = {};
	int r = query_types(c->a->o.store, q, &types, &c->d);

	if (r == 0 && !n) {
		r = add_label_names(c, q, out->a, &all);
		names = all.names.data;
		n = all.names.n;
	}
	if (r == 0 && n > MAX_LABELS)
		r = diag_set(&c->d, -EINVAL, "at most %d labels", MAX_LABELS);
	for (size_t i = 0; i < types.names.n && r == 0; i++) {
		char *kept = q->type;

		if (kept && strcmp(kept, types.names.data[i].name) != 0)
			continue;
		q->type = types.names.data[i].name;
		r = add_series(c, q, names, n, out);
		q->type = kept;
	}
	vec_deinit(&all.names);
	return r;
}

static int series(struct api_call *c)
{
	_cleanup_arena_ struct arena a = ARENA_INIT(ANSWER_BYTES);
	Pyroscope__SeriesResponse answer = PYROSCOPE__SERIES_RESPONSE__INIT;
	struct series_out out = {.a = &a};
	Pyroscope__SeriesRequest *in = NULL;
	int r = querier_request(c, &pyroscope__series_request__descriptor, &a, &in);

	if (r == 0 && (in->n_matchers > MAX_MATCHERS || in->n_label_names > MAX_LABELS))
		r = diag_set(&c->d, -EINVAL, "at most %d matchers and labels", MAX_MATCHERS);
	for (size_t i = 0; r == 0 && i < MAX(in->n_matchers, (size_t)1); i++) {
		_cleanup_query_ struct query q = {};

		set_range(&q, in->start, in->end);
		r = in->n_matchers ? add_selector(c, &q, in->matchers[i]) : 0;
		if (r == 0)
			r = series_of(c, &q, in->label_names, in->n_label_names, &out);
	}
	answer.labels_set = out.list.data;
	answer.n_labels_set = out.list.n;
	if (r == 0)
		r = querier_answer(c, &answer.base);
	vec_deinit(&out.list);
	return r;
}

/* ---- over time ---- */

static int make_points(struct arena *a, const struct query_line *l, Pyroscope__Series *s)
{
	s->points = arena_calloc(a, l->points.n + 1, sizeof(*s->points));
	for (size_t i = 0; s->points && i < l->points.n; i++) {
		Pyroscope__Point *p = arena_alloc(a, sizeof(*p));

		if (!p)
			return -ENOMEM;
		pyroscope__point__init(p);
		p->value = (double)l->points.data[i].value;
		p->timestamp = (s64)l->points.data[i].time_ms;
		s->points[s->n_points++] = p;
	}
	return s->points ? 0 : -ENOMEM;
}

static int answer_lines(struct api_call *c, struct arena *a,
			const Pyroscope__SelectSeriesRequest *in, const char *type,
			const struct query_lines *l)
{
	Pyroscope__SelectSeriesResponse out = PYROSCOPE__SELECT_SERIES_RESPONSE__INIT;
	int r = 0;

	out.series = arena_calloc(a, l->lines.n + 1, sizeof(*out.series));
	if (!out.series)
		return -ENOMEM;
	for (size_t i = 0; i < l->lines.n && r == 0; i++) {
		Pyroscope__Series *s = arena_alloc(a, sizeof(*s));

		if (in->limit > 0 && i >= (u64)in->limit)
			break;
		if (!s)
			return -ENOMEM;
		pyroscope__series__init(s);
		r = make_pairs(a, in->group_by, in->n_group_by, l->lines.data[i].labels, type,
			       &s->labels, &s->n_labels);
		if (r == 0)
			r = make_points(a, &l->lines.data[i], s);
		out.series[out.n_series++] = s;
	}
	return r < 0 ? r : querier_answer(c, &out.base);
}

static int select_series(struct api_call *c)
{
	__attribute__((cleanup(query_lines_deinit))) struct query_lines l = {};
	_cleanup_arena_ struct arena a = ARENA_INIT(ANSWER_BYTES);
	Pyroscope__SelectSeriesRequest *in = NULL;
	const char *group_by[MAX_LABELS] = {};
	_cleanup_query_ struct query q = {};
	u64 step;
	size_t n;
	int r = querier_request(c, &pyroscope__select_series_request__descriptor, &a, &in);

	if (r < 0)
		return r;
	if (in->n_group_by > MAX_LABELS)
		return diag_set(&c->d, -EINVAL, "at most %d labels", MAX_LABELS);
	if (in->aggregation !=
	    PYROSCOPE__TIME_SERIES_AGGREGATION_TYPE__TIME_SERIES_AGGREGATION_TYPE_SUM)
		return diag_set(&c->d, -ENOSYS, "sums only: there are no averages here");
	if (in->stack_trace_selector && in->stack_trace_selector->n_call_site)
		return diag_set(&c->d, -ENOSYS, "call sites of a series are not selected here");
	r = querier_query(c, in->profile_typeid, in->label_selector, in->start, in->end, &q);
	if (r == 0 && (!(in->step >= 0.001) || in->step > 1e9))
		r = diag_set(&c->d, -EINVAL, "step: seconds, at least 0.001");
	if (r < 0)
		return r;
	step = (u64)llround(in->step * 1000);
	n = stored_only(in->group_by, in->n_group_by, group_by);
	r = query_series(c->a->o.store, &q, step, group_by, n, &l, &c->d);
	return r < 0 ? r : answer_lines(c, &a, in, q.type, &l);
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
	int r = querier_request(c, &pyroscope__analyze_query_request__descriptor, &a, &in);

	if (r < 0)
		return r;
	set_range(&q, in->start, in->end);
	r = add_selector(c, &q, in->query);
	if (r == 0)
		r = query_types(c->a->o.store, &q, &types, &c->d);
	if (r == 0)
		r = store_get_stats(c->a->o.store, &s, &c->d);
	if (r < 0)
		return r;
	for (size_t i = 0; i < types.names.n; i++)
		if (!q.type || !strcmp(q.type, types.names.data[i].name))
			scope.series_count += types.names.data[i].n_series;
	scope.component_type = (char *)"Store";
	scope.component_count = 1;
	impact.total_queried_series = scope.series_count;
	/* Counts the whole store, because the part in the range is unknown without reading it. */
	impact.total_bytes_in_time_range = s.bytes;
	out.query_scopes = scopes;
	out.n_query_scopes = 1;
	out.query_impact = &impact;
	return querier_answer(c, &out.base);
}

static int not_here(struct api_call *c)
{
	return diag_set(&c->d, -ENOSYS, "this server does not do that; see doc/server.md");
}

#define ROUTE(method, fn)                                                                          \
	{                                                                                          \
		"POST", "/querier.v1.QuerierService/" method, NET_ROLE_READ, API_STYLE_CONNECT, fn \
	}
const struct api_route api_querier_routes[] = {
	ROUTE("ProfileTypes", profile_types),
	ROUTE("LabelNames", label_names),
	ROUTE("LabelValues", label_values),
	ROUTE("Series", series),
	ROUTE("SelectMergeStacktraces", querier_stacktraces),
	ROUTE("SelectMergeProfile", querier_profile),
	ROUTE("SelectSeries", select_series),
	ROUTE("Diff", querier_diff),
	ROUTE("GetProfileStats", profile_stats),
	ROUTE("AnalyzeQuery", analyze_query),
	ROUTE("SelectMergeSpanProfile", not_here),
	ROUTE("SelectHeatmap", not_here),
	{},
};
