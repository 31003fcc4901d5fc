/* SPDX-License-Identifier: Apache-2.0 */
/* culprit ctl agent: tells agents how to sample always, and shows how they do. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/ctl.h"
#include "control/control.h"

#define A struct ctl_arguments
const struct option ctl_agent_options[] = {
	OPTION_U64("frequency", 'F', "HZ", A, hz, 1, CONTROL_MAX_HZ,
		   "samples per second on each CPU"),
	OPTION_F64("budget", 0, "PERCENT", A, budget, CONTROL_MIN_BUDGET, CONTROL_MAX_BUDGET,
		   "CPU time of the machine for stacks of waits"),
	OPTION_STRING("off-cpu", 0, "YES|NO", A, off_cpu,
		      "whether waits are sampled, beside the CPU time"),
	{},
};
#undef A

static void begin(struct json_writer *w, int n, char **words)
{
	json_open_object(w, NULL);
	json_put_exact(w, "host", n ? words[0] : "*");
}

static int put_settings(const struct ctl_arguments *a, int n, char **words, struct str *out)
{
	struct json_writer w = {.out = out};

	if (a->off_cpu && strcmp(a->off_cpu, "yes") != 0 && strcmp(a->off_cpu, "no") != 0)
		return cli_error(2, "ctl: --off-cpu: yes or no, not '%s'", a->off_cpu);
	if (!a->hz && a->budget == 0 && !a->off_cpu)
		return cli_error(2, "ctl: agent set: give --frequency, --budget or --off-cpu");
	begin(&w, n, words);
	if (a->hz)
		json_put_u64(&w, "hz", a->hz);
	if (a->budget > 0)
		json_put_double(&w, "budget", a->budget);
	if (a->off_cpu)
		json_put_bool(&w, "waits", !strcmp(a->off_cpu, "yes"));
	json_close(&w);
	return 0;
}

static int put_nothing(const struct ctl_arguments *a, int n, char **words, struct str *out)
{
	struct json_writer w = {.out = out};

	(void)a;
	begin(&w, n, words);
	json_put_null(&w, "hz");
	json_put_null(&w, "budget");
	json_put_null(&w, "waits");
	json_close(&w);
	return 0;
}

static void put_cells(struct ctl_table *t, const json_t *o)
{
	const json_t *off_cpu = json_object_get(o, "waits");

	if (ctl_number(o, "hz"))
		ctl_cell(t, "%lld", (long long)ctl_number(o, "hz"));
	else
		ctl_cell(t, "%s", "-");
	if (json_is_number(json_object_get(o, "budget")))
		ctl_cell(t, "%g %%", json_number_value(json_object_get(o, "budget")));
	else
		ctl_cell(t, "%s", "-");
	ctl_cell(t, "%s", json_is_true(off_cpu) ? "yes" : json_is_false(off_cpu) ? "no" : "-");
}

static void print_all(const json_t *answer)
{
	static const struct ctl_column rules[] = {{"SET FOR", false},
						  {"HZ", true},
						  {"BUDGET", true},
						  {"OFF-CPU", false},
						  {"BY", false}};
	static const struct ctl_column agents[] = {{"AGENT", false},	{"HZ", true},
						   {"BUDGET", true},	{"OFF-CPU", false},
						   {"SETTABLE", false}, {"REASON", false}};
	struct ctl_table t = {.columns = rules, .n = ARRAY_SIZE(rules)};
	const json_t *e;
	size_t i;

	json_array_foreach(json_object_get(answer, "rules"), i, e)
	{
		ctl_cell(&t, "%s", ctl_text(e, "host"));
		put_cells(&t, e);
		ctl_cell(&t, "%s", ctl_text(e, "by"));
	}
	if (t.cells.n)
		ctl_print_table(&t);
	else
		printf("nothing is set\n");
	t.columns = agents;
	t.n = ARRAY_SIZE(agents);
	json_array_foreach(json_object_get(answer, "agents"), i, e)
	{
		ctl_cell(&t, "%s", ctl_text(e, "host"));
		put_cells(&t, e);
		ctl_cell(&t, "%s",
			 json_is_true(json_object_get(e, "takes_settings")) ? "yes" : "no");
		ctl_cell(&t, "%s", ctl_text(e, "reason"));
	}
	if (!t.cells.n)
		return;
	printf("\n");
	ctl_print_table(&t);
}

const struct ctl_verb ctl_agent_verbs[] = {
	{"agent", "set", "POST", "/settings", 0, 1, put_settings, NULL},
	{"agent", "unset", "POST", "/settings", 0, 1, put_nothing, NULL},
	{"agent", "list", "GET", "/settings", 0, 0, NULL, print_all},
	{},
};
