/* SPDX-License-Identifier: Apache-2.0 */
/* Which requests are kept: looks at each span that arrives, for each task of its service. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/quota.h"
#include "server/tasks/internal.h"

#define MINUTE_MS 60000
#define SEEN_MS 120000	/* a window of spans that are known again */
#define MAX_SEEN 190000 /* of a window: 4 MiB */
#define MAX_SERVICES 1000
#define MAX_SERVICE_BYTES (256 << 10)
/* Requests between two estimates of a percentile, of which one takes about 1 us. */
#define ESTIMATE_EVERY 16

/* ---- what was seen before ---- */

bool task_was_seen(struct task_seen *t, const struct span *s, u64 now_ms)
{
	u8 ids[24];
	u64 key;

	memcpy(ids, s->trace_id, 16);
	memcpy(ids + 16, s->span_id, 8);
	key = hash_bytes(ids, sizeof(ids)) >> 1; /* not one of the table's own */
	if (map_get(&t->now, key) || map_get(&t->before, key))
		return true;
	if (now_ms >= t->until_ms || t->now.n >= MAX_SEEN) {
		struct map old = t->before;

		map_clear(&old);
		t->before = t->now;
		t->now = old;
		t->until_ms = now_ms + SEEN_MS;
	}
	(void)map_put(&t->now, key, 1);
	return false;
}

void task_seen_deinit(struct task_seen *t)
{
	map_deinit(&t->now);
	map_deinit(&t->before);
}

static void note_service(struct tasks *t, const char *name)
{
	u32 id;

	if (t->services.n < MAX_SERVICES && t->services.n_bytes < MAX_SERVICE_BYTES)
		(void)strtab_add(&t->services, name, strlen(name), &id);
}

/* ---- endpoints ---- */

static int add_endpoint(struct task_entry *e, const char *name, bool matches)
{
	struct task_endpoint new = {.matches = matches};
	int r;

	snprintf(new.name, sizeof(new.name), "%s", name);
	r = vec_push(&e->info.endpoints, new);
	if (r == 0 && (r = vec_push(&e->windows, NULL)) < 0)
		e->info.endpoints.n--;
	return r;
}

/*
 * The index of the endpoint in info.endpoints, or -ENOMEM. When there are many, two stand for all
 * further ones: those that match and those that do not.
 */
static int find_endpoint(struct task_entry *e, const char *name)
{
	static const char *const further[] = {"(further endpoints)", "(further, that match)"};
	size_t n = strlen(name);
	int matches, r;
	bool is_new;
	u32 id;

	if (n && strtab_find(&e->names, name, n, &id))
		return (int)id - 1;
	matches = task_pattern_match(e->info.spec.endpoint, e->regex, name);
	if (matches < 0)
		return matches;
	is_new = n && e->names.n <= TASKS_MAX_ENDPOINTS - 2;
	if (!is_new) {
		name = n ? further[matches] : "(without a name)";
		n = strlen(name);
		if (strtab_find(&e->names, name, n, &id))
			return (int)id - 1;
	}
	/* The ids of names and the indexes grow together, or the name is not used. */
	if (e->names.n != e->info.endpoints.n + 1)
		return -ENOMEM;
	r = add_endpoint(e, name, matches);
	if (r == 0 && (r = strtab_add(&e->names, name, n, &id)) < 0) {
		e->info.endpoints.n--;
		e->windows.n--;
	}
	return r < 0 ? r : (int)id - 1;
}

/* ---- percentiles ---- */

u32 task_class_of(u64 ns)
{
	u64 v = ns >> 10;
	u32 e;

	if (v < 16)
		return (u32)v;
	e = 63 - (u32)__builtin_clzll(v);
	return MIN(16 + (e - 4) * 16 + (u32)((v >> (e - 4)) & 15), TASK_CLASSES - 1u);
}

u64 task_class_end(u32 c)
{
	if (c < 16)
		return (c + 1ULL) << 10;
	return (17ULL + (c - 16) % 16) << ((c - 16) / 16 + 10);
}

static void estimate(struct task_endpoint *p, const struct task_window *w, double percentile)
{
	u64 n = w->n[0] + w->n[1], below = 0;

	p->learnt = n;
	p->threshold_ns = 0;
	if ((double)n * (100 - percentile) < 200)
		return;
	for (u32 c = 0; c < TASK_CLASSES; c++) {
		below += w->classes[0][c] + w->classes[1][c];
		if ((double)below * 100 >= percentile * (double)n) {
			p->threshold_ns = task_class_end(c);
			return;
		}
	}
}

static void learn(struct task_entry *e, u32 endpoint, u64 duration_ns, u64 now_ms)
{
	struct task_endpoint *p = &e->info.endpoints.data[endpoint];
	struct task_window **at = &e->windows.data[endpoint], *w = *at;
	u64 window = now_ms / TASK_WINDOW_MS;

	if (!w) {
		w = *at = calloc(1, sizeof(*w));
		if (!w)
			return;
		w->window = window;
	}
	if (w->window != window) {
		bool next = w->window + 1 == window;

		w->n[1] = next ? w->n[0] : 0;
		if (next)
			memcpy(w->classes[1], w->classes[0], sizeof(w->classes[1]));
		else
			memset(w->classes[1], 0, sizeof(w->classes[1]));
		memset(w->classes[0], 0, sizeof(w->classes[0]));
		w->n[0] = 0;
		w->window = window;
		w->since = ESTIMATE_EVERY;
	}
	w->classes[0][task_class_of(duration_ns)]++;
	w->n[0]++;
	if (++w->since >= ESTIMATE_EVERY) {
		w->since = 0;
		estimate(p, w, e->info.spec.percentile);
	}
}

/* ---- one request ---- */

/* The reason to keep the request, or CONTROL_REASON_N. */
static enum control_reason reason_of(const struct task_spec *spec, const struct task_endpoint *p,
				     const struct span *s)
{
	if (spec->has_min && s->duration_ns >= spec->min_ns)
		return CONTROL_REASON_SLOW;
	if (spec->percentile > 0 && p->threshold_ns && s->duration_ns >= p->threshold_ns)
		return CONTROL_REASON_PERCENTILE;
	if (spec->errors && s->status == SPAN_ERROR)
		return CONTROL_REASON_ERROR;
	return CONTROL_REASON_N;
}

static void begin_minute(const struct task_spec *spec, struct task_endpoint *p, u64 now_ms)
{
	u64 minute = now_ms / MINUTE_MS;
	double before = minute == p->minute + 1 ? (double)p->ordinary : 0;

	if (minute == p->minute)
		return;
	p->minute = minute;
	p->in_minute = p->control_in_minute = 0;
	p->ordinary = 0;
	p->share = spec->control;
	if (spec->max_per_minute && before * p->share > spec->max_per_minute)
		p->share = spec->max_per_minute / before;
}

/* Whether the random generator chooses an ordinary request. */
static bool is_chosen(struct tasks *t, struct task_endpoint *p)
{
	p->ordinary++;
	return p->share > 0 && (double)(tasks_random(t) >> 11) * 0x1p-53 < p->share;
}

/* The requests of a kind that agents have, or may have. */
static u64 taken(const struct task_info *i, bool control)
{
	u64 all = 0, of_control = 0;
	static const u8 count[] = {CONTROL_OUTCOME_KEPT, CONTROL_OUTCOME_PARTLY,
				   TASK_OUTCOME_WAITING};

	for (size_t k = 0; k < ARRAY_SIZE(count); k++) {
		all += i->outcomes[count[k]];
		of_control += i->control_outcomes[count[k]];
	}
	return control ? of_control : all - of_control;
}

/* The agent on the host that the span names, if the task knows one: it is likely to have it. */
static u32 likely_agent(const struct task_info *i, const struct spans *s, const struct span *span)
{
	const char *host = NULL;
	const struct profile_resource *r;

	if (!i->spec.max_per_agent || span->resource >= s->profile->resources.n)
		return ~0u;
	r = &s->profile->resources.data[span->resource];
	for (u32 k = 0; k < r->n && !host; k++) {
		const struct profile_label *l = &s->profile->labels.data[r->first + k];

		if (!strcmp(spans_string(s, l->name), "host.name"))
			host = spans_string(s, l->value);
	}
	for (u32 k = 0; host && k < i->agents.n; k++)
		if (!strcmp(i->agents.data[k].host, host))
			return k;
	return ~0u;
}

static bool agent_has_room(const struct task_info *i, u32 agent)
{
	u64 n;

	if (agent == ~0u)
		return true;
	n = i->agents.data[agent].kept;
	if (n >= i->spec.max_per_agent)
		return false;
	vec_foreach (&i->requests, q)
		n += q->outcome == TASK_OUTCOME_WAITING && q->agent == agent;
	return n < i->spec.max_per_agent;
}

static bool has_room(const struct task_info *i, const struct task_endpoint *p, u32 agent,
		     bool control)
{
	const struct task_spec *spec = &i->spec;

	if (spec->max_requests && taken(i, control) >= spec->max_requests)
		return false;
	if (spec->max_per_minute &&
	    (control ? p->control_in_minute : p->in_minute) >= spec->max_per_minute)
		return false;
	/* What is remembered is bounded, and a request without an outcome is not forgotten. */
	if (i->requests.n >= TASKS_MAX_REQUESTS &&
	    i->requests.data[0].outcome == TASK_OUTCOME_WAITING)
		return false;
	return agent_has_room(i, agent);
}

/* A server that was restarted has forgotten what it saw, but not what it wanted. */
static bool is_wanted(const struct task_info *i, const struct span *s)
{
	vec_foreach (&i->requests, q) {
		if (!memcmp(q->span_id, s->span_id, sizeof(q->span_id)) &&
		    !memcmp(q->trace_id, s->trace_id, sizeof(q->trace_id)))
			return true;
	}
	return false;
}

static int push_request(struct task_entry *e, const struct task_request *q)
{
	struct task_info *i = &e->info;

	if (i->requests.n >= TASKS_MAX_REQUESTS) {
		i->requests.n--;
		memmove(i->requests.data, i->requests.data + 1,
			i->requests.n * sizeof(*i->requests.data));
	}
	return vec_push(&i->requests, *q);
}

static void keep(struct tasks *t, struct task_entry *e, u32 endpoint, const struct span *s,
		 enum control_reason why, u32 agent, u64 now_ms)
{
	struct task_endpoint *p = &e->info.endpoints.data[endpoint];
	bool control = why == CONTROL_REASON_CONTROL;
	struct task_request q = {
		.number = t->number + 1,
		.start_ns = s->start_ns,
		.duration_ns = s->duration_ns,
		.decided_ms = now_ms,
		.endpoint = endpoint,
		.agent = agent,
		.status = s->status,
		.reason = (u8)why,
		.outcome = TASK_OUTCOME_WAITING,
	};

	memcpy(q.trace_id, s->trace_id, sizeof(q.trace_id));
	memcpy(q.span_id, s->span_id, sizeof(q.span_id));
	if (push_request(e, &q) < 0)
		return;
	t->number++;
	p->wanted++;
	if (control)
		p->control_in_minute++;
	else
		p->in_minute++;
	e->info.reasons[why]++;
	e->info.outcomes[TASK_OUTCOME_WAITING]++;
	if (control)
		e->info.control_outcomes[TASK_OUTCOME_WAITING]++;
	e->urgent = true;
}

bool task_settle(struct tasks *t, struct task_entry *e, struct task_request *q, u8 outcome,
		 u64 now_ms)
{
	struct task_info *i = &e->info;

	/* Agents' outcomes are ordered from the best to the worst, and come before the others. */
	if (outcome == q->outcome || (outcome > q->outcome && q->outcome < CONTROL_OUTCOME_N))
		return false;
	i->outcomes[q->outcome]--;
	i->outcomes[outcome]++;
	if (q->reason == CONTROL_REASON_CONTROL) {
		i->control_outcomes[q->outcome]--;
		i->control_outcomes[outcome]++;
	}
	t->outcomes[outcome]++;
	q->outcome = outcome;
	q->done_ms = now_ms;
	e->changed = e->urgent = true;
	return true;
}

/* ---- all spans ---- */

static enum task_count look(struct tasks *t, struct task_entry *e, const struct spans *s,
			    const struct span *span, bool repeated, u64 now_ms)
{
	struct task_info *i = &e->info;
	u64 start_ms = span->start_ns / 1000000;
	enum control_reason why;
	struct task_endpoint *p;
	u32 agent;
	int at;

	if (repeated)
		return TASK_COUNT_REPEATED;
	at = find_endpoint(e, spans_string(s, span->endpoint));
	if (at < 0)
		return TASK_COUNT_OTHER;
	p = &i->endpoints.data[at];
	p->requests++;
	p->slowest_ns = MAX(p->slowest_ns, span->duration_ns);
	if (!p->matches)
		return TASK_COUNT_OTHER;
	begin_minute(&i->spec, p, now_ms);
	why = reason_of(&i->spec, p, span);
	if (i->spec.percentile > 0)
		learn(e, (u32)at, span->duration_ns, now_ms);
	if (start_ms < i->start_ms || (i->end_ms && start_ms >= i->end_ms))
		return TASK_COUNT_OUTSIDE;
	i->slowest_ns = MAX(i->slowest_ns, span->duration_ns);
	if (why == CONTROL_REASON_N) {
		if (!is_chosen(t, p))
			return TASK_COUNT_BELOW;
		why = CONTROL_REASON_CONTROL;
	}
	if (is_wanted(i, span))
		return TASK_COUNT_REPEATED;
	agent = likely_agent(i, s, span);
	if (!has_room(i, p, agent, why == CONTROL_REASON_CONTROL))
		return TASK_COUNT_BUDGET;
	keep(t, e, (u32)at, span, why, agent, now_ms);
	return TASK_COUNT_WANTED;
}

static void count(struct tasks *t, struct task_entry *e, enum task_count c)
{
	e->info.counts[c]++;
	t->counts[c]++;
	e->changed = true;
}

/* Whether the task looks at requests: while it runs, and at its last ones, which come later. */
static bool looks(const struct task_entry *e, u64 now_ms)
{
	enum task_state s = task_state(&e->info, now_ms);

	if (e->info.spec.kind != TASK_KIND_REQUESTS)
		return false;
	return s == TASK_STATE_RUNNING || (s == TASK_STATE_ENDED && task_lingers(&e->info, now_ms));
}

struct looking {
	struct task_entry *entry;
	u32 service; /* string id in the spans */
};

static size_t find_looking(struct tasks *t, const struct spans *s, u64 now_ms,
			   struct looking ret[TASKS_MAX])
{
	size_t n = 0;

	vec_foreach (&t->list, e) {
		const char *service = (*e)->info.spec.service;

		task_update_state(*e, now_ms);
		if (looks(*e, now_ms) &&
		    strtab_find(&s->profile->strings, service, strlen(service), &ret[n].service))
			ret[n++].entry = *e;
	}
	return n;
}

static void look_at_span(struct tasks *t, struct looking *all, size_t n, const struct spans *s,
			 const struct span *span, u64 now_ms)
{
	bool asked = false, repeated = false;

	for (size_t k = 0; k < n; k++) {
		if (all[k].service != span->service)
			continue;
		count(t, all[k].entry, TASK_COUNT_SPANS);
		if (!(span->flags & SPAN_ROOT))
			continue;
		if (!asked)
			repeated = task_was_seen(&t->seen, span, now_ms);
		asked = true;
		count(t, all[k].entry, look(t, all[k].entry, s, span, repeated, now_ms));
	}
}

void tasks_see_spans(struct tasks *t, const struct spans *s)
{
	QUOTA_PAUSED; /* what is remembered belongs to all requests */
	struct looking all[TASKS_MAX];
	u64 now = clock_epoch_ms();
	u32 last = 0;
	size_t n;

	pthread_mutex_lock(&t->lock);
	n = t->list.n ? find_looking(t, s, now, all) : 0;
	for (size_t k = 0; t->list.n && k < s->spans.n; k++) {
		const struct span *span = &s->spans.data[k];

		if (span->service != last)
			note_service(t, spans_string(s, span->service));
		last = span->service;
		look_at_span(t, all, n, s, span, now);
	}
	n = t->list.n;
	pthread_mutex_unlock(&t->lock);
	if (n)
		(void)task_files_save(t, NULL);
}
