/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What tools/vm/trace_peers traces: a process that does a known number of all that bpftrace's
 * tools look at, so that two tracers can be compared line by line.
 *
 *	peer_load [DISK]
 *
 * DISK is a block device that may be overwritten. Without an error the status is 0.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS 10
#define PORT 7001
#define BLOCK 4096

static char block[BLOCK * 16] __attribute__((aligned(BLOCK)));

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static void nap(void)
{
	const struct timespec t = {.tv_nsec = 2000000};

	(void)nanosleep(&t, NULL);
}

static void files(int i)
{
	char path[64];
	struct stat st;
	int fd;

	snprintf(path, sizeof(path), "/tmp/peer_load.%d", i);
	fd = open(path, O_CREAT | O_RDWR, 0600);
	if (fd < 0 || write(fd, block, BLOCK) != BLOCK || fsync(fd) < 0 || fdatasync(fd) < 0 ||
	    pread(fd, block, BLOCK, 0) != BLOCK || fstat(fd, &st) < 0 || stat(path, &st) < 0)
		fail(path);
	(void)syncfs(fd);
	close(fd);
	(void)unlink(path);
	snprintf(path, sizeof(path), "/tmp/peer_load.missing.%d", i);
	if (open(path, O_RDONLY) >= 0 || stat(path, &st) == 0)
		fail(path);
}

static void identities(void)
{
	(void)setuid(0);
	(void)setresuid(0, 0, 0);
	(void)setfsuid(0);
}

static void children(const char *self)
{
	pid_t pid = fork();

	if (pid == 0) {
		execl(self, self, "exit", "an argument", (char *)NULL);
		_exit(1);
	}
	(void)kill(pid, 0);
	(void)kill(getpid(), 0);
	(void)syscall(SYS_tgkill, getpid(), getpid(), 0);
	(void)waitpid(pid, NULL, 0);
}

static void *thread(void *arg)
{
	return arg;
}

static void threads(void)
{
	pthread_t t;

	if (pthread_create(&t, NULL, thread, NULL) == 0)
		pthread_join(t, NULL);
}

/* A connection within the process; the listener's backlog is 8. */
static void tcp(int port)
{
	struct sockaddr_in a = {.sin_family = AF_INET,
				.sin_port = htons((uint16_t)port),
				.sin_addr = {htonl(INADDR_LOOPBACK)}};
	int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
	int client = socket(AF_INET, SOCK_STREAM, 0), server;

	(void)setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(listener, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(listener, 8) < 0 ||
	    connect(client, (struct sockaddr *)&a, sizeof(a)) < 0)
		fail("tcp");
	server = accept(listener, NULL, NULL);
	if (server < 0 || send(client, block, BLOCK, 0) != BLOCK ||
	    recv(server, block, BLOCK, MSG_WAITALL) != BLOCK)
		fail("tcp");
	close(client);
	close(server);
	close(listener);
	/* Nobody listens there. */
	client = socket(AF_INET, SOCK_STREAM, 0);
	a.sin_port = htons(1);
	(void)connect(client, (struct sockaddr *)&a, sizeof(a));
	close(client);
}

static void unix_sockets(void)
{
	int s[2];

	for (int type = SOCK_STREAM; type <= SOCK_DGRAM; type++) {
		if (socketpair(AF_UNIX, type, 0, s) < 0 || write(s[0], "a message", 9) != 9 ||
		    read(s[1], block, sizeof(block)) != 9)
			fail("socketpair");
		close(s[0]);
		close(s[1]);
	}
}

static void names(void)
{
	struct addrinfo *list;

	if (getaddrinfo("127.0.0.1", NULL, NULL, &list) == 0)
		freeaddrinfo(list);
	(void)gethostbyname("127.0.0.2");
}

/*
 * Not the same place: a tool that tells requests by their place mixes up one that has been done and
 * the next, which begins before the tool sees the end.
 */
static void disk(int fd, int i)
{
	size_t n = (size_t)BLOCK << i % 4;

	if (pwrite(fd, block, n, (off_t)i * (off_t)sizeof(block)) != (ssize_t)n ||
	    pread(fd, block, n, (off_t)(ROUNDS + i) * (off_t)sizeof(block)) != (ssize_t)n)
		fail("disk");
}

int main(int argc, char **argv)
{
	int fd = -1;

	if (argc > 1 && strcmp(argv[1], "exit") == 0)
		return 0;
	if (argc > 1) {
		fd = open(argv[1], O_RDWR | O_DIRECT);
		if (fd < 0)
			fail(argv[1]);
	}
	for (int i = 0; i < ROUNDS; i++) {
		files(i);
		identities();
		children(argv[0]);
		threads();
		tcp(PORT + i);
		unix_sockets();
		names();
		if (fd >= 0)
			disk(fd, i);
		nap();
	}
	sync();
	return 0;
}
