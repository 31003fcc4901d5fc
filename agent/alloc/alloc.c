/* SPDX-License-Identifier: Apache-2.0 */
/* The owner's side of agent/alloc, and the loop of the thread. */
#include "agent/alloc/alloc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/alloc/internal.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"

void alloc_report_deinit(struct alloc_report *r)
{
	vec_deinit(&r->threads);
}

static void part_deinit(struct part *p)
{
	alloc_detach(&p->probes);
	if (p->fd >= 0)
		close(p->fd);
	free(p->sites);
	*p = (struct part){.fd = -1, .probes = ALLOC_PROBES_NONE};
}

void probed_destroy(struct allocs *a, struct probed *p)
{
	vec_foreach (&p->parts, part)
		part_deinit(part);
	vec_deinit(&p->parts);
	vec_deinit(&p->times);
	free(p);
}

/* ---- the thread ---- */

static void run_command(struct allocs *a, struct command *c)
{
	switch (c->kind) {
	case COMMAND_ADD:
		windows_add(a, c->image, c->pid, &c->part);
		break;
	case COMMAND_REMOVE:
		windows_remove(a, c->image);
		break;
	case COMMAND_CLOSE:
	case COMMAND_STOP:
		windows_close(a, c->kind == COMMAND_STOP);
		pthread_mutex_lock(&a->lock);
		a->answered++;
		pthread_cond_broadcast(&a->wake);
		pthread_mutex_unlock(&a->lock);
		break;
	}
	part_deinit(&c->part); /* unless it was taken */
}

static void *run(void *arg)
{
	struct allocs *a = arg;
	u64 due = 0;

	for (;;) {
		vec(struct command) taken = {};
		u64 now = clock_ns(CLOCK_MONOTONIC);
		bool ends;

		pthread_mutex_lock(&a->lock);
		if (!a->commands.n && !a->done && !a->ends && due > now)
			(void)thread_wait(&a->wake, &a->lock, due - now);
		ends = a->ends;
		taken.data = a->commands.data;
		taken.n = a->commands.n;
		a->commands.data = NULL;
		a->commands.n = a->commands.cap = 0;
		pthread_mutex_unlock(&a->lock);
		vec_foreach (&taken, c)
			run_command(a, c);
		vec_deinit(&taken);
		windows_take_works(a);
		if (ends)
			return NULL;
		due = windows_run(a);
	}
}

/* ---- the owner ---- */

int allocs_create(const struct alloc_options *o, struct diag *reterr_diag, struct allocs **ret)
{
	struct allocs *a = calloc(1, sizeof(*a));
	int r;

	if (!a)
		return -ENOMEM;
	a->programs = o->programs;
	a->budget = (o->budget > 0 ? o->budget : ALLOC_DEFAULT_BUDGET) / 100;
	a->cpus = MAX(sysconf(_SC_NPROCESSORS_ONLN), 1L);
	a->random = clock_ns(CLOCK_MONOTONIC);
	thread_sync_init(&a->lock, &a->wake);
	r = alloc_calibrate(&a->programs, &a->costs);
	if (r < 0)
		r = diag_set(reterr_diag, r, "cannot probe functions of programs (%s): %s",
			     a->programs.session ? "uprobe sessions" : "uprobes", strerror(-r));
	a->stats.emulated_ns = a->costs.emulated_ns;
	a->stats.stepped_ns = a->costs.stepped_ns;
	a->stats.return_ns = a->costs.return_ns;
	log_debug("a probe takes %llu ns if its instruction is emulated, %llu ns if it is stepped, "
		  "%llu ns at a return",
		  a->costs.emulated_ns, a->costs.stepped_ns, a->costs.return_ns);
	if (r == 0)
		r = thread_start(&a->thread, "allocations", run, a);
	a->has_thread = r == 0;
	if (r < 0)
		allocs_destroy(a);
	else
		*ret = a;
	return r;
}

static int send(struct allocs *a, const struct command *c)
{
	int r;

	pthread_mutex_lock(&a->lock);
	r = vec_push(&a->commands, *c);
	pthread_cond_broadcast(&a->wake);
	pthread_mutex_unlock(&a->lock);
	return r;
}

void allocs_destroy(struct allocs *a)
{
	if (!a)
		return;
	if (a->has_thread) {
		pthread_mutex_lock(&a->lock);
		a->ends = true;
		pthread_cond_broadcast(&a->wake);
		pthread_mutex_unlock(&a->lock);
		pthread_join(a->thread, NULL);
	}
	works_end(a);
	vec_foreach (&a->commands, c)
		part_deinit(&c->part);
	vec_deinit(&a->commands);
	map_foreach (&a->processes, slot)
		probed_destroy(a, (struct probed *)slot->value);
	map_deinit(&a->processes);
	vec_foreach (&a->reports, r)
		alloc_report_deinit(r);
	vec_deinit(&a->reports);
	vec_deinit(&a->thread_keys);
	vec_deinit(&a->threads);
	pthread_cond_destroy(&a->wake);
	pthread_mutex_destroy(&a->lock);
	free(a);
}

int allocs_add(struct allocs *a, u32 pid, u64 image, int fd, u64 bias,
	       const struct alloc_sites *sites)
{
	struct command c = {
		.kind = COMMAND_ADD,
		.image = image,
		.pid = pid,
		.part = {.fd = fcntl(fd, F_DUPFD_CLOEXEC, 0),
			 .bias = bias,
			 .sites = malloc(sizeof(*sites)),
			 .probes = ALLOC_PROBES_NONE},
	};
	int r = c.part.fd < 0 ? -errno : 0;

	if (r == 0 && !c.part.sites)
		r = -ENOMEM;
	if (r == 0) {
		*c.part.sites = *sites;
		r = send(a, &c);
	}
	if (r < 0)
		part_deinit(&c.part);
	return r;
}

void allocs_remove(struct allocs *a, u64 image)
{
	struct command c = {.kind = COMMAND_REMOVE,
			    .image = image,
			    .part = {.fd = -1, .probes = ALLOC_PROBES_NONE}};

	if (send(a, &c) < 0)
		log_warn_rarely("out of memory: probes in a process that has ended are kept");
}

static void send_and_wait(struct allocs *a, enum command_kind kind)
{
	struct command c = {.kind = kind, .part = {.fd = -1, .probes = ALLOC_PROBES_NONE}};
	u64 until;

	if (send(a, &c) < 0)
		return;
	pthread_mutex_lock(&a->lock);
	until = ++a->asked;
	while (a->answered < until)
		(void)thread_wait(&a->wake, &a->lock, 1000000000ULL);
	pthread_mutex_unlock(&a->lock);
}

void allocs_close_windows(struct allocs *a)
{
	send_and_wait(a, COMMAND_CLOSE);
}

void allocs_stop(struct allocs *a)
{
	send_and_wait(a, COMMAND_STOP);
}

bool allocs_take(struct allocs *a, struct alloc_report *ret)
{
	bool has;

	pthread_mutex_lock(&a->lock);
	has = a->reports.n > 0;
	if (has) {
		*ret = a->reports.data[0];
		memmove(a->reports.data, a->reports.data + 1,
			--a->reports.n * sizeof(a->reports.data[0]));
	}
	pthread_mutex_unlock(&a->lock);
	return has;
}

void allocs_get_stats(struct allocs *a, struct alloc_stats *ret)
{
	pthread_mutex_lock(&a->lock);
	*ret = a->stats;
	pthread_mutex_unlock(&a->lock);
}

#define COUNTER(member, help) STAT_COUNTER(struct alloc_stats, member, help)
#define GAUGE(member, help) STAT_GAUGE(struct alloc_stats, member, help)
const struct stat_field alloc_stat_fields[] = {
	GAUGE(processes, "Processes with an allocator that is known."),
	GAUGE(continuous, "Of these, probed all the time."),
	COUNTER(windows, "Windows in which the others were probed."),
	COUNTER(failed, "Processes in which probes could not be inserted."),
	GAUGE(emulated_ns, "Nanoseconds that a probe takes, if its instruction is emulated."),
	GAUGE(stepped_ns, "Nanoseconds that a probe takes, if its instruction is stepped."),
	GAUGE(return_ns, "Nanoseconds that a probe at a return takes."),
	GAUGE(attach_ns, "Longest time in which the probes of a process were inserted."),
	GAUGE(detach_ns, "Longest time in which the probes of a process were removed."),
	{},
};
