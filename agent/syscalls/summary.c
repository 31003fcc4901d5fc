/* SPDX-License-Identifier: Apache-2.0 */
/* Statistics of calls as a table, sorted by time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/syscalls/internal.h"
#include "base/json.h"
#include "base/text.h"

void syscalls_add_stats(struct syscalls_stats *to, const struct syscalls_stats *from)
{
	if (from->min_ns && (!to->min_ns || from->min_ns < to->min_ns))
		to->min_ns = from->min_ns;
	to->max_ns = MAX(to->max_ns, from->max_ns);
	to->calls += from->calls;
	to->errors += from->errors;
	to->total_ns += from->total_ns;
	for (u32 i = 0; i < SYSCALLS_BUCKETS; i++)
		to->buckets[i] += from->buckets[i];
}

/* The least duration of a bucket. */
static u64 bucket_begin(u32 b)
{
	return b ? (4ULL + b % 4) << (SYSCALLS_FIRST_BIT - 2 + b / 4) : 0;
}

u64 syscalls_percentile(const struct syscalls_stats *s, double share)
{
	double wanted = share * (double)s->calls, before = 0;

	for (u32 b = 0; b < SYSCALLS_BUCKETS; b++) {
		double n = (double)s->buckets[b];
		u64 begin = bucket_begin(b), end;

		if (n == 0 || before + n < wanted) {
			before += n;
			continue;
		}
		end = b + 1 < SYSCALLS_BUCKETS ? bucket_begin(b + 1) : s->max_ns;
		begin = MIN(MAX(begin, s->min_ns), s->max_ns);
		end = MAX(MIN(end, s->max_ns), begin);
		return begin + (u64)((double)(end - begin) * (wanted - before) / n);
	}
	return s->max_ns;
}

static int compare_rows(const void *a, const void *b)
{
	const struct syscalls_row *x = a, *y = b;

	if (x->pid != y->pid)
		return x->pid < y->pid ? -1 : 1;
	if (x->stats.total_ns != y->stats.total_ns)
		return x->stats.total_ns > y->stats.total_ns ? -1 : 1;
	return x->slot < y->slot ? -1 : 1;
}

static const char *row_name(const struct syscalls_row *r)
{
	const char *name = syscalls_name(r->slot);

	return name ? name : r->slot == SYSCALLS_COMPAT ? "(32-bit calls)" : "(unknown calls)";
}

static void put_us(u64 ns, int width, struct str *out)
{
	str_printf(out, " %*.*f", width, ns < 100000000 ? 1 : 0, (double)ns / 1e3);
}

static void put_row(const char *name, const struct syscalls_stats *s, u64 all_ns, struct str *out)
{
	char errors[24] = "";

	if (s->errors)
		snprintf(errors, sizeof(errors), "%llu", s->errors);
	str_printf(out, "%6.2f %12.6f %10llu %9s",
		   all_ns ? 100.0 * (double)s->total_ns / (double)all_ns : 0.0,
		   (double)s->total_ns / 1e9, s->calls, errors);
	put_us(s->calls ? s->total_ns / s->calls : 0, 10, out);
	put_us(s->min_ns, 9, out);
	put_us(syscalls_percentile(s, 0.95), 10, out);
	put_us(syscalls_percentile(s, 0.99), 10, out);
	put_us(s->max_ns, 10, out);
	str_printf(out, "  %s\n", name);
}

static void put_heading(const struct syscalls_row *r, struct str *out)
{
	char comm[sizeof(r->comm) + 1] = {};

	memcpy(comm, r->comm, sizeof(r->comm));
	if (r->pid) {
		str_puts(out, "\n");
		text_append_clean(out, comm[0] ? comm : "?", 0);
		str_printf(out, " (%u)\n", r->pid);
	}
	str_printf(out, "%6s %12s %10s %9s %10s %9s %10s %10s %10s  %s\n", "% time", "seconds",
		   "calls", "errors", "avg us", "min us", "p95 us", "p99 us", "max us", "call");
}

static void print_table(const struct syscalls_row *rows, size_t n, struct str *out)
{
	struct syscalls_stats all = {};

	for (size_t i = 0; i < n; i++)
		syscalls_add_stats(&all, &rows[i].stats);
	put_heading(&rows[0], out);
	for (size_t i = 0; i < n; i++)
		put_row(row_name(&rows[i]), &rows[i].stats, all.total_ns, out);
	put_row("total", &all, all.total_ns, out);
}

static void print_json(const struct syscalls_row *r, struct str *out)
{
	struct json_writer w = {.out = out};
	char comm[sizeof(r->comm) + 1] = {};

	memcpy(comm, r->comm, sizeof(r->comm));
	json_open_object(&w, NULL);
	json_put_text(&w, "type", "summary");
	if (r->pid) {
		json_put_u64(&w, "pid", r->pid);
		json_put_text(&w, "comm", comm);
	}
	json_put_text(&w, "call", row_name(r));
	json_put_u64(&w, "calls", r->stats.calls);
	json_put_u64(&w, "errors", r->stats.errors);
	json_put_u64(&w, "total_ns", r->stats.total_ns);
	json_put_u64(&w, "min_ns", r->stats.min_ns);
	json_put_u64(&w, "p95_ns", syscalls_percentile(&r->stats, 0.95));
	json_put_u64(&w, "p99_ns", syscalls_percentile(&r->stats, 0.99));
	json_put_u64(&w, "max_ns", r->stats.max_ns);
	json_close(&w);
	str_putc(out, '\n');
}

void syscalls_print_rows(struct syscalls_rows *rows, bool json, struct str *out)
{
	size_t begin = 0;

	if (rows->v.n)
		qsort(rows->v.data, rows->v.n, sizeof(*rows->v.data), compare_rows);
	for (size_t i = 0; i < rows->v.n; i++) {
		bool last = i + 1 == rows->v.n || rows->v.data[i + 1].pid != rows->v.data[i].pid;

		if (json)
			print_json(&rows->v.data[i], out);
		else if (last)
			print_table(rows->v.data + begin, i + 1 - begin, out);
		if (last)
			begin = i + 1;
	}
}
