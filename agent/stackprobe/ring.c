/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A directory of pictures, DIR/YYYY-MM-DD/YYYY-MM-DD-HH-MM-SS-WHO.svg in local time, of which the
 * oldest are removed. The ring is what the directory has: it is read when the ring is opened, so it
 * outlives the program. Files with other names are left alone.
 */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "agent/stackprobe/stackprobe.h"
#include "base/log.h"
#include "base/vec.h"

#define DAY "dddd-dd-dd"
#define PICTURE DAY "-dd-dd-dd-"
#define ENDING ".svg"

struct stackprobe_ring {
	char *dir;	   /* owned */
	vec(char *) paths; /* owned each; the oldest first */
};

/* 'd' in the pattern is a digit. */
static bool looks_like(const char *name, const char *pattern)
{
	for (; *pattern; name++, pattern++)
		if (*pattern == 'd' ? !isdigit((u8)*name) : *name != *pattern)
			return false;
	return true;
}

static bool is_picture(const char *name)
{
	const char *who = name + strlen(PICTURE);

	if (!looks_like(name, PICTURE) || !str_ends(name, ENDING))
		return false;
	return strspn(who, "0123456789abcdefghijklmnopqrstuvwxyz") + strlen(ENDING) == strlen(who);
}

int stackprobe_make_dirs(const char *path)
{
	_cleanup_free_ char *at = strdup(path);

	if (!at)
		return -ENOMEM;
	for (char *slash = at + 1; (slash = strchr(slash, '/')); slash++) {
		*slash = '\0';
		if (mkdir(at, 0755) < 0 && errno != EEXIST)
			return -errno;
		*slash = '/';
	}
	return mkdir(at, 0755) < 0 && errno != EEXIST ? -errno : 0;
}

/* Names begin with the time: their order is that of the pictures. */
static int by_name(const void *a_, const void *b_)
{
	return strcmp(*(char *const *)a_, *(char *const *)b_);
}

static int read_day(struct stackprobe_ring *r, const char *day)
{
	_cleanup_str_ struct str path = {};
	struct dirent *e;
	int error = 0;
	DIR *dir;

	str_printf(&path, "%s/%s", r->dir, day);
	dir = opendir(str_get(&path));
	while (dir && error == 0 && (e = readdir(dir))) {
		struct stat st;
		char *file = NULL;

		if (!is_picture(e->d_name) ||
		    fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
		    !S_ISREG(st.st_mode))
			continue;
		if (asprintf(&file, "%s/%s", str_get(&path), e->d_name) < 0)
			error = -ENOMEM;
		else
			error = vec_push(&r->paths, file);
	}
	if (dir)
		closedir(dir);
	return error;
}

int stackprobe_ring_open(const char *path, struct stackprobe_ring **ret)
{
	struct stackprobe_ring *r = calloc(1, sizeof(*r));
	struct dirent *e;
	int error = 0;
	DIR *dir;

	if (!r)
		return -ENOMEM;
	r->dir = strdup(path);
	if (!r->dir)
		error = -ENOMEM;
	dir = opendir(path);
	while (dir && error == 0 && (e = readdir(dir)))
		if (strlen(e->d_name) == strlen(DAY) && looks_like(e->d_name, DAY))
			error = read_day(r, e->d_name);
	if (dir)
		closedir(dir);
	if (error < 0) {
		stackprobe_ring_close(r);
		return error;
	}
	if (r->paths.n)
		qsort(r->paths.data, r->paths.n, sizeof(char *), by_name);
	*ret = r;
	return 0;
}

void stackprobe_ring_close(struct stackprobe_ring *r)
{
	if (!r)
		return;
	vec_foreach (&r->paths, path)
		free(*path);
	vec_deinit(&r->paths);
	free(r->dir);
	free(r);
}

u32 stackprobe_ring_count(const struct stackprobe_ring *r)
{
	return (u32)r->paths.n;
}

int stackprobe_ring_path(struct stackprobe_ring *r, time_t now, const char *who, struct str *ret)
{
	char day[16], moment[32];
	struct tm tm;
	int e;

	if (!localtime_r(&now, &tm) || !strftime(day, sizeof(day), "%Y-%m-%d", &tm) ||
	    !strftime(moment, sizeof(moment), "%Y-%m-%d-%H-%M-%S", &tm))
		return -ERANGE;
	str_clear(ret);
	str_printf(ret, "%s/%s", r->dir, day);
	e = ret->failed ? -ENOMEM : stackprobe_make_dirs(str_get(ret));
	if (e < 0)
		return e;
	str_printf(ret, "/%s-%s" ENDING, moment, who);
	return ret->failed ? -ENOMEM : 0;
}

static void remove_picture(const char *path)
{
	_cleanup_free_ char *day = strndup(path, (size_t)(strrchr(path, '/') - path));

	if (unlink(path) < 0 && errno != ENOENT)
		log_warn("cannot remove %s: %s", path, strerror(errno));
	/* Which succeeds for the last one of a day. */
	if (day)
		(void)rmdir(day);
}

int stackprobe_ring_add(struct stackprobe_ring *r, const char *path, u32 keep)
{
	char *copy = strdup(path);
	size_t surplus;

	if (!copy || vec_push(&r->paths, copy) < 0) {
		free(copy);
		return -ENOMEM;
	}
	/* A clock that was set back makes names that are not the last. */
	qsort(r->paths.data, r->paths.n, sizeof(char *), by_name);
	surplus = r->paths.n > keep ? r->paths.n - keep : 0;
	for (size_t i = 0; i < surplus; i++) {
		remove_picture(r->paths.data[i]);
		free(r->paths.data[i]);
	}
	r->paths.n -= surplus;
	memmove(r->paths.data, r->paths.data + surplus, r->paths.n * sizeof(char *));
	return 0;
}
