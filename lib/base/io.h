/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/diag.h"
#include "base/str.h"
#include "base/types.h"

/* Writes all n bytes, across interruptions and partial writes. 0 or a negative errno. */
int io_write_all(int fd, const void *data, size_t n);
/*
 * Replaces a file, which its owner alone may read: readers see the old content or the new one. 0 or
 * a negative errno.
 */
int io_replace(const char *path, const void *data, size_t n);
/*
 * Appends a file, which no symbolic link may stand for. 0 or a negative errno; -EFBIG: it has more
 * than max bytes, or there is no memory.
 */
int io_read(const char *path, size_t max, struct str *ret);
/* The same of what is left of an open file, which stays open. */
int io_read_fd(int fd, size_t max, struct str *ret);
/*
 * Calls fn with the id of each file of a folder whose name is the prefix, an id of 1 to max bytes,
 * and the suffix. A result other than 0 stops, and is returned. Or a negative errno and a diag: the
 * folder cannot be read.
 */
int io_each_id(const char *directory, const char *prefix, const char *suffix, size_t max,
	       int (*fn)(void *arg, const char *id), void *arg, struct diag *reterr_diag);
