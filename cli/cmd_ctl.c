/* SPDX-License-Identifier: Apache-2.0 */
/* culprit ctl: asks a server to do something, and the tasks among its objects. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/str.h"
#include "base/text.h"
#include "base/vec.h"
#include "cli/cli.h"
#include "cli/commands.h"
#include "cli/ctl.h"
#include "cli/options.h"
#include "http/http.h"
#include "server/client/client.h"

#define DEFAULT_SERVER "http://127.0.0.1:7788"
#define DEFAULT_PROBE "http://127.0.0.1:9999"

#define A struct ctl_arguments
static const struct option connection_options[] = {
	OPTION_STRING("server", 0, "URL", A, server,
		      "the server (default " DEFAULT_SERVER ";\nof flamegraph: " DEFAULT_PROBE ")"),
	OPTION_STRING("token-file", 0, "FILE", A, token_file,
		      "send the token in the first line of this file"),
	OPTION_STRING("ca", 0, "FILE", A, ca,
		      "verify the server's certificate against this CA (PEM)"),
	OPTION_FLAG("json", 0, A, json, "print the server's answer as it came"),
	{},
};
static const struct option task_options[] = {
	OPTION_STRING("min", 0, "TIME", A, min,
		      "keep requests that take at least so long: 100ms, 1.5s"),
	OPTION_F64("percentile", 0, "P", A, percentile, 50, 99.9,
		   "keep requests that are slower than P % of those to their endpoint\nin the last "
		   "minutes"),
	OPTION_FLAG("errors", 0, A, errors, "keep requests that end with an error"),
	OPTION_F64("control", 0, "SHARE", A, control, 0, 1,
		   "keep this share of the other requests too, chosen at random, for\ncomparison "
		   "(default 0)"),
	OPTION_STRING("for", 0, "TIME", A, duration,
		      "end after so long (default 5m); 0: when it is cancelled"),
	OPTION_STRING("period", 0, "TIME", A, period,
		      "take a sample of a thread on a CPU so often, from 1ms (default 10ms)"),
	OPTION_STRING(
		"floor", 0, "TIME", A, floor,
		"take the stack of each wait at least so long, and of shorter ones\nin proportion (default 1ms)"),
	OPTION_STRING("only", 0, "KIND", A, only,
		      "sample only running threads, or only waiting ones"),
	OPTION_U64("max", 0, "N", A, max, 0, 1000000,
		   "end after so many requests (default 100); 0: no limit"),
	OPTION_U64("max-per-agent", 0, "N", A, max_per_agent, 0, 1000000,
		   "keep so many requests of an agent (default 0: no limit)"),
	OPTION_U64("max-per-minute", 0, "N", A, max_per_minute, 0, 1000000,
		   "keep so many requests to an endpoint in a minute (default 60);\n0: no limit"),
	{},
};
static const struct option add_options[] = {
	OPTION_STRING("start", 0, "TIME", A, start, "start after so long (default: now)"),
	OPTION_STRING("kind", 0, "KIND", A, kind,
		      "requests (default); or pprof or async-profiler: profile the service's\n"
		      "processes by the profiler of SkyWalking's agents for Go and Java, which\n"
		      "send to this server"),
	OPTION_STRING("events", 0, "NAMES", A, events,
		      "what that profiler records (default cpu). pprof: one of cpu, heap,\n"
		      "allocs, block, mutex, goroutine, threadcreate. async-profiler: one of\n"
		      "cpu, wall, ctimer, itimer, and alloc, lock: \"cpu,alloc\""),
	{},
};
static const struct option requests_options[] = {
	OPTION_U64("limit", 0, "N", A, limit, 1, 1000, "show so many requests (default 100)"),
	{},
};
#undef A

/* ---- tasks ---- */

static s64 count_of(const json_t *o, const char *group, const char *name)
{
	return ctl_number(json_object_get(o, group), name);
}

static double ms_of(const json_t *o, const char *name)
{
	return json_number_value(json_object_get(o, name));
}

static void describe(const json_t *spec, struct str *out)
{
	const char *kind = ctl_text(spec, "kind");
	const json_t *min = json_object_get(spec, "min_ms");
	const json_t *percentile = json_object_get(spec, "percentile");
	const char *and = "";

	if (*kind) {
		str_printf(out, "%s: %s", kind, ctl_text(spec, "events"));
		return;
	}
	if (json_is_number(min)) {
		if (json_number_value(min) > 0)
			str_printf(out, "from %g ms", json_number_value(min));
		else
			str_puts(out, "all");
		and = ", ";
	}
	if (json_is_number(percentile)) {
		str_printf(out, "%sabove p%g", and, json_number_value(percentile));
		and = ", ";
	}
	if (json_is_true(json_object_get(spec, "errors"))) {
		str_printf(out, "%serrors", and);
		and = ", ";
	}
	if (ms_of(spec, "control") > 0)
		str_printf(out, "%s%g %% of others", and, ms_of(spec, "control") * 100);
}

/* Both are whole and in part: what agents delivered. */
static s64 delivered(const json_t *task)
{
	return count_of(task, "outcomes", "kept") + count_of(task, "outcomes", "partly");
}

static const char *endpoint_of(const json_t *spec)
{
	const char *endpoint = ctl_text(spec, "endpoint");

	return *endpoint ? endpoint : "(all)";
}

static void print_tasks(const json_t *answer)
{
	static const struct ctl_column columns[] = {
		{"ID", false},	  {"STATE", false}, {"SERVICE", false},	 {"ENDPOINT", false},
		{"KEEPS", false}, {"WANTED", true}, {"DELIVERED", true}, {"END", false}};
	struct ctl_table t = {.columns = columns, .n = ARRAY_SIZE(columns)};
	const json_t *e;
	size_t i;

	json_array_foreach(json_object_get(answer, "tasks"), i, e)
	{
		const json_t *spec = json_object_get(e, "spec");
		_cleanup_str_ struct str keeps = {};
		char end[32];

		describe(spec, &keeps);
		ctl_format_time(ctl_number(e, "end"), end, sizeof(end));
		ctl_cell(&t, "%s", ctl_text(e, "id"));
		ctl_cell(&t, "%s", ctl_text(e, "state"));
		ctl_cell(&t, "%s", ctl_text(spec, "service"));
		ctl_cell(&t, "%s", endpoint_of(spec));
		ctl_cell(&t, "%s", str_get(&keeps));
		ctl_cell(&t, "%lld", (long long)count_of(e, "counts", "wanted"));
		ctl_cell(&t, "%lld", (long long)delivered(e));
		ctl_cell(&t, "%s", end);
	}
	if (t.cells.n)
		ctl_print_table(&t);
	else
		printf("no tasks\n");
}

static void print_counts(const json_t *task, const char *group, const char *label)
{
	const json_t *value;
	const char *name, *and = "";
	_cleanup_str_ struct str line = {};

	json_object_foreach((json_t *)json_object_get(task, group), name, value)
	{
		if (!json_integer_value(value))
			continue;
		str_printf(&line, "%s%lld %s", and, (long long)json_integer_value(value), name);
		and = ", ";
	}
	printf("%-10s %s\n", label, line.n ? str_get(&line) : "none");
}

static void print_agents(const json_t *task)
{
	static const struct ctl_column columns[] = {
		{"AGENT", false},    {"STATE", false},	{"PROCESSES", true}, {"PUBLISHING", true},
		{"DELIVERED", true}, {"EVICTED", true}, {"LOST", true},	     {"REASON", false}};
	struct ctl_table t = {.columns = columns, .n = ARRAY_SIZE(columns)};
	const json_t *e;
	size_t i;

	json_array_foreach(json_object_get(task, "agents"), i, e)
	{
		ctl_cell(&t, "%s", ctl_text(e, "host"));
		ctl_cell(&t, "%s", ctl_text(e, "state"));
		ctl_cell(&t, "%lld", (long long)ctl_number(e, "processes"));
		ctl_cell(&t, "%lld", (long long)ctl_number(e, "publishing"));
		ctl_cell(&t, "%lld", (long long)ctl_number(e, "kept"));
		ctl_cell(&t, "%lld", (long long)ctl_number(e, "evicted"));
		ctl_cell(&t, "%lld", (long long)ctl_number(e, "lost"));
		ctl_cell(&t, "%s", ctl_text(e, "reason"));
	}
	if (!t.cells.n)
		return;
	printf("\n");
	ctl_print_table(&t);
}

void ctl_print_log(const json_t *object)
{
	const json_t *e;
	size_t i;

	json_array_foreach(json_object_get(object, "log"), i, e)
	{
		char at[32];

		ctl_format_time(ctl_number(e, "at"), at, sizeof(at));
		printf("%s%s  %s%s%s\n", i ? "" : "\n", at, ctl_text(e, "host"),
		       *ctl_text(e, "host") ? ": " : "", ctl_text(e, "text"));
	}
}

static void print_lines(const json_t *task)
{
	const json_t *e;
	size_t i;

	json_array_foreach(json_object_get(task, "why"), i, e)
		printf("%s%s\n", i ? "" : "\nWhy there is not more data:\n", ctl_text(e, "text"));
	ctl_print_log(task);
}

static void print_task(const json_t *task)
{
	const json_t *spec = json_object_get(task, "spec");
	_cleanup_str_ struct str keeps = {};
	char start[32], end[32];

	describe(spec, &keeps);
	ctl_format_time(ctl_number(task, "start"), start, sizeof(start));
	ctl_format_time(ctl_number(task, "end"), end, sizeof(end));
	printf("task       %s, %s\n", ctl_text(task, "id"), ctl_text(task, "state"));
	printf("service    %s\n", ctl_text(spec, "service"));
	printf("endpoint   %s\n", endpoint_of(spec));
	printf("keeps      %s\n", str_get(&keeps));
	printf("samples    every %g ms on a CPU%s, waits from %lld us%s\n",
	       (double)ctl_number(spec, "period_us") / 1e3,
	       json_is_true(json_object_get(spec, "running")) ? "" : " (left out)",
	       (long long)ctl_number(spec, "floor_us"),
	       json_is_true(json_object_get(spec, "waiting")) ? "" : " (left out)");
	printf("time       %s to %s\n", start, end);
	if (json_is_object(json_object_get(task, "cause")))
		printf("cause      %s (policy %s)\n",
		       ctl_text(json_object_get(task, "cause"), "text"),
		       ctl_text(json_object_get(task, "cause"), "policy"));
	print_counts(task, "counts", "counts");
	print_counts(task, "reasons", "reasons");
	print_counts(task, "outcomes", "outcomes");
	printf("slowest    %.3f ms\n", ms_of(task, "slowest_ms"));
	print_agents(task);
	print_lines(task);
}

static void print_requests(const json_t *answer)
{
	static const struct ctl_column columns[] = {
		{"TRACE", false},  {"START", false},   {"MS", true},	{"STATUS", false},
		{"REASON", false}, {"OUTCOME", false}, {"HOST", false}, {"ENDPOINT", false}};
	struct ctl_table t = {.columns = columns, .n = ARRAY_SIZE(columns)};
	const json_t *e;
	size_t i;

	json_array_foreach(json_object_get(answer, "requests"), i, e)
	{
		char start[32];

		ctl_format_time((s64)ms_of(e, "start_ms"), start, sizeof(start));
		ctl_cell(&t, "%s", ctl_text(e, "trace_id"));
		ctl_cell(&t, "%s", start);
		ctl_cell(&t, "%.3f", ms_of(e, "duration_ms"));
		ctl_cell(&t, "%s", ctl_text(e, "status"));
		ctl_cell(&t, "%s", ctl_text(e, "reason"));
		ctl_cell(&t, "%s", ctl_text(e, "outcome"));
		ctl_cell(&t, "%s", ctl_text(e, "host"));
		ctl_cell(&t, "%s", ctl_text(e, "endpoint"));
	}
	if (t.cells.n)
		ctl_print_table(&t);
	else
		printf("no requests\n");
}

/* ---- verbs ---- */

int ctl_put_task(const struct ctl_arguments *a, struct json_writer *w)
{
	int r;

	if (a->percentile > 0)
		json_put_double(w, "percentile", a->percentile);
	json_put_bool(w, "errors", a->errors);
	json_put_double(w, "control", a->control);
	r = ctl_put_time(w, "min_ms", "min", a->min, 1e6, 0);
	if (r == 0)
		r = ctl_put_time(w, "duration_ms", "for", a->duration, 1e6, 0);
	if (r == 0)
		r = ctl_put_time(w, "period_us", "period", a->period, 1e3, 0);
	if (r == 0)
		r = ctl_put_time(w, "floor_us", "floor", a->floor, 1e3, 0);
	if (r)
		return r;
	if (a->only && strcmp(a->only, "running") != 0 && strcmp(a->only, "waiting") != 0)
		return cli_error(2, "ctl: --only: running or waiting, not '%s'", a->only);
	json_put_bool(w, "running", !a->only || !strcmp(a->only, "running"));
	json_put_bool(w, "waiting", !a->only || !strcmp(a->only, "waiting"));
	if (a->max != CTL_UNSET)
		json_put_u64(w, "max_requests", a->max);
	if (a->max_per_agent != CTL_UNSET)
		json_put_u64(w, "max_per_agent", a->max_per_agent);
	if (a->max_per_minute != CTL_UNSET)
		json_put_u64(w, "max_per_minute", a->max_per_minute);
	return 0;
}

static int put_spec(const struct ctl_arguments *a, int n, char **words, struct str *out)
{
	struct json_writer w = {.out = out};
	int r;

	json_open_object(&w, NULL);
	json_put_exact(&w, "service", words[0]);
	if (a->kind)
		json_put_exact(&w, "kind", a->kind);
	if (a->events)
		json_put_exact(&w, "events", a->events);
	else if (a->kind && strcmp(a->kind, "requests") != 0)
		json_put_text(&w, "events", "cpu");
	if (n > 1)
		json_put_exact(&w, "endpoint", words[1]);
	r = ctl_put_time(&w, "start", "start", a->start, 1e6, clock_epoch_ms());
	if (r == 0)
		r = ctl_put_task(a, &w);
	json_close(&w);
	return r;
}

void ctl_print_id(const json_t *object)
{
	printf("%s\n", ctl_text(object, "id"));
}

static const struct ctl_verb task_verbs[] = {
	{"task", "add", "POST", "/tasks", 1, 2, put_spec, ctl_print_id},
	{"task", "list", "GET", "/tasks", 0, 0, NULL, print_tasks},
	{"task", "show", "GET", "/tasks/%s", 1, 1, NULL, print_task},
	{"task", "cancel", "POST", "/tasks/%s/cancel", 1, 1, NULL, NULL},
	{"task", "delete", "DELETE", "/tasks/%s", 1, 1, NULL, NULL},
	{"task", "requests", "GET", "/tasks/%s/requests", 1, 1, NULL, print_requests},
	{},
};

static const struct ctl_verb *find_verb(int n, char **words)
{
	static const struct ctl_verb *const all[] = {task_verbs, ctl_policy_verbs,
						     ctl_measure_verbs, ctl_agent_verbs,
						     ctl_flamegraph_verbs};

	if (n < 2)
		return NULL;
	for (size_t i = 0; i < ARRAY_SIZE(all); i++)
		for (const struct ctl_verb *v = all[i]; v->name; v++)
			if (!strcmp(v->object, words[0]) && !strcmp(v->name, words[1]) &&
			    n - 2 >= v->min_words && n - 2 <= v->max_words)
				return v;
	return NULL;
}

static bool is_id(const char *text)
{
	return *text && strspn(text, "0123456789abcdefghijklmnopqrstuvwxyz-_") == strlen(text);
}

static int perform(const struct ctl_arguments *a, struct client *c, const struct ctl_verb *v, int n,
		   char **words)
{
	_cleanup_str_ struct str path = {}, body = {}, answer = {};
	struct diag d = {};
	json_t *json;
	int r;

	if (!v->body && n && !is_id(words[0]))
		return cli_error(2, "ctl: '%s' is not the id of a %s", words[0], v->object);
	r = v->body ? v->body(a, n, words, &body) : 0;
	if (r)
		return r;
	if (strchr(v->path, '%'))
		str_printf(&path, "%.*s%s%s", (int)strcspn(v->path, "%"), v->path, words[0],
			   strchr(v->path, '%') + 2);
	else
		str_puts(&path, v->path);
	if (a->limit != CTL_UNSET && v->print == print_requests)
		str_printf(&path, "?limit=%llu", a->limit);
	if (!strcmp(v->method, "GET"))
		r = client_get(c, str_get(&path), &d, &answer);
	else
		r = client_send(c, v->method, str_get(&path), body.n ? str_get(&body) : NULL, &d,
				&answer);
	if (r < 0)
		return cli_error(1, "ctl: %s", d.text);
	json = json_loadb(str_get(&answer), answer.n, 0, NULL);
	if (!json)
		return cli_error(1, "ctl: %s is not a culprit server: its answer is not JSON",
				 a->server);
	if (a->json)
		printf("%s\n", str_get(&answer));
	else if (v->print)
		v->print(json);
	json_decref(json);
	return 0;
}

int cmd_ctl(int argc, char **argv)
{
	struct ctl_arguments a = {
		.max = CTL_UNSET,
		.max_per_agent = CTL_UNSET,
		.max_per_minute = CTL_UNSET,
		.limit = CTL_UNSET,
		.max_per_day = CTL_UNSET,
	};
	const struct option_group groups[] = {{NULL, connection_options, &a},
					      {"task add, policy create", task_options, &a},
					      {"task add", add_options, &a},
					      {"task requests", requests_options, &a},
					      {"policy create", ctl_policy_options, &a},
					      {"measure add", ctl_measure_options, &a},
					      {"agent set", ctl_agent_options, &a},
					      {}};
	const struct option_usage usage = {
		.command = "ctl",
		.operands = "task add|list|show|cancel|delete|requests [SERVICE [ENDPOINT]|ID], "
			    "policy create|list|show|delete ..., measure add|list|show|stop|delete "
			    "[FUNCTION|ID], agent set|unset|list [HOST], "
			    "flamegraph get|set|delete [JSON]",
		.summary =
			"Tells a server which requests of a service to profile in detail: the slow "
			"ones, those with\nerrors, or all. Prints the tasks, why they have no "
			"data, and the requests that they kept.\nA policy adds a task when a "
			"process, a machine or an endpoint has reached a threshold.\nA measurement counts the "
			"calls of a function on all hosts, with latencies and slow calls.\nSettings tell "
			"the agents of hosts how to sample always.\nflamegraph is "
			"the configuration of culprit stackprobe.",
		.groups = groups,
	};
	_cleanup_free_ char *token = NULL;
	const struct ctl_verb *v;
	struct client *c = NULL;
	struct diag d = {};
	bool is_probe;
	int first, r = options_parse(&usage, argc, argv, &first);

	if (r != 0)
		return r < 0 ? 2 : 0;
	v = find_verb(argc - first, argv + first);
	if (!v)
		return cli_error(
			2,
			"ctl: give task add SERVICE [ENDPOINT], task list, or task "
			"show|cancel|delete|requests ID; policy create SERVICE CAUSE "
			"THRESHOLD [ENDPOINT], policy list, or policy show|delete ID; "
			"measure add FUNCTION, measure list, or measure "
			"show|stop|delete ID; agent list, or agent set|unset [HOST]; flamegraph get|delete, "
			"or flamegraph set JSON");
	is_probe = !strcmp(v->object, "flamegraph");
	if (!a.server)
		a.server = is_probe ? DEFAULT_PROBE : DEFAULT_SERVER;
	if (a.token_file && http_client_token(a.token_file, &d, &token) < 0)
		return cli_error(1, "%s", d.text);
	if (client_create(&(struct client_options){.server = a.server,
						   .token = token,
						   .prefix = is_probe ? "" : NULL,
						   .ca = a.ca},
			  &d, &c) < 0)
		return cli_error(1, "ctl: %s", d.text);
	r = perform(&a, c, v, argc - first - 2, argv + first + 2);
	client_destroy(c);
	return r;
}
