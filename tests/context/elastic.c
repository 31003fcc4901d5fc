/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `elastic SOCKET LOG THREADS SECONDS_A_TRANSACTION`: acts like Elastic's agent for Java, by the
 * description of its protocol. Threads work for transactions, half of which are sampled, and the
 * socket is read every 20 ms. The log has a line for each transaction that begins and for each
 * message that arrives. After SIGUSR1 the program only reads messages.
 */
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

void set_process_storage(void *storage);
void set_thread_storage(void *storage);

struct record {
	uint16_t minor;
	volatile uint8_t valid;
	uint8_t present, flags, trace[16], span[8], root[8];
} __attribute__((packed));

static FILE *log_file;
static double seconds;
static volatile sig_atomic_t stopping;

static void on_usr1(int signal)
{
	(void)signal;
	stopping = 1;
}

static volatile uint64_t sink;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static __attribute__((noinline)) void burn(double s)
{
	for (double end = now() + s; now() < end;)
		for (int i = 0; i < 200; i++)
			sink += (uint64_t)i * i;
}

static __attribute__((noinline)) void work_0(void)
{
	burn(seconds / 2);
	sink++;
}

static __attribute__((noinline)) void work_1(void)
{
	burn(seconds / 2);
	sink++;
}

static void print(const char *what, const uint8_t *bytes, size_t n)
{
	fputs(what, log_file);
	for (size_t i = 0; i < n; i++)
		fprintf(log_file, "%02x", bytes[i]);
}

static void *serve(void *arg)
{
	struct record r = {.minor = 1, .present = 1};

	(void)arg;
	set_thread_storage(&r);
	for (unsigned n = 0; !stopping; n++) {
		r.valid = 0;
		__asm__ volatile("" ::: "memory");
		if (getrandom(r.trace, sizeof(r.trace), 0) < 0 ||
		    getrandom(r.span, sizeof(r.span), 0) < 0 ||
		    getrandom(r.root, sizeof(r.root), 0) < 0)
			exit(1);
		r.flags = n & 1;
		__asm__ volatile("" ::: "memory");
		r.valid = 1;
		flockfile(log_file);
		print("transaction ", r.trace, 16);
		print(" ", r.root, 8);
		fprintf(log_file, " %d\n", r.flags);
		fflush(log_file);
		funlockfile(log_file);
		work_0();
		/* A child span of the transaction. */
		r.valid = 0;
		__asm__ volatile("" ::: "memory");
		r.span[0]++;
		__asm__ volatile("" ::: "memory");
		r.valid = 1;
		work_1();
	}
	set_thread_storage(NULL);
	for (;;)
		pause();
	return NULL;
}

static int listen_at(const char *path)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
	/* The path is longer than a socket's address may be: enter its folder. */
	char *copy = strdup(path), *slash = strrchr(copy, '/');

	*slash = '\0';
	if (chdir(copy) < 0)
		return -1;
	snprintf(a.sun_path, sizeof(a.sun_path), "%s", slash + 1);
	return bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 ? -1 : fd;
}

static size_t put_text(uint8_t *to, const char *text)
{
	uint32_t n = (uint32_t)strlen(text);

	memcpy(to, &n, 4);
	memcpy(to + 4, text, n);
	return 4 + n;
}

static void take(const uint8_t *m, ssize_t n)
{
	uint16_t type, count;
	uint32_t delay;

	memcpy(&type, m, 2);
	flockfile(log_file);
	if (type == 2 && n >= 12) {
		memcpy(&delay, m + 4, 4);
		fprintf(log_file, "registration %u %.*s\n", delay, (int)(n - 12), m + 12);
	} else if (type == 1 && n == 46) {
		memcpy(&count, m + 44, 2);
		print("seen ", m + 4, 16);
		print(" ", m + 20, 8);
		print(" ", m + 28, 16);
		fprintf(log_file, " %d\n", (int16_t)count);
	} else {
		fprintf(log_file, "wrong %u of %zd bytes\n", type, n);
	}
	fflush(log_file);
	funlockfile(log_file);
}

int main(int argc, char **argv)
{
	static uint8_t storage[4096];
	uint8_t m[1024];
	size_t n = 2;
	pthread_t t;
	int fd;

	if (argc != 5)
		return 1;
	log_file = fopen(argv[2], "w");
	seconds = strtod(argv[4], NULL);
	fd = listen_at(argv[1]);
	if (!log_file || fd < 0)
		return 1;
	signal(SIGUSR1, on_usr1);
	/* An agent takes a while to start. */
	burn(0.2);
	storage[0] = 1;
	n += put_text(storage + n, "elastic-service");
	n += put_text(storage + n, "prod");
	put_text(storage + n, argv[1]);
	set_process_storage(storage);
	for (long i = strtol(argv[3], NULL, 10); i; i--)
		pthread_create(&t, NULL, serve, NULL);
	for (;; usleep(20000))
		for (ssize_t got; (got = recv(fd, m, sizeof(m), 0)) > 0;)
			take(m, got);
}
