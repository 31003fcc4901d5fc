/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of container engines say of a container, by its id: Docker's config.v2.json, the
 * bundle's config.json of containerd, CRI-O and podman, podman's list of names, runc's state.json.
 *
 * They are read as root and may be hostile all the same: only regular files of root (or of
 * ourselves) below the engines' directories, through no link beneath these, and no more than
 * CONTAINER_MAX_BYTES.
 */
#pragma once

#include "base/types.h"

#define CONTAINER_MAX_BYTES (1u << 20)

/* Gets one OpenTelemetry label, borrowed. The first of a name counts; a result but 0 stops. */
typedef int container_label(void *arg, const char *name, const char *value);

/*
 * container.name, container.image.name, k8s.pod.name, k8s.pod.uid, k8s.namespace.name,
 * k8s.container.name, and service.name: the label service.name, Compose's service, the name of the
 * pod's container, its own. `root`: where the host's / is. -ENOENT: no file says anything.
 */
int container_describe(const char *root, const char *id, container_label *fn, void *arg);

enum container_file {
	CONTAINER_DOCKER,
	CONTAINER_BUNDLE,
	CONTAINER_RUNC,
	CONTAINER_NAMES,
	CONTAINER_N
};
/* One such file's text. -EINVAL: not of the form. */
int container_parse(enum container_file kind, const char *text, size_t n, const char *id,
		    container_label *fn, void *arg);
