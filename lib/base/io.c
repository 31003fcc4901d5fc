/* SPDX-License-Identifier: Apache-2.0 */
#include "base/io.h"

#include <errno.h>
#include <unistd.h>

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
