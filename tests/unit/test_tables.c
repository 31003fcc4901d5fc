/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tables in the arena for BPF: mappings of processes, pages and rules of files, and eviction.
 * Chunks of the arena are plain memory, the map of processes is a bounded array, and a fake loader
 * makes the pages, so that the tests need no privilege.
 */
#include <bpf/bpf.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "abi/sample.h"
#include "agent/tables/loader.h"
#include "agent/tables/tables.h"
#include "base/clock.h"
#include "elfwriter.h"
#include "unwind/unwind.h"

#define ARENA 12345
#define PROCESSES 12346
#define CHUNK ((u64)LINES_PER_CHUNK * UNWIND_LINE_BYTES)
#define MAX_PIDS 64

/* ---- BPF's maps ---- */

static struct process_entry entries[MAX_PIDS]; /* by pid; mappings_id 0: none */
static u32 n_entries, max_entries;

int __wrap_bpf_map_create(enum bpf_map_type type, const char *name, __u32 key_size,
			  __u32 value_size, __u32 max, const struct bpf_map_create_opts *opts);
int __wrap_bpf_map_update_elem(int fd, const void *key, const void *value, __u64 flags);
int __wrap_bpf_map_delete_elem(int fd, const void *key);

int __wrap_bpf_map_create(enum bpf_map_type type, const char *name, __u32 key_size,
			  __u32 value_size, __u32 max, const struct bpf_map_create_opts *opts)
{
	int fd = memfd_create(name, MFD_CLOEXEC);

	(void)type, (void)key_size, (void)opts;
	cr_assert(fd >= 0);
	cr_assert_eq(ftruncate(fd, (off_t)value_size * max), 0);
	return fd;
}

int __wrap_bpf_map_update_elem(int fd, const void *key, const void *value, __u64 flags)
{
	u32 pid = *(const u32 *)key;

	(void)flags;
	if (fd == ARENA)
		return 0;
	cr_assert_eq(fd, PROCESSES);
	cr_assert_lt(pid, MAX_PIDS);
	if (!entries[pid].mappings_id && n_entries == max_entries) {
		errno = E2BIG;
		return -1;
	}
	n_entries += !entries[pid].mappings_id;
	memcpy(&entries[pid], value, sizeof(entries[pid]));
	return 0;
}

int __wrap_bpf_map_delete_elem(int fd, const void *key)
{
	u32 pid = *(const u32 *)key;

	if (fd == ARENA)
		return 0;
	n_entries -= entries[pid].mappings_id != 0;
	entries[pid] = (struct process_entry){};
	return 0;
}

/* ---- the loader: pages are made when they are taken ---- */

struct asked {
	void *user;
	u64 page;
};

static struct asked asked[4096];
static u32 n_asked, n_taken, n_open;
static enum loader_urgency last_urgency;
static u32 page_rows = 100, page_rules = 2;
static int page_error;

int __wrap_loader_create(int debug_root, struct parsers *parsers, struct loader **ret);
void __wrap_loader_destroy(struct loader *l);
void __wrap_loader_stats(const struct loader *l, struct loader_stats *ret);
void __wrap_loader_set_gentle(struct loader *l, bool gentle);
void __wrap_loader_set_max_section(struct loader *l, u64 bytes);
void __wrap_loader_set_budget(struct loader *l, struct budget *b);
int __wrap_loader_open(struct loader *l, const struct elf_file *elf, void *user,
		       struct loader_file **ret);
void __wrap_loader_close(struct loader_file *f);
int __wrap_loader_ask(struct loader_file *f, const u64 *pages, u32 n, enum loader_urgency urgency);
int __wrap_loader_call(struct loader *l, void (*fn)(void *), void (*done)(void *), void *arg);
bool __wrap_loader_take(struct loader *l, bool wait, struct loader_page *ret);

int __wrap_loader_create(int debug_root, struct parsers *parsers, struct loader **ret)
{
	(void)debug_root, (void)parsers;
	*ret = (struct loader *)asked;
	return 0;
}

void __wrap_loader_destroy(struct loader *l)
{
	(void)l;
	cr_assert_eq(n_open, 0, "files are closed before");
}

void __wrap_loader_stats(const struct loader *l, struct loader_stats *ret)
{
	(void)l;
	*ret = (struct loader_stats){};
}

void __wrap_loader_set_gentle(struct loader *l, bool gentle)
{
	(void)l, (void)gentle;
}

void __wrap_loader_set_max_section(struct loader *l, u64 bytes)
{
	(void)l, (void)bytes;
}

void __wrap_loader_set_budget(struct loader *l, struct budget *b)
{
	(void)l, (void)b;
}

int __wrap_loader_open(struct loader *l, const struct elf_file *elf, void *user,
		       struct loader_file **ret)
{
	(void)l, (void)elf;
	*ret = user;
	n_open++;
	return 0;
}

void __wrap_loader_close(struct loader_file *f)
{
	u32 kept = n_taken;

	if (!f)
		return;
	n_open--;
	for (u32 i = n_taken; i < n_asked; i++)
		if (asked[i].user != f)
			asked[kept++] = asked[i];
	n_asked = kept;
}

int __wrap_loader_ask(struct loader_file *f, const u64 *pages, u32 n, enum loader_urgency urgency)
{
	last_urgency = urgency;
	for (u32 i = 0; i < n; i++)
		asked[n_asked++] = (struct asked){f, pages[i]};
	cr_assert_leq(n_asked, ARRAY_SIZE(asked));
	return 0;
}

int __wrap_loader_call(struct loader *l, void (*fn)(void *), void (*done)(void *), void *arg)
{
	(void)l;
	fn(arg);
	done(arg);
	return 0;
}

/* Returns a page whose lines and rules consist of bytes that depend on the page's number. */
bool __wrap_loader_take(struct loader *l, bool wait, struct loader_page *ret)
{
	struct asked *a = &asked[n_taken];

	(void)l, (void)wait;
	if (n_taken == n_asked)
		return false;
	n_taken++;
	*ret = (struct loader_page){.user = a->user, .page = a->page, .error = page_error};
	if (page_error)
		return true;
	ret->n_rows = page_rows;
	ret->n_lines = unwind_page_n_lines(page_rows);
	ret->lines = malloc((size_t)ret->n_lines * UNWIND_LINE_BYTES);
	ret->n_rules = page_rules;
	ret->rules = malloc(page_rules * sizeof(*ret->rules) + 1);
	cr_assert(ret->lines && ret->rules);
	memset(ret->lines, (int)(a->page & 0xff), (size_t)ret->n_lines * UNWIND_LINE_BYTES);
	memset(ret->rules, (int)(a->page & 0xff), page_rules * sizeof(*ret->rules));
	return true;
}

/* ---- files and processes ---- */

/* Makes a file whose code begins at `svma` and has `pages` pages. */
static struct procman_binary make_file(u32 id, u64 svma, u64 pages)
{
	static const u8 text[64];
	struct procman_binary b = {.file_id = id, .kind = PROCMAN_FILE, .path = "/bin/file"};
	struct elfw w = {.machine = EM_X86_64};

	elfw_section(&w, ".text", SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR, svma, text,
		     sizeof(text));
	elfw_segment(&w, PT_LOAD, PF_R | PF_X, svma, sizeof(text), ".text");
	w.segments[0].p_memsz = pages * UNWIND_PAGE_BYTES;
	elfw_finish(&w);
	cr_assert_eq(elf_file_open_memory(w.out.data, w.out.n, NULL, &b.elf), 0);
	str_deinit(&w.out);
	return b;
}

static u32 runtime_of(void *arg, const struct procman_process *p, const struct procman_mapping *m)
{
	(void)arg, (void)p;
	return m->binary->file_id == 9 ? 3 : 0;
}

static struct tables *t;
static u64 empty_bytes; /* bytes of the arena before the test */
static struct procman_binary app, lib, jit = {.kind = PROCMAN_ANON, .path = "//anon"};

static struct tables_stats stats(void)
{
	struct tables_stats s;

	tables_stats(t, &s);
	return s;
}

static void open_tables(u64 bytes)
{
	struct tables_options o = {.arena_fd = ARENA,
				   .processes_fd = PROCESSES,
				   .budget_bytes = bytes,
				   .runtime_of = runtime_of};

	max_entries = MAX_PIDS;
	cr_assert_eq(tables_create(&o, &t), 0);
	empty_bytes = stats().used_bytes;
	app = make_file(5, 0x10000, 300);
	lib = make_file(9, 0x20000, 4);
}

static void begin(void)
{
	open_tables(2 * CHUNK);
}

static void end(void)
{
	tables_listener.binary_gone(t, &app);
	tables_listener.binary_gone(t, &lib);
	tables_destroy(t);
	elf_file_destroy(app.elf);
	elf_file_destroy(lib.elf);
}

TestSuite(tables, .init = begin, .fini = end);

#define APP_AT 0x400000
#define LIB_AT 0x7f0000000000
#define JIT_AT 0x7f1000000000

static const struct procman_mapping mappings[] = {
	{APP_AT, APP_AT + 0x10000, 0, APP_AT - 0x10000, &app},
	{LIB_AT, LIB_AT + 0x8000, 0, LIB_AT - 0x20000, &lib},
	{JIT_AT, JIT_AT + 0x1000, JIT_AT, 0, &jit},
};

static struct procman_process make_process(u32 pid, u64 mappings_id, u32 n)
{
	return (struct procman_process){.pid = pid,
					.image = 1000 + pid,
					.start_stack = 0x7ffc0000 + pid,
					.mappings = mappings,
					.n = n,
					.mappings_id = mappings_id};
}

static int update(u32 pid, u64 mappings_id, u32 n)
{
	struct procman_process p = make_process(pid, mappings_id, n);

	return tables_update_process(t, &p);
}

static void removed(u32 pid)
{
	struct procman_process p = make_process(pid, 0, 0);

	tables_listener.process_ended(t, &p);
}

/* ---- mappings ---- */

Test(tables, bpf_sees_the_mappings_of_a_process)
{
	const struct unwind_mapping *m;
	const struct unwind_binary *b;

	cr_assert_eq(update(1, 100, 3), 0);
	cr_assert_eq(entries[1].mappings_id, 100);
	cr_assert_eq(entries[1].start_stack, 0x7ffc0001);
	cr_assert_eq(entries[1].n, 3);
	m = tables_line(t, entries[1].slice);
	cr_assert(m);
	cr_expect_eq(m[0].start, APP_AT);
	cr_expect_eq(m[0].end, APP_AT + 0x10000);
	cr_expect_eq(m[0].bias, APP_AT - 0x10000);
	cr_expect_eq(m[0].file, 5 << 8);
	b = tables_line(t, m[0].binary);
	cr_assert(b);
	cr_expect_eq(b->file_id, 5);
	cr_expect_eq(b->first_page, 0x10000 >> UNWIND_PAGE_SHIFT);
	cr_expect_eq(b->n_pages, 300);
	cr_expect_eq(m[1].file, 9 << 8 | 3 << UNWIND_MAPPING_RUNTIME_SHIFT, "of a runtime");
	cr_expect_eq(m[2].file, UNWIND_MAPPING_FP, "no file, and no rows");
	cr_expect_eq(m[2].binary, 0);
	cr_expect_eq(stats().binaries, 2);
}

Test(tables, equal_mappings_are_there_once)
{
	u64 one;

	cr_assert_eq(update(1, 100, 2), 0);
	one = stats().used_bytes;
	cr_assert_eq(update(2, 100, 2), 0);
	cr_expect_eq(stats().slices, 1);
	cr_expect_eq(stats().used_bytes, one);
	cr_expect_eq(entries[2].slice, entries[1].slice);
	cr_assert_eq(update(2, 101, 3), 0);
	cr_expect_eq(stats().slices, 2);
	cr_expect_neq(entries[2].slice, entries[1].slice);
	removed(1);
	cr_expect_eq(stats().slices, 1);
	cr_expect_eq(entries[1].mappings_id, 0, "BPF does not know it any more");
	removed(2);
	removed(2);
	cr_expect_eq(stats().slices, 0);
	tables_listener.binary_gone(t, &app);
	tables_listener.binary_gone(t, &lib);
	cr_expect_eq(stats().used_bytes, empty_bytes);
}

Test(tables, a_runtime_that_is_none_is_unmarked)
{
	const struct unwind_mapping *m;

	cr_assert_eq(update(1, 100, 3), 0);
	m = tables_line(t, entries[1].slice);
	tables_unmark(t, 5);
	cr_expect_eq(m[1].file, 9 << 8 | 3 << UNWIND_MAPPING_RUNTIME_SHIFT);
	tables_unmark(t, 9);
	cr_expect_eq(m[1].file, 9 << 8);
	cr_expect_eq(m[2].file, UNWIND_MAPPING_FP);
}

Test(tables, more_processes_than_bpf_has_room_for)
{
	u64 used;

	max_entries = 2;
	cr_assert_eq(update(1, 100, 1), 0);
	cr_assert_eq(update(2, 100, 1), 0);
	used = stats().used_bytes;
	cr_assert_eq(update(3, 101, 3), -E2BIG);
	cr_expect_eq(stats().no_room, 1);
	cr_expect_eq(stats().slices, 1, "what it would have used is given back");
	tables_listener.binary_gone(t, &lib);
	cr_expect_eq(stats().used_bytes, used);
	cr_assert_eq(update(1, 102, 2), 0, "a known process has its place");
	removed(2);
	cr_assert_eq(update(3, 101, 3), 0);
	cr_expect_eq(entries[3].mappings_id, 101);
	cr_expect_eq(stats().no_room, 1);
}

Test(tables, how_a_process_publishes_is_in_its_entry)
{
	struct procman_process p = make_process(1, 100, 1);

	tables_set_context(t, &p, 7);
	cr_expect_eq(entries[1].mappings_id, 0, "it is not known yet");
	cr_assert_eq(tables_update_process(t, &p), 0);
	cr_expect_eq(entries[1].context, 7);
	tables_set_context(t, &p, 8);
	cr_expect_eq(entries[1].context, 8);
	tables_set_context(t, &p, 0);
	cr_expect_eq(entries[1].context, 0);
	tables_set_context(t, &p, 9);
	removed(1);
	cr_assert_eq(update(1, 100, 1), 0);
	cr_expect_eq(entries[1].context, 0, "another process of this pid");
}

Test(tables, an_address_by_the_mappings)
{
	struct procman_process p = make_process(1, 100, 3);
	struct slice *s;
	u64 svma = 0;
	u32 n;

	cr_assert_eq(tables_slice_get(t, &p, &s), 0);
	cr_expect_eq(tables_slice_file(t, s, APP_AT - 1, &svma), 0);
	cr_expect_eq(tables_slice_file(t, s, APP_AT, &svma), 5);
	cr_expect_eq(svma, 0x10000);
	cr_expect_eq(tables_slice_file(t, s, APP_AT + 0xffff, &svma), 5);
	cr_expect_eq(tables_slice_file(t, s, APP_AT + 0x10000, &svma), 0);
	cr_expect_eq(tables_slice_file(t, s, LIB_AT + 0x7fff, &svma), 9);
	cr_expect_eq(svma, 0x27fff);
	cr_expect(tables_slice_line(s, &n));
	cr_expect_eq(n, 3);
	tables_slice_put(t, s);
	cr_expect_eq(stats().slices, 0);
	tables_slice_put(t, NULL);
}

/* ---- pages ---- */

static const struct unwind_binary *record_of(const struct procman_binary *b, u32 mapping)
{
	const struct unwind_mapping *m;

	if (!entries[1].mappings_id)
		cr_assert_eq(update(1, 100, 3), 0);
	m = tables_line(t, entries[1].slice);
	(void)b;
	return tables_line(t, m[mapping].binary);
}

static struct unwind_page page_of(const struct unwind_binary *b, u32 page)
{
	const struct unwind_page *dir = tables_line(t, b->dir);

	return dir[page];
}

/* Returns the svma of a page of `app`. */
static u64 app_page(u64 page)
{
	return 0x10000 + page * UNWIND_PAGE_BYTES;
}

Test(tables, a_page_comes_with_its_rules)
{
	const struct unwind_binary *b = record_of(&app, 0);
	const struct unwind_rule *rules;
	const u8 *line;

	cr_assert_eq(tables_load_page(t, &app, app_page(2)), -EINPROGRESS);
	cr_assert_eq(tables_load_page(t, &app, app_page(2) + 100), -EALREADY);
	cr_assert_eq(tables_load_page(t, &app, 0), -ENOENT);
	cr_assert_eq(tables_load_page(t, &app, app_page(300)), -ENOENT);
	cr_assert_eq(tables_load_page(t, &jit, 0), -ENOENT);
	cr_expect_eq(last_urgency, LOADER_NOW);
	cr_expect_eq(page_of(b, 2).line, 0);
	cr_assert_eq(tables_take(t, false), 1);
	cr_assert_eq(tables_take(t, false), 0);
	cr_assert_eq(tables_load_page(t, &app, app_page(2)), 0);
	cr_expect_eq(page_of(b, 2).n_rows, 100);
	line = tables_line(t, page_of(b, 2).line);
	cr_expect_eq(line[0], (app_page(2) >> UNWIND_PAGE_SHIFT & 0xff));
	cr_assert_eq(b->n_rules, 2);
	/* Rules of later pages are appended, because rows refer to rules by number. */
	page_rules = 50;
	cr_assert_eq(tables_load_page(t, &app, app_page(7)), -EINPROGRESS);
	cr_assert_eq(tables_take(t, false), 1);
	cr_assert_eq(b->n_rules, 52);
	rules = tables_line(t, b->rules);
	cr_expect_eq(rules[1].cfa_op, (u8)(app_page(2) >> UNWIND_PAGE_SHIFT));
	cr_expect_eq(rules[2].cfa_op, (u8)(app_page(7) >> UNWIND_PAGE_SHIFT));
	cr_expect_eq(rules[51].cfa_op, (u8)(app_page(7) >> UNWIND_PAGE_SHIFT));
	cr_expect_eq(stats().rules, 52);
	cr_expect_eq(stats().rows, 200);
	cr_expect_eq(stats().pages_loaded, 2);
}

Test(tables, a_page_that_had_no_memory_can_be_asked_for_again)
{
	record_of(&app, 0);
	page_error = -ENOBUFS;
	cr_assert_eq(tables_load_page(t, &app, app_page(2)), -EINPROGRESS);
	cr_assert_eq(tables_take(t, false), 1);
	cr_expect_eq(stats().no_memory, 1);
	page_error = 0;
	cr_assert_eq(tables_load_page(t, &app, app_page(2)), -EINPROGRESS);
	cr_assert_eq(tables_take(t, false), 1);
	cr_assert_eq(tables_load_page(t, &app, app_page(2)), 0);
}

Test(tables, all_pages_of_a_file_are_asked_for_once)
{
	struct procman_binary large = make_file(11, 0x10000, 2000);

	cr_assert_eq(tables_load_binary(t, &app), 0);
	cr_expect_eq(n_asked, 300);
	cr_expect_eq(last_urgency, LOADER_SOON);
	cr_assert_eq(tables_load_binary(t, &app), 0);
	cr_expect_eq(n_asked, 300);
	cr_assert_eq(tables_load_binary(t, &large), 0);
	cr_expect_eq(last_urgency, LOADER_LATER, "too many for soon");
	tables_listener.binary_gone(t, &large);
	elf_file_destroy(large.elf);
}

Test(tables, a_file_that_is_gone_leaves_nothing)
{
	u64 before = stats().used_bytes;
	struct procman_binary other = make_file(12, 0x10000, 300);

	cr_assert_eq(tables_load_page(t, &app, app_page(1)), -EINPROGRESS);
	cr_assert_eq(tables_load_page(t, &other, app_page(3)), -EINPROGRESS);
	cr_assert_eq(tables_load_page(t, &app, app_page(5)), -EINPROGRESS);
	cr_assert_eq(tables_take(t, false), 3);
	cr_assert_eq(tables_load_page(t, &app, app_page(8)), -EINPROGRESS);
	tables_listener.binary_gone(t, &app);
	cr_expect_eq(tables_take(t, false), 0, "nor what was under way");
	cr_expect_eq(stats().pages_loaded, 1);
	cr_expect_eq(stats().rows, 100);
	cr_expect_eq(stats().rules, 2);
	cr_assert_eq(tables_load_page(t, &other, app_page(3)), 0);
	tables_listener.binary_gone(t, &other);
	cr_expect_eq(stats().used_bytes, before);
	cr_expect_eq(stats().binaries, 0);
	elf_file_destroy(other.elf);
}

/* ---- no room ---- */

static u32 n_there(u32 n)
{
	const struct unwind_binary *b = record_of(&app, 0);
	u32 there = 0;

	for (u32 i = 0; i < n; i++)
		there += page_of(b, i).line != 0;
	return there;
}

static void let_rest(void)
{
	nanosleep(&(struct timespec){.tv_nsec = (long)UNWIND_GRACE_NS * 5 / 4}, NULL);
}

/* Repeats until the page is loaded: freed lines are reused only after a grace period. */
static void load(u64 page)
{
	for (int i = 0; tables_load_page(t, &app, app_page(page)) != 0; i++) {
		cr_assert_lt(i, 10);
		if (tables_take(t, false) && !stats().pages_evicted)
			continue;
		if (tables_load_page(t, &app, app_page(page)) != 0)
			let_rest();
	}
}

Test(tables, the_pages_loaded_first_go_first)
{
	const struct unwind_binary *b = record_of(&app, 0);
	u32 n = 0;

	page_rows = UNWIND_PAGE_BYTES; /* 1056 lines: 62 pages fill a chunk */
	page_rules = 0;
	for (; !stats().pages_evicted; n++) {
		cr_assert_lt(n, 300);
		load(n);
	}
	cr_expect_gt(n, 100, "the budget of two chunks is used: %u", n);
	cr_expect_leq(stats().chunk_bytes, 2 * CHUNK);
	cr_expect_gt(stats().no_memory, 0);
	cr_expect_eq(stats().pages_evicted, 64);
	cr_expect_eq(n_there(n), n - stats().pages_evicted);
	for (u32 i = 0; i < n; i++)
		cr_expect_eq(page_of(b, i).line != 0, i >= stats().pages_evicted, "page %u", i);
	/* An evicted page is loaded again when it is needed. */
	load(0);
	cr_expect_neq(page_of(b, 0).line, 0);
	cr_expect_eq(stats().pages_loaded, n_there(300));
}

Test(tables, a_burst_of_pages_evicts_one_batch)
{
	u64 start = 0, rounds;
	u32 n = 0, burst = 0;

	page_rows = UNWIND_PAGE_BYTES;
	page_rules = 0;
	record_of(&app, 0);
	for (; burst < 16; n++) {
		if (!stats().pages_evicted)
			start = clock_ns(CLOCK_MONOTONIC);
		cr_assert_eq(tables_load_page(t, &app, app_page(n)), -EINPROGRESS);
		cr_assert_eq(tables_take(t, false), 1);
		burst += stats().pages_evicted != 0;
	}
	/* One round of eviction, or more if the machine was so busy that a grace period ended. */
	rounds = 1 + (clock_ns(CLOCK_MONOTONIC) - start) / UNWIND_GRACE_NS;
	cr_expect_leq(stats().pages_evicted, 64 * rounds);
}

Test(one_chunk, a_round_evicts_what_a_large_allocation_wants)
{
	u32 n = 40000 * UNWIND_MAPPINGS_PER_LINE, loaded = 0;
	struct procman_mapping *many = calloc(n, sizeof(*many));
	struct procman_process p = make_process(2, 101, n);

	cr_assert(many);
	open_tables(CHUNK);
	for (u32 i = 0; i < n; i++)
		many[i] = (struct procman_mapping){i * 2, i * 2 + 1, 0, 0, &jit};
	p.mappings = many;
	page_rows = UNWIND_PAGE_BYTES / 4;
	page_rules = 0;
	record_of(&app, 0);
	do {
		cr_assert_lt(loaded, 300);
		cr_assert_eq(tables_load_page(t, &app, app_page(loaded++)), -EINPROGRESS);
		cr_assert_eq(tables_take(t, false), 1);
	} while (!stats().pages_evicted);
	cr_assert_lt(stats().pages_evicted * unwind_page_n_lines(page_rows), 40000,
		     "the mappings want more than a batch");
	let_rest();
	cr_assert_eq(tables_update_process(t, &p), -ENOSPC);
	let_rest();
	cr_expect_eq(tables_update_process(t, &p), 0);
	cr_expect_eq(entries[2].mappings_id, 101);
	cr_expect_gt(stats().pages_loaded, 0);
	removed(2);
	end();
	free(many);
}

Test(one_chunk, mappings_that_have_no_room_leave_all_as_it_was)
{
	u32 n = UNWIND_MAX_MAPPINGS - UNWIND_MAPPINGS_PER_LINE * 2;
	struct procman_mapping *many = calloc(n, sizeof(*many));
	struct procman_process p = make_process(1, 100, n);

	cr_assert(many);
	open_tables(CHUNK);
	for (u32 i = 0; i < n; i++)
		many[i] = (struct procman_mapping){i * 2, i * 2 + 1, 0, 0, &jit};
	p.mappings = many;
	cr_assert_eq(tables_update_process(t, &p), 0);
	cr_assert_eq(update(2, 101, 3), -ENOSPC);
	cr_expect_gt(stats().no_memory, 0);
	cr_expect_eq(entries[2].mappings_id, 0);
	cr_expect_eq(entries[1].mappings_id, 100);
	cr_expect_eq(stats().slices, 1);
	end();
	free(many);
}
