/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Offsets in CPython's objects. From 3.13 on the interpreter publishes them at the start of
 * _PyRuntime (struct _Py_DebugOffsets, Include/internal/pycore_debug_offsets.h). The layout of that
 * struct is fixed within a minor version only, so each has an entry here. Before 3.13 the offsets
 * are fixed per minor version; they were measured with offsetof() on the headers of 3.6.15, 3.7.16,
 * 3.8.18, 3.9.18, 3.10.13, 3.11.7 and 3.12.1. So were those of the GIL, in its struct
 * (Include/internal/pycore_gil.h) and of the struct in _PyRuntime or in an interpreter's state.
 */
#include <errno.h>
#include <string.h>

#include "agent/runtime/python/python.h"

#define DEBUG_COOKIE "xdebugpy"
#define MAX_PUBLISHED 1024

/* Indices of the 64-bit words of struct _Py_DebugOffsets. */
struct published_layout {
	u32 version;
	u16 thread_current_frame;
	u16 thread_id; /* then native_thread_id */
	u16 gil;       /* ceval_gil, gil_runtime_state, …_enabled, …_locked, …_holder */
	u16 frame;     /* size, previous, executable, instr_ptr, localsplus, owner */
	u16 frame_tlbc;
	u16 code; /* size, filename, name, qualname, linetable, firstlineno, argcount,
		     localsplusnames, localspluskinds, co_code_adaptive */
	u16 code_tlbc;
	u16 bytes;   /* size, ob_size, ob_sval */
	u16 unicode; /* size, state, length, asciiobject_size */
};

static const struct published_layout published[] = {
	{0x030d, 23, 24, 14, 28, 0, 34, 0, 64, 67},
	{0x030e, 26, 27, 15, 31, 38, 39, 49, 74, 77},
	{0x030f, 26, 30, 15, 39, 46, 47, 57, 86, 89},
};

struct fixed_layout {
	u32 version, shape;
	u32 thread_frame, cframe_frame, cframe_previous;
	u32 frame_code, frame_previous, frame_where, frame_owner, first_mark, frame_read;
	u32 code_bytes, code_filename, code_name, code_firstlineno, code_lines;
	u32 ascii, compact;
	u32 frame_locals;
};

static const struct fixed_layout fixed[] = {
	{0x0306, PYTHON_ONE, 24, 0, 0, 32, 24, 120, 0, 0, 124, 0, 96, 104, 36, 112, 48, 72, 376},
	{0x0307, PYTHON_ONE, 24, 0, 0, 32, 24, 104, 0, 0, 112, 0, 96, 104, 36, 112, 48, 72, 360},
	{0x0308, PYTHON_ONE, 24, 0, 0, 32, 24, 104, 0, 0, 112, 0, 104, 112, 40, 120, 48, 72, 360},
	{0x0309, PYTHON_ONE, 24, 0, 0, 32, 24, 104, 0, 0, 112, 0, 104, 112, 40, 120, 48, 72, 360},
	{0x030a, PYTHON_ONE, 24, 0, 0, 32, 24, 96, 0, 0, 104, 0, 104, 112, 40, 120, 48, 72, 352},
	{0x030b, PYTHON_ENTRY, 56, 8, 16, 32, 48, 56, 68, 0, 72, 184, 112, 128, 72, 136, 48, 72, 0},
	{0x030c, PYTHON_SHIM, 56, 0, 8, 0, 8, 56, 70, 3, 72, 192, 112, 128, 68, 136, 40, 56, 0},
};

/* Up to 3.6 the GIL consists of variables without symbols. */
static const struct {
	u32 version, of_runtime, of_interpreter, thread_native, thread_id;
} fixed_gil[] = {
	{0x0307, 1264, 0, 0, 176}, {0x0308, 1152, 0, 0, 176},  {0x0309, 352, 0, 0, 176},
	{0x030a, 352, 0, 0, 176},  {0x030b, 360, 0, 160, 152}, {0x030c, 0, 384, 144, 136},
};

/* In struct _gil_runtime_state of 3.7 to 3.15. */
#define GIL_HOLDER 8
#define GIL_LOCKED 16
#define GIL_COND 32

static void take_fixed(struct python_learned *l, const struct fixed_layout *f)
{
	struct python_binary *b = &l->bpf;

	b->shape = f->shape;
	b->thread_frame = f->thread_frame;
	b->cframe_frame = f->cframe_frame;
	b->cframe_previous = f->cframe_previous;
	b->frame_code = f->frame_code;
	b->frame_previous = f->frame_previous;
	b->frame_where = f->frame_where;
	b->frame_owner = f->frame_owner;
	b->first_mark = f->first_mark;
	b->frame_read = f->frame_read;
	b->frame_locals = f->frame_locals;
	b->code_bytes = f->code_bytes;
	l->objects = (struct python_objects){
		.code_filename = f->code_filename,
		.code_name = f->code_name,
		.code_firstlineno = f->code_firstlineno,
		.code_lines = f->code_lines,
		.bytes_size = 16,
		.bytes_data = 32,
		.str_length = 16,
		.str_state = 32,
		.str_ascii = f->ascii,
		.str_compact = f->compact,
		.str_kind_shift = 2,
	};
	for (size_t i = 0; i < ARRAY_SIZE(fixed_gil); i++) {
		if (fixed_gil[i].version != f->version)
			continue;
		l->gil = (struct python_gil){
			.of_runtime = fixed_gil[i].of_runtime,
			.of_interpreter = fixed_gil[i].of_interpreter,
			.holder = GIL_HOLDER,
			.locked = GIL_LOCKED,
			.cond = GIL_COND,
			.thread_native = fixed_gil[i].thread_native,
			.thread_id = fixed_gil[i].thread_id,
		};
	}
}

static bool any_outside(const u32 *offsets, size_t n, u32 size, u32 limit)
{
	for (size_t i = 0; i < n; i++)
		if (offsets[i] + size > limit)
			return true;
	return false;
}

/* Each offset must be inside the bytes that are read of its object. */
static int check_offsets(const struct python_learned *l, struct diag *d)
{
	const struct python_binary *b = &l->bpf;
	const struct python_objects *o = &l->objects;
	const u32 frame[] = {b->frame_code, b->frame_previous};
	const u32 frame_small[] = {b->frame_where, b->frame_tlbc, b->frame_owner};
	const u32 code[] = {o->code_filename, o->code_name, o->code_lines, b->code_tlbc};
	const u32 gil[] = {l->gil.holder, l->gil.locked, l->gil.thread_native, l->gil.thread_id};
	const u32 others[] = {o->str_length, o->str_state,  o->str_ascii,   o->str_compact,
			      o->bytes_size, o->bytes_data, b->frame_owner, b->code_bytes};

	if (b->frame_read >= PYTHON_FRAME_BYTES || b->code_read >= PYTHON_CODE_BYTES ||
	    any_outside(frame, ARRAY_SIZE(frame), 8, b->frame_read) ||
	    any_outside(frame_small, ARRAY_SIZE(frame_small), b->shape == PYTHON_ONE ? 4 : 1,
			b->frame_read) ||
	    any_outside(code, ARRAY_SIZE(code), 8, b->code_read) ||
	    any_outside(&o->code_firstlineno, 1, 4, b->code_read) ||
	    any_outside(others, ARRAY_SIZE(others), 8, 1024) || b->thread_frame > 4096 ||
	    b->thread_id > 4096 || any_outside(gil, ARRAY_SIZE(gil), 8, 1024) ||
	    l->gil.of_interpreter >= 1 << 24)
		return diag_set(d, -ENOTSUP,
				"Python %u.%u: the offsets that it publishes are implausible",
				l->version >> 8, l->version & 0xff);
	return 0;
}

static int take_published(struct python_learned *l, const u64 *w, const struct published_layout *p)
{
	struct python_binary *b = &l->bpf;
	const u64 *frame = w + p->frame, *code = w + p->code, *str = w + p->unicode;

	for (u32 i = 3; i < MAX_PUBLISHED / 8; i++)
		if (w[i] >= 1 << 24 && i <= (u32)p->unicode + 3)
			return -EINVAL;
	l->free_threaded = w[2] & 1;
	/* Another layout has its condition variable elsewhere. */
	if (!l->free_threaded && w[p->gil + 3] == w[p->gil + 1] + GIL_LOCKED &&
	    w[p->gil + 4] == w[p->gil + 1] + GIL_HOLDER)
		l->gil = (struct python_gil){
			.of_interpreter = (u32)w[p->gil],
			.holder = GIL_HOLDER,
			.locked = GIL_LOCKED,
			.cond = GIL_COND,
			.thread_native = (u32)w[p->thread_id + 1],
			.thread_id = (u32)w[p->thread_id],
		};
	b->shape = PYTHON_LIST;
	b->thread_frame = (u32)w[p->thread_current_frame];
	b->thread_id = (u32)w[p->thread_id];
	b->frame_previous = (u32)frame[1];
	b->frame_code = (u32)frame[2];
	b->frame_where = (u32)frame[3];
	b->frame_owner = (u32)frame[5];
	b->first_mark = 3;
	b->frame_read = (u32)MIN(frame[4], (u64)PYTHON_FRAME_BYTES - 8);
	b->code_bytes = (u32)code[9];
	if (p->frame_tlbc && l->free_threaded) {
		b->frame_tlbc = (u32)w[p->frame_tlbc];
		b->code_tlbc = (u32)w[p->code_tlbc];
	}
	l->objects = (struct python_objects){
		.code_filename = (u32)code[1],
		.code_name = (u32)code[3],
		.code_firstlineno = (u32)code[5],
		.code_lines = (u32)code[4],
		.bytes_size = (u32)w[p->bytes + 1],
		.bytes_data = (u32)w[p->bytes + 2],
		.str_length = (u32)str[2],
		.str_state = (u32)str[1],
		.str_ascii = (u32)str[3],
		.str_compact = (u32)str[3] + 16,
		/* 3.14t: `interned` is a byte, and the bits after it are in the next one. */
		.str_kind_shift = l->free_threaded && l->version >= 0x030e ? 8 : 2,
	};
	return 0;
}

static int read_published(struct elf_file *elf, struct python_learned *l, struct diag *d)
{
	const struct published_layout *p = NULL;
	u64 w[MAX_PUBLISHED / 8] = {};
	u32 said;

	for (u32 i = 0; i < ARRAY_SIZE(published); i++)
		if (published[i].version == l->version)
			p = &published[i];
	if (!p)
		return diag_set(d, -ENOTSUP,
				"Python %u.%u is newer than this culprit: the layout of its "
				"_Py_DebugOffsets is not known",
				l->version >> 8, l->version & 0xff);
	if (!l->runtime || elf_file_copy(elf, l->runtime, sizeof(w), w) < (ssize_t)sizeof(w) ||
	    memcmp(w, DEBUG_COOKIE, 8))
		return diag_set(d, -ENOTSUP, "Python %u.%u without its _Py_DebugOffsets",
				l->version >> 8, l->version & 0xff);
	said = (u32)(w[1] >> 16);
	if (said != l->version)
		return diag_set(d, -ENOTSUP, "_Py_DebugOffsets say %u.%u, Py_Version %u.%u",
				said >> 8, said & 0xff, l->version >> 8, l->version & 0xff);
	l->published = true;
	if (take_published(l, w, p) < 0)
		return diag_set(d, -ENOTSUP, "_Py_DebugOffsets are damaged");
	return 0;
}

int python_offsets(struct elf_file *elf, struct python_learned *l, struct diag *reterr_diag)
{
	struct python_binary *b = &l->bpf;
	const struct fixed_layout *f = NULL;
	int r = 0;

	for (u32 i = 0; i < ARRAY_SIZE(fixed); i++)
		if (fixed[i].version == l->version)
			f = &fixed[i];
	if (f)
		take_fixed(l, f);
	else if (l->version < 0x030d)
		return diag_set(reterr_diag, -ENOTSUP, "Python %u.%u: 3.6 is the oldest supported",
				l->version >> 8, l->version & 0xff);
	else
		r = read_published(elf, l, reterr_diag);
	if (r < 0)
		return r;
	b->code_id[0] = l->objects.code_filename;
	b->code_id[1] = l->objects.code_name;
	b->code_id[2] = l->objects.code_lines;
	b->code_id[3] = l->objects.code_firstlineno & ~7u;
	b->code_read = 0;
	for (u32 i = 0; i < 4; i++)
		b->code_read = MAX(b->code_read, b->code_id[i] + 8);
	b->code_read = MAX(b->code_read, b->code_tlbc + 8);
	return check_offsets(l, reterr_diag);
}
