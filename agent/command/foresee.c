/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Predicts the code that a command will run, the way the kernel and the shell's PATH find it: a
 * script leads to its interpreter, `env` to its argument. For programs that run their arguments (a
 * shell, chroot, nice, ...), the arguments are looked up as well, and so is each word of `sh -c`,
 * because it may be the name of a program. The libraries come from the program's own loader (ld.so
 * --list), which lists them without running the program; those that a Java program loads later have
 * known places beside the program. This file maps code and never reads it.
 */
#include "agent/command/foresee.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "elf/elf.h"

/* Scripts whose interpreter is a script: the kernel's limit. */
#define MAX_SCRIPTS 5
/*
 * Programs looked up for one command. A word that happens to be a program's name costs some
 * milliseconds.
 */
#define MAX_PROGRAMS 12
#define FIRST_LINE 256
#define BLANKS " \t"
#define BETWEEN_WORDS BLANKS "\n;&|(){}<>'\"`"

struct foresight {
	const char *search;  /* PATH, or NULL */
	int root;	     /* file descriptor of the chroot, or -1 */
	char path[PATH_MAX]; /* its path outside of the chroot; empty: none */
	u32 n;		     /* number of programs found */
	dev_t devices[MAX_PROGRAMS];
	ino_t inodes[MAX_PROGRAMS];
};

/* Programs that run what their arguments name. */
static const char *const launchers[] = {
	"bash",	  "chroot", "chrt",    "dash",	  "env",     "ionice",	"ksh",
	"nice",	  "nohup",  "numactl", "prlimit", "setpriv", "setsid",	"sh",
	"stdbuf", "sudo",   "taskset", "time",	  "timeout", "unshare", "zsh",
};

static int open_in(const struct foresight *f, const char *path, int flags)
{
	struct open_how how = {.flags = (u64)flags | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT};

	return f->root < 0 ? open(path, flags | O_CLOEXEC)
			   : (int)syscall(SYS_openat2, f->root, path, &how, sizeof(how));
}

static bool is_program(const struct foresight *f, const char *path)
{
	struct stat st;
	int fd = open_in(f, path, O_PATH);
	bool yes = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_mode & 0111;

	if (fd >= 0)
		close(fd);
	return yes;
}

/* Finds the program of this name as execvp() does. */
static bool find_program(const struct foresight *f, const char *name, char ret[static PATH_MAX])
{
	char found[PATH_MAX];

	if (strchr(name, '/')) {
		snprintf(ret, PATH_MAX, "%s", name);
		return is_program(f, name);
	}
	for (const char *dir = f->search ? f->search : "/bin:/usr/bin"; *name && dir;) {
		int n = (int)strcspn(dir, ":");

		snprintf(found, sizeof(found), "%.*s/%s", n, n ? dir : ".", name);
		if (is_program(f, found)) {
			memcpy(ret, found, PATH_MAX);
			return true;
		}
		dir = dir[n] ? dir + n + 1 : NULL;
	}
	return false;
}

/* The program that a script's first line names; NULL if it is not a script. Writes to `line`. */
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
	/* Skip the options and variables of env. */
	do
		word = strtok_r(NULL, BLANKS, &rest);
	while (word && (*word == '-' || strchr(word, '=')));
	return word;
}

/* Maps the file's code, and returns the loader that the file names. */
static int map_code(const struct foresight *f, const char *path, char ret_loader[static PATH_MAX])
{
	_cleanup_elf_file_ struct elf_file *elf = NULL;
	u64 page = (u64)sysconf(_SC_PAGESIZE);
	int fd = open_in(f, path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
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

/* Maps the library of a line such as "libc.so.6 => /lib/libc.so.6 (0x7f…)". */
static void map_listed(const struct foresight *f, char *line)
{
	char loader[PATH_MAX], *path = strchr(line, '/');

	if (!path)
		return;
	path[strcspn(path, " \t\n")] = '\0';
	(void)map_code(f, path, loader);
}

/* Only a loader of the system is executed. */
static bool is_loader(const char *path)
{
	const char *name = strrchr(path, '/');

	return (!strncmp(path, "/lib", 4) || !strncmp(path, "/usr/lib", 8)) &&
	       !strstr(path, "/../") &&
	       (!strncmp(name, "/ld-linux", 9) || !strncmp(name, "/ld-musl", 8));
}

static void map_libraries(const struct foresight *f, const char *loader, const char *path)
{
	_cleanup_free_ char *line = NULL;
	size_t n = 0;
	int out[2];
	FILE *lines;
	pid_t pid;

	if (pipe2(out, O_CLOEXEC) < 0)
		return;
	pid = fork();
	if (pid == 0) {
		dup2(out[1], STDOUT_FILENO);
		(void)!freopen("/dev/null", "w", stderr);
		if (f->root >= 0 && (fchdir(f->root) < 0 || chroot(".") < 0))
			_exit(126);
		execl(loader, loader, "--list", path, (char *)NULL);
		_exit(127);
	}
	close(out[1]);
	lines = fdopen(out[0], "r");
	while (lines && getline(&line, &n, lines) > 0)
		map_listed(f, line);
	if (lines)
		fclose(lines);
	if (pid > 0)
		waitpid(pid, NULL, 0);
}

/* Reads the first bytes as a string. */
static bool read_start(const struct foresight *f, const char *path, char ret[static FIRST_LINE])
{
	int fd = open_in(f, path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
	ssize_t n;

	if (fd < 0)
		return false;
	n = read(fd, ret, FIRST_LINE - 1);
	close(fd);
	ret[n > 0 ? n : 0] = '\0';
	return n > 0;
}

/* The path without symbolic links, relative to the chroot. */
static bool resolve(const struct foresight *f, const char *path, char ret[static PATH_MAX])
{
	char link[64], outside[PATH_MAX];
	int fd = open_in(f, path, O_PATH);
	size_t before = strlen(f->path);
	ssize_t n;

	if (fd < 0)
		return false;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, outside, sizeof(outside) - 1);
	close(fd);
	outside[n > 0 ? n : 0] = '\0';
	if (strncmp(outside, f->path, before) != 0)
		return false;
	snprintf(ret, PATH_MAX, "%s", outside + before);
	return *ret == '/';
}

/* The programs of a JDK load the VM after they have started, from a path relative to their own. */
static void map_java(const struct foresight *f, const char *loader, const char *program)
{
	static const char *const places[] = {"lib", "jre/lib/amd64", "lib/amd64", "jre/lib/aarch64",
					     "lib/aarch64"};
	static const char *const names[] = {"java", "jimage", "zip", "verify", "net", "nio"};
	char home[PATH_MAX], path[2 * PATH_MAX], unused[PATH_MAX];

	if (!resolve(f, program, home))
		return;
	for (u32 i = 0; i < 2; i++) { /* …/bin/java */
		char *slash = strrchr(home, '/');

		if (!slash)
			return;
		*slash = '\0';
	}
	for (u32 i = 0; i < ARRAY_SIZE(places); i++) {
		snprintf(path, sizeof(path), "%s/%s/server/libjvm.so", home, places[i]);
		if (map_code(f, path, unused) < 0)
			continue;
		map_libraries(f, loader, path);
		for (u32 k = 0; k < ARRAY_SIZE(names); k++) {
			snprintf(path, sizeof(path), "%s/%s/lib%s.so", home, places[i], names[k]);
			(void)map_code(f, path, unused);
		}
		return;
	}
}

static bool is_new(struct foresight *f, const char *path)
{
	struct stat st;
	int fd = open_in(f, path, O_PATH);
	bool new = fd >= 0 && fstat(fd, &st) == 0;

	if (fd >= 0)
		close(fd);
	for (u32 i = 0; new &&i < f->n; i++)
		new = f->devices[i] != st.st_dev || f->inodes[i] != st.st_ino;
	if (new && f->n < MAX_PROGRAMS) {
		f->devices[f->n] = st.st_dev;
		f->inodes[f->n++] = st.st_ino;
		return true;
	}
	return false;
}

/* Maps the program of this name. Returns its path, or an empty string. */
static void map_program(struct foresight *f, const char *name, char ret[static PATH_MAX])
{
	char loader[PATH_MAX], line[FIRST_LINE];
	const char *next = name;

	for (u32 i = 0; next && i < MAX_SCRIPTS; i++) {
		if (!find_program(f, next, ret) || !read_start(f, ret, line)) {
			*ret = '\0';
			return;
		}
		next = interpreter(line);
	}
	if (next || !is_new(f, ret) || map_code(f, ret, loader) < 0 || !is_loader(loader))
		return;
	map_libraries(f, loader, ret);
	map_java(f, loader, ret);
}

/* Enters the root of a chroot; words after it are paths inside of it. */
static void enter_root(struct foresight *f, const char *path)
{
	char inside[PATH_MAX];
	int root = open_in(f, path, O_PATH | O_DIRECTORY);

	if (root < 0 || !resolve(f, path, inside)) {
		if (root >= 0)
			close(root);
		return;
	}
	if (inside[1])
		snprintf(f->path + strlen(f->path), PATH_MAX - strlen(f->path), "%s", inside);
	if (f->root >= 0)
		close(f->root);
	f->root = root;
}

static bool is_launcher(const char *name)
{
	for (u32 i = 0; i < ARRAY_SIZE(launchers); i++)
		if (!strcmp(name, launchers[i]))
			return true;
	return false;
}

/* Looks up one word. Returns false when it is a program that runs nothing else. */
static bool foresee_word(struct foresight *f, const char *word, bool *enters)
{
	char path[PATH_MAX];
	const char *name;

	if (*enters && *word != '-') {
		*enters = false;
		enter_root(f, word);
		return true;
	}
	map_program(f, word, path);
	name = strrchr(path, '/');
	*enters |= name && !strcmp(name, "/chroot");
	return !name || is_launcher(name + 1);
}

void foresee_command(const char *const *argv, const char *search)
{
	struct foresight f = {.search = search, .root = -1};
	bool script = false, enters = false, goes_on = true;

	for (u32 i = 0; argv[i] && goes_on; i++) {
		const char *word = argv[i];
		char *text, *rest = NULL;

		if (*word == '-' && i) {
			/* sh -c, also -ec */
			script = word[1] != '-' && word[strlen(word) - 1] == 'c';
			continue;
		}
		if (!script) {
			goes_on = foresee_word(&f, word, &enters);
			continue;
		}
		script = false;
		text = strdup(word);
		for (char *w = text ? strtok_r(text, BETWEEN_WORDS, &rest) : NULL; w;
		     w = strtok_r(NULL, BETWEEN_WORDS, &rest))
			(void)foresee_word(&f, w, &enters);
		free(text);
	}
	if (f.root >= 0)
		close(f.root);
}
