/* SPDX-License-Identifier: Apache-2.0 */
/*
 * events faults N | switches N | writes N | failing N: makes N events of a kind, 70 % of them in
 * one function and 30 % in another, and says how many of these the kernel has counted for it.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096 };

static void fault(long i, char *memory)
{
	memory[i * PAGE] = 1;
}

static void sleep_once(long i, char *memory)
{
	struct timespec t = {0, 200000};

	nanosleep(&t, NULL);
}

static int sink;

static void write_once(long i, char *memory)
{
	if (write(sink, "", 1) != 1)
		abort();
}

/* Every other one fails. */
static void write_or_fail(long i, char *memory)
{
	if ((write(i % 2 ? -1 : sink, "", 1) == 1) == (i % 2))
		abort();
}

/* Not inlined, and no tail call, so that both are in the stacks. */
__attribute__((noinline)) static void seven(long n, char *memory, void (*event)(long, char *))
{
	for (long i = 0; i < n; i++)
		event(i, memory);
	__asm__ volatile("");
}

__attribute__((noinline)) static void three(long n, char *memory, void (*event)(long, char *))
{
	for (long i = 0; i < n; i++)
		event(i, memory);
	__asm__ volatile("");
}

/* A second of them first: unwind information of what runs here is loaded meanwhile. */
__attribute__((noinline)) static void warm_up(void (*event)(long, char *))
{
	static char pages[2 * PAGE];
	char *page = (char *)(((size_t)pages + PAGE - 1) & ~(size_t)(PAGE - 1));

	for (int i = 0; i < 20; i++) {
		struct timespec t = {0, 50000000};

		madvise(page, PAGE, MADV_DONTNEED);
		event(0, page);
		nanosleep(&t, NULL);
	}
}

int main(int argc, char **argv)
{
	void (*event)(long, char *) = argc == 3 && !strcmp(argv[1], "faults")	  ? fault
				      : argc == 3 && !strcmp(argv[1], "switches") ? sleep_once
				      : argc == 3 && !strcmp(argv[1], "writes")	  ? write_once
				      : argc == 3 && !strcmp(argv[1], "failing")  ? write_or_fail
										  : NULL;
	long n = argc == 3 ? strtol(argv[2], NULL, 10) : 0;
	struct rusage before, after;
	char *memory;

	if (!event || n < 10 || n % 10)
		return 2;
	sink = open("/dev/null", O_WRONLY);
	memory = mmap(NULL, (size_t)n * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		      -1, 0);
	if (memory == MAP_FAILED || sink < 0)
		return 1;
	madvise(memory, (size_t)n * PAGE, MADV_NOHUGEPAGE);
	warm_up(event);
	getrusage(RUSAGE_SELF, &before);
	seven(n / 10 * 7, memory, event);
	three(n / 10 * 3, memory + n / 10 * 7 * PAGE, event);
	getrusage(RUSAGE_SELF, &after);
	printf("%ld %ld\n", after.ru_minflt - before.ru_minflt, after.ru_nvcsw - before.ru_nvcsw);
	return 0;
}
