/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PCRE2, a library of regular expressions with a JIT: its struct runtime_ops. The walker is
 * bpf/unwind/pcre2.h; doc/runtimes/pcre2.md says what is read and which source defines it.
 *
 * The two functions that call compiled patterns are found from an exported one: pcre2_jit_match()
 * itself, and the function with a call by address that pcre2_jit_match() calls.
 */
#include <ctype.h>
#include <elf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "abi/runtime_pcre2.h"
#include "agent/runtime/binary.h"
#include "agent/runtime/runtime.h"
#include "base/cleanup.h"

#define MAX_CALLEES 16
#define MAX_FUNCTION_BYTES 65536

struct learned {
	char version[8]; /* "10.42"; "": not found */
	struct pcre2_binary bpf;
};

/* One library has one width of characters. */
static const char *const matchers[] = {"pcre2_jit_match_8", "pcre2_jit_match_16",
				       "pcre2_jit_match_32"};

static bool find_match(struct elf_file *elf, struct runtime_range *ret)
{
	for (u32 i = 0; i < ARRAY_SIZE(matchers); i++)
		if (runtime_symbol_range(elf, matchers[i], ret))
			return ret->end - ret->start <= MAX_FUNCTION_BYTES;
	return false;
}

static bool is_runtime(const struct procman_binary *b)
{
	struct runtime_range match;

	return b->elf->machine == EM_X86_64 && strstr(runtime_file_name(b->path), "pcre2") &&
	       find_match(b->elf, &match);
}

/* The calls of a function. */
struct calls {
	u64 sites[PCRE2_MAX_SITES]; /* what follows calls by address */
	u64 callees[MAX_CALLEES];   /* direct targets */
	u32 n_sites, n_callees;
	bool too_many;
};

static bool note_call(void *arg, u64 svma, const u8 *bytes, const struct disasm_insn *insn)
{
	struct calls *c = arg;

	if (insn->flow != DISASM_CALL)
		return false;
	if (insn->target == ~0ULL && c->n_sites < PCRE2_MAX_SITES)
		c->sites[c->n_sites++] = svma + insn->length;
	else if (insn->target != ~0ULL && c->n_callees < MAX_CALLEES)
		c->callees[c->n_callees++] = insn->target;
	else
		c->too_many = true;
	return c->too_many;
}

static int add_sites(struct pcre2_binary *b, const struct calls *c)
{
	if (c->too_many || c->n_sites > PCRE2_MAX_SITES - b->n_sites)
		return -E2BIG;
	memcpy(&b->sites[b->n_sites], c->sites, c->n_sites * sizeof(*c->sites));
	b->n_sites += c->n_sites;
	return 0;
}

/* Finds jit_machine_stack_exec() among the functions that pcre2_jit_match() calls. */
static int find_machine(struct elf_file *elf, const struct calls *match, struct pcre2_binary *b)
{
	struct runtime_functions functions;
	int r = runtime_functions_init(elf, &functions);

	for (u32 i = 0; r == 0 && i < match->n_callees; i++) {
		const struct runtime_range *callee =
			runtime_function_at(&functions, match->callees[i]);
		struct calls calls = {};

		/* The linkage table is one range; its stubs are not where it begins. */
		if (!callee || callee->start != match->callees[i] ||
		    callee->end - callee->start > MAX_FUNCTION_BYTES ||
		    runtime_sweep(elf, callee, note_call, &calls) < 0 || !calls.n_sites)
			continue;
		r = b->machine.end && b->machine.start != callee->start ? -E2BIG
									: add_sites(b, &calls);
		b->machine = *callee;
	}
	runtime_functions_deinit(&functions);
	return r;
}

static int find_callers(struct elf_file *elf, struct pcre2_binary *b)
{
	struct calls calls = {};
	int r;

	if (!find_match(elf, &b->match))
		return -ENOENT;
	r = runtime_sweep(elf, &b->match, note_call, &calls);
	if (r == 0)
		r = add_sites(b, &calls);
	/* Without calls it is the stub of a library that was built without the JIT. */
	if (r == 0 && calls.n_sites)
		r = find_machine(elf, &calls, b);
	return r < 0 ? r : 0;
}

/* The answer to PCRE2_CONFIG_VERSION: version and date, "10.42 2022-12-11". */
static void find_version(struct elf_file *elf, struct learned *l)
{
	static const char form[] = "00.00 0000-00-00";
	struct buf bytes;

	if (elf_file_section(elf, ".rodata", NULL, &bytes) < 0)
		return;
	while (buf_left(&bytes) >= sizeof(form)) {
		u32 i = 0;

		while (form[i] &&
		       (form[i] == '0' ? isdigit(bytes.pos[i]) != 0 : bytes.pos[i] == (u8)form[i]))
			i++;
		if (!form[i] && !bytes.pos[i]) {
			memcpy(l->version, bytes.pos, 5);
			return;
		}
		(void)buf_skip(&bytes, 1);
	}
}

static int learn(const struct procman_binary *b, struct runtime_binary *ret_bpf, void **ret_learned,
		 struct diag *reterr_diag)
{
	_cleanup_free_ struct learned *l = calloc(1, sizeof(*l));
	int r;

	if (!l)
		return -ENOMEM;
	find_version(b->elf, l);
	r = find_callers(b->elf, &l->bpf);
	if (r < 0)
		return diag_set(reterr_diag, r,
				"PCRE2 %s: the functions that call compiled patterns are not found",
				l->version);
	memcpy(ret_bpf->room, &l->bpf, sizeof(l->bpf));
	*ret_learned = take_ptr(l);
	return 0;
}

static int attach(const struct runtime_target *t, const void *learned, struct runtime_process *ret)
{
	/*
	 * Patterns are compiled at any time, so samples can be in memory that is not known yet. The
	 * walker needs no mapping to recognise their code.
	 */
	ret->reserved[0].start = 4096;
	ret->reserved[0].end = 1ULL << 47;
	return 0;
}

static int name(const struct runtime_target *t, const void *learned, u64 address, u64 where,
		struct runtime_names *ret)
{
	/* A compiled pattern does not contain its text. */
	ret->n = 1;
	ret->frames[0] = (struct runtime_frame){.function = "[regular expression]"};
	return 0;
}

static bool covers(const void *learned, const struct runtime_process *p, u64 avma)
{
	return true; /* its text is not marked */
}

static void describe(const void *learned, char *ret, size_t n)
{
	const struct learned *l = learned;

	snprintf(ret, n, "PCRE2 %s, %s", l->version,
		 l->bpf.n_sites ? "with the code of its JIT" : "built without its JIT");
}

const struct runtime_ops runtime_pcre2 = {
	.is_runtime = is_runtime,
	.learn = learn,
	.forget = free,
	.attach = attach,
	.name = name,
	.covers = covers,
	.describe = describe,
	.jit_memory = 1u << JIT_MEMORY_ANON,
	.native_text = true,
	.library = true,
};
