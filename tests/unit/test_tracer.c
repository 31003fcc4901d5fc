/* SPDX-License-Identifier: Apache-2.0 */
/* USDT notes and operands, and the format files of tracepoints, as agent/tracer reads them. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/tracer/internal.h"
#include "agent/tracer/usdt.h"
#include "base/arena.h"

/* ---- notes ---- */

/* Appends a note as <sys/sdt.h> makes it. Returns the end. */
static size_t put_note(u8 *to, const char *owner, u32 type, u64 location, u64 base, u64 semaphore,
		       const char *texts, size_t n_texts)
{
	u32 head[3] = {(u32)strlen(owner) + 1, (u32)(24 + n_texts), type};
	u64 addresses[3] = {location, base, semaphore};
	size_t n = sizeof(head);

	memcpy(to, head, sizeof(head));
	memset(to + n, 0, (head[0] + 3) & ~3u);
	memcpy(to + n, owner, head[0]);
	n += (head[0] + 3) & ~3u;
	memcpy(to + n, addresses, sizeof(addresses));
	memcpy(to + n + sizeof(addresses), texts, n_texts);
	memset(to + n + head[1], 0, 3);
	return n + ((head[1] + 3) & ~3u);
}

#define STEP "demo\0step\0-4@%edi 8@$5"

Test(tracer, usdt_notes)
{
	u8 bytes[512];
	size_t n = 0;
	usdt_probes probes = {};

	n += put_note(bytes + n, "stapsdt", 3, 0x1000, 0x2000, 0x3000, STEP, sizeof(STEP));
	n += put_note(bytes + n, "GNU", 3, 1, 2, 3, STEP, sizeof(STEP));
	n += put_note(bytes + n, "stapsdt", 3, 0x1010, 0x2000, 0, "a\0b\0", 5);
	cr_assert_eq(usdt_parse(buf_of(bytes, n), 0x2100, &probes), 0);
	cr_assert_eq(probes.n, 2);
	cr_assert_str_eq(probes.data[0].provider, "demo");
	cr_assert_str_eq(probes.data[0].name, "step");
	cr_assert_str_eq(probes.data[0].arguments, "-4@%edi 8@$5");
	/* What a prelinker moved .stapsdt.base by. */
	cr_assert_eq(probes.data[0].svma, 0x1100);
	cr_assert_eq(probes.data[0].semaphore, 0x3100);
	cr_assert_eq(probes.data[1].svma, 0x1110);
	cr_assert_eq(probes.data[1].semaphore, 0);
	cr_assert_str_eq(probes.data[1].arguments, "");
	vec_deinit(&probes);
}

Test(tracer, usdt_notes_are_as_long_as_they_say)
{
	u8 bytes[512];
	size_t n = put_note(bytes, "stapsdt", 3, 1, 2, 3, STEP, sizeof(STEP)), first = n;

	n += put_note(bytes + n, "stapsdt", 3, 1, 2, 3, STEP, sizeof(STEP));
	for (size_t cut = 0; cut <= n; cut++) {
		_cleanup_free_ u8 *copy = malloc(cut + 1);
		usdt_probes probes = {};
		int r;

		memcpy(copy, bytes, cut);
		r = usdt_parse(buf_of(copy, cut), 0, &probes);
		cr_assert_leq(probes.n, cut / first + (cut >= first - 3) + 1);
		if (cut == n)
			cr_assert(r == 0 && probes.n == 2);
		if (cut % first && cut % first < first - 3)
			cr_assert_eq(r, -EINVAL, "cut at %zu", cut);
		vec_deinit(&probes);
	}
}

/* ---- operands ---- */

struct operand_case {
	u16 machine;
	char text[48];
	struct trace_usdt_argument want;
};

static int find_symbol(void *arg, const char *name, u64 *ret)
{
	(void)arg;
	if (strcmp(name, "counter") != 0)
		return -ENOENT;
	*ret = 0x4000;
	return 0;
}

#define UNREADABLE                                                                                 \
	{                                                                                          \
		.bytes = 8, .kind = USDT_UNREADABLE                                                \
	}

/* The registers' places are those of struct pt_regs: arch/x86/include/asm/ptrace.h. */
ParameterizedTestParameters(tracer, usdt_operands)
{
	static struct operand_case cases[] = {
		{EM_X86_64, "-4@%edi", {.bytes = -4, .kind = 1, .base = 14}},
		{EM_X86_64, "8@%r15", {.bytes = 8, .kind = 1, .base = 0}},
		{EM_X86_64, "1@%sil", {.bytes = 1, .kind = 1, .base = 13}},
		{EM_X86_64, "-2@%r9w", {.bytes = -2, .kind = 1, .base = 8}},
		{EM_X86_64, "8@-16(%rbp)", {.bytes = 8, .kind = 2, .base = 4, .offset = -16}},
		{EM_X86_64, "4@(%rsp)", {.bytes = 4, .kind = 2, .base = 19}},
		{EM_X86_64, "8@0x10(%rax)", {.bytes = 8, .kind = 2, .base = 10, .offset = 16}},
		{EM_X86_64,
		 "8@8(%rdx,%rcx,4)",
		 {.bytes = 8, .kind = 3, .base = 12, .index = 11, .scale = 4, .offset = 8}},
		{EM_X86_64,
		 "8@(%rdx,%rcx)",
		 {.bytes = 8, .kind = 3, .base = 12, .index = 11, .scale = 1}},
		{EM_X86_64, "-4@$-1", {.bytes = -4, .kind = 0, .offset = -1}},
		{EM_X86_64, "4@$77", {.bytes = 4, .kind = 0, .offset = 77}},
		{EM_X86_64,
		 "4@counter(%rip)",
		 {.bytes = 4, .kind = 2, .base = 16, .offset = 0x3000}},
		{EM_X86_64,
		 "4@counter+8(%rip)",
		 {.bytes = 4, .kind = 2, .base = 16, .offset = 0x3008}},
		{EM_X86_64, "4@nobody(%rip)", UNREADABLE},
		{EM_X86_64, "8f@%xmm0", UNREADABLE},
		{EM_X86_64, "3@%edi", UNREADABLE},
		{EM_X86_64, "8@8(%rdx,%rcx,3)", UNREADABLE},
		{EM_X86_64, "8@8(%rdx", UNREADABLE},
		{EM_X86_64, "8@99999999999999999999(%rdx)", UNREADABLE},
		{EM_AARCH64, "-4@w0", {.bytes = -4, .kind = 1, .base = 0}},
		{EM_AARCH64, "8@x30", {.bytes = 8, .kind = 1, .base = 30}},
		{EM_AARCH64, "8@[sp, 16]", {.bytes = 8, .kind = 2, .base = 31, .offset = 16}},
		{EM_AARCH64, "8@[sp, #16]", {.bytes = 8, .kind = 2, .base = 31, .offset = 16}},
		{EM_AARCH64, "4@[x19]", {.bytes = 4, .kind = 2, .base = 19}},
		{EM_AARCH64,
		 "4@[x1, x2]",
		 {.bytes = 4, .kind = 3, .base = 1, .index = 2, .scale = 1}},
		{EM_AARCH64, "-4@5", {.bytes = -4, .kind = 0, .offset = 5}},
		{EM_AARCH64, "4@wzr", {.bytes = 4, .kind = 0}},
		{EM_AARCH64, "8@x31", UNREADABLE},
	};

	return cr_make_param_array(struct operand_case, cases, ARRAY_SIZE(cases));
}

static bool same_argument(const struct trace_usdt_argument *a, const struct trace_usdt_argument *b)
{
	return a->bytes == b->bytes && a->kind == b->kind && a->base == b->base &&
	       a->index == b->index && a->scale == b->scale && a->offset == b->offset;
}

ParameterizedTest(struct operand_case *c, tracer, usdt_operands)
{
	char text[128];
	struct usdt_probe p = {.arguments = text, .svma = 0x1000};
	struct trace_usdt_argument got[USDT_MAX_ARGUMENTS];

	/* Between two others, which must be found, too. */
	snprintf(text, sizeof(text), "4@%s %s 4@%s", c->machine == EM_X86_64 ? "$1" : "1", c->text,
		 c->machine == EM_X86_64 ? "$2" : "2");
	cr_assert_eq(usdt_arguments(&p, c->machine, find_symbol, NULL, got), 3, "%s", text);
	cr_assert_eq(got[0].offset, 1);
	cr_assert_eq(got[2].offset, 2);
	cr_assert(same_argument(&got[1], &c->want),
		  "%s: bytes %d kind %u base %u index %u scale %u offset %lld", c->text,
		  got[1].bytes, got[1].kind, got[1].base, got[1].index, got[1].scale,
		  got[1].offset);
}

Test(tracer, usdt_arguments_are_bounded)
{
	char text[256] = "";
	struct usdt_probe p = {.arguments = text};
	struct trace_usdt_argument got[USDT_MAX_ARGUMENTS];

	for (u32 i = 0; i < 40; i++)
		strncat(text, "4@$1 ", sizeof(text) - strlen(text) - 1);
	cr_assert_eq(usdt_arguments(&p, EM_X86_64, NULL, NULL, got), USDT_MAX_ARGUMENTS);
	memset(text, 'x', sizeof(text) - 1);
	cr_assert_leq(usdt_arguments(&p, EM_X86_64, NULL, NULL, got), 1);
	text[0] = '\0';
	cr_assert_eq(usdt_arguments(&p, EM_X86_64, NULL, NULL, got), 0);
}

/* ---- format files ---- */

static const char format[] =
	"name: sched_switch\nID: 372\nformat:\n"
	"\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n"
	"\tfield:char prev_comm[16];\toffset:8;\tsize:16;\tsigned:0;\n"
	"\tfield:pid_t prev_pid;\toffset:24;\tsize:4;\tsigned:1;\n"
	"\tfield:const char * filename;\toffset:32;\tsize:8;\tsigned:0;\n"
	"\tfield:__data_loc char[] name;\toffset:40;\tsize:4;\tsigned:0;\n"
	"\tfield:unsigned long args[6];\toffset:48;\tsize:48;\tsigned:0;\n"
	"\tfield:broken;\toffset:48;\tsize:48;\n"
	"\nprint fmt: \"prev_comm=%s\", REC->prev_comm\n";

Test(tracer, fields_of_a_format_file)
{
	static const struct trace_field want[] = {
		{"common_type", "unsigned short", 0, 2, false, false, 0},
		{"prev_comm", "char[16]", 8, 16, false, false, 0},
		{"prev_pid", "pid_t", 24, 4, true, false, 0},
		{"filename", "const char *", 32, 8, false, false, 0},
		{"name", "__data_loc char[]", 40, 4, false, true, 0},
		{"args", "unsigned long[6]", 48, 48, false, false, 0},
	};
	struct arena a = ARENA_INIT(1 << 20);
	struct trace_field *got;
	u32 n;

	cr_assert_eq(tracer_fields_parse(format, &a, &got, &n), 0);
	cr_assert_eq(n, ARRAY_SIZE(want));
	for (u32 i = 0; i < n; i++) {
		cr_assert_str_eq(got[i].name, want[i].name);
		cr_assert_str_eq(got[i].type, want[i].type);
		cr_assert_eq(got[i].offset, want[i].offset);
		cr_assert_eq(got[i].bytes, want[i].bytes);
		cr_assert_eq(got[i].is_signed, want[i].is_signed);
		cr_assert_eq(got[i].is_data_loc, want[i].is_data_loc);
	}
	cr_assert_eq(tracer_fields_parse("", &a, &got, &n), 0);
	cr_assert_eq(n, 0);
	arena_deinit(&a);
}

Test(tracer, globs)
{
	cr_assert(tracer_matches("vfs_*", "vfs_read"));
	cr_assert(!tracer_matches("vfs_*", "xvfs_read"));
	cr_assert(tracer_matches("sys_[er]*", "sys_exit"));
	cr_assert(tracer_matches("", "anything"));
	cr_assert(tracer_is_glob("a?"));
	cr_assert(!tracer_is_glob("a"));
}
