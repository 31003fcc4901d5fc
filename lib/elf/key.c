/* SPDX-License-Identifier: Apache-2.0 */
#include "elf/key.h"

#include <errno.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <time.h>

#include "base/clock.h"

/* Those that linux/magic.h lacks. */
#define ZFS_SUPER_MAGIC 0x2fc12fc1U
#define BCACHEFS_SUPER_MAGIC 0xca451a4eU
/* Shorter ones are no hash, as in the symbol cache. */
#define MIN_BUILD_ID 4
#define SETTLED_NS 1000000000ULL

static u64 ns_of(const struct timespec *t)
{
	return (u64)t->tv_sec * 1000000000 + (u64)t->tv_nsec;
}

static void take_stat(struct elf_key *k, const struct stat *st)
{
	k->size = (u64)st->st_size;
	k->inode = st->st_ino;
	k->modified_ns = ns_of(&st->st_mtim);
	k->changed_ns = ns_of(&st->st_ctim);
	k->owner = st->st_uid;
}

/*
 * Whether init sees a file system: only root mounts there. A user can mount an overlay in
 * namespaces of its own.
 */
static bool init_sees(dev_t device)
{
	FILE *f = fopen("/proc/1/mountinfo", "re");
	bool found = false;
	char line[4096];
	bool at_start = true;

	if (!f)
		return false;
	/* ID PARENT MAJOR:MINOR ...; a long line comes in several parts. */
	while (!found && fgets(line, sizeof(line), f)) {
		unsigned int major, minor;

		found = at_start && sscanf(line, "%*u %*u %u:%u", &major, &minor) == 2 &&
			makedev(major, minor) == device;
		at_start = strchr(line, '\n');
	}
	fclose(f);
	return found;
}

/* Whether the kernel keeps what identifies a file, see key.h. */
static bool is_kept_by_kernel(int fd, const struct stat *st)
{
	static const u32 disks[] = {
		EXT4_SUPER_MAGIC,  XFS_SUPER_MAGIC, BTRFS_SUPER_MAGIC,
		F2FS_SUPER_MAGIC,  SQUASHFS_MAGIC,  EROFS_SUPER_MAGIC_V1,
		ISOFS_SUPER_MAGIC, ZFS_SUPER_MAGIC, BCACHEFS_SUPER_MAGIC,
	};
	struct statfs fs;
	u32 type;

	if (fstatfs(fd, &fs) < 0)
		return false;
	type = (u32)fs.f_type;
	/* A file of memfd_create(), or a deleted one: no other process will find it. */
	if (type == TMPFS_MAGIC)
		return st->st_nlink;
	if (type == OVERLAYFS_SUPER_MAGIC)
		return init_sees(st->st_dev);
	for (u32 i = 0; i < ARRAY_SIZE(disks); i++)
		if (type == disks[i])
			return true;
	return false;
}

int elf_key_of(int fd, const u8 *build_id, u32 build_id_n, u16 machine, struct elf_key *ret)
{
	struct elf_key k = {.machine = machine};
	struct stat st;
	u64 now = clock_ns(CLOCK_REALTIME);

	if (build_id_n < MIN_BUILD_ID || build_id_n > sizeof(k.id))
		return -ENOTSUP;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode) || !is_kept_by_kernel(fd, &st))
		return -ENOTSUP;
	take_stat(&k, &st);
	if (k.changed_ns > now || now - k.changed_ns < SETTLED_NS)
		return -EAGAIN;
	memcpy(k.id, build_id, build_id_n);
	k.id_n = build_id_n;
	*ret = k;
	return 0;
}

_Static_assert(sizeof(struct elf_key) == ELF_MAX_BUILD_ID + 48,
	       "no holes: keys are compared and stored");
