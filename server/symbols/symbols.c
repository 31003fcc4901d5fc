/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of build-ids, and the files on disk.
 *
 * 1. A file under usr/lib/debug is complete and was checked: a rename put it there.
 * 2. `bytes` is the size of all entries' files. The least recently used file is removed first.
 * 3. Only the naming thread reads files, without the lock. A file that is removed meanwhile stays
 *    readable through its descriptor.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "server/symbols/internal.h"

#define MAX_ENTRIES 8192
#define MAX_NAMELESS (1u << 20)

static void entry_free(struct symstore_entry *e)
{
	map_deinit(&e->nameless);
	free(e);
}

u64 symstore_max_file(const struct symstore *s)
{
	return s->o.max_bytes / 4;
}

/* ---- entries; all under the lock ---- */

static u64 key_of(const char *build_id)
{
	return hash_bytes(build_id, strlen(build_id)) >> 1; /* a map cannot have the largest keys */
}

struct symstore_entry *symstore_find(struct symstore *s, const char *build_id)
{
	u64 *known = map_get(&s->by_id, key_of(build_id));
	struct symstore_entry *e = known ? (struct symstore_entry *)*known : NULL;

	return e && !strcmp(e->file.build_id, build_id) ? e : NULL;
}

void symstore_set_nameless(struct symstore *s, struct symstore_entry *e, struct map *take)
{
	s->n_nameless -= e->nameless.n;
	map_deinit(&e->nameless);
	if (s->n_nameless + take->n > MAX_NAMELESS)
		map_deinit(take); /* the next naming looks these addresses up again */
	e->nameless = *take;
	*take = (struct map){};
	s->n_nameless += e->nameless.n;
}

/* Removes the least recently used entry without a file, here or in the store. */
static void forget_one(struct symstore *s)
{
	struct symstore_entry *oldest = NULL;

	map_foreach (&s->by_id, slot) {
		struct symstore_entry *e = (struct symstore_entry *)slot->value;

		if (!e->file.bytes && !e->shared.file && !e->unname &&
		    (!oldest || e->used_ms < oldest->used_ms))
			oldest = e;
	}
	if (oldest) {
		symstore_set_nameless(s, oldest, &(struct map){});
		map_del(&s->by_id, key_of(oldest->file.build_id), NULL);
		entry_free(oldest);
	}
}

struct symstore_entry *symstore_entry_of(struct symstore *s, const char *build_id)
{
	struct symstore_entry *e = symstore_find(s, build_id);

	if (e)
		return e;
	/* Another build-id with this hash has the entry. */
	if (map_get(&s->by_id, key_of(build_id)))
		return NULL;
	if (s->by_id.n >= MAX_ENTRIES)
		forget_one(s);
	e = calloc(1, sizeof(*e));
	if (!e || map_put(&s->by_id, key_of(build_id), (u64)e) < 0) {
		free(e);
		return NULL;
	}
	snprintf(e->file.build_id, sizeof(e->file.build_id), "%s", build_id);
	return e;
}

void symstore_drop_file(struct symstore *s, struct symstore_entry *e)
{
	char path[256];

	symstore_path(e->file.build_id, path);
	if (unlinkat(s->dir_fd, path, 0) < 0 && errno != ENOENT)
		log_warn("symbols: cannot remove %s: %s", path, strerror(errno));
	s->bytes -= e->file.bytes;
	s->n_files--;
	e->file.bytes = 0;
	e->file.has = "";
	e->rank = 0;
}

/* Removes files until the rest is within the limits; `keep` is new and stays. */
static void enforce_limits(struct symstore *s, const struct symstore_entry *keep)
{
	while (s->bytes > s->o.max_bytes || s->n_files > SYMSTORE_MAX_FILES) {
		struct symstore_entry *oldest = NULL;

		map_foreach (&s->by_id, slot) {
			struct symstore_entry *e = (struct symstore_entry *)slot->value;

			if (e->file.bytes && e != keep && (!oldest || e->used_ms < oldest->used_ms))
				oldest = e;
		}
		if (!oldest)
			return;
		log_info("symbols: removed %s to stay within %llu MiB", oldest->file.build_id,
			 s->o.max_bytes >> 20);
		symstore_drop_file(s, oldest);
		if (!oldest->shared.file)
			snprintf(oldest->file.note, sizeof(oldest->file.note),
				 "removed to make room");
	}
}

static int make_folders(struct symstore *s, const char *build_id)
{
	char path[256];

	snprintf(path, sizeof(path), "usr/lib/debug/.build-id/%.2s", build_id);
	return mkdirat(s->dir_fd, path, 0700) < 0 && errno != EEXIST ? -errno : 0;
}

static int move_in(struct symstore *s, const char *build_id, const char *from)
{
	char path[256];
	int r;

	symstore_path(build_id, path);
	r = make_folders(s, build_id);
	if (r == 0 && renameat(s->dir_fd, from, s->dir_fd, path) < 0)
		r = -errno;
	return r;
}

/*
 * Asks for the dwz file that the file shares with others: without the dwz file names would lack
 * parts.
 */
static void want_alt(struct symstore *s, const struct symstore_entry *e)
{
	struct symstore_entry *alt =
		symstore_is_build_id(e->alt) ? symstore_entry_of(s, e->alt) : NULL;

	if (alt && !alt->file.bytes) {
		alt->wanted = true;
		alt->used_ms = clock_epoch_ms();
	}
}

void symstore_stamp(int fd, u64 changed_ms)
{
	struct timespec t = {.tv_sec = (time_t)(changed_ms / 1000),
			     .tv_nsec = (long)(changed_ms % 1000) * 1000000};

	/* Without it, the next server fetches the file again. */
	(void)futimens(fd, (const struct timespec[]){t, t});
}

int symstore_keep(struct symstore *s, const char *build_id, const char *from, int fd,
		  const struct symstore_kind *k, bool replace, const struct symstore_shared *shared,
		  struct diag *reterr_diag)
{
	struct symstore_entry *e;
	struct stat st;
	int r;

	if (shared)
		symstore_stamp(fd, shared->changed_ms);
	/* Flush before acknowledging the file; without the lock, because a flush may take long. */
	r = fstat(fd, &st) < 0 || fsync(fd) < 0 ? -errno : 0;

	pthread_mutex_lock(&s->lock);
	e = symstore_entry_of(s, build_id);
	if (r == 0 && !e)
		r = -ENOMEM;
	if (r == 0 && (shared ? e->shared.changed_ms > shared->changed_ms
			      : e->file.bytes && e->rank >= k->rank && !replace)) {
		e->wanted = true;
		pthread_cond_broadcast(&s->wake);
		pthread_mutex_unlock(&s->lock);
		return 0;
	}
	if (r == 0)
		r = move_in(s, build_id, from);
	if (r == 0) {
		s->bytes += (u64)st.st_size - e->file.bytes;
		s->n_files += !e->file.bytes;
		e->file.bytes = (u64)st.st_size;
		e->file.stored_ms = e->used_ms = clock_epoch_ms();
		if (shared) {
			e->file.stored_ms = shared->changed_ms;
			e->shared = *shared;
		}
		e->file.has = k->has;
		e->file.note[0] = e->damage[0] = '\0';
		e->rank = k->rank;
		e->version++;
		memcpy(e->alt, k->alt, sizeof(e->alt));
		e->wanted = true;
		e->unname |= replace;
		e->next_ms = 0;
		symstore_set_nameless(s, e, &(struct map){});
		enforce_limits(s, e);
		want_alt(s, e);
		pthread_cond_broadcast(&s->wake);
	}
	pthread_mutex_unlock(&s->lock);
	return r < 0 ? diag_set(reterr_diag, r, "cannot keep symbols: %s", strerror(-r)) : 1;
}

int symstore_remove(struct symstore *s, const char *build_id, const struct symstore_who *who,
		    struct diag *reterr_diag)
{
	struct symstore_entry *e;
	int r = s->is_shared ? symstore_share_removal(s, build_id, who, reterr_diag) : -ENOENT;

	if (s->is_shared && r < 0)
		return r;
	pthread_mutex_lock(&s->lock);
	e = symstore_find(s, build_id);
	if (e && (e->file.bytes || s->is_shared)) {
		if (e->file.bytes)
			symstore_drop_file(s, e);
		e->version++;
		e->unname = true;
		e->next_ms = 0;
		snprintf(e->file.note, sizeof(e->file.note), "removed by an admin");
		symstore_set_nameless(s, e, &(struct map){});
		pthread_cond_broadcast(&s->wake);
		r = 0;
	}
	pthread_mutex_unlock(&s->lock);
	return r;
}

/* ---- unnamed frames ---- */

void symstore_want(struct symstore *s, const char *build_id, const char *path)
{
	struct symstore_entry *e;

	if (!symstore_is_build_id(build_id))
		return;
	e = symstore_entry_of(s, build_id);
	if (!e)
		return;
	e->wanted = true;
	e->used_ms = clock_epoch_ms();
	if (!e->file.path[0])
		snprintf(e->file.path, sizeof(e->file.path), "%s", path);
}

void symstore_note(struct symstore *s, const struct profile *p)
{
	_cleanup_free_ u8 *nameless = calloc(p->mappings.n + 1, 1);
	bool any = false;

	if (!nameless)
		return;
	for (size_t i = 0; i < p->frames.n; i++) {
		const struct profile_frame *f = &p->frames.data[i];

		if (f->function != PROFILE_NONE || f->mapping >= p->mappings.n ||
		    f->kind != FRAME_NATIVE || f->flags || !p->mappings.data[f->mapping].build_id)
			continue;
		nameless[f->mapping] = 1;
		any = true;
	}
	if (!any)
		return;
	pthread_mutex_lock(&s->lock);
	for (u32 i = 0; i < p->mappings.n; i++)
		if (nameless[i])
			symstore_want(s, profile_string(p, p->mappings.data[i].build_id),
				      profile_string(p, p->mappings.data[i].path));
	pthread_cond_broadcast(&s->wake);
	pthread_mutex_unlock(&s->lock);
}

/* ---- opening ---- */

static int make_dirs(struct symstore *s, struct diag *reterr_diag)
{
	static const char *const folders[] = {"incoming", "usr", "usr/lib", "usr/lib/debug",
					      "usr/lib/debug/.build-id"};

	if (mkdir(s->o.dir, 0700) < 0 && errno != EEXIST)
		return diag_set(reterr_diag, -errno, "cannot create %s: %s", s->o.dir,
				strerror(errno));
	s->dir_fd = open(s->o.dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (s->dir_fd < 0)
		return diag_set(reterr_diag, -errno, "cannot open %s: %s", s->o.dir,
				strerror(errno));
	for (size_t i = 0; i < ARRAY_SIZE(folders); i++)
		if (mkdirat(s->dir_fd, folders[i], 0700) < 0 && errno != EEXIST)
			return diag_set(reterr_diag, -errno, "cannot create %s/%s: %s", s->o.dir,
					folders[i], strerror(errno));
	return 0;
}

static DIR *open_folder(int at, const char *path)
{
	int fd = openat(at, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);

	if (!d && fd >= 0)
		close(fd);
	return d;
}

/* Removes incomplete files that a killed server left. */
static void remove_incoming(struct symstore *s)
{
	DIR *d = open_folder(s->dir_fd, "incoming");
	struct dirent *e;

	while (d && (e = readdir(d)))
		if (e->d_name[0] != '.')
			unlinkat(dirfd(d), e->d_name, 0);
	if (d)
		closedir(d);
}

static void find_file(struct symstore *s, int at, const char *first, const char *name)
{
	char build_id[SYMSTORE_ID_BYTES];
	_cleanup_close_ int fd = -1;
	struct symstore_kind k = {};
	struct symstore_entry *e;
	struct diag d = {};
	struct stat st;

	if (!str_ends(name, ".debug") || strlen(name) - 6 + 2 >= sizeof(build_id))
		return;
	snprintf(build_id, sizeof(build_id), "%.2s%.*s", first, (int)strlen(name) - 6, name);
	fd = openat(at, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (!symstore_is_build_id(build_id) || fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return;
	if (symstore_check(fd, build_id, symstore_max_file(s), &k, &d) < 0) {
		log_warn("symbols: not using %s: %s", build_id, d.text);
		return;
	}
	e = symstore_entry_of(s, build_id);
	if (!e)
		return;
	e->file.bytes = (u64)st.st_size;
	e->file.stored_ms = e->used_ms =
		(u64)st.st_mtim.tv_sec * 1000 + (u64)st.st_mtim.tv_nsec / 1000000;
	e->file.has = k.has;
	e->rank = k.rank;
	memcpy(e->alt, k.alt, sizeof(e->alt));
	/* The last server may have been killed before it used the file. */
	e->wanted = true;
	s->bytes += e->file.bytes;
	s->n_files++;
}

static void find_files(struct symstore *s)
{
	DIR *top = open_folder(s->dir_fd, "usr/lib/debug/.build-id"), *d;
	struct dirent *e, *f;

	while (top && (e = readdir(top))) {
		if (strlen(e->d_name) != 2 || e->d_name[0] == '.')
			continue;
		d = open_folder(dirfd(top), e->d_name);
		while (d && (f = readdir(d)))
			find_file(s, dirfd(d), e->d_name, f->d_name);
		if (d)
			closedir(d);
	}
	if (top)
		closedir(top);
	enforce_limits(s, NULL);
}

int symstore_create(const struct symstore_options *o, struct diag *reterr_diag,
		    struct symstore **ret)
{
	_cleanup_symstore_ struct symstore *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return -ENOMEM;
	s->dir_fd = -1;
	thread_sync_init(&s->lock, &s->wake);
	pthread_mutex_init(&s->sync_lock, NULL);
	s->o = *o;
	s->is_shared = store_is_shared(o->store);
	s->n_rows = ~0ULL;
	s->o.dir = strdup(o->dir);
	s->o.debuginfod_urls =
		o->debuginfod_urls && *o->debuginfod_urls ? strdup(o->debuginfod_urls) : NULL;
	if (!s->o.max_bytes)
		s->o.max_bytes = SYMSTORE_DEFAULT_BYTES;
	if (!s->o.dir)
		return -ENOMEM;
	r = make_dirs(s, reterr_diag);
	if (r < 0)
		return r;
	remove_incoming(s);
	find_files(s);
	r = symstore_start(s);
	if (r < 0)
		return diag_set(reterr_diag, r, "cannot start a thread");
	*ret = take_ptr(s);
	return 0;
}

void symstore_destroy(struct symstore *s)
{
	if (!s)
		return;
	atomic_store(&s->stopping, true);
	pthread_mutex_lock(&s->lock);
	pthread_cond_broadcast(&s->wake);
	pthread_mutex_unlock(&s->lock);
	for (u32 i = 0; i < s->n_threads; i++)
		pthread_join(s->threads[i], NULL);
	map_foreach (&s->by_id, slot)
		entry_free((struct symstore_entry *)slot->value);
	map_deinit(&s->by_id);
	cleanup_close(&s->dir_fd);
	pthread_mutex_destroy(&s->lock);
	pthread_mutex_destroy(&s->sync_lock);
	pthread_cond_destroy(&s->wake);
	free((char *)s->o.dir);
	free((char *)s->o.debuginfod_urls);
	free(s);
}

/* ---- lists and figures ---- */

static struct symstore_file public_entry(const struct symstore *s, const struct symstore_entry *e)
{
	struct symstore_file f = e->file;

	if (!f.bytes && e->shared.file) {
		f.bytes = e->shared.bytes;
		f.has = e->shared.has;
		f.stored_ms = e->shared.changed_ms;
	}
	f.waiting = e->naming || e->fetching || e->unname ||
		    (e->wanted && (f.bytes || s->o.debuginfod_urls));
	return f;
}

int symstore_file(struct symstore *s, const char *build_id, struct symstore_file *ret)
{
	struct symstore_entry *e;
	int r = -ENOENT;

	pthread_mutex_lock(&s->lock);
	e = symstore_find(s, build_id);
	if (e && (e->file.bytes || e->shared.file)) {
		*ret = public_entry(s, e);
		r = 0;
	}
	pthread_mutex_unlock(&s->lock);
	return r;
}

void symstore_stats(struct symstore *s, struct symstore_stats *ret)
{
	struct symstore_stats st = {};

	pthread_mutex_lock(&s->lock);
	map_foreach (&s->by_id, slot)
		st.files += ((struct symstore_entry *)slot->value)->file.bytes != 0;
	st.bytes = s->bytes;
	st.named = s->named;
	pthread_mutex_unlock(&s->lock);
	*ret = st;
}

static int compare_files(const void *a, const void *b)
{
	return strcmp(((const struct symstore_file *)a)->build_id,
		      ((const struct symstore_file *)b)->build_id);
}

int symstore_files(struct symstore *s, struct symstore_list *ret)
{
	struct symstore_list l = {};
	int r;

	pthread_mutex_lock(&s->lock);
	l.max_bytes = s->o.max_bytes;
	r = vec_reserve(&l.files, s->by_id.n + 1);
	if (r == 0)
		map_foreach (&s->by_id, slot) {
			struct symstore_entry *e = (struct symstore_entry *)slot->value;

			l.files.data[l.files.n] = public_entry(s, e);
			l.bytes += l.files.data[l.files.n++].bytes;
		}
	pthread_mutex_unlock(&s->lock);
	if (r < 0)
		return r;
	qsort(l.files.data, l.files.n, sizeof(*l.files.data), compare_files);
	*ret = l;
	return 0;
}
