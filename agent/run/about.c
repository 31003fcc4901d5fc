/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/run/about.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>

#include "base/clock.h"
#include "base/vocab.h"

#define MAX_LABELS (16 + SAMPLER_MAX_SOURCES + COUNTER_N)

struct labels {
	struct profile *p;
	struct profile_label all[MAX_LABELS];
	size_t n;
	int r;
};

static void put_label(struct labels *l, const char *name, const char *value)
{
	struct profile_label *at = &l->all[l->n];

	if (l->r < 0 || !value)
		return;
	if (l->n == MAX_LABELS) {
		l->r = -E2BIG;
		return;
	}
	l->r = profile_add_string(l->p, name, strlen(name), &at->name);
	if (l->r == 0)
		l->r = profile_add_string(l->p, value, strlen(value), &at->value);
	l->n += l->r == 0;
}

static void put_number(struct labels *l, const char *name, u64 value)
{
	char full[96], text[24];

	snprintf(full, sizeof(full), "culprit.agent.%s", name);
	snprintf(text, sizeof(text), "%llu", value);
	put_label(l, full, text);
}

static void put_host(struct labels *l, struct identities *identities)
{
	static const char *const names[] = {"host.name", "host.id", "host.arch"};
	struct utsname u;

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		char value[256];

		identities_host(identities, names[i], value, sizeof(value));
		put_label(l, names[i], value[0] ? value : NULL);
	}
	if (uname(&u) == 0)
		put_label(l, "os.version", u.release);
}

static void put_sources(struct labels *l, const struct sampler_source *sources, u32 n)
{
	for (u32 i = 0; i < n; i++) {
		const struct sampler_source *s = &sources[i];
		char name[80];

		snprintf(name, sizeof(name), "%s.%s", s->hz ? "rate" : "period", s->event);
		put_number(l, name, s->hz ? s->hz : s->period);
	}
}

/* Adds the counters that are not 0. */
static void put_counters(struct labels *l, const u64 *counters)
{
	for (u32 i = 0; i < COUNTER_N; i++) {
		const struct vocab_counter *counter = vocab_counter(i);
		char name[48];

		snprintf(name, sizeof(name), "%s.%s", vocab_counter_loss(counter->loss),
			 counter->name);
		if (counters[i])
			put_number(l, name, counters[i]);
	}
}

int about_add(const struct about *a, struct profile *p)
{
	struct labels l = {.p = p};

	put_host(&l, a->identities);
	put_label(&l, "culprit.agent.version", CULPRIT_VERSION);
	put_number(&l, "started", a->started_ms);
	put_sources(&l, a->sources, a->n_sources);
	put_number(&l, "cpu", clock_ns(CLOCK_PROCESS_CPUTIME_ID));
	put_number(&l, "memory", a->memory);
	put_number(&l, "processes", a->stats->procman.processes);
	put_number(&l, "samples", a->samples);
	put_number(&l, "truncated", a->truncated);
	put_counters(&l, a->stats->sampler.all.counters);
	put_label(&l, "culprit.agent.error", a->error);
	return l.r < 0 ? l.r : profile_add_resource(p, l.all, l.n, &p->agent);
}
