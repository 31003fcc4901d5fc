/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/export/spool.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "base/log.h"
#include "base/map.h"
#include "base/str.h"

#define SPOOL_MAGIC 0x31306c6f6f7073ULL /* "spool01" */
#define ENDING ".spool"
#define NAME_BYTES 32

/* In host byte order: spool files stay on one machine. */
struct spool_header {
	u64 magic;
	u64 n;	  /* bytes after the header */
	u64 hash; /* of these bytes and the two numbers */
	u64 samples, lost;
};
_Static_assert(sizeof(struct spool_header) == 40, "written as it is");

static u64 hash_item(const struct spool_item *item)
{
	u64 parts[3] = {hash_bytes(item->data, item->n), item->samples, item->lost};

	return hash_bytes(parts, sizeof(parts));
}

static const char *file_name(u64 number, const char *ending, char name[NAME_BYTES])
{
	snprintf(name, NAME_BYTES, "%016" PRIx64 "%s", (uint64_t)number, ending);
	return name;
}

static void append_item(struct spool *s, struct spool_item *item)
{
	*s->last = item;
	s->last = &item->next;
	s->bytes += item->n;
	s->n_items++;
}

/* ---- files ---- */

static int write_item(struct spool *s, const struct spool_item *item)
{
	struct spool_header h = {.magic = SPOOL_MAGIC,
				 .n = item->n,
				 .hash = hash_item(item),
				 .samples = item->samples,
				 .lost = item->lost};
	char part[NAME_BYTES], name[NAME_BYTES];
	_cleanup_close_ int fd =
		openat(s->dir, file_name(item->number, ".part", part),
		       O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	int r;

	if (fd < 0)
		return -errno;
	r = io_write_all(fd, &h, sizeof(h));
	if (r == 0)
		r = io_write_all(fd, item->data, item->n);
	if (r == 0 && renameat(s->dir, part, s->dir, file_name(item->number, ENDING, name)) < 0)
		r = -errno;
	if (r < 0)
		unlinkat(s->dir, part, 0);
	return r;
}

static int read_all(int fd, void *data, size_t n)
{
	u8 *at = data;

	while (n) {
		ssize_t got = read(fd, at, n);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return got < 0 ? -errno : -EBADMSG;
		at += got;
		n -= (size_t)got;
	}
	return 0;
}

static int damaged(int fd, u64 offset, const char *text)
{
	log_damage_at(fd, offset, text);
	return -EBADMSG;
}

/* The header, if it and the file's size fit together. */
static int read_header(const struct spool *s, u64 number, struct spool_header *ret, int *ret_fd)
{
	char name[NAME_BYTES];
	_cleanup_close_ int fd = openat(s->dir, file_name(number, ENDING, name),
					O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	struct spool_header h;
	struct stat st;
	int r;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	r = S_ISREG(st.st_mode) ? read_all(fd, &h, sizeof(h)) : -EBADMSG;
	if (r == -EBADMSG)
		return damaged(fd, (u64)st.st_size, "no whole header");
	if (r < 0)
		return r;
	if (h.magic != SPOOL_MAGIC)
		return damaged(fd, 0, "not a file of a spool");
	if ((u64)st.st_size != h.n + sizeof(h))
		return damaged(fd, (u64)st.st_size, "data of the wrong size");
	if (h.n > s->max_bytes)
		return -EBADMSG;
	*ret = h;
	if (ret_fd)
		*ret_fd = take_fd(&fd);
	return 0;
}

int spool_load(const struct spool *s, struct spool_item *item)
{
	_cleanup_close_ int fd = -1;
	struct spool_header h;
	int r;

	if (item->data)
		return 0;
	r = read_header(s, item->number, &h, &fd);
	if (r < 0)
		return r;
	if (h.n != item->n)
		return -EBADMSG;
	item->data = malloc(item->n + 1);
	if (!item->data)
		return -ENOMEM;
	r = read_all(fd, item->data, item->n);
	if (r == 0 && hash_item(item) != h.hash)
		r = damaged(fd, sizeof(h), "data with a wrong checksum");
	if (r < 0) {
		free(item->data);
		item->data = NULL;
	}
	return r;
}

static int save_item(struct spool *s, struct spool_item *item)
{
	int r;

	if (item->in_file)
		return 0;
	r = write_item(s, item);
	if (r < 0)
		return r;
	item->in_file = true;
	free(item->data);
	item->data = NULL;
	return 0;
}

int spool_save(struct spool *s)
{
	int r = 0;

	if (s->dir < 0)
		return -ENOTDIR;
	for (struct spool_item *i = s->first; i && r == 0; i = i->next)
		r = save_item(s, i);
	return r;
}

/* ---- files of the last run ---- */

static int by_number(const void *a_, const void *b_)
{
	u64 a = *(const u64 *)a_, b = *(const u64 *)b_;

	return a < b ? -1 : a > b;
}

static int take_up(struct spool *s, u64 number)
{
	struct spool_item *item;
	struct spool_header h;
	char name[NAME_BYTES];
	int r = read_header(s, number, &h, NULL);

	s->next_number = MAX(s->next_number, number + 1);
	if (r < 0) {
		s->n_damaged++;
		unlinkat(s->dir, file_name(number, ENDING, name), 0);
		return 0;
	}
	item = calloc(1, sizeof(*item));
	if (!item)
		return -ENOMEM;
	*item = (struct spool_item){
		.number = number, .samples = h.samples, .lost = h.lost, .n = h.n, .in_file = true};
	append_item(s, item);
	return 0;
}

static int list_files(struct spool *s, u64 **ret_numbers, size_t *ret_n)
{
	int fd = openat(s->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	u64 *numbers = NULL;
	size_t n = 0, cap = 0;
	struct dirent *e;
	void *p;

	if (!dir) {
		if (fd >= 0)
			close(fd);
		return -errno;
	}
	while ((e = readdir(dir))) {
		char name[NAME_BYTES];
		u64 number = strtoull(e->d_name, NULL, 16);

		if (str_ends(e->d_name, ".part"))
			unlinkat(s->dir, e->d_name, 0);
		if (strcmp(e->d_name, file_name(number, ENDING, name)) != 0)
			continue;
		if (n == cap) {
			cap = cap * 2 + 64;
			p = reallocarray(numbers, cap, sizeof(*numbers));
			if (!p)
				break;
			numbers = p;
		}
		numbers[n++] = number;
	}
	closedir(dir);
	if (n)
		qsort(numbers, n, sizeof(*numbers), by_number);
	*ret_numbers = numbers;
	*ret_n = n;
	return 0;
}

static int open_directory(struct spool *s, const char *path, struct diag *reterr_diag)
{
	_cleanup_free_ u64 *numbers = NULL;
	size_t n = 0;
	int r;

	if (mkdir(path, 0700) < 0 && errno != EEXIST)
		return diag_set(reterr_diag, -errno, "cannot create the spool directory %s: %s",
				path, strerror(errno));
	s->dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (s->dir < 0)
		return diag_set(reterr_diag, -errno, "cannot open the spool directory %s: %s", path,
				strerror(errno));
	s->lock = openat(s->dir, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (s->lock < 0)
		return diag_set(reterr_diag, -errno, "cannot write to the spool directory %s: %s",
				path, strerror(errno));
	if (flock(s->lock, LOCK_EX | LOCK_NB) < 0)
		return diag_set(reterr_diag, -EBUSY,
				"another process uses the spool directory %s: choose another one",
				path);
	r = list_files(s, &numbers, &n);
	for (size_t i = 0; i < n && r == 0; i++)
		r = take_up(s, numbers[i]);
	return r < 0 ? diag_set(reterr_diag, r, "cannot read the spool directory %s: %s", path,
				strerror(-r))
		     : 0;
}

int spool_init(struct spool *s, const char *path, u64 max_bytes, struct diag *reterr_diag)
{
	*s = (struct spool){.dir = -1, .lock = -1, .max_bytes = max_bytes};
	s->last = &s->first;
	return path ? open_directory(s, path, reterr_diag) : 0;
}

void spool_deinit(struct spool *s)
{
	while (s->first) {
		struct spool_item *item = s->first;

		s->first = item->next;
		free(item->data);
		free(item);
	}
	if (s->dir >= 0)
		close(s->dir);
	if (s->lock >= 0)
		close(s->lock);
	*s = (struct spool){.dir = -1, .lock = -1};
}

/* ---- items ---- */

int spool_push(struct spool *s, u8 *data, size_t n, u64 samples, u64 lost)
{
	struct spool_item *item = n <= s->max_bytes ? calloc(1, sizeof(*item)) : NULL;

	if (!item) {
		free(data);
		return n > s->max_bytes ? -E2BIG : -ENOMEM;
	}
	*item = (struct spool_item){
		.number = s->next_number++, .samples = samples, .lost = lost, .n = n, .data = data};
	append_item(s, item);
	return 0;
}

bool spool_is_over(const struct spool *s)
{
	return s->bytes > s->max_bytes;
}

struct spool_item *spool_take(struct spool *s)
{
	struct spool_item *item = s->first;

	if (!item)
		return NULL;
	s->first = item->next;
	if (!s->first)
		s->last = &s->first;
	item->next = NULL;
	s->n_items--;
	return item;
}

void spool_put_back(struct spool *s, struct spool_item *item)
{
	if (item->in_file) {
		free(item->data);
		item->data = NULL;
	}
	item->next = s->first;
	s->first = item;
	if (!item->next)
		s->last = &item->next;
	s->n_items++;
}

void spool_done(struct spool *s, struct spool_item *item)
{
	char name[NAME_BYTES];

	s->bytes -= item->n;
	if (item->in_file)
		unlinkat(s->dir, file_name(item->number, ENDING, name), 0);
	free(item->data);
	free(item);
}
