/* SPDX-License-Identifier: Apache-2.0 */
#include "base/io.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/diag.h"
#include "base/str.h"

int io_write_all(int fd, const void *data, size_t n)
{
	const u8 *at = data;

	while (n) {
		ssize_t w = write(fd, at, n);

		if (w < 0 && errno == EINTR)
			continue;
		if (w <= 0)
			return w < 0 ? -errno : -EIO;
		at += w;
		n -= (size_t)w;
	}
	return 0;
}

int io_replace(const char *path, const void *data, size_t n)
{
	_cleanup_str_ struct str part = {};
	_cleanup_close_ int fd = -1;
	int r;

	str_printf(&part, "%s.part", path);
	if (part.failed)
		return -ENOMEM;
	fd = open(str_get(&part), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	r = fd < 0 ? -errno : io_write_all(fd, data, n);
	if (r == 0 && rename(str_get(&part), path) < 0)
		r = -errno;
	if (r < 0)
		unlink(str_get(&part));
	return r;
}

int io_read(const char *path, size_t max, struct str *ret)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

	return fd < 0 ? -errno : io_read_fd(fd, max, ret);
}

int io_read_fd(int fd, size_t max, struct str *ret)
{
	char part[16384];
	ssize_t n;

	while ((n = read(fd, part, sizeof(part))) > 0)
		if (ret->n + (size_t)n > max || str_append(ret, part, (size_t)n) < 0)
			return -EFBIG;
	return n < 0 ? -errno : 0;
}

int io_each_id(const char *directory, const char *prefix, const char *suffix, size_t max,
	       int (*fn)(void *arg, const char *id), void *arg, struct diag *reterr_diag)
{
	size_t around = strlen(prefix) + strlen(suffix), n;
	DIR *d = opendir(directory);
	struct dirent *f;
	int r = 0;

	if (!d)
		return diag_set(reterr_diag, -errno, "%s cannot be read: %s", directory,
				strerror(errno));
	while (r == 0 && (f = readdir(d))) {
		n = strlen(f->d_name);
		if (n <= around || n > around + max || !str_starts(f->d_name, prefix) ||
		    !str_ends(f->d_name, suffix))
			continue;
		f->d_name[n - strlen(suffix)] = '\0';
		r = fn(arg, f->d_name + strlen(prefix));
	}
	closedir(d);
	return r;
}
