/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/measuring.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "agent/measure/measure.h"
#include "agent/tracer/tracer.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/str.h"
#include "cli/cli.h"
#include "cli/signals.h"
#include "format/format.h"
#include "profile/profile.h"
#include "trace/trace.h"

#define POLL_MS 100
#define SHOWN_CALLS 10
#define HEADING_ROWS 20
#define BAR 40
#define MAX_BUCKETS 512

struct view {
	const struct measuring *o;
	struct measure *measure; /* owned */
	struct measure_counts before;
	u64 hist[MAX_BUCKETS], hist_before[MAX_BUCKETS];
	u32 buckets;
	u64 shown_ns;
	u32 rows;
	struct measure_call slowest[SHOWN_CALLS]; /* the slowest first */
	u32 n_slowest;
	u64 n_told;
};

/* ---- numbers ---- */

/* "12.3 ms": three digits. */
static void put_ns(u64 ns, struct str *out)
{
	static const char *const units[] = {"ns", "us", "ms", "s"};
	double v = (double)ns;
	u32 unit = 0;

	for (; v >= 999.5 && unit + 1 < ARRAY_SIZE(units); unit++)
		v /= 1000;
	str_printf(out, "%.*f %s",
		   unit == 0 || v >= 99.95 ? 0
		   : v >= 9.995		   ? 1
					   : 2,
		   v, units[unit]);
}

static u64 calls_in(const u64 *hist, u32 buckets)
{
	u64 n = 0;

	for (u32 i = 0; i < buckets; i++)
		n += hist[i];
	return n;
}

/* The upper bound of the bucket that the share is in, but no more than the longest call. */
static u64 percentile(const u64 *hist, u32 buckets, double share, u64 longest)
{
	u64 n = calls_in(hist, buckets), rank = (u64)((double)n * share), before = 0;

	for (u32 i = 0; i < buckets; i++) {
		before += hist[i];
		if (before > rank || (before == n && n))
			return MIN(trace_hist_low(i + 1, MEASURE_HIST_BITS), longest);
	}
	return 0;
}

static u64 average(const struct measure_counts *c, const struct measure_counts *before)
{
	u64 n = c->returned - before->returned;

	return n ? (c->total_ns - before->total_ns) / n : 0;
}

static const struct {
	const char *name;
	double share;
} shares[] = {{"p50", 0.5}, {"p95", 0.95}, {"p99", 0.99}};

/* ---- slow calls ---- */

static void keep_slowest(struct view *v, const struct measure_call *call)
{
	u32 at = v->n_slowest;

	v->n_told++;
	while (at && v->slowest[at - 1].ns < call->ns)
		at--;
	if (at == SHOWN_CALLS)
		return;
	v->n_slowest = MIN(v->n_slowest + 1, (u32)SHOWN_CALLS);
	memmove(v->slowest + at + 1, v->slowest + at,
		(v->n_slowest - at - 1) * sizeof(v->slowest[0]));
	v->slowest[at] = *call;
}

static void take_calls(struct view *v)
{
	struct measure_call calls[16];
	u32 n;

	do {
		n = measure_take(v->measure, calls, ARRAY_SIZE(calls));
		for (u32 i = 0; i < n; i++)
			keep_slowest(v, &calls[i]);
	} while (n == ARRAY_SIZE(calls));
}

static bool has_id(const u8 *id, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (id[i])
			return true;
	return false;
}

static void put_hex(const u8 *id, size_t n, struct str *out)
{
	for (size_t i = 0; i < n; i++)
		str_printf(out, "%02x", id[i]);
}

typedef void put_frame(void *arg, const char *name, const char *file, u32 line);

static void each_frame(struct view *v, const struct measure_call *call, put_frame *put, void *arg)
{
	u32 stack;
	const struct profile *p = measure_stack(v->measure, call, &stack);
	const struct profile_stack *s = p ? &p->stacks.data[stack] : NULL;

	for (u32 i = 0; s && i < s->n; i++) {
		u32 id = p->stack_frames.data[s->first + i];
		const struct profile_frame *f = &p->frames.data[id];
		_cleanup_str_ struct str scratch = {};
		const char *file = f->function == PROFILE_NONE
					   ? ""
					   : profile_string(p, p->functions.data[f->function].file);

		put(arg, profile_frame_name(p, id, &scratch), file, f->line);
	}
}

/* ---- text ---- */

static void put_row(struct view *v, const struct measure_counts *c, double seconds, struct str *out)
{
	_cleanup_str_ struct str cell = {};

	if (v->rows++ % HEADING_ROWS == 0)
		str_printf(out, "%10s %10s %10s %10s %10s %10s\n", "calls/s", "p50", "p95", "p99",
			   "average", "longest");
	str_printf(out, "%10.0f", (double)(c->calls - v->before.calls) / seconds);
	for (size_t i = 0; i < ARRAY_SIZE(shares); i++) {
		str_clear(&cell);
		put_ns(percentile(v->hist_before, v->buckets, shares[i].share, c->longest_ns),
		       &cell);
		str_printf(out, " %10s", str_get(&cell));
	}
	str_clear(&cell);
	put_ns(average(c, &v->before), &cell);
	str_printf(out, " %10s", str_get(&cell));
	str_clear(&cell);
	put_ns(c->longest_ns, &cell);
	str_printf(out, " %10s\n", str_get(&cell));
}

static void put_histogram(const struct view *v, struct str *out)
{
	u64 most = 0;
	u32 first = v->buckets, last = 0;

	for (u32 i = 0; i < v->buckets; i++) {
		if (!v->hist[i])
			continue;
		first = MIN(first, i);
		last = i;
		most = MAX(most, v->hist[i]);
	}
	for (u32 i = first; i <= last && most; i++) {
		_cleanup_str_ struct str low = {}, high = {};
		u32 bar = (u32)(v->hist[i] * BAR / most);

		put_ns(i ? trace_hist_low(i, MEASURE_HIST_BITS) : 0, &low);
		put_ns(trace_hist_low(i + 1, MEASURE_HIST_BITS), &high);
		str_printf(out, "%10s to %-10s %10" PRIu64 " |%.*s%*s|\n", str_get(&low),
			   str_get(&high), (uint64_t)v->hist[i], (int)bar,
			   "########################################", (int)(BAR - bar), "");
	}
}

static void put_frame_text(void *arg, const char *name, const char *file, u32 line)
{
	struct str *out = arg;

	str_printf(out, "                %s", name);
	if (line && file[0])
		str_printf(out, " (%s:%u)", profile_basename(file), line);
	str_putc(out, '\n');
}

static void put_call(struct view *v, const struct measure_call *call, struct str *out)
{
	_cleanup_str_ struct str ns = {};

	put_ns(call->ns, &ns);
	str_printf(out, "%10s  %s %u", str_get(&ns), call->comm, call->pid);
	if (call->tid != call->pid)
		str_printf(out, "/%u", call->tid);
	str_puts(out, "  (");
	for (u32 i = 0; i < call->n_arguments; i++)
		str_printf(out, "%s%s=%s", i ? ", " : "", call->arguments[i].name,
			   call->arguments[i].value);
	str_puts(out, ")");
	if (call->result[0])
		str_printf(out, " = %s", call->result);
	if (has_id(call->trace_id, sizeof(call->trace_id))) {
		str_puts(out, "  trace ");
		put_hex(call->trace_id, sizeof(call->trace_id), out);
		str_puts(out, " span ");
		put_hex(call->span_id, sizeof(call->span_id), out);
	}
	str_putc(out, '\n');
	if (v->o->stacks)
		each_frame(v, call, put_frame_text, out);
}

static void put_total(struct view *v, const struct measure_counts *c, struct str *out)
{
	_cleanup_str_ struct str total = {}, mean = {}, longest = {};
	const struct measure_counts none = {};

	put_ns(c->total_ns, &total);
	put_ns(average(c, &none), &mean);
	put_ns(c->longest_ns, &longest);
	str_printf(out, "\n%llu calls, %llu returned: %s in all, average %s, longest %s\n",
		   c->calls, c->returned, str_get(&total), str_get(&mean), str_get(&longest));
	if (c->thinned < 0.995)
		str_printf(out,
			   "Probes were attached %.0f %% of the time, to keep to the CPU budget: "
			   "the counts are of that time\n",
			   100 * c->thinned);
	if (c->lost)
		str_printf(out, "%llu events were lost\n", c->lost);
	put_histogram(v, out);
	if (!v->n_slowest)
		return;
	str_printf(out, "\nThe slowest of %llu calls that were looked at one by one:\n", v->n_told);
	for (u32 i = 0; i < v->n_slowest; i++)
		put_call(v, &v->slowest[i], out);
}

/* ---- JSON ---- */

static void json_put_counts(struct json_writer *w, const struct measure_counts *c)
{
	json_put_u64(w, "calls", c->calls);
	json_put_u64(w, "returned", c->returned);
	json_put_u64(w, "total_ns", c->total_ns);
	json_put_u64(w, "longest_ns", c->longest_ns);
	json_put_u64(w, "slow", c->slow);
	json_put_u64(w, "lost", c->lost);
	json_put_fixed(w, "attached_share", c->thinned, 3);
	json_put_fixed(w, "cost_percent", c->cost_percent, 3);
}

static void put_frame_json(void *arg, const char *name, const char *file, u32 line)
{
	struct json_writer *w = arg;

	json_open_object(w, NULL);
	json_put_text(w, "function", name);
	if (file[0])
		json_put_text(w, "file", file);
	if (line)
		json_put_u64(w, "line", line);
	json_close(w);
}

static void json_put_id(struct json_writer *w, const char *key, const u8 *id, size_t n)
{
	_cleanup_str_ struct str text = {};

	if (!has_id(id, n))
		return;
	put_hex(id, n, &text);
	json_put_text(w, key, str_get(&text));
}

static void json_put_call(struct view *v, const struct measure_call *call, struct json_writer *w)
{
	json_open_object(w, NULL);
	json_put_u64(w, "ns", call->ns);
	json_put_u64(w, "end_ns", call->end_ns);
	json_put_u64(w, "pid", call->pid);
	json_put_u64(w, "tid", call->tid);
	json_put_text(w, "comm", call->comm);
	json_put_id(w, "trace_id", call->trace_id, sizeof(call->trace_id));
	json_put_id(w, "span_id", call->span_id, sizeof(call->span_id));
	json_open_array(w, "arguments");
	for (u32 i = 0; i < call->n_arguments; i++) {
		json_open_object(w, NULL);
		json_put_text(w, "name", call->arguments[i].name);
		json_put_exact(w, "value", call->arguments[i].value);
		json_close(w);
	}
	json_close(w);
	if (call->result[0])
		json_put_exact(w, "result", call->result);
	if (v->o->stacks) {
		json_open_array(w, "stack");
		each_frame(v, call, put_frame_json, w);
		json_close(w);
	}
	json_close(w);
}

static void json_put_histogram(const struct view *v, struct json_writer *w)
{
	json_open_array(w, "histogram");
	for (u32 i = 0; i < v->buckets; i++) {
		if (!v->hist[i])
			continue;
		json_open_object(w, NULL);
		json_put_u64(w, "from_ns", i ? trace_hist_low(i, MEASURE_HIST_BITS) : 0);
		json_put_u64(w, "to_ns", trace_hist_low(i + 1, MEASURE_HIST_BITS));
		json_put_u64(w, "calls", v->hist[i]);
		json_close(w);
	}
	json_close(w);
}

static void put_json(struct view *v, const struct measure_counts *c, bool total, struct str *out)
{
	struct json_writer w = {.out = out};

	json_open_object(&w, NULL);
	json_put_text(&w, "type", total ? "measured" : "measuring");
	json_put_text(&w, "function", v->o->function);
	json_put_counts(&w, c);
	for (size_t i = 0; i < ARRAY_SIZE(shares); i++)
		json_put_u64(&w, shares[i].name,
			     percentile(total ? v->hist : v->hist_before, v->buckets,
					shares[i].share, c->longest_ns));
	if (total) {
		json_put_histogram(v, &w);
		json_open_array(&w, "slowest");
		for (u32 i = 0; i < v->n_slowest; i++)
			json_put_call(v, &v->slowest[i], &w);
		json_close(&w);
	}
	json_close(&w);
	str_putc(out, '\n');
}

/* ---- running ---- */

/* hist is since the start, hist_before of the time since the last row. */
static void read_histogram(struct view *v)
{
	const u64 *hist;

	v->buckets = MIN(measure_histogram(v->measure, &hist), (u32)MAX_BUCKETS);
	for (u32 i = 0; i < v->buckets; i++) {
		v->hist_before[i] = hist[i] - v->hist[i];
		v->hist[i] = hist[i];
	}
}

static void show(struct view *v, bool total)
{
	_cleanup_str_ struct str out = {};
	u64 now = clock_ns(CLOCK_MONOTONIC);
	struct measure_counts c;

	measure_counts(v->measure, &c);
	read_histogram(v);
	if (v->o->json)
		put_json(v, &c, total, &out);
	else if (total)
		put_total(v, &c, &out);
	else
		put_row(v, &c, (double)(now - v->shown_ns) / 1e9, &out);
	fputs(str_get(&out), v->o->out);
	fflush(v->o->out);
	v->before = c;
	v->shown_ns = now;
}

static int watch(struct view *v)
{
	u64 start = clock_ns(CLOCK_MONOTONIC), end = start + v->o->seconds * 1000000000ULL;
	int r = 0;

	v->shown_ns = start;
	for (bool last = false; !last && r == 0;) {
		u64 now = clock_ns(CLOCK_MONOTONIC);

		last = signals_ended() || v->o->has_ended(v->o->arg) ||
		       (v->o->seconds && now >= end);
		r = measure_poll(v->measure, last ? 0 : POLL_MS);
		take_calls(v);
		if (!last && now - v->shown_ns >= 1000000000ULL)
			show(v, false);
	}
	if (r < 0)
		return cli_error(1, "cannot read the measurement: %s", strerror(-r));
	show(v, true);
	return ferror(v->o->out) ? cli_error(1, "cannot print: %s", strerror(EIO)) : 0;
}

static int write_profile(struct view *v)
{
	const struct profile_write_options o = {.title = v->o->function};
	_cleanup_profile_ struct profile *p = NULL;
	struct diag d = {};

	if (measure_profile(v->measure, &p, &d) < 0 ||
	    profile_write_file(p, v->o->profile_path, v->o->profile, &o, &d) < 0)
		return cli_error(1, "%s", d.text);
	if (!v->o->quiet)
		fprintf(stderr, "Wrote %s\n", v->o->profile_path);
	return 0;
}

static int measure(const struct measuring *o, const struct tracer_function_place *place)
{
	const struct measure_options options = {.function = place->function,
						.path = place->path,
						.pid = o->pid,
						.slow_ns = o->slow_ns,
						.budget_percent = o->budget_percent,
						.stacks = o->stacks || o->profile};
	struct view v = {.o = o};
	_cleanup_str_ struct str script = {};
	struct diag d = {};
	int r;

	if (o->show_script) {
		r = measure_script(&options, &script, &d);
		if (r < 0)
			return cli_error(1, "%s", d.text[0] ? d.text : strerror(-r));
		fputs(str_get(&script), o->out);
		return 0;
	}
	r = measure_create(&options, &d, &v.measure);
	if (r < 0)
		return cli_error(1, "%s", d.text[0] ? d.text : strerror(-r));
	if (!o->quiet)
		fprintf(stderr, "Measuring %s of %s\n", place->function,
			place->path ? place->path : "the kernel");
	r = o->begin(o->arg);
	if (r == 0)
		r = watch(&v);
	if (r == 0 && o->profile)
		r = write_profile(&v);
	measure_destroy(v.measure);
	return r;
}

int measuring_run(const struct measuring *o)
{
	const struct tracer_wanted wanted = {
		.name = o->function, .binary = o->binary, .pid = o->pid, .program = o->program};
	struct tracer_function_place place = {};
	struct diag d = {};
	int r = tracer_find_function(&wanted, &d, &place);

	if (r < 0)
		return cli_error(1, "%s", d.text[0] ? d.text : strerror(-r));
	r = measure(o, &place);
	tracer_function_place_deinit(&place);
	return r;
}
