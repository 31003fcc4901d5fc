/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `spans SECONDS THREADS LOG [LIBRARY [TOUCH]…]`: requests go through a pool of threads, each with
 * a span that culprit_context publishes; a log says which span ran which function. A thread works
 * for a request and then hands it to the next. The span determines the function that works and the
 * route that the thread publishes, so the right span follows from the stack.
 *
 * LIBRARY is loaded after the threads have started, then each TOUCH (touch.c), which all threads
 * call, so that their thread-local storage grows. Nothing is published until a profiler has
 * probably seen the library, or, with SPANS_SEEN in the environment, until that file exists.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "culprit_context.h"
#include "work.h"

#define MAX_THREADS 64
#define MAX_TOUCHES 64
#define STAGES 2

static struct {
	int (*process)(const char *const *, const char *const *, size_t);
	void (*enter)(const uint8_t *, const uint8_t *, uint8_t);
	void (*leave)(void);
	int (*key)(const char *);
	int (*attribute)(int, const char *, size_t);
} api;

struct request {
	uint8_t trace[16], span[8];
	int stage;
	struct request *next;
};

static struct {
	pthread_mutex_t lock;
	pthread_cond_t wake;
	struct request *first;
	int ending;
} queue = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER};
static FILE *log_file;
static int endpoint, note;
static const char long_note[110] = "what there is no room for behind the pointer";

WORK(0, 1500)
WORK(1, 1500)
WORK(2, 1500)
WORK(3, 1500)

static void (*const work[])(void) = {work_0, work_1, work_2, work_3};

/* Works for no span. */
static __attribute__((noinline)) void idle_work(void)
{
	burn(300);
	sink++;
}

static void say(const char *what, const uint8_t *bytes, size_t n)
{
	fprintf(log_file, "%s", what);
	for (size_t i = 0; i < n; i++)
		fprintf(log_file, "%02x", bytes[i]);
}

static void put(struct request *r)
{
	pthread_mutex_lock(&queue.lock);
	r->next = NULL;
	for (struct request **at = &queue.first;; at = &(*at)->next) {
		if (*at)
			continue;
		*at = r;
		break;
	}
	pthread_cond_signal(&queue.wake);
	pthread_mutex_unlock(&queue.lock);
}

static struct request *take(void)
{
	struct request *r;

	pthread_mutex_lock(&queue.lock);
	while (!queue.first && !queue.ending)
		pthread_cond_wait(&queue.wake, &queue.lock);
	r = queue.ending ? NULL : queue.first;
	if (r)
		queue.first = r->next;
	pthread_mutex_unlock(&queue.lock);
	return r;
}

static void fresh(struct request *r)
{
	if (getrandom(r->trace, sizeof(r->trace), 0) < 0 || getrandom(r->span, 8, 0) < 0)
		exit(1);
	r->stage = 0;
}

static int (*touches[MAX_TOUCHES])(void);
static int n_touches;

static void load_touch(const char *library)
{
	void *l = dlopen(library, RTLD_NOW);

	burn(20000);
	if (!l || n_touches == MAX_TOUCHES)
		exit(1);
	touches[n_touches] = (int (*)(void))dlsym(l, "touch");
	__atomic_store_n(&n_touches, n_touches + 1, __ATOMIC_RELEASE);
}

static void *serve(void *arg)
{
	struct request *r;
	int touched = 0;

	(void)arg;
	while ((r = take())) {
		while (touched < __atomic_load_n(&n_touches, __ATOMIC_ACQUIRE))
			touches[touched++]();
		if (api.enter) {
			char route[] = {'/', 'p', 'a', 'y', '/', (char)('0' + r->span[7] % 4)};

			api.enter(r->trace, r->span, 1);
			/* Some spans have more attributes than fit into the thread's record. */
			if (r->span[6] & 1)
				api.attribute(note, long_note, sizeof(long_note));
			api.attribute(endpoint, route, sizeof(route));
			work[r->span[7] % 4]();
			api.leave();
			flockfile(log_file);
			say("", r->trace, 16);
			say(" ", r->span, 8);
			fprintf(log_file, " %d %d\n", r->span[7] % 4, (int)gettid());
			funlockfile(log_file);
		}
		idle_work();
		if (++r->stage == STAGES)
			fresh(r);
		put(r);
	}
	return NULL;
}

static void bind_api(const char *library)
{
#ifdef LATE
	void *l = dlopen(library, RTLD_NOW);
	const char *seen = getenv("SPANS_SEEN");

	if (!l) {
		fprintf(stderr, "%s\n", dlerror());
		exit(1);
	}
	api.process = (int (*)(const char *const *, const char *const *, size_t))dlsym(
		l, "culprit_context_process");
	api.leave = (void (*)(void))dlsym(l, "culprit_context_leave");
	api.key = (int (*)(const char *))dlsym(l, "culprit_context_key");
	api.attribute = (int (*)(int, const char *, size_t))dlsym(l, "culprit_context_attribute");
	endpoint = api.key("http.route");
	note = api.key("note");
	if (seen)
		while (access(seen, F_OK) < 0)
			burn(1000);
	else
		burn(300000);
	__atomic_store_n(&api.enter,
			 (void (*)(const uint8_t *, const uint8_t *, uint8_t))dlsym(
				 l, "culprit_context_enter"),
			 __ATOMIC_SEQ_CST);
#else
	(void)library;
	api.process = culprit_context_process;
	api.leave = culprit_context_leave;
	api.attribute = culprit_context_attribute;
	endpoint = culprit_context_key("http.route");
	note = culprit_context_key("note");
	api.enter = culprit_context_enter;
#endif
}

static volatile sig_atomic_t version = 1;

static void on_usr1(int signal)
{
	(void)signal;
	version++;
}

/* Publishes the process context. Each SIGUSR1 publishes another version. */
static void publish(void)
{
	static int published;
	char text[16];
	const char *names[] = {"service.name", "deployment.environment.name", "service.version"};
	const char *values[] = {"spans", "test", text};

	if (published == version)
		return;
	published = version;
	snprintf(text, sizeof(text), "%d", published);
	if (api.process(names, values, 3) < 0)
		exit(1);
}

int main(int argc, char **argv)
{
	struct request requests[MAX_THREADS];
	pthread_t threads[MAX_THREADS];
	int n = (int)strtol(argv[2], NULL, 10);
	uint64_t end;

	log_file = fopen(argv[3], "w");
	if (!log_file || n > MAX_THREADS)
		return 1;
	if (argc <= 4)
		bind_api(NULL);
	for (int i = 0; i < n; i++) {
		fresh(&requests[i]);
		put(&requests[i]);
		pthread_create(&threads[i], NULL, serve, NULL);
	}
	if (argc > 4) {
		burn(300000);
		bind_api(argv[4]);
		for (int i = 5; i < argc; i++)
			load_touch(argv[i]);
	}
	signal(SIGUSR1, on_usr1);
	/* Count from here, because loading may take seconds on a busy machine. */
	end = now_us() + (uint64_t)(strtod(argv[1], NULL) * 1e6);
	for (; now_us() < end; usleep(10000))
		publish();
	pthread_mutex_lock(&queue.lock);
	queue.ending = 1;
	pthread_cond_broadcast(&queue.wake);
	pthread_mutex_unlock(&queue.lock);
	for (int i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
	return fclose(log_file);
}
