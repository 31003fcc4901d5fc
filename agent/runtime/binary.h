/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What several runtimes read from their binaries: symbols, functions, instructions, and code for
 * symbolic execution (disasm/exec.h). Any thread may call these functions.
 */
#pragma once

#include "abi/runtime_common.h"
#include "base/vec.h"
#include "disasm/disasm.h"
#include "dwarf/cfi.h"
#include "elf/elf.h"

/* What follows the last slash of a path. */
const char *runtime_file_name(const char *path);

/*
 * The svma and size in bytes of a defined symbol; ret_size may be NULL. From the dynamic symbols; a
 * static program has only those of .symtab, if it was not stripped.
 */
bool runtime_symbol(struct elf_file *elf, const char *name, u64 *ret_svma, u64 *ret_size);
/* The range of a symbol that has a size. */
bool runtime_symbol_range(struct elf_file *elf, const char *name, struct runtime_range *ret);

/* Code of a binary that is executed symbolically. exec_program.arg points to it. */
struct runtime_code {
	struct elf_file *elf; /* borrowed */
	u8 word[16];
};
/* exec_program.code: code of the file. */
bool runtime_code_at(void *arg, u64 svma, size_t n, struct buf *ret);
/* exec_program.constant: the value that the linker will write to an address, as to a GOT entry. */
bool runtime_constant_at(void *arg, u64 svma, u64 *ret);

/*
 * Passes each instruction of a range to fn, in order; of one that is not understood, only the
 * length. True from fn: stop. A negative errno: there is no code, or the machine is unknown.
 */
typedef bool runtime_insn_fn(void *arg, u64 svma, const u8 *bytes, const struct disasm_insn *insn);
int runtime_sweep(struct elf_file *elf, const struct runtime_range *range, runtime_insn_fn *fn,
		  void *arg);

/*
 * Passes each range of .eh_frame to fn, which returns true to stop. A negative errno: the section
 * cannot be read.
 */
typedef bool runtime_fde_fn(void *arg, const struct cfi_table *t, const struct cfi_fde *fde);
int runtime_each_fde(struct elf_file *elf, runtime_fde_fn *fn, void *arg);
/* How the frame is unwound where a range begins. */
struct unwind_rule runtime_first_rule(const struct cfi_table *t, const struct cfi_fde *fde);

/* The functions of a binary, and parts of them, as .eh_frame lists them; sorted. */
struct runtime_functions {
	vec(struct runtime_range) all;
};

int runtime_functions_init(struct elf_file *elf, struct runtime_functions *ret);
void runtime_functions_deinit(struct runtime_functions *f);
/* The function at an svma, or NULL. Borrowed from `f`. */
const struct runtime_range *runtime_function_at(const struct runtime_functions *f, u64 svma);

/*
 * The parts of a function that the compiler has split off: code that the function jumps to, with
 * ranges of its own in .eh_frame, in which the function's stack frame exists already.
 */
#define RUNTIME_MAX_AWAY 64
struct runtime_away {
	u64 svma[RUNTIME_MAX_AWAY]; /* where the function jumps to */
	u32 n;
};

/* Notes the target if the instruction jumps out of the function. */
void runtime_note_away(struct runtime_away *a, const struct runtime_range *function,
		       const struct disasm_insn *insn);
/*
 * Adds the parts that the jumps lead to behind the function, which is ranges[0]; at most `max`
 * ranges in all. Returns the number of ranges.
 */
u32 runtime_add_parts(struct elf_file *elf, const struct runtime_away *a,
		      struct runtime_range *ranges, u32 max);
/* Does both for a function of which nothing else is wanted. */
u32 runtime_find_parts(struct elf_file *elf, struct runtime_range *ranges, u32 max);
