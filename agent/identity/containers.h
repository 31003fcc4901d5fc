/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is known of the containers that processes are in. The files of a container's engine are read
 * when its first process is seen, and looked at again while it is asked for: an engine may write
 * them after the process has started, and a container may be renamed. What was read stays known
 * when the files are gone.
 *
 * Not thread-safe.
 */
#pragma once

#include "agent/identity/container.h"
#include "base/map.h"
#include "base/types.h"
#include "proc/proc.h"

/* At most this many are known; the others have no labels, and are counted. */
#define CONTAINERS_MAX 4096

struct containers {
	struct map by_key; /* hash → struct container *, owned */
	struct container_lists lists;
	char *root; /* owned; NULL: / */
	u64 left_out;
};

void containers_deinit(struct containers *c);
/* Where the host's / is; forgets all containers. -ENOMEM. */
int containers_set_root(struct containers *c, const char *path);
/*
 * Returns the key of the container that the owner is in, and reads its files if it is new; 0: there
 * is no container, or no memory for it.
 */
u64 containers_see(struct containers *c, const struct proc_cgroup_owner *o);
/* Calls fn with the container's labels, as container_describe() does. 0: it is known no more. */
int containers_labels(struct containers *c, u64 key, container_label *fn, void *arg);
/* One label, borrowed until the container's files are read again; NULL. */
const char *containers_label(struct containers *c, u64 key, const char *name);
/* A process that is known still is in this container. */
void containers_keep(struct containers *c, u64 key);
/* Reads the files of containers that are due. To be called about once a second. */
void containers_follow(struct containers *c, u64 now_ns);
/* Forgets containers that were not asked for since the call before the last one. */
void containers_sweep(struct containers *c);
