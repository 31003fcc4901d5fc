/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of formats, and how files are read and written.
 *
 * A file is written beside its target and renamed over it, so that a reader sees the old content
 * or the new one, never a part; what is not a regular file (a pipe, a device) is written directly.
 */
#include "format/format.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "base/str.h"
#include "format/internal.h"

#define READ_LIMIT_BYTES (4ULL << 30)

/* Order: of --help, and of who is asked first when two formats are equally likely. */
static const struct profile_format formats[] = {
	{
		.name = "svg",
		.endings = ".svg",
		.help = "the classic flame graph, with zoom and search",
		.write = svg_write,
	},
	{
		.name = "html",
		.endings = ".html .htm",
		.help = "interactive flame graph, one file that needs nothing else",
		.read = html_read,
		.write = html_write,
		.probe = html_probe,
	},
	{
		.name = "folded",
		.endings = ".folded .collapsed .txt",
		.help = "one line a stack: comm;root;...;leaf count",
		.read = folded_read,
		.write = folded_write,
		.probe = folded_probe,
	},
	{
		.name = "pprof",
		.endings = ".pb.gz .pprof .pb .prof",
		.help = "gzip-compressed protobuf with addresses, lines and inlines",
		.read = pprof_read,
		.write = pprof_write,
		.probe = pprof_probe,
	},
	{
		.name = "speedscope",
		.endings = ".speedscope.json .speedscope",
		.help = "JSON for speedscope.app",
		.read = speedscope_read,
		.write = speedscope_write,
		.probe = speedscope_probe,
	},
	{
		.name = "firefox",
		.endings = ".firefox.json",
		.help = "JSON for profiler.firefox.com",
		.read = firefox_read,
		.write = firefox_write,
		.probe = firefox_probe,
	},
	{
		.name = "perf-script",
		.endings = "",
		.help = "the text that `perf script` prints",
		.read = perf_script_read,
		.probe = perf_script_probe,
	},
	{
		.name = "perf-data",
		.endings = "",
		.help = "perf.data, the file that `perf record` writes",
		.read = perf_data_read,
		.probe = perf_data_probe,
	},
	{
		.name = "chrome",
		.endings = ".cpuprofile",
		.help = "a CPU profile of Node.js or Chrome, or a trace of Chrome with one",
		.read = chrome_read,
		.probe = chrome_probe,
	},
	{
		.name = "austin",
		.endings = ".austin .mojo",
		.help = "text or binary output of Austin, a profiler for Python",
		.read = austin_read,
		.probe = austin_probe,
	},
	{
		.name = "gperftools",
		.endings = "",
		.help = "CPU, heap and contention profiles of gperftools, and of Go with debug=1",
		.read = gperftools_read,
		.probe = gperftools_probe,
	},
	{
		.name = "jfr",
		.endings = "",
		.help = "a recording of JDK Flight Recorder: its execution samples",
		.read = jfr_read,
		.probe = jfr_probe,
	},
};

const struct profile_format *profile_format_at(size_t i)
{
	return i < ARRAY_SIZE(formats) ? &formats[i] : NULL;
}

const struct profile_format *profile_format_by_name(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(formats); i++)
		if (!strcmp(formats[i].name, name))
			return &formats[i];
	return NULL;
}

/* The length of the longest ending of the list that the first n bytes of path have, or 0. */
static size_t ending_length(const char *path, size_t n, const char *endings)
{
	size_t best = 0;

	while (*endings) {
		size_t len = strcspn(endings, " ");

		if (len > best && len < n && !memcmp(path + n - len, endings, len))
			best = len;
		endings += len;
		endings += strspn(endings, " ");
	}
	return best;
}

static const struct profile_format *by_ending(const char *path, size_t n)
{
	const struct profile_format *format = NULL;
	size_t best = 0;

	for (size_t i = 0; i < ARRAY_SIZE(formats); i++) {
		size_t len = ending_length(path, n, formats[i].endings);

		if (len > best) {
			best = len;
			format = &formats[i];
		}
	}
	return format;
}

const struct profile_format *profile_format_by_path(const char *path)
{
	const char *base = profile_basename(path);
	size_t n = strlen(base);
	const struct profile_format *format = by_ending(base, n);

	/* `x.folded.gz` is folded text; the writer compresses it because of the .gz. */
	if (!format && str_ends(base, ".gz"))
		format = by_ending(base, n - 3);
	return format;
}

/* "folded, pprof, svg": those that can do it. */
static const char *format_names(bool writers, struct str *s)
{
	str_clear(s);
	for (size_t i = 0; i < ARRAY_SIZE(formats); i++)
		if (writers ? formats[i].write != NULL : formats[i].read != NULL)
			str_printf(s, "%s%s", s->n ? ", " : "", formats[i].name);
	return str_get(s);
}

/* ---- reading ---- */

static int read_fd(int fd, const char *path, struct str *out, struct diag *reterr_diag)
{
	char chunk[64 << 10];

	for (;;) {
		ssize_t n = read(fd, chunk, sizeof(chunk));

		if (n == 0)
			return 0;
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return diag_set(reterr_diag, -errno, "%s: cannot read: %s", path,
					strerror(errno));
		if (out->n + (size_t)n > READ_LIMIT_BYTES)
			return diag_set(reterr_diag, -EFBIG, "%s: more than %llu GiB", path,
					READ_LIMIT_BYTES >> 30);
		if (str_append(out, chunk, (size_t)n) < 0)
			return diag_set(reterr_diag, -ENOMEM, "%s: out of memory", path);
	}
}

static int read_whole(const char *path, struct str *out, struct diag *reterr_diag)
{
	_cleanup_close_ int fd = -1;
	struct stat st;

	if (!strcmp(path, "-"))
		return read_fd(STDIN_FILENO, "standard input", out, reterr_diag);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return diag_set(reterr_diag, -errno, "%s: cannot open: %s", path, strerror(errno));
	if (fstat(fd, &st) == 0 && S_ISDIR(st.st_mode))
		return diag_set(reterr_diag, -EISDIR, "%s: is a directory, not a profile", path);
	return read_fd(fd, path, out, reterr_diag);
}

static const struct profile_format *by_content(const u8 *data, size_t n)
{
	const struct profile_format *format = NULL;
	int best = 0;

	for (size_t i = 0; i < ARRAY_SIZE(formats); i++) {
		int score = formats[i].probe ? formats[i].probe(data, n) : 0;

		if (score > best) {
			best = score;
			format = &formats[i];
		}
	}
	return format;
}

static int reader_of(const char *path, const char *name, const u8 *data, size_t n,
		     const struct profile_format **ret, struct diag *reterr_diag)
{
	const struct profile_format *format;
	_cleanup_str_ struct str names = {};

	if (name) {
		format = profile_format_by_name(name);
		if (!format || !format->read)
			return diag_set(reterr_diag, -EINVAL,
					"cannot read format '%s'; readable are: %s", name,
					format_names(false, &names));
	} else {
		format = by_content(data, n);
		if (!n)
			return diag_set(reterr_diag, -EBADMSG, "%s: is empty", path);
		if (!format)
			return diag_set(reterr_diag, -EBADMSG,
					"%s: not a profile in a known format (%s)", path,
					format_names(false, &names));
	}
	*ret = format;
	return 0;
}

int profile_read_bytes(const char *name, const u8 *data, size_t n, const char *format_name,
		       u64 limit, struct profile **ret, struct diag *reterr_diag)
{
	const struct profile_format *format = NULL;
	_cleanup_str_ struct str plain = {};
	bool packed = gzip_is(data, n) || zstd_is(data, n);
	struct diag inner = {};
	int r = 0;

	if (gzip_is(data, n))
		r = gzip_inflate(data, n, limit, &plain, &inner);
	else if (zstd_is(data, n))
		r = zstd_inflate(data, n, limit, &plain, &inner);
	else if (n > limit)
		r = diag_set(&inner, -EFBIG, "more than %llu MiB", limit >> 20);
	if (r < 0)
		return diag_set(reterr_diag, r, "%s: %s", name, inner.text);
	if (packed) {
		data = (const u8 *)str_get(&plain);
		n = plain.n;
	}
	r = reader_of(name, format_name, data, n, &format, reterr_diag);
	if (r < 0)
		return r;
	r = format->read(data, n, ret, &inner);
	/* Offsets in the message are those of the bytes that the reader was given. */
	if (r < 0)
		return diag_set(reterr_diag, r, "%s%s: %s", name, packed ? ", decompressed" : "",
				inner.text[0] ? inner.text : strerror(-r));
	return inner.text[0] ? diag_set(reterr_diag, 0, "%s: %s", name, inner.text) : 0;
}

int profile_read_file(const char *path, const char *format_name, struct profile **ret,
		      struct diag *reterr_diag)
{
	_cleanup_str_ struct str raw = {};
	int r = read_whole(path, &raw, reterr_diag);

	if (r < 0)
		return r;
	return profile_read_bytes(path, (const u8 *)str_get(&raw), raw.n, format_name,
				  GZIP_LIMIT_BYTES, ret, reterr_diag);
}

/* ---- writing ---- */

/* True when the path is there and is something that must be written directly. */
static bool is_direct(const char *path)
{
	struct stat st;

	return !strcmp(path, "-") || (stat(path, &st) == 0 && !S_ISREG(st.st_mode));
}

/*
 * The file behind symbolic links, so that the rename replaces the file and not the link. Of a link
 * to what is not there yet one step is followed.
 */
static void resolve_target(const char *path, char ret_target[PATH_MAX])
{
	char link[PATH_MAX];
	ssize_t n;
	int dir_n, r;

	if (realpath(path, ret_target))
		return;
	n = readlink(path, link, sizeof(link) - 1);
	if (n < 0) {
		snprintf(ret_target, PATH_MAX, "%s", path);
		return;
	}
	link[n] = '\0';
	dir_n = link[0] == '/' || !strrchr(path, '/') ? 0 : (int)(strrchr(path, '/') + 1 - path);
	r = snprintf(ret_target, PATH_MAX, "%.*s%s", dir_n, path, link);
	if (r < 0 || r >= PATH_MAX)
		snprintf(ret_target, PATH_MAX, "%s", path);
}

static int open_temporary(const char *target, char ret_name[PATH_MAX], struct diag *reterr_diag)
{
	int fd, n = snprintf(ret_name, PATH_MAX, "%s.XXXXXX", target);

	if (n < 0 || n >= PATH_MAX)
		return diag_set(reterr_diag, -ENAMETOOLONG, "cannot write %s: name too long",
				target);
	fd = mkostemp(ret_name, O_CLOEXEC);
	if (fd < 0)
		return diag_set(reterr_diag, -errno, "cannot write %s: %s", target,
				strerror(errno));
	return fd;
}

static int check_writable(const char *path, struct diag *reterr_diag)
{
	char target[PATH_MAX], name[PATH_MAX];
	_cleanup_close_ int fd = -1;
	struct stat st;

	if (!strcmp(path, "-"))
		return 0;
	if (stat(path, &st) == 0) {
		if (S_ISDIR(st.st_mode))
			return diag_set(reterr_diag, -EISDIR, "cannot write %s: it is a directory",
					path);
		if (access(path, W_OK) < 0)
			return diag_set(reterr_diag, -errno, "cannot write %s: %s", path,
					strerror(errno));
		if (!S_ISREG(st.st_mode))
			return 0;
	}
	resolve_target(path, target);
	fd = open_temporary(target, name, reterr_diag);
	if (fd < 0)
		return fd;
	(void)unlink(name);
	return 0;
}

int profile_write_check(const char *path, const char *format_name,
			const struct profile_format **ret, struct diag *reterr_diag)
{
	const struct profile_format *format;
	_cleanup_str_ struct str names = {};
	int r;

	if (format_name)
		format = profile_format_by_name(format_name);
	else if (!strcmp(path, "-"))
		format = profile_format_by_name("folded");
	else
		format = profile_format_by_path(path);
	if (!format && format_name)
		return diag_set(reterr_diag, -EINVAL, "unknown format '%s'; there are: %s",
				format_name, format_names(true, &names));
	if (!format)
		return diag_set(reterr_diag, -EINVAL,
				"%s: the ending names no format; use --format with one of: %s",
				path, format_names(true, &names));
	if (!format->write)
		return diag_set(reterr_diag, -EINVAL,
				"format '%s' can be read but not written; writable are: %s",
				format->name, format_names(true, &names));
	r = check_writable(path, reterr_diag);
	if (r == 0)
		*ret = format;
	return r;
}

static int write_all(int fd, const char *path, const struct str *data, struct diag *reterr_diag)
{
	int r = io_write_all(fd, str_get(data), data->n);

	return r < 0 ? diag_set(reterr_diag, r, "cannot write %s: %s", path, strerror(-r)) : 0;
}

static int write_direct(const char *path, const struct str *data, struct diag *reterr_diag)
{
	_cleanup_close_ int fd = -1;

	if (!strcmp(path, "-"))
		return write_all(STDOUT_FILENO, "standard output", data, reterr_diag);
	fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
	if (fd < 0)
		return diag_set(reterr_diag, -errno, "cannot write %s: %s", path, strerror(errno));
	return write_all(fd, path, data, reterr_diag);
}

/* An existing file keeps its mode; a new one gets what open(2) would have given it. */
static mode_t mode_for(const char *target)
{
	struct stat st;
	mode_t mask;

	if (stat(target, &st) == 0)
		return st.st_mode & 07777;
	mask = umask(0);
	umask(mask);
	return 0666 & ~mask;
}

static int write_renamed(const char *path, const struct str *data, struct diag *reterr_diag)
{
	char target[PATH_MAX], name[PATH_MAX];
	int fd, r;

	resolve_target(path, target);
	fd = open_temporary(target, name, reterr_diag);
	if (fd < 0)
		return fd;
	r = write_all(fd, path, data, reterr_diag);
	if (r == 0 && fchmod(fd, mode_for(target)) < 0)
		r = diag_set(reterr_diag, -errno, "cannot write %s: %s", path, strerror(errno));
	if (close(fd) < 0 && r == 0)
		r = diag_set(reterr_diag, -errno, "cannot write %s: %s", path, strerror(errno));
	if (r == 0 && rename(name, target) < 0)
		r = diag_set(reterr_diag, -errno, "cannot write %s: %s", path, strerror(errno));
	if (r < 0)
		(void)unlink(name);
	return r;
}

int profile_write_file(const struct profile *p, const char *path, const struct profile_format *f,
		       const struct profile_write_options *o, struct diag *reterr_diag)
{
	static const struct profile_write_options none = {};
	_cleanup_str_ struct str out = {}, packed = {};
	struct diag inner = {};
	struct str *data = &out;
	int r;

	r = f->write(p, o ? o : &none, &out, &inner);
	if (r == 0 && out.failed)
		r = -ENOMEM;
	if (r < 0)
		return diag_set(reterr_diag, r, "cannot write %s as %s: %s", path, f->name,
				inner.text[0] ? inner.text : strerror(-r));
	if (str_ends(path, ".gz") && !gzip_is((const u8 *)str_get(&out), out.n)) {
		if (gzip_deflate(str_get(&out), out.n, &packed) < 0)
			return diag_set(reterr_diag, -ENOMEM, "cannot write %s: out of memory",
					path);
		data = &packed;
	}
	return is_direct(path) ? write_direct(path, data, reterr_diag)
			       : write_renamed(path, data, reterr_diag);
}
