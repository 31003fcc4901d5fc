/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads samples: ClickHouse adds up the samples, the culprit server sorts the sums and looks up
 * labels.
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "server/store/clickhouse/clickhouse.h"

#define MAX_RESULT_ROWS (16u << 20)

/* ---- conditions ---- */

static void put_ids(struct str *sql, const char *column, const u64 *ids, size_t n)
{
	if (!ids)
		return;
	str_printf(sql, " AND %s IN (", column);
	ch_sql_ids(sql, ids, n);
	str_putc(sql, ')');
}

/* The first day whose partitions can have samples of the range. */
static u32 first_day(const struct store_filter *f)
{
	return ch_day_of(MIN(f->from_ms, 1ULL << 42));
}

static void put_range(struct str *sql, const struct store_filter *f)
{
	u64 from_hour = f->from_ms / CH_HOUR_MS, from_at = f->from_ms % CH_HOUR_MS;
	u64 to_hour = f->to_ms / CH_HOUR_MS, to_at = f->to_ms % CH_HOUR_MS;

	/* The day of a row is that of the newest sample in its batch, so set no upper bound. */
	if (f->from_ms)
		str_printf(sql, " AND day >= %u AND hour >= %llu", first_day(f), from_hour);
	if (from_at)
		str_printf(sql, " AND (hour > %llu OR at >= %llu)", from_hour, from_at);
	if (to_hour >= UINT32_MAX)
		return;
	if (to_at)
		str_printf(sql, " AND hour <= %llu AND (hour < %llu OR at < %llu)", to_hour,
			   to_hour, to_at);
	else
		str_printf(sql, " AND hour < %llu", to_hour);
}

/* Selects raw partitions that are not superseded, and open runs. */
static void put_visible(struct str *sql, const struct ch_partitions *p, u32 from_day)
{
	const char *separator = " AND (run = 0 OR run IN (";

	for (size_t i = 0; i < p->list.n; i++) {
		const struct ch_partition *e = &p->list.data[i];

		if (!e->run && e->day >= from_day && ch_is_hidden(p, e))
			str_printf(sql, " AND NOT (day = %u AND run = 0)", e->day);
	}
	for (size_t i = 0; i < p->list.n; i++) {
		const struct ch_partition *e = &p->list.data[i];

		if (!e->run || e->day < from_day || ch_is_hidden(p, e))
			continue;
		str_printf(sql, "%s%u", separator, e->run);
		separator = ",";
	}
	str_puts(sql, *separator == ',' ? "))" : " AND run = 0");
}

int ch_put_where(struct ch *s, const struct store_filter *f, bool ids, struct str *sql,
		 struct diag *reterr_diag)
{
	_cleanup_ch_partitions_ struct ch_partitions partitions = {};
	int r = ch_partitions_get(s, false, &partitions, reterr_diag);

	if (r < 0)
		return r;
	str_puts(sql, " FROM samples WHERE 1");
	put_range(sql, f);
	if (f->service) {
		str_puts(sql, " AND service = ");
		ch_sql_string(sql, f->service);
	}
	if (f->type) {
		str_puts(sql, " AND type = ");
		ch_sql_string(sql, f->type);
	} else {
		str_puts(sql, " AND type != ''"); /* no markers */
	}
	put_visible(sql, &partitions, first_day(f));
	if (ids) {
		put_ids(sql, "series", f->series, f->n_series);
		put_ids(sql, "stack", f->stacks, f->n_stacks);
	}
	return 0;
}

/* ---- queries ---- */

/* The whole hours that the range touches. */
static struct store_filter whole_hours(const struct store_filter *f)
{
	struct store_filter wide = *f;

	wide.from_ms -= f->from_ms % CH_HOUR_MS;
	if (f->to_ms % CH_HOUR_MS && f->to_ms / CH_HOUR_MS < UINT32_MAX)
		wide.to_ms += CH_HOUR_MS - f->to_ms % CH_HOUR_MS;
	return wide;
}

static bool same_range(const struct store_filter *a, const struct store_filter *b)
{
	return a->from_ms == b->from_ms && a->to_ms == b->to_ms;
}

/* Whether all samples are in the range; whether one may be. */
static bool is_within(const struct store_found_series *e, const struct store_filter *f)
{
	return e->first_ms >= f->from_ms && e->last_ms < f->to_ms;
}

static bool overlaps(const struct store_found_series *e, const struct store_filter *f)
{
	return e->last_ms >= f->from_ms && e->first_ms < f->to_ms;
}

/*
 * A query is split into up to three ranges: whole hours, whose sums are in the projections
 * (schema.c), the rest of the first hour, and the rest of the last hour. The sums of the three are
 * added up.
 */
struct query {
	const char *with;    /* a WITH clause that defines a key which is not a column */
	const char *keys;    /* "a, b, " */
	const char *sums;    /* sums over one range, with AS names */
	const char *of_sums; /* sums over the ranges, of these names; types as those of `sums` */
	bool ids;	     /* select the filter's series and stacks, too */
	bool by_hour;	     /* a projection may have the sums */
};

static void put_group(struct str *sql, const char *keys)
{
	if (*keys)
		str_printf(sql, " GROUP BY %.*s", (int)strlen(keys) - 2, keys);
}

static int put_query(struct ch *s, const struct store_filter *f, const struct query *q,
		     struct str *sql, struct diag *reterr_diag)
{
	u64 first = f->from_ms / CH_HOUR_MS + !!(f->from_ms % CH_HOUR_MS);
	u64 end = f->to_ms / CH_HOUR_MS;
	u64 cuts[] = {f->from_ms, f->from_ms, f->from_ms, f->to_ms};
	const char *separator = "";
	bool split = s->modern && q->by_hour && first < end &&
		     (f->from_ms % CH_HOUR_MS || f->to_ms % CH_HOUR_MS);
	int r = 0;

	if (split) {
		cuts[1] = first * CH_HOUR_MS;
		cuts[2] = end * CH_HOUR_MS;
		str_printf(sql, "SELECT %s%s FROM (", q->keys, q->of_sums);
	}
	for (size_t i = 0; i + 1 < ARRAY_SIZE(cuts) && r == 0; i++) {
		struct store_filter range = *f;

		if (cuts[i] == cuts[i + 1])
			continue;
		range.from_ms = cuts[i];
		range.to_ms = cuts[i + 1];
		str_printf(sql, "%s%sSELECT %s%s", separator, q->with, q->keys, q->sums);
		r = ch_put_where(s, &range, q->ids, sql, reterr_diag);
		put_group(sql, q->keys);
		separator = " UNION ALL ";
	}
	if (split) {
		str_putc(sql, ')');
		put_group(sql, q->keys);
	}
	return r;
}

/* ---- scan ---- */

/* Whether a projection has the sums of hours for such a scan. */
static bool is_by_hour(const struct store_filter *f, u32 by)
{
	bool stacks = by & STORE_BY_STACK || f->stacks, series = by & STORE_BY_SERIES || f->series;

	return !(by & STORE_BY_TIME) && !(stacks && series);
}

/* What the filter fixes is no key: ClickHouse adds up rows with one key in half the time. */
static u32 keys_of(const struct store_filter *f, u32 by)
{
	return by & ~(u32)((f->service ? STORE_BY_SERVICE : 0) | (f->type ? STORE_BY_TYPE : 0));
}

static int put_scan(struct ch *s, const struct store_filter *f, u32 by, u64 step_ms,
		    struct str *sql, struct diag *reterr_diag)
{
	char with[160] = "", keys[96];
	const struct query q = {
		.with = with,
		.keys = keys,
		.sums = "sum(count) AS c, sum(value) AS v, max(resolution) AS r",
		.of_sums = "toUInt64(sum(c)), toInt64(sum(v)), toUInt32(max(r))",
		.ids = true,
		.by_hour = is_by_hour(f, by),
	};
	int r;

	if (by & STORE_BY_TIME)
		snprintf(
			with, sizeof(with),
			"WITH toUInt64(intDiv(toUInt64(hour) * 3600000 + at - %llu, %llu)) AS step ",
			f->from_ms, step_ms);
	by = keys_of(f, by);
	snprintf(keys, sizeof(keys), "%s%s%s%s%s", by & STORE_BY_TIME ? "step, " : "",
		 by & STORE_BY_SERVICE ? "service, " : "", by & STORE_BY_TYPE ? "type, " : "",
		 by & STORE_BY_SERIES ? "series, " : "", by & STORE_BY_STACK ? "stack, " : "");
	r = put_query(s, f, &q, sql, reterr_diag);
	str_printf(sql, " LIMIT %u FORMAT RowBinary", MAX_RESULT_ROWS + 1);
	return r;
}

/*
 * Reads a string as an id in `names`; 0 when rows are not grouped by it. fixed: the string if the
 * filter fixes it, or NULL.
 */
static bool get_name(struct buf *b, bool grouped, const char *fixed, struct strtab *names, u32 *ret)
{
	const char *text = fixed;
	size_t n;

	if (!grouped)
		return true;
	if (fixed)
		n = strlen(fixed);
	else if (!ch_get_string(b, &text, &n))
		return false;
	return strtab_add(names, text, n, ret) == 0;
}

static bool get_row(struct buf *b, const struct store_filter *f, u32 by, u64 step_ms,
		    struct strtab *names, struct store_row *ret, u32 *ret_resolution)
{
	struct store_row row = {};
	u64 step = 0, value;

	if ((by & STORE_BY_TIME && !buf_u64(b, &step)) ||
	    !get_name(b, by & STORE_BY_SERVICE, f->service, names, &row.service) ||
	    !get_name(b, by & STORE_BY_TYPE, f->type, names, &row.type) ||
	    (by & STORE_BY_SERIES && !buf_u64(b, &row.series)) ||
	    (by & STORE_BY_STACK && !buf_u64(b, &row.stack)) || !buf_u64(b, &row.count) ||
	    !buf_u64(b, &value) || !buf_u32(b, ret_resolution))
		return false;
	row.value = (s64)value;
	if (by & STORE_BY_TIME)
		row.time_ms = f->from_ms + step * step_ms;
	*ret = row;
	return true;
}

int ch_read_rows(const struct str *answer, const struct store_filter *f, u32 by, u64 step_ms,
		 struct store_rows *ret, struct diag *reterr_diag)
{
	struct buf b = buf_of(str_get(answer), answer->n);
	struct store_row row;
	u32 resolution;

	if (by & (STORE_BY_SERVICE | STORE_BY_TYPE) && strtab_init(&ret->names) < 0)
		return diag_set(reterr_diag, -ENOMEM, "out of memory");
	while (buf_left(&b)) {
		if (!get_row(&b, f, by, step_ms, &ret->names, &row, &resolution))
			return ch_damaged_answer(reterr_diag);
		if (!row.count && !row.value)
			continue; /* a sum over no rows */
		if (ret->rows.n >= MAX_RESULT_ROWS)
			return diag_set(reterr_diag, -E2BIG,
					"too much for one answer, take a smaller range or a longer "
					"step");
		if (vec_push(&ret->rows, row) < 0)
			return diag_set(reterr_diag, -ENOMEM, "out of memory");
		ret->resolution_ms = MAX(ret->resolution_ms, resolution);
	}
	if (ret->rows.n)
		qsort(ret->rows.data, ret->rows.n, sizeof(*ret->rows.data), store_compare_rows);
	return 0;
}

static int scan_range(struct ch *s, const struct store_filter *f, u32 by, u64 step_ms,
		      struct store_rows *ret, struct diag *reterr_diag)
{
	_cleanup_str_ struct str sql = {}, answer = {};
	_cleanup_store_rows_ struct store_rows rows = {};
	int r = put_scan(s, f, by, step_ms, &sql, reterr_diag);

	if (r == 0)
		r = sql.failed ? diag_set(reterr_diag, -ENOMEM, "out of memory")
			       : ch_select_anywhere(s, str_get(&sql), &answer, reterr_diag);
	if (r == 0)
		r = ch_read_rows(&answer, f, by, step_ms, &rows, reterr_diag);
	if (r < 0)
		return r;
	*ret = rows;
	rows = (struct store_rows){};
	return 0;
}

/* ---- whole hours instead of a range ---- */

/* The types in the hours that the range touches; `id` is a type's count. ends: in the outer two. */
static int find_types(struct ch *s, const struct store_filter *f, bool ends, bool any_replica,
		      struct store_series_set *ret, struct diag *reterr_diag)
{
	const struct store_filter wide = whole_hours(f);
	_cleanup_str_ struct str sql = {}, answer = {};
	int r;

	str_puts(&sql,
		 "SELECT type, toUInt64(sum(count)), min(" CH_TIME_MS "), max(" CH_TIME_MS ")");
	r = ch_put_where(s, &wide, false, &sql, reterr_diag);
	if (ends)
		str_printf(&sql, " AND hour IN (%llu, %llu)", f->from_ms / CH_HOUR_MS,
			   (f->to_ms - 1) / CH_HOUR_MS);
	str_puts(&sql, " GROUP BY type FORMAT RowBinary");
	if (r == 0)
		r = any_replica ? ch_select_anywhere(s, str_get(&sql), &answer, reterr_diag)
				: ch_select(s, str_get(&sql), &answer, reterr_diag);
	return r < 0 ? r : ch_read_series(&answer, ret, reterr_diag);
}

/* Moves each end of the range to the end of its hour, unless that hour has samples beyond it. */
static int widen(struct ch *s, const struct store_filter *f, bool any_replica,
		 struct store_filter *ret, struct diag *reterr_diag)
{
	__attribute__((cleanup(store_series_set_deinit))) struct store_series_set set = {
		.profile = profile_create()};
	int r = set.profile ? find_types(s, f, true, any_replica, &set, reterr_diag)
			    : diag_set(reterr_diag, -ENOMEM, "out of memory");

	if (r < 0)
		return r;
	*ret = whole_hours(f);
	vec_foreach (&set.series, e) {
		if (e->first_ms < f->from_ms)
			ret->from_ms = f->from_ms;
		if (e->last_ms >= f->to_ms)
			ret->to_ms = f->to_ms;
	}
	return 0;
}

/*
 * Sums of whole hours are quick to get, and the hour of a range up to now has no samples past the
 * range. If some have arrived during the scan, the scan is repeated; in a cluster the first replica
 * of a shard has all of them.
 */
static int scan_hours(struct ch *s, const struct store_filter *f, u32 by, struct store_rows *ret,
		      struct diag *reterr_diag)
{
	_cleanup_store_rows_ struct store_rows rows = {};
	struct store_filter wide = *f, still = *f;
	int r = widen(s, f, true, &wide, reterr_diag);

	if (r == 0)
		r = scan_range(s, &wide, by, 0, &rows, reterr_diag);
	if (r == 0 && !same_range(&wide, f))
		r = widen(s, f, false, &still, reterr_diag);
	if (r == 0 && !same_range(&wide, f) && !same_range(&wide, &still))
		return scan_range(s, f, by, 0, ret, reterr_diag);
	if (r < 0)
		return r;
	*ret = rows;
	rows = (struct store_rows){};
	return 0;
}

/* For STORE_COUNTS. *ret_known: the types of the hours tell those of the range. */
static int count_types(struct ch *s, const struct store_filter *f, struct store_rows *ret,
		       bool *ret_known, struct diag *reterr_diag)
{
	__attribute__((cleanup(store_series_set_deinit))) struct store_series_set set = {
		.profile = profile_create()};
	_cleanup_store_rows_ struct store_rows rows = {};
	bool exact = true;
	int r = set.profile && strtab_init(&rows.names) == 0
			? find_types(s, f, false, true, &set, reterr_diag)
			: diag_set(reterr_diag, -ENOMEM, "out of memory");

	for (size_t i = 0; i < set.series.n && r == 0; i++) {
		const struct store_found_series *e = &set.series.data[i];
		const char *type = profile_string(set.profile, e->type);
		struct store_row row = {.count = e->id};

		if (!overlaps(e, f))
			continue;
		exact = exact && is_within(e, f);
		r = strtab_add(&rows.names, type, strlen(type), &row.type);
		if (r == 0)
			r = vec_push(&rows.rows, row);
		if (r < 0)
			return diag_set(reterr_diag, r, "out of memory");
	}
	*ret_known = r == 0 && (exact || rows.rows.n == 1);
	if (*ret_known) {
		*ret = rows;
		rows = (struct store_rows){};
	}
	return r;
}

int ch_scan(struct store *base, const struct store_filter *f, u32 by, u64 step_ms,
	    struct store_rows *ret, struct diag *reterr_diag)
{
	const struct store_filter wide = whole_hours(f);
	struct ch *s = ch_of(base);
	struct store_rows rows = {};
	bool known = false;
	int r = 0;

	if (f->from_ms >= f->to_ms ||
	    (by & STORE_BY_TIME && (!step_ms || (f->to_ms - f->from_ms) / step_ms > UINT32_MAX)))
		return diag_set(reterr_diag, -EINVAL, "the range or the step is empty");
	*ret = rows;
	if ((f->stacks && !f->n_stacks) || (f->series && !f->n_series))
		return 0;
	if (s->modern && by == (STORE_BY_TYPE | STORE_COUNTS) && !f->series && !f->stacks)
		r = count_types(s, f, &rows, &known, reterr_diag);
	if (r == 0 && !known)
		r = s->modern && is_by_hour(f, by) && !same_range(&wide, f) &&
				    wide.to_ms - wide.from_ms > CH_HOUR_MS
			    ? scan_hours(s, f, by, &rows, reterr_diag)
			    : scan_range(s, f, by, step_ms, &rows, reterr_diag);
	if (r == 0)
		*ret = rows;
	return r;
}

/* ---- series ---- */

static int take_labels(struct buf *b, struct profile *into, u64 *ret_id, u32 *ret_resource)
{
	struct profile_label labels[STORE_MAX_LABELS];
	size_t n = 0;
	int r = buf_u64(b, ret_id) ? ch_get_labels(b, into, labels, ARRAY_SIZE(labels), &n)
				   : -EBADMSG;

	if (r < 0)
		return r;
	return profile_add_resource(into, labels, n, ret_resource);
}

/* ret: id → resource. An answer may have an id several times, always with the same labels. */
int ch_read_labels(const struct str *answer, struct profile *into, struct map *ret,
		   struct diag *reterr_diag)
{
	struct buf b = buf_of(str_get(answer), answer->n);
	int r = 0;

	while (buf_left(&b) && r == 0) {
		u32 resource = 0;
		u64 id = 0;

		r = take_labels(&b, into, &id, &resource);
		if (r == 0)
			r = ch_is_id(id) ? map_put(ret, id, resource) : -EBADMSG;
	}
	if (r == -EBADMSG)
		return ch_damaged_answer(reterr_diag);
	return r < 0 ? diag_set(reterr_diag, r, "out of memory") : 0;
}

int ch_read_series(const struct str *answer, struct store_series_set *ret, struct diag *reterr_diag)
{
	struct buf b = buf_of(str_get(answer), answer->n);

	while (buf_left(&b)) {
		struct store_found_series e = {};
		const char *type;
		size_t n;

		if (!ch_get_string(&b, &type, &n) || !buf_u64(&b, &e.id) ||
		    !buf_u64(&b, &e.first_ms) || !buf_u64(&b, &e.last_ms))
			return ch_damaged_answer(reterr_diag);
		if (profile_add_string(ret->profile, type, n, &e.type) < 0 ||
		    vec_push(&ret->series, e) < 0)
			return diag_set(reterr_diag, -ENOMEM, "out of memory");
	}
	return 0;
}

/* Adds the labels of the series; a series whose labels are missing is left out. */
static int add_labels(struct ch *s, struct store_series_set *set, struct diag *reterr_diag)
{
	_cleanup_str_ struct str sql = {}, answer = {};
	struct map resources = {};
	size_t n = 0;
	int r;

	if (!set->series.n)
		return 0;
	str_puts(&sql, "SELECT id, names, values FROM series WHERE id IN (");
	for (size_t i = 0; i < set->series.n; i++)
		str_printf(&sql, "%s%llu", i ? "," : "", set->series.data[i].id);
	str_puts(&sql, ") FORMAT RowBinary");
	r = ch_select(s, str_get(&sql), &answer, reterr_diag);
	if (r == 0)
		r = ch_read_labels(&answer, set->profile, &resources, reterr_diag);
	for (size_t i = 0; i < set->series.n && r == 0; i++) {
		u64 *resource = map_get(&resources, set->series.data[i].id);

		if (!resource)
			continue;
		set->series.data[n] = set->series.data[i];
		set->series.data[n++].resource = (u32)*resource;
	}
	set->series.n = n;
	map_deinit(&resources);
	return r;
}

static int select_series(struct ch *s, const struct store_filter *f, struct store_series_set *ret,
			 struct diag *reterr_diag)
{
	static const struct query q = {
		.with = "",
		.keys = "type, series, ",
		.sums = "min(" CH_TIME_MS ") AS a, max(" CH_TIME_MS ") AS b",
		.of_sums = "min(a), max(b)",
		.by_hour = true,
	};
	_cleanup_str_ struct str sql = {}, answer = {};
	int r = put_query(s, f, &q, &sql, reterr_diag);

	str_puts(&sql, " ORDER BY type, series FORMAT RowBinary");
	if (r == 0)
		r = ch_select_anywhere(s, str_get(&sql), &answer, reterr_diag);
	return r < 0 ? r : ch_read_series(&answer, ret, reterr_diag);
}

/*
 * The series of the hours that the range touches are those of the range if all their samples are in
 * it. A series without a sample in it is left out.
 */
static int select_series_of_hours(struct ch *s, const struct store_filter *f,
				  struct store_series_set *set, struct diag *reterr_diag)
{
	const struct store_filter wide = whole_hours(f);
	size_t n = 0;
	int r = select_series(s, &wide, set, reterr_diag);

	for (size_t i = 0; i < set->series.n && r == 0; i++) {
		const struct store_found_series *e = &set->series.data[i];

		if (!overlaps(e, f))
			continue;
		if (!is_within(e, f)) {
			set->series.n = 0;
			return select_series(s, f, set, reterr_diag);
		}
		set->series.data[n++] = *e;
	}
	set->series.n = n;
	return r;
}

int ch_find_series(struct store *base, const struct store_filter *f, struct store_series_set *ret,
		   struct diag *reterr_diag)
{
	struct store_series_set set = {.profile = profile_create()};
	struct ch *s = ch_of(base);
	int r;

	if (!set.profile)
		return diag_set(reterr_diag, -ENOMEM, "out of memory");
	r = s->modern ? select_series_of_hours(s, f, &set, reterr_diag)
		      : select_series(s, f, &set, reterr_diag);
	if (r == 0)
		r = add_labels(s, &set, reterr_diag);
	if (r == 0)
		*ret = set;
	else
		store_series_set_deinit(&set);
	return r;
}
