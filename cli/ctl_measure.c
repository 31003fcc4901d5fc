/* SPDX-License-Identifier: Apache-2.0 */
/* culprit ctl measure: measures a function on all hosts that run it, and shows what came of it. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "cli/cli.h"
#include "cli/ctl.h"

#define A struct ctl_arguments
const struct option ctl_measure_options[] = {
	OPTION_STRING("service", 's', "NAME", A, service,
		      "measure in processes of this service (default: of all; then --file)"),
	OPTION_STRING("file", 0, "FILE", A, file,
		      "the binary, by its path or the last part of it (default: the executable); "
		      "[kernel]"),
	OPTION_STRING("duration", 'd', "TIME", A, measure_duration,
		      "measure for so long, 1s to 10m (default 30s)"),
	OPTION_STRING("slow", 0, "TIME", A, slow,
		      "tell calls that take at least this long one by one (default: the agents\n"
		      "choose)"),
	OPTION_F64("cost", 0, "PERCENT", A, cost, 0.01, 10,
		   "thin out calls above this CPU time of one CPU on each host (default 1)"),
	{},
};
#undef A

static int put_measurement(const struct ctl_arguments *a, int n, char **words, struct str *out)
{
	struct json_writer w = {.out = out};
	int r;

	(void)n;
	json_open_object(&w, NULL);
	json_put_exact(&w, "function", words[0]);
	json_put_exact(&w, "service", a->service ? a->service : "*");
	json_put_exact(&w, "file", a->file ? a->file : "");
	if (a->cost > 0)
		json_put_double(&w, "budget_percent", a->cost);
	r = ctl_put_time(&w, "duration_ms", "duration", a->measure_duration, 1e6, 0);
	if (r == 0)
		r = ctl_put_time(&w, "slow_ns", "slow", a->slow, 1, 0);
	json_close(&w);
	return r;
}

/* ---- printing ---- */

static void format_ns(s64 ns, char *ret, size_t n)
{
	static const struct {
		double ns;
		const char *name;
	} units[] = {{1e9, "s"}, {1e6, "ms"}, {1e3, "us"}};

	for (size_t i = 0; i < ARRAY_SIZE(units); i++)
		if ((double)ns >= units[i].ns) {
			snprintf(ret, n, "%.2f %s", (double)ns / units[i].ns, units[i].name);
			return;
		}
	snprintf(ret, n, "%lld ns", (long long)ns);
}

static void cell_ns(struct ctl_table *t, const json_t *o, const char *name)
{
	char text[32];

	format_ns(ctl_number(o, name), text, sizeof(text));
	ctl_cell(t, "%s", ctl_number(o, name) ? text : "-");
}

static const char *file_of(const json_t *spec)
{
	const char *file = ctl_text(spec, "file");

	return *file ? file : "the executable";
}

static void print_measurements(const json_t *answer)
{
	static const struct ctl_column columns[] = {
		{"ID", false},	 {"STATE", false}, {"SERVICE", false}, {"FUNCTION", false},
		{"CALLS", true}, {"MEDIAN", true}, {"P99", true},      {"SLOWEST", true}};
	struct ctl_table t = {.columns = columns, .n = ARRAY_SIZE(columns)};
	const json_t *e;
	size_t i;

	json_array_foreach(json_object_get(answer, "measurements"), i, e)
	{
		const json_t *spec = json_object_get(e, "spec");
		const json_t *latency = json_object_get(e, "latency");

		ctl_cell(&t, "%s", ctl_text(e, "id"));
		ctl_cell(&t, "%s", ctl_text(e, "state"));
		ctl_cell(&t, "%s", ctl_text(spec, "service"));
		ctl_cell(&t, "%s", ctl_text(spec, "function"));
		ctl_cell(&t, "%lld", (long long)ctl_number(e, "calls"));
		cell_ns(&t, latency, "p50_ns");
		cell_ns(&t, latency, "p99_ns");
		cell_ns(&t, latency, "max_ns");
	}
	if (t.cells.n)
		ctl_print_table(&t);
	else
		printf("no measurements\n");
}

static void print_agents(const json_t *measurement)
{
	const json_t *e;
	size_t i;

	json_array_foreach(json_object_get(measurement, "agents"), i, e) printf(
		"%s%s  %s, %lld process%s, %lld calls, %.2f %% of a CPU%s%s\n",
		i ? "           " : "agents     ", ctl_text(e, "host"), ctl_text(e, "state"),
		(long long)ctl_number(e, "processes"), ctl_number(e, "processes") == 1 ? "" : "es",
		(long long)ctl_number(e, "calls"),
		json_number_value(json_object_get(e, "cost_percent")),
		*ctl_text(e, "reason") ? ": " : "", ctl_text(e, "reason"));
}

/* "items=8000 fd=5" */
static void put_arguments(const json_t *call, struct str *out)
{
	const json_t *e;
	size_t i;

	json_array_foreach(json_object_get(call, "arguments"), i, e)
		str_printf(out, "%s%s=%s", i ? " " : "", ctl_text(e, "name"), ctl_text(e, "value"));
}

static void print_calls(const json_t *measurement)
{
	static const struct ctl_column columns[] = {{"TOOK", true},	{"ARGUMENTS", false},
						    {"RESULT", false},	{"HOST", false},
						    {"PROCESS", false}, {"TRACE", false}};
	struct ctl_table t = {.columns = columns, .n = ARRAY_SIZE(columns)};
	const json_t *e;
	size_t i;

	json_array_foreach(json_object_get(measurement, "slow_calls"), i, e)
	{
		_cleanup_str_ struct str arguments = {};

		put_arguments(e, &arguments);
		cell_ns(&t, e, "ns");
		ctl_cell(&t, "%s", str_get(&arguments));
		ctl_cell(&t, "%s", ctl_text(e, "result"));
		ctl_cell(&t, "%s", ctl_text(e, "host"));
		ctl_cell(&t, "%lld %s", (long long)ctl_number(e, "pid"), ctl_text(e, "comm"));
		ctl_cell(&t, "%s", *ctl_text(e, "trace_id") ? ctl_text(e, "trace_id") : "-");
	}
	printf("\n%s\n", t.cells.n ? "Slow calls, the slowest first:" : "no slow calls");
	if (t.cells.n)
		ctl_print_table(&t);
}

static void print_latency(const json_t *latency)
{
	static const char *const rows[][2] = {
		{"median", "p50_ns"}, {"p95", "p95_ns"}, {"p99", "p99_ns"}, {"slowest", "max_ns"}};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		char text[32];

		format_ns(ctl_number(latency, rows[i][1]), text, sizeof(text));
		printf("%-10s %s\n", rows[i][0], text);
	}
}

static void print_measurement(const json_t *m)
{
	const json_t *spec = json_object_get(m, "spec");
	double thinned = json_number_value(json_object_get(m, "thinned"));

	printf("id         %s\n", ctl_text(m, "id"));
	printf("state      %s\n", ctl_text(m, "state"));
	printf("function   %s in %s, of %s\n", ctl_text(spec, "function"), file_of(spec),
	       !strcmp(ctl_text(spec, "service"), "*") ? "all services"
						       : ctl_text(spec, "service"));
	printf("calls      %lld, %.1f a second%s\n", (long long)ctl_number(m, "calls"),
	       json_number_value(json_object_get(m, "calls_per_second")),
	       json_is_true(json_object_get(m, "others")) ? ", of all processes that run the file"
							  : "");
	if (thinned < 1)
		printf("measured   in %.1f %% of the time, within the budget\n", 100 * thinned);
	if (ctl_number(m, "lost"))
		printf("lost       %lld events\n", (long long)ctl_number(m, "lost"));
	if (ctl_number(m, "returned"))
		print_latency(json_object_get(m, "latency"));
	print_agents(m);
	print_calls(m);
}

const struct ctl_verb ctl_measure_verbs[] = {
	{"measure", "add", "POST", "/measurements", 1, 1, put_measurement, ctl_print_id},
	{"measure", "list", "GET", "/measurements", 0, 0, NULL, print_measurements},
	{"measure", "show", "GET", "/measurements/%s", 1, 1, NULL, print_measurement},
	{"measure", "stop", "POST", "/measurements/%s/stop", 1, 1, NULL, NULL},
	{"measure", "delete", "DELETE", "/measurements/%s", 1, 1, NULL, NULL},
	{},
};
