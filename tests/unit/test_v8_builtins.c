/* SPDX-License-Identifier: Apache-2.0 */
/* Binaries with V8's builtins, in all forms that V8 has had, good and damaged. */
#include <criterion/criterion.h>
#include <errno.h>

#include "elfwriter.h"
#include "runtime/v8/builtins.h"

#define N 1200
#define CODE_AT 0x40000
#define TABLE_AT 0x800000

struct made {
	struct elfw w;
	u8 *code, *table;
	u32 n_code, n_table;
	struct v8_builtin list[N];
};

/* Lays out functions whose lengths modulo 32 are all possible ones. */
static void lay_out(struct made *m, u32 align)
{
	u32 offset = 0;

	for (u32 i = 0; i < N; i++) {
		m->list[i] = (struct v8_builtin){offset, 24 + (i * 37) % 600};
		offset = (offset + m->list[i].length + align) & ~(align - 1);
	}
	m->n_code = CODE_AT + offset + 4096;
}

static void make(struct made *m, u32 stride, u32 align)
{
	*m = (struct made){.w = {.machine = EM_X86_64, .type = ET_DYN}};
	lay_out(m, align);
	m->code = malloc(m->n_code);
	memset(m->code, 0x90, m->n_code);
	for (u32 i = 0; i < N; i++) {
		u32 end = m->list[i].offset + m->list[i].length;
		u32 next = i + 1 < N ? m->list[i + 1].offset : end;

		memset(m->code + CODE_AT + end, 0xcc, next - end);
	}
	m->n_table = 24 + N * stride + 4096;
	m->table = calloc(1, m->n_table);
	memset(m->table, 0x5a, 16);
	for (u32 i = 0; i < N; i++)
		memcpy(m->table + 24 + i * stride, &m->list[i], 8);
}

static int find(struct made *m, struct v8_builtins *ret)
{
	_cleanup_elf_file_ struct elf_file *f = NULL;

	elfw_section(&m->w, ".text", SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR, 0x1000, m->code,
		     m->n_code);
	elfw_section(&m->w, ".rodata", SHT_PROGBITS, SHF_ALLOC, TABLE_AT, m->table, m->n_table);
	elfw_segment(&m->w, PT_LOAD, PF_R | PF_X, 0x1000, m->n_code, ".text");
	elfw_segment(&m->w, PT_LOAD, PF_R, TABLE_AT, m->n_table, ".rodata");
	elfw_finish(&m->w);
	cr_assert_eq(elf_file_open_memory(m->w.out.data, m->w.out.n, NULL, &f), 0);
	return v8_builtins_find(f, ret);
}

static void done(struct made *m)
{
	str_deinit(&m->w.out);
	free(m->code);
	free(m->table);
}

Test(v8_builtins, found_in_each_form)
{
	static const struct {
		u32 stride, align;
	} forms[] = {{8, 32}, {12, 64}, {16, 32}, {24, 64}, {28, 64}};

	for (size_t i = 0; i < ARRAY_SIZE(forms); i++) {
		struct v8_builtins b = {};
		struct made m;

		make(&m, forms[i].stride, forms[i].align);
		cr_assert_eq(find(&m, &b), 0, "form %zu", i);
		cr_assert_eq(b.n, N);
		cr_assert_eq(b.start, 0x1000 + CODE_AT);
		cr_assert_eq(b.end, b.start + m.list[N - 1].offset + m.list[N - 1].length);
		cr_assert_eq(memcmp(b.list, m.list, sizeof(m.list)), 0);
		v8_builtins_deinit(&b);
		done(&m);
	}
}

/* One byte of padding differs, so the code does not belong to the table. */
Test(v8_builtins, not_code_that_differs_in_one_place)
{
	struct v8_builtins b = {};
	struct made m;

	make(&m, 12, 64);
	m.code[CODE_AT + m.list[N / 2].offset - 1] = 0x90;
	cr_assert_eq(find(&m, &b), -ENOENT);
	cr_assert_null(b.list);
	done(&m);
}

Test(v8_builtins, not_a_table_that_breaks_off)
{
	struct v8_builtins b = {};
	struct made m;

	make(&m, 12, 64);
	m.table[24 + 900 * 12]++;
	cr_assert_eq(find(&m, &b), -ENOENT);
	done(&m);
}

/* The table describes more code than the file has. */
Test(v8_builtins, code_that_is_cut_off)
{
	struct v8_builtins b = {};
	struct made m;

	make(&m, 16, 32);
	m.n_code = CODE_AT + m.list[N - 1].offset;
	cr_assert_eq(find(&m, &b), -ENOENT);
	done(&m);
}
