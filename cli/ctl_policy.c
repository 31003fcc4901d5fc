/* SPDX-License-Identifier: Apache-2.0 */
/* culprit ctl policy: creates, lists, shows and deletes policies, which add tasks. */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "cli/cli.h"
#include "cli/ctl.h"
#include "control/control.h"

#define A struct ctl_arguments
const struct option ctl_policy_options[] = {
	OPTION_STRING("window", 0, "TIME", A, window,
		      "measure over so long, from 1s (default 10s)"),
	OPTION_U64("count", 0, "N", A, count, 1, 60,
		   "fire when so many windows have reached the threshold (default 1)"),
	OPTION_U64("of", 0, "N", A, of, 1, 60, "of the last so many windows (default: --count)"),
	OPTION_STRING("silence", 0, "TIME", A, silence,
		      "add no second task for the same service and endpoint for so long\n(default "
		      "20m)"),
	OPTION_U64("max-per-day", 0, "N", A, max_per_day, 0, 100,
		   "add so many tasks within a day at most (default 10); 0: no limit"),
	OPTION_F64("latency-percentile", 0, "P", A, latency_percentile, 50, 99.9,
		   "with latency: compare this percentile of a window, not the mean"),
	OPTION_U64("min-requests", 0, "N", A, min_requests, 1, 1 << 20,
		   "with errors and latency: leave out windows with fewer requests\n(default 10)"),
	{},
};
#undef A

static bool is_share(const char *cause)
{
	return !strcmp(cause, control_quantity_name(CONTROL_QUANTITY_CPU)) ||
	       !strcmp(cause, "errors");
}

/* "150", "10%", and with latency "200ms" in ms. */
static int parse_threshold(const char *cause, const char *text, double *ret)
{
	char *end;
	double ns;

	if (!strcmp(cause, "latency") && ctl_parse_time(text, &ns) == 0) {
		*ret = ns / 1e6;
		return 0;
	}
	*ret = strtod(text, &end);
	if (*end == '%' && is_share(cause))
		end++;
	return end == text || *end || !isfinite(*ret) || *ret <= 0
		       ? cli_error(2, "ctl: '%s' is not a threshold such as %s", text,
				   !strcmp(cause, "latency") ? "200ms" : "150")
		       : 0;
}

static int put_policy(const struct ctl_arguments *a, int n, char **words, struct str *out)
{
	struct json_writer w = {.out = out};
	double threshold;
	int r = parse_threshold(words[1], words[2], &threshold);

	if (r)
		return r;
	if (a->start)
		return cli_error(2, "ctl: --start is not for policies: a policy's task starts when "
				    "it fires");
	if (a->kind || a->events)
		return cli_error(2, "ctl: --kind and --events are not for policies: their tasks "
				    "keep requests");
	json_open_object(&w, NULL);
	json_put_exact(&w, "service", words[0]);
	json_put_exact(&w, "cause", words[1]);
	json_put_double(&w, "threshold", threshold);
	if (n > 3)
		json_put_exact(&w, "endpoint", words[3]);
	if (a->latency_percentile > 0)
		json_put_double(&w, "percentile", a->latency_percentile);
	if (a->min_requests)
		json_put_u64(&w, "min_requests", a->min_requests);
	if (a->count)
		json_put_u64(&w, "count", a->count);
	if (a->of)
		json_put_u64(&w, "of", a->of);
	if (a->max_per_day != CTL_UNSET)
		json_put_u64(&w, "max_per_day", a->max_per_day);
	r = ctl_put_time(&w, "window_ms", "window", a->window, 1e6, 0);
	if (r == 0)
		r = ctl_put_time(&w, "silence_ms", "silence", a->silence, 1e6, 0);
	json_open_object(&w, "task");
	if (r == 0)
		r = ctl_put_task(a, &w);
	json_close(&w);
	json_close(&w);
	return r;
}

/* ---- printing ---- */

static double double_of(const json_t *o, const char *name)
{
	return json_number_value(json_object_get(o, name));
}

static const char *unit_of(const char *cause)
{
	return is_share(cause) ? " %" : !strcmp(cause, "latency") ? " ms" : "";
}

/* "cpu 150 %, 3 of 5 × 10 s" */
static void describe(const json_t *spec, struct str *out)
{
	const char *cause = ctl_text(spec, "cause");
	double percentile = double_of(spec, "percentile");

	str_puts(out, cause);
	if (percentile > 0)
		str_printf(out, " p%g", percentile);
	str_printf(out, " %g%s, %lld of %lld × %g s", double_of(spec, "threshold"), unit_of(cause),
		   (long long)ctl_number(spec, "count"), (long long)ctl_number(spec, "of"),
		   (double)ctl_number(spec, "window_ms") / 1e3);
}

static void print_policies(const json_t *answer)
{
	static const struct ctl_column columns[] = {
		{"ID", false},	   {"SERVICE", false}, {"ENDPOINT", false}, {"FIRES", false},
		{"SILENCE", true}, {"TASKS", true},    {"LAST", false}};
	struct ctl_table t = {.columns = columns, .n = ARRAY_SIZE(columns)};
	const json_t *e;
	size_t i;

	json_array_foreach(json_object_get(answer, "policies"), i, e)
	{
		const json_t *spec = json_object_get(e, "spec"), *fired, *last;
		_cleanup_str_ struct str fires = {};
		char at[32];

		fired = json_object_get(e, "fired");
		last = json_array_get(fired, json_array_size(fired) - 1);
		describe(spec, &fires);
		ctl_format_time(ctl_number(json_object_get(last, "cause"), "at"), at, sizeof(at));
		ctl_cell(&t, "%s", ctl_text(e, "id"));
		ctl_cell(&t, "%s", ctl_text(spec, "service"));
		ctl_cell(&t, "%s", *ctl_text(spec, "endpoint") ? ctl_text(spec, "endpoint") : "-");
		ctl_cell(&t, "%s", str_get(&fires));
		ctl_cell(&t, "%g s", (double)ctl_number(spec, "silence_ms") / 1e3);
		ctl_cell(&t, "%lld",
			 (long long)ctl_number(json_object_get(e, "verdicts"), "fired"));
		ctl_cell(&t, "%s", at);
	}
	if (t.cells.n)
		ctl_print_table(&t);
	else
		printf("no policies\n");
}

static void print_seen(const json_t *policy)
{
	static const struct ctl_column columns[] = {
		{"HOST", false}, {"SERVICE", false}, {"ENDPOINT", false}, {"VALUE", true},
		{"OVER", true},	 {"WINDOWS", true},  {"VERDICT", false},  {"PROCESS", false}};
	struct ctl_table t = {.columns = columns, .n = ARRAY_SIZE(columns)};
	const json_t *e;
	size_t i;

	json_array_foreach(json_object_get(policy, "seen"), i, e)
	{
		ctl_cell(&t, "%s", *ctl_text(e, "host") ? ctl_text(e, "host") : "-");
		ctl_cell(&t, "%s", ctl_text(e, "service"));
		ctl_cell(&t, "%s", ctl_text(e, "endpoint"));
		ctl_cell(&t, "%.2f", double_of(e, "value"));
		ctl_cell(&t, "%lld", (long long)ctl_number(e, "over"));
		ctl_cell(&t, "%lld", (long long)ctl_number(e, "windows"));
		ctl_cell(&t, "%s", ctl_text(e, "verdict"));
		if (ctl_number(e, "pid"))
			ctl_cell(&t, "%lld %s", (long long)ctl_number(e, "pid"),
				 ctl_text(e, "comm"));
		else
			ctl_cell(&t, "%s", "");
	}
	if (!t.cells.n)
		return;
	printf("\n");
	ctl_print_table(&t);
}

static void print_verdicts(const json_t *policy)
{
	const json_t *value;
	const char *name, *and = "";

	printf("verdicts   ");
	json_object_foreach(json_object_get(policy, "verdicts"), name, value)
	{
		if (!json_integer_value(value))
			continue;
		printf("%s%lld %s", and, (long long)json_integer_value(value), name);
		and = ", ";
	}
	printf("%s\n", *and? "" : "none");
}

static void print_policy(const json_t *policy)
{
	const json_t *spec = json_object_get(policy, "spec"), *e;
	_cleanup_str_ struct str fires = {};
	size_t i;

	describe(spec, &fires);
	printf("policy     %s\n", ctl_text(policy, "id"));
	printf("service    %s\n", ctl_text(spec, "service"));
	if (*ctl_text(spec, "endpoint"))
		printf("endpoint   %s\n", ctl_text(spec, "endpoint"));
	printf("fires      %s\n", str_get(&fires));
	printf("then       silent for %g s, and %lld tasks a day at most\n",
	       (double)ctl_number(spec, "silence_ms") / 1e3,
	       (long long)ctl_number(spec, "max_per_day"));
	print_verdicts(policy);
	print_seen(policy);
	json_array_foreach(json_object_get(policy, "fired"), i, e)
	{
		const json_t *cause = json_object_get(e, "cause");
		char at[32];

		ctl_format_time(ctl_number(cause, "at"), at, sizeof(at));
		printf("%s%s  task %s: %s\n", i ? "" : "\nTasks that it has added:\n", at,
		       ctl_text(e, "task"), ctl_text(cause, "text"));
	}
	ctl_print_log(policy);
}

const struct ctl_verb ctl_policy_verbs[] = {
	{"policy", "create", "POST", "/policies", 3, 4, put_policy, ctl_print_id},
	{"policy", "list", "GET", "/policies", 0, 0, NULL, print_policies},
	{"policy", "show", "GET", "/policies/%s", 1, 1, NULL, print_policy},
	{"policy", "delete", "DELETE", "/policies/%s", 1, 1, NULL, NULL},
	{},
};
