/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Constants of C's and the kernel's headers that are macros there, so that BTF does not have them.
 * bpftrace reads the headers that a script includes; culprit knows the names that scripts use, with
 * or without #include. The values are those of the machine that culprit was built for.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "trace/parse.h"

#define C(name)                                                                                    \
	{                                                                                          \
#name, name                                                                        \
	}

static const struct constant {
	const char *name;
	s64 value;
} constants[] = {
	/* errno.h */
	C(EPERM),
	C(ENOENT),
	C(ESRCH),
	C(EINTR),
	C(EIO),
	C(ENXIO),
	C(E2BIG),
	C(ENOEXEC),
	C(EBADF),
	C(ECHILD),
	C(EAGAIN),
	C(EWOULDBLOCK),
	C(ENOMEM),
	C(EACCES),
	C(EFAULT),
	C(EBUSY),
	C(EEXIST),
	C(EXDEV),
	C(ENODEV),
	C(ENOTDIR),
	C(EISDIR),
	C(EINVAL),
	C(ENFILE),
	C(EMFILE),
	C(ENOTTY),
	C(ETXTBSY),
	C(EFBIG),
	C(ENOSPC),
	C(ESPIPE),
	C(EROFS),
	C(EMLINK),
	C(EPIPE),
	C(EDOM),
	C(ERANGE),
	C(EDEADLK),
	C(ENAMETOOLONG),
	C(ENOLCK),
	C(ENOSYS),
	C(ENOTEMPTY),
	C(ELOOP),
	C(ENODATA),
	C(ETIME),
	C(EPROTO),
	C(EBADMSG),
	C(EOVERFLOW),
	C(ENOTSOCK),
	C(EMSGSIZE),
	C(EPROTONOSUPPORT),
	C(EOPNOTSUPP),
	C(EAFNOSUPPORT),
	C(EADDRINUSE),
	C(EADDRNOTAVAIL),
	C(ENETDOWN),
	C(ENETUNREACH),
	C(ECONNABORTED),
	C(ECONNRESET),
	C(ENOBUFS),
	C(EISCONN),
	C(ENOTCONN),
	C(ETIMEDOUT),
	C(ECONNREFUSED),
	C(EHOSTDOWN),
	C(EHOSTUNREACH),
	C(EALREADY),
	C(EINPROGRESS),
	C(ESTALE),
	C(EDQUOT),
	C(ECANCELED),
	/* signal.h */
	C(SIGHUP),
	C(SIGINT),
	C(SIGQUIT),
	C(SIGILL),
	C(SIGTRAP),
	C(SIGABRT),
	C(SIGBUS),
	C(SIGFPE),
	C(SIGKILL),
	C(SIGUSR1),
	C(SIGSEGV),
	C(SIGUSR2),
	C(SIGPIPE),
	C(SIGALRM),
	C(SIGTERM),
	C(SIGCHLD),
	C(SIGCONT),
	C(SIGSTOP),
	C(SIGTSTP),
	C(SIGTTIN),
	C(SIGTTOU),
	C(SIGURG),
	C(SIGXCPU),
	C(SIGXFSZ),
	C(SIGVTALRM),
	C(SIGPROF),
	C(SIGWINCH),
	C(SIGIO),
	C(SIGPWR),
	C(SIGSYS),
	/* sys/socket.h, linux/in.h */
	C(AF_UNSPEC),
	C(AF_UNIX),
	C(AF_INET),
	C(AF_INET6),
	C(AF_NETLINK),
	C(AF_PACKET),
	C(AF_VSOCK),
	C(SOL_SOCKET),
	/* fcntl.h */
	C(O_RDONLY),
	C(O_WRONLY),
	C(O_RDWR),
	C(O_ACCMODE),
	C(O_CREAT),
	C(O_EXCL),
	C(O_TRUNC),
	C(O_APPEND),
	C(O_NONBLOCK),
	C(O_DIRECTORY),
	C(O_NOFOLLOW),
	C(O_CLOEXEC),
	C(O_SYNC),
	C(O_DSYNC),
	C(AT_FDCWD),
	/* sys/stat.h */
	C(S_IFMT),
	C(S_IFREG),
	C(S_IFDIR),
	C(S_IFCHR),
	C(S_IFBLK),
	C(S_IFIFO),
	C(S_IFLNK),
	C(S_IFSOCK),
	/* sys/mman.h */
	C(PROT_READ),
	C(PROT_WRITE),
	C(PROT_EXEC),
	C(MAP_SHARED),
	C(MAP_PRIVATE),
	C(MAP_FIXED),
	C(MAP_ANONYMOUS),
	/* linux/sched.h, which programs cannot include */
	{"TASK_RUNNING", 0},
	{"TASK_INTERRUPTIBLE", 1},
	{"TASK_UNINTERRUPTIBLE", 2},
	{"__TASK_STOPPED", 4},
	{"__TASK_TRACED", 8},
};
#undef C

bool trace_header_constant(const char *name, s64 *ret)
{
	for (size_t i = 0; i < ARRAY_SIZE(constants); i++) {
		if (strcmp(constants[i].name, name) == 0) {
			*ret = constants[i].value;
			return true;
		}
	}
	return false;
}
