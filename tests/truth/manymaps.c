/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Uses the CPU while it has N (argv[2], default 100000) executable mappings. Half of them map a
 * file that the program makes, in turns two pages of it, so that neighbours do not merge; half are
 * anonymous memory between guard pages. Exits with 77 if vm.max_map_count is too small.
 */
#include "truth.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

NOINLINE void many_leaf(void)
{
	TRUTH();
	spin(300000);
}

NOINLINE void many_work(void)
{
	TRUTH();
	many_leaf();
}

int main(int argc, char **argv)
{
	long n = argc > 2 ? strtol(argv[2], NULL, 10) : 100000, page = sysconf(_SC_PAGESIZE);
	FILE *f = tmpfile();
	char *area;

	TRUTH();
	if (!f || ftruncate(fileno(f), 2 * page))
		return 1;
	area = mmap(NULL, n * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (area == MAP_FAILED)
		return 1;
	for (long i = 0; i < n; i++) {
		void *p;

		if (i % 4 == 1)
			p = mmap(area + i * page, page, PROT_READ | PROT_WRITE | PROT_EXEC,
				 MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		else
			p = mmap(area + i * page, page, PROT_READ | PROT_EXEC,
				 MAP_FIXED | MAP_PRIVATE, fileno(f), i % 2 * page);
		if (p == MAP_FAILED) {
			fprintf(stderr, "mapping %ld failed: vm.max_map_count too low?\n", i);
			return 77;
		}
	}
	truth_init(argc, argv);
	/* The CPU time for making the mappings is not part of the budget. */
	long long end = truth_cpu_ns() + (argc > 1 ? atoll(argv[1]) : 1000) * 1000000;

	while (truth_cpu_ns() < end)
		many_work();
	truth_finish();
	return 0;
}
