/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Executes arm64 for exec.c, decoded by the encoding classes of the Arm Architecture Reference
 * Manual (C4.1). Only instructions that compute addresses are modelled; the result of any other
 * instruction is unknown. Register 31 means the stack pointer or zero, depending on the
 * instruction.
 */
#include <string.h>

#include "disasm/exec_arch.h"

#define ZR 31

static s64 sign_extend(u32 value, u32 bits)
{
	return (s64)((u64)value << (64 - bits)) >> (64 - bits);
}

static struct exec_value read_reg(const struct exec *x, u32 r)
{
	return r == ZR ? exec_constant(0) : x->regs[r];
}

static void write_reg(struct exec *x, u32 r, struct exec_value v)
{
	if (r != ZR)
		x->regs[r] = v;
}

/* adr, adrp; add and sub of an immediate; moves of an immediate; shifts (bit-field moves) */
static bool exec_immediate(struct exec *x, u32 w, u64 svma)
{
	u32 rd = w & 31, rn = w >> 5 & 31;
	struct exec_value v, by;

	if ((w & 0x1f000000) == 0x10000000) {
		s64 off = sign_extend((w >> 5 & 0x7ffff) << 2 | (w >> 29 & 3), 21);

		v = w >> 31 ? exec_constant((svma & ~0xfffULL) + ((u64)off << 12))
			    : exec_constant(svma + (u64)off);
		write_reg(x, rd, v);
		return true;
	}
	if ((w & 0x1f800000) == 0x11000000) {
		u64 imm = (u64)(w >> 10 & 0xfff) << (w >> 22 & 1 ? 12 : 0);

		if (w >> 29 & 1) { /* sets flags: a comparison, or a result that is not tracked */
			write_reg(x, rd, (struct exec_value){});
			return true;
		}
		if (rd == ZR)
			return true; /* writes the stack pointer, which is not tracked */
		by = exec_constant(w >> 30 & 1 ? -imm : imm);
		v = rn == ZR ? (struct exec_value){} : read_reg(x, rn);
		write_reg(x, rd, exec_add(&v, &by));
		return true;
	}
	if ((w & 0x7f800000) == 0x52800000) { /* movz */
		write_reg(x, rd, exec_constant((u64)(w >> 5 & 0xffff) << (w >> 21 & 3) * 16));
		return true;
	}
	if ((w & 0xff800000) == 0x92800000) { /* movn, 64 bits */
		write_reg(x, rd, exec_constant(~((u64)(w >> 5 & 0xffff) << (w >> 21 & 3) * 16)));
		return true;
	}
	if ((w & 0x7f800000) == 0x53000000) { /* ubfm */
		u32 bits = w >> 31 ? 64 : 32, immr = w >> 16 & 63, imms = w >> 10 & 63;

		v = (struct exec_value){};
		/* A left shift of all bits or of the lower 32 (ubfiz). */
		if (imms < immr && (imms + 1 == immr || imms == 31) && bits - immr < 16)
			by = read_reg(x, rn), v = exec_scale(&by, 1LL << (bits - immr));
		else if (!immr && imms == 31)
			v = read_reg(x, rn); /* uxtw */
		write_reg(x, rd, v);
		return true;
	}
	return false;
}

/* add, sub and orr of registers, and multiplications */
static bool exec_registers(struct exec *x, u32 w)
{
	u32 rd = w & 31, rn = w >> 5 & 31, rm = w >> 16 & 31;
	struct exec_value a, b, v = {};

	if ((w & 0x7fe0ffe0) == 0x2a0003e0) { /* mov */
		write_reg(x, rd, read_reg(x, rm));
		return true;
	}
	if ((w & 0x1f200000) == 0x0b000000 || (w & 0x1fe00000) == 0x0b200000) {
		bool extended = w >> 21 & 1;
		u32 shift = extended ? w >> 10 & 7 : w >> 10 & 63, kind = w >> 22 & 3;

		a = extended && rn == ZR ? (struct exec_value){} : read_reg(x, rn);
		b = read_reg(x, rm);
		if (!(w >> 29 & 1) && shift < 16 && (extended || !kind)) {
			b = exec_scale(&b, (w >> 30 & 1 ? -1 : 1) * (1LL << shift));
			v = exec_add(&a, &b);
		}
		write_reg(x, rd, v);
		return true;
	}
	if ((w & 0x7fe08000) == 0x1b000000 || (w & 0xffe08000) == 0x9ba00000) { /* madd, umaddl */
		struct exec_value c = read_reg(x, w >> 10 & 31);

		a = read_reg(x, rn);
		b = read_reg(x, rm);
		if (b.known && !b.n)
			v = exec_scale(&a, (s64)b.constant);
		else if (a.known && !a.n)
			v = exec_scale(&b, (s64)a.constant);
		write_reg(x, rd, exec_add(&v, &c));
		return true;
	}
	return false;
}

static void load_value(struct exec *x, const struct exec_program *p, u32 rt, struct exec_value at,
		       u32 size)
{
	write_reg(x, rt,
		  size >= 2 ? exec_load(x, p, &at, (u8)(1u << size)) : (struct exec_value){});
}

/* Loads and stores of general registers. Those of other registers change no general register. */
static bool exec_memory(struct exec *x, const struct exec_program *p, u32 w)
{
	u32 rt = w & 31, rn = w >> 5 & 31, size = w >> 30;
	struct exec_value base = rn == ZR ? (struct exec_value){} : read_reg(x, rn), off, at;

	if ((w & 0x0a000000) != 0x08000000)
		return false;
	if ((w & 0x3b000000) == 0x18000000) { /* literal */
		write_reg(x, rt, (struct exec_value){});
	} else if ((w & 0x3a000000) == 0x28000000) { /* pairs */
		u32 bytes = w >> 31 ? 8 : 4, mode = w >> 23 & 3;

		off = exec_constant((u64)(sign_extend(w >> 15 & 0x7f, 7) * bytes));
		at = mode == 1 ? base : exec_add(&base, &off);
		if (!(w >> 26 & 1) && w >> 22 & 1) {
			load_value(x, p, rt, at, bytes == 8 ? 3 : 2);
			off = exec_constant(bytes);
			at = exec_add(&at, &off);
			load_value(x, p, w >> 10 & 31, at, bytes == 8 ? 3 : 2);
		}
		if (mode != 2 && rn != ZR)
			x->regs[rn].known = false;
	} else if ((w & 0x3b000000) == 0x39000000) { /* unsigned offset */
		off = exec_constant((u64)(w >> 10 & 0xfff) << size);
		if ((w >> 22 & 3) == 1)
			load_value(x, p, rt, exec_add(&base, &off), size);
		else if (w >> 22 & 3)
			write_reg(x, rt, (struct exec_value){});
	} else if ((w & 0x3b200c00) == 0x38200800) { /* register offset */
		off = read_reg(x, w >> 16 & 31);
		off = exec_scale(&off, w >> 12 & 1 ? 1 << size : 1);
		if ((w >> 22 & 3) == 1)
			load_value(x, p, rt, exec_add(&base, &off), size);
		else if (w >> 22 & 3)
			write_reg(x, rt, (struct exec_value){});
	} else if ((w & 0x3b200c00) == 0x38000000) { /* unscaled */
		off = exec_constant((u64)sign_extend(w >> 12 & 0x1ff, 9));
		if ((w >> 22 & 3) == 1)
			load_value(x, p, rt, exec_add(&base, &off), size);
		else if (w >> 22 & 3)
			write_reg(x, rt, (struct exec_value){});
	} else { /* with write-back, atomic … */
		write_reg(x, rt, (struct exec_value){});
		write_reg(x, rn, (struct exec_value){});
		write_reg(x, w >> 16 & 31, (struct exec_value){});
	}
	return true;
}

static bool exec_control(u32 w, u64 svma, struct exec_insn *i)
{
	i->target = ~0ULL;
	if ((w & 0x7c000000) == 0x14000000) { /* b, bl */
		i->flow = w >> 31 ? EXEC_CALL : EXEC_JUMP;
		i->target = svma + (u64)(sign_extend(w & 0x3ffffff, 26) * 4);
	} else if ((w & 0xff000010) == 0x54000000 || (w & 0x7e000000) == 0x34000000) {
		i->flow = EXEC_BRANCH;
		i->target = svma + (u64)(sign_extend(w >> 5 & 0x7ffff, 19) * 4);
	} else if ((w & 0x7e000000) == 0x36000000) { /* tbz, tbnz */
		i->flow = EXEC_BRANCH;
		i->target = svma + (u64)(sign_extend(w >> 5 & 0x3fff, 14) * 4);
	} else if ((w & 0xfffff800) == 0xd61f0000) {
		i->flow = EXEC_JUMP;
	} else if ((w & 0xfffff800) == 0xd63f0000) {
		i->flow = EXEC_CALL;
	} else if ((w & 0xfffff800) == 0xd65f0000) { /* ret, retaa, retab */
		i->flow = EXEC_RETURN;
	} else if ((w & 0xff000000) == 0xd4000000 || !(w >> 16)) { /* brk, udf */
		i->flow = EXEC_END;
	} else {
		return false;
	}
	return true;
}

bool exec_arm64_one(const struct exec_program *p, struct exec *x, struct buf code, u64 svma,
		    struct exec_insn *ret)
{
	u32 w;

	if (!buf_u32(&code, &w))
		return false;
	ret->length = 4;
	if (exec_control(w, svma, ret))
		return true;
	ret->flow = EXEC_NEXT;
	if ((w & 0xffffffe0) == 0xd53bd040) /* mrs of tpidr_el0 */
		write_reg(x, w & 31, exec_symbol(x, EXEC_THREAD, 0, NULL));
	else if ((w & 0xfffff01f) == 0xd503201f || (w & 0xffc00000) == 0xd5000000)
		; /* hints, barriers, writes of system registers */
	else if (!exec_immediate(x, w, svma) && !exec_registers(x, w) && !exec_memory(x, p, w))
		write_reg(x, w & 31, (struct exec_value){});
	return true;
}
