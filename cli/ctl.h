/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `culprit ctl`: cmd_ctl.c parses, asks the server and has the tasks; ctl_policy.c, ctl_agent.c,
 * ctl_measure.c and ctl_flamegraph.c have tables of further verbs, ended by one without a name.
 */
#pragma once

#include "base/json.h"
#include "base/str.h"
#include "base/types.h"
#include "base/vec.h"
#include "cli/options.h"

#define CTL_MAX_COLUMNS 8
#define CTL_UNSET ~0ULL

struct ctl_arguments {
	const char *server, *token_file, *ca;
	bool json;
	const char *min, *duration, *start, *period, *floor, *only, *kind, *events;
	double percentile, control;
	bool errors;
	u64 max, max_per_agent, max_per_minute, limit;
	/* policy create */
	const char *window, *silence;
	double latency_percentile;
	u64 count, of, min_requests, max_per_day;
	/* measure add */
	const char *service, *file, *measure_duration, *slow;
	double cost;
	/* agent set */
	const char *off_cpu;
	u64 hz;
	double budget;
};

struct ctl_verb {
	const char *object, *name, *method, *path; /* below /api/v1, or /; %s is the id */
	int min_words, max_words;
	/* Appends the request's body: 0 or an exit status. NULL: none; words[0] is an id. */
	int (*body)(const struct ctl_arguments *a, int n, char **words, struct str *out);
	void (*print)(const struct json_t *answer); /* NULL: nothing */
};
extern const struct ctl_verb ctl_policy_verbs[], ctl_agent_verbs[], ctl_flamegraph_verbs[];
extern const struct ctl_verb ctl_measure_verbs[];
extern const struct option ctl_measure_options[], ctl_policy_options[], ctl_agent_options[];

/* Puts the members of a task that options tell, without service and endpoint (cmd_ctl.c). */
int ctl_put_task(const struct ctl_arguments *a, struct json_writer *w);
void ctl_print_id(const struct json_t *object);
void ctl_print_log(const struct json_t *object);

/* "100ms", "1.5s", "5m", "0" in ns. -EINVAL. */
int ctl_parse_time(const char *text, double *ret_ns);
/* Puts the time of an option in a unit of `unit_ns`, if it is given. 0 or an exit status. */
int ctl_put_time(struct json_writer *w, const char *key, const char *option, const char *text,
		 double unit_ns, u64 from);
void ctl_format_time(s64 ms, char *ret, size_t n);

/* Members of an answer; "" and 0: there is none. */
const char *ctl_text(const struct json_t *o, const char *name);
s64 ctl_number(const struct json_t *o, const char *name);

struct ctl_column {
	const char *head;
	bool right;
};

struct ctl_table {
	const struct ctl_column *columns;
	u32 n;
	vec(char *) cells; /* owned; row by row */
};
void ctl_cell(struct ctl_table *t, const char *fmt, ...) CULPRIT_PRINTF(2, 3);
/* Prints and empties it. */
void ctl_print_table(struct ctl_table *t);
