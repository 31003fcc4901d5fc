/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a binary says of its V8: the constants for post-mortem debuggers (v8dbg_*, generated with
 * every build; tools/gen-postmortem-metadata.py), its version, and where the builtins lie.
 *
 * The constants cover much, but not all, and not in every version: what is missing follows from the
 * version. What neither gives makes learning fail with the constant's name.
 */
#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/runtime/v8/v8.h"
#include "base/cleanup.h"
#include "runtime/v8/builtins.h"

#define MAX_BYTECODES 256
#define MISSING INT32_MIN
/* Offsets, types, indices and masks: what is further out is no V8's, and sums of these are safe. */
#define LEAST_CONSTANT (-4096)
#define MOST_CONSTANT 0xffff

/* A constant: its name, up to the type that ends it, and what it fills. */
struct constant {
	const char *name;
	u16 field;  /* offset in struct v8_layout */
	bool whole; /* the name is all of it */
	s32 otherwise;
};

#define C(name, field, otherwise)                                                                  \
	{                                                                                          \
		name, offsetof(struct v8_layout, field), false, otherwise                          \
	}
#define W(name, field, otherwise)                                                                  \
	{                                                                                          \
		name, offsetof(struct v8_layout, field), true, otherwise                           \
	}

static const struct constant constants[] = {
	W("SmiShiftSize", smi_shift_size, MISSING),
	W("FirstNonstringType", first_nonstring, MISSING),
	W("StringRepresentationMask", string_mask, 7),
	W("StringEncodingMask", string_encoding_mask, 8),
	W("OneByteStringTag", one_byte, 8),
	W("ConsStringTag", cons, 1),
	W("ExternalStringTag", external, 2),
	W("SlicedStringTag", sliced, 3),
	W("ThinStringTag", thin, 5),
	C("class_String__length__", string_length, 12),
	C("class_SeqOneByteString__chars__", chars, 16),
	C("class_ConsString__first__", cons_first, 16),
	C("class_ConsString__second__", cons_second, 24),
	C("class_SlicedString__parent__", sliced_parent, 16),
	C("class_SlicedString__offset__", sliced_offset, 24),
	C("class_ThinString__actual__", thin_actual, 16),
	C("class_ExternalString__resource__", external_data, 16),
	C("class_Map__instance_type__", map_instance_type, 12),
	C("type_JSFunction__", type_function, MISSING),
	W("FirstJSFunctionType", type_first_function, -1),
	W("LastJSFunctionType", type_last_function, -1),
	C("type_SharedFunctionInfo__", type_shared, MISSING),
	C("type_Script__", type_script, MISSING),
	C("type_ScopeInfo__", type_scope_info, MISSING),
	C("type_BytecodeArray__", type_bytecode_array, MISSING),
	C("type_Code__", type_code, MISSING),
	C("type_InstructionStream__", type_stream, -1),
	C("type_InterpreterData__", type_interpreter_data, -1),
	C("type_CodeWrapper__", type_code_wrapper, -1),
	C("type_BaselineData__", type_baseline_data, -1),
	C("class_JSFunction__shared__", function_shared, 24),
	C("class_SharedFunctionInfo__name_or_scope_info__", shared_name, 16),
	C("class_SharedFunctionInfo__function_data__", shared_data, 8),
	C("class_SharedFunctionInfo__script", shared_script, 32),
	C("class_SharedFunctionInfo__length__", shared_length, 40),
	C("class_SharedFunctionInfoWrapper__shared_info__", wrapper_shared, 8),
	W("scopeinfo_idx_first_vars", scope_first_vars, MISSING),
	W("scopeinfo_idx_ncontextlocals", scope_n_locals, MISSING),
	C("class_Script__name__", script_name, 16),
	C("class_Script__source__", script_source, 8),
	C("class_FixedArrayBase__length__", array_length, 8),
	C("class_FixedArray__data__", array_data, 16),
	C("class_BytecodeArray__source_position_table__", bytecode_positions, -1),
	C("class_BytecodeArray__data__", bytecode_data, -1),
	C("class_InterpreterData__bytecode_array__", interpreter_bytecode, 8),
	C("class_Code__instruction_size__", code_size, -1),
	C("class_Code__flags__", code_flags, -1),
	C("class_Code__instruction_start__", code_start, -1),
	C("class_Code__source_position_table__", code_positions, -1),
	C("class_Code__deoptimization_data__", code_deopt, -1),
	W("CodeKindFieldMask", kind_mask, 15),
	W("CodeKindBaseline", kind_baseline, -1),
	W("DeoptimizationDataLiteralArrayIndex", deopt_literals, 2),
	W("DeoptimizationDataSharedFunctionInfoIndex", deopt_shared, 6),
	W("DeoptimizationDataWrappedSharedFunctionInfoIndex", deopt_wrapped, -1),
	W("DeoptimizationDataInliningPositionsIndex", deopt_inlining, -1),
	W("off_fp_context", fp_context, -8),
	W("off_fp_function", fp_function, -16),
	W("off_fp_bytecode_array", fp_bytecode_array, 0),
	W("off_fp_bytecode_offset", fp_bytecode_offset, 0),
	W("frametype_EntryFrame", frame_entry, 1),
	W("frametype_ConstructEntryFrame", frame_construct_entry, 2),
	W("frametype_ExitFrame", frame_exit, 3),
	W("frametype_BuiltinExitFrame", frame_builtin_exit, 0xffff),
	W("JSFunctionRegister", reg_function, 7),
	W("InterpreterBytecodeArrayRegister", reg_bytecode_array, 12),
	W("InterpreterBytecodeOffsetRegister", reg_bytecode_offset, 9),
};

/* Other symbols. */
struct symbols {
	s32 values[ARRAY_SIZE(constants)];
	bool have[ARRAY_SIZE(constants)];
	u32 n_constants;
	u64 major, minor, build; /* of static ints, by address */
	u64 sizes, sizes_n;	 /* Bytecodes::kBytecodeSizes */
	u64 builtins_start, builtins_end;
	u64 interpreter[2][2];
};

static bool read_at(struct elf_file *elf, u64 svma, void *to, size_t n)
{
	return svma && elf_file_copy(elf, svma, n, to) == (ssize_t)n;
}

static void take_constant(struct elf_file *elf, const char *name, u64 svma, struct symbols *s)
{
	for (size_t i = 0; i < ARRAY_SIZE(constants); i++) {
		const struct constant *c = &constants[i];

		if (c->whole ? strcmp(name, c->name) != 0
			     : strncmp(name, c->name, strlen(c->name)) != 0)
			continue;
		if (!s->have[i] && read_at(elf, svma, &s->values[i], 4))
			s->have[i] = true;
		return;
	}
}

static void take_builtin(const char *name, const Elf64_Sym *sym, struct symbols *s)
{
	static const char *const interpreters[2] = {"InterpreterEntryTrampoline",
						    "InterpreterEntryTrampolineForProfiling"};
	/* Old builds give no sizes: the last one is not longer than this. */
	u64 start = sym->st_value, end = start + (sym->st_size ? sym->st_size : 4096);

	if (!s->builtins_start || start < s->builtins_start)
		s->builtins_start = start;
	s->builtins_end = MAX(s->builtins_end, end);
	for (u32 i = 0; i < 2; i++) {
		if (strcmp(name, interpreters[i]) != 0)
			continue;
		s->interpreter[i][0] = start;
		s->interpreter[i][1] = sym->st_size ? end : start;
	}
}

static void take_symbol(struct elf_file *elf, const char *name, const Elf64_Sym *sym,
			struct symbols *s)
{
	static const struct {
		const char *name;
		size_t field;
	} others[] = {
		{"_ZN2v88internal7Version6major_E", offsetof(struct symbols, major)},
		{"_ZN2v88internal7Version6minor_E", offsetof(struct symbols, minor)},
		{"_ZN2v88internal7Version6build_E", offsetof(struct symbols, build)},
	};

	if (!strncmp(name, "v8dbg_", 6)) {
		s->n_constants++;
		take_constant(elf, name + 6, sym->st_value, s);
	} else if (!strncmp(name, "Builtins_", 9)) {
		if (ELF64_ST_TYPE(sym->st_info) == STT_FUNC)
			take_builtin(name + 9, sym, s);
	} else if (!strcmp(name, "_ZN2v88internal11interpreter9Bytecodes14kBytecodeSizesE")) {
		s->sizes = sym->st_value;
		s->sizes_n = sym->st_size;
	} else {
		for (size_t i = 0; i < ARRAY_SIZE(others); i++)
			if (!strcmp(name, others[i].name))
				*(u64 *)((char *)s + others[i].field) = sym->st_value;
	}
}

static void read_symbols(struct elf_file *elf, bool dynamic, struct symbols *s)
{
	struct buf syms, names;
	Elf64_Sym sym;

	if (elf_file_section(elf, dynamic ? ".dynsym" : ".symtab", NULL, &syms) < 0 ||
	    elf_file_section(elf, dynamic ? ".dynstr" : ".strtab", NULL, &names) < 0)
		return;
	if (!dynamic)
		s->n_constants = 0; /* it has those of .dynsym again */
	while (buf_left(&syms) >= sizeof(sym)) {
		struct buf b = names;
		const char *name;

		memcpy(&sym, syms.pos, sizeof(sym));
		syms.pos += sizeof(sym);
		if (sym.st_shndx == SHN_UNDEF || !buf_skip(&b, sym.st_name) || !buf_left(&b))
			continue;
		/* All of ours begin so; most others are not looked at any further. */
		if (*b.pos != 'v' && *b.pos != 'B' && *b.pos != '_')
			continue;
		if (buf_cstr(&b, &name))
			take_symbol(elf, name, &sym, s);
	}
}

static s32 read_int(struct elf_file *elf, u64 svma)
{
	s32 v;

	return read_at(elf, svma, &v, 4) ? v : -1;
}

static int read_version(struct elf_file *elf, const struct symbols *s, struct v8_learned *v,
			struct diag *d)
{
	s32 major = read_int(elf, s->major), minor = read_int(elf, s->minor),
	    build = read_int(elf, s->build);

	if (major < 1 || major > 99 || minor < 0 || minor > 99 || build < 0 || build > 9999)
		return diag_set(d, -ENOTSUP, "V8 of an unknown version");
	v->major = (u32)major;
	v->minor = (u32)minor;
	v->build = (u32)build;
	v->version = V8_VERSION(v->major, v->minor, v->build);
	return 0;
}

static int take_constants(const struct symbols *s, struct v8_learned *v, struct diag *d)
{
	for (size_t i = 0; i < ARRAY_SIZE(constants); i++) {
		s32 value = s->have[i] ? s->values[i] : constants[i].otherwise;

		if (value == MISSING)
			return diag_set(d, -ENOTSUP, "V8 %u.%u.%u: no v8dbg_%s", v->major, v->minor,
					v->build, constants[i].name);
		if (value < LEAST_CONSTANT || value > MOST_CONSTANT)
			return diag_set(d, -ENOTSUP, "V8 %u.%u.%u: v8dbg_%s is %d", v->major,
					v->minor, v->build, constants[i].name, value);
		memcpy((char *)&v->layout + constants[i].field, &value, sizeof(value));
	}
	v->n_constants = s->n_constants;
	return 0;
}

/* ---- what follows from the version ---- */

static void complete_code(struct v8_learned *v)
{
	struct v8_layout *l = &v->layout;

	l->stream_code = 8;
	if (l->type_code_wrapper >= 0) { /* 12 and later */
		l->code_positions = l->code_start - 24;
		l->code_deopt = l->code_positions - 8;
	} else if (l->type_stream >= 0) { /* 11 */
		if (l->code_positions < 0)
			l->code_positions = 24;
		l->code_deopt = l->code_positions - 8;
		l->code_start = l->code_positions + 16;
		if (l->code_flags < 0)
			l->code_flags = l->code_start + 8;
		if (l->code_size < 0)
			l->code_size = l->code_flags + (v->version < V8_VERSION(11, 4, 59) ? 8 : 4);
	} else { /* a Code has its instructions behind its header */
		if (l->code_size < 0)
			l->code_size = 40;
		if (l->code_flags < 0)
			l->code_flags = l->code_size + (v->version < V8_VERSION(9, 0, 0) ? 4 : 8);
		l->code_positions = 24;
		l->code_deopt = 16;
	}
	if (v->version < V8_VERSION(9, 0, 240))
		l->kind_baseline = -1;
	else if (l->kind_baseline < 0)
		l->kind_baseline = 11;
	if (l->deopt_inlining < 0)
		l->deopt_inlining = l->deopt_shared + 1;
}

static void complete_layout(struct v8_learned *v)
{
	struct v8_layout *l = &v->layout;
	u32 version = v->version;

	/* An external string's characters: the word behind its resource. */
	l->external_data += 8;
	if (l->type_first_function < 0) {
		l->type_first_function = l->type_function;
		l->type_last_function = l->type_function + (version >= V8_VERSION(9, 6, 138)  ? 15
							    : version >= V8_VERSION(9, 0, 14) ? 14
											      : 0);
	}
	/* Until 9 a ScopeInfo was a FixedArray. */
	l->scope_header = version < V8_VERSION(9, 0, 0) ? 16 : 8;
	l->scope_positions = version >= V8_VERSION(12, 8, 44) ? 3 : -1;
	l->scope_saved_class = version < V8_VERSION(8, 4, 0) ? -1 : 10;
	l->scope_function_variable = version < V8_VERSION(8, 4, 0) ? 11 : 12;
	l->bytecode_length = l->array_length;
	if (l->bytecode_positions < 0)
		l->bytecode_positions = l->array_length + (version < V8_VERSION(11, 9, 86)   ? 24
							   : version < V8_VERSION(12, 0, 67) ? 16
							   : version < V8_VERSION(12, 1, 36) ? 24
							   : version < V8_VERSION(12, 3, 43) ? 32
							   : version < V8_VERSION(12, 3, 97) ? 24
											     : 16);
	if (l->bytecode_data < 0)
		l->bytecode_data = l->bytecode_positions + 8 + 14;
	if (!l->fp_bytecode_array) {
		l->fp_bytecode_array = l->fp_function - (version >= V8_VERSION(8, 7, 198) ? 16 : 8);
		l->fp_bytecode_offset = l->fp_bytecode_array - 8;
	}
	complete_code(v);
}

/* ---- for BPF ---- */

/* From V8's numbers of registers, which are the processor's, to DWARF's. */
static u32 dwarf_register(u16 machine, s32 reg)
{
	static const u8 x86[8] = {0, 2, 1, 3, 7, 6, 4, 5};

	return machine == EM_X86_64 && reg >= 0 && reg < 8 ? x86[reg] : (u32)reg;
}

static int fill_bpf(struct elf_file *elf, const struct symbols *s, const struct v8_learned *v,
		    struct runtime_v8_binary *ret, struct diag *d)
{
	const struct v8_layout *l = &v->layout;
	const s32 slots[] = {l->fp_context, l->fp_function, l->fp_bytecode_array,
			     l->fp_bytecode_offset};

	for (size_t i = 0; i < ARRAY_SIZE(slots); i++)
		if (slots[i] > -8 || slots[i] < -48 || slots[i] & 7)
			return diag_set(d, -ENOTSUP, "V8 %u.%u.%u: a frame has a slot at fp%+d",
					v->major, v->minor, v->build, slots[i]);
	*ret = (struct runtime_v8_binary){
		.builtins_start = v->builtins_start,
		.builtins_end = v->builtins_end,
		.off_context = l->fp_context,
		.off_function = l->fp_function,
		.off_bytecode_array = l->fp_bytecode_array,
		.off_bytecode_offset = l->fp_bytecode_offset,
		.instance_type = (u32)l->map_instance_type,
		.first_function = (u32)l->type_first_function,
		.last_function = (u32)l->type_last_function,
		.bytecode_array = (u32)l->type_bytecode_array,
		.shared = (u32)l->function_shared,
		.cookie = (u32)l->shared_length,
		.frame_entry = (u32)l->frame_entry,
		.frame_construct_entry = (u32)l->frame_construct_entry,
		.frame_exit = (u32)l->frame_exit,
		.frame_builtin_exit = (u32)l->frame_builtin_exit,
		.reg_function = dwarf_register(elf->machine, l->reg_function),
		.reg_bytecode_array = dwarf_register(elf->machine, l->reg_bytecode_array),
		.reg_bytecode_offset = dwarf_register(elf->machine, l->reg_bytecode_offset),
	};
	/* Without sizes the walker looks at the frame's slots instead. */
	for (u32 i = 0; i < 2 && s->interpreter[0][1] > s->interpreter[0][0]; i++) {
		ret->interpreter[i].start = s->interpreter[i][0];
		ret->interpreter[i].end = s->interpreter[i][1];
	}
	return 0;
}

/* ---- all of it ---- */

static void find_text(struct elf_file *elf, struct v8_learned *v)
{
	v->text_start = ~0ULL;
	for (u32 i = 0; i < elf->n_segments; i++) {
		const struct elf_segment *seg = &elf->segments[i];

		if (!(seg->flags & PF_X))
			continue;
		v->text_start = MIN(v->text_start, seg->svma);
		v->text_end = MAX(v->text_end, seg->svma + seg->memsz);
	}
}

/* By their symbols, or by the table that V8 itself finds them by. */
static int find_builtins(struct elf_file *elf, const struct symbols *s, struct v8_learned *v,
			 struct diag *d)
{
	struct v8_builtins b = {};
	int r;

	find_text(elf, v);
	v->by_symbols = s->builtins_start;
	v->builtins_start = s->builtins_start;
	v->builtins_end = s->builtins_end;
	if (v->by_symbols)
		return 0;
	r = v8_builtins_find(elf, &b);
	if (r < 0)
		return diag_set(d, r == -ENOMEM ? r : -ENOTSUP,
				"V8 %u.%u.%u: neither symbols of its builtins nor their table",
				v->major, v->minor, v->build);
	v->builtins_start = b.start;
	v->builtins_end = b.end;
	v8_builtins_deinit(&b);
	return 0;
}

/*
 * kBytecodeSizes without its symbol: u8[3][n]. Wide, ExtraWide and two more have no operands,
 * DebugBreak0 to 4 as many as their name says; and operands double with the scale, or never.
 */
static const u8 first_sizes[] = {1, 1, 1, 1, 1, 2, 3, 4, 5};

static u32 sizes_at(const u8 *p, size_t left)
{
	for (u32 n = 128; n < MAX_BYTECODES && 3 * n <= left; n++) {
		bool fits = true;

		for (u32 i = 0; i < sizeof(first_sizes) && fits; i++)
			fits = p[n + i] == 2 * first_sizes[i] - 1 &&
			       p[2 * n + i] == 4 * first_sizes[i] - 3;
		for (u32 i = 0; i < n && fits; i++)
			fits = p[i] && p[n + i] >= p[i] &&
			       p[2 * n + i] - p[n + i] == 2 * (p[n + i] - p[i]);
		if (fits)
			return n;
	}
	return 0;
}

static void find_sizes(struct elf_file *elf, struct symbols *s)
{
	const size_t chunk = 1 << 20;
	_cleanup_free_ u8 *bytes = malloc(chunk + 3 * MAX_BYTECODES);

	for (u32 i = 0; bytes && i < elf->n_segments; i++) {
		const struct elf_segment *seg = &elf->segments[i];

		for (u64 at = 0; !(seg->flags & PF_W) && at < seg->filesz; at += chunk) {
			ssize_t n = elf_file_copy(elf, seg->svma + at, chunk + 3 * MAX_BYTECODES,
						  bytes);
			const u8 *p = bytes, *end = bytes + MAX(n, 0);

			while ((p = memmem(p, (size_t)(end - p), first_sizes,
					   sizeof(first_sizes)))) {
				u32 count = sizes_at(p, (size_t)(end - p));

				if (count) {
					s->sizes = seg->svma + at + (u64)(p - bytes);
					s->sizes_n = 3ULL * count;
					return;
				}
				p++;
			}
		}
	}
}

/* {u8 or int} [3 scales][bytecodes] */
static int read_bytecode_sizes(struct elf_file *elf, struct symbols *s, struct v8_learned *v)
{
	_cleanup_free_ u8 *raw = NULL;
	u32 width, n;

	if (!s->sizes)
		find_sizes(elf, s);
	width = s->sizes_n > 3ULL * MAX_BYTECODES ? 4 : 1;
	n = (u32)(s->sizes_n / 3 / width);
	if (!s->sizes || !n || n > MAX_BYTECODES || s->sizes_n % (3 * width))
		return 0;
	raw = malloc(s->sizes_n);
	v->bytecode_sizes = calloc(3, n);
	if (!raw || !v->bytecode_sizes)
		return -ENOMEM;
	if (!read_at(elf, s->sizes, raw, s->sizes_n)) {
		free(v->bytecode_sizes);
		v->bytecode_sizes = NULL;
		return 0;
	}
	v->n_bytecodes = n;
	for (u32 i = 0; i < 3 * n; i++)
		v->bytecode_sizes[i] = raw[(size_t)i * width];
	return 0;
}

void v8_forget(void *learned)
{
	struct v8_learned *v = learned;

	if (!v)
		return;
	v8_cache_destroy(v->cache);
	free(v->bytecode_sizes);
	free(v);
}

int v8_learn(const struct procman_binary *b, struct runtime_binary *ret_bpf, void **ret_learned,
	     struct diag *reterr_diag)
{
	struct runtime_v8_binary bpf = {};
	struct symbols s = {};
	struct v8_learned *v = calloc(1, sizeof(*v));
	int r;

	if (!v)
		return -ENOMEM;
	v->cache = calloc(1, sizeof(*v->cache));
	read_symbols(b->elf, true, &s);
	read_symbols(b->elf, false, &s);
	r = v->cache ? read_version(b->elf, &s, v, reterr_diag) : -ENOMEM;
	if (r == 0)
		r = take_constants(&s, v, reterr_diag);
	if (r == 0 && v->layout.smi_shift_size != 31)
		r = diag_set(reterr_diag, -ENOTSUP, "V8 %u.%u.%u: compressed pointers", v->major,
			     v->minor, v->build);
	if (r == 0) {
		complete_layout(v);
		r = find_builtins(b->elf, &s, v, reterr_diag);
	}
	if (r == 0)
		r = read_bytecode_sizes(b->elf, &s, v);
	if (r == 0)
		r = fill_bpf(b->elf, &s, v, &bpf, reterr_diag);
	if (r < 0) {
		v8_forget(v);
		return r;
	}
	memset(ret_bpf, 0, sizeof(*ret_bpf));
	memcpy(ret_bpf->room, &bpf, sizeof(bpf));
	*ret_learned = v;
	return 0;
}
