/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Maintenance: drops hidden partitions, old days, and months of dictionaries to which no day
 * refers; rounds days (round.c).
 *
 * Several servers may do so at once: every step is safe to repeat.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "server/store/clickhouse/clickhouse.h"

#define DAY_MS 86400000ULL
#define ABANDONED_MS DAY_MS /* a run in the state CH_MAKING for this long is abandoned */

/* ---- inventory ---- */

struct part {
	struct ch_partition p;
	u64 bytes;
};

struct inventory {
	vec(struct part) parts; /* parts of samples, by day */
	u64 bytes;		/* bytes of all tables but those of spans */
	vec(struct ch_span_day) span_days;
	struct {
		char table[16];
		u32 month;
	} months[1024];
	size_t n_months;
};

static void inventory_deinit(struct inventory *v)
{
	vec_deinit(&v->parts);
	vec_deinit(&v->span_days);
}

void ch_put_parts(const struct ch *s, struct str *sql)
{
	if (s->config.cluster)
		str_printf(sql, "cluster('%s', system, parts)", s->config.cluster);
	else
		str_puts(sql, "system.parts");
	str_printf(sql, " WHERE active AND database = '%s'", s->config.database);
}

int ch_bytes(struct ch *s, u64 *ret, struct diag *reterr_diag)
{
	_cleanup_str_ struct str sql = {}, answer = {};
	struct buf b;
	int r;

	str_puts(&sql, "SELECT toUInt64(sum(bytes_on_disk)) FROM ");
	ch_put_parts(s, &sql);
	str_puts(&sql, " FORMAT RowBinary");
	r = ch_select(s, str_get(&sql), &answer, reterr_diag);
	b = buf_of(str_get(&answer), answer.n);
	if (r == 0 && !buf_u64(&b, ret))
		r = ch_damaged_answer(reterr_diag);
	return r;
}

int ch_count(struct ch *s, const char *from, u64 *ret, struct diag *reterr_diag)
{
	_cleanup_str_ struct str sql = {}, answer = {};
	struct buf b;
	int r;

	str_printf(&sql, "SELECT toUInt64(count()) FROM %s FORMAT RowBinary", from);
	r = ch_select(s, str_get(&sql), &answer, reterr_diag);
	b = buf_of(str_get(&answer), answer.n);
	/* Over no rows, an old server's answer is empty. */
	*ret = 0;
	if (r == 0 && answer.n && !buf_u64(&b, ret))
		r = ch_damaged_answer(reterr_diag);
	return r;
}

int ch_is_behind(struct ch *s, const char *table, bool *ret, struct diag *reterr_diag)
{
	_cleanup_str_ struct str where = {};
	u64 n = 1;
	int r = 0;

	str_printf(&where,
		   "system.replicas WHERE database = '%s' AND table = '%s' AND absolute_delay = 0 "
		   "AND queue_size = 0 AND NOT is_readonly",
		   s->config.database, table);
	if (s->config.cluster)
		r = ch_count(s, str_get(&where), &n, reterr_diag);
	*ret = !n;
	return r;
}

int ch_is_deleting(struct ch *s, const char *table, bool *ret, struct diag *reterr_diag)
{
	_cleanup_str_ struct str where = {};
	u64 n = 0;
	int r;

	str_printf(&where,
		   "system.mutations WHERE database = '%s' AND table = '%s' AND NOT is_done",
		   s->config.database, table);
	r = ch_count(s, str_get(&where), &n, reterr_diag);
	*ret = n;
	return r;
}

static bool starts(const char *text, size_t n, const char *with)
{
	return n >= strlen(with) && !memcmp(text, with, strlen(with));
}

static int take_span_day(struct inventory *v, const char *id, u64 bytes)
{
	struct ch_span_day e = {.bytes = bytes};

	if (sscanf(id, "%9u", &e.day) != 1)
		return -EBADMSG;
	vec_foreach (&v->span_days, known)
		if (known->day == e.day) {
			known->bytes += e.bytes;
			return 0;
		}
	return vec_push(&v->span_days, e);
}

static int compare_span_days(const void *a, const void *b)
{
	const struct ch_span_day *x = a, *y = b;

	return x->day < y->day ? -1 : x->day > y->day;
}

static int take_part(struct inventory *v, const char *table, size_t table_n, const char *id,
		     u64 bytes)
{
	struct part e = {.bytes = bytes};
	u32 month;

	if (starts(table, table_n, "spans") || starts(table, table_n, "links"))
		return take_span_day(v, id, bytes);
	v->bytes += bytes;
	if (starts(table, table_n, "samples")) {
		if (sscanf(id, "%9u-%9u-%10u", &e.p.day, &e.p.resolution, &e.p.run) != 3)
			return -EBADMSG;
		return vec_push(&v->parts, e);
	}
	if (sscanf(id, "%9u", &month) == 1 && month > 190000 &&
	    table_n < sizeof(v->months[0].table) && v->n_months < ARRAY_SIZE(v->months)) {
		memcpy(v->months[v->n_months].table, table, table_n);
		v->months[v->n_months++].month = month;
	}
	return 0;
}

static int compare_parts(const void *a, const void *b)
{
	const struct part *x = a, *y = b;

	return x->p.day < y->p.day ? -1 : x->p.day > y->p.day;
}

static int read_inventory(const struct str *answer, struct inventory *v)
{
	struct buf b = buf_of(str_get(answer), answer->n);
	int r = 0;

	while (buf_left(&b) && r == 0) {
		const char *table, *id;
		size_t table_n, id_n;
		u64 bytes;
		char text[40] = "";

		if (!ch_get_string(&b, &table, &table_n) || !ch_get_string(&b, &id, &id_n) ||
		    !buf_u64(&b, &bytes) || id_n >= sizeof(text))
			return -EBADMSG;
		memcpy(text, id, id_n);
		r = take_part(v, table, table_n, text, bytes);
	}
	if (v->parts.n)
		qsort(v->parts.data, v->parts.n, sizeof(struct part), compare_parts);
	if (v->span_days.n)
		qsort(v->span_days.data, v->span_days.n, sizeof(struct ch_span_day),
		      compare_span_days);
	return r;
}

static int take_inventory(struct ch *s, struct inventory *v, struct diag *reterr_diag)
{
	_cleanup_str_ struct str sql = {}, answer = {};
	int r;

	str_puts(&sql, "SELECT table, partition_id, toUInt64(sum(bytes_on_disk)) FROM ");
	ch_put_parts(s, &sql);
	str_puts(&sql, " AND table != 'symbol_parts'");
	str_puts(&sql, " GROUP BY table, partition_id FORMAT RowBinary");
	r = ch_select(s, str_get(&sql), &answer, reterr_diag);
	if (r == 0) {
		r = read_inventory(&answer, v);
		if (r == -EBADMSG)
			return ch_damaged_answer(reterr_diag);
	}
	return r;
}

/* ---- dropping ---- */

static int drop_partition(struct ch *s, const struct part *e, struct diag *reterr_diag)
{
	_cleanup_str_ struct str sql = {}, cluster = {};

	str_printf(&sql, "ALTER TABLE samples%s%s DROP PARTITION (%u, %u, %u)", ch_local(s),
		   ch_on_cluster(s, &cluster), e->p.day, e->p.resolution, e->p.run);
	return ch_select(s, str_get(&sql), NULL, reterr_diag);
}

static void note_evicted_rows(struct ch *s, enum store_eviction why, u64 rows, u64 first_ms,
			      u64 last_ms)
{
	pthread_mutex_lock(&s->state_lock);
	s->evicted_rows += rows;
	s->stats_until_ns = 0;
	pthread_mutex_unlock(&s->state_lock);
	store_note_evicted(&s->base, why, rows, first_ms, last_ms);
}

/* Drops a partition and counts its rows as evicted. */
static int evict_partition(struct ch *s, struct inventory *v, size_t i, enum store_eviction why,
			   struct diag *reterr_diag)
{
	struct part *e = &v->parts.data[i];
	char samples[128];
	u64 rows;
	int r;

	snprintf(samples, sizeof(samples),
		 "samples WHERE day = %u AND resolution = %u AND run = %u AND type != ''", e->p.day,
		 e->p.resolution, e->p.run);
	r = ch_count(s, samples, &rows, reterr_diag);
	if (r == 0)
		r = drop_partition(s, e, reterr_diag);
	if (r < 0)
		return r;
	v->bytes -= MIN(v->bytes, e->bytes);
	note_evicted_rows(s, why, rows, ch_day_begin_ms(e->p.day),
			  ch_day_begin_ms(e->p.day) + DAY_MS - 1);
	memmove(e, e + 1, (v->parts.n - i - 1) * sizeof(*e));
	v->parts.n--;
	return 0;
}

static bool is_due(const struct ch *s, const struct ch_partitions *known,
		   const struct ch_partition *e, u64 now_ms)
{
	if (e->state == CH_MAKING)
		return e->run != s->rounding.to.run && now_ms >= e->at_ms + ABANDONED_MS;
	return e->state != CH_GONE && ch_is_hidden(known, e) &&
	       now_ms >= e->at_ms + s->config.grace_ms;
}

static bool has_part(const struct inventory *v, const struct ch_partition *e)
{
	for (size_t i = 0; i < v->parts.n; i++) {
		const struct ch_partition *p = &v->parts.data[i].p;

		if (p->day == e->day && p->resolution == e->resolution && p->run == e->run)
			return true;
	}
	return false;
}

/*
 * Drops hidden partitions, and drops a partition again if late rows arrived after the first drop.
 */
static int drop_hidden(struct ch *s, const struct ch_partitions *known, const struct inventory *v,
		       u64 now_ms, struct diag *reterr_diag)
{
	for (size_t i = 0; i < known->list.n; i++) {
		struct ch_partition e = known->list.data[i];
		int r;

		if (!is_due(s, known, &e, now_ms) &&
		    !(e.state == CH_GONE && e.run && has_part(v, &e)))
			continue;
		r = drop_partition(s, &(struct part){.p = e}, reterr_diag);
		e.state = CH_GONE;
		e.at_ms = now_ms;
		if (r == 0)
			r = ch_set_states(s, &e, 1, reterr_diag);
		if (r < 0)
			return r;
	}
	return 0;
}

static int drop_by_age(struct ch *s, struct inventory *v, u64 now_ms, struct diag *reterr_diag)
{
	int r = 0;

	while (v->parts.n && r == 0 &&
	       ch_day_begin_ms(v->parts.data[0].p.day) + DAY_MS + s->limits.max_age_s * 1000 <=
		       now_ms)
		r = evict_partition(s, v, 0, STORE_EVICT_AGE, reterr_diag);
	return r;
}

/*
 * Deletes the first hours of a day that alone exceeds the limit. ClickHouse deletes in the
 * background; the next deletion waits for the end of this one.
 */
static int delete_hours(struct ch *s, u32 day, struct diag *reterr_diag)
{
	_cleanup_str_ struct str sql = {}, answer = {}, cluster = {};
	u64 first = 0, hour = 0, rows = 0;
	struct buf b;
	bool busy;
	int r = ch_is_deleting(s, s->config.cluster ? "samples_local" : "samples", &busy,
			       reterr_diag);

	if (r < 0 || busy)
		return r;
	str_printf(&sql,
		   "SELECT toUInt64(min(hour)), toUInt64(quantileExact(0.25)(hour)) FROM samples "
		   "WHERE day = %u FORMAT RowBinary",
		   day);
	r = ch_select(s, str_get(&sql), &answer, reterr_diag);
	b = buf_of(str_get(&answer), answer.n);
	if (r < 0 || !buf_u64(&b, &first) || !buf_u64(&b, &hour))
		return r;
	str_clear(&sql);
	str_printf(&sql, "samples WHERE day = %u AND hour <= %llu AND type != ''", day, hour);
	r = ch_count(s, str_get(&sql), &rows, reterr_diag);
	if (r < 0)
		return r;
	str_clear(&sql);
	str_printf(&sql, "ALTER TABLE samples%s%s DELETE WHERE day = %u AND hour <= %llu",
		   ch_local(s), ch_on_cluster(s, &cluster), day, hour);
	r = ch_select(s, str_get(&sql), NULL, reterr_diag);
	if (r == 0)
		note_evicted_rows(s, STORE_EVICT_SIZE, rows, first * CH_HOUR_MS,
				  (hour + 1) * CH_HOUR_MS - 1);
	return r;
}

static int drop_by_size(struct ch *s, struct inventory *v, struct diag *reterr_diag)
{
	int r = 0;

	while (v->bytes > s->limits.max_bytes && v->parts.n && r == 0) {
		u32 day = v->parts.data[0].p.day;

		if (day == v->parts.data[v->parts.n - 1].p.day)
			return delete_hours(s, day, reterr_diag);
		r = evict_partition(s, v, 0, STORE_EVICT_SIZE, reterr_diag);
	}
	return r;
}

/*
 * A day refers to rows that were sent in its month or later. The month before stays, too, because
 * clocks may be ahead.
 */
static int drop_months(struct ch *s, const struct inventory *v, struct diag *reterr_diag)
{
	_cleanup_str_ struct str sql = {}, cluster = {};
	u32 oldest, month;
	int r = 0;

	if (!v->parts.n)
		return 0;
	oldest = v->parts.data[0].p.day / 100;
	month = oldest % 100 == 1 ? oldest - 89 : oldest - 1;
	for (size_t i = 0; i < v->n_months && r == 0; i++) {
		if (v->months[i].month >= month)
			continue;
		str_clear(&sql);
		str_printf(&sql, "ALTER TABLE %s%s DROP PARTITION %u", v->months[i].table,
			   ch_on_cluster(s, &cluster), v->months[i].month);
		r = ch_select(s, str_get(&sql), NULL, reterr_diag);
	}
	return r;
}

static int round_days(struct ch *s, const struct ch_partitions *known, const struct inventory *v,
		      u64 now_ms, struct diag *reterr_diag)
{
	_cleanup_ch_partitions_ struct ch_partitions parts = {};

	for (size_t i = 0; i < v->parts.n; i++)
		if (vec_push(&parts.list, v->parts.data[i].p) < 0)
			return -ENOMEM;
	return ch_round(s, known, &parts, now_ms, reterr_diag);
}

int ch_maintain(struct store *base, u64 now_ms, struct diag *reterr_diag)
{
	__attribute__((cleanup(inventory_deinit))) struct inventory v = {};
	_cleanup_ch_partitions_ struct ch_partitions known = {};
	struct ch *s = ch_of(base);
	int r = ch_partitions_get(s, true, &known, reterr_diag);

	if (r == 0)
		r = take_inventory(s, &v, reterr_diag);
	if (r == 0)
		r = drop_hidden(s, &known, &v, now_ms, reterr_diag);
	if (r == 0)
		r = drop_by_age(s, &v, now_ms, reterr_diag);
	if (r == 0)
		r = drop_by_size(s, &v, reterr_diag);
	if (r == 0)
		r = ch_drop_span_days(s, v.span_days.data, v.span_days.n, now_ms, reterr_diag);
	if (r == 0)
		r = ch_retain_names(s, reterr_diag);
	if (r == 0)
		r = drop_months(s, &v, reterr_diag);
	if (r == 0)
		r = ch_drop_symbols(s, reterr_diag);
	return r < 0 ? r : round_days(s, &known, &v, now_ms, reterr_diag);
}
