/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which programs of a command line are mapped before it runs. Each test is a process of its own.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/command/foresee.h"
#include "base/types.h"

static char root[64];

static void copy(const char *to)
{
	char path[128], bytes[4096];
	FILE *from = fopen("/usr/bin/env", "re"), *out;
	size_t n;

	snprintf(path, sizeof(path), "%s/%s", root, to);
	out = fopen(path, "we");
	cr_assert(from && out);
	while ((n = fread(bytes, 1, sizeof(bytes), from)) > 0)
		cr_assert(fwrite(bytes, 1, n, out) == n);
	fclose(from);
	fclose(out);
	cr_assert(chmod(path, 0755) == 0);
}

/* Makes a root with two programs, and a symbolic link with an absolute target to one of them. */
static void make_root(void)
{
	char path[128];

	snprintf(root, sizeof(root), "/tmp/culprit-test-foresee-XXXXXX");
	cr_assert(mkdtemp(root));
	snprintf(path, sizeof(path), "%s/bin", root);
	cr_assert(mkdir(path, 0755) == 0);
	copy("bin/worker");
	copy("bin/other");
	snprintf(path, sizeof(path), "%s/bin/alias", root);
	cr_assert(symlink("/bin/worker", path) == 0);
}

static void remove_root(void)
{
	static const char *const files[] = {"bin/worker", "bin/other", "bin/alias", "bin", ""};
	char path[128];

	for (u32 i = 0; i < ARRAY_SIZE(files); i++) {
		snprintf(path, sizeof(path), "%s/%s", root, files[i]);
		cr_assert(remove(path) == 0);
	}
}

/* Tells whether the code of this file below the root is mapped. */
static bool is_mapped(const char *name)
{
	char line[512], path[128];
	FILE *f = fopen("/proc/self/maps", "re");
	bool found = false;

	snprintf(path, sizeof(path), "%s/%s\n", root, name);
	while (f && fgets(line, sizeof(line), f))
		found |= strstr(line, path) && strstr(line, " r-xp ");
	fclose(f);
	return found;
}

/* Runs foresee_command(); the word "%" is replaced by `fmt`, which may contain the root twice. */
static void foresee(const char **argv, const char *fmt)
{
	char text[256];

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	snprintf(text, sizeof(text), fmt, root, root);
#pragma GCC diagnostic pop
	for (u32 i = 0; argv[i]; i++)
		if (!strcmp(argv[i], "%"))
			argv[i] = text;
	foresee_command(argv, "/bin:/usr/bin:/usr/sbin:/sbin");
}

TestSuite(foresee, .init = make_root, .fini = remove_root);

Test(foresee, the_command_itself)
{
	foresee((const char *[]){"%", NULL}, "%s/bin/worker");
	cr_assert(is_mapped("bin/worker"));
	cr_assert(!is_mapped("bin/other"));
}

Test(foresee, what_launchers_start)
{
	foresee((const char *[]){"env", "A=b", "nice", "-n", "3", "%", "-version", NULL},
		"%s/bin/worker");
	cr_assert(is_mapped("bin/worker"));
}

Test(foresee, words_of_a_shell)
{
	foresee((const char *[]){"sh", "-ec", "%", "sh", NULL},
		"cd /; A=1 (%s/bin/worker -x); true");
	cr_assert(is_mapped("bin/worker"));
}

/* After chroot, an absolute link leads to a file in the new root. */
Test(foresee, behind_chroot)
{
	foresee((const char *[]){"sh", "-c", "%", "sh", "alias", NULL}, "exec chroot %s \"$@\"");
	cr_assert(is_mapped("bin/worker"));
	cr_assert(!is_mapped("bin/other"));
}

/* If a program does not execute its arguments, its arguments are not mapped. */
Test(foresee, no_arguments_of_others)
{
	foresee((const char *[]){"true", "%", NULL}, "%s/bin/worker");
	cr_assert(!is_mapped("bin/worker"));
}

Test(foresee, nothing_of_nothing)
{
	foresee((const char *[]){"sh", "-c", NULL}, "");
	foresee((const char *[]){"", "", NULL}, "");
	foresee((const char *[]){"chroot", NULL}, "");
	foresee((const char *[]){"chroot", "/no/such/folder", "%", NULL}, "%s/bin/other");
	cr_assert(is_mapped("bin/other"));
}
