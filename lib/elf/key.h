/* SPDX-License-Identifier: Apache-2.0 */
/* What identifies the content of an ELF file, for caches on disk. Any thread. */
#pragma once

#include "elf/elf.h"

/*
 * Identifies a file for caches on disk, as exactly as can be told without reading it: a target may
 * write a file with the build-id and the size of another. The inode and the time of its last change
 * come from the kernel, and any change of the file or of its times changes the latter. The device
 * is left out: it is another one each time that a container is started. The owner is a part because
 * only root makes files of root.
 *
 * This holds where the kernel itself keeps inodes, times and owners: on file systems of disks and
 * of memory. It does not hold on FUSE, whose server is a program of a user that can claim anything,
 * nor on an overlay that a user has mounted, because FUSE may be below it.
 */
struct elf_key {
	u8 id[ELF_MAX_BUILD_ID];
	u32 id_n;
	u32 machine;
	u64 size, inode;
	u64 modified_ns, changed_ns;
	u32 owner;
	u32 reserved; /* 0 */
};
/*
 * Fills *ret, without holes. -EAGAIN: the file was changed within the last second, so it can change
 * again without a change of its times; -ENOTSUP: it has no build-id, is in memory only, or is on a
 * file system that may claim anything; or the error of a system call.
 */
int elf_key_of(int fd, const u8 *build_id, u32 build_id_n, u16 machine, struct elf_key *ret);
