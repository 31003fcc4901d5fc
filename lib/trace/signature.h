/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters of functions of programs (symbol/signature.h) in the language. */
#pragma once

#include "symbol/signature.h"
#include "trace/types.h"

/* Where a parameter is when the function begins. */
struct trace_parameter_place {
	enum {
		TRACE_PLACE_NONE,     /* it cannot be read: `why` */
		TRACE_PLACE_REGISTER, /* number n of the registers of integers */
		TRACE_PLACE_STACK,    /* word n of the arguments on the stack */
	} kind;
	u32 n;
	bool is_go_string; /* the pointer is in register n, the length in the next one */
	const char *why;
};

/* `machine` is EM_X86_64 or EM_AARCH64. */
struct trace_parameter_place trace_parameter_place(const struct signature *s, u16 machine, u32 n);
/* The name of the register that Go uses as number n for integers; NULL: it has none. */
const char *trace_go_register(u16 machine, u32 n);
/* Adds the types of a signature to the script's. */
int trace_signature_add(struct trace_types *t, const struct signature *s, u32 *ret_base);
/* The BTF id of a type of a signature that has been added; 0: void. */
u32 trace_signature_btf(u32 type, u32 base);
