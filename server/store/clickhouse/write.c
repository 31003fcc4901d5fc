/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes a group of batches (group.c): first the rows of dictionaries that this server has not sent
 * this month, then the links and the samples, each table's in one INSERT of one block. All rows of
 * a batch are in one partition, and in a cluster those of the INSERT on one shard, so that
 * ClickHouse writes a batch as a whole or not at all.
 *
 * The marker of a batch in `samples` is a row with neither service nor type, with the hour and `at`
 * of the newest sample and the token's hash as its `count`. Queries leave such rows out by the
 * empty type; rounding a day drops them.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/varint.h"
#include "server/store/clickhouse/clickhouse.h"

/* About the size of a row. */
#define SAMPLE_BYTES 128
#define LINK_BYTES 128
#define MAX_SENT                                                                                   \
	(4u << 20) /* ids in each map; a full map is emptied, and all rows are sent again */

u32 ch_day_of(u64 time_ms)
{
	time_t t = (time_t)(time_ms / 1000);
	struct tm tm;

	gmtime_r(&t, &tm);
	return (u32)(tm.tm_year + 1900) * 10000 + (u32)(tm.tm_mon + 1) * 100 + (u32)tm.tm_mday;
}

u64 ch_day_begin_ms(u32 day)
{
	struct tm tm = {.tm_year = (int)(day / 10000) - 1900,
			.tm_mon = (int)(day / 100 % 100) - 1,
			.tm_mday = (int)(day % 100)};

	return (u64)timegm(&tm) * 1000;
}

/* The rows of one dictionary that are to be sent. */
struct part {
	struct str rows;
	struct map keys; /* → 1 */
};

struct writing {
	struct ch *s;
	const struct store_batch *b; /* whose rows are being added */
	u32 month;
	struct part parts[CH_TABLES];
	u8 *frames, *functions; /* owned; by ids of the profile: 1 = in a stack that is sent */
	struct diag *diag;
};

static void writing_deinit(struct writing *w)
{
	for (size_t i = 0; i < CH_TABLES; i++) {
		str_deinit(&w->parts[i].rows);
		map_deinit(&w->parts[i].keys);
	}
	free(w->frames);
	free(w->functions);
}

/* ---- dictionaries ---- */

static bool is_sent(struct writing *w, enum ch_table t, u64 key)
{
	u64 *month;
	bool sent;

	if (map_get(&w->parts[t].keys, key))
		return true;
	pthread_mutex_lock(&w->s->sent_lock);
	month = map_get(&w->s->sent[t], key);
	sent = month && *month == w->month;
	pthread_mutex_unlock(&w->s->sent_lock);
	return sent;
}

static void note_sent(struct writing *w)
{
	struct ch *s = w->s;

	pthread_mutex_lock(&s->sent_lock);
	for (size_t t = 0; t < CH_TABLES; t++) {
		if (s->sent[t].cap > 2 * MAX_SENT)
			map_deinit(&s->sent[t]);
		/* If memory is short, the row is sent again. */
		map_foreach (&w->parts[t].keys, it)
			map_put(&s->sent[t], it->key, w->month);
	}
	pthread_mutex_unlock(&s->sent_lock);
}

/* A stack is sent once for each service, so that it can be searched by service. */
static u64 stack_key(u64 stack, u64 service)
{
	u64 parts[] = {stack, service};

	return store_id(parts, sizeof(parts));
}

static int add_stack(struct writing *w, u32 id, u32 service, u64 service_hash)
{
	const struct profile *p = w->b->profile;
	const struct profile_stack *stack = &p->stacks.data[id];
	struct part *part = &w->parts[CH_STACKS];
	u64 key = stack_key(w->b->stacks[id], service_hash);

	if (is_sent(w, CH_STACKS, key))
		return 0;
	ch_put_u32(&part->rows, w->month);
	ch_put_u64(&part->rows, w->b->stacks[id]);
	ch_put_text(&part->rows, p, service);
	varint_put(&part->rows, stack->n);
	for (u32 i = 0; i < stack->n; i++) {
		u32 frame = p->stack_frames.data[stack->first + i];

		ch_put_u64(&part->rows, w->b->frames[frame]);
		w->frames[frame] = 1;
	}
	return map_put(&part->keys, key, 1);
}

static int add_frame(struct writing *w, u32 id)
{
	const struct profile *p = w->b->profile;
	const struct profile_frame *f = &p->frames.data[id];
	struct str *out = &w->parts[CH_FRAMES].rows;
	bool mapped = f->mapping != PROFILE_NONE, named = f->function != PROFILE_NONE;

	if (named)
		w->functions[f->function] = 1;
	if (is_sent(w, CH_FRAMES, w->b->frames[id]))
		return 0;
	ch_put_u32(out, w->month);
	ch_put_u64(out, w->b->frames[id]);
	ch_put_u8(out, f->kind);
	ch_put_u8(out, f->flags);
	ch_put_text(out, p, mapped ? p->mappings.data[f->mapping].path : 0);
	ch_put_text(out, p, mapped ? p->mappings.data[f->mapping].build_id : 0);
	ch_put_u64(out, store_frame_has_address(f) ? f->address : 0);
	ch_put_u64(out, named ? w->b->functions[f->function] : 0);
	ch_put_u32(out, f->line);
	ch_put_u32(out, f->column);
	return map_put(&w->parts[CH_FRAMES].keys, w->b->frames[id], 1);
}

static int add_function(struct writing *w, u32 id)
{
	const struct profile *p = w->b->profile;
	const struct profile_function *f = &p->functions.data[id];
	struct str *out = &w->parts[CH_FUNCTIONS].rows;

	if (is_sent(w, CH_FUNCTIONS, w->b->functions[id]))
		return 0;
	ch_put_u32(out, w->month);
	ch_put_u64(out, w->b->functions[id]);
	ch_put_text(out, p, f->name);
	ch_put_text(out, p, f->system_name);
	ch_put_text(out, p, f->file);
	ch_put_u32(out, f->start_line);
	return map_put(&w->parts[CH_FUNCTIONS].keys, w->b->functions[id], 1);
}

static int add_series(struct writing *w, const struct store_series *series)
{
	struct store_label labels[STORE_MAX_LABELS];
	struct str *out = &w->parts[CH_SERIES].rows;
	size_t n;

	if (is_sent(w, CH_SERIES, series->id))
		return 0;
	n = store_series_labels(w->b->profile, series, labels);
	ch_put_u32(out, w->month);
	ch_put_u64(out, series->id);
	varint_put(out, n);
	for (size_t i = 0; i < n; i++)
		ch_put_string(out, labels[i].name, strlen(labels[i].name));
	varint_put(out, n);
	for (size_t i = 0; i < n; i++)
		ch_put_string(out, labels[i].value, strlen(labels[i].value));
	return map_put(&w->parts[CH_SERIES].keys, series->id, 1);
}

/* Adds each stack once for each service. Samples are sorted by service, but not by stack. */
static int add_stacks(struct writing *w)
{
	const struct store_batch *b = w->b;
	const struct profile *p = b->profile;
	u32 service = PROFILE_NONE, last = PROFILE_NONE;
	struct map seen = {};
	u64 hash = 0;
	int r = 0;

	for (size_t i = 0; i < b->samples.n && r == 0; i++) {
		const struct store_sample *e = &b->samples.data[i];
		u32 of = b->series.data[e->series].service;

		if (of != service) {
			service = of;
			hash = hash_bytes(strtab_get(&p->strings, of), p->strings.lengths[of]);
			map_clear(&seen);
			last = PROFILE_NONE;
		}
		if (e->stack == last || map_get(&seen, e->stack))
			continue;
		last = e->stack;
		r = map_put(&seen, e->stack, 1);
		if (r == 0)
			r = add_stack(w, e->stack, service, hash);
	}
	map_deinit(&seen);
	return r;
}

static int begin_batch(struct writing *w, const struct store_batch *b)
{
	free(w->frames);
	free(w->functions);
	w->b = b;
	w->frames = calloc(b->profile->frames.n + 1, 1);
	w->functions = calloc(b->profile->functions.n + 1, 1);
	return w->frames && w->functions ? 0 : -ENOMEM;
}

static int add_dictionaries(struct writing *w, const struct store_batch *b)
{
	const struct profile *p = b->profile;
	int r = begin_batch(w, b);

	if (r == 0)
		r = add_stacks(w);
	for (size_t i = 0; i < w->b->series.n && r == 0; i++)
		r = add_series(w, &w->b->series.data[i]);
	for (u32 i = 0; i < p->frames.n && r == 0; i++)
		if (w->frames[i])
			r = add_frame(w, i);
	for (u32 i = 0; i < p->functions.n && r == 0; i++)
		if (w->functions[i])
			r = add_function(w, i);
	return r;
}

static int send_dictionaries(struct writing *w)
{
	static const char *const insert[CH_TABLES] = {
		[CH_SERIES] = "INSERT INTO series (month, id, names, values) FORMAT RowBinary",
		[CH_FUNCTIONS] = "INSERT INTO functions (month, id, name, system_name, file, "
				 "start_line) FORMAT RowBinary",
		[CH_FRAMES] = "INSERT INTO frames (month, id, kind, flags, path, build_id, "
			      "address, function, line, col) FORMAT RowBinary",
		[CH_STACKS] = "INSERT INTO stacks (month, id, service, frames) FORMAT RowBinary",
	};
	int r = 0;

	for (size_t t = 0; t < CH_TABLES && r == 0; t++) {
		const struct ch_request q = {.sql = insert[t], .rows = &w->parts[t].rows};

		if (w->parts[t].keys.n)
			r = ch_run(w->s, &q, NULL, w->diag);
	}
	if (r == 0)
		note_sent(w);
	return r;
}

int ch_send_frames(struct ch *s, const struct store_batch *b, struct diag *reterr_diag)
{
	struct writing w = {
		.s = s, .diag = reterr_diag, .month = ch_day_of((u64)time(NULL) * 1000) / 100};
	const struct profile *p = b->profile;
	int r = begin_batch(&w, b);

	for (u32 i = 0; i < p->frames.n && r == 0; i++)
		r = add_frame(&w, i);
	for (u32 i = 0; i < p->functions.n && r == 0; i++)
		r = add_function(&w, i);
	if (r == 0)
		r = send_dictionaries(&w);
	writing_deinit(&w);
	return r;
}

/* ---- samples ---- */

static void put_sample(const struct ch_member *m, u64 slot, const struct store_sample *e,
		       struct str *out)
{
	const struct store_batch *b = m->batch;
	const char *type = b->types[e->type];

	ch_put_u32(out, m->day);
	ch_put_u32(out, CH_RAW);
	ch_put_u32(out, 0);
	ch_put_text(out, b->profile, b->series.data[e->series].service);
	ch_put_string(out, type, strlen(type));
	ch_put_u32(out, (u32)(e->time_ms / CH_HOUR_MS));
	ch_put_u64(out, b->stacks[e->stack]);
	ch_put_u64(out, b->series.data[e->series].id);
	ch_put_u32(out, (u32)(e->time_ms % CH_HOUR_MS));
	ch_put_u64(out, slot);
	ch_put_u64(out, e->count);
	ch_put_u64(out, (u64)e->value);
}

static void put_samples(const struct ch_member *m, u64 slot, struct str *out)
{
	for (size_t i = 0; i < m->batch->samples.n; i++)
		put_sample(m, slot, &m->batch->samples.data[i], out);
	ch_put_u32(out, m->day);
	ch_put_u32(out, CH_RAW);
	ch_put_u32(out, 0);
	ch_put_string(out, "", 0);
	ch_put_string(out, "", 0);
	ch_put_u32(out, (u32)(m->newest_ms / CH_HOUR_MS));
	ch_put_u64(out, 0);
	ch_put_u64(out, 0);
	ch_put_u32(out, (u32)(m->newest_ms % CH_HOUR_MS));
	ch_put_u64(out, slot);
	ch_put_u64(out, m->token);
	ch_put_u64(out, 0);
}

/* Appends the markers' place in the order of rows: a range of times in each hour. */
static void put_marker_times(struct ch_member *const *m, size_t n, struct str *sql)
{
	const char *separator = " AND (";

	for (size_t i = 0; i < n; i++) {
		u64 hour = m[i]->newest_ms / CH_HOUR_MS, from = CH_HOUR_MS, to = 0;
		bool first = true;

		for (size_t k = 0; k < n; k++) {
			if (m[k]->newest_ms / CH_HOUR_MS != hour)
				continue;
			first = first && k >= i;
			from = MIN(from, m[k]->newest_ms % CH_HOUR_MS);
			to = MAX(to, m[k]->newest_ms % CH_HOUR_MS);
		}
		if (!first)
			continue;
		str_printf(sql, "%s(hour = %llu AND at >= %llu AND at <= %llu)", separator, hour,
			   from, to);
		separator = " OR ";
	}
	str_putc(sql, ')');
}

static void find_samples(struct ch_member *const *m, size_t n, struct str *sql)
{
	u64 oldest = m[0]->newest_ms;

	for (size_t i = 0; i < n; i++)
		oldest = MIN(oldest, m[i]->newest_ms);
	str_printf(sql,
		   "SELECT `count` FROM samples WHERE day >= %u AND run = 0 AND service = '' AND "
		   "type = '' AND stack = 0 AND series = 0",
		   ch_day_of(oldest));
	put_marker_times(m, n, sql);
	str_puts(sql, " AND `count` IN (");
	for (size_t i = 0; i < n; i++)
		str_printf(sql, "%s%llu", i ? "," : "", m[i]->token);
	str_puts(sql, ") FORMAT RowBinary");
}

static const struct ch_insert samples = {
	.table = CH_SAMPLES,
	.sql = "INSERT INTO samples (day, resolution, run, service, type, hour, stack, series, at, "
	       "batch, count, value) FORMAT RowBinary",
	.put_rows = put_samples,
	.put_find = find_samples,
};

/* ---- groups ---- */

static int set_days(struct ch *s, struct ch_member *const *m, size_t n, struct diag *reterr_diag)
{
	_cleanup_ch_partitions_ struct ch_partitions partitions = {};
	int r = ch_partitions_get(s, false, &partitions, reterr_diag);

	for (size_t i = 0; r == 0 && i < n; i++)
		m[i]->day = ch_open_day(&partitions, ch_day_of(m[i]->newest_ms));
	return r;
}

static int write_dictionaries(struct ch *s, struct ch_member *const *m, size_t n,
			      struct diag *reterr_diag)
{
	struct writing w = {
		.s = s, .diag = reterr_diag, .month = ch_day_of((u64)time(NULL) * 1000) / 100};
	int r = 0;

	for (size_t i = 0; i < n && r == 0; i++)
		if (!m[i]->stored[CH_SAMPLES])
			r = add_dictionaries(&w, m[i]->batch);
	if (r == 0)
		r = send_dictionaries(&w);
	writing_deinit(&w);
	return r;
}

int ch_write_profiles(struct ch *s, struct ch_member *const *m, size_t n, struct diag *reterr_diag)
{
	int r = set_days(s, m, n, reterr_diag);

	if (r == 0)
		r = ch_find_stored(s, &samples, m, n, reterr_diag);
	if (r == 0)
		r = write_dictionaries(s, m, n, reterr_diag);
	if (r == 0)
		r = ch_write_links(s, m, n, reterr_diag);
	if (r == 0)
		r = ch_insert_group(s, &samples, m, n, reterr_diag);
	return r == -ENOMEM ? diag_set(reterr_diag, r, "out of memory") : r;
}

static struct ch_member member_of(const struct store_batch *b, const u8 *token)
{
	struct ch_member m = {.batch = b,
			      .key = token,
			      .bytes = b->samples.n * SAMPLE_BYTES + b->links.links.n * LINK_BYTES};

	for (size_t i = 0; i < b->samples.n; i++)
		m.newest_ms = MAX(m.newest_ms, b->samples.data[i].time_ms);
	return m;
}

int ch_write(struct store *base, const struct store_batch *b, const u8 token[16],
	     struct diag *reterr_diag)
{
	struct ch *s = ch_of(base);
	struct ch_member m;

	if (!b->samples.n)
		return 0;
	m = member_of(b, token);
	ch_write_grouped(s, &s->profiles, &m, 1);
	return m.r < 0 ? diag_set(reterr_diag, m.r, "%s", m.diag.text) : 0;
}

void ch_write_all(struct store *base, struct store_request *list, size_t n)
{
	_cleanup_free_ struct ch_member *m = calloc(n + 1, sizeof(*m));
	struct ch *s = ch_of(base);
	size_t k = 0;

	for (size_t i = 0; i < n && m; i++)
		if (list[i].batch->samples.n)
			m[k++] = member_of(list[i].batch, list[i].token);
	if (k)
		ch_write_grouped(s, &s->profiles, m, k);
	k = 0;
	for (size_t i = 0; i < n; i++) {
		struct store_request *e = &list[i];

		e->r = m ? 0 : diag_set(&e->diag, -ENOMEM, "out of memory");
		if (!m || !e->batch->samples.n)
			continue;
		e->r = m[k].r;
		e->diag = m[k++].diag;
	}
}
