/* SPDX-License-Identifier: Apache-2.0 */
/* Directories that a test makes and removes. */
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

/* Removes a directory and the files in it. Returns 0, or -1 and errno. */
static inline int remove_dir(const char *dir)
{
	DIR *d = opendir(dir);
	struct dirent *e;

	while (d && (e = readdir(d)))
		(void)unlinkat(dirfd(d), e->d_name, 0);
	if (d)
		closedir(d);
	return rmdir(dir);
}
