/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the memory profile of a program: runtime.mbuckets, MemProfileRate and the number of the
 * cycle. A stripped program has no symbols of data, but .gopclntab names functions that use it:
 *
 *	runtime.nextSample	loads MemProfileRate, the only such word whose value in the file is
 *	runtime.profilealloc	512 KiB; from 1.17 to 1.20 it is set at the start, and is the only
 *	runtime.mallocgc	one that runtime.parsedebugvars sets, too
 *	runtime.stkbucket	uses mbuckets, and a dozen other variables: the memory of a process
 *				tells which (agent/runtime/go/heap.c)
 *	runtime.mProf_Malloc	these two load the cycle, which is the only 32-bit variable that
 *	runtime.mProf_Free	both load
 */
#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "disasm/disasm.h"
#include "runtime/go/go.h"
#include "runtime/go/pclntab.h"

#define CODE_MAX 8192
#define USES_MAX 128
#define MAX_SYMBOLS (4u << 20)
#define DEFAULT_RATE (512 * 1024)
/* The layout is known of the releases from 1.15 to 1.27. */
#define FIRST_RELEASE 15
#define LAST_RELEASE 27
#define SHIFTED_SINCE 19
#define WITHOUT_BYTES_SINCE 27

enum use { USE_WORD = 1, USE_HALF = 2, USE_ADDRESS = 4 };

/* The variables that a function uses, and how: bits of enum use. */
struct uses {
	u64 svma[USES_MAX];
	u8 how[USES_MAX];
	u32 n;
};

static void add_use(struct uses *u, u64 svma, enum use how)
{
	for (u32 i = 0; i < u->n; i++)
		if (u->svma[i] == svma) {
			u->how[i] |= (u8)how;
			return;
		}
	if (u->n < USES_MAX) {
		u->svma[u->n] = svma;
		u->how[u->n++] = (u8)how;
	}
}

static bool has_use(const struct uses *u, u64 svma, enum use how)
{
	for (u32 i = 0; i < u->n; i++)
		if (u->svma[i] == svma)
			return u->how[i] & how;
	return false;
}

/* ---- code ---- */

/* An instruction of amd64 with an operand at disp32(%rip), which may have `after` bytes behind. */
static void use_amd64(struct uses *u, const u8 *code, u32 n, u64 svma)
{
	bool wide = false;
	u32 i = 0;
	s32 disp;

	while (i < n && (code[i] == 0xf0 || code[i] == 0x66))
		i++;
	if (i < n && (code[i] & 0xf0) == 0x40)
		wide = code[i++] & 8;
	if (i + 6 > n || (code[i + 1] & 0xc7) != 5)
		return;
	memcpy(&disp, code + i + 2, sizeof(disp));
	svma += n + (u64)(s64)disp;
	switch (code[i]) {
	case 0x8b: /* mov m, r */
	case 0x89: /* mov r, m */
	case 0x87: /* xchg */
	case 0x83: /* cmp $imm8, m, and others */
	case 0x3b: /* cmp m, r */
	case 0x39:
		add_use(u, svma, wide ? USE_WORD : USE_HALF);
		break;
	case 0x8d: /* lea */
		add_use(u, svma, USE_ADDRESS);
		break;
	default:
		break;
	}
}

static int uses_of_amd64(const u8 *code, u32 n, u64 svma, struct uses *ret)
{
	_cleanup_disasm_ struct disasm *d = NULL;
	struct disasm_insn insn;
	int r = disasm_create(EM_X86_64, &d);

	for (u32 at = 0; r == 0 && at < n; at += insn.length) {
		if (!disasm_one(d, buf_of(code + at, n - at), svma + at, &insn) || !insn.length)
			break;
		use_amd64(ret, code + at, insn.length, svma + at);
	}
	return r;
}

/* What is known of a register of arm64: an address, or the page of one. 0: nothing. */
struct registers {
	u64 value[32];
};

static void use_arm64(struct uses *u, struct registers *regs, u32 insn, u64 svma)
{
	u32 rd = insn & 31, rn = insn >> 5 & 31, imm = insn >> 10 & 0xfff;
	u64 base = regs->value[rn];

	if ((insn & 0x9f000000) == 0x90000000) { /* adrp */
		s64 pages = (s64)((u64)(insn >> 5 & 0x7ffff) << 45) >> 43 | (insn >> 29 & 3);

		regs->value[rd] = (svma & ~0xfffULL) + ((u64)pages << 12);
		return;
	}
	if ((insn & 0x9f000000) == 0x10000000) { /* adr */
		s64 bytes = (s64)((u64)(insn >> 5 & 0x7ffff) << 45) >> 43 | (insn >> 29 & 3);

		regs->value[rd] = svma + (u64)bytes;
		add_use(u, regs->value[rd], USE_ADDRESS);
		return;
	}
	if (!base || rn == 31)
		return;
	if ((insn & 0xffc00000) == 0x91000000) { /* add xd, xn, #imm */
		regs->value[rd] = base + imm;
		add_use(u, base + imm, USE_ADDRESS);
	} else if ((insn & 0xff800000) == 0xf9000000) { /* ldr, str xt, [xn, #imm] */
		add_use(u, base + (u64)imm * 8, USE_WORD);
	} else if ((insn & 0xff800000) == 0xb9000000) { /* ldr, str wt, [xn, #imm] */
		add_use(u, base + (u64)imm * 4, USE_HALF);
	} else if ((insn & 0xfffffc00) == 0xc8dffc00) { /* ldar xt, [xn] */
		add_use(u, base, USE_WORD);
	} else if ((insn & 0xfffffc00) == 0x88dffc00) { /* ldar wt, [xn] */
		add_use(u, base, USE_HALF);
	}
}

static void uses_of_arm64(const u8 *code, u32 n, u64 svma, struct uses *ret)
{
	struct registers regs = {};
	u32 insn;

	for (u32 at = 0; at + 4 <= n; at += 4) {
		memcpy(&insn, code + at, sizeof(insn));
		use_arm64(ret, &regs, insn, svma + at);
	}
}

static int find_uses(struct elf_file *elf, const struct go_func *f, struct uses *ret)
{
	u8 code[CODE_MAX];
	ssize_t n =
		elf_file_copy(elf, f->start, MIN(sizeof(code), (size_t)(f->end - f->start)), code);

	if (n <= 0)
		return -ENOTSUP;
	if (elf->machine == EM_X86_64)
		return uses_of_amd64(code, (u32)n, f->start, ret);
	uses_of_arm64(code, (u32)n, f->start, ret);
	return 0;
}

#define KNOWN(X)                                                                                   \
	X(NEXT_SAMPLE, "nextSample")                                                               \
	X(PROFILE_ALLOC, "profilealloc")                                                           \
	X(MALLOCGC, "mallocgc")                                                                    \
	X(DEBUG_VARS, "parsedebugvars")                                                            \
	X(STKBUCKET, "stkbucket")                                                                  \
	X(PROF_MALLOC, "mProf_Malloc")                                                             \
	X(PROF_FREE, "mProf_Free")

#define ID(id, name) id,
enum known { KNOWN(ID) KNOWN_N };
#undef ID

#define NAME(id, name) "runtime." name,
static const char *const known_names[KNOWN_N] = {KNOWN(NAME)};
#undef NAME

/* The variable has its default in the file. */
static bool is_rate(struct elf_file *elf, u64 svma)
{
	u64 value;

	return svma % 8 == 0 && elf_file_copy(elf, svma, sizeof(value), &value) == sizeof(value) &&
	       value == DEFAULT_RATE;
}

static u64 find_rate(struct elf_file *elf, const struct uses *u)
{
	u64 rate = 0;

	for (u32 i = 0; i < u->n; i++) {
		if (!(u->how[i] & (USE_WORD | USE_ADDRESS)) || !is_rate(elf, u->svma[i]))
			continue;
		if (rate)
			return 0;
		rate = u->svma[i];
	}
	return rate;
}

/* The only variable that both use so; 0: none, or several. */
static u64 find_common(const struct uses *a, const struct uses *b, enum use how)
{
	u64 common = 0;

	for (u32 i = 0; i < a->n; i++) {
		if (!(a->how[i] & how) || !has_use(b, a->svma[i], how))
			continue;
		if (common)
			return 0;
		common = a->svma[i];
	}
	return common;
}

/* Words that are not in the file: 0 at first, as the heads of lists are. */
static void find_lists(struct elf_file *elf, const struct uses *u, struct go_heap *h)
{
	u64 value;

	h->n_lists = 0;
	for (u32 i = 0; i < u->n && h->n_lists < GO_HEAP_LISTS; i++) {
		if (!(u->how[i] & (USE_WORD | USE_ADDRESS)) || u->svma[i] % 8)
			continue;
		if (elf_file_copy(elf, u->svma[i], sizeof(value), &value) == sizeof(value) && value)
			continue;
		h->lists[h->n_lists++] = u->svma[i];
	}
}

/* The functions of `known_names`; those that are missing have no code. */
static void find_functions(const struct pclntab *t, struct go_heap *h,
			   struct go_func known[KNOWN_N])
{
	for (u32 i = 0; i < t->n; i++) {
		struct go_func f;
		const char *name;

		if (!pclntab_func(t, i, &f))
			continue;
		name = pclntab_short_name(t, f.name);
		if (strncmp(name, "runtime.", 8) != 0)
			continue;
		if (!strcmp(name, "runtime.goexit"))
			h->goexit = (struct go_range){f.start, f.end};
		for (u32 k = 0; k < KNOWN_N; k++)
			if (!strcmp(name, known_names[k]))
				known[k] = f;
	}
}

static int find_by_code(struct elf_file *elf, const struct go_func known[KNOWN_N],
			struct go_heap *h)
{
	struct uses *uses = calloc(KNOWN_N, sizeof(*uses));
	int r = uses ? 0 : -ENOMEM;

	for (u32 k = 0; k < KNOWN_N && r == 0; k++)
		if (known[k].end)
			r = find_uses(elf, &known[k], &uses[k]);
	if (r == 0) {
		h->rate = 0;
		for (u32 k = NEXT_SAMPLE; k <= MALLOCGC && !h->rate; k++)
			h->rate = find_rate(elf, &uses[k]);
		for (u32 k = NEXT_SAMPLE; k <= MALLOCGC && !h->rate; k++)
			h->rate = find_common(&uses[k], &uses[DEBUG_VARS], USE_WORD);
		h->cycle = find_common(&uses[PROF_MALLOC], &uses[PROF_FREE], USE_HALF);
		find_lists(elf, &uses[STKBUCKET], h);
	}
	free(uses);
	return r;
}

/* ---- symbols ---- */

static void take_symbol(struct go_heap *h, const char *name, u64 svma)
{
	if (!strcmp(name, "mbuckets")) {
		h->lists[0] = svma;
		h->n_lists = 1;
	} else if (!strcmp(name, "MemProfileRate")) {
		h->rate = svma;
	} else if (!strcmp(name, "mProf") || !strcmp(name, "mProfCycle")) {
		h->cycle = svma;
	}
}

static bool find_by_symbols(struct elf_file *elf, struct go_heap *h)
{
	struct buf syms, strs;
	Elf64_Sym s;

	if (elf_file_section(elf, ".symtab", NULL, &syms) < 0 ||
	    elf_file_section(elf, ".strtab", NULL, &strs) < 0)
		return false;
	for (u32 i = 0; i < MAX_SYMBOLS && buf_left(&syms) >= sizeof(s); i++) {
		struct buf at = strs;
		const char *name;

		memcpy(&s, syms.pos, sizeof(s));
		(void)buf_skip(&syms, sizeof(s));
		if (ELF64_ST_TYPE(s.st_info) != STT_OBJECT || s.st_shndx == SHN_UNDEF ||
		    !buf_skip(&at, s.st_name) || buf_left(&at) < 9 ||
		    memcmp(at.pos, "runtime.", 8) != 0 || !buf_cstr(&at, &name))
			continue;
		take_symbol(h, name + 8, s.st_value);
	}
	return h->n_lists && h->rate && h->cycle;
}

int go_heap_find(struct elf_file *elf, struct go_heap *ret)
{
	struct go_func known[KNOWN_N] = {};
	struct go_heap h = {};
	struct pclntab t = {};
	u32 release;
	int r = elf->machine == EM_X86_64 || elf->machine == EM_AARCH64
			? pclntab_open_with_text(elf, &t)
			: -ENOTSUP;

	if (r < 0)
		return r;
	if (!go_release(elf, &release) || release < FIRST_RELEASE || release > LAST_RELEASE)
		return -ENOTSUP;
	h.is_shifted = release >= SHIFTED_SINCE;
	h.has_bytes = release < WITHOUT_BYTES_SINCE;
	find_functions(&t, &h, known);
	if (!find_by_symbols(elf, &h))
		r = find_by_code(elf, known, &h);
	if (r == 0 && (!h.n_lists || !h.rate || !h.cycle || !h.goexit.end))
		r = -ENOTSUP;
	if (r == 0)
		*ret = h;
	return r;
}
