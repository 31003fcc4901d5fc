/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Learns from a binary of Perl: its version, where its variables are, and the code of its loop and
 * of the functions whose frames tell the walker what the loop around them does.
 *
 * What Perl publishes: PL_version, PL_block_type (the kinds of contexts), PL_op_name and PL_ppaddr
 * (the functions of ops), PL_interp_size. The code of Perl_cxinc() shows where the stackinfo is in
 * an interpreter.
 */
#include <elf.h>
#include <errno.h>
#include <string.h>

#include "agent/runtime/binary.h"
#include "agent/runtime/perl/perl.h"
#include "base/str.h"
#include "disasm/exec.h"

#define OLDEST 32
#define NEWEST 44
#define MAX_FUNCTION (1u << 20)
#define MAX_TARGETS 128
#define MAX_SYMBOLS (1u << 20)
#define MAX_INTERPRETER 16384
#define BLOCK_NAME 16
#define OP_NAME 16
#define MAX_OPS 1024

/* intrpvar.h: the first variables of an interpreter, and those beside PL_curstackinfo. */
#define INTERPRETER_OP 0x08
#define INTERPRETER_SAVESTACK 0x28
#define COP_BEFORE_STACKINFO 0x10

static const char loop_name[] = "Perl_runops_standard";

/*
 * PL_compiling in an interpreter, by the interpreter's size. Measured with offsetof() on Debian's
 * headers. A jmp_buf before it is larger on arm64.
 */
static const struct {
	u32 version, size, compiling;
} interpreters[] = {
	{32, 3792, 0x7a0},
	{36, 3768, 0x790},
	{40, 3768, 0x6b8},
	{42, 3768, 0x6b8},
	{44, 3776, 0x6b8},
	/* arm64 */
	{32, 3888, 0x800},
	{36, 3864, 0x7f0},
	{40, 3864, 0x718},
	{42, 3864, 0x718},
};

bool perl_is_name(const char *path)
{
	const char *base = runtime_file_name(path);

	return str_starts(base, "perl") || str_starts(base, "libperl");
}

bool perl_has_loop(struct elf_file *elf)
{
	u64 svma;

	return runtime_symbol(elf, loop_name, &svma, NULL);
}

/* ---- what Perl publishes ---- */

static bool read_byte(struct elf_file *elf, const char *name, u32 *ret)
{
	u64 at;
	u8 byte;

	if (!runtime_symbol(elf, name, &at, NULL) || elf_file_copy(elf, at, 1, &byte) != 1)
		return false;
	*ret = byte;
	return true;
}

static int find_version(struct elf_file *elf, struct perl_learned *l, struct diag *d)
{
	u32 revision;

	if (!read_byte(elf, "PL_revision", &revision) ||
	    !read_byte(elf, "PL_version", &l->version) ||
	    !read_byte(elf, "PL_subversion", &l->subversion))
		return diag_set(d, -ENOTSUP, "PL_version is not among its symbols");
	/* Odd versions are of development. */
	if (revision != 5 || l->version < OLDEST || l->version > NEWEST || l->version & 1)
		return diag_set(d, -ENOTSUP, "Perl %u.%u: only 5.%u to 5.%u are supported",
				revision, l->version, OLDEST, NEWEST);
	return 0;
}

/* The kind whose name PL_block_type has. */
static void take_kind(struct perl_kinds *k, const char *name, u8 index)
{
	if (!strcmp(name, "NULL"))
		k->null = index;
	else if (!strcmp(name, "SUB"))
		k->sub = index;
	else if (!strcmp(name, "FORMAT"))
		k->format = index;
	else if (!strcmp(name, "EVAL"))
		k->eval = index;
	else if (!strcmp(name, "DEFER"))
		k->defer = index;
}

static int find_kinds(struct elf_file *elf, struct perl_kinds *k, struct diag *d)
{
	char name[BLOCK_NAME + 1] = {};
	u64 at, size, text;
	struct buf table;

	memset(k, 0xff, sizeof(*k));
	if (!runtime_symbol(elf, "PL_block_type", &at, &size) || size / 8 > PERL_CX_KIND + 1 ||
	    elf_file_relocated(elf, at, size, &table) < 0)
		return diag_set(d, -ENOTSUP, "PL_block_type is not among its symbols");
	for (u8 i = 0; buf_u64(&table, &text); i++)
		if (elf_file_copy(elf, text, BLOCK_NAME, name) > 0)
			take_kind(k, name, i);
	if (k->null == 0xff || k->sub == 0xff || k->format == 0xff || k->eval == 0xff)
		return diag_set(d, -ENOTSUP, "PL_block_type lacks a kind of context");
	return 0;
}

/* ---- variables ---- */

/* Perl_cxinc(), which returns PL_curstackinfo->si_cxix + 1. */
struct cxinc {
	struct runtime_code code; /* first: exec_program.arg */
	bool known;
	u64 stackinfo; /* offset in the interpreter */
};

static bool on_cxinc(void *arg, const struct exec *x, enum exec_event event,
		     const struct exec_value *value)
{
	struct cxinc *c = arg;
	struct exec_value at;
	u32 symbol;

	if (event != EXEC_RETURNS || !value->known || value->n != 1 || value->constant != 1 ||
	    exec_factor(x, value, EXEC_LOAD, &symbol) != 1 || x->symbols[symbol].size != 4)
		return false;
	at = x->symbols[symbol].at;
	if (!at.known || at.n != 1 || at.constant != PERL_SI_INDEX ||
	    exec_factor(x, &at, EXEC_LOAD, &symbol) != 1 || x->symbols[symbol].size != 8)
		return false;
	at = x->symbols[symbol].at;
	if (!at.known || at.n != 1 || exec_factor(x, &at, EXEC_ARG, NULL) != 1)
		return false;
	c->stackinfo = at.constant;
	c->known = true;
	return true;
}

static int find_interpreter(struct elf_file *elf, struct perl_learned *l, struct diag *d)
{
	struct perl_binary *b = &l->bpf;
	struct cxinc c = {.code.elf = elf};
	struct exec_program p = {.code = runtime_code_at,
				 .constant = runtime_constant_at,
				 .event = on_cxinc,
				 .arg = &c};
	u16 size = 0;
	u64 at;

	if (!runtime_symbol(elf, "Perl_cxinc", &at, NULL) || exec_run(&p, elf->machine, at) < 0 ||
	    !c.known || c.stackinfo <= INTERPRETER_SAVESTACK + COP_BEFORE_STACKINFO ||
	    c.stackinfo > MAX_INTERPRETER)
		return diag_set(d, -ENOTSUP, "Perl 5.%u: the code of Perl_cxinc is not understood",
				l->version);
	b->op = INTERPRETER_OP;
	b->savestack = INTERPRETER_SAVESTACK;
	b->stackinfo = c.stackinfo;
	b->cop = c.stackinfo - COP_BEFORE_STACKINFO;
	if (runtime_symbol(elf, "PL_interp_size", &at, NULL))
		(void)elf_file_copy(elf, at, sizeof(size), &size);
	for (u32 i = 0; i < ARRAY_SIZE(interpreters); i++)
		if (interpreters[i].version == l->version && interpreters[i].size == size)
			b->compiling = interpreters[i].compiling;
	return 0;
}

static int find_variables(struct elf_file *elf, struct perl_learned *l, struct diag *d)
{
	struct perl_binary *b = &l->bpf;
	u64 key;
	int r = 0;

	l->threaded = runtime_symbol(elf, "PL_thr_key", &key, NULL) &&
		      runtime_symbol(elf, "PL_curinterp", &l->interpreter, NULL);
	b->threaded = l->threaded;
	if (l->threaded) {
		l->thread = (struct runtime_tls){.kind = RUNTIME_TLS_KEY, .slot = key};
		r = find_interpreter(elf, l, d);
	} else if (!runtime_symbol(elf, "PL_op", &b->op, NULL) ||
		   !runtime_symbol(elf, "PL_curcop", &b->cop, NULL) ||
		   !runtime_symbol(elf, "PL_curstackinfo", &b->stackinfo, NULL) ||
		   !runtime_symbol(elf, "PL_savestack", &b->savestack, NULL)) {
		return diag_set(d, -ENOTSUP,
				"neither PL_thr_key nor PL_curstackinfo is among its symbols");
	} else {
		(void)runtime_symbol(elf, "PL_compiling", &b->compiling, NULL);
	}
	b->save_op = l->version < 38 ? 18 : l->version < 44 ? 19 : 20;
	if (b->compiling)
		b->compiling_end = b->compiling + 8;
	return r;
}

/* ---- code ---- */

static bool find_function(struct elf_file *elf, const char *name, struct runtime_range *ret)
{
	return runtime_symbol_range(elf, name, ret) && ret->end - ret->start <= MAX_FUNCTION;
}

static bool function_at(const struct runtime_functions *f, u64 svma, struct runtime_range *ret)
{
	const struct runtime_range *found = runtime_function_at(f, svma);

	if (found)
		*ret = *found;
	return found;
}

/* The function of an op, such as pp_sort(). Not all versions export it, but all publish a table. */
static bool find_op(struct elf_file *elf, const struct runtime_functions *f, const char *name,
		    struct runtime_range *ret)
{
	struct runtime_code code = {.elf = elf};
	u64 names_at, size, functions_at, slot, text, function = 0;
	char have[OP_NAME + 1] = {};
	struct buf names;

	if (!runtime_symbol(elf, "PL_op_name", &names_at, &size) || size > MAX_OPS * 8 ||
	    !runtime_symbol(elf, "PL_ppaddr", &functions_at, NULL) ||
	    elf_file_relocated(elf, names_at, size, &names) < 0)
		return false;
	for (slot = functions_at; buf_u64(&names, &text); slot += 8) {
		if (elf_file_copy(elf, text, OP_NAME, have) <= 0 || strcmp(have, name) != 0)
			continue;
		if (!runtime_constant_at(&code, slot, &function))
			(void)elf_file_copy(elf, slot, sizeof(function), &function);
		return function_at(f, function, ret);
	}
	return false;
}

/* A store of 32 bits to si_cxix, which pops a context. */
static bool is_pop_x86(const u8 *p, u32 n)
{
	u32 reg;

	if (n && *p >= 0x40 && *p < 0x48) { /* REX without W */
		p++;
		n--;
	}
	if (n < 3 || p[1] >> 6 != 1 || (p[1] & 7) == 4 || p[2] != PERL_SI_INDEX)
		return false;
	reg = p[1] >> 3 & 7;
	switch (*p) {
	case 0x83: /* sub $1; add $-1 */
		return n == 4 && ((reg == 5 && p[3] == 1) || (reg == 0 && p[3] == 0xff));
	case 0xff: /* dec */
		return reg == 1;
	default: /* mov %r32 */
		return *p == 0x89;
	}
}

static bool is_pop_arm64(const u8 *p)
{
	u32 w;

	memcpy(&w, p, sizeof(w)); /* str w, [x, #si_cxix] */
	return (w & 0xffc00000) == 0xb9000000 && (w >> 10 & 0xfff) * 4 == PERL_SI_INDEX;
}

struct pops {
	struct perl_binary *b;
	bool arm64, open;
};

static bool note_pop(void *arg, u64 at, const u8 *bytes, const struct disasm_insn *i)
{
	struct pops *p = arg;
	struct runtime_range *last;

	if (p->open) {
		last = &p->b->popped[p->b->n_popped - 1];
		last->end = at + i->length;
		p->open = i->flow != DISASM_RETURN && i->flow != DISASM_JUMP &&
			  i->flow != DISASM_INDIRECT;
		return false;
	}
	if (p->arm64 ? !is_pop_arm64(bytes) : !is_pop_x86(bytes, i->length))
		return false;
	if (p->b->n_popped == PERL_MAX_POPPED)
		return true;
	p->b->popped[p->b->n_popped++] = (struct runtime_range){at + i->length, at + i->length};
	p->open = true;
	return false;
}

/* Addresses that a function calls or jumps to. */
struct targets {
	struct runtime_range own;
	u64 svma[MAX_TARGETS];
	u32 n;
};

static bool has_target(const struct targets *t, u64 svma)
{
	for (u32 i = 0; i < t->n; i++)
		if (t->svma[i] == svma)
			return true;
	return false;
}

static bool note_target(void *arg, u64 at, const u8 *bytes, const struct disasm_insn *i)
{
	struct targets *t = arg;

	if ((i->flow == DISASM_CALL || i->flow == DISASM_JUMP || i->flow == DISASM_BRANCH) &&
	    i->target != ~0ULL && !runtime_in(&t->own, i->target) && t->n < MAX_TARGETS &&
	    !has_target(t, i->target))
		t->svma[t->n++] = i->target;
	return false;
}

/* Whether the address is that of a global symbol, or in a table of links to other files. */
static bool is_public(struct elf_file *elf, u64 svma)
{
	static const char *const plt[] = {".plt", ".plt.sec", ".plt.got"};
	struct elf_section section;
	struct buf syms;
	Elf64_Sym s;

	for (u32 i = 0; i < ARRAY_SIZE(plt); i++)
		if (elf_file_section(elf, plt[i], &section, NULL) == 0 &&
		    svma - section.svma < section.size)
			return true;
	if (elf_file_section(elf, ".dynsym", NULL, &syms) < 0 &&
	    elf_file_section(elf, ".symtab", NULL, &syms) < 0)
		return false;
	for (u32 i = 0; i < MAX_SYMBOLS && buf_left(&syms) >= sizeof(s); i++) {
		memcpy(&s, syms.pos, sizeof(s));
		(void)buf_skip(&syms, sizeof(s));
		if (s.st_value == svma && s.st_shndx != SHN_UNDEF &&
		    ELF64_ST_BIND(s.st_info) != STB_LOCAL)
			return true;
	}
	return false;
}

/* S_docatch() is the only local function that the ops for both kinds of eval call. */
static void find_docatch(struct elf_file *elf, const struct runtime_functions *f,
			 struct perl_binary *b)
{
	struct targets block = {}, text = {};
	u64 found = 0;

	if (!find_op(elf, f, "entertry", &block.own) || !find_op(elf, f, "entereval", &text.own))
		return;
	(void)runtime_sweep(elf, &block.own, note_target, &block);
	(void)runtime_sweep(elf, &text.own, note_target, &text);
	for (u32 i = 0; i < block.n; i++) {
		if (!has_target(&text, block.svma[i]) || is_public(elf, block.svma[i]))
			continue;
		if (found)
			return;
		found = block.svma[i];
	}
	if (found)
		(void)function_at(f, found, &b->docatch);
}

/* Without them, the walker knows less of the loop's callers. */
static void find_callers(struct elf_file *elf, const struct runtime_functions *f,
			 struct perl_binary *b)
{
	static const char *const leaves[PERL_MAX_LEAVES] = {"leavesub", "leavesublv"};

	for (u32 i = 0; i < PERL_MAX_LEAVES; i++) {
		struct pops p = {.b = b, .arm64 = elf->machine == EM_AARCH64};

		if (find_op(elf, f, leaves[i], &b->leaves[i]))
			(void)runtime_sweep(elf, &b->leaves[i], note_pop, &p);
	}
	find_docatch(elf, f, b);
}

static int find_code(struct elf_file *elf, struct perl_binary *b, struct diag *d)
{
	struct runtime_functions functions;

	if (!find_function(elf, loop_name, &b->loops[0]))
		return diag_set(d, -ENOTSUP, "%s has no size", loop_name);
	b->n_loops = 1;
	if (find_function(elf, "Perl_runops_debug", &b->loops[1]))
		b->n_loops = 2;
	if (runtime_functions_init(elf, &functions) == 0) {
		find_callers(elf, &functions, b);
		runtime_functions_deinit(&functions);
	}
	return 0;
}

int perl_learn(struct elf_file *elf, struct perl_learned *ret, struct diag *reterr_diag)
{
	int r = find_version(elf, ret, reterr_diag);

	if (r == 0)
		r = find_kinds(elf, &ret->bpf.kinds, reterr_diag);
	if (r == 0)
		r = find_variables(elf, ret, reterr_diag);
	return r == 0 ? find_code(elf, &ret->bpf, reterr_diag) : r;
}
