/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How certificates, keys and tokens are opened: by this process, or by another one for a process
 * that may not open them. Global, because it is a property of the process.
 */
#include <errno.h>
#include <fcntl.h>

#include "server/net/internal.h"

static net_open_file *opener;
static void *opener_userdata;

void net_set_open(net_open_file *fn, void *userdata)
{
	opener = fn;
	opener_userdata = userdata;
}

int net_open_secret(const char *path)
{
	int fd = opener ? opener(opener_userdata, path) : open(path, O_RDONLY | O_CLOEXEC);

	if (opener && fd < 0) {
		errno = -fd;
		fd = -1;
	}
	return fd;
}
