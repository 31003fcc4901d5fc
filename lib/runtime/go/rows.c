/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unwind rows of Go functions. For every pc, the table pcsp gives the distance of sp from its value
 * at entry:
 *
 *	x86-64	cfa = sp + pcsp + 8, return address at cfa - 8
 *	arm64	cfa = sp + pcsp, return address in lr while pcsp = 0, then at cfa - pcsp
 *
 * It does not give the slot of the saved frame pointer, which the C code below a callback and
 * functions that switch stacks need. That slot is read from the instructions where pcsp first
 * grows.
 *
 * Functions that switch stacks and have a frame keep their own frame pointer (systemstack from 1.21
 * on, cgocallback, the vDSO callers): between the switch and the switch back, rows use the frame
 * pointer. Other functions leave the goroutine's registers in its g, or on the stack that they
 * switch to (switch.c).
 */
#include "runtime/go/rows.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/vec.h"
#include "runtime/go/pclntab.h"
#include "runtime/go/switch.h"

#define PROLOGUE_MAX 512
#define PROLOGUE_STEPS 64 /* pcsp entries looked at; a damaged table may never advance */

struct special {
	u32 func;
	u32 kind; /* enum go_kind */
};

struct go_table {
	struct pclntab t;
	u64 lo, hi;
	vec(struct special) special; /* sorted by func */
	struct go_layout layout;
};

/* The slot in which a function saves its caller's frame pointer. */
struct fp_save {
	bool known;
	u64 from;   /* svma from which on the slot is valid */
	s32 off;    /* from the cfa */
	s32 ra_off; /* arm64: of the return address; 0: where the frame begins */
};

static const struct {
	const char *name;
	enum go_kind kind;
} special_names[] = {
	{"runtime.goexit", GO_TOP},
	{"runtime.mstart", GO_TOP},
	{"runtime.rt0_go", GO_TOP},
	{"runtime.mcall", GO_MCALL},
	{"runtime.morestack", GO_MORESTACK},
	{"gogo", GO_GOGO},
	{"runtime.gogo", GO_GOGO}, /* up to 1.16 */
	{"runtime.sigreturn", GO_SIGRETURN},
	{"runtime.sigreturn__sigaction", GO_SIGRETURN},
	/* Go marks them TOPFRAME, but the interrupted code is below them. */
	{"runtime.sigtramp", GO_NORMAL},
	{"runtime.cgoSigtramp", GO_NORMAL},
	{"runtime.systemstack", GO_SYSTEMSTACK},
	{"runtime.asmcgocall", GO_ASMCGOCALL},
	{"runtime.cgocallback", GO_SWITCH},
	/* Up to 1.16 no flag marks functions that write sp. */
	{"runtime.cgocallback_gofunc", GO_SWITCH},
	{"runtime.nanotime1", GO_SWITCH},
	{"runtime.walltime1", GO_SWITCH},
	{"runtime.sigfwd", GO_SWITCH},
	{"runtime.callCgoMmap", GO_SWITCH},
	{"runtime.callCgoMunmap", GO_SWITCH},
};

static enum go_kind kind_of(const struct pclntab *t, const struct go_func *f)
{
	const char *name = pclntab_short_name(t, f->name);
	u64 entry = t->elf->entry;

	if (entry >= f->start && entry < f->end)
		return GO_TOP;
	for (size_t i = 0; i < ARRAY_SIZE(special_names); i++)
		if (!strcmp(name, special_names[i].name))
			return special_names[i].kind;
	if (!strncmp(name, "_rt0_", 5))
		return GO_TOP;
	if (f->flag & GO_FLAG_TOP_FRAME)
		return GO_TOP;
	return f->flag & GO_FLAG_SP_WRITE ? GO_SWITCH : GO_NORMAL;
}

static enum go_kind special_kind(const struct go_table *g, u32 func)
{
	size_t lo = 0, n = g->special.n;

	while (n) {
		size_t half = n / 2;
		const struct special *s = &g->special.data[lo + half];

		if (s->func == func)
			return s->kind;
		if (s->func < func) {
			lo += half + 1;
			n -= half + 1;
		} else {
			n = half;
		}
	}
	return GO_NORMAL;
}

int go_table_create(struct elf_file *elf, struct go_table **ret)
{
	struct go_table *g = calloc(1, sizeof(*g));
	int r;

	if (!g)
		return -ENOMEM;
	r = pclntab_open_with_text(elf, &g->t);
	for (u32 i = 0; r == 0 && i < g->t.n; i++) {
		struct go_func f;
		struct special s = {.func = i};

		if (!pclntab_func(&g->t, i, &f))
			continue;
		s.kind = kind_of(&g->t, &f);
		if (s.kind != GO_NORMAL)
			r = vec_push(&g->special, s);
	}
	if (r < 0) {
		go_table_destroy(g);
		return r;
	}
	go_layout_read(&g->t, &g->layout);
	g->lo = pclntab_start(&g->t, 0);
	g->hi = pclntab_start(&g->t, g->t.n);
	*ret = g;
	return 0;
}

void go_table_destroy(struct go_table *g)
{
	if (!g)
		return;
	vec_deinit(&g->special);
	free(g);
}

void go_table_range(const struct go_table *g, u64 *ret_lo, u64 *ret_hi)
{
	*ret_lo = g->lo;
	*ret_hi = g->hi;
}

u32 go_table_n(const struct go_table *g)
{
	return g->t.n;
}

/*
 * Recognises mov %reg, disp(%rsp) at p. Returns its length, the register and displacement; 0: it is
 * another instruction.
 */
static u32 x86_store_to_stack(const u8 *p, size_t n, u8 *ret_reg, s32 *ret_disp)
{
	if (n < 8 || (p[0] != 0x48 && p[0] != 0x4c) || p[1] != 0x89 || (p[2] & 7) != 4 ||
	    p[3] != 0x24)
		return 0;
	*ret_reg = (u8)((p[2] >> 3 & 7) | (p[0] == 0x4c ? 8 : 0));
	switch (p[2] >> 6) {
	case 0:
		*ret_disp = 0;
		return 4;
	case 1:
		*ret_disp = (s8)p[4];
		return 5;
	case 2:
		memcpy(ret_disp, p + 4, 4);
		return 8;
	default:
		return 0;
	}
}

/*
 * At offset `at` of the code, sp has just moved from -before to -now. Looks for the save of the
 * frame pointer around there.
 */
static void find_save_x86(const u8 *code, size_t n, size_t at, s64 before, s64 now, u64 start,
			  struct fp_save *save)
{
	u32 length;
	s32 disp;
	u8 reg;

	if (at && at <= n && code[at - 1] == 0x55 && now == before + 8) {
		/* push %rbp */
		*save = (struct fp_save){
			.known = true, .from = start + at, .off = (s32) - (now + 8)};
		return;
	}
	for (u32 i = 0; i < 10 && at < n; i++, at += length) {
		length = x86_store_to_stack(code + at, n - at, &reg, &disp);
		if (!length)
			return;
		if (reg == 5) {
			*save = (struct fp_save){
				.known = true,
				.from = start + at + length,
				.off = (s32)(disp - (now + 8)),
			};
			return;
		}
	}
}

/*
 * crosscall2 makes a frame as C code does: sub sp, sp, #N; …; stp x29, x30, [sp, #K]. In other
 * functions of Go the first instruction stores x30, or computes the new sp in another register.
 */
static bool find_save_of_c(const u8 *code, size_t n, size_t at, s64 now, u64 start,
			   struct fp_save *save)
{
	u32 insn = 0;

	if (at < 4)
		return false;
	memcpy(&insn, code + at - 4, 4);
	if ((insn & 0xff8003ff) != 0xd10003ff)
		return false;
	for (; at + 4 <= n; at += 4) {
		s32 slot;

		memcpy(&insn, code + at, 4);
		if ((insn & 0xfc000000) == 0x94000000) /* bl: x30 is another one now */
			return false;
		if ((insn & 0xffc07fff) != 0xa9007bfd)
			continue;
		slot = ((s32)(insn << 10) >> 25) * 8;
		*save = (struct fp_save){
			.known = true,
			.from = start + at + 4,
			.off = (s32)(slot - now),
			.ra_off = (s32)(slot + 8 - now),
		};
		return slot >= 0 && slot + 16 <= now;
	}
	return false;
}

/* arm64 saves it right below sp: after sp moved, or before that for large frames. */
static void find_save_arm64(const u8 *code, size_t n, size_t at, s64 now, u64 start,
			    struct fp_save *save)
{
	u32 insn = 0;

	if (find_save_of_c(code, n, at, now, start, save))
		return;
	if (at + 4 <= n)
		memcpy(&insn, code + at, 4);
	*save = (struct fp_save){
		.known = true,
		.from = start + at + (insn == 0xf81f83fd ? 4 : 0), /* stur x29, [sp, #-8] */
		.off = (s32) - (now + 8),
	};
}

static bool is_plausible_delta(s64 delta)
{
	return delta >= 0 && delta <= 1 << 28 && delta % 8 == 0;
}

static struct fp_save find_fp_save(const struct go_table *g, const struct go_func *f)
{
	u8 code[PROLOGUE_MAX + 8];
	struct fp_save save = {};
	struct pctable p;
	s64 before = 0;
	ssize_t n;

	if (!pctable_init(&g->t, f, f->pcsp, &p))
		return save;
	n = elf_file_copy(g->t.elf, f->start, MIN(sizeof(code), (size_t)(f->end - f->start)), code);
	for (u64 at = 0, steps = 0;
	     n > 0 && !save.known && at < (u64)n && steps < PROLOGUE_STEPS && pctable_next(&p);
	     steps++) {
		if (p.value > before && is_plausible_delta(p.value)) {
			if (g->t.elf->machine == EM_X86_64)
				find_save_x86(code, (size_t)n, at, before, p.value, f->start,
					      &save);
			else
				find_save_arm64(code, (size_t)n, at, p.value, f->start, &save);
		}
		before = p.value;
		at = p.pc - f->start;
	}
	return save;
}

/* Returns the rule for a pc where sp is `delta` below its value at entry. */
static struct unwind_rule rule_of(bool x86, s64 delta, bool saved, const struct fp_save *save)
{
	s32 fp_off = save->off;
	struct unwind_rule r = {
		.cfa_op = UNWIND_CFA_REG,
		.cfa_reg = x86 ? 7 : 31,
		.cfa_off = (s32)(delta + (x86 ? 8 : 0)),
		.ra_off = -8,
	};

	if (!is_plausible_delta(delta) || (!x86 && delta > -INT16_MIN))
		return (struct unwind_rule){.cfa_op = UNWIND_CFA_UNSUPPORTED};
	if (!x86) {
		bool in_register = !delta || (save->ra_off && !saved);

		r.ra_op = in_register ? UNWIND_RA_REG : UNWIND_RA_CFA;
		r.ra_off = (s16)(in_register ? 30 : save->ra_off ? save->ra_off : -delta);
	}
	/* The slot is invalid once sp is above it. */
	if (saved && fp_off >= -(delta + 8)) {
		if (fp_off != (s16)fp_off)
			return (struct unwind_rule){.cfa_op = UNWIND_CFA_UNSUPPORTED};
		r.fp_op = UNWIND_FP_CFA;
		r.fp_off = (s16)fp_off;
	}
	return r;
}

/* Receives the rows. */
struct go_sink {
	u64 *budget;
	go_row_fn *row;
	void *arg;
};

static void emit_row(const struct go_sink *k, u64 pc, const struct unwind_rule *rule)
{
	k->row(k->arg, pc, rule);
}

/* The rows of a function that are being generated. */
struct stretch {
	const struct go_table *g;
	const struct go_sink *sink;
	const struct go_func *f;
	u64 lo, hi; /* the requested range */
	struct fp_save save;
	struct go_switch sw;
};

/* rawVforkSyscall keeps its return address in r12, because the child shares the stack. */
static bool is_vfork(const struct stretch *x, u64 from, s64 delta)
{
	u8 code[2];

	return x->g->t.elf->machine == EM_X86_64 && delta == -8 && from >= x->f->start + 2 &&
	       elf_file_copy(x->g->t.elf, from - 2, 2, code) == 2 && code[0] == 0x41 &&
	       code[1] == 0x5c; /* pop %r12 */
}

/* Emits the rows of [from, to), where pcsp is delta. */
static void emit_stretch(const struct stretch *x, u64 from, u64 to, s64 delta)
{
	bool vfork = is_vfork(x, from, delta);

	from = MAX(from, x->lo);
	to = MIN(to, x->hi);
	while (from < to) {
		u64 until = to;
		struct unwind_rule rule;

		if (!go_switch_rule(&x->sw, from, delta, &rule, &until)) {
			bool saved = x->save.known && from >= x->save.from;

			if (x->save.known && !saved)
				until = MIN(until, x->save.from);
			rule = rule_of(x->g->t.elf->machine == EM_X86_64, delta, saved, &x->save);
			if (vfork)
				rule = (struct unwind_rule){
					.cfa_op = UNWIND_CFA_REG,
					.cfa_reg = 7,
					.ra_op = UNWIND_RA_REG,
					.ra_off = 12,
				};
		}
		emit_row(x->sink, from, &rule);
		from = MIN(until, to);
	}
}

static void fill_pcsp(const struct go_table *g, const struct go_sink *k, const struct go_func *f,
		      enum go_kind kind, u64 lo, u64 hi)
{
	struct stretch x = {.g = g, .sink = k, .f = f, .lo = lo, .hi = hi};
	struct pctable p;
	u64 at = f->start;

	if (!pctable_init(&g->t, f, f->pcsp, &p)) {
		emit_row(k, lo, &(struct unwind_rule){.cfa_op = UNWIND_CFA_UNSUPPORTED});
		return;
	}
	x.save = find_fp_save(g, f);
	go_switch_init(&g->t, f, kind, &g->layout, &x.sw);
	x.sw.saved = x.save.known;
	x.sw.fp_off = x.save.off;
	while (at < hi && *k->budget && pctable_next(&p)) {
		--*k->budget;
		if (p.pc > lo)
			emit_stretch(&x, at, p.pc, p.value);
		at = p.pc;
	}
	/* Padding after the last instruction, or a table that ends early. */
	if (at < hi)
		emit_row(k, MAX(at, lo), &(struct unwind_rule){.cfa_op = UNWIND_CFA_NONE});
}

static void fill_func(const struct go_table *g, const struct go_sink *k, u32 i,
		      const struct go_func *f, u64 lo, u64 hi)
{
	const struct unwind_rule signal = {
		.cfa_op = UNWIND_CFA_SIGNAL,
		.cfa_off = g->t.elf->machine == EM_AARCH64 ? 128 : 0,
	};
	enum go_kind kind = special_kind(g, i);

	switch (kind) {
	case GO_TOP:
		emit_row(k, lo, &(struct unwind_rule){.cfa_op = UNWIND_CFA_STOP});
		break;
	case GO_SIGRETURN:
		emit_row(k, lo, &signal);
		break;
	default:
		fill_pcsp(g, k, f, kind, lo, hi);
	}
	/* A return address that is the first byte of the trampoline is looked up at the byte before
	 * it. */
	if (i + 1 < g->t.n && special_kind(g, i + 1) == GO_SIGRETURN && hi == f->end && hi - lo > 1)
		emit_row(k, hi - 1, &signal);
}

void go_table_fill(const struct go_table *g, u64 lo, u64 hi, u64 *budget, go_row_fn *row, void *arg)
{
	const struct go_sink k = {budget, row, arg};
	const struct pclntab *t = &g->t;

	for (u32 i = pclntab_find(t, lo); i < t->n && lo < hi; i++) {
		struct go_func f;
		u64 end;

		if (pclntab_start(t, i + 1) <= lo)
			continue;
		end = MIN(hi, pclntab_start(t, i + 1));
		if (pclntab_func(t, i, &f))
			fill_func(g, &k, i, &f, lo, end);
		else
			emit_row(&k, lo, &(struct unwind_rule){.cfa_op = UNWIND_CFA_NONE});
		lo = end;
	}
}
