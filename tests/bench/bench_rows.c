/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures the unwind tables of the named files, or of some files that most machines have: bytes
 * per row, rows built per second of one core, and the CPU time of opening. Prints one JSON object
 * per line. Bytes are those in the arena: rows with padding and index lines, a page record for
 * every page, rules in lines of four.
 */
#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "elf/elf.h"
#include "unwind/unwind.h"

#define MIN_SECONDS 0.3

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* must and aim: of architecture.md's numbers, 0 = none. */
static void say(const char *file, const char *what, double value, const char *unit, double must,
		double aim)
{
	printf("{\"what\": \"unwind tables, %s: %s\", \"value\": %.6g, \"unit\": \"%s\"", file,
	       what, value, unit);
	if (must > 0)
		printf(", \"must\": %g, \"aim\": %g", must, aim);
	puts("}");
}

struct totals {
	u64 rows;
	u64 lines;
	u64 pages;
};

static int build_all(struct unwind_source *s, struct totals *ret)
{
	static u32 rows[UNWIND_PAGE_BYTES];
	const struct unwind_source_info *info = unwind_source_info(s);
	struct totals t = {.pages = info->n_pages};

	for (u64 p = 0; p < info->n_pages; p++) {
		u32 n;

		if (unwind_source_rows(s, info->first_page + p, rows, &n) < 0)
			return -1;
		t.rows += n;
		t.lines += unwind_page_n_lines(n);
	}
	*ret = t;
	return 0;
}

static int open_source(const char *path, struct elf_file **ret_elf, struct unwind_source **ret)
{
	struct diag d = {};

	if (elf_file_open(open(path, O_RDONLY | O_CLOEXEC), &d, ret_elf) < 0) {
		fprintf(stderr, "%s: %s\n", path, d.text);
		return -1;
	}
	return unwind_source_create(*ret_elf, ret);
}

static int bench(const char *path)
{
	const char *slash = strrchr(path, '/'), *file = slash ? slash + 1 : path;
	struct totals t = {};
	double start, open_s = 0, build_s = 0;
	u64 bytes, built = 0;
	u32 n_rules = 0, n_opens = 0;

	for (start = now(); now() - start < 2 * MIN_SECONDS;) {
		struct elf_file *elf = NULL;
		struct unwind_source *s = NULL;
		double a = now(), b;

		if (open_source(path, &elf, &s) < 0)
			return 1;
		b = now();
		open_s += b - a;
		n_opens++;
		if (build_all(s, &t) < 0)
			return 1;
		build_s += now() - b;
		built += t.rows;
		(void)unwind_source_rules(s, &n_rules);
		unwind_source_destroy(s);
		elf_file_destroy(elf);
	}
	bytes = t.lines * UNWIND_LINE_BYTES + t.pages * sizeof(struct unwind_page) +
		(u64)(n_rules + UNWIND_RULES_PER_LINE - 1) / UNWIND_RULES_PER_LINE *
			UNWIND_LINE_BYTES;
	say(file, "rows", (double)t.rows, "rows", 0, 0);
	say(file, "rules", n_rules, "rules", 0, 0);
	say(file, "bytes a row", (double)bytes / (double)t.rows, "B", 6, 5);
	say(file, "size", (double)bytes / 1e3, "kB", 0, 0);
	say(file, "rows built a second of CPU", (double)built / build_s / 1e6, "M", 5, 20);
	say(file, "opening", open_s / n_opens * 1e3, "ms", 0, 0);
	return 0;
}

int main(int argc, char **argv)
{
	static const char *const usual[] = {
		"/lib/*-linux-gnu/libc.so.6",
		"/usr/lib/postgresql/*/bin/postgres",
		"/usr/bin/node",
		"/usr/lib/jvm/java-17-*/lib/server/libjvm.so",
	};
	int r = 0;

	for (int i = 1; i < argc; i++)
		r |= bench(argv[i]);
	for (size_t i = 0; argc < 2 && i < ARRAY_SIZE(usual); i++) {
		glob_t g;

		if (glob(usual[i], 0, NULL, &g))
			continue;
		r |= bench(g.gl_pathv[0]);
		globfree(&g);
	}
	return r;
}
