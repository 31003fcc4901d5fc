/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A binary with wrong symbols of V8. The file has all symbols that v8_learn() looks up; the input
 * says where some of them lead and what is there:
 *
 *	u8	number of moved symbols
 *	{u8 index of a symbol, u8 its place in units of 16 bytes, u16 its size} …
 *	rest	read-only data, and code
 *
 * BPF must be able to use what is accepted: slots of frames, ranges and tables are within bounds.
 */
#include <elf.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../unit/elfwriter.h"
#include "agent/runtime/v8/v8.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define DATA_AT 0x100000u
#define TEXT_AT 0x1000u
#define ROOM 4096u /* bytes with good values, before those of the input */

/* The version, constants that must exist, and other symbols with an address. */
static const char *const names[] = {
	"_ZN2v88internal7Version6major_E",
	"_ZN2v88internal7Version6minor_E",
	"_ZN2v88internal7Version6build_E",
	"v8dbg_SmiShiftSize",
	"v8dbg_FirstNonstringType",
	"v8dbg_type_JSFunction__JS_FUNCTION_TYPE",
	"v8dbg_type_SharedFunctionInfo__SHARED_FUNCTION_INFO_TYPE",
	"v8dbg_type_Script__SCRIPT_TYPE",
	"v8dbg_type_ScopeInfo__SCOPE_INFO_TYPE",
	"v8dbg_type_BytecodeArray__BYTECODE_ARRAY_TYPE",
	"v8dbg_type_Code__CODE_TYPE",
	"v8dbg_scopeinfo_idx_first_vars",
	"v8dbg_scopeinfo_idx_ncontextlocals",
	"v8dbg_type_InstructionStream__X",
	"v8dbg_class_Code__instruction_size__int",
	"v8dbg_class_Code__instruction_start__Address",
	"v8dbg_class_BytecodeArray__data__uint8_t",
	"v8dbg_class_Script__name__Object",
	"v8dbg_off_fp_context",
	"v8dbg_off_fp_function",
	"v8dbg_off_fp_bytecode_array",
	"v8dbg_off_fp_bytecode_offset",
	"v8dbg_JSFunctionRegister",
	"v8dbg_DeoptimizationDataInliningPositionsIndex",
	"Builtins_InterpreterEntryTrampoline",
	"Builtins_InterpreterEntryTrampolineForProfiling",
	"_ZN2v88internal11interpreter9Bytecodes14kBytecodeSizesE",
};
enum { N_NAMES = ARRAY_SIZE(names), FIRST_BUILTIN = N_NAMES - 3 };

static const s32 good[N_NAMES] = {12, 4,   254, 31, 128, 2065, 258, 170, 268, 190, 200, 3,
				  2,  262, 52,	40, 64,	 16,   -8,  -16, -24, -32, 7,	7};

static void write_symbols(Elf64_Sym *syms, char *strings, size_t *n_strings)
{
	*n_strings = 1;
	for (u32 i = 0; i < N_NAMES; i++) {
		bool code = i >= FIRST_BUILTIN && i < N_NAMES - 1;

		syms[i] = (Elf64_Sym){
			.st_name = (Elf64_Word)*n_strings,
			.st_info = ELF64_ST_INFO(STB_GLOBAL, code ? STT_FUNC : STT_OBJECT),
			.st_shndx = 1,
			.st_value = code ? TEXT_AT + 64 * i : DATA_AT + 4 * i,
			.st_size = 4,
		};
		memcpy(strings + *n_strings, names[i], strlen(names[i]) + 1);
		*n_strings += strlen(names[i]) + 1;
	}
}

/* Lets a symbol lead elsewhere, or removes it (place 255). */
static void move(Elf64_Sym *syms, const u8 *data)
{
	Elf64_Sym *s = &syms[data[0] % N_NAMES];
	u64 base = s->st_value >= DATA_AT ? DATA_AT + ROOM : TEXT_AT;
	u16 n;

	memcpy(&n, data + 2, 2);
	s->st_value = data[1] == 255 ? 0 : data[1] == 254 ? ~0ULL - n : base + 16ULL * data[1];
	s->st_size = n;
	if (data[1] == 255)
		s->st_name = 0;
}

static void learn(struct elf_file *elf)
{
	struct procman_binary b = {.kind = PROCMAN_FILE, .path = "/bin/node", .elf = elf};
	struct runtime_binary room;
	struct runtime_v8_binary bpf;
	struct v8_learned *v;
	void *learned;

	if (runtime_v8.learn(&b, &room, &learned, NULL) < 0)
		return;
	v = learned;
	memcpy(&bpf, room.room, sizeof(bpf));
	for (u32 i = 0; i < 2; i++)
		if (bpf.interpreter[i].end < bpf.interpreter[i].start)
			abort();
	if (bpf.off_context > -8 || bpf.off_context < -48 || bpf.off_function > -8 ||
	    bpf.off_function < -48 || v->n_bytecodes > 256 ||
	    (v->n_bytecodes && !v->bytecode_sizes))
		abort();
	runtime_v8.forget(learned);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	Elf64_Sym syms[N_NAMES];
	char strings[N_NAMES * 80] = "";
	struct elfw w = {.machine = EM_X86_64, .type = ET_DYN};
	struct elf_file *elf = NULL;
	size_t n_strings, n;
	u8 *rodata;

	if (!size)
		return 0;
	write_symbols(syms, strings, &n_strings);
	n = data[0];
	for (data++, size--; n && size >= 4; n--, data += 4, size -= 4)
		move(syms, data);
	rodata = calloc(1, ROOM + size);
	if (!rodata)
		return 0;
	memcpy(rodata, good, sizeof(good));
	if (size)
		memcpy(rodata + ROOM, data, size);
	elfw_section(&w, ".text", SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR, TEXT_AT, rodata,
		     ROOM + size);
	elfw_section(&w, ".rodata", SHT_PROGBITS, SHF_ALLOC, DATA_AT, rodata, ROOM + size);
	elfw_section(&w, ".dynsym", SHT_DYNSYM, SHF_ALLOC, 0, syms, sizeof(syms));
	elfw_section(&w, ".dynstr", SHT_STRTAB, SHF_ALLOC, 0, strings, n_strings);
	elfw_segment(&w, PT_LOAD, PF_R | PF_X, TEXT_AT, ROOM + size, ".text");
	elfw_segment(&w, PT_LOAD, PF_R, DATA_AT, ROOM + size, ".rodata");
	elfw_finish(&w);
	if (elf_file_open_memory(w.out.data, w.out.n, NULL, &elf) == 0)
		learn(elf);
	elf_file_destroy(elf);
	str_deinit(&w.out);
	free(rodata);
	return 0;
}
