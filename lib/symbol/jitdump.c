/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf's jitdump (tools/perf/Documentation/jitdump-specification.txt in the kernel's tree):
 *
 *	header  magic "JiTD" u32 · version u32 · total_size u32 · elf_mach u32 · pad u32 · pid u32 ·
 *		timestamp u64 · flags u64
 *	record  id u32 · total_size u32 · timestamp u64 · body
 *	LOAD 0  pid u32 · tid u32 · vma u64 · code_addr u64 · code_size u64 · index u64 · name\0 ·
 *		code
 *	MOVE 1  pid u32 · tid u32 · vma u64 · old_addr u64 · new_addr u64 · code_size u64 ·
 *		index u64
 *	DEBUG 2 code_addr u64 · n u64 · n × { addr u64 · line s32 · discriminator s32 · file\0 }
 *	CLOSE 3, UNWIND 4
 *
 * A DEBUG record comes before the LOAD that it is about. Memory is reused, so each piece of code
 * lives from its record's time to the time when other code is loaded over its first byte or it
 * moves away. Pieces are found through a map from pages to lists, newest first.
 *
 * Bounds: code is at most as large as its record, the record as the file; lines, links and names
 * have caps. A record that is not whole yet is read again at the next refresh.
 */
#include "symbol/symbol.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "base/map.h"
#include "base/vec.h"

#define JITDUMP_MAGIC 0x4A695444U
#define HEADER_BYTES 40U
#define PREFIX_BYTES 16U
#define FLAG_ARCH_TIMESTAMP 1U
#define PAGE_SHIFT 12
#define MAX_NAME 4096U
#define MAX_RECORD (64U << 20)
#define MAX_LINKS (4U << 20)
#define MAX_LINES (8U << 20)
#define MAX_POOL (64U << 20)
/*
 * V8 adds the size of an ELF header to every address of its debug info (log/log.cc and
 * diagnostics/perf-jit.cc), because `perf inject` would write such a file.
 */
#define V8_ELF_HEADER 0x40U
#define DAMAGED_LINES "a damaged record of lines"

enum { RECORD_LOAD, RECORD_MOVE, RECORD_DEBUG };

struct line_entry {
	u32 delta; /* offset from the code's start, as in the file */
	u32 line;
	u32 file;
};

struct code {
	u64 start;
	u64 end;
	u64 from_ns;
	u64 to_ns;
	u32 name;
	u32 first_line; /* in lines */
	u32 n_lines;
};

struct link {
	u32 code;
	u32 next; /* index + 1, 0 = end */
};

struct jitdump {
	int fd;	       /* owned */
	u64 max_bytes; /* 0: any */
	u64 offset;
	bool swap;
	bool no_time; /* time stamps are of another clock */
	bool full;
	bool told; /* of the first record that was skipped */
	struct strtab strings;
	vec(struct code) codes;
	vec(struct line_entry) lines;
	vec(struct link) links;
	struct map pages; /* page → newest link, index + 1 */
	/* The last DEBUG record, until its LOAD comes. */
	u64 pending_address;
	u32 pending_first, pending_n;
	u32 min_delta; /* smallest delta of the first line in all debug records */
};

DEFINE_CLEANUP(jitdump, struct jitdump *, jitdump_destroy)
#define _cleanup_jitdump_ _cleanup_(jitdump)

void jitdump_destroy(struct jitdump *j)
{
	if (!j)
		return;
	cleanup_close(&j->fd);
	strtab_deinit(&j->strings);
	vec_deinit(&j->codes);
	vec_deinit(&j->lines);
	vec_deinit(&j->links);
	map_deinit(&j->pages);
	free(j);
}

/* Logs damage in the record that is read, the first of the file. Returns 0: it is skipped. */
static int skip_record(struct jitdump *j, const char *text)
{
	if (!j->told)
		log_damage_at(j->fd, j->offset, text);
	j->told = true;
	return 0;
}

static bool covers(const struct code *c, u64 address, u64 time_ns)
{
	return address >= c->start && address < c->end && time_ns >= c->from_ns &&
	       time_ns < c->to_ns;
}

static struct code *find_code(const struct jitdump *j, u64 address, u64 time_ns)
{
	const u64 *head = map_get(&j->pages, address >> PAGE_SHIFT);

	for (u32 l = head ? (u32)*head : 0; l; l = j->links.data[l - 1].next) {
		struct code *c = &j->codes.data[j->links.data[l - 1].code];

		if (covers(c, address, time_ns))
			return c;
	}
	return NULL;
}

static int link_pages(struct jitdump *j, u32 index)
{
	const struct code *c = &j->codes.data[index];

	for (u64 page = c->start >> PAGE_SHIFT; page <= (c->end - 1) >> PAGE_SHIFT; page++) {
		const u64 *head = map_get(&j->pages, page);
		struct link l = {index, head ? (u32)*head : 0};

		if (j->links.n >= MAX_LINKS) {
			j->full = true;
			return 0;
		}
		if (vec_push(&j->links, l) < 0 || map_put(&j->pages, page, j->links.n) < 0)
			return -ENOMEM;
	}
	return 0;
}

static int add_code(struct jitdump *j, struct code c)
{
	struct code *old;

	if (c.end <= c.start)
		return 0;
	/* End the code that this code replaces; code that it covers partially continues around
	 * it. */
	old = find_code(j, c.start, c.from_ns);
	if (old && old->start == c.start)
		old->to_ns = c.from_ns;
	c.to_ns = ~0ULL;
	if (vec_push(&j->codes, c) < 0)
		return -ENOMEM;
	return link_pages(j, (u32)j->codes.n - 1);
}

static int take_load(struct jitdump *j, struct buf b, u64 time_ns)
{
	struct code c = {.from_ns = time_ns};
	const char *name;
	u64 address, size;
	int r;

	if (!buf_skip(&b, 16) || !buf_u64(&b, &address) || !buf_u64(&b, &size) ||
	    !buf_skip(&b, 8) || !buf_cstr(&b, &name) || size > buf_left(&b) ||
	    address + size < address)
		return skip_record(j, "a damaged record of loaded code");
	r = strtab_add(&j->strings, name, strnlen(name, MAX_NAME), &c.name);
	if (r < 0)
		return r;
	c.start = address;
	c.end = address + size;
	if (j->pending_n && j->pending_address == address) {
		c.first_line = j->pending_first;
		c.n_lines = j->pending_n;
	}
	j->pending_n = 0;
	return add_code(j, c);
}

static int take_move(struct jitdump *j, struct buf b, u64 time_ns)
{
	u64 old_address, new_address, size;
	struct code *old, moved;

	if (!buf_skip(&b, 16) || !buf_u64(&b, &old_address) || !buf_u64(&b, &new_address) ||
	    !buf_u64(&b, &size))
		return skip_record(j, "a damaged record of moved code");
	old = find_code(j, old_address, time_ns);
	if (!old || old->start != old_address ||
	    new_address + (old->end - old->start) < new_address)
		return 0;
	moved = *old;
	old->to_ns = time_ns;
	moved.start = new_address;
	moved.end = new_address + (old->end - old->start);
	moved.from_ns = time_ns;
	return add_code(j, moved);
}

/* Rejects control bytes, which paths do not contain but freed memory often does. */
static bool is_path(const char *name)
{
	for (; *name; name++)
		if ((unsigned char)*name < ' ' || *name == 0x7f)
			return false;
	return true;
}

/* 1 = read an entry, 0 = the record is not plausible. */
static int take_debug_entry(struct jitdump *j, struct buf *b, u32 *file)
{
	const char *name;
	u64 address;
	u32 line;
	int r;

	if (!buf_u64(b, &address) || !buf_u32(b, &line) || !buf_skip(b, 4) || !buf_cstr(b, &name) ||
	    address < j->pending_address || address - j->pending_address > MAX_RECORD)
		return 0;
	/* "\xff" stands for the file of the previous entry. */
	if (strcmp(name, "\xff") != 0) {
		if (!is_path(name))
			return 0;
		r = strtab_add(&j->strings, name, strnlen(name, MAX_NAME), file);
		if (r < 0)
			return r;
	}
	address -= j->pending_address;
	r = vec_push(&j->lines, (struct line_entry){(u32)address, line, *file});
	return r < 0 ? r : 1;
}

/*
 * Takes all entries of a record or none: V8 (Node 20) writes file names from freed memory, and
 * everything after such a name would be read at the wrong offset.
 */
static int take_debug(struct jitdump *j, struct buf b)
{
	u32 file = 0, first = (u32)j->lines.n, min_delta = j->min_delta;
	u64 n;
	int r = 1;

	j->pending_n = 0;
	j->pending_first = first;
	if (!buf_u64(&b, &j->pending_address) || !buf_u64(&b, &n))
		return skip_record(j, DAMAGED_LINES);
	if (n > MAX_LINES - first)
		return 0;
	for (u64 i = 0; i < n && r > 0; i++) {
		r = take_debug_entry(j, &b, &file);
		if (r > 0)
			min_delta = MIN(min_delta, j->lines.data[j->lines.n - 1].delta);
	}
	if (r <= 0) {
		j->lines.n = first;
		return r < 0 ? r : skip_record(j, DAMAGED_LINES);
	}
	j->min_delta = min_delta;
	j->pending_n = (u32)n;
	return 0;
}

static int take_record(struct jitdump *j, u32 id, u64 time_ns, struct buf body)
{
	if (j->no_time)
		time_ns = 0;
	switch (id) {
	case RECORD_LOAD:
		return take_load(j, body, time_ns);
	case RECORD_MOVE:
		return take_move(j, body, time_ns);
	case RECORD_DEBUG:
		return take_debug(j, body);
	default:
		return 0;
	}
}

/* Nothing behind the damage can be read. */
static int stop_at(struct jitdump *j, const char *text)
{
	skip_record(j, text);
	return -EINVAL;
}

static int read_header(struct jitdump *j)
{
	u8 bytes[HEADER_BYTES];
	struct buf b = buf_of(bytes, sizeof(bytes));
	u32 magic, version, size;
	u64 flags;

	if (pread(j->fd, bytes, sizeof(bytes), 0) != sizeof(bytes))
		return -EAGAIN; /* not written yet */
	buf_u32(&b, &magic);
	if (magic == __builtin_bswap32(JITDUMP_MAGIC))
		b.swap = true;
	else if (magic != JITDUMP_MAGIC)
		return stop_at(j, "not a jitdump file");
	j->swap = b.swap;
	if (!buf_u32(&b, &version) || !buf_u32(&b, &size) || version != 1 || size < HEADER_BYTES)
		return stop_at(j, "a damaged header, or one of unknown version");
	if (!buf_skip(&b, 20) || !buf_u64(&b, &flags))
		return -EINVAL;
	j->no_time = flags & FLAG_ARCH_TIMESTAMP;
	j->offset = size;
	return 0;
}

/* 1 = read a record, 0 = there is no complete one. */
static int read_record(struct jitdump *j, u8 **bytes, size_t *cap)
{
	u8 prefix[PREFIX_BYTES];
	struct buf b = buf_of(prefix, sizeof(prefix));
	u32 id, size;
	void *grown;
	u64 time_ns;
	int r;

	b.swap = j->swap;
	if (pread(j->fd, prefix, sizeof(prefix), (off_t)j->offset) != sizeof(prefix) ||
	    !buf_u32(&b, &id) || !buf_u32(&b, &size) || !buf_u64(&b, &time_ns))
		return 0;
	if (size < PREFIX_BYTES)
		return stop_at(j, "a record of impossible length");
	if (id <= RECORD_DEBUG && size <= MAX_RECORD && (!j->max_bytes || size <= j->max_bytes)) {
		grown = *bytes;
		r = vec_grow_(&grown, cap, size, 1);
		*bytes = grown;
		if (r < 0)
			return r;
		size -= PREFIX_BYTES;
		if (pread(j->fd, *bytes, size, (off_t)(j->offset + PREFIX_BYTES)) != (ssize_t)size)
			return 0;
		b = buf_of(*bytes, size);
		b.swap = j->swap;
		r = take_record(j, id, time_ns, b);
		if (r < 0)
			return r;
		size += PREFIX_BYTES;
	}
	j->offset += size;
	return 1;
}

static u64 memory(const struct jitdump *j)
{
	return j->strings.cap_bytes + 8 * j->strings.cap + 4 * j->strings.index_cap +
	       j->codes.cap * sizeof(*j->codes.data) + j->lines.cap * sizeof(*j->lines.data) +
	       j->links.cap * sizeof(*j->links.data) + j->pages.cap * sizeof(struct map_slot);
}

int jitdump_refresh(struct jitdump *j)
{
	_cleanup_free_ u8 *bytes = NULL;
	struct stat st;
	size_t cap = 0;
	int r;

	if (!j->offset) {
		r = read_header(j);
		if (r < 0)
			return r == -EAGAIN ? 0 : r;
	}
	if (fstat(j->fd, &st) < 0)
		return -errno;
	do {
		/* A file is never shorter than its records. */
		if (j->offset >= (u64)st.st_size)
			return 0;
		if (j->strings.n_bytes > MAX_POOL ||
		    (j->max_bytes && memory(j) + cap > j->max_bytes))
			j->full = true;
		if (j->full)
			return -E2BIG;
		r = read_record(j, &bytes, &cap);
	} while (r > 0);
	return r;
}

int jitdump_open(int fd, u64 max_bytes, struct jitdump **ret)
{
	_cleanup_jitdump_ struct jitdump *j = calloc(1, sizeof(*j));
	struct stat st;
	int r;

	if (!j) {
		close(fd);
		return -ENOMEM;
	}
	j->fd = fd;
	j->max_bytes = max_bytes;
	j->min_delta = ~0U;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EINVAL;
	r = strtab_init(&j->strings);
	if (r == 0)
		r = jitdump_refresh(j);
	if (r < 0)
		return r;
	*ret = take_ptr(j);
	return 0;
}

static void find_line(const struct jitdump *j, const struct code *c, u64 address,
		      struct symbol_frame *frame)
{
	u32 shift = j->min_delta != ~0U && j->min_delta >= V8_ELF_HEADER ? V8_ELF_HEADER : 0;
	const struct line_entry *best = NULL;

	for (u32 i = 0; i < c->n_lines; i++) {
		const struct line_entry *l = &j->lines.data[c->first_line + i];

		if (l->delta - shift <= address - c->start && (!best || l->delta >= best->delta))
			best = l;
	}
	if (!best)
		return;
	frame->file = best->file ? strtab_get(&j->strings, best->file) : NULL;
	frame->line = best->line;
}

int jitdump_lookup(struct jitdump *j, u64 address, u64 time_ns, struct symbol_chain *ret)
{
	/* Code is valid until to_ns - 1, so that "forever" is one less than ~0. */
	const struct code *c = find_code(j, address, MIN(time_ns, ~0ULL - 1));
	struct symbol_frame *frame = &ret->frames[0];

	if (j->full)
		return -E2BIG;
	if (!c)
		return -ENOENT;
	*frame = (struct symbol_frame){};
	frame->name = frame->system_name = strtab_get(&j->strings, c->name);
	find_line(j, c, address, frame);
	ret->n = 1;
	return 0;
}
