/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `culprit doctor`: one function per check, in the order in which a person would fix the problems.
 * A check fills text and advice and returns the status; it never prevents the others.
 */
#include "agent/probe/probe.h"

#include <bpf/bpf.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/utsname.h>

#include "agent/probe/internal.h"
#include "base/cleanup.h"

struct out {
	const struct probe_report_options *options;
	char text[320];
	char advice[512];
};

#define TEXT(o, ...) snprintf((o)->text, sizeof((o)->text), __VA_ARGS__)
#define ADVICE(o, ...) snprintf((o)->advice, sizeof((o)->advice), __VA_ARGS__)

static const char *error_text(int r)
{
	return strerror(-r);
}

static enum probe_status check_kernel(struct out *o)
{
	struct utsname u;

	if (uname(&u) < 0)
		return PROBE_LIMITED;
	TEXT(o, "%s %s %s, %ld of %ld CPUs online", u.sysname, u.release, u.machine,
	     sysconf(_SC_NPROCESSORS_ONLN), sysconf(_SC_NPROCESSORS_CONF));
	return PROBE_OK;
}

static enum probe_status check_capabilities(struct out *o)
{
	const u64 extra = PROBE_CAP(CAP_SYS_PTRACE) | PROBE_CAP(CAP_SYSLOG) |
			  PROBE_CAP(CAP_DAC_READ_SEARCH) | PROBE_CAP(CAP_CHECKPOINT_RESTORE);
	u64 caps = probe_caps(), missing = probe_caps_missing(caps);
	u64 less = extra & ~caps;
	char names[160], self[256];

	if (caps & PROBE_CAP(CAP_SYS_ADMIN))
		less &= ~(PROBE_CAP(CAP_SYSLOG) | PROBE_CAP(CAP_CHECKPOINT_RESTORE));
	if (!missing && !less) {
		TEXT(o, "all that culprit uses");
		return PROBE_OK;
	}
	probe_caps_text(missing | less, names, sizeof(names));
	probe_self_path(self, sizeof(self));
	TEXT(o, "without %s", names);
	ADVICE(o,
	       "run as root (sudo), or: sudo setcap cap_bpf,cap_perfmon,cap_sys_ptrace,cap_syslog,"
	       "cap_dac_read_search,cap_checkpoint_restore+ep %s",
	       self);
	return missing ? PROBE_MISSING : PROBE_LIMITED;
}

static enum probe_status check_namespaces(struct out *o)
{
	const char *advice;
	const char *problem = probe_namespaces(&advice);

	TEXT(o, "%s", problem ? problem : "the machine's own");
	if (problem)
		ADVICE(o, "%s", advice);
	return problem ? PROBE_MISSING : PROBE_OK;
}

static enum probe_status check_lockdown(struct out *o)
{
	char modes[128];

	if (probe_read_text("/sys/kernel/security/lockdown", modes, sizeof(modes)) < 0) {
		TEXT(o, "none");
		return PROBE_OK;
	}
	TEXT(o, "%s", modes);
	if (!strstr(modes, "[confidentiality]"))
		return PROBE_OK;
	ADVICE(o, "BPF may not read memory under lockdown=confidentiality: boot with "
		  "lockdown=integrity");
	return PROBE_MISSING;
}

static enum probe_status check_btf(struct out *o)
{
	int r = probe_btf();

	if (!r) {
		TEXT(o, "/sys/kernel/btf/vmlinux");
		return PROBE_OK;
	}
	TEXT(o, "/sys/kernel/btf/vmlinux: %s", error_text(r));
	ADVICE(o, "boot a kernel with CONFIG_DEBUG_INFO_BTF=y (distributions' own have it), with "
		  "/sys mounted");
	return PROBE_MISSING;
}

static enum probe_status check_bpf(struct out *o)
{
	int r = probe_bpf_syscall();

	if (!r)
		r = probe_perf_event_prog();
	if (!r) {
		TEXT(o, "programs for perf events load");
		return PROBE_OK;
	}
	TEXT(o, "bpf(): %s", error_text(r));
	if (r == -ENOSYS)
		ADVICE(o, "boot a kernel with CONFIG_BPF_SYSCALL=y and CONFIG_BPF_EVENTS=y");
	else
		ADVICE(o,
		       "see the capabilities above; else a container, seccomp or lockdown forbids it");
	return PROBE_MISSING;
}

static enum probe_status check_user_reads(struct out *o)
{
	int r = probe_user_reads();

	if (r == -EDEADLK) {
		TEXT(o, "can hang the kernel");
		ADVICE(o, "%s", PROBE_UNSAFE_USER_READS);
		return PROBE_MISSING;
	}
	if (r < 0)
		TEXT(o, "not checked: the kernel's code cannot be read (%s)", error_text(r));
	else
		TEXT(o, "BPF programs can read the memory of processes in interrupts");
	return PROBE_OK;
}

static enum probe_status check_jit(struct out *o)
{
	char value[16];
	int r;

	if (probe_calls_and_jumps() == -EINVAL) {
		TEXT(o, "%s", PROBE_NO_CALLS_AND_JUMPS);
		return PROBE_MISSING;
	}
	r = probe_read_text("/proc/sys/net/core/bpf_jit_enable", value, sizeof(value));
	if (r < 0) {
		TEXT(o, "unknown (net.core.bpf_jit_enable: %s)", error_text(r));
		return PROBE_OK;
	}
	if (value[0] != '0') {
		TEXT(o, "on");
		return PROBE_OK;
	}
	TEXT(o, "off: each sample costs many times more");
	ADVICE(o, "sysctl net.core.bpf_jit_enable=1");
	return PROBE_LIMITED;
}

static enum probe_status check_bpf_loop(struct out *o)
{
	int r = probe_helper(BPF_FUNC_loop);

	if (r == 1) {
		TEXT(o, "there");
		return PROBE_OK;
	}
	if (r < 0) {
		TEXT(o, "cannot be determined: %s", error_text(r));
		return PROBE_LIMITED;
	}
	TEXT(o, "not in this kernel: stacks of fewer frames, by bounded loops");
	return PROBE_LIMITED;
}

static enum probe_status check_task_regs(struct out *o)
{
	int task = probe_helper(BPF_FUNC_get_current_task_btf);
	int regs = probe_helper(BPF_FUNC_task_pt_regs);

	if (task == 1 && regs == 1) {
		TEXT(o, "bpf_get_current_task_btf and bpf_task_pt_regs");
		return PROBE_OK;
	}
	if (task < 0 || regs < 0) {
		TEXT(o, "cannot be determined: %s", error_text(task < 0 ? task : regs));
		return PROBE_LIMITED;
	}
	TEXT(o, "without %s: user registers are found through the kernel stack instead",
	     regs == 1 ? "bpf_get_current_task_btf" : "bpf_task_pt_regs");
	return PROBE_OK;
}

static enum probe_status check_maps(struct out *o)
{
	const struct {
		const char *name;
		int r;
	} maps[] = {
		{"ring buffer", probe_ringbuf()},
		{"mmapable array", probe_mmapable_array()},
		{"array of mmapable arrays", probe_array_of_mmapable()},
	};

	for (size_t i = 0; i < ARRAY_SIZE(maps); i++) {
		if (!maps[i].r)
			continue;
		TEXT(o, "%s: %s", maps[i].name, error_text(maps[i].r));
		ADVICE(o, maps[i].r == -EINVAL ? "culprit needs kernel 5.10 or newer"
					       : "see the capabilities above, and memlock below");
		return PROBE_MISSING;
	}
	TEXT(o, "ring buffer, mmapable arrays, arrays of them");
	return PROBE_OK;
}

static enum probe_status check_cpu_clock(struct out *o)
{
	char rate[32] = "?", paranoid[16] = "?";
	int r = probe_cpu_clock();

	probe_read_text("/proc/sys/kernel/perf_event_max_sample_rate", rate, sizeof(rate));
	probe_read_text("/proc/sys/kernel/perf_event_paranoid", paranoid, sizeof(paranoid));
	if (!r) {
		TEXT(o, "CPU clock, up to %s Hz", rate);
		return PROBE_OK;
	}
	TEXT(o, "perf_event_open(): %s (perf_event_paranoid is %s)", error_text(r), paranoid);
	if (r == -ENOSYS)
		ADVICE(o, "boot a kernel with CONFIG_PERF_EVENTS=y");
	else
		ADVICE(o, "see the capabilities above; else a container or seccomp forbids it");
	return PROBE_MISSING;
}

static enum probe_status check_waits(struct out *o)
{
	int r = probe_waits();

	if (r >= 0) {
		TEXT(o, "events of the scheduler%s%s",
		     r ? ", without who ends a wait (--wakers)" : "",
		     probe_sleepers() < 0
			     ? ", without runtimes' frames of threads that sleep on (Linux 6.10)"
			     : "");
		return PROBE_OK;
	}
	TEXT(o, "sched_exit_tp: %s", error_text(r));
	ADVICE(o, r == -ENOENT
			  ? "--off-cpu and --wall need a kernel with this tracepoint or kprobes"
			  : "see the capabilities above");
	return PROBE_LIMITED;
}

static enum probe_status check_cycles(struct out *o)
{
	int r = probe_cycles();

	if (!r) {
		TEXT(o, "CPU cycles (-e cycles)");
		return PROBE_OK;
	}
	TEXT(o, "none (%s): samples are taken by the CPU clock",
	     r == -ENOENT || r == -EOPNOTSUPP || r == -ENODEV ? "a virtual machine, usually"
							      : error_text(r));
	return PROBE_LIMITED;
}

static enum probe_status check_sideband(struct out *o)
{
	int r = probe_sideband(false);

	if (r < 0) {
		TEXT(o, "perf_event_open(): %s", error_text(r));
		ADVICE(o, "see the capabilities above");
		return PROBE_MISSING;
	}
	TEXT(o, "exec, fork, exit and mmap%s",
	     probe_sideband(true) ? " (without build-ids, which this kernel does not send)"
				  : ", with build-ids");
	return PROBE_OK;
}

static enum probe_status check_kallsyms(struct out *o)
{
	char restrict_[16] = "?";
	int r = probe_kallsyms();

	probe_read_text("/proc/sys/kernel/kptr_restrict", restrict_, sizeof(restrict_));
	if (!r) {
		TEXT(o, "/proc/kallsyms (kptr_restrict is %s)", restrict_);
		return PROBE_OK;
	}
	TEXT(o, "/proc/kallsyms hides addresses (kptr_restrict is %s): kernel frames without names",
	     restrict_);
	ADVICE(o, restrict_[0] == '2' ? "sysctl kernel.kptr_restrict=1"
				      : "run with CAP_SYSLOG, see above");
	return PROBE_LIMITED;
}

/* Counts processes, and those whose memory maps cannot be read. */
static void count_processes(unsigned int *ret_n, unsigned int *ret_refused)
{
	DIR *dir = opendir("/proc");
	struct dirent *e;

	while (dir && (e = readdir(dir))) {
		char path[300], byte;
		_cleanup_close_ int fd = -1;

		if (e->d_name[0] < '0' || e->d_name[0] > '9')
			continue;
		snprintf(path, sizeof(path), "/proc/%s/maps", e->d_name);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd < 0 && errno != EACCES && errno != EPERM)
			continue; /* the process has exited */
		++*ret_n;
		if (fd < 0 || (read(fd, &byte, 1) < 0 && errno != ESRCH))
			++*ret_refused;
	}
	if (dir)
		closedir(dir);
}

static enum probe_status check_processes(struct out *o)
{
	unsigned int n = 0, refused = 0;
	int r = probe_map_files();

	count_processes(&n, &refused);
	if (refused) {
		TEXT(o, "the memory maps of %u of %u processes cannot be read: no names there",
		     refused, n);
		ADVICE(o, probe_caps() & PROBE_CAP(CAP_SYS_PTRACE)
				  ? "a security module (AppArmor, SELinux, Yama) forbids it"
				  : "run with CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH, see above");
		return PROBE_LIMITED;
	}
	if (r < 0) {
		TEXT(o, "/proc/PID/map_files: %s: deleted and replaced files without names",
		     error_text(r));
		ADVICE(o, "run with CAP_CHECKPOINT_RESTORE, see above");
		return PROBE_LIMITED;
	}
	TEXT(o, "the memory maps of all %u processes, and mapped files, deleted ones too", n);
	return PROBE_OK;
}

static enum probe_status check_memlock(struct out *o)
{
	struct rlimit limit;
	int r;

	if (getrlimit(RLIMIT_MEMLOCK, &limit) < 0)
		return PROBE_LIMITED;
	r = probe_cgroup_accounting();
	if (r < 0) {
		TEXT(o, "%llu KiB; cannot find out whether it applies: %s",
		     (unsigned long long)limit.rlim_cur / 1024, error_text(r));
		return PROBE_LIMITED;
	}
	if (r == 1) {
		TEXT(o, "BPF memory is charged to the cgroup, not to ulimit -l");
		return PROBE_OK;
	}
	if (limit.rlim_cur == RLIM_INFINITY || probe_caps() & PROBE_CAP(CAP_SYS_RESOURCE)) {
		TEXT(o, "no limit, or culprit lifts it");
		return PROBE_OK;
	}
	TEXT(o, "%llu KiB: too little for BPF maps on this kernel",
	     (unsigned long long)limit.rlim_cur / 1024);
	ADVICE(o, "ulimit -l unlimited");
	return limit.rlim_max == RLIM_INFINITY ? PROBE_LIMITED : PROBE_MISSING;
}

static enum probe_status check_files(struct out *o)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return PROBE_LIMITED;
	TEXT(o, "up to %llu (%llu now)", (unsigned long long)limit.rlim_max,
	     (unsigned long long)limit.rlim_cur);
	if (limit.rlim_max >= 4096)
		return PROBE_OK;
	ADVICE(o, "ulimit -n 65536: each mapped file is held open while it is profiled");
	return PROBE_LIMITED;
}

static enum probe_status check_tracefs(struct out *o)
{
	struct stat st;

	if (!stat("/sys/kernel/tracing/events", &st)) {
		TEXT(o, "/sys/kernel/tracing");
		return PROBE_OK;
	}
	if (!stat("/sys/kernel/debug/tracing/events", &st)) {
		TEXT(o, "/sys/kernel/debug/tracing");
		return PROBE_OK;
	}
	/* culprit record does not need it. */
	TEXT(o, "not mounted, or not readable");
	ADVICE(o, "mount -t tracefs tracefs /sys/kernel/tracing (only tracepoints need it)");
	return PROBE_OK;
}

static enum probe_status check_cgroups(struct out *o)
{
	struct stat st;

	if (!stat("/sys/fs/cgroup/cgroup.controllers", &st)) {
		TEXT(o, "version 2");
		return PROBE_OK;
	}
	if (!stat("/sys/fs/cgroup/unified/cgroup.controllers", &st)) {
		TEXT(o, "version 1 and 2 side by side");
		return PROBE_OK;
	}
	if (!stat("/sys/fs/cgroup/cpu", &st) || !stat("/sys/fs/cgroup/systemd", &st)) {
		TEXT(o, "version 1 only: --cgroup cannot choose");
		ADVICE(o, "boot with systemd.unified_cgroup_hierarchy=1");
		return PROBE_LIMITED;
	}
	TEXT(o, "not mounted: --cgroup cannot choose");
	ADVICE(o, "mount -t cgroup2 cgroup2 /sys/fs/cgroup");
	return PROBE_LIMITED;
}

static bool has_entries(const char *path)
{
	DIR *dir = opendir(path);
	struct dirent *e;
	bool found = false;

	if (!dir)
		return false;
	while (!found && (e = readdir(dir)))
		found = e->d_name[0] != '.';
	closedir(dir);
	return found;
}

static enum probe_status check_debug_symbols(struct out *o)
{
	const char *urls = o->options ? o->options->debuginfod_urls : NULL;
	bool local = has_entries("/usr/lib/debug/.build-id");

	if (!urls || !urls[0])
		urls = NULL;
	TEXT(o, "%s%s%s",
	     local ? "/usr/lib/debug" : "no separate ones: names come from the files themselves",
	     urls ? "; debuginfod: " : "", urls ? urls : "");
	if (!local && !urls)
		ADVICE(o,
		       "for lines and inlined functions of stripped programs, install their -dbg "
		       "or -dbgsym packages");
	return PROBE_OK;
}

static const struct {
	const char *name;
	enum probe_status (*run)(struct out *o);
} checks[] = {
	{"kernel", check_kernel},
	{"capabilities", check_capabilities},
	{"namespaces", check_namespaces},
	{"lockdown", check_lockdown},
	{"BTF", check_btf},
	{"BPF", check_bpf},
	{"BPF JIT", check_jit},
	{"reads of memory", check_user_reads},
	{"BPF maps", check_maps},
	{"bpf_loop", check_bpf_loop},
	{"user registers", check_task_regs},
	{"perf events", check_cpu_clock},
	{"waits", check_waits},
	{"hardware events", check_cycles},
	{"process events", check_sideband},
	{"processes", check_processes},
	{"kernel symbols", check_kallsyms},
	{"debug symbols", check_debug_symbols},
	{"memlock", check_memlock},
	{"open files", check_files},
	{"cgroups", check_cgroups},
	{"tracefs", check_tracefs},
};

enum probe_status probe_report(const struct probe_report_options *options,
			       void (*line)(void *arg, const struct probe_line *line), void *arg)
{
	enum probe_status worst = PROBE_OK;

	for (size_t i = 0; i < ARRAY_SIZE(checks); i++) {
		struct out o = {.options = options};
		enum probe_status status = checks[i].run(&o);
		struct probe_line l = {status, checks[i].name, o.text, o.advice};

		line(arg, &l);
		worst = MAX(worst, status);
	}
	return worst;
}
