/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes a file per profile. The last part of the path is a strftime pattern in local time; its
 * extension selects the format. If two profiles have the same name, -1, -2 ... is inserted after
 * the last conversion. Files are written atomically (profile_write_file()); if there are more than
 * keep_files of the pattern, the oldest are deleted. A pattern without a conversion is a single
 * file, which is replaced each time.
 */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "agent/export/export_private.h"
#include "base/log.h"
#include "format/format.h"

#define MAX_SAME_NAME 1000

struct files {
	char *dir; /* owned; the directory */
	/* owned; the name up to the end of the last conversion; "" if there is none */
	char *stem;
	char *tail; /* owned; the rest of the name */
	const struct profile_format *format;
};

static void close_files(struct destination *d)
{
	struct files *f = d->private;

	free(f->dir);
	free(f->stem);
	free(f->tail);
	free(f);
	d->private = NULL;
}

/* Returns the length of the name up to the end of its last conversion; 0: there is none. */
static size_t stem_length(const char *name)
{
	size_t n = 0;

	for (size_t i = 0; name[i]; i++) {
		if (name[i] != '%')
			continue;
		i++;
		/* Modifiers of a conversion, as in %Ey. */
		if (name[i] == 'E' || name[i] == 'O')
			i++;
		if (!name[i])
			break;
		if (name[i] != '%')
			n = i + 1;
	}
	return n;
}

static int open_files(struct destination *d, struct diag *reterr_diag)
{
	const char *slash = strrchr(d->rest, '/'), *name = slash ? slash + 1 : d->rest;
	struct files *f = calloc(1, sizeof(*f));
	size_t n = stem_length(name);

	if (!f)
		return -ENOMEM;
	d->private = f;
	f->dir = !slash		    ? strdup(".")
		 : slash == d->rest ? strdup("/")
				    : strndup(d->rest, (size_t)(slash - d->rest));
	f->stem = strndup(name, n);
	f->tail = strdup(name + n);
	if (!f->dir || !f->stem || !f->tail)
		return -ENOMEM;
	if (!*name)
		return diag_set(reterr_diag, -EINVAL, "%s: not of the form file:PATTERN", d->o.url);
	if (strchr(f->dir, '%'))
		return diag_set(reterr_diag, -EINVAL,
				"%s: only the file name may contain a time, not the folder",
				d->o.url);
	return profile_write_check(d->rest, NULL, &f->format, reterr_diag);
}

/* ---- old files ---- */

struct old {
	char *name; /* owned */
	struct timespec changed;
};

static int by_age(const void *a_, const void *b_)
{
	const struct old *a = a_, *b = b_;

	if (a->changed.tv_sec != b->changed.tv_sec)
		return a->changed.tv_sec < b->changed.tv_sec ? -1 : 1;
	if (a->changed.tv_nsec != b->changed.tv_nsec)
		return a->changed.tv_nsec < b->changed.tv_nsec ? -1 : 1;
	return strcmp(a->name, b->name);
}

/* Whether the pattern made this name. */
static bool is_ours(const struct files *f, const char *name)
{
	struct tm t = {};
	const char *rest = strptime(name, f->stem, &t);

	if (!rest)
		return false;
	if (!strcmp(rest, f->tail))
		return true;
	if (*rest++ != '-' || !isdigit((u8)*rest))
		return false;
	while (isdigit((u8)*rest))
		rest++;
	return !strcmp(rest, f->tail);
}

static void remove_old(const struct files *f, u32 keep)
{
	vec(struct old) all = {};
	DIR *dir = opendir(f->dir);
	struct dirent *e;

	while (dir && (e = readdir(dir))) {
		struct old o = {};
		struct stat st;

		if (!is_ours(f, e->d_name) ||
		    fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
		    !S_ISREG(st.st_mode))
			continue;
		o.changed = st.st_mtim;
		o.name = strdup(e->d_name);
		if (!o.name || vec_push(&all, o) < 0)
			free(o.name);
	}
	if (all.n > keep)
		qsort(all.data, all.n, sizeof(*all.data), by_age);
	for (size_t i = 0; i + keep < all.n; i++)
		if (unlinkat(dirfd(dir), all.data[i].name, 0) < 0)
			log_warn("cannot remove %s/%s: %s", f->dir, all.data[i].name,
				 strerror(errno));
	vec_foreach (&all, o)
		free(o->name);
	vec_deinit(&all);
	if (dir)
		closedir(dir);
}

/* ---- a new file ---- */

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
/* The pattern is the user's own: at worst it gives odd file names. */
static int format_time(const char *pattern, const struct tm *t, char *out, size_t size)
{
	out[0] = 0;
	return *pattern && !strftime(out, size, pattern, t) ? -ENAMETOOLONG : 0;
}
#pragma GCC diagnostic pop

static int make_path(const struct files *f, const struct profile *p, struct str *ret)
{
	time_t seconds = p->time_ns ? (time_t)(p->time_ns / 1000000000) : time(NULL);
	char stem[NAME_MAX + 1], tail[NAME_MAX + 1];
	struct tm t;

	if (!localtime_r(&seconds, &t))
		return -ERANGE;
	/* "%%" is the only conversion that the tail can contain. */
	if (format_time(f->stem, &t, stem, sizeof(stem)) < 0 ||
	    format_time(f->tail, &t, tail, sizeof(tail)) < 0)
		return -ENAMETOOLONG;
	for (u32 i = 0; i < MAX_SAME_NAME; i++) {
		str_clear(ret);
		str_printf(ret, "%s/%s", f->dir, stem);
		if (i)
			str_printf(ret, "-%u", i);
		str_puts(ret, tail);
		if (ret->failed)
			return -ENOMEM;
		if (!*f->stem || access(str_get(ret), F_OK) < 0)
			return 0;
	}
	return -EEXIST;
}

static int write_profile(struct destination *d, const struct profile *p, struct diag *reterr_diag)
{
	const struct profile_write_options how = {.tree = {.roots = d->o.roots}};
	const struct files *f = d->private;
	_cleanup_str_ struct str path = {};
	int r = make_path(f, p, &path);

	if (r < 0)
		return diag_set(reterr_diag, r, "no name for a file of %s: %s", d->rest,
				strerror(-r));
	r = profile_write_file(p, str_get(&path), f->format, &how, reterr_diag);
	if (r == 0 && *f->stem)
		remove_old(f, d->o.keep_files);
	return r;
}

const struct export_ops export_file = {
	.scheme = "file",
	.open = open_files,
	.close = close_files,
	.take = write_profile,
};
