/* SPDX-License-Identifier: Apache-2.0 */
/* HotSpot: its tables in a file and in a process, and names from the memory of a process. */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "hotspot_image.h"

static const u32 versions[] = {8, 11, 17, 21, 24, 25, 27};

struct jvm {
	struct str file;
	struct elf_file *elf;
	void *learned;
	struct procman_process process;
	struct arena arena;
	struct runtime_names names;
	struct diag why;
};

static void jvm_deinit(struct jvm *j)
{
	if (j->learned)
		runtime_hotspot.forget(j->learned);
	elf_file_destroy(j->elf);
	str_deinit(&j->file);
	arena_deinit(&j->arena);
}
#define _cleanup_jvm_ __attribute__((cleanup(jvm_deinit)))

static int jvm_init(struct jvm *j, u32 version, const char *without)
{
	struct procman_binary binary = {.path = "/jdk/lib/server/libjvm.so"};
	struct runtime_binary bpf;

	*j = (struct jvm){.process.pid = (u32)getpid(), .arena = ARENA_INIT(1 << 20)};
	j->names.arena = &j->arena;
	cr_assert(image_build(version), "the place of the image is taken");
	image_write_file(version, without, &j->file);
	cr_assert_eq(elf_file_open_memory(j->file.data, j->file.n, NULL, &j->elf), 0);
	binary.elf = j->elf;
	return runtime_hotspot.learn(&binary, &bpf, &j->learned, &j->why);
}

static int name(struct jvm *j, u64 place, u64 where)
{
	struct runtime_target t = image_target(&j->process);

	j->names.n = 0;
	return runtime_hotspot.name(&t, j->learned, HOTSPOT_IMAGE + place, where, &j->names);
}

static int name_compiled(struct jvm *j, u32 position)
{
	return name(j, IMAGE_NMETHOD, image_where(HOTSPOT_COMPILED, position, IMAGE_COMPILE_ID));
}

static int name_interpreted(struct jvm *j, u64 class, u32 bci)
{
	return name(j, class, image_where(HOTSPOT_INTERPRETED, bci, image_cookie(class, 2)));
}

static void cr_frame(const struct jvm *j, u32 i, const char *function, const char *file, u32 line)
{
	cr_assert_lt(i, j->names.n);
	cr_expect_str_eq(j->names.frames[i].function, function);
	cr_expect_str_eq(j->names.frames[i].file, file);
	cr_expect_eq(j->names.frames[i].line, line, "%s: line %u, not %u", function,
		     j->names.frames[i].line, line);
}

#define cr_outer(j, i, line) cr_frame(j, i, "demo.Outer$$Lambda.outer", "Outer.java", line)
#define cr_leaf(j, i, line) cr_frame(j, i, "demo.Leaf.leaf", "Leaf.java", line)

/* ---- tables ---- */

Test(hotspot, tables_of_each_version)
{
	for (size_t i = 0; i < ARRAY_SIZE(versions); i++) {
		_cleanup_jvm_ struct jvm j;
		struct hotspot_offsets o;
		const struct hotspot_vm *vm;
		struct runtime_target t;
		u32 v = versions[i];

		cr_assert_eq(jvm_init(&j, v, NULL), 0, "%u: %s", v, j.why.text);
		vm = j.learned;
		t = image_target(&j.process);
		cr_assert_eq(hotspot_vm_read(vm, &t, &o), 0);
		cr_expect_eq(o.major, v);
		cr_expect_eq(o.exclude, v >= 20);
		cr_expect_eq(o.of[HF_NM_METHOD], AT_NM_METHOD);
		cr_expect_eq(o.of[HF_SYMBOL_BODY], AT_SYMBOL_BODY);
		cr_expect_eq(o.of[HF_CONST_FLAGS], AT_CONST_FLAGS);
		cr_expect_eq(hotspot_has(&o, HF_BLOB_CODE_BEGIN), v >= 9 && v <= 22);
		cr_expect_eq(hotspot_has(&o, HF_NM_IMMUTABLE), v >= 23);
		cr_expect_eq(vm->sizes[HZ_CONST_METHOD], CONST_BYTES);
		cr_expect_eq(vm->sizes[HZ_FLAG], FLAG_BYTES);
		/* Only entries of stubs count, not return addresses in stubs. */
		cr_expect_eq(vm->n_stubs, v <= 21 ? 3 : 0);
	}
}

/* The error names the missing field, if every version needs it. */
Test(hotspot, a_table_without_a_field)
{
	static const char *const needed[] = {
		"_constMethod", "_scopes_pcs_offset", "_compile_id", "_segmap", "_code", "_heaps"};

	for (size_t i = 0; i < ARRAY_SIZE(needed); i++) {
		_cleanup_jvm_ struct jvm j;

		cr_expect_eq(jvm_init(&j, 17, needed[i]), -ENOTSUP, "%s", needed[i]);
		cr_expect(j.why.text[0] && (i >= 4 || strstr(j.why.text, needed[i])), "%s: %s",
			  needed[i], j.why.text);
	}
}

Test(hotspot, another_library_of_that_name)
{
	struct elfw w = {};
	struct elf_file *elf = NULL;
	struct hotspot_vm *vm = NULL;
	struct diag why = {};

	elfw_section(&w, ".rodata", SHT_PROGBITS, SHF_ALLOC, 0x1000, "text", 5);
	elfw_section(&w, ".dynsym", SHT_DYNSYM, 0, 0, (u8[24]){}, 24);
	elfw_section(&w, ".dynstr", SHT_STRTAB, 0, 0, "", 1);
	elfw_section(&w, ".rela.dyn", SHT_RELA, 0, 0, "", 0);
	elfw_finish(&w);
	cr_assert_eq(elf_file_open_memory(w.out.data, w.out.n, NULL, &elf), 0);
	cr_expect_eq(hotspot_vm_learn(elf, &vm, &why), -ENOENT);
	cr_expect(strstr(why.text, "it has no vmStructs") != NULL, "%s", why.text);
	elf_file_destroy(elf);
	str_deinit(&w.out);
}

/* An offset that is out of range, and initialisers that have not run. */
Test(hotspot, offsets_of_a_process)
{
	_cleanup_jvm_ struct jvm j;
	const struct hotspot_vm *vm;
	struct hotspot_offsets o;
	struct runtime_target t;

	cr_assert_eq(jvm_init(&j, 17, NULL), 0);
	vm = j.learned;
	t = image_target(&j.process);
	image_u64(vm->fields[HF_NM_METHOD], 4096);
	cr_expect_eq(hotspot_vm_read(vm, &t, &o), -EINVAL);
	image_u64(vm->fields[HF_NM_METHOD], AT_NM_METHOD);
	image_u64(vm->fields[HF_NM_COMPILE_ID], 0);
	cr_expect_eq(hotspot_vm_read(vm, &t, &o), -EAGAIN);
	t.bias = 0;
	cr_expect_eq(hotspot_vm_read(vm, &t, &o), -EFAULT);
}

/* ---- a process ---- */

Test(hotspot, attach)
{
	for (size_t i = 0; i < ARRAY_SIZE(versions); i++) {
		_cleanup_jvm_ struct jvm j;
		struct runtime_process process = {};
		struct hotspot_process p;
		struct runtime_target t;

		cr_assert_eq(jvm_init(&j, versions[i], NULL), 0);
		t = image_target(&j.process);
		cr_assert_eq(runtime_hotspot.attach(&t, j.learned, &process), 0);
		memcpy(&p, process.room, sizeof(p));
		cr_expect_eq(p.base, HOTSPOT_IMAGE + IMAGE_CODE);
		cr_expect_eq(p.heaps[0].segmap, HOTSPOT_IMAGE + IMAGE_SEGMAP);
		cr_expect_eq(p.heaps[0].end, IMAGE_CODE_END - IMAGE_CODE);
		cr_expect_eq(p.heaps[1].end, 0);
		cr_expect_eq(p.interpreter, IMAGE_INTERPRETER - IMAGE_CODE);
		cr_expect_eq(p.interpreter_end - p.interpreter, 0x800);
		cr_expect_eq(p.segment_shift, 8);
		cr_expect_eq(p.deopt, AT_NM_DEOPT);
		cr_expect_eq(p.flags & HOTSPOT_CODE_OFFSETS ? 1 : 0,
			     versions[i] < 9 || versions[i] > 22);
		cr_expect(p.flags & HOTSPOT_TELLS_CLASSES);
		cr_expect_eq(p.names, AT_CONST_NAME);
		cr_expect_eq((p.flags & HOTSPOT_COUNT) >> 3, AT_SYMBOL_COUNT);
		cr_expect_eq(p.flags & HOTSPOT_HAS_MIRROR ? 1 : 0, versions[i] >= 9);
		cr_expect(
			runtime_hotspot.covers(j.learned, &process, HOTSPOT_IMAGE + IMAGE_NMETHOD));
		cr_expect(!runtime_hotspot.covers(j.learned, &process,
						  HOTSPOT_IMAGE + IMAGE_CODE_END));
	}
}

Test(hotspot, attach_to_what_has_not_started)
{
	_cleanup_jvm_ struct jvm j;
	struct runtime_process process = {};
	struct runtime_target t;

	cr_assert_eq(jvm_init(&j, 17, NULL), 0);
	t = image_target(&j.process);
	image_u64(IMAGE_STATICS + STATIC_HEAP, 0);
	cr_expect_eq(runtime_hotspot.attach(&t, j.learned, &process), -EAGAIN);
	image_build(17);
	image_u64(IMAGE_STATICS + STATIC_INTERPRETER, 0);
	cr_expect_eq(runtime_hotspot.attach(&t, j.learned, &process), -EAGAIN);
	/* More heaps than the walker has room for. */
	image_build(17);
	image_u32(IMAGE_HEAP + 0x60, HOTSPOT_MAX_HEAPS + 1);
	cr_expect_eq(runtime_hotspot.attach(&t, j.learned, &process), -E2BIG);
}

/* ---- names ---- */

Test(hotspot, interpreted)
{
	for (size_t i = 0; i < ARRAY_SIZE(versions); i++) {
		_cleanup_jvm_ struct jvm j;

		cr_assert_eq(jvm_init(&j, versions[i], NULL), 0);
		cr_assert_eq(name_interpreted(&j, IMAGE_OUTER, 0), 0);
		cr_outer(&j, 0, 40);
		cr_expect_eq(j.names.frames[0].start_line, 40);
		cr_assert_eq(name_interpreted(&j, IMAGE_OUTER, 5), 0);
		cr_outer(&j, 0, 42);
		/* The table of lines is not sorted: bytecode 9 comes before 6. */
		cr_assert_eq(name_interpreted(&j, IMAGE_OUTER, 6), 0);
		cr_outer(&j, 0, 40);
		cr_assert_eq(name_interpreted(&j, IMAGE_LEAF, 9), 0);
		cr_leaf(&j, 0, 13);
		cr_assert_eq(name_interpreted(&j, IMAGE_LEAF, HOTSPOT_NO_POSITION), 0);
		cr_leaf(&j, 0, 0);
	}
}

/* A PcDesc has a call's return address; positions of callers are return addresses minus one. */
Test(hotspot, compiled)
{
	for (size_t i = 0; i < ARRAY_SIZE(versions); i++) {
		_cleanup_jvm_ struct jvm j;

		cr_assert_eq(jvm_init(&j, versions[i], NULL), 0);
		cr_assert_eq(name_compiled(&j, IMAGE_INLINED_AT - 1), 0);
		cr_assert_eq(j.names.n, 2);
		cr_leaf(&j, 0, 12);
		cr_outer(&j, 1, 40);
		cr_assert_eq(name_compiled(&j, IMAGE_OWN_AT - 1), 0);
		cr_assert_eq(j.names.n, 1);
		cr_outer(&j, 0, 40);
		cr_assert_eq(name_compiled(&j, HOTSPOT_NO_POSITION), 0);
		cr_assert_eq(j.names.n, 1);
		cr_outer(&j, 0, 0);
	}
}

/* Slow paths follow the last PcDesc. The slow path of a return is not part of an inlined callee. */
Test(hotspot, behind_the_last_description)
{
	static const u8 leaves[] = {0x49, 0xba, 1,    2, 3, 4, 5, 6, 7, 8, /* mov r10, 8 bytes */
				    0x4d, 0x89, 0x97, 0, 5, 0, 0, /* mov [r15 + 0x500], r10 */
				    0xe9, 0,	0,    8, 0},
			loops[] = {0xeb, (u8)(IMAGE_INLINED_AT - 3 - 34)}, /* jmp */
		barrier[] = {0xe8, 0,	   0,	 8,    0,
			     0xe9, 4 - 42, 0xff, 0xff, 0xff}; /* call; jmp, to 4 */

	for (size_t i = 0; i < ARRAY_SIZE(versions); i++) {
		_cleanup_jvm_ struct jvm j;
		u64 pcs = versions[i] >= 23 ? IMAGE_DEBUG : IMAGE_NMETHOD + NM_PCS;

		cr_assert_eq(jvm_init(&j, versions[i], NULL), 0);
		/* Let the last PcDesc be of inlined code, too. */
		image_pcdesc(pcs + 2 * PCDESC_BYTES, IMAGE_OWN_AT, 4);
		memcpy(image_at(IMAGE_NMETHOD + NM_CODE + 32), leaves, sizeof(leaves));
		cr_assert_eq(name_compiled(&j, 32), 0);
		cr_assert_eq(j.names.n, 1);
		cr_outer(&j, 0, 40);
		/* A slow path of inlined code jumps back into the inlined code. */
		memcpy(image_at(IMAGE_NMETHOD + NM_CODE + 32), loops, sizeof(loops));
		cr_assert_eq(name_compiled(&j, 32), 0);
		cr_assert_eq(j.names.n, 2);
		cr_leaf(&j, 0, 12);
		/* The slow path of the entry barrier jumps back behind the set-up of the frame. */
		memcpy(image_at(IMAGE_NMETHOD + NM_CODE + 32), barrier, sizeof(barrier));
		for (u32 position = 32; position <= 37; position += position == 32 ? 4 : 1) {
			cr_assert_eq(name_compiled(&j, position), 0);
			cr_assert_eq(j.names.n, 1);
			cr_outer(&j, 0, 0);
		}
	}
}

/* The address has another compilation, another method, or nothing. */
Test(hotspot, stale)
{
	for (size_t i = 0; i < ARRAY_SIZE(versions); i++) {
		_cleanup_jvm_ struct jvm j;
		u64 other = HOTSPOT_IMAGE + IMAGE_OUTER + CLASS_CONST, leaf;

		cr_assert_eq(jvm_init(&j, versions[i], NULL), 0);
		/* Unloaded code that is not freed, and freed code that is not overwritten. */
		image_u64(IMAGE_NMETHOD + AT_NM_METHOD, 0);
		cr_expect_eq(name_compiled(&j, IMAGE_INLINED_AT - 1), -ESTALE);
		image_build(versions[i]);
		*image_at(IMAGE_USED) = 0;
		cr_expect_eq(name_compiled(&j, IMAGE_INLINED_AT - 1), -ESTALE);
		image_build(versions[i]);
		image_u32(IMAGE_NMETHOD + AT_NM_COMPILE_ID, IMAGE_COMPILE_ID + 1);
		cr_expect_eq(name_compiled(&j, IMAGE_INLINED_AT - 1), -ESTALE);
		cr_expect_eq(name(&j, HOTSPOT_IMAGE_BYTES, image_where(HOTSPOT_COMPILED, 7, 1)),
			     -EFAULT);
		leaf = image_where(HOTSPOT_INTERPRETED, 0, image_cookie(IMAGE_LEAF, 2));
		image_u64(IMAGE_LEAF + CLASS_METHOD + AT_METHOD_CONST, other);
		cr_expect_eq(name(&j, IMAGE_LEAF, leaf), -ESTALE);
		image_u64(IMAGE_LEAF + CLASS_METHOD + AT_METHOD_CONST, 0);
		cr_expect_lt(name(&j, IMAGE_LEAF, leaf), 0);
		cr_expect_eq(j.names.n, 0);
	}
}

/* Stale names, for cookies with the symbols of class and method, of the class only, and of none. */
Test(hotspot, stale_symbols)
{
	for (size_t i = 0; i < ARRAY_SIZE(versions) * 3; i++) {
		u32 version = versions[i / 3], n = (u32)(i % 3);
		_cleanup_jvm_ struct jvm j;
		u64 leaf;

		cr_assert_eq(jvm_init(&j, version, NULL), 0);
		leaf = image_where(HOTSPOT_INTERPRETED, 0, image_cookie(IMAGE_LEAF, n));
		for (u32 symbol = 0; symbol < 2; symbol++) {
			u64 count = IMAGE_LEAF + CLASS_SYMBOLS + symbol * 0x100 + AT_SYMBOL_COUNT;

			/* The symbol gets more references, loses all, and is replaced. */
			image_build(version);
			image_u16(count, 9);
			cr_expect_eq(name(&j, IMAGE_LEAF, leaf), 0);
			image_u16(count, 0);
			cr_expect_eq(name(&j, IMAGE_LEAF, leaf), symbol < n ? -ESTALE : 0);
			image_build(version);
			image_u16(count + 2, 9);
			cr_expect_eq(name(&j, IMAGE_LEAF, leaf), symbol < n ? -ESTALE : 0);
		}
		/* Another method of the same class. */
		image_build(version);
		image_u16(IMAGE_LEAF + CLASS_CONST + AT_CONST_NAME + 4, 3);
		cr_expect_eq(name(&j, IMAGE_LEAF, leaf), -ESTALE);
	}
}

/* ---- memory that changes while it is read ---- */

/* Counts the reads of a process's memory; `change` runs before read number `at`. */
static struct {
	void (*change)(u32 version); /* NULL: never */
	u32 version, at, n;
} reads;

ssize_t __real_process_vm_readv(pid_t pid, const struct iovec *local, unsigned long n_local,
				const struct iovec *remote, unsigned long n_remote,
				unsigned long flags);
ssize_t __wrap_process_vm_readv(pid_t pid, const struct iovec *local, unsigned long n_local,
				const struct iovec *remote, unsigned long n_remote,
				unsigned long flags);

ssize_t __wrap_process_vm_readv(pid_t pid, const struct iovec *local, unsigned long n_local,
				const struct iovec *remote, unsigned long n_remote,
				unsigned long flags)
{
	if (reads.change && reads.n++ == reads.at)
		reads.change(reads.version);
	return __real_process_vm_readv(pid, local, n_local, remote, n_remote, flags);
}

/* Drops all references to the class's symbols. */
static void drop_names(u64 class)
{
	for (u32 i = 0; i < 3; i++)
		image_u16(class + CLASS_SYMBOLS + i * 0x100 + AT_SYMBOL_COUNT, 0);
}

/* Replaces a class by another one, whose symbols are at the same addresses. */
static void replace(u64 class, u32 version)
{
	image_class(class, version, "bad/Class", "bad", "Bad.java", (u8[]){0x7f, 0}, 2);
	for (u32 i = 0; i < 3; i++)
		image_u16(class + CLASS_SYMBOLS + i * 0x100 + AT_SYMBOL_COUNT + 2, (u16)(7 + i));
}

static void classes_die(u32 version)
{
	(void)version;
	drop_names(IMAGE_OUTER);
	drop_names(IMAGE_LEAF);
	*image_at(IMAGE_USED) = 0;
}

static void classes_come(u32 version)
{
	classes_die(version);
	replace(IMAGE_OUTER, version);
	replace(IMAGE_LEAF, version);
}

/* Replaces classes, and the compilation of one by that of the other. */
static void code_comes(u32 version)
{
	classes_come(version);
	*image_at(IMAGE_USED) = 1;
	image_u32(IMAGE_NMETHOD + AT_NM_COMPILE_ID, IMAGE_COMPILE_ID + 1);
}

/* The symbol of a method's name was freed and its memory reused; the class's symbol remains. */
static void name_goes(u32 version)
{
	(void)version;
	for (u64 class = IMAGE_OUTER; class <= IMAGE_LEAF; class += IMAGE_LEAF - IMAGE_OUTER)
		memset(image_at(class + CLASS_SYMBOLS + 0x100), 0xa5, 16);
	*image_at(IMAGE_USED) = 0;
}

/* Names one frame while its memory changes, before each read in turn: gets right names or none. */
static void cr_never_wrong(u32 version, void (*change)(u32 version), bool compiled)
{
	u32 n_right = 0, n_stale = 0;
	bool changed = true;

	for (u32 at = 0; changed; at++) {
		_cleanup_jvm_ struct jvm j;
		int r;

		cr_assert_eq(jvm_init(&j, version, NULL), 0);
		reads = (typeof(reads)){.version = version, .at = at, .change = change};
		r = compiled ? name_compiled(&j, IMAGE_INLINED_AT - 1)
			     : name_interpreted(&j, IMAGE_LEAF, 9);
		changed = reads.n > at;
		reads.change = NULL;
		n_stale += r < 0;
		n_right += r == 0;
		cr_assert(r == 0 || changed);
		if (r == 0)
			cr_leaf(&j, 0, compiled ? 12 : 13);
		if (r == 0 && compiled)
			cr_outer(&j, 1, 40);
	}
	/* A change after the last read leaves the names right. */
	cr_expect_geq(n_right, 1);
	cr_expect_geq(n_stale, 10);
}

Test(hotspot, changes_while_it_is_read)
{
	static void (*const changes[])(u32 version) = {classes_die, classes_come, code_comes,
						       name_goes};

	for (size_t i = 0; i < ARRAY_SIZE(versions); i++)
		for (size_t k = 0; k < ARRAY_SIZE(changes); k++) {
			cr_never_wrong(versions[i], changes[k], false);
			cr_never_wrong(versions[i], changes[k], true);
		}
}

/* Scopes in a cycle, truncated numbers, missing methods, huge lengths. */
Test(hotspot, damaged)
{
	for (size_t i = 0; i < ARRAY_SIZE(versions); i++) {
		u64 scopes = versions[i] >= 23 ? IMAGE_DEBUG + 0x40 : IMAGE_NMETHOD + NM_SCOPES;
		_cleanup_jvm_ struct jvm j;

		cr_assert_eq(jvm_init(&j, versions[i], NULL), 0);
		*image_at(scopes + 4) += 4; /* the scope is its own sender */
		cr_expect_eq(name_compiled(&j, IMAGE_INLINED_AT - 1), -EINVAL);
		image_build(versions[i]);
		*image_at(scopes + 5) = (u8)(versions[i] >= 20); /* method 0 */
		cr_expect_eq(name_compiled(&j, IMAGE_INLINED_AT - 1), -EINVAL);
		image_build(versions[i]);
		*image_at(scopes + 5) += 50; /* a method beyond the metadata */
		cr_expect_eq(name_compiled(&j, IMAGE_INLINED_AT - 1), -EFAULT);
		image_build(versions[i]);
		image_u32(IMAGE_NMETHOD + AT_NM_SCOPES_PCS, 0x7fffffff);
		cr_expect_eq(name_compiled(&j, IMAGE_INLINED_AT - 1), -EINVAL);
		image_build(versions[i]);
		image_u16(IMAGE_OUTER + CLASS_SYMBOLS + AT_SYMBOL_LENGTH, 0xffff);
		cr_assert_eq(name_interpreted(&j, IMAGE_OUTER, 0), 0);
		cr_expect_lt(strlen(j.names.frames[0].function), 1024);
	}
}

Test(hotspot, stubs)
{
	_cleanup_jvm_ struct jvm j;
	u64 pc = HOTSPOT_IMAGE + IMAGE_STUBS + 0x124;

	cr_assert_eq(jvm_init(&j, 17, NULL), 0);
	cr_assert_eq(name(&j, IMAGE_STUBS, image_where(HOTSPOT_STUB, 0x124, (u32)pc)), 0);
	cr_expect_str_eq(j.names.frames[0].function, "StubRoutines::two");
	pc -= 0x100;
	cr_assert_eq(name(&j, IMAGE_STUBS, image_where(HOTSPOT_STUB, 0x24, (u32)pc)), 0);
	cr_expect_str_eq(j.names.frames[0].function, "[StubRoutines (1)]");
}

/* ---- what doctor says ---- */

static void add_line(void *arg, const char *text)
{
	str_puts(arg, text);
	str_putc(arg, '\n');
}

static bool says(struct jvm *j, const char *what)
{
	struct runtime_target t = image_target(&j->process);
	_cleanup_str_ struct str text = {};

	runtime_hotspot.missing(&t, j->learned, add_line, &text);
	return strstr(str_get(&text), what) != NULL;
}

Test(hotspot, doctor)
{
	for (size_t i = 0; i < ARRAY_SIZE(versions); i++) {
		_cleanup_jvm_ struct jvm j;
		char what[320], expected[64];

		cr_assert_eq(jvm_init(&j, versions[i], NULL), 0);
		runtime_hotspot.describe(j.learned, what, sizeof(what));
		snprintf(expected, sizeof(expected), "HotSpot %u.0.1+2-Test, offsets from its ",
			 versions[i]);
		cr_expect_eq(strncmp(what, expected, strlen(expected)), 0, "%s", what);
		cr_expect(says(&j, "+DebugNonSafepoints"));
		cr_expect_eq(says(&j, "virtual thread"), versions[i] >= 21);
		image_flags(true);
		cr_expect_not(says(&j, "+DebugNonSafepoints"));
		image_u64(IMAGE_STATICS + STATIC_N_FLAGS, 1ULL << 40);
		cr_expect(says(&j, "+DebugNonSafepoints"));
		if (versions[i] < 9)
			continue;
		image_u32(IMAGE_HEAP + 0x60, HOTSPOT_MAX_HEAPS + 3);
		cr_expect(says(&j, "7 code heaps"));
	}
}
