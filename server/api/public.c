/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens files of this machine that profiles name. A client does not have the rights of the server's
 * user, so a file is opened only if every user may read it, which its mode must say: for a file of
 * procfs and its like the mode says little, and who opens it decides what it shows. Below a
 * directory that some user may not search, nothing exists.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "server/api/internal.h"

#define MAX_LINKS 40 /* as the kernel's */

#ifndef CONFIGFS_MAGIC
#define CONFIGFS_MAGIC 0x62656570
#endif

struct walk {
	int fd;			 /* owned: the directory reached, O_PATH */
	char rest[2 * PATH_MAX]; /* to go */
	u32 links;
	const char *roots; /* borrowed; NULL: see api_shows_folder() */
};

static int restart(struct walk *w)
{
	cleanup_close(&w->fd);
	w->fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	return w->fd < 0 ? -EACCES : 0;
}

/* Whether files of this file system are what their mode says, whoever opens them. */
static bool has_plain_files(int fd)
{
	static const u64 pseudo[] = {PROC_SUPER_MAGIC,	  SYSFS_MAGIC,	       DEBUGFS_MAGIC,
				     TRACEFS_MAGIC,	  SECURITYFS_MAGIC,    CGROUP_SUPER_MAGIC,
				     CGROUP2_SUPER_MAGIC, BPF_FS_MAGIC,	       DEVPTS_SUPER_MAGIC,
				     EFIVARFS_MAGIC,	  SELINUX_MAGIC,       SMACK_MAGIC,
				     PSTOREFS_MAGIC,	  CONFIGFS_MAGIC,      BINFMTFS_MAGIC,
				     NSFS_MAGIC,	  RDTGROUP_SUPER_MAGIC};
	struct statfs fs;

	if (fstatfs(fd, &fs) < 0)
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(pseudo); i++)
		if ((u64)fs.f_type == pseudo[i])
			return false;
	return true;
}

/* Puts the target of a symbolic link before the rest of the path. */
static int follow(struct walk *w, int link)
{
	char target[2 * PATH_MAX];
	ssize_t n = readlinkat(link, "", target, PATH_MAX);
	size_t rest = strlen(w->rest);

	if (n <= 0 || n == PATH_MAX || ++w->links > MAX_LINKS || rest >= PATH_MAX)
		return -EACCES;
	target[n] = '/';
	memcpy(target + n + 1, w->rest, rest + 1);
	memcpy(w->rest, target, (size_t)n + rest + 2);
	return target[0] == '/' ? restart(w) : 0;
}

static bool same_file(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_mode == b->st_mode;
}

static bool is_below(const char *path, const char *root, size_t n)
{
	while (n && root[n - 1] == '/')
		n--;
	return !strncmp(path, root, n) && (path[n] == '/' || !path[n]);
}

bool api_shows_folder(const char *path)
{
	static const char *const hidden[] = {"/boot",  "/dev", "/etc",	"/lost+found",
					     "/media", "/mnt", "/proc", "/root",
					     "/run",   "/sys", "/tmp",	"/var"};

	for (size_t i = 0; i < ARRAY_SIZE(hidden); i++)
		if (is_below(path, hidden[i], strlen(hidden[i])))
			return false;
	return *path == '/';
}

/* Whether the open file is in one of these directories. */
static bool is_in_roots(int fd, const char *roots)
{
	char link[32], path[PATH_MAX];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof(path) - 1);
	if (n < 0)
		return false;
	path[n] = '\0';
	if (!roots)
		return api_shows_folder(path);
	for (const char *at = roots; *at; at += strcspn(at, ":") + (at[strcspn(at, ":")] == ':'))
		if (*at == '/' && is_below(path, at, strcspn(at, ":")))
			return true;
	return false;
}

static int open_file(const struct walk *w, const char *part, int at, const struct stat *st,
		     int *ret_fd)
{
	_cleanup_close_ int fd = -1;
	struct stat now;

	if (!(st->st_mode & S_IROTH) || !has_plain_files(at))
		return -EACCES;
	if (!is_in_roots(at, w->roots))
		return -EPERM;
	fd = openat(w->fd, part, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &now) < 0 || !same_file(&now, st))
		return -EACCES;
	*ret_fd = take_fd(&fd);
	return 0;
}

/* Goes one part of the path further. 1: there is more to go. */
static int step(struct walk *w, int *ret_fd)
{
	char part[NAME_MAX + 1];
	size_t n, slashes = strspn(w->rest, "/");
	_cleanup_close_ int fd = -1;
	struct stat st;

	n = strcspn(w->rest + slashes, "/");
	if (n > NAME_MAX)
		return -ENOENT;
	memcpy(part, w->rest + slashes, n);
	part[n] = '\0';
	memmove(w->rest, w->rest + slashes + n, strlen(w->rest + slashes + n) + 1);
	if (!n)
		return -EINVAL; /* the path names a directory */
	fd = openat(w->fd, part, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? -ENOENT : -EACCES;
	if (fstat(fd, &st) < 0)
		return -EACCES;
	if (S_ISLNK(st.st_mode))
		return follow(w, fd) < 0 ? -EACCES : 1;
	if (S_ISDIR(st.st_mode)) {
		cleanup_close(&w->fd);
		w->fd = take_fd(&fd);
		return st.st_mode & S_IXOTH ? 1 : -EACCES;
	}
	if (w->rest[strspn(w->rest, "/")])
		return -ENOENT;
	return S_ISREG(st.st_mode) ? open_file(w, part, fd, &st, ret_fd) : -EINVAL;
}

int api_open_public(const char *path, const char *roots, int *ret_fd)
{
	struct walk w = {.fd = -1, .roots = roots};
	_cleanup_close_ int fd = -1;
	int r;

	if (*path != '/' || strlen(path) >= PATH_MAX)
		return -ENOENT;
	snprintf(w.rest, sizeof(w.rest), "%s", path);
	r = restart(&w);
	while (r >= 0 && fd < 0)
		r = step(&w, &fd);
	cleanup_close(&w.fd);
	if (r < 0)
		return r;
	*ret_fd = take_fd(&fd);
	return 0;
}

const char *api_not_public(int r)
{
	if (r == -EPERM)
		return "The file is outside of the folders that this server shows; give the server "
		       "--source-roots with the file's folder.";
	return r == -ENOENT
		       ? "The file is not on the server's machine."
		       : "The file is not one that every user of the server's machine may read.";
}
