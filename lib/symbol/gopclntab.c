/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Go's table of functions (runtime/symtab.go, runtime/symtabinl.go, cmd/link/internal/ld/pcln.go).
 *
 *	header  magic u32 · 0 u16 · minLC u8 · ptrsize u8 · nfunc · nfiles · [textStart, 1.18 on] ·
 *		offsets from here of: funcnametab · cutab · filetab · pctab · functab (pointer size)
 *	functab nfunc × { entry, offset of _func from functab }, then the end of the last function;
 *		u32 from textStart since 1.18, pointers before
 *	_func   entry · nameOff i32 · args · deferreturn · pcsp · pcfile · pcln · npcdata ·
 *		cuOffset · [startLine, 1.20 on] · funcID u8 · 3 × u8 (the last: nfuncdata) ·
 *		npcdata × u32 into pctab ·
 *		nfuncdata × { u32 from gofunc since 1.18, pointer before }
 *	pctab   per table: { zigzag delta of the value, delta of pc / minLC } as varints, from
 *		value -1
 *
 * Up to 1.15 (magic fb) the functab follows nfunc, behind it is the u32 offset of filetab, all
 * offsets are from the header, _func has no cuOffset, and a file's number is its index in filetab.
 *
 * The inline tree of a function is one of its funcdata; which of its entries an address is in says
 * one of its pcdata. An entry has the name and the pc of the call in the caller, whose line and own
 * entry are then looked up in the same way.
 *
 * Since 1.26 textStart is 0 in the header, and where funcdata begins (gofunc) was never there: both
 * are in moduledata, which is a section of its own since 1.26 and else is found by its first word,
 * a pointer to the header.
 */
#include "symbol/gopclntab.h"

#include <errno.h>
#include <gelf.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

#define PCDATA_INL_TREE_INDEX 2
#define FUNCDATA_INL_TREE 3
#define FUNCDATA_INL_TREE_1_15 4
#define MODULE_TEXT 22
#define MODULE_TYPES 37
#define MODULE_WORDS 41
#define MAX_PC_STEPS (1U << 20)
#define MAX_FUNCS (16U << 20)

enum version { GO_1_2, GO_1_16, GO_1_18, GO_1_20 };

struct gopclntab {
	struct elf_file *f; /* borrowed */
	enum version version;
	u8 quantum;
	u64 svma; /* of the header */
	u64 nfunc;
	u64 text;
	u64 gofunc; /* 0 = not known: no inlined calls */
	struct buf names, cutab, filetab, pctab, functab;
	struct buf funcs; /* what offsets of _funcs count from */
};

/* One function. */
struct func {
	u64 entry, end;
	u32 name, pcfile, pcln, cu;
	u32 start_line;
	u32 inl_index; /* pcdata, 0 = none */
	u64 inl_tree;  /* svma, 0 = none */
};

static bool skip_read_u32(struct buf b, u64 skip, u32 *ret)
{
	return buf_skip(&b, skip) && buf_u32(&b, ret);
}

static bool skip_read_u64(struct buf b, u64 skip, u64 *ret)
{
	return buf_skip(&b, skip) && buf_u64(&b, ret);
}

static const char *text_at(struct buf b, u64 offset)
{
	const char *text;

	return buf_skip(&b, offset) && buf_cstr(&b, &text) ? text : NULL;
}

/* ---- moduledata ---- */

/* A pointer in the file's data; in a PIE it may be in its relocation only. */
static u64 word_at(struct gopclntab *t, u64 svma)
{
	struct buf b, rela;
	Elf64_Rela e;
	u64 v = 0;

	if (elf_file_bytes(t->f, svma, 8, &b) == 0)
		(void)buf_u64(&b, &v);
	if (v || t->f->type != ET_DYN || elf_file_section(t->f, ".rela.dyn", NULL, &rela) < 0)
		return v;
	for (; buf_left(&rela) >= sizeof(e); rela.pos += sizeof(e)) {
		memcpy(&e, rela.pos, sizeof(e));
		if (e.r_offset == svma)
			return (u64)e.r_addend;
	}
	return 0;
}

static int find_by_relocation(struct gopclntab *t, u64 *ret)
{
	struct buf rela;
	Elf64_Rela e;

	if (elf_file_section(t->f, ".rela.dyn", NULL, &rela) < 0)
		return -ENOENT;
	for (; buf_left(&rela) >= sizeof(e); rela.pos += sizeof(e)) {
		memcpy(&e, rela.pos, sizeof(e));
		if ((u64)e.r_addend == t->svma && ELF64_R_SYM(e.r_info) == 0) {
			*ret = e.r_offset;
			return 0;
		}
	}
	return -ENOENT;
}

static int find_in_section(struct gopclntab *t, const char *name, u64 *ret)
{
	struct elf_section s;
	struct buf b;
	u64 v;

	if (elf_file_section(t->f, name, &s, &b) < 0)
		return -ENOENT;
	for (u64 at = 0; skip_read_u64(b, at, &v); at += 8) {
		/* minpc <= maxpc, and text: true of moduledata, not of a stray pointer. */
		u64 min, max;

		if (v != t->svma || !skip_read_u64(b, at + 20 * 8, &min) ||
		    !skip_read_u64(b, at + 21 * 8, &max) || min >= max)
			continue;
		*ret = s.svma + at;
		return 0;
	}
	return -ENOENT;
}

static int find_module(struct gopclntab *t, u64 *ret)
{
	static const char *const sections[] = {".go.module", ".noptrdata", ".data", ".data.rel.ro",
					       ".data.rel.ro.go.module"};
	struct elf_section s;

	for (size_t i = 0; i < ARRAY_SIZE(sections); i++)
		if (find_in_section(t, sections[i], ret) == 0)
			return 0;
	if (elf_file_section(t->f, ".go.module", &s, NULL) == 0 && s.size >= MODULE_WORDS * 8) {
		*ret = s.svma;
		return 0;
	}
	return find_by_relocation(t, ret);
}

/*
 * Since 1.20: types · etypes · rodata · gofunc; since 1.27: types · typedesclen · etypes ·
 * itaboffset · itabsize · rodata · gofunc · epclntab. Nothing says which, but lengths are no
 * addresses, and the end of the table is behind its beginning.
 */
static u64 read_gofunc(struct gopclntab *t, u64 module)
{
	u64 types = word_at(t, module + MODULE_TYPES * 8);
	u64 length = word_at(t, module + (MODULE_TYPES + 1) * 8);
	u64 etypes = word_at(t, module + (MODULE_TYPES + 2) * 8);
	u64 epclntab = word_at(t, module + (MODULE_TYPES + 7) * 8);
	bool has_length = etypes > types && length <= etypes - types && epclntab > t->svma;

	return word_at(t, module + (MODULE_TYPES + (has_length ? 6 : 3)) * 8);
}

static void read_module(struct gopclntab *t)
{
	u64 module, text;

	if (find_module(t, &module) < 0)
		return;
	text = word_at(t, module + MODULE_TEXT * 8);
	if (!t->text)
		t->text = text;
	if (t->version == GO_1_18)
		t->gofunc = word_at(t, module + 38 * 8);
	else if (t->version == GO_1_20)
		t->gofunc = read_gofunc(t, module);
}

/* ---- header ---- */

static bool part(struct buf all, u64 offset, struct buf *ret)
{
	if (!buf_skip(&all, offset))
		return false;
	*ret = all;
	return true;
}

/* What is behind nfunc in 1.15. */
static int read_old_header(struct gopclntab *t, struct buf all, struct buf b)
{
	u32 filetab;

	t->names = t->pctab = t->filetab = t->funcs = all;
	t->functab = b;
	if (!skip_read_u32(b, t->nfunc * 16 + 8, &filetab) || !part(all, filetab, &t->cutab))
		return -EINVAL;
	return 0;
}

static int read_header(struct gopclntab *t, struct buf all)
{
	struct buf b = all;
	u64 nfiles, offsets[5];
	u8 pad, pointer;
	u32 magic;

	if (!buf_u32(&b, &magic) || !buf_u8(&b, &pad) || pad || !buf_u8(&b, &pad) || pad ||
	    !buf_u8(&b, &t->quantum) || !buf_u8(&b, &pointer))
		return -EINVAL;
	switch (magic) {
	case 0xfffffffb:
		t->version = GO_1_2;
		break;
	case 0xfffffffa:
		t->version = GO_1_16;
		break;
	case 0xfffffff0:
		t->version = GO_1_18;
		break;
	case 0xfffffff1:
		t->version = GO_1_20;
		break;
	default:
		return -ENOTSUP;
	}
	if (pointer != 8 || (t->quantum != 1 && t->quantum != 4) || !buf_u64(&b, &t->nfunc) ||
	    t->nfunc > MAX_FUNCS || !t->nfunc)
		return -EINVAL;
	if (t->version == GO_1_2)
		return read_old_header(t, all, b);
	if (!buf_u64(&b, &nfiles))
		return -EINVAL;
	if (t->version > GO_1_16 && !buf_u64(&b, &t->text))
		return -EINVAL;
	for (size_t i = 0; i < ARRAY_SIZE(offsets); i++)
		if (!buf_u64(&b, &offsets[i]))
			return -EINVAL;
	if (!part(all, offsets[0], &t->names) || !part(all, offsets[1], &t->cutab) ||
	    !part(all, offsets[2], &t->filetab) || !part(all, offsets[3], &t->pctab) ||
	    !part(all, offsets[4], &t->functab))
		return -EINVAL;
	t->funcs = t->functab;
	return 0;
}

/* A file without section headers: the header's bytes, at a pointer's alignment, in a segment. */
static int find_without_sections(struct elf_file *f, u64 *ret_svma, struct buf *ret)
{
	for (u32 i = 0; i < f->n_segments; i++) {
		const struct elf_segment *s = &f->segments[i];
		struct buf b;

		if (elf_file_bytes(f, s->svma, s->filesz, &b) < 0)
			continue;
		for (u64 at = 0; at + 64 <= s->filesz; at += 8) {
			const u8 *p = b.pos + at;

			if ((p[0] == 0xf0 || p[0] == 0xf1 || p[0] == 0xfa || p[0] == 0xfb) &&
			    p[1] == 0xff && p[2] == 0xff && p[3] == 0xff && !p[4] && !p[5] &&
			    (p[6] == 1 || p[6] == 4) && p[7] == 8) {
				*ret_svma = s->svma + at;
				*ret = (struct buf){.pos = p, .end = b.end};
				return 0;
			}
		}
	}
	return -ENOENT;
}

static int find_table(struct elf_file *f, u64 *ret_svma, struct buf *ret)
{
	static const char *const names[] = {".gopclntab", ".data.rel.ro.gopclntab"};
	struct elf_section s;

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		int r = elf_file_section(f, names[i], &s, ret);

		if (r == 0) {
			*ret_svma = s.svma;
			return 0;
		}
		if (r != -ENOENT)
			return r;
	}
	/* In a PIE that the system's linker made it lies in .data.rel.ro, among other things. */
	if (elf_file_section(f, ".text", NULL, NULL) == 0 &&
	    elf_file_section(f, ".note.go.buildid", NULL, NULL) < 0)
		return -ENOENT;
	return find_without_sections(f, ret_svma, ret);
}

int gopclntab_open(struct elf_file *f, struct gopclntab **ret)
{
	_cleanup_free_ struct gopclntab *t = calloc(1, sizeof(*t));
	struct buf all;
	int r;

	if (!t)
		return -ENOMEM;
	t->f = f;
	r = find_table(f, &t->svma, &all);
	if (r == 0)
		r = read_header(t, all);
	/* In a PIE the addresses in it are relocations. */
	if (r == 0 && t->version <= GO_1_16 && f->type == ET_DYN) {
		r = elf_file_relocated(f, t->svma, buf_left(&all), &all);
		if (r == 0)
			r = read_header(t, all);
	}
	if (r < 0)
		return r;
	if (t->version > GO_1_16) {
		read_module(t);
		if (!t->text)
			return -ENOTSUP;
	}
	*ret = take_ptr(t);
	return 0;
}

void gopclntab_close(struct gopclntab *t)
{
	free(t);
}

/* ---- lookup ---- */

/* Where function i begins, and its _func; i == nfunc: where the last one ends. */
static bool functab_entry(const struct gopclntab *t, u64 i, u64 *ret_pc, u64 *ret_func)
{
	struct buf b = t->functab;
	u32 pc, func = 0;

	if (t->version <= GO_1_16) {
		*ret_func = 0;
		return buf_skip(&b, i * 16) && buf_u64(&b, ret_pc) &&
		       (i == t->nfunc || buf_u64(&b, ret_func));
	}
	if (!buf_skip(&b, i * 8) || !buf_u32(&b, &pc) || (i < t->nfunc && !buf_u32(&b, &func)))
		return false;
	*ret_pc = t->text + pc;
	*ret_func = func;
	return true;
}

/* The value of a pc table; false when there is none at pc. */
static bool pc_value(const struct gopclntab *t, u32 table, const struct func *f, u64 pc, s32 *ret)
{
	struct buf b = t->pctab;
	u64 at = f->entry;
	u32 value = ~0U;

	if (!table || !buf_skip(&b, table))
		return false;
	for (u32 i = 0; i < MAX_PC_STEPS; i++) {
		u64 delta, advance;

		if (!buf_uleb(&b, &delta) || (!delta && i) || !buf_uleb(&b, &advance) ||
		    advance > 0xffffffff)
			return false;
		value += (delta & 1 ? ~(u32)(delta >> 1) : (u32)(delta >> 1));
		at += advance * t->quantum;
		if (pc < at) {
			*ret = (s32)value;
			return true;
		}
	}
	return false;
}

static void read_inline_info(const struct gopclntab *t, struct func *f, struct buf pcdata,
			     u32 npcdata, u8 nfuncdata)
{
	u64 offset = (u64)npcdata * 4, pointer;
	u32 tree = t->version == GO_1_2 ? FUNCDATA_INL_TREE_1_15 : FUNCDATA_INL_TREE;
	u32 w;

	if (npcdata <= PCDATA_INL_TREE_INDEX || nfuncdata <= tree ||
	    !skip_read_u32(pcdata, PCDATA_INL_TREE_INDEX * 4, &f->inl_index))
		return;
	if (t->version > GO_1_16) {
		if (t->gofunc && skip_read_u32(pcdata, offset + tree * 4, &w) && w != 0xffffffff)
			f->inl_tree = t->gofunc + w;
		return;
	}
	/* Pointers are aligned in the image, not in the window. */
	offset += ((u64)(uintptr_t)pcdata.pos + offset) & 4;
	if (skip_read_u64(pcdata, offset + tree * 8, &pointer))
		f->inl_tree = pointer;
}

static bool read_func(const struct gopclntab *t, u64 offset, struct func *f)
{
	struct buf b = t->funcs;
	u32 npcdata, entry32;
	u64 entry64;
	u8 nfuncdata;

	if (!buf_skip(&b, offset))
		return false;
	if (t->version <= GO_1_16 ? !buf_u64(&b, &entry64) : !buf_u32(&b, &entry32))
		return false;
	if (!buf_u32(&b, &f->name) || !buf_skip(&b, 12) || !buf_u32(&b, &f->pcfile) ||
	    !buf_u32(&b, &f->pcln) || !buf_u32(&b, &npcdata) ||
	    (t->version != GO_1_2 && !buf_u32(&b, &f->cu)))
		return false;
	if (t->version == GO_1_20 && !buf_u32(&b, &f->start_line))
		return false;
	if (!buf_skip(&b, 3) || !buf_u8(&b, &nfuncdata))
		return false;
	read_inline_info(t, f, b, npcdata, nfuncdata);
	return true;
}

static bool find_func(const struct gopclntab *t, u64 svma, struct func *f)
{
	u64 lo = 0, hi = t->nfunc, pc, func, next, unused;

	while (lo < hi) {
		u64 mid = lo + (hi - lo) / 2;

		if (!functab_entry(t, mid, &pc, &func))
			return false;
		if (pc <= svma)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (!lo || !functab_entry(t, lo - 1, &pc, &func) || !functab_entry(t, lo, &next, &unused) ||
	    svma < pc || svma >= next)
		return false;
	f->entry = pc;
	f->end = next;
	return read_func(t, func, f);
}

/* Between the end of a function and the next one is padding, which no line belongs to. Marks of
 * the linker (go:textfipsstart) have no lines at all. */
static bool is_padding(const struct gopclntab *t, const struct func *f, u64 pc)
{
	s32 line;

	return !pc_value(t, f->pcln, f, pc, &line);
}

static void read_line(const struct gopclntab *t, const struct func *f, u64 pc,
		      struct dwarf_frame *ret)
{
	s32 file, line;
	u32 offset;

	if (pc_value(t, f->pcln, f, pc, &line) && line > 0)
		ret->line = (u32)line;
	if (!pc_value(t, f->pcfile, f, pc, &file) || file < 0 ||
	    !skip_read_u32(t->cutab, ((u64)f->cu + (u32)file) * 4, &offset) || offset == ~0U)
		return;
	ret->file = text_at(t->filetab, offset);
}

/* The inlined call that pc is in, if any: its name and line, and the pc of the call. */
static bool inlined_at(const struct gopclntab *t, const struct func *f, u64 pc,
		       struct dwarf_frame *ret, u64 *ret_call_pc)
{
	bool old = t->version != GO_1_20;
	u32 name, call, start = 0;
	struct buf b;
	s32 index;

	if (!f->inl_tree || !pc_value(t, f->inl_index, f, pc, &index) || index < 0 ||
	    elf_file_bytes(t->f, f->inl_tree + (u64)index * (old ? 20 : 16), old ? 20 : 16, &b) < 0)
		return false;
	if (!skip_read_u32(b, old ? 12 : 4, &name) || !skip_read_u32(b, old ? 16 : 8, &call) ||
	    (!old && !skip_read_u32(b, 12, &start)))
		return false;
	/* What is no entry of an inline tree shows here. */
	if (call >= f->end - f->entry ||
	    (name && (name >= buf_left(&t->names) || t->names.pos[name - 1] != 0)))
		return false;
	ret->name = text_at(t->names, name);
	ret->start_line = start;
	ret->inlined = true;
	*ret_call_pc = f->entry + call;
	return ret->name && *ret->name;
}

int gopclntab_lookup(struct gopclntab *t, u64 svma, bool inlines, bool lines,
		     struct dwarf_chain *ret)
{
	struct func f = {};
	u32 hops = 0;
	u64 pc = svma;

	if (!find_func(t, svma, &f))
		return -ENOENT;
	if (is_padding(t, &f, svma))
		return -ENODATA;
	ret->incomplete = false;
	for (ret->n = 0; ret->n < DW_MAX_CHAIN;) {
		struct dwarf_frame *frame = &ret->frames[ret->n];
		u64 call_pc;
		bool inlined;

		*frame = (struct dwarf_frame){.plain_c = true};
		inlined = ++hops < DW_MAX_CHAIN && inlined_at(t, &f, pc, frame, &call_pc);
		if (!inlined) {
			*frame = (struct dwarf_frame){.plain_c = true};
			frame->name = text_at(t->names, f.name);
			frame->start_line = f.start_line;
			frame->low = f.entry;
		}
		if (lines)
			read_line(t, &f, pc, frame);
		if (!inlined) {
			ret->n++;
			break;
		}
		ret->n += inlines;
		pc = call_pc;
	}
	return ret->n && ret->frames[ret->n - 1].name && *ret->frames[ret->n - 1].name ? 0
										       : -ENOENT;
}
