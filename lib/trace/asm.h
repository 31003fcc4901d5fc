/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An assembler of BPF instructions: labels are numbers, jumps go to labels, and asm_finish() puts
 * distances in their place. A failed append (out of memory, too many instructions) sets `error`,
 * so that a caller may append many times and check once at the end.
 */
#pragma once

#include <linux/bpf.h>

#include "base/types.h"
#include "base/vec.h"
#include "trace/program.h"

/* Registers. R6 is the context and R7 the scratch; R8 and R9 are free inside of an emitter. */
enum asm_reg { R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10 };

#define ASM_MAX_INSNS 60000

/* libbpf's bpf_helpers.h, whose names need BPF's own include path, has the same numbers. */
enum asm_helper {
	HELPER_MAP_LOOKUP = 1,
	HELPER_MAP_UPDATE = 2,
	HELPER_MAP_DELETE = 3,
	HELPER_PROBE_READ = 4,
	HELPER_KTIME = 5,
	HELPER_RANDOM = 7,
	HELPER_CPU = 8,
	HELPER_TAIL_CALL = 12,
	HELPER_PID_TGID = 14,
	HELPER_UID_GID = 15,
	HELPER_COMM = 16,
	HELPER_TASK = 35,
	HELPER_NUMA_NODE = 42,
	HELPER_PROBE_READ_STR = 45,
	HELPER_OVERRIDE_RETURN = 58,
	HELPER_CGROUP = 80,
	HELPER_SEND_SIGNAL = 109,
	HELPER_PROBE_READ_USER = 112,
	HELPER_PROBE_READ_USER_STR = 114,
	HELPER_SEND_SIGNAL_THREAD = 117,
	HELPER_JIFFIES = 118,
	HELPER_KTIME_BOOT = 125,
	HELPER_RING_OUTPUT = 130,
	HELPER_PATH = 147,
	HELPER_FOR_EACH = 164,
	HELPER_FUNC_IP = 173,
	HELPER_LOOP = 181,
	HELPER_LOOKUP_PERCPU = 195,
	HELPER_KTIME_TAI = 208,
};

struct asm_jump {
	u32 insn, label;
};

struct asm_code {
	vec(struct bpf_insn) insns;
	vec(s32) labels; /* the instruction that it stands before; -1: not placed */
	vec(struct asm_jump) jumps;
	int error; /* 0 or a negative errno: -E2BIG: too many instructions */
};

void asm_deinit(struct asm_code *c);

/* Sizes: BPF_B, BPF_H, BPF_W, BPF_DW. Operations: BPF_ADD …; all are of 64 bits. */
void asm_mov(struct asm_code *c, u8 dst, u8 src);
void asm_mov_imm(struct asm_code *c, u8 dst, s64 value); /* of any size */
void asm_alu(struct asm_code *c, u8 op, u8 dst, u8 src);
void asm_alu_imm(struct asm_code *c, u8 op, u8 dst, s32 value);
void asm_neg(struct asm_code *c, u8 dst);
void asm_swap(struct asm_code *c, u8 dst, u32 bits); /* byte order: 16, 32, 64 */
void asm_load(struct asm_code *c, u8 size, u8 dst, u8 src, s16 off);
void asm_store(struct asm_code *c, u8 size, u8 dst, s16 off, u8 src);
void asm_store_imm(struct asm_code *c, u8 size, u8 dst, s16 off, s32 value);
void asm_add_memory(struct asm_code *c, u8 dst, s16 off, u8 src); /* *(u64 *)(dst + off) += src */
/* Loads a map: an enum trace_fixed_map, or TRACE_MAPS_OWN + n. */
void asm_map(struct asm_code *c, u8 dst, u32 map);
/* Loads the address of a function; imm becomes its distance, as for a call. */
void asm_function(struct asm_code *c, u8 dst, u32 function);
bool asm_is_function(const struct bpf_insn *insn);
void asm_call(struct asm_code *c, enum asm_helper helper);
void asm_exit(struct asm_code *c);

u32 asm_label(struct asm_code *c);
void asm_place(struct asm_code *c, u32 label);
void asm_jump(struct asm_code *c, u32 label);
/* Operations: BPF_JEQ, BPF_JSGT … of 64 bits. */
void asm_jump_if(struct asm_code *c, u8 op, u8 dst, u8 src, u32 label);
void asm_jump_if_imm(struct asm_code *c, u8 op, u8 dst, s32 value, u32 label);

/* Appends `more`, whose jumps stay inside of it. */
void asm_append(struct asm_code *c, const struct asm_code *more);
/*
 * Resolves the jumps, and drops instructions that cannot run. 0, the earlier error, or -E2BIG: a
 * jump is too long.
 */
int asm_finish(struct asm_code *c);

/* The BPF size of 1, 2, 4 or 8 bytes. */
u8 asm_size(u32 bytes);
/* Extends the value of `bytes` in dst to 64 bits. */
void asm_extend(struct asm_code *c, u8 dst, u32 bytes, bool is_signed);
