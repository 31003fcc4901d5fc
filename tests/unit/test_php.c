/* SPDX-License-Identifier: Apache-2.0 */
/* PHP: what is learned from a binary, and names of functions in memory. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stddef.h>
#include <unistd.h>

#include "agent/runtime/php/php.h"
#include "base/arena.h"
#include "base/cleanup.h"
#include "php_image.h"

/* ---- binaries ---- */

static int learn_kind(bool threads, void (*change)(u8 *text, size_t n), struct php_learned *ret,
		      struct diag *d)
{
	struct elf_file *elf = NULL;
	struct elfw w = {};
	int r;

	php_image_write(&w, threads, change);
	cr_assert_eq(elf_file_open_memory((u8 *)w.out.data, w.out.n, NULL, &elf), 0);
	cr_expect(php_has_loop(elf));
	r = php_learn(elf, ret, d);
	elf_file_destroy(elf);
	str_deinit(&w.out);
	return r;
}

static int learn(void (*change)(u8 *text, size_t n), struct php_learned *ret, struct diag *d)
{
	return learn_kind(false, change, ret, d);
}

Test(php, learns_from_code)
{
	struct php_learned l = {};
	struct diag d = {};

	cr_assert_eq(learn(NULL, &l, &d), 0, "%s", d.text);
	cr_expect_str_eq(l.text, "8.2.36");
	cr_expect_eq(l.version, 0x0802);
	cr_expect_eq(l.globals, PHP_IMAGE_GLOBALS);
	cr_expect_eq(l.bpf.current, PHP_IMAGE_CURRENT);
	cr_expect_eq(l.bpf.before_throw, PHP_IMAGE_BEFORE_THROW);
	cr_expect_eq(l.bpf.filename, 0x98);
	cr_expect_eq(l.bpf.opcodes, 0x58);
	cr_expect_eq(l.bpf.generator_frame, 0x38);
	cr_expect_eq(l.bpf.generator_parent, 0x98);
	cr_expect_eq(l.bpf.generator_class, PHP_IMAGE_GENERATOR_CLASS);
	cr_expect_eq(l.class_name, 8);
	cr_expect_eq(l.string_text, 0x18);
	cr_expect_eq(l.bpf.n_loops, 1);
	cr_expect_eq(l.bpf.loops[0].end - l.bpf.loops[0].start, 14);
	/* After the jump to the code of an instruction. */
	cr_expect_eq(l.bpf.jit_pc, l.bpf.loops[0].start + 8);
}

/* Each thread has its own executor_globals; the offsets in them are the same. */
Test(php, learns_from_thread_safe_code)
{
	struct php_learned l = {};
	struct diag d = {};

	cr_assert_eq(learn_kind(true, NULL, &l, &d), 0, "%s", d.text);
	cr_expect_eq(l.globals, PHP_IMAGE_GLOBALS_OFFSET);
	cr_expect_eq(l.memory.kind, RUNTIME_TLS_FIXED);
	cr_expect_eq(l.memory.offset, -8);
	cr_expect_eq(l.bpf.current, PHP_IMAGE_CURRENT);
	cr_expect_eq(l.bpf.before_throw, PHP_IMAGE_BEFORE_THROW);
	cr_expect_eq(l.bpf.filename, 0x98);
	cr_expect_eq(l.bpf.opcodes, 0x58);
	cr_expect_eq(l.bpf.generator_frame, 0x38);
	cr_expect_eq(l.class_name, 8);
}

static void loses_memory(u8 *text, size_t n)
{
	cr_assert_gt(n, 17);
	text[16] = 0xcc;
}

Test(php, threads_whose_memory_is_not_found)
{
	struct php_learned l = {};
	struct diag d = {};

	cr_expect_eq(learn_kind(true, loses_memory, &l, &d), -ENOTSUP);
	cr_expect(strstr(d.text, "tsrm_get_ls_cache"), "%s", d.text);
}

/* The place of a function's code in the text. */
static size_t code_of(const char *name)
{
	size_t at = 0;

	for (u32 i = 0; i < PHP_IMAGE_FUNCTIONS; i++) {
		if (!strcmp(php_image_functions[i].name, name))
			return at;
		at += php_image_functions[i].n;
	}
	cr_assert(false, "%s", name);
	return 0;
}

static void moves_name(u8 *text, size_t n)
{
	cr_assert_lt(code_of("get_active_function_name") + 14, n);
	text[code_of("get_active_function_name") + 14] = 0x28;
}

static void moves_filename(u8 *text, size_t n)
{
	cr_assert_lt(code_of("zend_get_executed_filename_ex") + 14, n);
	text[code_of("zend_get_executed_filename_ex") + 14] = 0x91;
}

static void moves_previous(u8 *text, size_t n)
{
	cr_assert_lt(code_of("zend_get_executed_lineno") + 15, n);
	text[code_of("zend_get_executed_lineno") + 15] = 0x38;
}

static void spoils_current(u8 *text, size_t n)
{
	cr_assert_lt(code_of("get_active_function_name") + 10, n);
	text[code_of("get_active_function_name")] = 0xc3;
}

Test(php, refuses_other_layouts)
{
	static const struct {
		void (*change)(u8 *text, size_t n);
		const char *why;
	} cases[] = {
		{moves_name, "PHP 8.2.36: the layout of its frames is not known"},
		{moves_previous, "PHP 8.2.36: the layout of its frames is not known"},
		{moves_filename, "PHP 8.2.36: the layout of its functions is not known"},
		{spoils_current,
		 "PHP 8.2.36: the code of get_active_function_name is not understood"},
	};

	for (u32 i = 0; i < ARRAY_SIZE(cases); i++) {
		struct php_learned l = {};
		struct diag d = {};

		cr_expect_eq(learn(cases[i].change, &l, &d), -ENOTSUP, "case %u", i);
		cr_expect_str_eq(d.text, cases[i].why);
	}
}

static void spoils_generators(u8 *text, size_t n)
{
	cr_assert_lt(code_of("zend_generator_check_placeholder_frame"), n);
	text[code_of("zend_generator_check_placeholder_frame")] = 0xc3;
}

Test(php, does_without_generators)
{
	struct php_learned l = {};
	struct diag d = {};

	cr_assert_eq(learn(spoils_generators, &l, &d), 0, "%s", d.text);
	cr_expect_eq(l.bpf.generator_parent, 0);
	cr_expect_eq(l.bpf.filename, 0x98);
}

Test(php, names_of_files)
{
	cr_expect(php_is_name("/usr/bin/php8.2"));
	cr_expect(php_is_name("/usr/sbin/php-fpm7.4"));
	cr_expect(php_is_name("/usr/lib/libphp8.2.so"));
	cr_expect(php_is_name("/usr/local/bin/frankenphp"));
	cr_expect_not(php_is_name("/usr/lib/php/20220829/opcache.so"));
}

/* ---- names ---- */

struct string {
	u64 gc, hash, length;
	char text[128];
};

static u64 hash(const char *text, size_t n)
{
	u64 h = 5381;

	for (size_t i = 0; i < n; i++)
		h = h * 33 + (u8)text[i];
	return h | 1ULL << 63;
}

static struct string string_of(const char *text, size_t n)
{
	struct string s = {.hash = hash(text, n), .length = n};

	memcpy(s.text, text, n);
	return s;
}
#define STRING(text) string_of(text, sizeof(text) - 1)

struct memory {
	u64 function[PHP_FUNCTION_WORDS];
	u64 class[2];
	struct string name, class_name, file;
	struct php_learned learned;
	struct arena arena;
	struct runtime_names names;
};

/* A method in lines 3 to 9 of a file. */
static struct memory *memory(void)
{
	static struct memory m;

	m = (struct memory){
		.name = STRING("run"),
		.class_name = STRING("App\\Job"),
		.file = STRING("/srv/job.php"),
		.learned = {.bpf = {.filename = 0x98, .opcodes = 0x58},
			    .class_name = 8,
			    .string_text = offsetof(struct string, text)},
		.arena = ARENA_INIT(1 << 20),
	};
	m.function[0] = PHP_FUNCTION_USER;
	m.function[1] = (u64)&m.name;
	m.function[2] = (u64)m.class;
	m.function[0x98 / 8] = (u64)&m.file;
	m.function[0x98 / 8 + 1] = 9ULL << 32 | 3;
	m.class[1] = (u64)&m.class_name;
	m.names.arena = &m.arena;
	return &m;
}

static u64 id(const struct string *s)
{
	u64 words[PHP_TEXT_WORDS] = {};

	cr_assert_leq(s->length, sizeof(words));
	memcpy(words, s->text, s->length);
	return php_text_id(s->hash, s->length, words);
}

static u64 where(const struct memory *m, u32 kind, u32 line)
{
	bool file = !(kind & PHP_NO_FILE);
	u64 cookie = php_cookie(m->function[1], m->function[2], file ? m->function[0x98 / 8] : 0,
				m->function[1] ? id(&m->name) : 0, file ? id(&m->file) : 0);

	return cookie << 32 | (u64)kind << PHP_KIND_SHIFT | line;
}

static int name(struct memory *m, u64 at)
{
	const struct runtime_memory process = {.pid = (u32)getpid()};

	return php_name(&process, &m->learned, (u64)m->function, at, &m->names);
}

static void expect_name(struct memory *m, u64 at, const char *function, const char *file, u32 line)
{
	const struct runtime_frame *f = &m->names.frames[0];

	cr_assert_eq(name(m, at), 0);
	cr_expect_eq(m->names.n, 1);
	cr_expect_str_eq(f->function, function);
	cr_expect_eq(f->line, line);
	if (file)
		cr_expect_str_eq(f->file, file);
	else
		cr_expect_null(f->file);
	arena_deinit(&m->arena);
}

Test(php, names_a_method)
{
	struct memory *m = memory();

	expect_name(m, where(m, PHP_FUNCTION, 5), "App\\Job::run", "/srv/job.php", 5);
	cr_expect_eq(m->names.frames[0].start_line, 3);
	m = memory();
	m->function[2] = 0;
	expect_name(m, where(m, PHP_FUNCTION, 0), "run", "/srv/job.php", 0);
}

Test(php, names_functions_of_c_code)
{
	struct memory *m = memory();

	m->function[0] = PHP_FUNCTION_INTERNAL;
	/* What follows the head belongs to another object. */
	m->function[0x98 / 8] = 1;
	expect_name(m, where(m, PHP_NO_FILE, 0), "App\\Job::run", NULL, 0);
	cr_expect_eq(m->names.frames[0].start_line, 0);
}

Test(php, names_code_of_files)
{
	static const char *const names[] = {
		[PHP_MAIN] = "{main}",
		[PHP_INCLUDE] = "include",
		[PHP_INCLUDE_ONCE] = "include_once",
		[PHP_REQUIRE] = "require",
		[PHP_REQUIRE_ONCE] = "require_once",
		[PHP_EVAL] = "eval",
	};

	for (u32 kind = PHP_MAIN; kind <= PHP_EVAL; kind++) {
		struct memory *m = memory();

		/* Code that a method includes has the method's class. */
		m->function[1] = 0;
		expect_name(m, where(m, kind, 4), names[kind], "/srv/job.php", 4);
	}
}

Test(php, leaves_out_the_place_of_an_anonymous_class)
{
	struct memory *m = memory();

	m->class_name = STRING("class@anonymous\0/srv/job.php:7$0");
	expect_name(m, where(m, PHP_FUNCTION, 8), "class@anonymous::run", "/srv/job.php", 8);
}

Test(php, cleans_names)
{
	struct memory *m = memory();

	m->name = STRING("r\nn\xff");
	expect_name(m, where(m, PHP_FUNCTION, 8), "App\\Job::r n?", "/srv/job.php", 8);
}

Test(php, strings_that_bpf_could_not_read)
{
	struct memory *m = memory();
	u64 cookie =
		php_cookie(m->function[1], m->function[2], m->function[0x98 / 8], 0, m->file.hash);

	expect_name(m, cookie << 32 | 8, "App\\Job::run", "/srv/job.php", 8);
}

Test(php, strings_without_a_hash)
{
	struct memory *m = memory();
	u64 at;

	m->file.hash = 0; /* PHP has not computed it */
	at = where(m, PHP_FUNCTION, 8);
	expect_name(m, at, "App\\Job::run", "/srv/job.php", 8);
	m->file.text[5] = 'x';
	cr_expect_eq(name(m, at), -ESTALE);
}

Test(php, other_objects_are_stale)
{
	struct memory *m = memory();
	u64 at = where(m, PHP_FUNCTION, 8);

	m->function[0x98 / 8] += 8;
	cr_expect_lt(name(m, at), 0);
	m = memory();
	at = where(m, PHP_FUNCTION, 8);
	m->name = STRING("ran");
	cr_expect_eq(name(m, at), -ESTALE);
	m = memory();
	m->name.text[1] = 'a'; /* not what its hash says */
	cr_expect_eq(name(m, where(m, PHP_FUNCTION, 8)), -ESTALE);
	m = memory();
	m->class_name.text[1] = 'a';
	cr_expect_eq(name(m, where(m, PHP_FUNCTION, 8)), -ESTALE);
}

Test(php, damaged_objects)
{
	struct memory *m = memory();
	u64 at = where(m, PHP_FUNCTION, 8);

	m->name.length = 1ULL << 40;
	cr_expect_eq(name(m, at), -EINVAL);
	m = memory();
	m->class[1] = 8;
	cr_expect_eq(name(m, where(m, PHP_FUNCTION, 8)), -EFAULT);
	m = memory();
	m->function[1] = 8;
	cr_expect_eq(name(m, where(m, PHP_FUNCTION, 8)), -EFAULT);
}
