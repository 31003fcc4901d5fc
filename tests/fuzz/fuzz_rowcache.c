/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An entry of the cache of unwind rows, doc/format/unwind-cache.md. The input:
 *
 *	u8	bits: what the fuzzer makes right before the file is read, see enum
 *	u8	number of rules
 *	u8	number of pages
 *	...	the file from its first byte
 *
 * Whatever the file is, each page that is read has rows that a walk can follow; and what is added
 * to it, saved and read again is what it was.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/parser/parser.h"
#include "agent/tables/rowcache.h"
#include "base/log.h"
#include "base/map.h"
#include "unwind/unwind.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { RIGHT_COUNTS = 1, RIGHT_HASHES = 2, RIGHT_RULES = 4, RIGHT_PAGES = 8, RIGHT_KEY = 16 };
#define NEW_PAGE (1ULL << 40)
/* Offsets in the file. */
#define HASHED_FROM 16
#define AT_COUNTS 16
#define AT_END 32
#define AT_RULES_HASH 40
#define AT_PAGES_HASH 48
#define AT_KEY 56
#define HEADER_BYTES (AT_KEY + sizeof(struct row_key))
#define MAX_BYTES (1U << 18)
#define MAX_PAGES (MAX_BYTES / sizeof(struct row_page))

static char folder[] = "/tmp/culprit-fuzz-XXXXXX", path[600];
static struct row_cache cache;
static struct row_key key;

static void end(void)
{
	row_cache_close(&cache);
	(void)unlink(path);
	(void)rmdir(folder);
}

static void begin(void)
{
	if (cache.dir)
		return;
	/* A damaged file is a line of the log. */
	log_set_level(LOG_LEVEL_ERR);
	if (!mkdtemp(folder) || row_cache_open(folder, &cache) < 0)
		abort();
	row_key_init(&key, 1000, 0);
	/* Other sources do not make other seeds. */
	memset(key.version, 'v', sizeof(key.version));
	key.disassembler = 1;
	key.file.id_n = 20;
	atexit(end);
}

static void put_u32(u8 *to, u64 value)
{
	u32 v = (u32)value;

	memcpy(to, &v, sizeof(v));
}

static void put_hash(u8 *to, const void *data, size_t n)
{
	u64 hash = hash_bytes(data, n);

	memcpy(to, &hash, sizeof(hash));
}

/* Rules that pass the checks. */
static void right_rules(u8 *at, u32 n)
{
	for (u32 i = 0; i < n; i++) {
		struct unwind_rule r;

		memcpy(&r, at + i * sizeof(r), sizeof(r));
		if (i < 3)
			r = (struct unwind_rule){.cfa_op = i == 1   ? UNWIND_CFA_STOP
							   : i == 2 ? UNWIND_CFA_UNSUPPORTED
								    : UNWIND_CFA_NONE};
		else
			r = (struct unwind_rule){.cfa_op = UNWIND_CFA_REG,
						 .cfa_reg = UNWIND_REG_SP,
						 .cfa_off = (int)i * 8,
						 .ra_off = -8};
		memcpy(at + i * sizeof(r), &r, sizeof(r));
	}
}

/* Hashes of the rows that pages refer to. */
static void right_pages(const u8 *file, u64 rows_end, u8 *at, u32 n)
{
	for (u32 i = 0; i < n; i++) {
		struct row_page p;

		memcpy(&p, at + i * sizeof(p), sizeof(p));
		p.page = (u64)i * 2 + (p.page & 1);
		if (((u64)p.at + p.n_rows) * sizeof(u32) <= rows_end)
			p.hash = hash_bytes(file + (u64)p.at * sizeof(u32), p.n_rows * sizeof(u32));
		memcpy(at + i * sizeof(p), &p, sizeof(p));
	}
}

static void make_right(u8 *file, size_t size, u8 bits, u32 n_rules, u32 n_pages)
{
	size_t rules = n_rules * sizeof(struct unwind_rule);
	size_t pages = n_pages * sizeof(struct row_page);
	u64 rows_end;

	if (size < HEADER_BYTES + rules + pages)
		return;
	rows_end = size - rules - pages;
	memcpy(file, "CULPROW", 8);
	if (bits & RIGHT_COUNTS) {
		put_u32(file + AT_COUNTS, 1);
		put_u32(file + AT_COUNTS + 4, n_rules);
		put_u32(file + AT_COUNTS + 8, n_pages);
		memcpy(file + AT_END, &rows_end, sizeof(rows_end));
	}
	if (bits & RIGHT_RULES)
		right_rules(file + rows_end, n_rules);
	if (bits & RIGHT_PAGES)
		right_pages(file, rows_end, file + rows_end + rules, n_pages);
	if (bits & RIGHT_KEY)
		memcpy(file + AT_KEY, &key, sizeof(key));
	if (!(bits & RIGHT_HASHES))
		return;
	put_hash(file + AT_RULES_HASH, file + rows_end, rules);
	put_hash(file + AT_PAGES_HASH, file + rows_end + rules, pages);
	put_hash(file + 8, file + HASHED_FROM, HEADER_BYTES - HASHED_FROM);
}

static struct row_entry *open_entry(unwind_rules *rules)
{
	struct row_entry *e;

	if (row_entry_open(&cache, &key, rules, &e) < 0)
		abort();
	return e;
}

/* Reads the pages of an entry: damaged ones are forgotten. Returns a hash of the others. */
static u64 read_pages(struct row_entry *e, const unwind_rules *rules)
{
	static u32 rows[UNWIND_PAGE_BYTES];
	u64 pages[MAX_PAGES], sum = 0;
	u32 n_pages = 0;

	vec_foreach (&e->pages, p)
		if (n_pages < MAX_PAGES)
			pages[n_pages++] = p->page;
	for (u32 i = 0; i < n_pages; i++) {
		u32 n = row_entry_find(e, pages[i]);

		if (!n || n > UNWIND_PAGE_BYTES)
			abort();
		if (row_entry_read(e, pages[i], (u32)rules->n, rows, n) < 0) {
			if (row_entry_find(e, pages[i]))
				abort();
			continue;
		}
		if (!parser_check_rows(rows, n, (u32)rules->n))
			abort();
		sum = (sum ^ pages[i]) * 31 + hash_bytes(rows, n * sizeof(*rows));
	}
	return sum;
}

static void check_rules(const unwind_rules *rules)
{
	if (rules->n && (!parser_check_rules(rules->data, (u32)rules->n, 0) ||
			 !unwind_rules_are_distinct(rules->data, (u32)rules->n)))
		abort();
}

static void write_entry(const uint8_t *data, size_t size)
{
	unwind_rules rules = {};
	struct row_entry *e;
	u8 *file = malloc(size - 3 + 1);

	if (!file)
		abort();
	memcpy(file, data + 3, size - 3);
	make_right(file, size - 3, data[0], data[1], data[2]);
	e = open_entry(&rules);
	if (cachedir_write(cache.dir, e->name, file, size - 3) < 0)
		abort();
	snprintf(path, sizeof(path), "%s/%s.rows", folder, e->name);
	row_entry_close(e);
	vec_deinit(&rules);
	free(file);
}

/* Reads the entry, and adds a page to it. Returns as read_pages(). */
static u64 extend_entry(unwind_rules *rules)
{
	static const struct unwind_rule first[] = {{.cfa_op = UNWIND_CFA_NONE},
						   {.cfa_op = UNWIND_CFA_STOP},
						   {.cfa_op = UNWIND_CFA_UNSUPPORTED}};
	static const u32 new_rows[] = {0, 5 << 16 | 1};
	struct row_entry *e = open_entry(rules);
	u64 sum;

	check_rules(rules);
	(void)read_pages(e, rules);
	for (u32 i = 0; e->pages.n == 0 && rules->n < ARRAY_SIZE(first); i++)
		if (vec_push(rules, first[i]) < 0)
			abort();
	row_entry_add(e, NEW_PAGE, new_rows, ARRAY_SIZE(new_rows));
	sum = read_pages(e, rules);
	row_entry_save(e, rules->data, (u32)rules->n);
	row_entry_close(e);
	return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	unwind_rules rules = {}, again = {};
	struct row_entry *e;
	u64 sum;

	if (size < 3 || size > MAX_BYTES)
		return 0;
	begin();
	write_entry(data, size);
	sum = extend_entry(&rules);
	e = open_entry(&again);
	check_rules(&again);
	if (again.n != rules.n ||
	    memcmp(again.data, rules.data, rules.n * sizeof(*rules.data)) != 0 ||
	    !row_entry_find(e, NEW_PAGE) || read_pages(e, &again) != sum)
		abort();
	row_entry_close(e);
	vec_deinit(&rules);
	vec_deinit(&again);
	return 0;
}
