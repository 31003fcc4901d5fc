/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decodes arm64 by the encoding classes of the Arm Architecture Reference Manual (C4.1): direct
 * branches, register branches; of other instructions only whether and how they write sp, x29 and
 * x30.
 */
#include <stdint.h>
#include <string.h>

#include "disasm/arch.h"

#define R_FP 29
#define R_LR 30
#define R_SP 31 /* register 31 in a base or destination field that means sp */

static s64 sign_extend(u32 value, u32 bits)
{
	return (s64)((u64)value << (64 - bits)) >> (64 - bits);
}

static bool is_special_reg(u32 r, enum disasm_reg *ret)
{
	if (r != R_FP && r != R_LR)
		return false;
	*ret = r == R_FP ? DISASM_FP : DISASM_LR;
	return true;
}

/* An untracked value is written to register r, which may be x29 or x30 (31 is xzr). */
static void clobber_reg(struct disasm_insn *i, u32 r)
{
	enum disasm_reg reg;

	if (is_special_reg(r, &reg))
		disasm_add(i, DISASM_UNKNOWN, reg, DISASM_SP, 0);
}

/* Loads or stores one register at base + off. */
static void add_transfer(struct disasm_insn *i, bool load, u32 r, u32 base, s64 off)
{
	enum disasm_reg reg;

	if (!is_special_reg(r, &reg))
		return;
	if (base == R_SP || base == R_FP)
		disasm_add(i, load ? DISASM_LOAD : DISASM_STORE, reg,
			   base == R_SP ? DISASM_SP : DISASM_FP, off);
	else if (load)
		disasm_add(i, DISASM_UNKNOWN, reg, DISASM_SP, 0);
}

static void write_back(struct disasm_insn *i, u32 base, s64 by)
{
	enum disasm_reg reg = DISASM_SP;

	if (base == R_SP || is_special_reg(base, &reg))
		disasm_add(i, base == R_LR ? DISASM_UNKNOWN : DISASM_SET, reg, reg, by);
}

/* bits 24:23 of pairs, 11:10 of single registers */
enum mode { MODE_POST = 1, MODE_OFFSET = 2, MODE_PRE = 3 };

static void decode_pair(struct disasm_insn *i, u32 w)
{
	bool load = w >> 22 & 1, simd = w >> 26 & 1, x = w >> 31;
	u32 mode = w >> 23 & 3, base = w >> 5 & 31, r1 = w & 31, r2 = w >> 10 & 31;
	u32 scale = simd ? 2 + (w >> 30) : 2 + (w >> 31);
	s64 off = sign_extend(w >> 15 & 0x7f, 7) * (1 << scale), at = mode == MODE_OFFSET ? off : 0;
	/* The pair loads x29 and its base is x29: both loads use the old value. */
	bool over = load && base == R_FP && (r1 == R_FP || r2 == R_FP);

	if (mode == MODE_PRE)
		write_back(i, base, off);
	if (!simd && x && !over) {
		add_transfer(i, load, r1, base, at);
		add_transfer(i, load, r2, base, at + 8);
	} else if (!simd && load) {
		clobber_reg(i, r1);
		clobber_reg(i, r2);
	}
	if (mode == MODE_POST)
		write_back(i, base, off);
}

static void decode_single(struct disasm_insn *i, u32 w)
{
	u32 size = w >> 30, opc = w >> 22 & 3, base = w >> 5 & 31, r = w & 31, mode = w >> 10 & 3;
	bool simd = w >> 26 & 1, scaled = w >> 24 & 1, load = opc != 0,
	     plain = size == 3 && opc < 2;
	s64 off = sign_extend(w >> 12 & 0x1ff, 9), at = 0;

	if (scaled) {
		mode = 0;
		at = (s64)(w >> 10 & 0xfff) << 3;
	} else if (w >> 21 & 1) {
		/* Register offsets and atomics: compilers do not use them for saved registers. */
		if (!simd)
			clobber_reg(i, r);
		return;
	} else if (mode == 0 || mode == 2) {
		mode = 0;
		at = off;
	}
	if (mode == MODE_PRE)
		write_back(i, base, off);
	if (!simd && plain)
		add_transfer(i, load, r, base, at);
	else if (!simd && load && !(size == 3 && opc == 2)) /* not a prefetch */
		clobber_reg(i, r);
	if (mode == MODE_POST)
		write_back(i, base, off);
}

static void load_store(struct disasm_insn *i, u32 w)
{
	if ((w & 0x3a000000) == 0x28000000)
		decode_pair(i, w);
	else if ((w & 0x3a000000) == 0x38000000)
		decode_single(i, w);
	else if ((w & 0x3b000000) == 0x18000000 && !(w >> 26 & 1))
		clobber_reg(i, w & 31); /* load of a literal */
	else if ((w & 0x3f000000) == 0x08000000) {
		clobber_reg(i, w & 31); /* exclusive, ordered, compare and swap */
		clobber_reg(i, w >> 10 & 31);
		clobber_reg(i, w >> 16 & 31);
	}
}

static void add_immediate(struct disasm_insn *i, u32 w)
{
	u32 to = w & 31, from = w >> 5 & 31;
	s64 off = (s64)(w >> 10 & 0xfff) << (w >> 22 & 1 ? 12 : 0);
	bool flags = w >> 29 & 1;
	enum disasm_reg reg = DISASM_SP;

	if ((to == R_SP && flags) || (to != R_SP && !is_special_reg(to, &reg)))
		return;
	if (w >> 30 & 1)
		off = -off;
	if (w >> 31 && !flags && reg != DISASM_LR && (from == R_SP || from == R_FP))
		disasm_add(i, DISASM_SET, reg, from == R_SP ? DISASM_SP : DISASM_FP, off);
	else
		disasm_add(i, DISASM_UNKNOWN, reg, DISASM_SP, 0);
}

static void decode_data(struct disasm_insn *i, u32 w)
{
	bool immediate = (w >> 26 & 7) == 4;

	if ((w & 0x1f800000) == 0x11000000) {
		add_immediate(i, w);
		return;
	}
	/* and, orr, eor (immediate), add and sub (extended register) may write sp. */
	if ((w & 31) == R_SP && (((w & 0x1f800000) == 0x12000000 && (w >> 29 & 3) != 3) ||
				 ((w & 0x3fe00000) == 0x0b200000))) {
		disasm_add(i, DISASM_UNKNOWN, DISASM_SP, DISASM_SP, 0);
		return;
	}
	if (!immediate && (w & 0x1f000000) == 0x0b000000)
		i->add_reg = w & 31;
	if (!immediate && (w & 0x3fe00000) == 0x3a400000)
		return; /* conditional compare: the low bits are flags */
	clobber_reg(i, w & 31);
}

static void decode_branch(struct disasm_insn *i, u32 w, u64 svma)
{
	if ((w & 0x7c000000) == 0x14000000) {
		i->flow = w >> 31 ? DISASM_CALL : DISASM_JUMP;
		i->target = svma + (u64)(sign_extend(w & 0x3ffffff, 26) * 4);
	} else if ((w & 0xff000000) == 0x54000000 || (w & 0x7e000000) == 0x34000000) {
		i->flow = DISASM_BRANCH;
		i->target = svma + (u64)(sign_extend(w >> 5 & 0x7ffff, 19) * 4);
	} else if ((w & 0x7e000000) == 0x36000000) {
		i->flow = DISASM_BRANCH;
		i->target = svma + (u64)(sign_extend(w >> 5 & 0x3fff, 14) * 4);
	} else if ((w & 0xfe000000) == 0xd6000000) {
		u32 opc = w >> 21 & 0xf;

		i->flow = (opc & 7) == 0   ? DISASM_INDIRECT
			  : (opc & 7) == 1 ? DISASM_CALL
			  : (opc & 7) == 2 ? DISASM_RETURN
					   : DISASM_TRAP;
		if (i->flow == DISASM_INDIRECT)
			i->jump_reg = w >> 5 & 31;
	} else if ((w & 0xffe0001f) == 0xd4200000) {
		i->flow = DISASM_TRAP; /* brk */
		i->padding = true;
	} else if ((w & 0xfffff01f) == 0xd503201f) {
		i->padding = w == 0xd503201f;
		/* bti c, j and jc; paciasp and pacibsp stand for bti c */
		i->endbr = (w & 0xffffff3f) == 0xd503241f || w == 0xd503233f || w == 0xd503237f;
	} else if ((w & 0xfff00000) == 0xd5300000) {
		clobber_reg(i, w & 31); /* mrs */
	}
}

bool disasm_arm64_one(struct buf code, u64 svma, struct disasm_insn *ret)
{
	u32 w;

	if ((svma & 3) || !buf_u32(&code, &w))
		return false;
	ret->length = 4;
	switch (w >> 25 & 0xf) {
	case 0x8:
	case 0x9:
	case 0x5:
	case 0xd:
		decode_data(ret, w);
		return true;
	case 0xa:
	case 0xb:
		decode_branch(ret, w, svma);
		return true;
	case 0x4:
	case 0x6:
	case 0xc:
	case 0xe:
		load_store(ret, w);
		return true;
	case 0x7:
	case 0xf:
		/* Scalar floating point that writes a general register: fmov and conversions. */
		if ((w & 0x7f20fc00) == 0x1e200000 && ((w >> 16 & 7) < 2 || (w >> 16 & 7) > 3) &&
		    (w >> 16 & 7) != 7)
			clobber_reg(ret, w & 31);
		if ((w & 0xbfe0ec00) == 0x0e002c00) /* smov, umov */
			clobber_reg(ret, w & 31);
		return true;
	case 0x2:
		return true; /* SVE */
	default:
		/* udf fills the space between functions; the rest is not allocated. */
		ret->flow = DISASM_TRAP;
		ret->padding = w == 0;
		return true;
	}
}
