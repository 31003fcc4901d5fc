/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A binary of PHP with nothing but what the agent learns from it: the functions of its API in
 * machine code, with the offsets of PHP 8.2 on x86-64; without thread-safety, or with it.
 */
#pragma once

#include "elfwriter.h"

#define PHP_IMAGE_TEXT 0x1000
#define PHP_IMAGE_GLOBALS 0x8000 /* executor_globals; code has its address as rip + PHP_GLOBAL() */
#define PHP_IMAGE_CURRENT 0x1e8
#define PHP_IMAGE_BEFORE_THROW 0x370
#define PHP_IMAGE_GENERATOR_CLASS 0x9000
#define PHP_IMAGE_GLOBALS_OFFSET 0x9100 /* executor_globals_offset, in thread-safe builds */

struct php_image_function {
	const char *name;
	u32 n;
	u8 code[72];
};

/* mov VARIABLE(%rip), %rax, as the first instruction at `at` in the text. */
#define PHP_IMAGE_LOAD 0x48, 0x8b, 0x05, 0xff, 0xff, 0xff, 0xff

static const struct php_image_function php_image_functions[] = {
	/* current → [0x18] → [8] + 0x18 */
	{"get_active_function_name",
	 20,
	 {PHP_IMAGE_LOAD, 0x48, 0x8b, 0x40, 0x18, 0x48, 0x8b, 0x40, 0x08, 0x48, 0x83, 0xc0, 0x18,
	  0xc3}},
	/* current → [0x18] → [0x10] → [8] + 0x18 */
	{"get_active_class_name",
	 24,
	 {PHP_IMAGE_LOAD, 0x48, 0x8b, 0x40, 0x18, 0x48, 0x8b, 0x40, 0x10, 0x48, 0x8b, 0x40, 0x08,
	  0x48, 0x83, 0xc0, 0x18, 0xc3}},
	/* current → [0x18] → [0x98] */
	{"zend_get_executed_filename_ex",
	 19,
	 {PHP_IMAGE_LOAD, 0x48, 0x8b, 0x40, 0x18, 0x48, 0x8b, 0x80, 0x98, 0, 0, 0, 0xc3}},
	/*
	 * The frame: current, or its [0x30]; then the line at [0x18] of: the frame's [0]; the
	 * [0x58] of its function; EG(opline_before_exception).
	 */
	{"zend_get_executed_lineno",
	 45,
	 {PHP_IMAGE_LOAD, 0x48, 0x85, 0xc0, 0x74, 0x04,		    /* test %rax, %rax; je + 4 */
	  0x48,		  0x8b, 0x40, 0x30,			    /* mov 0x30(%rax), %rax */
	  0x48,		  0x8b, 0x50, 0x18,			    /* mov 0x18(%rax), %rdx */
	  0x48,		  0x85, 0xd2, 0x74, 0x08,		    /* test %rdx, %rdx; je + 8 */
	  0x48,		  0x8b, 0x42, 0x58, 0x8b, 0x40, 0x18, 0xc3, /* [0x58] → [0x18] */
	  0x48,		  0x85, 0xd2, 0x74, 0x07,		    /* je + 7 */
	  0x48,		  0x8b, 0x00, 0x8b, 0x40, 0x18, 0xc3}},	    /* [0] → [0x18] */
	/* The same function's third way, which the second branch above leads to. */
	{"(before_throw)", 11, {PHP_IMAGE_LOAD, 0x8b, 0x40, 0x18, 0xc3}},
	/* argument → [0x20], or its [0x98]; then [0x38] */
	{"zend_generator_check_placeholder_frame", 21, {0x48, 0x8b, 0x57, 0x20, 0x48, 0x85, 0xd2,
							0x74, 0x07, 0x48, 0x8b, 0x92, 0x98, 0,
							0,    0,    0x48, 0x8b, 0x42, 0x38, 0xc3}},
	/* push %rbx; sub $0x20, %rsp; jmp *(%r15); add $0x20, %rsp; pop %rbx; ret */
	{"execute_ex",
	 14,
	 {0x53, 0x48, 0x83, 0xec, 0x20, 0x41, 0xff, 0x27, 0x48, 0x83, 0xc4, 0x20, 0x5b, 0xc3}},
};
#define PHP_IMAGE_FUNCTIONS (sizeof(php_image_functions) / sizeof(php_image_functions[0]))

/* mov %fs:0, %rax; mov -8(%rax), %rax; ret */
static const struct php_image_function php_image_memory = {
	"tsrm_get_ls_cache",
	17,
	{0x64, 0x48, 0x8b, 0x04, 0x25, 0, 0, 0, 0, 0x48, 0x8b, 0x80, 0xf8, 0xff, 0xff, 0xff, 0xc3}};

/* Appends the first instruction of a function, PHP_IMAGE_LOAD, at the end of the text. */
static inline void php_image_load(struct str *text, u32 offset, bool threads)
{
	/* call tsrm_get_ls_cache; mov executor_globals_offset(%rip), %rdx; mov OFFSET(%rax,%rdx) */
	u8 code[20] = {0xe8, [5] = 0x48, 0x8b, 0x15, [12] = 0x48, 0x8b, 0x84, 0x10};
	u32 end = PHP_IMAGE_TEXT + (u32)text->n + 7, to = PHP_IMAGE_GLOBALS + offset - end;

	if (!threads) {
		static const u8 load[] = {PHP_IMAGE_LOAD};

		memcpy(code, load, sizeof(load));
		memcpy(code + 3, &to, sizeof(to));
		str_append(text, (char *)code, sizeof(load));
		return;
	}
	to = PHP_IMAGE_TEXT - (end - 2);
	memcpy(code + 1, &to, sizeof(to));
	to = PHP_IMAGE_GLOBALS_OFFSET - (end + 5);
	memcpy(code + 8, &to, sizeof(to));
	memcpy(code + 16, &offset, sizeof(offset));
	str_append(text, (char *)code, sizeof(code));
}

/*
 * Writes the binary into w->out; `change` may damage its text, or is NULL. `threads`: thread-safe,
 * with tsrm_get_ls_cache() in front of the other functions.
 */
static inline void php_image_write(struct elfw *w, bool threads, void (*change)(u8 *text, size_t n))
{
	static const char rodata[] = "\0X-Powered-By: PHP/8.2.36\0";
	Elf64_Sym symbols[PHP_IMAGE_FUNCTIONS + 4] = {};
	struct str names = {}, text = {};
	u32 n = 1;

	w->machine = EM_X86_64;
	str_putc(&names, 0);
	for (u32 i = !threads; i <= PHP_IMAGE_FUNCTIONS; i++) {
		const struct php_image_function *f =
			i ? &php_image_functions[i - 1] : &php_image_memory;
		u32 start = (u32)text.n, load = f->code[2] == 0x05 ? 7 : 0;

		if (load)
			php_image_load(&text,
				       f->name[0] == '(' ? PHP_IMAGE_BEFORE_THROW
							 : PHP_IMAGE_CURRENT,
				       threads);
		str_append(&text, f->code + load, f->n - load);
		if (f->name[0] == '(')
			continue;
		symbols[n++] = (Elf64_Sym){.st_name = (u32)names.n,
					   .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
					   .st_shndx = 1,
					   .st_value = PHP_IMAGE_TEXT + start,
					   .st_size = text.n - start};
		str_append(&names, f->name, strlen(f->name) + 1);
	}
	for (u32 i = 0; i < 2; i++) {
		const char *variable = i	 ? "zend_ce_generator"
				       : threads ? "executor_globals_offset"
						 : "executor_globals";
		u32 at = threads ? PHP_IMAGE_GLOBALS_OFFSET : PHP_IMAGE_GLOBALS;

		symbols[n++] = (Elf64_Sym){.st_name = (u32)names.n,
					   .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_OBJECT),
					   .st_shndx = 1,
					   .st_value = i ? PHP_IMAGE_GENERATOR_CLASS : at,
					   .st_size = 8};
		str_append(&names, variable, strlen(variable) + 1);
	}
	if (change)
		change((u8 *)text.data, text.n);
	elfw_section(w, ".text", SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR, PHP_IMAGE_TEXT, text.data,
		     text.n);
	elfw_section(w, ".rodata", SHT_PROGBITS, SHF_ALLOC, 0x4000, rodata, sizeof(rodata));
	elfw_section(w, ".dynsym", SHT_DYNSYM, 0, 0, symbols, n * sizeof(*symbols));
	elfw_section(w, ".dynstr", SHT_STRTAB, 0, 0, names.data, names.n);
	elfw_segment(w, PT_LOAD, PF_R | PF_X, PHP_IMAGE_TEXT, text.n, ".text");
	elfw_finish(w);
	str_deinit(&names);
	str_deinit(&text);
}
