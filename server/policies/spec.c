/* SPDX-License-Identifier: Apache-2.0 */
/* What a user asks of a policy: names, defaults and limits. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/members.h"
#include "server/policies/internal.h"

#define MAX_WINDOW_MS 3600000
#define MAX_SILENCE_MS (7 * POLICY_DAY_MS)

_Static_assert((int)POLICY_CAUSE_CPU == CONTROL_QUANTITY_CPU &&
		       (int)POLICY_CAUSE_THREADS == CONTROL_QUANTITY_THREADS &&
		       (int)POLICY_CAUSE_LOAD == CONTROL_QUANTITY_LOAD && CONTROL_QUANTITY_N == 3,
	       "agents measure the first causes");

const struct policy_spec policy_defaults = {
	.cause = POLICY_CAUSE_N,
	.min_requests = 10,
	.window_ms = 10000,
	.count = 1,
	.silence_ms = 20 * 60000,
	.max_per_day = 10,
};

static const char *const cause_names[] = {
#define X(id, name, unit) name,
	POLICY_CAUSES(X)
#undef X
};

const char *policy_cause_name(enum policy_cause c)
{
	return c < POLICY_CAUSE_N ? cause_names[c] : "";
}

const char *policy_cause_unit(enum policy_cause c)
{
	static const char *const units[] = {
#define X(id, name, unit) unit,
		POLICY_CAUSES(X)
#undef X
	};

	return c < POLICY_CAUSE_N ? units[c] : "";
}

enum policy_cause policy_find_cause(const char *name)
{
	u32 c = 0;

	while (c < POLICY_CAUSE_N && strcmp(cause_names[c], name) != 0)
		c++;
	return (enum policy_cause)c;
}

const char *policy_verdict_name(enum policy_verdict v)
{
	static const char *const names[] = {
#define X(id, name, help) name,
		POLICY_VERDICTS(X)
#undef X
	};

	return v < POLICY_VERDICT_N ? names[v] : "";
}

/* ---- limits ---- */

static double max_threshold(enum policy_cause c)
{
	return c == POLICY_CAUSE_ERRORS ? 100 : c == POLICY_CAUSE_LATENCY ? 86400000 : 1e9;
}

static int check_cause(const struct policy_spec *s, struct diag *reterr_diag)
{
	if (s->cause >= POLICY_CAUSE_N)
		return diag_set(reterr_diag, -EINVAL,
				"cause: one of cpu, threads, load, errors, latency");
	if (!(s->threshold > 0 && s->threshold <= max_threshold(s->cause)))
		return diag_set(reterr_diag, -EINVAL, "threshold: above 0, to %.0f %s",
				max_threshold(s->cause), policy_cause_unit(s->cause));
	if (policy_is_measured(s->cause) && s->endpoint[0])
		return diag_set(reterr_diag, -EINVAL,
				"endpoint: only with the causes errors and latency");
	if (s->cause != POLICY_CAUSE_LATENCY && s->percentile != 0)
		return diag_set(reterr_diag, -EINVAL, "percentile: only with the cause latency");
	if (s->percentile != 0 && !(s->percentile >= 50 && s->percentile <= 99.9))
		return diag_set(reterr_diag, -EINVAL, "percentile: 50 to 99.9; null = the mean");
	return 0;
}

static int check_windows(struct policy_spec *s, struct diag *reterr_diag)
{
	if (s->window_ms < CONTROL_MIN_WINDOW_MS || s->window_ms > MAX_WINDOW_MS)
		return diag_set(reterr_diag, -EINVAL, "window_ms: 1000 to 3600000 (an hour)");
	if (!s->of)
		s->of = s->count;
	if (!s->count || s->count > s->of || s->of > CONTROL_MAX_WINDOWS)
		return diag_set(reterr_diag, -EINVAL,
				"count and of: count windows of the last 1 to %d",
				CONTROL_MAX_WINDOWS);
	if (s->silence_ms > MAX_SILENCE_MS)
		return diag_set(reterr_diag, -EINVAL, "silence_ms: at most a week");
	if (s->max_per_day > POLICY_MAX_FIRED)
		return diag_set(reterr_diag, -EINVAL, "max_per_day: 0 to %d (0: no limit)",
				POLICY_MAX_FIRED);
	if (!s->min_requests)
		return diag_set(reterr_diag, -EINVAL, "min_requests: from 1");
	return 0;
}

/* Without thresholds of its own the task keeps what the policy is about. */
static void complete_task(struct policy_spec *s)
{
	struct task_spec *t = &s->task;

	if (t->has_min || t->percentile != 0 || t->errors)
		return;
	if (s->cause == POLICY_CAUSE_ERRORS) {
		t->errors = true;
	} else if (s->cause == POLICY_CAUSE_LATENCY) {
		t->has_min = true;
		t->min_ns = (u64)(s->threshold * 1e6);
	}
}

static int check_task(struct policy_spec *s, struct diag *reterr_diag)
{
	struct task_spec t;
	struct diag d = {};
	int r;

	if (s->task.service[0] || s->task.endpoint[0] || s->task.start_ms)
		return diag_set(
			reterr_diag, -EINVAL,
			"task: without service, endpoint and start, which the policy gives");
	complete_task(s);
	t = s->task;
	snprintf(t.service, sizeof(t.service), "any");
	r = task_spec_check(&t, &d);
	if (r < 0)
		return diag_set(reterr_diag, r, "task: %s", d.text);
	if (!t.duration_ms)
		return diag_set(reterr_diag, -EINVAL,
				"task: duration_ms: a policy's task ends, after 30 days at most");
	t.service[0] = '\0';
	s->task = t;
	return 0;
}

int policy_spec_check(struct policy_spec *s, struct diag *reterr_diag)
{
	_cleanup_regex_ struct regex *x = NULL;
	int r;

	if (!s->service[0])
		return diag_set(reterr_diag, -EINVAL,
				"service: of which? a service.name, exactly, or *");
	r = check_cause(s, reterr_diag);
	if (r == 0)
		r = check_windows(s, reterr_diag);
	if (r == 0)
		r = check_task(s, reterr_diag);
	if (r == 0 && s->endpoint[0] == '~')
		r = regex_create(s->endpoint + 1, true, reterr_diag, &x);
	return r == -ENOMEM ? r : r < 0 ? -EINVAL : 0;
}

/* ---- from JSON ---- */

static const char *const members[] = {
	"service",   "cause", "threshold", "endpoint",	 "percentile",	"min_requests",
	"window_ms", "count", "of",	   "silence_ms", "max_per_day", "task",
};

static int read_rates(json_t *o, struct policy_spec *s, struct diag *reterr_diag)
{
	int r = members_number(o, "threshold", 1e12, &s->threshold, reterr_diag);

	if (r == -ENOENT)
		r = diag_set(reterr_diag, -EINVAL, "threshold: from which value on?");
	if (r == 0)
		r = members_number(o, "percentile", 100, &s->percentile, reterr_diag);
	if (r == 0 || r == -ENOENT)
		r = members_u32(o, "min_requests", &s->min_requests, reterr_diag);
	if (r == 0)
		r = members_u64(o, "window_ms", MAX_WINDOW_MS, &s->window_ms, reterr_diag);
	if (r == 0)
		r = members_u32(o, "count", &s->count, reterr_diag);
	if (r == 0)
		r = members_u32(o, "of", &s->of, reterr_diag);
	if (r == 0)
		r = members_u64(o, "silence_ms", MAX_SILENCE_MS, &s->silence_ms, reterr_diag);
	if (r == 0)
		r = members_u32(o, "max_per_day", &s->max_per_day, reterr_diag);
	return r;
}

int policy_spec_read(json_t *object, struct policy_spec *ret, struct diag *reterr_diag)
{
	struct policy_spec s = policy_defaults;
	json_t *task = json_object_get(object, "task");
	char cause[16] = "";
	struct diag d = {};
	int r;

	s.task = task_defaults;
	if (!json_is_object(object))
		return diag_set(
			reterr_diag, -EINVAL,
			"a policy is an object: {\"service\": \"shop\", \"cause\": \"cpu\", "
			"\"threshold\": 150}");
	r = members_check(object, members, ARRAY_SIZE(members), "a policy", reterr_diag);
	if (r == 0)
		r = members_text(object, "service", s.service, sizeof(s.service), reterr_diag);
	if (r == 0)
		r = members_text(object, "cause", cause, sizeof(cause), reterr_diag);
	s.cause = policy_find_cause(cause);
	if (r == 0)
		r = members_text(object, "endpoint", s.endpoint, sizeof(s.endpoint), reterr_diag);
	if (r == 0)
		r = read_rates(object, &s, reterr_diag);
	if (r == 0 && task && !json_is_null(task) && (r = task_spec_read(task, &s.task, &d)) < 0)
		r = diag_set(reterr_diag, r, "task: %s", d.text);
	if (r == 0)
		*ret = s;
	return r;
}
