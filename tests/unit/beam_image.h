/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small beam.smp and the memory of a process that runs it, made byte by byte: atoms, modules with
 * lines, processes, schedulers, and JIT code. The offsets of two layouts of the structs are
 * invented, because the layout has to be found.
 *
 *	BEAM_IMAGE	the binary, with this bias
 *	…		the objects, at the places of enum beam_place
 *
 * The image is mapped at a fixed address of this process, and tests read it like another process's.
 */
#pragma once

#include <elf.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "agent/runtime/beam/beam.h"
#include "base/str.h"
#include "cfiwriter.h"
#include "elfwriter.h"

#define BEAM_IMAGE 0x320000000000ULL
#define BEAM_IMAGE_BYTES 0x40000u

/* Offsets from BEAM_IMAGE. Those up to BEAM_BINARY_END are svmas in the binary, too. */
enum beam_place {
	BEAM_TEXT = 0x100,     /* in the file only */
	BEAM_GET = 0x100,      /* erts_get_scheduler_data */
	BEAM_LOOP = 0x140,     /* process_main, and its call */
	BEAM_SPECIFIC = 0x180, /* pthread_getspecific of glibc */
	/* Functions of a bare binary, of 16 bytes each from BEAM_PARTS on. */
	BEAM_TYPE = 0x200,   /* enif_thread_type */
	BEAM_ALIVE = 0x240,  /* enif_is_process_alive */
	BEAM_LENGTH = 0x250, /* enif_get_atom_length */
	BEAM_DIRTY = 0x280,  /* the loop of dirty schedulers */
	BEAM_CALLER = 0x2c0, /* calls process_main */
	BEAM_PARTS = 0x300,  /* erts_schedule, BIF, NIF, dirty BIF, dirty NIF */
	BEAM_STRINGS = 0x400,
	BEAM_VARIABLES = 0x1000,
	BEAM_CODE_INDEX = 0x1000,
	BEAM_NORMAL_EXIT = 0x1008,
	BEAM_FRAME_LAYOUT = 0x1010,
	BEAM_KEY = 0x1018,
	BEAM_SCHEDULERS = 0x1020, /* three pointers */
	BEAM_RANGES = 0x1800,
	BEAM_NEAR_RANGES = 0x1900,
	BEAM_ATOM_TABLE = 0x2000,
	BEAM_PROCESSES = 0x2200, /* erts_proc */
	BEAM_BINARY_END = 0x3000,
	BEAM_SEGMENTS = 0x3000,
	BEAM_SEGMENT = 0x3100,
	BEAM_ATOMS = 0x5200,
	BEAM_RANGE_LIST = 0x5c00,
	BEAM_LINES = 0x5e00,
	BEAM_REG_PROCS = 0x6400, /* struct reg_proc of two processes */
	BEAM_SCHEDULER = 0x7000, /* three of SCHEDULER_BYTES */
	BEAM_PROCESS = 0x9000,	 /* BEAM_N_PROCESSES of PROCESS_BYTES */
	BEAM_STACK = 0xa000,	 /* C stack of the first scheduler */
	BEAM_HEAPS = 0xd000,
	BEAM_PROCESS_TABLE = 0x10000, /* 64 KiB */
	BEAM_JIT = 0x20000,
	BEAM_MODULES = 0x21000,
	BEAM_JIT_END = 0x24000,
};

#define BEAM_N_PROCESSES 10
#define BEAM_N_MODULES 8
#define BEAM_MODULE_BYTES 0x300
#define BEAM_SCHEDULER_BYTES 2048

/* What differs between the layouts. */
struct beam_variant {
	u16 functions, stop, heap, initial, registered, current;
	bool boxed_names, wide_table;
};

static const struct beam_variant beam_variants[] = {
	{96, 0x58, 0x80, 0x1b8, 0x38, 0x150, false, false},
	{152, 0x60, 0xf0, 0x240, 0x40, 0x1a0, true, true},
};

enum beam_atom_index {
	ATOM_FALSE,
	ATOM_TRUE,
	ATOM_MODULE,
	ATOM_OUTER,
	ATOM_LEAF,
	ATOM_NAME,
	ATOM_N
};
static const char *const beam_atoms[ATOM_N] = {"false", "true",		  "demo",
					       "outer", "-leaf/2-fun-0-", "demo_server"};

static inline u8 *beam_at(u64 place)
{
	return (u8 *)(uintptr_t)(BEAM_IMAGE + place);
}

static inline void beam_u64(u64 place, u64 v)
{
	memcpy(beam_at(place), &v, 8);
}

static inline void beam_u32(u64 place, u32 v)
{
	memcpy(beam_at(place), &v, 4);
}

static inline void beam_u16(u64 place, u16 v)
{
	memcpy(beam_at(place), &v, 2);
}

static inline u64 beam_term(u64 atom)
{
	return atom << BEAM_ATOM_SHIFT | BEAM_ATOM_TAG;
}

static inline void beam_mfa(u64 place, u64 module, u64 function, u64 arity)
{
	beam_u64(place, beam_term(module));
	beam_u64(place + 8, beam_term(function));
	beam_u64(place + 16, arity);
}

static inline void beam_build_atoms(const struct beam_variant *v)
{
	beam_u64(BEAM_ATOM_TABLE + 120, BEAM_IMAGE + BEAM_SEGMENTS);
	beam_u64(BEAM_SEGMENTS, BEAM_IMAGE + BEAM_SEGMENT);
	for (u32 i = 0; i < ATOM_N; i++) {
		u64 at = BEAM_ATOMS + 128ULL * i;
		size_t n = strlen(beam_atoms[i]);

		beam_u64(BEAM_SEGMENT + 8ULL * i, BEAM_IMAGE + at);
		beam_u16(at + 24, (u16)n);
		beam_u64(at + 32, BEAM_IMAGE + at + 64 + (v->boxed_names ? 2 : 0));
		memcpy(beam_at(at + 64 + (v->boxed_names ? 16 : 0)), beam_atoms[i], n);
	}
}

/* A list of characters in memory from `place` on. */
static inline u64 beam_list(u64 place, const char *text)
{
	size_t n = strlen(text);

	for (size_t i = 0; i < n; i++) {
		beam_u64(place + 16 * i, (u64)(u8)text[i] << 4 | 15);
		beam_u64(place + 16 * i + 8,
			 i + 1 < n ? (BEAM_IMAGE + place + 16 * (i + 1)) | 1 : 0x3b);
	}
	return (BEAM_IMAGE + place) | 1;
}

static inline u64 beam_module(u32 i)
{
	return BEAM_MODULES + (u64)BEAM_MODULE_BYTES * i;
}

/* The address of the k-th function's code in a module; its ErtsCodeInfo is 40 bytes before. */
static inline u64 beam_function(u32 i, u32 k)
{
	return beam_module(i) + 0x128 + 0x80ULL * k;
}

/*
 * Each module has two functions. Those of module 0 have lines: outer/1 has line 7 and from 0x20 on
 * line 9, the fun has line 11.
 */
static inline void beam_build_modules(const struct beam_variant *v)
{
	u64 lines = BEAM_LINES, rows = BEAM_LINES + 0x80, locations = BEAM_LINES + 0xc0;
	u64 files = BEAM_LINES + 0x100;
	static const u32 location[] = {7, 9, 1u << 24 | 11};

	for (u32 i = 0; i < BEAM_N_MODULES; i++) {
		u64 at = beam_module(i);

		beam_u64(BEAM_RANGE_LIST + 16ULL * i, BEAM_IMAGE + at);
		beam_u64(BEAM_RANGE_LIST + 16ULL * i + 8, BEAM_IMAGE + at + 0x280);
		beam_u64(at, 2);
		for (u32 k = 0; k < 2; k++) {
			u64 info = beam_function(i, k) - 40;

			beam_u64(at + v->functions + 8ULL * k, BEAM_IMAGE + info);
			beam_mfa(info + 16, ATOM_MODULE, ATOM_OUTER + k, k + 1);
		}
		beam_u64(at + v->functions + 16, BEAM_IMAGE + at + 0x240);
	}
	beam_u64(beam_module(0) + 72, BEAM_IMAGE + lines);
	beam_u64(lines, BEAM_IMAGE + files);
	beam_u32(lines + 8, 4);
	beam_u64(lines + 16, BEAM_IMAGE + locations);
	beam_u64(lines + 24, BEAM_IMAGE + rows);
	beam_u64(lines + 32, BEAM_IMAGE + rows + 16);
	beam_u64(lines + 40, BEAM_IMAGE + rows + 24);
	beam_u64(rows, BEAM_IMAGE + beam_function(0, 0));
	beam_u64(rows + 8, BEAM_IMAGE + beam_function(0, 0) + 0x20);
	beam_u64(rows + 16, BEAM_IMAGE + beam_function(0, 1));
	beam_u64(rows + 24, BEAM_IMAGE + beam_module(0) + 0x240);
	memcpy(beam_at(locations), location, sizeof(location));
	beam_u64(files, beam_list(BEAM_LINES + 0x200, "demo.erl"));
	beam_u64(files + 8, beam_list(BEAM_LINES + 0x300, "inc/demo.hrl"));
	for (u64 at = BEAM_RANGES; at < BEAM_RANGES + 3 * 32; at += 32) {
		beam_u64(at, BEAM_IMAGE + BEAM_RANGE_LIST);
		beam_u64(at + 8, BEAM_N_MODULES);
		beam_u64(at + 16, BEAM_N_MODULES + 2);
		beam_u64(at + 24, BEAM_IMAGE + BEAM_RANGE_LIST + 64);
	}
}

/* The loop's prologue, and the code that processes return to at their end. */
static inline void beam_build_jit(void)
{
	static const u8 loop[] = {0x48, 0x81, 0xec, 0x80, 0x40, 0,    0,    0x48, 0x83, 0xe4,
				  0xc0, 0x48, 0x89, 0x27, 0x48, 0x8d, 0x5c, 0x24, 0x40};

	memset(beam_at(BEAM_JIT), 0x90, 0x800);
	memcpy(beam_at(BEAM_JIT + 0x100), loop, sizeof(loop));
	beam_u64(BEAM_NORMAL_EXIT, BEAM_IMAGE + BEAM_JIT + 0x200);
}

/* A call by way of the cell `i`, which has the address of the part `i`. */
static inline void beam_call_part(u64 place, u32 i)
{
	u64 cell = BEAM_JIT + 0x700 + 8ULL * i;
	s32 to = (s32)(cell - (place + 6));

	memcpy(beam_at(place), "\xff\x15", 2);
	memcpy(beam_at(place + 2), &to, sizeof(to));
	beam_u64(cell, BEAM_IMAGE + BEAM_PARTS + 16ULL * i);
}

/* What code and data of a process show of a bare binary. */
static inline void beam_build_bare(void)
{
	static const u8 index[] = {0x48, 0xbf, [10] = 0xbe, 3,	  [15] = 0x44, 0x8b,
				   0x27, 0x4c, 0x0f,	    0x45, 0xe6};
	static const u8 nif[] = {0x48, 0x8b, 0x4e, 0x10, 0x4c, 0x8b,
				 0x46, 0x18, 0x4c, 0x8b, 0x4e, 0x20};

	beam_call_part(BEAM_JIT + 0x140, 0);
	memcpy(beam_at(BEAM_JIT + 0x146), "\x49\x89\xc5", 3);
	memcpy(beam_at(BEAM_JIT + 0x160), index, sizeof(index));
	beam_u64(BEAM_JIT + 0x162, BEAM_IMAGE + BEAM_CODE_INDEX);
	memcpy(beam_at(BEAM_JIT + 0x300), "\x44\x0f\xb6\x46\x10", 5);
	beam_call_part(BEAM_JIT + 0x320, 1);
	memcpy(beam_at(BEAM_JIT + 0x400), nif, sizeof(nif));
	beam_call_part(BEAM_JIT + 0x400 + sizeof(nif), 2);
	for (u32 i = 0; i < BEAM_N_PROCESSES; i++)
		beam_u64(BEAM_HEAPS + 0x200ULL * (i + 1) - 8, BEAM_IMAGE + BEAM_JIT + 0x200);
	beam_u64(BEAM_SCHEDULER, BEAM_IMAGE + BEAM_STACK);
	beam_u64(BEAM_STACK + 0x4080 + 3 * 8, BEAM_IMAGE + BEAM_CALLER + 14);
}

static inline void beam_build_processes(const struct beam_variant *v)
{
	/* vola, list, then tab, free_id_data, max, mask */
	beam_u64(BEAM_PROCESSES + 128, BEAM_IMAGE + BEAM_PROCESS_TABLE);
	beam_u64(BEAM_PROCESSES + 136, BEAM_IMAGE + BEAM_PROCESS_TABLE);
	beam_u32(BEAM_PROCESSES + 144, 8192);
	beam_u32(BEAM_PROCESSES + (v->wide_table ? 152 : 148), 8191);
	for (u32 i = 0; i < BEAM_N_PROCESSES; i++) {
		u64 at = BEAM_PROCESS + 1024ULL * i, heap = BEAM_IMAGE + BEAM_HEAPS + 0x200ULL * i;
		u64 reg = BEAM_REG_PROCS + 64ULL * i;

		beam_u64(BEAM_PROCESS_TABLE + 64ULL * i, BEAM_IMAGE + at);
		beam_u64(at, (u64)i << 4 | 3);
		beam_u64(at + v->heap, heap);
		beam_u64(at + v->heap + 8, heap + 0x200);
		beam_u64(at + v->heap + 24, 0x200 / 8);
		beam_u64(at + v->stop - 8, heap + 0x40);
		beam_u64(at + v->stop, heap + 0x180);
		beam_mfa(at + v->initial, ATOM_MODULE, ATOM_OUTER, i);
		if (i >= 2)
			continue;
		beam_u64(at + v->registered, BEAM_IMAGE + reg);
		beam_u64(reg + 16, BEAM_IMAGE + at);
		beam_u64(reg + 32, beam_term(ATOM_NAME));
	}
}

static inline void beam_build_schedulers(const struct beam_variant *v)
{
	for (u32 i = 0; i < 3; i++) {
		u64 at = BEAM_SCHEDULER + (u64)BEAM_SCHEDULER_BYTES * i;

		beam_u64(BEAM_SCHEDULERS + 8ULL * i, BEAM_IMAGE + at);
		beam_u32(at + v->current + 8, i);
		beam_u64(at + v->current + 16, !i);
		beam_u64(at + v->current + 24, !!i);
	}
}

/* Maps and fills the image. False: the place is taken. */
static inline bool beam_build(const struct beam_variant *v)
{
	static void *map;

	if (!map) {
		map = mmap((void *)BEAM_IMAGE, BEAM_IMAGE_BYTES, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
		if (map == MAP_FAILED)
			map = NULL;
	}
	if (!map)
		return false;
	memset(map, 0, BEAM_IMAGE_BYTES);
	beam_u32(BEAM_KEY, 3);
	beam_build_atoms(v);
	beam_build_modules(v);
	beam_build_jit();
	beam_build_processes(v);
	beam_build_schedulers(v);
	beam_build_bare();
	return true;
}

/* ---- the file ---- */

struct beam_symbol {
	const char *name;
	u64 at, size;
};

static const struct beam_symbol beam_symbols[] = {
	{"etp_otp_release", BEAM_STRINGS, 3},
	{"etp_erts_version", BEAM_STRINGS + 8, 7},
	{"etp_beamasm", BEAM_STRINGS + 16, 4},
	{"erts_get_scheduler_data", BEAM_GET, 11},
	{"process_main", BEAM_LOOP, 1},
	{"erts_schedule", BEAM_LOOP + 0x20, 16},
	{"erts_dirty_process_main", BEAM_LOOP + 0x30, 16},
	{"erts_call_dirty_nif", BEAM_GET + 0x20, 16},
	{"pthread_getspecific", BEAM_SPECIFIC, 16},
	{"the_active_code_index", BEAM_CODE_INDEX, 4},
	{"beam_normal_exit", BEAM_NORMAL_EXIT, 8},
	{"erts_frame_layout", BEAM_FRAME_LAYOUT, 4},
	{"erts_aligned_scheduler_data", BEAM_SCHEDULERS, 8},
	{"erts_aligned_dirty_cpu_scheduler_data", BEAM_SCHEDULERS + 8, 8},
	{"erts_aligned_dirty_io_scheduler_data", BEAM_SCHEDULERS + 16, 8},
	{"erts_dump_lit_areas", BEAM_NEAR_RANGES, 8},
	{"erts_atom_table", BEAM_ATOM_TABLE, 128},
	{"erts_proc", BEAM_PROCESSES, 512},
	{"enif_alloc", BEAM_LOOP, 1},
};

static const struct beam_symbol beam_bare_symbols[] = {
	{"enif_thread_type", BEAM_TYPE, 0x20},
	{"enif_is_process_alive", BEAM_ALIVE, 8},
	{"enif_get_atom_length", BEAM_LENGTH, 8},
	{"pthread_getspecific", BEAM_SPECIFIC, 16},
	{"enif_alloc", BEAM_LOOP, 1},
};

static inline void beam_relative(u8 *text, u64 at, u64 to)
{
	s32 offset = (s32)(to - (at + 4));

	memcpy(text + at - BEAM_TEXT, &offset, sizeof(offset));
}

/* Code of a bare binary. */
static inline void beam_write_bare(const struct beam_variant *v, u8 *text)
{
	/* call; test rax, rax; je; mov eax, [rax + TYPE]; add eax, 1; ret; xor eax, eax; ret */
	static const u8 type[] = {0xe8,	       [5] = 0x48, 0x85, 0xc0, 0x74, 0x0a, 0x8b, 0x80,
				  [16] = 0x83, 0xc0,	   1,	 0xc3, 0x31, 0xc0, 0xc3};
	static const u8 variable[] = {0x48, 0x8b, 0x05, [7] = 0xc3};
	/* call erts_schedule; mov rcx, r11; mov rsi, rbx; call …; the same; ret */
	static const u8 dirty[] = {0xe8, 0,    0,    0, 0, 0x4c, 0x89, 0xd9, 0x48, 0x89,
				   0xde, 0xe8, 0,    0, 0, 0,	 0x4c, 0x89, 0xd9, 0x48,
				   0x89, 0xde, 0xe8, 0, 0, 0,	 0,    0xc3};
	/* push rbp; mov rbp, rsp; push rbx; sub rsp, 0x18; call process_main */
	static const u8 caller[] = {0x55, 0x48, 0x89, 0xe5, 0x53, 0x48, 0x83, 0xec, 0x18, 0xe8};
	u32 at = v->current + 8u;

	memcpy(text + BEAM_TYPE - BEAM_TEXT, type, sizeof(type));
	memcpy(text + BEAM_TYPE - BEAM_TEXT + 12, &at, sizeof(at));
	beam_relative(text, BEAM_TYPE + 1, BEAM_GET);
	memcpy(text + BEAM_ALIVE - BEAM_TEXT, variable, sizeof(variable));
	beam_relative(text, BEAM_ALIVE + 3, BEAM_PROCESSES + 128);
	memcpy(text + BEAM_LENGTH - BEAM_TEXT, variable, sizeof(variable));
	beam_relative(text, BEAM_LENGTH + 3, BEAM_ATOM_TABLE + 120);
	memcpy(text + BEAM_DIRTY - BEAM_TEXT, dirty, sizeof(dirty));
	beam_relative(text, BEAM_DIRTY + 1, BEAM_PARTS);
	beam_relative(text, BEAM_DIRTY + 12, BEAM_PARTS + 0x30);
	beam_relative(text, BEAM_DIRTY + 23, BEAM_PARTS + 0x40);
	memcpy(text + BEAM_CALLER - BEAM_TEXT, caller, sizeof(caller));
	beam_relative(text, BEAM_CALLER + 10, BEAM_LOOP);
}

/* The functions of a bare binary, in .eh_frame. */
static inline struct str beam_write_functions(u64 svma)
{
	struct cfiw w = {.eh = true, .svma = svma};
	size_t cie = cfiw_cie(&w, "zR", "\x0c\x07\x08\x90\x01", 5);

	cfiw_fde(&w, cie, BEAM_DIRTY, 0x40, NULL, 0);
	cfiw_fde(&w, cie, BEAM_CALLER, 0x10, NULL, 0);
	cfiw_fde(&w, cie, BEAM_LOOP, 2, NULL, 0);
	for (u32 i = 0; i < 5; i++)
		cfiw_fde(&w, cie, BEAM_PARTS + 16ULL * i, 16, NULL, 0);
	return w.out;
}

/*
 * Writes the file, without one symbol or with all (NULL). `bare`: the layout of a binary that
 * exports the functions for NIFs only; NULL: it exports its variables. The caller frees `ret`.
 */
static inline void beam_write_file(u16 machine, bool jit, const char *without,
				   const struct beam_variant *bare, struct str *ret)
{
	static const u8 data[BEAM_BINARY_END - BEAM_VARIABLES];
	const struct beam_symbol *all = bare ? beam_bare_symbols : beam_symbols;
	size_t n_all = bare ? ARRAY_SIZE(beam_bare_symbols) : ARRAY_SIZE(beam_symbols);
	struct str functions = beam_write_functions(0x800);
	static u8 text[0x400], strings[32];
	static const u8 get[] = {0x8b, 0x3d, 0, 0, 0, 0, 0xe9, 0, 0, 0, 0};
	/* As glibc's for the first keys: thread pointer + 0x310 + 16 × key, then the value. */
	static const u8 specific[] = {0x89, 0xf8,	      /* mov eax, edi */
				      0x48, 0x83, 0xc0, 0x31, /* add rax, 0x31 */
				      0x48, 0xc1, 0xe0, 4,    /* shl rax, 4 */
				      0x64, 0x48, 3,	4,    0x25,
				      0x10, 0,	  0,	0, /* add rax, fs:0x10 */
				      0x48, 0x8b, 0x40, 8, /* mov rax, [rax + 8] */
				      0xc3};
	s32 to_key = BEAM_KEY - (BEAM_GET + 6), to_specific = BEAM_SPECIFIC - (BEAM_GET + 11);
	s32 to_loop = -0x10 - 5;
	struct elfw w = {.machine = machine};
	struct str symbols = {}, names = {};

	memcpy(text + BEAM_GET - BEAM_TEXT, get, sizeof(get));
	memcpy(text + BEAM_GET - BEAM_TEXT + 2, &to_key, 4);
	memcpy(text + BEAM_GET - BEAM_TEXT + 7, &to_specific, 4);
	memset(text + BEAM_TYPE - BEAM_TEXT, 0, BEAM_STRINGS - BEAM_TYPE);
	if (bare)
		beam_write_bare(bare, text);
	memcpy(text + BEAM_LOOP - BEAM_TEXT, "\xff\xe0", 2); /* jmp rax */
	text[BEAM_LOOP - BEAM_TEXT + 0x10] = 0xe8;
	memcpy(text + BEAM_LOOP - BEAM_TEXT + 0x11, &to_loop, 4);
	memcpy(text + BEAM_SPECIFIC - BEAM_TEXT, specific, sizeof(specific));
	memcpy(strings, "25\0.....13.1.5\0.", 17);
	memcpy(strings + 16, &(u32){jit}, 4);
	str_putc(&names, 0);
	str_append(&symbols, &(Elf64_Sym){}, sizeof(Elf64_Sym));
	for (size_t i = 0; i < n_all; i++) {
		Elf64_Sym s = {.st_name = (u32)names.n,
			       .st_shndx = 1,
			       .st_value = all[i].at,
			       .st_size = all[i].size};

		if (without && !strcmp(without, all[i].name))
			continue;
		str_append(&names, all[i].name, strlen(all[i].name) + 1);
		str_append(&symbols, &s, sizeof(s));
	}
	elfw_section(&w, ".text", SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR, BEAM_TEXT, text,
		     BEAM_STRINGS - BEAM_TEXT);
	elfw_section(&w, ".rodata", SHT_PROGBITS, SHF_ALLOC, BEAM_STRINGS, strings,
		     sizeof(strings));
	elfw_section(&w, ".dynsym", SHT_DYNSYM, SHF_ALLOC, 0, symbols.data, symbols.n);
	elfw_section(&w, ".dynstr", SHT_STRTAB, SHF_ALLOC, 0, names.data, names.n);
	elfw_segment(&w, PT_LOAD, PF_R | PF_X, BEAM_TEXT, BEAM_STRINGS - BEAM_TEXT, ".text");
	elfw_section(&w, ".eh_frame", SHT_PROGBITS, SHF_ALLOC, 0x800, functions.data, functions.n);
	elfw_section(&w, ".data", SHT_PROGBITS, SHF_ALLOC | SHF_WRITE, BEAM_VARIABLES, data,
		     sizeof(data));
	elfw_segment(&w, PT_LOAD, PF_R, BEAM_STRINGS, sizeof(strings), ".rodata");
	elfw_segment(&w, PT_LOAD, PF_R | PF_W, BEAM_VARIABLES, sizeof(data), ".data");
	elfw_finish(&w);
	*ret = w.out;
	str_deinit(&symbols);
	str_deinit(&names);
	str_deinit(&functions);
}
