/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of the kernel: those that can be probed, and addresses of symbols. */
#include <bpf/btf.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/probe/probe.h"
#include "agent/tracer/internal.h"
#include "base/cleanup.h"

/* "ext4_sync_file [ext4]". Splits the line in place. */
static void split_module(char *line, const char **ret_module)
{
	char *space = strpbrk(line, " \t"), *bracket = space ? strchr(space, '[') : NULL;

	*ret_module = "vmlinux";
	line[strcspn(line, "\n")] = '\0';
	if (bracket) {
		bracket[1 + strcspn(bracket + 1, "]")] = '\0';
		*ret_module = bracket + 1;
	}
	if (space)
		*space = '\0';
}

/* Lines "ADDRESS TYPE NAME [MODULE]". Returns the name, or NULL: it is no line of a function. */
static char *split_symbol(char *line, u64 *ret_address, char *ret_type)
{
	char *end;

	*ret_address = strtoull(line, &end, 16);
	if (end == line || end[0] != ' ' || !end[1] || end[2] != ' ')
		return NULL;
	*ret_type = end[1];
	return end + 3;
}

static int list_traceable(FILE *f, tracer_kernel_fn *fn, void *arg)
{
	_cleanup_free_ char *line = NULL;
	const char *module;
	size_t cap = 0;
	int r = 0;

	while (r == 0 && getline(&line, &cap, f) > 0) {
		split_module(line, &module);
		if (strncmp(line, "__ftrace_invalid", 16) != 0)
			r = fn(arg, module, line);
	}
	return r;
}

static int list_symbols(FILE *f, tracer_kernel_fn *fn, void *arg)
{
	_cleanup_free_ char *line = NULL;
	const char *module;
	size_t cap = 0;
	u64 address;
	char type;
	int r = 0;

	while (r == 0 && getline(&line, &cap, f) > 0) {
		char *name = split_symbol(line, &address, &type);

		if (!name || tolower((u8)type) != 't')
			continue;
		split_module(name, &module);
		if (strcmp(module, "bpf") != 0)
			r = fn(arg, module, name);
	}
	return r;
}

int tracer_kernel_functions(tracer_kernel_fn *fn, void *arg, struct diag *d)
{
	int fd = probe_open_tracefs("available_filter_functions", O_RDONLY);
	_cleanup_fclose_ FILE *f = NULL;

	if (fd >= 0) {
		f = fdopen(fd, "r");
		if (f)
			return list_traceable(f, fn, arg);
		close(fd);
	}
	/* A kernel without ftrace. What cannot be probed is refused when it is attached. */
	f = fopen("/proc/kallsyms", "re");
	if (!f)
		return diag_set(d, -errno, "cannot read /proc/kallsyms: %s", strerror(errno));
	return list_symbols(f, fn, arg);
}

struct wanted {
	const char *name;
};

static int compare_name(void *arg, const char *module, const char *name)
{
	struct wanted *w = arg;

	(void)module;
	return strcmp(w->name, name) == 0;
}

bool tracer_kernel_has(struct tracer_machine *m, const char *name)
{
	struct wanted w = {.name = name};
	_cleanup_fclose_ FILE *f = NULL;

	if (m->btf && btf__find_by_name_kind(m->btf, name, BTF_KIND_FUNC) > 0)
		return true;
	f = fopen("/proc/kallsyms", "re");
	return f && list_symbols(f, compare_name, &w) == 1;
}

int tracer_kernel_symbol(const char *name, u64 *ret, struct diag *d)
{
	_cleanup_fclose_ FILE *f = fopen("/proc/kallsyms", "re");
	_cleanup_free_ char *line = NULL;
	const char *module;
	size_t cap = 0;
	u64 address;
	char type;

	if (!f)
		return diag_set(d, -errno, "cannot read /proc/kallsyms: %s", strerror(errno));
	while (getline(&line, &cap, f) > 0) {
		char *symbol = split_symbol(line, &address, &type);

		if (!symbol)
			continue;
		split_module(symbol, &module);
		if (strcmp(symbol, name) != 0)
			continue;
		if (!address)
			return diag_set(d, -EPERM,
					"the kernel hides the addresses of its symbols: "
					"sysctl kernel.kptr_restrict=0");
		*ret = address;
		return 0;
	}
	return diag_set(d, -ENOENT, "the kernel has no symbol '%s'", name);
}
