// SPDX-License-Identifier: Apache-2.0
/*
 * known_faults FILE SCENARIO...: waits for a line on standard input, then touches memory in a
 * function for each scenario, and prints what the kernel says that it has done:
 *
 *	FUNCTION RESIDENT TOUCHED MINOR MAJOR
 *
 * RESIDENT: bytes by which Rss of the mapping has grown in /proc/self/smaps. TOUCHED: bytes that
 * the function has made or copied. MINOR, MAJOR: faults of the thread by getrusage(). FILE has at
 * least 16 MiB. A second line on standard input ends the program.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096UL
#define HUGE (2UL << 20)
#define BYTES (16UL << 20)

struct counted {
	long minor, major, resident;
};

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

/* Rss of the mapping that contains `at`, in bytes. */
static long resident(const char *at)
{
	FILE *f = fopen("/proc/self/smaps", "re");
	unsigned long begin, end;
	char line[512];
	long kib = 0;
	int inside = 0;

	if (!f)
		fail("/proc/self/smaps");
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx-%lx ", &begin, &end) == 2)
			inside = begin <= (unsigned long)at && (unsigned long)at < end;
		else if (inside && sscanf(line, "Rss: %ld", &kib) == 1)
			break;
	}
	fclose(f);
	return kib << 10;
}

static struct counted count(const char *at)
{
	struct counted c = {.resident = resident(at)};
	struct rusage u;

	getrusage(RUSAGE_THREAD, &u);
	c.minor = u.ru_minflt;
	c.major = u.ru_majflt;
	return c;
}

/* Tells what has happened since `a`, and unmaps the memory. */
static void tell(const char *function, struct counted a, char *at, unsigned long touched)
{
	struct rusage u;

	getrusage(RUSAGE_THREAD, &u);
	printf("%s %ld %lu %ld %ld\n", function, resident(at) - a.resident, touched,
	       u.ru_minflt - a.minor, u.ru_majflt - a.major);
	munmap(at, BYTES);
}

static char *map(size_t bytes, int flags, int fd)
{
	int protection = PROT_READ | (fd < 0 || flags & MAP_SHARED ? PROT_WRITE : 0);
	char *at = mmap(NULL, bytes, protection, flags, fd, 0);

	if (at == MAP_FAILED)
		fail("mmap");
	return at;
}

/* Memory that begins at a huge page and is in a mapping of its own. */
static char *map_aligned(int advice)
{
	char *all = map(BYTES + 2 * HUGE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	char *at = (char *)(((unsigned long)all + HUGE) & -HUGE);

	munmap(all, (size_t)(at - all));
	if (madvise(at, BYTES, advice) < 0)
		fail("madvise");
	return at;
}

#define SCENARIO __attribute__((noinline, noclone)) static void

SCENARIO write_pages(char *at, size_t bytes)
{
	for (volatile char *p = at; p < at + bytes; p += PAGE)
		*p = 1;
}

SCENARIO read_pages(const char *at, size_t bytes)
{
	for (const volatile char *p = at; p < at + bytes; p += PAGE)
		(void)*p;
}

SCENARIO small_pages(__attribute__((unused)) int fd)
{
	char *at = map_aligned(MADV_NOHUGEPAGE);
	struct counted before = count(at);

	write_pages(at, BYTES);
	tell(__func__, before, at, BYTES);
}

SCENARIO huge_pages(__attribute__((unused)) int fd)
{
	char *at = map_aligned(MADV_HUGEPAGE);
	struct counted before = count(at);

	write_pages(at, BYTES);
	tell(__func__, before, at, BYTES);
}

/* Reads memory that nobody has written: the kernel shows it its page of zeros. */
SCENARIO zero_pages(__attribute__((unused)) int fd)
{
	char *at = map_aligned(MADV_NOHUGEPAGE);
	struct counted before = count(at);

	read_pages(at, BYTES);
	tell(__func__, before, at, 0);
}

SCENARIO huge_zero_pages(__attribute__((unused)) int fd)
{
	char *at = map_aligned(MADV_HUGEPAGE);
	struct counted before = count(at);

	read_pages(at, BYTES);
	tell(__func__, before, at, 0);
}

/* The file's pages are in memory: a fault maps those around the address, too. */
SCENARIO cached_file(int fd)
{
	char *at = map(BYTES, MAP_PRIVATE, fd);
	struct counted before = count(at);

	read_pages(at, BYTES);
	tell(__func__, before, at, BYTES);
}

/* The file's pages are on disk, and the kernel is told not to read ahead. */
SCENARIO cold_file(int fd)
{
	char *at = map(BYTES, MAP_PRIVATE, fd);
	struct counted before;

	if (madvise(at, BYTES / 8, MADV_RANDOM) < 0 || fsync(fd) < 0 ||
	    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) != 0)
		fail("cold_file");
	before = count(at);
	read_pages(at, BYTES / 8);
	tell(__func__, before, at, BYTES / 8);
}

SCENARIO shared_memory(__attribute__((unused)) int fd)
{
	char *at = map(BYTES, MAP_SHARED | MAP_ANONYMOUS, -1);
	struct counted before = count(at);

	write_pages(at, BYTES);
	tell(__func__, before, at, BYTES);
}

SCENARIO copy_pages(char *at)
{
	struct counted before = count(at);

	write_pages(at, BYTES);
	tell(__func__, before, at, BYTES);
}

/* Writes to memory that a child has, too: each page is copied, but no more of it is resident. */
SCENARIO copied_pages(__attribute__((unused)) int fd)
{
	char *at = map_aligned(MADV_NOHUGEPAGE);
	int ends[2], status;
	pid_t child;

	write_pages(at, BYTES);
	if (pipe(ends) < 0)
		fail("pipe");
	child = fork();
	if (!child) {
		char byte;

		close(ends[1]);
		_exit(read(ends[0], &byte, 1) != 0);
	}
	copy_pages(at);
	close(ends[0]);
	close(ends[1]);
	waitpid(child, &status, 0);
}

/* Faults of the kernel for the process: read() writes to memory that is not there yet. */
SCENARIO read_into(int fd)
{
	char *at = map_aligned(MADV_NOHUGEPAGE);
	struct counted before = count(at);

	if (pread(fd, at, BYTES, 0) != (ssize_t)BYTES)
		fail("pread");
	tell(__func__, before, at, BYTES);
}

struct part {
	pthread_t thread;
	char *at;
};

static void *write_part(void *arg)
{
	struct part *p = arg;

	write_pages(p->at, BYTES / 4);
	return NULL;
}

/* Four threads at once, each in a quarter. */
SCENARIO four_threads(__attribute__((unused)) int fd)
{
	char *at = map_aligned(MADV_NOHUGEPAGE);
	struct counted before = count(at);
	struct part parts[4];

	for (int i = 0; i < 4; i++) {
		parts[i].at = at + i * (BYTES / 4);
		if (pthread_create(&parts[i].thread, NULL, write_part, &parts[i]))
			fail("pthread_create");
	}
	for (int i = 0; i < 4; i++)
		pthread_join(parts[i].thread, NULL);
	tell("write_part", before, at, BYTES);
}

/* A fault now and then, until the profiler knows the way from these functions to main(). */
SCENARIO warm_up(int fd)
{
	char *at = map_aligned(MADV_NOHUGEPAGE);

	for (int i = 0; i < 60; i++, usleep(10000)) {
		write_pages(at + (size_t)i * 3 * PAGE, PAGE);
		read_pages(at + (size_t)(i * 3 + 1) * PAGE, PAGE);
		if (pread(fd, at + (size_t)(i * 3 + 2) * PAGE, PAGE, 0) != (ssize_t)PAGE)
			fail("pread");
	}
}

static const struct {
	const char *name;
	void (*run)(int fd);
} scenarios[] = {
	{"small_pages", small_pages},	  {"huge_pages", huge_pages},
	{"zero_pages", zero_pages},	  {"huge_zero_pages", huge_zero_pages},
	{"cached_file", cached_file},	  {"cold_file", cold_file},
	{"shared_memory", shared_memory}, {"copied_pages", copied_pages},
	{"read_into", read_into},	  {"four_threads", four_threads},
};

static void run(const char *name, int fd)
{
	for (size_t i = 0; i < sizeof(scenarios) / sizeof(scenarios[0]); i++)
		if (!strcmp(scenarios[i].name, name))
			scenarios[i].run(fd);
}

int main(int argc, char **argv)
{
	int fd = argc > 2 ? open(argv[1], O_RDONLY | O_CLOEXEC) : -1;

	if (fd < 0)
		fail("known_faults FILE SCENARIO...");
	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("ready\n");
	getchar();
	warm_up(fd);
	for (int i = 2; i < argc; i++)
		run(argv[i], fd);
	printf("over\n");
	getchar();
	return 0;
}
