/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sources that are perf events: bpf/prog/perf.bpf.c. One event on each online CPU, for all
 * processes.
 */
#include <errno.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "agent/sampler/source.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "perf.skel.h"

/* The clocks of the CPUs are started within this time. */
#define MAX_STAGGER_NS 100000000ULL

SOURCE_SKELETON(perf)

static int parse(const char *name, struct source *s, struct diag *reterr_diag)
{
	u64 raw;

	(void)reterr_diag;
	if (s->row->perf_type == PERF_TYPE_RAW) {
		if (name[0] != 'r' || str_to_u64(name + 1, 16, &raw) < 0)
			return -ENOENT;
		s->perf_config = raw;
		return 0;
	}
	return strcmp(name, s->row->name) == 0 ? 0 : -ENOENT;
}

u64 source_max_rate(void)
{
	_cleanup_fclose_ FILE *f = fopen("/proc/sys/kernel/perf_event_max_sample_rate", "re");
	unsigned long long rate = 0;

	return f && fscanf(f, "%llu", &rate) == 1 ? rate : 0;
}

static int open_failed(const struct source *s, int error, struct diag *reterr_diag)
{
	const char *name = s->about.event;
	u64 hz = s->about.hz;

	switch (error) {
	case EINVAL:
		if (source_max_rate() && hz > source_max_rate())
			return diag_set(reterr_diag, -EINVAL,
					"%llu Hz is more than the kernel allows (%llu); sysctl "
					"kernel.perf_event_max_sample_rate=%llu, or a lower -F",
					hz, source_max_rate(), hz);
		break;
	case ENOENT:
	case ENODEV:
	case EOPNOTSUPP:
		return diag_set(reterr_diag, -ENOENT,
				"this machine's hardware has no event '%s'; use -e cpu-clock",
				name);
	case EACCES:
	case EPERM:
		return diag_set(
			reterr_diag, -EPERM,
			"no permission to open perf events: run as root, or with CAP_PERFMON");
	case EMFILE:
		return diag_set(reterr_diag, -EMFILE,
				"too many open files: each CPU needs one; raise ulimit -n");
	default:
		break;
	}
	return diag_set(reterr_diag, -error, "cannot open event '%s': %s", name, strerror(error));
}

/* Opens an event on a CPU. -ENODEV: the CPU is offline. */
static int open_event(const struct source *s, u64 config, int cpu)
{
	struct perf_event_attr attr = {
		.size = sizeof(attr),
		.type = s->row->perf_type,
		.config = config,
		.freq = s->about.hz != 0 && !s->has_exact_period,
	};
	int fd;

	if (attr.freq)
		attr.sample_freq = s->about.hz;
	else
		attr.sample_period = s->n_entries ? 1 : s->about.period;
	fd = (int)syscall(SYS_perf_event_open, &attr, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/* Attaches a program to an event on a CPU. -ENODEV: the CPU is offline. */
static int attach_program(struct source *s, const struct source_entry *e, int cpu,
			  struct diag *reterr_diag)
{
	struct bpf_link *link;
	int fd = open_event(s, e->config, cpu), r;

	if (fd == -ENODEV)
		return fd;
	if (fd < 0)
		return open_failed(s, -fd, reterr_diag);
	link = bpf_program__attach_perf_event(e->program, fd);
	if (!link) {
		r = diag_set(reterr_diag, -errno, "cannot attach to the perf event: %s",
			     strerror(errno));
		close(fd);
		return r;
	}
	r = source_attach(s, cpu, fd, link);
	if (r < 0)
		bpf_link__destroy(link);
	return r;
}

/* Returns 0 also if the CPU is offline; *ret_attached tells the two apart. */
static int attach_to_cpu(struct source *s, int cpu, bool *ret_attached, struct diag *reterr_diag)
{
	const struct source_entry only = {s->entry, s->perf_config};
	int r = s->n_entries ? 0 : attach_program(s, &only, cpu, reterr_diag);

	for (u32 i = 0; i < s->n_entries && r == 0; i++)
		r = attach_program(s, &s->entries[i], cpu, reterr_diag);
	*ret_attached = r == 0;
	return r == -ENODEV ? 0 : r;
}

/*
 * Starts each clock at another phase of the period. CPUs sampled at the same moment would see
 * common activity too often or never, and all send their records at once.
 */
static void wait_for_phase(const struct source *s, int n_cpus)
{
	u64 ns = MIN(s->about.period, MAX_STAGGER_NS) / (u64)n_cpus;
	struct timespec t = {0, (long)ns};

	if (s->row->value == SOURCE_VALUE_TIME)
		(void)nanosleep(&t, NULL);
}

int source_start_perf(struct source *s, struct diag *reterr_diag)
{
	int n_cpus = libbpf_num_possible_cpus();
	bool attached;

	if (!source_samples(s))
		return 0;
	for (int cpu = 0; cpu < n_cpus; cpu++) {
		int r = attach_to_cpu(s, cpu, &attached, reterr_diag);

		if (r < 0)
			return r;
		if (attached && cpu + 1 < n_cpus)
			wait_for_phase(s, n_cpus);
	}
	return s->events.n ? 0 : open_failed(s, ENODEV, reterr_diag);
}

static bool has_cpu(const struct source *s, u32 cpu)
{
	for (size_t i = 0; i < s->events.n; i++)
		if (s->events.data[i].cpu == (int)cpu)
			return true;
	return false;
}

static bool is_listed(const u32 *cpus, u32 n, u32 cpu)
{
	for (u32 i = 0; i < n; i++)
		if (cpus[i] == cpu)
			return true;
	return false;
}

/*
 * The event of a CPU that went offline stays dead when the CPU returns, and must be opened again.
 */
void source_follow_cpus_perf(struct source *s, const u32 *cpus, u32 n)
{
	if (!source_samples(s))
		return;
	for (size_t i = s->events.n; i-- > 0;) {
		struct source_event *e = &s->events.data[i];

		if (e->cpu < 0 || is_listed(cpus, n, (u32)e->cpu))
			continue;
		bpf_link__destroy(e->link);
		*e = s->events.data[--s->events.n];
	}
	for (u32 i = 0; i < n; i++) {
		struct diag diag = {};
		bool attached;

		if (has_cpu(s, cpus[i]))
			continue;
		if (attach_to_cpu(s, (int)cpus[i], &attached, &diag) < 0)
			log_warn("CPU %u is not sampled: %s", cpus[i], diag.text);
	}
	if (s->is_paused)
		source_pause(s, true);
}

const struct source_ops source_perf = {
	.parse = parse,
	.open = perf_open,
	.load = perf_load,
	.destroy = perf_destroy,
	.start = source_start_perf,
	.follow_cpus = source_follow_cpus_perf,
};
