/* SPDX-License-Identifier: Apache-2.0 */
/* Values of all types as text and as JSON. */
#include <arpa/inet.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "trace/print.h"

/* Shown behind a text that fills its room. */
#define CUT ".."
#define TIME_MAX 1024

bool trace_value_is_signed(const struct trace_type *t)
{
	switch (t->kind) {
	case TRACE_INT:
	case TRACE_SERIES:
	case TRACE_SUM:
	case TRACE_MIN:
	case TRACE_MAX:
	case TRACE_AVG:
	case TRACE_STATS:
		return t->is_signed;
	default:
		return false;
	}
}

static u64 divided(const struct trace_type *t, u64 value, u64 div)
{
	if (div <= 1)
		return value;
	return trace_value_is_signed(t) ? (u64)((s64)value / (s64)div) : value / div;
}

static void put_number(const struct trace_type *t, u64 value, struct str *out)
{
	if (trace_value_is_signed(t))
		str_printf(out, "%lld", (s64)value);
	else
		str_printf(out, "%llu", value);
}

u64 trace_value_average(const struct trace_type *t, const u8 *value)
{
	u64 sum = trace_word(value, 0), n = trace_word(value, 1);

	if (!n)
		return 0;
	return t->is_signed ? (u64)((s64)sum / (s64)n) : sum / n;
}

void trace_bytes_text(const u8 *bytes, size_t n, enum trace_bytes how, struct str *out)
{
	for (size_t i = 0; i < n; i++) {
		if (how == TRACE_BYTES_TEXT && bytes[i] >= 32 && bytes[i] <= 126)
			str_putc(out, (char)bytes[i]);
		else if (how != TRACE_BYTES_HEX)
			str_printf(out, "\\x%02x", bytes[i]);
		else
			str_printf(out, i + 1 < n ? "%02x " : "%02x", bytes[i]);
	}
}

/* ---- time ---- */

/* Replaces %f, %l and %k by digits. */
static void put_parts(const char *format, u64 ns, struct str *out)
{
	for (const char *c = format; *c; c++) {
		if (c[0] != '%' || !c[1]) {
			str_putc(out, *c);
			continue;
		}
		c++;
		if (*c == 'f')
			str_printf(out, "%06llu", ns / 1000);
		else if (*c == 'l')
			str_printf(out, "%03llu", ns / 1000000);
		else if (*c == 'k')
			str_printf(out, "%09llu", ns);
		else
			str_printf(out, "%%%c", *c);
	}
}

void trace_time_text(const char *format, u64 realtime_ns, bool with_parts, struct str *out)
{
	time_t seconds = (time_t)(realtime_ns / 1000000000);
	_cleanup_str_ struct str parts = {};
	char text[TIME_MAX];
	struct tm tm;
	size_t n;

	if (with_parts)
		put_parts(format, realtime_ns % 1000000000, &parts);
	else
		str_puts(&parts, format);
	if (!localtime_r(&seconds, &tm))
		return;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	/* The script chooses the format; the result is bounded. */
	n = strftime(text, sizeof(text), str_get(&parts), &tm);
#pragma GCC diagnostic pop
	str_append(out, text, n);
}

static void put_time(const struct trace_printer *p, const u8 *value, struct str *out)
{
	u64 format = trace_word(value, 1);

	if (format < p->program->texts.n)
		trace_time_text(p->program->texts.data[format].data,
				p->boot_ns + trace_word(value, 0), true, out);
}

/* ---- names ---- */

static void put_inet(const u8 *value, struct str *out)
{
	char text[INET6_ADDRSTRLEN] = "";
	u64 family = trace_word(value, 0);

	if (family == AF_INET || family == AF_INET6)
		inet_ntop((int)family, value + 8, text, sizeof(text));
	str_puts(out, text);
}

/* The name in /etc/passwd; without one nothing, as bpftrace. */
static void put_user(u64 uid, struct str *out)
{
	_cleanup_fclose_ FILE *f = fopen("/etc/passwd", "re");
	char line[1024];

	while (f && fgets(line, sizeof(line), f)) {
		char *password = strchr(line, ':'), *id, *end;
		u64 found;

		id = password ? strchr(password + 1, ':') : NULL;
		end = id ? strchr(id + 1, ':') : NULL;
		if (!end)
			continue;
		*end = 0;
		if (str_to_u64(id + 1, 10, &found) < 0 || found != uid)
			continue;
		str_append(out, line, (size_t)(password - line));
		return;
	}
}

static void put_symbol(const struct trace_printer *p, const struct trace_type *t, const u8 *value,
		       struct str *out)
{
	const struct trace_names *n = &p->names;
	u64 address = trace_word(value, 0);
	bool named;

	if (t->kind == TRACE_KSYM)
		named = n->kernel_symbol && n->kernel_symbol(n->arg, address, out);
	else
		named = n->user_symbol &&
			n->user_symbol(n->arg, address, (u32)trace_word(value, 1), out);
	if (!named)
		str_printf(out, "0x%llx", address);
}

static void put_error(u64 error, struct str *out)
{
	const char *text = strerrordesc_np((int)error);

	if (text)
		str_puts(out, text);
	else
		str_printf(out, "Unknown error %d", (int)error);
}

static void put_signal(u64 number, struct str *out)
{
	const char *name = sigabbrev_np((int)number);

	if (name && number <= INT32_MAX)
		str_printf(out, "SIG%s", name);
	else if (number <= INT32_MAX && (int)number >= SIGRTMIN && (int)number <= SIGRTMAX)
		str_printf(out, "SIGRTMIN+%d", (int)number - SIGRTMIN);
	else
		str_printf(out, "%lld", (s64)number);
}

static void put_syscall(const struct trace_printer *p, u64 number, struct str *out)
{
	const struct trace_names *n = &p->names;

	if (!n->system_call || !n->system_call(n->arg, number, out))
		str_printf(out, "%lld", (s64)number);
}

static void put_enumerator(const struct trace_printer *p, const struct trace_type *t, u64 value,
			   struct str *out)
{
	const struct trace_names *n = &p->names;

	if (!n->enumerator || !n->enumerator(n->arg, t->btf, value, out))
		str_printf(out, "%llu", value);
}

static void put_cgroup(const struct trace_printer *p, u64 id, struct str *out)
{
	const struct trace_names *n = &p->names;

	if (!n->cgroup || !n->cgroup(n->arg, id, out))
		str_printf(out, "%llu", id);
}

/* A trace or span; nothing if there is none. */
static void put_id(const u8 *value, u32 n, struct str *out)
{
	u32 used = 0;

	for (u32 i = 0; i < n; i++)
		used |= value[i];
	for (u32 i = 0; used && i < n; i++)
		str_printf(out, "%02x", value[i]);
}

static void put_owner(const struct trace_printer *p, const struct trace_type *t, const u8 *value,
		      struct str *out)
{
	const struct trace_names *n = &p->names;
	u64 pid = trace_word(value, 0);
	char comm[17] = "";

	memcpy(comm, value + 8, 16);
	if (!n->owner || !n->owner(n->arg, t->bytes, (u32)pid, comm, out))
		str_printf(out, "process %llu", pid);
}

static void put_string(const struct trace_type *t, const u8 *value, struct str *out)
{
	size_t n = strnlen((const char *)value, t->bytes);

	str_append(out, value, n);
	if (n && n == t->bytes)
		str_puts(out, CUT);
}

static void put_probe(const struct trace_printer *p, u64 index, struct str *out)
{
	if (index < p->program->probes.n)
		str_puts(out, p->program->probes.data[index].name);
}

/* ---- all types ---- */

static void put_tuple(const struct trace_printer *p, const struct trace_type *t, const u8 *value,
		      u64 div, struct str *out)
{
	str_puts(out, t->names ? "{ " : "(");
	for (u32 i = 0; i < t->n; i++) {
		if (i)
			str_puts(out, ", ");
		if (t->names)
			str_printf(out, ".%s = ", t->names[i]);
		trace_value_text(p, t->fields[i], value, div, out);
		value += trace_type_room(t->fields[i]);
	}
	str_puts(out, t->names ? " }" : ")");
}

static u64 element(const struct trace_type *t, const u8 *value, u32 i)
{
	u32 bytes = t->of->bytes;
	u64 word = 0;

	memcpy(&word, value + (size_t)i * bytes, MIN(bytes, 8u));
	if (t->of->is_signed && bytes < 8)
		word = (u64)((s64)(word << (64 - 8 * bytes)) >> (64 - 8 * bytes));
	return word;
}

static void put_values(const struct trace_type *t, const u8 *value, struct str *out)
{
	str_putc(out, '[');
	for (u32 i = 0; i < t->n; i++) {
		if (i)
			str_putc(out, ',');
		put_number(t->of, element(t, value, i), out);
	}
	str_putc(out, ']');
}

static void put_stats(const struct trace_type *t, const u8 *value, u64 div, struct str *out)
{
	str_printf(out, "{ .count = %llu, .average = ", trace_word(value, 1));
	put_number(t, divided(t, trace_value_average(t, value), div), out);
	str_puts(out, ", .total = ");
	put_number(t, trace_word(value, 0), out);
	str_puts(out, " }");
}

/* Types that are text; false: it is another. */
static bool put_named(const struct trace_printer *p, const struct trace_type *t, const u8 *value,
		      struct str *out)
{
	u64 word = trace_word(value, 0);

	switch (t->kind) {
	case TRACE_STRING:
		put_string(t, value, out);
		return true;
	case TRACE_KSTACK:
		trace_stack_text(p, t, word, 0, out);
		return true;
	case TRACE_USTACK:
		trace_stack_text(p, t, word, (u32)trace_word(value, 1), out);
		return true;
	case TRACE_KSYM:
	case TRACE_USYM:
		put_symbol(p, t, value, out);
		return true;
	case TRACE_INET:
		put_inet(value, out);
		return true;
	case TRACE_MAC:
		str_printf(out, "%02X:%02X:%02X:%02X:%02X:%02X", value[0], value[1], value[2],
			   value[3], value[4], value[5]);
		return true;
	case TRACE_USERNAME:
		put_user(word, out);
		return true;
	case TRACE_PROBE:
		put_probe(p, word, out);
		return true;
	case TRACE_TIME:
		put_time(p, value, out);
		return true;
	case TRACE_CGROUP:
		put_cgroup(p, word, out);
		return true;
	case TRACE_ERROR:
		put_error(word, out);
		return true;
	case TRACE_SIGNAL:
		put_signal(word, out);
		return true;
	case TRACE_SYSCALL:
		put_syscall(p, word, out);
		return true;
	case TRACE_TRACE_ID:
		put_id(value, 16, out);
		return true;
	case TRACE_SPAN_ID:
		put_id(value, 8, out);
		return true;
	case TRACE_OWNER:
		put_owner(p, t, value, out);
		return true;
	default:
		return false;
	}
}

void trace_value_text(const struct trace_printer *p, const struct trace_type *t, const u8 *value,
		      u64 div, struct str *out)
{
	u64 word;

	if (t->kind == TRACE_NONE || put_named(p, t, value, out))
		return;
	word = t->kind == TRACE_TUPLE && !t->n ? 0 : trace_word(value, 0);
	switch (t->kind) {
	case TRACE_BOOL:
		str_puts(out, word ? "true" : "false");
		break;
	case TRACE_BUFFER:
		trace_bytes_text(value + 8, MIN(word, (u64)t->bytes), TRACE_BYTES_TEXT, out);
		break;
	case TRACE_POINTER:
	case TRACE_RECORD:
	case TRACE_ARRAY:
		str_printf(out, "0x%llx", word);
		break;
	case TRACE_ENUM_NAME:
		put_enumerator(p, t, word, out);
		break;
	case TRACE_VALUES:
		put_values(t, value, out);
		break;
	case TRACE_TUPLE:
		put_tuple(p, t, value, div, out);
		break;
	case TRACE_AVG:
		put_number(t, divided(t, trace_value_average(t, value), div), out);
		break;
	case TRACE_STATS:
		put_stats(t, value, div, out);
		break;
	case TRACE_SERIES:
		trace_series_text(p, t, value, div, out);
		break;
	case TRACE_HIST:
	case TRACE_LHIST:
		trace_hist_text(t, value, div, out);
		break;
	default: /* INT, COUNT, SUM, MIN, MAX */
		put_number(t, divided(t, word, div), out);
	}
}

/* ---- JSON ---- */

/* JSON's numbers are floating-point: others are texts, as bpftrace has them. */
static void json_number(const struct trace_type *t, u64 v, struct json_writer *w, const char *key)
{
	bool is_signed = trace_value_is_signed(t);
	double as = is_signed ? (double)(s64)v : (double)v;
	char text[32];

	/* 2^64 and 2^63 do not fit back. */
	if (is_signed ? as < 0x1p63 && (s64)as == (s64)v : as < 0x1p64 && (u64)as == v) {
		if (is_signed)
			json_put_s64(w, key, (s64)v);
		else
			json_put_u64(w, key, v);
		return;
	}
	if (is_signed)
		snprintf(text, sizeof(text), "%lld", (s64)v);
	else
		snprintf(text, sizeof(text), "%llu", v);
	json_put_exact(w, key, text);
}

static void json_tuple(const struct trace_printer *p, const struct trace_type *t, const u8 *value,
		       u64 div, struct json_writer *w, const char *key)
{
	_cleanup_str_ struct str text = {};

	/* Types nest deeper than the writer only in a script that means to. */
	if (w->depth + 1 >= JSON_MAX_DEPTH) {
		put_tuple(p, t, value, div, &text);
		json_put_exact(w, key, str_get(&text));
		return;
	}
	if (t->names)
		json_open_object(w, key);
	else
		json_open_array(w, key);
	for (u32 i = 0; i < t->n; i++) {
		trace_value_json(p, t->fields[i], value, div, w, t->names ? t->names[i] : NULL);
		value += trace_type_room(t->fields[i]);
	}
	json_close(w);
}

static void json_values(const struct trace_type *t, const u8 *value, struct json_writer *w,
			const char *key)
{
	json_open_array(w, key);
	for (u32 i = 0; i < t->n; i++)
		json_number(t->of, element(t, value, i), w, NULL);
	json_close(w);
}

static void json_stats(const struct trace_type *t, const u8 *value, u64 div, struct json_writer *w,
		       const char *key)
{
	json_open_object(w, key);
	json_number(&(struct trace_type){.kind = TRACE_COUNT}, trace_word(value, 1), w, "count");
	json_number(t, divided(t, trace_value_average(t, value), div), w, "average");
	json_number(t, trace_word(value, 0), w, "total");
	json_close(w);
}

static void json_bytes(const struct trace_type *t, const u8 *value, struct json_writer *w,
		       const char *key)
{
	u64 n = MIN(trace_word(value, 0), (u64)t->bytes);

	json_open_array(w, key);
	for (u64 i = 0; i < n; i++)
		json_put_s64(w, NULL, (s8)value[8 + i]);
	json_close(w);
}

void trace_value_json(const struct trace_printer *p, const struct trace_type *t, const u8 *value,
		      u64 div, struct json_writer *w, const char *key)
{
	_cleanup_str_ struct str text = {};

	switch (t->kind) {
	case TRACE_NONE:
		json_put_null(w, key);
		return;
	case TRACE_BOOL:
		json_put_bool(w, key, trace_word(value, 0));
		return;
	case TRACE_BUFFER:
		json_bytes(t, value, w, key);
		return;
	case TRACE_VALUES:
		json_values(t, value, w, key);
		return;
	case TRACE_TUPLE:
		json_tuple(p, t, value, div, w, key);
		return;
	case TRACE_AVG:
		json_number(t, divided(t, trace_value_average(t, value), div), w, key);
		return;
	case TRACE_STATS:
		json_stats(t, value, div, w, key);
		return;
	case TRACE_SERIES:
		trace_series_json(p, t, value, div, w, key);
		return;
	case TRACE_HIST:
	case TRACE_LHIST:
		trace_hist_json(t, value, div, w, key);
		return;
	default:
		break;
	}
	if (put_named(p, t, value, &text))
		json_put_exact(w, key, str_get(&text));
	else
		json_number(t, divided(t, trace_word(value, 0), div), w, key);
}
