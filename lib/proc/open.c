/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens the files that a process has mapped, without being blocked or deceived by the process.
 *
 *	candidate (O_PATH) ─→ statx: regular? the mapping's inode? ─→ open through /proc/self/fd
 *
 * Opening with O_PATH does not access the file, so that neither a FIFO nor a device nor a file
 * lease can block. statx with AT_STATX_DONT_SYNC answers from the cached inode, without a request
 * to a network or FUSE server.
 */
#include "proc/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>

#include "base/cleanup.h"

#ifndef RESOLVE_CACHED
#define RESOLVE_CACHED 0x20 /* Linux 5.12 */
#endif
#define OVERLAYFS_MAGIC 0x794c7630
#define BTRFS_MAGIC 0x9123683e

bool proc_device_type(u32 pid, u32 dev_major, u32 dev_minor, char *ret_type, size_t cap)
{
	_cleanup_fclose_ FILE *f = NULL;
	_cleanup_free_ char *line = NULL;
	bool found = false;
	size_t line_cap = 0;
	char name[48];

	snprintf(name, sizeof(name), "/proc/%u/mountinfo", pid);
	f = fopen(name, "re");
	while (f && !found && getline(&line, &line_cap, f) > 0)
		found = proc_mountinfo_type(line, dev_major, dev_minor, ret_type, cap);
	return found;
}

/*
 * Whether this device is a FUSE file system, according to the process's mount table; a FUSE server
 * may never answer a query about the file itself. Only devices with major number 0 can be FUSE.
 * (fuseblk has a real device; its servers are started by root.)
 */
static bool on_fuse(u32 pid, u32 dev_major, u32 dev_minor)
{
	char type[64];

	return dev_major == 0 && proc_device_type(pid, dev_major, dev_minor, type, sizeof(type)) &&
	       (!strcmp(type, "fuse") || str_starts(type, "fuse."));
}

bool proc_mountinfo_type(const char *line, u32 dev_major, u32 dev_minor, char *ret_type, size_t cap)
{
	/* ID PARENT MAJOR:MINOR ROOT MOUNT OPTIONS … - TYPE SOURCE OPTIONS; blanks are escaped. */
	const char *field = strchr(line, ' '), *type = strstr(line, " - ");
	char device[32];
	size_t n;

	snprintf(device, sizeof(device), " %u:%u ", dev_major, dev_minor);
	field = field ? strchr(field + 1, ' ') : NULL;
	if (!field || !type || !str_starts(field, device))
		return false;
	n = MIN(strcspn(type + 3, " \n"), cap - 1);
	memcpy(ret_type, type + 3, n);
	ret_type[n] = '\0';
	return true;
}

static int open_below(int root, const char *path, int flags, u64 resolve)
{
	struct open_how how = {
		.flags = (u64)flags | O_CLOEXEC,
		.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS | resolve,
	};
	int fd = (int)syscall(SYS_openat2, root, path, &how, sizeof(how));

	return fd < 0 ? -errno : fd;
}

static int open_path(int root, const char *path, u64 resolve)
{
	return open_below(root, path, O_PATH, resolve);
}

int proc_open_in_root(u32 pid, const char *path, int flags)
{
	_cleanup_close_ int root = -1;
	char name[32];

	snprintf(name, sizeof(name), "/proc/%u/root", pid);
	root = open(name, O_PATH | O_DIRECTORY | O_CLOEXEC);
	return root < 0 ? -errno : open_below(root, path, flags, 0);
}

/*
 * Looks the path up in the root of the process, from cached entries only: any other lookup could
 * reach a mount whose server does not answer. The path of a mapped file is cached.
 */
static int open_candidate(u32 pid, const struct proc_mapping *m, enum proc_file_origin origin)
{
	_cleanup_close_ int root = -1;
	char name[64];
	int fd;

	if (origin == PROC_FILE_MAP_FILES) {
		snprintf(name, sizeof(name), "/proc/%u/map_files/%llx-%llx", pid, m->start, m->end);
		fd = open(name, O_PATH | O_CLOEXEC);
		return fd < 0 ? -errno : fd;
	}
	if (m->path[0] != '/')
		return -ENOENT;
	if (origin == PROC_FILE_TARGET)
		snprintf(name, sizeof(name), "/proc/%u/root", pid);
	else
		snprintf(name, sizeof(name), "/");
	root = open(name, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (root < 0)
		return -errno;
	if (origin == PROC_FILE_HOST)
		return open_path(root, m->path, 0);
	fd = open_path(root, m->path, RESOLVE_CACHED);
	if (fd == -EINVAL)
		return open_path(root, m->path, 0);
	/* tmpfs has no negative cache entries. */
	return fd == -EAGAIN ? -ENOENT : fd;
}

static bool is_open_folder(int root, const char *path)
{
	u64 resolve = RESOLVE_NO_SYMLINKS;
	_cleanup_close_ int fd = open_path(root, path, resolve | RESOLVE_CACHED);
	struct statx st;

	if (fd == -EINVAL)
		fd = open_path(root, path, resolve);
	return fd >= 0 &&
	       statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE | STATX_MODE, &st) ==
		       0 &&
	       S_ISDIR(st.stx_mode) && (st.stx_mode & S_IXOTH);
}

bool proc_is_path_open(u32 pid, const char *path)
{
	_cleanup_close_ int root = -1;
	char part[PATH_MAX];

	snprintf(part, sizeof(part), "/proc/%u/root", pid);
	root = open(part, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (root < 0 || path[0] != '/' || strlen(path) >= sizeof(part))
		return false;
	for (const char *end = path; end; end = strchr(end + 1, '/')) {
		size_t n = end == path ? 1 : (size_t)(end - path);

		memcpy(part, path, n);
		part[n] = '\0';
		if (!is_open_folder(root, part))
			return false;
	}
	return true;
}

static bool is_on(int fd, u64 magic)
{
	struct statfs fs;

	return fstatfs(fd, &fs) == 0 && (u64)fs.f_type == magic;
}

static bool is_mapped_inode(int fd, const struct statx *st, const struct proc_mapping *m)
{
	if (st->stx_ino != m->inode)
		return false;
	if (st->stx_dev_major == m->dev_major && st->stx_dev_minor == m->dev_minor)
		return true;
	return is_on(fd, OVERLAYFS_MAGIC) || is_on(fd, BTRFS_MAGIC);
}

static bool has_name_of(int fd, const struct proc_mapping *m)
{
	char link[32], path[PATH_MAX];
	const char *name = strrchr(m->path, '/');
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof(path) - 1);
	if (n < 0 || !name)
		return false;
	path[n] = '\0';
	return str_ends(path, name);
}

/*
 * The file that is mapped there now may differ from the one that the kernel reported: a library may
 * have taken the place of an unloaded one. For a file on overlayfs whose layers are on several file
 * systems, maps and statx report different inodes.
 */
static bool is_still_mapped(int fd, const struct statx *st, const struct proc_mapping *m)
{
	return st->stx_ino == m->inode || (is_on(fd, OVERLAYFS_MAGIC) && has_name_of(fd, m));
}

static int open_checked(int path_fd, const struct proc_mapping *m, enum proc_file_origin origin,
			struct proc_file *ret)
{
	char name[32];
	struct statx st;
	int fd;

	if (statx(path_fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC,
		  STATX_TYPE | STATX_INO | STATX_SIZE | STATX_MTIME, &st) < 0)
		return -errno;
	if (!S_ISREG(st.stx_mode))
		return -ENXIO;
	if (!(origin == PROC_FILE_MAP_FILES ? is_still_mapped(path_fd, &st, m)
					    : is_mapped_inode(path_fd, &st, m)))
		return -ESTALE;
	snprintf(name, sizeof(name), "/proc/self/fd/%d", path_fd);
	fd = open(name, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	*ret = (struct proc_file){
		.fd = fd,
		.origin = origin,
		.size = st.stx_size,
		.mtime_ns = st.stx_mtime.tv_sec * 1000000000LL + st.stx_mtime.tv_nsec,
	};
	return 0;
}

/* Returns the more informative of two errors. */
static int more_telling_error(int a, int b)
{
	return a == -ENOENT || a == -ESRCH || (a == -ESTALE && b == -ENXIO) ? b : a;
}

int proc_open_mapped_file(u32 pid, const struct proc_mapping *m, struct proc_file *ret)
{
	int error = -ENOENT;

	if (on_fuse(pid, m->dev_major, m->dev_minor))
		return -EIO;
	for (enum proc_file_origin origin = PROC_FILE_MAP_FILES; origin <= PROC_FILE_HOST;
	     origin++) {
		_cleanup_close_ int path_fd = open_candidate(pid, m, origin);
		int r = path_fd < 0 ? path_fd : open_checked(path_fd, m, origin, ret);

		if (r == 0)
			return 0;
		/* This was the mapped file itself: opening it by path cannot succeed. */
		if (origin == PROC_FILE_MAP_FILES && path_fd >= 0 && r != -ESTALE)
			return r;
		error = more_telling_error(error, r);
	}
	return error;
}
