/* SPDX-License-Identifier: Apache-2.0 */
#include "server/query/query.h"

#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "regex/regex.h"
#include "server/query/lex.h"
#include "server/query/plan.h"

#define MAX_MATCHERS 64
#define SERVICE_LABEL "service.name"

void query_deinit(struct query *q)
{
	vec_foreach (&q->matchers, m) {
		free(m->label);
		free(m->value);
	}
	vec_deinit(&q->matchers);
	free(q->type);
	free(q->also);
	free(q->stacks);
	free(q->group_by);
	free(q->spans.service);
	free(q->spans.endpoint);
	*q = (struct query){};
}

/* ---- selectors ---- */

static int take_word(struct lex *l, char **ret)
{
	char *word = strdup(str_get(&l->word));

	if (!word)
		return -ENOMEM;
	free(*ret);
	*ret = word;
	return lex_next(l);
}

static int parse_match(struct lex *l, enum query_match *ret)
{
	static const char *const operators[] = {"=", "!=", "=~", "!~"};

	for (u32 i = 0; i < ARRAY_SIZE(operators); i++)
		if (lex_is(l, LEX_OPERATOR, operators[i])) {
			*ret = i;
			return lex_next(l);
		}
	return lex_fail(l, "=, !=, =~ or !~");
}

static int check_regex(const struct query *q, const char *pattern, struct diag *reterr_diag)
{
	_cleanup_regex_ struct regex *regex = NULL;
	u32 n = 1;

	for (size_t i = 0; i < q->matchers.n; i++)
		n += q->matchers.data[i].match >= QUERY_REGEX;
	if (n > QUERY_MAX_REGEXES)
		return diag_set(reterr_diag, -EINVAL, "more than %d regular expressions",
				QUERY_MAX_REGEXES);
	return regex_create(pattern, true, reterr_diag, &regex);
}

static int parse_matcher(struct query *q, struct lex *l)
{
	struct query_matcher m = {};
	int r;

	if (q->matchers.n >= MAX_MATCHERS)
		return diag_set(l->diag, -EINVAL, "more than %d conditions", MAX_MATCHERS);
	r = l->kind == LEX_WORD || l->kind == LEX_STRING ? take_word(l, &m.label)
							 : lex_fail(l, "a label's name");
	if (r == 0)
		r = parse_match(l, &m.match);
	if (r == 0)
		r = l->kind == LEX_STRING ? take_word(l, &m.value)
					  : lex_fail(l, "a string in quotes");
	if (r == 0 && m.match >= QUERY_REGEX)
		r = check_regex(q, m.value, l->diag);
	if (r == 0)
		r = vec_push(&q->matchers, m);
	if (r < 0) {
		free(m.label);
		free(m.value);
	}
	return r;
}

int query_parse_selector(struct query *q, const char *text, struct diag *reterr_diag)
{
	_cleanup_lex_ struct lex l = {};
	int r = lex_init(&l, text, reterr_diag);

	if (r == 0 && l.kind == LEX_WORD)
		r = take_word(&l, &q->type);
	if (r == 0 && l.kind == LEX_END)
		return 0;
	if (r == 0)
		r = lex_is(&l, LEX_OTHER, "{") ? lex_next(&l) : lex_fail(&l, "'{'");
	while (r == 0 && !lex_is(&l, LEX_OTHER, "}")) {
		r = parse_matcher(q, &l);
		if (r == 0 && lex_is(&l, LEX_OTHER, ","))
			r = lex_next(&l);
		else if (r == 0 && !lex_is(&l, LEX_OTHER, "}"))
			r = lex_fail(&l, "',' or '}'");
	}
	if (r == 0)
		r = lex_next(&l);
	return r == 0 && l.kind != LEX_END ? lex_fail(&l, "the end") : r;
}

/* ---- plan ---- */

bool plan_label_is(const char *asked, const char *name)
{
	if (!strcmp(asked, QUERY_PRIVATE_SERVICE))
		asked = SERVICE_LABEL;
	while (*asked && (*asked == *name || (*asked == '_' && *name == '.'))) {
		asked++;
		name++;
	}
	return !*asked && !*name;
}

/* ---- labels that are derived, most of them from the type ---- */

const char *const query_derived_labels[] = {
	"__profile_type__", "__name__",	       "__type__",	     "__unit__",
	"__period_type__",  "__period_unit__", QUERY_PRIVATE_SERVICE};

const char *query_type_label(const struct store_type *t, const char *type, const char *name)
{
	const char *const values[] = {type,    t->profile, t->name,
				      t->unit, t->period,  t->period_unit};

	for (size_t i = 0; i < ARRAY_SIZE(values); i++)
		if (!strcmp(name, query_derived_labels[i]))
			return values[i];
	return NULL;
}

/* Parses the type of each series once. */
static int parse_types(struct plan *p)
{
	vec_foreach (&p->set.series, e) {
		struct store_type *t;

		if (map_get(&p->types, e->type))
			continue;
		t = malloc(sizeof(*t));
		if (!t || map_put(&p->types, e->type, (u64)(uintptr_t)t) < 0) {
			free(t);
			return -ENOMEM;
		}
		if (store_type_parse(profile_string(p->set.profile, e->type), t) < 0)
			(void)store_type_parse("", t);
	}
	return 0;
}

const char *plan_label(const struct plan *p, const struct store_found_series *s, const char *name)
{
	const struct profile *set = p->set.profile;
	const struct profile_resource *r = &set->resources.data[s->resource];
	const char *value = profile_label(set, s->resource, name);
	const u64 *type = map_get(&p->types, s->type);

	if (!value && type && str_starts(name, "__"))
		value = query_type_label((const struct store_type *)(uintptr_t)*type,
					 profile_string(set, s->type), name);
	if (value)
		return value;
	for (u32 i = 0; i < r->n; i++) {
		const struct profile_label *l = &set->labels.data[r->first + i];

		if (plan_label_is(name, profile_string(set, l->name)))
			return profile_string(set, l->value);
	}
	return p->running && !strcmp(name, PROFILE_WAIT) ? vocab_wait(WAIT_RUNNING)->name : "";
}

struct matcher {
	const struct query_matcher *m;
	struct regex *regex; /* owned; NULL: the value itself */
};

struct matchers {
	vec(struct matcher) list;
};

static void matchers_deinit(struct matchers *m)
{
	vec_foreach (&m->list, e)
		regex_destroy(e->regex);
	vec_deinit(&m->list);
}

static int matchers_init(struct matchers *m, const struct query *q, struct diag *reterr_diag)
{
	int r = 0;

	for (size_t i = 0; i < q->matchers.n && r == 0; i++) {
		struct matcher e = {.m = &q->matchers.data[i]};

		if (e.m->match >= QUERY_REGEX)
			r = regex_create(e.m->value, true, reterr_diag, &e.regex);
		if (r == 0 && vec_push(&m->list, e) < 0) {
			regex_destroy(e.regex);
			r = -ENOMEM;
		}
	}
	return r;
}

/* 1 or 0, or a negative errno. */
static int passes_matchers(const struct plan *p, const struct matchers *m,
			   const struct store_found_series *s, struct diag *reterr_diag)
{
	for (size_t i = 0; i < m->list.n; i++) {
		const struct matcher *e = &m->list.data[i];
		const char *value = plan_label(p, s, e->m->label);
		int yes = e->regex ? regex_match(e->regex, value, reterr_diag)
				   : !strcmp(value, e->m->value);

		if (yes < 0)
			return yes;
		if (yes != (e->m->match == QUERY_EQUAL || e->m->match == QUERY_REGEX))
			return 0;
	}
	return 1;
}

static int compare_series(const void *a, const void *b)
{
	const struct store_found_series *x = a, *y = b;

	if (x->id != y->id)
		return x->id < y->id ? -1 : 1;
	return x->type < y->type ? -1 : x->type > y->type;
}

/* The best type in the range, by store_type_is_better(). */
static int choose_type(struct plan *p, struct store *s, const struct query *q,
		       struct diag *reterr_diag)
{
	const struct store_filter f = {
		.from_ms = q->from_ms, .to_ms = q->to_ms, .service = p->service};
	_cleanup_store_rows_ struct store_rows rows = {};
	u64 most = 0;
	int r = store_scan(s, &f, STORE_BY_TYPE | STORE_COUNTS, 0, &rows, reterr_diag);

	for (size_t i = 0; r == 0 && i < rows.rows.n; i++) {
		const char *type = strtab_get(&rows.names, rows.rows.data[i].type);
		u64 count = rows.rows.data[i].count;

		if (store_type_is_better(type, count, p->type, most)) {
			most = count;
			snprintf(p->type, sizeof(p->type), "%s", type);
		}
	}
	return r;
}

static int choose_series(struct plan *p, const struct query *q, bool one_type,
			 struct diag *reterr_diag)
{
	__attribute__((cleanup(matchers_deinit))) struct matchers m = {};
	int r = matchers_init(&m, q, reterr_diag);

	for (size_t i = 0; i < p->set.series.n && r == 0; i++) {
		const struct store_found_series *e = &p->set.series.data[i];

		if (one_type && strcmp(profile_string(p->set.profile, e->type), p->type))
			continue;
		r = passes_matchers(p, &m, e, reterr_diag);
		if (r == 0)
			p->all = false;
		else if (r > 0)
			r = vec_push(&p->series, *e);
	}
	if (r == 0 && p->series.n)
		qsort(p->series.data, p->series.n, sizeof(*p->series.data), compare_series);
	for (size_t i = 0; i < p->series.n && r == 0; i++)
		if (!i || p->series.data[i].id != p->series.data[i - 1].id)
			r = vec_push(&p->ids, p->series.data[i].id);
	return r;
}

/* Whether the selectors select everything, or everything of p->service. */
static bool selects_all(const struct plan *p, const struct query *q)
{
	return !q->matchers.n || (q->matchers.n == 1 && p->service);
}

static int find_series(struct plan *p, struct store *s, const struct query *q, bool one_type,
		       struct diag *reterr_diag)
{
	const struct store_filter f = {
		.from_ms = q->from_ms, .to_ms = q->to_ms, .type = q->type, .service = p->service};
	int r = store_find_series(s, &f, &p->set, reterr_diag);

	if (r == 0)
		r = parse_types(p);
	return r < 0 ? r : choose_series(p, q, one_type, reterr_diag);
}

int plan_init(struct plan *p, struct store *s, const struct query *q, u32 flags,
	      struct diag *reterr_diag)
{
	bool one_type = flags & PLAN_ONE_TYPE;
	int r = 0;

	*p = (struct plan){.all = true};
	if (q->from_ms >= q->to_ms)
		return diag_set(reterr_diag, -EINVAL, "the range ends before it starts");
	for (size_t i = 0; i < q->matchers.n; i++)
		if (q->matchers.data[i].match == QUERY_EQUAL && q->matchers.data[i].value[0] &&
		    plan_label_is(q->matchers.data[i].label, SERVICE_LABEL))
			p->service = q->matchers.data[i].value;
	if (q->type)
		snprintf(p->type, sizeof(p->type), "%s", q->type);
	else if (one_type)
		r = choose_type(p, s, q, reterr_diag);
	p->running = q->whole_time && store_type_cpu_seconds(p->type) > 0;
	if (r < 0 || (!(flags & PLAN_SERIES) && selects_all(p, q)))
		return r;
	r = find_series(p, s, q, one_type, reterr_diag);
	return r == 0 && q->strict ? plan_check_names(p, s, q, reterr_diag) : r;
}

int plan_init_series(struct plan *p, struct store *s, const struct query *q,
		     struct diag *reterr_diag)
{
	int r;

	*p = (struct plan){.all = true};
	if (!q->matchers.n)
		return 0;
	r = plan_init(p, s, q, PLAN_SERIES, reterr_diag);
	/* All series of one service are not everything. */
	p->all = false;
	return r;
}

static int compare_ids(const void *a, const void *b)
{
	u64 x = *(const u64 *)a, y = *(const u64 *)b;

	return x < y ? -1 : x > y;
}

bool plan_has_series(const struct plan *p, u64 id)
{
	return p->all || (p->ids.n && bsearch(&id, p->ids.data, p->ids.n, sizeof(id), compare_ids));
}

void plan_deinit(struct plan *p)
{
	map_foreach (&p->types, e)
		free((void *)(uintptr_t)e->value);
	map_deinit(&p->types);
	store_series_set_deinit(&p->set);
	vec_deinit(&p->series);
	vec_deinit(&p->ids);
}

static const u64 no_ids[1];

struct store_filter plan_filter(const struct plan *p, const struct query *q)
{
	return (struct store_filter){
		.from_ms = q->from_ms,
		.to_ms = q->to_ms,
		.type = p->type,
		.service = p->service,
		/* A filter with an empty list selects nothing. */
		.series = p->all	? NULL
			  : p->ids.data ? p->ids.data
					: no_ids,
		.n_series = p->all ? 0 : p->ids.n,
	};
}

bool plan_selects_stacks(const struct query *q)
{
	return (q->stacks && *q->stacks) || q->n_call_site;
}

int plan_predicate(const struct query *q, struct query_stacks **ret, struct diag *reterr_diag)
{
	int r = query_stacks_parse(q->stacks, reterr_diag, ret);

	if (r == 0)
		query_stacks_below(*ret, q->call_site, q->n_call_site);
	return r;
}

int plan_match_stacks(struct store *s, const struct query *q, const u64 *ids, size_t n,
		      u8 *ret_match, struct diag *reterr_diag)
{
	_cleanup_query_stacks_ struct query_stacks *parsed = NULL;
	_cleanup_profile_ struct profile *p = profile_create();
	_cleanup_free_ u32 *stacks = calloc(n + 1, sizeof(*stacks));
	int r = p && stacks ? plan_predicate(q, &parsed, reterr_diag) : -ENOMEM;

	if (r == 0)
		r = store_load_stacks(s, ids, n, p, stacks, reterr_diag);
	if (r == 0)
		r = query_stacks_profile(parsed, p);
	for (size_t i = 0; r >= 0 && i < n; i++) {
		if (stacks[i] == PROFILE_NONE)
			continue;
		r = query_stacks_match(parsed, stacks[i], reterr_diag);
		ret_match[i] = r > 0;
	}
	return MIN(r, 0);
}

int plan_stacks(struct store *s, const struct query *q, const struct store_filter *f,
		struct store_ids *ret, bool *ret_any, bool *ret_damaged, struct diag *reterr_diag)
{
	_cleanup_query_stacks_ struct query_stacks *parsed = NULL;
	_cleanup_free_ u64 *ids = NULL;
	_cleanup_free_ u8 *match = NULL;
	struct store_rows rows = {};
	size_t n;
	int r;

	*ret_any = plan_selects_stacks(q);
	if (!*ret_any)
		return 0;
	/* Reports errors of the predicate before anything is read. */
	r = plan_predicate(q, &parsed, reterr_diag);
	if (r == 0)
		r = store_scan(s, f, STORE_BY_STACK, 0, &rows, reterr_diag);
	n = rows.rows.n;
	ids = calloc(n + 1, sizeof(*ids));
	match = calloc(n + 1, 1);
	if (r == 0 && (!ids || !match))
		r = -ENOMEM;
	for (size_t i = 0; r == 0 && i < n; i++)
		ids[i] = rows.rows.data[i].stack;
	*ret_damaged |= rows.damaged;
	store_rows_deinit(&rows);
	if (r == 0)
		r = plan_match_stacks(s, q, ids, n, match, reterr_diag);
	for (size_t i = 0; r == 0 && i < n; i++)
		if (match[i])
			r = vec_push(&ret->ids, ids[i]);
	if (r == 0 && ret->ids.n)
		qsort(ret->ids.data, ret->ids.n, sizeof(*ret->ids.data), compare_ids);
	return r;
}

size_t plan_states(const struct store_rows *rows, size_t first, u64 *ret_states)
{
	const struct store_row *data = rows->rows.data;
	u64 states = 1;
	size_t i = first;

	for (; i < rows->rows.n && data[i].time_ms == data[first].time_ms &&
	       data[i].series == data[first].series;
	     i++)
		states = MAX(states, data[i].count);
	*ret_states = states;
	return i;
}

void plan_take_means(struct store_rows *rows, const struct map *weights)
{
	u64 states;

	for (size_t i = 0, end; i < rows->rows.n; i = end) {
		end = plan_states(rows, i, &states);
		for (size_t k = i; k < end; k++) {
			s64 *value = &rows->rows.data[k].value;

			*value = llround((double)*value / (double)states *
					 plan_weight(weights, rows->rows.data[k].series));
		}
	}
}

/* ---- names ---- */

void query_names_deinit(struct query_names *n)
{
	vec_foreach (&n->names, e)
		free(e->name);
	vec_deinit(&n->names);
}

struct naming {
	struct map known; /* string id → position */
	const struct profile *set;
	struct query_names names;
};

static int note_name(struct naming *n, u32 name, const struct store_found_series *s)
{
	u64 *at = map_get(&n->known, name);
	struct query_name *e;

	if (!at) {
		struct query_name new = {.name = strdup(profile_string(n->set, name))};

		if (!new.name || map_put(&n->known, name, n->names.names.n) < 0 ||
		    vec_push(&n->names.names, new) < 0) {
			free(new.name);
			return -ENOMEM;
		}
		e = &n->names.names.data[n->names.names.n - 1];
	} else {
		e = &n->names.names.data[*at];
	}
	e->n_series++;
	e->last_ms = MAX(e->last_ms, s->last_ms);
	return 0;
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(((const struct query_name *)a)->name, ((const struct query_name *)b)->name);
}

enum asked { ASKED_LABELS, ASKED_VALUES, ASKED_TYPES };

static int note_labels(struct naming *n, const struct store_found_series *s, const char *label)
{
	const struct profile_resource *r = &n->set->resources.data[s->resource];
	const char *exact = label ? profile_label(n->set, s->resource, label) : NULL;

	for (u32 i = 0; i < r->n; i++) {
		const struct profile_label *l = &n->set->labels.data[r->first + i];
		const char *name = profile_string(n->set, l->name);
		int res;

		if (label && (exact ? strcmp(name, label) : !plan_label_is(label, name)))
			continue;
		res = note_name(n, label ? l->value : l->name, s);
		if (res < 0 || label)
			return res;
	}
	return 0;
}

static int names(struct store *s, const struct query *q, enum asked asked, const char *label,
		 struct query_names *ret, struct diag *reterr_diag)
{
	_cleanup_plan_ struct plan p = {};
	struct naming n = {};
	int r = plan_init(&p, s, q, PLAN_SERIES, reterr_diag);

	n.set = p.set.profile;
	for (size_t i = 0; i < p.series.n && r == 0; i++) {
		const struct store_found_series *e = &p.series.data[i];

		if (asked == ASKED_TYPES)
			r = note_name(&n, e->type, e);
		else if (!i || e[-1].id != e->id) /* once for all types of the series */
			r = note_labels(&n, e, label);
	}
	map_deinit(&n.known);
	if (r == 0 && q->strict && label && !n.names.names.n)
		r = plan_check_label(s, label, reterr_diag);
	if (r < 0) {
		query_names_deinit(&n.names);
		return diag_set(reterr_diag, r, "%s", strerror(-r));
	}
	if (n.names.names.n)
		qsort(n.names.names.data, n.names.names.n, sizeof(struct query_name),
		      compare_names);
	n.names.limited = plan_limited(&p);
	*ret = n.names;
	return 0;
}

int query_label_names(struct store *s, const struct query *q, struct query_names *ret,
		      struct diag *reterr_diag)
{
	return names(s, q, ASKED_LABELS, NULL, ret, reterr_diag);
}

int query_label_values(struct store *s, const struct query *q, const char *label,
		       struct query_names *ret, struct diag *reterr_diag)
{
	return names(s, q, ASKED_VALUES, label, ret, reterr_diag);
}

int query_types(struct store *s, const struct query *q, struct query_names *ret,
		struct diag *reterr_diag)
{
	return names(s, q, ASKED_TYPES, NULL, ret, reterr_diag);
}
