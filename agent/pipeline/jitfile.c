/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/pipeline/jitfile.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/procman/procman.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "proc/proc.h"

/* Opens a path below `root` without leaving `root`, and without following a link at its end. */
static int open_below(int root, const char *path)
{
	struct open_how how = {
		.flags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY,
		.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS,
	};
	long fd = syscall(SYS_openat2, root, path, &how, sizeof(how));

	return fd < 0 ? -errno : (int)fd;
}

static bool is_dump(const struct procman_binary *b)
{
	const char *name = strrchr(b->path, '/');

	return b->kind == PROCMAN_FILE && !b->elf && name && str_starts(name, "/jit-") &&
	       str_ends(name, ".dump");
}

/* Returns the process's jitdump among its mapped files. */
static const struct procman_binary *find_dump(const struct procman_process *proc)
{
	for (u32 i = 0; i < proc->n; i++)
		if (is_dump(proc->mappings[i].binary))
			return proc->mappings[i].binary;
	return NULL;
}

int jitfile_open(enum jitfile which, const struct procman_process *proc)
{
	const struct procman_binary *dump = which == JITFILE_DUMP ? find_dump(proc) : NULL;
	_cleanup_close_ int root = -1;
	_cleanup_close_ int fd = -1;
	struct proc_status status;
	struct stat st;
	char path[64];
	int r;

	if (which == JITFILE_DUMP && !dump)
		return -ENOENT;
	r = proc_status_read(proc->pid, &status);
	if (r < 0)
		return r;
	snprintf(path, sizeof(path), "/proc/%u/root", proc->pid);
	root = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (root < 0)
		return -errno;
	snprintf(path, sizeof(path), "tmp/perf-%u.map", status.ns_pid ? status.ns_pid : proc->pid);
	fd = open_below(root, dump ? dump->path : path);
	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0)
		return -errno;
	/* Another user's file could put any name on the process's code. */
	if (!S_ISREG(st.st_mode) || (st.st_uid != status.uid && st.st_uid != 0))
		return -EPERM;
	if (dump && st.st_ino != dump->inode)
		return -ESTALE;
	return take_fd(&fd);
}
