/* SPDX-License-Identifier: Apache-2.0 */
/* Private to lib/disasm: shared by exec.c and the decoders of the two machines. */
#pragma once

#include "disasm/exec.h"

enum exec_flow { EXEC_NEXT, EXEC_BRANCH, EXEC_JUMP, EXEC_CALL, EXEC_RETURN, EXEC_END };

struct exec_insn {
	u8 length;
	u8 flow;    /* enum exec_flow */
	u64 target; /* of BRANCH and JUMP; ~0: unknown */
};

struct exec_machine {
	u8 first_arg, result; /* register numbers */
	u32 clobbered;	      /* registers that a call may overwrite, one bit each */
	void *decoder;
};

int exec_x86_create(struct exec_machine **ret);
void exec_x86_destroy(struct exec_machine *m);
/* Applies the instruction at the start of `code` to *x. False: there is no instruction. */
bool exec_x86_one(const struct exec_machine *m, const struct exec_program *p, struct exec *x,
		  struct buf code, u64 svma, struct exec_insn *ret);

bool exec_arm64_one(const struct exec_program *p, struct exec *x, struct buf code, u64 svma,
		    struct exec_insn *ret);

/* Values: a constant, a symbol, a product, a sum, the content of an address. */
struct exec_value exec_constant(u64 k);
struct exec_value exec_symbol(struct exec *x, enum exec_symbol_kind kind, u8 size,
			      const struct exec_value *at);
struct exec_value exec_scale(const struct exec_value *a, s64 factor);
struct exec_value exec_add(const struct exec_value *a, const struct exec_value *b);
struct exec_value exec_load(struct exec *x, const struct exec_program *p,
			    const struct exec_value *at, u8 size);
