/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/go/pclntab.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

#define MAX_FUNCS (16u << 20)
#define SHORT_NAME_BYTES 128 /* with the NUL */
/* In files without section headers: bytes searched, and occurrences of a magic tried. */
#define SEARCH_CHUNK (1u << 20)
#define SEARCH_MAX_BYTES (1ULL << 30)
#define SEARCH_MAX_TRIES 16

static bool read_at(struct buf b, u64 at, u32 bytes, u64 *ret)
{
	u32 v;

	if (!buf_skip(&b, at))
		return false;
	if (bytes == 8)
		return buf_u64(&b, ret);
	if (!buf_u32(&b, &v))
		return false;
	*ret = v;
	return true;
}

static u32 entry_bytes(const struct pclntab *t)
{
	return t->version < GO_1_18 ? 8 : 4;
}

/* -EINVAL, and tells the file. What is tried as a table, without a section, may be anything. */
static int damaged(const struct pclntab *t, u64 offset, const char *text)
{
	if (t->section)
		elf_file_damaged(t->elf, t->section, offset, text);
	return -EINVAL;
}

/* ---- functions ---- */

u64 pclntab_start(const struct pclntab *t, u32 i)
{
	u64 v = 0;

	(void)read_at(t->functab, (u64)i * 2 * entry_bytes(t), entry_bytes(t), &v);
	return t->text + v;
}

u32 pclntab_find(const struct pclntab *t, u64 svma)
{
	u32 lo = 0, n = t->n;

	while (n > 1) {
		u32 half = n / 2;

		if (pclntab_start(t, lo + half) <= svma)
			lo += half;
		n -= half;
	}
	return lo;
}

static bool read_func(const struct pclntab *t, u32 i, struct buf b, struct go_func *ret)
{
	struct go_func f = {};

	if (!buf_skip(&b, entry_bytes(t)) || !buf_u32(&b, &f.name) || !buf_skip(&b, 8) ||
	    !buf_u32(&b, &f.pcsp) || !buf_u32(&b, &f.pcfile) || !buf_u32(&b, &f.pcln) ||
	    !buf_u32(&b, &f.n_pcdata))
		return false;
	if ((t->version >= GO_1_16 && !buf_u32(&b, &f.cu)) ||
	    (t->version >= GO_1_20 && !buf_u32(&b, &f.start_line)))
		return false;
	if (!buf_skip(&b, 1) || !buf_u8(&b, &f.flag) || !buf_skip(&b, 1) ||
	    !buf_u8(&b, &f.n_funcdata))
		return false;
	if (t->version == GO_1_2)
		f.flag = 0; /* these bytes are padding */
	f.data = b;
	f.start = pclntab_start(t, i);
	f.end = pclntab_start(t, i + 1);
	*ret = f;
	return f.end >= f.start;
}

bool pclntab_func(const struct pclntab *t, u32 i, struct go_func *ret)
{
	u32 entry = entry_bytes(t);
	u64 offset, at = ((u64)i * 2 + 1) * entry;
	struct buf b = t->funcs;

	if (!read_at(t->functab, at, entry, &offset) || !buf_skip(&b, offset))
		damaged(t, buf_offset(&t->functab) + at, "no data of a function");
	else if (!read_func(t, i, b, ret))
		damaged(t, buf_offset(&b), "damaged data of a function");
	else
		return true;
	return false;
}

const char *pclntab_name(const struct pclntab *t, u32 offset)
{
	struct buf b = t->names;
	const char *name;

	return buf_skip(&b, offset) && buf_cstr(&b, &name) ? name : NULL;
}

const char *pclntab_short_name(const struct pclntab *t, u32 offset)
{
	struct buf b = t->names;
	const char *name;

	if (!buf_skip(&b, offset))
		return "";
	b.end = b.pos + MIN(buf_left(&b), (size_t)SHORT_NAME_BYTES);
	return buf_cstr(&b, &name) ? name : "";
}

/* ---- tables of values by pc ---- */

bool pctable_init(const struct pclntab *t, const struct go_func *f, u32 at, struct pctable *ret)
{
	*ret = (struct pctable){.b = t->pctab, .pc = f->start, .value = -1, .quantum = t->quantum};
	return at && buf_skip(&ret->b, at);
}

bool pctable_next(struct pctable *p)
{
	u64 u, delta;

	if (!buf_uleb(&p->b, &u) || u > ~0u || (!u && p->started) || !buf_uleb(&p->b, &delta) ||
	    delta > ~0u)
		return false;
	p->started = true;
	p->value += u & 1 ? ~(s64)(u >> 1) : (s64)(u >> 1);
	p->pc += delta * p->quantum;
	return true;
}

bool pctable_value(const struct pclntab *t, const struct go_func *f, u32 at, u64 pc, u32 max_steps,
		   s64 *ret)
{
	struct pctable p;

	if (!pctable_init(t, f, at, &p))
		return false;
	for (u32 i = 0; i < max_steps && pctable_next(&p); i++)
		if (pc < p.pc) {
			*ret = p.value;
			return true;
		}
	return false;
}

/* ---- header ---- */

static bool version_of(u32 magic, enum pclntab_version *ret)
{
	switch (magic) {
	case 0xfffffffb:
		*ret = GO_1_2;
		return true;
	case 0xfffffffa:
		*ret = GO_1_16;
		return true;
	case 0xfffffff0:
		*ret = GO_1_18;
		return true;
	case 0xfffffff1:
		*ret = GO_1_20;
		return true;
	default:
		return false;
	}
}

static bool window_at(struct buf all, u64 offset, struct buf *ret)
{
	if (!buf_skip(&all, offset))
		return false;
	*ret = all;
	return true;
}

/* Up to 1.15: parses what follows nfunc, from `b`. */
static bool find_parts_1_2(struct pclntab *t, struct buf all, struct buf b)
{
	u64 filetab;

	t->names = t->pctab = t->filetab = t->funcs = all;
	t->functab = b;
	return read_at(b, (u64)t->n * 16 + 8, 4, &filetab) && window_at(all, filetab, &t->cutab);
}

/* From 1.16 on: parses what follows nfunc, from `b`. */
static bool find_parts(struct pclntab *t, struct buf all, struct buf b)
{
	struct buf *const parts[] = {&t->names, &t->cutab, &t->filetab, &t->pctab, &t->functab};
	u64 offset;

	if (!buf_skip(&b, 8) || (t->version >= GO_1_18 && !buf_u64(&b, &t->text)))
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(parts); i++)
		if (!buf_u64(&b, &offset) || !window_at(all, offset, parts[i]))
			return false;
	t->funcs = t->functab;
	return true;
}

static int parse_header(struct pclntab *t, struct buf all)
{
	struct buf b = all;
	u8 pointer_bytes;
	u64 n;
	u32 magic;
	u16 zero;

	t->text = 0;
	if (!buf_u32(&b, &magic))
		return damaged(t, 0, "a damaged header");
	if (!version_of(magic, &t->version)) {
		damaged(t, 0, "a header of unknown version");
		return -ENOTSUP;
	}
	if (!buf_u16(&b, &zero) || zero || !buf_u8(&b, &t->quantum) ||
	    !buf_u8(&b, &pointer_bytes) || (t->quantum != 1 && t->quantum != 4) ||
	    pointer_bytes != 8 || !buf_u64(&b, &n) || !n || n > MAX_FUNCS)
		return damaged(t, 0, "a damaged header");
	t->n = (u32)n;
	if (!(t->version == GO_1_2 ? find_parts_1_2(t, all, b) : find_parts(t, all, b)) ||
	    (n * 2 + 1) * entry_bytes(t) > buf_left(&t->functab))
		return damaged(t, buf_offset(&b), "parts beyond the end");
	return 0;
}

static int check_order(const struct pclntab *t)
{
	u64 last = pclntab_start(t, 0);

	for (u32 i = 1; i <= t->n; i++) {
		u64 start = pclntab_start(t, i);

		if (start < last)
			return damaged(t, buf_offset(&t->functab) + (u64)i * 2 * entry_bytes(t),
				       "a function before the previous one");
		last = start;
	}
	return 0;
}

static int open_at(struct elf_file *elf, const char *section, u64 svma, struct buf all,
		   struct pclntab *ret)
{
	struct pclntab t = {.elf = elf, .section = section, .svma = svma};
	int r = parse_header(&t, all);

	/* In a PIE the absolute entries are in relocations. */
	if (r == 0 && t.version < GO_1_18 && elf->type == ET_DYN) {
		r = elf_file_relocated(elf, svma, buf_left(&all), &all);
		if (r == 0)
			r = parse_header(&t, all);
	}
	if (r == 0)
		r = check_order(&t);
	if (r == 0)
		*ret = t;
	return r;
}

/* ---- finding the table ---- */

/* Without section headers: searches a non-executable segment for a header, which is 8-aligned. */
static int search_segment(struct elf_file *elf, const struct elf_segment *seg, struct pclntab *ret)
{
	_cleanup_free_ u8 *bytes = malloc(SEARCH_CHUNK);
	u64 end = MIN(seg->filesz, SEARCH_MAX_BYTES);
	u32 tries = 0;

	if (!bytes)
		return -ENOMEM;
	for (u64 at = 0; at < end; at += SEARCH_CHUNK) {
		ssize_t n = elf_file_copy(elf, seg->svma + at, SEARCH_CHUNK, bytes);

		for (ssize_t i = 0; i + 8 <= n && tries < SEARCH_MAX_TRIES; i += 8) {
			u64 head, from = at + (u64)i;
			enum pclntab_version version;
			struct buf all;

			/* magic, 0 u16, minLC u8, ptrSize u8 */
			memcpy(&head, bytes + i, 8);
			if (head >> 56 != 8 || (u16)(head >> 32) ||
			    !version_of((u32)head, &version))
				continue;
			tries++;
			if (elf_file_bytes(elf, seg->svma + from, seg->filesz - from, &all) == 0 &&
			    open_at(elf, NULL, seg->svma + from, all, ret) == 0)
				return 0;
		}
		if (n <= 0 || tries == SEARCH_MAX_TRIES)
			break;
	}
	return -ENOENT;
}

int pclntab_open(struct elf_file *elf, struct pclntab *ret)
{
	static const char *const sections[] = {".gopclntab", ".data.rel.ro.gopclntab", ".pclntab"};
	int r = -ENOENT;

	for (size_t i = 0; i < ARRAY_SIZE(sections); i++) {
		struct elf_section s;
		struct buf all;

		r = elf_file_section(elf, sections[i], &s, &all);
		if (r == 0)
			return open_at(elf, sections[i], s.svma, all, ret);
		if (r != -ENOENT)
			return r;
	}
	/* In a PIE linked by the system's linker the table is inside .data.rel.ro. */
	if (elf_file_section(elf, ".text", NULL, NULL) == 0 &&
	    elf_file_section(elf, ".note.go.buildid", NULL, NULL) < 0)
		return -ENOENT;
	for (u32 i = 0; i < elf->n_segments && r == -ENOENT; i++)
		if (!(elf->segments[i].flags & PF_X))
			r = search_segment(elf, &elf->segments[i], ret);
	return r;
}
