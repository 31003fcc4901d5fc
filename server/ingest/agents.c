/* SPDX-License-Identifier: Apache-2.0 */
#include "server/ingest/agents.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/quota.h"
#include "base/text.h"
#include "base/vec.h"
#include "base/vocab.h"

#define PREFIX "culprit.agent."

#define FINE 16 /* the distance between points is at most this part of their age */

/* An agent's counts at a time, since its first report; restarts included. */
struct point {
	u64 at_ms, samples, lost, dropped;
};

struct known {
	struct agent_state s;
	vec(struct point) points; /* ascending in all members */
	u64 shared_ms;		  /* when its report was last put into agents.reports */
};

struct agents {
	pthread_mutex_t lock;
	vec(struct known) all;
	struct map by_host;	      /* hash of host and id → position in `all` */
	struct store_reports reports; /* to be shared; without a profile they are not collected */
};

int agents_create(struct agents **ret)
{
	struct agents *a = calloc(1, sizeof(*a));

	if (!a)
		return -ENOMEM;
	pthread_mutex_init(&a->lock, NULL);
	*ret = a;
	return 0;
}

void agents_destroy(struct agents *a)
{
	if (!a)
		return;
	pthread_mutex_destroy(&a->lock);
	vec_foreach (&a->all, k)
		vec_deinit(&k->points);
	vec_deinit(&a->all);
	map_deinit(&a->by_host);
	store_reports_deinit(&a->reports);
	free(a);
}

/* "lost.nested" */
static void take_counter(struct agent_state *s, const char *name, u64 count)
{
	struct agent_counter *c = &s->counters[s->n_counters];

	for (u32 i = 0; i < COUNTER_LOSS_N && s->n_counters < ARRAY_SIZE(s->counters); i++) {
		const char *loss = vocab_counter_loss((enum counter_loss)i);
		size_t n = strlen(loss);

		if (!str_starts(name, loss) || name[n] != '.')
			continue;
		snprintf(c->name, sizeof(c->name), "%s", name + n + 1);
		c->loss = (enum counter_loss)i;
		c->count = count;
		s->n_counters++;
		return;
	}
}

/* "dropped.queue_full" */
static void take_drop(struct agent_state *s, const char *name, u64 profiles)
{
	struct agent_drop *d = &s->drops[s->n_drops];

	if (!str_starts(name, "dropped.") || s->n_drops == ARRAY_SIZE(s->drops))
		return;
	snprintf(d->reason, sizeof(d->reason), "%s", name + strlen("dropped."));
	d->profiles = profiles;
	s->n_drops++;
}

/* "rate.cpu-clock", "period.page-faults" */
static void take_source(struct agent_state *s, const char *name, u64 n)
{
	struct agent_source *e = &s->sources[s->n_sources];
	bool rate = str_starts(name, "rate.");

	if ((!rate && !str_starts(name, "period.")) || s->n_sources == ARRAY_SIZE(s->sources))
		return;
	*e = (struct agent_source){.hz = rate ? n : 0, .period = rate ? 0 : n};
	snprintf(e->event, sizeof(e->event), "%s", strchr(name, '.') + 1);
	s->n_sources++;
}

static void take_label(struct agent_state *s, const char *name, const char *value)
{
	const struct {
		const char *name;
		char *text;
		size_t size;
	} texts[] = {
		{"host.name", s->host, sizeof(s->host)},
		{"host.id", s->id, sizeof(s->id)},
		{"host.arch", s->arch, sizeof(s->arch)},
		{"os.version", s->kernel, sizeof(s->kernel)},
		{PREFIX "version", s->version, sizeof(s->version)},
		{PREFIX "error", s->error, sizeof(s->error)},
	};
	const struct {
		const char *name;
		u64 *value;
	} numbers[] = {
		{PREFIX "started", &s->started_ms},	 {PREFIX "cpu", &s->cpu_ns},
		{PREFIX "memory", &s->memory},		 {PREFIX "processes", &s->processes},
		{PREFIX "samples", &s->samples},	 {PREFIX "truncated", &s->truncated},
		{PREFIX "dropped_samples", &s->dropped},
	};
	u64 n;

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		if (!strcmp(texts[i].name, name))
			snprintf(texts[i].text, texts[i].size, "%s", value);
	if (strncmp(name, PREFIX, strlen(PREFIX)) != 0 || str_to_u64(value, 10, &n) < 0)
		return;
	for (size_t i = 0; i < ARRAY_SIZE(numbers); i++)
		if (!strcmp(numbers[i].name, name))
			*numbers[i].value = n;
	take_counter(s, name + strlen(PREFIX), n);
	take_drop(s, name + strlen(PREFIX), n);
	take_source(s, name + strlen(PREFIX), n);
}

static bool same_host(const struct agent_state *a, const struct agent_state *b)
{
	return !strcmp(a->host, b->host) && !strcmp(a->id, b->id);
}

static u64 host_key(const struct agent_state *s)
{
	u64 parts[] = {hash_bytes(s->host, strlen(s->host)), hash_bytes(s->id, strlen(s->id))};

	return MIN(hash_bytes(parts, sizeof(parts)), MAP_GONE_KEY - 1);
}

static size_t silent_longest(const struct agents *a)
{
	size_t oldest = 0;

	for (size_t i = 1; i < a->all.n; i++)
		if (a->all.data[i].s.seen_ms < a->all.data[oldest].s.seen_ms)
			oldest = i;
	return oldest;
}

/* The entry of the host. A new host takes a new entry, or that of the agent silent for longest. */
static struct known *entry_of_host(struct agents *a, const struct agent_state *s)
{
	u64 key = host_key(s), *known = map_get(&a->by_host, key);
	bool full = a->all.n >= AGENTS_MAX;
	size_t at = known ? *known : full ? silent_longest(a) : a->all.n;
	struct known *e;

	if (known && same_host(&a->all.data[at].s, s))
		return &a->all.data[at];
	if (at == a->all.n && vec_push(&a->all, (struct known){}) < 0)
		return NULL;
	e = &a->all.data[at];
	if (!known && map_put(&a->by_host, key, at) < 0) {
		a->all.n -= !full;
		return NULL;
	}
	if (!known && full)
		map_del(&a->by_host, host_key(&e->s), NULL);
	vec_deinit(&e->points);
	*e = (struct known){};
	return e;
}

/* Samples. */
static u64 lost_of(const struct agent_state *s)
{
	u64 sum = 0;

	for (u32 i = 0; i < s->n_counters; i++)
		if (s->counters[i].loss == COUNTER_LOSS_SAMPLE)
			sum += s->counters[i].count;
	return sum;
}

/* Keeps about 20 points per doubling of age: 350 for a week of one every five seconds. */
static void thin_out(struct known *k, u64 now_ms)
{
	struct point *p = k->points.data;
	size_t n = 1;

	for (size_t i = 1; i < k->points.n; i++) {
		bool last = i + 1 == k->points.n;

		if (last || p[i + 1].at_ms - p[n - 1].at_ms > (now_ms - p[i].at_ms) / FINE)
			p[n++] = p[i];
	}
	k->points.n = n;
}

/* Adds the counts since the previous report; an agent that was restarted counts from 0. */
static void add_point(struct known *k, const struct agent_state *s)
{
	const struct agent_state *was = &k->s;
	bool same = was->started_ms == s->started_ms && was->samples <= s->samples &&
		    lost_of(was) <= lost_of(s) && was->dropped <= s->dropped;
	struct point p = {.at_ms = MIN(s->started_ms, s->seen_ms)};

	if (!k->points.n && vec_push(&k->points, p) < 0)
		return;
	p = k->points.data[k->points.n - 1];
	if (s->seen_ms <= p.at_ms)
		return;
	p.at_ms = s->seen_ms;
	p.samples += s->samples - (same ? was->samples : 0);
	p.lost += lost_of(s) - (same ? lost_of(was) : 0);
	p.dropped += s->dropped - (same ? was->dropped : 0);
	/* Without memory for this point, the next one includes its counts. */
	if (vec_push(&k->points, p) == 0)
		thin_out(k, s->seen_ms);
}

/* From the last point before the range (or the first point) to the first point after it. */
static void tell_range(const struct known *k, u64 from_ms, u64 to_ms, struct agent_state *ret)
{
	const struct point *p = k->points.data;
	size_t from = 0, to;

	while (from + 1 < k->points.n && p[from + 1].at_ms <= from_ms)
		from++;
	for (to = from; to + 1 < k->points.n && p[to].at_ms < to_ms; to++)
		;
	if (to == from || p[from].at_ms >= to_ms)
		return;
	ret->range.from_ms = p[from].at_ms;
	ret->range.to_ms = p[to].at_ms;
	ret->range.samples = p[to].samples - p[from].samples;
	ret->range.lost = p[to].lost - p[from].lost;
	ret->range.dropped = p[to].dropped - p[from].dropped;
}

static double cpu_of(const struct agent_state *before, const struct agent_state *s)
{
	bool same = before->started_ms == s->started_ms && s->cpu_ns >= before->cpu_ns &&
		    s->seen_ms > before->seen_ms;
	u64 from = same ? before->seen_ms : s->started_ms;
	u64 cpu_ns = same ? s->cpu_ns - before->cpu_ns : s->cpu_ns;

	return s->seen_ms > from ? (double)cpu_ns / 1e6 / (double)(s->seen_ms - from) : 0;
}

static u64 newest_sample(const struct profile *p)
{
	u64 newest_ns = p->time_ns;

	for (size_t i = 0; i < p->n_samples; i++)
		newest_ns = MAX(newest_ns, profile_sample(p, i)->time_ns);
	return newest_ns / 1000000;
}

/* Without memory, the report is shared later. */
static void collect(struct agents *a, struct known *k, const struct profile *p, u32 resource)
{
	const struct profile_resource *r = &p->resources.data[resource];
	struct profile_label labels[PROFILE_MAX_LABELS];
	struct profile *into = a->reports.profile;
	struct store_report e = {.seen_ms = k->s.seen_ms, .newest_ms = k->s.newest_ms};
	int ok = 0;

	if (!into || k->s.seen_ms < k->shared_ms + AGENTS_SHARE_MS)
		return;
	for (u32 i = 0; i < r->n && ok == 0; i++) {
		const struct profile_label *l = &p->labels.data[r->first + i];
		const char *name = profile_string(p, l->name), *value = profile_string(p, l->value);

		ok = profile_add_string(into, name, strlen(name), &labels[i].name);
		if (ok == 0)
			ok = profile_add_string(into, value, strlen(value), &labels[i].value);
	}
	if (ok == 0 && profile_add_resource(into, labels, r->n, &e.resource) == 0 &&
	    vec_push(&a->reports.list, e) == 0)
		k->shared_ms = k->s.seen_ms;
}

/* Takes the report in a resource. here: it came to this server. */
static void see(struct agents *a, const struct profile *p, u32 resource, struct agent_state *s,
		bool here)
{
	const struct profile_resource *r = &p->resources.data[resource];
	struct known *at;

	for (u32 i = 0; i < r->n; i++) {
		const struct profile_label *l = &p->labels.data[r->first + i];

		take_label(s, profile_string(p, l->name), profile_string(p, l->value));
	}
	if (!s->version[0])
		return;
	pthread_mutex_lock(&a->lock);
	at = entry_of_host(a, s);
	if (at && (here || at->s.seen_ms < s->seen_ms)) {
		s->cpu = cpu_of(&at->s, s);
		add_point(at, s);
		at->s = *s;
		if (here)
			collect(a, at, p, resource);
	}
	pthread_mutex_unlock(&a->lock);
}

void agents_see(struct agents *a, const struct profile *p, u64 now_ms)
{
	struct agent_state s = {.seen_ms = now_ms, .newest_ms = newest_sample(p)};
	QUOTA_PAUSED; /* the list belongs to all requests */

	if (p->agent && p->agent < p->resources.n)
		see(a, p, p->agent, &s, true);
}

int agents_take_reports(struct agents *a, u64 server, struct store_reports *ret)
{
	struct store_reports next;
	int r = store_reports_init(&next, server);

	if (r < 0)
		return r;
	pthread_mutex_lock(&a->lock);
	*ret = a->reports;
	a->reports = next;
	pthread_mutex_unlock(&a->lock);
	return 0;
}

void agents_learn(struct agents *a, const struct store_reports *reports)
{
	for (size_t i = 0; i < reports->list.n; i++) {
		const struct store_report *e = &reports->list.data[i];
		struct agent_state s = {.seen_ms = e->seen_ms, .newest_ms = e->newest_ms};

		see(a, reports->profile, e->resource, &s, false);
	}
}

static int compare_hosts(const void *a, const void *b)
{
	const struct agent_state *x = a, *y = b;
	int c = strcmp(x->host, y->host);

	return c ? c : strcmp(x->id, y->id);
}

int agents_list(struct agents *a, u64 from_ms, u64 to_ms, struct agent_state **ret, size_t *ret_n)
{
	struct agent_state *all;
	size_t n;

	pthread_mutex_lock(&a->lock);
	n = a->all.n;
	all = calloc(n + 1, sizeof(*all));
	for (size_t i = 0; all && i < n; i++) {
		all[i] = a->all.data[i].s;
		tell_range(&a->all.data[i], from_ms, to_ms, &all[i]);
	}
	pthread_mutex_unlock(&a->lock);
	if (!all)
		return -ENOMEM;
	qsort(all, n, sizeof(*all), compare_hosts);
	*ret = all;
	*ret_n = n;
	return 0;
}
