/* SPDX-License-Identifier: Apache-2.0 */
/* The assembler. Encodings: Documentation/bpf/standardization/instruction-set.rst of Linux. */
#include "trace/asm.h"

#include <limits.h>
#include <stdlib.h>

void asm_deinit(struct asm_code *c)
{
	vec_deinit(&c->insns);
	vec_deinit(&c->labels);
	vec_deinit(&c->jumps);
}

static void emit(struct asm_code *c, u8 code, u8 dst, u8 src, s16 off, s32 imm)
{
	struct bpf_insn insn = {.code = code, .off = off, .imm = imm};

	insn.dst_reg = dst & 15;
	insn.src_reg = src & 15;
	if (c->error)
		return;
	c->error = c->insns.n >= ASM_MAX_INSNS ? -E2BIG : vec_push(&c->insns, insn);
}

void asm_mov(struct asm_code *c, u8 dst, u8 src)
{
	if (dst != src)
		emit(c, BPF_ALU64 | BPF_MOV | BPF_X, dst, src, 0, 0);
}

void asm_mov_imm(struct asm_code *c, u8 dst, s64 value)
{
	if (value >= INT_MIN && value <= INT_MAX) {
		emit(c, BPF_ALU64 | BPF_MOV | BPF_K, dst, 0, 0, (s32)value);
		return;
	}
	emit(c, BPF_LD | BPF_DW | BPF_IMM, dst, 0, 0, (s32)(u32)value);
	emit(c, 0, 0, 0, 0, (s32)(u32)((u64)value >> 32));
}

void asm_alu(struct asm_code *c, u8 op, u8 dst, u8 src)
{
	emit(c, BPF_ALU64 | op | BPF_X, dst, src, 0, 0);
}

void asm_alu_imm(struct asm_code *c, u8 op, u8 dst, s32 value)
{
	emit(c, BPF_ALU64 | op | BPF_K, dst, 0, 0, value);
}

void asm_neg(struct asm_code *c, u8 dst)
{
	emit(c, BPF_ALU64 | BPF_NEG, dst, 0, 0, 0);
}

void asm_swap(struct asm_code *c, u8 dst, u32 bits)
{
	emit(c, BPF_ALU | BPF_END | BPF_TO_BE, dst, 0, 0, (s32)bits);
}

void asm_load(struct asm_code *c, u8 size, u8 dst, u8 src, s16 off)
{
	emit(c, BPF_LDX | BPF_MEM | size, dst, src, off, 0);
}

void asm_store(struct asm_code *c, u8 size, u8 dst, s16 off, u8 src)
{
	emit(c, BPF_STX | BPF_MEM | size, dst, src, off, 0);
}

void asm_store_imm(struct asm_code *c, u8 size, u8 dst, s16 off, s32 value)
{
	emit(c, BPF_ST | BPF_MEM | size, dst, 0, off, value);
}

void asm_add_memory(struct asm_code *c, u8 dst, s16 off, u8 src)
{
	emit(c, BPF_STX | BPF_ATOMIC | BPF_DW, dst, src, off, BPF_ADD);
}

void asm_map(struct asm_code *c, u8 dst, u32 map)
{
	emit(c, BPF_LD | BPF_DW | BPF_IMM, dst, BPF_PSEUDO_MAP_FD, 0, (s32)map);
	emit(c, 0, 0, 0, 0, 0);
}

void asm_function(struct asm_code *c, u8 dst, u32 function)
{
	emit(c, BPF_LD | BPF_DW | BPF_IMM, dst, BPF_PSEUDO_FUNC, 0, (s32)function);
	emit(c, 0, 0, 0, 0, 0);
}

bool asm_is_function(const struct bpf_insn *insn)
{
	return insn->code == (BPF_LD | BPF_DW | BPF_IMM) && insn->src_reg == BPF_PSEUDO_FUNC;
}

void asm_call(struct asm_code *c, enum asm_helper helper)
{
	emit(c, BPF_JMP | BPF_CALL, 0, 0, 0, (s32)helper);
}

void asm_exit(struct asm_code *c)
{
	emit(c, BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
}

u32 asm_label(struct asm_code *c)
{
	if (!c->error)
		c->error = vec_push(&c->labels, -1);
	return (u32)c->labels.n - 1;
}

void asm_place(struct asm_code *c, u32 label)
{
	if (!c->error)
		c->labels.data[label] = (s32)c->insns.n;
}

static void note_jump(struct asm_code *c, u32 label)
{
	struct asm_jump j = {.insn = (u32)c->insns.n, .label = label};

	if (!c->error)
		c->error = vec_push(&c->jumps, j);
}

void asm_jump(struct asm_code *c, u32 label)
{
	note_jump(c, label);
	emit(c, BPF_JMP | BPF_JA, 0, 0, 0, 0);
}

void asm_jump_if(struct asm_code *c, u8 op, u8 dst, u8 src, u32 label)
{
	note_jump(c, label);
	emit(c, BPF_JMP | op | BPF_X, dst, src, 0, 0);
}

void asm_jump_if_imm(struct asm_code *c, u8 op, u8 dst, s32 value, u32 label)
{
	note_jump(c, label);
	emit(c, BPF_JMP | op | BPF_K, dst, 0, 0, value);
}

void asm_append(struct asm_code *c, const struct asm_code *more)
{
	size_t first_insn = c->insns.n, first_label = c->labels.n;

	if (more->error && !c->error)
		c->error = more->error;
	for (size_t i = 0; !c->error && i < more->labels.n; i++)
		c->error = vec_push(&c->labels, more->labels.data[i] < 0
							? -1
							: more->labels.data[i] + (s32)first_insn);
	for (size_t i = 0; !c->error && i < more->jumps.n; i++) {
		struct asm_jump j = more->jumps.data[i];

		j.insn += (u32)first_insn;
		j.label += (u32)first_label;
		c->error = vec_push(&c->jumps, j);
	}
	for (size_t i = 0; !c->error && i < more->insns.n; i++)
		c->error = c->insns.n >= ASM_MAX_INSNS ? -E2BIG
						       : vec_push(&c->insns, more->insns.data[i]);
}

static bool is_wide(const struct bpf_insn *insn)
{
	return insn->code == (BPF_LD | BPF_DW | BPF_IMM);
}

static bool is_jump(u8 code)
{
	return (code & 7) == BPF_JMP && (code & 0xf0) != BPF_CALL && (code & 0xf0) != BPF_EXIT;
}

/* Sets reached[i] for the instructions that can run. Targets of jumps are in `off` already. */
static int reach(const struct asm_code *c, bool *reached)
{
	vec(u32) open = {};
	int r = vec_push(&open, 0);

	while (r == 0 && open.n) {
		u32 i = open.data[--open.n];

		while (r == 0 && i < c->insns.n && !reached[i]) {
			const struct bpf_insn *insn = &c->insns.data[i];
			u8 op = insn->code & 0xf0;

			reached[i] = true;
			if (asm_is_function(insn))
				r = vec_push(&open, (u32)((s32)i + 1 + insn->imm));
			if (is_wide(insn) && i + 1 < c->insns.n)
				reached[++i] = true;
			if (is_jump(insn->code))
				r = vec_push(&open, (u32)((s32)i + 1 + insn->off));
			if ((insn->code & 7) == BPF_JMP && (op == BPF_EXIT || op == BPF_JA))
				break;
			i++;
		}
	}
	vec_deinit(&open);
	return r;
}

/* The verifier refuses programs with instructions that cannot run, as after exit(). */
static int drop_unreached(struct asm_code *c)
{
	size_t n = c->insns.n, kept = 0;
	bool *reached = calloc(n + 1, sizeof(*reached));
	u32 *moved = calloc(n + 1, sizeof(*moved));
	int r = reached && moved ? reach(c, reached) : -ENOMEM;

	for (size_t i = 0; r == 0 && i < n; i++) {
		moved[i] = (u32)kept;
		kept += reached[i];
	}
	for (size_t i = 0; r == 0 && i < n; i++) {
		struct bpf_insn insn = c->insns.data[i];

		if (!reached[i])
			continue;
		if (is_jump(insn.code))
			insn.off = (s16)((s32)moved[(s32)i + 1 + insn.off] - (s32)moved[i] - 1);
		if (asm_is_function(&insn))
			insn.imm = (s32)moved[(s32)i + 1 + insn.imm] - (s32)moved[i] - 1;
		c->insns.data[moved[i]] = insn;
	}
	if (r == 0)
		c->insns.n = kept;
	free(reached);
	free(moved);
	return r;
}

int asm_finish(struct asm_code *c)
{
	if (c->error)
		return c->error;
	vec_foreach (&c->jumps, j) {
		s64 distance = (s64)c->labels.data[j->label] - j->insn - 1;

		if (distance < SHRT_MIN || distance > SHRT_MAX)
			return c->error = -E2BIG;
		c->insns.data[j->insn].off = (s16)distance;
	}
	return c->error = drop_unreached(c);
}

u8 asm_size(u32 bytes)
{
	return bytes == 1 ? BPF_B : bytes == 2 ? BPF_H : bytes == 4 ? BPF_W : BPF_DW;
}

void asm_extend(struct asm_code *c, u8 dst, u32 bytes, bool is_signed)
{
	s32 shift = 64 - 8 * (s32)bytes;

	if (!shift || bytes > 8 || !bytes)
		return;
	asm_alu_imm(c, BPF_LSH, dst, shift);
	asm_alu_imm(c, is_signed ? BPF_ARSH : BPF_RSH, dst, shift);
}
