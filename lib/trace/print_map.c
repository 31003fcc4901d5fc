/* SPDX-License-Identifier: Apache-2.0 */
/* Maps: "@name[key]: value", and histograms on lines of their own. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "trace/print.h"

static bool is_table(const struct trace_map *m)
{
	return trace_type_is_table(&m->value);
}

/* The parts of a key, separated; without the parentheses of a tuple. */
static void put_key(const struct trace_printer *p, const struct trace_map *m, const u8 *key,
		    const char *between, struct str *out)
{
	const struct trace_type *t = &m->key;

	if (t->kind != TRACE_TUPLE) {
		trace_value_text(p, t, key, 1, out);
		return;
	}
	for (u32 i = 0; i < t->n; i++) {
		if (i)
			str_puts(out, between);
		trace_value_text(p, t->fields[i], key, 1, out);
		key += trace_type_room(t->fields[i]);
	}
}

static void put_value(const struct trace_printer *p, const struct trace_map *m, const u8 *value,
		      u64 div, struct str *out)
{
	str_puts(out, is_table(m) ? ":\n" : ": ");
	trace_value_text(p, &m->value, value, div, out);
	str_putc(out, '\n');
}

/* ---- JSON ---- */

static const char *json_type(const struct trace_map *m)
{
	if (is_table(m))
		return m->value.kind == TRACE_SERIES ? "tseries" : "hist";
	return m->value.kind == TRACE_AVG || m->value.kind == TRACE_STATS ? "stats" : "map";
}

/*
 * An object cannot have a key twice: a key that looks like another one, say because only an address
 * differs in a stack, gets a number.
 */
static void make_unique(struct map *seen, struct str *key)
{
	u64 hash = hash_bytes(key->data, key->n) >> 1;
	const u64 *before = map_get(seen, hash);
	u64 times = before ? *before + 1 : 1;

	(void)map_put(seen, hash, times);
	if (times > 1)
		str_printf(key, " (%llu)", times);
}

static void json_rows(const struct trace_printer *p, const struct trace_map *m,
		      const struct trace_rows *rows, size_t first, u64 div, struct json_writer *w,
		      const char *name)
{
	_cleanup_str_ struct str key = {};
	struct map seen = {};

	json_open_object(w, name);
	for (size_t i = first; i < rows->n; i++) {
		str_clear(&key);
		put_key(p, m, trace_row_key(rows, i), ",", &key);
		make_unique(&seen, &key);
		trace_value_json(p, &m->value, trace_row_value(rows, i), div, w, str_get(&key));
	}
	json_close(w);
	map_deinit(&seen);
}

static void json_map(const struct trace_printer *p, const struct trace_map *m,
		     const struct trace_rows *rows, size_t first, u64 div, const char *name,
		     struct str *out)
{
	struct json_writer w = {.out = out};

	json_open_object(&w, NULL);
	json_put_text(&w, "type", json_type(m));
	json_open_object(&w, "data");
	if (m->is_scalar)
		trace_value_json(p, &m->value, trace_row_value(rows, 0), div, &w, name);
	else
		json_rows(p, m, rows, first, div, &w, name);
	json_close(&w);
	json_close(&w);
	str_putc(out, '\n');
}

/* ---- both ---- */

static void text_map(const struct trace_printer *p, const struct trace_map *m,
		     const struct trace_rows *rows, size_t first, u64 div, const char *name,
		     struct str *out)
{
	for (size_t i = first; i < rows->n; i++) {
		str_puts(out, name);
		if (!m->is_scalar) {
			str_putc(out, '[');
			put_key(p, m, trace_row_key(rows, i), ", ", out);
			str_putc(out, ']');
		}
		put_value(p, m, trace_row_value(rows, i), div, out);
	}
}

int trace_print_map(const struct trace_printer *p, u32 map, const struct trace_entries *e,
		    const struct trace_print *print, struct str *out)
{
	const struct trace_map *m = &p->program->maps.data[map];
	u64 div = print && print->divisor ? print->divisor : 1;
	_cleanup_str_ struct str name = {};
	struct trace_rows rows;
	size_t first = 0;
	int r = trace_rows_init(&rows, p, m, e);

	/* print() shows a value that was never set as 0. */
	if (r == 0 && m->is_scalar && !rows.n && print && !is_table(m))
		rows.n = 1;
	if (r == 0 && print && print->top && rows.n > print->top)
		first = rows.n - print->top;
	str_printf(&name, "@%s", m->name);
	if (r == 0 && rows.n && p->json)
		json_map(p, m, &rows, first, div, str_get(&name), out);
	else if (r == 0)
		text_map(p, m, &rows, first, div, str_get(&name), out);
	trace_rows_deinit(&rows);
	return r == 0 && out->failed ? -ENOMEM : r;
}

int trace_map_words(const struct trace_printer *p, u32 map, const struct trace_entries *e, u64 *ret,
		    u32 n)
{
	struct trace_rows rows;
	int r = trace_rows_init(&rows, p, &p->program->maps.data[map], e);

	for (u32 i = 0; i < n && r == 0; i++)
		ret[i] = rows.n && i < rows.value_room / 8
				 ? trace_word(trace_row_value(&rows, 0), i)
				 : 0;
	trace_rows_deinit(&rows);
	return r;
}
