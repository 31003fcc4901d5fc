/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "proc/internal.h"

static int parse_line(const char *text, struct proc_mapping *ret)
{
	static char line[8192];

	snprintf(line, sizeof(line), "%s", text);
	return proc_maps_parse_line(line, strlen(line), ret);
}

Test(maps, lines)
{
	struct proc_mapping m = {};

	cr_assert_eq(
		parse_line("7f1c2a000000-7f1c2a021000 r-xp 00001000 fd:01 1311                 "
			   "     /usr/lib/a b.so",
			   &m),
		0);
	cr_assert(m.start == 0x7f1c2a000000 && m.end == 0x7f1c2a021000 && m.offset == 0x1000);
	cr_assert(m.prot == (PROT_READ | PROT_EXEC) && m.dev_major == 0xfd && m.dev_minor == 1);
	cr_assert(m.inode == 1311 && !m.deleted);
	cr_assert_str_eq(m.path, "/usr/lib/a b.so");

	cr_assert_eq(parse_line("1000-2000 rwxp 00000000 00:00 0 ", &m), 0);
	cr_assert_str_eq(m.path, "");
	cr_assert_eq(m.prot, PROT_READ | PROT_WRITE | PROT_EXEC);

	cr_assert_eq(parse_line("1000-2000 ---s 00000000 00:05 9 /memfd:x (deleted)", &m), 0);
	cr_assert_str_eq(m.path, "/memfd:x");
	cr_assert(m.deleted && m.prot == 0);

	/* The kernel escapes only newlines, and only the last " (deleted)" is the kernel's mark. */
	cr_assert_eq(
		parse_line("1000-2000 r--p 00000000 00:05 9 /a\\012b\\x (deleted) (deleted)", &m),
		0);
	cr_assert_str_eq(m.path, "/a\nb\\x (deleted)");

	cr_assert_eq(parse_line("ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0    "
				"              [vsyscall]",
				&m),
		     0);
	cr_assert_eq(m.start, 0xffffffffff600000);
	cr_assert_str_eq(m.path, "[vsyscall]");
}

Test(maps, damaged_lines_are_refused)
{
	static const char *const bad[] = {
		"",
		"x",
		"2000-1000 r-xp 0 0:0 0 ",
		"1000-1000 r-xp 0 0:0 0 ",
		"1000-2000",
		"1000-2000 r-x",
		"1000-2000 r-xp 0",
		"1000-2000 r-xp 0 0:0 0",
		"1000-2000 r-xp 0 0:0 z ",
		"1000-2000 r-xp 0 100000000:0 0 ",
		"11111111111111111-22222222222222222 r-xp 0 0:0 0 ",
	};
	struct proc_mapping m = {.inode = 42};

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		cr_assert_eq(parse_line(bad[i], &m), -EINVAL, "%s", bad[i]);
	cr_assert_eq(m.inode, 42);
}

struct counter {
	u64 want_start, want_end;
	bool found;
	u32 n, n_exec;
	u64 last_end;
	char path[64];
	struct proc_mapping m;
};

static int count_mapping(void *arg, const struct proc_mapping *m)
{
	struct counter *c = arg;

	cr_assert_geq(m->start, c->last_end);
	c->last_end = m->end;
	c->n++;
	c->n_exec += (m->prot & PROT_EXEC) != 0;
	if (m->start <= c->want_start && m->end >= c->want_end) {
		c->found = true;
		c->m = *m;
		snprintf(c->path, sizeof(c->path), "%.63s", m->path);
		c->m.path = c->path;
	}
	return 0;
}

Test(maps, executable_ones_among_very_many)
{
	const size_t n_pages = 20000, page = 4096;
	char *p = mmap(NULL, n_pages * page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct counter all = {}, exec = {};
	size_t n_exec = 0;

	cr_assert_neq(p, MAP_FAILED);
	for (size_t i = 1; i < n_pages; i += 2) {
		int prot = i % 10 == 1 ? PROT_READ | PROT_EXEC : PROT_NONE;

		cr_assert_eq(mprotect(p + i * page, page, prot), 0);
		n_exec += i % 10 == 1;
	}
	cr_assert_eq(proc_maps_read((u32)getpid(), PROC_MAPS_ALL, count_mapping, &all), 0);
	cr_assert_eq(proc_maps_read((u32)getpid(), 0, count_mapping, &exec), 0);
	cr_assert_geq(all.n, n_pages);
	cr_assert_geq(exec.n, n_exec);
	cr_assert_eq(exec.n, all.n_exec);
	cr_assert_eq(exec.n, exec.n_exec);
	munmap(p, n_pages * page);
}

Test(maps, a_bad_line_is_logged_with_its_number)
{
	static const char text[] = "1000-2000 r-xp 00000000 00:00 0 \n"
				   "2000-3000 rw-p 00000000 bad\n"
				   "3000-4000 r-xp 00000000 00:00 0 [x]\n"
				   "4000-5000 r-xp 00000000 bad\n";
	_cleanup_close_ int fd = memfd_create("maps", MFD_CLOEXEC);
	struct counter c = {};

	cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	cr_assert_eq(lseek(fd, 0, SEEK_SET), 0);
	log_set_level(LOG_LEVEL_DEBUG);
	cr_redirect_stderr();
	cr_assert_eq(proc_maps_read_fd(fd, 0, count_mapping, &c), -EINVAL);
	cr_expect_eq(c.n, 2);
	fflush(stderr);
	cr_expect_stderr_eq_str("culprit: debug: /memfd:maps (deleted): line 4 is not a mapping\n");
}

static int stop_at_second(void *arg, const struct proc_mapping *m)
{
	return ++*(int *)arg == 2 ? 17 : 0;
}

Test(maps, reading_stops_when_told)
{
	int n = 0;

	cr_assert_eq(proc_maps_read((u32)getpid(), PROC_MAPS_ALL, stop_at_second, &n), 17);
	cr_assert_eq(n, 2);
}

Test(maps, of_nobody)
{
	pid_t child = fork();

	if (child == 0)
		_exit(0);
	/* The process is a zombie, and later does not exist. */
	siginfo_t info;
	waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT);
	cr_assert_eq(proc_maps_read((u32)child, 0, stop_at_second, NULL), -ESRCH);
	waitpid(child, NULL, 0);
	cr_assert_eq(proc_maps_read((u32)child, 0, stop_at_second, NULL), -ESRCH);
	struct proc_stat st;
	cr_assert_eq(proc_stat_read((u32)child, &st), -ESRCH);
}

/* A path longer than PATH_MAX (made step by step), and longer than the first buffer. */
Test(maps, very_long_paths_are_whole)
{
	char dir[] = "/tmp/culprit-test-XXXXXX", name[201], command[64];
	struct counter c = {};
	int fd, depth = 500;
	void *p;

	cr_assert(mkdtemp(dir));
	cr_assert_eq(chdir(dir), 0);
	memset(name, 'd', 200);
	name[200] = '\0';
	for (int i = 0; i < depth; i++) {
		cr_assert_eq(mkdir(name, 0700), 0);
		cr_assert_eq(chdir(name), 0);
	}
	fd = open("file", O_RDWR | O_CREAT, 0600);
	cr_assert_geq(fd, 0);
	cr_assert_eq(ftruncate(fd, 4096), 0);
	p = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
	c.want_start = (u64)p;
	c.want_end = (u64)p + 4096;
	if (p != MAP_FAILED) {
		cr_assert_eq(proc_maps_read((u32)getpid(), 0, count_mapping, &c), 0);
		cr_assert(c.found);
		cr_assert(str_starts(c.path, "/tmp/culprit-test-"));
	}
	for (int i = 0; i < depth; i++) {
		cr_assert_eq(chdir(".."), 0);
		if (i == 0)
			continue;
	}
	snprintf(command, sizeof(command), "%s", dir);
	pid_t child = fork();
	if (child == 0) {
		execlp("rm", "rm", "-rf", command, NULL);
		_exit(1);
	}
	waitpid(child, NULL, 0);
}

Test(stat, of_ourselves_and_of_odd_names)
{
	static const char odd[] = "77 (a) R (b)) S 5 1 1 0 -1 2129984 0 0 0 0 11 2 0 0 20 0 3 0 "
				  "4242 0 0 18446744073709551615 0 0 140001 0\n";
	struct proc_stat st = {};

	cr_assert_eq(proc_stat_parse(odd, sizeof(odd) - 1, &st), 0);
	cr_assert_str_eq(st.comm, "a) R (b)");
	cr_assert(st.pid == 77 && st.ppid == 5 && st.state == 'S' && st.n_threads == 3);
	cr_assert_eq(st.cpu_ticks, 13);
	cr_assert(st.start_ticks == 4242 && st.start_stack == 140001 && st.kthread);

	for (size_t n = 0; n < sizeof(odd) - 12; n++)
		cr_assert_eq(proc_stat_parse(odd, n, &st), -EINVAL, "%zu bytes", n);

	cr_assert_eq(proc_stat_read((u32)getpid(), &st), 0);
	cr_assert(st.pid == (u32)getpid() && st.ppid == (u32)getppid() && !st.kthread);
	cr_assert_gt(st.start_stack, (u64)(void *)&st);
	cr_assert_gt(st.start_ticks, 0);
}

Test(status, of_ourselves)
{
	static const char text[] =
		"Name:\tx\nTgid:\t12\nNgid:\t0\nPid:\t13\nUid:\t1000\t1001\t0\t0\n"
		"NSpid:\t13\t5\t2\nVmHWM:\t    5120 kB\nThreads:\t4\n";
	struct proc_status s = {};

	cr_assert_eq(proc_status_parse(text, sizeof(text) - 1, &s), 0);
	cr_assert(s.tgid == 12 && s.uid == 1001 && s.ns_pid == 2 && s.n_threads == 4);
	cr_assert_eq(s.real_uid, 1000);
	cr_assert_eq(s.peak_bytes, 5 << 20);
	cr_assert_eq(proc_status_parse(text, 20, &s), -EINVAL);
	cr_assert_eq(proc_status_read((u32)getpid(), &s), 0);
	cr_assert(s.tgid == (u32)getpid() && s.uid == geteuid() && s.n_threads >= 1);
	cr_assert_gt(s.peak_bytes, 0);
}

Test(schedstat, of_ourselves)
{
	u32 pid = (u32)getpid();
	u64 cpu = 0, delay = 0;

	cr_assert_eq(proc_schedstat_read(pid, pid, &cpu, &delay), 0);
	cr_assert_gt(cpu, 0);
	cr_assert_lt(proc_schedstat_read(pid, 1, &cpu, &delay), 0);
}

Test(cgroup, unified)
{
	static const char hybrid[] = "12:pids:/docker/x\n10::/nothing\n0::/user.slice/a.scope\n";
	static const char old[] = "2:cpu:/a\n1:name=systemd:/b\n0::";
	_cleanup_str_ struct str s = {};

	cr_assert_eq(proc_cgroup_unified_parse(hybrid, sizeof(hybrid) - 1, &s), 0);
	cr_assert_str_eq(str_get(&s), "/user.slice/a.scope");
	cr_assert_eq(proc_cgroup_unified_parse("0::/", 4, &s), 0);
	cr_assert_str_eq(str_get(&s), "/");
	cr_assert_eq(proc_cgroup_unified_parse(old, sizeof(old) - 1, &s), -ENOENT);
	cr_assert_eq(proc_cgroup_unified_parse("", 0, &s), -ENOENT);
}

static const char *cgroup(struct str *s, const char *text)
{
	cr_assert_eq(proc_cgroup_parse(text, strlen(text), s), 0);
	return str_get(s);
}

#define HEX64 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

#define OTHER64 "f123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define POD "12345678-1234-1234-1234-123456789abc"
#define POD_ "12345678_1234_1234_1234_123456789abc"

Test(cgroup, says_which_container_pod_and_unit)
{
	static const struct {
		const char *path, *container, *pod, *unit;
	} cases[] = {
		{"/", "", "", ""},
		{"/docker/" HEX64, HEX64, "", ""},
		{"/system.slice/docker-" HEX64 ".scope", HEX64, "", ""},
		{"/system.slice/nginx.service", "", "", "nginx"},
		{"/system.slice/system-postgresql.slice/postgresql@15-main.service", "", "",
		 "postgresql@15-main"},
		{"/user.slice/user-0.slice/user@0.service/app.slice/a.service", "", "", "a"},
		{"/user.slice/user-0.slice/user@0.service/init.scope", "", "", ""},
		{"/kubepods/burstable/pod" POD "/" HEX64, HEX64, POD, ""},
		{"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod" POD_
		 ".slice/cri-containerd-" HEX64 ".scope",
		 HEX64, POD, ""},
		{"/kubepods.slice/kubepods-pod" POD_ ".slice/crio-" HEX64 ".scope/container", HEX64,
		 POD, ""},
		{"/system.slice/containerd.service/kubepods-burstable-pod" POD_
		 ".slice:cri-containerd:" HEX64,
		 HEX64, POD, "containerd"},
		/* a static pod's uid */
		{"/kubepods/pod0123456789abcdef0123456789abcdef/" HEX64, HEX64,
		 "0123456789abcdef0123456789abcdef", ""},
		{"/ecs/x/0123456789abcdef0123456789abcdef-1234567890",
		 "0123456789abcdef0123456789abcdef-1234567890", "", ""},
		{"/isulad/" HEX64, HEX64, "", ""},
		{"/system.slice/isulad-" HEX64 ".scope", HEX64, "", ""},
		{"/machine.slice/libpod-" HEX64 ".scope/container", HEX64, "", ""},
		/* what podman's quadlets have */
		{"/system.slice/web.service/libpod-payload-" HEX64, HEX64, "", "web"},
		{"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-" HEX64
		 ".scope/container",
		 HEX64, "", ""},
		/* the monitors of containers */
		{"/machine.slice/libpod-conmon-" HEX64 ".scope", "", "", ""},
		{"/system.slice/crio-conmon-" HEX64 ".scope", "", "", ""},
		/* seen from another cgroup namespace */
		{"/../" HEX64, HEX64, "", ""},
		{"/../../pod" POD "/" HEX64, HEX64, POD, ""},
		{"/docker/" HEX64 "0", "", "", ""},
		{"/mypod1234/x.services", "", "", ""},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct proc_cgroup_owner o;

		proc_cgroup_describe(cases[i].path, &o);
		cr_expect_str_eq(o.container_id, cases[i].container, "%s", cases[i].path);
		cr_expect_str_eq(o.pod_uid, cases[i].pod, "%s", cases[i].path);
		cr_expect_str_eq(o.unit, cases[i].unit, "%s", cases[i].path);
		cr_expect_str_empty(o.container_name, "%s", cases[i].path);
		cr_expect_str_empty(o.pod_container_id, "%s", cases[i].path);
		cr_expect(!o.nested, "%s", cases[i].path);
	}
}

Test(cgroup, says_which_container_without_an_id)
{
	static const struct {
		const char *path, *name, *unit;
	} cases[] = {
		{"/lxc.payload.web", "web", ""},
		{"/lxc.payload.shop_web/system.slice/nginx.service", "shop_web", "nginx"},
		{"/lxc/101/ns/init.scope", "101", ""},
		{"/lxc.payload/web", "web", ""},
		{"/lxc/outer/lxc/inner", "inner", ""},
		{"/lxc.monitor.web", "", ""},
		{"/lxc", "", ""},
		{"/machine.slice/machine-web.scope/payload/system.slice/sshd.service", "web",
		 "sshd"},
		{"/machine.slice/machine-my\\x2dweb.scope", "my-web", ""},
		{"/machine.slice/machine-my-web.scope", "my-web", ""},
		{"/machine.slice/systemd-nspawn@my\\x2dweb.service/payload", "my-web", ""},
		{"/machine.slice/systemd-nspawn@web.service/supervisor", "", ""},
		{"/machine.slice/machine-a\\x3bb\\x00\\xq1\\x.scope", "a;b\\x00\\xq1\\x", ""},
		{"/machine.slice/machine-qemu\\x2d1\\x2dvm.scope", "", ""},
		{"/machine.slice/machine-.scope", "", ""},
		/* the innermost counts */
		{"/lxc.payload.web/docker/" HEX64, "", ""},
		{"/docker/" HEX64 "/lxc.payload.web", "web", ""},
	};
	char path[512];
	struct proc_cgroup_owner o;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		proc_cgroup_describe(cases[i].path, &o);
		cr_expect_str_eq(o.container_name, cases[i].name, "%s", cases[i].path);
		cr_expect_str_eq(o.unit, cases[i].unit, "%s", cases[i].path);
		cr_expect(!o.container_name[0] || !o.container_id[0], "%s", cases[i].path);
	}
	/* A name that does not fit is none, rather than another one's. */
	snprintf(path, sizeof(path), "/lxc.payload.%0200d", 7);
	proc_cgroup_describe(path, &o);
	cr_expect_str_empty(o.container_name);
}

/* Containers in containers: Docker in Docker, kind's nodes, Docker in a pod. */
Test(cgroup, of_a_container_in_another)
{
	static const struct {
		const char *path, *container, *pod, *of_pod;
	} cases[] = {
		{"/system.slice/docker-" HEX64 ".scope/docker/" OTHER64, OTHER64, "", ""},
		{"/docker/" HEX64 "/kubelet/kubepods/burstable/pod" POD "/" OTHER64, OTHER64, POD,
		 ""},
		{"/docker/" HEX64 "/system.slice/containerd.service", HEX64, "", ""},
		{"/kubepods/pod" POD "/" HEX64 "/docker/" OTHER64, OTHER64, POD, HEX64},
		{"/kubepods/pod" POD "/" HEX64 "/docker/" OTHER64 "/docker/" HEX64, HEX64, POD,
		 HEX64},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct proc_cgroup_owner o;

		proc_cgroup_describe(cases[i].path, &o);
		cr_expect_str_eq(o.container_id, cases[i].container, "%s", cases[i].path);
		cr_expect_str_eq(o.pod_uid, cases[i].pod, "%s", cases[i].path);
		cr_expect_str_eq(o.pod_container_id, cases[i].of_pod, "%s", cases[i].path);
		cr_expect_eq(o.nested, strcmp(o.container_id, HEX64) != 0 || *cases[i].of_pod, "%s",
			     cases[i].path);
	}
}

Test(cgroup, says_whose_the_path_is)
{
	static const struct {
		const char *path;
		u32 user;
	} cases[] = {
		{"/user.slice/user-1000.slice/user@1000.service/user.slice/x.scope", 1000},
		{"/user.slice/user-1000.slice/user@1000.service/user-0.slice/user-7.slice", 1000},
		{"/user.slice/user-0.slice/session-1.scope", 0},
		{"/user.slice/user-99999999999.slice/x", 0},
		{"/user.slice/user-.slice/x", 0},
		{"/system.slice/x.service", 0},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct proc_cgroup_owner o;

		proc_cgroup_describe(cases[i].path, &o);
		cr_expect_eq(o.user, cases[i].user, "%s", cases[i].path);
	}
}

Test(environ, finds_variables_by_their_whole_name)
{
	static const char text[] = "A=1\0OTEL_SERVICE_NAME=shop\0XOTEL_SERVICE_NAME=no\0"
				   "OTEL_SERVICE_NAME=late\0B\0=\0C=";
	static const char *const names[] = {"OTEL_SERVICE_NAME", "B", "C", "A"};
	struct str v[4] = {};

	proc_environ_parse(text, sizeof(text) - 1, names, 4, v);
	cr_expect_str_eq(str_get(&v[0]), "shop");
	cr_expect_str_eq(str_get(&v[1]), "");
	cr_expect_str_eq(str_get(&v[2]), "");
	cr_expect_str_eq(str_get(&v[3]), "1");
	for (size_t i = 0; i < 4; i++)
		str_deinit(&v[i]);
}

Test(environ, of_a_process)
{
	static const char *const names[] = {"PATH"};
	_cleanup_(str) struct str v = {}, exe = {};

	cr_assert_eq(proc_environ_read((u32)getpid(), names, 1, &v), 0);
	cr_expect_str_eq(str_get(&v), getenv("PATH"));
	cr_assert_eq(proc_exe_read((u32)getpid(), &exe), 0);
	cr_expect(str_ends(str_get(&exe), "test-proc"));
	cr_expect_eq(proc_environ_read(0x7fffffff, names, 1, &v), -ESRCH);
	cr_expect_eq(proc_exe_read(0x7fffffff, &exe), -ESRCH);
}

Test(cgroup, of_every_kind_of_hierarchy)
{
	_cleanup_str_ struct str s = {};

	cr_assert_str_eq(cgroup(&s, "0::/system.slice/x.service\n"), "/system.slice/x.service");
	cr_assert_str_eq(cgroup(&s, "4:memory:/m\n3:cpu,cpuacct:/c\n1:name=systemd:/s\n0::/u:v\n"),
			 "/u:v");
	cr_assert_str_eq(cgroup(&s, "4:memory:/m\n3:cpu,cpuacct:/c\n1:name=systemd:/s\n0::/\n"),
			 "/c");
	/* An engine that knows only v1 leaves its containers' processes in its own v2 group. */
	cr_assert_str_eq(cgroup(&s, "4:memory:/docker/" HEX64 "\n1:name=systemd:/docker/" HEX64
				    "\n0::/system.slice/containerd.service\n"),
			 "/docker/" HEX64);
	cr_assert_str_eq(cgroup(&s, "9:perf_event:/p\n3:cpuacct,cpu:/c\n"), "/p");
	cr_assert_str_eq(cgroup(&s, "3:cpuset:/only\n0::/\n"), "/");
	cr_assert_str_eq(cgroup(&s, ""), "/");
	cr_assert_str_eq(cgroup(&s, "garbage\n:::\n0:"), "/");
	cr_assert_eq(proc_cgroup_read((u32)getpid(), &s), 0);
	cr_assert_eq(str_get(&s)[0], '/');
}

static int add_cpu(void *arg, u32 cpu)
{
	*(u64 *)arg |= 1ULL << cpu;
	return 0;
}

Test(cpulist, ranges)
{
	u64 set = 0;

	cr_assert_eq(proc_cpulist_parse("0-3,8,10-11\n", 12, 64, add_cpu, &set), 0);
	cr_assert_eq(set, 0xd0f);
	cr_assert_eq(proc_cpulist_parse("", 0, 64, add_cpu, &set), 0);
	cr_assert_eq(proc_cpulist_parse("3-1", 3, 64, add_cpu, &set), -EINVAL);
	cr_assert_eq(proc_cpulist_parse("64", 2, 64, add_cpu, &set), -EINVAL);
	cr_assert_eq(proc_cpulist_parse("1;2", 3, 64, add_cpu, &set), -EINVAL);
	cr_assert_eq(proc_cpulist_parse("1-", 2, 64, add_cpu, &set), -EINVAL);
	set = 0;
	cr_assert_eq(proc_cpus_online(add_cpu, &set), 0);
	cr_assert(set & 1);
}

Test(namespaces, of_ourselves)
{
	struct proc_namespaces ns;
	struct stat st;

	cr_assert_eq(proc_namespaces_read((u32)getpid(), &ns), 0);
	cr_assert_eq(stat("/proc/self/ns/mnt", &st), 0);
	cr_assert_eq(ns.mnt, st.st_ino);
	cr_assert(ns.pid && ns.user && ns.net);
	cr_assert_eq(proc_namespaces_read(0x7ffffff0, &ns), -ESRCH);
}

/* ---- opening what is mapped ---- */

struct mapped {
	char path[64];
	void *p;
	struct counter c;
};

static void map_file(struct mapped *f, const char *content)
{
	_cleanup_close_ int fd = -1;

	snprintf(f->path, sizeof(f->path), "/tmp/culprit-test-XXXXXX");
	fd = mkstemp(f->path);
	cr_assert_geq(fd, 0);
	cr_assert_eq(write(fd, content, strlen(content)), (ssize_t)strlen(content));
	f->p = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
	cr_assert_neq(f->p, MAP_FAILED);
	f->c = (struct counter){.want_start = (u64)f->p, .want_end = (u64)f->p + 4096};
	cr_assert_eq(proc_maps_read((u32)getpid(), PROC_MAPS_ALL, count_mapping, &f->c), 0);
	cr_assert(f->c.found);
}

static const char *content_of(struct proc_file *file)
{
	static char text[64];
	ssize_t n = pread(file->fd, text, sizeof(text) - 1, 0);

	close(file->fd);
	text[MAX(n, (ssize_t)0)] = '\0';
	return text;
}

static void replace(const char *path, const char *content)
{
	_cleanup_fclose_ FILE *f = NULL;

	unlink(path);
	f = fopen(path, "we");
	cr_assert(f);
	fputs(content, f);
}

Test(mapped_file, is_the_mapped_one_whatever_its_path_says)
{
	struct mapped f = {};
	struct proc_file file;
	int r;

	map_file(&f, "first");
	replace(f.path, "second");
	r = proc_open_mapped_file((u32)getpid(), &f.c.m, &file);
	unlink(f.path);
	/* Without access to map_files only the path is left, which leads to another file. */
	if (r == -ESTALE || r == -EPERM || r == -EACCES)
		cr_skip_test("no access to map_files");
	cr_assert_eq(r, 0, "%s", strerror(-r));
	cr_assert_eq(file.origin, PROC_FILE_MAP_FILES);
	cr_assert_eq(file.size, 5);
	cr_assert_str_eq(content_of(&file), "first");
}

/* With wrong addresses, as of a process that has unmapped the file, only the path is left. */
Test(mapped_file, by_path_only_when_it_is_the_same_inode)
{
	struct mapped f = {};
	struct proc_file file;

	map_file(&f, "first");
	f.c.m.start = f.c.m.end = 0;
	cr_assert_eq(proc_open_mapped_file((u32)getpid(), &f.c.m, &file), 0);
	cr_assert_str_eq(content_of(&file), "first");
	cr_assert_eq(proc_open_mapped_file(0x7ffffff0, &f.c.m, &file), 0);
	cr_assert_eq(file.origin, PROC_FILE_HOST);
	cr_assert_str_eq(content_of(&file), "first");
	replace(f.path, "second");
	cr_assert_eq(proc_open_mapped_file((u32)getpid(), &f.c.m, &file), -ESTALE);
	unlink(f.path);
	cr_assert_eq(proc_open_mapped_file((u32)getpid(), &f.c.m, &file), -ENOENT);
	f.c.m.path = "relative";
	cr_assert_eq(proc_open_mapped_file((u32)getpid(), &f.c.m, &file), -ENOENT);
}

/* A library was unloaded, and another one is mapped at its address. */
Test(mapped_file, is_not_what_took_its_place)
{
	struct mapped first = {}, second = {};
	struct proc_file file;

	map_file(&first, "first");
	cr_assert_eq(munmap(first.p, 4096), 0);
	map_file(&second, "second");
	if (second.p != first.p)
		cr_assert_eq(mremap(second.p, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, first.p),
			     first.p);
	cr_assert_eq(proc_open_mapped_file((u32)getpid(), &first.c.m, &file), 0);
	unlink(first.path);
	cr_assert_str_eq(content_of(&file), "first");
	cr_assert_eq(proc_open_mapped_file((u32)getpid(), &first.c.m, &file), -ESTALE);
	unlink(second.path);
}

/* Has a timeout, because opening a FIFO would block for ever. */
Test(mapped_file, is_never_a_fifo_or_device, .timeout = 10)
{
	char path[] = "/tmp/culprit-test-fifo-XXXXXX";
	struct proc_mapping m = {.path = path};
	struct proc_file file;
	struct stat st;
	int fd = mkstemp(path);

	cr_assert_geq(fd, 0);
	close(fd);
	unlink(path);
	cr_assert_eq(mkfifo(path, 0600), 0);
	cr_assert_eq(stat(path, &st), 0);
	m.dev_major = major(st.st_dev);
	m.dev_minor = minor(st.st_dev);
	m.inode = st.st_ino;
	cr_assert_eq(proc_open_mapped_file(0x7ffffff0, &m, &file), -ENXIO);
	unlink(path);
	cr_assert_eq(stat("/dev/null", &st), 0);
	m.path = "/dev/null";
	m.dev_major = major(st.st_dev);
	m.dev_minor = minor(st.st_dev);
	m.inode = st.st_ino;
	cr_assert_eq(proc_open_mapped_file(0x7ffffff0, &m, &file), -ENXIO);
}

Test(mountinfo, type_of_the_device)
{
	static const char line[] = "36 35 0:98 /a\\040b /mnt rw,noatime shared:1 master:2 - "
				   "fuse.sshfs me@there:/ rw,user_id=0\n";
	char type[64] = "untouched";

	cr_assert_not(proc_mountinfo_type(line, 0, 9, type, sizeof(type)));
	cr_assert_not(proc_mountinfo_type(line, 35, 0, type, sizeof(type)));
	cr_assert_not(proc_mountinfo_type("36 35 0:98 /", 0, 98, type, sizeof(type)));
	cr_assert_not(proc_mountinfo_type("", 0, 98, type, sizeof(type)));
	cr_assert_str_eq(type, "untouched");
	cr_assert(proc_mountinfo_type(line, 0, 98, type, sizeof(type)));
	cr_assert_str_eq(type, "fuse.sshfs");
	cr_assert(proc_mountinfo_type(line, 0, 98, type, 5));
	cr_assert_str_eq(type, "fuse");
}

static int find_pid(void *arg, u32 pid)
{
	return pid == *(u32 *)arg;
}

Test(list, has_us)
{
	u32 self = (u32)getpid(), nobody = 0x7ffffff0;

	cr_assert_eq(proc_list(find_pid, &self), 1);
	cr_assert_eq(proc_list(find_pid, &nobody), 0);
}

/* ---- smaps ---- */

static int take_memory(struct proc_memory_state *s, const char *text, struct proc_memory *ret)
{
	char line[256];

	cr_assert_lt(strlen(text), sizeof(line));
	memcpy(line, text, strlen(text) + 1);
	return proc_memory_line(s, line, strlen(text), ret);
}

Test(smaps, memory_of_a_mapping_is_complete_when_the_next_one_begins)
{
	struct proc_memory_state s = {};
	struct proc_memory m = {};

	cr_assert_eq(take_memory(&s, "1000-5000 rw-p 00000000 fd:01 7   /a:b Rss: 9 kB", &m), 0);
	cr_assert_eq(take_memory(&s, "Size:                 16 kB", &m), 0);
	cr_assert_eq(take_memory(&s, "Rss:                  12 kB", &m), 0);
	cr_assert_eq(take_memory(&s, "Anonymous:             8 kB", &m), 0);
	cr_assert_eq(take_memory(&s, "AnonHugePages:         4 kB", &m), 0);
	cr_assert_eq(take_memory(&s, "ShmemPmdMapped:        2 kB", &m), 0);
	cr_assert_eq(take_memory(&s, "FilePmdMapped:         1 kB", &m), 0);
	cr_assert_eq(take_memory(&s, "VmFlags: rd wr mr mw me ac sd", &m), 0);
	cr_assert_eq(take_memory(&s, "5000-9000 rw-s 00000000 00:0f 8 /dev/hugepages/ht", &m), 1);
	cr_assert_eq(m.start, 0x1000);
	cr_assert_eq(m.end, 0x5000);
	cr_assert_eq(m.dev_major, 0xfd);
	cr_assert_eq(m.dev_minor, 1);
	cr_assert_eq(m.rss, 12 << 10);
	cr_assert_eq(m.anonymous, 8 << 10);
	cr_assert_eq(m.anonymous_huge, 4 << 10);
	cr_assert_eq(m.shared_huge, 2 << 10);
	cr_assert_eq(m.file_huge, 1 << 10);
	cr_assert_not(m.hugetlb);
	cr_assert_eq(take_memory(&s, "VmFlags: rd wr sh mr mw me ms ht sd", &m), 0);
	cr_assert_eq(take_memory(&s, "9000-a000 r--p 00000000 00:00 0 ", &m), 1);
	cr_assert(m.hugetlb);
	cr_assert_eq(m.rss, 0);
}

static int add_memory(void *arg, const struct proc_memory *m)
{
	*(u64 *)arg += m->rss;
	return 0;
}

Test(smaps, memory_of_this_process)
{
	u64 rss = 0;

	cr_assert_eq(proc_memory_read((u32)getpid(), add_memory, &rss), 0);
	cr_assert_gt(rss, 1 << 20);
	cr_assert_eq(proc_memory_read(0x7fffffff, add_memory, &rss), -ESRCH);
}
