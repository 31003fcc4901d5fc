/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rounds the times of a day, in three steps. Between two steps config.grace_ms passes: longer than
 * any server uses an old copy of the table `partitions`:
 *
 *	1	closes the day's partition, so that writers take the next day, and begins a new
 *		run, which is not visible
 *	2	writes the run, compares its sums, and opens it in the INSERT that supersedes the
 *		old partition
 *	3	drops the old partition (maintain.c)
 *
 * Several servers may round the same day, each with a run of its own. Of two open runs the first
 * counts. If a server dies, another server begins a new run.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "server/store/clickhouse/clickhouse.h"

#define BUDGET_NS 1500000000ULL
#define ABANDONED_MS 3600000ULL /* so long after the grace time the run's server counts as dead */
#define REQUEST_MS 600000
#define DAY_MS 86400000ULL

int ch_set_states(struct ch *s, const struct ch_partition *p, size_t n, struct diag *reterr_diag)
{
	_cleanup_str_ struct str rows = {};
	int r;

	for (size_t i = 0; i < n; i++) {
		ch_put_u32(&rows, p[i].day);
		ch_put_u32(&rows, p[i].resolution);
		ch_put_u32(&rows, p[i].run);
		ch_put_u8(&rows, p[i].state);
		ch_put_u64(&rows, p[i].at_ms);
	}
	r = ch_run(s,
		   &(struct ch_request){.sql = "INSERT INTO partitions (day, resolution, run, "
					       "state, at_ms) FORMAT RowBinary",
					.rows = &rows},
		   NULL, reterr_diag);
	ch_partitions_forget(s);
	return r;
}

/* ---- choosing a day ---- */

/* Returns the resolution for the age of the day; 0: do not round it. */
static u32 wanted_resolution(const struct ch *s, u32 day, u64 now_ms)
{
	u64 end = ch_day_begin_ms(day) + DAY_MS, resolution;

	resolution = now_ms < end ? CH_RAW : store_resolution_ms(&s->limits, now_ms - end);
	return resolution == CH_RAW ? 0 : (u32)resolution;
}

/* Whether a server is rounding the day: the day has a run in CH_MAKING that is not abandoned. */
static bool is_in_work(const struct ch *s, const struct ch_partitions *known, u32 day, u64 now_ms)
{
	for (size_t i = 0; i < known->list.n; i++) {
		const struct ch_partition *e = &known->list.data[i];

		if (e->day == day && e->state == CH_MAKING &&
		    e->at_ms + s->config.grace_ms + ABANDONED_MS > now_ms)
			return true;
	}
	return false;
}

static bool is_source(const struct ch_partitions *known, const struct ch_partition *p)
{
	const struct ch_partition *e = ch_find_partition(known, p->day, p->resolution, p->run);

	return !e || ((e->state == CH_OPEN || e->state == CH_CLOSING) && !ch_is_hidden(known, e));
}

static int begin_rounding(struct ch *s, const struct ch_partitions *known,
			  const struct ch_partitions *parts, u64 now_ms, struct diag *reterr_diag)
{
	for (size_t i = 0; i < parts->list.n; i++) {
		const struct ch_partition *p = &parts->list.data[i];
		u32 resolution = wanted_resolution(s, p->day, now_ms);
		struct ch_partition states[2] = {*p, *p};
		int r;

		if (resolution <= p->resolution || !is_source(known, p) ||
		    is_in_work(s, known, p->day, now_ms))
			continue;
		states[0].state = CH_CLOSING;
		states[1].resolution = resolution;
		states[1].state = CH_MAKING;
		states[0].at_ms = states[1].at_ms = now_ms;
		if (getrandom(&states[1].run, sizeof(u32), 0) != sizeof(u32) || !states[1].run)
			return diag_set(reterr_diag, -EIO, "no random numbers");
		r = ch_set_states(s, states, 2, reterr_diag);
		if (r == 0)
			s->rounding = (struct ch_rounding){.from = states[0], .to = states[1]};
		return r;
	}
	return 0;
}

/* ---- writing the run ---- */

static void put_from(struct str *sql, const struct ch_partition *p)
{
	str_printf(sql,
		   " FROM samples WHERE day = %u AND resolution = %u AND run = %u AND type != ''",
		   p->day, p->resolution, p->run);
}

/* Writes the hours [from, to). */
static int write_hours(struct ch *s, const struct ch_rounding *g, u64 from, u64 to,
		       struct diag *reterr_diag)
{
	static const char time[] = "intDiv(toUInt64(hour) * 3600000 + at, %u) * %u";
	_cleanup_str_ struct str sql = {}, rounded = {};
	struct ch_request q = {
		.settings = "&insert_deduplicate=0&max_bytes_before_external_group_by=1000000000",
		.timeout_ms = REQUEST_MS,
		.once = true};

	str_printf(&rounded, time, g->to.resolution, g->to.resolution);
	str_printf(&sql,
		   "INSERT INTO samples (day, resolution, run, service, type, hour, stack, series, "
		   "at, batch, count, value) SELECT toUInt32(%u), toUInt32(%u), toUInt32(%u), "
		   "service, type, toUInt32(intDiv(%s, 3600000)) AS h, stack, series, "
		   "toUInt32((%s) %% 3600000) AS a, toUInt64(0), toUInt64(sum(count)), "
		   "toInt64(sum(value))",
		   g->to.day, g->to.resolution, g->to.run, str_get(&rounded), str_get(&rounded));
	put_from(&sql, &g->from);
	str_printf(&sql, " AND hour >= %llu AND hour < %llu", from, to);
	str_puts(&sql, " GROUP BY service, type, h, stack, series, a");
	q.sql = str_get(&sql);
	return sql.failed ? -ENOMEM : ch_run(s, &q, NULL, reterr_diag);
}

struct sums {
	u64 count, value;
	u64 first_hour, last_hour;
};

static int sum_partition(struct ch *s, const struct ch_partition *p, struct sums *ret,
			 struct diag *reterr_diag)
{
	_cleanup_str_ struct str sql = {}, answer = {};
	struct buf b;
	int r;

	str_puts(&sql, "SELECT toUInt64(sum(count)), toInt64(sum(value)), toUInt64(min(hour)), "
		       "toUInt64(max(hour))");
	put_from(&sql, p);
	str_puts(&sql, " FORMAT RowBinary");
	r = ch_run(s, &(struct ch_request){.sql = str_get(&sql), .timeout_ms = REQUEST_MS}, &answer,
		   reterr_diag);
	if (r < 0)
		return r;
	b = buf_of(str_get(&answer), answer.n);
	/* If there are no samples, the answer has no row, or zeros. */
	*ret = (struct sums){};
	if (answer.n && (!buf_u64(&b, &ret->count) || !buf_u64(&b, &ret->value) ||
			 !buf_u64(&b, &ret->first_hour) || !buf_u64(&b, &ret->last_hour)))
		return ch_damaged_answer(reterr_diag);
	return 0;
}

/* Writes hour by hour until the budget is spent. Whole days have few rows: one step writes them. */
static int write_some(struct ch *s, struct ch_rounding *g, struct diag *reterr_diag)
{
	u64 until = clock_ns(CLOCK_MONOTONIC) + BUDGET_NS, end;
	struct sums from;
	int r = sum_partition(s, &g->from, &from, reterr_diag);

	if (r < 0 || !from.count)
		return r;
	end = from.last_hour + 1;
	if (g->next_hour < from.first_hour)
		g->next_hour = from.first_hour;
	while (g->next_hour < end) {
		u64 to = g->to.resolution > CH_HOUR_MS ? end : g->next_hour + 1;

		r = write_hours(s, g, g->next_hour, to, reterr_diag);
		if (r < 0)
			return r;
		g->next_hour = to;
		if (clock_ns(CLOCK_MONOTONIC) >= until)
			break;
	}
	g->written = g->next_hour >= end;
	return 0;
}

/* Makes the run visible if it has the same sums as its source. */
static int open_run(struct ch *s, struct ch_rounding *g, u64 now_ms, struct diag *reterr_diag)
{
	struct ch_partition states[2] = {g->from, g->to};
	struct sums from, to;
	int r = sum_partition(s, &g->from, &from, reterr_diag);

	if (r == 0)
		r = sum_partition(s, &g->to, &to, reterr_diag);
	if (r < 0)
		return r;
	/* No samples in the source: another server has rounded the day and dropped it. */
	if (!from.count)
		return 0;
	if (from.count != to.count || from.value != to.value) {
		log_warn(
			"%s: the sums of day %u changed when it was rounded to %u ms; trying again later",
			s->where, g->to.day, g->to.resolution);
		states[1].state = CH_SUPERSEDED;
		states[1].at_ms = now_ms;
		return ch_set_states(s, &states[1], 1, reterr_diag);
	}
	states[0].state = CH_SUPERSEDED;
	states[1].state = CH_OPEN;
	states[0].at_ms = states[1].at_ms = now_ms;
	return ch_set_states(s, states, 2, reterr_diag);
}

int ch_round(struct ch *s, const struct ch_partitions *known, const struct ch_partitions *parts,
	     u64 now_ms, struct diag *reterr_diag)
{
	struct ch_rounding *g = &s->rounding;
	int r = 0;

	if (!g->to.run)
		return begin_rounding(s, known, parts, now_ms, reterr_diag);
	if (now_ms < g->to.at_ms + s->config.grace_ms)
		return 0;
	if (!g->written)
		r = write_some(s, g, reterr_diag);
	if (r == 0 && g->written)
		r = open_run(s, g, now_ms, reterr_diag);
	/* A run that failed may be incomplete: begin a new one later. */
	if (r < 0 || g->written || !g->next_hour)
		*g = (struct ch_rounding){};
	return r;
}
