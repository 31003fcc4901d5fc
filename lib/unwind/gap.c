/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows for code without CFI: PLTs (lld and mold write no CFI for theirs), the entry point, and a
 * few sequences of instructions that occur in one role only.
 */
#include <elf.h>
#include <string.h>

#include "unwind/source.h"

#define X86_PLT_ENTRY 16
#define ARM64_PLT0 32
#define PATTERN_MIN 3
#define PATTERN_MAX 16		      /* longest range of a pattern, with the bytes before it */
#define ARM64_PUSH_X16_LR 0xa9bf7bf0u /* stp x16, x30, [sp, #-16]! */

struct pattern {
	u16 machine;
	u8 n;
	u8 bytes[12];
	u8 before; /* bytes before the pattern that the row covers, too: lookups are at ra - 1 */
	u8 length;
	u8 cfa_op;
	s16 cfa_off;
	u8 cfa_reg;
	s8 ra_off;
};

static const struct pattern patterns[] = {
	/* mov $15, %rax; syscall: __restore_rt of musl (src/signal/x86_64/restore.s) and others */
	{EM_X86_64, 9, {0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05}, 1, 9, UNWIND_CFA_SIGNAL, 0},
	{EM_X86_64, 7, {0xb8, 15, 0, 0, 0, 0x0f, 0x05}, 1, 7, UNWIND_CFA_SIGNAL, 0},
	/* mov x8, #139; svc #0: the vDSO's __kernel_rt_sigreturn, musl's __restore_rt */
	{EM_AARCH64, 8, {0x68, 0x11, 0x80, 0xd2, 1, 0, 0, 0xd4}, 1, 8, UNWIND_CFA_SIGNAL, 128},
	/* xor %ebp, %ebp; pop %rdi; call *%r9 … hlt: the child in musl's __clone */
	{EM_X86_64, 6, {0x31, 0xed, 0x5f, 0x41, 0xff, 0xd1}, 0, 15, UNWIND_CFA_STOP, 0},
	/* syscall; test %eax, %eax; jne …, then the child's code: the parent in musl's __clone.
	 * Nothing is pushed. */
	{EM_X86_64,
	 12,
	 {0x0f, 0x05, 0x85, 0xc0, 0x75, 0x0f, 0x31, 0xed, 0x5f, 0x41, 0xff, 0xd1},
	 0,
	 6,
	 UNWIND_CFA_REG,
	 8,
	 7,
	 -8},
	/* syscall; ret: where threads wait, in musl's __syscall_cp_asm and __syscall_cp_c */
	{EM_X86_64, 3, {0x0f, 0x05, 0xc3}, 0, 3, UNWIND_CFA_REG, 8, 7, -8},
	/* blr x1; mov x8, #93; svc #0: the child in musl's __clone on arm64 */
	{EM_AARCH64,
	 12,
	 {0x20, 0, 0x3f, 0xd6, 0xa8, 0x0b, 0x80, 0xd2, 1, 0, 0, 0xd4},
	 0,
	 12,
	 UNWIND_CFA_STOP,
	 0},
	/* syscall; test %rax, %rax; jl …; jz the child; ret: the rest of glibc's clone3. Its CFI
	 * ends here because of the child (sysdeps/unix/sysv/linux/x86_64/clone3.S), but the parent
	 * is the one that spends time here. Nothing is pushed. A child that was not scheduled yet
	 * has its thread control block in place of the return address, which is not code. */
	{EM_X86_64,
	 10,
	 {0x0f, 0x05, 0x48, 0x85, 0xc0, 0x7c, 0x18, 0x74, 0x01, 0xc3},
	 0,
	 10,
	 UNWIND_CFA_REG,
	 8,
	 7,
	 -8},
};

static const struct unwind_rule rule_none = {.cfa_op = UNWIND_CFA_NONE};
static const struct unwind_rule rule_stop = {.cfa_op = UNWIND_CFA_STOP};

static void row_x86(struct unwind_source *s, u64 pc, s32 cfa_off)
{
	source_row(s, pc,
		   &(struct unwind_rule){
			   .cfa_op = UNWIND_CFA_REG,
			   .cfa_reg = 7,
			   .cfa_off = cfa_off,
			   .ra_off = -8,
		   });
}

/* Returns the offset after the push of an x86 PLT entry; 16: the entry pushes nothing. */
static u8 plt_push_end(const u8 *entry)
{
	if (entry[0] == 0x68) /* push; bnd jmp */
		return 5;
	if (!memcmp(entry, "\xf3\x0f\x1e\xfa\x68", 5)) /* endbr64; push; jmp */
		return 9;
	if (entry[0] == 0xff && entry[1] == 0x25 && entry[6] == 0x68) /* jmp *; push; jmp */
		return 11;
	return 16;
}

/* Fills one 16-byte entry of an x86 PLT, clipped to [lo, hi). */
static void fill_plt_entry(struct unwind_source *s, const u8 *entry, u64 start, u64 lo, u64 hi)
{
	u8 push_end = plt_push_end(entry);

	if (entry[0] == 0xff && entry[1] == 0x35) {
		/* PLT0, entered with the index pushed: push GOT[1]; jmp *GOT[2] */
		if (lo < start + 6)
			row_x86(s, lo, 16);
		if (hi > start + 6)
			row_x86(s, MAX(lo, start + 6), 24);
	} else if (push_end < 16) {
		source_row(s, lo,
			   &(struct unwind_rule){
				   .cfa_op = UNWIND_CFA_PLT,
				   .cfa_reg = 7,
				   .cfa_off = 8,
				   .cfa_add = push_end,
				   .ra_off = -8,
			   });
	} else {
		row_x86(s, lo, 8);
	}
}

static void fill_plt_arm64(struct unwind_source *s, const struct source_plt *p, u64 lo, u64 hi)
{
	struct unwind_rule leaf = {
		.cfa_op = UNWIND_CFA_REG,
		.cfa_reg = 31,
		.ra_op = UNWIND_RA_REG,
		.ra_off = 30,
	};
	struct unwind_rule pushed = {
		.cfa_op = UNWIND_CFA_REG,
		.cfa_reg = 31,
		.cfa_off = 16,
		.ra_off = -8,
	};
	u64 push_end = p->start, body = p->start + ARM64_PLT0;

	for (u32 i = 0; i < 2 && buf_left(&p->bytes) >= ARM64_PLT0; i++) {
		u32 insn;

		memcpy(&insn, p->bytes.pos + i * 4, 4);
		if (insn == ARM64_PUSH_X16_LR)
			push_end = p->start + i * 4 + 4;
	}
	if (push_end == p->start || lo < push_end)
		source_row(s, lo, &leaf);
	if (push_end > p->start && lo < body && hi > push_end)
		source_row(s, MAX(lo, push_end), &pushed);
	if (push_end > p->start && hi > body)
		source_row(s, MAX(lo, body), &leaf);
}

static void fill_plt(struct unwind_source *s, const struct source_plt *p, u64 lo, u64 hi)
{
	if (s->elf->machine == EM_AARCH64) {
		fill_plt_arm64(s, p, lo, hi);
		return;
	}
	if (!buf_left(&p->bytes)) {
		row_x86(s, lo, 8);
		return;
	}
	while (lo < hi) {
		u64 start = lo & ~(u64)(X86_PLT_ENTRY - 1), next = start + X86_PLT_ENTRY;
		const u8 *entry = p->bytes.pos + (start - p->start);

		if (next > p->end) {
			source_row(s, lo, &rule_none);
			return;
		}
		fill_plt_entry(s, entry, start, lo, MIN(next, hi));
		lo = next;
	}
}

/*
 * Returns the first match of the pattern whose row reaches into [lo, hi), or ~0; `code` is at svma.
 */
static u64 match_pattern(const struct pattern *p, struct buf code, u64 svma, u64 lo, u64 hi)
{
	const u8 *first = code.pos;

	while (buf_left(&code) >= p->n) {
		/* The last byte of each pattern is a rare one. */
		const u8 *last = memchr(code.pos + p->n - 1, p->bytes[p->n - 1],
					buf_left(&code) - (p->n - 1u));
		u64 at;

		if (!last)
			return ~0ULL;
		code.pos = last - (p->n - 1);
		at = svma + (u64)(code.pos - first);
		if (at >= hi + p->before)
			return ~0ULL;
		if (at + p->length > lo && !memcmp(code.pos, p->bytes, p->n))
			return at;
		code.pos++;
	}
	return ~0ULL;
}

/* Returns the first pattern that reaches into [lo, hi), and its range clipped to [lo, hi). */
static const struct pattern *find_pattern(struct unwind_source *s, u64 lo, u64 hi, u64 *ret_lo,
					  u64 *ret_hi)
{
	/* A range at the start of the page may begin on the previous page. */
	u64 from = lo == s->page_base && lo > s->exec_lo + PATTERN_MAX ? lo - PATTERN_MAX : lo;
	const struct pattern *best = NULL;
	u64 best_at = ~0ULL;
	struct buf code;

	if (!source_code(s, from, &code))
		return NULL;
	code.end = code.pos + MIN(buf_left(&code), (size_t)(hi - from) + PATTERN_MAX);
	for (size_t i = 0; i < ARRAY_SIZE(patterns); i++) {
		u64 at;

		if (patterns[i].machine != s->elf->machine)
			continue;
		at = match_pattern(&patterns[i], code, from, lo, hi);
		if (at >= best_at)
			continue;
		best_at = at;
		best = &patterns[i];
	}
	if (!best)
		return NULL;
	*ret_lo = best_at < lo + best->before ? lo : best_at - best->before;
	*ret_hi = MIN(hi, best_at + best->length);
	return best;
}

static void fill_code(struct unwind_source *s, u64 lo, u64 hi)
{
	bool inside = lo != s->page_base && hi != s->page_base + UNWIND_PAGE_BYTES;

	if (inside && hi - lo < PATTERN_MIN) {
		source_row(s, lo, &rule_none);
		return;
	}
	while (lo < hi) {
		u64 from, to;
		const struct pattern *p = find_pattern(s, lo, hi, &from, &to);

		if (!p || from > lo)
			code_layer_fill(s, lo, p ? from : hi);
		if (!p)
			return;
		source_row(s, from,
			   &(struct unwind_rule){
				   .cfa_op = p->cfa_op,
				   .cfa_reg = p->cfa_reg,
				   .cfa_off = p->cfa_off,
				   .ra_off = p->ra_off,
			   });
		lo = to;
	}
}

static void fill_entry_and_code(struct unwind_source *s, u64 lo, u64 hi)
{
	u64 from = MAX(lo, s->entry_lo), to = MIN(hi, s->entry_hi);

	if (from >= to) {
		fill_code(s, lo, hi);
		return;
	}
	if (from > lo)
		fill_code(s, lo, from);
	source_row(s, from, &rule_stop);
	if (to < hi)
		fill_code(s, to, hi);
}

void source_fill_gap(struct unwind_source *s, u64 lo, u64 hi)
{
	for (u32 i = 0; i < s->n_plts && lo < hi; i++) {
		const struct source_plt *p = &s->plts[i];
		u64 end = MIN(hi, p->end);

		if (p->end <= lo || p->start >= hi)
			continue;
		if (p->start > lo)
			fill_entry_and_code(s, lo, p->start);
		fill_plt(s, p, MAX(lo, p->start), end);
		lo = end;
	}
	if (lo < hi)
		fill_entry_and_code(s, lo, hi);
}

void source_find_plts(struct unwind_source *s)
{
	static const char *const names[] = {".plt", ".plt.sec", ".plt.got", ".iplt"};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		struct elf_section section;
		struct source_plt p = {};
		u32 at = s->n_plts;

		if (elf_file_section(s->elf, names[i], &section, &p.bytes) < 0 || !section.size ||
		    section.svma < s->exec_lo || section.svma >= s->exec_hi ||
		    section.size > s->exec_hi - section.svma || section.svma % X86_PLT_ENTRY)
			continue;
		if (i && s->elf->machine == EM_X86_64)
			p.bytes = (struct buf){};
		p.start = section.svma;
		p.end = section.svma + section.size;
		while (at && s->plts[at - 1].start > p.start) {
			s->plts[at] = s->plts[at - 1];
			at--;
		}
		s->plts[at] = p;
		s->n_plts++;
	}
}
