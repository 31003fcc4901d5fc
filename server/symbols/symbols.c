/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is known of build-ids, the files on disk, and the thread that names frames.
 *
 * 1. A file under usr/lib/debug is whole and was checked: it got there by rename.
 * 2. `bytes` is the sum of the entries' files; the entry used longest ago loses its file first.
 * 3. Only the thread reads files, without the lock; what is removed under it stays readable.
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
#include "server/symbols/internal.h"
#include "symbol/symbol.h"

#define MAX_ENTRIES 8192
#define MAX_NAMELESS 65536 /* addresses of a file that are known to have no name */
#define LOOK_BACK_MS (24 * 3600 * 1000ULL)
#define PAUSE_MS 3000 /* between two looks for frames of a file */
#define CPU_BUDGET_NS (120 * 1000000000ULL)
#define FETCH_AGAIN_MS (3600 * 1000ULL) /* nobody had it */
#define FETCH_FAILED_MS (60 * 1000ULL)	/* nobody answered; doubled each time, up to that */

static u64 now_ms(void)
{
	return clock_ns(CLOCK_REALTIME) / 1000000;
}

static u64 tick_ms(void)
{
	return clock_ns(CLOCK_MONOTONIC) / 1000000;
}

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
	return hash_bytes(build_id, strlen(build_id)) >> 1; /* a map does not take the largest */
}

static struct symstore_entry *find(struct symstore *s, const char *build_id)
{
	u64 *known = map_get(&s->by_id, key_of(build_id));
	struct symstore_entry *e = known ? (struct symstore_entry *)*known : NULL;

	return e && !strcmp(e->file.build_id, build_id) ? e : NULL;
}

/* The entry without a file that was seen longest ago. */
static void forget_one(struct symstore *s)
{
	struct symstore_entry *oldest = NULL;

	map_foreach (&s->by_id, slot) {
		struct symstore_entry *e = (struct symstore_entry *)slot->value;

		if (!e->file.bytes && (!oldest || e->used_ms < oldest->used_ms))
			oldest = e;
	}
	if (oldest) {
		map_del(&s->by_id, key_of(oldest->file.build_id), NULL);
		entry_free(oldest);
	}
}

static struct symstore_entry *entry_of(struct symstore *s, const char *build_id)
{
	struct symstore_entry *e = find(s, build_id);

	if (e)
		return e;
	/* Of another build-id of that hash: the first one stays. */
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

static void drop_file(struct symstore *s, struct symstore_entry *e)
{
	char path[256];

	symstore_path(e->file.build_id, path);
	if (unlinkat(s->dir_fd, path, 0) < 0 && errno != ENOENT)
		log_warn("symbols: cannot remove %s: %s", path, strerror(errno));
	s->bytes -= e->file.bytes;
	e->file.bytes = 0;
	e->file.has = "";
	e->rank = 0;
}

/* Room for what is there and `keep`, which is new. */
static void keep_bound(struct symstore *s, const struct symstore_entry *keep)
{
	while (s->bytes > s->o.max_bytes) {
		struct symstore_entry *oldest = NULL;

		map_foreach (&s->by_id, slot) {
			struct symstore_entry *e = (struct symstore_entry *)slot->value;

			if (e->file.bytes && e != keep && (!oldest || e->used_ms < oldest->used_ms))
				oldest = e;
		}
		if (!oldest)
			return;
		log_info("symbols: %s goes, to stay within %llu MiB", oldest->file.build_id,
			 s->o.max_bytes >> 20);
		drop_file(s, oldest);
		snprintf(oldest->file.note, sizeof(oldest->file.note), "removed to make room");
	}
}

static int make_folders(struct symstore *s, const char *build_id)
{
	char path[256];

	snprintf(path, sizeof(path), "usr/lib/debug/.build-id/%.2s", build_id);
	return mkdirat(s->dir_fd, path, 0700) < 0 && errno != EEXIST ? -errno : 0;
}

/* On disk for good before it is acknowledged. */
static int move_in(struct symstore *s, const char *build_id, const char *from, int fd)
{
	char path[256];
	int r;

	symstore_path(build_id, path);
	r = make_folders(s, build_id);
	if (r == 0 && fsync(fd) < 0)
		r = -errno;
	if (r == 0 && renameat(s->dir_fd, from, s->dir_fd, path) < 0)
		r = -errno;
	return r;
}

/* The dwz file that it shares with others: names made without it would lack parts. */
static void want_alt(struct symstore *s, const struct symstore_entry *e)
{
	struct symstore_entry *alt = symstore_is_build_id(e->alt) ? entry_of(s, e->alt) : NULL;

	if (alt && !alt->file.bytes) {
		alt->wanted = true;
		alt->used_ms = now_ms();
	}
}

static bool waits_for_alt(struct symstore *s, const struct symstore_entry *e)
{
	const struct symstore_entry *alt = s->o.debuginfod_urls ? find(s, e->alt) : NULL;

	return alt && !alt->file.bytes && alt->wanted && !alt->next_ms;
}

int symstore_keep(struct symstore *s, const char *build_id, const char *from, int fd,
		  const struct symstore_kind *k, struct diag *reterr_diag)
{
	struct symstore_entry *e;
	struct stat st;
	int r = fstat(fd, &st) < 0 ? -errno : 0;

	pthread_mutex_lock(&s->lock);
	e = entry_of(s, build_id);
	if (r == 0 && !e)
		r = -ENOMEM;
	if (r == 0 && e->file.bytes && e->rank >= k->rank) {
		e->wanted = true;
		pthread_cond_signal(&s->wake);
		pthread_mutex_unlock(&s->lock);
		return 0;
	}
	if (r == 0)
		r = move_in(s, build_id, from, fd);
	if (r == 0) {
		s->bytes += (u64)st.st_size - e->file.bytes;
		e->file.bytes = (u64)st.st_size;
		e->file.stored_ms = e->used_ms = now_ms();
		e->file.has = k->has;
		e->file.note[0] = '\0';
		e->rank = k->rank;
		memcpy(e->alt, k->alt, sizeof(e->alt));
		e->wanted = true;
		e->next_ms = 0;
		map_clear(&e->nameless);
		keep_bound(s, e);
		want_alt(s, e);
		pthread_cond_signal(&s->wake);
	}
	pthread_mutex_unlock(&s->lock);
	return r < 0 ? diag_set(reterr_diag, r, "cannot keep symbols: %s", strerror(-r)) : 1;
}

/* ---- what ingest saw ---- */

static void want(struct symstore *s, const char *build_id, const char *path)
{
	struct symstore_entry *e;

	if (!symstore_is_build_id(build_id))
		return;
	e = entry_of(s, build_id);
	if (!e)
		return;
	e->wanted = true;
	e->used_ms = now_ms();
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
			want(s, profile_string(p, p->mappings.data[i].build_id),
			     profile_string(p, p->mappings.data[i].path));
	pthread_cond_signal(&s->wake);
	pthread_mutex_unlock(&s->lock);
}

/* ---- the thread: naming ---- */

struct work {
	struct symstore *s;
	char build_id[SYMSTORE_ID_BYTES];
	struct map nameless;
	struct elf_file *elf;	 /* owned; opened when the first name is asked for */
	struct symbols *symbols; /* owned */
	struct symbol_chain chain;
	u64 named, until_ns;
	struct diag diag;
};

static int open_symbols(struct work *w)
{
	const struct symbols_options o = {.inlines = true, .lines = true, .root_fd = w->s->dir_fd};
	char path[256];
	int fd, r;

	symstore_path(w->build_id, path);
	fd = openat(w->s->dir_fd, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return diag_set(&w->diag, -errno, "cannot read it: %s", strerror(errno));
	r = elf_file_open(fd, &w->diag, &w->elf);
	return r < 0 ? r : symbols_open(w->elf, &o, &w->symbols);
}

static int add_frame(struct profile *p, const struct symbol_frame *f, u32 *ret)
{
	struct profile_function fn = {.start_line = f->start_line};
	struct profile_frame frame = {.mapping = PROFILE_NONE,
				      .line = f->line,
				      .column = f->column,
				      .kind = FRAME_NATIVE,
				      .flags = f->inlined ? PROFILE_FRAME_INLINED : 0};
	int r = profile_add_string(p, f->name, strlen(f->name), &fn.name);

	if (r == 0)
		r = profile_add_string(p, f->system_name, strlen(f->system_name), &fn.system_name);
	if (r == 0 && f->file)
		r = profile_add_string(p, f->file, strlen(f->file), &fn.file);
	if (r == 0)
		r = profile_add_function(p, &fn, &frame.function);
	return r < 0 ? r : profile_add_frame(p, &frame, ret);
}

static int name(void *userdata, u64 address, struct profile *into, u32 *ret_frames, size_t max)
{
	struct work *w = userdata;
	int r = 0;

	if (atomic_load(&w->s->stopping))
		return -ECANCELED;
	if (address >= MAP_GONE_KEY || map_get(&w->nameless, address))
		return 0;
	if (clock_ns(CLOCK_THREAD_CPUTIME_ID) > w->until_ns)
		return diag_set(&w->diag, -ETIME, "reading it takes too long");
	if (!w->symbols)
		r = open_symbols(w);
	if (r < 0)
		return r;
	r = symbols_lookup(w->symbols, address, &w->chain);
	if (r == -ENOMEM)
		return r;
	if (r < 0) {
		if (w->nameless.n < MAX_NAMELESS)
			(void)map_put(&w->nameless, address, 1);
		return 0;
	}
	for (u32 i = 0; i < w->chain.n && i < max; i++) {
		r = add_frame(into, &w->chain.frames[i], &ret_frames[i]);
		if (r < 0)
			return r;
	}
	w->named++;
	return (int)MIN(w->chain.n, max);
}

/* Entered and left with the lock. */
static void name_frames(struct symstore *s, struct symstore_entry *e)
{
	_cleanup_free_ struct work *w = calloc(1, sizeof(*w));
	int r = -ENOMEM;

	e->wanted = false;
	if (!w)
		return;
	w->s = s;
	memcpy(w->build_id, e->file.build_id, sizeof(w->build_id));
	w->nameless = e->nameless;
	e->nameless = (struct map){};
	w->until_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID) + CPU_BUDGET_NS;
	pthread_mutex_unlock(&s->lock);
	r = s->o.store->ops->name_frames(s->o.store, w->build_id, name, w, &w->diag);
	symbols_destroy(w->symbols);
	elf_file_destroy(w->elf);
	pthread_mutex_lock(&s->lock);
	s->named += w->named;
	e = find(s, w->build_id);
	if (!e) {
		map_deinit(&w->nameless);
		return;
	}
	map_deinit(&e->nameless);
	e->nameless = w->nameless;
	e->file.named += w->named;
	e->next_ms = tick_ms() + PAUSE_MS;
	e->file.note[0] = '\0';
	if (r < 0 && r != -ECANCELED) {
		snprintf(e->file.note, sizeof(e->file.note), "%s",
			 w->diag.text[0] ? w->diag.text : strerror(-r));
		log_warn("symbols: %s: %s", w->build_id, e->file.note);
	}
	if (w->named) {
		e->used_ms = now_ms();
		log_info("symbols: %llu frames of %s are named", w->named, w->build_id);
	}
}

/* ---- the thread: fetching ---- */

static void fetch(struct symstore *s, struct symstore_entry *e)
{
	char build_id[SYMSTORE_ID_BYTES];
	struct diag d = {};
	u64 again;
	int r;

	memcpy(build_id, e->file.build_id, sizeof(build_id));
	e->wanted = false;
	pthread_mutex_unlock(&s->lock);
	r = symstore_fetch(s, build_id, &d);
	pthread_mutex_lock(&s->lock);
	e = find(s, build_id);
	if (!e || r >= 0 || r == -ECANCELED)
		return;
	again = r == -ENOENT ? FETCH_AGAIN_MS : FETCH_FAILED_MS << MIN(e->failures, 6u);
	e->failures += r != -ENOENT;
	e->next_ms = tick_ms() + MIN(again, FETCH_AGAIN_MS);
	e->wanted = true;
	snprintf(e->file.note, sizeof(e->file.note), "%s", d.text[0] ? d.text : strerror(-r));
	log_debug("symbols: %s: %s", build_id, e->file.note);
}

/* ---- the thread ---- */

/* What is here first, then what was seen last. */
static bool goes_before(const struct symstore_entry *a, const struct symstore_entry *b)
{
	if (!a->file.bytes != !b->file.bytes)
		return a->file.bytes;
	return a->used_ms > b->used_ms;
}

/* What can be done now; else when something can, 0 = never. */
static struct symstore_entry *choose(struct symstore *s, u64 *ret_ms)
{
	struct symstore_entry *best = NULL;
	u64 now = tick_ms(), next = 0;

	map_foreach (&s->by_id, slot) {
		struct symstore_entry *e = (struct symstore_entry *)slot->value;

		if (!e->wanted || (!e->file.bytes && !s->o.debuginfod_urls) || waits_for_alt(s, e))
			continue;
		if (e->next_ms > now) {
			next = next ? MIN(next, e->next_ms) : e->next_ms;
			continue;
		}
		if (!best || goes_before(e, best))
			best = e;
	}
	*ret_ms = next ? next - now : 0;
	return best;
}

/* What came without names before this server was started. */
static void look_back(struct symstore *s)
{
	struct symstore_missing m = {};
	struct diag d = {};
	u64 now = now_ms();

	if (!s->o.debuginfod_urls)
		return;
	if (symstore_missing(s->o.store, now - LOOK_BACK_MS, now, &m, &d) < 0)
		log_warn("symbols: %s", d.text);
	pthread_mutex_lock(&s->lock);
	vec_foreach (&m.binaries, b)
		want(s, b->build_id, b->path);
	pthread_mutex_unlock(&s->lock);
	symstore_missing_deinit(&m);
}

static void *work(void *arg)
{
	struct symstore *s = arg;

	look_back(s);
	pthread_mutex_lock(&s->lock);
	while (!atomic_load(&s->stopping)) {
		struct symstore_entry *e;
		struct timespec t;
		u64 ms;

		e = choose(s, &ms);
		if (e && e->file.bytes) {
			name_frames(s, e);
		} else if (e) {
			fetch(s, e);
		} else if (ms) {
			clock_gettime(CLOCK_REALTIME, &t);
			t.tv_nsec += (long)(ms % 1000 * 1000000);
			t.tv_sec += (time_t)(ms / 1000) + t.tv_nsec / 1000000000;
			t.tv_nsec %= 1000000000;
			pthread_cond_timedwait(&s->wake, &s->lock, &t);
		} else {
			pthread_cond_wait(&s->wake, &s->lock);
		}
	}
	pthread_mutex_unlock(&s->lock);
	return NULL;
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

/* What a server that was killed had not whole. */
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
		log_warn("symbols: %s is not used: %s", build_id, d.text);
		return;
	}
	e = entry_of(s, build_id);
	if (!e)
		return;
	e->file.bytes = (u64)st.st_size;
	e->file.stored_ms = e->used_ms = (u64)st.st_mtim.tv_sec * 1000;
	e->file.has = k.has;
	e->rank = k.rank;
	memcpy(e->alt, k.alt, sizeof(e->alt));
	/* A kill may have come between the file and its names. */
	e->wanted = true;
	s->bytes += e->file.bytes;
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
	keep_bound(s, NULL);
}

int symstore_create(const struct symstore_options *o, struct diag *reterr_diag,
		    struct symstore **ret)
{
	_cleanup_symstore_ struct symstore *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return -ENOMEM;
	s->dir_fd = -1;
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->wake, NULL);
	s->o = *o;
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
	if (pthread_create(&s->thread, NULL, work, s) != 0)
		return diag_set(reterr_diag, -EAGAIN, "cannot start a thread");
	s->has_thread = true;
	*ret = take_ptr(s);
	return 0;
}

void symstore_destroy(struct symstore *s)
{
	if (!s)
		return;
	atomic_store(&s->stopping, true);
	pthread_mutex_lock(&s->lock);
	pthread_cond_signal(&s->wake);
	pthread_mutex_unlock(&s->lock);
	if (s->has_thread)
		pthread_join(s->thread, NULL);
	map_foreach (&s->by_id, slot)
		entry_free((struct symstore_entry *)slot->value);
	map_deinit(&s->by_id);
	cleanup_close(&s->dir_fd);
	pthread_mutex_destroy(&s->lock);
	pthread_cond_destroy(&s->wake);
	free((char *)s->o.dir);
	free((char *)s->o.debuginfod_urls);
	free(s);
}

/* ---- what is there ---- */

static struct symstore_file told(const struct symstore *s, const struct symstore_entry *e)
{
	struct symstore_file f = e->file;

	f.waiting = e->wanted && (f.bytes || s->o.debuginfod_urls);
	return f;
}

int symstore_file(struct symstore *s, const char *build_id, struct symstore_file *ret)
{
	struct symstore_entry *e;
	int r = -ENOENT;

	pthread_mutex_lock(&s->lock);
	e = find(s, build_id);
	if (e && e->file.bytes) {
		*ret = told(s, e);
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
	l.bytes = s->bytes;
	l.max_bytes = s->o.max_bytes;
	r = vec_reserve(&l.files, s->by_id.n + 1);
	if (r == 0)
		map_foreach (&s->by_id, slot)
			l.files.data[l.files.n++] = told(s, (struct symstore_entry *)slot->value);
	pthread_mutex_unlock(&s->lock);
	if (r < 0)
		return r;
	qsort(l.files.data, l.files.n, sizeof(*l.files.data), compare_files);
	*ret = l;
	return 0;
}
