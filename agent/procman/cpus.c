/* SPDX-License-Identifier: Apache-2.0 */
/* The CPUs that are online: a ring of side-band events for each. */
#include <errno.h>
#include <sys/epoll.h>

#include "agent/procman/internal.h"
#include "proc/proc.h"

struct cpu_list {
	vec(u32) cpus;
};

static int list_cpu(void *arg, u32 cpu)
{
	struct cpu_list *list = arg;

	return vec_push(&list->cpus, cpu);
}

static int ring_add(struct procman *pm, u32 cpu)
{
	struct ring ring;
	int r = vec_reserve(&pm->round.rings, pm->round.rings.n + 1);
	struct epoll_event ev = {.events = EPOLLIN};

	if (r < 0)
		return r;
	r = ring_open(cpu, pm->options.ring_bytes, pm->options.wakeup_bytes, &ring);
	if (r < 0)
		return r;
	if (epoll_ctl(pm->epoll_fd, EPOLL_CTL_ADD, ring.fd, &ev) < 0) {
		r = -errno;
		ring_close(&ring);
		return r;
	}
	vec_push(&pm->round.rings, ring);
	pm->stats.cpus = pm->round.rings.n;
	return 0;
}

static bool list_has(struct cpu_list *list, u32 cpu)
{
	vec_foreach (&list->cpus, c)
		if (*c == cpu)
			return true;
	return false;
}

static bool ring_has(struct procman *pm, u32 cpu)
{
	vec_foreach (&pm->round.rings, ring)
		if (ring->cpu == cpu)
			return true;
	return false;
}

/* Closes the rings of CPUs that are or were offline. Whether there were any. */
static bool close_dead_rings(struct procman *pm, struct cpu_list *online)
{
	size_t n = pm->round.rings.n;

	for (size_t i = n; i-- > 0;) {
		struct ring *ring = &pm->round.rings.data[i];

		if (list_has(online, ring->cpu) && !ring_is_dead(ring))
			continue;
		ring_close(ring);
		*ring = pm->round.rings.data[--pm->round.rings.n];
	}
	return pm->round.rings.n < n;
}

/* Opens rings of CPUs that have none. */
static int open_rings(struct procman *pm, struct cpu_list *online, bool *ret_added)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < online->cpus.n; i++) {
		if (ring_has(pm, online->cpus.data[i]))
			continue;
		r = ring_add(pm, online->cpus.data[i]);
		/* The CPU may go offline at this moment. */
		if (r == -ENODEV || r == -ENXIO)
			r = 0;
		else if (r == 0)
			*ret_added = true;
	}
	return r;
}

/* The CPUs that have rings are those that listeners can use. */
static void tell_cpus_of_rings(struct procman *pm, struct cpu_list *list)
{
	vec_clear(&list->cpus);
	vec_foreach (&pm->round.rings, ring)
		if (vec_push(&list->cpus, ring->cpu) < 0)
			return;
	tell_cpus(pm, list->cpus.data, (u32)list->cpus.n);
}

int cpus_update(struct procman *pm)
{
	struct cpu_list online = {}, list = {};
	bool added = false;
	int r = proc_cpus_online(list_cpu, &online);

	if (r == 0 && close_dead_rings(pm, &online))
		tell_cpus_of_rings(pm, &list);
	if (r == 0)
		r = open_rings(pm, &online, &added);
	pm->stats.cpus = pm->round.rings.n;
	if (added) {
		pm->rescan_due_ns = 0;
		tell_cpus_of_rings(pm, &list);
	}
	vec_deinit(&online.cpus);
	vec_deinit(&list.cpus);
	return r;
}
