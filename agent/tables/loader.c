/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/tables/loader.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/worker.h"
#include "symbol/debugfile.h"
#include "unwind/unwind.h"

/*
 * Finished pages that are not urgent are announced in groups of this size, or when none are left.
 */
#define TELL_PAGES 16

struct loader_file {
	struct loader *loader; /* borrowed */
	void *user;
	u32 n_jobs;		/* queued or running; belongs to the owner */
	bool closed;		/* atomic */
	int fd;			/* owned; -1: `elf` is open, or could not be opened */
	struct elf_file *elf;	/* owned, like the next two */
	struct elf_file *debug; /* NULL: there is none, or it has no unwind information */
	struct unwind_source *source;
	u32 n_rules; /* passed to the owner so far */
	int error;   /* why `source` could not be created */
	u8 *built;   /* owned: one bit for each page of the source */

	struct unwind_rule *rules; /* owned: rules of a source that was freed; NULL: none was */
	u64 asked_ns;		   /* belongs to the owner, like the next */
	struct loader_file *next, **prev;
};

/* A page of a file or, without a file, a function call. */
struct job {
	struct worker_job base;
	struct loader_file *file; /* borrowed, or NULL */
	struct loader_page page;
	void (*fn)(void *arg), (*done)(void *arg);
	void *arg;
};

struct loader {
	struct worker *worker;
	int debug_root; /* borrowed */
	u64 max_section;
	struct budget *budget;	   /* borrowed, or NULL */
	bool tight;		   /* belongs to the owner */
	u32 *rows;		   /* the worker's memory for one page */
	struct loader_file *files; /* belongs to the owner */
};

void loader_page_deinit(struct loader_page *p)
{
	free(p->lines);
	free(p->rules);
	*p = (struct loader_page){};
}

/* ---- the worker ---- */

/* The debug file is found by build-id only: the target controls the path. */
static int add_debug_file(struct loader_file *f)
{
	struct debugfile_place place = {.root_fd = f->loader->debug_root};
	u64 n = unwind_source_info(f->source)->n_fdes;
	int r = debugfile_find(f->elf, &place, &f->debug, NULL);

	if (r == 0)
		f->debug->max_memory = f->loader->max_section;

	if (r < 0)
		return r == -ENOMEM ? r : 0;
	r = unwind_source_add_debug_file(f->source, f->debug);
	if (r == 0 && unwind_source_info(f->source)->n_fdes == n) {
		elf_file_destroy(f->debug);
		f->debug = NULL;
	}
	return r;
}

static int open_source(struct loader_file *f)
{
	int r = 0;

	if (!f->elf && f->fd >= 0) {
		r = elf_file_open(f->fd, NULL, &f->elf);
		f->fd = -1;
	}
	if (r == 0 && f->elf)
		f->elf->max_memory = f->loader->max_section;
	if (r == 0)
		r = f->elf ? unwind_source_create(f->elf, &f->source) : -ENOEXEC;
	if (r == 0)
		r = add_debug_file(f);
	if (r == 0 && f->rules)
		r = unwind_source_continue(f->source, f->rules, f->n_rules);
	if (r < 0 || f->built)
		return r;
	f->built = calloc(unwind_source_info(f->source)->n_pages / 8 + 1, 1);
	return f->built ? 0 : -ENOMEM;
}

/* False: the page was built before, and nothing waits for it. */
static bool is_wanted(struct loader_file *f, const struct job *j)
{
	const struct unwind_source_info *info = unwind_source_info(f->source);
	u64 i = j->page.page - info->first_page;

	return j->base.urgency == LOADER_NOW || i >= info->n_pages ||
	       !(f->built[i / 8] & 1u << i % 8);
}

static void note_built(struct loader_file *f, u64 page)
{
	u64 i = page - unwind_source_info(f->source)->first_page;

	f->built[i / 8] |= (u8)(1u << i % 8);
}

/* Estimates the bytes that building takes; for an open source, the bytes that it computes. */
static u64 estimate_bytes(const struct loader *l, const struct loader_file *f)
{
	struct stat st = {};
	u64 n;

	if (f->elf)
		n = f->elf->size;
	else
		n = f->fd >= 0 && fstat(f->fd, &st) == 0 ? (u64)st.st_size : 0;
	n = MIN(n, l->max_section ? l->max_section : ~0ULL);
	return f->source ? n / 2 : n * 2;
}

static int build_page(struct loader *l, struct job *j)
{
	struct loader_file *f = j->file;
	struct loader_page *p = &j->page;
	const struct unwind_rule *rules;
	u32 n_rules;
	int r;

	if (!f->source && !f->error)
		f->error = open_source(f);
	if (f->error)
		return f->error;
	if (!is_wanted(f, j))
		return -EEXIST;
	r = unwind_source_rows(f->source, p->page, l->rows, &p->n_rows);
	if (r < 0)
		return r;
	p->n_lines = unwind_page_n_lines(p->n_rows);
	p->lines = calloc(p->n_lines, UNWIND_LINE_BYTES);
	rules = unwind_source_rules(f->source, &n_rules);
	p->n_rules = n_rules - f->n_rules;
	p->rules = p->n_rules ? reallocarray(NULL, p->n_rules, sizeof(*rules)) : NULL;
	if (!p->lines || (p->n_rules && !p->rules))
		return -ENOMEM;
	unwind_page_pack(l->rows, p->n_rows, p->lines);
	if (p->n_rules)
		memcpy(p->rules, rules + f->n_rules, p->n_rules * sizeof(*rules));
	f->n_rules = n_rules;
	note_built(f, p->page);
	return 0;
}

static int build_in_budget(struct loader *l, struct job *j)
{
	u64 room = budget_limit(l->budget) ? estimate_bytes(l, j->file) : 0;
	int r;

	if (!budget_begin(l->budget, room))
		return -ENOBUFS;
	r = build_page(l, j);
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
	if (__atomic_load_n(&j->file->closed, __ATOMIC_RELAXED))
		p->error = -ESTALE;
	else
		p->error = build_in_budget(arg, j);
	if (p->error < 0) {
		free(p->lines);
		free(p->rules);
		p->lines = NULL;
		p->rules = NULL;
		p->n_rows = p->n_lines = p->n_rules = 0;
	}
}

/* ---- the owner ---- */

static void file_free(struct loader_file *f)
{
	*f->prev = f->next;
	if (f->next)
		f->next->prev = f->prev;
	free(f->rules);
	unwind_source_destroy(f->source);
	elf_file_destroy(f->debug);
	elf_file_destroy(f->elf);
	free(f->built);
	if (f->fd >= 0)
		close(f->fd);
	free(f);
}

int loader_open(struct loader *l, const struct elf_file *elf, void *user, struct loader_file **ret)
{
	struct loader_file *f = calloc(1, sizeof(*f));
	int r = 0;

	if (!f)
		return -ENOMEM;
	f->loader = l;
	f->user = user;
	f->fd = -1;
	if (elf->fd >= 0) {
		f->fd = fcntl(elf->fd, F_DUPFD_CLOEXEC, 0);
		r = f->fd < 0 ? -errno : 0;
	} else {
		r = elf_file_open_memory(elf->image, elf->size, NULL, &f->elf);
	}
	f->next = l->files;
	f->prev = &l->files;
	if (f->next)
		f->next->prev = &f->next;
	l->files = f;
	if (r < 0) {
		file_free(f);
		return r;
	}
	*ret = f;
	return 0;
}

void loader_close(struct loader_file *f)
{
	if (!f)
		return;
	__atomic_store_n(&f->closed, true, __ATOMIC_RELAXED);
	f->user = NULL;
	if (!f->n_jobs)
		file_free(f);
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

/* Frees the source but keeps its rules. No jobs of the file exist, so the owner may do that. */
static bool free_source(struct loader_file *f)
{
	const struct unwind_rule *rules;
	struct unwind_rule *copy;
	u32 n;

	if (f->elf->fd < 0)
		return false;
	rules = unwind_source_rules(f->source, &n);
	copy = reallocarray(NULL, n, sizeof(*copy));
	if (!copy)
		return false;
	f->fd = fcntl(f->elf->fd, F_DUPFD_CLOEXEC, 0);
	if (f->fd < 0) {
		free(copy);
		return false;
	}
	memcpy(copy, rules, n * sizeof(*copy));
	free(f->rules);
	f->rules = copy;
	f->n_rules = n;
	unwind_source_destroy(f->source);
	elf_file_destroy(f->debug);
	elf_file_destroy(f->elf);
	f->source = NULL;
	f->debug = f->elf = NULL;
	return true;
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
		if (f->loader->tight && !f->n_jobs && !f->error && f->source)
			(void)free_source(f);
		return true;
	}
	loader_page_deinit(&j->page);
	if (!f->n_jobs)
		file_free(f);
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
}

void loader_set_max_section(struct loader *l, u64 bytes)
{
	l->max_section = bytes;
}

void loader_set_tight(struct loader *l, bool tight)
{
	l->tight = tight;
}

u32 loader_trim(struct loader *l, u64 idle_ns)
{
	u64 now = clock_ns(CLOCK_MONOTONIC);
	u32 n = 0;

	for (struct loader_file *f = l->files; f; f = f->next)
		if (!f->n_jobs && !f->error && f->source && now - f->asked_ns >= idle_ns)
			n += free_source(f);
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

int loader_create(int debug_root, struct loader **ret)
{
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
	l->rows = reallocarray(NULL, UNWIND_PAGE_BYTES, sizeof(*l->rows));
	r = l->rows ? worker_create(&o, &l->worker) : -ENOMEM;
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
	worker_destroy(l->worker);
	free(l->rows);
	free(l);
}
