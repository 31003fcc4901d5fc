/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Describes a container by its id or name, from the files of container engines: config.v2.json of
 * Docker and iSulad, the bundle's config.json of containerd, CRI-O and podman, podman's list of
 * names, runc's state.json; for containers that have names, the folders of LXC, LXD and Incus, and
 * the files of systemd-machined.
 *
 * They are read as root and may be hostile all the same: only regular files of root (or of
 * ourselves) below the engines' directories, through no link beneath these, and no more than
 * CONTAINER_MAX_BYTES, of podman's list CONTAINER_NAMES_MAX_BYTES. A file that is larger is not
 * read, and a warning says so.
 *
 * A user may run Docker or podman without root. The container is then below the user's slice, and
 * only files of this user, in the home that /etc/passwd names and on its file system, describe it:
 * at most CONTAINER_USER_MAX_BYTES of each.
 */
#pragma once

#include <sys/types.h>
#include <time.h>

#include "base/diag.h"
#include "base/map.h"
#include "base/types.h"
#include "proc/proc.h"

#define CONTAINER_USER_MAX_BYTES (128u << 10)
#define CONTAINER_MAX_BYTES (1u << 20)
#define CONTAINER_NAMES_MAX_BYTES (4u << 20)

/*
 * Receives one OpenTelemetry label, borrowed. The first of a name counts; a result other than 0
 * stops.
 */
typedef int container_label(void *arg, const char *name, const char *value);

/* Podman's list of the names of all containers, as it was when it was read. */
struct container_names {
	struct strtab strings;
	struct map by_id; /* hash of the id → string of the id << 32 | string of the name */
	u32 user;	  /* whose list it is */
	dev_t device;	  /* of the file, as the next three */
	ino_t inode;
	off_t size;
	struct timespec changed;
	u64 n_parsed;
};

void container_names_deinit(struct container_names *c);
/* Replaces the list by a file's text. -EBADMSG and a diag: not JSON. */
int container_names_parse(struct container_names *c, const char *text, size_t n,
			  struct diag *reterr_diag);
/* Borrowed until the list is replaced; NULL: not in it. */
const char *container_names_get(const struct container_names *c, const char *id);

/* Kept from call to call. */
struct container_lists {
	struct container_names root, user; /* of the user asked for last */
};
void container_lists_deinit(struct container_lists *l);

/*
 * container.name, container.image.name, k8s.pod.name, k8s.pod.uid, k8s.namespace.name,
 * k8s.container.name, and service.name: the label service.name, Compose's service, the name of the
 * pod's container, its own. Names of labels are constants. `root`: where the host's / is. -ENOENT:
 * no file says anything. A container that is nested in another is not described by files; its name
 * is its label if it has one.
 */
int container_describe(struct container_lists *lists, const char *root,
		       const struct proc_cgroup_owner *o, container_label *fn, void *arg);
/*
 * Differs when a file that describes the container has changed; 0: there is none; _NAME: there is
 * none, but the container has a name.
 */
#define CONTAINER_STAMP_NAME 1
u64 container_stamp(const char *root, const struct proc_cgroup_owner *o);

enum container_file {
	CONTAINER_DOCKER,
	CONTAINER_ISULAD,
	CONTAINER_BUNDLE,
	CONTAINER_RUNC,
	CONTAINER_MACHINE, /* systemd-machined's, not JSON */
	CONTAINER_N
};
/* Parses the text of one such file. -EBADMSG and a diag: not JSON. */
int container_parse(enum container_file kind, const char *text, size_t n, container_label *fn,
		    void *arg, struct diag *reterr_diag);
