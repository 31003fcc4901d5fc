/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files that print. Values have the layout of trace_type_room(). */
#pragma once

#include "base/cleanup.h"
#include "base/json.h"
#include "trace/trace.h"

/* The i-th word of a value. */
static inline u64 trace_word(const u8 *value, u32 i)
{
	u64 w;

	__builtin_memcpy(&w, value + (size_t)i * 8, sizeof(w));
	return w;
}

void trace_value_json(const struct trace_printer *p, const struct trace_type *t, const u8 *value,
		      u64 div, struct json_writer *w, const char *key);
/* A number is signed in a map of this type, and in a format. */
bool trace_value_is_signed(const struct trace_type *t);
/* average, of AVG and STATS */
u64 trace_value_average(const struct trace_type *t, const u8 *value);

/* Lines of a histogram, each with its newline. */
void trace_hist_text(const struct trace_type *t, const u8 *value, u64 div, struct str *out);
void trace_hist_json(const struct trace_type *t, const u8 *value, u64 div, struct json_writer *w,
		     const char *key);

/* A time series, likewise. */
void trace_series_text(const struct trace_printer *p, const struct trace_type *t, const u8 *value,
		       u64 div, struct str *out);
void trace_series_json(const struct trace_printer *p, const struct trace_type *t, const u8 *value,
		       u64 div, struct json_writer *w, const char *key);
/* Adds what another CPU has of a series. */
void trace_series_add(const struct trace_type *t, u8 *sum, const u8 *more);

/* printf(): the arguments are at format.offsets, in `n` bytes. False: they are outside. */
bool trace_format_text(const struct trace_printer *p, const struct trace_format *f,
		       const u8 *arguments, size_t n, struct str *out);
/* Bytes as text, others as \xHH (%r); all as \xHH (%rx); all as HH with spaces (%rh). */
enum trace_bytes { TRACE_BYTES_TEXT, TRACE_BYTES_ESCAPED, TRACE_BYTES_HEX };
void trace_bytes_text(const u8 *bytes, size_t n, enum trace_bytes how, struct str *out);

/* strftime(); with_parts: %f, %l and %k are micro-, milli- and nanoseconds. */
void trace_time_text(const char *format, u64 realtime_ns, bool with_parts, struct str *out);

/* A newline, and a line for each frame of a stack of this type. */
void trace_stack_text(const struct trace_printer *p, const struct trace_type *t, u64 id, u32 pid,
		      struct str *out);

/* Entries of a map, added up over CPUs, and equal keys merged; in the order of output. */
struct trace_rows {
	u8 *keys;   /* owned, like values and order */
	u8 *values; /* value_room each */
	u32 *order; /* n of them: indices of keys and values */
	size_t n;
	u32 key_bytes, value_room;
};

int trace_rows_init(struct trace_rows *r, const struct trace_printer *p, const struct trace_map *m,
		    const struct trace_entries *e);
void trace_rows_deinit(struct trace_rows *r);

static inline const u8 *trace_row_key(const struct trace_rows *r, size_t i)
{
	return r->keys + (size_t)r->order[i] * r->key_bytes;
}

static inline const u8 *trace_row_value(const struct trace_rows *r, size_t i)
{
	return r->values + (size_t)r->order[i] * r->value_room;
}
