/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What interrupted x86-64 code still does before it leaves its frame. Included by
 * bpf/unwind/hotspot.h.
 *
 * The end of a method, of a stub and of an interpreted frame is straight-line code that pops
 * registers and returns. The walker runs this code ahead, on a copy of the registers, up to the
 * return. This gives the caller's frame, however much the code had already popped at the sample.
 * The walker does not follow branches: the stack is the same on both paths. An unknown instruction
 * ends the run. That is the usual case: the code was not at its end.
 */
#pragma once

#define HOTSPOT_MAX_AHEAD 32
/*
 * The most bytes that a barrier keeps on the stack, and the most bytes of code between the
 * barrier's call and the instruction that removes them.
 */
#define HOTSPOT_MAX_KEPT 4096
#define HOTSPOT_BEHIND_CALL 96

enum hotspot_step {
	HOTSPOT_AHEAD,	 /* run the next instruction */
	HOTSPOT_RETURNS, /* h->to: the return address; h->r: the registers after the return */
	HOTSPOT_JUMPS,	 /* to unknown code */
	HOTSPOT_UNKNOWN,
};

/* h->polls: the last instruction. */
enum hotspot_last {
	HOTSPOT_POLLED = 1, /* stored the pc of a poll */
	HOTSPOT_CHECKS = 2, /* compared the stack pointer with its limit */
	HOTSPOT_LEFT = 3,   /* pop rbp, leave */
};

/* h->stored: bits. After a store to the stack, the memory no longer has what the code would pop. */
#define HOTSPOT_STORED 1
#define HOTSPOT_LOADED 2

/* DWARF numbers of registers. */
#define HOTSPOT_RAX 0
#define HOTSPOT_RDX 1
#define HOTSPOT_RDI 5
#define HOTSPOT_FP 6
#define HOTSPOT_SP 7
#define HOTSPOT_R13 13
#define HOTSPOT_R15 15

static __always_inline __u8 hotspot_byte(const struct hotspot_scratch *h, __u32 i)
{
	return h->code[walk_bound(i, HOTSPOT_CODE_BYTES - 1)];
}

static __always_inline __s32 hotspot_s32(const struct hotspot_scratch *h, __u32 i)
{
	return (__s32)(hotspot_byte(h, i) | (__u32)hotspot_byte(h, i + 1) << 8 |
		       (__u32)hotspot_byte(h, i + 2) << 16 | (__u32)hotspot_byte(h, i + 3) << 24);
}

/* The DWARF number of a register from its number in an instruction. */
static __always_inline __u32 hotspot_register(__u32 number)
{
	return number >= 8 ? number & 15 : 0x54673120U >> (4 * number) & 7;
}

static __always_inline __u64 *hotspot_value(struct hotspot_scratch *h, __u32 reg)
{
	return &h->r[walk_bound(reg, 15)];
}

/* Pops the word on top of the stack. */
static __always_inline bool hotspot_pop(struct hotspot_scratch *h, __u64 *ret)
{
	if ((h->stored & HOTSPOT_STORED) ||
	    bpf_probe_read_user(ret, 8, (const void *)h->r[HOTSPOT_SP]) < 0)
		return false;
	h->r[HOTSPOT_SP] += 8;
	return true;
}

/* Decodes the operands of an instruction, from the ModRM byte on. */
static __always_inline void hotspot_operands(struct hotspot_scratch *h, __u32 rex, __u32 i)
{
	__u32 modrm = hotspot_byte(h, i), mod = modrm >> 6, rm = modrm & 7;

	h->group = modrm >> 3 & 7;
	h->reg = hotspot_register(h->group | (rex & 4) << 1);
	h->is_memory = mod != 3;
	h->base = hotspot_register(rm | (rex & 1) << 3);
	h->length = 1;
	h->displacement = 0;
	if (mod == 3)
		return;
	if (rm == 4) {
		__u32 sib = hotspot_byte(h, i + 1);

		h->length = 2;
		h->base = (sib & 0x38) == 0x20 && !(rex & 2)
				  ? hotspot_register((sib & 7) | (rex & 1) << 3)
				  : 16;
	}
	if (mod == 1) {
		h->displacement = (__s8)hotspot_byte(h, i + h->length);
		h->length += 1;
	} else if (mod == 2) {
		h->displacement = hotspot_s32(h, i + h->length);
		h->length += 4;
	} else if (rm == 5) {
		h->base = 16; /* rip */
		h->length += 4;
	}
}

static __always_inline bool hotspot_on_stack(const struct hotspot_scratch *h)
{
	return h->base == HOTSPOT_SP || h->base == HOTSPOT_FP;
}

/* Marks the value of a register as unknown; an unknown sp or fp ends the run. */
static __always_inline enum hotspot_step hotspot_spoil(struct hotspot_scratch *h, __u32 reg)
{
	if (reg == HOTSPOT_SP || reg == HOTSPOT_FP)
		return HOTSPOT_UNKNOWN;
	*hotspot_value(h, reg) = 0;
	h->popped &= ~(1U << (reg & 31));
	return HOTSPOT_AHEAD;
}

/* mov reg, reg or memory; lea. */
static __always_inline enum hotspot_step hotspot_load(struct hotspot_scratch *h, bool is_lea)
{
	__u64 value;

	if (!h->is_memory) {
		*hotspot_value(h, h->reg) = *hotspot_value(h, h->base);
		return HOTSPOT_AHEAD;
	}
	if (!hotspot_on_stack(h) && h->base != HOTSPOT_R15)
		return hotspot_spoil(h, h->reg);
	value = *hotspot_value(h, h->base) + (__u64)(__s64)h->displacement;
	if (!is_lea && h->base != HOTSPOT_R15)
		h->stored |= HOTSPOT_LOADED;
	if (!is_lea && ((h->stored & HOTSPOT_STORED) ||
			bpf_probe_read_user(&value, 8, (const void *)value) < 0))
		return HOTSPOT_UNKNOWN;
	*hotspot_value(h, h->reg) = value;
	return HOTSPOT_AHEAD;
}

/* add, sub, cmp … with an immediate. */
static __always_inline enum hotspot_step hotspot_arithmetic(struct hotspot_scratch *h, __u32 rex,
							    __s32 number)
{
	if (h->group == 7) /* cmp */
		return HOTSPOT_AHEAD;
	if (h->is_memory)
		return hotspot_on_stack(h) ? HOTSPOT_UNKNOWN : HOTSPOT_AHEAD;
	if (h->base != HOTSPOT_SP)
		return hotspot_spoil(h, h->base);
	if (!(rex & 8) || (h->group != 0 && h->group != 5))
		return HOTSPOT_UNKNOWN;
	h->r[HOTSPOT_SP] += (__u64)(__s64)(h->group == 0 ? number : -number);
	return HOTSPOT_AHEAD;
}

/* Runs an instruction with operands; h->at becomes the next instruction. */
static __always_inline enum hotspot_step hotspot_with_operands(struct hotspot_scratch *h, __u32 rex,
							       __u32 op, __u32 i)
{
	hotspot_operands(h, rex, i);
	i += h->length;
	h->at = i;
	switch (op) {
	case 0x3b: /* cmp, test */
		/* cmp rsp, [r15 + x]; jb: at the end of methods that may use the reserved zone */
		h->polls = h->base == HOTSPOT_R15 && h->reg == HOTSPOT_SP ? HOTSPOT_CHECKS : 0;
		return HOTSPOT_AHEAD;
	case 0x38:
	case 0x39:
	case 0x3a:
	case 0x84:
	case 0x85:
		return HOTSPOT_AHEAD;
	case 0xc1: /* shl … by an immediate */
		h->at = i + 1;
		return h->is_memory ? HOTSPOT_UNKNOWN : hotspot_spoil(h, h->base);
	case 0x01: /* add, xor */
	case 0x31:
		return h->is_memory ? HOTSPOT_UNKNOWN : hotspot_spoil(h, h->base);
	case 0x03:
	case 0x33:
		return hotspot_spoil(h, h->reg);
	case 0x80:
	case 0x83:
		h->at = i + 1;
		return hotspot_arithmetic(h, rex, (__s8)hotspot_byte(h, i));
	case 0x81:
		h->at = i + 4;
		return hotspot_arithmetic(h, rex, hotspot_s32(h, i));
	case 0xf6: /* test with an immediate */
	case 0xf7:
		h->at = i + (op == 0xf6 ? 1 : 4);
		return h->group < 2 ? HOTSPOT_AHEAD : HOTSPOT_UNKNOWN;
	case 0xc6: /* mov memory, immediate */
	case 0xc7:
		h->at = i + (op == 0xc6 ? 1 : 4);
		h->stored |= hotspot_on_stack(h) ? HOTSPOT_STORED : 0;
		return h->is_memory ? HOTSPOT_AHEAD : hotspot_spoil(h, h->base);
	case 0x88:
	case 0x89:
		if (h->is_memory) {
			h->stored |= hotspot_on_stack(h) ? HOTSPOT_STORED : 0;
			/* mov [r15 + x], r10: stores the pc of a poll at a return */
			h->polls = h->base == HOTSPOT_R15 && h->reg == 10 ? HOTSPOT_POLLED : 0;
			return HOTSPOT_AHEAD;
		}
		if (!(rex & 8) || op == 0x88)
			return hotspot_spoil(h, h->base);
		*hotspot_value(h, h->base) = *hotspot_value(h, h->reg);
		return HOTSPOT_AHEAD;
	case 0x8b:
	case 0x8d:
		return rex & 8 ? hotspot_load(h, op == 0x8d) : hotspot_spoil(h, h->reg);
	case 0xff: /* jmp */
		if (h->group != 4)
			return HOTSPOT_UNKNOWN;
		h->to = h->is_memory ? 0 : *hotspot_value(h, h->base);
		return !h->is_memory && h->popped & 1U << (h->base & 31) ? HOTSPOT_RETURNS
									 : HOTSPOT_JUMPS;
	}
	return HOTSPOT_UNKNOWN;
}

/* The value that h->polls would have if the walker had run the instruction before i. */
static __always_inline __u32 hotspot_last(const struct hotspot_scratch *h, __u32 i)
{
	__u32 far = (__u32)hotspot_s32(h, i - 7) & 0xffffff;
	__u32 near = (__u32)hotspot_s32(h, i - 4) & 0xffffff;

	if (far == 0x97894d || near == 0x57894d) /* mov [r15 + x], r10 */
		return HOTSPOT_POLLED;
	if (hotspot_byte(h, i - 1) == 0x5d || hotspot_byte(h, i - 1) == 0xc9)
		return HOTSPOT_LEFT;
	return far == 0xa73b49 || near == 0x673b49 ? HOTSPOT_CHECKS : 0;
}

/* Runs one instruction, at h->at. */
__noinline int hotspot_ahead(void)
{
	struct hotspot_scratch *h = hotspot_get();
	__u32 i, op, rex = 0, next, polls;

	if (!h || h->at >= HOTSPOT_CODE_BYTES - 12)
		return HOTSPOT_UNKNOWN;
	i = h->at;
	polls = h->polls;
	h->polls = 0;
	/*
	 * At the first instruction: `polls` as the instruction before the sampled pc has left it.
	 */
	if (i == HOTSPOT_BEFORE)
		polls = hotspot_last(h, i);
	op = hotspot_byte(h, i++);
	if ((op & 0xf0) == 0x40) {
		rex = op;
		op = hotspot_byte(h, i++);
	}
	next = hotspot_byte(h, i);
	h->at = i;
	h->left = polls == HOTSPOT_LEFT;
	if ((op & 0xf8) == 0x58) { /* pop */
		__u32 reg = hotspot_register((op & 7) | (rex & 1) << 3);

		h->popped |= 1U << (reg & 31);
		h->polls = reg == HOTSPOT_FP ? HOTSPOT_LEFT : 0;
		return reg != HOTSPOT_SP && hotspot_pop(h, hotspot_value(h, reg)) ? HOTSPOT_AHEAD
										  : HOTSPOT_UNKNOWN;
	}
	if ((op & 0xf0) == 0x70) { /* jcc */
		h->at = i + 1;
		return HOTSPOT_AHEAD;
	}
	if ((op & 0xf8) == 0xb8) { /* mov reg, immediate */
		h->at = i + (rex & 8 ? 8 : 4);
		return hotspot_spoil(h, hotspot_register((op & 7) | (rex & 1) << 3));
	}
	switch (op) {
	case 0x90:
		return HOTSPOT_AHEAD;
	case 0x9d: /* popf */
		h->r[HOTSPOT_SP] += 8;
		return HOTSPOT_AHEAD;
	case 0xc9: /* leave */
		h->r[HOTSPOT_SP] = h->r[HOTSPOT_FP];
		h->polls = HOTSPOT_LEFT;
		return hotspot_pop(h, &h->r[HOTSPOT_FP]) ? HOTSPOT_AHEAD : HOTSPOT_UNKNOWN;
	case 0xe9: /* after the frame: to a poll's slow path, or to the throw */
		if (polls != HOTSPOT_POLLED && polls != HOTSPOT_LEFT)
			return HOTSPOT_UNKNOWN;
		return hotspot_pop(h, &h->to) ? HOTSPOT_RETURNS : HOTSPOT_UNKNOWN;
	case 0xe8:
	case 0xeb:
		return HOTSPOT_UNKNOWN;
	case 0xc3:
		return hotspot_pop(h, &h->to) ? HOTSPOT_RETURNS : HOTSPOT_UNKNOWN;
	case 0xc5: /* vzeroupper, vldmxcsr */
		if (next != 0xf8)
			return HOTSPOT_UNKNOWN;
		h->at = i + 2;
		if (hotspot_byte(h, i + 1) == 0x77)
			return HOTSPOT_AHEAD;
		hotspot_operands(h, rex, i + 2);
		h->at += h->length;
		return hotspot_byte(h, i + 1) == 0xae ? HOTSPOT_AHEAD : HOTSPOT_UNKNOWN;
	case 0x0f:
		if (next == 0x82 && polls == HOTSPOT_CHECKS && h->start)
			return hotspot_pop(h, &h->to) ? HOTSPOT_RETURNS : HOTSPOT_UNKNOWN;
		if ((next & 0xf0) == 0x80) { /* jcc */
			h->at = i + 5;
			return HOTSPOT_AHEAD;
		}
		if (next != 0xae && next != 0x1f && (next & 0xfe) != 0xb6 && (next & 0xfe) != 0xbe)
			return HOTSPOT_UNKNOWN;
		hotspot_operands(h, rex, i + 1);
		h->at = i + 1 + h->length;
		/* movzx, movsx; fxrstor, nop */
		return (next & 0xf0) == 0xb0 ? hotspot_spoil(h, h->reg) : HOTSPOT_AHEAD;
	}
	return hotspot_with_operands(h, rex, op, i);
}

/* Runs ahead from pc: enum hotspot_step, never HOTSPOT_AHEAD. */
__noinline int hotspot_run_ahead(void)
{
	struct hotspot_scratch *h = hotspot_get();
	struct scratch *s = scratch_get();
	int step = HOTSPOT_AHEAD;
	__u32 last;

	if (!s || !h)
		return HOTSPOT_UNKNOWN;
	__builtin_memcpy(h->r, s->walk.regs.r, sizeof(h->r));
	h->r[HOTSPOT_SP] = s->walk.regs.sp;
	h->r[HOTSPOT_FP] = s->walk.regs.fp;
	h->at = HOTSPOT_BEFORE;
	h->popped = h->stored = h->polls = 0;
	h->to = 0;
	/* The code has just popped the target of the next instruction, a jump. */
	last = hotspot_byte(h, HOTSPOT_BEFORE - 1);
	if ((last & 0xf8) == 0x58 && hotspot_byte(h, HOTSPOT_BEFORE) == 0xff &&
	    hotspot_byte(h, HOTSPOT_BEFORE + 1) == (0xe0 | (last & 7)))
		h->popped = 1U << hotspot_register(last & 7);
	for (int n = 0; step == HOTSPOT_AHEAD && n < HOTSPOT_MAX_AHEAD; n++)
		step = hotspot_ahead();
	return step == HOTSPOT_AHEAD ? HOTSPOT_UNKNOWN : step;
}

/*
 * A garbage collector's barrier, after a method's own code, keeps registers below the method's
 * frame:
 *
 *	sub rsp, n; mov [rsp], …; call; mov …, [rsp]; add rsp, n; jmp
 *
 * Returns the number of bytes on the stack, or 0. Running ahead has stopped at the jmp or at the
 * call.
 */
__noinline int hotspot_kept_below(void)
{
	struct hotspot_scratch *h = hotspot_get();
	struct scratch *s = scratch_get();
	__u32 at, word;
	__u64 n;

	if (!s || !h)
		return 0;
	word = hotspot_byte(h, h->at - 1);
	if ((word & 0xfd) == 0xe9) { /* jmp */
		n = h->r[HOTSPOT_SP] - s->walk.regs.sp;
		return n < HOTSPOT_MAX_KEPT ? (int)n : 0;
	}
	/* Not if the code makes room first, as for a call that needs the stack aligned. */
	if (word != 0xe8 || h->r[HOTSPOT_SP] != s->walk.regs.sp)
		return 0;
	at = h->at + 4;
	for (__u32 i = 0; i < HOTSPOT_BEHIND_CALL; i++, at++) {
		word = (__u32)hotspot_s32(h, at) & 0xffffff;
		if (word == 0xec8348 || word == 0xec8148) /* sub rsp: another barrier */
			return 0;
		if (word == 0xc48348 && (hotspot_byte(h, at + 4) & 0xfd) == 0xe9)
			return hotspot_byte(h, at + 3) & 127;
		if (word == 0xc48148 && (hotspot_byte(h, at + 7) & 0xfd) == 0xe9) {
			n = (__u32)hotspot_s32(h, at + 3);
			return n < HOTSPOT_MAX_KEPT ? (int)n : 0;
		}
	}
	return 0;
}

/* Finds how much of its frame an interrupted method has built: h->stands, h->saves_fp. */
__noinline int hotspot_in_prologue(void)
{
	struct hotspot_scratch *h = hotspot_get();
	__u32 frame;
	__u8 last;

	if (!h)
		return 0;
	last = h->code[HOTSPOT_BEFORE - 1];
	frame = h->frame_bytes;
	for (__u32 i = 0; i < HOTSPOT_BEFORE - 3; i++) {
		__u32 end, imm;

		if (i < h->first || hotspot_byte(h, i) != 0x48 || hotspot_byte(h, i + 2) != 0xec)
			continue;
		if (hotspot_byte(h, i + 1) == 0x83) { /* sub rsp, imm8 */
			end = i + 4;
			imm = hotspot_byte(h, i + 3);
		} else if (hotspot_byte(h, i + 1) == 0x81) { /* imm32 */
			end = i + 7;
			imm = (__u32)hotspot_s32(h, i + 3) & 0xffffff;
		} else {
			continue;
		}
		if (end > HOTSPOT_BEFORE || (imm != frame - 16 && imm != frame - 8))
			continue;
		h->stands = frame - 8;
		/* Without a push: mov [rsp + x], rbp follows. */
		h->saves_fp = imm == frame - 16 || end < HOTSPOT_BEFORE;
		return 0;
	}
	/* push rbp, and perhaps mov rbp, rsp */
	h->saves_fp = last == 0x55 || (last == 0xec && hotspot_byte(h, HOTSPOT_BEFORE - 4) == 0x55);
	h->stands = h->saves_fp ? 8 : 0;
	return 0;
}

/* Where in an adapter to the interpreter pc is (hotspot_stub.h draws the code). */
enum hotspot_adapter_state {
	HOTSPOT_ELSEWHERE, /* unknown */
	HOTSPOT_BEGINS,
	HOTSPOT_MENDS, /* from mov r13, rsp to mov rsp, r13 */
	HOTSPOT_POPPED,
	HOTSPOT_MAKES_ROOM,
};

/* The part of an adapter that begins with the mov r13, rsp, or the equivalent lea, at i. */
static __always_inline enum hotspot_adapter_state hotspot_begun(const struct hotspot_scratch *h,
								__u32 i)
{
	__u32 next = (__u32)hotspot_s32(h, i + 3) & 0xffffff;

	/* lea r13, [rsp + 8]; pop rax; sub rsp */
	if (hotspot_s32(h, i) == 0x246c8d4c && hotspot_byte(h, i + 5) == 0x58 &&
	    hotspot_byte(h, i + 8) == 0xec)
		return HOTSPOT_MAKES_ROOM;
	if (((__u32)hotspot_s32(h, i) & 0xffffff) != 0xec8b4c)
		return HOTSPOT_ELSEWHERE;
	if (next == 0xec8348 || next == 0xec8148) /* sub rsp */
		return HOTSPOT_MAKES_ROOM;
	/* and rsp, -16, perhaps after mov rax, [rsp] */
	if (hotspot_byte(h, i - 1) != 0x58 &&
	    (next == 0xe48348 || (next == 0x048b48 && hotspot_byte(h, i + 9) == 0xe4)))
		return HOTSPOT_MENDS;
	return HOTSPOT_ELSEWHERE;
}

__noinline int hotspot_find_adapter(void)
{
	struct hotspot_scratch *h = hotspot_get();

	if (!h)
		return HOTSPOT_ELSEWHERE;
	if (hotspot_byte(h, HOTSPOT_BEFORE - 1) == 0x58 &&
	    hotspot_begun(h, HOTSPOT_BEFORE) == HOTSPOT_MAKES_ROOM)
		return HOTSPOT_POPPED;
	for (__u32 i = HOTSPOT_BEFORE - 3; i > 0; i--) {
		enum hotspot_adapter_state begun = hotspot_begun(h, i);

		if (i > h->first && begun != HOTSPOT_ELSEWHERE)
			return begun;
	}
	for (__u32 i = HOTSPOT_BEFORE; i < HOTSPOT_CODE_BYTES - 10; i++) {
		if (((__u32)hotspot_s32(h, i) & 0xffffff) == 0xe58b49) /* mov rsp, r13 */
			return HOTSPOT_MENDS;
		if (hotspot_begun(h, i) != HOTSPOT_ELSEWHERE)
			return HOTSPOT_BEGINS;
	}
	return HOTSPOT_ELSEWHERE;
}

/*
 * The last spill within 256 bytes of a method's code: 1: the code puts all registers on the stack;
 * -1: the code takes the registers off.
 */
__noinline int hotspot_last_spill(__u64 code)
{
	struct hotspot_scratch *h = hotspot_get();

	if (!h || bpf_probe_read_user(h->code, HOTSPOT_CODE_BYTES, (const void *)code) < 0)
		return 0;
	h->spill = 0;
	for (__u32 i = 0; i <= HOTSPOT_CODE_BYTES - 8; i++) {
		__u64 word = *(const __u64 *)&h->code[i];

		if (code + i < h->start)
			continue;
		if (word == 0xec8148d824648948) /* mov [rsp - 40], rsp; sub rsp */
			h->spill = 1;
		else if ((word & 0xffffffffffffff) == 0x80c48148) /* add rsp, 128 */
			h->spill = -1;
	}
	return h->spill;
}

/*
 * Whether all registers of a method are on the stack: for a leaf, pc is between the two
 * instructions; for a caller, the code after the call restores the registers.
 */
static __always_inline bool hotspot_has_spilled(const struct walk_regs *g)
{
	__u64 code;
	int last = 0;

	if (!g->exact)
		/* add rsp, 8; jmp; or movsd [rsp], xmm0; fld [rsp] */
		return bpf_probe_read_user(&code, 8, (const void *)g->pc) == 0 &&
		       (code == 0x5e908c48348 || (code & ~0xffffULL) == 0x2404dd2404110000);
	for (__u32 i = 1; !last && i <= 4; i++)
		last = hotspot_last_spill(g->pc - i * (HOTSPOT_CODE_BYTES - 8) - 8);
	return last == 1;
}

/*
 * C1 of JDK 8 calls the VM for sines, logarithms and powers in the middle of a method, and puts all
 * registers on the stack for the call. The frame's size does not include these registers:
 *
 *	mov [rsp - 40], rsp; sub rsp, 128; …; sub rsp, 256; …; call; …
 *	add rsp, 256; …; add rsp, 128
 *
 * The stored stack pointer is a word that gives its own position. Returns where the stack ended
 * before, from which the frame's size counts; 0: no registers are on the stack.
 */
__noinline __u64 hotspot_before_spill(void)
{
	struct hotspot_scratch *h = hotspot_get();
	struct scratch *s = scratch_get();
	__u64 at, found = 0;

	if (!s || !h || (!s->walk.regs.exact && !hotspot_has_spilled(&s->walk.regs)))
		return 0;
	/*
	 * The general registers; then vectors; then the vectors' upper halves; each with two
	 * arguments.
	 */
	for (__u32 i = 0; i < 3; i++) {
		at = s->walk.regs.sp + 128 + i * 256;
		if (bpf_probe_read_user(h->frame, 40, (const void *)(at - 40)) < 0)
			break;
		for (__u32 k = 0; k < (i ? 5 : 1); k++)
			if (h->frame[k] == at + k * 8)
				found = at + k * 8;
	}
	return found && (!s->walk.regs.exact || hotspot_has_spilled(&s->walk.regs)) ? found : 0;
}
