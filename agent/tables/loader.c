/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/tables/loader.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "agent/tables/rowcache.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/map.h"
#include "base/vec.h"
#include "base/worker.h"
#include "symbol/debugfile.h"
#include "unwind/unwind.h"

/*
 * Finished pages that are not urgent are announced in groups of this size, or when none are left.
 */
#define TELL_PAGES 16
/* New rows of a file are saved when there are so many pages of them; else when it is not used. */
#define SAVE_PAGES 64

struct loader_file {
	struct loader *loader; /* borrowed */
	void *user;
	u32 n_jobs;	/* queued or running; belongs to the owner */
	bool closed;	/* atomic */
	int fd;		/* owned */
	u64 size;	/* bytes, from fstat() */
	u64 id;		/* for the parser */
	u64 generation; /* of the parser that has it open; 0: none has */
	bool given_up;	/* see loader.h */
	u8 build_id[ELF_MAX_BUILD_ID];
	u32 build_id_n;
	u16 machine;
	struct row_entry *entry; /* owned, or NULL */
	bool looked_up;		 /* in the cache */
	unwind_rules rules;	 /* of its rows so far */
	u32 n_told;		 /* of these, the owner has */
	u32 n_cached, n_built;	 /* pages */
	u32 n_unsaved;
	struct map built; /* pages → 1 */
	u64 asked_ns;	  /* belongs to the owner, like the next */
	struct loader_file *next, **prev;
};

/* A page of a file, the saving of its new rows or, without a file, a function call. */
struct job {
	struct worker_job base;
	bool save;
	struct loader_file *file; /* borrowed, or NULL */
	struct loader_page page;
	void (*fn)(void *arg), (*done)(void *arg);
	void *arg;
};

struct loader {
	struct worker *worker;
	struct parser *parser; /* the worker's */
	int debug_root;	       /* borrowed */
	u64 max_section;
	struct row_cache cache; /* the worker's, and the owner's when the worker has ended */
	struct budget *budget;	/* borrowed, or NULL */
	s64 counted;		/* the worker's: bytes of the parser that the budget counts */
	u64 n_given_up;		/* atomic */
	bool tight, ending;	/* belong to the owner, like the next two */
	struct loader_file *files;
	u64 last_id;
	pthread_mutex_t lock;
	vec(u64) closing; /* under the lock: ids of files that the parser can close */
};

void loader_page_deinit(struct loader_page *p)
{
	free(p->lines);
	free(p->rules);
	*p = (struct loader_page){};
}

/* Frees the rows, but not which page it is. */
static void loader_page_clear(struct loader_page *p)
{
	free(p->lines);
	free(p->rules);
	p->lines = NULL;
	p->rules = NULL;
	p->n_rows = p->n_lines = p->n_rules = 0;
}

/* ---- the cache of rows ---- */

/* What the rows of a file depend on. A negative errno: nothing of it is cached. */
static int key_of(const struct loader *l, const struct loader_file *f, struct row_key *ret)
{
	_cleanup_close_ int debug = debugfile_open_id(l->debug_root, f->build_id, f->build_id_n);
	int r;

	row_key_init(ret, f->size, l->max_section);
	r = elf_key_of(f->fd, f->build_id, f->build_id_n, f->machine, &ret->file);
	if (r == 0 && debug >= 0)
		r = elf_key_of(debug, f->build_id, f->build_id_n, f->machine, &ret->debug);
	return r;
}

/* Before the first page of a file, so that its rules have the numbers that they have there. */
static void look_up(struct loader *l, struct loader_file *f)
{
	struct row_key key;

	if (f->looked_up)
		return;
	f->looked_up = true;
	if (l->cache.dir && key_of(l, f, &key) == 0)
		(void)row_entry_open(&l->cache, &key, &f->rules, &f->entry);
}

/* Saves new rows, if the files that they are of are still the same. */
static void save(struct loader *l, struct loader_file *f)
{
	struct row_key now;

	f->n_unsaved = 0;
	if (!f->entry || !row_entry_is_new(f->entry))
		return;
	if (key_of(l, f, &now) == 0 && !memcmp(&now, &f->entry->key, sizeof(now)))
		row_entry_save(f->entry, f->rules.data, (u32)f->rules.n);
	else
		row_entry_stop(f->entry);
}

static int alloc_lines(struct loader_page *p, u32 n_rows)
{
	p->n_rows = n_rows;
	p->n_lines = unwind_page_n_lines(n_rows);
	p->lines = calloc(p->n_lines, UNWIND_LINE_BYTES);
	return p->lines ? 0 : -ENOMEM;
}

/* Gives the owner the rules that it does not have. */
static int tell_rules(struct loader_file *f, struct loader_page *p)
{
	p->n_rules = (u32)f->rules.n - f->n_told;
	if (!p->n_rules)
		return 0;
	p->rules = reallocarray(NULL, p->n_rules, sizeof(*p->rules));
	if (!p->rules)
		return -ENOMEM;
	memcpy(p->rules, f->rules.data + f->n_told, p->n_rules * sizeof(*p->rules));
	f->n_told = (u32)f->rules.n;
	return 0;
}

/* -ENOENT: the page has to be built. */
static int page_from_cache(struct loader_file *f, struct loader_page *p)
{
	u32 n = f->entry ? row_entry_find(f->entry, p->page) : 0;
	int r;

	if (!n)
		return -ENOENT;
	r = alloc_lines(p, n);
	if (r < 0)
		return r;
	if (row_entry_read(f->entry, p->page, (u32)f->rules.n, unwind_page_body(p->lines, n), n) <
	    0) {
		loader_page_clear(p);
		return -ENOENT;
	}
	unwind_page_finish(p->lines, n);
	f->n_cached++;
	(void)map_put(&f->built, p->page, 1);
	return tell_rules(f, p);
}

/* ---- the worker ---- */

static void close_files(struct loader *l)
{
	vec(u64) ids = {};

	pthread_mutex_lock(&l->lock);
	ids.data = l->closing.data;
	ids.n = l->closing.n;
	l->closing.data = NULL;
	l->closing.n = l->closing.cap = 0;
	pthread_mutex_unlock(&l->lock);
	parser_close(l->parser, ids.data, ids.n);
	vec_deinit(&ids);
}

/* The debug file is found by build-id only: the target controls the path. */
static int open_file(struct loader *l, struct loader_file *f)
{
	_cleanup_close_ int debug = debugfile_open_id(l->debug_root, f->build_id, f->build_id_n);
	const struct parser_file opening = {.id = f->id,
					    .fd = f->fd,
					    .debug_fd = debug,
					    .max_section = l->max_section,
					    .rules = f->rules.data,
					    .n_rules = (u32)f->rules.n};
	int r = parser_open(l->parser, &opening);

	f->generation = r < 0 ? 0 : parser_generation(l->parser);
	return r;
}

/* False: the page was built before, and nothing waits for it. */
static bool is_wanted(struct loader_file *f, const struct job *j)
{
	return j->base.urgency == LOADER_NOW || !map_get(&f->built, j->page.page);
}

static bool is_open(const struct loader *l, const struct loader_file *f)
{
	return f->generation && f->generation == parser_generation(l->parser);
}

/* Estimates the bytes that building takes; for an open file, the bytes that it computes. */
static u64 estimate_bytes(const struct loader *l, const struct loader_file *f)
{
	u64 n = MIN(f->size, l->max_section ? l->max_section : ~0ULL);

	return is_open(l, f) ? n / 2 : n * 2;
}

/* Stays so: what was built before stays, too. */
static void give_up(struct loader *l, struct loader_file *f, int error)
{
	const char *what = error == -EIO	 ? "ended over"
			   : error == -ETIMEDOUT ? "was too slow with"
						 : "gave wrong rows for";
	char link[32], path[512];
	ssize_t n;

	f->given_up = true;
	__atomic_fetch_add(&l->n_given_up, 1, __ATOMIC_RELAXED);
	snprintf(link, sizeof(link), "/proc/self/fd/%d", f->fd);
	n = readlink(link, path, sizeof(path));
	log_warn("the process that parses files %s %.*s: stacks end in code of this file that is "
		 "not loaded yet",
		 what, n < 0 ? 6 : (int)n, n < 0 ? "a file" : path);
}

/*
 * Again if the process had ended before. A process that ends over a page may have been killed by
 * somebody, so the page has a second chance.
 */
static int ask_parser(struct loader *l, struct loader_file *f, u64 page, struct parser_page *ret)
{
	bool has_ended_one = false;
	int r = -ESTALE;

	close_files(l);
	for (u32 i = 0; i < 3 && r == -ESTALE; i++) {
		r = is_open(l, f) ? 0 : open_file(l, f);
		if (r == 0)
			r = parser_build(l->parser, f->id, page, (u32)f->rules.n, ret);
		if (r == -EIO && !has_ended_one) {
			has_ended_one = true;
			r = -ESTALE;
		}
	}
	if (r == -EIO || r == -ETIMEDOUT || r == -EPROTO)
		give_up(l, f, r);
	return r;
}

static int build_page(struct loader *l, struct job *j)
{
	struct loader_file *f = j->file;
	struct loader_page *p = &j->page;
	struct parser_page got;
	int r;

	if (f->given_up)
		return -EIO;
	r = ask_parser(l, f, p->page, &got);
	if (r < 0)
		return r;
	if (alloc_lines(p, got.n_rows) < 0 || vec_reserve(&f->rules, f->rules.n + got.n_rules) < 0)
		return -ENOMEM;
	unwind_page_pack(got.rows, got.n_rows, p->lines);
	for (u32 i = 0; i < got.n_rules; i++)
		(void)vec_push(&f->rules, got.rules[i]);
	f->n_built++;
	if (f->entry) {
		row_entry_add(f->entry, p->page, got.rows, got.n_rows);
		f->n_unsaved += row_entry_is_new(f->entry);
	}
	(void)map_put(&f->built, p->page, 1);
	return tell_rules(f, p);
}

/* The parser's memory counts as this process's. */
static void count_memory(struct loader *l)
{
	s64 now = (s64)parser_usage(l->parser).bytes;

	budget_add_others(l->budget, now - l->counted);
	l->counted = now;
}

static int build_in_budget(struct loader *l, struct job *j)
{
	u64 room = budget_limit(l->budget) ? estimate_bytes(l, j->file) : 0;
	int r;

	if (!is_wanted(j->file, j))
		return -EEXIST;
	look_up(l, j->file);
	r = page_from_cache(j->file, &j->page);
	if (r != -ENOENT)
		return r;
	if (!budget_begin(l->budget, room))
		return -ENOBUFS;
	r = build_page(l, j);
	if (room)
		count_memory(l);
	budget_end(l->budget, room);
	return r;
}

static void do_job(void *arg, struct worker_job *base)
{
	struct job *j = container_of(base, struct job, base);
	struct loader_page *p = &j->page;

	if (!j->file) {
		j->fn(j->arg);
		return;
	}
	if (j->save) {
		save(arg, j->file);
		return;
	}
	if (__atomic_load_n(&j->file->closed, __ATOMIC_RELAXED))
		p->error = -ESTALE;
	else
		p->error = build_in_budget(arg, j);
	if (p->error < 0)
		loader_page_clear(p);
}

/* ---- the owner ---- */

static void flush(void *arg)
{
	struct loader *l = arg;

	close_files(l);
	if (budget_limit(l->budget))
		count_memory(l);
}

static void flushed(void *arg)
{
	(void)arg;
}

/* The worker closes it in the parser: now, or before the next page if there is no memory. */
static void close_in_parser(struct loader_file *f)
{
	struct loader *l = f->loader;
	bool first;

	if (!f->generation || l->ending)
		return;
	f->generation = 0;
	pthread_mutex_lock(&l->lock);
	first = !l->closing.n;
	(void)vec_push(&l->closing, f->id);
	pthread_mutex_unlock(&l->lock);
	/* Its number is not used again, even if the parser keeps it open for lack of memory. */
	f->id = ++l->last_id;
	if (first)
		(void)loader_call(l, flush, flushed, l);
}

static void log_pages(const struct loader_file *f)
{
	/* Not a static one: there is a line for each file. */
	struct log_site site = {};
	char link[32], path[512];
	ssize_t n;

	if (!log_enabled(LOG_LEVEL_DEBUG) || !(f->n_cached + f->n_built))
		return;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", f->fd);
	n = readlink(link, path, sizeof(path));
	log_write(&site, LOG_LEVEL_DEBUG, "%.*s: %u pages of unwind rows from the cache, %u built",
		  n < 0 ? 1 : (int)n, n < 0 ? "?" : path, f->n_cached, f->n_built);
}

static void file_free(struct loader_file *f)
{
	log_pages(f);
	save(f->loader, f);
	row_entry_close(f->entry);
	*f->prev = f->next;
	if (f->next)
		f->next->prev = f->prev;
	vec_deinit(&f->rules);
	map_deinit(&f->built);
	if (f->fd >= 0)
		close(f->fd);
	free(f);
}

/* A file for an image that was read from memory: the vDSO. */
static int file_of_image(const struct elf_file *elf)
{
	_cleanup_close_ int fd = memfd_create("image", MFD_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : pwrite(fd, elf->image, elf->size, 0);

	if (n < 0)
		return -errno;
	return (u64)n == elf->size ? take_fd(&fd) : -ENOMEM;
}

int loader_open(struct loader *l, const struct elf_file *elf, void *user, struct loader_file **ret)
{
	struct loader_file *f = calloc(1, sizeof(*f));
	int r;

	if (!f)
		return -ENOMEM;
	f->fd = elf->fd >= 0 ? fcntl(elf->fd, F_DUPFD_CLOEXEC, 0) : file_of_image(elf);
	if (f->fd < 0) {
		r = elf->fd >= 0 ? -errno : f->fd;
		free(f);
		return r;
	}
	f->loader = l;
	f->user = user;
	f->size = elf->size;
	f->id = ++l->last_id;
	f->machine = elf->machine;
	f->build_id_n = elf->build_id_n;
	memcpy(f->build_id, elf->build_id, elf->build_id_n);
	f->next = l->files;
	f->prev = &l->files;
	if (f->next)
		f->next->prev = &f->next;
	l->files = f;
	*ret = f;
	return 0;
}

/* The worker saves new rows of a file that has no jobs. False: it need not, or cannot. */
static bool ask_save(struct loader_file *f)
{
	struct job *j;

	if (!f->n_unsaved || f->loader->ending)
		return false;
	j = calloc(1, sizeof(*j));
	if (!j)
		return false;
	j->file = f;
	j->save = true;
	f->n_jobs++;
	worker_ask(f->loader->worker, &j->base, LOADER_SOON);
	return true;
}

static void finish(struct loader_file *f)
{
	if (ask_save(f))
		return;
	close_in_parser(f);
	file_free(f);
}

void loader_close(struct loader_file *f)
{
	if (!f)
		return;
	__atomic_store_n(&f->closed, true, __ATOMIC_RELAXED);
	f->user = NULL;
	if (!f->n_jobs)
		finish(f);
}

static struct job *job_new(const struct job *like)
{
	struct job *j = malloc(sizeof(*j));

	if (j)
		*j = *like;
	return j;
}

int loader_ask(struct loader_file *f, const u64 *pages, u32 n, enum loader_urgency urgency)
{
	for (u32 i = 0; i < n; i++) {
		struct job *j = job_new(
			&(struct job){.file = f, .page = {.user = f->user, .page = pages[i]}});

		if (!j)
			return -ENOMEM;
		worker_ask(f->loader->worker, &j->base, urgency);
		f->n_jobs++;
	}
	f->asked_ns = clock_ns(CLOCK_MONOTONIC);
	return 0;
}

int loader_call(struct loader *l, void (*fn)(void *arg), void (*done)(void *arg), void *arg)
{
	struct job *j = job_new(&(struct job){.fn = fn, .done = done, .arg = arg});

	if (!j)
		return -ENOMEM;
	worker_ask(l->worker, &j->base, LOADER_NOW);
	return 0;
}

void loader_set_gentle(struct loader *l, bool gentle)
{
	worker_set_gentle(l->worker, gentle);
}

/* Handles a job that the worker has finished. True: its result is still wanted. */
static bool job_done(struct job *j)
{
	struct loader_file *f = j->file;

	if (!f) {
		j->done(j->arg);
		return false;
	}
	f->n_jobs--;
	if (!f->closed) {
		if (f->loader->tight && !f->n_jobs)
			close_in_parser(f);
		if (!f->n_jobs && f->n_unsaved >= SAVE_PAGES)
			(void)ask_save(f);
		return !j->save;
	}
	loader_page_deinit(&j->page);
	if (!f->n_jobs)
		finish(f);
	return false;
}

bool loader_take(struct loader *l, bool wait, struct loader_page *ret)
{
	struct worker_job *base;
	bool wanted = false;

	while (!wanted && (base = worker_take(l->worker, wait))) {
		struct job *j = container_of(base, struct job, base);

		wanted = job_done(j);
		if (wanted)
			*ret = j->page;
		free(j);
	}
	return wanted;
}

bool loader_busy(const struct loader *l)
{
	return worker_busy(l->worker);
}

int loader_fd(const struct loader *l)
{
	return worker_fd(l->worker);
}

void loader_set_budget(struct loader *l, struct budget *b)
{
	l->budget = b;
	parser_set_limit(l->parser, budget_limit(b));
}

void loader_stats(const struct loader *l, struct loader_stats *ret)
{
	struct parser_usage u = parser_usage(l->parser);
	const struct row_cache *c = &l->cache;

	*ret = (struct loader_stats){
		.files_given_up = __atomic_load_n(&l->n_given_up, __ATOMIC_RELAXED),
		.parser_cpu_ns = u.cpu_ns,
		.parser_bytes = u.bytes,
		.cache_hits = __atomic_load_n(&c->hits, __ATOMIC_RELAXED),
		.cache_misses = __atomic_load_n(&c->misses, __ATOMIC_RELAXED),
		.cache_damaged = __atomic_load_n(&c->damaged, __ATOMIC_RELAXED),
	};
}

int loader_set_cache(struct loader *l, const char *path)
{
	return row_cache_open(path, &l->cache);
}

void loader_set_max_section(struct loader *l, u64 bytes)
{
	l->max_section = bytes;
}

void loader_set_tight(struct loader *l, bool tight)
{
	l->tight = tight;
}

/* In the worker: no file has been opened meanwhile. */
static void rest(void *arg)
{
	struct loader *l = arg;

	close_files(l);
	parser_rest(l->parser);
	if (budget_limit(l->budget))
		count_memory(l);
}

u32 loader_trim(struct loader *l, u64 idle_ns)
{
	u64 now = clock_ns(CLOCK_MONOTONIC);
	u32 n = 0, n_used = 0;

	for (struct loader_file *f = l->files; f; f = f->next) {
		n_used += f->n_jobs || f->generation;
		if (!f->n_jobs && now - f->asked_ns >= idle_ns) {
			if (f->generation) {
				close_in_parser(f);
				n++;
			}
			(void)ask_save(f);
		}
	}
	/* The parser keeps tens of MB of what it has read. */
	if (!n_used && !worker_busy(l->worker) && parser_runs(l->parser))
		(void)loader_call(l, rest, flushed, l);
	return n;
}

/* ---- life ---- */

static void drop_job(void *arg, struct worker_job *base, bool ran)
{
	struct job *j = container_of(base, struct job, base);

	(void)arg;
	(void)ran;
	if (job_done(j))
		loader_page_deinit(&j->page);
	free(j);
}

int loader_create(int debug_root, struct parsers *parsers, struct loader **ret)
{
	const struct parser_options po = {.parsers = parsers};
	struct loader *l = calloc(1, sizeof(*l));
	const struct worker_options o = {
		.name = "loader",
		/* Higher priority than most threads, lower than the reader. */
		.nice = -10,
		.run = do_job,
		.drop = drop_job,
		.arg = l,
		.tell_n = TELL_PAGES,
	};
	int r;

	if (!l)
		return -ENOMEM;
	l->debug_root = debug_root;
	pthread_mutex_init(&l->lock, NULL);
	r = parser_create(&po, &l->parser);
	if (r == 0)
		r = worker_create(&o, &l->worker);
	if (r < 0) {
		loader_destroy(l);
		return r;
	}
	*ret = l;
	return 0;
}

void loader_destroy(struct loader *l)
{
	if (!l)
		return;
	l->ending = true;
	worker_destroy(l->worker);
	budget_add_others(l->budget, -l->counted);
	parser_destroy(l->parser);
	row_cache_close(&l->cache);
	vec_deinit(&l->closing);
	pthread_mutex_destroy(&l->lock);
	free(l);
}
