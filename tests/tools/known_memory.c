// SPDX-License-Identifier: Apache-2.0
/*
 * known_memory FILE [much]: waits for a line on standard input, then makes memory resident in
 * functions that are named after what they do, and prints for each what is left of it:
 *
 *	FUNCTION KIND BYTES
 *
 * KIND is that of enum resident_kind: anonymous, huge, file, shared. The line "child PID" tells of
 * a process that it has forked. Then it prints "over" and stands still, as the child does, until a
 * second line. FILE has at least 16 MiB, which are in memory. With `much` it makes 644 MiB of one
 * kind.
 */
#include <fcntl.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096UL
#define HUGE (2UL << 20)
#define MIB (1UL << 20)

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static char *map(size_t bytes, int flags, int fd)
{
	char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);

	if (at == MAP_FAILED)
		fail("mmap");
	/* Huge pages only where they are asked for. */
	if (fd < 0)
		madvise(at, bytes, MADV_NOHUGEPAGE);
	return at;
}

__attribute__((noinline)) static void write_pages(volatile char *at, size_t bytes)
{
	for (size_t i = 0; i < bytes; i += PAGE)
		at[i] = 1;
}

__attribute__((noinline)) static void read_pages(const volatile char *at, size_t bytes)
{
	for (size_t i = 0; i < bytes; i += PAGE)
		(void)at[i];
}

static void tell(const char *function, const char *kind, size_t bytes)
{
	printf("%s %s %zu\n", function, kind, bytes);
}

#define PRIVATE (MAP_PRIVATE | MAP_ANONYMOUS)
/* Not a tail call, so that the function stays on the stack. */
#define SCENARIO __attribute__((noinline, optimize("no-optimize-sibling-calls"))) static void

/* So that the unwind rows of this file and of malloc() are loaded: the first faults come before. */
SCENARIO warm(void)
{
	for (int i = 0; i < 2; i++) {
		char *at = malloc(160 << 10);

		write_pages(at, 160 << 10);
		free(at);
		malloc_trim(0);
		usleep(200000);
	}
}

SCENARIO kept(void)
{
	write_pages(map(24 * MIB, PRIVATE, -1), 24 * MIB);
	tell("kept", "anonymous", 24 * MIB);
}

SCENARIO discarded(void)
{
	char *at = map(16 * MIB, PRIVATE, -1);

	write_pages(at, 16 * MIB);
	madvise(at + 4 * MIB, 12 * MIB, MADV_DONTNEED);
	tell("discarded", "anonymous", 4 * MIB);
}

static char *reused;

SCENARIO first_owner(void)
{
	reused = map(8 * MIB, PRIVATE, -1);
	write_pages(reused, 8 * MIB);
	madvise(reused, 8 * MIB, MADV_DONTNEED);
	tell("first_owner", "anonymous", 0);
}

SCENARIO second_owner(void)
{
	write_pages(reused, 8 * MIB);
	tell("second_owner", "anonymous", 8 * MIB);
}

SCENARIO half_unmapped(void)
{
	char *at = map(12 * MIB, PRIVATE, -1);

	write_pages(at, 12 * MIB);
	munmap(at, 6 * MIB);
	tell("half_unmapped", "anonymous", 6 * MIB);
}

SCENARIO moved_by_mremap(void)
{
	char *at = map(8 * MIB, PRIVATE, -1), *to = map(16 * MIB, PRIVATE, -1);

	write_pages(at, 8 * MIB);
	if (mremap(at, 8 * MIB, 8 * MIB, MREMAP_MAYMOVE | MREMAP_FIXED, to) == MAP_FAILED)
		fail("mremap");
	tell("moved_by_mremap", "anonymous", 8 * MIB);
}

SCENARIO zero_page_only(void)
{
	read_pages(map(8 * MIB, PRIVATE, -1), 8 * MIB);
	tell("zero_page_only", "anonymous", 0);
}

/* The break is moved up and back, as malloc() does; what malloc_trim() releases is in it. */
SCENARIO trimmed_heap(void)
{
	enum { N = 2048 };
	static char *blocks[N];
	struct mallinfo2 now;

	mallopt(M_MMAP_THRESHOLD, 1 << 20);
	mallopt(M_TRIM_THRESHOLD, 1 << 30);
	for (int i = 0; i < N; i++) {
		blocks[i] = malloc(8192);
		write_pages(blocks[i], 8192);
	}
	for (int i = N / 4; i < N; i++)
		free(blocks[i]);
	malloc_trim(0);
	now = mallinfo2();
	tell("trimmed_heap", "anonymous", now.uordblks);
}

SCENARIO huge_pages(void)
{
	char *at = map(18 * MIB, PRIVATE, -1);

	at = (char *)(((unsigned long)at + HUGE - 1) & -HUGE);
	if (madvise(at, 16 * MIB, MADV_HUGEPAGE) < 0)
		return;
	write_pages(at, 16 * MIB);
	tell("huge_pages", "huge", 16 * MIB);
}

SCENARIO file_read(const char *path)
{
	int fd = open(path, O_RDONLY);
	char *at = mmap(NULL, 16 * MIB, PROT_READ, MAP_PRIVATE, fd, 0);

	if (at == MAP_FAILED)
		fail("mmap");
	read_pages(at, 16 * MIB);
	tell("file_read", "file", 16 * MIB);
}

SCENARIO file_shared(const char *path)
{
	int fd = open(path, O_RDWR);
	char *at = map(16 * MIB, MAP_SHARED, fd);

	write_pages(at, 4 * MIB);
	read_pages(at + 4 * MIB, 4 * MIB);
	tell("file_shared", "file", 8 * MIB);
}

SCENARIO file_copied(const char *path)
{
	int fd = open(path, O_RDONLY);

	write_pages(map(4 * MIB, MAP_PRIVATE, fd), 4 * MIB);
	tell("file_copied", "anonymous", 4 * MIB);
}

SCENARIO shared_memory(void)
{
	write_pages(map(12 * MIB, MAP_SHARED | MAP_ANONYMOUS, -1), 12 * MIB);
	tell("shared_memory", "shared", 12 * MIB);
}

SCENARIO child_writes(char *at)
{
	write_pages(at, 4 * MIB);
}

SCENARIO child_reads(char *at)
{
	read_pages(at, 6 * MIB);
}

/* The child has the parent's pages, copies half of them, and reads shared memory of the parent. */
SCENARIO forked(void)
{
	char *at = map(8 * MIB, PRIVATE, -1),
	     *shared = map(6 * MIB, MAP_SHARED | MAP_ANONYMOUS, -1);
	int done[2];
	char c = 0;
	pid_t pid;

	write_pages(at, 8 * MIB);
	write_pages(shared, 6 * MIB);
	if (pipe(done) < 0)
		fail("pipe");
	pid = fork();
	if (pid == 0) {
		child_writes(at);
		child_reads(shared);
		if (write(done[1], &c, 1) == 1)
			for (;;)
				pause();
		_exit(1);
	}
	if (read(done[0], &c, 1) != 1)
		fail("read");
	printf("child %d\n", (int)pid);
	tell("forked", "anonymous", 8 * MIB);
	tell("forked", "shared", 6 * MIB);
}

/* Each fault can be walked. */
SCENARIO slowly(void)
{
	char *at = map(4 * MIB, PRIVATE, -1);

	for (size_t i = 0; i < 4 * MIB; i += PAGE) {
		write_pages(at + i, PAGE);
		usleep(500);
	}
	tell("slowly", "anonymous", 4 * MIB);
}

/* More pages than are followed. */
SCENARIO much(void)
{
	write_pages(map(448 * MIB, PRIVATE, -1), 448 * MIB);
	tell("much", "anonymous", 448 * MIB);
}

SCENARIO much_moved(void)
{
	char *at = map(192 * MIB, PRIVATE, -1), *to = map(192 * MIB, PRIVATE, -1);

	write_pages(at, 192 * MIB);
	if (mremap(at, 192 * MIB, 192 * MIB, MREMAP_MAYMOVE | MREMAP_FIXED, to) == MAP_FAILED)
		fail("mremap");
	tell("much_moved", "anonymous", 192 * MIB);
}

int main(int argc, char **argv)
{
	char line[16];
	char *before = map(10 * MIB, PRIVATE, -1);

	setvbuf(stdout, NULL, _IOLBF, 1024);
	write_pages(before, 10 * MIB);
	puts("ready");
	if (argc < 2 || !fgets(line, sizeof(line), stdin))
		return 1;
	warm();
	if (argc > 2) {
		slowly();
		much();
		much_moved();
		puts("over");
		return fgets(line, sizeof(line), stdin) ? 0 : 1;
	}
	kept();
	discarded();
	first_owner();
	second_owner();
	half_unmapped();
	moved_by_mremap();
	zero_page_only();
	trimmed_heap();
	huge_pages();
	file_read(argv[1]);
	file_shared(argv[1]);
	file_copied(argv[1]);
	shared_memory();
	forked();
	puts("over");
	return fgets(line, sizeof(line), stdin) ? 0 : 1;
}
