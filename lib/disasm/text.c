/* SPDX-License-Identifier: Apache-2.0 */
/* Prints instructions for people, by Capstone for both machines. */
#include <capstone/capstone.h>
#include <elf.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "disasm/disasm.h"

struct disasm_text {
	csh handle;
	cs_insn *insn; /* owned */
	bool arm64;
};

int disasm_text_create(u16 e_machine, struct disasm_text **ret)
{
	bool arm64 = e_machine == EM_AARCH64;
	struct disasm_text *t;

	if (e_machine != EM_X86_64 && !arm64)
		return -ENOTSUP;
	t = calloc(1, sizeof(*t));
	if (!t)
		return -ENOMEM;
	t->arm64 = arm64;
	if (cs_open(arm64 ? CS_ARCH_ARM64 : CS_ARCH_X86, arm64 ? CS_MODE_ARM : CS_MODE_64,
		    &t->handle) != CS_ERR_OK) {
		free(t);
		return -ENOMEM;
	}
	t->insn = cs_malloc(t->handle);
	if (!t->insn) {
		disasm_text_destroy(t);
		return -ENOMEM;
	}
	*ret = t;
	return 0;
}

void disasm_text_destroy(struct disasm_text *t)
{
	if (!t)
		return;
	if (t->insn)
		cs_free(t->insn, 1);
	cs_close(&t->handle);
	free(t);
}

u32 disasm_text_one(struct disasm_text *t, struct buf code, u64 svma, char *text, size_t n)
{
	const u8 *at = code.pos;
	size_t left = buf_left(&code);
	uint64_t address = svma;
	u32 word;

	if (!left)
		return 0;
	if (cs_disasm_iter(t->handle, &at, &left, &address, t->insn)) {
		snprintf(text, n, "%s%s%s", t->insn->mnemonic, *t->insn->op_str ? " " : "",
			 t->insn->op_str);
		return t->insn->size;
	}
	if (t->arm64 && buf_u32(&code, &word)) {
		snprintf(text, n, ".word 0x%08x", word);
		return 4;
	}
	snprintf(text, n, ".byte 0x%02x", *code.pos);
	return 1;
}
