/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Backup of a data directory, also while a server writes to it, and restore.
 *
 *	DEST.part/		until the backup is complete and verified; then renamed to DEST
 *	DEST/profiles.db	the database at one moment, from a snapshot of a reader
 *	DEST/spans.db		the same, if the store has one
 *	DEST/symbols/...	and all other files of the directory, but for `lock`, logs of
 *				databases and what repairs left behind
 *	DEST/culprit-backup	a line "HASH BYTES PATH" for each file; the hash is XXH3
 *
 * A reader of another process keeps the server from shortening its logs, but stops nobody.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "base/log.h"
#include "base/str.h"
#include "server/store/sqlite/maintain.h"
#include "server/store/sqlite/repair.h"
#include "server/store/sqlite/spans.h"

#define MANIFEST "culprit-backup"
#define MANIFEST_HEAD "culprit backup 1\n"
#define PAGES_A_STEP 1024
#define MAX_DEPTH 16
#define MAX_MANIFEST_BYTES (64u << 20)

DEFINE_CLEANUP(dir, DIR *, closedir)
DEFINE_CLEANUP(hash, XXH3_state_t *, XXH3_freeState)

static const char *const databases[] = {SQ_FILE, SQ_SPANS_FILE};

struct copying {
	const char *from, *to; /* directories */
	const struct store_progress *progress;
	struct str manifest;
	int owner_fd; /* the new files get the owner of this directory; -1: one's own */
};

static int failed(const char *what, const char *path, struct diag *reterr_diag)
{
	int error = errno;

	return diag_set(reterr_diag, -error, "cannot %s %s: %s", what, path, strerror(error));
}

static void tell(const struct copying *c, const char *file, u64 done, u64 all)
{
	if (c->progress && c->progress->fn)
		c->progress->fn(c->progress->userdata, file, done, all);
}

/* ---- files ---- */

static int sync_path(const char *path, struct diag *reterr_diag)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);

	return fd < 0 || fsync(fd) < 0 ? failed("write", path, reterr_diag) : 0;
}

static int give_to_owner(const struct copying *c, int fd, const char *path,
			 struct diag *reterr_diag)
{
	struct stat st;

	if (c->owner_fd < 0 || geteuid() != 0)
		return 0;
	if (fstat(c->owner_fd, &st) < 0 || fchown(fd, st.st_uid, st.st_gid) < 0)
		return failed("give to the owner of the directory", path, reterr_diag);
	return 0;
}

/* Reads a file to its end, hashes it, and writes it to `to`, unless that is negative. */
static int hash_file(const struct copying *c, const char *name, int from, int to, u64 *ret_hash,
		     u64 *ret_bytes)
{
	_cleanup_(hash) XXH3_state_t *state = XXH3_createState();
	const size_t size = 1u << 20;
	_cleanup_free_ u8 *data = malloc(size);
	struct stat st;
	u64 bytes = 0;
	ssize_t n;
	int r = 0;

	if (!state || !data)
		return -ENOMEM;
	if (fstat(from, &st) < 0)
		return -errno;
	XXH3_64bits_reset(state);
	while (r == 0 && (n = read(from, data, size)) != 0) {
		if (n < 0)
			return -errno;
		XXH3_64bits_update(state, data, (size_t)n);
		bytes += (u64)n;
		if (to >= 0)
			r = io_write_all(to, data, (size_t)n);
		tell(c, name, bytes, (u64)st.st_size);
	}
	*ret_hash = XXH3_64bits_digest(state);
	*ret_bytes = bytes;
	return r;
}

static int make_parents(const struct copying *c, const char *name, struct diag *reterr_diag)
{
	int r = 0;

	for (const char *slash = strchr(name, '/'); slash && r == 0;
	     slash = strchr(slash + 1, '/')) {
		_cleanup_str_ struct str path = {};
		_cleanup_close_ int fd = -1;

		str_printf(&path, "%s/%.*s", c->to, (int)(slash - name), name);
		if (mkdir(str_get(&path), 0700) < 0 && errno != EEXIST)
			return failed("create", str_get(&path), reterr_diag);
		fd = open(str_get(&path), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (fd < 0)
			return failed("open", str_get(&path), reterr_diag);
		r = give_to_owner(c, fd, str_get(&path), reterr_diag);
	}
	return r;
}

/* Copies a file of `from` to `to`. Returns 1 if it is gone, because a server deleted it. */
static int copy_file(const struct copying *c, const char *name, u64 *ret_hash, u64 *ret_bytes,
		     struct diag *reterr_diag)
{
	_cleanup_str_ struct str a = {}, b = {};
	_cleanup_close_ int from = -1, to = -1;
	int r = make_parents(c, name, reterr_diag);

	if (r < 0)
		return r;
	str_printf(&a, "%s/%s", c->from, name);
	str_printf(&b, "%s/%s", c->to, name);
	from = open(str_get(&a), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (from < 0)
		return errno == ENOENT ? 1 : failed("read", str_get(&a), reterr_diag);
	to = open(str_get(&b), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (to < 0)
		return failed("create", str_get(&b), reterr_diag);
	r = hash_file(c, name, from, to, ret_hash, ret_bytes);
	if (r == 0 && fsync(to) < 0)
		r = -errno;
	if (r < 0)
		return diag_set(reterr_diag, r, "cannot copy %s to %s: %s", str_get(&a),
				str_get(&b), strerror(-r));
	return give_to_owner(c, to, str_get(&b), reterr_diag);
}

static void note_file(struct copying *c, const char *name, u64 hash, u64 bytes)
{
	str_printf(&c->manifest, "%016llx %llu %s\n", hash, bytes, name);
}

static bool is_left_out(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(databases); i++)
		if (str_starts(name, databases[i]))
			return true;
	return !strcmp(name, "lock") || !strcmp(name, MANIFEST) || str_ends(name, ".part") ||
	       strchr(name, '\n');
}

/* Copies the files in a directory below `from`; inside: "" or "symbols/". */
static int copy_others(struct copying *c, const char *inside, u32 depth, struct diag *reterr_diag)
{
	_cleanup_str_ struct str path = {};
	_cleanup_(dir) DIR *dir = NULL;
	struct dirent *e;
	int r = 0;

	str_printf(&path, "%s/%s", c->from, inside);
	dir = opendir(str_get(&path));
	if (!dir)
		return failed("read", str_get(&path), reterr_diag);
	while (r >= 0 && (e = readdir(dir))) {
		_cleanup_str_ struct str name = {};
		struct stat st;
		u64 hash, bytes;

		if (e->d_name[0] == '.' || is_left_out(e->d_name) || depth > MAX_DEPTH ||
		    fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		str_printf(&name, "%s%s%s", inside, e->d_name, S_ISDIR(st.st_mode) ? "/" : "");
		if (S_ISDIR(st.st_mode)) {
			r = copy_others(c, str_get(&name), depth + 1, reterr_diag);
		} else if (S_ISREG(st.st_mode)) {
			r = copy_file(c, str_get(&name), &hash, &bytes, reterr_diag);
			if (r == 0)
				note_file(c, str_get(&name), hash, bytes);
		}
	}
	return MIN(r, 0);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
	return at->level ? remove(path) : 0;
}

static void remove_contents(const char *path)
{
	nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* ---- databases ---- */

int sq_copy_database(struct sq_conn *from, const char *to, const struct store_progress *progress,
		     struct diag *reterr_diag)
{
	const struct copying c = {.progress = progress};
	const char *name = strrchr(to, '/') ? strrchr(to, '/') + 1 : to;
	struct sq_conn *copy = NULL;
	sqlite3_backup *b;
	int step = SQLITE_OK, r = sq_connect(to, true, reterr_diag, &copy);

	if (r < 0)
		return r;
	sqlite3_exec(copy->db, "PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF", NULL, NULL, NULL);
	b = sqlite3_backup_init(copy->db, "main", from->db, "main");
	while (b && (step = sqlite3_backup_step(b, PAGES_A_STEP)) == SQLITE_OK) {
		u64 all = (u64)sqlite3_backup_pagecount(b);

		tell(&c, name, (all - (u64)sqlite3_backup_remaining(b)) * SQ_PAGE, all * SQ_PAGE);
	}
	if (!b || sqlite3_backup_finish(b) != SQLITE_OK || step != SQLITE_DONE)
		r = sq_error(copy, to, reterr_diag);
	sq_disconnect(copy);
	return r < 0 ? r : sync_path(to, reterr_diag);
}

int sq_keep_version(struct sq *s, s64 version, struct diag *reterr_diag)
{
	_cleanup_str_ struct str to = {}, part = {};
	u64 bytes = sq_bytes(s);
	struct statvfs fs;
	int r;

	str_printf(&to, "%s.version-%lld", s->path, version);
	str_printf(&part, "%s.part", str_get(&to));
	if (access(str_get(&to), F_OK) == 0)
		return 0;
	if (statvfs(s->dir, &fs) == 0 && (u64)fs.f_bavail * fs.f_frsize < bytes + (bytes >> 3))
		return diag_set(reterr_diag, -ENOSPC,
				"%s is of an older culprit, and is copied before it is updated: "
				"make room for %llu MiB on its disk",
				s->path, ((bytes + (bytes >> 3)) >> 20) + 1);
	unlink(str_get(&part));
	r = sq_copy_database(s->writer, str_get(&part), NULL, reterr_diag);
	if (r == 0 && rename(str_get(&part), str_get(&to)) < 0)
		r = failed("rename to", str_get(&to), reterr_diag);
	if (r < 0)
		unlink(str_get(&part));
	else
		log_info("%s is of an older culprit: it is updated; a copy is kept as %s until you "
			 "delete it",
			 s->path, str_get(&to));
	return r;
}

/* Adds the number of rows of each table. */
static int count_rows(struct sq_conn *c, struct str *out)
{
	sqlite3_stmt *st = NULL;
	int r = 0;

	if (sqlite3_prepare_v2(c->db, "SELECT name FROM sqlite_schema WHERE type='table'", -1, &st,
			       NULL) != SQLITE_OK)
		return -EIO;
	while (r == 0 && sqlite3_step(st) == SQLITE_ROW) {
		_cleanup_str_ struct str text = {};
		s64 n = 0;

		str_printf(&text, "SELECT count(*) FROM \"%s\"", sqlite3_column_text(st, 0));
		r = sq_number(c, str_get(&text), &n);
		str_printf(out, "%s %lld\n", sqlite3_column_text(st, 0), n);
	}
	sqlite3_finalize(st);
	return r;
}

static int say_damaged(struct diag *reterr_diag)
{
	return diag_set(reterr_diag, -EBADMSG,
			"some pages of the store are damaged: restart the server, which repairs "
			"them, then repeat the backup");
}

static int verify_copy(const struct str *rows, const char *path, struct diag *reterr_diag)
{
	_cleanup_str_ struct str after = {};
	struct sq_conn *copy = NULL;
	int r = sq_connect(path, false, reterr_diag, &copy);

	if (r < 0)
		return r;
	if (!sq_pages_are_whole(copy, "PRAGMA integrity_check(1)"))
		r = say_damaged(reterr_diag);
	else if (count_rows(copy, &after) < 0 || strcmp(str_get(rows), str_get(&after)) != 0)
		r = diag_set(reterr_diag, -EBADMSG, "%s has not all rows of the store", path);
	sq_disconnect(copy);
	return r;
}

/* The connection of a reader that keeps its snapshot; *ret stays NULL if there is no file. */
static int open_snapshot(const char *dir, const char *name, struct sq_conn **ret,
			 struct diag *reterr_diag)
{
	_cleanup_str_ struct str path = {};
	struct sq_conn *c = NULL;
	int r;

	str_printf(&path, "%s/%s", dir, name);
	if (access(str_get(&path), F_OK) < 0 && errno == ENOENT)
		return 0;
	r = sq_connect(str_get(&path), false, reterr_diag, &c);
	if (r < 0)
		return r;
	sqlite3_db_config(c->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
	if (sqlite3_exec(c->db, "BEGIN; SELECT count(*) FROM sqlite_schema", NULL, NULL, NULL) !=
	    SQLITE_OK) {
		r = sq_error(c, str_get(&path), reterr_diag);
		sq_disconnect(c);
		return r;
	}
	*ret = c;
	return 0;
}

/* If no server has the directory open, a killed one may have left damage that its start repairs. */
static int check_logs(const char *dir, struct diag *reterr_diag)
{
	_cleanup_str_ struct str lock = {};
	_cleanup_close_ int fd = -1;

	str_printf(&lock, "%s/lock", dir);
	fd = open(str_get(&lock), O_RDWR | O_CLOEXEC);
	if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0)
		return 0;
	for (size_t i = 0; i < ARRAY_SIZE(databases); i++) {
		_cleanup_str_ struct str path = {};

		str_printf(&path, "%s/%s", dir, databases[i]);
		if (sq_check_log(str_get(&path)) != SQ_LOG_WHOLE)
			return diag_set(reterr_diag, -EBADMSG,
					"%s is damaged: start the server, which repairs it, then "
					"repeat the backup",
					str_get(&path));
	}
	return 0;
}

static int copy_databases(struct copying *c, struct diag *reterr_diag)
{
	struct sq_conn *conns[ARRAY_SIZE(databases)] = {};
	int r = 0;

	/* Both snapshots before the first copy, so that they are of about the same time. */
	for (size_t i = 0; i < ARRAY_SIZE(databases) && r == 0; i++)
		r = open_snapshot(c->from, databases[i], &conns[i], reterr_diag);
	if (r == 0 && !conns[0])
		r = diag_set(reterr_diag, -ENOENT,
			     "%s has no " SQ_FILE ": give the --data-dir of a server", c->from);
	for (size_t i = 0; i < ARRAY_SIZE(databases) && r == 0; i++) {
		_cleanup_str_ struct str to = {}, rows = {};
		_cleanup_close_ int fd = -1;
		u64 hash, bytes;

		if (!conns[i])
			continue;
		str_printf(&to, "%s/%s", c->to, databases[i]);
		r = sq_copy_database(conns[i], str_get(&to), c->progress, reterr_diag);
		if (r == 0 && count_rows(conns[i], &rows) < 0)
			r = say_damaged(reterr_diag);
		/* A snapshot keeps the server's log from getting shorter. */
		sq_disconnect(conns[i]);
		conns[i] = NULL;
		if (r == 0)
			r = verify_copy(&rows, str_get(&to), reterr_diag);
		fd = r == 0 ? open(str_get(&to), O_RDONLY | O_CLOEXEC) : -1;
		if (r == 0 && fd < 0)
			r = failed("read", str_get(&to), reterr_diag);
		if (r == 0)
			r = hash_file(c, databases[i], fd, -1, &hash, &bytes);
		if (r == 0)
			note_file(c, databases[i], hash, bytes);
	}
	for (size_t i = 0; i < ARRAY_SIZE(databases); i++)
		sq_disconnect(conns[i]);
	return r;
}

/* ---- backup ---- */

static int write_manifest(struct copying *c, struct diag *reterr_diag)
{
	_cleanup_str_ struct str path = {};
	_cleanup_close_ int fd = -1;

	str_printf(&path, "%s/%s", c->to, MANIFEST);
	fd = open(str_get(&path), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (c->manifest.failed)
		return diag_set(reterr_diag, -ENOMEM, "out of memory");
	if (fd < 0 || io_write_all(fd, str_get(&c->manifest), c->manifest.n) < 0 || fsync(fd) < 0)
		return failed("write", str_get(&path), reterr_diag);
	return sync_path(c->to, reterr_diag);
}

static int sync_parent(const char *path, struct diag *reterr_diag)
{
	_cleanup_free_ char *parent = strdup(path);
	char *slash = parent ? strrchr(parent, '/') : NULL;

	if (slash)
		slash[slash == parent] = '\0';
	return sync_path(slash ? parent : ".", reterr_diag);
}

int sq_backup(const char *where, const char *to, const struct store_progress *progress,
	      struct diag *reterr_diag)
{
	_cleanup_str_ struct str part = {};
	struct copying c = {.from = where, .progress = progress, .owner_fd = -1};
	struct stat st;
	int r;

	if (lstat(to, &st) == 0)
		return diag_set(reterr_diag, -EEXIST, "%s exists: choose another name", to);
	r = check_logs(where, reterr_diag);
	if (r < 0)
		return r;
	str_printf(&part, "%s.part", to);
	c.to = str_get(&part);
	if (mkdir(c.to, 0700) < 0)
		return errno == EEXIST
			       ? diag_set(reterr_diag, -EEXIST,
					  "%s is left from a backup that was interrupted, or "
					  "is being made: remove it, or choose another name",
					  c.to)
			       : failed("create", c.to, reterr_diag);
	str_puts(&c.manifest, MANIFEST_HEAD);
	r = copy_databases(&c, reterr_diag);
	if (r == 0)
		r = copy_others(&c, "", 0, reterr_diag);
	if (r == 0)
		r = write_manifest(&c, reterr_diag);
	/* Some file systems know rename() only. */
	if (r == 0 && renameat2(AT_FDCWD, c.to, AT_FDCWD, to, RENAME_NOREPLACE) < 0 &&
	    (errno != EINVAL || rename(c.to, to) < 0))
		r = failed("rename to", to, reterr_diag);
	if (r == 0)
		r = sync_parent(to, reterr_diag);
	if (r < 0) {
		remove_contents(c.to);
		rmdir(c.to);
	}
	str_deinit(&c.manifest);
	return r;
}

/* ---- restore ---- */

static int read_manifest(const char *from, struct str *ret, struct diag *reterr_diag)
{
	_cleanup_str_ struct str path = {};
	_cleanup_close_ int fd = -1;
	char data[4096];
	ssize_t n;

	str_printf(&path, "%s/%s", from, MANIFEST);
	fd = open(str_get(&path), O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return diag_set(reterr_diag, -EINVAL,
				"%s is no backup: give a directory that culprit server backup made",
				from);
	while ((n = read(fd, data, sizeof(data))) > 0 && ret->n < MAX_MANIFEST_BYTES)
		str_append(ret, data, (size_t)n);
	if (n < 0 || ret->failed || !str_starts(str_get(ret), MANIFEST_HEAD))
		return diag_set(reterr_diag, -EBADMSG, "%s is damaged, or of a newer culprit",
				str_get(&path));
	return 0;
}

static bool is_safe_name(const char *name)
{
	return *name && *name != '/' && !str_starts(name, "../") && !strstr(name, "/../") &&
	       !str_ends(name, "/..") && strcmp(name, "..") != 0;
}

static int restore_file(const struct copying *c, char *line, struct diag *reterr_diag)
{
	char *size = strchr(line, ' '), *name = size ? strchr(size + 1, ' ') : NULL;
	u64 wanted_hash, wanted, hash = 0, bytes = 0;
	int r;

	if (!name)
		return diag_set(reterr_diag, -EBADMSG, "%s/" MANIFEST " is damaged", c->from);
	*size++ = '\0';
	*name++ = '\0';
	if (str_to_u64(line, 16, &wanted_hash) < 0 || str_to_u64(size, 10, &wanted) < 0 ||
	    !is_safe_name(name))
		return diag_set(reterr_diag, -EBADMSG, "%s/" MANIFEST " is damaged", c->from);
	r = copy_file(c, name, &hash, &bytes, reterr_diag);
	if (r == 0 && hash == wanted_hash && bytes == wanted)
		return 0;
	return r < 0 ? r
		     : diag_set(reterr_diag, -EBADMSG,
				"%s/%s is missing or not as it was when the backup was made: use "
				"another backup",
				c->from, name);
}

/* profiles.db comes last, so that no server finds a part of a store. */
static int restore_files(const struct copying *c, struct str *manifest, struct diag *reterr_diag)
{
	char *save = NULL, *profiles = NULL;
	int r = 0;

	for (char *line = strtok_r(manifest->data + strlen(MANIFEST_HEAD), "\n", &save);
	     line && r == 0; line = strtok_r(NULL, "\n", &save)) {
		if (str_ends(line, " " SQ_FILE))
			profiles = line;
		else
			r = restore_file(c, line, reterr_diag);
	}
	if (r == 0 && !profiles)
		r = diag_set(reterr_diag, -EBADMSG, "%s/" MANIFEST " is damaged", c->from);
	if (r == 0)
		r = restore_file(c, profiles, reterr_diag);
	return r < 0 ? r : sync_path(c->to, reterr_diag);
}

/* Locks an empty directory, which it creates if it is missing. */
static int lock_empty(const char *path, int *ret_dir, int *ret_lock, struct diag *reterr_diag)
{
	_cleanup_(dir) DIR *dir = NULL;
	struct dirent *e;

	if (mkdir(path, 0700) < 0 && errno != EEXIST)
		return failed("create", path, reterr_diag);
	dir = opendir(path);
	if (!dir)
		return failed("open", path, reterr_diag);
	while ((e = readdir(dir)))
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			return diag_set(reterr_diag, -ENOTEMPTY,
					"%s is not empty: restore into a new directory", path);
	*ret_dir = dup(dirfd(dir));
	*ret_lock = openat(dirfd(dir), "lock", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (*ret_dir < 0 || *ret_lock < 0 || flock(*ret_lock, LOCK_EX | LOCK_NB) < 0)
		return failed("lock", path, reterr_diag);
	return 0;
}

int sq_restore(const char *from, const char *where, const struct store_progress *progress,
	       struct diag *reterr_diag)
{
	_cleanup_close_ int dir = -1, lock = -1;
	_cleanup_str_ struct str manifest = {};
	struct copying c = {.from = from, .to = where, .progress = progress};
	int r = read_manifest(from, &manifest, reterr_diag);

	if (r == 0)
		r = lock_empty(where, &dir, &lock, reterr_diag);
	if (r < 0)
		return r;
	c.owner_fd = dir;
	r = give_to_owner(&c, lock, where, reterr_diag);
	if (r == 0)
		r = restore_files(&c, &manifest, reterr_diag);
	if (r < 0)
		remove_contents(where);
	return r;
}
