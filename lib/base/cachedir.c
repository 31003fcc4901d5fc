/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cachedir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "base/str.h"
#include "base/vec.h"

/*
 * The folder is searched for old files after the first new file, then once for so many, or once for
 * this share of the limit.
 */
#define FILES_PER_SEARCH 64
#define SEARCHES_PER_LIMIT 8
/* Folders above one another. */
#define MAX_DEPTH 64
/* A temporary file that is older was left by a process that was killed. */
#define TEMPORARY_S 3600
#define RANDOM ".XXXXXX"

struct cachedir {
	struct cachedir_options o; /* path is NULL */
	int fd;			   /* owned */
	u32 n_new;		   /* files since the last search; 0: search at the next */
	u64 new_bytes;		   /* of these */
};

/* ---- the folder ---- */

static int make_dirs(const char *dir)
{
	_cleanup_free_ char *path = strdup(dir);

	if (!path)
		return -ENOMEM;
	for (char *p = path + 1; *p; p++) {
		if (*p != '/')
			continue;
		*p = 0;
		(void)mkdir(path, 0755);
		*p = '/';
	}
	return mkdir(path, 0700) < 0 && errno != EEXIST ? -errno : 0;
}

static bool only_mine(const struct stat *st)
{
	return st->st_uid == geteuid() && !(st->st_mode & (S_IWGRP | S_IWOTH));
}

/* Nobody else can replace a folder in it: in one like /tmp only the owner can. */
static bool is_safe_parent(const struct stat *st)
{
	bool others_write = (st->st_mode & S_IWOTH) ||
			    ((st->st_mode & S_IWGRP) && st->st_gid != 0 && st->st_gid != getegid());

	return (!st->st_uid || st->st_uid == geteuid()) &&
	       (!others_write || (st->st_mode & S_ISVTX));
}

/* By "..", so that no symbolic link matters. */
static bool parents_are_safe(int dir)
{
	_cleanup_close_ int fd = -1;
	struct stat st, last;

	if (fstat(dir, &last) < 0)
		return false;
	for (u32 i = 0; i < MAX_DEPTH; i++) {
		int up = openat(fd < 0 ? dir : fd, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);

		cleanup_close(&fd);
		fd = up;
		if (fd < 0 || fstat(fd, &st) < 0 || !is_safe_parent(&st))
			return false;
		if (st.st_dev == last.st_dev && st.st_ino == last.st_ino)
			return true; /* the root */
		last = st;
	}
	return false;
}

static int open_dir(const char *path)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (!only_mine(&st) || !parents_are_safe(fd))
		return -EPERM;
	return take_fd(&fd);
}

int cachedir_open(const struct cachedir_options *o, struct cachedir **ret)
{
	struct cachedir *c;
	int r = make_dirs(o->path), fd = r < 0 ? r : open_dir(o->path);

	if (fd < 0)
		return fd;
	c = calloc(1, sizeof(*c));
	if (!c) {
		close(fd);
		return -ENOMEM;
	}
	c->o = *o;
	c->o.path = NULL;
	c->fd = fd;
	*ret = c;
	return 0;
}

void cachedir_close(struct cachedir *c)
{
	if (!c)
		return;
	close(c->fd);
	free(c);
}

/* ---- reading ---- */

static int name_of(const struct cachedir *c, const char *name, char ret[CACHEDIR_NAME_BYTES])
{
	int n = snprintf(ret, CACHEDIR_NAME_BYTES, "%s%s", name, c->o.suffix);

	return n >= CACHEDIR_NAME_BYTES || strchr(name, '/') ? -ENAMETOOLONG : 0;
}

int cachedir_find(struct cachedir *c, const char *name, u64 *ret_size)
{
	char full[CACHEDIR_NAME_BYTES];
	_cleanup_close_ int fd = -1;
	struct stat st;
	int r = name_of(c, name, full);

	if (r < 0)
		return r;
	fd = openat(c->fd, full, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode) || !only_mine(&st))
		return -ENOENT;
	/* The time of modification is that of the last use. */
	(void)futimens(fd, NULL);
	*ret_size = (u64)st.st_size;
	return take_fd(&fd);
}

/* ---- bounds ---- */

struct old_file {
	char *name; /* owned */
	u64 bytes;
	struct timespec used;
};

struct old_files {
	vec(struct old_file) list;
	u64 bytes;
};

static int by_age(const void *pa, const void *pb)
{
	const struct old_file *a = pa, *b = pb;

	if (a->used.tv_sec != b->used.tv_sec)
		return a->used.tv_sec < b->used.tv_sec ? -1 : 1;
	return (a->used.tv_nsec > b->used.tv_nsec) - (a->used.tv_nsec < b->used.tv_nsec);
}

/* Whether a name is NAME.SUFFIX.XXXXXX. */
static bool is_temporary(const struct cachedir *c, const char *name)
{
	size_t n = strlen(name), suffix = strlen(c->o.suffix), end = strlen(RANDOM);

	return n > suffix + end && name[n - end] == '.' &&
	       !memcmp(name + n - end - suffix, c->o.suffix, suffix);
}

static void look_at(struct cachedir *c, const char *name, struct old_files *ret)
{
	struct old_file f = {};
	struct stat st;
	bool temporary = is_temporary(c, name);

	if ((!temporary && !str_ends(name, c->o.suffix)) ||
	    fstatat(c->fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
		return;
	if (temporary) {
		if (time(NULL) - st.st_mtim.tv_sec > TEMPORARY_S)
			(void)unlinkat(c->fd, name, 0);
		return;
	}
	f.name = strdup(name);
	f.bytes = (u64)st.st_size;
	f.used = st.st_mtim;
	if (!f.name || vec_push(&ret->list, f) < 0) {
		free(f.name);
		return;
	}
	ret->bytes += f.bytes;
}

static bool is_above(const struct cachedir *c, u64 bytes, size_t n)
{
	return (c->o.max_bytes && bytes > c->o.max_bytes) || (c->o.max_files && n > c->o.max_files);
}

static void list_files(struct cachedir *c, struct old_files *ret)
{
	int fd = openat(c->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;

	if (!d) {
		cleanup_close(&fd);
		return;
	}
	while ((e = readdir(d)))
		look_at(c, e->d_name, ret);
	closedir(d);
}

static void old_files_deinit(struct old_files *files)
{
	vec_foreach (&files->list, f)
		free(f->name);
	vec_deinit(&files->list);
}

int cachedir_usage(const char *path, const char *suffix, u64 *ret_bytes, u32 *ret_files)
{
	struct cachedir c = {.o = {.suffix = suffix}, .fd = open_dir(path)};
	struct old_files files = {};

	if (c.fd < 0)
		return c.fd;
	list_files(&c, &files);
	close(c.fd);
	*ret_bytes = files.bytes;
	*ret_files = (u32)files.list.n;
	old_files_deinit(&files);
	return 0;
}

void cachedir_keep_bound(struct cachedir *c)
{
	struct old_files files = {};

	list_files(c, &files);
	if (is_above(c, files.bytes, files.list.n))
		qsort(files.list.data, files.list.n, sizeof(*files.list.data), by_age);
	for (size_t i = 0; is_above(c, files.bytes, files.list.n - i); i++) {
		(void)unlinkat(c->fd, files.list.data[i].name, 0);
		files.bytes -= files.list.data[i].bytes;
	}
	old_files_deinit(&files);
}

/* ---- writing ---- */

static u64 random_word(void)
{
	static u64 counter;
	struct timespec t;

	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (u64)t.tv_nsec * 0x9e3779b97f4a7c15ULL + (u64)getpid() * 0xd6e8feb86659fd93ULL +
	       __atomic_add_fetch(&counter, 1, __ATOMIC_RELAXED) * 0xff51afd7ed558ccdULL;
}

/* As mkostemp(), in the folder. */
int cachedir_begin(struct cachedir *c, const char *name, struct cachedir_new *ret)
{
	static const char digits[] = "abcdefghijklmnopqrstuvwxyz012345";
	struct cachedir_new f = {.fd = -1};
	char full[CACHEDIR_NAME_BYTES];
	int r = name_of(c, name, full);

	for (u32 i = 0; r == 0 && f.fd < 0 && i < 16; i++) {
		u64 x = random_word();
		size_t n;

		snprintf(f.temporary, sizeof(f.temporary), "%s" RANDOM, full);
		n = strlen(f.temporary);
		for (u32 k = 1; k <= 6; k++)
			f.temporary[n - k] = digits[x >> (64 - 5 * k) & 31];
		f.fd = openat(c->fd, f.temporary,
			      O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
		if (f.fd < 0 && errno != EEXIST)
			r = -errno;
	}
	if (r == 0 && f.fd < 0)
		r = -EEXIST;
	if (r == 0)
		*ret = f;
	return r;
}

int cachedir_commit(struct cachedir *c, const char *name, struct cachedir_new *f)
{
	char full[CACHEDIR_NAME_BYTES];
	int r = name_of(c, name, full);
	struct stat st;

	if (r == 0 && renameat(c->fd, f->temporary, c->fd, full) < 0)
		r = -errno;
	if (r < 0)
		(void)unlinkat(c->fd, f->temporary, 0);
	if (r < 0)
		return r;
	if (fstat(f->fd, &st) == 0)
		c->new_bytes += (u64)st.st_size;
	if (!c->n_new || (c->o.max_bytes && c->new_bytes > c->o.max_bytes / SEARCHES_PER_LIMIT)) {
		cachedir_keep_bound(c);
		c->new_bytes = 0;
	}
	c->n_new = (c->n_new + 1) % FILES_PER_SEARCH;
	return 0;
}

void cachedir_abandon(struct cachedir *c, struct cachedir_new *f)
{
	if (f->fd < 0)
		return;
	(void)unlinkat(c->fd, f->temporary, 0);
	close(take_fd(&f->fd));
}

int cachedir_write(struct cachedir *c, const char *name, const void *data, size_t n)
{
	struct cachedir_new f;
	int r = cachedir_begin(c, name, &f);

	if (r < 0)
		return r;
	r = io_write_all(f.fd, data, n);
	if (r < 0) {
		cachedir_abandon(c, &f);
		return r;
	}
	r = cachedir_commit(c, name, &f);
	close(f.fd);
	return r;
}
