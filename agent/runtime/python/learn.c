/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Learns from a binary of CPython: its version, and the code of its interpreter's loop.
 *
 * The loop is one exported function and the parts that the compiler split off: code that the
 * function jumps to, with ranges of its own in .eh_frame, in which the stack frame exists already.
 */
#include <elf.h>
#include <errno.h>
#include <string.h>

#include "agent/runtime/python/python.h"
#include "base/str.h"
#include "disasm/disasm.h"
#include "dwarf/cfi.h"

#define MAX_SYMBOLS (1u << 20)
#define MAX_LOOP_BYTES (1u << 20)
/*
 * A loop that contains all instructions is larger; one that calls a function per instruction is
 * smaller.
 */
#define MIN_LOOP_BYTES 12288
#define MAX_AWAY 64
#define MAX_FDES (1u << 20)

static const char loop_name[] = "_PyEval_EvalFrameDefault";

/* ---- symbols ---- */

/* Finds the symbol tables. A static program has only the symbols that survived stripping. */
static bool symbol_sections(struct elf_file *elf, struct buf *ret_syms, struct buf *ret_strs)
{
	return (elf_file_section(elf, ".dynsym", NULL, ret_syms) == 0 &&
		elf_file_section(elf, ".dynstr", NULL, ret_strs) == 0) ||
	       (elf_file_section(elf, ".symtab", NULL, ret_syms) == 0 &&
		elf_file_section(elf, ".strtab", NULL, ret_strs) == 0);
}

bool python_symbol(struct elf_file *elf, const char *name, u64 *ret_svma, u64 *ret_size)
{
	struct buf syms, strs;
	size_t length = strlen(name);
	Elf64_Sym s;

	if (!symbol_sections(elf, &syms, &strs))
		return false;
	for (u32 i = 0; i < MAX_SYMBOLS && buf_left(&syms) >= sizeof(s); i++) {
		memcpy(&s, syms.pos, sizeof(s));
		(void)buf_skip(&syms, sizeof(s));
		if (s.st_shndx == SHN_UNDEF || s.st_name >= buf_left(&strs) ||
		    buf_left(&strs) - s.st_name <= length ||
		    memcmp(strs.pos + s.st_name, name, length + 1))
			continue;
		*ret_svma = s.st_value;
		if (ret_size)
			*ret_size = s.st_size;
		return true;
	}
	return false;
}

bool python_is_name(const char *path)
{
	const char *slash = strrchr(path, '/');
	const char *base = slash ? slash + 1 : path;

	return str_starts(base, "python") || str_starts(base, "libpython3.");
}

bool python_has_loop(struct elf_file *elf)
{
	u64 svma, size;

	return python_symbol(elf, loop_name, &svma, &size);
}

/* Reads the version from a file name like pythonX.Y or libpythonX.Y. */
static u32 version_of_name(const char *path)
{
	const char *slash = strrchr(path, '/');
	const char *p = strstr(slash ? slash + 1 : path, "python");
	u32 minor = 0;

	if (!p || strncmp(p + 6, "3.", 2))
		return 0;
	for (p += 8; *p >= '0' && *p <= '9' && minor < 100; p++)
		minor = minor * 10 + (u32)(*p - '0');
	return minor ? 0x0300 | minor : 0;
}

static int find_version(struct elf_file *elf, const char *path, struct python_learned *l,
			struct diag *d)
{
	u64 at;
	u32 hex = 0;

	/* PY_VERSION_HEX, from 3.11 on (Include/pylifecycle.h) */
	if (python_symbol(elf, "Py_Version", &at, NULL) &&
	    elf_file_copy(elf, at, sizeof(hex), &hex) == (ssize_t)sizeof(hex))
		l->version = hex >> 16;
	else
		l->version = version_of_name(path);
	if (!l->version)
		return diag_set(
			d, -ENOTSUP,
			"neither Py_Version nor the file's name gives the version of Python");
	return 0;
}

/* ---- the loop ---- */

struct away {
	u64 svma[MAX_AWAY];
	u32 n;
};

struct sweep {
	const struct python_range *loop;
	struct away away;
	s64 depth; /* bytes from sp to the end of the stack frame, during the prologue */
	s64 deepest;
	bool prologue;
	/* Stores to thread_state->frame: the register that holds the thread state, ~0 before the
	 * first store; `leaving`: the last range of bpf->unlinked is still open. */
	struct python_binary *bpf;
	u32 thread_reg;
	bool leaving;
	bool arm64;
};

/* mov %reg, disp8(%base): returns the base, or ~0; stores to the stack do not count. */
static u32 is_store(const u8 *p, u8 length, u8 disp)
{
	if (length < 4 || (p[0] & 0xf8) != 0x48 || p[1] != 0x89 || p[2] >> 6 != 1 ||
	    ((p[2] & 7) == 4 && !(p[0] & 1)))
		return ~0u;
	if ((p[2] & 7) == 4 ? length != 5 || p[3] != 0x24 || p[4] != disp
			    : length != 4 || p[3] != disp)
		return ~0u;
	return (p[2] & 7u) | (p[0] & 1u) << 3;
}

/* str x, [base, #24]: returns the base, or ~0. */
static u32 is_store_arm64(const u8 *p, u32 offset)
{
	u32 w;

	memcpy(&w, p, sizeof(w));
	if ((w & 0xffc00000) != 0xf9000000 || (w >> 10 & 0xfff) * 8 != offset ||
	    (w >> 5 & 31) == 31)
		return ~0u;
	return w >> 5 & 31;
}

/*
 * The loop begins by storing its frame in the thread state, and ends by storing the frame before
 * it. Only in between, its frame is the first of the list.
 */
static void note_link(struct sweep *s, const u8 *bytes, const struct disasm_insn *i, u64 at)
{
	struct python_binary *b = s->bpf;
	u32 base = s->arm64 ? is_store_arm64(bytes, b->thread_frame)
			    : is_store(bytes, i->length, (u8)b->thread_frame);
	struct python_range *last;

	if (b->shape != PYTHON_ONE)
		return;
	if (s->leaving) {
		last = &b->unlinked[b->n_unlinked - 1];
		last->end = at + i->length;
		s->leaving = i->flow != DISASM_RETURN && i->flow != DISASM_JUMP;
	}
	if (base == ~0u || (s->thread_reg != ~0u && base != s->thread_reg) ||
	    b->n_unlinked == PYTHON_MAX_RANGES)
		return;
	if (s->thread_reg == ~0u) {
		b->unlinked[b->n_unlinked++] =
			(struct python_range){s->loop->start, at + i->length};
		s->thread_reg = base;
		return;
	}
	b->unlinked[b->n_unlinked++] = (struct python_range){at + i->length, at + i->length};
	s->leaving = true;
}

static void note_away(struct sweep *s, u64 target)
{
	if (target >= s->loop->start && target < s->loop->end)
		return;
	for (u32 i = 0; i < s->away.n; i++)
		if (s->away.svma[i] == target)
			return;
	if (s->away.n < MAX_AWAY)
		s->away.svma[s->away.n++] = target;
}

static void sweep_insn(struct sweep *s, const struct disasm_insn *i)
{
	if (i->flow == DISASM_JUMP || i->flow == DISASM_BRANCH)
		note_away(s, i->target);
	for (u8 k = 0; s->prologue && k < i->n; k++) {
		const struct disasm_effect *e = &i->effects[k];

		if (e->op == DISASM_SET && e->reg == DISASM_SP && e->base == DISASM_SP)
			s->depth -= e->off;
		s->deepest = MAX(s->deepest, s->depth);
	}
	if (i->flow == DISASM_CALL || i->flow == DISASM_INDIRECT || i->flow == DISASM_RETURN ||
	    i->flow == DISASM_JUMP)
		s->prologue = false;
}

static int sweep_loop(struct elf_file *elf, struct sweep *s)
{
	_cleanup_disasm_ struct disasm *d = NULL;
	struct buf code;
	u64 at = s->loop->start;
	int r = disasm_create(elf->machine, &d);

	if (r < 0)
		return r;
	r = elf_file_bytes(elf, at, s->loop->end - at, &code);
	if (r < 0)
		return r;
	while (buf_left(&code)) {
		struct disasm_insn i = {.target = ~0ULL};

		if (!disasm_one(d, code, at, &i) || !i.length)
			i = (struct disasm_insn){.length = elf->machine == EM_X86_64 ? 1 : 4};
		else
			sweep_insn(s, &i);
		if (buf_left(&code) >= i.length)
			note_link(s, code.pos, &i, at);
		if (!buf_skip(&code, i.length))
			break;
		at += i.length;
	}
	return 0;
}

static void first_rule(void *arg, u64 pc, const struct unwind_rule *rule)
{
	struct unwind_rule *first = arg;

	if (first->cfa_op == UNWIND_CFA_NONE)
		*first = *rule;
}

/* Whether the frame exists already where a range begins: the range is part of another function. */
static bool begins_inside(const struct cfi_table *t, const struct cfi_fde *fde)
{
	struct unwind_rule first = {.cfa_op = UNWIND_CFA_NONE};
	u64 budget = 4096;

	cfi_run(t, fde, fde->start, MIN(fde->end, fde->start + 1), &budget, first_rule, &first);
	return (first.cfa_op == UNWIND_CFA_REG && first.cfa_reg == t->machine->sp &&
		first.cfa_off > 16) ||
	       (first.cfa_op == UNWIND_CFA_REG && first.cfa_reg != t->machine->sp);
}

static void add_away(struct elf_file *elf, const struct away *away, struct python_binary *b)
{
	struct elf_section section;
	struct cfi_table t = {};
	struct cfi_fde fde;
	struct buf bytes;
	u64 offset = 0, at;

	if (elf_file_section(elf, ".eh_frame", &section, &bytes) < 0 ||
	    cfi_table_init(&t, bytes, section.svma, true, elf->machine) < 0)
		return;
	for (u32 i = 0; i < MAX_FDES && cfi_next(&t, &offset, &at); i++) {
		bool wanted = false;

		if (b->n_loops == PYTHON_MAX_RANGES)
			return;
		if (cfi_fde_at(&t, at, &fde) < 0)
			continue;
		for (u32 k = 0; k < away->n && !wanted; k++)
			wanted = away->svma[k] >= fde.start && away->svma[k] < fde.end;
		if (wanted && fde.start != b->loops[0].start && begins_inside(&t, &fde))
			b->loops[b->n_loops++] = (struct python_range){fde.start, fde.end};
	}
}

static int find_loop(struct elf_file *elf, struct python_learned *l, struct diag *d)
{
	struct python_binary *b = &l->bpf;
	struct sweep s = {.loop = &b->loops[0],
			  .bpf = b,
			  .prologue = true,
			  .depth = 8,
			  .thread_reg = ~0u,
			  .arm64 = elf->machine == EM_AARCH64};
	u64 start, size;
	int r;

	if (!python_symbol(elf, loop_name, &start, &size) || !size || size > MAX_LOOP_BYTES)
		return diag_set(d, -ENOTSUP, "%s is not among its symbols", loop_name);
	b->loops[0] = (struct python_range){start, start + size};
	b->n_loops = 1;
	r = sweep_loop(elf, &s);
	if (r < 0)
		return diag_set(d, r, "the code of %s cannot be read", loop_name);
	b->stack_bytes = (u32)MIN(s.deepest, (s64)65536);
	add_away(elf, &s.away, b);
	size = 0;
	for (u32 i = 0; i < b->n_loops; i++)
		size += b->loops[i].end - b->loops[i].start;
	if (b->shape == PYTHON_LIST && size < MIN_LOOP_BYTES)
		b->shape = PYTHON_TAIL;
	return 0;
}

/* Only a build with the JIT reads this variable, when it starts (Python/pylifecycle.c). */
static bool has_jit(struct elf_file *elf)
{
	static const char variable[] = "\0PYTHON_JIT";
	static const char *const sections[] = {".rodata", ".bolt.org.rodata"};
	struct buf bytes;

	for (u32 i = 0; i < ARRAY_SIZE(sections); i++)
		if (elf_file_section(elf, sections[i], NULL, &bytes) == 0 &&
		    memmem(bytes.pos, buf_left(&bytes), variable, sizeof(variable)))
			return true;
	return false;
}

int python_learn(struct elf_file *elf, const char *path, struct python_learned *ret,
		 struct diag *reterr_diag)
{
	int r;

	ret->machine = elf->machine;
	(void)python_symbol(elf, "_PyRuntime", &ret->runtime, NULL);
	r = find_version(elf, path, ret, reterr_diag);
	if (r == 0)
		r = python_offsets(elf, ret, reterr_diag);
	if (r == 0)
		r = find_loop(elf, ret, reterr_diag);
	if (r == 0)
		r = python_learn_thread(elf, ret, reterr_diag);
	ret->jit = r == 0 && ret->version >= 0x030d && has_jit(elf);
	return r;
}
