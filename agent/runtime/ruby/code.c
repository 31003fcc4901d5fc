/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the interpreter's functions in a binary of Ruby. Most of them have no symbol in a stripped
 * one:
 *
 *	vm_exec_core		the function into which Ruby's table of instructions points: the
 *				longest table of addresses in one function (vm_exec.c)
 *	rb_vm_exec		calls vm_exec_core. The only other function that leads there,
 *				rb_vm_get_insns_address_table, jumps
 *	callers of methods in C	their code contains the flags of the frame that they push
 *
 * The table of symbols (rb_symbols_t in symbol.h) begins with the number of the last symbol, which
 * the file initialises; rb_id2str() or the function behind it reads this word and, 16 bytes on, the
 * array of names.
 */
#include <elf.h>
#include <errno.h>
#include <string.h>

#include "agent/runtime/binary.h"
#include "agent/runtime/ruby/ruby.h"

/* Ruby has 200 instructions and more; the regular expressions' interpreter has 98. */
#define MIN_INSTRUCTIONS 150
#define MAX_CODE (64u << 20)
#define MAX_TABLES (64u << 20)
#define MAX_LOOKUP_BYTES 16384 /* of the functions that look up a symbol */
/* The symbols of the lexer, one for each operator and word of the language, come first. */
#define MIN_LAST_SYMBOL 100
#define MAX_LAST_SYMBOL 2000

struct code {
	struct runtime_functions functions;
	struct elf_section text;
	struct buf bytes; /* of .text */
	u16 machine;
};

static int read_code(struct elf_file *elf, struct code *ret)
{
	int r = elf_file_section(elf, ".text", &ret->text, &ret->bytes);

	if (r < 0)
		return r;
	if (buf_left(&ret->bytes) > MAX_CODE)
		return -E2BIG;
	ret->machine = elf->machine;
	return runtime_functions_init(elf, &ret->functions);
}

/* ---- the interpreter ---- */

/* The longest run of addresses in one function, among the words of a section. */
static void longest_table(struct elf_file *elf, const char *section,
			  const struct runtime_functions *f, u32 *best, struct runtime_range *ret)
{
	const struct runtime_range *last = NULL;
	struct elf_section s;
	struct buf bytes;
	u32 run = 0;
	u64 word;

	if (elf_file_section(elf, section, &s, NULL) < 0 || s.size > MAX_TABLES ||
	    elf_file_relocated(elf, s.svma, s.size, &bytes) < 0)
		return;
	while (buf_u64(&bytes, &word)) {
		const struct runtime_range *now;

		if (last && word >= last->start && word < last->end)
			now = last;
		else
			now = word ? runtime_function_at(f, word) : NULL;
		run = now && now == last ? run + 1 : 1;
		last = now;
		if (now && run > *best) {
			*best = run;
			*ret = *now;
		}
	}
}

static u32 word_at(const u8 *p)
{
	u32 v;

	memcpy(&v, p, sizeof(v));
	return v;
}

/* The target of the call whose last byte (x86-64: of the displacement) ends at `end`; or 0. */
static u64 call_target(const struct code *c, size_t i)
{
	const u8 *p = c->bytes.pos + i;
	u64 at = c->text.svma + i;

	if (c->machine == EM_X86_64)
		return *p == 0xe8 ? at + 5 + (u64)(s64)(s32)word_at(p + 1) : 0;
	/* bl: a displacement of 26 bits, in words */
	if ((word_at(p) & 0xfc000000) != 0x94000000)
		return 0;
	return at + (u64)((s64)(s32)(word_at(p) << 6) >> 4);
}

/* The function that calls `target`; if there are several, the one with the most calls. */
static bool find_caller(const struct code *c, u64 target, struct runtime_range *ret)
{
	size_t step = c->machine == EM_X86_64 ? 1 : 4;
	const struct runtime_range *last = NULL;
	u32 n = 0, best = 0;

	for (size_t i = 0; i + 5 <= buf_left(&c->bytes); i += step) {
		const struct runtime_range *now;

		if (call_target(c, i) != target)
			continue;
		now = runtime_function_at(&c->functions, c->text.svma + i);
		n = now && now == last ? n + 1 : 1;
		last = now;
		if (now && now->start != target && n > best) {
			best = n;
			*ret = *now;
		}
	}
	return best;
}

static int find_interpreter(struct elf_file *elf, const struct code *c, struct ruby_learned *l,
			    struct diag *d)
{
	static const char *const sections[] = {".data.rel.ro", ".rodata"};
	struct ruby_binary *b = &l->bpf;
	u32 best = 0;

	for (u32 i = 0; i < ARRAY_SIZE(sections); i++)
		longest_table(elf, sections[i], &c->functions, &best, &b->cores[0]);
	if (best < MIN_INSTRUCTIONS)
		return diag_set(d, -ENOTSUP, "Ruby %s: its table of instructions is not found",
				l->version);
	if (find_caller(c, b->cores[0].start, &b->execs[0])) {
		b->n_cores = runtime_find_parts(elf, b->cores, RUBY_MAX_RANGES);
	} else {
		b->execs[0] = b->cores[0]; /* the compiler has put it into rb_vm_exec() */
		b->n_cores = 0;
	}
	b->n_execs = runtime_find_parts(elf, b->execs, RUBY_MAX_RANGES);
	return 0;
}

/* ---- callers of methods in C ---- */

/* VM_FRAME_MAGIC_CFUNC | VM_FRAME_FLAG_CFRAME | VM_ENV_FLAG_LOCAL, and perhaps CFRAME_KW */
static bool is_frame_flags(u32 v)
{
	return v == 0x55550083 || v == 0x55550483;
}

static void find_callers(const struct code *c, struct ruby_binary *b)
{
	const struct runtime_range *last = NULL;

	if (c->machine != EM_X86_64) /* arm64 composes the flags from two instructions */
		return;
	for (size_t i = 0; i + 4 <= buf_left(&c->bytes); i++) {
		const struct runtime_range *now;

		if (c->bytes.pos[i + 3] != 0x55 || !is_frame_flags(word_at(c->bytes.pos + i)))
			continue;
		now = runtime_function_at(&c->functions, c->text.svma + i);
		if (!now || now == last || now->start == b->cores[0].start ||
		    now->start == b->execs[0].start || b->n_callers == RUBY_MAX_RANGES)
			continue;
		b->callers[b->n_callers++] = *now;
		last = now;
	}
}

/* ---- the table of symbols ---- */

static bool is_table(struct elf_file *elf, u64 svma)
{
	u64 words[3];

	return svma % 8 == 0 &&
	       elf_file_copy(elf, svma, sizeof(words), words) == (ssize_t)sizeof(words) &&
	       words[0] >= MIN_LAST_SYMBOL && words[0] <= MAX_LAST_SYMBOL && !words[1] && !words[2];
}

/* The address to which code at offset i of .text refers, relative to the end of its instruction. */
static u64 reference(const struct code *c, u64 i)
{
	return c->text.svma + i + 4 + (u64)(s64)(s32)word_at(c->bytes.pos + i);
}

/* Whether one of two functions refers to `target`. */
static bool refers_to(const struct code *c, const struct runtime_range *in, u64 target)
{
	for (u32 k = 0; k < 2; k++)
		for (u64 i = in[k].start; i + 4 <= in[k].end; i++)
			if (reference(c, i - c->text.svma) == target)
				return true;
	return false;
}

/* The table to which two functions refer, or 0. */
static u64 table_in(struct elf_file *elf, const struct code *c, const struct runtime_range *in)
{
	for (u32 k = 0; k < 2; k++)
		if (in[k].start < c->text.svma || in[k].end > c->text.svma + buf_left(&c->bytes))
			return 0;
	for (u32 k = 0; k < 2; k++) {
		for (u64 i = in[k].start; i + 4 <= in[k].end; i++) {
			u64 at = reference(c, i - c->text.svma);

			if (is_table(elf, at) && refers_to(c, in, at + 16))
				return at;
		}
	}
	return 0;
}

/* rb_id2str(), and the functions that it calls or jumps to. */
struct lookup {
	struct elf_file *elf;
	const struct code *c;
	struct runtime_range in[2];
	u64 found;
};

static bool on_lookup(void *arg, u64 svma, const u8 *bytes, const struct disasm_insn *insn)
{
	struct lookup *l = arg;
	const struct runtime_range *next = NULL;

	if (insn->flow == DISASM_JUMP || insn->flow == DISASM_CALL)
		next = runtime_function_at(&l->c->functions, insn->target);
	if (next) {
		l->in[1] = *next;
		l->found = table_in(l->elf, l->c, l->in);
	}
	return l->found;
}

static u64 find_symbols(struct elf_file *elf, const struct code *c)
{
	struct lookup l = {.elf = elf, .c = c};
	const struct runtime_range *function;
	u64 at;

	if (runtime_symbol(elf, "ruby_global_symbols", &at, NULL))
		return at;
	if (c->machine != EM_X86_64 || !runtime_symbol(elf, "rb_id2str", &at, NULL))
		return 0;
	function = runtime_function_at(&c->functions, at);
	if (!function || function->end - at > MAX_LOOKUP_BYTES)
		return 0;
	l.in[0] = *function;
	(void)runtime_sweep(elf, &(struct runtime_range){at, function->end}, on_lookup, &l);
	return l.found;
}

int ruby_learn_code(struct elf_file *elf, struct ruby_learned *l, struct diag *reterr_diag)
{
	struct code c = {};
	int r = read_code(elf, &c);

	if (r < 0)
		(void)diag_set(reterr_diag, r, "Ruby %s: its functions cannot be read", l->version);
	else
		r = find_interpreter(elf, &c, l, reterr_diag);
	if (r == 0) {
		find_callers(&c, &l->bpf);
		l->symbols = find_symbols(elf, &c);
	}
	runtime_functions_deinit(&c.functions);
	return r;
}
