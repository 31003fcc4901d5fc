/* SPDX-License-Identifier: Apache-2.0 */
/*
 * known_allocs SECONDS HZ [STEP…]: allocates memory in functions that count what they do. It prints
 * "ready", reads a line, calls each step HZ times a second for SECONDS, prints
 *
 *	FUNCTION OBJECTS BYTES LIVE_OBJECTS LIVE_BYTES
 *
 * for each and then "over", and waits until its input ends. HZ 0: without a pause between calls.
 * -DNO_CXX leaves C++'s functions out.
 */
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAX_LIVE (1 << 20)
#define apart __attribute__((noinline, noclone))
/* So that neither the call nor the object is optimised away. */
#define use(p) __asm__ volatile("" : "+r"(p) : : "memory")

struct step {
	const char *name;
	void (*run)(struct step *s);
	int only_by_name; /* it runs only if it is asked for */
	unsigned long objects, bytes, live_objects, live_bytes;
	void *kept[64]; /* objects that are freed later */
	unsigned int n;
};

static void got(struct step *s, unsigned long bytes)
{
	s->objects++;
	s->bytes += bytes;
}

static void keeps(struct step *s, unsigned long bytes)
{
	s->live_objects++;
	s->live_bytes += bytes;
}

/* ---- steps: the name of a function is that of its step ---- */

static apart void short_lived(struct step *s)
{
	void *p = malloc(100);

	use(p);
	got(s, 100);
	free(p);
}

static apart void leaks(struct step *s)
{
	void *p = malloc(72);

	use(p);
	got(s, 72);
	keeps(s, 72);
}

static apart void cleared(struct step *s)
{
	void *p = calloc(25, 40);

	use(p);
	got(s, 1000);
	free(p);
}

/* Allocates, grows, and keeps one of four. */
static apart void grows(struct step *s)
{
	void *p = malloc(10), *q;

	use(p);
	q = realloc(p, 5000);
	use(q);
	got(s, 10);
	got(s, 5000);
	if (s->objects % 8 == 0)
		keeps(s, 5000);
	else
		free(q);
}

/* A realloc() that fails frees nothing. */
static apart void cannot_grow(struct step *s)
{
	size_t too_much = PTRDIFF_MAX;
	void *p = malloc(300), *again = p, *q;

	use(p);
	use(again);
	use(too_much);
	q = realloc(p, too_much);
	use(q);
	if (q)
		abort();
	got(s, 300);
	if (s->objects % 2)
		keeps(s, 300);
	else
		free(again);
}

static apart void aligned(struct step *s)
{
	void *p = aligned_alloc(64, 640), *q = NULL, *r = memalign(64, 64);

	if (posix_memalign(&q, 128, 256))
		abort();
	use(p);
	use(q);
	use(r);
	got(s, 640);
	got(s, 256);
	got(s, 64);
	free(p);
	free(q);
	free(r);
}

/* Each object is freed 64 calls later, by another function. */
static apart void frees_later(struct step *s)
{
	free(s->kept[s->n]);
}

static apart void long_lived(struct step *s)
{
	void *p = malloc(2000);

	use(p);
	got(s, 2000);
	if (!s->kept[s->n])
		keeps(s, 2000);
	frees_later(s);
	s->kept[s->n] = p;
	s->n = (s->n + 1) % 64;
}

static void *thread_main(void *arg)
{
	struct step *s = arg;
	void *p = malloc(400);

	use(p);
	got(s, 400);
	free(p);
	return NULL;
}

/* In a thread of its own each time. */
static apart void in_thread(struct step *s)
{
	pthread_t t;

	if (pthread_create(&t, NULL, thread_main, s) || pthread_join(t, NULL))
		abort();
}

#ifndef NO_CXX
/* C++'s operators by their names, so that this is C. */
void *_Znwm(size_t bytes);
void *_Znam(size_t bytes);
void _ZdlPv(void *p);
void _ZdaPv(void *p);
void _ZdlPvm(void *p, size_t bytes);

static apart void by_new(struct step *s)
{
	void *p = _Znwm(48), *q = _Znam(4800), *r = _Znwm(32);

	use(p);
	use(q);
	use(r);
	got(s, 48);
	got(s, 4800);
	got(s, 32);
	_ZdlPv(p);
	_ZdaPv(q);
	if (s->objects % 30)
		_ZdlPvm(r, 32);
	else
		keeps(s, 32);
}
#endif

/* Of sizes from 16 bytes to 64 KiB, at one place. */
static apart void mixed(struct step *s)
{
	static unsigned int state = 1;
	unsigned long bytes;
	void *p;

	state = state * 1664525 + 1013904223;
	bytes = 16UL << (state >> 8) % 13;
	p = malloc(bytes);
	use(p);
	got(s, bytes);
	free(p);
}

static apart void small_ones(struct step *s)
{
	void *p = malloc(1000);

	use(p);
	got(s, 1000);
	free(p);
}

/* 14 times a second: 100 MB of objects of 1 kB. */
static apart void churn(struct step *s)
{
	for (int i = 0; i < 7000; i++) {
		void *p = malloc(1000);

		use(p);
		got(s, 1000);
		free(p);
	}
}

/* At 100 Hz: 1 kB a second, as one object. */
static apart void leaks_rarely(struct step *s)
{
	void *p;

	if (s->n++ % 100 != 50)
		return;
	p = malloc(1000);
	use(p);
	got(s, 1000);
	keeps(s, 1000);
}

/* At 100 Hz: 1 kB a second, as 100 objects. */
static apart void leaks_tiny(struct step *s)
{
	void *p = malloc(10);

	use(p);
	got(s, 10);
	keeps(s, 10);
}

static inline __attribute__((always_inline)) void use_many(struct step *s, int n)
{
	for (int i = 0; i < n; i++) {
		char *p = malloc(1000);

		memset(p, i, 1000);
		use(p);
		got(s, 1000);
		free(p);
	}
}

/* At 100 Hz: 100 MB a second, 1 MB at a time. */
static apart void churn_steady(struct step *s)
{
	use_many(s, 1000);
}

/* The same, 50 MB at a time. */
static apart void churn_bursts(struct step *s)
{
	if (s->n++ % 50 == 49)
		use_many(s, 50000);
}

/* By the functions of an allocator that was loaded last. */
static void *(*loaded_malloc)(size_t bytes);
static void (*loaded_free)(void *p);

static apart void loaded(struct step *s)
{
	void *p = loaded_malloc(90);

	use(p);
	got(s, 90);
	loaded_free(p);
}

static struct step steps[] = {
	{"short_lived", short_lived},
	{"leaks", leaks},
	{"cleared", cleared},
	{"grows", grows},
	{"cannot_grow", cannot_grow},
	{"aligned", aligned},
	{"long_lived", long_lived},
	{"thread_main", in_thread},
#ifndef NO_CXX
	{"by_new", by_new},
#endif
	{"mixed", mixed},
	{"small_ones", small_ones},
	{"loaded", loaded, 1},
	{"churn", churn, 1},
	{"leaks_rarely", leaks_rarely, 1},
	{"leaks_tiny", leaks_tiny, 1},
	{"churn_steady", churn_steady, 1},
	{"churn_bursts", churn_bursts, 1},
};
#define N_STEPS (sizeof(steps) / sizeof(steps[0]))

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static int is_wanted(const struct step *s, int n, char **names)
{
	for (int i = 0; i < n; i++)
		if (strcmp(names[i], s->name) == 0)
			return 1;
	return n == 0 && !s->only_by_name;
}

static int load(const char *file)
{
	void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);

	if (!library)
		return -1;
	loaded_malloc = dlsym(library, "malloc");
	loaded_free = dlsym(library, "free");
	return loaded_malloc && loaded_free ? 0 : -1;
}

static void run(double seconds, unsigned int hz, int n, char **names)
{
	uint64_t end = now_ns() + (uint64_t)(seconds * 1e9), next = now_ns();

	while (now_ns() < end) {
		for (size_t i = 0; i < N_STEPS; i++)
			for (int k = 0; is_wanted(&steps[i], n, names) && k < (hz ? 1 : 64); k++)
				steps[i].run(&steps[i]);
		if (!hz)
			continue;
		next += 1000000000 / hz;
		while (now_ns() < next)
			usleep(hz > 2000 ? 0 : 100);
	}
}

/* A first step "fork" does all in a child; "dlopen=FILE" loads the allocator of the step "loaded". */
int main(int argc, char **argv)
{
	double seconds = argc > 2 ? atof(argv[1]) : 1;
	unsigned int hz = argc > 2 ? (unsigned int)strtoul(argv[2], NULL, 10) : 10;
	char line[16];
	int n = argc - 3;
	char **names = argv + 3;

	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("ready\n");
	if (!fgets(line, sizeof(line), stdin))
		return 1;
	if (n > 0 && strcmp(names[0], "fork") == 0) {
		pid_t child = fork();
		int status;

		if (child > 0)
			return waitpid(child, &status, 0) == child ? status : 1;
		printf("child %d\n", getpid());
		/* So that it is known before it allocates. */
		usleep(500000);
		n--;
		names++;
	}
	if (n > 0 && strncmp(names[0], "dlopen=", 7) == 0) {
		if (load(names[0] + 7) < 0)
			return 1;
		usleep(500000);
		n--;
		names++;
	}
	run(seconds, hz, n, names);
	for (size_t i = 0; i < N_STEPS; i++)
		if (steps[i].objects)
			printf("%s %lu %lu %lu %lu\n", steps[i].name, steps[i].objects,
			       steps[i].bytes, steps[i].live_objects, steps[i].live_bytes);
	printf("over\n");
	while (fgets(line, sizeof(line), stdin))
		;
	return 0;
}
