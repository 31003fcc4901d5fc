/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The only place that passes events of processes, binaries and CPUs to listeners. Changes of a
 * process are collected until the end of a batch of events, and announced once. An exec is
 * announced at once, because it invalidates everything announced before about the process.
 */
#include <errno.h>

#include "agent/procman/internal.h"

#define ANNOUNCE_CHEAP_NS 100000ULL
#define ANNOUNCE_COST_FACTOR 10
#define ANNOUNCE_MAX_NS 1000000000ULL

/* Calls a function of each listener, in their order. */
#define TELL(pm, name, ...)                                                                        \
	for (struct listening *at_ = (pm)->listeners; at_ < (pm)->listeners + (pm)->n_listeners;   \
	     at_++)                                                                                \
		if (at_->l->name)                                                                  \
	at_->l->name(at_->arg, __VA_ARGS__)

int procman_listen(struct procman *pm, const struct procman_listener *l, void *arg)
{
	if (pm->n_listeners == PROCMAN_MAX_LISTENERS)
		return -ENOSPC;
	pm->listeners[pm->n_listeners++] = (struct listening){l, arg};
	return 0;
}

void tell_exec(struct procman *pm, const struct process *p, u64 before)
{
	TELL(pm, process_exec, &p->pub, before);
}

static void tell_ended(struct procman *pm, struct process *p)
{
	if (!p->told_ended)
		TELL(pm, process_ended, &p->pub);
	p->told_ended = true;
}

void tell_gone(struct procman *pm, struct process *p)
{
	tell_ended(pm, p);
	TELL(pm, process_gone, &p->pub);
}

void tell_binary_gone(void *arg, struct procman_binary *b)
{
	struct procman *pm = arg;

	TELL(pm, binary_gone, b);
}

void tell_cpus(struct procman *pm, const u32 *cpus, u32 n)
{
	TELL(pm, cpus_changed, cpus, n);
}

/*
 * A process with very many mappings takes long to settle and to announce, and one that maps code
 * all the time would take all of the time. So it waits ten times as long as the faster of the last
 * two announcements took: a single one may be slow because it opens a file for the first time.
 */
static bool must_wait(const struct process *p, u64 now)
{
	return p->pub.alive && p->announce_due_ns > now;
}

static bool is_wanted(const struct procman *pm, const struct procman_process *p)
{
	return !pm->options.is_wanted || pm->options.is_wanted(pm->options.arg, p);
}

static void tell_change(struct procman *pm, struct process *p, u64 cpu_ns)
{
	u64 cost;

	p->dirty = false;
	p->pub.generation++;
	if (p->pub.ended)
		tell_ended(pm, p);
	else if (is_wanted(pm, &p->pub))
		TELL(pm, process_changed, &p->pub);
	cost = MIN(cpu_now_ns() - cpu_ns, p->announce_cost_ns);
	p->announce_cost_ns = cpu_now_ns() - cpu_ns;
	p->announce_due_ns = cost < ANNOUNCE_CHEAP_NS
				     ? 0
				     : now_ns() + MIN(cost * ANNOUNCE_COST_FACTOR, ANNOUNCE_MAX_NS);
}

/* The end of a batch: settles and announces each changed process once. */
void tell_changes(struct procman *pm)
{
	u64 now = now_ns();
	size_t n_waiting = 0;

	for (size_t i = 0; i < pm->dirty.n; i++) {
		struct process *p = pm->dirty.data[i];
		u64 cpu_ns = cpu_now_ns();

		if (must_wait(p, now)) {
			pm->dirty.data[n_waiting++] = p;
			continue;
		}
		process_settle(pm, p);
		tell_change(pm, p, cpu_ns);
	}
	pm->dirty.n = n_waiting;
}
