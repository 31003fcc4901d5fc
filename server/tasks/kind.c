/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tasks that profile whole processes, with the profiler that an agent of SkyWalking brings along:
 * which there are, and what they can record.
 */
#include <errno.h>
#include <string.h>

#include "base/str.h"
#include "server/tasks/internal.h"

#define MINUTE_MS 60000

struct event {
	enum task_kind kind;
	const char *name;
	/* Excludes others: pprof records one event, async-profiler uses one clock. */
	bool alone;
};

static const struct event events[] = {
	{TASK_KIND_PPROF, "cpu", true},
	{TASK_KIND_PPROF, "heap", true},
	{TASK_KIND_PPROF, "allocs", true},
	{TASK_KIND_PPROF, "block", true},
	{TASK_KIND_PPROF, "mutex", true},
	{TASK_KIND_PPROF, "goroutine", true},
	{TASK_KIND_PPROF, "threadcreate", true},

	{TASK_KIND_ASYNC_PROFILER, "cpu", true},
	{TASK_KIND_ASYNC_PROFILER, "wall", true},
	{TASK_KIND_ASYNC_PROFILER, "ctimer", true},
	{TASK_KIND_ASYNC_PROFILER, "itimer", true},
	{TASK_KIND_ASYNC_PROFILER, "alloc", false},
	{TASK_KIND_ASYNC_PROFILER, "lock", false},
};

const char *task_kind_name(enum task_kind k)
{
	static const char *const names[] = {
#define X(id, name, help) name,
		TASK_KINDS(X)
#undef X
	};

	return k < TASK_KIND_N ? names[k] : "";
}

static bool is_event(const struct event *e, enum task_kind kind, const char *name, size_t n)
{
	return e->kind == kind && strlen(e->name) == n && !memcmp(e->name, name, n);
}

bool task_has_event(const struct task_spec *s, const char *name)
{
	size_t n = strlen(name), part;

	for (const char *at = s->events; *at; at += part + (at[part] == ',')) {
		part = strcspn(at, ",");
		if (part == n && !memcmp(at, name, n))
			return true;
		if (!part && !at[part])
			break;
	}
	return false;
}

static int refuse_event(const struct task_spec *s, const char *name, size_t n,
			struct diag *reterr_diag)
{
	_cleanup_str_ struct str all = {};

	for (size_t i = 0; i < ARRAY_SIZE(events); i++)
		if (events[i].kind == s->kind)
			str_printf(&all, "%s%s", all.n ? ", " : "", events[i].name);
	return diag_set(reterr_diag, -EINVAL, "events: %s has no '%.*s'; it has %s",
			task_kind_name(s->kind), (int)MIN(n, (size_t)30), name, str_get(&all));
}

static int check_events(const struct task_spec *s, struct diag *reterr_diag)
{
	u32 alone = 0;
	size_t n;

	for (const char *at = s->events;; at += n + 1) {
		size_t i = 0;

		n = strcspn(at, ",");
		while (i < ARRAY_SIZE(events) && !is_event(&events[i], s->kind, at, n))
			i++;
		if (i == ARRAY_SIZE(events))
			return refuse_event(s, at, n, reterr_diag);
		alone += events[i].alone;
		if (!at[n])
			break;
	}
	if (alone > 1)
		return diag_set(reterr_diag, -EINVAL,
				s->kind == TASK_KIND_PPROF
					? "events: an agent records one event in a task of pprof"
					: "events: one of cpu, wall, ctimer and itimer");
	return 0;
}

static int check_duration(const struct task_spec *s, struct diag *reterr_diag)
{
	if (s->kind == TASK_KIND_PPROF &&
	    (s->duration_ms % MINUTE_MS || !s->duration_ms || s->duration_ms > 15 * MINUTE_MS))
		return diag_set(reterr_diag, -EINVAL,
				"duration_ms: pprof runs for whole minutes, 1 to 15");
	if (s->duration_ms % 1000 || !s->duration_ms || s->duration_ms > 20 * MINUTE_MS)
		return diag_set(reterr_diag, -EINVAL,
				"duration_ms: async-profiler runs for whole seconds, 1 to 1200");
	return 0;
}

int task_check_kind(const struct task_spec *s, struct diag *reterr_diag)
{
	if (s->kind == TASK_KIND_REQUESTS)
		return s->events[0] ? diag_set(reterr_diag, -EINVAL,
					       "events: only of the kinds pprof and "
					       "async-profiler")
				    : 0;
	if (s->endpoint[0] || s->has_min || s->percentile != 0 || s->errors || s->control != 0)
		return diag_set(reterr_diag, -EINVAL,
				"a task of the kind %s is of whole processes: it has no endpoint, "
				"min_ms, percentile, errors or control",
				task_kind_name(s->kind));
	if (!s->events[0])
		return diag_set(reterr_diag, -EINVAL, "events: what is %s to record? cpu, ...",
				task_kind_name(s->kind));
	return check_events(s, reterr_diag) < 0 ? -EINVAL : check_duration(s, reterr_diag);
}
