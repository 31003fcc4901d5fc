/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Function names, lines and inlined calls. One funcdata of a function is its inline tree; one
 * pcdata gives the entry of the tree that a pc is in (src/runtime/symtabinl.go). An entry has a
 * name and the pc of the call in the caller; the caller's line and its entry are looked up by that
 * pc.
 */
#include "runtime/go/lines.h"

#include <errno.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "runtime/go/module.h"
#include "runtime/go/pclntab.h"

#define PCDATA_INL_TREE_INDEX 2
#define FUNCDATA_INL_TREE 3
#define FUNCDATA_INL_TREE_1_15 4
#define MAX_PC_STEPS (1U << 20)

struct go_lines {
	struct pclntab t;
	u64 gofunc; /* 0: unknown, and no inlined calls from 1.18 on */
};

struct inline_tree {
	u32 index; /* the pcdata that gives a pc's entry */
	u64 svma;  /* svma of the entries; 0: there is no tree */
};

int go_lines_open(struct elf_file *elf, struct go_lines **ret)
{
	_cleanup_free_ struct go_lines *l = calloc(1, sizeof(*l));
	int r;

	if (!l)
		return -ENOMEM;
	r = pclntab_open(elf, &l->t);
	if (r < 0)
		return r;
	if (l->t.version >= GO_1_18) {
		struct go_module m = {};

		go_module_read(&l->t, &m);
		l->gofunc = m.gofunc;
		if (!l->t.text)
			l->t.text = m.text;
		if (!l->t.text)
			r = pclntab_open_with_text(elf, &l->t);
		if (r < 0)
			return r;
	}
	*ret = take_ptr(l);
	return 0;
}

void go_lines_close(struct go_lines *l)
{
	free(l);
}

static bool u32_at(struct buf b, u64 at, u32 *ret)
{
	return buf_skip(&b, at) && buf_u32(&b, ret);
}

/* Reads a signed value from a pc table. False: the table has none for pc. */
static bool value_at(const struct go_lines *l, const struct go_func *f, u32 table, u64 pc, s32 *ret)
{
	s64 value;

	if (!pctable_value(&l->t, f, table, pc, MAX_PC_STEPS, &value))
		return false;
	*ret = (s32)value;
	return true;
}

static struct inline_tree read_inline_tree(const struct go_lines *l, const struct go_func *f)
{
	bool absolute = l->t.version < GO_1_18;
	u32 which = l->t.version == GO_1_2 ? FUNCDATA_INL_TREE_1_15 : FUNCDATA_INL_TREE;
	u64 at = (u64)f->n_pcdata * 4;
	struct inline_tree tree = {};
	struct buf b = f->data;
	u32 offset;

	if (f->n_pcdata <= PCDATA_INL_TREE_INDEX || f->n_funcdata <= which ||
	    !u32_at(b, PCDATA_INL_TREE_INDEX * 4, &tree.index))
		return tree;
	if (!absolute) {
		if (l->gofunc && u32_at(b, at + which * 4, &offset) && offset != ~0U)
			tree.svma = l->gofunc + offset;
		return tree;
	}
	/* Pointers are aligned in the file, not relative to this buffer. */
	at += ((u64)(uintptr_t)b.pos + at) & 4;
	if (buf_skip(&b, at + which * 8))
		(void)buf_u64(&b, &tree.svma);
	return tree;
}

static bool find_func(const struct go_lines *l, u64 svma, struct go_func *ret)
{
	u32 i = pclntab_find(&l->t, svma);

	return svma >= pclntab_start(&l->t, i) && svma < pclntab_start(&l->t, i + 1) &&
	       pclntab_func(&l->t, i, ret);
}

static void read_line(const struct go_lines *l, const struct go_func *f, u64 pc,
		      struct go_frame *ret)
{
	struct buf files = l->t.filetab;
	s32 file, line;
	u32 offset;

	if (value_at(l, f, f->pcln, pc, &line) && line > 0)
		ret->line = (u32)line;
	if (!value_at(l, f, f->pcfile, pc, &file) || file < 0 ||
	    !u32_at(l->t.cutab, ((u64)f->cu + (u32)file) * 4, &offset) || offset == ~0U ||
	    !buf_skip(&files, offset))
		return;
	(void)buf_cstr(&files, &ret->file);
}

/* Returns the name and start line of the inlined function that pc is in, and the pc of the call. */
static bool inlined_at(const struct go_lines *l, const struct go_func *f,
		       const struct inline_tree *tree, u64 pc, struct go_frame *ret,
		       u64 *ret_call_pc)
{
	bool old = l->t.version < GO_1_20;
	u32 entry_bytes = old ? 20 : 16, name, call, start = 0;
	const struct buf *names = &l->t.names;
	struct buf b;
	s32 index;

	if (!tree->svma || !value_at(l, f, tree->index, pc, &index) || index < 0 ||
	    elf_file_bytes(l->t.elf, tree->svma + (u64)index * entry_bytes, entry_bytes, &b) < 0)
		return false;
	if (!u32_at(b, old ? 12 : 4, &name) || !u32_at(b, old ? 16 : 8, &call) ||
	    (!old && !u32_at(b, 12, &start)))
		return false;
	/* Verify that this is an entry of an inline tree: the call is inside the function, and the
	 * name starts after a NUL. */
	if (call >= f->end - f->start ||
	    (name && (name >= buf_left(names) || names->pos[name - 1] != 0)))
		return false;
	*ret = (struct go_frame){
		.name = pclntab_name(&l->t, name),
		.start_line = start,
		.inlined = true,
	};
	*ret_call_pc = f->start + call;
	return ret->name && *ret->name;
}

int go_lines_lookup(const struct go_lines *l, u64 svma, bool inlines, bool lines, u32 max,
		    struct go_frame *ret, u32 *ret_n)
{
	struct inline_tree tree;
	struct go_func f;
	u64 pc = svma;
	u32 n = 0;
	s32 line;

	if (!find_func(l, svma, &f))
		return -ENOENT;
	/* Padding between functions and the linker's marks (go:textfipsstart) have no line. */
	if (!value_at(l, &f, f.pcln, svma, &line))
		return -ENODATA;
	tree = read_inline_tree(l, &f);
	for (u32 hops = 1;; hops++) {
		u64 call_pc = 0;
		bool inlined = hops < max && inlined_at(l, &f, &tree, pc, &ret[n], &call_pc);

		if (!inlined)
			ret[n] = (struct go_frame){
				.name = pclntab_name(&l->t, f.name),
				.start_line = f.start_line,
				.low = f.start,
			};
		if (lines)
			read_line(l, &f, pc, &ret[n]);
		if (!inlined)
			break;
		n += inlines;
		pc = call_pc;
	}
	*ret_n = n + 1;
	return ret[n].name && *ret[n].name ? 0 : -ENOENT;
}

u32 go_lines_calls(const struct go_lines *l, u64 svma, u32 max, u64 *ret)
{
	struct inline_tree tree;
	struct go_frame frame;
	struct go_func f;
	u32 n = 0;

	if (!find_func(l, svma, &f))
		return 0;
	tree = read_inline_tree(l, &f);
	for (u64 pc = svma; n < max && inlined_at(l, &f, &tree, pc, &frame, &pc);)
		ret[n++] = pc;
	return n;
}
