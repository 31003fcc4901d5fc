/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cost of naming addresses of a file: bench-symbols FILE… prints JSON lines
 * {"what": …, "value": …, "unit": …}. Addresses are spread evenly over the code of the file:
 *
 *	open	  until symbols_open() returns
 *	first	  the first lookup, which reads tables and the index of units
 *	cold	  each of the others, all different
 *	warm	  the same addresses again
 *	memory	  the growth of the resident set, and what remains of it after symbols_trim()
 *	cached	  open and all lookups of a second run with the disk cache of the first
 */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "symbol/symbol.h"

#define ADDRESSES 5000U

static struct symbol_chain chain;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static double resident_mb(void)
{
	long total = 0, resident = 0;
	FILE *f = fopen("/proc/self/statm", "re");

	malloc_trim(0);
	if (!f || fscanf(f, "%ld %ld", &total, &resident) != 2)
		resident = 0;
	if (f)
		fclose(f);
	return (double)resident * (double)sysconf(_SC_PAGESIZE) / 1e6;
}

static void say(const char *file, const char *what, double value, const char *unit)
{
	printf("{\"what\": \"symbols %s %s\", \"value\": %.4g, \"unit\": \"%s\"}\n", file, what,
	       value, unit);
}

/* The n-th of ADDRESSES addresses in the largest piece of code. */
static u64 nth(const struct elf_file *f, u32 n)
{
	const struct elf_segment *best = NULL;

	for (u32 i = 0; i < f->n_segments; i++)
		if (f->segments[i].flags & PF_X && (!best || f->segments[i].memsz > best->memsz))
			best = &f->segments[i];
	return best ? best->svma + best->memsz / ADDRESSES * n : 0;
}

/* The share of addresses that have a name. */
static double all(struct symbols *s, const struct elf_file *f, u32 from)
{
	u32 named = 0;

	for (u32 i = from; i < ADDRESSES; i++)
		named += symbols_lookup(s, nth(f, i), &chain) == 0;
	return (double)named / (double)(ADDRESSES - from) * 100;
}

static int bench(const char *path, const char *cache)
{
	struct symbols_options o = {
		.inlines = true, .lines = true, .root_fd = -1, .path = path, .cache_dir = cache};
	const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
	double start, named, memory = resident_mb();
	struct elf_file *f;
	struct symbols *s;
	int r = elf_file_open(open(path, O_RDONLY | O_CLOEXEC), NULL, &f);

	if (r < 0)
		return r;
	start = now();
	r = symbols_open(f, &o, &s);
	if (r < 0)
		return r;
	say(name, "open", (now() - start) * 1e3, "ms");
	start = now();
	(void)symbols_lookup(s, nth(f, 0), &chain);
	say(name, "first", (now() - start) * 1e3, "ms");
	start = now();
	named = all(s, f, 1);
	say(name, "cold", (now() - start) / (ADDRESSES - 1) * 1e6, "us a lookup");
	start = now();
	(void)all(s, f, 0);
	say(name, "warm", ADDRESSES / (now() - start) / 1e6, "M lookups/s");
	say(name, "named", named, "%");
	say(name, "memory", resident_mb() - memory, "MB");
	symbols_trim(s);
	say(name, "memory trimmed", resident_mb() - memory, "MB");
	symbols_destroy(s);
	start = now();
	r = symbols_open(f, &o, &s);
	if (r < 0)
		return r;
	(void)all(s, f, 0);
	say(name, "cached", (now() - start) * 1e3, "ms for all");
	symbols_destroy(s);
	elf_file_destroy(f);
	return 0;
}

int main(int argc, char **argv)
{
	char cache[] = "/tmp/bench-symbols-XXXXXX";

	if (argc < 2 || !mkdtemp(cache))
		return 2;
	for (int i = 1; i < argc; i++) {
		int r = bench(argv[i], cache);

		if (r < 0)
			fprintf(stderr, "%s: %s\n", argv[i], strerror(-r));
	}
	return 0;
}
