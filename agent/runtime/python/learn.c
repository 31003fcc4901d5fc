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

#include "agent/runtime/binary.h"
#include "agent/runtime/python/python.h"
#include "base/str.h"

#define MAX_LOOP_BYTES (1u << 20)
/*
 * A loop that contains all instructions is larger; one that calls a function per instruction is
 * smaller.
 */
#define MIN_LOOP_BYTES 12288

static const char loop_name[] = "_PyEval_EvalFrameDefault";

bool python_is_name(const char *path)
{
	const char *base = runtime_file_name(path);

	return str_starts(base, "python") || str_starts(base, "libpython3.");
}

bool python_has_loop(struct elf_file *elf)
{
	u64 svma, size;

	return runtime_symbol(elf, loop_name, &svma, &size);
}

/* Reads the version from a file name like pythonX.Y or libpythonX.Y. */
static u32 version_of_name(const char *path)
{
	const char *p = strstr(runtime_file_name(path), "python");
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
	if (runtime_symbol(elf, "Py_Version", &at, NULL) &&
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

struct sweep {
	const struct runtime_range *loop;
	struct runtime_away away;
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
static void note_link(struct sweep *s, u64 at, const u8 *bytes, const struct disasm_insn *i)
{
	struct python_binary *b = s->bpf;
	u32 base = s->arm64 ? is_store_arm64(bytes, b->thread_frame)
			    : is_store(bytes, i->length, (u8)b->thread_frame);
	struct runtime_range *last;

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
			(struct runtime_range){s->loop->start, at + i->length};
		s->thread_reg = base;
		return;
	}
	b->unlinked[b->n_unlinked++] = (struct runtime_range){at + i->length, at + i->length};
	s->leaving = true;
}

/* A struct sweep's runtime_insn_fn. */
static bool sweep_insn(void *arg, u64 at, const u8 *bytes, const struct disasm_insn *i)
{
	struct sweep *s = arg;

	runtime_note_away(&s->away, s->loop, i);
	for (u8 k = 0; s->prologue && k < i->n; k++) {
		const struct disasm_effect *e = &i->effects[k];

		if (e->op == DISASM_SET && e->reg == DISASM_SP && e->base == DISASM_SP)
			s->depth -= e->off;
		s->deepest = MAX(s->deepest, s->depth);
	}
	if (i->flow == DISASM_CALL || i->flow == DISASM_INDIRECT || i->flow == DISASM_RETURN ||
	    i->flow == DISASM_JUMP)
		s->prologue = false;
	note_link(s, at, bytes, i);
	return false;
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
	u64 size = 0;
	int r;

	if (!runtime_symbol_range(elf, loop_name, &b->loops[0]) ||
	    b->loops[0].end - b->loops[0].start > MAX_LOOP_BYTES)
		return diag_set(d, -ENOTSUP, "%s is not among its symbols", loop_name);
	r = runtime_sweep(elf, s.loop, sweep_insn, &s);
	if (r < 0)
		return diag_set(d, r, "the code of %s cannot be read", loop_name);
	b->stack_bytes = (u32)MIN(s.deepest, (s64)65536);
	b->n_loops = runtime_add_parts(elf, &s.away, b->loops, PYTHON_MAX_RANGES);
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
	(void)runtime_symbol(elf, "_PyRuntime", &ret->runtime, NULL);
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
