/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes of their own for what parses foreign bytes, and the walls around them. Behind the walls
 * a process can use only the system calls that its work needs (seccomp), and only the directories
 * that it was given (Landlock); both hold until the process ends. doc/design/0014-privileges.md
 */
#pragma once

#include <sys/types.h>

#include "base/diag.h"
#include "base/types.h"

#define SANDBOX_MAX_PLACES 64
#define SANDBOX_FIRST_FD 3 /* of the descriptors that a new process is given */
#define SANDBOX_MAX_FDS 4

/*
 * Starts this program again, as `culprit COMMAND`. The new process has standard error, copies of
 * these descriptors from SANDBOX_FIRST_FD on, and nothing else that is open here. A negative errno.
 */
int sandbox_spawn(char *command, const int *fds, u32 n, pid_t *ret);

struct sandbox_options {
	/* Directories whose files it may change, and directories or files that it may read. */
	const char *write[SANDBOX_MAX_PLACES], *read[SANDBOX_MAX_PLACES];
	u32 n_write, n_read;
	bool connects; /* it may connect to other machines */
	bool computes; /* it opens nothing and starts nothing: it has what it is given */
};

/*
 * Shuts this process in. It must have one thread, and no more capabilities than it needs; it gains
 * none later. A place that does not exist is left out. A kernel without Landlock, or with an older
 * one, has only the other walls.
 */
int sandbox_enter(const struct sandbox_options *o, struct diag *reterr_diag);

/*
 * Makes the directory of a store if it is missing, and gives it to a user: the files of a store in
 * it (sandbox_is_of_store()) that root has made, and nothing that is linked from elsewhere. -EPERM:
 * the directory is another user's, or root keeps other things in it.
 */
int sandbox_give_directory(const char *path, uid_t uid, gid_t gid, struct diag *reterr_diag);
/* Whether a store, or its folder of symbols, has a file or folder of this name. */
bool sandbox_is_of_store(const char *name);

/* ---- its parts ---- */

int sandbox_restrict_files(const struct sandbox_options *o, struct diag *reterr_diag);
int sandbox_filter_calls(const struct sandbox_options *o, struct diag *reterr_diag);
