/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parameters of functions: where they are when a function begins, against hand-made signatures and
 * the ABIs' rules; and what DWARF says of functions, against those of this program.
 */
#include <criterion/criterion.h>
#include <dwarf.h>
#include <elf.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>

#include "base/cleanup.h"
#include "elf/elf.h"
#include "symbol/signature.h"
#include "trace/signature.h"

/* ---- places ---- */

enum {
	VOID,
	UNKNOWN,
	INT,
	LONG,
	BOOL,
	CHAR,
	ENUM,
	POINTER,
	FLOAT,
	DOUBLE,
	LONG_DOUBLE,
	INT128,
	PAIR,	/* two longs */
	MIXED,	/* a double and a long */
	FLOATS, /* two floats */
	BIG,	/* five longs */
	OPAQUE, /* 16 bytes without known members */
	CLASS_VALUE,
	CLASS_REFERENCE,
	CLASS_NOT_SAID,
	CLASS_LARGE,
	GO_STRING,
};

static struct signature_type types[] = {
	[VOID] = {.kind = SIGNATURE_NONE, .name = "void"},
	[UNKNOWN] = {.kind = SIGNATURE_NONE, .name = ""},
	[INT] = {.kind = SIGNATURE_INT, .bytes = 4, .is_signed = true, .name = "int"},
	[LONG] = {.kind = SIGNATURE_INT, .bytes = 8, .is_signed = true, .name = "long"},
	[BOOL] = {.kind = SIGNATURE_BOOL, .bytes = 1, .name = "bool"},
	[CHAR] = {.kind = SIGNATURE_CHAR, .bytes = 1, .is_signed = true, .name = "char"},
	[ENUM] = {.kind = SIGNATURE_ENUM, .bytes = 4, .name = "e"},
	[POINTER] = {.kind = SIGNATURE_POINTER, .bytes = 8, .to = CHAR, .name = ""},
	[FLOAT] = {.kind = SIGNATURE_FLOAT, .bytes = 4, .name = "float"},
	[DOUBLE] = {.kind = SIGNATURE_FLOAT, .bytes = 8, .name = "double"},
	[LONG_DOUBLE] = {.kind = SIGNATURE_FLOAT, .bytes = 16, .name = "long double"},
	[INT128] = {.kind = SIGNATURE_INT, .bytes = 16, .name = "__int128"},
	[PAIR] = {.kind = SIGNATURE_RECORD, .bytes = 16, .first = 0, .n = 2, .name = "pair"},
	[MIXED] = {.kind = SIGNATURE_RECORD, .bytes = 16, .first = 2, .n = 2, .name = "mixed"},
	[FLOATS] = {.kind = SIGNATURE_RECORD, .bytes = 8, .first = 4, .n = 2, .name = "floats"},
	[BIG] = {.kind = SIGNATURE_RECORD, .bytes = 40, .first = 0, .n = 2, .name = "big"},
	[OPAQUE] = {.kind = SIGNATURE_RECORD, .bytes = 16, .name = "opaque"},
	[CLASS_VALUE] = {.kind = SIGNATURE_RECORD,
			 .bytes = 16,
			 .n = 2,
			 .is_class = true,
			 .passing = DW_CC_pass_by_value,
			 .name = "value"},
	[CLASS_REFERENCE] = {.kind = SIGNATURE_RECORD,
			     .bytes = 16,
			     .n = 2,
			     .is_class = true,
			     .passing = DW_CC_pass_by_reference,
			     .name = "reference"},
	[CLASS_NOT_SAID] =
		{.kind = SIGNATURE_RECORD, .bytes = 16, .n = 2, .is_class = true, .name = "old"},
	[CLASS_LARGE] =
		{.kind = SIGNATURE_RECORD, .bytes = 32, .n = 2, .is_class = true, .name = "large"},
	[GO_STRING] = {.kind = SIGNATURE_RECORD, .bytes = 16, .first = 6, .n = 2, .name = "string"},
};
static struct signature_member members[] = {
	{"a", LONG, 0, 0},  {"b", LONG, 64, 0},	 {"a", DOUBLE, 0, 0},	 {"b", LONG, 64, 0},
	{"a", FLOAT, 0, 0}, {"b", FLOAT, 32, 0}, {"str", POINTER, 0, 0}, {"len", LONG, 64, 0},
};

/* "r0 s1 -": registers, words of the stack, and nothing, of each parameter. */
static void check_places(u16 machine, u16 language, u32 result, const u32 *of, size_t n,
			 const char *expected)
{
	struct signature_parameter parameters[16] = {};
	struct signature s = {.language = language, .result = result};
	char text[128] = "";

	cr_assert(n <= ARRAY_SIZE(parameters));
	for (size_t i = 0; i < n; i++)
		parameters[i] = (struct signature_parameter){.name = "x", .type = of[i]};
	s.types.data = types;
	s.types.n = ARRAY_SIZE(types);
	s.members.data = members;
	s.members.n = ARRAY_SIZE(members);
	s.parameters.data = parameters;
	s.parameters.n = n;
	for (u32 i = 0; i < n; i++) {
		struct trace_parameter_place p = trace_parameter_place(&s, machine, i);
		size_t at = strlen(text);

		cr_assert(p.kind != TRACE_PLACE_NONE || (p.why && p.why[0]));
		snprintf(text + at, sizeof(text) - at,
			 p.kind == TRACE_PLACE_NONE ? "%s-" : "%s%c%u", i ? " " : "",
			 p.kind == TRACE_PLACE_STACK ? 's' : 'r', p.n);
	}
	cr_expect_str_eq(text, expected, "%s, not %s", text, expected);
}

#define CHECK(machine, language, result, expected, ...)                                            \
	check_places(machine, language, result, (const u32[]){__VA_ARGS__},                        \
		     ARRAY_SIZE(((const u32[]){__VA_ARGS__})), expected)
#define X86(expected, ...) CHECK(EM_X86_64, DW_LANG_C11, VOID, expected, __VA_ARGS__)
#define ARM(expected, ...) CHECK(EM_AARCH64, DW_LANG_C11, VOID, expected, __VA_ARGS__)
#define GO(expected, ...) CHECK(EM_X86_64, DW_LANG_Go, VOID, expected, __VA_ARGS__)

Test(signature, integers_are_in_registers_and_then_on_the_stack)
{
	X86("r0 r1 r2 r3 r4 r5 s0 s1", INT, LONG, BOOL, CHAR, ENUM, POINTER, INT, LONG);
	ARM("r0 r1 r2 r3 r4 r5 r6 r7 -", INT, LONG, BOOL, CHAR, ENUM, POINTER, INT, LONG, DOUBLE);
}

Test(signature, floating_point_numbers_take_no_register_of_integers)
{
	X86("r0 - r1 - r2", INT, DOUBLE, LONG, FLOAT, POINTER);
	ARM("r0 - r1 - r2", INT, DOUBLE, LONG, FLOAT, POINTER);
	/* The ninth one is on the stack, before the seventh integer. */
	X86("- - - - - - - - - r0 r1 r2 r3 r4 r5 s1", FLOAT, FLOAT, FLOAT, FLOAT, FLOAT, FLOAT,
	    FLOAT, FLOAT, FLOAT, INT, INT, INT, INT, INT, INT, INT);
	/* One of x87 is in two words of the stack. */
	X86("- r0 r1 r2 r3 r4 r5 s2", LONG_DOUBLE, INT, INT, INT, INT, INT, INT, INT);
}

Test(signature, structs_take_the_registers_of_their_words)
{
	X86("- r2", PAIR, INT);
	X86("- r1", MIXED, INT);
	X86("- r0", FLOATS, INT);
	ARM("- r2", PAIR, INT);
	/* One that does not fit is on the stack, and leaves the registers to those behind it. */
	X86("r0 r1 r2 r3 r4 - r5 s2", INT, INT, INT, INT, INT, PAIR, INT, INT);
}

Test(signature, large_structs_are_in_memory)
{
	X86("- r0", BIG, INT);
	X86("- r0 r1 r2 r3 r4 r5 s5", BIG, INT, INT, INT, INT, INT, INT, INT);
	ARM("- r1", BIG, INT);
	CHECK(EM_X86_64, DW_LANG_C11, BIG, "r1 r2", INT, INT);
	CHECK(EM_X86_64, DW_LANG_C11, PAIR, "r0 r1", INT, INT);
	CHECK(EM_AARCH64, DW_LANG_C11, BIG, "r0 r1", INT, INT);
}

Test(signature, classes_are_passed_as_they_say)
{
	CHECK(EM_X86_64, DW_LANG_C_plus_plus_14, VOID, "r0 - r3", POINTER, CLASS_VALUE, INT);
	CHECK(EM_X86_64, DW_LANG_C_plus_plus_14, VOID, "r0 - r2", POINTER, CLASS_REFERENCE, INT);
	CHECK(EM_X86_64, DW_LANG_C_plus_plus_14, CLASS_REFERENCE, "r1 r2", POINTER, INT);
	CHECK(EM_X86_64, DW_LANG_C_plus_plus_14, CLASS_VALUE, "r0 r1", POINTER, INT);
	CHECK(EM_X86_64, DW_LANG_C_plus_plus_14, CLASS_LARGE, "r1 r2", POINTER, INT);
}

Test(signature, what_is_not_sure_has_no_place_nor_has_what_follows)
{
	X86("r0 - -", INT, OPAQUE, INT);
	X86("r0 - -", INT, INT128, INT);
	X86("r0 - -", INT, UNKNOWN, INT);
	X86("r0 - -", INT, CLASS_NOT_SAID, INT);
	ARM("r0 - -", INT, FLOATS, INT);
	CHECK(EM_X86_64, DW_LANG_C11, UNKNOWN, "-", INT);
	CHECK(EM_X86_64, DW_LANG_C_plus_plus_14, CLASS_NOT_SAID, "-", INT);
}

Test(signature, a_changed_function_has_no_places)
{
	struct signature_parameter parameter = {.name = "x", .type = INT};
	struct signature s = {.language = DW_LANG_C11, .is_changed = true};

	s.types.data = types;
	s.types.n = ARRAY_SIZE(types);
	s.parameters.data = &parameter;
	s.parameters.n = 1;
	cr_expect_eq(trace_parameter_place(&s, EM_X86_64, 0).kind, TRACE_PLACE_NONE);
}

Test(signature, go_has_nine_registers_and_strings_take_two)
{
	GO("r0 r1 r3 - r4", INT, GO_STRING, BOOL, DOUBLE, POINTER);
	GO("r0 r1 r2 r3 r4 r5 r6 r7 r8 -", INT, INT, INT, INT, INT, INT, INT, INT, INT, INT);
	/* A string is never split; the register that is left is for the next one. */
	GO("r0 r1 r2 r3 r4 r5 r6 r7 - r8", INT, INT, INT, INT, INT, INT, INT, INT, GO_STRING, INT);
	cr_expect_str_eq(trace_go_register(EM_X86_64, 1), "bx");
	cr_expect_str_eq(trace_go_register(EM_X86_64, 8), "r11");
	cr_expect_null(trace_go_register(EM_X86_64, 9));
}

/* ---- DWARF: functions of this program ---- */

extern char __executable_start[];

enum shade { DARK = -3, LIGHT = 4 };
struct shape {
	short width;
	unsigned int low : 3, high : 5;
	union {
		long all;
		char part[8];
	};
};
typedef const struct shape *shape_ref;

__attribute__((noinline, used)) static unsigned short
measured(bool yes, const char *text, shape_ref shape, enum shade shade, double ratio)
{
	__asm__ volatile("" ::: "memory");
	return (unsigned short)(yes + text[0] + shape->width + (int)shade + (int)ratio);
}

static void read_own(const void *function, struct signatures **ret, struct elf_file **ret_elf,
		     struct signature *s)
{
	static const struct debugfile_place place = {.root_fd = -1, .path = "/proc/self/exe"};
	struct diag d = {};
	u64 svma;

	cr_assert_eq(elf_file_open(open("/proc/self/exe", O_RDONLY | O_CLOEXEC), &d, ret_elf), 0,
		     "%s", d.text);
	svma = (u64)function - ((*ret_elf)->type == ET_DYN ? (u64)__executable_start : 0);
	cr_assert_eq(signatures_open(*ret_elf, &place, ret), 0);
	cr_assert_eq(signatures_read(*ret, svma, s), 0);
}

static const struct signature_type *type_of(const struct signature *s, u32 parameter)
{
	return &s->types.data[s->parameters.data[parameter].type];
}

Test(signature, dwarf_has_names_and_types)
{
	static const char *const names[] = {"yes", "text", "shape", "shade", "ratio"};
	static const u8 kinds[] = {SIGNATURE_BOOL, SIGNATURE_POINTER, SIGNATURE_POINTER,
				   SIGNATURE_ENUM, SIGNATURE_FLOAT};
	static const u32 bytes[] = {1, 8, 8, 4, 8};
	struct signatures *all;
	struct signature s = {};
	struct elf_file *elf;

	read_own((const void *)measured, &all, &elf, &s);
	cr_assert_eq(s.parameters.n, ARRAY_SIZE(names));
	for (u32 i = 0; i < ARRAY_SIZE(names); i++) {
		cr_expect_str_eq(s.parameters.data[i].name, names[i]);
		cr_expect_eq(type_of(&s, i)->kind, kinds[i], "%s", names[i]);
		cr_expect_eq(type_of(&s, i)->bytes, bytes[i], "%s", names[i]);
	}
	cr_expect_eq(s.types.data[type_of(&s, 1)->to].kind, SIGNATURE_CHAR);
	cr_expect_eq(s.types.data[s.result].kind, SIGNATURE_INT);
	cr_expect_eq(s.types.data[s.result].bytes, 2);
	cr_expect(!s.types.data[s.result].is_signed);
	signature_deinit(&s);
	signatures_close(all);
	elf_file_destroy(elf);
}

Test(signature, dwarf_has_members_and_constants)
{
	const struct signature_type *shape, *shade, *inner;
	const struct signature_member *m;
	struct signatures *all;
	struct signature s = {};
	struct elf_file *elf;

	read_own((const void *)measured, &all, &elf, &s);
	shape = &s.types.data[type_of(&s, 2)->to];
	cr_assert_eq(shape->kind, SIGNATURE_RECORD);
	cr_assert_eq(shape->n, 4);
	cr_expect_eq(shape->bytes, sizeof(struct shape));
	m = &s.members.data[shape->first];
	cr_expect_str_eq(m[0].name, "width");
	cr_expect(m[0].bit_offset == 0 && m[0].bits == 0);
	cr_expect_str_eq(m[2].name, "high");
	cr_expect(m[2].bits == 5 && m[2].bit_offset == m[1].bit_offset + 3);
	cr_expect_str_eq(m[3].name, "");
	cr_expect_eq(m[3].bit_offset, 8 * offsetof(struct shape, all));
	inner = &s.types.data[m[3].type];
	cr_expect(inner->is_union && inner->n == 2);
	cr_expect_eq(s.types.data[s.members.data[inner->first + 1].type].n, 8);
	shade = type_of(&s, 3);
	cr_assert_eq(shade->n, 2);
	cr_expect_str_eq(s.constants.data[shade->first].name, "DARK");
	cr_expect_eq(s.constants.data[shade->first].value, -3);
	cr_expect_eq(s.constants.data[shade->first + 1].value, 4);
	signature_deinit(&s);
	signatures_close(all);
	elf_file_destroy(elf);
}

Test(signature, an_address_within_a_function_begins_none)
{
	struct signatures *all;
	struct signature s = {}, none = {};
	struct elf_file *elf;
	u64 svma;

	read_own((const void *)measured, &all, &elf, &s);
	svma = (u64)measured - (elf->type == ET_DYN ? (u64)__executable_start : 0);
	cr_expect_eq(signatures_read(all, svma + 1, &none), -ENOENT);
	signature_deinit(&none);
	signature_deinit(&s);
	signatures_close(all);
	elf_file_destroy(elf);
}
