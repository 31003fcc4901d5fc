/* SPDX-License-Identifier: Apache-2.0 */
/* The start: what runs already is learned and loaded, so that the first samples are complete. */
#include <poll.h>
#include <string.h>

#include "agent/pipeline/alloc.h"
#include "agent/pipeline/deferred.h"
#include "agent/pipeline/heap.h"
#include "agent/pipeline/processes.h"
#include "agent/pipeline/resident.h"
#include "agent/pipeline/tasks.h"
#include "base/clock.h"

/*
 * Before the start, binaries are learned and loaded for at most this long; longer if only a few
 * processes are recorded: that takes time where the CPUs are busy, and is finished soon elsewhere.
 */
#define PREPARE_MAX_NS 1000000000ULL
#define PREPARE_SOME_MAX_NS 5000000000ULL
#define WARM_STEP_NS 50000000ULL
#define WARM_MAX_NS 500000000ULL

static u64 count_deferred(const struct pipeline *p)
{
	u64 n = 0;

	for (u32 i = 0; i < p->batch->n_sampled; i++)
		n += sampler_counter(p->sampler, i, COUNTER_DEFERRED) +
		     sampler_counter(p->sampler, i, COUNTER_DEFER_LIMIT);
	return n;
}

/*
 * At the start nothing is loaded, and all running code is needed at once: on a busy machine more
 * than copies of stacks can cover. So the first samples only tell which code to load, until hardly
 * any is deferred, or for WARM_MAX_NS. Then counting begins.
 */
static int warm_up(struct pipeline *p)
{
	u64 begin = clock_ns(CLOCK_MONOTONIC), now = begin, step = begin;
	u64 samples = 0, deferred = 0;
	int r = 0;

	while (r == 0 && now - begin < WARM_MAX_NS) {
		r = pipeline_poll(p, PERIOD_MS);
		now = clock_ns(CLOCK_MONOTONIC);
		if (now - step < WARM_STEP_NS)
			continue;
		if (step > begin &&
		    (count_deferred(p) - deferred) * 50 <= pipeline_sum(p->batch).samples - samples)
			break;
		step = now;
		samples = pipeline_sum(p->batch).samples;
		deferred = count_deferred(p);
	}
	/* Drop parked walks. Drain twice: samples that arrive during the first drain, which takes
	 * longer on a busy machine, still count. */
	for (int i = 0; i < 2; i++) {
		deferred_drop_parked(p);
		pipeline_give_back(p, pipeline_take(p));
	}
	sampler_count_from_now(p->sampler);
	memset(p->lost, 0, sizeof(p->lost));
	return r;
}

/*
 * Learns and loads what runs before the first sample, so that stacks are complete from the start.
 */
static void load_running_code(struct pipeline *p)
{
	u64 begin = clock_ns(CLOCK_MONOTONIC), now = begin;
	u64 max = p->only_some ? PREPARE_SOME_MAX_NS : PREPARE_MAX_NS;
	struct pollfd fds[] = {
		{.fd = runtimes_fd(p->runtimes), .events = POLLIN},
		{.fd = tables_fd(p->tables), .events = POLLIN},
		{.fd = -1, .events = POLLIN},
	};

	tables_hurry(p->tables, true);
	for (; now - begin < max; now = clock_ns(CLOCK_MONOTONIC)) {
		(void)processes_take_runtimes(p, false);
		tables_take(p->tables, false);
		(void)sampler_take_walkers(p->sampler);
		fds[2].fd = sampler_walkers_fd(p->sampler);
		if (!runtimes_busy(p->runtimes) && !tables_busy(p->tables) && fds[2].fd < 0)
			break;
		(void)poll(fds, ARRAY_SIZE(fds), (int)((max - (now - begin)) / 1000000));
	}
	tables_hurry(p->tables, false);
}

int pipeline_start(struct pipeline *p, struct diag *reterr_diag)
{
	int r = procman_scan(p->procman);

	if (r < 0)
		return diag_set(reterr_diag, r, "cannot read /proc: %s", strerror(-r));
	/* A script that takes the kernel's stacks only needs nothing of processes. */
	if (p->walks || !p->traced)
		load_running_code(p);
	p->stall_ns = 0;
	p->stall_what = "nothing";
	p->stopped_ns = 0;
	pipeline_set_urgent(p, true);
	r = sampler_start(p->sampler, reterr_diag);
	/* Of a script there are no samples yet. */
	if (r == 0 && !p->follow && !p->traced)
		r = warm_up(p);
	/* What it took to get here is not of the recording. */
	tasks_begin(p);
	resident_begin(p);
	heap_begin(p);
	alloc_begin(p);
	return r;
}
