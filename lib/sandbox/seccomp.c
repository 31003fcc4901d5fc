/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The filter of system calls. What is not in the table fails with EPERM, and clone3() and calls
 * that are newer than this table with ENOSYS, because glibc then uses what they replace.
 *
 * A process that computes only has a list of its own, which opens and starts nothing.
 *
 * Arguments are looked at where a call is harmless or not by them: new threads, but no new
 * processes or namespaces; signals to this process only; sockets to other machines only if it
 * connects().
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/vec.h"
#include "sandbox/sandbox.h"

#if defined(__x86_64__)
#define ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCH AUDIT_ARCH_AARCH64
#else
#error "name the architecture of the filter"
#endif

#define ANSWER(error) (SECCOMP_RET_ERRNO | ((error)&SECCOMP_RET_DATA))
#define NEW_NAMESPACES                                                                             \
	(CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER |             \
	 CLONE_NEWPID | CLONE_NEWNET)

/* For every process: what works on descriptors and memory that it has. */
static const u16 computing[] = {
	/* descriptors that it has */
	SYS_read,
	SYS_write,
	SYS_readv,
	SYS_writev,
	SYS_pread64,
	SYS_close,
	SYS_lseek,
	SYS_fstat,
	SYS_recvfrom,
	SYS_recvmsg,
	SYS_sendto,
	SYS_sendmsg,
	SYS_ppoll,
	/* memory */
	SYS_munmap,
	SYS_mremap,
	SYS_madvise,
	SYS_brk,
	/* time, this process */
	SYS_futex,
	SYS_set_robust_list,
	SYS_rseq,
	SYS_sched_yield,
	SYS_gettid,
	SYS_getpid,
	SYS_exit,
	SYS_exit_group,
	SYS_restart_syscall,
	SYS_rt_sigaction,
	SYS_rt_sigprocmask,
	SYS_rt_sigreturn,
	SYS_sigaltstack,
	SYS_clock_gettime,
	SYS_gettimeofday,
	SYS_getrandom,
#if defined(__x86_64__)
	SYS_poll,
#endif
};

/* For a server, besides. */
static const u16 serving[] = {
	/* files */
	SYS_pwrite64,
	SYS_preadv,
	SYS_pwritev,
	SYS_openat,
	SYS_openat2,
	SYS_newfstatat,
	SYS_statx,
	SYS_statfs,
	SYS_fstatfs,
	SYS_faccessat,
	SYS_faccessat2,
	SYS_readlinkat,
	SYS_getdents64,
	SYS_mkdirat,
	SYS_unlinkat,
	SYS_renameat,
	SYS_renameat2,
	SYS_ftruncate,
	SYS_fallocate,
	SYS_fsync,
	SYS_fdatasync,
	SYS_sync_file_range,
	SYS_flock,
	SYS_fcntl,
	SYS_fchmod,
	SYS_utimensat,
	SYS_umask,
	SYS_getcwd,
	SYS_fadvise64,
	SYS_readahead,
	SYS_copy_file_range,
	SYS_sendfile,
	SYS_splice,
	SYS_dup,
	SYS_dup3,
	SYS_pipe2,
	/* memory */
	SYS_mmap,
	SYS_mprotect,
	SYS_msync,
	SYS_mincore,
	SYS_membarrier,
	/* threads, time, this process */
	SYS_get_robust_list,
	SYS_sched_getaffinity,
	SYS_getcpu,
	SYS_getppid,
	SYS_getuid,
	SYS_geteuid,
	SYS_getgid,
	SYS_getegid,
	SYS_getrusage,
	SYS_getpriority,
	SYS_setpriority,
	SYS_times,
	SYS_sysinfo,
	SYS_uname,
	SYS_rt_sigtimedwait,
	SYS_rt_sigpending,
	SYS_setitimer,
	SYS_nanosleep,
	SYS_clock_nanosleep,
	SYS_clock_getres,
	SYS_timerfd_create,
	SYS_timerfd_settime,
	/* sockets that it has */
	SYS_eventfd2,
	SYS_epoll_create1,
	SYS_epoll_ctl,
	SYS_epoll_pwait,
	SYS_pselect6,
	SYS_accept,
	SYS_accept4,
	SYS_shutdown,
	SYS_getsockname,
	SYS_getpeername,
	SYS_getsockopt,
	SYS_setsockopt,
	SYS_recvmmsg,
	SYS_sendmmsg,
#if defined(__x86_64__)
	SYS_open,
	SYS_stat,
	SYS_lstat,
	SYS_access,
	SYS_readlink,
	SYS_mkdir,
	SYS_rmdir,
	SYS_unlink,
	SYS_rename,
	SYS_dup2,
	SYS_pipe,
	SYS_time,
	SYS_alarm,
	SYS_getrlimit,
	SYS_epoll_wait,
	SYS_select,
#endif
};

/* Calls that one value, or some, of an argument make harmless. */
static const struct checked {
	u16 call;
	u8 argument;
	u8 n;
	u32 values[6];
} checked[] = {
	/* Not TIOCSTI, which types into the terminal of standard error. */
	{SYS_ioctl, 1, 4, {FIONREAD, FIONBIO, TCGETS, TIOCGWINSZ}},
	/* malloc() names its memory. */
	{SYS_prctl, 0, 4, {PR_SET_NAME, PR_GET_NAME, 0x53564d41 /* PR_SET_VMA */, PR_GET_DUMPABLE}},
	{SYS_prlimit64, 0, 1, {0}},
};

/* For a process that only computes: no memory with code, no new files. */
static const struct checked narrow[] = {
	{SYS_mmap, 2, 3, {PROT_NONE, PROT_READ, PROT_READ | PROT_WRITE}},
	{SYS_mprotect, 2, 3, {PROT_NONE, PROT_READ, PROT_READ | PROT_WRITE}},
	{SYS_newfstatat, 3, 1, {AT_EMPTY_PATH}}, /* glibc's fstat() */
	{SYS_fcntl, 1, 2, {F_GETFD, F_GETFL}},
};

/* For a server that connects: for names, getaddrinfo() asks the kernel for addresses, too. */
static const u16 connecting[] = {SYS_connect, SYS_bind};
static const struct checked sockets = {SYS_socket, 0, 3, {AF_INET, AF_INET6, AF_NETLINK}};

struct program {
	vec(struct sock_filter) code;
	bool failed;
};

static void add(struct program *p, struct sock_filter f)
{
	if (vec_push(&p->code, f) < 0)
		p->failed = true;
}

static void load(struct program *p, size_t offset)
{
	add(p, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (u32)offset));
}

static void answer(struct program *p, u32 what)
{
	add(p, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, what));
}

/* Skips the next n instructions unless the loaded value is `value`. */
static void unless_equal_skip(struct program *p, u32 value, u8 n)
{
	add(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, n));
}

static void load_call(struct program *p)
{
	load(p, offsetof(struct seccomp_data, nr));
}

/* The low half: the arguments that are looked at have 32 bits for the kernel, too. */
static void load_argument(struct program *p, u32 i)
{
	load(p, offsetof(struct seccomp_data, args) + i * sizeof(u64));
}

static void allow_calls(struct program *p, const u16 *calls, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		unless_equal_skip(p, calls[i], 1);
		answer(p, SECCOMP_RET_ALLOW);
	}
}

static void allow_checked(struct program *p, const struct checked *c)
{
	unless_equal_skip(p, c->call, (u8)(2 + 2 * c->n));
	load_argument(p, c->argument);
	for (u32 i = 0; i < c->n; i++) {
		unless_equal_skip(p, c->values[i], 1);
		answer(p, SECCOMP_RET_ALLOW);
	}
	answer(p, ANSWER(EPERM));
}

/* A thread, not a process, in the namespaces of this one. */
static void allow_threads(struct program *p)
{
	unless_equal_skip(p, SYS_clone, 5);
	load_argument(p, 0);
	add(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, NEW_NAMESPACES, 2, 0));
	add(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_THREAD, 0, 1));
	answer(p, SECCOMP_RET_ALLOW);
	answer(p, ANSWER(EPERM));
	unless_equal_skip(p, SYS_clone3, 1);
	answer(p, ANSWER(ENOSYS));
}

/* abort() and pthread_kill() */
static void allow_own_signals(struct program *p)
{
	const struct checked own = {SYS_tgkill, 0, 1, {(u32)getpid()}};

	allow_checked(p, &own);
}

static void allow_of_server(struct program *p, bool connects)
{
	allow_calls(p, serving, ARRAY_SIZE(serving));
	if (connects)
		allow_calls(p, connecting, ARRAY_SIZE(connecting));
	/* Each of these leaves the number loaded unless it answers. */
	for (size_t i = 0; i < ARRAY_SIZE(checked); i++)
		allow_checked(p, &checked[i]);
	if (connects)
		allow_checked(p, &sockets);
	allow_threads(p);
}

static void write_program(struct program *p, const struct sandbox_options *o)
{
	load(p, offsetof(struct seccomp_data, arch));
	unless_equal_skip(p, ARCH, 1);
	add(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JA, 1, 0, 0));
	answer(p, SECCOMP_RET_KILL_PROCESS);
	load_call(p);
	allow_calls(p, computing, ARRAY_SIZE(computing));
	if (!o->computes)
		allow_of_server(p, o->connects);
	for (size_t i = 0; o->computes && i < ARRAY_SIZE(narrow); i++)
		allow_checked(p, &narrow[i]);
	allow_own_signals(p);
	/* Above the x32 calls of x86-64 there is nothing; newer calls have higher numbers. */
	add(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, SYS_faccessat2, 0, 1));
	answer(p, ANSWER(ENOSYS));
	answer(p, ANSWER(EPERM));
}

int sandbox_filter_calls(const struct sandbox_options *o, struct diag *reterr_diag)
{
	struct program p = {};
	struct sock_fprog all;
	int r;

	write_program(&p, o);
	all = (struct sock_fprog){(unsigned short)p.code.n, p.code.data};
	r = p.failed ? -ENOMEM : (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &all);
	r = r < 0 && !p.failed ? -errno : r;
	vec_deinit(&p.code);
	return r < 0 ? diag_set(reterr_diag, r, "cannot filter system calls with seccomp: %s",
				strerror(-r))
		     : 0;
}
