/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/tables/rowcache.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/parser/parser.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "base/map.h"
#include "unwind/unwind.h"

#define MAGIC "CULPROW"
#define FORMAT 1
#define MAX_DIR (256ULL << 20)
#define MAX_FILES 4096
#define MAX_FILE (64U << 20)
/* 256 MiB of code; further pages are not kept. */
#define MAX_PAGES 16384U
/* Deleted files take space as long as they are open, so there is a limit for open ones, too. */
#define MAX_OPEN MAX_DIR
#define COPY_BYTES (64U << 10)

struct header {
	char magic[8];
	u64 hash; /* of the rest of the header */
	u32 format;
	u32 n_rules, n_pages;
	u32 reserved;
	u64 end; /* of the rows; then rules and pages */
	u64 rules_hash, pages_hash;
	struct row_key key;
};
#define HASHED_FROM 16
_Static_assert(sizeof(struct row_key) == 272 && sizeof(struct header) == 56 + 272, "no holes");
_Static_assert(sizeof(struct row_page) == 24, "no holes");

/* ---- the cache ---- */

int row_cache_open(const char *path, struct row_cache *ret)
{
	const struct cachedir_options o = {
		.path = path, .suffix = ".rows", .max_bytes = MAX_DIR, .max_files = MAX_FILES};

	*ret = (struct row_cache){};
	return cachedir_open(&o, &ret->dir);
}

void row_cache_close(struct row_cache *c)
{
	cachedir_close(c->dir);
	c->dir = NULL;
}

void row_key_init(struct row_key *k, u64 size, u64 max_section)
{
	*k = (struct row_key){.disassembler = unwind_disassembler()};
	/* Sections of a smaller file stay below the limit, also when they are decompressed. */
	if (max_section && size > max_section / 16)
		k->max_section = max_section;
	memcpy(k->version, unwind_version, sizeof(k->version));
}

static void name_entry(struct row_entry *e)
{
	const struct elf_key *k = &e->key.file;
	size_t n = 0;

	for (u32 i = 0; i < k->id_n; i++)
		n += (size_t)snprintf(e->name + n, sizeof(e->name) - n, "%02x", k->id[i]);
	snprintf(e->name + n, sizeof(e->name) - n, "-%016llx",
		 (unsigned long long)hash_bytes(&e->key, sizeof(e->key)));
}

/* ---- reading ---- */

static int read_all(int fd, void *to, size_t n, u64 at)
{
	ssize_t got = pread(fd, to, n, (off_t)at);

	return got == (ssize_t)n ? 0 : -EBADMSG;
}

static int read_header(int fd, u64 size, const struct row_key *key, struct header *ret)
{
	struct header h;
	u64 want;

	if (size < sizeof(h) || size > MAX_FILE || read_all(fd, &h, sizeof(h), 0) < 0 ||
	    memcmp(h.magic, MAGIC, sizeof(h.magic)) != 0 ||
	    h.hash != hash_bytes((u8 *)&h + HASHED_FROM, sizeof(h) - HASHED_FROM))
		return -EBADMSG;
	if (h.format != FORMAT || memcmp(&h.key, key, sizeof(*key)) != 0)
		return -ENOENT;
	want = (u64)h.n_rules * sizeof(struct unwind_rule) +
	       (u64)h.n_pages * sizeof(struct row_page);
	if (h.n_rules > UNWIND_MAX_RULES || h.n_pages > MAX_PAGES || h.end < sizeof(h) ||
	    h.end % sizeof(u32) || h.end > size || size - h.end != want)
		return -EBADMSG;
	*ret = h;
	return 0;
}

static bool pages_are_sane(const struct row_page *p, u32 n, u64 end)
{
	for (u32 i = 0; i < n; i++)
		if (!p[i].n_rows || p[i].n_rows > UNWIND_PAGE_BYTES ||
		    (i && p[i].page <= p[i - 1].page) ||
		    p[i].at < sizeof(struct header) / sizeof(u32) ||
		    ((u64)p[i].at + p[i].n_rows) * sizeof(u32) > end)
			return false;
	return true;
}

/* On failure the caller empties *rules and e->pages. */
static int read_tables(struct row_entry *e, int fd, const struct header *h, unwind_rules *rules)
{
	size_t n_rules = h->n_rules * sizeof(*rules->data);
	size_t n_pages = h->n_pages * sizeof(*e->pages.data);

	if (vec_reserve(rules, h->n_rules) < 0 || vec_reserve(&e->pages, h->n_pages) < 0)
		return -ENOMEM;
	if (!h->n_rules || !h->n_pages || read_all(fd, rules->data, n_rules, h->end) < 0 ||
	    read_all(fd, e->pages.data, n_pages, h->end + n_rules) < 0 ||
	    hash_bytes(rules->data, n_rules) != h->rules_hash ||
	    hash_bytes(e->pages.data, n_pages) != h->pages_hash ||
	    !parser_check_rules(rules->data, h->n_rules, 0) ||
	    !unwind_rules_are_distinct(rules->data, h->n_rules) ||
	    !pages_are_sane(e->pages.data, h->n_pages, h->end))
		return -EBADMSG;
	rules->n = h->n_rules;
	e->pages.n = h->n_pages;
	return 0;
}

/* One line for each entry. */
static void count_damage(struct row_entry *e)
{
	__atomic_fetch_add(&e->cache->damaged, 1, __ATOMIC_RELAXED);
	if (!e->damaged)
		log_warn("cache of unwind rows: %s.rows is damaged: its rows are built anew",
			 e->name);
	e->damaged = true;
}

/* Counts bytes that an open file takes. */
static bool reserve_bytes(struct row_entry *e, u64 n)
{
	if (e->cache->open_bytes + n > MAX_OPEN)
		return false;
	e->cache->open_bytes += n;
	e->open_bytes += n;
	return true;
}

static int load(struct row_entry *e, unwind_rules *rules)
{
	_cleanup_close_ int fd = -1;
	struct header h;
	u64 size;
	int r;

	fd = cachedir_find(e->cache->dir, e->name, &size);
	if (fd < 0)
		return 0;
	r = read_header(fd, size, &e->key, &h);
	if (r == 0)
		r = read_tables(e, fd, &h, rules);
	if (r == -EBADMSG)
		count_damage(e);
	if (r < 0)
		return r == -ENOMEM ? r : 0;
	if (!reserve_bytes(e, h.end)) {
		rules->n = e->pages.n = 0;
		e->broken = true;
		return 0;
	}
	e->fd = take_fd(&fd);
	e->end = h.end;
	return 0;
}

int row_entry_open(struct row_cache *c, const struct row_key *key, unwind_rules *rules,
		   struct row_entry **ret)
{
	struct row_entry *e = calloc(1, sizeof(*e));
	int r;

	if (!e)
		return -ENOMEM;
	e->cache = c;
	e->key = *key;
	e->fd = e->new.fd = -1;
	e->end = sizeof(struct header);
	name_entry(e);
	r = load(e, rules);
	if (r < 0) {
		row_entry_close(e);
		return r;
	}
	*ret = e;
	return 0;
}

/* The index of the first page that is not before `page`. */
static size_t lower_bound(const struct row_entry *e, u64 page)
{
	size_t lo = 0, hi = e->pages.n;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (e->pages.data[mid].page < page)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static struct row_page *find_page(const struct row_entry *e, u64 page)
{
	size_t i = lower_bound(e, page);

	return i < e->pages.n && e->pages.data[i].page == page ? &e->pages.data[i] : NULL;
}

u32 row_entry_find(const struct row_entry *e, u64 page)
{
	const struct row_page *p = find_page(e, page);

	return p ? p->n_rows : 0;
}

int row_entry_read(struct row_entry *e, u64 page, u32 n_rules, u32 *ret_rows, u32 n)
{
	struct row_page *p = find_page(e, page);

	if (read_all(e->fd, ret_rows, n * sizeof(*ret_rows), (u64)p->at * sizeof(u32)) == 0 &&
	    hash_bytes(ret_rows, n * sizeof(*ret_rows)) == p->hash &&
	    parser_check_rows(ret_rows, n, n_rules)) {
		__atomic_fetch_add(&e->cache->hits, 1, __ATOMIC_RELAXED);
		return 0;
	}
	count_damage(e);
	e->pages.n--;
	memmove(p, p + 1, (size_t)(e->pages.data + e->pages.n - p) * sizeof(*p));
	return -EBADMSG;
}

/* ---- writing ---- */

static int write_at(int fd, const void *data, size_t n, u64 at)
{
	ssize_t w = pwrite(fd, data, n, (off_t)at);

	/* A part is written when the disk becomes full. */
	return w == (ssize_t)n ? 0 : w < 0 ? -errno : -ENOSPC;
}

static int copy_rows(int from, int to, u64 end)
{
	_cleanup_free_ u8 *part = malloc(COPY_BYTES);
	int r = part ? 0 : -ENOMEM;

	for (u64 at = sizeof(struct header); r == 0 && at < end; at += COPY_BYTES) {
		size_t n = MIN(end - at, (u64)COPY_BYTES);

		r = read_all(from, part, n, at);
		if (r == 0)
			r = write_at(to, part, n, at);
	}
	return r;
}

/* Begins the file that will replace the entry, with all rows that the entry has. */
static int begin(struct row_entry *e)
{
	int r = cachedir_begin(e->cache->dir, e->name, &e->new);

	if (r == 0 && e->fd >= 0)
		r = copy_rows(e->fd, e->new.fd, e->end);
	if (r < 0) {
		cachedir_abandon(e->cache->dir, &e->new);
		return r;
	}
	cleanup_close(&e->fd);
	e->fd = e->new.fd;
	return 0;
}

/* Closes the file that rows are read from; the rows that it has are forgotten. */
void row_entry_stop(struct row_entry *e)
{
	e->broken = true;
	if (e->new.fd >= 0) {
		cachedir_abandon(e->cache->dir, &e->new);
		e->fd = -1;
	}
	cleanup_close(&e->fd);
	e->fd = -1;
	e->pages.n = 0;
	e->cache->open_bytes -= e->open_bytes;
	e->open_bytes = 0;
}

static void give_up(struct row_entry *e, int error)
{
	log_warn_rarely(
		"cache of unwind rows: %s.rows cannot be written: %s: its rows are not kept",
		e->name, strerror(-error));
	row_entry_stop(e);
}

static int add(struct row_entry *e, u64 page, const u32 *rows, u32 n)
{
	struct row_page p = {.page = page,
			     .hash = hash_bytes(rows, n * sizeof(*rows)),
			     .at = (u32)(e->end / sizeof(u32)),
			     .n_rows = n};
	size_t i = lower_bound(e, page);
	int r;

	if (vec_reserve(&e->pages, e->pages.n + 1) < 0)
		return -ENOMEM;
	r = write_at(e->fd, rows, n * sizeof(*rows), e->end);
	if (r < 0)
		return r;
	e->end += n * sizeof(*rows);
	memmove(e->pages.data + i + 1, e->pages.data + i, (e->pages.n - i) * sizeof(p));
	e->pages.data[i] = p;
	e->pages.n++;
	return 0;
}

void row_entry_add(struct row_entry *e, u64 page, const u32 *rows, u32 n)
{
	int r = 0;

	__atomic_fetch_add(&e->cache->misses, 1, __ATOMIC_RELAXED);
	if (e->broken || find_page(e, page) || e->pages.n == MAX_PAGES ||
	    e->end + (u64)n * sizeof(*rows) > MAX_FILE / 2 || !reserve_bytes(e, n * sizeof(*rows)))
		return;
	if (e->new.fd < 0)
		r = begin(e);
	if (r == 0)
		r = add(e, page, rows, n);
	if (r == 0)
		return;
	give_up(e, r);
}

bool row_entry_is_new(const struct row_entry *e)
{
	return e->new.fd >= 0;
}

static int write_tables(struct row_entry *e, const struct unwind_rule *rules, u32 n_rules)
{
	size_t rules_bytes = n_rules * sizeof(*rules);
	size_t pages_bytes = e->pages.n * sizeof(*e->pages.data);
	struct header h = {
		.magic = MAGIC,
		.format = FORMAT,
		.n_rules = n_rules,
		.n_pages = (u32)e->pages.n,
		.end = e->end,
		.rules_hash = hash_bytes(rules, rules_bytes),
		.pages_hash = hash_bytes(e->pages.data, pages_bytes),
		.key = e->key,
	};
	int r = write_at(e->fd, rules, rules_bytes, e->end);

	h.hash = hash_bytes((u8 *)&h + HASHED_FROM, sizeof(h) - HASHED_FROM);
	if (r == 0)
		r = write_at(e->fd, e->pages.data, pages_bytes, e->end + rules_bytes);
	return r < 0 ? r : write_at(e->fd, &h, sizeof(h), 0);
}

void row_entry_save(struct row_entry *e, const struct unwind_rule *rules, u32 n_rules)
{
	int r;

	if (e->new.fd < 0)
		return;
	r = write_tables(e, rules, n_rules);
	if (r == 0)
		r = cachedir_commit(e->cache->dir, e->name, &e->new);
	if (r < 0) {
		give_up(e, r);
		return;
	}
	e->new.fd = -1; /* it is e->fd */
}

void row_entry_close(struct row_entry *e)
{
	if (!e)
		return;
	row_entry_stop(e);
	vec_deinit(&e->pages);
	free(e);
}
