/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Symbol files, which all servers of a database share. A row of `symbols` says what became of the
 * file of a build-id, and when; the newest row of a build-id counts. The rows are only added, and
 * so tell who changed what. A server repeats the row of a file that is in use, and drop_months()
 * drops old months.
 *
 * The content of a file is cut into parts, which are a partition of `symbol_parts` and never
 * change. A partition is dropped when the newest row of its build-id names another file, and when
 * no row names it for a day: its rows were dropped, or the server that sent it was killed.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "server/store/clickhouse/clickhouse.h"

#define ABANDONED_S 86400
#define LOOK_EVERY_NS (3600 * 1000000000ULL)

int ch_note_symbols(struct store *base, const struct store_symbol *list, size_t n,
		    struct diag *reterr_diag)
{
	u64 now_ms = clock_epoch_ms();
	_cleanup_str_ struct str rows = {};

	for (size_t i = 0; i < n; i++) {
		const struct store_symbol *e = &list[i];

		ch_put_u32(&rows, ch_day_of(now_ms) / 100);
		ch_put_string(&rows, e->build_id, strlen(e->build_id));
		ch_put_u64(&rows, e->changed_ms);
		ch_put_u64(&rows, e->file);
		ch_put_u8(&rows, (u8)e->state);
		ch_put_u64(&rows, e->bytes);
		ch_put_string(&rows, e->source, strlen(e->source));
		ch_put_u64(&rows, e->used_ms);
		ch_put_string(&rows, e->token, strlen(e->token));
		ch_put_string(&rows, e->peer, strlen(e->peer));
	}
	return ch_run(ch_of(base),
		      &(struct ch_request){.sql = "INSERT INTO symbols (month, build_id, "
						  "changed_ms, file, state, bytes, source, "
						  "used_ms, token, peer) FORMAT RowBinary",
					   .rows = &rows},
		      NULL, reterr_diag);
}

/* A text that does not fit is cut off. */
static bool get_text(struct buf *b, char *ret, size_t size)
{
	const char *text;
	size_t n;

	if (!ch_get_string(b, &text, &n))
		return false;
	snprintf(ret, size, "%.*s", (int)MIN(n, size), text);
	return true;
}

int ch_read_symbols(const struct str *answer, struct store_symbols *ret, struct diag *reterr_diag)
{
	struct buf b = buf_of(str_get(answer), answer->n);

	while (buf_left(&b)) {
		struct store_symbol e = {};
		u8 state = 0;

		if (!get_text(&b, e.build_id, sizeof(e.build_id)) || !buf_u64(&b, &e.changed_ms) ||
		    !buf_u64(&b, &e.file) || !buf_u8(&b, &state) || !buf_u64(&b, &e.bytes) ||
		    !get_text(&b, e.source, sizeof(e.source)) || !buf_u64(&b, &e.used_ms) ||
		    !get_text(&b, e.token, sizeof(e.token)) ||
		    !get_text(&b, e.peer, sizeof(e.peer)))
			return ch_damaged_answer(reterr_diag);
		e.state = (enum store_symbol_state)state;
		if (vec_push(&ret->list, e) < 0)
			return diag_set(reterr_diag, -ENOMEM, "out of memory");
	}
	return 0;
}

static int read_newest(struct ch *s, struct store_symbols *ret, struct diag *reterr_diag)
{
	_cleanup_str_ struct str answer = {};
	int r = ch_select(
		s,
		"SELECT build_id, changed_ms, file, state, bytes, source, max(used_ms), "
		"max(token), max(peer) FROM symbols GROUP BY build_id, changed_ms, file, "
		"state, bytes, source ORDER BY build_id, changed_ms DESC, file DESC LIMIT "
		"1 BY build_id FORMAT RowBinary",
		&answer, reterr_diag);

	return r < 0 ? r : ch_read_symbols(&answer, ret, reterr_diag);
}

int ch_find_symbols(struct store *base, u64 *rows, struct store_symbols *ret,
		    struct diag *reterr_diag)
{
	struct store_symbols l = {};
	u64 n;
	int r = ch_count(ch_of(base), "symbols", &n, reterr_diag);

	if (r < 0 || n == *rows)
		return r;
	r = read_newest(ch_of(base), &l, reterr_diag);
	if (r < 0) {
		vec_deinit(&l.list);
		return r;
	}
	*rows = n;
	*ret = l;
	return 1;
}

/* ---- content ---- */

int ch_write_symbol_part(struct store *base, u64 file, u32 part, const void *data, size_t n,
			 struct diag *reterr_diag)
{
	_cleanup_str_ struct str rows = {};

	ch_put_u64(&rows, file);
	ch_put_u32(&rows, part);
	ch_put_string(&rows, data, n);
	return ch_run(ch_of(base),
		      &(struct ch_request){.sql = "INSERT INTO symbol_parts (file, part, data) "
						  "FORMAT RowBinary",
					   .rows = &rows},
		      NULL, reterr_diag);
}

int ch_read_symbol_part(struct store *base, u64 file, u32 part,
			void (*take)(void *userdata, const void *data, size_t n), void *userdata,
			struct diag *reterr_diag)
{
	_cleanup_str_ struct str answer = {};
	char sql[160];
	struct buf b;
	const char *data;
	size_t n;
	int r;

	snprintf(sql, sizeof(sql),
		 "SELECT data FROM symbol_parts WHERE file = %llu AND part = %u LIMIT 1 FORMAT "
		 "RowBinary",
		 file, part);
	r = ch_select(ch_of(base), sql, &answer, reterr_diag);
	if (r < 0)
		return r;
	if (!answer.n)
		return diag_set(reterr_diag, -ENOENT, "the store has no part %u of it", part);
	b = buf_of(str_get(&answer), answer.n);
	if (!ch_get_string(&b, &data, &n))
		return ch_damaged_answer(reterr_diag);
	take(userdata, data, n);
	return 0;
}

/* ---- dropping content ---- */

/* Reads numbers into a map; `value` of each is the number that follows it, or 1. */
static int select_map(struct ch *s, const char *sql, bool pairs, struct map *ret,
		      struct diag *reterr_diag)
{
	_cleanup_str_ struct str answer = {};
	struct buf b;
	u64 key, value = 1;
	int r = ch_select(s, sql, &answer, reterr_diag);

	for (b = buf_of(str_get(&answer), answer.n); r == 0 && buf_left(&b);) {
		if (!buf_u64(&b, &key) || !ch_is_id(key) || (pairs && !buf_u64(&b, &value)))
			return ch_damaged_answer(reterr_diag);
		r = map_put(ret, key, value);
	}
	return r;
}

static int drop_file(struct ch *s, u64 file, struct diag *reterr_diag)
{
	char sql[96];

	snprintf(sql, sizeof(sql), "ALTER TABLE symbol_parts DROP PARTITION %llu", file);
	return ch_select(s, sql, NULL, reterr_diag);
}

/* known: files that any row names; ages: of the partitions, in seconds. */
static int drop_unused(struct ch *s, const struct store_symbols *newest, struct map *known,
		       const struct map *ages, struct diag *reterr_diag)
{
	bool behind = true;
	int r = ch_is_behind(s, "symbols", &behind, reterr_diag);

	for (size_t i = 0; i < newest->list.n && r == 0; i++)
		if (ch_is_id(newest->list.data[i].file))
			r = map_put(known, newest->list.data[i].file, 2);
	map_foreach (ages, it) {
		const u64 *named = map_get(known, it->key);

		if (r == 0 && (named ? *named != 2 : !behind && it->value > ABANDONED_S))
			r = drop_file(s, it->key, reterr_diag);
	}
	return r;
}

int ch_drop_symbols(struct ch *s, struct diag *reterr_diag)
{
	u64 now = clock_ns(CLOCK_MONOTONIC), rows = now >= s->symbols_until_ns ? ~0ULL : s->symbols;
	_cleanup_str_ struct str sql = {};
	struct store_symbols newest = {};
	struct map known = {}, ages = {};
	int r = ch_find_symbols(&s->base, &rows, &newest, reterr_diag);

	if (r <= 0)
		return r;
	str_puts(&sql, "SELECT toUInt64(partition_id), toUInt64(greatest(toInt64(now()) - "
		       "toInt64(max(modification_time)), 0)) FROM ");
	ch_put_parts(s, &sql);
	str_puts(&sql, " AND table = 'symbol_parts' GROUP BY partition_id FORMAT RowBinary");
	r = select_map(s, str_get(&sql), true, &ages, reterr_diag);
	if (r == 0 && ages.n)
		r = select_map(s,
			       "SELECT DISTINCT file FROM symbols WHERE file != 0 FORMAT RowBinary",
			       false, &known, reterr_diag);
	if (r == 0)
		r = drop_unused(s, &newest, &known, &ages, reterr_diag);
	if (r == 0) {
		s->symbols = rows;
		s->symbols_until_ns = now + LOOK_EVERY_NS;
	}
	vec_deinit(&newest.list);
	map_deinit(&known);
	map_deinit(&ages);
	return r;
}
