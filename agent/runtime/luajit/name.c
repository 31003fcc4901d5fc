/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names functions. A function has no name of its own: like debug.traceback(), culprit takes the
 * name that the caller's call instruction has for it, a global, a field, a local variable. All of
 * this is memory of the process: sizes are bounded, and the words that form the cookie must equal
 * those that the walker saw.
 *
 * An instruction is 4 bytes {op, A, C, B}, or {op, A, D} (lj_bc.h).
 */
#include "agent/runtime/luajit/luajit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/runtime/lua/text.h"
#include "base/buf.h"
#include "base/cleanup.h"

#define MAX_CODE (1u << 16) /* instructions of a function */
#define MAX_BACK 1024	    /* instructions before a call that are searched for the name */
#define MAX_VARIABLES (1u << 16)

/* lj_bc.h; equal in all releases of 2.1 */
enum {
	OP_ISTC = 12,
	OP_ISFC = 13,
	OP_MOV = 18,
	OP_UNM = 20,
	OP_LEN = 21,
	OP_ADDVN = 22,
	OP_POW = 37,
	OP_CAT = 38,
	OP_KSTR = 39,
	OP_KPRI = 43,
	OP_KNIL = 44,
	OP_UGET = 45,
	OP_FNEW = 51,
	OP_GGET = 54,
	OP_GSET = 55,
	OP_TGETV = 56,
	OP_TGETS = 57,
	OP_TGETR = 59,
	OP_TSETV = 60,
	OP_TSETR = 64,
	OP_CALLM = 65,
	OP_CALLT = 68,
	OP_ITERC = 69,
	OP_ITERN = 70,
	OP_ISNEXT = 72,
	OP_RETM = 73,
	OP_FORI = 77,
	OP_JITERL = 84,
};

struct insn {
	u8 op, a, c, b;
};

static u32 insn_d(struct insn i)
{
	return i.c | (u32)i.b << 8;
}

int luajit_read_proto(const struct runtime_memory *m, u64 at, struct luajit_proto *ret)
{
	u8 bytes[LUAJIT_PROTO_BYTES];
	u32 size;

	if (runtime_read(m, at, bytes, sizeof(bytes)) < 0)
		return -EFAULT;
	if (bytes[LUAJIT_OBJECT_TYPE] != LUAJIT_TYPE_PROTO)
		return -ESTALE;
	*ret = (struct luajit_proto){.at = at};
	memcpy(&ret->n_code, bytes + LUAJIT_PROTO_SIZE, 4);
	memcpy(&ret->constants, bytes + 32, 8);
	memcpy(&size, bytes + 56, 4);
	ret->n_upvalues = bytes[60];
	memcpy(&ret->chunk, bytes + LUAJIT_PROTO_CHUNK, 8);
	memcpy(&ret->first_line, bytes + LUAJIT_PROTO_LINES, 4);
	memcpy(&ret->n_lines, bytes + LUAJIT_PROTO_LINES + 4, 4);
	memcpy(&ret->lines, bytes + 80, 8);
	memcpy(&ret->upvalues, bytes + 88, 8);
	memcpy(&ret->variables, bytes + 96, 8);
	ret->end = at + size;
	if (ret->n_code > MAX_CODE || ret->first_line > INT32_MAX || ret->n_lines > INT32_MAX)
		return -ESTALE;
	return 0;
}

/* A GCstr: its length is at 20, its bytes from 24 on (lj_obj.h). */
static int read_string(const struct runtime_memory *m, u64 at, struct arena *arena,
		       const char **ret)
{
	bool failed = false;
	u32 n = runtime_u32(m, (at & LUAJIT_POINTER) + 20, &failed);

	return failed ? -EFAULT : lua_text(m, (at & LUAJIT_POINTER) + 24, n, arena, ret);
}

/* ---- lines ---- */

static u32 line_of(const struct runtime_memory *m, const struct luajit_place *at)
{
	const struct luajit_proto *p = &at->proto;
	u32 width = p->n_lines < 256 ? 1 : p->n_lines < 65536 ? 2 : 4, by = 0;

	if (at->n == LUAJIT_NO_POSITION || !at->n || at->n > p->n_code)
		return 0;
	/* The first instruction, the function's header, has no entry. */
	if (at->n == 1)
		return p->first_line;
	if (!p->lines || runtime_read(m, p->lines + (u64)(at->n - 2) * width, &by, width) < 0)
		return 0;
	return p->first_line + by <= INT32_MAX ? p->first_line + by : 0;
}

/* ---- names ---- */

/* Returns the n-th of a list of NUL-terminated texts, which are at most `size` bytes long. */
static int nth_text(const struct runtime_memory *m, u64 at, u64 size, u32 n, struct arena *arena,
		    const char **ret)
{
	_cleanup_free_ char *texts = NULL;
	const char *text = NULL;
	struct buf b;

	size = MIN(size, (u64)MAX_VARIABLES);
	texts = malloc(size + 1);
	if (!texts)
		return -ENOMEM;
	if (runtime_read(m, at, texts, size) < 0)
		return -EFAULT;
	b = buf_of(texts, size);
	for (u32 i = 0; i <= n; i++)
		if (!buf_cstr(&b, &text))
			return -ENOENT;
	return lua_text(m, at + (u64)(text - texts), strlen(text), arena, ret);
}

/*
 * The local variable in a slot. Each variable is its name, or one byte below 7 for variables that
 * the compiler makes, then the number of instructions from the start of the last variable to its
 * start, and from there to its end (lj_debug.c, lj_parse.c).
 */
static int variable(const struct runtime_memory *m, const struct luajit_place *at, u32 pc, u32 slot,
		    struct arena *arena, const char **ret)
{
	const struct luajit_proto *p = &at->proto;
	_cleanup_free_ u8 *bytes = NULL;
	u64 start = 0, by, size;
	const char *name;
	struct buf b;

	if (p->variables < p->at || p->variables >= p->end)
		return -ENOENT;
	size = MIN(p->end - p->variables, (u64)MAX_VARIABLES);
	bytes = malloc(size);
	if (!bytes)
		return -ENOMEM;
	if (runtime_read(m, p->variables, bytes, size) < 0)
		return -EFAULT;
	b = buf_of(bytes, size);
	while (buf_left(&b)) {
		bool made = *b.pos < 7;

		if (!*b.pos || !(made ? buf_skip(&b, 1) : buf_cstr(&b, &name)) ||
		    !buf_uleb(&b, &by))
			return -ENOENT;
		start += by;
		if (start > pc || !buf_uleb(&b, &by))
			return -ENOENT;
		if (pc >= start + by || slot--)
			continue;
		if (made)
			return -ENOENT;
		return lua_text(m, p->variables + (u64)((const u8 *)name - bytes), strlen(name),
				arena, ret);
	}
	return -ENOENT;
}

static int constant(const struct runtime_memory *m, const struct luajit_proto *p, u32 index,
		    struct arena *arena, const char **ret)
{
	bool failed = false;
	u64 at = runtime_u64(m, p->constants - 8 * (u64)(index + 1), &failed);

	return failed ? -EFAULT : read_string(m, at, arena, ret);
}

/* Whether the instruction writes its operand A and no other slot. */
static bool writes_a(u8 op)
{
	return op == OP_ISTC || op == OP_ISFC || (op >= OP_MOV && op <= OP_KPRI) || op == OP_UGET ||
	       (op >= OP_FNEW && op <= OP_GGET) || (op >= OP_TGETV && op <= OP_TGETR);
}

/* Whether it writes the slots from its operand A on. */
static bool writes_from_a(u8 op)
{
	return op == OP_KNIL || (op >= OP_CALLM && op <= OP_ISNEXT) || op == OP_RETM ||
	       (op >= OP_FORI && op <= OP_JITERL);
}

/* The name of what a slot holds before instruction `pc`; `code` begins with `from`. */
static int slot_name(const struct runtime_memory *m, const struct luajit_place *at,
		     const struct insn *code, u32 from, u32 pc, u32 slot, struct arena *arena,
		     const char **ret)
{
	const struct luajit_proto *p = &at->proto;
	int r = variable(m, at, pc, slot, arena, ret);

	if (r != -ENOENT)
		return r;
	while (pc-- > from) {
		struct insn i = code[pc - from];

		if (writes_from_a(i.op) && slot >= i.a && (i.op != OP_KNIL || slot <= insn_d(i)))
			return -ENOENT;
		if (!writes_a(i.op) || i.a != slot)
			continue;
		switch (i.op) {
		case OP_MOV:
			slot = insn_d(i);
			r = variable(m, at, pc, slot, arena, ret);
			if (r != -ENOENT)
				return r;
			break;
		case OP_GGET:
			return constant(m, p, insn_d(i), arena, ret);
		case OP_TGETS:
			return constant(m, p, i.c, arena, ret);
		case OP_UGET:
			if (insn_d(i) >= p->n_upvalues || p->upvalues < p->at ||
			    p->upvalues >= p->end)
				return -ENOENT;
			return nth_text(m, p->upvalues, p->end - p->upvalues, insn_d(i), arena,
					ret);
		default:
			return -ENOENT;
		}
	}
	return -ENOENT;
}

/* The metamethod that an instruction calls; NULL: none. */
static const char *metamethod(u8 op)
{
	static const char *const arithmetic[] = {"__add", "__sub", "__mul", "__div", "__mod"};

	if (op < 2)
		return "__lt";
	if (op < 4)
		return "__le";
	if (op < OP_ISTC)
		return "__eq";
	if (op >= OP_ADDVN && op < OP_POW)
		return arithmetic[(op - OP_ADDVN) % 5];
	if (op == OP_GGET || (op >= OP_TGETV && op <= OP_TGETR))
		return "__index";
	if (op == OP_GSET || (op >= OP_TSETV && op <= OP_TSETR))
		return "__newindex";
	switch (op) {
	case OP_UNM:
		return "__unm";
	case OP_LEN:
		return "__len";
	case OP_POW:
		return "__pow";
	case OP_CAT:
		return "__concat";
	}
	return NULL;
}

int luajit_callee(const struct runtime_memory *m, const struct luajit_place *at,
		  struct arena *arena, const char **ret)
{
	u32 pc = at->n - 1, from = pc > MAX_BACK ? pc - MAX_BACK : 0;
	struct insn code[MAX_BACK + 1], call;

	if (at->n == LUAJIT_NO_POSITION || !at->n || at->n > at->proto.n_code)
		return -ENOENT;
	if (runtime_read(m, at->proto.at + LUAJIT_PROTO_BYTES + 4ULL * from, code,
			 4 * (at->n - from)) < 0)
		return -EFAULT;
	call = code[pc - from];
	if (call.op >= OP_CALLM && call.op <= OP_CALLT)
		return slot_name(m, at, code, from, pc, call.a, arena, ret);
	/* A loop's iterator is three slots below the call. */
	if ((call.op == OP_ITERC || call.op == OP_ITERN) && call.a >= 3)
		return slot_name(m, at, code, from, pc, call.a - 3u, arena, ret);
	*ret = metamethod(call.op);
	return *ret ? 0 : -ENOENT;
}

/* ---- frames ---- */

int luajit_describe(const struct runtime_memory *m, const struct luajit_place *at,
		    const struct luajit_place *caller, struct arena *arena,
		    struct runtime_frame *ret)
{
	struct runtime_frame f = {.start_line = at->proto.first_line, .line = line_of(m, at)};
	const char *chunk;
	int r = read_string(m, at->proto.chunk, arena, &chunk);

	if (r < 0)
		return r;
	f.file = lua_file(chunk, arena);
	if (!f.file)
		return -ENOMEM;
	if (caller && luajit_callee(m, caller, arena, &f.function) == -ENOMEM)
		return -ENOMEM;
	if (!f.function)
		f.function = lua_unnamed(f.file, f.start_line, arena);
	if (!f.function)
		return -ENOMEM;
	*ret = f;
	return 0;
}

static bool cookie_matches(u64 where, u64 a, u64 b, u64 c)
{
	return where >> LUAJIT_COOKIE_SHIFT == luajit_cookie(a, b, c) >> LUAJIT_COOKIE_SHIFT;
}

/* Reads the function of a frame, and checks that it is the one that the walker saw. */
static int read_place(const struct runtime_memory *m, u64 address, u64 where,
		      struct luajit_place *ret)
{
	int r = luajit_read_proto(m, address, &ret->proto);

	if (r < 0)
		return r;
	ret->n = (u32)where;
	return cookie_matches(where, ret->proto.chunk,
			      ret->proto.first_line | (u64)ret->proto.n_lines << 32,
			      ret->proto.n_code)
		       ? 0
		       : -ESTALE;
}

static u32 kind_of(u64 where)
{
	return where >> LUAJIT_KIND_SHIFT & LUAJIT_KIND_MASK;
}

static int name_c(const struct runtime_memory *m, u64 address, u64 where,
		  const struct luajit_place *caller, struct runtime_names *ret)
{
	u64 words[6];
	struct runtime_frame f = {.file = "[C]"};

	if (runtime_read(m, address, words, sizeof(words)) < 0)
		return -EFAULT;
	if (!cookie_matches(where, words[LUAJIT_FUNCTION_C / 8], words[1] >> 16 & 0xff, 0))
		return -ESTALE;
	if (caller && luajit_callee(m, caller, ret->arena, &f.function) == -ENOMEM)
		return -ENOMEM;
	if (!f.function)
		f.function = "?";
	ret->frames[ret->n++] = f;
	return 0;
}

/* Names the functions of a trace. */
static int name_trace(const struct runtime_memory *m, const struct luajit_trace *t, u32 offset,
		      const struct luajit_place *caller, struct runtime_names *ret)
{
	struct luajit_place places[RUNTIME_MAX_INLINED];
	int n = luajit_trace_places(m, t, offset, places, RUNTIME_MAX_INLINED);

	for (int i = 0; i < n; i++) {
		int r = luajit_describe(m, &places[i], i + 1 < n ? &places[i + 1] : caller,
					ret->arena, &ret->frames[ret->n]);

		if (r < 0)
			return r;
		ret->n++;
	}
	return n < 0 ? n : 0;
}

/* Names the trace itself, by its number and where it starts. */
static int name_mark(const struct runtime_memory *m, const struct luajit_trace *t,
		     struct runtime_names *ret)
{
	struct luajit_place start = {};
	struct runtime_frame f = {};
	const size_t size = 32;
	char *text = arena_alloc(ret->arena, size);
	int r;

	if (!text)
		return -ENOMEM;
	r = luajit_read_proto(m, t->proto, &start.proto);
	if (r < 0)
		return r;
	start.n = (u32)((t->pc - t->proto - LUAJIT_PROTO_BYTES) / 4 + 1);
	r = luajit_describe(m, &start, NULL, ret->arena, &f);
	if (r < 0)
		return r;
	snprintf(text, size, "[trace %u]", t->number);
	f.function = text;
	f.start_line = f.line;
	ret->frames[ret->n++] = f;
	return 0;
}

int luajit_name(const struct runtime_memory *m, u64 address, u64 where, struct runtime_names *ret)
{
	struct luajit_place place, calls, *caller = NULL;
	u32 kind = kind_of(where);
	struct luajit_trace trace;
	int r;

	if (where & LUAJIT_NAMED && ret->caller && kind_of(ret->caller_where) == LUAJIT_LUA &&
	    read_place(m, ret->caller, ret->caller_where, &calls) == 0)
		caller = &calls;
	if (kind == LUAJIT_C)
		return name_c(m, address, where, caller, ret);
	if (kind == LUAJIT_TRACE || kind == LUAJIT_MARK) {
		r = luajit_read_trace(m, address, where, &trace);
		if (r == 0)
			r = kind == LUAJIT_MARK ? name_mark(m, &trace, ret)
						: name_trace(m, &trace, (u32)where, caller, ret);
		return r;
	}
	r = read_place(m, address, where, &place);
	if (r == 0)
		r = luajit_describe(m, &place, caller, ret->arena, &ret->frames[0]);
	ret->n = r == 0;
	return r;
}
