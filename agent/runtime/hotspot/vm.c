/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads HotSpot's tables: the entries from the file, their values from a process.
 *
 * The tables are data with relocations; the addends are the entries' pointers. HotSpot also exports
 * the stride and columns of the tables, but most builds store them with an initialiser. They have
 * been the same since 6, and reading ends at an entry whose names are not names.
 */
#include "agent/runtime/hotspot/hotspot.h"

#include <elf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "base/vec.h"

/* struct VMStructEntry: type name, field name, type of the field, is static, offset, address. */
#define ENTRY_BYTES 48
#define ENTRY_FIELD 8
#define ENTRY_OFFSET 32
#define ENTRY_ADDRESS 40
/* struct VMTypeEntry: name, name of the superclass, three int, size. */
#define TYPE_BYTES 40
#define TYPE_SIZE 32

/* struct VMLongConstantEntry: name, value. */
#define CONSTANT_BYTES 16
#define CONSTANT_VALUE 8

#define MAX_ENTRIES 16384
#define MAX_STUBS 512
#define MAX_RODATA (256ULL << 20)
#define MAX_RELOCATIONS (4u << 20)
#define MAX_SPAN (4u << 20)

struct wanted {
	u32 id;
	const char *type, *field;
};

static const struct wanted wanted_statics[] = {
	{HS_HEAP, "CodeCache", "_heap"}, /* up to 8 */
	{HS_HEAPS, "CodeCache", "_heaps"},
	{HS_INTERPRETER, "AbstractInterpreter", "_code"},
	{HS_JDK_VERSION, "JDK_Version", "_current"}, /* up to 21 */
	{HS_VM_MAJOR, "Abstract_VM_Version", "_vm_major_version"},
	{HS_FLAGS, "JVMFlag", "flags"},
	{HS_FLAGS, "Flag", "flags"}, /* up to 9, like the next one */
	{HS_N_FLAGS, "JVMFlag", "numFlags"},
	{HS_N_FLAGS, "Flag", "numFlags"},
	{HS_THREADS, "ThreadsSMRSupport", "_java_thread_list"}, /* from 10 */
	{HS_FIRST_THREAD, "Threads", "_thread_list"},		/* up to 9 */
	/* These, and their like below, are for virtual threads, from 21 on. */
	{HS_COLLECTED_HEAP, "Universe", "_collectedHeap"},
	{HS_OBJECT_CLASS, "vmClasses", "_klasses[static_cast<int>(vmClassID::Object_klass_knum)]"},
	{HS_OOP_BASE, "CompressedOops", "_narrow_oop._base"}, /* up to 24, like the next three */
	{HS_OOP_SHIFT, "CompressedOops", "_narrow_oop._shift"},
	{HS_CLASS_BASE, "CompressedKlassPointers", "_narrow_klass._base"},
	{HS_CLASS_SHIFT, "CompressedKlassPointers", "_narrow_klass._shift"},
	{HS_OOP_BASE, "CompressedOops", "_base"},
	{HS_OOP_SHIFT, "CompressedOops", "_shift"},
	{HS_CLASS_BASE, "CompressedKlassPointers", "_base"},
	{HS_CLASS_SHIFT, "CompressedKlassPointers", "_shift"},
};

static const struct wanted wanted_fields[] = {
	{HF_BLOB_NAME, "CodeBlob", "_name"},
	{HF_BLOB_FRAME_COMPLETE, "CodeBlob", "_frame_complete_offset"},
	{HF_BLOB_FRAME_SIZE, "CodeBlob", "_frame_size"},
	{HF_BLOB_CODE_BEGIN, "CodeBlob", "_code_begin"},   /* 9 to 22 */
	{HF_BLOB_CODE_OFFSET, "CodeBlob", "_code_offset"}, /* all other releases */
	{HF_BLOB_CODE_END, "CodeBlob", "_code_end"},	   /* 9 to 22 */
	{HF_BLOB_DATA_OFFSET, "CodeBlob", "_data_offset"},
	{HF_BLOB_SIZE, "CodeBlob", "_size"},
	{HF_BLOB_RELOCATION_SIZE, "CodeBlob", "_relocation_size"},
	{HF_BLOB_MUTABLE_DATA, "CodeBlob", "_mutable_data"}, /* from 25 */
	{HF_BLOB_MUTABLE_SIZE, "CodeBlob", "_mutable_data_size"},
	{HF_HEAP_MEMORY, "CodeHeap", "_memory"},
	{HF_HEAP_SEGMAP, "CodeHeap", "_segmap"},
	{HF_HEAP_SHIFT, "CodeHeap", "_log2_segment_size"},
	{HF_BLOCK_USED, "HeapBlock::Header", "_used"},
	{HF_SPACE_LOW, "VirtualSpace", "_low_boundary"},
	{HF_SPACE_HIGH, "VirtualSpace", "_high_boundary"},
	{HF_QUEUE_BUFFER, "StubQueue", "_stub_buffer"},
	{HF_QUEUE_LIMIT, "StubQueue", "_buffer_limit"},
	{HF_ARRAY_LEN, "GenericGrowableArray", "_len"},
	{HF_ARRAY_LEN, "GrowableArrayBase", "_len"}, /* from 16 */
	{HF_ARRAY_DATA, "GrowableArray<int>", "_data"},
	{HF_METHOD_CONST, "Method", "_constMethod"},
	{HF_CONST_CONSTANTS, "ConstMethod", "_constants"},
	{HF_CONST_CODE_SIZE, "ConstMethod", "_code_size"},
	{HF_CONST_SIZE, "ConstMethod", "_constMethod_size"},
	{HF_CONST_FLAGS, "ConstMethod", "_flags"},
	{HF_CONST_FLAGS, "ConstMethod", "_flags._flags"}, /* from 21 */
	{HF_CONST_NAME, "ConstMethod", "_name_index"},
	{HF_POOL_HOLDER, "ConstantPool", "_pool_holder"},
	{HF_POOL_LENGTH, "ConstantPool", "_length"},
	{HF_POOL_SOURCE, "ConstantPool", "_source_file_name_index"},   /* from 15 */
	{HF_CLASS_SOURCE, "InstanceKlass", "_source_file_name_index"}, /* up to 14 */
	{HF_CLASS_NAME, "Klass", "_name"},
	{HF_SYMBOL_LENGTH, "Symbol", "_length"},
	{HF_SYMBOL_BODY, "Symbol", "_body"},
	{HF_SYMBOL_BODY, "Symbol", "_body[0]"},
	{HF_SYMBOL_REFCOUNT, "Symbol", "_refcount"},	      /* up to 11 or so */
	{HF_SYMBOL_REFCOUNT, "Symbol", "_hash_and_refcount"}, /* in its lower half */
	{HF_PCDESC_PC, "PcDesc", "_pc_offset"},
	{HF_PCDESC_SCOPE, "PcDesc", "_scope_decode_offset"},
	{HF_NM_METHOD, "nmethod", "_method"},
	{HF_NM_METHOD, "CompiledMethod", "_method"}, /* 9 to 22, like the next one */
	{HF_NM_DEOPT_BEGIN, "CompiledMethod", "_deopt_handler_begin"},
	{HF_NM_DEOPT_OFFSET, "nmethod", "_deoptimize_offset"}, /* 8 */
	{HF_NM_DEOPT_OFFSET, "nmethod", "_deopt_handler_offset"},
	{HF_NM_DEOPT_OFFSET, "nmethod", "_deopt_handler_entry_offset"}, /* from 26 */
	{HF_NM_ORIG_PC, "nmethod", "_orig_pc_offset"},
	{HF_NM_COMPILE_ID, "nmethod", "_compile_id"},
	{HF_NM_METADATA, "nmethod", "_metadata_offset"},
	{HF_NM_SCOPES_BEGIN, "CompiledMethod", "_scopes_data_begin"}, /* 9 to 22 */
	{HF_NM_SCOPES_DATA, "nmethod", "_scopes_data_offset"},
	{HF_NM_SCOPES_PCS, "nmethod", "_scopes_pcs_offset"},
	{HF_NM_DEPENDENCIES, "nmethod", "_dependencies_offset"}, /* up to 22 */
	/* 23 and later, like the next one */
	{HF_NM_IMMUTABLE, "nmethod", "_immutable_data"},
	{HF_NM_IMMUTABLE_SIZE, "nmethod", "_immutable_data_size"},
	{HF_THREAD_SAVED_PC, "JavaThread", "_saved_exception_pc"},
	{HF_FLAG_NAME, "JVMFlag", "_name"},
	{HF_FLAG_NAME, "Flag", "_name"},
	{HF_FLAG_ADDRESS, "JVMFlag", "_addr"},
	{HF_FLAG_ADDRESS, "Flag", "_addr"},
	{HF_THREAD_PENDING, "Thread", "_current_pending_monitor"}, /* up to 16 or so */
	{HF_THREAD_PENDING, "JavaThread", "_current_pending_monitor"},
	{HF_THREAD_OS, "Thread", "_osthread"},
	{HF_THREAD_OS, "JavaThread", "_osthread"},
	{HF_THREAD_NEXT, "JavaThread", "_next"},
	{HF_THREAD_OWNER_ID, "JavaThread", "_monitor_owner_id"}, /* from 24 */
	{HF_STACK_BASE, "JavaThread", "_stack_base"},
	{HF_STACK_BASE, "Thread", "_stack_base"},
	{HF_STACK_SIZE, "JavaThread", "_stack_size"},
	{HF_STACK_SIZE, "Thread", "_stack_size"},
	{HF_OS_ID, "OSThread", "_thread_id"},
	{HF_OS_PTHREAD, "OSThread", "_pthread_id"},
	{HF_MONITOR_OWNER, "ObjectMonitor", "_owner"},
	{HF_LIST_LENGTH, "ThreadsList", "_length"},
	{HF_LIST_THREADS, "ThreadsList", "_threads"},
	{HF_CLASS_LAYOUT, "Klass", "_layout_helper"},
	{HF_CLASS_MIRROR, "Klass", "_java_mirror"},
	{HF_CLASS_NEXT, "Klass", "_next_link"},
	{HF_CLASS_LOADER, "Klass", "_class_loader_data"},
	{HF_CLASS_FIELDS, "InstanceKlass", "_fieldinfo_stream"},
	{HF_CLASS_POOL, "InstanceKlass", "_constants"},
	{HF_LOADER_CLASSES, "ClassLoaderData", "_klasses"},
	{HF_BYTES_DATA, "Array<u1>", "_data"},
	{HF_GC_ACTIVE, "CollectedHeap", "_is_gc_active"},
	{HF_GC_ACTIVE, "CollectedHeap", "_is_stw_gc_active"},
	{HF_GC_COUNT, "CollectedHeap", "_total_collections"},
};

static const struct wanted wanted_sizes[] = {
	{HZ_HEAP_BLOCK, "HeapBlock", NULL},
	{HZ_CONST_METHOD, "ConstMethod", NULL},
	{HZ_CONSTANT_POOL, "ConstantPool", NULL},
	{HZ_PCDESC, "PcDesc", NULL},
	{HZ_NMETHOD, "nmethod", NULL},
	{HZ_FLAG, "JVMFlag", NULL}, /* only for doctor, like the next one */
	{HZ_FLAG, "Flag", NULL},
	{HZ_CONTINUATION_ENTRY, "ContinuationEntry", NULL}, /* from 25 */
};

/* ---- the file ---- */

struct relocation {
	u64 svma, value;
};

struct image {
	struct elf_file *elf;
	vec(struct relocation) relocations; /* sorted */
	struct elf_section strings;
	char *rodata; /* owned */
	u64 n_rodata;
};

static void image_deinit(struct image *im)
{
	vec_deinit(&im->relocations);
	free(im->rodata);
}
#define _cleanup_image_ __attribute__((cleanup(image_deinit)))

static int compare_relocations(const void *a, const void *b)
{
	const struct relocation *x = a, *y = b;

	return x->svma < y->svma ? -1 : x->svma > y->svma;
}

static bool dynamic_symbol(struct elf_file *f, u32 index, Elf64_Sym *ret)
{
	struct buf b;

	if (elf_file_section(f, ".dynsym", NULL, &b) < 0 ||
	    !buf_skip(&b, (u64)index * sizeof(*ret)) || buf_left(&b) < sizeof(*ret))
		return false;
	memcpy(ret, b.pos, sizeof(*ret));
	return true;
}

static int read_relocations(struct image *im)
{
	bool arm = im->elf->machine == EM_AARCH64, sorted = true;
	u32 relative = arm ? R_AARCH64_RELATIVE : R_X86_64_RELATIVE;
	u32 absolute = arm ? R_AARCH64_ABS64 : R_X86_64_64;
	struct buf b;
	int r = elf_file_section(im->elf, ".rela.dyn", NULL, &b);

	if (r < 0)
		return r;
	while (buf_left(&b) >= sizeof(Elf64_Rela) && im->relocations.n < MAX_RELOCATIONS) {
		struct relocation rel;
		Elf64_Rela a;
		Elf64_Sym sym;

		memcpy(&a, b.pos, sizeof(a));
		buf_skip(&b, sizeof(a));
		rel = (struct relocation){a.r_offset, (u64)a.r_addend};
		if (ELF64_R_TYPE(a.r_info) == absolute) {
			if (!dynamic_symbol(im->elf, (u32)ELF64_R_SYM(a.r_info), &sym))
				continue;
			rel.value += sym.st_value;
		} else if (ELF64_R_TYPE(a.r_info) != relative) {
			continue;
		}
		sorted = sorted && (!im->relocations.n ||
				    im->relocations.data[im->relocations.n - 1].svma <= rel.svma);
		if (vec_push(&im->relocations, rel) < 0)
			return -ENOMEM;
	}
	if (!sorted)
		qsort(im->relocations.data, im->relocations.n, sizeof(struct relocation),
		      compare_relocations);
	return 0;
}

static int read_strings(struct image *im)
{
	ssize_t n;
	int r = elf_file_section(im->elf, ".rodata", &im->strings, NULL);

	if (r < 0)
		return r;
	if (!im->strings.size || im->strings.size > MAX_RODATA)
		return -E2BIG;
	im->rodata = malloc(im->strings.size);
	if (!im->rodata)
		return -ENOMEM;
	n = elf_file_copy(im->elf, im->strings.svma, im->strings.size, im->rodata);
	if (n <= 0)
		return n < 0 ? (int)n : -EINVAL;
	im->n_rodata = (u64)n;
	im->rodata[im->n_rodata - 1] = 0;
	return 0;
}

/* Returns a word as it is after loading at address 0: from its relocation, else from the file. */
static u64 word_at(const struct image *im, u64 svma)
{
	struct relocation key = {.svma = svma};
	const struct relocation *rel =
		im->relocations.n ? bsearch(&key, im->relocations.data, im->relocations.n,
					    sizeof(key), compare_relocations)
				  : NULL;
	u64 word;

	if (rel)
		return rel->value;
	return elf_file_copy(im->elf, svma, sizeof(word), &word) == sizeof(word) ? word : 0;
}

/* Returns a name of the tables, borrowed from the image; NULL: it is no name. */
static const char *name_at(const struct image *im, u64 svma)
{
	u64 at = svma - im->strings.svma;

	return at < im->n_rodata && im->rodata[at] ? im->rodata + at : NULL;
}

static int find_symbol(struct elf_file *f, const char *name, u64 *ret_svma)
{
	struct elf_section s;
	struct buf b, names;
	int r = elf_file_section(f, ".dynsym", &s, &b);

	if (r == 0)
		r = elf_file_section(f, ".dynstr", NULL, &names);
	if (r < 0)
		return r;
	while (buf_left(&b) >= sizeof(Elf64_Sym)) {
		struct buf rest = names;
		const char *text;
		Elf64_Sym sym;

		memcpy(&sym, b.pos, sizeof(sym));
		buf_skip(&b, sizeof(sym));
		if (sym.st_shndx != SHN_UNDEF && buf_skip(&rest, sym.st_name) &&
		    buf_cstr(&rest, &text) && !strcmp(text, name)) {
			*ret_svma = sym.st_value;
			return 0;
		}
	}
	return -ENOENT;
}

/* ---- the tables ---- */

static int add_stub(struct hotspot_vm *vm, const char *field, u64 svma)
{
	struct hotspot_stub *s;

	if (vm->n_stubs == MAX_STUBS)
		return 0;
	if (!vm->stubs)
		vm->stubs = calloc(MAX_STUBS, sizeof(*vm->stubs));
	if (!vm->stubs)
		return -ENOMEM;
	s = &vm->stubs[vm->n_stubs++];
	s->svma = svma;
	snprintf(s->name, sizeof(s->name), "%s", field + (*field == '_'));
	return 0;
}

static int take_entry(struct hotspot_vm *vm, const struct image *im, u64 at, const char *type,
		      const char *field)
{
	u64 address = word_at(im, at + ENTRY_ADDRESS);

	if (address && !strcmp(type, "StubRoutines") && *field == '_' &&
	    !strstr(field, "_return_address"))
		return add_stub(vm, field, address);
	for (size_t i = 0; address && i < ARRAY_SIZE(wanted_statics); i++)
		if (!strcmp(type, wanted_statics[i].type) &&
		    !strcmp(field, wanted_statics[i].field))
			vm->statics[wanted_statics[i].id] = address;
	for (size_t i = 0; !address && i < ARRAY_SIZE(wanted_fields); i++) {
		u64 *known = &vm->fields[wanted_fields[i].id];

		if (*known || strcmp(type, wanted_fields[i].type) != 0 ||
		    strcmp(field, wanted_fields[i].field) != 0)
			continue;
		*known = at + ENTRY_OFFSET;
		vm->first = vm->first ? MIN(vm->first, *known) : *known;
		vm->end = MAX(vm->end, *known + 8);
	}
	return 0;
}

static int read_fields(struct hotspot_vm *vm, const struct image *im)
{
	u64 at;
	int r = find_symbol(im->elf, "gHotSpotVMStructs", &at);

	if (r < 0)
		return r;
	at = word_at(im, at);
	for (u32 i = 0; i < MAX_ENTRIES; i++, at += ENTRY_BYTES) {
		const char *type = name_at(im, word_at(im, at));
		const char *field = name_at(im, word_at(im, at + ENTRY_FIELD));

		if (!type || !field)
			break;
		r = take_entry(vm, im, at, type, field);
		if (r < 0)
			return r;
	}
	return 0;
}

static int read_sizes(struct hotspot_vm *vm, const struct image *im)
{
	u64 at;
	int r = find_symbol(im->elf, "gHotSpotVMTypes", &at);

	if (r < 0)
		return r;
	at = word_at(im, at);
	for (u32 i = 0; i < MAX_ENTRIES; i++, at += TYPE_BYTES) {
		const char *type = name_at(im, word_at(im, at));

		if (!type)
			break;
		for (size_t k = 0; k < ARRAY_SIZE(wanted_sizes); k++)
			if (!strcmp(type, wanted_sizes[k].type))
				vm->sizes[wanted_sizes[k].id] =
					(u32)MIN(word_at(im, at + TYPE_SIZE), 1u << 16);
	}
	return 0;
}

/* The constants are optional: only those of releases with compact headers are read. */
static void find_constants(struct hotspot_vm *vm, const struct image *im)
{
	u64 at;

	if (find_symbol(im->elf, "gHotSpotVMLongConstants", &at) < 0)
		return;
	at = word_at(im, at);
	for (u32 i = 0; i < MAX_ENTRIES; i++, at += CONSTANT_BYTES) {
		const char *name = name_at(im, word_at(im, at));

		if (!name)
			break;
		if (!strcmp(name, "markWord::klass_shift"))
			vm->mark_shift = at + CONSTANT_VALUE;
	}
}

/* Checks what every version has. Alternatives are checked when a process is read. */
static int check_vm(const struct hotspot_vm *vm, struct diag *reterr_diag)
{
	static const enum hotspot_field needed[] = {
		HF_BLOB_NAME,	  HF_BLOB_FRAME_COMPLETE, HF_BLOB_FRAME_SIZE, HF_HEAP_MEMORY,
		HF_HEAP_SEGMAP,	  HF_HEAP_SHIFT,	  HF_SPACE_LOW,	      HF_SPACE_HIGH,
		HF_QUEUE_BUFFER,  HF_QUEUE_LIMIT,	  HF_METHOD_CONST,    HF_CONST_CONSTANTS,
		HF_CONST_NAME,	  HF_CONST_FLAGS,	  HF_CONST_SIZE,      HF_CONST_CODE_SIZE,
		HF_POOL_HOLDER,	  HF_CLASS_NAME,	  HF_SYMBOL_LENGTH,   HF_SYMBOL_BODY,
		HF_PCDESC_PC,	  HF_PCDESC_SCOPE,	  HF_NM_METHOD,	      HF_NM_ORIG_PC,
		HF_NM_COMPILE_ID, HF_NM_SCOPES_PCS,
	};

	for (size_t i = 0; i < ARRAY_SIZE(needed); i++)
		for (size_t k = 0; k < ARRAY_SIZE(wanted_fields); k++)
			if (wanted_fields[k].id == needed[i] && !vm->fields[needed[i]])
				return diag_set(reterr_diag, -ENOTSUP,
						"its vmStructs have no %s.%s",
						wanted_fields[k].type, wanted_fields[k].field);
	for (size_t k = 0; k < ARRAY_SIZE(wanted_sizes); k++)
		if (!vm->sizes[wanted_sizes[k].id] && wanted_sizes[k].id != HZ_FLAG &&
		    wanted_sizes[k].id != HZ_CONTINUATION_ENTRY)
			return diag_set(reterr_diag, -ENOTSUP, "its vmTypes have no %s",
					wanted_sizes[k].type);
	if ((!vm->statics[HS_HEAP] && !vm->statics[HS_HEAPS]) || !vm->statics[HS_INTERPRETER])
		return diag_set(reterr_diag, -ENOTSUP,
				"its vmStructs do not contain the code heaps");
	if (vm->end - vm->first > MAX_SPAN)
		return diag_set(reterr_diag, -EINVAL, "its vmStructs are too large");
	return 0;
}

/*
 * Finds the release in the text of -version: OpenJDK 64-Bit Server VM (…) for linux-amd64 JRE
 * (17.0.15+6), …
 */
static void find_release(struct hotspot_vm *vm, const struct image *im)
{
	static const char before[] = " JRE (";
	const char *at = im->rodata, *end = im->rodata + im->n_rodata;

	while ((at = memmem(at, (size_t)(end - at), before, sizeof(before) - 1))) {
		size_t n = 0;

		at += sizeof(before) - 1;
		while (at + n < end && n < sizeof(vm->release) && at[n] > ' ' && at[n] < 0x7f &&
		       at[n] != ')')
			n++;
		if (!n || at + n == end || n == sizeof(vm->release) || at[n] != ')')
			continue;
		memcpy(vm->release, at, n);
		return;
	}
}

void hotspot_vm_destroy(struct hotspot_vm *vm)
{
	if (vm) {
		free(vm->stubs);
		disasm_destroy(vm->disasm);
	}
	free(vm);
}
DEFINE_CLEANUP(hotspot_vm, struct hotspot_vm *, hotspot_vm_destroy)

int hotspot_vm_learn(struct elf_file *f, struct hotspot_vm **ret, struct diag *reterr_diag)
{
	_cleanup_image_ struct image im = {.elf = f};
	_cleanup_(hotspot_vm) struct hotspot_vm *vm = calloc(1, sizeof(*vm));
	int r;

	if (!vm)
		return -ENOMEM;
	r = disasm_create(f->machine, &vm->disasm);
	if (r == 0)
		r = read_relocations(&im);
	if (r == 0)
		r = read_strings(&im);
	if (r == 0)
		r = read_fields(vm, &im);
	if (r == 0)
		r = read_sizes(vm, &im);
	if (r == -ENOENT)
		return diag_set(
			reterr_diag, r,
			"it has no vmStructs: it is not HotSpot, or was built without tables for debuggers");
	if (r < 0)
		return diag_set(reterr_diag, r, "its vmStructs cannot be read: %s", strerror(-r));
	r = check_vm(vm, reterr_diag);
	if (r < 0)
		return r;
	if (vm->statics[HS_VM_MAJOR])
		vm->major = (u32)word_at(&im, vm->statics[HS_VM_MAJOR]);
	find_constants(vm, &im);
	find_release(vm, &im);
	*ret = take_ptr(vm);
	return 0;
}

/* ---- a process ---- */

static u32 major_of(const struct hotspot_vm *vm, const struct runtime_target *t, bool *failed)
{
	/* Up to 21 there is struct JDK_Version, whose first byte is the major number. */
	if (vm->statics[HS_JDK_VERSION])
		return runtime_u32(&t->memory, vm->statics[HS_JDK_VERSION] + t->bias, failed) &
		       0xff;
	if (vm->statics[HS_VM_MAJOR])
		return runtime_u32(&t->memory, vm->statics[HS_VM_MAJOR] + t->bias, failed);
	return 0;
}

int hotspot_vm_read(const struct hotspot_vm *vm, const struct runtime_target *t,
		    struct hotspot_offsets *ret)
{
	_cleanup_free_ u8 *span = malloc(vm->end - vm->first);
	struct hotspot_offsets o;
	bool failed = false;
	int r;

	if (!span)
		return -ENOMEM;
	r = runtime_read(&t->memory, vm->first + t->bias, span, vm->end - vm->first);
	if (r < 0)
		return r;
	for (u32 i = 0; i < HF_N; i++) {
		u64 offset = HOTSPOT_NONE;

		if (vm->fields[i])
			memcpy(&offset, span + (vm->fields[i] - vm->first), sizeof(offset));
		if (vm->fields[i] && offset >= 4096)
			return -EINVAL;
		o.of[i] = (u32)offset;
	}
	/* These are not 0 in any version, unless the initialisers have not run. */
	if (!o.of[HF_NM_COMPILE_ID] || !o.of[HF_HEAP_SEGMAP] || !o.of[HF_SPACE_HIGH])
		return -EAGAIN;
	o.major = major_of(vm, t, &failed);
	if (failed)
		return -EFAULT;
	o.exclude = o.major >= 20;
	*ret = o;
	return 0;
}
