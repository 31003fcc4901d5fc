/* SPDX-License-Identifier: Apache-2.0 */
/* .NET: what a library says, range sections and images of a process, and names from its memory. */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "dotnet_image.h"

static const struct version {
	const char *text;
	u32 major, minor, patch;
} versions[] = {
	{"4.700.22.11601", 3, 1, 0},
	{"8.0.3026.36720", 8, 0, 30},
	{"9.0.725.31616", 9, 0, 7},
	{"10.0.1126.37416", 10, 0, 11},
};

struct clr {
	struct str file;
	struct elf_file *elf;
	void *learned;
	struct procman_process process;
	struct runtime_process attached;
	struct arena arena;
	struct runtime_names names;
	struct diag why;
};

static void clr_deinit(struct clr *c)
{
	if (c->learned)
		runtime_dotnet.forget(c->learned);
	elf_file_destroy(c->elf);
	str_deinit(&c->file);
	arena_deinit(&c->arena);
}
#define _cleanup_clr_ __attribute__((cleanup(clr_deinit)))

static int clr_learn(struct clr *c, const char *version, bool exports)
{
	struct procman_binary binary = {.path = "/app/libcoreclr.so"};
	struct runtime_binary bpf;

	*c = (struct clr){.process = {.pid = (u32)getpid(), .image = 7},
			  .arena = ARENA_INIT(1 << 20)};
	c->names.arena = &c->arena;
	image_write_file(version, exports, &c->file);
	cr_assert_eq(elf_file_open_memory(c->file.data, c->file.n, NULL, &c->elf), 0);
	binary.elf = c->elf;
	return runtime_dotnet.learn(&binary, &bpf, &c->learned, &c->why);
}

static const struct dotnet_learned *clr_learned(const struct clr *c)
{
	return c->learned;
}

static void clr_init(struct clr *c, const struct version *version)
{
	cr_assert_eq(clr_learn(c, version->text, version->major > 7), 0, "%s", c->why.text);
	cr_assert(image_build(clr_learned(c)->layout), "the place of the image is taken");
}

static int clr_attach(struct clr *c)
{
	struct runtime_target t = image_target(&c->process);

	return runtime_dotnet.attach(&t, c->learned, &c->attached);
}

static int clr_name(struct clr *c, u64 place, u64 where)
{
	struct runtime_target t = image_target(&c->process);

	c->names.n = 0;
	return runtime_dotnet.name(&t, c->learned, DOTNET_IMAGE + place, where, &c->names);
}

static void cr_name(struct clr *c, u64 place, u64 where, const char *want)
{
	cr_assert_eq(clr_name(c, place, where), 0, "%s", want);
	cr_assert_eq(c->names.n, 1);
	cr_expect_str_eq(c->names.frames[0].function, want);
}

#define for_each_version(v)                                                                        \
	for (const struct version *v = versions; v < versions + ARRAY_SIZE(versions); v++)

/* ---- libraries ---- */

Test(dotnet, versions)
{
	for_each_version(v)
	{
		_cleanup_clr_ struct clr c;

		cr_assert_eq(clr_learn(&c, v->text, v->major > 7), 0, "%s", c.why.text);
		cr_expect_eq(clr_learned(&c)->major, v->major);
		cr_expect_eq(clr_learned(&c)->minor, v->minor);
		cr_expect_eq(clr_learned(&c)->patch, v->patch);
	}
}

Test(dotnet, unknown_version_says_which)
{
	_cleanup_clr_ struct clr c;

	cr_assert_eq(clr_learn(&c, "11.0.326.12345", true), -ENOTSUP);
	cr_expect_str_eq(c.why.text, "no offsets are known for .NET 11.0.3");
}

Test(dotnet, tree_needs_the_table)
{
	_cleanup_clr_ struct clr c;

	cr_assert_eq(clr_learn(&c, "9.0.725.31616", false), -ENOTSUP);
	cr_expect(strstr(c.why.text, "g_dacTable"), "%s", c.why.text);
}

/* ---- processes ---- */

Test(dotnet, attach_finds_offsets_by_content)
{
	for_each_version(v)
	{
		_cleanup_clr_ struct clr c;
		struct dotnet_process p;

		clr_init(&c, v);
		cr_assert_eq(clr_attach(&c), 0);
		memcpy(&p, c.attached.room, sizeof(p));
		cr_expect_eq(p.ranges, DOTNET_IMAGE + (v->major < 8 ? IMAGE_LIST : IMAGE_LEVELS));
		cr_expect_eq(p.flags & DOTNET_LIST, v->major < 8);
		cr_expect_eq(p.info, IMAGE_INFO_AT);
		cr_expect_eq(p.functions, IMAGE_FUNCTIONS_AT);
		cr_expect_eq(p.n_functions, IMAGE_FUNCTIONS_AT + 8);
		cr_expect_eq(clr_learned(&c)->found->methods, IMAGE_METHODS_AT);
	}
}

Test(dotnet, attach_waits_for_the_first_image)
{
	for_each_version(v)
	{
		_cleanup_clr_ struct clr c;

		clr_init(&c, v);
		image_u64(IMAGE_LIST, 0);
		image_u64(IMAGE_TABLE, 0);
		cr_expect_eq(clr_attach(&c), -EAGAIN);
		clr_deinit(&c);
		clr_init(&c, v);
		memset(image_at(IMAGE_READY_HEADER), 0, 8);
		cr_expect_eq(clr_attach(&c), -EAGAIN);
		memcpy(image_at(IMAGE_READY_HEADER), "RTR", 4);
		cr_expect_eq(clr_attach(&c), 0);
	}
}

Test(dotnet, range_at_an_address)
{
	for_each_version(v)
	{
		_cleanup_clr_ struct clr c;
		struct dotnet_reader r;
		struct dotnet_range range;
		struct runtime_target t;

		clr_init(&c, v);
		t = image_target(&c.process);
		cr_assert_eq(dotnet_reader_init(&t, clr_learned(&c), &r), 0);
		cr_assert_eq(dotnet_find_range(&r, DOTNET_IMAGE + IMAGE_CODE, &range), 0);
		cr_expect_eq(range.end, DOTNET_IMAGE + IMAGE_CODE_END);
		cr_expect_eq(range.heap, DOTNET_IMAGE + IMAGE_HEAP);
		cr_expect_eq(range.module, 0);
		cr_assert_eq(dotnet_find_range(&r, DOTNET_IMAGE + IMAGE_READY_END - 1, &range), 0);
		cr_expect_eq(range.module, DOTNET_IMAGE + IMAGE_MODULE);
		cr_expect_eq(dotnet_find_range(&r, DOTNET_IMAGE + IMAGE_READY_END, &range),
			     -ENOENT);
		cr_expect_eq(dotnet_find_range(&r, DOTNET_IMAGE + IMAGE_CODE - 1, &range), -ENOENT);
		cr_expect_neq(dotnet_find_range(&r, 1ULL << 50, &range), 0);
	}
}

/* ---- names ---- */

Test(dotnet, names)
{
	for_each_version(v)
	{
		_cleanup_clr_ struct clr c;

		clr_init(&c, v);
		cr_assert_eq(clr_attach(&c), 0);
		cr_name(&c, IMAGE_METHOD, image_where_compiled(), "Demo.Outer.Inner.Compiled");
		cr_name(&c, IMAGE_READY_CODE, image_where_ready(), "Demo.Outer.Ready");
		/* its funclet */
		cr_name(&c, IMAGE_READY_CODE + IMAGE_READY_BYTES, image_where_ready(),
			"Demo.Outer.Ready");
		image_u64(IMAGE_HEADER + DOTNET_HEADER_METHOD, image_desc(2));
		cr_name(&c, IMAGE_METHOD, image_where_compiled(), "dynamicClass.Made");
		runtime_dotnet.trim(c.learned);
		cr_name(&c, IMAGE_READY_CODE, image_where_ready(), "Demo.Outer.Ready");
	}
}

Test(dotnet, other_code_at_the_address_is_stale)
{
	for_each_version(v)
	{
		_cleanup_clr_ struct clr c;
		u64 where;

		clr_init(&c, v);
		cr_assert_eq(clr_attach(&c), 0);
		where = image_where_compiled();
		image_u64(IMAGE_HEADER + DOTNET_HEADER_METHOD, image_desc(1));
		cr_expect_eq(clr_name(&c, IMAGE_METHOD, where), -ESTALE);
		image_u64(IMAGE_INFO + IMAGE_FUNCTIONS_AT, DOTNET_IMAGE + IMAGE_FUNCTIONS + 12);
		cr_expect_eq(clr_name(&c, IMAGE_READY_CODE, image_where_ready()), -ESTALE);
		cr_expect_eq(clr_name(&c, IMAGE_METHOD, image_where(0, 0, 0)), -EINVAL);
	}
}

Test(dotnet, module_that_has_moved_is_read_again)
{
	for_each_version(v)
	{
		_cleanup_clr_ struct clr c;
		u64 name = IMAGE_MODULE;

		clr_init(&c, v);
		cr_assert_eq(clr_attach(&c), 0);
		name += clr_learned(&c)->layout->simple_name;
		cr_name(&c, IMAGE_METHOD, image_where_compiled(), "Demo.Outer.Inner.Compiled");
		memmove(image_at(IMAGE_METADATA + 0x400), image_at(IMAGE_METADATA), 0x400);
		memset(image_at(IMAGE_METADATA), 0, 0x400);
		image_u64(name, image_word(name) + 0x400);
		cr_name(&c, IMAGE_METHOD, image_where_compiled(), "Demo.Outer.Inner.Compiled");
	}
}

/* Until .NET 8 the class has the loader's module, and its own in a slot if it is another. */
Test(dotnet, generic_class_of_another_module)
{
	_cleanup_clr_ struct clr c;

	clr_init(&c, &versions[0]);
	cr_assert_eq(clr_attach(&c), 0);
	image_u32(IMAGE_CLASSES, 0x10);
	image_u32(IMAGE_CLASSES + 8, 0x13);
	image_u16(IMAGE_CLASSES + 12, 9); /* virtual methods, in two chunks */
	image_u64(IMAGE_CLASSES + 24, DOTNET_IMAGE + IMAGE_INFO);
	image_u64(IMAGE_CLASSES + 48 + 2 * 8 + 2 * 8, DOTNET_IMAGE + IMAGE_MODULE);
	cr_name(&c, IMAGE_METHOD, image_where_compiled(), "Demo.Outer.Inner.Compiled");
	/* A MethodTable that refers to its canonical one. */
	image_u64(IMAGE_CLASSES + 0x80, 0x10);
	image_u64(IMAGE_CLASSES + 0x80 + 40, (DOTNET_IMAGE + IMAGE_CLASSES) | 1);
	image_u64(IMAGE_CHUNK, DOTNET_IMAGE + IMAGE_CLASSES + 0x80);
	cr_name(&c, IMAGE_METHOD, image_where_compiled(), "Demo.Outer.Inner.Compiled");
}
