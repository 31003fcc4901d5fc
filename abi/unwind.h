/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * The unwind tables as BPF and the host walker read them.
 *
 * All tables are in an arena of 64-byte lines (one cache line each). A line number is chunk <<
 * LINES_PER_CHUNK_SHIFT | index. Line 0 is never allocated and means "none". Objects of several
 * lines are contiguous within one chunk.
 *
 *	process hash: tgid ─→ slice line, n ─→ struct unwind_mapping, sorted by start
 *	mapping.binary ─→ struct unwind_binary (one line)
 *	binary.dir ─→ struct unwind_page [n_pages]      page = 16 KiB of svma
 *	page.line ─→ [index lines] block lines          rows, sorted
 *	binary.rules ─→ struct unwind_rule []           4 a line
 *
 * A row is a u32: the offset in the page in the upper 16 bits, the rule's index in the lower 16. A
 * row holds from its offset to the next row's offset. The first row of a page is always at offset
 * 0. Rows are in blocks of 16 (one line; UNWIND_ROW_PAD pads the last block). A page of more than
 * one block has ceil(n_blocks / 32) index lines before the blocks: the u16 offsets of each block's
 * first row, padded with 0xffff. So a lookup touches one page record, one index line (more for the
 * densest pages), one block and one rule.
 *
 * Addresses: svma as in the ELF file, avma as in the process; svma = avma - mapping.bias.
 */
#pragma once

#include <linux/types.h>

#define UNWIND_LINE_BYTES 64
#define LINES_PER_CHUNK_SHIFT 16
#define LINES_PER_CHUNK (1u << LINES_PER_CHUNK_SHIFT) /* 4 MiB */
#define UNWIND_MAX_CHUNKS 1024

/* User space does not reuse a freed line for this time, because walks may still read the line. */
#define UNWIND_GRACE_NS 100000000ULL

#define UNWIND_PAGE_SHIFT 14
#define UNWIND_PAGE_BYTES (1u << UNWIND_PAGE_SHIFT)
#define UNWIND_ROWS_PER_BLOCK 16
#define UNWIND_BLOCKS_PER_INDEX 32
#define UNWIND_RULES_PER_LINE 4
#define UNWIND_MAX_RULES 65535
/* Greater than every (offset << 16 | 0xffff) that a search looks for. */
#define UNWIND_ROW_PAD 0xffffffffu

/* How the canonical frame address is found. */
enum unwind_cfa_op {
	UNWIND_CFA_NONE,	/* no unwind information: stop, STOP_NO_TABLE */
	UNWIND_CFA_STOP,	/* the thread's entry: stop, STOP_COMPLETE */
	UNWIND_CFA_UNSUPPORTED, /* stop, STOP_UNSUPPORTED */
	UNWIND_CFA_REG,		/* reg + cfa_off */
	UNWIND_CFA_DEREF,	/* *(reg + cfa_off) + cfa_add */
	UNWIND_CFA_PLT,		/* sp + cfa_off + ((pc & 15) >= cfa_add ? 8 : 0) */
	UNWIND_CFA_SIGNAL,	/* take all registers from the ucontext at sp + cfa_off */
	UNWIND_CFA_FP, /* frame-pointer chain: cfa = fp + 16, fp and ra saved at fp, fp + 8 */
	UNWIND_CFA_GO, /* Go's runtime is between two stacks: enum unwind_go is in cfa_reg */
};

/*
 * Where Go keeps the goroutine's registers while the goroutine's thread is on another stack; x86-64
 * only. g is a word of the runtime in thread-local storage; the pointer to g's m is at 48 in g.
 * g.sched, a gobuf, has sp at 56 and pc at 64 in g (runtime/runtime2.go, the same from 1.15 to
 * 1.27). Offsets that differ between releases are in other fields of the rule.
 */
enum unwind_go {
	/*
	 * In m.curg.sched. cfa_off: of g from the thread pointer; cfa_add: of curg in m; fp_off: of
	 * sched's frame pointer in g. UNWIND_RA_REG: pc, sp and fp are all in sched. UNWIND_RA_CFA:
	 * sched's sp is the sp of the frame itself, and the return address is at that sp.
	 */
	UNWIND_GO_CURG,
	/*
	 * As UNWIND_GO_CURG if the word at sp is m.curg. Otherwise the m has left the goroutine and
	 * the stack ends.
	 */
	UNWIND_GO_CURG_AT_SP,
	/*
	 * asmcgocall: the word at sp + cfa_add is g, or 0. The word at sp + cfa_off says how far
	 * the frame's own sp is below g's stack.hi (at 8 in g); if g is 0, the word is that sp. cfa
	 * is ra_off above the frame's sp; fp as in fp_op. On arm64 the return address is at the
	 * frame's sp.
	 */
	UNWIND_GO_DEPTH,
	/*
	 * gogo: sp is already the goroutine's. The goroutine's pc is at rbx + 8, or in rbx
	 * (UNWIND_RA_REG). The goroutine's fp is at rbx + fp_off, or already in the register
	 * (fp_off 0).
	 */
	UNWIND_GO_GOBUF,
	/*
	 * arm64: the frame pointer is the frame's own, on any stack. It points to the caller's and
	 * the return address; cfa is cfa_off above it.
	 */
	UNWIND_GO_FRAME,
};
#define UNWIND_GO_G_STACK_HI 8
#define UNWIND_GO_G_M 48
#define UNWIND_GO_G_SP 56
#define UNWIND_GO_G_PC 64

enum unwind_ra_op {
	UNWIND_RA_CFA, /* saved at cfa + ra_off */
	UNWIND_RA_REG, /* in register ra_off, leaf frames only (x86-64 vfork, arm64 lr) */
};

enum unwind_fp_op {
	UNWIND_FP_SAME, /* not changed */
	UNWIND_FP_CFA,	/* saved at cfa + fp_off */
	UNWIND_FP_REG,	/* saved at reg + fp_off, reg = the frame pointer (realigned stacks) */
};

/* DWARF numbers of the registers that every frame has. */
#if defined(__x86_64__) || defined(__TARGET_ARCH_x86)
#define UNWIND_REG_FP 6
#define UNWIND_REG_SP 7
#define UNWIND_REG_RA 16
#define UNWIND_N_REGS 16
#elif defined(__aarch64__) || defined(__TARGET_ARCH_arm64)
#define UNWIND_REG_FP 29
#define UNWIND_REG_SP 31
#define UNWIND_REG_RA 30
#define UNWIND_N_REGS 32
#else
#error "x86-64 and arm64 only"
#endif

/*
 * The tables track rbx only in files where rbx is the base of a caller's CFA: ld.so, whose lazy
 * binding trampoline realigns the stack and keeps the old stack pointer in rbx (glibc
 * dl-trampoline.h).
 */
#define UNWIND_BX_UNKNOWN 0
#define UNWIND_BX_SAME 1
#define UNWIND_REG_BX 3

struct unwind_rule {
	__u8 cfa_op;  /* enum unwind_cfa_op */
	__u8 cfa_reg; /* DWARF number; leaf frames only, except sp, fp and a tracked rbx */
	__u8 ra_op;   /* enum unwind_ra_op */
	__u8 fp_op;   /* enum unwind_fp_op */
	__s32 cfa_off;
	__s16 fp_off;
	__s16 ra_off;
	__s16 cfa_add;
	__s16 bx_off; /* x86-64: rbx is saved at cfa + bx_off; or UNWIND_BX_UNKNOWN, _SAME */
};
_Static_assert(sizeof(struct unwind_rule) * UNWIND_RULES_PER_LINE == UNWIND_LINE_BYTES, "rule");

struct unwind_page {
	__u32 line;   /* first index or block line; 0 = not loaded */
	__u16 n_rows; /* 1 to UNWIND_PAGE_BYTES */
	__u16 pad;
};
_Static_assert(sizeof(struct unwind_page) == 8, "page");

struct unwind_binary {
	__u64 first_page; /* svma >> UNWIND_PAGE_SHIFT of dir[0] */
	__u32 n_pages;	  /* 0: no unwind tables for this file */
	__u32 dir;	  /* line of struct unwind_page [n_pages] */
	__u32 rules;	  /* line of struct unwind_rule [n_rules]; a larger array replaces it */
	__u32 n_rules;
	__u32 file_id;
	__u32 pad[9];
};
_Static_assert(sizeof(struct unwind_binary) == UNWIND_LINE_BYTES, "binary");

enum unwind_mapping_flags {
	UNWIND_MAPPING_FP = 1, /* no table: code in anonymous memory, try the frame-pointer chain */
	UNWIND_MAPPING_UNKNOWN = 2,    /* BPF only: no mapping is known, but a runtime may own it */
	UNWIND_MAPPING_RUNTIME = 0xf0, /* enum runtime_id of the runtime whose walker runs first */
};
#define UNWIND_MAPPING_RUNTIME_SHIFT 4

struct unwind_mapping {
	__u64 start; /* avma */
	__u64 end;
	__u64 bias;   /* avma - svma */
	__u32 binary; /* line of struct unwind_binary, 0 = none */
	__u32 file;   /* file id << 8 | enum unwind_mapping_flags */
};
_Static_assert(sizeof(struct unwind_mapping) == 32, "mapping");
#define UNWIND_MAPPINGS_PER_LINE 2
#define UNWIND_MAX_MAPPINGS (LINES_PER_CHUNK * UNWIND_MAPPINGS_PER_LINE)
#define UNWIND_MAX_FILES (1u << 23)
