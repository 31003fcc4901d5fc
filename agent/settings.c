/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a server sets about how the agent samples always (lib/control): its rate, its budget, and
 * whether waits are sampled. The agent's own options are the limits: what they rule out is not
 * done, and the server is told why. A change is a reload (agent/reload.c): a second recording, with
 * its rate in the profiles that it makes.
 */
#include <stdio.h>
#include <string.h>

#include "agent/internal.h"
#include "agent/probe/probe.h"
#include "base/log.h"

#define MAX_REMOTE_HZ 200

static bool is_same(const struct control_settings *a, const struct control_settings *b)
{
	return a->hz == b->hz && a->budget_percent == b->budget_percent && a->off_cpu == b->off_cpu;
}

/* Beside the CPU time by default, there is nothing to leave out or add. */
static bool has_events(const struct recording_options *o)
{
	return o->events || o->off_cpu || o->wall || o->faults || o->block_io || o->period;
}

bool agent_has_new_settings(const struct agent *a)
{
	const struct control_settings now = control_client_settings(a->asks);

	return !a->own.no_remote_settings && !is_same(&now, &a->set);
}

static void set_rate(const struct agent_options *own, u64 hz, struct agent_options *o, char *why,
		     size_t n)
{
	u64 most = own->max_remote_hz ? own->max_remote_hz : MAX_REMOTE_HZ;

	if (own->what.period || own->what.off_cpu || own->what.faults || own->what.block_io)
		snprintf(why, n, "what it samples has no rate");
	else if (hz > most)
		snprintf(why, n, "at most %llu Hz (--max-remote-frequency)", most);
	if (!*why || hz > most)
		o->what.hz = MIN(hz, most);
}

static void set_waits(const struct agent_options *own, bool waits, struct agent_options *o,
		      char *why, size_t n)
{
	if (has_events(&own->what))
		snprintf(why, n, "its own options say which events it samples");
	else if (waits && own->no_off_cpu)
		snprintf(why, n, "it was started with --no-off-cpu");
	else
		o->no_off_cpu = !waits;
}

struct agent_options agent_with_settings(struct agent *a, const struct agent_options *own)
{
	char rate[128] = "", waits[128] = "";
	struct agent_options o = *own;

	a->set_reason[0] = '\0';
	if (own->no_remote_settings)
		return o;
	a->set = control_client_settings(a->asks);
	if (a->set.hz)
		set_rate(own, a->set.hz, &o, rate, sizeof(rate));
	if (a->set.budget_percent > 0)
		o.what.budget = MIN(a->set.budget_percent, CONTROL_MAX_BUDGET);
	if (a->set.off_cpu)
		set_waits(own, a->set.off_cpu == 1, &o, waits, sizeof(waits));
	snprintf(a->set_reason, sizeof(a->set_reason), "%s%s%s%s%s", *rate ? "rate: " : "", rate,
		 *rate && *waits ? "; " : "", *waits ? "waits: " : "", waits);
	return o;
}

static bool samples_waits(const struct agent_options *o)
{
	const struct recording_options *w = &o->what;

	if (w->off_cpu || w->wall)
		return true;
	return !has_events(w) && !o->no_off_cpu && probe_waits() >= 0;
}

void agent_tell_settings(struct agent *a)
{
	const struct agent_options *o = &a->options;
	struct control_settings s = {
		.hz = (u32)(o->what.period || o->what.off_cpu ? 0
			    : o->what.hz		      ? o->what.hz
							      : AGENT_DEFAULT_HZ),
		.budget_percent = o->what.budget,
		.off_cpu = samples_waits(o) ? 1 : 2,
	};

	control_client_in_force(a->asks, &s, !a->own.no_remote_settings, a->set_reason);
}
