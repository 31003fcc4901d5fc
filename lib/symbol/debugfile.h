/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the files that belong to a binary: its debug file, the debug file's dwz file, .dwo and .dwp
 * files. All paths come from hostile bytes: they are resolved inside the root of the binary's mount
 * namespace, and only regular files are opened. A file with another build-id or CRC is not used.
 *
 * The caller owns the returned files. -ENOENT: there is none.
 */
#pragma once

#include "elf/elf.h"

struct debugfile_place {
	int root_fd;		     /* or -1: culprit's root */
	const char *path;	     /* path of the binary below root_fd, or NULL */
	const char *debuginfod_urls; /* or NULL */
};

/* Opens a regular file. The fd, or a negative errno. */
int debugfile_open_path(int root_fd, const char *path);
/* Opens the file of a build-id in the debug tree, unread. The fd, or a negative errno. */
int debugfile_open_id(int root_fd, const u8 *id, u32 n);
/* Takes `fd`, also on failure. -ENOENT: it is not the debug file of `f`, by build-id. */
int debugfile_open_of(const struct elf_file *f, int fd, struct elf_file **ret);
/* The debug file of `f`. `ret_path` (malloc()ed, may be NULL) is its path. */
int debugfile_find(struct elf_file *f, const struct debugfile_place *p, struct elf_file **ret,
		   char **ret_path);
/* The dwz file that `f` refers to; `path` is the path of `f`, or NULL. */
int debugfile_alt(struct elf_file *f, const struct debugfile_place *p, const char *path,
		  struct elf_file **ret);
/* The file PATH.dwp. */
int debugfile_dwp(const struct debugfile_place *p, const char *path, struct elf_file **ret);
/*
 * The .dwo file that a skeleton unit names. It is copied to memory, because a program can have
 * thousands of them.
 */
int debugfile_dwo(const struct debugfile_place *p, const char *comp_dir, const char *name,
		  struct elf_file **ret);
