/* SPDX-License-Identifier: Apache-2.0 */
/* culprit ctl task: adds, lists, cancels and deletes tasks of a server, and shows what they do. */
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
#include "cli/options.h"
#include "http/http.h"
#include "server/client/client.h"

#define DEFAULT_SERVER "http://127.0.0.1:7788"
#define MAX_COLUMNS 8

struct ctl_arguments {
	const char *server, *token_file, *ca;
	bool json;
	const char *min, *duration, *start, *period, *floor, *only;
	double percentile, control;
	bool errors;
	u64 max, max_per_agent, max_per_minute, limit;
};

#define UNSET ~0ULL
#define A struct ctl_arguments
static const struct option connection_options[] = {
	OPTION_STRING("server", 0, "URL", A, server, "the server (default " DEFAULT_SERVER ")"),
	OPTION_STRING("token-file", 0, "FILE", A, token_file,
		      "send the token in the first line of this file"),
	OPTION_STRING("ca", 0, "FILE", A, ca,
		      "verify the server's certificate against this CA (PEM)"),
	OPTION_FLAG("json", 0, A, json, "print the server's answer as it came"),
	{},
};
static const struct option add_options[] = {
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
	OPTION_STRING("start", 0, "TIME", A, start, "start after so long (default: now)"),
	OPTION_STRING("period", 0, "TIME", A, period,
		      "take a sample of a thread on a CPU so often, from 1ms (default 10ms)"),
	OPTION_STRING("floor", 0, "TIME", A, floor,
		      "take stacks of waits at least so long (default 100us)"),
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
static const struct option requests_options[] = {
	OPTION_U64("limit", 0, "N", A, limit, 1, 1000, "show so many requests (default 100)"),
	{},
};
#undef A

/* ---- times ---- */

/* "100ms", "1.5s", "5m", "0" in ns. -EINVAL. */
static int parse_time(const char *text, double *ret_ns)
{
	static const struct {
		const char *name;
		double ns;
	} units[] = {{"us", 1e3}, {"ms", 1e6},	 {"s", 1e9},
		     {"m", 6e10}, {"h", 3.6e12}, {"d", 8.64e13}};
	char *end;
	double v;

	if (*text < '0' || *text > '9')
		return -EINVAL;
	v = strtod(text, &end);
	if (v == 0 && !*end) {
		*ret_ns = 0;
		return 0;
	}
	for (size_t i = 0; i < ARRAY_SIZE(units); i++) {
		if (!strcmp(end, units[i].name)) {
			*ret_ns = v * units[i].ns;
			return 0;
		}
	}
	return -EINVAL;
}

/* Puts the time of an option in a unit of `unit_ns`, if it is given. */
static int put_time(struct json_writer *w, const char *key, const char *option, const char *text,
		    double unit_ns, u64 from)
{
	double ns;

	if (!text)
		return 0;
	if (parse_time(text, &ns) < 0)
		return cli_error(2, "ctl: --%s: '%s' is not a time such as 100ms, 1.5s or 5m",
				 option, text);
	json_put_double(w, key, (double)from + ns / unit_ns);
	return 0;
}

static void format_time(s64 ms, char *ret, size_t n)
{
	time_t s = (time_t)(ms / 1000);
	struct tm tm;

	if (!ms || !localtime_r(&s, &tm) || !strftime(ret, n, "%Y-%m-%d %H:%M:%S", &tm))
		snprintf(ret, n, "-");
}

/* ---- answers ---- */

static const char *text_of(const json_t *o, const char *name)
{
	const char *text = json_string_value(json_object_get(o, name));

	return text ? text : "";
}

static s64 number_of(const json_t *o, const char *name)
{
	return (s64)json_integer_value(json_object_get(o, name));
}

static s64 count_of(const json_t *o, const char *group, const char *name)
{
	return number_of(json_object_get(o, group), name);
}

static double ms_of(const json_t *o, const char *name)
{
	return json_number_value(json_object_get(o, name));
}

struct column {
	const char *head;
	bool right;
};

struct table {
	const struct column *columns;
	u32 n;
	vec(char *) cells; /* owned; row by row */
};

static void table_cell(struct table *t, const char *fmt, ...) CULPRIT_PRINTF(2, 3);
static void table_cell(struct table *t, const char *fmt, ...)
{
	struct str raw = {}, clean = {};
	va_list ap;

	va_start(ap, fmt);
	str_vprintf(&raw, fmt, ap);
	va_end(ap);
	text_append_clean(&clean, str_get(&raw), 0);
	str_deinit(&raw);
	if (vec_push(&t->cells, clean.data) < 0)
		str_deinit(&clean);
}

static void table_print(struct table *t)
{
	size_t width[MAX_COLUMNS] = {}, rows = t->cells.n / t->n;

	for (u32 c = 0; c < t->n; c++)
		width[c] = strlen(t->columns[c].head);
	for (size_t i = 0; i < t->cells.n; i++) {
		const char *cell = t->cells.data[i] ? t->cells.data[i] : "";

		width[i % t->n] = MAX(width[i % t->n], text_columns(cell));
	}
	for (size_t row = 0; row <= rows; row++)
		for (u32 c = 0; c < t->n; c++) {
			const char *cell =
				row ? t->cells.data[(row - 1) * t->n + c] : t->columns[c].head;
			int pad;

			cell = cell ? cell : "";
			pad = (int)(width[c] - text_columns(cell));
			if (t->columns[c].right)
				printf("%*s%s", pad, "", cell);
			else
				printf("%s%*s", cell, c + 1 < t->n ? pad : 0, "");
			fputs(c + 1 < t->n ? "  " : "\n", stdout);
		}
	vec_foreach (&t->cells, cell)
		free(*cell);
	vec_deinit(&t->cells);
}

static void describe(const json_t *spec, struct str *out)
{
	const json_t *min = json_object_get(spec, "min_ms");
	const json_t *percentile = json_object_get(spec, "percentile");
	const char *and = "";

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
	const char *endpoint = text_of(spec, "endpoint");

	return *endpoint ? endpoint : "(all)";
}

static void print_tasks(const json_t *answer)
{
	static const struct column columns[] = {
		{"ID", false},	  {"STATE", false}, {"SERVICE", false},	 {"ENDPOINT", false},
		{"KEEPS", false}, {"WANTED", true}, {"DELIVERED", true}, {"END", false}};
	struct table t = {.columns = columns, .n = ARRAY_SIZE(columns)};
	const json_t *e;
	size_t i;

	json_array_foreach(json_object_get(answer, "tasks"), i, e)
	{
		const json_t *spec = json_object_get(e, "spec");
		_cleanup_str_ struct str keeps = {};
		char end[32];

		describe(spec, &keeps);
		format_time(number_of(e, "end"), end, sizeof(end));
		table_cell(&t, "%s", text_of(e, "id"));
		table_cell(&t, "%s", text_of(e, "state"));
		table_cell(&t, "%s", text_of(spec, "service"));
		table_cell(&t, "%s", endpoint_of(spec));
		table_cell(&t, "%s", str_get(&keeps));
		table_cell(&t, "%lld", (long long)count_of(e, "counts", "wanted"));
		table_cell(&t, "%lld", (long long)delivered(e));
		table_cell(&t, "%s", end);
	}
	if (t.cells.n)
		table_print(&t);
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
	static const struct column columns[] = {
		{"AGENT", false},    {"STATE", false},	{"PROCESSES", true}, {"PUBLISHING", true},
		{"DELIVERED", true}, {"EVICTED", true}, {"LOST", true},	     {"REASON", false}};
	struct table t = {.columns = columns, .n = ARRAY_SIZE(columns)};
	const json_t *e;
	size_t i;

	json_array_foreach(json_object_get(task, "agents"), i, e)
	{
		table_cell(&t, "%s", text_of(e, "host"));
		table_cell(&t, "%s", text_of(e, "state"));
		table_cell(&t, "%lld", (long long)number_of(e, "processes"));
		table_cell(&t, "%lld", (long long)number_of(e, "publishing"));
		table_cell(&t, "%lld", (long long)number_of(e, "kept"));
		table_cell(&t, "%lld", (long long)number_of(e, "evicted"));
		table_cell(&t, "%lld", (long long)number_of(e, "lost"));
		table_cell(&t, "%s", text_of(e, "reason"));
	}
	if (!t.cells.n)
		return;
	printf("\n");
	table_print(&t);
}

static void print_lines(const json_t *task)
{
	const json_t *e;
	size_t i;

	json_array_foreach(json_object_get(task, "why"), i, e)
		printf("%s%s\n", i ? "" : "\nWhy there is not more data:\n", text_of(e, "text"));
	json_array_foreach(json_object_get(task, "log"), i, e)
	{
		char at[32];

		format_time(number_of(e, "at"), at, sizeof(at));
		printf("%s%s  %s%s%s\n", i ? "" : "\n", at, text_of(e, "host"),
		       *text_of(e, "host") ? ": " : "", text_of(e, "text"));
	}
}

static void print_task(const json_t *task)
{
	const json_t *spec = json_object_get(task, "spec");
	_cleanup_str_ struct str keeps = {};
	char start[32], end[32];

	describe(spec, &keeps);
	format_time(number_of(task, "start"), start, sizeof(start));
	format_time(number_of(task, "end"), end, sizeof(end));
	printf("task       %s, %s\n", text_of(task, "id"), text_of(task, "state"));
	printf("service    %s\n", text_of(spec, "service"));
	printf("endpoint   %s\n", endpoint_of(spec));
	printf("keeps      %s\n", str_get(&keeps));
	printf("samples    every %g ms on a CPU%s, waits from %lld us%s\n",
	       (double)number_of(spec, "period_us") / 1e3,
	       json_is_true(json_object_get(spec, "running")) ? "" : " (left out)",
	       (long long)number_of(spec, "floor_us"),
	       json_is_true(json_object_get(spec, "waiting")) ? "" : " (left out)");
	printf("time       %s to %s\n", start, end);
	print_counts(task, "counts", "counts");
	print_counts(task, "reasons", "reasons");
	print_counts(task, "outcomes", "outcomes");
	printf("slowest    %.3f ms\n", ms_of(task, "slowest_ms"));
	print_agents(task);
	print_lines(task);
}

static void print_requests(const json_t *answer)
{
	static const struct column columns[] = {
		{"TRACE", false},  {"START", false},   {"MS", true},	{"STATUS", false},
		{"REASON", false}, {"OUTCOME", false}, {"HOST", false}, {"ENDPOINT", false}};
	struct table t = {.columns = columns, .n = ARRAY_SIZE(columns)};
	const json_t *e;
	size_t i;

	json_array_foreach(json_object_get(answer, "requests"), i, e)
	{
		char start[32];

		format_time((s64)ms_of(e, "start_ms"), start, sizeof(start));
		table_cell(&t, "%s", text_of(e, "trace_id"));
		table_cell(&t, "%s", start);
		table_cell(&t, "%.3f", ms_of(e, "duration_ms"));
		table_cell(&t, "%s", text_of(e, "status"));
		table_cell(&t, "%s", text_of(e, "reason"));
		table_cell(&t, "%s", text_of(e, "outcome"));
		table_cell(&t, "%s", text_of(e, "host"));
		table_cell(&t, "%s", text_of(e, "endpoint"));
	}
	if (t.cells.n)
		table_print(&t);
	else
		printf("no requests\n");
}

/* ---- verbs ---- */

static int put_spec(const struct ctl_arguments *a, int n, char **words, struct str *out)
{
	struct json_writer w = {.out = out};
	int r;

	json_open_object(&w, NULL);
	json_put_exact(&w, "service", words[0]);
	if (n > 1)
		json_put_exact(&w, "endpoint", words[1]);
	if (a->percentile > 0)
		json_put_double(&w, "percentile", a->percentile);
	json_put_bool(&w, "errors", a->errors);
	json_put_double(&w, "control", a->control);
	r = put_time(&w, "min_ms", "min", a->min, 1e6, 0);
	if (r == 0)
		r = put_time(&w, "duration_ms", "for", a->duration, 1e6, 0);
	if (r == 0)
		r = put_time(&w, "start", "start", a->start, 1e6, clock_epoch_ms());
	if (r == 0)
		r = put_time(&w, "period_us", "period", a->period, 1e3, 0);
	if (r == 0)
		r = put_time(&w, "floor_us", "floor", a->floor, 1e3, 0);
	if (r)
		return r;
	if (a->only && strcmp(a->only, "running") != 0 && strcmp(a->only, "waiting") != 0)
		return cli_error(2, "ctl: --only: running or waiting, not '%s'", a->only);
	json_put_bool(&w, "running", !a->only || !strcmp(a->only, "running"));
	json_put_bool(&w, "waiting", !a->only || !strcmp(a->only, "waiting"));
	if (a->max != UNSET)
		json_put_u64(&w, "max_requests", a->max);
	if (a->max_per_agent != UNSET)
		json_put_u64(&w, "max_per_agent", a->max_per_agent);
	if (a->max_per_minute != UNSET)
		json_put_u64(&w, "max_per_minute", a->max_per_minute);
	json_close(&w);
	return 0;
}

struct verb {
	const char *name, *method, *path; /* below /api/v1; %s is the id */
	int min_words, max_words;
	void (*print)(const json_t *answer); /* NULL: nothing */
};

static void print_id(const json_t *task)
{
	printf("%s\n", text_of(task, "id"));
}

static const struct verb verbs[] = {
	{"add", "POST", "/tasks", 1, 2, print_id},
	{"list", "GET", "/tasks", 0, 0, print_tasks},
	{"show", "GET", "/tasks/%s", 1, 1, print_task},
	{"cancel", "POST", "/tasks/%s/cancel", 1, 1, NULL},
	{"delete", "DELETE", "/tasks/%s", 1, 1, NULL},
	{"requests", "GET", "/tasks/%s/requests", 1, 1, print_requests},
};

static const struct verb *find_verb(int n, char **words)
{
	if (n < 2 || strcmp(words[0], "task") != 0)
		return NULL;
	for (size_t i = 0; i < ARRAY_SIZE(verbs); i++)
		if (!strcmp(verbs[i].name, words[1]) && n - 2 >= verbs[i].min_words &&
		    n - 2 <= verbs[i].max_words)
			return &verbs[i];
	return NULL;
}

static bool is_id(const char *text)
{
	return *text && strspn(text, "0123456789abcdefghijklmnopqrstuvwxyz-_") == strlen(text);
}

static int perform(const struct ctl_arguments *a, struct client *c, const struct verb *v, int n,
		   char **words)
{
	_cleanup_str_ struct str path = {}, body = {}, answer = {};
	bool adds = !strcmp(v->name, "add");
	struct diag d = {};
	json_t *json;
	int r;

	if (!adds && n && !is_id(words[0]))
		return cli_error(2, "ctl: '%s' is not the id of a task", words[0]);
	r = adds ? put_spec(a, n, words, &body) : 0;
	if (r)
		return r;
	if (strchr(v->path, '%'))
		str_printf(&path, "/tasks/%s%s", words[0], strchr(v->path, '%') + 2);
	else
		str_puts(&path, v->path);
	if (a->limit != UNSET && v->print == print_requests)
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
				 a->server ? a->server : DEFAULT_SERVER);
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
		.max = UNSET, .max_per_agent = UNSET, .max_per_minute = UNSET, .limit = UNSET};
	const struct option_group groups[] = {{NULL, connection_options, &a},
					      {"task add", add_options, &a},
					      {"task requests", requests_options, &a},
					      {}};
	const struct option_usage usage = {
		.command = "ctl",
		.operands = "task add|list|show|cancel|delete|requests [SERVICE [ENDPOINT]|ID]",
		.summary =
			"Tells a server which requests of a service to profile in detail: the slow "
			"ones, those with\nerrors, or all. Prints the tasks, why they have no "
			"data, and the requests that they kept.",
		.groups = groups,
	};
	_cleanup_free_ char *token = NULL;
	const struct verb *v;
	struct client *c = NULL;
	struct diag d = {};
	int first, r = options_parse(&usage, argc, argv, &first);

	if (r != 0)
		return r < 0 ? 2 : 0;
	v = find_verb(argc - first, argv + first);
	if (!v)
		return cli_error(2, "ctl: give task add SERVICE [ENDPOINT], task list, or task "
				    "show|cancel|delete|requests ID");
	if (a.token_file && http_client_token(a.token_file, &d, &token) < 0)
		return cli_error(1, "%s", d.text);
	if (client_create(&(struct client_options){.server = a.server ? a.server : DEFAULT_SERVER,
						   .token = token,
						   .ca = a.ca},
			  &d, &c) < 0)
		return cli_error(1, "ctl: %s", d.text);
	r = perform(&a, c, v, argc - first - 2, argv + first + 2);
	client_destroy(c);
	return r;
}
