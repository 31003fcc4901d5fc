/* SPDX-License-Identifier: Apache-2.0 */
/* Why a task has no data, or not all of it: sentences from what was counted and reported. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/closest.h"
#include "base/text.h"
#include "server/tasks/internal.h"

#define NAMES_BYTES 300
#define SHOWN_HOSTS 3

const char *task_why_name(enum task_why w)
{
	static const char *const names[] = {
#define X(id, name) name,
		TASK_WHYS(X)
#undef X
	};

	return w < TASK_WHY_N ? names[w] : "";
}

struct asking {
	const struct tasks *t;
	const struct task_entry *e;
	const struct task_info *i;
	u64 now_ms;
	enum task_state state;
	struct task_reasons out;
	int r;
};

static void CULPRIT_PRINTF(3, 4) say(struct asking *a, enum task_why why, const char *fmt, ...)
{
	struct task_reason new = {.why = why};
	va_list ap;

	if (a->r < 0)
		return;
	va_start(ap, fmt);
	vsnprintf(new.text, sizeof(new.text), fmt, ap);
	va_end(ap);
	text_clean(new.text);
	a->r = vec_push(&a->out.list, new);
}

/* "1 request", "2 requests" */
#define N(n, one, many) (n), (n) == 1 ? (one) : (many)

static void put_age(struct str *out, u64 ms)
{
	u64 s = ms / 1000;

	if (s < 120)
		str_printf(out, "%llu s", s);
	else if (s < 7200)
		str_printf(out, "%llu min", s / 60);
	else
		str_printf(out, "%llu h", s / 3600);
}

/* ---- agents ---- */

/* What agents' last questions are compared with: a task that is over needs them no more. */
static u64 compare_ms(const struct asking *a)
{
	return a->i->end_ms && a->i->end_ms < a->now_ms ? a->i->end_ms : a->now_ms;
}

static bool is_away(const struct asking *a, const struct task_agent *g)
{
	bool skywalking = !strcmp(g->host_id, TASKS_SKYWALKING);

	return compare_ms(a) >
	       g->asked_ms + (skywalking ? TASKS_SKYWALKING_AWAY_MS : TASKS_AWAY_MS);
}

/* Of another kind than requests: only SkyWalking's agents do it. */
static void say_no_skywalking(struct asking *a)
{
	bool over = a->now_ms >= a->i->start_ms + TASKS_BEGIN_MS;

	say(a, TASK_WHY_NO_AGENT,
	    "no agent of SkyWalking %s %s for a task of %s: %s (doc/server.md)",
	    over ? "asked within a minute on behalf of" : "has asked yet on behalf of",
	    a->i->spec.service, task_kind_name(a->i->spec.kind),
	    a->i->spec.kind == TASK_KIND_PPROF
		    ? "those for Go do, from version 0.7 on"
		    : "those for Java do, from version 9.4 on, every 20 seconds unless told");
}

static void say_no_agent(struct asking *a)
{
	_cleanup_str_ struct str age = {};

	put_age(&age, a->now_ms - MIN(a->t->asked_ms, a->now_ms));
	if (!a->t->asked_ms)
		say(a, TASK_WHY_NO_AGENT,
		    "no agent has asked this server for tasks since it started: run culprit agent "
		    "with --export and this server's address on the machines of %s",
		    a->i->spec.service);
	else if (a->now_ms > a->t->asked_ms + TASKS_AWAY_MS)
		say(a, TASK_WHY_NO_AGENT,
		    "no agent has taken the task: the last that asked for tasks did it %s ago",
		    str_get(&age));
	else
		say(a, TASK_WHY_NO_AGENT,
		    "no agent has reported on the task yet: they ask every 2 to 5 seconds");
}

static void say_away(struct asking *a)
{
	_cleanup_str_ struct str hosts = {};
	u64 n = 0;

	vec_foreach (&a->i->agents, g) {
		if (!is_away(a, g) || ++n > SHOWN_HOSTS)
			continue;
		str_printf(&hosts, "%s%s last asked ", n > 1 ? ", " : "", g->host);
		put_age(&hosts, a->now_ms - MIN(g->asked_ms, a->now_ms));
		str_puts(&hosts, " ago");
	}
	if (n > SHOWN_HOSTS)
		str_printf(&hosts, " and %llu more", n - SHOWN_HOSTS);
	if (n)
		say(a, TASK_WHY_AWAY, "%llu %s away: %s", N(n, "agent is", "agents are"),
		    str_get(&hosts));
}

static void say_states(struct asking *a)
{
	u64 here = 0, absent = 0, processes = 0, publishing = 0, lost = 0;

	vec_foreach (&a->i->agents, g) {
		lost += g->lost;
		if (is_away(a, g))
			continue;
		here++;
		absent += g->state == CONTROL_STATE_ABSENT;
		processes += g->processes;
		publishing += g->publishing;
		if (g->state == CONTROL_STATE_REFUSED)
			say(a, TASK_WHY_REFUSED, "the agent on %.100s cannot do it: %.200s",
			    g->host, g->reason);
	}
	if (here && absent == here)
		say(a, TASK_WHY_NO_PROCESS,
		    "none of %llu %s a process whose service.name is %s: see that its machine "
		    "has an agent, and that the name is spelt like this",
		    N(here, "agent sees", "agents sees"), a->i->spec.service);
	else if (processes && !publishing)
		say(a, TASK_WHY_NO_CONTEXT,
		    "the %llu %s of %s that agents see publish no trace context, so that samples "
		    "cannot be told apart by request (doc/context.md)",
		    N(processes, "process", "processes"), a->i->spec.service);
	if (lost)
		say(a, TASK_WHY_LOST, "agents lost %llu samples and events on the way", lost);
}

static void why_agents(struct asking *a)
{
	if (!a->i->agents.n && a->i->spec.kind != TASK_KIND_REQUESTS) {
		say_no_skywalking(a);
		return;
	}
	if (!a->i->agents.n) {
		say_no_agent(a);
		return;
	}
	say_away(a);
	say_states(a);
}

/* ---- spans ---- */

/* Those of `names`, the nearest to what was asked for first. */
static int nearest(struct str *out, const char *wanted, const char *const *names, size_t n)
{
	return n ? closest_append(out, wanted, names, n, NAMES_BYTES) : 0;
}

static void say_no_span(struct asking *a)
{
	const struct strtab *s = &a->t->services;
	_cleanup_free_ const char **names = calloc(s->n + 1, sizeof(*names));
	_cleanup_str_ struct str list = {};
	const u64 n = a->i->counts[TASK_COUNT_SPANS];
	size_t k = 0;

	if (!names) {
		a->r = -ENOMEM;
		return;
	}
	if (n) {
		say(a, TASK_WHY_NO_SPAN,
		    "none of the %llu spans of %s is the first of a request in it", n,
		    a->i->spec.service);
		return;
	}
	for (u32 id = 1; id < s->n; id++)
		if (strcmp(strtab_get(s, id), a->i->spec.service) != 0)
			names[k++] = strtab_get(s, id);
	a->r = nearest(&list, a->i->spec.service, names, k);
	say(a, TASK_WHY_NO_SPAN,
	    "no span of the service %s has arrived since the task began%s%s: see that the service "
	    "sends its spans to this server (doc/server.md)",
	    a->i->spec.service, list.n ? "; spans came from " : "", str_get(&list));
}

static void say_no_endpoint(struct asking *a)
{
	const struct task_info *i = a->i;
	_cleanup_free_ const char **names = calloc(i->endpoints.n + 1, sizeof(*names));
	_cleanup_str_ struct str list = {};
	const char *wanted = i->spec.endpoint;
	size_t k = 0;

	if (!names) {
		a->r = -ENOMEM;
		return;
	}
	vec_foreach (&i->endpoints, p)
		names[k++] = p->name;
	a->r = nearest(&list, wanted[0] == '~' ? wanted + 1 : wanted, names, k);
	say(a, TASK_WHY_NO_ENDPOINT,
	    "no request to an endpoint that matches '%.100s' has come; %s has %s", wanted,
	    i->spec.service, str_get(&list));
}

static void say_learning(struct asking *a)
{
	double need = 200 / (100 - a->i->spec.percentile);
	u64 most = 0;

	vec_foreach (&a->i->endpoints, p) {
		if (p->threshold_ns)
			return;
		most = MAX(most, p->learnt);
	}
	say(a, TASK_WHY_LEARNING,
	    "a percentile of %g needs %.0f requests to an endpoint within some minutes: the "
	    "busiest had about %llu",
	    a->i->spec.percentile, need, most);
}

static void say_below(struct asking *a)
{
	const struct task_spec *s = &a->i->spec;
	const u64 n = a->i->counts[TASK_COUNT_BELOW];
	double slowest = (double)a->i->slowest_ns / 1e6;

	if (s->has_min)
		say(a, TASK_WHY_BELOW, "%llu %s less than %g ms: the slowest so far took %.3f ms",
		    N(n, "request took", "requests took"), (double)s->min_ns / 1e6, slowest);
	else if (s->percentile > 0)
		say(a, TASK_WHY_BELOW,
		    "%llu %s not slower than %g %% of the requests to their endpoints: the slowest "
		    "took %.3f ms",
		    N(n, "request was", "requests were"), s->percentile, slowest);
	else
		say(a, TASK_WHY_BELOW, "%llu %s without an error",
		    N(n, "request ended", "requests ended"));
}

static void say_budget(struct asking *a)
{
	const struct task_spec *s = &a->i->spec;
	const u64 n = a->i->counts[TASK_COUNT_BUDGET];
	_cleanup_str_ struct str limits = {};

	if (s->max_requests)
		str_printf(&limits, "%u in all, ", s->max_requests);
	if (s->max_per_agent)
		str_printf(&limits, "%u of an agent, ", s->max_per_agent);
	if (s->max_per_minute)
		str_printf(&limits, "%u of an endpoint in a minute, ", s->max_per_minute);
	str_printf(&limits, "and %d whose outcome is not known yet", TASKS_MAX_REQUESTS);
	say(a, TASK_WHY_BUDGET, "the budget had no room for %llu %s: %s",
	    N(n, "request", "requests"), str_get(&limits));
}

static void say_dropped(struct asking *a)
{
	const u64 evicted = a->i->outcomes[CONTROL_OUTCOME_EVICTED],
		  partly = a->i->outcomes[CONTROL_OUTCOME_PARTLY],
		  nobody = a->i->outcomes[TASK_OUTCOME_NOBODY];

	if (evicted || partly)
		say(a, TASK_WHY_DROPPED,
		    "when the decision came, agents had dropped all of %llu %s and the beginning "
		    "of %llu: spans come when a request has ended, and agents remember a limited "
		    "time",
		    N(evicted, "request", "requests"), partly);
	if (nobody)
		say(a, TASK_WHY_NOBODY,
		    "no agent had anything of %llu %s: they ran where no agent is, or before it "
		    "had taken the task, or without publishing their trace",
		    N(nobody, "request", "requests"));
}

static void why_spans(struct asking *a)
{
	const u64 *n = a->i->counts;
	u64 matching = n[TASK_COUNT_BELOW] + n[TASK_COUNT_BUDGET] + n[TASK_COUNT_WANTED];
	bool any = false;

	vec_foreach (&a->i->endpoints, p)
		any |= p->matches;
	if (!a->i->endpoints.n)
		say_no_span(a);
	else if (!any)
		say_no_endpoint(a);
	if (n[TASK_COUNT_OUTSIDE] && !matching)
		say(a, TASK_WHY_OUTSIDE, "%llu %s before the task or after its end",
		    N(n[TASK_COUNT_OUTSIDE], "request began", "requests began"));
	if (matching && a->i->spec.percentile > 0)
		say_learning(a);
	if (n[TASK_COUNT_BELOW] && n[TASK_COUNT_WANTED] == a->i->reasons[CONTROL_REASON_CONTROL] &&
	    !n[TASK_COUNT_BUDGET])
		say_below(a);
	if (n[TASK_COUNT_BUDGET])
		say_budget(a);
	say_dropped(a);
}

static void say_queued(struct asking *a)
{
	time_t at = (time_t)(a->i->start_ms / 1000);
	_cleanup_str_ struct str wait = {};
	struct tm tm;
	char text[32];

	strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&at, &tm));
	put_age(&wait, a->i->start_ms - a->now_ms);
	say(a, TASK_WHY_QUEUED, "the task starts at %s, in %s", text, str_get(&wait));
}

int tasks_why(struct tasks *t, const char *id, struct task_reasons *ret)
{
	struct asking a = {.t = t, .now_ms = clock_epoch_ms()};

	pthread_mutex_lock(&t->lock);
	a.e = tasks_find(t, id);
	if (!a.e) {
		a.r = -ENOENT;
	} else {
		a.i = &a.e->info;
		a.state = task_state(a.i, a.now_ms);
		if (a.state == TASK_STATE_QUEUED) {
			say_queued(&a);
		} else {
			why_agents(&a);
			if (a.i->spec.kind == TASK_KIND_REQUESTS)
				why_spans(&a);
		}
	}
	pthread_mutex_unlock(&t->lock);
	if (a.r < 0) {
		vec_deinit(&a.out.list);
		return a.r;
	}
	*ret = a.out;
	return 0;
}
