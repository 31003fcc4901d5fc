/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How many rows that lib/unwind/code.c derives from instructions are right? Builds the rows of a
 * file as if it had no CFI, and compares them with the rows of its CFI at every instruction.
 *
 *	compare-code [-v] ELF
 *	→ N instructions N agree N alike N none N wrong N other N pages N ms
 *
 * agree: the rules are equal; or CFI still names the slot of a frame pointer that was popped, where
 * the value remains below sp. alike: different rules with the same result. Either the slots are the
 * same but the CFA is relative to another register (most functions with a frame know both sp and
 * the frame pointer, and the compiler chooses), or the frame pointer was just saved and is still in
 * its register. other: CFI itself has no rule (entry points, signal frames, expressions).
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "disasm/disasm.h"
#include "elf/elf.h"
#include "unwind/unwind.h"

enum { AGREE, ALIKE, NONE, WRONG, OTHER, N_VERDICTS };

struct page {
	u32 rows[UNWIND_PAGE_BYTES];
	u32 n;
	u32 at;
};

struct compare {
	struct elf_file *elf;
	struct disasm *d;
	struct unwind_source *cfi, *code;
	struct page ours, theirs;
	u64 n[N_VERDICTS];
	u64 resume; /* where the next instruction begins */
	double seconds;
	bool verbose;
};

static struct unwind_rule rule_at(struct unwind_source *s, struct page *p, u32 off)
{
	u32 n;
	const struct unwind_rule *rules = unwind_source_rules(s, &n);

	while (p->at + 1 < p->n && p->rows[p->at + 1] >> 16 <= off)
		p->at++;
	return rules[p->rows[p->at] & 0xffff];
}

static bool is_rule(const struct unwind_rule *r)
{
	return r->cfa_op == UNWIND_CFA_REG || r->cfa_op == UNWIND_CFA_DEREF ||
	       r->cfa_op == UNWIND_CFA_FP || r->cfa_op == UNWIND_CFA_PLT;
}

static bool same_slots(const struct unwind_rule *a, const struct unwind_rule *b)
{
	return a->cfa_op == b->cfa_op && a->ra_op == b->ra_op && a->ra_off == b->ra_off &&
	       a->fp_op == b->fp_op && a->fp_off == b->fp_off;
}

/* arm64: one rule takes the return address from lr, the other from the slot where lr was saved. */
static bool lr_or_slot(const struct unwind_rule *a, const struct unwind_rule *b)
{
	return (a->ra_op == UNWIND_RA_REG ? a : b)->ra_off == 30;
}

static int verdict(const struct unwind_rule *a, const struct unwind_rule *b)
{
	if (b->cfa_op != UNWIND_CFA_REG)
		return is_rule(b) && is_rule(a) ? memcmp(a, b, sizeof(*a)) ? WRONG : AGREE : OTHER;
	if (!is_rule(a))
		return NONE;
	if (!memcmp(a, b, sizeof(*a)))
		return AGREE;
	if (a->cfa_op == b->cfa_op && a->cfa_reg == b->cfa_reg && a->cfa_off == b->cfa_off &&
	    a->ra_op == b->ra_op && a->ra_off == b->ra_off && a->fp_op == UNWIND_FP_SAME &&
	    b->fp_op == UNWIND_FP_CFA && -b->fp_off > b->cfa_off)
		return AGREE;
	if (a->cfa_reg != b->cfa_reg && a->fp_op == UNWIND_FP_CFA && same_slots(a, b))
		return ALIKE;
	if (a->cfa_reg == b->cfa_reg && a->cfa_off == b->cfa_off &&
	    (a->fp_op != b->fp_op || a->fp_off == b->fp_off) &&
	    (a->ra_op == b->ra_op ? a->ra_off == b->ra_off : lr_or_slot(a, b)))
		return ALIKE;
	return WRONG;
}

static void print(u64 pc, const char *what, const struct unwind_rule *r)
{
	printf("%s %llx op %u r%u%+d fp %u %+d ra %u %+d%s", what, pc, r->cfa_op, r->cfa_reg,
	       r->cfa_off, r->fp_op, r->fp_off, r->ra_op, r->ra_off, *what == 'o' ? " | " : "\n");
}

static void compare_at(struct compare *c, u64 pc, u32 off)
{
	static const char *const names[] = {"agree", "alike", "none", "wrong", "other"};
	struct unwind_rule a = rule_at(c->code, &c->ours, off);
	struct unwind_rule b = rule_at(c->cfi, &c->theirs, off);
	int v;

	a.bx_off = b.bx_off = 0; /* only rules of ld.so use it, and code.c does not derive it */
	v = verdict(&a, &b);
	c->n[v]++;
	if (c->verbose && (v == ALIKE || v == NONE || v == WRONG)) {
		printf("%s ", names[v]);
		print(pc, "ours", &a);
		print(pc, "cfi", &b);
	}
}

/* Compares the instructions from off to the end of the code that CFI covers. Returns that end. */
static u32 compare_run(struct compare *c, u64 base, u32 off)
{
	u8 bytes[DISASM_MAX_INSN];
	struct disasm_insn insn;

	while (off < UNWIND_PAGE_BYTES) {
		struct unwind_rule b = rule_at(c->cfi, &c->theirs, off);
		ssize_t n = elf_file_copy(c->elf, base + off, sizeof(bytes), bytes);

		if (b.cfa_op == UNWIND_CFA_NONE || n <= 0)
			break;
		if (!disasm_one(c->d, buf_of(bytes, (size_t)n), base + off, &insn)) {
			off += c->elf->machine == EM_X86_64 ? 1 : 4;
			continue;
		}
		compare_at(c, base + off, off);
		off += insn.length;
	}
	c->resume = base + off;
	return off;
}

static int compare_page(struct compare *c, u64 page)
{
	u64 base = page << UNWIND_PAGE_SHIFT;
	u32 off = c->resume > base ? (u32)(c->resume - base) : 0;
	struct timespec t0, t1;

	if (unwind_source_rows(c->cfi, page, c->theirs.rows, &c->theirs.n) < 0)
		return -1;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t0);
	if (unwind_source_rows(c->code, page, c->ours.rows, &c->ours.n) < 0)
		return -1;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t1);
	c->seconds += (double)(t1.tv_sec - t0.tv_sec) + (double)(t1.tv_nsec - t0.tv_nsec) / 1e9;
	c->ours.at = c->theirs.at = 0;
	while (off < UNWIND_PAGE_BYTES) {
		struct unwind_rule b = rule_at(c->cfi, &c->theirs, off);

		if (b.cfa_op != UNWIND_CFA_NONE) {
			off = compare_run(c, base, off);
			continue;
		}
		/* Skip to the next row. */
		if (c->theirs.at + 1 >= c->theirs.n)
			break;
		off = c->theirs.rows[c->theirs.at + 1] >> 16;
	}
	return 0;
}

int main(int argc, char **argv)
{
	static struct compare c;
	const struct unwind_source_info *info;
	struct diag d = {};
	int arg = 1, r = 0;

	c.verbose = argc > 2 && !strcmp(argv[arg], "-v");
	arg += c.verbose;
	if (arg >= argc || elf_file_open(open(argv[arg], O_RDONLY | O_CLOEXEC), &d, &c.elf) < 0 ||
	    disasm_create(c.elf->machine, &c.d) < 0 || unwind_source_create(c.elf, &c.cfi) < 0 ||
	    unwind_source_create_without_cfi(c.elf, &c.code) < 0) {
		fprintf(stderr, "usage: compare-code [-v] ELF: %s\n", d.text);
		return 1;
	}
	info = unwind_source_info(c.cfi);
	for (u64 p = 0; r == 0 && p < info->n_pages; p++)
		r = compare_page(&c, info->first_page + p);
	printf("%llu instructions %llu agree %llu alike %llu none %llu wrong %llu other %u pages "
	       "%.0f ms\n",
	       c.n[AGREE] + c.n[ALIKE] + c.n[NONE] + c.n[WRONG], c.n[AGREE], c.n[ALIKE], c.n[NONE],
	       c.n[WRONG], c.n[OTHER], info->n_pages, c.seconds * 1e3);
	unwind_source_destroy(c.cfi);
	unwind_source_destroy(c.code);
	disasm_destroy(c.d);
	elf_file_destroy(c.elf);
	return r ? 2 : 0;
}
