/* SPDX-License-Identifier: Apache-2.0 */
#include "disasm/disasm.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>

#include "disasm/arch.h"

struct disasm {
	struct disasm_x86 *x86; /* owned; NULL: the machine is arm64 */
};

int disasm_create(u16 e_machine, struct disasm **ret)
{
	struct disasm *d;
	int r = 0;

	if (e_machine != EM_X86_64 && e_machine != EM_AARCH64)
		return -ENOTSUP;
	d = calloc(1, sizeof(*d));
	if (!d)
		return -ENOMEM;
	if (e_machine == EM_X86_64)
		r = disasm_x86_create(&d->x86);
	if (r < 0) {
		free(d);
		return r;
	}
	*ret = d;
	return 0;
}

void disasm_destroy(struct disasm *d)
{
	if (!d)
		return;
	disasm_x86_destroy(d->x86);
	free(d);
}

bool disasm_one(struct disasm *d, struct buf code, u64 svma, struct disasm_insn *ret)
{
	struct disasm_insn i = {
		.target = ~0ULL, .jump_reg = DISASM_NO_REG, .add_reg = DISASM_NO_REG};

	if (!(d->x86 ? disasm_x86_one(d->x86, code, svma, &i) : disasm_arm64_one(code, svma, &i)))
		return false;
	*ret = i;
	return true;
}

u32 disasm_padding(const struct disasm *d, struct buf code)
{
	return d->x86 ? disasm_x86_padding(code) : 0;
}
