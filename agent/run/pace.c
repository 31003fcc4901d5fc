/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/run/pace.h"

#include <bpf/bpf.h>
#include <math.h>
#include <unistd.h>

#include "base/log.h"

#define SECOND_NS 1000000000ULL
#define START_NS (30 * SECOND_NS)
#define SMOOTH_S 30.0
#define SMOOTH_NS (30 * SECOND_NS)
#define MEASURE_NS SECOND_NS
#define MEASURE_EVERY_NS (60 * SECOND_NS)
/* Part of the budget at which the rate falls; at which it rises; and that a new rate aims at. */
#define FALL 0.95
#define RISE 0.6
#define AIM 0.8

void pace_init(struct pace *p)
{
	*p = (struct pace){.bpf_fd = -1};
}

static void end_measuring(struct pace *p)
{
	if (p->bpf_fd >= 0)
		close(p->bpf_fd);
	p->bpf_fd = -1;
}

void pace_deinit(struct pace *p)
{
	end_measuring(p);
}

void pace_begin(struct pace *p, u64 asked_hz)
{
	end_measuring(p);
	p->asked_hz = p->hz = asked_hz;
	p->bpf_hz = 0;
	p->begin_ns = p->at_ns = p->next_ns = p->changed_ns = 0;
	p->spent = p->bpf = 0;
}

u64 pace_choose(double share, double spent, u64 asked_hz, u64 hz)
{
	double factor = spent > 0 ? AIM * share / spent : 2;

	if (spent > FALL * share)
		hz = (u64)((double)hz * fmin(factor, 1));
	else if (spent < RISE * share && hz < asked_hz)
		hz = MAX(hz + 1, (u64)((double)hz * fmin(factor, 2)));
	return MAX(MIN(hz, asked_hz), 1ULL);
}

/* Measures the BPF programs for a while, once a minute. */
static void measure_bpf(struct pace *p, u64 now_ns, u64 bpf_ns, u32 cpus)
{
	if (p->bpf_fd < 0 && now_ns >= p->next_ns) {
		p->bpf_fd = bpf_enable_stats(BPF_STATS_RUN_TIME);
		p->bpf_at_ns = now_ns;
		p->bpf_ns = bpf_ns;
		p->next_ns = now_ns + MEASURE_EVERY_NS;
	} else if (p->bpf_fd >= 0 && now_ns >= p->bpf_at_ns + MEASURE_NS) {
		p->bpf = (double)(bpf_ns - p->bpf_ns) / (double)(now_ns - p->bpf_at_ns) / cpus;
		p->bpf_hz = p->hz;
		end_measuring(p);
	}
}

/* The cost at another rate is known when it has been smoothed; until then it is a guess. */
static void change(struct pace *p, u64 now_ns)
{
	u64 hz = pace_choose(p->share, p->spent, p->asked_hz, p->hz);

	if (hz == p->hz && p->spent > p->share)
		log_warn_rarely("the agent takes %.2f %% of the machine's CPU time, more than "
				"--cpu-budget %.2f: its rate is %llu Hz, and the rest does not "
				"depend on the rate",
				p->spent * 100, p->share * 100, hz);
	if (hz == p->hz)
		return;
	log_info("the agent takes %.2f %% of the machine's CPU time, of %.2f %% (--cpu-budget): "
		 "it samples at %llu Hz from now on, after %llu Hz",
		 p->spent * 100, p->share * 100, hz, p->hz);
	p->spent *= (double)hz / (double)p->hz;
	p->hz = hz;
	p->changes++;
	p->changed_ns = now_ns;
}

bool pace_is_due(const struct pace *p, u64 now_ns)
{
	return p->share > 0 && p->asked_hz && now_ns >= p->at_ns + SECOND_NS;
}

void pace_look(struct pace *p, u64 now_ns, u64 cpu_ns, u64 bpf_ns, u32 cpus)
{
	double elapsed_s = (double)(now_ns - p->at_ns) / 1e9;
	double cost = (double)(cpu_ns - p->cpu_ns) / 1e9 / elapsed_s / cpus;
	bool first = !p->at_ns;

	p->at_ns = now_ns;
	p->cpu_ns = cpu_ns;
	if (first)
		p->begin_ns = now_ns + START_NS;
	if (now_ns < p->begin_ns)
		return;
	measure_bpf(p, now_ns, bpf_ns, cpus);
	if (p->bpf_hz)
		cost += p->bpf * (double)p->hz / (double)p->bpf_hz;
	p->spent += (cost - p->spent) * (1 - exp(-elapsed_s / SMOOTH_S));
	if (now_ns >= p->begin_ns + SMOOTH_NS && now_ns >= p->changed_ns + SMOOTH_NS)
		change(p, now_ns);
}
