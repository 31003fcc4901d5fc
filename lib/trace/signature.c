/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parameters of functions of programs: where they are when the function begins, and their types.
 *
 * Places follow the ABIs: "System V ABI, AMD64 supplement" 3.2.3, "Procedure Call Standard for the
 * Arm 64-bit Architecture" 6.8.2, and "Go internal ABI specification" (abi-internal.md). A
 * parameter whose place cannot be known for sure, and all that may depend on it, have none.
 */
#include <bpf/btf.h>
#include <dwarf.h>
#include <elf.h>
#include <errno.h>
#include <string.h>

#include "trace/compile.h"
#include "trace/signature.h"

#define MAX_DEPTH 8 /* of structs in structs */

/* What is left of the registers. */
struct registers {
	u32 next, n;		 /* of integers */
	u32 next_float, n_float; /* of floating-point numbers */
	u32 stack;		 /* words on the stack so far */
	const char *unsure;	 /* why all from here on have no place; NULL: they have */
};

/* How many words of a type are integers, and how many floating-point numbers. */
struct shape {
	u32 words, floats;
	bool is_memory; /* it is passed in memory, or by its address */
	bool is_unsure;
};

static struct trace_parameter_place nowhere(const char *why)
{
	return (struct trace_parameter_place){.kind = TRACE_PLACE_NONE, .why = why};
}

static struct trace_parameter_place take_register(struct registers *r)
{
	if (r->next < r->n)
		return (struct trace_parameter_place){.kind = TRACE_PLACE_REGISTER, .n = r->next++};
	return (struct trace_parameter_place){.kind = TRACE_PLACE_STACK, .n = r->stack++};
}

/* ---- structs in registers ---- */

/* Marks the eight-byte words of a struct that have integers in `integers`, all in `used`. */
static void mark_words(const struct signature *s, u32 type, u32 at, u32 depth, u32 *used,
		       u32 *integers, bool *unsure)
{
	const struct signature_type *t = &s->types.data[type];
	u32 bit = 1U << MIN(at / 8, 31u);

	switch (t->kind) {
	case SIGNATURE_RECORD:
		for (u32 i = 0; i < t->n && depth < MAX_DEPTH; i++) {
			const struct signature_member *m = &s->members.data[t->first + i];

			mark_words(s, m->type, at + m->bit_offset / 8, depth + 1, used, integers,
				   unsure);
		}
		*unsure |= depth >= MAX_DEPTH || !t->n;
		return;
	case SIGNATURE_ARRAY:
		for (u32 i = 0; i < t->n && i < 16 && depth < MAX_DEPTH; i++)
			mark_words(s, t->to, at + i * s->types.data[t->to].bytes, depth + 1, used,
				   integers, unsure);
		*unsure |= depth >= MAX_DEPTH || !t->n;
		return;
	case SIGNATURE_NONE:
		*unsure = true;
		return;
	case SIGNATURE_FLOAT:
		*unsure |= t->bytes > 8;
		*used |= bit;
		return;
	default:
		*unsure |= t->bytes > 8;
		*used |= bit;
		*integers |= bit;
	}
}

static struct shape shape_of(const struct signature *s, const struct signature_type *t)
{
	struct shape shape = {.words = (t->bytes + 7) / 8};
	u32 used = 0, integers = 0;

	if (t->bytes > 16) {
		shape.is_memory = true;
		return shape;
	}
	mark_words(s, (u32)(t - s->types.data), 0, 0, &used, &integers, &shape.is_unsure);
	shape.floats = (u32)__builtin_popcount(used & ~integers);
	shape.is_unsure |= !t->bytes || (u32)__builtin_popcount(used) != shape.words;
	return shape;
}

/* A class with a copy constructor or destructor of its own is passed by its address. */
static const char *passing_of(const struct signature_type *t, bool *ret_by_address)
{
	*ret_by_address = t->passing == DW_CC_pass_by_reference;
	if (t->is_class && !t->passing)
		return "how a class before it is passed is not known";
	return NULL;
}

static struct trace_parameter_place take_record(const struct signature *s, u16 machine,
						struct registers *r, const struct signature_type *t)
{
	struct shape shape = shape_of(s, t);
	bool by_address, fits;

	r->unsure = passing_of(t, &by_address);
	if (by_address || (machine == EM_AARCH64 && shape.is_memory && !r->unsure)) {
		(void)take_register(r);
		return nowhere("it is a struct");
	}
	if (shape.is_memory) {
		r->stack += shape.words;
		return nowhere("it is a struct");
	}
	if (shape.is_unsure || (machine == EM_AARCH64 && shape.floats)) {
		r->unsure = "how a struct before it is passed is not known";
		return nowhere("it is a struct");
	}
	fits = r->next + shape.words - shape.floats <= r->n &&
	       r->next_float + shape.floats <= r->n_float;
	if (fits) {
		r->next += shape.words - shape.floats;
		r->next_float += shape.floats;
	} else {
		r->stack += shape.words;
		if (machine == EM_AARCH64)
			r->next = r->n;
	}
	return nowhere("it is a struct");
}

static struct trace_parameter_place take_float(u16 machine, struct registers *r,
					       const struct signature_type *t)
{
	if (t->bytes > 8 && machine != EM_AARCH64)
		r->stack += 2; /* long double of x87 */
	else if (r->next_float < r->n_float)
		r->next_float++;
	else
		r->stack += t->bytes > 8 ? 2 : 1;
	return nowhere("it is a floating-point number");
}

static struct trace_parameter_place take_parameter(const struct signature *s, u16 machine,
						   struct registers *r, u32 type)
{
	const struct signature_type *t = &s->types.data[type];

	if (r->unsure)
		return nowhere(r->unsure);
	switch (t->kind) {
	case SIGNATURE_FLOAT:
		return take_float(machine, r, t);
	case SIGNATURE_RECORD:
		return take_record(s, machine, r, t);
	case SIGNATURE_NONE:
	case SIGNATURE_ARRAY:
		r->unsure = "the type of a parameter before it is not known";
		return nowhere("its type is not known");
	default:
		if (t->bytes <= 8)
			return take_register(r);
		r->unsure = "how an integer of 128 bits before it is passed is not known";
		return nowhere("it has 128 bits");
	}
}

/* x86-64: a result in memory is where the first, hidden parameter says. */
static void take_result(const struct signature *s, u16 machine, struct registers *r)
{
	const struct signature_type *t = &s->types.data[s->result];
	bool by_address;

	if (t->kind == SIGNATURE_NONE && s->result == SIGNATURE_UNKNOWN)
		r->unsure = "the type of the function's result is not known";
	if (t->kind != SIGNATURE_RECORD || machine == EM_AARCH64)
		return;
	/* A large one is in memory, however it is passed. */
	r->unsure = passing_of(t, &by_address);
	if (shape_of(s, t).is_memory)
		r->unsure = NULL;
	if (by_address || shape_of(s, t).is_memory)
		(void)take_register(r);
	else if (shape_of(s, t).is_unsure)
		r->unsure = "how the function's result is passed is not known";
}

/* ---- Go ---- */

/* The registers that a type takes. False: it is passed on the stack. */
static bool go_words(const struct signature *s, u32 type, u32 depth, u32 *words, u32 *floats)
{
	const struct signature_type *t = &s->types.data[type];

	switch (t->kind) {
	case SIGNATURE_RECORD:
		for (u32 i = 0; i < t->n; i++)
			if (depth >= MAX_DEPTH || !go_words(s, s->members.data[t->first + i].type,
							    depth + 1, words, floats))
				return false;
		return true;
	case SIGNATURE_ARRAY:
		if (t->n > 1 || depth >= MAX_DEPTH)
			return false;
		return !t->n || go_words(s, t->to, depth + 1, words, floats);
	case SIGNATURE_FLOAT:
		++*floats;
		return true;
	case SIGNATURE_NONE: /* maps, functions and channels are pointers */
	default:
		++*words;
		return true;
	}
}

static struct trace_parameter_place take_go(const struct signature *s, struct registers *r,
					    u32 type)
{
	const struct signature_type *t = &s->types.data[type];
	struct trace_parameter_place place = {.kind = TRACE_PLACE_REGISTER, .n = r->next};
	u32 words = 0, floats = 0;

	if (!go_words(s, type, 0, &words, &floats) || r->next + words > r->n ||
	    r->next_float + floats > r->n_float)
		return nowhere("it is not passed in registers");
	r->next += words;
	r->next_float += floats;
	if (t->kind == SIGNATURE_RECORD && strcmp(t->name, "string") == 0 && words == 2)
		place.is_go_string = true;
	else if (floats || words != 1 || t->kind == SIGNATURE_RECORD || t->kind == SIGNATURE_ARRAY)
		return nowhere(floats ? "it is a floating-point number" : "it is a struct");
	return place;
}

static const char *const go_registers_x86[] = {"ax", "bx", "cx",  "di", "si",
					       "r8", "r9", "r10", "r11"};
static const char *const go_registers_arm64[] = {"r0",	"r1",  "r2",  "r3", "r4",  "r5",
						 "r6",	"r7",  "r8",  "r9", "r10", "r11",
						 "r12", "r13", "r14", "r15"};

const char *trace_go_register(u16 machine, u32 n)
{
	if (machine == EM_AARCH64)
		return n < ARRAY_SIZE(go_registers_arm64) ? go_registers_arm64[n] : NULL;
	return n < ARRAY_SIZE(go_registers_x86) ? go_registers_x86[n] : NULL;
}

/* ---- all ---- */

struct trace_parameter_place trace_parameter_place(const struct signature *s, u16 machine, u32 n)
{
	bool is_go = s->language == DW_LANG_Go, is_arm64 = machine == EM_AARCH64;
	struct registers r = {.n = is_go ? (is_arm64 ? 16 : 9) : (is_arm64 ? 8 : 6),
			      .n_float = is_go ? (is_arm64 ? 16 : 15) : 8};
	struct trace_parameter_place place = nowhere("");

	if (s->is_changed)
		return nowhere("the compiler has changed how the function is called");
	if (!is_go)
		take_result(s, machine, &r);
	for (u32 i = 0; i <= n && i < s->parameters.n; i++) {
		const struct signature_parameter *p = &s->parameters.data[i];

		if (p->is_result)
			place = nowhere("it is a result");
		else
			place = is_go ? take_go(s, &r, p->type)
				      : take_parameter(s, machine, &r, p->type);
	}
	return place;
}

/* ---- types ---- */

static int add_record(struct btf *b, const struct signature *s, const struct signature_type *t,
		      u32 base)
{
	s32 id = t->is_union ? btf__add_union(b, t->name, t->bytes)
			     : btf__add_struct(b, t->name, t->bytes);

	for (u32 i = 0; i < t->n && id > 0; i++) {
		const struct signature_member *m = &s->members.data[t->first + i];
		int r = btf__add_field(b, m->name, (s32)trace_signature_btf(m->type, base),
				       m->bit_offset, (u8)m->bits);

		/* What BTF cannot hold, such as a bit field at a large offset, is left out. */
		if (r < 0 && r != -EINVAL)
			return r;
	}
	return id;
}

static int add_enum(struct btf *b, const struct signature *s, const struct signature_type *t)
{
	s32 id;

	if (t->bytes && t->bytes < 4)
		return btf__add_int(b, t->name[0] ? t->name : "enum", t->bytes,
				    t->is_signed ? BTF_INT_SIGNED : 0);
	id = btf__add_enum64(b, t->name, t->bytes == 8 ? 8 : 4, t->is_signed);
	for (u32 i = 0; i < t->n && id > 0; i++) {
		const struct signature_constant *k = &s->constants.data[t->first + i];
		int r = btf__add_enum64_value(b, k->name, (u64)k->value);

		if (r < 0 && r != -EINVAL)
			return r;
	}
	return id;
}

/* Each type of the signature is one of the BTF, in their order. */
static int add_type(struct btf *b, const struct signature *s, const struct signature_type *t,
		    u32 base)
{
	bool is_power = t->bytes && t->bytes <= 16 && !(t->bytes & (t->bytes - 1));
	const char *name = t->name[0] ? t->name : "unnamed";

	switch (t->kind) {
	case SIGNATURE_INT:
	case SIGNATURE_BOOL:
		if (is_power)
			return btf__add_int(b, name, t->bytes, t->is_signed ? BTF_INT_SIGNED : 0);
		break;
	case SIGNATURE_CHAR:
		return btf__add_int(b, "char", 1, t->is_signed ? BTF_INT_SIGNED : 0);
	case SIGNATURE_FLOAT:
		if (is_power)
			return btf__add_float(b, name, t->bytes);
		break;
	case SIGNATURE_ENUM:
		return add_enum(b, s, t);
	case SIGNATURE_POINTER:
		return btf__add_ptr(b, (s32)trace_signature_btf(t->to, base));
	case SIGNATURE_RECORD:
		return add_record(b, s, t, base);
	case SIGNATURE_ARRAY:
		return btf__add_array(b, 1, (s32)trace_signature_btf(t->to, base), t->n);
	default:
		break;
	}
	return btf__add_fwd(b, name, BTF_FWD_STRUCT);
}

int trace_signature_add(struct trace_types *t, const struct signature *s, u32 *ret_base)
{
	u32 base = btf__type_cnt(t->all);

	for (size_t i = 2; i < s->types.n; i++) {
		int r = add_type(t->all, s, &s->types.data[i], base);

		if (r < 0)
			return r;
		if ((u32)r != base + (u32)i - 2)
			return -EINVAL;
	}
	*ret_base = base;
	return 0;
}

u32 trace_signature_btf(u32 type, u32 base)
{
	return type < 2 ? 0 : base + type - 2;
}
