/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a command will run is found as the kernel and the shell's PATH find it: a script leads to
 * its interpreter, `env` to what it is given. The libraries are those that the program's own
 * loader lists (ld.so --list), which runs nothing of them; what a Java program loads by itself is
 * found from where it lies. Code is mapped and never read here.
 */
#include "cli/foresee.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "elf/elf.h"

/* A script whose interpreter is a script, and so on: as often as the kernel allows. */
#define MAX_SCRIPTS 5
#define FIRST_LINE 256
#define BLANKS " \t"

static bool is_program(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

/* Where execvp() would find it. */
static bool find_program(const char *name, char ret[static PATH_MAX])
{
	const char *path = getenv("PATH");
	char found[PATH_MAX];

	if (strchr(name, '/')) {
		snprintf(ret, PATH_MAX, "%s", name);
		return is_program(name);
	}
	for (const char *dir = path ? path : "/bin:/usr/bin"; dir;) {
		int n = (int)strcspn(dir, ":");

		snprintf(found, sizeof(found), "%.*s/%s", n, n ? dir : ".", name);
		if (is_program(found)) {
			memcpy(ret, found, PATH_MAX);
			return true;
		}
		dir = dir[n] ? dir + n + 1 : NULL;
	}
	return false;
}

/* What a script's first line starts; NULL when it is none. `line` is written to. */
static const char *interpreter(char *line)
{
	char *rest = NULL, *name, *slash, *word;

	line[strcspn(line, "\n")] = '\0';
	if (strncmp(line, "#!", 2) != 0)
		return NULL;
	name = strtok_r(line + 2, BLANKS, &rest);
	slash = name ? strrchr(name, '/') : NULL;
	if (!slash || strcmp(slash, "/env") != 0)
		return name;
	/* Options and variables of env. */
	do
		word = strtok_r(NULL, BLANKS, &rest);
	while (word && (*word == '-' || strchr(word, '=')));
	return word;
}

/* The file's code, and the loader that it names, in memory of the caller's. */
static int map_code(const char *path, char ret_loader[static PATH_MAX])
{
	_cleanup_elf_file_ struct elf_file *elf = NULL;
	u64 page = (u64)sysconf(_SC_PAGESIZE);
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct buf bytes;
	int r;

	*ret_loader = '\0';
	if (fd < 0)
		return -errno;
	r = elf_file_open(fd, NULL, &elf);
	if (r < 0)
		return r;
	for (u32 i = 0; i < elf->n_segments; i++) {
		const struct elf_segment *s = &elf->segments[i];
		u64 before = s->foff % page;

		if (s->flags & PF_X && s->filesz)
			(void)mmap(NULL, s->filesz + before, PROT_READ | PROT_EXEC, MAP_PRIVATE,
				   elf->fd, (off_t)(s->foff - before));
	}
	if (elf_file_section(elf, ".interp", NULL, &bytes) == 0 && buf_left(&bytes) < PATH_MAX)
		snprintf(ret_loader, PATH_MAX, "%.*s", (int)buf_left(&bytes),
			 (const char *)bytes.pos);
	return 0;
}

/* A line such as "libc.so.6 => /lib/libc.so.6 (0x7f…)". */
static void map_listed(char *line)
{
	char loader[PATH_MAX], *path = strchr(line, '/');

	if (!path)
		return;
	path[strcspn(path, " \t\n")] = '\0';
	(void)map_code(path, loader);
}

static void map_libraries(const char *loader, const char *path)
{
	_cleanup_free_ char *line = NULL;
	size_t n = 0;
	int out[2];
	FILE *f;
	pid_t pid;

	if (pipe2(out, O_CLOEXEC) < 0)
		return;
	pid = fork();
	if (pid == 0) {
		dup2(out[1], STDOUT_FILENO);
		(void)!freopen("/dev/null", "w", stderr);
		execl(loader, loader, "--list", path, (char *)NULL);
		_exit(127);
	}
	close(out[1]);
	f = fdopen(out[0], "r");
	while (f && getline(&line, &n, f) > 0)
		map_listed(line);
	if (f)
		fclose(f);
	if (pid > 0)
		waitpid(pid, NULL, 0);
}

/* The first bytes, as a string. */
static bool read_start(const char *path, char ret[static FIRST_LINE])
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	ssize_t n;

	if (fd < 0)
		return false;
	n = read(fd, ret, FIRST_LINE - 1);
	close(fd);
	ret[n > 0 ? n : 0] = '\0';
	return n > 0;
}

/* A JDK's programs load its VM when they have begun, from a place that is known from theirs. */
static void map_java(const char *loader, const char *program)
{
	static const char *const places[] = {"lib", "jre/lib/amd64", "lib/amd64", "jre/lib/aarch64",
					     "lib/aarch64"};
	static const char *const names[] = {"java", "jimage", "zip", "verify", "net", "nio"};
	char home[PATH_MAX], path[2 * PATH_MAX], unused[PATH_MAX];

	if (!realpath(program, home))
		return;
	for (u32 i = 0; i < 2; i++) { /* …/bin/java */
		char *slash = strrchr(home, '/');

		if (!slash)
			return;
		*slash = '\0';
	}
	for (u32 i = 0; i < ARRAY_SIZE(places); i++) {
		snprintf(path, sizeof(path), "%s/%s/server/libjvm.so", home, places[i]);
		if (map_code(path, unused) < 0)
			continue;
		map_libraries(loader, path);
		for (u32 k = 0; k < ARRAY_SIZE(names); k++) {
			snprintf(path, sizeof(path), "%s/%s/lib%s.so", home, places[i], names[k]);
			(void)map_code(path, unused);
		}
		return;
	}
}

void foresee_command(const char *name)
{
	char path[PATH_MAX], loader[PATH_MAX], line[FIRST_LINE];
	const char *next = name;

	for (u32 i = 0; next && i < MAX_SCRIPTS; i++) {
		if (!find_program(next, path) || !read_start(path, line))
			return;
		next = interpreter(line);
	}
	if (next || map_code(path, loader) < 0)
		return;
	name = strrchr(loader, '/');
	if (name && (!strncmp(name, "/ld-linux", 9) || !strncmp(name, "/ld-musl", 8))) {
		map_libraries(loader, path);
		map_java(loader, path);
	}
}
