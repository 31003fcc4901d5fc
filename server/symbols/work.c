/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two threads: one thread names frames with the stored files, the other fetches missing files, if
 * there are debuginfod servers or other servers on the same store (shared.c). Each thread takes a
 * wanted entry, works on it without the lock, and then looks the entry up again by its build-id,
 * because meanwhile the entry may have another file or may be gone.
 *
 * If frames of a file keep arriving, the thread opens the file again and again. The pause between
 * two rounds is PAUSE_TIMES times as long as the last round, so naming takes a small part of one
 * CPU.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "server/symbols/internal.h"
#include "symbol/symbol.h"

#define MAX_NAMELESS 65536 /* addresses of a file that the server remembers as nameless */
#define LOOK_BACK_MS (24 * 3600 * 1000ULL)
#define PAUSE_MS 3000ULL /* between two rounds of a file, at least */
#define PAUSE_TIMES 20
#define FAILED_MS (60 * 1000ULL)
#define CPU_BUDGET_NS (120 * 1000000000ULL)
#define SLOW_AGAIN_MS (3600 * 1000ULL)	/* after it used up its budget */
#define SYNC_MS 5000ULL			/* between two looks at what other servers did */
#define FETCH_AGAIN_MS (3600 * 1000ULL) /* after no server had it */
#define FETCH_FAILED_MS (60 * 1000ULL)	/* after no server answered; doubles up to FETCH_AGAIN_MS */

static u64 tick_ms(void)
{
	return clock_ns(CLOCK_MONOTONIC) / 1000000;
}

/* ---- naming ---- */

struct work {
	struct symstore *s;
	char build_id[SYMSTORE_ID_BYTES];
	struct map nameless;	 /* the entry's, while it is being named */
	char damage[128];	 /* likewise */
	struct elf_file *elf;	 /* owned; opened when the first name is asked for */
	struct symbols *symbols; /* owned */
	struct symbol_chain chain;
	u64 named, until_ns;
	u32 version; /* of the entry */
	bool late;
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

static int name_address(void *userdata, u64 address, struct profile *into, u32 *ret_frames,
			size_t max)
{
	struct work *w = userdata;
	int r = 0;

	if (atomic_load(&w->s->stopping))
		return -ECANCELED;
	if (address >= MAP_GONE_KEY || map_get(&w->nameless, address))
		return 0;
	w->late |= clock_ns(CLOCK_THREAD_CPUTIME_ID) > w->until_ns;
	if (w->late)
		return 0; /* keep the names found so far */
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

/* Whether a retry with the same file may succeed. */
static bool is_passing(int r)
{
	return r == -ENOMEM || r == -ENOSPC || r == -EIO || r == -EBUSY || r == -EAGAIN;
}

static void end_naming(struct symstore *s, struct symstore_entry *e, struct work *w, int r,
		       u64 took_ms)
{
	/* The entry has another file now. */
	if (e->version != w->version)
		return;
	symstore_set_nameless(s, e, &w->nameless);
	e->file.named += w->named;
	e->next_ms = tick_ms() + MAX(PAUSE_MS, took_ms * PAUSE_TIMES);
	memcpy(e->damage, w->damage, sizeof(e->damage));
	snprintf(e->file.note, sizeof(e->file.note), "%s", e->damage);
	if (w->late) {
		(void)diag_set(&w->diag, -ETIME,
			       "reading it takes too long; the rest follows in an hour");
		e->next_ms = tick_ms() + SLOW_AGAIN_MS;
		e->wanted = true;
	}
	if (is_passing(r)) {
		e->next_ms = tick_ms() + FAILED_MS;
		e->wanted = true;
	}
	if (w->late || (r < 0 && r != -ECANCELED)) {
		snprintf(e->file.note, sizeof(e->file.note), "%s",
			 w->diag.text[0] ? w->diag.text : strerror(-r));
		log_warn("symbols: %s: %s", w->build_id, e->file.note);
	}
	if (w->named)
		e->used_ms = clock_epoch_ms();
}

/*
 * Takes the names away that an earlier file gave. This thread alone gives names, so that none comes
 * from that file meanwhile. Call with the lock, which the function releases while it works.
 */
static void unname_entry(struct symstore *s, struct symstore_entry *e)
{
	char build_id[SYMSTORE_ID_BYTES];
	struct diag d = {};
	int r;

	memcpy(build_id, e->file.build_id, sizeof(build_id));
	e->unname = false;
	e->naming = true;
	pthread_mutex_unlock(&s->lock);
	r = store_unname_frames(s->o.store, build_id, &d);
	if (r < 0)
		log_warn("symbols: %s: %s", build_id, d.text[0] ? d.text : strerror(-r));
	pthread_mutex_lock(&s->lock);
	e = symstore_find(s, build_id);
	if (!e)
		return;
	e->naming = false;
	e->wanted |= e->file.bytes || e->shared.file;
	if (r < 0) {
		e->unname = true;
		e->next_ms = tick_ms() + FAILED_MS;
	}
}

/*
 * Learns whether another server has replaced or removed the file. Returns the entry if frames may
 * be named with its file now. Call with the lock, which the function releases meanwhile.
 */
static struct symstore_entry *confirm_entry(struct symstore *s, struct symstore_entry *e)
{
	char build_id[SYMSTORE_ID_BYTES];
	struct diag d = {};
	int r;

	if (!s->is_shared)
		return e;
	memcpy(build_id, e->file.build_id, sizeof(build_id));
	pthread_mutex_unlock(&s->lock);
	r = symstore_sync(s, &d);
	pthread_mutex_lock(&s->lock);
	e = symstore_find(s, build_id);
	if (e && r < 0)
		e->next_ms = tick_ms() + FAILED_MS;
	return r == 0 && e && e->file.bytes && !e->unname ? e : NULL;
}

/* Call with the lock, which the function releases while it works. */
static void name_entry(struct symstore *s, struct symstore_entry *e)
{
	_cleanup_free_ struct work *w = calloc(1, sizeof(*w));
	u64 began = tick_ms();
	int r;

	e = confirm_entry(s, e);
	if (!e)
		return;
	e->wanted = false;
	if (!w)
		return;
	w->s = s;
	w->version = e->version;
	e->naming = true;
	memcpy(w->build_id, e->file.build_id, sizeof(w->build_id));
	w->nameless = e->nameless;
	memcpy(w->damage, e->damage, sizeof(w->damage));
	s->n_nameless -= e->nameless.n;
	e->nameless = (struct map){};
	w->until_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID) + CPU_BUDGET_NS;
	pthread_mutex_unlock(&s->lock);
	r = store_name_frames(s->o.store, w->build_id, name_address, w, &w->diag);
	if (w->symbols)
		snprintf(w->damage, sizeof(w->damage), "%s", symbols_damage(w->symbols));
	symbols_destroy(w->symbols);
	elf_file_destroy(w->elf);
	if (w->named)
		(void)symstore_sync(s, &w->diag);
	pthread_mutex_lock(&s->lock);
	s->named += w->named;
	e = symstore_find(s, w->build_id);
	if (e) {
		e->naming = false;
		if (e->version != w->version && e->shared.unnamed && w->named)
			e->unname = e->wanted = true;
		end_naming(s, e, w, r, tick_ms() - began);
	}
	map_deinit(&w->nameless);
	if (w->named)
		log_info("symbols: named %llu frames of %s", w->named, w->build_id);
}

/* ---- fetching ---- */

static void fetch_entry(struct symstore *s, struct symstore_entry *e)
{
	char build_id[SYMSTORE_ID_BYTES];
	struct diag d = {};
	bool shared;
	u64 again;
	int r;

	memcpy(build_id, e->file.build_id, sizeof(build_id));
	shared = e->shared.file;
	e->wanted = false;
	e->fetching = true;
	pthread_mutex_unlock(&s->lock);
	r = shared ? symstore_fetch_shared(s, build_id, &d) : symstore_fetch(s, build_id, &d);
	pthread_mutex_lock(&s->lock);
	pthread_cond_broadcast(&s->wake); /* a file may be waiting for this one */
	e = symstore_find(s, build_id);
	if (!e)
		return;
	e->fetching = false;
	if (r >= 0 || r == -ECANCELED || e->file.bytes)
		return;
	again = r == -ENOENT ? FETCH_AGAIN_MS : FETCH_FAILED_MS << MIN(e->failures, 6u);
	e->failures += r != -ENOENT;
	e->next_ms = tick_ms() + MIN(again, FETCH_AGAIN_MS);
	e->wanted = true;
	snprintf(e->file.note, sizeof(e->file.note), "%s", d.text[0] ? d.text : strerror(-r));
	log_debug("symbols: %s: %s", build_id, e->file.note);
}

/* ---- the threads ---- */

static bool can_fetch(const struct symstore *s, const struct symstore_entry *e)
{
	return e->shared.file || s->o.debuginfod_urls;
}

/* Whether the fetcher fetches the entry's dwz file now or will do so at once. */
static bool waits_for_alt(struct symstore *s, const struct symstore_entry *e)
{
	const struct symstore_entry *alt = symstore_find(s, e->alt);

	return alt && can_fetch(s, alt) && !alt->file.bytes &&
	       (alt->fetching || (alt->wanted && !alt->next_ms));
}

/*
 * The most recently used of the due entries; if none is due, *ret_ms is the time until one is, 0 =
 * never.
 */
static struct symstore_entry *choose_entry(struct symstore *s, bool here, u64 *ret_ms)
{
	struct symstore_entry *best = NULL;
	u64 now = tick_ms(), next = 0;

	map_foreach (&s->by_id, slot) {
		struct symstore_entry *e = (struct symstore_entry *)slot->value;

		if (!(here && e->unname) && (!e->wanted || !e->file.bytes == here ||
					     (here ? waits_for_alt(s, e) : !can_fetch(s, e))))
			continue;
		if (e->next_ms > now) {
			next = next ? MIN(next, e->next_ms) : e->next_ms;
			continue;
		}
		if (!best || e->used_ms > best->used_ms)
			best = e;
	}
	*ret_ms = next ? next - now : 0;
	return best;
}

/* Asks for files for unnamed frames that were written before this server started. */
static void look_back(struct symstore *s)
{
	struct symstore_missing m = {};
	struct diag d = {};
	u64 now = clock_epoch_ms();

	if (symstore_missing(s->o.store, now - LOOK_BACK_MS, now, &m, &d) < 0)
		log_warn("symbols: %s", d.text);
	pthread_mutex_lock(&s->lock);
	vec_foreach (&m.binaries, b)
		symstore_want(s, b->build_id, b->path);
	pthread_mutex_unlock(&s->lock);
	symstore_missing_deinit(&m);
}

/* Call with the lock, which the function releases while it works. Returns when to look again. */
static u64 look_at_others(struct symstore *s)
{
	struct diag d = {};
	int r;

	pthread_mutex_unlock(&s->lock);
	r = symstore_keep_shared(s, &d);
	if (r < 0)
		log_debug("symbols: %s", d.text[0] ? d.text : strerror(-r));
	pthread_mutex_lock(&s->lock);
	return tick_ms() + SYNC_MS;
}

static void work_on(struct symstore *s, bool here)
{
	u64 look_ms = 0;

	pthread_mutex_lock(&s->lock);
	while (!atomic_load(&s->stopping)) {
		struct symstore_entry *e;
		u64 ms;

		if (s->is_shared && !here && tick_ms() >= look_ms)
			look_ms = look_at_others(s);
		e = choose_entry(s, here, &ms);
		if (s->is_shared && !here)
			ms = MIN(ms ? ms : SYNC_MS, SYNC_MS);
		if (e && here && e->unname)
			unname_entry(s, e);
		else if (e && here)
			name_entry(s, e);
		else if (e)
			fetch_entry(s, e);
		else if (ms)
			(void)thread_wait(&s->wake, &s->lock, ms * 1000000);
		else
			pthread_cond_wait(&s->wake, &s->lock);
	}
	pthread_mutex_unlock(&s->lock);
}

static void *namer(void *arg)
{
	work_on(arg, true);
	return NULL;
}

static void *fetcher(void *arg)
{
	struct symstore *s = arg;

	if (s->o.debuginfod_urls)
		look_back(s);
	work_on(s, false);
	return NULL;
}

int symstore_start(struct symstore *s)
{
	int r = thread_start(&s->threads[0], "symbols-namer", namer, s);

	if (r < 0)
		return r;
	s->n_threads = 1;
	if (!s->o.debuginfod_urls && !s->is_shared)
		return 0;
	r = thread_start(&s->threads[1], "symbols-fetcher", fetcher, s);
	s->n_threads += r == 0;
	return r;
}
