/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the other stack in functions that switch between a goroutine's stack and its thread's, on
 * x86-64:
 *
 *	systemstack	runs fn on g0's stack. From 1.21 on rows use the frame pointer; before,
 *			it has no frame, and its caller's registers are only in m.curg.sched
 *	mcall		the goroutine's registers are in g.sched. Until m leaves the goroutine, g
 *			is the word at sp
 *	morestack	the goroutine's registers are in m.curg.sched
 *	asmcgocall	the stack that C runs on has two words: g, and the depth of its stack
 *	gogo		switches back: rbx points to the gobuf until the jump
 *	others		rows use the frame pointer
 *
 * arm64 rows use the frame pointer, and end at mcall and morestack. asmcgocall loads that of the
 * other stack: rows use the depth there.
 */
#include "runtime/go/switch.h"

#include <elf.h>
#include <string.h>

#define BODY_MAX 4096
#define NO_MARK (~0ULL)
#define PCSP_STEPS 512

struct body {
	u8 code[BODY_MAX + 16];
	size_t n;
};

static void read_body(const struct pclntab *t, const struct go_func *f, struct body *ret)
{
	ssize_t n = elf_file_copy(t->elf, f->start,
				  MIN((size_t)BODY_MAX, (size_t)(f->end - f->start)), ret->code);

	ret->n = n > 0 ? (size_t)n : 0;
	memset(ret->code + ret->n, 0, sizeof(ret->code) - ret->n);
}

/* Returns the offset of `bytes` in the body, at or after `from`; -1: they do not occur. */
static ssize_t find_bytes(const struct body *b, size_t from, const void *bytes, size_t n)
{
	for (size_t i = from; i + n <= b->n; i++)
		if (!memcmp(b->code + i, bytes, n))
			return (ssize_t)i;
	return -1;
}

/* -1: the table has no value for pc. */
static s64 pcsp_at(const struct pclntab *t, const struct go_func *f, u64 pc)
{
	s64 value;

	return pctable_value(t, f, f->pcsp, pc, PCSP_STEPS, &value) ? value : -1;
}

/* ---- layout ---- */

static bool read_function(const struct pclntab *t, const char *name, struct body *ret)
{
	for (u32 i = 0; i < t->n; i++) {
		struct go_func f;

		/* Skips the wrapper between the two calling conventions, which has the same name
		 * and only jumps. */
		if (!pclntab_func(t, i, &f) || strcmp(pclntab_short_name(t, f.name), name) ||
		    f.end - f.start < 48)
			continue;
		read_body(t, &f, ret);
		return true;
	}
	return false;
}

/* mov %fs:N, %rax; or, in a PIE, mov $N, %rcx; mov %fs:(%rcx), %rax */
static bool find_tls(const struct body *b, s32 *ret)
{
	ssize_t at = find_bytes(b, 0, "\x64\x48\x8b\x04\x25", 5);

	if (at >= 0) {
		memcpy(ret, b->code + at + 5, 4);
		return true;
	}
	at = find_bytes(b, 0, "\x64\x48\x8b\x01", 4);
	if (at < 7 || memcmp(b->code + at - 7, "\x48\xc7\xc1", 3))
		return false;
	memcpy(ret, b->code + at - 4, 4);
	return true;
}

/* Whether the body contains mov %reg, disp8(base) with this register and displacement. */
static bool has_store(const struct body *b, u8 reg, u8 disp)
{
	for (size_t i = 0; i + 4 <= b->n; i++)
		if (b->code[i] == 0x48 && b->code[i + 1] == 0x89 &&
		    (b->code[i + 2] & 0xf8) == (0x40 | reg << 3) && (b->code[i + 2] & 7) != 4 &&
		    b->code[i + 3] == disp)
			return true;
	return false;
}

/* Reads offsets from code: systemstack compares g to m.curg; morestack fills g.sched. */
void go_layout_read(const struct pclntab *t, struct go_layout *ret)
{
	struct go_layout l = {};
	struct body b;
	ssize_t at;
	s32 curg;

	if (t->elf->machine != EM_X86_64 || !read_function(t, "runtime.systemstack", &b))
		return;
	at = find_bytes(&b, 0, "\x48\x3b\x83", 3); /* cmp disp32(%rbx), %rax */
	/* mov 48(%rax), %rbx; mov (%rbx), %rdx: g.m and m.g0 */
	if (at < 0 || !find_tls(&b, &l.g_tls) || find_bytes(&b, 0, "\x48\x8b\x58\x30", 4) < 0 ||
	    find_bytes(&b, 0, "\x48\x8b\x13", 3) < 0)
		return;
	memcpy(&curg, b.code + at + 3, 4);
	if (curg < 64 || curg > 4096 || curg % 8)
		return;
	l.m_curg = (s16)curg;
	if (!read_function(t, "runtime.morestack", &b) || !has_store(&b, 0, UNWIND_GO_G_SP) ||
	    !has_store(&b, 0, UNWIND_GO_G_PC))
		return;
	for (u8 bp = UNWIND_GO_G_PC + 8; bp < 128 && !l.g_bp; bp += 8)
		if (has_store(&b, 5, bp))
			l.g_bp = bp;
	l.known = l.g_bp != 0;
	*ret = l;
}

/* ---- writes to sp ---- */

/* Returns the length of an instruction that sets sp to a value that pcsp does not track, else 0. */
static u32 sp_write_x86(const u8 *p, size_t n, bool *ret_align)
{
	static const u8 tail[8] = {0, 1, 4}; /* bytes of displacement, by mod */
	u8 mod = p[2] >> 6;

	*ret_align = false;
	if ((p[0] & 0xf4) != 0x40 || !(p[0] & 8))
		return 0;
	if (p[1] == 0x8b && (p[2] >> 3 & 7) == 4)
		/* mov mem or reg, %rsp; with a base of rsp or r12 it is one byte longer */
		return 3 + (mod < 3 ? tail[mod] + ((p[2] & 7) == 4) : 0);
	/* and $imm8, %rsp, possibly after a sub; pcsp tracks neither */
	if (!memcmp(p, "\x48\x83\xe4", 3) ||
	    (n >= 8 && !memcmp(p, "\x48\x83\xec", 3) && !memcmp(p + 4, "\x48\x83\xe4", 3))) {
		*ret_align = true;
		return 4;
	}
	return 0;
}

static u32 sp_write_x86_from_reg(const u8 *p)
{
	/* mov %reg, %rsp */
	return (p[0] == 0x48 || p[0] == 0x4c) && p[1] == 0x89 && (p[2] & 0xc7) == 0xc4 ? 3 : 0;
}

static u32 sp_write_arm64(const u8 *p, bool *ret_align)
{
	u32 insn;

	memcpy(&insn, p, 4);
	*ret_align = (insn & 0xff80001fu) == 0x9200001fu; /* and sp, xN, #imm */
	return *ret_align || (insn & 0xfffffc1fu) == 0x9100001fu /* mov sp, xN */ ? 4 : 0;
}

static void find_sp_writes(const struct body *b, u64 start, struct go_switch *x)
{
	for (size_t i = 0; i + 4 <= b->n && x->n_writes < GO_SP_WRITES_MAX;) {
		bool align = false;
		u32 length;

		if (x->x86) {
			length = sp_write_x86(b->code + i, b->n - i, &align);
			if (!length)
				length = sp_write_x86_from_reg(b->code + i);
		} else {
			length = sp_write_arm64(b->code + i, &align);
		}
		if (length)
			x->writes[x->n_writes++] =
				(struct go_sp_write){.end = start + i + length, .align = align};
		i += length ? length : x->x86 ? 1 : 4;
	}
}

/* ---- individual functions ---- */

/* Returns the end of the first mov %reg, disp(%rsp) at or after `from`, else NO_MARK. */
static u64 find_slot(const struct body *b, u64 start, u64 from, u8 reg, s16 *ret_disp)
{
	for (size_t i = from - start; i + 5 <= b->n; i++) {
		const u8 *p = b->code + i;

		if (p[0] != 0x48 || p[1] != 0x89 || (p[2] & 0x3f) != (reg << 3 | 4) || p[3] != 0x24)
			continue;
		if (p[2] >> 6 == 0) {
			*ret_disp = 0;
			return start + i + 4;
		}
		if (p[2] >> 6 == 1) {
			*ret_disp = (s8)p[4];
			return start + i + 5;
		}
	}
	return NO_MARK;
}

/*
 * asmcgocall: and $-16, %rsp; mov %rdi, G(%rsp); …; mov %rdi, DEPTH(%rsp); call. For a caller that
 * is already on that stack: and $-16, %rsp; movq $0, G(%rsp); mov %rdx, DEPTH(%rsp); call. %rdx is
 * the function's own sp until the second store.
 */
static void find_depth(const struct body *b, u64 start, struct go_switch *x)
{
	u64 aligned = NO_MARK, again = NO_MARK;
	s16 depth;

	for (u32 i = 0; i < x->n_writes; i++)
		if (x->writes[i].align) {
			again = aligned == NO_MARK ? NO_MARK : x->writes[i].end;
			aligned = aligned == NO_MARK ? x->writes[i].end : aligned;
		}
	if (again == NO_MARK)
		return;
	x->marks[0] = find_slot(b, start, aligned, 7, &x->g_at);
	if (x->marks[0] == NO_MARK)
		return;
	x->marks[0] = find_slot(b, start, x->marks[0], 7, &x->depth_at);
	x->marks[1] = again;
	x->marks[2] = find_slot(b, start, again, 2, &depth);
	if (x->marks[0] >= again || x->marks[2] == NO_MARK || depth != x->depth_at)
		x->marks[0] = NO_MARK;
}

/* Returns the end of the first instruction in [from, to) that equals insn in the bits of mask. */
static u64 find_insn(const struct body *b, u64 start, u64 from, u64 to, u32 mask, u32 insn)
{
	for (size_t i = from - start; i + 4 <= MIN(b->n, (size_t)(to - start)); i += 4) {
		u32 have;

		memcpy(&have, b->code + i, 4);
		if ((have & mask) == insn)
			return start + i + 4;
	}
	return NO_MARK;
}

/*
 * asmcgocall on arm64: mov sp, x0; ldr x29, [x28, #BP]; …; mov sp, x13; str xN, [sp];
 * …; str xN, [sp, #8]; blr; …; mov sp, x5. The words at sp are g and the depth. A caller that is
 * already on that stack keeps its frame pointer.
 */
static void find_depth_arm64(const struct body *b, u64 start, struct go_switch *x)
{
	u64 end = start + b->n, lost, stored;

	lost = find_insn(b, start, start, end, 0xffc003ff, 0xf940039d);
	x->fp_lost = lost != NO_MARK;
	if (!x->fp_lost || x->n_writes < 3 || lost < x->writes[0].end)
		return;
	stored = find_insn(b, start, x->writes[1].end, x->writes[2].end, 0xffffffe0, 0xf90003e0);
	if (stored != NO_MARK)
		stored = find_insn(b, start, stored, x->writes[2].end, 0xffffffe0, 0xf90007e0);
	if (stored == NO_MARK || lost > x->writes[1].end)
		return;
	x->depth_at = 8;
	x->marks[0] = x->writes[0].end;
	x->marks[1] = stored;
	x->marks[2] = x->writes[2].end;
}

/* gogo: mov BP(%rbx), %rbp … mov 8(%rbx), %rbx; jmp *%rbx */
static void find_gobuf(const struct body *b, u64 start, struct go_switch *x)
{
	size_t from = x->writes[0].end - start;
	ssize_t bp = find_bytes(b, from, "\x48\x8b\x6b", 3);
	ssize_t pc = find_bytes(b, from, "\x48\x8b\x5b\x08", 4);

	if (bp < 0 || pc < bp || x->n_writes != 1)
		return;
	x->g_at = b->code[bp + 3];
	x->marks[0] = start + (u64)bp + 4;
	x->marks[1] = start + (u64)pc + 4;
}

/* 1.15's callers of the vDSO: mov %rsp, %rbp where sp is not at the slot of the frame pointer. */
static void find_bp_of_sp(const struct pclntab *t, const struct go_func *f, const struct body *b,
			  struct go_switch *x)
{
	ssize_t at = find_bytes(b, 0, "\x48\x89\xe5", 3);
	s64 delta = at < 0 ? -1 : pcsp_at(t, f, f->start + (u64)at);

	if (delta > 8)
		x->bp_delta = delta;
}

void go_switch_init(const struct pclntab *t, const struct go_func *f, enum go_kind kind,
		    const struct go_layout *layout, struct go_switch *ret)
{
	struct go_switch x = {
		.kind = kind,
		.x86 = t->elf->machine == EM_X86_64,
		.layout = *layout,
		.bp_delta = -1,
		.marks = {NO_MARK, NO_MARK, NO_MARK},
	};
	struct body b;

	if (kind != GO_NORMAL) {
		read_body(t, f, &b);
		find_sp_writes(&b, f->start, &x);
	}
	if (x.n_writes) {
		x.delta = pcsp_at(t, f, x.writes[0].end);
		if (x.x86 && kind == GO_ASMCGOCALL)
			find_depth(&b, f->start, &x);
		else if (kind == GO_ASMCGOCALL)
			find_depth_arm64(&b, f->start, &x);
		else if (x.x86 && kind == GO_GOGO)
			find_gobuf(&b, f->start, &x);
		else if (x.x86 && kind == GO_SWITCH)
			find_bp_of_sp(t, f, &b, &x);
	}
	*ret = x;
}

/* ---- rules ---- */

/* Whether sp is on another stack at pc. The answer holds up to *ret_until. */
static bool is_switched(const struct go_switch *x, u64 pc, u64 *ret_until)
{
	bool switched = false;

	*ret_until = ~0ULL;
	for (u32 i = 0; i < x->n_writes; i++) {
		const struct go_sp_write *w = &x->writes[i];

		if (w->end > pc) {
			*ret_until = w->end;
			return switched;
		}
		/* x86: each write switches to the other stack. arm64: the frame pointer is right in
		 * the whole body, so rows use it up to the last write. mcall and morestack do not
		 * switch back. */
		if (x->x86)
			switched = w->align || !switched;
		else
			switched = i + 1 < x->n_writes || x->kind == GO_MCALL ||
				   x->kind == GO_MORESTACK;
	}
	return switched;
}

static bool is_plausible_delta(s64 delta)
{
	return delta >= 0 && delta <= INT16_MAX - 16 && delta % 8 == 0;
}

/* The rule by the function's own frame pointer. */
static struct unwind_rule rule_fp(const struct go_switch *x, s64 delta)
{
	if (x->x86 && x->bp_delta > 0 && x->saved && is_plausible_delta(x->bp_delta))
		return (struct unwind_rule){
			.cfa_op = UNWIND_CFA_REG,
			.cfa_reg = 6,
			.cfa_off = (s32)x->bp_delta + 8,
			.ra_off = -8,
			.fp_op = UNWIND_FP_CFA,
			.fp_off = (s16)x->fp_off,
		};
	if (x->x86)
		return (struct unwind_rule){.cfa_op = UNWIND_CFA_FP};
	if (!delta || !is_plausible_delta(delta))
		return (struct unwind_rule){.cfa_op = UNWIND_CFA_UNSUPPORTED};
	/* x29 points 8 bytes below the sp that the function had. */
	return (struct unwind_rule){
		.cfa_op = UNWIND_CFA_GO,
		.cfa_reg = UNWIND_GO_FRAME,
		.cfa_off = (s32)delta + 8,
	};
}

static struct unwind_rule rule_curg(const struct go_switch *x, enum unwind_go how,
				    enum unwind_ra_op ra)
{
	if (!x->layout.known)
		return (struct unwind_rule){.cfa_op = UNWIND_CFA_UNSUPPORTED};
	return (struct unwind_rule){
		.cfa_op = UNWIND_CFA_GO,
		.cfa_reg = (u8)how,
		.ra_op = (u8)ra,
		.cfa_off = x->layout.g_tls,
		.cfa_add = x->layout.m_curg,
		.fp_off = x->layout.g_bp,
	};
}

static struct unwind_rule rule_depth(const struct go_switch *x, u64 pc, s64 delta, u64 *until)
{
	bool again = pc >= x->marks[1];
	u64 stored = x->marks[again ? 2 : 0];
	struct unwind_rule r = {
		.cfa_op = UNWIND_CFA_GO,
		.cfa_reg = UNWIND_GO_DEPTH,
		.cfa_off = x->depth_at,
		.cfa_add = x->g_at,
		.ra_off = (s16)(delta + 8),
		.fp_op = x->saved ? UNWIND_FP_CFA : UNWIND_FP_SAME,
		.fp_off = (s16)(x->saved ? x->fp_off : 0),
	};

	if (x->marks[0] == NO_MARK || !is_plausible_delta(delta))
		return rule_fp(x, delta);
	if (pc >= stored)
		return r;
	*until = MIN(*until, stored);
	r.cfa_op = UNWIND_CFA_REG;
	r.cfa_reg = 1; /* rdx; pc is in a leaf function */
	r.cfa_off = (s32)delta + 8;
	r.cfa_add = 0;
	r.ra_off = -8;
	return r;
}

static struct unwind_rule rule_depth_arm64(const struct go_switch *x, u64 pc, s64 delta, u64 *until)
{
	const struct unwind_rule unknown = {.cfa_op = UNWIND_CFA_UNSUPPORTED};

	if (x->marks[0] == NO_MARK || !x->delta || !is_plausible_delta(x->delta))
		return unknown;
	for (u32 i = 0; i < ARRAY_SIZE(x->marks); i++)
		if (pc < x->marks[i]) {
			*until = MIN(*until, x->marks[i]);
			break;
		}
	if (pc < x->marks[0] || pc >= x->marks[2])
		return rule_fp(x, delta);
	if (pc < x->marks[1])
		return unknown; /* the frame's sp is in x2 only */
	return (struct unwind_rule){
		.cfa_op = UNWIND_CFA_GO,
		.cfa_reg = UNWIND_GO_DEPTH,
		.cfa_off = x->depth_at,
		.ra_off = (s16)x->delta,
		.fp_op = UNWIND_FP_CFA,
		.fp_off = (s16) - (x->delta + 8),
	};
}

static struct unwind_rule rule_gobuf(const struct go_switch *x, u64 pc, u64 *until)
{
	struct unwind_rule r = {.cfa_op = UNWIND_CFA_GO, .cfa_reg = UNWIND_GO_GOBUF};

	if (x->marks[0] == NO_MARK)
		return (struct unwind_rule){.cfa_op = UNWIND_CFA_UNSUPPORTED};
	if (pc < x->marks[0])
		r.fp_off = x->g_at;
	if (pc >= x->marks[1])
		r.ra_op = UNWIND_RA_REG;
	for (u32 i = 0; i < 2; i++)
		if (pc < x->marks[i])
			*until = MIN(*until, x->marks[i]);
	return r;
}

bool go_switch_rule(const struct go_switch *x, u64 pc, s64 delta, struct unwind_rule *ret_rule,
		    u64 *ret_until)
{
	if (!x->n_writes || !is_switched(x, pc, ret_until))
		return false;
	if (!x->x86 && (x->kind == GO_MCALL || x->kind == GO_MORESTACK))
		*ret_rule = (struct unwind_rule){.cfa_op = UNWIND_CFA_STOP};
	else if (x->kind == GO_GOGO)
		*ret_rule = rule_gobuf(x, pc, ret_until);
	else if (x->kind == GO_MORESTACK)
		*ret_rule = rule_curg(x, UNWIND_GO_CURG, UNWIND_RA_REG);
	else if (x->kind == GO_MCALL)
		*ret_rule = rule_curg(x, delta > x->delta ? UNWIND_GO_CURG_AT_SP : UNWIND_GO_CURG,
				      UNWIND_RA_REG);
	else if (x->kind == GO_SYSTEMSTACK && x->x86 && !delta && x->layout.known)
		*ret_rule = rule_curg(x, UNWIND_GO_CURG, UNWIND_RA_CFA);
	else if (x->kind == GO_ASMCGOCALL && x->x86)
		*ret_rule = rule_depth(x, pc, delta, ret_until);
	else if (x->fp_lost)
		*ret_rule = rule_depth_arm64(x, pc, delta, ret_until);
	else
		*ret_rule = rule_fp(x, delta);
	return true;
}
