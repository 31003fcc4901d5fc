/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How each type of argument is printed. The memory of a piece is the process's own and may have
 * any bytes; it may also have changed since the kernel has read it.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/sched.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "agent/syscalls/internal.h"

/* ---- words ---- */

struct word {
	u64 value;
	const char *name;
};
#define WORD(name)                                                                                 \
	{                                                                                          \
		(u64)(name), #name                                                                 \
	}

static u64 value(const struct syscalls_argument *a)
{
	return a->call->args[a->i];
}

static const char *find_word(const struct word *words, size_t n, u64 v)
{
	for (size_t i = 0; i < n; i++)
		if (words[i].value == v)
			return words[i].name;
	return NULL;
}

static void put_word(const struct word *words, size_t n, u64 v, struct str *out)
{
	const char *name = find_word(words, n, v);

	if (name)
		str_puts(out, name);
	else
		str_printf(out, "%#llx", v);
}

/* Bits, `|` between them; those without a name as one number. `none` stands for 0. */
static void put_flags(const struct word *words, size_t n, u64 v, const char *none, struct str *out)
{
	const char *separator = "";

	for (size_t i = 0; i < n; i++) {
		if (!words[i].value || (v & words[i].value) != words[i].value)
			continue;
		str_printf(out, "%s%s", separator, words[i].name);
		v &= ~words[i].value;
		separator = "|";
	}
	if (v)
		str_printf(out, "%s%#llx", separator, v);
	else if (!*separator)
		str_puts(out, none);
}

#define PRINT_WORDS(function, ...)                                                                 \
	static void function(const struct syscalls_argument *a, struct str *out)                   \
	{                                                                                          \
		static const struct word words[] = {__VA_ARGS__};                                  \
                                                                                                   \
		put_word(words, ARRAY_SIZE(words), (u32)value(a), out);                            \
	}
#define PRINT_FLAGS(function, none, ...)                                                           \
	static void function(const struct syscalls_argument *a, struct str *out)                   \
	{                                                                                          \
		static const struct word words[] = {__VA_ARGS__};                                  \
                                                                                                   \
		put_flags(words, ARRAY_SIZE(words), (u32)value(a), none, out);                     \
	}

PRINT_WORDS(put_family, WORD(AF_UNSPEC), WORD(AF_UNIX), WORD(AF_INET), WORD(AF_INET6),
	    WORD(AF_NETLINK), WORD(AF_PACKET), WORD(AF_VSOCK), WORD(AF_ALG), WORD(AF_BLUETOOTH))
PRINT_WORDS(put_level, WORD(SOL_SOCKET), {IPPROTO_IP, "SOL_IP"}, {IPPROTO_TCP, "SOL_TCP"},
	    {IPPROTO_UDP, "SOL_UDP"}, {IPPROTO_IPV6, "SOL_IPV6"}, WORD(SOL_NETLINK))
PRINT_WORDS(put_shut, WORD(SHUT_RD), WORD(SHUT_WR), WORD(SHUT_RDWR))
PRINT_WORDS(put_whence, WORD(SEEK_SET), WORD(SEEK_CUR), WORD(SEEK_END), WORD(SEEK_DATA),
	    WORD(SEEK_HOLE))
PRINT_WORDS(put_epoll_op, WORD(EPOLL_CTL_ADD), WORD(EPOLL_CTL_DEL), WORD(EPOLL_CTL_MOD))
PRINT_WORDS(put_sig_how, WORD(SIG_BLOCK), WORD(SIG_UNBLOCK), WORD(SIG_SETMASK))
PRINT_WORDS(put_madvise, WORD(MADV_NORMAL), WORD(MADV_RANDOM), WORD(MADV_SEQUENTIAL),
	    WORD(MADV_WILLNEED), WORD(MADV_DONTNEED), WORD(MADV_FREE), WORD(MADV_REMOVE),
	    WORD(MADV_DONTFORK), WORD(MADV_DOFORK), WORD(MADV_MERGEABLE), WORD(MADV_UNMERGEABLE),
	    WORD(MADV_HUGEPAGE), WORD(MADV_NOHUGEPAGE), WORD(MADV_DONTDUMP), WORD(MADV_DODUMP),
	    WORD(MADV_COLD), WORD(MADV_PAGEOUT))
PRINT_WORDS(put_fcntl, WORD(F_DUPFD), WORD(F_GETFD), WORD(F_SETFD), WORD(F_GETFL), WORD(F_SETFL),
	    WORD(F_GETLK), WORD(F_SETLK), WORD(F_SETLKW), WORD(F_SETOWN), WORD(F_GETOWN),
	    WORD(F_SETSIG), WORD(F_GETSIG), WORD(F_SETLEASE), WORD(F_GETLEASE), WORD(F_NOTIFY),
	    WORD(F_DUPFD_CLOEXEC), WORD(F_SETPIPE_SZ), WORD(F_GETPIPE_SZ), WORD(F_ADD_SEALS),
	    WORD(F_GET_SEALS), WORD(F_OFD_GETLK), WORD(F_OFD_SETLK), WORD(F_OFD_SETLKW))
PRINT_WORDS(put_clock, WORD(CLOCK_REALTIME), WORD(CLOCK_MONOTONIC), WORD(CLOCK_PROCESS_CPUTIME_ID),
	    WORD(CLOCK_THREAD_CPUTIME_ID), WORD(CLOCK_MONOTONIC_RAW), WORD(CLOCK_REALTIME_COARSE),
	    WORD(CLOCK_MONOTONIC_COARSE), WORD(CLOCK_BOOTTIME), WORD(CLOCK_REALTIME_ALARM),
	    WORD(CLOCK_BOOTTIME_ALARM), WORD(CLOCK_TAI))
PRINT_WORDS(put_limit, WORD(RLIMIT_CPU), WORD(RLIMIT_FSIZE), WORD(RLIMIT_DATA), WORD(RLIMIT_STACK),
	    WORD(RLIMIT_CORE), WORD(RLIMIT_RSS), WORD(RLIMIT_NPROC), WORD(RLIMIT_NOFILE),
	    WORD(RLIMIT_MEMLOCK), WORD(RLIMIT_AS), WORD(RLIMIT_LOCKS), WORD(RLIMIT_SIGPENDING),
	    WORD(RLIMIT_MSGQUEUE), WORD(RLIMIT_NICE), WORD(RLIMIT_RTPRIO), WORD(RLIMIT_RTTIME))
PRINT_WORDS(put_prctl, WORD(PR_SET_PDEATHSIG), WORD(PR_GET_PDEATHSIG), WORD(PR_GET_DUMPABLE),
	    WORD(PR_SET_DUMPABLE), WORD(PR_GET_KEEPCAPS), WORD(PR_SET_KEEPCAPS), WORD(PR_SET_NAME),
	    WORD(PR_GET_NAME), WORD(PR_GET_SECCOMP), WORD(PR_SET_SECCOMP), WORD(PR_CAPBSET_READ),
	    WORD(PR_CAPBSET_DROP), WORD(PR_SET_TIMERSLACK), WORD(PR_GET_TIMERSLACK),
	    WORD(PR_SET_MM), WORD(PR_SET_CHILD_SUBREAPER), WORD(PR_GET_CHILD_SUBREAPER),
	    WORD(PR_SET_NO_NEW_PRIVS), WORD(PR_GET_NO_NEW_PRIVS), WORD(PR_SET_THP_DISABLE),
	    WORD(PR_GET_THP_DISABLE), WORD(PR_CAP_AMBIENT), WORD(PR_SET_VMA), WORD(PR_SET_PTRACER))

PRINT_FLAGS(put_protection, "PROT_NONE", WORD(PROT_READ), WORD(PROT_WRITE), WORD(PROT_EXEC),
	    WORD(PROT_GROWSDOWN), WORD(PROT_GROWSUP))
PRINT_FLAGS(put_mremap, "0", WORD(MREMAP_MAYMOVE), WORD(MREMAP_FIXED), WORD(MREMAP_DONTUNMAP))
PRINT_FLAGS(put_access, "F_OK", WORD(R_OK), WORD(W_OK), WORD(X_OK))
PRINT_FLAGS(put_wait, "0", WORD(WNOHANG), WORD(WUNTRACED), WORD(WCONTINUED), WORD(WNOWAIT),
	    WORD(WEXITED), {0x20000000, "__WNOTHREAD"}, {0x40000000, "__WALL"},
	    {0x80000000, "__WCLONE"})
PRINT_FLAGS(put_message_flags, "0", WORD(MSG_OOB), WORD(MSG_PEEK), WORD(MSG_DONTROUTE),
	    WORD(MSG_CTRUNC), WORD(MSG_TRUNC), WORD(MSG_DONTWAIT), WORD(MSG_EOR), WORD(MSG_WAITALL),
	    WORD(MSG_CONFIRM), WORD(MSG_ERRQUEUE), WORD(MSG_NOSIGNAL), WORD(MSG_MORE),
	    WORD(MSG_WAITFORONE), WORD(MSG_FASTOPEN), WORD(MSG_CMSG_CLOEXEC))
PRINT_FLAGS(put_socket_flags, "0", WORD(SOCK_CLOEXEC), WORD(SOCK_NONBLOCK))
PRINT_FLAGS(put_at_flags, "0", WORD(AT_SYMLINK_NOFOLLOW), WORD(AT_REMOVEDIR),
	    WORD(AT_SYMLINK_FOLLOW), WORD(AT_NO_AUTOMOUNT), WORD(AT_EMPTY_PATH),
	    {0x2000, "AT_STATX_FORCE_SYNC"}, {0x4000, "AT_STATX_DONT_SYNC"})

static const struct word clone_words[] = {
	WORD(CLONE_VM),
	WORD(CLONE_FS),
	WORD(CLONE_FILES),
	WORD(CLONE_SIGHAND),
	WORD(CLONE_PIDFD),
	WORD(CLONE_PTRACE),
	WORD(CLONE_VFORK),
	WORD(CLONE_PARENT),
	WORD(CLONE_THREAD),
	WORD(CLONE_NEWNS),
	WORD(CLONE_SYSVSEM),
	WORD(CLONE_SETTLS),
	WORD(CLONE_PARENT_SETTID),
	WORD(CLONE_CHILD_CLEARTID),
	WORD(CLONE_DETACHED),
	WORD(CLONE_UNTRACED),
	WORD(CLONE_CHILD_SETTID),
	WORD(CLONE_NEWCGROUP),
	WORD(CLONE_NEWUTS),
	WORD(CLONE_NEWIPC),
	WORD(CLONE_NEWUSER),
	WORD(CLONE_NEWPID),
	WORD(CLONE_NEWNET),
	WORD(CLONE_IO),
	{0x100000000ULL, "CLONE_CLEAR_SIGHAND"},
	{0x200000000ULL, "CLONE_INTO_CGROUP"},
};

static const struct word open_words[] = {
	WORD(O_CREAT),
	WORD(O_EXCL),
	{__O_TMPFILE, "O_TMPFILE"},
	WORD(O_NOCTTY),
	WORD(O_TRUNC),
	WORD(O_APPEND),
	WORD(O_NONBLOCK),
	WORD(O_SYNC),
	WORD(O_DSYNC),
	WORD(O_DIRECT),
	WORD(O_DIRECTORY),
	WORD(O_NOFOLLOW),
	WORD(O_NOATIME),
	WORD(O_CLOEXEC),
	WORD(O_PATH),
	{0100000, "O_LARGEFILE"},
};

static const struct word map_words[] = {
	WORD(MAP_ANONYMOUS),	   WORD(MAP_FIXED),  WORD(MAP_GROWSDOWN), WORD(MAP_DENYWRITE),
	WORD(MAP_EXECUTABLE),	   WORD(MAP_LOCKED), WORD(MAP_NORESERVE), WORD(MAP_POPULATE),
	WORD(MAP_NONBLOCK),	   WORD(MAP_STACK),  WORD(MAP_HUGETLB),	  WORD(MAP_SYNC),
	WORD(MAP_FIXED_NOREPLACE),
};

static const struct word futex_words[] = {
	WORD(FUTEX_WAIT),	    WORD(FUTEX_WAKE),	     WORD(FUTEX_FD),
	WORD(FUTEX_REQUEUE),	    WORD(FUTEX_CMP_REQUEUE), WORD(FUTEX_WAKE_OP),
	WORD(FUTEX_LOCK_PI),	    WORD(FUTEX_UNLOCK_PI),   WORD(FUTEX_TRYLOCK_PI),
	WORD(FUTEX_WAIT_BITSET),    WORD(FUTEX_WAKE_BITSET), WORD(FUTEX_WAIT_REQUEUE_PI),
	WORD(FUTEX_CMP_REQUEUE_PI), {13, "FUTEX_LOCK_PI2"},
};

/* ---- numbers ---- */

static void put_int(const struct syscalls_argument *a, struct str *out)
{
	u64 v = value(a);

	/* Most are int; what does not fit is long, and was passed as such. */
	if (v >> 32 == 0)
		str_printf(out, "%d", (int)v);
	else
		str_printf(out, "%lld", (long long)v);
}

static void put_size(const struct syscalls_argument *a, struct str *out)
{
	str_printf(out, "%llu", value(a));
}

static void put_hex(const struct syscalls_argument *a, struct str *out)
{
	str_printf(out, value(a) ? "%#llx" : "0", value(a));
}

static void put_address(u64 v, struct str *out)
{
	if (v)
		str_printf(out, "%#llx", v);
	else
		str_puts(out, "NULL");
}

static void put_pointer(const struct syscalls_argument *a, struct str *out)
{
	put_address(value(a), out);
}

static void put_fd(const struct syscalls_argument *a, struct str *out)
{
	str_printf(out, "%d", (int)value(a));
}

static void put_at_fd(const struct syscalls_argument *a, struct str *out)
{
	if ((int)value(a) == AT_FDCWD)
		str_puts(out, "AT_FDCWD");
	else
		put_fd(a, out);
}

static void put_mode(const struct syscalls_argument *a, struct str *out)
{
	str_printf(out, "0%03o", (u32)value(a));
}

static void put_open_flags(const struct syscalls_argument *a, struct str *out)
{
	static const char *const modes[] = {"O_RDONLY", "O_WRONLY", "O_RDWR", "O_ACCMODE"};
	u64 v = (u32)value(a);

	str_puts(out, modes[v & O_ACCMODE]);
	v &= ~(u64)O_ACCMODE;
	if (!v)
		return;
	str_putc(out, '|');
	put_flags(open_words, ARRAY_SIZE(open_words), v, "", out);
}

static void put_pipe_flags(const struct syscalls_argument *a, struct str *out)
{
	put_flags(open_words, ARRAY_SIZE(open_words), (u32)value(a), "0", out);
}

static void put_map_flags(const struct syscalls_argument *a, struct str *out)
{
	static const char *const kinds[] = {"MAP_FILE", "MAP_SHARED", "MAP_PRIVATE",
					    "MAP_SHARED_VALIDATE"};
	u64 v = value(a), rest = v & ~15ULL;

	if ((v & 15) < ARRAY_SIZE(kinds))
		str_puts(out, kinds[v & 15]);
	else
		str_printf(out, "%#llx", v & 15);
	if (!rest)
		return;
	str_putc(out, '|');
	put_flags(map_words, ARRAY_SIZE(map_words), rest, "", out);
}

static void put_socket_type(const struct syscalls_argument *a, struct str *out)
{
	static const struct word types[] = {WORD(SOCK_STREAM), WORD(SOCK_DGRAM), WORD(SOCK_RAW),
					    WORD(SOCK_RDM), WORD(SOCK_SEQPACKET)};
	static const struct word flags[] = {WORD(SOCK_CLOEXEC), WORD(SOCK_NONBLOCK)};
	u64 v = (u32)value(a);

	put_word(types, ARRAY_SIZE(types), v & 15, out);
	if (!(v & ~15ULL))
		return;
	str_putc(out, '|');
	put_flags(flags, ARRAY_SIZE(flags), v & ~15ULL, "", out);
}

static void put_futex(const struct syscalls_argument *a, struct str *out)
{
	u64 v = (u32)value(a);

	put_word(futex_words, ARRAY_SIZE(futex_words), v & FUTEX_CMD_MASK, out);
	if (v & FUTEX_PRIVATE_FLAG)
		str_puts(out, "_PRIVATE");
	if (v & FUTEX_CLOCK_REALTIME)
		str_puts(out, "|FUTEX_CLOCK_REALTIME");
}

static void put_signal_number(u32 number, struct str *out)
{
	const char *name = sigabbrev_np((int)number);

	if (name)
		str_printf(out, "SIG%s", name);
	else if (number >= 32 && number <= 64)
		str_printf(out, "SIGRT_%u", number - 32);
	else
		str_printf(out, "%u", number);
}

static void put_signal(const struct syscalls_argument *a, struct str *out)
{
	put_signal_number((u32)value(a), out);
}

static void put_clone_flags(const struct syscalls_argument *a, struct str *out)
{
	u64 v = value(a), number = v & 255;

	put_flags(clone_words, ARRAY_SIZE(clone_words), v & ~255ULL, number ? "" : "0", out);
	if (number && v & ~255ULL)
		str_putc(out, '|');
	if (number)
		put_signal_number((u32)number, out);
}

/* ---- memory ---- */

static size_t available(const struct syscalls_argument *a)
{
	return a->piece && a->piece->n > 0 ? MIN((size_t)a->piece->n, sizeof(a->piece->bytes)) : 0;
}

/* A member of a struct that begins `at` bytes into the piece; false: it was not read. */
static bool member(const struct syscalls_argument *a, size_t at, void *ret, size_t n)
{
	if (at + n > available(a))
		return false;
	memcpy(ret, a->piece->bytes + at, n);
	return true;
}

void syscalls_quote(const u8 *bytes, size_t n, bool more, struct str *out)
{
	static const char plain[] = "\a\b\t\n\v\f\r\"\\", escaped[] = "abtnvfr\"\\";

	str_putc(out, '"');
	for (size_t i = 0; i < n; i++) {
		const char *e = bytes[i] ? strchr(plain, bytes[i]) : NULL;

		if (e)
			str_printf(out, "\\%c", escaped[e - plain]);
		else if (bytes[i] >= 32 && bytes[i] < 127)
			str_putc(out, (char)bytes[i]);
		else if (i + 1 < n && bytes[i + 1] >= '0' && bytes[i + 1] <= '9')
			str_printf(out, "\\%03o", bytes[i]);
		else
			str_printf(out, "\\%o", bytes[i]);
	}
	str_puts(out, more ? "\"..." : "\"");
}

static void put_path(const struct syscalls_argument *a, struct str *out)
{
	size_t n = available(a), length = n ? strnlen((const char *)a->piece->bytes, n) : 0;

	if (!n)
		put_pointer(a, out);
	else
		syscalls_quote(a->piece->bytes, length, n == SYSCALLS_PIECE_BYTES, out);
}

/* `total` bytes, of which the piece has the first. */
static void put_bytes(const struct syscalls_argument *a, size_t at, u64 total, struct str *out)
{
	size_t n = available(a) - at;

	syscalls_quote(a->piece->bytes + at, MIN((u64)n, total), total > n, out);
}

static void put_data_in(const struct syscalls_argument *a, struct str *out)
{
	u64 total = a->i < 5 ? a->call->args[a->i + 1] : 0;

	if (!a->piece || a->piece->n < 0)
		put_pointer(a, out);
	else
		put_bytes(a, 0, total, out);
}

static void put_data_out(const struct syscalls_argument *a, struct str *out)
{
	if (!a->piece || a->piece->n < 0)
		put_pointer(a, out);
	else
		put_bytes(a, 0, (u64)a->call->result, out);
}

static void put_argv(const struct syscalls_argument *a, struct str *out)
{
	size_t n = available(a) / SYSCALLS_ARGV_BYTES;

	if (!n) {
		put_pointer(a, out);
		return;
	}
	str_putc(out, '[');
	for (size_t i = 0; i < n; i++) {
		const char *word = (const char *)a->piece->bytes + i * SYSCALLS_ARGV_BYTES;
		size_t length = strnlen(word, SYSCALLS_ARGV_BYTES);

		str_puts(out, i ? ", " : "");
		syscalls_quote((const u8 *)word, length, length >= SYSCALLS_ARGV_BYTES - 1, out);
	}
	str_puts(out, n == SYSCALLS_ARGV ? ", ...]" : "]");
}

/* The buffer that an iovec tells at `iov`, with its first bytes at `at`. */
static void put_buffer(const struct syscalls_argument *a, size_t iov, size_t at, u64 limit,
		       struct str *out)
{
	u64 base = 0, n = 0;

	if (!member(a, iov, &base, 8) || !member(a, iov + 8, &n, 8))
		return;
	str_puts(out, "{iov_base=");
	if (available(a) > at)
		put_bytes(a, at, MIN(n, limit), out);
	else
		put_address(base, out);
	str_printf(out, ", iov_len=%llu}", n);
}

static u64 buffer_limit(const struct syscalls_argument *a, bool is_output)
{
	return is_output ? (u64)MAX(a->call->result, 0) : ~0ULL;
}

static void put_iovecs(const struct syscalls_argument *a, bool is_output, struct str *out)
{
	u64 n = a->i < 5 ? a->call->args[a->i + 1] : 0;

	if (!available(a)) {
		put_pointer(a, out);
		return;
	}
	str_putc(out, '[');
	for (u32 i = 0; i < MIN(n, (u64)SYSCALLS_IOVEC_N); i++) {
		str_puts(out, i ? ", " : "");
		put_buffer(a, (size_t)i * 16, i ? SYSCALLS_PIECE_BYTES : SYSCALLS_IOVEC_N * 16,
			   buffer_limit(a, is_output), out);
	}
	str_puts(out, n > SYSCALLS_IOVEC_N ? ", ...]" : "]");
}

static void put_iovecs_in(const struct syscalls_argument *a, struct str *out)
{
	put_iovecs(a, false, out);
}

static void put_iovecs_out(const struct syscalls_argument *a, struct str *out)
{
	put_iovecs(a, true, out);
}

static void put_message(const struct syscalls_argument *a, bool is_output, struct str *out)
{
	u64 name, n;
	u32 name_bytes;

	if (!member(a, 0, &name, 8) || !member(a, 8, &name_bytes, 4) || !member(a, 24, &n, 8)) {
		put_pointer(a, out);
		return;
	}
	str_puts(out, "{msg_name=");
	put_address(name, out);
	str_printf(out, ", msg_namelen=%u, msg_iov=[", name_bytes);
	if (n)
		put_buffer(a, 56, 72, buffer_limit(a, is_output), out);
	str_printf(out, "%s], msg_iovlen=%llu}", n > 1 ? ", ..." : "", n);
}

static void put_message_in(const struct syscalls_argument *a, struct str *out)
{
	put_message(a, false, out);
}

static void put_message_out(const struct syscalls_argument *a, struct str *out)
{
	put_message(a, true, out);
}

static void put_unix_address(const struct syscalls_argument *a, struct str *out)
{
	size_t at = offsetof(struct sockaddr_un, sun_path), n = available(a) - at;
	const u8 *path = a->piece->bytes + at;

	str_puts(out, "{sa_family=AF_UNIX");
	if (n && path[0]) {
		str_puts(out, ", sun_path=");
		syscalls_quote(path, strnlen((const char *)path, n), false, out);
	} else if (n > 1) { /* a name that is not in the file system */
		str_puts(out, ", sun_path=@");
		syscalls_quote(path + 1, n - 1, false, out);
	}
	str_putc(out, '}');
}

static void put_address_of_socket(const struct syscalls_argument *a, struct str *out)
{
	struct sockaddr_in6 six = {};
	struct sockaddr_in four = {};
	char text[INET6_ADDRSTRLEN];
	u16 family;

	if (!member(a, 0, &family, 2)) {
		put_pointer(a, out);
	} else if (family == AF_UNIX) {
		put_unix_address(a, out);
	} else if (family == AF_INET && member(a, 0, &four, 8)) {
		str_printf(out,
			   "{sa_family=AF_INET, sin_port=htons(%u), sin_addr=inet_addr(\"%s\")}",
			   ntohs(four.sin_port),
			   inet_ntop(AF_INET, &four.sin_addr, text, sizeof(text)));
	} else if (family == AF_INET6 && member(a, 0, &six, 24)) {
		str_printf(out,
			   "{sa_family=AF_INET6, sin6_port=htons(%u), "
			   "inet_pton(AF_INET6, \"%s\", &sin6_addr)}",
			   ntohs(six.sin6_port),
			   inet_ntop(AF_INET6, &six.sin6_addr, text, sizeof(text)));
	} else {
		str_printf(out, "{sa_family=%u, ...}", family);
	}
}

static void put_time(const struct syscalls_argument *a, struct str *out)
{
	s64 t[2];

	if (member(a, 0, t, sizeof(t)))
		str_printf(out, "{tv_sec=%lld, tv_nsec=%lld}", (long long)t[0], (long long)t[1]);
	else
		put_pointer(a, out);
}

static void put_type_of_file(u32 mode, struct str *out)
{
	static const struct word types[] = {WORD(S_IFREG), WORD(S_IFDIR), WORD(S_IFCHR),
					    WORD(S_IFBLK), WORD(S_IFIFO), WORD(S_IFLNK),
					    WORD(S_IFSOCK)};

	put_word(types, ARRAY_SIZE(types), mode & S_IFMT, out);
	str_printf(out, "|0%03o", mode & 07777);
}

static void put_stat(const struct syscalls_argument *a, struct str *out)
{
	struct stat s;

	if (!member(a, 0, &s, sizeof(s))) {
		put_pointer(a, out);
		return;
	}
	str_puts(out, "{st_mode=");
	put_type_of_file(s.st_mode, out);
	str_printf(out, ", st_size=%lld, ...}", (long long)s.st_size);
}

static void put_descriptors(const struct syscalls_argument *a, struct str *out)
{
	int fds[2];

	if (member(a, 0, fds, sizeof(fds)))
		str_printf(out, "[%d, %d]", fds[0], fds[1]);
	else
		put_pointer(a, out);
}

static void put_events(u32 events, struct str *out)
{
	static const struct word words[] = {
		WORD(EPOLLIN),	    WORD(EPOLLPRI),   WORD(EPOLLOUT),	    WORD(EPOLLERR),
		WORD(EPOLLHUP),	    WORD(EPOLLRDHUP), WORD(EPOLLEXCLUSIVE), WORD(EPOLLWAKEUP),
		WORD(EPOLLONESHOT), WORD(EPOLLET)};

	/* These are of enum type: EPOLLET is negative as a u64. */
	struct word narrow[ARRAY_SIZE(words)];

	for (size_t i = 0; i < ARRAY_SIZE(words); i++)
		narrow[i] = (struct word){(u32)words[i].value, words[i].name};
	put_flags(narrow, ARRAY_SIZE(narrow), events, "0", out);
}

static bool put_epoll_event_at(const struct syscalls_argument *a, size_t at, struct str *out)
{
	struct epoll_event e;

	if (!member(a, at, &e, sizeof(e)))
		return false;
	str_puts(out, "{events=");
	put_events(e.events, out);
	str_printf(out, ", data=%#llx}", (unsigned long long)e.data.u64);
	return true;
}

static void put_epoll_event(const struct syscalls_argument *a, struct str *out)
{
	if (!put_epoll_event_at(a, 0, out))
		put_pointer(a, out);
}

#define SHOWN 4u /* elements of an array */

static void put_epoll_events(const struct syscalls_argument *a, struct str *out)
{
	s64 n = a->call->result;

	if (!a->piece || a->piece->n < 0) {
		put_pointer(a, out);
		return;
	}
	str_putc(out, '[');
	for (s64 i = 0; i < MIN(n, (s64)SHOWN); i++) {
		str_puts(out, i ? ", " : "");
		if (!put_epoll_event_at(a, (size_t)i * sizeof(struct epoll_event), out))
			break;
	}
	str_puts(out, n > (s64)SHOWN ? ", ...]" : "]");
}

static void put_poll(const struct syscalls_argument *a, struct str *out)
{
	static const struct word words[] = {WORD(POLLIN),   WORD(POLLPRI), WORD(POLLOUT),
					    WORD(POLLERR),  WORD(POLLHUP), WORD(POLLNVAL),
					    WORD(POLLRDHUP)};
	u64 n = a->i < 5 ? a->call->args[a->i + 1] : 0;
	struct pollfd p;

	if (!a->piece || a->piece->n < 0) {
		put_pointer(a, out);
		return;
	}
	str_putc(out, '[');
	for (u64 i = 0; i < MIN((u64)n, (u64)SHOWN) && member(a, i * sizeof(p), &p, sizeof(p));
	     i++) {
		str_printf(out, "%s{fd=%d, events=", i ? ", " : "", p.fd);
		put_flags(words, ARRAY_SIZE(words), (u16)p.events, "0", out);
		if (p.revents && a->call->result > 0) {
			str_puts(out, ", revents=");
			put_flags(words, ARRAY_SIZE(words), (u16)p.revents, "0", out);
		}
		str_putc(out, '}');
	}
	str_puts(out, n > (s64)SHOWN ? ", ...]" : "]");
}

static void put_wait_status(const struct syscalls_argument *a, struct str *out)
{
	int status;

	/* With the result 0, no child has changed its state, and nothing was written. */
	if (a->call->result <= 0 || !member(a, 0, &status, sizeof(status))) {
		put_pointer(a, out);
	} else if (WIFEXITED(status)) {
		str_printf(out, "[{WIFEXITED(s) && WEXITSTATUS(s) == %d}]", WEXITSTATUS(status));
	} else if (WIFSIGNALED(status)) {
		str_puts(out, "[{WIFSIGNALED(s) && WTERMSIG(s) == ");
		put_signal_number((u32)WTERMSIG(status), out);
		str_puts(out, "}]");
	} else {
		str_printf(out, "[%#x]", (u32)status);
	}
}

static void put_signal_set(const struct syscalls_argument *a, struct str *out)
{
	const char *separator = "";
	u64 set;

	if (!member(a, 0, &set, sizeof(set))) {
		put_pointer(a, out);
		return;
	}
	str_puts(out, set == ~0ULL ? "~[" : "[");
	for (u32 i = 0; i < 64 && set != ~0ULL; i++) {
		if (!(set >> i & 1))
			continue;
		str_puts(out, separator);
		put_signal_number(i + 1, out);
		separator = " ";
	}
	str_putc(out, ']');
}

static void put_limits(const struct syscalls_argument *a, struct str *out)
{
	static const char *const names[] = {"rlim_cur", "rlim_max"};
	u64 limits[2];

	if (!member(a, 0, limits, sizeof(limits))) {
		put_pointer(a, out);
		return;
	}
	for (u32 i = 0; i < 2; i++) {
		str_printf(out, "%s%s=", i ? ", " : "{", names[i]);
		if (limits[i] == ~0ULL)
			str_puts(out, "RLIM64_INFINITY");
		else
			str_printf(out, "%llu", limits[i]);
	}
	str_putc(out, '}');
}

static void put_clone_arguments(const struct syscalls_argument *a, struct str *out)
{
	u64 flags, exit_signal = 0;

	if (!member(a, 0, &flags, sizeof(flags))) {
		put_pointer(a, out);
		return;
	}
	str_puts(out, "{flags=");
	put_flags(clone_words, ARRAY_SIZE(clone_words), flags, "0", out);
	if (member(a, 32, &exit_signal, sizeof(exit_signal)) && exit_signal) {
		str_puts(out, ", exit_signal=");
		put_signal_number((u32)exit_signal, out);
	}
	str_puts(out, ", ...}");
}

/* struct open_how, linux/openat2.h */
static void put_open_how(const struct syscalls_argument *a, struct str *out)
{
	u64 how[3];

	if (!member(a, 0, how, sizeof(how))) {
		put_pointer(a, out);
		return;
	}
	str_printf(out, "{flags=%#llx, mode=0%llo, resolve=%#llx}", how[0], how[1], how[2]);
}

/* ---- the types ---- */

#define IN_MEMORY(bytes)                                                                           \
	{                                                                                          \
		.kind = SYSCALLS_MEMORY, .unit = (bytes), .max = (bytes)                           \
	}
#define OUT_MEMORY(bytes)                                                                          \
	{                                                                                          \
		.kind = SYSCALLS_MEMORY, .unit = (bytes), .max = (bytes), .at_end = 1              \
	}

static const struct syscalls_type types[] = {
	{"int", put_int, {}},
	{"size", put_size, {}},
	{"val", put_int, {}},
	{"hex", put_hex, {}},
	{"ptr", put_pointer, {}},
	{"fd", put_fd, {}},
	{"atfd", put_at_fd, {}},
	{"mode", put_mode, {}},
	{"omode", put_mode, {}},
	{"oflags", put_open_flags, {}},
	{"pipeflags", put_pipe_flags, {}},
	{"access", put_access, {}},
	{"atflags", put_at_flags, {}},
	{"whence", put_whence, {}},
	{"fcntl", put_fcntl, {}},
	{"prot", put_protection, {}},
	{"mapflags", put_map_flags, {}},
	{"mremap", put_mremap, {}},
	{"madvise", put_madvise, {}},
	{"family", put_family, {}},
	{"socktype", put_socket_type, {}},
	{"sockflags", put_socket_flags, {}},
	{"msgflags", put_message_flags, {}},
	{"sol", put_level, {}},
	{"shut", put_shut, {}},
	{"futexop", put_futex, {}},
	{"clone", put_clone_flags, {}},
	{"clock", put_clock, {}},
	{"waitopts", put_wait, {}},
	{"epollop", put_epoll_op, {}},
	{"signal", put_signal, {}},
	{"sighow", put_sig_how, {}},
	{"rlimit", put_limit, {}},
	{"prctl", put_prctl, {}},
	{"path", put_path, {.kind = SYSCALLS_STRING}},
	{"argv", put_argv, {.kind = SYSCALLS_ARGV_STRINGS}},
	{"wdata",
	 put_data_in,
	 {.kind = SYSCALLS_MEMORY, .count = SYSCALLS_BY_NEXT, .unit = 1, .max = SYSCALLS_DATA}},
	{"rdata",
	 put_data_out,
	 {.kind = SYSCALLS_MEMORY,
	  .count = SYSCALLS_BY_RESULT,
	  .unit = 1,
	  .max = SYSCALLS_DATA,
	  .at_end = 1}},
	{"wiov", put_iovecs_in, {.kind = SYSCALLS_IOVEC}},
	{"riov", put_iovecs_out, {.kind = SYSCALLS_IOVEC, .at_end = 1}},
	{"wmsg", put_message_in, {.kind = SYSCALLS_MSGHDR}},
	{"rmsg", put_message_out, {.kind = SYSCALLS_MSGHDR, .at_end = 1}},
	{"sockaddr",
	 put_address_of_socket,
	 {.kind = SYSCALLS_MEMORY, .count = SYSCALLS_BY_NEXT, .unit = 1, .max = 128}},
	{"rsockaddr",
	 put_address_of_socket,
	 {.kind = SYSCALLS_MEMORY,
	  .count = SYSCALLS_BY_POINTED,
	  .unit = 1,
	  .max = 128,
	  .at_end = 1}},
	{"timespec", put_time, IN_MEMORY(16)},
	{"rtimespec", put_time, OUT_MEMORY(16)},
	{"rstat", put_stat, OUT_MEMORY(sizeof(struct stat))},
	{"rfds", put_descriptors, OUT_MEMORY(8)},
	{"epollevent", put_epoll_event, IN_MEMORY(sizeof(struct epoll_event))},
	{"repollevents",
	 put_epoll_events,
	 {.kind = SYSCALLS_MEMORY,
	  .count = SYSCALLS_BY_RESULT,
	  .unit = sizeof(struct epoll_event),
	  .max = SHOWN * sizeof(struct epoll_event),
	  .at_end = 1}},
	{"rpollfds",
	 put_poll,
	 {.kind = SYSCALLS_MEMORY,
	  .count = SYSCALLS_BY_NEXT,
	  .unit = sizeof(struct pollfd),
	  .max = SHOWN * sizeof(struct pollfd),
	  .at_end = 1}},
	{"wstatus", put_wait_status, OUT_MEMORY(4)},
	{"sigset", put_signal_set, IN_MEMORY(8)},
	{"rlimitin", put_limits, IN_MEMORY(16)},
	{"rrlimitold", put_limits, OUT_MEMORY(16)},
	{"clonearg", put_clone_arguments, IN_MEMORY(88)},
	{"openhow", put_open_how, IN_MEMORY(24)},
};

const struct syscalls_type *syscalls_type_find(const char *name, size_t n)
{
	for (size_t i = 0; i < ARRAY_SIZE(types); i++)
		if (strncmp(types[i].name, name, n) == 0 && !types[i].name[n])
			return &types[i];
	return NULL;
}
