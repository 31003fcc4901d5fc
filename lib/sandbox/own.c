/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gives a store that root has made to the user of the server's process. A former process of that
 * user may have put anything into the directory, so:
 *
 * 1. A directory that is not root's, or in which others than root may write, is left as it is.
 * 2. Files are opened without following links, and given away by descriptor.
 * 3. Only root's files that have one name are given away: a second name may be anywhere.
 * 4. The directory comes last: an interruption before that is made up for at the next start.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/str.h"
#include "sandbox/sandbox.h"

#define MAX_DEPTH 8
#define OTHERS_WRITE (S_IWGRP | S_IWOTH)

struct giving {
	uid_t uid;
	gid_t gid;
	u64 n;
};

static void cleanup_closedir(DIR **d)
{
	if (*d)
		closedir(*d);
}
#define _cleanup_closedir_ _cleanup_(closedir)

bool sandbox_is_of_store(const char *name)
{
	static const char *const starts[] = {"profiles.db", "spans.db",	     "incoming", "usr",
					     "clock",	    "settings.json", "audit.log"};

	for (size_t i = 0; i < ARRAY_SIZE(starts); i++)
		if (str_starts(name, starts[i]))
			return true;
	return !strcmp(name, "lock") || !strcmp(name, "symbols");
}

static int give_tree(struct giving *g, int dir, u32 depth);

static int give_entry(struct giving *g, int at, const char *name, u32 depth)
{
	_cleanup_close_ int fd =
		openat(at, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	struct stat st;

	/* ELOOP: a symbolic link; ENXIO: a socket. The server does without either. */
	if (fd < 0)
		return errno == ELOOP || errno == ENXIO || errno == ENOENT ? 0 : -errno;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (st.st_uid != 0)
		return 0;
	if (S_ISDIR(st.st_mode))
		return st.st_mode & OTHERS_WRITE ? 0 : give_tree(g, fd, depth + 1);
	if (!S_ISREG(st.st_mode) || st.st_nlink != 1)
		return 0;
	g->n++;
	return fchown(fd, g->uid, g->gid) < 0 ? -errno : 0;
}

/* At the top, only what a store has. */
static int give_tree(struct giving *g, int dir, u32 depth)
{
	int copy = depth > MAX_DEPTH ? -1 : openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_cleanup_closedir_ DIR *d = copy < 0 ? NULL : fdopendir(copy);
	struct dirent *e;
	int r = 0;

	if (!d)
		return copy < 0 && depth > MAX_DEPTH ? 0 : -errno;
	while (r == 0 && (e = readdir(d)))
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
		    (depth || sandbox_is_of_store(e->d_name)))
			r = give_entry(g, dir, e->d_name, depth);
	if (r == 0 && fchown(dir, g->uid, g->gid) < 0)
		r = -errno;
	return r;
}

/* An empty one, or one that has files of a store. */
static bool is_a_store(int fd)
{
	_cleanup_closedir_ DIR *d = fdopendir(openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	bool any = false, ours = false;
	struct dirent *e;

	while (d && (e = readdir(d))) {
		any |= strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
		ours |= str_starts(e->d_name, "profiles.db") || !strcmp(e->d_name, "incoming");
	}
	return d && (ours || !any);
}

static int give(const char *path, struct giving *g, struct diag *reterr_diag)
{
	bool is_new = mkdir(path, 0700) == 0;
	_cleanup_close_ int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return diag_set(reterr_diag, -errno, "cannot open %s: %s", path, strerror(errno));
	if (st.st_uid == g->uid)
		return 0;
	if (st.st_uid != 0)
		return diag_set(reterr_diag, -EPERM,
				"%s belongs to user %u: give --user %u, or another directory", path,
				st.st_uid, st.st_uid);
	if (!is_new && (st.st_mode & OTHERS_WRITE || !is_a_store(fd)))
		return diag_set(reterr_diag, -EPERM,
				"%s is not a directory of culprit's alone: name one that is empty "
				"or does not exist",
				path);
	return give_tree(g, fd, 0);
}

int sandbox_give_directory(const char *path, uid_t uid, gid_t gid, struct diag *reterr_diag)
{
	struct giving g = {.uid = uid, .gid = gid};
	int r = uid ? give(path, &g, reterr_diag) : 0;

	if (g.n)
		log_info("%s: gave %llu files that root had made to user %u", path, g.n, uid);
	return r < 0 ? diag_set(reterr_diag, r, "%s: %s", path, strerror(-r)) : 0;
}
