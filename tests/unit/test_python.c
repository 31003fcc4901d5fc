/* SPDX-License-Identifier: Apache-2.0 */
/* CPython: tables of lines, and the symbolic execution of short functions. */
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include "agent/runtime/python/python.h"
#include "base/str.h"
#include "disasm/exec.h"

Test(python, lnotab)
{
	/* Objects/lnotab_notes.txt: steps of more than 255 bytes or 127 lines are split. */
	static const u8 table[] = {6, 1, 44, 5, 255, 0, 45, 127, 0, 73, 2, 0xff};

	cr_expect_eq(python_line_of_lnotab(table, sizeof(table), 1, -1), 1);
	cr_expect_eq(python_line_of_lnotab(table, sizeof(table), 1, 0), 1);
	cr_expect_eq(python_line_of_lnotab(table, sizeof(table), 1, 5), 1);
	cr_expect_eq(python_line_of_lnotab(table, sizeof(table), 1, 6), 2);
	cr_expect_eq(python_line_of_lnotab(table, sizeof(table), 1, 50), 7);
	cr_expect_eq(python_line_of_lnotab(table, sizeof(table), 1, 349), 7);
	cr_expect_eq(python_line_of_lnotab(table, sizeof(table), 1, 350), 207);
	cr_expect_eq(python_line_of_lnotab(table, sizeof(table), 1, 352), 206);
	cr_expect_eq(python_line_of_lnotab(table, 0, 9, 352), 9);
}

Test(python, linetable_of_310)
{
	/* The example of Objects/lnotab_notes.txt: lines 1, 2, none, 2, 3, 4, none. */
	static const u8 table[] = {6, 1, 44, 5, 6, 0x80, 4, 0, 2, 0xfe};

	cr_expect_eq(python_line_of_linetable_310(table, sizeof(table), 10, -2), 10);
	cr_expect_eq(python_line_of_linetable_310(table, sizeof(table), 10, 0), 11);
	cr_expect_eq(python_line_of_linetable_310(table, sizeof(table), 10, 5), 11);
	cr_expect_eq(python_line_of_linetable_310(table, sizeof(table), 10, 6), 16);
	cr_expect_eq(python_line_of_linetable_310(table, sizeof(table), 10, 50), 0);
	cr_expect_eq(python_line_of_linetable_310(table, sizeof(table), 10, 56), 16);
	cr_expect_eq(python_line_of_linetable_310(table, sizeof(table), 10, 60), 14);
	cr_expect_eq(python_line_of_linetable_310(table, sizeof(table), 10, 62), 0);
}

Test(python, locations)
{
	static const u8 table[] = {
		0xe8, 0x04,			 /* no columns, 1 unit: +2 */
		0x99, 0x12,			 /* short, 2 units: the same line */
		0xd8, 0x05, 0x09,		 /* one line, 1 unit: +1 */
		0xfa,				 /* none, 3 units */
		0xf0, 0x4d, 2,	  0, 1, 0x41, 1, /* long, 1 unit: -70 */
		0xe8, 0x40,			 /* cut short */
	};

	cr_expect_eq(python_line_of_locations(table, sizeof(table), 100, -2), 100);
	cr_expect_eq(python_line_of_locations(table, sizeof(table), 100, 0), 102);
	cr_expect_eq(python_line_of_locations(table, sizeof(table), 100, 2), 102);
	cr_expect_eq(python_line_of_locations(table, sizeof(table), 100, 5), 102);
	cr_expect_eq(python_line_of_locations(table, sizeof(table), 100, 6), 103);
	cr_expect_eq(python_line_of_locations(table, sizeof(table), 100, 8), 0);
	cr_expect_eq(python_line_of_locations(table, sizeof(table), 100, 13), 0);
	cr_expect_eq(python_line_of_locations(table, sizeof(table), 100, 14), 33);
	cr_expect_eq(python_line_of_locations(table, sizeof(table), 100, 16), 0);
	/* The table does not begin with the first byte of an entry. */
	cr_expect_eq(python_line_of_locations(table + 1, sizeof(table) - 1, 100, 0), 0);
}

/* ---- code ---- */

#define TEXT 0x1000

struct program {
	const u8 *code;
	size_t n;
	enum exec_event wanted;
	struct str seen;
};

static bool code_at(void *arg, u64 svma, size_t n, struct buf *ret)
{
	const struct program *p = arg;

	if (svma < TEXT || svma >= TEXT + p->n)
		return false;
	*ret = buf_of(p->code + (svma - TEXT), MIN(n, p->n - (svma - TEXT)));
	return true;
}

static void print_value(struct str *out, const struct exec *x, const struct exec_value *v)
{
	if (!v->known) {
		str_puts(out, "?");
		return;
	}
	str_printf(out, "%#llx", v->constant);
	for (u8 i = 0; i < v->n; i++) {
		const struct exec_symbol *s = &x->symbols[v->terms[i].symbol];

		str_printf(out, "+%lld*", v->terms[i].factor);
		if (s->kind == EXEC_ARG)
			str_puts(out, "arg");
		else if (s->kind == EXEC_THREAD)
			str_puts(out, "tp");
		else if (s->kind == EXEC_RESULT)
			str_puts(out, "result");
		if (s->kind != EXEC_LOAD)
			continue;
		str_printf(out, "load%u(", s->size);
		print_value(out, x, &s->at);
		str_puts(out, ")");
	}
}

static bool event(void *arg, const struct exec *x, enum exec_event e, const struct exec_value *v)
{
	struct program *p = arg;

	if (e != p->wanted)
		return false;
	if (p->seen.n)
		str_puts(&p->seen, " ");
	print_value(&p->seen, x, v);
	return false;
}

#define cr_runs(what, want, ...) cr_runs_on(EM_X86_64, what, want, __VA_ARGS__)
#define cr_runs_on(machine, what, want, ...)                                                       \
	do {                                                                                       \
		static const u8 bytes_[] = {__VA_ARGS__};                                          \
		struct program p_ = {bytes_, sizeof(bytes_), what, {}};                            \
		struct exec_program e_ = {.code = code_at, .event = event, .arg = &p_};            \
		cr_assert_eq(exec_run(&e_, machine, TEXT), 0);                                     \
		cr_expect_str_eq(str_get(&p_.seen), want);                                         \
		str_deinit(&p_.seen);                                                              \
	} while (0)

Test(exec, thread_local_storage)
{
	/* mov %fs:-8,%rax; ret */
	cr_runs(EXEC_RETURNS, "0+1*load8(0xfffffffffffffff8+1*tp)", 0x64, 0x48, 0x8b, 0x04, 0x25,
		0xf8, 0xff, 0xff, 0xff, 0xc3);
	/* mov %fs:0,%rax; mov -16(%rax),%rax; ret */
	cr_runs(EXEC_RETURNS, "0+1*load8(0xfffffffffffffff0+1*tp)", 0x64, 0x48, 0x8b, 0x04, 0x25, 0,
		0, 0, 0, 0x48, 0x8b, 0x40, 0xf0, 0xc3);
	/* lea 0x20(%rip),%rdi; call; mov (%rax),%rax; ret */
	cr_runs(EXEC_RETURNS, "0+1*load8(0+1*result)", 0x48, 0x8d, 0x3d, 0x20, 0, 0, 0, 0xe8, 0, 1,
		0, 0, 0x48, 0x8b, 0, 0xc3);
}

Test(exec, pthread_getspecific)
{
	/* glibc: mov %edi,%eax; add $0x31,%rax; shl $4,%rax; add %fs:16,%rax; mov 8(%rax),%rax */
	cr_runs(EXEC_RETURNS, "0+1*load8(0x318+16*arg+1*tp)", 0x89, 0xf8, 0x48, 0x83, 0xc0, 0x31,
		0x48, 0xc1, 0xe0, 0x04, 0x64, 0x48, 0x03, 0x04, 0x25, 0x10, 0, 0, 0, 0x48, 0x8b,
		0x40, 0x08, 0xc3);
	/* musl: mov %fs:0,%rax; mov 0x80(%rax),%rax; mov %edi,%edi; mov (%rax,%rdi,8),%rax */
	cr_runs(EXEC_RETURNS, "0+1*load8(0+1*load8(0x80+1*tp)+8*arg)", 0x64, 0x48, 0x8b, 0x04, 0x25,
		0, 0, 0, 0, 0x48, 0x8b, 0x80, 0x80, 0, 0, 0, 0x89, 0xff, 0x48, 0x8b, 0x04, 0xf8,
		0xc3);
}

#define W(w) (u8)(w), (u8)((w) >> 8), (u8)((w) >> 16), (u8)((u32)(w) >> 24)

Test(exec, arm64)
{
	/* mov w1, w0; ubfiz x0, x1, #4, #32; mrs x2, tpidr_el0; sub x0, x0, #1584; add x2, x2, x0;
	 * ldr x0, [x2, #8]; ret: glibc 2.36 */
	cr_runs_on(EM_AARCH64, EXEC_RETURNS, "0+1*load8(0xfffffffffffff9d8+1*tp+16*arg)",
		   W(0x2a0003e1), W(0xd37c7c20), W(0xd53bd042), W(0xd118c000), W(0x8b000042),
		   W(0xf9400440), W(0xd65f03c0));
	/* mrs x0, tpidr_el0; add x0, x0, #0, lsl #12; add x0, x0, #24; ldr x0, [x0]; ret */
	cr_runs_on(EM_AARCH64, EXEC_RETURNS, "0+1*load8(0x18+1*tp)", W(0xd53bd040), W(0x91400000),
		   W(0x91006000), W(0xf9400000), W(0xd65f03c0));
	/* adrp x0, +0x1000; ldr w0, [x0, #0x6a4]; b: a key */
	cr_runs_on(EM_AARCH64, EXEC_CALLS, "0+1*load4(0x26a4)", W(0xb0000000), W(0xb946a400),
		   W(0x14000100));
	/* adrp x0; add x0, x0, #16; bl; mrs x1, tpidr_el0; ldr x0, [x1, x0]; ret: a descriptor */
	cr_runs_on(EM_AARCH64, EXEC_RETURNS, "0+1*load8(0+1*tp+1*result)", W(0xb0000000),
		   W(0x91004000), W(0x94000100), W(0xd53bd041), W(0xf8606820), W(0xd65f03c0));
	/* cbz x0, 1f; mov x0, #1; ret; 1: mov x0, #0; ret */
	cr_runs_on(EM_AARCH64, EXEC_RETURNS, "0x1 0", W(0xb4000060), W(0xd2800020), W(0xd65f03c0),
		   W(0xd2800000), W(0xd65f03c0));
	/* mul x0, x0, x0; ret */
	cr_runs_on(EM_AARCH64, EXEC_RETURNS, "?", W(0x9b007c00), W(0xd65f03c0));
}

Test(exec, both_ways_of_a_branch)
{
	/* test %edi,%edi; je 1f; mov $1,%eax; ret; 1: xor %eax,%eax; ret */
	cr_runs(EXEC_RETURNS, "0x1 0", 0x85, 0xff, 0x74, 0x06, 0xb8, 1, 0, 0, 0, 0xc3, 0x31, 0xc0,
		0xc3);
}

Test(exec, what_is_not_known_stays_so)
{
	/* mov %edi,%eax; imul %edi,%eax; ret */
	cr_runs(EXEC_RETURNS, "?", 0x89, 0xf8, 0x0f, 0xaf, 0xc7, 0xc3);
	/* mov 0x10(%rip),%edi; call; jmp: the call gets the value and clobbers the register */
	cr_runs(EXEC_CALLS, "0+1*load4(0x1016) ?", 0x8b, 0x3d, 0x10, 0, 0, 0, 0xe8, 0, 0, 0, 0,
		0xe9, 0, 1, 0, 0);
	/* the execution of an endless loop ends */
	cr_runs(EXEC_RETURNS, "", 0xeb, 0xfe);
}

Test(exec, other_machines)
{
	struct exec_program p = {};

	cr_expect_eq(exec_run(&p, EM_386, TEXT), -ENOTSUP);
}

/* ---- libc ---- */

static u64 thread_pointer(void)
{
	return (u64)__builtin_thread_pointer();
}

/* Values of this process are at the places that were read from the code of its libc. */
Test(python, libc)
{
	struct elf_file *elf = NULL;
	struct runtime_libc libc = {};
	pthread_key_t key;
	Dl_info info;
	int fd;

	cr_assert_neq(dladdr((void *)pthread_getspecific, &info), 0);
	fd = open(info.dli_fname, O_RDONLY | O_CLOEXEC);
	cr_assert_eq(elf_file_open(fd, NULL, &elf), 0);
	cr_assert_eq(runtime_learn_libc(elf, &libc), 0);
	elf_file_destroy(elf);
	for (int i = 0; i < 8; i++) {
		u64 at;

		cr_assert_eq(pthread_key_create(&key, NULL), 0);
		cr_assert_eq(pthread_setspecific(key, &info), 0);
		at = thread_pointer() + (u64)libc.direct;
		if (libc.indirect >= 0)
			at = *(u64 *)at + (u64)libc.indirect;
		cr_expect_eq(*(u64 *)(at + (u64)libc.scale * key), (u64)&info);
	}
}

Test(python, musl)
{
	struct elf_file *elf = NULL;
	struct runtime_libc libc = {};
	int fd = open("/lib/ld-musl-x86_64.so.1", O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		cr_skip_test("no musl here");
	cr_assert_eq(elf_file_open(fd, NULL, &elf), 0);
	cr_assert_eq(runtime_learn_libc(elf, &libc), 0);
	elf_file_destroy(elf);
	/* self->tsd, an array of pointers (musl, src/internal/pthread_impl.h). */
	cr_expect_eq(libc.indirect, 0);
	cr_expect_eq(libc.scale, 8);
	cr_expect(libc.direct > 0 && libc.direct < 512 && libc.direct % 8 == 0);
}

/* ---- objects ---- */

struct object {
	u64 code[32];
	u64 name[8], file[8];
	u64 lines[8];
};

static void make(struct object *o, struct python_learned *l)
{
	memset(o, 0, sizeof(*o));
	memset(l, 0, sizeof(*l));
	l->version = 0x030b;
	l->bpf.code_id[0] = 8;
	l->bpf.code_id[1] = 16;
	l->bpf.code_id[2] = 24;
	l->bpf.code_id[3] = 32;
	l->bpf.code_read = 40;
	l->objects = (struct python_objects){.code_filename = 8,
					     .code_name = 16,
					     .code_lines = 24,
					     .code_firstlineno = 32,
					     .bytes_size = 16,
					     .bytes_data = 32,
					     .str_length = 16,
					     .str_state = 32,
					     .str_ascii = 40,
					     .str_compact = 48,
					     .str_kind_shift = 2};
	o->code[1] = (u64)o->file;
	o->code[2] = (u64)o->name;
	o->code[3] = (u64)o->lines;
	o->code[4] = 7;
	o->file[2] = 4;
	o->file[4] = 1 << 2 | 1 << 5 | 1 << 6; /* one byte each, compact, ASCII */
	memcpy(&o->file[5], "a.py", 4);
	o->name[2] = 3;
	o->name[4] = 2 << 2 | 1 << 5; /* two bytes each, compact */
	memcpy(&o->name[6], (u16[]){0x66, 0xe4, 0x20ac}, 6);
	o->lines[2] = 2;
	memcpy(&o->lines[4], (u8[]){0xef, 0x02}, 2);
}

Test(python, names)
{
	struct runtime_memory m = {.pid = (u32)getpid()};
	_cleanup_arena_ struct arena arena = ARENA_INIT(1 << 20);
	struct runtime_names names = {.arena = &arena};
	struct python_learned l;
	struct object o;
	u64 where;

	make(&o, &l);
	where = (u64)python_cookie(o.code[1], o.code[2], o.code[3], o.code[4]) << 32 | 4;
	cr_assert_eq(python_name(&m, &l, (u64)o.code, where, &names), 0);
	cr_assert_eq(names.n, 1);
	cr_expect_str_eq(names.frames[0].function, "f\xc3\xa4\xe2\x82\xac");
	cr_expect_str_eq(names.frames[0].file, "a.py");
	cr_expect_eq(names.frames[0].line, 8);
	cr_expect_eq(names.frames[0].start_line, 7);
	/* Another object is at the address. */
	o.code[4] = 9;
	cr_expect_eq(python_name(&m, &l, (u64)o.code, where, &names), -ESTALE);
	/* The object's memory was freed. */
	cr_expect_eq(python_name(&m, &l, 8, where, &names), -EFAULT);
}
