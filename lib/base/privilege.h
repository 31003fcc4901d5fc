/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gives privileges away, for good. Capabilities belong to a thread, so these functions are for a
 * process that has only one; threads and programs that it starts later have no more than it.
 */
#pragma once

#include <sys/types.h>

#include "base/diag.h"
#include "base/types.h"

struct privilege_user {
	uid_t uid;
	gid_t gid;
	char name[64]; /* or the number */
};

/*
 * `name`: a user's name or number. NULL: the user culprit if there is one, else the first number
 * from 60578 to 61183 that no user has; systemd leaves these numbers to nobody (UIDS-GIDS.md).
 */
int privilege_find_user(const char *name, struct privilege_user *ret, struct diag *reterr_diag);
/*
 * Drops all capabilities but those whose bits (1ULL << CAP_X) are set, also of programs that are
 * executed later, which gain no privileges. Leaves no core file: it would have what the process
 * read of others.
 */
int privilege_keep(u64 capabilities, struct diag *reterr_diag);
/*
 * privilege_keep() without any, as the user (NULL: stays) without groups, who cannot trace it with
 * other processes.
 */
int privilege_drop(const struct privilege_user *u, struct diag *reterr_diag);
