/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Landlock (linux/landlock.h): the process loses what it may do with files and TCP ports, but for
 * the places in rules. What a kernel knows goes by the version of its interface; the numbers below
 * are those of the kernel's header, which may be older here.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "sandbox/sandbox.h"

#define FS_WRITE_FILE (1ULL << 1)
#define FS_READ_FILE (1ULL << 2)
#define FS_READ_DIR (1ULL << 3)
#define FS_REMOVE_DIR (1ULL << 4)
#define FS_REMOVE_FILE (1ULL << 5)
#define FS_MAKE_DIR (1ULL << 7)
#define FS_MAKE_REG (1ULL << 8)
#define FS_REFER (1ULL << 13)
#define FS_TRUNCATE (1ULL << 14)
#define NET_BIND_TCP (1ULL << 0)
#define NET_CONNECT_TCP (1ULL << 1)
#define SCOPE_ABSTRACT_UNIX_SOCKET (1ULL << 0)
#define SCOPE_SIGNAL (1ULL << 1)
#define GET_VERSION 1U
#define RULE_PATH_BENEATH 1

#define READ (FS_READ_FILE | FS_READ_DIR)
#define WRITE                                                                                      \
	(READ | FS_WRITE_FILE | FS_REMOVE_DIR | FS_REMOVE_FILE | FS_MAKE_DIR | FS_MAKE_REG |       \
	 FS_REFER | FS_TRUNCATE)
#define OF_A_FILE (FS_WRITE_FILE | FS_READ_FILE | FS_TRUNCATE)

struct ruleset {
	u64 fs, net, scoped;
};

struct path_rule {
	u64 access;
	s32 fd;
} __attribute__((packed));

/* Everything that a kernel with this version can forbid. */
static struct ruleset everything(int version, bool connects)
{
	/* Rights by version: 1 to 3 about files, 5 about devices. */
	const u32 bits = version >= 5 ? 16 : version >= 3 ? 15 : version == 2 ? 14 : 13;
	struct ruleset r = {.fs = (1ULL << bits) - 1};

	if (version >= 4)
		r.net = NET_BIND_TCP | (connects ? 0 : NET_CONNECT_TCP);
	if (version >= 6)
		r.scoped = SCOPE_ABSTRACT_UNIX_SOCKET | SCOPE_SIGNAL;
	return r;
}

static int allow(int ruleset, u64 fs, u64 access, const char *path)
{
	_cleanup_close_ int fd = open(path, O_PATH | O_CLOEXEC);
	struct path_rule rule = {access & fs, fd};
	int r;

	if (fd < 0)
		return errno == ENOENT || errno == EACCES || errno == ENOTDIR ? 0 : -errno;
	r = (int)syscall(SYS_landlock_add_rule, ruleset, RULE_PATH_BENEATH, &rule, 0);
	/* Not a directory. */
	if (r < 0 && errno == EINVAL) {
		rule.access &= OF_A_FILE;
		r = (int)syscall(SYS_landlock_add_rule, ruleset, RULE_PATH_BENEATH, &rule, 0);
	}
	return r < 0 ? -errno : 0;
}

static int restrict_files(const struct sandbox_options *o, int version)
{
	const struct ruleset all = everything(version, o->connects);
	_cleanup_close_ int fd = (int)syscall(SYS_landlock_create_ruleset, &all, sizeof(all), 0);
	int r = fd < 0 ? -errno : 0;

	for (u32 i = 0; i < o->n_write && r == 0; i++)
		r = allow(fd, all.fs, WRITE, o->write[i]);
	for (u32 i = 0; i < o->n_read && r == 0; i++)
		r = allow(fd, all.fs, READ, o->read[i]);
	if (r == 0 && syscall(SYS_landlock_restrict_self, fd, 0) < 0)
		r = -errno;
	return r;
}

int sandbox_restrict_files(const struct sandbox_options *o, struct diag *reterr_diag)
{
	int version = (int)syscall(SYS_landlock_create_ruleset, NULL, 0, GET_VERSION);
	int r;

	if (version < 0) {
		log_debug("sandbox: no Landlock: %s", strerror(errno));
		return 0;
	}
	log_debug("sandbox: Landlock %d", version);
	r = restrict_files(o, version);
	return r < 0 ? diag_set(reterr_diag, r, "cannot restrict files with Landlock: %s",
				strerror(-r))
		     : 0;
}
