/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Call frame information: turns the bytes of .eh_frame or .debug_frame into the rules of
 * abi/unwind.h. Only the rules of the CFA, the frame pointer, the return address and, on request,
 * rbx are read.
 *
 *	cfi_table_init()	opens a section
 *	cfi_next()		walks its entries
 *	cfi_fde_at()		one function's range and program
 *	cfi_run()		runs the program: (pc, rule) for each range of equal rules
 *
 * Addresses whose rules abi/unwind.h cannot express get UNWIND_CFA_UNSUPPORTED, never a guess. The
 * machine is that of the file, not of this build. Nothing is allocated; all bytes are borrowed.
 */
#pragma once

#include "abi/unwind.h"
#include "base/buf.h"
#include "base/types.h"
#include "elf/elf.h"

#define CFI_CIE_CACHE 32
#define CFI_MAX_REMEMBERED 32

/* DWARF's numbers of the registers that rules can name, for one machine. */
struct cfi_machine {
	u8 fp;
	u8 sp;
	u8 ra;
	u8 bx;			/* see UNWIND_REG_BX; 0xff: the machine has none */
	u8 n_regs;		/* registers that a CFA may be based on: 0 … n_regs - 1 */
	bool link_register;	/* a call leaves the return address in `ra`, not on the stack */
	s32 signal_to_ucontext; /* from sp in a signal trampoline to its struct ucontext */
};
/* Static data. NULL: the machine is neither EM_X86_64 nor EM_AARCH64. */
const struct cfi_machine *cfi_machine_of(u16 e_machine);

/* The state of the interpreter between two instructions. */
struct cfi_state {
	struct unwind_rule rule; /* ra_op and fp_op may hold values private to cfi.c */
};

struct cfi_cie {
	u64 offset; /* offset in the section; ~0 = empty slot */
	u64 code_align;
	s64 data_align;
	u8 fde_encoding;
	bool has_augmentation; /* 'z': FDEs have augmentation data */
	bool signal_frame;     /* 'S' */
	bool damaged;
	struct cfi_state initial; /* the state after the CIE's own program */
};

struct cfi_table {
	struct buf bytes;  /* borrowed */
	u64 svma;	   /* svma of the first byte, for pc-relative pointers */
	bool eh;	   /* .eh_frame, else .debug_frame */
	bool follow_bx;	   /* fill bx_off; costs rows */
	bool stop_at_zero; /* the size of the section is unknown: a zero length ends it */
	const struct cfi_machine *machine;
	struct elf_file *elf; /* borrowed; is told of damage. NULL: nobody is */
	struct cfi_cie cies[CFI_CIE_CACHE];
};

struct cfi_fde {
	u64 start; /* svma */
	u64 end;
	const struct cfi_cie *cie; /* borrowed until the next call with this table */
	struct buf program;
	u64 program_svma;
};

/* Borrows `bytes`, a section at `svma`, as long as *t is used. -ENOTSUP: the machine is unknown. */
int cfi_table_init(struct cfi_table *t, struct buf bytes, u64 svma, bool eh, u16 e_machine);
/*
 * Finds the first FDE at or after *offset, and moves *offset past it. False: there are no more
 * FDEs, or a length is damaged.
 */
bool cfi_next(const struct cfi_table *t, u64 *offset, u64 *ret_fde);
/*
 * Parses the FDE at an offset of the section. -EINVAL: the entry is damaged, or no FDE. -ENOTSUP:
 * the pointer encoding or augmentation is unknown.
 */
int cfi_fde_at(struct cfi_table *t, u64 offset, struct cfi_fde *ret);

/* Receives a rule that holds from pc (svma) on. pcs rise, and adjacent rules differ. */
typedef void cfi_emit_fn(void *arg, u64 pc, const struct unwind_rule *rule);

/*
 * Emits the rules of [lo, hi), which must be in the FDE's range; the first rule is at lo. From the
 * first damaged instruction on the rule is UNSUPPORTED. Each byte of the program that runs takes 1
 * from *budget; once the budget is used up, the rule is UNSUPPORTED, too.
 */
void cfi_run(const struct cfi_table *t, const struct cfi_fde *fde, u64 lo, u64 hi, u64 *budget,
	     cfi_emit_fn *emit, void *arg);

/*
 * Reads a pointer encoded as DW_EH_PE_…. `at` is the svma of its first byte; `base` is what datarel
 * pointers are relative to.
 */
bool cfi_pointer(struct buf *b, u8 encoding, u64 at, u64 base, u64 *ret_value);
