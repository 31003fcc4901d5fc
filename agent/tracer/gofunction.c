/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where functions of Go are probed. Go moves the stack of a goroutine when it grows, and a return
 * address that the kernel has replaced would lead to nowhere then: returns are probed at each RET
 * instruction instead.
 *
 * A function begins with a check whether the stack suffices. If it does not, or if the scheduler
 * wants the thread, the function calls runtime.morestack and begins again:
 *
 *	f:    cmp rsp, [r14 + 16]
 *	      jbe more
 *	      push rbp              ← probed: as at f, but once in each call
 *	      …
 *	more: call runtime.morestack
 *	      jmp f
 */
#include <errno.h>
#include <stdlib.h>

#include "agent/tracer/internal.h"
#include "base/cleanup.h"
#include "disasm/disasm.h"

#define MAX_BYTES (1u << 20)
#define MAX_RETURNS 256
#define CHECK_INSNS 12 /* the check is at the beginning */

struct code {
	u8 *bytes;		/* owned */
	struct disasm *decoder; /* owned */
	struct buf left;
	u64 at, begin, end;
};

static void code_deinit(struct code *c)
{
	free(c->bytes);
	disasm_destroy(c->decoder);
}

static int code_init(struct code *c, const struct tracer_file *f, const struct tracer_function *fn,
		     struct diag *d)
{
	ssize_t n;
	int r;

	*c = (struct code){.at = fn->svma, .begin = fn->svma, .end = fn->svma + fn->size};
	if (!fn->size || fn->size > MAX_BYTES)
		return diag_set(d, -ENOTSUP, "%s has %llu bytes: its code cannot be read", fn->name,
				fn->size);
	c->bytes = malloc(fn->size);
	r = c->bytes ? disasm_create(f->elf->machine, &c->decoder) : -ENOMEM;
	if (r < 0)
		return r;
	n = elf_file_copy(f->elf, fn->svma, fn->size, c->bytes);
	if (n != (ssize_t)fn->size)
		return diag_set(d, -ENOTSUP, "the code of %s is not in the file", fn->name);
	c->left = buf_of(c->bytes, fn->size);
	return 0;
}

/* The next instruction, which is at *ret_at. -ENODATA: there is none; -EINVAL. */
static int next_insn(struct code *c, struct disasm_insn *ret, u64 *ret_at)
{
	if (c->at >= c->end)
		return -ENODATA;
	if (!disasm_one(c->decoder, c->left, c->at, ret) || !ret->length)
		return -EINVAL;
	*ret_at = c->at;
	c->at += ret->length;
	(void)buf_skip(&c->left, ret->length);
	return 0;
}

static bool is_inside(const struct code *c, u64 svma)
{
	return svma >= c->begin && svma < c->end;
}

int tracer_go_returns(const struct tracer_file *f, const struct tracer_function *fn,
		      tracer_addresses *ret, struct diag *reterr_diag)
{
	struct disasm_insn insn;
	struct code c;
	u64 at;
	int r = code_init(&c, f, fn, reterr_diag);

	while (r == 0) {
		r = next_insn(&c, &insn, &at);
		if (r < 0)
			break;
		if ((insn.flow == DISASM_JUMP || insn.flow == DISASM_BRANCH) &&
		    !is_inside(&c, insn.target))
			r = diag_set(
				reterr_diag, -ENOTSUP,
				"%s ends by a jump to another function: when it returns is not "
				"known",
				fn->name);
		else if (insn.flow == DISASM_RETURN && ret->n >= MAX_RETURNS)
			r = diag_set(reterr_diag, -ENOTSUP, "%s returns in more than %u places",
				     fn->name, MAX_RETURNS);
		else if (insn.flow == DISASM_RETURN)
			r = vec_push(ret, at);
	}
	code_deinit(&c);
	if (r == -EINVAL)
		return diag_set(reterr_diag, -ENOTSUP,
				"%s has instructions that culprit does not know", fn->name);
	if (r == -ENODATA && !ret->n)
		return diag_set(reterr_diag, -ENOTSUP, "%s never returns", fn->name);
	return r == -ENODATA ? 0 : r;
}

/* Whether the code has a jump back to its beginning, behind a call: a check of the stack. */
static bool begins_again(struct code *c)
{
	struct disasm_insn insn;
	u64 at;

	while (next_insn(c, &insn, &at) == 0)
		if (insn.flow == DISASM_JUMP && insn.target == c->begin)
			return true;
	return false;
}

u64 tracer_go_entry(const struct tracer_file *f, const struct tracer_function *fn)
{
	u64 at, found = fn->svma, more = 0;
	struct disasm_insn insn;
	struct code c;

	if (code_init(&c, f, fn, NULL) == 0) {
		for (u32 i = 0; i < CHECK_INSNS && next_insn(&c, &insn, &at) == 0 && !insn.n &&
				(insn.flow == DISASM_NEXT || insn.flow == DISASM_BRANCH);
		     i++) {
			if (insn.flow != DISASM_BRANCH)
				continue;
			if (!is_inside(&c, insn.target) || (more && more != insn.target))
				break;
			more = insn.target;
			found = c.at;
		}
		if (!more || !begins_again(&c))
			found = fn->svma;
	}
	code_deinit(&c);
	return found;
}
