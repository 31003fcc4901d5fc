/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Spans and links. All rows of a request are in the partition of its newest day, so ClickHouse
 * writes them as a whole or not at all; group.c describes how a repeated request counts once. The
 * marker of a request has a trace id that begins with four zeros and the time, and ends with the
 * token's hash; queries leave it out by its kind or empty type. Days are dropped as a whole: this
 * engine does not thin traces.
 */
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/varint.h"
#include "server/store/clickhouse/clickhouse.h"

#define SPAN_MARKER 255 /* CH_SPAN_MARKER */
/* About the size of a row, and of an attribute in it. */
#define SPAN_BYTES 256
#define ATTRIBUTE_BYTES 64
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

static void put_texts(struct str *rows, const struct profile *p, const struct profile_label *l,
		      u32 n, bool values)
{
	varint_put(rows, n);
	for (u32 i = 0; i < n; i++)
		ch_put_text(rows, p, values ? l[i].value : l[i].name);
}

/* ---- writing ---- */

/* The markers of one second lie together: the time comes first, its highest byte first. */
static void marker_trace(const struct ch_member *m, u8 ret[16])
{
	u32 seconds = htobe32((u32)(m->newest_ms / 1000));

	memset(ret, 0, 4);
	memcpy(ret + 4, &seconds, 4);
	memcpy(ret + 8, &m->token, 8);
}

static void put_markers(struct ch_member *const *m, size_t n, const char *table, const char *what,
			struct str *sql)
{
	u64 oldest = m[0]->newest_ms;
	u8 trace[16];

	for (size_t i = 0; i < n; i++)
		oldest = MIN(oldest, m[i]->newest_ms);
	str_printf(sql,
		   "SELECT reinterpretAsUInt64(substring(trace, 9, 8)) FROM %s WHERE day >= %u AND "
		   "%s AND trace IN (",
		   table, ch_day_of(oldest), what);
	for (size_t i = 0; i < n; i++) {
		marker_trace(m[i], trace);
		str_puts(sql, i ? "," : "");
		put_trace(sql, trace);
	}
	str_puts(sql, ") FORMAT RowBinary");
}

static void put_span(const struct ch_member *m, u64 slot, const struct span *e, struct str *out)
{
	const struct spans *s = m->spans;
	const struct profile *p = s->profile;
	const struct profile_resource *r = &p->resources.data[e->resource];

	ch_put_u32(out, m->day);
	ch_put_u64(out, slot);
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

static void put_spans(const struct ch_member *m, u64 slot, struct str *out)
{
	struct span marker = {.start_ns = m->newest_ms * 1000000, .kind = SPAN_MARKER};

	for (size_t i = 0; i < m->spans->spans.n; i++)
		put_span(m, slot, &m->spans->spans.data[i], out);
	marker_trace(m, marker.trace_id);
	marker.resource = m->spans->spans.data[0].resource;
	put_span(m, slot, &marker, out);
}

static void find_spans(struct ch_member *const *m, size_t n, struct str *sql)
{
	put_markers(m, n, "spans", "kind = " CH_SPAN_MARKER, sql);
}

static const struct ch_insert spans_insert = {
	.table = CH_SPANS,
	.sql = "INSERT INTO spans (day, batch, trace, span, parent, start_ns, duration_ns, service, "
	       "name, endpoint, kind, status, root, tid, message, names, values, resource_names, "
	       "resource_values) FORMAT RowBinary",
	.put_rows = put_spans,
	.put_find = find_spans,
};

int ch_write_span_group(struct ch *s, struct ch_member *const *m, size_t n,
			struct diag *reterr_diag)
{
	int r;

	for (size_t i = 0; i < n; i++)
		m[i]->day = ch_day_of(m[i]->newest_ms);
	r = ch_find_stored(s, &spans_insert, m, n, reterr_diag);
	if (r == 0)
		r = ch_insert_group(s, &spans_insert, m, n, reterr_diag);
	return r == -ENOMEM ? diag_set(reterr_diag, r, "out of memory") : r;
}

int ch_write_spans(struct store *base, const struct spans *s, const u8 token[16],
		   struct diag *reterr_diag)
{
	struct ch_member m = {.spans = s,
			      .key = token,
			      .bytes = s->spans.n * SPAN_BYTES + s->attributes.n * ATTRIBUTE_BYTES};
	struct ch *ch = ch_of(base);

	if (!s->spans.n)
		return 0;
	for (size_t k = 0; k < s->spans.n; k++)
		m.newest_ms = MAX(m.newest_ms, s->spans.data[k].start_ns / 1000000);
	ch_write_grouped(ch, &ch->spans, &m, 1);
	return m.r < 0 ? diag_set(reterr_diag, m.r, "%s", m.diag.text) : 0;
}

/* ---- links ---- */

static void put_link(const struct ch_member *m, u64 slot, const struct store_link *e,
		     struct str *out)
{
	const struct profile *p = m->batch->links.profile;

	ch_put_u32(out, ch_day_of(m->newest_ms));
	ch_put_u64(out, slot);
	str_append(out, e->link.trace_id, 16);
	put_span_id(out, e->link.span_id);
	ch_put_text(out, p, e->service);
	ch_put_text(out, p, e->type);
	ch_put_u64(out, e->series);
	ch_put_u64(out, e->stack);
	ch_put_u64(out, e->time_ms);
	ch_put_u64(out, e->count);
	ch_put_u64(out, (u64)e->value);
}

static void put_links(const struct ch_member *m, u64 slot, struct str *out)
{
	struct store_link marker = {.time_ms = m->newest_ms};

	for (size_t i = 0; i < m->batch->links.links.n; i++)
		put_link(m, slot, &m->batch->links.links.data[i], out);
	marker_trace(m, marker.link.trace_id);
	put_link(m, slot, &marker, out);
}

static void find_links(struct ch_member *const *m, size_t n, struct str *sql)
{
	put_markers(m, n, "links", "type = ''", sql);
}

static const struct ch_insert links_insert = {
	.table = CH_LINKS,
	.sql = "INSERT INTO links (day, batch, trace, span, service, type, series, stack, time_ms, "
	       "count, value) FORMAT RowBinary",
	.put_rows = put_links,
	.put_find = find_links,
};

int ch_write_links(struct ch *s, struct ch_member *const *m, size_t n, struct diag *reterr_diag)
{
	_cleanup_free_ struct ch_member **linked = calloc(n + 1, sizeof(struct ch_member *));
	size_t n_linked = 0;
	int r;

	if (!linked)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++)
		if (m[i]->batch->links.links.n && !m[i]->stored[CH_SAMPLES])
			linked[n_linked++] = m[i];
	r = ch_find_stored(s, &links_insert, linked, n_linked, reterr_diag);
	return r < 0 ? r : ch_insert_group(s, &links_insert, linked, n_linked, reterr_diag);
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

	str_puts(
		&sql,
		"SELECT trace, span, parent, start_ns, duration_ns, toString(service), "
		"toString(name), toString(endpoint), kind, status, root, tid, message, "
		"names, values, resource_names, resource_values FROM spans WHERE kind < " CH_SPAN_MARKER);
	put_span_where(&sql, f);
	put_traces(&sql, traces, n);
	/* An answer may have a span twice. */
	if (f->limit)
		str_printf(&sql, " ORDER BY duration_ns DESC LIMIT %zu", 2 * f->limit);
	else
		str_printf(&sql, " LIMIT %u", STORE_MAX_SPANS + 1);
	str_puts(&sql, " FORMAT RowBinary");
	r = sql.failed ? -ENOMEM : ch_select_anywhere(s, str_get(&sql), &answer, reterr_diag);
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
		       "time_ms, count, value FROM links WHERE type != ''");
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
	r = sql.failed ? -ENOMEM : ch_select_anywhere(s, str_get(&sql), &answer, reterr_diag);
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

static int drop_day(struct ch *s, u32 day, u64 *ret_spans, struct diag *reterr_diag)
{
	static const char *const tables[] = {"spans", "links"};
	char spans[64];
	int r;

	snprintf(spans, sizeof(spans), "spans WHERE day = %u AND kind < " CH_SPAN_MARKER, day);
	r = ch_count(s, spans, ret_spans, reterr_diag);

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
	u64 bytes = 0, spans;
	int r = 0;

	for (size_t i = 0; i < n; i++)
		bytes += days[i].bytes;
	for (size_t i = 0; i < n && r == 0; i++) {
		bool old = ch_day_begin_ms(days[i].day) + 86400000 + s->limits.max_age_s * 1000 <=
			   now_ms;

		/* The newest day stays, however large it is. */
		if (!old && (bytes <= s->limits.span_bytes || i + 1 == n))
			break;
		r = drop_day(s, days[i].day, &spans, reterr_diag);
		if (r < 0)
			break;
		bytes -= days[i].bytes;
		pthread_mutex_lock(&s->state_lock);
		s->evicted_spans += spans;
		pthread_mutex_unlock(&s->state_lock);
		store_note_evicted(&s->base, old ? STORE_EVICT_SPANS_AGE : STORE_EVICT_SPANS_SIZE,
				   spans, ch_day_begin_ms(days[i].day),
				   ch_day_begin_ms(days[i].day) + 86400000 - 1);
	}
	return r;
}
