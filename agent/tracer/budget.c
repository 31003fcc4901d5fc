/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/tracer/budget.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

#define LOOK_NS 1000000000ULL

void tracer_budget_init(struct tracer_budget *b, double percent, const char *cache_dir)
{
	*b = (struct tracer_budget){
		.percent = percent,
		.credit_ns = TRACER_CREDIT_S * 1e7 * percent,
		.looked_ns = clock_ns(CLOCK_MONOTONIC),
		.stats = -1,
	};
	if (!percent)
		return;
	b->stats = bpf_enable_stats(BPF_STATS_RUN_TIME);
	if (tracer_costs_read(cache_dir, b->costs) < 0)
		tracer_costs_guess(b->costs);
}

void tracer_budget_deinit(struct tracer_budget *b)
{
	if (b->percent && b->stats >= 0)
		close(b->stats);
	vec_deinit(&b->spent);
}

/* The mean of the place's probes: the kernel does not tell which of them are hit. */
static u64 cost_of(const struct tracer_cost *c, const struct tracer_place_of *p)
{
	if (!c->least_ns)
		return c->ns;
	return (c->ns * p->n_stepped + c->least_ns * (p->n_probes - p->n_stepped)) / p->n_probes;
}

/* What an event of the program costs beside the program. */
static u64 event_ns(const struct tracer_budget *b, const struct tracer_loaded *l,
		    const struct tracer_attached *a, int program)
{
	vec_foreach (&a->places, p) {
		const char *provider = l->program->probes.data[p->probe].point->provider;
		enum tracer_kind kind = tracer_kind_of(provider);

		if (p->program == program && p->n_probes && kind < TRACER_KIND_N)
			return cost_of(&b->costs[kind], p);
	}
	return 0;
}

/* What the program has cost since the last look. */
static double spend(struct tracer_budget *b, u32 i, int program, u64 each_ns)
{
	struct bpf_prog_info info = {};
	struct tracer_spent *s = &b->spent.data[i], now;
	u32 n = sizeof(info);
	double ns;

	if (bpf_obj_get_info_by_fd(program, &info, &n) < 0)
		return 0;
	now = (struct tracer_spent){info.run_time_ns, info.run_cnt};
	ns = (double)(now.ns - s->ns) + (double)(now.runs - s->runs) * (double)each_ns;
	*s = now;
	return ns;
}

/* The probes at which the program is attached. 0: it is not, or user space runs it. */
static u32 count_probes(const struct tracer_attached *a, int program, u32 *ret_probe)
{
	u32 n = 0, last = ~0u;

	vec_foreach (&a->places, p) {
		if (p->program != program || p->probe == last)
			continue;
		last = p->probe;
		*ret_probe = last;
		n += p->n_probes;
	}
	return n;
}

bool tracer_budget_exceeded(struct tracer_budget *b, const struct tracer_loaded *l,
			    struct tracer_attached *a, struct tracer_overrun *ret)
{
	u64 now = clock_ns(CLOCK_MONOTONIC), elapsed = now - b->looked_ns;
	double most = 0, max = TRACER_CREDIT_S * 1e7 * b->percent, sum = 0;
	int worst = -1;

	if (!b->percent || b->stats < 0 || elapsed < LOOK_NS)
		return false;
	b->looked_ns = now;
	for (u32 i = 0; i < l->programs.n; i++) {
		int fd = l->programs.data[i].fd;
		double ns;

		if (i == b->spent.n && vec_push(&b->spent, (struct tracer_spent){}) < 0)
			return false;
		if (!count_probes(a, fd, &ret->probe))
			continue;
		ns = spend(b, i, fd, event_ns(b, l, a, fd));
		sum += ns;
		if (ns > most) {
			most = ns;
			worst = fd;
		}
	}
	b->credit_ns = MIN(b->credit_ns + b->percent / 100 * (double)elapsed - sum, max);
	if (b->credit_ns >= 0 || worst < 0)
		return false;
	ret->n_probes = count_probes(a, worst, &ret->probe);
	ret->percent = most / (double)elapsed * 100;
	ret->budget = b->percent;
	tracer_detach_program(a, worst);
	/* The others are judged by what they cost alone. */
	b->credit_ns = max;
	return true;
}
