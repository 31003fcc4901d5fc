/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parameters and the result of a function by DWARF, and the types that they lead to.
 */
#pragma once

#include "base/types.h"
#include "base/vec.h"
#include "elf/elf.h"
#include "symbol/debugfile.h"

#define SIGNATURE_VOID 0    /* index of types: also of what there was no room for */
#define SIGNATURE_UNKNOWN 1 /* a type that is not understood */

enum signature_kind {
	SIGNATURE_NONE, /* void, unknown, or a struct whose members are not known */
	SIGNATURE_INT,
	SIGNATURE_CHAR, /* an integer of a byte that is a character */
	SIGNATURE_BOOL,
	SIGNATURE_FLOAT,
	SIGNATURE_ENUM,
	SIGNATURE_POINTER, /* references of C++, too */
	SIGNATURE_RECORD,
	SIGNATURE_ARRAY,
};

struct signature_type {
	u8 kind; /* enum signature_kind */
	bool is_signed;
	bool is_union;
	bool is_class;	  /* of C++: it may be passed by its address */
	u8 passing;	  /* RECORD of C++: DW_CC_pass_by_reference or _value; 0: not said */
	u32 bytes;	  /* 0: not known */
	const char *name; /* "" if it has none */
	u32 to;		  /* POINTER, ARRAY: what it points to, its elements */
	u32 first, n;	  /* RECORD: members; ENUM: constants; ARRAY: n elements */
};

struct signature_member {
	const char *name; /* "": of an anonymous struct, or a base class */
	u32 type;
	u32 bit_offset;
	u32 bits; /* of a bit field; 0: none */
};

struct signature_parameter {
	const char *name; /* "" if it has none */
	u32 type;
	bool is_result; /* Go: DWARF lists results as parameters */
};

struct signature {
	vec(struct signature_type) types;
	vec(struct signature_member) members;
	vec(struct signature_constant {
		const char *name;
		s64 value;
	}) constants;
	vec(struct signature_parameter) parameters;
	u32 result;
	u16 language;
	bool is_changed; /* the compiler says that it is not called as the ABI has it */
};

struct signatures;

/*
 * Of the functions that `elf` has debug information for. `elf` and the texts of `place`, which is
 * where `elf` is, are borrowed until signatures_close(). -ENOENT: it has none.
 */
int signatures_open(struct elf_file *elf, const struct debugfile_place *place,
		    struct signatures **ret);
void signatures_close(struct signatures *s);
/*
 * Of the function that begins at svma; texts live until signatures_close(). `ret` must be empty;
 * after a failure, too, signature_deinit() frees it. -ENOENT: there is no such function.
 */
int signatures_read(struct signatures *s, u64 svma, struct signature *ret);
void signature_deinit(struct signature *s);

/*
 * Where a line of source begins: the first address of its statements in each function, and in each
 * copy of a function that was inlined. `file` is the end of a path. -ENOENT: it has no code;
 * *ret_next is the next line that has, or 0: there is no such file, or none behind it.
 */
typedef vec(u64) signature_places;
int signatures_line(struct signatures *s, const char *file, u32 line, signature_places *ret,
		    u32 *ret_next);
