/* SPDX-License-Identifier: Apache-2.0 */
#include "symbol/debugfile.h"

#include <elfutils/debuginfod.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <zlib.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"

#define DEBUG_DIR "/usr/lib/debug"
#define MAX_DWO (256LL << 20)
#define MAX_CRC_BYTES (4LL << 30)
#define CRC_BLOCK (256U << 10)
#define FETCH_SECONDS 60

static int open_in_root(int root_fd, const char *path, u64 flags)
{
	struct open_how how = {.flags = flags | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT};

	if (root_fd < 0)
		return open(path, (int)flags | O_CLOEXEC);
	return (int)syscall(SYS_openat2, root_fd, path, &how, sizeof(how));
}

int debugfile_open_path(int root_fd, const char *path)
{
	/* Opening a FIFO or a device has side effects; O_PATH has none. */
	_cleanup_close_ int handle = open_in_root(root_fd, path, O_PATH);
	char proc[64];
	struct stat st;
	int fd;

	if (handle < 0)
		return -errno;
	if (fstat(handle, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EINVAL;
	snprintf(proc, sizeof(proc), "/proc/self/fd/%d", handle);
	fd = open(proc, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/* What is wrong with a file that cannot be used; another one may be found. */
static int log_unusable(const char *path, int r, const struct diag *why)
{
	if (r < 0 && why->text[0])
		log_debug("%s: %s", path, why->text);
	return r;
}

static int open_elf(int root_fd, const char *path, struct elf_file **ret)
{
	int fd = debugfile_open_path(root_fd, path);
	struct diag why = {};

	return fd < 0 ? fd : log_unusable(path, elf_file_open(fd, &why, ret), &why);
}

static bool same_build_id(const struct elf_file *f, const u8 *id, u32 n)
{
	return n && f->build_id_n == n && memcmp(f->build_id, id, n) == 0;
}

/* ---- by build-id ---- */

#define ID_PATH_BYTES 256

static int path_of_id(const u8 *id, u32 n, char ret[ID_PATH_BYTES])
{
	char digits[2 * ELF_MAX_BUILD_ID + 1];

	if (n < 2 || n > ELF_MAX_BUILD_ID)
		return -ENOENT;
	text_hex(id, n, digits);
	snprintf(ret, ID_PATH_BYTES, DEBUG_DIR "/.build-id/%.2s/%s.debug", digits, digits + 2);
	return 0;
}

int debugfile_open_id(int root_fd, const u8 *id, u32 n)
{
	char path[ID_PATH_BYTES];
	int r = path_of_id(id, n, path);

	return r < 0 ? r : debugfile_open_path(root_fd, path);
}

int debugfile_open_of(const struct elf_file *f, int fd, struct elf_file **ret)
{
	_cleanup_elf_file_ struct elf_file *debug = NULL;
	int r = elf_file_open(fd, NULL, &debug);

	if (r < 0)
		return r;
	if (!same_build_id(debug, f->build_id, f->build_id_n))
		return -ENOENT;
	*ret = take_ptr(debug);
	return 0;
}

static int by_build_id(const u8 *id, u32 n, int root_fd, struct elf_file **ret, char **ret_path)
{
	_cleanup_elf_file_ struct elf_file *f = NULL;
	char path[ID_PATH_BYTES];
	int r = path_of_id(id, n, path);

	if (r == 0)
		r = open_elf(root_fd, path, &f);
	if (r < 0)
		return r;
	if (!same_build_id(f, id, n))
		return -ENOENT;
	if (ret_path) {
		*ret_path = strdup(path);
		if (!*ret_path)
			return -ENOMEM;
	}
	*ret = take_ptr(f);
	return 0;
}

/* ---- by .gnu_debuglink ---- */

static bool crc_matches(const struct elf_file *f, u32 want)
{
	_cleanup_free_ u8 *block = malloc(CRC_BLOCK);
	uLong crc = crc32(0, NULL, 0);
	off_t at = 0;
	ssize_t n;

	if (!block || f->fd < 0 || f->size > MAX_CRC_BYTES)
		return false;
	while ((n = pread(f->fd, block, CRC_BLOCK, at)) > 0) {
		crc = crc32(crc, block, (uInt)n);
		at += n;
	}
	return n == 0 && (u64)at == f->size && crc == want;
}

/* Whether f is the debug file of `main`. Build-ids decide; without them, the CRC. */
static bool is_debug_of(const struct elf_file *main, const struct elf_file *f, u32 crc)
{
	if (main->build_id_n)
		return same_build_id(f, main->build_id, main->build_id_n);
	return crc_matches(f, crc);
}

static int try_link(struct elf_file *main, int root_fd, const char *path, u32 crc,
		    struct elf_file **ret)
{
	_cleanup_elf_file_ struct elf_file *f = NULL;
	int r = open_elf(root_fd, path, &f);

	if (r < 0)
		return r;
	if (!is_debug_of(main, f, crc))
		return -ENOENT;
	*ret = take_ptr(f);
	return 0;
}

static int read_link(struct elf_file *f, const char **ret_name, u32 *ret_crc)
{
	struct buf b, all;
	size_t used;
	int r = elf_file_section(f, ".gnu_debuglink", NULL, &all);

	if (r < 0)
		return r;
	b = all;
	if (!buf_cstr(&b, ret_name) || !**ret_name || strchr(*ret_name, '/'))
		return elf_file_damaged(f, ".gnu_debuglink", 0, "no file name");
	used = (size_t)(b.pos - all.pos);
	return buf_skip(&b, -used & 3) && buf_u32(&b, ret_crc)
		       ? 0
		       : elf_file_damaged(f, ".gnu_debuglink", buf_offset(&b), "no checksum");
}

static int by_link(struct elf_file *f, const struct debugfile_place *p, struct elf_file **ret,
		   char **ret_path)
{
	/* Next to the binary, in .debug there, and in the binary's directory below the debug
	 * tree. */
	static const char *const forms[] = {"%s%.*s/%s", "%s%.*s/.debug/%s", "%s%.*s/%s"};
	static const char *const tops[] = {"", "", DEBUG_DIR};
	const char *name, *slash = p->path ? strrchr(p->path, '/') : NULL;
	u32 crc = 0;
	int r;

	if (!slash)
		return -ENOENT;
	r = read_link(f, &name, &crc);
	if (r < 0)
		return r;
	for (size_t i = 0; i < ARRAY_SIZE(forms); i++) {
		_cleanup_free_ char *path = NULL;

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
		if (asprintf(&path, forms[i], tops[i], (int)(slash - p->path), p->path, name) < 0)
			return -ENOMEM;
#pragma GCC diagnostic pop
		/* The name in .gnu_debuglink may be the binary's own. */
		if (strcmp(path, p->path) == 0)
			continue;
		r = try_link(f, p->root_fd, path, crc, ret);
		if (r == 0) {
			if (ret_path)
				*ret_path = take_ptr(path);
			return 0;
		}
	}
	return -ENOENT;
}

/* ---- debuginfod ---- */

static int stop_when_late(debuginfod_client *client, long a, long b)
{
	const u64 *deadline_ns = debuginfod_get_user_data(client);

	return clock_ns(CLOCK_MONOTONIC) > *deadline_ns;
}

static int fetch_from_debuginfod(const u8 *id, u32 n, const char *urls, struct elf_file **ret,
				 char **ret_path)
{
	u64 deadline_ns = clock_ns(CLOCK_MONOTONIC) + FETCH_SECONDS * 1000000000ULL;
	_cleanup_elf_file_ struct elf_file *f = NULL;
	_cleanup_free_ char *path = NULL;
	debuginfod_client *client;
	struct diag why = {};
	int fd, r;

	/* libdebuginfod reads its servers from the environment only. The variable already has this
	 * value (main() sets it before threads start), except in tests. */
	if (setenv(DEBUGINFOD_URLS_ENV_VAR, urls, 1) < 0)
		return -errno;
	client = debuginfod_begin();
	if (!client)
		return -ENOMEM;
	debuginfod_set_user_data(client, &deadline_ns);
	debuginfod_set_progressfn(client, stop_when_late);
	fd = debuginfod_find_debuginfo(client, id, (int)n, &path);
	debuginfod_end(client);
	if (fd < 0)
		return fd;
	r = log_unusable(path ? path : "debuginfod", elf_file_open(fd, &why, &f), &why);
	if (r < 0)
		return r;
	if (!same_build_id(f, id, n))
		return -ENOENT;
	if (ret_path)
		*ret_path = take_ptr(path);
	*ret = take_ptr(f);
	return 0;
}

int debugfile_find(struct elf_file *f, const struct debugfile_place *p, struct elf_file **ret,
		   char **ret_path)
{
	int r = by_build_id(f->build_id, f->build_id_n, p->root_fd, ret, ret_path);

	if (r < 0)
		r = by_link(f, p, ret, ret_path);
	if (r < 0 && p->debuginfod_urls && *p->debuginfod_urls && f->build_id_n)
		r = fetch_from_debuginfod(f->build_id, f->build_id_n, p->debuginfod_urls, ret,
					  ret_path);
	return r;
}

/* ---- dwz, dwo, dwp ---- */

int debugfile_alt(struct elf_file *f, const struct debugfile_place *p, const char *path,
		  struct elf_file **ret)
{
	const char *name, *slash = path ? strrchr(path, '/') : NULL;
	_cleanup_elf_file_ struct elf_file *alt = NULL;
	_cleanup_free_ char *full = NULL;
	struct buf b;
	int r = elf_file_section(f, ".gnu_debugaltlink", NULL, &b);

	if (r < 0)
		return r;
	if (!buf_cstr(&b, &name) || !*name)
		return elf_file_damaged(f, ".gnu_debugaltlink", 0, "no file name");
	if (buf_left(&b) < 2 || buf_left(&b) > ELF_MAX_BUILD_ID)
		return elf_file_damaged(f, ".gnu_debugaltlink", buf_offset(&b), "no build-id");
	if (by_build_id(b.pos, (u32)buf_left(&b), p->root_fd, ret, NULL) == 0)
		return 0;
	if (name[0] != '/' && slash)
		r = asprintf(&full, "%.*s/%s", (int)(slash - path), path, name);
	else
		r = asprintf(&full, "%s", name);
	if (r < 0) {
		full = NULL;
		return -ENOMEM;
	}
	r = open_elf(p->root_fd, full, &alt);
	if (r == 0 && !same_build_id(alt, b.pos, (u32)buf_left(&b)))
		r = -ENOENT;
	if (r < 0 && p->debuginfod_urls && *p->debuginfod_urls)
		return fetch_from_debuginfod(b.pos, (u32)buf_left(&b), p->debuginfod_urls, ret,
					     NULL);
	if (r == 0)
		*ret = take_ptr(alt);
	return r;
}

int debugfile_dwp(const struct debugfile_place *p, const char *path, struct elf_file **ret)
{
	_cleanup_free_ char *full = NULL;

	if (!path)
		return -ENOENT;
	if (asprintf(&full, "%s.dwp", path) < 0)
		return -ENOMEM;
	return open_elf(p->root_fd, full, ret);
}

static int open_in_memory(int root_fd, const char *path, struct elf_file **ret)
{
	_cleanup_close_ int fd = debugfile_open_path(root_fd, path);
	_cleanup_free_ u8 *image = NULL;
	struct diag why = {};
	struct stat st;
	off_t at = 0;

	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (st.st_size <= 0 || st.st_size > MAX_DWO)
		return -E2BIG;
	image = malloc((size_t)st.st_size);
	if (!image)
		return -ENOMEM;
	while (at < st.st_size) {
		ssize_t n = pread(fd, image + at, (size_t)(st.st_size - at), at);

		if (n <= 0)
			return n < 0 ? -errno : -EINVAL;
		at += n;
	}
	return log_unusable(path, elf_file_open_memory(image, (size_t)at, &why, ret), &why);
}

int debugfile_dwo(const struct debugfile_place *p, const char *comp_dir, const char *name,
		  struct elf_file **ret)
{
	const char *slash = p->path ? strrchr(p->path, '/') : NULL;
	const char *base = strrchr(name, '/');
	_cleanup_free_ char *full = NULL, *beside = NULL;
	int r;

	if (name[0] == '/' || !comp_dir)
		r = asprintf(&full, "%s", name);
	else
		r = asprintf(&full, "%s/%s", comp_dir, name);
	if (r < 0) {
		full = NULL;
		return -ENOMEM;
	}
	r = open_in_memory(p->root_fd, full, ret);
	if (r == 0 || !slash)
		return r;
	/* The dwz file may have been moved together with the binary. */
	if (asprintf(&beside, "%.*s/%s", (int)(slash - p->path), p->path, base ? base + 1 : name) <
	    0)
		return -ENOMEM;
	return open_in_memory(p->root_fd, beside, ret);
}
