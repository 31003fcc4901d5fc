/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/tables/tables.h"

#include <bpf/bpf.h>
#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "abi/sample.h"
#include "agent/tables/lines.h"
#include "agent/tables/loader.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/map.h"
#include "base/vec.h"
#include "unwind/unwind.h"

/*
 * 8 MiB of code: some 100 ms (Python 3.15 has 6). Larger binaries are loaded with pauses: Node.js
 * has 2000 pages.
 */
#define SOON_PAGES 512
/* Pages that a round of eviction gives up at least: typically 64 * 5 KiB. */
#define EVICT_PAGES 64

/* The tables of a binary in the arena; procman_binary.user points to it. */
struct table {
	struct procman_binary *binary; /* borrowed until binary_gone() */
	struct loader_file *file;      /* owned; opened for the first page */
	u64 first_page;
	u32 n_pages;
	u32 line; /* of its struct unwind_binary */
	u32 dir, dir_lines;
	u32 rules, rules_lines;
	vec(struct unwind_rule) all;
	u32 n_rules;  /* rules copied into the arena so far */
	u32 n_loaded; /* pages in `pages` below */
	bool whole;   /* tables_load_binary() was called */
	bool broken;  /* rules are missing */
	u8 *asked;    /* owned: a bit for each page that something waits for */
};

/* Loaded pages, oldest first. */
struct loaded_page {
	struct table *table; /* NULL: its binary was removed */
	u32 page;	     /* index in the directory */
};

/* A set of mappings in the arena, shared by the processes that have it. */
struct slice {
	u64 mappings_id;
	u32 line, n_lines, n;
	u32 refs;
};

struct tables {
	struct lines lines;
	int processes_fd;
	struct map slices;    /* mappings_id → struct slice *, owned */
	struct map processes; /* image → struct slice *, a reference each */
	struct map contexts; /* image → index of its struct context_process; the rest have none */
	vec(struct loaded_page) pages;
	size_t oldest;	   /* index in `pages` */
	u64 evicted_ns;	   /* when the last round of eviction evicted a page */
	u32 evicted_lines; /* by that round */
	struct loader *loader;
	u32 (*runtime_of)(void *arg, const struct procman_process *p,
			  const struct procman_mapping *m);
	void *arg;
	struct tables_stats stats;
};

static void open_cache(struct tables *t, const char *dir)
{
	int r = dir ? loader_set_cache(t->loader, dir) : 0;

	if (r == -EPERM)
		log_warn("%s: not used as a cache of unwind rows: it belongs to another user, or "
			 "others may write to it",
			 dir);
	else if (r < 0)
		log_debug("%s: no cache of unwind rows: %s", dir, strerror(-r));
}

int tables_create(const struct tables_options *o, struct tables **ret)
{
	struct tables *t = calloc(1, sizeof(*t));
	u32 first;
	int r;

	if (!t)
		return -ENOMEM;
	t->processes_fd = o->processes_fd;
	t->runtime_of = o->runtime_of;
	t->arg = o->arg;
	r = lines_init(&t->lines, o->arena_fd, o->budget_bytes);
	if (r == 0)
		r = loader_create(-1, o->parsers, &t->loader);
	if (r == 0) {
		loader_set_gentle(t->loader, true);
		loader_set_max_section(t->loader, o->max_section);
		loader_set_budget(t->loader, o->budget);
		open_cache(t, o->cache_dir);
	}
	if (r == 0)
		r = lines_alloc(&t->lines, 1, &first); /* open the first chunk now, not later */
	if (r < 0) {
		tables_destroy(t);
		return r;
	}
	lines_free(&t->lines, first, 1);
	*ret = t;
	return 0;
}

void tables_destroy(struct tables *t)
{
	if (!t)
		return;
	map_foreach (&t->slices, slot)
		free((void *)slot->value);
	map_deinit(&t->slices);
	map_deinit(&t->processes);
	map_deinit(&t->contexts);
	loader_destroy(t->loader); /* it may own a chunk that is being opened */
	lines_deinit(&t->lines);
	vec_deinit(&t->pages);
	free(t);
}

static struct unwind_page *page_record(struct tables *t, const struct table *table, u32 page)
{
	struct unwind_page *dir = lines_at(&t->lines, table->dir);

	return &dir[page];
}

/* Returns the number of lines that rest now. */
static u32 evict_page(struct tables *t, struct table *table, u32 page)
{
	struct unwind_page *record = page_record(t, table, page);
	struct unwind_page old = *record;
	u32 n_lines = unwind_page_n_lines(old.n_rows);

	__atomic_store_n((u64 *)record, 0, __ATOMIC_RELEASE);
	lines_free(&t->lines, old.line, n_lines);
	t->stats.rows -= old.n_rows;
	t->stats.row_bytes -= (u64)n_lines * UNWIND_LINE_BYTES;
	t->stats.pages_loaded--;
	table->n_loaded--;
	return n_lines;
}

/*
 * Evicts the pages that were loaded first, for an allocation of n lines that failed. A round evicts
 * EVICT_PAGES, and more until n lines are evicted. Allocations that fail while these lines rest
 * belong to the same round: they evict nothing unless they want more lines than the round evicted.
 * Otherwise each page of a burst would evict a batch, and the burst would evict everything.
 */
static void evict_oldest(struct tables *t, u32 n)
{
	u32 n_pages = 0, min_pages = 0;

	if (clock_ns(CLOCK_MONOTONIC) - t->evicted_ns > UNWIND_GRACE_NS) {
		t->evicted_lines = 0;
		min_pages = EVICT_PAGES;
	}
	while (t->oldest < t->pages.n && (n_pages < min_pages || t->evicted_lines < n)) {
		struct loaded_page *p = &t->pages.data[t->oldest++];

		if (!p->table)
			continue;
		t->evicted_lines += evict_page(t, p->table, p->page);
		n_pages++;
	}
	if (n_pages)
		t->evicted_ns = clock_ns(CLOCK_MONOTONIC);
	t->stats.pages_evicted += n_pages;
	if (t->oldest > 4096 && t->oldest * 2 > t->pages.n) {
		t->pages.n -= t->oldest;
		memmove(t->pages.data, t->pages.data + t->oldest,
			t->pages.n * sizeof(*t->pages.data));
		t->oldest = 0;
	}
}

static void spare_open(void *arg)
{
	lines_spare_open(arg);
}

static void spare_done(void *arg)
{
	lines_spare_done(arg);
}

/* Opens the next chunk in advance, in the loader's thread. */
static void open_next_chunk(struct tables *t)
{
	struct lines_spare *s = lines_spare_wanted(&t->lines);

	if (s && loader_call(t->loader, spare_open, spare_done, s) < 0)
		lines_spare_done(s);
}

/*
 * Allocates lines. If the budget is used up, it evicts old pages and fails: evicted lines become
 * usable after the grace period, and the caller's object is requested again later.
 */
static int alloc_lines(struct tables *t, u32 n, u32 *ret_line)
{
	int r;

	lines_tidy(&t->lines);
	r = lines_alloc(&t->lines, n, ret_line);
	open_next_chunk(t);
	if (r == -ENOSPC) {
		evict_oldest(t, n);
		t->stats.no_memory++;
	}
	return r;
}

static u32 lines_for(u64 bytes)
{
	return (u32)((bytes + UNWIND_LINE_BYTES - 1) / UNWIND_LINE_BYTES);
}

/* Copies new rules into the arena; moves all rules to a larger run if they do not fit. */
static int publish_rules(struct tables *t, struct table *table)
{
	struct unwind_binary *record = lines_at(&t->lines, table->line);
	union {
		struct {
			u32 rules, n_rules;
		} f;
		u64 word;
	} u;
	const struct unwind_rule *rules = table->all.data;
	u32 n = (u32)table->all.n, line = table->rules, n_lines = table->rules_lines;
	int r;

	if (n == table->n_rules)
		return 0;
	if (lines_for((u64)n * sizeof(*rules)) > n_lines) {
		n_lines = lines_for((u64)n * sizeof(*rules) * 3 / 2);
		r = alloc_lines(t, n_lines, &line);
		if (r < 0)
			return r;
	}
	memcpy(lines_at(&t->lines, line), rules, n * sizeof(*rules));
	u.f.rules = line;
	u.f.n_rules = n;
	__atomic_store_n((u64 *)&record->rules, u.word, __ATOMIC_RELEASE);
	if (line != table->rules) {
		lines_free(&t->lines, table->rules, table->rules_lines);
		table->rules = line;
		table->rules_lines = n_lines;
	}
	t->stats.rules += n - table->n_rules;
	table->n_rules = n;
	return 0;
}

static void table_free(struct tables *t, struct table *table)
{
	if (table->line)
		t->stats.binaries--;
	t->stats.rules -= table->n_rules;
	lines_free(&t->lines, table->rules, table->rules_lines);
	lines_free(&t->lines, table->dir, table->dir_lines);
	lines_free(&t->lines, table->line, 1);
	loader_close(table->file);
	vec_deinit(&table->all);
	free(table->asked);
	free(table);
}

/* Returns the range of pages that contain code of the file. */
static bool text_pages(const struct elf_file *elf, u64 *ret_first, u32 *ret_n)
{
	u64 lo = ~0ULL, hi = 0, n;

	for (u32 i = 0; i < elf->n_segments; i++) {
		const struct elf_segment *s = &elf->segments[i];
		u64 end;

		if (!(s->flags & PF_X) || !s->memsz ||
		    __builtin_add_overflow(s->svma, s->memsz - 1, &end))
			continue;
		lo = MIN(lo, s->svma >> UNWIND_PAGE_SHIFT);
		hi = MAX(hi, end >> UNWIND_PAGE_SHIFT);
	}
	n = hi - lo + 1;
	/* The directory must fit in a chunk: 8 GiB of code. */
	if (lo > hi || n > (LINES_PER_CHUNK - 1) * (UNWIND_LINE_BYTES / sizeof(struct unwind_page)))
		return false;
	*ret_first = lo;
	*ret_n = (u32)n;
	return true;
}

/* Writes the binary's record and an empty directory to the arena. */
static int table_publish(struct tables *t, struct table *table)
{
	struct unwind_binary *record;
	int r;

	table->dir_lines = lines_for((u64)table->n_pages * sizeof(struct unwind_page));
	r = alloc_lines(t, table->dir_lines, &table->dir);
	if (r < 0)
		return r;
	r = alloc_lines(t, 1, &table->line);
	if (r < 0)
		return r;
	record = lines_at(&t->lines, table->line);
	*record = (struct unwind_binary){
		.first_page = table->first_page,
		.n_pages = table->n_pages,
		.dir = table->dir,
		.file_id = table->binary->file_id,
	};
	t->stats.binaries++;
	return 0;
}

/* Returns the binary's table, created at its first mapping; NULL: it cannot have one. */
static struct table *table_get(struct tables *t, struct procman_binary *b)
{
	struct table *table = b->user;

	if (table || !b->elf)
		return table;
	table = calloc(1, sizeof(*table));
	if (!table)
		return NULL;
	table->binary = b;
	if (text_pages(b->elf, &table->first_page, &table->n_pages))
		table->asked = calloc(table->n_pages / 8 + 1, 1);
	if (!table->asked || table_publish(t, table) < 0) {
		table_free(t, table);
		return NULL;
	}
	b->user = table;
	return table;
}

static void binary_gone(void *arg, struct procman_binary *b)
{
	struct table *table = b->user;
	struct tables *t = arg;

	if (!table)
		return;
	for (size_t i = t->oldest; table->n_loaded && i < t->pages.n; i++) {
		struct loaded_page *p = &t->pages.data[i];

		if (p->table != table)
			continue;
		(void)evict_page(t, table, p->page);
		p->table = NULL;
	}
	table_free(t, table);
	b->user = NULL;
}

static int request_pages(struct tables *t, struct table *table, const u64 *pages, u32 n,
			 enum loader_urgency urgency)
{
	int r = 0;

	if (!table->file)
		r = loader_open(t->loader, table->binary->elf, table, &table->file);
	return r < 0 ? r : loader_ask(table->file, pages, n, urgency);
}

int tables_load_page(struct tables *t, struct procman_binary *b, u64 svma)
{
	struct table *table = table_get(t, b);
	u64 page, asked;
	int r;

	if (!table)
		return -ENOENT;
	page = (svma >> UNWIND_PAGE_SHIFT) - table->first_page;
	if (page >= table->n_pages)
		return -ENOENT;
	if (page_record(t, table, (u32)page)->line)
		return 0;
	if (table->asked[page / 8] & 1u << page % 8)
		return -EALREADY;
	asked = svma >> UNWIND_PAGE_SHIFT;
	r = request_pages(t, table, &asked, 1, LOADER_NOW);
	if (r < 0)
		return r;
	table->asked[page / 8] |= (u8)(1u << page % 8);
	return -EINPROGRESS;
}

/*
 * Stores the rules of a page, even if the page itself is dropped: rows refer to rules by number,
 * and without one of them no page of the file is valid.
 */
static void add_rules(struct table *table, const struct loader_page *p)
{
	if (vec_reserve(&table->all, table->all.n + p->n_rules) < 0)
		table->broken = true;
	for (u32 i = 0; i < p->n_rules && !table->broken; i++)
		(void)vec_push(&table->all, p->rules[i]);
}

/* Writes a page into the arena. */
static int publish_page(struct tables *t, struct table *table, const struct loader_page *p)
{
	struct loaded_page loaded = {.table = table, .page = (u32)(p->page - table->first_page)};
	union {
		struct unwind_page p;
		u64 word;
	} u = {.p.n_rows = (u16)p->n_rows};
	int r;

	r = alloc_lines(t, p->n_lines, &u.p.line);
	if (r < 0)
		return r;
	memcpy(lines_at(&t->lines, u.p.line), p->lines, (size_t)p->n_lines * UNWIND_LINE_BYTES);
	r = publish_rules(t, table);
	if (r == 0)
		r = vec_push(&t->pages, loaded);
	if (r < 0) {
		lines_free(&t->lines, u.p.line, p->n_lines);
		return r;
	}
	__atomic_store_n((u64 *)page_record(t, table, loaded.page), u.word, __ATOMIC_RELEASE);
	table->n_loaded++;
	t->stats.pages_loaded++;
	t->stats.rows += p->n_rows;
	t->stats.row_bytes += (u64)p->n_lines * UNWIND_LINE_BYTES;
	return 0;
}

/*
 * Whether code of the page can run: not between segments, and not in what BOLT has replaced by a
 * copy (python-build-standalone: 342 of 1740 pages run).
 */
static bool page_runs(const struct table *table, const struct elf_section *old, u32 page)
{
	const struct elf_file *elf = table->binary->elf;
	u64 start = (table->first_page + page) << UNWIND_PAGE_SHIFT;
	u64 end = start + UNWIND_PAGE_BYTES;

	if (start >= old->svma && end - old->svma <= old->size)
		return false;
	for (u32 i = 0; i < elf->n_segments; i++) {
		const struct elf_segment *s = &elf->segments[i];

		if (s->flags & PF_X && s->svma < end &&
		    (start <= s->svma || start - s->svma < s->memsz))
			return true;
	}
	return false;
}

/* The code that BOLT has replaced; size 0: none. */
static struct elf_section code_left(const struct table *table)
{
	struct elf_section old = {};

	if (elf_file_section(table->binary->elf, ".bolt.org.text", &old, NULL) < 0)
		old = (struct elf_section){};
	return old;
}

int tables_load_binary(struct tables *t, struct procman_binary *b)
{
	_cleanup_free_ u64 *pages = NULL;
	struct table *table = table_get(t, b);
	struct elf_section old;
	u32 n = 0;

	if (!table || table->whole)
		return 0;
	table->whole = true;
	pages = calloc(table->n_pages, sizeof(*pages));
	if (!pages)
		return -ENOMEM;
	old = code_left(table);
	for (u32 i = 0; i < table->n_pages; i++)
		if (page_runs(table, &old, i))
			pages[n++] = table->first_page + i;
	return request_pages(t, table, pages, n, n > SOON_PAGES ? LOADER_LATER : LOADER_SOON);
}

void tables_set_tight(struct tables *t, bool tight)
{
	loader_set_tight(t->loader, tight);
}

u32 tables_trim(struct tables *t, u64 idle_ns)
{
	return loader_trim(t->loader, idle_ns);
}

int tables_fd(const struct tables *t)
{
	return loader_fd(t->loader);
}

u32 tables_take(struct tables *t, bool wait)
{
	struct loader_page p;
	u32 n = 0;

	for (; loader_take(t->loader, wait && !n, &p); n++) {
		struct table *table = p.user;
		u32 page = (u32)(p.page - table->first_page);

		table->asked[page / 8] &= (u8) ~(1u << page % 8);
		t->stats.no_memory += p.error == -ENOBUFS;
		add_rules(table, &p);
		if (p.n_lines && !table->broken && !page_record(t, table, page)->line)
			(void)publish_page(t, table, &p);
		loader_page_deinit(&p);
	}
	return n;
}

bool tables_busy(const struct tables *t)
{
	return loader_busy(t->loader);
}

void tables_hurry(struct tables *t, bool hurry)
{
	loader_set_gentle(t->loader, !hurry);
}

static void slice_put(struct tables *t, struct slice *s)
{
	if (--s->refs)
		return;
	map_del(&t->slices, s->mappings_id, NULL);
	lines_free(&t->lines, s->line, s->n_lines);
	t->stats.slices--;
	free(s);
}

static struct unwind_mapping mapping_entry(struct tables *t, const struct procman_process *p,
					   const struct procman_mapping *m)
{
	struct table *table = table_get(t, m->binary);
	u32 file = procman_binary_is_jit(m->binary) ? 0 : m->binary->file_id;
	u32 runtime = t->runtime_of ? t->runtime_of(t->arg, p, m) : 0;

	return (struct unwind_mapping){
		.start = m->start,
		.end = m->end,
		.bias = m->bias,
		.binary = table ? table->line : 0,
		.file = file << 8 | runtime << UNWIND_MAPPING_RUNTIME_SHIFT |
			(table ? 0 : UNWIND_MAPPING_FP),
	};
}

/* Returns the slice with the process's mappings, with a reference for the caller. */
static int slice_get(struct tables *t, const struct procman_process *p, struct slice **ret)
{
	u64 *known = map_get(&t->slices, p->mappings_id);
	struct unwind_mapping *to;
	struct slice *s;
	int r = 0;

	if (known) {
		*ret = (struct slice *)*known;
		(*ret)->refs++;
		return 0;
	}
	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	s->refs = 1;
	s->mappings_id = p->mappings_id;
	s->n = (u32)MIN(p->n, UNWIND_MAX_MAPPINGS - UNWIND_MAPPINGS_PER_LINE * 2);
	s->n_lines = lines_for((u64)s->n * sizeof(*to));
	if (s->n)
		r = alloc_lines(t, s->n_lines, &s->line);
	if (r == 0)
		r = map_put(&t->slices, s->mappings_id, (u64)s);
	if (r < 0) {
		lines_free(&t->lines, s->line, s->n_lines);
		free(s);
		return r;
	}
	t->stats.slices++;
	to = lines_at(&t->lines, s->line);
	for (u32 i = 0; i < s->n; i++)
		to[i] = mapping_entry(t, p, &p->mappings[i]);
	*ret = s;
	return 0;
}

void tables_unmark(struct tables *t, u32 file_id)
{
	map_foreach (&t->slices, slot) {
		const struct slice *s = (const struct slice *)slot->value;
		struct unwind_mapping *m = lines_at(&t->lines, s->line);

		for (u32 i = 0; m && i < s->n; i++)
			if (m[i].file >> 8 == file_id)
				__atomic_and_fetch(&m[i].file, ~(u32)UNWIND_MAPPING_RUNTIME,
						   __ATOMIC_RELAXED);
	}
}

/* Writes the process's entry in BPF's map. */
static int write_entry(struct tables *t, const struct procman_process *p, const struct slice *s)
{
	const u64 *context = map_get(&t->contexts, p->image);
	struct process_entry entry = {.start_stack = p->start_stack,
				      .exec_id = p->exec_id,
				      .image = p->image,
				      .mappings_id = s->mappings_id,
				      .slice = s->line,
				      .n = s->n,
				      .context = context ? (u32)*context : 0};

	return bpf_map_update_elem(t->processes_fd, &p->pid, &entry, BPF_ANY) < 0 ? -errno : 0;
}

void tables_set_context(struct tables *t, const struct procman_process *p, u32 index)
{
	const u64 *known = map_get(&t->processes, p->image);

	if (!index || map_put(&t->contexts, p->image, index) < 0)
		map_del(&t->contexts, p->image, NULL);
	if (known && write_entry(t, p, (const struct slice *)*known) < 0)
		log_debug("pid %u: BPF was not told how it publishes", p->pid);
}

int tables_update_process(struct tables *t, const struct procman_process *p)
{
	u64 *known = map_get(&t->processes, p->image);
	struct slice *old = known ? (struct slice *)*known : NULL;
	struct slice *s;
	int r = slice_get(t, p, &s);

	if (r < 0)
		return r;
	r = map_put(&t->processes, p->image, (u64)s);
	if (r < 0) {
		slice_put(t, s);
		return r;
	}
	r = write_entry(t, p, s);
	if (r == -E2BIG) {
		t->stats.no_room++;
		log_warn_rarely(
			"BPF's map of %zu processes is full: samples of other processes are walked in user space as far as time permits",
			t->processes.n - 1);
	}
	if (r < 0) {
		map_del(&t->processes, p->image, NULL);
		bpf_map_delete_elem(t->processes_fd, &p->pid);
		slice_put(t, s);
	}
	/* BPF does not use the old slice any more. */
	if (old)
		slice_put(t, old);
	return r;
}

int tables_retry_process(struct tables *t, const struct procman_process *p)
{
	return map_get(&t->processes, p->image) ? 0 : tables_update_process(t, p);
}

static void remove_image(struct tables *t, u32 pid, u64 image)
{
	u64 slice;

	map_del(&t->contexts, image, NULL);
	if (!map_del(&t->processes, image, &slice))
		return;
	bpf_map_delete_elem(t->processes_fd, &pid);
	slice_put(t, (struct slice *)slice);
}

static void process_changed(void *arg, const struct procman_process *p)
{
	int r = procman_can_be_sampled(p) ? tables_update_process(arg, p) : 0;

	if (r < 0 && r != -ENOSPC)
		log_debug("tables of process %u: %s", p->pid, strerror(-r));
}

static void process_exec(void *arg, const struct procman_process *p, u64 before)
{
	remove_image(arg, p->pid, before);
}

/*
 * Frees the process's entry in BPF's map at once. procman keeps what the host needs to finish its
 * walks for some seconds.
 */
static void process_ended(void *arg, const struct procman_process *p)
{
	remove_image(arg, p->pid, p->image);
}

const struct procman_listener tables_listener = {
	.process_changed = process_changed,
	.process_exec = process_exec,
	.process_ended = process_ended,
	.binary_gone = binary_gone,
};

const void *tables_line(const struct tables *t, u32 line)
{
	return lines_at(&t->lines, line);
}

int tables_slice_get(struct tables *t, const struct procman_process *p, struct slice **ret)
{
	return slice_get(t, p, ret);
}

void tables_slice_put(struct tables *t, struct slice *s)
{
	if (s)
		slice_put(t, s);
}

u32 tables_slice_line(const struct slice *s, u32 *ret_n)
{
	*ret_n = s->n;
	return s->line;
}

u32 tables_slice_file(const struct tables *t, const struct slice *s, u64 avma, u64 *ret_svma)
{
	const struct unwind_mapping *m = lines_at(&t->lines, s->line);
	u32 lo = 0, hi = m ? s->n : 0;

	while (lo < hi) {
		u32 mid = (lo + hi) / 2;

		if (m[mid].start <= avma)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (!lo || avma >= m[lo - 1].end)
		return 0;
	*ret_svma = avma - m[lo - 1].bias;
	return m[lo - 1].file >> 8;
}

void tables_stats(const struct tables *t, struct tables_stats *ret)
{
	struct loader_stats l;

	*ret = t->stats;
	ret->chunk_bytes = (u64)t->lines.n_parts * LINES_PER_CHUNK * UNWIND_LINE_BYTES;
	ret->used_bytes = t->lines.used_lines * UNWIND_LINE_BYTES;
	loader_stats(t->loader, &l);
	ret->files_given_up = l.files_given_up;
	ret->parser_cpu_ns = l.parser_cpu_ns;
	ret->parser_bytes = l.parser_bytes;
	ret->cache_hits = l.cache_hits;
	ret->cache_misses = l.cache_misses;
	ret->cache_damaged = l.cache_damaged;
}

#define COUNTER(member, help) STAT_COUNTER(struct tables_stats, member, help)
#define GAUGE(member, help) STAT_GAUGE(struct tables_stats, member, help)
const struct stat_field tables_stat_fields[] = {
	GAUGE(chunk_bytes, "BPF memory of unwind tables and mappings."),
	GAUGE(used_bytes, "Of that, in use."),
	GAUGE(binaries, "Files with unwind tables."),
	GAUGE(pages_loaded, "Pages of unwind rows that are loaded."),
	COUNTER(pages_evicted, "Pages evicted."),
	GAUGE(rows, "Unwind rows loaded."),
	GAUGE(row_bytes, "Their memory."),
	GAUGE(rules, "Rules that rows refer to."),
	GAUGE(slices, "Sets of mappings that BPF has."),
	COUNTER(no_room, "Times that a process had no room in BPF's map."),
	COUNTER(files_given_up, "Files over which the process that parses them ended, hung or "
				"lied: new stacks end in their code."),
	GAUGE(parser_bytes, "Memory of the process that parses files."),
	COUNTER(cache_hits, "Pages of unwind rows that were on disk."),
	COUNTER(cache_misses, "Pages of unwind rows that were built and can be kept on disk."),
	COUNTER(cache_damaged, "Files and pages of the cache of unwind rows that were damaged."),
	COUNTER(no_memory, "Times that unwind tables did not fit in memory: stacks end there."),
	{},
};
