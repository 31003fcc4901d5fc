/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files that several servers share through their store. The store's word counts: the directory is
 * a cache of what the store has.
 *
 * 1. A server gives a new file to the store before it acknowledges the upload. The newest row of a
 *    build-id says which file counts (store.h); the mtime of the file in the directory is the time
 *    of its row. When the row changes, servers drop the old file.
 * 2. A server that receives frames of the binary fetches the file and names them (work.c). It looks
 *    at the row before and after that: if the file was replaced or removed meanwhile, it takes the
 *    names away again.
 * 3. All files together have symstore_options.max_bytes: the least recently used file is removed
 *    before a new one is written. Servers repeat the rows of files in use, because the store drops
 *    old rows.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "server/symbols/internal.h"

#define USED_MS 86400000ULL /* how often the row of a file in use is repeated */

_Static_assert(sizeof(((struct store_symbol *)0)->build_id) >= SYMSTORE_ID_BYTES,
	       "a row has room for every build-id");

/* ---- what the store says; under the lock ---- */

static void tell(const struct store_symbol *row)
{
	static const char *const what[] = {[STORE_SYMBOL_ADDED] = "uploaded",
					   [STORE_SYMBOL_REPLACED] = "replaced",
					   [STORE_SYMBOL_REMOVED] = "removed"};

	if (row->state < ARRAY_SIZE(what) && what[row->state] && row->peer[0])
		log_info("audit: symbols-%s %s by %s from %s, at another server", what[row->state],
			 row->build_id, row->token[0] ? row->token : "nobody by name", row->peer);
}

/* Drops the file that was cached for an earlier row. */
static void drop_cached(struct symstore *s, struct symstore_entry *e, enum store_symbol_state state)
{
	symstore_drop_file(s, e);
	e->version++;
	e->next_ms = 0;
	snprintf(e->file.note, sizeof(e->file.note), "%s",
		 state == STORE_SYMBOL_REMOVED	 ? "removed by an admin"
		 : state == STORE_SYMBOL_EVICTED ? "removed to make room"
						 : "");
	symstore_set_nameless(s, e, &(struct map){});
}

static void take_row(struct symstore *s, const struct store_symbol *row, bool first)
{
	struct symstore_shared now = {.changed_ms = row->changed_ms,
				      .file = row->file,
				      .bytes = row->bytes,
				      .used_ms = row->used_ms};
	struct symstore_entry *e = NULL;

	if (symstore_is_build_id(row->build_id))
		e = row->file ? symstore_entry_of(s, row->build_id)
			      : symstore_find(s, row->build_id);
	/* A replica may be behind. */
	if (!e || row->changed_ms < e->shared.changed_ms)
		return;
	now.rank = row->file ? symstore_rank(row->source, &now.has) : 0;
	now.unnamed = row->state == STORE_SYMBOL_REPLACED || row->state == STORE_SYMBOL_REMOVED;
	if (row->changed_ms > e->shared.changed_ms) {
		e->next_ms = 0;
		if (!first)
			tell(row);
	}
	e->shared = now;
	if (e->file.bytes && e->file.stored_ms != row->changed_ms)
		drop_cached(s, e, row->state);
}

int symstore_sync(struct symstore *s, struct diag *reterr_diag)
{
	struct store_symbols l = {};
	int r;

	if (!s->is_shared)
		return 0;
	pthread_mutex_lock(&s->sync_lock);
	r = store_find_symbols(s->o.store, &s->n_rows, &l, reterr_diag);
	pthread_mutex_lock(&s->lock);
	vec_foreach (&l.list, row)
		take_row(s, row, !s->synced);
	s->synced |= r > 0;
	if (r > 0)
		pthread_cond_broadcast(&s->wake);
	pthread_mutex_unlock(&s->lock);
	pthread_mutex_unlock(&s->sync_lock);
	vec_deinit(&l.list);
	return MIN(r, 0);
}

/* ---- changes ---- */

static void set_who(struct store_symbol *row, const struct symstore_who *who)
{
	snprintf(row->token, sizeof(row->token), "%s", who && who->token ? who->token : "");
	snprintf(row->peer, sizeof(row->peer), "%s", who && who->peer ? who->peer : "");
}

/* Begins a row that counts from now on. Call with the lock. */
static struct store_symbol next_row(const struct symstore_entry *e, const char *build_id,
				    enum store_symbol_state state)
{
	struct store_symbol row = {.state = state, .changed_ms = clock_epoch_ms()};

	/* The clock of another server may be ahead. */
	if (e)
		row.changed_ms = MAX(row.changed_ms, e->shared.changed_ms + 1);
	row.used_ms = row.changed_ms;
	snprintf(row.build_id, sizeof(row.build_id), "%s", build_id);
	return row;
}

static u64 last_use(const struct symstore_entry *e)
{
	return MAX(e->used_ms, e->shared.used_ms);
}

/*
 * The entry whose file in the store was not used for longest, if one has to go for a file of
 * `bytes` bytes. Call with the lock.
 */
static struct symstore_entry *choose_victim(struct symstore *s, const char *build_id, u64 bytes)
{
	struct symstore_entry *oldest = NULL;
	u64 sum = bytes;
	u32 n = 1;

	map_foreach (&s->by_id, slot) {
		struct symstore_entry *e = (struct symstore_entry *)slot->value;

		if (!e->shared.file || !strcmp(e->file.build_id, build_id))
			continue;
		sum += e->shared.bytes;
		n++;
		if (!oldest || last_use(e) < last_use(oldest))
			oldest = e;
	}
	return sum > s->o.max_bytes || n > SYMSTORE_MAX_FILES ? oldest : NULL;
}

static int make_room(struct symstore *s, const char *build_id, u64 bytes, struct diag *reterr_diag)
{
	int r = 0;

	while (r == 0) {
		struct symstore_entry *e;
		struct store_symbol row;

		pthread_mutex_lock(&s->lock);
		e = choose_victim(s, build_id, bytes);
		if (e)
			row = next_row(e, e->file.build_id, STORE_SYMBOL_EVICTED);
		pthread_mutex_unlock(&s->lock);
		if (!e)
			break;
		r = store_note_symbols(s->o.store, &row, 1, reterr_diag);
		if (r < 0)
			break;
		log_info("symbols: removed %s to stay within %llu MiB", row.build_id,
			 s->o.max_bytes >> 20);
		pthread_mutex_lock(&s->lock);
		take_row(s, &row, true);
		pthread_mutex_unlock(&s->lock);
	}
	return r;
}

static int write_parts(struct symstore *s, int fd, u64 bytes, u64 file, struct diag *reterr_diag)
{
	_cleanup_free_ u8 *data = malloc(STORE_SYMBOL_PART);
	u32 part = 0;
	int r = data ? 0 : -ENOMEM;

	for (u64 at = 0; at < bytes && r == 0; at += STORE_SYMBOL_PART) {
		size_t n = MIN(bytes - at, (u64)STORE_SYMBOL_PART), got = 0;

		while (got < n && r == 0) {
			ssize_t k = pread(fd, data + got, n - got, (off_t)(at + got));

			if (k <= 0 && !(k < 0 && errno == EINTR))
				r = k < 0 ? -errno : -EIO;
			got += k > 0 ? (size_t)k : 0;
		}
		if (r == 0)
			r = store_write_symbol_part(s->o.store, file, part++, data, n, reterr_diag);
	}
	return r;
}

int symstore_share(struct symstore *s, const char *build_id, int fd, const struct symstore_kind *k,
		   bool replace, const struct symstore_who *who, struct symstore_shared *ret,
		   struct diag *reterr_diag)
{
	struct symstore_shared before = {};
	struct symstore_entry *e;
	struct store_symbol row;
	struct stat st;
	u64 file;
	int r = fstat(fd, &st) < 0 ? -errno : symstore_sync(s, reterr_diag);

	if (r < 0)
		return r;
	pthread_mutex_lock(&s->lock);
	e = symstore_find(s, build_id);
	if (e)
		before = e->shared;
	if (before.file && before.rank >= k->rank && !replace) {
		e->wanted = true;
		pthread_cond_broadcast(&s->wake);
		pthread_mutex_unlock(&s->lock);
		return 0;
	}
	row = next_row(e, build_id, replace ? STORE_SYMBOL_REPLACED : STORE_SYMBOL_ADDED);
	pthread_mutex_unlock(&s->lock);
	if (getrandom(&file, sizeof(file), 0) != sizeof(file))
		return -EIO;
	row.file = file % (MAP_GONE_KEY - 1) + 1;
	row.bytes = (u64)st.st_size;
	snprintf(row.source, sizeof(row.source), "%s", k->has);
	set_who(&row, who);
	r = make_room(s, build_id, row.bytes, reterr_diag);
	if (r == 0)
		r = write_parts(s, fd, row.bytes, row.file, reterr_diag);
	if (r == 0)
		r = store_note_symbols(s->o.store, &row, 1, reterr_diag);
	if (r < 0)
		return r;
	*ret = (struct symstore_shared){.changed_ms = row.changed_ms,
					.file = row.file,
					.bytes = row.bytes,
					.used_ms = row.used_ms,
					.has = k->has,
					.rank = k->rank,
					.unnamed = replace};
	return 1;
}

int symstore_share_removal(struct symstore *s, const char *build_id, const struct symstore_who *who,
			   struct diag *reterr_diag)
{
	struct store_symbol row = {};
	struct symstore_entry *e;
	int r = symstore_sync(s, reterr_diag);

	if (r < 0)
		return r;
	pthread_mutex_lock(&s->lock);
	e = symstore_find(s, build_id);
	r = e && (e->shared.file || e->file.bytes) ? 0 : -ENOENT;
	if (r == 0)
		row = next_row(e, build_id, STORE_SYMBOL_REMOVED);
	pthread_mutex_unlock(&s->lock);
	set_who(&row, who);
	if (r == 0)
		r = store_note_symbols(s->o.store, &row, 1, reterr_diag);
	if (r < 0)
		return r;
	pthread_mutex_lock(&s->lock);
	take_row(s, &row, true);
	pthread_mutex_unlock(&s->lock);
	return 0;
}

/* ---- fetching ---- */

static void take_part(void *userdata, const void *data, size_t n)
{
	symstore_upload_part(userdata, data, n);
}

int symstore_fetch_shared(struct symstore *s, const char *build_id, struct diag *reterr_diag)
{
	_cleanup_symstore_upload_ struct symstore_upload *u = NULL;
	struct symstore_shared from = {};
	struct symstore_entry *e;
	u32 part = 0;
	int r;

	pthread_mutex_lock(&s->lock);
	e = symstore_find(s, build_id);
	if (e)
		from = e->shared;
	pthread_mutex_unlock(&s->lock);
	if (!from.file)
		return -ENOENT;
	r = symstore_upload_begin(s, build_id, NULL, false, reterr_diag, &u);
	for (u64 at = 0; at < from.bytes && r == 0; at += STORE_SYMBOL_PART) {
		r = store_read_symbol_part(s->o.store, from.file, part++, take_part, u,
					   reterr_diag);
		if (r == 0 && atomic_load(&s->stopping))
			r = -ECANCELED;
	}
	/* Another server may have replaced the file since. */
	if (r == -ENOENT)
		r = symstore_sync(s, reterr_diag) < 0 ? -EAGAIN : -EIO;
	return r < 0 ? r : symstore_upload_end_fetched(u, &from, reterr_diag);
}

/* ---- what the fetcher does now and then ---- */

/* Repeats the rows of files in use. */
static int repeat_rows(struct symstore *s, struct diag *reterr_diag)
{
	struct store_symbols l = {};
	int r = 0;

	pthread_mutex_lock(&s->lock);
	map_foreach (&s->by_id, slot) {
		struct symstore_entry *e = (struct symstore_entry *)slot->value;
		struct store_symbol row = {.changed_ms = e->shared.changed_ms,
					   .file = e->shared.file,
					   .bytes = e->shared.bytes,
					   .used_ms = e->used_ms};

		if (!row.file || row.used_ms < e->shared.used_ms + USED_MS || r < 0)
			continue;
		row.state = e->shared.unnamed ? STORE_SYMBOL_REPLACED : STORE_SYMBOL_ADDED;
		memcpy(row.build_id, e->file.build_id, sizeof(e->file.build_id));
		snprintf(row.source, sizeof(row.source), "%s", e->shared.has);
		r = vec_push(&l.list, row);
		e->shared.used_ms = row.used_ms;
	}
	pthread_mutex_unlock(&s->lock);
	if (r == 0 && l.list.n)
		r = store_note_symbols(s->o.store, l.list.data, l.list.n, reterr_diag);
	vec_deinit(&l.list);
	return r;
}

/* Gives a file to the store that the directory had before the store had a row of it. */
static int share_old(struct symstore *s, const char *build_id, struct diag *reterr_diag)
{
	struct symstore_shared shared = {};
	_cleanup_close_ int fd = -1;
	struct symstore_kind k = {};
	struct symstore_entry *e;
	char path[256];
	int r;

	symstore_path(build_id, path);
	fd = openat(s->dir_fd, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	r = fd < 0 ? -errno : symstore_check(fd, build_id, symstore_max_file(s), &k, reterr_diag);
	if (r == 0)
		r = symstore_share(s, build_id, fd, &k, false, NULL, &shared, reterr_diag);
	if (r <= 0)
		return r;
	pthread_mutex_lock(&s->lock);
	e = symstore_find(s, build_id);
	if (e && e->file.bytes == shared.bytes && e->shared.changed_ms < shared.changed_ms) {
		e->shared = shared;
		e->file.stored_ms = shared.changed_ms;
		symstore_stamp(fd, shared.changed_ms);
	}
	pthread_mutex_unlock(&s->lock);
	return 0;
}

/* Returns a build-id whose file the store does not know, after the one in `after`. */
static bool next_old(struct symstore *s, char after[SYMSTORE_ID_BYTES])
{
	const char *next = NULL;

	pthread_mutex_lock(&s->lock);
	map_foreach (&s->by_id, slot) {
		struct symstore_entry *e = (struct symstore_entry *)slot->value;
		const char *id = e->file.build_id;

		if (e->file.bytes && !e->shared.changed_ms && strcmp(id, after) > 0 &&
		    (!next || strcmp(id, next) < 0))
			next = id;
	}
	if (next)
		memcpy(after, next, SYMSTORE_ID_BYTES);
	pthread_mutex_unlock(&s->lock);
	return next;
}

int symstore_keep_shared(struct symstore *s, struct diag *reterr_diag)
{
	char id[SYMSTORE_ID_BYTES] = "";
	int r = symstore_sync(s, reterr_diag);

	while (r == 0 && !s->old_shared && !atomic_load(&s->stopping) && next_old(s, id)) {
		r = share_old(s, id, reterr_diag);
		if (r == -ENOENT || r == -EINVAL || r == -EFBIG)
			r = 0; /* the file was removed or damaged meanwhile */
	}
	s->old_shared |= r == 0;
	return r < 0 ? r : repeat_rows(s, reterr_diag);
}
