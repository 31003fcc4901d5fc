/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes system calls whose number, arguments and times are known:
 *
 *	calls plain N		N getppid(), N open() of a file that does not exist
 *	calls naps N MS		N nanosleep() of MS milliseconds
 *	calls threads N		the same as plain, by 8 threads, by a child, and by a child that
 *				executes `plain`
 *	calls execs N		a thread that is not the first executes `plain`
 *	calls arguments		one call of each kind whose line a test knows
 *	calls hostile		pointers to nothing, to the end of memory, and lengths without end
 *	calls signals		a sleep that a handler interrupts, one that continues, a kill
 *	calls leaves		a thread waits in pause() when the process ends
 *	calls old N		N getppid() of 32-bit programs (x86-64 only)
 *	calls waits		reads from standard input, then getppid()
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char *self;
static long n;

static void plain(void)
{
	for (long i = 0; i < n; i++) {
		syscall(SYS_getppid);
		syscall(SYS_openat, AT_FDCWD, "/nonexistent/file", O_RDONLY);
	}
}

static void *thread(void *arg)
{
	plain();
	return arg;
}

static void run_plain(void)
{
	char number[24];

	snprintf(number, sizeof(number), "%ld", n);
	execl(self, self, "plain", number, NULL);
	_exit(1);
}

static void *executing(void *arg)
{
	run_plain();
	return arg;
}

static void threads(void)
{
	pthread_t t[8];
	pid_t child;

	for (int i = 0; i < 8; i++)
		pthread_create(&t[i], NULL, thread, NULL);
	for (int i = 0; i < 8; i++)
		pthread_join(t[i], NULL);
	child = fork();
	if (child == 0) {
		plain();
		_exit(0);
	}
	waitpid(child, NULL, 0);
	child = vfork(); /* NOLINT: its system call is what is tested */
	if (child == 0)
		run_plain();
	waitpid(child, NULL, 0);
}

static void nap(long ms)
{
	struct timespec t = {ms / 1000, ms % 1000 * 1000000};

	syscall(SYS_nanosleep, &t, NULL);
}

/* A path in a page that nobody has touched. */
static void untouched(void)
{
	static const char path[] = "/nonexistent/untouched";
	int fd = memfd_create("untouched", 0);

	write(fd, path, sizeof(path));
	(void)openat(AT_FDCWD, mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0), O_RDONLY);
}

static void arguments(void)
{
	struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(9)};
	struct sockaddr_in6 six = {
		.sin6_family = AF_INET6, .sin6_port = htons(9), .sin6_addr = IN6ADDR_LOOPBACK_INIT};
	struct sockaddr_un un = {.sun_family = AF_UNIX, .sun_path = "/nonexistent/socket"};
	struct iovec iov[2] = {{"abc", 3}, {"defg", 4}};
	struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.u64 = 0x1234};
	int fd, s, e, fds[2];
	char text[100];

	inet_pton(AF_INET, "127.0.0.1", &four.sin_addr);
	fd = openat(AT_FDCWD, "/dev/null", O_RDWR | O_CLOEXEC);
	syscall(SYS_openat, AT_FDCWD, "/nonexistent/\"quoted\"\n", O_WRONLY | O_CREAT, 0640);
	write(fd, "tab\tand\0001", 9);
	writev(fd, iov, 2);
	pipe2(fds, O_NONBLOCK);
	write(fds[1], "0123456789012345678901234567890123456789", 40);
	read(fds[0], text, 100);
	read(fds[0], text, 100);
	lseek(fd, -5, SEEK_END);
	s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	(void)connect(s, (struct sockaddr *)&four, sizeof(four));
	close(s);
	s = socket(AF_INET6, SOCK_DGRAM, 0);
	(void)connect(s, (struct sockaddr *)&six, sizeof(six));
	close(s);
	s = socket(AF_UNIX, SOCK_STREAM, 0);
	(void)connect(s, (struct sockaddr *)&un, sizeof(un));
	e = epoll_create1(EPOLL_CLOEXEC);
	epoll_ctl(e, EPOLL_CTL_ADD, fds[1], &event);
	mprotect((void *)0x10000, 4096, PROT_READ | PROT_WRITE);
	fcntl(fd, F_SETFD, FD_CLOEXEC);
	kill(getpid(), 0);
	untouched();
	renameat(AT_FDCWD, "/nonexistent/a", AT_FDCWD, "/nonexistent/b");
}

static void hostile(void)
{
	char *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	void *bad[] = {(void *)1, (void *)-1L, (void *)0xffff888000000000UL, page + 4095, NULL};
	struct iovec *iov = (void *)(page + 4096 - sizeof(*iov));

	munmap(page + 4096, 4096);
	page[4095] = 'x';
	*iov = (struct iovec){(void *)-1L, ~0UL};
	for (int i = 0; i < 5; i++) {
		syscall(SYS_openat, AT_FDCWD, bad[i], O_RDONLY);
		syscall(SYS_write, 1, bad[i], ~0UL);
		syscall(SYS_read, -1, bad[i], ~0UL);
		syscall(SYS_writev, 1, bad[i], ~0UL);
		syscall(SYS_sendmsg, -1, bad[i], ~0U);
		syscall(SYS_recvmsg, -1, bad[i], ~0U);
		syscall(SYS_execve, bad[i], bad[(i + 1) % 5], bad[i]);
		syscall(SYS_connect, -1, bad[i], ~0U);
		syscall(SYS_ppoll, bad[i], ~0UL, bad[i], bad[i], ~0UL);
		syscall(SYS_epoll_ctl, -1, ~0, ~0, bad[i]);
		syscall(SYS_clone3, bad[i], ~0UL);
		syscall(SYS_futex, bad[i], ~0, ~0, bad[i], bad[i], ~0);
	}
	syscall(SYS_writev, 1, iov, 1000);
	syscall(1000000, 1, 2, 3, 4, 5, 6);
	syscall(-5, 1, 2, 3, 4, 5, 6);
}

static void on_signal(int number)
{
	(void)number;
}

static void signals(void)
{
	struct itimerval soon = {.it_value.tv_usec = 20000};
	struct sigaction a = {.sa_handler = on_signal};
	int fds[2];
	char c;

	sigaction(SIGALRM, &a, NULL);
	setitimer(ITIMER_REAL, &soon, NULL);
	nap(10000);
	a.sa_flags = SA_RESTART;
	sigaction(SIGALRM, &a, NULL);
	pipe(fds);
	if (fork() == 0) {
		nap(200);
		write(fds[1], "x", 1);
		_exit(0);
	}
	setitimer(ITIMER_REAL, &soon, NULL);
	read(fds[0], &c, 1);
	raise(SIGKILL);
}

static void *wait_for_ever(void *arg)
{
	syscall(SYS_ppoll, NULL, 0, NULL, NULL, 0);
	return arg;
}

static void leaves(void)
{
	pthread_t t;

	pthread_create(&t, NULL, wait_for_ever, NULL);
	nap(100);
	_exit(3);
}

static void old(void)
{
#if defined(__x86_64__)
	for (long i = 0; i < n; i++) {
		long r = 64; /* getppid there, semget here */

		__asm__ volatile("int $0x80" : "+a"(r) : : "memory", "r8", "r9", "r10", "r11");
	}
#endif
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	char c;

	self = argv[0];
	n = argc > 2 ? strtol(argv[2], NULL, 10) : 0;
	if (!strcmp(what, "plain"))
		plain();
	else if (!strcmp(what, "naps"))
		for (long i = 0; i < n; i++)
			nap(strtol(argv[3], NULL, 10));
	else if (!strcmp(what, "threads"))
		threads();
	else if (!strcmp(what, "execs")) {
		pthread_t t;

		pthread_create(&t, NULL, executing, NULL);
		pthread_join(t, NULL);
	} else if (!strcmp(what, "arguments"))
		arguments();
	else if (!strcmp(what, "hostile"))
		hostile();
	else if (!strcmp(what, "signals"))
		signals();
	else if (!strcmp(what, "leaves"))
		leaves();
	else if (!strcmp(what, "old"))
		old();
	else if (!strcmp(what, "waits")) {
		read(0, &c, 1);
		syscall(SYS_getppid);
	} else
		return 2;
	return 0;
}
