/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Describes a container by its id, from the files of container engines: Docker's config.v2.json,
 * the bundle's config.json of containerd, CRI-O and podman, podman's list of names, runc's
 * state.json.
 *
 * They are read as root and may be hostile all the same: only regular files of root (or of
 * ourselves) below the engines' directories, through no link beneath these, and no more than
 * CONTAINER_MAX_BYTES, of podman's list CONTAINER_NAMES_MAX_BYTES. A file that is larger is not
 * read, and a warning says so.
 */
#pragma once

#include <sys/types.h>
#include <time.h>

#include "base/diag.h"
#include "base/map.h"
#include "base/types.h"

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

/*
 * container.name, container.image.name, k8s.pod.name, k8s.pod.uid, k8s.namespace.name,
 * k8s.container.name, and service.name: the label service.name, Compose's service, the name of the
 * pod's container, its own. `names` is kept from call to call; `root`: where the host's / is.
 * -ENOENT: no file says anything.
 */
int container_describe(struct container_names *names, const char *root, const char *id,
		       container_label *fn, void *arg);

enum container_file { CONTAINER_DOCKER, CONTAINER_BUNDLE, CONTAINER_RUNC, CONTAINER_N };
/* Parses the text of one such file. -EBADMSG and a diag: not JSON. */
int container_parse(enum container_file kind, const char *text, size_t n, container_label *fn,
		    void *arg, struct diag *reterr_diag);
