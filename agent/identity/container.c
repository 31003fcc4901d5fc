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
#include "base/json.h"
#include "base/log.h"

/* ---- content of the files ---- */

enum fact { SERVICE, COMPOSE, K8S_CONTAINER, NAME, IMAGE, POD, POD_UID, NAMESPACE, N_FACTS };

struct facts {
	const char *value[N_FACTS]; /* borrowed from the JSON; the first value counts */
};

static void add_fact(struct facts *f, enum fact which, const char *value)
{
	if (value && *value && !f->value[which])
		f->value[which] = value;
}

/* Adds a label of a Docker container, or an annotation of a bundle. */
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
	/* Docker's name begins with a slash. */
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

/* [{"id": ..., "names": [...]}, ...]: calls fn() for the first name of each. */
static int each_name(json_t *file, int (*fn)(void *arg, const char *id, const char *name),
		     void *arg)
{
	json_t *container;
	size_t i;
	int r = 0;

	json_array_foreach(file, i, container)
	{
		const char *id = json_string_value(json_object_get(container, "id"));
		const char *name =
			json_string_value(json_array_get(json_object_get(container, "names"), 0));

		if (id && name && r == 0)
			r = fn(arg, id, name);
	}
	return r;
}

static int pass_labels(const struct facts *f, container_label *fn, void *arg)
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

int container_parse(enum container_file kind, const char *text, size_t n, container_label *fn,
		    void *arg, struct diag *reterr_diag)
{
	struct facts f = {};
	json_t *file = NULL;
	int r = json_read(text, n, 0, &file, reterr_diag);

	if (r < 0)
		return r;
	if (kind == CONTAINER_DOCKER)
		read_docker(&f, file);
	else if (kind == CONTAINER_BUNDLE)
		add_pairs(&f, json_object_get(file, "annotations"));
	else
		read_runc(&f, file);
	r = pass_labels(&f, fn, arg);
	json_decref(file);
	return r;
}

/* ---- the list of names ---- */

static u64 id_hash(const char *id)
{
	return hash_bytes(id, strlen(id)) >> 1;
}

/* The first name of an id counts. */
static int keep_name(void *arg, const char *id, const char *name)
{
	struct container_names *c = arg;
	u32 id_at, name_at;
	int r;

	if (map_get(&c->by_id, id_hash(id)))
		return 0;
	r = strtab_add(&c->strings, id, strlen(id), &id_at);
	if (r == 0)
		r = strtab_add(&c->strings, name, strlen(name), &name_at);
	return r < 0 ? r : map_put(&c->by_id, id_hash(id), (u64)id_at << 32 | name_at);
}

void container_names_deinit(struct container_names *c)
{
	map_deinit(&c->by_id);
	strtab_deinit(&c->strings);
	*c = (struct container_names){};
}

int container_names_parse(struct container_names *c, const char *text, size_t n,
			  struct diag *reterr_diag)
{
	u64 n_parsed = c->n_parsed + 1;
	json_t *file = NULL;
	int r = json_read(text, n, 0, &file, reterr_diag);

	if (r < 0)
		return r;
	container_names_deinit(c);
	c->n_parsed = n_parsed;
	r = strtab_init(&c->strings);
	if (r == 0)
		r = each_name(file, keep_name, c);
	json_decref(file);
	return r;
}

const char *container_names_get(const struct container_names *c, const char *id)
{
	const u64 *at = map_get(&c->by_id, id_hash(id));

	return at && !strcmp(strtab_get(&c->strings, (u32)(*at >> 32)), id)
		       ? strtab_get(&c->strings, (u32)*at)
		       : NULL;
}

/* ---- places of the files ---- */

static const struct {
	const char *dir;
	const char *file; /* behind the id and a slash */
	enum container_file kind;
} places[] = {
	{"var/lib/docker/containers", "config.v2.json", CONTAINER_DOCKER},
	{"run/containerd/io.containerd.runtime.v2.task/k8s.io", "config.json", CONTAINER_BUNDLE},
	{"run/containerd/io.containerd.runtime.v2.task/default", "config.json", CONTAINER_BUNDLE},
	{"run/containers/storage/overlay-containers", "userdata/config.json", CONTAINER_BUNDLE},
	{"var/lib/containers/storage/overlay-containers", "userdata/config.json", CONTAINER_BUNDLE},
	{"run/containerd/runc/k8s.io", "state.json", CONTAINER_RUNC},
	{"run/runc", "state.json", CONTAINER_RUNC},
};

static int open_in(int dir, const char *path, u64 flags, u64 resolve)
{
	struct open_how how = {.flags = flags | O_CLOEXEC, .resolve = resolve};
	int fd = (int)syscall(SYS_openat2, dir, path, &how, sizeof(how));

	return fd < 0 ? -errno : fd;
}

/* Opens a regular file in an engine's directory, if root or this process's user owns it. */
static int open_place(int root, const char *dir, const char *file, struct stat *ret)
{
	/* An engine's directory may be a link to another disk; paths below it must not contain
	 * links. */
	_cleanup_close_ int where =
		open_in(root, dir, O_PATH | O_DIRECTORY, RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS);
	_cleanup_close_ int fd = where < 0 ? where
					   : open_in(where, file, O_RDONLY | O_NONBLOCK | O_NOCTTY,
						     RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS);

	if (fd < 0)
		return fd;
	if (fstat(fd, ret) < 0)
		return -errno;
	if (!S_ISREG(ret->st_mode) || (ret->st_uid && ret->st_uid != geteuid()))
		return -EPERM;
	return take_fd(&fd);
}

/* The whole file, or its first `max` bytes if it grows meanwhile. */
static int read_all(int fd, const struct stat *st, size_t max, char **ret, size_t *ret_n)
{
	_cleanup_free_ char *text = NULL;
	size_t n = 0;

	if (st->st_size > (off_t)max)
		return -EFBIG;
	text = malloc(max);
	if (!text)
		return -ENOMEM;
	while (n < max) {
		ssize_t got = read(fd, text + n, max - n);

		if (got < 0)
			return -errno;
		if (!got)
			break;
		n += (size_t)got;
	}
	*ret = take_ptr(text);
	*ret_n = n;
	return 0;
}

static bool is_known(const struct container_names *c, const struct stat *st)
{
	return c->inode == st->st_ino && c->device == st->st_dev && c->size == st->st_size &&
	       c->changed.tv_sec == st->st_mtim.tv_sec && c->changed.tv_nsec == st->st_mtim.tv_nsec;
}

#define NAMES_DIR "var/lib/containers/storage/overlay-containers"
#define NAMES_FILE "containers.json"

/* Podman's list of all containers: parsed again only when it has changed. */
static void read_names(struct container_names *c, int root)
{
	_cleanup_free_ char *text = NULL;
	struct stat st;
	_cleanup_close_ int fd = open_place(root, NAMES_DIR, NAMES_FILE, &st);
	struct diag why = {};
	size_t n;
	int r;

	if (fd >= 0 && is_known(c, &st))
		return;
	r = fd < 0 ? fd : read_all(fd, &st, CONTAINER_NAMES_MAX_BYTES, &text, &n);
	if (r == 0)
		r = container_names_parse(c, text, n, &why);
	if (r == -EBADMSG)
		log_damage(fd, why.text);
	if (r < 0)
		container_names_deinit(c);
	if (r == -EFBIG)
		log_warn("%s/%s has more than %u MiB: names of containers are not read from it",
			 NAMES_DIR, NAMES_FILE, CONTAINER_NAMES_MAX_BYTES >> 20);
	if (fd < 0)
		return;
	/* Remember the file even if its format is unknown, so that it is read only once. */
	c->inode = st.st_ino;
	c->device = st.st_dev;
	c->size = st.st_size;
	c->changed = st.st_mtim;
}

static int describe_by_list(struct container_names *c, int root, const char *id,
			    container_label *fn, void *arg)
{
	struct facts f = {};

	read_names(c, root);
	add_fact(&f, NAME, container_names_get(c, id));
	return f.value[NAME] ? pass_labels(&f, fn, arg) : -ENOENT;
}

static int describe_by_file(int root, size_t place, const char *id, container_label *fn, void *arg)
{
	_cleanup_free_ char *text = NULL;
	_cleanup_close_ int fd = -1;
	struct stat st;
	struct diag why = {};
	char file[128];
	size_t n;
	int r;

	snprintf(file, sizeof(file), "%s/%s", id, places[place].file);
	fd = open_place(root, places[place].dir, file, &st);
	if (fd < 0)
		return -ENOENT;
	r = read_all(fd, &st, CONTAINER_MAX_BYTES, &text, &n);
	if (r == -EFBIG)
		log_warn_rarely("%s/%s has more than %u MiB: its container is not described",
				places[place].dir, file, CONTAINER_MAX_BYTES >> 20);
	if (r == 0)
		r = container_parse(places[place].kind, text, n, fn, arg, &why);
	if (r == -EBADMSG)
		log_damage(fd, why.text);
	return r == -ENOMEM || r > 0 ? r : r < 0 ? -ENOENT : 0;
}

int container_describe(struct container_names *c, const char *root, const char *id,
		       container_label *fn, void *arg)
{
	_cleanup_close_ int dir = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
	int found = -ENOENT, r;

	/* The id becomes part of a path. */
	if (!*id || id[strspn(id, "0123456789abcdef-")])
		return -EINVAL;
	for (size_t i = 0; dir >= 0 && i < ARRAY_SIZE(places); i++) {
		r = describe_by_file(dir, i, id, fn, arg);
		if (r != -ENOENT && r)
			return r;
		found = r == 0 ? 0 : found;
	}
	r = dir >= 0 ? describe_by_list(c, dir, id, fn, arg) : -ENOENT;
	return r == -ENOENT ? found : r;
}
