/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Types of the language: their layout, and what BTF and C text say of them. All types of memory
 * have an id in one BTF: the kernel's, with the structs of the script split from it.
 */
#pragma once

#include <stdint.h>

#include "base/cleanup.h"
#include "base/diag.h"
#include "trace/trace.h"

struct btf;

struct trace_types {
	const struct btf *kernel; /* borrowed; NULL: none */
	struct btf *all;	  /* owned by the program: `kernel` and what the script defines */
	struct arena *arena;	  /* borrowed: nested types are in it */
	u32 max_string;		  /* bytes of str() */
};

/* A member: its type, and where it begins. */
struct trace_place_in {
	u32 btf;
	u32 bit_offset;
	u32 bits; /* of a bit field; 0: none */
};

int trace_types_init(struct trace_types *t, const struct btf *kernel, struct arena *a);
/* Adds the structs of a script. -EINVAL with a diag that has line and column. */
int trace_types_define(struct trace_types *t, const struct trace_script *s, struct diag *d);

/* The type of the BTF's id as a value. */
struct trace_type trace_type_of_btf(const struct trace_types *t, u32 id);
/* The BTF id of what a pointer points to, of an array's element; 0: not known (void). */
u32 trace_btf_bytes(const struct trace_types *t, u32 id);
/* Behind typedefs and const. */
u32 trace_btf_plain(const struct trace_types *t, u32 id);
/* "struct x", "uint32", for messages. */
const char *trace_btf_name(const struct trace_types *t, u32 id);
/* A member by name, also of anonymous members in it. -ENOENT: the diag says what there is. */
int trace_btf_member(const struct trace_types *t, u32 id, const char *name,
		     struct trace_place_in *ret, struct diag *d);
/* The id of a type in C: "struct sock", "uint32", "int *", "size_t". 0: there is none. */
u32 trace_btf_find(struct trace_types *t, const char *name);
/* A type that points to `id`; 0: out of memory. */
u32 trace_btf_pointer(struct trace_types *t, u32 id);
/* The type as written. -EINVAL with a diag. `type_of` must have been replaced. */
int trace_type_of_name(struct trace_types *t, const struct trace_type_name *n,
		       struct trace_type *ret, struct diag *d);
/* A constant of an enum of the BTF. */
bool trace_btf_constant(const struct trace_types *t, const char *name, s64 *ret, u32 *ret_enum);
/* The type of a field of a tracepoint. */
struct trace_type trace_type_of_field(struct trace_types *t, const struct trace_field *f,
				      bool is_user);

/* True if the value is one number: it fits into a register. */
bool trace_type_is_scalar(const struct trace_type *t);
bool trace_type_is_aggregation(const struct trace_type *t);
bool trace_type_is_memory(const struct trace_type *t); /* RECORD, ARRAY */
bool trace_type_same(const struct trace_type *a, const struct trace_type *b);
/* Of tuples with equally many fields: the fields have the same names, or none. */
bool trace_names_same(const struct trace_type *a, const struct trace_type *b);
/* "a string", "struct sock *": for messages, borrowed until the next call. */
const char *trace_type_text(const struct trace_types *t, const struct trace_type *type);
/* As printf() has it: an enum can be shown by its name. */
struct trace_type compile_shown(const struct trace_type *t);
struct trace_type trace_type_int(u32 bytes, bool is_signed);
struct trace_type trace_type_string(u32 bytes);
