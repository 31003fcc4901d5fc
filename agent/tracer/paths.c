/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the file that a point names: by its path, in the process's root; by its name in the
 * folders of programs; as a library in what the process has mapped, or as ld.so would find it.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/tracer/internal.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/io.h"
#include "base/str.h"
#include "proc/proc.h"

#define MAX_CACHE (32u << 20)

/* Whether the process sees other files than culprit. */
static bool has_own_root(u32 pid)
{
	struct proc_namespaces mine, its;
	struct stat a, b;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%u/root/", pid);
	if (proc_namespaces_read((u32)getpid(), &mine) < 0 || proc_namespaces_read(pid, &its) < 0)
		return false;
	return mine.mnt != its.mnt || stat(path, &a) < 0 || stat("/", &b) < 0 ||
	       a.st_ino != b.st_ino || a.st_dev != b.st_dev;
}

/* The path as culprit opens it. -ENOENT: it is no regular file. */
static int in_root(u32 pid, const char *path, char **ret)
{
	char full[PATH_MAX], *real;
	struct stat st;

	if (pid && has_own_root(pid))
		snprintf(full, sizeof(full), "/proc/%u/root%s", pid, path);
	else
		snprintf(full, sizeof(full), "%s", path);
	if (stat(full, &st) < 0 || !S_ISREG(st.st_mode))
		return -ENOENT;
	/* Links in another root lead elsewhere than they say here. */
	real = strncmp(full, "/proc/", 6) == 0 ? strdup(full) : realpath(full, NULL);
	if (!real)
		return -ENOMEM;
	*ret = real;
	return 0;
}

static int in_folders(u32 pid, const char *const *folders, size_t n, const char *name, char **ret)
{
	char path[PATH_MAX];
	int r = -ENOENT;

	for (size_t i = 0; i < n && r == -ENOENT; i++) {
		snprintf(path, sizeof(path), "%s/%s", folders[i], name);
		r = in_root(pid, path, ret);
	}
	return r;
}

/* Whether a file "libssl.so.3" or "libssl-2.so" is what "libssl", "ssl" or its own name means. */
static bool is_library(const char *file, const char *name)
{
	size_t n = strlen(name);

	if (strcmp(file, name) == 0)
		return true;
	if (strncmp(file, "lib", 3) == 0 && strncmp(name, "lib", 3) != 0)
		file += 3;
	return strncmp(file, name, n) == 0 && (strncmp(file + n, ".so", 3) == 0 ||
					       (file[n] == '-' && strstr(file + n, ".so") != NULL));
}

struct mapped {
	const char *name;
	char *path; /* owned */
};

static int look_at_mapping(void *arg, const struct proc_mapping *m)
{
	struct mapped *w = arg;
	const char *base = strrchr(m->path, '/');

	if (!base || !is_library(base + 1, w->name))
		return 0;
	w->path = strdup(m->path);
	return w->path ? 1 : -ENOMEM;
}

static int in_mappings(u32 pid, const char *name, char **ret)
{
	struct mapped w = {.name = name};
	int r = proc_maps_read(pid, 0, look_at_mapping, &w);

	if (r == 1)
		r = in_root(pid, w.path, ret);
	else if (r == 0)
		r = -ENOENT;
	free(w.path);
	return r;
}

/* ---- /etc/ld.so.cache, dl-cache.h of glibc ---- */

#define CACHE_MAGIC "glibc-ld.so.cache1.1"
#define CACHE_HEAD 48
#ifdef __aarch64__
#define CACHE_FLAGS 0x0a03
#else
#define CACHE_FLAGS 0x0303
#endif

static int in_cache(const char *name, char **ret)
{
	_cleanup_str_ struct str text = {};
	struct buf all, entries, at;
	u32 n, flags, key, value;
	const char *file, *path;

	if (io_read("/etc/ld.so.cache", MAX_CACHE, &text) < 0)
		return -ENOENT;
	all = entries = buf_of(text.data, text.n);
	if (text.n < CACHE_HEAD || memcmp(text.data, CACHE_MAGIC, strlen(CACHE_MAGIC)) != 0 ||
	    !buf_skip(&entries, strlen(CACHE_MAGIC)) || !buf_u32(&entries, &n) ||
	    !buf_skip(&entries, CACHE_HEAD - strlen(CACHE_MAGIC) - 4))
		return -ENOENT;
	while (n-- && buf_u32(&entries, &flags) && buf_u32(&entries, &key) &&
	       buf_u32(&entries, &value) && buf_skip(&entries, 12)) {
		at = all;
		if (flags != CACHE_FLAGS || !buf_skip(&at, key) || !buf_cstr(&at, &file) ||
		    !is_library(file, name))
			continue;
		at = all;
		if (buf_skip(&at, value) && buf_cstr(&at, &path) && in_root(0, path, ret) == 0)
			return 0;
	}
	return -ENOENT;
}

/* ---- all ---- */

int tracer_find_program(const char *name, u32 pid, struct diag *d, char **ret)
{
	static const char *const programs[] = {"/usr/local/sbin", "/usr/local/bin", "/usr/sbin",
					       "/usr/bin",	  "/sbin",	    "/bin"};
	static const char *const libraries[] = {"/usr/local/lib",
						"/lib/x86_64-linux-gnu",
						"/usr/lib/x86_64-linux-gnu",
						"/lib/aarch64-linux-gnu",
						"/usr/lib/aarch64-linux-gnu",
						"/lib64",
						"/usr/lib64",
						"/lib",
						"/usr/lib"};
	char so[256];
	int r = -ENOENT;

	if (!*name)
		return diag_set(d, -EINVAL, "the point names no program");
	if (strchr(name, '/')) {
		r = in_root(pid, name, ret);
		return r < 0 ? diag_set(d, r, "there is no file '%s'%s", name,
					pid ? " in the root of the process" : "")
			     : 0;
	}
	if (strncmp(name, "lib", 3) != 0)
		r = in_folders(pid, programs, ARRAY_SIZE(programs), name, ret);
	if (r == -ENOENT && pid)
		r = in_mappings(pid, name, ret);
	if (r == -ENOENT && (!pid || !has_own_root(pid)))
		r = in_cache(name, ret);
	snprintf(so, sizeof(so), "%s%s.so", strncmp(name, "lib", 3) == 0 ? "" : "lib", name);
	if (r == -ENOENT)
		r = in_folders(pid, libraries, ARRAY_SIZE(libraries), so, ret);
	if (r == -ENOENT)
		r = in_folders(pid, libraries, ARRAY_SIZE(libraries), name, ret);
	if (r == -ENOENT)
		return diag_set(
			d, r, "there is no program and no library '%s': name it by its path", name);
	return r;
}
