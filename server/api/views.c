/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The JSON API that doc/api/openapi.json describes. Trees are columns, one array for each field, so
 * that large ones are small on the wire and quick to parse.
 */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/metrics.h"
#include "base/vocab.h"
#include "profile/table.h"
#include "server/api/internal.h"

#define DEFAULT_NODES 20000
#define MAX_CELLS 11000

extern const unsigned char openapi_json[];
extern const size_t openapi_json_n;

static int get_profile(struct api_call *c, const char *prefix, struct query *q,
		       struct profile **ret)
{
	u64 max_stacks = API_MAX_STACKS;
	int r = api_query(c, prefix, q);

	if (r == 0)
		r = api_spans(c, prefix, q);
	if (r == 0)
		r = api_group(c, q);
	if (r == 0)
		r = api_number(c, "max_stacks", 1, API_MAX_STACKS * 10, &max_stacks);
	return r < 0 ? r : query_profile(c->a->o.store, q, max_stacks, ret, &c->d);
}

static const char *type_name(const struct profile *p)
{
	return p->n_types ? profile_string(p, p->types[p->default_type].name) : "";
}

static const char *type_unit(const struct profile *p)
{
	return p->n_types ? profile_string(p, p->types[p->default_type].unit) : "";
}

void api_put_limited(struct json_writer *w, u32 limited)
{
	json_open_array(w, "limited");
	for (size_t i = 0; i < ARRAY_SIZE(profile_stand_ins); i++)
		if (limited & 1u << i)
			json_put_text(w, NULL, profile_stand_ins[i]);
	json_close(w);
}

static void put_head(struct json_writer *w, const struct query *q, const struct profile *p)
{
	const struct profile_quality *y = &p->quality;

	json_put_u64(w, "from", q->from_ms);
	json_put_u64(w, "to", q->to_ms);
	json_put_text(w, "type", type_name(p));
	json_put_text(w, "unit", type_unit(p));
	json_open_object(w, "quality");
	json_put_u64(w, "samples", y->samples);
	json_put_u64(w, "lost", y->lost);
	json_put_u64(w, "truncated", y->truncated);
	json_put_u64(w, "unknown_frames", y->unknown);
	json_put_u64(w, "frames", y->frames);
	json_put_bool(w, "damaged", y->damaged);
	api_put_limited(w, y->limited);
	json_close(w);
}

/* ---- what there is ---- */

static void put_name(struct json_writer *w, const struct query_name *n)
{
	json_put_text(w, "name", n->name);
	json_put_u64(w, "series", n->n_series);
	json_put_u64(w, "last", n->last_ms);
}

static void put_names(struct json_writer *w, const char *key, const struct query_names *n)
{
	json_open_object(w, NULL);
	json_open_array(w, key);
	for (size_t i = 0; i < n->names.n; i++) {
		json_open_object(w, NULL);
		put_name(w, &n->names.data[i]);
		json_close(w);
	}
	json_close(w);
	api_put_limited(w, n->limited);
	json_close(w);
}

/*
 * Puts a label such as "Page faults", or "Samples (Page faults)" for samples of anything but CPU
 * time.
 */
static void put_type_label(struct json_writer *w, const struct store_type *t, enum sample_type type)
{
	const struct vocab_sample_type *row = vocab_sample_type(type);
	_cleanup_str_ struct str label = {};
	enum sample_type of;

	str_puts(&label, type < SAMPLE_TYPE_N ? row->label : t->name);
	if (type == SAMPLE_TYPE_SAMPLES && strcmp(t->profile, row->profile) != 0) {
		of = vocab_find_sample_type(t->profile, t->period, t->period_unit);
		str_printf(&label, " (%s)",
			   of < SAMPLE_TYPE_N ? vocab_sample_type(of)->label : t->profile);
	}
	json_put_text(w, "label", str_get(&label));
}

static void put_type(struct json_writer *w, const struct query_name *n)
{
	struct store_type t = {};
	const struct vocab_sample_type *row;
	enum sample_type type;

	if (store_type_parse(n->name, &t) < 0)
		return;
	type = store_type_find(&t);
	row = vocab_sample_type(type);
	put_type_label(w, &t, type);
	json_put_text(w, "unit", t.unit);
	json_put_text(w, "rate", type < SAMPLE_TYPE_N ? row->rate : t.name);
	json_put_bool(w, "is_cpu", row->is_cpu);
	json_put_text(w, "adds", row->adds == SAMPLE_ADDS_AT_MOMENT ? "at_moment" : "over_time");
}

static int types(struct api_call *c)
{
	__attribute__((cleanup(query_names_deinit))) struct query_names n = {};
	_cleanup_query_ struct query q = {};
	int r = api_query(c, "", &q);

	if (r == 0)
		r = query_types(c->a->o.store, &q, &n, &c->d);
	if (r < 0)
		return r;
	json_open_object(&c->json, NULL);
	json_open_array(&c->json, "types");
	for (size_t i = 0; i < n.names.n; i++) {
		json_open_object(&c->json, NULL);
		put_name(&c->json, &n.names.data[i]);
		put_type(&c->json, &n.names.data[i]);
		json_close(&c->json);
	}
	json_close(&c->json);
	json_close(&c->json);
	return 0;
}

static int labels(struct api_call *c)
{
	__attribute__((cleanup(query_names_deinit))) struct query_names n = {};
	_cleanup_query_ struct query q = {};
	int r = api_query(c, "", &q);

	if (r == 0)
		r = query_label_names(c->a->o.store, &q, &n, &c->d);
	if (r == 0)
		put_names(&c->json, "labels", &n);
	return r;
}

static int label_values(struct api_call *c)
{
	__attribute__((cleanup(query_names_deinit))) struct query_names n = {};
	const char *label = net_parameter(c->r, "label");
	_cleanup_query_ struct query q = {};
	int r = api_query(c, "", &q);

	if (r == 0 && (!label || !*label))
		r = diag_set(&c->d, -EINVAL, "which label? ?label=service.name");
	if (r == 0)
		r = query_label_values(c->a->o.store, &q, label, &n, &c->d);
	if (r == 0)
		put_names(&c->json, "values", &n);
	return r;
}

/* ---- trees ---- */

#define COLUMN(w, key, t, expression)                                                              \
	do {                                                                                       \
		json_open_array(w, key);                                                           \
		for (size_t i_ = 0; i_ < (t)->nodes.n; i_++) {                                     \
			const struct profile_node *n = &(t)->nodes.data[i_];                       \
			json_put_s64(w, NULL, expression);                                         \
		}                                                                                  \
		json_close(w);                                                                     \
	} while (0)

void api_put_tree(struct json_writer *w, const struct profile_tree *t)
{
	json_open_array(w, "kinds");
	for (u32 k = 0; k < FRAME_KIND_N; k++)
		json_put_text(w, NULL, vocab_frame_kind(k)->name);
	json_close(w);
	json_open_array(w, "names");
	for (u32 i = 0; i < t->strings.n; i++)
		json_put_text(w, NULL, strtab_get(&t->strings, i));
	json_close(w);
	json_open_object(w, "nodes");
	json_put_u64(w, "count", t->nodes.n);
	COLUMN(w, "name", t, n->name);
	COLUMN(w, "below", t, n->n_below);
	COLUMN(w, "self", t, n->self);
	COLUMN(w, "total", t, n->total);
	COLUMN(w, "kind", t, n->kind == FRAME_KIND_N ? -1 : (int)n->kind);
	COLUMN(w, "level", t, n->level);
	COLUMN(w, "inlined", t, (n->flags & PROFILE_FRAME_INLINED) != 0);
	COLUMN(w, "line", t, n->line);
	if (t->has_base) {
		COLUMN(w, "base_self", t, n->base_self);
		COLUMN(w, "base_total", t, n->base_total);
	}
	json_close(w);
}

static int prune_tree(struct api_call *c, const struct profile_tree *t, struct profile_tree **ret)
{
	u64 max = DEFAULT_NODES;
	int r = api_number(c, "max_nodes", 1, API_MAX_NODES, &max);

	return r < 0 ? r : api_tree_prune(t, max, ret);
}

static int flamegraph(struct api_call *c)
{
	_cleanup_profile_tree_ struct profile_tree *all = NULL, *t = NULL;
	_cleanup_profile_ struct profile *p = NULL;
	struct profile_tree_options o = {};
	_cleanup_query_ struct query q = {};
	int r = api_tree_options(c, &o);

	if (r == 0)
		r = get_profile(c, "", &q, &p);
	if (r == 0)
		r = profile_tree_build(p, &o, &all);
	if (r == 0)
		r = prune_tree(c, all, &t);
	if (r < 0)
		return r;
	json_open_object(&c->json, NULL);
	put_head(&c->json, &q, p);
	api_put_tree(&c->json, t);
	json_close(&c->json);
	return 0;
}

static void scale(struct profile_tree *t, s64 to)
{
	s64 from = t->nodes.n ? t->nodes.data[0].total : 0;
	double factor = from > 0 ? (double)to / (double)from : 0;

	vec_foreach (&t->nodes, n) {
		n->self = llround((double)n->self * factor);
		n->total = llround((double)n->total * factor);
	}
}

/* A side without samples has no type of its own. */
static int check_units(struct api_call *c, const struct profile *p, const struct profile *base)
{
	if (!p->n_samples || !base->n_samples || !strcmp(type_unit(p), type_unit(base)))
		return 0;
	return diag_set(&c->d, -EINVAL, "the sides have values of unlike units: %s and %s",
			type_unit(p), type_unit(base));
}

/*
 * Loads the base of a comparison: parameters that begin with base_ default to the same parameter
 * without it.
 */
static int get_base(struct api_call *c, const struct profile *p, struct query *q,
		    struct profile **ret)
{
	_cleanup_profile_ struct profile *base = NULL;
	int r = get_profile(c, "base_", q, &base);

	if (r == 0)
		r = check_units(c, p, base);
	if (r == 0)
		*ret = take_ptr(base);
	return r;
}

static int diff(struct api_call *c)
{
	_cleanup_profile_tree_ struct profile_tree *before = NULL, *after = NULL;
	_cleanup_profile_tree_ struct profile_tree *all = NULL, *t = NULL;
	_cleanup_profile_ struct profile *p = NULL, *base = NULL;
	_cleanup_query_ struct query q = {}, base_q = {};
	struct profile_tree_options o = {};
	bool normalize = false;
	s64 base_total = 0;
	int r = api_tree_options(c, &o);

	if (r == 0)
		r = api_flag(c, "normalize", &normalize);
	if (r == 0)
		r = get_profile(c, "", &q, &p);
	if (r == 0)
		r = get_base(c, p, &base_q, &base);
	if (r == 0)
		r = profile_tree_build(p, &o, &after);
	if (r == 0)
		r = profile_tree_build(base, &o, &before);
	if (r < 0)
		return r;
	base_total = before->nodes.data[0].total;
	if (normalize)
		scale(before, after->nodes.data[0].total);
	r = profile_tree_diff(before, after, &all);
	if (r == 0)
		r = prune_tree(c, all, &t);
	if (r < 0)
		return r;
	json_open_object(&c->json, NULL);
	put_head(&c->json, &q, p);
	json_open_object(&c->json, "base");
	put_head(&c->json, &base_q, base);
	json_put_s64(&c->json, "total", base_total);
	json_close(&c->json);
	json_put_bool(&c->json, "normalized", normalize);
	api_put_tree(&c->json, t);
	json_close(&c->json);
	return 0;
}

/* ---- tables ---- */

static int top(struct api_call *c)
{
	_cleanup_profile_table_ struct profile_table *t = NULL;
	_cleanup_profile_ struct profile *p = NULL;
	struct profile_tree_options o = {};
	_cleanup_query_ struct query q = {};
	struct api_list part;
	int r = api_rows_list(c, &part);

	if (r == 0)
		r = api_tree_options(c, &o);
	if (r == 0)
		r = get_profile(c, "", &q, &p);
	if (r == 0)
		r = profile_table_build(p, &o, &t);
	if (r < 0)
		return r;
	json_open_object(&c->json, NULL);
	put_head(&c->json, &q, p);
	json_put_s64(&c->json, "total", t->total);
	json_put_u64(&c->json, "functions", t->rows.n);
	api_choose_rows(t, &part);
	json_put_u64(&c->json, "matching", t->rows.n);
	r = api_put_rows(c, &q, p, t, &part);
	json_close(&c->json);
	return r;
}

static int find_format(struct api_call *c, const char *name, const struct profile_format **ret)
{
	*ret = profile_format_by_name(name);
	if (!*ret || !(*ret)->write)
		return diag_set(&c->d, -EINVAL,
				"no such format; culprit convert --help lists them");
	return 0;
}

static int put_file(struct api_call *c, const struct profile *p,
		    const struct profile_format *format, const struct profile_write_options *o)
{
	static const struct {
		const char *format, *type;
	} content[] = {{"svg", "image/svg+xml"},
		       {"html", "text/html; charset=utf-8"},
		       {"folded", "text/plain; charset=utf-8"},
		       {"pprof", "application/octet-stream"}};

	for (size_t i = 0; i < ARRAY_SIZE(content); i++)
		if (!strcmp(content[i].format, format->name))
			c->ret->content_type = content[i].type;
	return format->write(p, o, c->out, &c->d);
}

/* With diff=1 it writes two selections, in formats that can hold two. */
static int export(struct api_call *c)
{
	const char *name = net_parameter(c->r, "format");
	const struct profile_format *format = NULL;
	_cleanup_profile_ struct profile *p = NULL, *base = NULL;
	_cleanup_query_ struct query q = {}, base_q = {};
	struct profile_write_options o = {};
	bool two = false;
	int r = api_tree_options(c, &o.tree);

	if (r == 0)
		r = find_format(c, name ? name : "pprof", &format);
	if (r == 0)
		r = api_flag(c, "diff", &two);
	if (r == 0)
		r = api_flag(c, "normalize", &o.normalize);
	if (r == 0)
		r = get_profile(c, "", &q, &p);
	if (r == 0 && two)
		r = get_base(c, p, &base_q, &base);
	o.base = base;
	return r < 0 ? r : put_file(c, p, format, &o);
}

/*
 * With base_bytes the body begins with a file of that many bytes, the base that the rest is
 * compared with.
 */
static int read_files(struct api_call *c, struct profile **ret, struct profile **ret_base)
{
	const struct ingest_file f = {
		.format = net_parameter(c->r, "from_format"),
		.encoding = c->r->content_encoding,
	};
	_cleanup_profile_ struct profile *p = NULL, *base = NULL;
	u64 n = 0;
	int r = net_parameter(c->r, "base_bytes") ? api_number(c, "base_bytes", 1, c->r->n_body, &n)
						  : 0;

	if (r == 0 && n)
		r = ingest_read(c->a->o.ingest, c->r->body, n, &f, &base, &c->d);
	if (r == 0)
		r = ingest_read(c->a->o.ingest, c->r->body + n, c->r->n_body - n, &f, &p, &c->d);
	if (r == 0 && n)
		r = check_units(c, p, base);
	if (r == 0) {
		*ret = take_ptr(p);
		*ret_base = take_ptr(base);
	}
	return r;
}

/*
 * Converts a file into another format, or without a format into the data that the page draws.
 * Stores nothing.
 */
static int convert(struct api_call *c)
{
	const char *name = net_parameter(c->r, "format");
	const struct profile_format *format = NULL;
	_cleanup_profile_ struct profile *p = NULL, *base = NULL;
	struct profile_write_options o = {};
	int r = api_tree_options(c, &o.tree);

	if (r == 0 && name)
		r = find_format(c, name, &format);
	if (r == 0)
		r = api_flag(c, "normalize", &o.normalize);
	if (r == 0)
		r = read_files(c, &p, &base);
	if (r < 0)
		return r;
	o.base = base;
	if (format)
		return put_file(c, p, format, &o);
	c->ret->content_type = "application/x-culprit";
	return profile_write_payload(p, &o, false, c->out, &c->d);
}

/* ---- over time ---- */

/* Puts a line: the values of its labels, and its points. */
static void put_line(struct json_writer *w, const struct query_line *l, const char *const *group_by,
		     size_t n)
{
	const char *values = l->labels;

	json_open_object(w, NULL);
	json_open_object(w, "labels");
	for (size_t i = 0; i < n; i++) {
		json_put_text(w, group_by[i], values);
		values += strlen(values) + 1;
	}
	json_close(w);
	json_open_array(w, "points");
	for (size_t i = 0; i < l->points.n; i++) {
		json_open_array(w, NULL);
		json_put_u64(w, NULL, l->points.data[i].time_ms);
		json_put_s64(w, NULL, l->points.data[i].value);
		json_put_u64(w, NULL, l->points.data[i].count);
		json_close(w);
	}
	json_close(w);
	json_close(w);
}

static u64 default_step(const struct query *q, u64 points)
{
	u64 step = (q->to_ms - q->from_ms + points - 1) / points;

	return step < 1000 ? MAX(step, 1ULL) : (step + 999) / 1000 * 1000;
}

#define MAX_GROUP_BY 8
#define MAX_FUNCTIONS 50
static int series(struct api_call *c)
{
	__attribute__((cleanup(query_lines_deinit))) struct query_lines l = {};
	const char *group_by[MAX_GROUP_BY] = {};
	_cleanup_query_ struct query q = {};
	u64 step, functions = 0, others = 0;
	size_t n = 0;
	int r = api_query(c, "", &q);

	while (n < MAX_GROUP_BY && (group_by[n] = c->r->lookup(c->r, false, "group_by", n)))
		n++;
	step = r == 0 ? default_step(&q, 300) : 0;
	if (r == 0)
		r = api_number(c, "step", 1, 366ULL * 86400000, &step);
	if (r == 0)
		r = api_number(c, "functions", 1, MAX_FUNCTIONS, &functions);
	if (r == 0 && functions && n)
		r = diag_set(&c->d, -EINVAL, "either functions or group_by");
	if (r == 0 && functions) {
		r = query_functions(c->a->o.store, &q, step, functions, &l, &others, &c->d);
		group_by[0] = "function";
		n = 1;
	} else if (r == 0) {
		r = query_series(c->a->o.store, &q, step, group_by, n, &l, &c->d);
	}
	if (r < 0)
		return r;
	json_open_object(&c->json, NULL);
	json_put_u64(&c->json, "from", q.from_ms);
	json_put_u64(&c->json, "to", q.to_ms);
	json_put_u64(&c->json, "step", l.step_ms);
	json_put_bool(&c->json, "damaged", l.damaged);
	api_put_limited(&c->json, l.limited);
	if (functions)
		json_put_u64(&c->json, "others", others);
	json_open_array(&c->json, "series");
	for (size_t i = 0; i < l.lines.n; i++)
		put_line(&c->json, &l.lines.data[i], group_by, n);
	json_close(&c->json);
	json_close(&c->json);
	return 0;
}

/*
 * Both axes are time: a column is a range of column_ms, and a row a range of row_ms in it. If times
 * of samples are coarser than row_ms, rows get as coarse.
 */
static int heatmap(struct api_call *c)
{
	__attribute__((cleanup(query_lines_deinit))) struct query_lines l = {};
	_cleanup_query_ struct query q = {};
	u64 column_ms = 0, row_ms = 0, rows, columns;
	_cleanup_free_ s64 *cells = NULL;
	int r = api_query(c, "", &q);

	if (r == 0)
		r = api_number(c, "column", 1, 366ULL * 86400000, &column_ms);
	if (r == 0)
		r = api_number(c, "row", 1, 366ULL * 86400000, &row_ms);
	if (r < 0)
		return r;
	if (!column_ms)
		column_ms = default_step(&q, 200);
	if (!row_ms)
		row_ms = MAX(column_ms / 50, 1ULL);
	if (row_ms > column_ms || column_ms % row_ms || column_ms / row_ms > MAX_CELLS)
		return diag_set(&c->d, -EINVAL, "column must be a multiple of row");
	columns = (q.to_ms - q.from_ms + column_ms - 1) / column_ms;
	if (columns > MAX_CELLS || columns * (column_ms / row_ms) > MAX_CELLS)
		return diag_set(&c->d, -EINVAL, "at most %d cells", MAX_CELLS);
	r = query_series(c->a->o.store, &q, row_ms, NULL, 0, &l, &c->d);
	if (r < 0)
		return r;
	row_ms = MIN(MAX(l.step_ms, row_ms), column_ms);
	rows = (column_ms + row_ms - 1) / row_ms;
	cells = calloc(columns * rows, sizeof(*cells));
	if (!cells)
		return -ENOMEM;
	for (size_t i = 0; l.lines.n && i < l.lines.data[0].points.n; i++) {
		const struct query_point *p = &l.lines.data[0].points.data[i];
		u64 at = MAX(p->time_ms, q.from_ms) - q.from_ms;

		if (at / column_ms < columns) {
			s64 *cell = &cells[at / column_ms * rows + at % column_ms / row_ms];

			*cell = l.states ? p->value : *cell + p->value;
		}
	}
	json_open_object(&c->json, NULL);
	json_put_u64(&c->json, "from", q.from_ms);
	json_put_u64(&c->json, "to", q.to_ms);
	json_put_u64(&c->json, "column", column_ms);
	json_put_u64(&c->json, "row", row_ms);
	json_put_u64(&c->json, "columns", columns);
	json_put_u64(&c->json, "rows", rows);
	json_put_bool(&c->json, "damaged", l.damaged);
	api_put_limited(&c->json, l.limited);
	json_open_array(&c->json, "values");
	for (u64 i = 0; i < columns * rows; i++)
		json_put_s64(&c->json, NULL, cells[i]);
	json_close(&c->json);
	json_close(&c->json);
	return 0;
}

/* ---- the server itself ---- */

static void put_store_stats(struct json_writer *w, const struct store_stats *s)
{
	json_open_object(w, "store");
	json_put_text(w, "where", s->where);
	json_put_u64(w, "bytes", s->bytes);
	json_put_u64(w, "rows", s->rows);
	json_put_u64(w, "samples", s->samples);
	json_put_u64(w, "first", s->first_ms);
	json_put_u64(w, "last", s->last_ms);
	json_put_u64(w, "series", s->series);
	json_put_u64(w, "functions", s->functions);
	json_put_u64(w, "frames", s->frames);
	json_put_u64(w, "stacks", s->stacks);
	json_put_u64(w, "names", s->names);
	json_put_u64(w, "damaged", s->damaged);
	json_put_u64(w, "evicted_rows", s->evicted_rows);
	json_put_u64(w, "spans", s->spans);
	json_put_u64(w, "span_samples", s->span_samples);
	json_put_u64(w, "span_bytes", s->span_bytes);
	json_put_u64(w, "evicted_spans", s->evicted_spans);
	json_put_u64(w, "refused_writes", s->refused_writes);
	json_close(w);
}

static void put_ingest_stats(struct json_writer *w, const struct ingest_stats *i)
{
	json_open_object(w, "ingest");
	json_put_u64(w, "requests", i->requests);
	json_put_u64(w, "refused", i->refused);
	json_put_u64(w, "profiles", i->profiles);
	json_put_u64(w, "samples", i->samples);
	json_put_u64(w, "spans", i->spans);
	json_put_u64(w, "bytes", i->bytes);
	json_open_object(w, "limited");
	for (u32 k = 0; k < INGEST_LIMITS; k++)
		json_put_u64(w, ingest_limit_name(k), i->limited[k]);
	json_close(w);
	json_close(w);
}

static int stats(struct api_call *c)
{
	struct store_stats s = {};
	struct ingest_stats i = {};
	int r = store_get_stats(c->a->o.store, &s, &c->d);

	if (r < 0)
		return r;
	ingest_stats(c->a->o.ingest, &i);
	json_open_object(&c->json, NULL);
	json_put_text(&c->json, "version", CULPRIT_VERSION);
	put_store_stats(&c->json, &s);
	put_ingest_stats(&c->json, &i);
	json_put_u64(&c->json, "uptime_ms", clock_epoch_ms() - c->a->started_ms);
	json_close(&c->json);
	return 0;
}

static int health(struct api_call *c)
{
	struct store_stats s = {};
	int r = store_get_stats(c->a->o.store, &s, &c->d);

	if (r < 0)
		return diag_set(&c->d, -EAGAIN, "the store does not answer");
	json_open_object(&c->json, NULL);
	json_put_text(&c->json, "status",
		      s.failing[0] ? s.failing : (s.damaged ? "damaged" : "ok"));
	json_put_u64(&c->json, "evicted_to", s.evicted_to_ms);
	json_put_u64(&c->json, "spans_evicted_to", s.spans_evicted_to_ms);
	json_open_array(&c->json, "events");
	if (c->a->o.events)
		c->a->o.events(c->a->o.userdata, &c->json);
	json_close(&c->json);
	json_close(&c->json);
	return 0;
}

static void put_refusals(struct str *out, const struct ingest_stats *i)
{
	const struct {
		const char *name, *help;
		const u64 *counts;
	} families[] = {
		{"culprit_ingest_refused_samples_total",
		 "Rows of samples in profiles refused for their times or values.",
		 i->refused_samples},
		{"culprit_ingest_refused_spans_total", "Spans refused for their times.",
		 i->refused_spans},
	};

	for (size_t f = 0; f < ARRAY_SIZE(families); f++) {
		metrics_family(out, families[f].name, families[f].help);
		for (int k = 0; k < INGEST_REASON_N; k++)
			metrics_sample(out, families[f].name,
				       METRICS_LABELS({"reason", ingest_reason(k)}),
				       (double)families[f].counts[k]);
	}
}

static int metrics(struct api_call *c)
{
	struct store_stats s = {};
	struct ingest_stats i = {};
	struct symstore_stats y = {};
	int r = store_get_stats(c->a->o.store, &s, &c->d);

	ingest_stats(c->a->o.ingest, &i);
	if (c->a->o.symbols)
		symstore_stats(c->a->o.symbols, &y);
	c->ret->content_type = "text/plain; version=0.0.4; charset=utf-8";
#define METRIC(name, help, value) metrics_single(c->out, "culprit_" name, help, (double)(value))
	METRIC("store_up", "Whether the store answers.", r == 0);
	METRIC("store_bytes", "Bytes on disk.", s.bytes);
	METRIC("store_rows", "Rows of samples.", s.rows);
	METRIC("store_series", "Known series.", s.series);
	METRIC("store_stacks", "Known stacks.", s.stacks);
	METRIC("store_names", "Known names of services and types.", s.names);
	METRIC("store_damaged", "Blocks that could not be read.", s.damaged);
	METRIC("store_evicted_rows_total", "Rows dropped by size or age.", s.evicted_rows);
	METRIC("store_failing", "Whether the last write was refused.", s.failing[0] != '\0');
	METRIC("store_refused_writes_total", "Writes refused, such as on a full disk.",
	       s.refused_writes);
	METRIC("store_spans", "Spans.", s.spans);
	METRIC("store_span_samples", "Samples that lie by their span, too.", s.span_samples);
	METRIC("store_span_bytes", "Bytes on disk of these and of spans.", s.span_bytes);
	METRIC("store_evicted_spans_total", "Spans dropped by size, age or thinning.",
	       s.evicted_spans);
	METRIC("ingest_requests_total", "Requests that brought something.", i.requests);
	METRIC("ingest_refused_total", "Of these, refused.", i.refused);
	METRIC("ingest_profiles_total", "Profiles stored.", i.profiles);
	METRIC("ingest_samples_total", "Rows of samples stored.", i.samples);
	METRIC("ingest_spans_total", "Spans stored.", i.spans);
	METRIC("ingest_bytes_total", "Bytes of these requests, as sent.", i.bytes);
	METRIC("clock_doubted", "Whether the clock stepped: ages count from an earlier time.",
	       i.clock_doubted);
	METRIC("symbols_files", "Debug files that are here.", y.files);
	METRIC("symbols_bytes", "Bytes of them.", y.bytes);
	METRIC("symbols_named_frames_total", "Frames that got names by them.", y.named);
#undef METRIC
	put_refusals(c->out, &i);
	metrics_family(c->out, "culprit_ingest_limited_total",
		       "Samples, and labels, that are beyond a limit of cardinality.");
	for (u32 k = 0; k < INGEST_LIMITS; k++)
		metrics_sample(c->out, "culprit_ingest_limited_total",
			       METRICS_LABELS({"kind", ingest_limit_name(k)}),
			       (double)i.limited[k]);
	metrics_family(c->out, "culprit_answers_total", "Answers by status.");
	for (u32 k = 2; k < 6; k++) {
		char status[] = {(char)('0' + k), 'x', 'x', '\0'};

		metrics_sample(c->out, "culprit_answers_total", METRICS_LABELS({"status", status}),
			       (double)atomic_load(&c->a->answers[k]));
	}
	if (c->a->o.metrics)
		c->a->o.metrics(c->a->o.userdata, c->out);
	return 0;
}

static int healthz(struct api_call *c)
{
	c->ret->content_type = "text/plain; charset=utf-8";
	str_puts(c->out, "ok\n");
	return 0;
}

static int openapi(struct api_call *c)
{
	str_append(c->out, openapi_json, openapi_json_n);
	return 0;
}

#define R NET_ROLE_READ
const struct api_route api_view_routes[] = {
	{"GET", "/api/v1/types", R, API_STYLE_JSON, types},
	{"GET", "/api/v1/labels", R, API_STYLE_JSON, labels},
	{"GET", "/api/v1/label-values", R, API_STYLE_JSON, label_values},
	{"GET", "/api/v1/series", R, API_STYLE_JSON, series},
	{"GET", "/api/v1/flamegraph", R, API_STYLE_JSON, flamegraph},
	{"GET", "/api/v1/top", R, API_STYLE_JSON, top},
	{"GET", "/api/v1/heatmap", R, API_STYLE_JSON, heatmap},
	{"GET", "/api/v1/diff", R, API_STYLE_JSON, diff},
	{"GET", "/api/v1/export", R, API_STYLE_JSON, export},
	{"POST", "/api/v1/convert", R, API_STYLE_JSON, convert},
	{"GET", "/api/v1/stats", R, API_STYLE_JSON, stats},
	{"GET", "/api/v1/health", R, API_STYLE_JSON, health},
	{"GET", "/api/v1/openapi.json", R, API_STYLE_JSON, openapi},
	{"GET", "/metrics", R, API_STYLE_JSON, metrics},
	{"GET", "/healthz", NET_ROLE_NONE, API_STYLE_JSON, healthz},
	{},
};
