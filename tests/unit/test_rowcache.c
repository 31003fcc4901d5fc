/* SPDX-License-Identifier: Apache-2.0 */
/* Rows that were kept on disk are those that were built; what is damaged is built anew. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/tables/rowcache.h"
#include "base/log.h"
#include "base/str.h"

static const struct unwind_rule rules[] = {
	{.cfa_op = UNWIND_CFA_NONE},
	{.cfa_op = UNWIND_CFA_STOP},
	{.cfa_op = UNWIND_CFA_UNSUPPORTED},
	{.cfa_op = UNWIND_CFA_REG, .cfa_reg = UNWIND_REG_SP, .cfa_off = 8, .ra_off = -8},
};
#define N_RULES ARRAY_SIZE(rules)

static char dir[] = "/tmp/culprit-rows-XXXXXX", path[sizeof(dir) + 8];
static struct row_cache cache;
static struct row_key key;

static void begin(void)
{
	log_set_level(LOG_LEVEL_ERR); /* damage is a line of the log */
	cr_assert(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/unwind", dir);
	cr_assert_eq(row_cache_open(path, &cache), 0);
	row_key_init(&key, 1000, 0);
	key.file.id_n = 20;
	memset(key.file.id, 0xab, 20);
}

static void each_file(void (*fn)(const char *name))
{
	DIR *d = opendir(path);
	struct dirent *e;

	cr_assert(d);
	while ((e = readdir(d))) {
		char name[600];

		snprintf(name, sizeof(name), "%s/%s", path, e->d_name);
		if (e->d_name[0] != '.')
			fn(name);
	}
	closedir(d);
}

static void delete (const char *name)
{
	cr_assert_eq(unlink(name), 0);
}

static void end(void)
{
	each_file(delete);
	row_cache_close(&cache);
	cr_assert_eq(rmdir(path), 0);
	cr_assert_eq(rmdir(dir), 0);
}

TestSuite(rowcache, .init = begin, .fini = end);

static char only[600];

static void remember(const char *name)
{
	cr_assert_eq(only[0], 0, "there is one file");
	snprintf(only, sizeof(only), "%s", name);
}

static const char *only_file(void)
{
	only[0] = 0;
	each_file(remember);
	cr_assert(only[0]);
	return only;
}

static struct row_entry *open_entry(const struct row_key *k, unwind_rules *r)
{
	struct row_entry *e;

	cr_assert_eq(row_entry_open(&cache, k, r, &e), 0);
	return e;
}

static u32 rows_of(u64 page, u32 *ret)
{
	u32 n = (u32)(page % 5) * 100 + 1;

	for (u32 i = 0; i < n; i++)
		ret[i] = i * 2 << 16 | ((u32)page + i) % N_RULES;
	return n;
}

static void add_page(struct row_entry *e, u64 page)
{
	static u32 rows[UNWIND_PAGE_BYTES];
	u32 n = rows_of(page, rows);

	row_entry_add(e, page, rows, n);
}

static void save_pages(u64 first, u64 last)
{
	unwind_rules known = {};
	struct row_entry *e = open_entry(&key, &known);

	/* Backwards: pages are asked for in any order. */
	for (u64 page = last; page > first; page--)
		add_page(e, page - 1);
	row_entry_save(e, rules, N_RULES);
	row_entry_close(e);
	vec_deinit(&known);
}

/* Returns the number of pages that are there; these must be right. */
static u32 count_pages(u64 first, u64 last)
{
	static u32 want[UNWIND_PAGE_BYTES], rows[UNWIND_PAGE_BYTES];
	unwind_rules known = {};
	struct row_entry *e = open_entry(&key, &known);
	u32 found = 0;

	for (u64 page = first; page < last; page++) {
		u32 n = row_entry_find(e, page), n_want = rows_of(page, want);

		if (!n || row_entry_read(e, page, (u32)known.n, rows, n) < 0)
			continue;
		cr_assert_eq(n, n_want);
		cr_assert_eq(memcmp(rows, want, n * sizeof(*rows)), 0);
		cr_assert_eq(known.n, N_RULES);
		cr_assert_eq(memcmp(known.data, rules, sizeof(rules)), 0);
		found++;
	}
	row_entry_close(e);
	vec_deinit(&known);
	return found;
}

Test(rowcache, keeps_what_was_added)
{
	save_pages(10, 20);
	cr_assert_eq(count_pages(0, 40), 10);
	/* The new entry has the pages of the old one. */
	save_pages(18, 30);
	cr_assert_eq(count_pages(0, 40), 20);
	cr_assert_eq(cache.hits, 30);
	cr_assert_eq(cache.damaged, 0);
	(void)only_file();
}

Test(rowcache, keeps_nothing_that_was_not_saved)
{
	unwind_rules known = {};
	struct row_entry *e = open_entry(&key, &known);

	add_page(e, 1);
	cr_assert(row_entry_is_new(e));
	cr_assert_eq(row_entry_find(e, 1), 101);
	row_entry_close(e);
	cr_assert_eq(count_pages(0, 4), 0);
}

Test(rowcache, other_keys_share_nothing)
{
	struct row_key other;
	unwind_rules known = {};

	save_pages(0, 3);
	for (size_t i = 0; i < sizeof(key); i++) {
		struct row_entry *e;

		other = key;
		if (i >= offsetof(struct row_key, file.id_n) &&
		    i < offsetof(struct row_key, file.machine))
			continue; /* a length */
		((u8 *)&other)[i] ^= 1;
		e = open_entry(&other, &known);
		cr_assert_eq(row_entry_find(e, 1), 0, "byte %zu", i);
		row_entry_close(e);
		cr_assert_eq(known.n, 0);
	}
	cr_assert_eq(cache.damaged, 0);
}

/* A file under the name of another: its own key decides. */
Test(rowcache, the_name_of_a_file_proves_nothing)
{
	struct row_key other = key;
	unwind_rules known = {};
	char from[600], to[600];
	struct row_entry *e;

	save_pages(0, 3);
	snprintf(from, sizeof(from), "%s", only_file());
	other.file.inode = 7;
	e = open_entry(&other, &known);
	snprintf(to, sizeof(to), "%s/%s.rows", path, e->name);
	row_entry_close(e);
	cr_assert_eq(rename(from, to), 0);
	e = open_entry(&other, &known);
	cr_assert_eq(row_entry_find(e, 1), 0);
	row_entry_close(e);
}

static u8 *whole;
static size_t n_whole;

static void read_whole(void)
{
	int fd = open(only_file(), O_RDONLY);
	struct stat st;

	cr_assert_eq(fstat(fd, &st), 0);
	n_whole = (size_t)st.st_size;
	whole = malloc(n_whole);
	cr_assert_eq(read(fd, whole, n_whole), n_whole);
	close(fd);
}

static void write_file(const void *data, size_t n)
{
	int fd = open(only, O_WRONLY | O_TRUNC);

	cr_assert_eq(write(fd, data, n), n);
	close(fd);
}

Test(rowcache, no_length_but_the_right_one_is_taken)
{
	save_pages(0, 3);
	read_whole();
	for (size_t n = 0; n < n_whole; n++) {
		write_file(whole, n);
		cr_assert_eq(count_pages(0, 3), 0, "%zu bytes", n);
	}
	cr_assert_eq(cache.damaged, n_whole);
	/* Damage is repaired. */
	save_pages(0, 3);
	cr_assert_eq(count_pages(0, 3), 3);
	free(whole);
}

Test(rowcache, no_changed_byte_is_believed)
{
	save_pages(0, 3);
	read_whole();
	for (size_t i = 0; i < n_whole; i++) {
		u64 before = cache.damaged;

		whole[i] ^= (u8)(1u << i % 8);
		write_file(whole, n_whole);
		cr_assert_lt(count_pages(0, 3), 3, "byte %zu", i);
		cr_assert_eq(cache.damaged, before + 1, "byte %zu", i);
		whole[i] ^= (u8)(1u << i % 8);
	}
	write_file(whole, n_whole);
	cr_assert_eq(count_pages(0, 3), 3);
	free(whole);
}

Test(rowcache, what_others_may_write_is_not_read)
{
	struct row_cache again;

	save_pages(0, 3);
	cr_assert_eq(chmod(only_file(), 0620), 0);
	cr_assert_eq(count_pages(0, 3), 0);
	cr_assert_eq(chmod(only_file(), 0600), 0);
	cr_assert_eq(count_pages(0, 3), 3);
	cr_assert_eq(chmod(path, 0722), 0);
	cr_assert_eq(row_cache_open(path, &again), -EPERM);
	cr_assert_eq(chmod(path, 0700), 0);
	/* Who may write to the folder above can replace it, but not in one like /tmp. */
	cr_assert_eq(chmod(dir, 0777), 0);
	cr_assert_eq(row_cache_open(path, &again), -EPERM);
	cr_assert_eq(chmod(dir, 01777), 0);
	cr_assert_eq(row_cache_open(path, &again), 0);
	row_cache_close(&again);
	cr_assert_eq(chmod(dir, 0700), 0);
}

Test(rowcache, symbolic_links_are_not_followed)
{
	char to[600], file[600];
	struct row_cache again;

	save_pages(0, 3);
	snprintf(file, sizeof(file), "%s", only_file());
	snprintf(to, sizeof(to), "%s/moved", dir);
	cr_assert_eq(rename(file, to), 0);
	cr_assert_eq(symlink(to, file), 0);
	cr_assert_eq(count_pages(0, 3), 0);
	/* Such a link is replaced, not written through. */
	save_pages(0, 2);
	cr_assert_eq(count_pages(0, 3), 2);
	cr_assert_eq(unlink(to), 0);
	snprintf(to, sizeof(to), "%s/link", dir);
	cr_assert_eq(symlink(path, to), 0);
	cr_assert_lt(row_cache_open(to, &again), 0);
	cr_assert_eq(unlink(to), 0);
}

/* Deleted files take space while they are open. */
Test(rowcache, open_entries_have_a_limit)
{
	static u32 rows[UNWIND_PAGE_BYTES];
	unwind_rules known[3] = {};
	struct row_entry *e[3];
	u64 bytes = 0;

	for (u32 i = 0; i < UNWIND_PAGE_BYTES; i++)
		rows[i] = i << 16;
	cache.open_bytes = (255ULL << 20);
	for (u32 k = 0; k < 3; k++) {
		key.file.inode = k;
		e[k] = open_entry(&key, &known[k]);
		for (u64 page = 0; page < 10; page++)
			row_entry_add(e[k], page, rows, UNWIND_PAGE_BYTES);
		bytes += e[k]->pages.n * sizeof(rows);
	}
	cr_assert_eq(e[0]->pages.n, 10);
	cr_assert_eq(e[2]->pages.n, 0);
	cr_assert_leq(bytes, 1U << 20);
	row_entry_close(e[0]);
	row_entry_add(e[2], 0, rows, UNWIND_PAGE_BYTES);
	cr_assert_eq(e[2]->pages.n, 1);
	row_entry_close(e[1]);
	row_entry_close(e[2]);
	cr_assert_eq(cache.open_bytes, 255ULL << 20);
}

static int key_of(const char *file, u32 id_n, struct elf_key *ret)
{
	static const u8 id[20] = {1, 2, 3};
	int fd = open(file, O_RDONLY), r;

	cr_assert_geq(fd, 0, "%s", file);
	r = elf_key_of(fd, id, id_n, 62, ret);
	close(fd);
	return r;
}

Test(rowcache, only_files_that_can_be_told_apart_have_a_key)
{
	char name[600];
	struct elf_key k;
	int fd;

	cr_assert_eq(key_of("/proc/version", 20, &k), -ENOTSUP, "procfs may claim anything");
	snprintf(name, sizeof(name), "%s/new", path);
	fd = open(name, O_WRONLY | O_CREAT, 0600);
	cr_assert_geq(fd, 0);
	cr_assert_eq(key_of(name, 3, &k), -ENOTSUP, "no build-id");
	cr_assert_eq(key_of(name, 20, &k), -EAGAIN, "it can change again");
	close(fd);
	cr_assert_eq(key_of("/proc/self/exe", 20, &k), 0, "this program");
	cr_assert_eq(k.id_n, 20);
	cr_assert_eq(k.machine, 62);
	fd = memfd_create("m", MFD_CLOEXEC);
	cr_assert_eq(elf_key_of(fd, (const u8 *)name, 20, 62, &k), -ENOTSUP, "in memory only");
	close(fd);
}

static u32 n_files;

static void count_file(const char *name)
{
	n_files += str_ends(name, ".t");
}

Test(rowcache, deletes_the_least_recently_used)
{
	struct cachedir_options o = {.path = path, .suffix = ".t"};
	struct cachedir *c;
	u64 size;
	int fd;

	cr_assert_eq(cachedir_open(&o, &c), 0);
	for (int i = 0; i < 8; i++) {
		const struct timespec t[2] = {{.tv_sec = 1000 + i}, {.tv_sec = 1000 + i}};
		char name[8], full[64];

		snprintf(name, sizeof(name), "%d", i);
		snprintf(full, sizeof(full), "%s/%d.t", path, i);
		cr_assert_eq(cachedir_write(c, name, full, 50), 0);
		cr_assert_eq(utimensat(AT_FDCWD, full, t, 0), 0);
	}
	cachedir_close(c);
	o.max_bytes = 1000;
	o.max_files = 6;
	cr_assert_eq(cachedir_open(&o, &c), 0);
	fd = cachedir_find(c, "0", &size); /* now it is the last */
	cr_assert_geq(fd, 0);
	close(fd);
	cachedir_keep_bound(c);
	each_file(count_file);
	cr_assert_eq(n_files, 6);
	cr_assert_eq(cachedir_find(c, "1", &size), -ENOENT);
	cr_assert_eq(cachedir_find(c, "2", &size), -ENOENT);
	cr_assert_eq(cachedir_write(c, "big", whole = calloc(1, 900), 900), 0);
	cachedir_keep_bound(c);
	fd = cachedir_find(c, "0", &size);
	cr_assert_geq(fd, 0);
	close(fd);
	fd = cachedir_find(c, "7", &size);
	cr_assert_geq(fd, 0);
	close(fd);
	cr_assert_eq(cachedir_find(c, "5", &size), -ENOENT);
	cachedir_close(c);
	free(whole);
}

/* Few large files are found as many small ones are. */
Test(rowcache, large_files_are_bounded_soon)
{
	const struct cachedir_options o = {.path = path, .suffix = ".t", .max_bytes = 100000};
	struct cachedir *c;
	u64 bytes;
	u32 files;

	cr_assert_eq(cachedir_open(&o, &c), 0);
	whole = calloc(1, 20000);
	for (int i = 0; i < 20; i++) {
		char name[8];

		snprintf(name, sizeof(name), "%d", i);
		cr_assert_eq(cachedir_write(c, name, whole, 20000), 0);
	}
	cr_assert_eq(cachedir_usage(path, ".t", &bytes, &files), 0);
	cr_assert_eq(bytes, 100000);
	cr_assert_eq(files, 5);
	cachedir_close(c);
	free(whole);
}
