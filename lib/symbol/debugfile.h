/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files that belong to a binary: its debug file, the dwz file of that, .dwo and .dwp. All paths
 * come from hostile bytes, so they are resolved inside the root of the binary's mount namespace
 * and only regular files are opened; what has another build-id or CRC is not used.
 */
#pragma once

#include "elf/elf.h"

struct debugfile_place {
	int root_fd;		     /* or -1: ours */
	const char *path;	     /* of the binary in there, or NULL */
	const char *debuginfod_urls; /* or NULL */
};

/* An fd of a regular file, or a negative errno. */
int debugfile_open_path(int root_fd, const char *path);
/* The debug file of `f`. `ret_path` (malloc'ed, may be NULL) says which. -ENOENT. */
int debugfile_find(struct elf_file *f, const struct debugfile_place *p, struct elf_file **ret,
		   char **ret_path);
/* The dwz file that `f`, which was found at `path` (or NULL), names. */
int debugfile_alt(struct elf_file *f, const struct debugfile_place *p, const char *path,
		  struct elf_file **ret);
/* PATH.dwp. */
int debugfile_dwp(const struct debugfile_place *p, const char *path, struct elf_file **ret);
/* A .dwo by the names in its skeleton. It is copied to memory: there may be thousands. */
int debugfile_dwo(const struct debugfile_place *p, const char *comp_dir, const char *name,
		  struct elf_file **ret);
