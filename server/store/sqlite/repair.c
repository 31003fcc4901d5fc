/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Repair copies what is whole of a damaged store into a new one (salvage.c). The damaged file is
 * renamed and stays. As long as it exists, the store reports damage, and answers about older times
 * say that samples may be missing.
 *
 *	profiles.db.repair	the incomplete copy; deleted after an interruption
 *	profiles.db.repaired	the complete copy, until it replaces profiles.db: at once, or at
 *				the next start of the server
 *	profiles.db.damaged-TIME, …-wal, …-shm
 *				the damaged file and its log
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/str.h"
#include "server/store/sqlite/repair.h"

DEFINE_CLEANUP(dir, DIR *, closedir)

static const char *const parts[] = {"", "-wal", "-shm"};

static void name_part(const struct sq *s, struct str *out, const char *end)
{
	str_clear(out);
	str_printf(out, "%s%s", s->path, end);
}

static bool is_there(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0;
}

/* The suffix of a damaged file: the time, and a number if the name exists. */
static void new_stamp(const struct sq *s, char *ret, size_t n)
{
	time_t now = time(NULL);
	struct tm tm;
	size_t used = strftime(ret, n, ".damaged-%Y%m%d-%H%M%S", gmtime_r(&now, &tm));

	for (u32 k = 2;; k++) {
		_cleanup_str_ struct str path = {};
		bool taken = false;

		for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
			str_clear(&path);
			str_printf(&path, "%s%s%s", s->path, ret, parts[i]);
			taken |= is_there(str_get(&path));
		}
		if (!taken)
			return;
		snprintf(ret + used, n - used, ".%u", k);
	}
}

static int move_part(struct sq *s, const char *from_end, const char *stamp, const char *to_end,
		     struct diag *reterr_diag)
{
	_cleanup_str_ struct str from = {}, to = {};

	name_part(s, &from, from_end);
	str_printf(&to, "%s%s%s", s->path, stamp, to_end);
	if (rename(str_get(&from), str_get(&to)) < 0 && errno != ENOENT)
		return diag_set(reterr_diag, -errno, "cannot move %s aside: %s", str_get(&from),
				strerror(errno));
	return 0;
}

static int move_aside(struct sq *s, const char *stamp, struct diag *reterr_diag)
{
	int r = 0;

	for (size_t i = 0; i < ARRAY_SIZE(parts) && r == 0; i++)
		r = move_part(s, parts[i], stamp, parts[i], reterr_diag);
	return r;
}

/* Counts the files that were moved aside, and finds the time of the last move. */
static void count_damaged(struct sq *s)
{
	static const char begin[] = SQ_FILE ".damaged-";
	_cleanup_(dir) DIR *dir = opendir(s->dir);
	struct dirent *e;

	s->damaged_files = 0;
	s->damaged_ms = 0;
	while (dir && (e = readdir(dir))) {
		_cleanup_str_ struct str path = {};
		struct stat st;

		str_printf(&path, "%s/%s", s->dir, e->d_name);
		if (strncmp(e->d_name, begin, sizeof(begin) - 1) || stat(str_get(&path), &st) < 0)
			continue;
		s->damaged_files += !strchr(e->d_name + sizeof(begin) - 1 + 15, '-');
		/* st_ctime is the time of the rename. */
		s->damaged_ms = MAX(s->damaged_ms, ((u64)st.st_ctime + 1) * 1000);
	}
}

static int put_in_place(struct sq *s, struct diag *reterr_diag)
{
	_cleanup_str_ struct str from = {};
	char stamp[64];
	int r;

	new_stamp(s, stamp, sizeof(stamp));
	name_part(s, &from, ".repaired");
	r = move_aside(s, stamp, reterr_diag);
	if (r == 0 && rename(str_get(&from), s->path) < 0)
		r = diag_set(reterr_diag, -errno, "cannot rename %s: %s", str_get(&from),
			     strerror(errno));
	count_damaged(s);
	return r;
}

static void remove_unfinished(const struct sq *s)
{
	static const char *const ends[] = {".repair", ".repair-journal", ".repair-wal",
					   ".repair-shm"};

	for (size_t i = 0; i < ARRAY_SIZE(ends); i++) {
		_cleanup_str_ struct str path = {};

		name_part(s, &path, ends[i]);
		unlink(str_get(&path));
	}
}

int sq_finish_repair(struct sq *s, struct diag *reterr_diag)
{
	_cleanup_str_ struct str path = {};
	int r = 0;

	remove_unfinished(s);
	name_part(s, &path, ".repaired");
	if (is_there(str_get(&path)))
		r = put_in_place(s, reterr_diag);
	count_damaged(s);
	if (s->damaged_files)
		log_warn("%s was damaged and has lost what could not be read; remove "
			 "%s.damaged-* to end this warning",
			 s->path, s->path);
	return r;
}

static int make_copy(struct sq *s, bool names, u64 *ret_lost, struct diag *reterr_diag)
{
	_cleanup_str_ struct str from = {}, to = {};
	int r;

	remove_unfinished(s);
	name_part(s, &from, ".repair");
	name_part(s, &to, ".repaired");
	r = sq_salvage(s, str_get(&from), names, ret_lost, reterr_diag);
	if (r == 0 && rename(str_get(&from), str_get(&to)) < 0)
		r = diag_set(reterr_diag, -errno, "cannot rename %s: %s", str_get(&from),
			     strerror(errno));
	if (r < 0)
		remove_unfinished(s);
	return r;
}

int sq_repair_closed(struct sq *s, enum sq_log log, const char *why, struct diag *reterr_diag)
{
	struct diag failed = {};
	char stamp[64];
	u64 lost = 0;
	int r = 0;

	new_stamp(s, stamp, sizeof(stamp));
	if (log == SQ_LOG_STALE)
		r = move_part(s, "-wal", stamp, "-wal", reterr_diag);
	if (r == 0 && log != SQ_LOG_MIXED)
		r = make_copy(s, false, &lost, &failed);
	if (r == 0 && log != SQ_LOG_MIXED) {
		r = put_in_place(s, reterr_diag);
		log_err("%s was damaged (%s): copied what could be read; the old file is kept as "
			"%s%s; places that could not be read: %llu",
			s->path, why, s->path, stamp, (unsigned long long)lost);
		return r;
	}
	if (r == -ENOMEM)
		return r;
	r = move_aside(s, stamp, reterr_diag);
	count_damaged(s);
	log_err("%s is damaged (%s) and cannot be read%s%s: kept it as %s%s and began a new one",
		s->path, why, failed.text[0] ? ": " : "", failed.text, s->path, stamp);
	return r;
}

int sq_repair(struct sq *s, struct diag *reterr_diag)
{
	u64 lost = 0;
	int r;

	pthread_mutex_lock(&s->write_lock);
	log_err("%s is damaged: copying what can be read", s->path);
	r = make_copy(s, true, &lost, reterr_diag);
	if (r == 0) {
		/* Readers continue in the old file; the pool does not take these readers back. */
		pthread_rwlock_wrlock(&s->list_lock);
		sq_close_file(s, true);
		r = put_in_place(s, reterr_diag);
		if (r == 0)
			r = sq_open_file(s, reterr_diag);
		sq_forget_ids(s);
		pthread_mutex_lock(&s->cache_lock);
		sq_cache_deinit(&s->cache);
		pthread_mutex_unlock(&s->cache_lock);
		pthread_mutex_lock(&s->pool_lock);
		map_clear(&s->damaged);
		s->damaged_rows = 0;
		pthread_mutex_unlock(&s->pool_lock);
		pthread_rwlock_unlock(&s->list_lock);
	}
	if (r == 0) {
		s->broken = false;
		log_err("%s is repaired; places that could not be read: %llu; the old file is kept "
			"as %s.damaged-*",
			s->path, (unsigned long long)lost, s->path);
	}
	pthread_mutex_unlock(&s->write_lock);
	return r;
}
