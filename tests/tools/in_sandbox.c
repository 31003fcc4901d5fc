/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stands in the place of the server's process of `culprit up`, or of a parser of files: gives its
 * privileges away and goes behind the walls with the same calls, then tries what a hostile one
 * would. Prints a line for each attempt: its name, and "ok" or the name of the error.
 *
 *	in_sandbox UID DIR PID PORT FILE...
 *	in_sandbox --parser UID DIR PID PORT FILE...
 *	in_sandbox --open UID DIR PID PORT FILE...	as who started it, without walls
 *
 * UID and DIR as of the server; PID: a process of another user; PORT: somebody listens; FILEs that
 * are not the server's.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/perf_event.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/privilege.h"
#include "sandbox/sandbox.h"

static void tell(const char *name, long result)
{
	printf("%s %s\n", name, result >= 0 ? "ok" : strerrorname_np(errno));
}

static void try_files(const char *dir, char **files)
{
	char own[256], link[300], name[300];
	int fd;

	snprintf(own, sizeof(own), "%s/own", dir);
	snprintf(link, sizeof(link), "%s/link", dir);
	fd = open(own, O_RDWR | O_CREAT, 0600);
	tell("write-own", fd < 0 ? fd : write(fd, "x", 1));
	tell("read-own", open(own, O_RDONLY));
	tell("rename-own", rename(own, own));
	tell("execute-own", fchmod(fd, 0700) < 0 ? -1 : execv(own, (char *[]){own, NULL}));
	for (char **f = files; *f; f++) {
		snprintf(name, sizeof(name), "open:%s", *f);
		tell(name, open(*f, O_RDONLY));
		snprintf(name, sizeof(name), "change:%s", *f);
		tell(name, open(*f, O_WRONLY));
		(void)unlink(link);
		snprintf(name, sizeof(name), "link:%s", *f);
		tell(name, symlink(*f, link) < 0 ? -1 : open(link, O_RDONLY));
	}
}

static void try_processes(pid_t pid)
{
	char path[64], byte;
	struct iovec here = {&byte, 1}, there = {&byte, 1};
	long child;

	snprintf(path, sizeof(path), "/proc/%d/mem", pid);
	tell("proc-mem", open(path, O_RDONLY));
	snprintf(path, sizeof(path), "/proc/%d/maps", pid);
	tell("proc-maps", open(path, O_RDONLY));
	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	tell("proc-status", open(path, O_RDONLY));
	tell("ptrace", ptrace(PTRACE_ATTACH, pid, 0, 0));
	tell("process_vm_readv", syscall(SYS_process_vm_readv, pid, &here, 1, &there, 1, 0));
	tell("kill", kill(pid, 0));
	tell("pidfd_open", syscall(SYS_pidfd_open, pid, 0));
	tell("execve", execl("/bin/true", "true", NULL));
	child = fork();
	if (child == 0)
		_exit(0);
	tell("fork", child);
}

static void try_kernel(const char *dir)
{
	union bpf_attr map = {
		.map_type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 4, .max_entries = 1};
	struct perf_event_attr event = {.type = PERF_TYPE_SOFTWARE,
					.size = sizeof(event),
					.config = PERF_COUNT_SW_CPU_CLOCK};

	tell("bpf", syscall(SYS_bpf, BPF_MAP_CREATE, &map, sizeof(map)));
	tell("perf_event_open", syscall(SYS_perf_event_open, &event, -1, 0, -1, 0));
	tell("perf_event_open-self", syscall(SYS_perf_event_open, &event, 0, -1, -1, 0));
	tell("mount", mount("none", dir, "tmpfs", 0, NULL));
	tell("unshare-user", unshare(CLONE_NEWUSER));
	tell("unshare-mount", unshare(CLONE_NEWNS));
	tell("setns", setns(open("/proc/self/ns/net", O_RDONLY), 0));
	tell("chroot", chroot("/"));
	tell("setuid-root", setuid(0));
	tell("keyctl", syscall(SYS_keyctl, 0, -3, 0));
	tell("io_uring", syscall(SYS_io_uring_setup, 1, NULL));
	tell("userfaultfd", syscall(SYS_userfaultfd, 0));
	tell("dumpable", prctl(PR_SET_DUMPABLE, 1));
	tell("type-into-terminal", ioctl(STDERR_FILENO, TIOCSTI, "x"));
}

static void try_network(u16 port)
{
	struct sockaddr_in to = {.sin_family = AF_INET,
				 .sin_port = htons(port),
				 .sin_addr = {htonl(INADDR_LOOPBACK)}};
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	tell("socket", fd);
	tell("connect", connect(fd, (struct sockaddr *)&to, sizeof(to)));
	to.sin_port = 0;
	tell("bind", bind(socket(AF_INET, SOCK_STREAM, 0), (struct sockaddr *)&to, sizeof(to)));
	tell("socket-unix", socket(AF_UNIX, SOCK_STREAM, 0));
	tell("socket-packet", socket(AF_PACKET, SOCK_RAW, 0));
	tell("socket-udp", socket(AF_INET, SOCK_DGRAM, 0));
}

static void *return_arg(void *arg)
{
	return arg;
}

static void try_thread(void)
{
	pthread_t t;

	errno = pthread_create(&t, NULL, return_arg, NULL);
	tell("thread", errno ? -1 : pthread_join(t, NULL));
}

static int enter(const char *uid, const char *dir, bool is_parser)
{
	const struct sandbox_options of_parser = {.computes = true};
	const struct sandbox_options of_server = {
		.write = {dir}, .n_write = 1, .read = {"/usr"}, .n_read = 1};
	struct privilege_user u;
	struct diag d = {};
	int r = privilege_find_user(uid, &u, &d);

	if (r == 0)
		r = privilege_drop(&u, &d);
	if (r == 0)
		r = sandbox_enter(is_parser ? &of_parser : &of_server, &d);
	if (r < 0)
		fprintf(stderr, "in_sandbox: %s\n", d.text);
	return r;
}

int main(int argc, char **argv)
{
	bool open_air = argc > 1 && !strcmp(argv[1], "--open");
	bool is_parser = argc > 1 && !strcmp(argv[1], "--parser");

	argv += open_air || is_parser;
	argc -= open_air || is_parser;
	if (argc < 5 || (!open_air && enter(argv[1], argv[2], is_parser) < 0))
		return 2;
	setvbuf(stdout, NULL, _IONBF, 0);
	try_thread();
	try_files(argv[2], argv + 5);
	if (!open_air) {
		try_processes((pid_t)strtol(argv[3], NULL, 10));
		try_kernel(argv[2]);
	}
	try_network((u16)strtoul(argv[4], NULL, 10));
	return 0;
}
