/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens files of this machine that profiles name. A client does not have the rights of the server's
 * user, so a file is opened only if every user may read it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "server/api/internal.h"

/*
 * Checks each directory of the path and the file itself through descriptors, so that nobody can
 * exchange one after its check.
 */
static int open_each(const char *path, int *ret_fd)
{
	_cleanup_free_ char *copy = strdup(path);
	_cleanup_close_ int fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	char *rest = copy, *part;
	struct stat st;

	if (!copy || fd < 0)
		return -ENOMEM;
	while ((part = strsep(&rest, "/"))) {
		bool last = !rest;
		int next;

		if (!*part && !last)
			continue;
		next = openat(fd, part,
			      last ? O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC
				   : O_PATH | O_NOFOLLOW | O_DIRECTORY | O_CLOEXEC);
		if (next < 0)
			return errno == ENOENT ? -ENOENT : -EACCES;
		close(fd);
		fd = next;
		if (fstat(fd, &st) < 0 || !(st.st_mode & (last ? S_IROTH : S_IXOTH)))
			return -EACCES;
	}
	if (!S_ISREG(st.st_mode))
		return -EINVAL;
	*ret_fd = take_fd(&fd);
	return 0;
}

int api_open_public(const char *path, int *ret_fd)
{
	_cleanup_free_ char *real = *path == '/' ? realpath(path, NULL) : NULL;

	return real ? open_each(real, ret_fd) : -ENOENT;
}

const char *api_not_public(int r)
{
	return r == -ENOENT
		       ? "The file is not on the server's machine."
		       : "The file is not one that every user of the server's machine may read.";
}
