/* SPDX-License-Identifier: Apache-2.0 */
/*
 * events faults N | switches N | writes N | failing N: causes N events of a kind, 70 % of them in
 * one function and 30 % in another. Prints how many page faults (getrusage) and context switches
 * (/proc/self/status) the kernel counted for the process meanwhile.
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

/* Writes one byte; every other call fails. */
static void write_or_fail(long i, char *memory)
{
	if ((write(i % 2 ? -1 : sink, "", 1) == 1) == (i % 2))
		abort();
}

/* seven() and three() are not inlined and make no tail call, so that stacks have both. */
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

/* Returns the number of voluntary and involuntary switches. */
static long count_switches(void)
{
	static char text[4096];
	int fd = open("/proc/self/status", O_RDONLY);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	long sum = 0;

	if (n < 0 || close(fd))
		abort();
	text[n] = 0;
	for (const char *at = text; (at = strstr(at, "voluntary_ctxt_switches:")); at++)
		sum += strtol(at + strlen("voluntary_ctxt_switches:"), NULL, 10);
	return sum;
}

static long count_faults(void)
{
	struct rusage r;

	if (getrusage(RUSAGE_SELF, &r))
		abort();
	return r.ru_minflt + r.ru_majflt;
}

/* Causes events for a second, in which culprit loads the unwind information of this code. */
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
	long faults, switches;
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
	count_switches(); /* faults in the memory that count_switches() uses */
	switches = count_switches();
	faults = count_faults();
	seven(n / 10 * 7, memory, event);
	three(n / 10 * 3, memory + n / 10 * 7 * PAGE, event);
	faults = count_faults() - faults;
	switches = count_switches() - switches;
	printf("%ld %ld\n", faults, switches);
	return 0;
}
