/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/identity/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"

/* ---- places of the files ---- */

struct place {
	const char *dir;
	const char *file; /* behind the id and a slash */
	enum container_file kind;
};

static const struct place places[] = {
	{"var/lib/docker/containers", "config.v2.json", CONTAINER_DOCKER},
	{"var/lib/isulad/engines/lcr", "config.v2.json", CONTAINER_ISULAD},
	{"var/lib/isulad/engines/runc", "config.v2.json", CONTAINER_ISULAD},
	{"run/containerd/io.containerd.runtime.v2.task/k8s.io", "config.json", CONTAINER_BUNDLE},
	{"run/containerd/io.containerd.runtime.v2.task/default", "config.json", CONTAINER_BUNDLE},
	{"run/k3s/containerd/io.containerd.runtime.v2.task/k8s.io", "config.json",
	 CONTAINER_BUNDLE},
	{"run/containers/storage/overlay-containers", "userdata/config.json", CONTAINER_BUNDLE},
	{"var/lib/containers/storage/overlay-containers", "userdata/config.json", CONTAINER_BUNDLE},
	{"run/containerd/runc/k8s.io", "state.json", CONTAINER_RUNC},
	{"run/runc", "state.json", CONTAINER_RUNC},
};

/* Below the home of the user who runs the engine. */
static const struct place user_places[] = {
	{.dir = ".local/share/docker/containers",
	 .file = "config.v2.json",
	 .kind = CONTAINER_DOCKER},
	{.dir = ".local/share/containers/storage/overlay-containers",
	 .file = "userdata/config.json",
	 .kind = CONTAINER_BUNDLE},
};

static const struct place machine = {"run/systemd/machines", NULL, CONTAINER_MACHINE};

#define NAMES_FILE "containers.json"
#define NAMES_DIR "var/lib/containers/storage"
#define USER_NAMES_DIR ".local/share/containers/storage"

/* Where files are looked for, and whose they have to be. */
struct origin {
	int dir; /* owned */
	u32 user;
	u64 resolve; /* flags of openat2(), for directories and for files */
	u64 resolve_file;
};

static void origin_close(struct origin *o)
{
	if (o->dir >= 0)
		close(o->dir);
}
#define _cleanup_origin_ __attribute__((cleanup(origin_close)))

static int open_in(int dir, const char *path, u64 flags, u64 resolve)
{
	struct open_how how = {.flags = flags | O_CLOEXEC, .resolve = resolve};
	int fd = (int)syscall(SYS_openat2, dir, path, &how, sizeof(how));

	return fd < 0 ? -errno : fd;
}

/* Opens a regular file in an engine's directory, if its owner is one of those who may own it. */
static int open_place(const struct origin *o, const char *dir, const char *file, struct stat *ret)
{
	_cleanup_close_ int where = open_in(o->dir, dir, O_PATH | O_DIRECTORY, o->resolve);
	_cleanup_close_ int fd =
		where < 0 ? where
			  : open_in(where, file, O_RDONLY | O_NONBLOCK | O_NOCTTY, o->resolve_file);

	if (fd < 0)
		return fd;
	if (fstat(fd, ret) < 0)
		return -errno;
	if (!S_ISREG(ret->st_mode) ||
	    (ret->st_uid && ret->st_uid != geteuid() && ret->st_uid != o->user))
		return -EPERM;
	return take_fd(&fd);
}

static size_t max_bytes(const struct origin *o, size_t max)
{
	return o->user ? MIN(max, (size_t)CONTAINER_USER_MAX_BYTES) : max;
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

/* An engine's directory may be a link to another disk; paths below it must not contain links. */
static int open_root(const char *root, struct origin *ret)
{
	int dir = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (dir < 0)
		return -errno;
	*ret = (struct origin){
		.dir = dir,
		.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS,
		.resolve_file = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS,
	};
	return 0;
}

/* The home that /etc/passwd has for the user, without the slash before it. */
static int read_home(const struct origin *root, u32 user, char *ret, size_t n)
{
	struct stat st;
	_cleanup_close_ int fd = open_place(root, "etc", "passwd", &st);
	_cleanup_fclose_ FILE *f = NULL;
	const struct passwd *pw;

	if (fd < 0)
		return fd;
	if (st.st_size > CONTAINER_MAX_BYTES)
		return -EFBIG;
	f = fdopen(fd, "r");
	if (!f)
		return -errno;
	fd = -1;
	while ((pw = fgetpwent(f)))
		if (pw->pw_uid == user && pw->pw_dir && pw->pw_dir[0] == '/' && pw->pw_dir[1] &&
		    strlen(pw->pw_dir) <= n) {
			memcpy(ret, pw->pw_dir + 1, strlen(pw->pw_dir));
			return 0;
		}
	return -ENOENT;
}

/* All in a home is its user's: no links, and no file systems that the user may have mounted. */
static int open_home(const struct origin *root, u32 user, struct origin *ret)
{
	char home[PATH_MAX];
	int dir = read_home(root, user, home, sizeof(home));

	if (dir == 0)
		dir = open_in(root->dir, home, O_PATH | O_DIRECTORY, root->resolve);
	if (dir < 0)
		return dir;
	*ret = (struct origin){
		.dir = dir,
		.user = user,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV,
		.resolve_file = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV,
	};
	return 0;
}

/* Where the files on this container are. -ENOENT: none are. */
static int open_origin(const char *root, const struct proc_cgroup_owner *o, struct origin *ret)
{
	struct origin host = {.dir = -1};
	int r = o->nested ? -ENOENT : open_root(root, &host);

	if (r < 0 || !o->user) {
		*ret = host;
		return r;
	}
	r = open_home(&host, o->user, ret);
	origin_close(&host);
	return r;
}

static bool is_known(const struct container_names *c, const struct stat *st, u32 user)
{
	return c->user == user && c->inode == st->st_ino && c->device == st->st_dev &&
	       c->size == st->st_size && c->changed.tv_sec == st->st_mtim.tv_sec &&
	       c->changed.tv_nsec == st->st_mtim.tv_nsec;
}

/* Podman's list is in a folder that is called after the driver of its storage. */
static int open_names(const struct origin *o, char dir[128], struct stat *ret)
{
	static const char *const drivers[] = {"overlay", "btrfs", "zfs", "vfs"};
	int fd = -ENOENT;

	for (size_t i = 0; i < ARRAY_SIZE(drivers) && fd < 0; i++) {
		snprintf(dir, 128, "%s/%s-containers", o->user ? USER_NAMES_DIR : NAMES_DIR,
			 drivers[i]);
		fd = open_place(o, dir, NAMES_FILE, ret);
	}
	return fd;
}

/* Podman's list of all containers: parsed again only when it has changed. */
static void read_names(struct container_names *c, const struct origin *o)
{
	_cleanup_free_ char *text = NULL;
	char dir[128];
	struct stat st;
	_cleanup_close_ int fd = open_names(o, dir, &st);
	size_t n, max = max_bytes(o, CONTAINER_NAMES_MAX_BYTES);
	struct diag why = {};
	int r;

	if (fd >= 0 && is_known(c, &st, o->user))
		return;
	r = fd < 0 ? fd : read_all(fd, &st, max, &text, &n);
	if (r == 0)
		r = container_names_parse(c, text, n, &why);
	if (r == -EBADMSG)
		log_damage(fd, why.text);
	if (r < 0)
		container_names_deinit(c);
	if (r == -EFBIG)
		log_warn_rarely("%s/%s has more than %zu KiB: names of containers are not read "
				"from it",
				dir, NAMES_FILE, max >> 10);
	if (fd < 0)
		return;
	/* Remember the file even if its format is unknown, so that it is read only once. */
	c->user = o->user;
	c->inode = st.st_ino;
	c->device = st.st_dev;
	c->size = st.st_size;
	c->changed = st.st_mtim;
}

static int describe_by_list(struct container_lists *lists, const struct origin *o, const char *id,
			    container_label *fn, void *arg)
{
	struct container_names *c = o->user ? &lists->user : &lists->root;
	const char *name;

	read_names(c, o);
	name = container_names_get(c, id);
	return name && *name ? container_pass_name(name, fn, arg) : -ENOENT;
}

static void path_of(const struct place *p, const char *id, char *ret, size_t n)
{
	snprintf(ret, n, "%s%s%s", id, p->file ? "/" : "", p->file ? p->file : "");
}

static int describe_by_file(const struct origin *o, const struct place *p, const char *id,
			    container_label *fn, void *arg)
{
	_cleanup_free_ char *text = NULL;
	_cleanup_close_ int fd = -1;
	struct stat st;
	struct diag why = {};
	char file[256];
	size_t n, max = max_bytes(o, CONTAINER_MAX_BYTES);
	int r;

	path_of(p, id, file, sizeof(file));
	fd = open_place(o, p->dir, file, &st);
	if (fd < 0)
		return -ENOENT;
	r = read_all(fd, &st, max, &text, &n);
	if (r == -EFBIG)
		log_warn_rarely("%s/%s has more than %zu KiB: its container is not described",
				p->dir, file, max >> 10);
	if (r == 0)
		r = container_parse(p->kind, text, n, fn, arg, &why);
	if (r == -EBADMSG)
		log_damage(fd, why.text);
	return r == -ENOMEM || r > 0 ? r : r < 0 ? -ENOENT : 0;
}

static const struct place *places_of(const struct origin *o, size_t *ret_n)
{
	*ret_n = o->user ? ARRAY_SIZE(user_places) : ARRAY_SIZE(places);
	return o->user ? user_places : places;
}

static int describe_id(struct container_lists *lists, const struct origin *o, const char *id,
		       container_label *fn, void *arg)
{
	int found = -ENOENT, r;
	size_t n;
	const struct place *p = places_of(o, &n);

	for (size_t i = 0; i < n; i++) {
		r = describe_by_file(o, &p[i], id, fn, arg);
		if (r != -ENOENT && r)
			return r;
		found = r == 0 ? 0 : found;
	}
	r = describe_by_list(lists, o, id, fn, arg);
	return r == -ENOENT ? found : r;
}

/* ---- containers that have names ---- */

static bool has_lxc(const struct origin *o, const char *name)
{
	static const char *const dirs[] = {
		"var/lib/lxc",
		"var/lib/incus/containers",
		"var/lib/lxd/containers",
		"var/snap/lxd/common/lxd/containers",
	};
	struct stat st;

	for (size_t i = 0; i < ARRAY_SIZE(dirs); i++) {
		_cleanup_close_ int dir =
			open_in(o->dir, dirs[i], O_PATH | O_DIRECTORY, o->resolve);

		if (dir >= 0 && fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0)
			return true;
	}
	return false;
}

/*
 * LXC calls the group of "web" "lxc.payload.web-1" if the first name is taken: then there is a
 * container "web", and none "web-1".
 */
static void strip_number(const struct origin *o, char *name)
{
	char *dash = strrchr(name, '-');
	size_t n = dash ? strspn(dash + 1, "0123456789") : 0;
	bool taken;

	if (!n || dash[1 + n] || dash == name || has_lxc(o, name))
		return;
	*dash = '\0';
	taken = has_lxc(o, name);
	if (!taken)
		*dash = '-';
}

#define NAME_BYTES sizeof(((struct proc_cgroup_owner *)NULL)->container_name)

/* Whether the host has files that may describe a container of this name. */
static bool has_files(const struct origin *o, const char *name)
{
	return o->dir >= 0 && !o->user && !strchr(name, '/') && name[0] != '.';
}

static int describe_name(const struct origin *o, const char *name, container_label *fn, void *arg)
{
	char of[NAME_BYTES];

	snprintf(of, sizeof(of), "%s", name);
	if (has_files(o, of)) {
		int r = describe_by_file(o, &machine, of, fn, arg);

		if (r != -ENOENT)
			return r;
		strip_number(o, of);
	}
	return container_pass_name(of, fn, arg);
}

void container_lists_deinit(struct container_lists *l)
{
	container_names_deinit(&l->root);
	container_names_deinit(&l->user);
}

/* The id becomes part of a path. */
static bool is_id(const char *id)
{
	return *id && !id[strspn(id, "0123456789abcdef-")];
}

int container_describe(struct container_lists *lists, const char *root,
		       const struct proc_cgroup_owner *o, container_label *fn, void *arg)
{
	_cleanup_origin_ struct origin origin = {.dir = -1};
	int r;

	if (!o->container_name[0] && !is_id(o->container_id))
		return -EINVAL;
	r = open_origin(root, o, &origin);
	if (o->container_name[0])
		return describe_name(&origin, o->container_name, fn, arg);
	return r < 0 ? -ENOENT : describe_id(lists, &origin, o->container_id, fn, arg);
}

/* Of an open file; 0: it could not be opened. */
static u64 stamp_of_file(int fd, const struct stat *st)
{
	u64 stamp;

	if (fd < 0)
		return 0;
	stamp = hash_u64(st->st_ino ^ hash_u64((u64)st->st_size));
	stamp ^= (u64)st->st_mtim.tv_sec * 1000000000ULL ^ (u64)st->st_mtim.tv_nsec;
	return hash_u64(stamp) | 1;
}

static u64 stamp_of(const struct origin *o, const char *dir, const char *file)
{
	struct stat st;
	_cleanup_close_ int fd = open_place(o, dir, file, &st);

	return stamp_of_file(fd, &st);
}

static u64 stamp_of_names(const struct origin *o)
{
	char dir[128];
	struct stat st;
	_cleanup_close_ int fd = open_names(o, dir, &st);

	return stamp_of_file(fd, &st);
}

static u64 stamp_of_name(const struct origin *o, const char *name)
{
	char of[NAME_BYTES];
	u64 stamp = 0;

	snprintf(of, sizeof(of), "%s", name);
	if (has_files(o, of)) {
		stamp = stamp_of(o, machine.dir, name);
		strip_number(o, of);
		if (has_lxc(o, of))
			stamp ^= hash_bytes(of, strlen(of));
	}
	return MAX(stamp, (u64)CONTAINER_STAMP_NAME);
}

u64 container_stamp(const char *root, const struct proc_cgroup_owner *o)
{
	_cleanup_origin_ struct origin origin = {.dir = -1};
	const struct place *p;
	char file[256];
	u64 stamp = 0;
	size_t n;
	int r = open_origin(root, o, &origin);

	if (o->container_name[0])
		return stamp_of_name(&origin, o->container_name);
	if (r < 0)
		return 0;
	p = places_of(&origin, &n);
	for (size_t i = 0; i < n; i++) {
		path_of(&p[i], o->container_id, file, sizeof(file));
		stamp = 31 * stamp + stamp_of(&origin, p[i].dir, file);
	}
	return 31 * stamp + stamp_of_names(&origin);
}
