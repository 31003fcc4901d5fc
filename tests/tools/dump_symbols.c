/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prints the symbols that lib/symbol finds for addresses, for tests/live/test_symbols.py:
 *
 *	dump-symbols [-i] [-l] [-t] [-q] [-r ROOT -p PATH] [-c CACHE] [-u URLS] FILE ADDRESS...
 *	dump-symbols -k KALLSYMS | -m PERF_MAP | -j JITDUMP ADDRESS...
 *
 * The ADDRESS - stands for the addresses on standard input. For an ELF file it prints `S source`
 * first. For each address it prints `A ADDRESS N` and N lines, innermost first: F and, with tabs
 * between: inlined, name, system name, file, line, column, start line. -t trims after each lookup,
 * -q prints nothing.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "symbol/symbol.h"

static bool quiet, trim;

/* Names of a damaged file may have any bytes: prints `?` for a byte that ends a field or a line. */
static void print_text(const char *s)
{
	for (; s && *s; s++)
		putchar((unsigned char)*s < ' ' ? '?' : *s);
	putchar('\t');
}

static void print_chain(uint64_t address, const struct symbol_chain *c)
{
	if (quiet)
		return;
	printf("A %" PRIx64 " %u\n", address, c->n);
	for (u32 i = 0; i < c->n; i++) {
		const struct symbol_frame *f = &c->frames[i];

		printf("F %d\t", f->inlined);
		print_text(f->name);
		print_text(f->system_name);
		print_text(f->file);
		printf("%u\t%u\t%u\n", f->line, f->column, f->start_line);
	}
}

/* Calls fn for each address among the arguments or on standard input. */
static int each_address(char **argv, int argc, int (*fn)(void *arg, uint64_t address), void *arg)
{
	char line[64];
	int r = 0;

	if (argc == 1 && strcmp(argv[0], "-") == 0) {
		while (r == 0 && fgets(line, sizeof(line), stdin))
			r = fn(arg, strtoull(line, NULL, 16));
		return r;
	}
	for (int i = 0; i < argc && r == 0; i++)
		r = fn(arg, strtoull(argv[i], NULL, 16));
	return r;
}

static int in_elf(void *arg, uint64_t address)
{
	static struct symbol_chain chain;
	int r = symbols_lookup(arg, address, &chain);

	if (r == -ENOENT)
		chain.n = 0;
	else if (r < 0)
		return r;
	print_chain(address, &chain);
	if (trim)
		symbols_trim(arg);
	return 0;
}

static int in_kernel(void *arg, uint64_t address)
{
	const char *name = "-", *module = "";

	(void)kallsyms_lookup(arg, address, &name, &module);
	printf("%" PRIx64 " %s [%s]\n", address, name, module);
	return 0;
}

static int dump_kernel(const char *path, char **argv, int argc)
{
	struct kallsyms *k;
	int r = kallsyms_open(path, &k);

	if (r < 0)
		return r;
	r = each_address(argv, argc, in_kernel, k);
	kallsyms_destroy(k);
	return r;
}

static int in_perf_map(void *arg, uint64_t address)
{
	const char *name = "-";

	(void)perf_map_lookup(arg, address, &name);
	printf("%" PRIx64 " %s\n", address, name);
	return 0;
}

static int in_jitdump(void *arg, uint64_t address)
{
	static struct symbol_chain chain;

	if (jitdump_lookup(arg, address, ~0ULL, &chain) < 0)
		chain.n = 0;
	print_chain(address, &chain);
	return 0;
}

static int dump_jit(const char *perf_map, const char *jitdump, char **argv, int argc)
{
	struct perf_map *m;
	struct jitdump *j;
	int r;

	if (perf_map) {
		r = perf_map_open(open(perf_map, O_RDONLY | O_CLOEXEC), 0, &m);
		if (r < 0)
			return r;
		r = each_address(argv, argc, in_perf_map, m);
		perf_map_destroy(m);
		return r;
	}
	r = jitdump_open(open(jitdump, O_RDONLY | O_CLOEXEC), 0, &j);
	if (r < 0)
		return r;
	r = each_address(argv, argc, in_jitdump, j);
	jitdump_destroy(j);
	return r;
}

static int dump_elf(struct symbols_options *o, const char *path, char **argv, int argc)
{
	struct diag diag = {};
	struct symbols *s;
	struct elf_file *f;
	int r = elf_file_open(open(path, O_RDONLY | O_CLOEXEC), &diag, &f);

	if (r < 0) {
		fprintf(stderr, "%s: %s\n", path, diag.text);
		return r;
	}
	o->path = o->root_fd >= 0 ? o->path : path;
	r = symbols_open(f, o, &s);
	if (r == 0) {
		if (!quiet)
			printf("S %s\n", symbols_from(s));
		r = each_address(argv, argc, in_elf, s);
		symbols_destroy(s);
	}
	elf_file_destroy(f);
	return r;
}

int main(int argc, char **argv)
{
	struct symbols_options o = {.root_fd = -1};
	const char *kallsyms = NULL, *perf_map = NULL, *jitdump = NULL;
	int c, r;

	while ((c = getopt(argc, argv, "ilr:p:c:u:k:m:j:tq")) != -1) {
		switch (c) {
		case 'i':
			o.inlines = true;
			break;
		case 'l':
			o.lines = true;
			break;
		case 'r':
			o.root_fd = open(optarg, O_PATH | O_DIRECTORY | O_CLOEXEC);
			break;
		case 'p':
			o.path = optarg;
			break;
		case 'c':
			o.cache_dir = optarg;
			break;
		case 'u':
			o.debuginfod_urls = optarg;
			break;
		case 'k':
			kallsyms = optarg;
			break;
		case 'm':
			perf_map = optarg;
			break;
		case 'j':
			jitdump = optarg;
			break;
		case 't':
			trim = true;
			break;
		case 'q':
			quiet = true;
			break;
		default:
			return 2;
		}
	}
	argv += optind;
	argc -= optind;
	if (kallsyms)
		r = dump_kernel(kallsyms, argv, argc);
	else if (perf_map || jitdump)
		r = dump_jit(perf_map, jitdump, argv, argc);
	else if (argc)
		r = dump_elf(&o, argv[0], argv + 1, argc - 1);
	else
		return 2;
	if (r < 0)
		fprintf(stderr, "dump_symbols: %s\n", strerror(-r));
	return r < 0;
}
