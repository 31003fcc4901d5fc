/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/identity/container.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"

/* ---- what a file says ---- */

enum fact { SERVICE, COMPOSE, K8S_CONTAINER, NAME, IMAGE, POD, POD_UID, NAMESPACE, N_FACTS };

struct facts {
	const char *value[N_FACTS]; /* borrowed from the JSON; the first counts */
};

static void add_fact(struct facts *f, enum fact which, const char *value)
{
	if (value && *value && !f->value[which])
		f->value[which] = value;
}

/* A label of Docker's, or an annotation of the bundle's. */
static void add_pair(struct facts *f, const char *key, size_t n, const char *value)
{
	static const struct {
		const char *key;
		enum fact which;
	} known[] = {
		{"service.name", SERVICE},
		{"com.docker.compose.service", COMPOSE},
		{"io.kubernetes.container.name", K8S_CONTAINER},
		{"io.kubernetes.cri.container-name", K8S_CONTAINER},
		{"io.kubernetes.pod.name", POD},
		{"io.kubernetes.cri.sandbox-name", POD},
		{"io.kubernetes.pod.uid", POD_UID},
		{"io.kubernetes.cri.sandbox-uid", POD_UID},
		{"io.kubernetes.pod.namespace", NAMESPACE},
		{"io.kubernetes.cri.sandbox-namespace", NAMESPACE},
		{"io.kubernetes.cri.image-name", IMAGE},
		{"io.kubernetes.cri-o.ImageName", IMAGE},
	};

	for (size_t i = 0; i < ARRAY_SIZE(known); i++)
		if (strlen(known[i].key) == n && !memcmp(known[i].key, key, n))
			add_fact(f, known[i].which, value);
}

static void add_pairs(struct facts *f, json_t *pairs)
{
	const char *key;
	json_t *value;

	json_object_foreach(pairs, key, value)
		add_pair(f, key, strlen(key), json_string_value(value));
}

static void read_docker(struct facts *f, json_t *file)
{
	json_t *config = json_object_get(file, "Config");
	const char *name = json_string_value(json_object_get(file, "Name"));

	add_pairs(f, json_object_get(config, "Labels"));
	/* It begins with a slash. */
	add_fact(f, NAME, name && *name == '/' ? name + 1 : name);
	add_fact(f, IMAGE, json_string_value(json_object_get(config, "Image")));
}

/* "labels": ["KEY=VALUE", ...] */
static void read_runc(struct facts *f, json_t *file)
{
	json_t *labels = json_object_get(json_object_get(file, "config"), "labels"), *label;
	size_t i;

	json_array_foreach(labels, i, label)
	{
		const char *text = json_string_value(label), *equals;

		equals = text ? strchr(text, '=') : NULL;
		if (equals)
			add_pair(f, text, (size_t)(equals - text), equals + 1);
	}
}

/* [{"id": ..., "names": [...]}, ...] */
static void read_names(struct facts *f, json_t *file, const char *id)
{
	json_t *container;
	size_t i;

	json_array_foreach(file, i, container)
	{
		const char *its = json_string_value(json_object_get(container, "id"));

		if (its && !strcmp(its, id))
			add_fact(f, NAME,
				 json_string_value(
					 json_array_get(json_object_get(container, "names"), 0)));
	}
}

static int give(const struct facts *f, container_label *fn, void *arg)
{
	static const char *const names[N_FACTS] = {
		[K8S_CONTAINER] = "k8s.container.name",
		[NAME] = "container.name",
		[IMAGE] = "container.image.name",
		[POD] = "k8s.pod.name",
		[POD_UID] = "k8s.pod.uid",
		[NAMESPACE] = "k8s.namespace.name",
	};
	int r = 0;

	for (u32 i = 0; i < N_FACTS && r == 0; i++)
		if (names[i] && f->value[i])
			r = fn(arg, names[i], f->value[i]);
	for (u32 i = SERVICE; i <= NAME && r == 0; i++)
		if (f->value[i])
			return fn(arg, "service.name", f->value[i]);
	return r;
}

int container_parse(enum container_file kind, const char *text, size_t n, const char *id,
		    container_label *fn, void *arg)
{
	struct facts f = {};
	json_t *file = json_loadb(text, n, 0, NULL);
	int r;

	if (!file)
		return -EINVAL;
	if (kind == CONTAINER_DOCKER)
		read_docker(&f, file);
	else if (kind == CONTAINER_BUNDLE)
		add_pairs(&f, json_object_get(file, "annotations"));
	else if (kind == CONTAINER_RUNC)
		read_runc(&f, file);
	else
		read_names(&f, file, id);
	r = give(&f, fn, arg);
	json_decref(file);
	return r;
}

/* ---- where the files are ---- */

static const struct {
	const char *dir;
	const char *file; /* behind the id and a slash; or, of all containers, alone */
	enum container_file kind;
} places[] = {
	{"var/lib/docker/containers", "config.v2.json", CONTAINER_DOCKER},
	{"run/containerd/io.containerd.runtime.v2.task/k8s.io", "config.json", CONTAINER_BUNDLE},
	{"run/containerd/io.containerd.runtime.v2.task/default", "config.json", CONTAINER_BUNDLE},
	{"run/containers/storage/overlay-containers", "userdata/config.json", CONTAINER_BUNDLE},
	{"var/lib/containers/storage/overlay-containers", "userdata/config.json", CONTAINER_BUNDLE},
	{"var/lib/containers/storage/overlay-containers", "containers.json", CONTAINER_NAMES},
	{"run/containerd/runc/k8s.io", "state.json", CONTAINER_RUNC},
	{"run/runc", "state.json", CONTAINER_RUNC},
};

static int open_in(int dir, const char *path, u64 flags, u64 resolve)
{
	struct open_how how = {.flags = flags | O_CLOEXEC, .resolve = resolve};
	int fd = (int)syscall(SYS_openat2, dir, path, &how, sizeof(how));

	return fd < 0 ? -errno : fd;
}

static int read_place(int root, const char *dir, const char *file, char *ret, size_t *ret_n)
{
	/* An engine's directory may be a link to another disk; what is in it may not. */
	_cleanup_close_ int where =
		open_in(root, dir, O_PATH | O_DIRECTORY, RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS);
	_cleanup_close_ int fd = where < 0 ? where
					   : open_in(where, file, O_RDONLY | O_NONBLOCK | O_NOCTTY,
						     RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS);
	struct stat st;
	size_t n = 0;

	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode) || (st.st_uid && st.st_uid != geteuid()))
		return -EPERM;
	if (st.st_size > CONTAINER_MAX_BYTES)
		return -EFBIG;
	while (n < CONTAINER_MAX_BYTES) {
		ssize_t got = read(fd, ret + n, CONTAINER_MAX_BYTES - n);

		if (got < 0)
			return -errno;
		if (!got)
			break;
		n += (size_t)got;
	}
	*ret_n = n;
	return 0;
}

int container_describe(const char *root, const char *id, container_label *fn, void *arg)
{
	_cleanup_close_ int dir = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
	_cleanup_free_ char *text = NULL;
	int found = -ENOENT;

	/* It becomes part of a path. */
	if (!*id || id[strspn(id, "0123456789abcdef-")])
		return -EINVAL;
	for (size_t i = 0; dir >= 0 && i < ARRAY_SIZE(places); i++) {
		char file[128];
		size_t n = 0;
		int r;

		if (places[i].kind == CONTAINER_NAMES)
			snprintf(file, sizeof(file), "%s", places[i].file);
		else
			snprintf(file, sizeof(file), "%s/%s", id, places[i].file);
		text = text ? text : malloc(CONTAINER_MAX_BYTES);
		if (!text)
			return -ENOMEM;
		if (read_place(dir, places[i].dir, file, text, &n) < 0)
			continue;
		r = container_parse(places[i].kind, text, n, id, fn, arg);
		if (r == -EINVAL)
			continue;
		if (r)
			return r;
		found = 0;
	}
	return found;
}
