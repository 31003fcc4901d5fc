/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The probes, and the two questions that commands ask: whether profiling can work, and with which
 * features. Nothing here leaves a trace: every descriptor is closed before a function returns.
 */
#include "agent/probe/probe.h"

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>

#include "agent/probe/internal.h"
#include "base/cleanup.h"
#include "base/str.h"

/* Inode numbers of the first namespaces: PROC_USER_INIT_INO, PROC_PID_INIT_INO, linux/proc_ns.h. */
#define USER_NS_INIT_INO 0xEFFFFFFDu
#define PID_NS_INIT_INO 0xEFFFFFFCu

static const struct {
	int cap;
	const char *name;
} cap_names[] = {
	{CAP_BPF, "CAP_BPF"},
	{CAP_PERFMON, "CAP_PERFMON"},
	{CAP_SYS_PTRACE, "CAP_SYS_PTRACE"},
	{CAP_SYSLOG, "CAP_SYSLOG"},
	{CAP_DAC_READ_SEARCH, "CAP_DAC_READ_SEARCH"},
	{CAP_CHECKPOINT_RESTORE, "CAP_CHECKPOINT_RESTORE"},
	{CAP_SYS_ADMIN, "CAP_SYS_ADMIN"},
	{CAP_SYS_RESOURCE, "CAP_SYS_RESOURCE"},
};

u64 probe_caps(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {};

	if (syscall(SYS_capget, &header, data) < 0)
		return 0;
	return (u64)data[1].effective << 32 | data[0].effective;
}

u64 probe_caps_missing(u64 caps)
{
	if (caps & PROBE_CAP(CAP_SYS_ADMIN))
		return 0;
	return (PROBE_CAP(CAP_BPF) | PROBE_CAP(CAP_PERFMON)) & ~caps;
}

void probe_caps_text(u64 caps, char *buf, size_t size)
{
	_cleanup_str_ struct str s = {};

	for (size_t i = 0; i < ARRAY_SIZE(cap_names); i++) {
		if (!(caps & PROBE_CAP(cap_names[i].cap)))
			continue;
		caps &= ~PROBE_CAP(cap_names[i].cap);
		str_printf(&s, "%s%s", s.n ? (caps ? ", " : " and ") : "", cap_names[i].name);
	}
	snprintf(buf, size, "%s", str_get(&s));
}

void probe_self_path(char *buf, size_t size)
{
	char path[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);

	path[n > 0 ? n : 0] = '\0';
	snprintf(buf, size, "%s", n > 0 ? path : "culprit");
}

const char *probe_namespaces(const char **ret_advice)
{
	struct stat user, pid;

	if (stat("/proc/self/ns/user", &user) < 0 || stat("/proc/self/ns/pid", &pid) < 0) {
		*ret_advice = "mount -t proc proc /proc";
		return "/proc is not mounted, or belongs to another PID namespace";
	}
	if (user.st_ino != USER_NS_INIT_INO) {
		*ret_advice = "run outside of the (rootless) container";
		return "in a user namespace, where the kernel does not allow BPF";
	}
	/* BPF reads pids of the first namespace; /proc and side-band events show those of ours. */
	if (pid.st_ino != PID_NS_INIT_INO) {
		*ret_advice = "run on the host, the container with --pid=host, or the pod with "
			      "hostPID: true";
		return "in a PID namespace, where process ids differ from the kernel's";
	}
	return NULL;
}

int probe_read_text(const char *path, char *buf, size_t size)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return -errno;
	n = read(fd, buf, size - 1);
	if (n < 0)
		return -errno;
	while (n > 0 && (buf[n - 1] == '\n' || buf[n - 1] == '\0'))
		n--;
	buf[n] = '\0';
	return 0;
}

/*
 * Closes the descriptor that a bpf() wrapper returned. Returns 0 if there was one, else the error.
 */
static int fd_result(int fd)
{
	if (fd < 0)
		return fd;
	close(fd);
	return 0;
}

/* Loads a program of type perf_event, and closes it. */
static int load(const struct bpf_insn *insns, size_t n)
{
	return fd_result(
		bpf_prog_load(BPF_PROG_TYPE_PERF_EVENT, "culprit_probe", "GPL", insns, n, NULL));
}

int probe_bpf_syscall(void)
{
	return fd_result(bpf_map_create(BPF_MAP_TYPE_ARRAY, NULL, 4, 4, 1, NULL));
}

int probe_btf(void)
{
	_cleanup_close_ int fd = open("/sys/kernel/btf/vmlinux", O_RDONLY | O_CLOEXEC);
	u16 magic = 0;

	if (fd < 0)
		return -errno;
	if (read(fd, &magic, sizeof(magic)) != sizeof(magic))
		return -EIO;
	return magic == 0xeb9f ? 0 : -EINVAL; /* BTF_MAGIC, linux/btf.h */
}

int probe_ringbuf(void)
{
	return fd_result(
		bpf_map_create(BPF_MAP_TYPE_RINGBUF, NULL, 0, 0, (u32)getpagesize(), NULL));
}

/* An array of one page that can be mapped: its descriptor, or negative errno. */
static int create_mmapable(void)
{
	LIBBPF_OPTS(bpf_map_create_opts, opts, .map_flags = BPF_F_MMAPABLE);

	return bpf_map_create(BPF_MAP_TYPE_ARRAY, NULL, 4, 64, 64, &opts);
}

int probe_mmapable_array(void)
{
	_cleanup_close_ int fd = create_mmapable();
	size_t size = (size_t)getpagesize();
	void *p;

	if (fd < 0)
		return fd;
	p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		return -errno;
	munmap(p, size);
	return 0;
}

int probe_array_of_mmapable(void)
{
	_cleanup_close_ int inner = create_mmapable();
	_cleanup_close_ int outer = -1;
	u32 key = 0, value;
	LIBBPF_OPTS(bpf_map_create_opts, opts);

	if (inner < 0)
		return inner;
	opts.inner_map_fd = (u32)inner;
	outer = bpf_map_create(BPF_MAP_TYPE_ARRAY_OF_MAPS, NULL, 4, 4, 2, &opts);
	if (outer < 0)
		return outer;
	value = (u32)inner;
	return bpf_map_update_elem(outer, &key, &value, BPF_ANY) < 0 ? -errno : 0;
}

int probe_perf_event_prog(void)
{
	const struct bpf_insn insns[] = {
		{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0, .imm = 0},
		{.code = BPF_JMP | BPF_EXIT},
	};

	return load(insns, ARRAY_SIZE(insns));
}

/* Symbols of the kernel itself are sorted by address. */
int probe_functions(struct probe_function *f, u32 n)
{
	_cleanup_fclose_ FILE *symbols = fopen("/proc/kallsyms", "re");
	_cleanup_free_ char *line = NULL;
	size_t cap = 0;

	if (!symbols)
		return -errno;
	while (getline(&line, &cap, symbols) > 0 && !strchr(line, '[')) {
		char *end;
		u64 address = strtoull(line, &end, 16);
		size_t length = strcspn(end, "\n");

		end[length] = '\0';
		for (u32 i = 0; i < n && length > 3; i++) {
			if (f[i].start && !f[i].end && address > f[i].start)
				f[i].end = address;
			if (!f[i].start && strcmp(end + 3, f[i].name) == 0)
				f[i].start = address;
		}
	}
	return 0;
}

int probe_resumed_function(char *ret, size_t n)
{
	_cleanup_fclose_ FILE *f = fopen("/proc/kallsyms", "re");
	char line[256], name[64];

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "%*s %*1[tT] %63s", name) == 1 &&
		    !strncmp(name, "finish_task_switch", 18) && (!name[18] || name[18] == '.')) {
			snprintf(ret, n, "%s", name);
			return 0;
		}
	return -ENOENT;
}

int probe_waits(void)
{
	const struct bpf_insn insns[] = {
		{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0, .imm = 0},
		{.code = BPF_JMP | BPF_EXIT},
	};
	_cleanup_close_ int prog = bpf_prog_load(BPF_PROG_TYPE_RAW_TRACEPOINT, "culprit_probe",
						 "GPL", insns, ARRAY_SIZE(insns), NULL);
	int r = prog < 0 ? prog : fd_result(bpf_raw_tracepoint_open("sched_exit_tp", prog));
	char name[64];

	if (r == -ENOENT && access("/sys/bus/event_source/devices/kprobe", F_OK) == 0 &&
	    probe_resumed_function(name, sizeof(name)) == 0)
		return 1;
	return r;
}

/* The id of a function that the kernel lets BPF programs call; or a negative errno. */
bool probe_switch_state(const struct btf *btf)
{
	s32 id = btf ? btf__find_by_name_kind(btf, "btf_trace_sched_switch", BTF_KIND_TYPEDEF) : 0;
	const struct btf_type *t = id > 0 ? btf__type_by_id(btf, (u32)id) : NULL;

	t = t ? btf__type_by_id(btf, t->type) : NULL; /* a pointer to a function */
	t = t && btf_is_ptr(t) ? btf__type_by_id(btf, t->type) : NULL;
	return t && btf_is_func_proto(t) && btf_vlen(t) == 5; /* the first is the probe's own */
}

bool probe_uprobe_sessions(void)
{
	struct btf *btf = btf__load_vmlinux_btf();
	s32 id = btf ? btf__find_by_name_kind(btf, "bpf_attach_type", BTF_KIND_ENUM) : 0;
	const struct btf_type *t = id > 0 ? btf__type_by_id(btf, (u32)id) : NULL;
	bool found = false;

	for (u32 i = 0; t && !found && i < btf_vlen(t); i++)
		found = strcmp(btf__str_by_offset(btf, btf_enum(t)[i].name_off),
			       "BPF_TRACE_UPROBE_SESSION") == 0;
	btf__free(btf);
	return found;
}

static s32 find_kfunc(const struct btf *btf, const char *name)
{
	return btf ? btf__find_by_name_kind(btf, name, BTF_KIND_FUNC) : -errno;
}

int probe_sleepers(void)
{
	struct btf *btf = btf__load_vmlinux_btf();
	s32 find = find_kfunc(btf, "bpf_task_from_pid"),
	    release = find_kfunc(btf, "bpf_task_release");
	const struct bpf_insn insns[] = {
		{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 1},
		{.code = BPF_JMP | BPF_CALL, .src_reg = BPF_PSEUDO_KFUNC_CALL, .imm = find},
		{.code = BPF_JMP | BPF_JEQ | BPF_K, .off = 10},
		{.code = BPF_ALU64 | BPF_MOV | BPF_X, .dst_reg = 6},
		{.code = BPF_ALU64 | BPF_MOV | BPF_X, .dst_reg = 1, .src_reg = 10},
		{.code = BPF_ALU64 | BPF_ADD | BPF_K, .dst_reg = 1, .imm = -8},
		{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 2, .imm = 8},
		{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 3},
		{.code = BPF_ALU64 | BPF_MOV | BPF_X, .dst_reg = 4, .src_reg = 6},
		{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 5},
		{.code = BPF_JMP | BPF_CALL, .imm = BPF_FUNC_copy_from_user_task},
		{.code = BPF_ALU64 | BPF_MOV | BPF_X, .dst_reg = 1, .src_reg = 6},
		{.code = BPF_JMP | BPF_CALL, .src_reg = BPF_PSEUDO_KFUNC_CALL, .imm = release},
		{.code = BPF_ALU64 | BPF_MOV | BPF_K},
		{.code = BPF_JMP | BPF_EXIT},
	};
	LIBBPF_OPTS(bpf_prog_load_opts, opts, .prog_flags = BPF_F_SLEEPABLE);

	btf__free(btf);
	if (find < 0 || release < 0)
		return find < 0 ? find : release;
	return fd_result(bpf_prog_load(BPF_PROG_TYPE_SYSCALL, "culprit_probe", "GPL", insns,
				       ARRAY_SIZE(insns), &opts));
}

int probe_calls_and_jumps(void)
{
	_cleanup_close_ int map =
		bpf_map_create(BPF_MAP_TYPE_PROG_ARRAY, "culprit_probe", 4, 4, 1, NULL);
	/* Calls a function, then jumps through the map, as walkers do. */
	struct bpf_insn insns[] = {
		{.code = BPF_ALU64 | BPF_MOV | BPF_X, .dst_reg = 6, .src_reg = 1},
		{.code = BPF_JMP | BPF_CALL, .src_reg = BPF_PSEUDO_CALL, .imm = 7},
		{.code = BPF_ALU64 | BPF_MOV | BPF_X, .dst_reg = 1, .src_reg = 6},
		{.code = BPF_LD | BPF_DW | BPF_IMM,
		 .dst_reg = 2,
		 .src_reg = BPF_PSEUDO_MAP_FD,
		 .imm = map},
		{},
		{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 3},
		{.code = BPF_JMP | BPF_CALL, .imm = BPF_FUNC_tail_call},
		{.code = BPF_ALU64 | BPF_MOV | BPF_K},
		{.code = BPF_JMP | BPF_EXIT},
		{.code = BPF_ALU64 | BPF_MOV | BPF_K},
		{.code = BPF_JMP | BPF_EXIT},
	};

	if (map < 0)
		return -errno;
	return load(insns, ARRAY_SIZE(insns));
}

int probe_hash_on_demand(void)
{
	LIBBPF_OPTS(bpf_map_create_opts, opts, .map_flags = BPF_F_NO_PREALLOC);
	_cleanup_close_ int map =
		bpf_map_create(BPF_MAP_TYPE_HASH, "culprit_probe", 4, 4, 1, &opts);
	struct bpf_insn insns[] = {
		PROBE_LOOK_UP_0(map),
		{.code = BPF_ALU64 | BPF_MOV | BPF_K},
		{.code = BPF_JMP | BPF_EXIT},
	};

	if (map < 0)
		return -errno;
	return load(insns, ARRAY_SIZE(insns));
}

int probe_helper(int helper)
{
	/* libbpf interprets all errors but one as success, even a lack of permission. */
	int r = probe_perf_event_prog();

	if (r < 0)
		return r;
	return libbpf_probe_bpf_helper(BPF_PROG_TYPE_PERF_EVENT, (enum bpf_func_id)helper, NULL);
}

int probe_cgroup_accounting(void)
{
	int r = probe_perf_event_prog();

	if (r < 0)
		return r;
	/* The helper is of the same release as the accounting (5.11); libbpf checks it in the same
	 * way. */
	return libbpf_probe_bpf_helper(BPF_PROG_TYPE_SOCKET_FILTER, BPF_FUNC_ktime_get_coarse_ns,
				       NULL);
}

static int first_online_cpu(void)
{
	char text[64];
	int cpu = 0;

	/* "0-3,5": the first number is a CPU that is online. */
	if (!probe_read_text("/sys/devices/system/cpu/online", text, sizeof(text)))
		sscanf(text, "%d", &cpu);
	return cpu;
}

int probe_perf_event(struct perf_event_attr *attr)
{
	long fd;

	attr->size = sizeof(*attr);
	attr->disabled = 1;
	fd = syscall(SYS_perf_event_open, attr, -1, first_online_cpu(), -1, PERF_FLAG_FD_CLOEXEC);
	if (fd < 0)
		return -errno;
	close((int)fd);
	return 0;
}

int probe_cpu_clock(void)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_SOFTWARE,
		.config = PERF_COUNT_SW_CPU_CLOCK,
		.freq = 1,
		.sample_freq = 99,
	};

	return probe_perf_event(&attr);
}

int probe_cycles(void)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_HARDWARE,
		.config = PERF_COUNT_HW_CPU_CYCLES,
		.freq = 1,
		.sample_freq = 99,
	};

	return probe_perf_event(&attr);
}

int probe_sideband(bool build_id)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_SOFTWARE,
		.config = PERF_COUNT_SW_DUMMY,
		.sample_type = PERF_SAMPLE_TID | PERF_SAMPLE_TIME,
		.sample_id_all = 1,
		.mmap = 1,
		.mmap2 = 1,
		.comm = 1,
		.comm_exec = 1,
		.task = 1,
		.use_clockid = 1,
		.clockid = CLOCK_MONOTONIC,
		.build_id = build_id,
	};

	return probe_perf_event(&attr);
}

int probe_kallsyms(void)
{
	_cleanup_fclose_ FILE *f = fopen("/proc/kallsyms", "re");
	char line[512];

	if (!f)
		return -errno;
	/* Without permission every address reads 0; the first ones can really be 0 (per-CPU). */
	for (int i = 0; i < 20000 && fgets(line, sizeof(line), f); i++)
		if (strspn(line, "0") < 8)
			return 0;
	return -EPERM;
}

int probe_map_files(void)
{
	_cleanup_fclose_ FILE *f = fopen("/proc/self/maps", "re");
	char line[PATH_MAX + 128], path[128];
	unsigned long long start, end, inode;

	if (!f)
		return -errno;
	while (fgets(line, sizeof(line), f)) {
		_cleanup_close_ int fd = -1;

		if (sscanf(line, "%llx-%llx %*s %*s %*s %llu", &start, &end, &inode) != 3 || !inode)
			continue;
		snprintf(path, sizeof(path), "/proc/self/map_files/%llx-%llx", start, end);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		return fd < 0 ? -errno : 0;
	}
	return -ENOENT;
}

bool probe_wants_admin(void)
{
	char text[16];

	if (probe_read_text("/proc/sys/kernel/perf_event_paranoid", text, sizeof(text)) < 0)
		return false;
	return strtol(text, NULL, 10) > 2;
}

bool probe_may_open_uprobes(void)
{
	return probe_caps() >> CAP_SYS_ADMIN & 1;
}

static bool lacks_admin(void)
{
	return probe_wants_admin() && !(probe_caps() >> CAP_SYS_ADMIN & 1);
}

/* Explains why bpf() or perf_event_open() failed although the process has the capabilities. */
static int refused(struct diag *diag, const char *call, int r)
{
	if ((r == -EPERM || r == -EACCES) && !strcmp(call, "perf_event_open") && lacks_admin())
		return diag_set(diag, -EPERM,
				"%s() is refused: kernel.perf_event_paranoid is above 2, and then "
				"this kernel wants CAP_SYS_ADMIN: sysctl -w "
				"kernel.perf_event_paranoid=2",
				call);
	if (r == -ENOSYS)
		return diag_set(
			diag, -ENOTSUP,
			"kernel without %s(): it was built without, or a container hides it", call);
	if (r == -EPERM || r == -EACCES)
		return diag_set(
			diag, -EPERM,
			"%s() is refused although the capabilities are present: a container, "
			"a user namespace, seccomp or lockdown forbids it; run outside of it",
			call);
	return diag_set(diag, r, "%s() failed: %s", call, strerror(-r));
}

int probe_require(struct diag *reterr_diag)
{
	u64 missing = probe_caps_missing(probe_caps());
	const char *problem, *advice;
	int r;

	if (missing) {
		char names[64];

		probe_caps_text(missing, names, sizeof(names));
		return diag_set(reterr_diag, -EPERM,
				"needs %s: run as root (sudo), or see 'culprit doctor'", names);
	}
	problem = probe_namespaces(&advice);
	if (problem)
		return diag_set(reterr_diag, -EPERM, "%s: %s", problem, advice);
	r = probe_bpf_syscall();
	if (r < 0)
		return refused(reterr_diag, "bpf", r);
	if (probe_btf() < 0)
		return diag_set(reterr_diag, -ENOTSUP,
				"kernel without BTF: /sys/kernel/btf/vmlinux is not there; boot a "
				"kernel with CONFIG_DEBUG_INFO_BTF=y (distributions' own have it)");
	r = probe_perf_event_prog();
	if (r < 0)
		return refused(reterr_diag, "bpf", r);
	if (probe_calls_and_jumps() < 0)
		return diag_set(reterr_diag, -ENOTSUP, "%s", PROBE_NO_CALLS_AND_JUMPS);
	if (probe_user_reads() == -EDEADLK)
		return diag_set(reterr_diag, -ENOTSUP, "%s", PROBE_UNSAFE_USER_READS);
	r = probe_cpu_clock();
	if (r < 0)
		return refused(reterr_diag, "perf_event_open", r);
	return 0;
}

int probe_features(struct probe_features *ret, struct diag *reterr_diag)
{
	int r = probe_require(reterr_diag);

	if (r < 0)
		return r;
	*ret = (struct probe_features){
		.bpf_loop = probe_helper(BPF_FUNC_loop) == 1,
		.current_task_btf = probe_helper(BPF_FUNC_get_current_task_btf) == 1,
		.task_pt_regs = probe_helper(BPF_FUNC_task_pt_regs) == 1,
		.hash_on_demand = !probe_hash_on_demand(),
		.ringbuf = !probe_ringbuf(),
		.mmapable_array = !probe_mmapable_array(),
		.array_of_mmapable = !probe_array_of_mmapable(),
		.cpu_clock = !probe_cpu_clock(),
		.cycles = !probe_cycles(),
		.sideband = !probe_sideband(false),
		.sideband_build_id = !probe_sideband(true),
		.kallsyms = !probe_kallsyms(),
		.map_files = !probe_map_files(),
	};
	return 0;
}
