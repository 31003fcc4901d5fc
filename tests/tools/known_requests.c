// SPDX-License-Identifier: Apache-2.0
/*
 * known_requests DEVICE STAT COUNT KIND...: waits for a line on standard input, then makes COUNT
 * requests of each kind, past the cache, each kind in a function of its name; and prints what the
 * program knows and what the device's file `stat` in sysfs says:
 *
 *	KIND REQUESTS NANOSECONDS BYTES REQUESTS-OF-DEVICE SECTORS-OF-DEVICE MILLISECONDS-OF-DEVICE
 *
 * NANOSECONDS: of the system calls. DEVICE is a block device or a file of at least 8 MiB, whose
 * contents are lost. A second line on standard input ends the program.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define SMALL 4096UL
#define LARGE 65536UL
#define AREA (8UL << 20)

static char buffer[LARGE] __attribute__((aligned(SMALL)));

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static unsigned long long now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (unsigned long long)t.tv_sec * 1000000000ULL + (unsigned long long)t.tv_nsec;
}

static off_t place(int i, size_t bytes)
{
	return (off_t)((size_t)i * 7 * bytes % AREA);
}

#define KIND __attribute__((noinline, noclone)) static void

/* Of another size than the others, because a compiler may merge equal functions. */
KIND warm_up(int fd, int i)
{
	if (pread(fd, buffer, 2 * SMALL, place(i, SMALL)) != (ssize_t)(2 * SMALL))
		fail("read");
}

KIND read_small(int fd, int i)
{
	if (pread(fd, buffer, SMALL, place(i, SMALL)) != (ssize_t)SMALL)
		fail("read");
}

KIND read_large(int fd, int i)
{
	if (pread(fd, buffer, LARGE, place(i, LARGE)) != (ssize_t)LARGE)
		fail("read");
}

KIND write_small(int fd, int i)
{
	if (pwrite(fd, buffer, SMALL, place(i, SMALL)) != (ssize_t)SMALL)
		fail("write");
}

KIND discard(int fd, int i)
{
	unsigned long long range[2] = {(unsigned long long)place(i, LARGE), LARGE};

	if (ioctl(fd, BLKDISCARD, range) < 0)
		fail("discard");
}

KIND flush(int fd, int i)
{
	(void)i;
	if (fdatasync(fd) < 0)
		fail("flush");
}

/* Columns of `stat` (Documentation/block/stat.rst), from 0. */
static const struct {
	const char *name;
	void (*make)(int fd, int i);
	size_t bytes;
	int requests, sectors, ms; /* sectors -1: there is no such column */
} kinds[] = {
	{"read_small", read_small, SMALL, 0, 2, 3},
	{"read_large", read_large, LARGE, 0, 2, 3},
	{"write_small", write_small, SMALL, 4, 6, 7},
	{"discard", discard, LARGE, 11, 13, 14},
	{"flush", flush, 0, 15, -1, 16},
};

struct stat_file {
	unsigned long column[17];
};

static struct stat_file read_stat(const char *path)
{
	FILE *f = fopen(path, "re");
	struct stat_file s = {};

	if (!f)
		fail(path);
	for (int i = 0; i < 17; i++)
		if (fscanf(f, "%lu", &s.column[i]) != 1)
			break;
	fclose(f);
	return s;
}

#define IN_FLIGHT 8 /* column */

/* The kernel counts a request after it has woken who waits for it. */
static struct stat_file read_settled(const char *path)
{
	struct stat_file s = read_stat(path);

	for (int i = 0; s.column[IN_FLIGHT] && i < 100; i++) {
		usleep(1000);
		s = read_stat(path);
	}
	return s;
}

static void run(size_t k, int fd, const char *stat, int count)
{
	struct stat_file before = read_settled(stat), after;
	unsigned long long begin = now_ns(), end;
	int sectors = kinds[k].sectors;

	for (int i = 0; i < count; i++)
		kinds[k].make(fd, i);
	end = now_ns();
	after = read_settled(stat);
	printf("%s %d %llu %zu %lu %lu %lu\n", kinds[k].name, count, end - begin,
	       (size_t)count * kinds[k].bytes,
	       after.column[kinds[k].requests] - before.column[kinds[k].requests],
	       sectors < 0 ? 0 : after.column[sectors] - before.column[sectors],
	       after.column[kinds[k].ms] - before.column[kinds[k].ms]);
}

int main(int argc, char **argv)
{
	int fd = argc > 4 ? open(argv[1], O_RDWR | O_DIRECT | O_CLOEXEC) : -1;

	if (fd < 0)
		fail("known_requests DEVICE STAT COUNT KIND...");
	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("ready\n");
	getchar();
	/* Until the profiler knows the way from these functions to main(). */
	for (int i = 0; i < 40; i++, usleep(10000))
		warm_up(fd, i);
	for (int a = 4; a < argc; a++)
		for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++)
			if (!strcmp(kinds[k].name, argv[a]))
				run(k, fd, argv[2], (int)strtol(argv[3], NULL, 10));
	printf("over\n");
	getchar();
	return 0;
}
