/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes on disk: the store's size limit, and the free space of the file system.
 *
 * Two things must never happen: that the store exceeds its size because writers are faster than
 * sq_maintain(), and that it fills the disk so far that nothing can be removed. Removing blocks
 * needs room, too: the transaction goes into the log, and a checkpoint of the log may have to
 * extend the file. So batches are refused some MiB before the disk is full.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "base/str.h"
#include "server/store/sqlite/maintain.h"

#define ROOM_BYTES (4u << 20) /* what sq_maintain() needs */

static u64 part_bytes(const char *database, const char *part)
{
	_cleanup_str_ struct str path = {};
	struct stat st;

	str_printf(&path, "%s%s", database, part);
	return stat(str_get(&path), &st) < 0 ? 0 : (u64)st.st_size;
}

u64 sq_files_bytes(const char *database)
{
	return part_bytes(database, "") + part_bytes(database, "-wal") +
	       part_bytes(database, "-shm");
}

u64 sq_bytes(const struct sq *s)
{
	return sq_files_bytes(s->path);
}

bool sq_is_large(const struct sq *s)
{
	/* Subtract what the log may grow by before the next checkpoint. */
	return sq_bytes(s) > s->limits.max_bytes - MIN(s->limits.max_bytes / 16, 64ULL << 20);
}

void sq_checkpoint(struct sq *s)
{
	/* Without truncation, the log file keeps its largest size. */
	if (sq_is_large(s))
		sq_truncate_log(s->writer);
	else
		sqlite3_wal_checkpoint_v2(s->writer->db, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL,
					  NULL);
}

bool sq_has_room(const struct sq *s)
{
	struct statvfs fs;

	/* If statvfs() fails, let the write itself find out whether there is room. */
	return statvfs(s->dir, &fs) < 0 ||
	       (u64)fs.f_bavail * fs.f_frsize >= part_bytes(s->path, "-wal") + ROOM_BYTES;
}

bool sq_is_no_page(const struct sq *s)
{
	return s->writer->full && sq_has_room(s);
}

int sq_make_room(struct sq *s, struct diag *reterr_diag)
{
	int r = sq_is_large(s) ? sq_make_smaller(s, reterr_diag) : 0;

	if (r < 0)
		return r;
	if (sq_bytes(s) > s->limits.max_bytes)
		return diag_set(reterr_diag, -ENOSPC,
				"%s is larger than --max-size and cannot be made smaller: use a "
				"larger --max-size",
				s->dir);
	if (!sq_has_room(s))
		return diag_set(reterr_diag, -ENOSPC,
				"no space left for %s: free some, or use a smaller --max-size",
				s->path);
	return 0;
}
