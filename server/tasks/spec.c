/* SPDX-License-Identifier: Apache-2.0 */
/* What a user asks of a task: defaults, limits, and which endpoints match. */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <string.h>

#include "base/members.h"
#include "base/quota.h"
#include "server/tasks/internal.h"

#define MAX_DURATION_MS (30 * 86400000ULL)
#define MAX_START_MS (1ULL << 42) /* the year 2109, as in lib/profile */
#define MAX_MIN_NS 86400000000000ULL
#define MAX_PERIOD_US 1000000
#define MAX_BUDGET 1000000

const struct task_spec task_defaults = {
	.duration_ms = 300000,
	.period_us = 10000,
	.floor_us = 1000,
	.on_cpu = true,
	.off_cpu = true,
	.max_requests = 100,
	.max_per_minute = 60,
};

static int check_rates(const struct task_spec *s, struct diag *reterr_diag)
{
	if (s->period_us < 1000 || s->period_us > MAX_PERIOD_US)
		return diag_set(reterr_diag, -EINVAL,
				"period_us: 1000 to 1000000 (1 ms to 1 s between samples)");
	if (s->floor_us > MAX_PERIOD_US)
		return diag_set(reterr_diag, -EINVAL,
				"floor_us: 0 to 1000000 (shorter waits have stacks in proportion)");
	if (!s->on_cpu && !s->off_cpu)
		return diag_set(reterr_diag, -EINVAL, "running and waiting: at least one is true");
	if (s->max_requests > MAX_BUDGET || s->max_per_agent > MAX_BUDGET ||
	    s->max_per_minute > MAX_BUDGET)
		return diag_set(reterr_diag, -EINVAL,
				"max_requests, max_per_agent, max_per_minute: 0 to 1000000 (0: no "
				"limit)");
	return 0;
}

static int check_endpoint(const struct task_spec *s, struct diag *reterr_diag)
{
	_cleanup_regex_ struct regex *x = NULL;
	int r;

	if (s->endpoint[0] != '~')
		return 0;
	r = regex_create(s->endpoint + 1, true, reterr_diag, &x);
	return r == -ENOMEM ? r : r < 0 ? -EINVAL : 0;
}

int task_spec_check(struct task_spec *s, struct diag *reterr_diag)
{
	if (!s->service[0])
		return diag_set(reterr_diag, -EINVAL, "service: of which? a service.name, exactly");
	if (s->start_ms > MAX_START_MS)
		return diag_set(reterr_diag, -EINVAL, "start: milliseconds since 1970; 0 = now");
	if (s->duration_ms > MAX_DURATION_MS)
		return diag_set(reterr_diag, -EINVAL,
				"duration_ms: at most 30 days; 0 = until it is cancelled");
	if (s->has_min && s->percentile != 0)
		return diag_set(reterr_diag, -EINVAL, "min_ms or percentile: one of the two");
	if (s->min_ns > MAX_MIN_NS)
		return diag_set(reterr_diag, -EINVAL, "min_ms: 0 to 86400000 (a day)");
	if (s->percentile != 0 && !(s->percentile >= 50 && s->percentile <= 99.9))
		return diag_set(reterr_diag, -EINVAL, "percentile: 50 to 99.9");
	if (!(s->control >= 0 && s->control <= 1))
		return diag_set(reterr_diag, -EINVAL, "control: a share, 0 to 1");
	if (task_check_kind(s, reterr_diag) < 0)
		return -EINVAL;
	if (s->kind == TASK_KIND_REQUESTS && !s->has_min && s->percentile == 0 && !s->errors)
		s->has_min = true;
	if (s->has_min && !s->min_ns && s->control > 0)
		return diag_set(reterr_diag, -EINVAL,
				"control: without a threshold all requests are kept, and there are "
				"no others to compare them with: give min_ms or percentile");
	if (check_rates(s, reterr_diag) < 0)
		return -EINVAL;
	return check_endpoint(s, reterr_diag);
}

/* ---- endpoints ---- */

/* '*' stands for any characters, also for none. */
static bool matches_wildcard(const char *pattern, const char *text)
{
	const char *star = NULL, *again = NULL;

	while (*text) {
		if (*pattern == '*') {
			star = pattern++;
			again = text;
		} else if (*pattern == *text) {
			pattern++;
			text++;
		} else if (star) {
			pattern = star + 1;
			text = ++again;
		} else {
			return false;
		}
	}
	while (*pattern == '*')
		pattern++;
	return !*pattern;
}

/*
 * The answer is remembered, so that it must not depend on the quota of the request that asks first.
 * The caller has paused it, and quota_end() ends the pause.
 */
static int matches_expression(struct regex *x, const char *text)
{
	struct quota none = {};
	int r;

	quota_begin(&none);
	r = regex_match(x, text, NULL);
	quota_end(&none);
	(void)quota_pause();
	return r == -ERANGE ? 0 : r;
}

int task_pattern_match(const char *pattern, struct regex *x, const char *endpoint)
{
	if (!*pattern)
		return true;
	if (x)
		return matches_expression(x, endpoint);
	return strchr(pattern, '*') ? matches_wildcard(pattern, endpoint)
				    : !strcmp(pattern, endpoint);
}

/* ---- from JSON ---- */

static const char *const members[] = {
	"service",	"endpoint",	 "start",	   "duration_ms", "min_ms",  "percentile",
	"errors",	"control",	 "period_us",	   "floor_us",	  "running", "waiting",
	"max_requests", "max_per_agent", "max_per_minute", "kind",	  "events",
};

static int read_thresholds(json_t *o, struct task_spec *s, struct diag *reterr_diag)
{
	double ms = 0;
	int r = members_number(o, "min_ms", 86400000, &ms, reterr_diag);

	if (r == 0) {
		s->has_min = true;
		s->min_ns = (u64)llround(ms * 1e6);
	}
	if (r == 0 || r == -ENOENT)
		r = members_number(o, "percentile", 100, &s->percentile, reterr_diag);
	if (r == 0 || r == -ENOENT)
		r = members_number(o, "control", 1, &s->control, reterr_diag);
	if (r == 0 || r == -ENOENT)
		r = members_flag(o, "errors", &s->errors, reterr_diag);
	return r;
}

static int read_budgets(json_t *o, struct task_spec *s, struct diag *reterr_diag)
{
	const struct {
		const char *name;
		u32 *to;
	} numbers[] = {
		{"period_us", &s->period_us},		{"floor_us", &s->floor_us},
		{"max_requests", &s->max_requests},	{"max_per_agent", &s->max_per_agent},
		{"max_per_minute", &s->max_per_minute},
	};
	int r = 0;

	for (size_t i = 0; i < ARRAY_SIZE(numbers) && r == 0; i++)
		r = members_u32(o, numbers[i].name, numbers[i].to, reterr_diag);
	return r;
}

static int read_kind(json_t *o, struct task_spec *s, struct diag *reterr_diag)
{
	char name[32] = "requests";
	int r = members_text(o, "kind", name, sizeof(name), reterr_diag);

	if (r == 0)
		r = members_text(o, "events", s->events, sizeof(s->events), reterr_diag);
	if (r < 0)
		return r;
	for (u32 k = 0; k < TASK_KIND_N; k++)
		if (!strcmp(task_kind_name((enum task_kind)k), name)) {
			s->kind = (enum task_kind)k;
			return 0;
		}
	return diag_set(reterr_diag, -EINVAL, "kind: requests, pprof or async-profiler");
}

int task_spec_read(json_t *object, struct task_spec *ret, struct diag *reterr_diag)
{
	struct task_spec s = task_defaults;
	int r;

	if (!json_is_object(object))
		return diag_set(reterr_diag, -EINVAL,
				"a task is an object: {\"service\": \"shop\"}");
	r = members_check(object, members, ARRAY_SIZE(members), "a task", reterr_diag);
	if (r == 0)
		r = members_text(object, "service", s.service, sizeof(s.service), reterr_diag);
	if (r == 0)
		r = read_kind(object, &s, reterr_diag);
	if (r == 0)
		r = members_text(object, "endpoint", s.endpoint, sizeof(s.endpoint), reterr_diag);
	if (r == 0)
		r = members_u64(object, "start", MAX_START_MS, &s.start_ms, reterr_diag);
	if (r == 0)
		r = members_u64(object, "duration_ms", MAX_DURATION_MS, &s.duration_ms,
				reterr_diag);
	if (r == 0)
		r = read_thresholds(object, &s, reterr_diag);
	if (r == 0)
		r = read_budgets(object, &s, reterr_diag);
	if (r == 0)
		r = members_flag(object, "running", &s.on_cpu, reterr_diag);
	if (r == 0)
		r = members_flag(object, "waiting", &s.off_cpu, reterr_diag);
	if (r == 0)
		*ret = s;
	return r;
}
