/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Spans and links. A batch is one INSERT into the partition of its newest day, so ClickHouse writes
 * it as a whole or not at all; write.c describes how a repeated INSERT counts once. Days are
 * dropped as a whole: this engine does not thin traces.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/text.h"
#include "base/varint.h"
#include "server/store/clickhouse/clickhouse.h"

#define PAUSE_MS 100
#define TRACES_A_QUERY 1000 /* so that a statement stays below 256 KiB */

/* ---- ids ---- */

static void put_trace(struct str *sql, const u8 trace_id[16])
{
	str_putc(sql, '\'');
	for (size_t i = 0; i < 16; i++)
		str_printf(sql, "\\x%02x", trace_id[i]);
	str_putc(sql, '\'');
}

static void put_span_id(struct str *rows, const u8 id[8])
{
	str_append(rows, id, 8);
}

static u64 span_number(const u8 id[8])
{
	u64 n;

	memcpy(&n, id, sizeof(n));
	return n;
}

static void put_texts(struct str *rows, const struct profile *p, const struct profile_label *l,
		      u32 n, bool values)
{
	varint_put(rows, n);
	for (u32 i = 0; i < n; i++)
		ch_put_text(rows, p, values ? l[i].value : l[i].name);
}

/* ---- writing ---- */

struct insert {
	const char *table, *sql;
	struct str rows;
	const u8 *token;
	u64 batch;   /* hash of the token */
	u64 written; /* value of the column `batch`; 0 if the server knows tokens */
	/* Ids of the first row, by which is_written() finds the batch. */
	const u8 *trace_id, *span_id;
	u32 day;
	bool fresh; /* the batch cannot have been written before */
};

static void insert_deinit(struct insert *i)
{
	str_deinit(&i->rows);
}

static int is_written(struct ch *s, const struct insert *i, bool *ret, struct diag *reterr_diag)
{
	_cleanup_str_ struct str sql = {}, answer = {};
	int r;

	str_printf(&sql, "SELECT count() FROM %s WHERE day = %u AND trace = ", i->table, i->day);
	put_trace(&sql, i->trace_id);
	str_printf(&sql, " AND span = %llu AND batch = %llu", span_number(i->span_id), i->batch);
	r = ch_select(s, str_get(&sql), &answer, reterr_diag);
	*ret = r == 0 && strcmp(str_get(&answer), "0\n") != 0;
	return r;
}

static int insert_unless_written(struct ch *s, const struct insert *i, struct diag *reterr_diag)
{
	const struct ch_request q = {.sql = i->sql, .rows = &i->rows, .once = true};
	u64 end = clock_ns(CLOCK_MONOTONIC) + s->config.retry_ms * 1000000;
	const struct timespec pause = {.tv_nsec = PAUSE_MS * 1000000};
	bool written = false, fresh = i->fresh;
	int r;

	for (;; fresh = false) {
		r = fresh ? 0 : is_written(s, i, &written, reterr_diag);
		if (r == 0 && !written)
			r = ch_run(s, &q, NULL, reterr_diag);
		if (r != -EAGAIN || clock_ns(CLOCK_MONOTONIC) >= end)
			return r;
		nanosleep(&pause, NULL);
	}
}

static int run_insert(struct ch *s, const struct insert *i, struct diag *reterr_diag)
{
	char text[33];

	if (i->rows.failed)
		return diag_set(reterr_diag, -ENOMEM, "out of memory");
	if (!s->modern && !s->config.cluster)
		return insert_unless_written(s, i, reterr_diag);
	text_hex(i->token, 16, text);
	return ch_run(s,
		      &(struct ch_request){
			      .sql = i->sql, .rows = &i->rows, .token = s->modern ? text : NULL},
		      NULL, reterr_diag);
}

/* own: room for a random token, used if `token` is NULL. */
static int begin_insert(struct ch *s, struct insert *i, const u8 *token, u8 *own, u64 newest_ms,
			struct diag *reterr_diag)
{
	if (!token && getrandom(own, 16, 0) != 16)
		return diag_set(reterr_diag, -EIO, "no random numbers");
	i->token = token ? token : own;
	i->fresh = !token;
	i->batch = store_id(i->token, 16);
	i->written = s->modern && !s->config.cluster ? 0 : i->batch;
	i->day = ch_day_of(newest_ms);
	return 0;
}

static void put_span(struct insert *i, const struct spans *s, const struct span *e)
{
	const struct profile *p = s->profile;
	const struct profile_resource *r = &p->resources.data[e->resource];
	struct str *out = &i->rows;

	ch_put_u32(out, i->day);
	ch_put_u64(out, i->written);
	str_append(out, e->trace_id, 16);
	put_span_id(out, e->span_id);
	put_span_id(out, e->parent_id);
	ch_put_u64(out, e->start_ns);
	ch_put_u64(out, e->duration_ns);
	ch_put_text(out, p, e->service);
	ch_put_text(out, p, e->name);
	ch_put_text(out, p, e->endpoint);
	ch_put_u8(out, e->kind);
	ch_put_u8(out, e->status);
	ch_put_u8(out, e->flags & SPAN_ROOT ? 1 : 0);
	ch_put_u32(out, e->tid);
	ch_put_text(out, p, e->message);
	put_texts(out, p, s->attributes.data + e->first, e->n, false);
	put_texts(out, p, s->attributes.data + e->first, e->n, true);
	put_texts(out, p, p->labels.data + r->first, r->n, false);
	put_texts(out, p, p->labels.data + r->first, r->n, true);
}

int ch_write_spans(struct store *base, const struct spans *s, const u8 token[16],
		   struct diag *reterr_diag)
{
	__attribute__((cleanup(insert_deinit))) struct insert i = {
		.table = "spans",
		.sql = "INSERT INTO spans (day, batch, trace, span, parent, start_ns, duration_ns, "
		       "service, name, endpoint, kind, status, root, tid, message, names, values, "
		       "resource_names, resource_values) FORMAT RowBinary"};
	u64 newest = 0;
	u8 own[16];
	int r;

	if (!s->spans.n)
		return 0;
	for (size_t k = 0; k < s->spans.n; k++)
		newest = MAX(newest, s->spans.data[k].start_ns / 1000000);
	r = begin_insert(ch_of(base), &i, token, own, newest, reterr_diag);
	if (r < 0)
		return r;
	i.trace_id = s->spans.data[0].trace_id;
	i.span_id = s->spans.data[0].span_id;
	for (size_t k = 0; k < s->spans.n; k++)
		put_span(&i, s, &s->spans.data[k]);
	return run_insert(ch_of(base), &i, reterr_diag);
}

int ch_write_links(struct ch *s, const struct store_links *l, const u8 token[16],
		   struct diag *reterr_diag)
{
	__attribute__((cleanup(insert_deinit))) struct insert i = {
		.table = "links",
		.sql = "INSERT INTO links (day, batch, trace, span, service, type, series, stack, "
		       "time_ms, count, value) FORMAT RowBinary"};
	u64 newest = 0;
	u8 own[16];
	int r;

	if (!l->links.n)
		return 0;
	for (size_t k = 0; k < l->links.n; k++)
		newest = MAX(newest, l->links.data[k].time_ms);
	r = begin_insert(s, &i, token, own, newest, reterr_diag);
	if (r < 0)
		return r;
	i.trace_id = l->links.data[0].link.trace_id;
	i.span_id = l->links.data[0].link.span_id;
	for (size_t k = 0; k < l->links.n; k++) {
		const struct store_link *e = &l->links.data[k];

		ch_put_u32(&i.rows, i.day);
		ch_put_u64(&i.rows, i.written);
		str_append(&i.rows, e->link.trace_id, 16);
		put_span_id(&i.rows, e->link.span_id);
		ch_put_text(&i.rows, l->profile, e->service);
		ch_put_text(&i.rows, l->profile, e->type);
		ch_put_u64(&i.rows, e->series);
		ch_put_u64(&i.rows, e->stack);
		ch_put_u64(&i.rows, e->time_ms);
		ch_put_u64(&i.rows, e->count);
		ch_put_u64(&i.rows, (u64)e->value);
	}
	return run_insert(s, &i, reterr_diag);
}

/* ---- conditions ---- */

static void put_equal(struct str *sql, const char *column, const char *value)
{
	if (!value)
		return;
	str_printf(sql, " AND %s = ", column);
	ch_sql_string(sql, value);
}

static void put_traces(struct str *sql, const u8 (*traces)[16], size_t n)
{
	if (!traces)
		return;
	str_puts(sql, " AND trace IN (");
	for (size_t i = 0; i < n; i++) {
		str_puts(sql, i ? "," : "");
		put_trace(sql, traces[i]);
	}
	str_putc(sql, ')');
}

/* The day of a row is that of the newest row in its batch, so sets no upper bound. */
static void put_day(struct str *sql, u64 from_ms)
{
	if (from_ms)
		str_printf(sql, " AND day >= %u", ch_day_of(MIN(from_ms, 1ULL << 42)));
}

static void put_span_where(struct str *sql, const struct store_span_filter *f)
{
	put_day(sql, f->from_ms);
	if (f->from_ms)
		str_printf(sql, " AND start_ns >= %llu", MIN(f->from_ms, 1ULL << 43) * 1000000);
	str_printf(sql, " AND start_ns < %llu", MIN(f->to_ms, 1ULL << 43) * 1000000);
	put_equal(sql, "service", f->service);
	put_equal(sql, "endpoint", f->endpoint);
	if (f->roots || f->endpoint)
		str_puts(sql, " AND root = 1");
	if (f->min_ns)
		str_printf(sql, " AND duration_ns >= %llu", f->min_ns);
	if (f->max_ns)
		str_printf(sql, " AND duration_ns <= %llu", f->max_ns);
	if (f->share_bits)
		str_printf(sql,
			   " AND bitShiftRight(intHash64(reinterpretAsUInt64(substring(trace, 9, "
			   "8))), %u) = 0",
			   64 - f->share_bits);
	if (f->statuses)
		str_printf(sql, " AND bitAnd(bitShiftLeft(1, status), %u) != 0", f->statuses);
}

/* ---- reading ---- */

static bool get_bytes(struct buf *b, u8 *ret, size_t n)
{
	struct buf part;

	if (!buf_take(b, n, &part))
		return false;
	memcpy(ret, part.pos, n);
	return true;
}

static int get_span(struct buf *b, struct spans *into)
{
	struct profile_label labels[PROFILE_MAX_LABELS];
	struct profile *p = into->profile;
	struct span e = {.first = (u32)into->attributes.n};
	size_t n = 0;
	u8 root = 0;
	int r;

	if (!get_bytes(b, e.trace_id, 16) || !get_bytes(b, e.span_id, 8) ||
	    !get_bytes(b, e.parent_id, 8) || !buf_u64(b, &e.start_ns) ||
	    !buf_u64(b, &e.duration_ns))
		return -EBADMSG;
	r = ch_get_text(b, p, &e.service);
	if (r == 0)
		r = ch_get_text(b, p, &e.name);
	if (r == 0)
		r = ch_get_text(b, p, &e.endpoint);
	if (r == 0 && (!buf_u8(b, &e.kind) || !buf_u8(b, &e.status) || !buf_u8(b, &root) ||
		       !buf_u32(b, &e.tid)))
		r = -EBADMSG;
	if (r == 0)
		r = ch_get_text(b, p, &e.message);
	if (r == 0)
		r = ch_get_labels(b, p, labels, SPAN_MAX_ATTRIBUTES, &n);
	for (size_t i = 0; i < n && r == 0; i++)
		r = vec_push(&into->attributes, labels[i]);
	e.n = (u32)n;
	if (r == 0)
		r = ch_get_labels(b, p, labels, ARRAY_SIZE(labels), &n);
	if (r == 0)
		r = profile_add_resource(p, labels, n, &e.resource);
	e.flags = root ? SPAN_ROOT : 0;
	return r < 0 ? r : vec_push(&into->spans, e);
}

int ch_read_spans(const struct str *answer, struct spans *into, struct diag *reterr_diag)
{
	struct buf b = buf_of(str_get(answer), answer->n);
	int r = 0;

	while (buf_left(&b) && r == 0)
		r = into->spans.n > STORE_MAX_SPANS ? -E2BIG : get_span(&b, into);
	return r == -EBADMSG ? ch_damaged_answer(reterr_diag) : r;
}

static int find_some_spans(struct ch *s, const struct store_span_filter *f, const u8 (*traces)[16],
			   size_t n, struct spans *into, struct diag *reterr_diag)
{
	_cleanup_str_ struct str sql = {}, answer = {};
	int r;

	str_puts(&sql, "SELECT trace, span, parent, start_ns, duration_ns, toString(service), "
		       "toString(name), toString(endpoint), kind, status, root, tid, message, "
		       "names, values, resource_names, resource_values FROM spans WHERE 1");
	put_span_where(&sql, f);
	put_traces(&sql, traces, n);
	/* An answer may have a span twice. */
	if (f->limit)
		str_printf(&sql, " ORDER BY duration_ns DESC LIMIT %zu", 2 * f->limit);
	else
		str_printf(&sql, " LIMIT %u", STORE_MAX_SPANS + 1);
	str_puts(&sql, " FORMAT RowBinary");
	r = sql.failed ? -ENOMEM : ch_select(s, str_get(&sql), &answer, reterr_diag);
	return r < 0 ? r : ch_read_spans(&answer, into, reterr_diag);
}

int ch_find_spans(struct store *base, const struct store_span_filter *f, struct spans *ret,
		  struct diag *reterr_diag)
{
	struct diag why = {};
	struct spans out;
	int r = spans_init(&out);

	if (r == 0 && !f->traces)
		r = find_some_spans(ch_of(base), f, NULL, 0, &out, &why);
	for (size_t i = 0; f->traces && i < f->n_traces && r == 0; i += TRACES_A_QUERY)
		r = find_some_spans(ch_of(base), f, f->traces + i,
				    MIN(f->n_traces - i, (size_t)TRACES_A_QUERY), &out, &why);
	return store_spans_answer(r, &out, f->limit, &why, ret, reterr_diag);
}

static int get_link(struct buf *b, struct store_links *into)
{
	struct store_link e = {};
	u64 value = 0;
	int r;

	if (!get_bytes(b, e.link.trace_id, 16) || !get_bytes(b, e.link.span_id, 8))
		return -EBADMSG;
	r = ch_get_text(b, into->profile, &e.service);
	if (r == 0)
		r = ch_get_text(b, into->profile, &e.type);
	if (r == 0 && (!buf_u64(b, &e.series) || !buf_u64(b, &e.stack) || !buf_u64(b, &e.time_ms) ||
		       !buf_u64(b, &e.count) || !buf_u64(b, &value)))
		r = -EBADMSG;
	if (r < 0)
		return r;
	e.value = (s64)value;
	return vec_push(&into->links, e);
}

int ch_read_links(const struct str *answer, struct store_links *into, struct diag *reterr_diag)
{
	struct buf b = buf_of(str_get(answer), answer->n);
	int r = 0;

	while (buf_left(&b) && r == 0)
		r = into->links.n > STORE_MAX_LINKS ? -E2BIG : get_link(&b, into);
	return r == -EBADMSG ? ch_damaged_answer(reterr_diag) : r;
}

static int find_some_links(struct ch *s, const struct store_link_filter *f, const u8 (*traces)[16],
			   size_t n, struct store_links *into, struct diag *reterr_diag)
{
	_cleanup_str_ struct str sql = {}, answer = {};
	int r;

	str_puts(&sql, "SELECT trace, span, toString(service), toString(type), series, stack, "
		       "time_ms, count, value FROM links WHERE 1");
	put_day(&sql, f->from_ms);
	str_printf(&sql, " AND time_ms >= %llu AND time_ms < %llu", f->from_ms, f->to_ms);
	put_equal(&sql, "service", f->service);
	put_equal(&sql, "type", f->type);
	put_traces(&sql, traces, n);
	if (f->stacks) {
		str_puts(&sql, " AND stack IN (");
		ch_sql_ids(&sql, f->stacks, f->n_stacks);
		str_putc(&sql, ')');
	}
	str_printf(&sql, " LIMIT %u FORMAT RowBinary", STORE_MAX_LINKS + 1);
	r = sql.failed ? -ENOMEM : ch_select(s, str_get(&sql), &answer, reterr_diag);
	return r < 0 ? r : ch_read_links(&answer, into, reterr_diag);
}

int ch_find_links(struct store *base, const struct store_link_filter *f, struct store_links *ret,
		  struct diag *reterr_diag)
{
	struct diag why = {};
	struct store_links out;
	int r = store_links_init(&out);

	if (r == 0 && !f->traces && !(f->stacks && !f->n_stacks))
		r = find_some_links(ch_of(base), f, NULL, 0, &out, &why);
	for (size_t i = 0; f->traces && i < f->n_traces && r == 0; i += TRACES_A_QUERY)
		r = find_some_links(ch_of(base), f, f->traces + i,
				    MIN(f->n_traces - i, (size_t)TRACES_A_QUERY), &out, &why);
	if (r == 0) {
		store_links_order(&out);
		*ret = out;
		return 0;
	}
	store_links_deinit(&out);
	return store_spans_failed(r, &why, reterr_diag);
}

/* ---- retention ---- */

static int drop_day(struct ch *s, u32 day, struct diag *reterr_diag)
{
	static const char *const tables[] = {"spans", "links"};
	int r = 0;

	for (size_t i = 0; i < ARRAY_SIZE(tables) && r == 0; i++) {
		_cleanup_str_ struct str sql = {}, cluster = {};

		str_printf(&sql, "ALTER TABLE %s%s%s DROP PARTITION %u", tables[i], ch_local(s),
			   ch_on_cluster(s, &cluster), day);
		r = ch_select(s, str_get(&sql), NULL, reterr_diag);
	}
	return r;
}

int ch_drop_span_days(struct ch *s, struct ch_span_day *days, size_t n, u64 now_ms,
		      struct diag *reterr_diag)
{
	u64 bytes = 0;
	int r = 0;

	for (size_t i = 0; i < n; i++)
		bytes += days[i].bytes;
	for (size_t i = 0; i < n && r == 0; i++) {
		bool old = ch_day_begin_ms(days[i].day) + 86400000 + s->limits.max_age_s * 1000 <=
			   now_ms;

		/* The newest day stays, however large it is. */
		if (!old && (bytes <= s->limits.span_bytes || i + 1 == n))
			break;
		r = drop_day(s, days[i].day, reterr_diag);
		bytes -= days[i].bytes;
		pthread_mutex_lock(&s->state_lock);
		s->evicted_spans += days[i].spans;
		pthread_mutex_unlock(&s->state_lock);
		store_note_evicted(&s->base, old ? STORE_EVICT_SPANS_AGE : STORE_EVICT_SPANS_SIZE,
				   days[i].spans, ch_day_begin_ms(days[i].day),
				   ch_day_begin_ms(days[i].day) + 86400000 - 1);
	}
	return r;
}
