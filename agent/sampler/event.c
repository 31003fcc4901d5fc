/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/sampler/event.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <bpf/libbpf.h>

#include "base/cleanup.h"
#include "base/str.h"

static const struct {
	const char *name;
	u32 type;
	u64 config;
} events[] = {
	{"cpu-clock", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_CLOCK},
	{"task-clock", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_TASK_CLOCK},
	{"cycles", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES},
	{"cpu-cycles", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES},
	{"instructions", PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS},
	{"cache-references", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CACHE_REFERENCES},
	{"cache-misses", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CACHE_MISSES},
	{"branches", PERF_TYPE_HARDWARE, PERF_COUNT_HW_BRANCH_INSTRUCTIONS},
	{"branch-instructions", PERF_TYPE_HARDWARE, PERF_COUNT_HW_BRANCH_INSTRUCTIONS},
	{"branch-misses", PERF_TYPE_HARDWARE, PERF_COUNT_HW_BRANCH_MISSES},
	{"bus-cycles", PERF_TYPE_HARDWARE, PERF_COUNT_HW_BUS_CYCLES},
	{"ref-cycles", PERF_TYPE_HARDWARE, PERF_COUNT_HW_REF_CPU_CYCLES},
	{"stalled-cycles-frontend", PERF_TYPE_HARDWARE, PERF_COUNT_HW_STALLED_CYCLES_FRONTEND},
	{"stalled-cycles-backend", PERF_TYPE_HARDWARE, PERF_COUNT_HW_STALLED_CYCLES_BACKEND},
};

int event_by_name(const char *name, struct perf_event_attr *ret_attr, struct diag *reterr_diag)
{
	u64 raw;

	for (size_t i = 0; i < ARRAY_SIZE(events); i++) {
		if (strcmp(events[i].name, name) != 0)
			continue;
		ret_attr->type = events[i].type;
		ret_attr->config = events[i].config;
		return 0;
	}
	if (name[0] == 'r' && str_to_u64(name + 1, 16, &raw) == 0) {
		ret_attr->type = PERF_TYPE_RAW;
		ret_attr->config = raw;
		return 0;
	}
	return diag_set(reterr_diag, -EINVAL,
			"no event '%s'; there are cpu-clock, task-clock, cycles, instructions, "
			"cache-misses, branches, branch-misses and rHEX (see perf list)",
			name);
}

static u64 max_sample_rate(void)
{
	_cleanup_fclose_ FILE *f = fopen("/proc/sys/kernel/perf_event_max_sample_rate", "re");
	unsigned long long rate = 0;

	return f && fscanf(f, "%llu", &rate) == 1 ? rate : 0;
}

static int open_failed(const char *name, u64 hz, int error, struct diag *reterr_diag)
{
	switch (error) {
	case EINVAL:
		if (max_sample_rate() && hz > max_sample_rate())
			return diag_set(reterr_diag, -EINVAL,
					"%llu Hz is more than the kernel allows (%llu); sysctl "
					"kernel.perf_event_max_sample_rate=%llu, or a lower -F",
					hz, max_sample_rate(), hz);
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
				"too many open files: one a CPU is needed; raise ulimit -n");
	default:
		break;
	}
	return diag_set(reterr_diag, -error, "cannot open event '%s': %s", name, strerror(error));
}

int event_open_all(const char *name, u64 hz, int **ret_fds, u32 *ret_n, struct diag *reterr_diag)
{
	struct perf_event_attr attr = {.size = sizeof(attr), .freq = 1, .sample_freq = hz};
	int n_cpus = libbpf_num_possible_cpus();
	_cleanup_free_ int *fds = NULL;
	u32 n = 0;
	int r;

	r = event_by_name(name, &attr, reterr_diag);
	if (r < 0)
		return r;
	fds = n_cpus > 0 ? reallocarray(NULL, (size_t)n_cpus, sizeof(*fds)) : NULL;
	if (!fds)
		return -ENOMEM;
	for (int cpu = 0; cpu < n_cpus; cpu++) {
		int fd =
			(int)syscall(SYS_perf_event_open, &attr, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);

		if (fd >= 0) {
			fds[n++] = fd;
			continue;
		}
		if (errno == ENODEV)
			continue; /* the CPU is offline */
		r = open_failed(name, hz, errno, reterr_diag);
		while (n)
			close(fds[--n]);
		return r;
	}
	if (!n)
		return open_failed(name, hz, ENODEV, reterr_diag);
	*ret_fds = take_ptr(fds);
	*ret_n = n;
	return 0;
}
