/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads with known waits, for tests/live/test_waits.py.
 *
 *	known_waits SECONDS FILE SCENARIO...
 *
 * All threads exist before "ready" is printed and begin when a line comes. Each waits in a function
 * of the scenario's name, and measures each wait from just before it to just after it. At the end a
 * line per thread: scenario, tid, ns of all its waits, their number, ns of running and of waiting
 * for a CPU as the kernel has counted them (/proc/thread-self/schedstat) between its begin and end,
 * and the begin and end themselves.
 */
#include <fcntl.h>
#include <linux/futex.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAX_THREADS 64
#define FILE_BYTES (64L << 20)
#define NOINLINE __attribute__((noinline, noclone))

struct totals {
	long long waited, n, ran, queued, begin, end;
};

struct thread {
	const char *name;
	void (*wait)(struct thread *);
	struct totals is;
	int fd[2]; /* in, out */
	long step;
	struct thread *peer;
	_Atomic int word;
	void *memory;
	int tid;
};

static struct thread threads[MAX_THREADS];
static int n_threads, n_dormant;
static long long until;
static const char *file;
static pthread_barrier_t all;
static atomic_int n_ends; /* threads whose numbers are complete */

static long long now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* Measures a wait. */
#define MEASURED(t, call)                                                                          \
	({                                                                                         \
		long long begin_ = now_ns();                                                       \
		__typeof__(call) got_ = (call);                                                    \
		(t)->is.waited += now_ns() - begin_;                                               \
		(t)->is.n++;                                                                       \
		got_;                                                                              \
	})

static void spin(long long ns)
{
	long long end = now_ns() + ns;

	while (now_ns() < end)
		;
}

static long futex(_Atomic int *word, int op, int value)
{
	return syscall(SYS_futex, word, op | FUTEX_PRIVATE_FLAG, value, NULL, NULL, 0);
}

NOINLINE static void sleeper(struct thread *t)
{
	struct timespec d = {.tv_nsec = 10000000};

	MEASURED(t, nanosleep(&d, NULL));
	spin(1000000);
}

/* The ladder: each waits for the next to wake it; the last sleeps. */
NOINLINE static void ladder(struct thread *t)
{
	while (!atomic_load(&t->word))
		MEASURED(t, futex(&t->word, FUTEX_WAIT, 0));
	atomic_store(&t->word, 0);
	spin(100000);
	if (t->peer) {
		atomic_store(&t->peer->word, 1);
		futex(&t->peer->word, FUTEX_WAKE, 1);
	}
}

NOINLINE static void ladder_end(struct thread *t)
{
	struct timespec d = {.tv_nsec = 20000000};

	MEASURED(t, nanosleep(&d, NULL));
	atomic_store(&t->peer->word, 1);
	futex(&t->peer->word, FUTEX_WAKE, 1);
}

NOINLINE static void pinger(struct thread *t)
{
	char c = 0;

	if (write(t->fd[1], &c, 1) != 1 || MEASURED(t, read(t->fd[0], &c, 1)) != 1)
		pthread_exit(NULL);
}

NOINLINE static void ponger(struct thread *t)
{
	char c;

	if (MEASURED(t, read(t->fd[0], &c, 1)) == 1)
		(void)!write(t->fd[1], &c, 1);
}

NOINLINE static void receiver(struct thread *t)
{
	char c;

	(void)MEASURED(t, recv(t->fd[0], &c, 1, 0));
}

NOINLINE static void sender(struct thread *t)
{
	struct timespec d = {.tv_nsec = 15000000};
	char c = 0;

	MEASURED(t, nanosleep(&d, NULL));
	(void)!send(t->fd[1], &c, 1, MSG_NOSIGNAL);
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

NOINLINE static void contender(struct thread *t)
{
	struct timespec d = {.tv_nsec = 1000000};

	MEASURED(t, pthread_mutex_lock(&mutex));
	pthread_mutex_unlock(&mutex);
	nanosleep(&d, NULL);
}

NOINLINE static void owner(struct thread *t)
{
	struct timespec d = {.tv_nsec = 10000000};

	pthread_mutex_lock(&mutex);
	MEASURED(t, nanosleep(&d, NULL));
	pthread_mutex_unlock(&mutex);
	sched_yield();
}

NOINLINE static void poller(struct thread *t)
{
	struct pollfd p = {.fd = t->fd[0], .events = POLLIN};

	MEASURED(t, poll(&p, 1, 12));
}

NOINLINE static void reader(struct thread *t)
{
	static char buffer[1 << 16] __attribute__((aligned(4096)));

	posix_fadvise(t->fd[0], 0, 0, POSIX_FADV_DONTNEED);
	(void)MEASURED(t, pread(t->fd[0], buffer, sizeof(buffer), t->step));
	t->step = (t->step + 7 * (1 << 20)) % (FILE_BYTES - (1 << 16));
}

NOINLINE static void faulter(struct thread *t)
{
	madvise(t->memory, FILE_BYTES, MADV_DONTNEED);
	posix_fadvise(t->fd[0], 0, 0, POSIX_FADV_DONTNEED);
	MEASURED(t, *(volatile char *)((char *)t->memory + t->step));
	t->step = (t->step + 7 * (1 << 20)) % (FILE_BYTES - 1);
}

NOINLINE static void parent(struct thread *t)
{
	int status;
	pid_t child = fork();

	if (child == 0) {
		usleep(10000);
		_exit(0);
	}
	MEASURED(t, waitpid(child, &status, 0));
}

NOINLINE static void spinner(struct thread *t)
{
	(void)t;
	spin(1000000);
}

/* Sleeps so long that the recording ends first. */
NOINLINE static void dormant(struct thread *t)
{
	MEASURED(t, poll(NULL, 0, -1));
}

NOINLINE static void migrant(struct thread *t)
{
	struct timespec d = {.tv_nsec = 2000000};
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET((int)(t->step++ % sysconf(_SC_NPROCESSORS_ONLN)), &set);
	sched_setaffinity(0, sizeof(set), &set);
	MEASURED(t, nanosleep(&d, NULL));
	spin(200000);
}

#define TURN_NS 50000
static const struct timespec turn = {.tv_nsec = TURN_NS};

NOINLINE static int in_nanosleep(struct thread *t)
{
	return MEASURED(t, nanosleep(&turn, NULL));
}

NOINLINE static int in_poll(struct thread *t)
{
	return MEASURED(t, ppoll(NULL, 0, &turn, NULL));
}

NOINLINE static int in_select(struct thread *t)
{
	return MEASURED(t, pselect(0, NULL, NULL, NULL, &turn, NULL));
}

NOINLINE static int in_futex(struct thread *t)
{
	return (int)MEASURED(t,
			     syscall(SYS_futex, &t->word, FUTEX_WAIT_PRIVATE, 0, &turn, NULL, 0));
}

NOINLINE static int in_signal_wait(struct thread *t)
{
	sigset_t none;

	sigemptyset(&none);
	return MEASURED(t, sigtimedwait(&none, NULL, &turn));
}

/* The same thread waits in one system call and then another, in random order. */
NOINLINE static void turner(struct thread *t)
{
	static int (*const calls[])(struct thread *) = {in_nanosleep, in_poll, in_select, in_futex,
							in_signal_wait};

	t->step = (t->step * 1103515245 + 12345) & 0x7fffffff;
	(void)calls[(t->step >> 16) % 5](t);
}

static void read_schedstat(long long *ret_ran, long long *ret_queued)
{
	char text[128] = {};
	int fd = open("/proc/thread-self/schedstat", O_RDONLY);

	if (fd < 0 || read(fd, text, sizeof(text) - 1) < 0 ||
	    sscanf(text, "%lld %lld", ret_ran, ret_queued) != 2)
		exit(3);
	close(fd);
}

static void *run(void *arg)
{
	struct thread *t = arg;
	long long ran, queued;

	t->tid = (int)syscall(SYS_gettid);
	pthread_setname_np(pthread_self(), t->name);
	pthread_barrier_wait(&all); /* all exist */
	pthread_barrier_wait(&all); /* go */
	read_schedstat(&ran, &queued);
	t->is.begin = now_ns();
	while (now_ns() < until)
		t->wait(t);
	t->is.end = now_ns();
	read_schedstat(&t->is.ran, &t->is.queued);
	t->is.ran -= ran;
	t->is.queued -= queued;
	/* Another may still wait for this one. */
	if (t->fd[1])
		(void)!write(t->fd[1], "", 1);
	if (t->peer) {
		atomic_store(&t->peer->word, 1);
		futex(&t->peer->word, FUTEX_WAKE, 1);
	}
	n_ends++;
	for (;;)
		pause();
	return NULL;
}

static struct thread *add(const char *name, void (*wait)(struct thread *))
{
	struct thread *t = &threads[n_threads++];

	t->name = name;
	t->wait = wait;
	return t;
}

static int open_file(void)
{
	int fd = open(file, O_RDONLY);

	if (fd < 0)
		exit(4);
	return fd;
}

static void pair(const char *name_a, void (*a)(struct thread *), const char *name_b,
		 void (*b)(struct thread *), bool sockets)
{
	struct thread *x = add(name_a, a), *y = add(name_b, b);
	int there[2], back[2];

	if (sockets ? socketpair(AF_UNIX, SOCK_STREAM, 0, there) : pipe(there) || pipe(back))
		exit(5);
	if (sockets) {
		x->fd[0] = x->fd[1] = there[0];
		y->fd[0] = y->fd[1] = there[1];
		return;
	}
	x->fd[0] = back[0];
	x->fd[1] = there[1];
	y->fd[0] = there[0];
	y->fd[1] = back[1];
}

/* A connection through the loopback interface, whose client receives; prints the server's port. */
static void connect_tcp(int *ret_receive, int *ret_send)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t n = sizeof(a);
	int listener = socket(AF_INET, SOCK_STREAM, 0);

	*ret_receive = socket(AF_INET, SOCK_STREAM, 0);
	if (bind(listener, (struct sockaddr *)&a, n) < 0 || listen(listener, 1) < 0 ||
	    getsockname(listener, (struct sockaddr *)&a, &n) < 0 ||
	    connect(*ret_receive, (struct sockaddr *)&a, n) < 0)
		exit(7);
	*ret_send = accept(listener, NULL, NULL);
	printf("port %d\n", ntohs(a.sin_port));
}

static void prepare(const char *scenario)
{
	struct thread *t, *u;

	if (!strcmp(scenario, "sleep")) {
		add("sleeper", sleeper);
	} else if (!strcmp(scenario, "lock")) {
		t = add("ladder_a", ladder);
		u = add("ladder_b", ladder);
		u->peer = t;
		add("ladder_c", ladder_end)->peer = u;
	} else if (!strcmp(scenario, "pipe")) {
		pair("pinger", pinger, "ponger", ponger, false);
	} else if (!strcmp(scenario, "network")) {
		pair("receiver", receiver, "sender", sender, true);
	} else if (!strcmp(scenario, "mutex")) {
		add("contender", contender);
		add("owner", owner);
	} else if (!strcmp(scenario, "tcp")) {
		t = add("receiver", receiver);
		u = add("sender", sender);
		connect_tcp(&t->fd[0], &u->fd[1]);
	} else if (!strcmp(scenario, "poll")) {
		pair("poller", poller, "sleeper", sleeper, true);
	} else if (!strcmp(scenario, "disk")) {
		add("reader", reader)->fd[0] = open_file();
	} else if (!strcmp(scenario, "fault")) {
		t = add("faulter", faulter);
		t->fd[0] = open_file();
		t->memory = mmap(NULL, FILE_BYTES, PROT_READ, MAP_PRIVATE, t->fd[0], 0);
		madvise(t->memory, FILE_BYTES, MADV_RANDOM);
	} else if (!strcmp(scenario, "child")) {
		add("parent", parent);
	} else if (!strcmp(scenario, "runnable")) {
		for (long i = 2 * sysconf(_SC_NPROCESSORS_ONLN); i > 0; i--)
			add("spinner", spinner);
	} else if (!strcmp(scenario, "migrate")) {
		add("migrant", migrant);
	} else if (!strcmp(scenario, "turns")) {
		prctl(PR_SET_TIMERSLACK, 1); /* of the threads, too: they exist later */
		add("turner", turner);
	} else if (!strcmp(scenario, "dormant")) {
		add("dormant", dormant);
		n_dormant++;
	} else {
		exit(2);
	}
}

int main(int argc, char **argv)
{
	pthread_t ids[MAX_THREADS];
	double seconds = argc > 3 ? atof(argv[1]) : 0;

	if (seconds <= 0)
		return 2;
	file = argv[2];
	for (int i = 3; i < argc; i++)
		prepare(argv[i]);
	pthread_barrier_init(&all, NULL, (unsigned int)n_threads + 1);
	for (int i = 0; i < n_threads; i++)
		pthread_create(&ids[i], NULL, run, &threads[i]);
	pthread_barrier_wait(&all);
	puts("ready");
	fflush(stdout);
	if (getchar() == EOF)
		return 6;
	until = now_ns() + (long long)(seconds * 1e9);
	pthread_barrier_wait(&all);
	usleep((useconds_t)(seconds * 1e6));
	while (n_ends < n_threads - n_dormant)
		usleep(10000);
	for (int i = 0; i < n_threads; i++) {
		const struct totals *t = &threads[i].is;

		printf("%s %d %lld %lld %lld %lld %lld %lld\n", threads[i].name, threads[i].tid,
		       t->waited, t->n, t->ran, t->queued, t->begin, t->end);
	}
	puts("over");
	fflush(stdout);
	(void)getchar(); /* threads and process live until the recording has ended */
	_exit(0);
}
