/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process that is no JVM, but looks like one: it loads libjvm.so, starts no VM, and computes.
 *
 *	looks_like_jvm LIBJVM|- HOW
 *
 * HOW: "default": SIGQUIT ends it; "handles": it counts the signals and prints the number; the
 * others answer as the attach listener of a JVM would, in the way that they are named.
 */
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static volatile sig_atomic_t n_signals;
static volatile unsigned long work;

static void count_signal(int signal)
{
	(void)signal;
	n_signals++;
}

static int listen_as_jvm(void)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);

	snprintf(a.sun_path, sizeof(a.sun_path), "/tmp/.java_pid%d", (int)getpid());
	(void)unlink(a.sun_path);
	if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(fd, 5) < 0) {
		perror("listen");
		exit(1);
	}
	return fd;
}

/* As much as the other takes. */
static void send_endlessly(int fd)
{
	static char some[65536];

	memset(some, 'x', sizeof(some));
	memcpy(some, "0\n", 2);
	while (send(fd, some, sizeof(some), MSG_NOSIGNAL) > 0)
		;
}

static void answer(int fd, const char *how)
{
	static const char garbage[] = "\xff\xfe HTTP/1.1 400 %n%s\r\n";
	static const char starts[] = "0\nJDK 17.0.1\nStarted recording 1.\n";
	static const char refuses[] = "-1\nOperation jcmd not recognized!\n";
	char request[2048];

	(void)!read(fd, request, sizeof(request));
	if (!strcmp(how, "garbage"))
		(void)send(fd, garbage, sizeof(garbage), MSG_NOSIGNAL);
	else if (!strcmp(how, "starts")) /* and never writes a dump */
		(void)send(fd, starts, sizeof(starts) - 1, MSG_NOSIGNAL);
	else if (!strcmp(how, "refuses"))
		(void)send(fd, refuses, sizeof(refuses) - 1, MSG_NOSIGNAL);
	else if (!strcmp(how, "endless"))
		send_endlessly(fd);
	/* "nothing": the connection stays open. */
	if (strcmp(how, "nothing") != 0)
		close(fd);
}

int main(int argc, char **argv)
{
	const char *how = argc > 2 ? argv[2] : "default";
	int listener = -1, told = 0;

	if (argc > 1 && strcmp(argv[1], "-") != 0 && !dlopen(argv[1], RTLD_NOW)) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	if (strcmp(how, "default") != 0)
		signal(SIGQUIT, count_signal);
	if (strcmp(how, "default") != 0 && strcmp(how, "handles") != 0)
		listener = listen_as_jvm();
	printf("ready\n");
	fflush(stdout);
	for (;;) {
		int fd;

		for (int i = 0; i < 1000000; i++)
			work += (unsigned long)i;
		fd = listener >= 0 ? accept(listener, NULL, NULL) : -1;
		if (fd >= 0)
			answer(fd, how);
		if (n_signals != told) {
			told = n_signals;
			printf("signal\n");
			fflush(stdout);
		}
	}
}
