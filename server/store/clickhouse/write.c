/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes a batch: first the rows of dictionaries that this server has not sent this month, then the
 * samples, in one INSERT of one block into one partition. ClickHouse writes such an INSERT as a
 * whole or not at all.
 *
 * An INSERT may be repeated, because its answer was lost or because the client repeats its request.
 * For each kind of ClickHouse server there is another way to count it once:
 *	modern servers	insert_deduplication_token; they remember the last 10,000
 *	clusters	the hash of the block, in the keeper; `batch` makes blocks of different
 *			tokens differ. Old servers have only this, modern ones the token, too
 *	old, one node	a query before the INSERT: are samples of the batch in the table?
 * The column `batch` is the hash of the token, or 0 if the token is enough; zeros take no space.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/text.h"
#include "base/varint.h"
#include "server/store/clickhouse/clickhouse.h"

#define PAUSE_MS 100
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
	vec(u64) keys;
};

struct writing {
	struct ch *s;
	const struct store_batch *b;
	u32 month;
	struct part parts[CH_TABLES];
	u8 *frames, *functions; /* owned; by ids of the profile: 1 = in a stack that is sent */
	struct str samples;
	struct diag *diag;
};

static void writing_deinit(struct writing *w)
{
	for (size_t i = 0; i < CH_TABLES; i++) {
		str_deinit(&w->parts[i].rows);
		vec_deinit(&w->parts[i].keys);
	}
	free(w->frames);
	free(w->functions);
	str_deinit(&w->samples);
}

/* ---- dictionaries ---- */

static bool is_sent(struct writing *w, enum ch_table t, u64 key)
{
	u64 *month;
	bool sent;

	pthread_mutex_lock(&w->s->sent_lock);
	month = map_get(&w->s->sent[t], key);
	sent = month && *month == w->month && w->month != CH_ALWAYS;
	pthread_mutex_unlock(&w->s->sent_lock);
	return sent;
}

static void note_sent(struct writing *w)
{
	struct ch *s = w->s;

	if (w->month == CH_ALWAYS)
		return;
	pthread_mutex_lock(&s->sent_lock);
	for (size_t t = 0; t < CH_TABLES; t++) {
		if (s->sent[t].cap > 2 * MAX_SENT)
			map_deinit(&s->sent[t]);
		/* If memory is short, the row is sent again. */
		vec_foreach (&w->parts[t].keys, key)
			map_put(&s->sent[t], *key, w->month);
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
	return vec_push(&part->keys, key);
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
	return vec_push(&w->parts[CH_FRAMES].keys, w->b->frames[id]);
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
	return vec_push(&w->parts[CH_FUNCTIONS].keys, w->b->functions[id]);
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
	return vec_push(&w->parts[CH_SERIES].keys, series->id);
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

static int add_dictionaries(struct writing *w)
{
	const struct profile *p = w->b->profile;
	int r;

	w->frames = calloc(p->frames.n + 1, 1);
	w->functions = calloc(p->functions.n + 1, 1);
	r = w->frames && w->functions ? add_stacks(w) : -ENOMEM;
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
	struct writing w = {.s = s, .b = b, .diag = reterr_diag, .month = CH_ALWAYS};
	const struct profile *p = b->profile;
	int r;

	w.frames = calloc(p->frames.n + 1, 1);
	w.functions = calloc(p->functions.n + 1, 1);
	r = w.frames && w.functions ? 0 : -ENOMEM;
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

static void put_samples(struct writing *w, u32 day, u64 batch)
{
	const struct store_batch *b = w->b;
	struct str *out = &w->samples;

	for (size_t i = 0; i < b->samples.n; i++) {
		const struct store_sample *e = &b->samples.data[i];
		const char *type = b->types[e->type];

		ch_put_u32(out, day);
		ch_put_u32(out, CH_RAW);
		ch_put_u32(out, 0);
		ch_put_text(out, b->profile, b->series.data[e->series].service);
		ch_put_string(out, type, strlen(type));
		ch_put_u32(out, (u32)(e->time_ms / CH_HOUR_MS));
		ch_put_u64(out, b->stacks[e->stack]);
		ch_put_u64(out, b->series.data[e->series].id);
		ch_put_u32(out, (u32)(e->time_ms % CH_HOUR_MS));
		ch_put_u64(out, batch);
		ch_put_u64(out, e->count);
		ch_put_u64(out, (u64)e->value);
	}
}

/* Whether the batch was written. The primary key finds the few rows next to its first sample. */
static int is_written(struct writing *w, u64 batch, bool *ret)
{
	const struct store_sample *e = &w->b->samples.data[0];
	const struct store_series *series = &w->b->series.data[e->series];
	_cleanup_str_ struct str sql = {}, answer = {};
	int r;

	str_puts(&sql, "SELECT count() FROM samples WHERE service = ");
	ch_sql_string(&sql, profile_string(w->b->profile, series->service));
	str_puts(&sql, " AND type = ");
	ch_sql_string(&sql, w->b->types[e->type]);
	str_printf(&sql, " AND hour = %llu AND stack = %llu AND series = %llu AND batch = %llu",
		   e->time_ms / CH_HOUR_MS, w->b->stacks[e->stack], series->id, batch);
	r = ch_select(w->s, str_get(&sql), &answer, w->diag);
	*ret = r == 0 && strcmp(str_get(&answer), "0\n") != 0;
	return r;
}

static const char insert_samples[] =
	"INSERT INTO samples (day, resolution, run, service, type, hour, stack, series, at, batch, "
	"count, value) FORMAT RowBinary";

/* For a ClickHouse server that does not recognise a repeated block: queries before it writes. */
static int insert_unless_written(struct writing *w, u64 batch, bool fresh)
{
	const struct ch_request q = {.sql = insert_samples, .rows = &w->samples, .once = true};
	u64 end = clock_ns(CLOCK_MONOTONIC) + w->s->config.retry_ms * 1000000;
	const struct timespec pause = {.tv_nsec = PAUSE_MS * 1000000};
	bool written = false;
	int r;

	for (;; fresh = false) {
		r = fresh ? 0 : is_written(w, batch, &written);
		if (r == 0 && !written)
			r = ch_run(w->s, &q, NULL, w->diag);
		if (r != -EAGAIN || clock_ns(CLOCK_MONOTONIC) >= end)
			return r;
		nanosleep(&pause, NULL);
	}
}

static int send_samples(struct writing *w, const u8 token[16], bool fresh)
{
	struct ch *s = w->s;
	u64 batch = store_id(token, 16), newest = 0;
	struct ch_partitions partitions = {};
	char text[33];
	int r = ch_partitions_get(s, false, &partitions, w->diag);

	if (r < 0)
		return r;
	for (size_t i = 0; i < w->b->samples.n; i++)
		newest = MAX(newest, w->b->samples.data[i].time_ms);
	put_samples(w, ch_open_day(&partitions, ch_day_of(newest)),
		    s->modern && !s->config.cluster ? 0 : batch);
	ch_partitions_deinit(&partitions);
	if (w->samples.failed)
		return -ENOMEM;
	if (!s->modern && !s->config.cluster)
		return insert_unless_written(w, batch, fresh);
	text_hex(token, 16, text);
	return ch_run(s,
		      &(struct ch_request){.sql = insert_samples,
					   .rows = &w->samples,
					   .token = s->modern ? text : NULL},
		      NULL, w->diag);
}

/* ---- one token at a time ---- */

static bool is_writing(const struct ch *s, u64 batch)
{
	for (size_t i = 0; i < s->writing.n; i++)
		if (s->writing.data[i] == batch)
			return true;
	return false;
}

static int begin_token(struct ch *s, u64 batch)
{
	int r;

	pthread_mutex_lock(&s->write_lock);
	while (is_writing(s, batch))
		pthread_cond_wait(&s->write_done, &s->write_lock);
	r = vec_push(&s->writing, batch);
	pthread_mutex_unlock(&s->write_lock);
	return r;
}

static void end_token(struct ch *s, u64 batch)
{
	pthread_mutex_lock(&s->write_lock);
	vec_foreach (&s->writing, e)
		if (*e == batch) {
			*e = s->writing.data[--s->writing.n];
			break;
		}
	pthread_cond_broadcast(&s->write_done);
	pthread_mutex_unlock(&s->write_lock);
}

int ch_write(struct store *base, const struct store_batch *b, const u8 token[16],
	     struct diag *reterr_diag)
{
	struct ch *s = ch_of(base);
	struct writing w = {.s = s,
			    .b = b,
			    .diag = reterr_diag,
			    .month = ch_day_of((u64)time(NULL) * 1000) / 100};
	u8 own[16];
	int r;

	if (!b->samples.n)
		return 0;
	if (!token && getrandom(own, sizeof(own), 0) != sizeof(own))
		return diag_set(reterr_diag, -EIO, "no random numbers");
	r = begin_token(s, store_id(token ? token : own, 16));
	if (r < 0)
		return diag_set(reterr_diag, r, "out of memory");
	r = add_dictionaries(&w);
	if (r == 0)
		r = send_dictionaries(&w);
	if (r == 0)
		r = ch_write_links(s, &b->links, token, reterr_diag);
	if (r == 0)
		r = send_samples(&w, token ? token : own, !token);
	end_token(s, store_id(token ? token : own, 16));
	writing_deinit(&w);
	return r == -ENOMEM ? diag_set(reterr_diag, r, "out of memory") : r;
}
